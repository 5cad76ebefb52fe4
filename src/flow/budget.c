/* flow/budget.c: limits the frames that the transfers of a principal hold. Dynamic thresholds, as
 * in switches' buffers (A. Choudhury, E. Hahne, "Dynamic queue length thresholds for shared memory
 * packet switches", 1998), over shares to which principals are hashed (P. McKenney, "Stochastic
 * fairness queueing", 1990). No lock, no memory per principal. */
#include <errno.h>
#include <stdlib.h>

#include "flow/flow_priv.h"

DEFINE_COUNTER_FULL(budget_full, "transfer_frames");
DEFINE_COUNTER_FULL(share_full, "transfer_share");
DEFINE_COUNTER_FULL(walks_full, "listings");

/* How often the frames that no transfer holds are counted again. */
#define REFRESH_NS (10 * NS_PER_MS)

DEFINE_COUNTER(walks_refused, "nebulaio_flow_walk_refusals_total", NULL,
	"Listings refused because their principal already had the maximum number in progress.");

struct share {
	_Alignas(64) _Atomic uint32_t held;
	_Atomic uint32_t walks;
};

struct flow_budget {
	struct region *region;
	uint8_t key[16]; /* of the hash: a client cannot choose the share that it is hashed to */
	_Atomic uint64_t refreshed_ns;
	_Atomic uint32_t frames_max; /* what all shares may hold together */
	_Alignas(64) _Atomic uint32_t held;
	struct share shares[FLOW_SHARES];
};

/* Counts the frames that are left beside receive buffers, captures and the server's own.
 * The cache can be evicted, so it does not count. */
static void refresh(struct flow_budget *budget)
{
	uint32_t held = atomic_load_explicit(&budget->held, memory_order_relaxed);
	struct region_usage usage;
	uint64_t leased, others;

	region_usage(budget->region, &usage);
	leased = usage.frames_total - usage.frames_by_owner[OWNER_FREE] -
		 usage.frames_by_owner[OWNER_CACHE];
	others = leased > held ? leased - held : 0;
	atomic_store_explicit(&budget->frames_max,
		(uint32_t)MIN(usage.frames_total - MIN(others, usage.frames_total),
			(uint64_t)UINT32_MAX / 2),
		memory_order_relaxed);
}

int flow_budget_open(struct region *region, struct flow_budget **ret_budget)
{
	struct flow_budget *budget;
	void *memory;

	if (posix_memalign(&memory, 64, sizeof(*budget)))
		return -ENOMEM;
	budget = (struct flow_budget *)memory;
	memset(budget, 0, sizeof(*budget));
	budget->region = region;
	random_fill(budget->key, sizeof(budget->key));
	refresh(budget);
	*ret_budget = budget;
	return 0;
}

void flow_budget_close(struct flow_budget *budget)
{
	if (!budget)
		return;
	CHECK(atomic_load(&budget->held) == 0);
	free(budget);
}

uint16_t flow_share_of(const struct flow_budget *budget, struct slice principal)
{
	uint8_t digest[16];

	if (!budget)
		return FLOW_SHARE_OWN;
	mac_siphash128(budget->key, principal.data, principal.len, digest);
	return (uint16_t)(1 + (digest[0] | (uint32_t)digest[1] << 8) % (FLOW_SHARES - 1));
}

uint32_t flow_share_held(const struct flow_budget *budget, uint16_t share)
{
	CHECK(share < FLOW_SHARES);
	return atomic_load(share == FLOW_SHARE_OWN ? &budget->held : &budget->shares[share].held);
}

bool flow_budget_take(
	struct flow_budget *budget, uint16_t share, uint32_t frame_count, uint64_t now_ns)
{
	uint64_t refreshed_ns = atomic_load_explicit(&budget->refreshed_ns, memory_order_relaxed);
	uint32_t mine, all, max;

	if (now_ns - refreshed_ns > REFRESH_NS &&
		atomic_compare_exchange_strong(&budget->refreshed_ns, &refreshed_ns, now_ns))
		refresh(budget);
	max = atomic_load_explicit(&budget->frames_max, memory_order_relaxed);
	if (frame_count > FLOW_FRAMES_SMALL)
		max -= max / FLOW_RESERVE_PARTS;
	all = atomic_fetch_add_explicit(&budget->held, frame_count, memory_order_relaxed) +
	      frame_count;
	mine = atomic_fetch_add_explicit(
		       &budget->shares[share].held, frame_count, memory_order_relaxed) +
	       frame_count;
	/* A share that holds nothing may start with any free frames. */
	if (all <= max &&
		(mine == frame_count || mine <= (uint64_t)FLOW_SHARE_FACTOR * (max - all)))
		return true;
	flow_budget_give(budget, share, frame_count);
	counter_add(all <= max ? &share_full : &budget_full, 1);
	return false;
}

void flow_budget_give(struct flow_budget *budget, uint16_t share, uint32_t frame_count)
{
	uint32_t mine = atomic_fetch_sub_explicit(
		&budget->shares[share].held, frame_count, memory_order_relaxed);

	CHECK(mine >= frame_count);
	atomic_fetch_sub_explicit(&budget->held, frame_count, memory_order_relaxed);
}

bool flow_walk_begin(struct flow_budget *budget, uint16_t share)
{
	if (!budget || share == FLOW_SHARE_OWN)
		return true;
	if (atomic_fetch_add(&budget->shares[share].walks, 1) < FLOW_SHARE_WALKS)
		return true;
	flow_walk_end(budget, share);
	counter_add(&walks_refused, 1);
	counter_add(&walks_full, 1);
	return false;
}

void flow_walk_end(struct flow_budget *budget, uint16_t share)
{
	uint32_t walks;

	if (!budget || share == FLOW_SHARE_OWN)
		return;
	walks = atomic_fetch_sub(&budget->shares[share].walks, 1);
	CHECK(walks > 0);
}
