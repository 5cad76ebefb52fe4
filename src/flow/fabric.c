/* flow/fabric.c: opens an RDMA device for streams, and manages links: listening, connecting, the
 * hello, timeouts, the end. Slow path. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow/datagram_priv.h"

#define TICK_NS	     (250 * NS_PER_MS)
#define GRANT_NS     NS_PER_S /* a grant is sent at least this often */
#define CONNECT_NS   (5 * NS_PER_S)
#define LEAVE_NS     (5 * NS_PER_S)
#define WINDOW_BYTES (16u << 20)
#define CREDITS_MIN  8u
#define FABRIC_CQES  1024u

/* ---- Connection events. ---- */

static void refuse(struct rp_conn_request *request, enum link_reason reason)
{
	const struct link_refusal refusal = {LINK_MAGIC, LINK_VERSION, (uint16_t)reason};

	rp_reject(request, &refusal, sizeof(refusal));
}

static void on_request(struct rp_cm_event *event)
{
	struct flow_listener *listener = rp_listener_context(event->listener);

	if (!listener->accepting || listener->request.request) {
		log_limited(LOG_INFO, "flow", "%s: refused: busy with another stream", event->peer);
		refuse(event->request, LINK_BUSY);
		return;
	}
	listener->request = *event;
	if (listener->waiter)
		fiber_wake(listener->waiter);
}

static void on_established(struct flow_link *link, const struct rp_cm_event *event)
{
	struct link_hello hello;

	if (link->phase != LINK_CONNECTING)
		return;
	snprintf(link->peer, sizeof(link->peer), "%.63s", event->peer);
	link->heard_ns = clock_now_ns();
	if (link->granted == 0 && link->told == 0) { /* we connected, so this is the peer's hello */
		if (link_hello_decode(event->private_data, event->private_len, &hello) ||
			(hello.role == LINK_SENDS) == link->opts.sends) {
			link_fail(link, -EPROTO, "the peer's hello is malformed");
			return;
		}
		if (link->opts.sends && link->opts.unit % hello.unit) {
			link_fail(link, -EPROTO,
				"the peer needs records in larger multiples than this source has");
			return;
		}
		link->granted = hello.credits;
		link->bytes_total = link->opts.sends ? link->opts.bytes_total : hello.bytes_total;
		if (link->opts.sends)
			link->record_bytes = MIN(link->record_bytes, hello.record_bytes);
	}
	link->told = link->posted;
	link->phase = LINK_OPEN;
	link_wake(link);
}

static void on_event(struct flow_fabric *fabric, struct rp_cm_event *event)
{
	struct flow_link *link;

	if (datagram_event(fabric, event))
		return;
	link = event->qp ? rp_qp_context(event->qp) : NULL;
	if (event->type == RP_CM_CONNECT_REQUEST) {
		on_request(event);
	} else if (event->type == RP_CM_DEVICE_FATAL) {
		LIST_FOR_EACH_SAFE (at, &fabric->links)
			link_fail(CONTAINER_OF(at, struct flow_link, link), -ENODEV,
				"the RDMA device failed");
	} else if (!link) {
		return;
	} else if (event->type == RP_CM_ESTABLISHED) {
		on_established(link, event);
	} else if (event->type == RP_CM_REJECTED) {
		link->refused = true;
		link_fail(link,
			link_refusal_is_busy(event->private_data, event->private_len)
				? -EBUSY
				: -ECONNREFUSED,
			event->why ? event->why
				   : link_refusal_text(event->private_data, event->private_len));
	} else if (event->type == RP_CM_UNREACHABLE) {
		link_fail(link, -ECONNREFUSED,
			event->late ? "nobody answered there in time" : "nothing listens there");
	} else {
		link_fail(link, -EPIPE, "the peer is gone");
	}
}

static bool event_take(void *arg)
{
	struct flow_fabric *fabric = arg;
	struct rp_cm_event event;

	if (rp_cm_poll(fabric->device, &event) <= 0)
		return false;
	on_event(fabric, &event);
	return true;
}

/* ---- Silence and reminders. ---- */

