/* rdma/verbs/ud.c: datagrams of the verbs provider: UD queue pairs and their groups, raw packet
 * queue pairs and their flow rules. */
#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "rdma/verbs/verbs_priv.h"

#define RESOLVE_MS 5000

/* ---- Coming up. ---- */

int verbs_ud_ready(struct verbs_qp *qp)
{
	bool raw = qp->type == RP_QP_RAW;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	int err = -ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE);

	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = qp->psn;
	if (!err)
		err = -ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE | (raw ? 0 : IBV_QP_SQ_PSN));
	if (!err)
		atomic_store(&qp->state, RP_QPS_RTS);
	return err;
}

int verbs_raw_probe(struct verbs_device *device)
{
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp = NULL;
	int err = ENOMEM;

	if (device->port.link_layer != IBV_LINK_LAYER_ETHERNET || verbs_is_iwarp(device))
		return -EOPNOTSUPP;
	pd = ibv_alloc_pd(device->context);
	cq = ibv_create_cq(device->context, 1, NULL, NULL, 0);
	if (pd && cq) {
		struct ibv_qp_init_attr init = {
			.send_cq = cq,
			.recv_cq = cq,
			.qp_type = IBV_QPT_RAW_PACKET,
			.cap = {.max_send_wr = 1,
				.max_recv_wr = 1,
				.max_send_sge = 1,
				.max_recv_sge = 1},
		};

		qp = ibv_create_qp(pd, &init);
		err = qp ? 0 : errno;
	}
	if (qp)
		ibv_destroy_qp(qp);
	if (cq)
		ibv_destroy_cq(cq);
	if (pd)
		ibv_dealloc_pd(pd);
	return -err;
}

void verbs_raw_explain(const struct verbs_device *device)
{
	const char *name = verbs_device_name(device);

	if (device->raw_err == -EPERM || device->raw_err == -EACCES)
		log_error("rdma", "%s: raw packets need the capability CAP_NET_RAW", name);
	else
		log_error("rdma",
			"%s: raw packets need a card with an Ethernet port (soft-RoCE is none) and "
			"the capability CAP_NET_RAW: %s",
			name, strerror(-device->raw_err));
}

/* ---- Groups. ---- */

static bool is_multicast(const union verbs_address *address)
{
	if (address->any.sa_family == AF_INET)
		return IN_MULTICAST(ntohl(address->in.sin_addr.s_addr));
	return IN6_IS_ADDR_MULTICAST(&address->in6.sin6_addr);
}

static int join(struct verbs_group *group)
{
	struct sockaddr *to = (struct sockaddr *)&group->address;

	return rdma_join_multicast(group->id, to, &group->handle) ? -errno : 0;
}

/* Binds to our device: at once by its address, or by the route to the group. */
static int bind_or_resolve(struct verbs_group *group)
{
	struct verbs_device *device = group->qp->device;
	struct sockaddr *to = (struct sockaddr *)&group->address;
	union verbs_address from;

	if (!verbs_gid_address(device, to->sa_family, &from))
		return rdma_resolve_addr(group->id, NULL, to, RESOLVE_MS) ? -errno : 0;
	if (rdma_bind_addr(group->id, &from.any))
		return -errno;
	return verbs_is_ours(device, group->id) ? join(group) : -EADDRNOTAVAIL;
}

int verbs_group_join(struct rp_qp *base, const char *address, struct rp_group **ret_group)
{
	struct verbs_qp *qp = verbs_qp(base);
	struct verbs_device *device = qp->device;
	struct verbs_group *group;
	union verbs_address to;
	int err = verbs_address_parse(address, 0, &to);

	if (err || !is_multicast(&to))
		return -EINVAL;
	group = calloc(1, sizeof(*group));
	if (!group)
		return -ENOMEM;
	group->handle = VERBS_HANDLE_GROUP;
	group->base.ops = &rp_verbs_ops;
	group->qp = qp;
	group->address = to.storage;
	pthread_mutex_lock(&device->lock);
	if (rdma_create_id(device->channel, &group->id, &group->handle, RDMA_PS_UDP))
		err = -errno;
	else
		err = bind_or_resolve(group);
	pthread_mutex_unlock(&device->lock);
	if (err) {
		log_warn("rdma", "%s: cannot join the group %s: %s", verbs_device_name(device),
			address, strerror(-err));
		if (group->id)
			rdma_destroy_id(group->id);
		free(group);
		return err;
	}
	atomic_fetch_add(&device->open_objects, 1);
	*ret_group = &group->base;
	return 0;
}

