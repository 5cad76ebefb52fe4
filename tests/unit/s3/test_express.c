/* Covers directory buckets: op/rename_object.c: a request that is sent again with its client token,
 * because its answer was lost, moves nothing a second time; and the ETags of copies. */
#include "../unit.h"

#include <errno.h>

#include "fake.h"

#define BUCKET "/base--az--x-s3"
#define BUCKET_XML                                                                   \
	"<CreateBucketConfiguration><Location><Name>az</Name><Type>AvailabilityZone" \
	"</Type></Location><Bucket><Type>Directory</Type><DataRedundancy>"           \
	"SingleAvailabilityZone</DataRedundancy></Bucket></CreateBucketConfiguration>"

static struct fake_call call; /* the last one */

static void begin(const char *method, const char *path, const char *query)
{
	fake_call_free(&call);
	fake_call_init(&call, method, path, query);
}

static void run(uint32_t status, const char *code)
{
	fake_call_run(fake_s3, &call);
	if (call.reply.status != status)
		fail_msg("%s answered %u: %.*s", call.request.path.data, call.reply.status,
			(int)call.reply_body.len, call.reply_body.data);
	if (code)
		assert_true(fake_reply_has(&call, code));
}

static void put(const char *path, const char *text)
{
	begin("PUT", path, "");
	fake_call_body(&call, slice_str(text));
	run(200, NULL);
}

static void holds(const char *path, const char *text)
{
	begin("GET", path, "");
	run(text ? 200 : 404, text ? NULL : "NoSuchKey");
	if (text)
		assert_true(slice_eq(buf_slice(&call.reply_body), slice_str(text)));
}

/* From "a" to "b". */
static void rename_begin(const char *token)
{
	begin("PUT", BUCKET "/b", "renameObject");
	fake_call_header(&call, "x-amz-rename-source", "a");
	if (token)
		fake_call_header(&call, "x-amz-client-token", token);
}

static void rename_a(const char *token, uint32_t status, const char *code)
{
	rename_begin(token);
	run(status, code);
}

static int open_all(void **state)
{
	const struct s3_opts opts = {.express = true};

	(void)state;
	if (fake_open_with(&opts))
		return -1;
	begin("PUT", BUCKET, "");
	fake_call_body(&call, SLICE(BUCKET_XML));
	run(200, NULL);
	put(BUCKET "/a", "first");
	return 0;
}

static int close_all(void **state)
{
	fake_call_free(&call);
	fake_get_error = 0;
	fake_get_opened = fake_get_ended = NULL;
	return fake_close(state);
}

static void test_a_retry_does_not_move_the_source_s_next_object(void **state)
{
	(void)state;
	rename_a("T", 200, NULL);
	put(BUCKET "/a", "second");
	rename_a("T", 200, NULL);
	holds(BUCKET "/a", "second");
	holds(BUCKET "/b", "first");
	/* Its conditions on the target and the source do not count: the first one satisfied them.
	 */
	rename_begin("T");
	fake_call_header(&call, "If-None-Match", "*");
	fake_call_header(&call, "x-amz-rename-source-if-match", "\"of the first\"");
	run(200, NULL);
	holds(BUCKET "/a", "second");
	holds(BUCKET "/b", "first");
	/* Other requests do rename: without a token, with another one, from another key, or when
	 * the target was written since. */
	rename_a(NULL, 200, NULL);
	holds(BUCKET "/b", "second");
	put(BUCKET "/a", "third");
	rename_a("T", 200, NULL);
	holds(BUCKET "/b", "third");
	put(BUCKET "/a", "fourth");
	rename_a("U", 200, NULL);
	holds(BUCKET "/b", "fourth");
	put(BUCKET "/c", "fifth");
	begin("PUT", BUCKET "/b", "renameObject");
	fake_call_header(&call, "x-amz-rename-source", "c");
	fake_call_header(&call, "x-amz-client-token", "U");
	run(200, NULL);
	holds(BUCKET "/b", "fifth");
	put(BUCKET "/b", "sixth");
	put(BUCKET "/c", "seventh");
	begin("PUT", BUCKET "/b", "renameObject");
	fake_call_header(&call, "x-amz-rename-source", "c");
	fake_call_header(&call, "x-amz-client-token", "U");
	run(200, NULL);
	holds(BUCKET "/b", "seventh");
}

