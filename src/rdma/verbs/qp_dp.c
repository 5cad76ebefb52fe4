/* rdma/verbs/qp_dp.c: the verbs provider's data path: posting, polling, arming. Posting and
 * polling take no lock and allocate nothing until a queue pair fails; a batch of work requests goes
 * to the device with one bell. */
#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "rdma/verbs/verbs_priv.h"

/* Scatter lists go to the device as they are. */
_Static_assert(sizeof(struct rp_sge) == sizeof(struct ibv_sge), "same size");
_Static_assert(offsetof(struct rp_sge, addr) == offsetof(struct ibv_sge, addr), "same place");
_Static_assert(offsetof(struct rp_sge, length) == offsetof(struct ibv_sge, length), "same place");
_Static_assert(offsetof(struct rp_sge, lkey) == offsetof(struct ibv_sge, lkey), "same place");

#define FRAME_HEAD_BYTES 14u /* addresses and type */

static struct ibv_sge *sges_of(const struct rp_sge *sges)
{
	return (struct ibv_sge *)(uintptr_t)sges;
}

/* ---- Completions. ---- */

static enum rp_status status_of(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_SUCCESS:
		return RP_WC_SUCCESS;
	case IBV_WC_LOC_LEN_ERR:
		return RP_WC_LOC_LEN_ERR;
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_ACCESS_ERR:
		return RP_WC_LOC_PROT_ERR;
	case IBV_WC_WR_FLUSH_ERR:
		return RP_WC_WR_FLUSH_ERR;
	case IBV_WC_REM_INV_REQ_ERR:
		return RP_WC_REM_INV_REQ_ERR;
	case IBV_WC_REM_ACCESS_ERR:
		return RP_WC_REM_ACCESS_ERR;
	case IBV_WC_REM_OP_ERR:
		return RP_WC_REM_OP_ERR;
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
		return RP_WC_RETRY_EXC_ERR;
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return RP_WC_RNR_RETRY_EXC_ERR;
	default:
		return RP_WC_GENERAL_ERR;
	}
}

static enum rp_opcode opcode_of(const struct ibv_wc *wc)
{
	switch (wc->opcode) {
	case IBV_WC_RDMA_WRITE:
		return wc->wc_flags & IBV_WC_WITH_IMM ? RP_WRITE_IMM : RP_WRITE;
	case IBV_WC_RDMA_READ:
		return RP_READ;
	case IBV_WC_COMP_SWAP:
		return RP_CMP_SWAP;
	case IBV_WC_FETCH_ADD:
		return RP_FETCH_ADD;
	case IBV_WC_RECV:
		return RP_RECV;
	case IBV_WC_RECV_RDMA_WITH_IMM:
		return RP_RECV_WRITE_IMM;
	default:
		return RP_SEND;
	}
}

static void wc_convert(const struct ibv_wc *from, struct rp_wc *to)
{
	*to = (struct rp_wc){
		.wr_id = from->wr_id,
		.status = status_of(from->status),
		.qpn = from->qp_num,
	};
	/* The device reports no more than this of a failed one. */
	if (VERBS_UNLIKELY(from->status != IBV_WC_SUCCESS))
		return;
	to->opcode = opcode_of(from);
	to->byte_len = from->byte_len;
	to->src_qpn = from->src_qp;
	to->has_grh = from->wc_flags & IBV_WC_GRH;
	to->slid = from->slid;
	to->sl = from->sl;
	to->path_bits = from->dlid_path_bits;
	if (from->opcode & IBV_WC_RECV && from->wc_flags & IBV_WC_WITH_IMM) {
		to->has_imm = true;
		to->imm = ntohl(from->imm_data);
	}
}

