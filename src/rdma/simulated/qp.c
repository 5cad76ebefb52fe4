/* rdma/simulated/qp.c: opens, closes and starts the simulated provider's queues, and moves queue
 * pairs to the error state. The data path calls this file only when something ends. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/sanitizer.h"
#include "rdma/simulated/simulated_priv.h"

static uint32_t round_up_pow2(uint32_t n)
{
	uint32_t pow2 = 1;

	while (pow2 < n)
		pow2 <<= 1;
	return pow2;
}

static void count_object(struct sim_device *device, int change)
{
	pthread_mutex_lock(&device->lock);
	device->open_objects += (uint32_t)change;
	CHECK(device->open_objects < UINT32_MAX / 2);
	pthread_mutex_unlock(&device->lock);
}

/* ---- Completion queues. ---- */

/* Takes a bell of the device; -ENOSPC: all are in use. */
static int bell_take(struct sim_device *device, uint32_t *ret_idx)
{
	int err = -ENOSPC;

	pthread_mutex_lock(&device->lock);
	for (uint32_t i = 0; i < SIM_CQS_MAX && err; i++) {
		uint64_t bit = 1ull << (i % 64);

		if (device->cqs_used[i / 64] & bit)
			continue;
		device->cqs_used[i / 64] |= bit;
		device->open_objects++;
		*ret_idx = i;
		err = 0;
	}
	pthread_mutex_unlock(&device->lock);
	return err;
}

static void bell_give(struct sim_device *device, uint32_t idx)
{
	pthread_mutex_lock(&device->lock);
	CHECK(idx < SIM_CQS_MAX);
	CHECK(device->cqs_used[idx / 64] >> (idx % 64) & 1);
	CHECK(device->open_objects > 0);
	device->cqs_used[idx / 64] &= ~(1ull << (idx % 64));
	device->open_objects--;
	pthread_mutex_unlock(&device->lock);
}

/* One descriptor for the eventfd that peers write and the sockets that datagrams arrive on. */
static int cq_descriptors(struct sim_cq *cq)
{
	struct epoll_event event = {.events = EPOLLIN};

	cq->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	cq->base.fd = epoll_create1(EPOLL_CLOEXEC);
	if (cq->event_fd < 0 || cq->base.fd < 0 ||
		epoll_ctl(cq->base.fd, EPOLL_CTL_ADD, cq->event_fd, &event))
		return -errno;
	return 0;
}

int sim_cq_open(struct rp_device *base, uint32_t cqe_count, struct rp_cq **ret_cq)
{
	struct sim_device *device = CONTAINER_OF(base, struct sim_device, base);
	struct sim_cq *cq;
	int err;

	if (cqe_count > SIM_CQES_MAX)
		return -EINVAL;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return -ENOMEM;
	err = bell_take(device, &cq->bell_idx);
	if (err) {
		free(cq);
		return err;
	}
	cq->base.ops = &rp_simulated_ops;
	cq->device = device;
	cq->cqe_count = cqe_count;
	cq->mask = round_up_pow2(cqe_count) - 1;
	cq->bell = &device->bells[cq->bell_idx];
	list_init(&cq->busy);
	atomic_store(&cq->bell->armed, 0);
	atomic_store(&cq->bell->by_bell, 0);
	cq->wcs = calloc((size_t)cq->mask + 1, sizeof(*cq->wcs));
	cq->qps = calloc(SIM_CQ_QPS_MAX, sizeof(struct sim_qp *));
	list_init(&cq->dgrams);
	err = cq_descriptors(cq);
	if (!err && (!cq->wcs || !cq->qps))
		err = -ENOMEM;
	if (err) {
		sim_cq_close(&cq->base);
		return err;
	}
	*ret_cq = &cq->base;
	return 0;
}

