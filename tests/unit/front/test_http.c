#include "http_handler.h"

#include "base/life.h"

#include <ctype.h>

static struct answer answer;

/* ---- Answers. ---- */

static void answers(void *arg)
{
	struct client *client = client_open();
	char id[17];
	const char *at;

	(void)arg;
	assert_int_equal(
		client_ask(client, "GET /name?q=1 HTTP/1.1\r\nHost: h\r\n\r\n", &answer), 200);
	assert_string_equal(answer.body, "/name");
	assert_string_equal(seen.query, "q=1");
	assert_false(answer.closes || answer.keep_alive_named);
	assert_non_null(strstr(answer.head, "Server: NebulaIO\n"));
	assert_non_null(strstr(answer.head, "x-amz-id-2: "));
	assert_non_null(strstr(answer.head, " GMT\n"));
	at = strstr(answer.head, "x-amz-request-id: ");
	assert_non_null(at);
	memcpy(id, at + 18, 17);
	assert_int_equal(id[16], '\n');
	id[16] = '\0';
	for (int i = 0; i < 16; i++)
		assert_true(isxdigit((unsigned char)id[i]));
	/* The same connection, another request, another id. */
	assert_int_equal(
		client_ask(client, "GET /other HTTP/1.1\r\nHost: h\r\n\r\n", &answer), 200);
	assert_string_equal(answer.body, "/other");
	assert_null(strstr(answer.head, id));
	client_close(client);
}
RIG_TEST(answers);

static void head_and_empty(void *arg)
{
	struct client *client = client_open();

	(void)arg;
	client_send(client, "HEAD /bytes/1234 HTTP/1.1\r\nHost: h\r\n\r\n");
	client_answer(client, &answer, true);
	assert_int_equal(answer.bytes, 1234);
	client_send(client, "HEAD /name HTTP/1.1\r\nHost: h\r\n\r\n");
	client_answer(client, &answer, true);
	assert_int_equal(answer.bytes, 5);
	assert_int_equal(
		client_ask(client, "GET /status/204 HTTP/1.1\r\nHost: h\r\n\r\n", &answer), 204);
	assert_null(strstr(answer.head, "Content-Length"));
	assert_int_equal(
		client_ask(client, "GET /status/304 HTTP/1.1\r\nHost: h\r\n\r\n", &answer), 304);
	assert_null(strstr(answer.head, "Content-Length"));
	assert_int_equal(
		client_ask(client, "GET /status/200 HTTP/1.1\r\nHost: h\r\n\r\n", &answer), 200);
	assert_non_null(strstr(answer.head, "Content-Length: 0\n"));
	assert_int_equal(client_ask(client, "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", &answer), 200);
	assert_non_null(strstr(answer.head, "Allow: "));
	assert_int_equal(seen.calls, 5);
	assert_int_equal(
		client_ask(client, "GET /header HTTP/1.1\r\nHost: h\r\n\r\n", &answer), 200);
	assert_non_null(strstr(answer.head, "x-evil: a  Set-Cookie: b\n"));
	client_close(client);
}
RIG_TEST(head_and_empty);

static void large_answers(void *arg)
{
	static const uint64_t sizes[] = {0, 1, 4096, STORE_CHUNK_BYTES, 3 * STORE_CHUNK_BYTES + 7};
	struct client *client = client_open();
	char text[64];

	(void)arg;
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		snprintf(text, sizeof(text), "GET /bytes/%llu HTTP/1.1\r\nHost: h\r\n\r\n",
			(unsigned long long)sizes[i]);
		assert_int_equal(client_ask(client, text, &answer), 200);
		assert_int_equal(answer.body_len, sizes[i]);
		assert_true(!sizes[i] || answer.body[0] == 'p');
		assert_int_equal(seen.answer_error, 0);
	}
	client_close(client);
}
RIG_TEST(large_answers);

/* The store may have another owner by now: only what is not about it is answered. */
static void late_answers(void *arg)
{
	static const char *const REQUESTS[] = {"GET /name", "GET /bytes/100000", "GET /status/404",
		"GET /status/204", "PUT /name", "GET /minio/v2"};
	static struct life life;
	struct client *client;
	char text[64];

	(void)arg;
	for (size_t i = 0; i < ARRAY_LEN(REQUESTS); i++) {
		life_renew(&life, 1);
		client = client_open();
		snprintf(text, sizeof(text), "%s HTTP/1.1\r\nHost: h\r\n\r\n", REQUESTS[i]);
		assert_int_equal(client_ask(client, text, &answer), 503);
		/* A write may have been done. */
		assert_non_null(
			strstr(answer.body, slice_starts(slice_str(REQUESTS[i]), SLICE("PUT"))
						    ? "<Code>OutcomeUnknown</Code>"
						    : "<Code>SlowDown</Code>"));
		client_expect_end(client);
		client_close(client);
		life_renew(&life, DEADLINE_NONE - 1);
	}
	client = client_open();
	assert_int_equal(client_ask(client, "GET /name HTTP/1.1\r\nHost: h\r\n\r\n", &answer), 200);
	life_renew(&life, 1);
	client_send(client, "HEAD /name HTTP/1.1\r\nHost: h\r\n\r\n");
	client_answer(client, &answer, true);
	assert_int_equal(answer.status, 503);
	client_close(client);
	client = client_open();
	assert_int_equal(
		client_ask(client, "GET /status/500 HTTP/1.1\r\nHost: h\r\n\r\n", &answer), 500);
	life_end(&life);
	assert_int_equal(client_ask(client, "GET /name HTTP/1.1\r\nHost: h\r\n\r\n", &answer), 200);
	client_close(client);
}
RIG_TEST(late_answers);

