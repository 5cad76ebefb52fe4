/* store/ends/source.c: an object's bytes as pieces: from the cache, from its record, or from the
 * volume with read-ahead. All bytes from the volume are verified. Data path.
 *
 * Sources that need the same whole chunk at the same time share one read of the volume: a flight
 * (docs/design/flow.md). The one that reads lands the chunk as soon as the device is done, on a
 * fiber of its own, so a client that takes its bytes slowly keeps no other one waiting. */
#include "flow/end.h"
#include "flow/reader.h"
#include "store/call/call.h"
#include "store/ends/ends.h"

#include <errno.h>

/* Of a piece whose chunk other sources may share:
 *
 *   reads  the device reads into the piece's frames -> a fiber verifies them and ends the flight
 *   waits  another source reads; the piece has no frames, but counts as many (BORROWED)
 *                                                   -> the piece has the chunk, or must be begun
 *                                                      again
 *
 * Both end by the io of the slot, for which the source waits in any case, so they never outlive
 * it. */
struct landing {
	struct cache_flight flight;
	struct get_source *self;
	struct flow_slot *slot;
	const char *request;
	struct flow_io read;
	uint64_t from; /* of the chunk */
	struct reactor *reactor;
	struct reactor_msg msg;
};

struct get_source {
	struct flow_reader reader;
	struct store_get *get;
	uint64_t start; /* in the object: offsets here are the object's; delivered pieces have the
			   body's */
	uint64_t stretch_start, stretch_end; /* around offset: chunks are counted from its start */
	bool alone; /* another source's read has failed: this one shares no more reads */
	struct landing landings[FLOW_WINDOW_DEFAULT];
};
_Static_assert(FLOW_WINDOW_MAX % FLOW_WINDOW_DEFAULT == 0, "slots in use have different landings");
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
	struct flow_io *io;
	uint8_t *data;
};

