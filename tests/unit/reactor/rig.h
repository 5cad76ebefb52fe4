/* tests/unit/reactor/rig.h: a reactor to test in, run on the test's own thread, and a journal for
 * the order of events. Bounded: what never happens ends in an alarm, not in a hang. */
#ifndef TESTS_UNIT_REACTOR_RIG_H
#define TESTS_UNIT_REACTOR_RIG_H

#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "reactor/reactor.h"

#define RIG_ALARM_S	    120
#define REACTOR_TEST_ROUNDS 100000u

static struct reactor *rig;
static char journal[256];

static inline void note(char what)
{
	size_t len = strlen(journal);

	assert_true(len + 1 < sizeof(journal));
	journal[len] = what;
	journal[len + 1] = '\0';
}

static inline struct reactor *rig_open_with(struct reactor_opts opts)
{
	opts.cpu = -1;
	journal[0] = '\0';
	assert_int_equal(reactor_open(&opts, &rig), 0);
	return rig;
}

static inline int rig_setup(void **state)
{
	(void)state;
	alarm(RIG_ALARM_S);
	rig_open_with((struct reactor_opts){.core_idx = 7});
	return 0;
}

static inline int rig_teardown(void **state)
{
	(void)state;
	reactor_close(rig);
	rig = NULL;
	alarm(0);
	return 0;
}

static inline void rig_spawn(fiber_fn *fn, void *arg)
{
	assert_int_equal(fiber_spawn(rig, "test", fn, arg), 0);
}

/* Runs until every fiber has ended. */
static inline void rig_run(void)
{
	reactor_stop(rig);
	reactor_run(rig);
}

static inline struct reactor_stats rig_stats(void)
{
	struct reactor_stats stats;

	reactor_stats(rig, &stats);
	return stats;
}

#define RIG_TEST(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)

#endif
