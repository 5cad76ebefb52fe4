/* store/check/check.h: the interface within store for starts and checks: loading, replaying,
 * repairing, rebuilding. */
#ifndef STORE_CHECK_H
#define STORE_CHECK_H

#include "store/local.h"

#include <stdbool.h>

#include "store/log/journal.h"
#include "store/object/object.h"
#include "store/volume/volume.h"

/* ---- load.c, replay.c, recover.c, snapshot.c: common parts of a start and a check. ---- */
struct store *store_alloc(const struct store_opts *opts);
/* Keeps other processes out of the store's folder, which is there, until store_unload; nothing when
 * it does so already. -EBUSY (logged): another process has it. */
int store_lock(struct store *store);
/* Locks, opens volume and index, replays the log, loads the buckets; space is empty. */
int store_load(struct store *store, bool create);
void store_unload(struct store *store);
int recover_replay(struct store *store);
int recover_buckets(struct store *store);
/* Computes space and the buckets' counts from the index. */
int recover_scan(struct store *store);
/* Whether the row names space of the geometry that this start took out of the set. */
bool recover_row_withdrawn(const struct volume *volume, struct slice key, struct slice value);
/* Records that the change of the set is taken back. -EUCLEAN (reported): a row of the index names
 * space of the newer geometry, and this start must change nothing. */
int recover_withdraw(const struct store *store);
/* Reads a segment of `bytes` and compares the checksums: 0, -EUCLEAN, -EIO. piece:
 * STORE_CHECK_BYTES, aligned to a block. */
int recover_segment_verify(
	struct volume *volume, const struct segment *segment, uint64_t bytes, uint8_t *piece);
/* A part of a segment, from a multiple of STORE_CHECK_BYTES on. */
struct recover_range {
	uint64_t from, to;
	bool amend; /* damaged pieces that other volumes have intact are rewritten */
};
int recover_range_verify(struct volume *volume, const struct segment *segment,
	const struct recover_range *range, uint8_t *piece);
/* Compares the parity of a segment of `bytes` with its data, which it reads again, because a volume
 * may have kept wrong bytes, and rewrites what differs: of the stripes that begin in the range.
 * Leaves stripes whose data no volume has, or that too few volumes have. Others' errors are
 * returned after the last stripe: -EIO: a shard could not be rewritten; -ENOMEM. piece: as
 * recover_segment_verify. */
struct recover_parity {
	uint64_t bytes;	     /* of the segment */
	uint32_t wrong;	     /* result: shards that differed */
	uint64_t read_bytes; /* result: of data and parity */
};
int recover_range_parity(struct volume *volume, const struct segment *segment,
	const struct recover_range *range, uint8_t *piece, struct recover_parity *parity);
/* Reads space and the buckets' counts from the snapshot. -ENOENT: no valid snapshot. */
int snapshot_read(struct store *store);
/* Only the snapshot's bitmap, which the caller frees; also sets the buckets' counts. */
int snapshot_load(struct store *store, uint64_t **ret_words, uint64_t *ret_word_count);
int snapshot_write(struct store *store);
/* -EUCLEAN (reported): a volume that is a file is shorter than at the last clean shutdown. */
int snapshot_size_check(const struct store *store);

/* ---- salvage.c ---- */
/* A place where groups are missing from the log. */
struct log_hole {
	struct journal_at at; /* position of the first missing group */
	int error;	      /* error of reading it; 0: other bytes are there */
	struct journal_find find;
	uint64_t lost_first, lost_end; /* groups that neither log nor index has: [first, end) */
};
struct salvage {
	struct buf *out;
	struct store_fsck_report *report;
	bool lost; /* groups were given up */
	bool unreadable;
};
/* Copies the damaged bytes to files and reports everything known about them. */
int salvage_hole(struct store *store, struct salvage *salvage, const struct log_hole *hole);
/* Called when the index has all remaining groups, before the log is released. Takes out of the
 * index the partial effects of the lost groups, and makes the medium reallocate the log's
 * unreadable blocks. */
int salvage_end(struct store *store, struct salvage *salvage);

/* ---- salvage_mend.c: the first part of salvage_finish. ---- */
int salvage_mend(struct store *store, struct salvage *salvage);

/* ---- rebuild.c, stripe_regain.c ---- */
/* Rebuilds volumes that came back or were replaced; returns at once when there are none. Fiber
 * call. -ESHUTDOWN: the store is quiescing; another error: start again. */
int store_rebuild(struct store *store);
/* Whether fewer volumes are good than the store needs, noticed by the store or not. Any thread. */
bool stripe_lacking(const struct store *store);
/* Fiber call of the array monitor: 0 when enough volumes are back and the store takes writes again.
 */
int stripe_regain(struct store *store);

/* ---- printable.c ---- */
#define PRINTABLE_BYTES_MAX 1024u
/* Prints a name that users chose for a terminal: valid UTF-8 stays; everything that would not be
 * visible as it is (control characters, other bytes, backslashes) becomes \\xHH. */
void printable_put(struct buf *out, struct slice text);

#endif
