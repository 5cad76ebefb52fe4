/* rdma/simulated/cm_event.c: the events that the connection manager has for the application. They
 * wait here, in order, until they are polled or their object closes. All calls are locked. */
#include <errno.h>
#include <stdlib.h>

#include "rdma/simulated/simulated_priv.h"

#define EVENTS_KEPT 32u /* are delivered even without memory */

struct sim_event {
	struct list link;
	struct rp_cm_event event;
};

void sim_event_push(struct sim_device *device, const struct rp_cm_event *event)
{
	struct list *spare = list_pop(&device->events_spare);
	struct sim_event *entry =
		spare ? CONTAINER_OF(spare, struct sim_event, link) : malloc(sizeof(*entry));

	/* Only events beyond the spare ones need memory. */
	CHECK(entry != NULL);
	entry->event = *event;
	list_push_back(&device->events, &entry->link);
	rp_event_fd_set(device->event_fd);
}

/* Takes the entry out of the queue. */
static void consume(struct sim_device *device, struct sim_event *entry)
{
	list_remove(&entry->link);
	list_push_back(&device->events_spare, &entry->link);
	if (list_empty(&device->events))
		rp_event_fd_clear(device->event_fd);
}

bool sim_event_pop(struct sim_device *device, struct rp_cm_event *ret_event)
{
	LIST_FOR_EACH (link, &device->events) {
		struct sim_event *entry = CONTAINER_OF(link, struct sim_event, link);

		*ret_event = entry->event;
		consume(device, entry);
		return true;
	}
	return false;
}

int sim_events_open(struct sim_device *device)
{
	list_init(&device->events);
	list_init(&device->events_spare);
	for (uint32_t i = 0; i < EVENTS_KEPT; i++) {
		struct sim_event *entry = malloc(sizeof(*entry));

		if (!entry)
			return -ENOMEM;
		list_push_back(&device->events_spare, &entry->link);
	}
	return 0;
}

void sim_events_close(struct sim_device *device)
{
	struct rp_cm_event event;
	struct list *link;

	while (sim_event_pop(device, &event))
		log_debug("rdma", "simulated: an event was not consumed");
	while ((link = list_pop(&device->events_spare)) != NULL)
		free(CONTAINER_OF(link, struct sim_event, link));
}

void sim_event_forget_group(struct sim_device *device, const struct rp_group *group)
{
	LIST_FOR_EACH_SAFE (link, &device->events) {
		struct sim_event *entry = CONTAINER_OF(link, struct sim_event, link);

		if (entry->event.group == group)
			consume(device, entry);
	}
}

void sim_event_forget_qp(struct sim_device *device, const struct rp_qp *qp)
{
	LIST_FOR_EACH_SAFE (link, &device->events) {
		struct sim_event *entry = CONTAINER_OF(link, struct sim_event, link);

		if (entry->event.qp == qp)
			consume(device, entry);
	}
}

struct rp_conn_request *sim_event_take_request(
	struct sim_device *device, const struct rp_listener *listener)
{
	LIST_FOR_EACH (link, &device->events) {
		struct sim_event *entry = CONTAINER_OF(link, struct sim_event, link);

		if (entry->event.listener != listener)
			continue;
		consume(device, entry);
		return entry->event.request;
	}
	return NULL;
}
