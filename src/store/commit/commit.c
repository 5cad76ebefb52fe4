/* store/commit/commit.c: the steps of a commit: its caller queues it, the committer plans it in
 * commit order (plan.c has the items, this file the buckets) and publishes it once it is durable.
 * All runs on the committer's fiber, except commit_run, which is the caller's side. */
#include "reactor/waiter.h"
#include "store/commit/body.h"
#include "store/commit/commit.h"
#include "store/commit/committer.h"
#include "store/log/journal.h"
#include "store/log/key.h"
#include "store/memory.h"
#include "store/object/object.h"
#include "store/object/record.h"
#include "store/state/state.h"
#include "store/table/table.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

static void committer_kick(struct committer *committer)
{
	if (committer->reactor != reactor_self()) {
		if (!atomic_exchange(&committer->kicked, true))
			reactor_post(committer->reactor, &committer->kick);
	} else if (committer->fiber && !committer->ended) {
		fiber_wake(committer->fiber);
	}
}

/* The committer does not end between these two calls. */
static int commit_enter(struct store *store)
{
	atomic_fetch_add(&store->committer->callers, 1);
	if (atomic_load(&store->quiescing))
		return -ESHUTDOWN;
	return atomic_load(&store->fenced) ? -EIO : 0;
}

static void commit_leave(struct store *store)
{
	if (atomic_fetch_sub(&store->committer->callers, 1) == 1 && atomic_load(&store->quiescing))
		committer_kick(store->committer);
}

void commit_run(struct store *store, struct commit *commit)
{
	int error = commit_enter(store);

	if (error) {
		commit_undo(store, commit, error);
	} else {
		waiter_init(&commit->waiter);
		mpsc_push(&store->committer->queue, &commit->node);
		committer_kick(store->committer);
		waiter_wait(&commit->waiter);
	}
	commit_leave(store);
}

bool commit_follow(struct store *store, struct commit *commit)
{
	struct commit_item *item = &commit->items[0];
	bool follows = false;

	if (commit->composition)
		follows = composition_follow(store, commit->composition, item->object);
	if (commit->append)
		follows = append_follow(store, commit->append, item->object);
	return follows;
}

void commit_barrier(struct store *store)
{
	/* It changes nothing, but waits for its turn like any other commit. */
	struct commit commit = {.kind = COMMIT_ITEMS};

	commit_run(store, &commit);
}

size_t commit_bytes(const struct commit *commit)
{
	size_t bytes = commit->composition ? composition_bytes(commit->composition) : 0;

	if (commit->kind == COMMIT_OUTBOX_END)
		return outbox_end_bytes(commit);
	if (commit->kind != COMMIT_ITEMS)
		return MUTATION_BYTES(1 + LIMIT_BUCKET_LEN_MAX, BUCKET_RECORD_BYTES_MAX) +
		       quota_row_bytes();
	for (uint32_t i = 0; i < commit->item_count; i++)
		bytes += commit_item_bytes(&commit->items[i], commit) +
			 outbox_row_bytes(&commit->items[i]);
	return bytes;
}

/* Takes the reference over. */
static void bucket_edit_plan(struct commit *commit, struct bucket *bucket, struct group *group)
{
	uint8_t record[BUCKET_RECORD_BYTES_MAX];
	struct store_bucket edited;
	struct key key;
	size_t len;

	commit->result = -ENOENT;
	if (!bucket)
		return;
	edited = bucket->info;
	commit->result = commit->bucket_edit(&edited, commit->arg);
	if (!commit->result && (edited.versioning > STORE_VERSIONING_SUSPENDED ||
				       edited.versioning < MIN(bucket->info.versioning, 1u) ||
				       (edited.flags & ~STORE_BUCKET_FLAGS) ||
				       (edited.flags ^ bucket->info.flags) & STORE_BUCKET_MEMORY ||
				       (bucket->memory && edited.versioning)))
		commit->result = -EINVAL;
	if (commit->result) {
		bucket_put(bucket);
		return;
	}
	commit->bucket_info = bucket->info;
	commit->bucket_info.versioning = edited.versioning;
	commit->bucket_info.flags = edited.flags;
	commit->bucket_info.quota = edited.quota;
	commit->bucket = bucket;
	key_bucket(&key, slice_str(bucket->info.name));
	len = bucket_record_put(&commit->bucket_info, record);
	memcpy(group_add(group, MUTATION_PUT, 0, &key, len), record, len);
	if (bucket->info.quota.bytes != edited.quota.bytes ||
		bucket->info.quota.objects != edited.quota.objects)
		quota_row_add(group, &commit->bucket_info);
}

