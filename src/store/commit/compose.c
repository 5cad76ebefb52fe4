/* store/commit/compose.c: composes an object of the bodies of other objects, which are deleted in
 * the same commit. The bodies stay in place; only names move.
 *
 * A reader of one of the other objects keeps the composed object in memory, and with it the space.
 */
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

static int list_grow(struct composition *composition)
{
	uint32_t cap = MAX(composition->cap * 2, LIST_FIRST);
	void *grown;

	if (composition->count < composition->cap)
		return 0;
	grown = realloc(composition->list, cap * sizeof(*composition->list));
	if (!grown)
		return -ENOMEM;
	composition->list = (struct component *)grown;
	composition->cap = cap;
	return 0;
}

/* Whether another object can take over the body without moving it. */
static bool composable(const struct object *object)
{
	return object->part_count == 1 && object->body != BODY_INLINE;
}

int composition_add(struct store *store, struct composition *composition, struct bucket *bucket,
	struct slice key, const struct store_get *get, bool drop)
{
	struct object *object = object_after_moves(get->object);
	struct record_entry *entry;
	struct object *current;
	int ret;

	if (!drop && !composable(object))
		return -EINVAL;
	if (composition->count >= STORE_PARTS_MAX + MORE_MAX ||
		(!drop && composition->component_count == STORE_PARTS_MAX) ||
		(!drop && composition->bytes + object->meta.bytes > LIMIT_OBJECT_BYTES_MAX))
		return -EFBIG;
	ret = list_grow(composition);
	if (!ret)
		ret = record_entry_pin(store->records, bucket->info.id, key, &entry);
	if (ret)
		return ret;
	current = record_entry_object(store->records, entry);
	object_put(store, current);
	if (current != object) {
		record_entry_unpin(store->records, entry);
		return -ESTALE;
	}
	atomic_fetch_add(&bucket->refs, 1);
	composition->list[composition->count++] = (struct component){.bucket = bucket,
		.entry = entry,
		.object = object_get(object),
		.dropped = drop || object->body == BODY_EMPTY};
	if (!drop) {
		composition->bytes += object->meta.bytes;
		composition->component_count++;
	}
	return 0;
}

static uint32_t body_count(const struct composition *composition)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < composition->count; i++)
		count += !composition->list[i].dropped;
	return count;
}

/* A single body, or none, makes a plain object. */
static int shell_open(const struct composition *composition, const struct store_meta *meta,
	uint64_t data_id, struct object **ret_object)
{
	uint32_t count = body_count(composition);
	struct part_record *parts;
	uint32_t at = 0;
	int ret;

	parts = (struct part_record *)malloc((count + 1) * sizeof(*parts));
	if (!parts)
		return -ENOMEM;
	for (uint32_t i = 0; i < composition->count; i++)
		if (!composition->list[i].dropped)
			parts[at++] = (struct part_record){
				.data_id = composition->list[i].object->data_id,
				.bytes = composition->list[i].object->meta.bytes};
	if (count > 1)
		ret = object_open_parts(meta, data_id, parts, count, ret_object);
	else
		ret = object_open(meta, count ? parts[0].data_id : data_id, 0, ret_object);
	free(parts);
	return ret;
}

int composition_move(struct store *store, struct composition *composition, struct bucket *bucket,
	struct slice key, const struct store_get *get)
{
	int ret = composition_add(store, composition, bucket, key, get, true);

	if (ret)
		return ret;
	composition->list[composition->count - 1].dropped = false;
	composition->list[composition->count - 1].moved = true;
	return 0;
}

int composition_object(struct composition *composition, const struct store_meta *meta,
	uint64_t data_id, struct object **ret_object)
{
	struct object *object;
	uint32_t segment = 0;
	int ret;

	if (meta->bytes != composition->bytes)
		return -EINVAL;
	ret = shell_open(composition, meta, data_id, &object);
	if (ret)
		return ret;
	if (meta->bytes)
		object->body = BODY_SEGMENTED;
	object->body_flushed = true; /* with the commits of its components */
	for (uint32_t i = 0; i < composition->count; i++) {
		struct component *component = &composition->list[i];

		if (component->dropped)
			continue;
		component->segment_first = segment;
		object_segments_share(component->object, object, segment);
		segment += component->object->segment_count;
	}
	CHECK(segment == object->segment_count);
	*ret_object = object;
	return 0;
}

