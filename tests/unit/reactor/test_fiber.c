/* tests/unit/reactor/test_fiber.c: fibers: orders, remembered wakes, bounds, stacks, events. */
#include "rig.h"

#include <fenv.h>
#include <signal.h>
#include <sys/mman.h>

#include "reactor/eventual.h"
#include "reactor/reactor_priv.h"

static void note_and_yield(void *arg)
{
	const char *name = arg;

	for (int i = 0; i < 3; i++) {
		note(*name);
		fiber_yield();
	}
}

static void test_runs_in_order_of_spawning(void **state)
{
	(void)state;
	rig_spawn(note_and_yield, "a");
	rig_spawn(note_and_yield, "b");
	rig_spawn(note_and_yield, "c");
	rig_run();
	assert_string_equal(journal, "abcabcabc");
	assert_int_equal(rig_stats().fibers, 0);
	assert_int_equal(rig_stats().fiber_switches, 12);
}

static void spawned(void *arg)
{
	note(*(const char *)arg);
}

static void spawner(void *arg)
{
	(void)arg;
	note('1');
	rig_spawn(spawned, "3");
	note('2');
}

static void test_a_fiber_spawned_by_a_fiber_runs_a_turn_later(void **state)
{
	(void)state;
	rig_spawn(spawner, NULL);
	assert_int_equal(reactor_turn(rig), 1);
	assert_string_equal(journal, "12");
	assert_int_equal(reactor_turn(rig), 1);
	assert_string_equal(journal, "123");
	assert_int_equal(reactor_turn(rig), 0);
}

static void notes_and_yields_once(void *arg)
{
	const char *names = arg;

	note(names[0]);
	fiber_yield();
	note(names[1]);
}

static void runs_from_a_fiber(void *arg)
{
	(void)arg;
	note('5');
	assert_int_equal(fiber_run(rig, "later", spawned, "7"), 0);
	note('6');
}

static void runs_from_a_message(struct reactor_msg *msg)
{
	(void)msg;
	note('1');
	assert_int_equal(fiber_run(rig, "whole", spawned, "2"), 0);
	assert_int_equal(reactor_self() == rig, 1);
	assert_null(fiber_self());
	assert_int_equal(fiber_run(rig, "part", notes_and_yields_once, "38"), 0);
	note('4');
	assert_int_equal(fiber_run(rig, "spawns", runs_from_a_fiber, NULL), 0);
	assert_int_equal(rig_stats().fibers, 2);
}

static void test_a_fiber_may_run_at_once(void **state)
{
	struct reactor_msg msg = {.fn = runs_from_a_message};

	(void)state;
	reactor_post(rig, &msg);
	rig_run();
	assert_string_equal(journal, "12345687");
	assert_int_equal(rig_stats().fibers, 0);
}

#define STARTS 4u

/* A start, and where its function found its stack. */
struct begun {
	struct fiber_start start;
	uintptr_t stack;
	bool waits;
};

static void begins(void *arg)
{
	struct begun *begun = arg;

	begun->stack = (uintptr_t)__builtin_frame_address(0);
	note(begun->start.name[0]);
	assert_int_equal(fiber_share(), 1);
	if (begun->waits)
		fiber_yield();
}

static void begun_start(struct begun *begun, const char *name)
{
	begun->start = (struct fiber_start){.name = name, .fn = begins, .arg = begun};
	assert_int_equal(fiber_start_in(rig, 1, &begun->start), 0);
}

/* One after the other, in the order of their starts, on the stack that the one before has left; the
 * one that waits keeps its own. */
static void test_starts_have_no_stack_until_they_run(void **state)
{
	static const char *const names[STARTS] = {"1", "2", "3", "4"};
	struct begun begun[STARTS] = {{.waits = false}};

	(void)state;
	begun[2].waits = true;
	for (uint32_t i = 0; i < STARTS; i++)
		begun_start(&begun[i], names[i]);
	assert_int_equal(rig_stats().fibers, STARTS);
	rig_run();
	assert_string_equal(journal, "1234");
	assert_ptr_equal(begun[1].stack, begun[0].stack);
	assert_ptr_equal(begun[2].stack, begun[0].stack);
	assert_ptr_not_equal(begun[3].stack, begun[0].stack);
	assert_int_equal(rig_stats().fibers, 0);
}

