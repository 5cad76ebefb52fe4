/* store/space/space.h: the allocator's interface within store. */
#ifndef STORE_SPACE_H
#define STORE_SPACE_H

#include "store/local.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- space.c: the allocator. Any thread. ---- */
struct space;
int space_open(uint64_t first_block, uint64_t block_count, struct space **ret_space);
void space_close(struct space *space);
/* Makes runs stripes of the disk's geometries: a lease of data blocks takes a part of the shards,
 * and returns a striped address of the current one. Does nothing on one volume. Call it before the
 * first lease, and when the geometries change. */
void space_stripe(struct space *space, const struct disk *disk, uint32_t current);
/* How many blocks of each volume are in use, held back or being written, in runs of a geometry. */
uint64_t space_geometry_blocks(struct space *space, uint32_t slot);
/* Adds the blocks by which the volume grew; block_count is its new total. -ENOMEM. */
int space_grow(struct space *space, uint64_t block_count);
/* Leases a run of up to `blocks` (1 to CHUNK_BLOCKS): the full length if there is such a run,
 * otherwise the longest one. Returns its length, 0 when nothing is free. */
uint32_t space_lease(struct space *space, uint32_t blocks, uint64_t *ret_block);
/* The same, also of the reserve. */
uint32_t space_lease_reserved(struct space *space, uint32_t blocks, uint64_t *ret_block);
/* Sets the reserve: so many blocks of each volume that only space_lease_reserved leases. */
void space_reserve(struct space *space, uint64_t blocks);
/* Takes a run that is free and that a superblock names. Nothing changes when -EEXIST: some of it is
 * in use; -ERANGE: it is no run of the space. */
int space_take(struct space *space, uint64_t block, uint32_t blocks);
/* Frees a run that this process leased. CHECKs that its blocks were in use. */
void space_give(struct space *space, uint64_t block, uint32_t blocks);
/* Frees a run that the index names, which is untrusted input. All of it stays as it is when
 * -ERANGE: it is no run of the space; -ENOENT: some of it is free already; -EBUSY: another row
 * named some of it when the space was marked. */
int space_reclaim(struct space *space, uint64_t block, uint32_t blocks);
/* Between these two calls, freed blocks are not leased again. */
void space_hold(struct space *space);
void space_let_go(struct space *space);
/* Fiber call: the same, on a helper thread when that frees many runs. */
void space_let_go_long(struct space *space);
/* How many blocks of each volume wait for that, in how many runs (16 bytes of memory each; may be
 * NULL). */
uint64_t space_held_blocks(struct space *space, uint32_t *ret_runs);
/* For discarding: the next free run of each volume in a chunk with space given back, from *cursor
 * on (a block, 0 at first; the call moves it). The run counts as leased until end, so that nobody
 * else gets it. Returns its length; 0: no more. A chunk is visited once, until more of its space is
 * given back. */
uint64_t space_discard_begin(struct space *space, uint64_t *cursor, uint64_t *ret_block);
void space_discard_end(struct space *space, uint64_t block, uint64_t blocks);
/* Recovery and fsck: marks a run as used. -EEXIST: some of it already was (all of it is now, and is
 * not reclaimed); -ERANGE: outside. */
int space_mark(struct space *space, uint64_t block, uint32_t blocks);
uint64_t space_free_blocks(struct space *space);
uint64_t space_used_blocks(struct space *space);
/* How many chunks leases have compared to find one with a run. */
uint64_t space_looks(struct space *space);
/* Word idx of the bitmap, for snapshots and comparison; 1: in use. Bits that are set count for
 * the current geometry. */
uint64_t space_word_count(const struct space *space);
uint64_t space_word(const struct space *space, uint64_t word_idx);
void space_words_set(struct space *space, uint64_t word_idx, const uint64_t *words, uint64_t count);

/* ---- step.c ---- */
/* Free bytes of the data folder's file system; UINT64_MAX: unknown. */
uint64_t space_file_system_free(const struct store *store);
/* Grows the volume by a step. Blocks. -ENOSPC: it must not grow. */
int space_step(struct store *store);
/* space_lease, or with reserved space_lease_reserved, which lets the volume grow until it has a
 * run. Blocks. Errors of space_step. */
int space_lease_growing(struct store *store, bool reserved, uint32_t blocks, uint64_t *ret_block,
	uint32_t *ret_blocks);

/* ---- discard.c ---- */
/* Discards all space given back since the last call. Fiber call. */
int discard_pass(struct store *store, uint64_t bytes_per_s);

#endif
