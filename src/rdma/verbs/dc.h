/* rdma/verbs/dc.h: the data of an initiator of mlx5's dynamically connected transport. */
#ifndef RDMA_VERBS_DC_H
#define RDMA_VERBS_DC_H

#include "rdma/verbs/verbs_priv.h"

#ifdef HAVE_MLX5DV
#include <arpa/inet.h>
#include <infiniband/mlx5dv.h>

struct verbs_dci {
	struct ibv_qp_ex *wr; /* the queue pair, as its builder of requests */
	struct mlx5dv_qp_ex *direct;
	/* The destination of requests that name no address: rp_dci_aim(). */
	struct ibv_ah *ah;
	uint32_t target_qpn;
	uint64_t dc_key;
};
#endif

#endif
