/* disk/disk.h: volumes, which hold the extents and the log. A volume is a file (created, grown,
 * O_DIRECT where the file system allows), a whole block device, or an NVMe namespace's passthrough
 * device (/dev/ng…), behind the same calls; the path decides the kind.
 *
 * Payload goes through the unified rings: a volume is a target of the region's base rings (READ,
 * WRITE, FLUSH, DISCARD with byte offsets), served by the submitting core's io_uring with the
 * region's arenas as fixed buffers. The store's committer, which needs gathered writes and no ring
 * of its own, starts operations directly by disk_start(). Addresses, lengths and offsets are
 * multiples of disk_align().
 *
 * A volume's bytes below disk_bytes() have been written once (zeros), so that a later write there
 * changes no file system metadata and one fdatasync costs one cache flush of the device. A device
 * is all there from the start and cannot grow. */
#ifndef DISK_DISK_H
#define DISK_DISK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/base.h"
#include "reactor/reactor.h"
#include "region/region.h"

struct disk;

/* AUTO: the path decides. The simulated kinds are for tests: a file with injected faults, and a
 * file behind a simulated NVMe controller. */
enum disk_kind {
	DISK_AUTO,
	DISK_FILE,
	DISK_BLOCK,
	DISK_NVME,
	DISK_SIMULATED,
	DISK_NVME_SIMULATED,
	DISK_ARRAY,    /* by disk_array_open */
	DISK_DRIVEN,   /* by the driver of the path's scheme */
	DISK_DAX,      /* a device of persistent memory, /dev/daxX.Y */
	DISK_DAX_FILE, /* dax://PATH: a file on a file system in persistent memory */
	DISK_JOINED,   /* log://PATH?bodies=PATH: two volumes as one */
	DISK_FABRIC,   /* nvmeof://…: a block device that the kernel's initiator connects */
};

struct disk_opts {
	enum disk_kind kind;
	const char *path;    /* of the volume file or device */
	uint64_t bytes_min;  /* grown to at least this at open, prewritten */
	uint64_t step_bytes; /* the volume is a whole number of these; 0: DISK_STEP_BYTES */
	uint64_t
		log_bytes; /* DISK_JOINED that is made: how many of its first bytes are the log's */
	bool create;	   /* a file, when it does not exist */
	bool read_only;	   /* only for reading: not locked, not grown, writes fail */
	bool probe;	   /* a volume that is in use or cannot be reached is not logged */
	/* A file accepts DISCARD. The discarded range is no longer prewritten, so a later write
	 * there allocates space, and fails when the file system is full. */
	bool discard_files;
	/* How long to wait for the lock. The io_uring of a killed process holds the volume until
	 * its last write has ended, which may be shortly after the process is gone. */
	uint64_t lock_wait_ns;
	/* Faults, with any kind: "seed=7,eio=0.01,torn=0.01,enospc_at=BYTES,eio_after=N". eio: an
	 * operation fails; torn: a write stops half-way and fails; enospc_at: growing beyond this
	 * fails; eio_after: everything after N operations fails. NULL: none. */
	const char *faults;
	/* DISK_NVME_SIMULATED: "lba=512,mdts=5,status=0x281,after=N,ms=BYTES,caps=0": the size of a
	 * logical block; the largest transfer, 4096 << mdts; the status that the commands from the
	 * N-th on end with; metadata per block; without deallocate and write zeroes.
	 * "max_segments=N": the limit that it reports; "bytes_taken=N,segments_taken=N": the limits
	 * beyond which it refuses; "fixed_rest=N": it refuses a registered buffer more than N bytes
	 * before the buffer's end. */
	const char *nvme;
};

#define DISK_STEP_BYTES (64 * MIB)

/* -ENOENT, -EACCES, -ENOSPC (also a device smaller than bytes_min), -EBUSY (another process holds
 * the volume's lock; a device is mounted or otherwise in use), -EINVAL (bad faults text; neither
 * file nor device), -EOPNOTSUPP (a device with unusable blocks: the log says why), -EROFS. May
 * block: not for reactors. */
