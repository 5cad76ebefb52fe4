/* rdma/verbs/qp.c: opens and closes the verbs provider's queues: completion queues with their event
 * channels, shared receive queues, queue pairs and their way to the error state. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "rdma/verbs/verbs_priv.h"

/* Local acknowledgement timeout as IBTA encodes it: 4.096 us << 16 is 0.27 s, so that 7 retries
 * detect an unreachable peer within seconds, and a busy one is not given up. */
#define TIMEOUT_DEFAULT 16u
#define TIMEOUT_MAX	31u
/* The inline bytes when none were requested: a credit or a short reply fits. */
#define INLINE_BYTES_LEAST 64u

/* ---- Completion queues. ---- */

static int cq_channel_open(struct verbs_cq *cq)
{
	int flags;

	cq->channel = ibv_create_comp_channel(cq->device->context);
	if (!cq->channel)
		return -errno;
	cq->base.fd = cq->channel->fd;
	flags = fcntl(cq->base.fd, F_GETFL);
	if (flags < 0 || fcntl(cq->base.fd, F_SETFL, flags | O_NONBLOCK))
		return -errno;
	return 0;
}

int verbs_cq_open(struct rp_device *base, uint32_t cqe_count, struct rp_cq **ret_cq)
{
	struct verbs_device *device = verbs_device(base);
	struct verbs_cq *cq;
	int err;

	if (cqe_count > (uint32_t)device->attr.max_cqe)
		return -EINVAL;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return -ENOMEM;
	cq->base.ops = &rp_verbs_ops;
	cq->device = device;
	err = cq_channel_open(cq);
	if (!err) {
		cq->cq = ibv_create_cq(device->context, (int)cqe_count, cq, cq->channel, 0);
		err = cq->cq ? 0 : -errno;
	}
	if (err) {
		if (cq->channel)
			ibv_destroy_comp_channel(cq->channel);
		free(cq);
		return err;
	}
	atomic_fetch_add(&device->open_objects, 1);
	*ret_cq = &cq->base;
	return 0;
}

void verbs_cq_close(struct rp_cq *base)
{
	struct verbs_cq *cq = verbs_cq(base);
	int err;

	verbs_cq_disarm(base);
	err = ibv_destroy_cq(cq->cq);
	verbs_ended(cq->device, "completion queue", err);
	/* The device may still report events of it. */
	if (err)
		cq->cq->cq_context = NULL;
	else
		verbs_ended(
			cq->device, "completion channel", ibv_destroy_comp_channel(cq->channel));
	verbs_object_gone(cq->device);
	free(cq->kept);
	free(cq);
}

void verbs_cq_keep(struct verbs_cq *cq, const struct rp_wc *wc)
{
	verbs_cq_check(cq);
	if (cq->kept_count == cq->kept_slots) {
		uint32_t slots = MAX(2 * cq->kept_slots, VERBS_BATCH);
		struct rp_wc *kept = realloc(cq->kept, slots * sizeof(*kept));

		CHECK(kept != NULL);
		cq->kept = kept;
		cq->kept_slots = slots;
	}
	cq->kept[cq->kept_count++] = *wc;
}

/* Takes every completion that waits in the device's queue and keeps those that are not of qpn. */
static void verbs_cq_forget(struct verbs_cq *cq, uint32_t qpn)
{
	uint32_t count = cq->kept_count - cq->kept_head;
	struct rp_wc wcs[VERBS_BATCH];
	int got;

	verbs_cq_check(cq);
	if (count)
		memmove(cq->kept, cq->kept + cq->kept_head, count * sizeof(*cq->kept));
	cq->kept_head = cq->kept_count = 0;
	for (uint32_t i = 0; i < count; i++) {
		if (cq->kept[i].qpn != qpn)
			cq->kept[cq->kept_count++] = cq->kept[i];
	}
	while ((got = verbs_take(cq, wcs, VERBS_BATCH)) > 0) {
		for (int i = 0; i < got; i++) {
			if (wcs[i].qpn != qpn)
				verbs_cq_keep(cq, &wcs[i]);
		}
	}
}