/* The header of a gateway tells who asks, and the handler does not see it: an answer that repeats
 * signed headers would give it to the client. */
static void via_gateway(void *arg)
{
	static const uint8_t SECRET[VIA_SECRET_BYTES] = {1, 2, 3};
	const struct via via = {.store = SLICE("c.3"),
		.peer = SLICE("192.0.2.7:99"),
		.transport = SLICE("https"),
		.id = SLICE("0123456789ABCDEF"),
		.time_s = (int64_t)(clock_real_ns() / NS_PER_S)};
	char value[VIA_BYTES_MAX], text[2 * VIA_BYTES_MAX];
	struct client *client;

	(void)arg;
	rig_opts.via_secret = SECRET;
	rig_opts.via_store = "c.3";
	assert_int_equal(via_write(SECRET, &via, SLICE("GET"), SLICE("/who"), value), 0);
	snprintf(text, sizeof(text),
		"GET /who HTTP/1.1\r\nHost: h\r\nX-NebulaIO-Via: %s\r\nx-last: l\r\n\r\n", value);
	client = client_open();
	assert_int_equal(client_ask(client, text, &answer), 200);
	assert_string_equal(answer.body, "192.0.2.7:99 https 0123456789ABCDEF 2");
	assert_int_equal(client_ask(client, "GET /who HTTP/1.1\r\nHost: h\r\n\r\n", &answer), 200);
	assert_null(strstr(answer.body, "192.0.2.7"));
	/* For another target. */
	text[6] = 'W';
	assert_int_equal(client_ask(client, text, &answer), 403);
	client_expect_end(client);
	client_close(client);
}
RIG_TEST(via_gateway);

static void broken_answers(void *arg)
{
	struct client *client = client_open();

	(void)arg;
	assert_int_equal(
		client_ask(client, "GET /retry HTTP/1.1\r\nHost: h\r\n\r\n", &answer), 503);
	assert_string_equal(answer.body, "later");
	assert_int_equal(
		client_ask(client, "GET /silent HTTP/1.1\r\nHost: h\r\n\r\n", &answer), 500);
	assert_true(answer.closes);
	client_expect_end(client);
	client_close(client);

	client = client_open();
	assert_int_equal(
		client_ask(client, "GET /give-up HTTP/1.1\r\nHost: h\r\n\r\n", &answer), 500);
	assert_true(answer.closes);
	assert_null(strstr(answer.head, "Retry-After"));
	client_expect_end(client);
	client_close(client);

	/* A temporary refusal is reported as such, with Retry-After. */
	for (int i = 0; i < 2; i++) {
		client = client_open();
		assert_int_equal(client_ask(client,
					 i ? "GET /lost HTTP/1.1\r\nHost: h\r\n\r\n"
					   : "GET /scarce HTTP/1.1\r\nHost: h\r\n\r\n",
					 &answer),
			503);
		assert_non_null(strstr(answer.head, "Retry-After: 1\n"));
		assert_non_null(strstr(answer.body, "<Code>SlowDown</Code>"));
		client_expect_end(client);
		client_close(client);
	}

	client = client_open();
	assert_int_equal(client_ask(client, "GET /huge HTTP/1.1\r\nHost: h\r\n\r\n", &answer), 500);
	client_expect_end(client);
	client_close(client);

	client = client_open();
	client_send(
		client, "GET /break/1000 HTTP/1.1\r\nHost: h\r\n\r\nGET /name HTTP/1.1\r\n\r\n");
	client_answer(client, &answer, true);
	assert_int_equal(answer.bytes, 1000);
	while (client_more(client))
		;
	assert_int_equal(client->end - client->start, 500);
	assert_int_equal(seen.calls, 7);
	client_close(client);
}
RIG_TEST(broken_answers);

/* ---- Connections. ---- */

