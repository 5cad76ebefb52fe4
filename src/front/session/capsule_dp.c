/* front/session/capsule_dp.c: the native front's data path: receives completions, sends capsules,
 * and writes bodies that are small enough to precede their response in the same batch of work
 * requests. Data path.
 *
 * The fiber that has a capsule or a small body posts it to the queue pair itself, not through the
 * region's rings: a response must follow its body's writes in one batch, within this turn. Bodies
 * beyond NATIVE_DIRECT_BYTES_MAX (NATIVE_DIRECT_SEALED_BYTES_MAX) move through flow and the rings.
 */
#include "front/session/native_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "base/probe.h"

DEFINE_COUNTER(capsules_in, "nebulaio_native_capsules_total", "direction=\"in\"",
	"Capsules received and sent by the native front.");
DEFINE_COUNTER(capsules_out, "nebulaio_native_capsules_total", "direction=\"out\"",
	"Capsules received and sent by the native front.");
DEFINE_COUNTER(keepalives, "nebulaio_native_keepalives_total", NULL,
	"Empty writes that checked whether silent clients of the native front still answer.");

static uint64_t tag_recv(struct native_recv *recv)
{
	return (uint64_t)(uintptr_t)recv | NATIVE_TAG_RECV;
}

static uint64_t tag_send(struct native_send *send)
{
	return (uint64_t)(uintptr_t)send | NATIVE_TAG_SEND;
}

static uint32_t lkey_of(const struct front_native *front, const void *data, size_t len)
{
	int arena = region_arena_of(front->region, data, len);

	CHECK(arena >= 0);
	return front->port->arenas.lkeys[arena];
}

/* ---- Receiving. ---- */

int native_recv_post(struct native_recv *recv)
{
	struct native_session *session = recv->session;
	struct rp_sge sge = {
		.addr = (uint64_t)(uintptr_t)recv->span.data,
		.length = region_span_bytes(recv->span),
		.lkey = lkey_of(session->front, recv->span.data, region_span_bytes(recv->span)),
	};
	struct rp_recv_wr wr = {.wr_id = tag_recv(recv), .sg_list = &sge, .sge_count = 1};
	uint32_t posted;
	int ret = rp_post_recv(session->qp, &wr, 1, &posted);

	if (ret == 0)
		session->recvs_posted++;
	return ret;
}

static void repost(struct native_recv *recv)
{
	if (recv->session->phase != NATIVE_FAILED && native_recv_post(recv) != 0)
		native_session_fail(recv->session, "a receive could not be posted");
}

static void on_request(struct native_session *session, struct native_recv *recv)
{
	const struct capsule_request_wire *wire = (const void *)recv->span.data;
	int ret;

	if (recv->bytes < sizeof(*wire) + CAPSULE_TAG_BYTES) {
		native_session_fail(session, "a request is too short");
		return;
	}
	if (session->in_flight >= session->credits) {
		native_session_fail(session, "more requests than credits");
		return;
	}
	session->in_flight++;
	ret = fiber_run(session->front->reactor, "native", native_request_fiber, recv);
	if (__builtin_expect(ret != 0, 0))
		native_request_refuse(recv, 503, "SlowDown", "Please reduce your request rate.");
}

static void on_sealed(struct native_session *session, struct native_recv *recv)
{
	struct capsule_head *head = (void *)recv->span.data;

	/* A refused session drains and has no keys; a key of zeros must not be used. */
	if (!session->proven ||
		(session->phase != NATIVE_OPEN && session->phase != NATIVE_DRAINING)) {
		native_session_fail(session, "a capsule came before the session was open");
		return;
	}
	if (capsule_unseal(&session->in, head, recv->bytes) != 0) {
		native_session_fail(session, "a capsule's tag or counter is wrong");
		return;
	}
	if (head->kind == CAPSULE_REQUEST) {
		on_request(session, recv);
		return;
	}
	if (head->kind != CAPSULE_GOODBYE || recv->bytes != sizeof(struct capsule_goodbye_wire)) {
		native_session_fail(session, "a capsule of a kind that clients do not send");
		return;
	}
	repost(recv);
	native_session_drain(session, CAPSULE_BYE_CLIENT);
}

