/* flow/volume_ends.c: a volume as source and sink: a block device, an NVMe namespace by
 * passthrough, or a file, through the unified rings, a window of operations in flight. Data path.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "flow/file.h"
#include "flow/reader.h"

#define SLOTS	   32u /* slots of the sink */
#define READ_AHEAD 8u

/* ---- Sink. ---- */

struct volume_sink;

/* BUSY from the start of its write to its completion, whose order is the device's. */
struct volume_write {
	struct flow_io io;
	struct flow_piece piece;
	struct volume_sink *sink;
	bool busy;
};

struct volume_sink {
	struct flow_sink sink;
	struct flow_volume volume;
	uint32_t align;
	uint64_t offset, end;	/* on the volume */
	uint64_t bytes, synced; /* of the body: pushed, known to be durable */
	uint64_t written;	/* … whose writes have all succeeded */
	int error;
	uint32_t begun, ended; /* writes, in order; those between may have completed, too */
	struct fiber *waiter;
	struct volume_write writes[SLOTS];
};

static void sink_failed(struct volume_sink *self, int error)
{
	if (self->error)
		return;
	self->error = error;
	if (self->volume.failed)
		self->volume.failed(self->volume.arg);
}

/* A completion: the frames are given back at once, whatever the sink's fiber waits for. */
static void write_done(struct flow_io *io)
{
	struct volume_write *write = CONTAINER_OF(io, struct volume_write, io);
	struct volume_sink *self = write->sink;

	write->busy = false;
	if (io->error)
		sink_failed(self, io->error);
	flow_piece_end(self->sink.core, &write->piece, OWNER_DISK);
	while (self->ended != self->begun && !self->writes[self->ended % SLOTS].busy) {
		const struct flow_piece *piece = &self->writes[self->ended++ % SLOTS].piece;

		if (!self->error)
			self->written = piece->offset + piece->bytes;
	}
	if (self->waiter)
		fiber_wake(self->waiter);
}

/* Parks until at most so many writes are in flight. */
static void writes_wait(struct volume_sink *self, uint32_t max)
{
	self->waiter = fiber_self();
	while (self->begun - self->ended > max)
		fiber_park();
	self->waiter = NULL;
}

static int volume_flush(struct volume_sink *self)
{
	struct region_sqe sqe = {.opcode = REGION_OP_FLUSH, .target = self->volume.target};
	struct flow_io io = {0};
	uint64_t written = self->written;
	int ret;

	flow_io_start(self->sink.core, &io, &sqe);
	ret = flow_io_wait(&io);
	if (ret) {
		sink_failed(self, ret);
		return ret;
	}
	self->synced = written;
	if (self->volume.durable)
		self->volume.durable(self->volume.arg, written);
	return 0;
}

static int piece_check(const struct volume_sink *self, const struct flow_piece *piece)
{
	if (self->error)
		return self->error;
	if (piece->hold != FLOW_HOLD_LEASE || (uintptr_t)piece->data % self->align ||
		self->bytes % self->align)
		return -EINVAL;
	return ALIGN_UP(piece->bytes, self->align) > self->end - self->offset ? -ENOSPC : 0;
}

static int volume_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct volume_sink *self = CONTAINER_OF(sink, struct volume_sink, sink);
	uint32_t padded = ALIGN_UP(piece->bytes, self->align);
	int ret = piece_check(self, piece);
	struct region_sqe sqe = {.opcode = REGION_OP_WRITE,
		.target = self->volume.target,
		.len = padded,
		.addr = (uint64_t)(uintptr_t)piece->data,
		.offset = self->offset};
	struct volume_write *write;

	if (ret) {
		flow_piece_end(sink->core, piece, OWNER_APP);
		sink_failed(self, ret);
		return ret;
	}
	writes_wait(self, SLOTS - 1);
	memset(piece->data + piece->bytes, 0, padded - piece->bytes);
	region_switch(sink->core->region, piece->span, OWNER_APP, OWNER_DISK);
	write = &self->writes[self->begun++ % SLOTS];
	*write = (struct volume_write){
		.io = {.done = write_done}, .piece = *piece, .sink = self, .busy = true};
	write->piece.offset = self->bytes;
	self->offset += padded;
	self->bytes += piece->bytes;
	flow_io_start(sink->core, &write->io, &sqe);
	if (self->volume.sync_bytes && self->written - self->synced >= self->volume.sync_bytes)
		volume_flush(self);
	return self->error;
}

