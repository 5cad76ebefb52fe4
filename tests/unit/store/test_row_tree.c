/* tests/unit/store/test_row_tree.c: the ordered map in memory against a sorted array: rows of all
 * sizes put, replaced, deleted and cut off in random order, walked from every place. */
#include "../unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_priv.h"

#define KEYS	  6000u
#define VALUE_MAX 300u

struct model {
	struct row_tree *tree;
	struct prng prng;
	uint32_t live;
	/* In order of the keys. 0: absent; else the value's length, plus 1. */
	uint32_t value[KEYS];
};

/* Six bytes at least; longer for some, so that rows differ in size. */
static struct slice key_of(uint32_t i, char out[1100])
{
	uint32_t more = i % 97 == 0 ? 1000 : i % 13;

	out[0] = (char)(i >> 16);
	out[1] = (char)(i >> 8);
	out[2] = (char)i;
	memset(out + 3, (int)(i % 251), more);
	return slice_of(out, 3 + more);
}

static struct slice value_of(uint32_t i, uint32_t len, char out[VALUE_MAX])
{
	memset(out, (int)((i + len) % 253), len);
	return slice_of(out, len);
}

static void put(struct model *model, uint32_t i, uint32_t len)
{
	char key[1100], value[VALUE_MAX];

	assert_int_equal(row_tree_put(model->tree, key_of(i, key), value_of(i, len, value)), 0);
	model->live += !model->value[i];
	model->value[i] = len + 1;
}

static void drop(struct model *model, uint32_t i)
{
	char key[1100];

	row_tree_delete(model->tree, key_of(i, key));
	model->live -= model->value[i] != 0;
	model->value[i] = 0;
}

/* Walks from a key, which need not be there, to the end. */
static void compare(const struct model *model, uint32_t from)
{
	struct row_cursor cursor, skipped;
	struct slice key, value;
	uint32_t rows = 0;
	char room[1100], bytes[VALUE_MAX];

	row_tree_seek(model->tree, key_of(from, room), &cursor);
	for (uint32_t i = from; i < KEYS; i++)
		rows += model->value[i] != 0;
	skipped = cursor;
	assert_true(row_cursor_skip(&skipped, rows));
	assert_false(row_cursor_get(&skipped, &key, &value));
	skipped = cursor;
	assert_false(row_cursor_skip(&skipped, rows + 1));
	skipped = cursor;
	assert_true(row_cursor_skip(&skipped, rows / 2));
	for (uint32_t i = 0; i < rows / 2; i++)
		row_cursor_next(&cursor);
	assert_true(cursor.branch == skipped.branch && cursor.leaf == skipped.leaf &&
		    cursor.slot == skipped.slot);
	row_tree_seek(model->tree, key_of(from, room), &cursor);
	for (uint32_t i = from; i < KEYS; i++) {
		if (!model->value[i])
			continue;
		assert_true(row_cursor_get(&cursor, &key, &value));
		assert_true(slice_eq(key, key_of(i, room)));
		assert_true(slice_eq(value, value_of(i, model->value[i] - 1, bytes)));
		row_cursor_next(&cursor);
	}
	assert_false(row_cursor_get(&cursor, &key, &value));
	row_cursor_end(&cursor);
	assert_false(row_cursor_get(&cursor, &key, &value));
}

static void cut(struct model *model)
{
	char room[1100];
	struct slice key;
	uint32_t first = 0;

	assert_true(row_tree_tail(model->tree, &key));
	while (!slice_eq(key, key_of(first, room)))
		first++;
	row_tree_cut(model->tree);
	for (uint32_t i = first; i < KEYS; i++) {
		model->live -= model->value[i] != 0;
		model->value[i] = 0;
	}
}

static struct model *model_open(uint64_t seed)
{
	struct model *model = (struct model *)calloc(1, sizeof(*model));

	assert_non_null(model);
	prng_seed(&model->prng, seed);
	assert_int_equal(row_tree_open(&model->tree), 0);
	return model;
}

