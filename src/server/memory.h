/* server/memory.h: the region's extensions: lets the region grow and shrink while the server runs,
 * when an operator asks or the host's memory suggests it (docs/guide/region.md). */
#ifndef SERVER_MEMORY_H
#define SERVER_MEMORY_H

#include "flow/flow.h"
#include "s3/s3.h"
#include "server/cache_share.h"
#include "server/config.h"
#include "server/pressure.h"
#include "store/local.h"

struct memory_opts {
	const struct config *config;
	struct region *region;
	struct store *store;
	const _Atomic bool *draining;
	const char *root; /* of /proc and /sys, for pressure_read */
};
struct memory {
	struct memory_opts opts;
	struct flow_core *flows[LIMIT_CORES_MAX];
	uint32_t core_count;
	bool changing; /* a fiber is growing or shrinking the region */
	bool stopping, refusal_told;
	struct fiber *ticker; /* NULL: it ended */
	struct fiber *stopper;
	struct pressure pressure;
	struct cache_share share;
	uint64_t failures_seen, failures_judged; /* region_usage.lease_failures */
};

/* All calls are made on the first core's thread, or before it runs. The cores are added in their
 * order. */
void memory_init(struct memory *memory, const struct memory_opts *opts);
void memory_core_add(struct memory *memory, struct flow_core *flow);
/* Starts the fiber that finishes what a shrink left, adapts the region, and lets the cache's part
 * of it follow the load. Nothing when the region and that part keep their size. The errors of
 * fiber_spawn. */
int memory_start(struct memory *memory);
/* Fiber call: ends that fiber. After it, the region keeps its size. */
void memory_stop(struct memory *memory);

/* Fiber calls: by this many bytes, in whole extensions, at least one. -EBUSY: another change is in
 * progress; -ENOSPC: there is no further extension; -ENOBUFS: the extension is retired, but frames
 * of it are still leased, and the memory goes when they are given back; else why an extension could
 * not be taken. Then ret_why is a sentence. */
#define MEMORY_WHY_BYTES 256u
int memory_grow(struct memory *memory, uint64_t bytes, char ret_why[MEMORY_WHY_BYTES]);
int memory_shrink(struct memory *memory, uint64_t bytes, char ret_why[MEMORY_WHY_BYTES]);

/* The most that the cache has now. */
uint64_t memory_cache_bytes(const struct memory *memory);
/* GET region, POST region/grow[/BYTES], POST region/shrink[/BYTES]: as an s3_admin_tell_fn. */
int memory_tell(struct memory *memory, enum s3_method method, struct slice path, struct buf *out);

#endif
