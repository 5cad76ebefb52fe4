/* rdma/rdma.c: the face of the providers: picks one by device name, refuses arguments that no
 * provider could take, and calls through the provider's table. */
#include "rdma/provider/provider.h"

#include <errno.h>
#include <stdio.h>

#include "base/probe.h"

#define QPN_MAX	 0xffffffu
#define VLAN_MAX 4094u

DEFINE_COUNTER(device_failures, "nebulaio_rdma_device_failures_total", NULL,
	"Openings of RDMA devices that failed or were removed; this process does not use them any "
	"more. It opens a device several times, so one device counts more than once.");

/* ---- Device. ---- */

int rp_open(const struct rp_open_opts *opts, struct rp_device **ret_device)
{
	char names[4 * KIB];

	if (!opts || !opts->device_name || !opts->device_name[0])
		return -EINVAL;
	for (size_t i = 0; i < rp_provider_count; i++) {
		int err;

		if (!rp_providers[i]->claims(opts->device_name))
			continue;
		err = rp_providers[i]->open(opts, ret_device);
		if (!err) {
			CHECK((*ret_device)->ops == rp_providers[i]);
			(*ret_device)->magic = RP_DEVICE;
		}
		return err;
	}
	rp_device_known(opts->device_name, names, sizeof(names));
	log_error("rdma", "no RDMA device \"%s\"; this host has:%s", opts->device_name, names);
	return -ENODEV;
}

bool rp_device_known(const char *device_name, char *ret_names, size_t names_bytes)
{
	bool known = false;
	struct buf names;

	buf_init(&names, names_bytes - 1);
	for (size_t i = 0; i < rp_provider_count; i++) {
		known |= rp_providers[i]->claims(device_name);
		rp_providers[i]->list(&names);
	}
	snprintf(ret_names, names_bytes, "%.*s", SLICE_FMT(buf_slice(&names)));
	buf_free(&names);
	return known;
}

void rp_close(struct rp_device *device)
{
	if (!device)
		return;
	rp_device_check(device);
	device->magic = RP_CLOSED;
	device->ops->close(device);
}

void rp_device_attr(const struct rp_device *device, struct rp_device_attr *ret_attr)
{
	rp_device_check(device);
	device->ops->device_attr(device, ret_attr);
}

int rp_pd_open(struct rp_device *device, struct rp_pd **ret_pd)
{
	int err;

	rp_device_check(device);
	err = device->ops->pd_open(device, ret_pd);
	if (!err)
		(*ret_pd)->magic = RP_PD;
	return err;
}

void rp_pd_close(struct rp_pd *pd)
{
	if (!pd)
		return;
	rp_pd_check(pd);
	pd->magic = RP_CLOSED;
	pd->ops->pd_close(pd);
}

