/* replicate/parked.c: the rows that a target refuses and that are only in the store while they
 * wait, so that a target that refuses many still takes the others: their numbers, and which keys
 * they are of, because a later row of such a key must not pass. */
#include "replicate/replicate_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "codec/xxh.h"

#define ROWS_MIN 64u

struct parked_key {
	uint64_t hash, first; /* the lowest number */
	uint32_t rows;	      /* 0: none any more, or never used (hash 0) */
};

uint64_t parked_hash(const struct s3_replicate_row *row)
{
	struct xxh64 xxh;
	uint8_t digest[XXH64_BYTES];
	uint64_t hash;

	xxh64_init(&xxh);
	xxh64_update(&xxh, row->bucket.data, row->bucket.len);
	xxh64_update(&xxh, "", 1);
	xxh64_update(&xxh, row->key.data, row->key.len);
	xxh64_final(&xxh, digest);
	memcpy(&hash, digest, sizeof(hash));
	return hash ? hash : 1;
}

/* ---- Keys: an open table, at most half full. ---- */

static struct parked_key *slot_of(const struct parked *parked, uint64_t hash)
{
	uint32_t at = (uint32_t)hash & (parked->slots - 1);

	while (parked->keys[at].hash && parked->keys[at].hash != hash)
		at = (at + 1) & (parked->slots - 1);
	return &parked->keys[at];
}

static void key_add(struct parked *parked, const struct parked_row *row)
{
	struct parked_key *key = slot_of(parked, row->hash);

	key->first = key->rows ? MIN(key->first, row->number) : row->number;
	key->hash = row->hash;
	key->rows++;
}

static void keys_make(struct parked *parked)
{
	memset(parked->keys, 0, parked->slots * sizeof(*parked->keys));
	for (uint32_t i = 0; i < parked->count; i++)
		key_add(parked, &parked->rows[i]);
	parked->forgotten = 0;
}

int parked_reserve(struct parked *parked, uint32_t more)
{
	uint32_t room = MAX(parked->room, ROWS_MIN);
	struct parked_key *keys;
	struct parked_row *rows;

	while (room < parked->count + more)
		room *= 2;
	if (room > PARKED_ROWS_MAX)
		return -ENOSPC;
	if (room == parked->room) {
		/* Rows that left and came back as others fill the table, too. */
		if (parked->count + parked->forgotten + more > room)
			keys_make(parked);
		return 0;
	}
	rows = realloc(parked->rows, room * sizeof(*rows));
	if (!rows)
		return -ENOMEM;
	parked->rows = rows;
	keys = calloc(2 * (size_t)room, sizeof(*keys));
	if (!keys)
		return -ENOMEM;
	free(parked->keys);
	parked->keys = keys;
	parked->slots = 2 * room;
	parked->room = room;
	keys_make(parked);
	return 0;
}

/* ---- Rows. ---- */

void parked_add(struct parked *parked, uint64_t number, uint64_t hash, uint64_t time_ns)
{
	const struct parked_row row = {.number = number, .hash = hash, .time_ns = time_ns};
	uint32_t at = parked->count;

	CHECK(parked->count < parked->room);
	while (at && parked->rows[at - 1].number > number)
		at--;
	memmove(&parked->rows[at + 1], &parked->rows[at],
		(parked->count - at) * sizeof(*parked->rows));
	parked->rows[at] = row;
	parked->count++;
	key_add(parked, &row);
}

bool parked_has(const struct parked *parked, uint64_t hash)
{
	return parked->count && slot_of(parked, hash)->rows;
}

uint64_t parked_next(const struct parked *parked, uint64_t after)
{
	for (uint32_t i = 0; i < parked->count; i++) {
		const struct parked_row *row = &parked->rows[i];

		if (row->number > after && slot_of(parked, row->hash)->first == row->number)
			return row->number;
	}
	return 0;
}

void parked_remove(struct parked *parked, uint64_t number)
{
	struct parked_key *key;
	uint32_t at = 0;

	while (parked->rows[at].number != number)
		at++;
	key = slot_of(parked, parked->rows[at].hash);
	parked->count--;
	memmove(&parked->rows[at], &parked->rows[at + 1],
		(parked->count - at) * sizeof(*parked->rows));
	parked->forgotten += !--key->rows;
	for (uint32_t i = at; key->rows && i < parked->count; i++) {
		if (parked->rows[i].hash != key->hash)
			continue;
		key->first = parked->rows[i].number;
		break;
	}
}

void parked_free(struct parked *parked)
{
	free(parked->rows);
	free(parked->keys);
	*parked = (struct parked){.count = 0};
}
