/* store/commit/quota.c: what a bucket holds, and its quota. The use of a bucket is the sum over its
 * rows of objects: one object and its bytes for each, nothing for a delete marker. The committer
 * counts when it plans, in commit order, so that no two commits share the same room; what is
 * planned and fails is taken off again. No row of the index has the sums: a start has them from the
 * snapshot of a clean shutdown, or adds up the rows. */
#include "store/commit/body.h"
#include "store/commit/commit.h"
#include "store/engine.h"
#include "store/log/journal.h"
#include "store/log/key.h"
#include "store/object/object.h"
#include "store/object/record.h"
#include "store/table/table.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

DEFINE_COUNTER(quota_refusals, "nebulaio_store_quota_refusals_total", NULL,
	"Puts that were refused because their bucket would have held more than its quota.");

struct use {
	int64_t bytes, objects;
};

static void use_add(struct use *use, const struct object *object, int64_t sign)
{
	if (!object || object->body == BODY_MARKER)
		return;
	use->bytes += sign * (int64_t)object->meta.bytes;
	use->objects += sign;
}

/* Adds what the composition takes from the bucket of the composed object: the rest is of others. */
static void use_add_components(struct use *use, const struct commit *commit)
{
	for (uint32_t i = 0; commit->composition && i < commit->composition->count; i++)
		if (commit->composition->list[i].bucket == commit->bucket)
			use_add(use, commit->composition->list[i].object, -1);
}

static void components_count(const struct commit *commit, int64_t sign)
{
	for (uint32_t i = 0; commit->composition && i < commit->composition->count; i++) {
		const struct component *component = &commit->composition->list[i];
		struct use use = {0};

		if (component->bucket == commit->bucket)
			continue;
		use_add(&use, component->object, sign);
		bucket_used_add(component->bucket, use.bytes, use.objects);
	}
}

int quota_plan(const struct commit *commit, struct commit_item *item)
{
	struct store_quota used;
	struct use use = {0};

	for (uint32_t i = 0; i < item->change_count; i++) {
		use_add(&use, item->changes[i].object, 1);
		use_add(&use, record_entry_view(item->changes[i].entry), -1);
	}
	use_add_components(&use, commit);
	bucket_used(commit->bucket, &used);
	if (item->kind == ITEM_WRITE && item->object &&
		!store_quota_fits(&commit->bucket->info.quota, &used, use.bytes, use.objects)) {
		counter_add(&quota_refusals, 1);
		return -EDQUOT;
	}
	item->used_counted = true;
	item->used_bytes = use.bytes;
	item->used_objects = use.objects;
	bucket_used_add(commit->bucket, use.bytes, use.objects);
	components_count(commit, -1);
	return 0;
}

void quota_undo(const struct commit *commit, struct commit_item *item)
{
	if (!item->used_counted)
		return;
	bucket_used_add(commit->bucket, -item->used_bytes, -item->used_objects);
	components_count(commit, 1);
	item->used_counted = false;
}

/* ---- The row of a quota. ---- */

size_t quota_row_bytes(void)
{
	return MUTATION_BYTES(QUOTA_KEY_BYTES, QUOTA_RECORD_BYTES);
}

void quota_row_add(struct group *group, const struct store_bucket *bucket)
{
	struct key key;

	key_quota(&key, bucket->id);
	if (bucket->quota.bytes || bucket->quota.objects)
		quota_record_put(&bucket->quota,
			group_add(group, MUTATION_PUT, 0, &key, QUOTA_RECORD_BYTES));
	else
		group_add(group, MUTATION_DELETE, 0, &key, 0);
}

/* ---- Calls of the engine. ---- */

int local_bucket_usage(struct store *store, struct slice name, struct store_quota *ret_used)
{
	struct bucket *bucket = buckets_find(store->buckets, name);

	if (!bucket)
		return -ENOENT;
	bucket_used(bucket, ret_used);
	bucket_put(bucket);
	return 0;
}

/* Subtracts the object that a put to the key replaces. Where versions are kept it replaces at most
 * a null version: the commit will see whether. */
static int replaced(
	struct store *store, struct bucket *bucket, struct slice key, struct use *ret_use)
{
	struct record_entry *entry;
	struct object *object;
	int ret = record_entry_pin(store->records, bucket->info.id, key, &entry);

	if (ret)
		return ret;
	object = record_entry_object(store->records, entry);
	use_add(ret_use, object, -1);
	object_put(store, object);
	record_entry_unpin(store->records, entry);
	return 0;
}

int quota_room(struct store *store, struct bucket *bucket, struct slice key, uint64_t bytes)
{
	const struct store_quota quota = {.bytes = atomic_load(&bucket->quota_bytes),
		.objects = atomic_load(&bucket->quota_objects)};
	struct use use = {
		.bytes = bytes > LIMIT_OBJECT_BYTES_MAX ? 0 : (int64_t)bytes, .objects = 1};
	struct store_quota used;
	struct store_bucket info;
	int ret = 0;

	if (!quota.bytes && !quota.objects)
		return 0;
	bucket_used(bucket, &used);
	if (store_quota_fits(&quota, &used, use.bytes, use.objects))
		return 0;
	buckets_info(store->buckets, bucket, &info);
	if (info.versioning != STORE_VERSIONING_ENABLED)
		ret = replaced(store, bucket, key, &use);
	if (ret)
		return ret;
	if (store_quota_fits(&quota, &used, use.bytes, use.objects))
		return 0;
	counter_add(&quota_refusals, 1);
	return -EDQUOT;
}

int local_bucket_room(struct store *store, struct slice name, struct slice key, uint64_t bytes)
{
	struct bucket *bucket;
	int ret;

	if (!store_key_valid(key))
		return -EINVAL;
	bucket = buckets_find(store->buckets, name);
	if (!bucket)
		return -ENOENT;
	ret = quota_room(store, bucket, key, bytes);
	bucket_put(bucket);
	return ret;
}
