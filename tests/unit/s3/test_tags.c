/* Covers tags.c: the limits and forms of tags, and their storage with an object. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>

#include "fake.h"
#include "s3/core/stored.h"
#include "s3/core/tags.h"

static struct fake_call call;

static void run(const char *method, const char *path, const char *query, const char *body)
{
	fake_call_free(&call);
	fake_call_init(&call, method, path, query);
	if (body)
		fake_call_body(&call, slice_str(body));
	fake_call_run(fake_s3, &call);
}

static int open_all(void **state)
{
	int ret = fake_open(state);

	run("PUT", "/bkt", "", NULL);
	run("PUT", "/bkt/key", "", "body");
	return ret;
}

static int close_all(void **state)
{
	fake_call_free(&call);
	return fake_close(state);
}

static void test_kept(void **state)
{
	struct s3_tags tags = {
		.count = 2, .items = {{SLICE("a&b"), SLICE("x=1%")}, {SLICE("empty"), SLICE("")}}};
	struct s3_tags again;
	struct mem_arena arena;
	struct slice encoded;

	(void)state;
	mem_arena_init(&arena);
	encoded = s3_tags_encode(&tags, &arena);
	assert_true(slice_eq(encoded, SLICE("a%26b=x%3D1%25&empty=")));
	assert_int_equal(s3_tags_count(encoded), 2);
	assert_int_equal(s3_tags_decode(encoded, &arena, &again), 0);
	assert_int_equal(again.count, 2);
	assert_true(slice_eq(s3_tags_find(&again, SLICE("a&b"))->value, SLICE("x=1%")));
	assert_true(slice_eq(s3_tags_find(&again, SLICE("empty"))->value, SLICE("")));
	assert_null(s3_tags_find(&again, SLICE("none")));
	assert_int_equal(s3_tags_decode(SLICE("a=%4"), &arena, &again), -EINVAL);
	assert_int_equal(
		s3_tags_decode(SLICE("&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&a"),
			&arena, &again),
		-EINVAL);
	tags.count = 0;
	assert_null(s3_tags_encode(&tags, &arena).data);
	mem_arena_free(&arena);
}

#define TAG(key, value) "<Tag><Key>" key "</Key><Value>" value "</Value></Tag>"
#define TAGGING(tags)	"<Tagging><TagSet>" tags "</TagSet></Tagging>"

static void test_object(void **state)
{
	(void)state;
	run("PUT", "/bkt/key", "tagging", TAGGING(TAG("b", "2") TAG("a", "1")));
	assert_int_equal(call.reply.status, 200);
	run("GET", "/bkt/key", "tagging", NULL);
	assert_true(fake_reply_has(&call, TAG("a", "1") TAG("b", "2")));
	run("GET", "/bkt/key", "", NULL);
	assert_true(slice_eq(fake_reply_header(&call, "x-amz-tagging-count"), SLICE("2")));
	assert_int_equal(fake_reply_header(&call, S3_TAGS_HEADER).len, 0);
	run("PUT", "/bkt/key", "tagging", TAGGING(""));
	assert_int_equal(call.reply.status, 200);
	run("GET", "/bkt/key", "", NULL);
	assert_int_equal(fake_reply_header(&call, "x-amz-tagging-count").len, 0);
	run("DELETE", "/bkt/key", "tagging", NULL);
	assert_int_equal(call.reply.status, 204);
}

static void test_refusals(void **state)
{
	static const struct {
		const char *body, *code;
		uint32_t status;
	} rows[] = {
		{"<Tagging>", "MalformedXML", 400},
		{"<Tagging/>", "MalformedXML", 400},
		{"<TagSet/>", "MalformedXML", 400},
		{TAGGING("<Other/>"), "MalformedXML", 400},
		{TAGGING("<Tag><Value>x</Value></Tag>"), "MalformedXML", 400},
		{TAGGING(TAG("", "x")), "InvalidTag", 400},
		{TAGGING(TAG("a", "x") TAG("a", "y")), "InvalidTag", 400},
		{TAGGING(TAG("aws:a", "x")), "InvalidTag", 400},
		{TAGGING(TAG("a!", "x")), "InvalidTag", 400},
		{TAGGING(TAG("a", "x&#9;")), "InvalidTag", 400},
		{TAGGING(TAG("1", "") TAG("2", "") TAG("3", "") TAG("4", "") TAG("5", "") TAG("6",
			 "") TAG("7", "") TAG("8", "") TAG("9", "") TAG("10", "") TAG("11", "")),
			"InvalidTag", 400},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		run("PUT", "/bkt/key", "tagging", rows[i].body);
		assert_int_equal(call.reply.status, rows[i].status);
		assert_true(fake_reply_has(&call, rows[i].code));
	}
	run("PUT", "/bkt/none", "tagging", TAGGING(""));
	assert_int_equal(call.reply.status, 404);
	run("PUT", "/bkt/key", "tagging&versionId=0123456789abcdef", TAGGING(""));
	assert_true(fake_reply_has(&call, "NoSuchVersion"));
	fake_put_error = -ENOSPC;
	run("PUT", "/bkt/key", "tagging", TAGGING(""));
	assert_int_equal(call.reply.status, 507);
	fake_put_error = 0;
}

static void test_hidden(void **state)
{
	struct slice headers = SLICE("content-type\0a/b\0x-nebulaio-one\0"
				     "1\0"),
		     changed;
	struct mem_arena arena;

	(void)state;
	mem_arena_init(&arena);
	assert_true(slice_eq(s3_meta_hidden(headers, SLICE("x-nebulaio-one")), SLICE("1")));
	assert_null(s3_meta_hidden(headers, SLICE("x-nebulaio-two")).data);
	assert_int_equal(
		s3_meta_set_hidden(headers, SLICE("x-nebulaio-two"), SLICE("22"), &arena, &changed),
		0);
	assert_true(slice_eq(s3_meta_hidden(changed, SLICE("x-nebulaio-two")), SLICE("22")));
	assert_int_equal(
		s3_meta_set_hidden(changed, SLICE("x-nebulaio-one"), SLICE(""), &arena, &changed),
		0);
	assert_non_null(s3_meta_hidden(changed, SLICE("x-nebulaio-one")).data);
	assert_int_equal(
		s3_meta_set_hidden(changed, SLICE("x-nebulaio-one"), SLICE_NONE, &arena, &changed),
		0);
	assert_true(slice_eq(changed, SLICE("content-type\0a/b\0x-nebulaio-two\0"
					    "22\0")));
	mem_arena_free(&arena);
}

static uint32_t anonymous(const char *method, const char *path, const char *query, const char *body,
	const char *tagging)
{
	fake_call_free(&call);
	fake_call_init(&call, method, path, query);
	if (body)
		fake_call_body(&call, slice_str(body));
	if (tagging)
		fake_call_header(&call, "x-amz-tagging", tagging);
	call.request.session = NULL;
	fake_call_run(fake_s3, &call);
	return call.reply.status;
}

static uint32_t anonymous_delete(void)
{
	return anonymous("DELETE", "/bkt/key", "", NULL, NULL);
}

/* Everybody may delete what is not tagged as kept. When the tags cannot be looked up, nobody may.
 */
