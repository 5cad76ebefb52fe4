/* store/local.h: the engine whose bodies lie on volumes of this machine: the calls for the server,
 * fsck and administration, and for the engine's ends of flow.
 *
 *   data under DIR:  volume (superblock, log, extents)   index/ (RocksDB)   space   LOCK
 *   a protected store has a copy of the index in the volumes, too
 *
 * Commits of many fibers and cores are grouped: one log write, one flush. The ends of flow
 * (store/ends) write a body to the space that the put was granted; then the commit makes it an
 * object. docs/spec/disk.md has the formats. */
#ifndef STORE_LOCAL_H
#define STORE_LOCAL_H

#include <stdbool.h>
#include <stdint.h>

#include "disk/disk.h"
#include "store/api.h"

/* Whether checkpoints also write the index to the volumes, so that these are enough to rebuild it.
 */
enum store_protect {
	STORE_PROTECT_AS_IS, /* as the store is */
	STORE_PROTECT_ON,    /* and an index that DIR lacks is rebuilt from the volumes */
	STORE_PROTECT_OFF
};

struct store_opts {
	const char *dir; /* created when absent */
	/* The volume's path: a file, a block device, an NVMe passthrough device (/dev/ng…). NULL or
	 * "": DIR/volume, a file, or the path that an earlier start stored. */
	const char *volume;
	/* Allows to overwrite a volume that holds other data, but no store. */
	bool format;
	/* Also a store. Only store_restore_open sets it. */
	bool overwrite;
	enum store_protect protect;
	/* The store is being made from a backup, or was left half made: see store/backup.h. Only
	 * store_restore_open sets it. */
	bool restoring;
	/* Allows discards of free space on a volume that is a file (store_discard_run): see
	 * disk_opts. */
	bool discard_files;
	/* At creation, when volume names several, separated by commas: the numbers of data and
	 * parity shards of a body, one shard per volume. */
	uint32_t erasure_data;
	uint32_t erasure_parity;
	/* Limit of the moving of bodies after a change of the set of volumes; 0: none. */
	uint64_t move_bytes_per_s;
	uint64_t volume_bytes_max; /* 0: as its file system allows, less reserve_bytes */
	/* Free space kept on the data folder's file system, for the index: below it puts answer
	 * -ENOSPC; and on those of volumes that are files, which do not grow into it. */
	uint64_t reserve_bytes;
	/* The most that all memory buckets may take together; 0: none can be made. */
	uint64_t memory_buckets_bytes_max;
	uint64_t cache_bytes_max;	 /* region frames the read cache may hold; 0: no cache */
	uint64_t record_table_bytes_max; /* size of the in-memory record table */
	uint64_t list_table_bytes_max;	 /* size of the in-memory rows for lists; 0: none */
	uint32_t inline_bytes_max;  /* bodies up to this live in the index; UINT32_MAX: none do */
	const char *disk_faults;    /* tests: see struct disk_opts */
	uint64_t log_bytes;	    /* at creation only; 0: 64 MiB */
	uint64_t step_bytes;	    /* the volume's growth step, at creation only; 0: 64 MiB */
	uint64_t index_cache_bytes; /* RocksDB's block cache; 0: 64 MiB */
	uint32_t index_files_max;   /* files of the index that stay open; 0: all */
};
/* Sets the defaults of all fields that are 0, except dir. */
#define STORE_RECORD_TABLE_BYTES_DEFAULT (64 * MIB)
#define STORE_INLINE_BYTES_DEFAULT	 2048u
#define STORE_INLINE_BYTES_MAX		 8192u

/* Opens the store, recovers (with progress in the log), checks formats. Blocks; call before
 * reactors run. -EBUSY: another process has the store; -EUCLEAN: a format is damaged or newer, or
 * the volume belongs to another store (the log line says what is wrong and what to do). */
int store_open(const struct store_opts *opts, struct region *region, struct store **ret_store);
/* Once per reactor, before it runs. The first attached reactor runs the committer. */
int store_attach(struct store *store, struct reactor *reactor);
/* In a fiber of the first reactor, at shutdown: finishes commits and makes a checkpoint. The caller
 * stops the reactors afterwards, then closes the store. */
void store_quiesce(struct store *store);
void store_close(struct store *store);
/* The id of this store: never 0, and constant for the store's life. */
uint64_t store_id(const struct store *store);

