/* tests/unit/store/test_compose.c: an object is composed of the bodies of others, which do not
 * move.
 */
#include "rig.h"

#include "store/call/call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct slice name_of(char buf[32], const char *what, uint32_t idx)
{
	snprintf(buf, 32, "%s/%05u", what, idx);
	return slice_str(buf);
}

/* ---- Uploads. ---- */

struct upload {
	const uint64_t *sizes;
	uint32_t count;
	uint64_t seed; /* part i has seed + i */
	bool plain;    /* parts are put as plain objects, not as composable */
};

static uint64_t upload_bytes(const struct upload *upload)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < upload->count; i++)
		bytes += upload->sizes[i];
	return bytes;
}

/* Several fibers put parts at once. */
#define UPLOAD_FIBERS 64u

struct uploader {
	const struct upload *upload;
	uint32_t first;
};

static void uploader_run(struct rig *rig, void *arg)
{
	const struct uploader *uploader = (const struct uploader *)arg;
	const struct upload *upload = uploader->upload;
	const struct put_how how = {.composable = !upload->plain};
	char buf[32];

	for (uint32_t i = uploader->first; i < upload->count; i += UPLOAD_FIBERS)
		assert_int_equal(object_put_seeded(rig, "parts", name_of(buf, "p", i),
					 upload->sizes[i], upload->seed + i, &how),
			0);
}

static void upload_parts(struct rig *rig, const struct upload *upload)
{
	struct uploader uploaders[UPLOAD_FIBERS];
	uint32_t count = MIN(upload->count, UPLOAD_FIBERS);

	for (uint32_t i = 0; i < count; i++)
		uploaders[i] = (struct uploader){.upload = upload, .first = i};
	rig_fibers(rig, count, uploader_run, uploaders, sizeof(uploaders[0]));
}

/* Adds all parts to a put of the key, in order. */
static int upload_compose(struct rig *rig, const struct upload *upload, struct store_put *put)
{
	int ret = 0;

	for (uint32_t i = 0; i < upload->count && !ret; i++) {
		struct store_get *get;
		char buf[32];
		bool exists;

		ret = store_get_open(
			rig->store, SLICE("parts"), name_of(buf, "p", i), &get, &exists);
		if (ret)
			break;
		ret = store_put_compose(put, SLICE("parts"), slice_str(buf), get);
		store_get_close(get);
	}
	return ret;
}

static struct store_put *put_begin(struct rig *rig, struct slice key)
{
	const struct store_put_opts opts = {.bucket = SLICE("b"), .key = key, .bytes = UINT64_MAX};
	struct store_put *put;

	assert_int_equal(store_put_open(rig->store, &opts, &put), 0);
	return put;
}

static int put_end(struct store_put *put, uint64_t bytes)
{
	struct store_meta meta = {.bytes = bytes, .etag = "whole"};

	return store_put_commit(put, &meta, NULL, NULL);
}

static int complete(struct rig *rig, const struct upload *upload, struct slice key)
{
	struct store_put *put = put_begin(rig, key);
	int ret = upload_compose(rig, upload, put);

	if (ret) {
		store_put_abort(put);
		return ret;
	}
	return put_end(put, upload_bytes(upload));
}

static uint8_t *upload_body(const struct upload *upload)
{
	uint8_t *body = (uint8_t *)malloc(upload_bytes(upload) + 1);
	uint64_t at = 0;

	for (uint32_t i = 0; i < upload->count; i++) {
		body_fill(body + at, upload->sizes[i], upload->seed + i);
		at += upload->sizes[i];
	}
	return body;
}

static void upload_verify(struct rig *rig, const struct upload *upload, struct slice key)
{
	uint64_t bytes = upload_bytes(upload), got;
	uint8_t *body = upload_body(upload), *out = (uint8_t *)malloc(bytes + 1);

	assert_int_equal(object_read(rig, "b", key, out, bytes, &got), 0);
	assert_int_equal(got, bytes);
	assert_memory_equal(out, body, bytes);
	free(body);
	free(out);
}

