/* store/commit.c: deciding what a commit does, in commit order, and publishing it once it is
 * durable. Runs on the committer's fiber but for commit_run, the caller's end. */
#include "store/store_priv.h"

#include <errno.h>
#include <string.h>

#define INLINE_KEY_BYTES  9u
#define SEGMENT_KEY_BYTES 13u

static void committer_kick(struct committer *committer)
{
	if (committer->reactor != reactor_self()) {
		if (!atomic_exchange(&committer->kicked, true))
			reactor_post(committer->reactor, &committer->kick);
	} else if (committer->fiber && !committer->ended) {
		fiber_wake(committer->fiber);
	}
}

/* Between the two the committer does not end. */
static int commit_enter(struct store *store)
{
	atomic_fetch_add(&store->committer.callers, 1);
	if (atomic_load(&store->quiescing))
		return -ESHUTDOWN;
	return atomic_load(&store->fenced) ? -EIO : 0;
}

static void commit_leave(struct store *store)
{
	if (atomic_fetch_sub(&store->committer.callers, 1) == 1 && atomic_load(&store->quiescing))
		committer_kick(&store->committer);
}

void commit_run(struct store *store, struct commit *commit)
{
	int error = commit_enter(store);

	if (error) {
		commit_undo(commit, error);
	} else {
		waiter_init(&commit->waiter);
		mpsc_push(&store->committer.queue, &commit->node);
		committer_kick(&store->committer);
		waiter_wait(&commit->waiter);
	}
	commit_leave(store);
}

/* What the key holds at this place in the order: decided before in this group, or published. */
static struct object *item_current(const struct commit_item *item)
{
	return item->entry->has_pending ? item->entry->pending : item->entry->object;
}

uint32_t commit_rows_max(const struct object *object)
{
	return object && object->part_count > 1 ? object->segment_count : 1;
}

static size_t item_bytes(const struct commit_item *item, bool adopts)
{
	const struct object *object = item->object;
	const struct object *current = item_current(item);
	/* The row, and those of what it replaces. */
	size_t bytes = MUTATION_BYTES(1 + 8 + item->entry->key_len, 0) +
		       MUTATION_BYTES(SEGMENT_KEY_BYTES, 0) * commit_rows_max(current);

	if (!object)
		return bytes;
	if (adopts)
		return bytes + record_bytes(object);
	bytes += record_bytes(object);
	if (object->body == BODY_INLINE)
		bytes += MUTATION_BYTES(INLINE_KEY_BYTES, object->meta.bytes);
	for (uint32_t i = 0; object->body == BODY_SEGMENTED && i < object->segment_count; i++)
		bytes += MUTATION_BYTES(
			SEGMENT_KEY_BYTES, segment_record_bytes(atomic_load(&object->segments[i])));
	return bytes;
}

size_t commit_bytes(const struct commit *commit)
{
	size_t bytes = commit->adoption ? adoption_bytes(commit->adoption) : 0;

	if (commit->kind != COMMIT_ITEMS)
		return MUTATION_BYTES(1 + LIMIT_BUCKET_LEN_MAX, BUCKET_RECORD_BYTES_MAX);
	for (uint32_t i = 0; i < commit->item_count; i++)
		bytes += item_bytes(&commit->items[i], commit->adoption != NULL);
	return bytes;
}

void commit_rows_delete(struct group *group, const struct object *object)
{
	struct key key;

	if (object->body == BODY_INLINE) {
		key_inline(&key, object->data_id);
		group_add(group, MUTATION_DELETE, 0, &key, 0);
	}
	if (object->body != BODY_SEGMENTED)
		return;
	if (object->part_count == 1 && object->segment_count > 1) {
		key_segments(&key, object->data_id);
		group_add(group, MUTATION_DELETE_PREFIX, 0, &key, 0);
		return;
	}
	/* Each by its key: a search per part would be too many. */
	for (uint32_t i = 0; i < object->segment_count; i++) {
		const struct object_part *part = object_part_of(object, i);

		key_segment(&key, part->data_id, i - part->segment_first);
		group_add(group, MUTATION_DELETE, 0, &key, 0);
	}
}

static void object_add(
	struct group *group, const struct key *object_key, const struct object *object, bool adopts)
{
	uint8_t flags = object->body_flushed ? MUTATION_BODY_FLUSHED : 0;
	struct key key;

	record_put(object, group_add(group, MUTATION_PUT, flags, object_key, record_bytes(object)));
	if (object->body == BODY_INLINE) {
		key_inline(&key, object->data_id);
		region_copy(group_add(group, MUTATION_PUT, 0, &key, object->meta.bytes),
			object->inline_data, object->meta.bytes, COPY_INDEX);
	}
	if (object->body != BODY_SEGMENTED || adopts)
		return;
	for (uint32_t i = 0; i < object->segment_count; i++) {
		const struct segment *segment = atomic_load(&object->segments[i]);

		key_segment(&key, object->data_id, i);
		segment_record_put(segment,
			group_add(group, MUTATION_PUT, flags, &key, segment_record_bytes(segment)));
	}
}