static void on_recv(struct native_recv *recv, const struct rp_wc *wc)
{
	struct native_session *session = recv->session;
	const struct capsule_head *head = (const void *)recv->span.data;
	ptrdiff_t bytes;

	native_session_check(session);
	session->recvs_posted--;
	if (wc->status != RP_WC_SUCCESS || session->phase == NATIVE_FAILED) {
		native_session_broken(session, wc->status);
		native_session_settle(session);
		return;
	}
	counter_add(&capsules_in, 1);
	PROBE2(native_capsule_in, session->id, wc->byte_len);
	session->last_ns = reactor_now_ns(session->front->reactor);
	bytes = capsule_head_check(head, wc->byte_len, region_span_bytes(recv->span));
	if (bytes != (ptrdiff_t)wc->byte_len || bytes < 0) {
		native_session_fail(session, "a message is no capsule");
		return;
	}
	recv->bytes = (uint32_t)bytes;
	if (head->kind < CAPSULE_REQUEST)
		native_session_setup(session, recv, recv->bytes);
	else
		on_sealed(session, recv);
}

static void on_send(struct native_send *send, const struct rp_wc *wc)
{
	struct native_session *session = send->session;

	native_session_check(session);
	native_send_give(session->front, send);
	session->sends_signaled--;
	session->sent_ns = reactor_now_ns(session->front->reactor);
	session->keeping = false;
	if (wc->status != RP_WC_SUCCESS)
		native_session_broken(session, wc->status);
	if (session->phase >= NATIVE_DRAINING)
		native_session_settle(session);
}

static void on_unsignaled_send(struct front_native *front, uint64_t id, const struct rp_wc *wc)
{
	LIST_FOR_EACH (link, &front->sessions) {
		struct native_session *session = CONTAINER_OF(link, struct native_session, link);

		if (session->id != id)
			continue;
		native_session_fail(session, rp_status_str(wc->status));
		return;
	}
}

static void on_wc(void *arg, const struct rp_wc *wc)
{
	void *what = (void *)(uintptr_t)(wc->wr_id & ~(uint64_t)NATIVE_TAG_MASK);

	switch ((enum native_tag)(wc->wr_id & NATIVE_TAG_MASK)) {
	case NATIVE_TAG_RECV:
		on_recv(what, wc);
		break;
	case NATIVE_TAG_SEND:
		on_send(what, wc);
		break;
	case NATIVE_TAG_SESSION:
		on_unsignaled_send(arg, wc->wr_id >> 2, wc);
		break;
	}
}

/* A fiber that waits for room in a send queue; lies on the fiber's stack. */
struct send_waiter {
	struct list link;
	const struct native_session *session;
	struct fiber *fiber;
};

void native_send_wake(struct native_session *session)
{
	LIST_FOR_EACH (link, &session->front->send_waiters) {
		struct send_waiter *waiter = CONTAINER_OF(link, struct send_waiter, link);

		if (waiter->session == session)
			fiber_wake(waiter->fiber);
	}
}

uint32_t native_poll(void *arg)
{
	struct front_native *front = arg;
	uint32_t work = rp_cq_drain(front->cq, front->opts.core->ring, on_wc, front);

	if (work && !list_empty(&front->send_waiters)) {
		LIST_FOR_EACH (link, &front->send_waiters)
			fiber_wake(CONTAINER_OF(link, struct send_waiter, link)->fiber);
	}
	if (__builtin_expect(!list_empty(&front->closing), 0))
		work += native_sessions_reap(front);
	return work;
}

/* ---- Sending. ---- */

/* NULL: out of memory. */
static struct native_send *send_lease(struct native_session *session)
{
	struct list *idle = list_pop(&session->front->idle_sends);
	struct native_send *send =
		idle ? CONTAINER_OF(idle, struct native_send, link) : malloc(sizeof(*send));

	if (!send)
		return NULL;
	list_init(&send->link);
	send->session = session;
	send->capsule.data = NULL;
	send->uncounted_frames = 0;
	send->piece_count = 0;
	return send;
}

/* Gives back a capsule's frames. */
static void capsule_give(struct native_session *session, struct region_span span, uint16_t share,
	enum region_owner owner)
{
	region_give(session->front->region, span, owner);
	if (share != FLOW_SHARE_OWN)
		flow_share_give(session->front->opts.core, share, span.frame_count);
}

void native_span_give(struct native_request *request)
{
	if (request->span.data)
		capsule_give(request->session, request->span, request->span_share, OWNER_APP);
	request->span.data = NULL;
}

