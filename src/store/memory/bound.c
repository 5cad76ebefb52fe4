/* store/memory/bound.c: the bounds of a store in memory: what its objects take together, how many
 * there are, how old they get. */
#include "reactor/reactor.h"
#include "store/memory/tree.h"

#include <errno.h>

/* An object whose watch has not ended is read by clients that this store does not see: it counts as
 * used, so often in one call. */
#define WATCHED_SPARED_MAX 64u

/* How many objects a call ends at a time: other threads wait for the lock meanwhile. */
#define ENDED_AT_ONCE 256u

/* Bodies on their way, and those that readers keep of objects that ended, may take this part of the
 * bound beside it. */
#define LOOSE_PART 8u

DEFINE_COUNTER(evictions, "nebulaio_memory_evictions_total", NULL,
	"Objects of memory buckets that ended because others needed the room.");
DEFINE_COUNTER(expirations, "nebulaio_memory_expirations_total", NULL,
	"Objects of memory buckets that ended because they were too old.");
DEFINE_COUNTER(refusals, "nebulaio_memory_refusals_total", NULL,
	"Puts that were refused because their memory bucket was full.");

static bool fits(const struct store *store, uint64_t bytes, uint64_t freed_bytes, uint64_t objects,
	uint64_t freed)
{
	const struct store_memory_opts *opts = &store->opts;

	return !(opts->bytes_max && store->status.bytes - freed_bytes + bytes > opts->bytes_max) &&
	       !(opts->objects_max && store->status.objects - freed + objects > opts->objects_max);
}

int memory_bound_check(struct store *store, uint64_t bytes, uint64_t freed_bytes, uint64_t objects,
	uint64_t freed_objects)
{
	if (store->opts.closed)
		return -ENOSPC;
	if (store->opts.bytes_max && bytes > store->opts.bytes_max)
		return -EFBIG;
	if (!store->opts.refuses || fits(store, bytes, freed_bytes, objects, freed_objects))
		return 0;
	store->status.refused++;
	counter_add(&refusals, 1);
	return -ENOSPC;
}

/* Its last reference may be the tree's. */
static void object_end(struct store *store, struct object *object)
{
	struct key *key = object->key;
	uint32_t at = 0;

	while (key->versions[at] != object)
		at++;
	memory_version_replace(store, key, at, NULL);
}

int memory_bound_loose(struct store *store, uint64_t frame_bytes)
{
	uint64_t most = store->opts.bytes_max + store->opts.bytes_max / LOOSE_PART;
	uint64_t loose_bytes = store->loose_bytes + frame_bytes;
	struct list *link = store->by_use.next;

	if (!store->opts.bytes_max)
		return 0;
	while (loose_bytes <= most && store->status.bytes + loose_bytes > most &&
		!store->opts.refuses && link != &store->by_use) {
		struct object *object = CONTAINER_OF(link, struct object, use);

		link = link->next;
		if (object->refs > 1)
			continue;
		object_end(store, object);
		store->status.evicted++;
		counter_add(&evictions, 1);
	}
	if (store->status.bytes + loose_bytes <= most)
		return 0;
	store->status.refused++;
	counter_add(&refusals, 1);
	return -ENOBUFS;
}

/* Ends some of them. False: more have to end. */
static bool bound_keep(struct store *store, const struct object *keep)
{
	uint32_t spared = 0, ended = 0;
	struct list *link = store->by_use.next;

	while (!store->opts.refuses && !fits(store, 0, 0, 0, 0) && link != &store->by_use) {
		struct object *object = CONTAINER_OF(link, struct object, use);

		link = link->next;
		if (object == keep)
			continue;
		if (ended == ENDED_AT_ONCE)
			return false;
		if (object->watches && spared < WATCHED_SPARED_MAX) {
			spared++;
			memory_bound_used(store, object);
			link = store->by_use.next;
			continue;
		}
		object_end(store, object);
		ended++;
		store->status.evicted++;
		counter_add(&evictions, 1);
	}
	return true;
}

/* Others have a turn at the lock, and at the processor. */
static void lock_again(struct store *store)
{
	pthread_mutex_unlock(&store->lock);
	if (fiber_self())
		fiber_yield();
	pthread_mutex_lock(&store->lock);
}

void memory_bound_keep_all(struct store *store, const struct object *keep)
{
	while (!bound_keep(store, keep))
		lock_again(store);
}

void memory_bound_used(struct store *store, struct object *object)
{
	if (!object->key)
		return;
	list_remove(&object->use);
	list_push_back(&store->by_use, &object->use);
}

/* Ends objects that are too old, under the lock. False: more are. */
static bool expire(struct store *store)
{
	uint32_t ended = 0;
	uint64_t now_ns;

	if (!store->opts.ttl_ns)
		return true;
	now_ns = clock_now_ns();
	while (!list_empty(&store->by_age)) {
		struct object *object = CONTAINER_OF(store->by_age.next, struct object, age);

		if (now_ns - object->born_ns < store->opts.ttl_ns)
			return true;
		if (ended++ == ENDED_AT_ONCE)
			return false;
		object_end(store, object);
		store->status.expired++;
		counter_add(&expirations, 1);
	}
	return true;
}

void memory_lock_fresh(struct store *store)
{
	pthread_mutex_lock(&store->lock);
	while (!expire(store))
		lock_again(store);
}

bool store_memory_expire(struct store *store)
{
	bool all;

	pthread_mutex_lock(&store->lock);
	all = expire(store);
	pthread_mutex_unlock(&store->lock);
	return all;
}

void store_memory_status(struct store *store, struct store_memory_status *ret_status)
{
	pthread_mutex_lock(&store->lock);
	(void)expire(store);
	*ret_status = store->status;
	pthread_mutex_unlock(&store->lock);
	ret_status->bytes_max = store->opts.bytes_max;
}
