/* region/frames.c: the frame allocator beneath the threads' caches: a buddy allocator for each
 * arena, claiming and raiding caches, usage counts, and the report of leaks at close. The hot part
 * is frames_dp.c. */
#include "region/frames_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

DEFINE_COUNTER_FULL(frames_full, "frames");

#define LEAK_LINES_MAX 32u

static const char *const owner_names[OWNER_COUNT] = {
	[OWNER_FREE] = "free",
	[OWNER_APP] = "app",
	[OWNER_RDMA] = "rdma",
	[OWNER_XDP] = "xdp",
	[OWNER_DISK] = "disk",
	[OWNER_NET] = "net",
	[OWNER_CACHE] = "cache",
};
static const uint32_t class_frames[CACHE_CLASSES] = {1, 2, 16, 64, 256};
static const uint32_t class_caps[CACHE_CLASSES] = {64, 32, 16, 8, 4};

const char *region_owner_name(enum region_owner owner)
{
	return (uint32_t)owner < OWNER_COUNT ? owner_names[owner] : "unknown";
}

/* ---- The buddy allocator of an arena, under its lock. ---- */

/* Under the lock; read without it. */
static void listed_count(struct arena *arena, int64_t frames)
{
	uint32_t count = atomic_load_explicit(&arena->frames_listed, memory_order_relaxed);

	atomic_store_explicit(
		&arena->frames_listed, (uint32_t)(count + frames), memory_order_relaxed);
}

static void list_put(struct region *region, struct arena *arena, uint32_t frame_idx, uint32_t order)
{
	struct region_frame *frame = &region->frames[frame_idx];
	uint32_t first = arena->lists[order];

	frame->kind = FRAME_LISTED;
	frame->order = (uint8_t)order;
	frame->frame_count = 1u << order;
	listed_count(arena, 1ll << order);
	arena->links[frame_idx - arena->first_frame] =
		(struct frame_link){.next = first, .prev = FRAME_NONE};
	if (first != FRAME_NONE)
		arena->links[first - arena->first_frame].prev = frame_idx;
	arena->lists[order] = frame_idx;
	arena->orders_listed |= 1u << order;
}

static void list_take(struct region *region, struct arena *arena, uint32_t frame_idx)
{
	struct frame_link *link = &arena->links[frame_idx - arena->first_frame];
	uint32_t order = region->frames[frame_idx].order;

	if (link->next != FRAME_NONE)
		arena->links[link->next - arena->first_frame].prev = link->prev;
	if (link->prev != FRAME_NONE)
		arena->links[link->prev - arena->first_frame].next = link->next;
	else
		arena->lists[order] = link->next;
	if (arena->lists[order] == FRAME_NONE)
		arena->orders_listed &= ~(1u << order);
	listed_count(arena, -(1ll << order));
	region->frames[frame_idx].kind = FRAME_INTERIOR;
}

/* Frees one aligned block, merged with its free buddies. Frame indexes count from a boundary of the
 * largest block in every arena, so a buddy is one bit away. */
static void block_free(
	struct region *region, struct arena *arena, uint32_t frame_idx, uint32_t order)
{
	region->frames[frame_idx].kind = FRAME_INTERIOR;
	for (; order < ORDER_MAX; order++) {
		uint32_t buddy = frame_idx ^ 1u << order;
		const struct region_frame *frame = &region->frames[buddy];

		if (buddy < arena->first_frame || buddy + (1u << order) > arena->end_frame)
			break;
		if (frame->kind != FRAME_LISTED || frame->order != order)
			break;
		list_take(region, arena, buddy);
		frame_idx &= ~(1u << order);
	}
	list_put(region, arena, frame_idx, order);
}

/* Frees a run at any position, as the fewest aligned blocks. */
static void run_free(struct region *region, struct arena *arena, uint32_t from, uint32_t end)
{
	while (from < end) {
		uint32_t aligned = from ? (uint32_t)__builtin_ctz(from) : ORDER_MAX;
		uint32_t fits = 31u - (uint32_t)__builtin_clz(end - from);
		uint32_t order = MIN(MIN(aligned, fits), ORDER_MAX);

		block_free(region, arena, from, order);
		from += 1u << order;
	}
}

