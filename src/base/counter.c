/* base/counter.c: the registry of counters. */
#include "base/counter.h"

#include <pthread.h>

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct counter *registry_first;
static struct counter **registry_last = &registry_first;

void counter_register(struct counter *counter)
{
	pthread_mutex_lock(&registry_lock);
	counter->next = NULL;
	*registry_last = counter;
	registry_last = &counter->next;
	pthread_mutex_unlock(&registry_lock);
}

void counter_visit(counter_visit_fn *fn, void *arg)
{
	pthread_mutex_lock(&registry_lock);
	for (struct counter *c = registry_first; c; c = c->next)
		fn(c, arg);
	pthread_mutex_unlock(&registry_lock);
}
