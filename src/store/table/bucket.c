/* store/table/bucket.c: all buckets, in memory, by name and by id: loaded at open, changed only by
 * the committer. */
#include "store/memory.h"
#include "store/table/table.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_BITS 12u
#define TABLE_SIZE (1u << TABLE_BITS)

struct buckets {
	pthread_rwlock_t lock;
	_Atomic uint64_t generation; /* changes with the table; unique among all tables */
	uint32_t count;
	struct bucket *by_name[TABLE_SIZE];
	struct bucket *by_id[TABLE_SIZE];
};

static _Atomic uint64_t generation_last;

/* The bucket that this thread looked up last: most lookups repeat it. */
static _Thread_local struct {
	uint64_t generation; /* version of the table at the lookup; 0: no bucket */
	uint64_t id;
	size_t name_len;
	char name[LIMIT_BUCKET_LEN_MAX];
} last_found;

/* The table is locked for writing, or still private to one thread. */
static void table_changed(struct buckets *buckets)
{
	atomic_store_explicit(&buckets->generation, atomic_fetch_add(&generation_last, 1) + 1,
		memory_order_release);
}

/* FNV-1a; names are short and their number is bounded. */
static uint32_t name_slot(struct slice name)
{
	uint64_t hash = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < name.len; i++)
		hash = (hash ^ (uint8_t)name.data[i]) * 0x100000001b3ull;
	return (uint32_t)(hash ^ (hash >> 32)) % TABLE_SIZE;
}

int buckets_open(struct buckets **ret_buckets)
{
	struct buckets *buckets = (struct buckets *)calloc(1, sizeof(*buckets));

	if (!buckets)
		return -ENOMEM;
	pthread_rwlock_init(&buckets->lock, NULL);
	table_changed(buckets);
	*ret_buckets = buckets;
	return 0;
}

void buckets_close(struct buckets *buckets)
{
	if (!buckets)
		return;
	for (uint32_t i = 0; i < TABLE_SIZE; i++) {
		struct bucket *next;

		for (struct bucket *at = buckets->by_name[i]; at; at = next) {
			next = at->by_name;
			bucket_put(at);
		}
	}
	pthread_rwlock_destroy(&buckets->lock);
	free(buckets);
}

static void bucket_free(struct bucket *bucket)
{
	store_memory_close(bucket->memory);
	free(bucket);
}

void bucket_put(struct bucket *bucket)
{
	if (bucket && atomic_fetch_sub_explicit(&bucket->refs, 1, memory_order_acq_rel) == 1)
		bucket_free(bucket);
}

struct bucket *buckets_find(struct buckets *buckets, struct slice name)
{
	struct bucket *at;

	pthread_rwlock_rdlock(&buckets->lock);
	for (at = buckets->by_name[name_slot(name)]; at; at = at->by_name)
		if (slice_eq(slice_str(at->info.name), name))
			break;
	if (at)
		atomic_fetch_add_explicit(&at->refs, 1, memory_order_relaxed);
	pthread_rwlock_unlock(&buckets->lock);
	return at;
}

struct bucket *buckets_find_of(struct buckets *buckets, struct slice name, uint64_t id)
{
	struct bucket *bucket = buckets_find(buckets, name);

	if (!bucket || !id || bucket->info.id == id)
		return bucket;
	bucket_put(bucket);
	return NULL;
}

uint64_t buckets_find_id_of(struct buckets *buckets, struct slice name)
{
	uint64_t id = 0;

	if (last_found.generation ==
			atomic_load_explicit(&buckets->generation, memory_order_acquire) &&
		slice_eq(slice_of(last_found.name, last_found.name_len), name))
		return last_found.id;
	pthread_rwlock_rdlock(&buckets->lock);
	for (struct bucket *at = buckets->by_name[name_slot(name)]; at; at = at->by_name)
		if (slice_eq(slice_str(at->info.name), name)) {
			if (at->memory)
				break;
			id = at->info.id;
			last_found.generation =
				atomic_load_explicit(&buckets->generation, memory_order_relaxed);
			last_found.id = id;
			last_found.name_len = name.len;
			memcpy(last_found.name, name.data, name.len);
			break;
		}
	pthread_rwlock_unlock(&buckets->lock);
	return id;
}

struct bucket *buckets_find_id(struct buckets *buckets, uint64_t id)
{
	struct bucket *at;

	pthread_rwlock_rdlock(&buckets->lock);
	for (at = buckets->by_id[id % TABLE_SIZE]; at; at = at->by_id)
		if (at->info.id == id)
			break;
	if (at)
		atomic_fetch_add_explicit(&at->refs, 1, memory_order_relaxed);
	pthread_rwlock_unlock(&buckets->lock);
	return at;
}

uint32_t buckets_count(struct buckets *buckets)
{
	uint32_t count;

	pthread_rwlock_rdlock(&buckets->lock);
	count = buckets->count;
	pthread_rwlock_unlock(&buckets->lock);
	return count;
}

