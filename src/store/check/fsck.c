/* store/check/fsck.c: compares the index with the volume: every record, every extent, and (deep)
 * every checksum. The log is replayed first, as at a start. */
#include "store/check/check.h"
#include "store/commit/commit.h"
#include "store/image/image.h"
#include "store/index/index.h"
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

struct fsck {
	struct store *store;
	struct store_fsck_report *report;
	struct buf *out;
	bool deep;
	uint8_t *piece; /* STORE_CHECK_BYTES, aligned */
	uint64_t segments_named, segments_found;
	uint64_t inlines_named, inlines_found;
};

/* The name of an object in findings. */
struct subject {
	char bucket[LIMIT_BUCKET_LEN_MAX + 1];
	uint64_t bucket_id;
	struct slice key; /* of the row */
};

/* Begins a finding. */
static void subject_put(const struct fsck *fsck, const struct subject *subject)
{
	buf_printf(fsck->out, "%s/", subject->bucket);
	printable_put(fsck->out, subject->key);
}

static void subject_fill(struct fsck *fsck, struct slice index_key, struct subject *ret_subject)
{
	struct bucket *bucket;
	uint64_t bucket_id;

	memcpy(&bucket_id, index_key.data + 1, sizeof(bucket_id));
	ret_subject->bucket_id = be64toh(bucket_id);
	bucket = buckets_find_id(fsck->store->buckets, ret_subject->bucket_id);
	snprintf(ret_subject->bucket, sizeof(ret_subject->bucket), "%s",
		bucket ? bucket->info.name : "?");
	bucket_put(bucket);
	ret_subject->key = slice_from(index_key, 9);
}

static void extents_check(
	struct fsck *fsck, const struct subject *subject, const struct segment *segment)
{
	for (uint32_t i = 0; i < segment->extent_count; i++) {
		const struct extent *extent = &segment->extents[i];
		int ret = space_mark(fsck->store->space, extent->block, extent->blocks);

		fsck->report->extents++;
		if (ret == -EEXIST) {
			fsck->report->overlaps++;
			subject_put(fsck, subject);
			buf_printf(fsck->out, ": blocks %llu+%u also belong to another object\n",
				(unsigned long long)extent->block, extent->blocks);
		} else if (ret) {
			fsck->report->bad_records++;
			subject_put(fsck, subject);
			buf_printf(fsck->out, ": blocks %llu+%u lie outside the volume\n",
				(unsigned long long)extent->block, extent->blocks);
		}
	}
}

static void segment_check(struct fsck *fsck, const struct subject *subject,
	const struct object *object, uint32_t segment_idx)
{
	const struct segment *segment = atomic_load(&object->segments[segment_idx]);
	uint64_t from, bytes;
	int ret;

	object_segment_range(object, segment_idx, &from, &bytes);
	extents_check(fsck, subject, segment);
	if (!fsck->deep)
		return;
	ret = recover_segment_verify(&fsck->store->volume, segment, bytes, fsck->piece);
	if (!ret)
		return;
	fsck->report->bad_checksums++;
	subject_put(fsck, subject);
	buf_printf(fsck->out, ": bytes %llu to %llu: %s\n", (unsigned long long)from,
		(unsigned long long)(from + bytes - 1),
		ret == -EUCLEAN ? "a checksum is wrong" : strerror(-ret));
}

static void record_bad(struct fsck *fsck, const struct subject *subject, const char *what)
{
	fsck->report->bad_records++;
	subject_put(fsck, subject);
	buf_printf(fsck->out, ": %s\n", what);
}

static void inline_check(
	struct fsck *fsck, const struct subject *subject, const struct object *object)
{
	struct key key;
	char *value;
	size_t len;
	int ret;

	fsck->inlines_named++;
	key_inline(&key, object->data_id);
	ret = index_get(fsck->store->index, &key, true, &value, &len);
	if (ret <= 0) {
		record_bad(fsck, subject, "its inline body is missing");
		return;
	}
	if (len != object->meta.bytes)
		record_bad(fsck, subject, "its inline body has another length");
	free(value);
}