int disk_open(const struct disk_opts *opts, struct disk **ret_disk);
/* Takes NULL. No operation may be in flight, and the attached reactors have stopped. */
void disk_close(struct disk *disk);
enum disk_kind disk_kind(const struct disk *disk);
/* One line about the medium, for the log: model, sizes, polled or not. */
const char *disk_describe(const struct disk *disk);
/* The kind of volume at the path: 0, -ENOENT, -EINVAL (neither a file nor a known device). */
int disk_kind_of(const char *path, enum disk_kind *ret_kind);
/* Called once for each reactor before it runs I/O: registers the region's arenas as fixed buffers
 * of its io_uring. When the locked-memory limit forbids that, logs the fix and continues with plain
 * buffers.
 */
int disk_attach(struct disk *disk, struct reactor *reactor, struct region *region);
/* Whether any reactor was attached, also when that failed. */
bool disk_attached(const struct disk *disk);
/* Makes the volume a target of the region's base rings. */
int disk_target(struct disk *disk, struct region *region, uint16_t *ret_target);
/* Bytes; a power of two, at most FRAME_BYTES: a device's logical block, so that payload need not be
 * moved to reach it. */
uint32_t disk_align(const struct disk *disk);
/* The bytes that have been written at least once, so that writing them needs no allocation. Any
 * thread. */
uint64_t disk_bytes(const struct disk *disk);
/* The size of the medium when it was opened. A device's last part of less than a MiB is not
 * used. */
uint64_t disk_medium_bytes(const struct disk *disk);
bool disk_can_grow(const struct disk *disk); /* files can */
/* By how many bytes the volume's file may grow so that the reserve stays free on its file system;
 * of an array: each file. UINT64_MAX: no file system of this host bounds it (a device, a volume of
 * another host), or it is not known. Blocks. Any thread. */
uint64_t disk_room(const struct disk *disk, uint64_t reserve_bytes);
/* -ENOSPC: growing to that length would leave the file's file system less than the reserve. 0 for
 * what has that length, and for a device, which disk_grow() refuses. Blocks. Any thread. */
int disk_room_check(const struct disk *disk, uint64_t bytes_total, uint64_t reserve_bytes);
/* True for DISK_JOINED: a commit that writes only to the log does not flush the bodies. */
bool disk_has_log_apart(const struct disk *disk);
/* True when the volume accepts DISCARD: a device that can, a file opened with discard_files, an
 * array with such a member. Any thread. */
bool disk_can_discard(const struct disk *disk);
/* Grows by whole steps and prewrites them; concurrent callers are served one after another. Blocks:
 * a fiber calls it through fiber_offload(). -ENOSPC leaves the volume as it was. -EUCLEAN, with a
 * log line: a file's last step is incomplete and holds data. */
int disk_grow(struct disk *disk, uint64_t bytes_total);
/* Undo the making of a volume that nobody needs. A file of this host becomes as short as it was, or
 * is removed; nothing happens to other volumes. It holds no data, and no operation is in flight.
 * Block. */
int disk_shrink_now(struct disk *disk, uint64_t bytes);
int disk_remove_now(struct disk *disk);
/* Whether the path is that of a file of this host which is not there. */
bool disk_file_absent(const char *path);
/* Fails all further writes and flushes with -EIO, after the medium failed. Any thread. */
void disk_fence(struct disk *disk);
/* Fails all further writes and flushes with -EHOSTDOWN until the volume is resumed: an array has
 * too few members. Any thread. */
void disk_suspend(struct disk *disk);
void disk_resume(struct disk *disk);

/* ---- Direct operations, for the store's own use. ---- */
enum disk_op { DISK_READ, DISK_WRITE, DISK_FLUSH, DISK_DISCARD, DISK_ZERO };

/* The caller's from start until done is called, which happens on the same reactor. result: bytes
 * moved (always all of them) or -errno. */
