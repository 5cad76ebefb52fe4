/* front/http/http.c: the life of an HTTP/1.1 connection, in one fiber.
 *
 *   IDLE     no byte of a request has arrived      → HEAD at its first byte
 *   HEAD     until its empty line                  → HANDLING, or REFUSED
 *   HANDLING s3_handle reads the body and answers  → IDLE when the rest of the body was skipped
 *   REFUSED  an error is sent                      → ended
 *
 * A connection that ends while an answer is being sent is closed in order: first our side; then,
 * when the peer has closed its side or its time is over, all of it. */
#include "codec/carry.h"
#include "front/http/http_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "base/probe.h"

DEFINE_COUNTER(
	requests_total, "nebulaio_http_requests_total", NULL, "HTTP requests with a valid head.");
DEFINE_COUNTER(refused_total, "nebulaio_http_refused_total", NULL,
	"HTTP requests refused before they reached S3: malformed, too long or too slow.");

static _Thread_local struct http_thread thread_self;

static __attribute__((noinline, cold)) void thread_start(struct http_thread *thread)
{
	static const char date_title[] = "Server: NebulaIO\r\nDate: ";
	static const char id_title[] = "\r\nx-amz-id-2: ";
	static const char request_title[] = "\r\nx-amz-request-id: ";
	char *at = thread->common;
	uint64_t seed;

	random_fill(&seed, sizeof(seed));
	prng_seed(&thread->prng, seed);
	s3_host_id(thread->host_id);
	at = mempcpy(at, date_title, sizeof(date_title) - 1);
	thread->date_at = (uint32_t)(at - thread->common);
	at += DATE_HTTP_LEN;
	at = mempcpy(at, id_title, sizeof(id_title) - 1);
	at = mempcpy(at, thread->host_id, S3_HOST_ID_LEN);
	at = mempcpy(at, request_title, sizeof(request_title) - 1);
	thread->common_len = (uint32_t)(at - thread->common);
	CHECK(thread->common_len <= sizeof(thread->common));
	thread->ready = true;
}

struct http_thread *http_thread(void)
{
	if (!thread_self.ready)
		thread_start(&thread_self);
	return &thread_self;
}

/* The time of the reactor's turn is exact enough for deadlines, and free. */
static uint64_t now_ns(const struct http_conn *conn)
{
	return reactor_now_ns(conn->opts->core->reactor);
}

uint64_t http_deadline_ns(const struct http_conn *conn, uint64_t bytes)
{
	return now_ns(conn) + conn->opts->body_stall_timeout_ns +
	       bytes * (NS_PER_S / HTTP_BODY_RATE_MIN);
}

/* ---- Receiving. ---- */

static int conn_recv(void *arg, void *dst, size_t len, enum http_want want, size_t *ret_bytes)
{
	struct http_conn *conn = arg;
	uint64_t deadline_ns =
		MIN(conn->recv_deadline_ns, now_ns(conn) + conn->opts->body_stall_timeout_ns);

	if (want == HTTP_PAYLOAD)
		return net_recv_full(conn->stream, dst, len, deadline_ns, ret_bytes);
	return net_recv(conn->stream, dst, len, deadline_ns, ret_bytes);
}

static bool draining(const struct http_conn *conn)
{
	return atomic_load_explicit(conn->opts->draining, memory_order_relaxed);
}

static uint32_t head_bytes_max(const struct http_conn *conn)
{
	return LIMIT_HTTP_HEAD_BYTES_MAX + (conn->opts->via_secret ? HTTP_VIA_BYTES : 0);
}

/* The first bytes of a request. Results as net_recv. */
static int first_receive(struct http_conn *conn, size_t *ret_bytes)
{
	struct front_http *http = conn->http;
	uint64_t deadline_ns = now_ns(conn) + conn->opts->idle_timeout_ns;
	enum http_first first = http->first;

	http->first = HTTP_FIRST_NONE;
	if (first == HTTP_FIRST_NONE)
		return net_recv(
			conn->stream, http->data, head_bytes_max(conn), deadline_ns, ret_bytes);
	if (first == HTTP_FIRST_AWAITED)
		return net_recv_end(
			conn->stream, http->data, head_bytes_max(conn), deadline_ns, ret_bytes);
	*ret_bytes = http->first_bytes;
	return http->first_error;
}

