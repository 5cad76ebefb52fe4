/* tests/sim/history.c: see history.h. The search keeps all states that the key may be in: its
 * versions and uploads, and which of the open operations have already happened (Lowe 2017,
 * just-in-time linearization). */
#include "history.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

#define STATES_MAX 16384u

/* ---- Recording. ---- */

uint32_t history_value(struct history *history, uint16_t key, uint32_t bytes)
{
	uint32_t value = ++history->value_count;

	CHECK(value < HISTORY_VALUES_MAX);
	history->values[value].bytes = bytes;
	history->values[value].key = key;
	return value;
}

uint64_t history_bytes(const struct history *history, uint32_t content)
{
	if (content & HISTORY_CHAIN)
		return history->chains[content & ~HISTORY_CHAIN].bytes;
	return history->values[content].bytes;
}

uint32_t history_chain(struct history *history, uint32_t before, uint32_t value)
{
	uint32_t at = history->chain_count;

	if (before == HISTORY_ABSENT)
		return value;
	for (uint32_t i = 0; i < at; i++)
		if (history->chains[i].before == before && history->chains[i].value == value)
			return HISTORY_CHAIN | i;
	CHECK(at < HISTORY_CHAINS_MAX);
	history->chain_count++;
	history->chains[at].before = before;
	history->chains[at].value = value;
	history->chains[at].bytes = history_bytes(history, before) + history_bytes(history, value);
	return HISTORY_CHAIN | at;
}

uint32_t history_name(struct history *history, const char *name)
{
	if (!name[0])
		return HISTORY_UNNAMED;
	if (!strcmp(name, "null"))
		return HISTORY_NULL;
	CHECK(strlen(name) < HISTORY_NAME_BYTES);
	for (uint32_t i = history->name_count; i-- > 0;)
		if (!strcmp(history->names[i], name))
			return i + HISTORY_NULL + 1;
	CHECK(history->name_count + HISTORY_NULL + 1 < HISTORY_NAMES_MAX);
	snprintf(history->names[history->name_count], HISTORY_NAME_BYTES, "%s", name);
	return history->name_count++ + HISTORY_NULL + 1;
}

void history_entry_add(struct history *history, uint32_t op, const struct history_entry *entry)
{
	struct history_op *of = &history->ops[op];

	CHECK(history->entry_count < HISTORY_ENTRIES_MAX);
	if (!of->entry_count)
		of->entry_first = history->entry_count;
	CHECK(of->entry_first + of->entry_count == history->entry_count);
	of->entry_count++;
	history->entries[history->entry_count++] = *entry;
}

static void event_add(struct history *history, uint32_t op, bool is_end)
{
	CHECK(history->event_count < HISTORY_EVENTS_MAX);
	history->events[history->event_count].op = op;
	history->events[history->event_count++].is_end = is_end;
}

uint32_t history_begin(struct history *history, const struct history_op *op)
{
	uint32_t number = ++history->op_count;

	CHECK(number < HISTORY_OPS_MAX);
	history->ops[number] = *op;
	history->ops[number].begin_at = history->event_count;
	history->ops[number].end_at = UINT32_MAX;
	event_add(history, number, false);
	return number;
}

void history_end(struct history *history, uint32_t op, enum history_outcome outcome)
{
	history->ops[op].outcome = (uint8_t)outcome;
	if (outcome == HISTORY_LOST)
		return;
	history->ops[op].end_at = history->event_count;
	event_add(history, op, true);
}

void history_life_end(struct history *history)
{
	for (uint32_t i = 1; i <= history->op_count; i++)
		history->ops[i].end_at = MIN(history->ops[i].end_at, history->event_count);
	event_add(history, HISTORY_UNNAMED, true);
}

/* ---- The state of a key. ---- */

struct version {
	uint32_t op; /* that created it; 0: it is "null" */
	uint32_t content;
};

struct upload {
	uint32_t op;
	uint32_t parts[HISTORY_PARTS_MAX];
};

