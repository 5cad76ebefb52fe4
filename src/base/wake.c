/* base/wake.c: threads that wait for work, woken one by one. */
#include "base/wake.h"

#include "base/base.h"

/* On the stack of its thread. */
struct sleeper {
	struct list link;
	pthread_cond_t called_cond;
	bool called;
};

int wake_wait(struct list *sleepers, pthread_mutex_t *lock, const struct timespec *until)
{
	struct sleeper sleeper = {.called_cond = PTHREAD_COND_INITIALIZER};
	int error = 0;

	list_push_front(sleepers, &sleeper.link);
	while (!sleeper.called && !error)
		error = until ? pthread_cond_clockwait(
					&sleeper.called_cond, lock, CLOCK_MONOTONIC, until)
			      : pthread_cond_wait(&sleeper.called_cond, lock);
	if (!sleeper.called)
		list_remove(&sleeper.link);
	pthread_cond_destroy(&sleeper.called_cond);
	return sleeper.called ? 0 : error;
}

bool wake_one(struct list *sleepers)
{
	struct list *link = list_pop(sleepers);
	struct sleeper *sleeper;

	if (!link)
		return false;
	sleeper = CONTAINER_OF(link, struct sleeper, link);
	sleeper->called = true;
	pthread_cond_signal(&sleeper->called_cond);
	return true;
}

void wake_all(struct list *sleepers)
{
	while (wake_one(sleepers))
		continue;
}