int verbs_take(struct verbs_cq *cq, struct rp_wc *wcs, uint32_t max)
{
	struct ibv_wc from[VERBS_BATCH];
	int got = ibv_poll_cq(cq->cq, (int)MIN(max, VERBS_BATCH), from);

	if (VERBS_UNLIKELY(got < 0))
		return -EIO;
	CHECK(got <= (int)VERBS_BATCH);
	for (int i = 0; i < got; i++) {
		wc_convert(&from[i], &wcs[i]);
		if (VERBS_UNLIKELY(from[i].status != IBV_WC_SUCCESS &&
				   from[i].status != IBV_WC_WR_FLUSH_ERR))
			verbs_qp_failed(cq->device, &from[i]);
	}
	cq->row += (uint32_t)got;
	return got;
}

static uint32_t take_kept(struct verbs_cq *cq, struct rp_wc *wcs, uint32_t max)
{
	uint32_t count = MIN(max, cq->kept_count - cq->kept_head);

	for (uint32_t i = 0; i < count; i++)
		wcs[i] = cq->kept[cq->kept_head++];
	if (cq->kept_head == cq->kept_count)
		cq->kept_head = cq->kept_count = 0;
	return count;
}

int verbs_cq_poll(struct rp_cq *base, struct rp_wc *wcs, uint32_t max)
{
	struct verbs_cq *cq = verbs_cq(base);
	uint32_t count = 0;

	verbs_cq_check(cq);
	if (VERBS_UNLIKELY(cq->kept_count))
		count = take_kept(cq, wcs, max);
	while (count < max) {
		uint32_t want = MIN(max - count, VERBS_BATCH);
		int got = verbs_take(cq, wcs + count, want);

		if (VERBS_UNLIKELY(got < 0))
			return count ? (int)count : got;
		count += (uint32_t)got;
		if ((uint32_t)got < want)
			break;
	}
	if (VERBS_LIKELY(count))
		return (int)count;
	if (VERBS_UNLIKELY(cq->row >= (uint32_t)cq->cq->cqe))
		verbs_cq_look(cq);
	cq->row = 0;
	return VERBS_UNLIKELY(atomic_load_explicit(&cq->overrun, memory_order_relaxed)) ? -EIO : 0;
}

/* ---- Sleeping. ---- */

void verbs_cq_disarm(struct rp_cq *base)
{
	struct verbs_cq *cq = verbs_cq(base);
	struct ibv_cq *from;
	void *context;
	unsigned int count = 0;

	while (!ibv_get_cq_event(cq->channel, &from, &context))
		count++;
	if (count) {
		ibv_ack_cq_events(cq->cq, count);
		cq->armed = false;
	}
}

bool verbs_cq_arm(struct rp_cq *base)
{
	struct verbs_cq *cq = verbs_cq(base);

	/* An armed queue stays armed until it reports. A device that refuses is gone: the caller
	 * would only ask again and again. */
	verbs_cq_disarm(base);
	if (!cq->armed)
		cq->armed = !ibv_req_notify_cq(cq->cq, 0);
	/* The device does not report completions from before the request: look once more. */
	if (!cq->kept_count) {
		struct rp_wc wc;
		int got = verbs_take(cq, &wc, 1);

		if (got == 0)
			return true;
		if (got > 0)
			verbs_cq_keep(cq, &wc);
	}
	return false;
}

/* ---- Sends. ---- */

