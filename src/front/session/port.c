/* front/session/port.c: the part that the native fronts of all reactors share: the device's
 * registrations of the region, the listener, and connection events. The first front's reactor takes
 * the events. A connection goes to the front with the fewest sessions; later events of the
 * connection are sent there as messages. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "front/session/native_priv.h"

#define NO_RECEIVES "the sessions' receives use their whole share of memory.bytes"

DEFINE_COUNTER_FULL(sessions_full, "native_sessions");
DEFINE_COUNTER_FULL(receives_full, "native_receives");

/* An event on its way to a front's reactor. */
struct note {
	struct reactor_msg msg;
	struct front_native *front;
	bool crowded; /* another session must yield its place */
	uint64_t session_id;
	struct rp_cm_event event;
};

/* ---- On the front's own reactor. ---- */

static void reject(const struct rp_cm_event *event, const char *why)
{
	log_limited(LOG_WARN, "rdma", "%s: connection rejected: %s", event->peer, why);
	rp_reject(event->request, NULL, 0);
}

static void reject_full(const struct rp_cm_event *event)
{
	counter_add(&sessions_full, 1);
	reject(event, "the maximum number of sessions is reached");
}

static void place_give(struct front_native *front)
{
	front->session_count--;
	front->unproven_count--;
}

static void take_request(struct front_native *front, const struct rp_cm_event *event, bool crowded)
{
	int ret;

	if (front->drained || (front->opts.draining && *front->opts.draining)) {
		place_give(front);
		reject(event, "the server is draining");
		return;
	}
	if (crowded && !native_session_yield(front)) {
		place_give(front);
		reject_full(event);
		return;
	}
	ret = native_session_accept(front, event);
	/* The old session's frames are free after the device releases them; the next connection
	 * gets them. */
	if (ret == -ENOBUFS) {
		counter_add(&receives_full, 1);
		native_session_yield(front);
	}
	if (ret)
		reject(event, ret == -ENOBUFS ? NO_RECEIVES : strerror(-ret));
}

static void take_end(struct front_native *front, uint64_t session_id)
{
	LIST_FOR_EACH (link, &front->sessions) {
		struct native_session *session = CONTAINER_OF(link, struct native_session, link);

		if (session->id != session_id)
			continue;
		native_session_gone(session);
		return;
	}
}

static void take_fatal(struct front_native *front)
{
	LIST_FOR_EACH_SAFE (link, &front->sessions)
		native_session_fail(
			CONTAINER_OF(link, struct native_session, link), "its device failed");
}

static void note_take(struct note *note)
{
	if (note->event.type == RP_CM_CONNECT_REQUEST)
		take_request(note->front, &note->event, note->crowded);
	else if (note->event.type == RP_CM_DEVICE_FATAL)
		take_fatal(note->front);
	else
		take_end(note->front, note->session_id);
}

static void note_arrive(struct reactor_msg *msg)
{
	struct note *note = CONTAINER_OF(msg, struct note, msg);

	note_take(note);
	free(note);
}

bool native_session_end_at(struct front_native *front, uint64_t session_id)
{
	struct note *note = malloc(sizeof(*note));

	if (!note)
		return false;
	*note = (struct note){.msg.fn = note_arrive,
		.front = front,
		.session_id = session_id,
		.event.type = RP_CM_DISCONNECTED};
	reactor_post(front->reactor, &note->msg);
	return true;
}

/* ---- On the first front's. ---- */

/* False: out of memory. */
static bool note_hand(const struct native_port *port, const struct note *note)
{
	struct note *copy;

	if (note->front == port->fronts[0]) {
		struct note here = *note;

		note_take(&here);
		return true;
	}
	copy = malloc(sizeof(*copy));
	if (!copy)
		return false;
	*copy = *note;
	copy->msg.fn = note_arrive;
	reactor_post(note->front->reactor, &copy->msg);
	return true;
}

uint32_t native_places_taken(const struct native_places *places)
{
	uint32_t total = 0;

	for (uint32_t i = 0; i < places->port_count; i++)
		for (uint32_t j = 0; j < places->ports[i]->front_count; j++)
			total += places->ports[i]->fronts[j]->session_count;
	return total;
}

/* All places are taken: finds the front with the most unproven sessions, of which one must yield.
 * NULL: none, or the maximum number is already yielding. */
static struct front_native *place_crowded(const struct native_port *port)
{
	struct front_native *best = NULL;

