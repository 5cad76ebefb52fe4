/* flow/flow.c: one transfer from source to sink, and each reactor's means to move. The fast path of
 * both is in flow_dp.c. */
#include "flow/flow_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int stages_run(
	struct flow_stage *const *stages, uint32_t stage_count, const struct flow_piece *piece)
{
	for (uint32_t i = 0; i < stage_count; i++) {
		int ret = stages[i]->ops->piece(stages[i], piece);

		if (ret)
			return ret;
	}
	return 0;
}

int flow_run(struct flow_source *source, struct flow_stage *const *stages, uint32_t stage_count,
	struct flow_sink *sink, uint64_t *ret_bytes)
{
	uint64_t bytes = 0;
	int ret, finished;

	for (;;) {
		struct flow_piece piece;

		ret = source->ops->next(source, STORE_CHUNK_BYTES, &piece);
		if (ret <= 0)
			break;
		ret = stages_run(stages, stage_count, &piece);
		if (ret) {
			flow_piece_end(sink->core, &piece, OWNER_APP);
			break;
		}
		bytes += piece.bytes;
		ret = sink->ops->push(sink, &piece);
		if (ret)
			break;
	}
	finished = sink->ops->finish(sink, ret != 0);
	source->ops->close(source);
	*ret_bytes = bytes;
	/* A source that was told to stop says nothing about why. */
	return ret && !(ret == -ECANCELED && finished) ? ret : finished;
}

static int checksum_piece(struct flow_stage *stage, const struct flow_piece *piece)
{
	struct flow_checksum *self = CONTAINER_OF(stage, struct flow_checksum, stage);

	checksum_update(&self->checksum, piece->data, piece->bytes);
	return 0;
}

static const struct flow_stage_ops CHECKSUM_OPS = {.name = "checksum", .piece = checksum_piece};

int flow_checksum_init(struct flow_checksum *stage, enum checksum_kind kind)
{
	if ((unsigned)kind >= CHECKSUM_KIND_COUNT)
		return -EINVAL;
	stage->stage.ops = &CHECKSUM_OPS;
	checksum_init(&stage->checksum, kind);
	return 0;
}

/* Frames of other cores come back without telling this one, so waiters look again every so often.
 */
#define LEASE_RETRY_NS (1 * NS_PER_MS)
/* Longest wait for frames: past it the server is overloaded, and says so. */
#define LEASE_WAIT_NS_MAX (30 * NS_PER_S)

static void lease_retry(struct reactor_timer *timer, void *arg)
{
	struct flow_core *core = arg;

	(void)timer;
	if (list_empty(&core->lease_waiters))
		return;
	flow_core_lease_wake(core);
	reactor_timer_set(
		core->reactor, &core->lease_retry, reactor_now_ns(core->reactor) + LEASE_RETRY_NS);
}

struct lease_waiter {
	struct list link;
	struct fiber *fiber;
};

void flow_core_lease_wake(struct flow_core *core)
{
	struct list *first = core->lease_waiters.next;

	if (first != &core->lease_waiters)
		fiber_wake(CONTAINER_OF(first, struct lease_waiter, link)->fiber);
}

/* The slow part of flow_lease: in line behind those that asked before. */
static int lease_wait(struct flow_core *core, struct region_span *want, enum region_owner owner,
	uint64_t deadline_ns)
{
	struct lease_waiter waiter = {.fiber = fiber_self()};
	int ret;

	deadline_ns = MIN(deadline_ns, clock_now_ns() + LEASE_WAIT_NS_MAX);
	list_push_back(&core->lease_waiters, &waiter.link);
	reactor_timer_set(
		core->reactor, &core->lease_retry, reactor_now_ns(core->reactor) + LEASE_RETRY_NS);
	for (;;) {
		if (core->lease_waiters.next == &waiter.link) {
			ret = region_lease(core->region, want->frame_count, owner, want);
			if (ret == -ENOBUFS && core->store &&
				store_cache_shrink(core->store, want->frame_count))
				ret = region_lease(core->region, want->frame_count, owner, want);
			if (ret != -ENOBUFS)
				break;
		}
		ret = fiber_park_until(deadline_ns);
		if (ret)
			break;
	}
	list_remove(&waiter.link);
	flow_core_lease_wake(core);
	return ret;
}

int flow_lease(struct flow_core *core, uint32_t frame_count, enum region_owner owner,
	uint64_t deadline_ns, struct region_span *ret_span)
{
	struct region_span span = {.frame_count = frame_count};
	int ret = -ENOBUFS;

	if (list_empty(&core->lease_waiters))
		ret = region_lease(core->region, frame_count, owner, &span);
	if (ret == -ENOBUFS)
		ret = lease_wait(core, &span, owner, deadline_ns);
	if (ret == 0)
		*ret_span = span;
	return ret;
}

int flow_core_open(struct reactor *reactor, struct region *region, struct flow_core *core)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (fd < 0)
		return -errno;
	*core = (struct flow_core){
		.region = region,
		.reactor = reactor,
		.ring = region_ring(region, reactor_core_idx(reactor)),
		.lease_retry = {.fn = lease_retry, .arg = core},
	};
	list_init(&core->lease_waiters);
	list_init(&core->idle_ends);
	flow_core_poller_init(core, fd);
	reactor_poller_add(reactor, &core->poller);
	return 0;
}

void flow_core_close(struct flow_core *core)
{
	struct list *idle;

	if (!core->region)
		return;
	CHECK(core->in_flight == 0);
	reactor_timer_cancel(core->reactor, &core->lease_retry);
	reactor_poller_remove(core->reactor, &core->poller);
	close(core->poller.event_fd);
	while ((idle = list_pop(&core->idle_ends)) != NULL)
		free(CONTAINER_OF(idle, union flow_end, idle));
	core->region = NULL;
}

union flow_end *flow_end_lease(struct flow_core *core)
{
	struct list *idle = list_pop(&core->idle_ends);

	if (idle)
		return CONTAINER_OF(idle, union flow_end, idle);
	return malloc(sizeof(union flow_end));
}

void flow_end_give(struct flow_core *core, void *end)
{
	union flow_end *idle = end;

	list_push_front(&core->idle_ends, &idle->idle);
}
