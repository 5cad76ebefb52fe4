/* s3/core/settings.c: the parsed configurations of buckets, cached in a small table for each
 * reactor's thread. All threads share a bucket's generation, which increases after every change. A
 * copy is valid while its generation, which was read before its documents, is current. */
#include "s3/core/settings.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "s3/core/call.h"

#define CACHE_SIZE 1024u /* buckets in a reactor's cache */
/* Of a reactor's cache. Most buckets have few documents, of some KiB; a bucket with a thousand
 * rules has some MiB. Then the largest ones leave: no tenant fills the memory, and those with
 * ordinary settings notice nothing. */
#define CACHE_BYTES_MAX	 (32 * MIB)
#define GENERATION_COUNT 4096u /* slots of generations; buckets with the same hash share one */

DEFINE_COUNTER(cached_bytes, "nebulaio_settings_cached_bytes", NULL,
	"Memory of the parsed configurations of buckets that event loops keep.");

/* The cache of one thread. */
struct cache {
	struct cache *next;
	size_t bytes;		  /* of the slots' settings */
	struct s3_settings *last; /* the last one returned; one of the slots, or NULL */
	struct s3_settings *slots[CACHE_SIZE];
};
struct s3_settings_table {
	uint64_t id; /* unique in this process */
	pthread_mutex_t lock;
	struct cache *caches;
	_Atomic uint32_t generations[GENERATION_COUNT];
};

static _Atomic uint64_t next_table_id = 1;
/* This thread's cache, and the table that it belongs to. The id of a closed table is never used
 * again. */
static _Thread_local struct cache *own_cache;
static _Thread_local uint64_t own_table_id;

int s3_settings_open(struct s3_settings_table **ret_table)
{
	struct s3_settings_table *table = calloc(1, sizeof(*table));

	if (!table)
		return -ENOMEM;
	table->id = atomic_fetch_add(&next_table_id, 1);
	pthread_mutex_init(&table->lock, NULL);
	*ret_table = table;
	return 0;
}

static void slot_clear(struct cache *cache, struct s3_settings **slot)
{
	struct s3_settings *settings = *slot;

	if (!settings)
		return;
	cache->bytes -= settings->bytes;
	counter_sub(&cached_bytes, settings->bytes);
	*slot = NULL;
	s3_settings_put(settings);
}

void s3_settings_close(struct s3_settings_table *table)
{
	if (!table)
		return;
	while (table->caches) {
		struct cache *cache = table->caches;

		table->caches = cache->next;
		for (uint32_t i = 0; i < CACHE_SIZE; i++)
			slot_clear(cache, &cache->slots[i]);
		free(cache);
	}
	pthread_mutex_destroy(&table->lock);
	free(table);
}

static __attribute__((noinline, cold)) struct cache *cache_make(struct s3_settings_table *table)
{
	struct cache *cache = calloc(1, sizeof(*cache));

	if (!cache)
		return NULL;
	pthread_mutex_lock(&table->lock);
	cache->next = table->caches;
	table->caches = cache;
	pthread_mutex_unlock(&table->lock);
	own_cache = cache;
	own_table_id = table->id;
	return cache;
}

static struct cache *cache_self(struct s3_settings_table *table)
{
	return own_table_id == table->id ? own_cache : cache_make(table);
}

static _Atomic uint32_t *generation_of(struct s3 *s3, struct slice bucket)
{
	return &s3->settings->generations[slice_hash_fixed(bucket, 0) % GENERATION_COUNT];
}

static struct s3_settings **slot_of(struct cache *cache, struct slice bucket)
{
	return &cache->slots[slice_hash_fixed(bucket, 0) % CACHE_SIZE];
}

void s3_settings_changed(struct s3 *s3, struct slice bucket)
{
	atomic_fetch_add_explicit(generation_of(s3, bucket), 1, memory_order_release);
	store_rights_changed(s3->store);
}

void s3_settings_all_changed(struct s3 *s3)
{
	for (uint32_t i = 0; i < GENERATION_COUNT; i++)
		atomic_fetch_add_explicit(&s3->settings->generations[i], 1, memory_order_release);
	store_rights_changed(s3->store);
}

