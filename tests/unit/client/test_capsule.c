/* codec/capsule.c: whole capsules as bytes, and refusals. */
#include "../unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "codec/capsule.h"
#include "codec/codec.h"

static uint8_t buf[LIMIT_CAPSULE_BYTES_MAX] __attribute__((aligned(8)));

static size_t from_hex(const char *hex, uint8_t *bytes)
{
	size_t len = strlen(hex) / 2;

	assert_int_equal(hex_decode(slice_of(hex, 2 * len), bytes, len), 0);
	return len;
}

/* GET of bucket "photos", key "a", bytes 4096 to 8191, into one run; sealed as the first capsule
 * under the tag key 00 01 … 0f. The tag (the last line) was computed by another
 * implementation. */
static const char GET_HEX[] = "4e424331010600007f000000000000000100000000000000"
			      "0807060504030201"
			      "01000100"
			      "01000600"
			      "00000000"
			      "00010000"
			      "00000000"
			      "88130000"
			      "0010000000000000"
			      "0010000000000000"
			      "0000000000000000"
			      "0000adde00000000"
			      "0010000000000000"
			      "efbeadde00000000"
			      "70686f746f7361"
			      "df96a56fd269d26382a88a7480b3148f";

static void get_request(struct capsule_request *request, struct capsule_run *run)
{
	*run = (struct capsule_run){.addr = 0xdead0000, .bytes = 4096, .rkey = 0xdeadbeef};
	*request = (struct capsule_request){
		.request_id = 0x0102030405060708,
		.opcode = CAPSULE_OP_GET,
		.flags = CAPSULE_REQUEST_RANGE,
		.deadline_ms = 5000,
		.range_offset = 4096,
		.range_bytes = 4096,
		.bucket = SLICE("photos"),
		.key = SLICE("a"),
		.runs = run,
		.run_count = 1,
	};
}

static void test_request_vector(void **state)
{
	struct capsule_cipher cipher = {0}, other;
	struct capsule_request request, back;
	struct capsule_run run;
	uint8_t expected[256];
	size_t len = from_hex(GET_HEX, expected);
	ptrdiff_t bytes;

	(void)state;
	for (uint8_t i = 0; i < 16; i++)
		cipher.key[i] = i;
	other = cipher;
	get_request(&request, &run);
	bytes = capsule_request_encode(&request, buf, sizeof(buf));
	assert_int_equal(bytes, len);
	capsule_seal(&cipher, buf);
	assert_memory_equal(buf, expected, len);
	assert_int_equal(capsule_head_check(buf, (size_t)bytes, sizeof(buf)), bytes);
	assert_int_equal(capsule_unseal(&other, buf, (size_t)bytes), 0);
	assert_int_equal(capsule_request_decode(buf, (size_t)bytes, &back), 0);
	assert_int_equal(back.request_id, request.request_id);
	assert_int_equal(back.opcode, CAPSULE_OP_GET);
	assert_int_equal(back.range_offset, 4096);
	assert_int_equal(back.range_bytes, 4096);
	assert_int_equal(back.deadline_ms, 5000);
	assert_true(slice_eq(back.bucket, SLICE("photos")));
	assert_true(slice_eq(back.key, SLICE("a")));
	assert_int_equal(back.run_count, 1);
	assert_memory_equal(back.runs, &run, sizeof(run));
}

static void test_tag(void **state)
{
	struct capsule_cipher out = {.key = {1, 2, 3}}, in = out, again;
	struct capsule_request request;
	struct capsule_run run;
	ptrdiff_t bytes;

	(void)state;
	get_request(&request, &run);
	bytes = capsule_request_encode(&request, buf, sizeof(buf));
	capsule_seal(&out, buf);
	for (size_t at = 0; at < (size_t)bytes; at++) {
		for (int bit = 0; bit < 8; bit++) {
			again = in;
			buf[at] ^= (uint8_t)(1 << bit);
			assert_int_equal(capsule_unseal(&again, buf, (size_t)bytes), -EPROTO);
			assert_int_equal(again.counter, in.counter);
			buf[at] ^= (uint8_t)(1 << bit);
		}
	}
	assert_int_equal(capsule_unseal(&in, buf, (size_t)bytes), 0);
	assert_int_equal(capsule_unseal(&in, buf, (size_t)bytes), -EPROTO); /* replayed */
	capsule_seal(&out, buf);
	capsule_seal(&out, buf); /* one capsule was lost */
	assert_int_equal(capsule_unseal(&in, buf, (size_t)bytes), -EPROTO);
	assert_int_equal(capsule_unseal(&in, buf, 30), -EPROTO);
}

