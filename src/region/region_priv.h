/* region/region_priv.h: the private handle of a region: arenas, threads' caches, a core's view of
 * its rings. The part that another process reads is in shared_priv.h, the allocator's inline part
 * in frames_priv.h.
 *
 * Addresses: all arenas lie in one reservation of address space, ARENA_STRIDE apart, and all but
 * the last of the base are that big. Behind them lie the extensions, of one size, a power of two.
 * So in every arena, a page's number in the whole region is (address - base) >> FRAME_SHIFT, and
 * that number is the frame's index. The header's pages have frame indexes too; they are never
 * leased. The pages of an extension that is not there cannot be touched. */
#ifndef REGION_REGION_PRIV_H
#define REGION_REGION_PRIV_H

#include <pthread.h>

#include "region/shared_priv.h"

#define HUGE_PAGE_BYTES (2 * MIB)
#define BLOCK_BYTES_MAX ((uint64_t)FRAME_BYTES << ORDER_MAX)

#define FRAME_NONE UINT32_MAX

struct frame_link {
	uint32_t next;
	uint32_t prev;
};

/* One arena's buddy allocator; frame indexes are the region's. */
struct arena {
	struct region_arena face;
	uint32_t first_frame;
	uint32_t end_frame;
	pthread_mutex_t lock;
	uint32_t orders_listed; /* a bit for each order whose list is not empty */
	uint32_t lists[ORDER_MAX + 1];
	struct frame_link *links; /* by frame index less first_frame; an extension's, once it was
				     there */
	_Atomic uint32_t frames_listed; /* free, and in no thread's cache */
	_Atomic enum region_arena_state state;
};

/* Blocks of these sizes are kept by threads: 4 KiB, 8 KiB, 64 KiB, 256 KiB, 1 MiB. */
#define CACHE_CLASSES	 5u
#define CACHE_SIZES_MASK (1u | 2u | 16u | 64u | 256u)
#define CACHE_SLOTS	 (64u + 32u + 16u + 8u + 4u)

/* A thread's free blocks and its share of the usage counts. No thread waits for the lock: when a
 * raid holds it, the thread goes to the arenas; when the thread holds it, the raid skips this
 * cache. */
struct frame_cache {
	_Alignas(2 * LINE_BYTES) _Atomic uint32_t lock;
	uint32_t counts[CACHE_CLASSES];
	_Atomic int64_t leased[OWNER_COUNT]; /* frames; one thread may lease what another gives */
	uint32_t slots[CACHE_SLOTS];
	_Atomic bool claimed;
	bool shared; /* cache 0: for threads that found no cache of their own */
};
#define THREAD_CACHES_MAX 128u

struct region_target {
	_Atomic(const struct region_device_ops *) ops; /* NULL: free, unless it is kept */
	void *device;
	bool kept; /* not given out when it is removed */
};

/* A core's view of one ring in the shared part. */
struct ring_queue {
	struct ring_control *control;
	uint8_t *entries;
	uint32_t mask;
};

enum ring_pair_idx { PAIR_BASE, PAIR_RDMA, PAIR_COUNT };

struct ring_pair {
	struct ring_queue sq;
	struct ring_queue cq;
	uint32_t outstanding; /* signaled entries submitted and not yet reaped */
	uint32_t part;	      /* of the places left, that a target may hold; 0: no bound */
	struct {	      /* written by the owner, read by any thread */
		_Atomic uint64_t errors, timed, latency_ns;
		_Atomic uint64_t latency_buckets[REGION_LATENCY_BUCKETS];
	} counts;
	/* Failures of unsignaled entries that found the completion ring full. */
	struct region_cqe *spill;
	uint32_t spill_count;
	uint32_t spill_cap;
};

