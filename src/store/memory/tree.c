/* store/memory/tree.c: the buckets of a store in memory, the versions of a key, and objects with
 * their bodies. */
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

struct bucket *memory_bucket_find_of(const struct store *store, struct slice name, uint64_t id)
{
	struct bucket *bucket = memory_bucket_find(store, name);

	return bucket && id && bucket->info.id != id ? NULL : bucket;
}

struct bucket *memory_bucket_find_id(const struct store *store, uint64_t id)
{
	for (uint32_t i = 0; i < store->bucket_count; i++)
		if (store->buckets[i]->info.id == id)
			return store->buckets[i];
	return NULL;
}

static void bodies_link(struct store *store, const struct object *object)
{
	for (uint32_t i = 0; i < object->part_count; i++)
		if (!object->parts[i].body->linked++)
			store->loose_bytes -= object->parts[i].body->frame_bytes;
}

static void bodies_unlink(struct store *store, const struct object *object)
{
	for (uint32_t i = 0; i < object->part_count; i++)
		if (!--object->parts[i].body->linked)
			store->loose_bytes += object->parts[i].body->frame_bytes;
}

/* Of an object that is a version of the key, or was until now. */
static void object_unlink(struct store *store, struct object *object)
{
	struct store_quota *used = &object->key->bucket->used;

	list_remove(&object->use);
	list_remove(&object->age);
	used->objects -= !object->meta.delete_marker;
	used->bytes -= object->meta.bytes;
	store->status.objects -= !object->meta.delete_marker;
	store->status.body_bytes -= object->meta.bytes;
	store->status.bytes -= object->charge;
	bodies_unlink(store, object);
	object->key = NULL;
}

/* place: in the list by age; the object belongs before it. */
static void object_link(
	struct store *store, struct key *key, struct object *object, struct list *place)
{
	struct store_quota *used = &key->bucket->used;

	object->key = key;
	object->charge = memory_object_charge(object, key->len);
	list_push_back(&store->by_use, &object->use);
	list_push_back(place, &object->age);
	used->objects += !object->meta.delete_marker;
	used->bytes += object->meta.bytes;
	store->status.objects += !object->meta.delete_marker;
	store->status.body_bytes += object->meta.bytes;
	store->status.bytes += object->charge;
	bodies_link(store, object);
}

/* Ends the object's watches: it is no longer the object of its key. */
static void supersede(struct object *object)
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

void memory_bucket_put(struct store *store, struct bucket *bucket)
{
	struct key *key;

	if (!bucket || --bucket->refs)
		return;
	while ((key = memory_key_at(bucket, (struct key_place){0})) != NULL) {
		for (uint32_t i = 0; i < key->version_count; i++) {
			supersede(key->versions[i]);
			object_unlink(store, key->versions[i]);
			memory_object_put(key->versions[i]);
		}
		memory_key_remove(key);
	}
	memory_keys_close(&bucket->keys);
	free(bucket);
}

/* ---- Versions. ---- */

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

void memory_version_replace(
	struct store *store, struct key *key, uint32_t at, struct object *object)
{
	struct object *old = key->versions[at];

	supersede(old);
	key->versions[at] = object;
	if (object) {
		/* It is as old as the one before. */
		object->born_ns = old->born_ns;
		object_link(store, key, object, &old->age);
	} else {
		key->version_count--;
		memmove(&key->versions[at], &key->versions[at + 1],
			(key->version_count - at) * sizeof(struct object *));
	}
	object_unlink(store, old);
	memory_object_put(old);
	if (!key->version_count)
		memory_key_remove(key);
}

int memory_version_add(
	struct store *store, struct bucket *bucket, struct slice name, struct object *object)
{
	bool null = slice_eq(slice_str(object->meta.version_id), SLICE("null"));
	struct key *key = memory_key_find(bucket, name);

	if (!key)
		key = memory_key_open(bucket, name);
	if (!key || memory_array_reserve((void **)&key->versions, key->version_count,
			    &key->version_cap, sizeof(*key->versions))) {
		if (key && !key->version_count)
			memory_key_remove(key);
		memory_object_put(object);
		return -ENOMEM;
	}
	if (key->version_count)
		supersede(key->versions[0]);
	memmove(&key->versions[1], &key->versions[0], key->version_count * sizeof(struct object *));
	key->versions[0] = object;
	key->version_count++;
	object->born_ns = clock_now_ns();
	object_link(store, key, object, &store->by_age);
	for (uint32_t at = 1; null && at < key->version_count; at++)
		if (slice_eq(slice_str(key->versions[at]->meta.version_id), SLICE("null"))) {
			memory_version_replace(store, key, at, NULL);
			break;
		}
	return 0;
}

/* ---- Objects. ---- */

struct body *memory_body_open(struct store *store)
{
	struct body *body = (struct body *)calloc(1, sizeof(*body));

	if (!body)
		return NULL;
	body->refs = 1;
	body->store = store;
	body->region = store->opts.region;
	body->spans = &body->first;
	body->span_cap = 1;
	return body;
}

int memory_body_add(struct body *body, struct region_span span, uint32_t bytes)
{
	struct region_span *spans = body->spans == &body->first ? NULL : body->spans;
	uint64_t frame_bytes = (uint64_t)memory_frames_charged(span.frame_count) * FRAME_BYTES;

	CHECK(!body->linked);
	CHECK(body->bytes == (uint64_t)body->span_count * STORE_CHUNK_BYTES);
	if (body->span_count == body->span_cap) {
		if (memory_array_reserve(
			    (void **)&spans, body->span_count, &body->span_cap, sizeof(*spans))) {
			region_put(body->region, span, OWNER_CACHE);
			return -ENOMEM;
		}
		if (body->spans == &body->first)
			spans[0] = body->first;
		body->spans = spans;
	}
	body->spans[body->span_count++] = span;
	body->bytes += bytes;
	body->frame_bytes += frame_bytes;
	body->store->loose_bytes += frame_bytes;
	return 0;
}

void memory_body_put(struct body *body)
{
	struct store *store = body ? body->store : NULL;

	if (!body || --body->refs)
		return;
	CHECK(!body->linked);
	store->loose_bytes -= body->frame_bytes;
	if (!store->loose_bytes && store->reserved) {
		atomic_fetch_sub(store->reserved, store->reserved_bytes);
		store->reserved = NULL;
	}
	for (uint32_t i = 0; i < body->span_count; i++)
		region_put(body->region, body->spans[i], OWNER_CACHE);
	if (body->spans != &body->first)
		free(body->spans);
	free(body->tags);
	free(body);
}

uint64_t memory_object_charge(const struct object *object, size_t key_len)
{
	uint64_t bytes = sizeof(*object) + sizeof(struct key) + key_len + object->meta.headers_len +
			 object->part_count * sizeof(*object->parts);

	for (uint32_t i = 0; i < object->part_count; i++) {
		const struct body *body = object->parts[i].body;

		bytes += sizeof(*body) + body->frame_bytes +
			 body->span_cap * sizeof(struct region_span) +
			 (uint64_t)body->tag_cap * STORE_TAG_BYTES;
	}
	return bytes;
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

/* ---- Quotas. ---- */

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

	if (!bucket->info.quota.bytes && !bucket->info.quota.objects)
		return 0;
	if (old)
		bytes -= (int64_t)old->meta.bytes;
	return store_quota_fits(
		       &bucket->info.quota, &bucket->used, bytes, !old || old->meta.delete_marker)
		       ? 0
		       : -EDQUOT;
}
