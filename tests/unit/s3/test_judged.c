/* Covers core/judged.c: an object that is changed between the decision about a caller's rights and
 * what these allow. */
#include "../unit.h"

#include <stdio.h>

#include "fake.h"

#define TAGGED(key) \
	"<Tagging><TagSet><Tag><Key>" key "</Key><Value>yes</Value></Tag></TagSet></Tagging>"
#define STATEMENT(effect, action, resource, condition)                        \
	"{\"Effect\":\"" effect "\",\"Principal\":\"*\",\"Action\":\"" action \
	"\",\"Resource\":\"arn:aws:s3:::bkt" resource "\"" condition "}"
#define IF_TAGGED(key) \
	",\"Condition\":{\"StringEquals\":{\"s3:ExistingObjectTag/" key "\":\"yes\"}}"
#define POLICY(statements) "{\"Version\":\"2012-10-17\",\"Statement\":[" statements "]}"

/* Everybody may list; read and edit objects that are tagged as open; put, replace and delete
 * objects that are not tagged as kept; and read sources, but their tags only if they are tagged as
 * open. */
static const char policy[] = POLICY(STATEMENT("Allow", "s3:ListBucket", "", "") "," STATEMENT(
	"Allow", "s3:*Object*", "/open/*", IF_TAGGED("open")) "," STATEMENT("Allow", "s3:*Object*",
	"/free/*", "") "," STATEMENT("Deny", "s3:*Object", "/free/*",
	IF_TAGGED("kept")) "," STATEMENT("Allow", "s3:GetObject", "/source/*",
	"") "," STATEMENT("Allow", "s3:GetObjectTagging", "/source/*", IF_TAGGED("open")));

static struct fake_call call;

static void root(
	const char *method, const char *path, const char *query, const char *body, uint32_t status)
{
	struct fake_call own;

	fake_call_init(&own, method, path, query);
	if (body)
		fake_call_body(&own, slice_str(body));
	fake_call_run(fake_s3, &own);
	assert_int_equal(own.reply.status, status);
	fake_call_free(&own);
}

static int open_all(void **state)
{
	int ret = fake_open(state);

	root("PUT", "/bkt", "", NULL, 200);
	root("DELETE", "/bkt", "publicAccessBlock", NULL, 204);
	root("PUT", "/bkt", "policy", policy, 204);
	root("PUT", "/bkt/open/key", "", "open", 200);
	root("PUT", "/bkt/open/key", "tagging", TAGGED("open"), 200);
	root("PUT", "/bkt/free/key", "", "free", 200);
	root("PUT", "/bkt/source/key", "", "source", 200);
	root("PUT", "/bkt/source/key", "tagging", TAGGED("closed"), 200);
	return ret;
}

static int close_all(void **state)
{
	fake_call_free(&call);
	return fake_close(state);
}

/* ---- The owner's changes. ---- */

static void replace_open(void)
{
	fake_get_ended = NULL;
	root("PUT", "/bkt/open/key", "", "secret", 200);
}

/* The destination of a copy is looked at first. */
static void replace_source(void)
{
	fake_get_ended = replace_open;
}

/* While it is open for its bytes, and before its tags are asked for. */
static void replace_tagged(void)
{
	fake_get_opened = NULL;
	root("PUT", "/bkt/source/key", "", "other", 200);
	root("PUT", "/bkt/source/key", "tagging", TAGGED("open"), 200);
}

static void make_none(void)
{
	fake_get_ended = NULL;
	root("PUT", "/bkt/open/none", "", "secret", 200);
}

static void keep_free(void)
{
	fake_get_ended = NULL;
	root("PUT", "/bkt/free/key", "tagging", TAGGED("kept"), 200);
}

static void keep_awaited(void)
{
	call.awaited = NULL;
	keep_free();
}

/* ---- Everybody's requests, during each of which the owner makes a change. ---- */

static void anybody(const char *method, const char *path, const char *query, const char *body)
{
	fake_call_free(&call);
	fake_call_init(&call, method, path, query);
	if (body)
		fake_call_body(&call, slice_str(body));
	call.request.session = NULL;
}

static void run(uint32_t status, void (*change)(void))
{
	fake_get_ended = change;
	fake_call_run(fake_s3, &call);
	assert_int_equal(call.reply.status, status);
	assert_null(fake_get_ended);
}

static void test_a_read_of_a_replaced_object(void **state)
{
	(void)state;
	anybody("GET", "/bkt/open/key", "", NULL);
	run(200, NULL);
	anybody("GET", "/bkt/open/key", "", NULL);
	run(503, replace_open);
	assert_false(fake_reply_has(&call, "secret"));
	anybody("GET", "/bkt/open/key", "", NULL);
	run(403, NULL);
}

