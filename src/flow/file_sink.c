/* flow/file_sink.c: writes pieces to a file from their own frames, without the page cache, several
 * writes in flight. Small adjacent pieces are gathered into one write. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "flow/file.h"

#define SLOTS	    16u
#define SLOT_PIECES 1024u /* the kernel's maximum */
/* How long pieces wait for others to be written with. */
#define GATHER_NS (5 * NS_PER_MS)

struct flow_file_sink;

struct file_slot {
	struct uring_op op;
	struct flow_file_sink *sink;
	uint32_t count, first; /* pieces; the first that is not written whole */
	uint64_t offset, bytes, moved;
	bool busy;
	struct iovec iov[SLOT_PIECES];
	struct flow_piece pieces[SLOT_PIECES];
};

struct flow_file_sink {
	struct flow_sink sink;
	struct flow_file_opts opts;
	char path[4096];
	int fd;
	bool device;	       /* a block device: its size is its own */
	uint64_t offset, size; /* of the next piece; the body's length */
	uint64_t failed_at;    /* all bytes before it are written */
	int error;
	uint32_t in_flight;
	struct fiber *waiter;
	struct reactor_timer timer;
	struct uring_op sync_op;
	bool syncing;
	uint64_t sync_to,
		durable; /* bytes that the sync in progress, and the last one, make durable */
	struct file_slot *filling; /* NULL: none */
	struct file_slot slots[SLOTS];
};

bool flow_file_register(struct reactor *reactor, struct region *region)
{
	struct iovec iov[LIMIT_ARENAS_MAX];
	uint32_t count = region_arena_count(region);

	for (uint32_t i = 0; i < count; i++) {
		const struct region_arena arena = region_arena(region, i);

		iov[i] = (struct iovec){arena.base, arena.bytes};
	}
	return io_uring_register_buffers(reactor_uring(reactor), iov, count) == 0;
}

static void slot_issue(struct file_slot *slot)
{
	struct flow_file_sink *self = slot->sink;
	struct io_uring_sqe *sqe = reactor_sqe(self->sink.core->reactor, &slot->op);
	struct iovec *iov = &slot->iov[slot->first];
	uint32_t count = slot->count - slot->first;
	int arena = -1;

	if (count == 1 && self->opts.fixed)
		arena = region_arena_of(self->sink.core->region, iov->iov_base, iov->iov_len);
	if (arena >= 0)
		io_uring_prep_write_fixed(sqe, self->fd, iov->iov_base, (unsigned)iov->iov_len,
			slot->offset + slot->moved, arena);
	else
		io_uring_prep_writev(sqe, self->fd, iov, count, slot->offset + slot->moved);
}

static void write_failed(struct flow_file_sink *self, uint64_t offset, int error)
{
	self->failed_at = MIN(self->failed_at, offset);
	if (self->error)
		return;
	self->error = error;
	log_error("flow", "%s: cannot write at %llu: %s", self->path, (unsigned long long)offset,
		strerror(-error));
	if (self->opts.failed)
		self->opts.failed(self->opts.arg);
}

/* ---- Making what has been written durable while more is written. ---- */

/* The offset before which everything is written. */
static uint64_t written_to(const struct flow_file_sink *self)
{
	uint64_t offset = MIN(self->offset, self->failed_at);

	for (uint32_t i = 0; i < SLOTS; i++) {
		if (self->slots[i].busy)
			offset = MIN(offset, self->slots[i].offset);
	}
	return offset;
}

static void sync_begin(struct flow_file_sink *self)
{
	uint64_t offset = written_to(self);

	if (!self->opts.sync_bytes || self->syncing || self->error ||
		offset - self->durable < self->opts.sync_bytes)
		return;
	self->syncing = true;
	self->sync_to = offset;
	io_uring_prep_fsync(reactor_sqe(self->sink.core->reactor, &self->sync_op), self->fd,
		IORING_FSYNC_DATASYNC);
}

static void sync_done(struct uring_op *op, int result, uint32_t cqe_flags)
{
	struct flow_file_sink *self = CONTAINER_OF(op, struct flow_file_sink, sync_op);

	(void)cqe_flags;
	self->syncing = false;
	if (result < 0) {
		write_failed(self, self->durable, result);
	} else {
		self->durable = MIN(self->sync_to, self->size); /* without padding */
		self->opts.durable(self->opts.arg, self->durable);
		sync_begin(self);
	}
	if (self->waiter)
		fiber_wake(self->waiter);
}

