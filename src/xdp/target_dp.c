/* xdp/target_dp.c: a queue as a target of the region's base rings: it sends packets from frames.
 * The kernel reports a sent packet in the completion ring, in any order and without an event, so
 * the ring is read with every submission and, while packets are in flight, by a timer. Data
 * path. */
#include "xdp/xdp_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define FLIGHT_NONE UINT32_MAX

static void flight_end(struct xp_queue *queue, uint32_t idx, int32_t result)
{
	struct xp_sender *sender = &queue->sender;
	struct xp_flight *flight = &sender->flights[idx];
	const struct region_sqe sqe = {
		.opcode = flight->opcode,
		.flags = flight->flags,
		.target = flight->target,
		.user_data = flight->user_data,
		.submitted_ns = flight->submitted_ns,
	};
	const struct region_cqe cqe = region_sqe_done(&sqe, result);

	flight->busy = false;
	flight->next_free = sender->free;
	sender->free = idx;
	sender->in_flight--;
	region_complete(sender->ring, &cqe);
}

/* Takes the packets that the kernel has sent; returns how many. */
static uint32_t completions_reap(struct xp_queue *queue)
{
	struct xp_sender *sender = &queue->sender;
	const uint64_t *entries = queue->completion.entries;
	uint32_t count = ring_entries_ready(&queue->completion);

	for (uint32_t i = 0; i < count; i++) {
		uint64_t addr = entries[(queue->completion.own + i) & queue->completion.mask];
		uint32_t *slot = &sender->by_frame[addr >> FRAME_SHIFT];

		CHECK(addr < queue->port->bytes && *slot != 0);
		flight_end(queue, *slot - 1, 0);
		*slot = 0;
	}
	queue->counts.sent += count;
	queue->completion.own += count;
	__atomic_store_n(queue->completion.consumer, queue->completion.own, __ATOMIC_RELEASE);
	return count;
}

/* The interface is gone, so no completion will report these packets. */
static __attribute__((noinline, cold)) void flights_fail(struct xp_queue *queue, int error)
{
	struct xp_sender *sender = &queue->sender;

	for (uint64_t i = 0; i < queue->port->bytes >> FRAME_SHIFT; i++) {
		if (sender->by_frame[i])
			flight_end(queue, sender->by_frame[i] - 1, error);
		sender->by_frame[i] = 0;
	}
}

/* Asks the kernel to send: 32 packets a call where it copies. */
static void transmit(struct xp_queue *queue)
{
	for (uint32_t i = 0; i < XP_TX_KICKS_MAX && ring_wants_wakeup(&queue->tx); i++) {
		if (sendto(queue->fd, NULL, 0, MSG_DONTWAIT, NULL, 0) == 0 || errno != EAGAIN)
			return;
	}
}

static void sender_timer_set(struct xp_queue *queue)
{
	struct xp_sender *sender = &queue->sender;

	if (sender->in_flight && !sender->timer.armed)
		reactor_timer_set(sender->reactor, &sender->timer,
			reactor_now_ns(sender->reactor) + XP_TX_REAP_NS);
}

static void sender_timer(struct reactor_timer *timer, void *arg)
{
	struct xp_queue *queue = arg;

	(void)timer;
	if (completions_reap(queue) == 0 && queue->sender.in_flight) {
		if (xp_health(queue->port))
			flights_fail(queue, -ENETDOWN);
		else
			transmit(queue);
	}
	sender_timer_set(queue);
}

