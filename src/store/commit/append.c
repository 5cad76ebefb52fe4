/* store/commit/append.c: appends a body to the object of a key, and renames a key. Bytes on the
 * volume do not move: an append adds one more body to the object, like a part of an upload, and a
 * rename is a record at another key.
 *
 * The exception is a body in the index (at most STORE_INLINE_BYTES_MAX): the first append writes it
 * to the volume, because an object of several bodies needs places on the volume. */
#include "codec/crc.h"
#include "store/commit/body.h"
#include "store/commit/commit.h"
#include "store/log/journal.h"
#include "store/log/key.h"
#include "store/object/object.h"
#include "store/object/record.h"
#include "store/space/space.h"
#include "store/state/state.h"
#include "store/table/table.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- Moving a small body out of the index. ---- */

static int move_extent(struct store *store, const struct extent *extent, uint8_t *bytes)
{
	struct iovec iov = {.iov_base = bytes + ((size_t)extent->start << BLOCK_SHIFT),
		.iov_len = (size_t)extent->blocks << BLOCK_SHIFT};
	struct disk_io write = {.op = DISK_WRITE,
		.iov = &iov,
		.iov_count = 1,
		.offset = extent->block << BLOCK_SHIFT};
	int32_t result = disk_run(store->volume.disk, &write);

	if (result < 0 && !store_volume_short(store, result))
		store_fence(store, "the volume", result);
	return MIN(result, 0);
}

/* The group's flush is of the log alone. */
static int move_flush(struct store *store)
{
	struct disk_io flush = {.op = DISK_FLUSH};
	int32_t result = disk_run(store->volume.disk, &flush);

	if (result < 0 && !store_volume_short(store, result))
		store_fence(store, "the volume", result);
	return MIN(result, 0);
}

static int move_lease(struct store *store, struct segment *segment, uint32_t blocks)
{
	while (segment->blocks < blocks) {
		uint32_t leased;
		uint64_t block;
		int ret = grow_segment(store, segment, blocks - segment->blocks, &block, &leased);

		if (ret)
			return ret;
	}
	return 0;
}

/* Writes an inline body to the volume; the group's flush makes it durable. */
static int move_inline(struct store *store, struct append *append)
{
	const struct object *base = append->base;
	uint32_t bytes = (uint32_t)base->meta.bytes;
	uint32_t blocks = region_frames_for(bytes);
	struct segment *segment;
	void *memory;
	int ret;

	if (base->body != BODY_INLINE)
		return 0;
	ret = segment_open(1, 1, &append->moved);
	if (ret)
		return ret;
	segment = append->moved;
	if (posix_memalign(&memory, BLOCK_BYTES, (size_t)blocks << BLOCK_SHIFT))
		return -ENOMEM;
	region_copy(memory, base->inline_data, bytes, COPY_INDEX);
	memset((uint8_t *)memory + bytes, 0, ((size_t)blocks << BLOCK_SHIFT) - bytes);
	segment->checks[segment->check_count++] = crc32c_update(0, memory, bytes);
	if (base->has_tag)
		ret = segment_tag_add(segment, base->tag);
	if (!ret)
		ret = move_lease(store, segment, blocks);
	for (uint32_t i = 0; !ret && i < segment->extent_count; i++)
		ret = move_extent(store, &segment->extents[i], (uint8_t *)memory);
	if (!ret && disk_has_log_apart(store->volume.disk))
		ret = move_flush(store);
	free(memory);
	return ret;
}

/* ---- Appending. ---- */

int append_open(struct append *append, const struct bucket *bucket, const struct store_get *get)
{
	const struct object *base = get->object;

	if (append->base || bucket->info.versioning != STORE_VERSIONING_NEVER)
		return -EINVAL;
	if (base->part_count >= STORE_PARTS_MAX)
		return -E2BIG;
	append->base = object_get(object_after_moves(get->object));
	return 0;
}

bool append_follow(struct store *store, struct append *append, struct object *joined)
{
	struct object *now = object_after_moves(append->base);

	if (now == append->base)
		return false;
	(void)object_get(now);
	object_put(store, append->base);
	append->base = now;
	object_segments_share(now, joined, 0);
	return true;
}