/* Counts anew what a start counts. */
static void use_count(
	const struct fsck *fsck, const struct subject *subject, const struct object *object)
{
	struct bucket *bucket = buckets_find_id(fsck->store->buckets, subject->bucket_id);

	if (bucket && object->body != BODY_MARKER)
		bucket_used_add(bucket, (int64_t)object->meta.bytes, 1);
	if (bucket)
		atomic_fetch_add(&bucket->objects, 1);
	bucket_put(bucket);
}

static bool object_visit(struct slice key, struct slice value, void *arg)
{
	struct fsck *fsck = (struct fsck *)arg;
	struct subject subject;
	struct object *object;

	fsck->report->objects++;
	if (key.len <= 9) {
		fsck->report->bad_records++;
		buf_put_str(fsck->out, "an object row without a key\n");
		return true;
	}
	subject_fill(fsck, key, &subject);
	if (subject.bucket[0] == '?')
		record_bad(fsck, &subject, "belongs to no bucket");
	if (record_parse(value, &object)) {
		record_bad(fsck, &subject, "its record is damaged");
		return true;
	}
	fsck->report->bytes += object->meta.bytes;
	use_count(fsck, &subject, object);
	if (object->body == BODY_INLINE)
		inline_check(fsck, &subject, object);
	for (uint32_t i = 0; i < object->segment_count; i++) {
		struct segment *segment;

		fsck->segments_named += object->body == BODY_SEGMENTED;
		if (object_segment_load(fsck->store, object, i, &segment))
			record_bad(fsck, &subject, "a segment is missing or damaged");
		else
			segment_check(fsck, &subject, object, i);
	}
	object_put(fsck->store, object);
	return true;
}

static bool bucket_visit(struct slice key, struct slice value, void *arg)
{
	struct fsck *fsck = (struct fsck *)arg;
	struct store_bucket info;

	fsck->report->buckets++;
	if (bucket_record_parse(slice_from(key, 1), value, &info)) {
		fsck->report->bad_records++;
		buf_put_str(fsck->out, "bucket ");
		printable_put(fsck->out, slice_from(key, 1));
		buf_put_str(fsck->out, ": its record is damaged\n");
	}
	return true;
}

/* A program without quotas may have deleted the bucket: such a row has no effect. */
static bool quota_visit(struct slice key, struct slice value, void *arg)
{
	struct fsck *fsck = (struct fsck *)arg;
	struct store_quota quota;
	uint64_t id;

	if (quota_record_parse(key, value, &id, &quota)) {
		fsck->report->bad_records++;
		buf_put_str(fsck->out, "a damaged quota of a bucket\n");
	}
	return true;
}

static bool outbox_row_visit(struct slice key, struct slice value, void *arg)
{
	struct fsck *fsck = (struct fsck *)arg;
	struct slice version_id, text;
	uint64_t number;

	if (outbox_row_parse(key, value, &number, &version_id, &text)) {
		fsck->report->bad_records++;
		buf_put_str(fsck->out, "a damaged outbox row\n");
	}
	return true;
}

static bool row_count(struct slice key, struct slice value, void *arg)
{
	(void)key;
	(void)value;
	++*(uint64_t *)arg;
	return true;
}

/* Rows of kinds that this program does not know. They belong to a later program if the index says
 * so. */
static int unknown_visit(struct fsck *fsck)
{
	static const char KINDS[] = "ABDMNOQSV";
	uint32_t features = fsck->store->features & ~INDEX_FEATURES;
	uint64_t count = 0;
	int ret = 0;

	for (uint32_t i = 0; i <= UINT8_MAX && !ret; i++) {
		const char kind = (char)i;

		if (!memchr(KINDS, kind, sizeof(KINDS) - 1))
			ret = index_visit(
				fsck->store->index, slice_of(&kind, 1), row_count, &count);
	}
	if (!count || ret)
		return ret;
	if (features) {
		fsck->report->unknown_rows = count;
		return 0;
	}
	fsck->report->bad_records += count;
	buf_printf(fsck->out, "%llu rows of an unknown kind\n", (unsigned long long)count);
	return 0;
}

