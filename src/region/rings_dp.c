/* region/rings_dp.c: submitting, the turn that drains submissions to the devices, completing and
 * reaping. One thread uses a ring, so head and tail only need to be atomic for a viewer in another
 * process. */
#include "region/region_priv.h"

#include <errno.h>
#include <string.h>

DEFINE_COUNTER_FULL(ring_full, "ring");
DEFINE_COUNTER_FULL(rdma_ring_full, "rdma_ring");
DEFINE_COUNTER_FULL_DEPTH(ring_depth, "ring");
DEFINE_COUNTER_FULL_DEPTH(rdma_ring_depth, "rdma_ring");

/* Base operations that move bytes. The address of the other operations is ignored. */
#define OPS_WITH_MEMORY (1u << REGION_OP_READ | 1u << REGION_OP_WRITE | 1u << REGION_OP_PACKET_TX)

/* The fields that both kinds of entries begin with. */
struct entry_head {
	uint8_t opcode;
	uint8_t flags;
	uint16_t target;
};
_Static_assert(offsetof(struct region_sqe, target) == offsetof(struct entry_head, target) &&
		       offsetof(struct region_wr, target) == offsetof(struct entry_head, target),
	"both entries begin alike");

static inline uint32_t queue_head(const struct ring_queue *queue)
{
	return atomic_load_explicit(&queue->control->head, memory_order_relaxed);
}

static inline uint32_t queue_tail(const struct ring_queue *queue)
{
	return atomic_load_explicit(&queue->control->tail, memory_order_relaxed);
}

static inline bool queue_empty(const struct ring_queue *queue)
{
	return queue_head(queue) == queue_tail(queue);
}

static inline void *queue_entry(const struct ring_queue *queue, uint32_t pos, size_t entry_bytes)
{
	return queue->entries + (pos & queue->mask) * entry_bytes;
}

/* Makes the entry in the next place count. */
static inline void queue_publish(struct ring_queue *queue, uint32_t tail)
{
	struct ring_control *control = queue->control;

	atomic_store_explicit(&control->total,
		atomic_load_explicit(&control->total, memory_order_relaxed) + 1,
		memory_order_relaxed);
	atomic_store_explicit(&control->tail, tail + 1, memory_order_release);
}

/* Entries that a target holds. A receive waits for its peer by its nature, and is not one. */
static inline bool counts_as_held(uint8_t opcode, uint8_t flags)
{
	return (flags & REGION_F_UNSIGNALED) == 0 && opcode != REGION_OP_RECV;
}

/* True when an entry may be queued: there is room, its completion will have a place, and its target
 * holds less than its part of the places that are left. */
static inline bool pair_admits(
	const struct region_ring *ring, enum ring_pair_idx pair_idx, const struct entry_head *entry)
{
	const struct ring_pair *pair = &ring->pairs[pair_idx];
	uint32_t entry_count = pair->sq.mask + 1;

	if (queue_tail(&pair->sq) - queue_head(&pair->sq) >= entry_count)
		return false;
	if ((entry->flags & REGION_F_UNSIGNALED) != 0)
		return true;
	return pair->outstanding < entry_count &&
	       (entry->opcode == REGION_OP_RECV ||
		       ring->held[entry->target] * pair->part < entry_count - pair->outstanding);
}

static inline void pair_hold(
	struct region_ring *ring, enum ring_pair_idx pair_idx, const struct entry_head *entry)
{
	ring->pairs[pair_idx].outstanding += (entry->flags & REGION_F_UNSIGNALED) == 0;
	if (counts_as_held(entry->opcode, entry->flags))
		ring->held[entry->target]++;
}

/* Entries that wait for their device, or signaled ones that have not been reaped. */
static __attribute__((noinline, cold)) int full(
	const struct ring_pair *pair, struct counter *counter, struct counter *depth)
{
	counter_add(counter, 1);
	counter_add(depth, MAX(queue_tail(&pair->sq) - queue_head(&pair->sq), pair->outstanding));
	return -EAGAIN;
}

static inline uint64_t ring_time(const struct region_ring *ring)
{
	return atomic_load_explicit(&ring->region->timed, memory_order_relaxed) ? clock_now_ns()
										: ring->now_ns;
}

void region_ring_now(struct region_ring *ring, uint64_t now_ns)
{
	ring->now_ns = now_ns;
}

