/* tests/unit/store/test_append.c: appends and renames. */
#include "rig.h"

#include "store/call/call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Every kind of base, every kind of appended body, over a restart. ---- */

static const uint64_t SIZES[] = {1, 2048, 2049, 4096, 65536, 65537, 1048577};

static struct slice key_of(char buf[32], uint32_t first, uint32_t pieces)
{
	snprintf(buf, 32, "%u-%u", first, pieces);
	return slice_str(buf);
}

static void sizes_put(struct rig *rig, void *arg)
{
	char buf[32];

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t i = 0; i < ARRAY_LEN(SIZES); i++)
		for (uint32_t pieces = 2; pieces < 5; pieces++)
			assert_int_equal(object_grow_seeded(rig, "b", key_of(buf, i, pieces),
						 SIZES[i] * pieces, i, pieces),
				0);
}

static void sizes_verify(struct rig *rig, void *arg)
{
	char buf[32];

	(void)arg;
	assert_int_equal(rig_usage(rig).objects, 3 * ARRAY_LEN(SIZES));
	for (uint32_t i = 0; i < ARRAY_LEN(SIZES); i++)
		for (uint32_t pieces = 2; pieces < 5; pieces++)
			assert_int_equal(object_verify_seeded(rig, "b", key_of(buf, i, pieces),
						 SIZES[i] * pieces, i),
				0);
}

static void sizes_delete(struct rig *rig, void *arg)
{
	char buf[32];

	(void)arg;
	for (uint32_t i = 0; i < ARRAY_LEN(SIZES); i++)
		for (uint32_t pieces = 2; pieces < 5; pieces++)
			assert_int_equal(store_delete(rig->store, SLICE("b"),
						 key_of(buf, i, pieces), NULL, NULL),
				0);
}

static void test_bodies_of_every_size(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig_run(&rig, sizes_put, NULL);
	rig_fsck(&rig);
	rig_run(&rig, sizes_verify, NULL);
	rig_run(&rig, sizes_delete, NULL);
	rig_fsck(&rig);
	rig_run(&rig, rig_empty, NULL);
	rig_dir_remove(&rig);
}

/* ---- Refusals leave everything as it was. ---- */

static int refuse(const struct store_meta *current, void *arg)
{
	(void)arg;
	return current ? -ECANCELED : -ENOENT;
}

static int frames_put(struct rig *rig, struct slice key, const struct store_get *get,
	store_check_fn *check, uint64_t bytes)
{
	const struct store_put_opts opts = {.bucket = SLICE("b"), .key = key, .bytes = 10};
	struct store_meta meta = {.bytes = bytes, .etag = "x"};
	struct region_span span;
	struct store_put *put;
	int ret;

	assert_int_equal(store_put_open(rig->store, &opts, &put), 0);
	ret = store_put_append(put, get);
	if (ret) {
		store_put_abort(put);
		return ret;
	}
	assert_int_equal(store_put_append(put, get), -EINVAL);
	assert_int_equal(region_lease(rig->region, 1, OWNER_APP, &span), 0);
	memset(span.data, 'x', 10);
	local_put_frames_take(put, span, 10);
	return store_put_commit(put, &meta, check, NULL);
}

