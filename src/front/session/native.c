/* front/session/native.c: one reactor's native front: its completion queue, the sweep for idleness
 * and deadlines, drain. session/port.c has the part that all reactors' fronts share,
 * session/capsule_dp.c the data path. */
#include "front/session/native_priv.h"

#include <errno.h>
#include <stdlib.h>

#define STALLED	     "nebulaio_native_stalled_total"
#define STALLED_HELP "Sessions that the native front ended because nothing of them moved, by what."
DEFINE_COUNTER(stalled_transfers, STALLED, "what=\"transfer\"", STALLED_HELP);
DEFINE_COUNTER(stalled_answers, STALLED, "what=\"answer\"", STALLED_HELP);

/* ---- The sweep. ---- */

/* Notes the progress of the request's transfer. Only time that the device has work to do counts,
 * not the time of the store or the disk. */
static void request_look(struct native_request *request, uint64_t now_ns)
{
	uint64_t done;
	uint32_t pending = flow_progress_pending(&request->progress, &done);

	if (done != request->progress_done)
		request->session->moved_ns = now_ns;
	if (!pending)
		request->progress_ns = now_ns;
	request->progress_done = done;
	request->progress_pending = pending;
}

/* How long nothing of the session has moved. A queue pair does its work in order: while transfers
 * or answers move, those queued after them do not stall. */
static uint64_t still_ns(const struct native_session *session, uint64_t now_ns)
{
	return MIN(now_ns - session->moved_ns, now_ns - session->sent_ns);
}

/* Whether the transfer waits for the peer. */
static bool request_stalls(const struct native_request *request, uint64_t now_ns)
{
	uint64_t timeout_ns = request->session->front->opts.request_timeout_ns;
	uint64_t waits_ns = MIN(now_ns - request->progress_ns, still_ns(request->session, now_ns));

	return request->progress_pending &&
	       (now_ns >= request->deadline_ns || (timeout_ns && waits_ns > timeout_ns));
}

/* Whether the client takes neither its answers nor the small bodies before them. A client has
 * receives posted for all answers, and its card needs no processor to take them. The simulated
 * device takes a message when the client's program calls it, so there a client may be silent for as
 * long as without requests. */
static bool answers_stall(const struct native_session *session, uint64_t now_ns)
{
	const struct front_native_opts *opts = &session->front->opts;
	uint64_t timeout_ns = opts->request_timeout_ns;

	if (!session->sends_signaled || !timeout_ns)
		return false;
	if (session->front->attr.simulated)
		timeout_ns = MAX(timeout_ns, opts->idle_timeout_ns);
	return still_ns(session, now_ns) > timeout_ns;
}

static void moment_forgive(uint64_t *moment_ns, uint64_t lost_ns, uint64_t now_ns)
{
	*moment_ns += MIN(lost_ns, now_ns - *moment_ns);
}

/* If this thread did not run for a while (stopped or starved), the stall is not the client's
 * fault. */
static void sweep_forgive(struct native_session *session, uint64_t lost_ns, uint64_t now_ns)
{
	moment_forgive(&session->last_ns, lost_ns, now_ns);
	moment_forgive(&session->moved_ns, lost_ns, now_ns);
	moment_forgive(&session->kept_ns, lost_ns, now_ns);
	moment_forgive(&session->sent_ns, lost_ns, now_ns);
	moment_forgive(&session->failed_ns, lost_ns, now_ns);
	LIST_FOR_EACH (link, &session->requests)
		moment_forgive(&CONTAINER_OF(link, struct native_request, link)->progress_ns,
			lost_ns, now_ns);
}

/* A client whose host vanished sends nothing. A device may retry for minutes, and soft-RoCE with 7
 * retries for ever, so the session fails if the keepalive is not acknowledged within another
 * keepalive_ns. With the simulated provider, a send waits for the peer's process, whose end is
 * reported at once. While another signaled send is outstanding, that send detects the loss. */
static void session_keep(struct native_session *session, uint64_t now_ns)
{
	const struct front_native *front = session->front;
	uint64_t heard_ns = MAX(MAX(session->last_ns, session->moved_ns), session->kept_ns);

	if (!front->opts.keepalive_ns || now_ns - heard_ns < front->opts.keepalive_ns)
		return;
	if (session->keeping && !front->attr.simulated) {
		native_session_fail(session, "the client's device no longer answers");
	} else if (!session->sends_signaled) {
		session->kept_ns = now_ns;
		native_keepalive_send(session);
	}
}

