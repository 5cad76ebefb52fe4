/* front/token/request.c: a request with an RDMA token. It runs on the reactor that has the queue
 * pairs. Its bytes move between the client's window and the same ends of flow as a native
 * session's. Its answer, a head without a body, goes back to the connection of the request. */
#include "front/token/token_priv.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUESTS      "nebulaio_token_requests_total"
#define REQUESTS_HELP "Requests with an RDMA token, by how they ended."
#define BYTES	      "nebulaio_token_bytes_total"
#define BYTES_HELP    "Bytes moved for requests with an RDMA token."
DEFINE_COUNTER(moved, REQUESTS, "result=\"moved\"", REQUESTS_HELP);
DEFINE_COUNTER(declined, REQUESTS, "result=\"declined\"", REQUESTS_HELP);
DEFINE_COUNTER(refused, REQUESTS, "result=\"refused\"", REQUESTS_HELP);
DEFINE_COUNTER(failed, REQUESTS, "result=\"failed\"", REQUESTS_HELP);
DEFINE_COUNTER(bytes_in, BYTES, "direction=\"in\"", BYTES_HELP);
DEFINE_COUNTER(bytes_out, BYTES, "direction=\"out\"", BYTES_HELP);

/* ---- Admission. ---- */

static struct token_job *job_of(struct s3_token *token)
{
	struct token_job *job = CONTAINER_OF(token, struct token_job, token);

	token_job_check(job);
	return job;
}

static int job_admit(struct s3_token *token, const struct s3_identity *identity)
{
	struct token_job *job = job_of(token);
	struct front_token *front = job->front;
	struct token_qp *qp = job->is_session
				      ? token_session_claim(front, job->session,
						identity->access_key, token->share)
				      : token_qp_find(front, &token->window, identity->access_key);

	if (!qp && !job->is_session)
		qp = token_dci_lease(front, &token->window);
	else if (qp && token_qp_ready(qp))
		qp->in_flight++;
	else
		qp = NULL;
	if (!qp) {
		job->declined =
			job->is_session
				? "The token's session is not connected to this server, or is of "
				  "another access key."
				: "The token's queue pair is not connected to this server.";
		return -EOPNOTSUPP;
	}
	job->qp = qp;
	job->deadline_ns = reactor_now_ns(front->reactor) + front->opts.transfer_timeout_ns;
	list_push_back(&front->jobs, &job->link);
	job->run = (struct flow_remote){.addr = token->window.addr,
		.bytes = token->window.bytes,
		.rkey = token->window.rkey};
	job->peer = (struct flow_peer){.target = qp->target,
		.lkeys = front->opts.lkeys,
		.runs = &job->run,
		.run_count = 1};
	return 0;
}

static int job_connect(
	struct s3_token *token, const struct s3_identity *identity, struct s3_token_end *end)
{
	struct token_job *job = job_of(token);

	return job->is_session ? -EINVAL : token_qp_join(job->front, identity, token->share, end);
}

static int job_disconnect(struct s3_token *token, const struct s3_identity *identity)
{
	struct token_job *job = job_of(token);
	struct token_qp *qp =
		job->is_session ? NULL
				: token_qp_find(job->front, &token->window, identity->access_key);

	if (!qp)
		return -ENOENT;
	token_qp_retire(qp, "its client disconnects it");
	return 0;
}

static const struct s3_token_ops TOKEN_OPS = {
	.admit = job_admit, .connect = job_connect, .disconnect = job_disconnect};

/* ---- The body: flow's source, and whether it failed. ---- */

static int source_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct token_job *job = CONTAINER_OF(source, struct token_job, source);
	int ret;

	job->inner_source->share = source->share;
	ret = flow_source_next(job->inner_source, bytes_max, ret_piece);
	if (ret < 0)
		job->token.failed = true;
	else if (ret > 0)
		job->bytes_moved += ret_piece->bytes;
	return ret;
}

static void source_close(struct flow_source *source)
{
	struct token_job *job = CONTAINER_OF(source, struct token_job, source);

	flow_source_close(job->inner_source);
	/* From here on, the request no longer accesses the client's memory. */
	list_remove(&job->link);
}

static const struct flow_source_ops SOURCE_OPS = {
	.name = "token", .next = source_next, .close = source_close};

static int body_open(struct s3_body *body, const struct s3_chunk_signing *signing,
	struct flow_source **ret_source)
{
	struct token_job *job = CONTAINER_OF(body, struct token_job, body);
	struct flow_core *core = job->front->opts.core;
	int ret;

	(void)signing;
	if (!job->qp)
		return -EOPNOTSUPP;
	ret = flow_rdma_source_open(core, &job->peer, body->bytes, &job->inner_source);
	if (ret)
		return ret;
	job->inner_source->deadline_ns = token_job_deadline_ns(job);
	job->source = (struct flow_source){.magic = FLOW_SOURCE_MAGIC,
		.ops = &SOURCE_OPS,
		.core = core,
		.bytes_total = body->bytes,
		.deadline_ns = token_job_deadline_ns(job)};
	*ret_source = &job->source;
	return 0;
}

