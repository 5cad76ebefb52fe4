/* flow/volume_ends.c: a volume as source and sink: a block device, an NVMe namespace by
 * passthrough, or a file, through the unified rings, a window of operations in flight. Data path.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "flow/file.h"

#define SLOTS 32u

struct volume_slot {
	struct flow_io io;
	struct flow_piece piece;
};

/* ---- Sink. ---- */

struct volume_sink {
	struct flow_sink sink;
	struct flow_volume volume;
	uint32_t align;
	uint64_t offset, end;	/* on the volume */
	uint64_t bytes, synced; /* of the body: pushed, known to be durable */
	uint64_t written;	/* … whose writes have ended well */
	int error;
	uint32_t begun, ended;
	struct volume_slot slots[SLOTS];
};

static void sink_failed(struct volume_sink *self, int error)
{
	if (self->error)
		return;
	self->error = error;
	if (self->volume.failed)
		self->volume.failed(self->volume.arg);
}

static void write_end(struct volume_sink *self)
{
	struct volume_slot *slot = &self->slots[self->ended++ % SLOTS];
	int ret = flow_io_wait(&slot->io);

	if (ret)
		sink_failed(self, ret);
	if (!self->error)
		self->written = slot->piece.offset + slot->piece.bytes;
	flow_piece_end(self->sink.core, &slot->piece, OWNER_DISK);
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
	struct volume_slot *slot;

	if (ret) {
		flow_piece_end(sink->core, piece, OWNER_APP);
		sink_failed(self, ret);
		return ret;
	}
	while (self->begun != self->ended && (self->begun - self->ended == SLOTS ||
						     !self->slots[self->ended % SLOTS].io.pending))
		write_end(self);
	memset(piece->data + piece->bytes, 0, padded - piece->bytes);
	region_switch(sink->core->region, piece->span, OWNER_APP, OWNER_DISK);
	slot = &self->slots[self->begun++ % SLOTS];
	slot->piece = *piece;
	slot->piece.offset = self->bytes;
	slot->io = (struct flow_io){0};
	self->offset += padded;
	self->bytes += piece->bytes;
	flow_io_start(sink->core, &slot->io, &sqe);
	if (self->volume.sync_bytes && self->written - self->synced >= self->volume.sync_bytes)
		volume_flush(self);
	return self->error;
}

static int volume_finish(struct flow_sink *sink, bool failed)
{
	struct volume_sink *self = CONTAINER_OF(sink, struct volume_sink, sink);
	int ret;

	/* What was taken over is good as far as it goes. */
	(void)failed;
	while (self->ended != self->begun)
		write_end(self);
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
	self->sink =
		(struct flow_sink){.ops = &SINK_OPS, .core = core, .deadline_ns = DEADLINE_NONE};
	self->volume = *volume;
	self->align = disk_align(volume->disk);
	self->offset = volume->offset;
	*ret_sink = &self->sink;
	return 0;
}

/* ---- Source. ---- */

struct volume_source {
	struct flow_source source;
	struct flow_volume volume;
	uint64_t start, next, end;
	uint32_t align;
	uint32_t begun, taken;
	struct volume_slot slots[SLOTS];
};

static int read_begin(struct volume_source *self, bool wait)
{
	struct flow_core *core = self->source.core;
	struct volume_slot *slot = &self->slots[self->begun % SLOTS];
	uint32_t bytes = (uint32_t)MIN(self->end - self->next, (uint64_t)STORE_CHUNK_BYTES);
	struct region_sqe sqe = {.opcode = REGION_OP_READ,
		.target = self->volume.target,
		.len = ALIGN_UP(bytes, self->align),
		.offset = self->next};
	int ret;

	slot->piece = (struct flow_piece){
		.bytes = bytes, .offset = self->next - self->start, .hold = FLOW_HOLD_LEASE};
	if (wait)
		ret = flow_lease(core, region_frames_for(bytes), OWNER_DISK, DEADLINE_NONE,
			&slot->piece.span);
	else
		ret = region_lease(
			core->region, region_frames_for(bytes), OWNER_DISK, &slot->piece.span);
	if (ret)
		return ret;
	slot->piece.data = slot->piece.span.data;
	slot->io = (struct flow_io){0};
	sqe.addr = (uint64_t)(uintptr_t)slot->piece.data;
	self->next += bytes;
	self->begun++;
	flow_io_start(core, &slot->io, &sqe);
	return 0;
}

static int volume_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct volume_source *self = CONTAINER_OF(source, struct volume_source, source);
	struct volume_slot *slot = &self->slots[self->taken % SLOTS];
	int ret = 0;

	CHECK(bytes_max >= STORE_CHUNK_BYTES);
	while (!ret && self->next < self->end && self->begun - self->taken < SLOTS / 4)
		ret = read_begin(self, self->begun == self->taken);
	if (ret && ret != -ENOBUFS)
		return ret;
	if (self->taken == self->begun)
		return 0;
	ret = flow_io_wait(&slot->io);
	if (ret)
		return ret;
	self->taken++;
	region_switch(source->core->region, slot->piece.span, OWNER_DISK, OWNER_APP);
	*ret_piece = slot->piece;
	return 1;
}

static void volume_close(struct flow_source *source)
{
	struct volume_source *self = CONTAINER_OF(source, struct volume_source, source);

	for (; self->taken != self->begun; self->taken++) {
		struct volume_slot *slot = &self->slots[self->taken % SLOTS];

		flow_io_wait(&slot->io);
		flow_piece_end(source->core, &slot->piece, OWNER_DISK);
	}
	free(self);
}

static const struct flow_source_ops SOURCE_OPS = {
	.name = "volume", .next = volume_next, .close = volume_close};

int flow_volume_source_open(
	struct flow_core *core, const struct flow_volume *volume, struct flow_source **ret_source)
{
	struct volume_source *self = calloc(1, sizeof(*self));
	int ret;

	if (!self)
		return -ENOMEM;
	ret = range_check(volume, &self->end);
	if (ret) {
		free(self);
		return ret;
	}
	self->volume = *volume;
	self->start = volume->offset;
	self->next = volume->offset;
	self->align = disk_align(volume->disk);
	self->source = (struct flow_source){.ops = &SOURCE_OPS,
		.core = core,
		.bytes_total = self->end - self->start,
		.deadline_ns = DEADLINE_NONE};
	*ret_source = &self->source;
	return 0;
}