static void link_tick(struct flow_link *link, uint64_t now_ns)
{
	uint64_t timeout_ns = link->opts.timeout_ns ? link->opts.timeout_ns : LINK_TIMEOUT_NS;

	if (link->phase != LINK_OPEN || link->error)
		return;
	if (link->opts.sends) {
		link_pump(link);
		if (now_ns > link->heard_ns + timeout_ns)
			link_fail(link, -ETIMEDOUT, "the peer is silent");
		return;
	}
	if (link->note_out.posted) {
		if (now_ns > link->said_ns + timeout_ns)
			link_fail(link, -ETIMEDOUT, "the peer does not answer");
	} else if (now_ns > link->said_ns + GRANT_NS || link->posted != link->told ||
		   link->acknowledged != link->acknowledged_told) {
		link_grant(link);
	}
}

static void tick(struct reactor_timer *timer, void *arg)
{
	struct flow_fabric *fabric = arg;
	uint64_t now_ns = clock_now_ns();

	LIST_FOR_EACH_SAFE (at, &fabric->links)
		link_tick(CONTAINER_OF(at, struct flow_link, link), now_ns);
	reactor_timer_set(fabric->core->reactor, timer, now_ns + TICK_NS);
}

/* ---- The fabric. ---- */

/* Completions that belong to no ring entry, of closed queue pairs: all our work goes through the
 * rings. */
static void stray(void *arg, const struct rp_wc *wc)
{
	(void)arg;
	log_trace("flow", "a stray completion: %s", rp_status_str(wc->status));
}

static uint32_t fabric_poll(void *arg)
{
	struct flow_fabric *fabric = arg;
	uint32_t work = rp_cq_drain(fabric->cq, fabric->core->ring, stray, NULL);

	if (fabric->pump_again) {
		fabric->pump_again = false;
		LIST_FOR_EACH (at, &fabric->links)
			link_pump(CONTAINER_OF(at, struct flow_link, link));
		work++;
	}
	return work;
}

static bool fabric_arm(void *arg)
{
	struct flow_fabric *fabric = arg;

	return !fabric->pump_again && rp_cq_arm(fabric->cq);
}

static void fabric_disarm(void *arg)
{
	rp_cq_disarm(((struct flow_fabric *)arg)->cq);
}

int flow_fabric_open(
	struct flow_core *core, const char *device_name, struct flow_fabric **ret_fabric)
{
	const struct rp_open_opts opts = {.device_name = device_name, .gid_index = -1};
	struct flow_fabric *fabric = calloc(1, sizeof(*fabric));
	int ret;

	if (!fabric)
		return -ENOMEM;
	fabric->core = core;
	list_init(&fabric->links);
	list_init(&fabric->listeners);
	list_init(&fabric->datagrams);
	ret = rp_open(&opts, &fabric->device);
	if (!ret) {
		rp_device_attr(fabric->device, &fabric->attr);
		ret = rp_pd_open(fabric->device, &fabric->pd);
	}
	if (!ret)
		ret = rp_arenas_open(&fabric->arenas, core->ring, fabric->pd, fabric->attr.name,
			RP_ACCESS_LOCAL_WRITE);
	if (!ret)
		ret = rp_cq_open(
			fabric->device, MIN(FABRIC_CQES, fabric->attr.max_cqe), &fabric->cq);
	if (ret) {
		flow_fabric_close(fabric);
		return ret;
	}
	snprintf(fabric->name, sizeof(fabric->name), "%s (%s)", fabric->attr.name,
		fabric->attr.transport);
	fabric->poller = (struct reactor_poller){.name = "streams",
		.poll = fabric_poll,
		.arm = fabric_arm,
		.disarm = fabric_disarm,
		.arg = fabric,
		.event_fd = rp_cq_fd(fabric->cq)};
	fabric->events = (struct rp_events){.reactor = core->reactor,
		.device = fabric->device,
		.take = event_take,
		.arg = fabric};
	fabric->tick = (struct reactor_timer){.fn = tick, .arg = fabric};
	reactor_poller_add(core->reactor, &fabric->poller);
	rp_events_begin(&fabric->events);
	reactor_timer_set(core->reactor, &fabric->tick, clock_now_ns() + TICK_NS);
	*ret_fabric = fabric;
	return 0;
}

void flow_fabric_end(struct flow_fabric *fabric)
{
	rp_events_end(&fabric->events);
}

