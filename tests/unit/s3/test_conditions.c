/* Covers s3/core/conditions.c: RFC 9110 section 13.2.2's order, S3's conditional writes. */
#include "../unit.h"

#include <errno.h>

#include "s3/core/call.h"
#include "s3/core/conditions.h"

#define TAG    "0123456789abcdef0123456789abcdef"
#define BEFORE SLICE("Sun, 06 Nov 1994 08:49:36 GMT")
#define EXACT  SLICE("Sun, 06 Nov 1994 08:49:37 GMT")
#define MTIME  (784111777ull * NS_PER_S + 5)

static void test_etags(void **state)
{
	(void)state;
	assert_true(s3_etag_matches(SLICE("*"), TAG));
	assert_true(s3_etag_matches(SLICE(TAG), TAG));
	assert_true(s3_etag_matches(SLICE("\"" TAG "\""), TAG));
	assert_true(s3_etag_matches(SLICE("W/\"" TAG "\""), TAG));
	assert_true(s3_etag_matches(SLICE("\"x\", \"" TAG "\""), TAG));
	assert_false(s3_etag_matches(SLICE("\"x\", \"y\""), TAG));
	assert_false(s3_etag_matches(SLICE(""), TAG));
	assert_false(s3_etag_matches(SLICE("\"0123\""), TAG));
	assert_true(s3_etag_any(SLICE("*")));
	assert_true(s3_etag_any(SLICE("\"" TAG "\" , * ")));
	assert_false(s3_etag_any(SLICE("\"*\"")));
	assert_false(s3_etag_any(SLICE("")));
}

static enum s3_condition_result check(
	struct slice match, struct slice unmodified, struct slice none_match, struct slice modified)
{
	const struct s3_conditions conditions = {.if_match = match,
		.if_unmodified_since = unmodified,
		.if_none_match = none_match,
		.if_modified_since = modified};

	return s3_conditions_check(&conditions, TAG, MTIME);
}

static void test_order(void **state)
{
	struct slice none = SLICE_NONE, same = SLICE("\"" TAG "\""), other = SLICE("\"x\"");

	(void)state;
	assert_int_equal(check(none, none, none, none), S3_CONDITION_HOLDS);
	assert_int_equal(check(same, none, none, none), S3_CONDITION_HOLDS);
	assert_int_equal(check(other, none, none, none), S3_CONDITION_FAILED);
	assert_int_equal(check(none, BEFORE, none, none), S3_CONDITION_FAILED);
	assert_int_equal(check(none, EXACT, none, none), S3_CONDITION_HOLDS);
	/* A true If-Match overrides a false If-Unmodified-Since. */
	assert_int_equal(check(same, BEFORE, none, none), S3_CONDITION_HOLDS);
	assert_int_equal(check(none, none, same, none), S3_CONDITION_NOT_MODIFIED);
	assert_int_equal(check(none, none, other, none), S3_CONDITION_HOLDS);
	assert_int_equal(check(none, none, none, EXACT), S3_CONDITION_NOT_MODIFIED);
	assert_int_equal(check(none, none, none, BEFORE), S3_CONDITION_HOLDS);
	/* A true If-None-Match overrides a false If-Modified-Since. */
	assert_int_equal(check(none, none, other, EXACT), S3_CONDITION_HOLDS);
	assert_int_equal(check(none, none, same, BEFORE), S3_CONDITION_NOT_MODIFIED);
	/* A failed precondition comes first; an invalid date is no condition. */
	assert_int_equal(check(other, none, same, none), S3_CONDITION_FAILED);
	assert_int_equal(check(none, SLICE("soon"), none, SLICE("soon")), S3_CONDITION_HOLDS);
}

static void test_write_check(void **state)
{
	const struct s3_call call = {.judged = NULL};
	struct store_meta meta = {.etag = TAG};
	struct s3_write_condition condition = {.call = &call, .if_none_match = SLICE("*")};

	(void)state;
	assert_int_equal(s3_write_condition_check(NULL, &condition), 0);
	assert_int_equal(s3_write_condition_check(&meta, &condition), -ECANCELED);
	assert_int_equal(condition.failed, S3_E_PRECONDITION_FAILED);
	condition = (struct s3_write_condition){.call = &call, .if_match = SLICE("\"" TAG "\"")};
	assert_int_equal(s3_write_condition_check(&meta, &condition), 0);
	assert_int_equal(s3_write_condition_check(NULL, &condition), -ECANCELED);
	assert_int_equal(condition.failed, S3_E_NO_SUCH_KEY);
	condition = (struct s3_write_condition){.call = &call, .if_match = SLICE("*")};
	assert_int_equal(s3_write_condition_check(&meta, &condition), 0);
	assert_int_equal(s3_write_condition_check(NULL, &condition), -ECANCELED);
	assert_int_equal(condition.failed, S3_E_NO_SUCH_KEY);
	condition = (struct s3_write_condition){.call = &call, .if_none_match = SLICE("\"x\"")};
	assert_int_equal(s3_write_condition_check(&meta, &condition), 0);
	condition = (struct s3_write_condition){.call = &call, .if_none_match = SLICE(TAG)};
	assert_int_equal(s3_write_condition_check(&meta, &condition), -ECANCELED);
	assert_int_equal(condition.failed, S3_E_PRECONDITION_FAILED);
	condition = (struct s3_write_condition){.call = &call, .if_match = SLICE("\"x\"")};
	assert_int_equal(s3_write_condition_check(&meta, &condition), -ECANCELED);
	assert_int_equal(condition.failed, S3_E_PRECONDITION_FAILED);
}

/* A check that refused by what another write of the group would have made says nothing once the
 * group cannot be written. */
static void test_refusal_of_a_lost_group(void **state)
{
	struct s3_operation operation = {.name = "PutObject"};
	struct s3_call call = {.magic = S3_CALL_MAGIC, .operation = &operation};
	struct s3_write_condition condition = {.call = &call, .if_match = SLICE("*")};

	(void)state;
	assert_int_equal(s3_write_condition_check(NULL, &condition), -ECANCELED);
	assert_string_equal(s3_write_failed(&call, &condition, -ECANCELED)->code, "NoSuchKey");
	assert_string_equal(s3_write_failed(&call, &condition, -EHOSTDOWN)->code, "SlowDown");
}

/* Every code of the table can be found by name and has a message and a status of its kind. */
static void test_error_table(void **state)
{
	(void)state;
	for (int i = 0; i < S3_E_COUNT; i++) {
		const struct s3_error *error = s3_error_at((enum s3_error_id)i);

		assert_true(error->message[0]);
		assert_in_range(error->status, 400, 599);
		assert_string_equal(s3_error_named(error->code)->code, error->code);
	}
	assert_null(s3_error_named("NoSuchCode"));
	assert_string_equal(s3_error_of(-ENOSPC)->code, "InsufficientStorage");
	assert_string_equal(s3_error_of(-ENOENT)->code, "NoSuchKey");
	assert_string_equal(s3_error_of(-EIO)->code, "InternalError");
	assert_string_equal(s3_error_of(-12345)->code, "InternalError");
	assert_string_equal(s3_error_of(EPIPE)->code, "IncompleteBody");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_etags),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_write_check),
		cmocka_unit_test(test_refusal_of_a_lost_group),
		cmocka_unit_test(test_error_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