void native_send_give(struct front_native *front, struct native_send *send)
{
	for (uint32_t i = 0; i < send->piece_count; i++)
		flow_piece_end(front->opts.core, &send->pieces[i], OWNER_RDMA);
	if (send->capsule.data)
		capsule_give(send->session, send->capsule, send->capsule_share, OWNER_RDMA);
	send->session->uncounted_frames -= send->uncounted_frames;
	list_remove(&send->link);
	list_push_front(&front->idle_sends, &send->link);
}

/* A batch as it is posted: writes first, the capsule last. */
struct batch {
	struct rp_send_wr wrs[NATIVE_SEND_PIECES_MAX + 1];
	struct rp_sge sges[NATIVE_SEND_PIECES_MAX + 1];
	uint32_t count;
};

static struct rp_send_wr *batch_add(
	struct batch *batch, struct native_session *session, const void *data, uint32_t bytes)
{
	struct rp_sge *sge = &batch->sges[batch->count];
	struct rp_send_wr *wr = &batch->wrs[batch->count++];

	*sge = (struct rp_sge){.addr = (uint64_t)(uintptr_t)data, .length = bytes};
	*wr = (struct rp_send_wr){
		.wr_id = native_tag_session(session), .sg_list = sge, .sge_count = 1};
	return wr;
}

static void batch_build(struct batch *batch, struct native_session *session,
	const struct native_out *out, struct native_send *send)
{
	struct front_native *front = session->front;
	uint64_t offset = 0;
	struct rp_send_wr *wr = NULL;

	batch->count = 0;
	for (uint32_t i = 0; send && i < send->piece_count; i++) {
		const struct flow_piece *piece = &send->pieces[i];

		wr = batch_add(batch, session, piece->data, piece->bytes);
		wr->opcode = RP_WRITE;
		wr->remote_addr = out->remote.addr + offset;
		wr->rkey = out->remote.rkey;
		batch->sges[batch->count - 1].lkey = lkey_of(front, piece->data, piece->bytes);
		offset += piece->bytes;
	}
	if (out->capsule) {
		uint32_t bytes = ((const struct capsule_head *)out->capsule)->bytes;

		wr = batch_add(batch, session, out->capsule, bytes);
		wr->opcode = RP_SEND;
		wr->flags = RP_SEND_SOLICITED;
		if (out->span.data)
			batch->sges[batch->count - 1].lkey = lkey_of(front, out->capsule, bytes);
		else
			wr->flags |= RP_SEND_INLINE;
	}
	if (send && wr) {
		wr->flags |= RP_SEND_SIGNALED;
		wr->wr_id = tag_send(send);
	}
}

/* Posts what is left of the batch: 0, -ENOMEM (part may be posted), or the error that ended the
 * session. */
static int batch_post(struct batch *batch, uint32_t *begun, struct native_session *session,
	const struct native_out *out)
{
	uint32_t posted = 0;
	int ret;

	if (session->phase == NATIVE_FAILED)
		return -ENOTCONN;
	if (out->sealed)
		capsule_seal(&session->out, out->capsule);
	ret = rp_post_send(session->qp, batch->wrs + *begun, batch->count - *begun, &posted);
	*begun += posted;
	if (ret && out->sealed)
		capsule_seal_undo(&session->out, out->capsule);
	return ret;
}

static void wait_for_room(struct native_session *session)
{
	struct send_waiter waiter = {.session = session, .fiber = fiber_self()};

	/* Only these keep the session alive while this fiber is parked. */
	CHECK(session->in_flight || session->proof_running);
	list_push_back(&session->front->send_waiters, &waiter.link);
	fiber_park();
	list_remove(&waiter.link);
	native_session_check(session);
}

/* A send is signaled if it holds frames until it completes, now and then to free the send queue,
 * and always while the session waits for its last answers. */
static int send_record(
	struct native_session *session, const struct native_out *out, struct native_send **ret_send)
{
	struct native_send *send = out->send;

	if (!send && (out->span.data || session->phase != NATIVE_OPEN ||
			     session->sends_unsignaled >= session->unsignaled_max)) {
		send = send_lease(session);
		if (!send)
			return -ENOMEM;
	}
	if (send) {
		send->capsule = out->span;
		send->capsule_share = out->span_share;
	}
	*ret_send = send;
	return 0;
}

/* The device may still read the posted part of a partly posted batch: its frames are given back
 * only when the queue pair closes. */
static void send_failed(struct native_session *session, struct native_send *send, bool begun)
{
	native_session_fail(session, "a send could not be posted");
	if (send && begun)
		list_push_back(&session->sends, &send->link);
	else if (send)
		native_send_give(session->front, send);
}

