/* store/call/get.c: an open object: a reference to it, and the place of its bytes. */
#include "codec/crc.h"
#include "store/call/call.h"
#include "store/commit/commit.h"
#include "store/object/cache.h"
#include "store/object/object.h"
#include "store/state/state.h"
#include "store/table/table.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

DEFINE_COUNTER(gets_total, "nebulaio_store_gets_total", NULL, "Objects opened for reading.");
DEFINE_COUNTER(verify_failures, "nebulaio_store_verify_failures_total", NULL,
	"Pieces with a wrong checksum.");

/* A reader's handle comes from its reactor's own list; a fiber stays on its reactor. */
static struct store_get *get_lease(struct store *store)
{
	struct store_core *core = &store->cores[reactor_core_idx(reactor_self())];
	struct store_get *get = core->free_gets;

	if (get)
		core->free_gets = get->next_free;
	else
		get = (struct store_get *)malloc(sizeof(*get));
	return get;
}

static void get_give(struct store_get *get)
{
	struct store_core *core = &get->store->cores[reactor_core_idx(reactor_self())];

	get->next_free = core->free_gets;
	core->free_gets = get;
}

/* Loads the object from the index. */
static int object_fetch(
	struct store *store, uint64_t bucket_id, struct slice key, struct object **ret_object)
{
	struct record_entry *entry;
	int ret = record_entry_pin(store->records, bucket_id, key, &entry);

	if (ret)
		return ret;
	*ret_object = record_entry_object(store->records, entry);
	record_entry_unpin(store->records, entry);
	return 0;
}

/* Takes the reference over. */
static int get_make(struct store *store, struct object *object, struct store_get **ret_get)
{
	struct store_get *get = get_lease(store);

	if (!get) {
		object_put(store, object);
		return -ENOMEM;
	}
	get->head = (struct store_get_head){
		.engine = store->head.engine, .magic = STORE_GET_MAGIC, .meta = &object->meta};
	get->store = store;
	get->object = object;
	*ret_get = get;
	counter_add(&gets_total, 1);
	return 0;
}

/* Of a memory bucket, or of none. */
static __attribute__((noinline)) int memory_open(struct store *store, const struct store_name *name,
	struct store_get **ret_get, bool *ret_bucket_exists)
{
	struct bucket *bucket = buckets_find_of(store->buckets, name->bucket, name->bucket_id);
	struct store_name inner = *name;
	int ret = -ENOENT;

	*ret_bucket_exists = bucket != NULL;
	inner.bucket_id = 0;
	if (bucket && bucket->memory && store_key_valid(name->key))
		ret = store_engine_of(bucket->memory)
			      ->get_open(bucket->memory, &inner, ret_get, ret_bucket_exists);
	bucket_put(bucket);
	return ret;
}

static int current_open(struct store *store, const struct store_name *name,
	struct store_get **ret_get, bool *ret_bucket_exists)
{
	uint64_t bucket_id = buckets_find_id_of(store->buckets, name->bucket);
	struct object *object;
	int ret = 0;

	if (__builtin_expect(!bucket_id, 0))
		return memory_open(store, name, ret_get, ret_bucket_exists);
	*ret_bucket_exists = !name->bucket_id || name->bucket_id == bucket_id;
	if (!*ret_bucket_exists || !store_key_valid(name->key))
		return -ENOENT;
	if (!record_table_find(store->records, bucket_id, name->key, &object))
		ret = object_fetch(store, bucket_id, name->key, &object);
	if (ret)
		return ret;
	return object ? get_make(store, object, ret_get) : -ENOENT;
}

/* The object of the version's entry; the version may have moved since the entry was found. */
static int version_object(struct store *store, struct bucket *bucket, const struct store_name *name,
	struct object **ret_object)
{
	for (uint32_t turn = 0; turn < LIMIT_COMMIT_TURNS_MAX; turn++) {
		struct record_entry *entry;
		int ret = version_pin(store, bucket, name->key, name->version_id, &entry);

		if (ret)
			return ret;
		*ret_object = record_entry_object(store->records, entry);
		record_entry_unpin(store->records, entry);
		if (*ret_object &&
			slice_eq(slice_str((*ret_object)->meta.version_id), name->version_id))
			return 0;
		object_put(store, *ret_object);
	}
	return -EAGAIN;
}

int local_get_open(struct store *store, const struct store_name *name, struct store_get **ret_get,
	bool *ret_bucket_exists)
{
	struct object *object = NULL;
	struct bucket *bucket;
	int ret;

	if (!name->version_id.len)
		return current_open(store, name, ret_get, ret_bucket_exists);
	bucket = buckets_find_of(store->buckets, name->bucket, name->bucket_id);
	*ret_bucket_exists = bucket != NULL;
	if (!bucket || !store_key_valid(name->key)) {
		ret = -ENOENT;
	} else if (bucket->memory) {
		bucket_put(bucket);
		return memory_open(store, name, ret_get, ret_bucket_exists);
	} else {
		ret = version_object(store, bucket, name, &object);
	}
	bucket_put(bucket);
	return ret ? ret : get_make(store, object, ret_get);
}

