/* tests/unit/store/test_space.c: the allocator against a model that remembers the owner of every
 * block. */
#include "../unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_priv.h"

#define FIRST  (2 * CHUNK_BLOCKS)
#define BLOCKS (200 * CHUNK_BLOCKS)
#define RUNS   4000u

struct run {
	uint64_t block;
	uint32_t blocks;
};

struct model {
	bool used[BLOCKS];
	struct run runs[RUNS];
	uint32_t run_count;
	uint64_t used_count;
};

static void run_take(struct model *model, struct run run)
{
	assert_true(run.block >= FIRST);
	assert_true(run.block + run.blocks <= BLOCKS);
	for (uint32_t i = 0; i < run.blocks; i++) {
		assert_false(model->used[run.block + i]);
		model->used[run.block + i] = true;
	}
	model->used_count += run.blocks;
	model->runs[model->run_count++] = run;
}

static void run_give(struct model *model, struct space *space, uint32_t idx)
{
	struct run run = model->runs[idx];

	for (uint32_t i = 0; i < run.blocks; i++)
		model->used[run.block + i] = false;
	model->used_count -= run.blocks;
	model->runs[idx] = model->runs[--model->run_count];
	space_give(space, run.block, run.blocks);
}

/* The longest free run that a lease may find: inside a chunk. */
static uint32_t model_longest(const struct model *model)
{
	uint32_t longest = 0, run = 0;

	for (uint64_t block = FIRST; block < BLOCKS; block++) {
		if (block % CHUNK_BLOCKS == 0)
			run = 0;
		run = model->used[block] ? 0 : run + 1;
		longest = MAX(longest, run);
	}
	return longest;
}

static void test_never_gives_a_block_twice(void **state)
{
	struct model *model = (struct model *)calloc(1, sizeof(*model));
	struct space *space;
	struct prng prng;

	(void)state;
	prng_seed(&prng, 5);
	assert_int_equal(space_open(FIRST, BLOCKS, &space), 0);
	for (uint32_t step = 0; step < 60000; step++) {
		/* The load comes in waves, so that the space is full at times and nearly empty at
		 * others. */
		bool fill = prng_below(&prng, 100) < (step / 5000 % 2 ? 30u : 75u);

		if (fill && model->run_count < RUNS) {
			uint32_t wanted = prng_below(&prng, 4) ? 1 + (uint32_t)prng_below(&prng, 16)
							       : CHUNK_BLOCKS;
			struct run run;

			run.blocks = space_lease(space, wanted, &run.block);
			assert_true(run.blocks <= wanted);
			if (run.blocks < wanted)
				assert_int_equal(run.blocks, model_longest(model));
			if (run.blocks)
				run_take(model, run);
			else
				assert_int_equal(model->used_count, BLOCKS - FIRST);
		} else if (!fill && model->run_count) {
			run_give(model, space, (uint32_t)prng_below(&prng, model->run_count));
		}
		assert_int_equal(space_used_blocks(space), model->used_count);
		assert_int_equal(space_free_blocks(space), BLOCKS - FIRST - model->used_count);
	}
	while (model->run_count)
		run_give(model, space, model->run_count - 1);
	assert_int_equal(space_used_blocks(space), 0);
	space_close(space);
	free(model);
}

static void test_small_runs_lie_side_by_side(void **state)
{
	struct space *space;
	uint64_t last, block;

	(void)state;
	assert_int_equal(space_open(FIRST, BLOCKS, &space), 0);
	assert_int_equal(space_lease(space, 1, &last), 1);
	for (uint32_t i = 0; i < 100; i++, last = block) {
		assert_int_equal(space_lease(space, 1, &block), 1);
		assert_int_equal(block, last + 1);
	}
	/* A whole chunk comes from another place. */
	assert_int_equal(space_lease(space, CHUNK_BLOCKS, &block), CHUNK_BLOCKS);
	assert_int_equal(block % CHUNK_BLOCKS, 0);
	space_close(space);
}

