/* store/commit/version.c: finds the row of a version, and the newest versions of a key. A version
 * id names its sequence number, so its row is found without a search. Only the deletion of a key's
 * newest version asks the index which version comes next. */
#include "store/commit/commit.h"
#include "store/commit/committer.h"
#include "store/commit/index_apply.h"
#include "store/index/index.h"
#include "store/log/key.h"
#include "store/object/object.h"
#include "store/object/record.h"
#include "store/state/state.h"
#include "store/table/table.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static bool entry_holds(struct store *store, struct record_entry *entry, struct slice version_id)
{
	struct object *object = record_entry_object(store->records, entry);
	bool holds = object && slice_eq(slice_str(object->meta.version_id), version_id);

	object_put(store, object);
	return holds;
}

static bool entry_empty(struct store *store, struct record_entry *entry)
{
	struct object *object = record_entry_object(store->records, entry);

	object_put(store, object);
	return !object;
}

/* The entry of the version if it is not current. */
static int row_pin(struct store *store, struct bucket *bucket, struct slice key,
	struct slice version_id, struct record_entry **ret_entry)
{
	uint64_t seq;

	if (slice_eq(version_id, SLICE("null")))
		return record_entry_pin(
			store->records, bucket->info.id | ENTRY_NULL, key, ret_entry);
	if (!store_version_seq_parse(version_id, &seq))
		return -ENOENT;
	return record_entry_pin_version(store->records, bucket->info.id, key, seq, ret_entry);
}

/* Finds the version: *ret_target NULL when `current` holds it. A version that moves during the
 * search changes the count. */
static int version_find(struct store *store, struct bucket *bucket, struct record_entry *current,
	struct slice version_id, struct record_entry **ret_target)
{
	struct slice key = slice_of(current->key, current->key_len);

	for (uint32_t turn = 0; turn < LIMIT_COMMIT_TURNS_MAX; turn++) {
		uint32_t changes = atomic_load(&current->changes);
		struct record_entry *entry;
		int ret;

		*ret_target = NULL;
		if (entry_holds(store, current, version_id))
			return 0;
		ret = row_pin(store, bucket, key, version_id, &entry);
		if (ret)
			return ret;
		if (entry_holds(store, entry, version_id)) {
			*ret_target = entry;
			return 0;
		}
		record_entry_unpin(store->records, entry);
		if (atomic_load(&current->changes) == changes)
			return -ENOENT;
		fiber_yield();
	}
	return -EAGAIN;
}

int version_pin(struct store *store, struct bucket *bucket, struct slice key,
	struct slice version_id, struct record_entry **ret_entry)
{
	struct record_entry *current, *version_entry;
	int ret = record_entry_pin(store->records, bucket->info.id, key, &current);

	if (ret)
		return ret;
	*ret_entry = current;
	if (!version_id.len)
		return 0;
	ret = version_find(store, bucket, current, version_id, &version_entry);
	if (!ret && version_entry)
		*ret_entry = version_entry;
	if (ret || version_entry)
		record_entry_unpin(store->records, current);
	return ret;
}

/* ---- The newest versions that are not current. ---- */

#define NEWEST_MAX 2u

struct newest {
	struct store *store;
	uint64_t bucket_id;
	struct slice key;
	uint32_t count;
	struct newest_version {
		uint64_t seq;
		bool is_null;
		struct store_meta meta; /* without headers */
	} versions[NEWEST_MAX];
	int ret;
};

static void newest_add(struct newest *newest, uint64_t seq, bool is_null, struct slice record)
{
	struct newest_version version = {.seq = seq, .is_null = is_null};
	uint32_t at = newest->count;

	if (record_parse_meta(record, &version.meta))
		newest->ret = -EIO;
	while (at && newest->versions[at - 1].seq < seq)
		at--;
	for (uint32_t i = MIN(newest->count, NEWEST_MAX - 1); i > at; i--)
		newest->versions[i] = newest->versions[i - 1];
	if (at < NEWEST_MAX)
		newest->versions[at] = version;
	newest->count = MIN(newest->count + 1, NEWEST_MAX);
}