static const struct s3_body_ops BODY_OPS = {.open = body_open, .trailer = s3_body_no_trailer};

/* ---- The answer, kept until the bytes have moved. ---- */

static struct token_job *job_of_reply(struct s3_reply *reply)
{
	struct token_job *job = CONTAINER_OF(reply, struct token_job, kept.reply);

	token_job_check(job);
	return job;
}

static bool is_checksum(struct slice name)
{
	enum checksum_kind kind;

	return checksum_kind_of_header(name, &kind) == 0;
}

static bool wants_checksum(const struct token_job *job)
{
	const struct s3_request *request = &job->request;

	if (job->front->opts.checksum != FRONT_CHECKSUM_ASKED)
		return job->front->opts.checksum == FRONT_CHECKSUM_ALWAYS;
	for (uint32_t i = 0; i < request->header_count; i++)
		if (slice_eq_nocase(request->headers[i].name, SLICE("x-amz-checksum-mode")))
			return slice_eq_nocase(request->headers[i].value, SLICE("ENABLED"));
	return false;
}

static void checksums_drop(struct kept_reply *kept)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < kept->header_count; i++)
		if (!is_checksum(kept->headers[i].name) &&
			!slice_eq_nocase(kept->headers[i].name, SLICE("x-amz-checksum-type")))
			kept->headers[count++] = kept->headers[i];
	kept->header_count = count;
}

static int reply_head(struct s3_reply *reply, uint32_t status, const struct s3_header *headers,
	uint32_t header_count, uint64_t bytes)
{
	struct token_job *job = job_of_reply(reply);

	job->has_checksum = false;
	for (uint32_t i = 0; i < header_count; i++)
		job->has_checksum |= is_checksum(headers[i].name);
	return kept_reply_head(reply, status, headers, header_count, bytes);
}

static int sink_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct token_job *job = CONTAINER_OF(sink, struct token_job, sink);
	uint32_t bytes = piece->bytes;
	int ret;

	if (job->has_crc64)
		job->crc64 = crc64nvme_update(job->crc64, piece->data, bytes);
	job->inner_sink->share = sink->share;
	ret = flow_sink_push(job->inner_sink, piece);
	if (ret)
		job->token.failed = true;
	else
		job->bytes_moved += bytes;
	return ret;
}

static int sink_finish(struct flow_sink *sink, bool gave_up)
{
	struct token_job *job = CONTAINER_OF(sink, struct token_job, sink);
	int ret = flow_sink_finish(job->inner_sink, gave_up);

	list_remove(&job->link);
	if (ret)
		job->token.failed = true;
	return ret;
}

static const struct flow_sink_ops SINK_OPS = {
	.name = "token", .push = sink_push, .finish = sink_finish};

/* Bytes without a stored checksum (a range, for example) are summed in transit. */
static int reply_sink(struct s3_reply *reply, struct flow_sink **ret_sink)
{
	struct token_job *job = job_of_reply(reply);
	struct flow_core *core = job->front->opts.core;
	int ret;

	if (!job->qp)
		return -EOPNOTSUPP;
	ret = flow_rdma_sink_open(core, &job->peer, job->run.bytes, &job->inner_sink);
	if (ret)
		return ret;
	job->has_crc64 = !job->has_checksum && wants_checksum(job);
	job->crc64 = 0;
	job->inner_sink->deadline_ns = token_job_deadline_ns(job);
	job->sink = (struct flow_sink){.magic = FLOW_SINK_MAGIC,
		.ops = &SINK_OPS,
		.core = core,
		.deadline_ns = token_job_deadline_ns(job)};
	*ret_sink = &job->sink;
	return 0;
}

static const struct s3_reply_ops REPLY_OPS = {
	.head = reply_head, .text = kept_reply_text, .sink = reply_sink};

static int headers_of_success(struct token_job *job)
{
	const struct s3_reply *reply = &job->kept.reply;
	char text[32];
	uint64_t digest;
	size_t len;
	int ret;

	if (job->request.method == S3_GET && !wants_checksum(job))
		checksums_drop(&job->kept);
	len = (size_t)snprintf(text, sizeof(text), "%u", reply->status);
	ret = kept_reply_header(&job->kept, token_header(TOKEN_HEADER_REPLY), slice_of(text, len));
	if (ret)
		return ret;
	len = (size_t)snprintf(text, sizeof(text), "%llu", (unsigned long long)job->bytes_moved);
	ret = kept_reply_header(&job->kept, token_header(TOKEN_HEADER_BYTES), slice_of(text, len));
	if (ret || !job->has_crc64)
		return ret;
	digest = htobe64(job->crc64);
	len = base64_encode(&digest, sizeof(digest), text);
	return kept_reply_header(
		&job->kept, checksum_header(CHECKSUM_CRC64NVME), slice_of(text, len));
}

