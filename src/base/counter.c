/* base/counter.c: the registry of counters, and the lanes of threads. */
#include "base/counter.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct counter *registry_first;
static struct counter **registry_last = &registry_first;
static uint32_t registry_count;

/* Taken after the registry's, where both are. */
static pthread_mutex_t lanes_lock = PTHREAD_MUTEX_INITIALIZER;
static struct counter_lane *lanes;

_Thread_local struct counter_lane *counter_lane;

void counter_register(struct counter *counter)
{
	pthread_mutex_lock(&registry_lock);
	counter->next = NULL;
	counter->number = ++registry_count;
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

void counter_lane_open(void)
{
	struct counter_lane *lane;
	size_t bytes;

	CHECK(!counter_lane);
	pthread_mutex_lock(&registry_lock);
	bytes = ALIGN_UP(sizeof(*lane) + registry_count * sizeof(lane->shares[0]), 64u);
	lane = aligned_alloc(64, bytes);
	if (lane) {
		memset(lane, 0, bytes);
		lane->count = registry_count;
		pthread_mutex_lock(&lanes_lock);
		lane->next = lanes;
		lanes = lane;
		pthread_mutex_unlock(&lanes_lock);
	}
	pthread_mutex_unlock(&registry_lock);
	counter_lane = lane;
}

void counter_lane_close(void)
{
	struct counter_lane *lane = counter_lane;
	struct counter_lane **at = &lanes;

	if (!lane)
		return;
	pthread_mutex_lock(&registry_lock);
	pthread_mutex_lock(&lanes_lock);
	while (*at != lane)
		at = &(*at)->next;
	*at = lane->next;
	for (struct counter *c = registry_first; c && c->number <= lane->count; c = c->next)
		atomic_fetch_add_explicit(
			&c->value, lane->shares[c->number - 1], memory_order_relaxed);
	pthread_mutex_unlock(&lanes_lock);
	pthread_mutex_unlock(&registry_lock);
	counter_lane = NULL;
	free(lane);
}

uint64_t counter_read(const struct counter *counter)
{
	uint64_t value;

	pthread_mutex_lock(&lanes_lock);
	value = atomic_load_explicit(
		&((struct counter *)(uintptr_t)counter)->value, memory_order_relaxed);
	for (struct counter_lane *lane = lanes; lane; lane = lane->next)
		if (counter->number - 1 < lane->count)
			value += atomic_load_explicit(
				&lane->shares[counter->number - 1], memory_order_relaxed);
	pthread_mutex_unlock(&lanes_lock);
	return value;
}
