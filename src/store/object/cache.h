/* store/object/cache.h: the cache of verified chunks. */
#ifndef STORE_CACHE_H
#define STORE_CACHE_H

#include "store/local.h"

#include <stdbool.h>

/* ---- cache.c: verified chunks in region frames. Any thread. ---- */
struct cache;
int cache_open(struct region *region, uint64_t bytes_max, struct cache **ret_cache);
void cache_close(struct cache *cache);
bool cache_find(struct cache *cache, uint64_t data_id, uint32_t chunk_idx, uint32_t bytes,
	struct region_span *ret_span);
struct cache_offer {
	uint64_t data_id;
	uint32_t chunk_idx;
	uint32_t bytes;
	struct region_span span;
	enum region_owner owner; /* the new owner of the span */
	bool keep_reference;	 /* the caller keeps a reference of its own */
};
/* Takes the span over as OWNER_CACHE, or declines: then returns false and changes nothing. */
bool cache_add(struct cache *cache, const struct cache_offer *offer);
void cache_drop(struct cache *cache, uint64_t data_id, uint32_t chunk_count);
/* Drops what is used least until so many frames are free, or all has been looked at; lasting: only
 * those of the region's base count. Returns the number of frames. */
uint32_t cache_shrink(struct cache *cache, uint32_t frames, bool lasting);
/* The most that it holds; more is dropped now. */
void cache_resize(struct cache *cache, uint64_t bytes_max);
/* Drops all that lies in this memory. Entries that readers use free their frames with the last
 * reader. */
void cache_vacate(struct cache *cache, const uint8_t *data, uint64_t bytes);
uint64_t cache_bytes(struct cache *cache);
uint64_t cache_bytes_max(const struct cache *cache);

/* A chunk on its way from the volume, or a reader that waits for it. Of the chunk's readers, the
 * first one reads, and the others take a reference to its frames. The memory belongs to the reader,
 * from begin to the end (the one that reads) or to landed (the others). */
struct cache_flight {
	struct cache_flight *chain;
	struct cache_flight *waiters;
	uint64_t data_id;
	uint32_t chunk_idx;
	uint32_t bytes;
	struct region_span span; /* the reader's reference; data NULL: it must read for itself */
	/* For a reader that waits: called once, on the thread of the one that reads. */
	void (*landed)(struct cache_flight *flight);
};
enum cache_flight_role {
	FLIGHT_READS,  /* nobody reads the chunk: the caller must, and then ends the flight */
	FLIGHT_WAITS,  /* landed will be called, perhaps before this call returns */
	FLIGHT_CACHED, /* the cache has the chunk: span is the caller's reference */
};
enum cache_flight_role cache_flight_begin(struct cache *cache, struct cache_flight *flight);
/* The span holds the chunk, verified, as OWNER_CACHE, and the caller keeps its reference; data
 * NULL: the read failed. */
void cache_flight_end(struct cache *cache, struct cache_flight *flight, struct region_span span);

#endif
