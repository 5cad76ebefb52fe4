/* region/view_recent.c: reports what a region's rings did recently, from the completions that are
 * still in them. The ring's owner goes on writing, so the report is a sample and never exact. */
#include "region/view_priv.h"

#include <stdlib.h>
#include <string.h>

#define LATENCY_NS_MAX (60 * NS_PER_S) /* beyond it the entry was not timed */

static const uint8_t *ring_at(
	const struct region_view *view, enum layout_kind kind, uint32_t core_idx)
{
	const struct layout_entry *layout = &view->header.layout[kind];

	return view->base + layout->offset + (uint64_t)core_idx * layout->entry_bytes;
}

static uint32_t depth_of(const struct ring_control *control, uint32_t entries)
{
	struct ring_control *shared = (struct ring_control *)(uintptr_t)control;
	uint32_t head = atomic_load_explicit(&shared->head, memory_order_acquire);
	uint32_t tail = atomic_load_explicit(&shared->tail, memory_order_acquire);

	return MIN(tail - head, entries);
}

static void completions_gather(const struct region_view *view, const uint8_t *ring,
	struct hist *hist, struct region_recent *recent)
{
	struct ring_control *control = (struct ring_control *)(uintptr_t)ring;
	const uint32_t entries = view->header.ring_entries * 2;
	uint64_t total = atomic_load_explicit(&control->total, memory_order_relaxed);
	uint32_t tail = atomic_load_explicit(&control->tail, memory_order_acquire);

	recent->completed = total;
	recent->sampled = (uint32_t)MIN(total, (uint64_t)entries);
	for (uint32_t i = 0; i < recent->sampled; i++) {
		const uint8_t *at =
			ring + sizeof(*control) +
			(uint64_t)((tail - 1 - i) & (entries - 1)) * sizeof(struct region_cqe);
		struct region_cqe cqe;

		memcpy(&cqe, at, sizeof(cqe));
		recent->errors += cqe.result < 0;
		if (cqe.latency_ns && cqe.latency_ns < LATENCY_NS_MAX)
			hist_add(hist, cqe.latency_ns);
	}
}

int region_view_recent(const struct region_view *view, uint32_t core_idx, bool rdma,
	struct region_recent *ret_recent)
{
	const uint8_t *sq, *cq;
	struct region_recent recent = {0};
	struct hist *hist;

	if (core_idx >= view->header.core_count)
		return -1;
	hist = calloc(1, sizeof(*hist));
	if (!hist)
		return -1;
	hist_reset(hist);
	sq = ring_at(view, rdma ? LAYOUT_RDMA_SQ : LAYOUT_BASE_SQ, core_idx);
	cq = ring_at(view, rdma ? LAYOUT_RDMA_CQ : LAYOUT_BASE_CQ, core_idx);
	recent.entries = view->header.ring_entries;
	recent.submit_depth =
		depth_of((const struct ring_control *)(const void *)sq, recent.entries);
	recent.complete_depth =
		depth_of((const struct ring_control *)(const void *)cq, 2 * recent.entries);
	recent.submitted = atomic_load_explicit(
		&((struct ring_control *)(uintptr_t)sq)->total, memory_order_relaxed);
	completions_gather(view, cq, hist, &recent);
	recent.timed = (uint32_t)hist->count;
	recent.latency_p50_ns = hist_quantile(hist, 0.5);
	recent.latency_p99_ns = hist_quantile(hist, 0.99);
	recent.latency_max_ns = hist->count ? hist->max : 0;
	free(hist);
	*ret_recent = recent;
	return 0;
}
