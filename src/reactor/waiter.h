/* reactor/waiter.h: fibers that wait for another fiber or thread, and a mutex for fibers.
 *
 * A waiter's flag is set on its fiber's own reactor, so that the waiter may be freed as soon as the
 * fiber sees it. */
#ifndef REACTOR_WAITER_H
#define REACTOR_WAITER_H

#include <pthread.h>
#include <stdbool.h>

#include "reactor/reactor.h"

struct waiter {
	struct reactor_msg msg;
	struct fiber *fiber;
	struct reactor *reactor;
	struct waiter *next;
	bool done;
};
/* Fiber calls. */
void waiter_init(struct waiter *waiter);
void waiter_wait(struct waiter *waiter);
/* Any thread; the caller must not touch the waiter afterwards. */
void waiter_wake(struct waiter *waiter);
void waiters_wake(struct waiter *waiters); /* linked by next */

/* A mutex that a fiber may hold while it parks. Fibers of all reactors get it in the order in which
 * they came. */
struct fiber_mutex {
	pthread_mutex_t lock;
	bool held;
	struct waiter *first, **last; /* who waits */
};
void fiber_mutex_init(struct fiber_mutex *mutex);
void fiber_mutex_destroy(struct fiber_mutex *mutex);
/* Fiber call; outside a fiber only where nobody holds it. */
void fiber_mutex_lock(struct fiber_mutex *mutex);
void fiber_mutex_unlock(struct fiber_mutex *mutex);

#endif