static void test_keeps_a_reserve(void **state)
{
	struct space *space;
	uint64_t block, all = 0, rest = 0;
	uint32_t leased;

	(void)state;
	assert_int_equal(space_open(FIRST, BLOCKS, &space), 0);
	space_reserve(space, 10);
	while ((leased = space_lease(space, 7, &block)))
		all += leased;
	assert_int_equal(all, BLOCKS - FIRST - 10);
	while ((leased = space_lease_reserved(space, 4, &block)))
		rest += leased;
	assert_int_equal(rest, 10);
	space_give(space, block, 1);
	assert_int_equal(space_lease(space, 1, &block), 0);
	/* Takes what is free, or nothing at all. */
	assert_int_equal(space_take(space, block - 1, 2), -EEXIST);
	assert_int_equal(space_take(space, BLOCKS, 1), -ERANGE);
	assert_int_equal(space_take(space, FIRST - 1, 1), -ERANGE);
	assert_int_equal(space_free_blocks(space), 1);
	assert_int_equal(space_take(space, block, 1), 0);
	assert_int_equal(space_free_blocks(space), 0);
	space_close(space);
}

static void test_grows(void **state)
{
	struct space *space;
	uint64_t block;

	(void)state;
	assert_int_equal(space_open(FIRST, FIRST + CHUNK_BLOCKS, &space), 0);
	assert_int_equal(space_lease(space, CHUNK_BLOCKS, &block), CHUNK_BLOCKS);
	assert_int_equal(block, FIRST);
	assert_int_equal(space_lease(space, 1, &block), 0);
	assert_int_equal(space_grow(space, FIRST + 130 * CHUNK_BLOCKS), 0);
	assert_int_equal(space_free_blocks(space), 129 * CHUNK_BLOCKS);
	for (uint32_t i = 0; i < 129; i++)
		assert_int_equal(space_lease(space, CHUNK_BLOCKS, &block), CHUNK_BLOCKS);
	assert_int_equal(space_lease(space, 1, &block), 0);
	space_close(space);
}

static void test_marks_find_overlaps(void **state)
{
	struct space *space, *copy;
	uint64_t block;

	(void)state;
	assert_int_equal(space_open(FIRST, BLOCKS, &space), 0);
	assert_int_equal(space_mark(space, FIRST + 10, 500), 0);
	assert_int_equal(space_mark(space, FIRST + 509, 2), -EEXIST);
	assert_int_equal(space_mark(space, FIRST - 1, 1), -ERANGE);
	assert_int_equal(space_mark(space, BLOCKS - 1, 2), -ERANGE);
	assert_int_equal(space_mark(space, UINT64_MAX - 1, 4), -ERANGE);
	assert_int_equal(space_used_blocks(space), 501);
	/* Like a snapshot. */
	assert_int_equal(space_open(FIRST, BLOCKS, &copy), 0);
	for (uint64_t i = FIRST / 64; i < space_word_count(space); i++) {
		uint64_t word = space_word(space, i);

		space_words_set(copy, i, &word, 1);
	}
	assert_int_equal(space_used_blocks(copy), 501);
	for (uint32_t i = 0; i < 10; i++) {
		assert_int_equal(space_lease(copy, 1, &block), 1);
		assert_true(block < FIRST + 10 || block >= FIRST + 511);
	}
	space_close(copy);
	space_close(space);
}

