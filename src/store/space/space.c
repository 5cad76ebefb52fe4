/* store/space/space.c: the allocator of the volume's blocks: a bitmap in memory, one bit per block
 * (32 MiB for a TiB), with counts and the longest free run per chunk (1 MiB) and per summary (64
 * chunks), so that a search skips those that do not have what it needs. Only snapshots write it to
 * disk: the index defines the blocks in use.
 *
 * Large bodies get whole chunks. Small runs are taken one after another from one chunk at a time,
 * so that the bodies of a group are adjacent and can be written together. A chunk is used for small
 * runs again when half of it is free; a whole chunk is split only while there are plenty. */
#include "store/space/space.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define WORD_BITS      64u
#define CHUNK_WORDS    (CHUNK_BLOCKS / WORD_BITS)
#define SUMMARY_CHUNKS 64u
#define CHUNK_NONE     UINT64_MAX
#define RUNS_FIRST     64u
/* Limits of a discarded run: a shorter run is not worth a command; a longer one, or one with more
 * than this part of the free space, would be missed meanwhile. */
#define DISCARD_BLOCKS_MIN 16u
#define DISCARD_BLOCKS_MAX (16 * CHUNK_BLOCKS)
#define DISCARD_PART	   16u
/* A chunk with at least this much free space is used for small runs again. */
#define CHUNK_ROOMY (CHUNK_BLOCKS / 2)
/* A search for such a chunk looks into so many summaries. */
#define ROOMY_SUMMARIES_MAX 16u
/* Whole chunks are plenty while they are more than this part of all chunks. */
#define PLENTY_PART 8u

/* Held runs that are freed at a time, while event loops wait for the lock. */
#define LET_GO_RUNS 2048u

_Static_assert(SUMMARY_CHUNKS == WORD_BITS, "a word has a bit for each chunk of a summary");

struct summary {
	uint32_t free_blocks;
	uint16_t whole_chunks; /* with nothing in use */
	uint16_t longest;      /* free run of its chunks */
};

struct space_run {
	uint64_t block;
	uint32_t blocks;
	uint32_t slot; /* its geometry */
};

struct space {
	pthread_mutex_t lock;
	_Atomic uint32_t waiting; /* threads, for the lock */
	uint64_t first_block;
	uint64_t chunk_count;
	uint64_t free_blocks;
	uint64_t whole_chunks;
	uint64_t small_chunk;		       /* chunk of the next small run, or CHUNK_NONE */
	uint64_t summary_cursor;	       /* where a search for a whole chunk begins */
	uint64_t roomy_cursor;		       /* for a roomy one */
	uint64_t part_cursor;		       /* for any other with a run */
	uint64_t looks;			       /* chunks that the latter two have compared */
	uint32_t stripe_data[DISK_GEOMETRIES]; /* data shards of a stripe; 0: there is none */
	uint32_t slot;			       /* of new runs */
	bool striped;
	uint64_t slot_blocks[DISK_GEOMETRIES]; /* in use */
	uint32_t holds;			       /* while not 0, returned runs wait in held */
	uint32_t held_count;
	uint32_t held_cap;
	struct space_run *held;
	uint64_t held_blocks;
	struct space_run *shared; /* runs that two rows of the index named at the start */
	uint32_t shared_count;
	uint32_t shared_cap;
	uint64_t reserve_blocks;
	uint64_t lent_blocks; /* free, but being discarded: marked as in use */
	uint64_t *words;      /* 1: in use */
	uint64_t *given; /* one bit per chunk: it has space that was given back and not discarded
			    since */
	uint16_t *chunk_free;
	uint16_t *chunk_longest; /* free run */
	struct summary *summaries;
	uint32_t longest_counts[CHUNK_BLOCKS + 1]; /* summaries by their longest run */
};

static void space_lock(struct space *space)
{
	if (pthread_mutex_trylock(&space->lock) == 0)
		return;
	atomic_fetch_add(&space->waiting, 1);
	pthread_mutex_lock(&space->lock);
	atomic_fetch_sub(&space->waiting, 1);
}

/* With the lock held: a mutex that is given up and taken again at once would get no thread that
 * waits for it. */
