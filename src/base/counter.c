/* base/counter.c: the registry of counters, and the shards of threads. */
#include "base/counter.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct counter *registry_first;
static struct counter **registry_last = &registry_first;
static struct counter_hist *hists_first;
static struct counter_hist **hists_last = &hists_first;
static uint32_t registry_count; /* places that a shard has for them */

/* When both locks are needed, the registry's is taken first. */
static pthread_mutex_t shards_lock = PTHREAD_MUTEX_INITIALIZER;
static struct counter_shard *shards;

const uint64_t counter_hist_bounds_ns[COUNTER_HIST_BUCKETS - 1] = COUNTER_HIST_BOUNDS;

_Thread_local struct counter_shard *counter_shard;

void counter_register(struct counter *counter)
{
	pthread_mutex_lock(&registry_lock);
	counter->next = NULL;
	counter->number = ++registry_count;
	*registry_last = counter;
	registry_last = &counter->next;
	pthread_mutex_unlock(&registry_lock);
}

void counter_hist_register(struct counter_hist *hist)
{
	pthread_mutex_lock(&registry_lock);
	hist->next = NULL;
	hist->number = registry_count + 1;
	registry_count += COUNTER_HIST_PLACES;
	*hists_last = hist;
	hists_last = &hist->next;
	pthread_mutex_unlock(&registry_lock);
}

void counter_visit(counter_visit_fn *fn, void *arg)
{
	pthread_mutex_lock(&registry_lock);
	for (struct counter *c = registry_first; c; c = c->next)
		fn(c, arg);
	pthread_mutex_unlock(&registry_lock);
}

void counter_hist_visit(counter_hist_visit_fn *fn, void *arg)
{
	pthread_mutex_lock(&registry_lock);
	for (struct counter_hist *hist = hists_first; hist; hist = hist->next)
		fn(hist, arg);
	pthread_mutex_unlock(&registry_lock);
}

void counter_shard_open(void)
{
	struct counter_shard *shard;
	size_t bytes;

	CHECK(!counter_shard);
	pthread_mutex_lock(&registry_lock);
	bytes = ALIGN_UP(sizeof(*shard) + registry_count * sizeof(shard->shares[0]), 64u);
	shard = aligned_alloc(64, bytes);
	if (shard) {
		memset(shard, 0, bytes);
		shard->count = registry_count;
		pthread_mutex_lock(&shards_lock);
		shard->next = shards;
		shards = shard;
		pthread_mutex_unlock(&shards_lock);
	}
	pthread_mutex_unlock(&registry_lock);
	counter_shard = shard;
}

/* Adds the shard's counts to the part of each counter that has no shard. */
static void shard_fold(const struct counter_shard *shard)
{
	for (struct counter *c = registry_first; c && c->number <= shard->count; c = c->next)
		atomic_fetch_add_explicit(
			&c->value, shard->shares[c->number - 1], memory_order_relaxed);
	for (struct counter_hist *h = hists_first; h && h->number <= shard->count; h = h->next)
		for (uint32_t i = 0; i < COUNTER_HIST_PLACES; i++)
			atomic_fetch_add_explicit(&h->values[i], shard->shares[h->number - 1 + i],
				memory_order_relaxed);
}

void counter_shard_close(void)
{
	struct counter_shard *shard = counter_shard;
	struct counter_shard **at = &shards;

	if (!shard)
		return;
	pthread_mutex_lock(&registry_lock);
	pthread_mutex_lock(&shards_lock);
	while (*at != shard)
		at = &(*at)->next;
	*at = shard->next;
	shard_fold(shard);
	pthread_mutex_unlock(&shards_lock);
	pthread_mutex_unlock(&registry_lock);
	counter_shard = NULL;
	free(shard);
}

/* Called with the shards' lock. */
static uint64_t read_at(const _Atomic uint64_t *at, uint32_t idx)
{
	uint64_t value =
		atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)at, memory_order_relaxed);

	for (struct counter_shard *shard = shards; shard; shard = shard->next)
		if (idx < shard->count)
			value += atomic_load_explicit(&shard->shares[idx], memory_order_relaxed);
	return value;
}

uint64_t counter_read(const struct counter *counter)
{
	uint64_t value;

	pthread_mutex_lock(&shards_lock);
	value = read_at(&counter->value, counter->number - 1);
	pthread_mutex_unlock(&shards_lock);
	return value;
}

void counter_hist_add(struct counter_hist *hist, uint64_t duration_ns)
{
	uint32_t bucket = 0;

	while (bucket < COUNTER_HIST_BUCKETS - 1 && duration_ns > counter_hist_bounds_ns[bucket])
		bucket++;
	counter_add_at(hist->number - 1 + bucket, &hist->values[bucket], 1);
	counter_add_at(
		hist->number - 1 + COUNTER_HIST_SUM, &hist->values[COUNTER_HIST_SUM], duration_ns);
}

void counter_hist_add_values(struct counter_hist *hist, const uint64_t values[COUNTER_HIST_PLACES])
{
	for (uint32_t i = 0; i < COUNTER_HIST_PLACES; i++)
		counter_add_at(hist->number - 1 + i, &hist->values[i], values[i]);
}

void counter_hist_read(const struct counter_hist *hist, uint64_t ret_values[COUNTER_HIST_PLACES])
{
	pthread_mutex_lock(&shards_lock);
	for (uint32_t i = 0; i < COUNTER_HIST_PLACES; i++)
		ret_values[i] = read_at(&hist->values[i], hist->number - 1 + i);
	pthread_mutex_unlock(&shards_lock);
}