static void test_a_denial_by_tags_outlives_their_loss(void **state)
{
	static const char policy[] =
		"{\"Version\":\"2012-10-17\",\"Statement\":["
		"{\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":\"s3:DeleteObject\","
		"\"Resource\":\"arn:aws:s3:::bkt/*\"},"
		"{\"Effect\":\"Deny\",\"Principal\":\"*\",\"Action\":\"s3:DeleteObject\","
		"\"Resource\":\"arn:aws:s3:::bkt/*\",\"Condition\":{\"StringEquals\":"
		"{\"s3:ExistingObjectTag/kept\":\"yes\"}}}]}";
	static const char tagging[] =
		"<Tagging><TagSet><Tag><Key>kept</Key><Value>yes</Value></Tag>"
		"</TagSet></Tagging>";

	(void)state;
	run("DELETE", "/bkt", "publicAccessBlock", NULL);
	assert_int_equal(call.reply.status, 204);
	run("PUT", "/bkt", "policy", policy);
	assert_int_equal(call.reply.status, 204);
	run("PUT", "/bkt/key", "tagging", tagging);
	assert_int_equal(call.reply.status, 200);
	assert_int_equal(anonymous_delete(), 403);
	fake_get_error = -EIO;
	assert_int_equal(anonymous_delete(), 500);
	fake_get_error = 0;
	run("GET", "/bkt/key", "tagging", NULL);
	assert_int_equal(call.reply.status, 200);
	run("DELETE", "/bkt/key", "tagging", NULL);
	assert_int_equal(anonymous_delete(), 204);
}