void sim_cq_close(struct rp_cq *base)
{
	struct sim_cq *cq = CONTAINER_OF(base, struct sim_cq, base);

	CHECK(cq->qp_count == 0);
	CHECK(list_empty(&cq->dgrams));
	CHECK(list_empty(&cq->busy));
	sim_cq_check(cq);
	bell_give(cq->device, cq->bell_idx);
	if (cq->base.fd >= 0)
		close(cq->base.fd);
	if (cq->event_fd >= 0)
		close(cq->event_fd);
	free(cq->wcs);
	free(cq->qps);
	free(cq);
}

void sim_cq_overrun(struct sim_cq *cq)
{
	if (cq->overrun)
		return;
	cq->overrun = true;
	log_error("rdma", "simulated: a completion queue of %u entries overran", cq->cqe_count);
	/* Their next visit ends them, because one of them is inside an operation here. */
	for (uint32_t i = 0; i < cq->qp_slots; i++) {
		if (cq->qps[i])
			atomic_store(&cq->qps[i]->gone, 1);
	}
}

/* From now on a poll visits only queue pairs that were rung or that wait for something. */
static void go_by_bell(struct sim_cq *cq)
{
	cq->by_bell = true;
	atomic_store(&cq->bell->by_bell, 1);
	atomic_thread_fence(memory_order_seq_cst);
	for (uint32_t i = 0; i < cq->qp_slots; i++) {
		struct sim_qp *qp = cq->qps[i];

		if (!qp)
			continue;
		if (qp->send_cq == cq && qp->sq_head != qp->sq_tail && list_empty(&qp->busy))
			list_push_back(&cq->busy, &qp->busy);
		sim_qp_kick(qp);
	}
}

static int cq_attach(struct sim_cq *cq, struct sim_qp *qp, uint32_t *ret_bit)
{
	for (uint32_t i = 0; i < SIM_CQ_QPS_MAX; i++) {
		if (cq->qps[i])
			continue;
		cq->qps[i] = qp;
		cq->qp_count++;
		cq->qp_slots = MAX(cq->qp_slots, i + 1);
		*ret_bit = i;
		return 0;
	}
	return -ENOSPC;
}

static void cq_detach(struct sim_cq *cq, uint32_t bit)
{
	CHECK(bit < cq->qp_slots);
	CHECK(cq->qp_count > 0);
	CHECK(cq->qps[bit] != NULL);
	cq->qps[bit] = NULL;
	cq->qp_count--;
	while (cq->qp_slots && !cq->qps[cq->qp_slots - 1])
		cq->qp_slots--;
	if (!cq->qp_count) {
		atomic_store(&cq->bell->by_bell, 0);
		cq->by_bell = false;
	}
}

/* ---- Receive queues. ---- */

static int rq_init(struct sim_rq *rq, uint32_t wr_max, uint32_t sge_max)
{
	uint32_t entries = round_up_pow2(wr_max);

	rq->wr_max = wr_max;
	rq->sge_max = sge_max;
	rq->mask = entries - 1;
	rq->recvs = calloc(entries, sizeof(*rq->recvs));
	rq->sges = calloc((size_t)entries * sge_max, sizeof(*rq->sges));
	return rq->recvs && rq->sges ? 0 : -ENOMEM;
}

static void rq_fini(struct sim_rq *rq)
{
	free(rq->recvs);
	free(rq->sges);
}

int sim_srq_open(struct rp_pd *base, uint32_t max_wr, uint32_t max_sge, struct rp_srq **ret_srq)
{
	struct sim_pd *pd = CONTAINER_OF(base, struct sim_pd, base);
	struct sim_srq *srq;

	if (max_wr > SIM_QP_WRS_MAX)
		return -EINVAL;
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return -ENOMEM;
	srq->base.ops = &rp_simulated_ops;
	srq->pd = pd;
	list_init(&srq->stalled);
	count_object(pd->device, 1);
	if (rq_init(&srq->rq, max_wr, max_sge)) {
		sim_srq_close(&srq->base);
		return -ENOMEM;
	}
	*ret_srq = &srq->base;
	return 0;
}

