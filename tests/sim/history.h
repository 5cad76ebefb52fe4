/* tests/sim/history.h: what clients asked for and what they were told, by key, over all lives; and
 * whether some order of events explains it. */
#ifndef SIM_HISTORY_H
#define SIM_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#define HISTORY_EVENTS_MAX 65536u
#define HISTORY_OPEN_MAX   64u
#define HISTORY_ABSENT	   0u

enum history_kind {
	HISTORY_WRITE, /* PUT of a value, or DELETE: HISTORY_ABSENT */
	HISTORY_READ,  /* the value */
	HISTORY_SIZE,  /* what a listing tells: a length, UINT64_MAX when the key was not listed */
};

/* In the order in which things happened. */
struct history_event {
	uint32_t op; /* of whose beginning or end it is */
	uint16_t key;
	uint8_t kind;
	enum { HISTORY_BEGIN, HISTORY_END, HISTORY_LOST, HISTORY_LIFE_END } what;
	uint64_t value;
};

struct history {
	uint32_t count;
	uint32_t ops;
	struct history_event events[HISTORY_EVENTS_MAX];
};

/* An operation begins: its number. */
uint32_t history_begin(
	struct history *history, uint16_t key, enum history_kind kind, uint64_t value);
/* It was acknowledged; of a read, with what it saw. */
void history_end(
	struct history *history, uint32_t op, uint16_t key, enum history_kind kind, uint64_t value);
/* It came to nothing that its client knows of: of a write, it may have happened, or may still. */
void history_lost(struct history *history, uint32_t op, uint16_t key);
/* A life is over: what did not happen by now never will. */
void history_life_end(struct history *history);

/* Whether one order of the operations on a key explains all that was read: each operation happens
 * at one moment between its beginning and its end (Herlihy and Wing 1990), and a write that was
 * lost at one before the end of its life, or never. False: *ret_event is the one that nothing
 * explains. bytes_of tells a value's length. */
bool history_explains(const struct history *history, uint16_t key,
	uint64_t (*bytes_of)(uint64_t value), uint32_t *ret_event);

#endif