static int volume_finish(struct flow_sink *sink, bool failed)
{
	struct volume_sink *self = CONTAINER_OF(sink, struct volume_sink, sink);
	int ret;

	/* The pieces already taken over are valid, so they are written. */
	(void)failed;
	writes_wait(self, 0);
	if (!self->error)
		volume_flush(self);
	ret = self->error;
	free(self);
	return ret;
}

static const struct flow_sink_ops SINK_OPS = {
	.name = "volume", .push = volume_push, .finish = volume_finish};

static int range_check(const struct flow_volume *volume, uint64_t *ret_end)
{
	uint64_t whole = disk_bytes(volume->disk);

	if (volume->offset % FRAME_BYTES)
		return -EINVAL;
	if (volume->offset > whole || volume->bytes > whole - volume->offset)
		return -ERANGE;
	*ret_end = volume->bytes ? volume->offset + volume->bytes : whole;
	return 0;
}

int flow_volume_sink_open(
	struct flow_core *core, const struct flow_volume *volume, struct flow_sink **ret_sink)
{
	struct volume_sink *self = calloc(1, sizeof(*self));
	int ret;

	if (!self)
		return -ENOMEM;
	ret = range_check(volume, &self->end);
	if (ret) {
		free(self);
		return ret;
	}
	self->sink = (struct flow_sink){.magic = FLOW_SINK_MAGIC,
		.ops = &SINK_OPS,
		.core = core,
		.deadline_ns = DEADLINE_NONE};
	self->volume = *volume;
	self->align = disk_align(volume->disk);
	self->offset = volume->offset;
	*ret_sink = &self->sink;
	return 0;
}

/* ---- Source. ---- */

struct volume_source {
	struct flow_reader reader;
	struct flow_volume volume;
	uint32_t align;
};

static int read_begin(struct flow_reader *reader, struct flow_slot *slot, uint32_t bytes_max)
{
	struct volume_source *self = CONTAINER_OF(reader, struct volume_source, reader);
	int ret = flow_reader_lease(reader, slot, bytes_max);
	struct region_sqe sqe = {.opcode = REGION_OP_READ,
		.target = self->volume.target,
		.len = ALIGN_UP(slot->piece.bytes, self->align),
		.addr = (uint64_t)(uintptr_t)slot->piece.data,
		.offset = self->volume.offset + slot->piece.offset};

	CHECK(bytes_max == FLOW_PIECE_BYTES_MAX); /* each a multiple of the medium's unit */
	if (ret == 1)
		flow_io_start(reader->source.core, &slot->io, &sqe);
	return ret;
}

static void volume_close(struct flow_source *source)
{
	struct volume_source *self = CONTAINER_OF(source, struct volume_source, reader.source);

	flow_reader_close(&self->reader);
	free(self);
}

static const struct flow_source_ops SOURCE_OPS = {
	.name = "volume", .next = flow_reader_next, .close = volume_close};

int flow_volume_source_open(
	struct flow_core *core, const struct flow_volume *volume, struct flow_source **ret_source)
{
	struct volume_source *self = calloc(1, sizeof(*self));
	uint64_t end;
	int ret;

	if (!self)
		return -ENOMEM;
	ret = range_check(volume, &end);
	if (ret) {
		free(self);
		return ret;
	}
	self->volume = *volume;
	self->align = disk_align(volume->disk);
	self->reader.source = (struct flow_source){.magic = FLOW_SOURCE_MAGIC,
		.ops = &SOURCE_OPS,
		.core = core,
		.bytes_total = end - volume->offset,
		.deadline_ns = DEADLINE_NONE};
	self->reader.begin = read_begin;
	self->reader.owner = OWNER_DISK;
	self->reader.end = end - volume->offset;
	flow_window_init(&self->reader.window, READ_AHEAD);
	flow_reader_open(&self->reader);
	*ret_source = &self->reader.source;
	return 0;
}
