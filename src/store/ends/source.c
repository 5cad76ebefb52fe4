/* store/ends/source.c: an object's bytes as pieces: from the cache, from its record, or from the
 * volume with read-ahead. All bytes from the volume are verified. Data path. */
#include "flow/end.h"
#include "flow/reader.h"
#include "store/call/call.h"
#include "store/ends/ends.h"

#include <errno.h>

struct get_source {
	struct flow_reader reader;
	struct store_get *get;
	uint64_t start; /* in the object: offsets here are the object's; delivered pieces have the
			   body's */
	uint64_t stretch_start, stretch_end; /* around offset: chunks are counted from its start */
};
_Static_assert(sizeof(struct get_source) <= FLOW_END_BYTES, "of the pool");

/* Extends [offset, end) to boundaries of `unit`, counted from the start of the stretch; the
 * stretch's end is a boundary, too. */
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

static void stretch_enter(struct get_source *self)
{
	struct store_stretch stretch;

	local_get_stretch(self->get, self->reader.offset, &stretch);
	self->stretch_start = stretch.start;
	self->stretch_end = stretch.start + stretch.bytes;
}

struct reading {
	struct flow_core *core;
	struct flow_slot *slot;
};

/* A store_run_fn: reads the run into the slot's span. */
static void run_read(void *arg, const struct store_run *run, uint32_t at)
{
	const struct reading *reading = (const struct reading *)arg;
	struct region_sqe sqe = {
		.opcode = REGION_OP_READ,
		.target = run->target,
		.addr = (uint64_t)(uintptr_t)(reading->slot->piece.span.data + at),
		.offset = run->volume_offset,
		.len = ALIGN_UP(run->bytes, FRAME_BYTES),
	};

	flow_io_start(reading->core, &reading->slot->io, &sqe);
}

/* Gets the chunk from the cache, held for this piece: 1; 0: not now; -ENOENT: not cached; -errno.
 * The frames count as the piece's own, in case a slow client keeps it. */
static int cached_begin(struct get_source *self, struct flow_slot *slot)
{
	struct flow_core *core = self->reader.source.core;
	struct flow_piece *piece = &slot->piece;
	struct region_span none;
	struct flow_want want;
	int ret;

	if (!local_get_cached(self->get, piece->offset, &piece->span))
		return -ENOENT;
	piece->hold = FLOW_HOLD_CACHE;
	want = flow_reader_want(&self->reader, piece->span.frame_count);
	want.count_only = true;
	if (want.share == FLOW_SHARE_OWN)
		return 1;
	ret = flow_lease_spare(core, &want, &none);
	if (__builtin_expect(ret != 0, 0)) {
		flow_piece_end(core, piece, OWNER_CACHE);
		if (!flow_window_empty(&self->reader.window))
			return 0;
		ret = flow_lease(core, &want, &none);
		if (ret)
			return ret;
		if (!local_get_cached(self->get, piece->offset, &piece->span)) {
			flow_share_give(core, want.share, want.frame_count);
			return -ENOENT;
		}
		/* The cache may have the chunk again by now. */
		if (piece->span.frame_count != want.frame_count) {
			flow_share_give(core, want.share, want.frame_count);
			return 1;
		}
	}
	piece->share = want.share;
	return 1;
}

static int piece_begin(struct flow_reader *reader, struct flow_slot *slot, uint32_t bytes_max)
{
	struct get_source *self = CONTAINER_OF(reader, struct get_source, reader);
	uint64_t offset = reader->offset;
	struct around chunk, check;
	uint64_t end;
	int ret;

	if (offset >= self->stretch_end || offset < self->stretch_start)
		stretch_enter(self);
	chunk = around(
		self->stretch_start, self->stretch_end, offset, offset + 1, STORE_CHUNK_BYTES);
	end = MIN(MIN(chunk.to, reader->end), offset + bytes_max);
	check = around(self->stretch_start, self->stretch_end, offset, end, STORE_CHECK_BYTES);
	slot->io = (struct flow_io){0};
	slot->piece = (struct flow_piece){.offset = offset, .bytes = (uint32_t)(end - offset)};
	ret = cached_begin(self, slot);
	if (ret == 1) {
		slot->piece.data = slot->piece.span.data + (offset - chunk.from);
	} else if (ret != -ENOENT) {
		return ret;
	} else {
		slot->piece.hold = FLOW_HOLD_LEASE;
		ret = flow_reader_frames(
			reader, region_frames_for(check.to - check.from), &slot->piece);
		if (ret != 1)
			return ret;
		slot->piece.data = slot->piece.span.data + (offset - check.from);
		ret = local_get_chunk(self->get, check.from, (uint32_t)(check.to - check.from),
			run_read, &(struct reading){reader->source.core, slot});
		if (ret)
			slot->io.error = ret;
	}
	reader->offset = end;
	return 1;
}

/* The piece's bytes have arrived from the volume, behind those of the same check before them. */
static int piece_arrived(struct get_source *self, struct flow_piece *piece)
{
	uint32_t before = (uint32_t)(piece->data - piece->span.data);
	bool cached;
	int ret = local_get_arrived(
		self->get, piece->offset - before, before + piece->bytes, piece->span, &cached);

	if (cached)
		piece->hold = FLOW_HOLD_CACHE;
	return ret;
}

static int object_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct get_source *self = CONTAINER_OF(source, struct get_source, reader.source);
	struct flow_piece piece;
	int ret = flow_reader_next(source, bytes_max, &piece);

	if (ret != 1)
		return ret;
	if (piece.hold == FLOW_HOLD_LEASE) {
		ret = piece_arrived(self, &piece);
		if (ret) {
			flow_piece_end(source->core, &piece, OWNER_APP);
			return ret;
		}
	}
	piece.offset -= self->start;
	*ret_piece = piece;
	return 1;
}

static void object_close(struct flow_source *source)
{
	struct get_source *self = CONTAINER_OF(source, struct get_source, reader.source);

	flow_reader_close(&self->reader);
	flow_end_give(source->core, self);
}

static const struct flow_source_ops OBJECT_SOURCE_OPS = {
	.name = "object",
	.next = object_next,
	.close = object_close,
};

int local_get_source(struct store_get *get, struct flow_core *core, uint64_t offset, uint64_t bytes,
	struct flow_source **ret_source)
{
	const struct store_meta *meta = ((const struct store_get_head *)get)->meta;
	struct get_source *self;
	struct slice body;

	CHECK(offset <= meta->bytes && bytes <= meta->bytes - offset);
	if (local_get_inline(get, &body))
		return flow_memory_source_open(
			core, slice_to(slice_from(body, offset), bytes), ret_source);
	self = (struct get_source *)flow_end_lease(core);
	if (!self)
		return -ENOMEM;
	self->reader.source = (struct flow_source){
		.magic = FLOW_SOURCE_MAGIC,
		.ops = &OBJECT_SOURCE_OPS,
		.core = core,
		.bytes_total = bytes,
		.deadline_ns = DEADLINE_NONE,
	};
	self->get = get;
	self->start = offset;
	self->reader.begin = piece_begin;
	self->reader.owner = OWNER_DISK;
	self->reader.offset = offset;
	self->reader.end = offset + bytes;
	self->stretch_start = 0;
	self->stretch_end = 0;
	flow_window_init(&self->reader.window, FLOW_WINDOW_DEFAULT);
	flow_reader_open(&self->reader);
	*ret_source = &self->reader.source;
	return 0;
}
