/* Covers codec/aead.c. */
#include "../unit.h"

#include <errno.h>

#include "base/base.h"
#include "codec/codec.h"
#include "vectors.h"

static const uint8_t zeros[64];

/* McGrew and Viega, "The Galois/Counter Mode of Operation", cases 13 and 14. */
static void test_vectors_of_zeros(void **state)
{
	uint8_t out[16], tag[AEAD_TAG_BYTES];
	struct aead_message message = {.nonce = zeros, .src = zeros, .dst = out, .tag = tag};
	struct aead *aead;

	(void)state;
	assert_int_equal(aead_open(zeros, &aead), 0);
	assert_int_equal(aead_seal(aead, &message), 0);
	assert_bytes_are(tag, "530f8afbc74536b9a963b4f1c4cb738b");
	assert_int_equal(aead_unseal(aead, &message), 0);
	message.len = sizeof(out);
	assert_int_equal(aead_seal(aead, &message), 0);
	assert_bytes_are(out, "cea7403d4d606b6e074ec5d3baf39d18");
	assert_bytes_are(tag, "d0d1c8a799996bf0265b98b5d48ab919");
	aead_close(aead);
}

/* The same, case 16: with data that is only authenticated; and back, in place. */
static void test_vector_with_clear_part(void **state)
{
	uint8_t key[VECTOR_BYTES_MAX], nonce[VECTOR_BYTES_MAX], aad[VECTOR_BYTES_MAX];
	uint8_t text[VECTOR_BYTES_MAX], tag[AEAD_TAG_BYTES];
	struct aead_message message = {.nonce = nonce, .src = text, .dst = text, .tag = tag};
	const char *plain = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
			    "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39";
	struct aead *aead;

	(void)state;
	from_hex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308", key);
	from_hex("cafebabefacedbaddecaf888", nonce);
	message.aad = slice_of(aad, from_hex("feedfacedeadbeeffeedfacedeadbeefabaddad2", aad));
	message.len = from_hex(plain, text);
	assert_int_equal(aead_open(key, &aead), 0);
	assert_int_equal(aead_seal(aead, &message), 0);
	assert_bytes_are(text, "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
			       "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662");
	assert_bytes_are(tag, "76fc6ece0f4e1768cddf8853bb2d551b");
	assert_int_equal(aead_unseal(aead, &message), 0);
	assert_bytes_are(text, plain);
	aead_close(aead);
}

static void test_round_trips(void **state)
{
	static uint8_t plain[9000], sealed[9000], opened[9000];
	uint8_t key[AEAD_KEY_BYTES], nonce[AEAD_NONCE_BYTES], tag[AEAD_TAG_BYTES];
	struct aead *sender, *receiver;
	struct prng prng;

	(void)state;
	prng_seed(&prng, 6);
	prng_fill(&prng, key, sizeof(key));
	prng_fill(&prng, plain, sizeof(plain));
	assert_int_equal(aead_open(key, &sender), 0);
	assert_int_equal(aead_open(key, &receiver), 0);
	for (int round = 0; round < 300; round++) {
		size_t len = prng_below(&prng, sizeof(plain));
		struct aead_message there = {nonce, SLICE("head"), plain, sealed, len, tag};
		struct aead_message back = {nonce, SLICE("head"), sealed, opened, len, tag};

		prng_fill(&prng, nonce, sizeof(nonce));
		assert_int_equal(aead_seal(sender, &there), 0);
		assert_int_equal(aead_unseal(receiver, &back), 0);
		assert_memory_equal(opened, plain, len);
	}
	aead_close(sender);
	aead_close(receiver);
}

