/* front/token/session.c: sessions: queue pairs that anybody may connect by an unsigned request, as
 * elbencho's library does, and that a token names by the session's id. A session belongs to the
 * access key of the first signed request that names it. docs/spec/elbencho.md. */
#include "front/token/token_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

DEFINE_COUNTER_FULL(unproven_full, "token_sessions_unproven");
DEFINE_COUNTER(unproven_now, "nebulaio_token_sessions_unproven", NULL,
	"Sessions for RDMA tokens that no signed request has named yet.");

/* One request. Phases: made on the reactor that received it → running on the session's → back. The
 * fiber that made it waits meanwhile. */
#define SESSION_JOB_MAGIC 0x70ce5e55u
struct session_job {
	uint32_t magic; /* until it is answered */
	struct front_token *front;
	enum elbencho_step step;
	struct hipobj_request asked;
	struct s3_request request;
	struct s3_control control;
	struct token_qp *qp; /* connected */
	struct s3_token_end end;
	uint8_t session[HIPOBJ_SESSION_BYTES];
	struct kept_reply kept;
};

static struct session_job *job_of(struct s3_control *control)
{
	struct session_job *job = CONTAINER_OF(control, struct session_job, control);

	CHECK(job->magic == SESSION_JOB_MAGIC);
	return job;
}

/* ---- Sessions. ---- */

struct front_token *token_session_home(
	const struct front_token *front, const uint8_t id[HIPOBJ_SESSION_BYTES])
{
	return front->shared->fronts[id[0] % front->shared->front_count];
}

static struct token_qp *session_find(
	struct front_token *front, const uint8_t id[HIPOBJ_SESSION_BYTES])
{
	LIST_FOR_EACH (link, &front->qps) {
		struct token_qp *qp = CONTAINER_OF(link, struct token_qp, link);

		if (qp->is_session && !qp->gone &&
			memcmp(qp->session, id, sizeof(qp->session)) == 0)
			return qp;
	}
	return NULL;
}

void token_session_uncount(struct front_token *front)
{
	CHECK(front->unproven_count > 0);
	front->unproven_count--;
	counter_sub(&unproven_now, 1);
}

struct token_qp *token_session_claim(struct front_token *front,
	const uint8_t id[HIPOBJ_SESSION_BYTES], const char *access_key, uint16_t share)
{
	struct token_qp *qp = session_find(front, id);

	if (!qp)
		return NULL;
	if (!qp->access_key[0]) {
		snprintf(qp->access_key, sizeof(qp->access_key), "%s", access_key);
		token_session_uncount(front);
		token_qp_share_set(qp, share);
	}
	return strcmp(qp->access_key, access_key) == 0 ? qp : NULL;
}

/* Sessions that are claimed may be anywhere in the list, but new ones are at its end. */
bool token_session_evict(struct front_token *front)
{
	LIST_FOR_EACH (link, &front->qps) {
		struct token_qp *qp = CONTAINER_OF(link, struct token_qp, link);

		if (!qp->is_session || qp->gone || qp->access_key[0])
			continue;
		counter_add(&unproven_full, 1);
		token_qp_retire(qp, "another one needs its place");
		return true;
	}
	return false;
}

/* ---- The two requests. ---- */

/* Counts one more, which its client connects now; false: those that are being connected are the
 * maximum. */
static bool unproven_take(struct front_token *front)
{
	uint32_t unproven_max = front->opts.queue_pairs_max / TOKEN_UNPROVEN_PARTS;

	if (front->unproven_count >= MAX(unproven_max / front->shared->front_count, 1u) &&
		!token_session_evict(front))
		return false;
	front->unproven_count++;
	counter_add(&unproven_now, 1);
	return true;
}

static const char *session_connect(struct session_job *job)
{
	static const uint8_t NONE[16] = {0};
	struct front_token *front = job->front;
	const struct hipobj_token *peer = &job->asked.token;
	bool counted = unproven_take(front);
	struct token_qp *qp;
	int ret;

	job->end = (struct s3_token_end){
		.token = {.lid = peer->lid,
			.qpn = peer->qpn,
			.has_gid = memcmp(peer->gid, NONE, sizeof(NONE)) != 0},
		.psn = job->asked.psn};
	memcpy(job->end.token.gid, peer->gid, sizeof(peer->gid));
	ret = counted ? token_qp_join_session(front, &job->end, &qp) : -ENOSPC;
	if (ret && counted)
		token_session_uncount(front);
	if (ret) {
		bool full = ret == -ENOSPC || ret == -ENOMEM;

		job->control.why =
			full ? "The server's maximum number of queue pairs is reached."
			     : "The server's device cannot reach the token's queue pair.";
		return full ? "SlowDown" : "InvalidRDMAToken";
	}
	random_fill(qp->session, sizeof(qp->session));
	qp->session[0] = (uint8_t)front->idx;
	memcpy(job->session, qp->session, sizeof(job->session));
	job->qp = qp;
	return NULL;
}

