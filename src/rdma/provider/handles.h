/* rdma/provider/handles.h: the common part of every handle, which leads back to the provider's
 * table, and the magic number that every public call checks. */
#ifndef RDMA_PROVIDER_HANDLES_H
#define RDMA_PROVIDER_HANDLES_H

#include "base/log.h"
#include "rdma/rdma.h"

struct rp_ops;

/* The value that rdma.c writes into a handle when it returns it, and removes when it closes it: a
 * caller with another value has a bug. A provider does not touch it. */
enum rp_magic {
	RP_CLOSED = 0,
	RP_DEVICE = 0x72500001,
	RP_PD,
	RP_MR,
	RP_MW,
	RP_CQ,
	RP_SRQ,
	RP_QP,
	RP_AH,
	RP_GROUP,
	RP_FLOW,
	RP_LISTENER,
	RP_REQUEST,
};

/* The common part of every handle; a provider embeds it first in its own struct. */
struct rp_device {
	const struct rp_ops *ops;
	enum rp_magic magic;
	struct log_limit failures; /* of its queue pairs, as they are logged */
};
struct rp_pd {
	const struct rp_ops *ops;
	enum rp_magic magic;
};
struct rp_mr {
	const struct rp_ops *ops;
	enum rp_magic magic;
	uint32_t lkey;
	uint32_t rkey;
	uint32_t access; /* enum rp_access */
};
struct rp_mw {
	const struct rp_ops *ops;
	enum rp_magic magic;
	uint32_t rkey;
};
struct rp_cq {
	const struct rp_ops *ops;
	enum rp_magic magic;
	int fd;	     /* rp_cq_fd() */
	bool failed; /* completions were lost, and the log has said so */
	uint32_t cqe_count;
};
struct rp_srq {
	const struct rp_ops *ops;
	enum rp_magic magic;
	uint32_t max_wr;
};
struct rp_ah {
	const struct rp_ops *ops;
	enum rp_magic magic;
};
struct rp_group {
	const struct rp_ops *ops;
	enum rp_magic magic;
	struct rp_ah *ah; /* once joined */
};
struct rp_flow {
	const struct rp_ops *ops;
	enum rp_magic magic;
};
struct rp_target;
struct rp_qp {
	const struct rp_ops *ops;
	enum rp_magic magic;
	void *context;
	struct rp_cq *send_cq, *recv_cq;
	enum rp_qp_type type;
	uint32_t num;
	uint32_t qkey;	      /* UD */
	struct rp_qp_cap cap; /* as granted */
	/* Set while the queue pair is a target of a region's rings. */
	struct rp_target *target;
	void (*target_release)(struct rp_target *target);
};
struct rp_listener {
	const struct rp_ops *ops;
	enum rp_magic magic;
	void *context;
	uint16_t port;
};
struct rp_conn_request {
	const struct rp_ops *ops;
	enum rp_magic magic;
};

static inline void rp_device_check(const struct rp_device *device)
{
	CHECK(device->magic == RP_DEVICE);
}

static inline void rp_pd_check(const struct rp_pd *pd)
{
	CHECK(pd->magic == RP_PD);
}

static inline void rp_mr_check(const struct rp_mr *mr)
{
	CHECK(mr->magic == RP_MR);
}

static inline void rp_mw_check(const struct rp_mw *mw)
{
	CHECK(mw->magic == RP_MW);
}

static inline void rp_cq_check(const struct rp_cq *cq)
{
	CHECK(cq->magic == RP_CQ);
}

static inline void rp_srq_check(const struct rp_srq *srq)
{
	CHECK(srq->magic == RP_SRQ);
}

static inline void rp_qp_check(const struct rp_qp *qp)
{
	CHECK(qp->magic == RP_QP);
}

static inline void rp_ah_check(const struct rp_ah *ah)
{
	CHECK(ah->magic == RP_AH);
}

static inline void rp_group_check(const struct rp_group *group)
{
	CHECK(group->magic == RP_GROUP);
}

static inline void rp_flow_check(const struct rp_flow *flow)
{
	CHECK(flow->magic == RP_FLOW);
}

static inline void rp_listener_check(const struct rp_listener *listener)
{
	CHECK(listener->magic == RP_LISTENER);
}

static inline void rp_request_check(const struct rp_conn_request *request)
{
	CHECK(request->magic == RP_REQUEST);
}

#endif
