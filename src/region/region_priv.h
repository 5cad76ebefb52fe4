/* region/region_priv.h: what the files of this folder share: the layout of the shared part, which
 * another process reads (docs/design/region.md), and the private handle beside it.
 *
 * Addresses: all arenas lie in one reservation of address space, ARENA_STRIDE apart, and all but
 * the last are that big. So a page's number over the whole region is (address - base) >>
 * FRAME_SHIFT, whatever its arena, and that number is the frame's index; the pages of the header
 * have frame indexes too, which no lease gives out. */
#ifndef REGION_REGION_PRIV_H
#define REGION_REGION_PRIV_H

#include <pthread.h>

#include "region/region.h"

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

#define ARENA_STRIDE	LIMIT_ARENA_BYTES_MAX
#define ARENA_SHIFT	30u
#define HUGE_PAGE_BYTES (2 * MIB)
#define ORDER_MAX	10u /* buddy blocks of 4 KiB << 0 … 10 */
#define BLOCK_BYTES_MAX ((uint64_t)FRAME_BYTES << ORDER_MAX)
#define LINE_BYTES	64

_Static_assert(1ull << ARENA_SHIFT == ARENA_STRIDE, "the shift matches the stride");
_Static_assert(1u << ORDER_MAX == LIMIT_SPAN_FRAMES_MAX, "the largest block is the largest span");

/* ---- The shared part. Fixed layout: change it, and REGION_VERSION goes up. ---- */

#define REGION_MAGIC	  "NEBREGN" /* 8 bytes with its end */
#define REGION_VERSION	  1u
#define REGION_NAME_BYTES 32u
#define REGION_FD_PREFIX  "nebulaio-region:" /* memfd name: prefix, region's name, ".", arena */

enum layout_kind {
	LAYOUT_HEADER,
	LAYOUT_BASE_SQ, /* count: cores; entry_bytes: one core's control and entries */
	LAYOUT_BASE_CQ,
	LAYOUT_RDMA_SQ,
	LAYOUT_RDMA_CQ,
	LAYOUT_MRS,
	LAYOUT_TARGETS,
	LAYOUT_FRAMES, /* one entry a page of the region, header pages included */
	LAYOUT_DATA,   /* one line an arena */
	LAYOUT_KIND_COUNT
};
#define LAYOUT_ENTRIES_MAX (LAYOUT_DATA + LIMIT_ARENAS_MAX)

struct layout_entry {
	uint32_t kind;
	uint32_t arena;
	uint64_t offset; /* from the arena's start */
	uint64_t bytes;
	uint32_t count;
	uint32_t entry_bytes;
};

struct region_header {
	char magic[8];
	uint32_t version;
	uint32_t header_bytes;
	uint32_t pid; /* as its own namespace counts */
	uint32_t arena_count;
	uint32_t core_count;
	uint32_t ring_entries;
	uint64_t opened_real_ns;
	uint64_t base_addr; /* in the owning process: for reading entries' addresses, no pointer */
	uint64_t page_count;
	uint64_t data_page;   /* the first page of data */
	uint64_t huge_arenas; /* a bit an arena */
	char name[REGION_NAME_BYTES];
	_Atomic uint64_t lease_failures;
	uint32_t layout_count;
	uint32_t reserved;
	struct layout_entry layout[LAYOUT_ENTRIES_MAX];
};
_Static_assert(sizeof(struct region_header) <= FRAME_BYTES, "the header is one page");

/* One ring: its control lines, then its entries. */
struct ring_control {
	_Alignas(LINE_BYTES) _Atomic uint32_t head;  /* consumer's, free-running */
	_Alignas(LINE_BYTES) _Atomic uint32_t tail;  /* producer's, free-running */
	_Alignas(LINE_BYTES) _Atomic uint64_t total; /* entries ever queued */
	uint32_t entry_count;
	uint32_t entry_bytes;
};
_Static_assert(sizeof(struct ring_control) == 192, "three cache lines");

struct mr_slot {
	_Atomic uint32_t used;
	uint32_t reserved;
	struct region_mr mr;
	uint64_t reserved1;
};
_Static_assert(sizeof(struct mr_slot) == 64, "one cache line");

struct target_slot {
	_Atomic uint32_t used;
	char device[12];
	char label[48];
};
_Static_assert(sizeof(struct target_slot) == 64, "one cache line");

/* What a page is to the allocator. The word of a block's first page says the rest. */
enum frame_kind {
	FRAME_INTERIOR, /* inside a block, not its first page */
	FRAME_LISTED,	/* first page of a free block on an arena's list */
	FRAME_HELD,	/* first page of a lease, or of a free block in a thread's cache */
	FRAME_KIND_COUNT
};

/* word: generation << 32 | references << 8 | owner. One word, so that one compare-and-swap checks
 * and changes all three. The generation goes up with every give. */
