/* rdma/count_dp.c: counts work requests by kind, failed completions by status, and full queues, at
 * the calls to and from a provider. */
#include <errno.h>
#include <stdio.h>

#include "rdma/provider/provider.h"

DEFINE_COUNTER_FULL(send_full, "rdma_send_queue");
DEFINE_COUNTER_FULL(recv_full, "rdma_receive_queue");
DEFINE_COUNTER_FULL(completion_full, "rdma_completion_queue");
DEFINE_COUNTER_FULL_DEPTH(send_depth, "rdma_send_queue");
DEFINE_COUNTER_FULL_DEPTH(recv_depth, "rdma_receive_queue");
DEFINE_COUNTER_FULL_DEPTH(completion_depth, "rdma_completion_queue");

#define PROVIDERS_MAX 4u
static struct counter_hist registrations[PROVIDERS_MAX];
static char registration_labels[PROVIDERS_MAX][48];

static void register_registrations(size_t i)
{
	snprintf(registration_labels[i], sizeof(registration_labels[i]), "provider=\"%s\"",
		rp_providers[i]->name);
	registrations[i].name = "nebulaio_rdma_registration_seconds";
	registrations[i].labels = registration_labels[i];
	registrations[i].help = "How long a device took to register memory.";
	counter_hist_register(&registrations[i]);
}

__attribute__((constructor)) static void register_counters(void)
{
	for (size_t i = 0; i < rp_provider_count; i++) {
		struct rp_counts *counts = rp_providers[i]->counts;

		if (i < PROVIDERS_MAX)
			register_registrations(i);
		for (uint32_t kind = 0; kind < RP_KIND_COUNT; kind++)
			counter_register(&counts->asked[kind]);
		for (uint32_t status = RP_WC_SUCCESS + 1; status <= RP_WC_GENERAL_ERR; status++)
			counter_register(&counts->failed[status]);
	}
}

static const uint8_t kinds[] = {
	[RP_SEND] = RP_KIND_SEND,
	[RP_SEND_IMM] = RP_KIND_SEND_IMM,
	[RP_WRITE] = RP_KIND_WRITE,
	[RP_WRITE_IMM] = RP_KIND_WRITE_IMM,
	[RP_READ] = RP_KIND_READ,
	[RP_CMP_SWAP] = RP_KIND_ATOMIC,
	[RP_FETCH_ADD] = RP_KIND_ATOMIC,
};

void rp_count_sends(const struct rp_ops *ops, const struct rp_send_wr *wrs, uint32_t count)
{
	struct counter *counters = ops->counts->asked;

	for (uint32_t i = 0; i < count; i++)
		counter_add(&counters[kinds[wrs[i].opcode]], 1);
}

void rp_count_recvs(const struct rp_ops *ops, uint32_t count)
{
	counter_add(&ops->counts->asked[RP_KIND_RECV], count);
}

void rp_count_bind(const struct rp_ops *ops)
{
	counter_add(&ops->counts->asked[RP_KIND_BIND], 1);
}

void rp_count_registration(const struct rp_ops *ops, uint64_t duration_ns)
{
	for (size_t i = 0; i < MIN(rp_provider_count, PROVIDERS_MAX); i++)
		if (rp_providers[i] == ops)
			counter_hist_add(&registrations[i], duration_ns);
}

void rp_count_send_full(uint32_t depth)
{
	counter_add(&send_full, 1);
	counter_add(&send_depth, depth);
}

void rp_count_recv_full(uint32_t depth)
{
	counter_add(&recv_full, 1);
	counter_add(&recv_depth, depth);
}

void rp_count_completions(const struct rp_cq *cq, const struct rp_wc *wcs, int got)
{
	if (__builtin_expect(got == -EIO, 0)) {
		counter_add(&completion_full, 1);
		counter_add(&completion_depth, cq->cqe_count);
	}
	for (int i = 0; i < got; i++)
		if (__builtin_expect(wcs[i].status != RP_WC_SUCCESS, 0))
			counter_add(&cq->ops->counts->failed[wcs[i].status], 1);
}
