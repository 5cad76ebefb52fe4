/* tests/unit/rdma/loopback/qp.c: the loopback provider's queues: posting, moving the bytes,
 * completing, and the error state.
 *
 * A send executes when it is posted. One that needs a receive and finds none waits, with all after
 * it, until the peer posts one, or until a poll finds that its time is over. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/unit/rdma/loopback/loopback.h"

static uint32_t last_qpn;

/* ---- Completion queues. ---- */

int loop_cq_open(struct rp_device *base, uint32_t cqe_count, struct rp_cq **ret_cq)
{
	struct loop_cq *cq;
	int err;

	if (cqe_count > LOOP_CQES_MAX)
		return -EINVAL;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return -ENOMEM;
	cq->base.ops = &loop_ops;
	cq->device = CONTAINER_OF(base, struct loop_device, base);
	cq->cqe_count = cqe_count;
	cq->wcs = calloc(cqe_count, sizeof(*cq->wcs));
	cq->base.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!cq->wcs || cq->base.fd < 0) {
		err = cq->wcs ? -errno : -ENOMEM;
		if (cq->base.fd >= 0)
			close(cq->base.fd);
		free(cq->wcs);
		free(cq);
		return err;
	}
	loop_count(cq->device, 1);
	*ret_cq = &cq->base;
	return 0;
}

void loop_cq_close(struct rp_cq *base)
{
	struct loop_cq *cq = CONTAINER_OF(base, struct loop_cq, base);

	CHECK(cq->qp_count == 0);
	loop_count(cq->device, -1);
	close(base->fd);
	free(cq->wcs);
	free(cq);
}

/* Locked. A completion without room is lost, and the next poll of the empty queue reports it. */
static void complete(struct loop_cq *cq, const struct rp_wc *wc)
{
	CHECK(cq->tail - cq->head <= cq->cqe_count);
	if (cq->tail - cq->head == cq->cqe_count) {
		cq->overrun = true;
		return;
	}
	cq->wcs[cq->tail++ % cq->cqe_count] = *wc;
	if (cq->bell == LOOP_CQ_ARMED) {
		cq->bell = LOOP_CQ_TOLD;
		rp_event_fd_set(cq->base.fd);
	}
}

/* ---- The error state. ---- */

static void flush_recvs(struct loop_qp *qp)
{
	for (; qp->rq.head != qp->rq.tail; qp->rq.head++) {
		const struct loop_recv *recv = &qp->rq.recvs[qp->rq.head % qp->rq.wr_max];
		const struct rp_wc wc = {.wr_id = recv->wr_id,
			.status = RP_WC_WR_FLUSH_ERR,
			.opcode = RP_RECV,
			.qpn = qp->base.num};

		complete(qp->recv_cq, &wc);
	}
}

static void send_complete(struct loop_qp *qp, const struct loop_send *send, enum rp_status status)
{
	const struct rp_wc wc = {.wr_id = send->wr.wr_id,
		.status = status,
		.opcode = send->wr.opcode,
		.byte_len = send->total,
		.qpn = qp->base.num};

	if (status != RP_WC_SUCCESS || (send->wr.flags & RP_SEND_SIGNALED))
		complete(qp->send_cq, &wc);
}

void loop_qp_fail(struct loop_qp *qp)
{
	qp->state = RP_QPS_ERR;
	for (; qp->sq_head != qp->sq_tail; qp->sq_head++)
		send_complete(
			qp, &qp->sq[qp->sq_head % qp->base.cap.max_send_wr], RP_WC_WR_FLUSH_ERR);
	flush_recvs(qp);
}

void loop_qp_error(struct rp_qp *base)
{
	pthread_mutex_lock(&loop_lock);
	loop_qp_fail(CONTAINER_OF(base, struct loop_qp, base));
	pthread_mutex_unlock(&loop_lock);
}

/* ---- Moving bytes. ---- */

/* Both lists are of memory that has been checked; to has at least as much room as from has bytes.
 */