/* A damaged index may name blocks twice, or blocks that are free. */
static void test_rows_of_a_damaged_index_free_only_what_is_theirs(void **state)
{
	struct space *space;

	(void)state;
	assert_int_equal(space_open(FIRST, BLOCKS, &space), 0);
	assert_int_equal(space_mark(space, FIRST + 10, 20), 0);
	assert_int_equal(space_mark(space, FIRST + 25, 20), -EEXIST);
	assert_int_equal(space_mark(space, FIRST + 100, CHUNK_BLOCKS), 0);
	/* Either row could be the one that is right. */
	assert_int_equal(space_reclaim(space, FIRST + 10, 20), -EBUSY);
	assert_int_equal(space_reclaim(space, FIRST + 25, 20), -EBUSY);
	assert_int_equal(space_used_blocks(space), 35 + CHUNK_BLOCKS);
	assert_int_equal(space_reclaim(space, FIRST - 1, 2), -ERANGE);
	assert_int_equal(space_reclaim(space, BLOCKS - 1, 2), -ERANGE);
	/* The run crosses chunks, and its last block is free. */
	assert_int_equal(space_reclaim(space, FIRST + 100, CHUNK_BLOCKS + 1), -ENOENT);
	assert_int_equal(space_reclaim(space, FIRST + 100, CHUNK_BLOCKS), 0);
	assert_int_equal(space_reclaim(space, FIRST + 100, CHUNK_BLOCKS), -ENOENT);
	assert_int_equal(space_used_blocks(space), 35);
	/* Rows that are read from the index while it is held name the same blocks. */
	assert_int_equal(space_mark(space, FIRST + 200, 8), 0);
	space_hold(space);
	assert_int_equal(space_reclaim(space, FIRST + 200, 8), 0);
	assert_int_equal(space_reclaim(space, FIRST + 200, 8), 0);
	space_let_go(space);
	assert_int_equal(space_used_blocks(space), 35);
	space_close(space);
}

/* ---- Letting go of many runs, with other threads that wait for the allocator. ---- */

#define HELD_RUNS 7000u

static struct {
	struct space *space; /* NULL: no thread waits */
	bool holds;	     /* one that comes in between holds again */
	uint32_t leases;     /* of those that came in between */
} between;

int __real_pthread_mutex_unlock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock);

/* As if another thread had waited for the lock. */
int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock)
{
	int ret = __real_pthread_mutex_unlock(lock);
	struct space *space = between.space;
	uint64_t block;

	if (!space)
		return ret;
	between.space = NULL;
	if (space_held_blocks(space, NULL)) {
		assert_int_equal(space_lease(space, 1, &block), 1);
		between.leases++;
		if (between.holds && between.leases == 2)
			space_hold(space);
	}
	between.space = space;
	return ret;
}

/* One run is named twice. */
static struct space *held_open(bool holds)
{
	static uint64_t blocks[HELD_RUNS];
	struct space *space;

	assert_int_equal(space_open(FIRST, BLOCKS, &space), 0);
	for (uint32_t i = 0; i < HELD_RUNS; i++)
		assert_int_equal(space_lease(space, 1, &blocks[i]), 1);
	space_hold(space);
	for (uint32_t i = 0; i < HELD_RUNS; i++)
		space_give(space, blocks[i], 1);
	assert_int_equal(space_reclaim(space, blocks[3], 1), 0);
	between.leases = 0;
	between.holds = holds;
	between.space = space;
	space_let_go(space);
	between.space = NULL;
	return space;
}

static void test_others_get_in_while_many_runs_are_freed(void **state)
{
	struct space *space = held_open(false);
	uint32_t runs;

	(void)state;
	assert_in_range(between.leases, HELD_RUNS / 2048, 2 * HELD_RUNS / 2048);
	assert_int_equal(space_used_blocks(space), between.leases);
	assert_int_equal(space_held_blocks(space, &runs), 0);
	assert_int_equal(runs, 0);
	space_close(space);
}

static void test_what_is_not_freed_yet_is_held_again(void **state)
{
	struct space *space = held_open(true);
	uint64_t held = space_held_blocks(space, NULL);

	(void)state;
	/* Before the first part, after it, and at the end of the call. */
	assert_int_equal(between.leases, 3);
	assert_in_range(held, HELD_RUNS / 3, HELD_RUNS - 1);
	space_let_go(space);
	assert_int_equal(space_used_blocks(space), between.leases);
	assert_int_equal(space_held_blocks(space, NULL), 0);
	space_close(space);
}

