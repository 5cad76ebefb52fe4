/* rdma/verbs/dc.c: mlx5's dynamically connected transport, by libmlx5's direct verbs: see
 * mlx5dv_create_qp(3) and mlx5dv_wr_post(3). On other devices, and without that library, every call
 * returns -EOPNOTSUPP. */
#include <errno.h>
#include <stdlib.h>

#include "rdma/verbs/dc.h"

#ifdef HAVE_MLX5DV

static const uint64_t send_ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
				 IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				 IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

/* ---- Opening and closing. ---- */

static struct ibv_qp *create(
	struct verbs_qp *qp, struct ibv_pd *pd, const struct rp_qp_attr *attr, uint32_t *ret_inline)
{
	bool target = attr->type == RP_QP_DCT;
	struct ibv_qp_init_attr_ex init = {
		.qp_context = qp,
		.send_cq = verbs_cq(attr->send_cq)->cq,
		.recv_cq = verbs_cq(attr->recv_cq)->cq,
		.qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct mlx5dv_qp_init_attr direct = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
		.dc_init_attr = {.dc_type = target ? MLX5DV_DCTYPE_DCT : MLX5DV_DCTYPE_DCI},
	};
	struct ibv_qp *created;

	if (attr->srq)
		init.srq = CONTAINER_OF(attr->srq, struct verbs_srq, base)->srq;
	if (target) {
		direct.dc_init_attr.dct_access_key = attr->dc_key;
	} else {
		init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		init.send_ops_flags = send_ops;
		init.cap = (struct ibv_qp_cap){.max_send_wr = attr->cap.max_send_wr,
			.max_send_sge = attr->cap.max_send_sge,
			.max_inline_data = attr->cap.max_inline_data};
	}
	created = mlx5dv_create_qp(pd->context, &init, &direct);
	*ret_inline = init.cap.max_inline_data;
	return created;
}

static int to_init(struct verbs_device *device, struct ibv_qp *qp, bool target)
{
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = device->port_num};

	if (target) {
		mask |= IBV_QP_ACCESS_FLAGS;
		attr.qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	}
	return -ibv_modify_qp(qp, &attr, mask);
}

/* The address vector describes this port, not the peer: each request names its peer. */
static int to_rtr(struct verbs_device *device, struct ibv_qp *qp, bool target)
{
	int mask = IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = device->port.active_mtu,
		.ah_attr = {.port_num = device->port_num,
			.sl = device->service_level,
			.is_global = device->has_gid},
		.min_rnr_timer = VERBS_MIN_RNR_TIMER,
	};

	if (device->has_gid) {
		attr.ah_attr.grh.sgid_index = (uint8_t)device->gid.gid_index;
		attr.ah_attr.grh.hop_limit = VERBS_HOPS_MAX;
		attr.ah_attr.grh.traffic_class = device->traffic_class;
	}
	if (target)
		mask |= IBV_QP_MIN_RNR_TIMER;
	return -ibv_modify_qp(qp, &attr, mask);
}

