/* front/session/request.c: one request of a native session on its fiber: the capsule becomes a
 * struct s3_request, s3 answers through the reply below, and the answer becomes a capsule. */
#include "base/life.h"
#include "front/session/native_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

DEFINE_COUNTER(late_total, "nebulaio_late_answers_total", "transport=\"rdma\"",
	"Answers that were withheld because the store might have had another owner by then.");

/* The methods of requests in the form of HTTP: CAPSULE_OP_S3. */
#define METHOD(method_)                                         \
	{                                                       \
		.method = S3_##method_, .method_text = #method_ \
	}
static const struct s3_native METHODS[] = {
	[CAPSULE_METHOD_GET] = METHOD(GET),
	[CAPSULE_METHOD_HEAD] = METHOD(HEAD),
	[CAPSULE_METHOD_PUT] = METHOD(PUT),
	[CAPSULE_METHOD_POST] = METHOD(POST),
	[CAPSULE_METHOD_DELETE] = METHOD(DELETE),
};

#define REQUEST_TARGET_BYTES_MAX                                                 \
	(3 * (LIMIT_KEY_LEN_MAX + LIMIT_BUCKET_LEN_MAX) + CAPSULE_PATH_LEN_MAX + \
		2 * CAPSULE_QUERY_LEN_MAX)
/* The capsule's own, and range and checksum. */
#define REQUEST_HEADERS_MAX (CAPSULE_HEADERS_MAX + 2u)

/* The text that a request's slices point into, beside its capsule. */
struct request_text {
	struct s3_header headers[REQUEST_HEADERS_MAX];
	char range[64];
	char checksum[CHECKSUM_TEXT_LEN_MAX + 1];
	struct buf target; /* path, then query; on the heap, only for routed requests */
};

static int refuse(
	struct native_request *request, uint32_t status, const char *code, const char *message)
{
	request->reply.status = status;
	request->refusal = code;
	request->refusal_message = message;
	return -ECANCELED;
}

/* Whether a small body or answer must count in the share of the request's principal, because the
 * session's client has not taken enough of what it has already. A client that keeps up is not
 * counted: its frames come back at once. */
static bool small_counts(struct native_request *request, uint64_t bytes)
{
	struct native_session *session = request->session;
	uint32_t frame_count = region_frames_for(bytes);

	if (session->uncounted_frames + frame_count > NATIVE_UNCOUNTED_FRAMES_MAX)
		return true;
	session->uncounted_frames += frame_count;
	request->uncounted_frames += frame_count;
	return false;
}

static bool body_counts(struct native_request *request, uint64_t bytes)
{
	return bytes > FLOW_FRAMES_SMALL * FRAME_BYTES || small_counts(request, bytes);
}

/* ---- The request's body. ---- */

static int body_open(struct s3_body *body, const struct s3_chunk_signing *signing,
	struct flow_source **ret_source)
{
	struct native_request *request = CONTAINER_OF(body, struct native_request, body);
	struct flow_core *core = request->session->front->opts.core;
	int ret;

	native_request_check(request);
	if (request->session->phase == NATIVE_FAILED)
		return -ENOTCONN; /* the queue pair may be gone */
	(void)signing;		  /* the session is authenticated, and so is the capsule */
	if (request->in.body.len || !request->in.body_bytes)
		return flow_memory_source_open(core, request->in.body, ret_source);
	ret = flow_rdma_source_open(core, &request->peer, request->in.body_bytes, ret_source);
	if (ret)
		return ret;
	(*ret_source)->deadline_ns = request->deadline_ns;
	if (request->session->encrypted) {
		ret = native_crypt_source(request, ret_source);
		if (ret) {
			flow_source_close(*ret_source);
			return ret;
		}
	}
	body->counts = body_counts(request, request->in.body_bytes);
	request->progress_ns = reactor_now_ns(core->reactor);
	list_push_back(&request->session->requests, &request->link);
	return 0;
}

static const struct s3_body_ops BODY_OPS = {.open = body_open, .trailer = s3_body_no_trailer};

/* ---- The answer. ---- */