/* Takes all space to be discarded; returns the number of blocks. */
static uint64_t discard_all(struct space *space, struct model *model, uint32_t *ret_runs)
{
	uint64_t cursor = 0, block, blocks, all = 0, free_blocks = space_free_blocks(space);

	*ret_runs = 0;
	while ((blocks = space_discard_begin(space, &cursor, &block))) {
		struct run taken;

		for (uint64_t i = 0; i < blocks; i++)
			assert_false(model->used[block + i]);
		assert_int_equal(space_free_blocks(space), free_blocks);
		/* Meanwhile no lease gets it. */
		for (uint32_t i = 0; i < 4; i++) {
			taken.blocks = space_lease(space, i ? 3 : CHUNK_BLOCKS, &taken.block);
			assert_true(taken.block + taken.blocks <= block ||
				    taken.block >= block + blocks);
			run_take(model, taken);
			free_blocks -= taken.blocks;
		}
		space_discard_end(space, block, blocks);
		assert_int_equal(space_free_blocks(space), free_blocks);
		all += blocks;
		(*ret_runs)++;
	}
	return all;
}

static void test_discards_what_was_given_back(void **state)
{
	struct model *model = (struct model *)calloc(1, sizeof(*model));
	struct space *space;
	struct run run;
	uint32_t runs;

	(void)state;
	assert_int_equal(space_open(FIRST, BLOCKS, &space), 0);
	for (uint32_t i = 0; i < 100; i++) {
		run.blocks = space_lease(space, CHUNK_BLOCKS, &run.block);
		run_take(model, run);
	}
	/* Blocks that were never used are not discarded. */
	assert_int_equal(discard_all(space, model, &runs), 0);
	for (uint32_t i = 0; i < 24; i++)
		run_give(model, space, 0);
	/* Adjacent chunks in few runs, each a part of the free space. */
	assert_true(discard_all(space, model, &runs) >= 8 * CHUNK_BLOCKS);
	assert_in_range(runs, 3, 12);
	assert_int_equal(discard_all(space, model, &runs), 0);
	space_close(space);
	memset(model, 0, sizeof(*model));
	assert_int_equal(space_open(FIRST, BLOCKS, &space), 0);
	assert_int_equal(space_mark(space, FIRST, CHUNK_BLOCKS), 0);
	for (uint32_t i = 0; i < CHUNK_BLOCKS; i++)
		model->used[FIRST + i] = true;
	/* Parts of a chunk, one of which is too short. */
	model->runs[model->run_count++] = (struct run){.block = FIRST + 8, .blocks = 40};
	model->runs[model->run_count++] = (struct run){.block = FIRST + 100, .blocks = 15};
	model->runs[model->run_count++] = (struct run){.block = FIRST + 200, .blocks = 16};
	while (model->run_count)
		run_give(model, space, 0);
	assert_int_equal(discard_all(space, model, &runs), 40 + 16);
	assert_int_equal(runs, 2);
	/* While space is held, freed blocks are not available. */
	space_hold(space);
	model->runs[0] = (struct run){.block = FIRST + 60, .blocks = 20};
	model->run_count = 1;
	run_give(model, space, 0);
	assert_int_equal(discard_all(space, model, &runs), 0);
	space_let_go(space);
	assert_true(discard_all(space, model, &runs) >= 20);
	space_close(space);
	free(model);
}

/* On a nearly full volume no space is taken for a discard, not even for a moment. */
static void test_discards_leave_room(void **state)
{
	uint64_t block, cursor = 0;
	struct space *space;

	(void)state;
	assert_int_equal(space_open(FIRST, FIRST + CHUNK_BLOCKS, &space), 0);
	assert_int_equal(space_lease(space, CHUNK_BLOCKS, &block), CHUNK_BLOCKS);
	space_give(space, block, CHUNK_BLOCKS - 1);
	assert_int_equal(space_discard_begin(space, &cursor, &block), 0);
	space_give(space, FIRST + CHUNK_BLOCKS - 1, 1);
	assert_int_equal(space_discard_begin(space, &cursor, &block), 16);
	assert_int_equal(space_lease(space, CHUNK_BLOCKS, &block), CHUNK_BLOCKS - 16);
	space_discard_end(space, cursor - 16, 16);
	space_close(space);
}

