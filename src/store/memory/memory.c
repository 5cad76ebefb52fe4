/* store/memory/memory.c: the engine that keeps a store in memory: its call table, its buckets and
 * watches. */
#include "store/memory/tree.h"
#include "store/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Buckets. ---- */

static int create_locked(struct store *store, const struct store_bucket *info)
{
	struct slice name = slice_str(info->name);
	uint32_t at = memory_bucket_place(store, name);
	struct bucket *bucket;

	if (memory_bucket_find(store, name))
		return -EEXIST;
	if (store->bucket_count >= STORE_BUCKETS_MAX)
		return -EDQUOT;
	if (memory_array_reserve((void **)&store->buckets, store->bucket_count, &store->bucket_cap,
		    sizeof(*store->buckets)))
		return -ENOMEM;
	bucket = (struct bucket *)calloc(1, sizeof(*bucket));
	if (!bucket)
		return -ENOMEM;
	bucket->refs = 1;
	random_fill(bucket->keys.seed, sizeof(bucket->keys.seed));
	bucket->info = *info;
	if (!bucket->info.id)
		bucket->info.id = ++store->seq_last;
	if (!bucket->info.created_ns)
		bucket->info.created_ns = clock_real_ns();
	memmove(&store->buckets[at + 1], &store->buckets[at],
		(store->bucket_count - at) * sizeof(*store->buckets));
	store->buckets[at] = bucket;
	store->bucket_count++;
	return 0;
}

static uint64_t memory_bucket_id_reserve(struct store *store)
{
	uint64_t id;

	pthread_mutex_lock(&store->lock);
	id = ++store->seq_last;
	pthread_mutex_unlock(&store->lock);
	return id;
}

static int memory_bucket_create(struct store *store, const struct store_bucket *info)
{
	size_t len = strnlen(info->name, sizeof(info->name));
	int ret;

	if (len == 0 || len > LIMIT_BUCKET_LEN_MAX)
		return -EINVAL;
	pthread_mutex_lock(&store->lock);
	ret = create_locked(store, info);
	pthread_mutex_unlock(&store->lock);
	return ret;
}

static int memory_bucket_get(
	struct store *store, struct slice name, struct store_bucket *ret_bucket)
{
	const struct bucket *bucket;

	pthread_mutex_lock(&store->lock);
	bucket = memory_bucket_find(store, name);
	if (bucket)
		*ret_bucket = bucket->info;
	pthread_mutex_unlock(&store->lock);
	return bucket ? 0 : -ENOENT;
}

static int memory_bucket_delete(struct store *store, struct slice name, uint64_t id)
{
	struct bucket *bucket;
	uint32_t at;
	int ret = 0;

	memory_lock_fresh(store);
	bucket = memory_bucket_find_of(store, name, id);
	if (!bucket) {
		ret = -ENOENT;
	} else if (bucket->keys.count) {
		ret = -ENOTEMPTY;
	} else {
		at = memory_bucket_place(store, name);
		store->bucket_count--;
		memmove(&store->buckets[at], &store->buckets[at + 1],
			(store->bucket_count - at) * sizeof(*store->buckets));
		bucket->dead = true;
		memory_bucket_put(store, bucket);
	}
	pthread_mutex_unlock(&store->lock);
	return ret;
}

static int memory_bucket_edit(
	struct store *store, struct slice name, store_bucket_edit_fn *edit, void *arg)
{
	struct store_bucket edited;
	struct bucket *bucket;
	int ret = -ENOENT;

	pthread_mutex_lock(&store->lock);
	bucket = memory_bucket_find(store, name);
	if (bucket) {
		edited = bucket->info;
		ret = edit(&edited, arg);
		if (!ret && edited.versioning == STORE_VERSIONING_NEVER &&
			bucket->info.versioning != STORE_VERSIONING_NEVER)
			ret = -EINVAL;
	}
	if (!ret) {
		bucket->info.versioning = edited.versioning;
		bucket->info.flags = edited.flags;
		bucket->info.quota = edited.quota;
	}
	pthread_mutex_unlock(&store->lock);
	return ret;
}

/* The visitor may call the store: so it gets copies. */
static int memory_bucket_list(
	struct store *store, struct slice after, store_bucket_visit_fn *visit, void *arg)
{
	struct store_bucket *copies;
	uint32_t count = 0;