/* A changed bit anywhere gives no output, and the same context still opens an intact message. */
static void test_any_change_is_refused(void **state)
{
	uint8_t text[32], opened[32], tag[AEAD_TAG_BYTES], nonce[AEAD_NONCE_BYTES] = {1},
							   aad[8] = {2};
	struct aead_message seal = {nonce, slice_of(aad, 8), zeros, text, sizeof(text), tag};
	struct aead_message unseal = {nonce, slice_of(aad, 8), text, opened, sizeof(text), tag};
	uint8_t *const parts[] = {text, tag, nonce, aad};
	const size_t sizes[] = {sizeof(text), sizeof(tag), sizeof(nonce), sizeof(aad)};
	struct aead *aead;

	(void)state;
	assert_int_equal(aead_open(zeros, &aead), 0);
	assert_int_equal(aead_seal(aead, &seal), 0);
	for (unsigned part = 0; part < ARRAY_LEN(parts); part++) {
		for (size_t bit = 0; bit < 8 * sizes[part]; bit++) {
			parts[part][bit / 8] ^= (uint8_t)(1 << bit % 8);
			memset(opened, 0xff, sizeof(opened));
			assert_int_equal(aead_unseal(aead, &unseal), -EBADMSG);
			assert_memory_equal(opened, zeros, sizeof(opened));
			parts[part][bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
	}
	assert_int_equal(aead_unseal(aead, &unseal), 0);
	unseal.len--;
	assert_int_equal(aead_unseal(aead, &unseal), -EBADMSG);
	aead_close(aead);
	aead_close(NULL);
}

/* Piece by piece the output is the same, and the end detects a change. */
static void test_stream(void **state)
{
	uint8_t key[AEAD_KEY_BYTES] = {1}, nonce[AEAD_NONCE_BYTES] = {2}, tags[2][AEAD_TAG_BYTES];
	uint8_t plain[1000], whole[1000], pieces[1000];
	struct aead_message message = {
		.nonce = nonce, .src = plain, .dst = whole, .len = sizeof(plain), .tag = tags[0]};
	struct aead_stream *stream;
	struct aead *aead;

	(void)state;
	for (size_t i = 0; i < sizeof(plain); i++)
		plain[i] = (uint8_t)(i * 7);
	assert_int_equal(aead_open(key, &aead), 0);
	assert_int_equal(aead_seal(aead, &message), 0);
	assert_int_equal(aead_stream_open(key, nonce, true, &stream), 0);
	for (size_t at = 0, step = 1; at < sizeof(plain);
		at += step, step = MIN(step * 3, 1000 - at))
		assert_int_equal(aead_stream_update(stream, plain + at, pieces + at, step), 0);
	assert_int_equal(aead_stream_end(stream, tags[1]), 0);
	aead_stream_close(stream);
	assert_memory_equal(pieces, whole, sizeof(whole));
	assert_memory_equal(tags[0], tags[1], sizeof(tags[0]));
	for (int change = 0; change < 2; change++) {
		assert_int_equal(aead_stream_open(key, nonce, false, &stream), 0);
		whole[999] ^= (uint8_t)change;
		assert_int_equal(aead_stream_update(stream, whole, pieces, 500), 0);
		assert_int_equal(aead_stream_update(stream, whole + 500, pieces + 500, 500), 0);
		assert_int_equal(aead_stream_end(stream, tags[1]), change ? -EBADMSG : 0);
		if (!change)
			assert_memory_equal(pieces, plain, sizeof(plain));
		aead_stream_close(stream);
	}
	aead_stream_close(NULL);
	aead_close(aead);
}

/* Bytes that would pass the limit of a message are refused before one of them is read. */
static void test_limit(void **state)
{
	uint8_t key[AEAD_KEY_BYTES] = {1}, nonce[AEAD_NONCE_BYTES] = {2}, tag[AEAD_TAG_BYTES];
	uint8_t text[100] = {0};
	struct aead_message message = {.nonce = nonce,
		.src = text,
		.dst = text,
		.len = AEAD_MESSAGE_BYTES_MAX + 1,
		.tag = tag};
	struct aead_stream *stream;
	struct aead *aead;

	(void)state;
	for (int seal = 0; seal < 2; seal++) {
		assert_int_equal(aead_stream_open(key, nonce, seal, &stream), 0);
		assert_int_equal(aead_stream_update(stream, text, text, AEAD_MESSAGE_BYTES_MAX + 1),
			-EMSGSIZE);
		assert_int_equal(aead_stream_update(stream, text, text, 100), 0);
		assert_int_equal(
			aead_stream_update(stream, text, text, AEAD_MESSAGE_BYTES_MAX - 99),
			-EMSGSIZE);
		/* The message goes on without those bytes. */
		assert_int_equal(aead_stream_update(stream, text, text, 1), 0);
		assert_int_equal(aead_stream_end(stream, tag), seal ? 0 : -EBADMSG);
		aead_stream_close(stream);
	}
	assert_int_equal(aead_open(key, &aead), 0);
	assert_int_equal(aead_seal(aead, &message), -EMSGSIZE);
	assert_int_equal(aead_unseal(aead, &message), -EMSGSIZE);
	aead_close(aead);
}

/* Messages after each other and beside each other: each is what a new stream makes of it. */
static void test_spare_streams(void **state)
{
	static const uint8_t key[AEAD_KEY_BYTES] = {7}, plain[100] = {1, 2, 3};
	struct aead_stream *spare = NULL, *first, *second, *fresh;
	uint8_t got[100], expected[100], tag[AEAD_TAG_BYTES], expected_tag[AEAD_TAG_BYTES];

	(void)state;
	for (uint8_t i = 0; i < 4; i++) {
		const uint8_t nonce[AEAD_NONCE_BYTES] = {i}, other[AEAD_NONCE_BYTES] = {i, 1};

		assert_int_equal(aead_stream_take(&spare, key, nonce, true, &first), 0);
		assert_null(spare);
		assert_int_equal(aead_stream_take(&spare, key, other, true, &second), 0);
		assert_int_equal(aead_stream_update(second, plain, got, 50), 0); /* given up */
		assert_int_equal(aead_stream_update(first, plain, got, sizeof(plain)), 0);
		assert_int_equal(aead_stream_end(first, tag), 0);
		assert_int_equal(aead_stream_open(key, nonce, true, &fresh), 0);
		assert_int_equal(aead_stream_update(fresh, plain, expected, sizeof(plain)), 0);
		assert_int_equal(aead_stream_end(fresh, expected_tag), 0);
		aead_stream_close(fresh);
		assert_memory_equal(got, expected, sizeof(got));
		assert_memory_equal(tag, expected_tag, sizeof(tag));
		aead_stream_keep(&spare, second);
		assert_ptr_equal(spare, second);
		aead_stream_keep(&spare, first); /* closed */
		assert_ptr_equal(spare, second);
		aead_stream_keep(&spare, NULL);
	}
	aead_stream_close(spare);
}

/* Both libraries make the same of every length and every cut into pieces. */
static void test_libraries_agree(void **state)
{
	static uint8_t plain[5000], sealed[2][5000];
	uint8_t key[AEAD_KEY_BYTES], nonce[AEAD_NONCE_BYTES], tags[2][AEAD_TAG_BYTES];
	struct aead_stream *streams[2];
	struct prng prng;

	(void)state;
	prng_seed(&prng, 7);
	prng_fill(&prng, plain, sizeof(plain));
	for (size_t len = 0; len < 600; len++) {
		size_t cut = prng_below(&prng, len + 1), whole = len < 300 ? len : len * 8;

		prng_fill(&prng, key, sizeof(key));
		prng_fill(&prng, nonce, sizeof(nonce));
		for (int only = 0; only < 2; only++) {
			aead_only_libcrypto(only);
			assert_int_equal(aead_stream_open(key, nonce, true, &streams[only]), 0);
			assert_int_equal(
				aead_stream_update(streams[only], plain, sealed[only], cut), 0);
			assert_int_equal(aead_stream_update(streams[only], plain + cut,
						 sealed[only] + cut, whole - cut),
				0);
			assert_int_equal(aead_stream_end(streams[only], tags[only]), 0);
			aead_stream_close(streams[only]);
		}
		assert_memory_equal(sealed[0], sealed[1], whole);
		assert_memory_equal(tags[0], tags[1], sizeof(tags[0]));
	}
}

static int use_libcrypto(void **state)
{
	(void)state;
	aead_only_libcrypto(true);
	return 0;
}

static int use_any(void **state)
{
	(void)state;
	aead_only_libcrypto(false);
	return 0;
}

/* By the fastest library that there is, and by libcrypto. */
#define BOTH(test)                             \
	cmocka_unit_test_setup(test, use_any), \
		cmocka_unit_test_setup_teardown(test, use_libcrypto, use_any)

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_vectors_of_zeros),
		BOTH(test_vector_with_clear_part),
		BOTH(test_round_trips),
		BOTH(test_any_change_is_refused),
		BOTH(test_stream),
		BOTH(test_limit),
		BOTH(test_spare_streams),
		cmocka_unit_test_setup_teardown(test_libraries_agree, use_any, use_any),
	};

	return cmocka_run_group_tests_name("aead", tests, NULL, NULL);
}