void flow_fabric_close(struct flow_fabric *fabric)
{
	if (!fabric)
		return;
	CHECK(list_empty(&fabric->links) && list_empty(&fabric->listeners) &&
		list_empty(&fabric->datagrams));
	if (fabric->poller.arg) {
		reactor_timer_cancel(fabric->core->reactor, &fabric->tick);
		reactor_poller_remove(fabric->core->reactor, &fabric->poller);
	}
	rp_cq_close(fabric->cq);
	rp_arenas_close(&fabric->arenas);
	rp_pd_close(fabric->pd);
	rp_close(fabric->device);
	free(fabric);
}

const char *flow_fabric_name(const struct flow_fabric *fabric)
{
	return fabric->name;
}

const char *flow_fabric_why(const struct flow_fabric *fabric)
{
	return fabric->why;
}

/* ---- Links. ---- */

void link_wake(struct flow_link *link)
{
	if (link->waiter)
		fiber_wake(link->waiter);
}

void link_fail(struct flow_link *link, int error, const char *why)
{
	if (link->error || link->phase == LINK_CLOSED)
		return;
	if (!link->why[0])
		snprintf(link->why, sizeof(link->why), "%s", why);
	link->error = error;
	if (link->qp) {
		rp_disconnect(link->qp);
		rp_qp_error(link->qp);
	}
	if (link->opts.failed && link->phase == LINK_OPEN)
		link->opts.failed(link->opts.arg);
	link_wake(link);
}

static int qp_open(struct flow_link *link)
{
	struct flow_fabric *fabric = link->fabric;
	const struct rp_qp_attr attr = {
		.type = RP_QP_RC,
		.send_cq = fabric->cq,
		.recv_cq = fabric->cq,
		.cap = {.max_send_wr = LINK_SENDS_MAX + 4,
			.max_recv_wr = link->opts.sends ? LINK_CONTROL_RECEIVES : link->window,
			.max_send_sge = LINK_PIECES_MAX,
			.max_recv_sge = 1},
		.retry_count = 7,
		.rnr_retry_count = 7,
		.context = link,
	};
	int ret = rp_qp_open(fabric->pd, &attr, &link->qp);

	return ret ? ret : rp_qp_target(link->qp, fabric->core->region, &link->target);
}

static void notes_init(struct flow_link *link)
{
	struct link_control *at = (struct link_control *)(void *)link->notes_span.data;

	link->note_out.link = link;
	link->note_out.text = at++;
	for (uint32_t i = 0; i < LINK_CONTROL_RECEIVES; i++) {
		link->notes_in[i].link = link;
		link->notes_in[i].text = at++;
	}
}

static int link_arm(struct flow_link *link)
{
	struct flow_core *core = link->core;
	const struct flow_want want = {
		.frame_count = 1, .owner = OWNER_RDMA, .begun = true, .deadline_ns = DEADLINE_NONE};
	int ret = flow_lease(core, &want, &link->notes_span);

	if (ret)
		return ret;
	notes_init(link);
	if (link->opts.sends)
		link->sends = calloc(LINK_SENDS_MAX, sizeof(*link->sends));
	else
		link->recvs = calloc(link->window, sizeof(*link->recvs));
	if (!link->sends && !link->recvs)
		return -ENOMEM;
	ret = qp_open(link);
	if (ret)
		return ret;
	return link->opts.sends ? link_notes_post(link) : link_recvs_fill(link, true);
}

static int link_new(struct flow_fabric *fabric, const struct flow_link_opts *opts,
	const struct link_hello *peer, struct flow_link **ret_link)
{
	struct flow_link *link = calloc(1, sizeof(*link));
	int ret;

	if (!link)
		return -ENOMEM;
	link->fabric = fabric;
	link->core = fabric->core;
	link->opts = *opts;
	link->opts.unit = opts->unit ? opts->unit : 1;
	link->record_bytes = opts->record_bytes ? opts->record_bytes : LINK_RECORD_BYTES_MAX;
	link->bytes_total = opts->bytes_total;
	if (peer) {
		link->record_bytes = MIN(link->record_bytes, peer->record_bytes);
		link->granted = peer->credits;
		if (!opts->sends)
			link->bytes_total = peer->bytes_total;
	}
	link->window = MIN(MAX(WINDOW_BYTES / link->record_bytes, CREDITS_MIN), LINK_CREDITS_MAX);
	link->window = MIN(link->window, fabric->attr.max_qp_wr);
	link->source = (struct flow_source){.magic = FLOW_SOURCE_MAGIC,
		.ops = &LINK_SOURCE_OPS,
		.core = fabric->core,
		.bytes_total = link->bytes_total,
		.deadline_ns = DEADLINE_NONE};
	link->sink = (struct flow_sink){.magic = FLOW_SINK_MAGIC,
		.ops = &LINK_SINK_OPS,
		.core = fabric->core,
		.deadline_ns = DEADLINE_NONE};
	link->said_ns = clock_now_ns();
	list_push_back(&fabric->links, &link->link);
	ret = link_arm(link);
	if (ret) {
		flow_link_close(link);
		return ret;
	}
	*ret_link = link;
	return 0;
}

