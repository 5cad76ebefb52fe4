/* flow/flow.c: one transfer from source to sink, and each reactor's flow core. flow_dp.c has the
 * fast path of both. */
#include "flow/flow_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Summing a whole chunk takes the processor for milliseconds: other fibers run in between. */
#define STAGES_BYTES (64 * KIB)

int flow_stages_run(
	struct flow_stage *const *stages, uint32_t stage_count, const struct flow_piece *piece)
{
	struct flow_piece part = *piece;
	uint32_t left = stage_count ? piece->bytes : 0;

	while (left) {
		part.bytes = (uint32_t)MIN((uint64_t)left, STAGES_BYTES);
		for (uint32_t i = 0; i < stage_count; i++) {
			int ret = stages[i]->ops->piece(stages[i], &part);

			if (ret)
				return ret;
		}
		part.data += part.bytes;
		part.offset += part.bytes;
		left -= part.bytes;
		if (left)
			fiber_yield();
	}
	return 0;
}

int flow_run(struct flow_source *source, struct flow_stage *const *stages, uint32_t stage_count,
	struct flow_sink *sink, uint64_t *ret_bytes)
{
	struct flow_core *core = sink->core;
	struct flow_running running = {.magic = FLOW_RUNNING_MAGIC, .fiber = fiber_self()};
	uint64_t bytes = 0;
	int ret, finished;

	flow_source_check(source);
	flow_sink_check(sink);
	flow_running_check(&running);
	CHECK(core->reactor == reactor_self());
	sink->share = source->share;
	list_push_back(&core->runs, &running.link);
	for (;;) {
		struct flow_piece piece;

		ret = flow_source_next(source, FLOW_PIECE_BYTES_MAX, &piece);
		if (ret <= 0)
			break;
		ret = flow_stages_run(stages, stage_count, &piece);
		if (ret) {
			flow_piece_end(core, &piece, OWNER_APP);
			break;
		}
		bytes += piece.bytes;
		running.in_hand = &piece;
		ret = flow_sink_push(sink, &piece);
		running.in_hand = NULL;
		if (ret)
			break;
	}
	finished = flow_sink_finish(sink, ret != 0);
	list_remove(&running.link);
	magic_clear(&running.magic);
	flow_source_close(source);
	*ret_bytes = bytes;
	/* A source that was told to stop does not know why: the sink's error is returned. */
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

int flow_core_open(struct reactor *reactor, struct region *region, struct flow_core *core)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int ret;

	if (fd < 0)
		return -errno;
	*core = (struct flow_core){
		.region = region,
		.reactor = reactor,
		.ring = region_ring(region, reactor_core_idx(reactor)),
	};
	list_init(&core->lenders);
	list_init(&core->runs);
	list_init(&core->idle_ends);
	ret = flow_waiting_open(core);
	if (ret) {
		close(fd);
		core->region = NULL;
		return ret;
	}
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
	CHECK(list_empty(&core->lenders) && list_empty(&core->runs));
	flow_waiting_close(core);
	reactor_poller_remove(core->reactor, &core->poller);
	close(core->poller.event_fd);
	while ((idle = list_pop(&core->idle_ends)) != NULL)
		free(idle);
	core->region = NULL;
}

/* An idle block starts with its list link. */
void *flow_end_lease(struct flow_core *core)
{
	struct list *idle = list_pop(&core->idle_ends);

	return idle ? (void *)idle : malloc(FLOW_END_BYTES);
}

void flow_end_give(struct flow_core *core, void *end)
{
	list_push_front(&core->idle_ends, (struct list *)end);
}