/* Modification times never go back, whatever the clock does. */
static uint64_t mtime_next(struct store *store)
{
	struct committer *committer = &store->committer;

	committer->mtime_last_ns = MAX(committer->mtime_last_ns, clock_real_ns());
	return committer->mtime_last_ns;
}

static void item_decide(struct store *store, const struct commit *commit, struct commit_item *item,
	struct group *group)
{
	struct object *current = item_current(item);
	struct key key;

	item->result = atomic_load(&commit->bucket->dead) ? -ENOENT : 0;
	if (!item->result && item->check)
		item->result = item->check(current ? &current->meta : NULL, item->arg);
	if (!item->result && commit->adoption)
		item->result = adoption_decide(commit->adoption, group);
	if (item->result || (!item->object && !current))
		return;
	key_object(&key, item->entry->bucket_id, slice_of(item->entry->key, item->entry->key_len));
	if (current)
		commit_rows_delete(group, current);
	if (item->object) {
		item->mtime_ns = mtime_next(store);
		item->object->meta.mtime_ns = item->mtime_ns;
		object_add(group, &key, item->object, commit->adoption != NULL);
	} else {
		group_add(group, MUTATION_DELETE, 0, &key, 0);
	}
	item->entry->pending = item->object;
	item->entry->has_pending = true;
	item->decided = true;
}

static void bucket_decide(struct store *store, struct commit *commit, struct group *group)
{
	struct slice name = slice_str(commit->bucket_info.name);
	struct bucket *bucket = buckets_find(store->buckets, name);
	uint8_t record[BUCKET_RECORD_BYTES_MAX];
	struct key key;
	size_t len;

	key_bucket(&key, name);
	commit->result = 0;
	if (commit->kind == COMMIT_BUCKET_CREATE) {
		if (bucket)
			commit->result = -EEXIST;
		else if (buckets_count(store->buckets) >= STORE_BUCKETS_MAX)
			commit->result = -EDQUOT;
		bucket_put(bucket);
		if (commit->result)
			return;
		commit->bucket_info.id = atomic_fetch_add(&store->bucket_id_next, 1);
		if (!commit->bucket_info.created_ns)
			commit->bucket_info.created_ns = clock_real_ns();
		len = bucket_record_put(&commit->bucket_info, record);
		memcpy(group_add(group, MUTATION_PUT, 0, &key, len), record, len);
		return;
	}
	if (!bucket)
		commit->result = -ENOENT;
	else if (atomic_load(&bucket->objects))
		commit->result = -ENOTEMPTY;
	if (commit->result) {
		bucket_put(bucket);
		return;
	}
	commit->bucket = bucket;
	group_add(group, MUTATION_DELETE, 0, &key, 0);
}

void commit_decide(struct store *store, struct commit *commit, struct group *group)
{
	if (commit->kind != COMMIT_ITEMS) {
		bucket_decide(store, commit, group);
		return;
	}
	for (uint32_t i = 0; i < commit->item_count; i++)
		item_decide(store, commit, &commit->items[i], group);
}

static void item_publish(
	struct store *store, struct bucket *bucket, struct commit_item *item, struct group *group)
{
	struct object *old = hot_publish(store->hot, item->entry, item->object);

	item->entry->has_pending = false;
	if (old)
		atomic_store(&old->dead, true);
	if (item->object && !old) {
		atomic_fetch_add(&bucket->objects, 1);
		atomic_fetch_add(&store->objects, 1);
	} else if (!item->object && old) {
		atomic_fetch_sub(&bucket->objects, 1);
		atomic_fetch_sub(&store->objects, 1);
	}
	group->touched[group->touched_count++] = (struct touched){.entry = item->entry, .old = old};
}

void commit_publish(struct store *store, struct commit *commit, struct group *group)
{
	if (commit->kind == COMMIT_BUCKET_CREATE && !commit->result)
		commit->result = buckets_add(store->buckets, &commit->bucket_info);
	if (commit->kind == COMMIT_BUCKET_DELETE && !commit->result) {
		buckets_remove(store->buckets, commit->bucket);
		bucket_put(commit->bucket);
		commit->bucket = NULL;
	}
	for (uint32_t i = 0; commit->kind == COMMIT_ITEMS && i < commit->item_count; i++)
		if (commit->items[i].decided)
			item_publish(store, commit->bucket, &commit->items[i], group);
	if (commit->adoption && commit->adoption->decided)
		adoption_publish(store, commit->adoption, commit->items[0].object, group);
}

void commit_undo(struct commit *commit, int error)
{
	if (commit->kind == COMMIT_BUCKET_DELETE && commit->bucket) {
		bucket_put(commit->bucket);
		commit->bucket = NULL;
	}
	commit->result = error;
	if (commit->adoption)
		adoption_undo(commit->adoption);
	for (uint32_t i = 0; commit->kind == COMMIT_ITEMS && i < commit->item_count; i++) {
		struct commit_item *item = &commit->items[i];

		if (item->decided)
			item->entry->has_pending = false;
		item->decided = false;
		item->result = error;
	}
}
