/* reactor/thread.c: see thread.h. */
#include "reactor/thread.h"

#include <string.h>

static void *thread_main(void *arg)
{
	struct reactor_thread *self = arg;

	while (sem_wait(&self->go))
		;
	if (self->reactor)
		reactor_run(self->reactor);
	return NULL;
}

int reactor_thread_open(struct reactor_thread *self)
{
	int ret;

	*self = (struct reactor_thread){.open = false};
	sem_init(&self->go, 0, 0);
	ret = -pthread_create(&self->id, NULL, thread_main, self);
	self->open = !ret;
	if (ret) {
		log_error("reactor", "no thread for a core: %s", strerror(-ret));
		sem_destroy(&self->go);
	}
	return ret;
}

void reactor_thread_run(struct reactor_thread *self, struct reactor *reactor)
{
	self->reactor = reactor;
	self->running = true;
	sem_post(&self->go);
}

void reactor_thread_close(struct reactor_thread *self)
{
	if (!self->open)
		return;
	if (!self->running)
		sem_post(&self->go);
	pthread_join(self->id, NULL);
	sem_destroy(&self->go);
	self->open = self->running = false;
}