static int reply_head(struct s3_reply *reply, uint32_t status, const struct s3_header *headers,
	uint32_t header_count, uint64_t bytes)
{
	struct native_request *request = CONTAINER_OF(reply, struct native_request, reply);
	bool all = request->in.flags & CAPSULE_REQUEST_HEADERS;

	native_request_check(request);
	reply->status = status;
	request->bytes_announced = bytes;
	for (uint32_t i = 0; i < header_count; i++) {
		struct slice value = headers[i].value;

		if (slice_eq_nocase(headers[i].name, SLICE("etag"))) {
			if (value.len >= 2 && value.data[0] == '"')
				value = slice_of(value.data + 1, value.len - 2);
			value = slice_to(value, CAPSULE_ETAG_LEN_MAX);
			memcpy(request->etag, value.data, value.len);
			request->etag_len = (uint8_t)value.len;
		} else if (all && request->header_count < CAPSULE_HEADERS_MAX &&
			   capsule_header_put(request->headers, sizeof(request->headers),
				   &request->headers_bytes, headers[i].name, value) == 0) {
			request->header_count++;
		}
	}
	return 0;
}

/* Decodes the five entities of XML; cuts the text to the buffer. */
static size_t xml_unescape(struct slice text, char *ret_text, size_t text_bytes)
{
	static const struct {
		struct slice entity;
		char byte;
	} ENTITIES[] = {{SLICE("&lt;"), '<'}, {SLICE("&gt;"), '>'}, {SLICE("&quot;"), '"'},
		{SLICE("&apos;"), '\''}, {SLICE("&#39;"), '\''}, {SLICE("&amp;"), '&'}};
	size_t len = 0;

	while (text.len && len < text_bytes) {
		size_t taken = 1;

		ret_text[len] = text.data[0];
		for (size_t i = 0; text.data[0] == '&' && i < ARRAY_LEN(ENTITIES); i++) {
			if (!slice_starts(text, ENTITIES[i].entity))
				continue;
			ret_text[len] = ENTITIES[i].byte;
			taken = ENTITIES[i].entity.len;
			break;
		}
		text = slice_from(text, taken);
		len++;
	}
	return len;
}

static void error_gather(struct native_request *request, struct slice xml)
{
	struct slice code = xml_text(xml, "Code");
	struct slice message = xml_text(xml, "Message");

	code = slice_to(code, sizeof(request->code));
	if (code.len)
		memcpy(request->code, code.data, code.len);
	request->code_len = (uint8_t)code.len;
	request->message_len =
		(uint16_t)xml_unescape(message, request->message, sizeof(request->message));
}

void native_response_fill(struct native_request *request, struct capsule_response *response)
{
	*response = (struct capsule_response){
		.request_id = request->in.request_id,
		.server_id = request->server_id,
		.bytes_moved = request->bytes_moved,
		.bytes_total = request->bytes_announced,
		.status = (uint16_t)request->reply.status,
		.flags = (uint16_t)((request->inline_at ? CAPSULE_RESPONSE_INLINE : 0) |
				    (request->has_payload_tag ? CAPSULE_RESPONSE_TAG : 0) |
				    (request->has_lease ? CAPSULE_RESPONSE_LEASE : 0)),
		.payload_tag = slice_of(
			request->payload_tag, request->has_payload_tag ? AEAD_TAG_BYTES : 0),
		.etag = slice_of(request->etag, request->etag_len),
		.code = slice_of(request->code, request->code_len),
		.message = slice_of(request->message, request->message_len),
		.headers = slice_of(request->headers, request->headers_bytes),
		.header_count = request->header_count,
		.lease = slice_of(&request->lease, request->has_lease ? sizeof(request->lease) : 0),
		.body = slice_of(NULL, request->inline_bytes),
	};
	if (request->refusal) {
		response->flags = 0;
		response->bytes_moved = 0;
		response->etag = SLICE_NONE;
		response->code = slice_str(request->refusal);
		response->message = slice_str(request->refusal_message);
		response->headers = SLICE_NONE;
		response->header_count = 0;
		response->payload_tag = SLICE_NONE;
		response->lease = SLICE_NONE;
		response->body = SLICE_NONE;
	}
}

static size_t response_bytes(const struct capsule_response *response)
{
	return sizeof(struct capsule_response_wire) + response->etag.len + response->code.len +
	       response->message.len + response->headers.len + response->payload_tag.len +
	       response->lease.len + response->body.len + CAPSULE_TAG_BYTES;
}

/* Provides memory to encode the response: small, or frames. It does not wait for frames, because
 * the request may hold frames of its body. */
