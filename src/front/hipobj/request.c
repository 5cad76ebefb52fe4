/* front/hipobj/request.c: the control requests of hipobj-rc-v2. PREPARE asks s3 whether the
 * operation may be done and makes a session; READY is the operation; CANCEL ends the session. s3
 * runs on the session's reactor. Its answer becomes the dialect's and goes back to the connection
 * of the request. */
#include "front/hipobj/hipobj_priv.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUESTS      "nebulaio_hipobj_requests_total"
#define REQUESTS_HELP "Transfers by hipobj-rc-v2, by how they ended."
#define BYTES	      "nebulaio_hipobj_bytes_total"
#define BYTES_HELP    "Bytes moved by hipobj-rc-v2."
DEFINE_COUNTER(prepared, REQUESTS, "result=\"prepared\"", REQUESTS_HELP);
DEFINE_COUNTER(moved, REQUESTS, "result=\"moved\"", REQUESTS_HELP);
DEFINE_COUNTER(declined, REQUESTS, "result=\"declined\"", REQUESTS_HELP);
DEFINE_COUNTER(refused, REQUESTS, "result=\"refused\"", REQUESTS_HELP);
DEFINE_COUNTER(failed, REQUESTS, "result=\"failed\"", REQUESTS_HELP);
DEFINE_COUNTER(cancelled, REQUESTS, "result=\"cancelled\"", REQUESTS_HELP);
DEFINE_COUNTER(bytes_in, BYTES, "direction=\"in\"", BYTES_HELP);
DEFINE_COUNTER(bytes_out, BYTES, "direction=\"out\"", BYTES_HELP);

/* ---- Headers. ---- */

static void header_add(struct hipobj_job *job, struct slice name, struct slice value)
{
	CHECK(job->request.header_count < ARRAY_LEN(job->headers));
	job->headers[job->request.header_count++] = (struct s3_header){name, value};
}

static void headers_of_message(struct hipobj_job *job)
{
	const struct s3_request *message = job->message;

	job->request.headers = job->headers;
	job->request.header_count = 0;
	for (uint32_t i = 0; i < message->header_count; i++)
		if (hipobj_is_of_message(message->headers[i].name))
			header_add(job, message->headers[i].name, message->headers[i].value);
}

static bool names_part(struct slice query)
{
	return slice_find(query, SLICE("partNumber=")) >= 0;
}

/* A read by part number is a read of the whole part, so it has no range. */
static void range_add(struct hipobj_job *job, struct slice query, uint64_t offset, uint64_t size)
{
	int len;

	if (names_part(query))
		return;
	len = snprintf(job->range, sizeof(job->range), "bytes=%llu-%llu",
		(unsigned long long)offset, (unsigned long long)(offset + size - 1));
	header_add(job, SLICE("range"), slice_of(job->range, (size_t)len));
}

/* ---- Asking s3. ---- */

/* Asks s3 to answer the message itself: with an error, or because the message stands for no
 * operation. */
static void ask_for_itself(struct hipobj_job *job, const char *code, const char *why)
{
	job->request = *job->message;
	job->request.body = NULL;
	job->request.token = NULL;
	job->request.control = &job->control;
	job->request.core = job->front->opts.core;
	job->control.stands_for = false;
	job->control.code = code;
	job->control.why = why;
	kept_reply_free(&job->kept);
	kept_reply_init(&job->kept, &hipobj_reply_ops);
	s3_handle(job->front->opts.s3, &job->request, &job->kept.reply);
}

static void ask(struct hipobj_job *job, struct slice method, struct slice path, struct slice query)
{
	job->request.method_text = method;
	job->request.path = path;
	job->request.query = query;
	job->request.control = &job->control;
	job->request.core = job->front->opts.core;
	job->request.body = NULL;
	job->request.token = NULL;
	job->request.transport = "rdma-token";
	job->control.stands_for = true;
}

