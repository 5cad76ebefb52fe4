/* The example of "Authenticating Requests: Using the Authorization Header" (S3 API reference), GET
 * with a range. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "codec/codec.h"

#define SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define CANONICAL                                                                                 \
	"GET\n/test.txt\n\nhost:examplebucket.s3.amazonaws.com\nrange:bytes=0-9\n"                \
	"x-amz-content-sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n" \
	"x-amz-date:20130524T000000Z\n\nhost;range;x-amz-content-sha256;x-amz-date\n"             \
	"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define SIGNATURE "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"

static const struct signing_scope SCOPE = {
	SLICE("20130524T000000Z"), SLICE("us-east-1"), SLICE("s3")};

static void test_signature(void **state)
{
	char signature[SIGNING_SIGNATURE_LEN + 1];
	uint8_t key[SHA256_BYTES];

	(void)state;
	signing_key(&SCOPE, SLICE(SECRET), key);
	signing_signature(key, &SCOPE, SLICE("20130524T000000Z"), SLICE(CANONICAL), signature);
	assert_string_equal(signature, SIGNATURE);
}

static void test_header(void **state)
{
	static const struct {
		struct slice sent, canonical;
	} values[] = {
		{SLICE(""), SLICE("")},
		{SLICE("a"), SLICE("a")},
		{SLICE("a b"), SLICE("a b")},
		{SLICE(" \ta  b\t \tc "), SLICE("a b c")},
		{SLICE("  "), SLICE("")},
	};
	struct buf out;

	(void)state;
	buf_init(&out, KIB);
	signing_name_put(SLICE("Host;X-Amz-Meta-\xc3\x84"), &out);
	assert_true(slice_eq(buf_slice(&out), SLICE("host;x-amz-meta-\xc3\x84")));
	for (size_t i = 0; i < ARRAY_LEN(values); i++) {
		buf_reset(&out);
		signing_value_put(values[i].sent, &out);
		assert_true(slice_eq(buf_slice(&out), values[i].canonical));
	}
	buf_free(&out);
}

static void test_scope(void **state)
{
	struct buf out;

	(void)state;
	buf_init(&out, KIB);
	signing_scope_put(&SCOPE, &out);
	assert_true(slice_eq(buf_slice(&out), SLICE("20130524/us-east-1/s3/aws4_request")));
	buf_free(&out);
}

static void test_string(void **state)
{
	struct buf out;

	(void)state;
	buf_init(&out, KIB);
	signing_string(SLICE("20130524T000000Z"), SLICE("20130524/us-east-1/s3/aws4_request"),
		SLICE(CANONICAL), &out);
	assert_true(slice_eq(buf_slice(&out),
		SLICE("AWS4-HMAC-SHA256\n20130524T000000Z\n20130524/us-east-1/s3/aws4_request\n"
		      "7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972")));
	buf_free(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_signature),
		cmocka_unit_test(test_header),
		cmocka_unit_test(test_scope),
		cmocka_unit_test(test_string),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
