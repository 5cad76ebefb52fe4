/* tests/unit/store/test_scrub.c: covers the schedule of store/check/scrub.c: the interval counts on
 * through restarts (the data folder's file "scrubbed" has the time from which it counts), and the
 * rate holds for all that a run reads. */
#include "memory_disk.h"
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "reactor/reactor.h"

#define HOUR_S	    3600
#define INTERVAL_NS (HOUR_S * NS_PER_S)

static void scrub_fiber(void *arg)
{
	static const struct store_scrub_opts OPTS = {
		.interval_ns = INTERVAL_NS, .bytes_per_s = 1024 * MIB};

	store_scrub_run(((struct rig *)arg)->store, &OPTS);
}

static void since_path(const struct rig *rig, char path[600])
{
	snprintf(path, 600, "%s/scrubbed", rig->dir);
}

/* 0: there is no time. */
static time_t since(const struct rig *rig)
{
	char path[600];
	struct stat info;

	since_path(rig, path);
	return stat(path, &info) ? 0 : info.st_mtim.tv_sec;
}

static void since_set(const struct rig *rig, time_t at)
{
	const struct timespec times[] = {{.tv_sec = at}, {.tv_sec = at}};
	char path[600];

	since_path(rig, path);
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static time_t now(void)
{
	return (time_t)(clock_real_ns() / NS_PER_S);
}

/* How many scrubs come to their end until the time of the file is between the two. */
static uint64_t runs_until(struct rig *rig, time_t from, time_t to)
{
	struct store_scrub before, after;

	store_scrub_status(rig->store, &before);
	assert_int_equal(fiber_spawn(reactor_self(), "scrub", scrub_fiber, rig), 0);
	do {
		fiber_sleep_ns(NS_PER_MS);
	} while (since(rig) < from || since(rig) > to);
	store_scrub_status(rig->store, &after);
	return after.runs - before.runs;
}

static void first_start(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(bucket_make(rig->store, "plain"), 0);
	assert_int_equal(object_put_seeded(rig, "plain", SLICE("k"), 300001, 1, NULL), 0);
	assert_int_equal(since(rig), 0);
	assert_int_equal(runs_until(rig, 1, now() + HOUR_S), 0);
}

static void start_when_due(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(runs_until(rig, now() - HOUR_S, now() + HOUR_S), 1);
}

static void start_after_a_wrong_clock(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(runs_until(rig, 1, now() + HOUR_S), 0);
}

static void asked(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(store_scrub_ask(rig->store), 0);
	assert_int_equal(runs_until(rig, now() - HOUR_S / 4, now() + HOUR_S), 1);
}

static void run(struct rig *rig, rig_fn *fn)
{
	rig_run(rig, fn, NULL);
	assert_int_equal(rig->open_result, 0);
}

static void test_the_interval_counts_on_through_restarts(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	run(&rig, first_start);
	since_set(&rig, now() - 2 * HOUR_S);
	run(&rig, start_when_due);
	since_set(&rig, now() + 48 * HOUR_S);
	run(&rig, start_after_a_wrong_clock);
	since_set(&rig, now() - HOUR_S / 2);
	run(&rig, asked);
	rig_dir_remove(&rig);
}

/* ---- The rate. ---- */

#define RATED_BYTES (8 * MIB)
#define RATE	    (32 * MIB)

static void rated_scrub_fiber(void *arg)
{
	static const struct store_scrub_opts OPTS = {.bytes_per_s = RATE};

	store_scrub_run(((struct rig *)arg)->store, &OPTS);
}

/* The data once against its checksums, and once more with its parity, which is half as much. */
static void rated_run(struct rig *rig, void *arg)
{
	const uint64_t read_bytes = RATED_BYTES + RATED_BYTES + RATED_BYTES / 2;
	struct store_scrub before, after;
	uint64_t begin_ns;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("k"), RATED_BYTES, 1, NULL), 0);
	rig_index_wait(rig); /* of which a scrub takes the bodies */
	store_scrub_status(rig->store, &before);
	begin_ns = clock_now_ns();
	assert_int_equal(fiber_spawn(reactor_self(), "scrub", rated_scrub_fiber, rig), 0);
	assert_int_equal(store_scrub_ask(rig->store), 0);
	do {
		fiber_sleep_ns(NS_PER_MS);
		store_scrub_status(rig->store, &after);
	} while (after.running);
	assert_true(clock_now_ns() - begin_ns >= read_bytes * NS_PER_S / RATE);
	assert_int_equal(after.runs - before.runs, 1);
	assert_int_equal(after.damaged - before.damaged, 0);
	assert_int_equal(after.parity_mended - before.parity_mended, 0);
	assert_true(after.done_bytes >= RATED_BYTES && after.done_bytes < 2 * RATED_BYTES);
}

static void test_the_rate_holds_for_parity(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.volume = "memory://0,memory://1,memory://2";
	rig.opts.erasure_data = 2;
	rig.opts.erasure_parity = 1;
	memory_disks_open();
	rig_run(&rig, rated_run, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_interval_counts_on_through_restarts),
		cmocka_unit_test(test_the_rate_holds_for_parity),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
