/* store/index/coalesce.c: the mutations of many groups become one batch for the index: for each key
 * the last word alone, in key order. A row that is overwritten or deleted soon after it was written
 * costs the index nothing, and neighbouring rows are written together. */
#include "store/index/coalesce.h"
#include "store/log/journal.h"
#include "store/log/key.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COALESCE_ROWS_FIRST 1024u

void coalesce_close(struct coalesce *coalesce)
{
	free(coalesce->rows);
	free(coalesce->order);
	*coalesce = (struct coalesce){0};
}

void coalesce_reset(struct coalesce *coalesce)
{
	coalesce->count = 0;
	coalesce->settled_count = 0;
}

static int coalesce_reserve(struct coalesce *coalesce, uint32_t count)
{
	uint32_t cap = MAX(coalesce->cap, COALESCE_ROWS_FIRST);
	void *rows, *order;

	if (count <= coalesce->cap)
		return 0;
	while (cap < count)
		cap *= 2;
	rows = realloc(coalesce->rows, cap * sizeof(*coalesce->rows));
	if (!rows)
		return -ENOMEM;
	coalesce->rows = (struct mutation *)rows;
	order = realloc(coalesce->order, cap * sizeof(*coalesce->order));
	if (!order)
		return -ENOMEM;
	coalesce->order = (const struct mutation **)order;
	coalesce->cap = cap;
	return 0;
}

int coalesce_add(struct coalesce *coalesce, struct slice group, uint32_t count)
{
	int ret = coalesce_reserve(coalesce, coalesce->count + count);
	uint32_t end = coalesce->count + count;
	size_t at = 0;

	if (ret)
		return ret;
	while (coalesce->count < end) {
		ret = group_next(group, &at, &coalesce->rows[coalesce->count]);
		if (ret != 1)
			return -EUCLEAN;
		CHECK(coalesce->rows[coalesce->count].op != MUTATION_DELETE_PREFIX);
		coalesce->count++;
	}
	return 0;
}

/* By key; of one key in the order of the log, which is that of the rows in memory. */
static int by_key(const void *a, const void *b)
{
	const struct mutation *row_a = *(const struct mutation *const *)a;
	const struct mutation *row_b = *(const struct mutation *const *)b;
	int order = slice_cmp(row_a->key, row_b->key);

	return order ? order : (row_a > row_b) - (row_a < row_b);
}

/* Such a row has a number that is never used again: when both are here the index need not hear of
 * it. */
static bool came_and_went(const struct mutation *first, const struct mutation *last)
{
	return first->op == MUTATION_PUT && last->op == MUTATION_DELETE &&
	       key_is_used_once(first->key);
}

void coalesce_settle(struct coalesce *coalesce)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < coalesce->count; i++)
		coalesce->order[i] = &coalesce->rows[i];
	qsort(coalesce->order, coalesce->count, sizeof(*coalesce->order), by_key);
	for (uint32_t i = 0; i < coalesce->count;) {
		const struct mutation *first = coalesce->order[i];
		const struct mutation *last = first;

		while (++i < coalesce->count && slice_eq(coalesce->order[i]->key, first->key))
			last = coalesce->order[i];
		if (!came_and_went(first, last))
			coalesce->order[kept++] = last;
	}
	coalesce->settled_count = kept;
}
