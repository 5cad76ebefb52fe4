/* rdma/reach.c: calls that look for a peer's address, on a helper thread: on Ethernet the kernel
 * asks the network for it, for a second when nobody has it. */
#include "rdma/port.h"

struct reach {
	struct rp_qp *qp;
	struct rp_pd *pd;
	const struct rp_address *to;
	struct rp_ah *ah;
	int ret;
};

static void join_run(void *arg)
{
	struct reach *reach = arg;

	reach->ret = rp_qp_join(reach->qp, reach->to, true);
}

static void open_run(void *arg)
{
	struct reach *reach = arg;

	reach->ret = rp_ah_open(reach->pd, reach->to, &reach->ah);
}

int rp_qp_reach(struct rp_qp *qp, const struct rp_address *peer)
{
	struct reach reach = {.qp = qp, .to = peer};

	fiber_offload_long(join_run, &reach);
	return reach.ret;
}

int rp_ah_reach(struct rp_pd *pd, const struct rp_address *to, struct rp_ah **ret_ah)
{
	struct reach reach = {.pd = pd, .to = to};

	fiber_offload_long(open_run, &reach);
	*ret_ah = reach.ah;
	return reach.ret;
}
