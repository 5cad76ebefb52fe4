/* tests/unit/gateway/test_keeper.c: covers gateway/keeper.c, over a made-up map and made-up
 * processes: a gateway whose name another one has. */
#include "../unit.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gateway/gateway_priv.h"

/* ---- The map: store 0 is of "east". ---- */

static int live_result;
static _Atomic uint32_t looks, changes;

int cluster_watch_check(struct cluster *cluster)
{
	(void)cluster;
	return 0;
}

int cluster_view(struct cluster *cluster, struct cluster_view *ret_view)
{
	(void)cluster;
	memset(ret_view, 0, sizeof(*ret_view));
	ret_view->store_count = ret_view->gateway_count = 1;
	ret_view->stores[0] = (struct cluster_store){.generation = 1,
		.state = CLUSTER_SERVING,
		.owner = "east",
		.http = "192.0.2.1:9000"};
	ret_view->gateways[0] = (struct cluster_gateway){.name = "east", .alive = true};
	atomic_fetch_add(&looks, 1);
	return 0;
}

int cluster_store_change(
	struct cluster *cluster, const struct cluster_store *was, struct cluster_store *store)
{
	(void)cluster;
	(void)was;
	(void)store;
	atomic_fetch_add(&changes, 1);
	return 0;
}

int cluster_live(struct cluster *cluster, const struct cluster_gateway *gateway, uint32_t seconds)
{
	(void)cluster;
	(void)seconds;
	assert_string_equal(gateway->name, "east");
	return live_result;
}

void cluster_leave(struct cluster *cluster, const char *gateway)
{
	(void)cluster;
	(void)gateway;
}

int cluster_rooms(struct cluster *cluster, struct cluster_room ret_rooms[CLUSTER_STORES_MAX])
{
	(void)cluster;
	(void)ret_rooms;
	return -EIO;
}

int cluster_store_bytes(struct cluster *cluster, uint32_t number, uint64_t *ret_bytes)
{
	(void)cluster;
	(void)number;
	(void)ret_bytes;
	return -EIO;
}

void gw_routes_set(struct gateway *gateway, const struct cluster_view *view)
{
	(void)gateway;
	(void)view;
}

void gw_admins_set(struct gateway *gateway)
{
	(void)gateway;
}

void gw_rooms_set(struct gw_routes *routes, const struct cluster_view *view,
	const struct cluster_room rooms[CLUSTER_STORES_MAX])
{
	(void)routes;
	(void)view;
	(void)rooms;
}

/* ---- Processes. ---- */

static _Atomic uint32_t starts, ends;

int gw_child_start(struct gateway *gateway, uint32_t store)
{
	(void)gateway;
	(void)store;
	atomic_fetch_add(&starts, 1);
	return 0;
}

void gw_child_look(struct gateway *gateway, uint32_t store)
{
	(void)gateway;
	(void)store;
}

void gw_child_end(struct gw_child *child)
{
	if (child->pid)
		atomic_fetch_add(&ends, 1);
	child->pid = 0;
}

/* ---- The test. ---- */

static void looks_await(uint32_t count)
{
	uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
	uint32_t before = atomic_load(&looks);

	while (atomic_load(&looks) - before < count) {
		assert_true(clock_now_ns() < deadline_ns);
		sched_yield();
	}
}

/* Store 0 had a process here, which is gone or goes: the other gateway of the name has one. */
static void test_another_has_the_name(void **state)
{
	static struct config config = {.storage.rados.lease_s = 15};
	struct gateway *gateway = calloc(1, sizeof(*gateway));
	int out[2];

	(void)state;
	assert_non_null(gateway);
	gateway->config = &config;
	snprintf(gateway->name, sizeof(gateway->name), "east");
	gateway->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	assert_int_equal(pipe(out), 0);
	gateway->children[0] = (struct gw_child){.pid = 1, .out = out[0], .ready = true};
	assert_int_equal(ticker_open(&gateway->pulse), 0);
	live_result = -EBUSY;
	assert_int_equal(gw_live(gateway), -EBUSY);
	assert_int_equal(pthread_create(&gateway->keeper, NULL, gw_keeper_main, gateway), 0);
	looks_await(2);
	assert_int_equal(atomic_load(&ends), 1);
	assert_int_equal(atomic_load(&starts), 0);
	assert_int_equal(atomic_load(&changes), 0);
	/* An error says nothing; the name is free again when it can be taken. */
	live_result = -ETIMEDOUT;
	assert_int_equal(gw_live(gateway), -ETIMEDOUT);
	looks_await(2);
	assert_int_equal(atomic_load(&changes), 0);
	live_result = 0;
	assert_int_equal(gw_live(gateway), 0);
	looks_await(2);
	assert_true(atomic_load(&changes) > 0);
	/* It has no stores to hand over. */
	live_result = -EBUSY;
	assert_int_equal(gw_live(gateway), -EBUSY);
	atomic_store(&gateway->leaving, true);
	gw_keeper_wake(gateway);
	assert_int_equal(pthread_join(gateway->keeper, NULL), 0);
	ticker_close(&gateway->pulse);
	close(gateway->wake_fd);
	close(out[0]);
	close(out[1]);
	free(gateway);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_another_has_the_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
