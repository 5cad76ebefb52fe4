/* disk/disk.h: volumes: where extents and the log lie. A volume is a file today (created, grown,
 * O_DIRECT where the file system allows); block devices and NVMe passthrough come beside it behind
 * the same calls.
 *
 * Payload goes through the unified rings: a volume is a target of the region's base rings (READ,
 * WRITE, FLUSH, DISCARD with byte offsets), served by the submitting core's io_uring with the
 * region's arenas as fixed buffers. The store's committer, which needs gathered writes and no ring
 * of its own, starts operations directly by disk_start(). Addresses, lengths and offsets are
 * multiples of disk_align().
 *
 * A volume's bytes below disk_bytes() have been written once (zeros), so that a later write there
 * changes no file system metadata and one fdatasync costs one cache flush of the device. */
#ifndef DISK_DISK_H
#define DISK_DISK_H

#include <stdint.h>
#include <sys/uio.h>

#include "base/base.h"
#include "reactor/reactor.h"
#include "region/region.h"

struct disk;

enum disk_kind { DISK_FILE, DISK_SIMULATED };

struct disk_opts {
	enum disk_kind kind;
	const char *path;    /* of the volume file */
	uint64_t bytes_min;  /* grown to at least this at open, prewritten */
	uint64_t step_bytes; /* the volume is a whole number of these; 0: DISK_STEP_BYTES */
	bool create;	     /* when it does not exist */
	/* How long to wait for the lock. A killed process's io_uring holds the volume until its
	 * last write has ended, which may be a moment after the process is gone. */
	uint64_t lock_wait_ns;
	/* DISK_SIMULATED, a real file with faults: "seed=7,eio=0.01,torn=0.01,enospc_at=BYTES,
	 * eio_after=N". eio: an operation fails; torn: a write stops half-way and fails;
	 * enospc_at: growing beyond this fails; eio_after: everything after N operations fails. */
	const char *faults;
};

#define DISK_STEP_BYTES (64 * MIB)

/* -ENOENT, -EACCES, -ENOSPC, -EBUSY (another process holds the volume's lock), -EINVAL (bad faults
 * text). Not for reactors: may block. */
int disk_open(const struct disk_opts *opts, struct disk **ret_disk);
void disk_close(struct disk *disk); /* takes NULL; no operation may be in flight */
/* Once per reactor before it runs I/O: registers the region's arenas as fixed buffers of its
 * io_uring. When the locked-memory limit forbids it, logs the fix and goes on with plain buffers.
 */
int disk_attach(struct disk *disk, struct reactor *reactor, struct region *region);
/* Makes the volume a target of the region's base rings. */
int disk_target(struct disk *disk, struct region *region, uint16_t *ret_target);
uint32_t disk_align(const struct disk *disk); /* bytes; a power of two, at most FRAME_BYTES */
/* Written at least once and so writable without allocation. Any thread. */
uint64_t disk_bytes(const struct disk *disk);
/* Grows by whole steps and prewrites them; several callers at once are served in turn. Blocks: a
 * fiber calls it through fiber_offload(). -ENOSPC leaves the volume as it was. */
int disk_grow(struct disk *disk, uint64_t bytes_total);
/* Fails all further writes and flushes with -EIO, after the medium failed. Any thread. */
void disk_fence(struct disk *disk);

/* ---- Direct operations, for the store's own use. ---- */
enum disk_op { DISK_READ, DISK_WRITE, DISK_FLUSH, DISK_DISCARD };

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
	uint64_t bytes; /* DISCARD; otherwise computed */
	disk_done_fn *done;
	void *arg;
	/* The disk's. */
	struct uring_op uring;
	struct disk *disk;
	uint64_t moved;
	int32_t fault; /* what the fault layer decided: 0 or -errno */
};
#define DISK_IOV_MAX 1024u

/* On an attached reactor. DISCARD gives a run back to the file system: it must be prewritten by
 * disk_grow's means before anybody counts on it again. */
void disk_start(struct disk *disk, struct disk_io *io);

/* Blocking, for opening and checking a store, before reactors run or on helper threads. 0 or
 * -errno; a short read past the end is -EIO. */
int disk_read_now(struct disk *disk, void *data, uint64_t bytes, uint64_t offset);
int disk_write_now(struct disk *disk, const void *data, uint64_t bytes, uint64_t offset);
int disk_flush_now(struct disk *disk);

#endif
