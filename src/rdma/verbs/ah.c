/* rdma/verbs/ah.c: addresses of ports as verbs devices want them, and address handles. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rdma/verbs/verbs_priv.h"

#define IPV4_AT	       20u
#define IPV4_SOURCE_AT (IPV4_AT + 12u)
#define GRH_SOURCE_AT  8u

int verbs_ah_attr(const struct verbs_device *device, const struct rp_address *to,
	struct ibv_ah_attr *ret_attr)
{
	bool infiniband = device->port.link_layer == IBV_LINK_LAYER_INFINIBAND;
	struct ibv_ah_attr attr = {.port_num = device->port_num, .sl = device->service_level};

	if (infiniband ? !to->lid : !to->has_gid || !device->has_gid)
		return -EINVAL;
	attr.dlid = infiniband ? to->lid : 0;
	attr.is_global = to->has_gid && device->has_gid;
	if (attr.is_global) {
		memcpy(attr.grh.dgid.raw, to->gid, sizeof(to->gid));
		attr.grh.sgid_index = (uint8_t)device->gid.gid_index;
		attr.grh.hop_limit = VERBS_HOPS_MAX;
		attr.grh.traffic_class = device->traffic_class;
	}
	*ret_attr = attr;
	return 0;
}

static int ah_new(struct verbs_pd *pd, struct ibv_ah *created, struct rp_ah **ret_ah)
{
	struct verbs_ah *ah;
	int err = created ? 0 : -errno;

	if (err)
		return err;
	ah = calloc(1, sizeof(*ah));
	if (!ah) {
		ibv_destroy_ah(created);
		return -ENOMEM;
	}
	*ah = (struct verbs_ah){.base.ops = &rp_verbs_ops, .device = pd->device, .ah = created};
	atomic_fetch_add(&ah->device->open_objects, 1);
	*ret_ah = &ah->base;
	return 0;
}

int verbs_ah_open(struct rp_pd *base, const struct rp_address *to, struct rp_ah **ret_ah)
{
	struct verbs_pd *pd = CONTAINER_OF(base, struct verbs_pd, base);
	struct ibv_ah_attr attr;
	int err;

	if (verbs_is_iwarp(pd->device))
		return -EOPNOTSUPP;
	err = verbs_ah_attr(pd->device, to, &attr);
	if (err)
		return err;
	return ah_new(pd, ibv_create_ah(pd->pd, &attr), ret_ah);
}

/* Whether the 40 bytes end in the IPv4 header of RoCE v2 (IBTA annex A17). The bytes before it have
 * no meaning then, so an IPv4 header that looks like a routing header must fail in its checksum. It
 * is checked only there, because soft-RoCE leaves it out when it sends to itself. */
static bool has_ipv4(const uint8_t *grh)
{
	const uint8_t *header = grh + IPV4_AT;
	uint32_t sum = 0;

	if (header[0] != 0x45)
		return false;
	if (grh[0] >> 4 != 6)
		return true;
	for (size_t i = 0; i < RP_GRH_BYTES - IPV4_AT; i += 2)
		sum += (uint32_t)(header[i] << 8 | header[i + 1]);
	return sum % 0xffff == 0;
}

/* Not ibv_create_ah_from_wc(3): it answers from the address that the datagram was sent to, and has
 * none for a datagram to a group. */
int verbs_ah_from_wc(
	struct rp_pd *base, const struct rp_wc *wc, const void *grh, struct rp_ah **ret_ah)
{
	struct verbs_pd *pd = CONTAINER_OF(base, struct verbs_pd, base);
	bool infiniband = pd->device->port.link_layer == IBV_LINK_LAYER_INFINIBAND;
	struct rp_address from = {.has_gid = wc->has_grh, .lid = wc->slid};
	const uint8_t *header = grh;
	struct ibv_ah_attr attr;
	int err;

	if (wc->has_grh && !infiniband && has_ipv4(header)) {
		from.gid[10] = from.gid[11] = 0xff;
		memcpy(from.gid + 12, header + IPV4_SOURCE_AT, 4);
	} else if (wc->has_grh) {
		memcpy(from.gid, header + GRH_SOURCE_AT, sizeof(from.gid));
	}
	err = verbs_ah_attr(pd->device, &from, &attr);
	if (err)
		return err;
	attr.sl = infiniband ? wc->sl : attr.sl;
	attr.src_path_bits = wc->path_bits;
	return ah_new(pd, ibv_create_ah(pd->pd, &attr), ret_ah);
}

void verbs_ah_close(struct rp_ah *base)
{
	struct verbs_ah *ah = CONTAINER_OF(base, struct verbs_ah, base);

	verbs_ended(ah->device, "address handle", ibv_destroy_ah(ah->ah));
	verbs_object_gone(ah->device);
	free(ah);
}
