/* flow/xdp_ends.c: a capture: packets of an AF_XDP port as bodies. It takes received packets in
 * batches; a body gathers them into chunks (pcapng) or passes the frames on (payloads). */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow/ingest.h"

#define BATCH		 64u
#define PARTS_MAX	 20u /* frames of one packet: 64 KiB */
#define CHUNK_FRAMES	 (FLOW_PIECE_BYTES_MAX / FRAME_BYTES)
#define DRAIN_NS	 (5 * NS_PER_MS) /* for packets that the driver still holds when it ends */
#define CLOCK_REFRESH_NS NS_PER_S
#define CLOCK_LOOKS	 8u
#define CLOCK_LOOK_NS	 500u /* a look this fast is exact enough */
#define CLOCK_STEP_NS	 2000u
#define CLOCK_TRUST_NS	 (60 * NS_PER_S)
/* While packets come, the rings are polled once a timer tick instead of waking for packets: the
 * rings hold the packets meanwhile, and a wake for every few packets would cost more than the
 * packets. */
#define MODERATE_NS	  (1 * NS_PER_MS)
#define MODERATE_RING_MIN 4096u		   /* shorter rings would overflow meanwhile */
#define MODERATE_AFTER_NS (10 * NS_PER_MS) /* without a packet: sleep until one comes */

struct flow_capture {
	struct flow_core *core;
	struct xp_port *port;
	struct flow_capture_opts opts;
	char interface[64];
	struct xp_packet batch[BATCH];
	uint32_t batch_wire_bytes[BATCH]; /* as they came, before the transforms */
	uint32_t batch_good;		  /* the transforms failed at this packet; or the count */
	bool batch_goes_on;		  /* the last packet of the last batch has more frames */
	uint32_t batch_idx, batch_count;
	struct xp_queue *batch_queue;
	uint32_t queue_next;
	struct xp_packet parts[PARTS_MAX]; /* of the current packet */
	uint32_t part_count;
	uint32_t wire_bytes; /* of the first part */
	struct fiber *waiter;
	uint64_t packet_ns; /* arrival of the last batch */
	uint64_t stop_ns;   /* time that the stop was noticed; 0: not yet */
	bool stopping;	    /* the filter lets everything pass */
	bool ended;	    /* nothing more will come */
	bool closed;	    /* and the rest of the batch is dropped */
	int error;
	uint64_t real_offset_ns, real_offset_at_ns; /* real time less monotonic */
	uint32_t bodies_open;
	struct flow_capture_stats stats;
};

struct flow_xdp_source {
	struct flow_source source;
	struct flow_capture *capture;
	bool ended;
	uint64_t offset; /* of the next piece */
	uint64_t start_ns;
	uint64_t packets;
	uint64_t lost_before;
	/* pcapng: the current chunk, and the overflow of a packet at its end. */
	struct region_span chunk, spill;
	uint32_t used;	    /* of both */
	uint64_t oldest_ns; /* arrival of the first packet that starts in the chunk; 0: none */
};

/* ---- Taking packets. ---- */

static uint64_t lost_so_far(const struct flow_capture *capture)
{
	struct xp_stats stats;

	xp_stats(capture->port, &stats);
	return stats.dropped + stats.ring_full;
}

void flow_capture_stop(struct flow_capture *capture)
{
	if (!capture->stopping && xp_rules_set(capture->port, NULL, 0))
		log_warn("flow", "cannot stop the packet filter");
	capture->stopping = true;
	if (capture->waiter)
		fiber_wake(capture->waiter);
}

/* Changes the packets of the batch that lie in one frame; packet_take() refuses those of several
 * frames. After an error the batch ends before the packet that failed. On the helper thread. */
