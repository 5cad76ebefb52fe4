/* rdma/simulated/qp_dp.h: the simulated data path's inline pieces: scatter lists and ring slots. */
#ifndef RDMA_SIMULATED_QP_DP_H
#define RDMA_SIMULATED_QP_DP_H

#include <string.h>

#include "base/sanitizer.h"
#include "rdma/simulated/simulated_priv.h"

#define SIM_LIKELY(x)	__builtin_expect(!!(x), 1)
#define SIM_UNLIKELY(x) __builtin_expect(!!(x), 0)

static inline uint8_t *sim_ptr(uint64_t addr)
{
	return (uint8_t *)(uintptr_t)addr;
}

/* Copies bytes out of a scatter list that holds at least that many from the cursor on. */
static inline void sim_gather(
	uint8_t *dst, const struct rp_sge *sges, struct sim_cursor *cursor, uint32_t bytes)
{
	while (bytes) {
		const struct rp_sge *sge = &sges[cursor->idx];
		uint32_t n = MIN(sge->length - cursor->offset, bytes);

		memcpy(dst, sim_ptr(sge->addr) + cursor->offset, n);
		dst += n;
		bytes -= n;
		cursor->offset += n;
		if (cursor->offset == sge->length)
			*cursor = (struct sim_cursor){cursor->idx + 1, 0};
	}
}

/* Copies bytes into a scatter list that has at least that much room from the cursor on. */
static inline void sim_scatter(
	const uint8_t *src, const struct rp_sge *sges, struct sim_cursor *cursor, uint32_t bytes)
{
	while (bytes) {
		const struct rp_sge *sge = &sges[cursor->idx];
		uint32_t n = MIN(sge->length - cursor->offset, bytes);

		memcpy(sim_ptr(sge->addr) + cursor->offset, src, n);
		src += n;
		bytes -= n;
		cursor->offset += n;
		if (cursor->offset == sge->length)
			*cursor = (struct sim_cursor){cursor->idx + 1, 0};
	}
}

/* Requests a cache line for writing, early, so that the write need not wait. */
static inline void sim_own(const void *at)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)at));
#else
	__builtin_prefetch(at, 1);
#endif
}

/* The next free slot of the ring to the peer, NULL when it is full as far as we know. */
static inline struct sim_slot *sim_tx_slot(struct sim_qp *qp)
{
	if (SIM_UNLIKELY(qp->tx_next - qp->tx_freed >= SIM_SLOTS))
		return NULL;
	return &qp->tx[qp->tx_next % SIM_SLOTS];
}

/* Whether the peer has written a record into its slot. */
static inline bool sim_slot_is_full(
	const struct sim_qp *qp, const struct sim_slot *slot, uint32_t record)
{
	if (atomic_load_explicit(&slot->marker, memory_order_acquire) != record + 1)
		return false;
	sanitizer_acquire(qp->pairing);
	return true;
}

/* Shows the slot from sim_tx_slot() to the peer. The bell is rung once for a batch. */
static inline void sim_tx_publish(
	struct sim_qp *qp, struct sim_slot *slot, struct sim_slot_head head)
{
	head.acked = qp->rx_acked;
	head.posted = qp->rq.tail;
	head.consumed = qp->rx_next;
	slot->head = head;
	qp->tx_next++;
	qp->bell_due = true;
	sanitizer_release(qp->pairing);
	atomic_store_explicit(&slot->marker, qp->tx_next, memory_order_release);
}

#endif