static void pipelining(void *arg)
{
	static const char text[] =
		"GET /1 HTTP/1.1\r\nHost: h\r\n\r\n"
		"PUT /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
		"\r\n"
		"HEAD /bytes/9 HTTP/1.1\r\nHost: h\r\n\r\n"
		"PUT /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
		"3\r\nabc\r\n2;x\r\nde\r\n0\r\nt: v\r\n\r\n"
		"PUT /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nxyz"
		"GET /2 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
		"GET /never HTTP/1.1\r\nHost: h\r\n\r\n";

	(void)arg;
	for (int dribble = 0; dribble < 2; dribble++) {
		struct client *client = client_open();

		seen.calls = 0;
		(dribble ? client_dribble : client_send)(client, text);
		client_answer(client, &answer, false);
		assert_string_equal(answer.body, "/1");
		client_answer(client, &answer, false);
		assert_string_equal(answer.body, "hello");
		client_answer(client, &answer, true);
		assert_int_equal(answer.bytes, 9);
		client_answer(client, &answer, false);
		assert_string_equal(answer.body, "abcde");
		client_answer(client, &answer, false);
		assert_int_equal(answer.status, 403);
		assert_false(answer.closes);
		client_answer(client, &answer, false);
		assert_string_equal(answer.body, "/2");
		assert_true(answer.closes);
		net_send_end(client->stream);
		client_expect_end(client);
		assert_int_equal(seen.calls, 6);
		client_close(client);
	}
}
RIG_TEST(pipelining);

static void http_1_0(void *arg)
{
	struct client *client = client_open();

	(void)arg;
	assert_int_equal(
		client_ask(client, "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", &answer),
		200);
	assert_true(answer.keep_alive_named);
	assert_int_equal(client_ask(client, "GET /b HTTP/1.0\r\n\r\n", &answer), 200);
	assert_true(answer.closes);
	assert_string_equal(answer.body, "/b");
	client_expect_end(client);
	client_close(client);
}
RIG_TEST(http_1_0);

static void drains(void *arg)
{
	struct client *client = client_open();

	(void)arg;
	assert_int_equal(client_ask(client, "GET /a HTTP/1.1\r\nHost: h\r\n\r\n", &answer), 200);
	assert_false(answer.closes);
	while (!rig_idle)
		fiber_yield();
	rig_draining = true;
	assert_int_equal(client_ask(client, "GET /a HTTP/1.1\r\nHost: h\r\n\r\n", &answer), 200);
	assert_true(answer.closes);
	assert_false(rig_idle);
	client_expect_end(client);
	client_close(client);
}
RIG_TEST(drains);

/* ---- Bodies. ---- */

static void put_head(struct client *client, const char *path, const char *headers)
{
	char text[512];

	snprintf(text, sizeof(text), "PUT %s HTTP/1.1\r\nHost: h\r\n%s\r\n", path, headers);
	client_send(client, text);
}

static uint8_t pattern[RIG_SEEN_MAX];
static size_t pattern_len;

static void send_pattern(void *arg)
{
	client_send_bytes(arg, pattern, pattern_len);
}

/* Bodies are received in pieces of a chunk each, directly into frames: only bytes received with the
 * head are copied. */
static void body_sizes(void *arg)
{
	static const size_t sizes[] = {1, 4095, 4096, 65536, STORE_CHUNK_BYTES - 1,
		STORE_CHUNK_BYTES, STORE_CHUNK_BYTES + 1, 3 * STORE_CHUNK_BYTES};
	struct client *client = client_open();
	struct prng prng;
	char headers[64];

	(void)arg;
	prng_seed(&prng, 3);
	prng_fill(&prng, pattern, sizeof(pattern));
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		uint64_t copied = region_copy_bytes_all();
		uint32_t calls = seen.calls;

		pattern_len = sizes[i];
		snprintf(headers, sizeof(headers), "Content-Length: %zu\r\n", pattern_len);
		put_head(client, "/echo", headers);
		while (seen.calls == calls)
			fiber_yield();
		assert_int_equal(fiber_spawn(rig, "body", send_pattern, client), 0);
		client_answer(client, &answer, false);
		assert_int_equal(answer.status, 200);
		assert_int_equal(seen.announced, pattern_len);
		assert_int_equal(seen.source_total, pattern_len);
		assert_int_equal(seen.body_len, pattern_len);
		assert_memory_equal(seen.body, pattern, pattern_len);
		assert_int_equal(
			seen.pieces, (pattern_len + STORE_CHUNK_BYTES - 1) / STORE_CHUNK_BYTES);
		assert_int_equal(region_copy_bytes_all(), copied);
	}
	client_close(client);
}
RIG_TEST(body_sizes);