static bool is_success(const struct hipobj_job *job)
{
	const struct s3_reply *reply = &job->kept.reply;

	return !reply->broken && reply->status >= 200 && reply->status < 300;
}

/* ---- The dialect's answers. ---- */

static void say(struct hipobj_job *job, enum hipobj_header header, struct slice value)
{
	if (kept_reply_header(&job->kept, hipobj_header(header), value))
		job->kept.reply.broken = true;
}

static void say_hex(
	struct hipobj_job *job, enum hipobj_header header, int digits_min, uint64_t number)
{
	char text[32];
	int len = snprintf(text, sizeof(text), "%0*llx", digits_min, (unsigned long long)number);

	say(job, header, slice_of(text, (size_t)len));
}

static void answer_unsupported(struct hipobj_job *job)
{
	kept_reply_free(&job->kept);
	kept_reply_init(&job->kept, &hipobj_reply_ops);
	job->kept.reply.status = 501;
	say(job, HIPOBJ_H_STATUS, SLICE(HIPOBJ_UNSUPPORTED));
	counter_add(&declined, 1);
}

static void answer_prepared(struct hipobj_job *job, const struct hipobj_session *session)
{
	char text[4 + HIPOBJ_TOKEN_LEN] = "200:", id[2 * HIPOBJ_SESSION_BYTES];
	struct hipobj_token token = {.transport = HIPOBJ_TRANSPORT_RC,
		.qpn = session->ours.qpn,
		.lid = session->ours.lid,
		.port = 1};

	memcpy(token.gid, session->ours.gid, sizeof(token.gid));
	if (session->put) {
		token.addr = (uint64_t)(uintptr_t)session->staged;
		token.bytes = session->size;
		token.rkey = rp_mr_rkey(session->mr);
	}
	hipobj_token_format(&token, text + 4);
	hex_encode(session->id, sizeof(session->id), id);
	job->kept.header_count = 0;
	job->kept.reply.status = 200;
	say(job, HIPOBJ_H_PROTOCOL, SLICE(HIPOBJ_PROTOCOL));
	say(job, HIPOBJ_H_REPLY, slice_of(text, sizeof(text)));
	say(job, HIPOBJ_H_SESSION, slice_of(id, sizeof(id)));
	say_hex(job, HIPOBJ_H_PSN, 6, session->ours.psn);
	say_hex(job, HIPOBJ_H_QPN, 1, session->ours.qpn);
	say(job, HIPOBJ_H_CAPABILITIES, SLICE(HIPOBJ_CAPABILITIES));
	if (!session->put)
		return;
	say_hex(job, HIPOBJ_H_ADDR, 1, token.addr);
	say_hex(job, HIPOBJ_H_RKEY, 1, token.rkey);
}

/* Headers that describe an HTTP body, and checksums, which clients would compare with the empty
 * body. */
static bool says_nothing_here(struct slice name)
{
	enum checksum_kind kind;

	return checksum_kind_of_header(name, &kind) == 0 ||
	       slice_eq_nocase(name, SLICE("content-range")) ||
	       slice_eq_nocase(name, SLICE("accept-ranges")) ||
	       slice_eq_nocase(name, SLICE("x-amz-checksum-type"));
}

