/* disk/disk.h: volumes: where extents and the log lie. A volume is a file (created, grown, O_DIRECT
 * where the file system allows), a whole block device, or an NVMe namespace's passthrough device
 * (/dev/ng…), behind the same calls; the path says which.
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

/* AUTO: as the path says. The simulated ones are for tests: a file with faults, and a file behind
 * an NVMe controller that is made up. */
enum disk_kind {
	DISK_AUTO,
	DISK_FILE,
	DISK_BLOCK,
	DISK_NVME,
	DISK_SIMULATED,
	DISK_NVME_SIMULATED,
	DISK_ARRAY,  /* by disk_array_open */
	DISK_DRIVEN, /* by the driver of the path's scheme */
};

struct disk_opts {
	enum disk_kind kind;
	const char *path;    /* of the volume file or device */
	uint64_t bytes_min;  /* grown to at least this at open, prewritten */
	uint64_t step_bytes; /* the volume is a whole number of these; 0: DISK_STEP_BYTES */
	bool create;	     /* a file, when it does not exist */
	bool read_only;	     /* to look at it: not locked, not grown, writes fail */
	bool probe;	     /* that it cannot be reached is no news */
	/* A file takes DISCARD: what is given back to its file system is no longer prewritten, so
	 * that writing there again allocates, and fails where the file system is full. */
	bool discard_files;
	/* How long to wait for the lock. A killed process's io_uring holds the volume until its
	 * last write has ended, which may be a moment after the process is gone. */
	uint64_t lock_wait_ns;
	/* Faults, with any kind: "seed=7,eio=0.01,torn=0.01,enospc_at=BYTES,eio_after=N". eio: an
	 * operation fails; torn: a write stops half-way and fails; enospc_at: growing beyond this
	 * fails; eio_after: everything after N operations fails. NULL: none. */
	const char *faults;
	/* DISK_NVME_SIMULATED: "lba=512,mdts=5,status=0x281,after=N,ms=BYTES,caps=0": the size of a
	 * logical block; the largest transfer, 4096 << mdts; the status that the commands from the
	 * N-th on end with; metadata per block; without deallocate and write zeroes.
	 * "max_segments=N": what it says it takes; "bytes_taken=N,segments_taken=N": what it takes,
	 * and refuses beyond; "fixed_rest=N": so near to its end it takes a registered buffer. */
	const char *nvme;
};

#define DISK_STEP_BYTES (64 * MIB)

/* -ENOENT, -EACCES, -ENOSPC (a device smaller than bytes_min, too), -EBUSY (another process holds
 * the volume's lock; a device is mounted or otherwise in use), -EINVAL (bad faults text; neither
 * file nor device), -EOPNOTSUPP (a device whose blocks we cannot use: the log says why), -EROFS.
 * Not for reactors: may block. */
int disk_open(const struct disk_opts *opts, struct disk **ret_disk);
/* Takes NULL. No operation may be in flight, and the attached reactors turn no more. */
void disk_close(struct disk *disk);
enum disk_kind disk_kind(const struct disk *disk);
/* One line about the medium, for the log: model, sizes, polled or not. */
const char *disk_describe(const struct disk *disk);
/* The kind of volume at the path: 0, -ENOENT, -EINVAL (neither a file nor a known device). */
int disk_kind_of(const char *path, enum disk_kind *ret_kind);
/* Once per reactor before it runs I/O: registers the region's arenas as fixed buffers of its
 * io_uring. When the locked-memory limit forbids it, logs the fix and goes on with plain buffers.
 */
int disk_attach(struct disk *disk, struct reactor *reactor, struct region *region);
/* Makes the volume a target of the region's base rings. */
int disk_target(struct disk *disk, struct region *region, uint16_t *ret_target);
/* Bytes; a power of two, at most FRAME_BYTES: a device's logical block, so that payload need not be
 * moved to reach it. */
uint32_t disk_align(const struct disk *disk);
/* Written at least once and so writable without allocation. Any thread. */
uint64_t disk_bytes(const struct disk *disk);
/* The whole medium, as it was opened: a device's last part of a MiB is not used. */
uint64_t disk_medium_bytes(const struct disk *disk);
bool disk_can_grow(const struct disk *disk); /* files can */
/* Whether it takes DISCARD: a device that can; a file that was opened so; an array with such a
 * member. Any thread. */
bool disk_can_discard(const struct disk *disk);
/* Grows by whole steps and prewrites them; several callers at once are served in turn. Blocks: a
 * fiber calls it through fiber_offload(). -ENOSPC leaves the volume as it was. -EUCLEAN, with a log
 * line: a file's last step is there in part and holds something. */