/* A start that was accepted has its fiber. */
static void test_starts_count_as_fibers(void **state)
{
	struct begun begun[2] = {{.waits = false}};
	struct fiber_start more = {.name = "3", .fn = spawned, .arg = "3"};

	(void)state;
	reactor_close(rig);
	rig_open_with((struct reactor_opts){.fibers_max = 2});
	begun_start(&begun[0], "1");
	begun_start(&begun[1], "2");
	assert_int_equal(fiber_start_in(rig, 1, &more), -EAGAIN);
	assert_int_equal(fiber_spawn(rig, "test", spawned, "3"), -EAGAIN);
	rig_run();
	assert_string_equal(journal, "12");
}

static struct fiber *parked;

static void parks_twice(void *arg)
{
	(void)arg;
	parked = fiber_self();
	assert_ptr_equal(reactor_self(), rig);
	fiber_park();
	note('1');
	fiber_park();
	note('2');
}

static void wakes_twice(void *arg)
{
	(void)arg;
	note('a');
	fiber_wake(parked);
	fiber_wake(parked); /* joins the first: the fiber has not returned from its park */
	fiber_yield();
	note('b');
	fiber_yield();
	note('c');
	fiber_wake(parked);
}

static void test_wakes_before_return_count_once(void **state)
{
	(void)state;
	assert_null(fiber_self());
	assert_null(reactor_self());
	rig_spawn(parks_twice, NULL);
	rig_spawn(wakes_twice, NULL);
	rig_run();
	assert_string_equal(journal, "a1bc2");
	assert_null(reactor_self());
}

static void remembers(void *arg)
{
	(void)arg;
	fiber_wake(fiber_self());
	fiber_wake(fiber_self());
	fiber_park();
	note('1');
	assert_int_equal(fiber_park_until(clock_now_ns() + 2 * NS_PER_MS), -ETIMEDOUT);
	note('2');
	fiber_wake(fiber_self());
	assert_int_equal(fiber_park_until(DEADLINE_NONE), 0);
	note('3');
}

static void test_one_wake_is_remembered(void **state)
{
	(void)state;
	rig_spawn(remembers, NULL);
	rig_run();
	assert_string_equal(journal, "123");
}

static void yields_then_parks(void *arg)
{
	(void)arg;
	parked = fiber_self();
	fiber_yield();
	fiber_park();
	note('p');
}

static void wakes_once(void *arg)
{
	(void)arg;
	fiber_wake(parked);
}

static void test_a_wake_during_a_yield_is_remembered(void **state)
{
	(void)state;
	rig_spawn(yields_then_parks, NULL);
	rig_spawn(wakes_once, NULL);
	rig_run();
	assert_string_equal(journal, "p");
}

static void sleeps_then_parks(void *arg)
{
	uint64_t begin_ns = clock_now_ns();

	(void)arg;
	parked = fiber_self();
	fiber_sleep_ns(3 * NS_PER_MS);
	assert_true(clock_now_ns() - begin_ns >= 3 * NS_PER_MS);
	fiber_park();
	note('p');
}

static void test_a_wake_neither_cuts_a_sleep_nor_is_lost(void **state)
{
	(void)state;
	rig_spawn(sleeps_then_parks, NULL);
	rig_spawn(wakes_once, NULL);
	rig_run();
	assert_string_equal(journal, "p");
}

static void counts(void *arg)
{
	uint32_t *count = arg;

	fiber_yield();
	(*count)++;
	fiber_yield();
}

/* The thread sanitizer knows at most 8128 fibers and threads. */
#define MANY (SANITIZER_THREAD ? 5000 : 10000)

static void test_ten_thousand_fibers(void **state)
{
	uint32_t count = 0;

	(void)state;
	reactor_close(rig);
	rig_open_with((struct reactor_opts){.fibers_max = MANY, .fiber_stack_bytes = 32 * KIB});
	for (int round = 1; round <= 2; round++) {
		for (int i = 0; i < MANY; i++)
			rig_spawn(counts, &count);
		assert_int_equal(fiber_spawn(rig, "one more", counts, &count), -EAGAIN);
		assert_int_equal(rig_stats().fibers, MANY);
		while (reactor_turn(rig))
			;
		assert_int_equal(count, MANY * round);
		assert_int_equal(rig_stats().fibers, 0);
	}
}

