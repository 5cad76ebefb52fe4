/* server/cache_share.c: decides how much of the region the cache may have: more while it is full
 * and transfers find frames, less as soon as one finds none.
 *
 * Hysteresis: after a shrink it does not grow for a while, and for twice as long when growing was
 * wrong again. */
#include "server/cache_share.h"

#define GROW_WAIT_NS_MIN (30 * NS_PER_S)
#define GROW_WAIT_NS_MAX (3600 * NS_PER_S)

static bool rests(const struct cache_share *share, uint64_t ns, uint64_t now_ns)
{
	return share->grow_wait_ns && now_ns - share->shrunk_ns < ns;
}

bool cache_share_judge(struct cache_share *share, bool full, bool refused, uint64_t now_ns)
{
	if (refused) {
		if (!share->eighths)
			return false;
		/* Shrinks of one and the same shortage count as one. */
		if (!rests(share, GROW_WAIT_NS_MIN, now_ns))
			share->grow_wait_ns =
				rests(share, 4 * share->grow_wait_ns, now_ns)
					? MIN(2 * share->grow_wait_ns, GROW_WAIT_NS_MAX)
					: GROW_WAIT_NS_MIN;
		share->shrunk_ns = now_ns;
		share->eighths--;
		return true;
	}
	if (!full || share->eighths == CACHE_SHARE_EIGHTHS_MAX ||
		rests(share, share->grow_wait_ns, now_ns))
		return false;
	share->eighths++;
	return true;
}
