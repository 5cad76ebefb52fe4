/* store/call/put.c: an object being written: open, then frames or space and checks, then commit or
 * abort. */
#include "codec/crc.h"
#include "store/call/call.h"
#include "store/commit/body.h"
#include "store/commit/commit.h"
#include "store/object/cache.h"
#include "store/object/object.h"
#include "store/space/space.h"
#include "store/state/state.h"
#include "store/table/table.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define EXTENTS_FIRST	  4u
#define CHECKS_GROW_BYTES (4 * MIB)

DEFINE_COUNTER(puts_total, "nebulaio_store_puts_total", NULL, "Objects stored.");
DEFINE_COUNTER(put_bytes_total, "nebulaio_store_put_bytes_total", NULL, "Bytes of objects stored.");

/* open → (frames | (chunk, cache)* | (compose, drop)*) → commit or abort, which free it.
 */
struct store_put {
	struct store_put_head head;
	struct store *store;
	struct bucket *bucket;
	struct bucket *bucket_of; /* another one that must exist at the commit; or NULL */
	uint64_t bytes_max;	  /* of the body; UINT64_MAX: not known */
	uint64_t data_id;
	uint64_t space_bytes; /* granted so far */
	uint32_t grouped_bytes;
	struct region_span span; /* of a grouped body, OWNER_APP; data NULL: none */
	uint32_t segment_count;
	uint32_t segment_cap;
	struct segment *segment_first; /* `segments` of a body of one: no array of its own */
	struct segment **segments;
	struct composition composition;
	struct append append; /* base NULL: not an append */
	bool composable;
	bool stored;
	uint32_t phase;
	uint64_t regains;
	uint16_t key_len;
	char key[];
};

/* Checks a put at the entry of each call. A body has one kind of place: frames, space, or other
 * objects' bodies. */
static void put_check(const struct store_put *put)
{
	CHECK(put->head.magic == STORE_PUT_MAGIC);
	CHECK(put->key_len && put->key_len <= LIMIT_KEY_LEN_MAX);
	CHECK(put->space_bytes <= put->bytes_max);
	CHECK(put->segment_count <= put->segment_cap && put->segment_cap <= 2 * SEGMENTS_MAX);
	CHECK(put->grouped_bytes <= STORE_GROUPED_BYTES_MAX);
	CHECK(!put->span.data || (!put->space_bytes && !put->composition.count));
	CHECK(!put->composition.count || (!put->space_bytes && !put->append.base));
	CHECK(!put->stored);
}

/* It needs no volume, and its own store knows it by another id. */
static int memory_put(
	struct bucket *bucket, const struct store_put_opts *opts, struct store_put **ret_put)
{
	struct store_put_opts inside = *opts;

	if (opts->bucket_id && opts->bucket_id != bucket->info.id)
		return -ENOENT;
	inside.bucket_id = 0;
	return store_engine_of(bucket->memory)->put_open(bucket->memory, &inside, ret_put);
}

int local_put_open(
	struct store *store, const struct store_put_opts *opts, struct store_put **ret_put)
{
	struct bucket *bucket, *bucket_of = NULL;
	struct store_put *put;
	int ret;

	if (!store_key_valid(opts->key))
		return -EINVAL;
	if (opts->bytes != UINT64_MAX && opts->bytes > LIMIT_PUT_BYTES_MAX)
		return -EFBIG;
	bucket = buckets_find(store->buckets, opts->bucket);
	if (!bucket)
		return -ENOENT;
	if (bucket->memory) {
		ret = memory_put(bucket, opts, ret_put);
		bucket_put(bucket);
		return ret;
	}
	if (opts->bucket_id && opts->bucket_id != bucket->info.id) {
		bucket_of = buckets_find_id(store->buckets, opts->bucket_id);
		ret = bucket_of ? store_refuses(store) : -ENOENT;
	} else {
		ret = store_refuses(store);
	}
	if (!ret)
		ret = grow_check(store);
	if (!ret)
		ret = quota_room(store, bucket, opts->key, opts->bytes);
	put = ret ? NULL : (struct store_put *)slab_alloc(sizeof(*put) + opts->key.len);
	if (!put) {
		bucket_put(bucket_of);
		bucket_put(bucket);
		return ret ? ret : -ENOMEM;
	}
	put->store = store;
	put->phase = store_phase_enter(store);
	put->regains = atomic_load(&store->regains);
	put->bucket = bucket;
	put->bucket_of = bucket_of;
	put->bytes_max = opts->bytes;
	put->composable = opts->composable;
	put->segments = &put->segment_first;
	put->segment_cap = 1;
	put->data_id = atomic_fetch_add(&store->data_id_next, 1);
	put->head = (struct store_put_head){.engine = store->head.engine,
		.magic = STORE_PUT_MAGIC,
		.body_number = put->data_id};
	put->key_len = (uint16_t)opts->key.len;
	memcpy(put->key, opts->key.data, opts->key.len);
	*ret_put = put;
	return 0;
}