static void batch_transform(void *arg)
{
	struct flow_capture *capture = arg;

	for (uint32_t i = 0; i < capture->batch_count; i++) {
		struct xp_packet *packet = &capture->batch[i];
		const uint8_t *end = packet->span.data + region_span_bytes(packet->span);
		struct flow_run run = {.data = packet->data,
			.to = packet->bytes,
			.capacity = (size_t)(end - packet->data)};
		bool part = packet->more || capture->batch_goes_on;

		capture->batch_wire_bytes[i] = packet->bytes;
		capture->batch_goes_on = packet->more;
		if (part)
			continue;
		capture->error = flow_transforms_piece(capture->opts.transforms, &run);
		if (capture->error) {
			capture->batch_good = i;
			return;
		}
		packet->bytes = (uint32_t)run.to;
	}
	capture->batch_good = capture->batch_count;
}

/* Takes the packets out of the batch that are not stored. */
static void batch_sift(struct flow_capture *capture)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < capture->batch_count; i++) {
		struct xp_packet packet = capture->batch[i];

		if (i < capture->batch_good && packet.bytes) {
			capture->batch_wire_bytes[kept] = capture->batch_wire_bytes[i];
			capture->batch[kept++] = packet;
			continue;
		}
		capture->stats.removed += i < capture->batch_good;
		xp_recycle(capture->batch_queue, packet.span);
	}
	capture->batch_count = kept;
}

/* Takes packets of the queue into the empty batch: how many came, of which transforms may have left
 * fewer. */
static uint32_t batch_fill(struct flow_capture *capture, struct xp_queue *queue)
{
	const uint32_t came = xp_receive(queue, capture->batch, BATCH);

	capture->batch_idx = 0;
	capture->batch_count = came;
	capture->batch_queue = queue;
	if (!came || !capture->opts.transforms)
		return came;
	fiber_offload(batch_transform, capture);
	batch_sift(capture);
	if (capture->error) {
		capture->ended = true;
		flow_capture_stop(capture);
	}
	return came;
}

static bool batch_receive(struct flow_capture *capture)
{
	for (uint32_t i = 0; i < xp_queue_count(capture->port); i++) {
		struct xp_queue *queue = xp_queue(capture->port, capture->queue_next);

		capture->queue_next = (capture->queue_next + 1) % xp_queue_count(capture->port);
		if (batch_fill(capture, queue)) {
			capture->packet_ns = clock_now_ns();
			return true;
		}
	}
	return false;
}

static int port_wait(struct flow_capture *capture, uint64_t deadline_ns)
{
	uint64_t now_ns = clock_now_ns();
	int ret;

	capture->waiter = fiber_self();
	if (xp_ring_entries(capture->port) >= MODERATE_RING_MIN &&
		now_ns - capture->packet_ns < MODERATE_AFTER_NS &&
		now_ns + MODERATE_NS < deadline_ns) {
		fiber_park_until(now_ns + MODERATE_NS);
		capture->waiter = NULL;
		return -EINTR;
	}
	ret = xp_wait(capture->port, capture->core->reactor, deadline_ns);
	capture->waiter = NULL;
	return ret;
}

/* True when the batch has a packet; false at the deadline, or when no more packets will come.
 */
static bool batch_wait(struct flow_capture *capture, uint64_t deadline_ns)
{
	while (capture->batch_idx == capture->batch_count && !capture->ended) {
		bool stopping = capture->stopping;
		bool came = batch_receive(capture);
		uint64_t wait_ns;
		int ret;

		if (capture->batch_count || capture->ended)
			break;
		if (clock_now_ns() >= capture->opts.deadline_ns)
			flow_capture_stop(capture);
		/* Transforms dropped the batch: the next one may wait already. */
		if (came && clock_now_ns() < deadline_ns)
			continue;
		if (stopping && !capture->stop_ns)
			capture->stop_ns = clock_now_ns();
		wait_ns = stopping ? MAX(capture->stop_ns, capture->packet_ns) + DRAIN_NS
				   : MIN(deadline_ns, capture->opts.deadline_ns);
		ret = port_wait(capture, wait_ns);
		if (ret == -ENODEV)
			capture->error = ret;
		if (ret == -ENODEV || (stopping && clock_now_ns() >= wait_ns))
			capture->ended |= !batch_receive(capture);
		if (ret == -ETIMEDOUT && clock_now_ns() >= deadline_ns)
			break;
	}
	return capture->batch_idx < capture->batch_count;
}

