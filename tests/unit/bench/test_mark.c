#include "../unit.h"

#include <math.h>

#include "bench/mark.h"

/* A plan of the one row "get 4KiB d1 rdma", both ways, and the ping-pong. */
struct rig {
	struct bench_plan plan;
	struct bench_record *pingpong, *rdma, *http;
};

static int setup(void **state)
{
	static struct rig rig;
	struct bench_opts opts;

	bench_defaults(&opts);
	opts.only = "get 4KiB d1 ";
	if (bench_plan_open(&opts, &rig.plan))
		return -1;
	for (uint32_t m = 0; m < rig.plan.groups[0].count; m++) {
		struct bench_record *record = rig.plan.groups[0].members[m];

		if (record->subject.kind == BENCH_PINGPONG)
			rig.pingpong = record;
		else if (record->subject.kind == BENCH_ROW && record->subject.way == BENCH_RDMA)
			rig.rdma = record;
		else if (record->subject.kind == BENCH_ROW && record->subject.way == BENCH_HTTP)
			rig.http = record;
	}
	*state = &rig;
	return 0;
}

static int teardown(void **state)
{
	struct rig *rig = *state;

	bench_plan_close(&rig->plan);
	return 0;
}

static void sample(struct bench_record *record, double p50_ns)
{
	record->samples[record->sample_count++] =
		(struct bench_sample){.p50_ns = p50_ns, .rate = 1e9 / p50_ns};
}

/* Finds a mark by its measure and row, so that the order of the table does not matter. */
static const struct bench_mark *mark_of(enum bench_measure measure, uint64_t bytes)
{
	for (size_t i = 0; i < BENCH_MARK_COUNT; i++) {
		const struct bench_mark *mark = &BENCH_MARKS[i];

		if (mark->measure == measure && mark->row.bytes == bytes &&
			mark->row.op == BENCH_GET && mark->row.depth == 1)
			return mark;
	}
	fail_msg("no such mark");
	return NULL;
}

static void test_a_ratio_is_taken_slice_by_slice(void **state)
{
	struct rig *rig = *state;
	const struct bench_mark *mark = mark_of(BENCH_TIMES_SLOWER, 4 * KIB);
	struct bench_mark_result result;

	/* The machine slows down to a third in between: the ratio stays. */
	sample(rig->pingpong, 100);
	sample(rig->rdma, 1200);
	sample(rig->pingpong, 300);
	sample(rig->rdma, 3600);
	sample(rig->pingpong, 100);
	sample(rig->rdma, 1100);
	assert_true(bench_mark_judge(mark, &rig->plan, &result));
	assert_int_equal(result.value.count, 3);
	assert_true(fabs(result.value.median - 12) < 1e-9);
	assert_true(fabs(result.value.min - 11) < 1e-9);
	assert_int_equal(result.first, BENCH_REACHED);
	assert_int_equal(result.must, BENCH_MISSED);
	assert_int_equal(result.aim, BENCH_MISSED);
}

static void test_a_mark_without_a_measure_is_not_judged(void **state)
{
	struct rig *rig = *state;
	struct bench_mark_result result;

	assert_false(bench_mark_judge(mark_of(BENCH_TIMES_FASTER, 4 * KIB), &rig->plan, &result));
	sample(rig->rdma, 1000);
	assert_false(bench_mark_judge(mark_of(BENCH_TIMES_FASTER, 4 * KIB), &rig->plan, &result));
	sample(rig->http, 15000);
	assert_true(bench_mark_judge(mark_of(BENCH_TIMES_FASTER, 4 * KIB), &rig->plan, &result));
	assert_true(fabs(result.value.median - 15) < 1e-9);
	assert_int_equal(result.first, BENCH_REACHED);
	assert_int_equal(result.aim, BENCH_MISSED);
}

static void test_copies_need_the_counters(void **state)
{
	struct rig *rig = *state;
	struct bench_mark mark = *mark_of(BENCH_COPIES, MIB);
	struct bench_mark_result result;

	mark.row = rig->rdma->subject;
	rig->rdma->result.bytes = 1000;
	assert_false(bench_mark_judge(&mark, &rig->plan, &result));
	rig->rdma->counts.known = true;
	assert_true(bench_mark_judge(&mark, &rig->plan, &result));
	assert_int_equal(result.must, BENCH_REACHED);
	rig->rdma->counts.copied_bytes = 1;
	assert_true(bench_mark_judge(&mark, &rig->plan, &result));
	assert_int_equal(result.must, BENCH_MISSED);
}

/* Some row of the quick plan measures each mark, in one group with the row it is compared with. */
static void test_quick_measures_every_mark(void **state)
{
	struct bench_opts opts;
	struct bench_plan plan;
	struct bench_mark_result result;

	(void)state;
	bench_defaults(&opts);
	opts.quick = true;
	assert_int_equal(bench_plan_open(&opts, &plan), 0);
	for (uint32_t g = 0; g < plan.group_count; g++) {
		for (uint32_t m = 0; m < plan.groups[g].count; m++) {
			struct bench_record *record = plan.groups[g].members[m];

			sample(record, 1000);
			record->counts.known = record->server_known = true;
			record->result.ops = record->result.bytes = 1;
		}
	}
	/* A million objects take too long to store. */
	for (size_t i = 0; i < BENCH_MARK_COUNT; i++)
		assert_true(bench_mark_judge(&BENCH_MARKS[i], &plan, &result) ==
			    (BENCH_MARKS[i].row.way != BENCH_MANY));
	bench_plan_close(&plan);
}

/* The limits get stricter. */
static void test_limits_are_in_order(void **state)
{
	(void)state;
	for (size_t i = 0; i < BENCH_MARK_COUNT; i++) {
		const struct bench_mark *mark = &BENCH_MARKS[i];
		double sign = mark->less_is_better ? -1 : 1;

		assert_true(sign * mark->must <= sign * mark->aim);
		if (!isnan(mark->first))
			assert_true(sign * mark->first <= sign * mark->must);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_a_ratio_is_taken_slice_by_slice, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_a_mark_without_a_measure_is_not_judged, setup, teardown),
		cmocka_unit_test_setup_teardown(test_copies_need_the_counters, setup, teardown),
		cmocka_unit_test(test_quick_measures_every_mark),
		cmocka_unit_test(test_limits_are_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
