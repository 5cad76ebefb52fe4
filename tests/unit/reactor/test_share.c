/* tests/unit/reactor/test_share.c: shares of the processor. */
#include "rig.h"

/* Longer than the slice that clients get before the loop checks again. */
#define LONG_NS	    (300 * NS_PER_US)
#define MANY	    32u
#define TURNS	    66u
#define TURNS_LEAST 6u /* of TURNS / 2, whatever the load of the machine */
#define STOPS_MAX   20u

static uint32_t runs[4];
static bool stop;

static void work_long(void)
{
	uint64_t end_ns = clock_now_ns() + LONG_NS;

	while (clock_now_ns() < end_ns)
		clock_relax();
}

/* A fiber that always has work. */
static void greedy(void *arg)
{
	uint16_t share = (uint16_t)(uintptr_t)arg;

	fiber_share_set(share);
	while (!stop) {
		runs[share]++;
		work_long();
		fiber_yield();
	}
}

static void asks_seldom(void *arg)
{
	(void)arg;
	fiber_share_set(2);
	while (!stop) {
		runs[2]++;
		fiber_park();
	}
}

static struct fiber *seldom;

static void spawns_seldom(void *arg)
{
	(void)arg;
	seldom = fiber_self();
	asks_seldom(NULL);
}

static void greedy_start(uint16_t share, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		rig_spawn(greedy, (void *)(uintptr_t)share);
	/* Until each has been in share 0 for the last time. */
	reactor_turn(rig);
}

static int setup(void **state)
{
	memset(runs, 0, sizeof(runs));
	stop = false;
	return rig_setup(state);
}

static void end(void)
{
	stop = true;
	if (seldom)
		fiber_wake(seldom);
	seldom = NULL;
	reactor_stop(rig);
	reactor_run(rig);
}

/* A fiber that comes while another share has many runs in the next turn, not after all of them. Its
 * share pays for the time in which this thread is stopped while the fiber runs, and then waits for
 * its turn once: then the test begins again. */
static void test_a_rare_fiber_waits_for_one_slice(void **state)
{
	uint32_t begun, stops = 0;

	(void)state;
	rig_spawn(spawns_seldom, NULL);
	greedy_start(1, MANY);
	begun = runs[1];
	/* The others continue. */
	while (runs[1] - begun < 10) {
		uint32_t before[] = {0, runs[1], runs[2]};

		fiber_wake(seldom);
		assert_true(reactor_turn(rig) > 0);
		/* Each slice is longer than a turn. None fits into a turn in which this thread did
		 * not run for as long. */
		assert_in_range(runs[1] - before[1], 0, 1);
		if (runs[2] == before[2]) {
			assert_true(++stops < STOPS_MAX);
			while (runs[2] == before[2])
				assert_true(reactor_turn(rig) > 0);
			begun = runs[1];
		}
		assert_int_equal(runs[2], before[2] + 1);
	}
	end();
}

/* By time and not by fibers: a share with one fiber gets as much as a share with many. */
static void test_greedy_shares_get_equal_time(void **state)
{
	uint32_t before;

	(void)state;
	greedy_start(1, MANY);
	greedy_start(3, 1);
	before = runs[3];
	for (uint32_t i = 0; i < TURNS; i++)
		reactor_turn(rig);
	assert_true(runs[3] - before >= TURNS_LEAST);
	end();
}

static void test_the_servers_own_go_first(void **state)
{
	uint32_t before;

	(void)state;
	greedy_start(1, MANY);
	rig_spawn(greedy, (void *)0);
	rig_spawn(greedy, (void *)0);
	for (uint32_t i = 0; i < 5; i++) {
		before = runs[0];
		reactor_turn(rig);
		assert_int_equal(runs[0] - before, 2);
	}
	end();
}

static void spawned(void *arg)
{
	(void)arg;
	fiber_yield();
	work_long();
	runs[1]++;
}

static void spawner(void *arg)
{
	(void)arg;
	fiber_share_set(1);
	for (uint32_t i = 0; i < MANY; i++)
		rig_spawn(spawned, NULL);
}

/* A client gets no more time by fibers that its fibers spawn. */
static void test_shares_are_inherited(void **state)
{
	uint32_t turns = 0;

	(void)state;
	rig_spawn(spawner, NULL);
	while (runs[1] < MANY) {
		uint32_t before = runs[1];

		reactor_turn(rig);
		assert_in_range(runs[1] - before, 0, 1);
		assert_true(++turns < REACTOR_TEST_ROUNDS);
	}
	end();
}

static void long_in_pieces(void *arg)
{
	uint16_t share = (uint16_t)(uintptr_t)arg;

	fiber_share_set(share);
	fiber_yield();
	runs[share]++;
	work_long();
	fiber_yield_due();
	runs[share]++;
}

static void test_long_work_yields_when_due(void **state)
{
	(void)state;
	fiber_yield_due(); /* outside fibers: no effect */
	fiber_share_set(1);
	rig_spawn(long_in_pieces, (void *)1);
	rig_spawn(long_in_pieces, (void *)0);
	reactor_turn(rig);
	reactor_turn(rig);
	assert_int_equal(runs[0], 2);
	assert_int_equal(runs[1], 1);
	reactor_turn(rig);
	assert_int_equal(runs[1], 2);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_a_rare_fiber_waits_for_one_slice, setup, rig_teardown),
		cmocka_unit_test_setup_teardown(
			test_greedy_shares_get_equal_time, setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_the_servers_own_go_first, setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_shares_are_inherited, setup, rig_teardown),
		cmocka_unit_test_setup_teardown(
			test_long_work_yields_when_due, setup, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
