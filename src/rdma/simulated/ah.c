/* rdma/simulated/ah.c: address handles of the simulated provider: the name of a device. */
#include <errno.h>
#include <stdlib.h>

#include "rdma/simulated/simulated_priv.h"

int sim_ah_open(struct rp_pd *base, const struct rp_address *to, struct rp_ah **ret_ah)
{
	struct sim_pd *pd = CONTAINER_OF(base, struct sim_pd, base);
	struct sim_ah *ah;

	if (!to->has_gid)
		return -EINVAL;
	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return -ENOMEM;
	ah->base.ops = &rp_simulated_ops;
	ah->device = pd->device;
	memcpy(ah->gid, to->gid, sizeof(ah->gid));
	pthread_mutex_lock(&ah->device->lock);
	ah->device->open_objects++;
	pthread_mutex_unlock(&ah->device->lock);
	*ret_ah = &ah->base;
	return 0;
}

/* The header's source address is the sender's device: RFC 8200, section 3, as IBTA's has it. */
int sim_ah_from_wc(
	struct rp_pd *base, const struct rp_wc *wc, const void *grh, struct rp_ah **ret_ah)
{
	struct rp_address from = {.has_gid = true};

	if (!wc->has_grh)
		return -EINVAL;
	memcpy(from.gid, (const uint8_t *)grh + 8, sizeof(from.gid));
	return sim_ah_open(base, &from, ret_ah);
}

void sim_ah_close(struct rp_ah *base)
{
	struct sim_ah *ah = CONTAINER_OF(base, struct sim_ah, base);

	pthread_mutex_lock(&ah->device->lock);
	CHECK(ah->device->open_objects > 0);
	ah->device->open_objects--;
	pthread_mutex_unlock(&ah->device->lock);
	free(ah);
}

int sim_dci_aim(struct rp_qp *dci, struct rp_ah *ah, uint32_t target_qpn, uint64_t dc_key)
{
	(void)dci;
	(void)ah;
	(void)target_qpn;
	(void)dc_key;
	return -EOPNOTSUPP;
}