static void job_count(const struct token_job *job)
{
	if (job->declined)
		counter_add(&declined, 1);
	else if (job->token.failed)
		counter_add(&failed, 1);
	else if (!job->qp || job->kept.reply.status >= 300)
		counter_add(&refused, 1);
	else
		counter_add(&moved, 1);
	counter_add(job->request.method == S3_GET ? &bytes_out : &bytes_in, job->bytes_moved);
}

/* ---- Running, on the front's reactor. ---- */

static bool is_connect(const struct s3_request *request)
{
	return (request->method == S3_POST || request->method == S3_DELETE) &&
	       slice_find(request->query, SLICE(TOKEN_CONNECT_PARAM)) >= 0;
}

static void job_run(struct token_job *job)
{
	struct s3_reply *reply = &job->kept.reply;

	s3_handle(job->front->opts.s3, &job->request, reply);
	if (!is_connect(&job->request))
		job_count(job);
	if (!job->qp)
		return;
	list_remove(&job->link);
	if (job->token.failed)
		token_qp_retire(job->qp, "a transfer failed");
	else if (job->bytes_moved)
		job->qp->proven_ns = reactor_now_ns(job->front->reactor);
	token_qp_release(job->qp);
	if (reply->status < 300 && !reply->broken && headers_of_success(job))
		reply->broken = true;
}

static void job_main(void *arg)
{
	struct token_job *job = arg;

	token_job_check(job);
	job_run(job);
}

/* ---- At home. ---- */

bool front_token_wanted(const struct s3_request *request)
{
	struct slice name = token_header(TOKEN_HEADER_TOKEN);

	for (uint32_t i = 0; i < request->header_count; i++)
		if (slice_eq_nocase(request->headers[i].name, name))
			return true;
	return false;
}

/* NULL, or why it is no token of a session. */
static const char *session_take(struct token_job *job, struct slice text)
{
	struct elbencho_token token;
	const char *why = NULL;

	if (elbencho_token_parse(text, &token, &why))
		return why;
	job->is_session = true;
	memcpy(job->session, token.session, sizeof(job->session));
	job->token.window =
		(struct token){.addr = token.addr, .bytes = token.bytes, .rkey = token.rkey};
	return NULL;
}

static void token_take(struct token_job *job)
{
	const struct s3_request *request = &job->request;
	struct slice name = token_header(TOKEN_HEADER_TOKEN), text = SLICE_NONE;
	const char *why = NULL;
	uint32_t count = 0;

	for (uint32_t i = 0; i < request->header_count; i++) {
		if (!slice_eq_nocase(request->headers[i].name, name))
			continue;
		text = request->headers[i].value;
		count++;
	}
	job->token = (struct s3_token){
		.ops = &TOKEN_OPS, .has_body = request->body && request->body->bytes};
	if (count > 1)
		job->token.bad = "There is more than one RDMA token.";
	else if (job->front->opts.elbencho && elbencho_is_token(text))
		job->token.bad = session_take(job, text);
	else if (token_parse(text, job->front->opts.strict, &job->token.window, &why))
		job->token.bad = why;
}

static void job_init(
	struct token_job *job, struct front_token *front, const struct s3_request *request)
{
	memset(job, 0, offsetof(struct token_job, kept));
	job->magic = TOKEN_JOB_MAGIC;
	job->front = front;
	job->request = *request;
	token_take(job);
	if (job->is_session)
		job->front = front = token_session_home(front, job->session);
	else if (!job->token.bad)
		job->front = front = token_home(front, &job->token.window);
	job->request.token = &job->token;
	job->request.transport = "rdma-token";
	job->request.core = front->opts.core;
	job->body = (struct s3_body){.ops = &BODY_OPS, .bytes = job->token.window.bytes};
	job->request.body = &job->body;
	kept_reply_init(&job->kept, &REPLY_OPS);
	list_init(&job->link);
}

void front_token_handle(
	struct front_token *front, const struct s3_request *request, struct s3_reply *reply)
{
	struct token_job *job = malloc(sizeof(*job));

	if (!job) {
		reply->broken = true;
		return;
	}
	job_init(job, front, request);
	if (fiber_run_on(job->front->reactor, "token", job_main, job))
		job->declined = "The server is too busy for RDMA transfers.";
	token_job_check(job);
	if (job->declined) {
		struct s3_request again = *request;

		again.declined = job->declined;
		s3_handle(front->opts.s3, &again, reply);
	} else {
		kept_reply_answer(&job->kept, reply);
	}
	kept_reply_free(&job->kept);
	magic_clear(&job->magic);
	free(job);
}
