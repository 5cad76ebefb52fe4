/* libregion/region_work.c: work for the devices: checks it, puts it into the ring, and reports its
 * completion. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "libregion/region_lib.h"

#define WORK_NONE UINT16_MAX

_Static_assert(LIB_WORK_MAX < WORK_NONE, "a place fits its number");

/* ---- Completions. ---- */

static enum region_owner owner_for(enum neb_work_op op)
{
	if (op == NEB_FLUSH || op == NEB_DISCARD)
		return OWNER_FREE;
	if (op == NEB_PACKET)
		return OWNER_XDP;
	return op == NEB_READ || op == NEB_WRITE ? OWNER_DISK : OWNER_RDMA;
}

static void spans_lend(struct neb_region *self, const struct neb_work *work)
{
	region_switch(self->region, lib_span(&work->span), OWNER_APP, owner_for(work->op));
	for (uint32_t i = 0; i < work->part_count; i++)
		region_switch(self->region, lib_span(&work->parts[i].span), OWNER_APP,
			owner_for(work->op));
}

/* The spans of a completion are the program's when it takes the completion, and not earlier: a copy
 * that it kept is of no use before. */
static void spans_return(struct neb_region *self, const struct neb_done *done)
{
	if (!done->span.data)
		return;
	region_switch(self->region, lib_span(&done->span), owner_for(done->op), OWNER_APP);
	for (uint32_t i = 0; i < done->part_count; i++)
		region_switch(
			self->region, lib_span(&done->parts[i]), owner_for(done->op), OWNER_APP);
}

static void slot_free(struct neb_region *self, uint64_t place)
{
	struct lib_work *slot = &self->works[place];

	slot->busy = false;
	slot->next = self->work_free;
	self->work_free = (uint16_t)place;
	self->work_count -= slot->weight;
}

/* A disk's work of several parts is as many entries, done in any order. The first failure becomes
 * the work's result. */
static void done_put(struct neb_region *self, const struct region_cqe *cqe)
{
	struct lib_work *slot = &self->works[cqe->user_data];
	const struct neb_work *work = &slot->work;
	struct neb_done *done;

	CHECK(slot->busy && slot->entries > 0);
	if (slot->result >= 0)
		slot->result = cqe->result < 0 ? cqe->result : slot->result + cqe->result;
	if (--slot->entries)
		return;
	done = &self->dones[self->done_tail++ % LIB_WORK_MAX];
	*done = (struct neb_done){.user_data = work->user_data,
		.at = work->at,
		.result = slot->result,
		.op = work->op,
		.target = work->target,
		.imm = cqe->imm,
		.latency_ns = cqe->latency_ns};
	if (work->op == NEB_PACKET && slot->result == 0)
		done->result = (int32_t)work->bytes;
	if (slot->owner != OWNER_FREE) {
		done->span = work->span;
		done->part_count = work->part_count;
		for (uint32_t i = 0; i < work->part_count; i++)
			done->parts[i] = work->parts[i].span;
	}
	slot_free(self, cqe->user_data);
}

static uint32_t rings_poll(void *arg)
{
	struct neb_region *self = arg;
	struct region_cqe cqes[32];
	uint32_t work = region_ring_turn(self->ring), count;

	do {
		count = region_reap(self->ring, cqes, 32);
		for (uint32_t i = 0; i < count; i++)
			done_put(self, &cqes[i]);
		work += count;
	} while (count == 32);
	return work;
}

static bool rings_arm(void *arg)
{
	return region_ring_idle(((struct neb_region *)arg)->ring);
}

static void rings_disarm(void *arg)
{
	(void)arg;
}

/* ---- Life. ---- */

void lib_works_init(struct neb_region *self, uint32_t ring_entries)
{
	self->work_max = ring_entries ? ring_entries : 1024;
	for (uint32_t i = 0; i < LIB_WORK_MAX; i++)
		self->works[i].next = i + 1 < LIB_WORK_MAX ? (uint16_t)(i + 1) : WORK_NONE;
	self->work_free = 0;
}

int lib_rings_open(struct neb_region *self)
{
	self->rings_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (self->rings_fd < 0)
		return -errno;
	self->ring = region_ring(self->region, 0);
	self->rings = (struct reactor_poller){.name = "rings",
		.poll = rings_poll,
		.arm = rings_arm,
		.disarm = rings_disarm,
		.arg = self,
		.event_fd = self->rings_fd};
	reactor_poller_add(self->reactor, &self->rings);
	return 0;
}

