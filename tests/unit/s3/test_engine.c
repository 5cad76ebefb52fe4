/* Covers store/api.h, the contract of a storage engine: buckets, writing, conditions, reading. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

/* ---- Buckets. ---- */

struct names {
	char text[200];
	uint32_t left; /* to be visited */
};

static bool name_add(const struct store_bucket *bucket, void *arg)
{
	struct names *names = (struct names *)arg;
	size_t len = strlen(names->text);

	snprintf(names->text + len, sizeof(names->text) - len, "%s ", bucket->name);
	return --names->left > 0;
}

static void assert_buckets(const char *after, uint32_t count, const char *expected)
{
	struct names names = {.left = count};

	assert_int_equal(store_bucket_list(store, slice_str(after), name_add, &names), 0);
	assert_string_equal(names.text, expected);
}

static void test_buckets(void **state)
{
	struct store_bucket bucket = {.name = "second",
		.created_ns = 77,
		.owner = "me",
		.region = "here",
		.flags = STORE_BUCKET_CLOSED};
	struct store_bucket got;
	uint64_t id;

	(void)state;
	assert_int_equal(store_bucket_create(store, &bucket), 0);
	assert_int_equal(store_bucket_create(store, &bucket), -EEXIST);
	assert_int_equal(store_bucket_get(store, SLICE("second"), &got), 0);
	assert_string_equal(got.name, "second");
	assert_string_equal(got.owner, "me");
	assert_string_equal(got.region, "here");
	assert_int_equal(got.created_ns, 77);
	assert_int_equal(got.flags, STORE_BUCKET_CLOSED);
	assert_int_equal(got.versioning, STORE_VERSIONING_NEVER);
	id = got.id;
	assert_int_equal(bucket_make(""), -EINVAL);
	assert_int_equal(bucket_make("a"), 0);
	assert_int_equal(bucket_make("bb"), 0);
	assert_int_equal(store_bucket_get(store, SLICE("bbb"), &got), -ENOENT);
	assert_buckets("", 10, "a b bb second ");
	assert_buckets("b", 10, "bb second ");
	assert_buckets("aa", 1, "b ");
	assert_int_equal(store_bucket_delete(store, SLICE("second"), 0), 0);
	assert_int_equal(store_bucket_delete(store, SLICE("second"), 0), -ENOENT);
	assert_buckets("bb", 10, "");
	assert_int_equal(store_bucket_create(store, &bucket), 0);
	assert_int_equal(store_bucket_get(store, SLICE("second"), &got), 0);
	assert_int_not_equal(got.id, id);
	bucket = (struct store_bucket){.name = "later", .id = store_bucket_id_reserve(store)};
	assert_int_equal(bucket_make("between"), 0);
	assert_int_equal(store_bucket_create(store, &bucket), 0);
	assert_int_equal(store_bucket_get(store, SLICE("later"), &got), 0);
	assert_int_equal(got.id, bucket.id);
	assert_int_equal(store_bucket_get(store, SLICE("between"), &got), 0);
	assert_int_not_equal(got.id, bucket.id);
	put_small("key", 1);
	assert_int_equal(store_bucket_delete(store, SLICE("b"), 0), -ENOTEMPTY);
	assert_int_equal(key_delete("key"), 0);
	assert_int_equal(store_bucket_delete(store, SLICE("b"), 0), 0);
}

static void test_bucket_edit(void **state)
{
	struct bucket_edit edit = {STORE_VERSIONING_ENABLED, STORE_BUCKET_LOCK, -EPERM};
	struct store_bucket got;

	(void)state;
	assert_int_equal(store_bucket_edit(store, SLICE("none"), bucket_change, &edit), -ENOENT);
	assert_int_equal(store_bucket_edit(store, SLICE("b"), bucket_change, &edit), -EPERM);
	assert_int_equal(store_bucket_get(store, SLICE("b"), &got), 0);
	assert_int_equal(got.versioning, STORE_VERSIONING_NEVER);
	assert_int_equal(got.flags, 0);
	edit.decision = 0;
	assert_int_equal(store_bucket_edit(store, SLICE("b"), bucket_change, &edit), 0);
	assert_int_equal(versioning_set(STORE_VERSIONING_NEVER), -EINVAL);
	assert_int_equal(store_bucket_get(store, SLICE("b"), &got), 0);
	assert_int_equal(got.versioning, STORE_VERSIONING_ENABLED);
	assert_int_equal(got.flags, STORE_BUCKET_LOCK);
	assert_string_equal(got.owner, "root");
	/* A delete marker counts as content, too. */
	assert_int_equal(key_delete("never was"), 0);
	assert_int_equal(store_bucket_delete(store, SLICE("b"), 0), -ENOTEMPTY);
}

