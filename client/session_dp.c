/* client/session_dp.c: requests out as capsules, responses in. Data path: no system call while the
 * answer comes within the spin. */
#include "base/life.h"
#include "http_priv.h"
#include "session_priv.h"

#include <errno.h>
#include <string.h>

/* ---- Sending. ---- */

/* The request's remaining time, for the server. The first try has just read the clock. */
static uint32_t deadline_ms(const struct client_call *call)
{
	uint64_t now_ns = call->attempts ? clock_now_ns() : call->begun_ns;
	uint64_t left_ns = call->deadline_ns > now_ns ? call->deadline_ns - now_ns : 0;

	return (uint32_t)MIN(left_ns / NS_PER_MS + 1, (uint64_t)UINT32_MAX);
}

static void request_fill(const struct client_call *call, struct capsule_request *request)
{
	*request = (struct capsule_request){
		.opcode = call->op,
		.method = call->method,
		.flags = call->want_headers ? CAPSULE_REQUEST_HEADERS : 0,
		.deadline_ms = deadline_ms(call),
		.body_bytes = call->body_bytes,
		.bucket = call->bucket,
		.key = call->key,
		.version_id = call->version_id,
		.query = call->query,
		.headers = call->headers,
		.header_count = call->header_count,
		.checksum_kind = call->checksum_kind,
		.checksum = slice_of(
			call->checksum, checksum_bytes((enum checksum_kind)call->checksum_kind)),
	};
	if (call->range_bytes) {
		request->flags |= CAPSULE_REQUEST_RANGE;
		request->range_offset = call->range_offset;
		request->range_bytes = call->range_bytes;
	}
}

/* So that the server does a write once, however often it is sent. */
static void request_number(
	struct client_call *call, struct capsule_request *request, struct capsule_once *once)
{
	client_call_number(call, once);
	request->once = slice_of(once, sizeof(*once));
	request->flags |= CAPSULE_REQUEST_ONCE;
	if (call->repeat)
		request->flags |= CAPSULE_REQUEST_REPEAT;
	if (call->sure)
		request->flags |= CAPSULE_REQUEST_SURE;
}

/* Chooses between inline and runs, both ways; an inline body is gathered into body. */
static int request_body(struct client_session *session, struct client_call *call,
	struct capsule_request *request, struct capsule_run *runs, uint8_t *body)
{
	/* The tag of an encrypted body is in the place of an inline body. */
	uint8_t *tag = body;

	if (call->body_bytes > session->transfer_bytes_max)
		return -EFBIG;
	request->runs = runs;
	if (call->body_bytes > session->inline_bytes && session->encrypted) {
		request->flags |= CAPSULE_REQUEST_TAG;
		request->payload_tag = slice_of(tag, AEAD_TAG_BYTES);
		request->run_count = 1;
		return client_body_seal(session, call, runs, tag);
	}
	if (call->body_bytes > session->inline_bytes)
		return client_runs(call, true, runs, &request->run_count);
	if (call->body_bytes) {
		client_gather(call, 0, body, call->body_bytes);
		request->body = slice_of(body, call->body_bytes);
	}
	if (!call->into_bytes)
		return 0;
	/* An RDMA WRITE into registered memory is faster than a copy out of the capsule. */
	if (!client_memory_known(call)) {
		request->flags |= CAPSULE_REQUEST_INLINE;
		if (call->into_bytes <= session->inline_bytes)
			return 0;
	}
	return client_runs(call, false, runs, &request->run_count);
}

int client_session_start(struct client_session *session, struct client_call *call)
{
	struct capsule_run runs[NEB_IOV_MAX];
	uint8_t body[LIMIT_CAPSULE_INLINE_BYTES_MAX];
	struct capsule_request request;
	struct capsule_once once;
	struct client_slot *slot;
	ptrdiff_t bytes;
	int ret;

	if (session->phase != SESSION_OPEN || !session->free_count)
		return -EAGAIN;
	if (__builtin_expect(client_call_bound(call), 0) && !session->once)
		return -ESTALE;
	if (__builtin_expect(session->leases, 0) && client_lease_read(session, call))
		return 0;
	/* A lease that could not be read may be another path's. */
	call->device_idx = session->endpoint->device_idx;
	request_fill(call, &request);
	if (__builtin_expect(session->leases && call->lease, 0)) {
		request.flags |= CAPSULE_REQUEST_LEASE;
		call->lease_asked_ns = clock_boot_ns();
	}
	if (session->once && call->writes)
		request_number(call, &request, &once);
	call->session = session;
	/* The capsule is sealed before any other. */
	call->counter = session->out.counter + 1;
	ret = request_body(session, call, &request, runs, body);
	if (ret) {
		client_runs_end(call, 0);
		call->session = NULL;
		return ret;
	}
	if (__builtin_expect(call->pages != NULL, 0) && session->streams && request.run_count > 1)
		request.flags |= CAPSULE_REQUEST_STREAM;
	if (session->parts && !session->parted && call->op == CAPSULE_OP_GET &&
		call->into_bytes >= CLIENT_PARTED_BYTES_MIN)
		request.flags |= CAPSULE_REQUEST_PARTS;
	call->slot_idx = session->free_slots[session->free_count - 1];
	slot = &session->slots[call->slot_idx];
	request.request_id = call->slot_idx | (uint64_t)slot->generation << 32;
	bytes = capsule_request_encode(&request, slot->data, session->capsule_bytes);
	if (bytes < 0) {
		client_runs_end(call, 0);
		call->session = NULL;
		return (int)bytes;
	}
	session->free_count--;
	slot->call = call;
	if (request.flags & CAPSULE_REQUEST_PARTS)
		session->parted = call;
	if (__builtin_expect(call->left != NULL, 0))
		client_call_moved(call, session->endpoint);
	call->phase = CLIENT_ON_RDMA;
	list_remove(&call->link);
	list_push_back(&call->client->running, &call->link);
	capsule_seal(&session->out, slot->data);
	if (client_send(session, slot->data, slot->data) != 0)
		client_session_lose(session, -ECONNRESET, "a request could not be sent");
	return 0;
}