struct disk_io;
typedef void disk_done_fn(struct disk_io *io, int32_t result);
struct disk_io {
	/* Filled in by the caller. */
	enum disk_op op;
	uint32_t iov_count; /* READ, WRITE: 1 to DISK_IOV_MAX; 0 otherwise */
	struct iovec *iov;  /* changed when a transfer continues after a part of it */
	uint64_t offset;    /* changed when the volume has its log apart */
	uint64_t bytes;	    /* DISCARD, ZERO; otherwise computed */
	disk_done_fn *done;
	void *arg;
	/* The disk's. */
	union {
		struct {
			struct uring_op uring;
			struct reactor_msg msg; /* of volumes that complete without io_uring */
		};
		struct fiber_start start; /* of volumes that need a fiber for it */
	};
	struct disk *disk;
	uint64_t moved;
	int32_t fault; /* the fault layer's decision: 0 or -errno */
	bool again;    /* repeated after the loss of a path */
	/* NVMe: an operation is as many commands as its size takes. */
	struct {
		struct disk_io *next;
		uint64_t at; /* into the current piece; DISCARD, ZERO: into the run */
		uint32_t iov_idx;
		uint32_t pending;
		int32_t error;
		uint32_t status; /* of the controller, when it refused one */
		bool issued;	 /* all of it */
	} split;
};
#define DISK_IOV_MAX 1024u

/* Called on an attached reactor. DISCARD releases a run, to the device or to a file's file system:
 * until the run is written again, reading it may return anything (-EOPNOTSUPP where the volume
 * cannot discard). On an array, it discards the same run on every member that can. ZERO makes a run
 * read as zeros. */
void disk_start(struct disk *disk, struct disk_io *io);
/* On a fiber of an attached reactor: starts the operation and waits; sets done and arg itself.
 * Bytes or -errno. */
int32_t disk_run(struct disk *disk, struct disk_io *io);

/* Several writes at once and then one flush: the writes are durable when done is called, on the
 * same reactor. Earlier writes by disk_start() are durable, too, unless disk_has_log_apart().
 * result: 0, or the first -errno; then some of the data may be on the medium. The caller keeps the
 * struct, unchanged, from start until then. Up to two writes to a file take a faster path. */
struct disk_commit;
typedef void disk_commit_done_fn(struct disk_commit *commit, int32_t result);
struct disk_commit {
	/* Filled in by the caller; of each write its iov, iov_count and offset. */
	struct disk_io *writes; /* of a volume with its log apart, the log's last */
	uint32_t write_count;	/* at least 1; changed */
	disk_commit_done_fn *done;
	/* The disk's. */
	struct disk_io flush;
	struct disk *disk;
	uint32_t left;
	int32_t error;
	bool flushed; /* by the threads that wrote, or by the writes themselves */
	struct list link;
	uint32_t taken;
	_Atomic uint32_t writing;
	atomic_bool failed;
	struct reactor *reactor;
	struct reactor_msg msg;
};
/* On an attached reactor. done may be called before this returns. */
void disk_commit(struct disk *disk, struct disk_commit *commit);

/* Blocking, for opening and checking a store, before reactors run or on helper threads. 0 or
 * -errno; a short read past the end is -EIO. */
int disk_read_now(struct disk *disk, void *data, uint64_t bytes, uint64_t offset);
int disk_write_now(struct disk *disk, const void *data, uint64_t bytes, uint64_t offset);
int disk_flush_now(struct disk *disk);
int disk_zero_now(struct disk *disk, uint64_t bytes, uint64_t offset);

/* True when a range lies on the disk. Called before reading a range that outside data (the index)
 * names. */
bool disk_in_range(const struct disk *disk, uint64_t offset, uint64_t bytes);

/* ---- Drivers: volumes that other folders implement (on other hosts). A path that begins with a
 * driver's scheme belongs to the driver. ---- */
struct disk_identity {
	uint64_t bytes;
	uint64_t medium_bytes;
	uint32_t align;
	bool can_grow;
	bool can_discard;
	char what[256];
};
struct disk_driver {
	const char *scheme; /* "rdma://" */
	const char *name;
	/* A write that was acknowledged is durable, so the user of a volume that was gone may go on
	 * after it is revived. */
	bool durable;
	void *arg;
	/* May block. As disk_open. */
	int (*open)(void *arg, const struct disk_opts *opts, struct disk_identity *ret_identity,
		void **ret_volume);
	/* The attached reactors have stopped. */
	void (*close)(void *volume);
	int (*attach)(void *volume, struct reactor *reactor, struct region *region);
	/* On an attached reactor; ends in disk_io_end(). -ENOTCONN: the volume is gone. -EHOSTDOWN:
	 * it does not do that now, and may or may not have done it. */
	void (*start)(void *volume, struct disk_io *io);
	/* Blocking, on a thread that turns no reactor: READ, WRITE, FLUSH, ZERO. */
	int (*now)(void *volume, enum disk_op op, void *data, uint64_t bytes, uint64_t offset);
	int (*grow)(void *volume, uint64_t bytes_total, struct disk_identity *ret_identity);
	/* disk_revive() and disk_gone(). */
	int (*revive)(void *volume, struct disk_identity *ret_identity);
	bool (*gone)(void *volume);
};
/* Kept by pointer, at most four, before any volume is opened, until none of its volumes is open. */
void disk_driver_add(const struct disk_driver *driver);
void disk_driver_remove(const struct disk_driver *driver);
/* A driver's operation is over, on the reactor that started it. */
void disk_io_end(struct disk_io *io, int32_t result);

