/* remote/initiator_dp.c: turns operations on a remote volume into commands, and completes them by
 * the answers. Data path. */
#include "remote/remote_priv.h"

#include <errno.h>
#include <string.h>

#define RETRY_NS NS_PER_MS /* when the region has no frames for a copy */

DEFINE_COUNTER(read_bytes, "nebulaio_remote_bytes_total", "op=\"read\"",
	"Bytes moved between this host and volumes of others.");
DEFINE_COUNTER(write_bytes, "nebulaio_remote_bytes_total", "op=\"write\"",
	"Bytes moved between this host and volumes of others.");

static const uint8_t OP_OF[] = {
	[DISK_READ] = WIRE_READ,
	[DISK_WRITE] = WIRE_WRITE,
	[DISK_FLUSH] = WIRE_FLUSH,
	[DISK_DISCARD] = WIRE_DEALLOCATE,
	[DISK_ZERO] = WIRE_ZERO,
};

/* A blocking call is not one of disk's operations. */
static void io_end(struct disk_io *io, int32_t result)
{
	if (io->done == remote_call_done)
		remote_call_done(io, result);
	else
		disk_io_end(io, result);
}

static uint8_t op_of(const struct disk_io *io)
{
	if (io->done == remote_call_done)
		return CONTAINER_OF(io, struct remote_call, io)->op;
	return OP_OF[io->op];
}

/* ---- Commands out. ---- */

static struct remote_slot *slot_take(struct remote_lane *lane, uint32_t *ret_n)
{
	for (uint32_t n = 0; n < lane->depth; n++)
		if (!lane->slots[n].busy) {
			*ret_n = n;
			return &lane->slots[n];
		}
	return NULL;
}

/* A drive may take long for these. Keep-alive words meanwhile show whether the target answers. */
static bool op_is_slow(uint8_t op)
{
	return op == WIRE_GROW || op == WIRE_DEALLOCATE || op == WIRE_ZERO;
}

static void command_send(struct remote_lane *lane, uint32_t n, const struct wire_command *body)
{
	struct remote_slot *slot = &lane->slots[n];
	struct wire_command *command = &lane->capsules.sends[n].command;
	uint64_t wait_ns = op_is_slow(body->op) ? REMOTE_SLOW_NS : REMOTE_COMMAND_NS;
	uint64_t now_ns = reactor_now_ns(lane->port->reactor);

	*command = *body;
	command->slot = (uint16_t)n;
	wire_head_fill(&command->head, WIRE_COMMAND, sizeof(*command), ++lane->counter_out);
	wire_seal(command, lane->keys.initiator);
	slot->op = body->op;
	slot->busy = true;
	slot->sent = false;
	slot->answered = false;
	slot->deadline_ns = now_ns + wait_ns;
	lane->in_flight++;
	lane->said_ns = now_ns;
	if (remote_send(lane, n))
		remote_lane_fail(lane, -EIO, "a command cannot be posted");
}

void remote_word(struct remote_lane *lane)
{
	const struct wire_command body = {.op = WIRE_IDENTIFY};
	uint32_t n;
	struct remote_slot *slot = slot_take(lane, &n);

	if (!slot)
		return;
	slot->io = NULL;
	command_send(lane, n, &body);
}

/* Frames to copy a part through. The region's may all be held by puts that wait for this very
 * write, so the reactor has some of its own: one part at a time, cut to their length, goes through
 * them. -ENOBUFS: none now. */
static int bounce_lease(struct remote_port *port, struct remote_slot *slot)
{
	if (region_lease(port->region, region_frames_for(slot->bytes), OWNER_RDMA, &slot->bounce) ==
		0)
		return 0;
	if (port->spare_used)
		return -ENOBUFS;
	port->spare_used = true;
	slot->bounce = port->spare;
	slot->bytes = MIN(slot->bytes, (uint32_t)region_span_bytes(port->spare));
	return 0;
}