static int response_room(struct native_request *request, size_t bytes)
{
	const struct native_session *session = request->session;
	struct flow_core *core = session->front->opts.core;
	struct flow_want want = {.frame_count = region_frames_for(bytes), .owner = OWNER_APP};
	size_t room =
		request->span.data ? region_span_bytes(request->span) : session->wr_inline_bytes;

	if (bytes > session->capsule_bytes)
		return -EMSGSIZE;
	if (bytes <= room)
		return 0;
	native_span_give(request);
	/* A refusal is not refused. */
	if (!request->refusal && small_counts(request, bytes))
		want.share = fiber_share();
	request->span_share = want.share;
	return flow_lease_now(core, &want, &request->span);
}

int native_response_room(struct native_request *request, const struct capsule_response *response)
{
	return response_room(request, response_bytes(response));
}

static int inline_sink(struct native_request *request, struct flow_sink **ret_sink)
{
	struct capsule_response response;
	uint8_t *capsule;
	size_t bytes;
	int ret;

	request->inline_bytes = (uint32_t)request->bytes_announced;
	native_response_fill(request, &response);
	bytes = response_bytes(&response);
	ret = response_room(request, bytes);
	if (ret) {
		request->inline_bytes = 0;
		return ret == -EMSGSIZE
			       ? refuse(request, 400, "BufferTooSmall",
					 "The answer does not fit a capsule of this session.")
			       : ret;
	}
	capsule = request->span.data ? request->span.data : request->small;
	request->inline_at = capsule + bytes - CAPSULE_TAG_BYTES - request->inline_bytes;
	native_inline_sink_open(request, ret_sink);
	return 0;
}

static uint64_t runs_bytes(const struct native_request *request)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < request->peer.run_count; i++)
		bytes += request->runs[i].bytes;
	return bytes;
}

/* A payload outside the capsule is encrypted separately, as one message. */
static int sink_seal(struct native_request *request, struct flow_sink **sink)
{
	int ret;

	if (!request->session->encrypted)
		return 0;
	if (request->bytes_announced > AEAD_MESSAGE_BYTES_MAX)
		ret = refuse(request, 400, "TransferTooLarge",
			"One encrypted transfer has at most 68719476704 bytes. Ask for ranges.");
	else
		ret = native_crypt_sink(request, sink);
	if (ret)
		flow_sink_finish(*sink, true);
	return ret;
}

static int reply_sink(struct s3_reply *reply, struct flow_sink **ret_sink)
{
	struct native_request *request = CONTAINER_OF(reply, struct native_request, reply);
	uint64_t bytes = request->bytes_announced;
	bool fits_inline = bytes <= request->session->inline_bytes;
	int ret;

	native_request_check(request);
	if (request->session->phase == NATIVE_FAILED)
		return -ENOTCONN;
	reply->counts = false;
	if (fits_inline &&
		(!request->peer.run_count || (request->in.flags & CAPSULE_REQUEST_INLINE)))
		return inline_sink(request, ret_sink);
	if (runs_bytes(request) < bytes)
		return refuse(
			request, 400, "BufferTooSmall", "The buffer is smaller than the answer.");
	reply->counts = body_counts(request, bytes);
	if (request->peer.run_count == 1 &&
		bytes <= (request->session->encrypted ? NATIVE_DIRECT_SEALED_BYTES_MAX
						      : NATIVE_DIRECT_BYTES_MAX)) {
		native_direct_sink_open(request, ret_sink);
		return sink_seal(request, ret_sink);
	}
	ret = flow_rdma_sink_open(
		request->session->front->opts.core, &request->peer, bytes, ret_sink);
	if (ret)
		return ret;
	(*ret_sink)->deadline_ns = request->deadline_ns;
	request->progress_ns = reactor_now_ns(request->session->front->reactor);
	if (list_empty(&request->link))
		list_push_back(&request->session->requests, &request->link);
	request->bytes_moved = bytes;
	return sink_seal(request, ret_sink);
}

static int reply_text(struct s3_reply *reply, struct slice body)
{
	struct native_request *request = CONTAINER_OF(reply, struct native_request, reply);
	struct flow_source *source;
	struct flow_sink *sink;
	uint64_t moved;
	int ret;

	if (reply->status >= 300) {
		error_gather(request, body);
		request->bytes_announced = 0;
		return 0;
	}
	if (request->once)
		native_once_note(request, body);
	request->bytes_announced = body.len;
	if (request->stream)
		native_stream_note(request->stream, body);
	ret = reply_sink(reply, &sink);
	if (ret)
		return ret;
	ret = flow_memory_source_open(request->session->front->opts.core, body, &source);
	if (ret) {
		flow_sink_finish(sink, true);
		return ret;
	}
	if (reply->counts)
		source->share = fiber_share();
	return flow_run(source, NULL, 0, sink, &moved);
}