/* Encrypted: no content is readable, any changed bit is detected, and a seal that was not sent can
 * be undone. */
static void test_sealed(void **state)
{
	uint8_t key[AEAD_KEY_BYTES] = {7, 8, 9}, plain[sizeof(buf)];
	struct capsule_cipher out = {0}, in = {0}, other = {.key = {1}};
	struct capsule_request request, back;
	struct capsule_run run;
	ptrdiff_t bytes;

	(void)state;
	assert_int_equal(aead_open(key, &out.aead), 0);
	assert_int_equal(aead_open(key, &in.aead), 0);
	get_request(&request, &run);
	bytes = capsule_request_encode(&request, buf, sizeof(buf));
	memcpy(plain, buf, (size_t)bytes);
	capsule_seal(&out, buf);
	assert_int_equal(capsule_head_check(buf, (size_t)bytes, sizeof(buf)), bytes);
	assert_int_equal(slice_find(slice_of(buf, (size_t)bytes), SLICE("photos")), -1);
	capsule_seal_undo(&out, buf);
	assert_int_equal(out.counter, 0);
	assert_memory_equal(buf + 24, plain + 24, (size_t)bytes - 24 - CAPSULE_TAG_BYTES);
	capsule_seal(&out, buf);
	for (size_t at = 0; at < (size_t)bytes; at++) {
		uint8_t copy[1024] __attribute__((aligned(8)));

		memcpy(copy, buf, (size_t)bytes);
		copy[at] ^= 0x20;
		assert_int_equal(capsule_unseal(&in, copy, (size_t)bytes), -EPROTO);
		assert_int_equal(in.counter, 0);
	}
	/* A side that does not encrypt accepts no encrypted capsule, and the other way round. */
	assert_int_equal(capsule_unseal(&other, buf, (size_t)bytes), -EPROTO);
	assert_int_equal(capsule_unseal(&in, buf, (size_t)bytes), 0);
	assert_int_equal(capsule_request_decode(buf, (size_t)bytes, &back), 0);
	assert_true(slice_eq(back.bucket, SLICE("photos")));
	bytes = capsule_request_encode(&request, buf, sizeof(buf));
	capsule_seal(&other, buf);
	((struct capsule_head *)(void *)buf)->counter = 2;
	assert_int_equal(capsule_unseal(&in, buf, (size_t)bytes), -EPROTO);
	aead_close(out.aead);
	aead_close(in.aead);
}

/* The tag of a body in the runs: 16 bytes where the flag says so, and never beside an inline body.
 */
static void test_payload_tag(void **state)
{
	const uint8_t tag[AEAD_TAG_BYTES] = {1, 2, 3, 4};
	struct capsule_response response = {.request_id = 1,
		.status = 200,
		.flags = CAPSULE_RESPONSE_TAG,
		.payload_tag = slice_of(tag, sizeof(tag)),
		.etag = SLICE("e")};
	struct capsule_response answer;
	struct capsule_request request, back;
	struct capsule_run run;
	ptrdiff_t bytes;

	(void)state;
	get_request(&request, &run);
	request.body_bytes = 10;
	request.flags |= CAPSULE_REQUEST_TAG;
	assert_int_equal(capsule_request_encode(&request, buf, sizeof(buf)), -EINVAL);
	request.payload_tag = slice_of(tag, sizeof(tag));
	bytes = capsule_request_encode(&request, buf, sizeof(buf));
	assert_true(bytes > 0);
	assert_int_equal(capsule_request_decode(buf, (size_t)bytes, &back), 0);
	assert_true(slice_eq(back.payload_tag, request.payload_tag));
	request.body = SLICE("0123456789");
	assert_int_equal(capsule_request_encode(&request, buf, sizeof(buf)), -EINVAL);
	request.body = SLICE_NONE;
	request.body_bytes = 0;
	assert_int_equal(capsule_request_encode(&request, buf, sizeof(buf)), -EINVAL);
	bytes = capsule_response_encode(&response, buf, sizeof(buf));
	assert_true(bytes > 0);
	assert_int_equal(capsule_response_decode(buf, (size_t)bytes, &answer), 0);
	assert_true(slice_eq(answer.payload_tag, response.payload_tag));
	response.flags = 0;
	assert_int_equal(capsule_response_encode(&response, buf, sizeof(buf)), -EINVAL);
}

