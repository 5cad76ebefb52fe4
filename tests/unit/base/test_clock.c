/* tests/unit/base/test_clock.c: the real time that does not go back. */
#include "../unit.h"

#include "base/clock.h"

static void test_real_time_does_not_go_back(void **state)
{
	const uint64_t later_ns = UINT64_MAX - 1;
	uint64_t last_ns = 0, now_ns = clock_real_after_ns(&last_ns);

	(void)state;
	assert_true(now_ns > 0);
	assert_int_equal(last_ns, now_ns);
	last_ns = later_ns;
	assert_int_equal(clock_real_after_ns(&last_ns), later_ns);
	assert_int_equal(last_ns, later_ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_real_time_does_not_go_back),
	};

	return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
