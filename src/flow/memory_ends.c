/* flow/memory_ends.c: bytes in memory as a source, and a sink that drops. Data path. */
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
		.magic = FLOW_SOURCE_MAGIC,
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
	*sink = (struct flow_sink){.magic = FLOW_SINK_MAGIC,
		.ops = &NULL_OPS,
		.core = core,
		.deadline_ns = DEADLINE_NONE};
	*ret_sink = sink;
	return 0;
}
