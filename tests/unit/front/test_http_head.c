#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "front/http/http_priv.h"

/* Parses a copy of exactly the head's size, so that AddressSanitizer detects a read past it. */
static struct http_head head;
static char *copy;

static uint32_t parse_slice(struct slice text)
{
	free(copy);
	copy = malloc(text.len);
	assert_non_null(copy);
	memcpy(copy, text.data, text.len);
	memset(&head, 0x5a, sizeof(head));
	return http_head_parse(&head, copy, (uint32_t)text.len);
}

static uint32_t parse(const char *text)
{
	return parse_slice(slice_str(text));
}

static void assert_slice(struct slice got, const char *want)
{
	assert_int_equal(got.len, strlen(want));
	assert_memory_equal(got.data, want, got.len);
}

/* ---- The end of a head. ---- */

static int scan_whole(struct slice text)
{
	struct http_scan scan = {0};

	return http_head_scan(&scan, text.data, (uint32_t)text.len);
}

/* The same, byte by byte: the result must not depend on the division of the bytes. */
static int scan_bytes(struct slice text)
{
	struct http_scan scan = {0};
	int len = -EAGAIN;

	for (uint32_t have = 0; have <= text.len && len == -EAGAIN; have++)
		len = http_head_scan(&scan, text.data, have);
	return len;
}

static void check_scan(struct slice text, int want)
{
	assert_int_equal(scan_whole(text), want);
	assert_int_equal(scan_bytes(text), want);
}

