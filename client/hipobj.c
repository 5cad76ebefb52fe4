/* client/hipobj.c: bodies by hipobj-rc-v2 (docs/spec/hipobj.md): each transfer asks for a session
 * by PREPARE, joins a queue pair of its own to the server's, and says READY while the bytes move. A
 * call that cannot use it uses HTTP, and its result has the reason. */
#include "http_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_NS    (10 * NS_PER_S) /* after a server said that it does not support the dialect */
#define CANCEL_NS   (2 * NS_PER_S)
#define TEXT_BYTES  (CAPSULE_HEADERS_BYTES_MAX + HIPOBJ_TARGET_MAX + 1024u)
#define OWN_HEADERS 8u

/*   SIZING    -> PREPARING  the object's length is known
 *   PREPARING -> JOINING    the server's queue pair is known
 *   JOINING   -> MOVING     both are joined, READY is on its way
 *   MOVING    -> LANDING    READY is answered
 *   LANDING   -> ended      GET: the immediate is polled, which came before the answer
 *   any       -> ended      refused, too late, or the client closes */
enum hipobj_phase { SIZING, PREPARING, JOINING, MOVING, LANDING };

struct client_hipobj {
	struct list link; /* the client's */
	struct neb_client *client;
	struct client_call *call; /* NULL: it has ended */
	struct client_endpoint *endpoint;
	enum hipobj_phase phase;
	uint32_t asking; /* control requests without an answer */
	bool sized;
	bool refusal_only; /* its length could not be asked for: PREPARE's refusal says why */
	uint64_t offset, size;
	char etag[sizeof(((struct neb_result *)0)->etag)]; /* of the object that has this length */
	struct capsule_run run;
	struct rp_qp *qp;
	struct rp_address ours;
	uint32_t serial; /* of its work requests */
	uint32_t cookie;
	char session[2 * HIPOBJ_SESSION_BYTES + 1];
	uint64_t addr; /* PUT: of the server's memory */
	uint32_t rkey;
	bool landed; /* GET: the immediate */
};

/* The headers of a control request, and their text. */
struct ask {
	struct neb_header headers[NEB_HEADERS_MAX];
	uint32_t count;
	size_t len;
	bool failed;
	char text[TEXT_BYTES];
};

static bool is_put(const struct client_hipobj *transfer)
{
	return transfer->call->body_bytes > 0;
}

/* ---- Ending. ---- */

static void transfer_free(struct client_hipobj *transfer)
{
	list_remove(&transfer->link);
	free(transfer);
}

/* After the close the server can no longer touch the call's memory. */
static struct client_call *transfer_end(struct client_hipobj *transfer, uint64_t moved)
{
	struct client_call *call = transfer->call;

	rp_qp_close(transfer->qp);
	transfer->qp = NULL;
	transfer->call = NULL;
	call->hipobj = NULL;
	client_runs_end(call, moved);
	if (!transfer->asking)
		transfer_free(transfer);
	return call;
}

static void go_http(struct client_hipobj *transfer, const char *why)
{
	struct client_endpoint *endpoint = transfer->endpoint;
	struct client_call *call = transfer_end(transfer, 0);
	int ret;

	if (why) {
		call->client->stats.fallbacks++;
		snprintf(call->result.fallback, sizeof(call->result.fallback), "%s", why);
	}
	ret = client_http_start(call, endpoint);
	if (ret)
		client_call_finish(call, ret);
}

/* ---- Asking. ---- */

static void ask_begin(struct ask *ask)
{
	ask->count = 0;
	ask->len = 0;
	ask->failed = false;
}

static void put(struct ask *ask, struct slice name, struct slice value)
{
	char *at = ask->text + ask->len;

	if (ask->count == NEB_HEADERS_MAX ||
		name.len + value.len + 2 > sizeof(ask->text) - ask->len) {
		ask->failed = true;
		return;
	}
	memcpy(at, name.data, name.len);
	at[name.len] = '\0';
	if (value.len)
		memcpy(at + name.len + 1, value.data, value.len);
	at[name.len + 1 + value.len] = '\0';
	ask->headers[ask->count++] = (struct neb_header){at, at + name.len + 1};
	ask->len += name.len + value.len + 2;
}

