/* tests/unit/front/http_handler.h: what the handler of test_http.c's requests does, by path. */
#ifndef TESTS_UNIT_FRONT_HTTP_HANDLER_H
#define TESTS_UNIT_FRONT_HTTP_HANDLER_H

#include "http_rig.h"

/* ---- The handler's actions, by path: /echo reads the body and answers with it /name answers with
 * the path /refuse answers 403 without reading the body /bytes/N answers with N bytes through the
 * sink /break/N announces N bytes and fails half way /retry fails before the first byte, then
 * answers 503 /silent does not answer /give-up fails after the head is ready /lost the same,
 * because volumes are unreachable /scarce the same, because no frames are free /status/N an empty
 * answer /header answers with a header that contains line ends /huge answers with a head that is
 * longer than any ---- */

static void answer_text(struct s3_reply *reply, uint32_t status, struct slice text)
{
	seen.answer_error = reply->ops->head(reply, status, NULL, 0, text.len);
	if (!seen.answer_error && text.len)
		seen.answer_error = reply->ops->text(reply, text);
}

static void handle_echo(const struct s3_request *request, struct s3_reply *reply)
{
	seen.error = rig_read_body(request);
	if (seen.error)
		answer_text(reply, 400, SLICE("body"));
	else
		answer_text(reply, 200, slice_of(seen.body, seen.body_len));
}

static void handle_bytes(struct s3_reply *reply, uint64_t bytes, uint64_t fail_at)
{
	seen.answer_error = reply->ops->head(reply, 200, NULL, 0, bytes);
	if (!seen.answer_error && strcmp(seen.method, "HEAD") != 0)
		seen.answer_error = rig_send(reply, bytes, fail_at);
}

static void handle_header(struct s3_reply *reply)
{
	const struct s3_header header = {SLICE("x-evil"), SLICE("a\r\nSet-Cookie: b")};

	assert_int_equal(reply->ops->head(reply, 200, &header, 1, 0), 0);
}

static void handle_give_up(struct s3_reply *reply, int error)
{
	handle_bytes(reply, 100, 0);
	reply->broken = true;
	reply->error = error;
}

static void handle_huge(struct s3_reply *reply)
{
	static char value[HTTP_OUT_BYTES];
	const struct s3_header header = {SLICE("x-huge"), slice_of(value, sizeof(value))};

	memset(value, 'v', sizeof(value));
	assert_int_equal(reply->ops->head(reply, 200, &header, 1, 0), -EMSGSIZE);
	reply->broken = true;
}

static void handle_retry(struct s3_reply *reply)
{
	handle_bytes(reply, 100, 0);
	assert_int_equal(reply->status, 0);
	answer_text(reply, 503, SLICE("later"));
}

/* Answers with the peer, and how many headers there are. */
static void handle_who(const struct s3_request *request, struct s3_reply *reply)
{
	char text[160];

	snprintf(text, sizeof(text), "%s %s %s %u", request->peer, request->transport,
		request->request_id, request->header_count);
	answer_text(reply, 200, slice_str(text));
}

static void rig_handle(void *arg, const struct s3_request *request, struct s3_reply *reply)
{
	const char *path = seen.path;

	(void)arg;
	seen.calls++;
	seen.body_len = 0;
	seen.pieces = 0;
	seen.announced = request->body->bytes;
	assert_int_equal(slice_copy_str(request->method_text, seen.method, sizeof(seen.method)), 0);
	assert_int_equal(slice_copy_str(request->path, seen.path, sizeof(seen.path)), 0);
	assert_int_equal(slice_copy_str(request->query, seen.query, sizeof(seen.query)), 0);
	assert_int_equal(strlen(request->request_id), 16);
	if (!strcmp(path, "/echo"))
		handle_echo(request, reply);
	else if (!strcmp(path, "/refuse"))
		answer_text(reply, 403, SLICE("no"));
	else if (!strncmp(path, "/bytes/", 7))
		handle_bytes(reply, strtoull(path + 7, NULL, 10), UINT64_MAX);
	else if (!strncmp(path, "/break/", 7))
		handle_bytes(reply, strtoull(path + 7, NULL, 10), strtoull(path + 7, NULL, 10) / 2);
	else if (!strcmp(path, "/give-up"))
		handle_give_up(reply, 0);
	else if (!strcmp(path, "/lost"))
		handle_give_up(reply, -EHOSTDOWN);
	else if (!strcmp(path, "/scarce"))
		handle_give_up(reply, -ENOBUFS);
	else if (!strcmp(path, "/huge"))
		handle_huge(reply);
	else if (!strcmp(path, "/retry"))
		handle_retry(reply);
	else if (!strncmp(path, "/status/", 8))
		answer_text(reply, (uint32_t)atoi(path + 8), SLICE(""));
	else if (!strcmp(path, "/who"))
		handle_who(request, reply);
	else if (!strcmp(path, "/header"))
		handle_header(reply);
	else if (strcmp(path, "/silent") != 0)
		answer_text(reply, 200, request->path);
}

#endif