static void expectation(void *arg)
{
	struct client *client = client_open();
	char line[64];

	(void)arg;
	put_head(client, "/echo", "Content-Length: 4\r\nExpect: 100-continue\r\n");
	client_line(client, line, sizeof(line));
	assert_string_equal(line, "HTTP/1.1 100 Continue");
	client_line(client, line, sizeof(line));
	assert_string_equal(line, "");
	client_send(client, "body");
	client_answer(client, &answer, false);
	assert_string_equal(answer.body, "body");
	/* A client that did not wait gets no 100 Continue. */
	client_send(client, "PUT /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n"
			    "Expect: 100-continue\r\n\r\nlive");
	client_answer(client, &answer, false);
	assert_int_equal(answer.status, 200);
	assert_string_equal(answer.body, "live");
	/* An empty body needs no 100 Continue. */
	put_head(client, "/echo", "Content-Length: 0\r\nExpect: 100-continue\r\n");
	client_answer(client, &answer, false);
	assert_int_equal(answer.status, 200);
	/* The server ignores an unknown expectation. */
	put_head(client, "/echo", "Content-Length: 0\r\nExpect: 200\r\n");
	client_answer(client, &answer, false);
	assert_int_equal(answer.status, 200);
	/* Refused without reading: no 100 Continue is sent, and the following bytes cannot be
	 * parsed. */
	put_head(client, "/refuse", "Content-Length: 4\r\nExpect: 100-continue\r\n");
	client_answer(client, &answer, false);
	assert_int_equal(answer.status, 403);
	assert_true(answer.closes);
	net_send_end(client->stream);
	client_expect_end(client);
	client_close(client);
}
RIG_TEST(expectation);

/* A long body that the handler does not read: the answer arrives while the client still sends. */
static void unread_body(void *arg)
{
	(void)arg;
	pattern_len = sizeof(pattern);
	for (int tcp = 0; tcp < 2; tcp++) {
		struct client *client = tcp ? client_open_tcp() : client_open();

		put_head(client, "/refuse", "Content-Length: 4194304\r\n");
		client_send_bytes(client, pattern, pattern_len);
		client_answer(client, &answer, false);
		assert_int_equal(answer.status, 403);
		assert_string_equal(answer.body, "no");
		assert_true(answer.closes);
		net_send_end(client->stream);
		client_expect_end(client);
		client_close(client);
	}
}
RIG_TEST(unread_body);

static const struct s3_chunk_signing unsigned_trailer = {
	.payload = S3_PAYLOAD_STREAMING_UNSIGNED_TRAILER};

#define AWS_HEADERS "x-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\r\n"

static void aws_bodies(void *arg)
{
	struct client *client = client_open();

	(void)arg;
	rig_signing = &unsigned_trailer;
	put_head(client, "/echo",
		AWS_HEADERS "x-amz-decoded-content-length: 8\r\nContent-Length: 56\r\n");
	client_send(
		client, "5\r\nhello\r\n3\r\nyou\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n\r\n");
	client_answer(client, &answer, false);
	/* The head announced two bytes more than the coding has. */
	assert_int_equal(seen.error, -EPROTO);
	assert_int_equal(answer.status, 400);
	assert_true(answer.closes);
	client_close(client);

	client = client_open();
	for (int i = 0; i < 2; i++) {
		put_head(client, "/echo",
			AWS_HEADERS "x-amz-decoded-content-length: 8\r\nContent-Length: 54\r\n");
		client_send(client,
			"5\r\nhello\r\n3\r\nyou\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n");
		client_answer(client, &answer, false);
		assert_int_equal(seen.error, 0);
		assert_string_equal(answer.body, "helloyou");
		assert_int_equal(seen.announced, 8);
		assert_int_equal(seen.source_total, 8);
		assert_string_equal(seen.trailer, "AAAAAA==");
		assert_int_equal(seen.pieces, 1);
	}
	/* Without a decoded length, the body's length is unknown. */
	put_head(client, "/echo", AWS_HEADERS "Content-Length: 54\r\n");
	client_send(client, "5\r\nhello\r\n3\r\nyou\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n");
	client_answer(client, &answer, false);
	assert_int_equal(seen.error, 0);
	assert_true(seen.announced == UINT64_MAX);
	assert_string_equal(answer.body, "helloyou");
	/* Inside the transfer coding, in any pieces; and the connection continues. */
	put_head(client, "/echo",
		AWS_HEADERS "x-amz-decoded-content-length: 8\r\nTransfer-Encoding: chunked\r\n");
	client_dribble(client, "1\r\n5\r\n9\r\n\r\nhello\r\n\r\n8\r\n3\r\nyou\r\n\r\n"
			       "24\r\n0\r\nx-amz-checksum-crc32:BBBBBB==\r\n\r\n\r\n0\r\n\r\n");
	client_answer(client, &answer, false);
	assert_int_equal(seen.error, 0);
	assert_string_equal(answer.body, "helloyou");
	assert_string_equal(seen.trailer, "BBBBBB==");
	assert_int_equal(client_ask(client, "GET /on HTTP/1.1\r\nHost: h\r\n\r\n", &answer), 200);
	client_close(client);
}
RIG_TEST(aws_bodies);

