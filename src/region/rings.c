/* region/rings.c: sets up each core's rings in the shared part, and keeps the rare completions that
 * found the ring full. Submitting, turning and reaping are in rings_dp.c. */
#include "region/region_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct ring_queue queue_open(struct region *region, const struct layout_entry *layout,
	uint32_t core_idx, uint32_t entry_bytes)
{
	uint8_t *at = region->base + layout->offset + (uint64_t)core_idx * layout->entry_bytes;
	struct ring_control *control = (struct ring_control *)(void *)at;
	uint32_t count = (layout->entry_bytes - (uint32_t)sizeof(*control)) / entry_bytes;

	control->entry_count = count;
	control->entry_bytes = entry_bytes;
	return (struct ring_queue){
		.control = control, .entries = at + sizeof(*control), .mask = count - 1};
}

int rings_open(struct region *region, const struct layout_plan *plan)
{
	const struct layout_entry *layout = plan->entries;
	uint32_t core_count = layout[LAYOUT_BASE_SQ].count;

	region->rings = calloc(core_count, sizeof(struct region_ring *));
	if (!region->rings)
		return -ENOMEM;
	for (uint32_t i = 0; i < core_count; i++) {
		struct region_ring *ring = calloc(1, sizeof(*ring));
		struct ring_pair *pairs;

		if (!ring)
			return -ENOMEM;
		region->rings[i] = ring;
		ring->region = region;
		list_init(&ring->watches);
		pairs = ring->pairs;
		pairs[PAIR_BASE].sq =
			queue_open(region, &layout[LAYOUT_BASE_SQ], i, sizeof(struct region_sqe));
		pairs[PAIR_BASE].cq =
			queue_open(region, &layout[LAYOUT_BASE_CQ], i, sizeof(struct region_cqe));
		pairs[PAIR_RDMA].sq =
			queue_open(region, &layout[LAYOUT_RDMA_SQ], i, sizeof(struct region_wr));
		pairs[PAIR_RDMA].cq =
			queue_open(region, &layout[LAYOUT_RDMA_CQ], i, sizeof(struct region_cqe));
	}
	return 0;
}

void rings_close(struct region *region)
{
	uint32_t core_count = region->header ? region->header->core_count : 0;

	for (uint32_t i = 0; region->rings && i < core_count; i++) {
		if (region->rings[i])
			watches_end(region->rings[i]);
		for (uint32_t pair = 0; region->rings[i] && pair < PAIR_COUNT; pair++)
			free(region->rings[i]->pairs[pair].spill);
		free(region->rings[i]);
	}
	free(region->rings);
}

struct region_ring *region_ring(struct region *region, uint32_t core_idx)
{
	CHECK(core_idx < region->header->core_count);
	return region->rings[core_idx];
}

struct region *region_of_ring(const struct region_ring *ring)
{
	return ring->region;
}

void region_ring_parts(struct region_ring *ring, uint32_t base_part, uint32_t rdma_part)
{
	ring->pairs[PAIR_BASE].part = base_part;
	ring->pairs[PAIR_RDMA].part = rdma_part;
}

void region_timed_set(struct region *region, bool timed)
{
	atomic_store_explicit(&region->timed, timed, memory_order_relaxed);
}

uint32_t region_core_count(const struct region *region)
{
	return region->header->core_count;
}

static uint32_t queue_depth(const struct ring_queue *queue)
{
	uint32_t head = atomic_load_explicit(&queue->control->head, memory_order_acquire);
	uint32_t tail = atomic_load_explicit(&queue->control->tail, memory_order_acquire);

	return MIN(tail - head, queue->mask + 1);
}

void region_ring_stats(const struct region *region, uint32_t core_idx, bool rdma,
	struct region_ring_stats *ret_stats)
{
	struct ring_pair *pair;

	CHECK(core_idx < region->header->core_count);
	pair = &region->rings[core_idx]->pairs[rdma ? PAIR_RDMA : PAIR_BASE];
	*ret_stats = (struct region_ring_stats){
		.submitted = atomic_load_explicit(&pair->sq.control->total, memory_order_relaxed),
		.completed = atomic_load_explicit(&pair->cq.control->total, memory_order_relaxed),
		.errors = atomic_load_explicit(&pair->counts.errors, memory_order_relaxed),
		.timed = atomic_load_explicit(&pair->counts.timed, memory_order_relaxed),
		.latency_ns = atomic_load_explicit(&pair->counts.latency_ns, memory_order_relaxed),
		.submit_depth = queue_depth(&pair->sq),
		.complete_depth = queue_depth(&pair->cq),
	};
	for (uint32_t i = 0; i < REGION_LATENCY_BUCKETS; i++)
		ret_stats->latency_buckets[i] = atomic_load_explicit(
			&pair->counts.latency_buckets[i], memory_order_relaxed);
}

/* Signaled entries have reserved places, so only failures of unsignaled entries come here: a queue
 * pair in its error state flushes thousands at once. A failure must not be lost. */
void ring_spill(struct ring_pair *pair, const struct region_cqe *cqe)
{
	if (pair->spill_count == pair->spill_cap) {
		uint32_t cap = MAX(2 * pair->spill_cap, 64u);

		pair->spill = realloc(pair->spill, cap * sizeof(*pair->spill));
		CHECK(pair->spill != NULL);
		pair->spill_cap = cap;
	}
	pair->spill[pair->spill_count++] = *cqe;
}

uint32_t ring_spill_reap(struct ring_pair *pair, struct region_cqe *cqes, uint32_t max)
{
	uint32_t count = MIN(max, pair->spill_count);

	memcpy(cqes, pair->spill, count * sizeof(*cqes));
	pair->spill_count -= count;
	memmove(pair->spill, pair->spill + count, pair->spill_count * sizeof(*cqes));
	return count;
}