static const struct s3_reply_ops REPLY_OPS = {
	.head = reply_head, .text = reply_text, .sink = reply_sink};

/* ---- The request. ---- */

static bool header_is_ours(struct slice name)
{
	return slice_eq_nocase(name, SLICE("authorization")) ||
	       slice_eq_nocase(name, SLICE("host")) ||
	       slice_eq_nocase(name, SLICE("content-length")) ||
	       slice_eq_nocase(name, SLICE("transfer-encoding"));
}

static int headers_prepare(struct native_request *request, struct request_text *text)
{
	const struct capsule_request *in = &request->in;
	struct slice rest = in->headers;
	struct capsule_header header;
	uint32_t count = 0;

	while (capsule_header_next(&rest, &header)) {
		if (header_is_ours(header.name))
			return refuse(request, 400, "MalformedCapsule",
				"This header is not allowed in a capsule.");
		text->headers[count++] =
			(struct s3_header){.name = header.name, .value = slice_trim(header.value)};
	}
	if (in->flags & CAPSULE_REQUEST_RANGE) {
		int len = snprintf(text->range, sizeof(text->range), "bytes=%llu-%llu",
			(unsigned long long)in->range_offset,
			(unsigned long long)(in->range_offset + in->range_bytes - 1));

		text->headers[count++] = (struct s3_header){
			.name = SLICE("range"), .value = slice_of(text->range, (size_t)len)};
	}
	if (in->checksum_kind != CHECKSUM_NONE) {
		size_t len = base64_encode(in->checksum.data, in->checksum.len, text->checksum);

		text->headers[count++] = (struct s3_header){
			.name = checksum_header((enum checksum_kind)in->checksum_kind),
			.value = slice_of(text->checksum, len)};
	}
	request->s3.headers = text->headers;
	request->s3.header_count = count;
	return 0;
}

static void query_add(struct buf *target, size_t query_at, struct slice part)
{
	if (!part.len)
		return;
	if (target->len > query_at)
		buf_put_str(target, "&");
	buf_put_slice(target, part);
}

/* Writes path and query in the form of HTTP. */
static int target_prepare(
	struct native_request *request, struct request_text *text, const struct s3_native *op)
{
	const struct capsule_request *in = &request->in;
	struct buf *target = &text->target;
	size_t query_at;

	buf_init(target, REQUEST_TARGET_BYTES_MAX);
	if (in->opcode == CAPSULE_OP_S3) {
		buf_put_slice(target, in->key);
	} else {
		buf_put_str(target, "/");
		uri_encode(in->bucket, 0, target);
		if (in->key.len) {
			buf_put_str(target, "/");
			uri_encode(in->key, URI_KEEP_SLASH, target);
		}
	}
	query_at = target->len;
	query_add(target, query_at, slice_str(op->query));
	query_add(target, query_at, in->query);
	if (in->version_id.len) {
		query_add(target, query_at, SLICE("versionId="));
		uri_encode(in->version_id, 0, target);
	}
	if (target->failed)
		return refuse(request, 503, "SlowDown", "The server is short of memory.");
	request->s3.path = slice_of(target->data, query_at);
	request->s3.query = slice_of(target->data + query_at, target->len - query_at);
	return 0;
}

static void peer_prepare(struct native_request *request)
{
	for (uint32_t i = 0; i < request->in.run_count; i++) {
		const struct capsule_run *run = &request->in.runs[i];

		request->runs[i] = (struct flow_remote){
			.addr = run->addr, .bytes = run->bytes, .rkey = run->rkey};
	}
	request->peer = (struct flow_peer){.target = request->session->target,
		.progress = &request->progress,
		.lkeys = request->session->front->port->arenas.lkeys,
		.runs = request->runs,
		.run_count = request->in.run_count};
}

