/* front/token/token.c: the token front's queue pairs: connected by ?rdma-connect or as sessions,
 * bound to the access key of a request, bounded in number, closed when idle or broken. */
#include "front/token/token_priv.h"
#include "rdma/port.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

DEFINE_COUNTER_FULL(queue_pairs_full, "token_queue_pairs");

#define CQ_ENTRIES_MAX (1u << 20)
_Static_assert(LIMIT_TOKEN_QUEUE_PAIRS_MAX *(TOKEN_SEND_WRS + 1) <= CQ_ENTRIES_MAX,
	"all queue pairs that may be configured fit a completion queue");

DEFINE_COUNTER(queue_pairs, "nebulaio_token_queue_pairs", NULL,
	"Queue pairs now connected by clients that use the RDMA token contract.");
DEFINE_COUNTER(joined_total, "nebulaio_token_queue_pairs_joined_total", NULL,
	"Queue pairs connected for RDMA tokens since the start.");

/* ---- The poller, which exists while there are queue pairs. ---- */

/* Only the rings post work requests on these queue pairs. */
static void on_wc(void *arg, const struct rp_wc *wc)
{
	(void)arg;
	(void)wc;
}

static uint32_t token_poll(void *arg)
{
	struct front_token *front = arg;

	return rp_cq_drain(front->cq, front->opts.core->ring, on_wc, front);
}

static bool token_arm(void *arg)
{
	return rp_cq_arm(((struct front_token *)arg)->cq);
}

static void token_disarm(void *arg)
{
	rp_cq_disarm(((struct front_token *)arg)->cq);
}

static void wake_up(struct front_token *front)
{
	reactor_poller_add(front->reactor, &front->poller);
	reactor_timer_set(
		front->reactor, &front->sweep, reactor_now_ns(front->reactor) + TOKEN_SWEEP_NS);
}

static void fall_asleep(struct front_token *front)
{
	reactor_timer_cancel(front->reactor, &front->sweep);
	reactor_poller_remove(front->reactor, &front->poller);
}

/* ---- Lives. ---- */

static void qp_free(struct token_qp *qp)
{
	struct front_token *front = qp->front;
	uint16_t share = qp->share;

	list_remove(&qp->link);
	rp_qp_close(qp->qp);
	if (qp->abandoned)
		region_target_free(front->opts.core->region, qp->target);
	rp_ah_close(qp->ah);
	magic_clear(&qp->magic);
	free(qp);
	counter_sub(&queue_pairs, 1);
	front->shared->qp_count--;
	front->shared->share_qps[share]--;
	if (--front->qp_count == 0)
		fall_asleep(front);
}

static bool place_try(struct front_token *front)
{
	if (front->qp_count + front->joining < front->queue_pairs_max) {
		if (atomic_fetch_add(&front->shared->qp_count, 1) < front->opts.queue_pairs_max) {
			front->joining++;
			return true;
		}
		front->shared->qp_count--;
	}
	return false;
}

/* A place that was taken and not used. */
static void place_give(struct front_token *front)
{
	front->joining--;
	front->shared->qp_count--;
}

/* Whether a principal's queue pair that nobody uses gives way to one for this share, which has
 * fewer: of those who have the most, the one that has been idle for longest. */
static bool most_evict(struct front_token *front, uint16_t share)
{
	const struct token_shared *shared = front->shared;
	uint32_t most = shared->share_qps[share] + 1;
	struct token_qp *found = NULL;

	LIST_FOR_EACH (link, &front->qps) {
		struct token_qp *qp = CONTAINER_OF(link, struct token_qp, link);
		uint32_t count = shared->share_qps[qp->share];

		if (!qp->share || qp->in_flight || qp->gone || count < most ||
			(count == most && (!found || qp->last_ns >= found->last_ns)))
			continue;
		found = qp;
		most = count;
	}
	if (found)
		token_qp_retire(found, "another principal, which has fewer, needs its place");
	return found != NULL;
}

