/* flow/flow.c: one transfer from source to sink, and each reactor's flow core. flow_dp.c has the
 * fast path of both. */
#include "flow/flow_priv.h"

#include <arpa/inet.h>
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
		ret = stage_count ? flow_stages_run(stages, stage_count, &piece) : 0;
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

/* ---- MD5 of several transfers at once. ---- */

/* Below it, a fiber's stop costs more than lanes gain. */
#define GATHER_BYTES_MIN 1024u

struct gathered {
	struct list link;
	struct md5_part part;
	bool done;
};

/* The parts that the fibers of this thread's reactor have to hash. A fiber that has something lets
 * the others run first; when it runs again, all that have something, too, are in the list, and it
 * hashes for as many as there are lanes. */
static _Thread_local struct list gathering;

static void gathered_run(void)
{
	struct md5_part parts[MD5_LANES_MAX];
	uint32_t count = 0;
	struct list *link;

	while (count < MD5_LANES_MAX && (link = list_pop(&gathering))) {
		struct gathered *gathered = CONTAINER_OF(link, struct gathered, link);

		parts[count++] = gathered->part;
		gathered->done = true;
	}
	md5_update_parts(parts, count);
}

static void md5_gather(struct md5 *md5, const struct flow_piece *piece)
{
	struct gathered gathered = {.part = {md5, piece->data, piece->bytes}};

	if (piece->bytes < GATHER_BYTES_MIN || !fiber_self()) {
		md5_update(md5, piece->data, piece->bytes);
		return;
	}
	if (!gathering.next)
		list_init(&gathering);
	list_push_back(&gathering, &gathered.link);
	fiber_yield();
	if (gathered.done)
		return;
	/* It is among those that are hashed, also when earlier ones wait for their share's turn. */
	list_remove(&gathered.link);
	list_push_front(&gathering, &gathered.link);
	gathered_run();
}

static int checksum_piece(struct flow_stage *stage, const struct flow_piece *piece)
{
	struct flow_checksum *self = CONTAINER_OF(stage, struct flow_checksum, stage);

	if (self->checksum.kind == CHECKSUM_MD5)
		md5_gather(&self->checksum.as.md5, piece);
	else
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

struct slice flow_peer_name(struct slice peer, char room[FLOW_PEER_BYTES])
{
	const char *port = peer.len ? memrchr(peer.data, ':', peer.len) : NULL;
	struct slice host = port ? slice_to(peer, (size_t)(port - peer.data)) : peer;
	char text[INET6_ADDRSTRLEN];
	struct in6_addr address;

	if (host.len < 2 || host.data[0] != '[' ||
		slice_copy_str(slice_of(host.data + 1, host.len - 2), text, sizeof(text)) ||
		inet_pton(AF_INET6, text, &address) != 1)
		return host;
	memcpy(room, &address, FLOW_PEER_BYTES);
	return slice_of(room, FLOW_PEER_BYTES);
}

uint16_t flow_share_of_peer(const struct flow_budget *budget, struct slice peer)
{
	char room[FLOW_PEER_BYTES];

	return flow_share_of(budget, flow_peer_name(peer, room));
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
	if (!ret)
		ret = flow_places_open(core);
	if (ret) {
		flow_waiting_close(core);
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
	flow_places_close(core);
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
