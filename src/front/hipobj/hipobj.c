/* front/hipobj/hipobj.c: the hipobj front's sessions: bounded in number, memory and time, for each
 * principal and in all. */
#include "front/hipobj/hipobj_priv.h"
#include "rdma/port.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

DEFINE_COUNTER_FULL(sessions_full, "hipobj_sessions");
DEFINE_COUNTER_FULL(staging_full, "hipobj_staging");

#define CQ_ENTRIES_MAX (1u << 20)
_Static_assert(LIMIT_HIPOBJ_SESSIONS_MAX *(HIPOBJ_SEND_WRS + 1) <= CQ_ENTRIES_MAX,
	"all sessions that may be configured fit a completion queue");
_Static_assert(LIMIT_CORES_MAX <= 256, "the first byte of an id names a front");

DEFINE_COUNTER(sessions_now, "nebulaio_hipobj_sessions", NULL,
	"Sessions of hipobj-rc-v2 between PREPARE and their end.");
DEFINE_COUNTER(windows_now, "nebulaio_hipobj_windows", NULL,
	"Memory regions that clients of hipobj-rc-v2 may write to now.");
DEFINE_COUNTER(staged_now, "nebulaio_hipobj_staging_bytes", NULL,
	"Memory for bodies that clients of hipobj-rc-v2 write.");
DEFINE_COUNTER(expired_total, "nebulaio_hipobj_expired_total", NULL,
	"Sessions of hipobj-rc-v2 that ended because their client said nothing in time.");

/* ---- The poller, which exists while there are sessions. ---- */

/* Completions of immediates. A session has one; the rings take the completions of all other work.
 */
static void on_wc(void *arg, const struct rp_wc *wc)
{
	struct front_hipobj *front = arg;
	struct hipobj_session *session = front->places[wc->wr_id % ARRAY_LEN(front->places)];

	/* The session has ended, and another one may have its place. */
	if (!session || session->serial != wc->wr_id)
		return;
	if (wc->status != RP_WC_SUCCESS) {
		session->error = session->error ? session->error : rp_status_errno(wc->status);
	} else if (session->put) {
		session->arrived = true;
		session->immediate = wc->imm;
		session->immediate_bytes = wc->byte_len;
	} else {
		session->sent = true;
	}
	if (session->waiter)
		fiber_wake(session->waiter);
}

static uint32_t hipobj_poll(void *arg)
{
	struct front_hipobj *front = arg;

	return rp_cq_drain(front->cq, front->opts.core->ring, on_wc, front);
}

static bool hipobj_arm(void *arg)
{
	return rp_cq_arm(((struct front_hipobj *)arg)->cq);
}

static void hipobj_disarm(void *arg)
{
	rp_cq_disarm(((struct front_hipobj *)arg)->cq);
}

/* ---- The bounds of sessions. ---- */

static bool count_up(_Atomic uint32_t *all, _Atomic uint32_t *share, uint32_t max)
{
	if (atomic_fetch_add(all, 1) < max) {
		if (atomic_fetch_add(share, 1) < MAX(max / HIPOBJ_SHARE_PARTS, 1u))
			return true;
		atomic_fetch_sub(share, 1);
	}
	atomic_fetch_sub(all, 1);
	return false;
}

static bool bytes_up(_Atomic uint64_t *all, _Atomic uint64_t *share, uint64_t bytes, uint64_t max)
{
	if (atomic_fetch_add(all, bytes) + bytes <= max) {
		if (atomic_fetch_add(share, bytes) + bytes <= max / HIPOBJ_SHARE_PARTS)
			return true;
		atomic_fetch_sub(share, bytes);
	}
	atomic_fetch_sub(all, bytes);
	return false;
}

static uint64_t staging_of(const struct hipobj_session *session)
{
	return session->put ? (session->size + FRAME_BYTES - 1) & ~(uint64_t)(FRAME_BYTES - 1) : 0;
}

/* There always is a free place: the maximum of sessions of all fronts together is the number of
 * places of one front. */
