/* rdma/target.c: queue pairs as targets of the region's RDMA rings. Ring entries become work
 * requests, posted in batches; wr_id leads from a completion back to its entry, and its top bit
 * says that the request came from a ring:
 *
 *   63 ring | 62 receive | 61..50 target | 49..32 its generation | 31..0 sequence number
 *
 * A queue pair's sends complete in order, and so do its receives, so work in flight is kept in two
 * circles, and a completion also ends the unsignalled sends before it. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/counter.h"
#include "rdma/datagram.h"
#include "rdma/provider/provider.h"

#define TARGET_BITS	12u
#define TARGETS_MAX	(1u << TARGET_BITS)
#define GENERATION_MASK 0x3ffffu
#define BATCH		32u
#define TARGET_MAGIC	0x72540001u

_Static_assert(BATCH <= INT32_MAX / 8, "what a drain takes is counted in 32 bits");
_Static_assert(TARGETS_MAX <= 1u << (62 - 50), "a target's index lies above its generation");
_Static_assert(GENERATION_MASK < 1u << (50 - 32), "a generation lies above the sequence number");
_Static_assert(LIMIT_REGION_TARGETS_MAX <= UINT16_MAX + 1u, "a target's number has 16 bits");

struct flight { /* a ring entry on its way */
	uint64_t user_data;
	uint64_t submitted_ns;
	uint8_t opcode, flags;
};
struct circle {
	uint32_t head, tail, mask, count_max;
	struct flight *flights;
};
struct rp_target {
	uint32_t magic;
	struct rp_qp *qp;
	struct region *region;
	struct region_ring *ring; /* that last submitted */
	uint16_t number;
	uint32_t idx, generation;
	uint32_t unsignaled; /* sends since the last signaled one */
	struct rp_ah *ah;    /* UD: where sends go */
	uint32_t remote_qpn, remote_qkey;
	struct circle sends, recvs;
};

DEFINE_COUNTER(posted_reads, "nebulaio_rdma_posted_bytes_total", "op=\"read\"",
	"Bytes of transfers posted to queue pairs.");
DEFINE_COUNTER(posted_writes, "nebulaio_rdma_posted_bytes_total", "op=\"write\"",
	"Bytes of transfers posted to queue pairs.");

static pthread_mutex_t targets_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct rp_target *) targets[TARGETS_MAX];
static uint32_t target_generation;

static void circle_check(const struct circle *circle)
{
	CHECK(circle->tail - circle->head <= circle->count_max);
}

/* Called where a target comes in: from a region's ring, by a work request's id, to be released. */
static void target_check(const struct rp_target *target)
{
	CHECK(target->magic == TARGET_MAGIC);
	CHECK(target->qp->target == target);
	circle_check(&target->sends);
	circle_check(&target->recvs);
}

static uint64_t wr_id_make(const struct rp_target *target, bool recv, uint32_t seq)
{
	return RP_WR_ID_RING | (uint64_t)recv << 62 | (uint64_t)target->idx << 50 |
	       (uint64_t)target->generation << 32 | seq;
}

static struct rp_target *target_of(uint64_t wr_id)
{
	struct rp_target *target =
		atomic_load_explicit(&targets[(wr_id >> 50) % TARGETS_MAX], memory_order_acquire);

	if (!target || target->generation != ((wr_id >> 32) & GENERATION_MASK))
		return NULL;
	return target;
}

/* ---- Submitting. ---- */

static void complete(struct rp_target *target, struct region_ring *ring,
	const struct flight *flight, int32_t result, uint32_t imm)
{
	struct region_wr wr = {
		.opcode = flight->opcode,
		.flags = flight->flags,
		.target = target->number,
		.user_data = flight->user_data,
		.submitted_ns = flight->submitted_ns,
	};
	struct region_cqe cqe = region_wr_done(&wr, result);

	cqe.imm = imm;
	region_complete(ring, &cqe);
}

static bool circle_full(const struct circle *circle)
{
	return circle->tail - circle->head >= circle->count_max;
}

static struct flight *circle_put(struct circle *circle, const struct region_wr *entry)
{
	struct flight *flight = &circle->flights[circle->tail++ & circle->mask];

	circle_check(circle);
	*flight =
		(struct flight){entry->user_data, entry->submitted_ns, entry->opcode, entry->flags};
	return flight;
}

static void sges_convert(const struct region_wr *entry, struct rp_sge *sges)
{
	CHECK(entry->sge_count <= ARRAY_LEN(entry->sge));
	for (uint32_t i = 0; i < entry->sge_count; i++)
		sges[i] =
			(struct rp_sge){entry->sge[i].addr, entry->sge[i].len, entry->sge[i].lkey};
}

