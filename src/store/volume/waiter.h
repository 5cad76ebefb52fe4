/* store/volume/waiter.h: a fiber that waits for another thread. */
#ifndef STORE_WAITER_H
#define STORE_WAITER_H

#include "store/local.h"

#include <stdbool.h>

struct fiber;
struct reactor;

/* ---- waiter.c: a fiber that waits for another thread. The flag is set on the fiber's own reactor,
 * so that the waiter may be freed as soon as the fiber sees it. ---- */
struct waiter {
	struct reactor_msg msg;
	struct fiber *fiber;
	struct reactor *reactor;
	struct waiter *next;
	bool done;
};
void waiter_init(struct waiter *waiter);
void waiter_wait(struct waiter *waiter);
/* Any thread; the caller must not touch the waiter afterwards. */
void waiter_wake(struct waiter *waiter);
void waiters_wake(struct waiter *waiters); /* linked by next */

#endif