static void put_hex(struct ask *ask, enum hipobj_header header, int digits_min, uint64_t number)
{
	char text[32];
	int len = snprintf(text, sizeof(text), "%0*llx", digits_min, (unsigned long long)number);

	put(ask, hipobj_header(header), slice_of(text, (size_t)len));
}

static void put_u64(struct ask *ask, enum hipobj_header header, uint64_t number)
{
	char digits[SLICE_U64_MAX];

	put(ask, hipobj_header(header), slice_of_u64(number, digits));
}

static int post(struct client_hipobj *transfer, enum hipobj_step step, struct ask *ask,
	void (*answered)(struct client_call *asked))
{
	uint64_t now_ns = clock_now_ns();
	uint64_t end_ns = step == HIPOBJ_CANCEL ? now_ns + CANCEL_NS : transfer->call->deadline_ns;
	const struct neb_request request = {.op = NEB_S3,
		.method = "POST",
		.path = hipobj_path(step).data,
		.headers = ask->headers,
		.header_count = ask->count,
		.want_headers = true,
		.timeout_ns = end_ns > now_ns ? end_ns - now_ns : 1,
		.user_data = transfer};
	int ret = ask->failed ? -EMSGSIZE : 0;

	if (ret == 0)
		ret = client_call_internal(transfer->client, &request, transfer->endpoint,
			step == HIPOBJ_READY && transfer->call->sure, answered);
	if (ret == 0)
		transfer->asking++;
	return ret;
}

/* The transfer that one of our requests belongs to; NULL: it has ended. */
static struct client_hipobj *answer_take(struct client_call *asked)
{
	struct client_hipobj *transfer = asked->result.user_data;

	transfer->asking--;
	client_calls_kick(transfer->client);
	if (transfer->call)
		return transfer;
	if (!transfer->asking)
		transfer_free(transfer);
	return NULL;
}

static struct slice answer_header(const struct client_call *asked, enum hipobj_header header)
{
	const char *text = NULL;
	int len = neb_result_header(&asked->result, hipobj_header(header).data, &text);

	return len < 0 ? SLICE_NONE : slice_of(text, (size_t)len);
}

static void cancelled(struct client_call *asked)
{
	answer_take(asked);
}

/* Tells the server that the session is given up, so that it does not wait for its timeout. */
static void cancel(struct client_hipobj *transfer)
{
	struct ask ask;

	if (!transfer->session[0])
		return;
	ask_begin(&ask);
	put(&ask, hipobj_header(HIPOBJ_H_PROTOCOL), SLICE(HIPOBJ_PROTOCOL));
	put(&ask, hipobj_header(HIPOBJ_H_SESSION), slice_str(transfer->session));
	put_hex(&ask, HIPOBJ_H_COOKIE, 8, transfer->cookie);
	post(transfer, HIPOBJ_CANCEL, &ask, cancelled);
}

static void fail(struct client_hipobj *transfer, int error, const char *why)
{
	struct client_call *call = transfer->call;

	cancel(transfer);
	transfer_end(transfer, 0);
	call->result.status = 0;
	call->result.bytes = 0;
	snprintf(call->result.message, sizeof(call->result.message), "%s", why);
	client_call_finish(call, error);
}

/* Ends the call with the server's refusal of a control request. */
static void refused(struct client_hipobj *transfer, const struct client_call *asked)
{
	struct client_call *call = transfer_end(transfer, 0);
	struct neb_result *result = &call->result;
	const struct neb_result *from = &asked->result;

	if (!from->status) {
		client_call_retry(call, from->error, from->message);
		return;
	}
	result->status = from->status;
	result->transport = NEB_TOKEN;
	snprintf(result->code, sizeof(result->code), "%s", from->code);
	snprintf(result->message, sizeof(result->message), "%s", from->message);
	snprintf(result->request_id, sizeof(result->request_id), "%s", from->request_id);
	client_call_finish(call, client_status_error(from->status));
}

