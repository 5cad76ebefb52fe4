/* tests/unit/replicate/test_window.c: the rows of a target that are in memory: which may be sent,
 * in which order, and when again; and what an answer means for its row. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>

#include "base/prng.h"
#include "replicate/replicate_priv.h"
#include "s3/replicate/replicate.h"

static struct window window;
static struct mem_arena arena;

static bool add_to(const char *bucket, uint64_t number, const char *key, uint64_t bytes)
{
	const struct s3_replicate_row row = {.kind = S3_REPLICATE_PUT,
		.bytes = bytes,
		.time_ns = 7,
		.target = SLICE("t"),
		.bucket = slice_str(bucket),
		.key = slice_str(key),
		.request_id = SLICE("r")};

	return window_add(&window, number, SLICE("v1"), s3_replicate_row_text(&row, &arena));
}

static bool add(uint64_t number, const char *key)
{
	return add_to("b", number, key, 5);
}

static int setup(void **state)
{
	(void)state;
	mem_arena_init(&arena);
	window = (struct window){.count = 0};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	window_free(&window);
	mem_arena_free(&arena);
	return 0;
}

static void test_rows(void **state)
{
	const struct s3_replicate_row row = {.kind = S3_REPLICATE_TAGS,
		.bytes = 12,
		.time_ns = 34,
		.target = SLICE("target"),
		.bucket = SLICE("bucket"),
		.key = slice_of("a\0b", 3),
		.request_id = SLICE("0123")};
	struct slice text = s3_replicate_row_text(&row, &arena);
	struct s3_replicate_row read;

	(void)state;
	assert_true(s3_replicate_is_row(text));
	assert_true(s3_replicate_row_parse(9, SLICE("given"), text, &read));
	assert_true(slice_eq(read.version_id, SLICE("given")));
	s3_replicate_row_fill((char *)(uintptr_t)text.data, S3_REPLICATE_HOLD, "own");
	assert_true(s3_replicate_row_parse(9, SLICE("given"), text, &read));
	assert_int_equal(read.kind, S3_REPLICATE_HOLD);
	assert_int_equal(read.number, 9);
	assert_int_equal(read.bytes, 12);
	assert_int_equal(read.time_ns, 34);
	assert_true(slice_eq(read.version_id, SLICE("own")));
	assert_true(slice_eq(read.target, row.target) && slice_eq(read.bucket, row.bucket));
	assert_true(slice_eq(read.key, row.key) && slice_eq(read.request_id, row.request_id));
	/* The end of the key is the end of the text; without a key it is no row. */
	for (size_t len = 0; len <= text.len - row.key.len; len++)
		assert_false(s3_replicate_row_parse(9, SLICE_NONE, slice_to(text, len), &read));
	assert_false(s3_replicate_row_parse(9, SLICE_NONE, SLICE("log\0arn\0{}"), &read));
}

/* The id of its rule goes with the row of an object, and only of an object. */
static void test_rows_of_rules(void **state)
{
	struct s3_replicate_row row = {.kind = S3_REPLICATE_PUT,
		.bytes = 1,
		.time_ns = 2,
		.target = SLICE("target"),
		.bucket = SLICE("bucket"),
		.key = slice_of("\0k", 2),
		.rule = SLICE("the rule"),
		.request_id = SLICE("0123")};
	struct slice text = s3_replicate_row_text(&row, &arena);
	struct s3_replicate_row read;

	(void)state;
	s3_replicate_row_fill((char *)(uintptr_t)text.data, S3_REPLICATE_PUT, "own");
	assert_true(s3_replicate_row_parse(9, SLICE_NONE, text, &read));
	assert_int_equal(read.kind, S3_REPLICATE_PUT);
	assert_true(slice_eq(read.rule, row.rule) && slice_eq(read.key, row.key));
	assert_true(slice_eq(read.version_id, SLICE("own")));
	for (size_t len = 0; len <= text.len - row.key.len; len++)
		assert_false(s3_replicate_row_parse(9, SLICE_NONE, slice_to(text, len), &read));
	row.kind = S3_REPLICATE_TAGS;
	text = s3_replicate_row_text(&row, &arena);
	assert_true(s3_replicate_row_parse(9, SLICE_NONE, text, &read));
	assert_int_equal(read.rule.len, 0);
	assert_true(slice_eq(read.key, row.key));
}

