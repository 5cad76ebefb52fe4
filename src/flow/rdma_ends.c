/* flow/rdma_ends.c: a peer's memory as a source (RDMA READ) and as a sink (RDMA WRITE), over its
 * scatter list, a window in flight. The server moves the bytes; the peer only provides its memory.
 * Data path. */
#include "flow/flow_priv.h"

#include <errno.h>

/* -EMSGSIZE when the runs hold fewer than bytes; -EINVAL for more than LIMIT_SGE_MAX runs. */
static int cursor_init(struct flow_cursor *cursor, const struct flow_peer *peer, uint64_t bytes)
{
	uint64_t held = 0;

	if (peer->run_count > LIMIT_SGE_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < peer->run_count; i++) {
		if (__builtin_add_overflow(held, peer->runs[i].bytes, &held))
			return -EINVAL;
	}
	if (held < bytes)
		return -EMSGSIZE;
	cursor->peer = *peer;
	cursor->offset = 0;
	cursor->run_idx = 0;
	cursor->run_offset = 0;
	return 0;
}

/* Moves the cursor to the body's offset, to read again the pieces that were read ahead and called
 * in. */
static void cursor_seek(struct flow_cursor *cursor, uint64_t offset)
{
	if (__builtin_expect(cursor->offset == offset, 1))
		return;
	cursor->offset = offset;
	cursor->run_idx = 0;
	while (offset >= cursor->peer.runs[cursor->run_idx].bytes)
		offset -= cursor->peer.runs[cursor->run_idx++].bytes;
	cursor->run_offset = offset;
}

/* Posts a piece's bytes as work requests of one direction, one per remote run that they touch. The
 * caller has checked that the runs hold them. */
static void cursor_post(struct flow_core *core, struct flow_cursor *cursor, enum region_op op,
	struct flow_slot *slot)
{
	uint8_t *data = slot->piece.data;
	uint32_t left = slot->piece.bytes;
	int arena = region_arena_of(core->region, data, left);

	CHECK(arena >= 0);
	cursor->offset += left;
	if (cursor->peer.progress)
		slot->io.posted = &cursor->peer.progress->posted;
	while (left) {
		const struct flow_remote *run = &cursor->peer.runs[cursor->run_idx];
		uint32_t bytes = (uint32_t)MIN((uint64_t)left, run->bytes - cursor->run_offset);

		if (bytes) {
			struct region_wr wr = {
				.opcode = (uint8_t)op,
				.target = cursor->peer.target,
				.sge_count = 1,
				.remote_addr = run->addr + cursor->run_offset,
				.rkey = run->rkey,
				.sge[0] = {.addr = (uint64_t)(uintptr_t)data,
					.len = bytes,
					.lkey = cursor->peer.lkeys[arena]},
			};

			flow_io_start_wr(core, &slot->io, &wr);
		}
		data += bytes;
		left -= bytes;
		cursor->run_offset += bytes;
		if (cursor->run_offset == run->bytes) {
			cursor->run_idx++;
			cursor->run_offset = 0;
		}
	}
}

static void progress_begin(const struct flow_peer *peer, const struct flow_window *window)
{
	if (peer->progress)
		peer->progress->window = window;
}

static void progress_starting(const struct flow_peer *peer, bool starting)
{
	if (peer->progress)
		peer->progress->starting = starting;
}

static void progress_end(const struct flow_peer *peer)
{
	if (peer->progress)
		peer->progress->window = NULL;
}

uint32_t flow_progress_pending(const struct flow_progress *progress, uint64_t *ret_done)
{
	const struct flow_window *window = progress->window;
	uint32_t pending = 0;

	for (uint32_t i = 0; window && i < FLOW_WINDOW_MAX; i++)
		pending += window->slots[i].io.pending;
	pending -= progress->starting;
	*ret_done = progress->posted - pending;
	return pending;
}

uint64_t flow_progress_moved(const struct flow_progress *progress)
{
	return progress->window ? progress->window->moved : 0;
}

/* ---- Source. ---- */

static int read_begin(struct flow_reader *reader, struct flow_slot *slot, uint32_t bytes_max)
{
	struct flow_rdma_source *self = CONTAINER_OF(reader, struct flow_rdma_source, reader);
	uint64_t offset = reader->offset;
	int ret = flow_reader_lease(reader, slot, bytes_max);

	if (ret == 1) {
		cursor_seek(&self->cursor, offset);
		cursor_post(reader->source.core, &self->cursor, REGION_OP_RDMA_READ, slot);
	}
	return ret;
}