/* Whether nothing of the session moves, for which it has failed. */
static bool session_stalls(struct native_session *session, uint64_t now_ns)
{
	LIST_FOR_EACH (link, &session->requests)
		request_look(CONTAINER_OF(link, struct native_request, link), now_ns);
	LIST_FOR_EACH (link, &session->requests) {
		if (request_stalls(CONTAINER_OF(link, struct native_request, link), now_ns)) {
			counter_add(&stalled_transfers, 1);
			native_session_fail(
				session, "a transfer made no progress, or passed its deadline");
			return true;
		}
	}
	if (!answers_stall(session, now_ns))
		return false;
	counter_add(&stalled_answers, 1);
	native_session_fail(session, "the client has taken no answer and no body for too long");
	return true;
}

static void sweep_session(struct native_session *session, uint64_t now_ns)
{
	const struct front_native *front = session->front;

	/* One that has failed stalls until it is abandoned. */
	if (session->phase != NATIVE_FAILED && session_stalls(session, now_ns))
		return;
	if (session->lease_pool)
		native_leases_sweep(session, now_ns);
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
		else
			session_keep(session, now_ns);
		break;
	case NATIVE_DRAINING:
		if (session->in_flight == 0 && now_ns - session->last_ns > NATIVE_SETUP_NS)
			native_session_fail(session, "the client does not accept its last answers");
		break;
	case NATIVE_FAILED:
		if (now_ns - session->failed_ns > RP_FLUSH_NS)
			native_session_abandon(session);
		break;
	}
}

static void sweep(struct reactor_timer *timer, void *arg)
{
	struct front_native *front = arg;
	uint64_t now_ns = reactor_now_ns(front->reactor);
	uint64_t lost_ns = now_ns - front->swept_ns;

	front->swept_ns = now_ns;
	front->wipe_bytes_left = NATIVE_SWEEP_WIPE_MAX;
	LIST_FOR_EACH_SAFE (link, &front->sessions) {
		struct native_session *session = CONTAINER_OF(link, struct native_session, link);

		if (lost_ns > NATIVE_SWEEP_LATE_NS)
			sweep_forgive(session, lost_ns, now_ns);
		sweep_session(session, now_ns);
	}
	reactor_timer_set(front->reactor, timer, now_ns + NATIVE_SWEEP_NS);
}

/* ---- Opening and closing. ---- */

static bool front_arm(void *arg)
{
	struct front_native *front = arg;

	return list_empty(&front->closing) && rp_cq_arm(front->cq);
}

static void front_disarm(void *arg)
{
	rp_cq_disarm(((struct front_native *)arg)->cq);
}

/* A session's maximum number of completions limits how many sessions fit the completion queue. */
static int cq_open(struct front_native *front)
{
	uint32_t each = front->opts.credits + CAPSULE_SPARE_RECEIVES + front->send_wrs;
	/* Yielding sessions have only the work requests of the set-up: receives, CHALLENGE,
	 * REFUSE. */
	uint32_t yielding = NATIVE_YIELDING_MAX * (CAPSULE_SPARE_RECEIVES + 2);
	uint64_t want =
		MAX((uint64_t)front->sessions_max * each + yielding, (uint64_t)front->opts.cq_size);
	uint32_t cqe_max = MIN(front->attr.max_cqe, NATIVE_CQ_ENTRIES_MAX);

	if (want > cqe_max) {
		front->sessions_max = cqe_max > yielding ? (cqe_max - yielding) / each : 0;
		want = cqe_max;
		log_warn("rdma",
			"%s: a completion queue of %u entries holds %u sessions of %u requests",
			front->attr.name, cqe_max, front->sessions_max, front->opts.credits);
	}
	return rp_cq_open(front->opts.device, (uint32_t)want, &front->cq);
}

static int opts_check(const struct front_native_opts *opts)
{
	if (opts->front_count > LIMIT_CORES_MAX || opts->credits < 1 ||
		opts->credits > LIMIT_SESSION_REQUESTS_MAX || opts->sessions_max < 1 ||
		opts->sessions_max > LIMIT_RDMA_SESSIONS_MAX ||
		opts->inline_bytes_max > LIMIT_CAPSULE_INLINE_BYTES_MAX)
		return -EINVAL;
	if (opts->max_recv_wr && opts->max_recv_wr < opts->credits + CAPSULE_SPARE_RECEIVES) {
		log_error("rdma", "max_recv_wr must be %u or more for %u requests in flight",
			opts->credits + CAPSULE_SPARE_RECEIVES, opts->credits);
		return -EINVAL;
	}
	return 0;
}

/* The receives of at least one session must fit the part of the region that receives may use. */
static int recvs_check(const struct front_native *front)
{
	uint64_t each = (uint64_t)(front->opts.credits + CAPSULE_SPARE_RECEIVES) *
			region_frames_for(front->capsule_bytes);
	uint32_t most = front->port->places->recv_frames_max;

	if (each <= most)
		return 0;
	log_error("rdma",
		"the receives of one session of %u requests need %llu KiB, and all sessions "
		"together may use %llu KiB, 1/%u of the region: lower rdma.session_requests, or "
		"raise memory.bytes",
		front->opts.credits, (unsigned long long)each * FRAME_BYTES / KIB,
		(unsigned long long)most * FRAME_BYTES / KIB, NATIVE_RECV_PARTS);
	return -EINVAL;
}