static void check_bad_body(const char *headers, const char *body, int error)
{
	struct client *client = client_open();

	put_head(client, "/echo", headers);
	client_send(client, body);
	net_send_end(client->stream);
	client_answer(client, &answer, false);
	assert_int_equal(seen.error, error);
	assert_int_equal(answer.status, 400);
	assert_true(answer.closes);
	client_expect_end(client);
	client_close(client);
}

static void bad_bodies(void *arg)
{
	(void)arg;
	check_bad_body("Content-Length: 5\r\n", "four", -EPIPE);
	check_bad_body("Transfer-Encoding: chunked\r\n", "5\r\nhel", -EPIPE);
	check_bad_body("Transfer-Encoding: chunked\r\n", "5\r\nhello", -EPIPE);
	check_bad_body("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n", -EPIPE);
	check_bad_body("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n", -EPIPE);
	check_bad_body("Transfer-Encoding: chunked\r\n", "oops\r\n", -EPROTO);
	check_bad_body("Transfer-Encoding: chunked\r\n", "5\nhello\r\n0\r\n\r\n", -EPROTO);
	check_bad_body("Transfer-Encoding: chunked\r\n", "ffffffffffff\r\n", -EFBIG);
	rig_signing = &unsigned_trailer;
	/* Fewer and more bytes than announced. */
	check_bad_body(AWS_HEADERS "x-amz-decoded-content-length: 4\r\nContent-Length: 13\r\n",
		"3\r\nabc\r\n0\r\n\r\n", -EPIPE);
	check_bad_body(AWS_HEADERS "x-amz-decoded-content-length: 2\r\nContent-Length: 13\r\n",
		"3\r\nabc\r\n0\r\n\r\n", -EFBIG);
	check_bad_body(AWS_HEADERS "x-amz-decoded-content-length: 3\r\nContent-Length: 19\r\n",
		"3\r\nabc\r\n1\r\nx\r\n0\r\n\r\n", -EFBIG);
	/* The body ends inside the coding. */
	check_bad_body(AWS_HEADERS "x-amz-decoded-content-length: 3\r\nContent-Length: 11\r\n",
		"3\r\nabc\r\n0\r\n\r\n", -EPIPE);
}
RIG_TEST(bad_bodies);

static void bad_signature(void *arg)
{
	static struct s3_chunk_signing signing = {.payload = S3_PAYLOAD_STREAMING_SIGNED,
		.timestamp = "20130524T000000Z",
		.scope = "20130524/us-east-1/s3/aws4_request"};

	(void)arg;
	memset(signing.seed_signature, 'a', 64);
	rig_signing = &signing;
	check_bad_body("x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD\r\n"
		       "x-amz-decoded-content-length: 1\r\nContent-Length: 174\r\n",
		"1;chunk-signature="
		"0123456789012345678901234567890123456789012345678901234567890123\r\nx\r\n"
		"0;chunk-signature="
		"0123456789012345678901234567890123456789012345678901234567890123\r\n\r\n",
		-EBADMSG);
}
RIG_TEST(bad_signature);

/* ---- Refusals: nothing reaches the handler, and no later bytes are parsed as a request. ---- */

#define SMUGGLED "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"

static void check_refused(const char *text, uint32_t status, const char *code)
{
	struct client *client = client_open();

	seen.calls = 0;
	client_send(client, text);
	client_send(client, SMUGGLED);
	client_answer(client, &answer, false);
	assert_int_equal(answer.status, status);
	assert_true(answer.closes);
	assert_non_null(strstr(answer.head, "Content-Type: application/xml\n"));
	assert_non_null(strstr(answer.body, code));
	assert_non_null(strstr(answer.body, "<RequestId>"));
	net_send_end(client->stream);
	client_expect_end(client);
	assert_int_equal(seen.calls, 0);
	client_close(client);
}

