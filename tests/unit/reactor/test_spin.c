/* tests/unit/reactor/test_spin.c: the rules by which spinning follows the load, over synthetic
 * loads: each settles, stays within bounds, and does not swing. */
#include "../unit.h"

#include "reactor/spin.h"

#define US	NS_PER_US
#define LOOK_NS (50 * NS_PER_MS)
#define PRESET	(50 * US)

struct play {
	struct spin spin;
	uint64_t now_ns;
	uint32_t changes, crowded;
};

static struct play play_begin(void)
{
	return (struct play){.spin.spin_ns = PRESET, .now_ns = NS_PER_S};
}

static struct spin_sample waits_of(uint64_t wait_ns, uint32_t count)
{
	struct spin_sample sample = {.time_ns = LOOK_NS};

	sample.waits[spin_place(wait_ns)] = count;
	return sample;
}

static void looks(struct play *play, const struct spin_sample *sample, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		enum spin_verdict verdict;

		play->now_ns += LOOK_NS;
		verdict = spin_judge(&play->spin, sample, play->now_ns);
		play->changes += verdict == SPIN_FOLLOWS;
		play->crowded += verdict == SPIN_CROWDED;
		assert_true(play->spin.spin_ns <= SPIN_NS_MAX);
	}
}

static void test_places(void **state)
{
	(void)state;
	assert_int_equal(spin_place(0), 0);
	assert_int_equal(spin_place(1023), 0);
	assert_int_equal(spin_place(1024), 1);
	assert_int_equal(spin_place(2047), 1);
	assert_int_equal(spin_place(2048), 2);
	assert_int_equal(spin_place(SPIN_NS_MAX - 1), 7);
	assert_int_equal(spin_place(SPIN_NS_MAX), 8);
	assert_int_equal(spin_place(UINT64_MAX), SPIN_PLACES - 1);
}

/* One request after another: what catches the waits at once is enough, and the preset does. */
static void test_short_waits_are_caught(void **state)
{
	const struct spin_sample sample = waits_of(2 * US, 20000);
	struct play play = play_begin();

	(void)state;
	looks(&play, &sample, 100);
	assert_true(play.spin.spin_ns >= 8 * US);
	assert_int_equal(play.changes, 0);
	play.spin.spin_ns = 0;
	looks(&play, &sample, 100);
	assert_true(play.spin.spin_ns >= 8 * US);
	assert_int_equal(play.changes, 1);
}

/* A request each millisecond: spinning never meets it. */
static void test_long_waits_are_slept(void **state)
{
	const struct spin_sample sample = waits_of(NS_PER_MS, 50);
	struct play play = play_begin();

	(void)state;
	looks(&play, &sample, 1);
	assert_int_equal(play.spin.spin_ns, 0);
	looks(&play, &sample, 1000);
	assert_int_equal(play.spin.spin_ns, 0);
	assert_int_equal(play.changes, 1);
}

/* A request each 80 µs: longer than the preset, and worth it. */
static void test_middle_waits_are_worth_more(void **state)
{
	const struct spin_sample sample = waits_of(80 * US, 600);
	struct play play = play_begin();

	(void)state;
	looks(&play, &sample, 1000);
	assert_int_equal(play.spin.spin_ns, SPIN_NS_MAX);
	assert_int_equal(play.changes, 1);
}

static void test_follows_from_load_to_load(void **state)
{
	const struct spin_sample quiet = waits_of(NS_PER_MS, 50), busy = waits_of(2 * US, 20000),
				 middle = waits_of(80 * US, 600);
	struct play play = play_begin();

	(void)state;
	for (uint32_t i = 0; i < 10; i++) {
		/* Each look forgets half of the load before. */
		looks(&play, &quiet, 20);
		assert_int_equal(play.spin.spin_ns, 0);
		looks(&play, &middle, 20);
		assert_int_equal(play.spin.spin_ns, SPIN_NS_MAX);
		looks(&play, &busy, 20);
		assert_true(play.spin.spin_ns >= 8 * US);
	}
}

/* Two loads that alternate from look to look, and of which neither choice is much better, cause no
 * change at each look; nor does noise. */
