#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "listen/listen.h"

#define RIG_ALARM_S 600
#define SERVED_MAX  64u

static struct reactor *rig;
static struct flow_core rig_core;
static struct listen *rig_listen;
static struct listen_opts rig_opts;
static char rig_address[32];
static bool rig_evicts; /* listeners that are opened from now on */

/* The connections handed to the front. A connection is served until the test or its stream ends
 * it. */
static struct served {
	struct net_stream *stream;
	const struct front_http_opts *opts;
	uint32_t requests; /* bytes that came while it had no fiber */
	uint16_t share;	   /* of the fiber that took the last one */
	bool ended;
} served[SERVED_MAX];
#define SHARE 7u
static bool waits_apart; /* connections that begin from now on have no fiber while they wait */
static uint32_t served_count;
static bool in_requests; /* every connection is in a request */

void front_http_pool_close(struct front_http_pool *pool)
{
	(void)pool;
}

/* A connection that waits is known by its place in served. */
static char served_byte[SERVED_MAX];

static void serve_end(uint32_t idx)
{
	served[idx].ended = true;
	net_close(served[idx].stream);
}

static struct front_http *serve_apart(uint32_t idx)
{
	size_t got = 0;
	int err = net_recv_begin(served[idx].stream, &served_byte[idx], 1, DEADLINE_NONE,
		served[idx].opts->again, &got);

	if (err == -EINPROGRESS)
		return (struct front_http *)(void *)&served[idx];
	serve_end(idx);
	return NULL;
}

struct front_http *front_http_go_on(struct front_http *http)
{
	uint32_t idx = (uint32_t)((struct served *)(void *)http - served);
	size_t got = 0;

	served[idx].share = fiber_share();
	if (!net_recv_end(served[idx].stream, &served_byte[idx], 1, DEADLINE_NONE, &got) && got) {
		served[idx].requests++;
		return serve_apart(idx);
	}
	serve_end(idx);
	return NULL;
}

void front_http_drop(struct front_http *http)
{
	serve_end((uint32_t)((struct served *)(void *)http - served));
}

struct front_http *front_http_serve(const struct front_http_opts *opts, struct net_stream *stream)
{
	uint32_t idx = served_count++;
	char byte;
	size_t got;

	assert_true(idx < SERVED_MAX);
	served[idx] = (struct served){.stream = stream, .opts = opts};
	*opts->ret_idle = true;
	*opts->ret_serving = in_requests;
	if (waits_apart) {
		fiber_share_set(SHARE);
		return serve_apart(idx);
	}
	while (net_recv(stream, &byte, 1, DEADLINE_NONE, &got) == 0 && got)
		continue;
	serve_end(idx);
	return NULL;
}

static int rig_open(uint32_t connections_max, uint32_t fibers_max)
{
	const struct reactor_opts opts = {.cpu = -1, .fibers_max = fibers_max};

	alarm(RIG_ALARM_S);
	assert_int_equal(reactor_open(&opts, &rig), 0);
	rig_core = (struct flow_core){.reactor = rig};
	served_count = 0;
	in_requests = false;
	rig_opts = (struct listen_opts){
		.core = &rig_core, .connections_max = connections_max, .evict_serving = rig_evicts};
	assert_int_equal(listen_open(&rig_opts, "127.0.0.1:0", &rig_listen), 0);
	snprintf(rig_address, sizeof(rig_address), "127.0.0.1:%u", listen_port(rig_listen));
	return listen_start(rig_listen);
}

static void rig_run(fiber_fn *fn)
{
	assert_int_equal(fiber_spawn(rig, "test", fn, NULL), 0);
	reactor_stop(rig);
	reactor_run(rig);
	listen_close(rig_listen);
	reactor_close(rig);
	alarm(0);
}

static uint64_t in_ms(uint64_t ms)
{
	return clock_now_ns() + ms * NS_PER_MS;
}

static void until_served(uint32_t count)
{
	while (served_count < count)
		fiber_yield();
}

static struct net_stream *client_connect(void)
{
	struct net_stream *stream;

	assert_int_equal(net_connect(rig_address, in_ms(60000), &stream), 0);
	return stream;
}

/* The other end is closed. */
static void client_ended(struct net_stream *stream)
{
	char byte;
	size_t got = 0;

	assert_true(net_recv(stream, &byte, 1, in_ms(60000), &got) != 0 || got == 0);
	net_close(stream);
}

static void rig_drain(uint64_t ms)
{
	struct listen *const listens[] = {NULL, rig_listen};

	listen_drain_all(listens, ARRAY_LEN(listens), in_ms(ms));
}

/* ---- Connections. ---- */

