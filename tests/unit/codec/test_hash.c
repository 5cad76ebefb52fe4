/* Covers codec/hash.c. */
#include "../unit.h"

#include <errno.h>

#include "base/base.h"
#include "codec/codec.h"
#include "vectors.h"

/* RFC 1321, A.5. */
static void test_md5_vectors(void **state)
{
	uint8_t digest[MD5_BYTES];

	(void)state;
	md5_of("", 0, digest);
	assert_bytes_are(digest, "d41d8cd98f00b204e9800998ecf8427e");
	md5_of("abc", 3, digest);
	assert_bytes_are(digest, "900150983cd24fb0d6963f7d28e17f72");
	md5_of("message digest", 14, digest);
	assert_bytes_are(digest, "f96b697d7cb7938d525a2f31aaf161d0");
}

/* FIPS 180-2, appendices A and B. */
static void test_sha_vectors(void **state)
{
	static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
	uint8_t digest[SHA256_BYTES];
	struct sha1 sha1;

	(void)state;
	sha256_of("", 0, digest);
	assert_bytes_are(
		digest, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	sha256_of("abc", 3, digest);
	assert_bytes_are(
		digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	sha256_of(two_blocks, sizeof(two_blocks) - 1, digest);
	assert_bytes_are(
		digest, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
	sha1_init(&sha1);
	sha1_update(&sha1, "a", 1);
	sha1_update(&sha1, "bc", 2);
	sha1_final(&sha1, digest);
	assert_bytes_are(digest, "a9993e364706816aba3e25717850c26c9cd0d89d");
}

static void test_a_million_letters_in_uneven_steps(void **state)
{
	static char letters[1000];
	uint8_t digest[SHA256_BYTES];
	struct sha256 sha256;
	struct prng prng;

	(void)state;
	memset(letters, 'a', sizeof(letters));
	prng_seed(&prng, 5);
	sha256_init(&sha256);
	for (size_t left = 1000000; left;) {
		size_t step = MIN(left, prng_below(&prng, sizeof(letters)));

		sha256_update(&sha256, letters, step);
		left -= step;
	}
	sha256_final(&sha256, digest);
	assert_bytes_are(
		digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void test_a_copied_context_goes_on_alone(void **state)
{
	uint8_t digest[SHA256_BYTES], expected[SHA256_BYTES];
	struct sha256 sha256, copy;

	(void)state;
	sha256_init(&sha256);
	sha256_update(&sha256, "ab", 2);
	copy = sha256;
	sha256_update(&sha256, "x", 1);
	sha256_update(&copy, "c", 1);
	sha256_final(&copy, digest);
	sha256_of("abc", 3, expected);
	assert_memory_equal(digest, expected, SHA256_BYTES);
	sha256_final(&sha256, digest);
	sha256_of("abx", 3, expected);
	assert_memory_equal(digest, expected, SHA256_BYTES);
}

/* Any number of messages, of any lengths, in any steps, has the digests that each has alone. */
static void test_md5_of_several_at_once(void **state)
{
	enum { MESSAGES = 37, BYTES_MAX = 5000 };
	static uint8_t text[MESSAGES][BYTES_MAX];
	static const uint32_t widths[] = {1, 8, 16};
	struct prng prng;

	(void)state;
	prng_seed(&prng, 7);
	for (uint32_t i = 0; i < MESSAGES * BYTES_MAX; i++)
		text[i / BYTES_MAX][i % BYTES_MAX] = (uint8_t)prng_next(&prng);
	for (uint32_t turn = 0; turn < 200; turn++) {
		uint32_t count = (uint32_t)prng_below(&prng, MESSAGES + 1);
		size_t used[MESSAGES] = {0};
		struct md5 sums[MESSAGES];

		for (uint32_t i = 0; i < count; i++)
			md5_init(&sums[i]);
		for (uint32_t step = 0; step < 3; step++) {
			struct md5_part parts[MESSAGES];

			for (uint32_t i = 0; i < count; i++) {
				size_t len = prng_below(&prng, turn % 2 ? BYTES_MAX / 3 : 200);

				parts[i] = (struct md5_part){&sums[i], text[i] + used[i], len};
				used[i] += len;
			}
			md5_update_parts_width(parts, count, widths[turn % 3]);
		}
		for (uint32_t i = 0; i < count; i++) {
			uint8_t digest[MD5_BYTES], expected[MD5_BYTES];

			md5_final(&sums[i], digest);
			md5_of(text[i], used[i], expected);
			assert_memory_equal(digest, expected, MD5_BYTES);
		}
	}
}

/* RFC 4231, cases 1, 2 and 6. */
static void test_hmac_vectors(void **state)
{
	uint8_t key[131], mac[SHA256_BYTES];

	(void)state;
	memset(key, 0x0b, sizeof(key));
	hmac_sha256(slice_of(key, 20), SLICE("Hi There"), mac);
	assert_bytes_are(mac, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
	hmac_sha256(SLICE("Jefe"), SLICE("what do ya want for nothing?"), mac);
	assert_bytes_are(mac, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
	memset(key, 0xaa, sizeof(key));
	hmac_sha256(slice_of(key, sizeof(key)),
		SLICE("Test Using Larger Than Block-Size Key - Hash Key First"), mac);
	assert_bytes_are(mac, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

/* RFC 2202, section 3: cases 1, 2, 3, 6 and 7. */
static void test_hmac_sha1_vectors(void **state)
{
	uint8_t key[80], data[50], mac[SHA1_BYTES];

	(void)state;
	memset(key, 0x0b, sizeof(key));
	hmac_sha1(slice_of(key, 20), SLICE("Hi There"), mac);
	assert_bytes_are(mac, "b617318655057264e28bc0b6fb378c8ef146be00");
	hmac_sha1(SLICE("Jefe"), SLICE("what do ya want for nothing?"), mac);
	assert_bytes_are(mac, "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
	memset(key, 0xaa, sizeof(key));
	memset(data, 0xdd, sizeof(data));
	hmac_sha1(slice_of(key, 20), slice_of(data, sizeof(data)), mac);
	assert_bytes_are(mac, "125d7342b9ac11cd91a39af48aa17b4f63f175d3");
	hmac_sha1(slice_of(key, sizeof(key)),
		SLICE("Test Using Larger Than Block-Size Key - Hash Key First"), mac);
	assert_bytes_are(mac, "aa4ae5e15272d00e95705637ce8a3b55ed402112");
	hmac_sha1(slice_of(key, sizeof(key)),
		SLICE("Test Using Larger Than Block-Size Key and Larger Than One Block-Size Data"),
		mac);
	assert_bytes_are(mac, "e8e99d0f45237d786d6bbaa7965c7808bbff1a91");
}

static void test_hmac_key_serves_many_messages(void **state)
{
	uint8_t mac[SHA256_BYTES];
	struct hmac_key key;
	struct hmac hmac;

	(void)state;
	hmac_key_init(&key, "Jefe", 4);
	for (int i = 0; i < 3; i++) {
		hmac_init(&hmac, &key);
		hmac_update(&hmac, "what do ya want ", 16);
		hmac_update(&hmac, "for nothing?", 12);
		hmac_final(&hmac, mac);
		assert_bytes_are(
			mac, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
	}
}

/* AWS General Reference, "Examples of how to derive a signing key": each result is the next key. */
static void test_hmac_chain_of_sigv4(void **state)
{
	uint8_t key[SHA256_BYTES];

	(void)state;
	hmac_sha256(SLICE("AWS4wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"), SLICE("20150830"), key);
	hmac_sha256(slice_of(key, sizeof(key)), SLICE("us-east-1"), key);
	hmac_sha256(slice_of(key, sizeof(key)), SLICE("iam"), key);
	hmac_sha256(slice_of(key, sizeof(key)), SLICE("aws4_request"), key);
	assert_bytes_are(key, "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9");
}

/* RFC 5869, A.1 and A.3. */
static void test_hkdf_vectors(void **state)
{
	uint8_t secret[22], salt[13], info[10], out[42];

	(void)state;
	memset(secret, 0x0b, sizeof(secret));
	for (unsigned i = 0; i < sizeof(salt); i++)
		salt[i] = (uint8_t)i;
	for (unsigned i = 0; i < sizeof(info); i++)
		info[i] = (uint8_t)(0xf0 + i);
	assert_int_equal(hkdf_sha256(slice_of(secret, 22), slice_of(salt, 13), slice_of(info, 10),
				 out, sizeof(out)),
		0);
	assert_bytes_are(out, "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
			      "34007208d5b887185865");
	assert_int_equal(
		hkdf_sha256(slice_of(secret, 22), SLICE_NONE, SLICE_NONE, out, sizeof(out)), 0);
	assert_bytes_are(out, "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
			      "9d201395faa4b61a96c8");
}

static void test_hkdf_refuses_too_much(void **state)
{
	static uint8_t out[255 * 32 + 1];

	(void)state;
	assert_int_equal(hkdf_sha256(SLICE("s"), SLICE_NONE, SLICE_NONE, out, 255 * 32), 0);
	assert_int_equal(
		hkdf_sha256(SLICE("s"), SLICE_NONE, SLICE_NONE, out, 255 * 32 + 1), -EINVAL);
	assert_int_equal(out[255 * 32], 0);
}

/* The reference implementation's vectors: key 00..0f, message 00..(len - 1). */
static void test_siphash_vectors(void **state)
{
	uint8_t key[16], message[1] = {0}, mac[SIPHASH_BYTES];

	(void)state;
	for (unsigned i = 0; i < sizeof(key); i++)
		key[i] = (uint8_t)i;
	mac_siphash128(key, NULL, 0, mac);
	assert_bytes_are(mac, "a3817f04ba25a8e66df67214c7550293");
	mac_siphash128(key, message, 1, mac);
	assert_bytes_are(mac, "da87c1d86b99af44347659119b22fc45");
}

static void test_secrets(void **state)
{
	uint8_t a[33] = "0123456789abcdef0123456789abcdef", b[33];

	(void)state;
	memcpy(b, a, sizeof(b));
	assert_true(secret_equal(a, b, 32));
	assert_true(secret_equal(a, b, 0));
	for (unsigned len = 1; len <= 32; len++) {
		for (unsigned i = 0; i < sizeof(b); i++) {
			b[i] ^= (uint8_t)(1u << i % 8);
			assert_int_equal(secret_equal(a, b, len), i >= len);
			b[i] = a[i];
		}
	}
	secret_wipe(a, sizeof(a));
	for (unsigned i = 0; i < sizeof(a); i++)
		assert_int_equal(a[i], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_md5_vectors),
		cmocka_unit_test(test_sha_vectors),
		cmocka_unit_test(test_a_million_letters_in_uneven_steps),
		cmocka_unit_test(test_a_copied_context_goes_on_alone),
		cmocka_unit_test(test_md5_of_several_at_once),
		cmocka_unit_test(test_hmac_vectors),
		cmocka_unit_test(test_hmac_sha1_vectors),
		cmocka_unit_test(test_hmac_key_serves_many_messages),
		cmocka_unit_test(test_hmac_chain_of_sigv4),
		cmocka_unit_test(test_hkdf_vectors),
		cmocka_unit_test(test_hkdf_refuses_too_much),
		cmocka_unit_test(test_siphash_vectors),
		cmocka_unit_test(test_secrets),
	};

	return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}
