/* store/object/cache.c: caches verified chunks in region frames, by the object's data id and chunk.
 * The frames belong to OWNER_CACHE and are shared: the cache holds one reference, and each reader
 * one. A data id is never reused, so a cached chunk is never stale, only useless after its object
 * is deleted. */
#include "store/object/cache.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SHARDS_MAX	16u
#define SHARD_BYTES_MIN (64 * MIB)
#define SLOTS_MIN	256u
#define FLIGHT_SLOTS	64u

DEFINE_COUNTER(cache_hits, "nebulaio_store_cache_hits_total", NULL, "Chunks found in memory.");
DEFINE_COUNTER(
	cache_misses, "nebulaio_store_cache_misses_total", NULL, "Chunks that were not in memory.");
DEFINE_COUNTER(cache_evictions, "nebulaio_store_cache_evictions_total", NULL,
	"Chunks dropped from memory.");
DEFINE_COUNTER(shared_reads, "nebulaio_store_shared_reads_total", NULL,
	"Chunks that a reader took from another one's read of the volume.");

struct cache_entry {
	struct cache_entry *chain;
	struct list clock;
	uint64_t data_id;
	uint32_t chunk_idx;
	uint32_t bytes;
	uint32_t frames; /* as the region counts them */
	bool used;
	struct region_span span;
};

struct cache_shard {
	_Alignas(64) pthread_mutex_t lock;
	uint32_t slot_count;
	uint32_t entry_count;
	uint64_t bytes;
	struct cache_entry **slots;
	struct list clock;
	struct cache_flight *flights[FLIGHT_SLOTS];
};

struct cache {
	struct region *region;
	_Atomic uint64_t shard_bytes_max;
	uint32_t shard_count;
	_Atomic uint32_t hand; /* the shard that shrinks next */
	struct cache_shard shards[SHARDS_MAX];
};

static uint64_t chunk_hash(uint64_t data_id, uint32_t chunk_idx)
{
	uint64_t hash = (data_id + 1) * 0x9e3779b97f4a7c15ull + chunk_idx * 0xc2b2ae3d27d4eb4full;

	return (hash ^ (hash >> 29)) * 0xbf58476d1ce4e5b9ull;
}

static struct cache_shard *shard_of(struct cache *cache, uint64_t hash)
{
	return &cache->shards[(hash >> 40) % cache->shard_count];
}

int cache_open(struct region *region, uint64_t bytes_max, struct cache **ret_cache)
{
	struct cache *cache;
	void *memory;

	if (posix_memalign(&memory, 64, sizeof(*cache)))
		return -ENOMEM;
	cache = (struct cache *)memory;
	memset(cache, 0, sizeof(*cache));
	cache->region = region;
	cache->shard_count =
		(uint32_t)MAX(MIN(bytes_max / SHARD_BYTES_MIN, (uint64_t)SHARDS_MAX), 1u);
	cache->shard_bytes_max = bytes_max / cache->shard_count;
	for (uint32_t i = 0; i < cache->shard_count; i++) {
		struct cache_shard *shard = &cache->shards[i];

		pthread_mutex_init(&shard->lock, NULL);
		list_init(&shard->clock);
		shard->slot_count = SLOTS_MIN;
		shard->slots = (struct cache_entry **)calloc(SLOTS_MIN, sizeof(*shard->slots));
	}
	for (uint32_t i = 0; i < cache->shard_count; i++)
		if (!cache->shards[i].slots) {
			cache_close(cache);
			return -ENOMEM;
		}
	*ret_cache = cache;
	return 0;
}

static struct cache_entry **entry_slot(
	struct cache_shard *shard, uint64_t hash, uint64_t data_id, uint32_t chunk_idx)
{
	struct cache_entry **slot = &shard->slots[hash & (shard->slot_count - 1)];

	while (*slot && !((*slot)->data_id == data_id && (*slot)->chunk_idx == chunk_idx))
		slot = &(*slot)->chain;
	return slot;
}

/* Removes the entry at *slot and drops the cache's reference; returns the number of frames freed.
 */
static uint32_t entry_drop(
	struct cache *cache, struct cache_shard *shard, struct cache_entry **slot)
{
	struct cache_entry *entry = *slot;
	uint32_t freed;

	*slot = entry->chain;
	list_remove(&entry->clock);
	shard->bytes -= (uint64_t)entry->frames * FRAME_BYTES;
	shard->entry_count--;
	freed = region_put(cache->region, entry->span, OWNER_CACHE) ? entry->frames : 0;
	slab_free(entry, sizeof(*entry));
	return freed;
}

void cache_close(struct cache *cache)
{
	if (!cache)
		return;
	for (uint32_t i = 0; i < cache->shard_count; i++) {
		struct cache_shard *shard = &cache->shards[i];

		for (uint32_t s = 0; shard->slots && s < shard->slot_count; s++)
			while (shard->slots[s])
				entry_drop(cache, shard, &shard->slots[s]);
		free(shard->slots);
		pthread_mutex_destroy(&shard->lock);
	}
	free(cache);
}

