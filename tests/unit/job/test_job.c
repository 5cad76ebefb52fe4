#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/job/job.h"

#define RIG_ALARM_S  600
#define VERSIONS_MAX 16u

/* ---- A store of a few buckets, each with the same versions. ---- */

struct version {
	const char *key;
	struct store_meta meta;
	bool gone;
};
static struct version versions[VERSIONS_MAX];
static uint32_t version_count, page_entries;
static const char *const *buckets; /* in order; NULL ends */
static int list_error;		   /* for the first bucket that is listed */
static uint64_t changed_ns;	   /* the version's time at the commit, if not 0 */
static bool commit_finds_nothing, committing;
static uint32_t lists, scrubs, discards, rebuilds;
static struct fiber *lister; /* while lists_held */
static bool lists_held;

static void version_add(const char *key, const char *id, uint64_t mtime_ns)
{
	struct version *version = &versions[version_count++];

	*version = (struct version){.key = key, .meta = {.mtime_ns = mtime_ns}};
	strcpy(version->meta.version_id, id);
}

int store_bucket_list(
	struct store *store, struct slice after, store_bucket_visit_fn *visit, void *arg)
{
	(void)store;
	for (const char *const *name = buckets; *name; name++) {
		struct store_bucket bucket = {.id = 1};

		if (slice_cmp(slice_str(*name), after) <= 0)
			continue;
		strcpy(bucket.name, *name);
		if (!visit(&bucket, arg))
			break;
	}
	return 0;
}

int store_list_versions(struct store *store, const struct store_list_opts *opts,
	store_list_visit_fn *visit, void *arg, bool *ret_more)
{
	uint32_t from = 0, count = 0;
	int ret = list_error;

	(void)store;
	lists++;
	while (lists_held) {
		lister = fiber_self();
		fiber_park();
	}
	list_error = 0;
	if (ret)
		return ret;
	for (uint32_t i = 0; opts->after.len && i < version_count; i++)
		if (slice_eq(opts->after, slice_str(versions[i].key)) &&
			slice_eq(opts->version_after, slice_str(versions[i].meta.version_id)))
			from = i + 1;
	for (uint32_t i = from; i < version_count && count < page_entries; i++, count++) {
		struct store_list_entry entry = {
			.key = slice_str(versions[i].key), .meta = &versions[i].meta};

		visit(&entry, arg);
	}
	*ret_more = from + count < version_count;
	return 0;
}

static struct version *version_of(struct slice key, struct slice id)
{
	for (uint32_t i = 0; i < version_count; i++)
		if (slice_eq(key, slice_str(versions[i].key)) &&
			(!id.len || slice_eq(id, slice_str(versions[i].meta.version_id))))
			return &versions[i];
	return NULL;
}

static int committed(struct version *version, store_check_fn *check, void *arg)
{
	struct store_meta now = version->meta;
	int ret;

	if (changed_ns)
		now.mtime_ns = changed_ns;
	committing = true;
	ret = check(commit_finds_nothing ? NULL : &now, arg);
	committing = false;
	return ret;
}

/* ---- The actions, as text. ---- */

static char done[4096];
static bool noting;

static void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void note(const char *format, ...)
{
	size_t len = strlen(done);
	va_list args;

	if (!noting || committing)
		return;
	va_start(args, format);
	vsnprintf(done + len, sizeof(done) - len, format, args);
	va_end(args);
}

int store_delete_each(struct store *store, struct slice bucket, uint64_t bucket_id,
	struct store_deletion *list, uint32_t count)
{
	struct version *version = version_of(list->key, list->version_id);

	(void)store;
	(void)bucket;
	assert_int_equal(bucket_id, 1);
	assert_int_equal(count, 1);
	assert_non_null(version);
	list->result = committed(version, list->check, list->arg);
	note("delete %.*s%s%.*s%s: %d; ", (int)list->key.len, list->key.data,
		list->version_id.len ? " " : "", (int)list->version_id.len,
		list->version_id.data ? list->version_id.data : "",
		list->noncurrent ? " if not current" : "", list->result);
	if (!list->result && !list->version_id.len) {
		list->delete_marker = true;
		strcpy(list->version_id_out, "marker");
	}
	return 0;
}