/* The bytes after the counts are zero, so that states can be compared as bytes. */
struct state {
	uint64_t happened; /* a bit for each open operation */
	uint32_t mode, version_count, upload_count;
	uint32_t reserved;
	struct version versions[HISTORY_VERSIONS_MAX]; /* the newest first */
	struct upload uploads[HISTORY_UPLOADS_MAX];
};

struct open_op {
	uint32_t op;
	bool used;
	bool reads; /* it does not change the state */
	bool step;  /* of an ABORT: the parts are deleted, before the upload is */
};

static struct search {
	struct history *history;
	struct open_op open[HISTORY_OPEN_MAX];
	struct state states[STATES_MAX];
	uint32_t state_count;
	bool full;			     /* more states than fit */
	bool ends, evicts;		     /* the key's object: with a life, and at any time */
	uint64_t lost;			     /* a bit for each open operation that is lost */
	uint32_t made_by[HISTORY_NAMES_MAX]; /* by name: the operation; 0: unknown */
	uint32_t name_of[HISTORY_OPS_MAX];   /* by operation: the name; 0: unknown */
	uint32_t maker[HISTORY_OPS_MAX]; /* one of the operations that complete the same upload */
} search;

static uint32_t current_content(const struct state *state)
{
	return state->version_count ? state->versions[0].content : HISTORY_ABSENT;
}

static void version_remove(struct state *state, uint32_t at)
{
	memmove(&state->versions[at], &state->versions[at + 1],
		(--state->version_count - at) * sizeof(struct version));
	state->versions[state->version_count] = (struct version){0};
}

/* The index of the version that an operation created (0: of "null"); version_count: none. */
static uint32_t version_find(const struct state *state, uint32_t op)
{
	uint32_t at = 0;

	while (at < state->version_count && state->versions[at].op != op)
		at++;
	return at;
}

static void null_remove(struct state *state)
{
	uint32_t at = version_find(state, 0);

	if (at < state->version_count)
		version_remove(state, at);
}

static void version_push(struct state *state, uint32_t op, uint32_t content)
{
	bool enabled = state->mode == HISTORY_ENABLED;

	if (!enabled)
		null_remove(state);
	CHECK(state->version_count < HISTORY_VERSIONS_MAX);
	memmove(&state->versions[1], &state->versions[0],
		state->version_count++ * sizeof(struct version));
	state->versions[0] = (struct version){enabled ? op : 0, content};
}

static struct upload *upload_find(struct state *state, uint32_t name)
{
	for (uint32_t i = 0; i < state->upload_count; i++)
		if (name && state->uploads[i].op == search.made_by[name])
			return &state->uploads[i];
	return NULL;
}

/* Uploads are in the order of their operations. */
static void upload_add(struct state *state, uint32_t op)
{
	uint32_t at = state->upload_count;

	CHECK(state->upload_count < HISTORY_UPLOADS_MAX);
	while (at && state->uploads[at - 1].op > op)
		at--;
	memmove(&state->uploads[at + 1], &state->uploads[at],
		(state->upload_count++ - at) * sizeof(struct upload));
	state->uploads[at] = (struct upload){.op = op};
}

static void upload_remove(struct state *state, const struct upload *upload)
{
	uint32_t at = (uint32_t)(upload - state->uploads);

	memmove(&state->uploads[at], &state->uploads[at + 1],
		(--state->upload_count - at) * sizeof(struct upload));
	state->uploads[state->upload_count] = (struct upload){0};
}

/* ---- The effects of operations. ---- */

static bool condition_holds(const struct state *state, const struct history_op *op)
{
	uint32_t content = current_content(state);

	switch ((enum history_condition)op->condition) {
	case HISTORY_ALWAYS:
		return true;
	case HISTORY_IF_ABSENT:
		return content == HISTORY_ABSENT;
	case HISTORY_IF_CONTENT:
		return content == op->expected;
	case HISTORY_IF_BYTES:
		return history_bytes(search.history, content) == op->expected;
	}
	return false;
}

/* The version id in a write's answer shows whether versioning was enabled. */
static bool name_fits(const struct state *state, const struct history_op *op)
{
	return !op->name || (op->name == HISTORY_NULL) == (state->mode != HISTORY_ENABLED);
}