static void newest_null(struct newest *newest)
{
	struct key key;
	char *value;
	size_t len;
	int found;

	key_null(&key, newest->bucket_id, newest->key);
	found = index_get(newest->store->index, &key, true, &value, &len);
	if (found < 0)
		newest->ret = found;
	if (found <= 0)
		return;
	newest_add(newest, record_seq(slice_of(value, len)), true, slice_of(value, len));
	free(value);
}

static void newest_run(void *arg)
{
	struct newest *newest = (struct newest *)arg;
	struct slice row, record, prefix;
	struct index_walk *walk;
	struct key from, to;

	key_versions(&from, newest->bucket_id, newest->key);
	prefix = slice_of(from.bytes, from.len);
	to = from;
	to.bytes[to.len - 1]++;
	newest->ret =
		index_walk_open(newest->store->index, prefix, slice_of(to.bytes, to.len), &walk);
	if (newest->ret)
		return;
	for (uint32_t i = 0; i < NEWEST_MAX && index_walk_get(walk, &row, &record); i++) {
		struct object_name name;

		if (key_version_parse(row, &name))
			newest->ret = -EIO;
		else
			newest_add(newest, name.seq, false, record);
		index_walk_next(walk);
	}
	if (!newest->ret)
		newest->ret = index_walk_error(walk);
	index_walk_close(walk);
	if (!newest->ret)
		newest_null(newest);
}

static int newest_find(
	struct store *store, uint64_t bucket_id, struct slice key, struct newest *newest)
{
	int ret = index_apply_wait_or_full(store, atomic_load(&store->committer->published_seq));

	if (ret)
		return ret;
	*newest = (struct newest){.store = store, .bucket_id = bucket_id, .key = key};
	fiber_offload(newest_run, newest);
	return newest->ret;
}

int local_newest(
	struct store *store, struct slice bucket, struct slice key, struct store_meta *ret_meta)
{
	uint64_t bucket_id = buckets_find_id_of(store->buckets, bucket);
	struct newest newest;
	int ret;

	if (!bucket_id || key.len == 0 || key.len > LIMIT_KEY_LEN_MAX)
		return -ENOENT;
	ret = newest_find(store, bucket_id, key, &newest);
	if (ret)
		return ret;
	if (!newest.count)
		return -ENOENT;
	*ret_meta = newest.versions[0].meta;
	return 0;
}

/* ---- Preparing a deletion. ---- */

static int newest_pin(struct store *store, struct bucket *bucket, const struct newest *newest,
	uint32_t idx, struct record_entry **ret_entry)
{
	if (idx >= newest->count)
		return 0;
	if (newest->versions[idx].is_null)
		return record_entry_pin(
			store->records, bucket->info.id | ENTRY_NULL, newest->key, ret_entry);
	return record_entry_pin_version(
		store->records, bucket->info.id, newest->key, newest->versions[idx].seq, ret_entry);
}

static uint64_t target_seq(struct store *store, const struct commit_item *item)
{
	struct object *object = item->version_entry
					? record_entry_object(store->records, item->version_entry)
					: NULL;
	uint64_t seq = object ? object->seq : 0;

	object_put(store, object);
	return seq;
}

int version_prepare(struct store *store, struct bucket *bucket, struct commit_item *item)
{
	struct newest newest;
	uint64_t seq;
	int ret;

	item->changes_seen = atomic_load(&item->entry->changes);
	ret = version_find(store, bucket, item->entry, item->version_id, &item->version_entry);
	if (ret || (item->version_entry && !entry_empty(store, item->entry)))
		return ret;
	ret = newest_find(
		store, bucket->info.id, slice_of(item->entry->key, item->entry->key_len), &newest);
	seq = target_seq(store, item);
	if (!ret && item->version_entry && newest.count && newest.versions[0].seq > seq)
		ret = newest_pin(store, bucket, &newest, 0, &item->newest);
	else if (!ret)
		ret = newest_pin(
			store, bucket, &newest, item->version_entry ? 1 : 0, &item->promote);
	return ret;
}

void version_unprepare(struct store *store, struct commit_item *item)
{
	struct record_entry **pins[] = {
		&item->null_entry, &item->version_entry, &item->newest, &item->promote};

	for (uint32_t i = 0; i < ARRAY_LEN(pins); i++) {
		if (*pins[i])
			record_entry_unpin(store->records, *pins[i]);
		*pins[i] = NULL;
	}
}
