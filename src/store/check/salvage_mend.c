/* store/check/salvage_mend.c: removes from the index the partial effects of lost groups: records
 * without their body's rows, objects whose space belongs to other objects now, rows that no record
 * names, objects of unknown buckets. Blocks. */
#include "store/check/check.h"
#include "store/index/index.h"
#include "store/log/journal.h"
#include "store/log/key.h"
#include "store/object/object.h"
#include "store/object/record.h"
#include "store/space/space.h"
#include "store/state/state.h"
#include "store/table/table.h"
#include "store/volume/volume.h"

#include <endian.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_BYTES MIB

struct mend {
	struct store *store;
	struct salvage *salvage;
	struct group *batch;  /* mutations that are not in the index yet */
	struct space *used;   /* blocks that objects name */
	struct space *shared; /* blocks that more than one object names */
	bool any_shared;
	uint8_t *piece; /* STORE_CHECK_BYTES, aligned */
	uint64_t *ids;	/* bodies that records name */
	size_t id_count, id_cap;
	int ret;
};

/* ---- Changes. ---- */

static int batch_flush(struct mend *mend)
{
	struct state_record state;
	int ret;

	if (!mend->batch->count)
		return 0;
	ret = index_state_read(mend->store->index, &state);
	if (!ret)
		ret = index_write_group(
			mend->store->index, slice_of(mend->batch->bytes, mend->batch->len), &state);
	group_reset(mend->batch);
	return ret;
}

static void row_change(
	struct mend *mend, enum mutation_op op, const struct key *key, struct slice value)
{
	if (!mend->ret)
		mend->ret = group_reserve(mend->batch, MUTATION_BYTES(key->len, value.len), 0);
	if (mend->ret)
		return;
	memcpy(group_add(mend->batch, op, 0, key, value.len), value.len ? value.data : "",
		value.len);
	if (mend->batch->len >= BATCH_BYTES)
		mend->ret = batch_flush(mend);
}

static void row_delete(struct mend *mend, struct slice row)
{
	struct key key = {.len = (uint32_t)row.len};

	if (row.len > KEY_BYTES_MAX)
		return;
	memcpy(key.bytes, row.data, row.len);
	row_change(mend, MUTATION_DELETE, &key, SLICE_NONE);
}

static void object_remove(struct mend *mend, struct slice row, const char *why)
{
	struct buf *out = mend->salvage->out;
	struct bucket *bucket = NULL;
	uint64_t bucket_id;

	if (row.len > 9) {
		memcpy(&bucket_id, row.data + 1, sizeof(bucket_id));
		bucket = buckets_find_id(mend->store->buckets, be64toh(bucket_id));
	}
	buf_printf(out, "removed%s: %s/", row.data[0] == 'O' ? "" : " (a former version)",
		bucket ? bucket->info.name : "?");
	bucket_put(bucket);
	printable_put(out, slice_from(row, MIN(row.len, (size_t)9)));
	buf_printf(out, ": %s\n", why);
	mend->salvage->report->objects_removed++;
	row_delete(mend, row);
}

/* ---- Buckets. ---- */

static void bucket_remake(struct mend *mend, uint64_t id)
{
	struct store_bucket info = {
		.id = id, .created_ns = clock_real_ns(), .owner = "root", .region = "us-east-1"};
	uint8_t record[BUCKET_RECORD_BYTES_MAX];
	struct key key;
	size_t len;

	snprintf(info.name, sizeof(info.name), "salvaged-%llu", (unsigned long long)id);
	len = bucket_record_put(&info, record);
	key_bucket(&key, slice_str(info.name));
	row_change(mend, MUTATION_PUT, &key, slice_of((const char *)record, len));
	if (!mend->ret)
		mend->ret = buckets_add(mend->store->buckets, &info);
	mend->salvage->report->buckets_remade++;
	buf_printf(mend->salvage->out,
		"made: bucket %s, owned by root, for objects whose bucket record is lost\n",
		info.name);
}

