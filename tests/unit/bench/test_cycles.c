/* tests/unit/bench/test_cycles.c: counters of a process's threads, with an event of the kernel's
 * own software in place of the processor's, which not every machine has. */
#include "../unit.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "bench/cycles.h"

#define NO_SUCH_TYPE 0x7fffffffu
#define WORK_NS	     (20 * NS_PER_MS)
/* Time that the host takes from a virtual machine counts as work, so what is not to be counted is
 * much more. */
#define OTHER_NS (10 * WORK_NS)
/* The event's clock and the thread's differ by what it takes to change from one thread to another.
 */
#define LEAST_NS (WORK_NS / 2)

/* Nanoseconds on a processor, in the places of cycles and of instructions. */
static const struct bench_event TIMES[BENCH_COUNTED] = {
	{PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK},
	{PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK},
};

static struct bench_counter counter;

/* In a container the system call may be forbidden. */
static void need_counters(void)
{
	int ret = bench_counter_try(0, TIMES);

	if (ret == -EACCES || ret == -EPERM || ret == -ENOSYS)
		skip();
	assert_int_equal(ret, 0);
}

static uint64_t thread_cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void work_for(uint64_t ns)
{
	uint64_t end_ns = thread_cpu_ns() + ns;

	while (thread_cpu_ns() < end_ns)
		;
}

static void *work(void *arg)
{
	work_for(WORK_NS);
	return arg;
}

static void test_extended_to_the_whole_time(void **state)
{
	double sum = 7;

	(void)state;
	assert_true(bench_counter_extend(1000, 50, 50, &sum));
	assert_true(sum == 1000);
	assert_true(bench_counter_extend(1000, 100, 25, &sum));
	assert_true(sum == 4000);
	assert_true(bench_counter_extend(0, 0, 0, &sum)); /* a thread that did not run */
	assert_true(sum == 0);
	sum = 7;
	assert_false(bench_counter_extend(0, 100, 0, &sum)); /* it never had a counter */
	assert_true(sum == 7);
}

static void test_all_threads_of_a_process(void **state)
{
	struct bench_cycles cycles = {0};
	pthread_t thread;

	(void)state;
	need_counters();
	bench_counter_add(&counter, 0, TIMES);
	assert_int_equal(counter.error, 0);
	work_for(OTHER_NS); /* before it counts */
	bench_counter_start(&counter);
	work(NULL);
	/* It is started after the counter. */
	assert_int_equal(pthread_create(&thread, NULL, work, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	bench_counter_stop(&counter);
	work_for(OTHER_NS);
	bench_counter_end(&counter, 10, &cycles);
	assert_int_equal(cycles.ops, 10);
	assert_true(cycles.sums[BENCH_CYCLES] >= WORK_NS + LEAST_NS);
	assert_true(cycles.sums[BENCH_INSTRUCTIONS] >= WORK_NS + LEAST_NS);
	assert_true(cycles.sums[BENCH_CYCLES] < OTHER_NS);
	assert_int_equal(counter.count, 0);
}

/* Waits for its parent's word, works, and reports. */
static pid_t start_worker(int to[2], int from[2])
{
	char byte = 0;
	pid_t pid;

	assert_int_equal(pipe(to), 0);
	assert_int_equal(pipe(from), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (read(to[0], &byte, 1) == 1)
		work(NULL);
	if (write(from[1], &byte, 1) != 1 || read(to[0], &byte, 1) != 1)
		_exit(1);
	_exit(0);
}

static void test_another_process_and_twice(void **state)
{
	struct bench_cycles cycles = {0}, before;
	int to[2], from[2], status;
	char byte = 0;
	pid_t pid;

	(void)state;
	need_counters();
	pid = start_worker(to, from);
	bench_counter_add(&counter, pid, TIMES);
	assert_int_equal(counter.error, 0);
	assert_int_equal(counter.count, 1);
	bench_counter_start(&counter);
	assert_int_equal(write(to[1], &byte, 1), 1);
	assert_int_equal(read(from[0], &byte, 1), 1);
	bench_counter_end(&counter, 10, &cycles);
	assert_int_equal(cycles.ops, 10);
	assert_true(cycles.sums[BENCH_CYCLES] >= LEAST_NS);
	/* A second slice adds to the first. */
	before = cycles;
	bench_counter_add(&counter, 0, TIMES);
	bench_counter_start(&counter);
	work(NULL);
	bench_counter_end(&counter, 10, &cycles);
	assert_int_equal(cycles.ops, 20);
	assert_true(cycles.sums[BENCH_CYCLES] >= before.sums[BENCH_CYCLES] + LEAST_NS);
	assert_int_equal(write(to[1], &byte, 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	/* It has ended: its folder is gone. */
	bench_counter_add(&counter, pid, TIMES);
	assert_int_equal(counter.error, -ESRCH);
	bench_counter_end(&counter, 10, &cycles);
	assert_int_equal(cycles.ops, 20);
	for (int i = 0; i < 2; i++) {
		close(to[i]);
		close(from[i]);
	}
}

static void test_no_such_counter(void **state)
{
	const struct bench_event none[BENCH_COUNTED] = {TIMES[0], {NO_SUCH_TYPE, 0}};
	struct bench_cycles cycles = {0};

	(void)state;
	need_counters();
	assert_int_equal(bench_counter_try(0, none), -ENOENT);
	assert_non_null(strstr(bench_counter_why(-ENOENT), "no such counter"));
	assert_non_null(strstr(bench_counter_why(-EACCES), "perf_event_paranoid"));
	/* One process that is not counted makes the sum unknown. */
	bench_counter_add(&counter, 0, TIMES);
	bench_counter_add(&counter, 0, none);
	bench_counter_add(&counter, 0, TIMES);
	assert_int_equal(counter.error, -ENOENT);
	bench_counter_end(&counter, 10, &cycles);
	assert_int_equal(cycles.ops, 0);
	assert_true(cycles.sums[BENCH_CYCLES] == 0);
	assert_int_equal(counter.error, 0);
}

/* The test holds it until the threads may end. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void *idle(void *arg)
{
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
	return arg;
}

static void test_too_many_threads(void **state)
{
	static pthread_t threads[BENCH_COUNTER_THREADS_MAX];
	struct bench_cycles cycles = {0};

	(void)state;
	need_counters();
	pthread_mutex_lock(&gate);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, idle, NULL), 0);
	bench_counter_add(&counter, 0, TIMES);
	assert_int_equal(counter.error, -E2BIG);
	bench_counter_end(&counter, 10, &cycles);
	assert_int_equal(cycles.ops, 0);
	assert_true(cycles.sums[BENCH_CYCLES] == 0);
	pthread_mutex_unlock(&gate);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_extended_to_the_whole_time),
		cmocka_unit_test(test_all_threads_of_a_process),
		cmocka_unit_test(test_another_process_and_twice),
		cmocka_unit_test(test_no_such_counter),
		cmocka_unit_test(test_too_many_threads),
	};

	return cmocka_run_group_tests_name("cycles", tests, NULL, NULL);
}