struct region_ring {
	struct region *region;
	struct ring_pair pairs[PAIR_COUNT];
	uint64_t now_ns; /* of this turn; 0: the ring is not given the time */
	uint32_t turn;
	bool turning;
	uint8_t reap_first;  /* the pair to reap first next time */
	struct list watches; /* struct region_watch.link */
	uint32_t touched_count;
	uint16_t touched[LIMIT_REGION_TARGETS_MAX];   /* targets whose doorbell this turn rings */
	uint32_t bell_turn[LIMIT_REGION_TARGETS_MAX]; /* the turn in which it was touched */
	uint32_t busy_turn[LIMIT_REGION_TARGETS_MAX]; /* the turn in which it refused */
	uint16_t held[LIMIT_REGION_TARGETS_MAX];      /* outstanding entries, receives excepted */
};
_Static_assert(2 * LIMIT_RING_ENTRIES_MAX <= UINT16_MAX, "a target's entries are counted");

struct region {
	/* Read by the data path. */
	uint8_t *base;
	uint64_t bytes;	     /* all arenas, extensions included */
	uint64_t base_bytes; /* without them */
	uint64_t extension_offset;
	uint32_t extension_shift; /* of an extension's bytes */
	uint32_t base_arena_count;
	_Atomic uint64_t extensions_open;    /* one bit for each arena … */
	_Atomic uint64_t extensions_retired; /* … whose blocks stay in no cache */
	struct region_frame *frames;
	struct frame_cache *caches; /* THREAD_CACHES_MAX */
	uint64_t serial; /* unique in the process: tells a reused slot from its earlier region */
	uint32_t slot;	 /* in the process's table of regions */
	uint32_t page_count;
	uint32_t data_page;
	uint32_t arena_count;
	uint32_t cache_caps[CACHE_CLASSES];
	_Atomic bool timed;
	struct region_target targets[LIMIT_REGION_TARGETS_MAX];

	struct region_header *header;
	struct mr_slot *mrs;
	struct target_slot *target_slots;
	struct arena *arenas;
	struct region_ring **rings;
	pthread_mutex_t tables_lock; /* memory regions and targets */
	uint32_t target_next;
	void *reservation;
	uint64_t reservation_bytes;
	/* For the memory of extensions, as the base's. */
	char name[REGION_NAME_BYTES];
	bool huge_pages, numa_bind, numa_only;
	uint32_t numa_node;
};

/* layout.c: where everything lies. */
struct layout_plan {
	struct layout_entry entries[LAYOUT_ENTRIES_MAX];
	uint32_t entry_count;
	uint64_t meta_bytes; /* header and tables, up to the data or the gap before it */
	uint64_t page_count; /* extensions included */
	uint64_t data_page;
	uint32_t arena_count;
	uint64_t base_bytes;
	uint32_t base_arena_count;
	uint64_t extension_offset;
	uint32_t extension_shift;
};
/* 0, or -EINVAL when it needs more than LIMIT_ARENAS_MAX arenas. opts are within their bounds. */
int layout_plan(const struct region_opts *opts, struct layout_plan *ret_plan);

/* arena.c: the memory itself. */
int arenas_open(struct region *region, const struct layout_plan *plan);
void arenas_close(struct region *region); /* also for a half-built region */
int arena_commit(struct region *region, uint32_t arena_idx, char *ret_why, size_t why_bytes);
void arena_park(struct region *region, uint32_t arena_idx);

static inline uint32_t arena_of_frame(const struct region *region, uint32_t frame_idx)
{
	uint64_t offset = (uint64_t)frame_idx << FRAME_SHIFT;

	if (__builtin_expect(offset < region->base_bytes, 1))
		return (uint32_t)(offset >> ARENA_SHIFT);
	return region->base_arena_count +
	       (uint32_t)((offset - region->extension_offset) >> region->extension_shift);
}

/* extend.c: at the region's close. */
void watches_end(struct region_ring *ring);

/* rings.c: setting up; the turn is in rings_dp.c. */
int rings_open(struct region *region, const struct layout_plan *plan);
void rings_close(struct region *region); /* also for a half-built region */
void ring_spill(struct ring_pair *pair, const struct region_cqe *cqe) __attribute__((cold));
uint32_t ring_spill_reap(struct ring_pair *pair, struct region_cqe *cqes, uint32_t max)
	__attribute__((cold));

#endif
