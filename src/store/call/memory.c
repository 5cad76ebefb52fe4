/* store/call/memory.c: memory buckets: each has a store in memory for its objects, and a record in
 * the index like any bucket. Calls go to one or the other. docs/design/memory-buckets.md. */
#include "store/memory.h"
#include "store/call/call.h"
#include "store/commit/body.h"
#include "store/commit/commit.h"
#include "store/state/state.h"
#include "store/table/table.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#define EXPIRE_NS NS_PER_S

/* The memory bucket of that name and id (0: any), with a reference; NULL: another kind, or none. */
static struct bucket *memory_bucket(struct store *store, struct slice name, uint64_t id)
{
	struct bucket *bucket = buckets_find_of(store->buckets, name, id);

	if (!bucket || bucket->memory)
		return bucket;
	bucket_put(bucket);
	return NULL;
}

/* Its own store knows it by another id. */
static struct store_name name_inside(const struct store_name *name)
{
	struct store_name inside = *name;

	inside.bucket_id = 0;
	return inside;
}

/* ---- Making them. ---- */

static int bounds_check(const struct store_bucket *bucket)
{
	return bucket->versioning != STORE_VERSIONING_NEVER || bucket->flags & STORE_BUCKET_LOCK ||
			       bucket->memory.bytes < STORE_MEMORY_BYTES_MIN ||
			       bucket->memory.ttl_s > STORE_MEMORY_TTL_S_MAX
		       ? -EINVAL
		       : 0;
}

/* Takes the bytes from what all memory buckets may have. */
static int reserve(struct store *store, uint64_t bytes)
{
	uint64_t most = store->opts.memory_buckets_bytes_max;
	uint64_t held = atomic_load(&store->memory_reserved);

	if (!most)
		return -ENOTSUP;
	do {
		if (held > most || bytes > most - held)
			return -ENOBUFS;
	} while (!atomic_compare_exchange_weak(&store->memory_reserved, &held, held + bytes));
	return 0;
}

/* An empty store with the bucket alone. closed: it takes no object. */
static int objects_open(struct store *store, const struct store_bucket *info, bool closed,
	struct store **ret_memory)
{
	const struct store_memory_opts opts = {
		.region = store->region,
		.bytes_max = info->memory.bytes,
		.objects_max = info->memory.objects,
		.ttl_ns = info->memory.ttl_s * NS_PER_S,
		.refuses = info->memory.refuses,
		.closed = closed,
		.rights_epoch = &store->rights_epoch,
		.body_numbers = &store->data_id_next,
	};
	struct store_bucket inside = *info;
	int ret = store_memory_open(&opts, ret_memory);

	inside.id = 0;
	if (!ret)
		ret = store_engine_of(*ret_memory)->bucket_create(*ret_memory, &inside);
	if (ret)
		store_memory_close(*ret_memory);
	return ret;
}

/* Told before there is too little memory for another one. */
static bool bucket_exists(struct store *store, struct slice name)
{
	struct bucket *bucket = buckets_find(store->buckets, name);

	bucket_put(bucket);
	return bucket != NULL;
}

int either_bucket_create(struct store *store, const struct store_bucket *bucket)
{
	struct store *memory;
	int ret;

	if (!(bucket->flags & STORE_BUCKET_MEMORY))
		return local_bucket_create(store, bucket, NULL);
	ret = bounds_check(bucket);
	if (!ret && bucket_exists(store, slice_str(bucket->name)))
		ret = -EEXIST;
	if (!ret)
		ret = reserve(store, bucket->memory.bytes);
	if (ret)
		return ret;
	ret = objects_open(store, bucket, false, &memory);
	if (!ret) {
		ret = local_bucket_create(store, bucket, memory);
		if (ret)
			store_memory_close(memory);
	}
	if (ret)
		atomic_fetch_sub(&store->memory_reserved, bucket->memory.bytes);
	return ret;
}

struct start {
	struct store *store;
	int ret;
};

static void bucket_start(struct bucket *bucket, void *arg)
{
	struct start *start = (struct start *)arg;
	int refused;

	if (!(bucket->info.flags & STORE_BUCKET_MEMORY) || start->ret)
		return;
	refused = reserve(start->store, bucket->info.memory.bytes);
	if (refused)
		log_warn("store",
			"%s: the memory bucket %s takes no objects: it needs %llu MiB of "
			"memory.buckets_bytes, which has too little left: raise it, or delete "
			"the bucket",
			start->store->dir, bucket->info.name,
			(unsigned long long)(bucket->info.memory.bytes / MIB));
	else
		bucket->memory_reserved = bucket->info.memory.bytes;
	start->ret = objects_open(start->store, &bucket->info, refused != 0, &bucket->memory);
}

int memory_buckets_start(struct store *store)
{
	struct start start = {.store = store};

	buckets_visit(store->buckets, bucket_start, &start);
	return start.ret;
}

/* ---- The calls. ---- */

int either_bucket_usage(struct store *store, struct slice name, struct store_quota *ret_used)
{
	struct bucket *bucket = memory_bucket(store, name, 0);
	int ret;

	if (!bucket)
		return local_bucket_usage(store, name, ret_used);
	ret = store_engine_of(bucket->memory)->bucket_usage(bucket->memory, name, ret_used);
	bucket_put(bucket);
	return ret;
}

int either_bucket_room(struct store *store, struct slice name, struct slice key, uint64_t bytes)
{
	struct bucket *bucket = memory_bucket(store, name, 0);
	int ret;

	if (!bucket)
		return local_bucket_room(store, name, key, bytes);
	ret = store_engine_of(bucket->memory)->bucket_room(bucket->memory, name, key, bytes);
	bucket_put(bucket);
	return ret;
}