static void buckets_make(struct rig *rig)
{
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(bucket_make(rig->store, "parts"), 0);
}

/* ---- Every threshold, in order, over a restart. ---- */

static const uint64_t SIZES[] = {2500000, 1, 4095, 0, 4096, 4097, 2048, 65535, 65536, 65537,
	1048575, 1048576, 1048577, 3 * STORE_CHUNK_BYTES, 777};
static const struct upload EVERY = {.sizes = SIZES, .count = ARRAY_LEN(SIZES), .seed = 40};

static void sizes_put(struct rig *rig, void *arg)
{
	uint64_t before;

	(void)arg;
	buckets_make(rig);
	upload_parts(rig, &EVERY);
	before = rig_usage(rig).used_bytes;
	assert_int_equal(rig_usage(rig).objects, ARRAY_LEN(SIZES));
	assert_int_equal(complete(rig, &EVERY, SLICE("k")), 0);
	assert_int_equal(rig_usage(rig).used_bytes, before);
	assert_int_equal(rig_usage(rig).objects, 1);
	assert_int_equal(store_bucket_delete(rig->store, SLICE("parts"), 0), 0);
	upload_verify(rig, &EVERY, SLICE("k"));
}

static void sizes_verify(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(rig_usage(rig).objects, 1);
	upload_verify(rig, &EVERY, SLICE("k"));
	upload_verify(rig, &EVERY, SLICE("k"));
}

static void k_delete(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("k"), NULL, NULL), 0);
	assert_int_equal(store_bucket_delete(rig->store, SLICE("b"), 0), 0);
	assert_int_equal(bucket_make(rig->store, "b"), 0);
}

/* Puts in one life of a store, verifies in the next, and deletes "k" in a third: nothing is left.
 */
static void put_and_verify(rig_fn *put, rig_fn *verify)
{
	struct rig rig;

	rig_init(&rig, 1);
	rig_run(&rig, put, NULL);
	rig_fsck(&rig);
	rig_run(&rig, verify, NULL);
	rig_run(&rig, k_delete, NULL);
	rig_fsck(&rig);
	rig_run(&rig, rig_empty, NULL);
	rig_dir_remove(&rig);
}

static void test_bodies_of_every_size_are_joined(void **state)
{
	(void)state;
	put_and_verify(sizes_put, sizes_verify);
}

/* ---- Bodies of more than one segment, and direct ones, whose rows are made by the commit. ---- */

static const uint64_t LARGE_SIZES[] = {70 * MIB + 3, 100000, 65 * MIB};
static const struct upload LARGE = {
	.sizes = LARGE_SIZES, .count = ARRAY_LEN(LARGE_SIZES), .seed = 7, .plain = true};

static void large_put(struct rig *rig, void *arg)
{
	(void)arg;
	buckets_make(rig);
	upload_parts(rig, &LARGE);
	assert_int_equal(complete(rig, &LARGE, SLICE("k")), 0);
	upload_verify(rig, &LARGE, SLICE("k"));
}

static void large_verify(struct rig *rig, void *arg)
{
	(void)arg;
	upload_verify(rig, &LARGE, SLICE("k"));
}

static void test_segments_go_with_their_bodies(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.step_bytes = 64 * MIB;
	rig_run(&rig, large_put, NULL);
	rig_fsck(&rig);
	rig_run(&rig, large_verify, NULL);
	rig_run(&rig, k_delete, NULL);
	rig_run(&rig, rig_empty, NULL);
	rig_dir_remove(&rig);
}

/* ---- One body, or none, makes a plain object. ---- */

static const uint64_t ONE_SIZE[] = {0, 5 * STORE_CHUNK_BYTES + 5, 0};
static const struct upload ONE = {.sizes = ONE_SIZE, .count = 3, .seed = 3};
static const struct upload NONE = {.sizes = ONE_SIZE, .count = 1, .seed = 3};
static const struct upload ONE_PLAIN = {.sizes = ONE_SIZE, .count = 3, .seed = 3, .plain = true};