static void connections_are_served(void *arg)
{
	struct net_stream *clients[3];

	(void)arg;
	for (uint32_t i = 0; i < 3; i++) {
		clients[i] = client_connect();
		until_served(i + 1);
		assert_ptr_equal(served[i].opts->core, &rig_core);
		assert_non_null(served[i].opts->draining);
		assert_false(*served[i].opts->draining);
	}
	/* Each connection has its own idle flag. */
	assert_ptr_not_equal(served[0].opts->ret_idle, served[1].opts->ret_idle);
	for (uint32_t i = 0; i < 3; i++)
		net_close(clients[i]);
	while (!served[0].ended || !served[1].ended || !served[2].ended)
		fiber_yield();
	rig_drain(60000);
}

static void test_connections_are_served(void **state)
{
	(void)state;
	assert_int_equal(rig_open(10, 0), 0);
	rig_run(connections_are_served);
}

/* At the limit, with requests on all connections, the next ones wait, and are served when one has
 * ended. */
static void the_limit_makes_them_wait(void *arg)
{
	struct net_stream *clients[4];

	(void)arg;
	in_requests = true;
	for (uint32_t i = 0; i < 4; i++)
		clients[i] = client_connect();
	until_served(2);
	for (int i = 0; i < 200; i++)
		fiber_yield();
	assert_int_equal(served_count, 2);
	net_close(clients[0]);
	until_served(3);
	net_close(clients[1]);
	until_served(4);
	net_close(clients[2]);
	net_close(clients[3]);
	rig_drain(60000);
}

static void test_the_limit_makes_them_wait(void **state)
{
	(void)state;
	assert_int_equal(rig_open(2, 0), 0);
	rig_run(the_limit_makes_them_wait);
}

/* The connection that has been idle longest makes room for the next one. */
static void the_idle_make_room(void *arg)
{
	struct net_stream *busy, *idle, *next;

	(void)arg;
	in_requests = true;
	busy = client_connect();
	until_served(1);
	in_requests = false;
	idle = client_connect();
	until_served(2);
	next = client_connect();
	until_served(3);
	assert_false(served[0].ended);
	assert_true(served[1].ended);
	client_ended(idle);
	net_close(busy);
	net_close(next);
	rig_drain(60000);
}

static void test_the_idle_make_room(void **state)
{
	(void)state;
	assert_int_equal(rig_open(2, 0), 0);
	rig_run(the_idle_make_room);
}

/* If no connection may keep others out, the one with the oldest request makes room, too. */
static void all_make_room(void *arg)
{
	struct net_stream *first, *second;

	(void)arg;
	in_requests = true;
	first = client_connect();
	until_served(1);
	second = client_connect();
	until_served(2);
	assert_true(served[0].ended);
	client_ended(first);
	net_close(second);
	rig_drain(60000);
}

static void test_all_make_room(void **state)
{
	(void)state;
	rig_evicts = true;
	assert_int_equal(rig_open(1, 0), 0);
	rig_evicts = false;
	rig_run(all_make_room);
}

/* Without a free fiber, a connection gets Retry-After at once and is closed, and the listener
 * continues. */
static void parked(void *arg)
{
	const bool *go = arg;

	while (!*go)
		fiber_yield();
}

/* Refused by the listener itself, before a request. */
static void client_refused(struct net_stream *stream)
{
	char answer[1024];
	const char *body;
	size_t len = 0, got = 1, said;

	while (got) {
		assert_int_equal(net_recv(stream, answer + len, sizeof(answer) - 1 - len,
					 in_ms(60000), &got),
			0);
		len += got;
	}
	answer[len] = '\0';
	assert_ptr_equal(strstr(answer, "HTTP/1.1 503 "), answer);
	assert_non_null(strstr(answer, "\r\nRetry-After: 1\r\n"));
	assert_non_null(strstr(answer, "<Code>SlowDown</Code>"));
	body = strstr(answer, "\r\n\r\n");
	assert_non_null(body);
	assert_int_equal(
		sscanf(strstr(answer, "Content-Length: "), "Content-Length: %zu", &said), 1);
	assert_int_equal(said, strlen(body + 4));
	net_close(stream);
}

static void no_fiber_for_a_connection(void *arg)
{
	struct net_stream *client;
	bool go = false;

	(void)arg;
	while (fiber_spawn(rig, "parked", parked, &go) == 0)
		continue;
	client_refused(client_connect());
	assert_int_equal(served_count, 0);
	go = true;
	fiber_yield();
	fiber_yield();
	client = client_connect();
	until_served(1);
	net_close(client);
	rig_drain(60000);
}

static void test_no_fiber_for_a_connection(void **state)
{
	(void)state;
	assert_int_equal(rig_open(10, 8), 0);
	rig_run(no_fiber_for_a_connection);
}

/* ---- Without a fiber. ---- */

