/* region/frames_priv.h: leasing and giving frames through the calling thread's cache. It has the
 * inline part of frames_dp.c, and the functions of frames.c that serve what a cache cannot. */
#ifndef REGION_FRAMES_PRIV_H
#define REGION_FRAMES_PRIV_H

#include "region/region_priv.h"

#if defined(__SANITIZE_ADDRESS__)
#define REGION_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define REGION_ASAN 1
#endif
#endif
#ifdef REGION_ASAN
#include <sanitizer/asan_interface.h>
#define FRAMES_POISON(data, bytes)   ASAN_POISON_MEMORY_REGION(data, bytes)
#define FRAMES_UNPOISON(data, bytes) ASAN_UNPOISON_MEMORY_REGION(data, bytes)
#else
#define FRAMES_POISON(data, bytes)   ((void)(data), (void)(bytes))
#define FRAMES_UNPOISON(data, bytes) ((void)(data), (void)(bytes))
#endif

/* The calling thread's caches, one for each region of the process. */
struct cache_ref {
	uint64_t serial;
	struct frame_cache *cache;
};
extern _Thread_local struct cache_ref cache_refs[REGIONS_MAX];

/* frames.c: the allocator beneath the threads' caches. */
int frames_open(struct region *region);
void frames_close(struct region *region); /* also for a half-built region */
struct frame_cache *frames_cache_claim(struct region *region);
/* Lists all frames of an arena whose memory is there; those of a retired one are listed already.
 * -ENOMEM. */
int arena_frames_list(struct region *region, uint32_t arena_idx);
void caches_raid(struct region *region);
int frames_lease_slow(struct region *region, uint32_t frame_count, enum region_owner owner,
	struct region_span *ret_span);
void frames_free_slow(struct region *region, struct frame_cache *cache, uint32_t frame_idx);
void frames_refused(const struct region *region, struct region_span span, const char *call,
	enum region_owner expected) __attribute__((noreturn, cold));

/* Whether the block must not stay in a cache. In the cache's lock: a raid that found no such block
 * in it set the bit before. */
static inline bool frame_retired(const struct region *region, uint32_t frame_idx)
{
	uint64_t arenas = atomic_load_explicit(&region->extensions_retired, memory_order_relaxed);

	return __builtin_expect(arenas != 0, 0) &&
	       (arenas >> arena_of_frame(region, frame_idx) & 1) != 0;
}

/* Returns the class that keeps blocks of this many frames; CACHE_CLASSES when there is none. */
static inline uint32_t cache_class(uint32_t frame_count)
{
	static const uint8_t of_order[] = {0, 1, 0, 0, 2, 0, 3, 0, 4};

	if ((frame_count & (frame_count - 1)) != 0 || (frame_count & CACHE_SIZES_MASK) == 0)
		return CACHE_CLASSES;
	return of_order[__builtin_ctz(frame_count)];
}

static inline uint32_t *cache_slots(struct frame_cache *cache, uint32_t class_idx)
{
	static const uint8_t first[CACHE_CLASSES] = {0, 64, 96, 112, 120};

	return &cache->slots[first[class_idx]];
}

static inline bool cache_try_lock(struct frame_cache *cache)
{
	return atomic_exchange_explicit(&cache->lock, 1, memory_order_acquire) == 0;
}

static inline void cache_unlock(struct frame_cache *cache)
{
	atomic_store_explicit(&cache->lock, 0, memory_order_release);
}

static inline struct frame_cache *cache_of(struct region *region)
{
	const struct cache_ref *ref = &cache_refs[region->slot];

	if (__builtin_expect(ref->serial == region->serial, 1))
		return ref->cache;
	return frames_cache_claim(region);
}

/* Except for the shared cache there is one writer, so a load and a store are enough. */
static inline void cache_count(struct frame_cache *cache, enum region_owner owner, int64_t frames)
{
	_Atomic int64_t *count = &cache->leased[owner];

	if (__builtin_expect(cache->shared, 0))
		atomic_fetch_add_explicit(count, frames, memory_order_relaxed);
	else
		atomic_store_explicit(count,
			atomic_load_explicit(count, memory_order_relaxed) + frames,
			memory_order_relaxed);
}

/* Marks a free, held block as leased and describes it. */
static inline struct region_span frame_leased(
	struct region *region, uint32_t frame_idx, uint32_t frame_count, enum region_owner owner)
{
	struct region_frame *frame = &region->frames[frame_idx];
	uint64_t word = atomic_load_explicit(&frame->word, memory_order_relaxed);
	struct region_span span = {
		.data = region->base + ((uint64_t)frame_idx << FRAME_SHIFT),
		.frame_idx = frame_idx,
		.frame_count = frame_count,
		.generation = word_generation(word),
	};

	CHECK((uint32_t)word == OWNER_FREE);
	atomic_store_explicit(
		&frame->word, frame_word(span.generation, 1, owner), memory_order_relaxed);
	FRAMES_UNPOISON(span.data, region_span_bytes(span));
	return span;
}

#endif