static void test_does_not_swing(void **state)
{
	struct play play = play_begin();
	uint32_t random = 12345;

	(void)state;
	for (uint32_t i = 0; i < 1000; i++) {
		struct spin_sample sample = {.time_ns = LOOK_NS};

		for (uint32_t n = 0; n < 400; n++) {
			random = random * 1664525u + 1013904223u;
			/* 60 to 185 µs: as much below the break-even as above */
			sample.waits[spin_place((60 + (random >> 16) % 125) * US)]++;
		}
		looks(&play, &sample, 1);
	}
	assert_true(play.changes <= 2);
	assert_int_equal(play.crowded, 0);
}

/* Another program has the processor for whole slices while the loop spins: the loop sleeps before
 * it yields, and tries again later and later. */
static void test_crowded_does_not_yield(void **state)
{
	const struct spin_sample spins = {
		.waits[6] = 22, .time_ns = LOOK_NS, .lost_ns = 45 * NS_PER_MS};
	const struct spin_sample sleeps = waits_of(80 * US, 600);
	struct play play = play_begin();
	uint64_t began_ns, hold_ns = 0;

	(void)state;
	for (uint32_t i = 0; i < 12; i++) {
		looks(&play, &spins, 1);
		assert_int_equal(play.crowded, i + 1);
		began_ns = play.now_ns;
		while (play.spin.spin_ns < CLOCK_YIELD_NS)
			looks(&play, &sleeps, 1);
		/* It tries again, after twice the time; at most after about a minute. */
		assert_true(play.now_ns - began_ns >= hold_ns);
		assert_true(play.now_ns - began_ns <= 64 * NS_PER_S + LOOK_NS);
		hold_ns = MIN(2 * (play.now_ns - began_ns - LOOK_NS), 64 * NS_PER_S);
	}
	assert_true(play.now_ns - began_ns >= 60 * NS_PER_S);
	/* Long alone, it begins anew. */
	looks(&play, &sleeps, 400 * 20);
	looks(&play, &spins, 1);
	began_ns = play.now_ns;
	while (play.spin.spin_ns < CLOCK_YIELD_NS)
		looks(&play, &sleeps, 1);
	assert_true(play.now_ns - began_ns <= NS_PER_S + LOOK_NS);
}

/* Crowded, too, waits that end before a yield are caught. */
static void test_crowded_catches_short_waits(void **state)
{
	struct spin_sample sample = waits_of(2 * US, 1000);
	struct play play = play_begin();

	(void)state;
	sample.lost_ns = 45 * NS_PER_MS;
	looks(&play, &sample, 100);
	assert_int_equal(play.crowded, 1);
	assert_true(play.spin.spin_ns >= 4 * US);
	assert_true(play.spin.spin_ns < CLOCK_YIELD_NS);
}

/* Others had the processor for a part of the time: the loop spins no longer than about its preset,
 * tries more now and then, and is not moved by a moment. */
static void test_shared_processor(void **state)
{
	struct spin_sample sample = waits_of(80 * US, 600);
	struct play play = play_begin();

	(void)state;
	sample.lost_ns = 2 * NS_PER_MS;
	looks(&play, &sample, 100);
	assert_int_equal(play.crowded, 0);
	assert_int_equal(play.spin.spin_ns, SPIN_NS_MAX);
	sample.lost_ns = 10 * NS_PER_MS;
	looks(&play, &sample, 1);
	assert_int_equal(play.crowded, 1);
	assert_true(play.spin.spin_ns <= PRESET);
	play.changes = 0;
	looks(&play, &sample, 20 * 600);
	assert_true(play.crowded + play.changes <= 30);
	/* Short waits are still caught. */
	sample = waits_of(20 * US, 2000);
	sample.lost_ns = 10 * NS_PER_MS;
	looks(&play, &sample, 100);
	assert_true(play.spin.spin_ns >= 32 * US);
	assert_true(play.spin.spin_ns <= PRESET);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_short_waits_are_caught),
		cmocka_unit_test(test_long_waits_are_slept),
		cmocka_unit_test(test_middle_waits_are_worth_more),
		cmocka_unit_test(test_follows_from_load_to_load),
		cmocka_unit_test(test_does_not_swing),
		cmocka_unit_test(test_crowded_does_not_yield),
		cmocka_unit_test(test_crowded_catches_short_waits),
		cmocka_unit_test(test_shared_processor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