/* True when a volume has lost its medium. It then fails every write, even when the medium can be
 * reached again, until it is revived: its user must know that writes may be missing on it. A volume
 * of another host then fails reads, too (-ENOTCONN), a volume in RADOS or over NVMe-oF does not. */
bool disk_gone(const struct disk *disk);
/* 0: the volume can be used again; -ENOTCONN: it cannot be reached yet; -EOPNOTSUPP: this kind
 * cannot be revived. Blocks. */
int disk_revive(struct disk *disk);
/* True when such a volume lacks no write that was acknowledged. */
bool disk_resumes(const struct disk *disk);

/* ---- Arrays: several volumes as one, with erasure coding. ----
 *
 * A geometry is a set of members and the numbers of shards: `data` and `parity`, together as many
 * as its members. An array has one; while its members change it has two, and a striped address says
 * of which it is. Members are numbers from 0 to DISK_MEMBERS_MAX - 1 and have gaps after a change.
 *
 * An address below 2^62 is mirrored: it lies at the same place on the members of the log, which are
 * the first parity + 1 of each geometry (superblocks, log). A striped address names a stripe: 1 to
 * DISK_STRIPE_BLOCKS_MAX blocks of data, cut into `data` shards of equal length, which lie with
 * `parity` more shards at the same offset of the geometry's members, one on each; the offset
 * decides which shard is on which member. The part of a shard beyond the data counts as zeros and
 * is not written. A stripe is written as a whole and read in parts of whole blocks.
 *
 * A member is good, missing (absent, or it failed a write: it gets no more operations), or
 * rebuilding (written, not read, but in the last ways of disk_array_reread). With at least `data`
 * good members of each geometry every operation is served. With fewer, writes fail with -EHOSTDOWN,
 * and so do reads that cannot be computed from the others. */
#define DISK_MEMBERS_MAX       24u
#define DISK_STRIPE_BLOCKS_MAX 256u
#define DISK_GEOMETRIES	       2u
enum disk_member_state { DISK_MEMBER_GOOD, DISK_MEMBER_MISSING, DISK_MEMBER_REBUILDING };
struct disk_geometry {
	uint8_t data;			 /* 1 to 16; 0: there is no such geometry */
	uint8_t parity;			 /* 1 to 8, less than data */
	uint8_t order[DISK_MEMBERS_MAX]; /* its data + parity members */
};
struct disk_array_opts {
	struct disk *members[DISK_MEMBERS_MAX]; /* NULL: missing */
	enum disk_member_state states[DISK_MEMBERS_MAX];
	struct disk_geometry geometries[DISK_GEOMETRIES];
	uint32_t current; /* the geometry of new stripes */
	/* Instead of geometries: one of the members 0 to data + parity - 1. */
	uint32_t data, parity;
	const char *name;
};
/* Takes ownership of the members, also when it fails. -EINVAL, -ENOMEM. */
int disk_array_open(const struct disk_array_opts *opts, struct disk **ret_disk);
uint32_t disk_array_members(const struct disk *disk); /* the last one plus 1; 0: no array */
uint64_t disk_array_mask(const struct disk *disk);    /* one bit for each member */
uint32_t disk_array_data(const struct disk *disk);    /* of new stripes; 0: no array */
struct disk *disk_array_member(const struct disk *disk, uint32_t member);
enum disk_member_state disk_array_state(const struct disk *disk, uint32_t member);
/* One bit for each member that is not good. */
uint64_t disk_array_lost(const struct disk *disk);
/* True when there are enough members to write to. */
bool disk_array_quorum(const struct disk *disk);
/* The same if these members were the ones that are not good. */
bool disk_array_enough(const struct disk *disk, uint64_t lost);
/* Another geometry, in an unused slot; its members are members from now on. -EINVAL: it is none;
 * -EBUSY: the slot is in use. */
