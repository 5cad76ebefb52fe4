/* front/hipobj/move.c: a session's bytes, while its READY is unanswered. A read is written to the
 * client's memory, and the cookie goes behind it as an immediate. A write is in the staging memory
 * when the client's immediate arrives. The immediate must be the cookie, and its length the whole
 * body's. */
#include "front/hipobj/hipobj_priv.h"

#include <errno.h>

static int fail(struct hipobj_job *job, int ret)
{
	int error = job->session->error;

	job->token.failed = true;
	/* The sweep, or a client that cancels, may have ended the transfer: then the session has
	 * the reason. */
	return error == -ETIMEDOUT ? error : ret;
}

/* Waits for the session's immediate, in or out. */
static int wait_immediate(struct hipobj_session *session, const bool *done)
{
	session->waiter = fiber_self();
	while (!*done && !session->error)
		fiber_park();
	session->waiter = NULL;
	return *done ? 0 : session->error;
}

/* ---- The body of a write. ---- */

static int body_arrives(struct hipobj_job *job)
{
	struct hipobj_session *session = job->session;
	int ret = wait_immediate(session, &session->arrived);

	if (ret == 0 && (session->immediate != session->cookie ||
				session->immediate_bytes != session->size))
		ret = -EPROTO;
	/* From here on the client cannot change the bytes that are read. */
	hipobj_session_close_window(session);
	if (ret)
		return ret;
	return flow_memory_source_open(job->front->opts.core,
		slice_of((const char *)session->staged, session->size), &job->inner_source);
}

static int source_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct hipobj_job *job = CONTAINER_OF(source, struct hipobj_job, source);
	int ret = job->inner_source ? 0 : body_arrives(job);

	if (ret)
		return fail(job, ret);
	job->inner_source->share = source->share;
	ret = flow_source_next(job->inner_source, bytes_max, ret_piece);
	if (ret > 0) {
		job->crc64 = crc64nvme_update(job->crc64, ret_piece->data, ret_piece->bytes);
		job->bytes_moved += ret_piece->bytes;
	}
	return ret;
}

static void source_close(struct flow_source *source)
{
	struct hipobj_job *job = CONTAINER_OF(source, struct hipobj_job, source);

	if (job->inner_source)
		flow_source_close(job->inner_source);
	job->inner_source = NULL;
}

static const struct flow_source_ops SOURCE_OPS = {
	.name = "hipobj", .next = source_next, .close = source_close};

static int body_open(struct s3_body *body, const struct s3_chunk_signing *signing,
	struct flow_source **ret_source)
{
	struct hipobj_job *job = CONTAINER_OF(body, struct hipobj_job, body);

	(void)signing;
	if (!job->session || !job->session->put)
		return -EOPNOTSUPP;
	job->crc64 = 0;
	job->source = (struct flow_source){.magic = FLOW_SOURCE_MAGIC,
		.ops = &SOURCE_OPS,
		.core = job->front->opts.core,
		.bytes_total = body->bytes,
		.deadline_ns = DEADLINE_NONE};
	*ret_source = &job->source;
	return 0;
}

const struct s3_body_ops hipobj_body_ops = {.open = body_open, .trailer = s3_body_no_trailer};

/* ---- The answer of a read. ---- */

static int sink_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct hipobj_job *job = CONTAINER_OF(sink, struct hipobj_job, sink);
	uint32_t bytes = piece->bytes;
	int ret;

	job->crc64 = crc64nvme_update(job->crc64, piece->data, bytes);
	job->inner_sink->share = sink->share;
	ret = flow_sink_push(job->inner_sink, piece);
	if (ret)
		return fail(job, ret);
	job->bytes_moved += bytes;
	return 0;
}

/* The immediate follows the bytes on the same queue pair: when it arrives, all bytes have arrived.
 */
static int send_immediate(struct hipobj_job *job)
{
	struct hipobj_session *session = job->session;
	const struct rp_send_wr wr = {.wr_id = session->serial,
		.opcode = RP_WRITE_IMM,
		.flags = RP_SEND_SIGNALED,
		.imm = session->cookie,
		.remote_addr = job->run.addr,
		.rkey = job->run.rkey};
	uint32_t posted;
	int ret = session->error ? session->error : rp_post_send(session->qp, &wr, 1, &posted);

	return ret ? ret : wait_immediate(session, &session->sent);
}

static int sink_finish(struct flow_sink *sink, bool gave_up)
{
	struct hipobj_job *job = CONTAINER_OF(sink, struct hipobj_job, sink);
	int ret = flow_sink_finish(job->inner_sink, gave_up);

	if (!ret && !gave_up)
		ret = send_immediate(job);
	return ret ? fail(job, ret) : 0;
}

static const struct flow_sink_ops SINK_OPS = {
	.name = "hipobj", .push = sink_push, .finish = sink_finish};

static int reply_sink(struct s3_reply *reply, struct flow_sink **ret_sink)
{
	struct hipobj_job *job = CONTAINER_OF(reply, struct hipobj_job, kept.reply);
	struct flow_core *core = job->front->opts.core;
	int ret;

	hipobj_job_check(job);
	if (!job->session || job->session->put)
		return -EOPNOTSUPP;
	ret = flow_rdma_sink_open(core, &job->peer, job->run.bytes, &job->inner_sink);
	if (ret)
		return ret;
	job->crc64 = 0;
	job->inner_sink->deadline_ns = hipobj_session_deadline_ns(job->session);
	job->sink = (struct flow_sink){.magic = FLOW_SINK_MAGIC,
		.ops = &SINK_OPS,
		.core = core,
		.deadline_ns = hipobj_session_deadline_ns(job->session)};
	*ret_sink = &job->sink;
	return 0;
}

const struct s3_reply_ops hipobj_reply_ops = {
	.head = kept_reply_head, .text = kept_reply_text, .sink = reply_sink};
