/* store/ends/sink.c: the sink of a body into the store. A small body is handed over in its frames,
 * for the group that commits it. A larger body is written chunk by chunk to the store's places,
 * with a window of writes in flight. Bytes with odd lengths or offsets are first copied into whole
 * chunks; the copies are counted. Data path.
 *
 * The copy's target is the staging, a chunk's frames. The core can call these frames in while the
 * sink is idle: then the bytes move aside, to memory outside the region. Bytes that arrive while no
 * frames are free go aside, too. The sink waits for frames only when a whole chunk is aside and it
 * holds no piece. */
#include "flow/end.h"
#include "flow/writer.h"
#include "store/call/call.h"
#include "store/ends/ends.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct put_sink {
	struct flow_sink sink;
	struct store_put *put;
	uint64_t bytes_total;
	uint64_t offset;	   /* of the next byte */
	struct flow_piece staging; /* bytes of an incomplete chunk; data NULL: none */
	/* Bytes outside the region, used while no frames are free: a buffer of STORE_ASIDE_BYTES,
	 * the number of bytes in it, and their offset. NULL until needed. */
	uint8_t *aside;
	uint32_t aside_bytes;
	uint64_t aside_offset;
	struct flow_lender lender; /* of the staging */
	struct flow_writer writer;
};
_Static_assert(STORE_CHUNK_BYTES == FLOW_PIECE_BYTES_MAX, "a piece is at most a chunk");
_Static_assert(sizeof(struct put_sink) <= FLOW_END_BYTES, "of the pool");

DEFINE_COUNTER(aside_bytes_total, "nebulaio_flow_aside_bytes_total", NULL,
	"Bytes of bodies that were kept outside the region because no frames were free.");

static struct put_sink *sink_of(struct flow_writer *writer)
{
	return CONTAINER_OF(writer, struct put_sink, writer);
}

/* A write has ended: the store's cache gets its frames, unless others wait for frames. */
static void write_ended(struct flow_writer *writer, struct flow_slot *slot)
{
	struct flow_piece *piece = &slot->piece;

	if (piece->hold != FLOW_HOLD_LEASE || slot->io.error || writer->core->waiters) {
		flow_piece_end(writer->core, piece, OWNER_DISK);
		return;
	}
	flow_piece_pass(writer->core, piece);
	local_put_cache_take(sink_of(writer)->put, piece->offset, piece->span, piece->bytes);
}

/* A store_run_fn of a slot in the writer's window. */
static void run_write(void *arg, const struct store_run *run, uint32_t at)
{
	struct flow_slot *slot = (struct flow_slot *)arg;
	struct region_sqe sqe = {
		.opcode = REGION_OP_WRITE,
		.target = run->target,
		.addr = (uint64_t)(uintptr_t)(slot->piece.data + at),
		.offset = run->volume_offset,
		.len = ALIGN_UP(run->bytes, FRAME_BYTES),
	};

	flow_io_start(slot->writer->core, &slot->io, &sqe);
}

/* Starts the writes of a piece that begins on a chunk boundary and is a whole chunk, or the body's
 * last piece. Takes it over. */
static int chunk_write(struct put_sink *self, struct flow_piece *piece)
{
	struct flow_core *core = self->sink.core;
	struct flow_slot *slot;
	uint32_t padded = ALIGN_UP(piece->bytes, FRAME_BYTES);
	int ret;

	if (piece->hold == FLOW_HOLD_LEASE) {
		memset(piece->data + piece->bytes, 0, padded - piece->bytes);
		region_switch(core->region, piece->span, OWNER_APP, OWNER_DISK);
	}
	slot = flow_writer_begin(&self->writer, piece);
	ret = local_put_chunk(self->put, slot->piece.offset,
		slice_of(slot->piece.data, slot->piece.bytes), run_write, slot);
	if (ret && !slot->io.error)
		slot->io.error = ret;
	if (ret && !self->writer.error)
		self->writer.error = ret;
	flow_writer_started(slot);
	return self->writer.error;
}

/* Whether the piece can be written to the volume without a copy. */
static bool fits_as_is(const struct put_sink *self, const struct flow_piece *piece)
{
	bool last = piece->offset + piece->bytes == self->bytes_total;

	return !self->staging.data && !self->aside_bytes && piece->hold != FLOW_HOLD_BORROWED &&
	       piece->offset % STORE_CHUNK_BYTES == 0 &&
	       (uintptr_t)piece->data % FRAME_BYTES == 0 &&
	       (piece->bytes == STORE_CHUNK_BYTES || last);
}