	for (uint32_t i = 0; i < port->front_count; i++) {
		struct front_native *front = port->fronts[i];

		if (front->unproven_count > (best ? best->unproven_count : 0) &&
			front->session_count < front->sessions_max + NATIVE_YIELDING_MAX)
			best = front;
	}
	return best;
}

/* Chooses the front with the fewest sessions and counts a place there; NULL: the maximum is
 * reached. A silent connection does not keep others out: when no place is free, the oldest unproven
 * session must yield. */
static struct front_native *place_take(struct native_port *port, bool *ret_crowded)
{
	struct front_native *best = NULL;
	uint32_t total = native_places_taken(port->places);

	for (uint32_t i = 0; i < port->front_count; i++) {
		struct front_native *front = port->fronts[i];

		if (front->session_count < front->sessions_max &&
			(!best || front->session_count < best->session_count))
			best = front;
	}
	*ret_crowded = !best || total >= best->opts.sessions_max;
	if (*ret_crowded)
		best = place_crowded(port);
	if (best) {
		best->session_count++;
		best->unproven_count++;
	}
	return best;
}

/* Half of the places is for clients that have no session yet. */
static bool is_dispensable(const struct native_port *port, const struct capsule_private *hello)
{
	return hello->flags & CAPSULE_PRIVATE_FURTHER &&
	       native_places_taken(port->places) >= port->fronts[0]->opts.sessions_max / 2;
}

static void on_connect_request(struct native_port *port, const struct rp_cm_event *event)
{
	struct note note = {.event = *event};
	struct capsule_private hello;

	memcpy(&hello, event->private_data, sizeof(hello));
	if (event->private_len < sizeof(hello) || hello.magic != CAPSULE_MAGIC) {
		reject(event, "it speaks another protocol");
		return;
	}
	if (!port->listener_count) {
		reject(event, "the server is draining");
		return;
	}
	if (is_dispensable(port, &hello)) {
		log_debug("rdma",
			"%s: a further session is not accepted: half of the places are taken",
			event->peer);
		rp_reject(event->request, NULL, 0);
		return;
	}
	note.front = place_take(port, &note.crowded);
	if (!note.front) {
		reject_full(event);
	} else if (!note_hand(port, &note)) {
		place_give(note.front);
		reject(event, strerror(ENOMEM));
	}
}

static void on_fatal(struct native_port *port, const struct rp_cm_event *event)
{
	struct note note = {.event = *event};

	log_error("rdma", "the device %s failed", port->fronts[0]->attr.name);
	for (uint32_t i = 0; i < port->front_count; i++) {
		note.front = port->fronts[i];
		if (!note_hand(port, &note))
			log_error("rdma", "out of memory: sessions on core %u end late", i);
	}
}

/* Reads the next event, and the front and id of the session that it names, if any. The session may
 * end at any time on its own reactor, and another may get its memory. */
static int event_next(struct native_port *port, struct note *ret_note)
{
	const struct native_session *session;
	int ret;

	*ret_note = (struct note){.front = NULL};
	pthread_mutex_lock(&port->lock);
	ret = rp_cm_poll(port->fronts[0]->opts.device, &ret_note->event);
	session = ret > 0 && ret_note->event.qp ? rp_qp_context(ret_note->event.qp) : NULL;
	if (session) {
		ret_note->front = session->front;
		ret_note->session_id = session->id;
	}
	pthread_mutex_unlock(&port->lock);
	return ret;
}

static bool event_take(void *arg)
{
	struct native_port *port = arg;
	struct note note;
	int ret = event_next(port, &note);

	if (ret < 0)
		log_error("rdma", "connection events: %s", strerror(-ret));
	if (ret <= 0)
		return false;
	if (note.event.type == RP_CM_CONNECT_REQUEST)
		on_connect_request(port, &note.event);
	else if (note.event.type == RP_CM_DEVICE_FATAL)
		on_fatal(port, &note.event);
	else if (note.front && note.event.type != RP_CM_ESTABLISHED && !note_hand(port, &note))
		/* Its flushed receives also report the end. */
		log_warn("rdma", "%s: out of memory for an event", note.event.peer);
	return true;
}

int front_native_listen(struct front_native *first, const char *address, uint16_t port_number)
{
	struct native_port *port = first->port;
	struct rp_listener **listener = &port->listeners[port->listener_count];
	int ret;

	CHECK(port->fronts[0] == first);
	if (port->listener_count == FRONT_ADDRESSES_MAX)
		return -ENOSPC;
	ret = rp_listen(first->opts.device, address, port_number, first, listener);
	if (ret)
		return ret;
	if (!port->listener_count++)
		rp_events_begin(&port->events);
	log_info("rdma", "listening on %s:%u, device %s (%s), %u event loop%s", address,
		rp_listener_port(*listener), first->attr.name, first->attr.transport,
		port->front_count, port->front_count == 1 ? "" : "s");
	return 0;
}