static uint64_t descend(uint32_t depth)
{
	volatile char frame[256];
	uint64_t below;

	memset((char *)frame, (int)depth, sizeof(frame));
	if (depth % 16 == 0)
		fiber_yield();
	below = depth ? descend(depth - 1) : 0;
	for (uint32_t i = 0; i < sizeof(frame); i++)
		assert_int_equal(frame[i], (char)depth);
	return below + depth;
}

static void deep(void *arg)
{
	uint64_t *sum = arg;

	*sum += descend(100);
}

static void test_deep_stacks_stay_apart(void **state)
{
	uint64_t sum = 0;

	(void)state;
	for (int i = 0; i < 10; i++)
		rig_spawn(deep, &sum);
	rig_run();
	assert_int_equal(sum, 10 * 5050);
}

/* Not instrumented: otherwise the sanitizer's checks would come before the guard page. */
__attribute__((noinline, no_sanitize("address", "undefined", "thread"))) static int overflow(
	volatile int depth)
{
	volatile char frame[1024];

	frame[0] = (char)depth;
	frame[sizeof(frame) - 1] = frame[0];
	return depth == INT32_MAX ? frame[0] : overflow(depth + 1) + frame[sizeof(frame) - 1];
}

static void overflows(void *arg)
{
	*(int *)arg = overflow(0);
}

/* Exit codes of the child. */
#define HIT_THE_GUARD 42
#define HIT_ELSEWHERE 43

/* On the alternate stack: the fiber has none left. */
static void on_fault(int signal_number, siginfo_t *info, void *context)
{
	const struct fiber *fiber = rig->running;
	const char *at = info->si_addr;

	(void)signal_number;
	(void)context;
	_exit(at >= fiber->map && at < fiber->stack ? HIT_THE_GUARD : HIT_ELSEWHERE);
}

static void overflow_and_tell(void)
{
	static char signal_stack[65536];
	stack_t stack = {.ss_sp = signal_stack, .ss_size = sizeof(signal_stack)};
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	int sum = 0;

	rig_open_with((struct reactor_opts){0});
	sigaltstack(&stack, NULL);
	sigaction(SIGSEGV, &action, NULL);
	if (fiber_spawn(rig, "overflow", overflows, &sum) == 0)
		reactor_turn(rig);
	_exit(sum & 1);
}

/* Kernels before 6.13 do not know the guard advice. */
static void overflow_on_an_old_kernel(void)
{
	rig_forbid(__NR_madvise, 2, 102, EINVAL);
	overflow_and_tell();
}

static void test_the_guard_page_stops_an_overflow(void **state)
{
	int status = rig_in_child(overflow_and_tell);

	(void)state;
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), HIT_THE_GUARD);
	status = rig_in_child(overflow_on_an_old_kernel);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), HIT_THE_GUARD);
}

static void ends_at_once(void *arg)
{
	++*(uint32_t *)arg;
}

/* No memory for the mapping, then none for its guard: an error, and no leak; and one that must run
 * runs all the same. */
static void spawn_without_memory(void)
{
	struct fiber_start sure[3 * LIMIT_FIBERS_KEPT];
	uint32_t count = 0;

	rig_open_with((struct reactor_opts){.fiber_stack_bytes = 68 * KIB});
	rig_forbid(__NR_mmap, 1, (uint32_t)(rig->opts.fiber_stack_bytes + rig->page_bytes), ENOMEM);
	if (fiber_spawn(rig, "mmap", ends_at_once, &count) != -ENOMEM)
		_exit(1);
	for (uint32_t i = 0; i < ARRAY_LEN(sure); i++) {
		sure[i] = (struct fiber_start){.name = "sure", .fn = ends_at_once, .arg = &count};
		fiber_start_surely(rig, &sure[i], i % 2);
	}
	while (reactor_turn(rig))
		;
	if (count != ARRAY_LEN(sure) || rig_stats().fibers)
		_exit(4);
	if (fiber_spawn(rig, "mmap", ends_at_once, &count) != -ENOMEM)
		_exit(5);
	count = 0;
	reactor_close(rig);
	rig_open_with((struct reactor_opts){.fiber_stack_bytes = 76 * KIB});
	rig_forbid(__NR_madvise, 2, 102, EINVAL);
	rig_forbid(__NR_mprotect, 2, PROT_NONE, ENOMEM);
	if (fiber_spawn(rig, "guard", ends_at_once, &count) != -ENOMEM)
		_exit(2);
	if (rig_stats().fibers || reactor_turn(rig) || count)
		_exit(3);
	reactor_close(rig);
}