/* The device has the signaled send, and completes it after all that were posted before. */
static void signaled_posted(struct native_session *session, struct native_send *send)
{
	list_push_back(&session->sends, &send->link);
	if (session->sends_signaled++ == 0)
		session->sent_ns = reactor_now_ns(session->front->reactor);
	session->sends_unsignaled = 0;
}

/* The frames that its client keeps by not taking it, and that no share counts. */
static uint32_t uncounted_of(const struct native_send *send)
{
	uint32_t frames = 0;

	if (send->capsule.data && send->capsule_share == FLOW_SHARE_OWN)
		frames = send->capsule.frame_count;
	for (uint32_t i = 0; i < send->piece_count; i++)
		if (send->pieces[i].share == FLOW_SHARE_OWN)
			frames += region_frames_for(send->pieces[i].bytes);
	return frames;
}

static void send_posted(
	struct native_session *session, const struct native_out *out, struct native_send *send)
{
	if (out->capsule) {
		counter_add(&capsules_out, 1);
		PROBE1(native_capsule_out, session->id);
	}
	if (send) {
		send->uncounted_frames = uncounted_of(send);
		session->uncounted_frames += send->uncounted_frames;
		signaled_posted(session, send);
	} else {
		session->sends_unsignaled++;
	}
}

int native_send_capsule(struct native_session *session, const struct native_out *out)
{
	bool wait = out->wait && fiber_self();
	struct native_send *send = NULL;
	struct batch batch;
	uint32_t begun = 0;
	int ret = send_record(session, out, &send);

	if (ret) {
		if (out->span.data)
			capsule_give(session, out->span, out->span_share, OWNER_RDMA);
		native_session_fail(session, "out of memory");
		return -ENOTCONN;
	}
	batch_build(&batch, session, out, send);
	while ((ret = batch_post(&batch, &begun, session, out)) == -ENOMEM && wait) {
		wait_for_room(session);
		/* A session that drains waits for its last answer. */
		if (!send && send_record(session, out, &send) == 0 && send)
			batch_build(&batch, session, out, send);
	}
	if (ret == 0)
		send_posted(session, out, send);
	else if (ret != -ENOMEM || begun || out->wait)
		send_failed(session, send, begun);
	else if (send)
		native_send_give(session->front, send);
	return ret;
}

void native_keepalive_send(struct native_session *session)
{
	struct native_send *send = send_lease(session);
	struct rp_send_wr wr = {.opcode = RP_WRITE, .flags = RP_SEND_SIGNALED};
	uint32_t posted;

	if (!send)
		return;
	wr.wr_id = tag_send(send);
	/* If the queue is full, the work in it detects a dead client. */
	if (rp_post_send(session->qp, &wr, 1, &posted)) {
		native_send_give(session->front, send);
		return;
	}
	signaled_posted(session, send);
	session->keeping = true;
	counter_add(&keepalives, 1);
}

static inline struct native_out respond_out(
	struct native_request *request, const struct capsule_response *response)
{
	struct native_session *session = request->session;
	struct native_out out = {
		.send = request->send, .sealed = true, .wait = true, .capsule = request->small};
	size_t room = session->wr_inline_bytes;
	ptrdiff_t bytes;

	out.remote = request->runs[0];
	out.remote.addr += request->direct_offset;
	if (request->span.data) {
		region_switch(session->front->region, request->span, OWNER_APP, OWNER_RDMA);
		out.span = request->span;
		out.span_share = request->span_share;
		out.capsule = request->span.data;
		room = region_span_bytes(request->span);
	}
	bytes = capsule_response_encode(response, out.capsule, room);
	CHECK(bytes > 0);
	session->bytes_out += response->bytes_moved;
	request->send = NULL;
	request->span.data = NULL;
	return out;
}

/* Its send counts what was posted. */
static void uncount(struct native_request *request)
{
	request->session->uncounted_frames -= request->uncounted_frames;
	request->uncounted_frames = 0;
}

int native_respond_more(struct native_request *request, const struct capsule_response *response)
{
	struct native_out out = respond_out(request, response);
	int ret = native_send_capsule(request->session, &out);

	uncount(request);
	return ret;
}

/* The client is gone: nothing is sent. */
static void respond_nobody(struct native_request *request)
{
	struct native_session *session = request->session;

	if (request->send)
		native_send_give(session->front, request->send);
	native_span_give(request);
}