/* True: the connection waits for its next request without a fiber. False: the request has begun, or
 * the connection ends, or the fiber must wait. */
static bool wait_apart(struct http_conn *conn)
{
	struct front_http *http = conn->http;

	if (!conn->opts->again.fn || http->first != HTTP_FIRST_NONE ||
		conn->in.start != conn->in.end || draining(conn))
		return false;
	*conn->opts->ret_serving = false;
	*conn->opts->ret_idle = true;
	http->first_bytes = 0;
	http->first_error = net_recv_begin(conn->stream, http->data, head_bytes_max(conn),
		now_ns(conn) + conn->opts->idle_timeout_ns, conn->opts->again, &http->first_bytes);
	http->first = http->first_error == -EINPROGRESS ? HTTP_FIRST_AWAITED : HTTP_FIRST_DONE;
	return http->first == HTTP_FIRST_AWAITED;
}

/* Waits for the first byte of a request. 0, or the connection is over: no peer is left to be
 * told. */
static int wait_first(struct http_conn *conn)
{
	struct http_in *in = &conn->in;
	size_t got;
	int err;

	if (in->start != in->end) {
		/* A client that sends many requests at once does not make the others wait for all
		 * of them. */
		fiber_yield();
		return 0;
	}
	if (draining(conn) && conn->http->first == HTTP_FIRST_NONE)
		return -ECANCELED;
	in->start = in->end = 0;
	*conn->opts->ret_idle = true;
	err = first_receive(conn, &got);
	*conn->opts->ret_idle = false;
	if (err)
		return err;
	if (!got)
		return -EPIPE;
	in->end = (uint32_t)got;
	return 0;
}

/* Receives more of a head that has begun. 0, a status to refuse it with, or -errno. */
static int head_more(struct http_conn *conn, uint64_t deadline_ns)
{
	struct http_in *in = &conn->in;
	size_t got;
	int err;

	if (in->start) {
		memmove(in->data, in->data + in->start, in->end - in->start);
		in->end -= in->start;
		in->start = 0;
	}
	if (in->end >= head_bytes_max(conn))
		return memchr(in->data, '\n', in->end) ? 431 : 414;
	err = net_recv(conn->stream, in->data + in->end, head_bytes_max(conn) - in->end,
		deadline_ns, &got);
	if (err)
		return err == -ETIMEDOUT ? 408 : err;
	if (!got)
		return -EPIPE;
	in->end += (uint32_t)got;
	return 0;
}

/* Skips a few empty lines before a request (RFC 9112 section 2.2). */
static bool skip_empty_line(struct http_in *in, uint32_t *count)
{
	if (in->end - in->start < 2 || memcmp(in->data + in->start, "\r\n", 2) != 0 ||
		*count == HTTP_EMPTY_LINES_MAX)
		return false;
	++*count;
	in->start += 2;
	return true;
}

/* Takes the next head off the window and parses it. 0, a status to refuse it with, or -errno. */
static int head_receive(struct http_conn *conn)
{
	struct http_in *in = &conn->in;
	struct http_scan scan = {0};
	uint32_t empty_lines = 0;
	uint64_t deadline_ns;
	int len, err;

	in->floor = 0;
	/* A head that cannot be parsed has no method, so its refusal has a body. */
	conn->head.method = S3_METHOD_OTHER;
	conn->head.http_1_0 = false;
	do {
		err = wait_first(conn);
		if (err)
			return err;
	} while (skip_empty_line(in, &empty_lines));
	deadline_ns = 0;
	for (;;) {
		len = http_head_scan(&scan, in->data + in->start, in->end - in->start);
		if (len != -EAGAIN)
			break;
		if (!deadline_ns)
			deadline_ns = now_ns(conn) + conn->opts->head_timeout_ns;
		err = head_more(conn, deadline_ns);
		if (err)
			return err;
		if (!scan.line && skip_empty_line(in, &empty_lines))
			scan = (struct http_scan){0};
	}
	if (len < 0 || (uint32_t)len > head_bytes_max(conn))
		return len < 0 ? 400 : 431;
	err = (int)http_head_parse(&conn->head, in->data + in->start, (uint32_t)len);
	in->start += (uint32_t)len;
	in->floor = in->start;
	return err;
}

