/* store/object.c: an object as it is in memory, and its segments. There is one instance for each
 * live object, so that its reference count says whether anybody still reads its extents. */
#include "store/store_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int segment_open(uint32_t extent_cap, uint32_t check_cap, struct segment **ret_segment)
{
	struct segment *segment;

	segment = (struct segment *)calloc(1, sizeof(*segment) + check_cap * sizeof(uint32_t));
	if (!segment)
		return -ENOMEM;
	extent_cap = MAX(extent_cap, 1u);
	segment->extents = (struct extent *)malloc(extent_cap * sizeof(struct extent));
	if (!segment->extents) {
		free(segment);
		return -ENOMEM;
	}
	segment->extent_cap = extent_cap;
	segment->checks = (uint32_t *)(void *)(segment + 1);
	*ret_segment = segment;
	return 0;
}

void segment_close(struct segment *segment)
{
	if (!segment)
		return;
	free(segment->extents);
	free(segment);
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
		void *grown = realloc(segment->extents, cap * sizeof(struct extent));

		if (!grown)
			return -ENOMEM;
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

int object_open(const struct store_meta *meta, uint64_t data_id, uint32_t inline_bytes,
	struct object **ret_object)
{
	uint32_t segments = 0;
	size_t bytes;
	struct object *object;
	char *tail;

	if (meta->bytes && !inline_bytes)
		segments = (uint32_t)((meta->bytes + SEGMENT_BYTES - 1) / SEGMENT_BYTES);
	bytes = sizeof(*object) + segments * sizeof(void *) + meta->headers_len + inline_bytes;
	object = (struct object *)calloc(1, bytes);
	if (!object)
		return -ENOMEM;
	atomic_init(&object->refs, 1);
	object->bytes_in_memory = (uint32_t)bytes;
	object->data_id = data_id;
	object->segment_count = segments;
	object->segments = (_Atomic(struct segment *) *)(void *)(object + 1);
	object->body = meta->bytes == 0 ? BODY_EMPTY
		       : inline_bytes	? BODY_INLINE
		       : segments == 1	? BODY_DIRECT
					: BODY_SEGMENTED;
	tail = (char *)(object->segments + segments);
	object->meta = *meta;
	object->meta.headers = tail;
	if (meta->headers_len && meta->headers)
		memcpy(tail, meta->headers, meta->headers_len);
	object->inline_data = tail + meta->headers_len;
	*ret_object = object;
	return 0;
}

static void object_close(struct store *store, struct object *object)
{
	bool dead = atomic_load(&object->dead);

	for (uint32_t i = 0; i < object->segment_count; i++) {
		struct segment *segment = atomic_load(&object->segments[i]);

		for (uint32_t e = 0; dead && segment && e < segment->extent_count; e++)
			space_give(store->space, segment->extents[e].block,
				segment->extents[e].blocks);
		segment_close(segment);
	}
	if (dead && store->cache && object->segment_count)
		cache_drop(store->cache, object->data_id,
			(uint32_t)((object->meta.bytes + STORE_CHUNK_BYTES - 1) /
				   STORE_CHUNK_BYTES));
	free(object);
}

void object_put(struct store *store, struct object *object)
{
	if (!object)
		return;
	if (atomic_fetch_sub_explicit(&object->refs, 1, memory_order_acq_rel) == 1)
		object_close(store, object);
}

int object_segment_load(
	struct store *store, struct object *object, uint32_t segment_idx, struct segment **ret)
{
	struct segment *segment, *none = NULL;
	char *value;
	size_t len;
	struct key key;
	int found;

	CHECK(segment_idx < object->segment_count);
	segment = atomic_load_explicit(&object->segments[segment_idx], memory_order_acquire);
	if (segment) {
		*ret = segment;
		return 0;
	}
	key_segment(&key, object->data_id, segment_idx);
	found = index_get(store->index, &key, true, &value, &len);
	if (found < 0)
		return found;
	if (found) {
		found = segment_record_parse(slice_of(value, len), &segment);
		free(value);
		if (found)
			return found == -ENOMEM ? found : -EIO;
		/* Two readers may have loaded it: the first one's stays. */
		if (!atomic_compare_exchange_strong(
			    &object->segments[segment_idx], &none, segment)) {
			segment_close(segment);
			segment = none;
		}
		*ret = segment;
		return 0;
	}
	/* Deleted meanwhile: the index thread loads all segments before it deletes their rows. */
	segment = atomic_load_explicit(&object->segments[segment_idx], memory_order_acquire);
	if (!segment) {
		log_error("store", "object data %llu: segment %u is missing in the index",
			(unsigned long long)object->data_id, segment_idx);
		return -EIO;
	}
	*ret = segment;
	return 0;
}
