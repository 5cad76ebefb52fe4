/* flow/object_sink.c: a body into the store. Small ones are handed over in their frames for the
 * group that commits them; larger ones are written chunk by chunk where the store says, a window in
 * flight. Bytes that come in odd lengths or places are gathered into whole chunks first, and that
 * copy is counted. Data path. */
#include "flow/flow_priv.h"

#include <errno.h>
#include <string.h>

/* The oldest write has ended: the store's cache may have its frames. */
static void slot_end(struct flow_object_sink *self)
{
	struct flow_core *core = self->sink.core;
	struct flow_slot *slot = flow_window_oldest(&self->window);
	int ret = flow_io_wait(&slot->io);

	if (ret && !self->error)
		self->error = ret;
	if (slot->piece.hold == FLOW_HOLD_LEASE && !ret)
		store_put_cache_take(
			self->put, slot->piece.offset, slot->piece.span, slot->piece.bytes);
	else
		flow_piece_end(core, &slot->piece, OWNER_DISK);
	self->window.tail++;
}

static int checks_note(struct flow_object_sink *self, const struct flow_piece *piece)
{
	for (uint32_t at = 0; at < piece->bytes; at += STORE_CHECK_BYTES) {
		uint32_t bytes = MIN(piece->bytes - at, STORE_CHECK_BYTES);
		int ret = store_put_checked(
			self->put, piece->offset + at, crc32c_update(0, piece->data + at, bytes));

		if (ret)
			return ret;
	}
	return 0;
}

/* Starts the writes of a piece that begins on a chunk boundary and is whole, or the body's last.
 * Takes it over. */
static int chunk_write(struct flow_object_sink *self, struct flow_piece *piece)
{
	struct flow_core *core = self->sink.core;
	struct flow_slot *slot;
	uint32_t padded = ALIGN_UP(piece->bytes, FRAME_BYTES);
	int ret;

	if (flow_window_full(&self->window))
		slot_end(self);
	slot = flow_window_next(&self->window);
	slot->piece = *piece;
	slot->io = (struct flow_io){0};
	if (piece->hold == FLOW_HOLD_LEASE) {
		memset(piece->data + piece->bytes, 0, padded - piece->bytes);
		region_switch(core->region, piece->span, OWNER_APP, OWNER_DISK);
	}
	self->window.head++;
	ret = checks_note(self, piece);
	for (uint32_t at = 0; at < piece->bytes && !ret;) {
		struct region_sqe sqe = {.opcode = REGION_OP_WRITE};
		struct store_run run;

		ret = store_put_space(self->put, piece->offset + at, piece->bytes - at, &run);
		if (ret)
			break;
		sqe.target = run.target;
		sqe.addr = (uint64_t)(uintptr_t)(piece->data + at);
		sqe.offset = run.volume_offset;
		sqe.len = ALIGN_UP(run.bytes, FRAME_BYTES);
		flow_io_start(core, &slot->io, &sqe);
		at += run.bytes;
	}
	if (ret && !self->error)
		self->error = ret;
	return self->error;
}

/* Whether the piece can go to the volume as it is. */
static bool fits_as_is(const struct flow_object_sink *self, const struct flow_piece *piece)
{
	bool last = piece->offset + piece->bytes == self->bytes_total;

	return !self->staging.data && piece->hold != FLOW_HOLD_BORROWED &&
	       piece->offset % STORE_CHUNK_BYTES == 0 &&
	       (uintptr_t)piece->data % FRAME_BYTES == 0 &&
	       (piece->bytes == STORE_CHUNK_BYTES || last);
}

static int staging_open(struct flow_object_sink *self, uint64_t offset)
{
	uint64_t bytes = STORE_CHUNK_BYTES;
	int ret;

	if (self->bytes_total != UINT64_MAX)
		bytes = MIN(bytes, self->bytes_total - offset);
	while (flow_window_full(&self->window))
		slot_end(self);
	ret = flow_lease(self->sink.core, region_frames_for(bytes), OWNER_APP,
		self->sink.deadline_ns, &self->staging.span);
	if (ret)
		return ret;
	self->staging.hold = FLOW_HOLD_LEASE;
	self->staging.data = self->staging.span.data;
	self->staging.offset = offset;
	self->staging.bytes = 0;
	return 0;
}