/* ---- Handling. ---- */

static void request_id(char ret_id[HTTP_REQUEST_ID_LEN + 1])
{
	uint64_t id = prng_next(&http_thread()->prng);

	for (uint32_t i = 0; i < HTTP_REQUEST_ID_LEN; i++, id <<= 4)
		ret_id[i] = "0123456789ABCDEF"[id >> 60];
	ret_id[HTTP_REQUEST_ID_LEN] = '\0';
}

static void answer_options(struct http_conn *conn)
{
	const struct s3_header allow = {
		SLICE("Allow"), SLICE("GET, HEAD, PUT, POST, DELETE, OPTIONS")};
	struct s3_reply *reply = &conn->reply.reply;

	reply->ops->head(reply, 200, &allow, 1, 0);
}

/* A client that has ended its side may wait for the answer, but not for long. */
static bool client_left(const void *arg)
{
	struct http_conn *conn = (struct http_conn *)(uintptr_t)arg;
	enum net_gone gone = net_gone(conn->stream);
	uint64_t seen_ns = clock_now_ns();

	if (gone == NET_ENDED && !conn->ended_ns)
		conn->ended_ns = seen_ns;
	return gone == NET_GONE ||
	       (gone == NET_ENDED && seen_ns - conn->ended_ns > HTTP_HALF_CLOSED_NS);
}

/* Until s3 knows the caller, the connection makes room for others as an idle one does: forms are
 * read before. */
static void handle_by_s3(struct http_conn *conn)
{
	*conn->opts->ret_serving = false;
	conn->reply.reply.ret_proven = conn->opts->ret_serving;
	conn->request.declined = conn->opts->declined;
	s3_handle(conn->opts->s3, &conn->request, &conn->reply.reply);
}

static void handle(struct http_conn *conn)
{
	struct http_head *head = &conn->head;
	struct s3_request *request = &conn->request;

	if (head->asterisk) {
		answer_options(conn);
		return;
	}
	request->method = head->method;
	request->method_text = head->method_text;
	request->path = head->path;
	request->query = head->query;
	request->headers = head->headers;
	request->header_count = head->header_count;
	if (conn->opts->page && slice_starts(request->path, SLICE("/minio/"))) {
		conn->reply.reply.of_process = true;
		if (conn->opts->page(conn->opts->page_arg, request, &conn->reply.reply))
			return;
		conn->reply.reply.of_process = false;
	}
	if (conn->opts->handle)
		conn->opts->handle(conn->opts->handle_arg, request, &conn->reply.reply);
	else if (front_hipobj_wanted(request))
		front_hipobj_handle(conn->opts->hipobj, request, &conn->reply.reply);
	else if (front_token_session_wanted(request))
		front_token_session_handle(
			conn->opts->token, conn->opts->s3, request, &conn->reply.reply);
	else if (conn->opts->token && front_token_wanted(request))
		front_token_handle(conn->opts->token, request, &conn->reply.reply);
	else
		handle_by_s3(conn);
}

/* Whether the connection may go on. */
static bool answer_end(struct http_conn *conn)
{
	struct http_reply *reply = &conn->reply;
	bool gave_up, overload, unknown;
	uint32_t status;

	if (reply->reply.status && !reply->reply.broken)
		(void)http_reply_flush(reply);
	gave_up = reply->reply.broken && !reply->head_sent;
	overload = reply->reply.error == -EHOSTDOWN || reply->reply.error == -ENOBUFS;
	unknown = reply->outcome_unknown;
	status = overload ? 503 : 500;
	if (gave_up || !reply->reply.status) {
		/* Nothing has been sent yet, so the client can still get an error. */
		if (status == 500)
			log_limited(LOG_ERROR, "http",
				"the request from %s ended without an answer", conn->request.peer);
		conn->close_after = true;
		http_reply_init(reply, conn);
		if (unknown ? http_refuse_unknown(conn) : http_refuse(conn, status))
			return false;
	}
	if (reply->reply.broken || http_reply_flush(reply) || reply->bytes_left)
		return false;
	return true;
}

/* A copy between stores: its body, if any, is the gateway's, and its length is not what the client
 * has signed. */