static int to_rts(struct verbs_device *device, struct verbs_qp *qp, struct ibv_qp *created)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = qp->timeout,
		.retry_cnt = qp->retry_count,
		.rnr_retry = qp->rnr_retry_count,
		.max_rd_atomic =
			(uint8_t)MIN((uint32_t)device->attr.max_qp_init_rd_atom, VERBS_READS_MAX),
	};

	return -ibv_modify_qp(created, &attr,
		IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

int verbs_dc_create(struct verbs_qp *qp, struct ibv_pd *pd, const struct rp_qp_attr *attr)
{
	bool target = attr->type == RP_QP_DCT;
	uint32_t inline_bytes;
	int err;

	if (!target) {
		qp->dci = calloc(1, sizeof(*qp->dci));
		if (!qp->dci)
			return -ENOMEM;
	}
	qp->qp = create(qp, pd, attr, &inline_bytes);
	err = qp->qp ? to_init(qp->device, qp->qp, target) : -errno;
	if (!err)
		err = to_rtr(qp->device, qp->qp, target);
	if (!err && !target)
		err = to_rts(qp->device, qp, qp->qp);
	if (err) {
		if (qp->qp)
			ibv_destroy_qp(qp->qp);
		free(qp->dci);
		qp->dci = NULL;
		return err;
	}
	if (!target) {
		qp->dci->wr = ibv_qp_to_qp_ex(qp->qp);
		qp->dci->direct = mlx5dv_qp_ex_from_ibv_qp_ex(qp->dci->wr);
	}
	/* A target has its number only now. */
	qp->base.num = qp->qp->qp_num;
	qp->base.cap = attr->cap;
	qp->base.cap.max_inline_data = target ? 0 : inline_bytes;
	atomic_store(&qp->state, target ? RP_QPS_RTR : RP_QPS_RTS);
	return 0;
}

void verbs_dc_free(struct verbs_dci *dci)
{
	free(dci);
}

bool verbs_dc_probe(struct verbs_device *device)
{
	struct ibv_pd *pd;
	struct verbs_cq cq = {0};
	struct rp_qp_attr attr = {.type = RP_QP_DCI,
		.send_cq = &cq.base,
		.recv_cq = &cq.base,
		.cap = {.max_send_wr = 1, .max_send_sge = 1}};
	struct ibv_qp *qp = NULL;
	uint32_t inline_bytes;

	if (!mlx5dv_is_supported(device->context->device))
		return false;
	pd = ibv_alloc_pd(device->context);
	cq.cq = ibv_create_cq(device->context, 1, NULL, NULL, 0);
	if (pd && cq.cq)
		qp = create(NULL, pd, &attr, &inline_bytes);
	if (qp)
		ibv_destroy_qp(qp);
	if (cq.cq)
		ibv_destroy_cq(cq.cq);
	if (pd)
		ibv_dealloc_pd(pd);
	return qp != NULL;
}

/* ---- Posting. ---- */

int verbs_dci_aim(struct rp_qp *base, struct rp_ah *ah, uint32_t target_qpn, uint64_t dc_key)
{
	struct verbs_qp *qp = verbs_qp(base);

	if (!qp->dci)
		return -EINVAL;
	qp->dci->ah = CONTAINER_OF(ah, struct verbs_ah, base)->ah;
	qp->dci->target_qpn = target_qpn;
	qp->dci->dc_key = dc_key;
	return 0;
}

static void start_one(struct ibv_qp_ex *to, const struct rp_send_wr *wr)
{
	switch (wr->opcode) {
	case RP_SEND:
		ibv_wr_send(to);
		break;
	case RP_SEND_IMM:
		ibv_wr_send_imm(to, htonl(wr->imm));
		break;
	case RP_WRITE:
		ibv_wr_rdma_write(to, wr->rkey, wr->remote_addr);
		break;
	case RP_WRITE_IMM:
		ibv_wr_rdma_write_imm(to, wr->rkey, wr->remote_addr, htonl(wr->imm));
		break;
	case RP_READ:
		ibv_wr_rdma_read(to, wr->rkey, wr->remote_addr);
		break;
	case RP_CMP_SWAP:
		ibv_wr_atomic_cmp_swp(to, wr->rkey, wr->remote_addr, wr->compare_add, wr->swap);
		break;
	default:
		ibv_wr_atomic_fetch_add(to, wr->rkey, wr->remote_addr, wr->compare_add);
	}
}

static void set_payload(struct ibv_qp_ex *to, const struct rp_send_wr *wr)
{
	struct ibv_data_buf bufs[LIMIT_SGE_MAX];
	struct ibv_sge sges[LIMIT_SGE_MAX];

	for (uint32_t i = 0; i < wr->sge_count; i++) {
		const struct rp_sge *sge = &wr->sg_list[i];

		bufs[i] = (struct ibv_data_buf){(void *)(uintptr_t)sge->addr, sge->length};
		sges[i] = (struct ibv_sge){sge->addr, sge->length, sge->lkey};
	}
	if (wr->flags & RP_SEND_INLINE)
		ibv_wr_set_inline_data_list(to, wr->sge_count, bufs);
	else
		ibv_wr_set_sge_list(to, wr->sge_count, sges);
}

uint32_t verbs_dc_send(
	struct verbs_qp *qp, const struct rp_send_wr *wrs, uint32_t count, int *ret_err)
{
	struct verbs_dci *dci = qp->dci;
	uint32_t ready = 0;
	int err;

	*ret_err = 0;
	ibv_wr_start(dci->wr);
	for (; ready < count; ready++) {
		const struct rp_send_wr *wr = &wrs[ready];

		if (verbs_send_is_wrong(qp, wr) || (!wr->ah && !dci->ah)) {
			*ret_err = -EINVAL;
			break;
		}
		dci->wr->wr_id = wr->wr_id;
		dci->wr->wr_flags = verbs_send_flags(wr->flags);
		start_one(dci->wr, wr);
		if (wr->ah)
			mlx5dv_wr_set_dc_addr(dci->direct,
				CONTAINER_OF(wr->ah, struct verbs_ah, base)->ah, wr->remote_qpn,
				wr->dc_key);
		else
			mlx5dv_wr_set_dc_addr(dci->direct, dci->ah, dci->target_qpn, dci->dc_key);
		set_payload(dci->wr, wr);
	}
	/* The device takes the whole batch or nothing. */
	err = ibv_wr_complete(dci->wr);
	if (!err)
		return ready;
	*ret_err = -abs(err);
	return 0;
}

#else

bool verbs_dc_probe(struct verbs_device *device)
{
	(void)device;
	return false;
}

int verbs_dc_create(struct verbs_qp *qp, struct ibv_pd *pd, const struct rp_qp_attr *attr)
{
	(void)qp;
	(void)pd;
	(void)attr;
	return -EOPNOTSUPP;
}

void verbs_dc_free(struct verbs_dci *dci)
{
	(void)dci;
}

int verbs_dci_aim(struct rp_qp *base, struct rp_ah *ah, uint32_t target_qpn, uint64_t dc_key)
{
	(void)base;
	(void)ah;
	(void)target_qpn;
	(void)dc_key;
	return -EOPNOTSUPP;
}

uint32_t verbs_dc_send(
	struct verbs_qp *qp, const struct rp_send_wr *wrs, uint32_t count, int *ret_err)
{
	(void)qp;
	(void)wrs;
	(void)count;
	*ret_err = -EOPNOTSUPP;
	return 0;
}

#endif
