/* tests/unit/gateway/test_link.c: covers gateway/link.c: heads of answers, and bodies that a
 * store sends slowly or not at all, and a network that is cut. */
#include "../cut.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

/* ---- Bodies. ---- */

#define BODY_BYTES MIB

static struct gateway *gateway;
static struct gw_link *link_now;
static struct region *region;
static struct reactor *reactor;
static int peer_fd;
static struct {
	struct fiber *waiter;
	bool begun, ended;
	int ret;
	uint32_t bytes;
	uint64_t offset;
} next;

static void next_main(void *arg)
{
	struct flow_piece piece;

	(void)arg;
	next.begun = true;
	next.ret = flow_source_next(&link_now->source, FLOW_PIECE_BYTES_MAX, &piece);
	if (next.ret == 1) {
		next.bytes = piece.bytes;
		next.offset = piece.offset;
		flow_piece_end(link_now->source.core, &piece, OWNER_APP);
	}
	next.ended = true;
	fiber_wake(next.waiter);
}

static uint64_t leased_frames(void)
{
	struct region_usage usage;

	region_usage(region, &usage);
	return usage.frames_total - usage.frames_by_owner[OWNER_FREE];
}

/* The store is silent when the next piece is asked for. */
static void next_begin(void)
{
	next.begun = next.ended = false;
	next.waiter = fiber_self();
	assert_int_equal(fiber_spawn(reactor, "next", next_main, NULL), 0);
	while (!next.begun)
		fiber_yield();
	assert_false(next.ended);
	assert_int_equal(leased_frames(), 0);
}

static void next_end(int ret)
{
	while (!next.ended)
		fiber_park();
	assert_int_equal(next.ret, ret);
	assert_int_equal(leased_frames(), 0);
}

static void store_is_at(const char *http)
{
	struct cluster_view *view = calloc(1, sizeof(*view));

	assert_non_null(view);
	view->store_count = 1;
	view->stores[0].generation = 1;
	snprintf(view->stores[0].http, sizeof(view->stores[0].http), "%s", http);
	gw_routes_set(gateway, view);
	free(view);
}

static void silent_main(void *arg)
{
	struct flow_source *source;

	(void)arg;
	link_now->left = link_now->answer.bytes = BODY_BYTES;
	source = gw_link_source(link_now);
	next_begin();
	assert_int_equal(write(peer_fd, "some bytes", 10), 10);
	next_end(1);
	assert_int_equal(next.bytes, 10);
	assert_int_equal(next.offset, 0);
	next_begin();
	store_is_at("127.0.0.1:2");
	next_end(-ESTALE);
	store_is_at("127.0.0.1:1");
	next_begin();
	assert_int_equal(write(peer_fd, "more", 4), 4);
	close(peer_fd);
	next_end(1);
	assert_int_equal(next.bytes, 4);
	assert_int_equal(next.offset, 10);
	next.ended = false;
	next_main(NULL);
	next_end(-EPIPE);
	flow_source_close(source);
	reactor_stop(reactor);
}

static struct gw_core *rig_open(void)
{
	static struct config config = {.http.stall_timeout_s = 60};
	const struct region_opts region_opts = {
		.bytes = 16 * MIB, .core_count = 1, .name = "linktest"};
	const struct reactor_opts reactor_opts = {.cpu = -1};
	struct gw_core *core;

	gateway = calloc(1, sizeof(*gateway));
	assert_non_null(gateway);
	gateway->config = &config;
	gw_routes_init(&gateway->routes);
	core = &gateway->cores[0];
	core->gateway = gateway;
	list_init(&core->idle[0]);
	assert_int_equal(region_open(&region_opts, &region), 0);
	assert_int_equal(reactor_open(&reactor_opts, &reactor), 0);
	assert_int_equal(flow_core_open(reactor, region, &core->flow), 0);
	return core;
}

static void rig_close(void)
{
	flow_core_close(&gateway->cores[0].flow);
	reactor_close(reactor);
	region_close(region);
	free(gateway);
}