void sim_srq_close(struct rp_srq *base)
{
	struct sim_srq *srq = CONTAINER_OF(base, struct sim_srq, base);

	CHECK(list_empty(&srq->stalled));
	sim_rq_check(&srq->rq);
	count_object(srq->pd->device, -1);
	rq_fini(&srq->rq);
	free(srq);
}

/* ---- Queue pairs. ---- */

static void qp_free(struct sim_qp *qp)
{
	rq_fini(&qp->rq);
	free(qp->sq);
	free(qp->sq_sges);
	free(qp->sq_inline);
	free(qp);
}

static int qp_alloc_queues(struct sim_qp *qp)
{
	const struct rp_qp_cap *cap = &qp->base.cap;
	uint32_t entries = round_up_pow2(cap->max_send_wr);

	qp->sq_mask = entries - 1;
	qp->sq_sge_max = cap->max_send_sge;
	qp->sq = calloc(entries, sizeof(*qp->sq));
	qp->sq_sges = calloc((size_t)entries * cap->max_send_sge, sizeof(*qp->sq_sges));
	qp->sq_inline = calloc(entries, cap->max_inline_data);
	if (!qp->sq || !qp->sq_sges || !qp->sq_inline)
		return -ENOMEM;
	return rq_init(&qp->rq, cap->max_recv_wr, cap->max_recv_sge);
}

static int qp_attach(struct sim_qp *qp)
{
	int err = cq_attach(qp->recv_cq, qp, &qp->recv_bit);

	if (err)
		return err;
	qp->send_bit = qp->recv_bit;
	if (qp->send_cq != qp->recv_cq) {
		err = cq_attach(qp->send_cq, qp, &qp->send_bit);
		if (err) {
			cq_detach(qp->recv_cq, qp->recv_bit);
			return err;
		}
	}
	if (qp->recv_cq->qp_count > SIM_SCAN_QPS_MAX)
		go_by_bell(qp->recv_cq);
	if (qp->send_cq->qp_count > SIM_SCAN_QPS_MAX)
		go_by_bell(qp->send_cq);
	return 0;
}

static int qp_check_attr(const struct rp_qp_attr *attr)
{
	const struct rp_qp_cap *cap = &attr->cap;

	if (attr->type > RP_QP_RAW) {
		log_error("rdma", "simulated: %s queue pairs are not supported",
			rp_qp_type_str(attr->type));
		return -EOPNOTSUPP;
	}
	if (cap->max_send_wr > SIM_QP_WRS_MAX || cap->max_recv_wr > SIM_QP_WRS_MAX ||
		cap->max_inline_data > SIM_INLINE_BYTES_MAX)
		return -EINVAL;
	return 0;
}

int sim_qp_open(struct rp_pd *base, const struct rp_qp_attr *attr, struct rp_qp **ret_qp)
{
	struct sim_pd *pd = CONTAINER_OF(base, struct sim_pd, base);
	struct sim_qp *qp;
	int err = atomic_load(&pd->device->failed) ? -EIO : qp_check_attr(attr);

	if (err)
		return err;
	qp = aligned_alloc(64, ALIGN_UP(sizeof(*qp), 64));
	if (!qp)
		return -ENOMEM;
	*qp = (struct sim_qp){
		.base = {.ops = &rp_simulated_ops,
			.type = attr->type,
			.qkey = attr->qkey,
			.cap = attr->cap},
		.device = pd->device,
		.pd = pd,
		.send_cq = CONTAINER_OF(attr->send_cq, struct sim_cq, base),
		.recv_cq = CONTAINER_OF(attr->recv_cq, struct sim_cq, base),
		.retry_count = attr->retry_count,
		.rnr_retry_count = attr->rnr_retry_count,
		.timeout_ns = attr->timeout_us ? attr->timeout_us * NS_PER_US : SIM_TIMEOUT_NS,
	};
	if (attr->srq)
		qp->srq = CONTAINER_OF(attr->srq, struct sim_srq, base);
	qp->base.cap.max_inline_data = MAX(attr->cap.max_inline_data, SIM_INLINE_BYTES_MIN);
	list_init(&qp->busy);
	list_init(&qp->stalled);
	list_init(&qp->joining);
	random_fill(&qp->psn, sizeof(qp->psn));
	qp->psn &= 0xffffff;
	err = qp_alloc_queues(qp);
	if (!err)
		err = qp_attach(qp);
	if (err) {
		qp_free(qp);
		return err;
	}
	pthread_mutex_lock(&pd->device->lock);
	qp->base.num = pd->device->next_qpn++ & 0xffffff;
	pd->device->open_objects++;
	pthread_mutex_unlock(&pd->device->lock);
	prng_seed(&qp->prng, pd->device->faults.seed + qp->base.num);
	if (attr->type == RP_QP_UD || attr->type == RP_QP_RAW) {
		err = sim_dgram_open(qp);
		if (err) {
			sim_qp_close(&qp->base);
			return err;
		}
	}
	*ret_qp = &qp->base;
	return 0;
}