static uint32_t arena_alloc(struct region *region, struct arena *arena, uint32_t frame_count)
{
	uint32_t order = frame_count == 1 ? 0 : 32u - (uint32_t)__builtin_clz(frame_count - 1);
	uint32_t fitting = arena->orders_listed >> order << order;
	uint32_t frame_idx;
	uint32_t split;

	if (fitting == 0)
		return FRAME_NONE;
	split = (uint32_t)__builtin_ctz(fitting);
	frame_idx = arena->lists[split];
	list_take(region, arena, frame_idx);
	while (split > order) {
		split--;
		list_put(region, arena, frame_idx + (1u << split), split);
	}
	/* The unused tail of a block whose size is no power of two is freed at once. */
	run_free(region, arena, frame_idx + frame_count, frame_idx + (1u << order));
	region->frames[frame_idx].kind = FRAME_HELD;
	region->frames[frame_idx].frame_count = frame_count;
	return frame_idx;
}

/* ---- All arenas. ---- */

struct want {
	uint32_t frame_count; /* of a block */
	uint32_t max;	      /* blocks */
	bool lasting;	      /* only of the base */
};

static void block_give(struct region *region, uint32_t frame_idx)
{
	struct arena *arena = &region->arenas[arena_of_frame(region, frame_idx)];

	pthread_mutex_lock(&arena->lock);
	run_free(region, arena, frame_idx, frame_idx + region->frames[frame_idx].frame_count);
	pthread_mutex_unlock(&arena->lock);
}

static uint32_t arena_take(struct region *region, uint32_t arena_idx, uint32_t frame_count,
	uint32_t *ret_frames, uint32_t max)
{
	struct arena *arena = &region->arenas[arena_idx];
	uint32_t taken = 0;

	pthread_mutex_lock(&arena->lock);
	while (taken < max && arena->state == ARENA_OPEN) {
		ret_frames[taken] = arena_alloc(region, arena, frame_count);
		if (ret_frames[taken] == FRAME_NONE)
			break;
		taken++;
	}
	pthread_mutex_unlock(&arena->lock);
	return taken;
}

/* Takes up to max blocks of one size from the first arena that has any: extensions first, so that
 * the base has room for what lasts. */
static uint32_t blocks_take(struct region *region, const struct want *want, uint32_t *ret_frames)
{
	uint64_t open = want->lasting ? 0 : atomic_load(&region->extensions_open);
	uint32_t taken = 0;

	for (; open && taken == 0; open &= open - 1)
		taken = arena_take(region, (uint32_t)__builtin_ctzll(open), want->frame_count,
			ret_frames, want->max);
	for (uint32_t i = 0; i < region->base_arena_count && taken == 0; i++)
		taken = arena_take(region, i, want->frame_count, ret_frames, want->max);
	return taken;
}

/* Returns all but `keep` blocks of a class to the arenas, the coldest first. The cache is
 * locked. */
static void class_flush(
	struct region *region, struct frame_cache *cache, uint32_t class_idx, uint32_t keep)
{
	uint32_t *slots = cache_slots(cache, class_idx);
	uint32_t count = cache->counts[class_idx];
	uint32_t flushed = count > keep ? count - keep : 0;

	for (uint32_t i = 0; i < flushed; i++)
		block_give(region, slots[i]);
	memmove(slots, slots + flushed, (count - flushed) * sizeof(*slots));
	cache->counts[class_idx] = count - flushed;
}

static void cache_flush(struct region *region, struct frame_cache *cache)
{
	for (uint32_t i = 0; i < CACHE_CLASSES; i++)
		class_flush(region, cache, i, 0);
}

/* Returns the blocks of all caches to the arenas, so that no lease is refused while free blocks
 * exist. Skips a cache that its thread is using at this moment. */
void caches_raid(struct region *region)
{
	for (uint32_t i = 0; i < THREAD_CACHES_MAX; i++) {
		struct frame_cache *cache = &region->caches[i];

		if (!cache_try_lock(cache))
			continue;
		cache_flush(region, cache);
		cache_unlock(cache);
	}
}