/* Memory of an extension that is not there belongs to no arena. */
static int extension_of(const struct region *region, uint64_t offset, size_t len)
{
	uint64_t bytes = 1ull << region->extension_shift;
	uint64_t past = offset - region->extension_offset;
	uint32_t arena_idx;

	if (offset < region->extension_offset || offset >= region->bytes)
		return -1;
	arena_idx = region->base_arena_count + (uint32_t)(past >> region->extension_shift);
	if (atomic_load_explicit(&region->arenas[arena_idx].state, memory_order_relaxed) ==
		ARENA_PARKED)
		return -1;
	return len <= bytes - (past & (bytes - 1)) ? (int)arena_idx : -1;
}

int region_arena_of(const struct region *region, const void *data, size_t len)
{
	uint64_t offset = (uint64_t)((uintptr_t)data - (uintptr_t)region->base);
	uint64_t end_max;

	if (__builtin_expect(offset >= region->base_bytes, 0))
		return extension_of(region, offset, len);
	end_max = MIN((offset & ~(ARENA_STRIDE - 1)) + ARENA_STRIDE, region->base_bytes);
	return len <= end_max - offset ? (int)(offset >> ARENA_SHIFT) : -1;
}

int region_submit(struct region_ring *ring, const struct region_sqe *sqe)
{
	struct ring_pair *pair = &ring->pairs[PAIR_BASE];
	uint32_t tail = queue_tail(&pair->sq);
	struct region_sqe *entry = queue_entry(&pair->sq, tail, sizeof(*entry));

	CHECK(!ring->turning);
	CHECK(sqe->opcode < REGION_OP_SEND && sqe->target < LIMIT_REGION_TARGETS_MAX);
	if ((1u << sqe->opcode & OPS_WITH_MEMORY) != 0 &&
		region_arena_of(ring->region, (const void *)(uintptr_t)sqe->addr, sqe->len) < 0)
		return -EFAULT;
	if (!pair_admits(ring, PAIR_BASE, (const struct entry_head *)sqe))
		return full(pair, &ring_full, &ring_depth);
	*entry = *sqe;
	entry->submitted_ns = ring_time(ring);
	pair_hold(ring, PAIR_BASE, (const struct entry_head *)sqe);
	queue_publish(&pair->sq, tail);
	return 0;
}

int region_submit_wr(struct region_ring *ring, const struct region_wr *wr)
{
	struct ring_pair *pair = &ring->pairs[PAIR_RDMA];
	uint32_t tail = queue_tail(&pair->sq);
	struct region_wr *entry = queue_entry(&pair->sq, tail, sizeof(*entry));

	CHECK(!ring->turning);
	CHECK(wr->opcode == REGION_OP_NOP || wr->opcode >= REGION_OP_SEND);
	CHECK(wr->opcode < REGION_OP_COUNT && wr->target < LIMIT_REGION_TARGETS_MAX);
	CHECK(wr->sge_count <= ARRAY_LEN(wr->sge));
	if (!pair_admits(ring, PAIR_RDMA, (const struct entry_head *)wr))
		return full(pair, &rdma_ring_full, &rdma_ring_depth);
	*entry = *wr;
	entry->submitted_ns = ring_time(ring);
	pair_hold(ring, PAIR_RDMA, (const struct entry_head *)wr);
	queue_publish(&pair->sq, tail);
	return 0;
}

bool region_admits(const struct region_ring *ring, const struct region_sqe *sqe)
{
	return pair_admits(ring, PAIR_BASE, (const struct entry_head *)sqe);
}

bool region_admits_wr(const struct region_ring *ring, const struct region_wr *wr)
{
	return pair_admits(ring, PAIR_RDMA, (const struct entry_head *)wr);
}

/* There is one writer, so a load and a store are enough. */
static inline void count_add(_Atomic uint64_t *count, uint64_t n)
{
	atomic_store_explicit(
		count, atomic_load_explicit(count, memory_order_relaxed) + n, memory_order_relaxed);
}