static bool parts_match(const struct upload *upload, const struct history_op *op)
{
	for (uint32_t i = 0; i < HISTORY_PARTS_MAX; i++)
		if (op->parts[i] && upload->parts[i] != op->parts[i])
			return false;
	return true;
}

static void delete_version(struct state *state, uint32_t name)
{
	uint32_t by = search.made_by[name], at = state->version_count;

	if (name == HISTORY_NULL || by)
		at = version_find(state, name == HISTORY_NULL ? 0 : by);
	if (at < state->version_count)
		version_remove(state, at);
}

static void delete_key(struct state *state, uint32_t number)
{
	if (state->mode == HISTORY_NEVER)
		null_remove(state);
	else
		version_push(state, number, HISTORY_ABSENT);
}

static bool upload_changes(struct state *state, const struct open_op *open)
{
	const struct history_op *op = &search.history->ops[open->op];
	struct upload *upload = upload_find(state, op->upload);

	if (op->kind == HISTORY_ABORT) {
		/* Another client may have completed it first. */
		if (upload && open->step)
			memset(upload->parts, 0, sizeof(upload->parts));
		else if (upload)
			upload_remove(state, upload);
		return true;
	}
	/* A repeated completion gets the same answer while the key has the object of that
	 * upload. */
	if (!upload)
		return op->kind == HISTORY_COMPLETE && op->outcome == HISTORY_DONE &&
		       current_content(state) == op->content;
	if (op->kind == HISTORY_PART) {
		upload->parts[op->part] = op->content;
		return true;
	}
	if (!parts_match(upload, op) || !name_fits(state, op))
		return false;
	version_push(state, search.maker[open->op], op->content);
	upload_remove(state, upload);
	return true;
}

/* Whether the operation can happen in that state; changes the state if so. */
static bool happens(struct state *state, const struct open_op *open)
{
	const struct history_op *op = &search.history->ops[open->op];
	uint32_t content = op->content;

	switch (op->kind) {
	case HISTORY_APPEND:
		content = history_chain(search.history, current_content(state), content);
		/* fallthrough */
	case HISTORY_PUT:
		if (!condition_holds(state, op) || !name_fits(state, op))
			return false;
		version_push(state, open->op, content);
		return true;
	case HISTORY_DELETE:
		if (!condition_holds(state, op) || !name_fits(state, op))
			return false;
		delete_key(state, open->op);
		return true;
	case HISTORY_DELETE_VERSION:
		delete_version(state, op->name);
		return true;
	case HISTORY_MODE:
		state->mode = op->mode;
		return true;
	case HISTORY_UPLOAD:
		upload_add(state, open->op);
		return true;
	default:
		return upload_changes(state, open);
	}
}

/* ---- The answers. ---- */

/* A version whose name no answer had may have any unknown name. */
static bool is_named(const struct version *version, uint32_t name)
{
	if (!version->op || name == HISTORY_NULL)
		return !version->op && name == HISTORY_NULL;
	if (search.name_of[version->op])
		return search.name_of[version->op] == name;
	return !search.made_by[name];
}

static bool versions_fit(const struct state *state, const struct history_op *op)
{
	if (op->entry_count != state->version_count)
		return false;
	for (uint32_t i = 0; i < op->entry_count; i++) {
		const struct history_entry *entry = &search.history->entries[op->entry_first + i];
		const struct version *version = &state->versions[i];

		if (!is_named(version, entry->name) ||
			entry->is_marker != (version->content == HISTORY_ABSENT) ||
			entry->bytes != history_bytes(search.history, version->content))
			return false;
	}
	return true;
}

static bool uploads_fit(const struct state *state, const struct history_op *op)
{
	uint64_t met = 0;

	for (uint32_t i = 0; i < op->entry_count; i++) {
		uint32_t name = search.history->entries[op->entry_first + i].name, at = 0;

		while (at < state->upload_count &&
			(met & 1ull << at ||
				!is_named(&(struct version){.op = state->uploads[at].op}, name)))
			at++;
		met |= 1ull << at;
		if (at == state->upload_count)
			return false;
	}
	return op->entry_count == state->upload_count;
}

