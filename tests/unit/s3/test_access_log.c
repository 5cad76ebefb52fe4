/* tests/unit/s3/test_access_log.c: lines of access logs that wait: a few fibers for all targets,
 * and limits, of which an owner has half; each for the bucket that let it in. */
#include "../unit.h"

#include <stdio.h>

#include "fake.h"
#include "s3/core/settings.h"
#include "s3/event/access_log.h"

#define HALF (S3_ACCESS_LOG_BATCHES_MAX / 2)

static uint64_t dropped_count;

static void look(const struct counter *counter, void *arg)
{
	(void)arg;
	if (strcmp(counter->name, "nebulaio_s3_access_log_dropped_total") == 0)
		dropped_count = counter_read(counter);
}

/* Since the last call. */
static uint64_t dropped_more(void)
{
	uint64_t before = dropped_count;

	counter_visit(look, NULL);
	return dropped_count - before;
}

static void ask(const char *method, const char *path, const char *query, const char *body)
{
	struct fake_call call;

	fake_call_init(&call, method, path, query);
	fake_call_body(&call, slice_str(body));
	fake_call_run(fake_s3, &call);
	if (call.reply.status / 100 != 2)
		fail_msg("%s %s?%s: %u %.*s", method, path, query, call.reply.status,
			(int)call.reply_body.len, call.reply_body.data);
	fake_call_free(&call);
}

/* A bucket that lets the lines in. */
static void make_target(void)
{
	ask("PUT", "/logs", "", "");
	ask("PUT", "/logs", "policy",
		"{\"Version\":\"2012-10-17\",\"Statement\":[{\"Effect\":\"Allow\",\"Principal\":"
		"{\"Service\":\"logging.s3.amazonaws.com\"},\"Action\":\"s3:PutObject\","
		"\"Resource\":\"arn:aws:s3:::logs/*\"}]}");
}

static struct s3_settings *settings;
static struct s3_logging *logging;

static int open_all(void **state)
{
	const struct s3_opts opts = {.access_log_flush_s = 1};

	(void)state;
	assert_int_equal(fake_open_with(&opts), 0);
	ask("PUT", "/from", "", "");
	make_target();
	ask("PUT", "/from", "logging",
		"<BucketLoggingStatus><LoggingEnabled><TargetBucket>logs</TargetBucket>"
		"<TargetPrefix>first/</TargetPrefix></LoggingEnabled></BucketLoggingStatus>");
	/* Of the cache, which the requests use, too. */
	assert_int_equal(s3_settings_get(fake_s3, &fake_core, SLICE("from"), &settings), 0);
	logging = (struct s3_logging *)(uintptr_t)settings->parsed[S3_CONFIG_LOGGING];
	fake_later_kept = true;
	fake_later_count = 0;
	dropped_more();
	return 0;
}

static int close_all(void **state)
{
	fake_later_kept = false;
	s3_settings_put(settings);
	return fake_close(state);
}

/* Requests to a bucket of that owner, each with a target of its own. */
static void log_lines(const char *owner, uint32_t from, uint32_t count)
{
	char prefix[32];

	strcpy(settings->bucket.owner, owner);
	for (uint32_t i = from; i < from + count; i++) {
		snprintf(prefix, sizeof(prefix), "%s/%u/", owner, i);
		logging->prefix = slice_str(prefix);
		ask("HEAD", "/from", "", "");
	}
}

struct listed {
	uint32_t count;
	size_t last_len;
	char last[LIMIT_KEY_LEN_MAX];
};

static void count_one(const struct store_list_entry *entry, void *arg)
{
	struct listed *listed = arg;

	listed->count++;
	listed->last_len = entry->key.len;
	memcpy(listed->last, entry->key.data, entry->key.len);
}

/* The log objects. */
static uint32_t put_count(void)
{
	struct listed listed = {.count = 0};
	bool more = true;

	while (more) {
		char after[LIMIT_KEY_LEN_MAX];
		const struct store_list_opts opts = {.bucket = SLICE("logs"),
			.after = slice_of(after, listed.last_len),
			.entries_max = LIMIT_LIST_KEYS_MAX};

		memcpy(after, listed.last, listed.last_len);
		assert_int_equal(store_list(fake_store, &opts, count_one, &listed, &more), 0);
	}
	return listed.count;
}

static void test_few_fibers_put_all(void **state)
{
	(void)state;
	log_lines("one", 0, 10);
	log_lines("one", 0, 10);
	assert_int_equal(fake_later_count, 1);
	fake_later_run();
	assert_int_equal(put_count(), 10);
	/* They have ended: the next line starts another. */
	fake_later_count = 0;
	log_lines("one", 0, 1);
	assert_int_equal(fake_later_count, 1);
	fake_later_run();
	assert_int_equal(put_count(), 11);
	assert_int_equal(dropped_more(), 0);
}