static void single_put(struct rig *rig, void *arg)
{
	(void)arg;
	buckets_make(rig);
	upload_parts(rig, &NONE);
	assert_int_equal(complete(rig, &NONE, SLICE("none")), 0);
	upload_parts(rig, &ONE_PLAIN);
	assert_int_equal(complete(rig, &ONE_PLAIN, SLICE("plain")), 0);
	upload_parts(rig, &ONE);
	assert_int_equal(complete(rig, &ONE, SLICE("k")), 0);
	assert_int_equal(rig_usage(rig).objects, 3);
}

static void single_verify(struct rig *rig, void *arg)
{
	(void)arg;
	upload_verify(rig, &NONE, SLICE("none"));
	upload_verify(rig, &ONE_PLAIN, SLICE("plain"));
	upload_verify(rig, &ONE, SLICE("k"));
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("none"), NULL, NULL), 0);
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("plain"), NULL, NULL), 0);
}

static void test_one_body_makes_a_plain_object(void **state)
{
	(void)state;
	put_and_verify(single_put, single_verify);
}

/* ---- Cached chunks of the parts are cached for the composed object. ---- */

static const uint64_t TWO_SIZES[] = {3 * STORE_CHUNK_BYTES + 100, 2 * STORE_CHUNK_BYTES};
static const struct upload TWO = {.sizes = TWO_SIZES, .count = 2, .seed = 20};

static void cached_run(struct rig *rig, void *arg)
{
	static const uint64_t starts[] = {0, STORE_CHUNK_BYTES, 2 * STORE_CHUNK_BYTES,
		3 * STORE_CHUNK_BYTES, 3 * STORE_CHUNK_BYTES + 100, 4 * STORE_CHUNK_BYTES + 100};
	uint8_t *body = upload_body(&TWO);
	struct store_get *get;
	bool exists;

	(void)arg;
	buckets_make(rig);
	upload_parts(rig, &TWO);
	assert_int_equal(complete(rig, &TWO, SLICE("k")), 0);
	assert_int_equal(store_get_open(rig->store, SLICE("b"), SLICE("k"), &get, &exists), 0);
	for (uint32_t i = 0; i < ARRAY_LEN(starts); i++) {
		struct region_span span;

		assert_true(local_get_cached(get, starts[i], &span));
		assert_memory_equal(span.data, body + starts[i], 100);
		region_put(rig->region, span, OWNER_CACHE);
	}
	store_get_close(get);
	k_delete(rig, NULL);
	rig_empty(rig, NULL);
	free(body);
}

static void test_cached_chunks_stay(void **state)
{
	(void)state;
	rig_once(cached_run, NULL);
}

/* ---- A piece belongs to one stretch. ---- */

/* Verifies bytes outside of the region, which are less than a chunk: the cache never takes them. */
static int arrived(struct store_get *get, uint64_t offset, uint8_t *data, uint32_t bytes)
{
	const struct region_span span = {.data = data, .frame_count = region_frames_for(bytes)};
	bool cached;
	int ret = local_get_arrived(get, offset, bytes, span, &cached);

	assert_false(cached);
	return ret;
}

static void stretches_run(struct rig *rig, void *arg)
{
	uint8_t *body = upload_body(&TWO);
	uint64_t second = TWO_SIZES[0], place;
	struct store_stretch stretch;
	struct store_get *get;
	bool exists;

	(void)arg;
	buckets_make(rig);
	upload_parts(rig, &TWO);
	assert_int_equal(complete(rig, &TWO, SLICE("k")), 0);
	assert_int_equal(store_get_open(rig->store, SLICE("b"), SLICE("k"), &get, &exists), 0);
	store_get_stretch(get, second - 1, &stretch);
	assert_int_equal(stretch.start, 0);
	assert_int_equal(stretch.bytes, second);
	store_get_stretch(get, second, &stretch);
	assert_int_equal(stretch.start, second);
	assert_int_equal(stretch.bytes, TWO_SIZES[1]);
	assert_int_equal(local_get_chunk(get, second - 100, 100, rig_no_run, NULL), 0);
	assert_int_equal(local_get_chunk(get, second - 100, 101, rig_no_run, NULL), -ERANGE);
	assert_int_equal(rig_place(get, second + stretch.bytes, &place), -ERANGE);
	assert_int_equal(arrived(get, second, body + second, STORE_CHECK_BYTES), 0);
	assert_int_equal(arrived(get, second - 100, body + second - 100, 200), -EINVAL);
	assert_int_equal(arrived(get, second + 4096, body, 4096), -EINVAL);
	body[second] ^= 1;
	assert_int_equal(arrived(get, second, body + second, STORE_CHECK_BYTES), -EIO);
	store_get_close(get);
	free(body);
}

