/* store/table/record_table.c: the record table in front of the index: the object of each cached
 * key, or that the key has none. It has shards, each with its own lock, CLOCK and share of the
 * bytes.
 *
 * An entry:  loading (one fiber reads the index, others wait) → ready → evicted
 * An entry stays while it is pinned: by a commit that will change it, and by a group until the
 * index has its change. So the index has everything that the table lacks. An object stays while it
 * is being read, so that each object has one instance. */
#include "reactor/waiter.h"
#include "store/index/index.h"
#include "store/log/key.h"
#include "store/object/object.h"
#include "store/object/record.h"
#include "store/state/state.h"
#include "store/table/table.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SHARD_COUNT 64u
#define SLOTS_MIN   64u

DEFINE_COUNTER(record_table_hits, "nebulaio_store_record_table_hits_total", NULL,
	"Records found in the in-memory table.");
DEFINE_COUNTER(record_table_misses, "nebulaio_store_record_table_misses_total", NULL,
	"Records looked up in the index.");
DEFINE_COUNTER(record_table_evictions, "nebulaio_store_record_table_evictions_total", NULL,
	"Records dropped from the in-memory table.");
DEFINE_COUNTER(record_table_offloads, "nebulaio_store_index_blocking_reads_total", NULL,
	"Index look-ups that had to wait for a disk read.");

struct record_shard {
	_Alignas(64) pthread_mutex_t lock;
	uint32_t slot_count; /* a power of two */
	uint32_t entry_count;
	uint64_t bytes;
	struct record_entry **slots;
	struct list clock; /* the hand is its front */
};

struct record_table {
	struct store *store;
	uint64_t seed[2];
	uint64_t shard_bytes_max;
	struct record_shard shards[SHARD_COUNT];
};

static struct record_shard *shard_of(struct record_table *table, uint64_t hash)
{
	return &table->shards[hash >> 58];
}

_Static_assert(SHARD_COUNT == 64, "six bits choose a shard");

int record_table_open(struct store *store, uint64_t bytes_max, struct record_table **ret_table)
{
	struct record_table *table;
	void *memory;

	if (posix_memalign(&memory, 64, sizeof(*table)))
		return -ENOMEM;
	table = (struct record_table *)memory;
	memset(table, 0, sizeof(*table));
	table->store = store;
	table->shard_bytes_max = bytes_max / SHARD_COUNT;
	random_fill(table->seed, sizeof(table->seed));
	for (uint32_t i = 0; i < SHARD_COUNT; i++) {
		struct record_shard *shard = &table->shards[i];

		pthread_mutex_init(&shard->lock, NULL);
		list_init(&shard->clock);
		shard->slots = (struct record_entry **)calloc(SLOTS_MIN, sizeof(*shard->slots));
		shard->slot_count = SLOTS_MIN;
	}
	for (uint32_t i = 0; i < SHARD_COUNT; i++)
		if (!table->shards[i].slots) {
			record_table_close(table);
			return -ENOMEM;
		}
	*ret_table = table;
	return 0;
}

static void entry_close(struct record_entry *entry)
{
	slab_free(entry, sizeof(*entry) + entry->key_len);
}

void record_table_close(struct record_table *table)
{
	if (!table)
		return;
	for (uint32_t i = 0; i < SHARD_COUNT; i++) {
		struct record_shard *shard = &table->shards[i];
		struct list *link;

		while ((link = list_pop(&shard->clock))) {
			struct record_entry *entry = CONTAINER_OF(link, struct record_entry, clock);

			object_put(table->store, entry->object);
			entry_close(entry);
		}
		free(shard->slots);
		pthread_mutex_destroy(&shard->lock);
	}
	free(table);
}

static struct record_entry **entry_slot(
	struct record_shard *shard, uint64_t hash, uint64_t bucket_id, struct slice key)
{
	struct record_entry **slot = &shard->slots[hash & (shard->slot_count - 1)];

	while (*slot && !((*slot)->hash == hash && (*slot)->bucket_id == bucket_id &&
				slice_eq(slice_of((*slot)->key, (*slot)->key_len), key)))
		slot = &(*slot)->chain;
	return slot;
}