/* Tells the peer through the shared memory that nothing more comes from here. */
static void say_error(struct sim_qp *qp)
{
	if (!qp->started)
		return;
	CHECK(qp->mine != NULL);
	sanitizer_release(qp->pairing);
	atomic_store_explicit(&qp->mine->state, SIM_SIDE_ERROR, memory_order_release);
	sim_ring(qp);
	/* A sleeper that looks at every ring was woken above; one that goes by bells was rung. */
}

void sim_qp_close(struct rp_qp *base)
{
	struct sim_qp *qp = CONTAINER_OF(base, struct sim_qp, base);
	struct sim_device *device = qp->device;

	sim_qp_check(qp);
	if (atomic_exchange(&qp->state, RP_QPS_ERR) == RP_QPS_RTS)
		say_error(qp);
	list_remove(&qp->busy);
	list_remove(&qp->stalled);
	sim_tally_flush(qp);
	sim_cm_forget(qp);
	sim_dgram_close(qp->dgram);
	cq_detach(qp->recv_cq, qp->recv_bit);
	if (qp->send_cq != qp->recv_cq)
		cq_detach(qp->send_cq, qp->send_bit);
	qp_free(qp);
	count_object(device, -1);
}

enum rp_qp_state sim_qp_state(const struct rp_qp *base)
{
	struct sim_qp *qp = CONTAINER_OF((struct rp_qp *)(uintptr_t)base, struct sim_qp, base);
	uint32_t state = atomic_load_explicit(&qp->state, memory_order_acquire);

	/* Reads the peer's state, which no poll may have seen yet. */
	if (state == RP_QPS_RTS && qp->theirs &&
		atomic_load_explicit(&qp->theirs->state, memory_order_acquire) == SIM_SIDE_ERROR) {
		sanitizer_acquire(qp->pairing);
		return RP_QPS_ERR;
	}
	return (enum rp_qp_state)state;
}

void sim_qp_start(struct sim_qp *qp)
{
	CHECK(!qp->started);
	CHECK(qp->wire != NULL);
	CHECK(qp->peer != NULL);
	CHECK(qp->bell_count == 1 || qp->bell_count == 2);
	qp->started = true;
	sanitizer_release(qp->pairing);
	atomic_store_explicit(&qp->mine->posted, qp->rq.tail, memory_order_relaxed);
	atomic_store_explicit(
		&qp->mine->state, qp->srq ? SIM_SIDE_UP_SRQ : SIM_SIDE_UP, memory_order_release);
	sim_ring(qp);
	sim_refresh(qp);
}

static void kick_cq(struct sim_cq *cq, uint32_t bit)
{
	atomic_fetch_or(&cq->bell->words[bit / 64], 1ull << (bit % 64));
	atomic_fetch_or(&cq->bell->summary, 1ull << (bit / 64));
	sim_wake(cq->bell, cq->event_fd);
}

