/* server/cache_share.h: the rules by which the cache's part of the region follows the load. */
#ifndef SERVER_CACHE_SHARE_H
#define SERVER_CACHE_SHARE_H

#include "base/base.h"

/* The cache has its preset and up to this many eighths of it more. */
#define CACHE_SHARE_EIGHTHS_MAX 4u

struct cache_share {
	uint32_t eighths;
	uint64_t shrunk_ns, grow_wait_ns; /* 0: it never shrank */
};

/* Since the last look: whether the cache is full, and whether a lease of frames found none. Returns
 * whether eighths has changed. */
bool cache_share_judge(struct cache_share *share, bool full, bool refused, uint64_t now_ns);

#endif