static void others_first(struct space *space)
{
	pthread_mutex_unlock(&space->lock);
	while (atomic_load(&space->waiting))
		sched_yield();
	pthread_mutex_lock(&space->lock);
}

static uint64_t summary_count(const struct space *space)
{
	return (space->chunk_count + SUMMARY_CHUNKS - 1) / SUMMARY_CHUNKS;
}

/* The first bit at or after `at` with this value, or CHUNK_BLOCKS. */
static uint32_t bit_find(const uint64_t *words, uint32_t at, bool value)
{
	while (at < CHUNK_BLOCKS) {
		uint64_t word = words[at / WORD_BITS];
		uint64_t hits = (value ? word : ~word) >> (at % WORD_BITS);

		if (hits)
			return at + (uint32_t)__builtin_ctzll(hits);
		at = (at / WORD_BITS + 1) * WORD_BITS;
	}
	return CHUNK_BLOCKS;
}

/* The first free run of at least `blocks` in a chunk, or the longest one; returns its length, at
 * most blocks. */
static uint32_t run_find(
	const struct space *space, uint64_t chunk, uint32_t blocks, uint32_t *ret_bit)
{
	const uint64_t *words = &space->words[chunk * CHUNK_WORDS];
	uint32_t at = 0, longest = 0;

	while (longest < blocks) {
		uint32_t from = bit_find(words, at, false);

		if (from >= CHUNK_BLOCKS)
			break;
		at = bit_find(words, from, true);
		if (at - from > longest) {
			longest = at - from;
			*ret_bit = from;
		}
	}
	return MIN(longest, blocks);
}

/* The longest free run of a chunk whose words and number of free blocks are right. */
static uint32_t chunk_longest(const struct space *space, uint64_t chunk)
{
	uint32_t bit, blocks = space->chunk_free[chunk];

	return blocks == 0 || blocks == CHUNK_BLOCKS ? blocks
						     : run_find(space, chunk, blocks, &bit);
}

/* Notes the longest free run of a chunk. */
static void run_account(struct space *space, uint64_t chunk)
{
	struct summary *summary = &space->summaries[chunk / SUMMARY_CHUNKS];
	uint64_t first = chunk / SUMMARY_CHUNKS * SUMMARY_CHUNKS;
	uint64_t end = MIN(first + SUMMARY_CHUNKS, space->chunk_count);
	uint32_t before = summary->longest, now = chunk_longest(space, chunk);
	bool was_longest = space->chunk_longest[chunk] == before;

	space->chunk_longest[chunk] = (uint16_t)now;
	if (now < before) {
		if (!was_longest)
			return;
		for (uint64_t i = first; i < end; i++)
			now = MAX(now, (uint32_t)space->chunk_longest[i]);
	}
	summary->longest = (uint16_t)now;
	space->longest_counts[before]--;
	space->longest_counts[now]++;
}

/* Notes that a chunk, whose words are right, has `now` free blocks. */
static void chunk_account(struct space *space, uint64_t chunk, uint32_t now)
{
	struct summary *summary = &space->summaries[chunk / SUMMARY_CHUNKS];
	uint32_t before = space->chunk_free[chunk];

	space->free_blocks += now;
	space->free_blocks -= before;
	summary->free_blocks += now;
	summary->free_blocks -= before;
	if (before == CHUNK_BLOCKS) {
		summary->whole_chunks--;
		space->whole_chunks--;
	}
	if (now == CHUNK_BLOCKS) {
		summary->whole_chunks++;
		space->whole_chunks++;
	}
	space->chunk_free[chunk] = (uint16_t)now;
	run_account(space, chunk);
}