int store_set_flags(struct store *store, const struct store_name *name, struct store_flags flags,
	struct store_condition condition, struct store_outbox_row *outbox_row)
{
	int ret =
		committed(version_of(name->key, name->version_id), condition.check, condition.arg);

	(void)store;
	(void)outbox_row;
	assert_int_equal(name->bucket_id, 1);
	note("flags %.*s %x: %d; ", (int)name->key.len, name->key.data, flags.mask, ret);
	return ret;
}

static struct store_get {
	struct version *version;
} the_get;
static int gets_open;

int store_get_open_version(struct store *store, const struct store_name *name,
	struct store_get **ret_get, bool *ret_bucket_exists)
{
	(void)store;
	the_get.version = version_of(name->key, name->version_id);
	*ret_bucket_exists = true;
	if (the_get.version->gone)
		return -ENOENT;
	gets_open++;
	*ret_get = &the_get;
	return 0;
}

const struct store_meta *store_get_meta(const struct store_get *get)
{
	return &get->version->meta;
}

void store_get_close(struct store_get *get)
{
	gets_open -= get != NULL;
}

void store_scrub_run(struct store *store, const struct store_scrub_opts *opts)
{
	(void)store;
	assert_int_equal(opts->bytes_per_s, 11);
	scrubs++;
}

void store_discard_run(struct store *store, uint64_t bytes_per_s)
{
	(void)store;
	assert_int_equal(bytes_per_s, 12);
	discards++;
}

void store_array_monitor(struct store *store)
{
	(void)store;
	rebuilds++;
}

/* ---- The rules. ---- */

static int rules_open_count, tells_open;
static bool locked;	  /* all versions are locked */
static bool changed;	  /* the rules, after they judged */
static bool retagged;	  /* all versions, after they were judged: no rule is theirs any more */
static uint32_t renewals; /* as many decisions have rules; then they are removed */

static int rules_open(void *arg, struct slice bucket, void **ret_rules)
{
	(void)arg;
	if (slice_eq(bucket, SLICE("without")))
		return -ENOENT;
	note("[%.*s] ", (int)bucket.len, bucket.data);
	rules_open_count++;
	*ret_rules = &rules_open_count;
	return 0;
}

static void rules_close(void *rules)
{
	assert_ptr_equal(rules, &rules_open_count);
	rules_open_count--;
}

static int renew(void *rules)
{
	assert_ptr_equal(rules, &rules_open_count);
	if (renewals--)
		return 0;
	note("removed; ");
	noting = false;
	return -ENOENT;
}

static bool is_current(const void *rules)
{
	assert_ptr_equal(rules, &rules_open_count);
	return !changed;
}

/* By the key's first letter: k keep, l look and keep, e expire, d delete, c change the class. */
static enum store_lifecycle_verdict judge(
	void *rules, const struct store_lifecycle_version *version, struct store_flags *ret_flags)
{
	(void)rules;
	assert_true(!committing || version->whole);
	if (committing && retagged)
		return STORE_LIFECYCLE_KEEP;
	note("%.*s/%s%s%s", (int)version->key.len, version->key.data, version->meta->version_id,
		version->current ? " current" : "", version->alone ? " alone" : "");
	if (!version->current)
		note(" since %llu behind %u", (unsigned long long)version->noncurrent_ns,
			version->newer);
	note("%s; ", version->whole ? " whole" : "");
	switch (version->key.data[0]) {
	case 'l':
		return version->whole ? STORE_LIFECYCLE_KEEP : STORE_LIFECYCLE_LOOK;
	case 'e':
		return STORE_LIFECYCLE_EXPIRE;
	case 'd':
		return STORE_LIFECYCLE_DELETE_VERSION;
	case 'c':
		ret_flags->mask = 4;
		return STORE_LIFECYCLE_RECLASS;
	default:
		return STORE_LIFECYCLE_KEEP;
	}
}

static bool may_delete(const struct store_meta *version)
{
	(void)version;
	return !locked;
}

static struct store_outbox_row *tell_begin(void *rules, const struct store_lifecycle_action *action)
{
	(void)rules;
	assert_non_null(action->meta);
	tells_open++;
	return NULL;
}

