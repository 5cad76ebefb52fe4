/* store/log/journal.h: what the files of store share about the log: its groups, finding them again
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
/* A group's change in the record table: pinned until the index has it. */
struct touched {
	struct record_entry *entry;
	struct object *old; /* dead, with a reference; or NULL */
};
/* A group being built, written, then applied to the index: block-aligned memory that grows. */
struct group {
	uint8_t *bytes; /* starts with a struct group_head */
	size_t len;
	size_t cap;
	uint32_t count;
	uint32_t commit_count;
	uint32_t number_count; /* given out */
	uint32_t touched_count;
	uint32_t touched_cap;
	uint32_t touched_reserved; /* for the commits taken so far */
	bool alone;		   /* deletes by prefix: it is applied by itself */
	struct touched *touched;
	struct commit *commits; /* in order, while the committer has it */
	struct commit *commits_last;
	uint64_t end_pos;
	struct group *next;
};
int group_open(struct group **ret_group);
void group_close(struct group *group);
void group_reset(struct group *group); /* empties it and keeps the memory */
/* Room for so many bytes of mutations and touched entries. -ENOMEM. */
int group_reserve(struct group *group, size_t bytes, uint32_t touched);
/* A mutation with its key copied; returns where the value goes. Room was reserved. */
#define MUTATION_BYTES(key_len, value_len) (sizeof(struct mutation_head) + (key_len) + (value_len))
uint8_t *group_add(struct group *group, enum mutation_op op, uint8_t flags, const struct key *key,
	size_t value_len);
/* Copies of the groups written last, which later ones carry in their padding: it is written anyway.
 * The newest comes first; a group that is larger than CARRIED_BYTES_MAX is not copied. */
#define CARRIED_BYTES_MAX 3072u
struct carry {
	uint32_t len;
	uint8_t bytes[4096];
};
/* Of a sealed group, once it is durable. */
void carry_add(struct carry *carry, const struct group *group);
/* Fills in the header, sums, and pads to a block: with what it carries (NULL: nothing), as much of
 * it as fits, and zeros. Returns the bytes to write. */
uint32_t group_seal(struct group *group, const struct group_head *head, uint32_t uuid_crc,
	const struct carry *carry);
static inline struct group_head *group_head(const struct group *group)
{
	return (struct group_head *)(void *)group->bytes;
}
/* Walks a sealed or read group's mutations. *at starts at 0. 1: one; 0: the end; -EUCLEAN. */
int group_next(struct slice group, size_t *at, struct mutation *ret_mutation);
/* Where a group of so many bytes goes when the head is at pos. */
static inline uint64_t journal_place(uint64_t pos, uint64_t bytes, uint64_t log_bytes)
{
	uint64_t room = log_bytes - pos % log_bytes;

	return bytes <= room ? pos : pos + room;
}

/* ---- journal_read.c: finding groups again. Blocks. ---- */
uint32_t journal_crc(const uint8_t *bytes, uint32_t len, uint32_t uuid_crc);
/* "group 4", "groups 4 to 6". */
#define GROUPS_SAID_BYTES 64u
void groups_say(uint64_t first, uint64_t last, char out[GROUPS_SAID_BYTES]);
/* Whether these bytes can be a group's header: its magic, and a length that fits the log there. */
bool journal_head_is(const struct volume *volume, const struct group_head *head);
struct journal_at {
	uint64_t pos;
	uint64_t seq;
};
/* Reads the group at the position, or at the next lap: 1 and a buffer to free; 0: neither holds it
 * whole; -EIO: the medium does not give what lies there, asked several times; -EHOSTDOWN: too few
 * volumes are left. */
int journal_read(struct volume *volume, const struct journal_at *at, uint8_t **ret_bytes,
	struct group_head *ret_head);
/* The whole groups that lie anywhere in the log and were written after the one that belongs at
 * `at`: of its epoch or a later one, with its number or a higher one. One is enough to prove that
 * the log does not end there, for a group is written when all before it are durable. */
struct journal_find {
	bool found;
	struct journal_at first; /* the one with the lowest number */
	uint64_t first_epoch;
	uint64_t seq_last;
	uint64_t unreadable_blocks;
	uint64_t unreadable_offset; /* in the volume, of the last one */
};
int journal_search(
	struct volume *volume, const struct journal_at *at, struct journal_find *ret_find);
/* Of a search that found one: the copy that the first of the later groups carries of the group that
 * belongs at `at`, or else of the next one that it has. 1 and a buffer to free, or 0. */
int journal_carried(struct volume *volume, const struct journal_find *find,
	const struct journal_at *at, uint8_t **ret_bytes, struct group_head *ret_head);
/* A copy's bytes as they are, blocks that cannot be read as zeros: *ret_unreadable of them.
 * -ENOENT: there is no such copy. */
int journal_raw(struct volume *volume, uint32_t copy, uint64_t pos, uint8_t *out, uint64_t bytes,
	uint64_t *ret_unreadable);
/* Writes zeros to the log's blocks that cannot be read, so that the medium gives them others. */
int journal_heal(struct volume *volume);

#endif
