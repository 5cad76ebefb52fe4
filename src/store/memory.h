/* store/memory.h: the engine that keeps a store in memory until the process ends: every call of
 * store/api.h, without volume or index. Bodies lie in frames of the region, the rest in the heap.
 * Durable means until the process ends, or until an object makes room or gets too old. Any thread.
 *
 * A memory bucket of the local engine is such a store with one bucket
 * (docs/design/memory-buckets.md). */
#ifndef STORE_MEMORY_H
#define STORE_MEMORY_H

#include "store/api.h"

#include <stdatomic.h>

struct store_memory_opts {
	struct region *region;
	/* The most that it holds, everything that an object takes included: its frames, its record,
	 * its key. 0: no limit. */
	uint64_t bytes_max;
	uint64_t objects_max; /* 0: no limit */
	uint64_t ttl_ns;      /* of an object, from its commit; 0: it does not end by age */
	bool closed;	      /* every put is -ENOSPC */
	bool refuses;	      /* full: a put is -ENOSPC; else the objects used least recently end */
	/* Of the store that it belongs to; NULL: its own. */
	const _Atomic uint64_t *rights_epoch;
	_Atomic uint64_t *body_numbers; /* the next one */
};
/* -ENOMEM. */
int store_memory_open(const struct store_memory_opts *opts, struct store **ret_store);
/* Its memory is freed when nothing of it is open any more. Takes NULL. */
void store_memory_close(struct store *store);
/* Its only bucket was deleted: takes the bytes from *reserved as soon as no reader and no put keeps
 * frames. Before store_memory_close. */
void store_memory_leave(struct store *store, _Atomic uint64_t *reserved, uint64_t bytes);
/* Ends objects that are too old, a bounded number; false: there are more. Without this call their
 * memory is free at the next call of the store only; no call sees them in any case. */
bool store_memory_expire(struct store *store);
/* Its only bucket is to be deleted: it takes no object from now on (puts are -ENOBUFS), until
 * store_memory_stay, or store_memory_leave. Never waits. -ENOTEMPTY; -ENOENT: it ends already. */
int store_memory_end(struct store *store);
void store_memory_stay(struct store *store);

/* Since the store was opened, and now. */
struct store_memory_status {
	/* Objects that are too old may be among them, if many became so at once. */
	uint64_t bytes, bytes_max; /* everything that its objects take */
	uint64_t objects, body_bytes;
	uint64_t evicted, expired, refused;
};
void store_memory_status(struct store *store, struct store_memory_status *ret_status);

#endif
