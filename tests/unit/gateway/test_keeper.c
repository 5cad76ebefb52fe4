/* tests/unit/gateway/test_keeper.c: covers gateway/keeper.c, over a made-up map and made-up
 * processes: a gateway whose name another one has, or had; and a store that shall go to one
 * that leaves. */
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

static _Atomic int live_result;
static _Atomic uint32_t looks, changes;
static pthread_mutex_t map_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cluster_store entry; /* under the lock */
static _Atomic bool west_lives, west_leaves;

/* With the next generation. */
static void entry_set(struct cluster_store store)
{
	pthread_mutex_lock(&map_lock);
	store.generation = entry.generation + 1;
	snprintf(store.owner, sizeof(store.owner), "east");
	entry = store;
	pthread_mutex_unlock(&map_lock);
}

static struct cluster_store entry_get(void)
{
	struct cluster_store now;

	pthread_mutex_lock(&map_lock);
	now = entry;
	pthread_mutex_unlock(&map_lock);
	return now;
}

int cluster_watch_check(struct cluster *cluster)
{
	(void)cluster;
	return 0;
}

int cluster_view(struct cluster *cluster, struct cluster_view *ret_view)
{
	(void)cluster;
	memset(ret_view, 0, sizeof(*ret_view));
	ret_view->store_count = 1;
	ret_view->gateway_count = 2;
	ret_view->stores[0] = entry_get();
	ret_view->gateways[0] = (struct cluster_gateway){.name = "east", .alive = true};
	ret_view->gateways[1] = (struct cluster_gateway){.name = "west",
		.alive = atomic_load(&west_lives),
		.leaving = atomic_load(&west_leaves)};
	atomic_fetch_add(&looks, 1);
	return 0;
}

int cluster_store_change(
	struct cluster *cluster, const struct cluster_store *was, struct cluster_store *store)
{
	int ret = -ECANCELED;