int front_native_announce(struct front_native *first, const char *address, uint16_t port)
{
	struct native_places *places = first->port->places;
	struct capsule_address told = {.ip = {[10] = 0xff, [11] = 0xff}, .port = port};

	if (!port ||
		(inet_pton(AF_INET, address, told.ip + 12) != 1 &&
			inet_pton(AF_INET6, address, told.ip) != 1) ||
		!capsule_address_is_host(&told))
		return -EINVAL;
	if (places->address_count == CAPSULE_ADDRESSES_MAX)
		return -ENOSPC;
	places->addresses[places->address_count++] = told;
	return 0;
}

uint16_t front_native_port(const struct front_native *front)
{
	const struct native_port *port = front->port;

	return port->listener_count ? rp_listener_port(port->listeners[0]) : 0;
}

static void listeners_close(struct native_port *port)
{
	while (port->listener_count)
		rp_listener_close(port->listeners[--port->listener_count]);
}

void native_port_close(struct front_native *front)
{
	struct native_port *port = front->port;

	if (front == port->fronts[0])
		listeners_close(port);
}

void front_native_unlisten(struct front_native *first)
{
	struct native_port *port = first->port;

	CHECK(port->fronts[0] == first);
	native_port_close(first);
	rp_events_end(&port->events);
}

/* ---- Registrations. ---- */

static int places_open(struct region *region, struct native_places **ret_places)
{
	struct native_places *places = calloc(1, sizeof(*places));
	struct region_usage usage;
	int ret;

	if (!places)
		return -ENOMEM;
	ret = native_once_open(&places->once);
	if (ret) {
		free(places);
		return ret;
	}
	region_usage(region, &usage);
	places->recv_frames_max = (uint32_t)(usage.frames_total / NATIVE_RECV_PARTS);
	*ret_places = places;
	return 0;
}

static int places_join(struct native_port *port, const struct front_native *front)
{
	struct front_native *beside = front->opts.beside;
	struct native_places *places;
	int ret;

	if (beside && beside->port->places->port_count == FRONT_DEVICES_MAX)
		return -ENOSPC;
	ret = beside ? 0 : places_open(front->region, &places);
	if (ret)
		return ret;
	if (beside)
		places = beside->port->places;
	port->places = places;
	places->ports[places->port_count++] = port;
	native_once_join(places->once, front->reactor);
	return 0;
}

static void places_leave(struct native_port *port)
{
	struct native_places *places = port->places;
	uint32_t at = 0;

	if (!places)
		return;
	while (places->ports[at] != port)
		at++;
	places->ports[at] = places->ports[--places->port_count];
	if (places->port_count)
		return;
	native_once_close(places->once);
	free(places);
}

int native_port_join(struct front_native *front, struct front_native *first)
{
	struct native_port *port = first ? first->port : calloc(1, sizeof(*port));
	int ret;

	if (!port)
		return -ENOMEM;
	CHECK(port->front_count < LIMIT_CORES_MAX);
	front->port = port;
	port->fronts[port->front_count++] = front;
	if (first) {
		native_once_join(port->places->once, front->reactor);
		return 0;
	}
	ret = pthread_mutex_init(&port->lock, NULL);
	CHECK(ret == 0);
	port->events = (struct rp_events){.reactor = front->reactor,
		.device = front->opts.device,
		.take = event_take,
		.arg = port};
	ret = places_join(port, front);
	if (!ret)
		ret = rp_pd_open(front->opts.device, &port->pd);
	/* The device may read and write it for us; peers cannot address it. */
	if (!ret)
		ret = rp_arenas_open(&port->arenas, front->opts.core->ring, port->pd,
			front->attr.name, RP_ACCESS_LOCAL_WRITE);
	return ret;
}

void native_port_leave(struct front_native *front)
{
	struct native_port *port = front->port;

	if (!port || --port->front_count)
		return;
	CHECK(port->fronts[0] == front);
	listeners_close(port);
	places_leave(port);
	rp_arenas_close(&port->arenas);
	rp_pd_close(port->pd);
	pthread_mutex_destroy(&port->lock);
	free(port);
}
