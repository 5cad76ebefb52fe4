/* tests/unit/origin/test_answer.c: what an origin's answer says about an object, and which answers
 * contradict themselves. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>

#include "origin/origin_priv.h"

static struct answer answer;

static int read_of(uint32_t status, uint64_t length, const char *etag, const char *headers)
{
	struct replicate_result result = {.status = status, .object_bytes = length};

	slice_copy_str(slice_str(etag), result.etag, sizeof(result.etag));
	return answer_read(&result, slice_str(headers), &answer);
}

static struct slice header(const char *wanted)
{
	struct slice rest = slice_of(answer.object.headers, answer.object.headers_len);

	while (rest.len) {
		struct slice name = slice_split(&rest, '\0'), value = slice_split(&rest, '\0');

		if (slice_eq(name, slice_str(wanted)))
			return value;
	}
	return SLICE_NONE;
}

static void test_whole(void **state)
{
	(void)state;
	assert_int_equal(read_of(200, 7, "abc-2",
				 "Content-Type: text/x\nX-Amz-Meta-Color: deep green\n"
				 "Server: other\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\n"),
		0);
	assert_int_equal(answer.object.bytes, 7);
	assert_false(answer.partial);
	assert_string_equal(answer.object.etag, "abc-2");
	assert_int_equal(answer.object.mtime_ns, 784111777ull * NS_PER_S);
	assert_true(slice_eq(header("content-type"), SLICE("text/x")));
	assert_true(slice_eq(header("x-amz-meta-color"), SLICE("deep green")));
	assert_null(header("server").data);
}

static void test_range(void **state)
{
	static const char *const WRONG[] = {"", "Content-Range: bytes 0-4/\n",
		"Content-Range: bytes 0-4/*\n", "Content-Range: bytes 1-5/9\n",
		"Content-Range: bytes 0-3/9\n", "Content-Range: bytes 0-4/4\n",
		"Content-Range: bytes 4-0/9\n", "Content-Range: items 0-4/9\n",
		"Content-Range: bytes 0-4/5497558138881\n",
		"Content-Range: bytes 0-4/99999999999999999999\n",
		"Content-Range: bytes 0-4/9 \x01\n", "Content-Range: bytes -4/9\n"};

	(void)state;
	assert_int_equal(read_of(206, 5, "e", "content-range: bytes 0-4/9\n"), 0);
	assert_int_equal(answer.object.bytes, 9);
	assert_true(answer.partial);
	for (size_t i = 0; i < ARRAY_LEN(WRONG); i++)
		assert_int_equal(read_of(206, 5, "e", WRONG[i]), -EBADMSG);
	assert_int_equal(read_of(200, LIMIT_OBJECT_BYTES_MAX + 1, "e", ""), -EBADMSG);
}

static void test_pieces(void **state)
{
	struct slice headers = SLICE("Content-Range: bytes 10-19/100\n");

	(void)state;
	assert_true(answer_is_piece(headers, 10, 10, 100));
	assert_false(answer_is_piece(headers, 11, 10, 100));
	assert_false(answer_is_piece(headers, 10, 9, 100));
	assert_false(answer_is_piece(headers, 10, 10, 101));
	assert_false(answer_is_piece(SLICE("Server: x\n"), 0, 10, 100));
}

static void test_etags(void **state)
{
	static const char *const NONE[] = {"W/\"abc\"", "a b", "a\"b",
		"0123456789012345678901234567890123456789012345678901234567890123456789"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(NONE); i++) {
		assert_int_equal(read_of(200, 1, NONE[i], ""), 0);
		assert_string_equal(answer.object.etag, "");
	}
}

static void test_not_s3(void **state)
{
	(void)state;
	assert_int_equal(read_of(200, 1, "", "Content-Type: text/html\n"), -EPROTO);
}

static void test_headers(void **state)
{
	char many[S3_ORIGIN_HEADERS_BYTES + 64];

	(void)state;
	assert_int_equal(read_of(200, 1, "e", "Content-Type: a\x01z\n"), -EBADMSG);
	assert_int_equal(read_of(200, 1, "e", "X-Amz-Meta-\x7f: a\n"), -EBADMSG);
	assert_int_equal(read_of(200, 1, "e", "X-Amz-Meta-a b: a\n"), -EBADMSG);
	assert_int_equal(read_of(200, 1, "e", "X-Amz-Meta-a(b): a\n"), -EBADMSG);
	assert_int_equal(read_of(200, 1, "e", "Content-Type: a\nx-nebulaio-cut: 1\n"), -EOVERFLOW);
	snprintf(many, sizeof(many), "x-amz-meta-a: %0*d\n", (int)S3_ORIGIN_HEADERS_BYTES, 0);
	assert_int_equal(read_of(200, 1, "e", many), -EOVERFLOW);
	assert_int_equal(read_of(200, 1, "e", "\n:\nno colon\nx-amz-meta-: a\n"), 0);
	assert_int_equal(answer.object.headers_len, 0);
}

/* Each header is one of the PUT that stores the object, beside its condition and a checksum. */
static void test_many_headers(void **state)
{
	char many[LIMIT_HTTP_HEADERS_MAX * 20 + 1] = "";
	uint32_t count = 0;

	(void)state;
	for (; count < LIMIT_HTTP_HEADERS_MAX - 2; count++)
		sprintf(many + strlen(many), "x-amz-meta-%u: v\n", count);
	assert_int_equal(read_of(200, 1, "e", many), 0);
	strcat(many, "x-amz-meta-more: v\n");
	assert_int_equal(read_of(200, 1, "e", many), -EOVERFLOW);
}

static void test_checksums(void **state)
{
	(void)state;
	assert_int_equal(read_of(200, 1, "e", "x-amz-checksum-crc32: AAAAAA==\n"), 0);
	assert_true(slice_eq(answer.sum, SLICE("AAAAAA==")));
	assert_true(slice_eq_nocase(answer.sum_name, SLICE("x-amz-checksum-crc32")));
	/* Of the parts' checksums, not of the bytes. */
	assert_int_equal(read_of(200, 1, "e", "x-amz-checksum-crc32: AAAAAA==-2\n"), 0);
	assert_int_equal(answer.sum.len, 0);
	assert_int_equal(read_of(200, 1, "e",
				 "x-amz-checksum-crc32: AAAAAA==\n"
				 "x-amz-checksum-type: COMPOSITE\n"),
		0);
	assert_int_equal(answer.sum.len, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),
		cmocka_unit_test(test_range),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_etags),
		cmocka_unit_test(test_not_s3),
		cmocka_unit_test(test_headers),
		cmocka_unit_test(test_many_headers),
		cmocka_unit_test(test_checksums),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
