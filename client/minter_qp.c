/* client/minter_qp.c: a minter's queue pairs. A card does not learn that the other end of a
 * connected queue pair is gone, and the server would decline its tokens for ever. So this file
 * checks a queue pair before each token. */
#include "minter_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define CROWDED_NS (10 * NS_PER_S)
#define END_NS	   (1 * NS_PER_S)

void minter_progress(struct neb_minter *minter)
{
	struct rp_cm_event event;
	struct rp_wc wc;

	while (rp_cm_poll(minter->device, &event) > 0)
		continue;
	while (rp_cq_poll(minter->cq, &wc, 1) > 0)
		continue;
}

void minter_qp_close(struct neb_minter *minter, struct minter_qp *mqp)
{
	rp_qp_close(mqp->qp);
	mqp->qp = NULL;
	mqp->phase = MINTER_CLOSED;
	mqp->life++;
	mqp->token_count = 0;
	pthread_cond_broadcast(&minter->changed);
}

/* ---- Checks of queue pairs. ---- */

/* Sends an empty RDMA WRITE, which the other end's device acknowledges without its processor.
 * Returns at the latest when the transport's retries are used up. */
static bool is_alive(struct neb_minter *minter, struct minter_qp *mqp)
{
	const struct rp_send_wr wr = {.wr_id = (uint64_t)(mqp - minter->qps),
		.opcode = RP_WRITE,
		.flags = RP_SEND_SIGNALED};
	uint64_t until_ns = clock_now_ns() + minter->control->connect_timeout_ns;
	struct rp_wc wc;
	uint32_t posted;

	if (rp_post_send(mqp->qp, &wr, 1, &posted))
		return false;
	while (clock_now_ns() < until_ns) {
		int count = rp_cq_poll(minter->cq, &wc, 1);

		if (count < 0)
			return false;
		if (count > 0 && wc.wr_id == wr.wr_id)
			return wc.status == RP_WC_SUCCESS;
	}
	return false;
}

static bool is_up(struct neb_minter *minter, struct minter_qp *mqp)
{
	if (mqp->phase != MINTER_UP)
		return false;
	/* On the simulated device both ends share the state. */
	if (rp_qp_state(mqp->qp) == RP_QPS_RTS && (minter->simulated || is_alive(minter, mqp)))
		return true;
	client_log(minter->control, NEB_LOG_INFO, "a queue pair for RDMA tokens broke");
	minter_qp_close(minter, mqp);
	return false;
}

/* The connected queue pair with the fewest tokens, or NULL. */
static struct minter_qp *qp_best(struct neb_minter *minter)
{
	struct minter_qp *best = NULL;

	for (uint32_t i = 0; i < MINTER_QPS_MAX; i++) {
		struct minter_qp *mqp = &minter->qps[i];

		if (mqp->phase == MINTER_UP && (!best || mqp->token_count < best->token_count))
			best = mqp;
	}
	return !best || is_up(minter, best) ? best : qp_best(minter);
}

static struct minter_qp *qp_closed(struct neb_minter *minter)
{
	for (uint32_t i = 0; i < MINTER_QPS_MAX; i++)
		if (minter->qps[i].phase == MINTER_CLOSED)
			return &minter->qps[i];
	return NULL;
}

/* ---- Connecting. ---- */

static int qp_open(struct neb_minter *minter, struct minter_qp *mqp)
{
	const struct rp_qp_attr attr = {.type = RP_QP_RC,
		.send_cq = minter->cq,
		.recv_cq = minter->cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1},
		.retry_count = 7,
		.rnr_retry_count = 7};
	int ret = rp_qp_open(minter->domain.pd, &attr, &mqp->qp);

	if (ret == 0)
		ret = rp_qp_address(mqp->qp, &mqp->ours);
	return ret;
}

/* The errno of an answer that is not 200. Servers without this request refuse it in many ways. */
static int answer_error(const struct neb_result *result)
{
	if (result->status == 0 || result->status == 503)
		return result->error ? result->error : -EPROTO;
	return result->status == 401 || result->status == 403 ? -EACCES : -EOPNOTSUPP;
}

static int qp_ask(const struct neb_minter *minter, const struct rp_address *ours,
	struct rp_address *ret_theirs, char why[MINTER_WHY_BYTES])
{
	struct neb_client *control = minter->control;
	struct client_token_ask ask;
	struct neb_result result;
	int ret;

	client_token_ask(&ask, "POST", ours, minter->bucket);
	ask.request.timeout_ns = control->connect_timeout_ns;
	neb_perform(control, &ask.request, &result);
	if (result.status == 200) {
		ret = client_token_answer(&result, ret_theirs);
		if (ret)
			snprintf(why, MINTER_WHY_BYTES,
				"the endpoint's answer to ?rdma-connect names no queue pair");
		return ret;
	}
	ret = answer_error(&result);
	snprintf(why, MINTER_WHY_BYTES, "the endpoint connects no queue pair: %.64s%s",
		result.code[0] ? result.code : strerror(-ret),
		ret == -EOPNOTSUPP ? " (it may not know ?rdma-connect)" : "");
	return ret;
}

