/* disk/disk_block.c: a volume that is a whole block device, or a partition: opened exclusively, so
 * that neither a mount nor a second server can use it. Its size comes from the kernel. */
#include "disk/disk_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* O_EXCL without O_CREAT is the block layer's own claim (open(2)). A killed process's io_uring may
 * hold the device for a moment longer. */
static int block_node_open(struct disk *disk, uint64_t wait_ns)
{
	struct disk_wait wait = disk_wait_begin(wait_ns);
	const char *node = disk->fabric ? nvmeof_node(disk->fabric) : disk->path;
	int flags = disk->read_only ? O_RDONLY : O_RDWR | O_EXCL;

	if (disk->fabric)
		flags |= O_DSYNC;
	do {
		disk->fd = open(node, flags | O_DIRECT | O_CLOEXEC);
		if (disk->fd >= 0)
			return 0;
		if (errno != EBUSY)
			return -errno;
	} while (disk_wait_more(disk, &wait));
	return disk_busy(disk, "in use: mounted, part of a RAID or LVM volume, swap, or another "
			       "process has it (see lsblk and fuser)");
}

/* The kernel's attribute of the device, or of the device that it is a partition of. */
static bool block_discards(const struct disk *disk)
{
	static const char *const PLACES[] = {"queue", "../queue"};
	unsigned long long bytes_max = 0;
	struct stat st;

	if (fstat(disk->fd, &st))
		return false;
	for (uint32_t i = 0; i < ARRAY_LEN(PLACES); i++) {
		char path[128];
		FILE *file;

		snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s/discard_max_bytes",
			major(st.st_rdev), minor(st.st_rdev), PLACES[i]);
		file = fopen(path, "re");
		if (!file)
			continue;
		if (fscanf(file, "%llu", &bytes_max) != 1)
			bytes_max = 0;
		fclose(file);
		break;
	}
	return bytes_max > 0;
}

static int block_open(struct disk *disk, const struct disk_opts *opts)
{
	int ret = block_node_open(disk, opts->lock_wait_ns);
	int sector_bytes = 0, read_only = 0;
	uint64_t bytes = 0;

	if (ret)
		return ret;
	if (ioctl(disk->fd, BLKGETSIZE64, &bytes) || ioctl(disk->fd, BLKSSZGET, &sector_bytes) ||
		ioctl(disk->fd, BLKROGET, &read_only))
		return -errno;
	if (read_only && !disk->read_only) {
		log_error("disk", "%s: the device is read-only", disk->path);
		return -EROFS;
	}
	if (sector_bytes <= 0 || DISK_ALIGN_BYTES % (uint32_t)sector_bytes) {
		log_error("disk", "%s: logical blocks of %d bytes; at most %u can be used",
			disk->path, sector_bytes, DISK_ALIGN_BYTES);
		return -EOPNOTSUPP;
	}
	disk->direct = true;
	disk->sector_bytes = (uint32_t)sector_bytes;
	disk->medium_bytes = bytes;
	atomic_store(&disk->discards, block_discards(disk));
	atomic_store(&disk->bytes, ALIGN_DOWN(bytes, MIB));
	snprintf(disk->what, sizeof(disk->what),
		"block device, %llu MiB, logical blocks of %d bytes",
		(unsigned long long)(bytes / MIB), sector_bytes);
	return 0;
}

/* ---- Discarding: an ioctl, which blocks. Kernels before 6.12 have no other way. ---- */

struct block_discard {
	const struct disk_io *io;
	int32_t result;
};

static void discard_run(void *arg)
{
	struct block_discard *discard = (struct block_discard *)arg;
	uint64_t range[2] = {discard->io->offset, discard->io->bytes};

	discard->result = ioctl(discard->io->disk->fd, BLKDISCARD, range) ? -errno : 0;
}

static void discard_fiber(void *arg)
{
	struct disk_io *io = (struct disk_io *)arg;
	struct block_discard discard = {.io = io, .result = io->fault};

	if (!io->fault)
		fiber_offload_long(discard_run, &discard);
	disk_io_finish(io, discard.result);
}

static void block_issue(struct disk_io *io, const struct disk_core *core)
{
	if (io->op != DISK_DISCARD) {
		disk_fd_issue(io, core);
		return;
	}
	io->start = (struct fiber_start){.name = "discard", .fn = discard_fiber, .arg = io};
	fiber_start_surely(core->reactor, &io->start, true);
}

static int block_grow(struct disk *disk, uint64_t bytes_total)
{
	(void)disk;
	(void)bytes_total;
	return -ENOSPC;
}

const struct disk_ops DISK_BLOCK_OPS = {
	.name = "block device",
	.open = block_open,
	.close = disk_fd_close,
	.attach = disk_attach_plain,
	.detach = disk_detach_plain,
	.issue = block_issue,
	.grow = block_grow,
	.read_now = disk_fd_read_now,
	.write_now = disk_fd_write_now,
	.flush_now = disk_fd_flush_now,
	.zero_now = disk_fd_zero_now,
	.can_grow = false,
};
