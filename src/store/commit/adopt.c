/* store/commit/adopt.c: bodies that change their object and stay where they are: an object takes
 * over the bodies of others, which end in the same commit. Only names move.
 *
 * Whoever still reads one of the others keeps the adopter in memory, and with it the space. */
#include "store/commit/body.h"
#include "store/commit/commit.h"
#include "store/log/journal.h"
#include "store/log/key.h"
#include "store/object/object.h"
#include "store/object/record.h"
#include "store/state/state.h"
#include "store/table/table.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define LIST_FIRST 16u
#define MORE_MAX   16u

static int list_grow(struct adoption *adoption)
{
	uint32_t cap = MAX(adoption->cap * 2, LIST_FIRST);
	void *grown;

	if (adoption->count < adoption->cap)
		return 0;
	grown = realloc(adoption->list, cap * sizeof(*adoption->list));
	if (!grown)
		return -ENOMEM;
	adoption->list = (struct adopted *)grown;
	adoption->cap = cap;
	return 0;
}

/* Whether the body can have another object's name without being moved. */
static bool adoptable(const struct object *object)
{
	return object->part_count == 1 && object->body != BODY_INLINE;
}

int adoption_add(struct store *store, struct adoption *adoption, struct bucket *bucket,
	struct slice key, const struct store_get *get, bool drop)
{
	struct object *object = get->object;
	struct hot_entry *entry;
	struct object *current;
	int ret;

	if (!drop && !adoptable(object))
		return -EINVAL;
	if (adoption->count >= STORE_PARTS_MAX + MORE_MAX ||
		(!drop && adoption->adopted_count == STORE_PARTS_MAX) ||
		(!drop && adoption->bytes + object->meta.bytes > LIMIT_OBJECT_BYTES_MAX))
		return -EFBIG;
	ret = list_grow(adoption);
	if (!ret)
		ret = hot_pin(store->hot, bucket->info.id, key, &entry);
	if (ret)
		return ret;
	current = hot_object(store->hot, entry);
	object_put(store, current);
	if (current != object) {
		hot_unpin(store->hot, entry);
		return -ESTALE;
	}
	atomic_fetch_add(&bucket->refs, 1);
	adoption->list[adoption->count++] = (struct adopted){.bucket = bucket,
		.entry = entry,
		.object = object_get(object),
		.dropped = drop || object->body == BODY_EMPTY};
	if (!drop) {
		adoption->bytes += object->meta.bytes;
		adoption->adopted_count++;
	}
	return 0;
}

static uint32_t body_count(const struct adoption *adoption)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < adoption->count; i++)
		count += !adoption->list[i].dropped;
	return count;
}

/* One body, or none, makes a plain object. */
static int shell_open(const struct adoption *adoption, const struct store_meta *meta,
	uint64_t data_id, struct object **ret_object)
{
	uint32_t count = body_count(adoption);
	struct part_record *parts;
	uint32_t at = 0;
	int ret;

	parts = (struct part_record *)malloc((count + 1) * sizeof(*parts));
	if (!parts)
		return -ENOMEM;
	for (uint32_t i = 0; i < adoption->count; i++)
		if (!adoption->list[i].dropped)
			parts[at++] =
				(struct part_record){.data_id = adoption->list[i].object->data_id,
					.bytes = adoption->list[i].object->meta.bytes};
	if (count > 1)
		ret = object_open_parts(meta, data_id, parts, count, ret_object);
	else
		ret = object_open(meta, count ? parts[0].data_id : data_id, 0, ret_object);
	free(parts);
	return ret;
}

int adoption_move(struct store *store, struct adoption *adoption, struct bucket *bucket,
	struct slice key, const struct store_get *get)
{
	int ret = adoption_add(store, adoption, bucket, key, get, true);

	if (ret)
		return ret;
	adoption->list[adoption->count - 1].dropped = false;
	adoption->list[adoption->count - 1].moved = true;
	return 0;
}

int adoption_object(struct adoption *adoption, const struct store_meta *meta, uint64_t data_id,
	struct object **ret_object)
{
	struct object *object;
	uint32_t segment = 0;
	int ret;