static bool parts_fit(const struct upload *upload, const struct history_op *op)
{
	uint64_t bytes[HISTORY_PARTS_MAX] = {0};

	for (uint32_t i = 0; i < op->entry_count; i++) {
		const struct history_entry *entry = &search.history->entries[op->entry_first + i];

		if (entry->part >= HISTORY_PARTS_MAX)
			return false;
		bytes[entry->part] = entry->bytes;
	}
	for (uint32_t i = 0; i < HISTORY_PARTS_MAX; i++)
		if (bytes[i] != history_bytes(search.history, upload->parts[i]))
			return false;
	return true;
}

static bool version_fits(const struct state *state, const struct history_op *op)
{
	uint32_t by = search.made_by[op->name], at;

	if (op->name != HISTORY_NULL && !by)
		return true;
	at = version_find(state, op->name == HISTORY_NULL ? 0 : by);
	if (at == state->version_count)
		return op->content == HISTORY_ABSENT;
	return op->content ==
	       (state->versions[at].content ? state->versions[at].content : HISTORY_MARKER);
}

/* Whether a read may get that answer in this state. */
static bool fits(struct state *state, const struct open_op *open)
{
	const struct history_op *op = &search.history->ops[open->op];
	uint32_t content = current_content(state);

	if (op->outcome == HISTORY_REFUSED)
		return op->upload ? !upload_find(state, op->upload) : !condition_holds(state, op);
	switch (op->kind) {
	case HISTORY_READ:
		return content == op->content &&
		       (!op->name || !content || is_named(&state->versions[0], op->name));
	case HISTORY_READ_VERSION:
		return version_fits(state, op);
	case HISTORY_SIZE:
		return op->bytes == (content ? history_bytes(search.history, content) : UINT64_MAX);
	case HISTORY_VERSIONS:
		return versions_fit(state, op);
	case HISTORY_UPLOADS:
		return uploads_fit(state, op);
	default:
		return upload_find(state, op->upload) &&
		       parts_fit(upload_find(state, op->upload), op);
	}
}

/* ---- The search. ---- */

/* Whether every future of b is also a future of a: they differ only in lost operations that have
 * happened in b and may still happen in a. */
static bool covers(const struct state *a, const struct state *b)
{
	return (a->happened & ~b->happened) == 0 &&
	       ((a->happened ^ b->happened) & ~search.lost) == 0 &&
	       a->version_count == b->version_count && a->upload_count == b->upload_count &&
	       !memcmp(&a->mode, &b->mode, sizeof(*a) - offsetof(struct state, mode));
}

static void state_add(const struct state *state)
{
	for (uint32_t i = 0; i < search.state_count; i++)
		if (covers(&search.states[i], state))
			return;
	if (search.state_count == STATES_MAX)
		search.full = true;
	else
		search.states[search.state_count++] = *state;
}

/* Adds every state that open operations can lead to; a read can happen in any state that fits its
 * answer. New states are appended and handled in turn. */
static void settle(void)
{
	for (uint32_t i = 0; i < search.state_count; i++) {
		if (search.evicts && search.states[i].version_count) {
			struct state without = search.states[i];

			null_remove(&without);
			state_add(&without);
		}
		for (uint32_t bit = 0; bit < HISTORY_OPEN_MAX; bit++) {
			const struct open_op *open = &search.open[bit];
			struct state state;

			if (!open->used || search.states[i].happened & 1ull << bit)
				continue;
			state = search.states[i];
			if (open->reads ? !fits(&state, open) : !happens(&state, open))
				continue;
			state.happened |= 1ull << bit;
			state_add(&state);
		}
	}
}

/* Removes an operation; with `must`, also the states in which it has not happened. */
static void open_remove(uint32_t bit, bool must)
{
	uint32_t count = search.state_count;

	search.open[bit].used = false;
	search.lost &= ~(1ull << bit);
	search.state_count = 0;
	for (uint32_t i = 0; i < count; i++) {
		struct state state = search.states[i];

		if (must && !(state.happened & 1ull << bit))
			continue;
		state.happened &= ~(1ull << bit);
		state_add(&state);
	}
}

