/* remote/target_dp.c: executes the commands of initiators. A read goes from the volume into frames
 * and by RDMA WRITE to the initiator; a write goes by RDMA READ from the initiator into frames and
 * to the volume. Then the answer is sent. Data path. */
#include "remote/target_priv.h"

#include <errno.h>
#include <string.h>

DEFINE_COUNTER(read_bytes, "nebulaio_export_bytes_total", "op=\"read\"",
	"Bytes of exported volumes that initiators moved.");
DEFINE_COUNTER(write_bytes, "nebulaio_export_bytes_total", "op=\"write\"",
	"Bytes of exported volumes that initiators moved.");
DEFINE_COUNTER(commands, "nebulaio_export_commands_total", NULL,
	"Commands of initiators on exported volumes.");

/* ---- The end of a command. ---- */

static void slot_rest(struct target_slot *slot)
{
	struct remote_target *target = slot->lane->target;

	if (slot->span.data)
		region_give(target->opts.region, slot->span, OWNER_RDMA);
	slot->span.data = NULL;
	slot->busy = false;
	target_starved_serve(target);
}

/* The data of a read, and the answer behind it: on one queue pair they arrive in order. */
static void slot_answer(struct target_slot *slot, int error)
{
	struct target_lane *lane = slot->lane;
	const struct wire_command *command = &slot->command;
	struct disk *disk = lane->volume->export.disk;
	struct wire_response *response = &lane->capsules.sends[slot->n].response;
	struct rp_sge sges[2];
	struct rp_send_wr wrs[2];
	uint32_t count = 0, posted;

	if (!error && command->op == WIRE_READ) {
		sges[0] = (struct rp_sge){(uintptr_t)slot->span.data, (uint32_t)command->bytes,
			rp_mr_lkey(
				rp_port_mr(lane->target->port, slot->span.data, command->bytes))};
		wrs[count++] = (struct rp_send_wr){
			.wr_id = work_id(lane->idx, lane->life, WORK_READ, TARGET_SLOTS),
			.opcode = RP_WRITE,
			.sg_list = &sges[0],
			.sge_count = 1,
			.remote_addr = command->addr,
			.rkey = command->rkey};
		counter_add(&read_bytes, command->bytes);
	}
	memset(response, 0, sizeof(*response));
	wire_head_fill(&response->head, WIRE_RESPONSE, sizeof(*response), ++lane->counter_out);
	response->slot = command->slot;
	response->status = wire_status_of(error);
	response->bytes = disk_bytes(disk);
	response->medium_bytes = disk_medium_bytes(disk);
	wire_seal(response, lane->keys.target);
	sges[1] = (struct rp_sge){(uintptr_t)response, sizeof(*response), lane->capsules.lkey};
	wrs[count++] =
		(struct rp_send_wr){.wr_id = work_id(lane->idx, lane->life, WORK_SEND, slot->n),
			.opcode = RP_SEND,
			.flags = RP_SEND_SIGNALED,
			.sg_list = &sges[1],
			.sge_count = 1};
	lane->answering--;
	if (rp_post_send(lane->qp, wrs, count, &posted))
		target_lane_fail(lane, "an answer cannot be posted");
}

/* ---- At the volume. ---- */

/* Begins and ends work that must be over before a failed lane ends. */
static void work_begin(struct target_slot *slot)
{
	slot->working = true;
	slot->lane->working++;
}

static void work_end(struct target_slot *slot, int error)
{
	struct target_lane *lane = slot->lane;

	slot->working = false;
	lane->working--;
	if (lane->state == TARGET_FAILED) {
		if (!lane->qp)
			slot_rest(slot);
		target_lane_settle(lane);
		return;
	}
	slot_answer(slot, error);
}

static void io_done(struct disk_io *io, int32_t result)
{
	struct target_slot *slot = CONTAINER_OF(io, struct target_slot, io);

	if (result >= 0 && slot->command.op == WIRE_WRITE)
		counter_add(&write_bytes, slot->command.bytes);
	work_end(slot, result < 0 ? result : 0);
}

