#include "../unit.h"

#include <errno.h>
#include <string.h>

#include "bench/load.h"

static void test_objects_are_told_apart(void **state)
{
	struct bench_data data;
	char key[BENCH_KEY_BYTES];
	uint8_t *body;

	(void)state;
	assert_int_equal(bench_data_open(&data, "p-", 4096, 3000), 0);
	assert_string_equal(bench_data_key(&data, 42, key), "p-00000042");
	body = data.pool + bench_data_offset(7);
	assert_int_equal(bench_check_object(&data, 7, body, 4096), 0);
	assert_int_equal(bench_check_object(&data, 7 + BENCH_CONTENTS, body, 4096), 0);
	assert_int_equal(bench_check_object(&data, 8, body, 4096), -EBADMSG);
	assert_int_equal(bench_check_object(&data, 7, body, 4095), -EBADMSG);
	body[100] ^= 1;
	assert_int_equal(bench_check_object(&data, 7, body, 4096), -EBADMSG);
	bench_data_close(&data);
	assert_null(data.pool);
}

static void test_every_object_has_its_turn(void **state)
{
	static bool seen[2048];
	const uint32_t counts[] = {1, 2, 32, 64, 512, 2048};

	(void)state;
	for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
		memset(seen, 0, sizeof(seen));
		for (uint64_t turn = 0; turn < counts[c]; turn++) {
			uint64_t pick = bench_data_pick(turn, counts[c]);

			assert_true(pick < counts[c]);
			assert_false(seen[pick]);
			seen[pick] = true;
		}
	}
}

static void test_pages_are_counted(void **state)
{
	static const char page[] = "<A><Key>1</Key><Key>2</Key></A><Keys>";
	const uint32_t two = 2, three = 3;

	(void)state;
	assert_int_equal(bench_check_page(&two, 0, page, sizeof(page) - 1), 0);
	assert_int_equal(bench_check_page(&three, 0, page, sizeof(page) - 1), -EBADMSG);
	assert_int_equal(bench_check_page(&two, 0, NULL, 0), -EBADMSG);
}

static void test_closed_loop_counts_from_now(void **state)
{
	const struct bench_run_opts opts = {.duration_ns = 100, .ops_max = 2};
	struct bench_pace pace;
	uint64_t since_ns = 0;

	(void)state;
	bench_pace_start(&pace, &opts, 1000);
	assert_true(bench_pace_take(&pace, 1050, &since_ns));
	assert_int_equal(since_ns, 1050);
	assert_false(bench_pace_ended(&pace, 1060));
	assert_true(bench_pace_ended(&pace, 1100));
	assert_false(bench_pace_take(&pace, 1100, &since_ns)); /* its time is up */
	assert_true(bench_pace_take(&pace, 1099, &since_ns));
	assert_false(bench_pace_take(&pace, 1099, &since_ns)); /* both are done */
	assert_true(bench_pace_ended(&pace, 1099));
	bench_pace_start(&pace, &opts, 1000);
	assert_false(bench_pace_ended(&pace, 5000));
	assert_true(bench_pace_take(&pace, 5000, &since_ns)); /* the first, however late */
	assert_false(bench_pace_take(&pace, 5000, &since_ns));
	assert_true(bench_pace_ended(&pace, 5000));
}

/* A server that stalls from 1000 to 1450: requests due meanwhile are measured from their due
 * time. */
static void test_open_loop_counts_from_when_it_was_due(void **state)
{
	const struct bench_run_opts opts = {.duration_ns = 1000, .rate = 10000000};
	struct bench_pace pace;
	uint64_t since_ns = 0;

	(void)state;
	bench_pace_start(&pace, &opts, 1000);
	for (uint64_t due = 1000; due <= 1400; due += 100) {
		assert_true(bench_pace_take(&pace, 1450, &since_ns));
		assert_int_equal(since_ns, due);
	}
	assert_false(bench_pace_take(&pace, 1450, &since_ns)); /* the next is due at 1500 */
	assert_true(bench_pace_take(&pace, 1500, &since_ns));
	assert_int_equal(since_ns, 1500);
}

static void test_the_first_error_is_kept(void **state)
{
	struct bench_result result = {0};

	(void)state;
	bench_result_error(&result, "one %d", 1);
	bench_result_error(&result, "two");
	assert_int_equal(result.errors, 2);
	assert_string_equal(result.first_error, "one 1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_objects_are_told_apart),
		cmocka_unit_test(test_every_object_has_its_turn),
		cmocka_unit_test(test_pages_are_counted),
		cmocka_unit_test(test_closed_loop_counts_from_now),
		cmocka_unit_test(test_open_loop_counts_from_when_it_was_due),
		cmocka_unit_test(test_the_first_error_is_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