int append_object(struct store *store, struct append *append, const struct store_meta *meta,
	uint64_t data_id, struct object **ret_object)
{
	const struct object *base = append->base;
	uint32_t count = base->part_count;
	struct part_record *parts;
	int ret;

	if (!base->meta.bytes)
		return object_open(meta, data_id, 0, ret_object);
	ret = move_inline(store, append);
	if (ret)
		return ret;
	parts = (struct part_record *)malloc((count + 1) * sizeof(*parts));
	if (!parts)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		parts[i] = (struct part_record){
			.data_id = base->parts[i].data_id, .bytes = base->parts[i].bytes};
	parts[count] =
		(struct part_record){.data_id = data_id, .bytes = meta->bytes - base->meta.bytes};
	/* The object's own number names no rows. */
	ret = object_open_parts(
		meta, atomic_fetch_add(&store->data_id_next, 1), parts, count + 1, ret_object);
	free(parts);
	if (ret)
		return ret;
	if (append->moved)
		atomic_init(&(*ret_object)->segments[0], segment_get(append->moved));
	else
		object_segments_share(base, *ret_object, 0);
	return 0;
}

uint32_t append_first(const struct object *object)
{
	return object->parts[object->part_count - 1].segment_first;
}

/* The row for the base's body, whose record is deleted. NULL: the body has rows already. */
static const struct segment *base_row(const struct append *append)
{
	if (append->moved)
		return append->moved;
	return append->base->body == BODY_DIRECT ? atomic_load(&append->base->segments[0]) : NULL;
}

size_t append_bytes(const struct append *append, const struct object *object)
{
	const struct segment *row = base_row(append);
	size_t bytes = record_bytes(object);

	/* An object that is too large to delete later must not be created. */
	bytes += MUTATION_BYTES(SEGMENT_KEY_BYTES, 0) * (object->segment_count + 1);
	if (row)
		bytes += MUTATION_BYTES(SEGMENT_KEY_BYTES, segment_record_bytes(row));
	for (uint32_t i = append_first(object); i < object->segment_count; i++)
		bytes += MUTATION_BYTES(
			SEGMENT_KEY_BYTES, segment_record_bytes(atomic_load(&object->segments[i])));
	return bytes;
}

static void row_add(struct group *group, uint64_t data_id, uint32_t idx,
	const struct segment *segment, uint8_t flags)
{
	struct key key;

	key_segment(&key, data_id, idx);
	segment_record_put(segment,
		group_add(group, MUTATION_PUT, flags, &key, segment_record_bytes(segment)));
}

void append_add(struct group *group, const struct append *append, const struct object *object,
	uint8_t flags)
{
	const struct object_part *own = &object->parts[object->part_count - 1];
	const struct segment *row = base_row(append);

	if (append->moved)
		commit_rows_delete(group, append->base);
	if (row)
		row_add(group, append->base->data_id, 0, row, flags);
	for (uint32_t i = 0; i < own->segment_count; i++)
		row_add(group, own->data_id, i,
			atomic_load(&object->segments[own->segment_first + i]), flags);
}

void append_close(struct store *store, struct append *append, bool stored)
{
	for (uint32_t i = 0; !stored && append->moved && i < append->moved->extent_count; i++)
		space_give(store->space, append->moved->extents[i].block,
			append->moved->extents[i].blocks);
	segment_close(append->moved);
	object_put(store, append->base);
}

/* ---- Renaming. ---- */

static int rename_run(struct store *store, struct commit *commit, struct slice to)
{
	struct commit_item *item = &commit->items[0];
	int ret = record_entry_pin(store->records, commit->bucket->info.id, to, &item->entry);

	if (ret)
		return ret;
	do
		commit_run(store, commit);
	while (item->result == -ESTALE && commit_follow(store, commit));
	if (!item->entry_taken)
		record_entry_unpin(store->records, item->entry);
	return item->result;
}

int local_rename(struct store *store, const struct store_name *from, const struct store_get *get,
	struct slice to, struct slice headers, struct store_condition condition)
{
	struct commit_item item = {.check = condition.check,
		.arg = condition.arg,
		.mtime_ns = get->object->meta.mtime_ns};
	struct composition composition = {0};
	struct commit commit = {.items = &item, .item_count = 1, .composition = &composition};
	int ret;

	if (!store_key_valid(to) || slice_eq(to, from->key) ||
		headers.len > STORE_HEADERS_BYTES_MAX)
		return -EINVAL;
	commit.bucket = buckets_find_of(store->buckets, from->bucket, from->bucket_id);
	if (!commit.bucket)
		return -ENOENT;
	ret = commit.bucket->info.versioning == STORE_VERSIONING_NEVER ? 0 : -EINVAL;
	if (!ret)
		ret = composition_move(store, &composition, commit.bucket, from->key, get);
	if (!ret)
		ret = object_open_edited(composition.list[0].object, headers, &item.object);
	if (!ret) {
		item.object->body_flushed = true; /* a reader sees only durable bytes */
		ret = rename_run(store, &commit, to);
	}
	if (ret)
		object_put(store, item.object);
	composition_close(store, &composition);
	bucket_put(commit.bucket);
	return ret;
}