static int segments_grow(struct store_put *put)
{
	bool inside = put->segments == &put->segment_first;
	uint32_t cap = put->segment_cap * 2;
	void *grown = realloc(inside ? NULL : put->segments, cap * sizeof(struct segment *));

	if (!grown)
		return -ENOMEM;
	if (inside)
		memcpy(grown, put->segments, put->segment_count * sizeof(struct segment *));
	put->segments = (struct segment **)grown;
	put->segment_cap = cap;
	return 0;
}

/* The segment with this number; the call makes it if it is the next one. */
static int put_segment(struct store_put *put, uint64_t segment_idx, struct segment **ret_segment)
{
	uint32_t checks = SEGMENT_CHECKS_MAX;
	int ret;

	if (segment_idx > put->segment_count || segment_idx >= SEGMENTS_MAX)
		return -EINVAL;
	if (segment_idx == put->segment_count) {
		ret = put->segment_count == put->segment_cap ? segments_grow(put) : 0;
		if (ret)
			return ret;
		if (put->bytes_max < SEGMENT_BYTES)
			checks = (uint32_t)(put->bytes_max / STORE_CHECK_BYTES) + 1;
		ret = segment_open(EXTENTS_FIRST, checks, &put->segments[segment_idx]);
		if (ret)
			return ret;
		put->segment_count++;
	}
	*ret_segment = put->segments[segment_idx];
	return 0;
}

/* Adds an extent of at most `bytes` to the segment. */
static int run_grant(
	struct store_put *put, struct segment *segment, uint32_t bytes, struct store_run *ret_run)
{
	uint32_t blocks;
	uint64_t block;
	int ret = grow_segment(put->store, segment, region_frames_for(bytes), &block, &blocks);

	if (ret)
		return ret;
	ret_run->target = put->store->target;
	ret_run->volume_offset = block << BLOCK_SHIFT;
	ret_run->bytes = MIN(bytes, blocks << BLOCK_SHIFT);
	put->space_bytes += ret_run->bytes;
	return 0;
}

/* Adds the checksums of a body's pieces to its segment, which has room for them. */
static void checks_note(struct segment *segment, struct slice bytes)
{
	for (size_t at = 0; at < bytes.len; at += STORE_CHECK_BYTES)
		segment->checks[segment->check_count++] = crc32c_update(
			0, bytes.data + at, MIN(bytes.len - at, (size_t)STORE_CHECK_BYTES));
}

int local_put_chunk(
	struct store_put *put, uint64_t offset, struct slice bytes, store_run_fn *start, void *arg)
{
	struct segment *segment;
	int ret;

	put_check(put);
	if (offset != put->space_bytes || offset % STORE_CHECK_BYTES || bytes.len == 0 ||
		put->span.data || put->composition.count)
		return -EINVAL;
	if (offset + bytes.len > LIMIT_PUT_BYTES_MAX || bytes.len > put->bytes_max - offset)
		return -EFBIG;
	if (offset % STORE_CHUNK_BYTES + bytes.len > STORE_CHUNK_BYTES)
		return -EINVAL;
	ret = put_segment(put, offset / SEGMENT_BYTES, &segment);
	if (ret)
		return ret;
	CHECK(segment->check_count == offset % SEGMENT_BYTES / STORE_CHECK_BYTES);
	checks_note(segment, bytes);
	for (uint32_t at = 0; at < bytes.len;) {
		struct store_run run;

		ret = run_grant(put, segment, (uint32_t)bytes.len - at, &run);
		if (ret)
			return ret;
		start(arg, &run, at);
		at += run.bytes;
	}
	return 0;
}