static void wait_until(struct neb_minter *minter, uint64_t until_ns)
{
	const struct timespec until = {
		.tv_sec = (time_t)(until_ns / NS_PER_S), .tv_nsec = (long)(until_ns % NS_PER_S)};

	pthread_cond_timedwait(&minter->changed, &minter->lock, &until);
}

static int qp_join(
	struct neb_minter *minter, struct minter_qp *mqp, const struct rp_address *theirs)
{
	uint64_t until_ns = clock_now_ns() + minter->control->connect_timeout_ns;
	int ret = rp_qp_join(mqp->qp, theirs, false);

	/* On a card it is already in RTS; on the simulated device the thread moves it there. */
	while (ret == 0 && minter->simulated && rp_qp_state(mqp->qp) < RP_QPS_RTS &&
		clock_now_ns() < until_ns)
		wait_until(minter, until_ns);
	if (ret == 0 && rp_qp_state(mqp->qp) != RP_QPS_RTS)
		ret = -ECONNREFUSED;
	if (ret)
		snprintf(minter->why, sizeof(minter->why), "the queue pair is not connected: %s",
			strerror(-ret));
	return ret;
}

static int qp_connect(struct neb_minter *minter, struct minter_qp *mqp)
{
	struct rp_address theirs;
	int ret = qp_open(minter, mqp);

	if (ret) {
		snprintf(minter->why, sizeof(minter->why), "no queue pair: %s", strerror(-ret));
	} else {
		struct rp_address ours = mqp->ours;
		char why[MINTER_WHY_BYTES] = "";

		mqp->phase = MINTER_ASKED;
		pthread_mutex_unlock(&minter->lock);
		ret = qp_ask(minter, &ours, &theirs, why);
		pthread_mutex_lock(&minter->lock);
		memcpy(minter->why, why, sizeof(why));
	}
	if (ret == 0)
		ret = qp_join(minter, mqp, &theirs);
	if (ret)
		minter_qp_close(minter, mqp);
	else
		mqp->phase = MINTER_UP;
	return ret;
}

/* Waits for another thread's attempt; returns its error. */
static int attempt_wait(struct neb_minter *minter)
{
	uint32_t attempts = minter->attempts;

	while (minter->connecting && minter->attempts == attempts)
		pthread_cond_wait(&minter->changed, &minter->lock);
	return minter->attempt_error;
}

static int attempt(struct neb_minter *minter, struct minter_qp *mqp)
{
	int ret;

	minter->connecting = true;
	ret = qp_connect(minter, mqp);
	minter->connecting = false;
	minter->attempts++;
	minter->attempt_error = ret;
	pthread_cond_broadcast(&minter->changed);
	if (ret)
		minter->crowded_ns = clock_now_ns() + CROWDED_NS;
	return ret;
}

int minter_qp_take(struct neb_minter *minter, struct minter_qp **ret_mqp)
{
	for (;;) {
		struct minter_qp *best = qp_best(minter), *fresh = qp_closed(minter);
		int ret;

		if (best && (!best->token_count || !fresh || minter->connecting ||
				    clock_now_ns() < minter->crowded_ns)) {
			*ret_mqp = best;
			return 0;
		}
		if (minter->connecting)
			ret = attempt_wait(minter);
		else
			ret = attempt(minter, fresh);
		if (ret && !qp_best(minter))
			return ret;
	}
}

/* ---- The end. ---- */

static void qp_disconnect(struct neb_minter *minter, const struct rp_address *ours)
{
	struct client_token_ask ask;
	struct neb_result result;

	client_token_ask(&ask, "DELETE", ours, minter->bucket);
	ask.request.timeout_ns = MIN(minter->control->connect_timeout_ns, END_NS);
	neb_perform(minter->control, &ask.request, &result);
}

void minter_qps_end(struct neb_minter *minter)
{
	for (uint32_t i = 0; i < MINTER_QPS_MAX; i++) {
		struct minter_qp *mqp = &minter->qps[i];
		struct rp_address ours = mqp->ours;
		bool was_up;

		pthread_mutex_lock(&minter->lock);
		was_up = mqp->phase == MINTER_UP && rp_qp_state(mqp->qp) == RP_QPS_RTS;
		if (mqp->qp)
			minter_qp_close(minter, mqp);
		pthread_mutex_unlock(&minter->lock);
		/* The server's end keeps its place until its idle timeout. Only with a card the
		 * server must be told; on the simulated device it notices the close. */
		if (was_up && !minter->simulated)
			qp_disconnect(minter, &ours);
	}
}
