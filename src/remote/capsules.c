/* remote/capsules.c: the memory of a lane's capsules, at either end, and the functions that post
 * one. */
#include "remote/remote_priv.h"

#include <string.h>

int capsules_open(struct region *region, struct rp_port *port, const uint32_t counts[2],
	struct capsules *ret_capsules)
{
	uint32_t bytes = (counts[0] + counts[1]) * (uint32_t)sizeof(union wire_capsule);
	struct region_span span;
	int err = region_lease_lasting(region, region_frames_for(bytes), OWNER_RDMA, &span);

	if (err)
		return err;
	memset(span.data, 0, bytes);
	*ret_capsules = (struct capsules){.span = span,
		.sends = (union wire_capsule *)(void *)span.data,
		.recvs = (union wire_capsule *)(void *)span.data + counts[0],
		.lkey = rp_mr_lkey(rp_port_mr(port, span.data, bytes))};
	return 0;
}

void capsules_close(struct region *region, struct capsules *capsules)
{
	if (capsules->span.data)
		region_give(region, capsules->span, OWNER_RDMA);
	*capsules = (struct capsules){.sends = NULL};
}

int capsules_recv_post(const struct capsules *capsules, struct rp_qp *qp, uint64_t id)
{
	const struct rp_sge sge = {
		(uintptr_t)&capsules->recvs[work_n(id)], WIRE_RECV_BYTES, capsules->lkey};
	const struct rp_recv_wr wr = {.wr_id = id, .sg_list = &sge, .sge_count = 1};
	uint32_t posted;

	return rp_post_recv(qp, &wr, 1, &posted);
}

int capsules_send_post(const struct capsules *capsules, struct rp_qp *qp, uint64_t id)
{
	const union wire_capsule *capsule = &capsules->sends[work_n(id)];
	const struct rp_sge sge = {(uintptr_t)capsule, capsule->head.bytes, capsules->lkey};
	const struct rp_send_wr wr = {.wr_id = id,
		.opcode = RP_SEND,
		.flags = RP_SEND_SIGNALED,
		.sg_list = &sge,
		.sge_count = 1};
	uint32_t posted;

	return rp_post_send(qp, &wr, 1, &posted);
}
