/* client/reg_cache.h: registrations of the user's memory that outlive the request they were made
 * for, so that the next one with the same buffer costs no system call.
 *
 * The hazard: a registration pins the pages that an address had when it was made. Memory that is
 * unmapped and mapped again at the same address has other pages, and a device would go on using the
 * old ones: a GET would write to lost pages, a PUT would send old bytes. A library cannot notice
 * that without hooking the allocator or the kernel. So the cache is off by default, and a program
 * that turns it on must call neb_memory_forget() before it unmaps memory. */
#ifndef CLIENT_REG_CACHE_H
#define CLIENT_REG_CACHE_H

#include "rdma/rdma.h"

#define REG_CACHE_ENTRIES_MAX 1024u

struct reg_cache;
struct reg_entry;
struct reg_cache_stats {
	uint64_t hits, misses, evictions;
	uint64_t bytes; /* registered now */
	uint32_t entries;
};

/* Holds at most this many bytes. Used by one thread at a time. The pd must outlive it. */
int reg_cache_open(
	struct rp_pd *pd, uint64_t bytes_max, uint32_t access, struct reg_cache **ret_cache);
void reg_cache_close(struct reg_cache *cache); /* takes NULL; nothing may be in use */
/* A registration that covers [data, data + bytes), made now if there is none; in use until it is
 * put. -ENOSPC: the cache cannot keep it (too large, or it overlaps a registration in use, or
 * everything that it would have to evict is in use); or the device's error. */
int reg_cache_get(
	struct reg_cache *cache, const void *data, uint64_t bytes, struct reg_entry **ret_entry);
void reg_cache_put(struct reg_cache *cache, struct reg_entry *entry);
uint32_t reg_entry_rkey(const struct reg_entry *entry);
uint32_t reg_entry_lkey(const struct reg_entry *entry);
/* Closes every registration that touches [data, data + bytes). -EBUSY: one is in use; it is no
 * longer found and closes when it is put. */
int reg_cache_forget(struct reg_cache *cache, const void *data, uint64_t bytes);
void reg_cache_stats(const struct reg_cache *cache, struct reg_cache_stats *ret_stats);

#endif