static void test_head(void **state)
{
	struct capsule_head head = {.magic = CAPSULE_MAGIC,
		.version = CAPSULE_VERSION,
		.kind = CAPSULE_REQUEST,
		.bytes = 100};
	struct capsule_head bad;

	(void)state;
	memset(buf, 0, 200);
	memcpy(buf, &head, sizeof(head));
	assert_int_equal(capsule_head_check(buf, 100, 4096), 100);
	assert_int_equal(capsule_head_check(buf, 150, 4096), 100);
	for (size_t len = 0; len < 100; len++)
		assert_int_equal(capsule_head_check(buf, len, 4096), -EAGAIN);
	assert_int_equal(capsule_head_check(buf, 100, 99), -EPROTO);
#define REFUSED(field, value)                                                   \
	do {                                                                    \
		bad = head;                                                     \
		bad.field = value;                                              \
		assert_int_equal(capsule_head_check(&bad, 100, 4096), -EPROTO); \
	} while (0)
	REFUSED(magic, 1);
	REFUSED(version, 2);
	REFUSED(kind, 0);
	REFUSED(kind, 10);
	REFUSED(flags, 2);
	REFUSED(reserved, 1);
	REFUSED(bytes, 23);
	REFUSED(bytes, UINT32_MAX);
#undef REFUSED
	/* Only a capsule with a tag can be encrypted. */
	bad = head;
	bad.flags = CAPSULE_FLAG_SEALED;
	assert_int_equal(capsule_head_check(&bad, 100, 4096), 100);
	bad.kind = CAPSULE_HELLO;
	assert_int_equal(capsule_head_check(&bad, 100, 4096), -EPROTO);
}

/* Each field out of its bounds is -EBADMSG, but the request id is still returned. */
static void test_request_refused(void **state)
{
	struct capsule_request_wire *wire = (void *)buf;
	struct capsule_run *runs = (void *)(wire + 1);
	struct capsule_request request, back;
	struct capsule_run run;
	uint8_t good[512];
	ptrdiff_t bytes;

	(void)state;
	get_request(&request, &run);
	bytes = capsule_request_encode(&request, buf, sizeof(buf));
	memcpy(good, buf, (size_t)bytes);
#define REFUSED(change)                                                                        \
	do {                                                                                   \
		memcpy(buf, good, (size_t)bytes);                                              \
		change;                                                                        \
		back.request_id = 0;                                                           \
		assert_int_equal(capsule_request_decode(buf, (size_t)bytes, &back), -EBADMSG); \
		assert_int_equal(back.request_id, request.request_id);                         \
	} while (0)
	REFUSED(wire->key_len++);
	REFUSED(wire->key_len--);
	REFUSED(wire->key_len = UINT16_MAX);
	REFUSED(wire->bucket_len = 64);
	REFUSED(wire->version_id_len = 65);
	REFUSED(wire->query_len = 4097);
	REFUSED(wire->headers_bytes = 8193);
	REFUSED(wire->header_count = 65);
	REFUSED(wire->header_count = 1);
	REFUSED(wire->run_count = 17);
	REFUSED(wire->run_count = 0);
	REFUSED(wire->inline_bytes = 1);
	REFUSED(wire->inline_bytes = UINT32_MAX);
	REFUSED(wire->flags = 8);
	REFUSED((wire->opcode = CAPSULE_OP_HEAD, wire->flags |= CAPSULE_REQUEST_PARTS));
	REFUSED(wire->flags |= CAPSULE_REQUEST_FLAGS + 1);
	REFUSED(wire->method = 1);
	REFUSED(wire->opcode = CAPSULE_OP_S3);
	REFUSED(wire->checksum_kind = 6);
	REFUSED(wire->checksum_kind = CHECKSUM_CRC32);
	REFUSED(wire->checksum_len = 4);
	REFUSED(wire->range_bytes = 0);
	REFUSED(wire->range_bytes = UINT64_MAX);
	REFUSED(wire->flags = 0);
	REFUSED(wire->body_bytes = 4097);
	REFUSED(runs[0].reserved = 1);
	REFUSED(runs[0].bytes = 0);
	REFUSED(runs[0].bytes = UINT64_MAX);
#undef REFUSED
	memcpy(buf, good, (size_t)bytes);
	assert_int_equal(capsule_request_decode(buf, (size_t)bytes, &back), 0);
	assert_int_equal(capsule_request_decode(buf, 95, &back), -EPROTO);
}

