/* base/counter.c: counters that threads add to with and without a shard. */
#include "../unit.h"

#include <pthread.h>

#include "base/base.h"

#define ADDS 100000u

DEFINE_COUNTER(things, "test_things_total", NULL, "Counted by every thread.");
DEFINE_COUNTER(present, "test_things", NULL, "Goes up and down.");

static void *add_by_shard(void *arg)
{
	(void)arg;
	counter_shard_open();
	for (uint32_t i = 0; i < ADDS; i++)
		counter_add(&things, 1);
	counter_shard_close();
	return NULL;
}

static void *add_without(void *arg)
{
	(void)arg;
	for (uint32_t i = 0; i < ADDS; i++)
		counter_add(&things, 1);
	return NULL;
}

static void test_every_thread_counts(void **state)
{
	uint64_t before = counter_read(&things);
	pthread_t threads[4];

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(threads); i++)
		assert_int_equal(
			pthread_create(&threads[i], NULL, i % 2 ? add_by_shard : add_without, NULL),
			0);
	for (uint32_t i = 0; i < ARRAY_LEN(threads); i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(counter_read(&things) - before, ARRAY_LEN(threads) * ADDS);
}

static void test_read_while_a_lane_is_open(void **state)
{
	uint64_t before = counter_read(&things);

	(void)state;
	counter_shard_open();
	counter_add(&things, 3);
	assert_int_equal(counter_read(&things) - before, 3);
	counter_add(&things, 4);
	assert_int_equal(counter_read(&things) - before, 7);
	counter_shard_close();
	assert_int_equal(counter_read(&things) - before, 7);
	counter_shard_close(); /* no shard is open: no effect */
	assert_int_equal(counter_read(&things) - before, 7);
}

/* One thread adds and another subtracts the same: the shard's value wraps, and the sum is right. */
static void test_down_on_a_lane(void **state)
{
	(void)state;
	counter_add(&present, 5);
	counter_shard_open();
	counter_sub(&present, 2);
	assert_int_equal(counter_read(&present), 3);
	counter_shard_close();
	assert_int_equal(counter_read(&present), 3);
	counter_sub(&present, 3);
	assert_int_equal(counter_read(&present), 0);
}

/* A counter registered after the shard was opened also counts. */
static void test_late_counter(void **state)
{
	static struct counter late = {.name = "test_late_total", .help = "Registered late."};

	(void)state;
	counter_shard_open();
	counter_register(&late);
	counter_add(&late, 2);
	assert_int_equal(counter_read(&late), 2);
	counter_shard_close();
	assert_int_equal(counter_read(&late), 2);
}

static struct counter_hist durations = {.name = "test_duration_seconds", .help = "Of the test."};

static void test_durations_fall_into_buckets(void **state)
{
	uint64_t values[COUNTER_HIST_PLACES], sum = 0;

	(void)state;
	counter_hist_register(&durations);
	counter_hist_add(&durations, 0);
	counter_shard_open();
	/* A bound belongs to its own bucket, a value longer by one to the next. */
	for (uint32_t i = 0; i < COUNTER_HIST_BUCKETS - 1; i++) {
		counter_hist_add(&durations, counter_hist_bounds_ns[i]);
		counter_hist_add(&durations, counter_hist_bounds_ns[i] + 1);
		sum += 2 * counter_hist_bounds_ns[i] + 1;
		if (i)
			assert_true(counter_hist_bounds_ns[i] > counter_hist_bounds_ns[i - 1]);
	}
	for (uint32_t closed = 0; closed < 2; closed++) {
		counter_hist_read(&durations, values);
		assert_int_equal(values[0], 2);
		for (uint32_t i = 1; i < COUNTER_HIST_BUCKETS - 1; i++)
			assert_int_equal(values[i], 2);
		assert_int_equal(values[COUNTER_HIST_BUCKETS - 1], 1);
		assert_int_equal(values[COUNTER_HIST_SUM], sum);
		counter_shard_close();
	}
}

static void *add_durations(void *arg)
{
	(void)arg;
	counter_shard_open();
	for (uint32_t i = 0; i < ADDS; i++)
		counter_hist_add(&durations, 30000);
	counter_shard_close();
	return NULL;
}

/* Shards need no lock between them, and no addition is lost. */
static void test_every_thread_adds_durations(void **state)
{
	uint64_t before[COUNTER_HIST_PLACES], after[COUNTER_HIST_PLACES];
	pthread_t threads[4];

	(void)state;
	counter_hist_read(&durations, before);
	for (uint32_t i = 0; i < ARRAY_LEN(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, add_durations, NULL), 0);
	for (uint32_t i = 0; i < ARRAY_LEN(threads); i++)
		pthread_join(threads[i], NULL);
	counter_hist_read(&durations, after);
	assert_int_equal(after[2] - before[2], ARRAY_LEN(threads) * ADDS);
	assert_int_equal(after[COUNTER_HIST_SUM] - before[COUNTER_HIST_SUM],
		ARRAY_LEN(threads) * ADDS * 30000ull);
}

static void count_seen(const struct counter *counter, void *arg)
{
	if (counter == &things || counter == &present)
		(*(uint32_t *)arg)++;
}

static void test_visit(void **state)
{
	uint32_t seen = 0;

	(void)state;
	counter_visit(count_seen, &seen);
	assert_int_equal(seen, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_thread_counts),
		cmocka_unit_test(test_read_while_a_lane_is_open),
		cmocka_unit_test(test_down_on_a_lane),
		cmocka_unit_test(test_late_counter),
		cmocka_unit_test(test_durations_fall_into_buckets),
		cmocka_unit_test(test_every_thread_adds_durations),
		cmocka_unit_test(test_visit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
