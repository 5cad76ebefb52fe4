/* Covers document.c and settings.c: named documents, and the settings of buckets. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>

#include "fake.h"
#include "s3/core/settings.h"

static struct mem_arena arena;

static int open_all(void **state)
{
	mem_arena_init(&arena);
	return fake_open(state);
}

static int open_express(void **state)
{
	const struct s3_opts opts = {.express = true};

	(void)state;
	mem_arena_init(&arena);
	return fake_open_with(&opts);
}

static int close_all(void **state)
{
	mem_arena_free(&arena);
	return fake_close(state);
}

static int put(const char *name, const char *text, uint64_t owner, const char *expected)
{
	const struct document document = {.text = slice_str(text), .owner = owner};

	return document_put(fake_store, &fake_core, slice_str(name), &document, expected);
}

static int get(const char *name, struct document *ret_document)
{
	return document_get(fake_store, &fake_core, slice_str(name), &arena, ret_document);
}

static void test_documents(void **state)
{
	const struct store_bucket bucket = {.name = "owner", .owner = "root"};
	struct document document, again;
	struct store_bucket owner;

	(void)state;
	assert_int_equal(store_bucket_create(fake_store, &bucket), 0);
	assert_int_equal(store_bucket_get(fake_store, SLICE("owner"), &owner), 0);
	assert_int_equal(get("i/a", &document), -ENOENT);
	assert_int_equal(put("i/a", "", 0, "0123"), -ESTALE);
	assert_int_equal(put("i/a", "one", owner.id, ""), 0);
	assert_int_equal(put("i/a", "two", 0, ""), -EEXIST);
	assert_int_equal(get("i/a", &document), 0);
	assert_string_equal(document.text.data, "one");
	assert_int_equal(document.text.len, 3);
	assert_true(document.owner == owner.id);
	assert_int_equal(put("i/a", "two", 0, document.stamp), 0);
	assert_int_equal(put("i/a", "three", 0, document.stamp), -ESTALE);
	assert_int_equal(get("i/a", &again), 0);
	assert_string_equal(again.text.data, "two");
	assert_string_not_equal(again.stamp, document.stamp);
	assert_int_equal(put("i/a", "", 0, NULL), 0);
	assert_int_equal(get("i/a", &again), 0);
	assert_int_equal(again.text.len, 0);
	assert_int_equal(document_delete(fake_store, SLICE("i/a")), 0);
	assert_int_equal(document_delete(fake_store, SLICE("i/a")), 0);
	assert_int_equal(get("i/a", &again), -ENOENT);
}

static void test_document_errors(void **state)
{
	static char large[DOCUMENT_BYTES_MAX + 1];
	struct document document = {.text = slice_of(large, sizeof(large))};

	(void)state;
	assert_int_equal(
		document_put(fake_store, &fake_core, SLICE("i/a"), &document, NULL), -EFBIG);
	document.text.len--;
	assert_int_equal(document_put(fake_store, &fake_core, SLICE("i/a"), &document, NULL), 0);
	assert_int_equal(get("i/a", &document), 0);
	assert_int_equal(document.text.len, DOCUMENT_BYTES_MAX);
	fake_put_error = -ENOSPC;
	assert_int_equal(put("i/a", "", 0, NULL), -ENOSPC);
	fake_put_error = 0;
	fake_commit_error = -EIO;
	assert_int_equal(put("i/a", "", 0, NULL), -EIO);
	fake_commit_error = 0;
	fake_read_error = -EIO;
	assert_int_equal(get("i/a", &document), -EIO);
	fake_read_error = 0;
}

struct seen {
	uint32_t count, count_max;
	char first[DOCUMENT_NAME_MAX + 1], last[DOCUMENT_NAME_MAX + 1];
};

static bool see(struct slice name, void *arg)
{
	struct seen *seen = arg;

	if (!seen->count++)
		slice_copy_str(name, seen->first, sizeof(seen->first));
	slice_copy_str(name, seen->last, sizeof(seen->last));
	return seen->count < seen->count_max;
}

static void test_many_documents(void **state)
{
	struct seen seen = {.count_max = UINT32_MAX};
	char name[32];

	(void)state;
	assert_int_equal(document_list(fake_store, SLICE("i/"), SLICE_NONE, see, &seen), 0);
	assert_int_equal(seen.count, 0);
	for (int i = 0; i < 2500; i++) {
		snprintf(name, sizeof(name), "i/%05d", i);
		assert_int_equal(put(name, "x", 0, NULL), 0);
	}
	put("j/a", "x", 0, NULL);
	assert_int_equal(document_list(fake_store, SLICE("i/"), SLICE_NONE, see, &seen), 0);
	assert_int_equal(seen.count, 2500);
	assert_string_equal(seen.last, "i/02499");
	seen = (struct seen){.count_max = 1200};
	assert_int_equal(document_list(fake_store, SLICE("i/"), SLICE("i/00099"), see, &seen), 0);
	assert_int_equal(seen.count, 1200);
	assert_string_equal(seen.first, "i/00100");
	assert_int_equal(document_delete_all(fake_store, SLICE("i/"), 0), 0);
	seen = (struct seen){.count_max = UINT32_MAX};
	assert_int_equal(document_list(fake_store, SLICE_NONE, SLICE_NONE, see, &seen), 0);
	assert_int_equal(seen.count, 1);
	assert_string_equal(seen.first, "j/a");
}

static uint32_t ask(const char *method, const char *path, const char *query)
{
	struct fake_call call;
	uint32_t status;

	fake_call_init(&call, method, path, query);
	fake_call_run(fake_s3, &call);
	status = call.reply.status;
	fake_call_free(&call);
	return status;
}

static struct slice tags_of(struct slice bucket, uint64_t *ret_id)
{
	struct s3_settings *settings;
	struct slice text;

	assert_int_equal(s3_settings_get(fake_s3, &fake_core, bucket, &settings), 0);
	text = mem_arena_copy(&arena, settings->documents[S3_CONFIG_TAGGING]);
	if (!settings->documents[S3_CONFIG_TAGGING].data)
		text = SLICE_NONE;
	*ret_id = settings->bucket.id;
	s3_settings_put(settings);
	return text;
}

static void test_settings(void **state)
{
	struct s3_settings *settings, *held;
	struct document document;
	uint64_t id, next_id;

	(void)state;
	assert_int_equal(s3_settings_get(fake_s3, &fake_core, SLICE("one"), &settings), -ENOENT);
	assert_int_equal(ask("PUT", "/one", ""), 200);
	assert_null(tags_of(SLICE("one"), &id).data);
	assert_int_equal(put("b/one/tagging", "first", id, NULL), 0);
	/* No change was announced. */
	assert_null(tags_of(SLICE("one"), &id).data);
	s3_settings_changed(fake_s3, SLICE("one"));
	assert_string_equal(tags_of(SLICE("one"), &id).data, "first");
	assert_int_equal(ask("GET", "/one", "tagging"), 200);
	assert_int_equal(s3_settings_get(fake_s3, &fake_core, SLICE("one"), &held), 0);
	assert_int_equal(ask("DELETE", "/one", "tagging"), 204);
	assert_int_equal(ask("GET", "/one", "tagging"), 404);
	assert_string_equal(held->documents[S3_CONFIG_TAGGING].data, "first");
	s3_settings_put(held);

	/* The documents of a deleted bucket do not belong to the next bucket of its name. */
	assert_int_equal(put("b/one/tagging", "left", id, NULL), 0);
	assert_int_equal(store_bucket_delete(fake_store, SLICE("one"), id), 0);
	assert_int_equal(put("b/one/tagging", "late", id, NULL), -ENOENT);
	assert_int_equal(ask("PUT", "/one", ""), 200);
	assert_int_equal(put("b/one/tagging", "late", id, NULL), -ENOENT);
	assert_null(tags_of(SLICE("one"), &next_id).data);
	assert_true(next_id != id);
	assert_int_equal(ask("GET", "/one", "tagging"), 404);
	/* And what is deleted late is not the next bucket's. */
	assert_int_equal(put("b/one/tagging", "next", next_id, NULL), 0);
	assert_int_equal(document_delete_of(fake_store, SLICE("b/one/tagging"), id), 0);
	assert_int_equal(document_delete_all(fake_store, SLICE("b/one/"), id), 0);
	s3_settings_changed(fake_s3, SLICE("one"));
	assert_string_equal(tags_of(SLICE("one"), &id).data, "next");
	assert_int_equal(document_delete_of(fake_store, SLICE("b/one/tagging"), id), 0);
	assert_int_equal(get("b/one/tagging", &document), -ENOENT);
}

