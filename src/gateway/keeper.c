/* gateway/keeper.c: the thread that says that this gateway lives, takes stores that nobody has,
 * runs their processes, and hands them over. Each decision is one compare-and-write on the store's
 * entry, so two gateways that decide at the same time do not both succeed; and the store's volume
 * has its own lock, so a wrong decision costs time only. docs/design/cluster.md. */
#include "gateway/gateway_priv.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ROOM_TICKS   10u
#define LEAVE_NS_MAX (180 * NS_PER_S)

struct keeper {
	struct gateway *gateway;
	struct cluster_view view;
	uint64_t ticks;
	int told; /* the last error of the cluster that was logged */
};

void gw_keeper_wake(struct gateway *gateway)
{
	(void)eventfd_write(gateway->wake_fd, 1);
}

/* ---- Gateways. ---- */

/* NULL: no gateway of this name lives. */
static const struct cluster_gateway *living(const struct keeper *keeper, const char *name)
{
	for (uint32_t i = 0; i < keeper->view.gateway_count; i++)
		if (keeper->view.gateways[i].alive &&
			strcmp(keeper->view.gateways[i].name, name) == 0)
			return &keeper->view.gateways[i];
	return NULL;
}

/* Whether a store may be given to it. One that leaves would only give it to another. */
static bool accepts(const struct keeper *keeper, const char *name)
{
	const struct cluster_gateway *gateway = living(keeper, name);

	return gateway && !gateway->leaving;
}

/* The stores that it has, or will have. */
static uint32_t count_of(const struct keeper *keeper, const char *name)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < keeper->view.store_count; i++) {
		const struct cluster_store *store = &keeper->view.stores[i];

		count += strcmp(store->next[0] ? store->next : store->owner, name) == 0;
	}
	return count;
}

static bool owns_any(const struct keeper *keeper)
{
	for (uint32_t i = 0; i < keeper->view.store_count; i++)
		if (strcmp(keeper->view.stores[i].owner, keeper->gateway->name) == 0)
			return true;
	return false;
}

/* The living gateway with the fewest stores, of those that do not leave; the first name of several.
 * NULL: there is none. */
static const char *least(const struct keeper *keeper, const char *but)
{
	const char *found = NULL;

	for (uint32_t i = 0; i < keeper->view.gateway_count; i++) {
		const struct cluster_gateway *at = &keeper->view.gateways[i];

		if (at->alive && !at->leaving && (!but || strcmp(at->name, but) != 0) &&
			(!found || count_of(keeper, at->name) < count_of(keeper, found)))
			found = at->name;
	}
	return found;
}

/* ---- A store's steps. ---- */

/* Writes the new entry, and takes it into the view. The name is renewed after the view was read: a
 * gateway that goes on after a stop changes nothing when another has its name. */
static bool step(struct keeper *keeper, struct cluster_store next)
{
	struct cluster_store *store = &keeper->view.stores[next.number];
	int ret;

	if (gw_live(keeper->gateway))
		return false; /* the pulse logs it */
	ret = cluster_store_change(keeper->gateway->cluster, store, &next);
	if (ret == -ECANCELED)
		return false; /* somebody else was faster: the next look shows what he did */
	if (ret) {
		log_warn("gateway", "the map's entry of store %u cannot be changed: %s",
			next.number, strerror(-ret));
		return false;
	}
	*store = next;
	return true;
}

static void take(struct keeper *keeper, const struct cluster_store *store)
{
	struct cluster_store next = *store;

	next.state = CLUSTER_OPENING;
	next.pinned = false;
	next.next[0] = next.http[0] = next.rdma[0] = '\0';
	snprintf(next.owner, sizeof(next.owner), "%s", keeper->gateway->name);
	if (store->owner[0])
		log_warn("gateway", "gateway %s, which had store %u, does not live any more",
			store->owner, store->number);
	if (step(keeper, next))
		gw_child_start(keeper->gateway, store->number);
}

static void other_step(struct keeper *keeper, const struct cluster_store *store)
{
	struct gateway *gateway = keeper->gateway;
	struct gw_child *child = &gateway->children[store->number];
	const char *best;

	if (child->pid) {
		if (!child->ending)
			log_warn("gateway", "store %u is another gateway's now: its process ends",
				store->number);
		gw_child_end(child);
		return;
	}
	if (atomic_load(&gateway->leaving) ||
		(store->state != CLUSTER_FREE && living(keeper, store->owner)))
		return;
	best = least(keeper, NULL);
	if (best && strcmp(best, gateway->name) == 0)
		take(keeper, store);
}

/* Whether the entry's address is that of this gateway's process, and the process goes on. */
static bool serves(const struct gw_child *child, const struct cluster_store *store)
{
	return child->pid && child->ready && !child->ending &&
	       strcmp(child->http, store->http) == 0 && strcmp(child->rdma, store->rdma) == 0;
}

