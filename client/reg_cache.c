/* client/reg_cache.c: a cache of registrations: intervals that do not overlap, in order of address,
 * found by binary search; the least recently used one is evicted first. */
#include "reg_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/board.h"

/* Phases: idle (in the list of entries that may be evicted) or in use (users > 0); forgotten: no
 * longer found, and closed by its last user. */
struct reg_entry {
	struct list idle; /* least recently used first */
	uint64_t from, to;
	uint32_t users;
	bool forgotten;
	struct rp_mr *mr;
};
struct reg_cache {
	struct rp_pd *pd;
	uint32_t access;
	uint64_t bytes_max;
	struct list idle;
	struct reg_cache_stats stats;
	_Atomic uint64_t *hits_shown, *misses_shown, *evictions_shown; /* of all clients */
	_Atomic uint64_t *time_shown;
	struct reg_entry *entries[REG_CACHE_ENTRIES_MAX]; /* by address */
};

int reg_cache_open(
	struct rp_pd *pd, uint64_t bytes_max, uint32_t access, struct reg_cache **ret_cache)
{
	struct reg_cache *cache = calloc(1, sizeof(*cache));

	if (!cache)
		return -ENOMEM;
	cache->pd = pd;
	cache->access = access;
	cache->bytes_max = bytes_max;
	list_init(&cache->idle);
	cache->hits_shown = board_place("nebulaio_client_registration_hits_total");
	cache->misses_shown = board_place("nebulaio_client_registration_misses_total");
	cache->evictions_shown = board_place("nebulaio_client_registration_evictions_total");
	cache->time_shown = board_place("nebulaio_client_registration_nanoseconds_total");
	*ret_cache = cache;
	return 0;
}

/* The index of the first entry that ends past the address. */
static uint32_t find(const struct reg_cache *cache, uint64_t address)
{
	uint32_t low = 0, high = cache->stats.entries;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (cache->entries[middle]->to > address)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static void entry_free(struct reg_entry *entry)
{
	list_remove(&entry->idle);
	rp_mr_close(entry->mr);
	free(entry);
}

/* Removes the entry from the table; it is freed now or by its last user. */
static void entry_remove(struct reg_cache *cache, uint32_t at)
{
	struct reg_entry *entry = cache->entries[at];

	cache->stats.entries--;
	cache->stats.bytes -= entry->to - entry->from;
	memmove(&cache->entries[at], &cache->entries[at + 1],
		(cache->stats.entries - at) * sizeof(entry));
	entry->forgotten = true;
	if (!entry->users)
		entry_free(entry);
}

static bool evict_one(struct reg_cache *cache)
{
	struct reg_entry *entry;

	if (list_empty(&cache->idle))
		return false;
	entry = CONTAINER_OF(cache->idle.next, struct reg_entry, idle);
	cache->stats.evictions++;
	board_add(cache->evictions_shown, 1);
	entry_remove(cache, find(cache, entry->from));
	return true;
}

/* Removes the intervals that overlap the new one, if nobody uses them: one interval covers an
 * address. */
static int overlaps_remove(struct reg_cache *cache, uint64_t from, uint64_t to)
{
	uint32_t first = find(cache, from), at = first;

	for (; at < cache->stats.entries && cache->entries[at]->from < to; at++) {
		if (cache->entries[at]->users)
			return -ENOSPC;
	}
	while (at-- > first) {
		cache->stats.evictions++;
		board_add(cache->evictions_shown, 1);
		entry_remove(cache, at);
	}
	return 0;
}

static int entry_add(
	struct reg_cache *cache, uint64_t from, uint64_t to, struct reg_entry **ret_entry)
{
	struct rp_mr_opts opts = {.addr = (void *)(uintptr_t)from,
		.bytes = to - from,
		.access = cache->access,
		.fd = -1};
	struct reg_entry *entry = calloc(1, sizeof(*entry));
	uint64_t begin_ns = clock_now_ns();
	uint32_t at;
	int err;

	if (!entry)
		return -ENOMEM;
	err = rp_mr_open(cache->pd, &opts, &entry->mr);
	board_add(cache->time_shown, clock_now_ns() - begin_ns);
	if (err) {
		free(entry);
		return err;
	}
	list_init(&entry->idle);
	entry->from = from;
	entry->to = to;
	at = find(cache, from);
	memmove(&cache->entries[at + 1], &cache->entries[at],
		(cache->stats.entries - at) * sizeof(entry));
	cache->entries[at] = entry;
	cache->stats.entries++;
	cache->stats.bytes += to - from;
	*ret_entry = entry;
	return 0;
}

static struct reg_entry *take(struct reg_entry *entry)
{
	list_remove(&entry->idle);
	entry->users++;
	return entry;
}

int reg_cache_get(
	struct reg_cache *cache, const void *data, uint64_t bytes, struct reg_entry **ret_entry)
{
	/* Exact to the byte: two buffers that share a page must not evict each other. */
	uint64_t from = (uintptr_t)data, to = from + bytes;
	uint32_t at = find(cache, from);
	struct reg_entry *entry;
	int err;

	if (at < cache->stats.entries && cache->entries[at]->from <= from &&
		to <= cache->entries[at]->to) {
		cache->stats.hits++;
		board_add(cache->hits_shown, 1);
		*ret_entry = take(cache->entries[at]);
		return 0;
	}
	cache->stats.misses++;
	board_add(cache->misses_shown, 1);
	if (to - from > cache->bytes_max)
		return -ENOSPC;
	err = overlaps_remove(cache, from, to);
	while (!err && (cache->stats.bytes + (to - from) > cache->bytes_max ||
			       cache->stats.entries == REG_CACHE_ENTRIES_MAX)) {
		if (!evict_one(cache))
			err = -ENOSPC;
	}
	if (!err)
		err = entry_add(cache, from, to, &entry);
	if (err)
		return err;
	*ret_entry = take(entry);
	return 0;
}

void reg_cache_put(struct reg_cache *cache, struct reg_entry *entry)
{
	CHECK(entry->users > 0);
	if (--entry->users)
		return;
	if (entry->forgotten)
		entry_free(entry);
	else
		list_push_back(&cache->idle, &entry->idle);
}

uint32_t reg_entry_lkey(const struct reg_entry *entry)
{
	return rp_mr_lkey(entry->mr);
}

uint32_t reg_entry_rkey(const struct reg_entry *entry)
{
	return rp_mr_rkey(entry->mr);
}

int reg_cache_forget(struct reg_cache *cache, const void *data, uint64_t bytes)
{
	uint64_t begin = (uintptr_t)data, end = begin + bytes;
	uint32_t at = find(cache, begin);
	int ret = 0;

	while (at < cache->stats.entries && cache->entries[at]->from < end) {
		if (cache->entries[at]->users)
			ret = -EBUSY;
		entry_remove(cache, at);
	}
	return ret;
}

void reg_cache_stats(const struct reg_cache *cache, struct reg_cache_stats *ret_stats)
{
	*ret_stats = cache->stats;
}

void reg_cache_close(struct reg_cache *cache)
{
	if (!cache)
		return;
	while (cache->stats.entries) {
		CHECK(!cache->entries[0]->users);
		entry_remove(cache, 0);
	}
	free(cache);
}
