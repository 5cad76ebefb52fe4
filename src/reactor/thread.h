/* reactor/thread.h: the thread of a reactor. It is made before anything lives on the reactor: what
 * does can only end there, so a thread that cannot be made then would be too late. */
#ifndef REACTOR_THREAD_H
#define REACTOR_THREAD_H

#include <pthread.h>
#include <semaphore.h>

#include "reactor/reactor.h"

struct reactor_thread {
	pthread_t id;
	sem_t go;
	struct reactor *reactor;
	bool open;
	bool running; /* it was told to run the reactor */
};
/* Makes a thread that waits. -EAGAIN and others of pthread_create. */
int reactor_thread_open(struct reactor_thread *self);
/* The thread runs the reactor, until somebody stops it. */
void reactor_thread_run(struct reactor_thread *self, struct reactor *reactor);
/* Waits for the end of the thread; one that still waits ends at once. Zeros are no thread. */
void reactor_thread_close(struct reactor_thread *self);

#endif