/* At least 1: an entry that completes within its turn has a latency, too. */
static inline uint64_t latency_count(
	const struct region_ring *ring, struct ring_pair *pair, uint64_t submitted_ns)
{
	uint64_t now_ns = ring_time(ring);
	uint64_t latency_ns = now_ns > submitted_ns ? now_ns - submitted_ns : 1;
	uint32_t bits = latency_ns > 1 ? 64 - (uint32_t)__builtin_clzll(latency_ns - 1) : 0;
	uint32_t bucket = bits > 10 ? MIN((bits - 9) / 2, REGION_LATENCY_BUCKETS - 1) : 0;

	count_add(&pair->counts.timed, 1);
	count_add(&pair->counts.latency_ns, latency_ns);
	count_add(&pair->counts.latency_buckets[bucket], 1);
	return latency_ns;
}

static void pair_complete(
	struct region_ring *ring, struct ring_pair *pair, const struct region_cqe *told)
{
	uint32_t tail = queue_tail(&pair->cq);
	struct region_cqe *entry = queue_entry(&pair->cq, tail, sizeof(*entry));
	struct region_cqe made = *told, *cqe = &made;

	if (cqe->latency_ns)
		cqe->latency_ns = latency_count(ring, pair, cqe->latency_ns);
	if (cqe->result < 0)
		count_add(&pair->counts.errors, 1);
	if ((cqe->flags & REGION_F_UNSIGNALED) != 0 && cqe->result >= 0)
		return;
	/* When completions are already kept aside, this one goes behind them, to keep the order. */
	if (__builtin_expect(
		    tail - queue_head(&pair->cq) > pair->cq.mask || pair->spill_count > 0, 0)) {
		ring_spill(pair, cqe);
		return;
	}
	*entry = *cqe;
	queue_publish(&pair->cq, tail);
}

void region_complete(struct region_ring *ring, const struct region_cqe *cqe)
{
	pair_complete(
		ring, &ring->pairs[cqe->opcode >= REGION_OP_SEND ? PAIR_RDMA : PAIR_BASE], cqe);
}

/* Completes entries that need no device: NOP, and entries for a removed target. */
static void run_complete(struct region_ring *ring, enum ring_pair_idx pair_idx, const void *entries,
	uint32_t count, int32_t result)
{
	for (uint32_t i = 0; i < count; i++) {
		struct region_cqe cqe;

		if (pair_idx == PAIR_BASE)
			cqe = region_sqe_done((const struct region_sqe *)entries + i, result);
		else
			cqe = region_wr_done((const struct region_wr *)entries + i, result);
		pair_complete(ring, &ring->pairs[pair_idx], &cqe);
	}
}

/* Offers a run of entries for one target to its device; returns how many left the ring. */
static uint32_t run_offer(struct region_ring *ring, enum ring_pair_idx pair_idx,
	const struct entry_head *first, uint32_t count)
{
	struct region_target *target = &ring->region->targets[first->target];
	const struct region_device_ops *ops;
	uint32_t taken;

	if (first->opcode == REGION_OP_NOP) {
		run_complete(ring, pair_idx, first, count, 0);
		return count;
	}
	if (ring->busy_turn[first->target] == ring->turn)
		return 0;
	ops = atomic_load_explicit(&target->ops, memory_order_acquire);
	if (__builtin_expect(!ops, 0)) {
		run_complete(ring, pair_idx, first, count, -ENODEV);
		return count;
	}
	if (pair_idx == PAIR_BASE)
		taken = ops->submit(target->device, ring, (const void *)first, count);
	else
		taken = ops->submit_wr(target->device, ring, (const void *)first, count);
	CHECK(taken <= count);
	if (taken < count)
		ring->busy_turn[first->target] = ring->turn;
	if (taken > 0 && ring->bell_turn[first->target] != ring->turn) {
		ring->bell_turn[first->target] = ring->turn;
		ring->touched[ring->touched_count++] = first->target;
	}
	return taken;
}

/* Returns how many entries from pos on have the same target and lie in one piece. */
static inline uint32_t run_length(
	const struct ring_queue *sq, uint32_t pos, uint32_t tail, size_t entry_bytes)
{
	const struct entry_head *first = queue_entry(sq, pos, entry_bytes);
	uint32_t max = MIN(tail - pos, sq->mask + 1 - (pos & sq->mask));
	uint32_t count = 1;

	while (count < max) {
		const struct entry_head *next = queue_entry(sq, pos + count, entry_bytes);

		if (next->target != first->target ||
			(next->opcode == REGION_OP_NOP) != (first->opcode == REGION_OP_NOP))
			break;
		count++;
	}
	return count;
}

