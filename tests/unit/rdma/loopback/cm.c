/* tests/unit/rdma/loopback/cm.c: the loopback provider's connections.
 *
 * A request belongs to its event, and then to the application that got the event, which accepts or
 * rejects it. The connecting queue pair points to the request until it is answered or the queue
 * pair has given up. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>

#include "tests/unit/rdma/loopback/loopback.h"

#define PORT_FIRST 1024u

struct loop_listener {
	struct rp_listener base;
	struct list link;
	struct loop_device *device;
	char address[64];
};

struct loop_request {
	struct rp_conn_request base;
	struct loop_qp *qp; /* that connects; NULL: it has given up */
	uint64_t deadline_ns;
};

struct loop_event {
	struct list link;
	struct rp_cm_event event;
};

static struct list listeners = {&listeners, &listeners};
static struct list joiners = {&joiners, &joiners}; /* struct loop_qp.joining_link */

/* ---- Events. ---- */

/* Locked. The descriptor is readable at once when something waits, or at the first deadline. */
static void timer_update(struct loop_device *device)
{
	uint64_t at_ns = list_empty(&device->events) ? DEADLINE_NONE : 1;
	struct itimerspec when = {0};

	LIST_FOR_EACH (link, &device->qps) {
		const struct loop_qp *qp = CONTAINER_OF(link, struct loop_qp, link);

		if (qp->request)
			at_ns = MIN(at_ns, qp->request->deadline_ns);
	}
	if (at_ns != DEADLINE_NONE) {
		when.it_value.tv_sec = (time_t)(at_ns / NS_PER_S);
		when.it_value.tv_nsec = (long)(at_ns % NS_PER_S);
	}
	rp_timer_fd_set(device->cm_fd, &when);
}

/* Locked. Without memory the event is lost, and the log says so. */
static void event_push(
	struct loop_device *device, const struct rp_cm_event *event, struct slice private_data)
{
	struct loop_event *entry = calloc(1, sizeof(*entry));

	if (!entry) {
		log_error("rdma", "loopback: no memory for a connection event");
		return;
	}
	entry->event = *event;
	entry->event.private_len = (uint32_t)private_data.len;
	if (private_data.len)
		memcpy(entry->event.private_data, private_data.data, private_data.len);
	list_push_back(&device->events, &entry->link);
	timer_update(device);
}

/* Locked. */
static void tell(struct loop_qp *qp, enum rp_cm_type type, struct slice private_data)
{
	const struct rp_cm_event event = {.type = type, .qp = &qp->base};

	event_push(qp->device, &event, private_data);
}

/* Locked. Drops a queue pair's undelivered events. */
static void events_forget(struct loop_qp *qp)
{
	LIST_FOR_EACH_SAFE (link, &qp->device->events) {
		struct loop_event *entry = CONTAINER_OF(link, struct loop_event, link);

		if (entry->event.qp != &qp->base)
			continue;
		list_remove(&entry->link);
		free(entry);
	}
}

/* Locked. The queue pair no longer waits for its request. */
static void request_leave(struct loop_qp *qp)
{
	if (qp->request)
		qp->request->qp = NULL;
	qp->request = NULL;
}

/* Locked. */
static void requests_expire(struct loop_device *device)
{
	uint64_t now_ns = clock_now_ns();

	LIST_FOR_EACH (link, &device->qps) {
		struct loop_qp *qp = CONTAINER_OF(link, struct loop_qp, link);

		if (!qp->request || qp->request->deadline_ns > now_ns)
			continue;
		request_leave(qp);
		event_push(device,
			&(const struct rp_cm_event){
				.type = RP_CM_UNREACHABLE, .qp = &qp->base, .late = true},
			SLICE_NONE);
	}
}

int loop_cm_poll(struct rp_device *base, struct rp_cm_event *ret_event)
{
	struct loop_device *device = CONTAINER_OF(base, struct loop_device, base);
	struct list *link;

	pthread_mutex_lock(&loop_lock);
	requests_expire(device);
	link = list_pop(&device->events);
	if (link) {
		struct loop_event *entry = CONTAINER_OF(link, struct loop_event, link);

		*ret_event = entry->event;
		free(entry);
	}
	timer_update(device);
	pthread_mutex_unlock(&loop_lock);
	return link ? 1 : 0;
}

