/* tests/unit/reactor/test_mailbox.c: messages and wakes from other threads: all arrive, in order,
 * and none is lost while the reactor goes to sleep. */
#include "rig.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#define PRODUCERS 4u
#define MESSAGES  20000u
/* On a busy machine each step from one thread to another may take milliseconds: then fewer do. */
#define STEPS_NS (10 * NS_PER_S)

struct numbered {
	struct reactor_msg msg;
	uint32_t producer, number;
};

static struct fiber *sink;
static uint32_t arrived[PRODUCERS];
static uint32_t arrived_total;

static void arrive(struct reactor_msg *msg)
{
	struct numbered *numbered = CONTAINER_OF(msg, struct numbered, msg);

	assert_ptr_equal(reactor_self(), rig);
	assert_int_equal(numbered->number, arrived[numbered->producer]);
	arrived[numbered->producer]++;
	arrived_total++;
	free(numbered);
	if (arrived_total == PRODUCERS * MESSAGES)
		fiber_wake(sink);
}

static void *produce(void *arg)
{
	uint32_t producer = (uint32_t)(uintptr_t)arg;

	for (uint32_t i = 0; i < MESSAGES; i++) {
		struct numbered *numbered = malloc(sizeof(*numbered));

		if (!numbered)
			abort();
		*numbered = (struct numbered){.msg.fn = arrive, .producer = producer, .number = i};
		reactor_post(rig, &numbered->msg);
	}
	return NULL;
}

static void wait_for_all(void *arg)
{
	(void)arg;
	sink = fiber_self();
	while (arrived_total < PRODUCERS * MESSAGES)
		fiber_park();
}

static void test_all_messages_arrive_in_their_order(void **state)
{
	pthread_t threads[PRODUCERS];

	(void)state;
	memset(arrived, 0, sizeof(arrived));
	arrived_total = 0;
	rig_spawn(wait_for_all, NULL);
	for (uintptr_t i = 0; i < PRODUCERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, produce, (void *)i), 0);
	rig_run();
	for (uint32_t i = 0; i < PRODUCERS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(arrived_total, PRODUCERS * MESSAGES);
	assert_int_equal(rig_stats().messages, PRODUCERS * MESSAGES);
}

/* Two threads hand one token back and forth; the reactor does not spin, so that nearly every
 * hand-over arrives while it goes to sleep. If one wake is lost, the test hangs until its alarm. */
#define HANDOVERS 20000u
#define TOKEN_END UINT32_MAX

static _Atomic uint32_t token;
static struct fiber *player;

static void *play(void *arg)
{
	(void)arg;
	for (uint32_t i = 0;; i++) {
		uint32_t now;

		while ((now = atomic_load(&token)) != 2 * i + 1) {
			if (now == TOKEN_END)
				return NULL;
			sched_yield();
		}
		atomic_store(&token, 2 * i + 2);
		fiber_wake_remote(player);
	}
}

static void plays(void *arg)
{
	uint64_t until_ns = clock_now_ns() + STEPS_NS;
	uint32_t count = 0;
	pthread_t thread;

	player = fiber_self();
	assert_int_equal(pthread_create(&thread, NULL, play, NULL), 0);
	while (!rig_stats().sleeps || (count < HANDOVERS && clock_now_ns() < until_ns)) {
		atomic_store(&token, 2 * count + 1);
		while (atomic_load(&token) != 2 * count + 2)
			fiber_park();
		count++;
	}
	atomic_store(&token, TOKEN_END);
	pthread_join(thread, NULL);
	*(uint32_t *)arg = count;
}

static void test_no_wake_is_lost_to_sleep(void **state)
{
	uint32_t count = 0;

	(void)state;
	reactor_close(rig);
	rig_open_with((struct reactor_opts){.idle_spin_ns = 1});
	atomic_store(&token, 0);
	rig_spawn(plays, &count);
	rig_run();
	assert_true(count > 0);
	assert_true(rig_stats().sleeps > 0);
	print_message("# %u hand-overs, %u sleeps\n", count, (unsigned)rig_stats().sleeps);
}

/* Four threads wake one fiber as fast as they can: wakes are merged, and the last is not lost. */
static _Atomic uint32_t produced;

static void *storm(void *arg)
{
	(void)arg;
	for (uint32_t i = 0; i < MESSAGES; i++) {
		atomic_fetch_add(&produced, 1);
		fiber_wake_remote(player);
	}
	return NULL;
}

static void weathers(void *arg)
{
	pthread_t threads[PRODUCERS];

	(void)arg;
	player = fiber_self();
	for (uint32_t i = 0; i < PRODUCERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, storm, NULL), 0);
	while (atomic_load(&produced) < PRODUCERS * MESSAGES)
		fiber_park();
	for (uint32_t i = 0; i < PRODUCERS; i++)
		pthread_join(threads[i], NULL);
	/* The wake after the last count may still be in flight; the fiber may not end before it. */
	fiber_yield();
	fiber_yield();
}

static void test_a_storm_of_wakes_joins(void **state)
{
	(void)state;
	atomic_store(&produced, 0);
	rig_spawn(weathers, NULL);
	rig_run();
	assert_int_equal(atomic_load(&produced), PRODUCERS * MESSAGES);
	assert_true(rig_stats().messages >= 1);
	assert_true(rig_stats().messages <= PRODUCERS * MESSAGES);
}

static void *wakes_from_outside(void *arg)
{
	fiber_wake(arg);
	return NULL;
}

