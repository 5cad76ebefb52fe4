/* flow/file_source.c: a file or block device as a source: chunks read ahead into frames of their
 * own, a window in flight, handed out in order. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "flow/file.h"
#include "flow/reader.h"

struct file_source;

struct file_read {
	struct uring_op op;
	struct file_source *source;
	struct flow_slot *slot;
	uint32_t moved;
};

struct file_source {
	struct flow_reader reader;
	char path[4096];
	int fd;
	bool fixed, failed;
	uint64_t start; /* of the body in the file */
	struct file_read reads[FLOW_WINDOW_MAX];
};

/* Direct reads are whole frames; at the end of a file they are short. */
static void read_issue(struct file_read *read)
{
	struct file_source *self = read->source;
	const struct flow_piece *piece = &read->slot->piece;
	struct flow_core *core = self->reader.source.core;
	struct io_uring_sqe *sqe = reactor_sqe(core->reactor, &read->op);
	uint8_t *data = piece->data + read->moved;
	uint32_t bytes = ALIGN_UP(piece->bytes, FRAME_BYTES) - read->moved;
	uint64_t offset = self->start + piece->offset + read->moved;
	int arena = self->fixed ? region_arena_of(core->region, data, bytes) : -1;

	if (arena >= 0)
		io_uring_prep_read_fixed(sqe, self->fd, data, bytes, offset, arena);
	else
		io_uring_prep_read(sqe, self->fd, data, bytes, offset);
}

/* Later reads in flight fail in the same way. */
static void read_failed(const struct file_read *read, int error)
{
	struct file_source *self = read->source;

	if (!self->failed)
		log_error("flow", "%s: cannot read at %llu: %s", self->path,
			(unsigned long long)(self->start + read->slot->piece.offset),
			error == -EPIPE ? "the file became shorter" : strerror(-error));
	self->failed = true;
}

static void read_done(struct uring_op *op, int result, uint32_t cqe_flags)
{
	struct file_read *read = CONTAINER_OF(op, struct file_read, op);
	const struct flow_piece *piece = &read->slot->piece;

	(void)cqe_flags;
	if (result > 0)
		read->moved += (uint32_t)result;
	else if (result == 0)
		result = -EPIPE;
	else if (result == -EAGAIN || result == -EINTR)
		result = 0;
	/* A short direct read before the end of the file stops at the end of a block. */
	if (result >= 0 && read->moved < piece->bytes) {
		read_issue(read);
		return;
	}
	if (result < 0)
		read_failed(read, result);
	flow_io_end(&read->slot->io, result);
}

static int read_begin(struct flow_reader *reader, struct flow_slot *slot, uint32_t bytes_max)
{
	struct file_source *self = CONTAINER_OF(reader, struct file_source, reader);
	struct file_read *read = &self->reads[slot - reader->window.slots];
	int ret = flow_reader_lease(reader, slot, bytes_max);

	CHECK(bytes_max == FLOW_PIECE_BYTES_MAX); /* direct reads are whole frames */
	if (ret == 1) {
		*read = (struct file_read){.op = {.done = read_done}, .source = self, .slot = slot};
		flow_io_begin(&slot->io);
		read_issue(read);
	}
	return ret;
}

static void file_close(struct flow_source *source)
{
	struct file_source *self = CONTAINER_OF(source, struct file_source, reader.source);

	flow_reader_close(&self->reader);
	close(self->fd);
	free(self);
}

static const struct flow_source_ops FILE_OPS = {
	.name = "file", .next = flow_reader_next, .close = file_close};

static int file_size(int fd, uint64_t *ret_bytes)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (S_ISBLK(st.st_mode))
		return ioctl(fd, BLKGETSIZE64, ret_bytes) ? -errno : 0;
	*ret_bytes = (uint64_t)st.st_size;
	return S_ISREG(st.st_mode) ? 0 : -EINVAL;
}

static int range_open(struct file_source *self, const struct flow_file_range *range)
{
	uint64_t bytes = 0;
	int ret;

	self->fd = open(range->path, O_RDONLY | O_CLOEXEC | O_DIRECT);
	if (self->fd < 0 && errno == EINVAL)
		self->fd = open(range->path, O_RDONLY | O_CLOEXEC);
	if (self->fd < 0)
		return -errno;
	ret = file_size(self->fd, &bytes);
	if (!ret && range->offset % FRAME_BYTES)
		ret = -EINVAL;
	if (!ret && (range->offset > bytes || range->bytes > bytes - range->offset))
		ret = -ERANGE;
	if (ret) {
		close(self->fd);
		return ret;
	}
	self->start = range->offset;
	self->reader.end = range->bytes ? range->bytes : bytes - range->offset;
	return 0;
}

int flow_file_source_open(struct flow_core *core, const struct flow_file_range *range,
	struct flow_source **ret_source)
{
	struct file_source *self = calloc(1, sizeof(*self));
	int ret;

	if (!self)
		return -ENOMEM;
	ret = range_open(self, range);
	if (ret) {
		free(self);
		return ret;
	}
	self->fixed = range->fixed;
	strncpy(self->path, range->path, sizeof(self->path) - 1);
	self->reader.source = (struct flow_source){.magic = FLOW_SOURCE_MAGIC,
		.ops = &FILE_OPS,
		.core = core,
		.bytes_total = self->reader.end,
		.deadline_ns = DEADLINE_NONE};
	self->reader.begin = read_begin;
	self->reader.owner = OWNER_DISK;
	flow_window_init(&self->reader.window, FLOW_WINDOW_MAX);
	flow_reader_open(&self->reader);
	*ret_source = &self->reader.source;
	return 0;
}
