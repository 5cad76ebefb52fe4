/* store/memory/tree.c: the maps of a store in memory: sorted arrays with binary search. */
#include "store/memory/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int memory_array_reserve(void **array, uint32_t count, uint32_t *cap, size_t element_bytes)
{
	uint32_t wanted = MAX(*cap * 2, 8u);
	void *grown;

	if (count < *cap)
		return 0;
	grown = realloc(*array, wanted * element_bytes);
	if (!grown)
		return -ENOMEM;
	*array = grown;
	*cap = wanted;
	return 0;
}

/* ---- Buckets. ---- */

uint32_t memory_bucket_place(const struct store *store, struct slice name)
{
	uint32_t from = 0, to = store->bucket_count;

	while (from < to) {
		uint32_t middle = from + (to - from) / 2;

		if (slice_cmp(slice_str(store->buckets[middle]->info.name), name) < 0)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

struct bucket *memory_bucket_find(const struct store *store, struct slice name)
{
	uint32_t at = memory_bucket_place(store, name);

	return at < store->bucket_count && slice_eq(slice_str(store->buckets[at]->info.name), name)
		       ? store->buckets[at]
		       : NULL;
}

static void key_close(struct key *key)
{
	for (uint32_t i = 0; i < key->version_count; i++)
		memory_object_put(key->versions[i]);
	free(key->versions);
	free(key->name);
	free(key);
}

void memory_bucket_put(struct bucket *bucket)
{
	if (!bucket || --bucket->refs)
		return;
	for (uint32_t i = 0; i < bucket->key_count; i++)
		key_close(bucket->keys[i]);
	free(bucket->keys);
	free(bucket);
}

/* ---- Keys. ---- */

uint32_t memory_key_place(const struct bucket *bucket, struct slice name)
{
	uint32_t from = 0, to = bucket->key_count;

	while (from < to) {
		uint32_t middle = from + (to - from) / 2;

		if (slice_cmp(memory_key_name(bucket->keys[middle]), name) < 0)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

struct key *memory_key_find(const struct bucket *bucket, struct slice name)
{
	uint32_t at = memory_key_place(bucket, name);

	return at < bucket->key_count && slice_eq(memory_key_name(bucket->keys[at]), name)
		       ? bucket->keys[at]
		       : NULL;
}

struct object *memory_key_current(const struct key *key)
{
	return key && !key->versions[0]->meta.delete_marker ? key->versions[0] : NULL;
}

struct object *memory_key_version(const struct key *key, struct slice version_id, uint32_t *ret_at)
{
	*ret_at = 0;
	if (!version_id.len)
		return memory_key_current(key);
	for (uint32_t i = 0; key && i < key->version_count; i++) {
		*ret_at = i;
		if (slice_eq(slice_str(key->versions[i]->meta.version_id), version_id))
			return key->versions[i];
	}
	return NULL;
}

static struct key *key_open(struct bucket *bucket, struct slice name)
{
	uint32_t at = memory_key_place(bucket, name);
	struct key *key;

	if (memory_array_reserve((void **)&bucket->keys, bucket->key_count, &bucket->key_cap,
		    sizeof(*bucket->keys)))
		return NULL;
	key = (struct key *)calloc(1, sizeof(*key));
	if (key)
		key->name = (char *)malloc(name.len);
	if (!key || !key->name) {
		free(key);
		return NULL;
	}
	memcpy(key->name, name.data, name.len);
	key->len = name.len;
	memmove(&bucket->keys[at + 1], &bucket->keys[at],
		(bucket->key_count - at) * sizeof(*bucket->keys));
	bucket->keys[at] = key;
	bucket->key_count++;
	return key;
}

static void key_remove(struct bucket *bucket, struct key *key)
{
	uint32_t at = memory_key_place(bucket, memory_key_name(key));

	bucket->key_count--;
	memmove(&bucket->keys[at], &bucket->keys[at + 1],
		(bucket->key_count - at) * sizeof(*bucket->keys));
	key_close(key);
}

void memory_version_replace(
	struct bucket *bucket, struct key *key, uint32_t at, struct object *object)
{
	struct object *old = key->versions[at];

	memory_object_supersede(old);
	key->versions[at] = object;
	if (!object) {
		key->version_count--;
		memmove(&key->versions[at], &key->versions[at + 1],
			(key->version_count - at) * sizeof(struct object *));
	}
	memory_object_put(old);
	if (!key->version_count)
		key_remove(bucket, key);
}

int memory_version_add(struct bucket *bucket, struct slice name, struct object *object)
{
	bool null = slice_eq(slice_str(object->meta.version_id), SLICE("null"));
	struct key *key = memory_key_find(bucket, name);
	struct object **versions;
	uint32_t count, at;

	if (!key)
		key = key_open(bucket, name);
	versions = key ? (struct object **)realloc(
				 key->versions, (key->version_count + 1) * sizeof(struct object *))
		       : NULL;
	if (!versions) {
		if (key && !key->version_count)
			key_remove(bucket, key);
		memory_object_put(object);
		return -ENOMEM;
	}
	key->versions = versions;
	if (key->version_count)
		memory_object_supersede(versions[0]);
	memmove(&versions[1], &versions[0], key->version_count * sizeof(struct object *));
	versions[0] = object;
	count = ++key->version_count;
	for (at = 1; null && at < count; at++)
		if (slice_eq(slice_str(versions[at]->meta.version_id), SLICE("null"))) {
			memory_version_replace(bucket, key, at, NULL);
			break;
		}
	return 0;
}

/* ---- Objects. ---- */

void memory_body_put(struct body *body)
{
	if (!body || --body->refs)
		return;
	free(body->data);
	free(body->tags);
	free(body);
}

struct object *memory_object_open(
	const struct store_meta *meta, struct slice headers, uint32_t part_count)
{
	struct object *object = (struct object *)calloc(1, sizeof(*object));

	if (!object)
		return NULL;
	object->refs = 1;
	object->meta = *meta;
	object->headers = (char *)malloc(headers.len + 1);
	object->parts = (struct object_part *)calloc(part_count, sizeof(*object->parts));
	if (!object->headers || !object->parts) {
		memory_object_put(object);
		return NULL;
	}
	if (headers.len)
		memcpy(object->headers, headers.data, headers.len);
	object->meta.headers = object->headers;
	object->meta.headers_len = (uint32_t)headers.len;
	object->part_count = part_count;
	return object;
}

struct object *memory_object_open_edited(const struct object *from, struct slice headers)
{
	struct object *object = memory_object_open(&from->meta, headers, from->part_count);

	if (!object)
		return NULL;
	object->composable = from->composable;
	object->seq = from->seq;
	for (uint32_t i = 0; i < from->part_count; i++) {
		object->parts[i] = from->parts[i];
		object->parts[i].body->refs++;
	}
	return object;
}

void memory_object_put(struct object *object)
{
	if (!object || --object->refs)
		return;
	for (uint32_t i = 0; i < object->part_count; i++)
		memory_body_put(object->parts[i].body);
	free(object->parts);
	free(object->headers);
	free(object);
}

const struct object_part *memory_object_part(const struct object *object, uint64_t offset)
{
	uint32_t at = object->part_count - 1;

	while (at && object->parts[at].start > offset)
		at--;
	return &object->parts[at];
}

void memory_object_supersede(struct object *object)
{
	object->superseded = true;
	while (object->watches) {
		struct store_object_watch *watch = object->watches;

		object->watches = watch->next;
		list_remove(&watch->link);
		watch->object = NULL;
		watch->ended(watch, false);
		object->refs--; /* the superseding call has a reference of its own */
	}
}

/* ---- Quotas. ---- */

void memory_bucket_used(const struct bucket *bucket, struct store_quota *ret_used)
{
	*ret_used = (struct store_quota){0};
	for (uint32_t k = 0; k < bucket->key_count; k++)
		for (uint32_t v = 0; v < bucket->keys[k]->version_count; v++) {
			const struct object *object = bucket->keys[k]->versions[v];

			ret_used->objects += !object->meta.delete_marker;
			ret_used->bytes += object->meta.bytes;
		}
}

/* The version that a put to the key replaces. */
static const struct object *replaced(const struct bucket *bucket, struct slice name)
{
	const struct key *key = memory_key_find(bucket, name);

	if (bucket->info.versioning == STORE_VERSIONING_ENABLED)
		return NULL;
	for (uint32_t v = 0; key && v < key->version_count; v++)
		if (slice_eq(slice_str(key->versions[v]->meta.version_id), SLICE("null")))
			return key->versions[v];
	return NULL;
}

int memory_quota_room(const struct bucket *bucket, struct slice key, int64_t bytes)
{
	const struct object *old = replaced(bucket, key);
	struct store_quota used;

	if (!bucket->info.quota.bytes && !bucket->info.quota.objects)
		return 0;
	memory_bucket_used(bucket, &used);
	if (old)
		bytes -= (int64_t)old->meta.bytes;
	return store_quota_fits(&bucket->info.quota, &used, bytes, !old || old->meta.delete_marker)
		       ? 0
		       : -EDQUOT;
}