/* Nobody will take these completions. */
static void dones_end(struct neb_region *self)
{
	for (; self->done_head != self->done_tail; self->done_head++) {
		const struct neb_done *done = &self->dones[self->done_head % LIB_WORK_MAX];

		if (!done->span.data)
			continue;
		region_give(self->region, lib_span(&done->span), owner_for(done->op));
		for (uint32_t i = 0; i < done->part_count; i++)
			region_give(self->region, lib_span(&done->parts[i]), owner_for(done->op));
	}
}

/* Cancels the work that the devices still have. */
void lib_works_end(struct neb_region *self)
{
	uint64_t deadline_ns = clock_now_ns() + 10 * NS_PER_S;

	while (self->work_count && clock_now_ns() < deadline_ns)
		reactor_turn_wait(self->reactor, clock_now_ns() + NS_PER_MS);
	dones_end(self);
	for (uint32_t i = 0; i < LIB_WORK_MAX && self->work_count; i++) {
		struct lib_work *slot = &self->works[i];

		if (!slot->busy || slot->owner == OWNER_FREE)
			continue;
		region_give(self->region, lib_span(&slot->work.span), slot->owner);
		for (uint32_t k = 0; k < slot->work.part_count; k++)
			region_give(self->region, lib_span(&slot->work.parts[k].span), slot->owner);
	}
}

/* ---- Work. ---- */

static bool op_has_span(enum neb_work_op op)
{
	return op != NEB_FLUSH && op != NEB_DISCARD;
}

static bool op_is_disk(enum neb_work_op op)
{
	return op >= NEB_READ && op <= NEB_DISCARD;
}

/* One stretch of a span, its length made whole. */
static int stretch_check(
	const struct neb_region *self, const struct neb_span *span, uint32_t at, uint32_t *bytes)
{
	if (at > span->bytes)
		return -EINVAL;
	if (!*bytes)
		*bytes = span->bytes - at;
	if (*bytes == 0 || *bytes > span->bytes - at)
		return -EINVAL;
	return lib_span_held(self, span, NEB_APP);
}

static int parts_check(const struct neb_region *self, struct neb_work *work)
{
	uint32_t align = op_is_disk(work->op) ? neb_disk_align(self, work->target) : 1;
	uint64_t total = work->bytes;
	int ret = 0;

	if (work->part_count > NEB_PARTS_MAX || work->op == NEB_PACKET)
		return -EINVAL;
	if (work->bytes % align)
		return -EINVAL;
	if (!op_is_disk(work->op) && 1 + work->part_count > self->device_attr.max_sge)
		return -EINVAL;
	for (uint32_t i = 0; i < work->part_count && !ret; i++) {
		struct neb_part *part = &work->parts[i];

		ret = stretch_check(self, &part->span, part->at, &part->bytes);
		if (part->span.frame == work->span.frame || (part->bytes | part->at) % align)
			ret = ret ? ret : -EINVAL;
		for (uint32_t k = 0; k < i && !ret; k++)
			ret = part->span.frame == work->parts[k].span.frame ? -EINVAL : 0;
		total += part->bytes;
	}
	return ret ? ret : total > INT32_MAX ? -EINVAL : 0;
}

static bool target_found(const struct neb_region *self, const struct neb_work *work)
{
	if (work->op == NEB_PACKET)
		return lib_xdp_sends(self, work->target);
	return op_is_disk(work->op) ? lib_disk_of(self, work->target) != NULL
				    : lib_conn_of(self, work->target) != NULL;
}

static int work_check(const struct neb_region *self, struct neb_work *work)
{
	int ret;

	if (work->op < NEB_READ || work->op > NEB_PACKET)
		return -EINVAL;
	if (!target_found(self, work))
		return -ENOENT;
	if (!op_has_span(work->op)) {
		if (work->part_count || (work->op == NEB_DISCARD && !work->bytes))
			return -EINVAL;
		return 0;
	}
	ret = stretch_check(self, &work->span, work->at, &work->bytes);
	if (!ret && work->op == NEB_PACKET && work->at % FRAME_BYTES + work->bytes > FRAME_BYTES)
		ret = -EMSGSIZE;
	if (!ret && work->part_count)
		ret = parts_check(self, work);
	return ret;
}

/* An entry for the span, and one for each part, which lies behind it on the disk. Bounded: there is
 * room in the ring for all of them. */