/* A caller who may list hears from reads and edits that an object is missing. Writes and deletions,
 * which take effect on a missing object, too, stay refused. */
static void test_a_right_by_tags_is_none_to_create_or_delete(void **state)
{
	static const char policy[] =
		"{\"Version\":\"2012-10-17\",\"Statement\":["
		"{\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":\"s3:ListBucket\","
		"\"Resource\":\"arn:aws:s3:::bkt\"},"
		"{\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":\"s3:PutObject\","
		"\"Resource\":\"arn:aws:s3:::bkt/free\"},"
		"{\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":\"s3:*Object*\","
		"\"Resource\":\"arn:aws:s3:::bkt/*\",\"Condition\":{\"StringEquals\":"
		"{\"s3:ExistingObjectTag/open\":\"yes\"}}}]}";
	static const struct {
		const char *method, *query, *body;
		uint32_t status;
	} rows[] = {
		{"PUT", "", "body", 403},
		{"POST", "uploads", NULL, 403},
		{"PUT", "uploadId=0123456789abcdef&partNumber=1", "body", 403},
		{"DELETE", "", NULL, 403},
		{"GET", "", NULL, 404},
		{"HEAD", "", NULL, 404},
		{"GET", "tagging", NULL, 404},
		{"PUT", "tagging", TAGGING(TAG("a", "1")), 404},
		{"DELETE", "tagging", NULL, 404},
		{"POST", "restore", NULL, 404},
	};

	(void)state;
	run("DELETE", "/bkt", "publicAccessBlock", NULL);
	assert_int_equal(call.reply.status, 204);
	run("PUT", "/bkt", "policy", policy);
	assert_int_equal(call.reply.status, 204);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(
			anonymous(rows[i].method, "/bkt/none", rows[i].query, rows[i].body, NULL),
			rows[i].status);
	run("GET", "/bkt/none", "", NULL);
	assert_int_equal(call.reply.status, 404);
	/* Also by a header of a request that is allowed without it. */
	assert_int_equal(anonymous("PUT", "/bkt/free", "", "body", "open=yes"), 403);
	assert_int_equal(anonymous("PUT", "/bkt/free", "", "body", NULL), 200);
	run("PUT", "/bkt/key", "tagging", TAGGING(TAG("open", "yes")));
	assert_int_equal(anonymous("PUT", "/bkt/key", "", "body", NULL), 200);
}

static int tests_run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kept),
		cmocka_unit_test(test_hidden),
		cmocka_unit_test_setup_teardown(test_object, open_all, close_all),
		cmocka_unit_test_setup_teardown(test_refusals, open_all, close_all),
		cmocka_unit_test_setup_teardown(
			test_a_denial_by_tags_outlives_their_loss, open_all, close_all),
		cmocka_unit_test_setup_teardown(
			test_a_right_by_tags_is_none_to_create_or_delete, open_all, close_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return fake_main(tests_run);
}
