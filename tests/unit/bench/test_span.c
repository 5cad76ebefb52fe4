#include "../unit.h"

#include <math.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/span.h"

static void test_median_of_odd_and_even(void **state)
{
	const double odd[] = {9, 1, 5}, even[] = {4, 1, 2, 100};
	struct span span;

	(void)state;
	span = bench_span_of(odd, 3);
	assert_int_equal(span.count, 3);
	assert_true(span.median == 5 && span.min == 1 && span.max == 9);
	span = bench_span_of(even, 4);
	assert_true(span.median == 3 && span.min == 1 && span.max == 100);
}

static void test_values_that_are_not_finite_are_left_out(void **state)
{
	const double values[] = {NAN, 7, INFINITY}, nothing[] = {NAN};
	struct span span;

	(void)state;
	span = bench_span_of(values, 3);
	assert_int_equal(span.count, 1);
	assert_true(span.median == 7 && span.max == 7);
	assert_int_equal(bench_span_of(nothing, 1).count, 0);
	assert_int_equal(bench_span_of(NULL, 0).count, 0);
}

static void test_no_more_than_fit(void **state)
{
	double values[BENCH_REPETITIONS_MAX + 5];

	(void)state;
	for (size_t i = 0; i < BENCH_REPETITIONS_MAX + 5; i++)
		values[i] = (double)i;
	assert_int_equal(
		bench_span_of(values, BENCH_REPETITIONS_MAX + 5).count, BENCH_REPETITIONS_MAX);
}

static void test_texts(void **state)
{
	char buf[BENCH_TEXT_BYTES];

	(void)state;
	assert_string_equal(bench_text_number(0, buf), "0.00");
	assert_string_equal(bench_text_number(0.00042, buf), "0.00042");
	assert_string_equal(bench_text_number(1.234, buf), "1.23");
	assert_string_equal(bench_text_number(9.996, buf), "10.0");
	assert_string_equal(bench_text_number(99.96, buf), "100");
	assert_string_equal(bench_text_number(999.4, buf), "999");
	assert_string_equal(bench_text_number(999.6, buf), "1.00 k");
	assert_string_equal(bench_text_number(1.5e6, buf), "1.50 M");
	assert_string_equal(bench_text_number(2e9, buf), "2.00 G");
	assert_string_equal(bench_text_time(850, buf), "850 ns");
	assert_string_equal(bench_text_time(1234, buf), "1.23 us");
	assert_string_equal(bench_text_time(4.5e6, buf), "4.50 ms");
	assert_string_equal(bench_text_time(1.2e9, buf), "1.20 s");
	assert_string_equal(bench_text_bytes(4096, buf), "4 KiB");
	assert_string_equal(bench_text_bytes(64 << 20, buf), "64 MiB");
	assert_string_equal(bench_text_bytes(1000, buf), "1000 B");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_median_of_odd_and_even),
		cmocka_unit_test(test_values_that_are_not_finite_are_left_out),
		cmocka_unit_test(test_no_more_than_fit),
		cmocka_unit_test(test_texts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