static void open_add(uint32_t op, bool step)
{
	const struct history_op *of = &search.history->ops[op];
	uint32_t bit = 0;

	while (bit < HISTORY_OPEN_MAX && search.open[bit].used)
		bit++;
	CHECK(bit < HISTORY_OPEN_MAX);
	search.open[bit] = (struct open_op){.op = op, .used = true, .step = step};
	search.open[bit].reads = of->kind >= HISTORY_READ || of->outcome == HISTORY_REFUSED;
	if (of->outcome == HISTORY_LOST)
		search.lost |= 1ull << bit;
}

/* Whether the upload ends during a listing of its parts, which the server reads one after the
 * other. */
static bool ends_meanwhile(const struct history_op *op)
{
	for (uint32_t i = 1; i <= search.history->op_count; i++) {
		const struct history_op *other = &search.history->ops[i];

		if ((other->kind == HISTORY_COMPLETE || other->kind == HISTORY_ABORT) &&
			other->upload == op->upload && other->begin_at < op->end_at &&
			op->begin_at < other->end_at)
			return true;
	}
	return false;
}

static void begin(uint32_t op)
{
	const struct history_op *of = &search.history->ops[op];

	if (of->outcome == HISTORY_NOTHING)
		return;
	/* A read without an answer says nothing. */
	if (of->outcome == HISTORY_LOST && of->kind >= HISTORY_READ)
		return;
	if (of->kind == HISTORY_PARTS && of->outcome == HISTORY_DONE && ends_meanwhile(of))
		return;
	open_add(op, false);
	if (of->kind == HISTORY_ABORT && of->outcome != HISTORY_REFUSED)
		open_add(op, true);
}

static bool end(uint32_t op)
{
	bool settled = false;

	for (uint32_t bit = 0; bit < HISTORY_OPEN_MAX; bit++) {
		if (!search.open[bit].used || search.open[bit].op != op)
			continue;
		if (!settled)
			settle();
		settled = true;
		open_remove(bit, true);
	}
	return search.state_count > 0;
}

static void life_end(void)
{
	settle();
	for (uint32_t bit = 0; bit < HISTORY_OPEN_MAX; bit++)
		if (search.open[bit].used)
			open_remove(bit, false);
	if (!search.ends)
		return;
	search.state_count = 1;
	search.states[0] = (struct state){0};
}

/* ---- Names and the operations that made them. ---- */

static bool makes_version(const struct history_op *op)
{
	return op->kind == HISTORY_PUT || op->kind == HISTORY_APPEND ||
	       op->kind == HISTORY_DELETE || op->kind == HISTORY_COMPLETE;
}

/* The only lost write of that content; 0: none, or several. */
static uint32_t lost_write(const struct history *history, uint16_t key, uint32_t content)
{
	uint32_t found = 0;

	for (uint32_t i = 1; i <= history->op_count; i++) {
		const struct history_op *op = &history->ops[i];

		if (op->key != key || !makes_version(op) || op->content != content ||
			op->kind == HISTORY_DELETE)
			continue;
		if ((found && found != search.maker[i]) || op->outcome != HISTORY_LOST)
			return 0;
		found = search.maker[i];
	}
	return found;
}

static bool name_bind(uint32_t name, uint32_t op)
{
	if (!op)
		return true;
	if (search.made_by[name] && search.made_by[name] != op)
		return false;
	search.made_by[name] = op;
	search.name_of[op] = name;
	return true;
}

static void makers_find(const struct history *history, uint16_t key)
{
	for (uint32_t i = 1; i <= history->op_count; i++) {
		const struct history_op *op = &history->ops[i];

		if (op->key != key)
			continue;
		search.maker[i] = i;
		for (uint32_t j = 1; op->kind == HISTORY_COMPLETE && j < i; j++)
			if (history->ops[j].kind == HISTORY_COMPLETE &&
				history->ops[j].upload == op->upload &&
				history->ops[j].content == op->content) {
				search.maker[i] = j;
				break;
			}
	}
}

