/* store/call/delete.c: deleting keys, and the buckets' own calls. */
#include "store/call/call.h"
#include "store/commit/commit.h"
#include "store/log/journal.h"
#include "store/object/object.h"
#include "store/state/state.h"
#include "store/table/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

DEFINE_COUNTER(deletes_total, "nebulaio_store_deletes_total", NULL, "Objects deleted.");

/* How many rows of bodies one commit may delete, so that it surely fits a group. The rows of a
 * larger object are deleted in commits of their own. */
static uint64_t rows_max(const struct store *store)
{
	return store->volume.super.log_bytes / 4 / MUTATION_BYTES(sizeof(uint64_t) * 2, 0);
}

/* Estimate of a deletion's size in a group: rows of a key, and records that move. */
#define DELETION_BYTES(key_len) (3 * (2 * (key_len) + 64) + 2 * 512)

static uint32_t rows_of(struct store *store, struct record_entry *entry)
{
	struct object *object = entry ? record_entry_object(store->records, entry) : NULL;
	uint32_t rows = commit_rows_max(object);

	object_put(store, object);
	return rows;
}

/* A deletion in progress. Each round commits the items that are ready. */
struct round {
	struct store *store;
	struct bucket *bucket;
	struct store_deletion *list;
	uint32_t count;
	struct commit_item *items; /* as many; those of one commit are adjacent */
	uint32_t *of;		   /* the deletion that an item belongs to */
	uint32_t item_count;
	uint64_t rows;
	size_t bytes;
};

static void item_release(struct round *round, struct commit_item *item)
{
	version_unprepare(round->store, item);
	if (!item->entry_taken)
		record_entry_unpin(round->store->records, item->entry);
}

static int item_prepare(
	struct round *round, const struct store_deletion *deletion, struct commit_item *item)
{
	struct store *store = round->store;
	struct store_bucket info;
	int ret;

	*item = (struct commit_item){.check = deletion->check,
		.arg = deletion->arg,
		.kind = deletion->version_id.len ? ITEM_VERSION_DELETE : ITEM_WRITE,
		.version_id = deletion->version_id,
		.noncurrent = deletion->noncurrent,
		.outbox_row = deletion->outbox_row};
	ret = record_entry_pin(store->records, round->bucket->info.id, deletion->key, &item->entry);
	if (ret)
		return ret;
	buckets_info(store->buckets, round->bucket, &info);
	if (deletion->version_id.len)
		ret = version_prepare(store, round->bucket, item);
	else if (info.versioning == STORE_VERSIONING_SUSPENDED)
		ret = record_entry_pin(
			store->records, info.id | ENTRY_NULL, deletion->key, &item->null_entry);
	if (ret)
		item_release(round, item);
	return ret;
}

/* Commits the gathered items and stores their results. */
static void round_commit(struct round *round)
{
	struct commit commit = {
		.bucket = round->bucket, .items = round->items, .item_count = round->item_count};

	if (!round->item_count)
		return;
	commit_run(round->store, &commit);
	for (uint32_t i = 0; i < round->item_count; i++) {
		struct commit_item *item = &round->items[i];
		struct store_deletion *deletion = &round->list[round->of[i]];

		deletion->result = item->result;
		deletion->delete_marker = item->ret_marker;
		memcpy(deletion->version_id_out, item->ret_version_id,
			sizeof(deletion->version_id_out));
		if (item->planned)
			counter_add(&deletes_total, 1);
		item_release(round, item);
	}
	round->item_count = 0;
	round->rows = 0;
	round->bytes = 0;
}

/* Adds a deletion to the gathered commit; a full commit is committed first. */
static void round_add(struct round *round, uint32_t idx)
{
	struct commit_item *item = &round->items[round->item_count];
	uint64_t log_bytes = round->store->volume.super.log_bytes;
	int ret = item_prepare(round, &round->list[idx], item);

	/* Deleting a version that does not exist is success. */
	if (ret) {
		round->list[idx].result = ret == -ENOENT ? 0 : ret;
		return;
	}
	round->of[round->item_count++] = idx;
	round->rows +=
		rows_of(round->store, item->entry) + rows_of(round->store, item->version_entry);
	round->bytes += DELETION_BYTES(item->entry->key_len) + outbox_row_bytes(item);
	if (round->rows >= rows_max(round->store) || round->bytes >= log_bytes / 8)
		round_commit(round);
}

/* Versions that are not their key's newest are deleted first: then the successor of the newest is
 * looked up once, and not once per version. */
