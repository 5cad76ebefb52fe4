/* tests/unit/gateway/test_link.c: covers gateway/link.c: heads of answers. */
#include "../unit.h"

#include <errno.h>
#include <string.h>

#include "gateway/gateway_priv.h"

static int parse(const char *text, struct gw_answer *ret_answer)
{
	return gw_answer_parse(slice_str(text), ret_answer);
}

static void test_answer(void **state)
{
	struct gw_answer answer;

	(void)state;
	assert_int_equal(parse("HTTP/1.1 206 Partial Content\r\nServer: NebulaIO\r\nDate: x\r\n"
			       "x-amz-request-id: 1\r\nContent-Length: 70\r\nETag:  \"a\" \r\n"
			       "Connection: close\r\nx-a: \r\n\r\n",
				 &answer),
		0);
	assert_int_equal(answer.status, 206);
	assert_int_equal(answer.bytes, 70);
	assert_true(answer.close);
	/* Those of the connection, and those that the gateway's answer has itself, are left out. */
	assert_int_equal(answer.header_count, 2);
	assert_true(slice_eq(answer.headers[0].name, SLICE("ETag")));
	assert_true(slice_eq(answer.headers[0].value, SLICE("\"a\"")));
	assert_int_equal(parse("HTTP/1.1 100 Continue\r\n\r\n", &answer), 0);
	assert_int_equal(answer.status, 100);
	assert_false(answer.close);
}

static void test_wrong(void **state)
{
	static const char *const texts[] = {
		"",
		"HTTP/1.0 200 OK\r\n\r\n",
		"HTTP/1.1 20 OK\r\n\r\n",
		"HTTP/1.1 600 X\r\n\r\n",
		"HTTP/1.1 200 OK\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		"HTTP/1.1 200 OK\r\n: x\r\n\r\n",
		"HTTP/1.1 200 OK\r\na: b\n\r\n",
		"HTTP/1.1 200 OK\r\n\r\nmore",
	};
	struct gw_answer answer;
	char many[4096] = "HTTP/1.1 200 OK\r\n";

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		assert_int_equal(parse(texts[i], &answer), -EPROTO);
	/* An object with as many headers as a request may have, and those that S3 adds. */
	for (uint32_t i = 0; i < LIMIT_HTTP_HEADERS_MAX + 28; i++)
		strcat(many, "a: b\r\n");
	strcat(many, "\r\n");
	assert_int_equal(parse(many, &answer), 0);
	many[strlen(many) - 2] = '\0';
	for (int i = 0; i < 5; i++)
		strcat(many, "a: b\r\n");
	strcat(many, "\r\n");
	assert_int_equal(parse(many, &answer), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answer),
		cmocka_unit_test(test_wrong),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