/* ---- Writing. ---- */

static const uint64_t SIZES[] = {0, 1, 2000, STORE_GROUPED_BYTES_MAX, STORE_GROUPED_BYTES_MAX + 1,
	STORE_CHUNK_BYTES, 3 * STORE_CHUNK_BYTES + 5};

static void test_put(void **state)
{
	const struct slice headers = SLICE("content-type\0text/plain\0x-amz-meta-a\0\0");
	uint64_t mtime_ns = 0;

	(void)state;
	for (uint32_t i = 0; i < 2 * ARRAY_LEN(SIZES); i++) {
		struct object_put what = {.key = "key",
			.bytes = SIZES[i / 2],
			.seed = i + 1,
			.length_unknown = i % 2,
			.headers = headers};
		const struct store_meta *meta;
		struct store_get *get;

		assert_int_equal(put_object(&what), 0);
		get = get_of("key");
		meta = store_get_meta(get);
		assert_body(get, what.bytes, what.seed);
		assert_string_equal(meta->etag, what.meta.etag);
		assert_int_equal(meta->crc64, what.seed);
		assert_true(slice_eq(slice_of(meta->headers, meta->headers_len), headers));
		assert_string_equal(meta->version_id, "null");
		assert_string_equal(what.meta.version_id, "null");
		assert_false(meta->delete_marker);
		assert_int_equal(meta->mtime_ns, what.meta.mtime_ns);
		assert_true(meta->mtime_ns >= mtime_ns && meta->mtime_ns > 0);
		mtime_ns = meta->mtime_ns;
		store_get_close(get);
	}
}

static void test_put_refused(void **state)
{
	static char longest[LIMIT_KEY_LEN_MAX + 1], headers[STORE_HEADERS_BYTES_MAX + 1];
	struct object_put what = {.key = "key", .headers = slice_of(headers, sizeof(headers))};
	struct store_meta meta = {.bytes = 4};
	struct store_put *put;

	(void)state;
	memset(longest, 'k', sizeof(longest));
	assert_int_equal(put_open("none", SLICE("key"), 1, &put), -ENOENT);
	assert_int_equal(put_open("b", SLICE(""), 1, &put), -EINVAL);
	assert_int_equal(put_open("b", slice_of(longest, sizeof(longest)), 1, &put), -EINVAL);
	assert_int_equal(put_open("b", SLICE("key"), LIMIT_PUT_BYTES_MAX + 1, &put), -EFBIG);
	assert_int_equal(put_object(&what), -EINVAL);

	/* Fewer bytes than the metadata says. */
	assert_int_equal(put_open("b", SLICE("key"), 4, &put), 0);
	assert_int_equal(bytes_move(put, (const uint8_t *)"abc", 3, 3), 0);
	assert_int_equal(store_put_commit(put, &meta, NULL, NULL), -EINVAL);
	/* A body that is too short, and one that is too long. */
	assert_int_equal(put_open("b", SLICE("key"), 4, &put), 0);
	assert_int_equal(bytes_move(put, (const uint8_t *)"abc", 3, 4), -EPIPE);
	store_put_abort(put);
	assert_int_equal(put_open("b", SLICE("key"), 4, &put), 0);
	assert_int_equal(bytes_move(put, (const uint8_t *)"abcde", 5, 4), -EMSGSIZE);
	store_put_abort(put);
	assert_gone(NULL, "key");

	/* A bucket that is deleted during a put. */
	assert_int_equal(bucket_make("going"), 0);
	assert_int_equal(put_open("going", SLICE("key"), 4, &put), 0);
	assert_int_equal(bytes_move(put, (const uint8_t *)"abcd", 4, 4), 0);
	assert_int_equal(store_bucket_delete(store, SLICE("going"), 0), 0);
	assert_int_equal(store_put_commit(put, &meta, NULL, NULL), -ENOENT);
	assert_int_equal(put_open("b", slice_of(longest, LIMIT_KEY_LEN_MAX), 0, &put), 0);
	meta.bytes = 0;
	assert_int_equal(bytes_move(put, (const uint8_t *)"", 0, 0), 0);
	assert_int_equal(store_put_commit(put, &meta, NULL, NULL), 0);
}