static void entry_remove(struct record_shard *shard, struct record_entry *entry)
{
	struct record_entry **slot = &shard->slots[entry->hash & (shard->slot_count - 1)];

	while (*slot != entry)
		slot = &(*slot)->chain;
	*slot = entry->chain;
	list_remove(&entry->clock);
	shard->bytes -= entry->bytes;
	shard->entry_count--;
}

/* Doubles the slots when there is an entry for each. Without memory the size stays. */
static void slots_grow(struct record_shard *shard)
{
	uint32_t count = shard->slot_count * 2;
	struct record_entry **slots;

	if (shard->entry_count < shard->slot_count)
		return;
	slots = (struct record_entry **)calloc(count, sizeof(*slots));
	if (!slots)
		return;
	LIST_FOR_EACH (link, &shard->clock) {
		struct record_entry *entry = CONTAINER_OF(link, struct record_entry, clock);
		struct record_entry **slot = &slots[entry->hash & (count - 1)];

		entry->chain = *slot;
		*slot = entry;
	}
	free(shard->slots);
	shard->slots = slots;
	shard->slot_count = count;
}

/* An unused entry. If the object has more references than the table's, it is being read. */
static bool entry_idle(const struct record_entry *entry)
{
	return entry->pins == 0 && !entry->loading &&
	       (!entry->object || atomic_load(&entry->object->refs) == 1);
}

/* Moves the CLOCK hand until the shard is within its limit; at most twice round, because entries in
 * use stay. */
static void shard_evict(struct record_table *table, struct record_shard *shard)
{
	uint32_t steps = shard->entry_count * 2;

	while (shard->bytes > table->shard_bytes_max && steps--) {
		struct record_entry *entry =
			CONTAINER_OF(shard->clock.next, struct record_entry, clock);

		if (entry_idle(entry) && !entry->used) {
			entry_remove(shard, entry);
			object_put(table->store, entry->object);
			entry_close(entry);
			counter_add(&record_table_evictions, 1);
			continue;
		}
		entry->used = false;
		list_remove(&entry->clock);
		list_push_back(&shard->clock, &entry->clock);
	}
}

/* Updates the entry's size after its object changed. */
static void entry_measure(struct record_shard *shard, struct record_entry *entry)
{
	size_t bytes = sizeof(*entry) + entry->key_len;

	if (entry->object) {
		bytes += entry->object->bytes_in_memory;
		if (entry->object->body == BODY_DIRECT)
			bytes += segment_record_bytes(atomic_load(&entry->object->segments[0]));
		else
			bytes += object_segments_memory(entry->object);
	}
	shard->bytes -= entry->bytes;
	entry->bytes = (uint32_t)bytes;
	shard->bytes += entry->bytes;
}

int record_table_find(struct record_table *table, uint64_t bucket_id, struct slice key,
	struct object **ret_object)
{
	uint64_t hash = slice_hash(key, bucket_id, table->seed);
	struct record_shard *shard = shard_of(table, hash);
	struct record_entry *entry;
	int found = 0;

	pthread_mutex_lock(&shard->lock);
	entry = *entry_slot(shard, hash, bucket_id, key);
	if (entry && !entry->loading) {
		entry->used = true;
		*ret_object = entry->object ? object_get(entry->object) : NULL;
		found = 1;
	}
	pthread_mutex_unlock(&shard->lock);
	if (found)
		counter_add(&record_table_hits, 1);
	return found;
}

/* ---- Loading from the index. ---- */

struct load {
	struct store *store;
	const struct record_entry *entry;
	bool may_block;
	struct object *object;
	int ret;
};

static int load_inline(struct load *load)
{
	struct object *object = load->object;
	struct key key;
	char *value;
	size_t len;
	int ret;

	key_inline(&key, object->data_id);
	ret = index_get(load->store->index, &key, load->may_block, &value, &len);
	if (ret < 0)
		return ret;
	if (ret == 0 || len != object->meta.bytes) {
		log_error("store", "object data %llu: its inline body is %s in the index",
			(unsigned long long)object->data_id, ret ? "damaged" : "missing");
		if (ret)
			free(value);
		return -EIO;
	}
	region_copy(object->inline_data, value, len, COPY_INDEX);
	free(value);
	return 0;
}