static void place_take(struct front_hipobj *front, struct hipobj_session *session)
{
	struct hipobj_session **place;

	do {
		session->serial = ++front->next_serial;
		place = &front->places[session->serial % ARRAY_LEN(front->places)];
	} while (*place);
	*place = session;
	front->place_count++;
}

static void place_give(struct front_hipobj *front, const struct hipobj_session *session)
{
	front->places[session->serial % ARRAY_LEN(front->places)] = NULL;
	front->place_count--;
}

static int places_take(struct front_hipobj *front, struct hipobj_session *session)
{
	struct hipobj_shared *shared = front->shared;
	uint64_t bytes = staging_of(session);

	if (bytes > front->opts.staging_bytes_max / HIPOBJ_SHARE_PARTS)
		return -EFBIG;
	if (front->place_count >= front->sessions_max ||
		!count_up(&shared->sessions, &shared->share_sessions[session->share],
			front->opts.sessions_max)) {
		counter_add(&sessions_full, 1);
		return -ENOSPC;
	}
	if (bytes_up(&shared->staged_bytes, &shared->share_bytes[session->share], bytes,
		    front->opts.staging_bytes_max)) {
		place_take(front, session);
		return 0;
	}
	counter_add(&staging_full, 1);
	atomic_fetch_sub(&shared->share_sessions[session->share], 1);
	atomic_fetch_sub(&shared->sessions, 1);
	return -ENOSPC;
}

static void places_give(struct front_hipobj *front, const struct hipobj_session *session)
{
	struct hipobj_shared *shared = front->shared;
	uint64_t bytes = staging_of(session);

	place_give(front, session);
	atomic_fetch_sub(&shared->share_bytes[session->share], bytes);
	atomic_fetch_sub(&shared->staged_bytes, bytes);
	atomic_fetch_sub(&shared->share_sessions[session->share], 1);
	atomic_fetch_sub(&shared->sessions, 1);
}

/* ---- Staging memory: fresh pages of its own, which hold nobody else's bytes. ---- */

struct staging {
	struct hipobj_session *session;
	int ret;
};