int local_put_tagged(struct store_put *put, uint64_t offset, const uint8_t tag[STORE_TAG_BYTES])
{
	struct segment *segment;
	int ret;

	put_check(put);
	if (offset % STORE_CHECK_BYTES || offset >= put->bytes_max || put->composition.count)
		return -EINVAL;
	ret = put_segment(put, offset / SEGMENT_BYTES, &segment);
	if (ret)
		return ret;
	if (offset % SEGMENT_BYTES / STORE_CHECK_BYTES != segment->tag_count)
		return -EINVAL;
	return segment_tag_add(segment, tag);
}

void local_put_frames_take(struct store_put *put, struct region_span span, uint32_t bytes)
{
	put_check(put);
	CHECK(span.data);
	CHECK(!put->span.data && put->space_bytes == 0 && !put->composition.count);
	CHECK(bytes <= STORE_GROUPED_BYTES_MAX && bytes <= region_span_bytes(span));
	put->span = span;
	put->grouped_bytes = bytes;
}

void local_put_cache_take(
	struct store_put *put, uint64_t offset, struct region_span span, uint32_t bytes)
{
	struct store *store = put->store;
	struct cache_offer offer = {
		.data_id = put->data_id,
		.chunk_idx = (uint32_t)(offset / STORE_CHUNK_BYTES),
		.bytes = bytes,
		.span = span,
		.owner = OWNER_DISK,
	};

	put_check(put);
	CHECK(bytes <= region_span_bytes(span));
	if (offset % STORE_CHUNK_BYTES || bytes > STORE_CHUNK_BYTES || !store->cache ||
		!cache_add(store->cache, &offer))
		region_give(store->region, span, OWNER_DISK);
}

int local_put_compose(struct store_put *put, struct slice bucket_name, struct slice key,
	const struct store_get *get, bool drop)
{
	struct bucket *bucket;
	int ret;

	put_check(put);
	store_get_check(get);
	if (put->span.data || put->segment_count || put->append.base)
		return -EINVAL;
	bucket = buckets_find(put->store->buckets, bucket_name);
	if (!bucket)
		return -ENOENT;
	if (bucket == put->bucket && slice_eq(key, slice_of(put->key, put->key_len)))
		ret = -EINVAL;
	else
		ret = composition_add(put->store, &put->composition, bucket, key, get, drop);
	bucket_put(bucket);
	return ret;
}

int local_put_append(struct store_put *put, const struct store_get *get)
{
	int ret;

	put_check(put);
	store_get_check(get);
	ret = put->composition.count ? -EINVAL : append_open(&put->append, put->bucket, get);
	put->composable |= !ret;
	return ret;
}

/* Frees the rest of the put. Its space is freed unless an object took it over. */
static void put_close(struct store_put *put)
{
	struct store *store = put->store;

	if (put->span.data)
		region_give(store->region, put->span, OWNER_APP);
	for (uint32_t i = 0; i < put->segment_count; i++) {
		struct segment *segment = put->segments[i];

		for (uint32_t e = 0; e < segment->extent_count; e++)
			space_give(store->space, segment->extents[e].block,
				segment->extents[e].blocks);
		segment_close(segment);
	}
	if (store->cache && put->space_bytes)
		cache_drop(store->cache, put->data_id,
			(uint32_t)((put->space_bytes + STORE_CHUNK_BYTES - 1) / STORE_CHUNK_BYTES));
	composition_close(store, &put->composition);
	append_close(store, &put->append, put->stored);
	bucket_put(put->bucket_of);
	bucket_put(put->bucket);
	if (put->segments != &put->segment_first)
		free(put->segments);
	magic_clear(&put->head.magic);
	store_phase_leave(store, put->phase);
	slab_free(put, sizeof(*put) + put->key_len);
}

void local_put_abort(struct store_put *put)
{
	put_check(put);
	put_close(put);
}

