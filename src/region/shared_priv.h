/* region/shared_priv.h: the layout of a region's shared part, which another process reads
 * (docs/design/region.md). The layout is fixed: a change to it increments REGION_VERSION. */
#ifndef REGION_SHARED_PRIV_H
#define REGION_SHARED_PRIV_H

#include "region/region.h"

#define ARENA_STRIDE LIMIT_ARENA_BYTES_MAX
#define ARENA_SHIFT  30u
#define ORDER_MAX    10u /* buddy blocks of 4 KiB << 0 … 10 */
#define LINE_BYTES   64

_Static_assert(1ull << ARENA_SHIFT == ARENA_STRIDE, "the shift matches the stride");
_Static_assert(1u << ORDER_MAX == LIMIT_SPAN_FRAMES_MAX, "the largest block is the largest span");

#define REGION_MAGIC	  "NEBREGN" /* 8 bytes with its end */
#define REGION_VERSION	  2u
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

/* layout.c */
const char *layout_kind_name(uint32_t kind);

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
	uint32_t pid; /* as the owner's PID namespace counts */
	uint32_t arena_count;
	uint32_t core_count;
	uint32_t ring_entries;
	uint64_t opened_real_ns;
	uint64_t base_addr; /* in the owning process: for reading entries' addresses, never
			       dereferenced */
	uint64_t page_count;
	uint64_t data_page;	       /* the first page of data */
	_Atomic uint64_t huge_arenas;  /* one bit for each arena */
	_Atomic uint64_t arenas_there; /* likewise; the base's are always there */
	uint32_t base_arena_count;     /* arenas behind these are extensions */
	uint32_t extension_page;       /* the first page of the first extension … */
	uint32_t extension_pages;      /* … and how many each has; 0: there are none */
	uint32_t reserved1;
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

/* The state of a page in the allocator. The word of a block's first page has the rest. */
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

/* The first page of an arena. */
static inline uint64_t arena_page(const struct region_header *header, uint32_t arena_idx)
{
	if (arena_idx < header->base_arena_count)
		return (uint64_t)arena_idx << (ARENA_SHIFT - FRAME_SHIFT);
	return header->extension_page +
	       (uint64_t)(arena_idx - header->base_arena_count) * header->extension_pages;
}

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

#endif