/* Makes room for this many chunks; the new ones are in use. */
static int arrays_grow(struct space *space, uint64_t chunk_count)
{
	uint64_t summaries_now = summary_count(space);
	uint64_t summaries = (chunk_count + SUMMARY_CHUNKS - 1) / SUMMARY_CHUNKS;
	uint64_t more = chunk_count - space->chunk_count;
	void *grown;

	grown = realloc(space->words, chunk_count * CHUNK_WORDS * sizeof(uint64_t));
	if (!grown)
		return -ENOMEM;
	space->words = (uint64_t *)grown;
	grown = realloc(space->chunk_free, chunk_count * sizeof(uint16_t));
	if (!grown)
		return -ENOMEM;
	space->chunk_free = (uint16_t *)grown;
	grown = realloc(space->chunk_longest, chunk_count * sizeof(uint16_t));
	if (!grown)
		return -ENOMEM;
	space->chunk_longest = (uint16_t *)grown;
	grown = realloc(space->summaries, summaries * sizeof(struct summary));
	if (!grown)
		return -ENOMEM;
	space->summaries = (struct summary *)grown;
	grown = realloc(space->given, summaries * sizeof(uint64_t));
	if (!grown)
		return -ENOMEM;
	space->given = (uint64_t *)grown;
	memset(&space->given[summaries_now], 0, (summaries - summaries_now) * sizeof(uint64_t));
	memset(&space->words[space->chunk_count * CHUNK_WORDS], 0xff,
		more * CHUNK_WORDS * sizeof(uint64_t));
	memset(&space->chunk_free[space->chunk_count], 0, more * sizeof(uint16_t));
	memset(&space->chunk_longest[space->chunk_count], 0, more * sizeof(uint16_t));
	memset(&space->summaries[summaries_now], 0,
		(summaries - summaries_now) * sizeof(struct summary));
	space->longest_counts[0] += (uint32_t)(summaries - summaries_now);
	return 0;
}

int space_open(uint64_t first_block, uint64_t block_count, struct space **ret_space)
{
	struct space *space = (struct space *)calloc(1, sizeof(*space));
	int ret;

	if (!space)
		return -ENOMEM;
	CHECK(first_block % CHUNK_BLOCKS == 0);
	CHECK(first_block < block_count);
	pthread_mutex_init(&space->lock, NULL);
	space->first_block = first_block;
	space->small_chunk = CHUNK_NONE;
	space->summary_cursor = first_block / CHUNK_BLOCKS / SUMMARY_CHUNKS;
	ret = space_grow(space, block_count);
	if (ret) {
		space_close(space);
		return ret;
	}
	*ret_space = space;
	return 0;
}

void space_stripe(struct space *space, const struct disk *disk, uint32_t current)
{
	space_lock(space);
	for (uint32_t g = 0; g < DISK_GEOMETRIES; g++)
		space->stripe_data[g] = disk_array_geometry_data(disk, g);
	space->striped = disk_array_data(disk) != 0;
	space->slot = current;
	pthread_mutex_unlock(&space->lock);
}

uint64_t space_geometry_blocks(struct space *space, uint32_t slot)
{
	uint64_t blocks;

	space_lock(space);
	blocks = space->slot_blocks[slot];
	pthread_mutex_unlock(&space->lock);
	return blocks;
}

/* The part of a run on each volume. False: not a run of this space. The lock is held. */
static bool run_of(const struct space *space, uint64_t *block, uint32_t *blocks, uint32_t *ret_slot)
{
	uint32_t data;

	*ret_slot = 0;
	if (!space->striped)
		return true;
	*ret_slot = disk_stripe_slot(*block);
	data = space->stripe_data[*ret_slot];
	if (!data || !disk_stripe_is(*block) || disk_stripe_blocks(*block) != *blocks)
		return false;
	*block = disk_stripe_first(*block);
	*blocks = (*blocks + data - 1) / data;
	return true;
}

void space_close(struct space *space)
{
	if (!space)
		return;
	pthread_mutex_destroy(&space->lock);
	free(space->held);
	free(space->shared);
	free(space->words);
	free(space->given);
	free(space->chunk_free);
	free(space->chunk_longest);
	free(space->summaries);
	free(space);
}

int space_grow(struct space *space, uint64_t block_count)
{
	uint64_t chunk_count = block_count / CHUNK_BLOCKS;
	uint64_t chunk;
	int ret = 0;

	space_lock(space);
	if (chunk_count > space->chunk_count) {
		ret = arrays_grow(space, chunk_count);
		if (!ret) {
			chunk = MAX(space->chunk_count, space->first_block / CHUNK_BLOCKS);
			space->chunk_count = chunk_count;
			for (; chunk < chunk_count; chunk++) {
				memset(&space->words[chunk * CHUNK_WORDS], 0,
					CHUNK_WORDS * sizeof(uint64_t));
				chunk_account(space, chunk, CHUNK_BLOCKS);
			}
		}
	}
	pthread_mutex_unlock(&space->lock);
	return ret;
}

