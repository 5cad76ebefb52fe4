/* replicate/window.c: the rows of a target that are in memory: a key's rows are sent in the order
 * of their commits, those of different keys in any order. */
#include "replicate/replicate_priv.h"

#include <stdlib.h>

bool window_add(struct window *window, uint64_t number, struct slice version_id, struct slice text)
{
	struct window_row *row;
	bool parsed;

	if (window->count == WINDOW_ROWS_MAX)
		return false;
	row = calloc(1, sizeof(*row));
	if (row)
		row->text = malloc(text.len + 1);
	if (!row || !row->text) {
		free(row);
		return false;
	}
	memcpy(row->text, text.data, text.len);
	slice_copy_str(slice_to(version_id, sizeof(row->version_id) - 1), row->version_id,
		sizeof(row->version_id));
	parsed = s3_replicate_row_parse(
		number, slice_str(row->version_id), slice_of(row->text, text.len), &row->row);
	CHECK(parsed);
	window->rows[window->count++] = row;
	return true;
}

static bool same_key(const struct window_row *one, const struct window_row *other)
{
	return slice_eq(one->row.key, other->row.key) &&
	       slice_eq(one->row.bucket, other->row.bucket);
}

/* Whether an earlier row of its key is not done. */
static bool is_blocked(const struct window *window, uint32_t idx)
{
	for (uint32_t i = 0; i < idx; i++)
		if (window->rows[i]->phase != WINDOW_DONE &&
			same_key(window->rows[i], window->rows[idx]))
			return true;
	return false;
}

struct window_row *window_take(struct window *window, uint64_t now_ns)
{
	for (uint32_t i = 0; i < window->count; i++) {
		struct window_row *row = window->rows[i];

		if (row->phase != WINDOW_WAITS || row->next_ns > now_ns || is_blocked(window, i))
			continue;
		row->phase = WINDOW_RUNS;
		return row;
	}
	return NULL;
}

uint64_t window_next_ns(const struct window *window)
{
	uint64_t next_ns = DEADLINE_NONE;

	for (uint32_t i = 0; i < window->count; i++)
		if (window->rows[i]->phase == WINDOW_WAITS && !is_blocked(window, i))
			next_ns = MIN(next_ns, window->rows[i]->next_ns);
	return next_ns;
}

void window_refused(struct window_row *row, uint64_t now_ns)
{
	uint32_t times = MIN(row->tries, 16u);

	CHECK(row->phase == WINDOW_RUNS);
	row->tries++;
	row->next_ns = now_ns + MIN(WINDOW_PAUSE_MIN << times, WINDOW_PAUSE_MAX);
	row->phase = WINDOW_WAITS;
}

uint32_t window_refused_count(const struct window *window)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < window->count; i++)
		count += window->rows[i]->phase != WINDOW_DONE && window->rows[i]->tries;
	return count;
}

static bool is_stuck(const struct window *window, uint32_t idx, uint64_t now_ns)
{
	if (window->rows[idx]->phase != WINDOW_WAITS)
		return false;
	for (uint32_t i = 0; i <= idx; i++) {
		const struct window_row *row = window->rows[i];

		if (row->phase == WINDOW_WAITS && row->tries && row->next_ns > now_ns &&
			same_key(row, window->rows[idx]))
			return true;
	}
	return false;
}

uint32_t window_stuck_count(const struct window *window, uint64_t now_ns)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < window->count; i++)
		count += is_stuck(window, i, now_ns);
	return count;
}

static void row_free(struct window_row *row)
{
	free(row->text);
	free(row);
}

uint32_t window_reap(struct window *window, uint64_t *numbers, uint32_t max)
{
	uint32_t kept = 0, count = 0;

	for (uint32_t i = 0; i < window->count; i++) {
		struct window_row *row = window->rows[i];

		if (row->phase != WINDOW_DONE || count == max) {
			window->rows[kept++] = row;
			continue;
		}
		numbers[count++] = row->row.number;
		row_free(row);
	}
	window->count = kept;
	return count;
}

void window_shed(struct window *window, uint64_t now_ns, struct parked *parked)
{
	bool stuck[WINDOW_ROWS_MAX];
	uint32_t kept = 0;

	for (uint32_t i = 0; i < window->count; i++)
		stuck[i] = is_stuck(window, i, now_ns);
	for (uint32_t i = 0; i < window->count; i++) {
		struct window_row *row = window->rows[i];

		if (!stuck[i]) {
			window->rows[kept++] = row;
			continue;
		}
		parked_add(parked, row->row.number, parked_hash(&row->row), row->row.time_ns);
		row_free(row);
	}
	window->count = kept;
}

void window_hurry(struct window *window)
{
	for (uint32_t i = 0; i < window->count; i++)
		window->rows[i]->next_ns = 0;
}

void window_free(struct window *window)
{
	for (uint32_t i = 0; i < window->count; i++)
		row_free(window->rows[i]);
	window->count = 0;
}