static void parts_recycle(struct flow_capture *capture)
{
	for (uint32_t i = 0; i < capture->part_count; i++)
		xp_recycle(capture->batch_queue, capture->parts[i].span);
	capture->part_count = 0;
}

/* The next packet of the batch with all its frames; the kernel publishes those at once. False: the
 * packet was incomplete, and is dropped. */
static bool packet_take(struct flow_capture *capture)
{
	bool more = true;

	capture->part_count = 0;
	while (more) {
		if (capture->batch_idx == capture->batch_count) {
			batch_fill(capture, capture->batch_queue);
			if (!capture->batch_count)
				break;
		}
		if (capture->part_count == PARTS_MAX)
			xp_recycle(
				capture->batch_queue, capture->parts[--capture->part_count].span);
		if (!capture->part_count)
			capture->wire_bytes = capture->batch_wire_bytes[capture->batch_idx];
		capture->parts[capture->part_count] = capture->batch[capture->batch_idx++];
		more = capture->parts[capture->part_count++].more;
	}
	if (!more && capture->part_count < PARTS_MAX &&
		(capture->part_count == 1 || !capture->opts.transforms))
		return true;
	parts_recycle(capture);
	capture->stats.unfit++;
	return false;
}

int flow_capture_wait(struct flow_capture *capture)
{
	if (capture->closed)
		return 0;
	if (batch_wait(capture, DEADLINE_NONE))
		return 1;
	return capture->error;
}

/* ---- The end of a body. ---- */

static void body_end(struct flow_xdp_source *self)
{
	struct flow_capture *capture = self->capture;

	self->ended = true;
	capture->bodies_open--;
	if (capture->opts.body_ended)
		capture->opts.body_ended(capture->opts.arg);
}

/* After each packet, with its time. */
static bool body_is_over(struct flow_xdp_source *self, uint64_t body_bytes, uint64_t now_ns)
{
	struct flow_capture *capture = self->capture;
	const struct flow_capture_opts *opts = &capture->opts;

	if (opts->packets_max && capture->stats.packets >= opts->packets_max) {
		flow_capture_stop(capture);
		capture->closed = true;
		return true;
	}
	if (now_ns >= opts->deadline_ns)
		flow_capture_stop(capture);
	return (opts->roll_bytes && body_bytes >= opts->roll_bytes) ||
	       (opts->roll_ns && now_ns - self->start_ns >= opts->roll_ns);
}

static uint64_t body_deadline(const struct flow_xdp_source *self)
{
	const struct flow_capture_opts *opts = &self->capture->opts;

	return opts->roll_ns ? self->start_ns + opts->roll_ns : DEADLINE_NONE;
}

/* ---- pcapng bodies. ---- */

static uint8_t *chunk_at(const struct flow_xdp_source *self, uint32_t *ret_room)
{
	if (self->used < FLOW_PIECE_BYTES_MAX) {
		*ret_room = FLOW_PIECE_BYTES_MAX - self->used;
		return self->chunk.data + self->used;
	}
	*ret_room = 2 * FLOW_PIECE_BYTES_MAX - self->used;
	return self->spill.data + (self->used - FLOW_PIECE_BYTES_MAX);
}

/* Writes headers, which are generated here and are not payload. */
static void put_made(struct flow_xdp_source *self, const uint8_t *data, uint32_t bytes)
{
	while (bytes) {
		uint32_t room;
		uint8_t *at = chunk_at(self, &room);
		uint32_t n = MIN(room, bytes);

		memcpy(at, data, n);
		self->used += n;
		data += n;
		bytes -= n;
	}
}

