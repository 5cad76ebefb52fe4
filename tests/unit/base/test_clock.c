/* tests/unit/base/test_clock.c: the real time that does not go back while the clock is adjusted. */
#include "../unit.h"

#include "base/clock.h"

static void test_real_time_does_not_go_back(void **state)
{
	uint64_t last_ns = 0, now_ns = clock_real_after_ns(&last_ns), later_ns;

	(void)state;
	assert_true(now_ns > 0);
	assert_int_equal(last_ns, now_ns);
	last_ns = later_ns = now_ns + CLOCK_SET_BACK_NS;
	assert_int_equal(clock_real_after_ns(&last_ns), later_ns + 1);
	assert_int_equal(clock_real_after_ns(&last_ns), later_ns + 2);
	assert_int_equal(last_ns, later_ns + 2);
	/* The clock was an hour ahead. */
	last_ns = clock_real_ns() + 3600 * NS_PER_S;
	assert_in_range(clock_real_after_ns(&last_ns), now_ns, now_ns + 60 * NS_PER_S);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_real_time_does_not_go_back),
	};

	return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
