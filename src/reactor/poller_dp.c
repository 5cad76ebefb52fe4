/* reactor/poller_dp.c: pollers: called each turn; armed and watched by the ring before a sleep. */
#include "reactor/reactor_priv.h"

#include <poll.h>

static void wait_done(struct uring_op *op, int result, uint32_t cqe_flags)
{
	struct poller_wait *wait = CONTAINER_OF(op, struct poller_wait, op);

	/* The next turn calls the poller, for any result. */
	(void)cqe_flags;
	wait->in_kernel = false;
	wait->failed = result > 0 && result & (POLLERR | POLLNVAL) && !(result & POLLIN);
}

void reactor_poller_add(struct reactor *reactor, struct reactor_poller *poller)
{
	uint32_t idx = 0;

	while (idx < REACTOR_POLLERS_MAX &&
		(reactor->waits[idx].poller || reactor->waits[idx].in_kernel))
		idx++;
	CHECK(idx < REACTOR_POLLERS_MAX);
	poller->wait_idx = idx;
	reactor->waits[idx].op.done = wait_done;
	reactor->waits[idx].poller = poller;
	reactor->waits[idx].failed = false;
	list_push_back(&reactor->pollers, &poller->link);
	if (poller->event_fd < 0)
		reactor->pollers_deaf++;
}

void reactor_poller_remove(struct reactor *reactor, struct reactor_poller *poller)
{
	struct poller_wait *wait = &reactor->waits[poller->wait_idx];

	CHECK(wait->poller == poller);
	if (reactor->poller_next == &poller->link)
		reactor->poller_next = poller->link.next;
	list_remove(&poller->link);
	wait->poller = NULL;
	if (poller->event_fd < 0)
		reactor->pollers_deaf--;
	/* The place is free again when the kernel no longer holds it. */
	if (wait->in_kernel)
		io_uring_prep_cancel(reactor_sqe(reactor, NULL), &wait->op, 0);
}

uint32_t pollers_poll(struct reactor *reactor)
{
	struct list *link = reactor->pollers.next;
	uint32_t count = 0;

	while (link != &reactor->pollers) {
		struct reactor_poller *poller = CONTAINER_OF(link, struct reactor_poller, link);

		reactor->poller_next = link->next;
		count += poller->poll(poller->arg);
		link = reactor->poller_next;
	}
	reactor->poller_next = NULL;
	return count;
}

/* Disarms the pollers before end. */
static void disarm_until(struct reactor *reactor, struct list *end)
{
	struct list *link = reactor->pollers.next;

	while (link != end) {
		struct reactor_poller *poller = CONTAINER_OF(link, struct reactor_poller, link);

		reactor->poller_next = link->next;
		poller->disarm(poller->arg);
		link = reactor->poller_next;
	}
	reactor->poller_next = NULL;
}

void pollers_disarm(struct reactor *reactor)
{
	disarm_until(reactor, &reactor->pollers);
}

bool pollers_arm(struct reactor *reactor)
{
	if (reactor->pollers_deaf)
		return false;
	LIST_FOR_EACH (link, &reactor->pollers) {
		struct reactor_poller *poller = CONTAINER_OF(link, struct reactor_poller, link);
		struct poller_wait *wait = &reactor->waits[poller->wait_idx];

		if (!poller->arm(poller->arg)) {
			disarm_until(reactor, link);
			return false;
		}
		/* A poll from an earlier sleep may still be in the kernel; it serves for this one.
		 * A descriptor whose device is gone reports that for ever, and would end every
		 * sleep at once. */
		if (wait->in_kernel || wait->failed)
			continue;
		io_uring_prep_poll_add(reactor_sqe(reactor, &wait->op), poller->event_fd, POLLIN);
		wait->in_kernel = true;
	}
	return true;
}
