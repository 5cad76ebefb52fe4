/* flow/object_source.c: an object's bytes as pieces: from the cache, from its record, or from the
 * volume with read-ahead, every byte that comes from the volume verified. Data path. */
#include "flow/flow_priv.h"

#include <errno.h>

/* The bytes around [offset, end) that begin and end on boundaries of `unit`, counted from where the
 * stretch starts; its end is a boundary, too. */
struct around {
	uint64_t from, to;
};

static struct around around(
	uint64_t start, uint64_t stretch_end, uint64_t offset, uint64_t end, uint64_t unit)
{
	return (struct around){
		.from = start + ALIGN_DOWN(offset - start, unit),
		.to = MIN(start + ALIGN_UP(end - start, unit), stretch_end),
	};
}

static void stretch_enter(struct flow_object_source *self)
{
	uint64_t bytes;

	store_get_stretch(self->get, self->offset, &self->stretch_start, &bytes);
	self->stretch_end = self->stretch_start + bytes;
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

/* The frames, or -ENOBUFS where it would have to wait for them while it holds others. */
static int frames_lease(
	struct flow_object_source *self, uint32_t frames, struct region_span *ret_span)
{
	struct flow_core *core = self->source.core;

	if (flow_window_empty(&self->window))
		return flow_lease(core, frames, OWNER_APP, self->source.deadline_ns, ret_span);
	return region_lease(core->region, frames, OWNER_APP, ret_span);
}

/* Begins the piece at self->offset. Waits for frames only when it holds none itself. 1, or 0 when
 * it rather did not. */
static int piece_begin(struct flow_object_source *self, uint32_t bytes_max)
{
	struct flow_core *core = self->source.core;
	struct flow_slot *slot = flow_window_next(&self->window);
	uint64_t offset = self->offset;
	struct around chunk, check;
	uint64_t end;
	int ret;

	if (offset >= self->stretch_end)
		stretch_enter(self);
	chunk = around(
		self->stretch_start, self->stretch_end, offset, offset + 1, STORE_CHUNK_BYTES);
	end = MIN(MIN(chunk.to, self->end), offset + bytes_max);
	check = around(self->stretch_start, self->stretch_end, offset, end, STORE_CHECK_BYTES);
	slot->io = (struct flow_io){0};
	slot->piece = (struct flow_piece){.offset = offset, .bytes = (uint32_t)(end - offset)};
	if (store_get_cached(self->get, offset, &slot->piece.span)) {
		slot->piece.hold = FLOW_HOLD_CACHE;
		slot->piece.data = slot->piece.span.data + (offset - chunk.from);
	} else {
		slot->piece.hold = FLOW_HOLD_LEASE;
		ret = frames_lease(
			self, region_frames_for(check.to - check.from), &slot->piece.span);
		if (ret == -ENOBUFS)
			return 0;
		if (ret)
			return ret;
		slot->piece.data = slot->piece.span.data + (offset - check.from);
		region_switch(core->region, slot->piece.span, OWNER_APP, OWNER_DISK);
		ret = read_start(self, slot, check.from, check.to);
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
	uint64_t piece_end = piece->offset + piece->bytes;
	struct around check, chunk;
	uint64_t start, bytes;
	int ret;

	/* The piece's own: reads ahead may be in a later one. */
	store_get_stretch(self->get, piece->offset, &start, &bytes);
	check = around(start, start + bytes, piece->offset, piece_end, STORE_CHECK_BYTES);
	chunk = around(start, start + bytes, piece->offset, piece_end, STORE_CHUNK_BYTES);
	ret = store_get_verify(
		self->get, check.from, piece->span.data, (uint32_t)(check.to - check.from));
	if (ret)
		return ret;
	if (check.from == chunk.from && check.to == chunk.to &&
		store_get_cache_offer(
			self->get, check.from, piece->span, (uint32_t)(check.to - check.from)))
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
	self->stretch_start = 0;
	self->stretch_end = 0;
	flow_window_init(&self->window);
	*ret_source = &self->source;
	return 0;
}