static void refusals_run(struct rig *rig, void *arg)
{
	/* In the index, and on the volume. */
	static const uint64_t bases[] = {100, 10000};
	const struct store_condition refused = {.check = refuse}, none = {0};
	const struct store_name from = {.bucket = SLICE("b"), .key = SLICE("k")};
	struct store_get *get, *other;
	bool exists;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t i = 0; i < ARRAY_LEN(bases); i++) {
		uint64_t used;

		assert_int_equal(object_put_seeded(rig, "b", SLICE("k"), bases[i], 1, NULL), 0);
		assert_int_equal(object_put_seeded(rig, "b", SLICE("o"), bases[i], 2, NULL), 0);
		assert_int_equal(
			store_get_open(rig->store, SLICE("b"), SLICE("k"), &get, &exists), 0);
		assert_int_equal(
			store_get_open(rig->store, SLICE("b"), SLICE("o"), &other, &exists), 0);
		used = rig_usage(rig).used_bytes;
		assert_int_equal(
			frames_put(rig, SLICE("k"), get, refuse, bases[i] + 10), -ECANCELED);
		assert_int_equal(frames_put(rig, SLICE("k"), other, NULL, bases[i] + 10), -ESTALE);
		assert_int_equal(frames_put(rig, SLICE("k"), get, NULL, bases[i] + 9), -EINVAL);
		assert_int_equal(frames_put(rig, SLICE("k"), get, NULL, 10), -EINVAL);
		assert_int_equal(
			store_rename(rig->store, &from, get, SLICE("o"), SLICE_NONE, refused),
			-ECANCELED);
		assert_int_equal(
			store_rename(rig->store, &from, other, SLICE("n"), SLICE_NONE, none),
			-ESTALE);
		assert_int_equal(store_rename(rig->store, &from, get, SLICE("k"), SLICE_NONE, none),
			-EINVAL);
		assert_int_equal(rig_usage(rig).used_bytes, used);
		assert_int_equal(rig_usage(rig).objects, 2);
		assert_int_equal(object_verify_seeded(rig, "b", SLICE("k"), bases[i], 1), 0);
		assert_int_equal(object_verify_seeded(rig, "b", SLICE("o"), bases[i], 2), 0);
		store_get_close(get);
		store_get_close(other);
	}
	assert_int_equal(store_get_open(rig->store, SLICE("b"), SLICE("k"), &get, &exists), 0);
	assert_int_equal(versioning_set(rig, "b", STORE_VERSIONING_ENABLED), 0);
	assert_int_equal(frames_put(rig, SLICE("k"), get, NULL, bases[1] + 10), -EINVAL);
	assert_int_equal(
		store_rename(rig->store, &from, get, SLICE("n"), SLICE_NONE, none), -EINVAL);
	store_get_close(get);
}

static void test_refusals(void **state)
{
	(void)state;
	rig_once(refusals_run, NULL);
}

/* ---- A reader keeps the object that it opened. ---- */

static void readers_run(struct rig *rig, void *arg)
{
	static const uint64_t bases[] = {100, 10000, 3 * STORE_CHUNK_BYTES};
	const struct store_condition none = {0};
	const struct store_name from = {.bucket = SLICE("b"), .key = SLICE("k")};
	struct store_get *before, *between;
	uint8_t tail[100] = {0};
	bool exists;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t i = 0; i < ARRAY_LEN(bases); i++) {
		assert_int_equal(object_put_seeded(rig, "b", SLICE("k"), bases[i], 1, NULL), 0);
		assert_int_equal(
			store_get_open(rig->store, SLICE("b"), SLICE("k"), &before, &exists), 0);
		assert_int_equal(object_append(rig, "b", SLICE("k"), tail, sizeof(tail)), 0);
		assert_int_equal(
			store_get_open(rig->store, SLICE("b"), SLICE("k"), &between, &exists), 0);
		assert_int_equal(
			store_rename(rig->store, &from, between, SLICE("n"), SLICE_NONE, none), 0);
		assert_int_equal(store_get_meta(between)->bytes, bases[i] + sizeof(tail));
		assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("n"), NULL, NULL), 0);
		assert_int_equal(get_verify_seeded(rig, before, 1), 0);
		assert_true(rig_usage(rig).used_bytes > 0);
		store_get_close(before);
		store_get_close(between);
		rig_empty(rig, NULL);
	}
}

static void test_readers(void **state)
{
	(void)state;
	rig_once(readers_run, NULL);
}

/* ---- As many bodies as an object can have. ---- */

static void many_run(struct rig *rig, void *arg)
{
	const uint32_t joined = STORE_PARTS_MAX - 5;
	uint8_t piece[3] = "abc";
	uint8_t *got = (uint8_t *)malloc(STORE_PARTS_MAX * 3);
	uint64_t bytes;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(bucket_make(rig->store, "parts"), 0);
	assert_int_equal(object_join_seeded(rig, "b", SLICE("k"), 3 * joined, 1, joined), 0);
	for (uint32_t i = joined; i < STORE_PARTS_MAX; i++)
		assert_int_equal(object_append(rig, "b", SLICE("k"), piece, 3), 0);
	assert_int_equal(object_append(rig, "b", SLICE("k"), piece, 3), -E2BIG);
	assert_int_equal(object_read(rig, "b", SLICE("k"), got, STORE_PARTS_MAX * 3, &bytes), 0);
	assert_int_equal(bytes, STORE_PARTS_MAX * 3);
	for (uint32_t i = joined; i < STORE_PARTS_MAX; i++)
		assert_memory_equal(got + (size_t)3 * i, piece, 3);
	free(got);
}

static void test_ten_thousand_bodies(void **state)
{
	(void)state;
	rig_once_with_log(16 * MIB, many_run);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bodies_of_every_size),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_readers),
		cmocka_unit_test(test_ten_thousand_bodies),
	};

	return cmocka_run_group_tests_name("append", tests, NULL, NULL);
}