/* An initiator that no request uses gives way to any principal's queue pair. */
static bool dci_evict(struct front_token *front)
{
	LIST_FOR_EACH (link, &front->qps) {
		struct token_qp *qp = CONTAINER_OF(link, struct token_qp, link);

		if (!qp->dc || qp->gone || qp->in_flight)
			continue;
		token_qp_retire(qp, "a principal's queue pair needs its place");
		return true;
	}
	return false;
}

/* A question to another front, which it answers on its own reactor. */
struct eviction {
	struct front_token *front;
	uint16_t share;
	bool done;
};

static void evict_main(void *arg)
{
	struct eviction *eviction = arg;

	eviction->done = token_session_evict(eviction->front) || dci_evict(eviction->front) ||
			 most_evict(eviction->front, eviction->share);
}

/* The maximum is of all fronts, and the clients' numbers choose the front: another one may have all
 * that gives way. Parks. */
static bool elsewhere_evict(struct front_token *front, uint16_t share)
{
	const struct token_shared *shared = front->shared;

	if (front->qp_count + front->joining >= front->queue_pairs_max)
		return false;
	for (uint32_t i = 1; i < shared->front_count; i++) {
		struct eviction eviction = {
			.front = shared->fronts[(front->idx + i) % shared->front_count],
			.share = share};

		if (!fiber_run_on(eviction.front->reactor, "token", evict_main, &eviction) &&
			eviction.done)
			return true;
	}
	return false;
}

/* Counts one more, which the caller enlists or uncounts; false: the maximum is reached. share 0:
 * nobody's yet. Otherwise it may park. */
static bool place_take(struct front_token *front, uint16_t share)
{
	if (place_try(front) || (token_session_evict(front) && place_try(front)) ||
		(share && dci_evict(front) && place_try(front)) ||
		(share && most_evict(front, share) && place_try(front)) ||
		(share && elsewhere_evict(front, share) && place_try(front)))
		return true;
	counter_add(&queue_pairs_full, 1);
	return false;
}

void token_qp_retire(struct token_qp *qp, const char *why)
{
	token_qp_check(qp);
	if (!qp->gone) {
		qp->gone = true;
		qp->gone_ns = reactor_now_ns(qp->front->reactor);
		if (qp->is_session && !qp->access_key[0])
			token_session_uncount(qp->front);
		log_info("token", "queue pair %06x of %s ends: %s", qp->peer.qpn,
			qp->access_key[0] ? qp->access_key : "an unproven session", why);
		rp_qp_error(qp->qp);
	}
	if (!qp->in_flight)
		qp_free(qp);
}

void token_qp_release(struct token_qp *qp)
{
	token_qp_check(qp);
	CHECK(qp->in_flight);
	qp->in_flight--;
	qp->last_ns = reactor_now_ns(qp->front->reactor);
	if (!qp->in_flight) {
		rp_ah_close(qp->ah);
		qp->ah = NULL;
	}
	if (qp->gone && !qp->in_flight)
		qp_free(qp);
}

void token_qp_share_set(struct token_qp *qp, uint16_t share)
{
	struct token_shared *shared = qp->front->shared;

	shared->share_qps[qp->share]--;
	qp->share = share;
	shared->share_qps[share]++;
}

bool token_qp_ready(struct token_qp *qp)
{
	uint64_t now_ns = reactor_now_ns(qp->front->reactor);
	enum rp_qp_state state;

	if (qp->proven_ns && !qp->front->state_is_free && now_ns - qp->proven_ns < TOKEN_PROVEN_NS)
		return true;
	state = rp_qp_state(qp->qp);
	if (state == RP_QPS_RTS)
		qp->proven_ns = now_ns;
	else if (state == RP_QPS_ERR)
		token_qp_retire(qp, "its client is gone");
	return state == RP_QPS_RTS;
}

struct token_qp *token_qp_find(
	struct front_token *front, const struct token *peer, const char *access_key)
{
	LIST_FOR_EACH (link, &front->qps) {
		struct token_qp *qp = CONTAINER_OF(link, struct token_qp, link);

		if (qp->gone || qp->dc || qp->is_session || !token_same_peer(&qp->peer, peer) ||
			strcmp(qp->access_key, access_key) != 0)
			continue;
		/* Queue pairs in use are at the front. */
		list_remove(&qp->link);
		list_push_front(&front->qps, &qp->link);
		return qp;
	}
	return NULL;
}

