/* base/mem_arena.h: the memory of one request or one job: a bump allocator whose first block is
 * inside its owner. Allocations are not freed one by one, only all at once. One thread at a
 * time. */
#ifndef BASE_MEM_ARENA_H
#define BASE_MEM_ARENA_H

#include "base/slice.h"

struct mem_arena_block {
	struct mem_arena_block *next;
	size_t bytes;
};
struct mem_arena {
	char *at;
	char *end;
	struct mem_arena_block *blocks;
	char first[1024];
};
void mem_arena_init(struct mem_arena *arena);
void mem_arena_free(struct mem_arena *arena);
/* Aligned to 16; NULL when there is no memory. */
void *mem_arena_get(struct mem_arena *arena, size_t bytes);
/* All that it has allocated. */
size_t mem_arena_bytes(const struct mem_arena *arena);
/* A copy with a NUL behind it (not counted); data NULL when there is no memory. */
struct slice mem_arena_copy(struct mem_arena *arena, struct slice s);

#endif