void record_entry_key(const struct record_entry *entry, struct key *ret_key)
{
	uint64_t bucket_id = entry->bucket_id & ~ENTRY_KINDS;
	struct slice key = slice_of(entry->key, entry->key_len);
	uint64_t seq;

	if (entry->bucket_id & ENTRY_VERSION) {
		CHECK(key.len > sizeof(seq));
		key.len -= sizeof(seq);
		memcpy(&seq, key.data + key.len, sizeof(seq));
		key_version(ret_key, bucket_id, key, seq);
	} else if (entry->bucket_id & ENTRY_NULL) {
		key_null(ret_key, bucket_id, key);
	} else {
		key_object(ret_key, bucket_id, key);
	}
}

/* Loads the entry's object from the index; NULL: none. */
static void load_run(void *arg)
{
	struct load *load = (struct load *)arg;
	struct key key;
	char *value;
	size_t len;

	load->object = NULL;
	record_entry_key(load->entry, &key);
	load->ret = index_get(load->store->index, &key, load->may_block, &value, &len);
	if (load->ret <= 0)
		return;
	load->ret = record_parse(slice_of(value, len), &load->object);
	free(value);
	if (load->ret == -EUCLEAN) {
		log_error("store", "a damaged object record in the index (bucket %llu): run fsck",
			(unsigned long long)(load->entry->bucket_id & ~ENTRY_KINDS));
		load->ret = -EIO;
	}
	if (load->ret)
		return;
	if (load->object->body == BODY_INLINE)
		load->ret = load_inline(load);
	if (load->ret) {
		object_put(load->store, load->object);
		load->object = NULL;
	}
}

/* The shard is locked. */
static struct waiter *entry_ready(struct record_entry *entry)
{
	struct waiter *waiters = entry->waiters;

	entry->waiters = NULL;
	entry->loading = false;
	return waiters;
}

/* Ends loading: the entry is ready, or removed if loading failed. A decision of the committer in
 * the meantime is newer than the loaded record. Returns the result of the pin. */
static int entry_loaded(
	struct record_table *table, struct record_entry *entry, const struct load *load)
{
	struct record_shard *shard = shard_of(table, entry->hash);
	struct waiter *waiters = NULL;
	int ret = load->ret;

	pthread_mutex_lock(&shard->lock);
	if (!entry->loading) {
		pthread_mutex_unlock(&shard->lock);
		object_put(table->store, load->object);
		return 0;
	}
	waiters = entry_ready(entry);
	if (ret) {
		entry_remove(shard, entry);
		entry_close(entry);
	} else {
		entry->object = load->object;
		entry_measure(shard, entry);
		shard_evict(table, shard);
	}
	pthread_mutex_unlock(&shard->lock);
	waiters_wake(waiters);
	return ret;
}

static int entry_load(struct record_table *table, struct record_entry *entry)
{
	struct load load = {.store = table->store, .entry = entry};

	counter_add(&record_table_misses, 1);
	load_run(&load);
	if (load.ret == -EAGAIN) {
		load.may_block = true;
		counter_add(&record_table_offloads, 1);
		fiber_offload(load_run, &load);
	}
	return entry_loaded(table, entry, &load);
}

/* A new entry, loading and pinned. The shard is locked. */
static struct record_entry *entry_add(
	struct record_shard *shard, uint64_t hash, uint64_t bucket_id, struct slice key)
{
	struct record_entry *entry;
	struct record_entry **slot;

	entry = (struct record_entry *)slab_alloc(sizeof(*entry) + key.len);
	if (!entry)
		return NULL;
	slots_grow(shard);
	entry->loading = true;
	entry->used = true;
	entry->pins = 1;
	entry->hash = hash;
	entry->bucket_id = bucket_id;
	entry->key_len = (uint16_t)key.len;
	if (key.len)
		memcpy(entry->key, key.data, key.len);
	slot = &shard->slots[hash & (shard->slot_count - 1)];
	entry->chain = *slot;
	*slot = entry;
	list_push_back(&shard->clock, &entry->clock);
	shard->entry_count++;
	entry_measure(shard, entry);
	return entry;
}

int record_entry_pin(struct record_table *table, uint64_t bucket_id, struct slice key,
	struct record_entry **ret_entry)
{
	uint64_t hash = slice_hash(key, bucket_id, table->seed);
	struct record_shard *shard = shard_of(table, hash);