int disk_array_geometry_add(struct disk *disk, uint32_t slot, const struct disk_geometry *geometry);
/* Ends the geometry of a slot: no address of it is used any more. Members that are in no other
 * geometry leave: their disks get no more operations, and close with the array. */
void disk_array_geometry_end(struct disk *disk, uint32_t slot);
/* Which geometry new stripes have, for disk_array_data(). */
void disk_array_current(struct disk *disk, uint32_t slot);
/* Data shards of a slot's geometry; 0: it is unused. */
uint32_t disk_array_geometry_data(const struct disk *disk, uint32_t slot);
/* Members of a geometry, one bit for each. */
uint64_t disk_geometry_mask(const struct disk_geometry *geometry);
/* Whether its numbers are possible, and no member is in it twice. */
bool disk_geometry_valid(const struct disk_geometry *geometry);
/* How many times the set of good members has changed. The change must be recorded before any later
 * write is acknowledged. 0: not an array. Any thread. */
uint64_t disk_array_changes(const struct disk *disk);
/* error: why a member is no longer used; -ESTALE: it is replaced, -ENOTCONN: lost. */
void disk_array_fail(struct disk *disk, uint32_t member, int error);
/* A missing member is available again with old data, and is now rebuilding, with this disk in place
 * of its former one. The disk is the member's own again, or another that is attached to the same
 * reactors. -EBUSY: the member is not missing; -ENOSPC: it was replaced too often; -ERANGE:
 * the disk is shorter than the array's members are. The array must not grow meanwhile. */
int disk_array_return(struct disk *disk, uint32_t member, struct disk *with);
/* Closes a disk that did not become a member: at once; or, when event loops may know it because it
 * was attached, together with the array, which keeps it open until then. Takes NULL. Blocks. */
void disk_array_refuse(struct disk *disk, struct disk *other);
/* A rebuilt member is good from now on. */
void disk_array_heal(struct disk *disk, uint32_t member);
/* Missing members (one bit each) are good again: they can be reached and lack no acknowledged
 * write. */
void disk_array_regain(struct disk *disk, uint64_t members);

/* Blocks of 4096 bytes as extents name them: a stripe of `blocks` that begins at block `first` of
 * each member, of the geometry in a slot. An array uses no more of a member than `first` reaches:
 * disk_bytes() is at most DISK_ARRAY_BYTES_MAX, and disk_grow() beyond it is -ENOSPC. */
#define DISK_STRIPE_FIRST_BITS 34u
#define DISK_ARRAY_BYTES_MAX   (4096ull << DISK_STRIPE_FIRST_BITS) /* 64 TiB */
#define DISK_STRIPE_BIT	       (1ull << 50)
#define DISK_STRIPE_SLOT       51u
static inline uint64_t disk_stripe(uint64_t first, uint32_t blocks, uint32_t slot)
{
	CHECK(first < 1ull << DISK_STRIPE_FIRST_BITS);
	CHECK(blocks && blocks <= DISK_STRIPE_BLOCKS_MAX);
	return (uint64_t)slot << DISK_STRIPE_SLOT | DISK_STRIPE_BIT | (uint64_t)(blocks - 1) << 42 |
	       first << 8;
}
static inline uint32_t disk_stripe_slot(uint64_t block)
{
	return (uint32_t)(block >> DISK_STRIPE_SLOT & 1);
}
static inline bool disk_stripe_is(uint64_t block)
{
	return block & DISK_STRIPE_BIT;
}
static inline uint64_t disk_stripe_first(uint64_t block)
{
	return block >> 8 & ((1ull << DISK_STRIPE_FIRST_BITS) - 1);
}
static inline uint32_t disk_stripe_blocks(uint64_t block)
{
	return (uint32_t)(block >> 42 & 0xff) + 1;
}

/* A way to read a stripe: without one or two members; the last ways also read members that are
 * being rebuilt, which may have the right data of this stripe. The first one's number is 0, the
 * next one's is one more. */