static void test_bucket_end(void **state)
{
	struct document document;
	uint64_t id, more_id;

	(void)state;
	assert_int_equal(ask("PUT", "/one", ""), 200);
	assert_int_equal(ask("PUT", "/one.more", ""), 200);
	tags_of(SLICE("one.more"), &more_id);
	tags_of(SLICE("one"), &id);
	assert_int_equal(put("b/one/tagging", "x", id, NULL), 0);
	assert_int_equal(put("b/one/unknown", "x", id, NULL), 0);
	assert_int_equal(put("b/one.more/tagging", "x", more_id, NULL), 0);
	assert_int_equal(ask("DELETE", "/one", ""), 204);
	assert_int_equal(get("b/one/tagging", &document), -ENOENT);
	assert_int_equal(get("b/one/unknown", &document), -ENOENT);
	assert_int_equal(get("b/one.more/tagging", &document), 0);
}

static void put_versioning(const char *text, uint32_t status)
{
	struct fake_call call;
	char xml[128];

	snprintf(xml, sizeof(xml),
		"<VersioningConfiguration><Status>%s</Status></VersioningConfiguration>", text);
	fake_call_init(&call, "PUT", "/one", "versioning");
	fake_call_body(&call, slice_str(xml));
	fake_call_run(fake_s3, &call);
	assert_int_equal(call.reply.status, status);
	fake_call_free(&call);
}

