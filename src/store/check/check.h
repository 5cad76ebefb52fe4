/* store/check/check.h: what the files of store share about starts and checks: loading, replaying,
 * repairing, rebuilding. */
#ifndef STORE_CHECK_H
#define STORE_CHECK_H

#include "store/local.h"

#include <stdbool.h>

#include "store/log/journal.h"
#include "store/object/object.h"
#include "store/volume/volume.h"

/* ---- load.c, replay.c, recover.c, snapshot.c: what a start and a check have in common. ---- */
struct store *store_alloc(const struct store_opts *opts);
/* Locks, opens volume and index, replays the log, loads the buckets; space is empty. */
int store_load(struct store *store, bool create);
void store_unload(struct store *store);
int recover_replay(struct store *store);
int recover_buckets(struct store *store);
/* Fills space and the buckets' counts from the index. */
int recover_scan(struct store *store);
/* Reads a segment of `bytes` and compares the checksums: 0, -EUCLEAN, -EIO. piece:
 * STORE_CHECK_BYTES, aligned to a block. */
int recover_segment_verify(
	struct volume *volume, const struct segment *segment, uint64_t bytes, uint8_t *piece);
/* A part of a segment, from a multiple of STORE_CHECK_BYTES on. */
struct recover_range {
	uint64_t from, to;
	bool amend; /* what other volumes have right is written anew */
};
int recover_range_verify(struct volume *volume, const struct segment *segment,
	const struct recover_range *range, uint8_t *piece);
/* Fills space and the buckets' counts from the snapshot. -ENOENT: there is none that counts. */
int snapshot_read(struct store *store);
/* The snapshot's bitmap alone, to be freed; also sets the buckets' counts. */
int snapshot_load(struct store *store, uint64_t **ret_words, uint64_t *ret_word_count);
int snapshot_write(struct store *store);
/* -EUCLEAN, told: a volume that is a file is shorter than the last clean end left it. */
int snapshot_size_check(const struct store *store);

/* ---- salvage.c ---- */
/* A place where the log lacks groups. */
struct log_hole {
	struct journal_at at; /* where the first one belongs */
	int error;	      /* of reading it; 0: what lies there is not it */
	struct journal_find find;
	uint64_t lost_first, lost_end; /* groups that neither log nor index have: [first, end) */
};
struct salvage {
	struct buf *out;
	struct store_fsck_report *report;
	bool lost; /* groups were given up */
	bool unreadable;
};
/* Keeps aside what lies there, and tells what can be known of it. */
int salvage_hole(struct store *store, struct salvage *salvage, const struct log_hole *hole);
/* Once the index has all that there is, before the log is let go: takes out of the index what the
 * lost groups left half-done, and has the medium give other blocks for those it cannot read. */
int salvage_end(struct store *store, struct salvage *salvage);

/* ---- salvage_mend.c: the first of these. ---- */
int salvage_mend(struct store *store, struct salvage *salvage);

/* ---- rebuild.c, stripe_regain.c ---- */
/* Makes volumes that came back or were replaced whole again; at once when there is
 * none. Fiber call. -ESHUTDOWN: the store was told to quiesce; else it is to be begun anew. */
int store_rebuild(struct store *store);
/* Whether fewer are good than are needed, be it noticed or not. Any thread. */
bool stripe_lacking(const struct store *store);
/* Fiber call of the array monitor: 0 when enough are back, and writes are taken again. */
int stripe_regain(struct store *store);

#endif
