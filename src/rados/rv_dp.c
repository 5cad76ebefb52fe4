/* rados/rv_dp.c: operations on objects, from a reactor to librados and back. librados calls back on
 * a thread of its own; a message takes the piece to its reactor. Data path: librados itself
 * allocates and locks for each operation.
 *
 * A write that Ceph acknowledged is durable, so a flush has nothing to do. */
#include "rados/counters.h"
#include "rados/rv_priv.h"

#include <errno.h>
#include <string.h>

static void pump(struct rv_core *core);

/* ---- Failures. ---- */

__attribute__((noinline, cold)) int rv_failed(
	struct rv_volume *volume, uint64_t object, int error, bool writing)
{
	counter_add(&failures, 1);
	if (error == -ESHUTDOWN) {
		rv_lost(volume);
		return -EIO;
	}
	/* Full, below min_size, without an osd, or only slow: it may work later. */
	if (error != -ETIMEDOUT && error != -ENOSPC && error != -EDQUOT && error != -EAGAIN &&
		error != -ENOTCONN && error != -EBUSY)
		return error;
	if (!writing)
		return -EHOSTDOWN;
	atomic_store(&volume->failed_object, object);
	if (!atomic_exchange(&volume->down, true))
		log_error("rados",
			"%s: Ceph does not take a write of object %llu in pool %s: %s: nothing is "
			"written until it does",
			volume->path, (unsigned long long)object,
			rv_pool_of(volume, object) == volume->front || !volume->body_pool[0]
				? volume->pool
				: volume->body_pool,
			error == -ETIMEDOUT ? "no answer in time" : strerror(-error));
	return -EHOSTDOWN;
}

static void refused(struct uring_op *op, int result, uint32_t cqe_flags)
{
	struct disk_io *io = CONTAINER_OF(op, struct disk_io, uring);

	(void)result;
	(void)cqe_flags;
	disk_io_end(io, io->split.error);
}

/* Ends an operation of which nothing is under way, in the next turn of the reactor. */
static void io_end_soon(struct rv_core *core, struct disk_io *io, int32_t result)
{
	io->split.error = result;
	io->uring.done = refused;
	io_uring_prep_nop(reactor_sqe(core->reactor, &io->uring));
}

static int32_t io_result(const struct disk_io *io)
{
	return io->split.error ? io->split.error : (int32_t)MIN(io->bytes, (uint64_t)INT32_MAX);
}

/* ---- Back. ---- */

static void piece_give(struct rv_piece *piece)
{
	struct rv_core *core = piece->core;

	core->flight_bytes -= piece->bytes;
	piece->next_free = core->free;
	core->free = piece;
}

/* Bytes that were never written count as zeros. */
static int piece_read_end(struct rv_piece *piece)
{
	int error = piece->result < 0 && piece->result != -ENOENT ? piece->result : 0;

	for (uint32_t i = 0; i < piece->iov_count && !error; i++) {
		size_t got = piece->result < 0 || piece->parts[i] == -ENOENT ? 0 : piece->got[i];

		if (piece->result >= 0 && piece->parts[i] < 0 && piece->parts[i] != -ENOENT)
			error = piece->parts[i];
		else if (got < piece->iov[i].iov_len)
			memset((uint8_t *)piece->iov[i].iov_base + got, 0,
				piece->iov[i].iov_len - got);
		counter_add(&copied_in, got);
	}
	return error;
}

static void piece_done(struct reactor_msg *msg)
{
	struct rv_piece *piece = CONTAINER_OF(msg, struct rv_piece, msg);
	struct rv_core *core = piece->core;
	struct disk_io *io = piece->io;
	bool reading = io->op == DISK_READ;
	int error = piece->result < 0 ? piece->result : 0;

	if (reading)
		error = piece_read_end(piece);
	else if (error == -ENOENT && io->op != DISK_WRITE)
		error = 0;
	if (piece->read)
		rados_release_read_op(piece->read);
	if (piece->write)
		rados_release_write_op(piece->write);
	if (piece->completion)
		rados_aio_release(piece->completion);
	if (__builtin_expect(error != 0, 0)) {
		error = rv_failed(core->volume, piece->object, error, !reading);
		if (!io->split.error)
			io->split.error = error;
	}
	piece_give(piece);
	if (--io->split.pending == 0 && io->split.issued)
		disk_io_end(io, io_result(io));
	pump(core);
}

/* On a thread of librados. */
static void completed(rados_completion_t completion, void *arg)
{
	struct rv_piece *piece = (struct rv_piece *)arg;

	piece->result = rados_aio_get_return_value(completion);
	reactor_help_end(piece->core->reactor, &piece->msg);
}

/* ---- Forth. ---- */

