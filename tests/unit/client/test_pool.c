/* Opening a client; clients leased to threads; results by callback; a busy server. */
#include "../unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "rig.h"

#define B	"bucket"
#define THREADS 8u
#define ROUNDS	200u

static int setup(void **state)
{
	*state = rig_open(NULL);
	return 0;
}

static int teardown(void **state)
{
	rig_close(*state);
	return 0;
}

static struct neb_options options_of(struct rig *rig)
{
	return (struct neb_options){.endpoints = rig_endpoint(rig),
		.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.transport = NEB_RDMA,
		.connect_timeout_ns = RIG_PATIENCE_NS,
		.request_timeout_ns = RIG_PATIENCE_NS,
		.pool_bytes = MIB};
}

/* ---- Callbacks. ---- */

struct told {
	struct neb_client *client;
	uint32_t count, more;
	uint64_t bytes;
	int error;
	char data[64];
};

static void get_again(struct told *told);

static void on_done(void *arg, const struct neb_result *result)
{
	struct told *told = arg;

	told->count++;
	told->error = result->error;
	told->bytes = result->bytes;
	if (told->more) {
		told->more--;
		get_again(told);
	}
}

static void get_again(struct told *told)
{
	struct neb_iov into = {told->data, sizeof(told->data)};
	struct neb_request get = {.op = NEB_GET_OBJECT,
		.bucket = B,
		.key = "told",
		.into = &into,
		.into_count = 1,
		.user_data = told,
		.done = on_done};

	assert_int_equal(neb_submit(told->client, &get, NULL), 0);
}

static void test_callback(void **state)
{
	struct neb_client *client = rig_client(*state, NEB_RDMA);
	struct told told[2] = {{.client = client, .more = 99}, {.client = client}};
	struct neb_request ping = {.op = NEB_PING}, refused = {.op = NEB_PING, .done = on_done};
	struct neb_result results[4];

	assert_int_equal(neb_put(client, B, "told", "0123456789", 10, NULL), 0);
	get_again(&told[0]);
	get_again(&told[1]);
	do
		assert_int_equal(neb_wait(client, NULL, 0, 60 * NS_PER_S), 0);
	while (neb_in_flight(client));
	assert_int_equal(told[0].count, 100);
	assert_int_equal(told[1].count, 1);
	assert_int_equal(told[1].error, 0);
	assert_int_equal(told[1].bytes, 10);
	assert_memory_equal(told[1].data, "0123456789", 10);
	/* Both kinds at once: results without a callback are returned, and wait for room. */
	get_again(&told[1]);
	for (int i = 0; i < 3; i++)
		assert_int_equal(neb_submit(client, &ping, NULL), 0);
	while (neb_in_flight(client))
		neb_poll(client, NULL, 0);
	assert_int_equal(neb_poll(client, results, 2), 2);
	assert_int_equal(told[1].count, 2);
	assert_int_equal(neb_wait(client, results, 4, NS_PER_S), 1);
	assert_int_equal(neb_wait(client, results, 4, NS_PER_S), 0);
	assert_int_equal(neb_perform(client, &refused, &results[0]), -EINVAL);
	assert_int_equal(results[0].error, -EINVAL);
	neb_client_close(client);
}

/* ---- A busy server. ---- */