/* ---- Receiving. ---- */

static void text_take(char *text, size_t text_bytes, struct slice from)
{
	size_t len = MIN(from.len, text_bytes - 1);

	if (len)
		memcpy(text, from.data, len);
	text[len] = '\0';
}

static void headers_take(struct neb_result *result, struct slice headers)
{
	struct capsule_header header;
	size_t len = 0;

	while (capsule_header_next(&headers, &header)) {
		if (len + header.name.len + header.value.len + 4 >
			sizeof(result->headers) - sizeof(CLIENT_CUT)) {
			result->headers[len] = '\0';
			client_headers_cut(result);
			return;
		}
		memcpy(result->headers + len, header.name.data, header.name.len);
		len += header.name.len;
		memcpy(result->headers + len, ": ", 2);
		len += 2;
		memcpy(result->headers + len, header.value.data, header.value.len);
		len += header.value.len;
		result->headers[len++] = '\n';
	}
	result->headers[len] = '\0';
}

static void id_take(char *text, uint64_t id)
{
	static const char digits[] = "0123456789abcdef";

	for (int i = 15; i >= 0; i--, id >>= 4)
		text[i] = digits[id & 15];
	text[16] = '\0';
}

static void response_take(struct client_call *call, const struct capsule_response *response)
{
	struct neb_result *result = &call->result;

	result->status = response->status;
	result->transport = NEB_RDMA;
	result->bytes = response->bytes_moved;
	result->object_bytes = response->bytes_total;
	id_take(result->request_id, response->server_id);
	text_take(result->etag, sizeof(result->etag), response->etag);
	text_take(result->code, sizeof(result->code), response->code);
	text_take(result->message, sizeof(result->message), response->message);
	headers_take(result, response->headers);
}

/* An inline body may be longer than into: the server does not know its length. */
static void answer_take(struct client_call *call, const struct capsule_response *response)
{
	struct neb_result *result = &call->result;

	response_take(call, response);
	if (response->body.len > call->into_bytes) {
		result->bytes = 0;
		text_take(result->code, sizeof(result->code), SLICE("BufferTooSmall"));
		text_take(result->message, sizeof(result->message),
			SLICE("The buffer is smaller than the answer."));
	} else if (response->body.len) {
		client_scatter(call, 0, response->body.data, response->body.len);
	}
	if (__builtin_expect(call->opener != NULL, 0))
		client_opened_drop(call);
	client_runs_end(call, response->body.len ? 0 : result->bytes);
	call->client->stats.requests_rdma++;
	client_call_finish(call, response->body.len > call->into_bytes
					 ? -EMSGSIZE
					 : client_status_error(response->status));
}

/* Takes a page of a streamed list, but not the last one. False: the answer cannot be one. */
static bool page_take(struct client_call *call, const struct capsule_response *response)
{
	struct client_pages *pages = call->pages;
	const struct neb_iov *into;

	if (!pages || response->status != 200 || response->body.len ||
		pages->count + 1 >= call->into_count)
		return false;
	into = &call->into[pages->count];
	if (response->bytes_moved > into->bytes)
		return false;
	pages->count++;
	pages->page(pages->arg, into->data, response->bytes_moved);
	return true;
}

/* Takes what a RESPONSE with MORE brings. False: nothing was to be brought. */
static bool more_take(struct client_session *session, struct client_call *call,
	const struct capsule_response *response)
{
	if (session->parted != call)
		return page_take(call, response);
	return response->status / 100 == 2 && !response->body.len &&
	       response->bytes_moved > (call->opener ? call->opened : 0) &&
	       client_part_open(session, call, response->bytes_moved) == 0;
}