/* Whether another object has come into the place of the one whose length was asked for. */
static bool has_changed(const struct client_hipobj *transfer, const struct neb_result *result)
{
	return transfer->etag[0] && result->status == 412;
}

/* ---- READY. ---- */

static void landed(struct client_hipobj *transfer)
{
	uint64_t bytes = transfer->call->result.bytes;

	client_call_finish(transfer_end(transfer, bytes), 0);
}

static void moved(struct client_call *asked)
{
	struct client_hipobj *transfer = answer_take(asked);
	struct neb_result *result;
	struct client_call *call;
	uint64_t bytes;

	if (!transfer)
		return;
	if (has_changed(transfer, &asked->result)) {
		client_call_retry(transfer_end(transfer, 0), -EAGAIN, "the object changed");
		return;
	}
	if (asked->result.error || asked->result.status != 200) {
		refused(transfer, asked);
		return;
	}
	if (slice_to_u64(answer_header(asked, HIPOBJ_H_BYTES), &bytes) || bytes != transfer->size) {
		fail(transfer, -EPROTO, "the server moved another number of bytes");
		return;
	}
	call = transfer->call;
	result = &call->result;
	result->status = call->op == NEB_GET_OBJECT && call->range_bytes ? 206 : 200;
	result->transport = NEB_TOKEN;
	memcpy(result->etag, asked->result.etag, sizeof(result->etag));
	memcpy(result->request_id, asked->result.request_id, sizeof(result->request_id));
	if (call->want_headers)
		memcpy(result->headers, asked->result.headers, sizeof(result->headers));
	transfer->phase = LANDING;
	if (is_put(transfer)) {
		landed(transfer);
		return;
	}
	result->bytes = bytes;
	result->object_bytes = bytes;
	if (transfer->landed)
		landed(transfer);
}

static int write_post(struct client_hipobj *transfer)
{
	const struct rp_sge sge = {.addr = transfer->run.addr,
		.length = (uint32_t)transfer->size,
		.lkey = client_run_lkey(transfer->call, &transfer->run)};
	const struct rp_send_wr wr = {.wr_id = (uint64_t)transfer->serial << 32,
		.opcode = RP_WRITE_IMM,
		.flags = RP_SEND_SIGNALED,
		.sg_list = &sge,
		.sge_count = 1,
		.imm = transfer->cookie,
		.remote_addr = transfer->addr,
		.rkey = transfer->rkey};
	uint32_t posted;

	return rp_post_send(transfer->qp, &wr, 1, &posted);
}

static int recv_post(struct client_hipobj *transfer)
{
	const struct rp_recv_wr wr = {.wr_id = (uint64_t)transfer->serial << 32 | 1};
	uint32_t posted;

	return rp_post_recv(transfer->qp, &wr, 1, &posted);
}

static void ready(struct client_hipobj *transfer)
{
	struct ask ask;
	int ret;

	ask_begin(&ask);
	transfer->phase = MOVING;
	put(&ask, hipobj_header(HIPOBJ_H_PROTOCOL), SLICE(HIPOBJ_PROTOCOL));
	put(&ask, hipobj_header(HIPOBJ_H_SESSION), slice_str(transfer->session));
	put_hex(&ask, HIPOBJ_H_COOKIE, 8, transfer->cookie);
	put_hex(&ask, HIPOBJ_H_QPN, 1, transfer->ours.qpn);
	put_hex(&ask, HIPOBJ_H_ADDR, 1, transfer->run.addr);
	put_hex(&ask, HIPOBJ_H_RKEY, 1, transfer->run.rkey);
	ret = is_put(transfer) ? write_post(transfer) : recv_post(transfer);
	if (ret == 0)
		ret = post(transfer, HIPOBJ_READY, &ask, moved);
	if (ret)
		fail(transfer, ret, "cannot start the transfer");
}