static uint32_t flags_convert(struct rp_target *target, uint32_t flags)
{
	uint32_t result = 0;

	/* A signaled send now and then keeps the circle from filling up. */
	if (!(flags & REGION_F_UNSIGNALED) ||
		++target->unsignaled >= MAX(target->sends.count_max / 2, 1)) {
		target->unsignaled = 0;
		result |= RP_SEND_SIGNALED;
	}
	if (flags & REGION_F_INLINE)
		result |= RP_SEND_INLINE;
	if (flags & REGION_F_FENCE)
		result |= RP_SEND_FENCE;
	if (flags & REGION_F_SOLICITED)
		result |= RP_SEND_SOLICITED;
	return result;
}

static struct rp_send_wr send_convert(
	struct rp_target *target, const struct region_wr *entry, struct rp_sge *sges)
{
	static const uint8_t opcodes[REGION_OP_COUNT] = {
		[REGION_OP_SEND] = RP_SEND,
		[REGION_OP_SEND_IMM] = RP_SEND_IMM,
		[REGION_OP_RDMA_READ] = RP_READ,
		[REGION_OP_RDMA_WRITE] = RP_WRITE,
		[REGION_OP_RDMA_WRITE_IMM] = RP_WRITE_IMM,
		[REGION_OP_CMP_SWAP] = RP_CMP_SWAP,
		[REGION_OP_FETCH_ADD] = RP_FETCH_ADD,
	};

	CHECK(entry->opcode < REGION_OP_COUNT);
	sges_convert(entry, sges);
	return (struct rp_send_wr){
		.wr_id = wr_id_make(target, false, target->sends.tail),
		.opcode = (enum rp_opcode)opcodes[entry->opcode],
		.flags = flags_convert(target, entry->flags),
		.sg_list = sges,
		.sge_count = entry->sge_count,
		.imm = entry->imm,
		.remote_addr = entry->remote_addr,
		.rkey = entry->rkey,
		.compare_add = entry->compare_add,
		.swap = entry->swap,
		.ah = target->ah,
		.remote_qpn = target->remote_qpn,
		.remote_qkey = target->remote_qkey,
	};
}

/* One addition for a batch, however long. */
static void count_posted(const struct region_wr *entries, uint32_t count)
{
	uint64_t reads = 0, writes = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t bytes = 0;

		for (uint32_t j = 0; j < entries[i].sge_count; j++)
			bytes += entries[i].sge[j].len;
		if (entries[i].opcode == REGION_OP_RDMA_READ)
			reads += bytes;
		else if (entries[i].opcode == REGION_OP_RDMA_WRITE ||
			 entries[i].opcode == REGION_OP_RDMA_WRITE_IMM)
			writes += bytes;
	}
	if (reads)
		counter_add(&posted_reads, reads);
	if (writes)
		counter_add(&posted_writes, writes);
}

/* Posts a run of sends; returns how many were taken, refused ones included. */
static uint32_t submit_sends(struct rp_target *target, struct region_ring *ring,
	const struct region_wr *entries, uint32_t count)
{
	struct rp_send_wr wrs[BATCH];
	struct rp_sge sges[BATCH][ARRAY_LEN(entries->sge)];
	uint32_t first = target->sends.tail, built = 0, posted = 0;
	int err;

	while (built < count && !circle_full(&target->sends)) {
		wrs[built] = send_convert(target, &entries[built], sges[built]);
		circle_put(&target->sends, &entries[built]);
		built++;
	}
	if (!built) {
		rp_count_send_full(target->sends.tail - target->sends.head);
		return 0;
	}
	err = rp_post_send(target->qp, wrs, built, &posted);
	/* Sends that were not posted were never in flight. */
	target->sends.tail = first + posted;
	count_posted(entries, posted);
	if (posted < built && err != -ENOMEM) {
		const struct region_wr *entry = &entries[posted];
		struct flight refused = {
			entry->user_data, entry->submitted_ns, entry->opcode, entry->flags};

		complete(target, ring, &refused, err, 0);
		posted++;
	}
	return posted;
}

static uint32_t submit_recv(
	struct rp_target *target, struct region_ring *ring, const struct region_wr *entry)
{
	struct rp_sge sges[ARRAY_LEN(entry->sge)];
	struct rp_recv_wr wr = {
		wr_id_make(target, true, target->recvs.tail), sges, entry->sge_count};
	struct flight *flight;
	uint32_t posted;
	int err;