static void note_carry(struct http_conn *conn, enum via_kind kind)
{
	struct http_head *head = &conn->head;
	uint32_t count = 0;

	conn->request.carry = kind == VIA_GIVE ? S3_CARRY_GIVE : S3_CARRY_TAKE;
	for (uint32_t i = 0; i < head->header_count; i++) {
		struct s3_header header = head->headers[i];

		if (slice_eq_nocase(header.name, SLICE("transfer-encoding")) ||
			slice_eq_nocase(header.name, SLICE("content-length")))
			continue;
		if (slice_eq_nocase(header.name, SLICE(CARRY_LENGTH)))
			header.name = SLICE("content-length");
		head->headers[count++] = header;
	}
	head->header_count = count;
}

static void header_drop(struct http_head *head, uint32_t at)
{
	head->header_count--;
	memmove(&head->headers[at], &head->headers[at + 1],
		(head->header_count - at) * sizeof(head->headers[0]));
}

/* Of as many headers as a client may send, Expect is the gateway's. */
static bool head_fits(struct http_head *head)
{
	for (uint32_t i = 0; i < head->header_count; i++)
		if (head->header_count > LIMIT_HTTP_HEADERS_MAX &&
			slice_eq_nocase(head->headers[i].name, SLICE("expect")))
			header_drop(head, i);
	return head->header_count <= LIMIT_HTTP_HEADERS_MAX;
}

/* The caller of a request that a gateway passed on. 0, or the status to refuse it with. */
static uint32_t note_via(struct http_conn *conn)
{
	const struct front_http_opts *opts = conn->opts;
	struct http_head *head = &conn->head;
	struct slice text;
	uint32_t at = 0;
	struct via via;

	conn->request.peer = net_peer(conn->stream);
	conn->request.transport = opts->transport;
	conn->request.carry = S3_CARRY_NONE;
	while (opts->via_secret && at < head->header_count &&
		!slice_eq_nocase(head->headers[at].name, SLICE(VIA_HEADER)))
		at++;
	if (!opts->via_secret || at == head->header_count)
		return head->header_count > LIMIT_HTTP_HEADERS_MAX ? 431 : 0;
	text = head->headers[at].value;
	if (via_read(opts->via_secret, text, head->method_text, head->target,
		    (int64_t)(clock_real_ns() / NS_PER_S), &via)) {
		log_limited(LOG_WARN, "http",
			"%s: the header " VIA_HEADER " is refused: not of this cluster",
			net_peer(conn->stream));
		return 403;
	}
	/* The gateway's map was out of date: the store is elsewhere now. */
	if (!slice_eq(via.store, slice_str(opts->via_store)))
		return 503;
	/* Not the client's own: it must not come into an answer, as one that it claims to have
	 * signed would. */
	header_drop(head, at);
	slice_copy_str(via.peer, conn->via_peer, sizeof(conn->via_peer));
	conn->request.peer = conn->via_peer;
	conn->request.transport = slice_eq(via.transport, SLICE("https")) ? "https" : "http";
	slice_copy_str(via.id, conn->request.request_id, sizeof(conn->request.request_id));
	if (via.kind != VIA_SERVE)
		note_carry(conn, via.kind);
	return head_fits(head) ? 0 : 431;
}

/* Serves one request. True: the connection can take another. */
static bool serve_one(struct http_conn *conn)
{
	int status;

	*conn->opts->ret_serving = false;
	status = head_receive(conn);

	if (status < 0)
		return false;
	request_id(conn->request.request_id);
	if (!status)
		status = (int)note_via(conn);
	fiber_request_set(conn->request.request_id);
	http_reply_init(&conn->reply, conn);
	if (!status)
		status = (int)http_body_init(&conn->body, conn);
	conn->close_after = status || !conn->head.keep_alive;
	if (status) {
		/* The following bytes can no longer be parsed. */
		conn->body.failed = true;
		counter_add(&refused_total, 1);
		http_refuse(conn, (uint32_t)status);
	} else {
		counter_add(&requests_total, 1);
		PROBE1(http_request, conn);
		*conn->opts->ret_serving = true;
		handle(conn);
		PROBE1(http_reply, conn);
	}
	if (!answer_end(conn)) {
		net_shutdown(conn->stream);
		return false;
	}
	/* A client may take its time with the rest of a body, but not keep others out. */
	*conn->opts->ret_serving = false;
	if (conn->close_after)
		return false;
	return !http_body_drain(&conn->body);
}