static bool is_newest(struct round *round, const struct store_deletion *deletion)
{
	struct store_bucket info;
	struct object *object;
	struct record_entry *entry;
	bool newest;

	buckets_info(round->store->buckets, round->bucket, &info);
	if (!deletion->version_id.len || info.versioning == STORE_VERSIONING_NEVER ||
		record_entry_pin(round->store->records, info.id, deletion->key, &entry))
		return false;
	object = record_entry_object(round->store->records, entry);
	newest = !object || slice_eq(slice_str(object->meta.version_id), deletion->version_id);
	object_put(round->store, object);
	record_entry_unpin(round->store->records, entry);
	return newest;
}

static void delete_rounds(struct round *round)
{
	bool again = true;

	for (uint32_t i = 0; i < round->count; i++) {
		struct store_deletion *deletion = &round->list[i];

		deletion->result = -ERESTART;
		deletion->delete_marker = false;
		deletion->version_id_out[0] = 0;
		for (struct store_outbox_row *row = deletion->outbox_row; row; row = row->next)
			row->number = 0;
	}
	for (uint32_t turn = 0; again && turn < LIMIT_COMMIT_TURNS_MAX; turn++) {
		again = false;
		for (uint32_t i = 0; i < round->count; i++) {
			if (round->list[i].result != -ERESTART)
				continue;
			again = true;
			if (turn || !is_newest(round, &round->list[i]))
				round_add(round, i);
		}
		round_commit(round);
	}
	for (uint32_t i = 0; again && i < round->count; i++)
		if (round->list[i].result == -ERESTART)
			round->list[i].result = -EAGAIN;
}

int local_delete_each(struct store *store, struct slice bucket_name, uint64_t bucket_id,
	struct store_deletion *list, uint32_t count)
{
	struct round round = {.store = store, .list = list, .count = count};
	int ret;

	if (count > LIMIT_DELETE_KEYS_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < count; i++)
		if (!store_key_valid(list[i].key))
			return -EINVAL;
	round.bucket = buckets_find_of(store->buckets, bucket_name, bucket_id);
	if (!round.bucket)
		return -ENOENT;
	round.items = (struct commit_item *)calloc(count + 1, sizeof(*round.items));
	round.of = (uint32_t *)calloc(count + 1, sizeof(*round.of));
	ret = round.items && round.of ? 0 : -ENOMEM;
	if (!ret)
		delete_rounds(&round);
	bucket_put(round.bucket);
	free(round.items);
	free(round.of);
	return ret;
}

/* ---- Buckets. ---- */

uint64_t local_bucket_id_reserve(struct store *store)
{
	return atomic_fetch_add(&store->bucket_id_next, 1);
}

int local_bucket_create(
	struct store *store, const struct store_bucket *bucket, struct store *memory)
{
	struct commit commit = {
		.kind = COMMIT_BUCKET_CREATE, .bucket_info = *bucket, .bucket_memory = memory};
	size_t len = strnlen(bucket->name, sizeof(bucket->name));

	if (len == 0 || len > LIMIT_BUCKET_LEN_MAX)
		return -EINVAL;
	commit.bucket_made = bucket_alloc();
	if (!commit.bucket_made)
		return -ENOMEM;
	commit_run(store, &commit);
	free(commit.bucket_made);
	return commit.result;
}

int local_bucket_get(struct store *store, struct slice name, struct store_bucket *ret_bucket)
{
	struct bucket *bucket = buckets_find(store->buckets, name);

	if (!bucket)
		return -ENOENT;
	buckets_info(store->buckets, bucket, ret_bucket);
	bucket_put(bucket);
	return 0;
}

int local_bucket_edit(struct store *store, struct slice name, store_bucket_edit_fn *edit, void *arg)
{
	struct commit commit = {.kind = COMMIT_BUCKET_EDIT, .bucket_edit = edit, .arg = arg};

	if (slice_copy_str(name, commit.bucket_info.name, sizeof(commit.bucket_info.name)))
		return -ENOENT;
	commit_run(store, &commit);
	return commit.result;
}

int local_bucket_delete(struct store *store, struct slice name, uint64_t id)
{
	struct commit commit = {.kind = COMMIT_BUCKET_DELETE, .bucket_info = {.id = id}};

	if (slice_copy_str(name, commit.bucket_info.name, sizeof(commit.bucket_info.name)))
		return -ENOENT;
	commit_run(store, &commit);
	return commit.result;
}

int local_bucket_list(
	struct store *store, struct slice after, store_bucket_visit_fn *visit, void *arg)
{
	struct store_bucket *sorted;
	uint32_t count;
	int ret = buckets_sorted(store->buckets, after, &sorted, &count);

	if (ret)
		return ret;
	for (uint32_t i = 0; i < count && visit(&sorted[i], arg); i++)
		;
	free(sorted);
	return 0;
}