static bool bucket_visit(struct slice row, struct slice value, void *arg)
{
	struct mend *mend = (struct mend *)arg;
	struct bucket *bucket;
	uint64_t id;

	(void)value;
	if (row.len <= 9)
		return true;
	memcpy(&id, row.data + 1, sizeof(id));
	bucket = buckets_find_id(mend->store->buckets, be64toh(id));
	if (bucket)
		bucket_put(bucket);
	else
		bucket_remake(mend, be64toh(id));
	return !mend->ret;
}

/* ---- Objects. ---- */

static bool inline_is_there(struct mend *mend, const struct object *object)
{
	struct key key;
	char *value;
	size_t len;
	int ret;

	key_inline(&key, object->data_id);
	ret = index_get(mend->store->index, &key, true, &value, &len);
	if (ret < 0)
		mend->ret = ret;
	if (ret != 1)
		return false;
	free(value);
	return len == object->meta.bytes;
}

/* The reason to remove the object; NULL: it is intact. Marks its extents in used, and also in
 * shared if another object names them. */
static const char *object_wrong(struct mend *mend, struct object *object)
{
	if (object->body == BODY_INLINE && !inline_is_there(mend, object))
		return "its body is lost";
	for (uint32_t i = 0; i < object->segment_count; i++) {
		struct segment *segment;

		if (object_segment_load(mend->store, object, i, &segment))
			return "the location of its body is lost";
		for (uint32_t e = 0; e < segment->extent_count; e++) {
			const struct extent *extent = &segment->extents[e];
			int ret = space_mark(mend->used, extent->block, extent->blocks);

			if (ret == -ERANGE)
				return "its body lies outside the volume";
			if (ret == -EEXIST) {
				mend->any_shared = true;
				(void)space_mark(mend->shared, extent->block, extent->blocks);
			}
		}
	}
	return NULL;
}

static bool broken_visit(struct slice row, struct slice value, void *arg)
{
	struct mend *mend = (struct mend *)arg;
	struct object *object;
	const char *wrong;

	if (row.len <= 9 || record_parse(value, &object)) {
		object_remove(mend, row, "its record is damaged");
		return !mend->ret;
	}
	wrong = object_wrong(mend, object);
	object_put(mend->store, object);
	if (wrong && !mend->ret)
		object_remove(mend, row, wrong);
	return !mend->ret;
}

/* A lost group may have deleted or replaced the object, and a later one may have given its space to
 * another object: the checksums show which object owns the space. */
static bool is_shared(struct mend *mend, const struct object *object)
{
	bool shared = false;

	for (uint32_t i = 0; i < object->segment_count; i++) {
		const struct segment *segment = atomic_load(&object->segments[i]);

		for (uint32_t e = 0; segment && e < segment->extent_count; e++) {
			const struct extent *extent = &segment->extents[e];

			int ret = space_mark(mend->shared, extent->block, extent->blocks);

			if (ret == -EEXIST)
				shared = true;
			else if (!ret)
				space_give(mend->shared, extent->block, extent->blocks);
		}
	}
	return shared;
}

static bool body_is_right(struct mend *mend, const struct object *object)
{
	for (uint32_t i = 0; i < object->segment_count; i++) {
		uint64_t from, bytes;

		object_segment_range(object, i, &from, &bytes);
		if (recover_segment_verify(&mend->store->volume, atomic_load(&object->segments[i]),
			    bytes, mend->piece))
			return false;
	}
	return true;
}

static bool shared_visit(struct slice row, struct slice value, void *arg)
{
	struct mend *mend = (struct mend *)arg;
	struct object *object;
	bool whole = true;

	if (row.len <= 9 || record_parse(value, &object))
		return true;
	for (uint32_t i = 0; i < object->segment_count && whole; i++) {
		struct segment *segment;

		whole = object_segment_load(mend->store, object, i, &segment) == 0;
	}
	if (whole && is_shared(mend, object) && !body_is_right(mend, object))
		object_remove(
			mend, row, "it was deleted or replaced, and another object has its space");
	object_put(mend->store, object);
	return !mend->ret;
}

/* ---- Rows of bodies. ---- */

static void id_note(struct mend *mend, uint64_t id)
{
	if (mend->id_count == mend->id_cap) {
		size_t cap = mend->id_cap ? mend->id_cap * 2 : 1024;
		uint64_t *grown = (uint64_t *)realloc(mend->ids, cap * sizeof(*grown));

		if (!grown) {
			mend->ret = -ENOMEM;
			return;
		}
		mend->ids = grown;
		mend->id_cap = cap;
	}
	mend->ids[mend->id_count++] = id;
}

