/* Covers iam/iam.c: the limit of accounts, and changes whose store fails. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>

#include "fake.h"
#include "iam/iam.h"

static int set_name(json_t *account, void *arg)
{
	return json_member_set_text(account, "display_name", slice_str(arg));
}

static int change(const char *number, char *name)
{
	const struct iam_edit edit = {
		.account = slice_str(number), .create = true, .change = set_name, .arg = name};

	return iam_change(fake_s3->iam, &fake_core, &edit);
}

static bool has(const char *number, const char *name)
{
	json_t *account = iam_account(fake_s3->iam, slice_str(number));
	bool same = account && slice_eq(json_member_text(account, "display_name"), slice_str(name));

	iam_account_put(account);
	return same;
}

/* Fills the table up to so many accounts, not the store. */
static void fill(uint32_t count)
{
	char number[16], text[64];

	for (uint32_t i = 0; i < count; i++) {
		snprintf(number, sizeof(number), "a%u", i);
		snprintf(text, sizeof(text), "{\"account_id\":\"%s\"}", number);
		assert_int_equal(iam_take(fake_s3->iam, slice_str(number), slice_str(text)), 0);
	}
}

static void document_named(const char *name, const char *text)
{
	const struct document document = {.text = slice_str(text)};

	assert_int_equal(document_put(fake_store, &fake_core, slice_str(name), &document, NULL), 0);
}

/* A refused account is not stored, or the next start would find it. */
static void test_an_account_too_many_is_not_stored(void **state)
{
	struct document document;
	struct mem_arena arena;

	(void)state;
	mem_arena_init(&arena);
	fill(IAM_ACCOUNTS_MAX - 1);
	fake_commit_error = -EIO;
	assert_int_equal(change("b", "one"), -EIO);
	fake_commit_error = 0;
	/* Its place is free again. */
	assert_int_equal(change("b", "one"), 0);
	assert_int_equal(change("c", "two"), -EUSERS);
	assert_false(has("c", "two"));
	assert_int_equal(
		document_get(fake_store, &fake_core, SLICE("i/a/c"), &arena, &document), -ENOENT);
	assert_int_equal(change("b", "three"), 0);
	assert_int_equal(iam_delete(fake_s3->iam, SLICE("b")), 0);
	assert_int_equal(change("c", "two"), 0);
	assert_true(has("c", "two"));
	mem_arena_free(&arena);
}

static void test_a_start_passes_over_an_account_too_many(void **state)
{
	(void)state;
	document_named("i/a/b", "{\"account_id\":\"b\",\"display_name\":\"b\"}");
	document_named("i/a/c", "{\"account_id\":\"c\",\"display_name\":\"c\"}");
	fill(IAM_ACCOUNTS_MAX - 1);
	assert_int_equal(iam_start(fake_s3->iam, &fake_core, NULL), 0);
	assert_true(has("b", "b"));
	assert_false(has("c", "c"));
}

/* A change that is stored is in the table, also if nothing can be read meanwhile. */
static void test_a_change_reads_nothing_back(void **state)
{
	(void)state;
	fake_get_error = fake_read_error = -EIO;
	assert_int_equal(change("a", "one"), 0);
	assert_true(has("a", "one"));
	assert_int_equal(change("a", "two"), 0);
	assert_true(has("a", "two"));
	fake_get_error = fake_read_error = 0;
	assert_int_equal(change("a", "three"), 0);
}

static int tests_run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_an_account_too_many_is_not_stored, fake_open, fake_close),
		cmocka_unit_test_setup_teardown(
			test_a_start_passes_over_an_account_too_many, fake_open, fake_close),
		cmocka_unit_test_setup_teardown(
			test_a_change_reads_nothing_back, fake_open, fake_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return fake_main(tests_run);
}
