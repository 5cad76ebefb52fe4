/* store/object/object.c: objects in memory, and their segments. Each live object has one instance,
 * so its reference count tells whether anybody still reads its extents. */
#include "store/index/index.h"
#include "store/log/key.h"
#include "store/object/cache.h"
#include "store/object/object.h"
#include "store/object/record.h"
#include "store/space/space.h"
#include "store/state/state.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

int segment_open(uint32_t extent_cap, uint32_t check_cap, struct segment **ret_segment)
{
	size_t checks = ALIGN_UP((size_t)check_cap * sizeof(uint32_t), sizeof(uint64_t));
	struct segment *segment;

	extent_cap = MAX(extent_cap, 1u);
	segment = (struct segment *)slab_alloc(
		sizeof(*segment) + checks + extent_cap * sizeof(struct extent));
	if (!segment)
		return -ENOMEM;
	segment->bytes = (uint32_t)(sizeof(*segment) + checks + extent_cap * sizeof(struct extent));
	segment->extents = (struct extent *)(void *)((char *)(segment + 1) + checks);
	segment->extents_inside = true;
	segment->extent_cap = extent_cap;
	atomic_init(&segment->refs, 1);
	segment->checks = (uint32_t *)(void *)(segment + 1);
	segment->check_cap = check_cap;
	*ret_segment = segment;
	return 0;
}

void segment_close(struct segment *segment)
{
	if (!segment || atomic_fetch_sub_explicit(&segment->refs, 1, memory_order_acq_rel) != 1)
		return;
	if (!segment->extents_inside)
		free(segment->extents);
	free(segment->tags);
	slab_free(segment, segment->bytes);
}

int segment_tag_add(struct segment *segment, const uint8_t tag[STORE_TAG_BYTES])
{
	if (segment->tag_count == segment->check_cap)
		return -EINVAL;
	if (!segment->tags)
		segment->tags = (uint8_t *)malloc((size_t)segment->check_cap * STORE_TAG_BYTES);
	if (!segment->tags)
		return -ENOMEM;
	memcpy(segment->tags + (size_t)segment->tag_count++ * STORE_TAG_BYTES, tag,
		STORE_TAG_BYTES);
	return 0;
}

int segment_add(struct segment *segment, uint64_t block, uint32_t blocks)
{
	struct extent *last;

	if (segment->blocks + blocks > SEGMENT_EXTENTS_MAX)
		return -EUCLEAN;
	last = segment->extent_count ? &segment->extents[segment->extent_count - 1] : NULL;
	if (last && last->block + last->blocks == block) {
		last->blocks += blocks;
		segment->blocks += blocks;
		return 0;
	}
	if (segment->extent_count == segment->extent_cap) {
		uint32_t cap = segment->extent_cap * 2;
		bool inside = segment->extents_inside;
		void *grown =
			realloc(inside ? NULL : segment->extents, cap * sizeof(struct extent));

		if (!grown)
			return -ENOMEM;
		if (inside)
			memcpy(grown, segment->extents,
				segment->extent_count * sizeof(struct extent));
		segment->extents_inside = false;
		segment->extents = (struct extent *)grown;
		segment->extent_cap = cap;
	}
	segment->extents[segment->extent_count++] =
		(struct extent){.block = block, .blocks = blocks, .start = segment->blocks};
	segment->blocks += blocks;
	return 0;
}

int segment_find(const struct segment *segment, uint64_t offset, uint64_t *ret_volume_offset,
	uint64_t *ret_bytes)
{
	uint64_t block = offset >> BLOCK_SHIFT;
	uint32_t low = 0, high = segment->extent_count;
	const struct extent *extent;

	if (block >= segment->blocks)
		return -EUCLEAN;
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (segment->extents[middle].start <= block)
			low = middle;
		else
			high = middle;
	}
	extent = &segment->extents[low];
	*ret_volume_offset =
		(extent->block << BLOCK_SHIFT) + offset - ((uint64_t)extent->start << BLOCK_SHIFT);
	*ret_bytes = ((uint64_t)(extent->start + extent->blocks) << BLOCK_SHIFT) - offset;
	return 0;
}