	pthread_mutex_lock(&store->lock);
	copies = (struct store_bucket *)malloc((store->bucket_count + 1) * sizeof(*copies));
	for (uint32_t i = 0; copies && i < store->bucket_count; i++)
		if (slice_cmp(slice_str(store->buckets[i]->info.name), after) > 0)
			copies[count++] = store->buckets[i]->info;
	pthread_mutex_unlock(&store->lock);
	for (uint32_t i = 0; i < count && visit(&copies[i], arg); i++)
		;
	free(copies);
	return copies ? 0 : -ENOMEM;
}

static int memory_bucket_usage(struct store *store, struct slice name, struct store_quota *ret_used)
{
	const struct bucket *bucket;

	memory_lock_fresh(store);
	bucket = memory_bucket_find(store, name);
	if (bucket)
		*ret_used = bucket->used;
	pthread_mutex_unlock(&store->lock);
	return bucket ? 0 : -ENOENT;
}

static int memory_bucket_room(
	struct store *store, struct slice name, struct slice key, uint64_t bytes)
{
	const struct bucket *bucket;
	int ret = -ENOENT;

	memory_lock_fresh(store);
	bucket = memory_bucket_find(store, name);
	if (bucket)
		ret = memory_quota_room(bucket, key, bytes == UINT64_MAX ? 0 : (int64_t)bytes);
	pthread_mutex_unlock(&store->lock);
	return ret;
}

/* ---- Watching. ---- */

static uint64_t memory_rights_epoch(const struct store *store)
{
	return atomic_load(store->opts.rights_epoch);
}

static int memory_object_watch_begin(
	struct store_get *get, struct store_object_watch *watch, uint64_t epoch)
{
	struct store *store = get->store;
	int ret = 0;

	pthread_mutex_lock(&store->lock);
	if (get->object->superseded || atomic_load(store->opts.rights_epoch) != epoch) {
		ret = -ESTALE;
	} else {
		watch->store = memory_store_get(store);
		watch->object = get->object;
		watch->object->refs++;
		watch->next = watch->object->watches;
		watch->object->watches = watch;
		list_push_back(&store->watches, &watch->link);
	}
	pthread_mutex_unlock(&store->lock);
	return ret;
}

/* Removes it from both lists. */
static void watch_remove(struct store_object_watch *watch)
{
	struct object *object = watch->object;
	struct store_object_watch **at = &object->watches;

	while (*at != watch)
		at = &(*at)->next;
	*at = watch->next;
	list_remove(&watch->link);
	watch->object = NULL;
	memory_object_put(object);
}

/* The watch knows its store: the caller may name the one that it belongs to. */
static void memory_object_watch_end(struct store *named, struct store_object_watch *watch)
{
	struct store *store = watch->store;

	(void)named;
	if (!store)
		return;
	pthread_mutex_lock(&store->lock);
	if (watch->object)
		watch_remove(watch);
	pthread_mutex_unlock(&store->lock);
	watch->store = NULL;
	memory_store_put(store);
}

static void memory_rights_changed(struct store *store)
{
	if (store->opts.rights_epoch == &store->own_epoch)
		atomic_fetch_add(&store->own_epoch, 1);
	pthread_mutex_lock(&store->lock);
	while (!list_empty(&store->watches)) {
		struct store_object_watch *watch =
			CONTAINER_OF(store->watches.next, struct store_object_watch, link);

		watch_remove(watch);
		watch->ended(watch, true);
	}
	pthread_mutex_unlock(&store->lock);
}

/* ---- The outbox, and usage. ---- */

/* Rows are not kept: they would end with the process. */
static int memory_outbox_visit(
	struct store *store, uint64_t after, bool all, store_outbox_visit_fn *visit, void *arg)
{
	(void)store;
	(void)after;
	(void)all;
	(void)visit;
	(void)arg;
	return 0;
}

static int memory_outbox_end(struct store *store, const uint64_t *numbers, uint32_t count)
{
	(void)store;
	(void)numbers;
	(void)count;
	return 0;
}

static void memory_usage(struct store *store, struct store_usage *ret_usage)
{
	*ret_usage = (struct store_usage){0};
	pthread_mutex_lock(&store->lock);
	ret_usage->buckets = store->bucket_count;
	ret_usage->objects = store->status.objects;
	ret_usage->used_bytes = store->status.body_bytes;
	pthread_mutex_unlock(&store->lock);
	ret_usage->volume_bytes = ret_usage->used_bytes;
}

