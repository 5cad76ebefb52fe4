/* store/log/journal.h: the log's interface within store: its groups, and reading them back
 * (docs/spec/disk.md, docs/design/store.md). */
#ifndef STORE_JOURNAL_H
#define STORE_JOURNAL_H

#include "store/local.h"

#include <stdbool.h>

struct commit;
struct record_entry;
struct key;
struct object;
struct volume;

/* ---- journal.c: building, sealing and walking groups. ---- */
#define GROUP_MAGIC   0x5052474eu /* "NGRP" */
#define CARRIED_ALIGN 8u	  /* where copies begin in the padding */
struct group_head {
	uint32_t magic;
	uint32_t crc32c;
	uint32_t bytes;
	uint32_t count;
	uint64_t epoch;
	uint64_t seq;
	uint64_t pos;
	uint64_t data_id_next;
	uint64_t bucket_id_next;
	uint64_t time_ns;
};
_Static_assert(sizeof(struct group_head) == 64, "as docs/spec/disk.md has it");
enum mutation_op { MUTATION_PUT = 1, MUTATION_DELETE = 2, MUTATION_DELETE_PREFIX = 3 };
#define MUTATION_BODY_FLUSHED 1u
struct mutation_head {
	uint8_t op;
	uint8_t flags;
	uint16_t key_len;
	uint32_t value_len;
};
_Static_assert(sizeof(struct mutation_head) == 8, "as docs/spec/disk.md has it");
struct mutation {
	uint8_t op;
	uint8_t flags;
	struct slice key;
	struct slice value;
};
/* A group's change to an entry of the record table: pinned until the index has it. */
struct touched {
	struct record_entry *entry;
	struct object *old; /* the dead object, with a reference; or NULL */
};
/* A group while it is built, written and applied to the index: block-aligned memory that grows. */
struct group {
	uint8_t *bytes; /* starts with a struct group_head */
	size_t len;
	size_t cap;
	uint32_t count;
	uint32_t commit_count;
	uint32_t piece_count;  /* of the commits' grouped bodies */
	uint32_t number_count; /* numbers assigned */
	uint32_t touched_count;
	uint32_t touched_cap;
	uint32_t touched_reserved; /* sum for the commits taken so far */
	bool alone;		   /* it deletes by prefix: it is applied alone */
	struct touched *touched;
	struct commit *commits; /* in order, while the committer has it */
	struct commit *commits_last;
	uint64_t end_pos;
	struct group *next;
};
int group_open(struct group **ret_group);
void group_close(struct group *group);
void group_reset(struct group *group); /* empties it and keeps the memory */
/* Reserves room for this many bytes of mutations and this many touched entries. -ENOMEM. */
int group_reserve(struct group *group, size_t bytes, uint32_t touched);
/* Adds a mutation and copies its key; returns the place of the value. Room must be reserved. */
#define MUTATION_BYTES(key_len, value_len) (sizeof(struct mutation_head) + (key_len) + (value_len))
uint8_t *group_add(struct group *group, enum mutation_op op, uint8_t flags, const struct key *key,
	size_t value_len);
/* Copies of the last groups, which later groups carry in their padding, because the padding is
 * written anyway. The newest comes first. A group larger than CARRIED_BYTES_MAX is not copied. */
#define CARRIED_BYTES_MAX 3072u
struct carry {
	uint32_t len;
	uint8_t bytes[4096];
};
/* For a sealed group, once it is durable. */
void carry_add(struct carry *carry, const struct group *group);
/* Fills in the header, computes the sums and pads to a block: with as much of carry (NULL: nothing)
 * as fits, then zeros. Returns the number of bytes to write. */
uint32_t group_seal(struct group *group, const struct group_head *head, uint32_t uuid_crc,
	const struct carry *carry);
static inline struct group_head *group_head(const struct group *group)
{
	return (struct group_head *)(void *)group->bytes;
}
/* Walks a sealed or read group's mutations. *at starts at 0. 1: one; 0: the end; -EUCLEAN. */
int group_next(struct slice group, size_t *at, struct mutation *ret_mutation);
/* The position of a group of this many bytes when the head is at pos. */
static inline uint64_t journal_place(uint64_t pos, uint64_t bytes, uint64_t log_bytes)
{
	uint64_t room = log_bytes - pos % log_bytes;

	return bytes <= room ? pos : pos + room;
}

/* ---- journal_read.c: reading groups back. Blocks. ---- */
uint32_t journal_crc(const uint8_t *bytes, uint32_t len, uint32_t uuid_crc);
/* "group 4", "groups 4 to 6". */
#define GROUPS_SAID_BYTES 64u
void groups_say(uint64_t first, uint64_t last, char out[GROUPS_SAID_BYTES]);
/* Whether these bytes can be a group's header: the magic, and a length that fits into the log at
 * that position. */
bool journal_head_is(const struct volume *volume, const struct group_head *head);
struct journal_at {
	uint64_t pos;
	uint64_t seq;
};
/* Reads the group at the position, or at the same place of the next lap: 1 and a buffer to free; 0:
 * neither is a whole group; -EIO: the medium failed to read it, after several attempts; -EHOSTDOWN:
 * too few volumes are left. */
int journal_read(struct volume *volume, const struct journal_at *at, uint8_t **ret_bytes,
	struct group_head *ret_head);
/* Searches the log for whole groups that were written after the group that belongs at `at`: of its
 * epoch or a later one, with its number or a higher one. One such group proves that the log does
 * not end there, because a group is written only when all before it are durable. */
struct journal_find {
	bool found;
	struct journal_at first; /* the group with the lowest number */
	uint64_t first_epoch;
	uint64_t seq_last;
	uint64_t unreadable_blocks;
	uint64_t unreadable_offset; /* position in the volume of the last one */
};
int journal_search(
	struct volume *volume, const struct journal_at *at, struct journal_find *ret_find);
/* After a search that found a group: reads the copy, in the first of the later groups, of the group
 * that belongs at `at`, or of the next one that it carries. 1 and a buffer to free, or 0. */
int journal_carried(struct volume *volume, const struct journal_find *find,
	const struct journal_at *at, uint8_t **ret_bytes, struct group_head *ret_head);
/* A log copy's bytes, with zeros for blocks that cannot be read: *ret_unreadable of them. -ENOENT:
 * no such copy. */
int journal_raw(struct volume *volume, uint32_t copy, uint64_t pos, uint8_t *out, uint64_t bytes,
	uint64_t *ret_unreadable);
/* Writes zeros to the log's unreadable blocks, so that the medium reallocates them. */
int journal_heal(struct volume *volume);

#endif
