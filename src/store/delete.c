/* store/delete.c: deleting keys, and the buckets' own calls. */
#include "store/store_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

DEFINE_COUNTER(deletes_total, "nebulaio_store_deletes_total", NULL, "Objects deleted.");

/* Pins every key, commits them together and unpins those that changed nothing. */
static int delete_items(struct store *store, struct bucket *bucket, const struct slice *keys,
	struct commit_item *items, uint32_t count)
{
	struct commit commit = {.bucket = bucket, .items = items};
	int ret = 0;

	while (commit.item_count < count && !ret) {
		ret = hot_pin(store->hot, bucket->info.id, keys[commit.item_count],
			&items[commit.item_count].entry);
		if (!ret)
			commit.item_count++;
	}
	if (ret)
		commit_undo(&commit, ret);
	else
		commit_run(store, &commit);
	for (uint32_t i = 0; i < commit.item_count; i++) {
		if (!items[i].decided)
			hot_unpin(store->hot, items[i].entry);
		else
			counter_add(&deletes_total, 1);
	}
	return ret;
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
	int ret;

	if (!bucket)
		return -ENOENT;
	ret = key_valid(key) ? delete_items(store, bucket, &key, &item, 1) : -EINVAL;
	bucket_put(bucket);
	return ret ? ret : item.result;
}

/* The same key twice in one call is one deletion and one that finds nothing. */
int store_delete_many(struct store *store, struct slice bucket_name, const struct slice *keys,
	uint32_t key_count, int *results)
{
	struct bucket *bucket;
	struct commit_item *items;
	int ret;

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
	ret = key_count ? delete_items(store, bucket, keys, items, key_count) : 0;
	for (uint32_t i = 0; i < key_count; i++)
		results[i] = ret ? ret : items[i].result;
	free(items);
	bucket_put(bucket);
	return ret;
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
