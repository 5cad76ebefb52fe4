/* rdma/count_dp.c: what queue pairs are asked to do, and what of it failed, counted where it passes
 * to and from a provider: work requests by kind, failed completions by status, queues that were
 * full. A batch is one addition for each kind in it. */
#include <errno.h>

#include "rdma/provider/provider.h"

DEFINE_COUNTER_FULL(send_full, "rdma_send_queue");
DEFINE_COUNTER_FULL(recv_full, "rdma_receive_queue");
DEFINE_COUNTER_FULL(completion_full, "rdma_completion_queue");

enum kind { SEND, SEND_IMM, WRITE, WRITE_IMM, READ, ATOMIC, RECV, BIND, KIND_COUNT };

#define ASKED(provider, what)                                                              \
	{                                                                                  \
		.name = "nebulaio_rdma_work_requests_total",                               \
		.labels = "provider=\"" provider "\",kind=\"" what "\"",                   \
		.help = "Work requests that queue pairs took, by provider and operation.", \
	}
#define ASKED_OF(provider)                                                                      \
	{                                                                                       \
		[SEND] = ASKED(provider, "send"), [SEND_IMM] = ASKED(provider, "send_imm"),     \
		[WRITE] = ASKED(provider, "write"), [WRITE_IMM] = ASKED(provider, "write_imm"), \
		[READ] = ASKED(provider, "read"), [ATOMIC] = ASKED(provider, "atomic"),         \
		[RECV] = ASKED(provider, "recv"), [BIND] = ASKED(provider, "bind")              \
	}
#define FAILED(provider, what)                                                           \
	{                                                                                \
		.name = "nebulaio_rdma_completion_errors_total",                         \
		.labels = "provider=\"" provider "\",status=\"" what "\"",               \
		.help = "Work requests that failed, by provider and completion status.", \
	}
#define FAILED_OF(provider)                                                           \
	{                                                                             \
		[RP_WC_LOC_LEN_ERR] = FAILED(provider, "local_length"),               \
		[RP_WC_LOC_PROT_ERR] = FAILED(provider, "local_protection"),          \
		[RP_WC_WR_FLUSH_ERR] = FAILED(provider, "flushed"),                   \
		[RP_WC_REM_INV_REQ_ERR] = FAILED(provider, "remote_invalid_request"), \
		[RP_WC_REM_ACCESS_ERR] = FAILED(provider, "remote_access"),           \
		[RP_WC_REM_OP_ERR] = FAILED(provider, "remote_operation"),            \
		[RP_WC_RETRY_EXC_ERR] = FAILED(provider, "retries_exceeded"),         \
		[RP_WC_RNR_RETRY_EXC_ERR] = FAILED(provider, "receiver_not_ready"),   \
		[RP_WC_GENERAL_ERR] = FAILED(provider, "general")                     \
	}

static struct counter asked[RP_COUNTED_PROVIDERS][KIND_COUNT] = {
	[RP_COUNTED_SIMULATED] = ASKED_OF("simulated"), [RP_COUNTED_VERBS] = ASKED_OF("verbs")};
static struct counter failed[RP_COUNTED_PROVIDERS][RP_WC_GENERAL_ERR + 1] = {
	[RP_COUNTED_SIMULATED] = FAILED_OF("simulated"), [RP_COUNTED_VERBS] = FAILED_OF("verbs")};

__attribute__((constructor)) static void register_counters(void)
{
	for (uint32_t provider = 0; provider < RP_COUNTED_PROVIDERS; provider++)
		for (uint32_t i = 0; i < KIND_COUNT; i++)
			counter_register(&asked[provider][i]);
	for (uint32_t provider = 0; provider < RP_COUNTED_PROVIDERS; provider++)
		for (uint32_t i = RP_WC_SUCCESS + 1; i <= RP_WC_GENERAL_ERR; i++)
			counter_register(&failed[provider][i]);
}

static const uint8_t kinds[] = {
	[RP_SEND] = SEND,
	[RP_SEND_IMM] = SEND_IMM,
	[RP_WRITE] = WRITE,
	[RP_WRITE_IMM] = WRITE_IMM,
	[RP_READ] = READ,
	[RP_CMP_SWAP] = ATOMIC,
	[RP_FETCH_ADD] = ATOMIC,
};

void rp_count_sends(const struct rp_ops *ops, const struct rp_send_wr *wrs, uint32_t count)
{
	struct counter *counters = asked[ops->counted];
	uint32_t same = 0;

	/* Runs of one kind are the rule. */
	for (uint32_t i = 0; i < count; i += same) {
		for (same = 1; i + same < count && wrs[i + same].opcode == wrs[i].opcode; same++)
			;
		counter_add(&counters[kinds[wrs[i].opcode]], same);
	}
}

void rp_count_recvs(const struct rp_ops *ops, uint32_t count)
{
	counter_add(&asked[ops->counted][RECV], count);
}

void rp_count_bind(const struct rp_ops *ops)
{
	counter_add(&asked[ops->counted][BIND], 1);
}

void rp_count_send_full(void)
{
	counter_add(&send_full, 1);
}

void rp_count_recv_full(void)
{
	counter_add(&recv_full, 1);
}

void rp_count_completions(const struct rp_cq *cq, const struct rp_wc *wcs, int got)
{
	if (__builtin_expect(got == -EIO, 0))
		counter_add(&completion_full, 1);
	for (int i = 0; i < got; i++)
		if (__builtin_expect(wcs[i].status != RP_WC_SUCCESS, 0))
			counter_add(&failed[cq->ops->counted][wcs[i].status], 1);
}
