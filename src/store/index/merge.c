/* store/index/merge.c: merges the mutations of many groups into one batch for the index: only the
 * last mutation of each key, in key order. A row that is overwritten or deleted soon after it was
 * written costs the index nothing, and adjacent rows are written together. */
#include "store/index/merge.h"
#include "store/log/journal.h"
#include "store/log/key.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MERGE_ROWS_FIRST 1024u

void index_merge_close(struct index_merge *merge)
{
	free(merge->rows);
	free(merge->order);
	*merge = (struct index_merge){0};
}

void index_merge_reset(struct index_merge *merge)
{
	merge->count = 0;
	merge->settled_count = 0;
}

static int merge_reserve(struct index_merge *merge, uint32_t count)
{
	uint32_t cap = MAX(merge->cap, MERGE_ROWS_FIRST);
	void *rows, *order;

	if (count <= merge->cap)
		return 0;
	while (cap < count)
		cap *= 2;
	rows = realloc(merge->rows, cap * sizeof(*merge->rows));
	if (!rows)
		return -ENOMEM;
	merge->rows = (struct mutation *)rows;
	order = realloc(merge->order, cap * sizeof(*merge->order));
	if (!order)
		return -ENOMEM;
	merge->order = (const struct mutation **)order;
	merge->cap = cap;
	return 0;
}

int index_merge_add(struct index_merge *merge, struct slice group, uint32_t count)
{
	int ret = merge_reserve(merge, merge->count + count);
	uint32_t end = merge->count + count;
	size_t at = 0;

	if (ret)
		return ret;
	while (merge->count < end) {
		ret = group_next(group, &at, &merge->rows[merge->count]);
		if (ret != 1)
			return -EUCLEAN;
		CHECK(merge->rows[merge->count].op != MUTATION_DELETE_PREFIX);
		merge->count++;
	}
	return 0;
}

/* By key; mutations of one key in log order, which is their order in memory. */
static int by_key(const void *a, const void *b)
{
	const struct mutation *row_a = *(const struct mutation *const *)a;
	const struct mutation *row_b = *(const struct mutation *const *)b;
	int order = slice_cmp(row_a->key, row_b->key);

	return order ? order : (row_a > row_b) - (row_a < row_b);
}

/* Such a row has a number that is never used again: when the merge has both the put and the
 * deletion, the index needs neither. */
static bool came_and_went(const struct mutation *first, const struct mutation *last)
{
	return first->op == MUTATION_PUT && last->op == MUTATION_DELETE &&
	       key_is_used_once(first->key);
}

void index_merge_settle(struct index_merge *merge)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < merge->count; i++)
		merge->order[i] = &merge->rows[i];
	qsort(merge->order, merge->count, sizeof(*merge->order), by_key);
	for (uint32_t i = 0; i < merge->count;) {
		const struct mutation *first = merge->order[i];
		const struct mutation *last = first;

		while (++i < merge->count && slice_eq(merge->order[i]->key, first->key))
			last = merge->order[i];
		if (!came_and_went(first, last))
			merge->order[kept++] = last;
	}
	merge->settled_count = kept;
}
