#include "sysfs.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>

#include "server/memory.h"

#define CORES 2u
#define STEP  (4 * MIB)
#define STEPS 3u
#define BASE  (64 * MIB)

/* ---- The store, as far as memory.c uses it: a cache that holds spans. ---- */

static struct region *region;
static pthread_mutex_t store_lock = PTHREAD_MUTEX_INITIALIZER;
static struct region_span cached[256];
static uint32_t cached_count;
static uint64_t cache_bytes_max;
static struct store_usage usage;

void store_cache_resize(struct store *store, uint64_t bytes_max)
{
	(void)store;
	cache_bytes_max = bytes_max;
}

void store_cache_vacate(struct store *store, const uint8_t *data, uint64_t bytes)
{
	uint32_t kept = 0;

	(void)store;
	pthread_mutex_lock(&store_lock);
	for (uint32_t i = 0; i < cached_count; i++) {
		if (cached[i].data >= data && cached[i].data < data + bytes)
			region_put(region, cached[i], OWNER_CACHE);
		else
			cached[kept++] = cached[i];
	}
	cached_count = kept;
	pthread_mutex_unlock(&store_lock);
}

void store_usage(struct store *store, struct store_usage *ret_usage)
{
	(void)store;
	*ret_usage = usage;
}

/* ---- A server with two cores, and two users of arenas on each. ---- */

struct user {
	struct region_watch watch;
	uint64_t attached;
	int refusal; /* of the next attach */
	uint32_t attaches;
};

static struct config config;
static struct memory memory;
static struct flow_core flows[CORES];
static struct reactor *reactors[CORES];
static pthread_t threads[CORES];
static struct user users[CORES][2];
static _Atomic bool draining;

static int user_attach(struct region_watch *watch, uint32_t arena_idx)
{
	struct user *user = CONTAINER_OF(watch, struct user, watch);
	int ret = user->refusal;

	user->attaches++;
	user->refusal = 0;
	if (!ret)
		user->attached |= 1ull << arena_idx;
	return ret;
}

static void user_detach(struct region_watch *watch, uint32_t arena_idx)
{
	CONTAINER_OF(watch, struct user, watch)->attached &= ~(1ull << arena_idx);
}

static void user_ended(struct region_watch *watch)
{
	(void)watch;
}

static void *core_main(void *arg)
{
	reactor_run(arg);
	return NULL;
}

static int server_open(void **state)
{
	const struct region_opts opts = {.name = "test",
		.bytes = BASE,
		.bytes_max = BASE + STEPS * STEP,
		.extension_bytes = STEP,
		.core_count = CORES,
		.ring_entries = 64};

	(void)state;
	sysfs_make(state);
	config_defaults(&config);
	config.memory.bytes = BASE;
	config.memory.adapt = false;
	draining = false;
	usage = (struct store_usage){0};
	assert_int_equal(region_open(&opts, &region), 0);
	memory_init(&memory,
		&(struct memory_opts){
			.config = &config, .region = region, .draining = &draining, .root = sysfs});
	for (uint32_t i = 0; i < CORES; i++) {
		const struct reactor_opts reactor_opts = {.core_idx = i, .cpu = -1};

		assert_int_equal(reactor_open(&reactor_opts, &reactors[i]), 0);
		assert_int_equal(flow_core_open(reactors[i], region, &flows[i]), 0);
		memory_core_add(&memory, &flows[i]);
		for (uint32_t u = 0; u < 2; u++) {
			users[i][u] = (struct user){.watch = {.attach = user_attach,
							    .detach = user_detach,
							    .ended = user_ended}};
			region_watch_add(flows[i].ring, &users[i][u].watch);
		}
	}
	assert_int_equal(memory_start(&memory), 0);
	for (uint32_t i = 0; i < CORES; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, core_main, reactors[i]), 0);
	return 0;
}

/* ---- Runs a part of a test in a fiber of the first core. ---- */

struct part {
	struct reactor_msg msg;
	void (*fn)(void);
	sem_t done;
};