static void test_spawn_reports_what_memory_lacks(void **state)
{
	(void)state;
	assert_int_equal(rig_in_child(spawn_without_memory), 0);
}

static void rounds_up(void *arg)
{
	volatile double three = 3;

	(void)arg;
	fesetround(FE_UPWARD);
	fiber_yield();
	assert_int_equal(fegetround(), FE_UPWARD);
	assert_true(1 / three * three >= 1);
	fiber_yield();
	assert_int_equal(fegetround(), FE_UPWARD);
}

static void rounds_to_nearest(void *arg)
{
	(void)arg;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(fegetround(), FE_TONEAREST);
		fiber_yield();
	}
}

static void test_the_rounding_mode_is_each_fibers_own(void **state)
{
	(void)state;
	rig_spawn(rounds_up, NULL);
	rig_spawn(rounds_to_nearest, NULL);
	rig_run();
	assert_int_equal(fegetround(), FE_TONEAREST);
}

static void waits_until_later(void *arg)
{
	(void)arg;
	parked = fiber_self();
	assert_int_equal(fiber_park_until(clock_now_ns() + 3600 * NS_PER_S), 0);
	note('w');
}

static void test_a_wake_ends_a_park_before_its_deadline(void **state)
{
	(void)state;
	rig_spawn(waits_until_later, NULL);
	rig_spawn(wakes_once, NULL);
	rig_run();
	assert_string_equal(journal, "w");
}

static void yields_many(void *arg)
{
	uint32_t count = *(uint32_t *)arg;

	while (count--)
		fiber_yield();
}

static void test_measure_switches(void **state)
{
	uint32_t count = REACTOR_TEST_ROUNDS;
	uint64_t begin_ns;

	(void)state;
	for (int i = 0; i < 8; i++)
		rig_spawn(yields_many, &count);
	begin_ns = clock_now_ns();
	rig_run();
	print_message("# %.1f ns per switch into a fiber and back\n",
		(double)(clock_now_ns() - begin_ns) / (double)rig_stats().fiber_switches);
	assert_int_equal(rig_stats().fiber_switches, 8 * (count + 1));
}

static void test_measure_lives(void **state)
{
	uint64_t begin_ns = clock_now_ns();
	uint32_t count = 0;

	(void)state;
	for (uint32_t i = 0; i < REACTOR_TEST_ROUNDS; i++) {
		rig_spawn(ends_at_once, &count);
		reactor_turn(rig);
	}
	print_message("# %.1f ns per fiber from spawn to end, the turn included\n",
		(double)(clock_now_ns() - begin_ns) / REACTOR_TEST_ROUNDS);
	assert_int_equal(count, REACTOR_TEST_ROUNDS);
	/* All of them used one stack, and none of those that are kept. */
	assert_int_equal(rig->fibers_mapped, LIMIT_FIBERS_KEPT + 1);
}

static void parks_once(void *arg)
{
	*(struct fiber **)arg = fiber_self();
	fiber_park();
}

static void test_one_that_must_run_waits_for_a_fiber(void **state)
{
	struct fiber *fibers[2] = {NULL};
	struct eventual eventual;

	(void)state;
	reactor_close(rig);
	rig_open_with((struct reactor_opts){.fibers_max = 2});
	rig_spawn(parks_once, &fibers[0]);
	eventual_spawn(&eventual, rig, "at once", spawned, "1");
	reactor_turn(rig);
	assert_string_equal(journal, "1");
	rig_spawn(parks_once, &fibers[1]);
	eventual_spawn(&eventual, rig, "must", spawned, "2");
	for (uint32_t i = 0; i < 3; i++)
		reactor_turn_wait(rig, clock_now_ns() + 20 * NS_PER_MS);
	assert_string_equal(journal, "1");
	fiber_wake(fibers[0]);
	while (strcmp(journal, "12") != 0)
		reactor_turn_wait(rig, clock_now_ns() + NS_PER_S);
	fiber_wake(fibers[1]);
	rig_run();
	assert_int_equal(rig_stats().fibers, 0);
}

/* ---- Starts that are never refused. ---- */

#define OUTER (LIMIT_FIBERS_KEPT - FIBERS_KEPT_INNERMOST)