static void volume_start(struct target_slot *slot)
{
	static const enum disk_op OPS[] = {
		[WIRE_READ] = DISK_READ,
		[WIRE_WRITE] = DISK_WRITE,
		[WIRE_FLUSH] = DISK_FLUSH,
		[WIRE_DEALLOCATE] = DISK_DISCARD,
		[WIRE_ZERO] = DISK_ZERO,
	};
	const struct wire_command *command = &slot->command;
	bool moves = command->op == WIRE_READ || command->op == WIRE_WRITE;

	slot->iov = (struct iovec){slot->span.data, command->bytes};
	slot->io.op = OPS[command->op];
	slot->io.iov = &slot->iov;
	slot->io.iov_count = moves ? 1 : 0;
	slot->io.offset = command->offset;
	slot->io.bytes = command->bytes;
	slot->io.done = io_done;
	work_begin(slot);
	disk_start(slot->lane->volume->export.disk, &slot->io);
}

static void grow_run(void *arg)
{
	struct target_slot *slot = (struct target_slot *)arg;
	const struct target_volume *volume = slot->lane->volume;
	struct disk *disk = volume->export.disk;

	slot->error =
		disk_room_check(disk, slot->command.bytes, volume->target->opts.reserve_bytes);
	if (!slot->error)
		slot->error = disk_grow(disk, slot->command.bytes);
	if (slot->error == -ENOSPC)
		log_limited(LOG_WARN, "export",
			"volume %s cannot grow to %llu MiB: its file system would have less than "
			"the reserve (--reserve) free, or is full",
			volume->name, (unsigned long long)(slot->command.bytes / MIB));
}

static void grow_main(void *arg)
{
	struct target_slot *slot = (struct target_slot *)arg;

	fiber_offload_long(grow_run, slot);
	work_end(slot, slot->error);
}

/* ---- Commands in. ---- */

/* 0, or why the volume cannot do it. */
static int command_check(const struct target_lane *lane, const struct wire_command *command)
{
	const struct disk *disk = lane->volume->export.disk;

	if (command->op == WIRE_IDENTIFY || command->op == WIRE_FLUSH)
		return 0;
	if (command->op != WIRE_READ && !lane->writes)
		return -EROFS;
	if (command->op == WIRE_GROW)
		return disk_can_grow(disk) || command->bytes <= disk_bytes(disk) ? 0 : -ENOSPC;
	if ((command->offset | command->bytes) % disk_align(disk) || !command->bytes)
		return -EINVAL;
	return disk_in_range(disk, command->offset, command->bytes) ? 0 : -ERANGE;
}

/* Frames for the data; then the volume reads into them, or the initiator's memory is read. */
static void transfer_begin(struct target_slot *slot)
{
	struct target_lane *lane = slot->lane;
	struct remote_target *target = lane->target;
	uint32_t bytes = (uint32_t)slot->command.bytes, posted;
	struct rp_sge sge;

	if (region_lease(target->opts.region, region_frames_for(bytes), OWNER_RDMA, &slot->span)) {
		slot->span.data = NULL;
		list_push_back(&target->starved, &slot->starved);
		return;
	}
	if (slot->command.op == WIRE_READ) {
		volume_start(slot);
		return;
	}
	sge = (struct rp_sge){(uintptr_t)slot->span.data, bytes,
		rp_mr_lkey(rp_port_mr(target->port, slot->span.data, bytes))};
	const struct rp_send_wr wr = {.wr_id = work_id(lane->idx, lane->life, WORK_READ, slot->n),
		.opcode = RP_READ,
		.flags = RP_SEND_SIGNALED,
		.sg_list = &sge,
		.sge_count = 1,
		.remote_addr = slot->command.addr,
		.rkey = slot->command.rkey};

	if (rp_post_send(lane->qp, &wr, 1, &posted))
		target_lane_fail(lane, "a read of its memory cannot be posted");
}