void verbs_cq_look(struct verbs_cq *cq)
{
	verbs_async_read(cq->device);
}

/* ---- Shared receive queues. ---- */

int verbs_srq_open(struct rp_pd *base, uint32_t max_wr, uint32_t max_sge, struct rp_srq **ret_srq)
{
	struct verbs_pd *pd = CONTAINER_OF(base, struct verbs_pd, base);
	struct ibv_srq_init_attr init = {.attr = {.max_wr = max_wr, .max_sge = max_sge}};
	struct verbs_srq *srq = calloc(1, sizeof(*srq));

	if (!srq)
		return -ENOMEM;
	srq->base.ops = &rp_verbs_ops;
	srq->device = pd->device;
	srq->wr_max = max_wr;
	srq->sge_max = max_sge;
	srq->srq = ibv_create_srq(pd->pd, &init);
	if (!srq->srq) {
		int err = -errno;

		free(srq);
		return err;
	}
	atomic_fetch_add(&srq->device->open_objects, 1);
	*ret_srq = &srq->base;
	return 0;
}

void verbs_srq_close(struct rp_srq *base)
{
	struct verbs_srq *srq = CONTAINER_OF(base, struct verbs_srq, base);

	verbs_ended(srq->device, "shared receive queue", ibv_destroy_srq(srq->srq));
	verbs_object_gone(srq->device);
	free(srq);
}

/* ---- Queue pairs. ---- */

static uint8_t timeout_code(uint32_t timeout_us)
{
	uint8_t code = 1;

	if (!timeout_us)
		return TIMEOUT_DEFAULT;
	while (code < TIMEOUT_MAX && (4096ull << code) < timeout_us * NS_PER_US)
		code++;
	return code;
}

static int check_attr(const struct verbs_device *device, const struct rp_qp_attr *attr)
{
	const struct rp_qp_cap *cap = &attr->cap;
	struct rp_device_attr can;

	device->base.ops->device_attr(&device->base, &can);
	if (attr->type > RP_QP_DCT || !(can.qp_types & (1u << attr->type))) {
		log_error("rdma", "%s: %s queue pairs are not supported", can.name,
			rp_qp_type_str(attr->type));
		if (attr->type == RP_QP_RAW)
			verbs_raw_explain(device);
		return -EOPNOTSUPP;
	}
	if (cap->max_send_wr > can.max_qp_wr || cap->max_recv_wr > can.max_qp_wr ||
		cap->max_send_sge > can.max_sge || cap->max_recv_sge > can.max_sge ||
		cap->max_inline_data > can.max_inline_data)
		return -EINVAL;
	return 0;
}