/* The part of the object that holds the offset. */
static inline const struct object_part *get_part(const struct store_get *get, uint64_t offset)
{
	const struct object_part *part;

	store_get_check(get);
	part = object_part(get->object, offset);
	CHECK(part->start <= offset);
	return part;
}

bool local_get_inline(const struct store_get *get, struct slice *ret_body)
{
	const struct object *object = get->object;

	store_get_check(get);
	if (object->body != BODY_INLINE && object->body != BODY_EMPTY &&
		object->body != BODY_MARKER)
		return false;
	*ret_body = slice_of(object->inline_data, object->meta.bytes);
	return true;
}

void local_get_stretch(
	const struct store_get *get, uint64_t offset, struct store_stretch *ret_stretch)
{
	const struct object_part *part = get_part(get, offset);

	*ret_stretch = (struct store_stretch){
		.start = part->start, .bytes = part->bytes, .body_number = part->data_id};
}

/* 0 if the offset is past the end. */
static uint32_t chunk_bytes(const struct object_part *part, uint32_t chunk_idx)
{
	uint64_t from = (uint64_t)chunk_idx * STORE_CHUNK_BYTES;

	if (from >= part->bytes)
		return 0;
	return (uint32_t)MIN(part->bytes - from, (uint64_t)STORE_CHUNK_BYTES);
}

bool local_get_cached(struct store_get *get, uint64_t offset, struct region_span *ret_span)
{
	const struct object_part *part = get_part(get, offset);
	uint32_t chunk_idx = (uint32_t)((offset - part->start) / STORE_CHUNK_BYTES);
	uint32_t bytes = chunk_bytes(part, chunk_idx);

	return get->store->cache && bytes &&
	       cache_find(get->store->cache, part->data_id, chunk_idx, bytes, ret_span);
}

/* Offers [offset, end) of the part to the cache, if that is a whole chunk. */
static bool chunk_offer(struct store_get *get, const struct object_part *part, uint64_t offset,
	uint64_t end, struct region_span span)
{
	struct cache_offer offer = {
		.data_id = part->data_id,
		.chunk_idx = (uint32_t)(offset / STORE_CHUNK_BYTES),
		.bytes = (uint32_t)(end - offset),
		.span = span,
		.owner = OWNER_APP,
		.keep_reference = true,
	};

	return get->store->cache && offset % STORE_CHUNK_BYTES == 0 &&
	       offer.bytes == chunk_bytes(part, offer.chunk_idx) &&
	       !atomic_load_explicit(&get->object->dead, memory_order_relaxed) &&
	       cache_add(get->store->cache, &offer);
}

int local_get_flight(struct store_get *get, uint64_t offset, struct cache_flight *flight,
	enum cache_flight_role *ret_role)
{
	const struct object_part *part = get_part(get, offset);

	if (!get->store->cache)
		return -ENOENT;
	flight->data_id = part->data_id;
	flight->chunk_idx = (uint32_t)((offset - part->start) / STORE_CHUNK_BYTES);
	flight->bytes = chunk_bytes(part, flight->chunk_idx);
	*ret_role = cache_flight_begin(get->store->cache, flight);
	return 0;
}

void local_get_landed(struct store_get *get, struct cache_flight *flight, struct region_span span)
{
	store_get_check(get);
	cache_flight_end(get->store->cache, flight, span);
}

bool local_get_held(struct store_get *get, struct slice *ret_body, struct region_span *ret_span)
{
	const struct object *object = get->object;

	*ret_span = (struct region_span){.data = NULL};
	if (local_get_inline(get, ret_body))
		return true;
	if (object->part_count != 1 || object->meta.bytes > STORE_CHUNK_BYTES ||
		!local_get_cached(get, 0, ret_span))
		return false;
	*ret_body = slice_of(ret_span->data, object->meta.bytes);
	return true;
}

struct segment_job {
	struct store *store;
	struct object *object;
	uint32_t segment_idx;
	struct segment *segment;
	int ret;
};

static void segment_job_run(void *arg)
{
	struct segment_job *job = (struct segment_job *)arg;

	job->ret = object_segment_load(job->store, job->object, job->segment_idx, &job->segment);
}

/* The segment that holds the part's byte `offset`. Only the first access may wait for the index. */
static int get_segment(struct store_get *get, const struct object_part *part, uint64_t offset,
	struct segment **ret_segment)
{
	struct segment_job job = {.store = get->store, .object = get->object};