static void test_abort(void **state)
{
	uint8_t *body = body_of(2 * MIB, 9);
	uint64_t number;
	struct store_put *put;

	(void)state;
	store_put_abort(NULL);
	put_small("key", 1);
	for (uint32_t i = 0; i < ARRAY_LEN(SIZES) - 1; i++) {
		assert_int_equal(put_open("b", SLICE("key"), SIZES[i], &put), 0);
		if (i)
			assert_true(store_put_body_number(put) != number);
		number = store_put_body_number(put);
		assert_int_equal(bytes_move(put, body, SIZES[i], SIZES[i]), 0);
		assert_holds("key", 40, 1);
		store_put_abort(put);
		assert_holds("key", 40, 1);
	}
	free(body);
}

static void test_conditions(void **state)
{
	struct sight sight = {.decision = -EEXIST};
	struct object_put what = {
		.key = "key", .bytes = 70, .seed = 5, .check = see, .arg = &sight};

	(void)state;
	assert_int_equal(put_object(&what), -EEXIST);
	assert_false(sight.something);
	assert_gone(NULL, "key");
	sight.decision = 0;
	assert_int_equal(put_object(&what), 0);
	what.seed = 6;
	sight.decision = -EPERM;
	assert_int_equal(put_object(&what), -EPERM);
	assert_true(sight.something);
	assert_string_equal(sight.meta.etag, "5");
	assert_int_equal(sight.meta.bytes, 70);
	assert_holds("key", 70, 5);
	assert_int_equal(store_delete(store, SLICE("b"), SLICE("key"), see, &sight), -EPERM);
	assert_holds("key", 70, 5);
	sight.decision = 0;
	assert_int_equal(store_delete(store, SLICE("b"), SLICE("key"), see, &sight), 0);
	assert_int_equal(store_delete(store, SLICE("b"), SLICE("key"), see, &sight), 0);
	assert_false(sight.something);
	assert_int_equal(sight.calls, 6);
}

/* ---- Reading. ---- */

static void test_ranges(void **state)
{
	static const uint64_t RANGES[][2] = {{0, 0}, {0, 1}, {1, 65535}, {65535, 2},
		{STORE_CHUNK_BYTES - 1, 2}, {7, 2 * STORE_CHUNK_BYTES}, {3 * STORE_CHUNK_BYTES, 5},
		{3 * STORE_CHUNK_BYTES + 5, 0}};
	struct object_put what = {.key = "key", .bytes = 3 * STORE_CHUNK_BYTES + 5, .seed = 3};
	uint8_t *body = body_of(what.bytes, what.seed);
	struct store_stretch stretch;
	struct store_get *get;

	(void)state;
	assert_int_equal(put_object(&what), 0);
	get = get_of("key");
	for (uint32_t i = 0; i < ARRAY_LEN(RANGES); i++)
		assert_range(get, body, RANGES[i][0], RANGES[i][1]);
	store_get_stretch(get, 2 * STORE_CHUNK_BYTES, &stretch);
	assert_int_equal(stretch.start, 0);
	assert_int_equal(stretch.bytes, what.bytes);
	store_get_close(get);
	free(body);
}

