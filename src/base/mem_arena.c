/* base/mem_arena.c: a bump allocator whose first block is inside its owner. All of it is freed at
 * once. */
#include "base/mem_arena.h"

#include <stdlib.h>
#include <string.h>

#define ARENA_BLOCK_BYTES 8192u
#define ARENA_ALIGN	  16u

void mem_arena_init(struct mem_arena *arena)
{
	arena->at = arena->first;
	arena->end = arena->first + sizeof(arena->first);
	arena->blocks = NULL;
}

void mem_arena_free(struct mem_arena *arena)
{
	while (arena->blocks) {
		struct mem_arena_block *block = arena->blocks;

		arena->blocks = block->next;
		free(block);
	}
	mem_arena_init(arena);
}

/* Adds a block. A request larger than a block gets a block of its own size. */
static bool arena_grow(struct mem_arena *arena, size_t bytes)
{
	size_t header = (sizeof(struct mem_arena_block) + ARENA_ALIGN - 1) & ~(ARENA_ALIGN - 1);
	size_t body = bytes < ARENA_BLOCK_BYTES ? ARENA_BLOCK_BYTES : bytes;
	struct mem_arena_block *block = malloc(header + body);

	if (!block)
		return false;
	block->next = arena->blocks;
	block->bytes = header + body;
	arena->blocks = block;
	arena->at = (char *)block + header;
	arena->end = arena->at + body;
	return true;
}

void *mem_arena_get(struct mem_arena *arena, size_t bytes)
{
	size_t skip = -(uintptr_t)arena->at & (ARENA_ALIGN - 1);
	char *at;

	if ((size_t)(arena->end - arena->at) < skip ||
		(size_t)(arena->end - arena->at) - skip < bytes) {
		if (!arena_grow(arena, bytes))
			return NULL;
		skip = 0;
	}
	at = arena->at + skip;
	arena->at = at + bytes;
	return at;
}

size_t mem_arena_bytes(const struct mem_arena *arena)
{
	size_t bytes = 0;

	for (const struct mem_arena_block *block = arena->blocks; block; block = block->next)
		bytes += block->bytes;
	return bytes;
}

struct slice mem_arena_copy(struct mem_arena *arena, struct slice s)
{
	char *copy = mem_arena_get(arena, s.len + 1);

	if (!copy)
		return SLICE_NONE;
	if (s.len)
		memcpy(copy, s.data, s.len);
	copy[s.len] = '\0';
	return slice_of(copy, s.len);
}
