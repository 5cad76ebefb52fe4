/* flow/datagram_dp.c: moves datagram streams: pieces are cut into datagrams and sent in batches;
 * received payloads are pieces of their own frames, and gaps in their numbers are counted. Data
 * path. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "flow/datagram_priv.h"

static struct region_sge sge_of(const struct flow_datagram *self, const void *data, uint32_t bytes)
{
	int arena = region_arena_of(self->core->region, data, bytes);

	CHECK(arena >= 0);
	return (struct region_sge){
		(uint64_t)(uintptr_t)data, bytes, self->fabric->arenas.lkeys[(uint32_t)arena]};
}

/* ---- The sender. ---- */

/* Writes what stands before the payload into a slot; returns its length. */
static uint32_t head_write(
	const struct flow_datagram *self, uint8_t *slot, const struct datagram_head *head)
{
	const struct flow_datagram_opts *opts = &self->opts;
	uint8_t *at = slot;

	if (opts->raw) {
		memcpy(at, opts->mac, 6);
		memcpy(at + 6, self->own_mac, 6);
		at += 12;
		if (opts->vlan) {
			*at++ = 0x81;
			*at++ = 0x00;
			*at++ = (uint8_t)(opts->priority << 5 | opts->vlan >> 8);
			*at++ = (uint8_t)opts->vlan;
		}
		*at++ = (uint8_t)(opts->ether_type >> 8);
		*at++ = (uint8_t)opts->ether_type;
	}
	memcpy(at, head, sizeof(*head));
	return (uint32_t)(at - slot + sizeof(*head));
}

static void datagram_send(struct flow_datagram *self, struct flow_io *io, uint32_t slot_idx,
	const struct datagram_head *head, struct slice payload)
{
	uint8_t *slot = self->heads.data + slot_idx * DATAGRAM_SEND_SLOT;
	struct region_wr wr = {.opcode = REGION_OP_SEND, .target = self->target, .sge_count = 1};

	wr.sge[0] = sge_of(self, slot, head_write(self, slot, head));
	if (payload.len)
		wr.sge[wr.sge_count++] = sge_of(self, payload.data, (uint32_t)payload.len);
	flow_io_start_wr(self->core, io, &wr);
}

/* How many datagrams go at once: with a rate, those of a millisecond. */
static uint32_t batch_of(const struct flow_datagram *self)
{
	uint64_t count = self->opts.rate / 1000 / self->payload_bytes;

	return self->opts.rate ? (uint32_t)MIN(MAX(count, 1), DATAGRAM_BATCH) : DATAGRAM_BATCH;
}

static void rate_wait(const struct flow_datagram *self)
{
	uint64_t now_ns = clock_now_ns();

	if (self->opts.rate && now_ns < self->due_ns)
		fiber_sleep_ns(self->due_ns - now_ns);
}

/* A sender that was late makes up for a millisecond at most. */
static void rate_spend(struct flow_datagram *self, uint64_t bytes)
{
	uint64_t earliest_ns = clock_now_ns() - NS_PER_MS;

	if (self->opts.rate)
		self->due_ns = MAX(self->due_ns, earliest_ns) + bytes * NS_PER_S / self->opts.rate;
}

/* Sends a batch of the bytes and takes it off them. */
static int batch_send(struct flow_datagram *self, struct slice *bytes)
{
	const uint32_t count_max = batch_of(self);
	struct flow_io io = {0};
	uint64_t sent = 0;
	int ret;

	rate_wait(self);
	for (uint32_t i = 0; i < count_max && bytes->len; i++) {
		const struct slice payload = slice_to(*bytes, MIN(bytes->len, self->payload_bytes));
		const struct datagram_head head = {.magic = DATAGRAM_MAGIC,
			.version = DATAGRAM_VERSION,
			.kind = DATAGRAM_DATA,
			.stream = self->stream,
			.number = self->stats.datagrams,
			.bytes = self->stats.bytes};

		datagram_send(self, &io, i, &head, payload);
		*bytes = slice_from(*bytes, payload.len);
		self->stats.datagrams++;
		self->stats.bytes += payload.len;
		sent += payload.len;
	}
	ret = flow_io_wait(&io);
	rate_spend(self, sent);
	return ret;
}

static int datagram_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct flow_datagram *self = CONTAINER_OF(sink, struct flow_datagram, sink);
	struct slice bytes = {(const char *)piece->data, piece->bytes};
	int ret = self->error;

	if (!ret && piece->hold == FLOW_HOLD_BORROWED)
		ret = -EFAULT;
	if (ret) {
		flow_piece_end(self->core, piece, OWNER_APP);
		return ret;
	}
	self->crc = crc64nvme_update(self->crc, piece->data, piece->bytes);
	if (piece->hold == FLOW_HOLD_LEASE)
		region_switch(self->core->region, piece->span, OWNER_APP, OWNER_RDMA);
	while (bytes.len && !ret)
		ret = batch_send(self, &bytes);
	flow_piece_end(self->core, piece, OWNER_RDMA);
	if (ret)
		datagram_fail(self, ret, "a datagram could not be sent");
	return ret;
}