	if (meta->bytes != adoption->bytes)
		return -EINVAL;
	ret = shell_open(adoption, meta, data_id, &object);
	if (ret)
		return ret;
	if (meta->bytes)
		object->body = BODY_SEGMENTED;
	object->body_flushed = true; /* with the commits of the adopted */
	for (uint32_t i = 0; i < adoption->count; i++) {
		struct adopted *adopted = &adoption->list[i];

		if (adopted->dropped)
			continue;
		adopted->segment_first = segment;
		object_segments_share(adopted->object, object, segment);
		segment += adopted->object->segment_count;
	}
	CHECK(segment == object->segment_count);
	*ret_object = object;
	return 0;
}

/* An adopted direct body gets a row of its own: its record goes. */
static bool needs_row(const struct adopted *adopted)
{
	return !adopted->dropped && !adopted->moved && adopted->object->body == BODY_DIRECT;
}

size_t adoption_bytes(const struct adoption *adoption)
{
	size_t bytes = 0, delete_bytes = 0;

	for (uint32_t i = 0; i < adoption->count; i++) {
		const struct adopted *adopted = &adoption->list[i];

		bytes += MUTATION_BYTES(1 + 8 + adopted->entry->key_len, 0);
		if (needs_row(adopted))
			bytes += MUTATION_BYTES(SEGMENT_KEY_BYTES,
				segment_record_bytes(atomic_load(&adopted->object->segments[0])));
		else if (adopted->dropped)
			bytes += MUTATION_BYTES(SEGMENT_KEY_BYTES, 0) *
				 commit_rows_max(adopted->object);
		delete_bytes +=
			MUTATION_BYTES(SEGMENT_KEY_BYTES, 0) * adopted->object->segment_count;
	}
	/* What could not be deleted again must not come to be. */
	return MAX(bytes, delete_bytes);
}

static void adopted_add(struct group *group, const struct adopted *adopted)
{
	const struct hot_entry *entry = adopted->entry;
	const struct object *object = adopted->object;
	const struct segment *segment;
	struct key key;

	key_object(&key, entry->bucket_id, slice_of(entry->key, entry->key_len));
	group_add(group, MUTATION_DELETE, 0, &key, 0);
	if (adopted->dropped)
		commit_rows_delete(group, object);
	if (!needs_row(adopted))
		return;
	segment = atomic_load(&object->segments[0]);
	key_segment(&key, object->data_id, 0);
	segment_record_put(segment, group_add(group, MUTATION_PUT, MUTATION_BODY_FLUSHED, &key,
					    segment_record_bytes(segment)));
}

static void undo_first(struct adoption *adoption, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		adoption->list[i].entry->has_pending = false;
}

int adoption_decide(struct adoption *adoption, struct group *group)
{
	for (uint32_t i = 0; i < adoption->count; i++) {
		struct hot_entry *entry = adoption->list[i].entry;

		/* What is pending came after the object: it has been published. */
		if (entry->has_pending || entry->object != adoption->list[i].object) {
			undo_first(adoption, i);
			return -ESTALE;
		}
		entry->pending = NULL;
		entry->has_pending = true;
	}
	adoption->decided = true;
	for (uint32_t i = 0; i < adoption->count; i++)
		adopted_add(group, &adoption->list[i]);
	return 0;
}

void adoption_undo(struct adoption *adoption)
{
	if (!adoption->decided)
		return;
	undo_first(adoption, adoption->count);
	adoption->decided = false;
}

void adoption_publish(
	struct store *store, struct adoption *adoption, struct object *adopter, struct group *group)
{
	for (uint32_t i = 0; i < adoption->count; i++) {
		struct adopted *adopted = &adoption->list[i];
		struct object *old = hot_publish(store->hot, adopted->entry, NULL);

		CHECK(old == adopted->object);
		object_unseat(store, old);
		adopted->entry->has_pending = false;
		if (adopted->dropped) {
			atomic_store(&old->dead, true);
		} else {
			old->adopted_at = adopted->segment_first;
			atomic_store(&old->adopter, object_get(adopter));
		}
		atomic_fetch_sub(&adopted->bucket->objects, 1);
		atomic_fetch_sub(&store->objects, 1);
		group->touched[group->touched_count++] =
			(struct touched){.entry = adopted->entry, .old = old};
	}
}

void adoption_close(struct store *store, struct adoption *adoption)
{
	for (uint32_t i = 0; i < adoption->count; i++) {
		struct adopted *adopted = &adoption->list[i];

		if (!adoption->decided)
			hot_unpin(store->hot, adopted->entry);
		object_put(store, adopted->object);
		bucket_put(adopted->bucket);
	}
	free(adoption->list);
}