	job.segment_idx = part->segment_first + (uint32_t)(offset / SEGMENT_BYTES);
	if (job.segment_idx >= get->object->segment_count)
		return -ERANGE;
	*ret_segment =
		atomic_load_explicit(&get->object->segments[job.segment_idx], memory_order_acquire);
	if (*ret_segment)
		return 0;
	fiber_offload(segment_job_run, &job);
	*ret_segment = job.segment;
	return job.ret;
}

int local_get_chunk(
	struct store_get *get, uint64_t offset, uint32_t bytes, store_run_fn *start, void *arg)
{
	const struct object_part *part = get_part(get, offset);
	struct store_run run = {.target = get->store->target};

	offset -= part->start;
	if (offset >= part->bytes || bytes == 0 || bytes > part->bytes - offset)
		return -ERANGE;
	for (uint32_t at = 0; at < bytes; at += run.bytes) {
		struct segment *segment;
		uint64_t run_bytes;
		int ret = get_segment(get, part, offset + at, &segment);

		if (ret)
			return ret;
		if (segment_find(
			    segment, (offset + at) % SEGMENT_BYTES, &run.volume_offset, &run_bytes))
			return -EIO;
		run.bytes = (uint32_t)MIN(run_bytes, (uint64_t)(bytes - at));
		CHECK(run.bytes);
		start(arg, &run, at);
	}
	return 0;
}

static __attribute__((noinline, cold)) int verify_failed(
	const struct object_part *part, uint64_t offset)
{
	counter_add(&verify_failures, 1);
	log_error("store",
		"object data %llu: the checksum of the piece at %llu is wrong: the data on the "
		"medium is damaged; run fsck",
		(unsigned long long)part->data_id, (unsigned long long)offset);
	return -EIO;
}

/* Repairs from other volumes, if there are any. As stripe_mend. */
static __attribute__((noinline, cold)) int piece_mend(
	struct store_get *get, const struct segment *segment, uint64_t offset, struct slice piece)
{
	const struct stripe_piece wrong = {
		.at = offset % SEGMENT_BYTES,
		.data = (uint8_t *)(uintptr_t)piece.data,
		.bytes = (uint32_t)piece.len,
		.crc32c = segment->checks[offset % SEGMENT_BYTES / STORE_CHECK_BYTES],
	};

	return stripe_mend(&get->store->volume, segment, &wrong, true);
}

/* Compares the pieces of [offset, end) of the part with their checksums. */
static int pieces_verify(struct store_get *get, const struct object_part *part, uint64_t offset,
	uint64_t end, uint8_t *at)
{
	while (offset < end) {
		uint32_t piece = (uint32_t)MIN(end - offset, (uint64_t)STORE_CHECK_BYTES);
		struct segment *segment;
		int ret = get_segment(get, part, offset, &segment);

		if (ret)
			return ret;
		if (__builtin_expect(
			    crc32c_update(0, at, piece) !=
				    segment->checks[offset % SEGMENT_BYTES / STORE_CHECK_BYTES],
			    0) &&
			piece_mend(get, segment, offset, slice_of(at, piece)) < 0)
			return verify_failed(part, offset);
		at += piece;
		offset += piece;
	}
	return 0;
}

int local_get_arrived(struct store_get *get, uint64_t offset, uint32_t bytes,
	struct region_span span, bool *ret_cached)
{
	const struct object_part *part = get_part(get, offset);
	uint64_t end;
	int ret;

	*ret_cached = false;
	offset -= part->start;
	if (offset % STORE_CHECK_BYTES || offset + bytes > part->bytes)
		return -EINVAL;
	end = MIN(ALIGN_UP(offset + bytes, (uint64_t)STORE_CHECK_BYTES), part->bytes);
	CHECK(end - offset <= region_span_bytes(span));
	ret = pieces_verify(get, part, offset, end, span.data);
	if (!ret)
		*ret_cached = chunk_offer(get, part, offset, end, span);
	return ret;
}

int local_get_tag(struct store_get *get, uint64_t offset, uint8_t ret_tag[STORE_TAG_BYTES])
{
	const struct object *object = get->object;
	const struct object_part *part = get_part(get, offset);
	uint32_t idx = (uint32_t)((offset - part->start) % SEGMENT_BYTES / STORE_CHECK_BYTES);
	struct segment *segment;
	int ret;

	if (object->body == BODY_INLINE) {
		memcpy(ret_tag, object->tag, STORE_TAG_BYTES);
		return object->has_tag && !offset ? 0 : -ENOENT;
	}
	if (!object->segment_count)
		return -ENOENT;
	ret = get_segment(get, part, offset - part->start, &segment);
	if (ret)
		return ret;
	if (idx >= segment->tag_count)
		return -ENOENT;
	memcpy(ret_tag, segment->tags + (size_t)idx * STORE_TAG_BYTES, STORE_TAG_BYTES);
	return 0;
}

void local_get_close(struct store_get *get)
{
	store_get_check(get);
	magic_clear(&get->head.magic);
	object_put(get->store, get->object);
	get->object = NULL;
	get_give(get);
}