static void test_snapshot(void **state)
{
	struct store_get *gets[3], *get;
	bool exists = true;

	(void)state;
	assert_int_equal(
		store_get_open(store, SLICE("none"), SLICE("key"), &get, &exists), -ENOENT);
	assert_false(exists);
	assert_gone(NULL, "key");
	store_get_close(NULL);
	for (uint32_t i = 0; i < 3; i++) {
		struct object_put what = {
			.key = "key", .bytes = i ? i * 1500000 : 300, .seed = i + 1};

		assert_int_equal(put_object(&what), 0);
		gets[i] = get_of("key");
	}
	assert_int_equal(key_delete("key"), 0);
	assert_int_equal(store_bucket_delete(store, SLICE("b"), 0), 0);
	for (uint32_t i = 0; i < 3; i++) {
		assert_body(gets[i], i ? i * 1500000 : 300, i + 1);
		store_get_close(gets[i]);
	}
}

static void test_tags(void **state)
{
	static const uint64_t BYTES[] = {100, STORE_CHECK_BYTES, STORE_CHUNK_BYTES + 3};
	uint8_t tag[STORE_TAG_BYTES], got[STORE_TAG_BYTES];

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(BYTES); i++) {
		uint8_t *body = body_of(BYTES[i], 1);
		struct store_meta meta = {.bytes = BYTES[i]};
		struct store_put *put;
		struct store_get *get;

		assert_int_equal(put_open("b", SLICE("key"), BYTES[i], &put), 0);
		assert_int_equal(store_put_tagged(put, STORE_CHECK_BYTES, tag), -EINVAL);
		for (uint64_t at = 0; at < BYTES[i]; at += STORE_CHECK_BYTES) {
			memset(tag, (int)(at / STORE_CHECK_BYTES + i), sizeof(tag));
			assert_int_equal(store_put_tagged(put, at, tag), 0);
		}
		assert_int_equal(bytes_move(put, body, BYTES[i], BYTES[i]), 0);
		assert_int_equal(store_put_commit(put, &meta, NULL, NULL), 0);
		get = get_of("key");
		assert_body(get, BYTES[i], 1);
		for (uint64_t at = 0; at < BYTES[i]; at += STORE_CHECK_BYTES) {
			memset(tag, (int)(at / STORE_CHECK_BYTES + i), sizeof(tag));
			assert_int_equal(store_get_tag(get, at, got), 0);
			assert_memory_equal(got, tag, sizeof(tag));
		}
		store_get_close(get);
		free(body);
	}
}

static void test_tags_refused(void **state)
{
	uint8_t tag[STORE_TAG_BYTES] = {1}, *body = body_of(STORE_CHUNK_BYTES, 1);
	struct store_meta meta = {.bytes = STORE_CHUNK_BYTES};
	struct store_put *put;
	struct store_get *get;

	(void)state;
	/* One piece has a tag and others have none. */
	assert_int_equal(put_open("b", SLICE("key"), meta.bytes, &put), 0);
	assert_int_equal(store_put_tagged(put, 0, tag), 0);
	assert_int_equal(bytes_move(put, body, meta.bytes, meta.bytes), 0);
	assert_int_equal(store_put_commit(put, &meta, NULL, NULL), -EINVAL);
	assert_gone(NULL, "key");
	free(body);
	put_small("key", 1);
	get = get_of("key");
	assert_int_equal(store_get_tag(get, 0, tag), -ENOENT);
	store_get_close(get);
	assert_int_equal(put_object(&(struct object_put){.key = "key"}), 0);
	get = get_of("key");
	assert_int_equal(store_get_tag(get, 0, tag), -ENOENT);
	store_get_close(get);
}

static int tests_run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_buckets, open_store, close_store),
		cmocka_unit_test_setup_teardown(test_bucket_edit, open_store, close_store),
		cmocka_unit_test_setup_teardown(test_put, open_store, close_store),
		cmocka_unit_test_setup_teardown(test_put_refused, open_store, close_store),
		cmocka_unit_test_setup_teardown(test_abort, open_store, close_store),
		cmocka_unit_test_setup_teardown(test_conditions, open_store, close_store),
		cmocka_unit_test_setup_teardown(test_ranges, open_store, close_store),
		cmocka_unit_test_setup_teardown(test_snapshot, open_store, close_store),
		cmocka_unit_test_setup_teardown(test_tags, open_store, close_store),
		cmocka_unit_test_setup_teardown(test_tags_refused, open_store, close_store),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return fake_main(tests_run);
}