void bucket_quota_set(struct bucket *bucket, const struct store_quota *quota)
{
	bucket->info.quota = *quota;
	atomic_store_explicit(&bucket->quota_bytes, quota->bytes, memory_order_relaxed);
	atomic_store_explicit(&bucket->quota_objects, quota->objects, memory_order_relaxed);
}

void bucket_used(const struct bucket *bucket, struct store_quota *ret_used)
{
	ret_used->bytes = atomic_load_explicit(&bucket->used_bytes, memory_order_relaxed);
	ret_used->objects = atomic_load_explicit(&bucket->used_objects, memory_order_relaxed);
}

void bucket_used_add(struct bucket *bucket, int64_t bytes, int64_t objects)
{
	atomic_fetch_add_explicit(&bucket->used_bytes, (uint64_t)bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&bucket->used_objects, (uint64_t)objects, memory_order_relaxed);
}

struct bucket *bucket_alloc(void)
{
	return (struct bucket *)calloc(1, sizeof(struct bucket));
}

void buckets_take(struct buckets *buckets, struct bucket *bucket, const struct store_bucket *info,
	struct store *memory)
{
	struct bucket **slot;

	bucket->info = *info;
	bucket->memory = memory;
	bucket->memory_reserved = memory ? info->memory.bytes : 0;
	bucket_quota_set(bucket, &info->quota);
	atomic_init(&bucket->refs, 1);
	pthread_rwlock_wrlock(&buckets->lock);
	slot = &buckets->by_name[name_slot(slice_str(info->name))];
	bucket->by_name = *slot;
	*slot = bucket;
	slot = &buckets->by_id[info->id % TABLE_SIZE];
	bucket->by_id = *slot;
	*slot = bucket;
	buckets->count++;
	table_changed(buckets);
	pthread_rwlock_unlock(&buckets->lock);
}

int buckets_add(struct buckets *buckets, const struct store_bucket *info)
{
	struct bucket *bucket = bucket_alloc();

	if (!bucket)
		return -ENOMEM;
	buckets_take(buckets, bucket, info, NULL);
	return 0;
}

void buckets_change(struct buckets *buckets, struct bucket *bucket, const struct store_bucket *info)
{
	pthread_rwlock_wrlock(&buckets->lock);
	bucket->info.versioning = info->versioning;
	bucket->info.flags = info->flags;
	bucket_quota_set(bucket, &info->quota);
	pthread_rwlock_unlock(&buckets->lock);
}

void buckets_info(struct buckets *buckets, struct bucket *bucket, struct store_bucket *ret_info)
{
	pthread_rwlock_rdlock(&buckets->lock);
	*ret_info = bucket->info;
	pthread_rwlock_unlock(&buckets->lock);
}

void buckets_remove(struct buckets *buckets, struct bucket *bucket)
{
	struct bucket **slot;

	pthread_rwlock_wrlock(&buckets->lock);
	slot = &buckets->by_name[name_slot(slice_str(bucket->info.name))];
	while (*slot != bucket)
		slot = &(*slot)->by_name;
	*slot = bucket->by_name;
	slot = &buckets->by_id[bucket->info.id % TABLE_SIZE];
	while (*slot != bucket)
		slot = &(*slot)->by_id;
	*slot = bucket->by_id;
	buckets->count--;
	table_changed(buckets);
	atomic_store(&bucket->dead, true);
	pthread_rwlock_unlock(&buckets->lock);
	bucket_put(bucket);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(
		((const struct store_bucket *)a)->name, ((const struct store_bucket *)b)->name);
}

int buckets_sorted(struct buckets *buckets, struct slice after, struct store_bucket **ret_sorted,
	uint32_t *ret_count)
{
	struct store_bucket *sorted;
	uint32_t count = 0;

	pthread_rwlock_rdlock(&buckets->lock);
	sorted = (struct store_bucket *)malloc((buckets->count + 1) * sizeof(*sorted));
	for (uint32_t i = 0; sorted && i < TABLE_SIZE; i++)
		for (struct bucket *at = buckets->by_name[i]; at; at = at->by_name)
			if (slice_cmp(slice_str(at->info.name), after) > 0)
				sorted[count++] = at->info;
	pthread_rwlock_unlock(&buckets->lock);
	if (!sorted)
		return -ENOMEM;
	qsort(sorted, count, sizeof(*sorted), by_name);
	*ret_sorted = sorted;
	*ret_count = count;
	return 0;
}

void buckets_visit(struct buckets *buckets, void (*visit)(struct bucket *, void *), void *arg)
{
	pthread_rwlock_rdlock(&buckets->lock);
	for (uint32_t i = 0; i < TABLE_SIZE; i++)
		for (struct bucket *at = buckets->by_name[i]; at; at = at->by_name)
			visit(at, arg);
	pthread_rwlock_unlock(&buckets->lock);
}
