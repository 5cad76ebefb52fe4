/* base/life.h: until when this process may answer from its memory.
 *
 * A store that another process may take over has a life: its owner renews it, and the taker waits
 * until it is certainly over. After that time this process must not answer a read, because the
 * store may have changed elsewhere (docs/design/cluster.md). A read may be answered when
 * life_holds() after its result was chosen: the store had no other owner at that moment. Without
 * such a store there is no limit. */
#ifndef BASE_LIFE_H
#define BASE_LIFE_H

#include "base/clock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* CLOCK_BOOTTIME in nanoseconds: like the monotonic clock, but it counts while the machine is
 * suspended, too. For promises to other hosts. */
static inline uint64_t clock_boot_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

#define LIFE_FOREVER UINT64_MAX

/* Of one store. Zeroed before its first use. */
struct life {
	struct life *next;
	uint64_t until_ns; /* CLOCK_BOOTTIME */
	bool bound;
};

/* The first renewal binds it; until then it counts as LIFE_FOREVER. Any thread. */
void life_renew(struct life *life, uint64_t until_ns);
/* The store is no longer this process's, and nothing answers for it any more. Takes one that was
 * never renewed. */
void life_end(struct life *life);

extern _Atomic uint64_t life_until_ns; /* the earliest of all */

/* Any thread. */
static inline bool life_holds(void)
{
	uint64_t until_ns = atomic_load_explicit(&life_until_ns, memory_order_relaxed);

	return __builtin_expect(until_ns == LIFE_FOREVER, 1) || clock_boot_ns() < until_ns;
}

/* LIFE_FOREVER: no limit; 0: over. */
static inline uint64_t life_left_ns(void)
{
	uint64_t until_ns = atomic_load_explicit(&life_until_ns, memory_order_relaxed);
	uint64_t now_ns;

	if (until_ns == LIFE_FOREVER)
		return LIFE_FOREVER;
	now_ns = clock_boot_ns();
	return now_ns < until_ns ? until_ns - now_ns : 0;
}

#endif