static void serving_step(struct keeper *keeper, struct cluster_store next)
{
	struct gateway *gateway = keeper->gateway;
	const char *best = NULL;

	if (!serves(&gateway->children[next.number], &next)) {
		/* It has ended by itself; or another gateway had this name, was stopped between its
		 * renewal and its change, and published its own process. */
		next.state = CLUSTER_OPENING;
		next.http[0] = next.rdma[0] = '\0';
	} else if (atomic_load(&gateway->leaving)) {
		best = least(keeper, gateway->name);
		snprintf(next.next, sizeof(next.next), "%s", best ? best : "");
		next.pinned = false;
		next.state = CLUSTER_LEAVING;
	} else if (next.next[0] && strcmp(next.next, gateway->name) != 0 &&
		   accepts(keeper, next.next)) {
		next.state = CLUSTER_LEAVING;
	} else if (next.next[0]) {
		next.next[0] = '\0';
		next.pinned = false;
	} else {
		return;
	}
	step(keeper, next);
}

static void leaving_step(struct keeper *keeper, struct cluster_store next)
{
	struct gw_child *child = &keeper->gateway->children[next.number];
	bool to = next.next[0] && accepts(keeper, next.next);

	/* Every gateway has been told one tick ago at least, and sends it nothing new. */
	gw_child_end(child);
	if (child->pid)
		return;
	snprintf(next.owner, sizeof(next.owner), "%s", to ? next.next : "");
	next.state = to ? CLUSTER_OPENING : CLUSTER_FREE;
	next.next[0] = next.http[0] = next.rdma[0] = '\0';
	if (step(keeper, next))
		log_info(
			"gateway", "store %u is %s's now", next.number, to ? next.owner : "nobody");
}

static void own_step(struct keeper *keeper, const struct cluster_store *store)
{
	struct gateway *gateway = keeper->gateway;
	struct gw_child *child = &gateway->children[store->number];
	struct cluster_store next = *store;

	switch (store->state) {
	case CLUSTER_OPENING:
		if (atomic_load(&gateway->leaving)) {
			next.state = CLUSTER_LEAVING;
			step(keeper, next);
		} else if (child->ready && !child->ending) {
			next.state = CLUSTER_SERVING;
			memcpy(next.http, child->http, sizeof(next.http));
			memcpy(next.rdma, child->rdma, sizeof(next.rdma));
			if (step(keeper, next))
				log_info(
					"gateway", "store %u serves at %s", next.number, next.http);
		} else if (child->pid && child->ending) {
			gw_child_end(child);
		} else if (!child->pid && clock_now_ns() >= child->wait_until_ns &&
			   !gw_live(gateway)) {
			/* The name is renewed first, as before a change: another gateway that has
			 * it opens the store. */
			gw_child_start(gateway, store->number);
		}
		break;
	case CLUSTER_SERVING:
		serving_step(keeper, next);
		break;
	case CLUSTER_LEAVING:
		leaving_step(keeper, next);
		break;
	case CLUSTER_FREE:
		break;
	}
}

/* Gives one store to a gateway that has at least two fewer. Only in peace, one at a time. */
static void spread(struct keeper *keeper)
{
	const char *own = keeper->gateway->name, *best = least(keeper, NULL);
	uint32_t mine = count_of(keeper, own);
	struct cluster_store next = {.state = CLUSTER_FREE};

	if (!best || mine < count_of(keeper, best) + 2)
		return;
	for (uint32_t i = 0; i < keeper->view.store_count; i++) {
		const struct cluster_store *store = &keeper->view.stores[i];

		if (store->state != CLUSTER_SERVING || store->next[0])
			return;
		if (!store->pinned && strcmp(store->owner, own) == 0)
			next = *store;
	}
	/* Of several that have as many, one begins. */
	for (uint32_t i = 0; i < keeper->view.gateway_count; i++) {
		const char *name = keeper->view.gateways[i].name;
		uint32_t count = count_of(keeper, name);

		if (count > mine || (count == mine && strcmp(name, own) < 0))
			return;
	}
	if (next.state != CLUSTER_SERVING)
		return;
	snprintf(next.next, sizeof(next.next), "%s", best);
	step(keeper, next);
}

/* ---- Room. ---- */

static void room_look(struct keeper *keeper)
{
	struct gw_routes *routes = &keeper->gateway->routes;
	struct cluster *cluster = keeper->gateway->cluster;
	struct cluster_room rooms[CLUSTER_STORES_MAX];

	for (uint32_t i = 0; i < keeper->view.store_count; i++) {
		uint64_t bytes = 0;

		if (cluster_store_bytes(cluster, i, &bytes))
			bytes = 0;
		atomic_store(&routes->bytes[i], bytes);
	}
	if (cluster_rooms(cluster, rooms) == 0)
		gw_rooms_set(routes, &keeper->view, rooms);
}

/* ---- The thread. ---- */