static void test_order_of_a_key(void **state)
{
	struct window_row *first, *other;
	uint64_t numbers[WINDOW_ROWS_MAX];

	(void)state;
	assert_true(add(1, "a") && add(2, "a") && add(3, "b"));
	first = window_take(&window, 0);
	assert_int_equal(first->row.number, 1);
	other = window_take(&window, 0);
	assert_int_equal(other->row.number, 3);
	assert_null(window_take(&window, 0));
	assert_int_equal(window_next_ns(&window), DEADLINE_NONE);
	other->phase = WINDOW_DONE;
	assert_null(window_take(&window, 0));
	first->phase = WINDOW_DONE;
	assert_int_equal(window_next_ns(&window), 0);
	assert_int_equal(window_done(&window, numbers), 2);
	assert_int_equal(numbers[0], 1);
	assert_int_equal(numbers[1], 3);
	/* They stay until the store has ended them; another one is done meanwhile. */
	assert_int_equal(window.count, 3);
	other = window_take(&window, 0);
	assert_int_equal(other->row.number, 2);
	other->phase = WINDOW_DONE;
	window_reap(&window, numbers, 2);
	assert_int_equal(window.count, 1);
	assert_int_equal(window_done(&window, numbers), 1);
	assert_int_equal(numbers[0], 2);
}

static void test_refused(void **state)
{
	struct window_row *row;
	uint64_t pause_ns = WINDOW_PAUSE_MIN;

	(void)state;
	assert_true(add(1, "a") && add(2, "a") && add(3, "b"));
	for (uint32_t i = 0; i < 80; i++) {
		uint64_t now_ns = i * WINDOW_PAUSE_MAX;

		row = window_take(&window, now_ns);
		assert_int_equal(row->row.number, 1);
		window_refused(row, now_ns);
		assert_int_equal(row->next_ns, now_ns + pause_ns);
		pause_ns = MIN(2 * pause_ns, WINDOW_PAUSE_MAX);
	}
	assert_int_equal(window_refused_count(&window), 1);
	/* Another key passes; the key's own next row does not. */
	row = window_take(&window, 0);
	assert_int_equal(row->row.number, 3);
	assert_null(window_take(&window, 0));
	window_hurry(&window);
	assert_int_equal(window_take(&window, 0)->row.number, 1);
}

static void test_full(void **state)
{
	uint64_t numbers[WINDOW_ROWS_MAX];
	char key[16];

	(void)state;
	for (uint32_t i = 0; i < WINDOW_ROWS_MAX; i++) {
		snprintf(key, sizeof(key), "%u", i);
		assert_true(add(i + 1, key));
	}
	assert_false(add(1000, "more"));
	window_take(&window, 0)->phase = WINDOW_DONE;
	assert_int_equal(window_done(&window, numbers), 1);
	assert_int_equal(numbers[0], 1);
	window_reap(&window, numbers, 1);
	assert_true(add(1000, "more"));
}

/* Another bucket's slot. */
static const char *other_bucket(void)
{
	static char name[16];

	for (uint32_t i = 0; !i || window_slot(slice_str(name)) == window_slot(SLICE("b")); i++)
		snprintf(name, sizeof(name), "bucket-%u", i);
	return name;
}

/* A bucket that came later has its turn and its places, however many rows the first one has. */
static void test_buckets_in_turn(void **state)
{
	const char *other = other_bucket();
	uint32_t slot = window_slot(SLICE("b")), count = 0;
	char key[16];

	(void)state;
	while (window_has_room(&window, slot)) {
		snprintf(key, sizeof(key), "%u", count);
		assert_true(add(++count, key));
	}
	assert_int_equal(count, WINDOW_ROWS_MAX / 2);
	assert_true(window_has_room(&window, window_slot(slice_str(other))));
	assert_true(add_to(other, 1000, "a", 5) && add_to(other, 1001, "b", 5));
	assert_int_equal(window_take(&window, 0)->row.number, 1);
	assert_int_equal(window_take(&window, 0)->row.number, 1000);
	assert_int_equal(window_take(&window, 0)->row.number, 2);
	assert_int_equal(window_take(&window, 0)->row.number, 1001);
	assert_int_equal(window_take(&window, 0)->row.number, 3);
	assert_int_equal(window_take(&window, 0)->row.number, 4);
}

/* Long bodies leave two lanes to short ones, and nobody waits in vain for them. */
static void test_long_rows(void **state)
{
	struct window_row *row = NULL;
	char key[16];

	(void)state;
	for (uint32_t i = 0; i < LANES; i++) {
		snprintf(key, sizeof(key), "%u", i);
		assert_true(add_to("b", i + 1, key, LONG_BYTES + 1));
	}
	for (uint32_t i = 0; i < LANES - 2; i++)
		row = window_take(&window, 0);
	assert_non_null(row);
	assert_null(window_take(&window, 0));
	assert_int_equal(window_next_ns(&window), DEADLINE_NONE);
	assert_true(add_to("b", 100, "short", LONG_BYTES));
	assert_int_equal(window_take(&window, 0)->row.number, 100);
	row->phase = WINDOW_DONE;
	assert_int_equal(window_next_ns(&window), 0);
	assert_int_equal(window_take(&window, 0)->row.number, LANES - 1);
}