/* ---- Copying into chunks. ---- */

/* The number of bytes still to come from there on, as far as it is known. */
static uint64_t bytes_from(const struct put_sink *self, uint64_t offset)
{
	return self->bytes_total - offset;
}

/* Small bodies are not counted: their frames can be called in. */
static struct flow_want staging_want(const struct put_sink *self, uint64_t bytes)
{
	uint32_t frame_count = region_frames_for(MIN(bytes, (uint64_t)STORE_CHUNK_BYTES));

	return (struct flow_want){.frame_count = frame_count,
		.owner = OWNER_APP,
		.share = frame_count > FLOW_FRAMES_SMALL ? self->sink.share : FLOW_SHARE_OWN,
		.begun = true,
		.deadline_ns = self->sink.deadline_ns};
}

static int staging_flush(struct put_sink *self)
{
	struct flow_piece piece = self->staging;

	self->staging.data = NULL;
	return chunk_write(self, &piece);
}

static void aside_put(struct put_sink *self, const uint8_t *data, uint32_t bytes)
{
	CHECK(bytes <= STORE_ASIDE_BYTES - self->aside_bytes);
	region_copy(self->aside + self->aside_bytes, data, bytes, COPY_ALIGN);
	self->aside_bytes += bytes;
	counter_add(&aside_bytes_total, bytes);
}

static int aside_open(struct put_sink *self, uint64_t offset)
{
	if (!self->aside)
		self->aside = malloc(STORE_ASIDE_BYTES);
	if (!self->aside)
		return -ENOMEM;
	if (!self->aside_bytes)
		self->aside_offset = offset;
	return 0;
}

/* Moves the staging aside: others need its frames more. */
static void call_in(struct flow_lender *lender)
{
	struct put_sink *self = CONTAINER_OF(lender, struct put_sink, lender);

	if (!self->staging.data || aside_open(self, self->staging.offset))
		return;
	aside_put(self, self->staging.data, self->staging.bytes);
	flow_piece_end(self->sink.core, &self->staging, OWNER_APP);
}

/* Moves up to a chunk from aside into the staging, which has its frames. */
static void aside_take(struct put_sink *self)
{
	uint32_t bytes = MIN(self->aside_bytes, STORE_CHUNK_BYTES);

	region_copy(self->staging.data, self->aside, bytes, COPY_ALIGN);
	self->aside_bytes -= bytes;
	memmove(self->aside, self->aside + bytes, self->aside_bytes);
	self->staging.bytes = bytes;
	self->staging.offset = self->aside_offset;
	self->aside_offset += bytes;
}

/* Writes the whole chunks that are aside, or all of it. Waits for frames while it holds none. */
static int aside_flush(struct put_sink *self, bool all)
{
	int ret = 0;

	while (!ret && (self->aside_bytes >= STORE_CHUNK_BYTES || (all && self->aside_bytes))) {
		const struct flow_want want = staging_want(self, self->aside_bytes);

		CHECK(!self->staging.data);
		ret = flow_piece_lease(self->sink.core, &want, &self->staging);
		if (ret)
			break;
		aside_take(self);
		if (self->staging.bytes < STORE_CHUNK_BYTES)
			break; /* the body's last bytes: finish writes them or hands them over */
		ret = staging_flush(self);
	}
	return ret;
}

/* Leases the staging's frames and fills them with the bytes that are aside. */
static int staging_open(struct put_sink *self, uint64_t offset)
{
	const struct flow_want want = staging_want(
		self, bytes_from(self, self->aside_bytes ? self->aside_offset : offset));
	int ret = flow_piece_lease_now(self->sink.core, &want, &self->staging);

	if (ret)
		return ret;
	self->staging.offset = offset;
	self->staging.bytes = 0;
	if (self->aside_bytes)
		aside_take(self);
	return 0;
}

/* Whether the piece's own frames can become the staging: the piece begins a chunk, and its frames
 * hold a chunk. */
static bool becomes_staging(const struct put_sink *self, const struct flow_piece *piece)
{
	return !self->staging.data && !self->aside_bytes && piece->hold == FLOW_HOLD_LEASE &&
	       piece->data == piece->span.data && piece->offset % STORE_CHUNK_BYTES == 0 &&
	       piece->bytes < STORE_CHUNK_BYTES &&
	       region_span_bytes(piece->span) >=
		       MIN(bytes_from(self, piece->offset), (uint64_t)STORE_CHUNK_BYTES);
}

