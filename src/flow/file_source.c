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

#define SLOTS 8u

struct file_source;

struct read_slot {
	struct uring_op op;
	struct file_source *source;
	struct region_span span;
	uint64_t offset;
	uint32_t bytes, moved;
	int error;
	bool done;
};

struct file_source {
	struct flow_source source;
	char path[4096];
	int fd;
	bool fixed;
	uint64_t start, next, end; /* in the file: of the body, of the next read, of the body */
	uint32_t begun, taken;
	struct fiber *waiter;
	struct read_slot slots[SLOTS];
};

/* Direct reads are whole frames; past the end of a file they come back short. */
static void slot_issue(struct read_slot *slot)
{
	struct file_source *self = slot->source;
	struct io_uring_sqe *sqe = reactor_sqe(self->source.core->reactor, &slot->op);
	uint8_t *data = slot->span.data + slot->moved;
	uint32_t bytes = ALIGN_UP(slot->bytes, FRAME_BYTES) - slot->moved;
	int arena = self->fixed ? region_arena_of(self->source.core->region, data, bytes) : -1;

	if (arena >= 0)
		io_uring_prep_read_fixed(
			sqe, self->fd, data, bytes, slot->offset + slot->moved, arena);
	else
		io_uring_prep_read(sqe, self->fd, data, bytes, slot->offset + slot->moved);
}

static void slot_done(struct uring_op *op, int result, uint32_t cqe_flags)
{
	struct read_slot *slot = CONTAINER_OF(op, struct read_slot, op);
	struct file_source *self = slot->source;

	(void)cqe_flags;
	if (result > 0)
		slot->moved += (uint32_t)result;
	else if (result == 0)
		slot->error = -EPIPE;
	else if (result != -EAGAIN && result != -EINTR)
		slot->error = result;
	/* A short direct read that is not the end stops at a block's end. */
	if (!slot->error && slot->moved < slot->bytes) {
		slot_issue(slot);
		return;
	}
	slot->done = true;
	if (self->waiter)
		fiber_wake(self->waiter);
}

static int read_begin(struct file_source *self, bool wait)
{
	struct flow_core *core = self->source.core;
	struct read_slot *slot = &self->slots[self->begun % SLOTS];
	int ret;

	slot->bytes = (uint32_t)MIN(self->end - self->next, (uint64_t)STORE_CHUNK_BYTES);
	if (wait)
		ret = flow_lease(core, region_frames_for(slot->bytes), OWNER_DISK,
			self->source.deadline_ns, &slot->span);
	else
		ret = region_lease(
			core->region, region_frames_for(slot->bytes), OWNER_DISK, &slot->span);
	if (ret)
		return ret;
	slot->offset = self->next;
	slot->moved = 0;
	slot->error = 0;
	slot->done = false;
	self->next += slot->bytes;
	self->begun++;
	slot_issue(slot);
	return 0;
}

static int read_ahead(struct file_source *self)
{
	int ret = 0;

	while (!ret && self->next < self->end && self->begun - self->taken < SLOTS)
		ret = read_begin(self, self->begun == self->taken);
	return ret == -ENOBUFS ? 0 : ret;
}

static void slot_wait(struct file_source *self, const struct read_slot *slot)
{
	self->waiter = fiber_self();
	while (!slot->done)
		fiber_park();
	self->waiter = NULL;
}

static int file_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct file_source *self = CONTAINER_OF(source, struct file_source, source);
	struct read_slot *slot = &self->slots[self->taken % SLOTS];
	int ret = read_ahead(self);

	CHECK(bytes_max >= STORE_CHUNK_BYTES);
	if (ret)
		return ret;
	if (self->taken == self->begun)
		return 0;
	slot_wait(self, slot);
	if (slot->error) {
		log_error("flow", "%s: reading at %llu: %s", self->path,
			(unsigned long long)slot->offset,
			slot->error == -EPIPE ? "it became shorter" : strerror(-slot->error));
		return slot->error;
	}
	region_switch(source->core->region, slot->span, OWNER_DISK, OWNER_APP);
	*ret_piece = (struct flow_piece){.span = slot->span,
		.data = slot->span.data,
		.bytes = slot->bytes,
		.offset = slot->offset - self->start,
		.hold = FLOW_HOLD_LEASE};
	self->taken++;
	return 1;
}

static void file_close(struct flow_source *source)
{
	struct file_source *self = CONTAINER_OF(source, struct file_source, source);

	for (; self->taken != self->begun; self->taken++) {
		struct read_slot *slot = &self->slots[self->taken % SLOTS];

		slot_wait(self, slot);
		region_give(source->core->region, slot->span, OWNER_DISK);
	}
	close(self->fd);
	free(self);
}

static const struct flow_source_ops FILE_OPS = {
	.name = "file", .next = file_next, .close = file_close};

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
	self->next = range->offset;
	self->end = range->bytes ? range->offset + range->bytes : bytes;
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
	self->source = (struct flow_source){.ops = &FILE_OPS,
		.core = core,
		.bytes_total = self->end - self->start,
		.deadline_ns = DEADLINE_NONE};
	for (uint32_t i = 0; i < SLOTS; i++) {
		self->slots[i].op = (struct uring_op){.done = slot_done};
		self->slots[i].source = self;
	}
	*ret_source = &self->source;
	return 0;
}