static void slot_end(struct file_slot *slot, int error)
{
	struct flow_file_sink *self = slot->sink;

	if (error)
		write_failed(self, slot->offset, error);
	for (uint32_t i = 0; i < slot->count; i++)
		flow_piece_end(self->sink.core, &slot->pieces[i], OWNER_DISK);
	slot->count = 0;
	slot->busy = false;
	self->in_flight--;
	sync_begin(self);
	if (self->waiter)
		fiber_wake(self->waiter);
}

/* A short write continues where it stopped; the next write returns the error. */
static void slot_done(struct uring_op *op, int result, uint32_t cqe_flags)
{
	struct file_slot *slot = CONTAINER_OF(op, struct file_slot, op);
	size_t moved = result > 0 ? (size_t)result : 0;

	(void)cqe_flags;
	if (result <= 0 && result != -EAGAIN && result != -EINTR) {
		slot_end(slot, result ? result : -EIO);
		return;
	}
	slot->moved += moved;
	while (slot->first < slot->count && moved >= slot->iov[slot->first].iov_len)
		moved -= slot->iov[slot->first++].iov_len;
	if (slot->first == slot->count) {
		slot_end(slot, 0);
		return;
	}
	slot->iov[slot->first].iov_base = (char *)slot->iov[slot->first].iov_base + moved;
	slot->iov[slot->first].iov_len -= moved;
	slot_issue(slot);
}

static void filling_start(struct flow_file_sink *self)
{
	struct file_slot *slot = self->filling;

	if (!slot)
		return;
	self->filling = NULL;
	reactor_timer_cancel(self->sink.core->reactor, &self->timer);
	slot->first = 0;
	slot->moved = 0;
	self->in_flight++;
	slot_issue(slot);
}

static void gather_timer(struct reactor_timer *timer, void *arg)
{
	(void)timer;
	filling_start(arg);
}

/* The slot that takes the next piece; waits while all are in flight. */
static struct file_slot *slot_open(struct flow_file_sink *self)
{
	self->waiter = fiber_self();
	while (!self->filling) {
		for (uint32_t i = 0; i < SLOTS && !self->filling; i++) {
			if (!self->slots[i].busy)
				self->filling = &self->slots[i];
		}
		if (!self->filling)
			fiber_park();
	}
	self->waiter = NULL;
	if (!self->filling->busy) {
		self->filling->busy = true;
		self->filling->bytes = 0;
		self->filling->offset = self->offset;
		reactor_timer_set(self->sink.core->reactor, &self->timer,
			reactor_now_ns(self->sink.core->reactor) + GATHER_NS);
	}
	return self->filling;
}

/* Accepts only leases at addresses that the medium accepts, with room for padding to its unit. No
 * piece may follow a padded one. */
static int piece_check(const struct flow_file_sink *self, const struct flow_piece *piece)
{
	uint64_t room;

	if (piece->hold != FLOW_HOLD_LEASE || (uintptr_t)piece->data % self->opts.unit)
		return -EINVAL;
	room = (uint64_t)(piece->span.data + region_span_bytes(piece->span) - piece->data);
	return ALIGN_UP(piece->bytes, self->opts.unit) > room || self->offset != self->size
		       ? -EINVAL
		       : 0;
}

static int file_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct flow_file_sink *self = CONTAINER_OF(sink, struct flow_file_sink, sink);
	uint32_t padded = ALIGN_UP(piece->bytes, self->opts.unit);
	struct file_slot *slot;

	if (self->error || piece_check(self, piece)) {
		flow_piece_end(sink->core, piece, OWNER_APP);
		return self->error ? self->error : -EINVAL;
	}
	slot = slot_open(self);
	memset(piece->data + piece->bytes, 0, padded - piece->bytes);
	region_switch(sink->core->region, piece->span, OWNER_APP, OWNER_DISK);
	slot->iov[slot->count] = (struct iovec){piece->data, padded};
	slot->pieces[slot->count++] = *piece;
	slot->bytes += padded;
	self->offset += padded;
	self->size += piece->bytes;
	if (slot->count == SLOT_PIECES || slot->bytes >= FLOW_PIECE_BYTES_MAX)
		filling_start(self);
	return 0;
}

/* ---- The end. ---- */