static int bounds_check(struct native_request *request)
{
	const struct native_session *session = request->session;
	const struct capsule_request *in = &request->in;

	if (session->phase != NATIVE_OPEN)
		return refuse(request, 503, "ServiceUnavailable", "The server is stopping.");
	if (in->body.len > session->inline_bytes)
		return refuse(request, 400, "InlineTooLarge",
			"An inline body is larger than this session allows.");
	if (!in->payload_tag.len != !(session->encrypted && in->body_bytes && !in->body.len))
		return refuse(request, 400, "MalformedCapsule",
			"A payload must have a tag if, and only if, the session is encrypted.");
	if (in->body_bytes > session->transfer_bytes_max)
		return refuse(request, 400, "TransferTooLarge",
			"A body is larger than this session allows.");
	if (reactor_now_ns(session->front->reactor) >= request->deadline_ns)
		return refuse(request, 503, "SlowDown",
			"The request's deadline passed before it could begin.");
	return 0;
}

static bool op_of(const struct capsule_request *in, struct s3_native *ret_op)
{
	if (in->opcode != CAPSULE_OP_S3)
		return s3_native(in->opcode, ret_op);
	*ret_op = METHODS[in->method];
	return true;
}

static void id_text(uint64_t id, char ret_text[17])
{
	static const char digits[] = "0123456789abcdef";

	for (int i = 15; i >= 0; i--, id >>= 4)
		ret_text[i] = digits[id & 15];
	ret_text[16] = '\0';
}

static bool client_left(const void *arg)
{
	return ((const struct native_request *)arg)->session->phase == NATIVE_FAILED;
}

static int prepare(
	struct native_request *request, struct request_text *text, const struct s3_native *op)
{
	struct native_session *session = request->session;
	bool routed = !op->direct || request->in.version_id.len;
	int ret;

	peer_prepare(request);
	request->body = (struct s3_body){.ops = &BODY_OPS, .bytes = request->in.body_bytes};
	request->s3 = (struct s3_request){
		.opcode = routed ? 0 : request->in.opcode,
		.bucket = request->in.bucket,
		.key = request->in.key,
		.method = op->method,
		.method_text = slice_str(op->method_text),
		.query = request->in.query,
		.body = &request->body,
		.session = &session->identity,
		.transport = "rdma",
		.peer = session->peer,
		.core = session->front->opts.core,
		.etag_only = !(request->in.flags & CAPSULE_REQUEST_HEADERS),
		.left = client_left,
		.left_arg = request,
	};
	if (__builtin_expect(request->in.flags & CAPSULE_REQUEST_LEASE, 0) && session->leases)
		native_lease_ask(request);
	id_text(request->server_id, request->s3.request_id);
	ret = headers_prepare(request, text);
	if (ret == 0 && routed)
		ret = target_prepare(request, text, op);
	return ret;
}

/* False: it has its answer already. */
static bool may_run(struct native_request *request, const struct s3_native *op)
{
	if (!(request->in.flags & CAPSULE_REQUEST_ONCE))
		return true;
	if (op->method != S3_GET && op->method != S3_HEAD)
		return native_once_begin(request);
	refuse(request, 400, "MalformedCapsule", "Only a write may have a number.");
	return false;
}

static void run(struct native_request *request)
{
	struct request_text text;
	struct s3_native op;

	text.target.data = NULL;
	if (request->in.opcode == CAPSULE_OP_PING) {
		request->reply.status = 200;
		return;
	}
	if (!op_of(&request->in, &op)) {
		refuse(request, 501, "NotImplemented",
			"This server does not support the operation.");
		return;
	}
	if (prepare(request, &text, &op) == 0 && may_run(request, &op)) {
		if (__builtin_expect(request->in.flags & CAPSULE_REQUEST_STREAM, 0))
			native_stream_list(request);
		else
			s3_handle(request->session->front->opts.s3, &request->s3, &request->reply);
	}
	if (text.target.data)
		buf_free(&text.target);
}

static void request_init(struct native_request *request, struct native_recv *recv)
{
	struct front_native *front = recv->session->front;

	request->magic = NATIVE_REQUEST_MAGIC;
	request->session = recv->session;
	native_session_check(request->session);
	request->recv = recv;
	request->reply = (struct s3_reply){.ops = &REPLY_OPS};
	request->peer.run_count = 0;
	request->peer.progress = &request->progress;
	request->progress = (struct flow_progress){0};
	request->progress_done = 0;
	request->progress_ns = 0;
	request->runs[0] = (struct flow_remote){0};
	list_init(&request->link);
	request->deadline_ns = DEADLINE_NONE;
	request->server_id = prng_next(&front->prng);
	request->bytes_announced = 0;
	request->bytes_moved = 0;
	request->refusal = NULL;
	request->refusal_message = NULL;
	request->send = NULL;
	request->counter = ((const struct capsule_head *)(void *)recv->span.data)->counter;
	request->opener = NULL;
	request->sealer = NULL;
	request->has_payload_tag = false;
	request->has_lease = false;
	request->stream = NULL;
	request->once = NULL;
	request->direct_offset = 0;
	request->uncounted_frames = 0;
	request->span.data = NULL;
	request->inline_at = NULL;
	request->inline_bytes = 0;
	request->headers_bytes = 0;
	request->header_count = 0;
	request->etag_len = 0;
	request->code_len = 0;
	request->message_len = 0;
}