void s3_settings_put(struct s3_settings *settings)
{
	if (!settings || --settings->references)
		return;
	mem_arena_free(&settings->arena);
	free(settings);
}

static int load_kind(struct s3 *s3, struct flow_core *core, const struct s3_config_kind *kind,
	struct s3_settings *settings)
{
	char name[S3_CONFIG_NAME_MAX];
	struct document document;
	int ret;

	ret = document_get(s3->store, core,
		s3_config_name(slice_str(settings->bucket.name), kind->param, name),
		&settings->arena, &document);
	/* A bucket deleted since the listing, or a document of a former bucket of this name. */
	if (ret == -ENOENT || (!ret && document.owner != settings->bucket.id))
		return 0;
	if (!ret && slice_eq(document.text, SLICE(S3_CONFIG_DELETED)) &&
		s3_config_preset(&settings->bucket, kind->id).data) {
		settings->deleted[kind->id] = true;
		return 0;
	}
	if (!ret)
		ret = kind->ops->load(document.text, &settings->arena, &settings->parsed[kind->id]);
	if (ret == -EINVAL || ret == -EBADMSG) {
		log_error("s3",
			"the document %s is damaged: the server refuses requests to its bucket",
			name);
		ret = -EIO;
	}
	if (!ret) {
		settings->documents[kind->id] = document.text;
		settings->put_ns[kind->id] = document.put_ns;
	}
	return ret;
}

/* The kinds of which a bucket has documents. */
struct found {
	const struct s3 *s3;
	size_t prefix_len;
	bool kinds[S3_CONFIG_COUNT];
};

static bool found_visit(struct slice name, void *arg)
{
	struct found *found = arg;
	struct slice param = slice_from(name, found->prefix_len);

	for (int id = 0; id < S3_CONFIG_COUNT; id++)
		if (slice_eq(s3_config_kind_at(found->s3, (enum s3_config_id)id)->param, param))
			found->kinds[id] = true;
	return true;
}

static int load_preset(struct s3_settings *settings, const struct s3_config_kind *kind)
{
	struct slice document = s3_config_preset(&settings->bucket, kind->id);

	if (!document.data || settings->documents[kind->id].data || settings->deleted[kind->id])
		return 0;
	settings->documents[kind->id] = document;
	settings->put_ns[kind->id] = settings->bucket.created_ns;
	return kind->ops->load(document, &settings->arena, &settings->parsed[kind->id]);
}

static int load_all(struct s3 *s3, struct flow_core *core, struct s3_settings *settings)
{
	char name[S3_CONFIG_NAME_MAX];
	struct slice prefix = s3_config_name(slice_str(settings->bucket.name), SLICE_NONE, name);
	struct found found = {.s3 = s3, .prefix_len = prefix.len};
	int ret = document_list(s3->store, prefix, SLICE_NONE, found_visit, &found);

	for (int id = 0; !ret && id < S3_CONFIG_COUNT; id++)
		if (found.kinds[id])
			ret = load_kind(
				s3, core, s3_config_kind_at(s3, (enum s3_config_id)id), settings);
	for (int id = 0; !ret && id < S3_CONFIG_COUNT; id++)
		ret = load_preset(settings, s3_config_kind_at(s3, (enum s3_config_id)id));
	return ret;
}

static struct s3_settings **largest_but(struct cache *cache, const struct s3_settings *but)
{
	struct s3_settings **largest = NULL;

	for (uint32_t i = 0; i < CACHE_SIZE; i++) {
		struct s3_settings **slot = &cache->slots[i];

		if (*slot && *slot != but && (!largest || (*slot)->bytes > (*largest)->bytes))
			largest = slot;
	}
	return largest;
}