static void bucket_plan(struct store *store, struct commit *commit, struct group *group)
{
	struct slice name = slice_str(commit->bucket_info.name);
	struct bucket *bucket = buckets_find(store->buckets, name);
	uint8_t record[BUCKET_RECORD_BYTES_MAX];
	struct key key;
	size_t len;

	key_bucket(&key, name);
	commit->result = 0;
	if (commit->kind == COMMIT_BUCKET_EDIT) {
		bucket_edit_plan(commit, bucket, group);
		return;
	}
	if (commit->kind == COMMIT_BUCKET_CREATE) {
		if (bucket)
			commit->result = -EEXIST;
		else if (buckets_count(store->buckets) >= STORE_BUCKETS_MAX)
			commit->result = -EDQUOT;
		bucket_put(bucket);
		if (commit->result)
			return;
		if (!commit->bucket_info.id)
			commit->bucket_info.id = atomic_fetch_add(&store->bucket_id_next, 1);
		if (!commit->bucket_info.created_ns)
			commit->bucket_info.created_ns = clock_real_ns();
		len = bucket_record_put(&commit->bucket_info, record);
		memcpy(group_add(group, MUTATION_PUT, 0, &key, len), record, len);
		if (commit->bucket_info.quota.bytes || commit->bucket_info.quota.objects)
			quota_row_add(group, &commit->bucket_info);
		return;
	}
	if (!bucket || (commit->bucket_info.id && commit->bucket_info.id != bucket->info.id))
		commit->result = -ENOENT;
	else if (atomic_load(&bucket->objects))
		commit->result = -ENOTEMPTY;
	else if (bucket->memory)
		commit->result = store_memory_end(bucket->memory);
	if (commit->result) {
		bucket_put(bucket);
		return;
	}
	commit->bucket = bucket;
	group_add(group, MUTATION_DELETE, 0, &key, 0);
	if (bucket->info.quota.bytes || bucket->info.quota.objects) {
		commit->bucket_info = bucket->info;
		commit->bucket_info.quota = (struct store_quota){0};
		quota_row_add(group, &commit->bucket_info);
	}
}

void commit_plan(struct store *store, struct commit *commit, struct group *group)
{
	if (commit->kind == COMMIT_OUTBOX_END) {
		outbox_end_add(group, commit);
		return;
	}
	if (commit->kind != COMMIT_ITEMS) {
		bucket_plan(store, commit, group);
		return;
	}
	for (uint32_t i = 0; i < commit->item_count; i++)
		commit_item_plan(store, commit, &commit->items[i], group);
}

static void change_publish(
	struct store *store, struct bucket *bucket, struct change *change, struct group *group)
{
	struct object *old = record_entry_publish(store->records, change->entry, change->object);

	change->entry->has_pending = false;
	if (old)
		object_supersede(store, old);
	if (old && (change->old == OLD_EDITED || change->old == OLD_MOVED))
		atomic_store(&old->body_owner, object_get(change->object));
	if (old && change->old == OLD_DIES) {
		atomic_store(&old->dead, true);
		atomic_fetch_sub(&bucket->objects, 1);
		atomic_fetch_sub(&store->objects, 1);
	}
	if (change->flags & CHANGE_NEW) {
		atomic_fetch_add(&bucket->objects, 1);
		atomic_fetch_add(&store->objects, 1);
	}
	group->touched[group->touched_count++] =
		(struct touched){.entry = change->entry, .old = old};
}

static void item_publish(
	struct store *store, struct bucket *bucket, struct commit_item *item, struct group *group)
{
	/* Before it is published: then its readers may be the last. */
	if (item->kind == ITEM_MOVE)
		item->moved_from->moved =
			segment_get(atomic_load(&item->moved_from->segments[item->moved_segment]));
	for (uint32_t i = 0; i < item->change_count; i++)
		change_publish(store, bucket, &item->changes[i], group);
	if (bucket->info.versioning != STORE_VERSIONING_NEVER)
		atomic_fetch_add(&item->entry->changes, 1);
}

static int quota_take(struct store_bucket *bucket, void *arg)
{
	bucket->quota = *(const struct store_quota *)arg;
	return 0;
}

/* Its objects count by themselves. */
static void memory_quota(struct bucket *bucket, struct store_quota *quota)
{
	if (bucket->memory)
		(void)store_engine_of(bucket->memory)
			->bucket_edit(
				bucket->memory, slice_str(bucket->info.name), quota_take, quota);
}

void commit_publish(struct store *store, struct commit *commit, struct group *group)
{
	if (commit->kind == COMMIT_BUCKET_CREATE && !commit->result) {
		buckets_take(store->buckets, commit->bucket_made, &commit->bucket_info,
			commit->bucket_memory);
		commit->bucket_made = NULL;
	}
	if (commit->kind == COMMIT_BUCKET_DELETE && !commit->result) {
		if (commit->bucket->memory)
			store_memory_leave(commit->bucket->memory, &store->memory_reserved,
				commit->bucket->memory_reserved);
		buckets_remove(store->buckets, commit->bucket);
		bucket_put(commit->bucket);
		commit->bucket = NULL;
	}
	if (commit->kind == COMMIT_BUCKET_EDIT && !commit->result) {
		buckets_change(store->buckets, commit->bucket, &commit->bucket_info);
		memory_quota(commit->bucket, &commit->bucket_info.quota);
		bucket_put(commit->bucket);
		commit->bucket = NULL;
	}
	for (uint32_t i = 0; commit->kind == COMMIT_ITEMS && i < commit->item_count; i++)
		if (commit->items[i].planned)
			item_publish(store, commit->bucket, &commit->items[i], group);
	if (commit->composition && commit->composition->planned)
		composition_publish(store, commit->composition, commit->items[0].object, group);
}

void commit_undo(struct store *store, struct commit *commit, int error)
{
	if (commit->kind != COMMIT_ITEMS && commit->bucket) {
		if (commit->kind == COMMIT_BUCKET_DELETE && commit->bucket->memory)
			store_memory_stay(commit->bucket->memory);
		bucket_put(commit->bucket);
		commit->bucket = NULL;
	}
	commit->result = error;
	for (uint32_t i = 0; commit->kind == COMMIT_ITEMS && i < commit->item_count; i++)
		quota_undo(commit, &commit->items[i]);
	if (commit->composition)
		composition_undo(commit->composition);
	for (uint32_t i = 0; commit->kind == COMMIT_ITEMS && i < commit->item_count; i++) {
		struct commit_item *item = &commit->items[i];

		commit_item_drop(store, item);
		item->result = error;
	}
}