/* Returns frames of the cache to the region, least used first, after a lease failed: at least
 * `frames` if the cache has that many without readers; lasting: of the region's base. Returns the
 * number of frames. Any thread. */
uint32_t store_cache_shrink(struct store *store, uint32_t frames, bool lasting);
/* The most that the cache holds from now on, after store_opts.cache_bytes_max; nothing without a
 * cache. Any thread; takes as long as it has chunks to drop. */
void store_cache_resize(struct store *store, uint64_t bytes_max);
/* Drops the chunks that lie in this memory. Any thread; walks over all chunks. */
void store_cache_vacate(struct store *store, const uint8_t *data, uint64_t bytes);

/* Ends objects of memory buckets that are too old, every second, until the store quiesces. Fiber
 * call of the first reactor. */
void store_memory_run(struct store *store);
/* Of a memory bucket. -ENOENT: there is no memory bucket of that name. Any thread. */
struct store_memory_status;
int store_bucket_memory_status(
	struct store *store, struct slice name, struct store_memory_status *ret_status);

/* ---- Checking (nebulaio fsck): the store must not be open elsewhere. Blocks. ---- */
struct store_fsck_report {
	uint64_t buckets, objects, extents, bytes;
	uint64_t bad_records, bad_checksums, overlaps,
		lost_bytes; /* lost: neither free nor named */
	/* Pieces of at most STORE_CHECK_BYTES that are damaged on one volume and intact on others.
	 * This is not counted as damage: a read or a scrub repairs them. */
	uint64_t repairable;
	uint64_t image_bytes;  /* of the volumes' copy of the index; 0: there is none */
	uint64_t unknown_rows; /* rows of a later program's features: not checked, and not damage */
	bool opened;	       /* false: damage prevented the open, and the rest is unchecked */
	/* Results of store_salvage: groups given up; rows taken out of the index as a consequence;
	 * buckets made for objects of unknown buckets. */
	uint64_t groups_lost, objects_removed, rows_removed, buckets_remade;
};
/* Verifies the log, every record, that extents neither overlap nor leave the volume, and (deep)
 * every checksum. Replays the log first, as at a start. Writes findings to out as it runs. 0:
 * clean; -EUCLEAN: damage was found; -ENOENT: no store; -EBUSY: another process has it open. */
int store_fsck(const char *dir, bool deep, struct store_fsck_report *ret_report, struct buf *out);
/* Gives up the log's damaged groups, then checks as store_fsck. Applies all whole groups, copies
 * the damaged part to files of dir ("damaged-log.…"), and removes from the index the partial
 * effects of the lost groups. The findings begin with everything that is known about the loss.
 * Without damage of the log it does the same as store_fsck. */
int store_salvage(
	const char *dir, bool deep, struct store_fsck_report *ret_report, struct buf *out);

/* ---- Several volumes. ---- */
struct store_volume {
	uint32_t number; /* numbers have gaps once the set of volumes has changed */
	uint64_t bytes;
	enum disk_member_state state;
};
/* The state of the volumes; 0: the store has one volume, or another engine. Any thread. */
uint32_t store_volumes(struct store *store, struct store_volume *ret_volumes, uint32_t max);
/* The path of a volume; "" when it has none. Fiber call. */
void store_volume_path(struct store *store, uint32_t number, char *ret_path, size_t path_cap);
/* Watches the volumes until the store quiesces, while the store keeps working: gives up volumes
 * that are gone, takes back volumes that can be reached again and blank ones in the place of
 * missing ones, and rebuilds them. Returns at once when there is one volume. Fiber call of the
 * first reactor. */
void store_array_monitor(struct store *store);

/* Whether the store takes writes; if not, the reason in a sentence for people. Any thread. */
bool store_writable(const struct store *store, char *ret_why, size_t why_cap);

/* Whether a write that failed may be in the log all the same, where the next start finds it: while
 * the store is fenced or lacks volumes. A store that is only full drops what it refuses. Any
 * thread. */
bool store_cut_off(const struct store *store);

/* Whether the volumes hold the index up to the log's tail. -1: the store is not protected; 0: they
 * do not, and the next checkpoint tries again; 1: they do. Any thread. */
int store_protected(const struct store *store);