	for (;;) {
		struct record_entry *entry;
		struct waiter waiter;
		int ret;

		pthread_mutex_lock(&shard->lock);
		entry = *entry_slot(shard, hash, bucket_id, key);
		if (entry && !entry->loading) {
			entry->used = true;
			entry->pins++;
			pthread_mutex_unlock(&shard->lock);
			*ret_entry = entry;
			return 0;
		}
		if (!entry) {
			entry = entry_add(shard, hash, bucket_id, key);
			pthread_mutex_unlock(&shard->lock);
			if (!entry)
				return -ENOMEM;
			ret = entry_load(table, entry);
			if (!ret)
				*ret_entry = entry;
			return ret;
		}
		waiter_init(&waiter);
		waiter.next = entry->waiters;
		entry->waiters = &waiter;
		pthread_mutex_unlock(&shard->lock);
		waiter_wait(&waiter);
	}
}

int record_entry_pin_version(struct record_table *table, uint64_t bucket_id, struct slice key,
	uint64_t seq, struct record_entry **ret_entry)
{
	char name[LIMIT_KEY_LEN_MAX + sizeof(seq)];

	CHECK(key.len <= LIMIT_KEY_LEN_MAX);
	memcpy(name, key.data, key.len);
	memcpy(name + key.len, &seq, sizeof(seq));
	return record_entry_pin(
		table, bucket_id | ENTRY_VERSION, slice_of(name, key.len + sizeof(seq)), ret_entry);
}

struct record_entry *record_entry_pin_fresh(
	struct record_table *table, uint64_t bucket_id, struct slice key, uint64_t seq)
{
	char name[LIMIT_KEY_LEN_MAX + sizeof(seq)];
	struct waiter *waiters = NULL;
	struct record_shard *shard;
	struct record_entry *entry;
	uint64_t hash;

	CHECK(key.len <= LIMIT_KEY_LEN_MAX);
	bucket_id |= seq ? ENTRY_VERSION : ENTRY_NULL;
	if (seq) {
		memcpy(name, key.data, key.len);
		memcpy(name + key.len, &seq, sizeof(seq));
		key = slice_of(name, key.len + sizeof(seq));
	}
	hash = slice_hash(key, bucket_id, table->seed);
	shard = shard_of(table, hash);
	pthread_mutex_lock(&shard->lock);
	entry = *entry_slot(shard, hash, bucket_id, key);
	if (entry)
		entry->pins++;
	else
		entry = entry_add(shard, hash, bucket_id, key);
	if (entry && entry->loading)
		waiters = entry_ready(entry);
	pthread_mutex_unlock(&shard->lock);
	waiters_wake(waiters);
	return entry;
}

void record_entry_pin_more(struct record_table *table, struct record_entry *entry)
{
	struct record_shard *shard = shard_of(table, entry->hash);

	pthread_mutex_lock(&shard->lock);
	CHECK(entry->pins > 0);
	entry->pins++;
	pthread_mutex_unlock(&shard->lock);
}

void record_entry_unpin(struct record_table *table, struct record_entry *entry)
{
	struct record_shard *shard = shard_of(table, entry->hash);

	pthread_mutex_lock(&shard->lock);
	CHECK(entry->pins > 0);
	entry->pins--;
	if (entry->pins == 0)
		shard_evict(table, shard);
	pthread_mutex_unlock(&shard->lock);
}

struct object *record_entry_object(struct record_table *table, struct record_entry *entry)
{
	struct record_shard *shard = shard_of(table, entry->hash);
	struct object *object;

	pthread_mutex_lock(&shard->lock);
	CHECK(entry->pins > 0);
	object = entry->object ? object_get(entry->object) : NULL;
	pthread_mutex_unlock(&shard->lock);
	return object;
}

struct object *record_entry_publish(
	struct record_table *table, struct record_entry *entry, struct object *object)
{
	struct record_shard *shard = shard_of(table, entry->hash);
	struct object *old;

	pthread_mutex_lock(&shard->lock);
	CHECK(entry->pins > 0);
	old = entry->object;
	entry->object = object;
	entry->used = true;
	entry_measure(shard, entry);
	pthread_mutex_unlock(&shard->lock);
	return old;
}