static int staging_flush(struct flow_object_sink *self)
{
	struct flow_piece piece = self->staging;

	self->staging.data = NULL;
	return chunk_write(self, &piece);
}

/* Gathers the piece's bytes into whole chunks. Ends the piece. */
static int staging_fill(struct flow_object_sink *self, struct flow_piece *piece)
{
	uint32_t at = 0;
	int ret = 0;

	while (at < piece->bytes && !ret) {
		uint32_t room, bytes;

		if (!self->staging.data) {
			ret = staging_open(self, piece->offset + at);
			if (ret)
				break;
		}
		room = MIN(region_span_bytes(self->staging.span), STORE_CHUNK_BYTES) -
		       self->staging.bytes;
		bytes = MIN(piece->bytes - at, room);
		region_copy(self->staging.data + self->staging.bytes, piece->data + at, bytes,
			piece->hold == FLOW_HOLD_BORROWED ? COPY_INLINE_IN : COPY_ALIGN);
		self->staging.bytes += bytes;
		at += bytes;
		if (self->staging.bytes == STORE_CHUNK_BYTES)
			ret = staging_flush(self);
	}
	flow_piece_end(self->sink.core, piece, OWNER_APP);
	return ret;
}

static int object_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct flow_object_sink *self = CONTAINER_OF(sink, struct flow_object_sink, sink);
	bool whole = piece->offset == 0 && piece->bytes == self->bytes_total;
	int ret;

	CHECK(piece->offset == self->offset);
	self->offset += piece->bytes;
	if (self->error || self->offset > self->bytes_total) {
		flow_piece_end(sink->core, piece, OWNER_APP);
		return self->error ? self->error : -EMSGSIZE;
	}
	if (whole && piece->bytes <= STORE_GROUPED_BYTES_MAX && piece->hold == FLOW_HOLD_LEASE &&
		piece->data == piece->span.data) {
		store_put_frames_take(self->put, piece->span, piece->bytes);
		return 0;
	}
	ret = fits_as_is(self, piece) ? chunk_write(self, piece) : staging_fill(self, piece);
	if (ret && !self->error)
		self->error = ret;
	return ret;
}

static int object_finish(struct flow_sink *sink, bool failed)
{
	struct flow_object_sink *self = CONTAINER_OF(sink, struct flow_object_sink, sink);
	int ret;

	if (!failed && self->bytes_total != UINT64_MAX && self->offset != self->bytes_total &&
		!self->error)
		self->error = -EPIPE;
	if (self->staging.data) {
		if (failed || self->error) {
			flow_piece_end(sink->core, &self->staging, OWNER_APP);
		} else if (self->offset == self->staging.bytes &&
			   self->offset <= STORE_GROUPED_BYTES_MAX) {
			store_put_frames_take(self->put, self->staging.span, self->staging.bytes);
			self->staging.data = NULL;
		} else {
			staging_flush(self);
		}
	}
	while (!flow_window_empty(&self->window))
		slot_end(self);
	ret = self->error;
	flow_end_give(sink->core, self);
	return ret;
}

static const struct flow_sink_ops OBJECT_SINK_OPS = {
	.name = "object",
	.push = object_push,
	.finish = object_finish,
};

int flow_object_sink_open(struct flow_core *core, struct store_put *put, uint64_t bytes_total,
	struct flow_sink **ret_sink)
{
	struct flow_object_sink *self = (struct flow_object_sink *)flow_end_lease(core);

	if (!self)
		return -ENOMEM;
	self->sink = (struct flow_sink){
		.ops = &OBJECT_SINK_OPS, .core = core, .deadline_ns = DEADLINE_NONE};
	self->put = put;
	self->bytes_total = bytes_total;
	self->offset = 0;
	self->staging.data = NULL;
	self->error = 0;
	flow_window_init(&self->window, FLOW_WINDOW_DEFAULT);
	*ret_sink = &self->sink;
	return 0;
}