static int submit_base(struct neb_region *self, struct lib_work *slot, uint64_t place)
{
	static const uint8_t OPS[] = {[NEB_READ] = REGION_OP_READ,
		[NEB_WRITE] = REGION_OP_WRITE,
		[NEB_FLUSH] = REGION_OP_FLUSH,
		[NEB_DISCARD] = REGION_OP_DISCARD,
		[NEB_PACKET] = REGION_OP_PACKET_TX};
	const struct neb_work *work = &slot->work;
	struct region_sqe sqe = {.opcode = OPS[work->op],
		.target = work->target,
		.len = work->bytes,
		.addr = op_has_span(work->op) ? (uint64_t)(uintptr_t)work->span.data + work->at : 0,
		.offset = work->offset,
		.user_data = place};
	int ret = region_submit(self->ring, &sqe);

	for (uint32_t i = 0; i < work->part_count && !ret; i++) {
		slot->entries++;
		sqe.offset += sqe.len;
		sqe.addr = (uint64_t)(uintptr_t)work->parts[i].span.data + work->parts[i].at;
		sqe.len = work->parts[i].bytes;
		ret = region_submit(self->ring, &sqe);
		CHECK(ret == 0);
	}
	return ret;
}

static struct region_sge sge_of(
	const struct neb_region *self, const struct neb_span *span, uint32_t at, uint32_t bytes)
{
	const uint8_t *data = (const uint8_t *)span->data + at;

	return (struct region_sge){(uint64_t)(uintptr_t)data, bytes, lib_lkey(self, data, bytes)};
}

static int submit_rdma(struct neb_region *self, const struct neb_work *work, uint64_t place)
{
	static const uint8_t OPS[] = {[NEB_SEND] = REGION_OP_SEND,
		[NEB_RECV] = REGION_OP_RECV,
		[NEB_RDMA_READ] = REGION_OP_RDMA_READ,
		[NEB_RDMA_WRITE] = REGION_OP_RDMA_WRITE};
	struct region_wr wr = {.opcode = OPS[work->op],
		.target = work->target,
		.sge_count = (uint8_t)(1 + work->part_count),
		.user_data = place,
		.remote_addr = work->remote_addr,
		.rkey = work->rkey,
		.imm = work->imm,
		.sge[0] = sge_of(self, &work->span, work->at, work->bytes)};

	for (uint32_t i = 0; i < work->part_count; i++)
		wr.sge[1 + i] =
			sge_of(self, &work->parts[i].span, work->parts[i].at, work->parts[i].bytes);
	if (work->imm && work->op == NEB_SEND)
		wr.opcode = REGION_OP_SEND_IMM;
	if (work->imm && work->op == NEB_RDMA_WRITE)
		wr.opcode = REGION_OP_RDMA_WRITE_IMM;
	return region_submit_wr(self->ring, &wr);
}

int neb_work_submit(struct neb_region *region, const struct neb_work *work)
{
	uint32_t weight = 1 + MIN(work->part_count, NEB_PARTS_MAX);
	uint16_t place = region->work_free;
	struct lib_work *slot;
	int ret;

	if (region->work_count + weight > region->work_max || place == WORK_NONE ||
		region->work_count + (region->done_tail - region->done_head) + weight >
			LIB_WORK_MAX)
		return -EAGAIN;
	slot = &region->works[place];
	slot->work = *work;
	ret = work_check(region, &slot->work);
	if (ret)
		return ret;
	slot->owner = owner_for(work->op);
	slot->entries = 1;
	slot->weight = (uint8_t)weight;
	slot->result = 0;
	ret = op_is_disk(work->op) || work->op == NEB_PACKET
		      ? submit_base(region, slot, place)
		      : submit_rdma(region, &slot->work, place);
	if (ret)
		return ret;
	if (slot->owner != OWNER_FREE)
		spans_lend(region, work);
	slot->busy = true;
	region->work_free = slot->next;
	region->work_count += weight;
	return 0;
}

int neb_work_reap(
	struct neb_region *region, struct neb_done *dones, uint32_t max, uint64_t timeout_ns)
{
	uint64_t deadline_ns = lib_deadline(timeout_ns);
	uint32_t count = 0;

	reactor_turn(region->reactor);
	while (region->done_head == region->done_tail && region->work_count &&
		clock_now_ns() < deadline_ns)
		reactor_turn_wait(region->reactor, deadline_ns);
	while (count < max && region->done_head != region->done_tail) {
		dones[count] = region->dones[region->done_head++ % LIB_WORK_MAX];
		spans_return(region, &dones[count++]);
	}
	return (int)count;
}