/* Takes the part of the operation that is in one object, and fits the piece. */
static void piece_fill(struct rv_piece *piece, struct disk_io *io, uint64_t offset)
{
	uint64_t room = RV_OBJECT_BYTES - offset % RV_OBJECT_BYTES;

	piece->object = offset / RV_OBJECT_BYTES;
	piece->bytes = 0;
	piece->iov_count = 0;
	if (io->op != DISK_READ && io->op != DISK_WRITE) {
		piece->bytes = MIN(room, io->bytes - io->split.at);
		return;
	}
	while (room && piece->iov_count < RV_PIECE_IOVS && io->split.iov_idx < io->iov_count) {
		const struct iovec *iov = &io->iov[io->split.iov_idx];
		uint64_t bytes = MIN(room, iov->iov_len - io->split.at);

		piece->iov[piece->iov_count].iov_base = (uint8_t *)iov->iov_base + io->split.at;
		piece->iov[piece->iov_count].iov_len = bytes;
		piece->iov_count++;
		piece->bytes += bytes;
		room -= bytes;
		io->split.at += bytes;
		if (io->split.at == iov->iov_len) {
			io->split.at = 0;
			io->split.iov_idx++;
		}
	}
}

static int read_send(struct rv_piece *piece, rados_ioctx_t pool, const char *oid, uint64_t at)
{
	piece->read = rados_create_read_op();
	if (!piece->read)
		return -ENOMEM;
	for (uint32_t i = 0; i < piece->iov_count; i++) {
		piece->got[i] = 0;
		piece->parts[i] = 0;
		rados_read_op_read(piece->read, at, piece->iov[i].iov_len,
			(char *)piece->iov[i].iov_base, &piece->got[i], &piece->parts[i]);
		at += piece->iov[i].iov_len;
	}
	counter_add(&reads, 1);
	return rados_aio_read_op_operate(piece->read, pool, piece->completion, oid, 0);
}

static int write_send(struct rv_piece *piece, rados_ioctx_t pool, const char *oid, uint64_t at)
{
	piece->write = rados_create_write_op();
	if (!piece->write)
		return -ENOMEM;
	if (piece->io->op == DISK_WRITE) {
		for (uint32_t i = 0; i < piece->iov_count; i++) {
			rados_write_op_write(piece->write, (const char *)piece->iov[i].iov_base,
				piece->iov[i].iov_len, at);
			at += piece->iov[i].iov_len;
		}
		counter_add(&writes, 1);
		counter_add(&copied_out, piece->bytes);
	} else {
		if (piece->bytes == RV_OBJECT_BYTES)
			rados_write_op_remove(piece->write);
		else
			rados_write_op_zero(piece->write, at, piece->bytes);
		counter_add(&discards, 1);
	}
	return rados_aio_write_op_operate(piece->write, pool, piece->completion, oid, NULL, 0);
}

static void piece_send(struct rv_core *core, struct rv_piece *piece, uint64_t offset)
{
	rados_ioctx_t pool = rv_pool_of(core->volume, piece->object);
	char oid[RV_OID_BYTES];
	int ret;

	rv_oid(piece->object, oid);
	piece->msg.fn = piece_done;
	piece->read = NULL;
	piece->write = NULL;
	piece->completion = NULL;
	reactor_help_begin(core->reactor);
	ret = rados_aio_create_completion2(piece, completed, &piece->completion);
	if (!ret)
		ret = piece->io->op == DISK_READ
			      ? read_send(piece, pool, oid, offset % RV_OBJECT_BYTES)
			      : write_send(piece, pool, oid, offset % RV_OBJECT_BYTES);
	if (ret) {
		piece->result = ret;
		reactor_help_end(core->reactor, &piece->msg);
	}
}

/* The next piece of the first operation that waits. */
static void io_issue(struct rv_core *core, struct disk_io *io)
{
	struct rv_piece *piece = core->free;
	uint64_t offset = io->offset + io->moved;
	bool vector = io->op == DISK_READ || io->op == DISK_WRITE;

	core->free = piece->next_free;
	piece->io = io;
	piece_fill(piece, io, offset);
	core->flight_bytes += piece->bytes;
	io->moved += piece->bytes;
	if (!vector)
		io->split.at = io->moved;
	io->split.pending++;
	io->split.issued = io->moved == io->bytes;
	if (io->split.issued)
		core->first = io->split.next;
	piece_send(core, piece, offset);
}

/* 0, or why nothing may be written. */
static int32_t refuses(const struct rv_volume *volume, const struct disk_io *io)
{
	if (io->op == DISK_READ)
		return 0;
	if (__builtin_expect(atomic_load_explicit(&volume->lost, memory_order_relaxed), 0))
		return -EIO;
	return atomic_load_explicit(&volume->down, memory_order_relaxed) || !rv_leased(volume)
		       ? -EHOSTDOWN
		       : 0;
}

static void pump(struct rv_core *core)
{
	while (core->first && core->free && core->flight_bytes < RV_FLIGHT_BYTES_MAX) {
		struct disk_io *io = core->first;
		int32_t error = io->split.error ? io->split.error : refuses(core->volume, io);

		if (__builtin_expect(error == 0, 1)) {
			io_issue(core, io);
			continue;
		}
		core->first = io->split.next;
		io->split.error = error;
		io->split.issued = true;
		if (!io->split.pending)
			io_end_soon(core, io, error);
	}
}

void rv_start(struct rv_core *core, struct disk_io *io)
{
	io->split.next = NULL;
	io->split.at = 0;
	io->split.iov_idx = 0;
	io->split.pending = 0;
	io->split.error = 0;
	io->split.issued = false;
	io->moved = 0;
	if (io->op == DISK_FLUSH) {
		io_end_soon(core, io, 0);
		return;
	}
	if (core->first)
		core->last->split.next = io;
	else
		core->first = io;
	core->last = io;
	pump(core);
}
