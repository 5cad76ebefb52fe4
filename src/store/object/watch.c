/* store/object/watch.c: informs watchers that an object is no longer its key's object, before the
 * caller that replaced or deleted it gets its result. Few objects are watched; for the others, a
 * commit only checks a flag. */
#include "store/object/object.h"
#include "store/state/state.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

uint64_t local_rights_epoch(const struct store *store)
{
	return atomic_load(&((struct store *)(uintptr_t)store)->rights_epoch);
}

int local_object_watch_begin(
	struct store_get *get, struct store_object_watch *watch, uint64_t epoch)
{
	struct store *store = get->store;
	struct object *object = get->object;
	int ret = 0;

	store_get_check(get);
	pthread_mutex_lock(&store->watch_lock);
	/* Either the thread that supersedes the object sees this flag, or its change is already
	 * visible here. */
	atomic_store(&object->watched, true);
	if (atomic_load(&object->superseded) || store->rights_epoch != epoch) {
		ret = -ESTALE;
	} else {
		watch->object = object_get(object);
		watch->next = object->watches;
		object->watches = watch;
		list_push_back(&store->watches, &watch->link);
	}
	pthread_mutex_unlock(&store->watch_lock);
	return ret;
}

/* Locked. Removes the watch from both lists; the caller puts the object. */
static struct object *watch_take(struct store_object_watch *watch)
{
	struct object *object = watch->object;
	struct store_object_watch **at = &object->watches;

	while (*at != watch)
		at = &(*at)->next;
	*at = watch->next;
	list_remove(&watch->link);
	watch->object = NULL;
	return object;
}

void local_object_watch_end(struct store *store, struct store_object_watch *watch)
{
	struct object *object = NULL;

	pthread_mutex_lock(&store->watch_lock);
	if (watch->object)
		object = watch_take(watch);
	pthread_mutex_unlock(&store->watch_lock);
	object_put(store, object);
}

void local_rights_changed(struct store *store)
{
	struct list *link;

	pthread_mutex_lock(&store->watch_lock);
	atomic_fetch_add(&store->rights_epoch, 1);
	while ((link = list_pop(&store->watches)) != NULL) {
		struct store_object_watch *watch =
			CONTAINER_OF(link, struct store_object_watch, link);
		struct object *object = watch_take(watch);

		watch->ended(watch, true);
		object_put(store, object);
	}
	pthread_mutex_unlock(&store->watch_lock);
}

void object_supersede_watched(struct store *store, struct object *object)
{
	pthread_mutex_lock(&store->watch_lock);
	while (object->watches) {
		struct store_object_watch *watch = object->watches;

		/* The superseding commit has a reference of its own. */
		object_put(store, watch_take(watch));
		watch->ended(watch, false);
	}
	pthread_mutex_unlock(&store->watch_lock);
}