static void test_scan(void **state)
{
	(void)state;
	check_scan(SLICE("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 27);
	check_scan(SLICE("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET"), 27);
	check_scan(SLICE("GET / HTTP/1.1\r\n\r\n\r\n\r\n"), 18);
	check_scan(SLICE("\r\n"), 2);
	check_scan(SLICE(""), -EAGAIN);
	check_scan(SLICE("GET / HTTP/1.1\r\nHost: a\r\n\r"), -EAGAIN);
	check_scan(SLICE("GET / HTTP/1.1\r\nHost: a\r\n"), -EAGAIN);
	/* Lone LFs. */
	check_scan(SLICE("\nGET / HTTP/1.1\r\n\r\n"), -EPROTO);
	check_scan(SLICE("GET / HTTP/1.1\nHost: a\r\n\r\n"), -EPROTO);
	check_scan(SLICE("GET / HTTP/1.1\r\nHost: a\n\r\n"), -EPROTO);
	check_scan(SLICE("GET / HTTP/1.1\r\nHost: a\r\n\n"), -EPROTO);
	/* Folded lines. */
	check_scan(SLICE("GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n"), -EPROTO);
	check_scan(SLICE("GET / HTTP/1.1\r\nA: b\r\n\tc\r\n\r\n"), -EPROTO);
	check_scan(SLICE(" GET / HTTP/1.1\r\n\r\n"), -EPROTO);
}

/* ---- Good heads. ---- */

static void test_plain(void **state)
{
	(void)state;
	assert_int_equal(parse("GET /bucket/a%20key?list-type=2&x=?#y HTTP/1.1\r\n\r\n"), 400);
	assert_int_equal(parse("GET /bucket/a%20key?list-type=2&x=? HTTP/1.1\r\n"
			       "Host:s3.example.com\r\n"
			       "X-Empty:\r\n"
			       "X-Blank: \t \r\n"
			       "x-amz-meta-name: \t two  words \t\r\n"
			       "\r\n"),
		0);
	assert_int_equal(head.method, S3_GET);
	assert_slice(head.method_text, "GET");
	assert_slice(head.path, "/bucket/a%20key");
	assert_slice(head.query, "list-type=2&x=?");
	assert_slice(head.host, "s3.example.com");
	assert_int_equal(head.header_count, 4);
	assert_slice(head.headers[0].name, "Host");
	assert_slice(head.headers[1].name, "X-Empty");
	assert_int_equal(head.headers[1].value.len, 0);
	assert_int_equal(head.headers[2].value.len, 0);
	assert_slice(head.headers[3].name, "x-amz-meta-name");
	assert_slice(head.headers[3].value, "two  words");
	assert_true(head.keep_alive);
	assert_false(head.has_length || head.chunked || head.http_1_0 || head.asterisk);
	/* UTF-8 may come unencoded, in a target and in a value. */
	assert_int_equal(
		parse("GET /b/\xc3\xbc HTTP/1.1\r\nHost: h\r\nx-amz-meta-n: \xc3\xbc\r\n\r\n"), 0);
	assert_slice(head.path, "/b/\xc3\xbc");
	assert_slice(head.headers[1].value, "\xc3\xbc");
	assert_int_equal(parse("GET /a HTTP/1.1\r\nHost: h\r\nx: y\r\n\r\n"), 0);
	/* Names and values are the head's own bytes. */
	assert_true(head.headers[1].value.data > copy);
}

static void test_methods(void **state)
{
	static const struct {
		const char *text;
		enum s3_method method;
	} methods[] = {{"GET", S3_GET}, {"HEAD", S3_HEAD}, {"PUT", S3_PUT}, {"POST", S3_POST},
		{"DELETE", S3_DELETE}, {"OPTIONS", S3_OPTIONS}, {"PATCH", S3_METHOD_OTHER},
		{"PROPFIND", S3_METHOD_OTHER}};
	char text[128];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
		snprintf(text, sizeof(text), "%s /a HTTP/1.1\r\nHost: h\r\n\r\n", methods[i].text);
		assert_int_equal(parse(text), 0);
		assert_int_equal(head.method, methods[i].method);
		assert_slice(head.method_text, methods[i].text);
	}
	assert_int_equal(parse("BREW /a HTTP/1.1\r\nHost: h\r\n\r\n"), 501);
	assert_int_equal(parse("get /a HTTP/1.1\r\nHost: h\r\n\r\n"), 501);
	assert_int_equal(parse("G@T /a HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
	assert_int_equal(parse("/a HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
}

static void test_versions(void **state)
{
	(void)state;
	assert_int_equal(parse("GET / HTTP/1.0\r\n\r\n"), 0);
	assert_true(head.http_1_0);
	assert_false(head.keep_alive);
	assert_int_equal(parse("GET / HTTP/1.0\r\nConnection: foo, Keep-Alive\r\n\r\n"), 0);
	assert_true(head.keep_alive);
	assert_int_equal(parse("GET / HTTP/1.1\r\nHost: a\r\nConnection: x ,CLOSE\r\n\r\n"), 0);
	assert_false(head.keep_alive);
	assert_int_equal(parse("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
	assert_int_equal(parse("GET / HTTP/1.2\r\nHost: a\r\n\r\n"), 505);
	assert_int_equal(parse("GET / HTTP/3.1\r\nHost: a\r\n\r\n"), 505);
	assert_int_equal(parse("PRI * HTTP/2.0\r\n\r\n"), 505);
	assert_int_equal(parse("GET /\r\n\r\n"), 505);
	assert_int_equal(parse("GET / HTTP/1,1\r\nHost: a\r\n\r\n"), 505);
	assert_int_equal(parse("GET / ICY/1.1\r\nHost: a\r\n\r\n"), 400);
}

static void test_targets(void **state)
{
	(void)state;
	assert_int_equal(parse("GET http://h:9000/b/k?q HTTP/1.1\r\nHost: h:9000\r\n\r\n"), 0);
	assert_slice(head.path, "/b/k");
	assert_slice(head.query, "q");
	assert_slice(head.authority, "h:9000");
	assert_int_equal(parse("GET HTTP://h HTTP/1.1\r\nHost: H\r\n\r\n"), 0);
	assert_slice(head.path, "/");
	assert_int_equal(parse("GET https://h?q HTTP/1.1\r\nHost: h\r\n\r\n"), 0);
	assert_slice(head.path, "/");
	assert_slice(head.query, "q");
	/* The target and the Host header must name the same host. */
	assert_int_equal(parse("GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n"), 400);
	assert_int_equal(parse("GET http:/// HTTP/1.1\r\nHost: b\r\n\r\n"), 400);
	assert_int_equal(parse("GET ftp://h/ HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
	assert_int_equal(parse("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n"), 0);
	assert_true(head.asterisk);
	assert_int_equal(parse("GET * HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
	assert_int_equal(parse("GET bucket HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
	assert_int_equal(parse("GET ?q HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
	assert_int_equal(parse("CONNECT h:443 HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
	assert_int_equal(parse("GET /a b HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
	assert_int_equal(parse("GET  /a HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
	assert_int_equal(parse("GET /a  HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
	assert_int_equal(parse("GET /a HTTP/1.1 \r\nHost: h\r\n\r\n"), 505);
	assert_int_equal(parse("GET /a HTTP/1.1 x\r\nHost: h\r\n\r\n"), 505);
}

static void test_hosts(void **state)
{
	(void)state;
	assert_int_equal(parse("GET / HTTP/1.1\r\n\r\n"), 400);
	assert_int_equal(parse("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"), 400);
	assert_int_equal(parse("GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n"), 400);
	assert_int_equal(parse("GET / HTTP/1.1\r\nHost:\r\n\r\n"), 0);
}

/* ---- Where the body ends: one reading only. ---- */

static void test_lengths(void **state)
{
	static const char *const bad[] = {"-1", "+1", "0x10", "1 2", "1,1", "",
		"18446744073709551616", "99999999999999999999999", "1\v", "1;2", "\"1\"", "1e3"};
	char text[256];

	(void)state;
	assert_int_equal(parse("PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 42 \r\n\r\n"), 0);
	assert_true(head.has_length);
	assert_int_equal(head.content_length, 42);
	assert_int_equal(parse("PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length:\t7\t\r\n\r\n"), 0);
	assert_int_equal(head.content_length, 7);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		snprintf(text, sizeof(text),
			"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: %s\r\n\r\n", bad[i]);
		assert_int_equal(parse(text), 400);
	}
	/* Twice, the same or not. */
	assert_int_equal(parse("PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n"
			       "Content-Length: 2\r\n\r\n"),
		400);
	assert_int_equal(parse("PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n"
			       "content-length: 1\r\n\r\n"),
		400);
}

static void test_transfer_codings(void **state)
{
	static const struct {
		const char *value;
		uint32_t status;
	} cases[] = {{"chunked", 0}, {"Chunked", 0}, {"identity", 501}, {"gzip, chunked", 501},
		{"chunked, chunked", 400}, {"chunked, gzip", 400}, {"xchunked", 501},
		{"chunked;q=1", 501}, {"\vchunked", 400}, {"chun ked", 501}};
	char text[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint32_t status;

		snprintf(text, sizeof(text),
			"PUT /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: %s\r\n\r\n",
			cases[i].value);
		status = parse(text);
		assert_true(status == cases[i].status || (status && cases[i].status));
		assert_int_equal(head.chunked && !status, !cases[i].status);
	}
	/* Both, in either order: the oldest way to smuggle a request. */
	assert_int_equal(parse("PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n"
			       "Transfer-Encoding: chunked\r\n\r\n"),
		400);
	assert_int_equal(parse("PUT /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n"
			       "Content-Length: 3\r\n\r\n"),
		400);
	assert_int_equal(parse("PUT /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n"
			       "Transfer-Encoding: identity\r\n\r\n"),
		400);
	assert_int_equal(parse("PUT /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n"
			       "Content-Length: 3\r\n\r\n"),
		400);
	assert_int_equal(parse("PUT /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
	assert_int_equal(parse("PUT /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n\r\n"), 501);
}

/* A string with NULs in it, as an initialiser. */
#define BYTES(literal)                       \
	{                                    \
		literal, sizeof(literal) - 1 \
	}

static void test_smuggled_bytes(void **state)
{
	static const struct slice heads[] = {
		/* A space, a tab or a control in or after a name. */
		BYTES("GET / HTTP/1.1\r\nHost : h\r\n\r\n"),
		BYTES("GET / HTTP/1.1\r\nHost: h\r\nA B: c\r\n\r\n"),
		BYTES("GET / HTTP/1.1\r\nHost: h\r\nA\t: c\r\n\r\n"),
		BYTES("GET / HTTP/1.1\r\nHost: h\r\n: c\r\n\r\n"),
		BYTES("GET / HTTP/1.1\r\nHost: h\r\nnocolon\r\n\r\n"),
		BYTES("GET / HTTP/1.1\r\nHost: h\r\nA\x01: c\r\n\r\n"),
		BYTES("GET / HTTP/1.1\r\nHost: h\r\nA\x80: c\r\n\r\n"),
		/* NUL and lone CR, anywhere. */
		BYTES("GET / HTTP/1.1\r\nHost: h\r\nA: b\0c\r\n\r\n"),
		BYTES("GET / HTTP/1.1\r\nHost: h\r\nA\0: bc\r\n\r\n"),
		BYTES("GET /\0 HTTP/1.1\r\nHost: h\r\n\r\n"),
		BYTES("GET / HTTP/1.1\r\nHost: h\r\nA: b\rc\r\n\r\n"),
		BYTES("GET / HTTP/1.1\r\nHost: h\r\nA: b\r\r\n\r\n"),
		BYTES("GET / HTTP/1.1\r\nHost: h\r\nA:\rB: c\r\n\r\n"),
		BYTES("GET / HTTP/1.1\r\nHost: h\r\nA: \rContent-Length: 3\r\n\r\n"),
		BYTES("GET / HTTP/1.1\rHost: h\r\n\r\n"),
		BYTES("GET / HTTP/1.1\r\nHost: h\r\nA\r: bc\r\n\r\n"),
		BYTES("GET / HTTP/1.1\r\nHost: h\r\nA: b\x7f\r\n\r\n"),
		BYTES("GET / HTTP/1.1\r\nHost: h\r\nA: b\x1b\r\n\r\n"),
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
		uint32_t status;

		assert_int_equal(scan_whole(heads[i]), heads[i].len);
		status = parse_slice(heads[i]);
		/* A CR after the version makes it one that does not exist. */
		assert_true(status == 400 || status == 505);
	}
}

static void test_expect(void **state)
{
	(void)state;
	assert_int_equal(parse("PUT /a HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\n\r\n"), 0);
	assert_slice(head.expect, "100-Continue");
	assert_int_equal(parse("PUT /a HTTP/1.1\r\nHost: h\r\nExpect: 200-ok\r\n\r\n"), 0);
}

/* ---- Limits. ---- */

static void test_limits(void **state)
{
	/* With those that a gateway adds. */
	const uint32_t headers_max = LIMIT_HTTP_HEADERS_MAX + HTTP_VIA_HEADERS;
	struct buf text;

	(void)state;
	buf_init(&text, LIMIT_HTTP_HEAD_BYTES_MAX);
	for (uint32_t count = headers_max; count <= headers_max + 1; count++) {
		buf_reset(&text);
		buf_put_str(&text, "GET / HTTP/1.1\r\nHost: h\r\n");
		for (uint32_t i = 1; i < count; i++)
			buf_printf(&text, "x-%u: %u\r\n", i, i);
		buf_put_str(&text, "\r\n");
		assert_int_equal(parse_slice(buf_slice(&text)), count == headers_max ? 0 : 431);
	}
	assert_int_equal(head.header_count, headers_max);
	for (size_t len = HTTP_TARGET_BYTES_MAX; len <= HTTP_TARGET_BYTES_MAX + 1; len++) {
		buf_reset(&text);
		buf_put_str(&text, "GET /");
		for (size_t i = 1; i < len; i++)
			buf_put_str(&text, "a");
		buf_put_str(&text, " HTTP/1.1\r\nHost: h\r\n\r\n");
		assert_int_equal(
			parse_slice(buf_slice(&text)), len == HTTP_TARGET_BYTES_MAX ? 0 : 414);
	}
	buf_free(&text);
}

static int end(void **state)
{
	(void)state;
	free(copy);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scan),
		cmocka_unit_test(test_plain),
		cmocka_unit_test(test_methods),
		cmocka_unit_test(test_versions),
		cmocka_unit_test(test_targets),
		cmocka_unit_test(test_hosts),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_transfer_codings),
		cmocka_unit_test(test_smuggled_bytes),
		cmocka_unit_test(test_expect),
		cmocka_unit_test(test_limits),
	};

	return cmocka_run_group_tests_name("http_head", tests, NULL, end);
}