static uint8_t versioning(void)
{
	struct s3_settings *settings;
	uint8_t is;

	assert_int_equal(s3_settings_get(fake_s3, &fake_core, SLICE("one"), &settings), 0);
	is = settings->bucket.versioning;
	s3_settings_put(settings);
	return is;
}

/* A change of the bucket itself counts, also if its document is not stored or stays the same. */
static void test_bucket_changes(void **state)
{
	(void)state;
	assert_int_equal(ask("PUT", "/one", ""), 200);
	put_versioning("Enabled", 200);
	assert_int_equal(versioning(), STORE_VERSIONING_ENABLED);
	fake_put_error = -ENOSPC;
	put_versioning("Suspended", 507);
	fake_put_error = 0;
	assert_int_equal(versioning(), STORE_VERSIONING_SUSPENDED);
	put_versioning("Enabled", 200);
	assert_int_equal(versioning(), STORE_VERSIONING_ENABLED);
}

static void test_more_buckets_than_remembered(void **state)
{
	uint64_t id, first_id = 0;
	char name[32];

	(void)state;
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < 1500; i++) {
			snprintf(name, sizeof(name), "/bucket-%d", i);
			if (!round)
				assert_int_equal(ask("PUT", name, ""), 200);
			tags_of(slice_str(name + 1), &id);
			if (!i && !round)
				first_id = id;
			assert_int_equal(id, first_id + (uint64_t)i);
		}
}

/* A valid document of nearly the largest size: rules with long ids and prefixes. */
static struct slice many_rules(void)
{
	struct buf xml;
	struct slice text;

	buf_init(&xml, DOCUMENT_BYTES_MAX);
	buf_put_str(&xml, "<LifecycleConfiguration>");
	for (int i = 0; i < 1000; i++)
		buf_printf(&xml,
			"<Rule><ID>%0200d</ID><Status>Enabled</Status><Filter><Prefix>%0600d"
			"</Prefix></Filter><Expiration><Days>1</Days></Expiration></Rule>",
			i, i);
	buf_put_str(&xml, "</LifecycleConfiguration>");
	assert_false(xml.failed);
	text = mem_arena_copy(&arena, buf_slice(&xml));
	buf_free(&xml);
	return text;
}

static void value_of(const struct counter *counter, void *arg)
{
	if (!strcmp(counter->name, "nebulaio_settings_cached_bytes"))
		*(uint64_t *)arg = counter_read(counter);
}

/* Whether the cache still has them. */
static bool are_cached(struct slice bucket)
{
	struct s3_settings *settings, *again;
	bool same;

	assert_int_equal(s3_settings_get(fake_s3, &fake_core, bucket, &settings), 0);
	assert_int_equal(s3_settings_get(fake_s3, &fake_core, bucket, &again), 0);
	same = settings == again;
	s3_settings_put(settings);
	s3_settings_put(again);
	return same;
}