static void bounce_give(struct remote_port *port, struct remote_slot *slot)
{
	if (!slot->bounce.data)
		return;
	if (slot->bounce.data == port->spare.data)
		port->spare_used = false;
	else
		region_give(port->region, slot->bounce, OWNER_RDMA);
	slot->bounce.data = NULL;
}

/* Chooses the memory for the next part of a transfer: the caller's memory when it is the region's,
 * else frames to copy through, perhaps for fewer bytes. -ENOBUFS: none now. */
static int part_place(
	struct remote_lane *lane, struct remote_slot *slot, uint8_t op, struct wire_command *body)
{
	struct rp_mr *mr = rp_port_mr(lane->port->port, slot->data, slot->bytes);
	uint8_t *at = slot->data;
	int ret;

	slot->bounce.data = NULL;
	if (!mr) {
		ret = bounce_lease(lane->port, slot);
		if (ret)
			return ret;
		at = slot->bounce.data;
		mr = rp_port_mr(lane->port->port, at, slot->bytes);
		if (op == WIRE_WRITE)
			region_copy(at, slot->data, slot->bytes, COPY_CLIENT);
	}
	body->bytes = slot->bytes;
	body->addr = (uint64_t)(uintptr_t)at;
	body->rkey = rp_mr_rkey(mr);
	return 0;
}

/* Issues the next part of an operation: 0, or -ENOBUFS. */
static int part_issue(struct remote_lane *lane, struct disk_io *io, uint32_t n)
{
	struct remote_slot *slot = &lane->slots[n];
	struct wire_command body = {.op = op_of(io), .offset = io->offset, .bytes = io->bytes};
	const struct iovec *iov = io->iov_count ? &io->iov[io->split.iov_idx] : NULL;
	int ret;

	slot->io = io;
	if (!iov) {
		io->split.issued = true;
	} else {
		slot->data = (uint8_t *)iov->iov_base + io->split.at;
		slot->bytes =
			(uint32_t)MIN(iov->iov_len - io->split.at, (uint64_t)WIRE_TRANSFER_MAX);
		body.offset = io->offset + io->moved;
		ret = part_place(lane, slot, body.op, &body);
		if (ret)
			return ret;
		io->moved += slot->bytes;
		io->split.at += slot->bytes;
		if (io->split.at == iov->iov_len) {
			io->split.at = 0;
			io->split.iov_idx++;
		}
		io->split.issued = io->split.iov_idx == io->iov_count;
	}
	io->split.pending++;
	command_send(lane, n, &body);
	return 0;
}

void remote_pump(struct remote_lane *lane)
{
	uint32_t n;

	while (lane->state == LANE_OPEN && lane->first && slot_take(lane, &n)) {
		struct disk_io *io = lane->first;

		if (part_issue(lane, io, n)) {
			reactor_timer_set(lane->port->reactor, &lane->timer,
				reactor_now_ns(lane->port->reactor) + RETRY_NS);
			return;
		}
		if (io->split.issued)
			lane->first = io->split.next;
	}
}

static void gone_done(struct uring_op *op, int result, uint32_t cqe_flags)
{
	(void)result;
	(void)cqe_flags;
	io_end(CONTAINER_OF(op, struct disk_io, uring), -ENOTCONN);
}

void remote_start(struct remote_lane *lane, struct disk_io *io)
{
	io->split.next = NULL;
	io->split.at = 0;
	io->split.iov_idx = 0;
	io->split.pending = 0;
	io->split.error = 0;
	io->split.issued = false;
	if (atomic_load_explicit(&lane->volume->gone, memory_order_relaxed)) {
		io->uring.done = gone_done;
		io_uring_prep_nop(reactor_sqe(lane->port->reactor, &io->uring));
		return;
	}
	if (lane->first)
		lane->last->split.next = io;
	else
		lane->first = io;
	lane->last = io;
	remote_pump(lane);
}

/* ---- Answers in. ---- */

static void io_part_end(struct disk_io *io, int error)
{
	if (error && !io->split.error)
		io->split.error = error;
	if (--io->split.pending == 0 && io->split.issued)
		io_end(io, io->split.error ? io->split.error
					   : (int32_t)MIN(io->bytes, (uint64_t)INT32_MAX));
}