/* ---- PREPARE. ---- */

static void size_ask(struct client_hipobj *transfer);

static int answer_hex(
	const struct client_call *asked, enum hipobj_header header, uint64_t *ret_number)
{
	return hipobj_hex_parse(answer_header(asked, header), 16, ret_number);
}

static int join(struct client_hipobj *transfer, const struct client_call *asked)
{
	struct slice session = answer_header(asked, HIPOBJ_H_SESSION);
	struct rp_address theirs = {.has_gid = true, .mtu = transfer->ours.mtu};
	struct hipobj_token token;
	uint64_t psn, rkey = 0;

	if (!slice_eq(answer_header(asked, HIPOBJ_H_PROTOCOL), SLICE(HIPOBJ_PROTOCOL)) ||
		hipobj_reply_parse(answer_header(asked, HIPOBJ_H_REPLY), &token) ||
		answer_hex(asked, HIPOBJ_H_PSN, &psn) || !psn || psn > HIPOBJ_NUMBER_MAX ||
		session.len != sizeof(transfer->session) - 1)
		return -EPROTO;
	if (is_put(transfer) && (answer_hex(asked, HIPOBJ_H_ADDR, &transfer->addr) ||
					answer_hex(asked, HIPOBJ_H_RKEY, &rkey)))
		return -EPROTO;
	slice_copy_str(session, transfer->session, sizeof(transfer->session));
	transfer->rkey = (uint32_t)rkey;
	theirs.lid = token.lid;
	theirs.qpn = token.qpn;
	theirs.psn = (uint32_t)psn;
	memcpy(theirs.gid, token.gid, sizeof(theirs.gid));
	return rp_qp_join(transfer->qp, &theirs, false);
}

static void prepared(struct client_call *asked)
{
	struct client_hipobj *transfer = answer_take(asked);
	const struct neb_result *result = &asked->result;
	int ret;

	if (!transfer)
		return;
	if (result->status == 501 &&
		slice_eq(answer_header(asked, HIPOBJ_H_STATUS), SLICE(HIPOBJ_UNSUPPORTED))) {
		transfer->endpoint->hipobj_retry_ns = clock_now_ns() + RETRY_NS;
		go_http(transfer, "the server does not move these bytes by hipobj-rc-v2");
		return;
	}
	/* A range that reaches past the end is cut. */
	if (result->status == 416 && !is_put(transfer) && !transfer->sized) {
		rp_qp_close(transfer->qp);
		transfer->qp = NULL;
		client_runs_end(transfer->call, 0);
		size_ask(transfer);
		return;
	}
	if ((result->status == 416 && !is_put(transfer) && !transfer->call->range_bytes) ||
		has_changed(transfer, result)) {
		client_call_retry(transfer_end(transfer, 0), -EAGAIN, "the object changed");
		return;
	}
	if (result->error || result->status != 200) {
		refused(transfer, asked);
		return;
	}
	if (transfer->refusal_only) {
		slice_copy_str(answer_header(asked, HIPOBJ_H_SESSION), transfer->session,
			sizeof(transfer->session));
		cancel(transfer);
		go_http(transfer, "its length cannot be asked for");
		return;
	}
	ret = join(transfer, asked);
	if (ret)
		fail(transfer, ret, "cannot join the server's queue pair");
	else
		transfer->phase = JOINING;
}

static int qp_open(struct client_hipobj *transfer)
{
	struct neb_client *client = transfer->client;
	const struct rp_qp_attr attr = {.type = RP_QP_RC,
		.send_cq = client->devices[0].cq,
		.recv_cq = client->devices[0].cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1},
		.retry_count = 7,
		.rnr_retry_count = 7};
	int ret = -EAGAIN;

	/* The first packet's number must not be 0. One in 16 million is, and then another queue
	 * pair is opened. */
	for (int i = 0; i < 2 && ret == -EAGAIN; i++) {
		rp_qp_close(transfer->qp);
		transfer->qp = NULL;
		ret = rp_qp_open(client->devices[0].pd, &attr, &transfer->qp);
		if (ret == 0)
			ret = rp_qp_address(transfer->qp, &transfer->ours);
		if (ret == 0 && !transfer->ours.psn)
			ret = -EAGAIN;
	}
	return ret;
}