static void test_stretches(void **state)
{
	(void)state;
	rig_once(stretches_run, NULL);
}

/* ---- All or nothing. ---- */

static void stale_run(struct rig *rig, void *arg)
{
	const struct put_how how = {.composable = true};
	struct store_put *put;
	char buf[32];

	(void)arg;
	buckets_make(rig);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("k"), 5000, 1, NULL), 0);
	for (uint32_t victim = 0; victim < TWO.count; victim++) {
		for (uint32_t replaced = 0; replaced < 2; replaced++) {
			upload_parts(rig, &TWO);
			put = put_begin(rig, SLICE("k"));
			assert_int_equal(upload_compose(rig, &TWO, put), 0);
			name_of(buf, "p", victim);
			assert_int_equal(replaced ? object_put_seeded(rig, "parts", slice_str(buf),
							    TWO_SIZES[victim], 99, &how)
						  : store_delete(rig->store, SLICE("parts"),
							    slice_str(buf), NULL, NULL),
				0);
			assert_int_equal(put_end(put, upload_bytes(&TWO)), -ESTALE);
			assert_int_equal(object_verify_seeded(rig, "b", SLICE("k"), 5000, 1), 0);
			name_of(buf, "p", !victim);
			assert_int_equal(object_verify_seeded(rig, "parts", slice_str(buf),
						 TWO_SIZES[!victim], TWO.seed + !victim),
				0);
		}
	}
	/* Refused at compose. */
	upload_parts(rig, &TWO);
	{
		struct store_get *get;
		bool exists;

		assert_int_equal(store_get_open(rig->store, SLICE("parts"), name_of(buf, "p", 0),
					 &get, &exists),
			0);
		upload_parts(rig, &TWO);
		put = put_begin(rig, SLICE("k"));
		assert_int_equal(
			store_put_compose(put, SLICE("parts"), slice_str(buf), get), -ESTALE);
		store_put_abort(put);
		store_get_close(get);
	}
	/* The same one twice. */
	put = put_begin(rig, SLICE("k"));
	assert_int_equal(upload_compose(rig, &TWO, put), 0);
	assert_int_equal(upload_compose(rig, &TWO, put), 0);
	assert_int_equal(put_end(put, 2 * upload_bytes(&TWO)), -ESTALE);
	/* Two puts compose the same part: one succeeds. */
	put = put_begin(rig, SLICE("k"));
	assert_int_equal(upload_compose(rig, &TWO, put), 0);
	assert_int_equal(complete(rig, &TWO, SLICE("other")), 0);
	assert_int_equal(put_end(put, upload_bytes(&TWO)), -ESTALE);
	upload_verify(rig, &TWO, SLICE("other"));
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("k"), 5000, 1), 0);
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("other"), NULL, NULL), 0);
	k_delete(rig, NULL);
}

static void test_a_changed_part_is_not_composed(void **state)
{
	(void)state;
	rig_once(stale_run, rig_empty);
}

static int refuse(const struct store_meta *current, void *arg)
{
	(void)current;
	(void)arg;
	return -EEXIST;
}