/* Lets the peer read the last answer: closing with unread bytes would discard it. */
static void linger(struct http_conn *conn)
{
	uint64_t deadline_ns = now_ns(conn) + HTTP_LINGER_NS;
	uint64_t bytes = 0;
	size_t got;

	net_send_end(conn->stream);
	while (bytes < HTTP_LINGER_BYTES_MAX &&
		!net_recv(conn->stream, conn->http->data, sizeof(conn->http->data), deadline_ns,
			&got) &&
		got) {
		bytes += got;
		fiber_yield();
	}
}

/* ---- The memory of requests. ---- */

/* Lies in the memory of a struct http_conn that is in no use. */
struct front_http_spare {
	struct front_http_spare *next;
};

void front_http_pool_close(struct front_http_pool *pool)
{
	while (pool->first) {
		struct front_http_spare *spare = pool->first;

		pool->first = spare->next;
		free(spare);
	}
	pool->count = 0;
}

static void conn_close(struct http_conn *conn)
{
	struct front_http_pool *pool = conn->opts->pool;
	struct front_http_spare *spare = (struct front_http_spare *)(void *)conn;

	magic_clear(&conn->magic);
	if (!pool || pool->count == HTTP_SPARE_MAX) {
		free(conn);
		return;
	}
	spare->next = pool->first;
	pool->first = spare;
	pool->count++;
}

/* NULL: no memory. */
static struct http_conn *conn_open(struct front_http *http)
{
	struct front_http_pool *pool = http->opts->pool;
	struct http_conn *conn;

	if (pool && pool->first) {
		conn = (struct http_conn *)(void *)pool->first;
		pool->first = pool->first->next;
		pool->count--;
	} else {
		conn = malloc(sizeof(*conn));
	}
	if (!conn)
		return NULL;
	/* The buffers are not cleared, so unused pages are never touched. */
	memset(conn, 0, offsetof(struct http_conn, head));
	conn->magic = HTTP_CONN_MAGIC;
	conn->opts = http->opts;
	conn->http = http;
	conn->stream = http->stream;
	conn->in = (struct http_in){.data = http->data,
		.bytes_max = sizeof(http->data),
		.recv = conn_recv,
		.arg = conn};
	conn->ended_ns = 0;
	conn->request = (struct s3_request){.body = &conn->body.body,
		.transport = http->opts->transport,
		.peer = net_peer(http->stream),
		.left = client_left,
		.left_arg = conn,
		.core = http->opts->core};
	return conn;
}

/* ---- A connection's life. ---- */

void front_http_drop(struct front_http *http)
{
	CHECK(http->magic == FRONT_HTTP_MAGIC);
	magic_clear(&http->magic);
	net_close(http->stream);
	free(http);
}

struct front_http *front_http_go_on(struct front_http *http)
{
	struct http_conn *conn;
	bool waits, more;

	CHECK(http->magic == FRONT_HTTP_MAGIC);
	conn = conn_open(http);
	if (!conn) {
		log_limited(LOG_ERROR, "http", "no memory for a request from %s",
			net_peer(http->stream));
		front_http_drop(http);
		return NULL;
	}
	do {
		waits = wait_apart(conn);
		more = !waits && serve_one(conn);
		fiber_request_set("");
	} while (more);
	if (!waits && conn->close_after)
		linger(conn);
	conn_close(conn);
	if (waits)
		return http;
	front_http_drop(http);
	return NULL;
}

struct front_http *front_http_serve(const struct front_http_opts *opts, struct net_stream *stream)
{
	struct front_http *http = malloc(sizeof(*http));

	if (!http) {
		log_limited(
			LOG_ERROR, "http", "no memory for a connection from %s", net_peer(stream));
		net_close(stream);
		return NULL;
	}
	http->magic = FRONT_HTTP_MAGIC;
	http->opts = opts;
	http->stream = stream;
	http->first = HTTP_FIRST_NONE;
	return front_http_go_on(http);
}
