/* reactor/waiter.c: a fiber waits for another fiber or thread. */
#include "reactor/waiter.h"

static void waiter_deliver(struct reactor_msg *msg)
{
	struct waiter *waiter = CONTAINER_OF(msg, struct waiter, msg);
	struct fiber *fiber = waiter->fiber;

	waiter->done = true;
	fiber_wake(fiber);
}

void waiter_init(struct waiter *waiter)
{
	*waiter = (struct waiter){
		.msg.fn = waiter_deliver, .fiber = fiber_self(), .reactor = reactor_self()};
	CHECK(waiter->fiber);
}

void waiter_wait(struct waiter *waiter)
{
	while (!waiter->done)
		fiber_park();
}

void waiter_wake(struct waiter *waiter)
{
	if (waiter->reactor == reactor_self())
		waiter_deliver(&waiter->msg);
	else
		reactor_post(waiter->reactor, &waiter->msg);
}

void waiters_wake(struct waiter *waiters)
{
	while (waiters) {
		struct waiter *next =
			waiters->next; /* the waiter may be freed once its fiber runs */

		waiter_wake(waiters);
		waiters = next;
	}
}