	if (circle_full(&target->recvs)) {
		rp_count_recv_full(target->recvs.tail - target->recvs.head);
		return 0;
	}
	sges_convert(entry, sges);
	flight = circle_put(&target->recvs, entry);
	err = rp_post_recv(target->qp, &wr, 1, &posted);
	if (!err)
		return 1;
	target->recvs.tail--;
	if (err == -ENOMEM)
		return 0;
	complete(target, ring, flight, err, 0);
	return 1;
}

static uint32_t target_submit_wr(
	void *device, struct region_ring *ring, const struct region_wr *entries, uint32_t count)
{
	struct rp_target *target = device;
	uint32_t taken = 0;

	target_check(target);
	target->ring = ring;
	while (taken < count) {
		uint32_t run = 0, got;

		while (taken + run < count && run < BATCH &&
			entries[taken + run].opcode != REGION_OP_RECV)
			run++;
		got = run ? submit_sends(target, ring, &entries[taken], run)
			  : submit_recv(target, ring, &entries[taken]);
		if (!got)
			break;
		taken += got;
	}
	return taken;
}

/* A queue pair is no volume: base entries are refused. */
static uint32_t target_submit(
	void *device, struct region_ring *ring, const struct region_sqe *entries, uint32_t count)
{
	(void)device;
	for (uint32_t i = 0; i < count; i++) {
		struct region_cqe cqe = region_sqe_done(&entries[i], -EOPNOTSUPP);

		region_complete(ring, &cqe);
	}
	return count;
}

/* Posting a batch has rung already. */
static void target_bell(void *device, struct region_ring *ring)
{
	(void)device;
	(void)ring;
}

static const struct region_device_ops target_ops = {
	.name = "rdma queue pair",
	.submit = target_submit,
	.submit_wr = target_submit_wr,
	.bell = target_bell,
};

/* ---- Opening and closing. ---- */

static int circle_init(struct circle *circle, uint32_t count_max)
{
	uint32_t entries = 1;

	CHECK(count_max > 0);
	while (entries < count_max)
		entries <<= 1;
	circle->count_max = count_max;
	circle->mask = entries - 1;
	circle->flights = calloc(entries, sizeof(*circle->flights));
	return circle->flights ? 0 : -ENOMEM;
}

static void target_free(struct rp_target *target)
{
	free(target->sends.flights);
	free(target->recvs.flights);
	free(target);
}

static int target_enlist(struct rp_target *target)
{
	int err = -ENOSPC;

	pthread_mutex_lock(&targets_lock);
	target->generation = ++target_generation & GENERATION_MASK;
	for (uint32_t i = 0; i < TARGETS_MAX && err; i++) {
		if (atomic_load_explicit(&targets[i], memory_order_relaxed))
			continue;
		target->idx = i;
		atomic_store_explicit(&targets[i], target, memory_order_release);
		err = 0;
	}
	pthread_mutex_unlock(&targets_lock);
	return err;
}

/* No fiber waits without end: operations still in flight are completed as cancelled. */
static void circle_cancel(struct rp_target *target, struct circle *circle)
{
	for (; circle->head != circle->tail; circle->head++) {
		const struct flight *flight = &circle->flights[circle->head & circle->mask];

		if (!(flight->flags & REGION_F_UNSIGNALED))
			complete(target, target->ring, flight, -ECANCELED, 0);
	}
}

static void target_release(struct rp_target *target)
{
	target_check(target);
	circle_cancel(target, &target->sends);
	circle_cancel(target, &target->recvs);
	region_target_remove(target->region, target->number);
	pthread_mutex_lock(&targets_lock);
	CHECK(atomic_load(&targets[target->idx]) == target);
	atomic_store_explicit(&targets[target->idx], NULL, memory_order_release);
	pthread_mutex_unlock(&targets_lock);
	target->qp->target = NULL;
	magic_clear(&target->magic);
	target_free(target);
}