/* Takes a block. For a cached size it also takes half a cacheful more. */
static uint32_t block_lease(struct region *region, struct frame_cache *cache, uint32_t frame_count)
{
	uint32_t class_idx = cache_class(frame_count);
	struct want want = {.frame_count = frame_count, .max = 1};
	uint32_t taken[CACHE_SLOTS];
	uint32_t count;

	if (class_idx < CACHE_CLASSES)
		want.max += region->cache_caps[class_idx] / 2;
	count = blocks_take(region, &want, taken);
	if (count == 0)
		return FRAME_NONE;
	if (count > 1 && cache_try_lock(cache)) {
		/* Other threads may have filled the shared cache meanwhile. */
		while (count > 1 && cache->counts[class_idx] < region->cache_caps[class_idx] &&
			!frame_retired(region, taken[count - 1]))
			cache_slots(cache, class_idx)[cache->counts[class_idx]++] = taken[--count];
		cache_unlock(cache);
	}
	while (count > 1)
		block_give(region, taken[--count]);
	return taken[0];
}

/* After a raid, one block: they are scarce. */
static uint32_t block_lease_raiding(struct region *region, uint32_t frame_count, bool lasting)
{
	const struct want want = {.frame_count = frame_count, .max = 1, .lasting = lasting};
	uint32_t frame_idx;

	caches_raid(region);
	if (blocks_take(region, &want, &frame_idx))
		return frame_idx;
	atomic_fetch_add_explicit(&region->header->lease_failures, 1, memory_order_relaxed);
	counter_add(&frames_full, 1);
	return FRAME_NONE;
}

static int lease_finish(struct region *region, uint32_t frame_idx, uint32_t frame_count,
	enum region_owner owner, struct region_span *ret_span)
{
	if (frame_idx == FRAME_NONE)
		return -ENOBUFS;
	cache_count(cache_of(region), owner, frame_count);
	*ret_span = frame_leased(region, frame_idx, frame_count, owner);
	return 0;
}

int frames_lease_slow(struct region *region, uint32_t frame_count, enum region_owner owner,
	struct region_span *ret_span)
{
	uint32_t frame_idx = block_lease(region, cache_of(region), frame_count);

	if (frame_idx == FRAME_NONE)
		frame_idx = block_lease_raiding(region, frame_count, false);
	return lease_finish(region, frame_idx, frame_count, owner, ret_span);
}

int region_lease_lasting(struct region *region, uint32_t frame_count, enum region_owner owner,
	struct region_span *ret_span)
{
	const struct want want = {.frame_count = frame_count, .max = 1, .lasting = true};
	uint32_t frame_idx;

	if (frame_count == 0 || frame_count > LIMIT_SPAN_FRAMES_MAX)
		return -EINVAL;
	CHECK(owner > OWNER_FREE && owner < OWNER_COUNT);
	if (region->base_arena_count == region->arena_count)
		return region_lease(region, frame_count, owner, ret_span);
	if (!blocks_take(region, &want, &frame_idx))
		frame_idx = block_lease_raiding(region, frame_count, true);
	return lease_finish(region, frame_idx, frame_count, owner, ret_span);
}

/* Returns a free, held block for which its cache has no room. */
void frames_free_slow(struct region *region, struct frame_cache *cache, uint32_t frame_idx)
{
	uint32_t class_idx = cache_class(region->frames[frame_idx].frame_count);

	block_give(region, frame_idx);
	if (class_idx < CACHE_CLASSES && cache_try_lock(cache)) {
		class_flush(region, cache, class_idx, region->cache_caps[class_idx] / 2);
		cache_unlock(cache);
	}
}

/* ---- Threads. A cache is claimed at a thread's first lease or give, and given up at its end.
 * ---- */

static pthread_mutex_t regions_lock = PTHREAD_MUTEX_INITIALIZER;
static struct region *regions_open[REGIONS_MAX];
static uint64_t serial_last;
static pthread_key_t thread_key;
static pthread_once_t thread_key_once = PTHREAD_ONCE_INIT;
_Thread_local struct cache_ref cache_refs[REGIONS_MAX];

