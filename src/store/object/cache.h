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
uint32_t cache_shrink(struct cache *cache, uint32_t frames);
uint64_t cache_bytes(struct cache *cache);

#endif
