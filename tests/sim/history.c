/* tests/sim/history.c: see history.h. The search keeps all states that the key may be in: a value,
 * and which of the operations under way have already happened (Lowe 2017, just-in-time
 * linearization). */
#include "history.h"

#include <string.h>

#include "base/base.h"

#define STATES_MAX 16384u

struct open_op {
	uint32_t op;
	uint8_t kind;
	uint64_t value;
	bool used;
};

struct state {
	uint64_t value;
	uint64_t happened; /* a bit for each open operation */
};

struct search {
	struct open_op open[HISTORY_OPEN_MAX];
	struct state states[STATES_MAX];
	uint32_t state_count;
	uint64_t lost; /* a bit for each open operation that is */
	uint64_t (*bytes_of)(uint64_t value);
};

static struct history_event *event_add(struct history *history)
{
	CHECK(history->count < HISTORY_EVENTS_MAX);
	return &history->events[history->count++];
}

uint32_t history_begin(
	struct history *history, uint16_t key, enum history_kind kind, uint64_t value)
{
	uint32_t op = ++history->ops;

	*event_add(history) = (struct history_event){
		.op = op, .key = key, .kind = (uint8_t)kind, .what = HISTORY_BEGIN, .value = value};
	return op;
}

void history_end(
	struct history *history, uint32_t op, uint16_t key, enum history_kind kind, uint64_t value)
{
	*event_add(history) = (struct history_event){
		.op = op, .key = key, .kind = (uint8_t)kind, .what = HISTORY_END, .value = value};
}

void history_lost(struct history *history, uint32_t op, uint16_t key)
{
	*event_add(history) = (struct history_event){.op = op, .key = key, .what = HISTORY_LOST};
}

void history_life_end(struct history *history)
{
	*event_add(history) = (struct history_event){.what = HISTORY_LIFE_END};
}

/* Whether all that may come of b may come of a, too: they differ only in lost operations that have
 * happened in b and still may in a. */
static bool covers(struct state a, struct state b, uint64_t lost)
{
	return a.value == b.value && (a.happened & ~b.happened) == 0 &&
	       ((a.happened ^ b.happened) & ~lost) == 0;
}

static void state_add(struct search *search, struct state state)
{
	for (uint32_t i = 0; i < search->state_count; i++)
		if (covers(search->states[i], state, search->lost))
			return;
	CHECK(search->state_count < STATES_MAX);
	search->states[search->state_count++] = state;
}

/* Whether a read may happen in that state. */
static bool fits(const struct search *search, const struct open_op *open, uint64_t value)
{
	if (open->kind == HISTORY_READ)
		return open->value == value;
	if (value == HISTORY_ABSENT)
		return open->value == UINT64_MAX;
	return open->value == search->bytes_of(value);
}

/* Adds every state that can be reached by letting open operations happen. New states are appended
 * and come up in turn. */
static void states_close(struct search *search)
{
	for (uint32_t i = 0; i < search->state_count; i++)
		for (uint32_t bit = 0; bit < HISTORY_OPEN_MAX; bit++) {
			const struct open_op *open = &search->open[bit];
			struct state state = search->states[i];

			/* A read counts only at its end, when it is known what it saw. */
			if (!open->used || state.happened & 1ull << bit ||
				open->kind != HISTORY_WRITE)
				continue;
			state.happened |= 1ull << bit;
			state.value = open->value;
			state_add(search, state);
		}
}

static uint32_t open_find(struct search *search, uint32_t op)
{
	for (uint32_t bit = 0; bit < HISTORY_OPEN_MAX; bit++)
		if (search->open[bit].used && search->open[bit].op == op)
			return bit;
	return HISTORY_OPEN_MAX;
}

/* Forgets an operation; with `must`, and the states in which it has not happened. */
static void open_remove(struct search *search, uint32_t bit, bool must)
{
	uint32_t count = search->state_count;

	search->open[bit].used = false;
	search->lost &= ~(1ull << bit);
	search->state_count = 0;
	for (uint32_t i = 0; i < count; i++) {
		struct state state = search->states[i];

		if (must && !(state.happened & 1ull << bit))
			continue;
		state.happened &= ~(1ull << bit);
		state_add(search, state);
	}
}

/* A write's states are those at its end in which it has happened. A read may have seen any state
 * since it began: it keeps a mark of those in which it fitted once. */
static void reads_mark(struct search *search)
{
	for (uint32_t i = 0; i < search->state_count; i++)
		for (uint32_t bit = 0; bit < HISTORY_OPEN_MAX; bit++) {
			const struct open_op *open = &search->open[bit];
			struct state state = search->states[i];

			if (!open->used || open->kind == HISTORY_WRITE ||
				state.happened & 1ull << bit || !fits(search, open, state.value))
				continue;
			state.happened |= 1ull << bit;
			state_add(search, state);
		}
}

/* Lets everything happen that can, in every order. */
static void settle(struct search *search)
{
	uint32_t before;

	do {
		before = search->state_count;
		states_close(search);
		reads_mark(search);
	} while (search->state_count != before);
}

static void begin(struct search *search, const struct history *history, uint32_t at)
{
	const struct history_event *event = &history->events[at];
	struct open_op *open;
	uint32_t bit = 0;

	while (bit < HISTORY_OPEN_MAX && search->open[bit].used)
		bit++;
	CHECK(bit < HISTORY_OPEN_MAX);
	open = &search->open[bit];
	*open = (struct open_op){
		.op = event->op, .kind = event->kind, .value = event->value, .used = true};
	search->lost |= 1ull << bit;
	for (uint32_t i = at + 1; i < history->count; i++)
		if (history->events[i].op == event->op && history->events[i].what == HISTORY_END) {
			search->lost &= ~(1ull << bit);
			/* What a read saw is told at its end. */
			open->value = history->events[i].value;
			return;
		}
	/* A read without an end saw nothing. */
	open->used = event->kind == HISTORY_WRITE;
}

static bool end(struct search *search, const struct history_event *event)
{
	uint32_t bit = open_find(search, event->op);

	if (bit == HISTORY_OPEN_MAX)
		return true;
	settle(search);
	open_remove(search, bit, true);
	return search->state_count > 0;
}

static void life_end(struct search *search)
{
	settle(search);
	for (uint32_t bit = 0; bit < HISTORY_OPEN_MAX; bit++)
		if (search->open[bit].used)
			open_remove(search, bit, false);
}

bool history_explains(const struct history *history, uint16_t key,
	uint64_t (*bytes_of)(uint64_t value), uint32_t *ret_event)
{
	static struct search search;

	memset(&search, 0, sizeof(search));
	search.bytes_of = bytes_of;
	search.state_count = 1; /* absent */
	for (uint32_t i = 0; i < history->count; i++) {
		const struct history_event *event = &history->events[i];

		if (event->what == HISTORY_LIFE_END) {
			life_end(&search);
			continue;
		}
		if (event->key != key)
			continue;
		if (event->what == HISTORY_BEGIN)
			begin(&search, history, i);
		/* A lost write stays open until its life ends. */
		if (event->what == HISTORY_END && !end(&search, event)) {
			*ret_event = i;
			return false;
		}
	}
	return true;
}
