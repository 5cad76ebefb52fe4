/* flow/flow_dp.c: the unified rings' turn and the fibers that wait on it. Data path. */
#include "flow/flow_priv.h"

#include <errno.h>

#define REAP_BATCH 32

static _Thread_local struct flow_core *self_core;

struct flow_core *flow_core_self(void)
{
	return self_core;
}

void flow_io_begin(struct flow_io *io)
{
	io->pending++;
}

void flow_io_end(struct flow_io *io, int32_t result)
{
	CHECK(io->pending > 0);
	if (result < 0 && io->error == 0)
		io->error = result;
	io->result = result;
	if (--io->pending)
		return;
	if (io->done)
		io->done(io);
	else if (io->fiber)
		fiber_wake(io->fiber);
}

static uint32_t core_poll(void *arg)
{
	struct flow_core *core = arg;
	struct region_cqe cqes[REAP_BATCH];
	uint32_t work, count;

	region_ring_now(core->ring, reactor_now_ns(core->reactor));
	work = region_ring_turn(core->ring);

	self_core = core;
	do {
		count = region_reap(core->ring, cqes, REAP_BATCH);
		for (uint32_t i = 0; i < count; i++) {
			struct flow_io *io = (struct flow_io *)(uintptr_t)cqes[i].user_data;

			io->imm = cqes[i].imm;
			flow_io_end(io, cqes[i].result);
		}
		core->in_flight -= count;
		work += count;
	} while (count == REAP_BATCH);
	if (__builtin_expect(core->lines != 0, 0) && work)
		flow_places_serve(core);
	if (__builtin_expect(core->frames_came, 0)) {
		core->frames_came = false;
		flow_waiting_serve(core);
		work++;
	}
	return work;
}

/* Devices wake the reactor by their own events; the rings only must be empty before a sleep. */
static bool core_arm(void *arg)
{
	const struct flow_core *core = arg;

	return region_ring_idle(core->ring) && !core->frames_came;
}

static void core_disarm(void *arg)
{
	(void)arg;
}

void flow_core_poller_init(struct flow_core *core, int event_fd)
{
	core->poller = (struct reactor_poller){
		.name = "rings",
		.poll = core_poll,
		.arm = core_arm,
		.disarm = core_disarm,
		.arg = core,
		.event_fd = event_fd,
	};
}

int flow_entry_begin(struct flow_core *core, const struct flow_entry *entry)
{
	struct flow_io *io = entry->io;
	int ret = entry->sqe ? region_submit(core->ring, entry->sqe)
			     : region_submit_wr(core->ring, entry->wr);

	if (__builtin_expect(ret != 0, 0)) {
		CHECK(ret == -EAGAIN);
		return ret;
	}
	flow_io_begin(io);
	if (io->posted)
		++*io->posted;
	core->in_flight++;
	return 0;
}

static inline void entry_start(
	struct flow_core *core, const struct flow_entry *entry, uint16_t target)
{
	/* A newcomer does not go ahead of those that wait for the same target. */
	if (__builtin_expect(core->lines != 0, 0) && flow_place_awaited(core, target))
		flow_place_wait(core, entry);
	else if (__builtin_expect(flow_entry_begin(core, entry) != 0, 0))
		flow_place_wait(core, entry);
}

void flow_io_start(struct flow_core *core, struct flow_io *io, struct region_sqe *sqe)
{
	sqe->user_data = (uint64_t)(uintptr_t)io;
	entry_start(core, &(struct flow_entry){.io = io, .sqe = sqe}, sqe->target);
}

void flow_io_start_wr(struct flow_core *core, struct flow_io *io, struct region_wr *wr)
{
	wr->user_data = (uint64_t)(uintptr_t)io;
	entry_start(core, &(struct flow_entry){.io = io, .wr = wr}, wr->target);
}

int flow_io_try_wr(struct flow_core *core, struct flow_io *io, struct region_wr *wr)
{
	wr->user_data = (uint64_t)(uintptr_t)io;
	return flow_entry_begin(core, &(struct flow_entry){.io = io, .wr = wr});
}

int flow_io_wait(struct flow_io *io)
{
	if (io->pending) {
		io->fiber = fiber_self();
		while (io->pending)
			fiber_park();
		io->fiber = NULL;
	}
	return io->error;
}

void flow_piece_end(struct flow_core *core, struct flow_piece *piece, enum region_owner owner)
{
	switch (piece->hold) {
	case FLOW_HOLD_LEASE:
		region_give(core->region, piece->span, owner);
		break;
	case FLOW_HOLD_CACHE:
		region_put(core->region, piece->span, OWNER_CACHE);
		break;
	case FLOW_HOLD_BORROWED:
		break;
	}
	if (piece->share != FLOW_SHARE_OWN)
		flow_share_give(core, piece->share, piece->span.frame_count);
	else if (__builtin_expect(core->waiters != 0, 0))
		core->frames_came = true;
	piece->data = NULL;
}

int flow_change_begin(struct flow_elsewhere *elsewhere, struct flow_piece *piece, uint32_t bytes,
	struct flow_change *ret_change)
{
	int ret;

	*ret_change = (struct flow_change){.piece = *piece,
		.room = piece->span.data,
		.in_place = piece->hold == FLOW_HOLD_LEASE};
	if (ret_change->in_place)
		return 0;
	ret = flow_elsewhere(elsewhere, bytes, &ret_change->piece);
	if (ret)
		flow_piece_end(elsewhere->core, piece, OWNER_APP);
	ret_change->room = ret_change->piece.data;
	return ret;
}

int flow_change_end(
	struct flow_core *core, struct flow_piece *piece, const struct flow_change *change, int ret)
{
	if (!change->in_place)
		flow_piece_end(core, piece, OWNER_APP);
	*piece = change->piece;
	if (ret)
		flow_piece_end(core, piece, OWNER_APP);
	return ret;
}