int front_native_open(const struct front_native_opts *opts, struct front_native **ret_front)
{
	uint32_t share = MAX(opts->front_count, 1u);
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
	front->sessions_max = (opts->sessions_max + share - 1) / share;
	front->send_wrs = MAX(opts->max_send_wr ? opts->max_send_wr : 128u, NATIVE_SEND_WRS_MIN);
	front->capsule_bytes = (uint32_t)MIN(
		MAX(ALIGN_UP(2u * opts->inline_bytes_max, FRAME_BYTES), 2u * FRAME_BYTES),
		LIMIT_CAPSULE_BYTES_MAX);
	list_init(&front->sessions);
	list_init(&front->closing);
	list_init(&front->idle_sends);
	list_init(&front->send_waiters);
	random_fill(&front->prng, sizeof(front->prng));
	rp_device_attr(opts->device, &front->attr);
	ret = native_port_join(front, opts->first);
	if (ret == 0)
		ret = recvs_check(front);
	if (ret == 0)
		ret = cq_open(front);
	if (ret) {
		front_native_close(front);
		return ret;
	}
	if (!opts->first && opts->lease_bytes && !front->attr.windows)
		log_warn("rdma",
			"%s has no memory windows of type 2, which give one session alone access "
			"to memory: leases are off",
			front->attr.name);
	front->poller = (struct reactor_poller){.name = "native",
		.poll = native_poll,
		.arm = front_arm,
		.disarm = front_disarm,
		.arg = front,
		.event_fd = rp_cq_fd(front->cq)};
	front->sweep = (struct reactor_timer){.fn = sweep, .arg = front};
	reactor_poller_add(front->reactor, &front->poller);
	front->poller_added = true;
	front->swept_ns = clock_now_ns();
	reactor_timer_set(front->reactor, &front->sweep, front->swept_ns + NATIVE_SWEEP_NS);
	*ret_front = front;
	return 0;
}

/* ---- Ending. ---- */

/* Interval of the log lines of a drain that waits for requests. */
#define DRAIN_TELL_NS (5 * NS_PER_S)

static uint32_t requests_running(const struct front_native *front)
{
	uint32_t count = 0;

	LIST_FOR_EACH (link, &front->sessions)
		count += CONTAINER_OF(link, struct native_session, link)->in_flight;
	return count;
}

/* All sessions have failed. Their queue pairs flush, or the sweep destroys them, so only a request
 * that waits for something other than its client's device can delay one: that is logged. */
static void drain_rest(struct front_native *front)
{
	uint64_t tell_ns = clock_now_ns() + RP_FLUSH_NS + DRAIN_TELL_NS;

	while (!list_empty(&front->sessions)) {
		if (fiber_park_until(tell_ns) == 0)
			continue;
		log_warn("rdma", "%u sessions wait for %u requests that the store has not finished",
			front_native_sessions(front), requests_running(front));
		tell_ns = clock_now_ns() + DRAIN_TELL_NS;
	}
}

void front_native_drain(struct front_native *front, uint64_t deadline_ns)
{
	front->drained = true;
	native_port_close(front);
	front->drain_waiter = fiber_self();
	/* Neither call waits, and sessions are freed by the poller only: the list does not change.
	 */
	LIST_FOR_EACH (link, &front->sessions)
		native_session_drain(
			CONTAINER_OF(link, struct native_session, link), CAPSULE_BYE_DRAINING);
	while (!list_empty(&front->sessions) && fiber_park_until(deadline_ns) == 0)
		continue;
	LIST_FOR_EACH (link, &front->sessions)
		native_session_fail(CONTAINER_OF(link, struct native_session, link),
			"the server stops, and the session's requests took too long");
	drain_rest(front);
	front->drain_waiter = NULL;
	if (front->poller_added) {
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
	if (front->poller_added) { /* not drained, because the reactor never ran */
		reactor_timer_cancel(front->reactor, &front->sweep);
		reactor_poller_remove(front->reactor, &front->poller);
	}
	rp_cq_close(front->cq);
	native_port_leave(front);
	while ((idle = list_pop(&front->idle_sends)) != NULL)
		free(CONTAINER_OF(idle, struct native_send, link));
	free(front);
}

struct rp_pd *front_native_pd(const struct front_native *front)
{
	return front->port->pd;
}

const uint32_t *front_native_lkeys(const struct front_native *front)
{
	return front->port->arenas.lkeys;
}

uint32_t front_native_sessions(const struct front_native *front)
{
	return front->session_count;
}
