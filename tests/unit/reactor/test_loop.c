/* tests/unit/reactor/test_loop.c: opening, stopping, sleeping: the loop as a whole. */
#include "rig.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

static int open_rc(struct reactor_opts opts)
{
	struct reactor *reactor = (struct reactor *)0x1;
	int rc = reactor_open(&opts, &reactor);

	if (rc == 0)
		reactor_close(reactor);
	else
		assert_ptr_equal(reactor, (struct reactor *)0x1);
	return rc;
}

static void test_open_refuses_what_is_out_of_bounds(void **state)
{
	(void)state;
	log_set_level(LOG_ERROR + 1);
	assert_int_equal(open_rc((struct reactor_opts){.cpu = -1}), 0);
	assert_int_equal(
		open_rc((struct reactor_opts){.cpu = -1, .fiber_stack_bytes = 1024}), -EINVAL);
	assert_int_equal(
		open_rc((struct reactor_opts){.cpu = -1, .fiber_stack_bytes = 9 * MIB}), -EINVAL);
	assert_int_equal(
		open_rc((struct reactor_opts){.cpu = -1, .fibers_max = LIMIT_FIBERS_MAX + 1}),
		-EINVAL);
	assert_int_equal(
		open_rc((struct reactor_opts){.cpu = -1, .uring_entries = 32769}), -EINVAL);
	assert_int_equal(open_rc((struct reactor_opts){.cpu = 1 << 20}), -EINVAL);
	reactor_close(NULL);
	log_set_level(LOG_INFO);
}