static uint32_t segments_for(uint64_t bytes)
{
	return (uint32_t)((bytes + SEGMENT_BYTES - 1) / SEGMENT_BYTES);
}

/* Lays out the parts after the struct in its memory: segments, parts (of several), headers, inline
 * body. */
struct object_shape {
	uint32_t segment_count;
	uint32_t part_count;
	uint32_t inline_bytes;
};

static int object_alloc(const struct store_meta *meta, uint64_t data_id,
	const struct object_shape *shape, struct object **ret_object)
{
	size_t parts = shape->part_count > 1 ? shape->part_count : 0;
	size_t bytes = sizeof(struct object) + shape->segment_count * sizeof(void *) +
		       parts * sizeof(struct object_part) + meta->headers_len + shape->inline_bytes;
	struct object *object = (struct object *)slab_alloc(bytes);
	char *tail;

	if (!object)
		return -ENOMEM;
	atomic_init(&object->refs, 1);
	object->bytes_in_memory = (uint32_t)bytes;
	object->data_id = data_id;
	object->segment_count = shape->segment_count;
	object->segments = (_Atomic(struct segment *) *)(void *)(object + 1);
	tail = (char *)(object->segments + shape->segment_count);
	object->part_count = shape->part_count;
	object->parts = parts ? (struct object_part *)(void *)tail : &object->whole;
	tail += parts * sizeof(struct object_part);
	object->meta = *meta;
	object->meta.headers = tail;
	if (meta->headers_len && meta->headers)
		memcpy(tail, meta->headers, meta->headers_len);
	object->inline_data = tail + meta->headers_len;
	*ret_object = object;
	return 0;
}

int object_open(const struct store_meta *meta, uint64_t data_id, uint32_t inline_bytes,
	struct object **ret_object)
{
	struct object_shape shape = {.part_count = 1, .inline_bytes = inline_bytes};
	struct object *object;
	int ret;

	if (!inline_bytes)
		shape.segment_count = segments_for(meta->bytes);
	ret = object_alloc(meta, data_id, &shape, &object);
	if (ret)
		return ret;
	object->whole = (struct object_part){
		.data_id = data_id, .bytes = meta->bytes, .segment_count = shape.segment_count};
	object->body = meta->bytes == 0		  ? BODY_EMPTY
		       : inline_bytes		  ? BODY_INLINE
		       : shape.segment_count == 1 ? BODY_DIRECT
						  : BODY_SEGMENTED;
	*ret_object = object;
	return 0;
}

int object_open_parts(const struct store_meta *meta, uint64_t data_id,
	const struct part_record *parts, uint32_t part_count, struct object **ret_object)
{
	struct object_shape shape = {.part_count = part_count};
	struct object *object;
	uint64_t start = 0;
	uint32_t segment = 0;
	int ret;

	if (part_count < 2 || part_count > STORE_PARTS_MAX)
		return -EUCLEAN;
	for (uint32_t i = 0; i < part_count; i++) {
		if (!parts[i].data_id || !parts[i].bytes || parts[i].bytes > LIMIT_PUT_BYTES_MAX)
			return -EUCLEAN;
		shape.segment_count += segments_for(parts[i].bytes);
		start += parts[i].bytes;
	}
	if (start != meta->bytes)
		return -EUCLEAN;
	ret = object_alloc(meta, data_id, &shape, &object);
	if (ret)
		return ret;
	object->body = BODY_SEGMENTED;
	start = 0;
	for (uint32_t i = 0; i < part_count; i++) {
		object->parts[i] = (struct object_part){.data_id = parts[i].data_id,
			.bytes = parts[i].bytes,
			.start = start,
			.segment_first = segment,
			.segment_count = segments_for(parts[i].bytes)};
		start += parts[i].bytes;
		segment += object->parts[i].segment_count;
	}
	*ret_object = object;
	return 0;
}