static void answer_moved(struct hipobj_job *job, const struct hipobj_session *session)
{
	char text[sizeof(HIPOBJ_CHECKSUM) + BASE64_LEN(sizeof(uint64_t))] = HIPOBJ_CHECKSUM;
	uint64_t digest = htobe64(job->crc64);
	struct slice etag = kept_reply_find(&job->kept, SLICE("etag"));
	struct slice version = kept_reply_find(&job->kept, SLICE("x-amz-version-id"));
	char digits[SLICE_U64_MAX];
	uint32_t kept = 0;
	size_t len;

	for (uint32_t i = 0; i < job->kept.header_count; i++)
		if (!says_nothing_here(job->kept.headers[i].name))
			job->kept.headers[kept++] = job->kept.headers[i];
	job->kept.header_count = kept;
	job->kept.reply.status = 200;
	len = strlen(HIPOBJ_CHECKSUM);
	len += base64_encode(&digest, sizeof(digest), text + len);
	say(job, HIPOBJ_H_PROTOCOL, SLICE(HIPOBJ_PROTOCOL));
	say_hex(job, HIPOBJ_H_COOKIE, 8, session->cookie);
	say(job, HIPOBJ_H_BYTES, slice_of_u64(job->bytes_moved, digits));
	say(job, HIPOBJ_H_CHECKSUM, slice_of(text, len));
	if (etag.len)
		say(job, HIPOBJ_H_ETAG, etag);
	if (version.len)
		say(job, HIPOBJ_H_VERSION, version);
}

/* ---- PREPARE. ---- */

/* For a read, asks s3 for HeadObject with the range of the PREPARE; a Range header of the message
 * is ignored. */
static void prepare_ask(struct hipobj_job *job)
{
	const struct hipobj_request *asked = &job->asked;
	const struct s3_request *message = job->message;

	job->control.bytes = asked->size;
	job->request.headers = job->headers;
	job->request.header_count = 0;
	for (uint32_t i = 0; i < message->header_count; i++)
		if (!slice_eq_nocase(message->headers[i].name, SLICE("range")))
			header_add(job, message->headers[i].name, message->headers[i].value);
	if (!asked->put)
		range_add(job, asked->query, asked->offset, asked->size);
	job->request.method = asked->put ? S3_PUT : S3_HEAD;
	ask(job, asked->put ? SLICE("PUT") : SLICE("HEAD"), asked->path, asked->query);
	s3_handle(job->front->opts.s3, &job->request, &job->kept.reply);
}

static void job_prepare(struct hipobj_job *job)
{
	const char *why = hipobj_prepare_wrong(job->message);
	struct hipobj_session *session;

	if (why) {
		ask_for_itself(job, "InvalidRDMARequest", why);
		return;
	}
	prepare_ask(job);
	if (!is_success(job))
		return;
	switch (hipobj_session_open(job, &session)) {
	case 0:
		counter_add(&prepared, 1);
		answer_prepared(job, session);
		return;
	case -EFBIG:
		ask_for_itself(job, "RDMATransferTooLarge", NULL);
		return;
	case -E2BIG:
		ask_for_itself(job, "InvalidRDMARequest", "The request's headers are too long.");
		return;
	case -EHOSTUNREACH:
	case -EOPNOTSUPP:
		job->unsupported = true;
		return;
	default:
		ask_for_itself(job, "SlowDown", "There is no room for another RDMA transfer now.");
	}
}

/* ---- READY. ---- */

static int job_admit(struct s3_token *token, const struct s3_identity *identity)
{
	struct hipobj_job *job = CONTAINER_OF(token, struct hipobj_job, token);
	struct hipobj_session *session = hipobj_session_find(job->front, job->asked.session);

	hipobj_job_check(job);
	if (!session || strcmp(session->access_key, identity->access_key) != 0)
		return -ENOENT;
	if (session->moving)
		return -EBUSY;
	session->moving = true;
	session->users++;
	session->deadline_ns = reactor_now_ns(job->front->reactor) + job->front->opts.timeout_ns;
	session->token = token;
	job->session = session;
	job->run = (struct flow_remote){
		.addr = job->asked.addr, .bytes = session->size, .rkey = job->asked.rkey};
	job->peer = (struct flow_peer){.target = session->target,
		.lkeys = job->front->opts.lkeys,
		.runs = &job->run,
		.run_count = 1};
	return 0;
}

static int job_connect(
	struct s3_token *token, const struct s3_identity *identity, struct s3_token_end *end)
{
	(void)token;
	(void)identity;
	(void)end;
	return -EOPNOTSUPP;
}