static void tell_end(void *rules, const struct store_outcome *outcome)
{
	(void)rules;
	tells_open--;
	note("told %d%s%.*s; ", outcome->ret, outcome->delete_marker ? " marker " : "",
		outcome->delete_marker ? (int)outcome->version_id.len : 0,
		outcome->version_id.data ? outcome->version_id.data : "");
}

static int abort_uploads(void *rules, uint32_t *ret_count)
{
	(void)rules;
	note("uploads; ");
	noting = false; /* the end of a walk */
	*ret_count = 0;
	return 0;
}

static const struct job_lifecycle_ops OPS = {.open = rules_open,
	.close = rules_close,
	.renew = renew,
	.is_current = is_current,
	.judge = judge,
	.may_delete = may_delete,
	.tell_begin = tell_begin,
	.tell_end = tell_end,
	.abort_uploads = abort_uploads};

/* ---- Running. ---- */

static struct reactor *rig;
static const char *const ONE[] = {"one", NULL};
static struct job_lifecycle_opts job_opts = {.interval_ns = 1, .ops = &OPS};

static int setup(void **state)
{
	const struct reactor_opts opts = {.cpu = -1, .fibers_max = 4};

	(void)state;
	alarm(RIG_ALARM_S);
	assert_int_equal(reactor_open(&opts, &rig), 0);
	version_count = 0;
	page_entries = 500;
	buckets = ONE;
	list_error = 0;
	changed_ns = 0;
	commit_finds_nothing = false;
	locked = false;
	changed = retagged = false;
	renewals = UINT32_MAX;
	lists = scrubs = discards = rebuilds = 0;
	lists_held = false;
	lister = NULL;
	done[0] = '\0';
	noting = true;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	reactor_close(rig);
	assert_int_equal(rules_open_count, 0);
	assert_int_equal(tells_open, 0);
	assert_int_equal(gets_open, 0);
	alarm(0);
	return 0;
}

static void run(fiber_fn *fn)
{
	assert_int_equal(fiber_spawn(rig, "test", fn, NULL), 0);
	reactor_stop(rig);
	reactor_run(rig);
}

static void walk_once(void *arg)
{
	struct job_lifecycle *job;

	(void)arg;
	assert_int_equal(job_lifecycle_open(rig, &job_opts, &job), 0);
	while (noting)
		fiber_yield();
	job_lifecycle_close(job);
}

static void expect_walk(const char *text)
{
	run(walk_once);
	assert_string_equal(done, text);
}

/* ---- Lifecycle. ---- */

static void test_versions_are_judged(void **state)
{
	(void)state;
	version_add("ka", "3", 30);
	version_add("ka", "2", 20);
	version_add("ka", "1", 10);
	version_add("kb", "1", 10);
	version_add("lc", "2", 20);
	version_add("lc", "1", 10);
	expect_walk("[one] ka/3 current; ka/2 since 30 behind 0; ka/1 since 20 behind 1; "
		    "kb/1 current alone; "
		    "lc/2 current; lc/2 current whole; "
		    "lc/1 since 20 behind 0; lc/1 since 20 behind 0 whole; uploads; ");
}

/* The end of a page does not change any decision. */
static void test_pages_end_anywhere(void **state)
{
	for (uint32_t entries = 1; entries < 5; entries++) {
		page_entries = entries;
		version_add("ka", "2", 20);
		version_add("ka", "1", 10);
		version_add("kb", "1", 10);
		version_add("kc", "1", 10);
		expect_walk("[one] ka/2 current; ka/1 since 20 behind 0; kb/1 current alone; "
			    "kc/1 current alone; uploads; ");
		teardown(state);
		setup(state);
	}
}

static void test_rules_are_carried_out(void **state)
{
	(void)state;
	version_add("c", "1", 10);
	version_add("d", "1", 10);
	version_add("e", "1", 10);
	expect_walk("[one] c/1 current alone; flags c 4: 0; told 0; "
		    "d/1 current alone; delete d 1: 0; told 0; "
		    "e/1 current alone; delete e: 0; told 0 marker marker; uploads; ");
}