/* A store_run_fn: reads the run to its place in the span. */
static void run_read(void *arg, const struct store_run *run, uint32_t at)
{
	const struct reading *reading = (const struct reading *)arg;
	struct region_sqe sqe = {
		.opcode = REGION_OP_READ,
		.target = run->target,
		.addr = (uint64_t)(uintptr_t)(reading->data + at),
		.offset = run->volume_offset,
		.len = ALIGN_UP(run->bytes, FRAME_BYTES),
	};

	flow_io_start(reading->core, reading->io, &sqe);
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

/* The piece gets the chunk's frames, verified, with a reference of its own. */
static void piece_share(struct flow_core *core, struct landing *landing, struct region_span span)
{
	struct flow_piece *piece = &landing->slot->piece;

	if (piece->share != FLOW_SHARE_OWN && piece->span.frame_count != span.frame_count) {
		flow_share_give(core, piece->share, piece->span.frame_count);
		piece->share = FLOW_SHARE_OWN;
	}
	piece->hold = FLOW_HOLD_CACHE;
	piece->span = span;
	piece->data = span.data + (piece->offset - landing->from);
}

/* On the waiting source's own reactor. */
static void waiter_arrived(struct reactor_msg *msg)
{
	struct landing *landing = CONTAINER_OF(msg, struct landing, msg);

	if (landing->flight.span.data)
		piece_share(landing->self->reader.source.core, landing, landing->flight.span);
	flow_io_end(&landing->slot->io, 0);
}

static void waiter_landed(struct cache_flight *flight)
{
	struct landing *landing = CONTAINER_OF(flight, struct landing, flight);

	if (landing->reactor == reactor_self())
		waiter_arrived(&landing->msg);
	else
		reactor_post(landing->reactor, &landing->msg);
}

/* Verifies the chunk in the frames of the piece, which then shares them. */
static int chunk_land(struct landing *landing)
{
	struct get_source *self = landing->self;
	struct region *region = self->reader.source.core->region;
	struct flow_piece *piece = &landing->slot->piece;
	bool cached;
	int ret = landing->read.error;

	if (ret)
		return ret;
	region_switch(region, piece->span, self->reader.owner, OWNER_APP);
	ret = local_get_arrived(
		self->get, landing->from, landing->flight.bytes, piece->span, &cached);
	if (ret) {
		region_switch(region, piece->span, OWNER_APP, self->reader.owner);
		return ret;
	}
	if (!cached)
		region_switch(region, piece->span, OWNER_APP, OWNER_CACHE);
	piece->hold = FLOW_HOLD_CACHE;
	return 0;
}

/* A fiber_fn. */
static void land(void *arg)
{
	struct landing *landing = (struct landing *)arg;
	const struct flow_source *source = &landing->self->reader.source;
	int ret;

	if (landing->request)
		fiber_request_set(landing->request);
	fiber_share_set(source->share);
	fiber_yield();
	ret = chunk_land(landing);
	local_get_landed(landing->self->get, &landing->flight,
		ret ? (struct region_span){.data = NULL} : landing->slot->piece.span);
	flow_io_end(&landing->slot->io, ret);
}

/* Without a fiber, the piece is verified when it is delivered, and the others read for
 * themselves. */
static void read_done(struct flow_io *io)
{
	struct landing *landing = CONTAINER_OF(io, struct landing, read);

	if (!fiber_spawn(landing->reactor, "landing", land, landing))
		return;
	local_get_landed(landing->self->get, &landing->flight, (struct region_span){.data = NULL});
	flow_io_end(&landing->slot->io, io->error);
}

/* Begins the piece, whose frames will hold the whole chunk, together with other sources. False: it
 * must be read alone. */
static bool flight_begin(struct get_source *self, struct flow_slot *slot, struct around chunk)
{
	struct flow_core *core = self->reader.source.core;
	struct flow_piece *piece = &slot->piece;
	struct landing *landing =
		&self->landings[(size_t)(slot - self->reader.window.slots) % FLOW_WINDOW_DEFAULT];
	struct region_span span = piece->span;
	enum cache_flight_role role;
	int ret;

	if (self->alone || span.frame_count <= FLOW_FRAMES_SMALL)
		return false;
	*landing = (struct landing){
		.flight.landed = waiter_landed,
		.self = self,
		.slot = slot,
		.request = fiber_request(),
		.read.done = read_done,
		.from = chunk.from,
		.reactor = core->reactor,
		.msg.fn = waiter_arrived,
	};
	/* A flight that waits may land on another thread before the call returns. */
	piece->hold = FLOW_HOLD_BORROWED;
	piece->span.data = NULL;
	piece->data = NULL;
	flow_io_begin(&slot->io);
	ret = local_get_flight(self->get, chunk.from, &landing->flight, &role);
	if (!ret && role == FLIGHT_WAITS) {
		region_give(core->region, span, self->reader.owner);
		return true;
	}
	if (!ret && role == FLIGHT_CACHED) {
		region_give(core->region, span, self->reader.owner);
		piece_share(core, landing, landing->flight.span);
		flow_io_end(&slot->io, 0);
		return true;
	}
	piece->hold = FLOW_HOLD_LEASE;
	piece->span = span;
	piece->data = span.data + (piece->offset - chunk.from);
	if (ret) {
		flow_io_end(&slot->io, 0);
		return false;
	}
	flow_io_begin(&landing->read);
	ret = local_get_chunk(self->get, chunk.from, landing->flight.bytes, run_read,
		&(struct reading){core, &landing->read, span.data});
	flow_io_end(&landing->read, ret);
	return true;
}

static void read_alone(struct get_source *self, struct flow_slot *slot, struct around check)
{
	int ret = local_get_chunk(self->get, check.from, (uint32_t)(check.to - check.from),
		run_read,
		&(struct reading){self->reader.source.core, &slot->io, slot->piece.span.data});

	if (ret)
		slot->io.error = ret;
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
		if (check.from != chunk.from || check.to != chunk.to ||
			!flight_begin(self, slot, chunk))
			read_alone(self, slot, check);
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

/* The piece waited for another source's read, which failed: begins it and all after it again, read
 * by this source. */
static void read_again(struct get_source *self, struct flow_piece *piece)
{
	struct flow_reader *reader = &self->reader;
	struct flow_core *core = reader->source.core;
	uint64_t offset = piece->offset;

	self->alone = true;
	reader->busy = true;
	flow_piece_end(core, piece, reader->owner);
	while (!flow_window_empty(&reader->window)) {
		struct flow_slot *slot = flow_window_oldest(&reader->window);

		flow_io_wait(&slot->io);
		flow_piece_end(core, &slot->piece, reader->owner);
		reader->window.tail++;
	}
	reader->offset = offset;
	reader->busy = false;
}

static int object_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct get_source *self = CONTAINER_OF(source, struct get_source, reader.source);
	struct flow_piece piece;
	int ret = flow_reader_next(source, bytes_max, &piece);

	if (ret == 1 && piece.hold == FLOW_HOLD_BORROWED) {
		read_again(self, &piece);
		ret = flow_reader_next(source, bytes_max, &piece);
	}
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
	self->alone = false;
	flow_window_init(&self->reader.window, FLOW_WINDOW_DEFAULT);
	flow_reader_open(&self->reader);
	*ret_source = &self->reader.source;
	return 0;
}
