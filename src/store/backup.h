/* store/backup.h: consistent copies of a local store, and a store that is made from one. A copy is
 * the rows of the index, which name bodies, and those bodies (docs/design/backup.md;
 * docs/spec/backup.md has the formats). */
#ifndef STORE_BACKUP_H
#define STORE_BACKUP_H

#include "store/local.h"

/* ---- Reading a running store. ---- */

/* At most so many sessions at a time; one that nobody has used for the idle time ends. */
#define STORE_BACKUPS_MAX      4u
#define STORE_BACKUP_IDLE_NS   (60 * NS_PER_S)
#define STORE_BACKUP_PIN_S_MAX 86400u
/* The most bytes of one answer with rows (a row is never cut, so one more row), and with a body. */
#define STORE_BACKUP_PAGE_BYTES (1 * MIB)
#define STORE_BACKUP_READ_BYTES (4 * MIB)

/* The facts that a restored store needs beside its rows. */
struct store_backup_head {
	uint8_t uuid[16];
	uint64_t seq; /* every group up to this one is in the rows */
	uint64_t data_id_next;
	uint64_t bucket_id_next;
	uint64_t objects;    /* about */
	uint64_t used_bytes; /* about */
};
/* Begins a session: from now on its rows are those of one moment, and the space of their bodies is
 * not used again, until it ends: by store_backup_end, after pin_ns, when nobody uses it, or when
 * the space that it holds back is scarce. Each call for a session returns -ESTALE once it has
 * ended. -EBUSY: too many sessions; -ENOTSUP: another engine, or the index has rows of a later
 * program. Fiber call of the first reactor. */
int store_backup_begin(
	struct store *store, uint64_t pin_ns, uint64_t *ret_id, struct store_backup_head *ret_head);
/* Appends a page of rows to out; cursor is empty, or that of the page before. Fiber call. */
int store_backup_rows(struct store *store, uint64_t id, struct slice cursor, struct buf *out);
/* Reads parts of bodies that rows name, verified, one after the other: together at most
 * STORE_BACKUP_READ_BYTES; of one part alone, as much of the body as fits. A part begins at a
 * multiple of STORE_CHECK_BYTES; bytes is the row's. -ENOENT: no such row; -EINVAL: it has no such
 * part, or they are too many or too long; -EIO: a body is damaged. Fiber call. */
#define STORE_BACKUP_PARTS_MAX 1024u
struct store_backup_part {
	struct slice key;
	uint64_t bytes, offset;
};
int store_backup_read(struct store *store, uint64_t id, const struct store_backup_part *parts,
	uint32_t count, struct buf *out);
/* -ESTALE: it has ended already. Fiber call. */
int store_backup_end(struct store *store, uint64_t id);
/* Ends sessions whose time is over, until the store quiesces. Fiber call of the first reactor. */
void store_backup_run(struct store *store);

/* ---- Pages of rows. ---- */

#define STORE_BACKUP_VERSION 1u
/* A row as pages and backups have it; key and value follow. Little-endian. */
struct store_backup_row {
	uint16_t key_len;
	uint16_t flags; /* STORE_BACKUP_… */
	uint32_t value_len;
	/* Of a row with a body: the names of the body. */
	uint64_t data_id;
	uint32_t segment;
	uint32_t sum; /* CRC32C of the checksums of its pieces */
	uint64_t bytes;
};
_Static_assert(sizeof(struct store_backup_row) == 32, "as docs/spec/backup.md has it");
#define STORE_BACKUP_HAS_BODY 1u /* in extents: it is not in the row */
#define STORE_BACKUP_INNER    2u /* belongs to the row before that has not this flag */
#define STORE_BACKUP_KEY_MAX  (1u + 8u + 2u * LIMIT_KEY_LEN_MAX + 2u + 8u)
#define STORE_BACKUP_BODY_MAX (64 * MIB)
struct store_backup_page {
	char magic[8]; /* "NEBROWS1" */
	uint32_t rows;
	uint32_t cursor_len; /* 0: it is the last page */
};
#define STORE_BACKUP_PAGE_MAGIC "NEBROWS1"
/* Takes a row off the front of rest. 1; 0: there is none; -EUCLEAN: cut short, or no row. */
int store_backup_row_next(struct slice *rest, struct store_backup_row *ret_row,
	struct slice *ret_key, struct slice *ret_value);

/* Whether a row and its body (of row->bytes) are what a store can be made of: as store_restore_row,
 * without storing them. -EUCLEAN. */
int store_backup_row_check(
	const struct store_backup_row *row, struct slice key, struct slice value, const void *body);

/* ---- Making a store from a copy. Blocks; no server may run on the folder. ---- */

struct store_restore;
struct store_restore_opts {
	const struct store_opts *store; /* where, and on which volumes */
	const struct store_backup_head *head;
	/* Names the copy: an interrupted restore goes on only from the same one. */
	const char *name;
	bool overwrite; /* a store that is there is destroyed */
};
/* -EEXIST: there is a store already; -EBUSY: a server runs on it; others as store_open. The log
 * says why. */
int store_restore_open(const struct store_restore_opts *opts, struct store_restore **ret_restore);
/* Whether an interrupted restore has stored the row already. */
bool store_restore_has(struct store_restore *restore, struct slice key);
/* Stores a row, and its body of row->bytes, which is compared with the row's checksums: -EUCLEAN:
 * the row or the body is damaged, and nothing was stored; -ENOSPC. */
int store_restore_row(struct store_restore *restore, const struct store_backup_row *row,
	struct slice key, struct slice value, const void *body);
/* Makes the store complete: the next start serves it. */
int store_restore_finish(struct store_restore *restore);
/* Takes NULL. Without finish before it, the folder keeps what is there for a next attempt. */
void store_restore_close(struct store_restore *restore);

#endif