bool cache_find(struct cache *cache, uint64_t data_id, uint32_t chunk_idx, uint32_t bytes,
	struct region_span *ret_span)
{
	uint64_t hash = chunk_hash(data_id, chunk_idx);
	struct cache_shard *shard = shard_of(cache, hash);
	struct cache_entry *entry;

	pthread_mutex_lock(&shard->lock);
	entry = *entry_slot(shard, hash, data_id, chunk_idx);
	if (entry && entry->bytes == bytes) {
		entry->used = true;
		region_get(cache->region, entry->span);
		*ret_span = entry->span;
	} else {
		entry = NULL;
	}
	pthread_mutex_unlock(&shard->lock);
	counter_add(entry ? &cache_hits : &cache_misses, 1);
	return entry != NULL;
}

static uint32_t entry_evict(
	struct cache *cache, struct cache_shard *shard, struct cache_entry *entry)
{
	counter_add(&cache_evictions, 1);
	return entry_drop(cache, shard,
		entry_slot(shard, chunk_hash(entry->data_id, entry->chunk_idx), entry->data_id,
			entry->chunk_idx));
}

/* The CLOCK hand moves until at least this many frames are free, at most twice round. It passes
 * over entries in extensions when frames that last are wanted. */
static uint32_t shard_evict(struct cache *cache, struct cache_shard *shard, uint64_t bytes_goal,
	uint32_t frames_wanted, bool lasting)
{
	uint32_t steps = shard->entry_count * 2;
	uint32_t freed = 0;

	while ((shard->bytes > bytes_goal || freed < frames_wanted) && steps-- &&
		!list_empty(&shard->clock)) {
		struct cache_entry *entry =
			CONTAINER_OF(shard->clock.next, struct cache_entry, clock);

		if (entry->used || (lasting && !region_span_lasts(cache->region, entry->span))) {
			entry->used = false;
			list_remove(&entry->clock);
			list_push_back(&shard->clock, &entry->clock);
			continue;
		}
		freed += entry_evict(cache, shard, entry);
	}
	return freed;
}

static void slots_grow(struct cache_shard *shard)
{
	uint32_t count = shard->slot_count * 2;
	struct cache_entry **slots;

	if (shard->entry_count < shard->slot_count)
		return;
	slots = (struct cache_entry **)calloc(count, sizeof(*slots));
	if (!slots)
		return;
	LIST_FOR_EACH (link, &shard->clock) {
		struct cache_entry *entry = CONTAINER_OF(link, struct cache_entry, clock);
		struct cache_entry **slot =
			&slots[chunk_hash(entry->data_id, entry->chunk_idx) & (count - 1)];

		entry->chain = *slot;
		*slot = entry;
	}
	free(shard->slots);
	shard->slots = slots;
	shard->slot_count = count;
}

/* The region gives spans out in powers of two. */
static uint32_t frames_charged(uint32_t frames)
{
	return frames <= 1 ? 1 : 1u << (32 - __builtin_clz(frames - 1));
}

bool cache_add(struct cache *cache, const struct cache_offer *offer)
{
	uint64_t hash = chunk_hash(offer->data_id, offer->chunk_idx);
	struct cache_shard *shard = shard_of(cache, hash);
	uint32_t frames = frames_charged(offer->span.frame_count);
	struct cache_entry *entry;
	struct cache_entry **slot;

	/* A span much larger than its content would waste the cache; and one chunk must not fill
	 * it. */
	if (frames > 2 * frames_charged(region_frames_for(offer->bytes)) ||
		(uint64_t)frames * FRAME_BYTES > cache->shard_bytes_max / 2)
		return false;
	entry = (struct cache_entry *)slab_alloc(sizeof(*entry));
	if (!entry)
		return false;
	*entry = (struct cache_entry){.data_id = offer->data_id,
		.chunk_idx = offer->chunk_idx,
		.bytes = offer->bytes,
		.frames = frames,
		.span = offer->span};
	pthread_mutex_lock(&shard->lock);
	if (*entry_slot(shard, hash, offer->data_id, offer->chunk_idx)) {
		pthread_mutex_unlock(&shard->lock);
		slab_free(entry, sizeof(*entry));
		return false;
	}
	slots_grow(shard);
	region_switch(cache->region, offer->span, offer->owner, OWNER_CACHE);
	if (offer->keep_reference)
		region_get(cache->region, offer->span);
	slot = &shard->slots[hash & (shard->slot_count - 1)];
	entry->chain = *slot;
	*slot = entry;
	list_push_back(&shard->clock, &entry->clock);
	shard->entry_count++;
	shard->bytes += (uint64_t)frames * FRAME_BYTES;
	shard_evict(cache, shard, cache->shard_bytes_max, 0, false);
	pthread_mutex_unlock(&shard->lock);
	return true;
}

