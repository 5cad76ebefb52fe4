/* disk/disk.h: volumes: where extents and the log lie. A volume is a file today (created, grown,
 * O_DIRECT where the file system allows); block devices and NVMe passthrough come beside it behind
 * the same calls.
 *
 * I/O goes through the unified rings: a volume is a target of the region's base rings (READ, WRITE,
 * FLUSH, DISCARD with byte offsets), served by the submitting core's io_uring with the region's
 * arenas as fixed buffers. Addresses, lengths and offsets are multiples of disk_align(). */
#ifndef DISK_DISK_H
#define DISK_DISK_H

#include <stdint.h>

#include "base/base.h"
#include "reactor/reactor.h"
#include "region/region.h"

struct disk;

enum disk_kind { DISK_FILE, DISK_SIMULATED };

struct disk_opts {
	enum disk_kind kind;
	const char *path;   /* of the volume file */
	uint64_t bytes_min; /* grown to at least this at open, prewritten */
	bool create;	    /* when it does not exist */
	const char
		*faults; /* DISK_SIMULATED: "seed=7,eio=0.01,torn=0.01,enospc_at=…"; NULL: none */
};

/* -ENOENT, -EACCES, -ENOSPC, -EBUSY (another process holds the volume's lock). Not for reactors:
 * may block. */
int disk_open(const struct disk_opts *opts, struct disk **ret_disk);
void disk_close(struct disk *disk);
/* Once per reactor before it runs I/O: registers the region's arenas as fixed buffers of its
 * io_uring. When the locked-memory limit forbids it, logs the fix and goes on with plain buffers.
 */
int disk_attach(struct disk *disk, struct reactor *reactor, struct region *region);
/* Makes the volume a target of the region's base rings. */
int disk_target(struct disk *disk, struct region *region, uint16_t *ret_target);
uint32_t disk_align(const struct disk *disk); /* bytes; a power of two, at most FRAME_BYTES */
uint64_t disk_bytes(
	const struct disk *disk); /* written at least once and so writable without allocation */
/* Grows by whole steps and prewrites them, in the background of a fiber. -ENOSPC leaves it as it
 * was. */
int disk_grow(struct disk *disk, uint64_t bytes_total);
/* Fails all further writes, after the medium failed. */
void disk_fence(struct disk *disk);

#endif
