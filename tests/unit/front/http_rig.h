/* tests/unit/front/http_rig.h: one HTTP connection over a pair of sockets: front_http_serve on one
 * end, a client that the test drives on the other. */
#ifndef TESTS_UNIT_FRONT_HTTP_RIG_H
#define TESTS_UNIT_FRONT_HTTP_RIG_H

#include "fiber_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "front/http/http_priv.h"

#define RIG_SEEN_MAX (4 * MIB)

static struct front_http_opts rig_opts;
static _Atomic bool rig_draining;
static bool rig_idle, rig_asked;
static bool rig_serving; /* the connection has not ended */
static struct front_http_pool rig_pool;
static uint32_t rig_apart; /* how many times a connection waited without a fiber */

/* The last request as the handler saw it. */
static struct {
	uint32_t calls;
	char method[16];
	char path[256];
	char query[256];
	uint64_t announced;
	uint64_t source_total;
	uint8_t *body;
	size_t body_len;
	uint32_t pieces;
	int error; /* of the body's source */
	int answer_error;
	char trailer[128];
} seen;

/* s3's, for connections without a handler of their own (fake_flow.c). */
extern void (*fake_s3_handle)(const struct s3_request *request, struct s3_reply *reply);

/* How bodies are to be decoded. */
static const struct s3_chunk_signing *rig_signing;

static void rig_handle(void *arg, const struct s3_request *request, struct s3_reply *reply);

static int rig_setup(void **state)
{
	(void)state;
	rig_begin(0);
	rig_core = (struct flow_core){.region = rig_region, .reactor = rig};
	rig_draining = false;
	rig_signing = NULL;
	rig_opts = (struct front_http_opts){.core = &rig_core,
		.transport = "http",
		.idle_timeout_ns = 600 * NS_PER_S,
		.head_timeout_ns = 600 * NS_PER_S,
		.body_stall_timeout_ns = 600 * NS_PER_S,
		.draining = &rig_draining,
		.ret_idle = &rig_idle,
		.ret_serving = &rig_asked,
		.pool = &rig_pool,
		.handle = rig_handle};
	rig_apart = 0;
	memset(&seen, 0, sizeof(seen));
	seen.body = malloc(RIG_SEEN_MAX);
	assert_non_null(seen.body);
	return 0;
}

/* All frames must be free. */
static int rig_teardown(void **state)
{
	(void)state;
	assert_false(rig_serving);
	free(seen.body);
	front_http_pool_close(&rig_pool);
	rig_end();
	return 0;
}

/* ---- The client. ---- */

struct client {
	struct net_stream *stream;
	char in[64 * KIB];
	size_t start;
	size_t end;
};

struct answer {
	uint32_t status;
	bool closes;
	bool keep_alive_named;
	char head[4096];
	char body[32 * KIB];
	size_t bytes; /* Content-Length */
	size_t body_len;
};

static inline uint64_t in_ms(uint64_t ms)
{
	return clock_now_ns() + ms * NS_PER_MS;
}

/* A connection, served as the listener does it. */
struct served {
	struct front_http_opts opts;
	struct net_stream *stream;
	struct front_http *waiting;
};

/* The settings of the connection that was opened last, while it is served. */
static struct front_http_opts *rig_serving_opts;

static void rig_served(struct served *served, struct front_http *waiting)
{
	served->waiting = waiting;
	if (waiting) {
		rig_apart++;
		return;
	}
	free(served);
	rig_serving = false;
}

static void rig_go_on_fiber(void *arg)
{
	struct served *served = arg;

	rig_served(served, front_http_go_on(served->waiting));
}

static void rig_again(void *arg)
{
	assert_null(fiber_self());
	assert_int_equal(fiber_spawn(rig, "serve", rig_go_on_fiber, arg), 0);
}

static void rig_serve_fiber(void *arg)
{
	struct served *served = arg;

	rig_served(served, front_http_serve(&served->opts, served->stream));
}

static void rig_serve(struct net_stream *server)
{
	struct served *served = malloc(sizeof(*served));

	assert_non_null(served);
	*served = (struct served){.opts = rig_opts, .stream = server};
	served->opts.again = (struct net_later){rig_again, served};
	rig_serving_opts = &served->opts;
	rig_serving = true;
	assert_int_equal(fiber_spawn(rig, "serve", rig_serve_fiber, served), 0);
}

/* Over loopback TCP, where a close with bytes unread resets the connection. */
static struct client *client_open_tcp(void)
{
	struct client *client = calloc(1, sizeof(*client));
	struct net_listener *listener;
	struct net_stream *server;
	char address[32];

	assert_non_null(client);
	assert_int_equal(net_listen(rig, "127.0.0.1:0", &listener), 0);
	snprintf(address, sizeof(address), "127.0.0.1:%u", net_listener_port(listener));
	assert_int_equal(net_connect(address, in_ms(120000), &client->stream), 0);
	assert_int_equal(net_accept(listener, &server), 0);
	net_listener_close(listener);
	rig_serve(server);
	return client;
}

static struct client *client_open(void)
{
	struct client *client = calloc(1, sizeof(*client));
	struct net_stream *server;
	int fds[2];

	assert_non_null(client);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	assert_int_equal(net_stream_take(rig, fds[0], &client->stream), 0);
	assert_int_equal(net_stream_take(rig, fds[1], &server), 0);
	rig_serve(server);
	return client;
}