static void test_open_without_descriptors_fails_cleanly(void **state)
{
	struct rlimit before, none;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(open_rc((struct reactor_opts){.cpu = -1}), -EMFILE);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static void *run_thread(void *arg)
{
	reactor_run(arg);
	return NULL;
}

static atomic_bool up;

static void says_up(void *arg)
{
	(void)arg;
	assert_int_equal(reactor_core_idx(reactor_self()), 7);
	assert_false(reactor_stopping(reactor_self()));
	atomic_store(&up, true);
}

static struct fiber *waiter;

static void on_stop(struct reactor_msg *msg)
{
	(void)msg;
	note('s');
	fiber_wake(waiter);
}

static void waits_for_stop(void *arg)
{
	(void)arg;
	waiter = fiber_self();
	fiber_park();
	assert_true(reactor_stopping(reactor_self()));
	fiber_yield();
	note('e');
}

/* Opened and prepared on one thread, run on another, stopped from the first. */
static void test_stop_from_another_thread_waits_for_fibers(void **state)
{
	struct reactor_msg msg = {.fn = on_stop};
	pthread_t thread;

	(void)state;
	atomic_store(&up, false);
	rig_spawn(waits_for_stop, NULL);
	rig_spawn(says_up, NULL);
	assert_int_equal(pthread_create(&thread, NULL, run_thread, rig), 0);
	while (!atomic_load(&up))
		sched_yield();
	reactor_stop(rig);
	reactor_post(rig, &msg);
	pthread_join(thread, NULL);
	assert_string_equal(journal, "se");
	assert_true(reactor_stopping(rig));
}

static void stop_handler(int signal_number)
{
	(void)signal_number;
	if (rig_stats().sleeps > 0)
		reactor_stop(rig);
}

/* The signal arrives during the reactor's own sleep: no other thread stops it. The signal repeats
 * until the reactor has slept, however slow the machine is. */
static void test_stop_from_a_signal_handler(void **state)
{
	struct sigaction action = {.sa_handler = stop_handler};
	struct itimerspec each_5_ms = {
		.it_value.tv_nsec = 5 * NS_PER_MS, .it_interval.tv_nsec = 5 * NS_PER_MS};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	timer_t timer;

	(void)state;
	assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
	assert_int_equal(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
	assert_int_equal(timer_settime(timer, 0, &each_5_ms, NULL), 0);
	reactor_run(rig);
	timer_delete(timer);
	assert_true(rig_stats().sleeps > 0);
}

static uint64_t cpu_ns(void)
{
	struct rusage usage;

	assert_int_equal(getrusage(RUSAGE_THREAD, &usage), 0);
	return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * NS_PER_S +
	       (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * NS_PER_US;
}

static void sleeps(void *arg)
{
	fiber_sleep_ns(*(uint64_t *)arg);
}

/* Whether it takes less than a fifth of a processor. */
static bool idles(uint64_t sleep_ns)
{
	uint64_t sleeps_before = rig_stats().sleeps;
	uint64_t wall_ns = clock_now_ns();
	uint64_t used_ns = cpu_ns();

	rig_spawn(sleeps, &sleep_ns);
	rig_run();
	wall_ns = clock_now_ns() - wall_ns;
	used_ns = cpu_ns() - used_ns;
	assert_true(wall_ns >= sleep_ns);
	print_message("# idle for %.1f ms: %.2f %% of a processor, %u sleeps\n",
		(double)wall_ns / 1e6, 100.0 * (double)used_ns / (double)wall_ns,
		(unsigned)(rig_stats().sleeps - sleeps_before));
	/* One for each level of the wheel at most, plus the ring of reactor_stop. */
	assert_true(rig_stats().sleeps - sleeps_before <= 6);
	return used_ns * 5 < wall_ns;
}

/* A hypervisor that takes the processor away may count as its use. */
static void test_idle_costs_nothing(void **state)
{
	uint32_t tries = 1;

	(void)state;
	while (!idles(200 * NS_PER_MS))
		assert_true(tries++ < 3);
}

static void test_turn_wait_keeps_its_deadline(void **state)
{
	uint64_t deadline_ns;

	(void)state;
	/* Again, when it has passed before the turn sees it. */
	do {
		deadline_ns = clock_now_ns() + 5 * NS_PER_MS;
		assert_int_equal(reactor_turn_wait(rig, deadline_ns), 0);
		assert_true(clock_now_ns() >= deadline_ns);
		assert_true(reactor_now_ns(rig) >= deadline_ns);
	} while (!rig_stats().sleeps);
	assert_int_equal(rig_stats().sleeps, 1);
	/* A deadline in the past: acts like reactor_turn. */
	assert_int_equal(reactor_turn_wait(rig, 0), 0);
	assert_int_equal(rig_stats().sleeps, 1);
}

/* Within one turn the fine time goes on, at about the clock's speed: the counter's own is only
 * measured after a while. */
static void reads_the_time(void *arg)
{
	uint64_t turn_ns = reactor_now_ns(rig), begin_ns = clock_now_ns();
	uint64_t fine_ns = reactor_fine_ns(rig), inside_ns = clock_now_ns(), last_ns = fine_ns;

	assert_true(fine_ns >= turn_ns);
	while (clock_now_ns() < inside_ns + 5 * NS_PER_MS) {
		uint64_t next_ns = reactor_fine_ns(rig);

		assert_true(next_ns >= last_ns);
		last_ns = next_ns;
	}
	inside_ns = clock_now_ns() - inside_ns;
	last_ns = reactor_fine_ns(rig) - fine_ns;
	assert_true(last_ns > inside_ns / 100);
	assert_true(last_ns / 100 < clock_now_ns() - begin_ns);
	assert_int_equal(reactor_now_ns(rig), turn_ns);
	*(bool *)arg = true;
}

static void test_fine_time_goes_on_within_a_turn(void **state)
{
	bool read = false;

	(void)state;
	rig_spawn(reads_the_time, &read);
	rig_run();
	assert_true(read);
}

/* A fiber of one reactor drives another: each keeps its own self. */
static void drives_another(void *arg)
{
	struct reactor *outer = reactor_self();
	struct fiber *self = fiber_self();
	struct reactor *inner = arg;

	assert_int_equal(fiber_spawn(inner, "inner", says_up, NULL), 0);
	assert_int_equal(reactor_turn(inner), 1);
	assert_ptr_equal(reactor_self(), outer);
	assert_ptr_equal(fiber_self(), self);
	note('d');
}

static void spin(void *arg)
{
	uint64_t until_ns = clock_now_ns() + 2 * REACTOR_TURN_LONG_NS;

	(void)arg;
	while (clock_now_ns() < until_ns)
		clock_relax();
}

static void test_long_turns_are_counted(void **state)
{
	const struct reactor_opts opts = {.cpu = -1};
	struct reactor_stats before, after;
	struct reactor *reactor;

	(void)state;
	assert_int_equal(reactor_open(&opts, &reactor), 0);
	reactor_stats(reactor, &before);
	assert_int_equal(before.long_turns, 0);
	assert_int_equal(fiber_spawn(reactor, "spin", spin, NULL), 0);
	reactor_stop(reactor);
	reactor_run(reactor);
	reactor_stats(reactor, &after);
	assert_in_range(after.long_turns, 1, after.busy_turns);
	reactor_close(reactor);
}

static void test_turns_nest(void **state)
{
	struct reactor_opts opts = {.core_idx = 7, .cpu = -1};
	struct reactor *inner;

	(void)state;
	assert_int_equal(reactor_open(&opts, &inner), 0);
	rig_spawn(drives_another, inner);
	rig_run();
	assert_string_equal(journal, "d");
	reactor_close(inner);
}

static _Atomic int running, running_max;

static void blocks(void *arg)
{
	int now = atomic_fetch_add(&running, 1) + 1;
	int most = atomic_load(&running_max);

	assert_null(reactor_self());
	while (now > most && !atomic_compare_exchange_weak(&running_max, &most, now))
		;
	for (int i = 0; i < 100; i++)
		sched_yield();
	atomic_fetch_sub(&running, 1);
	++*(uint32_t *)arg;
}

static void offloads(void *arg)
{
	uint32_t count = 0;

	(void)arg;
	for (uint32_t i = 1; i <= 20; i++) {
		fiber_offload(blocks, &count);
		assert_int_equal(count, i);
	}
	note('o');
}

static void test_offload_runs_elsewhere_and_is_bounded(void **state)
{
	(void)state;
	for (int i = 0; i < 50; i++)
		rig_spawn(offloads, NULL);
	rig_run();
	assert_int_equal(strlen(journal), 50);
	assert_int_equal(atomic_load(&running), 0);
	assert_in_range(atomic_load(&running_max), 1, 12);
}

static atomic_bool heard;

static void hears(struct reactor_msg *msg)
{
	(void)msg;
	atomic_store(&heard, true);
}

/* Waits until a message has ended a sleep of the reactor; the reactor itself would sleep for
 * minutes. */
static void awaits_sleep(void *arg)
{
	uint64_t deadline_ns = clock_now_ns() + RIG_ALARM_S / 4 * NS_PER_S;
	struct reactor_msg msg = {.fn = hears};

	atomic_store(&heard, true);
	do {
		if (atomic_exchange(&heard, false))
			reactor_post(rig, &msg);
	} while (!rig_stats().sleeps && clock_rest(deadline_ns));
	*(uint64_t *)arg = rig_stats().sleeps;
	while (!atomic_load(&heard) && clock_rest(deadline_ns))
		;
}

static void offloads_to_the_only_cpu(void *arg)
{
	fiber_offload(awaits_sleep, arg);
}

static void test_no_spinning_in_a_helpers_way(void **state)
{
	cpu_set_t before, one;
	uint64_t sleeps = 0;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	rig_open_with((struct reactor_opts){.idle_spin_ns = 300 * NS_PER_S});
	rig_spawn(offloads_to_the_only_cpu, &sleeps);
	rig_run();
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
	assert_true(sleeps > 0);
}

/* ---- Spinning that follows the waits. ---- */

static void waits_long(void *arg)
{
	const uint32_t *count = arg;

	for (uint32_t i = 0; i < *count; i++)
		fiber_sleep_ns(NS_PER_MS);
}

static void waits_long_until_it_follows(void *arg)
{
	uint64_t preset_ns = rig_stats().idle_spin_ns;

	(void)arg;
	while (rig_stats().idle_spin_ns == preset_ns)
		fiber_sleep_ns(10 * NS_PER_MS);
}

static void test_spinning_follows_the_waits(void **state)
{
	(void)state;
	rig_open_with((struct reactor_opts){.idle_spin_follows = true});
	assert_int_equal(rig_stats().idle_spin_ns, 50 * NS_PER_US);
	rig_spawn(waits_long_until_it_follows, NULL);
	rig_run();
	assert_int_equal(rig_stats().idle_spin_ns, 0);
	assert_int_equal(rig_stats().spin_changes + rig_stats().spin_crowded, 1);
}

static void test_spinning_stays(void **state)
{
	uint32_t count = 200;

	(void)state;
	rig_open_with((struct reactor_opts){.idle_spin_ns = 70 * NS_PER_US});
	rig_spawn(waits_long, &count);
	rig_run();
	assert_int_equal(rig_stats().idle_spin_ns, 70 * NS_PER_US);
	assert_int_equal(rig_stats().spin_changes + rig_stats().spin_crowded, 0);
}

/* Time passes between the turns of a spinning loop, as if others had the processor. */
static uint32_t loses_time(void *arg)
{
	uint64_t until_ns = clock_now_ns() + NS_PER_MS;

	(void)arg;
	while (clock_now_ns() < until_ns)
		;
	return 0;
}

static bool arms(void *arg)
{
	(void)arg;
	return true;
}

static void disarms(void *arg)
{
	(void)arg;
}

/* Whether the loop found itself crowded before it followed its waits. */
static bool crowds(void)
{
	struct reactor_poller poller = {.name = "thief",
		.poll = loses_time,
		.arm = arms,
		.disarm = disarms,
		.event_fd = eventfd(0, EFD_CLOEXEC)};

	rig_open_with((struct reactor_opts){.idle_spin_ns = NS_PER_S, .idle_spin_follows = true});
	reactor_poller_add(rig, &poller);
	rig_spawn(waits_long_until_it_follows, NULL);
	rig_run();
	reactor_poller_remove(rig, &poller);
	close(poller.event_fd);
	assert_int_equal(rig_stats().spin_crowded + rig_stats().spin_changes, 1);
	return rig_stats().spin_crowded;
}

/* A loop that is stopped while it works did not lose that time by spinning. */
static void test_a_crowded_loop_does_not_yield(void **state)
{
	uint32_t tries = 1;

	(void)state;
	while (!crowds()) {
		assert_true(tries++ < 10);
		reactor_close(rig);
	}
	assert_true(rig_stats().idle_spin_ns < CLOCK_YIELD_NS);
}

static pthread_t offloaded_on;

static void notes_thread(void *arg)
{
	offloaded_on = pthread_self();
	++*(uint32_t *)arg;
}

static void offloads_once(void *arg)
{
	fiber_offload(notes_thread, arg);
}

static void offload_without_threads(void)
{
	uint32_t count = 0;

	close(STDERR_FILENO); /* it logs the failure */
	rig_forbid(__NR_clone3, -1, 0, EAGAIN);
	rig_forbid(__NR_clone, -1, 0, EAGAIN);
	rig_open_with((struct reactor_opts){0});
	rig_spawn(offloads_once, &count);
	rig_run();
	reactor_close(rig);
	_exit(count == 1 && pthread_equal(offloaded_on, pthread_self()) ? 42 : 1);
}

/* More long calls than helpers for them; none of them ends before a short call has ended. */
#define LONG_CALLS 40u

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool short_done;
	uint32_t long_done;
} calls = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void long_call(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&calls.lock);
	while (!calls.short_done)
		pthread_cond_wait(&calls.changed, &calls.lock);
	calls.long_done++;
	pthread_mutex_unlock(&calls.lock);
}

static void short_call(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&calls.lock);
	calls.short_done = true;
	pthread_cond_broadcast(&calls.changed);
	pthread_mutex_unlock(&calls.lock);
}