int disk_grow(struct disk *disk, uint64_t bytes_total);
/* Fails all further writes and flushes with -EIO, after the medium failed. Any thread. */
void disk_fence(struct disk *disk);
/* Fails them with -EHOSTDOWN until it is resumed: an array with too few members. Any thread. */
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
	struct iovec *iov;  /* changed on the way when a transfer is taken up again */
	uint64_t offset;
	uint64_t bytes; /* DISCARD, ZERO; otherwise computed */
	disk_done_fn *done;
	void *arg;
	/* The disk's. */
	struct uring_op uring;
	struct disk *disk;
	uint64_t moved;
	int32_t fault; /* what the fault layer decided: 0 or -errno */
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

/* On an attached reactor. DISCARD gives a run back, to the device or to a file's file system: until
 * it is written again it may read as anything (-EOPNOTSUPP where that cannot be). Of an array: the
 * same run of every member that takes it. ZERO makes a run read as zeros. */
void disk_start(struct disk *disk, struct disk_io *io);
/* On a fiber of one: starts it and waits; done and arg are not the caller's. Bytes or -errno. */
int32_t disk_run(struct disk *disk, struct disk_io *io);

/* Writes side by side and then one flush: what was written is durable when done is called, on the
 * same reactor. result: 0, or the first -errno; then some of it may be on the medium and some not.
 * The caller's from start until then. To a file, two writes at most go a shorter way. */
struct disk_commit;
typedef void disk_commit_done_fn(struct disk_commit *commit, int32_t result);
struct disk_commit {
	/* Filled in by the caller; of each write its iov, iov_count and offset. */
	struct disk_io *writes;
	uint32_t write_count; /* at least 1 */
	disk_commit_done_fn *done;
	/* The disk's. */
	struct disk_io flush;
	uint32_t left;
	int32_t error;
	bool by_thread;
	struct list link;
	uint32_t taken;
	_Atomic uint32_t writing;
	atomic_bool failed;
	struct reactor *reactor;
	struct reactor_msg msg;
};
/* On an attached reactor. */
void disk_commit(struct disk *disk, struct disk_commit *commit);

/* Blocking, for opening and checking a store, before reactors run or on helper threads. 0 or
 * -errno; a short read past the end is -EIO. */
int disk_read_now(struct disk *disk, void *data, uint64_t bytes, uint64_t offset);
int disk_write_now(struct disk *disk, const void *data, uint64_t bytes, uint64_t offset);
int disk_flush_now(struct disk *disk);
int disk_zero_now(struct disk *disk, uint64_t bytes, uint64_t offset);

/* Whether a range is one of the disk's: what outside data (the index) names is asked before it is
 * read. */
bool disk_in_range(const struct disk *disk, uint64_t offset, uint64_t bytes);

/* ---- Drivers: volumes that are no matter of this folder (on other hosts). A path that begins with
 * a driver's scheme is the driver's. ---- */
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
	void *arg;
	/* May block. As disk_open. */
	int (*open)(void *arg, const struct disk_opts *opts, struct disk_identity *ret_identity,
		void **ret_volume);
	/* The attached reactors turn no more. */
	void (*close)(void *volume);
	int (*attach)(void *volume, struct reactor *reactor, struct region *region);
	/* On an attached reactor; ends in disk_io_end(). -ENOTCONN: the volume is gone. */
	void (*start)(void *volume, struct disk_io *io);
	/* Blocking, on a thread that turns no reactor: READ, WRITE, FLUSH, ZERO. */
	int (*now)(void *volume, enum disk_op op, void *data, uint64_t bytes, uint64_t offset);
	int (*grow)(void *volume, uint64_t bytes_total, struct disk_identity *ret_identity);
	/* disk_revive() and disk_gone(). */
	int (*revive)(void *volume, struct disk_identity *ret_identity);
	bool (*gone)(void *volume);
};
/* Kept by pointer; at most one, before any volume is opened. NULL: none any more. */
void disk_driver_set(const struct disk_driver *driver);
/* A driver's operation is over, on the reactor that started it. */
void disk_io_end(struct disk_io *io, int32_t result);

/* Whether a volume has lost its medium: it then fails every operation with -ENOTCONN, also when it
 * can be reached again, until it is revived: its user must know that writes may be missing on
 * it. */
bool disk_gone(const struct disk *disk);
/* 0: all may begin anew; -ENOTCONN: it cannot be reached yet; -EOPNOTSUPP: this kind does not come
 * back. Blocks. */
int disk_revive(struct disk *disk);

/* ---- Arrays: several volumes as one, with erasure coding. ----
 *
 * An address below 2^62 is mirrored: it lies at the same place on the first parity + 1 members
 * (superblocks, log). A striped address names a stripe: so many blocks of data (1 to
 * DISK_STRIPE_BLOCKS_MAX), cut into `data` shards of equal length, which lie with `parity` more at
 * one and the same offset of all members, one each; whose is whose turns with the offset. The part
 * of a shard beyond the data counts as zeros and is not written. A stripe is written as a whole and
 * read in parts of whole blocks.
 *
 * A member is good, missing (not there, or it failed a write: nothing goes to it any more), or
 * rebuilding (written, not read). With at least `data` good members all is served; with fewer,
 * writes, and reads that cannot be made out of the others, fail with -EHOSTDOWN. */
