#include "../unit.h"

#include "flow/latency.h"

static struct flow_latency latency;
static struct flow_marks marks;

static void begin(void)
{
	flow_latency_init(&latency, NULL);
	flow_marks_init(&marks, &latency);
}

/* A mark that is reached is measured once; a mark that is not reached is not measured. */
static void test_reached(void **state)
{
	(void)state;
	begin();
	flow_marks_reached(&marks, UINT64_MAX, 5);
	assert_int_equal(latency.hist.count, 0);
	flow_marks_note(&marks, 100, 1000, false);
	flow_marks_note(&marks, 200, 2000, false);
	flow_marks_note(&marks, 300, 3000, false);
	flow_marks_reached(&marks, 99, 9000);
	assert_int_equal(latency.hist.count, 0);
	flow_marks_reached(&marks, 200, 9000);
	assert_int_equal(latency.hist.count, 2);
	assert_int_equal(latency.hist.max, 8000);
	assert_int_equal(latency.hist.min, 7000);
	flow_marks_reached(&marks, 200, 9999);
	assert_int_equal(latency.hist.count, 2);
	flow_marks_reached(&marks, UINT64_MAX, 3001);
	assert_int_equal(latency.hist.count, 3);
	assert_int_equal(latency.hist.min, 1);
}

/* The parts of one piece make one mark. Bytes without a time are not measured. */
static void test_parts(void **state)
{
	(void)state;
	begin();
	flow_marks_note(&marks, 100, 1000, false);
	flow_marks_note(&marks, 200, 1000, true);
	flow_marks_note(&marks, 300, 0, false);
	flow_marks_reached(&marks, 150, 1010);
	assert_int_equal(latency.hist.count, 0);
	flow_marks_reached(&marks, 250, 1010);
	assert_int_equal(latency.hist.count, 1);
	flow_marks_reached(&marks, UINT64_MAX, 9999);
	assert_int_equal(latency.hist.count, 1);
}

/* More marks than there is room for: fewer measurements, none of them too short, and the last bytes
 * are included. A clock that goes back does not give a huge measurement. */
static void test_many(void **state)
{
	const uint32_t count = 100 * FLOW_MARKS_MAX;

	(void)state;
	begin();
	for (uint32_t i = 1; i <= count; i++)
		flow_marks_note(&marks, i, i, false);
	assert_true(marks.head - marks.tail <= FLOW_MARKS_MAX);
	flow_marks_reached(&marks, count / 2, count);
	assert_int_equal(latency.hist.max, count - 1);
	assert_in_range(latency.hist.count, FLOW_MARKS_MAX / 8, FLOW_MARKS_MAX);
	assert_true(latency.hist.min >= count / 2);
	flow_marks_reached(&marks, count - 1, count);
	assert_int_not_equal(marks.head, marks.tail);
	flow_marks_reached(&marks, count, 1);
	assert_int_equal(marks.head, marks.tail);
	assert_int_equal(latency.hist.max, count - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reached),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