/* While another owner is at its limit: owners whose names have the same hash share one. */
static const char *owner_with_room(char *buf, size_t buf_bytes)
{
	for (uint32_t i = 0;; i++) {
		snprintf(buf, buf_bytes, "two-%u", i);
		log_lines(buf, 0, 1);
		if (dropped_more() == 0)
			return buf;
	}
}

static void test_targets_are_bounded(void **state)
{
	char two[16];

	(void)state;
	log_lines("one", 0, HALF + 100);
	assert_int_equal(dropped_more(), 100);
	/* Lines of targets that have some are kept. */
	log_lines("one", 0, 100);
	assert_int_equal(dropped_more(), 0);
	log_lines(owner_with_room(two, sizeof(two)), 1, HALF - 1);
	assert_int_equal(dropped_more(), 0);
	log_lines("three", 0, 10);
	assert_int_equal(dropped_more(), 10);
	assert_int_equal(fake_later_count, 1);
	fake_later_run();
	assert_int_equal(put_count(), 2 * HALF);
	/* Then there is room. */
	log_lines("three", 0, 10);
	log_lines("one", HALF, 10);
	assert_int_equal(dropped_more(), 0);
	fake_later_run();
	assert_int_equal(put_count(), 2 * HALF + 20);
}

static void test_without_a_fiber_lines_are_lost(void **state)
{
	(void)state;
	fake_later_kept = false;
	log_lines("one", 0, 3);
	assert_int_equal(dropped_more(), 3);
	assert_int_equal(fake_later_count, 3);
	fake_later_kept = true;
	log_lines("one", 0, 3);
	assert_int_equal(dropped_more(), 0);
	fake_later_run();
	assert_int_equal(put_count(), 3);
}

/* The second target has the name of the first, but none of its lines. */
static void test_lines_are_for_one_bucket(void **state)
{
	(void)state;
	log_lines("one", 0, 2);
	log_lines("one", 0, 2);
	ask("DELETE", "/logs", "", "");
	make_target();
	fake_later_run();
	assert_int_equal(put_count(), 0);
	assert_int_equal(dropped_more(), 4);
	/* Nor do its own lines go with those of the first. */
	fake_later_count = 0;
	log_lines("one", 0, 1);
	ask("DELETE", "/logs", "", "");
	make_target();
	log_lines("one", 0, 1);
	fake_later_run();
	assert_int_equal(put_count(), 1);
	assert_int_equal(dropped_more(), 1);
}

/* The grants need the owner of the target's bucket, also that of the first. */
static void test_grants_are_for_one_bucket(void **state)
{
	(void)state;
	logging->grants = SLICE("Ri0123,");
	log_lines("one", 0, 1);
	ask("DELETE", "/logs", "", "");
	make_target();
	fake_later_run();
	assert_int_equal(put_count(), 0);
	assert_int_equal(dropped_more(), 1);
}

/* The server's end does not wait until lines are due. */
static void test_the_end_puts_what_waits(void **state)
{
	(void)state;
	log_lines("one", 0, 10);
	s3_access_log_stop(fake_s3, DEADLINE_NONE);
	assert_int_equal(put_count(), 10);
	assert_int_equal(dropped_more(), 0);
	fake_later_run();
	assert_int_equal(put_count(), 10);
}

static void test_the_end_is_bounded(void **state)
{
	(void)state;
	log_lines("one", 0, 10);
	log_lines("one", 0, 1);
	s3_access_log_stop(fake_s3, 0);
	assert_int_equal(put_count(), 0);
	assert_int_equal(dropped_more(), 11);
	fake_later_run();
	assert_int_equal(put_count(), 0);
	assert_int_equal(dropped_more(), 0);
}

static int tests_run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_few_fibers_put_all, open_all, close_all),
		cmocka_unit_test_setup_teardown(test_targets_are_bounded, open_all, close_all),
		cmocka_unit_test_setup_teardown(
			test_without_a_fiber_lines_are_lost, open_all, close_all),
		cmocka_unit_test_setup_teardown(test_lines_are_for_one_bucket, open_all, close_all),
		cmocka_unit_test_setup_teardown(
			test_grants_are_for_one_bucket, open_all, close_all),
		cmocka_unit_test_setup_teardown(test_the_end_puts_what_waits, open_all, close_all),
		cmocka_unit_test_setup_teardown(test_the_end_is_bounded, open_all, close_all),
	};

	return cmocka_run_group_tests_name("access_log", tests, NULL, NULL);
}

int main(void)
{
	return fake_main(tests_run);
}
