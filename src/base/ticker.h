/* base/ticker.h: a thread that looks at something again and again. Between two looks it sleeps; it
 * can be woken early, and whoever ends it does not wait for the end of its sleep.
 *
 * Life: open, start, stop, close. Zeroed it is closed. */
#ifndef BASE_TICKER_H
#define BASE_TICKER_H

#include <pthread.h>
#include <stdbool.h>

struct ticker {
	int wake_fd;
	pthread_t thread;
	bool open, running;
	_Atomic bool ending;
};
/* -EMFILE and others of eventfd. */
int ticker_open(struct ticker *ticker);
/* -EAGAIN and others of pthread_create. */
int ticker_start(struct ticker *ticker, void *(*run)(void *), void *arg);
/* Until the time has passed or somebody wakes it. False: it is to end. The thread's, or another's
 * before the thread starts. */
bool ticker_sleep(struct ticker *ticker, int timeout_ms);
/* Any thread, from open until close. */
void ticker_wake(struct ticker *ticker);
/* Ends the sleep and waits for the thread, if there is one. May be called again. */
void ticker_stop(struct ticker *ticker);
/* Stopped, or never started. */
void ticker_close(struct ticker *ticker);

#endif