static void long_fiber(void *arg)
{
	fiber_offload_long(long_call, arg);
}

static void short_fiber(void *arg)
{
	fiber_offload(short_call, arg);
}

static void test_long_calls_leave_helpers_for_short_ones(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < LONG_CALLS; i++)
		rig_spawn(long_fiber, NULL);
	rig_spawn(short_fiber, NULL);
	rig_run();
	assert_int_equal(calls.long_done, LONG_CALLS);
}

/* Before any other offload: a child has the parent's count of helpers, but not its helpers. */
static void test_offload_without_helpers_still_runs(void **state)
{
	int status = rig_in_child(offload_without_threads);

	(void)state;
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 42);
}

static void test_measure_empty_turns(void **state)
{
	uint64_t begin_ns;

	(void)state;
	while (reactor_turn(rig))
		;
	begin_ns = clock_now_ns();
	for (uint32_t i = 0; i < REACTOR_TEST_ROUNDS; i++)
		assert_int_equal(reactor_turn(rig), 0);
	print_message("# %.1f ns per empty turn\n",
		(double)(clock_now_ns() - begin_ns) / REACTOR_TEST_ROUNDS);
	assert_int_equal(rig_stats().uring_submits, 1); /* the watch on the mailbox */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open_refuses_what_is_out_of_bounds),
		cmocka_unit_test(test_open_without_descriptors_fails_cleanly),
		RIG_TEST(test_stop_from_another_thread_waits_for_fibers),
		RIG_TEST(test_stop_from_a_signal_handler),
		RIG_TEST(test_idle_costs_nothing),
		RIG_TEST(test_turn_wait_keeps_its_deadline),
		RIG_TEST(test_fine_time_goes_on_within_a_turn),
		RIG_TEST(test_long_turns_are_counted),
		RIG_TEST(test_turns_nest),
		RIG_TEST(test_offload_without_helpers_still_runs),
		RIG_TEST(test_offload_runs_elsewhere_and_is_bounded),
		RIG_TEST(test_long_calls_leave_helpers_for_short_ones),
		cmocka_unit_test_teardown(test_no_spinning_in_a_helpers_way, rig_teardown),
		cmocka_unit_test_teardown(test_spinning_follows_the_waits, rig_teardown),
		cmocka_unit_test_teardown(test_spinning_stays, rig_teardown),
		cmocka_unit_test_teardown(test_a_crowded_loop_does_not_yield, rig_teardown),
		RIG_TEST(test_measure_empty_turns),
	};

	return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
