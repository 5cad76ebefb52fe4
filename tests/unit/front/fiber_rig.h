/* tests/unit/front/fiber_rig.h: a reactor with a region, on which a test's body runs as a fiber;
 * at the end all frames must be free. Bounded: a missing event ends in an alarm, not in a hang. */
#ifndef TESTS_UNIT_FRONT_FIBER_RIG_H
#define TESTS_UNIT_FRONT_FIBER_RIG_H

#include "../unit.h"

#include <unistd.h>

#include "flow/flow.h"

#define RIG_ALARM_S	 600
#define RIG_REGION_BYTES (16 * MIB)

static struct reactor *rig;
static struct region *rig_region;
static struct flow_core rig_core;

/* fibers_max 0: the reactor's own. */
static inline void rig_begin(uint32_t fibers_max)
{
	const struct reactor_opts reactor_opts = {.cpu = -1, .fibers_max = fibers_max};
	const struct region_opts region_opts = {.bytes = RIG_REGION_BYTES, .core_count = 1};

	alarm(RIG_ALARM_S);
	assert_int_equal(reactor_open(&reactor_opts, &rig), 0);
	assert_int_equal(region_open(&region_opts, &rig_region), 0);
}

static inline void rig_end(void)
{
	struct region_usage usage;

	reactor_close(rig);
	region_usage(rig_region, &usage);
	assert_int_equal(usage.frames_by_owner[OWNER_FREE], usage.frames_total);
	region_close(rig_region);
	alarm(0);
}

static inline void rig_run(fiber_fn *fn)
{
	assert_int_equal(fiber_spawn(rig, "test", fn, NULL), 0);
	reactor_stop(rig);
	reactor_run(rig);
}

/* Defines a cmocka test that runs the function fn on a fiber. */
#define RIG_TEST(fn)                        \
	static void test_##fn(void **state) \
	{                                   \
		(void)state;                \
		rig_run(fn);                \
	}                                   \
	_Static_assert(1, "")

#endif