static void refusals(void *arg)
{
	(void)arg;
	check_refused("GET / HTTP/1.1\r\n\r\n", 400, "<Code>BadRequest</Code>");
	check_refused("GET / HTTP/1.1\nHost: h\n\n", 400, "<Code>BadRequest</Code>");
	check_refused("GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n", 400, "BadRequest");
	check_refused("\r\n\r\n\r\n\r\n\r\n", 400, "BadRequest");
	check_refused("PUT /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n"
		      "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		400, "BadRequest");
	check_refused("PUT /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n"
		      "Content-Length: 0\r\n\r\n",
		400, "BadRequest");
	check_refused("PUT /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", 501,
		"<Code>NotImplemented</Code>");
	check_refused("BREW / HTTP/1.1\r\nHost: h\r\n\r\n", 501, "NotImplemented");
	check_refused("GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505, "HttpVersionNotSupported");
	check_refused("PUT /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5368709121\r\n\r\n", 413,
		"<Code>EntityTooLarge</Code>");
	check_refused("PUT /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n" AWS_HEADERS
		      "x-amz-decoded-content-length: 1x\r\n\r\n",
		400, "BadRequest");
}
RIG_TEST(refusals);

/* The previous request does not affect the refusal of a malformed head. */
static void refusal_after_head(void *arg)
{
	struct client *client = client_open();

	(void)arg;
	client_send(client, "HEAD /name HTTP/1.1\r\nHost: h\r\n\r\n");
	client_answer(client, &answer, true);
	assert_int_equal(client_ask(client, "GET / HTTP/1.1\nHost: h\n\n", &answer), 400);
	assert_non_null(strstr(answer.body, "<Code>BadRequest</Code>"));
	/* The refusal of a valid HEAD has no body, only its length. */
	client_close(client);
	client = client_open();
	client_send(client, "HEAD /name HTTP/1.1\r\n\r\n");
	client_answer(client, &answer, true);
	assert_int_equal(answer.status, 400);
	assert_true(answer.bytes > 0);
	net_send_end(client->stream);
	client_expect_end(client);
	client_close(client);
}
RIG_TEST(refusal_after_head);

static void check_long_head(const char *start, char fill, size_t len, uint32_t status)
{
	char *text = malloc(len + 1);
	size_t start_len = strlen(start);

	assert_non_null(text);
	memcpy(text, start, start_len);
	memset(text + start_len, fill, len - start_len);
	text[len] = '\0';
	check_refused(text, status, "<Code>");
	free(text);
}

static void long_heads(void *arg)
{
	(void)arg;
	check_long_head("GET /", 'a', LIMIT_HTTP_HEAD_BYTES_MAX, 414);
	check_long_head(
		"GET / HTTP/1.1\r\nHost: h\r\nx-long: ", 'a', LIMIT_HTTP_HEAD_BYTES_MAX, 431);
	check_long_head("GET / HTTP/1.1\r\nHost: h\r\n", 'a', LIMIT_HTTP_HEAD_BYTES_MAX, 431);
}
RIG_TEST(long_heads);

/* ---- Slow clients. ---- */

/* Between requests a connection has no fiber, and its request's memory serves others. */
static void idle_without_a_fiber(void *arg)
{
	struct client *client = client_open();
	struct reactor_stats stats;
	struct answer got;

	(void)arg;
	for (uint32_t i = 1; i <= 3; i++) {
		while (rig_apart < i)
			fiber_yield();
		reactor_stats(rig, &stats);
		assert_int_equal(stats.fibers, 1); /* the test's */
		assert_true(rig_idle);
		assert_int_equal(rig_pool.count, 1);
		client_send(client, "GET /small HTTP/1.1\r\nHost: x\r\n\r\n");
		client_answer(client, &got, false);
		assert_int_equal(got.status, 200);
	}
	client_close(client);
	assert_int_equal(rig_pool.count, 1);
}
RIG_TEST(idle_without_a_fiber);

static void slow_idle(void *arg)
{
	struct client *client;

	(void)arg;
	rig_opts.idle_timeout_ns = 15 * NS_PER_MS;
	client = client_open();
	client_expect_end(client);
	client_close(client);
	/* The time begins again behind each request; the first wait has as much as it needs. */
	rig_opts.idle_timeout_ns = 600 * NS_PER_S;
	rig_idle = false;
	client = client_open();
	while (!rig_idle)
		fiber_yield();
	rig_serving_opts->idle_timeout_ns = 15 * NS_PER_MS;
	assert_int_equal(client_ask(client, "GET /a HTTP/1.1\r\nHost: h\r\n\r\n", &answer), 200);
	client_expect_end(client);
	client_close(client);
}
RIG_TEST(slow_idle);

/* A byte now and then does not extend the deadline, which is for the whole head. */
static void drip(void *arg)
{
	struct client *client = arg;

	while (rig_serving) {
		struct iovec iov = {(void *)"a", 1};

		if (net_sendv(client->stream, &iov, 1, in_ms(1000)))
			break;
		fiber_sleep_ns(2 * NS_PER_MS);
	}
}

static void slow_head(void *arg)
{
	struct client *client;

	(void)arg;
	rig_opts.head_timeout_ns = 15 * NS_PER_MS;
	client = client_open();
	client_send(client, "GET /");
	assert_int_equal(fiber_spawn(rig, "drip", drip, client), 0);
	client_answer(client, &answer, false);
	assert_int_equal(answer.status, 408);
	assert_true(answer.closes);
	assert_non_null(strstr(answer.body, "<Code>RequestTimeout</Code>"));
	assert_int_equal(seen.calls, 0);
	while (rig_serving)
		fiber_yield();
	client_close(client);
}
RIG_TEST(slow_head);

/* Sends a body in pieces with pauses, and returns true once it was answered with 200. False: this
 * process did not run for longer than the server waits. */
static bool slowly_sent(struct client *client)
{
	uint64_t since_ns = clock_now_ns(), longest_ns = 0;
	struct iovec piece = {(void *)(uintptr_t)pattern, 100};
	bool more;

	put_head(client, "/echo", "Content-Length: 1000\r\n");
	for (int i = 0; i < 11; i++) {
		fiber_sleep_ns(4 * NS_PER_MS);
		more = i < 10 ? !net_sendv(client->stream, &piece, 1, in_ms(120000))
			      : client_more(client);
		longest_ns = MAX(longest_ns, clock_now_ns() - since_ns);
		since_ns = clock_now_ns();
		/* The server takes a turn's time as the time. */
		if (longest_ns >= rig_opts.body_stall_timeout_ns / 2) {
			client->start = client->end = 0;
			while (client_more(client))
				client->start = client->end = 0;
			return false;
		}
		assert_true(more);
	}
	client_answer(client, &answer, false);
	assert_int_equal(answer.status, 200);
	assert_int_equal(seen.body_len, 1000);
	return true;
}

static void slow_body(void *arg)
{
	struct client *client;
	bool sent = false;

	(void)arg;
	rig_opts.body_stall_timeout_ns = 400 * NS_PER_MS;
	client = client_open();
	put_head(client, "/echo", "Content-Length: 100\r\n");
	client_send(client, "some");
	client_answer(client, &answer, false);
	assert_int_equal(answer.status, 400);
	assert_int_equal(seen.error, -ETIMEDOUT);
	assert_true(answer.closes);
	client_close(client);
	/* A slow client that makes progress is served: 1,000 bytes may take a quarter of a
	 * second. */
	while (!sent) {
		client = client_open();
		sent = slowly_sent(client);
		client_close(client);
	}
	/* A client that is too slow is not. */
	client = client_open();
	put_head(client, "/echo", "Content-Length: 1000\r\n");
	assert_int_equal(fiber_spawn(rig, "drip", drip, client), 0);
	client_answer(client, &answer, false);
	assert_int_equal(answer.status, 400);
	assert_int_equal(seen.error, -ETIMEDOUT);
	while (rig_serving)
		fiber_yield();
	client_close(client);
}
RIG_TEST(slow_body);

static void slow_reader(void *arg)
{
	struct client *client;

	(void)arg;
	rig_opts.body_stall_timeout_ns = 15 * NS_PER_MS;
	client = client_open();
	client_send(client, "GET /bytes/8000000 HTTP/1.1\r\nHost: h\r\n\r\n");
	while (rig_serving)
		fiber_yield();
	assert_int_equal(seen.answer_error, -EPIPE);
	client_close(client);
}
RIG_TEST(slow_reader);

/* A connection whose request is answered makes room for others, although its client still sends:
 * the rest of a short body is skipped, of a long one the connection ends. */
static void the_rest_of_a_body_serves_nobody(void *arg)
{
	static const char *const lengths[] = {
		"Content-Length: 100\r\n", "Content-Length: 1000000\r\n"};

	(void)arg;
	for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
		struct client *client = client_open();
		uint64_t since_ns = clock_now_ns();

		put_head(client, "/refuse", lengths[i]);
		client_send(client, "some");
		client_answer(client, &answer, false);
		assert_int_equal(answer.status, 403);
		assert_int_equal(answer.closes, i == 1);
		for (int turns = 0; turns < 20; turns++)
			fiber_yield();
		/* The connection that ends waits for the client, but not for ever. */
		assert_true(rig_serving || clock_now_ns() - since_ns >= HTTP_LINGER_NS);
		assert_false(rig_asked);
		client_close(client);
	}
}
RIG_TEST(the_rest_of_a_body_serves_nobody);

/* A body without a length has the same limit as one with it. */
static void a_chunked_body_has_a_limit(void *arg)
{
	static const struct s3_chunk_signing plain = {.payload = S3_PAYLOAD_UNSIGNED};
	struct client *client = client_open();

	(void)arg;
	rig_signing = &plain;
	put_head(client, "/echo", "Transfer-Encoding: chunked\r\n");
	client_send(client, "140000001\r\nsome");
	net_send_end(client->stream);
	client_answer(client, &answer, false);
	assert_int_equal(answer.status, 400);
	assert_int_equal(seen.error, -EFBIG);
	client_close(client);
}
RIG_TEST(a_chunked_body_has_a_limit);

static bool asked_before, asked_then;

static void handle_unknown(const struct s3_request *request, struct s3_reply *reply)
{
	(void)request;
	asked_before = rig_asked;
	*reply->ret_proven = true;
	asked_then = rig_asked;
	assert_int_equal(reply->ops->head(reply, 204, NULL, 0, 0), 0);
}

/* A form is read before its sender is known: meanwhile the connection makes room, too. */
static void the_unknown_make_room(void *arg)
{
	struct client *client;

	(void)arg;
	rig_opts.handle = NULL;
	fake_s3_handle = handle_unknown;
	asked_before = true;
	client = client_open();
	assert_int_equal(client_ask(client, "GET /a HTTP/1.1\r\nHost: h\r\n\r\n", &answer), 204);
	assert_false(asked_before);
	assert_true(asked_then);
	client_close(client);
	fake_s3_handle = NULL;
}
RIG_TEST(the_unknown_make_room);

/* ---- Clients that vanish. ---- */

static void vanish_in_head(void *arg)
{
	struct client *client = client_open();

	(void)arg;
	client_send(client, "GET / HTTP/1.1\r\nHos");
	client_close(client);
	assert_int_equal(seen.calls, 0);
}
RIG_TEST(vanish_in_head);

static void vanish_in_body(void *arg)
{
	struct client *client = client_open();

	(void)arg;
	put_head(client, "/echo", "Content-Length: 2000000\r\n");
	client_send(client, "not all of it");
	while (!seen.calls)
		fiber_yield();
	client_close(client);
	assert_int_equal(seen.error, -EPIPE);
}
RIG_TEST(vanish_in_body);

static void vanish_in_answer(void *arg)
{
	(void)arg;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct client *client = tcp ? client_open_tcp() : client_open();

		seen.answer_error = 0;
		client_send(client, "GET /bytes/64000000 HTTP/1.1\r\nHost: h\r\n\r\n");
		assert_true(client_more(client));
		client_close(client);
		assert_int_equal(seen.answer_error, -EPIPE);
	}
}