static void copy(const struct rp_sge *to, const struct rp_sge *from, uint32_t bytes)
{
	uint32_t to_at = 0, from_at = 0;

	while (bytes) {
		uint32_t n = MIN(MIN(to->length - to_at, from->length - from_at), bytes);

		memmove((uint8_t *)(uintptr_t)to->addr + to_at,
			(uint8_t *)(uintptr_t)from->addr + from_at, n);
		bytes -= n;
		to_at += n;
		from_at += n;
		if (to_at == to->length) {
			to++;
			to_at = 0;
		}
		if (from_at == from->length) {
			from++;
			from_at = 0;
		}
	}
}

static bool local_ok(
	const struct loop_qp *qp, const struct rp_sge *sges, uint32_t count, uint32_t access)
{
	for (uint32_t i = 0; i < count; i++)
		if (sges[i].length &&
			!loop_mr_find(qp->pd, sges[i].lkey, sges[i].addr, sges[i].length, access))
			return false;
	return true;
}

static struct loop_rq *rq_of(struct loop_qp *qp)
{
	return qp->srq ? &qp->srq->rq : &qp->rq;
}

/* Delivers the current message, of so many bytes, to the peer's next receive. */
static enum rp_status deliver(struct loop_qp *qp, struct loop_send *send, uint32_t bytes)
{
	struct loop_qp *peer = qp->peer;
	struct loop_rq *rq = rq_of(peer);
	const struct loop_recv *recv = &rq->recvs[rq->head++ % rq->wr_max];
	bool imm_only = send->wr.opcode == RP_WRITE_IMM;
	enum rp_status told = RP_WC_SUCCESS;
	uint64_t room = 0;
	struct rp_wc wc = {.wr_id = recv->wr_id,
		.opcode = imm_only ? RP_RECV_WRITE_IMM : RP_RECV,
		.byte_len = send->total,
		.imm = send->wr.imm,
		.has_imm = imm_only || send->wr.opcode == RP_SEND_IMM,
		.qpn = peer->base.num,
		.src_qpn = qp->base.num};

	for (uint32_t i = 0; i < recv->sge_count; i++)
		room += recv->sges[i].length;
	if (!local_ok(peer, recv->sges, recv->sge_count, RP_ACCESS_LOCAL_WRITE)) {
		wc.status = RP_WC_LOC_PROT_ERR;
		told = RP_WC_REM_OP_ERR;
	} else if (bytes > room) {
		wc.status = RP_WC_LOC_LEN_ERR;
		told = RP_WC_REM_INV_REQ_ERR;
	} else {
		copy(recv->sges, send->sges, bytes);
		peer->received++;
	}
	complete(peer->recv_cq, &wc);
	if (told)
		loop_qp_fail(peer);
	return told;
}