/* ---- The first request is still on its way when the second one comes. ---- */

static bool written_again;

static void rename_first(void)
{
	struct fake_call second = call;

	fake_get_opened = fake_get_ended = NULL;
	fake_call_init(&call, "GET", "/", "");
	rename_a("T", 200, NULL);
	if (written_again)
		put(BUCKET "/a", "second");
	fake_call_free(&call);
	call = second;
}

static void check_overtaken(void)
{
	assert_null(fake_get_opened);
	assert_null(fake_get_ended);
	holds(BUCKET "/a", written_again ? "second" : NULL);
	holds(BUCKET "/b", "first");
}

/* The first one ends when the second one has found no mark, and goes on to open the source. */
static void test_done_before_the_source_is_opened(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		begin("DELETE", BUCKET "/b", "");
		run(204, NULL);
		put(BUCKET "/a", "first");
		written_again = i > 0;
		rename_begin("T");
		if (i == 2)
			fake_call_header(&call, "x-amz-rename-source-if-match", "\"of the first\"");
		fake_get_ended = rename_first;
		run(200, NULL);
		check_overtaken();
	}
}

static void test_done_before_the_commit(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		begin("DELETE", BUCKET "/b", "");
		run(204, NULL);
		put(BUCKET "/a", "first");
		written_again = i > 0;
		rename_begin("T");
		fake_get_opened = rename_first;
		run(200, NULL);
		check_overtaken();
	}
}

/* ---- The target cannot be read. ---- */

static uint32_t gets_left;

static void fail_gets(void)
{
	if (--gets_left)
		return;
	fake_get_ended = NULL;
	fake_get_error = -EIO;
}

/* Nobody knows then whether the request was done: it is neither refused nor done again. */
static void test_unknown_whether_it_was_done(void **state)
{
	(void)state;
	rename_a("T", 200, NULL);
	put(BUCKET "/a", "second");
	fake_get_error = -EIO;
	rename_a("T", 500, "InternalError");
	fake_get_error = -ENOMEM;
	rename_a("T", 503, "SlowDown");
	fake_get_error = 0;
	holds(BUCKET "/a", "second");
	holds(BUCKET "/b", "first");
	/* It fails when the source was not found, and the target is looked at again. */
	begin("DELETE", BUCKET "/a", "");
	run(204, NULL);
	gets_left = 2;
	rename_begin("U");
	fake_get_ended = fail_gets;
	run(500, "InternalError");
}

/* ---- Copies. ---- */

static void copy(const char *path, const char *source, bool md5)
{
	begin("PUT", path, "");
	fake_call_header(&call, "x-amz-copy-source", source);
	run(200, NULL);
	begin("HEAD", path, "");
	run(200, NULL);
	assert_int_equal(fake_reply_header(&call, "etag").len == 2 * MD5_BYTES + 2, md5);
}

static void test_copies_have_no_md5s(void **state)
{
	(void)state;
	begin("PUT", "/plain", "");
	run(200, NULL);
	put("/plain/key", "body");
	assert_int_equal(fake_reply_header(&call, "etag").len, 2 * MD5_BYTES + 2);
	copy(BUCKET "/copy", "plain/key", false);
	copy(BUCKET "/again", BUCKET "/copy", false);
	copy("/plain/back", BUCKET "/again", true);
	copy("/plain/again", "plain/back", true);
	holds("/plain/again", "body");
}

static int tests_run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_a_retry_does_not_move_the_source_s_next_object, open_all, close_all),
		cmocka_unit_test_setup_teardown(
			test_done_before_the_source_is_opened, open_all, close_all),
		cmocka_unit_test_setup_teardown(test_done_before_the_commit, open_all, close_all),
		cmocka_unit_test_setup_teardown(
			test_unknown_whether_it_was_done, open_all, close_all),
		cmocka_unit_test_setup_teardown(test_copies_have_no_md5s, open_all, close_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return fake_main(tests_run);
}
