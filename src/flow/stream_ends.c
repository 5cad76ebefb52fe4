/* flow/stream_ends.c: plain memory and byte streams as ends of a transfer. Data path. */
#include "flow/flow_priv.h"

#include <errno.h>
#include <stdlib.h>

/* ---- Memory. ---- */

static int memory_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct flow_memory_source *self = CONTAINER_OF(source, struct flow_memory_source, source);
	uint32_t bytes = (uint32_t)MIN((size_t)bytes_max, self->rest.len);

	if (bytes == 0)
		return 0;
	*ret_piece = (struct flow_piece){
		.data = (uint8_t *)(uintptr_t)self->rest.data,
		.bytes = bytes,
		.offset = self->offset,
		.hold = FLOW_HOLD_BORROWED,
	};
	self->rest = slice_from(self->rest, bytes);
	self->offset += bytes;
	return 1;
}

static void memory_close(struct flow_source *source)
{
	flow_end_give(source->core, CONTAINER_OF(source, struct flow_memory_source, source));
}

static const struct flow_source_ops MEMORY_OPS = {
	.name = "memory", .next = memory_next, .close = memory_close};

int flow_memory_source_open(
	struct flow_core *core, struct slice bytes, struct flow_source **ret_source)
{
	struct flow_memory_source *self = (struct flow_memory_source *)flow_end_lease(core);

	if (!self)
		return -ENOMEM;
	self->source = (struct flow_source){
		.ops = &MEMORY_OPS,
		.core = core,
		.bytes_total = bytes.len,
		.deadline_ns = DEADLINE_NONE,
	};
	self->rest = bytes;
	self->offset = 0;
	*ret_source = &self->source;
	return 0;
}

/* ---- A byte stream as source. ---- */

/* Fills the piece: first with what had been read already, then straight from the stream. */
static int net_fill(struct flow_net_source *self, struct flow_piece *piece)
{
	uint32_t at = (uint32_t)MIN((size_t)piece->bytes, self->buffered.len);

	if (at) {
		region_copy(piece->data, self->buffered.data, at, COPY_INLINE_IN);
		self->buffered = slice_from(self->buffered, at);
	}
	while (at < piece->bytes) {
		size_t got;
		int ret = net_recv(self->stream, piece->data + at, piece->bytes - at,
			clock_now_ns() + self->stall_ns, &got);

		if (ret)
			return ret;
		if (got == 0)
			return -EPIPE;
		at += (uint32_t)got;
	}
	return 0;
}

static int net_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct flow_net_source *self = CONTAINER_OF(source, struct flow_net_source, source);
	struct flow_piece piece = {.offset = self->offset, .hold = FLOW_HOLD_LEASE};
	int ret;

	piece.bytes = (uint32_t)MIN((uint64_t)bytes_max, source->bytes_total - self->offset);
	if (piece.bytes == 0)
		return 0;
	ret = flow_lease(source->core, region_frames_for(piece.bytes), OWNER_NET,
		source->deadline_ns, &piece.span);
	if (ret)
		return ret;
	piece.data = piece.span.data;
	ret = net_fill(self, &piece);
	if (ret) {
		flow_piece_end(source->core, &piece, OWNER_NET);
		return ret;
	}
	region_switch(source->core->region, piece.span, OWNER_NET, OWNER_APP);
	self->offset += piece.bytes;
	*ret_piece = piece;
	return 1;
}

static void net_source_close(struct flow_source *source)
{
	flow_end_give(source->core, CONTAINER_OF(source, struct flow_net_source, source));
}

static const struct flow_source_ops NET_SOURCE_OPS = {
	.name = "net", .next = net_next, .close = net_source_close};

int flow_net_source_open(struct flow_core *core, struct net_stream *stream, struct slice buffered,
	uint64_t bytes_total, uint64_t stall_ns, struct flow_source **ret_source)
{
	struct flow_net_source *self = (struct flow_net_source *)flow_end_lease(core);

	if (!self)
		return -ENOMEM;
	self->source = (struct flow_source){
		.ops = &NET_SOURCE_OPS,
		.core = core,
		.bytes_total = bytes_total,
		.deadline_ns = DEADLINE_NONE,
	};
	self->stream = stream;
	self->buffered = buffered;
	self->offset = 0;
	self->stall_ns = stall_ns;
	*ret_source = &self->source;
	return 0;
}

/* ---- A byte stream as sink: the kernel takes the bytes before push returns, so nothing stays in
 * flight. ---- */

static int net_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct flow_net_sink *self = CONTAINER_OF(sink, struct flow_net_sink, sink);
	struct iovec iov = {.iov_base = piece->data, .iov_len = piece->bytes};
	enum region_owner owner = OWNER_APP;

	if (piece->hold == FLOW_HOLD_LEASE) {
		region_switch(sink->core->region, piece->span, OWNER_APP, OWNER_NET);
		owner = OWNER_NET;
	}
	if (!self->error)
		self->error = net_sendv(self->stream, &iov, 1, clock_now_ns() + self->stall_ns);
	flow_piece_end(sink->core, piece, owner);
	return self->error;
}

static int net_finish(struct flow_sink *sink, bool failed)
{
	struct flow_net_sink *self = CONTAINER_OF(sink, struct flow_net_sink, sink);
	int ret = self->error;

	(void)failed;
	flow_end_give(sink->core, self);
	return ret;
}

static const struct flow_sink_ops NET_SINK_OPS = {
	.name = "net", .push = net_push, .finish = net_finish};

int flow_net_sink_open(struct flow_core *core, struct net_stream *stream, uint64_t stall_ns,
	struct flow_sink **ret_sink)
{
	struct flow_net_sink *self = (struct flow_net_sink *)flow_end_lease(core);

	if (!self)
		return -ENOMEM;
	self->sink = (struct flow_sink){
		.ops = &NET_SINK_OPS, .core = core, .deadline_ns = DEADLINE_NONE};
	self->stream = stream;
	self->stall_ns = stall_ns;
	self->error = 0;
	*ret_sink = &self->sink;
	return 0;
}

/* ---- A sink that drops. ---- */
static int null_push(struct flow_sink *sink, struct flow_piece *piece)
{
	flow_piece_end(sink->core, piece, OWNER_APP);
	return 0;
}

static int null_finish(struct flow_sink *sink, bool failed)
{
	(void)failed;
	free(sink);
	return 0;
}

static const struct flow_sink_ops NULL_OPS = {
	.name = "null",
	.push = null_push,
	.finish = null_finish,
};

int flow_null_sink_open(struct flow_core *core, struct flow_sink **ret_sink)
{
	struct flow_sink *sink = calloc(1, sizeof(*sink));

	if (!sink)
		return -ENOMEM;
	*sink = (struct flow_sink){.ops = &NULL_OPS, .core = core, .deadline_ns = DEADLINE_NONE};
	*ret_sink = sink;
	return 0;
}