/* ---- A large space that is fragmented at random: a lease does not look through all of it. ---- */

#define LARGE_CHUNKS 65536ull /* 64 GiB */
#define LOOKS_MAX    4096u

/* The longest free run, up to the end of a chunk, of a space that is being filled with words of
 * which about 9 % are free. */
static uint32_t large_fill(struct space *space)
{
	uint32_t most = 0, run = 0;
	struct prng prng;

	prng_seed(&prng, 7);
	for (uint64_t idx = FIRST / 64; idx < space_word_count(space); idx++) {
		uint64_t word = UINT64_MAX;

		for (uint32_t i = 0; i < 6; i++)
			word &= ~(1ull << prng_below(&prng, 64));
		space_words_set(space, idx, &word, 1);
		run = idx % (CHUNK_BLOCKS / 64) ? run : 0;
		for (uint32_t bit = 0; bit < 64; bit++) {
			run = word >> bit & 1 ? 0 : run + 1;
			most = MAX(most, run);
		}
	}
	return most;
}

static uint32_t large_lease(struct space *space, uint32_t blocks, uint64_t *ret_block)
{
	uint64_t looks = space_looks(space);
	uint32_t leased = space_lease(space, blocks, ret_block);

	assert_true(space_looks(space) - looks <= LOOKS_MAX);
	return leased;
}

static void test_looks_at_a_bounded_part_of_a_fragmented_space(void **state)
{
	struct space *space;
	uint32_t most, leased;
	uint64_t block, other, used, taken = 0;

	(void)state;
	assert_int_equal(space_open(FIRST, LARGE_CHUNKS * CHUNK_BLOCKS, &space), 0);
	most = large_fill(space);
	assert_in_range(most, 4, 16);
	used = space_used_blocks(space);
	/* The longest runs first, then shorter ones. */
	for (uint32_t i = 0; i < 1000; i++, taken += leased, most = leased) {
		leased = large_lease(space, i % 2 ? 32 : CHUNK_BLOCKS, &block);
		assert_in_range(leased, i ? 1 : most, most);
	}
	for (uint32_t i = 0; i < 1000; i++, taken++)
		assert_int_equal(large_lease(space, 1, &block), 1);
	assert_int_equal(space_used_blocks(space), used + taken);
	/* A run that was given back, far away, is found again. */
	block = (LARGE_CHUNKS - 5) * CHUNK_BLOCKS + 100;
	for (uint64_t at = block; at < block + 40; at++)
		(void)space_mark(space, at, 1);
	space_give(space, block, 40);
	assert_int_equal(large_lease(space, 30, &other), 30);
	assert_in_range(other, block - 16, block + 16);
	space_close(space);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_others_get_in_while_many_runs_are_freed),
		cmocka_unit_test(test_what_is_not_freed_yet_is_held_again),
		cmocka_unit_test(test_never_gives_a_block_twice),
		cmocka_unit_test(test_small_runs_lie_side_by_side),
		cmocka_unit_test(test_grows),
		cmocka_unit_test(test_keeps_a_reserve),
		cmocka_unit_test(test_marks_find_overlaps),
		cmocka_unit_test(test_rows_of_a_damaged_index_free_only_what_is_theirs),
		cmocka_unit_test(test_discards_what_was_given_back),
		cmocka_unit_test(test_discards_leave_room),
		cmocka_unit_test(test_looks_at_a_bounded_part_of_a_fragmented_space),
	};

	return cmocka_run_group_tests_name("space", tests, NULL, NULL);
}