static void rdma_close(struct flow_source *source)
{
	struct flow_rdma_source *self =
		CONTAINER_OF(source, struct flow_rdma_source, reader.source);

	flow_reader_close(&self->reader);
	progress_end(&self->cursor.peer);
	flow_end_give(source->core, self);
}

static const struct flow_source_ops RDMA_SOURCE_OPS = {
	.name = "rdma", .next = flow_reader_next, .close = rdma_close};

int flow_rdma_source_open(struct flow_core *core, const struct flow_peer *peer, uint64_t bytes,
	struct flow_source **ret_source)
{
	struct flow_rdma_source *self = (struct flow_rdma_source *)flow_end_lease(core);
	int ret;

	if (!self)
		return -ENOMEM;
	ret = cursor_init(&self->cursor, peer, bytes);
	if (ret) {
		flow_end_give(core, self);
		return ret;
	}
	self->reader.source = (struct flow_source){
		.magic = FLOW_SOURCE_MAGIC,
		.ops = &RDMA_SOURCE_OPS,
		.core = core,
		.bytes_total = bytes,
		.deadline_ns = DEADLINE_NONE,
	};
	self->reader.begin = read_begin;
	self->reader.owner = OWNER_RDMA;
	self->reader.offset = 0;
	self->reader.end = bytes;
	flow_window_init(&self->reader.window, FLOW_WINDOW_DEFAULT);
	flow_reader_open(&self->reader);
	progress_begin(peer, &self->reader.window);
	*ret_source = &self->reader.source;
	return 0;
}

/* ---- Sink. ---- */

static void write_ended(struct flow_writer *writer, struct flow_slot *slot)
{
	flow_piece_end(writer->core, &slot->piece, OWNER_RDMA);
}

/* The device cannot read bytes outside the region: copies them into frames and counts the copy. */
static int piece_to_frames(struct flow_sink *sink, struct flow_piece *piece)
{
	const struct flow_want want = {.frame_count = region_frames_for(piece->bytes),
		.owner = OWNER_APP,
		.share = sink->share,
		.begun = true,
		.deadline_ns = sink->deadline_ns};
	const uint8_t *data = piece->data;
	int ret = flow_piece_lease(sink->core, &want, piece);

	if (ret == 0)
		region_copy(piece->data, data, piece->bytes, COPY_INDEX);
	return ret;
}

static int rdma_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct flow_rdma_sink *self = CONTAINER_OF(sink, struct flow_rdma_sink, sink);
	struct flow_slot *slot;
	int ret = self->writer.error;

	if (!ret && piece->bytes > self->bytes_left)
		ret = -EMSGSIZE;
	if (!ret && piece->hold == FLOW_HOLD_BORROWED)
		ret = piece_to_frames(sink, piece);
	if (ret) {
		flow_piece_end(sink->core, piece, OWNER_APP);
		if (!self->writer.error)
			self->writer.error = ret;
		return ret;
	}
	if (piece->hold == FLOW_HOLD_LEASE)
		region_switch(sink->core->region, piece->span, OWNER_APP, OWNER_RDMA);
	self->bytes_left -= piece->bytes;
	slot = flow_writer_begin(&self->writer, piece);
	progress_starting(&self->cursor.peer, true);
	cursor_post(sink->core, &self->cursor, REGION_OP_RDMA_WRITE, slot);
	progress_starting(&self->cursor.peer, false);
	flow_writer_started(slot);
	return 0;
}

static int rdma_finish(struct flow_sink *sink, bool failed)
{
	struct flow_rdma_sink *self = CONTAINER_OF(sink, struct flow_rdma_sink, sink);
	int ret = flow_writer_finish(&self->writer);

	(void)failed;
	progress_end(&self->cursor.peer);
	flow_end_give(sink->core, self);
	return ret;
}

static const struct flow_sink_ops RDMA_SINK_OPS = {
	.name = "rdma", .push = rdma_push, .finish = rdma_finish};

int flow_rdma_sink_open(struct flow_core *core, const struct flow_peer *peer, uint64_t bytes,
	struct flow_sink **ret_sink)
{
	struct flow_rdma_sink *self = (struct flow_rdma_sink *)flow_end_lease(core);
	int ret;

	if (!self)
		return -ENOMEM;
	ret = cursor_init(&self->cursor, peer, bytes);
	if (ret) {
		flow_end_give(core, self);
		return ret;
	}
	self->sink = (struct flow_sink){.magic = FLOW_SINK_MAGIC,
		.ops = &RDMA_SINK_OPS,
		.core = core,
		.deadline_ns = DEADLINE_NONE};
	self->bytes_left = bytes;
	flow_writer_init(&self->writer, core, write_ended);
	progress_begin(peer, &self->writer.window);
	*ret_sink = &self->sink;
	return 0;
}
