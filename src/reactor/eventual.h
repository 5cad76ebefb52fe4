/* reactor/eventual.h: a fiber that has to run, also when none is free at the moment. */
#ifndef REACTOR_EVENTUAL_H
#define REACTOR_EVENTUAL_H

#include "reactor/reactor.h"

/* The caller's, until fn begins. */
struct eventual {
	struct reactor_timer timer;
	struct reactor *reactor;
	const char *name;
	fiber_fn *fn;
	void *arg;
};
/* fiber_spawn, again and again until a fiber is free. On the reactor's own thread. */
void eventual_spawn(struct eventual *eventual, struct reactor *reactor, const char *name,
	fiber_fn *fn, void *arg);

#endif