void object_segments_share(const struct object *from, struct object *to, uint32_t at)
{
	for (uint32_t i = 0; i < from->segment_count; i++) {
		struct segment *loaded =
			atomic_load_explicit(&from->segments[i], memory_order_acquire);

		/* Loads from the index the parts that are not in memory. */
		if (loaded)
			segment_close(atomic_exchange(&to->segments[at + i], segment_get(loaded)));
	}
}

struct object *object_after_moves(struct object *object)
{
	struct object *next;

	/* `moved` is set before body_owner, and only by a move. */
	while ((next = atomic_load(&object->body_owner)) && object->moved)
		object = next;
	return object;
}

int object_open_edited(const struct object *from, struct slice headers, struct object **ret_object)
{
	struct object_shape shape = {
		.segment_count = from->segment_count,
		.part_count = from->part_count,
		.inline_bytes = from->body == BODY_INLINE ? (uint32_t)from->meta.bytes : 0,
	};
	struct store_meta meta = from->meta;
	struct object *object;
	int ret;

	meta.headers = headers.data;
	meta.headers_len = (uint32_t)headers.len;
	ret = object_alloc(&meta, from->data_id, &shape, &object);
	if (ret)
		return ret;
	object->body = from->body;
	object->has_tag = from->has_tag;
	memcpy(object->tag, from->tag, sizeof(object->tag));
	object->body_flushed = from->body_flushed;
	object->whole = from->whole;
	if (from->part_count > 1)
		memcpy(object->parts, from->parts, from->part_count * sizeof(*from->parts));
	if (shape.inline_bytes)
		region_copy(object->inline_data, from->inline_data, shape.inline_bytes, COPY_INDEX);
	object_segments_share(from, object, 0);
	*ret_object = object;
	return 0;
}

int object_open_moved(const struct object *from, uint32_t segment_idx, struct segment *segment,
	struct object **ret_object)
{
	struct object *object;
	int ret = object_open_edited(
		from, slice_of(from->meta.headers, from->meta.headers_len), &object);

	if (ret)
		return ret;
	object->seq = from->seq;
	segment_close(atomic_exchange(&object->segments[segment_idx], segment));
	*ret_object = object;
	return 0;
}

const struct object_part *object_part_find(const struct object *object, uint64_t offset)
{
	uint32_t low = 0, high = object->part_count;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (object->parts[middle].start <= offset)
			low = middle;
		else
			high = middle;
	}
	return &object->parts[low];
}

const struct object_part *object_part_of(const struct object *object, uint32_t segment_idx)
{
	uint32_t low = 0, high = object->part_count;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (object->parts[middle].segment_first <= segment_idx)
			low = middle;
		else
			high = middle;
	}
	return &object->parts[low];
}

void object_segment_range(
	const struct object *object, uint32_t segment_idx, uint64_t *ret_from, uint64_t *ret_bytes)
{
	const struct object_part *part = object_part_of(object, segment_idx);
	uint64_t from = (uint64_t)(segment_idx - part->segment_first) * SEGMENT_BYTES;

	*ret_from = part->start + from;
	*ret_bytes = MIN(part->bytes - from, (uint64_t)SEGMENT_BYTES);
}

/* Expects checks, and about as many runs as chunks. */
size_t object_segments_memory(const struct object *object)
{
	return object->segment_count * (sizeof(struct segment) + 2 * sizeof(struct extent)) +
	       object->meta.bytes / STORE_CHECK_BYTES * sizeof(uint32_t) +
	       object->meta.bytes / STORE_CHUNK_BYTES * sizeof(struct extent);
}

/* Rows of the index are untrusted input. */
static void segment_give(struct store *store, const struct segment *segment)
{
	for (uint32_t i = 0; i < segment->extent_count; i++) {
		const struct extent *extent = &segment->extents[i];

		int ret = space_reclaim(store->space, extent->block, extent->blocks);

		if (ret)
			log_error("store",
				"%s: the index is damaged: an object that was deleted named blocks "
				"%llu+%u, which %s: run fsck",
				store->dir, (unsigned long long)extent->block, extent->blocks,
				ret == -ERANGE	? "are no blocks of bodies"
				: ret == -EBUSY ? "another object names, too"
						: "were free already");
	}
}

