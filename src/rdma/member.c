/* rdma/member.c: a member of a multicast group: a UD queue pair with everything that it needs, and
 * memory for its datagrams. Used by clients that look for servers, by the servers that
 * answer, and by both ends of the multicast of an object. */
#include "rdma/datagram.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A slot holds a received datagram and a datagram to send. */
static size_t slot_bytes(const struct rp_member *member)
{
	return 2 * (RP_GRH_BYTES + (size_t)member->bytes);
}

uint8_t *rp_member_in(const struct rp_member *member, uint64_t slot)
{
	return member->memory + slot * slot_bytes(member);
}

uint8_t *rp_member_out(const struct rp_member *member, uint64_t slot)
{
	return rp_member_in(member, slot) + RP_GRH_BYTES + member->bytes;
}

int rp_member_post(struct rp_member *member, uint64_t slot)
{
	struct rp_sge sge = {(uintptr_t)rp_member_in(member, slot), RP_GRH_BYTES + member->bytes,
		rp_mr_lkey(member->mr)};
	uint32_t posted;

	CHECK(slot < member->slot_count);
	rp_ah_close(member->to[slot]);
	member->to[slot] = NULL;
	return rp_post_recv(member->qp, &(struct rp_recv_wr){slot, &sge, 1}, 1, &posted);
}

static int out_send(
	struct rp_member *member, uint64_t slot, uint32_t bytes, struct rp_ah *ah, uint32_t qpn)
{
	struct rp_sge sge = {(uintptr_t)rp_member_out(member, slot), bytes, rp_mr_lkey(member->mr)};
	const struct rp_send_wr wr = {.wr_id = slot,
		.opcode = RP_SEND,
		.flags = RP_SEND_SIGNALED,
		.sg_list = &sge,
		.sge_count = 1,
		.ah = ah,
		.remote_qpn = qpn,
		.remote_qkey = RP_GROUP_QKEY};
	uint32_t posted;

	/* The slot after the last sends questions. */
	CHECK(slot <= member->slot_count);
	return rp_post_send(member->qp, &wr, 1, &posted);
}

int rp_member_joined(struct rp_member *member)
{
	struct rp_cm_event event;
	int got;

	while ((got = rp_cm_poll(member->device, &event)) > 0) {
		if (event.type == RP_CM_GROUP_JOINED)
			return 1;
		if (event.type == RP_CM_GROUP_FAILED)
			return -ENETUNREACH;
	}
	return got;
}

int rp_member_tell(struct rp_member *member, uint64_t slot, uint32_t bytes)
{
	CHECK(member->group != NULL);
	CHECK(bytes <= member->bytes);
	return out_send(member, slot, bytes, rp_group_ah(member->group), RP_GROUP_QPN);
}

int rp_member_ask(struct rp_member *member)
{
	return rp_member_tell(member, member->slot_count, member->bytes);
}

int rp_member_answer(struct rp_member *member, const struct rp_wc *wc)
{
	int err;

	CHECK(wc->wr_id < member->slot_count);
	CHECK(!member->to[wc->wr_id]);
	err = rp_ah_from_wc(
		member->pd, wc, rp_member_in(member, wc->wr_id), &member->to[wc->wr_id]);
	return err ? err
		   : out_send(member, wc->wr_id, member->bytes, member->to[wc->wr_id], wc->src_qpn);
}

static int memory_open(struct rp_member *member)
{
	/* One more slot: the one for questions has no receive. */
	size_t slots = member->slot_count + 1;
	struct rp_mr_opts mr = {.bytes = ALIGN_UP(slots * slot_bytes(member), 4096u),
		.access = RP_ACCESS_LOCAL_WRITE,
		.fd = -1};

	member->memory = aligned_alloc(4096, mr.bytes);
	member->to = calloc(slots, sizeof(*member->to));
	if (!member->memory || !member->to)
		return -ENOMEM;
	memset(member->memory, 0, mr.bytes);
	mr.addr = member->memory;
	return rp_mr_open(member->pd, &mr, &member->mr);
}

int rp_member_open(const struct rp_member_opts *opts, struct rp_member *member)
{
	struct rp_qp_attr attr = {.type = RP_QP_UD,
		.qkey = RP_GROUP_QKEY,
		.cap = {.max_send_wr = opts->slot_count,
			.max_recv_wr = opts->slot_count,
			.max_send_sge = 1,
			.max_recv_sge = 1}};
	int err;

	*member = (struct rp_member){.slot_count = opts->slot_count, .bytes = opts->bytes};
	err = rp_open(&opts->device, &member->device);
	if (!err)
		err = rp_pd_open(member->device, &member->pd);
	if (!err)
		err = memory_open(member);
	if (!err)
		err = rp_cq_open(member->device, 2 * opts->slot_count, &member->cq);
	attr.send_cq = attr.recv_cq = member->cq;
	if (!err)
		err = rp_qp_open(member->pd, &attr, &member->qp);
	for (uint64_t slot = 0; slot < opts->slot_count && !err; slot++)
		err = rp_member_post(member, slot);
	if (!err)
		err = rp_group_join(member->qp, opts->group, &member->group);
	if (err)
		rp_member_close(member);
	return err;
}

void rp_member_close(struct rp_member *member)
{
	rp_group_leave(member->group);
	rp_qp_close(member->qp);
	for (uint64_t slot = 0; member->to && slot < member->slot_count; slot++)
		rp_ah_close(member->to[slot]);
	rp_mr_close(member->mr);
	rp_cq_close(member->cq);
	rp_pd_close(member->pd);
	rp_close(member->device);
	free(member->to);
	free(member->memory);
	*member = (struct rp_member){0};
}