static void session_end(
	struct front_token *front, const uint8_t id[HIPOBJ_SESSION_BYTES], const char *why)
{
	struct token_qp *qp = session_find(front, id);

	if (qp)
		token_qp_retire(qp, why);
}

static const char *job_run(struct s3_control *control, const struct s3_identity *identity)
{
	struct session_job *job = job_of(control);

	(void)identity;
	if (job->step == ELBENCHO_CONNECT)
		return session_connect(job);
	/* The id is its client's secret: it entitles a request to end the transfers of the session.
	 */
	session_end(job->front, job->asked.session, "its client disconnects it");
	return NULL;
}

static const struct s3_control_ops CONTROL_OPS = {.run = job_run};

static int reply_sink(struct s3_reply *reply, struct flow_sink **ret_sink)
{
	(void)reply;
	(void)ret_sink;
	return -EOPNOTSUPP;
}

static const struct s3_reply_ops REPLY_OPS = {
	.head = kept_reply_head, .text = kept_reply_text, .sink = reply_sink};

static int answer_end(struct session_job *job)
{
	char reply[4 + HIPOBJ_TOKEN_LEN] = "200:", id[2 * HIPOBJ_SESSION_BYTES], psn[16];
	struct hipobj_token token = {.transport = HIPOBJ_TRANSPORT_RC,
		.qpn = job->end.token.qpn,
		.lid = job->end.token.lid,
		.port = 1};
	int len = snprintf(psn, sizeof(psn), "%06x", job->end.psn);
	int ret;

	memcpy(token.gid, job->end.token.gid, sizeof(token.gid));
	hipobj_token_format(&token, reply + 4);
	hex_encode(job->session, sizeof(job->session), id);
	ret = kept_reply_header(
		&job->kept, hipobj_header(HIPOBJ_H_SESSION), slice_of(id, sizeof(id)));
	if (ret == 0)
		ret = kept_reply_header(
			&job->kept, hipobj_header(HIPOBJ_H_REPLY), slice_of(reply, sizeof(reply)));
	if (ret == 0)
		ret = kept_reply_header(
			&job->kept, hipobj_header(HIPOBJ_H_PSN), slice_of(psn, (size_t)len));
	return ret;
}

static void job_main(void *arg)
{
	struct session_job *job = arg;
	struct s3_reply *reply = &job->kept.reply;

	CHECK(job->magic == SESSION_JOB_MAGIC);
	s3_handle(job->front->opts.s3, &job->request, reply);
	if (!job->qp)
		return;
	if (!reply->broken && answer_end(job))
		reply->broken = true;
	/* A client that was not told the session's id cannot name it. */
	if (reply->broken)
		session_end(job->front, job->session, "its client got no answer");
}

/* ---- At home. ---- */

bool front_token_session_wanted(const struct s3_request *request)
{
	enum elbencho_step step;

	return request->method == S3_POST && !request->query.len &&
	       elbencho_step_of(request->path, &step) == 0;
}

static void job_init(
	struct session_job *job, struct front_token *front, const struct s3_request *message)
{
	memset(job, 0, offsetof(struct session_job, kept));
	job->magic = SESSION_JOB_MAGIC;
	job->front = front;
	elbencho_step_of(message->path, &job->step);
	for (uint32_t i = 0; i < message->header_count; i++)
		hipobj_take(&job->asked, message->headers[i].name, message->headers[i].value);
	job->control = (struct s3_control){.ops = &CONTROL_OPS,
		.step = job->step == ELBENCHO_CONNECT ? S3_CONTROL_CONNECT : S3_CONTROL_DISCONNECT,
		.has_body = message->body && message->body->bytes,
		.why = elbencho_check(&job->asked, job->step)};
	job->control.code = job->control.why ? "InvalidRDMARequest" : NULL;
	job->request = *message;
	job->request.body = NULL;
	job->request.control = &job->control;
	kept_reply_init(&job->kept, &REPLY_OPS);
	if (!front || !front->opts.elbencho) {
		job->control.code = "NotImplemented";
		job->control.why = "This server serves no sessions for RDMA tokens "
				   "(rdma.token_elbencho, rdma.encryption).";
		return;
	}
	if (job->step == ELBENCHO_DISCONNECT && !job->control.code)
		job->front = token_session_home(front, job->asked.session);
	job->request.core = job->front->opts.core;
}

void front_token_session_handle(struct front_token *front, struct s3 *s3,
	const struct s3_request *request, struct s3_reply *reply)
{
	struct session_job *job = malloc(sizeof(*job));

	if (!job) {
		reply->broken = true;
		return;
	}
	job_init(job, front, request);
	if (job->control.code) {
		s3_handle(s3, &job->request, reply);
	} else if (fiber_run_on(job->front->reactor, "token", job_main, job)) {
		reply->broken = true;
		reply->error = -EHOSTDOWN;
	} else {
		kept_reply_answer(&job->kept, reply);
	}
	kept_reply_free(&job->kept);
	magic_clear(&job->magic);
	free(job);
}
