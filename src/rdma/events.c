/* rdma/events.c: connection events of a device, waited for through io_uring. */
#include <poll.h>

#include "rdma/port.h"

/* The descriptor stays readable while there are more: they are taken in the next turn. */
#define EVENTS_AT_ONCE 16u

static void events_await(struct rp_events *events)
{
	events->waiting = true;
	io_uring_prep_poll_add(
		reactor_sqe(events->reactor, &events->op), rp_cm_fd(events->device), POLLIN);
}

static void events_ready(struct uring_op *op, int result, uint32_t cqe_flags)
{
	struct rp_events *events = op->arg;

	(void)result;
	(void)cqe_flags;
	events->waiting = false;
	for (uint32_t i = 0; i < EVENTS_AT_ONCE && events->take(events->arg); i++)
		continue;
	if (!events->ending)
		events_await(events);
	else if (events->waiter)
		fiber_wake(events->waiter);
}

void rp_events_begin(struct rp_events *events)
{
	CHECK(!events->waiting);
	CHECK(events->take != NULL);
	events->op = (struct uring_op){.done = events_ready, .arg = events};
	events->ending = false;
	events_await(events);
}

static void events_cancel(struct io_uring_sqe *sqe, void *arg)
{
	io_uring_prep_cancel(sqe, arg, 0);
}

void rp_events_end(struct rp_events *events)
{
	CHECK(!events->ending);
	events->ending = true;
	events->waiter = fiber_self();
	if (events->waiting)
		fiber_uring(events_cancel, &events->op, DEADLINE_NONE);
	while (events->waiting)
		fiber_park();
	events->waiter = NULL;
}