static void put_gathered(struct flow_xdp_source *self, const uint8_t *data, uint32_t bytes)
{
	while (bytes) {
		uint32_t room;
		uint8_t *at = chunk_at(self, &room);
		uint32_t n = MIN(room, bytes);

		region_copy(at, data, n, COPY_GATHER);
		self->used += n;
		data += n;
		bytes -= n;
	}
}

/* The difference between the real and the monotonic clock, from the fastest of a few readings of
 * both: a reading interrupted between the two clocks includes the interruption. */
static uint64_t clock_offset(uint64_t *ret_at_ns)
{
	uint64_t best_ns = UINT64_MAX, offset_ns = 0;

	for (uint32_t i = 0; i < CLOCK_LOOKS && best_ns > CLOCK_LOOK_NS; i++) {
		uint64_t before_ns = clock_now_ns(), real_ns = clock_real_ns();
		uint64_t after_ns = clock_now_ns();

		if (after_ns - before_ns >= best_ns)
			continue;
		best_ns = after_ns - before_ns;
		offset_ns = real_ns - (before_ns + best_ns / 2);
		*ret_at_ns = after_ns;
	}
	return offset_ns;
}

/* The filter marks packets with the monotonic clock; bodies have the real time. The normal
 * difference between two readings must not let the time go back. */
static uint64_t real_time(struct flow_capture *capture, uint64_t time_ns)
{
	uint64_t offset_ns;

	/* A packet can be older than the last reading. */
	if ((int64_t)(time_ns - capture->real_offset_at_ns) > (int64_t)CLOCK_REFRESH_NS) {
		offset_ns = clock_offset(&capture->real_offset_at_ns);
		if (capture->real_offset_ns - offset_ns + CLOCK_STEP_NS > 2 * CLOCK_STEP_NS)
			capture->real_offset_ns = offset_ns;
	}
	return time_ns + capture->real_offset_ns;
}

/* The card's time, if it is plausible: some cards use TAI, or an unset clock. */
static uint64_t packet_time(struct flow_capture *capture, const struct xp_packet *packet)
{
	uint64_t real_ns = real_time(capture, packet->received_ns);

	if (!packet->hardware_ns || capture->opts.kernel_time ||
		real_ns + CLOCK_TRUST_NS - packet->hardware_ns > 2 * CLOCK_TRUST_NS)
		return real_ns;
	capture->stats.stamped++;
	return packet->hardware_ns;
}

static void put_packet(struct flow_xdp_source *self)
{
	struct flow_capture *capture = self->capture;
	uint64_t real_ns = packet_time(capture, &capture->parts[0]);
	uint32_t bytes = 0;
	uint8_t head[28], tail[8];

	for (uint32_t i = 0; i < capture->part_count; i++)
		bytes += capture->parts[i].bytes;
	pcapng_packet_head(
		head, real_ns, bytes, capture->opts.transforms ? capture->wire_bytes : bytes);
	put_made(self, head, sizeof(head));
	for (uint32_t i = 0; i < capture->part_count; i++)
		put_gathered(self, capture->parts[i].data, capture->parts[i].bytes);
	put_made(self, tail, pcapng_packet_tail(tail, bytes));
	self->packets++;
	capture->stats.packets++;
	capture->stats.packet_bytes += bytes;
}

static void put_statistics(struct flow_xdp_source *self)
{
	struct flow_capture *capture = self->capture;
	uint64_t now_ns = clock_now_ns();
	uint8_t block[PCAPNG_STATISTICS_BYTES];
	const struct pcapng_statistics statistics = {
		.start_ns = real_time(capture, self->start_ns),
		.end_ns = real_time(capture, now_ns),
		.received = self->packets,
		.dropped = lost_so_far(capture) - self->lost_before,
	};

	pcapng_statistics(block, &statistics);
	put_made(self, block, sizeof(block));
}