static int job_disconnect(struct s3_token *token, const struct s3_identity *identity)
{
	(void)token;
	(void)identity;
	return -ENOENT;
}

static const struct s3_token_ops TOKEN_OPS = {
	.admit = job_admit, .connect = job_connect, .disconnect = job_disconnect};

/* The error code for a READY of this session; NULL: the READY is good. */
static const char *ready_wrong(
	const struct hipobj_job *job, const struct hipobj_session *session, const char **ret_why)
{
	const struct hipobj_request *asked = &job->asked;

	*ret_why = NULL;
	if (!session)
		return "NoSuchRDMASession";
	if (session->cookie != asked->cookie) {
		*ret_why = "x-amz-rdma-cookie is not the session's.";
		return "AccessDenied";
	}
	if (session->moving)
		return "RDMASessionConflict";
	if (asked->qpn && asked->qpn != session->peer_qpn) {
		*ret_why = "x-amz-rdma-qpn is not the queue pair of the session's token.";
		return "InvalidRDMARequest";
	}
	if (!session->put &&
		(!asked->addr || !asked->rkey || asked->addr > UINT64_MAX - session->size)) {
		*ret_why = "x-amz-rdma-mr-addr and x-amz-rdma-mr-rkey name no memory to write to.";
		return "InvalidRDMARequest";
	}
	if (!session->put && rp_qp_state(session->qp) != RP_QPS_RTS) {
		*ret_why = "The client's queue pair is not connected to the session's.";
		return "RDMASessionConflict";
	}
	*ret_why = hipobj_ready_adds(job->message, session);
	return *ret_why ? "InvalidRDMARequest" : NULL;
}

static void ready_count(const struct hipobj_job *job)
{
	if (job->token.failed)
		counter_add(&failed, 1);
	else
		counter_add(is_success(job) ? &moved : &refused, 1);
	counter_add(job->request.method == S3_GET ? &bytes_out : &bytes_in, job->bytes_moved);
}

static void ready_run(struct hipobj_job *job, struct hipobj_session *session)
{
	headers_of_message(job);
	for (uint32_t i = 0; i < session->header_count; i++)
		header_add(job, session->headers[i].name, session->headers[i].value);
	job->control.bytes = session->size;
	ask(job, session->put ? SLICE("PUT") : SLICE("GET"), session->path, session->query);
	job->request.method = session->put ? S3_PUT : S3_GET;
	if (session->put) {
		job->body = (struct s3_body){.ops = &hipobj_body_ops, .bytes = session->size};
		job->request.body = &job->body;
	} else {
		range_add(job, session->query, session->offset, session->size);
	}
	job->token = (struct s3_token){.ops = &TOKEN_OPS, .window.bytes = session->size};
	job->request.token = &job->token;
	s3_handle(job->front->opts.s3, &job->request, &job->kept.reply);
}

/* Whether the session has served its READY: a good one of its owner, whatever s3 answered. A READY
 * that nobody has proven, or another's, leaves it as it was. */
static bool is_served(const struct hipobj_job *job, const struct hipobj_session *session)
{
	if (job->session)
		return true;
	return !session->moving &&
	       strcmp(job->control.identity.access_key, session->access_key) == 0;
}

static void job_ready(struct hipobj_job *job)
{
	struct hipobj_session *session = hipobj_session_find(job->front, job->asked.session);
	const char *why, *code = ready_wrong(job, session, &why);

	if (code) {
		ask_for_itself(job, code, why);
		counter_add(&refused, 1);
		return;
	}
	session->users++;
	ready_run(job, session);
	ready_count(job);
	if (job->session && is_success(job))
		answer_moved(job, session);
	if (is_served(job, session))
		hipobj_session_end(session, 0, NULL);
	if (job->session)
		hipobj_session_put(session);
	hipobj_session_put(session);
}

