/* xdp/queue_dp.c: takes packets from a queue's receive ring for the caller, and puts frames back
 * into its fill ring. Data path. */
#include "xdp/xdp_priv.h"

#include <string.h>

/* A mark older than this is not a mark: old bytes of the frame look like one. */
#define MARK_AGE_NS_MAX (10 * NS_PER_S)

static inline uint32_t frame_of(const struct xp_port *port, uint64_t addr)
{
	uint64_t frame = addr >> FRAME_SHIFT;

	CHECK(frame < port->bytes >> FRAME_SHIFT);
	return (uint32_t)frame;
}

bool queue_readable(struct xp_queue *queue)
{
	return ring_entries_ready(&queue->rx) > 0;
}

/* Makes the kernel look into the card's ring. */
void queue_drive(struct xp_queue *queue)
{
	if (queue->port->busy_poll_us)
		recvfrom(queue->fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
}

/* Publishes what was put into the fill ring; wakes the driver when it asks for that. */
static void queue_publish(struct xp_queue *queue)
{
	__atomic_store_n(queue->fill.producer, queue->fill.own, __ATOMIC_RELEASE);
	if (__builtin_expect(ring_wants_wakeup(&queue->fill), 0))
		recvfrom(queue->fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
}

/* The frame is the kernel's from here on. */
static inline void fill_put(struct xp_queue *queue, struct region_span span)
{
	const struct xp_port *port = queue->port;
	uint64_t addr = (uint64_t)(span.data - port->base);
	uint64_t *entries = queue->fill.entries;

	port->spans[frame_of(port, addr)] = span;
	entries[queue->fill.own++ & queue->fill.mask] = addr;
	queue->in_kernel++;
}

void queue_refill(struct xp_queue *queue)
{
	const struct xp_port *port = queue->port;
	struct region_span span;

	while (queue->in_kernel < port->ring_entries && ring_places_free(&queue->fill) > 0) {
		if (region_lease_lasting(port->region, 1, OWNER_XDP, &span))
			break; /* tried again at the next call; the kernel counts lost packets */
		fill_put(queue, span);
	}
	queue_publish(queue);
}

void xp_recycle(struct xp_queue *queue, struct region_span span)
{
	const struct xp_port *port = queue->port;

	if (__builtin_expect(
		    queue->in_kernel >= port->ring_entries || !ring_places_free(&queue->fill), 0)) {
		region_give(port->region, span, OWNER_APP);
		return;
	}
	region_switch(port->region, span, OWNER_APP, OWNER_XDP);
	fill_put(queue, span);
	if (queue->fill.own % XP_PUBLISH_BATCH == 0)
		queue_publish(queue);
}

/* The times when the driver handed the packet in and when the card had it, if the filter marked
 * them. */
static inline void packet_time(struct xp_queue *queue, struct xp_packet *packet, uint64_t now_ns)
{
	struct filter_mark mark;

	memcpy(&mark, packet->data - sizeof(mark), sizeof(mark));
	if (__builtin_expect(mark.magic == FILTER_MARK_MAGIC && mark.time_ns <= now_ns &&
				     now_ns - mark.time_ns < MARK_AGE_NS_MAX,
		    1)) {
		packet->received_ns = mark.time_ns;
		packet->hardware_ns = mark.hardware_ns;
		queue->counts.stamped += mark.hardware_ns != 0;
		return;
	}
	queue->counts.unmarked++;
}

uint32_t xp_receive(struct xp_queue *queue, struct xp_packet *packets, uint32_t max)
{
	const struct xp_port *port = queue->port;
	const struct xdp_desc *entries = queue->rx.entries;
	uint32_t count = MIN(ring_entries_ready(&queue->rx), max);
	uint64_t now_ns;

	if (count == 0 && port->busy_poll_us) {
		queue_drive(queue);
		count = MIN(ring_entries_ready(&queue->rx), max);
	}
	now_ns = count ? clock_now_ns() : 0;

	for (uint32_t i = 0; i < count; i++) {
		const struct xdp_desc *entry = &entries[(queue->rx.own + i) & queue->rx.mask];
		struct region_span *span = &port->spans[frame_of(port, entry->addr)];
		struct xp_packet *packet = &packets[i];

		CHECK(span->data != NULL);
		CHECK((entry->addr & (FRAME_BYTES - 1)) + entry->len <= FRAME_BYTES);
		packet->span = *span;
		span->data = NULL;
		region_switch(port->region, packet->span, OWNER_XDP, OWNER_APP);
		packet->data = port->base + entry->addr;
		packet->bytes = entry->len;
		packet->more = (entry->options & XDP_PKT_CONTD) != 0;
		/* In a packet of several frames only the first is marked. */
		packet->received_ns = now_ns;
		packet->hardware_ns = 0;
		if (!queue->inside_packet)
			packet_time(queue, packet, now_ns);
		queue->inside_packet = packet->more;
		queue->counts.received_bytes += entry->len;
	}
	queue->counts.received += count;
	queue->in_kernel -= count;
	queue->rx.own += count;
	__atomic_store_n(queue->rx.consumer, queue->rx.own, __ATOMIC_RELEASE);
	if (count == 0 || queue->in_kernel < port->ring_entries / 2)
		queue_refill(queue);
	return count;
}
