/* tests/unit/store/test_store.c: the calls of the store: round trips around every threshold,
 * replacing, deleting, restarting. */
#include "../abort.h"
#include "rig.h"

#include "store/call/call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t SIZES[] = {0, 1, 100, 2047, 2048, 2049, 4095, 4096, 4097, 8192, 65535, 65536,
	65537, MIB - 1, MIB, MIB + 1, 3 * MIB + 12345, 5 * MIB};

static struct slice key_of(char buf[32], uint64_t i)
{
	snprintf(buf, 32, "key/%06llu", (unsigned long long)i);
	return slice_str(buf);
}

static void sizes_put(struct rig *rig, void *arg)
{
	char buf[32];

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t i = 0; i < ARRAY_LEN(SIZES); i++)
		assert_int_equal(object_put_seeded(rig, "b", key_of(buf, i), SIZES[i], i, NULL), 0);
}

static void sizes_verify(struct rig *rig, void *arg)
{
	char buf[32];

	(void)arg;
	for (uint32_t i = 0; i < ARRAY_LEN(SIZES); i++)
		assert_int_equal(object_verify_seeded(rig, "b", key_of(buf, i), SIZES[i], i), 0);
}

static void unknown_run(struct rig *rig, void *arg)
{
	struct put_how how = {.length_unknown = true};
	char buf[32];

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t i = 0; i < ARRAY_LEN(SIZES); i++)
		assert_int_equal(object_put_seeded(rig, "b", key_of(buf, i), SIZES[i], i, &how), 0);
	sizes_verify(rig, NULL);
}

static void test_a_length_may_be_unknown_at_first(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig_run(&rig, unknown_run, NULL);
	rig_run(&rig, sizes_verify, NULL);
	rig_dir_remove(&rig);
}

static void sizes_both(struct rig *rig, void *arg)
{
	sizes_put(rig, arg);
	sizes_verify(rig, arg);
}

static void test_every_size_survives_a_restart(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig_run(&rig, sizes_both, NULL);
	rig_run(&rig, sizes_verify, NULL);
	rig_dir_remove(&rig);
}

/* ---- Replacing and deleting. ---- */

static void replace_run(struct rig *rig, void *arg)
{
	static const uint64_t CHAIN[] = {100, 5000, 70000, 3 * MIB, 0, 2048, 65536, 10};
	struct store_usage usage;
	struct store_get *get;
	bool exists;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t round = 0; round < 3; round++)
		for (uint32_t i = 0; i < ARRAY_LEN(CHAIN); i++) {
			assert_int_equal(object_put_seeded(rig, "b", SLICE("k"), CHAIN[i],
						 round * 100 + i, NULL),
				0);
			assert_int_equal(object_verify_seeded(
						 rig, "b", SLICE("k"), CHAIN[i], round * 100 + i),
				0);
		}
	store_usage(rig->store, &usage);
	assert_int_equal(usage.objects, 1);
	assert_int_equal(store_bucket_delete(rig->store, SLICE("b"), 0), -ENOTEMPTY);
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("k"), NULL, NULL), 0);
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("k"), NULL, NULL), 0);
	assert_int_equal(
		store_get_open(rig->store, SLICE("b"), SLICE("k"), &get, &exists), -ENOENT);
	assert_true(exists);
	assert_int_equal(
		store_get_open(rig->store, SLICE("x"), SLICE("k"), &get, &exists), -ENOENT);
	assert_false(exists);
	assert_int_equal(store_delete(rig->store, SLICE("x"), SLICE("k"), NULL, NULL), -ENOENT);
	assert_int_equal(store_bucket_delete(rig->store, SLICE("b"), 0), 0);
	assert_int_equal(store_bucket_delete(rig->store, SLICE("b"), 0), -ENOENT);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("k"), 10, 1, NULL), -ENOENT);
}

static void usage_empty(struct rig *rig, void *arg)
{
	struct store_usage usage;

	(void)arg;
	store_usage(rig->store, &usage);
	assert_int_equal(usage.objects, 0);
	assert_int_equal(usage.used_bytes, 0);
	assert_int_equal(usage.buckets, 0);
}

