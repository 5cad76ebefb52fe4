/* store/local.h: the engine whose bodies lie on volumes of this machine: what the server, fsck and
 * administration need of it, and how its ends of flow reach a body's place.
 *
 *   data under DIR:  volume (superblock, log, extents)   index/ (RocksDB)   space   LOCK
 *
 * Commits of many fibers and cores are grouped: one log write, one flush. Bodies move through its
 * ends of flow (store/ends) to where the put was granted space; then the commit makes them an
 * object. docs/spec/disk.md has the formats. */
#ifndef STORE_LOCAL_H
#define STORE_LOCAL_H

#include <stdbool.h>
#include <stdint.h>

#include "disk/disk.h"
#include "store/api.h"

struct store_opts {
	const char *dir; /* created when absent */
	/* Where the volume lies: a file, a block device, an NVMe passthrough device (/dev/ng…).
	 * NULL or "": DIR/volume, a file, or what an earlier start named. */
	const char *volume;
	/* A new store may take a volume on which something else lies, which is destroyed. A store
	 * that exists is never touched by it. */
	bool format;
	/* A volume that is a file may be told what is free (store_discard_run): see disk_opts. */
	bool discard_files;
	/* At creation, when volume names several, separated by commas: bodies are cut into so many
	 * shards of data and of parity, one for each volume. */
	uint32_t erasure_data;
	uint32_t erasure_parity;
	uint64_t volume_bytes_max; /* 0: as the file system allows, less reserve_bytes */
	uint64_t reserve_bytes; /* free space kept for the index; below it writes answer -ENOSPC */
	uint64_t cache_bytes_max;	 /* region frames the read cache may hold; 0: no cache */
	uint64_t record_table_bytes_max; /* the in-memory record table */
	uint32_t inline_bytes_max;  /* bodies up to this live in the index; UINT32_MAX: none do */
	const char *disk_faults;    /* tests: see struct disk_opts */
	uint64_t log_bytes;	    /* at creation only; 0: 64 MiB */
	uint64_t step_bytes;	    /* by which the volume grows, at creation only; 0: 64 MiB */
	uint64_t index_cache_bytes; /* RocksDB's block cache; 0: 64 MiB */
};
/* Defaults for what is not set (0): all but dir. */
#define STORE_RECORD_TABLE_BYTES_DEFAULT (64 * MIB)
#define STORE_INLINE_BYTES_DEFAULT	 2048u
#define STORE_INLINE_BYTES_MAX		 8192u

/* Opens, recovers (with progress in the log), checks formats. Blocks; before reactors run. -EBUSY:
 * another process has it; -EUCLEAN: a format is damaged or of a newer version, or the volume is
 * not this store's (the log line says what and what to do). */
int store_open(const struct store_opts *opts, struct region *region, struct store **ret_store);
/* Once per reactor, before it runs. The first attached reactor runs the committer. */
int store_attach(struct store *store, struct reactor *reactor);
/* In a fiber of the first reactor, at shutdown: finishes commits, checkpoints. Then reactors stop,
 * then close. */
void store_quiesce(struct store *store);
void store_close(struct store *store);
/* The id of this store: the same as long as the store lives, and never 0. */
uint64_t store_id(const struct store *store);

/* Gives frames of the cache back to the region, least used first, when a lease failed: at least
 * `frames` where it holds so many that nobody is reading. Returns how many. Any thread. */
uint32_t store_cache_shrink(struct store *store, uint32_t frames);

/* ---- Checking (nebulaio fsck): the store must not be open elsewhere. Blocks. ---- */
struct store_fsck_report {
	uint64_t buckets, objects, extents, bytes;
	uint64_t bad_records, bad_checksums, overlaps,
		lost_bytes; /* lost: neither free nor named */
	/* Pieces of at most STORE_CHECK_BYTES that a volume has wrong and others right: no damage
	 * yet; reading or a scrub mends them. */
	uint64_t repairable;
	uint64_t unknown_rows; /* of features of a later program: not checked, and no damage */
	bool opened;	       /* false: damage kept it from being opened, and the rest unchecked */
	/* Of store_salvage: groups given up; what was taken out of the index because of that; and
	 * buckets made for objects whose own is not known any more. */
	uint64_t groups_lost, objects_removed, rows_removed, buckets_remade;
};
/* Verifies the log, every record, that extents neither overlap nor leave the volume, and (deep)
 * every checksum. Replays the log first, as a start would. Writes findings to out as it goes. 0:
 * clean; -EUCLEAN: damage was found; -ENOENT: there is no store; -EBUSY: it is open elsewhere. */
int store_fsck(const char *dir, bool deep, struct store_fsck_report *ret_report, struct buf *out);
/* Gives up the groups of the log that are damaged, and then checks as store_fsck: applies all that
 * are whole, keeps the damaged part in files of dir ("damaged-log.…"), takes out of the index what
 * the lost ones left half-done. Findings begin with all that is known of what was lost. Without
 * damage of the log it is store_fsck. */
int store_salvage(
	const char *dir, bool deep, struct store_fsck_report *ret_report, struct buf *out);

/* ---- Several volumes. ---- */
struct store_volume {
	uint64_t bytes;
	enum disk_member_state state;
};
/* How they are; 0: the store has one volume, or is of another engine. Any thread. */
uint32_t store_volumes(struct store *store, struct store_volume *ret_volumes, uint32_t max);
/* Looks after them until the store quiesces: gives up those that are gone, takes back those that
 * can be reached again and blank ones in the place of missing ones, and makes them whole, while all
 * goes on. At once when there is one volume. Fiber call of the first reactor. */
void store_array_monitor(struct store *store);

/* Whether writes are taken; if not, why, in a sentence for people. Any thread. */
bool store_writable(const struct store *store, char *ret_why, size_t why_cap);

/* Has a volume replaced by what lies at another path, which must be blank or it itself: soon, while
 * all goes on; it is then rebuilt. -ENOENT: no such volume, or the store has only one or is of
 * another engine; -EINVAL: the path; -EEXIST: another volume lies there; -EALREADY: one waits to be
 * replaced; -EBUSY: too many others are missing to give it up. Fiber call. */
int store_volume_replace(struct store *store, uint32_t member, const char *path);

/* Tells volumes that can deallocate which space was given back since the start, in the background
 * and no faster than so many bytes a second, until the store quiesces or is fenced. Fiber call of
 * the first reactor. */
void store_discard_run(struct store *store, uint64_t bytes_per_s);

/* ---- Scrub: reads all bodies at a leisurely rate and holds them against their checksums; over
 * several volumes parity, too; and puts right what the others know. ---- */
struct store_scrub_opts {
	uint64_t interval_ns; /* from the end of one run to the next; 0: only when asked */
	uint64_t bytes_per_s;
};
/* Until the store quiesces. Fiber call of the first reactor. */
void store_scrub_run(struct store *store, const struct store_scrub_opts *opts);
/* Begins a run soon. -EALREADY: one is under way, or asked for; -ENOTSUP: the store is of another
 * engine. Any thread. */
int store_scrub_ask(struct store *store);
struct store_scrub {
	bool running;
	uint64_t done_bytes, all_bytes; /* of the run under way; all: about */
	/* Since the start of the program. */
	uint64_t runs, bytes, damaged, mended, parity_mended;
};
/* All 0 where the store is of another engine. */
void store_scrub_status(struct store *store, struct store_scrub *ret_status);

#endif