static const struct store_engine MEMORY_ENGINE = {
	.name = "memory",
	.local = false,
	.bucket_id_reserve = memory_bucket_id_reserve,
	.bucket_create = memory_bucket_create,
	.bucket_get = memory_bucket_get,
	.bucket_delete = memory_bucket_delete,
	.bucket_edit = memory_bucket_edit,
	.bucket_list = memory_bucket_list,
	.bucket_usage = memory_bucket_usage,
	.bucket_room = memory_bucket_room,
	.put_open = memory_put_open,
	.put_sink = memory_put_sink,
	.put_tagged = memory_put_tagged,
	.put_compose = memory_put_compose,
	.put_append = memory_put_append,
	.put_commit = memory_put_commit,
	.put_abort = memory_put_abort,
	.rename = memory_rename,
	.edit = memory_edit,
	.set_flags = memory_set_flags,
	.get_open = memory_get_open,
	.newest = memory_newest,
	.get_source = memory_get_source,
	.get_held = memory_get_held,
	.get_stretch = memory_get_stretch,
	.get_tag = memory_get_tag,
	.get_close = memory_get_close,
	.rights_epoch = memory_rights_epoch,
	.object_watch_begin = memory_object_watch_begin,
	.object_watch_end = memory_object_watch_end,
	.rights_changed = memory_rights_changed,
	.delete_each = memory_delete_each,
	.outbox_visit = memory_outbox_visit,
	.outbox_end = memory_outbox_end,
	.list = memory_list,
	.usage = memory_usage,
};

/* ---- Open, close. ---- */

struct store *memory_store_get(struct store *store)
{
	atomic_fetch_add_explicit(&store->refs, 1, memory_order_relaxed);
	return store;
}

void memory_store_put(struct store *store)
{
	if (atomic_fetch_sub_explicit(&store->refs, 1, memory_order_acq_rel) != 1)
		return;
	for (uint32_t i = 0; i < store->bucket_count; i++)
		memory_bucket_put(store, store->buckets[i]);
	free(store->buckets);
	pthread_mutex_destroy(&store->lock);
	free(store);
}

int store_memory_open(const struct store_memory_opts *opts, struct store **ret_store)
{
	struct store *store = (struct store *)calloc(1, sizeof(*store));

	if (!store)
		return -ENOMEM;
	store->head.engine = &MEMORY_ENGINE;
	atomic_init(&store->refs, 1);
	atomic_init(&store->own_body_numbers, 1);
	store->opts = *opts;
	if (!opts->rights_epoch)
		store->opts.rights_epoch = &store->own_epoch;
	if (!opts->body_numbers)
		store->opts.body_numbers = &store->own_body_numbers;
	pthread_mutex_init(&store->lock, NULL);
	list_init(&store->watches);
	list_init(&store->by_use);
	list_init(&store->by_age);
	*ret_store = store;
	return 0;
}

int store_memory_end(struct store *store)
{
	struct bucket *bucket;
	int ret = 0;

	(void)store_memory_expire(store);
	pthread_mutex_lock(&store->lock);
	bucket = store->bucket_count ? store->buckets[0] : NULL;
	if (!bucket || bucket->ending)
		ret = -ENOENT;
	else if (bucket->keys.count)
		ret = -ENOTEMPTY;
	else
		bucket->ending = true;
	pthread_mutex_unlock(&store->lock);
	return ret;
}

void store_memory_stay(struct store *store)
{
	pthread_mutex_lock(&store->lock);
	store->buckets[0]->ending = false;
	pthread_mutex_unlock(&store->lock);
}

void store_memory_leave(struct store *store, _Atomic uint64_t *reserved, uint64_t bytes)
{
	pthread_mutex_lock(&store->lock);
	for (uint32_t i = 0; i < store->bucket_count; i++)
		store->buckets[i]->dead = true;
	if (store->loose_bytes) {
		store->reserved = reserved;
		store->reserved_bytes = bytes;
	} else {
		atomic_fetch_sub(reserved, bytes);
	}
	pthread_mutex_unlock(&store->lock);
}

void store_memory_close(struct store *store)
{
	if (store)
		memory_store_put(store);
}