struct region_frame {
	_Atomic uint64_t word;
	uint32_t frame_count; /* of the block */
	uint8_t order;	      /* FRAME_LISTED */
	uint8_t kind;
	uint16_t reserved;
};
_Static_assert(sizeof(struct region_frame) == 16, "sixteen bytes a page: 0.4 %");

static inline uint64_t frame_word(uint32_t generation, uint32_t refs, enum region_owner owner)
{
	return (uint64_t)generation << 32 | refs << 8 | (uint32_t)owner;
}

static inline uint32_t word_generation(uint64_t word)
{
	return (uint32_t)(word >> 32);
}

static inline uint32_t word_refs(uint64_t word)
{
	return (uint32_t)word >> 8;
}

static inline uint32_t word_owner(uint64_t word)
{
	return (uint32_t)word & 0xff;
}

/* ---- The private part. ---- */

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
	struct frame_link *links; /* by frame index less first_frame */
};

/* Blocks of these sizes are kept by threads: 4 KiB, 8 KiB, 64 KiB, 256 KiB, 1 MiB. */
#define CACHE_CLASSES	 5u
#define CACHE_SIZES_MASK (1u | 2u | 16u | 64u | 256u)
#define CACHE_SLOTS	 (64u + 32u + 16u + 8u + 4u)

/* A thread's free blocks and its share of the usage counts. The lock is only ever tried: its
 * thread goes to the arenas when a raid holds it, and a raid skips a cache whose thread is in. */
struct frame_cache {
	_Alignas(2 * LINE_BYTES) _Atomic uint32_t lock;
	uint32_t counts[CACHE_CLASSES];
	_Atomic int64_t leased[OWNER_COUNT]; /* frames; one thread may lease what another gives */
	uint32_t slots[CACHE_SLOTS];
	_Atomic bool claimed;
	bool shared; /* cache 0: for threads beyond the others */
};
#define THREAD_CACHES_MAX 128u

struct region_target {
	_Atomic(const struct region_device_ops *) ops; /* NULL: free */
	void *device;
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
	uint64_t now_ns; /* of this turn; 0: nobody says */
	uint32_t turn;
	bool turning;
	uint8_t reap_first; /* the pair to reap first next time */
	uint32_t touched_count;
	uint16_t touched[LIMIT_REGION_TARGETS_MAX];   /* to ring the bell of */
	uint32_t bell_turn[LIMIT_REGION_TARGETS_MAX]; /* the turn in which it was touched */
	uint32_t busy_turn[LIMIT_REGION_TARGETS_MAX]; /* the turn in which it refused */
};

struct region {
	/* Read by the data path. */
	uint8_t *base;
	uint64_t bytes; /* all arenas */
	struct region_frame *frames;
	struct frame_cache *caches; /* THREAD_CACHES_MAX */
	uint64_t serial;	    /* unique in the process: tells a reused slot */
	uint32_t slot;		    /* in the process's table of regions */
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
};

/* The calling thread's caches, one a region of the process. */
struct cache_ref {
	uint64_t serial;
	struct frame_cache *cache;
};
extern _Thread_local struct cache_ref cache_refs[REGIONS_MAX];

/* layout.c: where everything lies. */
struct layout_plan {
	struct layout_entry entries[LAYOUT_ENTRIES_MAX];
	uint32_t entry_count;
	uint64_t meta_bytes; /* header and tables, up to where data begins or a gap */
	uint64_t page_count;
	uint64_t data_page;
	uint32_t arena_count;
};
/* 0, or -EINVAL when it needs more than LIMIT_ARENAS_MAX arenas. opts are within their bounds. */
int layout_plan(const struct region_opts *opts, struct layout_plan *ret_plan);
const char *layout_kind_name(uint32_t kind);

/* arena.c: the memory itself. */
int arenas_open(
	struct region *region, const struct region_opts *opts, const struct layout_plan *plan);
void arenas_close(struct region *region); /* half-built too */

/* frames.c: the allocator beneath the threads' caches. */
int frames_open(struct region *region);
void frames_close(struct region *region); /* half-built too */
struct frame_cache *frames_cache_claim(struct region *region);
int frames_lease_slow(struct region *region, uint32_t frame_count, enum region_owner owner,
	struct region_span *ret_span);
void frames_free_slow(struct region *region, struct frame_cache *cache, uint32_t frame_idx);
void frames_refused(const struct region *region, struct region_span span, const char *call,
	enum region_owner expected) __attribute__((noreturn, cold));

/* The class that keeps blocks of so many frames, CACHE_CLASSES for none. */
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

/* One writer but for the shared cache, so a load and a store do. */
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

/* rings.c: setting up; the turn is in rings_dp.c. */
int rings_open(struct region *region, const struct layout_plan *plan);
void rings_close(struct region *region); /* half-built too */
void ring_spill(struct ring_pair *pair, const struct region_cqe *cqe) __attribute__((cold));
uint32_t ring_spill_reap(struct ring_pair *pair, struct region_cqe *cqes, uint32_t max)
	__attribute__((cold));

#endif
