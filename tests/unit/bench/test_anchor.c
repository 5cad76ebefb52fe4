/* tests/unit/bench/test_anchor.c: where the raw log is written. */
#include "../unit.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "bench/anchor.h"

#define BUDGET_NS  (5 * NS_PER_MS)
#define ROUNDS_MAX 1000u

struct watch {
	pid_t thread;
	int cpu;
	_Atomic bool seen, ended;
};

static bool runs_only_on(pid_t thread, int cpu)
{
	cpu_set_t set;

	return !sched_getaffinity(thread, sizeof(set), &set) && CPU_COUNT(&set) == 1 &&
	       CPU_ISSET(cpu, &set);
}

static void *watch_main(void *arg)
{
	struct watch *watch = arg;

	while (!atomic_load(&watch->seen) && !atomic_load(&watch->ended))
		if (runs_only_on(watch->thread, watch->cpu))
			atomic_store(&watch->seen, true);
	return NULL;
}

/* The anchors of a folder of their own, which leaves with anchors_end. */
static struct bench_anchors *anchors_begin(const struct bench_cpus *cpus, char *folder)
{
	struct bench_anchors *anchors;

	assert_non_null(mkdtemp(folder));
	assert_int_equal(bench_anchors_open(folder, cpus, &anchors), 0);
	return anchors;
}

static void anchors_end(struct bench_anchors *anchors, const char *folder)
{
	bench_anchors_close(anchors);
	assert_int_equal(rmdir(folder), 0);
}

/* The server's processor takes the disk's interrupts, or it does not: so does the raw log's. */
static void test_the_raw_log_is_written_where_the_server_runs(void **state)
{
	struct watch watch = {.thread = gettid()};
	char folder[] = "nebulaio-anchor-XXXXXX";
	struct bench_anchors *anchors;
	struct bench_cpus cpus;
	pthread_t thread;
	double ns = 0;

	(void)state;
	assert_int_equal(bench_cpus_find(&cpus), 0);
	if (cpus.server == cpus.client)
		skip();
	anchors = anchors_begin(&cpus, folder);
	watch.cpu = cpus.server;
	assert_int_equal(pthread_create(&thread, NULL, watch_main, &watch), 0);
	assert_int_equal(bench_cpu_pin(cpus.client), 0);
	for (uint32_t i = 0; i < ROUNDS_MAX && !atomic_load(&watch.seen); i++)
		assert_int_equal(bench_anchor_log(anchors, 1, BUDGET_NS, &ns), 0);
	atomic_store(&watch.ended, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	anchors_end(anchors, folder);
	assert_true(atomic_load(&watch.seen));
	assert_true(ns > 0);
	assert_true(runs_only_on(watch.thread, cpus.client));
}

static void test_a_raw_log_of_too_many_blocks_is_refused(void **state)
{
	char folder[] = "nebulaio-anchor-XXXXXX";
	struct bench_anchors *anchors;
	struct bench_cpus cpus;
	double ns;

	(void)state;
	assert_int_equal(bench_cpus_find(&cpus), 0);
	anchors = anchors_begin(&cpus, folder);
	assert_int_equal(bench_anchor_log(anchors, 0, BUDGET_NS, &ns), -EINVAL);
	assert_int_equal(
		bench_anchor_log(anchors, BENCH_LOG_BLOCKS_MAX + 1, BUDGET_NS, &ns), -EINVAL);
	anchors_end(anchors, folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_raw_log_is_written_where_the_server_runs),
		cmocka_unit_test(test_a_raw_log_of_too_many_blocks_is_refused),
	};

	return cmocka_run_group_tests_name("anchor", tests, NULL, NULL);
}
