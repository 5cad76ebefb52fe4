/* disk/disk_dp.c: operations on a volume: from the base rings or started directly, into the
 * submitting core's io_uring, and back. Data path. */
#include "disk/disk_nvme.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>

DEFINE_COUNTER(read_bytes, "nebulaio_disk_read_bytes_total", NULL, "Bytes read from volumes.");
DEFINE_COUNTER(write_bytes, "nebulaio_disk_written_bytes_total", NULL, "Bytes written to volumes.");
DEFINE_COUNTER(flushes, "nebulaio_disk_flushes_total", NULL, "Flushes of volumes' caches.");
DEFINE_COUNTER(failures, "nebulaio_disk_errors_total", NULL, "Operations that failed on a volume.");

static __attribute__((noinline, cold)) void io_failed(struct disk_io *io, int32_t result)
{
	static const char *const NAMES[] = {"read", "write", "flush", "discard", "zero"};

	/* The caller writes the zeros itself. */
	if (io->op == DISK_ZERO && result == -EOPNOTSUPP)
		return;
	counter_add(&failures, 1);
	/* Logged once elsewhere: a lost connection by the driver that had it, too few members by
	 * the array. */
	if (atomic_load(&io->disk->fenced) || result == -ENOTCONN || result == -EHOSTDOWN)
		return;
	if (io->op == DISK_DISCARD && result == -EOPNOTSUPP) {
		if (atomic_exchange(&io->disk->discards, false))
			log_info("disk", "%s: it cannot deallocate: the server does not ask again",
				io->disk->path);
		return;
	}
	if (io->split.status)
		log_error("disk", "%s: %s at %llu failed: NVMe status 0x%x, %s", io->disk->path,
			NAMES[io->op], (unsigned long long)io->offset, io->split.status,
			nvme_status_name(io->split.status));
	else
		log_error("disk", "%s: %s at %llu failed: %s", io->disk->path, NAMES[io->op],
			(unsigned long long)io->offset, strerror(-result));
}

void disk_io_finish(struct disk_io *io, int32_t result)
{
	disk_io_check(io);
	if (__builtin_expect(result < 0, 0)) {
		if (io->disk->fabric && disk_fabric_failed(io, &result))
			return;
		io_failed(io, result);
	} else if (io->op == DISK_READ) {
		counter_add(&read_bytes, io->moved);
	} else if (io->op == DISK_WRITE) {
		counter_add(&write_bytes, io->moved);
	} else if (io->op == DISK_FLUSH) {
		counter_add(&flushes, 1);
	}
	io->done(io, result);
}

void disk_io_end(struct disk_io *io, int32_t result)
{
	if (__builtin_expect(io->fault != 0, 0))
		result = io->fault;
	if (result >= 0)
		io->moved = io->bytes;
	disk_io_finish(io, result);
}

void disk_iov_advance(struct disk_io *io, uint64_t bytes)
{
	while (bytes && bytes >= io->iov->iov_len) {
		bytes -= io->iov->iov_len;
		io->iov++;
		io->iov_count--;
	}
	if (bytes) {
		io->iov->iov_base = (char *)io->iov->iov_base + bytes;
		io->iov->iov_len -= bytes;
	}
}

/* Issues the rest. */
static void again(struct disk_io *io)
{
	disk_fd_issue(io, &io->disk->cores[reactor_core_idx(reactor_self())]);
}

static void io_done(struct uring_op *op, int result, uint32_t cqe_flags)
{
	struct disk_io *io = CONTAINER_OF(op, struct disk_io, uring);

	(void)cqe_flags;
	if (__builtin_expect(io->fault != 0, 0)) {
		disk_io_finish(io, io->fault);
		return;
	}
	if (result == -EAGAIN || result == -EINTR) {
		again(io);
		return;
	}
	if (io->op != DISK_READ && io->op != DISK_WRITE) {
		disk_io_finish(io, result);
		return;
	}
	if (result == 0)
		result = -EIO; /* past the end of the file, or the medium accepts nothing */
	if (result < 0) {
		disk_io_finish(io, result);
		return;
	}
	io->moved += (uint64_t)result;
	if (__builtin_expect(io->moved < io->bytes, 0)) {
		disk_iov_advance(io, (uint64_t)result);
		again(io);
		return;
	}
	disk_io_finish(io, (int32_t)MIN(io->moved, (uint64_t)INT32_MAX));
}