/* Sets or clears a run inside one chunk; returns the number of changed bits. */
static uint32_t bits_change(struct space *space, uint64_t block, uint32_t blocks, bool used)
{
	uint32_t changed = 0;

	for (uint64_t at = block, end = block + blocks; at < end;) {
		uint32_t bit = (uint32_t)(at % WORD_BITS);
		uint32_t count = (uint32_t)MIN((uint64_t)(WORD_BITS - bit), end - at);
		uint64_t mask = (count == WORD_BITS ? UINT64_MAX : (1ull << count) - 1) << bit;
		uint64_t *word = &space->words[at / WORD_BITS];
		uint64_t now = used ? *word | mask : *word & ~mask;

		changed += (uint32_t)__builtin_popcountll(*word ^ now);
		*word = now;
		at += count;
	}
	return changed;
}

static uint32_t run_take(
	struct space *space, uint64_t chunk, uint32_t bit, uint32_t blocks, uint64_t *ret_block)
{
	uint64_t block = chunk * CHUNK_BLOCKS + bit;
	uint32_t changed = bits_change(space, block, blocks, true);

	CHECK(changed == blocks);
	chunk_account(space, chunk, space->chunk_free[chunk] - blocks);
	*ret_block = block;
	return blocks;
}

/* A chunk with nothing in use, or CHUNK_NONE. */
static uint64_t whole_find(struct space *space)
{
	uint64_t summaries = summary_count(space);

	if (!space->whole_chunks)
		return CHUNK_NONE;
	for (uint64_t i = 0; i < summaries; i++) {
		uint64_t summary = (space->summary_cursor + i) % summaries;
		uint64_t end = MIN((summary + 1) * SUMMARY_CHUNKS, space->chunk_count);

		if (!space->summaries[summary].whole_chunks)
			continue;
		space->summary_cursor = summary;
		for (uint64_t chunk = summary * SUMMARY_CHUNKS; chunk < end; chunk++)
			if (space->chunk_free[chunk] == CHUNK_BLOCKS)
				return chunk;
	}
	return CHUNK_NONE;
}

/* The longest free run. */
static uint32_t longest(const struct space *space)
{
	uint32_t blocks = CHUNK_BLOCKS;

	while (blocks && !space->longest_counts[blocks])
		blocks--;
	return blocks;
}

/* A chunk with at least free_min free blocks and a run of this many, or CHUNK_NONE: the next one
 * from the cursor on, which moves. Looks into so many summaries that may have one. */
static uint64_t part_find(struct space *space, uint32_t free_min, uint32_t blocks, uint64_t *cursor,
	uint32_t summaries_max)
{
	uint64_t summaries = summary_count(space), first = *cursor;

	for (uint64_t i = 0; i < summaries && summaries_max; i++) {
		uint64_t summary = (first + i) % summaries;
		uint64_t end = MIN((summary + 1) * SUMMARY_CHUNKS, space->chunk_count);

		if (space->summaries[summary].longest < blocks ||
			space->summaries[summary].free_blocks < free_min)
			continue;
		summaries_max--;
		*cursor = summary + 1;
		for (uint64_t chunk = summary * SUMMARY_CHUNKS; chunk < end; chunk++) {
			space->looks++;
			if (space->chunk_longest[chunk] >= blocks &&
				space->chunk_free[chunk] >= free_min) {
				*cursor = summary;
				return chunk;
			}
		}
	}
	return CHUNK_NONE;
}

/* The chunk of the next small run when the current chunk has no run; a roomy one that is far away
 * is not searched for at once. */
static uint64_t small_find(struct space *space, uint32_t blocks)
{
	bool plenty = space->whole_chunks > space->chunk_count / PLENTY_PART;
	uint64_t chunk = CHUNK_NONE;

	if (plenty)
		return whole_find(space);
	if (longest(space) < blocks)
		return CHUNK_NONE;
	chunk = part_find(
		space, MAX(blocks, CHUNK_ROOMY), blocks, &space->roomy_cursor, ROOMY_SUMMARIES_MAX);
	if (chunk == CHUNK_NONE)
		chunk = part_find(space, blocks, blocks, &space->part_cursor, 1);
	return chunk;
}