/* No frames are free: moves the rest of the piece aside and returns the piece's own frames before
 * the wait for frames. */
static int gather_aside(struct put_sink *self, struct flow_piece *piece, uint32_t at)
{
	int ret = aside_open(self, piece->offset + at);

	if (!ret)
		aside_put(self, piece->data + at, piece->bytes - at);
	flow_piece_end(self->sink.core, piece, OWNER_APP);
	return ret ? ret : aside_flush(self, false);
}

/* Copies the piece's bytes into whole chunks. Ends the piece. */
static int gather(struct put_sink *self, struct flow_piece *piece)
{
	uint32_t at = 0;
	int ret = 0;

	if (becomes_staging(self, piece)) {
		self->staging = *piece;
		piece->data = NULL;
		return 0;
	}
	while (at < piece->bytes && !ret) {
		if (!self->staging.data && staging_open(self, piece->offset + at))
			return gather_aside(self, piece, at);
		at += flow_piece_append(&self->staging, STORE_CHUNK_BYTES, piece, at);
		if (self->staging.bytes == STORE_CHUNK_BYTES)
			ret = staging_flush(self);
	}
	flow_piece_end(self->sink.core, piece, OWNER_APP);
	return ret;
}

/* ---- The sink. ---- */

static int object_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct put_sink *self = CONTAINER_OF(sink, struct put_sink, sink);
	bool whole = piece->offset == 0 && piece->bytes == self->bytes_total;
	int ret;

	CHECK(piece->offset == self->offset);
	self->offset += piece->bytes;
	if (self->writer.error || self->offset > self->bytes_total) {
		flow_piece_end(sink->core, piece, OWNER_APP);
		return self->writer.error ? self->writer.error : -EMSGSIZE;
	}
	if (whole && piece->bytes <= STORE_GROUPED_BYTES_MAX && piece->hold == FLOW_HOLD_LEASE &&
		piece->data == piece->span.data) {
		flow_piece_pass(sink->core, piece);
		local_put_frames_take(self->put, piece->span, piece->bytes);
		return 0;
	}
	ret = fits_as_is(self, piece) ? chunk_write(self, piece) : gather(self, piece);
	if (ret && !self->writer.error)
		self->writer.error = ret;
	return ret;
}

/* Finishes the body once all of it has arrived: hands its frames to the store, or writes the rest.
 */
static void staging_finish(struct put_sink *self)
{
	int ret = aside_flush(self, true);

	if (ret && !self->writer.error)
		self->writer.error = ret;
	if (ret || !self->staging.data)
		return;
	if (self->offset == self->staging.bytes && self->offset <= STORE_GROUPED_BYTES_MAX) {
		flow_piece_pass(self->sink.core, &self->staging);
		local_put_frames_take(self->put, self->staging.span, self->staging.bytes);
	} else {
		staging_flush(self);
	}
}

static int object_finish(struct flow_sink *sink, bool failed)
{
	struct put_sink *self = CONTAINER_OF(sink, struct put_sink, sink);
	int ret;

	flow_lender_remove(&self->lender);
	if (!failed && self->bytes_total != UINT64_MAX && self->offset != self->bytes_total &&
		!self->writer.error)
		self->writer.error = -EPIPE;
	if (!failed && !self->writer.error)
		staging_finish(self);
	if (self->staging.data)
		flow_piece_end(sink->core, &self->staging, OWNER_APP);
	ret = flow_writer_finish(&self->writer);
	free(self->aside);
	flow_end_give(sink->core, self);
	return ret;
}

static const struct flow_sink_ops OBJECT_SINK_OPS = {
	.name = "object",
	.push = object_push,
	.finish = object_finish,
};

int local_put_sink(struct store_put *put, struct flow_core *core, uint64_t bytes_total,
	struct flow_sink **ret_sink)
{
	struct put_sink *self = (struct put_sink *)flow_end_lease(core);

	if (!self)
		return -ENOMEM;
	self->sink = (struct flow_sink){.magic = FLOW_SINK_MAGIC,
		.ops = &OBJECT_SINK_OPS,
		.core = core,
		.deadline_ns = DEADLINE_NONE};
	self->put = put;
	self->bytes_total = bytes_total;
	self->offset = 0;
	self->staging = (struct flow_piece){.data = NULL};
	self->aside = NULL;
	self->aside_bytes = 0;
	flow_lender_add(core, &self->lender, call_in);
	flow_writer_init(&self->writer, core, write_ended);
	*ret_sink = &self->sink;
	return 0;
}