/* A commit decides again: versions that were written, deleted or locked meanwhile are not
 * changed. */
static void test_changed_versions_are_left_alone(void **state)
{
	char text[512];

	(void)state;
	version_add("c", "1", 10);
	version_add("d", "1", 10);
	version_add("e", "1", 10);
	changed_ns = 11;
	snprintf(text, sizeof(text),
		"[one] c/1 current alone; flags c 4: %d; told %d; "
		"d/1 current alone; delete d 1: %d; told %d; "
		"e/1 current alone; delete e: %d; told %d; uploads; ",
		-ECANCELED, -ECANCELED, -ECANCELED, -ECANCELED, -ECANCELED, -ECANCELED);
	expect_walk(text);
	teardown(state);
	setup(state);
	version_add("c", "1", 10);
	version_add("d", "1", 10);
	version_add("e", "1", 10);
	commit_finds_nothing = true;
	expect_walk(text);
}

/* So are versions whose tags changed: the rules judge again in the commit. */
static void test_changed_tags_are_judged(void **state)
{
	char text[512];

	(void)state;
	version_add("c", "1", 10);
	version_add("d", "1", 10);
	version_add("e", "1", 10);
	retagged = true;
	snprintf(text, sizeof(text),
		"[one] c/1 current alone; flags c 4: %d; told %d; "
		"d/1 current alone; delete d 1: %d; told %d; "
		"e/1 current alone; delete e: %d; told %d; uploads; ",
		-ECANCELED, -ECANCELED, -ECANCELED, -ECANCELED, -ECANCELED, -ECANCELED);
	expect_walk(text);
}

/* The store is told when it must not delete the version that is current by then. */
static void test_noncurrent_versions(void **state)
{
	(void)state;
	version_add("d", "2", 20);
	version_add("d", "1", 10);
	expect_walk("[one] d/2 current; delete d 2: 0; told 0; "
		    "d/1 since 20 behind 0; delete d 1 if not current: 0; told 0; uploads; ");
}

static void test_changed_rules_do_nothing(void **state)
{
	char text[512];

	(void)state;
	version_add("c", "1", 10);
	version_add("d", "1", 10);
	changed = true;
	snprintf(text, sizeof(text),
		"[one] c/1 current alone; flags c 4: %d; told %d; "
		"d/1 current alone; delete d 1: %d; told %d; uploads; ",
		-ECANCELED, -ECANCELED, -ECANCELED, -ECANCELED);
	expect_walk(text);
}

static void test_removed_rules_end_the_walk(void **state)
{
	page_entries = 2;
	for (uint32_t left = 0; left < 4; left++) {
		static const char *const ENDS[] = {"", "ka/1 current alone; ",
			"ka/1 current alone; kb/1 current alone; ",
			"ka/1 current alone; kb/1 current alone; kc/1 current alone; "};
		char text[512];

		for (uint32_t i = 0; i < 4; i++)
			version_add((const char *[]){"ka", "kb", "kc", "kd"}[i], "1", 10);
		renewals = left;
		snprintf(text, sizeof(text), "[one] %sremoved; ", ENDS[left]);
		expect_walk(text);
		teardown(state);
		setup(state);
		page_entries = 2;
	}
}

/* A lock protects versions; it does not prevent a delete marker on top of a current object. */
static void test_locks_keep_versions(void **state)
{
	char text[512];

	(void)state;
	version_add("d", "1", 10);
	version_add("e", "1", 10);
	locked = true;
	snprintf(text, sizeof(text),
		"[one] d/1 current alone; delete d 1: %d; told %d; "
		"e/1 current alone; delete e: 0; told 0 marker marker; uploads; ",
		-ECANCELED, -ECANCELED);
	expect_walk(text);
}

/* Versions that are gone when the job reads them. */
static void test_looking_finds_nothing(void **state)
{
	(void)state;
	version_add("l", "1", 10);
	versions[0].gone = true;
	expect_walk("[one] l/1 current alone; uploads; ");
}

/* The server's own buckets and those without rules are skipped. A bucket that cannot be listed
 * keeps its uploads and does not delay the others. */