/* On a helper thread: faulting pages in and registering them takes long. */
static void staging_open(void *arg)
{
	struct staging *staging = arg;
	struct hipobj_session *session = staging->session;
	struct rp_mr_opts opts = {.bytes = session->size,
		.access = RP_ACCESS_LOCAL_WRITE | RP_ACCESS_REMOTE_WRITE,
		.fd = -1};
	void *memory = mmap(NULL, staging_of(session), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (memory == MAP_FAILED) {
		staging->ret = -ENOMEM;
		return;
	}
	session->staged = opts.addr = memory;
	counter_add(&staged_now, staging_of(session));
	staging->ret = rp_pd_open(session->front->opts.device, &session->pd);
	if (!staging->ret)
		staging->ret = rp_mr_open(session->pd, &opts, &session->mr);
	if (!staging->ret)
		counter_add(&windows_now, 1);
}

static void window_close(void *arg)
{
	struct hipobj_session *session = arg;

	if (session->mr) {
		rp_mr_close(session->mr);
		counter_sub(&windows_now, 1);
	}
	session->mr = NULL;
	if (session->pd)
		rp_pd_close(session->pd);
	session->pd = NULL;
}

static void staging_close(void *arg)
{
	struct hipobj_session *session = arg;

	window_close(session);
	if (session->staged) {
		munmap(session->staged, staging_of(session));
		counter_sub(&staged_now, staging_of(session));
	}
	session->staged = NULL;
}

static void qp_close(struct hipobj_session *session)
{
	rp_qp_close(session->qp);
	session->qp = NULL;
}

void hipobj_session_close_window(struct hipobj_session *session)
{
	hipobj_session_check(session);
	qp_close(session);
	fiber_offload(window_close, session);
}

/* ---- Lives. ---- */

static void session_free(struct hipobj_session *session)
{
	CHECK(!session->qp && !session->staged && !session->users);
	if (session->abandoned)
		region_target_free(session->front->opts.core->region, session->target);
	places_give(session->front, session);
	magic_clear(&session->magic);
	free(session->text);
	free(session);
}

static void free_fiber(void *arg)
{
	fiber_offload(staging_close, arg);
	session_free(arg);
}

/* Frees a session that has ended; also called outside fibers. */
static void session_release(struct hipobj_session *session)
{
	if (session->put && (session->mr || session->staged) &&
		fiber_run(session->front->reactor, "hipobj", free_fiber, session) == 0)
		return;
	staging_close(session);
	session_free(session);
}

static void fall_asleep(struct front_hipobj *front)
{
	reactor_timer_cancel(front->reactor, &front->sweep);
	reactor_poller_remove(front->reactor, &front->poller);
}

static void wake_up(struct front_hipobj *front)
{
	reactor_poller_add(front->reactor, &front->poller);
	reactor_timer_set(
		front->reactor, &front->sweep, reactor_now_ns(front->reactor) + HIPOBJ_SWEEP_NS);
}

static void unlist(struct hipobj_session *session)
{
	struct front_hipobj *front = session->front;

	list_remove(&session->link);
	counter_sub(&sessions_now, 1);
	if (--front->session_count == 0)
		fall_asleep(front);
}

void hipobj_session_end(struct hipobj_session *session, int error, const char *why)
{
	hipobj_session_check(session);
	if (session->gone)
		return;
	session->gone = true;
	session->gone_ns = reactor_now_ns(session->front->reactor);
	if (error && !session->error)
		session->error = error;
	if (why)
		log_info("hipobj", "a session of %s ends: %s", session->access_key, why);
	if (session->users) {
		/* The session's fiber closes it, because work of the rings is in flight. */
		if (session->qp)
			rp_qp_error(session->qp);
		if (session->waiter)
			fiber_wake(session->waiter);
		return;
	}
	unlist(session);
	qp_close(session);
	session_release(session);
}

void hipobj_session_put(struct hipobj_session *session)
{
	hipobj_session_check(session);
	CHECK(session->users);
	if (--session->users || !session->gone)
		return;
	unlist(session);
	qp_close(session);
	if (session->put)
		fiber_offload(staging_close, session);
	session_free(session);
}

struct hipobj_session *hipobj_session_find(
	struct front_hipobj *front, const uint8_t id[HIPOBJ_SESSION_BYTES])
{
	LIST_FOR_EACH (link, &front->sessions) {
		struct hipobj_session *session = CONTAINER_OF(link, struct hipobj_session, link);

		if (!session->gone && memcmp(session->id, id, sizeof(session->id)) == 0)
			return session;
	}
	return NULL;
}

/* ---- Opening. ---- */

static int qp_open(struct hipobj_session *session)
{
	const struct front_hipobj *front = session->front;
	const struct rp_qp_attr attr = {
		.type = RP_QP_RC,
		.send_cq = front->cq,
		.recv_cq = front->cq,
		.cap = {.max_send_wr = session->put ? 1 : HIPOBJ_SEND_WRS,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.retry_count = front->opts.retry_count,
		.rnr_retry_count = front->opts.rnr_retry_count,
		.timeout_us = front->opts.ack_timeout_us,
		.context = session,
	};
	int ret;

	/* The first packet's number must not be 0, so a 0 is drawn again. */
	for (int tries = 0; tries < 3; tries++) {
		ret = rp_qp_open(session->put ? session->pd : front->opts.pd, &attr, &session->qp);
		if (ret == 0)
			ret = rp_qp_address(session->qp, &session->ours);
		if (ret || session->ours.psn)
			break;
		qp_close(session);
		ret = -ENOMEM;
	}
	if (ret || session->put)
		return ret;
	return rp_qp_target(session->qp, front->opts.core->region, &session->target);
}

/* The token has no MTU: each end uses its port's. Parks. */
static int qp_join(struct hipobj_session *session, const struct hipobj_request *asked)
{
	static const uint8_t NONE[16] = {0};
	const struct rp_recv_wr recv = {.wr_id = session->serial};
	struct rp_address theirs = {.lid = asked->token.lid,
		.qpn = asked->token.qpn,
		.psn = asked->psn,
		.mtu = session->ours.mtu};
	uint32_t posted;
	int ret = 0;

	theirs.has_gid = memcmp(asked->token.gid, NONE, sizeof(NONE)) != 0;
	memcpy(theirs.gid, asked->token.gid, sizeof(theirs.gid));
	/* The receive is posted before a packet can arrive. */
	if (session->put)
		ret = rp_post_recv(session->qp, &recv, 1, &posted);
	if (ret == 0 && rp_qp_reach(session->qp, &theirs))
		ret = -EHOSTUNREACH;
	return ret;
}

static struct slice text_add(char **at, struct slice text)
{
	struct slice copy = slice_of(*at, text.len);

	slice_copy(text, *at);
	*at += text.len;
	return copy;
}

static int operation_keep(struct hipobj_session *session, const struct hipobj_job *job)
{
	const struct s3_request *message = job->message;
	size_t bytes = job->asked.path.len + job->asked.query.len;
	char *at;

	for (uint32_t i = 0; i < message->header_count; i++) {
		const struct s3_header *header = &message->headers[i];

		if (!hipobj_counts(message, header->name))
			continue;
		if (session->header_count == HIPOBJ_KEPT_HEADERS_MAX)
			return -E2BIG;
		session->headers[session->header_count++] = *header;
		bytes += header->name.len + header->value.len;
	}
	if (bytes > HIPOBJ_KEPT_BYTES_MAX)
		return -E2BIG;
	session->text = at = malloc(bytes);
	if (!at)
		return -ENOMEM;
	session->path = text_add(&at, job->asked.path);
	session->query = job->asked.query.len ? text_add(&at, job->asked.query) : SLICE_NONE;
	for (uint32_t i = 0; i < session->header_count; i++) {
		struct s3_header *header = &session->headers[i];

		header->name = text_add(&at, header->name);
		header->value = header->value.len ? text_add(&at, header->value) : SLICE_NONE;
	}
	return 0;
}

/* Connects a session that has been counted but is not in the list yet. */
static int session_connect(struct hipobj_session *session, const struct hipobj_job *job)
{
	struct staging staging = {.session = session};
	int ret = operation_keep(session, job);

	if (ret == 0 && session->put) {
		fiber_offload(staging_open, &staging);
		ret = staging.ret;
	}
	if (ret == 0)
		ret = qp_open(session);
	if (ret == 0)
		ret = qp_join(session, &job->asked);
	if (ret == 0)
		return 0;
	qp_close(session);
	if (session->put)
		fiber_offload(staging_close, session);
	return ret;
}

int hipobj_session_open(struct hipobj_job *job, struct hipobj_session **ret_session)
{
	struct front_hipobj *front = job->front;
	const struct hipobj_request *asked = &job->asked;
	struct hipobj_session *session = calloc(1, sizeof(*session));
	int ret;

	if (!session)
		return -ENOMEM;
	session->magic = HIPOBJ_SESSION_MAGIC;
	list_init(&session->link);
	session->front = front;
	session->share = job->control.share;
	session->put = asked->put;
	session->cookie = asked->cookie;
	session->peer_qpn = asked->token.qpn;
	session->size = asked->size;
	session->offset = asked->offset;
	memcpy(session->access_key, job->control.identity.access_key, sizeof(session->access_key));
	random_fill(session->id, sizeof(session->id));
	session->id[0] = (uint8_t)front->idx;
	if (front->opts.store)
		session->id[HIPOBJ_SESSION_STORE_AT] = (uint8_t)(front->opts.store - 1);
	ret = places_take(front, session);
	if (ret == 0) {
		ret = session_connect(session, job);
		if (ret)
			places_give(front, session);
	}
	if (ret) {
		magic_clear(&session->magic);
		free(session->text);
		free(session);
		return ret;
	}
	session->deadline_ns = reactor_now_ns(front->reactor) + front->opts.timeout_ns;
	list_push_front(&front->sessions, &session->link);
	counter_add(&sessions_now, 1);
	if (front->session_count++ == 0)
		wake_up(front);
	*ret_session = session;
	return 0;
}

/* ---- The sweep. ---- */

/* A read that has not ended waits for a device that flushes nothing, or for the store, and may post
 * more. So the target's number is kept. */
static void session_abandon(struct hipobj_session *session)
{
	log_warn("hipobj", "a session of %s: its read has not ended; its queue pair is closed",
		session->access_key);
	region_target_keep(session->front->opts.core->region, session->target);
	session->abandoned = true;
	qp_close(session);
}

static void sweep(struct reactor_timer *timer, void *arg)
{
	struct front_hipobj *front = arg;
	uint64_t now_ns = reactor_now_ns(front->reactor);

	LIST_FOR_EACH_SAFE (link, &front->sessions) {
		struct hipobj_session *session = CONTAINER_OF(link, struct hipobj_session, link);

		if (session->gone && session->qp && !session->put &&
			now_ns - session->gone_ns > RP_FLUSH_NS)
			session_abandon(session);
		/* Once a write's bytes have arrived, nothing waits for the client any more. */
		if (now_ns < hipobj_session_deadline_ns(session) || session->gone ||
			(session->moving && session->put && !session->qp))
			continue;
		counter_add(&expired_total, 1);
		hipobj_session_end(session, -ETIMEDOUT,
			session->moving ? "its bytes do not move" : "its client is not ready");
	}
	if (front->session_count)
		reactor_timer_set(front->reactor, timer, now_ns + HIPOBJ_SWEEP_NS);
}

/* ---- Opening and closing the front. ---- */

static int shared_join(struct front_hipobj *front, struct front_hipobj *first)
{
	struct hipobj_shared *shared = first ? first->shared : calloc(1, sizeof(*shared));

	if (!shared)
		return -ENOMEM;
	CHECK(shared->front_count < LIMIT_CORES_MAX);
	front->idx = shared->front_count;
	shared->fronts[shared->front_count++] = front;
	front->shared = shared;
	return 0;
}

int front_hipobj_open(const struct front_hipobj_opts *opts, struct front_hipobj **ret_front)
{
	struct rp_device_attr attr;
	struct front_hipobj *front;
	uint64_t entries;
	int ret;

	if (opts->sessions_max < 1 || opts->sessions_max > LIMIT_HIPOBJ_SESSIONS_MAX)
		return -EINVAL;
	front = calloc(1, sizeof(*front));
	if (!front)
		return -ENOMEM;
	front->opts = *opts;
	front->reactor = opts->core->reactor;
	list_init(&front->sessions);
	rp_device_attr(opts->device, &attr);
	entries = MIN((uint64_t)opts->sessions_max * (HIPOBJ_SEND_WRS + 1),
		MIN(attr.max_cqe, CQ_ENTRIES_MAX));
	front->sessions_max = (uint32_t)(entries / (HIPOBJ_SEND_WRS + 1));
	ret = rp_cq_open(opts->device, (uint32_t)entries, &front->cq);
	if (ret == 0)
		ret = shared_join(front, opts->first);
	if (ret) {
		rp_cq_close(front->cq);
		free(front);
		return ret;
	}
	front->poller = (struct reactor_poller){.name = "hipobj",
		.poll = hipobj_poll,
		.arm = hipobj_arm,
		.disarm = hipobj_disarm,
		.arg = front,
		.event_fd = rp_cq_fd(front->cq)};
	front->sweep = (struct reactor_timer){.fn = sweep, .arg = front};
	*ret_front = front;
	return 0;
}

void front_hipobj_drain(struct front_hipobj *front)
{
	LIST_FOR_EACH_SAFE (link, &front->sessions) {
		struct hipobj_session *session = CONTAINER_OF(link, struct hipobj_session, link);

		CHECK(!session->users);
		session->gone = true;
		unlist(session);
		qp_close(session);
		staging_close(session);
		session_free(session);
	}
}

void front_hipobj_close(struct front_hipobj *front)
{
	if (!front)
		return;
	CHECK(list_empty(&front->sessions));
	rp_cq_close(front->cq);
	if (--front->shared->front_count == 0)
		free(front->shared);
	free(front);
}