static uint64_t atomic_do(uint64_t addr, const struct rp_send_wr *wr)
{
	uint64_t *word = (uint64_t *)(uintptr_t)addr, old = wr->compare_add;

	if (wr->opcode == RP_FETCH_ADD)
		return __atomic_fetch_add(word, wr->compare_add, __ATOMIC_SEQ_CST);
	__atomic_compare_exchange_n(
		word, &old, wr->swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return old;
}

/* A write, read or atomic. One of no bytes touches no memory, so it needs no key. */
static enum rp_status move(struct loop_qp *qp, struct loop_send *send)
{
	static const uint32_t access[] = {
		[RP_WRITE] = RP_ACCESS_REMOTE_WRITE,
		[RP_WRITE_IMM] = RP_ACCESS_REMOTE_WRITE,
		[RP_READ] = RP_ACCESS_REMOTE_READ,
		[RP_CMP_SWAP] = RP_ACCESS_REMOTE_ATOMIC,
		[RP_FETCH_ADD] = RP_ACCESS_REMOTE_ATOMIC,
	};
	struct rp_send_wr *wr = &send->wr;
	struct rp_sge remote = {wr->remote_addr, send->total, wr->rkey};
	uint64_t old;

	if (!send->total)
		return RP_WC_SUCCESS;
	if (!loop_mr_find(qp->peer->pd, wr->rkey, wr->remote_addr, send->total, access[wr->opcode]))
		return RP_WC_REM_ACCESS_ERR;
	switch (wr->opcode) {
	case RP_READ:
		copy(send->sges, &remote, send->total);
		break;
	case RP_WRITE:
	case RP_WRITE_IMM:
		copy(&remote, send->sges, send->total);
		break;
	default:
		if (wr->remote_addr % sizeof(old))
			return RP_WC_REM_INV_REQ_ERR;
		old = atomic_do(wr->remote_addr, wr);
		remote.addr = (uintptr_t)&old;
		copy(send->sges, &remote, sizeof(old));
		break;
	}
	return RP_WC_SUCCESS;
}

/* The peer has posted no receive: 0 (try again later), or the status that ends the send. */
static enum rp_status be_patient(const struct loop_qp *qp, struct loop_send *send)
{
	uint64_t now_ns = clock_now_ns();

	if (qp->rnr_retry_count == 7 || now_ns < send->next_try_ns)
		return RP_WC_SUCCESS;
	send->next_try_ns = now_ns + LOOP_RNR_WAIT_NS;
	return send->rnr_tries++ < qp->rnr_retry_count ? RP_WC_SUCCESS : RP_WC_RNR_RETRY_EXC_ERR;
}

/* True: it is done, with *ret_status. */
static bool execute_one(struct loop_qp *qp, struct loop_send *send, enum rp_status *ret_status)
{
	enum rp_opcode opcode = send->wr.opcode;
	bool message = opcode == RP_SEND || opcode == RP_SEND_IMM;
	bool lands_here = opcode == RP_READ || opcode >= RP_CMP_SWAP;
	struct loop_rq *rq = rq_of(qp->peer);

	*ret_status = RP_WC_LOC_PROT_ERR;
	if (!(send->wr.flags & RP_SEND_INLINE) && !local_ok(qp, send->sges, send->wr.sge_count,
							  lands_here ? RP_ACCESS_LOCAL_WRITE : 0))
		return true;
	if ((message || opcode == RP_WRITE_IMM) && rq->head == rq->tail) {
		*ret_status = be_patient(qp, send);
		return *ret_status != RP_WC_SUCCESS;
	}
	*ret_status = message ? RP_WC_SUCCESS : move(qp, send);
	if (!*ret_status && (message || opcode == RP_WRITE_IMM))
		*ret_status = deliver(qp, send, message ? send->total : 0);
	return true;
}

/* Locked. */
static void info_fill(const struct loop_qp *qp, struct rp_qp_info *ret_info)
{
	memcpy(ret_info->device, "loopback", sizeof("loopback"));
	ret_info->state = qp->state;
	ret_info->dest_qpn = qp->peer ? qp->peer->base.num : 0;
	ret_info->sq_psn = qp->sent;
	ret_info->rq_psn = qp->received;
	ret_info->timeout_us = qp->timeout_us;
	ret_info->path_mtu = LOOP_MTU;
	ret_info->retry_count = qp->retry_count;
	ret_info->rnr_retry_count = qp->rnr_retry_count;
}

/* Locked. Continues with the posted sends, in order. */
static void execute(struct loop_qp *qp)
{
	while (qp->state == RP_QPS_RTS && qp->sq_head != qp->sq_tail) {
		struct loop_send *send = &qp->sq[qp->sq_head % qp->base.cap.max_send_wr];
		enum rp_status status;

		if (!execute_one(qp, send, &status))
			return;
		qp->sq_head++;
		qp->sent++;
		send_complete(qp, send, status);
		if (status != RP_WC_SUCCESS) {
			struct rp_qp_info info = {.type = RP_QP_RC, .qpn = qp->base.num};

			loop_qp_fail(qp);
			info_fill(qp, &info);
			rp_qp_log_failure(&qp->device->base, &info, rp_status_str(status));
		}
	}
}

/* ---- Receive queues. ---- */

static int rq_init(struct loop_rq *rq, uint32_t wr_max, uint32_t sge_max)
{
	rq->wr_max = wr_max;
	rq->sge_max = sge_max;
	rq->recvs = calloc(wr_max, sizeof(*rq->recvs));
	return rq->recvs ? 0 : -ENOMEM;
}

int loop_srq_open(struct rp_pd *base, uint32_t max_wr, uint32_t max_sge, struct rp_srq **ret_srq)
{
	struct loop_srq *srq;

	if (max_wr > LOOP_WRS_MAX)
		return -EINVAL;
	srq = calloc(1, sizeof(*srq));
	if (!srq || rq_init(&srq->rq, max_wr, max_sge)) {
		free(srq);
		return -ENOMEM;
	}
	srq->base.ops = &loop_ops;
	srq->pd = CONTAINER_OF(base, struct loop_pd, base);
	loop_count(srq->pd->device, 1);
	*ret_srq = &srq->base;
	return 0;
}

void loop_srq_close(struct rp_srq *base)
{
	struct loop_srq *srq = CONTAINER_OF(base, struct loop_srq, base);

	CHECK(srq->qp_count == 0);
	loop_count(srq->pd->device, -1);
	free(srq->rq.recvs);
	free(srq);
}

static int recvs_put(
	struct loop_rq *rq, const struct rp_recv_wr *wrs, uint32_t count, uint32_t *ret_posted)
{
	for (; *ret_posted < count; ++*ret_posted) {
		const struct rp_recv_wr *wr = &wrs[*ret_posted];
		struct loop_recv *recv = &rq->recvs[rq->tail % rq->wr_max];

		if (wr->sge_count > rq->sge_max)
			return -EINVAL;
		if (rq->tail - rq->head == rq->wr_max)
			return -ENOMEM;
		recv->wr_id = wr->wr_id;
		recv->sge_count = wr->sge_count;
		if (wr->sge_count)
			memcpy(recv->sges, wr->sg_list, wr->sge_count * sizeof(*wr->sg_list));
		rq->tail++;
	}
	return 0;
}

int loop_srq_post(
	struct rp_srq *base, const struct rp_recv_wr *wrs, uint32_t count, uint32_t *ret_posted)
{
	struct loop_srq *srq = CONTAINER_OF(base, struct loop_srq, base);
	int err;

	*ret_posted = 0;
	pthread_mutex_lock(&loop_lock);
	err = recvs_put(&srq->rq, wrs, count, ret_posted);
	LIST_FOR_EACH (link, &srq->pd->device->qps) {
		struct loop_qp *qp = CONTAINER_OF(link, struct loop_qp, link);

		if (qp->srq == srq && qp->peer)
			execute(qp->peer);
	}
	pthread_mutex_unlock(&loop_lock);
	return err;
}

int loop_post_recv(
	struct rp_qp *base, const struct rp_recv_wr *wrs, uint32_t count, uint32_t *ret_posted)
{
	struct loop_qp *qp = CONTAINER_OF(base, struct loop_qp, base);
	int err;

	*ret_posted = 0;
	if (qp->srq)
		return -EINVAL;
	pthread_mutex_lock(&loop_lock);
	err = recvs_put(&qp->rq, wrs, count, ret_posted);
	if (qp->state == RP_QPS_ERR)
		flush_recvs(qp);
	else if (qp->peer)
		execute(qp->peer);
	pthread_mutex_unlock(&loop_lock);
	return err;
}

/* ---- Queue pairs. ---- */

int loop_qp_open(struct rp_pd *base, const struct rp_qp_attr *attr, struct rp_qp **ret_qp)
{
	struct loop_qp *qp;

	if (attr->type != RP_QP_RC)
		return -EOPNOTSUPP;
	if (attr->cap.max_send_wr > LOOP_WRS_MAX || attr->cap.max_recv_wr > LOOP_WRS_MAX ||
		attr->cap.max_inline_data > LOOP_INLINE_BYTES)
		return -EINVAL;
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return -ENOMEM;
	qp->sq = calloc(attr->cap.max_send_wr, sizeof(*qp->sq));
	if (!qp->sq || rq_init(&qp->rq, attr->cap.max_recv_wr, attr->cap.max_recv_sge)) {
		free(qp->sq);
		free(qp);
		return -ENOMEM;
	}
	qp->base.ops = &loop_ops;
	qp->base.cap = attr->cap;
	qp->base.cap.max_inline_data = LOOP_INLINE_BYTES;
	qp->pd = CONTAINER_OF(base, struct loop_pd, base);
	qp->device = qp->pd->device;
	qp->send_cq = CONTAINER_OF(attr->send_cq, struct loop_cq, base);
	qp->recv_cq = CONTAINER_OF(attr->recv_cq, struct loop_cq, base);
	qp->srq = attr->srq ? CONTAINER_OF(attr->srq, struct loop_srq, base) : NULL;
	qp->retry_count = attr->retry_count;
	qp->rnr_retry_count = attr->rnr_retry_count;
	qp->timeout_us = attr->timeout_us ? attr->timeout_us : LOOP_TIMEOUT_US;
	list_init(&qp->joining_link);
	pthread_mutex_lock(&loop_lock);
	qp->base.num = ++last_qpn & RP_GROUP_QPN;
	qp->send_cq->qp_count++;
	qp->recv_cq->qp_count++;
	if (qp->srq)
		qp->srq->qp_count++;
	list_push_back(&qp->device->qps, &qp->link);
	pthread_mutex_unlock(&loop_lock);
	*ret_qp = &qp->base;
	return 0;
}

/* Locked. Removes a closed queue pair's completions from a queue. */
static void completions_forget(struct loop_cq *cq, uint32_t qpn)
{
	uint32_t kept = cq->head;

	for (uint32_t i = cq->head; i != cq->tail; i++)
		if (cq->wcs[i % cq->cqe_count].qpn != qpn)
			cq->wcs[kept++ % cq->cqe_count] = cq->wcs[i % cq->cqe_count];
	cq->tail = kept;
}

void loop_qp_close(struct rp_qp *base)
{
	struct loop_qp *qp = CONTAINER_OF(base, struct loop_qp, base);

	pthread_mutex_lock(&loop_lock);
	loop_cm_forget(qp);
	completions_forget(qp->send_cq, base->num);
	completions_forget(qp->recv_cq, base->num);
	qp->send_cq->qp_count--;
	qp->recv_cq->qp_count--;
	if (qp->srq)
		qp->srq->qp_count--;
	list_remove(&qp->link);
	pthread_mutex_unlock(&loop_lock);
	free(qp->rq.recvs);
	free(qp->sq);
	free(qp);
}

enum rp_qp_state loop_qp_state(const struct rp_qp *base)
{
	enum rp_qp_state state;

	pthread_mutex_lock(&loop_lock);
	state = CONTAINER_OF(base, const struct loop_qp, base)->state;
	pthread_mutex_unlock(&loop_lock);
	return state;
}

void loop_qp_info(struct rp_qp *base, struct rp_qp_info *ret_info)
{
	pthread_mutex_lock(&loop_lock);
	info_fill(CONTAINER_OF(base, struct loop_qp, base), ret_info);
	pthread_mutex_unlock(&loop_lock);
}

/* ---- Posting sends. ---- */

/* The bytes of a well-formed request, or -EINVAL. */
static int64_t send_bytes(const struct loop_qp *qp, const struct rp_send_wr *wr)
{
	bool is_atomic = wr->opcode == RP_CMP_SWAP || wr->opcode == RP_FETCH_ADD;
	uint64_t total = 0;

	if (wr->opcode > RP_FETCH_ADD || wr->sge_count > qp->base.cap.max_send_sge)
		return -EINVAL;
	for (uint32_t i = 0; i < wr->sge_count; i++)
		total += wr->sg_list[i].length;
	if (total > LOOP_BYTES_MAX || (is_atomic && (wr->sge_count != 1 || total != 8)))
		return -EINVAL;
	if ((wr->flags & RP_SEND_INLINE) &&
		(is_atomic || wr->opcode == RP_READ || total > LOOP_INLINE_BYTES))
		return -EINVAL;
	return (int64_t)total;
}

static void send_put(struct loop_qp *qp, const struct rp_send_wr *wr, uint32_t total)
{
	struct loop_send *send = &qp->sq[qp->sq_tail++ % qp->base.cap.max_send_wr];

	CHECK(qp->sq_tail - qp->sq_head <= qp->base.cap.max_send_wr);
	*send = (struct loop_send){.wr = *wr, .total = total};
	if (wr->sge_count)
		memcpy(send->sges, wr->sg_list, wr->sge_count * sizeof(*wr->sg_list));
	send->wr.sg_list = send->sges;
	if (wr->flags & RP_SEND_INLINE) {
		struct rp_sge kept = {(uintptr_t)send->data, total, 0};

		copy(&kept, send->sges, total);
		send->sges[0] = kept;
		send->wr.sge_count = 1;
	}
}

int loop_post_send(
	struct rp_qp *base, const struct rp_send_wr *wrs, uint32_t count, uint32_t *ret_posted)
{
	struct loop_qp *qp = CONTAINER_OF(base, struct loop_qp, base);
	int64_t total;
	int err = 0;

	*ret_posted = 0;
	pthread_mutex_lock(&loop_lock);
	if (qp->state == RP_QPS_INIT)
		err = -ENOTCONN;
	for (; !err && *ret_posted < count; *ret_posted += !err) {
		total = send_bytes(qp, &wrs[*ret_posted]);
		if (total < 0)
			err = (int)total;
		else if (qp->sq_tail - qp->sq_head == base->cap.max_send_wr)
			err = -ENOMEM;
		else
			send_put(qp, &wrs[*ret_posted], (uint32_t)total);
	}
	if (qp->state == RP_QPS_ERR)
		loop_qp_fail(qp);
	else if (qp->state == RP_QPS_RTS)
		execute(qp);
	pthread_mutex_unlock(&loop_lock);
	return err;
}

/* ---- Polling. ---- */

/* Locked. Continues with the waiting sends, each for a limited time. A lost queue ends all. */
static bool progress(struct loop_cq *cq)
{
	bool timing = false;

	LIST_FOR_EACH (link, &cq->device->qps) {
		struct loop_qp *qp = CONTAINER_OF(link, struct loop_qp, link);

		if (qp->send_cq != cq && qp->recv_cq != cq)
			continue;
		if (cq->overrun)
			loop_qp_fail(qp);
		else if (qp->send_cq == cq)
			execute(qp);
		timing |= qp->sq_head != qp->sq_tail && qp->rnr_retry_count < 7;
	}
	return timing;
}

int loop_cq_poll(struct rp_cq *base, struct rp_wc *wcs, uint32_t max)
{
	struct loop_cq *cq = CONTAINER_OF(base, struct loop_cq, base);
	uint32_t count = 0;
	int got;

	pthread_mutex_lock(&loop_lock);
	if (cq->head == cq->tail)
		progress(cq);
	while (count < max && cq->head != cq->tail)
		wcs[count++] = cq->wcs[cq->head++ % cq->cqe_count];
	got = cq->overrun && !count ? -EIO : (int)count;
	pthread_mutex_unlock(&loop_lock);
	return got;
}

bool loop_cq_arm(struct rp_cq *base)
{
	struct loop_cq *cq = CONTAINER_OF(base, struct loop_cq, base);
	bool armed;

	pthread_mutex_lock(&loop_lock);
	armed = !progress(cq) && cq->head == cq->tail && !cq->overrun;
	if (armed)
		cq->bell = LOOP_CQ_ARMED;
	pthread_mutex_unlock(&loop_lock);
	return armed;
}

void loop_cq_disarm(struct rp_cq *base)
{
	struct loop_cq *cq = CONTAINER_OF(base, struct loop_cq, base);

	pthread_mutex_lock(&loop_lock);
	if (cq->bell == LOOP_CQ_TOLD)
		rp_event_fd_clear(base->fd);
	cq->bell = LOOP_CQ_IDLE;
	pthread_mutex_unlock(&loop_lock);
}