static void put_target(struct ask *ask, const struct client_call *call)
{
	struct buf target;

	buf_init(&target, HIPOBJ_TARGET_MAX);
	buf_put_str(&target, "/");
	uri_encode(call->bucket, 0, &target);
	buf_put_str(&target, "/");
	uri_encode(call->key, URI_KEEP_SLASH, &target);
	if (call->query.len || call->version_id.len)
		buf_put_str(&target, "?");
	buf_put_slice(&target, call->query);
	if (call->version_id.len) {
		buf_put_str(&target, call->query.len ? "&versionId=" : "versionId=");
		uri_encode(call->version_id, 0, &target);
	}
	ask->failed |= target.failed;
	if (!target.failed)
		put(ask, hipobj_header(HIPOBJ_H_TARGET), buf_slice(&target));
	buf_free(&target);
}

static void put_own(struct ask *ask, const struct client_call *call)
{
	struct slice rest = call->headers;
	struct capsule_header header;

	while (capsule_header_next(&rest, &header))
		put(ask, header.name, header.value);
}

static bool has_own(const struct client_call *call, struct slice name)
{
	struct slice rest = call->headers;
	struct capsule_header header;

	while (capsule_header_next(&rest, &header))
		if (slice_eq_nocase(header.name, name))
			return true;
	return false;
}

/* The call's own headers, and the headers for its fields. The bytes are those of the object whose
 * length is known, and no others. */
static void put_operation(struct ask *ask, const struct client_hipobj *transfer)
{
	const struct client_call *call = transfer->call;
	enum checksum_kind kind = (enum checksum_kind)call->checksum_kind;
	char checksum[CHECKSUM_TEXT_LEN_MAX], etag[sizeof(transfer->etag) + 2];

	put_own(ask, call);
	if (transfer->etag[0])
		put(ask, SLICE("if-match"),
			slice_of(etag,
				(size_t)snprintf(etag, sizeof(etag), "\"%s\"", transfer->etag)));
	if (kind)
		put(ask, checksum_header(kind),
			slice_of(checksum,
				base64_encode(call->checksum, checksum_bytes(kind), checksum)));
}

static void prepare(struct client_hipobj *transfer)
{
	struct client_call *call = transfer->call;
	struct capsule_run runs[NEB_IOV_MAX];
	struct hipobj_token token = {.transport = HIPOBJ_TRANSPORT_RC, .port = 1};
	char text[HIPOBJ_TOKEN_LEN];
	struct ask ask;
	uint32_t run_count;
	int ret = client_runs(call, is_put(transfer), runs, &run_count);

	ask_begin(&ask);
	if (ret == 0)
		ret = qp_open(transfer);
	if (ret) {
		go_http(transfer, strerror(-ret));
		return;
	}
	transfer->phase = PREPARING;
	transfer->run = runs[0];
	random_fill(&transfer->cookie, sizeof(transfer->cookie));
	transfer->cookie |= 1;
	token.qpn = transfer->ours.qpn;
	token.lid = transfer->ours.lid;
	memcpy(token.gid, transfer->ours.gid, sizeof(token.gid));
	hipobj_token_format(&token, text);
	put(&ask, hipobj_header(HIPOBJ_H_PROTOCOL), SLICE(HIPOBJ_PROTOCOL));
	put(&ask, hipobj_header(HIPOBJ_H_TOKEN), slice_of(text, sizeof(text)));
	put_hex(&ask, HIPOBJ_H_PSN, 6, transfer->ours.psn);
	put_hex(&ask, HIPOBJ_H_COOKIE, 8, transfer->cookie);
	put(&ask, hipobj_header(HIPOBJ_H_OP), is_put(transfer) ? SLICE("PUT") : SLICE("GET"));
	put_target(&ask, call);
	put_u64(&ask, HIPOBJ_H_SIZE, transfer->size);
	if (transfer->offset)
		put_u64(&ask, HIPOBJ_H_OFFSET, transfer->offset);
	put_operation(&ask, transfer);
	ret = post(transfer, HIPOBJ_PREPARE, &ask, prepared);
	if (ret)
		go_http(transfer, strerror(-ret));
}