static void refusals_run(struct rig *rig, void *arg)
{
	struct store_meta meta = {.bytes = upload_bytes(&TWO)};
	struct region_span span;
	struct store_put *put;
	struct store_get *get, *joined;
	bool exists;
	char buf[32];

	(void)arg;
	buckets_make(rig);
	upload_parts(rig, &TWO);
	put = put_begin(rig, SLICE("k"));
	assert_int_equal(upload_compose(rig, &TWO, put), 0);
	store_put_abort(put);
	put = put_begin(rig, SLICE("k"));
	assert_int_equal(upload_compose(rig, &TWO, put), 0);
	assert_int_equal(local_put_chunk(put, 0, SLICE("bytes"), rig_no_run, NULL), -EINVAL);
	assert_int_equal(put_end(put, upload_bytes(&TWO) - 1), -EINVAL);
	put = put_begin(rig, SLICE("k"));
	assert_int_equal(upload_compose(rig, &TWO, put), 0);
	assert_int_equal(store_put_commit(put, &meta, refuse, NULL), -EEXIST);
	/* The failures did not change the parts. */
	assert_int_equal(complete(rig, &TWO, SLICE("k")), 0);
	upload_verify(rig, &TWO, SLICE("k"));
	/* A composed object cannot be composed again, nor can a body in the index. */
	assert_int_equal(store_get_open(rig->store, SLICE("b"), SLICE("k"), &joined, &exists), 0);
	put = put_begin(rig, SLICE("other"));
	assert_int_equal(store_put_compose(put, SLICE("b"), SLICE("k"), joined), -EINVAL);
	assert_int_equal(store_put_compose(put, SLICE("nobody"), SLICE("k"), joined), -ENOENT);
	assert_int_equal(object_put_seeded(rig, "parts", name_of(buf, "p", 0), 10, 1, NULL), 0);
	assert_int_equal(
		store_get_open(rig->store, SLICE("parts"), slice_str(buf), &get, &exists), 0);
	assert_int_equal(store_put_compose(put, SLICE("parts"), slice_str(buf), get), -EINVAL);
	store_get_close(get);
	/* A put has bytes or bodies, never both. */
	assert_int_equal(region_lease(rig->region, 1, OWNER_APP, &span), 0);
	local_put_frames_take(put, span, 10);
	assert_int_equal(store_put_drop(put, SLICE("b"), SLICE("k"), joined), -EINVAL);
	store_put_abort(put);
	put = put_begin(rig, SLICE("k"));
	assert_int_equal(store_put_drop(put, SLICE("b"), SLICE("k"), joined), -EINVAL);
	store_put_abort(put);
	store_get_close(joined);
	assert_int_equal(store_delete(rig->store, SLICE("parts"), slice_str(buf), NULL, NULL), 0);
	k_delete(rig, NULL);
}

static void test_refusals_leave_the_parts_alone(void **state)
{
	(void)state;
	rig_once(refusals_run, rig_empty);
}

/* ---- Objects deleted by the commit, and replacing. ---- */

static void replace_run(struct rig *rig, void *arg)
{
	struct store_put *put;
	struct store_get *get;
	uint64_t once;
	bool exists;

	(void)arg;
	buckets_make(rig);
	for (uint64_t i = 0; i < 6; i++) {
		assert_int_equal(
			object_put_seeded(rig, "parts", SLICE("record"), 3000 * i, 1, NULL), 0);
		assert_int_equal(
			store_get_open(rig->store, SLICE("parts"), SLICE("record"), &get, &exists),
			0);
		upload_parts(rig, i % 2 ? &TWO : &EVERY);
		put = put_begin(rig, SLICE("k"));
		assert_int_equal(upload_compose(rig, i % 2 ? &TWO : &EVERY, put), 0);
		assert_int_equal(store_put_drop(put, SLICE("parts"), SLICE("record"), get), 0);
		assert_int_equal(put_end(put, upload_bytes(i % 2 ? &TWO : &EVERY)), 0);
		store_get_close(get);
		assert_int_equal(
			store_get_open(rig->store, SLICE("parts"), SLICE("record"), &get, &exists),
			-ENOENT);
		upload_verify(rig, i % 2 ? &TWO : &EVERY, SLICE("k"));
		assert_int_equal(rig_usage(rig).objects, 1);
	}
	/* A composed object that another commit drops is deleted with its bodies. */
	assert_int_equal(store_get_open(rig->store, SLICE("b"), SLICE("k"), &get, &exists), 0);
	upload_parts(rig, &ONE);
	put = put_begin(rig, SLICE("other"));
	assert_int_equal(upload_compose(rig, &ONE, put), 0);
	assert_int_equal(store_put_drop(put, SLICE("b"), SLICE("k"), get), 0);
	assert_int_equal(put_end(put, upload_bytes(&ONE)), 0);
	store_get_close(get);
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("other"), NULL, NULL), 0);
	rig_empty(rig, NULL);
	/* Replaced by a plain object. */
	upload_parts(rig, &EVERY);
	assert_int_equal(complete(rig, &EVERY, SLICE("k")), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("k"), 8192, 5, NULL), 0);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("k"), 8192, 5), 0);
	rig_index_wait(rig);
	once = rig_usage(rig).used_bytes;
	assert_int_equal(once, 8192);
	k_delete(rig, NULL);
}