static void test_headers(void **state)
{
	uint8_t text[256];
	struct capsule_request request = {.opcode = CAPSULE_OP_PUT,
		.bucket = SLICE("b"),
		.key = SLICE("k"),
		.checksum_kind = CHECKSUM_CRC32C,
		.checksum = SLICE("\x01\x02\x03\x04"),
		.body = SLICE("body"),
		.body_bytes = 4};
	struct capsule_request back;
	struct capsule_header header;
	struct slice rest;
	size_t len = 0;
	ptrdiff_t bytes;

	(void)state;
	assert_int_equal(
		capsule_header_put(text, sizeof(text), &len, SLICE("x-amz-meta-a"), SLICE("1")), 0);
	assert_int_equal(
		capsule_header_put(text, sizeof(text), &len, SLICE("Empty"), SLICE_NONE), 0);
	assert_int_equal(
		capsule_header_put(text, sizeof(text), &len, SLICE("a b"), SLICE("1")), -EINVAL);
	assert_int_equal(
		capsule_header_put(text, sizeof(text), &len, SLICE(""), SLICE("1")), -EINVAL);
	assert_int_equal(
		capsule_header_put(text, sizeof(text), &len, SLICE("a"), SLICE("1\r\n")), -EINVAL);
	assert_int_equal(
		capsule_header_put(text, len + 5, &len, SLICE("a"), SLICE("1")), -EMSGSIZE);
	request.headers = slice_of(text, len);
	request.header_count = 2;
	bytes = capsule_request_encode(&request, buf, sizeof(buf));
	assert_true(bytes > 0);
	assert_int_equal(capsule_request_encode(&request, buf, (size_t)bytes - 1), -EMSGSIZE);
	bytes = capsule_request_encode(&request, buf, sizeof(buf));
	assert_int_equal(capsule_request_decode(buf, (size_t)bytes, &back), 0);
	assert_true(slice_eq(back.body, SLICE("body")));
	assert_true(slice_eq(back.checksum, SLICE("\x01\x02\x03\x04")));
	rest = back.headers;
	assert_true(capsule_header_next(&rest, &header));
	assert_true(slice_eq(header.name, SLICE("x-amz-meta-a")));
	assert_true(capsule_header_next(&rest, &header));
	assert_int_equal(header.value.len, 0);
	assert_false(capsule_header_next(&rest, &header));
	request.body_bytes = 5; /* inline, but not all of it */
	assert_int_equal(capsule_request_encode(&request, buf, sizeof(buf)), -EINVAL);
}