static void test_busy(void **state)
{
	struct rig *rig = *state;
	struct neb_options options = options_of(rig);
	struct neb_client *client;
	struct neb_result result;
	struct neb_stats stats;
	char data[8];
	uint64_t begun_ns = clock_now_ns();
	int error;

	assert_int_equal(neb_client_open(&options, &client), 0);
	assert_int_equal(neb_put(client, B, "busy-1", "bytes", 5, NULL), 0);
	assert_int_equal(neb_get(client, B, "busy-1", data, sizeof(data), &result), 0);
	assert_int_equal(result.bytes, 5);
	assert_string_equal(result.code, "");
	/* Two back-offs, of 25 to 50 and 50 to 100 ms. */
	assert_true(clock_now_ns() - begun_ns >= 75 * NS_PER_MS);
	neb_client_stats(client, &stats);
	assert_int_equal(stats.retries, 2);
	neb_client_close(client);
	/* One retry is not enough: the result is then the server's answer. */
	options.retries_max = 1;
	assert_int_equal(neb_client_open(&options, &client), 0);
	assert_int_equal(neb_get(client, B, "busy-1", data, sizeof(data), &result), -EAGAIN);
	assert_int_equal(result.status, 503);
	assert_string_equal(result.code, "SlowDown");
	assert_int_equal(neb_get(client, B, "busy-1", data, sizeof(data), &result), 0);
	neb_client_close(client);
	/* No retry without time for it, nor when retries are off. */
	options.request_timeout_ns = 24 * NS_PER_MS;
	assert_int_equal(neb_client_open(&options, &client), 0);
	error = neb_get(client, B, "busy-1", data, sizeof(data), &result);
	assert_true(error == -EAGAIN || error == -ETIMEDOUT); /* on a busy machine */
	neb_client_stats(client, &stats);
	assert_int_equal(stats.retries, 0);
	neb_client_close(client);
	options.request_timeout_ns = 0;
	options.retries_max = UINT32_MAX;
	assert_int_equal(neb_client_open(&options, &client), 0);
	assert_int_equal(neb_get(client, B, "busy-1", data, sizeof(data), &result), -EAGAIN);
	neb_client_stats(client, &stats);
	assert_int_equal(stats.retries, 0);
	neb_client_close(client);
}

/* ---- The pool. ---- */

struct worker {
	struct neb_pool *pool;
	uint32_t number, failures;
};

static void *work(void *arg)
{
	struct worker *worker = arg;
	struct neb_client *client;
	char key[32], data[32];
	struct neb_result result;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		snprintf(key, sizeof(key), "key-%u", worker->number);
		snprintf(data, sizeof(data), "%u of %u", i, worker->number);
		if (neb_pool_lease(worker->pool, 60 * NS_PER_S, &client)) {
			worker->failures++;
			continue;
		}
		worker->failures += neb_put(client, B, key, data, strlen(data), NULL) != 0;
		memset(data, 0, sizeof(data));
		worker->failures += neb_get(client, B, key, data, sizeof(data), &result) != 0;
		worker->failures += strtoul(data, NULL, 10) != i;
		neb_pool_give(worker->pool, client);
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct neb_options options = options_of(*state);
	struct worker workers[THREADS];
	pthread_t threads[THREADS];
	struct neb_pool *pool;

	/* Fewer clients than threads: some wait. */
	assert_int_equal(neb_pool_open(&options, 3, &pool), 0);
	for (uint32_t i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.pool = pool, .number = i};
		assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
	for (uint32_t i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_int_equal(workers[i].failures, 0);
	}
	assert_true(rig_sessions(*state) <= 3);
	neb_pool_close(pool);
}

static void test_pool_bounds(void **state)
{
	struct neb_options options = options_of(*state), bad = options;
	struct neb_client *first, *second, *third;
	struct neb_pool *pool;

	assert_int_equal(neb_pool_open(&options, 0, &pool), -EINVAL);
	assert_int_equal(neb_pool_open(&options, 1025, &pool), -EINVAL);
	bad.secret_key = NULL;
	assert_int_equal(neb_pool_open(&bad, 1, &pool), -EINVAL);
	neb_pool_close(NULL);
	assert_int_equal(neb_pool_open(&options, 2, &pool), 0);
	assert_int_equal(neb_pool_lease(pool, 0, &first), 0);
	assert_int_equal(neb_pool_lease(pool, 0, &second), 0);
	assert_ptr_not_equal(first, second);
	assert_int_equal(neb_pool_lease(pool, 10 * NS_PER_MS, &third), -ETIMEDOUT);
	neb_pool_give(pool, first);
	neb_pool_give(pool, NULL);
	assert_int_equal(neb_pool_lease(pool, UINT64_MAX, &third), 0);
	assert_ptr_equal(third, first);
	neb_pool_give(pool, third);
	neb_pool_give(pool, second);
	neb_pool_close(pool);
	/* A client that cannot be opened leaves its place for the next attempt. */
	bad = options;
	bad.endpoints = "nowhere";
	assert_int_equal(neb_pool_open(&bad, 1, &pool), 0);
	assert_int_equal(neb_pool_lease(pool, 0, &first), -EINVAL);
	assert_int_equal(neb_pool_lease(pool, 0, &first), -EINVAL);
	neb_pool_close(pool);
}