static int attach(struct verbs_group *group, const struct verbs_notice *notice)
{
	struct ibv_ah_attr to = notice->group;
	int err;

	if (notice->group_qkey != RP_GROUP_QKEY)
		return -EPROTO;
	group->gid = to.grh.dgid;
	group->lid = to.dlid;
	err = ibv_attach_mcast(group->qp->qp, &group->gid, group->lid);
	if (err)
		return -abs(err);
	group->attached = true;
	group->ah.base.ops = &rp_verbs_ops;
	group->ah.device = group->qp->device;
	group->ah.ah = ibv_create_ah(group->qp->qp->pd, &to);
	if (!group->ah.ah)
		return -errno;
	group->base.ah = &group->ah.base;
	return 0;
}

bool verbs_group_notice(
	struct verbs_group *group, const struct verbs_notice *notice, struct rp_cm_event *ret_event)
{
	int err = notice->status;

	switch (notice->type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		err = verbs_is_ours(group->qp->device, group->id) ? join(group) : -EADDRNOTAVAIL;
		if (!err)
			return false;
		break;
	case RDMA_CM_EVENT_MULTICAST_JOIN:
		err = group->failed ? -ECANCELED : attach(group, notice);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_MULTICAST_ERROR:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		err = err ? err : -ENETUNREACH;
		break;
	default:
		return false;
	}
	if (err)
		log_warn("rdma", "%s: cannot join a group: %s",
			verbs_device_name(group->qp->device), strerror(abs(err)));
	group->failed = err != 0;
	*ret_event = (struct rp_cm_event){
		.type = err ? RP_CM_GROUP_FAILED : RP_CM_GROUP_JOINED,
		.group = &group->base,
		.qp = &group->qp->base,
	};
	return true;
}

void verbs_group_leave(struct rp_group *base)
{
	struct verbs_group *group = CONTAINER_OF(base, struct verbs_group, base);
	struct verbs_device *device = group->qp->device;

	pthread_mutex_lock(&device->lock);
	if (group->ah.ah)
		ibv_destroy_ah(group->ah.ah);
	if (group->attached)
		ibv_detach_mcast(group->qp->qp, &group->gid, group->lid);
	/* Also leaves the group. */
	rdma_destroy_id(group->id);
	pthread_mutex_unlock(&device->lock);
	verbs_object_gone(device);
	free(group);
}

/* ---- Flow rules: ibv_create_flow(3). ---- */

struct verbs_flow {
	struct rp_flow base;
	struct verbs_device *device;
	struct ibv_flow *flow;
};

struct flow_spec {
	struct ibv_flow_attr attr;
	struct ibv_flow_spec_eth eth;
};
_Static_assert(offsetof(struct flow_spec, eth) == sizeof(struct ibv_flow_attr), "no padding");

static struct flow_spec spec_of(const struct rp_flow_rule *rule, uint8_t port)
{
	struct flow_spec spec = {
		.attr = {.type = IBV_FLOW_ATTR_ALL_DEFAULT,
			.size = sizeof(struct ibv_flow_attr),
			.port = port},
		.eth = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof(struct ibv_flow_spec_eth)},
	};

	if (rule->everything)
		return spec;
	spec.attr.type = IBV_FLOW_ATTR_NORMAL;
	spec.attr.size = sizeof(spec);
	spec.attr.num_of_specs = 1;
	memcpy(spec.eth.val.dst_mac, rule->dst_mac, sizeof(rule->dst_mac));
	memset(spec.eth.mask.dst_mac, 0xff, sizeof(spec.eth.mask.dst_mac));
	if (rule->ether_type) {
		spec.eth.val.ether_type = htons(rule->ether_type);
		spec.eth.mask.ether_type = 0xffff;
	}
	if (rule->vlan) {
		spec.eth.val.vlan_tag = htons(rule->vlan);
		spec.eth.mask.vlan_tag = htons(0x0fff);
	}
	return spec;
}

int verbs_flow_open(struct rp_qp *base, const struct rp_flow_rule *rule, struct rp_flow **ret_flow)
{
	struct verbs_qp *qp = verbs_qp(base);
	struct flow_spec spec = spec_of(rule, qp->device->port_num);
	struct verbs_flow *flow = calloc(1, sizeof(*flow));
	int err;

	if (!flow)
		return -ENOMEM;
	flow->base.ops = &rp_verbs_ops;
	flow->device = qp->device;
	flow->flow = ibv_create_flow(qp->qp, &spec.attr);
	if (!flow->flow) {
		err = -errno;
		free(flow);
		return err;
	}
	atomic_fetch_add(&flow->device->open_objects, 1);
	*ret_flow = &flow->base;
	return 0;
}

void verbs_flow_close(struct rp_flow *base)
{
	struct verbs_flow *flow = CONTAINER_OF(base, struct verbs_flow, base);

	verbs_ended(flow->device, "flow rule", ibv_destroy_flow(flow->flow));
	verbs_object_gone(flow->device);
	free(flow);
}