/* Whether space and checks cover exactly this many bytes. */
static bool put_covers(const struct store_put *put, uint64_t bytes)
{
	uint64_t left = bytes;

	if (put->space_bytes != bytes)
		return false;
	for (uint32_t i = 0; i < put->segment_count; i++) {
		uint64_t part = MIN(left, (uint64_t)SEGMENT_BYTES);

		if (put->segments[i]->check_count !=
			(part + STORE_CHECK_BYTES - 1) / STORE_CHECK_BYTES)
			return false;
		left -= part;
	}
	return left == 0;
}

/* Whether all pieces have tags, or none has. */
static bool tags_cover(const struct store_put *put)
{
	for (uint32_t i = 0; i < put->segment_count; i++)
		if (put->segments[i]->tag_count !=
			(put->segments[0]->tag_count ? put->segments[i]->check_count : 0))
			return false;
	return true;
}

/* A body that goes to the index has no segment, but may have a tag. */
static void inline_tag_take(struct store_put *put, struct object *object)
{
	if (!put->segment_count)
		return;
	object->has_tag = true;
	memcpy(object->tag, put->segments[0]->tags, sizeof(object->tag));
	segment_close(put->segments[0]);
	put->segment_count = 0;
}

/* Gives a grouped body its place, computes its checksums and pads it. It is then a direct object
 * like any other, but not written yet. */
static int grouped_prepare(struct store_put *put, struct commit *commit)
{
	uint32_t blocks = region_frames_for(put->grouped_bytes);
	uint32_t padding = (blocks << BLOCK_SHIFT) - put->grouped_bytes;
	struct segment *segment;
	uint32_t leased;
	uint64_t block;
	int ret = put_segment(put, 0, &segment);

	if (ret)
		return ret;
	while (segment->blocks < blocks) {
		ret = grow_segment(put->store, segment, blocks - segment->blocks, &block, &leased);
		if (ret)
			return ret;
	}
	checks_note(segment, slice_of(put->span.data, put->grouped_bytes));
	memset(put->span.data + put->grouped_bytes, 0, padding);
	commit->span = put->span;
	put->span.data = NULL;
	region_switch(put->store->region, commit->span, OWNER_APP, OWNER_DISK);
	return 0;
}

/* Waits until all writes of this put so far are on the medium. */
static int body_flush(struct store *store)
{
	struct disk_io flush = {.op = DISK_FLUSH};
	int32_t result = disk_run(store->volume.disk, &flush);

	if (result < 0 && !store_volume_short(store, result))
		store_fence(store, "the volume", result);
	return result;
}

/* Whether the put itself flushes its body. The flush of the commit's group makes the other bodies
 * durable; that of a group that writes to a log apart alone does not. */
static bool flushes_body(const struct store_put *put, const struct commit *commit, uint64_t bytes)
{
	bool written = put->segment_count && !commit->span.data;

	return bytes > BODY_VERIFY_BYTES_MAX ||
	       (written && disk_has_log_apart(put->store->volume.disk));
}

/* Makes the object in memory. */
static int object_build(struct store_put *put, const struct store_meta *meta, struct commit *commit)
{
	struct store *store = put->store;
	bool in_index = put->span.data &&
			meta->bytes <= (put->composable ? 0 : store->opts.inline_bytes_max);
	uint64_t bytes = meta->bytes;
	struct object *object;
	uint32_t first;
	int ret;

	if (put->composition.count) {
		commit->composition = &put->composition;
		return composition_object(
			&put->composition, meta, put->data_id, &commit->items[0].object);
	}
	if (put->append.base)
		bytes = meta->bytes - MIN(put->append.base->meta.bytes, meta->bytes);
	if (put->span.data ? bytes != put->grouped_bytes : !put_covers(put, bytes))
		return -EINVAL;
	if (put->span.data && !in_index) {
		ret = grouped_prepare(put, commit);
		if (ret)
			return ret;
	}
	if (!in_index && !tags_cover(put))
		return -EINVAL;
	if (put->append.base)
		ret = append_object(store, &put->append, meta, put->data_id, &object);
	else
		ret = object_open(
			meta, put->data_id, in_index ? (uint32_t)meta->bytes : 0, &object);
	if (ret)
		return ret;
	if (in_index) {
		region_copy(object->inline_data, put->span.data, meta->bytes, COPY_INDEX);
		inline_tag_take(put, object);
	}
	if (put->composable && object->body == BODY_DIRECT)
		object->body = BODY_SEGMENTED;
	first = append_first(object);
	CHECK(object->segment_count - first == put->segment_count);
	object->body_flushed = flushes_body(put, commit, bytes);
	for (uint32_t i = 0; i < put->segment_count; i++)
		atomic_init(&object->segments[first + i], put->segments[i]);
	put->segment_count = 0;
	commit->items[0].object = object;
	commit->span_segment = first;
	commit->append = put->append.base ? &put->append : NULL;
	return object->body_flushed ? body_flush(store) : 0;
}