	(void)cluster;
	pthread_mutex_lock(&map_lock);
	if (was->generation == entry.generation) {
		store->generation = was->generation + 1;
		entry = *store;
		atomic_fetch_add(&changes, 1);
		ret = 0;
	}
	pthread_mutex_unlock(&map_lock);
	return ret;
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

#define OWN_ADDR   "192.0.2.1:9000"
#define OTHER_ADDR "192.0.2.1:9001"

static _Atomic uint32_t starts, ends;
static _Atomic bool child_ready;

int gw_child_start(struct gateway *gateway, uint32_t store)
{
	(void)gateway;
	(void)store;
	atomic_fetch_add(&starts, 1);
	return 0;
}

void gw_child_look(struct gateway *gateway, uint32_t store)
{
	struct gw_child *child = &gateway->children[store];

	child->ready = child->pid && atomic_load(&child_ready);
	snprintf(child->http, sizeof(child->http), "%s", child->ready ? OWN_ADDR : "");
}

void gw_child_end(struct gw_child *child)
{
	if (child->pid)
		atomic_fetch_add(&ends, 1);
	child->pid = 0;
}

/* ---- The tests. ---- */

/* The keeper of "east", with a process of store 0. */
struct fixture {
	struct gateway *gateway;
	int out[2];
};

static void begin(struct fixture *fixture, bool ready)
{
	static struct config config = {.storage.rados.lease_s = 15};
	struct gateway *gateway = calloc(1, sizeof(*gateway));

	assert_non_null(gateway);
	fixture->gateway = gateway;
	gateway->config = &config;
	snprintf(gateway->name, sizeof(gateway->name), "east");
	gateway->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	assert_int_equal(pipe(fixture->out), 0);
	gateway->children[0] = (struct gw_child){.pid = 1, .out = fixture->out[0]};
	assert_int_equal(ticker_open(&gateway->pulse), 0);
	atomic_store(&child_ready, ready);
	atomic_store(&starts, 0);
	atomic_store(&ends, 0);
	atomic_store(&changes, 0);
	atomic_store(&live_result, 0);
	atomic_store(&west_lives, false);
	atomic_store(&west_leaves, false);
}

static void keeper_start(struct fixture *fixture)
{
	assert_int_equal(
		pthread_create(&fixture->gateway->keeper, NULL, gw_keeper_main, fixture->gateway),
		0);
}

/* Another gateway has the name: it has no stores to hand over. */
static void end(struct fixture *fixture)
{
	struct gateway *gateway = fixture->gateway;

	atomic_store(&live_result, -EBUSY);
	assert_int_equal(gw_live(gateway), -EBUSY);
	atomic_store(&gateway->leaving, true);
	gw_keeper_wake(gateway);
	assert_int_equal(pthread_join(gateway->keeper, NULL), 0);
	ticker_close(&gateway->pulse);
	close(gateway->wake_fd);
	close(fixture->out[0]);
	close(fixture->out[1]);
	free(gateway);
}

static void looks_await(uint32_t count)
{
	uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
	uint32_t before = atomic_load(&looks);

	while (atomic_load(&looks) - before < count) {
		assert_true(clock_now_ns() < deadline_ns);
		sched_yield();
	}
}

static void owner_await(const char *name)
{
	uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;

	while (strcmp(entry_get().owner, name) != 0) {
		assert_true(clock_now_ns() < deadline_ns);
		sched_yield();
	}
}

static void entry_await(enum cluster_state state, const char *http)
{
	uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
	struct cluster_store now = entry_get();

	while (now.state != state || strcmp(now.http, http) != 0 || now.rdma[0]) {
		assert_true(clock_now_ns() < deadline_ns);
		sched_yield();
		now = entry_get();
	}
}

/* Store 0 had a process here, which is gone or goes: the other gateway of the name has one. */
static void test_another_has_the_name(void **state)
{
	struct fixture fixture;

	(void)state;
	begin(&fixture, true);
	entry_set((struct cluster_store){.state = CLUSTER_SERVING, .http = OWN_ADDR});
	atomic_store(&live_result, -EBUSY);
	assert_int_equal(gw_live(fixture.gateway), -EBUSY);
	keeper_start(&fixture);
	looks_await(2);
	assert_int_equal(atomic_load(&ends), 1);
	assert_int_equal(atomic_load(&starts), 0);
	assert_int_equal(atomic_load(&changes), 0);
	/* An error says nothing; the name is free again when it can be taken. */
	atomic_store(&live_result, -ETIMEDOUT);
	assert_int_equal(gw_live(fixture.gateway), -ETIMEDOUT);
	looks_await(2);
	assert_int_equal(atomic_load(&changes), 0);
	atomic_store(&live_result, 0);
	assert_int_equal(gw_live(fixture.gateway), 0);
	looks_await(2);
	assert_true(atomic_load(&changes) > 0);
	end(&fixture);
}

/* It goes on after a stop, and its keeper is faster than its pulse: its process is ready, and the
 * entry is what another gateway of the name wrote. */
static void test_another_got_the_name(void **state)
{
	struct fixture fixture;

	(void)state;
	begin(&fixture, true);
	entry_set((struct cluster_store){.state = CLUSTER_OPENING});
	atomic_store(&live_result, -EBUSY);
	keeper_start(&fixture);
	looks_await(3);
	assert_int_equal(atomic_load(&changes), 0);
	assert_int_equal(entry_get().state, CLUSTER_OPENING);
	assert_int_equal(atomic_load(&ends), 1);
	end(&fixture);
}

/* The entry has the address of another's process: of a gateway that had the name, and was stopped
 * between its renewal and its change. */
static void test_another_had_the_name(void **state)
{
	struct fixture fixture;

	(void)state;
	begin(&fixture, false);
	entry_set((struct cluster_store){.state = CLUSTER_SERVING, .http = OTHER_ADDR});
	keeper_start(&fixture);
	entry_await(CLUSTER_OPENING, "");
	atomic_store(&child_ready, true);
	entry_await(CLUSTER_SERVING, OWN_ADDR);
	entry_set((struct cluster_store){.state = CLUSTER_SERVING, .http = OTHER_ADDR});
	entry_await(CLUSTER_SERVING, OWN_ADDR);
	entry_set((struct cluster_store){
		.state = CLUSTER_SERVING, .http = OWN_ADDR, .rdma = OTHER_ADDR});
	entry_await(CLUSTER_SERVING, OWN_ADDR);
	/* A right entry stays. */
	atomic_store(&changes, 0);
	looks_await(2);
	assert_int_equal(atomic_load(&changes), 0);
	assert_int_equal(atomic_load(&starts), 0);
	assert_int_equal(atomic_load(&ends), 0);
	end(&fixture);
}

/* It goes on after a stop, and has no process of a store that another gateway of the name opens. */
static void test_another_opens(void **state)
{
	struct fixture fixture;

	(void)state;
	begin(&fixture, false);
	fixture.gateway->children[0].pid = 0;
	entry_set((struct cluster_store){.state = CLUSTER_OPENING});
	atomic_store(&live_result, -EBUSY);
	keeper_start(&fixture);
	looks_await(3);
	assert_int_equal(atomic_load(&starts), 0);
	end(&fixture);
}

/* The name is free again, and the process that was told to end meanwhile has not ended yet: its end
 * is pursued until it is gone, and then there is a new one. */
static void test_process_ends(void **state)
{
	struct fixture fixture;

	(void)state;
	begin(&fixture, true);
	fixture.gateway->children[0].ending = true;
	entry_set((struct cluster_store){.state = CLUSTER_SERVING, .http = OWN_ADDR});
	keeper_start(&fixture);
	entry_await(CLUSTER_OPENING, "");
	looks_await(3);
	assert_int_equal(entry_get().state, CLUSTER_OPENING);
	assert_int_equal(atomic_load(&ends), 1);
	assert_true(atomic_load(&starts) > 0);
	end(&fixture);
}

/* "west" shall have the store, which serves here, and leaves: the store stays. */
static void test_next_leaves(void **state)
{
	struct fixture fixture;
	struct cluster_store now;

	(void)state;
	begin(&fixture, true);
	atomic_store(&west_lives, true);
	atomic_store(&west_leaves, true);
	entry_set((struct cluster_store){
		.state = CLUSTER_SERVING, .http = OWN_ADDR, .next = "west", .pinned = true});
	keeper_start(&fixture);
	looks_await(3);
	now = entry_get();
	assert_int_equal(now.state, CLUSTER_SERVING);
	assert_string_equal(now.next, "");
	assert_false(now.pinned);
	assert_string_equal(now.http, OWN_ADDR);
	assert_int_equal(atomic_load(&ends), 0);
	/* To one that stays it goes. */
	atomic_store(&west_leaves, false);
	entry_set(
		(struct cluster_store){.state = CLUSTER_SERVING, .http = OWN_ADDR, .next = "west"});
	owner_await("west");
	assert_int_equal(entry_get().state, CLUSTER_OPENING);
	assert_int_equal(atomic_load(&ends), 1);
	end(&fixture);
}

/* "west" begins to leave while this gateway hands the store over: it is free, and one that stays
 * takes it: this one. */
static void test_next_leaves_meanwhile(void **state)
{
	struct fixture fixture;

	(void)state;
	begin(&fixture, true);
	atomic_store(&west_lives, true);
	atomic_store(&west_leaves, true);
	entry_set(
		(struct cluster_store){.state = CLUSTER_LEAVING, .http = OWN_ADDR, .next = "west"});
	keeper_start(&fixture);
	looks_await(3);
	assert_string_equal(entry_get().owner, "east");
	assert_int_equal(entry_get().state, CLUSTER_OPENING);
	assert_int_equal(atomic_load(&ends), 1);
	assert_true(atomic_load(&starts) > 0);
	end(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_another_has_the_name),
		cmocka_unit_test(test_another_got_the_name),
		cmocka_unit_test(test_another_had_the_name),
		cmocka_unit_test(test_another_opens),
		cmocka_unit_test(test_process_ends),
		cmocka_unit_test(test_next_leaves),
		cmocka_unit_test(test_next_leaves_meanwhile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
