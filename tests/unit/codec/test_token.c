/* tests/unit/codec/test_token.c: tokens of the S3-over-RDMA contract as text: vectors in both
 * directions, and every malformed form. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "codec/checksum.h"
#include "codec/signing.h"
#include "codec/text.h"
#include "codec/token.h"

#define VECTOR "0102030405060708:01020304:01020304:0102:010203:1:00112233445566778899aabbccddeeff"

static const char *const names[TOKEN_HEADER_COUNT] = {"x-amz-rdma-token", "x-amz-rdma-reply",
	"x-amz-rdma-bytes-transferred", "x-amz-rdma-bytes", "x-nebulaio-rdma-psn",
	"x-nebulaio-rdma-mtu", "x-nebulaio-rdma-bucket"};

static int parse(const char *text, bool strict, struct token *ret_token)
{
	const char *why = NULL;
	int ret = token_parse(slice_str(text), strict, ret_token, &why);

	if (ret)
		assert_true(why && why[0]);
	return ret;
}

static void test_names(void **state)
{
	(void)state;
	for (int i = 0; i < TOKEN_HEADER_COUNT; i++) {
		struct slice name = token_header((enum token_header)i);

		assert_true(slice_eq(name, slice_str(names[i])));
		assert_int_equal(name.data[name.len], '\0');
	}
}

static void test_vector(void **state)
{
	const uint8_t gid[16] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa,
		0xbb, 0xcc, 0xdd, 0xee, 0xff};
	char text[TOKEN_LEN];
	struct token token;

	(void)state;
	assert_int_equal(strlen(VECTOR), TOKEN_LEN);
	assert_int_equal(parse(VECTOR, true, &token), 0);
	assert_int_equal(token.addr, 0x0102030405060708);
	assert_int_equal(token.bytes, 0x01020304);
	assert_int_equal(token.rkey, 0x01020304);
	assert_int_equal(token.lid, 0x0102);
	assert_int_equal(token.qpn, 0x010203);
	assert_true(token.has_gid);
	assert_memory_equal(token.gid, gid, sizeof(gid));
	token_format(&token, text);
	assert_memory_equal(text, VECTOR, TOKEN_LEN);
}

static void test_bounds(void **state)
{
	static const char *const texts[] = {
		"0000000000000000:00000000:00000000:0000:000000:0:00000000000000000000000000000000",
		"0000000000000000:ffffffff:ffffffff:ffff:ffffff:1:ffffffffffffffffffffffffffffffff",
		"ffffffff00000000:ffffffff:00000001:0000:000001:1:fe80000000000000000000000000000a",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		char text[TOKEN_LEN];
		struct token token;

		assert_int_equal(parse(texts[i], true, &token), 0);
		token_format(&token, text);
		assert_memory_equal(text, texts[i], TOKEN_LEN);
	}
}

/* Without a GID the field has no meaning, and is not compared. */
static void test_without_gid(void **state)
{
	struct token a, b;

	(void)state;
	assert_int_equal(parse("0000000000001000:00000010:00000001:0007:000005:0:"
			       "ffffffffffffffffffffffffffffffff",
				 true, &a),
		0);
	assert_int_equal(parse("0000000000002000:00000020:00000002:0007:000005:0:"
			       "00000000000000000000000000000000",
				 true, &b),
		0);
	assert_true(token_same_peer(&a, &b));
	b.qpn++;
	assert_false(token_same_peer(&a, &b));
	b = a;
	b.lid++;
	assert_false(token_same_peer(&a, &b));
	b = a;
	b.has_gid = true;
	assert_false(token_same_peer(&a, &b));
	b.has_gid = false;
	b.gid[15] = 1;
	assert_false(token_same_peer(&a, &b));
}

static void test_override(void **state)
{
	struct token token;

	(void)state;
	assert_int_equal(parse(VECTOR ":00007f0000001000:0000000200000000", false, &token), 0);
	assert_int_equal(token.addr, 0x7f0000001000);
	assert_int_equal(token.bytes, 0x200000000);
	assert_int_equal(token.rkey, 0x01020304);
	assert_int_equal(parse(VECTOR ":00007f0000001000:0000000200000000", true, &token), -EINVAL);
	assert_int_equal(
		parse(VECTOR ":00007f0000001000;0000000200000000", false, &token), -EINVAL);
	assert_int_equal(
		parse(VECTOR ";00007f0000001000:0000000200000000", false, &token), -EINVAL);
	assert_int_equal(
		parse(VECTOR ":00007f000000100g:0000000200000000", false, &token), -EINVAL);
	assert_int_equal(
		parse(VECTOR ":00007f0000001000:000000020000000G", false, &token), -EINVAL);
	assert_int_equal(
		parse(VECTOR ":ffffffffffffffff:0000000000000001", false, &token), -EINVAL);
	assert_int_equal(parse(VECTOR ":00007f0000001000", false, &token), -EINVAL);
}

