/* tests/unit/flow/rig.h: a reactor, a region, a core over the tests' own store, and a test's body
 * run as a fiber. At the end all frames must be free. */
#ifndef TESTS_UNIT_FLOW_RIG_H
#define TESTS_UNIT_FLOW_RIG_H

#include "../unit.h"

#include <stdlib.h>

#include "fake_store.h"
#include "flow/flow.h"

static struct region *region;
static struct reactor *reactor;
static struct flow_core core;
static struct flow_budget *budget; /* NULL: the core has none */
static struct fake_store fake;
static uint8_t *content; /* FAKE_VOLUME_BYTES of it */

typedef void body_fn(void);
static body_fn *body;

static inline void body_main(void *arg)
{
	(void)arg;
	body();
	reactor_stop(reactor);
}

static inline uint64_t leased_frames(void)
{
	struct region_usage usage;

	region_usage(region, &usage);
	return usage.frames_total - usage.frames_by_owner[OWNER_FREE];
}

/* As many as wait for a fan-out, and the tests' own. */
#define RIG_FIBERS_MAX 4096u
static inline void rig_run(uint64_t region_bytes, bool budgeted, body_fn *fn)
{
	const struct region_opts region_opts = {
		.bytes = region_bytes, .core_count = 1, .name = "flowtest"};
	const struct reactor_opts reactor_opts = {.cpu = -1, .fibers_max = RIG_FIBERS_MAX};

	assert_int_equal(region_open(&region_opts, &region), 0);
	assert_int_equal(reactor_open(&reactor_opts, &reactor), 0);
	if (budgeted)
		assert_int_equal(flow_budget_open(region, &budget), 0);
	assert_int_equal(flow_core_open(reactor, region, &core), 0);
	core.budget = budget;
	fake_store_open(&fake, region);
	body = fn;
	assert_int_equal(fiber_spawn(reactor, "test", body_main, NULL), 0);
	reactor_run(reactor);
	fake_store_close(&fake);
	assert_int_equal(leased_frames(), 0);
	flow_core_close(&core);
	reactor_close(reactor);
	flow_budget_close(budget);
	budget = NULL;
	region_close(region);
}

/* The program's main(). */
static inline int rig_main(const char *name, const struct CMUnitTest *tests, size_t count)
{
	struct prng prng;
	int failed;

	content = malloc(FAKE_VOLUME_BYTES);
	assert_non_null(content);
	prng_seed(&prng, 1);
	prng_fill(&prng, content, FAKE_VOLUME_BYTES);
	failed = _cmocka_run_group_tests(name, tests, count, NULL, NULL);
	free(content);
	return failed;
}

#endif