static int qp_open(struct token_qp *qp, struct front_token *front, enum rp_qp_type type)
{
	const struct rp_qp_attr attr = {
		.type = type,
		.send_cq = front->cq,
		.recv_cq = front->cq,
		.cap = {.max_send_wr = TOKEN_SEND_WRS,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.retry_count = front->opts.retry_count,
		.rnr_retry_count = front->opts.rnr_retry_count,
		.timeout_us = front->opts.ack_timeout_us,
		.context = qp,
	};
	int ret = rp_qp_open(front->opts.pd, &attr, &qp->qp);

	return ret ? ret : rp_qp_target(qp->qp, front->opts.core->region, &qp->target);
}

/* Connects it to *end; afterwards *end is our end. Parks. */
static int qp_meet(struct token_qp *qp, struct s3_token_end *end)
{
	struct rp_address theirs = {.has_gid = end->token.has_gid,
		.lid = end->token.lid,
		.qpn = end->token.qpn,
		.psn = end->psn,
		.mtu = end->mtu};
	struct rp_address ours;
	int ret;

	memcpy(theirs.gid, end->token.gid, sizeof(theirs.gid));
	ret = rp_qp_address(qp->qp, &ours);
	if (ret)
		return ret;
	if (!theirs.mtu)
		theirs.mtu = ours.mtu;
	ret = rp_qp_reach(qp->qp, &theirs);
	if (ret)
		return ret;
	*end = (struct s3_token_end){
		.token = {.lid = ours.lid, .qpn = ours.qpn, .has_gid = ours.has_gid},
		.psn = ours.psn,
		.mtu = MIN(ours.mtu, theirs.mtu)};
	memcpy(end->token.gid, ours.gid, sizeof(ours.gid));
	return 0;
}

static void qp_enlist(struct token_qp *qp)
{
	struct front_token *front = qp->front;

	list_push_back(&front->qps, &qp->link);
	counter_add(&queue_pairs, 1);
	front->joining--;
	front->shared->share_qps[qp->share]++;
	if (front->qp_count++ == 0)
		wake_up(front);
}

static struct token_qp *dci_open(struct front_token *front)
{
	struct token_qp *qp;

	if (!front->has_dc || !place_take(front, 0))
		return NULL;
	qp = calloc(1, sizeof(*qp));
	if (!qp) {
		place_give(front);
		return NULL;
	}
	qp->magic = TOKEN_QP_MAGIC;
	qp->front = front;
	qp->dc = true;
	qp->last_ns = reactor_now_ns(front->reactor);
	snprintf(qp->access_key, sizeof(qp->access_key), "DC");
	if (qp_open(qp, front, RP_QP_DCI)) {
		place_give(front);
		rp_qp_close(qp->qp);
		free(qp);
		return NULL;
	}
	qp_enlist(qp);
	return qp;
}

static struct token_qp *dci_idle(struct front_token *front)
{
	LIST_FOR_EACH (link, &front->qps) {
		struct token_qp *qp = CONTAINER_OF(link, struct token_qp, link);

		if (qp->dc && !qp->gone && !qp->in_flight)
			return qp;
	}
	return dci_open(front);
}

struct token_qp *token_dci_lease(struct front_token *front, const struct token *target)
{
	struct rp_address to = {.lid = target->lid, .has_gid = target->has_gid};
	struct token_qp *qp = front->has_dc ? dci_idle(front) : NULL;
	int ret;

	if (!qp)
		return NULL;
	qp->in_flight++;
	memcpy(to.gid, target->gid, sizeof(to.gid));
	ret = rp_ah_reach(front->opts.pd, &to, &qp->ah);
	if (ret == 0)
		ret = rp_dci_aim(qp->qp, qp->ah, target->qpn, front->opts.dc_key);
	if (ret == 0)
		return qp;
	log_info("token", "cannot reach DC target %06x: %s", target->qpn, strerror(-ret));
	token_qp_release(qp);
	return NULL;
}

struct owner {
	const char *access_key; /* "": nobody yet */
	uint16_t share;
};

/* A client that connects again with the same number no longer uses the old queue pair. */
static void former_retire(
	struct front_token *front, const struct owner *owner, const struct token *peer)
{
	struct token_qp *qp = token_qp_find(front, peer, owner->access_key);

	if (qp)
		token_qp_retire(qp, "its client connects it again");
}

static int join(struct front_token *front, const struct owner *owner, struct s3_token_end *end,
	struct token_qp **ret_qp)
{
	struct token_qp *qp;
	int ret;

	former_retire(front, owner, &end->token);
	if (!place_take(front, owner->share))
		return -ENOSPC;
	qp = calloc(1, sizeof(*qp));
	if (!qp) {
		place_give(front);
		return -ENOMEM;
	}
	qp->magic = TOKEN_QP_MAGIC;
	qp->front = front;
	qp->peer = end->token;
	qp->share = owner->share;
	qp->last_ns = reactor_now_ns(front->reactor);
	snprintf(qp->access_key, sizeof(qp->access_key), "%s", owner->access_key);
	ret = qp_open(qp, front, RP_QP_RC);
	if (ret == 0)
		ret = qp_meet(qp, end);
	if (ret) {
		log_info("token", "queue pair %06x of '%s' is not connected: %s", qp->peer.qpn,
			qp->access_key, strerror(-ret));
		place_give(front);
		rp_qp_close(qp->qp);
		free(qp);
		return ret;
	}
	/* Another request may have connected this number meanwhile. */
	former_retire(front, owner, &qp->peer);
	qp_enlist(qp);
	counter_add(&joined_total, 1);
	log_debug("token", "queue pair %06x of '%s' is connected to the server's %06x",
		qp->peer.qpn, qp->access_key, end->token.qpn);
	*ret_qp = qp;
	return 0;
}

int token_qp_join(struct front_token *front, const struct s3_identity *identity, uint16_t share,
	struct s3_token_end *end)
{
	const struct owner owner = {.access_key = identity->access_key, .share = share};
	struct token_qp *qp;

	return join(front, &owner, end, &qp);
}

int token_qp_join_session(
	struct front_token *front, struct s3_token_end *end, struct token_qp **ret_qp)
{
	const struct owner nobody = {.access_key = ""};
	int ret = join(front, &nobody, end, ret_qp);

	if (ret == 0)
		(*ret_qp)->is_session = true;
	return ret;
}

/* ---- The sweep. ---- */

static void sweep_jobs(struct front_token *front, uint64_t now_ns)
{
	LIST_FOR_EACH_SAFE (link, &front->jobs) {
		struct token_job *job = CONTAINER_OF(link, struct token_job, link);

		if (now_ns < token_job_deadline_ns(job) || !job->qp || job->qp->gone)
			continue;
		/* Its client is about to reuse the memory. */
		job->token.failed = true;
		token_qp_retire(job->qp, "a transfer takes too long");
	}
}

/* Its requests do not end: they wait for a device that flushes nothing, or for the store, and may
 * post more. So the target's number is kept. */
static void qp_abandon(struct token_qp *qp)
{
	log_warn("token",
		"queue pair %06x of %s: %u requests on it have not ended; it is closed "
		"nevertheless",
		qp->peer.qpn, qp->access_key, qp->in_flight);
	region_target_keep(qp->front->opts.core->region, qp->target);
	qp->abandoned = true;
	rp_qp_close(qp->qp);
	qp->qp = NULL;
}

static void sweep_qps(struct front_token *front, uint64_t now_ns)
{
	uint32_t idx = 0;

	LIST_FOR_EACH_SAFE (link, &front->qps) {
		struct token_qp *qp = CONTAINER_OF(link, struct token_qp, link);
		bool look = idx++ - front->look_at < TOKEN_LOOKS_MAX;

		if (qp->gone && !qp->abandoned && now_ns - qp->gone_ns > RP_FLUSH_NS)
			qp_abandon(qp);
		if (qp->in_flight || qp->gone)
			continue;
		if (qp->is_session && !qp->access_key[0] &&
			now_ns - qp->last_ns > TOKEN_UNPROVEN_NS)
			token_qp_retire(qp, "no signed request names it");
		else if (front->opts.idle_timeout_ns &&
			 now_ns - qp->last_ns > front->opts.idle_timeout_ns)
			token_qp_retire(qp, "it is idle");
		else if (look)
			token_qp_ready(qp);
	}
	front->look_at += TOKEN_LOOKS_MAX;
	if (front->look_at >= idx)
		front->look_at = 0;
}

static void sweep(struct reactor_timer *timer, void *arg)
{
	struct front_token *front = arg;
	uint64_t now_ns = reactor_now_ns(front->reactor);

	sweep_jobs(front, now_ns);
	sweep_qps(front, now_ns);
	if (front->qp_count)
		reactor_timer_set(front->reactor, timer, now_ns + TOKEN_SWEEP_NS);
}

/* ---- Opening and closing. ---- */

/* Neighbouring numbers go to different reactors: clients open queue pairs with successive
 * numbers. */
struct front_token *token_home(const struct front_token *front, const struct token *peer)
{
	const struct token_shared *shared = front->shared;
	uint32_t sum = peer->qpn + peer->lid;

	for (size_t i = 0; i < sizeof(peer->gid); i++)
		sum += peer->gid[i];
	return shared->fronts[sum % shared->front_count];
}

static int shared_join(struct front_token *front, struct front_token *first)
{
	struct token_shared *shared = first ? first->shared : calloc(1, sizeof(*shared));

	if (!shared)
		return -ENOMEM;
	CHECK(shared->front_count < LIMIT_CORES_MAX);
	front->idx = shared->front_count;
	shared->fronts[shared->front_count++] = front;
	front->shared = shared;
	return 0;
}

static void shared_leave(struct token_shared *shared)
{
	if (shared && --shared->front_count == 0)
		free(shared);
}

int front_token_open(const struct front_token_opts *opts, struct front_token **ret_front)
{
	struct rp_device_attr attr;
	struct front_token *front;
	uint64_t entries;
	int ret;

	if (opts->queue_pairs_max < 1 || opts->queue_pairs_max > LIMIT_TOKEN_QUEUE_PAIRS_MAX)
		return -EINVAL;
	front = calloc(1, sizeof(*front));
	if (!front)
		return -ENOMEM;
	front->opts = *opts;
	front->reactor = opts->core->reactor;
	list_init(&front->qps);
	list_init(&front->jobs);
	rp_device_attr(opts->device, &attr);
	front->has_dc = attr.qp_types & (1u << RP_QP_DCI);
	front->state_is_free = attr.simulated;
	entries = MIN((uint64_t)opts->queue_pairs_max * (TOKEN_SEND_WRS + 1),
		MIN(attr.max_cqe, CQ_ENTRIES_MAX));
	front->queue_pairs_max = (uint32_t)(entries / (TOKEN_SEND_WRS + 1));
	if (front->queue_pairs_max < opts->queue_pairs_max)
		log_warn("token", "%s: a completion queue of %u entries holds %u queue pairs",
			attr.name, (uint32_t)entries, front->queue_pairs_max);
	ret = rp_cq_open(opts->device, (uint32_t)entries, &front->cq);
	if (ret == 0)
		ret = shared_join(front, opts->first);
	if (ret) {
		rp_cq_close(front->cq);
		free(front);
		return ret;
	}
	front->poller = (struct reactor_poller){.name = "token",
		.poll = token_poll,
		.arm = token_arm,
		.disarm = token_disarm,
		.arg = front,
		.event_fd = rp_cq_fd(front->cq)};
	front->sweep = (struct reactor_timer){.fn = sweep, .arg = front};
	*ret_front = front;
	return 0;
}

void front_token_drain(struct front_token *front)
{
	CHECK(list_empty(&front->jobs));
	LIST_FOR_EACH_SAFE (link, &front->qps)
		token_qp_retire(CONTAINER_OF(link, struct token_qp, link), "the server stops");
}

void front_token_close(struct front_token *front)
{
	if (!front)
		return;
	CHECK(list_empty(&front->qps));
	rp_cq_close(front->cq);
	shared_leave(front->shared);
	free(front);
}