static void test_malformed(void **state)
{
	static const char *const texts[] = {
		"",
		"x",
		VECTOR "0",
		VECTOR " ",
		/* One short; then upper case, a wrong separator, a sign, a shifted colon. */
		"0102030405060708:01020304:01020304:0102:010203:1:00112233445566778899aabbccddeef",
		"0102030405060708:01020304:01020304:0102:010203:1:00112233445566778899AABBCCDDEEFF",
		"0102030405060708 01020304:01020304:0102:010203:1:00112233445566778899aabbccddeeff",
		"-102030405060708:01020304:01020304:0102:010203:1:00112233445566778899aabbccddeeff",
		"010203040506070:801020304:01020304:0102:010203:1:00112233445566778899aabbccddeeff",
		"0102030405060708:0102030x:01020304:0102:010203:1:00112233445566778899aabbccddeeff",
		"0102030405060708:01020304:0102_304:0102:010203:1:00112233445566778899aabbccddeeff",
		"0102030405060708:01020304:01020304:01 2:010203:1:00112233445566778899aabbccddeeff",
		"0102030405060708:01020304:01020304:0102:01020g:1:00112233445566778899aabbccddeeff",
		"0102030405060708:01020304:01020304:0102:010203:2:00112233445566778899aabbccddeeff",
		"0102030405060708:01020304:01020304:0102:010203:f:00112233445566778899aabbccddeeff",
		"0102030405060708:01020304:01020304:0102:010203:1:0011223344556677z899aabbccddeeff",
		/* Past the end of the address space. */
		"ffffffffffffffff:00000001:01020304:0102:010203:1:00112233445566778899aabbccddeeff",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct token token;

		assert_int_equal(parse(texts[i], false, &token), -EINVAL);
	}
}

/* ---- The vectors of docs/spec/token.md, which TOKEN_DOCUMENT names. ---- */

#define DOCUMENT_BYTES_MAX (64 * KIB)

static char *document_read(void)
{
	char *text = calloc(1, DOCUMENT_BYTES_MAX);
	const char *path = getenv("TOKEN_DOCUMENT");
	FILE *file;

	assert_non_null(path);
	assert_non_null(text);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_true(fread(text, 1, DOCUMENT_BYTES_MAX, file) < DOCUMENT_BYTES_MAX);
	fclose(file);
	return text;
}

static char *behind(char *text, const char *mark)
{
	char *at = strstr(text, mark);

	assert_non_null(at);
	return at + strlen(mark);
}

/* A row "| `TOKEN` | addr | size | rkey | lid | qpn | gid |". */
static void row_check(const char *row)
{
	char text[TOKEN_LEN + 1], gid[40], again[TOKEN_LEN], hex[33];
	unsigned long long addr, size, rkey, lid, qpn;
	struct token token;

	assert_int_equal(sscanf(row, "| `%81[^`]` | %llx | %llu | %llx | %llu | %llu | %39[^ ] |",
				 text, &addr, &size, &rkey, &lid, &qpn, gid),
		7);
	assert_int_equal(parse(text, true, &token), 0);
	assert_int_equal(token.addr, addr);
	assert_int_equal(token.bytes, size);
	assert_int_equal(token.rkey, rkey);
	assert_int_equal(token.lid, lid);
	assert_int_equal(token.qpn, qpn);
	assert_int_equal(token.has_gid, strcmp(gid, "none") != 0);
	hex_encode(token.gid, sizeof(token.gid), hex);
	for (size_t i = 0; token.has_gid && i < 32; i++)
		assert_int_equal(hex[i], gid[i + i / 4]);
	token_format(&token, again);
	assert_memory_equal(again, text, TOKEN_LEN);
}

static void test_document_tokens(void **state)
{
	char *document = document_read(), *at;
	uint32_t good = 0, bad = 0;

	(void)state;
	at = behind(document, "| token | addr | size | rkey | lid | qpn | gid |\n");
	for (at = strchr(at, '\n') + 1; *at == '|'; at = strchr(at, '\n') + 1, good++)
		row_check(at);
	at = behind(at, "| text | why |\n");
	for (at = strchr(at, '\n') + 1; *at == '|'; at = strchr(at, '\n') + 1, bad++) {
		struct token token;
		char text[128];

		assert_int_equal(sscanf(at, "| `%127[^`]` |", text), 1);
		assert_int_equal(parse(text, true, &token), -EINVAL);
	}
	assert_int_equal(good, 3);
	assert_int_equal(bad, 7);
	free(document);
}

static void test_document_request(void **state)
{
	char *document = document_read();
	char *request = behind(document, "<!-- vector: canonical request -->\n```\n");
	char *end = strstr(request, "\n```");
	char *stated = behind(end, "Its signature: `");
	const struct signing_scope scope = {SLICE("20260102"), SLICE("us-east-1"), SLICE("s3")};
	char hex[SIGNING_SIGNATURE_LEN + 1];
	uint8_t key[SHA256_BYTES];

	(void)state;
	signing_key(&scope, SLICE("example-secret-key"), key);
	signing_signature(key, &scope, SLICE("20260102T030405Z"),
		slice_of(request, (size_t)(end - request)), hex);
	assert_memory_equal(hex, stated, SIGNING_SIGNATURE_LEN);
	free(document);
}

static void test_document_checksum(void **state)
{
	char *document = document_read();
	char *stated = behind(document, "CRC-64/NVME of the nine bytes `123456789`: `0x");
	char *header = behind(stated, "first: `");
	char text[CHECKSUM_TEXT_LEN_MAX], hex[17];
	uint8_t digest[CHECKSUM_BYTES_MAX];

	(void)state;
	assert_int_equal(checksum_of(CHECKSUM_CRC64NVME, "123456789", 9, digest), 8);
	hex_encode(digest, 8, hex);
	assert_memory_equal(hex, stated, 16);
	assert_int_equal(base64_encode(digest, 8, text), 12);
	assert_memory_equal(text, header, 12);
	free(document);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_vector),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_without_gid),
		cmocka_unit_test(test_override),
		cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_document_tokens),
		cmocka_unit_test(test_document_request),
		cmocka_unit_test(test_document_checksum),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