static void test_silent_store(void **state)
{
	struct gw_core *core = rig_open();
	int fds[2];

	(void)state;
	link_now = calloc(1, sizeof(*link_now));
	assert_non_null(link_now);
	store_is_at("127.0.0.1:1");
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	link_now->core = core;
	snprintf(link_now->addr, sizeof(link_now->addr), "127.0.0.1:1");
	assert_int_equal(net_stream_take(reactor, fds[0], &link_now->stream), 0);
	peer_fd = fds[1];
	assert_int_equal(fiber_spawn(reactor, "test", silent_main, NULL), 0);
	reactor_run(reactor);
	net_close(link_now->stream);
	free(link_now);
	rig_close();
}

/* ---- The network between the gateway and a store's process is cut. ---- */

/* WAITS: the store has acknowledged the request. SENT: the request is lost. STOPPED: the store's
 * process does nothing, but its network is well. */
enum { WAITS, SENT, STOPPED, HEARERS };
static struct hearer {
	struct gw_link *link;
	int store_fd, ret;
	bool ended;
} hearers[HEARERS];
static struct fiber *cutter;

static void hear_main(void *arg)
{
	struct hearer *hearer = arg;

	hearer->ret = gw_link_hear(hearer->link);
	hearer->ended = true;
	fiber_wake(cutter);
}

static void ask(struct hearer *hearer, int listening, const struct cluster_store *store)
{
	static const struct s3_request request = {.method = S3_GET};
	static const struct gw_client client;

	assert_int_equal(gw_link_open(&gateway->cores[0], store, &client, &hearer->link), 0);
	hearer->store_fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
	assert_true(hearer->store_fd >= 0);
	hearer->link->request = &request;
}

static void say(struct hearer *hearer)
{
	struct iovec iov = {(void *)(uintptr_t) "GET", 3};

	assert_int_equal(
		net_sendv(hearer->link->stream, &iov, 1, clock_now_ns() + 60 * NS_PER_S), 0);
}

static void heard_by_store(struct hearer *hearer)
{
	char text[3];

	assert_int_equal(recv(hearer->store_fd, text, sizeof(text), MSG_WAITALL), sizeof(text));
}

static void cut_main(void *arg)
{
	int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in addr = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(addr);
	struct cluster_store store = {.number = 0};

	(void)arg;
	assert_int_equal(bind(listening, (struct sockaddr *)&addr, len), 0);
	assert_int_equal(listen(listening, HEARERS), 0);
	assert_int_equal(getsockname(listening, (struct sockaddr *)&addr, &len), 0);
	snprintf(store.http, sizeof(store.http), "127.0.0.1:%u", ntohs(addr.sin_port));
	store_is_at(store.http);
	cutter = fiber_self();
	for (int i = 0; i < HEARERS; i++)
		ask(&hearers[i], listening, &store);
	say(&hearers[WAITS]);
	say(&hearers[STOPPED]);
	heard_by_store(&hearers[WAITS]);
	cut(hearers[WAITS].store_fd);
	cut(hearers[SENT].store_fd);
	say(&hearers[SENT]);
	for (int i = 0; i < HEARERS; i++)
		assert_int_equal(fiber_spawn(reactor, "hear", hear_main, &hearers[i]), 0);
	while (!hearers[WAITS].ended || !hearers[SENT].ended)
		fiber_park();
	/* The kernel tells it once. */
	assert_true(hearers[WAITS].ret == -ETIMEDOUT || hearers[WAITS].ret == -ECONNRESET);
	assert_int_equal(hearers[SENT].ret, -ETIMEDOUT);
	assert_false(hearers[STOPPED].ended);
	close(hearers[STOPPED].store_fd);
	while (!hearers[STOPPED].ended)
		fiber_park();
	assert_int_equal(hearers[STOPPED].ret, -ECONNRESET);
	for (int i = 0; i < HEARERS; i++)
		gw_link_end(hearers[i].link, false);
	close(hearers[WAITS].store_fd);
	close(hearers[SENT].store_fd);
	close(listening);
	reactor_stop(reactor);
}

static void test_cut_network(void **state)
{
	(void)state;
	rig_open();
	assert_int_equal(fiber_spawn(reactor, "test", cut_main, NULL), 0);
	reactor_run(reactor);
	rig_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answer),
		cmocka_unit_test(test_wrong),
		cmocka_unit_test(test_silent_store),
		cmocka_unit_test(test_cut_network),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