int gw_live(struct gateway *gateway)
{
	/* A renewal of the pulse that began before one of the keeper does not end after it. */
	static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
	const struct config *config = gateway->config;
	struct cluster_gateway self = {.admin = ""};
	int ret;

	pthread_mutex_lock(&turn);
	self.leaving = atomic_load(&gateway->leaving);
	memcpy(self.name, gateway->name, sizeof(self.name));
	slice_copy_str(slice_str(config->admin.address), self.admin, sizeof(self.admin));
	ret = cluster_live(gateway->cluster, &self, (uint32_t)config->storage.rados.lease_s);
	/* Another error leaves open whose the name is. */
	if (!ret || ret == -EBUSY)
		atomic_store(&gateway->displaced, ret == -EBUSY);
	pthread_mutex_unlock(&turn);
	return ret;
}

/* A thread of its own: the keeper may wait for gateways that have died. */
void *gw_pulse_main(void *arg)
{
	struct gateway *gateway = arg;
	int told = 0;

	do {
		int ret = gw_live(gateway);

		if (ret && ret != told)
			log_error("gateway", "it cannot say that it lives: %s",
				ret == -EBUSY ? "another gateway has its name (cluster.gateway), "
						"and so its stores: their processes end here"
					      : strerror(-ret));
		told = ret;
	} while (ticker_sleep(&gateway->pulse, GW_TICK_NS / NS_PER_MS));
	cluster_leave(gateway->cluster, gateway->name);
	return NULL;
}

static int look(struct keeper *keeper)
{
	struct gateway *gateway = keeper->gateway;
	int ret = cluster_watch_check(gateway->cluster);

	if (!ret)
		ret = cluster_view(gateway->cluster, &keeper->view);
	if (!ret) {
		gw_routes_set(gateway, &keeper->view);
		atomic_store(&gateway->heard_ns, clock_now_ns());
	} else if (ret != keeper->told) {
		log_error("gateway", "the cluster's map cannot be read: %s", strerror(-ret));
	}
	keeper->told = ret;
	return ret;
}

/* Another gateway has the name: a step here would be one against it, and its processes wait for the
 * volumes of these. */
static void displaced_tick(struct gateway *gateway)
{
	for (uint32_t i = 0; i < CLUSTER_STORES_MAX; i++)
		gw_child_end(&gateway->children[i]);
}

static void tick(struct keeper *keeper)
{
	struct gateway *gateway = keeper->gateway;
	int ret;

	for (uint32_t i = 0; i < CLUSTER_STORES_MAX; i++)
		gw_child_look(gateway, i);
	gw_admins_set(gateway);
	ret = look(keeper);
	if (atomic_load(&gateway->displaced)) {
		displaced_tick(gateway);
		return;
	}
	if (ret)
		return;
	for (uint32_t i = 0; i < keeper->view.store_count; i++) {
		const struct cluster_store *store = &keeper->view.stores[i];

		if (store->state != CLUSTER_FREE && strcmp(store->owner, gateway->name) == 0)
			own_step(keeper, store);
		else
			other_step(keeper, store);
	}
	if (gateway->config->cluster.spread && !atomic_load(&gateway->leaving))
		spread(keeper);
	if (keeper->ticks++ % ROOM_TICKS == 0)
		room_look(keeper);
}

static void sleep_some(struct gateway *gateway)
{
	struct pollfd fds[CLUSTER_STORES_MAX + 1] = {{.fd = gateway->wake_fd, .events = POLLIN}};
	nfds_t count = 1;
	eventfd_t value;

	for (uint32_t i = 0; i < CLUSTER_STORES_MAX; i++)
		if (gateway->children[i].pid)
			fds[count++] =
				(struct pollfd){.fd = gateway->children[i].out, .events = POLLIN};
	(void)poll(fds, count, (int)(GW_TICK_NS / NS_PER_MS));
	(void)eventfd_read(gateway->wake_fd, &value);
}

static bool has_children(const struct gateway *gateway)
{
	for (uint32_t i = 0; i < CLUSTER_STORES_MAX; i++)
		if (gateway->children[i].pid)
			return true;
	return false;
}

/* Waits until no process is left; those that do not end are killed. */
static void end_children(struct gateway *gateway)
{
	while (has_children(gateway)) {
		for (uint32_t i = 0; i < CLUSTER_STORES_MAX; i++) {
			gw_child_end(&gateway->children[i]);
			gw_child_look(gateway, i);
		}
		sleep_some(gateway);
	}
}

void *gw_keeper_main(void *arg)
{
	static struct keeper keeper;
	struct gateway *gateway = arg;
	uint64_t deadline_ns = DEADLINE_NONE;

	keeper.gateway = gateway;
	for (;;) {
		tick(&keeper);
		if (atomic_load(&gateway->leaving)) {
			if (deadline_ns == DEADLINE_NONE)
				deadline_ns = clock_now_ns() + LEAVE_NS_MAX;
			if (!owns_any(&keeper) || atomic_load(&gateway->displaced) ||
				clock_now_ns() > deadline_ns)
				break;
		}
		sleep_some(gateway);
	}
	end_children(gateway);
	ticker_stop(&gateway->pulse);
	return NULL;
}
