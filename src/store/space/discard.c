/* store/space/discard.c: tells the medium which space is free again (deallocate, TRIM): a drive
 * then need not keep unused data, and a thin volume can give the space to others. It works in the
 * background, some time after the deletion, one run at a time and within a rate limit.
 *
 * A run is taken from the allocator before the discard and given back afterwards, so no put can
 * write there. Space becomes free only after the commit that ended its object is durable, so no
 * recovery reads it. The exception is space freed because a group's write failed, but then the
 * store is fenced. */
#include "store/space/space.h"
#include "store/state/state.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <stdatomic.h>

#define LOOK_NS	 (2 * NS_PER_S)
#define REST_NS	 (60 * NS_PER_S) /* after a failure */
#define PAUSE_NS (5 * NS_PER_MS) /* shortest time between two discards */

DEFINE_COUNTER(discards, "nebulaio_store_discards_total", NULL,
	"Deallocations of free space sent to volumes.");
DEFINE_COUNTER(discarded_bytes, "nebulaio_store_discarded_bytes_total", NULL,
	"Bytes of these deallocations, of each volume.");
DEFINE_COUNTER(failures, "nebulaio_store_discards_failed_total", NULL,
	"Deallocations that failed on a volume.");

static int run_discard(struct store *store, uint64_t block, uint64_t blocks)
{
	struct disk_io discard = {
		.op = DISK_DISCARD, .offset = block << BLOCK_SHIFT, .bytes = blocks << BLOCK_SHIFT};
	int32_t result = disk_run(store->volume.disk, &discard);

	if (result < 0) {
		counter_add(&failures, 1);
		return result;
	}
	counter_add(&discards, 1);
	counter_add(&discarded_bytes, blocks << BLOCK_SHIFT);
	return 0;
}

/* Whether to continue: false while the store quiesces or is fenced. */
static bool rest(const struct store *store, uint64_t until_ns)
{
	while (!atomic_load(&store->quiescing) && clock_now_ns() < until_ns)
		(void)fiber_park_until(until_ns);
	return !atomic_load(&store->quiescing) && !atomic_load(&store->fenced);
}

int discard_pass(struct store *store, uint64_t bytes_per_s)
{
	uint64_t cursor = 0, block, blocks;
	bool go_on = true;
	int ret = 0;

	while (!ret && go_on && (blocks = space_discard_begin(store->space, &cursor, &block))) {
		uint64_t pause_ns = (uint64_t)((double)(blocks << BLOCK_SHIFT) * NS_PER_S /
					       (double)bytes_per_s);

		/* Read after the run was taken: a failed group fences the store before it frees
		 * space. */
		if (!atomic_load(&store->fenced))
			ret = run_discard(store, block, blocks);
		space_discard_end(store->space, block, blocks);
		go_on = rest(store, clock_now_ns() + MAX(pause_ns, PAUSE_NS));
	}
	return ret;
}

void store_discard_run(struct store *store, uint64_t bytes_per_s)
{
	uint64_t next_ns = clock_now_ns() + LOOK_NS;

	store->discarder = fiber_self();
	while (rest(store, next_ns)) {
		next_ns = clock_now_ns() + LOOK_NS;
		if (disk_can_discard(store->volume.disk) && discard_pass(store, bytes_per_s))
			next_ns = clock_now_ns() + REST_NS;
	}
	store->discarder = NULL;
}