static void test_replacing_and_deleting_give_space_back(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig_run(&rig, replace_run, NULL);
	rig_run(&rig, usage_empty, NULL);
	rig_dir_remove(&rig);
}

/* ---- Metadata. ---- */

#define HEADERS "content-type\0text/plain\0x-amz-meta-a\0b\0"

static void meta_put(struct rig *rig, void *arg)
{
	struct put_how how = {.headers = SLICE(HEADERS)};

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "meta"), 0);
	assert_int_equal(object_put_seeded(rig, "meta", SLICE("k"), 5000, 77, &how), 0);
}

static void meta_verify(struct rig *rig, void *arg)
{
	struct store_bucket bucket;
	const struct store_meta *meta;
	struct store_get *get;
	bool exists;

	(void)arg;
	assert_int_equal(store_bucket_get(rig->store, SLICE("meta"), &bucket), 0);
	assert_string_equal(bucket.name, "meta");
	assert_string_equal(bucket.owner, "root");
	assert_string_equal(bucket.region, "us-east-1");
	assert_true(bucket.created_ns > 0);
	assert_int_equal(store_get_open(rig->store, SLICE("meta"), SLICE("k"), &get, &exists), 0);
	meta = store_get_meta(get);
	assert_int_equal(meta->bytes, 5000);
	assert_int_equal(meta->crc64, 77);
	assert_string_equal(meta->etag, "000000000000004d");
	assert_string_equal(meta->version_id, "null");
	assert_int_equal(meta->headers_len, sizeof(HEADERS) - 1);
	assert_memory_equal(meta->headers, HEADERS, sizeof(HEADERS) - 1);
	store_get_close(get);
}

static void test_metadata_survives_a_restart(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig_run(&rig, meta_put, NULL);
	rig_run(&rig, meta_verify, NULL);
	rig_dir_remove(&rig);
}

/* ---- A reader keeps what it opened. ---- */

static void reader_run(struct rig *rig, void *arg)
{
	uint64_t bytes = *(uint64_t *)arg;
	uint64_t before, after;
	struct store_usage usage;
	struct store_get *get;
	bool exists;

	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("old"), bytes, 1, NULL), 0);
	assert_int_equal(store_get_open(rig->store, SLICE("b"), SLICE("old"), &get, &exists), 0);
	assert_int_equal(rig_place(get, 0, &before), 0);
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("old"), NULL, NULL), 0);
	/* A new write must not land on blocks that are being read. */
	for (uint64_t i = 0; i < 30; i++)
		assert_int_equal(
			object_put_seeded(rig, "b", SLICE("new"), bytes, 100 + i, NULL), 0);
	assert_int_equal(rig_place(get, 0, &after), 0);
	assert_int_equal(before, after);
	store_usage(rig->store, &usage);
	assert_true(usage.used_bytes >= 2 * ALIGN_UP(bytes, (uint64_t)4096));
	store_get_close(get);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("new"), bytes, 129), 0);
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("new"), NULL, NULL), 0);
	assert_int_equal(store_bucket_delete(rig->store, SLICE("b"), 0), 0);
}

static void test_a_reader_keeps_its_extents(void **state)
{
	uint64_t sizes[] = {8192, 2 * MIB, 70 * MIB};

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct rig rig;

		rig_init(&rig, 1);
		if (sizes[i] > 64 * MIB)
			rig.opts.step_bytes = 64 * MIB;
		rig_run(&rig, reader_run, &sizes[i]);
		rig_run(&rig, usage_empty, NULL);
		rig_dir_remove(&rig);
	}
}

/* ---- An object of several segments. ---- */

static void large_put(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("large"), 130 * MIB + 5, 9, NULL), 0);
}

static void large_verify(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("large"), 130 * MIB + 5, 9), 0);
}