int either_rename(struct store *store, const struct store_name *from, const struct store_get *get,
	struct slice to, struct slice headers, struct store_condition condition)
{
	struct bucket *bucket = memory_bucket(store, from->bucket, from->bucket_id);
	const struct store_head *memory = bucket ? (struct store_head *)bucket->memory : NULL;
	const struct store_engine *of_get = ((const struct store_get_head *)get)->engine;
	const struct store_name inside = name_inside(from);
	int ret = -ESTALE;

	/* The bucket may have another kind than when the caller opened the object. */
	if (memory && of_get == memory->engine)
		ret = store_engine_of(bucket->memory)
			      ->rename(bucket->memory, &inside, get, to, headers, condition);
	else if (!memory && of_get->local)
		ret = local_rename(store, from, get, to, headers, condition);
	bucket_put(bucket);
	return ret;
}

int either_edit(struct store *store, const struct store_name *name, store_edit_fn *edit, void *arg,
	struct store_outbox_row *outbox_row)
{
	struct bucket *bucket = memory_bucket(store, name->bucket, name->bucket_id);
	const struct store_name inside = name_inside(name);
	int ret;

	if (!bucket)
		return local_edit(store, name, edit, arg, outbox_row);
	ret = store_engine_of(bucket->memory)->edit(bucket->memory, &inside, edit, arg, outbox_row);
	bucket_put(bucket);
	return ret;
}

int either_set_flags(struct store *store, const struct store_name *name, struct store_flags flags,
	struct store_condition condition, struct store_outbox_row *outbox_row)
{
	struct bucket *bucket = memory_bucket(store, name->bucket, name->bucket_id);
	const struct store_name inside = name_inside(name);
	int ret;

	if (!bucket)
		return local_set_flags(store, name, flags, condition, outbox_row);
	ret = store_engine_of(bucket->memory)
		      ->set_flags(bucket->memory, &inside, flags, condition, outbox_row);
	bucket_put(bucket);
	return ret;
}

int either_newest(
	struct store *store, struct slice name, struct slice key, struct store_meta *ret_meta)
{
	struct bucket *bucket = memory_bucket(store, name, 0);
	int ret;

	if (!bucket)
		return local_newest(store, name, key, ret_meta);
	ret = store_engine_of(bucket->memory)->newest(bucket->memory, name, key, ret_meta);
	bucket_put(bucket);
	return ret;
}

int either_delete_each(struct store *store, struct slice name, uint64_t bucket_id,
	struct store_deletion *list, uint32_t count)
{
	struct bucket *bucket = memory_bucket(store, name, bucket_id);
	int ret;

	if (!bucket)
		return local_delete_each(store, name, bucket_id, list, count);
	ret = store_engine_of(bucket->memory)->delete_each(bucket->memory, name, 0, list, count);
	bucket_put(bucket);
	return ret;
}

int either_list(struct store *store, const struct store_list_opts *opts, bool versions,
	store_list_visit_fn *visit, void *arg, bool *ret_more)
{
	struct bucket *bucket = memory_bucket(store, opts->bucket, 0);
	int ret;

	if (!bucket)
		return local_list(store, opts, versions, visit, arg, ret_more);
	ret = store_engine_of(bucket->memory)
		      ->list(bucket->memory, opts, versions, visit, arg, ret_more);
	bucket_put(bucket);
	return ret;
}

/* ---- All of them. ---- */

static void rights_tell(struct bucket *bucket, void *arg)
{
	(void)arg;
	if (bucket->memory)
		store_engine_of(bucket->memory)->rights_changed(bucket->memory);
}

/* The epoch goes first: a watch that begins after it with an older one is refused. */
void either_rights_changed(struct store *store)
{
	local_rights_changed(store);
	if (atomic_load(&store->memory_reserved))
		buckets_visit(store->buckets, rights_tell, NULL);
}

static void usage_add(struct bucket *bucket, void *arg)
{
	struct store_usage *usage = (struct store_usage *)arg;
	struct store_memory_status status;

	if (!bucket->memory)
		return;
	store_memory_status(bucket->memory, &status);
	usage->memory_buckets++;
	usage->memory_objects += status.objects;
	usage->memory_bytes += status.bytes;
}

void either_usage(struct store *store, struct store_usage *ret_usage)
{
	local_usage(store, ret_usage);
	ret_usage->memory_bytes_max = store->opts.memory_buckets_bytes_max;
	buckets_visit(store->buckets, usage_add, ret_usage);
}

int store_bucket_memory_status(
	struct store *store, struct slice name, struct store_memory_status *ret_status)
{
	struct bucket *bucket = store->head.engine->local ? memory_bucket(store, name, 0) : NULL;

	if (!bucket)
		return -ENOENT;
	store_memory_status(bucket->memory, ret_status);
	bucket_put(bucket);
	return 0;
}

static void bucket_expire(struct bucket *bucket, void *arg)
{
	bool *all = (bool *)arg;

	if (bucket->memory && bucket->info.memory.ttl_s)
		*all &= store_memory_expire(bucket->memory);
}

void store_memory_run(struct store *store)
{
	bool all = true;

	store->memory_expirer = fiber_self();
	while (!atomic_load(&store->quiescing)) {
		if (!all)
			fiber_yield();
		else if (fiber_park_until(clock_now_ns() + EXPIRE_NS) == 0)
			continue;
		all = true;
		if (atomic_load(&store->memory_reserved))
			buckets_visit(store->buckets, bucket_expire, &all);
	}
	store->memory_expirer = NULL;
}
