/* disk/disk_fabric.c: a volume `nvmeof://…`: the block device of a name space that the kernel's
 * initiator has connected (src/nvmeof), and the loss of all its paths.
 *
 * The kernel reconnects by itself and repeats operations that a lost path had taken; they wait. It
 * fails them when no path came back in time (fast_io_fail_tmo). The volume is then gone: it fails
 * every change until its user revives it, and reads while no path is live.
 *
 * A target that crashed has lost its cache, and the kernel's initiator does not tell that it has
 * reconnected. So every write is durable by itself (O_DSYNC: the command has Force Unit Access),
 * and nothing that was acknowledged depends on a flush after a reconnection. */
#include "disk/disk_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

DEFINE_COUNTER(lost, "nebulaio_disk_nvmeof_lost_total", NULL,
	"Times that a volume nvmeof://… failed an operation because no path to it was left.");

static int32_t lost_error(const struct disk *disk)
{
	return disk->member ? -ENOTCONN : -EHOSTDOWN;
}

static void lost_take(struct disk *disk)
{
	if (atomic_exchange(&disk->fabric_gone, true))
		return;
	counter_add(&lost, 1);
	log_error("disk",
		"%s: no path to it came back in time: the kernel tries on, and the volume is used "
		"again when one does",
		disk->path);
}

/* The kernel has several errors for an operation without a path, by where it was. */
static bool is_loss(int32_t result)
{
	return result == -EIO || result == -ENOLINK || result == -ENODEV || result == -ENXIO ||
	       result == -ETIMEDOUT || result == -EREMOTEIO || result == -EAGAIN;
}

static void refused_done(struct uring_op *op, int result, uint32_t cqe_flags)
{
	struct disk_io *io = CONTAINER_OF(op, struct disk_io, uring);

	(void)result;
	(void)cqe_flags;
	disk_io_finish(io, io->fault ? io->fault : lost_error(io->disk));
}

static void fabric_issue(struct disk_io *io, const struct disk_core *core)
{
	if (__builtin_expect(io->op != DISK_READ && atomic_load_explicit(&io->disk->fabric_gone,
							    memory_order_relaxed),
		    0)) {
		io->uring.done = refused_done;
		io_uring_prep_nop(reactor_sqe(core->reactor, &io->uring));
		return;
	}
	DISK_BLOCK_OPS.issue(io, core);
}

/* A path may have come back between the failure and this look, so an operation that fails while
 * one is live is repeated once. */
bool disk_fabric_failed(struct disk_io *io, int32_t *result)
{
	struct disk *disk = io->disk;

	if (io->fault || !is_loss(*result))
		return false;
	if (!atomic_load(&disk->fabric_gone) && nvmeof_live(disk->fabric)) {
		if (io->again)
			return false;
		io->again = true;
		fabric_issue(io, &disk->cores[reactor_core_idx(reactor_self())]);
		return true;
	}
	lost_take(disk);
	*result = lost_error(disk);
	return false;
}

/* ---- Calls that block. ---- */

static int now_result(struct disk *disk, int ret)
{
	if (!is_loss(ret) || nvmeof_live(disk->fabric))
		return ret;
	lost_take(disk);
	return lost_error(disk);
}

static int fabric_read_now(struct disk *disk, void *data, uint64_t bytes, uint64_t offset)
{
	return now_result(disk, disk_fd_read_now(disk, data, bytes, offset));
}

static int fabric_write_now(struct disk *disk, const void *data, uint64_t bytes, uint64_t offset)
{
	if (atomic_load(&disk->fabric_gone))
		return lost_error(disk);
	return now_result(disk, disk_fd_write_now(disk, data, bytes, offset));
}

static int fabric_flush_now(struct disk *disk)
{
	if (atomic_load(&disk->fabric_gone))
		return lost_error(disk);
	return now_result(disk, disk_fd_flush_now(disk));
}

static int fabric_zero_now(struct disk *disk, uint64_t bytes, uint64_t offset)
{
	if (atomic_load(&disk->fabric_gone))
		return lost_error(disk);
	return now_result(disk, disk_fd_zero_now(disk, bytes, offset));
}

int disk_fabric_revive(struct disk *disk)
{
	void *block;
	bool reads;

	if (!nvmeof_live(disk->fabric))
		return -ENOTCONN;
	/* A device that was removed meanwhile stays so for this descriptor. */
	if (posix_memalign(&block, DISK_ALIGN_BYTES, DISK_ALIGN_BYTES))
		return -ENOMEM;
	reads = pread(disk->fd, block, DISK_ALIGN_BYTES, 0) == (ssize_t)DISK_ALIGN_BYTES;
	free(block);
	if (!reads)
		return -ENOTCONN;
	if (atomic_exchange(&disk->fabric_gone, false))
		log_info("disk", "%s: a path is live again", disk->path);
	return 0;
}

/* ---- Opening. ---- */

static int fabric_open(struct disk *disk, const struct disk_opts *opts)
{
	char block[sizeof(disk->what)];
	int ret = nvmeof_open(disk->path, NULL, opts->probe, &disk->fabric);

	if (!ret)
		ret = DISK_BLOCK_OPS.open(disk, opts);
	if (ret)
		return ret;
	snprintf(block, sizeof(block), "%s", disk->what);
	snprintf(disk->what, sizeof(disk->what), "%.150s; %s, %.60s", nvmeof_describe(disk->fabric),
		nvmeof_node(disk->fabric), block);
	return 0;
}

static void fabric_close(struct disk *disk)
{
	disk_fd_close(disk);
	nvmeof_close(disk->fabric);
}

static int fabric_grow(struct disk *disk, uint64_t bytes_total)
{
	return DISK_BLOCK_OPS.grow(disk, bytes_total);
}

const struct disk_ops DISK_FABRIC_OPS = {
	.name = "NVMe-oF volume",
	.open = fabric_open,
	.close = fabric_close,
	.attach = disk_attach_plain,
	.detach = disk_detach_plain,
	.issue = fabric_issue,
	.grow = fabric_grow,
	.read_now = fabric_read_now,
	.write_now = fabric_write_now,
	.flush_now = fabric_flush_now,
	.zero_now = fabric_zero_now,
	.can_grow = false,
};