static void part_main(void *arg)
{
	struct part *part = arg;

	part->fn();
	sem_post(&part->done);
}

static void part_arrive(struct reactor_msg *msg)
{
	int ret = fiber_spawn(reactors[0], "part", part_main, CONTAINER_OF(msg, struct part, msg));

	CHECK(ret == 0);
}

static void on_core(void (*fn)(void))
{
	struct part part = {.msg.fn = part_arrive, .fn = fn};

	sem_init(&part.done, 0, 0);
	reactor_post(reactors[0], &part.msg);
	while (sem_wait(&part.done))
		;
	sem_destroy(&part.done);
}

static void stop(void)
{
	memory_stop(&memory);
}

static int server_close(void **state)
{
	on_core(stop);
	for (uint32_t i = 0; i < CORES; i++) {
		reactor_stop(reactors[i]);
		pthread_join(threads[i], NULL);
	}
	for (uint32_t i = 0; i < CORES; i++)
		flow_core_close(&flows[i]);
	for (uint32_t i = 0; i < CORES; i++)
		reactor_close(reactors[i]);
	region_close(region);
	return sysfs_remove(state);
}

/* CHECK, because a fiber cannot leave by cmocka's longjmp. */
static uint64_t attached_by_all(void)
{
	uint64_t all = users[0][0].attached;

	for (uint32_t i = 0; i < CORES; i++)
		for (uint32_t u = 0; u < 2; u++)
			CHECK(users[i][u].attached == all);
	return all;
}

static uint64_t bytes_now(void)
{
	struct region_usage now;

	region_usage(region, &now);
	return now.frames_total * FRAME_BYTES;
}

/* ---- Tests. ---- */

static void grows_and_shrinks(void)
{
	char why[MEMORY_WHY_BYTES];

	for (uint32_t round = 0; round < 5; round++) {
		CHECK(memory_grow(&memory, 1, why) == 0);
		CHECK(attached_by_all() == 2);
		CHECK(bytes_now() == BASE + STEP);
		CHECK(cache_bytes_max == BASE / 2 + STEP / 2);
		CHECK(memory_grow(&memory, 2 * STEP, why) == 0);
		CHECK(attached_by_all() == 14);
		CHECK(bytes_now() == BASE + STEPS * STEP);
		CHECK(memory_grow(&memory, 0, why) == -ENOSPC);
		CHECK(strstr(why, "memory.bytes_max"));
		CHECK(memory_shrink(&memory, STEPS * STEP, why) == 0);
		CHECK(attached_by_all() == 0);
		CHECK(bytes_now() == BASE);
		CHECK(cache_bytes_max == BASE / 2);
		CHECK(memory_shrink(&memory, 0, why) == -ENOSPC);
	}
}

static void test_grows_and_shrinks(void **state)
{
	(void)state;
	on_core(grows_and_shrinks);
}

/* Each registration of each core refuses in turn: nothing of the extension stays. */
static void refusals(void)
{
	char why[MEMORY_WHY_BYTES];

	for (uint32_t i = 0; i < CORES; i++) {
		for (uint32_t u = 0; u < 2; u++) {
			users[i][u].refusal = -ENOMEM;
			CHECK(memory_grow(&memory, 0, why) == -ENOMEM);
			CHECK(strstr(why, "locked memory"));
			CHECK(attached_by_all() == 0);
			CHECK(bytes_now() == BASE);
			CHECK(region_extension_state(region, 1) == ARENA_PARKED);
		}
	}
	CHECK(memory_grow(&memory, 0, why) == 0);
	CHECK(attached_by_all() == 2);
	CHECK(memory_shrink(&memory, 0, why) == 0);
}

static void test_refusals_are_undone(void **state)
{
	(void)state;
	on_core(refusals);
}

/* The cache's chunks go at once; a lease keeps the extension, and every registration of it. */
static struct region_span held;