/* ---- The length of the object that is read. ---- */

static void sized(struct client_call *asked)
{
	struct client_hipobj *transfer = answer_take(asked);
	const struct neb_result *result = &asked->result;
	struct client_call *call;
	uint64_t bytes = result->object_bytes;

	if (!transfer)
		return;
	call = transfer->call;
	transfer->sized = true;
	if (result->error && !result->status) {
		refused(transfer, asked);
		return;
	}
	/* An answer to HEAD has no body, so a refusal of it has no reason. PREPARE is sent all the
	 * same, because its refusal has one. */
	transfer->refusal_only = result->status != 200;
	if (transfer->refusal_only)
		bytes = transfer->offset + 1;
	else if (!has_own(call, SLICE("if-match")))
		memcpy(transfer->etag, result->etag, sizeof(transfer->etag));
	if (call->range_bytes && bytes > transfer->offset)
		bytes = MIN(bytes - transfer->offset, call->range_bytes);
	transfer->size = bytes;
	if (!bytes) {
		go_http(transfer, NULL);
		return;
	}
	if (result->status == 200 && bytes > call->into_bytes) {
		transfer_end(transfer, 0);
		call->result.status = 200;
		call->result.transport = NEB_TOKEN;
		call->result.object_bytes = bytes;
		snprintf(call->result.code, sizeof(call->result.code), "BufferTooSmall");
		client_call_finish(call, -EMSGSIZE);
		return;
	}
	prepare(transfer);
}

static void size_ask(struct client_hipobj *transfer)
{
	const struct client_call *call = transfer->call;
	char bucket[LIMIT_BUCKET_LEN_MAX + 1], key[LIMIT_KEY_LEN_MAX + 1];
	char version[CAPSULE_VERSION_ID_LEN_MAX + 1], query[256];
	uint64_t now_ns = clock_now_ns();
	struct ask ask;
	const struct neb_request request = {.op = NEB_HEAD_OBJECT,
		.bucket = bucket,
		.key = key,
		.version_id = version,
		.query = query,
		.headers = ask.headers,
		.header_count = call->header_count,
		.timeout_ns = call->deadline_ns > now_ns ? call->deadline_ns - now_ns : 1,
		.user_data = transfer};

	transfer->phase = SIZING;
	ask_begin(&ask);
	put_own(&ask, call);
	if (ask.failed || slice_copy_str(call->bucket, bucket, sizeof(bucket)) ||
		slice_copy_str(call->key, key, sizeof(key)) ||
		slice_copy_str(call->version_id, version, sizeof(version)) ||
		slice_copy_str(call->query, query, sizeof(query)) ||
		client_call_internal(transfer->client, &request, transfer->endpoint, false, sized))
		go_http(transfer, "its length cannot be asked for");
	else
		transfer->asking++;
}

/* ---- A call. ---- */

static bool takes_hipobj(const struct client_call *call)
{
	if (call->op == NEB_GET_OBJECT)
		return call->into_bytes > 0;
	return (call->op == NEB_PUT_OBJECT || call->op == NEB_UPLOAD_PART) && call->body_bytes > 0;
}