static uint32_t lease_locked(struct space *space, uint32_t blocks, uint64_t *ret_block)
{
	uint64_t chunk;
	uint32_t bit = 0;

	if (!space->free_blocks)
		return 0;
	if (blocks == CHUNK_BLOCKS) {
		chunk = whole_find(space);
	} else {
		chunk = space->small_chunk;
		if (chunk == CHUNK_NONE || space->chunk_longest[chunk] < blocks)
			chunk = small_find(space, blocks);
		if (chunk != CHUNK_NONE)
			space->small_chunk = chunk;
	}
	if (chunk == CHUNK_NONE) {
		blocks = MIN(blocks, longest(space));
		chunk = part_find(space, blocks, blocks, &space->part_cursor, 1);
		CHECK(chunk != CHUNK_NONE);
	}
	run_find(space, chunk, blocks, &bit);
	return run_take(space, chunk, bit, blocks, ret_block);
}

static uint32_t lease(struct space *space, uint32_t blocks, bool reserved, uint64_t *ret_block)
{
	uint32_t leased = 0, data, each, slot;
	uint64_t room;

	CHECK(blocks > 0 && blocks <= CHUNK_BLOCKS);
	space_lock(space);
	slot = space->slot;
	data = space->striped ? space->stripe_data[slot] : 0;
	each = data ? (blocks + data - 1) / data : blocks;
	room = space->free_blocks + space->lent_blocks;
	if (!reserved && space->reserve_blocks) {
		room -= MIN(room, space->reserve_blocks);
		each = (uint32_t)MIN(room, (uint64_t)each);
	}
	if (each)
		leased = lease_locked(space, each, ret_block);
	space->slot_blocks[slot] += leased;
	pthread_mutex_unlock(&space->lock);
	if (!data || !leased)
		return leased;
	leased = MIN(blocks, leased * data);
	*ret_block = disk_stripe(*ret_block, leased, slot);
	return leased;
}

uint32_t space_lease(struct space *space, uint32_t blocks, uint64_t *ret_block)
{
	return lease(space, blocks, false, ret_block);
}

uint32_t space_lease_reserved(struct space *space, uint32_t blocks, uint64_t *ret_block)
{
	return lease(space, blocks, true, ret_block);
}

void space_reserve(struct space *space, uint64_t blocks)
{
	space_lock(space);
	space->reserve_blocks = blocks;
	pthread_mutex_unlock(&space->lock);
}

/* Changes a run that may cross chunks; returns the number of changed blocks. */
static uint64_t run_change(struct space *space, uint64_t block, uint64_t blocks, bool used)
{
	uint64_t changed_all = 0;

	while (blocks) {
		uint64_t chunk = block / CHUNK_BLOCKS;
		uint32_t count =
			(uint32_t)MIN(blocks, (uint64_t)CHUNK_BLOCKS - block % CHUNK_BLOCKS);
		uint32_t changed = bits_change(space, block, count, used);
		uint32_t now = space->chunk_free[chunk];

		chunk_account(space, chunk, used ? now - changed : now + changed);
		changed_all += changed;
		block += count;
		blocks -= count;
	}
	return changed_all;
}

static void run_free(struct space *space, struct space_run run)
{
	uint64_t changed = run_change(space, run.block, run.blocks, false);

	CHECK(changed == run.blocks);
	CHECK(space->slot_blocks[run.slot] >= run.blocks);
	space->slot_blocks[run.slot] -= run.blocks;
	for (uint64_t chunk = run.block / CHUNK_BLOCKS;
		chunk <= (run.block + run.blocks - 1) / CHUNK_BLOCKS; chunk++)
		space->given[chunk / SUMMARY_CHUNKS] |= 1ull << chunk % SUMMARY_CHUNKS;
}

struct space_runs {
	struct space_run **runs;
	uint32_t *count, *cap;
};

/* Adds the run to a list, unless there is no memory. */
static void runs_add(struct space_runs list, struct space_run run)
{
	if (*list.count == *list.cap) {
		uint32_t cap = MAX(*list.cap * 2, RUNS_FIRST);
		void *grown = realloc(*list.runs, cap * sizeof(struct space_run));

		if (!grown)
			return;
		*list.runs = (struct space_run *)grown;
		*list.cap = cap;
	}
	(*list.runs)[(*list.count)++] = run;
}

