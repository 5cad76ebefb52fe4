/* front/native.c: one reactor's native front: device objects, listener, connection events, the
 * sweep for idleness and deadlines, drain. The data path is native_dp.c. */
#include "front/native_priv.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* ---- Connection events: asked for through io_uring, so that a busy turn costs nothing. ---- */

static void on_connect_request(struct front_native *front, struct rp_cm_event *event)
{
	struct capsule_private hello;
	const char *why = NULL;
	int ret;

	memcpy(&hello, event->private_data, sizeof(hello));
	if (event->private_len < sizeof(hello) || hello.magic != CAPSULE_MAGIC)
		why = "it does not speak our protocol";
	else if (front->session_count >= front->sessions_max)
		why = "there are as many sessions as allowed";
	else if (!front->listener || (front->opts.draining && *front->opts.draining))
		why = "the server is draining";
	if (!why) {
		ret = native_session_accept(front, event);
		if (ret == 0)
			return;
		why = strerror(-ret);
	}
	log_warn("rdma", "%s: connection rejected: %s", event->peer, why);
	rp_reject(event->request, NULL, 0);
}

static void on_cm_event(struct front_native *front, struct rp_cm_event *event)
{
	struct native_session *session;

	if (event->type == RP_CM_CONNECT_REQUEST) {
		on_connect_request(front, event);
		return;
	}
	if (event->type == RP_CM_DEVICE_FATAL) {
		log_error("rdma", "the device %s failed", front->attr.name);
		LIST_FOR_EACH_SAFE (link, &front->sessions)
			native_session_fail(CONTAINER_OF(link, struct native_session, link),
				"its device failed");
		return;
	}
	session = event->qp ? rp_qp_context(event->qp) : NULL;
	if (!session)
		return;
	if (event->type == RP_CM_ESTABLISHED)
		session->connected = true;
	else
		native_session_gone(session);
}

static void cm_wait(struct front_native *front)
{
	front->cm_waiting = true;
	io_uring_prep_poll_add(
		reactor_sqe(front->reactor, &front->cm_op), rp_cm_fd(front->opts.device), POLLIN);
}

static void cm_ready(struct uring_op *op, int result, uint32_t cqe_flags)
{
	struct front_native *front = op->arg;
	struct rp_cm_event event;
	int ret;

	(void)result;
	(void)cqe_flags;
	front->cm_waiting = false;
	while ((ret = rp_cm_poll(front->opts.device, &event)) > 0)
		on_cm_event(front, &event);
	if (ret < 0)
		log_error("rdma", "connection events: %s", strerror(-ret));
	if (!front->cm_ending)
		cm_wait(front);
	else if (front->cm_waiter)
		fiber_wake(front->cm_waiter);
}

/* ---- The sweep. ---- */

/* Whether the peer keeps a transfer waiting: only what the device has yet to do counts, not what
 * the store or the disk takes in between. */
static bool request_stalls(struct native_request *request, uint64_t now_ns)
{
	uint64_t timeout_ns = request->session->front->opts.request_timeout_ns;
	uint64_t done;
	uint32_t pending = flow_watch_pending(&request->watch, &done);

	if (!pending || done != request->watch_done) {
		request->watch_done = done;
		request->watch_ns = now_ns;
	}
	return pending && (now_ns >= request->deadline_ns ||
				  (timeout_ns && now_ns - request->watch_ns > timeout_ns));
}

static void sweep_session(struct native_session *session, uint64_t now_ns)
{
	const struct front_native *front = session->front;

	LIST_FOR_EACH (link, &session->requests) {
		if (request_stalls(CONTAINER_OF(link, struct native_request, link), now_ns)) {
			native_session_fail(session, "a transfer stalls, or outlasts its deadline");
			return;
		}
	}
	switch (session->phase) {
	case NATIVE_ACCEPTED:
	case NATIVE_PROVING:
		if (now_ns - session->last_ns > NATIVE_SETUP_NS)
			native_session_fail(session, "set-up took too long");
		break;
	case NATIVE_OPEN:
		if (session->in_flight == 0 && front->opts.idle_timeout_ns &&
			now_ns - session->last_ns > front->opts.idle_timeout_ns)
			native_session_drain(session, CAPSULE_BYE_IDLE);
		break;
	case NATIVE_DRAINING:
		if (session->in_flight == 0 && now_ns - session->last_ns > NATIVE_SETUP_NS)
			native_session_fail(session, "the client does not take its last answers");
		break;
	case NATIVE_FAILED:
		break;
	}
}