static bool named_visit(struct slice row, struct slice value, void *arg)
{
	struct mend *mend = (struct mend *)arg;
	struct object *object;

	(void)row;
	if (record_parse(value, &object))
		return true;
	for (uint32_t i = 0; i < object->part_count && !mend->ret; i++)
		id_note(mend, object->parts[i].data_id);
	object_put(mend->store, object);
	return !mend->ret;
}

static int by_id(const void *a, const void *b)
{
	uint64_t id_a = *(const uint64_t *)a, id_b = *(const uint64_t *)b;

	return id_a < id_b ? -1 : id_a > id_b;
}

static bool orphan_visit(struct slice row, struct slice value, void *arg)
{
	struct mend *mend = (struct mend *)arg;
	uint64_t id = 0;

	(void)value;
	if (row.len >= 9) {
		memcpy(&id, row.data + 1, sizeof(id));
		id = be64toh(id);
		if (mend->id_count && bsearch(&id, mend->ids, mend->id_count, sizeof(id), by_id))
			return true;
	}
	mend->salvage->report->rows_removed++;
	row_delete(mend, row);
	return !mend->ret;
}

/* ---- */

static void pass(struct mend *mend, const char *const *kinds, uint32_t count, index_visit_fn *visit)
{
	for (uint32_t i = 0; i < count && !mend->ret; i++) {
		int ret = index_visit(mend->store->index, slice_str(kinds[i]), visit, mend);

		mend->ret = mend->ret ? mend->ret : ret;
	}
	if (!mend->ret)
		mend->ret = batch_flush(mend);
}

static void passes(struct mend *mend)
{
	static const char *const OBJECTS[] = {"O", "V", "N"};
	static const char *const BODIES[] = {"S", "D"};

	pass(mend, OBJECTS, ARRAY_LEN(OBJECTS), bucket_visit);
	pass(mend, OBJECTS, ARRAY_LEN(OBJECTS), broken_visit);
	if (mend->any_shared)
		pass(mend, OBJECTS, ARRAY_LEN(OBJECTS), shared_visit);
	pass(mend, OBJECTS, ARRAY_LEN(OBJECTS), named_visit);
	if (mend->id_count)
		qsort(mend->ids, mend->id_count, sizeof(*mend->ids), by_id);
	pass(mend, BODIES, ARRAY_LEN(BODIES), orphan_visit);
}

static int spaces_open(struct mend *mend)
{
	const struct volume *volume = &mend->store->volume;
	uint64_t first = volume->super.data_offset / BLOCK_BYTES;
	uint64_t count = disk_bytes(volume->disk) / BLOCK_BYTES;
	int ret = space_open(first, count, &mend->used);

	if (!ret)
		ret = space_open(first, count, &mend->shared);
	if (ret)
		return ret;
	space_stripe(mend->used, volume->disk, (uint32_t)volume->super.set.current);
	space_stripe(mend->shared, volume->disk, (uint32_t)volume->super.set.current);
	return 0;
}

int salvage_mend(struct store *store, struct salvage *salvage)
{
	struct mend mend = {.store = store, .salvage = salvage};
	void *piece = NULL;

	mend.ret = posix_memalign(&piece, BLOCK_BYTES, STORE_CHECK_BYTES) ? -ENOMEM : 0;
	mend.piece = (uint8_t *)piece;
	if (!mend.ret)
		mend.ret = group_open(&mend.batch);
	if (!mend.ret)
		mend.ret = spaces_open(&mend);
	if (!mend.ret)
		mend.ret = buckets_open(&store->buckets);
	if (!mend.ret)
		mend.ret = recover_buckets(store);
	if (!mend.ret)
		passes(&mend);
	if (!mend.ret)
		mend.ret = index_flush(store->index);
	/* The next start loads the buckets again. */
	buckets_close(store->buckets);
	store->buckets = NULL;
	space_close(mend.used);
	space_close(mend.shared);
	group_close(mend.batch);
	free(mend.ids);
	free(piece);
	return mend.ret;
}