static struct space_runs held_list(struct space *space)
{
	return (struct space_runs){&space->held, &space->held_count, &space->held_cap};
}

/* Without memory the run is lost until the next start; that is better than using it too early. */
static void held_add(struct space *space, struct space_run run)
{
	runs_add(held_list(space), run);
	space->held_blocks += run.blocks;
}

/* Whether all blocks of the run are used, or all are free. */
static bool run_is(const struct space *space, uint64_t block, uint64_t blocks, bool used)
{
	while (blocks) {
		const uint64_t *words = &space->words[block / CHUNK_BLOCKS * CHUNK_WORDS];
		uint32_t at = block % CHUNK_BLOCKS;
		uint32_t count = (uint32_t)MIN(blocks, (uint64_t)CHUNK_BLOCKS - at);

		if (bit_find(words, at, !used) < at + count)
			return false;
		block += count;
		blocks -= count;
	}
	return true;
}

static bool run_is_shared(const struct space *space, uint64_t block, uint32_t blocks)
{
	for (uint32_t i = 0; i < space->shared_count; i++) {
		const struct space_run *shared = &space->shared[i];

		if (block < shared->block + shared->blocks && shared->block < block + blocks)
			return true;
	}
	return false;
}

/* Under the lock; takes blocks of a volume. */
static bool is_inside(const struct space *space, uint64_t block, uint32_t blocks)
{
	return block >= space->first_block && block + blocks >= block &&
	       block + blocks <= space->chunk_count * CHUNK_BLOCKS;
}

static void run_return(struct space *space, struct space_run run)
{
	if (space->holds)
		held_add(space, run);
	else
		run_free(space, run);
}

int space_reclaim(struct space *space, uint64_t block, uint32_t blocks)
{
	uint32_t slot;
	int ret = 0;

	space_lock(space);
	if (!run_of(space, &block, &blocks, &slot) || !is_inside(space, block, blocks))
		ret = -ERANGE;
	else if (run_is_shared(space, block, blocks))
		ret = -EBUSY;
	else if (!run_is(space, block, blocks, true))
		ret = -ENOENT;
	else
		run_return(space, (struct space_run){block, blocks, slot});
	pthread_mutex_unlock(&space->lock);
	return ret;
}

void space_give(struct space *space, uint64_t block, uint32_t blocks)
{
	uint32_t slot;
	bool ours;

	space_lock(space);
	ours = run_of(space, &block, &blocks, &slot);
	CHECK(ours);
	CHECK(is_inside(space, block, blocks));
	run_return(space, (struct space_run){block, blocks, slot});
	pthread_mutex_unlock(&space->lock);
}

void space_hold(struct space *space)
{
	space_lock(space);
	space->holds++;
	pthread_mutex_unlock(&space->lock);
}

static int run_compare(const void *a, const void *b)
{
	const struct space_run *left = (const struct space_run *)a;
	const struct space_run *right = (const struct space_run *)b;

	return (left->block > right->block) - (left->block < right->block);
}

/* Two rows of a damaged index may have named the same blocks. */
static void held_free(struct space *space, struct space_run run)
{
	space->held_blocks -= run.blocks;
	if (run_is(space, run.block, run.blocks, true))
		run_free(space, run);
}

/* Frees the last runs of a sorted list, down to run `to`. Others may have the blocks from `first`
 * on: they were freed before. */
static void part_free(struct space *space, const struct space_run *runs, uint32_t from, uint32_t to,
	uint64_t *first)
{
	while (from > to) {
		struct space_run run = runs[--from];

		if (run.block + run.blocks > *first) {
			space->held_blocks -= run.blocks;
		} else {
			held_free(space, run);
			*first = run.block;
		}
	}
}

/* With the lock held, by the only holder, who gives it up between two parts of the runs. Runs that
 * are returned meanwhile are held. So is the rest, when somebody else holds again. */