/* False: two operations have the same name. */
static bool names_bind(const struct history *history, uint16_t key, uint32_t *ret_op)
{
	for (uint32_t i = 1; i <= history->op_count; i++) {
		const struct history_op *op = &history->ops[i];

		*ret_op = i;
		if (op->key == key && op->outcome == HISTORY_DONE && op->name > HISTORY_NULL &&
			(makes_version(op) || op->kind == HISTORY_UPLOAD) &&
			!name_bind(op->name, search.maker[i]))
			return false;
	}
	for (uint32_t i = 1; i <= history->op_count; i++) {
		const struct history_op *op = &history->ops[i];

		if (op->key == key && op->outcome == HISTORY_DONE && op->name > HISTORY_NULL &&
			(op->kind == HISTORY_READ || op->kind == HISTORY_READ_VERSION) &&
			op->content && op->content != HISTORY_MARKER && !search.made_by[op->name])
			name_bind(op->name, lost_write(history, key, op->content));
	}
	return true;
}

enum history_verdict history_judge(struct history *history, uint16_t key, uint32_t *ret_op)
{
	memset(search.open, 0, sizeof(search.open));
	memset(search.made_by, 0, sizeof(search.made_by));
	memset(search.name_of, 0, sizeof(search.name_of));
	search.lost = 0;
	search.history = history;
	search.state_count = 1; /* absent */
	search.states[0] = (struct state){0};
	search.full = false;
	search.ends = history->key_memory && key >= history->key_memory;
	search.evicts = search.ends && history->evicts;
	makers_find(history, key);
	if (!names_bind(history, key, ret_op))
		return HISTORY_UNEXPLAINED;
	for (uint32_t i = 0; i < history->event_count && !search.full; i++) {
		uint32_t op = history->events[i].op;

		if (op == HISTORY_UNNAMED) {
			life_end();
			continue;
		}
		if (history->ops[op].key != key)
			continue;
		if (!history->events[i].is_end)
			begin(op);
		/* A lost write stays open until its life ends. */
		else if (!end(op) && !search.full) {
			*ret_op = op;
			return HISTORY_UNEXPLAINED;
		}
	}
	return search.full ? HISTORY_UNDECIDED : HISTORY_EXPLAINED;
}

static void op_show(const struct history *history, uint32_t number, bool is_end)
{
	static const char *const KINDS[] = {"put", "append", "delete", "delete version", "mode",
		"upload", "part", "complete", "abort", "read", "read version", "size", "versions",
		"uploads", "parts"};
	static const char *const OUTCOMES[] = {"lost", "done", "refused", "nothing"};
	const struct history_op *op = &history->ops[number];

	printf("# %5u %s %s %s content %x name %u upload %u", number, is_end ? "  end" : "begin",
		KINDS[op->kind], OUTCOMES[op->outcome], op->content, op->name, op->upload);
	if (op->condition)
		printf(" if %u %llx", op->condition, (unsigned long long)op->expected);
	if (op->kind == HISTORY_MODE || op->kind == HISTORY_PART)
		printf(" %u", op->kind == HISTORY_MODE ? op->mode : op->part);
	if (op->kind == HISTORY_SIZE)
		printf(" %lld bytes", (long long)op->bytes);
	for (uint32_t i = 0; is_end && i < op->entry_count; i++) {
		const struct history_entry *entry = &history->entries[op->entry_first + i];

		printf(" [%u%s %llu]", entry->name + entry->part, entry->is_marker ? " marker" : "",
			(unsigned long long)entry->bytes);
	}
	printf("\n");
}

void history_show(const struct history *history, uint16_t key)
{
	for (uint32_t i = 0; i < history->event_count; i++) {
		uint32_t op = history->events[i].op;

		if (op == HISTORY_UNNAMED)
			printf("# a life ends\n");
		else if (history->ops[op].key == key)
			op_show(history, op, history->events[i].is_end);
	}
}