static void large_delete(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("large"), NULL, NULL), 0);
	assert_int_equal(store_bucket_delete(rig->store, SLICE("b"), 0), 0);
}

static void test_segments_are_loaded_and_freed(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.step_bytes = 32 * MIB;
	rig_run(&rig, large_put, NULL);
	rig_run(&rig, large_verify, NULL);
	rig_run(&rig, large_delete, NULL);
	rig_run(&rig, usage_empty, NULL);
	rig_dir_remove(&rig);
}

/* ---- Refusals. ---- */

static const uint8_t ZEROS[STORE_CHECK_BYTES];

static void refusals_run(struct rig *rig, void *arg)
{
	struct store_put_opts opts = {.bucket = SLICE("b"), .key = SLICE("k"), .bytes = 100 * KIB};
	struct store_meta meta = {.bytes = 100 * KIB};
	struct store_put *put;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(bucket_make(rig->store, "b"), -EEXIST);
	assert_int_equal(bucket_make(rig->store, ""), -EINVAL);
	assert_int_equal(store_put_open(rig->store, &opts, &put), 0);
	assert_int_equal(
		local_put_chunk(put, 64 * KIB, slice_of(ZEROS, 4096), rig_no_run, NULL), -EINVAL);
	assert_int_equal(
		local_put_chunk(put, 0, slice_of(ZEROS, 200 * KIB), rig_no_run, NULL), -EFBIG);
	assert_int_equal(
		local_put_chunk(put, 0, slice_of(ZEROS, sizeof(ZEROS)), rig_no_run, NULL), 0);
	assert_int_equal(
		local_put_chunk(put, 0, slice_of(ZEROS, sizeof(ZEROS)), rig_no_run, NULL), -EINVAL);
	/* The body is incomplete. */
	assert_int_equal(store_put_commit(put, &meta, NULL, NULL), -EINVAL);
	opts.bytes = LIMIT_PUT_BYTES_MAX + 1;
	assert_int_equal(store_put_open(rig->store, &opts, &put), -EFBIG);
	opts.bytes = 1;
	opts.key = SLICE("");
	assert_int_equal(store_put_open(rig->store, &opts, &put), -EINVAL);
	opts.key = SLICE("k");
	opts.bucket = SLICE("nobody");
	assert_int_equal(store_put_open(rig->store, &opts, &put), -ENOENT);
	opts.bucket = SLICE("b");
	assert_int_equal(store_put_open(rig->store, &opts, &put), 0);
	store_put_abort(put);
	store_put_abort(NULL);
	assert_int_equal(store_bucket_delete(rig->store, SLICE("b"), 0), 0);
}

static void test_refusals_leave_nothing_behind(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig_run(&rig, refusals_run, NULL);
	rig_run(&rig, usage_empty, NULL);
	rig_dir_remove(&rig);
}

/* ---- One store, one process. ---- */

static void second_run(struct rig *rig, void *arg)
{
	struct store_fsck_report report;
	struct store *second;
	struct buf out;

	(void)arg;
	buf_init(&out, 64 * KIB);
	assert_int_equal(store_open(&rig->opts, rig->region, &second), -EBUSY);
	assert_int_equal(store_fsck(rig->dir, false, &report, &out), -EBUSY);
	buf_free(&out);
}

static void test_a_second_opener_is_refused(void **state)
{
	(void)state;
	rig_once(second_run, NULL);
}

/* ---- Many records, little memory: evicted records are loaded from the index. ---- */

#define MANY 3000u

static void many_run(struct rig *rig, void *arg)
{
	char buf[32];
	bool first = *(bool *)arg;

	if (first)
		assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t i = 0; first && i < MANY; i++)
		assert_int_equal(object_put_seeded(rig, "b", key_of(buf, i), i % 600, i, NULL), 0);
	for (uint32_t i = 0; i < MANY; i++)
		assert_int_equal(object_verify_seeded(rig, "b", key_of(buf, i * 7 % MANY),
					 i * 7 % MANY % 600, i * 7 % MANY),
			0);
}