static void object_close(struct store *store, struct object *object)
{
	bool dead = atomic_load(&object->dead);

	for (uint32_t i = 0; i < object->segment_count; i++) {
		struct segment *segment = atomic_load(&object->segments[i]);

		if (dead && segment)
			segment_give(store, segment);
		segment_close(segment);
	}
	if (object->moved)
		segment_give(store, object->moved);
	segment_close(object->moved);
	for (uint32_t i = 0; dead && store->cache && i < object->part_count; i++) {
		const struct object_part *part = &object->parts[i];

		if (part->segment_count)
			cache_drop(store->cache, part->data_id,
				(uint32_t)((part->bytes + STORE_CHUNK_BYTES - 1) /
					   STORE_CHUNK_BYTES));
	}
	slab_free(object, object->bytes_in_memory);
}

/* The last reference to an object also drops its reference to the object that owns its body. The
 * loop avoids recursion, because the chain may be long. */
void object_put(struct store *store, struct object *object)
{
	while (object && atomic_fetch_sub_explicit(&object->refs, 1, memory_order_acq_rel) == 1) {
		struct object *owner = atomic_load(&object->body_owner);

		object_close(store, object);
		object = owner;
	}
}

/* Reads the segment's row. 1: found; 0: no such row; -EIO, -ENOMEM. */
static int segment_fetch(struct store *store, const struct object *object, uint32_t segment_idx,
	struct segment **ret)
{
	const struct object_part *part = object_part_of(object, segment_idx);
	uint64_t from, bytes;
	struct key key;
	char *value;
	size_t len;
	int found;

	key_segment(&key, part->data_id, segment_idx - part->segment_first);
	found = index_get(store->index, &key, true, &value, &len);
	if (found <= 0)
		return found;
	found = segment_record_parse(slice_of(value, len), ret);
	free(value);
	if (found)
		return found == -ENOMEM ? found : -EIO;
	object_segment_range(object, segment_idx, &from, &bytes);
	if (segment_covers(*ret, bytes))
		return 1;
	segment_close(*ret);
	return -EIO;
}

/* Gets it from memory or the object's own row: 1 with *ret; 0: in neither; -EIO, -ENOMEM. */
static int segment_find_own(
	struct store *store, struct object *object, uint32_t segment_idx, struct segment **ret)
{
	struct segment *segment, *none = NULL;
	int found;

	segment = atomic_load_explicit(&object->segments[segment_idx], memory_order_acquire);
	if (segment) {
		*ret = segment;
		return 1;
	}
	found = segment_fetch(store, object, segment_idx, &segment);
	if (found <= 0)
		return found;
	/* Two readers may have loaded it: the first copy stays. */
	if (!atomic_compare_exchange_strong(&object->segments[segment_idx], &none, segment)) {
		segment_close(segment);
		segment = none;
	}
	*ret = segment;
	return 1;
}

int object_segment_load(
	struct store *store, struct object *object, uint32_t segment_idx, struct segment **ret)
{
	for (;;) {
		struct object *owner;
		int found;

		CHECK(segment_idx < object->segment_count);
		found = segment_find_own(store, object, segment_idx, ret);
		if (found)
			return MIN(found, 0);
		/* Deleted meanwhile: before the index thread deletes the rows of a body, it loads
		 * all segments of the body's owner. */
		owner = atomic_load(&object->body_owner);
		if (!owner)
			break;
		segment_idx += object->owner_segment_first;
		object = owner;
	}
	*ret = atomic_load_explicit(&object->segments[segment_idx], memory_order_acquire);
	if (*ret)
		return 0;
	log_error("store", "object data %llu: segment %u is missing in the index",
		(unsigned long long)object->data_id, segment_idx);
	return -EIO;
}