static void client_send_bytes(struct client *client, const void *data, size_t len)
{
	struct iovec iov = {(void *)(uintptr_t)data, len};

	assert_int_equal(net_sendv(client->stream, &iov, 1, in_ms(120000)), 0);
}

static void client_send(struct client *client, const char *text)
{
	client_send_bytes(client, text, strlen(text));
}

/* Every byte in a packet of its own. */
static void client_dribble(struct client *client, const char *text)
{
	for (; *text; text++) {
		client_send_bytes(client, text, 1);
		fiber_yield();
	}
}

/* False: the connection has ended, in order or not. */
static bool client_more(struct client *client)
{
	size_t got = 0;

	if (client->start == client->end)
		client->start = client->end = 0;
	assert_true(client->end < sizeof(client->in));
	if (net_recv(client->stream, client->in + client->end, sizeof(client->in) - client->end,
		    in_ms(120000), &got))
		return false;
	client->end += got;
	return got > 0;
}

static void client_line(struct client *client, char *line, size_t line_max)
{
	for (;;) {
		struct slice have =
			slice_of(client->in + client->start, client->end - client->start);
		ptrdiff_t len = slice_find(have, SLICE("\r\n"));

		if (len >= 0) {
			assert_int_equal(
				slice_copy_str(slice_to(have, (size_t)len), line, line_max), 0);
			client->start += (size_t)len + 2;
			return;
		}
		assert_true(client_more(client));
	}
}

/* Reads one answer, strictly. no_body: to a HEAD. */
static void client_answer(struct client *client, struct answer *answer, bool no_body)
{
	char line[1024];

	*answer = (struct answer){0};
	client_line(client, line, sizeof(line));
	assert_memory_equal(line, "HTTP/1.1 ", 9);
	answer->status = (uint32_t)atoi(line + 9);
	for (;;) {
		client_line(client, line, sizeof(line));
		if (!*line)
			break;
		assert_true(strlen(answer->head) + strlen(line) + 2 < sizeof(answer->head));
		strcat(strcat(answer->head, line), "\n");
		if (!strncmp(line, "Content-Length: ", 16))
			answer->bytes = (size_t)atol(line + 16);
		answer->closes |= !strcmp(line, "Connection: close");
		answer->keep_alive_named |= !strcmp(line, "Connection: keep-alive");
	}
	if (no_body)
		return;
	while (answer->body_len < answer->bytes) {
		size_t have = MIN(client->end - client->start, answer->bytes - answer->body_len);

		if (!have) {
			assert_true(client_more(client));
			continue;
		}
		if (answer->body_len < sizeof(answer->body) - 1)
			memcpy(answer->body + answer->body_len, client->in + client->start,
				MIN(have, sizeof(answer->body) - 1 - answer->body_len));
		answer->body_len += have;
		client->start += have;
	}
}

/* Expects the end of the connection without more bytes. */
static void client_expect_end(struct client *client)
{
	assert_int_equal(client->start, client->end);
	assert_false(client_more(client));
}

static void client_close(struct client *client)
{
	net_close(client->stream);
	free(client);
	while (rig_serving)
		fiber_yield();
}

static uint32_t client_ask(struct client *client, const char *text, struct answer *answer)
{
	client_send(client, text);
	client_answer(client, answer, false);
	return answer->status;
}

#define RIG_UNIT(fn) cmocka_unit_test_setup_teardown(test_##fn, rig_setup, rig_teardown)

/* ---- The handler. ---- */

static int rig_read_body(const struct s3_request *request)
{
	struct flow_source *source;
	struct flow_piece piece;
	int more;

	more = request->body->ops->open(request->body, rig_signing, &source);
	if (more)
		return more;
	seen.source_total = source->bytes_total;
	while ((more = flow_source_next(source, STORE_CHUNK_BYTES, &piece)) == 1) {
		assert_int_equal(piece.offset, seen.body_len);
		assert_true(piece.bytes && seen.body_len + piece.bytes <= RIG_SEEN_MAX);
		memcpy(seen.body + seen.body_len, piece.data, piece.bytes);
		seen.body_len += piece.bytes;
		seen.pieces++;
		flow_piece_end(&rig_core, &piece, OWNER_APP);
	}
	flow_source_close(source);
	slice_copy_str(request->body->ops->trailer(request->body, "x-amz-checksum-crc32"),
		seen.trailer, sizeof(seen.trailer));
	return more;
}

/* Sends bytes of the pattern through the reply's sink; fail_at: fails there. */
static int rig_send(struct s3_reply *reply, uint64_t bytes, uint64_t fail_at)
{
	struct flow_sink *sink;
	struct flow_piece piece;
	uint64_t sent = 0;
	int err;

	err = reply->ops->sink(reply, &sink);
	while (!err && sent < MIN(bytes, fail_at)) {
		piece = (struct flow_piece){.offset = sent, .hold = FLOW_HOLD_LEASE};
		piece.bytes = (uint32_t)MIN(MIN(bytes, fail_at) - sent, STORE_CHUNK_BYTES);
		assert_int_equal(region_lease(rig_core.region, region_frames_for(piece.bytes),
					 OWNER_APP, &piece.span),
			0);
		piece.data = piece.span.data;
		memset(piece.data, 'p', piece.bytes);
		sent += piece.bytes;
		err = flow_sink_push(sink, &piece);
	}
	return flow_sink_finish(sink, err || fail_at < bytes) ? -EPIPE : err;
}

#endif