static void test_replacing_gives_all_space_back(void **state)
{
	(void)state;
	rig_once(replace_run, rig_empty);
}

/* ---- A reader of a part, while the part is composed and the object deleted. ---- */

static void reader_run(struct rig *rig, void *arg)
{
	uint64_t before, after;
	struct store_get *get;
	bool exists;
	char buf[32];

	(void)arg;
	buckets_make(rig);
	upload_parts(rig, &TWO);
	assert_int_equal(
		store_get_open(rig->store, SLICE("parts"), name_of(buf, "p", 1), &get, &exists), 0);
	assert_int_equal(rig_place(get, 0, &before), 0);
	assert_int_equal(complete(rig, &TWO, SLICE("k")), 0);
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("k"), NULL, NULL), 0);
	for (uint64_t i = 0; i < 20; i++)
		assert_int_equal(
			object_put_seeded(rig, "b", SLICE("k"), TWO_SIZES[1], 100 + i, NULL), 0);
	assert_int_equal(rig_place(get, 0, &after), 0);
	assert_int_equal(before, after);
	assert_true(rig_usage(rig).used_bytes >= TWO_SIZES[1] + upload_bytes(&TWO));
	store_get_close(get);
	k_delete(rig, NULL);
}

static void test_a_reader_of_a_part_keeps_its_extents(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig_run(&rig, reader_run, NULL);
	rig_run(&rig, rig_empty, NULL);
	rig_dir_remove(&rig);
}

/* The part's segments are not in memory when it is composed, and no longer in the index when the
 * reader needs them. */
static void late_reader_run(struct rig *rig, void *arg)
{
	struct store_get *get;
	uint64_t place;
	bool exists;
	char buf[32];

	(void)arg;
	assert_int_equal(
		store_get_open(rig->store, SLICE("parts"), name_of(buf, "p", 1), &get, &exists), 0);
	assert_int_equal(complete(rig, &TWO, SLICE("k")), 0);
	k_delete(rig, NULL);
	rig_index_wait(rig);
	assert_int_equal(rig_place(get, STORE_CHUNK_BYTES, &place), 0);
	store_get_close(get);
}

static void parts_only(struct rig *rig, void *arg)
{
	(void)arg;
	buckets_make(rig);
	upload_parts(rig, &TWO);
}

static void test_a_late_reader_asks_the_composed_object(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig_run(&rig, parts_only, NULL);
	rig_run(&rig, late_reader_run, NULL);
	rig_fsck(&rig);
	rig_run(&rig, rig_empty, NULL);
	rig_dir_remove(&rig);
}

/* ---- The maximum number of parts. ---- */

static uint64_t tiny_sizes[STORE_PARTS_MAX + 1];
static struct upload tiny = {.sizes = tiny_sizes, .count = STORE_PARTS_MAX, .seed = 1000};

