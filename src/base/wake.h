/* base/wake.h: threads that wait for work behind a mutex, woken one by one. Each waits on a
 * condition variable of its own: one that several threads wait on can lose a signal in glibc 2.25
 * to 2.41, and then a job waits although a thread is idle.
 *
 * The list is list_init()'s, guarded by the caller's mutex, which every call finds held. The thread
 * that slept last is woken first. */
#ifndef BASE_WAKE_H
#define BASE_WAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "base/list.h"

/* Until it is woken: 0; or, by CLOCK_MONOTONIC, until (NULL: without end): ETIMEDOUT. Gives the
 * mutex back meanwhile. The caller looks again whether there is work: somebody may have been
 * quicker. */
int wake_wait(struct list *sleepers, pthread_mutex_t *lock, const struct timespec *until);
/* False: nobody sleeps. */
bool wake_one(struct list *sleepers);
void wake_all(struct list *sleepers);

#endif