/* Takes a reference. */
static void cache_put(struct cache *cache, struct s3_settings **slot, struct s3_settings *settings)
{
	struct s3_settings **largest;

	slot_clear(cache, slot);
	*slot = settings;
	cache->bytes += settings->bytes;
	counter_add(&cached_bytes, settings->bytes);
	cache->last = settings;
	settings->references++;
	while (cache->bytes > CACHE_BYTES_MAX && (largest = largest_but(cache, settings)))
		slot_clear(cache, largest);
}

static __attribute__((noinline)) int settings_load(struct s3 *s3, struct flow_core *core,
	struct slice bucket, struct s3_settings **ret_settings)
{
	_Atomic uint32_t *generation = generation_of(s3, bucket);
	struct s3_settings *settings = calloc(1, sizeof(*settings));
	struct cache *cache;
	int ret;

	if (!settings)
		return -ENOMEM;
	mem_arena_init(&settings->arena);
	settings->references = 1;
	settings->generation = atomic_load_explicit(generation, memory_order_acquire);
	settings->now = generation;
	ret = store_bucket_get(s3->store, bucket, &settings->bucket);
	settings->name = slice_str(settings->bucket.name);
	if (!ret)
		ret = load_all(s3, core, settings);
	if (!ret)
		settings->of_account = s3_account_public_access(s3, settings->bucket.owner);
	cache = ret ? NULL : cache_self(s3->settings);
	if (ret) {
		s3_settings_put(settings);
		return ret;
	}
	settings->bytes = sizeof(*settings) + mem_arena_bytes(&settings->arena);
	if (cache)
		cache_put(cache, slot_of(cache, bucket), settings);
	*ret_settings = settings;
	return 0;
}

bool s3_settings_are_current(const struct s3_settings *settings)
{
	return settings->generation == atomic_load_explicit(settings->now, memory_order_acquire);
}

static bool settings_hold(const struct s3_settings *settings, struct slice bucket)
{
	return settings && s3_settings_are_current(settings) && slice_eq(bucket, settings->name);
}

int s3_settings_get(struct s3 *s3, struct flow_core *core, struct slice bucket,
	struct s3_settings **ret_settings)
{
	struct cache *cache = cache_self(s3->settings);
	struct s3_settings *settings = cache ? cache->last : NULL;

	if (!settings_hold(settings, bucket)) {
		settings = cache ? *slot_of(cache, bucket) : NULL;
		if (!settings_hold(settings, bucket))
			return settings_load(s3, core, bucket, ret_settings);
		cache->last = settings;
	}
	settings->references++;
	*ret_settings = settings;
	return 0;
}

/* Settings that a call had and that have changed: the call may still point into them. */
struct s3_former {
	struct s3_former *next;
	struct s3_settings *settings;
};

static int renew(struct s3_call *call)
{
	struct s3_former *former = mem_arena_get(&call->arena, sizeof(*former));
	struct s3_settings *fresh;
	int ret;

	if (!former)
		return -ENOMEM;
	ret = s3_settings_get(call->s3, call->request->core, call->bucket, &fresh);
	if (ret)
		return ret;
	if (fresh->bucket.id != call->settings->bucket.id) {
		s3_settings_put(fresh);
		return -ENOENT;
	}
	*former = (struct s3_former){.next = call->former, .settings = call->settings};
	call->former = former;
	call->settings = fresh;
	return 0;
}

const struct s3_error *s3_call_settings(
	struct s3_call *call, const struct s3_settings **ret_settings)
{
	int ret = 0;

	if (call->settings && !settings_hold(call->settings, call->bucket))
		ret = renew(call);
	else if (!call->settings && call->bucket.len)
		ret = s3_settings_get(call->s3, call->request->core, call->bucket, &call->settings);
	if (!ret && !call->log_start_ns && call->settings &&
		call->settings->parsed[S3_CONFIG_LOGGING])
		call->log_start_ns = clock_now_ns();
	*ret_settings = ret ? NULL : call->settings;
	return ret && ret != -ENOENT ? s3_fail_errno(call, ret) : NULL;
}

void s3_call_settings_end(struct s3_call *call)
{
	for (struct s3_former *former = call->former; former; former = former->next)
		s3_settings_put(former->settings);
	s3_settings_put(call->settings);
}