/* Creates it and moves it to INIT, where it takes receives already. */
static int qp_create(struct verbs_qp *qp, struct ibv_pd *pd, const struct rp_qp_attr *attr)
{
	static const enum ibv_qp_type types[] = {[RP_QP_RC] = IBV_QPT_RC,
		[RP_QP_UC] = IBV_QPT_UC,
		[RP_QP_UD] = IBV_QPT_UD,
		[RP_QP_RAW] = IBV_QPT_RAW_PACKET};
	const uint32_t least = MIN(INLINE_BYTES_LEAST, qp->device->inline_bytes_max);
	struct ibv_qp_init_attr init = {
		.qp_context = qp,
		.send_cq = qp->send_cq->cq,
		.recv_cq = qp->recv_cq->cq,
		.qp_type = types[attr->type],
		.cap = {.max_send_wr = attr->cap.max_send_wr,
			.max_recv_wr = attr->cap.max_recv_wr,
			.max_send_sge = attr->cap.max_send_sge,
			.max_recv_sge = attr->cap.max_recv_sge,
			.max_inline_data = MAX(attr->cap.max_inline_data, least)},
	};
	struct ibv_qp_attr move = {.qp_state = IBV_QPS_INIT,
		.port_num = qp->device->port_num,
		.qkey = attr->qkey,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	int mask = IBV_QP_STATE | IBV_QP_PORT;
	int err;

	if (attr->srq)
		init.srq = CONTAINER_OF(attr->srq, struct verbs_srq, base)->srq;
	if (attr->type == RP_QP_RC)
		move.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	if (attr->type != RP_QP_RAW)
		mask |= IBV_QP_PKEY_INDEX |
			(attr->type == RP_QP_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	qp->qp = ibv_create_qp(pd, &init);
	if (!qp->qp)
		return -errno;
	CHECK(qp->device->port_num > 0);
	err = -ibv_modify_qp(qp->qp, &move, mask);
	if (!err && (attr->type == RP_QP_UD || attr->type == RP_QP_RAW))
		err = verbs_ud_ready(qp);
	if (err) {
		ibv_destroy_qp(qp->qp);
		return err;
	}
	qp->base.num = qp->qp->qp_num;
	qp->base.cap = (struct rp_qp_cap){init.cap.max_send_wr, init.cap.max_recv_wr,
		init.cap.max_send_sge, init.cap.max_recv_sge, init.cap.max_inline_data};
	return 0;
}

int verbs_qp_open(struct rp_pd *base, const struct rp_qp_attr *attr, struct rp_qp **ret_qp)
{
	struct verbs_pd *pd = CONTAINER_OF(base, struct verbs_pd, base);
	struct verbs_qp *qp;
	int err = check_attr(pd->device, attr);

	if (err)
		return err;
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return -ENOMEM;
	qp->handle = VERBS_HANDLE_QP;
	qp->base.ops = &rp_verbs_ops;
	qp->device = pd->device;
	qp->send_cq = verbs_cq(attr->send_cq);
	qp->recv_cq = verbs_cq(attr->recv_cq);
	qp->type = attr->type;
	qp->has_srq = attr->srq != NULL;
	qp->retry_count = attr->retry_count;
	qp->rnr_retry_count = attr->rnr_retry_count;
	qp->timeout = timeout_code(attr->timeout_us);
	random_fill(&qp->psn, sizeof(qp->psn));
	qp->psn &= 0xffffff;
	atomic_store(&qp->state, RP_QPS_INIT);
	list_init(&qp->told_link);
	if (attr->type == RP_QP_DCI || attr->type == RP_QP_DCT)
		err = verbs_dc_create(qp, pd->pd, attr);
	else
		err = qp_create(qp, pd->pd, attr);
	if (err) {
		log_error("rdma", "%s: no queue pair: %s",
			ibv_get_device_name(pd->pd->context->device), strerror(-err));
		free(qp);
		return err;
	}
	pthread_mutex_lock(&qp->device->lock);
	list_push_back(&qp->device->qps, &qp->link);
	pthread_mutex_unlock(&qp->device->lock);
	atomic_fetch_add(&qp->device->open_objects, 1);
	*ret_qp = &qp->base;
	return 0;
}

void verbs_qp_close(struct rp_qp *base)
{
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	struct verbs_qp *qp = verbs_qp(base);
	uint32_t qpn = qp->base.num;
	int err;

	verbs_qp_check(qp);
	verbs_cm_forget(qp);
	CHECK(!qp->id);
	err = ibv_destroy_qp(qp->qp);
	verbs_ended(qp->device, "queue pair", err);
	/* In this state it completes nothing. Posted work names memory that is freed now. */
	if (err)
		ibv_modify_qp(qp->qp, &reset, IBV_QP_STATE);
	/* Some devices leave its completions in the queue; nothing waits for them any more. */
	verbs_cq_forget(qp->send_cq, qpn);
	if (qp->recv_cq != qp->send_cq)
		verbs_cq_forget(qp->recv_cq, qpn);
	verbs_object_gone(qp->device);
	verbs_dc_free(qp->dci);
	free(qp);
}

enum rp_qp_state verbs_qp_state(const struct rp_qp *base)
{
	struct verbs_qp *qp = verbs_qp(base);
	enum rp_qp_state state = atomic_load(&qp->state);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	/* The device moves it to the error state by itself. */
	if (state == RP_QPS_RTS && !ibv_query_qp(qp->qp, &attr, IBV_QP_STATE, &init) &&
		(attr.qp_state == IBV_QPS_ERR || attr.qp_state == IBV_QPS_SQE)) {
		state = RP_QPS_ERR;
		atomic_store(&qp->state, state);
	}
	return state;
}

void verbs_qp_flush(struct verbs_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	int err = ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE);

	if (err)
		log_warn("rdma", "cannot move queue pair %u to the error state: %s", qp->base.num,
			strerror(err));
}

void verbs_qp_error(struct rp_qp *base)
{
	struct verbs_qp *qp = verbs_qp(base);

	atomic_store(&qp->state, RP_QPS_ERR);
	verbs_qp_flush(qp);
}

/* ---- For people. ---- */

void verbs_qp_info(struct rp_qp *base, struct rp_qp_info *ret_info)
{
	const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			 IBV_QP_RQ_PSN | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			 IBV_QP_RNR_RETRY;
	struct verbs_qp *qp = verbs_qp(base);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	snprintf(ret_info->device, sizeof(ret_info->device), "%s", verbs_device_name(qp->device));
	ret_info->state = verbs_qp_state(base);
	/* DC's ends cannot be queried this way. */
	if (qp->type == RP_QP_DCI || qp->type == RP_QP_DCT ||
		ibv_query_qp(qp->qp, &attr, mask, &init))
		return;
	ret_info->dest_qpn = attr.dest_qp_num;
	ret_info->sq_psn = attr.sq_psn;
	ret_info->rq_psn = attr.rq_psn;
	ret_info->timeout_us = attr.timeout ? (uint32_t)((4096ull << attr.timeout) / 1000) : 0;
	ret_info->path_mtu = attr.path_mtu ? 128u << attr.path_mtu : 0;
	ret_info->retry_count = attr.retry_cnt;
	ret_info->rnr_retry_count = attr.rnr_retry;
	ret_info->has_gid = attr.ah_attr.is_global;
	if (ret_info->has_gid)
		memcpy(ret_info->gid, attr.ah_attr.grh.dgid.raw, sizeof(ret_info->gid));
}

static struct verbs_qp *qp_by_number(struct verbs_device *device, uint32_t qpn)
{
	LIST_FOR_EACH (link, &device->qps) {
		struct verbs_qp *qp = CONTAINER_OF(link, struct verbs_qp, link);

		if (qp->base.num == qpn)
			return qp;
	}
	return NULL;
}

void verbs_qp_failed(struct verbs_device *device, const struct ibv_wc *wc)
{
	struct rp_qp_info info;
	struct verbs_qp *qp;
	char why[96];
	bool first;

	/* No queue pair closes while we look at it. */
	pthread_mutex_lock(&device->lock);
	qp = qp_by_number(device, wc->qp_num);
	first = qp && !qp->failed;
	if (first) {
		qp->failed = true;
		qp->cut_off = wc->status == IBV_WC_LOC_QP_OP_ERR ||
			      wc->status == IBV_WC_RETRY_EXC_ERR ||
			      wc->status == IBV_WC_RESP_TIMEOUT_ERR;
		rp_qp_info(&qp->base, &info);
	}
	pthread_mutex_unlock(&device->lock);
	if (!first)
		return;
	snprintf(why, sizeof(why), "%s (vendor's code 0x%x)", ibv_wc_status_str(wc->status),
		wc->vendor_err);
	rp_qp_log_failure(&device->base, &info, why);
}
