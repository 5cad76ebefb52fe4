#include "../unit.h"

#include "bench/server.h"

static const char METRICS[] = "# HELP a_total A.\n"
			      "# TYPE a_total counter\n"
			      "a_total{why=\"in\"} 5\n"
			      "a_total{why=\"out\"} 7.5\n"
			      "a_total_more 100\n"
			      "b 3\n";

static void test_labels_are_summed(void **state)
{
	double sum = -1;

	(void)state;
	assert_true(bench_metric_sum(METRICS, "a_total", &sum));
	assert_true(sum == 12.5);
	assert_true(bench_metric_sum(METRICS, "b", &sum));
	assert_true(sum == 3);
}

static void test_a_missing_metric_changes_nothing(void **state)
{
	double sum = -1;

	(void)state;
	assert_false(bench_metric_sum(METRICS, "a", &sum));
	assert_false(bench_metric_sum(METRICS, "total", &sum));
	assert_false(bench_metric_sum("", "b", &sum));
	assert_true(sum == -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_labels_are_summed),
		cmocka_unit_test(test_a_missing_metric_changes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