/* How many flushes and merges of the index run or wait: they take processor time and disk from
 * requests. Any thread. */
uint64_t store_index_jobs(const struct store *store);

/* The memory of the rows that are kept for lists, at most list_table_bytes_max. Any thread. */
uint64_t store_list_bytes(const struct store *store);

/* Stores a small text with the volumes' copy of the index, under a name, in place of an earlier
 * one. It is on the volumes when this returns 0, unless they have no room (store_protected).
 * Blocks; call it before reactors run. -ENOTSUP: the store is not protected; -E2BIG: over 8 KiB, or
 * more than 4 names. */
int store_keep(struct store *store, const char *name, struct slice text);
/* -ENOENT: there is none, or the store is not protected. */
int store_kept(struct store *store, const char *name, struct buf *out);

/* Replaces a volume by the one at another path, which must be blank or the same volume. The
 * replacement happens soon, while the store keeps working; a rebuild follows. -ENOENT: no such
 * volume, or the store has only one or another engine; -EINVAL: invalid path; -EEXIST: the path
 * holds another volume; -EALREADY: another replacement is waiting; -EBUSY: too many other volumes
 * are missing. Fiber call. */
int store_volume_replace(struct store *store, uint32_t member, const char *path);

/* A change of the set of volumes, while the store keeps working: soon the new volumes are made
 * ready, and new bodies are written to the new set; then all bodies are moved there in the
 * background, and the removed volumes leave. One change at a time; each survives a restart. */
struct store_set_change {
	const char *const *add; /* paths, each blank or a former volume of this store */
	uint32_t add_count;
	uint64_t remove;       /* one bit for each number */
	uint32_t data, parity; /* shards; data 0: parity stays, and data is the rest */
};
/* ret_why: for people. -EBUSY: a change is under way, or too many volumes are missing; -ENOTSUP:
 * the store has one volume, or another engine; -ENOENT: no such volume; -EEXIST: a path is a volume
 * already; -ENOSPC: the bodies do not fit fewer volumes; -EINVAL, -ENOMEM. The status has later
 * failures. Fiber call. */
int store_volumes_change(
	struct store *store, const struct store_set_change *wanted, char *ret_why, size_t why_cap);
/* New bodies are written to the former set again, and those that moved go back. -ENOENT: there is
 * no change; -ENOTSUP. Any thread. */
int store_volumes_cancel(struct store *store);
struct store_set_status {
	bool preparing; /* new volumes are made ready */
	bool changing;	/* bodies are moved */
	uint32_t data, parity;
	uint64_t members; /* of the set of new bodies, one bit each */
	uint32_t before_data, before_parity;
	uint64_t left_bytes, all_bytes; /* of bodies: to be moved, and in both sets */
	uint64_t failed;		/* bodies that cannot be read, in the last pass */
	char note[256];			/* why it waits, or why the last change failed; or "" */
};
/* All 0 if the store has one volume or another engine. Any thread. */
void store_volumes_status(struct store *store, struct store_set_status *ret_status);

/* Discards the space freed since the start on volumes that support it, in the background and at no
 * more than this many bytes a second, until the store quiesces or is fenced. Fiber call of the
 * first reactor. */
void store_discard_run(struct store *store, uint64_t bytes_per_s);

/* ---- Scrub: reads all bodies at a limited rate and compares them with their checksums, over
 * several volumes also with parity; repairs damage that the other volumes can repair. ---- */
struct store_scrub_opts {
	/* From the end of a run to the start of the next, also when a restart lies between them; 0:
	 * only on request. */
	uint64_t interval_ns;
	uint64_t bytes_per_s;
};
/* Runs until the store quiesces. Fiber call of the first reactor. */
void store_scrub_run(struct store *store, const struct store_scrub_opts *opts);
/* Starts a run soon. -EALREADY: a run is in progress or requested; -ENOTSUP: the store has another
 * engine. Any thread. */
int store_scrub_ask(struct store *store);
struct store_scrub {
	bool running;
	uint64_t done_bytes, all_bytes; /* of the current run; all: an estimate */
	/* Since the start of the program. */
	uint64_t runs, bytes, damaged, mended, parity_mended;
};
/* All 0 if the store has another engine. */
void store_scrub_status(struct store *store, struct store_scrub *ret_status);

#endif