static struct link_hello hello_of(const struct flow_link *link)
{
	return (struct link_hello){
		.magic = LINK_MAGIC,
		.version = LINK_VERSION,
		.role = link->opts.sends ? LINK_SENDS : LINK_RECEIVES,
		.record_bytes = link->record_bytes,
		.credits = link->opts.sends ? 0 : link->posted,
		.unit = link->opts.unit,
		.bytes_total = link->opts.sends ? link->opts.bytes_total : 0,
	};
}

/* Parks until the link is open, failed or stopped. */
static int open_wait(struct flow_link *link)
{
	uint64_t deadline_ns = clock_now_ns() + CONNECT_NS;

	link->waiter = fiber_self();
	while (link->phase == LINK_CONNECTING && !link->error) {
		if (fiber_park_until(deadline_ns) == -ETIMEDOUT)
			link_fail(link, -ETIMEDOUT, "the peer does not answer");
	}
	link->waiter = NULL;
	return link->error;
}

int flow_link_connect(struct flow_fabric *fabric, const struct flow_link_opts *opts,
	const char *address, uint16_t port, struct flow_link **ret_link)
{
	struct flow_link *link;
	struct link_hello hello;
	int ret = link_new(fabric, opts, NULL, &link);

	if (ret) {
		snprintf(fabric->why, sizeof(fabric->why), "%s", strerror(-ret));
		return ret;
	}
	snprintf(link->peer, sizeof(link->peer), "%.50s:%u", address, port);
	hello = hello_of(link);
	ret = rp_connect(
		link->qp, address, port, &hello, sizeof(hello), clock_now_ns() + CONNECT_NS);
	if (ret)
		link_fail(link, ret, strerror(-ret));
	ret = open_wait(link);
	if (ret) {
		snprintf(fabric->why, sizeof(fabric->why), "%s%.140s",
			link->refused ? "the peer refused: " : "", link->why);
		flow_link_close(link);
		return ret;
	}
	*ret_link = link;
	return 0;
}

/* ---- Listening. ---- */

int flow_link_listen(struct flow_fabric *fabric, const char *address, uint16_t port,
	struct flow_listener **ret_listener)
{
	struct flow_listener *listener = calloc(1, sizeof(*listener));
	int ret;

	if (!listener)
		return -ENOMEM;
	listener->fabric = fabric;
	ret = rp_listen(fabric->device, address, port, listener, &listener->listener);
	if (ret) {
		free(listener);
		return ret;
	}
	list_push_back(&fabric->listeners, &listener->link);
	*ret_listener = listener;
	return 0;
}

void flow_link_listener_close(struct flow_listener *listener)
{
	if (!listener)
		return;
	if (listener->request.request)
		refuse(listener->request.request, LINK_BUSY);
	rp_listener_close(listener->listener);
	list_remove(&listener->link);
	free(listener);
}

uint16_t flow_link_port(const struct flow_listener *listener)
{
	return rp_listener_port(listener->listener);
}

void flow_link_cancel(struct flow_listener *listener)
{
	listener->cancelled = true;
	if (listener->waiter)
		fiber_wake(listener->waiter);
}

/* Why a peer cannot be served; 0: it can. */
static enum link_reason hello_fits(const struct rp_cm_event *request,
	const struct flow_link_opts *opts, struct link_hello *ret_hello)
{
	uint32_t unit = opts->unit ? opts->unit : 1;

	if (link_hello_decode(request->private_data, request->private_len, ret_hello))
		return LINK_MALFORMED;
	if ((ret_hello->role == LINK_SENDS) == opts->sends)
		return LINK_SAME_ROLE;
	if (opts->sends ? unit % ret_hello->unit : ret_hello->unit % unit)
		return LINK_UNFIT_UNIT;
	return 0;
}