/* Why the call cannot use hipobj-rc-v2; NULL: it can. */
static const char *unfit(const struct client_call *call, const struct client_endpoint *endpoint)
{
	const struct neb_iov *iov = call->body_bytes ? call->body : call->into;
	uint32_t count = call->body_bytes ? call->body_count : call->into_count, used = 0;

	for (uint32_t i = 0; i < count; i++)
		used += iov[i].bytes > 0;
	if (has_own(call, SLICE("range")))
		return "a range is given as a header";
	if (call->client->require_encryption)
		return CLIENT_NOT_ENCRYPTED;
	if (!call->client->device_count)
		return "no RDMA device";
	if (used != 1 || MAX(call->body_bytes, call->range_bytes) > HIPOBJ_SIZE_MAX)
		return "a transfer has one contiguous range of memory below 2 GiB";
	if (call->header_count + OWN_HEADERS + 3 > NEB_HEADERS_MAX)
		return "too many headers";
	if (clock_now_ns() < endpoint->hipobj_retry_ns)
		return "the server does not speak hipobj-rc-v2";
	return NULL;
}

bool client_hipobj_start(struct client_call *call, struct client_endpoint *endpoint)
{
	struct neb_client *client = call->client;
	struct client_hipobj *transfer;
	const char *why;

	if (!endpoint->hipobj || !takes_hipobj(call))
		return false;
	why = unfit(call, endpoint);
	transfer = why ? NULL : calloc(1, sizeof(*transfer));
	if (!transfer) {
		client->stats.fallbacks++;
		snprintf(call->result.fallback, sizeof(call->result.fallback), "%s",
			why ? why : "no memory");
		return false;
	}
	transfer->client = client;
	transfer->call = call;
	transfer->endpoint = endpoint;
	transfer->serial = ++client->next_serial;
	transfer->offset = call->range_bytes ? call->range_offset : 0;
	transfer->size = call->body_bytes ? call->body_bytes : call->range_bytes;
	list_push_back(&client->hipobjs, &transfer->link);
	call->hipobj = transfer;
	call->endpoint = endpoint;
	call->phase = CLIENT_ON_HIPOBJ;
	list_remove(&call->link);
	list_push_back(&client->running, &call->link);
	if (!transfer->size || (call->into_bytes && transfer->size > call->into_bytes))
		size_ask(transfer);
	else
		prepare(transfer);
	return true;
}

void client_hipobj_wc(struct neb_client *client, const struct rp_wc *wc)
{
	LIST_FOR_EACH (link, &client->hipobjs) {
		struct client_hipobj *transfer = CONTAINER_OF(link, struct client_hipobj, link);

		if (transfer->serial != wc->wr_id >> 32)
			continue;
		transfer->landed |= wc->wr_id & 1 && wc->status == RP_WC_SUCCESS && wc->has_imm &&
				    wc->imm == transfer->cookie;
		return;
	}
}

void client_hipobj_progress(struct neb_client *client)
{
	LIST_FOR_EACH_SAFE (link, &client->hipobjs) {
		struct client_hipobj *transfer = CONTAINER_OF(link, struct client_hipobj, link);
		enum rp_qp_state state;

		if (!transfer->call || (transfer->phase != JOINING && transfer->phase != LANDING))
			continue;
		state = rp_qp_state(transfer->qp);
		if (transfer->landed)
			landed(transfer);
		else if (state == RP_QPS_RTS && transfer->phase == JOINING)
			ready(transfer);
		else if (state == RP_QPS_ERR)
			fail(transfer, -ECONNRESET, "the queue pair broke");
		else if (transfer->phase == JOINING)
			client->cm_polled_ns = 0; /* looks for its event in every round */
	}
}

void client_hipobj_late(struct client_call *call)
{
	fail(call->hipobj, -ETIMEDOUT, "the transfer was not done in time");
}

void client_hipobj_end(struct neb_client *client)
{
	LIST_FOR_EACH_SAFE (link, &client->hipobjs) {
		struct client_hipobj *transfer = CONTAINER_OF(link, struct client_hipobj, link);

		if (transfer->call)
			client_call_finish(transfer_end(transfer, 0), -ECANCELED);
	}
}

void client_hipobj_free(struct neb_client *client)
{
	LIST_FOR_EACH_SAFE (link, &client->hipobjs)
		transfer_free(CONTAINER_OF(link, struct client_hipobj, link));
}
