/* rdma/provider/counts.h: a provider's counters, and the functions that add to them
 * (count_dp.c). */
#ifndef RDMA_PROVIDER_COUNTS_H
#define RDMA_PROVIDER_COUNTS_H

#include "base/counter.h"
#include "rdma/rdma.h"

struct rp_ops;

/* Work requests posted to a provider's queue pairs, by kind, and the failed ones, by enum
 * rp_status. */
enum rp_kind {
	RP_KIND_SEND,
	RP_KIND_SEND_IMM,
	RP_KIND_WRITE,
	RP_KIND_WRITE_IMM,
	RP_KIND_READ,
	RP_KIND_ATOMIC,
	RP_KIND_RECV,
	RP_KIND_BIND,
	RP_KIND_COUNT
};
struct rp_counts {
	struct counter asked[RP_KIND_COUNT];
	struct counter failed[RP_WC_GENERAL_ERR + 1]; /* of RP_WC_SUCCESS: nothing */
};
#define RP_COUNT_ASKED(provider, what)                                                     \
	{                                                                                  \
		.name = "nebulaio_rdma_work_requests_total",                               \
		.labels = "provider=\"" provider "\",kind=\"" what "\"",                   \
		.help = "Work requests posted to queue pairs, by provider and operation.", \
	}
#define RP_COUNT_FAILED(provider, what)                                                  \
	{                                                                                \
		.name = "nebulaio_rdma_completion_errors_total",                         \
		.labels = "provider=\"" provider "\",status=\"" what "\"",               \
		.help = "Work requests that failed, by provider and completion status.", \
	}
/* The counts of the provider of that name. They join the registry before main(). */
#define RP_COUNTS(provider)                                                                    \
	{                                                                                      \
		.asked =                                                                       \
			{                                                                      \
				[RP_KIND_SEND] = RP_COUNT_ASKED(provider, "send"),             \
				[RP_KIND_SEND_IMM] = RP_COUNT_ASKED(provider, "send_imm"),     \
				[RP_KIND_WRITE] = RP_COUNT_ASKED(provider, "write"),           \
				[RP_KIND_WRITE_IMM] = RP_COUNT_ASKED(provider, "write_imm"),   \
				[RP_KIND_READ] = RP_COUNT_ASKED(provider, "read"),             \
				[RP_KIND_ATOMIC] = RP_COUNT_ASKED(provider, "atomic"),         \
				[RP_KIND_RECV] = RP_COUNT_ASKED(provider, "recv"),             \
				[RP_KIND_BIND] = RP_COUNT_ASKED(provider, "bind"),             \
			},                                                                     \
		.failed = {                                                                    \
			[RP_WC_LOC_LEN_ERR] = RP_COUNT_FAILED(provider, "local_length"),       \
			[RP_WC_LOC_PROT_ERR] = RP_COUNT_FAILED(provider, "local_protection"),  \
			[RP_WC_WR_FLUSH_ERR] = RP_COUNT_FAILED(provider, "flushed"),           \
			[RP_WC_REM_INV_REQ_ERR] =                                              \
				RP_COUNT_FAILED(provider, "remote_invalid_request"),           \
			[RP_WC_REM_ACCESS_ERR] = RP_COUNT_FAILED(provider, "remote_access"),   \
			[RP_WC_REM_OP_ERR] = RP_COUNT_FAILED(provider, "remote_operation"),    \
			[RP_WC_RETRY_EXC_ERR] = RP_COUNT_FAILED(provider, "retries_exceeded"), \
			[RP_WC_RNR_RETRY_EXC_ERR] =                                            \
				RP_COUNT_FAILED(provider, "receiver_not_ready"),               \
			[RP_WC_GENERAL_ERR] = RP_COUNT_FAILED(provider, "general"),            \
		},                                                                             \
	}

void rp_count_sends(const struct rp_ops *ops, const struct rp_send_wr *wrs, uint32_t count);
void rp_count_recvs(const struct rp_ops *ops, uint32_t count);
/* A registration of memory that succeeded. */
void rp_count_registration(const struct rp_ops *ops, uint64_t duration_ns);
void rp_count_bind(const struct rp_ops *ops);
/* Counts work requests that were refused because a queue was full, with this many in it. */
void rp_count_send_full(uint32_t depth);
void rp_count_recv_full(uint32_t depth);
/* Counts the completions that a completion queue returned: failed ones by status, and whether it
 * lost some. */
void rp_count_completions(const struct rp_cq *cq, const struct rp_wc *wcs, int got);

#endif
