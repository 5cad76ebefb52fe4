/* Covers iam/version.c: the versions of a managed policy, and which of them applies; and doc.c: the
 * policies that every account has. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>

#include "base/mem_arena.h"
#include "iam/iam.h"

#define CREATED 1700000000000

/* As CreatePolicy leaves it, and as every policy was before there were versions. */
static json_t *made(void)
{
	return json_pack(
		"{s:s, s:s, s:I}", "name", "p", "text", "one", "created", (json_int_t)CREATED);
}

static const char *applies(const json_t *policy)
{
	return json_string_value(json_object_get(policy, "text"));
}

/* "v3 v2* v1": newest first, the default one with a star. */
static void assert_versions(const json_t *policy, const char *expected)
{
	struct iam_version all[IAM_VERSIONS_MAX];
	uint32_t count = iam_versions(policy, all);
	char text[128] = "";

	for (uint32_t i = 0; i < count; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%sv%u%s", i ? " " : "",
			all[i].number, all[i].is_default ? "*" : "");
	assert_string_equal(text, expected);
}

static uint32_t add(json_t *policy, const char *text, bool is_default)
{
	uint32_t number = 0;

	assert_int_equal(iam_version_add(policy, slice_str(text), is_default, &number), 0);
	return number;
}

static void test_one(void **state)
{
	json_t *policy = made();
	struct iam_version version;

	(void)state;
	assert_versions(policy, "v1*");
	assert_int_equal(iam_version_find(policy, 1, &version), 0);
	assert_true(slice_eq(version.text, SLICE("one")));
	assert_int_equal(version.created_ms, CREATED);
	assert_int_equal(iam_version_find(policy, 2, &version), -ENOENT);
	assert_int_equal(iam_version_find(policy, 0, &version), -ENOENT);
	assert_int_equal(iam_version_delete(policy, 1), -EBUSY);
	assert_int_equal(iam_version_set_default(policy, 1), 0);
	assert_versions(policy, "v1*");
	json_decref(policy);
}

static void test_default(void **state)
{
	json_t *policy = made();
	struct iam_version version;

	(void)state;
	assert_int_equal(add(policy, "two", false), 2);
	assert_string_equal(applies(policy), "one");
	assert_int_equal(add(policy, "three", true), 3);
	assert_string_equal(applies(policy), "three");
	assert_versions(policy, "v3* v2 v1");
	assert_int_equal(iam_version_set_default(policy, 2), 0);
	assert_string_equal(applies(policy), "two");
	assert_versions(policy, "v3 v2* v1");
	assert_int_equal(iam_version_find(policy, 3, &version), 0);
	assert_true(slice_eq(version.text, SLICE("three")) && !version.is_default);
	assert_true(version.created_ms > CREATED);
	/* The first one still has its text and its time. */
	assert_int_equal(iam_version_set_default(policy, 1), 0);
	assert_string_equal(applies(policy), "one");
	assert_int_equal(iam_version_find(policy, 1, &version), 0);
	assert_int_equal(version.created_ms, CREATED);
	assert_int_equal(iam_version_set_default(policy, 9), -ENOENT);
	assert_versions(policy, "v3 v2 v1*");
	json_decref(policy);
}

static void test_delete_and_limit(void **state)
{
	json_t *policy = made();
	uint32_t number = 0;

	(void)state;
	for (uint32_t i = 2; i <= IAM_VERSIONS_MAX; i++)
		assert_int_equal(add(policy, "more", false), i);
	assert_int_equal(iam_version_add(policy, SLICE("six"), true, &number), -EDQUOT);
	assert_int_equal(number, 0);
	assert_string_equal(applies(policy), "one");
	assert_versions(policy, "v5 v4 v3 v2 v1*");
	assert_int_equal(iam_version_set_default(policy, 3), 0);
	assert_versions(policy, "v5 v4 v3* v2 v1");
	assert_int_equal(iam_version_delete(policy, 3), -EBUSY);
	assert_int_equal(iam_version_delete(policy, 5), 0);
	assert_int_equal(iam_version_delete(policy, 5), -ENOENT);
	/* A number does not come again. */
	assert_int_equal(add(policy, "six", true), 6);
	assert_versions(policy, "v6* v4 v3 v2 v1");
	assert_int_equal(iam_version_set_default(policy, 1), 0);
	assert_int_equal(iam_version_delete(policy, 6), 0);
	assert_int_equal(add(policy, "seven", false), 7);
	assert_versions(policy, "v7 v4 v3 v2 v1*");
	json_decref(policy);
}

static void test_builtins(void **state)
{
	json_t *policies = iam_builtin_policies(), *again = iam_builtin_policies(), *policy;
	json_t *account = json_pack("{s:s}", "account_id", "111");
	char text[IAM_ARN_LEN_MAX];
	const char *name;

	(void)state;
	assert_true(json_object_size(policies) > 0);
	assert_true(json_equal(policies, again));
	json_object_foreach(policies, name, policy)
	{
		struct slice arn = iam_arn(account, "policy", policy, text);

		assert_true(slice_starts(arn, SLICE(IAM_BUILTIN_ARN_START)));
		assert_string_equal(iam_builtin_policy(arn), applies(policy));
		assert_int_equal(json_member_text(policy, "policy_id").len, IAM_UNIQUE_ID_LEN - 1);
		assert_versions(policy, "v1*");
	}
	json_decref(account);
	json_decref(policies);
	json_decref(again);
}

static void test_attached(void **state)
{
	json_t *account = json_pack("{s:{s:{s:[s,s]}, s:{}}, s:{s:{s:[s]}}}", "users", "a",
		"attached", "arn:x", "arn:y", "b", "roles", "r", "attached", "arn:x");

	(void)state;
	assert_int_equal(iam_attached_count(account, SLICE("arn:x")), 2);
	assert_int_equal(iam_attached_count(account, SLICE("arn:y")), 1);
	assert_int_equal(iam_attached_count(account, SLICE("arn:")), 0);
	json_decref(account);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one),
		cmocka_unit_test(test_default),
		cmocka_unit_test(test_delete_and_limit),
		cmocka_unit_test(test_builtins),
		cmocka_unit_test(test_attached),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