/* Large settings of many buckets have a bound, and do not push out those of ordinary buckets. */
static void test_large_settings(void **state)
{
	struct document document = {.text = many_rules()};
	struct s3_settings *ordinary, *settings;
	uint64_t bytes = 0;
	char name[64];

	(void)state;
	assert_int_equal(ask("PUT", "/ordinary", ""), 200);
	assert_int_equal(s3_settings_get(fake_s3, &fake_core, SLICE("ordinary"), &ordinary), 0);
	for (int i = 0; i < 30; i++) {
		snprintf(name, sizeof(name), "/bucket-%d", i);
		assert_int_equal(ask("PUT", name, ""), 200);
		tags_of(slice_str(name + 1), &document.owner);
		snprintf(name, sizeof(name), "b/bucket-%d/lifecycle", i);
		assert_int_equal(
			document_put(fake_store, &fake_core, slice_str(name), &document, NULL), 0);
		snprintf(name, sizeof(name), "bucket-%d", i);
		s3_settings_changed(fake_s3, slice_str(name));
		assert_int_equal(
			s3_settings_get(fake_s3, &fake_core, slice_str(name), &settings), 0);
		assert_non_null(settings->parsed[S3_CONFIG_LIFECYCLE]);
		assert_true(settings->bytes > MIB);
		s3_settings_put(settings);
		counter_visit(value_of, &bytes);
		assert_in_range(bytes, MIB, 32 * MIB);
		assert_true(are_cached(slice_str(name)));
	}
	assert_true(bytes > 16 * MIB);
	assert_int_equal(ordinary->references, 2);
	s3_settings_put(ordinary);
	assert_true(are_cached(SLICE("ordinary")));
}

#define DIRECTORY                                                                            \
	"<CreateBucketConfiguration><Location><Type>AvailabilityZone</Type><Name>az1</Name>" \
	"</Location><Bucket><Type>Directory</Type></Bucket></CreateBucketConfiguration>"
#define LIFECYCLE(inside)                                                                  \
	"<LifecycleConfiguration><Rule><ID>r</ID><Status>Enabled</Status><Filter/>" inside \
	"</Rule></LifecycleConfiguration>"
#define MOVE "<Transition><Days>1</Days><StorageClass>GLACIER</StorageClass></Transition>"

static uint32_t put_to(const char *path, const char *query, const char *body)
{
	struct fake_call call;
	uint32_t status;

	fake_call_init(&call, "PUT", path, query);
	fake_call_body(&call, slice_str(body));
	fake_call_run(fake_s3, &call);
	status = call.reply.status;
	fake_call_free(&call);
	return status;
}

/* Objects of directory buckets have one class. */
static void test_lifecycle_of_directory_buckets(void **state)
{
	(void)state;
	assert_int_equal(put_to("/dir--az1--x-s3", "", DIRECTORY), 200);
	assert_int_equal(put_to("/dir--az1--x-s3", "lifecycle",
				 LIFECYCLE("<Expiration><Days>1</Days></Expiration>")),
		200);
	assert_int_equal(put_to("/dir--az1--x-s3", "lifecycle", LIFECYCLE(MOVE)), 400);
	assert_int_equal(put_to("/other", "", ""), 200);
	assert_int_equal(put_to("/other", "lifecycle", LIFECYCLE(MOVE)), 200);
}

static int tests_run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_documents, open_all, close_all),
		cmocka_unit_test_setup_teardown(test_document_errors, open_all, close_all),
		cmocka_unit_test_setup_teardown(test_many_documents, open_all, close_all),
		cmocka_unit_test_setup_teardown(test_settings, open_all, close_all),
		cmocka_unit_test_setup_teardown(test_bucket_end, open_all, close_all),
		cmocka_unit_test_setup_teardown(test_bucket_changes, open_all, close_all),
		cmocka_unit_test_setup_teardown(
			test_more_buckets_than_remembered, open_all, close_all),
		cmocka_unit_test_setup_teardown(test_large_settings, open_all, close_all),
		cmocka_unit_test_setup_teardown(
			test_lifecycle_of_directory_buckets, open_express, close_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return fake_main(tests_run);
}