static void slot_rest(struct remote_lane *lane, struct remote_slot *slot)
{
	if (!slot->sent || !slot->answered)
		return;
	slot->busy = false;
	lane->in_flight--;
}

static void answered(struct remote_lane *lane, const struct wire_response *response)
{
	struct remote_slot *slot = &lane->slots[response->slot % REMOTE_DEPTH];
	int error = wire_status_errno(response->status);
	struct disk_io *io = slot->io;

	if (response->slot >= lane->depth || !slot->busy || slot->answered) {
		remote_lane_fail(lane, -EPROTO, "an answer to no command");
		return;
	}
	if (io && !error && slot->op == WIRE_READ) {
		counter_add(&read_bytes, slot->bytes);
		if (slot->bounce.data)
			region_copy(slot->data, slot->bounce.data, slot->bytes, COPY_CLIENT);
	} else if (io && !error && slot->op == WIRE_WRITE) {
		counter_add(&write_bytes, slot->bytes);
	} else if (!error && slot->op == WIRE_GROW) {
		remote_volume_grown(lane->volume, response);
	}
	bounce_give(lane->port, slot);
	slot->answered = true;
	slot->io = NULL;
	slot_rest(lane, slot);
	if (io)
		io_part_end(io, error);
}

static void received(struct remote_lane *lane, const struct rp_wc *wc)
{
	uint32_t n = work_n(wc->wr_id);
	union wire_capsule capsule = lane->capsules.recvs[n];

	if (lane->state != LANE_OPEN) {
		remote_setup_heard(lane, &capsule, wc->byte_len);
	} else if (wire_check_sealed(&capsule, wc->byte_len, WIRE_RESPONSE, lane->counter_in + 1,
			   lane->keys.target)) {
		remote_lane_fail(lane, -EPROTO, "an answer fails verification");
	} else {
		lane->counter_in++;
		answered(lane, &capsule.response);
	}
	if (lane->state != LANE_FAILED && remote_recv_post(lane, n))
		remote_lane_fail(lane, -EIO, "a receive cannot be posted");
	remote_pump(lane);
}

void remote_wc(void *arg, const struct rp_wc *wc)
{
	struct remote_port *port = (struct remote_port *)arg;
	uint32_t idx = work_lane(wc->wr_id);
	struct remote_lane *lane = idx < REMOTE_LANES_MAX ? port->lanes[idx] : NULL;
	uint32_t n = work_n(wc->wr_id);

	if (!lane || lane->life != work_life(wc->wr_id) || lane->state == LANE_FAILED ||
		lane->state == LANE_WAITING)
		return;
	if (wc->status != RP_WC_SUCCESS) {
		remote_lane_fail(lane, rp_status_errno(wc->status), rp_status_str(wc->status));
		return;
	}
	if (work_kind(wc->wr_id) == WORK_RECV) {
		received(lane, wc);
	} else if (n < lane->depth && lane->slots[n].busy && !lane->slots[n].sent) {
		lane->slots[n].sent = true;
		slot_rest(lane, &lane->slots[n]);
		remote_pump(lane);
	}
}

void remote_drop(struct remote_lane *lane)
{
	for (uint32_t n = 0; n < REMOTE_DEPTH; n++) {
		struct remote_slot *slot = &lane->slots[n];
		struct disk_io *io = slot->io;

		if (!slot->busy)
			continue;
		bounce_give(lane->port, slot);
		slot->busy = false;
		slot->io = NULL;
		if (io && !io->split.issued) { /* the first of those that wait */
			lane->first = io->split.next;
			io->split.issued = true;
		}
		if (io)
			io_part_end(io, -ENOTCONN);
	}
	lane->in_flight = 0;
	while (lane->first) {
		struct disk_io *io = lane->first;

		lane->first = io->split.next;
		io_end(io, -ENOTCONN);
	}
}