static void thread_ends(void *arg)
{
	struct cache_ref *refs = arg;

	pthread_mutex_lock(&regions_lock);
	for (uint32_t i = 0; i < REGIONS_MAX; i++) {
		struct region *region = regions_open[i];
		struct frame_cache *cache = refs[i].cache;

		if (!region || region->serial != refs[i].serial || cache->shared)
			continue;
		/* A raid may hold it for a moment; then it flushes for us. */
		if (cache_try_lock(cache)) {
			cache_flush(region, cache);
			cache_unlock(cache);
		}
		refs[i].serial = 0;
		atomic_store_explicit(&cache->claimed, false, memory_order_release);
	}
	pthread_mutex_unlock(&regions_lock);
}

static void thread_key_create(void)
{
	int err = pthread_key_create(&thread_key, thread_ends);

	CHECK(err == 0);
}

struct frame_cache *frames_cache_claim(struct region *region)
{
	struct cache_ref *ref = &cache_refs[region->slot];

	/* Without memory for the key, the thread's end could not be noticed: the thread uses the
	 * shared cache 0. */
	ref->cache = &region->caches[0];
	if (pthread_setspecific(thread_key, cache_refs) == 0) {
		for (uint32_t i = 1; i < THREAD_CACHES_MAX; i++) {
			bool claimed = false;

			if (!atomic_compare_exchange_strong_explicit(&region->caches[i].claimed,
				    &claimed, true, memory_order_acquire, memory_order_relaxed))
				continue;
			ref->cache = &region->caches[i];
			break;
		}
	}
	ref->serial = region->serial;
	return ref->cache;
}

static int region_register(struct region *region)
{
	int error = -EMFILE;

	pthread_once(&thread_key_once, thread_key_create);
	pthread_mutex_lock(&regions_lock);
	for (uint32_t i = 0; i < REGIONS_MAX && error < 0; i++) {
		if (regions_open[i])
			continue;
		regions_open[i] = region;
		region->slot = i;
		region->serial = ++serial_last;
		error = 0;
	}
	pthread_mutex_unlock(&regions_lock);
	return error;
}

/* ---- Opening, closing, looking. ---- */

/* The frames of an extension's allocator are listed when it opens. */
static void arena_frames_init(struct region *region, uint32_t arena_idx)
{
	struct arena *arena = &region->arenas[arena_idx];
	uint32_t from = (uint32_t)arena_page(region->header, arena_idx);

	pthread_mutex_init(&arena->lock, NULL);
	arena->first_frame = MAX(from, region->data_page);
	arena->end_frame = from + (uint32_t)(arena->face.bytes >> FRAME_SHIFT);
	for (uint32_t order = 0; order <= ORDER_MAX; order++)
		arena->lists[order] = FRAME_NONE;
}

int arena_frames_list(struct region *region, uint32_t arena_idx)
{
	struct arena *arena = &region->arenas[arena_idx];

	if (!arena->links)
		arena->links = calloc(arena->end_frame - arena->first_frame, sizeof(*arena->links));
	if (!arena->links)
		return -ENOMEM;
	pthread_mutex_lock(&arena->lock);
	if (!arena->orders_listed)
		run_free(region, arena, arena->first_frame, arena->end_frame);
	pthread_mutex_unlock(&arena->lock);
	return 0;
}

int frames_open(struct region *region)
{
	uint32_t data_frames = (uint32_t)(region->base_bytes >> FRAME_SHIFT) - region->data_page;
	int error = 0;

	region->caches = aligned_alloc(
		_Alignof(struct frame_cache), THREAD_CACHES_MAX * sizeof(struct frame_cache));
	if (!region->caches)
		return -ENOMEM;
	memset(region->caches, 0, THREAD_CACHES_MAX * sizeof(struct frame_cache));
	region->caches[0].shared = true;
	for (uint32_t i = 0; i < CACHE_CLASSES; i++)
		region->cache_caps[i] = MIN(class_caps[i], data_frames / 64 / class_frames[i]);
	for (uint32_t i = 0; i < region->arena_count; i++)
		arena_frames_init(region, i);
	for (uint32_t i = 0; i < region->base_arena_count && error == 0; i++) {
		region->arenas[i].state = ARENA_OPEN;
		error = arena_frames_list(region, i);
	}
	if (error < 0)
		return error;
	FRAMES_POISON(region->base + ((uint64_t)region->data_page << FRAME_SHIFT),
		(uint64_t)data_frames << FRAME_SHIFT);
	return region_register(region);
}