static void test_parked(void **state)
{
	struct parked parked = {.count = 0};
	uint64_t hash;
	uint32_t slot;

	(void)state;
	assert_int_equal(parked_next(&parked, 0), 0);
	assert_false(parked_has(&parked, 7));
	/* "a" is refused; its next row and "c" wait for nothing else. */
	assert_true(add(1, "a") && add(2, "b") && add(3, "a") && add(4, "c"));
	window_refused(window_take(&window, 0), 0);
	slot = window_slot(SLICE("b"));
	assert_int_equal(window_stuck_count(&window, slot, 0), 2);
	assert_int_equal(window_stuck_count(&window, slot, WINDOW_PAUSE_MIN), 0);
	assert_int_equal(window_stuck_count(&window, (slot + 1) % WINDOW_SLOTS, 0), 0);
	assert_int_equal(parked_reserve(&parked, 2), 0);
	hash = parked_hash(&window.rows[0]->row);
	window_shed(&window, slot, 0, &parked);
	assert_int_equal(window.count, 2);
	assert_int_equal(window.of_slot[slot], 2);
	assert_int_equal(window.rows[0]->row.number, 2);
	assert_int_equal(window.rows[1]->row.number, 4);
	assert_int_equal(parked.count, 2);
	assert_true(parked_has(&parked, hash));
	assert_false(parked_has(&parked, parked_hash(&window.rows[0]->row)));
	/* The first of the key, then the next one. */
	assert_int_equal(parked_next(&parked, 0), 1);
	assert_int_equal(parked_next(&parked, 1), 0);
	parked_remove(&parked, 1);
	assert_int_equal(parked_next(&parked, 1), 3);
	parked_remove(&parked, 3);
	assert_false(parked_has(&parked, hash));
	parked_free(&parked);
}

/* Rows of 100 keys in any order, against a plain list. */
static void test_parked_many(void **state)
{
	static uint64_t numbers[4096];
	struct parked parked = {.count = 0};
	struct prng prng;
	uint32_t count = 0, next = 0;

	(void)state;
	prng_seed(&prng, 1);
	for (uint32_t i = 0; i < 20000; i++) {
		if (next < 4095 && (!count || prng_below(&prng, 3))) {
			assert_int_equal(parked_reserve(&parked, 1), 0);
			next++;
			numbers[next] = 1 + prng_below(&prng, 100);
			parked_add(&parked, next, numbers[next], next);
			count++;
		} else {
			uint64_t number = parked_next(&parked, prng_below(&prng, next + 1));

			if (!number)
				continue;
			for (uint64_t older = 1; older < number; older++)
				assert_int_not_equal(numbers[older], numbers[number]);
			parked_remove(&parked, number);
			numbers[number] = 0;
			count--;
		}
		assert_int_equal(parked.count, count);
	}
	for (uint64_t hash = 1; hash <= 100; hash++) {
		bool has = false;

		for (uint32_t i = 1; i <= next; i++)
			has |= numbers[i] == hash;
		assert_int_equal(parked_has(&parked, hash), has);
	}
	assert_int_equal(parked_reserve(&parked, PARKED_ROWS_MAX + 1), -ENOSPC);
	parked_free(&parked);
}

static enum outcome outcome_of(uint32_t status, const char *code)
{
	struct replicate_result result = {.status = status};

	snprintf(result.code, sizeof(result.code), "%s", code);
	return send_outcome(&result);
}

static void test_answers(void **state)
{
	static const struct {
		uint32_t status;
		const char *code;
		enum outcome outcome;
	} cases[] = {
		{200, "", OUTCOME_SENT},
		{204, "", OUTCOME_SENT},
		{0, "", OUTCOME_AWAY},
		{429, "", OUTCOME_AWAY},
		{500, "InternalError", OUTCOME_AWAY},
		{503, "SlowDown", OUTCOME_AWAY},
		{507, "InsufficientStorage", OUTCOME_AWAY},
		{307, "TemporaryRedirect", OUTCOME_REFUSED},
		{403, "AccessDenied", OUTCOME_REFUSED},
		{404, "NoSuchBucket", OUTCOME_REFUSED},
		{409, "OperationAborted", OUTCOME_REFUSED},
		{400, "BadDigest", OUTCOME_REFUSED},
		{400, "XMinioAdminBucketQuotaExceeded", OUTCOME_REFUSED},
		{400, "InvalidArgument", OUTCOME_FAILED},
		{413, "EntityTooLarge", OUTCOME_FAILED},
		{501, "NotImplemented", OUTCOME_FAILED},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_int_equal(outcome_of(cases[i].status, cases[i].code), cases[i].outcome);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_rows, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rows_of_rules, setup, teardown),
		cmocka_unit_test_setup_teardown(test_order_of_a_key, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full, setup, teardown),
		cmocka_unit_test_setup_teardown(test_buckets_in_turn, setup, teardown),
		cmocka_unit_test_setup_teardown(test_long_rows, setup, teardown),
		cmocka_unit_test_setup_teardown(test_parked, setup, teardown),
		cmocka_unit_test(test_parked_many),
		cmocka_unit_test(test_answers),
	};

	return cmocka_run_group_tests_name("window", tests, NULL, NULL);
}