static void held_part(struct space *space)
{
	struct space_run *runs = space->held, *more;
	uint32_t left = space->held_count, cap = space->held_cap, count;
	uint64_t first = UINT64_MAX;

	space->held = NULL;
	space->held_count = space->held_cap = 0;
	pthread_mutex_unlock(&space->lock);
	qsort(runs, left, sizeof(*runs), run_compare);
	space_lock(space);
	while (left && space->holds == 1) {
		uint32_t to = left - MIN(left, LET_GO_RUNS);

		part_free(space, runs, left, to, &first);
		left = to;
		others_first(space);
	}
	more = space->held;
	count = space->held_count;
	space->held = runs;
	space->held_count = left;
	space->held_cap = cap;
	for (uint32_t i = 0; i < count; i++)
		runs_add(held_list(space), more[i]);
	free(more);
}

void space_let_go(struct space *space)
{
	space_lock(space);
	while (space->holds == 1 && space->held_count > LET_GO_RUNS)
		held_part(space);
	if (--space->holds == 0) {
		for (uint32_t i = 0; i < space->held_count; i++)
			held_free(space, space->held[i]);
		space->held_count = 0;
		space->held_blocks = 0;
	}
	pthread_mutex_unlock(&space->lock);
}

static void let_go_run(void *arg)
{
	space_let_go((struct space *)arg);
}

void space_let_go_long(struct space *space)
{
	uint32_t runs;

	(void)space_held_blocks(space, &runs);
	if (runs > LET_GO_RUNS)
		fiber_offload_long(let_go_run, space);
	else
		space_let_go(space);
}

uint64_t space_held_blocks(struct space *space, uint32_t *ret_runs)
{
	uint64_t blocks;

	space_lock(space);
	blocks = space->held_blocks;
	if (ret_runs)
		*ret_runs = space->held_count;
	pthread_mutex_unlock(&space->lock);
	return blocks;
}

/* ---- Discarding. ---- */

/* The next chunk from this one on that has space given back; CHUNK_NONE. */
static uint64_t given_find(const struct space *space, uint64_t chunk)
{
	while (chunk < space->chunk_count) {
		uint64_t bits = space->given[chunk / SUMMARY_CHUNKS] >> chunk % SUMMARY_CHUNKS;

		if (bits)
			return chunk + (uint64_t)__builtin_ctzll(bits);
		chunk = (chunk / SUMMARY_CHUNKS + 1) * SUMMARY_CHUNKS;
	}
	return CHUNK_NONE;
}

static void given_clear(struct space *space, uint64_t chunk)
{
	space->given[chunk / SUMMARY_CHUNKS] &= ~(1ull << chunk % SUMMARY_CHUNKS);
}

/* Whole free chunks that are adjacent, all with space given back. */
static uint64_t given_whole(struct space *space, uint64_t chunk, uint64_t blocks_max)
{
	uint64_t blocks = 0;

	while (blocks + CHUNK_BLOCKS <= blocks_max && given_find(space, chunk) == chunk &&
		space->chunk_free[chunk] == CHUNK_BLOCKS) {
		given_clear(space, chunk++);
		blocks += CHUNK_BLOCKS;
	}
	return blocks;
}

/* The next free run of a chunk from the block on; 0: no run is long enough. */
static uint64_t given_part(struct space *space, uint64_t *block, uint64_t blocks_max)
{
	uint64_t chunk = *block / CHUNK_BLOCKS;
	const uint64_t *words = &space->words[chunk * CHUNK_WORDS];
	uint32_t at = *block % CHUNK_BLOCKS;

	if (at == 0)
		given_clear(space, chunk);
	while (at < CHUNK_BLOCKS) {
		uint32_t from = bit_find(words, at, false);

		at = bit_find(words, from, true);
		if (at - from < DISCARD_BLOCKS_MIN)
			continue;
		*block = chunk * CHUNK_BLOCKS + from;
		return MIN((uint64_t)(at - from), blocks_max);
	}
	return 0;
}