#define DISK_MEMBERS_MAX       24u
#define DISK_STRIPE_BLOCKS_MAX 256u
enum disk_member_state { DISK_MEMBER_GOOD, DISK_MEMBER_MISSING, DISK_MEMBER_REBUILDING };
struct disk_array_opts {
	struct disk *members[DISK_MEMBERS_MAX]; /* NULL: missing */
	enum disk_member_state states[DISK_MEMBERS_MAX];
	uint32_t data;	 /* 1 to 16 */
	uint32_t parity; /* 1 to 8, less than data */
	const char *name;
};
/* Takes the members over, also when it fails. -EINVAL, -ENOMEM. */
int disk_array_open(const struct disk_array_opts *opts, struct disk **ret_disk);
uint32_t disk_array_members(const struct disk *disk); /* 0: no array */
uint32_t disk_array_data(const struct disk *disk);
struct disk *disk_array_member(const struct disk *disk, uint32_t member);
enum disk_member_state disk_array_state(const struct disk *disk, uint32_t member);
/* One bit for each member that is not good. */
uint64_t disk_array_lost(const struct disk *disk);
/* Enough members to write to. */
bool disk_array_quorum(const struct disk *disk);
/* How often who is good has changed: that must be written down before anything that was written
 * since is acknowledged. 0: no array. Any thread. */
uint64_t disk_array_changes(const struct disk *disk);
/* error: why a member is not used any more; -ESTALE: it is replaced, -ENOTCONN: lost. */
void disk_array_fail(struct disk *disk, uint32_t member, int error);
/* A missing member is there again, and behind: rebuilding, with this disk in place of what it had;
 * its own again, or one that is attached to the same reactors. -EBUSY: it is not missing; -ENOSPC:
 * too often replaced. */
int disk_array_return(struct disk *disk, uint32_t member, struct disk *with);
/* A rebuilt member is good from now on. */
void disk_array_heal(struct disk *disk, uint32_t member);
/* Missing members (one bit each) that can be reached again, and lack nothing that was acknowledged,
 * are good again. */
void disk_array_regain(struct disk *disk, uint64_t members);

/* Blocks of 4096 bytes as extents name them: a stripe of `blocks` that begins at block `first` of
 * each member. */
#define DISK_STRIPE_BIT (1ull << 50)
static inline uint64_t disk_stripe(uint64_t first, uint32_t blocks)
{
	return DISK_STRIPE_BIT | (uint64_t)(blocks - 1) << 42 | first << 8;
}
static inline bool disk_stripe_is(uint64_t block)
{
	return block & DISK_STRIPE_BIT;
}
static inline uint64_t disk_stripe_first(uint64_t block)
{
	return block >> 8 & ((1ull << 34) - 1);
}
static inline uint32_t disk_stripe_blocks(uint64_t block)
{
	return (uint32_t)(block >> 42 & 0xff) + 1;
}

/* Reads again in another way, as long as there is one, when what was read was wrong though no
 * member said so: 0, -EIO, -ENOENT (there are no more ways). Fiber calls; ways count from 0. */
int disk_array_reread(struct disk *disk, void *data, uint32_t bytes, uint64_t offset, uint32_t way);
/* Writes what was read in that way over what was wrong. */
int disk_array_amend(
	struct disk *disk, const void *data, uint32_t bytes, uint64_t offset, uint32_t way);
/* Makes a member's part of a stripe out of the others and writes it. Fiber call. */
int disk_array_rebuild(struct disk *disk, uint64_t block, uint32_t member);
/* Makes a stripe's parity out of its data, which is known to be right, and holds the members
 * against it; amend: writes anew what differs. ret_wrong: how many shards did. Members that are not
 * good are left out. Fiber call, or blocking. */
int disk_array_parity(struct disk *disk, uint64_t block, bool amend, uint32_t *ret_wrong);
/* Blocking: reads a mirrored range from one certain member: -ENOENT past the last copy, -EHOSTDOWN
 * when there is none. A member that is lost then counts no more: the next one's copy is read. */
int disk_copy_read_now(
	struct disk *disk, uint32_t copy, void *data, uint64_t bytes, uint64_t offset);

/* ---- The contents of a medium that does not belong to a store. ---- */
/* Looks for the signatures of partition tables, file systems, volume managers and encryption, and
 * then for anything that is not zero: in all of a file, at the beginning, at the end and at samples
 * of a device. 0: blank; 1: a sentence's worth in ret_what ("an ext4 file system"); -errno. Blocks.
 */
#define DISK_LABEL_BYTES (1 * MIB)
int disk_foreign(struct disk *disk, char *ret_what, size_t what_cap);
/* Gives up what was there: a file becomes empty, of a device the first MiB and the last become
 * zeros. Blocks. */
int disk_wipe_now(struct disk *disk);

#endif