static void prep_transfer(
	struct io_uring_sqe *sqe, const struct disk_io *io, const struct disk_core *core)
{
	uint64_t offset = io->offset + io->moved;
	int arena = -1;

	if (io->iov_count > 1) {
		if (io->op == DISK_READ)
			io_uring_prep_readv(sqe, io->disk->fd, io->iov, io->iov_count, offset);
		else
			io_uring_prep_writev(sqe, io->disk->fd, io->iov, io->iov_count, offset);
		return;
	}
	if (core->registered)
		arena = region_arena_of(core->region, io->iov->iov_base, io->iov->iov_len);
	if (arena >= 0 && io->op == DISK_READ)
		io_uring_prep_read_fixed(sqe, io->disk->fd, io->iov->iov_base,
			(unsigned)io->iov->iov_len, offset, arena);
	else if (arena >= 0)
		io_uring_prep_write_fixed(sqe, io->disk->fd, io->iov->iov_base,
			(unsigned)io->iov->iov_len, offset, arena);
	else if (io->op == DISK_READ)
		io_uring_prep_read(
			sqe, io->disk->fd, io->iov->iov_base, (unsigned)io->iov->iov_len, offset);
	else
		io_uring_prep_write(
			sqe, io->disk->fd, io->iov->iov_base, (unsigned)io->iov->iov_len, offset);
}

void disk_fd_issue(struct disk_io *io, const struct disk_core *core)
{
	struct io_uring_sqe *sqe;

	io->uring.done = io_done;
	sqe = reactor_sqe(core->reactor, &io->uring);
	if (io->op == DISK_FLUSH)
		io_uring_prep_fsync(sqe, io->disk->fd, IORING_FSYNC_DATASYNC);
	else if (io->op == DISK_DISCARD)
		io_uring_prep_fallocate(sqe, io->disk->fd,
			FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)io->offset,
			(off_t)io->bytes); /* of a file; a block device has its own way */
	else if (io->op == DISK_ZERO)
		io_uring_prep_fallocate(sqe, io->disk->fd,
			FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, (off_t)io->offset,
			(off_t)io->bytes);
	else
		prep_transfer(sqe, io, core);
}

/* Fails the operation before it reaches the medium; a torn write fails after half of it did. */
static __attribute__((noinline, cold)) void io_issue_faulty(
	struct disk_io *io, const struct disk_core *core, enum disk_fault fault)
{
	int32_t fenced = io->op == DISK_READ ? 0 : atomic_load(&io->disk->fenced);

	io->fault = fenced ? fenced : -EIO;
	if (fault == DISK_FAULT_TORN &&
		(io->iov_count > 1 || io->iov->iov_len > DISK_ALIGN_BYTES)) {
		if (io->iov_count > 1)
			io->iov_count /= 2;
		else
			io->iov->iov_len = ALIGN_DOWN(io->iov->iov_len / 2, DISK_ALIGN_BYTES);
		io->disk->ops->issue(io, core);
		return;
	}
	io->uring.done = io_done;
	io_uring_prep_nop(reactor_sqe(core->reactor, &io->uring));
}

void disk_io_begin(struct disk *disk, struct disk_io *io)
{
	io->disk = disk;
	io->moved = 0;
	io->fault = 0;
	io->again = false;
	io->split.status = 0;
	if (io->op == DISK_READ || io->op == DISK_WRITE) {
		CHECK(io->iov_count > 0 && io->iov_count <= DISK_IOV_MAX);
		io->bytes = 0;
		for (uint32_t i = 0; i < io->iov_count; i++)
			io->bytes += io->iov[i].iov_len;
	}
}

void disk_start(struct disk *disk, struct disk_io *io)
{
	const struct disk_core *core = &disk->cores[reactor_core_idx(reactor_self())];
	enum disk_fault fault = DISK_FAULT_NONE;

	disk_check(disk);
	CHECK(core->reactor == reactor_self());
	CHECK(io->op <= DISK_ZERO && io->done);
	disk_io_begin(disk, io);
	if (__builtin_expect(disk->faults.active, 0))
		fault = disk_faults_next(&disk->faults, io->op);
	if (io->op != DISK_READ && atomic_load_explicit(&disk->fenced, memory_order_relaxed))
		fault = DISK_FAULT_EIO;
	if (__builtin_expect(fault != DISK_FAULT_NONE, 0))
		io_issue_faulty(io, core, fault);
	else
		disk->ops->issue(io, core);
}