/* Makes the name durable, so that it exists after a power cut. */
static int directory_sync(const char *path)
{
	char dir[4096];
	const char *slash = strrchr(path, '/');
	int fd, ret = 0;

	if (slash == path)
		slash++;
	snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fsync(fd) && errno != EINVAL)
		ret = -errno;
	close(fd);
	return ret;
}

/* On a helper thread. */
static void file_settle(void *arg)
{
	struct flow_file_sink *self = arg;
	uint64_t size = MIN(self->size, self->failed_at);
	int ret = 0;

	if (!self->device && ftruncate(self->fd, (off_t)size))
		ret = -errno;
	if (!ret && fsync(self->fd))
		ret = -errno;
	if (close(self->fd) && !ret)
		ret = -errno;
	if (!ret && !self->device)
		ret = directory_sync(self->path);
	if (ret && !self->error) {
		log_error("flow", "%s: %s", self->path, strerror(-ret));
		self->error = ret;
	}
}

static int file_finish(struct flow_sink *sink, bool failed)
{
	struct flow_file_sink *self = CONTAINER_OF(sink, struct flow_file_sink, sink);
	int ret;

	/* The sink writes the pieces that it has taken over even when the flow failed: they are
	 * valid.
	 */
	(void)failed;
	filling_start(self);
	self->waiter = fiber_self();
	while (self->in_flight || self->syncing)
		fiber_park();
	self->waiter = NULL;
	fiber_offload_long(file_settle, self);
	ret = self->error;
	if (!ret && self->opts.sync_bytes)
		self->opts.durable(self->opts.arg, self->size);
	free(self);
	return ret;
}

static const struct flow_sink_ops FILE_OPS = {
	.name = "file",
	.push = file_push,
	.finish = file_finish,
};

/* ---- The beginning. ---- */

static int file_open(struct flow_file_sink *self)
{
	struct stat st;
	bool there = stat(self->opts.path, &st) == 0;
	int flags = O_WRONLY | O_CLOEXEC;

	self->device = there && S_ISBLK(st.st_mode);
	if (there && !self->opts.replace)
		return -EEXIST;
	if (there && !self->device && !S_ISREG(st.st_mode))
		return -EINVAL;
	flags |= self->device ? O_EXCL : O_CREAT | O_TRUNC;
	self->fd = open(self->opts.path, flags | O_DIRECT, 0644);
	if (self->fd < 0 && errno == EINVAL) {
		log_debug("flow", "%s: its file system does not support O_DIRECT", self->opts.path);
		self->fd = open(self->opts.path, flags, 0644);
	}
	return self->fd < 0 ? -errno : 0;
}

static int unit_check(const struct flow_file_sink *self)
{
	struct statx stx;

	if (statx(self->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) ||
		!(stx.stx_mask & STATX_DIOALIGN))
		return 0;
	if (stx.stx_dio_offset_align <= self->opts.unit && stx.stx_dio_mem_align <= self->opts.unit)
		return 0;
	log_error("flow", "%s: its medium needs multiples of %u bytes, not of %u", self->opts.path,
		MAX(stx.stx_dio_offset_align, stx.stx_dio_mem_align), self->opts.unit);
	return -EINVAL;
}

int flow_file_sink_open(
	struct flow_core *core, const struct flow_file_opts *opts, struct flow_sink **ret_sink)
{
	struct flow_file_sink *self = calloc(1, sizeof(*self));
	int ret;

	if (!self)
		return -ENOMEM;
	self->sink = (struct flow_sink){.magic = FLOW_SINK_MAGIC,
		.ops = &FILE_OPS,
		.core = core,
		.deadline_ns = DEADLINE_NONE};
	self->opts = *opts;
	self->failed_at = UINT64_MAX;
	self->timer = (struct reactor_timer){.fn = gather_timer, .arg = self};
	self->sync_op = (struct uring_op){.done = sync_done};
	snprintf(self->path, sizeof(self->path), "%s", opts->path);
	self->opts.path = self->path;
	for (uint32_t i = 0; i < SLOTS; i++) {
		self->slots[i].op = (struct uring_op){.done = slot_done};
		self->slots[i].sink = self;
	}
	ret = file_open(self);
	if (!ret) {
		ret = unit_check(self);
		if (!ret && opts->sync_bytes && !self->device)
			ret = directory_sync(self->path);
		if (ret)
			close(self->fd);
	}
	if (ret) {
		free(self);
		return ret;
	}
	*ret_sink = &self->sink;
	return 0;
}
