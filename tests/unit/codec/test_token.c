/* tests/unit/codec/test_token.c: tokens of the S3-over-RDMA contract as text: vectors both ways,
 * and every way to get one wrong. */
#include "../unit.h"

#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "codec/token.h"

#define VECTOR "0102030405060708:01020304:01020304:0102:010203:1:00112233445566778899aabbccddeeff"

static const char *const names[TOKEN_HEADER_COUNT] = {"x-amz-rdma-token", "x-amz-rdma-reply",
	"x-amz-rdma-bytes-transferred", "x-nebulaio-rdma-psn", "x-nebulaio-rdma-mtu"};

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

/* Without a GID the field says nothing, and is not compared. */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_vector),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_without_gid),
		cmocka_unit_test(test_override),
		cmocka_unit_test(test_malformed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