void target_starved_serve(struct remote_target *target)
{
	struct list *first = list_pop(&target->starved);

	if (first)
		transfer_begin(CONTAINER_OF(first, struct target_slot, starved));
}

static void command_begin(struct target_slot *slot)
{
	int error = command_check(slot->lane, &slot->command);

	if (error || slot->command.op == WIRE_IDENTIFY) {
		slot_answer(slot, error);
	} else if (slot->command.op == WIRE_READ || slot->command.op == WIRE_WRITE) {
		transfer_begin(slot);
	} else if (slot->command.op == WIRE_GROW) {
		work_begin(slot);
		if (fiber_spawn(slot->lane->target->opts.reactor, "grow", grow_main, slot))
			work_end(slot, -EIO);
	} else {
		volume_start(slot);
	}
}

static struct target_slot *slot_take(struct target_lane *lane)
{
	for (uint32_t n = 0; n < TARGET_SLOTS; n++)
		if (!lane->slots[n].busy)
			return &lane->slots[n];
	return NULL;
}

static void command_heard(
	struct target_lane *lane, const union wire_capsule *capsule, uint32_t bytes)
{
	struct target_slot *slot = slot_take(lane);

	if (wire_check_sealed(
		    capsule, bytes, WIRE_COMMAND, lane->counter_in + 1, lane->keys.initiator)) {
		target_lane_fail(lane, "a command fails verification");
		return;
	}
	lane->counter_in++;
	if (!slot || lane->answering == lane->challenge.depth) {
		target_lane_fail(lane, "it sends more commands than its credits allow");
		return;
	}
	counter_add(&commands, 1);
	lane->answering++;
	slot->busy = true;
	slot->command = capsule->command;
	command_begin(slot);
}

static void received(struct target_lane *lane, const struct rp_wc *wc)
{
	uint32_t n = work_n(wc->wr_id);
	union wire_capsule capsule = lane->capsules.recvs[n];

	/* Words of set-up do not extend the time for it. */
	if (lane->state == TARGET_OPEN)
		lane->heard_ns = reactor_now_ns(lane->target->opts.reactor);
	/* First, because the answer gives the initiator its credit back. */
	if (target_recv_post(lane, n))
		target_lane_fail(lane, "a receive cannot be posted");
	else if (lane->state == TARGET_OPEN)
		command_heard(lane, &capsule, wc->byte_len);
	else
		target_setup_heard(lane, &capsule, wc->byte_len);
}

void target_wc(void *arg, const struct rp_wc *wc)
{
	struct remote_target *target = (struct remote_target *)arg;
	uint32_t idx = work_lane(wc->wr_id), n = work_n(wc->wr_id);
	struct target_lane *lane = idx < TARGET_LANES_MAX ? target->lanes[idx] : NULL;

	if (!lane || lane->life != work_life(wc->wr_id) || lane->state == TARGET_FAILED)
		return;
	if (wc->status != RP_WC_SUCCESS)
		target_lane_fail(lane, rp_status_str(wc->status));
	else if (work_kind(wc->wr_id) == WORK_RECV)
		received(lane, wc);
	else if (n < TARGET_SLOTS && work_kind(wc->wr_id) == WORK_READ)
		volume_start(&lane->slots[n]);
	else if (n < TARGET_SLOTS)
		slot_rest(&lane->slots[n]);
	else if (lane->state == TARGET_REFUSED)
		target_lane_fail(lane, NULL);
}

void target_slots_drop(struct target_lane *lane)
{
	for (uint32_t n = 0; n < TARGET_SLOTS; n++)
		list_remove(&lane->slots[n].starved);
	for (uint32_t n = 0; n < TARGET_SLOTS; n++)
		if (lane->slots[n].busy && !lane->slots[n].working)
			slot_rest(&lane->slots[n]);
}