/* Drains one submission ring. Entries that busy devices left are moved together at the head, in
 * order; usually none are left, and nothing is moved. */
static uint32_t pair_turn(struct region_ring *ring, enum ring_pair_idx pair_idx)
{
	struct ring_queue *sq = &ring->pairs[pair_idx].sq;
	const size_t entry_bytes =
		pair_idx == PAIR_BASE ? sizeof(struct region_sqe) : sizeof(struct region_wr);
	uint32_t head = queue_head(sq);
	uint32_t tail = queue_tail(sq);
	uint32_t keep = head;
	uint32_t pos = head;

	while (pos != tail) {
		uint32_t count = run_length(sq, pos, tail, entry_bytes);
		uint32_t taken =
			run_offer(ring, pair_idx, queue_entry(sq, pos, entry_bytes), count);

		for (uint32_t i = taken; i < count; i++, keep++) {
			if (keep != pos + i)
				memcpy(queue_entry(sq, keep, entry_bytes),
					queue_entry(sq, pos + i, entry_bytes), entry_bytes);
		}
		pos += count;
	}
	if (keep == head)
		atomic_store_explicit(&sq->control->head, tail, memory_order_release);
	else
		atomic_store_explicit(&sq->control->tail, keep, memory_order_release);
	return tail - keep;
}

uint32_t region_ring_turn(struct region_ring *ring)
{
	uint32_t moved = 0;

	if (queue_empty(&ring->pairs[PAIR_BASE].sq) && queue_empty(&ring->pairs[PAIR_RDMA].sq))
		return 0;
	ring->turn++;
	ring->turning = true;
	for (uint32_t pair = 0; pair < PAIR_COUNT; pair++)
		moved += pair_turn(ring, pair);
	for (uint32_t i = 0; i < ring->touched_count; i++) {
		struct region_target *target = &ring->region->targets[ring->touched[i]];
		const struct region_device_ops *ops =
			atomic_load_explicit(&target->ops, memory_order_acquire);

		if (ops)
			ops->bell(target->device, ring);
	}
	ring->touched_count = 0;
	ring->turning = false;
	return moved;
}

static uint32_t pair_reap(struct region_ring *ring, enum ring_pair_idx pair_idx,
	struct region_cqe *cqes, uint32_t max)
{
	struct ring_pair *pair = &ring->pairs[pair_idx];
	uint32_t head = queue_head(&pair->cq);
	uint32_t count = MIN(max, queue_tail(&pair->cq) - head);
	uint32_t signaled = 0;

	for (uint32_t i = 0; i < count; i++)
		cqes[i] = *(struct region_cqe *)queue_entry(&pair->cq, head + i, sizeof(*cqes));
	atomic_store_explicit(&pair->cq.control->head, head + count, memory_order_release);
	if (__builtin_expect(pair->spill_count > 0 && count < max, 0))
		count += ring_spill_reap(pair, cqes + count, max - count);
	for (uint32_t i = 0; i < count; i++) {
		uint16_t target = cqes[i].target;

		CHECK(target < LIMIT_REGION_TARGETS_MAX);
		signaled += (cqes[i].flags & REGION_F_UNSIGNALED) == 0;
		if (counts_as_held(cqes[i].opcode, cqes[i].flags) && ring->held[target])
			ring->held[target]--;
	}
	pair->outstanding -= MIN(signaled, pair->outstanding);
	return count;
}

uint32_t region_reap(struct region_ring *ring, struct region_cqe *cqes, uint32_t max)
{
	uint32_t first = ring->reap_first;
	uint32_t count = pair_reap(ring, first, cqes, max);

	/* The pair that came second goes first next time, so that neither starves the other. */
	ring->reap_first = (uint8_t)(first ^ 1);
	return count + pair_reap(ring, first ^ 1, cqes + count, max - count);
}

bool region_ring_idle(const struct region_ring *ring)
{
	for (uint32_t i = 0; i < PAIR_COUNT; i++) {
		const struct ring_pair *pair = &ring->pairs[i];

		if (!queue_empty(&pair->sq) || !queue_empty(&pair->cq) || pair->spill_count > 0)
			return false;
	}
	return true;
}