int loop_cm_fd(const struct rp_device *base)
{
	return CONTAINER_OF(base, const struct loop_device, base)->cm_fd;
}

/* ---- Listening. ---- */

/* Locked. */
static struct loop_listener *listener_find(const char *address, uint16_t port)
{
	LIST_FOR_EACH (link, &listeners) {
		struct loop_listener *listener = CONTAINER_OF(link, struct loop_listener, link);

		if (listener->base.port == port && (!address[0] || !listener->address[0] ||
							   !strcmp(listener->address, address)))
			return listener;
	}
	return NULL;
}

/* Locked. 0: none is free. */
static uint16_t port_find(const char *address)
{
	for (uint32_t port = PORT_FIRST; port <= UINT16_MAX; port++)
		if (!listener_find(address, (uint16_t)port))
			return (uint16_t)port;
	return 0;
}

int loop_listen(struct rp_device *base, const char *address, uint16_t port,
	struct rp_listener **ret_listener)
{
	struct loop_listener *listener = calloc(1, sizeof(*listener));
	int err = 0;

	if (!listener)
		return -ENOMEM;
	if (!strcmp(address, "0.0.0.0"))
		address = "";
	listener->base.ops = &loop_ops;
	listener->device = CONTAINER_OF(base, struct loop_device, base);
	snprintf(listener->address, sizeof(listener->address), "%s", address);
	pthread_mutex_lock(&loop_lock);
	listener->base.port = port ? port : port_find(address);
	if (!listener->base.port || (port && listener_find(address, port))) {
		err = -EADDRINUSE;
	} else {
		list_push_back(&listeners, &listener->link);
		listener->device->open_objects++;
		*ret_listener = &listener->base;
	}
	pthread_mutex_unlock(&loop_lock);
	if (err)
		free(listener);
	return err;
}

/* Locked. Refuses requests that the application has not received. */
static void untold_refuse(struct loop_listener *listener)
{
	LIST_FOR_EACH_SAFE (link, &listener->device->events) {
		struct loop_event *entry = CONTAINER_OF(link, struct loop_event, link);
		struct loop_request *request;

		if (entry->event.listener != &listener->base)
			continue;
		request = CONTAINER_OF(entry->event.request, struct loop_request, base);
		list_remove(&entry->link);
		free(entry);
		if (request->qp) {
			struct loop_qp *qp = request->qp;

			request_leave(qp);
			tell(qp, RP_CM_REJECTED, SLICE_NONE);
		}
		free(request);
	}
}

void loop_listener_close(struct rp_listener *base)
{
	struct loop_listener *listener = CONTAINER_OF(base, struct loop_listener, base);

	pthread_mutex_lock(&loop_lock);
	list_remove(&listener->link);
	untold_refuse(listener);
	timer_update(listener->device);
	listener->device->open_objects--;
	pthread_mutex_unlock(&loop_lock);
	free(listener);
}

/* ---- Connecting. ---- */

/* Locked. Without a listener the result is an event, as on a network. */
static int connect_locked(struct loop_qp *qp, struct loop_listener *listener,
	struct slice private_data, uint64_t deadline_ns)
{
	struct rp_cm_event event = {.type = RP_CM_CONNECT_REQUEST};
	struct loop_request *request;

	if (qp->state != RP_QPS_INIT || qp->request)
		return -EISCONN;
	if (!listener) {
		tell(qp, RP_CM_UNREACHABLE, SLICE_NONE);
		return 0;
	}
	request = calloc(1, sizeof(*request));
	if (!request)
		return -ENOMEM;
	*request =
		(struct loop_request){.base.ops = &loop_ops, .qp = qp, .deadline_ns = deadline_ns};
	qp->request = request;
	event.listener = &listener->base;
	event.request = &request->base;
	snprintf(event.peer, sizeof(event.peer), "loopback:%u", qp->base.num);
	event_push(listener->device, &event, private_data);
	timer_update(qp->device);
	return 0;
}

int loop_connect(struct rp_qp *base, const char *address, uint16_t port, struct slice private_data,
	uint64_t deadline_ns)
{
	struct loop_qp *qp = CONTAINER_OF(base, struct loop_qp, base);
	int err;

	pthread_mutex_lock(&loop_lock);
	err = connect_locked(qp, listener_find(address, port), private_data, deadline_ns);
	pthread_mutex_unlock(&loop_lock);
	return err;
}