static void parks_for_good(void *arg)
{
	pthread_t thread;

	(void)arg;
	if (pthread_create(&thread, NULL, wakes_from_outside, fiber_self()) == 0)
		pthread_join(thread, NULL);
}

static void wake_wrongly(void)
{
	struct rlimit no_core = {0, 0};

	setrlimit(RLIMIT_CORE, &no_core);
	close(STDERR_FILENO);
	rig_open_with((struct reactor_opts){0});
	rig_spawn(parks_for_good, NULL);
	reactor_turn(rig);
}

/* fiber_wake instead of fiber_wake_remote is a bug of ours, and is detected at once. */
static void test_a_plain_wake_from_another_thread_aborts(void **state)
{
	int status = rig_in_child(wake_wrongly);

	(void)state;
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
}

static uint32_t ran;

static void count_run(struct reactor_msg *msg)
{
	(void)msg;
	ran++;
}

static void test_measure_posts(void **state)
{
	static struct reactor_msg msgs[REACTOR_TEST_ROUNDS];
	uint64_t begin_ns = clock_now_ns();
	uint64_t posted_ns;

	(void)state;
	for (uint32_t i = 0; i < REACTOR_TEST_ROUNDS; i++) {
		msgs[i].fn = count_run;
		reactor_post(rig, &msgs[i]);
	}
	posted_ns = clock_now_ns() - begin_ns;
	ran = 0;
	begin_ns = clock_now_ns();
	while (ran < REACTOR_TEST_ROUNDS)
		reactor_turn(rig);
	print_message("# %.1f ns per post to an awake reactor, %.1f ns to run it\n",
		(double)posted_ns / REACTOR_TEST_ROUNDS,
		(double)(clock_now_ns() - begin_ns) / REACTOR_TEST_ROUNDS);
	assert_int_equal(rig_stats().messages, REACTOR_TEST_ROUNDS);
}

/* ---- A function in another reactor's fiber. ---- */

#define VISITS 20000u

static struct reactor *other;

static void *other_main(void *arg)
{
	(void)arg;
	reactor_run(other);
	return NULL;
}

/* It parks there, so the caller must wait for its end and not for its first stop. */
static void counts(void *arg)
{
	assert_ptr_equal(reactor_self(), other);
	fiber_sleep_ns(NS_PER_MS);
	++*(uint32_t *)arg;
}

/* It is over before the call that began it comes back. */
static void counts_at_once(void *arg)
{
	++*(uint32_t *)arg;
}

/* A stack of its own for each visit, so that the sanitizer sees a write after the caller left. */
static __attribute__((noinline)) void visit_at_once(uint32_t *count)
{
	assert_int_equal(fiber_run_on(other, "at once", counts_at_once, count), 0);
}

static void visits(void *arg)
{
	struct reactor *home = reactor_self();
	struct fiber *caller = fiber_self();
	uint32_t count = 0, done = 0;
	uint64_t until_ns;

	(void)arg;
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(fiber_run_on(other, "counts", counts, &count), 0);
		assert_int_equal(count, i + 1);
		assert_ptr_equal(reactor_self(), home);
		assert_ptr_equal(fiber_self(), caller);
	}
	count = 0;
	until_ns = clock_now_ns() + STEPS_NS;
	do {
		visit_at_once(&count);
		done++;
	} while (done < VISITS && clock_now_ns() < until_ns);
	assert_int_equal(count, done);
	reactor_stop(other);
}

static void test_a_function_runs_in_another_reactors_fiber(void **state)
{
	const struct reactor_opts opts = {.cpu = -1};
	pthread_t thread;

	(void)state;
	assert_int_equal(reactor_open(&opts, &other), 0);
	assert_int_equal(pthread_create(&thread, NULL, other_main, NULL), 0);
	rig_spawn(visits, NULL);
	rig_run();
	pthread_join(thread, NULL);
	reactor_close(other);
}

/* The only fiber there is waits for the caller. */
static void fills(void *arg)
{
	atomic_store((_Atomic bool *)arg, true);
	while (atomic_load((_Atomic bool *)arg))
		fiber_sleep_ns(NS_PER_MS);
}

static void is_refused(void *arg)
{
	uint32_t count = 0;

	while (!atomic_load((_Atomic bool *)arg))
		fiber_yield();
	assert_int_equal(fiber_run_on(other, "counts", counts, &count), -EAGAIN);
	assert_int_equal(count, 0);
	atomic_store((_Atomic bool *)arg, false);
	reactor_stop(other);
}

static void test_a_reactor_without_fibers_refuses(void **state)
{
	const struct reactor_opts opts = {.cpu = -1, .fibers_max = 1};
	_Atomic bool full = false;
	pthread_t thread;

	(void)state;
	assert_int_equal(reactor_open(&opts, &other), 0);
	assert_int_equal(fiber_spawn(other, "fills", fills, &full), 0);
	assert_int_equal(pthread_create(&thread, NULL, other_main, NULL), 0);
	rig_spawn(is_refused, &full);
	rig_run();
	pthread_join(thread, NULL);
	reactor_close(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_a_function_runs_in_another_reactors_fiber),
		RIG_TEST(test_a_reactor_without_fibers_refuses),
		RIG_TEST(test_all_messages_arrive_in_their_order),
		RIG_TEST(test_no_wake_is_lost_to_sleep),
		RIG_TEST(test_a_storm_of_wakes_joins),
		RIG_TEST(test_a_plain_wake_from_another_thread_aborts),
		RIG_TEST(test_measure_posts),
	};

	return cmocka_run_group_tests_name("mailbox", tests, NULL, NULL);
}