/* Rows that no object names are left-overs. */
static void orphans_check(struct fsck *fsck)
{
	if (fsck->segments_found > fsck->segments_named) {
		fsck->report->bad_records += fsck->segments_found - fsck->segments_named;
		buf_printf(fsck->out, "%llu segments that belong to no object\n",
			(unsigned long long)(fsck->segments_found - fsck->segments_named));
	}
	if (fsck->inlines_found > fsck->inlines_named) {
		fsck->report->bad_records += fsck->inlines_found - fsck->inlines_named;
		buf_printf(fsck->out, "%llu inline bodies that belong to no object\n",
			(unsigned long long)(fsck->inlines_found - fsck->inlines_named));
	}
}

/* ---- The use of buckets, counted and as the snapshot has it. ---- */

struct use {
	struct bucket *bucket;
	uint64_t rows;
	struct store_quota used;
};
struct uses {
	struct use *list;
	uint32_t count;
};

static void use_keep(struct bucket *bucket, void *arg)
{
	struct uses *uses = (struct uses *)arg;
	struct use *use = &uses->list[uses->count++];

	use->bucket = bucket;
	use->rows = atomic_load(&bucket->objects);
	bucket_used(bucket, &use->used);
}

static void use_compare(struct fsck *fsck, const struct use *use)
{
	struct store_quota used;

	bucket_used(use->bucket, &used);
	if (used.bytes == use->used.bytes && used.objects == use->used.objects &&
		atomic_load(&use->bucket->objects) == use->rows)
		return;
	fsck->report->bad_records++;
	buf_printf(fsck->out,
		"bucket %s: %llu objects with %llu bytes, but the snapshot of the last shutdown "
		"has %llu with %llu: remove the file 'space' of the data folder, and the next "
		"start counts anew\n",
		use->bucket->info.name, (unsigned long long)use->used.objects,
		(unsigned long long)use->used.bytes, (unsigned long long)used.objects,
		(unsigned long long)used.bytes);
}

/* snapshot_load, which also replaces the counted use of the buckets. */
static int snapshot_compare(struct fsck *fsck, uint64_t **ret_words, uint64_t *ret_count)
{
	struct buckets *buckets = fsck->store->buckets;
	struct uses uses = {0};
	int ret;

	uses.list = (struct use *)calloc(buckets_count(buckets) + 1, sizeof(*uses.list));
	if (!uses.list)
		return -ENOMEM;
	buckets_visit(buckets, use_keep, &uses);
	ret = snapshot_load(fsck->store, ret_words, ret_count);
	for (uint32_t i = 0; !ret && i < uses.count; i++)
		use_compare(fsck, &uses.list[i]);
	free(uses.list);
	return ret;
}

/* Compares the index with the snapshot of the last clean shutdown, if there is one. */
static void snapshot_check(struct fsck *fsck)
{
	struct space *space = fsck->store->space;
	uint64_t first = fsck->store->volume.super.data_offset / BLOCK_BYTES / 64;
	uint64_t lost = 0, unmarked = 0, count;
	uint64_t *words;

	if (snapshot_compare(fsck, &words, &count))
		return;
	for (uint64_t i = first; i < count; i++) {
		uint64_t named = space_word(space, i);

		lost += (uint64_t)__builtin_popcountll(words[i] & ~named);
		unmarked += (uint64_t)__builtin_popcountll(named & ~words[i]);
	}
	free(words);
	fsck->report->lost_bytes = lost * BLOCK_BYTES;
	if (lost)
		buf_printf(fsck->out, "%llu bytes are neither free nor in use by an object\n",
			(unsigned long long)(lost * BLOCK_BYTES));
	if (unmarked) {
		fsck->report->overlaps += unmarked;
		buf_printf(fsck->out, "%llu blocks of objects are marked as free\n",
			(unsigned long long)unmarked);
	}
}