static void tiny_put(struct rig *rig, void *arg)
{
	struct store_put *put;
	struct store_get *get;
	bool exists;
	char buf[32];

	(void)arg;
	buckets_make(rig);
	tiny.count = STORE_PARTS_MAX + 1;
	upload_parts(rig, &tiny);
	tiny.count = STORE_PARTS_MAX;
	put = put_begin(rig, SLICE("k"));
	assert_int_equal(upload_compose(rig, &tiny, put), 0);
	assert_int_equal(store_get_open(rig->store, SLICE("parts"),
				 name_of(buf, "p", STORE_PARTS_MAX), &get, &exists),
		0);
	assert_int_equal(store_put_compose(put, SLICE("parts"), slice_str(buf), get), -EFBIG);
	store_get_close(get);
	assert_int_equal(put_end(put, upload_bytes(&tiny)), 0);
	assert_int_equal(store_delete(rig->store, SLICE("parts"), slice_str(buf), NULL, NULL), 0);
	assert_int_equal(rig_usage(rig).objects, 1);
}

static void tiny_verify(struct rig *rig, void *arg)
{
	(void)arg;
	upload_verify(rig, &tiny, SLICE("k"));
}

static void test_ten_thousand_bodies(void **state)
{
	struct rig rig;

	(void)state;
	for (uint32_t i = 0; i <= STORE_PARTS_MAX; i++)
		tiny_sizes[i] = 1 + i % 100;
	rig_init(&rig, 1);
	rig_run(&rig, tiny_put, NULL);
	rig_fsck(&rig);
	rig_run(&rig, tiny_verify, NULL);
	rig_run(&rig, k_delete, NULL);
	rig_fsck(&rig);
	rig_run(&rig, rig_empty, NULL);
	rig_dir_remove(&rig);
}

/* More than the log can take at once: refused as a whole. */
static void log_full_run(struct rig *rig, void *arg)
{
	struct slice keys[12];
	char buf[32], names[ARRAY_LEN(keys)][32];
	int results[ARRAY_LEN(keys)];

	(void)arg;
	buckets_make(rig);
	tiny.count = 4000;
	upload_parts(rig, &tiny);
	assert_int_equal(complete(rig, &tiny, SLICE("k")), -EFBIG);
	assert_int_equal(rig_usage(rig).objects, tiny.count);
	assert_int_equal(object_verify_seeded(rig, "parts", name_of(buf, "p", 3999),
				 tiny_sizes[3999], tiny.seed + 3999),
		0);
	tiny.count = 700;
	for (uint32_t i = 0; i < ARRAY_LEN(keys); i++) {
		upload_parts(rig, &tiny);
		keys[i] = name_of(names[i], "joined", i);
		assert_int_equal(complete(rig, &tiny, keys[i]), 0);
	}
	upload_verify(rig, &tiny, keys[0]);
	/* Together the parts have more rows than a group can delete. */
	assert_int_equal(
		store_delete_many(rig->store, SLICE("b"), keys, ARRAY_LEN(keys), results), 0);
	for (uint32_t i = 0; i < ARRAY_LEN(keys); i++)
		assert_int_equal(results[i], 0);
	assert_int_equal(rig_usage(rig).objects, 4000 - 700);
	tiny.count = STORE_PARTS_MAX;
}

static void test_more_than_the_log_takes(void **state)
{
	(void)state;
	rig_once_with_log(256 * KIB, log_full_run);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bodies_of_every_size_are_joined),
		cmocka_unit_test(test_segments_go_with_their_bodies),
		cmocka_unit_test(test_one_body_makes_a_plain_object),
		cmocka_unit_test(test_cached_chunks_stay),
		cmocka_unit_test(test_stretches),
		cmocka_unit_test(test_a_changed_part_is_not_composed),
		cmocka_unit_test(test_refusals_leave_the_parts_alone),
		cmocka_unit_test(test_replacing_gives_all_space_back),
		cmocka_unit_test(test_a_reader_of_a_part_keeps_its_extents),
		cmocka_unit_test(test_a_late_reader_asks_the_composed_object),
		cmocka_unit_test(test_ten_thousand_bodies),
		cmocka_unit_test(test_more_than_the_log_takes),
	};

	return cmocka_run_group_tests_name("compose", tests, NULL, NULL);
}