/* 0: put into the ring. -EAGAIN: the frame's earlier packet is still on its way. */
static int packet_put(struct xp_queue *queue, const struct region_sqe *sqe)
{
	struct xp_sender *sender = &queue->sender;
	uint64_t addr = sqe->addr - (uint64_t)(uintptr_t)queue->port->base;
	struct xdp_desc *entries = queue->tx.entries;
	struct xp_flight *flight = &sender->flights[sender->free];
	uint32_t idx = sender->free;

	if (sqe->opcode != REGION_OP_PACKET_TX)
		return -EOPNOTSUPP;
	if (queue->port->gone)
		return -ENETDOWN;
	if (addr + sqe->len > queue->port->bytes)
		return -EFAULT;
	if (sqe->len < XP_ETHERNET_BYTES || (addr & (FRAME_BYTES - 1)) + sqe->len > FRAME_BYTES)
		return -EMSGSIZE;
	if (sender->by_frame[addr >> FRAME_SHIFT])
		return -EAGAIN;
	sender->free = flight->next_free;
	*flight = (struct xp_flight){
		.user_data = sqe->user_data,
		.submitted_ns = sqe->submitted_ns,
		.target = sqe->target,
		.opcode = sqe->opcode,
		.flags = sqe->flags,
		.busy = true,
	};
	sender->by_frame[addr >> FRAME_SHIFT] = idx + 1;
	sender->in_flight++;
	entries[queue->tx.own++ & queue->tx.mask] =
		(struct xdp_desc){.addr = addr, .len = sqe->len};
	return 0;
}

static uint32_t target_submit(
	void *device, struct region_ring *ring, const struct region_sqe *entries, uint32_t count)
{
	struct xp_queue *queue = device;
	struct xp_sender *sender = &queue->sender;
	uint32_t taken;

	sender->ring = ring;
	completions_reap(queue);
	for (taken = 0;
		taken < count && sender->free != FLIGHT_NONE && ring_places_free(&queue->tx) > 0;
		taken++) {
		int ret = packet_put(queue, &entries[taken]);

		if (ret == -EAGAIN)
			break;
		if (ret) {
			struct region_cqe cqe = region_sqe_done(&entries[taken], ret);

			region_complete(ring, &cqe);
		}
	}
	__atomic_store_n(queue->tx.producer, queue->tx.own, __ATOMIC_RELEASE);
	return taken;
}

/* A socket takes no RDMA work: each entry is refused with its own completion. */
static uint32_t target_submit_wr(
	void *device, struct region_ring *ring, const struct region_wr *entries, uint32_t count)
{
	(void)device;
	for (uint32_t i = 0; i < count; i++) {
		struct region_cqe cqe = region_wr_done(&entries[i], -EOPNOTSUPP);

		region_complete(ring, &cqe);
	}
	return count;
}

static void target_bell(void *device, struct region_ring *ring)
{
	struct xp_queue *queue = device;

	(void)ring;
	transmit(queue);
	completions_reap(queue);
	sender_timer_set(queue);
}

static const struct region_device_ops TARGET_OPS = {
	.name = "xdp queue",
	.submit = target_submit,
	.submit_wr = target_submit_wr,
	.bell = target_bell,
};

int xp_target(struct xp_queue *queue, struct reactor *reactor, uint16_t *ret_target)
{
	struct xp_sender *sender = &queue->sender;
	const struct xp_port *port = queue->port;
	char label[32];
	int ret;

	CHECK(!sender->is_target);
	sender->flights = calloc(port->ring_entries, sizeof(*sender->flights));
	sender->by_frame = calloc(port->bytes >> FRAME_SHIFT, sizeof(*sender->by_frame));
	if (!sender->flights || !sender->by_frame) {
		ret = -ENOMEM;
		goto failed;
	}
	for (uint32_t i = 0; i < port->ring_entries; i++)
		sender->flights[i].next_free = i + 1 < port->ring_entries ? i + 1 : FLIGHT_NONE;
	snprintf(label, sizeof(label), "xdp %.15s queue %u", port->interface, queue->queue_id);
	ret = region_target_add(port->region, &TARGET_OPS, queue, label, &sender->target);
	if (ret)
		goto failed;
	sender->free = 0;
	sender->reactor = reactor;
	sender->timer = (struct reactor_timer){.fn = sender_timer, .arg = queue};
	sender->is_target = true;
	*ret_target = sender->target;
	return 0;
failed:
	free(sender->flights);
	free(sender->by_frame);
	*sender = (struct xp_sender){0};
	return ret;
}

void queue_target_close(struct xp_queue *queue)
{
	struct xp_sender *sender = &queue->sender;

	if (!sender->is_target)
		return;
	reactor_timer_cancel(sender->reactor, &sender->timer);
	flights_fail(queue, -ECANCELED);
	region_target_remove(queue->port->region, sender->target);
	free(sender->flights);
	free(sender->by_frame);
	*sender = (struct xp_sender){0};
}