/* The image's blocks are in use, but no row names them. */
static void image_check(struct fsck *fsck)
{
	struct image_place place = {0};
	struct segment *segment;
	uint64_t bytes, shared = 0, outside = 0, damaged = 0;

	while (image_segment(fsck->store->image, &place, &segment, &bytes)) {
		for (uint32_t i = 0; i < segment->extent_count; i++) {
			int ret = space_mark(fsck->store->space, segment->extents[i].block,
				segment->extents[i].blocks);

			shared += ret == -EEXIST;
			outside += ret == -ERANGE;
		}
		damaged += fsck->deep && recover_segment_verify(&fsck->store->volume, segment,
						 bytes, fsck->piece) != 0;
		fsck->report->image_bytes += bytes;
		segment_close(segment);
		place.segment_idx++;
	}
	fsck->report->overlaps += shared;
	fsck->report->bad_records += outside;
	fsck->report->bad_checksums += damaged;
	/* An unusable catalog, which image_load has reported. */
	if (fsck->store->volume.super.image_bytes && !fsck->report->image_bytes)
		fsck->report->bad_checksums++;
	if (shared || outside || damaged)
		buf_printf(fsck->out,
			"the volumes' copy of the index: %llu runs of blocks also belong to an "
			"object, %llu lie outside the volume, %llu segments have a wrong checksum: "
			"the next start writes it anew\n",
			(unsigned long long)shared, (unsigned long long)outside,
			(unsigned long long)damaged);
}

static int fsck_run(struct fsck *fsck)
{
	struct index *index = fsck->store->index;
	int ret = index_visit(index, SLICE("B"), bucket_visit, fsck);

	fsck->report->opened = true;
	if (!ret)
		ret = index_visit(index, SLICE("Q"), quota_visit, fsck);
	if (!ret)
		ret = index_visit(index, SLICE("O"), object_visit, fsck);
	if (!ret)
		ret = index_visit(index, SLICE("V"), object_visit, fsck);
	if (!ret)
		ret = index_visit(index, SLICE("N"), object_visit, fsck);
	if (!ret)
		ret = index_visit(index, SLICE("S"), row_count, &fsck->segments_found);
	if (!ret)
		ret = index_visit(index, SLICE("D"), row_count, &fsck->inlines_found);
	if (!ret)
		ret = index_visit(index, SLICE("M"), outbox_row_visit, fsck);
	if (!ret)
		ret = unknown_visit(fsck);
	if (ret) {
		fsck->report->bad_records++;
		buf_printf(fsck->out, "cannot read the index: %s\n", strerror(-ret));
		return -EUCLEAN;
	}
	orphans_check(fsck);
	snapshot_check(fsck);
	image_check(fsck);
	fsck->report->repairable = fsck->store->volume.mended;
	return fsck->report->bad_records || fsck->report->bad_checksums || fsck->report->overlaps ||
			       fsck->report->lost_bytes
		       ? -EUCLEAN
		       : 0;
}

static int check(const char *dir, struct salvage *salvage, struct fsck *fsck)
{
	struct store_opts opts = {.dir = dir};
	void *piece;
	int ret;

	if (posix_memalign(&piece, BLOCK_BYTES, STORE_CHECK_BYTES))
		return -ENOMEM;
	fsck->piece = (uint8_t *)piece;
	fsck->store = store_alloc(&opts);
	if (!fsck->store) {
		free(piece);
		return -ENOMEM;
	}
	fsck->store->findings = fsck->out;
	fsck->store->salvage = salvage;
	ret = slice_copy_str(slice_str(dir), fsck->store->dir, sizeof(fsck->store->dir));
	if (!ret)
		ret = store_load(fsck->store, false);
	if (!ret)
		ret = fsck_run(fsck);
	else if (ret != -EUCLEAN || !fsck->out->len)
		buf_printf(fsck->out, "%s: cannot open it: %s\n", dir, strerror(-ret));
	store_unload(fsck->store);
	free(piece);
	return ret;
}

int store_fsck(const char *dir, bool deep, struct store_fsck_report *ret_report, struct buf *out)
{
	struct fsck fsck = {.report = ret_report, .out = out, .deep = deep};

	*ret_report = (struct store_fsck_report){0};
	return check(dir, NULL, &fsck);
}

int store_salvage(const char *dir, bool deep, struct store_fsck_report *ret_report, struct buf *out)
{
	struct fsck fsck = {.report = ret_report, .out = out, .deep = deep};
	struct salvage salvage = {.out = out, .report = ret_report};

	*ret_report = (struct store_fsck_report){0};
	return check(dir, &salvage, &fsck);
}