void native_respond(struct native_request *request, const struct capsule_response *response)
{
	struct native_session *session = request->session;

	native_request_check(request);
	if (__builtin_expect(session->phase != NATIVE_FAILED, 1)) {
		struct native_out out = respond_out(request, response);

		repost(request->recv);
		/* The send may park, so the request keeps the session until it is posted. */
		native_send_capsule(session, &out);
	} else {
		respond_nobody(request);
	}
	uncount(request);
	magic_clear(&request->magic);
	session->in_flight--;
	native_session_settle(session);
}

/* ---- Small bodies. ---- */

/* Posts the collected pieces, so that a new record can take the next ones. */
static int direct_flush(struct native_request *request)
{
	struct native_out out = {.send = request->send, .remote = request->runs[0], .wait = true};
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < request->send->piece_count; i++)
		bytes += request->send->pieces[i].bytes;
	out.remote.addr += request->direct_offset;
	request->direct_offset += bytes;
	request->send = NULL;
	return native_send_capsule(request->session, &out);
}

/* Copies bytes outside the region into frames that the device knows. */
static int direct_copy(struct native_request *request, struct flow_piece *piece)
{
	const struct flow_want want = {.frame_count = region_frames_for(piece->bytes),
		.owner = OWNER_RDMA,
		.share = request->sink.share,
		.begun = true,
		.deadline_ns = request->deadline_ns};
	const uint8_t *data = piece->data;
	int ret = flow_piece_lease(request->session->front->opts.core, &want, piece);

	if (ret == 0)
		region_copy(piece->data, data, piece->bytes, COPY_INLINE_OUT);
	return ret;
}

static int direct_room(struct native_request *request)
{
	if (request->send && request->send->piece_count == NATIVE_SEND_PIECES_MAX) {
		int ret = direct_flush(request);

		if (ret)
			return ret;
	}
	if (!request->send)
		request->send = send_lease(request->session);
	return request->send ? 0 : -ENOMEM;
}

static int direct_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct native_request *request = CONTAINER_OF(sink, struct native_request, sink);
	struct flow_core *core = sink->core;
	int ret = 0;

	if (piece->bytes > request->bytes_announced - request->bytes_moved)
		ret = -EMSGSIZE;
	if (!ret)
		ret = direct_room(request);
	if (!ret && piece->hold == FLOW_HOLD_BORROWED)
		ret = direct_copy(request, piece);
	else if (!ret && piece->hold == FLOW_HOLD_LEASE)
		region_switch(core->region, piece->span, OWNER_APP, OWNER_RDMA);
	if (ret) {
		flow_piece_end(core, piece, OWNER_APP);
		return ret;
	}
	request->send->pieces[request->send->piece_count++] = *piece;
	request->bytes_moved += piece->bytes;
	/* The next piece may wait for frames; the fiber must hold none meanwhile. */
	return request->bytes_moved < request->bytes_announced ? direct_flush(request) : 0;
}

static int direct_finish(struct flow_sink *sink, bool failed)
{
	(void)sink;
	(void)failed;
	return 0;
}

static const struct flow_sink_ops DIRECT_OPS = {
	.name = "native-direct", .push = direct_push, .finish = direct_finish};

void native_direct_sink_open(struct native_request *request, struct flow_sink **ret_sink)
{
	request->sink = (struct flow_sink){.magic = FLOW_SINK_MAGIC,
		.ops = &DIRECT_OPS,
		.core = request->session->front->opts.core,
		.deadline_ns = request->deadline_ns};
	*ret_sink = &request->sink;
}

static int inline_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct native_request *request = CONTAINER_OF(sink, struct native_request, sink);
	int ret = 0;

	if (piece->bytes > request->inline_bytes - request->bytes_moved) {
		ret = -EMSGSIZE;
	} else {
		region_copy(request->inline_at, piece->data, piece->bytes, COPY_INLINE_OUT);
		request->inline_at += piece->bytes;
		request->bytes_moved += piece->bytes;
	}
	flow_piece_end(sink->core, piece, OWNER_APP);
	return ret;
}

static const struct flow_sink_ops INLINE_OPS = {
	.name = "native-inline", .push = inline_push, .finish = direct_finish};

void native_inline_sink_open(struct native_request *request, struct flow_sink **ret_sink)
{
	request->sink = (struct flow_sink){.magic = FLOW_SINK_MAGIC,
		.ops = &INLINE_OPS,
		.core = request->session->front->opts.core,
		.deadline_ns = request->deadline_ns};
	*ret_sink = &request->sink;
}
