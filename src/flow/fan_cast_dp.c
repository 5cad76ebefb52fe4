/* flow/fan_cast_dp.c: the sink of a multicast: cuts an object's bytes into datagrams, seals each
 * into a slot of its own and sends them at the group's pace. Data path. */
#include "flow/fan_out_priv.h"

#include <errno.h>

#define COMPLETION_NS (5 * NS_PER_S)

DEFINE_COUNTER(cast_datagrams, "nebulaio_multicast_datagrams_total", NULL,
	"Datagrams that were sent to groups.");
DEFINE_COUNTER(cast_bytes, "nebulaio_multicast_bytes_total", NULL, "Bytes of objects in those.");

struct cast_sink {
	struct flow_sink sink;
	struct fan_cast *cast;
	uint64_t offset, end; /* of the next datagram, of the part; in the object */
	uint32_t filled;      /* bytes of that datagram, in its slot */
	uint32_t slot;
	uint64_t batch_bytes;
};

/* Until the device has sent all; then until the next batch may go. */
static int batch_wait(struct cast_sink *self)
{
	struct fan_cast *cast = self->cast;
	uint64_t deadline_ns = clock_now_ns() + COMPLETION_NS, now_ns;
	struct rp_wc wcs[CAST_BATCH];
	int ret = 0;

	while (cast->flying && !ret) {
		int count = rp_cq_poll(cast->member.cq, wcs, CAST_BATCH);

		for (int i = 0; i < count; i++) {
			/* The group's datagrams may come back to their sender: no slot takes more
			 * than one. */
			if (wcs[i].opcode == RP_RECV)
				continue;
			cast->flying--;
			if (wcs[i].status != RP_WC_SUCCESS)
				ret = rp_status_errno(wcs[i].status);
		}
		if (count < 0)
			ret = count;
		else if (clock_now_ns() >= deadline_ns)
			ret = -ETIMEDOUT;
		else if (!count)
			fiber_yield();
	}
	now_ns = clock_now_ns();
	cast->due_ns = MAX(cast->due_ns, now_ns - MIN(now_ns, NS_PER_MS)) +
		       self->batch_bytes * NS_PER_S / cast->rate;
	self->batch_bytes = 0;
	self->slot = 0;
	if (!ret && cast->due_ns > now_ns)
		fiber_sleep_ns(cast->due_ns - now_ns);
	return ret;
}

/* src: the datagram's bytes. */
static int datagram_send(struct cast_sink *self, const void *src, uint32_t bytes)
{
	struct fan_cast *cast = self->cast;
	int ret = cast_seal(cast->aead, cast->grant.stream, self->offset, src, bytes,
		rp_member_out(&cast->member, self->slot));

	if (!ret)
		ret = rp_member_tell(&cast->member, self->slot, bytes + CAST_OVERHEAD);
	if (ret)
		return ret;
	cast->flying++;
	self->slot++;
	self->filled = 0;
	self->offset += bytes;
	self->batch_bytes += bytes;
	counter_add(&cast_datagrams, 1);
	counter_add(&cast_bytes, bytes);
	return self->slot == CAST_BATCH ? batch_wait(self) : 0;
}

/* Takes a datagram's bytes off them, or all. Only one that two pieces share is copied. */
static int bytes_take(struct cast_sink *self, struct slice *bytes)
{
	uint32_t whole = (uint32_t)MIN(self->end - self->offset, self->cast->grant.payload_bytes);
	uint32_t part = (uint32_t)MIN(bytes->len, whole - self->filled);
	const char *data = bytes->data;
	uint8_t *place;

	if (!part)
		return -EMSGSIZE; /* more than the part has */
	*bytes = slice_from(*bytes, part);
	if (part == whole)
		return datagram_send(self, data, whole);
	place = cast_payload(rp_member_out(&self->cast->member, self->slot));
	region_copy(place + self->filled, data, part, COPY_CAST);
	self->filled += part;
	return self->filled == whole ? datagram_send(self, place, whole) : 0;
}

static int cast_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct cast_sink *self = CONTAINER_OF(sink, struct cast_sink, sink);
	struct slice bytes = slice_of(piece->data, piece->bytes);
	int ret = 0;

	while (bytes.len && !ret)
		ret = bytes_take(self, &bytes);
	flow_piece_end(sink->core, piece, OWNER_APP);
	return ret;
}

static int cast_finish(struct flow_sink *sink, bool failed)
{
	struct cast_sink *self = CONTAINER_OF(sink, struct cast_sink, sink);
	int ret = batch_wait(self);

	if (!failed && !ret && self->offset != self->end)
		ret = -EPIPE;
	return ret;
}

static const struct flow_sink_ops CAST_SINK_OPS = {
	.name = "multicast", .push = cast_push, .finish = cast_finish};

int fan_cast_run(struct fan_cast *cast, struct flow_source *source, uint64_t offset, uint64_t end)
{
	struct cast_sink self = {.sink = {.magic = FLOW_SINK_MAGIC,
					 .ops = &CAST_SINK_OPS,
					 .core = source->core,
					 .deadline_ns = DEADLINE_NONE},
		.cast = cast,
		.offset = offset,
		.end = end};
	uint64_t moved = 0;

	return flow_run(source, NULL, 0, &self.sink, &moved);
}