/* ---- The base rings' entries. ---- */

static const uint8_t OP_OF[REGION_OP_COUNT] = {
	[REGION_OP_READ] = DISK_READ,
	[REGION_OP_WRITE] = DISK_WRITE,
	[REGION_OP_FLUSH] = DISK_FLUSH,
	[REGION_OP_DISCARD] = DISK_DISCARD,
};

static void entry_complete(struct disk_entry *entry, int32_t result)
{
	struct region_cqe cqe = {
		.user_data = entry->user_data,
		.result = result,
		.opcode = entry->opcode,
		.target = entry->target,
		.latency_ns = entry->submitted_ns,
	};

	region_complete(entry->ring, &cqe);
}

static void entry_done(struct disk_io *io, int32_t result)
{
	struct disk_entry *entry = CONTAINER_OF(io, struct disk_entry, io);

	entry_complete(entry, result);
	entry->next_free = entry->core->free;
	entry->core->free = entry;
}

/* Checks that a volume can do it: whole blocks below its end. */
static int entry_check(const struct disk *disk, const struct region_sqe *sqe)
{
	if (sqe->opcode == REGION_OP_FLUSH)
		return 0;
	if (sqe->opcode != REGION_OP_READ && sqe->opcode != REGION_OP_WRITE &&
		sqe->opcode != REGION_OP_DISCARD)
		return -EOPNOTSUPP;
	if ((sqe->addr | sqe->offset | sqe->len) % disk_align(disk) || sqe->len == 0)
		return -EINVAL;
	return disk_in_range(disk, sqe->offset, sqe->len) ? 0 : -ERANGE;
}

static uint32_t device_submit(
	void *device, struct region_ring *ring, const struct region_sqe *entries, uint32_t count)
{
	struct disk *disk = (struct disk *)device;
	struct disk_core *core = &disk->cores[reactor_core_idx(reactor_self())];
	uint32_t taken;

	disk_check(disk);
	CHECK(core->reactor == reactor_self());
	for (taken = 0; taken < count && core->free; taken++) {
		const struct region_sqe *sqe = &entries[taken];
		struct disk_entry *entry = core->free;
		int ret = entry_check(disk, sqe);

		entry->ring = ring;
		entry->user_data = sqe->user_data;
		entry->submitted_ns = sqe->submitted_ns;
		entry->target = sqe->target;
		entry->opcode = sqe->opcode;
		if (ret) {
			entry_complete(entry, ret);
			continue;
		}
		core->free = entry->next_free;
		entry->iov.iov_base = (void *)(uintptr_t)sqe->addr;
		entry->iov.iov_len = sqe->len;
		entry->io.op = (enum disk_op)OP_OF[sqe->opcode];
		entry->io.iov = &entry->iov;
		entry->io.iov_count = 1;
		entry->io.offset = sqe->offset;
		entry->io.bytes = sqe->len;
		entry->io.done = entry_done;
		disk_start(disk, &entry->io);
	}
	return taken;
}

/* A volume takes no RDMA work: each entry is refused with its own completion. */
static uint32_t device_submit_wr(
	void *device, struct region_ring *ring, const struct region_wr *entries, uint32_t count)
{
	(void)device;
	for (uint32_t i = 0; i < count; i++) {
		struct region_cqe cqe = {
			.user_data = entries[i].user_data,
			.result = -EOPNOTSUPP,
			.opcode = entries[i].opcode,
			.target = entries[i].target,
		};

		region_complete(ring, &cqe);
	}
	return count;
}

/* The reactor submits its io_uring once, at the end of the turn. */
static void device_bell(void *device, struct region_ring *ring)
{
	(void)device;
	(void)ring;
}

const struct region_device_ops DISK_DEVICE_OPS = {
	.name = "volume",
	.submit = device_submit,
	.submit_wr = device_submit_wr,
	.bell = device_bell,
};