static void test_buckets(void **state)
{
	static const char *const MANY[] = {".own", "bad", "good", "without", NULL};

	(void)state;
	buckets = MANY;
	list_error = -EIO;
	version_add("k", "1", 10);
	expect_walk("[bad] [good] k/1 current alone; uploads; ");
}

static void close_in_a_walk(void *arg)
{
	struct job_lifecycle *job;

	(void)arg;
	lists_held = true;
	version_add("e", "1", 10);
	assert_int_equal(job_lifecycle_open(rig, &job_opts, &job), 0);
	while (!lister)
		fiber_yield();
	/* The current step ends; no other is started. */
	lists_held = false;
	fiber_wake(lister);
	job_lifecycle_close(job);
	assert_string_equal(done, "[one] ");
	assert_int_equal(lists, 1);
}

static void test_closed_in_a_walk(void **state)
{
	(void)state;
	run(close_in_a_walk);
}

static void close_at_rest(void *arg)
{
	struct job_lifecycle_opts opts = job_opts;
	struct job_lifecycle *job;

	(void)arg;
	opts.interval_ns = 3600 * NS_PER_S;
	/* Before its first run, and during its pause. */
	assert_int_equal(job_lifecycle_open(rig, &opts, &job), 0);
	job_lifecycle_close(job);
	assert_int_equal(job_lifecycle_open(rig, &opts, &job), 0);
	for (int i = 0; i < 10; i++)
		fiber_yield();
	job_lifecycle_close(job);
	job_lifecycle_close(NULL);
	assert_int_equal(lists, 0);
}

static void test_closed_at_rest(void **state)
{
	(void)state;
	run(close_at_rest);
}

/* ---- The other jobs. ---- */

static void parked(void *arg)
{
	const bool *go = arg;

	while (!*go)
		fiber_yield();
}

static void no_fibers(void *arg)
{
	const struct job_scrub_opts scrub = {.scrub = {.bytes_per_s = 11}};
	const struct job_discard_opts discard = {.bytes_per_s = 12}, none = {.bytes_per_s = 0};
	struct job_lifecycle *job = NULL;
	bool go = false;

	(void)arg;
	while (fiber_spawn(rig, "parked", parked, &go) == 0)
		continue;
	assert_int_equal(job_lifecycle_open(rig, &job_opts, &job), -EAGAIN);
	assert_null(job);
	assert_int_equal(job_scrub_start(rig, &scrub), -EAGAIN);
	assert_int_equal(job_discard_start(rig, &discard), -EAGAIN);
	assert_int_equal(job_rebuild_start(rig, NULL), -EAGAIN);
	/* A job without work does nothing and cannot fail. */
	assert_int_equal(job_discard_start(rig, &none), 0);
	go = true;
	fiber_yield();
	fiber_yield();
	assert_int_equal(job_scrub_start(rig, &scrub), 0);
	assert_int_equal(job_discard_start(rig, &discard), 0);
	assert_int_equal(job_rebuild_start(rig, NULL), 0);
	while (!scrubs || !discards || !rebuilds)
		fiber_yield();
	assert_int_equal(scrubs + discards + rebuilds, 3);
}

static void test_without_fibers(void **state)
{
	(void)state;
	run(no_fibers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_versions_are_judged, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pages_end_anywhere, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rules_are_carried_out, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_changed_versions_are_left_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(test_changed_tags_are_judged, setup, teardown),
		cmocka_unit_test_setup_teardown(test_noncurrent_versions, setup, teardown),
		cmocka_unit_test_setup_teardown(test_changed_rules_do_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_removed_rules_end_the_walk, setup, teardown),
		cmocka_unit_test_setup_teardown(test_locks_keep_versions, setup, teardown),
		cmocka_unit_test_setup_teardown(test_looking_finds_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_buckets, setup, teardown),
		cmocka_unit_test_setup_teardown(test_closed_in_a_walk, setup, teardown),
		cmocka_unit_test_setup_teardown(test_closed_at_rest, setup, teardown),
		cmocka_unit_test_setup_teardown(test_without_fibers, setup, teardown),
	};

	return cmocka_run_group_tests_name("job", tests, NULL, NULL);
}