static void sweep(struct reactor_timer *timer, void *arg)
{
	struct front_native *front = arg;
	uint64_t now_ns = reactor_now_ns(front->reactor);

	LIST_FOR_EACH_SAFE (link, &front->sessions)
		sweep_session(CONTAINER_OF(link, struct native_session, link), now_ns);
	reactor_timer_set(front->reactor, timer, now_ns + NATIVE_SWEEP_NS);
}

/* ---- Opening and closing. ---- */

static bool front_arm(void *arg)
{
	struct front_native *front = arg;

	return list_empty(&front->dying) && rp_cq_arm(front->cq);
}

static void front_disarm(void *arg)
{
	rp_cq_disarm(((struct front_native *)arg)->cq);
}

/* The arenas, for the device to read and write on our behalf; nothing a peer could name. */
static int arenas_register(struct front_native *front)
{
	uint32_t count = region_arena_count(front->region);

	for (uint32_t i = 0; i < count; i++) {
		struct region_arena arena = region_arena(front->region, i);
		struct rp_mr_opts opts = {
			.addr = arena.base,
			.bytes = arena.bytes,
			.access = RP_ACCESS_LOCAL_WRITE,
			.fd = arena.fd,
		};
		struct region_mr mr = {.addr = (uint64_t)(uintptr_t)arena.base,
			.bytes = arena.bytes,
			.access = RP_ACCESS_LOCAL_WRITE};
		int ret = rp_mr_open(front->pd, &opts, &front->mrs[i]);

		if (ret)
			return ret;
		front->lkeys[i] = rp_mr_lkey(front->mrs[i]);
		mr.lkey = front->lkeys[i];
		slice_copy_str(slice_to(slice_str(front->attr.name), sizeof(mr.device) - 1),
			mr.device, sizeof(mr.device));
		ret = region_mr_add(front->region, &mr, &front->mr_idx[i]);
		if (ret) {
			rp_mr_close(front->mrs[i]);
			front->mrs[i] = NULL;
			return ret;
		}
		front->arena_count++;
	}
	return 0;
}

/* What a session may put into the completion queue at a time bounds how many sessions fit it. */
static int cq_open(struct front_native *front)
{
	uint32_t each = front->opts.credits + CAPSULE_SPARE_RECEIVES + front->send_wrs;
	uint64_t want = MAX((uint64_t)front->sessions_max * each, (uint64_t)front->opts.cq_size);
	uint32_t cqe_max = MIN(front->attr.max_cqe, NATIVE_CQ_ENTRIES_MAX);

	if (want > cqe_max) {
		front->sessions_max = cqe_max / each;
		want = cqe_max;
		log_warn("rdma",
			"%s: a completion queue of %u entries holds %u sessions of %u requests",
			front->attr.name, cqe_max, front->sessions_max, front->opts.credits);
	}
	return rp_cq_open(front->opts.device, (uint32_t)want, front, &front->cq);
}

static int opts_check(const struct front_native_opts *opts)
{
	if (opts->credits < 1 || opts->credits > LIMIT_SESSION_REQUESTS_MAX ||
		opts->sessions_max < 1 || opts->sessions_max > LIMIT_RDMA_SESSIONS_MAX ||
		opts->inline_bytes_max > LIMIT_CAPSULE_INLINE_BYTES_MAX)
		return -EINVAL;
	if (opts->max_recv_wr && opts->max_recv_wr < opts->credits + CAPSULE_SPARE_RECEIVES) {
		log_error("rdma", "max_recv_wr must be %u or more for %u requests in flight",
			opts->credits + CAPSULE_SPARE_RECEIVES, opts->credits);
		return -EINVAL;
	}
	return 0;
}

