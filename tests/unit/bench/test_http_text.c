#include "../unit.h"

#include <errno.h>
#include <string.h>

#include "bench/http_text.h"

static void test_a_head_is_read(void **state)
{
	static const char head[] = "HTTP/1.1 206 Partial Content\r\n"
				   "Server: x\r\n"
				   "content-LENGTH:  4096 \r\n"
				   "Connection: keep-alive\r\n"
				   "ETag: \"1\"\r\n"
				   "\r\n"
				   "body";
	struct bench_http_answer answer;

	(void)state;
	assert_int_equal(
		bench_http_read_head(head, sizeof(head) - 1, &answer), sizeof(head) - 1 - 4);
	assert_int_equal(answer.status, 206);
	assert_int_equal(answer.body_bytes, 4096);
	assert_true(answer.has_length);
	assert_false(answer.closes);
}

static void test_a_start_is_not_enough(void **state)
{
	static const char head[] =
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n";
	struct bench_http_answer answer;

	(void)state;
	for (size_t len = 0; len < sizeof(head) - 1; len++)
		assert_int_equal(bench_http_read_head(head, len, &answer), -EAGAIN);
	assert_int_equal(bench_http_read_head(head, sizeof(head) - 1, &answer), sizeof(head) - 1);
	assert_true(answer.closes);
}

static void test_no_length_is_no_body(void **state)
{
	static const char head[] = "HTTP/1.1 204 No Content\r\n\r\n";
	struct bench_http_answer answer;

	(void)state;
	assert_int_equal(bench_http_read_head(head, sizeof(head) - 1, &answer), sizeof(head) - 1);
	assert_false(answer.has_length);
	assert_int_equal(answer.body_bytes, 0);
}

static void test_a_malformed_head_is_refused(void **state)
{
	static const char *const HEADS[] = {
		"HTTP/1.0 200 OK\r\n\r\n",
		"HTTP/1.1 2x0 OK\r\n\r\n",
		"HTTP/1.1 900 OK\r\n\r\n",
		"HTTP/1.1\r\n\r\n",
		"garbage\n",
		"\r\n\r\n",
		"HTTP/1.1 200 OK\n\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
	};
	struct bench_http_answer answer;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(HEADS); i++)
		assert_int_equal(
			bench_http_read_head(HEADS[i], strlen(HEADS[i]), &answer), -EPROTO);
}

/* Another implementation made the signature. */
static void test_a_request_is_signed(void **state)
{
	struct bench_signer signer = {.access_key = "AK",
		.region = "us-east-1",
		.host = "127.0.0.1:9000",
		.date = "20260102T030405Z"};
	const struct bench_http_line line = {.method = "GET", .path = "/b/k-00000001", .query = ""};
	struct buf out;

	(void)state;
	for (size_t i = 0; i < sizeof(signer.key); i++)
		signer.key[i] = (uint8_t)i;
	buf_init(&out, 4096);
	bench_http_put_head(&signer, &line, &out);
	buf_put(&out, "", 1);
	assert_false(out.failed);
	assert_string_equal(out.data,
		"GET /b/k-00000001 HTTP/1.1\r\n"
		"Host: 127.0.0.1:9000\r\n"
		"x-amz-content-sha256: UNSIGNED-PAYLOAD\r\n"
		"x-amz-date: 20260102T030405Z\r\n"
		"Authorization: AWS4-HMAC-SHA256 "
		"Credential=AK/20260102/us-east-1/s3/aws4_request, "
		"SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
		"Signature=61ea473e573bd836f09c5c85687216a835e6bc7a637e9e39c4fef9408ec7de16\r\n"
		"\r\n");
	buf_free(&out);
}

static void test_without_keys_nothing_is_signed(void **state)
{
	struct bench_signer nobody;
	const struct bench_http_line line = {
		.method = "PUT", .path = "/x", .query = "a=b", .body_bytes = 5, .has_body = true};
	struct buf out;

	(void)state;
	bench_signer_init(&nobody, NULL, NULL, NULL, "h:1");
	buf_init(&out, 4096);
	bench_http_put_head(&nobody, &line, &out);
	buf_put(&out, "", 1);
	assert_string_equal(
		out.data, "PUT /x?a=b HTTP/1.1\r\nHost: h:1\r\nContent-Length: 5\r\n\r\n");
	buf_free(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_head_is_read),
		cmocka_unit_test(test_a_start_is_not_enough),
		cmocka_unit_test(test_no_length_is_no_body),
		cmocka_unit_test(test_a_malformed_head_is_refused),
		cmocka_unit_test(test_a_request_is_signed),
		cmocka_unit_test(test_without_keys_nothing_is_signed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
