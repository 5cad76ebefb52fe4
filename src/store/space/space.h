/* store/space/space.h: what the files of store share about the space of volumes. */
#ifndef STORE_SPACE_H
#define STORE_SPACE_H

#include "store/local.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- space.c: the allocator. Any thread. ---- */
struct space;
int space_open(uint64_t first_block, uint64_t block_count, struct space **ret_space);
void space_close(struct space *space);
/* Runs are stripes with so many shards of data: a lease of blocks of data takes a part of them, and
 * answers a striped address. Before the first lease. */
void space_stripe(struct space *space, uint32_t data);
/* Takes blocks that were grown; block_count is the volume's new total. -ENOMEM. */
int space_grow(struct space *space, uint64_t block_count);
/* A run of up to `blocks` (1 to CHUNK_BLOCKS), the whole of it where there is such a run; otherwise
 * the longest there is. Returns its length, 0 when nothing is free. */
uint32_t space_lease(struct space *space, uint32_t blocks, uint64_t *ret_block);
/* Whether it is a run of the space: what the index names is asked before it is given. */
bool space_has(struct space *space, uint64_t block, uint32_t blocks);
/* CHECKs that they were in use. */
void space_give(struct space *space, uint64_t block, uint32_t blocks);
/* Between the two nothing that is given back is leased anew. */
void space_hold(struct space *space);
void space_let_go(struct space *space);
/* For discarding: the next run of each volume that is free in a chunk to which something was given
 * back, from *cursor on (a block, 0 at first; moved on). It is as if leased until end, so that
 * nobody is given it meanwhile. Returns its length; 0: there is no more. A chunk is gone through
 * once, until something is given back to it again. */
uint64_t space_discard_begin(struct space *space, uint64_t *cursor, uint64_t *ret_block);
void space_discard_end(struct space *space, uint64_t block, uint64_t blocks);
/* Recovery and fsck: marks a run as used. -EEXIST: some of it already was (all of it is now);
 * -ERANGE: outside. */
int space_mark(struct space *space, uint64_t block, uint32_t blocks);
uint64_t space_free_blocks(struct space *space);
uint64_t space_used_blocks(struct space *space);
/* The bitmap, for snapshots and comparison: word idx, 1: in use. */
uint64_t space_word_count(const struct space *space);
uint64_t space_word(const struct space *space, uint64_t word_idx);
void space_word_set(struct space *space, uint64_t word_idx, uint64_t word);

/* ---- discard.c ---- */
/* Tells the volume of all that was given back since the last time. Fiber call. */
int discard_pass(struct store *store, uint64_t bytes_per_s);

#endif