/* Nobody acknowledges the end, so it is said several times. */
static int datagram_finish(struct flow_sink *sink, bool failed)
{
	struct flow_datagram *self = CONTAINER_OF(sink, struct flow_datagram, sink);
	const struct datagram_head head = {.magic = DATAGRAM_MAGIC,
		.version = DATAGRAM_VERSION,
		.kind = failed ? DATAGRAM_FAILED : DATAGRAM_END,
		.stream = self->stream,
		.number = self->stats.datagrams,
		.bytes = self->stats.bytes,
		.crc = failed ? 0 : self->crc};
	int ret = self->error;

	for (uint32_t i = 0; i < DATAGRAM_END_REPEATS && !ret; i++) {
		struct flow_io io = {0};

		fiber_sleep_ns(DATAGRAM_END_GAP_NS << i);
		datagram_send(self, &io, 0, &head, (struct slice){0});
		ret = flow_io_wait(&io);
	}
	return ret;
}

const struct flow_sink_ops DATAGRAM_SINK_OPS = {
	.name = "datagrams", .push = datagram_push, .finish = datagram_finish};

struct flow_sink *flow_datagram_sink(struct flow_datagram *self)
{
	CHECK(self->opts.sends);
	return &self->sink;
}

/* ---- The receiver. ---- */

static void receive_done(struct flow_io *io)
{
	struct datagram_receive *receive = CONTAINER_OF(io, struct datagram_receive, io);
	struct flow_datagram *self = receive->self;

	if (io->error) {
		if (self->qp)
			datagram_fail(self, -EIO, "a receive failed");
		return;
	}
	receive->bytes = (uint32_t)io->result;
	receive->arrived = true;
	receive->arrived_ns = clock_now_ns();
	if (self->waiter)
		fiber_wake(self->waiter);
}

static uint8_t *slot_of(const struct flow_datagram *self, uint32_t number)
{
	return self->heads.data + number % DATAGRAM_WINDOW * DATAGRAM_RECEIVE_SLOT;
}

static int receive_post(struct flow_datagram *self, bool wait)
{
	struct datagram_receive *receive = &self->receives[self->posted % DATAGRAM_WINDOW];
	struct region_wr wr = {.opcode = REGION_OP_RECV, .target = self->target, .sge_count = 2};
	const struct flow_want want = {
		.frame_count = 1, .owner = OWNER_RDMA, .begun = true, .deadline_ns = DEADLINE_NONE};
	int ret = 0;

	if (!receive->span.data)
		ret = wait ? flow_lease(self->core, &want, &receive->span)
			   : flow_lease_spare(self->core, &want, &receive->span);
	if (ret)
		return wait && ret == -ENOBUFS ? -ETIMEDOUT : ret;
	receive->self = self;
	receive->io = (struct flow_io){.done = receive_done};
	receive->arrived = false;
	wr.sge[0] = sge_of(self, slot_of(self, self->posted),
		self->front + (uint32_t)sizeof(struct datagram_head));
	wr.sge[1] = sge_of(self, receive->span.data, FRAME_BYTES);
	ret = flow_io_try_wr(self->core, &receive->io, &wr);
	if (!ret)
		self->posted++;
	return ret;
}

static int receives_fill(struct flow_datagram *self, bool wait)
{
	int ret = 0;

	while (self->posted - self->taken < DATAGRAM_WINDOW && !ret)
		ret = receive_post(self, wait && self->posted == self->taken);
	return ret == -ENOBUFS || ret == -EAGAIN ? 0 : ret;
}

/* Whether the stream, of so many datagrams, is good as far as losses go. */
static bool losses_judge(struct flow_datagram *self, uint64_t number)
{
	char why[LINK_WHY_TEXT_BYTES];

	if (!self->stats.lost || self->opts.accept_loss)
		return true;
	snprintf(why, sizeof(why), "%llu of %llu datagrams were lost",
		(unsigned long long)self->stats.lost, (unsigned long long)number);
	datagram_fail(self, -EBADMSG, why);
	return false;
}

static void end_take(struct flow_datagram *self, const struct datagram_head *head)
{
	self->ended = true;
	if (head->kind == DATAGRAM_FAILED) {
		datagram_fail(self, -EPIPE, "the sender failed");
		return;
	}
	if (head->number < self->number) {
		datagram_fail(self, -EPROTO, "the sender's end lies before its datagrams");
		return;
	}
	self->stats.lost += head->number - self->number;
	if (losses_judge(self, head->number) && !self->stats.lost &&
		(head->bytes != self->stats.bytes || head->crc != self->crc))
		datagram_fail(self, -EBADMSG, "the totals or checksums differ");
}

