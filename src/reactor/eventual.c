/* reactor/eventual.c: a fiber that has to run, also when none is free at the moment. */
#include "reactor/eventual.h"

#include <errno.h>
#include <string.h>

#define RETRY_NS (10 * NS_PER_MS)

static void again(struct reactor_timer *timer, void *arg)
{
	struct eventual *eventual = arg;

	(void)timer;
	if (fiber_spawn(eventual->reactor, eventual->name, eventual->fn, eventual->arg))
		reactor_timer_set(eventual->reactor, &eventual->timer, clock_now_ns() + RETRY_NS);
}

void eventual_spawn(struct eventual *eventual, struct reactor *reactor, const char *name,
	fiber_fn *fn, void *arg)
{
	int ret = fiber_spawn(reactor, name, fn, arg);

	if (!ret)
		return;
	log_warn("reactor", "core %u: %s waits for a free fiber: %s", reactor_core_idx(reactor),
		name, strerror(-ret));
	*eventual = (struct eventual){
		.reactor = reactor, .name = name, .fn = fn, .arg = arg, .timer.fn = again};
	eventual->timer.arg = eventual;
	reactor_timer_set(reactor, &eventual->timer, clock_now_ns() + RETRY_NS);
}