/* The frames of a grouped body go to the cache once it is stored. */
static void span_end(struct store *store, const struct commit *commit, uint64_t data_id,
	uint32_t bytes, bool stored)
{
	struct cache_offer offer = {
		.data_id = data_id, .bytes = bytes, .span = commit->span, .owner = OWNER_DISK};

	if (!commit->span.data)
		return;
	if (!stored || !store->cache || !cache_add(store->cache, &offer))
		region_give(store->region, commit->span, OWNER_DISK);
}

/* Whether the commit can be run again: the bucket had another state by the time it was planned, or
 * bodies that it names have moved. */
static bool put_again(struct store *store, struct commit *commit, struct slice key)
{
	struct commit_item *item = &commit->items[0];
	int ret;

	if (item->result == -ERESTART && !item->null_entry) {
		ret = record_entry_pin(store->records, commit->bucket->info.id | ENTRY_NULL, key,
			&item->null_entry);
		item->result = ret ? ret : item->result;
		return !ret;
	}
	item->mtime_ns = 0;
	return item->result == -ESTALE && commit_follow(store, commit);
}

static int put_run(struct store *store, struct commit *commit, struct slice key)
{
	struct commit_item *item = &commit->items[0];
	int ret = record_entry_pin(store->records, commit->bucket->info.id, key, &item->entry);

	if (ret)
		return ret;
	do
		commit_run(store, commit);
	while (item->result && put_again(store, commit, key));
	version_unprepare(store, item);
	if (!item->entry_taken)
		record_entry_unpin(store->records, item->entry);
	return item->result;
}

/* Returns everything that the object took over to its owner. */
static void object_unbuild(struct store_put *put, const struct commit *commit)
{
	struct object *object = commit->items[0].object;

	/* Composed bodies stay with their owners, and so does the base of an append. */
	atomic_store(&object->dead, !commit->composition && !commit->append);
	if (commit->append) {
		uint32_t first = append_first(object);

		put->segment_count = object->segment_count - first;
		for (uint32_t i = 0; i < put->segment_count; i++)
			put->segments[i] = segment_get(atomic_load(&object->segments[first + i]));
	}
	object_put(put->store, object);
}

int local_put_commit(
	struct store_put *put, struct store_meta *meta, store_check_fn *check, void *arg)
{
	struct store *store = put->store;
	struct commit_item item = {.check = check, .arg = arg, .outbox_row = put->head.outbox_row};
	struct commit commit = {.bucket = put->bucket,
		.bucket_of = put->bucket_of,
		.items = &item,
		.item_count = 1,
		.regains = put->regains,
		.phase = put->phase};
	struct slice key = slice_of(put->key, put->key_len);
	int ret;

	put_check(put);
	if (meta->checksum_len > sizeof(meta->checksum) ||
		meta->headers_len > STORE_HEADERS_BYTES_MAX)
		ret = -EINVAL;
	else
		ret = store_refuses(store);
	if (!ret)
		ret = object_build(put, meta, &commit);
	if (!ret)
		ret = put_run(store, &commit, key);
	span_end(store, &commit, put->data_id, put->grouped_bytes, ret == 0);
	if (ret && item.object)
		object_unbuild(put, &commit);
	if (!ret) {
		put->stored = true;
		meta->mtime_ns = item.mtime_ns;
		memcpy(meta->version_id, item.ret_version_id, sizeof(meta->version_id));
		counter_add(&puts_total, 1);
		counter_add(&put_bytes_total, meta->bytes);
		put->space_bytes = 0; /* the cached chunks are the object's now */
	}
	put_close(put);
	return ret;
}
