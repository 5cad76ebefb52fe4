/* store/delete.c: deleting keys, and the buckets' own calls. */
#include "store/store_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

DEFINE_COUNTER(deletes_total, "nebulaio_store_deletes_total", NULL, "Objects deleted.");

/* How many rows of bodies one commit may delete, so that it surely fits a group: an object that has
 * more has them deleted alone. */
static uint64_t rows_max(const struct store *store)
{
	return store->volume.super.log_bytes / 4 / MUTATION_BYTES(sizeof(uint64_t) * 2, 0);
}

static uint32_t rows_of(struct store *store, struct hot_entry *entry)
{
	struct object *object = hot_object(store->hot, entry);
	uint32_t rows = commit_rows_max(object);

	object_put(store, object);
	return rows;
}

/* Pins keys for the commit until they are all or enough. */
static int items_pin(
	struct store *store, struct commit *commit, const struct slice *keys, uint32_t count)
{
	uint64_t rows = 0;
	int ret = 0;

	while (commit->item_count < count && rows < rows_max(store) && !ret) {
		struct commit_item *item = &commit->items[commit->item_count];

		ret = hot_pin(store->hot, commit->bucket->info.id, keys[commit->item_count],
			&item->entry);
		if (ret)
			break;
		rows += rows_of(store, item->entry);
		commit->item_count++;
	}
	return ret;
}

/* Pins the keys, commits them together (in few commits where they have very many bodies) and unpins
 * those that changed nothing. Results are the items'. */
static void delete_items(struct store *store, struct bucket *bucket, const struct slice *keys,
	struct commit_item *items, uint32_t count)
{
	uint32_t from = 0;
	int ret = 0;

	while (from < count && !ret) {
		struct commit commit = {.bucket = bucket, .items = items + from};

		ret = items_pin(store, &commit, keys + from, count - from);
		if (ret)
			commit_undo(&commit, ret);
		else
			commit_run(store, &commit);
		for (uint32_t i = 0; i < commit.item_count; i++) {
			if (!commit.items[i].decided)
				hot_unpin(store->hot, commit.items[i].entry);
			else
				counter_add(&deletes_total, 1);
		}
		from += commit.item_count;
	}
	for (; from < count; from++)
		items[from].result = ret;
}

static bool key_valid(struct slice key)
{
	return key.len > 0 && key.len <= LIMIT_KEY_LEN_MAX;
}

int store_delete(struct store *store, struct slice bucket_name, struct slice key,
	store_check_fn *check, void *arg)
{
	struct commit_item item = {.check = check, .arg = arg};
	struct bucket *bucket = buckets_find(store->buckets, bucket_name);

	if (!bucket)
		return -ENOENT;
	if (key_valid(key))
		delete_items(store, bucket, &key, &item, 1);
	else
		item.result = -EINVAL;
	bucket_put(bucket);
	return item.result;
}

/* The same key twice in one call is one deletion and one that finds nothing. */
int store_delete_many(struct store *store, struct slice bucket_name, const struct slice *keys,
	uint32_t key_count, int *results)
{
	struct bucket *bucket;
	struct commit_item *items;

	if (key_count > LIMIT_DELETE_KEYS_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < key_count; i++)
		if (!key_valid(keys[i]))
			return -EINVAL;
	bucket = buckets_find(store->buckets, bucket_name);
	if (!bucket)
		return -ENOENT;
	items = (struct commit_item *)calloc(MAX(key_count, 1u), sizeof(*items));
	if (!items) {
		bucket_put(bucket);
		return -ENOMEM;
	}
	delete_items(store, bucket, keys, items, key_count);
	for (uint32_t i = 0; i < key_count; i++)
		results[i] = items[i].result;
	free(items);
	bucket_put(bucket);
	return 0;
}

/* ---- Buckets. ---- */

int store_bucket_create(struct store *store, const struct store_bucket *bucket)
{
	struct commit commit = {.kind = COMMIT_BUCKET_CREATE, .bucket_info = *bucket};
	size_t len = strnlen(bucket->name, sizeof(bucket->name));

	if (len == 0 || len > LIMIT_BUCKET_LEN_MAX)
		return -EINVAL;
	commit_run(store, &commit);
	return commit.result;
}

int store_bucket_get(struct store *store, struct slice name, struct store_bucket *ret_bucket)
{
	struct bucket *bucket = buckets_find(store->buckets, name);

	if (!bucket)
		return -ENOENT;
	*ret_bucket = bucket->info;
	bucket_put(bucket);
	return 0;
}

int store_bucket_delete(struct store *store, struct slice name)
{
	struct commit commit = {.kind = COMMIT_BUCKET_DELETE};

	if (slice_copy_str(name, commit.bucket_info.name, sizeof(commit.bucket_info.name)))
		return -ENOENT;
	commit_run(store, &commit);
	return commit.result;
}

int store_bucket_list(
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