int front_native_open(const struct front_native_opts *opts, struct front_native **ret_front)
{
	struct front_native *front;
	int ret = opts_check(opts);

	if (ret)
		return ret;
	front = calloc(1, sizeof(*front));
	if (!front)
		return -ENOMEM;
	front->opts = *opts;
	front->region = opts->core->region;
	front->reactor = opts->core->reactor;
	front->sessions_max = opts->sessions_max;
	front->send_wrs = MAX(opts->max_send_wr ? opts->max_send_wr : 128u, NATIVE_SEND_WRS_MIN);
	front->capsule_bytes = (uint32_t)MIN(
		MAX(ALIGN_UP(2u * opts->inline_bytes_max, FRAME_BYTES), 2u * FRAME_BYTES),
		LIMIT_CAPSULE_BYTES_MAX);
	list_init(&front->sessions);
	list_init(&front->dying);
	list_init(&front->idle_sends);
	list_init(&front->send_waiters);
	random_fill(&front->prng, sizeof(front->prng));
	rp_device_attr(opts->device, &front->attr);
	ret = rp_pd_open(opts->device, &front->pd);
	if (ret == 0)
		ret = arenas_register(front);
	if (ret == 0)
		ret = cq_open(front);
	if (ret) {
		front_native_close(front);
		return ret;
	}
	front->poller = (struct reactor_poller){.name = "native",
		.poll = native_poll,
		.arm = front_arm,
		.disarm = front_disarm,
		.arg = front,
		.event_fd = rp_cq_fd(front->cq)};
	front->cm_op = (struct uring_op){.done = cm_ready, .arg = front};
	front->sweep = (struct reactor_timer){.fn = sweep, .arg = front};
	*ret_front = front;
	return 0;
}

int front_native_listen(struct front_native *front, const char *address, uint16_t port)
{
	int ret = rp_listen(front->opts.device, address, port, front, &front->listener);

	if (ret)
		return ret;
	reactor_poller_add(front->reactor, &front->poller);
	front->poller_added = true;
	cm_wait(front);
	reactor_timer_set(front->reactor, &front->sweep, clock_now_ns() + NATIVE_SWEEP_NS);
	log_info("rdma", "listening on %s:%u, device %s (%s)", address, front_native_port(front),
		front->attr.name, front->attr.transport);
	return 0;
}

uint16_t front_native_port(const struct front_native *front)
{
	return front->listener ? rp_listener_port(front->listener) : 0;
}

/* ---- Ending. ---- */

static void cm_cancel(struct io_uring_sqe *sqe, void *arg)
{
	io_uring_prep_cancel(sqe, arg, 0);
}

static void cm_end(struct front_native *front)
{
	front->cm_ending = true;
	front->cm_waiter = fiber_self();
	if (front->cm_waiting)
		fiber_uring(cm_cancel, &front->cm_op, DEADLINE_NONE);
	while (front->cm_waiting)
		fiber_park();
	front->cm_waiter = NULL;
}

void front_native_drain(struct front_native *front, uint64_t deadline_ns)
{
	rp_listener_close(front->listener);
	front->listener = NULL;
	front->drain_waiter = fiber_self();
	LIST_FOR_EACH_SAFE (link, &front->sessions)
		native_session_drain(
			CONTAINER_OF(link, struct native_session, link), CAPSULE_BYE_DRAINING);
	while (!list_empty(&front->sessions) && fiber_park_until(deadline_ns) == 0)
		continue;
	LIST_FOR_EACH_SAFE (link, &front->sessions)
		native_session_fail(CONTAINER_OF(link, struct native_session, link),
			"the server stops and its requests took too long");
	while (!list_empty(&front->sessions))
		fiber_park();
	front->drain_waiter = NULL;
	if (front->poller_added) {
		cm_end(front);
		reactor_timer_cancel(front->reactor, &front->sweep);
		reactor_poller_remove(front->reactor, &front->poller);
		front->poller_added = false;
	}
}

void front_native_close(struct front_native *front)
{
	struct list *idle;

	if (!front)
		return;
	CHECK(list_empty(&front->sessions));
	if (front->poller_added) { /* never drained: the reactor has not run */
		reactor_timer_cancel(front->reactor, &front->sweep);
		reactor_poller_remove(front->reactor, &front->poller);
	}
	rp_listener_close(front->listener);
	rp_cq_close(front->cq);
	for (uint32_t i = 0; i < front->arena_count; i++) {
		region_mr_remove(front->region, front->mr_idx[i]);
		rp_mr_close(front->mrs[i]);
	}
	rp_pd_close(front->pd);
	while ((idle = list_pop(&front->idle_sends)) != NULL)
		free(CONTAINER_OF(idle, struct native_send, idle));
	free(front);
}

struct rp_pd *front_native_pd(const struct front_native *front)
{
	return front->pd;
}

const uint32_t *front_native_lkeys(const struct front_native *front)
{
	return front->lkeys;
}

uint32_t front_native_sessions(const struct front_native *front)
{
	return front->session_count;
}