static void test_response(void **state)
{
	struct capsule_response response = {.request_id = 7,
		.server_id = 9,
		.bytes_moved = 5,
		.bytes_total = 500,
		.status = 206,
		.flags = CAPSULE_RESPONSE_INLINE,
		.etag = SLICE("abc"),
		.code = SLICE("Code"),
		.message = SLICE("message"),
		.body = {NULL, 5}};
	struct capsule_response_wire *wire = (void *)buf;
	struct capsule_response back;
	ptrdiff_t bytes = capsule_response_encode(&response, buf, sizeof(buf));

	(void)state;
	assert_int_equal(bytes, sizeof(*wire) + 3 + 4 + 7 + 5 + CAPSULE_TAG_BYTES);
	memcpy(capsule_response_body(buf), "hello", 5);
	assert_int_equal(capsule_response_decode(buf, (size_t)bytes, &back), 0);
	assert_true(slice_eq(back.body, SLICE("hello")));
	assert_true(slice_eq(back.etag, SLICE("abc")));
	assert_true(slice_eq(back.code, SLICE("Code")));
	assert_true(slice_eq(back.message, SLICE("message")));
	assert_int_equal(back.status, 206);
	assert_int_equal(back.bytes_total, 500);
	wire->etag_len++;
	assert_int_equal(capsule_response_decode(buf, (size_t)bytes, &back), -EPROTO);
	wire->etag_len = 81;
	assert_int_equal(capsule_response_decode(buf, (size_t)bytes, &back), -EPROTO);
	wire->etag_len = 3;
	wire->flags = 2;
	assert_int_equal(capsule_response_decode(buf, (size_t)bytes, &back), -EPROTO);
	response.etag.len = 81;
	assert_int_equal(capsule_response_encode(&response, buf, sizeof(buf)), -EINVAL);
}

/* The key schedule's steps compared with primitives that are tested with the standard's vectors. */
static void test_keys(void **state)
{
	struct capsule_hello_wire hello = {.version_min = 1, .version_max = 1, .credits = 8};
	struct capsule_challenge_wire challenge = {.version = 1};
	uint8_t transcript[32], key[32], expected[32], client[32], server[32];
	uint8_t capsule[CAPSULE_HELLO_BYTES_MAX] __attribute__((aligned(8)));
	struct capsule_keys keys;
	struct sha256 sha256;
	size_t len;

	(void)state;
	len = capsule_hello_finish(&hello, SLICE("AKID"), capsule);
	assert_int_equal(len, 92);
	capsule_challenge_finish(&challenge);
	capsule_transcript((const void *)capsule, &challenge, transcript);
	sha256_init(&sha256);
	sha256_update(&sha256, capsule, 92);
	sha256_update(&sha256, &challenge, 96);
	sha256_final(&sha256, expected);
	assert_memory_equal(transcript, expected, 32);
	capsule_auth_key(SLICE("secret"), transcript, key);
	hmac_sha256(SLICE("NEBULA1secret"), slice_of(transcript, 32), expected);
	assert_memory_equal(key, expected, 32);
	capsule_proof(key, false, client);
	capsule_proof(key, true, server);
	assert_memory_not_equal(client, server, 32);
	hmac_sha256(slice_of(key, 32), SLICE("client proof"), expected);
	assert_memory_equal(client, expected, 32);
	capsule_keys_derive(key, transcript, &keys);
	assert_memory_not_equal(keys.client_tag, keys.server_tag, 16);
}

static const struct capsule_address ADDRESSES[] = {
	{.ip = {[10] = 0xff, [11] = 0xff, 192, 0, 2, 1}, .port = 9100},
	{.ip = {0x20, 1, 0xd, 0xb8, [15] = 7}, .port = 9101},
};

static void test_paths(void **state)
{
	struct capsule_paths_wire *wire = (void *)buf;
	const struct capsule_address *addresses;
	size_t len = capsule_paths_encode(ADDRESSES, ARRAY_LEN(ADDRESSES), buf);
	uint32_t count;

	(void)state;
	assert_int_equal(len, 32 + 2 * 24 + CAPSULE_TAG_BYTES);
	assert_int_equal(capsule_head_check(buf, len, sizeof(buf)), len);
	assert_int_equal(capsule_paths_decode(buf, len, &addresses, &count), 0);
	assert_int_equal(count, 2);
	assert_memory_equal(addresses, ADDRESSES, sizeof(ADDRESSES));
	assert_int_equal(capsule_paths_decode(buf, len - 1, &addresses, &count), -EPROTO);
	assert_int_equal(capsule_paths_decode(buf, 8, &addresses, &count), -EPROTO);
	for (uint16_t i = 0; i <= CAPSULE_ADDRESSES_MAX + 1; i++) {
		wire->count = i;
		assert_int_equal(
			capsule_paths_decode(buf, len, &addresses, &count), i == 2 ? 0 : -EPROTO);
	}
	wire->count = 2;
	wire->reserved[2] = 1;
	assert_int_equal(capsule_paths_decode(buf, len, &addresses, &count), -EPROTO);
	wire->reserved[2] = 0;
	wire->addresses[1].reserved[0] = 1;
	assert_int_equal(capsule_paths_decode(buf, len, &addresses, &count), -EPROTO);
	wire->addresses[1].reserved[0] = 0;
	wire->addresses[0].port = 0;
	assert_int_equal(capsule_paths_decode(buf, len, &addresses, &count), -EPROTO);
}

