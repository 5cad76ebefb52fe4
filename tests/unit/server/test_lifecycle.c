/* tests/unit/server/test_lifecycle.c: covers server/job/lifecycle.c, over a made-up store: what the
 * rules are told of a key's versions when a page of the walk begins with the key's newest again. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/job/job.h"

struct row {
	const char *version_id;
	bool latest;
};
struct page {
	struct row rows[4]; /* of key "k", until one without an id */
	const char *after;  /* the version behind which the page is asked for */
};

/* The null version that ends the first page is deleted before the second one is asked for, so that
 * its place is lost and all versions come again. */
static const struct page null_gone[] = {
	{{{"v4", true}, {"null", false}}, ""},
	{{{"v4", true}, {"v2", false}, {"v1", false}}, "null"},
};
/* The current version is deleted, and the one behind it is the newest. */
static const struct page current_gone[] = {
	{{{"v3", true}}, ""},
	{{{"v2", true}, {"v1", false}}, "v3"},
};
static const struct page nothing_gone[] = {
	{{{"v4", true}, {"v3", false}}, ""},
	{{{"v2", false}, {"v1", false}}, "v3"},
};

static const struct page *pages;
static uint32_t page_count, page_idx;
static char judged[512]; /* "ID:current:alone:newer " */
static bool walked, closing;
static struct fiber *waiting;

/* ---- The store. ---- */

int store_list_versions(struct store *store, const struct store_list_opts *opts,
	store_list_visit_fn *visit, void *arg, bool *ret_more)
{
	const struct page *page = &pages[page_idx];

	(void)store;
	assert_true(page_idx < page_count);
	assert_true(slice_eq(opts->version_after, slice_str(page->after)));
	assert_true(slice_eq(opts->after, page_idx ? SLICE("k") : SLICE_NONE));
	for (uint32_t i = 0; i < ARRAY_LEN(page->rows) && page->rows[i].version_id; i++) {
		struct store_meta meta = {.mtime_ns = 1};
		const struct store_list_entry entry = {
			.key = SLICE("k"), .is_latest = page->rows[i].latest, .meta = &meta};

		slice_copy_str(slice_str(page->rows[i].version_id), meta.version_id,
			sizeof(meta.version_id));
		visit(&entry, arg);
	}
	*ret_more = ++page_idx < page_count;
	return 0;
}

int store_bucket_list(
	struct store *store, struct slice after, store_bucket_visit_fn *visit, void *arg)
{
	const struct store_bucket bucket = {.name = "bkt", .id = 1};

	(void)store;
	if (!after.len && !walked)
		visit(&bucket, arg);
	return 0;
}

int store_get_open_version(struct store *store, const struct store_name *name,
	struct store_get **ret_get, bool *ret_bucket_exists)
{
	(void)store;
	(void)name;
	(void)ret_get;
	(void)ret_bucket_exists;
	return -ENOENT;
}

const struct store_meta *store_get_meta(const struct store_get *get)
{
	(void)get;
	return NULL;
}

void store_get_close(struct store_get *get)
{
	(void)get;
}

int store_delete_each(struct store *store, struct slice bucket, uint64_t bucket_id,
	struct store_deletion *list, uint32_t count)
{
	(void)store;
	(void)bucket;
	(void)bucket_id;
	(void)list;
	(void)count;
	return -ENOENT;
}

int store_set_flags(struct store *store, const struct store_name *name, struct store_flags flags,
	struct store_condition condition, struct store_outbox_row *outbox_row)
{
	(void)store;
	(void)name;
	(void)flags;
	(void)condition;
	(void)outbox_row;
	return -ENOENT;
}

/* ---- The rules. ---- */

static int rules_open(void *arg, struct slice bucket, void **ret_rules)
{
	(void)arg;
	(void)bucket;
	*ret_rules = NULL;
	return 0;
}

/* One walk is enough: the next one begins at once, and would never let the test run. */
static void rules_close(void *rules)
{
	(void)rules;
	walked = true;
	fiber_wake(waiting);
	while (!closing)
		fiber_park();
}

static int rules_renew(void *rules)
{
	(void)rules;
	return 0;
}

static bool rules_are_current(const void *rules)
{
	(void)rules;
	return true;
}

static enum store_lifecycle_verdict rules_judge(
	void *rules, const struct store_lifecycle_version *version, struct store_flags *ret_flags)
{
	size_t len = strlen(judged);

	(void)rules;
	(void)ret_flags;
	snprintf(judged + len, sizeof(judged) - len, "%s:%d:%d:%u ", version->meta->version_id,
		version->current, version->alone, version->newer);
	return STORE_LIFECYCLE_KEEP;
}

static bool rules_may_delete(const struct store_meta *version)
{
	(void)version;
	return true;
}

static struct store_outbox_row *rules_tell_begin(
	void *rules, const struct store_lifecycle_action *action)
{
	(void)rules;
	(void)action;
	return NULL;
}

static void rules_tell_end(void *rules, const struct store_outcome *outcome)
{
	(void)rules;
	(void)outcome;
}

static int rules_abort_uploads(void *rules, uint32_t *ret_count)
{
	(void)rules;
	*ret_count = 0;
	return 0;
}

static const struct job_lifecycle_ops ops = {rules_open, rules_close, rules_renew,
	rules_are_current, rules_judge, rules_may_delete, rules_tell_begin, rules_tell_end,
	rules_abort_uploads};

/* ---- Walking. ---- */

static void walk_once(void *arg)
{
	const struct job_lifecycle_opts opts = {.ops = &ops};
	struct job_lifecycle *job;

	(void)arg;
	waiting = fiber_self();
	assert_int_equal(job_lifecycle_open(reactor_self(), &opts, &job), 0);
	while (!walked)
		fiber_park();
	closing = true;
	job_lifecycle_close(job);
	reactor_stop(reactor_self());
}

static void walk(const struct page *list, uint32_t count, const char *expected)
{
	const struct reactor_opts opts = {.cpu = -1};
	struct reactor *reactor;

	pages = list;
	page_count = count;
	page_idx = 0;
	judged[0] = '\0';
	walked = closing = false;
	assert_int_equal(reactor_open(&opts, &reactor), 0);
	assert_int_equal(fiber_spawn(reactor, "test", walk_once, NULL), 0);
	reactor_run(reactor);
	reactor_close(reactor);
	assert_int_equal(page_idx, count);
	assert_string_equal(judged, expected);
}

static void test_versions_are_counted(void **state)
{
	(void)state;
	walk(nothing_gone, ARRAY_LEN(nothing_gone), "v4:1:0:0 v3:0:0:0 v2:0:0:1 v1:0:0:2 ");
}

/* The newest version is not one that is newer and not current: neither v2 nor v1 may lose its place
 * among those that are kept. */
static void test_versions_that_come_again_count_once(void **state)
{
	(void)state;
	walk(null_gone, ARRAY_LEN(null_gone), "v4:1:0:0 null:0:0:0 v4:1:0:0 v2:0:0:0 v1:0:0:1 ");
}

/* Nor was the version that is gone its key's only one. */
static void test_a_version_that_is_the_newest_by_now(void **state)
{
	(void)state;
	walk(current_gone, ARRAY_LEN(current_gone), "v3:1:0:0 v2:1:0:0 v1:0:0:0 ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_versions_are_counted),
		cmocka_unit_test(test_versions_that_come_again_count_once),
		cmocka_unit_test(test_a_version_that_is_the_newest_by_now),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