/* A client with many pipelined requests does not block others. */
static void fairness(void *arg)
{
	static const char one[] = "HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n";
	struct client *client = client_open();
	char text[4096] = "";
	uint32_t turns = 0;

	(void)arg;
	for (int i = 0; i < 100; i++)
		strcat(text, one);
	client_send(client, text);
	while (seen.calls < 100) {
		fiber_yield();
		turns++;
	}
	assert_true(turns >= 90);
	client_close(client);
}
RIG_TEST(fairness);
RIG_TEST(vanish_in_answer);

/* If no frames become free, the server times out, and the connection ends in order. */
static void no_frames(void *arg)
{
	struct region_span spans[RIG_REGION_BYTES / (LIMIT_SPAN_FRAMES_MAX * FRAME_BYTES) + 1];
	struct client *client = client_open();
	uint32_t count = 0;

	(void)arg;
	while (count < ARRAY_LEN(spans) &&
		!region_lease(rig_region, LIMIT_SPAN_FRAMES_MAX, OWNER_APP, &spans[count]))
		count++;
	pattern_len = 3 * STORE_CHUNK_BYTES;
	put_head(client, "/echo", "Content-Length: 3145728\r\n");
	client_send_bytes(client, pattern, pattern_len);
	client_answer(client, &answer, false);
	assert_int_equal(seen.error, -ENOBUFS);
	assert_true(answer.closes);
	while (count)
		region_give(rig_region, spans[--count], OWNER_APP);
	client_close(client);
}
RIG_TEST(no_frames);