static void requests_get_fibers(void *arg)
{
	struct net_stream *client, *other;
	struct iovec iov;
	bool go = false;

	(void)arg;
	waits_apart = true;
	client = client_connect();
	until_served(1);
	for (uint32_t i = 1; i <= 2; i++) {
		iov = (struct iovec){(void *)(uintptr_t) "x", 1};
		assert_int_equal(net_sendv(client, &iov, 1, in_ms(60000)), 0);
		while (served[0].requests < i)
			fiber_yield();
		assert_int_equal(served[0].share, SHARE);
	}
	/* Without a fiber for its request a connection is cut. */
	other = client_connect();
	until_served(2);
	while (fiber_spawn(rig, "parked", parked, &go) == 0)
		continue;
	iov = (struct iovec){(void *)(uintptr_t) "x", 1};
	assert_int_equal(net_sendv(other, &iov, 1, in_ms(60000)), 0);
	client_ended(other);
	assert_true(served[1].ended);
	assert_false(served[0].ended);
	go = true;
	fiber_yield();
	fiber_yield();
	/* A drain ends those that wait. */
	rig_drain(60000);
	assert_true(served[0].ended);
	client_ended(client);
	waits_apart = false;
}

static void test_requests_get_fibers(void **state)
{
	(void)state;
	assert_int_equal(rig_open(10, 8), 0);
	rig_run(requests_get_fibers);
}

/* ---- Draining. ---- */

static void idle_ones_end_at_once(void *arg)
{
	struct net_stream *idle, *busy;

	(void)arg;
	idle = client_connect();
	until_served(1);
	busy = client_connect();
	until_served(2);
	*served[1].opts->ret_idle = false;
	listen_drain_begin(rig_listen);
	assert_true(*served[1].opts->draining);
	client_ended(idle);
	assert_true(served[0].ended);
	assert_false(served[1].ended);
	/* New connections are refused. */
	assert_true(net_connect(rig_address, in_ms(60000), &idle) < 0);
	/* The other connection ends with its request. */
	net_close(busy);
	listen_drain(rig_listen, in_ms(60000));
	assert_true(served[1].ended);
}

static void test_idle_ones_end_at_once(void **state)
{
	(void)state;
	assert_int_equal(rig_open(10, 0), 0);
	rig_run(idle_ones_end_at_once);
}

/* After the deadline, remaining connections are closed. */
static void the_deadline_cuts(void *arg)
{
	struct net_stream *busy = client_connect();

	(void)arg;
	until_served(1);
	*served[0].opts->ret_idle = false;
	rig_drain(1);
	assert_true(served[0].ended);
	client_ended(busy);
}

static void test_the_deadline_cuts(void **state)
{
	(void)state;
	assert_int_equal(rig_open(10, 0), 0);
	rig_run(the_deadline_cuts);
}

/* A drain with an acceptor that waits at the limit. */
static void drained_at_the_limit(void *arg)
{
	struct net_stream *first, *second;

	(void)arg;
	in_requests = true;
	first = client_connect();
	until_served(1);
	second = client_connect();
	for (int i = 0; i < 50; i++)
		fiber_yield();
	rig_drain(60000);
	client_ended(first);
	client_ended(second);
	assert_int_equal(served_count, 1);
}

static void test_drained_at_the_limit(void **state)
{
	(void)state;
	assert_int_equal(rig_open(1, 0), 0);
	rig_run(drained_at_the_limit);
}

/* ---- Opening. ---- */

static void drained_at_once(void *arg)
{
	(void)arg;
	rig_drain(60000);
}

static void test_opening_fails(void **state)
{
	struct listen *listen = NULL;
	char address[64];

	(void)state;
	assert_int_equal(rig_open(10, 0), 0);
	assert_true(listen_open(&rig_opts, "no address", &listen) < 0);
	snprintf(address, sizeof(address), "192.0.2.1:%u", listen_port(rig_listen));
	assert_int_equal(listen_open(&rig_opts, address, &listen), -EADDRNOTAVAIL);
	assert_null(listen);
	listen_close(NULL);
	rig_run(drained_at_once);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_connections_are_served),
		cmocka_unit_test(test_the_limit_makes_them_wait),
		cmocka_unit_test(test_the_idle_make_room),
		cmocka_unit_test(test_all_make_room),
		cmocka_unit_test(test_no_fiber_for_a_connection),
		cmocka_unit_test(test_requests_get_fibers),
		cmocka_unit_test(test_idle_ones_end_at_once),
		cmocka_unit_test(test_the_deadline_cuts),
		cmocka_unit_test(test_drained_at_the_limit),
		cmocka_unit_test(test_opening_fails),
	};

	return cmocka_run_group_tests_name("listen", tests, NULL, NULL);
}