int rp_mr_open(struct rp_pd *pd, const struct rp_mr_opts *opts, struct rp_mr **ret_mr)
{
	const uint32_t all = RP_ACCESS_LOCAL_WRITE | RP_ACCESS_REMOTE_WRITE |
			     RP_ACCESS_REMOTE_READ | RP_ACCESS_REMOTE_ATOMIC | RP_ACCESS_WINDOW;
	const uint32_t writes = RP_ACCESS_REMOTE_WRITE | RP_ACCESS_REMOTE_ATOMIC;
	uint64_t begin_ns;
	int err;

	rp_pd_check(pd);
	if (!opts->addr || !opts->bytes || (opts->access & ~all) ||
		opts->bytes > UINT64_MAX - (uintptr_t)opts->addr)
		return -EINVAL;
	if ((opts->access & writes) && !(opts->access & RP_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	begin_ns = clock_now_ns();
	err = pd->ops->mr_open(pd, opts, ret_mr);
	if (err)
		return err;
	rp_count_registration(pd->ops, clock_now_ns() - begin_ns);
	CHECK((*ret_mr)->ops == pd->ops);
	(*ret_mr)->access = opts->access;
	(*ret_mr)->magic = RP_MR;
	return 0;
}

void rp_mr_close(struct rp_mr *mr)
{
	if (!mr)
		return;
	rp_mr_check(mr);
	mr->magic = RP_CLOSED;
	mr->ops->mr_close(mr);
}

uint32_t rp_mr_lkey(const struct rp_mr *mr)
{
	rp_mr_check(mr);
	return mr->lkey;
}

uint32_t rp_mr_rkey(const struct rp_mr *mr)
{
	rp_mr_check(mr);
	return mr->rkey;
}

int rp_mw_open(struct rp_qp *qp, struct rp_mr *mr, uint64_t wr_id, struct rp_mw **ret_mw)
{
	int err;

	rp_qp_check(qp);
	rp_mr_check(mr);
	if (qp->type != RP_QP_RC || qp->ops != mr->ops || !(mr->access & RP_ACCESS_WINDOW))
		return -EINVAL;
	err = qp->ops->mw_open(qp, mr, wr_id, ret_mw);
	if (err)
		return err;
	(*ret_mw)->magic = RP_MW;
	rp_count_bind(qp->ops);
	return 0;
}

void rp_mw_close(struct rp_mw *mw)
{
	if (!mw)
		return;
	rp_mw_check(mw);
	mw->magic = RP_CLOSED;
	mw->ops->mw_close(mw);
}

uint32_t rp_mw_rkey(const struct rp_mw *mw)
{
	rp_mw_check(mw);
	return mw->rkey;
}

/* ---- Completion queues. ---- */

int rp_cq_open(struct rp_device *device, uint32_t cqe_count, struct rp_cq **ret_cq)
{
	int err;

	rp_device_check(device);
	if (!cqe_count)
		return -EINVAL;
	err = device->ops->cq_open(device, cqe_count, ret_cq);
	if (err)
		return err;
	CHECK((*ret_cq)->fd >= 0);
	(*ret_cq)->magic = RP_CQ;
	(*ret_cq)->cqe_count = cqe_count;
	return 0;
}

void rp_cq_close(struct rp_cq *cq)
{
	if (!cq)
		return;
	rp_cq_check(cq);
	cq->magic = RP_CLOSED;
	cq->ops->cq_close(cq);
}

int rp_cq_poll(struct rp_cq *cq, struct rp_wc *wcs, uint32_t max)
{
	int got;

	rp_cq_check(cq);
	got = cq->ops->cq_poll(cq, wcs, max);
	CHECK(got <= (int)max);
	if (got > 0)
		PROBE3(rdma_complete, wcs->qpn, got, (uint32_t)wcs->status);
	if (got)
		rp_count_completions(cq, wcs, got);
	return got;
}

bool rp_cq_arm(struct rp_cq *cq)
{
	rp_cq_check(cq);
	return cq->ops->cq_arm(cq);
}

void rp_cq_disarm(struct rp_cq *cq)
{
	rp_cq_check(cq);
	cq->ops->cq_disarm(cq);
}

int rp_cq_fd(const struct rp_cq *cq)
{
	rp_cq_check(cq);
	return cq->fd;
}

/* ---- Shared receive queues. ---- */

int rp_srq_open(struct rp_pd *pd, uint32_t max_wr, uint32_t max_sge, struct rp_srq **ret_srq)
{
	int err;

	rp_pd_check(pd);
	if (!max_wr || !max_sge || max_sge > LIMIT_SGE_MAX)
		return -EINVAL;
	err = pd->ops->srq_open(pd, max_wr, max_sge, ret_srq);
	if (!err) {
		(*ret_srq)->magic = RP_SRQ;
		(*ret_srq)->max_wr = max_wr;
	}
	return err;
}

void rp_srq_close(struct rp_srq *srq)
{
	if (!srq)
		return;
	rp_srq_check(srq);
	srq->magic = RP_CLOSED;
	srq->ops->srq_close(srq);
}

int rp_srq_post(
	struct rp_srq *srq, const struct rp_recv_wr *wrs, uint32_t count, uint32_t *ret_posted)
{
	int err;

	rp_srq_check(srq);
	err = srq->ops->srq_post(srq, wrs, count, ret_posted);
	CHECK(*ret_posted <= count);
	if (*ret_posted)
		rp_count_recvs(srq->ops, *ret_posted);
	if (__builtin_expect(err == -ENOMEM, 0))
		rp_count_recv_full(srq->max_wr);
	return err;
}

/* ---- Queue pairs. ---- */

static uint32_t or_default(uint32_t asked, uint32_t otherwise)
{
	return asked ? asked : otherwise;
}

int rp_qp_open(struct rp_pd *pd, const struct rp_qp_attr *attr, struct rp_qp **ret_qp)
{
	struct rp_qp_attr full = *attr;
	struct rp_qp *qp;
	int err;

	rp_pd_check(pd);
	full.cap.max_send_wr = or_default(attr->cap.max_send_wr, 128);
	full.cap.max_recv_wr = or_default(attr->cap.max_recv_wr, 128);
	full.cap.max_send_sge = or_default(attr->cap.max_send_sge, 4);
	full.cap.max_recv_sge = or_default(attr->cap.max_recv_sge, 4);
	if (!attr->send_cq || !attr->recv_cq || attr->retry_count > 7 || attr->rnr_retry_count > 7)
		return -EINVAL;
	if (full.cap.max_send_sge > LIMIT_SGE_MAX || full.cap.max_recv_sge > LIMIT_SGE_MAX)
		return -EINVAL;
	if (attr->type == RP_QP_DCT && !attr->srq)
		return -EINVAL;
	rp_cq_check(attr->send_cq);
	rp_cq_check(attr->recv_cq);
	if (attr->srq)
		rp_srq_check(attr->srq);
	err = pd->ops->qp_open(pd, &full, &qp);
	if (err)
		return err;
	CHECK(qp->cap.max_send_wr >= full.cap.max_send_wr || attr->type == RP_QP_DCT);
	qp->magic = RP_QP;
	qp->context = attr->context;
	qp->send_cq = attr->send_cq;
	qp->recv_cq = attr->recv_cq;
	qp->type = attr->type;
	qp->qkey = attr->qkey;
	*ret_qp = qp;
	return 0;
}

void rp_qp_close(struct rp_qp *qp)
{
	if (!qp)
		return;
	rp_qp_check(qp);
	if (qp->target)
		qp->target_release(qp->target);
	CHECK(!qp->target);
	qp->magic = RP_CLOSED;
	qp->ops->qp_close(qp);
}

uint32_t rp_qp_num(const struct rp_qp *qp)
{
	rp_qp_check(qp);
	return qp->num;
}

void *rp_qp_context(const struct rp_qp *qp)
{
	rp_qp_check(qp);
	return qp->context;
}

enum rp_qp_state rp_qp_state(const struct rp_qp *qp)
{
	rp_qp_check(qp);
	return qp->ops->qp_state(qp);
}

void rp_qp_cap(const struct rp_qp *qp, struct rp_qp_cap *ret_cap)
{
	rp_qp_check(qp);
	*ret_cap = qp->cap;
}

int rp_post_send(
	struct rp_qp *qp, const struct rp_send_wr *wrs, uint32_t count, uint32_t *ret_posted)
{
	int err;

	rp_qp_check(qp);
	PROBE3(rdma_post_send, qp->num, count, count ? (uint32_t)wrs->opcode : 0);
	err = qp->ops->post_send(qp, wrs, count, ret_posted);
	CHECK(*ret_posted <= count);
	if (*ret_posted)
		rp_count_sends(qp->ops, wrs, *ret_posted);
	if (__builtin_expect(err == -ENOMEM, 0))
		rp_count_send_full(qp->cap.max_send_wr);
	return err;
}

int rp_post_recv(
	struct rp_qp *qp, const struct rp_recv_wr *wrs, uint32_t count, uint32_t *ret_posted)
{
	int err;

	rp_qp_check(qp);
	PROBE2(rdma_post_recv, qp->num, count);
	err = qp->ops->post_recv(qp, wrs, count, ret_posted);
	CHECK(*ret_posted <= count);
	if (*ret_posted)
		rp_count_recvs(qp->ops, *ret_posted);
	if (__builtin_expect(err == -ENOMEM, 0))
		rp_count_recv_full(qp->cap.max_recv_wr);
	return err;
}

void rp_qp_error(struct rp_qp *qp)
{
	rp_qp_check(qp);
	qp->ops->qp_error(qp);
}

/* ---- Addresses. ---- */

int rp_ah_open(struct rp_pd *pd, const struct rp_address *to, struct rp_ah **ret_ah)
{
	int err;

	rp_pd_check(pd);
	if (!to->has_gid && !to->lid)
		return -EINVAL;
	err = pd->ops->ah_open(pd, to, ret_ah);
	if (!err)
		(*ret_ah)->magic = RP_AH;
	return err;
}

int rp_ah_from_wc(struct rp_pd *pd, const struct rp_wc *wc, const void *grh, struct rp_ah **ret_ah)
{
	int err;

	rp_pd_check(pd);
	if (wc->status != RP_WC_SUCCESS || wc->opcode != RP_RECV)
		return -EINVAL;
	err = pd->ops->ah_from_wc(pd, wc, grh, ret_ah);
	if (!err)
		(*ret_ah)->magic = RP_AH;
	return err;
}

void rp_ah_close(struct rp_ah *ah)
{
	if (!ah)
		return;
	rp_ah_check(ah);
	ah->magic = RP_CLOSED;
	ah->ops->ah_close(ah);
}

/* ---- Datagrams. ---- */

int rp_group_join(struct rp_qp *qp, const char *address, struct rp_group **ret_group)
{
	int err;

	rp_qp_check(qp);
	if (qp->type != RP_QP_UD || qp->qkey != RP_GROUP_QKEY || !address)
		return -EINVAL;
	err = qp->ops->group_join(qp, address, ret_group);
	if (!err)
		(*ret_group)->magic = RP_GROUP;
	return err;
}

void rp_group_leave(struct rp_group *group)
{
	if (!group)
		return;
	rp_group_check(group);
	group->magic = RP_CLOSED;
	group->ops->group_leave(group);
}

struct rp_ah *rp_group_ah(const struct rp_group *group)
{
	rp_group_check(group);
	return group->ah;
}

int rp_flow_open(struct rp_qp *qp, const struct rp_flow_rule *rule, struct rp_flow **ret_flow)
{
	int err;

	rp_qp_check(qp);
	if (qp->type != RP_QP_RAW || rule->vlan > VLAN_MAX)
		return -EINVAL;
	err = qp->ops->flow_open(qp, rule, ret_flow);
	if (!err)
		(*ret_flow)->magic = RP_FLOW;
	return err;
}

void rp_flow_close(struct rp_flow *flow)
{
	if (!flow)
		return;
	rp_flow_check(flow);
	flow->magic = RP_CLOSED;
	flow->ops->flow_close(flow);
}

int rp_dci_aim(struct rp_qp *dci, struct rp_ah *ah, uint32_t target_qpn, uint64_t dc_key)
{
	rp_qp_check(dci);
	if (dci->type != RP_QP_DCI || !ah || ah->ops != dci->ops || target_qpn > QPN_MAX)
		return -EINVAL;
	rp_ah_check(ah);
	return dci->ops->dci_aim(dci, ah, target_qpn, dc_key);
}

/* ---- Connection manager. ---- */

static bool is_connected_type(const struct rp_qp *qp)
{
	return qp->type == RP_QP_RC || qp->type == RP_QP_UC;
}

int rp_listen(struct rp_device *device, const char *address, uint16_t port, void *context,
	struct rp_listener **ret_listener)
{
	struct rp_listener *listener;
	int err;

	rp_device_check(device);
	err = device->ops->listen(device, address ? address : "", port, &listener);
	if (err)
		return err;
	CHECK(listener->port != 0);
	listener->magic = RP_LISTENER;
	listener->context = context;
	*ret_listener = listener;
	return 0;
}

void rp_listener_close(struct rp_listener *listener)
{
	if (!listener)
		return;
	rp_listener_check(listener);
	listener->magic = RP_CLOSED;
	listener->ops->listener_close(listener);
}

void *rp_listener_context(const struct rp_listener *listener)
{
	rp_listener_check(listener);
	return listener->context;
}

uint16_t rp_listener_port(const struct rp_listener *listener)
{
	rp_listener_check(listener);
	return listener->port;
}

int rp_connect(struct rp_qp *qp, const char *address, uint16_t port, const void *private_data,
	uint32_t private_len, uint64_t deadline_ns)
{
	rp_qp_check(qp);
	if (!is_connected_type(qp))
		return -EOPNOTSUPP;
	if (!address || !address[0] || !port || private_len > RP_PRIVATE_BYTES_MAX)
		return -EINVAL;
	return qp->ops->connect(
		qp, address, port, slice_of(private_data, private_len), deadline_ns);
}

int rp_accept(struct rp_conn_request *request, struct rp_qp *qp, const void *private_data,
	uint32_t private_len)
{
	int err;

	rp_request_check(request);
	rp_qp_check(qp);
	if (private_len > RP_PRIVATE_BYTES_MAX || request->ops != qp->ops)
		return -EINVAL;
	request->magic = RP_CLOSED;
	err = qp->ops->accept(request, qp, slice_of(private_data, private_len));
	/* The caller can still reject it. */
	if (err)
		request->magic = RP_REQUEST;
	return err;
}

void rp_reject(struct rp_conn_request *request, const void *private_data, uint32_t private_len)
{
	rp_request_check(request);
	request->magic = RP_CLOSED;
	request->ops->reject(
		request, slice_of(private_data, MIN(private_len, RP_PRIVATE_BYTES_MAX)));
}

void rp_disconnect(struct rp_qp *qp)
{
	rp_qp_check(qp);
	qp->ops->disconnect(qp);
}

int rp_qp_address(struct rp_qp *qp, struct rp_address *ret_address)
{
	rp_qp_check(qp);
	return qp->ops->qp_address(qp, ret_address);
}

int rp_qp_join(struct rp_qp *qp, const struct rp_address *peer, bool first)
{
	rp_qp_check(qp);
	if (qp->type != RP_QP_RC)
		return -EOPNOTSUPP;
	if (peer->qpn > QPN_MAX || peer->psn > QPN_MAX || peer->mtu < 256 || peer->mtu > 4096 ||
		peer->mtu & (peer->mtu - 1))
		return -EINVAL;
	return qp->ops->qp_join(qp, peer, first);
}

int rp_cm_poll(struct rp_device *device, struct rp_cm_event *ret_event)
{
	int got;

	rp_device_check(device);
	got = device->ops->cm_poll(device, ret_event);
	if (got <= 0)
		return got;
	CHECK(ret_event->private_len <= RP_PRIVATE_BYTES_MAX);
	switch (ret_event->type) {
	case RP_CM_CONNECT_REQUEST:
		CHECK(ret_event->request->ops == device->ops);
		ret_event->request->magic = RP_REQUEST;
		break;
	case RP_CM_GROUP_JOINED:
		CHECK(ret_event->group->ah != NULL);
		ret_event->group->ah->magic = RP_AH;
		break;
	case RP_CM_GROUP_FAILED:
		CHECK(ret_event->group != NULL);
		break;
	case RP_CM_DEVICE_FATAL:
		CHECK(ret_event->qp == NULL);
		counter_add(&device_failures, 1);
		break;
	default:
		/* Its magic is not checked: its own thread may close it meanwhile. */
		CHECK(ret_event->qp != NULL);
	}
	return got;
}

int rp_cm_fd(const struct rp_device *device)
{
	rp_device_check(device);
	return device->ops->cm_fd(device);
}
