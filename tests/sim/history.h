/* tests/sim/history.h: the requests and answers of the clients, by key, over all lives; and a check
 * whether some order of events explains them.
 *
 * A key has versions and multipart uploads. history.c defines the effect of each operation on them;
 * each key is searched by itself. */
#ifndef SIM_HISTORY_H
#define SIM_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#define HISTORY_EVENTS_MAX   65536u
#define HISTORY_OPS_MAX	     32768u
#define HISTORY_OPEN_MAX     64u
#define HISTORY_VALUES_MAX   16384u
#define HISTORY_CHAINS_MAX   8192u
#define HISTORY_NAMES_MAX    16384u
#define HISTORY_ENTRIES_MAX  131072u
#define HISTORY_VERSIONS_MAX 48u /* of a key */
#define HISTORY_UPLOADS_MAX  8u	 /* of a key, in progress */
#define HISTORY_PARTS_MAX    3u	 /* of an upload */
#define HISTORY_NAME_BYTES   48u

/* Contents: one written value, or several values joined. */
#define HISTORY_ABSENT 0u
#define HISTORY_MARKER UINT32_MAX /* read by its version: a delete marker */
#define HISTORY_CHAIN  0x80000000u

/* Names of versions and uploads, as numbers. */
#define HISTORY_UNNAMED 0u
#define HISTORY_NULL	1u /* the version "null" */

enum history_kind {
	HISTORY_PUT,		/* content, if the condition holds */
	HISTORY_APPEND,		/* content added to the object's end */
	HISTORY_DELETE,		/* of a key; with versioning, a delete marker */
	HISTORY_DELETE_VERSION, /* name */
	HISTORY_MODE,		/* mode: versioning enabled or suspended */
	HISTORY_UPLOAD,		/* creates one */
	HISTORY_PART,		/* upload, part, content */
	HISTORY_COMPLETE,	/* upload, parts; content */
	HISTORY_ABORT,		/* upload */
	HISTORY_READ,		/* answer: content, name */
	HISTORY_READ_VERSION,	/* name; answer: content */
	HISTORY_SIZE,		/* of a listing: bytes; UINT64_MAX: no such key */
	HISTORY_VERSIONS,	/* answer: all versions, newest first */
	HISTORY_UPLOADS,	/* answer: all uploads */
	HISTORY_PARTS,		/* upload; answer: its parts */
};

enum history_condition { HISTORY_ALWAYS, HISTORY_IF_ABSENT, HISTORY_IF_CONTENT, HISTORY_IF_BYTES };
enum history_mode { HISTORY_NEVER, HISTORY_ENABLED, HISTORY_SUSPENDED };

enum history_outcome {
	HISTORY_LOST,	 /* unknown: it happens before the end of the life, or never */
	HISTORY_DONE,	 /* it happened between its start and its end */
	HISTORY_REFUSED, /* it did not happen: its condition did not hold, or its upload had ended
			  */
	HISTORY_NOTHING, /* it did not happen, for another reason */
};

struct history_entry { /* of a listing */
	uint32_t name;
	uint32_t part;
	uint64_t bytes;
	bool is_marker;
};

struct history_op {
	uint16_t key;
	uint8_t kind, condition, mode, part;
	uint8_t outcome;
	uint32_t content;
	uint32_t name;	 /* of the version or upload that was created, deleted or read */
	uint32_t upload; /* that it belongs to */
	uint64_t expected;
	uint64_t bytes;
	uint32_t parts[HISTORY_PARTS_MAX]; /* values; HISTORY_ABSENT: part not named */
	uint32_t entry_first, entry_count;
	uint32_t begin_at, end_at; /* its events; end_at of one that was lost: its life's end */
};

struct history {
	/* Keys from this one on end with each life (0: none); evicts: and at any time before. */
	uint16_t key_memory;
	bool evicts;
	uint32_t event_count, op_count, chain_count, name_count, entry_count, value_count;
	struct {
		uint32_t op; /* HISTORY_UNNAMED: a life ends */
		bool is_end;
	} events[HISTORY_EVENTS_MAX];
	struct history_op ops[HISTORY_OPS_MAX];
	struct {
		uint32_t bytes;
		uint16_t key; /* the key that it was made for */
	} values[HISTORY_VALUES_MAX];
	struct {
		uint32_t before, value;
		uint64_t bytes;
	} chains[HISTORY_CHAINS_MAX];
	char names[HISTORY_NAMES_MAX][HISTORY_NAME_BYTES];
	struct history_entry entries[HISTORY_ENTRIES_MAX];
};

/* A new value of so many bytes, for a key. */
uint32_t history_value(struct history *history, uint16_t key, uint32_t bytes);
/* A content and one more value (HISTORY_ABSENT: the value alone), and the length of a content. */
uint32_t history_chain(struct history *history, uint32_t before, uint32_t value);
uint64_t history_bytes(const struct history *history, uint32_t content);
/* "" is HISTORY_UNNAMED. */
uint32_t history_name(struct history *history, const char *name);
/* Adds an entry of a listing's answer. */
void history_entry_add(struct history *history, uint32_t op, const struct history_entry *entry);

/* Starts an operation and returns its number. The answer is put into history->ops before the
 * operation's end. */
uint32_t history_begin(struct history *history, const struct history_op *op);
void history_end(struct history *history, uint32_t op, enum history_outcome outcome);
/* A life is over: open operations that have not happened never will. */
void history_life_end(struct history *history);

/* Whether one order of the operations on a key explains all answers: each completed operation
 * happens at one moment between its start and its end (Herlihy and Wing 1990), and a lost one at a
 * moment before the end of its life, or never. HISTORY_UNEXPLAINED: *ret_op is the first operation
 * without an explanation. HISTORY_UNDECIDED: so many orders are possible that they cannot be
 * searched. */
enum history_verdict { HISTORY_EXPLAINED, HISTORY_UNEXPLAINED, HISTORY_UNDECIDED };
enum history_verdict history_judge(struct history *history, uint16_t key, uint32_t *ret_op);
/* Prints the history of a key on standard output. */
void history_show(const struct history *history, uint16_t key);

#endif