static uint64_t deadline_of(const struct native_request *request)
{
	if (!request->in.deadline_ms)
		return DEADLINE_NONE;
	return reactor_now_ns(request->session->front->reactor) +
	       request->in.deadline_ms * NS_PER_MS;
}

static bool tells_of_write(const struct native_request *request)
{
	struct s3_native op;

	return request->reply.status && request->reply.status < 300 && op_of(&request->in, &op) &&
	       !s3_method_harmless(op.method);
}

/* Replaces an answer that cannot be given now. */
static void withhold(struct native_request *request, const char *why)
{
	if (tells_of_write(request))
		refuse(request, 503, "OutcomeUnknown",
			"The answer cannot be given now, and it is not known whether the request "
			"was done: look before you repeat it.");
	else
		refuse(request, 503, "SlowDown", why);
}

/* An answer that does not fit the client's receives, or finds no frames, is replaced by a refusal.
 * A refusal fits every client; one that finds no frames either ends the session, on devices that
 * take less than a refusal inside a work request. */
static void response_fit(struct native_request *request, struct capsule_response *response)
{
	int ret = response_room(request, response_bytes(response));

	if (!ret)
		return;
	if (ret == -EMSGSIZE)
		refuse(request, 400, "BufferTooSmall",
			"The answer does not fit a capsule of this session.");
	else if (!request->refusal)
		withhold(request, "The server is short of buffers.");
	native_response_fill(request, response);
	if (response_room(request, response_bytes(response)))
		native_session_fail(request->session, "no frame to refuse a request in");
}

bool native_answer_late(struct native_request *request)
{
	if (request->refusal || request->reply.status >= 500 ||
		request->in.opcode == CAPSULE_OP_PING)
		return false;
	counter_add(&late_total, 1);
	withhold(request, "The store cannot serve this now. Try again later.");
	return true;
}

static void answer(struct native_request *request)
{
	struct capsule_response response;

	native_request_check(request);
	/* The sweep no longer sees it. */
	if (request->progress.posted)
		request->session->moved_ns = reactor_now_ns(request->session->front->reactor);
	list_remove(&request->link);
	if (request->once)
		native_once_end(request);
	native_crypt_end(request);
	if (!request->refusal && request->reply.broken && request->reply.error == -EHOSTDOWN)
		withhold(
			request, "Too few of the store's volumes can be reached. Try again later.");
	if (!request->refusal && request->reply.broken && request->reply.error == -ENOBUFS)
		withhold(request, "Please reduce your request rate.");
	if (!request->refusal && (request->reply.broken || !request->reply.status))
		refuse(request, 500, "RDMATransferFailed", "The body could not be moved.");
	if (__builtin_expect(!life_holds(), 0))
		native_answer_late(request);
	native_response_fill(request, &response);
	if (request->session->phase != NATIVE_FAILED)
		response_fit(request, &response);
	request->session->answered++;
	if (response.status >= 400)
		request->session->errors++;
	else
		request->session->bytes_in += request->in.body_bytes;
	native_respond(request, &response);
}

void native_request_fiber(void *arg)
{
	struct native_request request;
	int ret;

	request_init(&request, arg);
	ret = capsule_request_decode(request.recv->span.data, request.recv->bytes, &request.in);
	if (ret) {
		refuse(&request, 400, "MalformedCapsule",
			"The request's parts contradict each other.");
	} else {
		request.deadline_ns = deadline_of(&request);
		if (bounds_check(&request) == 0)
			run(&request);
	}
	answer(&request);
}

void native_request_refuse(
	struct native_recv *recv, uint16_t status, const char *code, const char *message)
{
	struct native_request request;

	request_init(&request, recv);
	request.in.request_id =
		((const struct capsule_request_wire *)(void *)recv->span.data)->request_id;
	refuse(&request, status, code, message);
	answer(&request);
}