static void test_addresses(void **state)
{
	struct capsule_address any = {.port = 1}, one = {.ip = {[15] = 1}, .port = 1};
	struct capsule_address v4 = {.ip = {[10] = 0xff, [11] = 0xff}, .port = 1};
	struct capsule_address v6 = {.port = 1};

	(void)state;
	assert_true(capsule_address_is_host(&ADDRESSES[0]));
	assert_true(capsule_address_is_host(&ADDRESSES[1]));
	assert_false(capsule_address_is_loopback(&ADDRESSES[0]));
	assert_false(capsule_address_is_loopback(&ADDRESSES[1]));
	assert_false(capsule_address_is_host(&any));
	assert_true(capsule_address_is_host(&one));
	assert_true(capsule_address_is_loopback(&one));
	assert_false(capsule_address_is_host(&v4));
	v4.ip[12] = 127;
	assert_true(capsule_address_is_loopback(&v4));
	v4.ip[12] = 224; /* a group */
	assert_false(capsule_address_is_host(&v4));
	v4.ip[12] = 169; /* of one link */
	v4.ip[13] = 254;
	assert_false(capsule_address_is_host(&v4));
	v6.ip[0] = 0xff;
	assert_false(capsule_address_is_host(&v6));
	v6.ip[0] = 0xfe;
	v6.ip[1] = 0x80;
	assert_false(capsule_address_is_host(&v6));
}

static void test_setup_refused(void **state)
{
	struct capsule_hello_wire hello = {.version_min = 1,
		.version_max = 1,
		.credits = 8,
		.capsule_bytes = 4096,
		.inline_bytes = 100};
	struct capsule_hello_wire *wire = (void *)buf;
	struct slice access_key, code, message;
	uint16_t status;
	size_t len;

	(void)state;
#define REFUSED(change)                                                                 \
	do {                                                                            \
		len = capsule_hello_finish(&hello, SLICE("AKID"), buf);                 \
		assert_int_equal(capsule_hello_decode(buf, len, &access_key), 0);       \
		change;                                                                 \
		assert_int_equal(capsule_hello_decode(buf, len, &access_key), -EPROTO); \
	} while (0)
	REFUSED(wire->access_key_len = 0);
	REFUSED(wire->access_key_len = 129);
	REFUSED(wire->access_key_len = 5);
	REFUSED(wire->version_min = 2);
	REFUSED(wire->reserved = 1);
	REFUSED(wire->credits = 0);
	REFUSED(wire->credits = 257);
	REFUSED(wire->capsule_bytes = 1023);
	REFUSED(wire->inline_bytes = 8193);
	REFUSED(len = 87);
#undef REFUSED
	len = capsule_refuse_encode(403, SLICE("Code"), SLICE("why"), buf, sizeof(buf));
	assert_int_equal(capsule_refuse_decode(buf, len, &status, &code, &message), 0);
	assert_int_equal(status, 403);
	assert_true(slice_eq(code, SLICE("Code")));
	assert_true(slice_eq(message, SLICE("why")));
	assert_int_equal(capsule_refuse_decode(buf, len - 1, &status, &code, &message), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_request_vector),
		cmocka_unit_test(test_tag),
		cmocka_unit_test(test_sealed),
		cmocka_unit_test(test_payload_tag),
		cmocka_unit_test(test_head),
		cmocka_unit_test(test_request_refused),
		cmocka_unit_test(test_headers),
		cmocka_unit_test(test_response),
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_setup_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