/* ---- CANCEL. ---- */

static const char *job_cancel(struct s3_control *control, const struct s3_identity *identity)
{
	struct hipobj_job *job = CONTAINER_OF(control, struct hipobj_job, control);
	struct hipobj_session *session = hipobj_session_find(job->front, job->asked.session);

	hipobj_job_check(job);
	if (!session || strcmp(session->access_key, identity->access_key) != 0)
		return NULL;
	counter_add(&cancelled, 1);
	hipobj_session_end(session, -ECANCELED, NULL);
	return NULL;
}

static const struct s3_control_ops CONTROL_OPS = {.run = job_cancel};

/* ---- Running, on the session's reactor. ---- */

static void job_run(struct hipobj_job *job)
{
	const char *why;

	switch (hipobj_check(&job->asked, job->step, &why)) {
	case HIPOBJ_BAD:
		ask_for_itself(job, "InvalidRDMARequest", why);
		return;
	case HIPOBJ_TOO_LARGE:
		ask_for_itself(job, "RDMATransferTooLarge", NULL);
		return;
	case HIPOBJ_NOT_SPOKEN:
		job->unsupported = true;
		return;
	case HIPOBJ_GOOD:
		break;
	}
	if (job->step == HIPOBJ_PREPARE)
		job_prepare(job);
	else if (job->step == HIPOBJ_READY)
		job_ready(job);
	else
		ask_for_itself(job, NULL, NULL);
}

static void job_main(void *arg)
{
	struct hipobj_job *job = arg;

	hipobj_job_check(job);
	job_run(job);
}

/* ---- At home. ---- */

bool front_hipobj_wanted(const struct s3_request *request)
{
	enum hipobj_step step;

	return request->method == S3_POST && !request->query.len &&
	       hipobj_step_of(request->path, &step) == 0;
}

/* The front of the session that READY or CANCEL names; any front when there is no such session. */
static struct front_hipobj *front_of(struct front_hipobj *front, const struct hipobj_job *job)
{
	const struct hipobj_shared *shared = front->shared;

	if (job->step == HIPOBJ_PREPARE)
		return front;
	return shared->fronts[job->asked.session[0] % shared->front_count];
}

static void job_init(
	struct hipobj_job *job, struct front_hipobj *front, const struct s3_request *message)
{
	memset(job, 0, offsetof(struct hipobj_job, kept));
	job->magic = HIPOBJ_JOB_MAGIC;
	job->message = message;
	job->request = *message;
	hipobj_step_of(message->path, &job->step);
	for (uint32_t i = 0; i < message->header_count; i++)
		hipobj_take(&job->asked, message->headers[i].name, message->headers[i].value);
	job->control = (struct s3_control){.ops = &CONTROL_OPS,
		.step = (enum s3_control_step)job->step,
		.method_text = message->method_text,
		.path = message->path,
		.headers = message->headers,
		.header_count = message->header_count,
		.has_body = message->body && message->body->bytes};
	job->front = front ? front_of(front, job) : NULL;
	kept_reply_init(&job->kept, &hipobj_reply_ops);
}

void front_hipobj_handle(
	struct front_hipobj *front, const struct s3_request *request, struct s3_reply *reply)
{
	struct hipobj_job *job = malloc(sizeof(*job));

	if (!job) {
		reply->broken = true;
		return;
	}
	job_init(job, front, request);
	if (!front)
		job->unsupported = true;
	else
		job->busy = fiber_run_on(job->front->reactor, "hipobj", job_main, job) != 0;
	hipobj_job_check(job);
	if (job->unsupported)
		answer_unsupported(job);
	if (job->busy)
		job->kept.reply.error = -EHOSTDOWN;
	kept_reply_answer(&job->kept, reply);
	if (job->busy)
		reply->error = -EHOSTDOWN;
	kept_reply_free(&job->kept);
	magic_clear(&job->magic);
	free(job);
}