/* Locked. */
static void pair_up(struct loop_qp *a, struct loop_qp *b)
{
	a->peer = b;
	b->peer = a;
	a->state = b->state = RP_QPS_RTS;
}

int loop_accept(struct rp_conn_request *base, struct rp_qp *qp_base, struct slice private_data)
{
	struct loop_request *request = CONTAINER_OF(base, struct loop_request, base);
	struct loop_qp *qp = CONTAINER_OF(qp_base, struct loop_qp, base), *asked;
	int err = 0;

	pthread_mutex_lock(&loop_lock);
	asked = request->qp;
	if (!asked)
		err = -ECONNRESET;
	else if (qp->state != RP_QPS_INIT || qp->request)
		err = -EINVAL;
	if (!err) {
		request_leave(asked);
		pair_up(asked, qp);
		tell(asked, RP_CM_ESTABLISHED, private_data);
		tell(qp, RP_CM_ESTABLISHED, SLICE_NONE);
		free(request);
	}
	pthread_mutex_unlock(&loop_lock);
	return err;
}

void loop_reject(struct rp_conn_request *base, struct slice private_data)
{
	struct loop_request *request = CONTAINER_OF(base, struct loop_request, base);
	struct loop_qp *asked;

	pthread_mutex_lock(&loop_lock);
	asked = request->qp;
	if (asked) {
		request_leave(asked);
		tell(asked, RP_CM_REJECTED, private_data);
	}
	free(request);
	pthread_mutex_unlock(&loop_lock);
}

/* Locked. Ends a connection; the peer gets an event, and this end if tell_us. */
static void cut(struct loop_qp *qp, bool tell_us)
{
	struct loop_qp *peer = qp->peer;

	loop_qp_fail(qp);
	if (!peer)
		return;
	loop_qp_fail(peer);
	qp->peer = peer->peer = NULL;
	if (qp->joined)
		return;
	tell(peer, RP_CM_DISCONNECTED, SLICE_NONE);
	if (tell_us)
		tell(qp, RP_CM_DISCONNECTED, SLICE_NONE);
}

void loop_disconnect(struct rp_qp *base)
{
	pthread_mutex_lock(&loop_lock);
	cut(CONTAINER_OF(base, struct loop_qp, base), true);
	pthread_mutex_unlock(&loop_lock);
}

void loop_cm_forget(struct loop_qp *qp)
{
	cut(qp, false);
	request_leave(qp);
	list_remove(&qp->joining_link);
	events_forget(qp);
	timer_update(qp->device);
}

void loop_cm_fini(struct loop_device *device)
{
	struct list *link;

	while ((link = list_pop(&device->events)) != NULL) {
		struct loop_event *entry = CONTAINER_OF(link, struct loop_event, link);

		CHECK(!entry->event.request);
		free(entry);
	}
}

/* ---- Connecting without a connection manager. ---- */

int loop_qp_address(struct rp_qp *base, struct rp_address *ret_address)
{
	*ret_address = (struct rp_address){
		.has_gid = true, .gid = "loopback", .qpn = base->num, .mtu = LOOP_MTU};
	return 0;
}

int loop_qp_join(struct rp_qp *base, const struct rp_address *peer, bool first)
{
	struct loop_qp *qp = CONTAINER_OF(base, struct loop_qp, base), *found = NULL;
	int err = 0;

	(void)first;
	pthread_mutex_lock(&loop_lock);
	if (qp->state != RP_QPS_INIT || qp->joined)
		err = -EISCONN;
	LIST_FOR_EACH (link, &joiners) {
		struct loop_qp *other = CONTAINER_OF(link, struct loop_qp, joining_link);

		if (other->base.num == peer->qpn && other->joining == base->num)
			found = other;
	}
	if (!err && found) {
		list_remove(&found->joining_link);
		pair_up(qp, found);
	} else if (!err) {
		list_push_back(&joiners, &qp->joining_link);
	}
	if (!err) {
		qp->joined = true;
		qp->joining = peer->qpn;
	}
	pthread_mutex_unlock(&loop_lock);
	return err;
}