static void arena_leaks_report(
	const struct region *region, const struct arena *arena, uint32_t *spans, uint64_t *frames)
{
	for (uint32_t i = arena->first_frame; i < arena->end_frame; i++) {
		const struct region_frame *frame = &region->frames[i];
		uint64_t word = atomic_load_explicit(&frame->word, memory_order_relaxed);

		if (word_owner(word) == OWNER_FREE)
			continue;
		*frames += frame->frame_count;
		if (++*spans <= LEAK_LINES_MAX)
			log_error("region",
				"leak: frame %u, %u frames, owner %s, references %u, "
				"generation %u",
				i, frame->frame_count, region_owner_name(word_owner(word)),
				word_refs(word), word_generation(word));
	}
}

static void leaks_report(const struct region *region)
{
	uint64_t frames = 0;
	uint32_t spans = 0;

	for (uint32_t i = 0; i < region->arena_count; i++)
		if (region->arenas[i].state != ARENA_PARKED)
			arena_leaks_report(region, &region->arenas[i], &spans, &frames);
	if (spans > 0)
		log_error("region", "%u spans of %" PRIu64 " frames in all were still leased",
			spans, frames);
}

void frames_close(struct region *region)
{
	pthread_mutex_lock(&regions_lock);
	if (region->serial > 0) {
		leaks_report(region);
		regions_open[region->slot] = NULL;
	}
	pthread_mutex_unlock(&regions_lock);
	for (uint32_t i = 0; region->arenas && i < region->arena_count; i++) {
		free(region->arenas[i].links);
		pthread_mutex_destroy(&region->arenas[i].lock);
	}
	free(region->caches);
}

/* An extension's frames that belong to the region at this moment. */
static uint32_t arena_frames_counted(const struct arena *arena)
{
	uint32_t all = arena->end_frame - arena->first_frame;
	enum region_arena_state state = arena->state;

	switch (state) {
	case ARENA_OPEN:
		return all;
	case ARENA_RETIRED:
		return all - atomic_load_explicit(&arena->frames_listed, memory_order_relaxed);
	default:
		return 0;
	}
}

void region_usage(const struct region *region, struct region_usage *ret_usage)
{
	struct region_usage usage = {.frames_total = 0};
	int64_t leased_all = 0;

	for (uint32_t i = 0; i < region->arena_count; i++)
		usage.frames_total += arena_frames_counted(&region->arenas[i]);

	for (uint32_t owner = OWNER_FREE + 1; owner < OWNER_COUNT; owner++) {
		int64_t leased = 0;

		for (uint32_t i = 0; i < THREAD_CACHES_MAX; i++)
			leased += atomic_load_explicit(
				&region->caches[i].leased[owner], memory_order_relaxed);
		leased = MAX(leased, 0); /* a give may be counted before its lease */
		usage.frames_by_owner[owner] = (uint64_t)leased;
		leased_all += leased;
	}
	if (usage.frames_total > (uint64_t)leased_all)
		usage.frames_by_owner[OWNER_FREE] = usage.frames_total - (uint64_t)leased_all;
	usage.lease_failures =
		atomic_load_explicit(&region->header->lease_failures, memory_order_relaxed);
	*ret_usage = usage;
}

void frames_refused(const struct region *region, struct region_span span, const char *call,
	enum region_owner expected)
{
	char fact[256];

	if (span.frame_idx < region->data_page || span.frame_idx >= region->page_count) {
		snprintf(fact, sizeof(fact),
			"%s: frame %u is not one of the region's: expected owner %s, data %p, "
			"%u frames, generation %u",
			call, span.frame_idx, region_owner_name(expected), (void *)span.data,
			span.frame_count, span.generation);
	} else {
		const struct region_frame *frame = &region->frames[span.frame_idx];
		uint64_t word = atomic_load_explicit(&frame->word, memory_order_relaxed);

		snprintf(fact, sizeof(fact),
			"%s: frame %u: expected owner %s, generation %u, %u frames; found owner "
			"%s, generation %u, %u frames, %u references",
			call, span.frame_idx, region_owner_name(expected), span.generation,
			span.frame_count, region_owner_name(word_owner(word)),
			word_generation(word), frame->frame_count, word_refs(word));
	}
	CHECK_FAIL(fact);
}
