#include "../unit.h"

#include "base/base.h"

static void test_quantiles_within_two_percent(void **state)
{
	static struct hist a, b;

	(void)state;
	hist_reset(&a);
	hist_reset(&b);
	assert_int_equal(hist_quantile(&a, 0.5), 0);
	for (uint64_t i = 1; i <= 100000; i++)
		hist_add(i & 1 ? &a : &b, i * 10);
	hist_merge(&a, &b);
	assert_int_equal(a.count, 100000);
	assert_int_equal(a.min, 10);
	assert_int_equal(a.max, 1000000);
	assert_in_range(hist_quantile(&a, 0.5), 500000, 510000);
	assert_in_range(hist_quantile(&a, 0.99), 990000, 1000000);
	assert_int_equal(hist_quantile(&a, 1.0), 1000000);
}

static void test_extreme_values_have_a_bucket(void **state)
{
	static struct hist h;

	(void)state;
	hist_reset(&h);
	hist_add(&h, 0);
	hist_add(&h, UINT64_MAX);
	assert_int_equal(hist_quantile(&h, 0.0), 0);
	assert_true(hist_quantile(&h, 1.0) == UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_quantiles_within_two_percent),
		cmocka_unit_test(test_extreme_values_have_a_bucket),
	};

	return cmocka_run_group_tests_name("hist", tests, NULL, NULL);
}