static void test_records_come_back_from_the_index(void **state)
{
	struct rig rig;
	bool first = true;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.record_table_bytes_max = 128 * KIB;
	rig_run(&rig, many_run, &first);
	first = false;
	rig_run(&rig, many_run, &first);
	rig_dir_remove(&rig);
}

static void reserve_run(struct rig *rig, void *arg)
{
	uint64_t *id = (uint64_t *)arg;

	*id = store_bucket_id_reserve(rig->store);
	assert_int_equal(bucket_make(rig->store, "b"), 0);
}

static void reserved_run(struct rig *rig, void *arg)
{
	struct store_bucket bucket = {.name = "late", .id = *(uint64_t *)arg}, got;

	assert_true(store_bucket_id_reserve(rig->store) > bucket.id + 1);
	assert_int_equal(store_bucket_create(rig->store, &bucket), 0);
	assert_int_equal(store_bucket_get(rig->store, SLICE("late"), &got), 0);
	assert_int_equal(got.id, bucket.id);
}

static void test_a_reserved_id_is_nobody_elses(void **state)
{
	struct rig rig;
	uint64_t id = 0;

	(void)state;
	rig_init(&rig, 1);
	rig_run(&rig, reserve_run, &id);
	rig_run(&rig, reserved_run, &id);
	rig_dir_remove(&rig);
}

/* ---- Structs that are closed, or in two places. ---- */

static void aborts_twice(void *arg)
{
	struct store_put *put = (struct store_put *)arg;

	store_put_abort(put);
	store_put_abort(put);
}

static void closes_twice(void *arg)
{
	struct store_get *get = (struct store_get *)arg;

	store_get_close(get);
	store_get_close(get);
}

static void has_frames_and_space(void *arg)
{
	struct store_put *put = (struct store_put *)arg;
	struct region_span span = {.data = (uint8_t *)put, .frame_count = 1};

	local_put_frames_take(put, span, 100);
}

static void find_bugs(struct rig *rig, void *arg)
{
	const struct store_put_opts opts = {
		.bucket = SLICE("b"), .key = SLICE("key"), .bytes = UINT64_MAX};
	struct store_put *put;
	struct store_get *get;
	bool bucket_exists;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("key"), 100, 1, NULL), 0);
	assert_int_equal(
		store_get_open(rig->store, SLICE("b"), SLICE("key"), &get, &bucket_exists), 0);
	abort_expected(closes_twice, get);
	assert_int_equal(store_put_open(rig->store, &opts, &put), 0);
	/* A put appends or composes, never both. */
	assert_int_equal(store_put_append(put, get), 0);
	assert_int_equal(store_put_compose(put, SLICE("b"), SLICE("other"), get), -EINVAL);
	store_get_close(get);
	store_put_abort(put);
	assert_int_equal(store_put_open(rig->store, &opts, &put), 0);
	assert_int_equal(
		local_put_chunk(put, 0, slice_of(ZEROS, sizeof(ZEROS)), rig_no_run, NULL), 0);
	abort_expected(has_frames_and_space, put);
	abort_expected(aborts_twice, put);
	store_put_abort(put);
}

static void test_callers_bugs_are_found(void **state)
{
	(void)state;
	rig_once(find_bugs, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_size_survives_a_restart),
		cmocka_unit_test(test_callers_bugs_are_found),
		cmocka_unit_test(test_a_length_may_be_unknown_at_first),
		cmocka_unit_test(test_replacing_and_deleting_give_space_back),
		cmocka_unit_test(test_metadata_survives_a_restart),
		cmocka_unit_test(test_a_reader_keeps_its_extents),
		cmocka_unit_test(test_segments_are_loaded_and_freed),
		cmocka_unit_test(test_refusals_leave_nothing_behind),
		cmocka_unit_test(test_a_second_opener_is_refused),
		cmocka_unit_test(test_records_come_back_from_the_index),
		cmocka_unit_test(test_a_reserved_id_is_nobody_elses),
	};

	return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