void sim_qp_kick(struct sim_qp *qp)
{
	kick_cq(qp->recv_cq, qp->recv_bit);
	if (qp->send_cq != qp->recv_cq)
		kick_cq(qp->send_cq, qp->send_bit);
}

/* ---- The end. ---- */

static void flush_recv(struct sim_qp *qp, const struct sim_recv *recv)
{
	struct rp_wc wc = {
		.wr_id = recv->wr_id,
		.status = RP_WC_WR_FLUSH_ERR,
		.opcode = RP_RECV,
		.qpn = qp->base.num,
	};

	sim_cq_push(qp->recv_cq, &wc);
}

void sim_qp_info(struct rp_qp *base, struct rp_qp_info *ret_info)
{
	struct sim_qp *qp = CONTAINER_OF(base, struct sim_qp, base);

	snprintf(ret_info->device, sizeof(ret_info->device), "simulated");
	ret_info->state = sim_qp_state(base);
	ret_info->dest_qpn = qp->peer_qpn;
	ret_info->sq_psn = qp->sent;
	ret_info->rq_psn = qp->rx_acked;
	ret_info->timeout_us = (uint32_t)(qp->timeout_ns / NS_PER_US);
	ret_info->path_mtu = SIM_MTU;
	ret_info->retry_count = qp->retry_count;
	ret_info->rnr_retry_count = qp->rnr_retry_count;
	ret_info->has_gid = qp->joined;
	if (qp->joined)
		memcpy(ret_info->gid, qp->join_peer.gid, sizeof(ret_info->gid));
}

void sim_qp_fail(struct sim_qp *qp, const char *why)
{
	uint32_t before = atomic_exchange(&qp->state, RP_QPS_ERR);

	if (before != RP_QPS_ERR) {
		if (why) {
			struct rp_qp_info info;

			rp_qp_info(&qp->base, &info);
			rp_qp_log_failure(&qp->device->base, &info, why);
		}
		say_error(qp);
		qp->tally.errors += qp->sq_head != qp->sq_tail;
		sim_tally_flush(qp);
	}
	sim_qp_check(qp);
	qp->timing = false;
	list_remove(&qp->stalled);
	for (; qp->sq_head != qp->sq_tail; qp->sq_head++) {
		const struct sim_send *send = &qp->sq[qp->sq_head & qp->sq_mask];
		struct rp_wc wc = {
			.wr_id = send->wr_id,
			.status = send->status ? send->status : RP_WC_WR_FLUSH_ERR,
			.opcode = send->opcode,
			.qpn = qp->base.num,
		};

		sim_cq_push(qp->send_cq, &wc);
	}
	qp->sq_exec = qp->sq_head;
	qp->signaled = 0;
	if (qp->rx_busy)
		flush_recv(qp, &qp->rx_recv);
	qp->rx_busy = false;
	for (; qp->rq.head != qp->rq.tail; qp->rq.head++)
		flush_recv(qp, &qp->rq.recvs[qp->rq.head & qp->rq.mask]);
}

/* The peer's messages and acknowledgements up to now count: a card would have completed them. */
static void settle(struct sim_qp *qp)
{
	sim_receive(qp);
	if (atomic_load(&qp->state) == RP_QPS_RTS)
		sim_refresh(qp);
	if (atomic_load(&qp->state) == RP_QPS_RTS)
		sim_retire(qp);
}

void sim_qp_error(struct rp_qp *base)
{
	struct sim_qp *qp = CONTAINER_OF(base, struct sim_qp, base);

	if (qp->started && atomic_load(&qp->state) == RP_QPS_RTS)
		settle(qp);
	sim_qp_fail(qp, NULL);
}

void sim_qp_gone(struct sim_qp *qp)
{
	settle(qp);
	sim_qp_fail(qp, NULL);
	/* A user whose completions were lost gets the connection's end as an event. */
	if (qp->send_cq->overrun || qp->recv_cq->overrun)
		sim_cm_cut(qp);
}
