/* reactor/fiber_mutex.c: a mutex for the fibers of all reactors. */
#include "reactor/waiter.h"

void fiber_mutex_init(struct fiber_mutex *mutex)
{
	*mutex = (struct fiber_mutex){.held = false};
	mutex->last = &mutex->first;
	pthread_mutex_init(&mutex->lock, NULL);
}

void fiber_mutex_destroy(struct fiber_mutex *mutex)
{
	CHECK(!mutex->held);
	pthread_mutex_destroy(&mutex->lock);
}

void fiber_mutex_lock(struct fiber_mutex *mutex)
{
	struct waiter waiter;
	bool wait;

	pthread_mutex_lock(&mutex->lock);
	wait = mutex->held;
	mutex->held = true;
	if (wait) {
		waiter_init(&waiter);
		*mutex->last = &waiter;
		mutex->last = &waiter.next;
	}
	pthread_mutex_unlock(&mutex->lock);
	if (wait)
		waiter_wait(&waiter);
}

/* It goes from fiber to fiber: a fiber that comes meanwhile is behind those that wait. */
void fiber_mutex_unlock(struct fiber_mutex *mutex)
{
	struct waiter *next;

	pthread_mutex_lock(&mutex->lock);
	CHECK(mutex->held);
	next = mutex->first;
	if (next)
		mutex->first = next->next;
	else
		mutex->held = false;
	if (!mutex->first)
		mutex->last = &mutex->first;
	pthread_mutex_unlock(&mutex->lock);
	if (next)
		waiter_wake(next);
}