struct sure {
	struct fiber_start start;
	struct fiber *fiber; /* NULL: it has not begun */
};

static void sure_main(void *arg)
{
	parks_once(&((struct sure *)arg)->fiber);
}

static void sure_start(struct sure *sure, bool innermost)
{
	*sure = (struct sure){.start = {.name = "sure", .fn = sure_main, .arg = sure}};
	fiber_start_surely(rig, &sure->start, innermost);
}

static uint32_t begun_count(const struct sure *sure, uint32_t count)
{
	uint32_t begun_now = 0;

	while (reactor_turn(rig))
		;
	for (uint32_t i = 0; i < count; i++)
		begun_now += sure[i].fiber != NULL;
	return begun_now;
}

static void test_some_fibers_are_kept_for_what_must_not_be_refused(void **state)
{
	struct sure outer[OUTER + 2], inner[FIBERS_KEPT_INNERMOST + 1];
	struct fiber *fibers[2] = {NULL};

	(void)state;
	reactor_close(rig);
	rig_open_with((struct reactor_opts){.fibers_max = 2});
	rig_spawn(parks_once, &fibers[0]);
	rig_spawn(parks_once, &fibers[1]);
	for (uint32_t i = 0; i < ARRAY_LEN(outer); i++)
		sure_start(&outer[i], false);
	assert_int_equal(begun_count(outer, ARRAY_LEN(outer)), OUTER);
	/* A start that they may wait for still gets a fiber. */
	for (uint32_t i = 0; i < ARRAY_LEN(inner); i++)
		sure_start(&inner[i], true);
	assert_int_equal(begun_count(inner, ARRAY_LEN(inner)), FIBERS_KEPT_INNERMOST);
	assert_int_equal(fiber_spawn(rig, "refused", spawned, "r"), -EAGAIN);
	assert_int_equal(rig_stats().fibers, 2 + LIMIT_FIBERS_KEPT);
	/* Any fiber that ends makes room, for the innermost ones first. */
	fiber_wake(fibers[0]);
	assert_int_equal(begun_count(inner, ARRAY_LEN(inner)), ARRAY_LEN(inner));
	assert_int_equal(begun_count(outer, ARRAY_LEN(outer)), OUTER);
	assert_int_equal(fiber_spawn(rig, "refused", spawned, "r"), -EAGAIN);
	for (uint32_t i = 0; i < ARRAY_LEN(inner); i++)
		fiber_wake(inner[i].fiber);
	assert_int_equal(begun_count(outer, ARRAY_LEN(outer)), OUTER + 1);
	fiber_wake(outer[0].fiber);
	assert_int_equal(begun_count(outer, ARRAY_LEN(outer)), OUTER + 2);
	for (uint32_t i = 1; i < ARRAY_LEN(outer); i++)
		fiber_wake(outer[i].fiber);
	fiber_wake(fibers[1]);
	rig_run();
	assert_int_equal(rig_stats().fibers, 0);
	assert_string_equal(journal, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_runs_in_order_of_spawning),
		RIG_TEST(test_a_fiber_spawned_by_a_fiber_runs_a_turn_later),
		RIG_TEST(test_some_fibers_are_kept_for_what_must_not_be_refused),
		RIG_TEST(test_a_fiber_may_run_at_once),
		RIG_TEST(test_starts_have_no_stack_until_they_run),
		RIG_TEST(test_starts_count_as_fibers),
		RIG_TEST(test_one_that_must_run_waits_for_a_fiber),
		RIG_TEST(test_wakes_before_return_count_once),
		RIG_TEST(test_one_wake_is_remembered),
		RIG_TEST(test_a_wake_during_a_yield_is_remembered),
		RIG_TEST(test_a_wake_neither_cuts_a_sleep_nor_is_lost),
		RIG_TEST(test_ten_thousand_fibers),
		RIG_TEST(test_deep_stacks_stay_apart),
		RIG_TEST(test_the_guard_page_stops_an_overflow),
		RIG_TEST(test_spawn_reports_what_memory_lacks),
		RIG_TEST(test_the_rounding_mode_is_each_fibers_own),
		RIG_TEST(test_a_wake_ends_a_park_before_its_deadline),
		RIG_TEST(test_measure_switches),
		RIG_TEST(test_measure_lives),
	};

	return cmocka_run_group_tests_name("fiber", tests, NULL, NULL);
}