static int chunks_lease(struct flow_xdp_source *self)
{
	const struct flow_want want = {.frame_count = CHUNK_FRAMES,
		.owner = OWNER_APP,
		.begun = true,
		.deadline_ns = DEADLINE_NONE};
	struct flow_core *core = self->source.core;
	int ret = 0;

	if (!self->chunk.data)
		ret = flow_lease(core, &want, &self->chunk);
	if (!ret && !self->spill.data)
		ret = flow_lease(core, &want, &self->spill);
	return ret;
}

/* Copies packets into the chunk until it is full or the body is over. */
static int chunk_fill(struct flow_xdp_source *self)
{
	struct flow_capture *capture = self->capture;
	int ret = chunks_lease(self);

	if (ret)
		return ret;
	if (self->offset == 0 && self->used == 0) {
		uint8_t head[PCAPNG_HEAD_BYTES_MAX];

		put_made(self, head, pcapng_head(head, capture->interface));
	}
	while (self->used < FLOW_PIECE_BYTES_MAX) {
		bool over;

		if (batch_wait(capture, body_deadline(self))) {
			uint64_t time_ns = capture->batch[capture->batch_idx].received_ns;

			if (!packet_take(capture))
				continue;
			if (!self->oldest_ns)
				self->oldest_ns = time_ns;
			put_packet(self);
			parts_recycle(capture);
			over = body_is_over(self, self->offset + self->used, time_ns);
		} else {
			over = true;
		}
		if (over) {
			put_statistics(self);
			body_end(self);
			break;
		}
	}
	return 0;
}

static int pcapng_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct flow_xdp_source *self = CONTAINER_OF(source, struct flow_xdp_source, source);

	CHECK(bytes_max >= FLOW_PIECE_BYTES_MAX);
	if (!self->ended && self->used < FLOW_PIECE_BYTES_MAX) {
		int ret = chunk_fill(self);

		if (ret)
			return ret;
	}
	if (self->used == 0)
		return 0;
	*ret_piece = (struct flow_piece){
		.span = self->chunk,
		.data = self->chunk.data,
		.bytes = MIN(self->used, FLOW_PIECE_BYTES_MAX),
		.offset = self->offset,
		.hold = FLOW_HOLD_LEASE,
	};
	self->source.arrived_ns = self->oldest_ns;
	self->oldest_ns = 0;
	self->used -= ret_piece->bytes;
	self->offset += ret_piece->bytes;
	self->capture->stats.body_bytes += ret_piece->bytes;
	self->chunk = self->spill;
	self->spill = (struct region_span){0};
	return 1;
}

/* ---- Bodies of payloads. ---- */

/* The payload of a whole UDP datagram; 0 bytes: not one. */
static uint32_t payload_find(const struct xp_packet *packet, uint8_t **ret_data)
{
	uint8_t *at = packet->data;
	const uint8_t *end = at + packet->bytes;
	uint32_t type, head_bytes, udp_bytes;

	at += XP_ETHERNET_BYTES;
	while (at + 4 <= end && (at[-2] << 8 | at[-1]) == 0x8100)
		at += 4;
	if (at + 28 > end)
		return 0;
	type = (uint32_t)(at[-2] << 8 | at[-1]);
	if (type == 0x0800 && at[9] == IPPROTO_UDP && ((at[6] << 8 | at[7]) & 0x3fff) == 0)
		head_bytes = (at[0] & 15) * 4u;
	else if (type == 0x86dd && at[6] == IPPROTO_UDP)
		head_bytes = 40;
	else
		return 0;
	if (head_bytes < 20 || at + head_bytes + 8 > end)
		return 0;
	at += head_bytes;
	udp_bytes = (uint32_t)(at[4] << 8 | at[5]);
	if (udp_bytes < 8 || at + udp_bytes > end)
		return 0;
	*ret_data = at + 8;
	return udp_bytes - 8;
}

