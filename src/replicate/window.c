/* replicate/window.c: the rows of a target that are in memory: a key's rows are sent in the order
 * of their commits, those of different keys in any order, and those of different buckets in turn.
 */
#include "replicate/replicate_priv.h"

#include <stdlib.h>

#include "codec/xxh.h"

uint32_t window_slot(struct slice bucket)
{
	struct xxh64 xxh;
	uint8_t digest[XXH64_BYTES];

	xxh64_init(&xxh);
	xxh64_update(&xxh, bucket.data, bucket.len);
	xxh64_final(&xxh, digest);
	return digest[0] % WINDOW_SLOTS;
}

bool window_has_room(const struct window *window, uint32_t slot)
{
	return window->of_slot[slot] < WINDOW_ROWS_MAX - window->count;
}

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
	row->slot = window_slot(row->row.bucket);
	window->of_slot[row->slot]++;
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

/* Long rows hold at most all lanes but two: a short one never waits for the end of long ones. */
static bool long_rows_wait(const struct window *window)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < window->count; i++)
		count += window->rows[i]->phase == WINDOW_RUNS &&
			 window->rows[i]->row.bytes > LONG_BYTES;
	return count >= LANES - 2;
}

struct window_row *window_take(struct window *window, uint64_t now_ns)
{
	struct window_row *found = NULL;
	bool long_wait = long_rows_wait(window);

	for (uint32_t i = 0; i < window->count; i++) {
		struct window_row *row = window->rows[i];

		if (row->phase != WINDOW_WAITS || row->next_ns > now_ns ||
			(long_wait && row->row.bytes > LONG_BYTES))
			continue;
		if (found && window->turn_of_slot[row->slot] >= window->turn_of_slot[found->slot])
			continue;
		if (!is_blocked(window, i))
			found = row;
	}
	if (found) {
		found->phase = WINDOW_RUNS;
		window->turn_of_slot[found->slot] = ++window->turns;
	}
	return found;
}

uint64_t window_next_ns(const struct window *window)
{
	uint64_t next_ns = DEADLINE_NONE;
	bool long_wait = long_rows_wait(window);

	for (uint32_t i = 0; i < window->count; i++) {
		const struct window_row *row = window->rows[i];

		if (row->phase == WINDOW_WAITS && !(long_wait && row->row.bytes > LONG_BYTES) &&
			!is_blocked(window, i))
			next_ns = MIN(next_ns, row->next_ns);
	}
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

static bool is_stuck(const struct window *window, uint32_t idx, uint32_t slot, uint64_t now_ns)
{
	if (window->rows[idx]->phase != WINDOW_WAITS || window->rows[idx]->slot != slot)
		return false;
	for (uint32_t i = 0; i <= idx; i++) {
		const struct window_row *row = window->rows[i];

		if (row->phase == WINDOW_WAITS && row->tries && row->next_ns > now_ns &&
			same_key(row, window->rows[idx]))
			return true;
	}
	return false;
}

uint32_t window_stuck_count(const struct window *window, uint32_t slot, uint64_t now_ns)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < window->count && window->of_slot[slot]; i++)
		count += is_stuck(window, i, slot, now_ns);
	return count;
}

static void row_free(struct window *window, struct window_row *row)
{
	window->of_slot[row->slot]--;
	free(row->text);
	free(row);
}

uint32_t window_done(const struct window *window, uint64_t numbers[WINDOW_ROWS_MAX])
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < window->count; i++)
		if (window->rows[i]->phase == WINDOW_DONE)
			numbers[count++] = window->rows[i]->row.number;
	return count;
}

void window_reap(struct window *window, const uint64_t *numbers, uint32_t count)
{
	uint32_t kept = 0, reaped = 0;

	for (uint32_t i = 0; i < window->count; i++) {
		struct window_row *row = window->rows[i];

		if (reaped == count || row->row.number != numbers[reaped]) {
			window->rows[kept++] = row;
			continue;
		}
		reaped++;
		row_free(window, row);
	}
	window->count = kept;
}

void window_shed(struct window *window, uint32_t slot, uint64_t now_ns, struct parked *parked)
{
	bool stuck[WINDOW_ROWS_MAX];
	uint32_t kept = 0;

	for (uint32_t i = 0; i < window->count; i++)
		stuck[i] = is_stuck(window, i, slot, now_ns);
	for (uint32_t i = 0; i < window->count; i++) {
		struct window_row *row = window->rows[i];

		if (!stuck[i]) {
			window->rows[kept++] = row;
			continue;
		}
		parked_add(parked, row->row.number, parked_hash(&row->row), row->row.time_ns);
		row_free(window, row);
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
		row_free(window, window->rows[i]);
	window->count = 0;
}
