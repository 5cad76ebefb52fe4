/* tests/unit/ring_poller.h: a region's ring as a poller of the test's reactor: an entry's user data
 * is the struct io that waits for it. */
#ifndef TESTS_UNIT_RING_POLLER_H
#define TESTS_UNIT_RING_POLLER_H

#include <sys/eventfd.h>
#include <unistd.h>

#include "reactor/reactor.h"
#include "region/region.h"

struct io {
	struct fiber *fiber;
	int32_t result;
	bool done;
};

static inline uint32_t ring_poll(void *arg)
{
	struct region_ring *ring = (struct region_ring *)arg;
	struct region_cqe cqes[64];
	uint32_t moved = region_ring_turn(ring);
	uint32_t count = region_reap(ring, cqes, 64);

	for (uint32_t i = 0; i < count; i++) {
		struct io *io = (struct io *)(uintptr_t)cqes[i].user_data;

		io->result = cqes[i].result;
		io->done = true;
		fiber_wake(io->fiber);
	}
	return moved + count;
}

static inline bool ring_arm(void *arg)
{
	return region_ring_idle((struct region_ring *)arg);
}

static inline void ring_disarm(void *arg)
{
	(void)arg;
}

/* The poller of a reactor that is not running yet. Completions wake the reactor by themselves,
 * so nothing writes to the descriptor. */
static inline void ring_poller_add(
	struct reactor *reactor, struct reactor_poller *poller, struct region_ring *ring)
{
	*poller = (struct reactor_poller){.name = "rings",
		.poll = ring_poll,
		.arm = ring_arm,
		.disarm = ring_disarm,
		.arg = ring,
		.event_fd = eventfd(0, EFD_CLOEXEC)};
	reactor_poller_add(reactor, poller);
}

/* Closes the reactor, too: it may still wait for the descriptor. */
static inline void ring_poller_close(struct reactor *reactor, struct reactor_poller *poller)
{
	reactor_poller_remove(reactor, poller);
	reactor_close(reactor);
	close(poller->event_fd);
}

#endif