/* The caller may hold them for long, and its moving is nothing that a client did. */
bool composition_follow(
	struct store *store, struct composition *composition, struct object *composed)
{
	bool follows = false;

	for (uint32_t i = 0; i < composition->count; i++) {
		struct component *component = &composition->list[i];
		struct object *now = object_after_moves(component->object);

		if (now == component->object)
			continue;
		(void)object_get(now);
		object_put(store, component->object);
		component->object = now;
		if (!component->dropped)
			object_segments_share(now, composed, component->segment_first);
		follows = true;
	}
	return follows;
}

/* A component's direct body gets a row of its own, because its record is deleted. */
static bool needs_row(const struct component *component)
{
	return !component->dropped && !component->moved && component->object->body == BODY_DIRECT;
}

size_t composition_bytes(const struct composition *composition)
{
	size_t bytes = 0, delete_bytes = 0;

	for (uint32_t i = 0; i < composition->count; i++) {
		const struct component *component = &composition->list[i];

		bytes += MUTATION_BYTES(1 + 8 + component->entry->key_len, 0);
		if (needs_row(component))
			bytes += MUTATION_BYTES(SEGMENT_KEY_BYTES,
				segment_record_bytes(atomic_load(&component->object->segments[0])));
		else if (component->dropped)
			bytes += MUTATION_BYTES(SEGMENT_KEY_BYTES, 0) *
				 commit_rows_max(component->object);
		delete_bytes +=
			MUTATION_BYTES(SEGMENT_KEY_BYTES, 0) * component->object->segment_count;
	}
	/* An object that is too large to delete later must not be created. */
	return MAX(bytes, delete_bytes);
}

static void component_add(struct group *group, const struct component *component)
{
	const struct record_entry *entry = component->entry;
	const struct object *object = component->object;
	const struct segment *segment;
	struct key key;

	key_object(&key, entry->bucket_id, slice_of(entry->key, entry->key_len));
	group_add(group, MUTATION_DELETE, 0, &key, 0);
	if (component->dropped)
		commit_rows_delete(group, object);
	if (!needs_row(component))
		return;
	segment = atomic_load(&object->segments[0]);
	key_segment(&key, object->data_id, 0);
	segment_record_put(segment, group_add(group, MUTATION_PUT, MUTATION_BODY_FLUSHED, &key,
					    segment_record_bytes(segment)));
}

static void undo_first(struct composition *composition, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		composition->list[i].entry->has_pending = false;
}

int composition_plan(struct composition *composition, struct group *group)
{
	for (uint32_t i = 0; i < composition->count; i++) {
		struct record_entry *entry = composition->list[i].entry;

		/* A change after the object is pending: so the object has been published. */
		if (entry->has_pending || entry->object != composition->list[i].object) {
			undo_first(composition, i);
			return -ESTALE;
		}
		entry->pending = NULL;
		entry->has_pending = true;
	}
	composition->planned = true;
	for (uint32_t i = 0; i < composition->count; i++)
		component_add(group, &composition->list[i]);
	return 0;
}

void composition_undo(struct composition *composition)
{
	if (!composition->planned)
		return;
	undo_first(composition, composition->count);
	composition->planned = false;
}

void composition_publish(struct store *store, struct composition *composition,
	struct object *composed, struct group *group)
{
	for (uint32_t i = 0; i < composition->count; i++) {
		struct component *component = &composition->list[i];
		struct object *old = record_entry_publish(store->records, component->entry, NULL);

		CHECK(old == component->object);
		object_supersede(store, old);
		component->entry->has_pending = false;
		if (component->dropped) {
			atomic_store(&old->dead, true);
		} else {
			old->owner_segment_first = component->segment_first;
			atomic_store(&old->body_owner, object_get(composed));
		}
		atomic_fetch_sub(&component->bucket->objects, 1);
		atomic_fetch_sub(&store->objects, 1);
		group->touched[group->touched_count++] =
			(struct touched){.entry = component->entry, .old = old};
	}
}

void composition_close(struct store *store, struct composition *composition)
{
	for (uint32_t i = 0; i < composition->count; i++) {
		struct component *component = &composition->list[i];

		if (!composition->planned)
			record_entry_unpin(store->records, component->entry);
		object_put(store, component->object);
		bucket_put(component->bucket);
	}
	free(composition->list);
}