uint64_t space_discard_begin(struct space *space, uint64_t *cursor, uint64_t *ret_block)
{
	uint64_t at, most, blocks = 0;

	space_lock(space);
	at = *cursor;
	most = MIN(DISCARD_BLOCKS_MAX, space->free_blocks / DISCARD_PART);
	while (most >= DISCARD_BLOCKS_MIN && !blocks) {
		if (at % CHUNK_BLOCKS == 0) {
			uint64_t chunk = given_find(space, at / CHUNK_BLOCKS);

			if (chunk == CHUNK_NONE)
				break;
			at = chunk * CHUNK_BLOCKS;
			blocks = given_whole(space, chunk, most);
		}
		if (!blocks)
			blocks = given_part(space, &at, most);
		if (!blocks)
			at = (at / CHUNK_BLOCKS + 1) * CHUNK_BLOCKS;
	}
	if (blocks) {
		uint64_t changed = run_change(space, at, blocks, true);

		CHECK(changed == blocks);
		space->lent_blocks += blocks;
		*ret_block = at;
		*cursor = at + blocks;
	}
	pthread_mutex_unlock(&space->lock);
	return blocks;
}

void space_discard_end(struct space *space, uint64_t block, uint64_t blocks)
{
	uint64_t changed;

	space_lock(space);
	changed = run_change(space, block, blocks, false);
	CHECK(changed == blocks);
	space->lent_blocks -= blocks;
	pthread_mutex_unlock(&space->lock);
}

int space_mark(struct space *space, uint64_t block, uint32_t blocks)
{
	uint64_t changed = blocks;
	uint32_t slot;
	int ret = 0;

	space_lock(space);
	if (!run_of(space, &block, &blocks, &slot) || !is_inside(space, block, blocks)) {
		ret = -ERANGE;
	} else {
		changed = run_change(space, block, blocks, true);
		space->slot_blocks[slot] += changed;
	}
	if (!ret && changed != blocks) {
		ret = -EEXIST;
		runs_add((struct space_runs){&space->shared, &space->shared_count,
				 &space->shared_cap},
			(struct space_run){block, blocks, slot});
	}
	pthread_mutex_unlock(&space->lock);
	return ret;
}

int space_take(struct space *space, uint64_t block, uint32_t blocks)
{
	uint32_t slot;
	int ret = 0;

	space_lock(space);
	if (!run_of(space, &block, &blocks, &slot) || !is_inside(space, block, blocks))
		ret = -ERANGE;
	else if (!run_is(space, block, blocks, false))
		ret = -EEXIST;
	else
		space->slot_blocks[slot] += run_change(space, block, blocks, true);
	pthread_mutex_unlock(&space->lock);
	return ret;
}

uint64_t space_free_blocks(struct space *space)
{
	uint64_t blocks;

	space_lock(space);
	blocks = space->free_blocks + space->lent_blocks;
	pthread_mutex_unlock(&space->lock);
	return blocks;
}

uint64_t space_used_blocks(struct space *space)
{
	uint64_t blocks;

	space_lock(space);
	blocks = space->chunk_count * CHUNK_BLOCKS - space->first_block - space->free_blocks -
		 space->lent_blocks;
	pthread_mutex_unlock(&space->lock);
	return blocks;
}

uint64_t space_looks(struct space *space)
{
	uint64_t looks;

	space_lock(space);
	looks = space->looks;
	pthread_mutex_unlock(&space->lock);
	return looks;
}

uint64_t space_word_count(const struct space *space)
{
	return space->chunk_count * CHUNK_WORDS;
}

uint64_t space_word(const struct space *space, uint64_t word_idx)
{
	return space->words[word_idx];
}

void space_words_set(struct space *space, uint64_t word_idx, const uint64_t *words, uint64_t count)
{
	uint64_t end = word_idx + count;

	CHECK(word_idx >= space->first_block / WORD_BITS);
	CHECK(end <= space->chunk_count * CHUNK_WORDS);
	while (word_idx < end) {
		uint64_t chunk = word_idx / CHUNK_WORDS;
		uint64_t chunk_end = MIN(end, (chunk + 1) * CHUNK_WORDS);
		uint32_t before = space->chunk_free[chunk], now = before;

		for (; word_idx < chunk_end; word_idx++, words++) {
			now += (uint32_t)__builtin_popcountll(space->words[word_idx]);
			now -= (uint32_t)__builtin_popcountll(*words);
			space->words[word_idx] = *words;
		}
		space->slot_blocks[space->slot] += before;
		space->slot_blocks[space->slot] -= now;
		chunk_account(space, chunk, now);
	}
}