/* Nothing more has arrived, and the stream ends here. */
static int cut_end(struct flow_datagram *self)
{
	if (!self->stats.datagrams)
		return -ECANCELED;
	self->ended = self->stats.cut = true;
	losses_judge(self, self->number);
	return 0;
}

/* Whether the head is of our stream; the first datagram chooses it, but no end of a stream whose
 * datagrams nobody saw. */
static bool stream_fits(struct flow_datagram *self, const struct datagram_head *head)
{
	if (!self->begun && (head->kind == DATAGRAM_DATA || (!head->number && !head->bytes))) {
		self->begun = true;
		self->stream = head->stream;
	}
	return self->begun && head->stream == self->stream;
}

/* 1: a piece; 0: the datagram is dropped, or was the end. Its frame is given back or posted again.
 */
static int datagram_take(struct flow_datagram *self, struct flow_piece *ret_piece)
{
	const uint32_t front = self->front + (uint32_t)sizeof(struct datagram_head);
	struct datagram_receive *receive = &self->receives[self->taken % DATAGRAM_WINDOW];
	const uint8_t *slot = slot_of(self, self->taken);
	const uint32_t bytes = receive->bytes > front ? receive->bytes - front : 0;
	struct datagram_head head;

	self->taken++;
	receive->arrived = false;
	if (receive->bytes < front ||
		datagram_head_decode(slot + self->front, sizeof(head), &head) ||
		!stream_fits(self, &head) || (head.kind == DATAGRAM_DATA) != (bytes != 0)) {
		self->stats.strange++;
		return 0;
	}
	self->heard_ns = receive->arrived_ns;
	if (head.kind != DATAGRAM_DATA) {
		end_take(self, &head);
		return 0;
	}
	if (head.number < self->number) {
		self->stats.late++;
		return 0;
	}
	if (head.bytes < self->number_bytes || self->stats.bytes % DATAGRAM_UNIT) {
		datagram_fail(self, -EPROTO, "the sender's datagrams contradict each other");
		return 0;
	}
	self->stats.lost += head.number - self->number;
	self->number = head.number + 1;
	self->number_bytes = head.bytes + bytes;
	region_switch(self->core->region, receive->span, OWNER_RDMA, OWNER_APP);
	*ret_piece = (struct flow_piece){.span = receive->span,
		.data = receive->span.data,
		.bytes = bytes,
		.offset = self->stats.bytes,
		.hold = FLOW_HOLD_LEASE};
	receive->span.data = NULL;
	self->source.arrived_ns = receive->arrived_ns;
	self->stats.datagrams++;
	self->stats.bytes += bytes;
	self->crc = crc64nvme_update(self->crc, ret_piece->data, bytes);
	return 1;
}

static bool has_arrived(const struct flow_datagram *self)
{
	return self->taken != self->posted && self->receives[self->taken % DATAGRAM_WINDOW].arrived;
}

static int datagram_next(
	struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct flow_datagram *self = CONTAINER_OF(source, struct flow_datagram, source);
	const uint64_t timeout_ns = self->opts.timeout_ns ? self->opts.timeout_ns : LINK_TIMEOUT_NS;
	int ret = 0;

	CHECK(bytes_max >= FRAME_BYTES);
	self->waiter = fiber_self();
	while (!ret && !self->ended && !self->error) {
		if (has_arrived(self)) {
			ret = datagram_take(self, ret_piece);
			continue;
		}
		if (self->interrupted)
			ret = -ECANCELED;
		else if (self->cutting)
			ret = cut_end(self);
		else
			ret = receives_fill(self, true);
		if (ret || self->ended || has_arrived(self))
			continue;
		if (fiber_park_until(self->begun ? self->heard_ns + timeout_ns : DEADLINE_NONE) ==
				-ETIMEDOUT &&
			!has_arrived(self))
			datagram_fail(self, -ETIMEDOUT, "the sender is silent");
	}
	self->waiter = NULL;
	/* A stream that is cut ends behind the posted receives, however fast its sender is. */
	if (ret > 0 && !self->cutting)
		receives_fill(self, false);
	return ret ? ret : self->error;
}

/* The stream outlives the run. */
static void datagram_source_close(struct flow_source *source)
{
	(void)source;
}

const struct flow_source_ops DATAGRAM_SOURCE_OPS = {
	.name = "datagrams", .next = datagram_next, .close = datagram_source_close};

struct flow_source *flow_datagram_source(struct flow_datagram *self)
{
	CHECK(!self->opts.sends);
	return &self->source;
}