static int request_accept(struct flow_listener *listener, const struct flow_link_opts *opts,
	struct flow_link **ret_link)
{
	struct rp_cm_event request = listener->request;
	struct link_hello peer, hello;
	struct flow_link *link;
	enum link_reason reason = hello_fits(&request, opts, &peer);
	int ret;

	listener->request.request = NULL;
	if (reason) {
		const struct link_refusal refusal = {LINK_MAGIC, LINK_VERSION, (uint16_t)reason};

		log_limited(LOG_WARN, "flow", "%s: refused: %s", request.peer,
			link_refusal_text(&refusal, sizeof(refusal)));
		refuse(request.request, reason);
		return -EAGAIN;
	}
	ret = link_new(listener->fabric, opts, &peer, &link);
	if (ret) {
		refuse(request.request, LINK_BUSY);
		return ret;
	}
	snprintf(link->peer, sizeof(link->peer), "%.63s", request.peer);
	hello = hello_of(link);
	ret = rp_accept(request.request, link->qp, &hello, sizeof(hello));
	if (ret) {
		refuse(request.request, LINK_BUSY);
		link_fail(link, ret, strerror(-ret));
	}
	link->told = link->posted;
	ret = open_wait(link);
	if (ret) {
		log_limited(LOG_WARN, "flow", "%s: %s", link->peer, link->why);
		flow_link_close(link);
		return -EAGAIN;
	}
	*ret_link = link;
	return 0;
}

int flow_link_accept(struct flow_listener *listener, const struct flow_link_opts *opts,
	struct flow_link **ret_link)
{
	int ret = -EAGAIN;

	listener->accepting = true;
	listener->waiter = fiber_self();
	while (ret == -EAGAIN) {
		while (!listener->request.request && !listener->cancelled)
			fiber_park();
		ret = listener->cancelled ? -ECANCELED : request_accept(listener, opts, ret_link);
		listener->waiter = fiber_self();
	}
	listener->accepting = false;
	listener->waiter = NULL;
	return ret;
}

/* ---- Ending. ---- */

static uint16_t status_of(int error)
{
	if (error == -ENOSPC || error == -EDQUOT || error == -EFBIG)
		return LINK_NO_SPACE;
	if (error == -ECANCELED)
		return LINK_INTERRUPTED;
	if (error == -EBADMSG)
		return LINK_DIFFERS;
	return error ? LINK_FAILED : LINK_GOOD;
}

void flow_link_end(struct flow_link *link, int error)
{
	uint64_t deadline_ns = clock_now_ns() + LEAVE_NS;
	bool late = false;

	link->waiter = fiber_self();
	if (!error)
		link->acknowledged = link->bytes;
	while (!link->error && !late) {
		if (!link->done_said)
			link->done_said = link_done_say(
				link, status_of(error), error ? strerror(-error) : "");
		late = fiber_park_until(deadline_ns) == -ETIMEDOUT;
	}
	link->waiter = NULL;
}

void flow_link_interrupt(struct flow_link *link)
{
	link->interrupted = true;
	link_wake(link);
}

void flow_link_stop(struct flow_link *link)
{
	link_fail(link, -ECANCELED, "ended here");
}

void flow_link_close(struct flow_link *link)
{
	if (!link)
		return;
	link->phase = LINK_CLOSED;
	link->waiter = NULL;
	rp_qp_close(link->qp); /* outstanding work completes as cancelled */
	link->qp = NULL;
	while (!link_idle(link))
		fiber_yield();
	link_release(link);
	list_remove(&link->link);
	free(link->sends);
	free(link->recvs);
	free(link);
}

bool flow_link_sends(const struct flow_link *link)
{
	return link->opts.sends;
}

const char *flow_link_peer(const struct flow_link *link)
{
	return link->peer;
}

const char *flow_link_why(const struct flow_link *link)
{
	return link->why;
}

void flow_link_stats(const struct flow_link *link, struct flow_link_stats *ret_stats)
{
	*ret_stats = (struct flow_link_stats){
		.records = link->records,
		.bytes = link->bytes,
		.acknowledged = link->acknowledged,
		.crc64nvme = link->crc,
		.bytes_total = link->bytes_total,
		.credits = link->opts.sends ? link->granted - link->started
					    : link->posted - link->taken,
		.record_bytes = link->record_bytes,
	};
}