static int payload_next(
	struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct flow_xdp_source *self = CONTAINER_OF(source, struct flow_xdp_source, source);
	struct flow_capture *capture = self->capture;
	const uint32_t unit = capture->opts.payload_unit;

	(void)bytes_max;
	while (!self->ended && batch_wait(capture, body_deadline(self))) {
		struct xp_packet *packet = &capture->parts[0];
		uint32_t bytes = 0;
		uint8_t *data = NULL;

		if (!packet_take(capture))
			continue;
		if (capture->part_count == 1)
			bytes = payload_find(packet, &data);
		if (bytes == 0 || bytes % unit ||
			(unit > 1 && (uintptr_t)data % XP_PAYLOAD_OFFSET)) {
			capture->stats.unfit++;
			parts_recycle(capture);
			continue;
		}
		*ret_piece = (struct flow_piece){.span = packet->span,
			.data = data,
			.bytes = bytes,
			.offset = self->offset,
			.hold = FLOW_HOLD_LEASE};
		source->arrived_ns = packet->received_ns;
		self->offset += bytes;
		self->packets++;
		capture->stats.packets++;
		capture->stats.packet_bytes += packet->bytes;
		capture->stats.body_bytes += bytes;
		if (body_is_over(self, self->offset, packet->received_ns))
			body_end(self);
		return 1;
	}
	if (!self->ended)
		body_end(self);
	return 0;
}

/* ---- Lives. ---- */

static void source_close(struct flow_source *source)
{
	struct flow_xdp_source *self = CONTAINER_OF(source, struct flow_xdp_source, source);

	if (self->chunk.data)
		region_give(source->core->region, self->chunk, OWNER_APP);
	if (self->spill.data)
		region_give(source->core->region, self->spill, OWNER_APP);
	if (!self->ended) {
		/* The sink failed, and the next one would, too. */
		flow_capture_stop(self->capture);
		self->capture->closed = true;
		body_end(self);
	}
	free(self);
}

static const struct flow_source_ops PCAPNG_OPS = {
	.name = "pcapng",
	.next = pcapng_next,
	.close = source_close,
};
static const struct flow_source_ops PAYLOAD_OPS = {
	.name = "payloads",
	.next = payload_next,
	.close = source_close,
};

int flow_capture_source_open(struct flow_capture *capture, struct flow_source **ret_source)
{
	struct flow_xdp_source *self;

	CHECK(capture->bodies_open == 0 && capture->batch_idx < capture->batch_count);
	self = calloc(1, sizeof(*self));
	if (!self)
		return -ENOMEM;
	self->source = (struct flow_source){
		.magic = FLOW_SOURCE_MAGIC,
		.ops = capture->opts.form == FLOW_CAPTURE_PCAPNG ? &PCAPNG_OPS : &PAYLOAD_OPS,
		.core = capture->core,
		.bytes_total = UINT64_MAX,
		.deadline_ns = DEADLINE_NONE,
	};
	self->capture = capture;
	self->start_ns = capture->batch[capture->batch_idx].received_ns;
	self->lost_before = lost_so_far(capture);
	capture->bodies_open++;
	*ret_source = &self->source;
	return 0;
}

int flow_capture_open(struct flow_core *core, struct xp_port *port,
	const struct flow_capture_opts *opts, struct flow_capture **ret_capture)
{
	struct flow_capture *capture = calloc(1, sizeof(*capture));

	if (!capture)
		return -ENOMEM;
	capture->core = core;
	capture->port = port;
	capture->opts = *opts;
	snprintf(capture->interface, sizeof(capture->interface), "%s", opts->interface);
	*ret_capture = capture;
	return 0;
}

void flow_capture_close(struct flow_capture *capture)
{
	if (!capture)
		return;
	CHECK(capture->bodies_open == 0);
	for (; capture->batch_idx < capture->batch_count; capture->batch_idx++)
		xp_recycle(capture->batch_queue, capture->batch[capture->batch_idx].span);
	free(capture);
}

void flow_capture_stats(const struct flow_capture *capture, struct flow_capture_stats *ret_stats)
{
	*ret_stats = capture->stats;
	ret_stats->lost = lost_so_far(capture);
}
