/* rdma/verbs/join.c: queue pairs joined by hand, without a connection manager: RTR with the peer's
 * address, then RTS. InfiniBand Architecture Specification, volume 1, 11.2.5.2. */
#include <errno.h>

#include "rdma/verbs/verbs_priv.h"

int verbs_qp_address(struct rp_qp *base, struct rp_address *ret_address)
{
	const struct verbs_qp *qp = verbs_qp(base);
	const struct verbs_device *device = qp->device;

	*ret_address = (struct rp_address){
		.has_gid = device->has_gid,
		.lid = device->port.lid,
		.qpn = base->num,
		.psn = qp->psn,
		.mtu = 128u << device->port.active_mtu, /* within our own limit */
	};
	if (device->has_gid)
		memcpy(ret_address->gid, device->gid.gid.raw, sizeof(ret_address->gid));
	return 0;
}

static enum ibv_mtu mtu_code(uint32_t bytes)
{
	uint32_t code = IBV_MTU_256;

	while (code < IBV_MTU_4096 && (128u << code) < bytes)
		code++;
	return (enum ibv_mtu)code;
}

static int to_rtr(struct verbs_qp *qp, const struct rp_address *peer)
{
	const struct verbs_device *device = qp->device;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = MIN(mtu_code(peer->mtu), device->port.active_mtu),
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic =
			(uint8_t)MIN((uint32_t)device->attr.max_qp_rd_atom, VERBS_READS_MAX),
		.min_rnr_timer = VERBS_MIN_RNR_TIMER,
	};
	int err = verbs_ah_attr(device, peer, &attr.ah_attr);

	if (err)
		return err;
	return -ibv_modify_qp(qp->qp, &attr,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct verbs_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = qp->psn,
		.timeout = qp->timeout,
		.retry_cnt = qp->retry_count,
		.rnr_retry = qp->rnr_retry_count,
		.max_rd_atomic = (uint8_t)MIN(
			(uint32_t)qp->device->attr.max_qp_init_rd_atom, VERBS_READS_MAX),
	};

	return -ibv_modify_qp(qp->qp, &attr,
		IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* From here on no connection manager has it. */
static int join_begin(struct verbs_qp *qp)
{
	struct verbs_device *device = qp->device;
	bool begun;

	pthread_mutex_lock(&device->lock);
	begun = qp->conn == VERBS_CONN_NONE && !qp->joined &&
		atomic_load(&qp->state) == RP_QPS_INIT;
	if (begun)
		qp->joined = true;
	pthread_mutex_unlock(&device->lock);
	return begun ? 0 : -EISCONN;
}

/* The device may have gone meanwhile. */
static int join_end(struct verbs_qp *qp, int err)
{
	struct verbs_device *device = qp->device;

	pthread_mutex_lock(&device->lock);
	if (!err && atomic_load(&qp->state) != RP_QPS_INIT)
		err = -EIO;
	qp->joined = !err;
	if (!err)
		atomic_store(&qp->state, RP_QPS_RTS);
	pthread_mutex_unlock(&device->lock);
	return err;
}

/* Without the device's lock: on Ethernet the kernel looks for the peer on the network, for a second
 * when nobody has its address. */
int verbs_qp_join(struct rp_qp *base, const struct rp_address *peer, bool first)
{
	struct verbs_qp *qp = verbs_qp(base);
	int err;

	(void)first; /* packets find their queue pair by number, so neither end calls the other */
	if (qp->type != RP_QP_RC || verbs_is_iwarp(qp->device))
		return -EOPNOTSUPP;
	err = join_begin(qp);
	if (err)
		return err;
	err = to_rtr(qp, peer);
	if (!err)
		err = to_rts(qp);
	err = join_end(qp, err);
	if (err)
		log_info("rdma", "cannot connect queue pair %u to %u: %s", qp->base.num, peer->qpn,
			strerror(-err));
	return err;
}