static void model_close(struct model *model)
{
	row_tree_close(model->tree);
	free(model);
}

/* Grows, stays, shrinks to nothing: a run of each. */
static void test_against_a_model(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct model *model = model_open(seed);

		for (uint32_t step = 0; step < 60000; step++) {
			uint32_t i = (uint32_t)prng_below(&model->prng, KEYS);
			uint64_t puts = step < 20000 ? 8 : step < 40000 ? 5 : 2;

			if (prng_below(&model->prng, 10) < puts)
				put(model, i, (uint32_t)prng_below(&model->prng, VALUE_MAX));
			else
				drop(model, i);
			if (step % 8191 == 0 && model->live)
				cut(model);
			if (step % 997 == 0) {
				compare(model, 0);
				compare(model, i);
			}
		}
		for (uint32_t i = 0; i < KEYS; i++)
			drop(model, i);
		compare(model, 0);
		assert_int_equal(model->live, 0);
		model_close(model);
	}
}

/* Bytes of rows by bytes of memory. */
static void assert_filled(const struct model *model, double least)
{
	char room[1100];
	double bytes = 0;

	for (uint32_t i = 0; i < KEYS; i++)
		if (model->value[i])
			bytes += (double)(key_of(i, room).len + model->value[i] + 5);
	assert_true(bytes >= least * (double)row_tree_bytes(model->tree));
}

static void test_rows_in_order_fill_their_leaves(void **state)
{
	struct model *model = model_open(1);

	(void)state;
	for (uint32_t i = 0; i < KEYS; i++)
		put(model, i, 100);
	compare(model, 0);
	assert_filled(model, 0.9);
	model_close(model);
}

/* Leaves that become small are joined. */
static void test_deleted_rows_give_their_memory_back(void **state)
{
	struct model *model = model_open(1);
	uint64_t bytes;

	(void)state;
	for (uint32_t i = 0; i < KEYS; i++)
		put(model, i, 200);
	bytes = row_tree_bytes(model->tree);
	for (uint32_t i = 0; i < KEYS; i++)
		if (i % 20)
			drop(model, i);
	compare(model, 0);
	assert_true(row_tree_bytes(model->tree) < bytes / 3);
	for (uint32_t i = 0; i < KEYS; i++)
		put(model, i, 200);
	compare(model, 0);
	assert_true(row_tree_bytes(model->tree) < 2 * bytes);
	while (model->live)
		cut(model);
	compare(model, 0);
	put(model, 5, 5);
	compare(model, 0);
	model_close(model);
}

static void test_a_row_too_large_is_refused(void **state)
{
	static char bytes[ROW_TREE_ROW_BYTES_MAX + 1];
	struct model *model = model_open(1);
	struct row_cursor cursor;
	struct slice key, value;

	(void)state;
	assert_int_equal(
		row_tree_put(model->tree, SLICE("a"), slice_of(bytes, sizeof(bytes) - 1)), -E2BIG);
	/* The largest ones, often replaced. */
	for (uint32_t round = 0; round < 3; round++)
		for (char c = 'a'; c <= 'z'; c++)
			assert_int_equal(row_tree_put(model->tree, slice_of(&c, 1),
						 slice_of(bytes, sizeof(bytes) - 2 - round)),
				0);
	row_tree_seek(model->tree, SLICE(""), &cursor);
	for (char c = 'a'; c <= 'z'; c++, row_cursor_next(&cursor)) {
		assert_true(row_cursor_get(&cursor, &key, &value));
		assert_true(slice_eq(key, slice_of(&c, 1)));
		assert_int_equal(value.len, sizeof(bytes) - 4);
	}
	model_close(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_against_a_model),
		cmocka_unit_test(test_rows_in_order_fill_their_leaves),
		cmocka_unit_test(test_deleted_rows_give_their_memory_back),
		cmocka_unit_test(test_a_row_too_large_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