void cache_drop(struct cache *cache, uint64_t data_id, uint32_t chunk_count)
{
	for (uint32_t chunk = 0; chunk < chunk_count; chunk++) {
		uint64_t hash = chunk_hash(data_id, chunk);
		struct cache_shard *shard = shard_of(cache, hash);
		struct cache_entry **slot;

		pthread_mutex_lock(&shard->lock);
		slot = entry_slot(shard, hash, data_id, chunk);
		if (*slot)
			entry_drop(cache, shard, slot);
		pthread_mutex_unlock(&shard->lock);
	}
}

uint32_t cache_shrink(struct cache *cache, uint32_t frames, bool lasting)
{
	uint32_t from = atomic_fetch_add(&cache->hand, 1);
	uint32_t freed = 0;

	for (uint32_t i = 0; i < cache->shard_count && freed < frames; i++) {
		struct cache_shard *shard = &cache->shards[(from + i) % cache->shard_count];

		pthread_mutex_lock(&shard->lock);
		freed += shard_evict(cache, shard, UINT64_MAX, frames - freed, lasting);
		pthread_mutex_unlock(&shard->lock);
	}
	return freed;
}

void cache_resize(struct cache *cache, uint64_t bytes_max)
{
	cache->shard_bytes_max = bytes_max / cache->shard_count;
	for (uint32_t i = 0; i < cache->shard_count; i++) {
		struct cache_shard *shard = &cache->shards[i];

		pthread_mutex_lock(&shard->lock);
		shard_evict(cache, shard, cache->shard_bytes_max, 0, false);
		pthread_mutex_unlock(&shard->lock);
	}
}

void cache_vacate(struct cache *cache, const uint8_t *data, uint64_t bytes)
{
	for (uint32_t i = 0; i < cache->shard_count; i++) {
		struct cache_shard *shard = &cache->shards[i];

		pthread_mutex_lock(&shard->lock);
		LIST_FOR_EACH_SAFE (link, &shard->clock) {
			struct cache_entry *entry = CONTAINER_OF(link, struct cache_entry, clock);

			if ((uint64_t)((uintptr_t)entry->span.data - (uintptr_t)data) < bytes)
				entry_evict(cache, shard, entry);
		}
		pthread_mutex_unlock(&shard->lock);
	}
}

static struct cache_flight **flight_slot(
	struct cache_shard *shard, uint64_t hash, const struct cache_flight *flight)
{
	struct cache_flight **slot = &shard->flights[hash % FLIGHT_SLOTS];

	while (*slot &&
		!((*slot)->data_id == flight->data_id && (*slot)->chunk_idx == flight->chunk_idx))
		slot = &(*slot)->chain;
	return slot;
}

enum cache_flight_role cache_flight_begin(struct cache *cache, struct cache_flight *flight)
{
	uint64_t hash = chunk_hash(flight->data_id, flight->chunk_idx);
	struct cache_shard *shard = shard_of(cache, hash);
	enum cache_flight_role role;
	struct cache_entry *entry;
	struct cache_flight **slot;

	flight->chain = NULL;
	flight->waiters = NULL;
	flight->span = (struct region_span){.data = NULL};
	pthread_mutex_lock(&shard->lock);
	entry = *entry_slot(shard, hash, flight->data_id, flight->chunk_idx);
	slot = flight_slot(shard, hash, flight);
	if (entry && entry->bytes == flight->bytes) {
		role = FLIGHT_CACHED;
		region_get(cache->region, entry->span);
		flight->span = entry->span;
	} else if (*slot) {
		role = FLIGHT_WAITS;
		flight->chain = (*slot)->waiters;
		(*slot)->waiters = flight;
	} else {
		role = FLIGHT_READS;
		*slot = flight;
	}
	pthread_mutex_unlock(&shard->lock);
	if (role == FLIGHT_CACHED)
		counter_add(&shared_reads, 1);
	return role;
}

void cache_flight_end(struct cache *cache, struct cache_flight *flight, struct region_span span)
{
	uint64_t hash = chunk_hash(flight->data_id, flight->chunk_idx);
	struct cache_shard *shard = shard_of(cache, hash);
	struct cache_flight *waiter;
	struct cache_flight **slot;

	pthread_mutex_lock(&shard->lock);
	slot = flight_slot(shard, hash, flight);
	CHECK(*slot == flight);
	*slot = flight->chain;
	waiter = flight->waiters;
	pthread_mutex_unlock(&shard->lock);
	while (waiter) {
		struct cache_flight *next = waiter->chain; /* landed may free the waiter */

		if (span.data) {
			region_get(cache->region, span);
			counter_add(&shared_reads, 1);
		}
		waiter->span = span;
		waiter->landed(waiter);
		waiter = next;
	}
}

uint64_t cache_bytes(struct cache *cache)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < cache->shard_count; i++) {
		pthread_mutex_lock(&cache->shards[i].lock);
		bytes += cache->shards[i].bytes;
		pthread_mutex_unlock(&cache->shards[i].lock);
	}
	return bytes;
}

uint64_t cache_bytes_max(const struct cache *cache)
{
	return cache->shard_bytes_max * cache->shard_count;
}