static void on_response(struct client_session *session, const void *capsule, uint32_t bytes)
{
	struct capsule_response response;
	struct client_slot *slot;
	struct client_call *call;
	uint32_t slot_idx;

	if (capsule_response_decode(capsule, bytes, &response) != 0) {
		client_session_lose(session, -EPROTO, "a response is malformed");
		return;
	}
	slot_idx = (uint32_t)response.request_id;
	slot = slot_idx < session->slot_count ? &session->slots[slot_idx] : NULL;
	call = slot && slot->generation == response.request_id >> 32 ? slot->call : NULL;
	if (!call || (response.body.len ? response.body.len != response.bytes_moved
					: response.bytes_moved > call->into_bytes)) {
		client_session_lose(session, -EPROTO, "a response matches no request");
		return;
	}
	if (__builtin_expect(response.flags & CAPSULE_RESPONSE_MORE, 0)) {
		if (!more_take(session, call, &response))
			client_session_lose(session, -EPROTO, "a page or part matches no request");
		return;
	}
	if (session->encrypted && response.bytes_moved && !response.body.len &&
		client_answer_open(session, call, response.bytes_moved, response.payload_tag)) {
		client_session_lose(session, -EPROTO, "an answer's body fails verification");
		return;
	}
	if (__builtin_expect(call->lease != NULL, 0))
		client_lease_take(session, call, &response);
	if (session->parted == call)
		session->parted = NULL;
	slot->call = NULL;
	slot->generation++;
	session->free_slots[session->free_count++] = (uint16_t)slot_idx;
	answer_take(call, &response);
}

static void on_sealed(struct client_session *session, void *capsule, uint32_t bytes)
{
	const struct capsule_head *head = capsule;

	if (session->phase < SESSION_OPEN || capsule_unseal(&session->in, capsule, bytes) != 0) {
		client_session_lose(session, -EPROTO, "a capsule fails verification");
		return;
	}
	if (head->kind == CAPSULE_RESPONSE) {
		on_response(session, capsule, bytes);
	} else if (head->kind == CAPSULE_GOODBYE) {
		/* The server still answers requests in flight; the others use another endpoint. */
		session->phase = SESSION_LEAVING;
		if (*session->home == session)
			*session->home = NULL;
		client_calls_kick(session->client);
	} else if (head->kind == CAPSULE_PATHS) {
		if (client_told(session, capsule, bytes) != 0)
			client_session_lose(session, -EPROTO, "the server's PATHS is malformed");
		else
			client_paths_told(session);
	} else {
		client_session_lose(
			session, -EPROTO, "a capsule of a kind that servers do not send");
	}
}

static void on_recv(struct client_recv *recv, const struct rp_wc *wc)
{
	struct client_session *session = recv->session;
	struct capsule_head *head = (void *)recv->data;
	bool waiting = session->free_count < session->slot_count || session->phase < SESSION_OPEN;
	ptrdiff_t bytes;

	if (session->phase == SESSION_LOST)
		return;
	if (wc->status != RP_WC_SUCCESS) {
		client_session_broken(session, wc->status);
		return;
	}
	bytes = capsule_head_check(head, wc->byte_len, CLIENT_CAPSULE_BYTES);
	if (bytes != (ptrdiff_t)wc->byte_len || bytes < 0)
		client_session_lose(session, -EPROTO, "a message is no capsule");
	else if (head->kind < CAPSULE_REQUEST)
		client_session_setup(session, head, (uint32_t)bytes);
	else
		on_sealed(session, head, (uint32_t)bytes);
	if (session->phase == SESSION_LOST)
		return;
	if (client_recv_post(recv) != 0)
		client_session_lose(session, -ECONNRESET, "a receive could not be posted");
	else if (waiting && !list_empty(&session->client->queued))
		client_calls_kick(session->client);
}

static uint32_t completions_take(struct neb_client *client, struct rp_cq *cq)
{
	struct rp_wc wcs[CLIENT_WC_BATCH];
	int count = rp_cq_poll(cq, wcs, CLIENT_WC_BATCH);

	for (int i = 0; i < count; i++) {
		struct client_session *session =
			client_session_of(client, (uint32_t)(wcs[i].wr_id >> 32));

		if (!session)
			client_hipobj_wc(client, &wcs[i]);
		if (!session)
			continue;
		if (wcs[i].wr_id & CLIENT_WR_READ)
			client_lease_landed(
				session, (uint32_t)wcs[i].wr_id & ~CLIENT_WR_READ, &wcs[i]);
		else if (!(wcs[i].wr_id & (CLIENT_WR_SEND | CLIENT_WR_KEEP)))
			on_recv(&session->recvs[(uint32_t)wcs[i].wr_id], &wcs[i]);
		else if (wcs[i].status != RP_WC_SUCCESS)
			client_session_broken(session, wcs[i].status);
		else if (wcs[i].wr_id & CLIENT_WR_KEEP)
			session->keeping = false;
	}
	return count > 0 ? (uint32_t)count : 0;
}

uint32_t client_cq_progress(struct neb_client *client)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < client->device_count; i++)
		count += completions_take(client, client->devices[i].cq);
	return count;
}