static void leases_hold(void)
{
	char why[MEMORY_WHY_BYTES];
	struct buf told;

	CHECK(memory_grow(&memory, 0, why) == 0);
	for (cached_count = 0; cached_count < 10; cached_count++)
		CHECK(region_lease(region, 64, OWNER_CACHE, &cached[cached_count]) == 0);
	CHECK(region_lease(region, 16, OWNER_APP, &held) == 0);
	CHECK(!region_span_lasts(region, held));
	draining = true; /* it does not wait */
	CHECK(memory_shrink(&memory, 0, why) == -ENOBUFS);
	CHECK(strstr(why, "16 frames"));
	draining = false;
	CHECK(cached_count == 0);
	CHECK(attached_by_all() == 2);
	buf_init(&told, MIB);
	CHECK(memory_tell(&memory, S3_GET, SLICE("region"), &told) == 0);
	CHECK(memmem(told.data, told.len, "\"retired\",\"leased_bytes\":65536",
		strlen("\"retired\",\"leased_bytes\":65536")));
	buf_free(&told);
	/* Growing takes it back. */
	CHECK(memory_grow(&memory, 0, why) == 0);
	CHECK(bytes_now() == BASE + STEP);
	draining = true;
	CHECK(memory_shrink(&memory, 0, why) == -ENOBUFS);
	draining = false;
	memset(held.data, 1, region_span_bytes(held));
	region_give(region, held, OWNER_APP);
	/* The ticker finishes it. */
	while (region_extension_state(region, 1) != ARENA_PARKED)
		fiber_sleep_ns(NS_PER_MS);
	while (memory.changing)
		fiber_sleep_ns(NS_PER_MS);
	CHECK(attached_by_all() == 0);
	CHECK(bytes_now() == BASE);
}

static void test_leases_hold(void **state)
{
	(void)state;
	on_core(leases_hold);
}

static void tells(void)
{
	static const struct {
		enum s3_method method;
		const char *path;
		int ret;
	} CASES[] = {
		{S3_GET, "region", 0},
		{S3_GET, "region/grow", -ENOENT},
		{S3_POST, "region", -ENOENT},
		{S3_POST, "region/grown", -ENOENT},
		{S3_POST, "region/grow/", -ENOENT},
		{S3_POST, "region/grow/x", -ENOENT},
		{S3_POST, "region/grow/1/2", -ENOENT},
		{S3_POST, "region/grow/5000000", 0},
		{S3_POST, "region/shrink/8388608", 0},
		{S3_POST, "region/shrink", -EINVAL},
	};

	for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
		struct buf told;

		buf_init(&told, MIB);
		CHECK(memory_tell(&memory, CASES[i].method, slice_str(CASES[i].path), &told) ==
			CASES[i].ret);
		CHECK((told.len > 0) == (CASES[i].ret != -ENOENT));
		buf_free(&told);
	}
}

static void test_tells(void **state)
{
	(void)state;
	on_core(tells);
}

/* With a made-up /proc: pressure takes an extension away, and it is told in the state. */
static void under_pressure(void)
{
	char why[MEMORY_WHY_BYTES];

	sysfs_put("proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 900000 kB\n");
	CHECK(memory_grow(&memory, STEPS * STEP, why) == 0);
	sysfs_put("proc/pressure/memory", "some avg10=50.00 avg60=0.00 avg300=0.00 total=5\n");
	config.memory.adapt = true;
	while (bytes_now() != BASE + (STEPS - 1) * STEP)
		fiber_sleep_ns(NS_PER_MS);
	sysfs_put("proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n");
	config.memory.adapt = false;
	while (memory.changing)
		fiber_sleep_ns(NS_PER_MS);
	CHECK(memory_shrink(&memory, (STEPS - 1) * STEP, why) == 0);
}

static void test_under_pressure(void **state)
{
	(void)state;
	on_core(under_pressure);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_grows_and_shrinks, server_open, server_close),
		cmocka_unit_test_setup_teardown(
			test_refusals_are_undone, server_open, server_close),
		cmocka_unit_test_setup_teardown(test_leases_hold, server_open, server_close),
		cmocka_unit_test_setup_teardown(test_tells, server_open, server_close),
		cmocka_unit_test_setup_teardown(test_under_pressure, server_open, server_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