/* Two servers: the pool's clients spread over them, and all use the remaining one. */
static void test_spread(void **state)
{
	struct rig *other = rig_open(NULL);
	struct neb_options options = options_of(*state);
	struct neb_client *clients[4];
	struct neb_pool *pool;
	char endpoints[128];

	snprintf(endpoints, sizeof(endpoints), "%s, %s", rig_endpoint(*state), rig_endpoint(other));
	options.endpoints = endpoints;
	assert_int_equal(neb_pool_open(&options, 4, &pool), 0);
	memset(endpoints, 'x', sizeof(endpoints)); /* the pool has copied them */
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(neb_pool_lease(pool, 0, &clients[i]), 0);
		assert_int_equal(neb_ping(clients[i], NULL), 0);
	}
	assert_int_equal(rig_sessions(*state), 2);
	assert_int_equal(rig_sessions(other), 2);
	rig_close(other);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(neb_ping(clients[i], NULL), 0);
		neb_pool_give(pool, clients[i]);
	}
	assert_int_equal(rig_sessions(*state), 4);
	neb_pool_close(pool);
}

/* Endpoints of different stores: the first answer decides the store, and the other endpoint does
 * nothing. */
static void test_other_store(void **state)
{
	const struct rig_opts opts[2] = {{.store_id = 7}, {.store_id = 8}};
	struct rig *rigs[2] = {rig_open(&opts[0]), rig_open(&opts[1])};
	struct neb_options options = options_of(*state);
	struct neb_client *clients[2];
	struct neb_result result;
	struct neb_pool *pool;
	char endpoints[128], data[8];

	snprintf(endpoints, sizeof(endpoints), "%s,%s", rig_endpoint(rigs[0]),
		rig_endpoint(rigs[1]));
	options.endpoints = endpoints;
	assert_int_equal(neb_pool_open(&options, 2, &pool), 0);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(neb_pool_lease(pool, 0, &clients[i]), 0);
	assert_int_equal(neb_put(clients[0], B, "where", "first", 5, &result), 0);
	/* The second client starts at the other endpoint, and then uses the store that the first
	 * has found. */
	assert_int_equal(neb_get(clients[1], B, "where", data, sizeof(data), &result), 0);
	assert_int_equal(result.bytes, 5);
	assert_true(rig_sessions_become(rigs[1], 0));
	/* When that store is gone, the other one does not replace it. */
	rig_close(rigs[0]);
	assert_int_equal(neb_get(clients[1], B, "where", data, sizeof(data), &result), -EXDEV);
	assert_int_equal(result.status, 0);
	assert_non_null(strstr(result.message, "another store"));
	for (uint32_t i = 0; i < 2; i++)
		neb_pool_give(pool, clients[i]);
	neb_pool_close(pool);
	rig_close(rigs[1]);
}

/* A client that is opened for RDMA alone waits for its session, and needs no processor meanwhile.
 */
static void test_opening_sleeps(void **state)
{
	struct neb_options options = options_of(*state);
	struct neb_client *client;
	struct neb_stats stats;

	options.transport = NEB_STRICT;
	options.spin_ns = 1;
	assert_int_equal(neb_client_open(&options, &client), 0);
	neb_client_stats(client, &stats);
	assert_int_equal(stats.sessions_opened, 1);
	assert_true(stats.sleeps > 0);
	neb_client_close(client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_opening_sleeps, setup, teardown),
		cmocka_unit_test_setup_teardown(test_callback, setup, teardown),
		cmocka_unit_test_setup_teardown(test_busy, setup, teardown),
		cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pool_bounds, setup, teardown),
		cmocka_unit_test_setup_teardown(test_spread, setup, teardown),
		cmocka_unit_test_setup_teardown(test_other_store, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
