/* flow/object_source.c: an object's bytes as pieces: from the cache, from its record, or from the
 * volume with read-ahead, every byte that comes from the volume verified. Data path. */
#include "flow/flow_priv.h"

#include <errno.h>

static uint64_t chunk_start(uint64_t offset)
{
	return ALIGN_DOWN(offset, (uint64_t)STORE_CHUNK_BYTES);
}

static uint64_t chunk_end(const struct flow_object_source *self, uint64_t offset)
{
	return MIN(chunk_start(offset) + STORE_CHUNK_BYTES, self->bytes_whole);
}

/* Starts the reads of [from, to) into the slot's span; from lies on a check boundary of the chunk.
 */
static int read_start(
	struct flow_object_source *self, struct flow_slot *slot, uint64_t from, uint64_t to)
{
	uint8_t *data = slot->piece.span.data;

	while (from < to) {
		struct region_sqe sqe = {.opcode = REGION_OP_READ};
		struct store_run run;
		int ret = store_get_run(self->get, from, (uint32_t)(to - from), &run);

		if (ret)
			return ret;
		sqe.target = run.target;
		sqe.addr = (uint64_t)(uintptr_t)data;
		sqe.offset = run.volume_offset;
		sqe.len = ALIGN_UP(run.bytes, FRAME_BYTES);
		flow_io_start(self->source.core, &slot->io, &sqe);
		data += run.bytes;
		from += run.bytes;
	}
	return 0;
}

/* Begins the piece at self->offset. Waits for frames only when it holds none itself. 1, or 0 when
 * it rather did not. */
static int piece_begin(struct flow_object_source *self, uint32_t bytes_max)
{
	struct flow_core *core = self->source.core;
	struct flow_slot *slot = flow_window_next(&self->window);
	uint64_t offset = self->offset;
	uint64_t end = MIN(MIN(chunk_end(self, offset), self->end), offset + bytes_max);
	uint64_t from = ALIGN_DOWN(offset, (uint64_t)STORE_CHECK_BYTES);
	uint64_t to = MIN(ALIGN_UP(end, (uint64_t)STORE_CHECK_BYTES), self->bytes_whole);
	uint32_t frames = region_frames_for(to - from);
	int ret;

	slot->io = (struct flow_io){0};
	slot->piece = (struct flow_piece){.offset = offset, .bytes = (uint32_t)(end - offset)};
	if (store_get_cached(
		    self->get, (uint32_t)(offset / STORE_CHUNK_BYTES), &slot->piece.span)) {
		slot->piece.hold = FLOW_HOLD_CACHE;
		slot->piece.data = slot->piece.span.data + (offset - chunk_start(offset));
	} else {
		slot->piece.hold = FLOW_HOLD_LEASE;
		if (flow_window_empty(&self->window))
			ret = flow_lease(core, frames, OWNER_APP, self->source.deadline_ns,
				&slot->piece.span);
		else
			ret = region_lease(core->region, frames, OWNER_APP, &slot->piece.span);
		if (ret == -ENOBUFS)
			return 0;
		if (ret)
			return ret;
		slot->piece.data = slot->piece.span.data + (offset - from);
		region_switch(core->region, slot->piece.span, OWNER_APP, OWNER_DISK);
		ret = read_start(self, slot, from, to);
		if (ret)
			slot->io.error = ret;
	}
	self->offset = end;
	self->window.head++;
	return 1;
}

/* Checks what came from the volume and lets the cache have whole chunks. */
static int piece_verify(struct flow_object_source *self, struct flow_slot *slot)
{
	struct flow_piece *piece = &slot->piece;
	uint64_t from = ALIGN_DOWN(piece->offset, (uint64_t)STORE_CHECK_BYTES);
	uint64_t to = MIN(ALIGN_UP(piece->offset + piece->bytes, (uint64_t)STORE_CHECK_BYTES),
		self->bytes_whole);
	int ret = store_get_verify(self->get, from, piece->span.data, (uint32_t)(to - from));

	if (ret)
		return ret;
	if (from == chunk_start(from) && to == chunk_end(self, from) &&
		store_get_cache_offer(self->get, (uint32_t)(from / STORE_CHUNK_BYTES), piece->span,
			(uint32_t)(to - from)))
		piece->hold = FLOW_HOLD_CACHE;
	return 0;
}

static int object_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct flow_object_source *self = CONTAINER_OF(source, struct flow_object_source, source);
	struct flow_slot *slot;
	int ret;

	while (self->offset < self->end && !flow_window_full(&self->window)) {
		ret = piece_begin(self, bytes_max);
		if (ret < 0)
			return ret;
		if (ret == 0)
			break;
	}
	if (flow_window_empty(&self->window))
		return 0;
	slot = flow_window_oldest(&self->window);
	ret = flow_io_wait(&slot->io);
	self->window.tail++;
	if (slot->piece.hold == FLOW_HOLD_LEASE) {
		region_switch(source->core->region, slot->piece.span, OWNER_DISK, OWNER_APP);
		if (ret == 0)
			ret = piece_verify(self, slot);
		if (ret) {
			flow_piece_end(source->core, &slot->piece, OWNER_APP);
			return ret;
		}
	}
	*ret_piece = slot->piece;
	ret_piece->offset -= self->start;
	return 1;
}

static void object_close(struct flow_source *source)
{
	struct flow_object_source *self = CONTAINER_OF(source, struct flow_object_source, source);

	while (!flow_window_empty(&self->window)) {
		struct flow_slot *slot = flow_window_oldest(&self->window);

		flow_io_wait(&slot->io);
		flow_piece_end(source->core, &slot->piece, OWNER_DISK);
		self->window.tail++;
	}
	flow_end_give(source->core, self);
}

static const struct flow_source_ops OBJECT_SOURCE_OPS = {
	.name = "object",
	.next = object_next,
	.close = object_close,
};

int flow_object_source_open(struct flow_core *core, struct store_get *get, uint64_t offset,
	uint64_t bytes, struct flow_source **ret_source)
{
	const struct store_meta *meta = store_get_meta(get);
	struct flow_object_source *self;
	struct slice body;

	CHECK(offset <= meta->bytes && bytes <= meta->bytes - offset);
	if (store_get_inline(get, &body))
		return flow_memory_source_open(
			core, slice_to(slice_from(body, offset), bytes), ret_source);
	self = (struct flow_object_source *)flow_end_lease(core);
	if (!self)
		return -ENOMEM;
	self->source = (struct flow_source){
		.ops = &OBJECT_SOURCE_OPS,
		.core = core,
		.bytes_total = bytes,
		.deadline_ns = DEADLINE_NONE,
	};
	self->get = get;
	self->start = offset;
	self->offset = offset;
	self->end = offset + bytes;
	self->bytes_whole = meta->bytes;
	self->window.head = 0;
	self->window.tail = 0;
	*ret_source = &self->source;
	return 0;
}