static const enum ibv_wr_opcode opcodes[] = {
	[RP_SEND] = IBV_WR_SEND,
	[RP_SEND_IMM] = IBV_WR_SEND_WITH_IMM,
	[RP_WRITE] = IBV_WR_RDMA_WRITE,
	[RP_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
	[RP_READ] = IBV_WR_RDMA_READ,
	[RP_CMP_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
	[RP_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
};

unsigned int verbs_send_flags(uint32_t flags)
{
	return (flags & RP_SEND_SIGNALED ? IBV_SEND_SIGNALED : 0u) |
	       (flags & RP_SEND_INLINE ? IBV_SEND_INLINE : 0u) |
	       (flags & RP_SEND_SOLICITED ? IBV_SEND_SOLICITED : 0u) |
	       (flags & RP_SEND_FENCE ? IBV_SEND_FENCE : 0u);
}

static bool is_atomic(enum rp_opcode opcode)
{
	return opcode == RP_CMP_SWAP || opcode == RP_FETCH_ADD;
}

static bool knows_reads(const struct verbs_qp *qp)
{
	return qp->type == RP_QP_RC || qp->type == RP_QP_DCI;
}

static bool is_datagram(const struct verbs_qp *qp)
{
	return qp->type == RP_QP_UD || qp->type == RP_QP_RAW;
}

static bool datagram_is_wrong(
	const struct verbs_qp *qp, const struct rp_send_wr *wr, uint64_t total)
{
	if (qp->type == RP_QP_UD)
		return wr->opcode > RP_SEND_IMM || !wr->ah ||
		       total > 128u << qp->device->port.active_mtu;
	return wr->opcode != RP_SEND || total < FRAME_HEAD_BYTES;
}

bool verbs_send_is_wrong(const struct verbs_qp *qp, const struct rp_send_wr *wr)
{
	uint64_t total = 0;

	if (wr->opcode > RP_FETCH_ADD || wr->sge_count > qp->base.cap.max_send_sge)
		return true;
	if (VERBS_UNLIKELY(is_atomic(wr->opcode)))
		return wr->sge_count != 1 || wr->sg_list[0].length != 8 ||
		       wr->flags & RP_SEND_INLINE || !knows_reads(qp);
	if (wr->opcode == RP_READ && (wr->flags & RP_SEND_INLINE || !knows_reads(qp)))
		return true;
	if (VERBS_LIKELY(!(wr->flags & RP_SEND_INLINE) && !is_datagram(qp)))
		return false;
	for (uint32_t i = 0; i < wr->sge_count; i++)
		total += wr->sg_list[i].length;
	if (wr->flags & RP_SEND_INLINE && total > qp->base.cap.max_inline_data)
		return true;
	return VERBS_UNLIKELY(is_datagram(qp)) && datagram_is_wrong(qp, wr, total);
}

static void send_convert(const struct rp_send_wr *from, struct ibv_send_wr *to)
{
	to->wr_id = from->wr_id;
	to->next = to + 1;
	to->sg_list = sges_of(from->sg_list);
	to->num_sge = (int)from->sge_count;
	to->opcode = opcodes[from->opcode];
	to->send_flags = verbs_send_flags(from->flags);
	to->imm_data = htonl(from->imm);
	if (VERBS_UNLIKELY(is_atomic(from->opcode))) {
		to->wr.atomic.remote_addr = from->remote_addr;
		to->wr.atomic.compare_add = from->compare_add;
		to->wr.atomic.swap = from->swap;
		to->wr.atomic.rkey = from->rkey;
	} else if (VERBS_UNLIKELY(from->ah != NULL)) {
		to->wr.ud.ah = CONTAINER_OF(from->ah, struct verbs_ah, base)->ah;
		to->wr.ud.remote_qpn = from->remote_qpn;
		to->wr.ud.remote_qkey = from->remote_qkey;
	} else {
		to->wr.rdma.remote_addr = from->remote_addr;
		to->wr.rdma.rkey = from->rkey;
	}
}

/* Posts up to a batch; returns how many were posted, and why not all of them. */
static uint32_t send_batch(
	struct verbs_qp *qp, const struct rp_send_wr *wrs, uint32_t count, int *ret_err)
{
	struct ibv_send_wr batch[VERBS_BATCH];
	struct ibv_send_wr *bad = NULL;
	uint32_t ready = 0;
	int err;

	*ret_err = 0;
	CHECK(count <= VERBS_BATCH);
	for (; ready < count; ready++) {
		if (VERBS_UNLIKELY(verbs_send_is_wrong(qp, &wrs[ready]))) {
			*ret_err = -EINVAL;
			break;
		}
		send_convert(&wrs[ready], &batch[ready]);
	}
	if (!ready)
		return 0;
	batch[ready - 1].next = NULL;
	err = ibv_post_send(qp->qp, batch, &bad);
	if (VERBS_LIKELY(!err))
		return ready;
	*ret_err = -abs(err);
	return bad ? (uint32_t)(bad - batch) : 0;
}

int verbs_post_send(
	struct rp_qp *base, const struct rp_send_wr *wrs, uint32_t count, uint32_t *ret_posted)
{
	struct verbs_qp *qp = verbs_qp(base);
	enum rp_qp_state state = atomic_load_explicit(&qp->state, memory_order_acquire);
	uint32_t posted = 0;
	int err = 0;

	verbs_qp_check(qp);
	*ret_posted = 0;
	if (VERBS_UNLIKELY(state != RP_QPS_RTS && state != RP_QPS_ERR))
		return -ENOTCONN;
	while (posted < count && !err) {
		uint32_t want = MIN(count - posted, VERBS_BATCH);

		posted += VERBS_UNLIKELY(qp->dci != NULL)
				  ? verbs_dc_send(qp, wrs + posted, want, &err)
				  : send_batch(qp, wrs + posted, want, &err);
	}
	if (VERBS_UNLIKELY(state == RP_QPS_ERR))
		verbs_qp_flush(qp);
	*ret_posted = posted;
	return err;
}

/* ---- Receives. ---- */

static uint32_t recv_convert(struct ibv_recv_wr batch[VERBS_BATCH], const struct rp_recv_wr *wrs,
	uint32_t count, uint32_t sge_max)
{
	uint32_t ready = 0;

	CHECK(count <= VERBS_BATCH);
	for (; ready < count && wrs[ready].sge_count <= sge_max; ready++)
		batch[ready] = (struct ibv_recv_wr){
			.wr_id = wrs[ready].wr_id,
			.next = &batch[ready + 1],
			.sg_list = sges_of(wrs[ready].sg_list),
			.num_sge = (int)wrs[ready].sge_count,
		};
	if (ready)
		batch[ready - 1].next = NULL;
	return ready;
}

int verbs_post_recv(
	struct rp_qp *base, const struct rp_recv_wr *wrs, uint32_t count, uint32_t *ret_posted)
{
	struct verbs_qp *qp = verbs_qp(base);
	uint32_t posted = 0;
	int err = 0;

	verbs_qp_check(qp);
	*ret_posted = 0;
	if (VERBS_UNLIKELY(qp->has_srq))
		return -EINVAL;
	while (posted < count && !err) {
		struct ibv_recv_wr batch[VERBS_BATCH], *bad = NULL;
		uint32_t want = MIN(count - posted, VERBS_BATCH);
		uint32_t ready = recv_convert(batch, wrs + posted, want, qp->base.cap.max_recv_sge);

		err = ready ? -abs(ibv_post_recv(qp->qp, batch, &bad)) : 0;
		posted += err ? (bad ? (uint32_t)(bad - batch) : 0) : ready;
		if (!err && ready < want)
			err = -EINVAL;
	}
	if (VERBS_UNLIKELY(atomic_load_explicit(&qp->state, memory_order_relaxed) == RP_QPS_ERR))
		verbs_qp_flush(qp);
	*ret_posted = posted;
	return err;
}

int verbs_srq_post(
	struct rp_srq *base, const struct rp_recv_wr *wrs, uint32_t count, uint32_t *ret_posted)
{
	struct verbs_srq *srq = CONTAINER_OF(base, struct verbs_srq, base);
	uint32_t posted = 0;
	int err = 0;

	while (posted < count && !err) {
		struct ibv_recv_wr batch[VERBS_BATCH], *bad = NULL;
		uint32_t want = MIN(count - posted, VERBS_BATCH);
		uint32_t ready = recv_convert(batch, wrs + posted, want, srq->sge_max);

		err = ready ? -abs(ibv_post_srq_recv(srq->srq, batch, &bad)) : 0;
		posted += err ? (bad ? (uint32_t)(bad - batch) : 0) : ready;
		if (!err && ready < want)
			err = -EINVAL;
	}
	*ret_posted = posted;
	return err;
}