struct disk_way {
	uint32_t number;
	uint64_t spares; /* members that are being rebuilt, one bit each */
};
struct disk_way disk_array_way_first(const struct disk *disk);
/* Reads again in another way when the data was wrong although no member reported an error, or when
 * too few members could be read: 0, -EIO, -ENOMEM, or -ENOENT when there is no other way. The
 * caller knows whether the data is right. Fiber call. */
int disk_array_reread(
	struct disk *disk, void *data, uint32_t bytes, uint64_t offset, const struct disk_way *way);
/* Writes the data that was read in that way over the wrong data, and reads it again. -EIO (logged):
 * a member is still wrong. */
int disk_array_amend(struct disk *disk, const void *data, uint32_t bytes, uint64_t offset,
	const struct disk_way *way);
/* The members that have a part of a stripe, one bit each. */
uint64_t disk_array_stripe_members(const struct disk *disk, uint64_t block);
/* Computes a member's part of a stripe and writes it. data: all of the stripe's blocks. wrong: one
 * for each block, true when it is not known to be right: then what depends on it is not written,
 * because the member may have the right part; NULL: all are right. A member whose write fails is
 * given up. -EIO: the member is missing; other errors of the write; -ENOMEM. Fiber call. */
int disk_array_rebuild(
	struct disk *disk, uint64_t block, uint32_t member, const void *data, const bool *wrong);
/* Computes a stripe's parity from its data and compares it with the members' parity. data: all of
 * the stripe's blocks, known to be right: what a member returns unchecked may be what is wrong.
 * amend: rewrites what differs. -EIO (logged): a shard could not be rewritten. Skips members that
 * are not good. Fiber call, or blocking. */
struct disk_parity {
	uint32_t wrong;	     /* shards that differed, without those that could not be rewritten */
	uint64_t read_bytes; /* of parity */
};
int disk_array_parity(struct disk *disk, uint64_t block, const void *data, bool amend,
	struct disk_parity *ret_parity);
/* Blocking: reads a mirrored range from one given copy. -ENOENT past the last copy, -EHOSTDOWN when
 * there is none. A member that is lost then no longer counts: the next one's copy is read. */
int disk_copy_read_now(
	struct disk *disk, uint32_t copy, void *data, uint64_t bytes, uint64_t offset);

/* ---- Persistent memory, for tests without any. ---- */
/* From now on DISK_DAX_FILE takes any file that can be mapped. Its domain of persistence is made
 * up: PATH.durable has what a power failure would leave. "seed=7,lines=N": the power fails at the
 * Nth line of 64 bytes from then on: of the words that were not fenced, some are there. NULL: off.
 */
void disk_dax_simulate(const char *options);
/* Whether the power of the made-up memory has failed. */
bool disk_dax_failed(const struct disk *disk);

/* ---- The contents of a medium that does not belong to a store. ---- */
/* Looks for the signatures of partition tables, file systems, volume managers and encryption, and
 * then for anything that is not zero: in all of a file; at the beginning, at the end and at samples
 * of a device. 0: blank; 1: ret_what says what was found ("an ext4 file system"); -errno. Blocks.
 */
#define DISK_LABEL_BYTES (1 * MIB)
int disk_foreign(struct disk *disk, char *ret_what, size_t what_cap);
/* Reads what the medium holds, also in a file's incomplete last step; zeros where it has ended.
 * Whole blocks of 4096 bytes, in memory that is aligned to them. Blocks. */
int disk_peek_now(struct disk *disk, void *data, uint64_t bytes, uint64_t offset);
/* Whether a medium is a part of a volume that keeps its log apart, by a valid label. LATER: by a
 * label that this program does not know. Behind a log's label, from DISK_LABEL_BYTES on, lie the
 * volume's first bytes. Blocks. */
enum disk_part { DISK_PART_NONE, DISK_PART_LOG, DISK_PART_BODIES, DISK_PART_LATER };
int disk_part_of(struct disk *disk, enum disk_part *ret_part);
/* The media of a volume that keeps its log apart and has no labels yet: first the log's, then the
 * bodies'. The volume shows nothing of what they hold. NULL: there is none, or not so many. */
struct disk *disk_unlabelled(const struct disk *disk, uint32_t part_idx);
/* The path that it was opened by. */
const char *disk_path(const struct disk *disk);
/* Erases the contents: a file becomes empty; on a device, the first and the last MiB become zeros.
 * Blocks. */
int disk_wipe_now(struct disk *disk);

#endif
