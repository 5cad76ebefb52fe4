/* region/extend.c: extensions: arenas that come and go while the region is in use, and the users of
 * arenas that must know. */
#include "region/frames_priv.h"

#include <errno.h>

static const char *const state_names[ARENA_STATE_COUNT] = {
	[ARENA_PARKED] = "parked",
	[ARENA_ATTACHING] = "attaching",
	[ARENA_OPEN] = "open",
	[ARENA_RETIRED] = "retired",
	[ARENA_DETACHING] = "detaching",
};

const char *region_arena_state_name(enum region_arena_state state)
{
	return (uint32_t)state < ARENA_STATE_COUNT ? state_names[state] : "unknown";
}

uint32_t region_extension_count(const struct region *region)
{
	return region->arena_count - region->base_arena_count;
}

uint64_t region_extension_bytes(const struct region *region)
{
	return region_extension_count(region) ? 1ull << region->extension_shift : 0;
}

uint32_t region_extension_first(const struct region *region)
{
	return region->base_arena_count;
}

bool region_span_lasts(const struct region *region, struct region_span span)
{
	return (uint64_t)span.frame_idx << FRAME_SHIFT < region->base_bytes;
}

static struct arena *extension(struct region *region, uint32_t arena_idx)
{
	CHECK(arena_idx >= region->base_arena_count && arena_idx < region->arena_count);
	return &region->arenas[arena_idx];
}

enum region_arena_state region_extension_state(const struct region *region, uint32_t arena_idx)
{
	CHECK(arena_idx < region->arena_count);
	return region->arenas[arena_idx].state;
}

bool region_arena_registers(const struct region *region, uint32_t arena_idx)
{
	enum region_arena_state state = region_extension_state(region, arena_idx);

	return state == ARENA_ATTACHING || state == ARENA_OPEN || state == ARENA_RETIRED;
}

int region_extension_commit(
	struct region *region, uint32_t arena_idx, char *ret_why, size_t why_bytes)
{
	struct arena *arena = extension(region, arena_idx);
	uint64_t bit = 1ull << arena_idx;
	int error;

	CHECK(arena->state == ARENA_PARKED);
	error = arena_commit(region, arena_idx, ret_why, why_bytes);
	if (error == 0)
		error = arena_frames_list(region, arena_idx);
	if (error < 0) {
		if (arena->face.fd >= 0)
			arena_park(region, arena_idx);
		return error;
	}
	if (arena->face.huge)
		atomic_fetch_or(&region->header->huge_arenas, bit);
	atomic_fetch_or(&region->header->arenas_there, bit);
	arena->state = ARENA_ATTACHING;
	return 0;
}

void region_extension_open(struct region *region, uint32_t arena_idx)
{
	struct arena *arena = extension(region, arena_idx);

	CHECK(arena->state == ARENA_ATTACHING || arena->state == ARENA_RETIRED);
	atomic_fetch_and(&region->extensions_retired, ~(1ull << arena_idx));
	/* A thread that takes the lock later sees what devices wrote down about the arena. */
	pthread_mutex_lock(&arena->lock);
	arena->state = ARENA_OPEN;
	pthread_mutex_unlock(&arena->lock);
	atomic_fetch_or(&region->extensions_open, 1ull << arena_idx);
}

void region_extension_retire(struct region *region, uint32_t arena_idx)
{
	struct arena *arena = extension(region, arena_idx);

	CHECK(arena->state == ARENA_OPEN);
	atomic_fetch_and(&region->extensions_open, ~(1ull << arena_idx));
	/* From here on caches refuse its blocks, and raids find those that they have. */
	atomic_fetch_or(&region->extensions_retired, 1ull << arena_idx);
	pthread_mutex_lock(&arena->lock);
	arena->state = ARENA_RETIRED;
	pthread_mutex_unlock(&arena->lock);
	caches_raid(region);
}

uint32_t region_extension_leased(struct region *region, uint32_t arena_idx)
{
	struct arena *arena = extension(region, arena_idx);
	uint32_t leased;

	/* A raid passes over a cache that is in use at that moment. */
	if (arena->state == ARENA_RETIRED)
		caches_raid(region);
	pthread_mutex_lock(&arena->lock);
	leased = arena->end_frame - arena->first_frame - arena->frames_listed;
	pthread_mutex_unlock(&arena->lock);
	return leased;
}

void region_extension_detach(struct region *region, uint32_t arena_idx)
{
	struct arena *arena = extension(region, arena_idx);

	uint32_t leased = region_extension_leased(region, arena_idx);

	CHECK(arena->state == ARENA_RETIRED || arena->state == ARENA_ATTACHING);
	CHECK(leased == 0);
	arena->state = ARENA_DETACHING;
}

void region_extension_park(struct region *region, uint32_t arena_idx)
{
	struct arena *arena = extension(region, arena_idx);
	uint64_t bit = 1ull << arena_idx;

	CHECK(arena->state == ARENA_DETACHING);
	arena->state = ARENA_PARKED;
	atomic_fetch_and(&region->extensions_retired, ~bit);
	atomic_fetch_and(&region->header->arenas_there, ~bit);
	atomic_fetch_and(&region->header->huge_arenas, ~bit);
	arena_park(region, arena_idx);
}

/* ---- Users. ---- */

void region_watch_add(struct region_ring *ring, struct region_watch *watch)
{
	list_push_back(&ring->watches, &watch->link);
}

void region_watch_remove(struct region_watch *watch)
{
	if (watch->link.next)
		list_remove(&watch->link);
	watch->link.next = NULL;
}

void watches_end(struct region_ring *ring)
{
	struct list *link;

	while ((link = list_pop(&ring->watches)) != NULL) {
		struct region_watch *watch = CONTAINER_OF(link, struct region_watch, link);

		watch->link.next = NULL;
		watch->ended(watch);
	}
}

int region_watches_attach(struct region_ring *ring, uint32_t arena_idx)
{
	int error = 0;

	for (struct list *link = ring->watches.next; link != &ring->watches && error == 0;
		link = link->next) {
		struct region_watch *watch = CONTAINER_OF(link, struct region_watch, link);

		error = watch->attach(watch, arena_idx);
	}
	return error;
}

void region_watches_detach(struct region_ring *ring, uint32_t arena_idx)
{
	LIST_FOR_EACH (link, &ring->watches) {
		struct region_watch *watch = CONTAINER_OF(link, struct region_watch, link);

		watch->detach(watch, arena_idx);
	}
}