/* A client that has only announced a body holds no frames. */
static void announced_only(void *arg)
{
	struct client *client = client_open();
	struct region_usage usage;

	(void)arg;
	put_head(client, "/echo", "Content-Length: 3145728\r\n");
	while (!seen.calls)
		fiber_yield();
	region_usage(rig_region, &usage);
	assert_int_equal(usage.frames_by_owner[OWNER_FREE], usage.frames_total);
	client_close(client);
	assert_int_equal(seen.error, -EPIPE);
}
RIG_TEST(announced_only);

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_UNIT(answers),
		RIG_UNIT(head_and_empty),
		RIG_UNIT(large_answers),
		RIG_UNIT(late_answers),
		RIG_UNIT(via_gateway),
		RIG_UNIT(broken_answers),
		RIG_UNIT(pipelining),
		RIG_UNIT(http_1_0),
		RIG_UNIT(drains),
		RIG_UNIT(body_sizes),
		RIG_UNIT(expectation),
		RIG_UNIT(unread_body),
		RIG_UNIT(aws_bodies),
		RIG_UNIT(bad_bodies),
		RIG_UNIT(bad_signature),
		RIG_UNIT(refusals),
		RIG_UNIT(refusal_after_head),
		RIG_UNIT(long_heads),
		RIG_UNIT(idle_without_a_fiber),
		RIG_UNIT(slow_idle),
		RIG_UNIT(slow_head),
		RIG_UNIT(slow_body),
		RIG_UNIT(slow_reader),
		RIG_UNIT(the_rest_of_a_body_serves_nobody),
		RIG_UNIT(a_chunked_body_has_a_limit),
		RIG_UNIT(the_unknown_make_room),
		RIG_UNIT(vanish_in_head),
		RIG_UNIT(vanish_in_body),
		RIG_UNIT(vanish_in_answer),
		RIG_UNIT(no_frames),
		RIG_UNIT(announced_only),
		RIG_UNIT(fairness),
	};

	return cmocka_run_group_tests_name("http", tests, NULL, NULL);
}