int rp_qp_target(struct rp_qp *qp, struct region *region, uint16_t *ret_target)
{
	struct rp_target *target;
	char label[32];
	int err;

	rp_qp_check(qp);
	if (qp->target)
		return -EEXIST;
	target = calloc(1, sizeof(*target));
	if (!target)
		return -ENOMEM;
	target->magic = TARGET_MAGIC;
	target->qp = qp;
	target->region = region;
	err = circle_init(&target->sends, qp->cap.max_send_wr);
	if (!err)
		err = circle_init(&target->recvs, qp->cap.max_recv_wr);
	if (!err)
		err = target_enlist(target);
	if (err) {
		target_free(target);
		return err;
	}
	snprintf(label, sizeof(label), "%s qp %u", qp->ops->name, qp->num);
	err = region_target_add(region, &target_ops, target, label, &target->number);
	if (err) {
		atomic_store_explicit(&targets[target->idx], NULL, memory_order_release);
		target_free(target);
		return err;
	}
	qp->target = target;
	qp->target_release = target_release;
	*ret_target = target->number;
	return 0;
}

void rp_target_aim(struct rp_qp *qp, struct rp_ah *ah, uint32_t remote_qpn, uint32_t remote_qkey)
{
	rp_qp_check(qp);
	CHECK(qp->target != NULL && qp->type == RP_QP_UD);
	qp->target->ah = ah;
	qp->target->remote_qpn = remote_qpn;
	qp->target->remote_qkey = remote_qkey;
}

/* ---- Completing. ---- */

int rp_status_errno(enum rp_status status)
{
	switch (status) {
	case RP_WC_SUCCESS:
		return 0;
	case RP_WC_LOC_LEN_ERR:
	case RP_WC_REM_INV_REQ_ERR:
		return -EMSGSIZE;
	case RP_WC_LOC_PROT_ERR:
		return -EFAULT;
	case RP_WC_REM_ACCESS_ERR:
		return -EACCES;
	case RP_WC_WR_FLUSH_ERR:
		return -ECANCELED;
	case RP_WC_RETRY_EXC_ERR:
	case RP_WC_RNR_RETRY_EXC_ERR:
		return -ETIMEDOUT;
	default:
		return -EIO;
	}
}

/* Hands a ring entry's completion to its ring; false: no fiber waits for it any more, because the
 * target is gone or its queue was lost. A completion comes from a card, so it is checked, too. */
static bool complete_wc(struct region_ring *ring, const struct rp_wc *wc)
{
	struct rp_target *target = target_of(wc->wr_id);
	bool recv = wc->wr_id >> 62 & 1;
	struct circle *circle;
	uint32_t seq = (uint32_t)wc->wr_id;
	int32_t result = rp_status_errno(wc->status);

	if (!target)
		return false;
	CHECK(target->magic == TARGET_MAGIC);
	circle = recv ? &target->recvs : &target->sends;
	circle_check(circle);
	if (seq - circle->head >= circle->tail - circle->head)
		return false;
	circle->head = seq + 1;
	if (!result)
		result = (int32_t)MIN(wc->byte_len, (uint32_t)INT32_MAX);
	complete(target, ring, &circle->flights[seq & circle->mask], result,
		wc->has_imm ? wc->imm : 0);
	return true;
}

/* The queue lost completions and will have no more: its queue pairs end. Fibers that wait for ring
 * work on them are woken now and not at the close, because they may be the fibers that close
 * them. */
static __attribute__((cold)) void cq_fail(struct rp_cq *cq, int error)
{
	if (!cq->failed)
		log_error("rdma",
			"a completion queue failed (%s): its queue pairs end, and all work in "
			"flight on them fails",
			strerror(-error));
	cq->failed = true;
	/* Targets of other queues open and close meanwhile, but none of this queue. */
	pthread_mutex_lock(&targets_lock);
	for (uint32_t i = 0; i < TARGETS_MAX; i++) {
		struct rp_target *target = atomic_load(&targets[i]);

		if (!target || (target->qp->send_cq != cq && target->qp->recv_cq != cq))
			continue;
		rp_qp_error(target->qp);
		circle_cancel(target, &target->sends);
		circle_cancel(target, &target->recvs);
	}
	pthread_mutex_unlock(&targets_lock);
}

uint32_t rp_cq_drain(struct rp_cq *cq, struct region_ring *ring, rp_wc_fn *fn, void *arg)
{
	struct rp_wc wcs[BATCH];
	uint32_t count = 0;
	int got;

	rp_cq_check(cq);
	do {
		got = rp_cq_poll(cq, wcs, BATCH);
		for (int i = 0; i < got; i++) {
			if (!(wcs[i].wr_id & RP_WR_ID_RING))
				fn(arg, &wcs[i]);
			else if (!complete_wc(ring, &wcs[i]))
				log_trace("rdma", "a completion belongs to no request");
			count++;
		}
	} while (got == (int)BATCH && count < 8 * BATCH);
	if (__builtin_expect(got < 0, 0))
		cq_fail(cq, got);
	return count;
}
