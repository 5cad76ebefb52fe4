/* rdma/verbs_ah.c: addresses of ports as verbs devices want them, and address handles. */
#include <errno.h>
#include <stdlib.h>

#include "rdma/verbs_priv.h"

int verbs_ah_attr(const struct verbs_device *device, const struct rp_address *to,
	struct ibv_ah_attr *ret_attr)
{
	bool infiniband = device->port.link_layer == IBV_LINK_LAYER_INFINIBAND;
	struct ibv_ah_attr attr = {.port_num = device->port_num};

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
	*ah = (struct verbs_ah){{&rp_verbs_ops}, pd->device, created};
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

int verbs_ah_from_wc(
	struct rp_pd *base, const struct rp_wc *wc, const void *grh, struct rp_ah **ret_ah)
{
	struct verbs_pd *pd = CONTAINER_OF(base, struct verbs_pd, base);
	bool infiniband = pd->device->port.link_layer == IBV_LINK_LAYER_INFINIBAND;
	struct ibv_wc from = {
		.src_qp = wc->src_qpn,
		.wc_flags = wc->has_grh ? IBV_WC_GRH : 0,
		.slid = wc->slid,
		.sl = wc->sl,
		.dlid_path_bits = wc->path_bits,
	};
	struct ibv_grh header;

	_Static_assert(sizeof(header) == RP_GRH_BYTES, "the header's size is no secret");
	if (!wc->has_grh && !infiniband)
		return -EINVAL;
	memcpy(&header, grh, sizeof(header));
	return ah_new(
		pd, ibv_create_ah_from_wc(pd->pd, &from, &header, pd->device->port_num), ret_ah);
}

void verbs_ah_close(struct rp_ah *base)
{
	struct verbs_ah *ah = CONTAINER_OF(base, struct verbs_ah, base);

	CHECK(ibv_destroy_ah(ah->ah) == 0);
	atomic_fetch_sub(&ah->device->open_objects, 1);
	free(ah);
}