/* A caller who may list is told that there is no object, and gets none that comes to be. */
static void test_a_read_of_an_object_that_was_missing(void **state)
{
	(void)state;
	anybody("GET", "/bkt/open/none", "", NULL);
	run(404, NULL);
	anybody("GET", "/bkt/open/none", "", NULL);
	run(503, make_none);
	assert_false(fake_reply_has(&call, "secret"));
}

static void test_an_edit_of_an_object_that_was_missing(void **state)
{
	(void)state;
	anybody("DELETE", "/bkt/open/none", "tagging", NULL);
	run(404, NULL);
	anybody("DELETE", "/bkt/open/none", "tagging", NULL);
	run(503, make_none);
}

static void test_an_edit_of_a_replaced_object(void **state)
{
	(void)state;
	anybody("DELETE", "/bkt/open/key", "tagging", NULL);
	run(503, replace_open);
}

static void test_a_copy_of_a_replaced_object(void **state)
{
	(void)state;
	anybody("PUT", "/bkt/free/copy", "", NULL);
	fake_call_header(&call, "x-amz-copy-source", "/bkt/open/key");
	run(503, replace_source);
	root("GET", "/bkt/free/copy", "", NULL, 404);
}

static void test_tags_of_a_source_that_is_replaced(void **state)
{
	(void)state;
	anybody("PUT", "/bkt/free/copy", "", NULL);
	fake_call_header(&call, "x-amz-copy-source", "/bkt/source/key");
	run(403, NULL);
	anybody("PUT", "/bkt/free/copy", "", NULL);
	fake_call_header(&call, "x-amz-copy-source", "/bkt/source/key");
	fake_get_opened = replace_tagged;
	run(503, NULL);
	root("GET", "/bkt/free/copy", "", NULL, 404);
	anybody("PUT", "/bkt/free/copy", "", NULL);
	fake_call_header(&call, "x-amz-copy-source", "/bkt/source/key");
	run(200, NULL);
}

static void test_a_deletion_of_an_object_that_is_kept(void **state)
{
	static const char keys[] =
		"<Delete><Object><Key>free/key</Key></Object><Object><Key>free/none</Key></Object>"
		"</Delete>";
	char md5[BASE64_LEN(MD5_BYTES) + 1];
	uint8_t digest[MD5_BYTES];

	(void)state;
	anybody("DELETE", "/bkt/free/key", "", NULL);
	run(503, keep_free);
	root("DELETE", "/bkt/free/key", "tagging", NULL, 204);
	anybody("POST", "/bkt", "delete", keys);
	md5_of(keys, strlen(keys), digest);
	md5[base64_encode(digest, sizeof(digest), md5)] = '\0';
	fake_call_header(&call, "Content-MD5", md5);
	run(200, keep_free);
	assert_true(fake_reply_has(&call, "<Error><Key>free/key</Key><Code>SlowDown</Code>"));
	assert_true(fake_reply_has(&call, "<Deleted><Key>free/none</Key></Deleted>"));
	root("GET", "/bkt/free/key", "", NULL, 200);
}

static void test_a_put_over_an_object_that_is_kept(void **state)
{
	(void)state;
	anybody("PUT", "/bkt/free/key", "", "other");
	run(200, NULL);
	anybody("PUT", "/bkt/free/key", "", "other");
	call.awaited = keep_awaited;
	run(503, NULL);
	anybody("PUT", "/bkt/free/key", "", "other");
	run(403, NULL);
}

static int tests_run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_a_read_of_a_replaced_object, open_all, close_all),
		cmocka_unit_test_setup_teardown(
			test_a_read_of_an_object_that_was_missing, open_all, close_all),
		cmocka_unit_test_setup_teardown(
			test_an_edit_of_an_object_that_was_missing, open_all, close_all),
		cmocka_unit_test_setup_teardown(
			test_an_edit_of_a_replaced_object, open_all, close_all),
		cmocka_unit_test_setup_teardown(
			test_a_copy_of_a_replaced_object, open_all, close_all),
		cmocka_unit_test_setup_teardown(
			test_tags_of_a_source_that_is_replaced, open_all, close_all),
		cmocka_unit_test_setup_teardown(
			test_a_deletion_of_an_object_that_is_kept, open_all, close_all),
		cmocka_unit_test_setup_teardown(
			test_a_put_over_an_object_that_is_kept, open_all, close_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return fake_main(tests_run);
}
