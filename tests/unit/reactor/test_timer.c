/* tests/unit/reactor/test_timer.c: the wheel: order, cancelling, moving, long spans, never early.
 */
#include "rig.h"

#include "reactor/reactor_priv.h"

#define TIMERS 2000

static uint64_t now_ns, last_due_ns;
static uint32_t fired;

static void check_due(struct reactor_timer *timer, void *arg)
{
	(void)arg;
	assert_false(timer->armed);
	assert_true(timer->due_ns <= now_ns);
	/* In order up to one tick, and late by at most the step of the test. */
	assert_true(timer->due_ns + (1ull << TICK_SHIFT) >= last_due_ns);
	last_due_ns = timer->due_ns;
	fired++;
}

/* Random deadlines over spans from milliseconds to years, turned by jumping to the next due time:
 * each fires within one tick of its deadline, in order, and the wheel needs at most one turn per
 * level and timer. */
static void test_random_timers_fire_on_time(void **state)
{
	static struct reactor_timer timers[TIMERS];
	struct prng prng;
	uint32_t wakes = 0;

	(void)state;
	prng_seed(&prng, 20261121);
	now_ns = 123456789 * NS_PER_MS;
	wheel_init(&rig->wheel, now_ns);
	for (uint32_t i = 0; i < TIMERS; i++) {
		uint64_t span_ns = 1ull << (20 + prng_below(&prng, 36));

		timers[i] = (struct reactor_timer){.fn = check_due};
		reactor_timer_set(rig, &timers[i], now_ns + prng_below(&prng, span_ns));
	}
	fired = 0;
	last_due_ns = 0;
	while (fired < TIMERS) {
		uint64_t next_ns = wheel_next_ns(&rig->wheel);

		assert_true(next_ns != DEADLINE_NONE);
		assert_true(next_ns > now_ns);
		for (uint32_t i = 0; i < TIMERS; i++)
			assert_true(!timers[i].armed ||
				    timers[i].due_ns + (1ull << TICK_SHIFT) >= now_ns);
		now_ns = next_ns;
		wheel_turn(&rig->wheel, now_ns);
		wakes++;
	}
	assert_int_equal(wheel_next_ns(&rig->wheel), DEADLINE_NONE);
	assert_true(wakes <= TIMERS * WHEEL_LEVELS);
}

static void test_random_cancels_and_moves(void **state)
{
	static struct reactor_timer timers[TIMERS];
	struct prng prng;
	uint32_t cancelled = 0;

	(void)state;
	prng_seed(&prng, 7);
	now_ns = 5 * NS_PER_S;
	wheel_init(&rig->wheel, now_ns);
	for (uint32_t i = 0; i < TIMERS; i++) {
		timers[i] = (struct reactor_timer){.fn = check_due};
		reactor_timer_set(rig, &timers[i], now_ns + prng_below(&prng, 3600 * NS_PER_S));
	}
	for (uint32_t i = 0; i < TIMERS; i += 2)
		reactor_timer_set(rig, &timers[i], now_ns + prng_below(&prng, 60 * NS_PER_S));
	for (uint32_t i = 0; i < TIMERS; i += 3) {
		reactor_timer_cancel(rig, &timers[i]);
		reactor_timer_cancel(rig, &timers[i]);
		cancelled++;
	}
	fired = 0;
	last_due_ns = 0;
	while (wheel_next_ns(&rig->wheel) != DEADLINE_NONE) {
		now_ns = wheel_next_ns(&rig->wheel) + prng_below(&prng, NS_PER_MS);
		wheel_turn(&rig->wheel, now_ns);
	}
	assert_int_equal(fired, TIMERS - cancelled);
	for (uint32_t level = 0; level < WHEEL_LEVELS; level++)
		assert_int_equal(rig->wheel.occupied[level], 0);
}

static void test_a_big_jump_fires_everything_in_order(void **state)
{
	static struct reactor_timer timers[TIMERS];
	struct prng prng;

	(void)state;
	prng_seed(&prng, 11);
	now_ns = 1;
	wheel_init(&rig->wheel, now_ns);
	for (uint32_t i = 0; i < TIMERS; i++) {
		timers[i] = (struct reactor_timer){.fn = check_due};
		reactor_timer_set(rig, &timers[i], prng_below(&prng, 1ull << 45));
	}
	fired = 0;
	last_due_ns = 0;
	now_ns = 1ull << 46;
	assert_int_equal(wheel_turn(&rig->wheel, now_ns), TIMERS);
	assert_int_equal(fired, TIMERS);
	assert_int_equal(wheel_turn(&rig->wheel, now_ns + NS_PER_S), 0);
}

static void test_the_end_of_time_is_never(void **state)
{
	struct reactor_timer timer = {.fn = check_due};

	(void)state;
	reactor_timer_set(rig, &timer, DEADLINE_NONE);
	assert_true(wheel_next_ns(&rig->wheel) > 1ull << 62);
	assert_int_equal(wheel_turn(&rig->wheel, 1ull << 61), 0);
	assert_true(timer.armed);
	reactor_timer_cancel(rig, &timer);
	assert_int_equal(wheel_next_ns(&rig->wheel), DEADLINE_NONE);
}

static struct reactor_timer first, second, again;

static void cancel_second(struct reactor_timer *timer, void *arg)
{
	(void)timer;
	(void)arg;
	note('1');
	reactor_timer_cancel(rig, &second);
}

static void never(struct reactor_timer *timer, void *arg)
{
	(void)timer;
	(void)arg;
	note('!');
}

static void set_again(struct reactor_timer *timer, void *arg)
{
	uint32_t *left = arg;

	note('a');
	/* Already past: it fires in a later turn, not in this one for ever. */
	if (--*left)
		reactor_timer_set(rig, timer, 0);
}

static void test_functions_may_set_and_cancel(void **state)
{
	uint64_t due_ns = clock_now_ns() + 2 * NS_PER_MS;
	uint32_t left = 3;

	(void)state;
	first = (struct reactor_timer){.fn = cancel_second};
	second = (struct reactor_timer){.fn = never};
	again = (struct reactor_timer){.fn = set_again, .arg = &left};
	reactor_timer_set(rig, &first, due_ns);
	reactor_timer_set(rig, &second, due_ns);
	reactor_timer_set(rig, &again, due_ns);
	while (left)
		reactor_turn_wait(rig, DEADLINE_NONE);
	assert_string_equal(journal, "1aaa");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_random_timers_fire_on_time),
		RIG_TEST(test_random_cancels_and_moves),
		RIG_TEST(test_a_big_jump_fires_everything_in_order),
		RIG_TEST(test_the_end_of_time_is_never),
		RIG_TEST(test_functions_may_set_and_cancel),
	};

	return cmocka_run_group_tests_name("timer", tests, NULL, NULL);
}
