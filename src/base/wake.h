/* base/wake.h: threads that wait for work behind a mutex, woken one by one. Each waits on its own
 * word (futex): in glibc 2.25 to 2.41, a condition variable with several waiters can lose a signal,
 * and then a job waits although a thread is idle.
 *
 * The list is prepared by list_init(). The caller's mutex guards it and is held in every call. The
 * thread that slept last is woken first. */
#ifndef BASE_WAKE_H
#define BASE_WAKE_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

#include "base/list.h"

/* Waits until the thread is woken (0), or until the time `until` on CLOCK_MONOTONIC (ETIMEDOUT);
 * NULL waits without limit. Releases the mutex while it waits. The caller checks again whether
 * there is work, because another thread may have taken it. */
int wake_wait(struct list *sleepers, pthread_mutex_t *lock, const struct timespec *until);
/* Releases the mutex, then wakes up to count threads, which so do not wait for it. When this call
 * ends, they may have done their work already. */
#define WAKE_MAX 8u
void wake_unlock(struct list *sleepers, pthread_mutex_t *lock, uint32_t count);
/* The same, of all threads. */
void wake_all_unlock(struct list *sleepers, pthread_mutex_t *lock);

#endif
