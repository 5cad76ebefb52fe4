/* front/http/reply_dp.c: sends the answer. The head is written into the connection's buffer and
 * sent together with the first bytes of the body, in one send. */
#include "base/life.h"
#include "front/http/http_priv.h"

#include <errno.h>

/* ---- Writing the head. Every put is bounded; one that does not fit sets failed. ---- */

struct writer {
	char *at;
	char *end;
	bool failed;
};

static void put(struct writer *out, const char *data, size_t len)
{
	if (len > (size_t)(out->end - out->at)) {
		out->failed = true;
		return;
	}
	memcpy(out->at, data, len);
	out->at += len;
}

#define PUT(out, literal) put(out, literal, sizeof(literal) - 1)

static void put_u64(struct writer *out, uint64_t value)
{
	char digits[20];
	size_t at = sizeof(digits);

	do {
		digits[--at] = (char)('0' + value % 10);
		value /= 10;
	} while (value);
	put(out, digits + at, sizeof(digits) - at);
}

/* Replaces bytes that would let a value leave its line. */
static void put_value(struct writer *out, struct slice value)
{
	char *from = out->at;

	put(out, value.data, value.len);
	if (field_value_is_valid(value))
		return;
	for (char *at = from; at < out->at; at++) {
		if ((unsigned char)*at < ' ' && *at != '\t')
			*at = ' ';
	}
}

static void put_headers(struct writer *out, const struct s3_header *headers, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		put(out, headers[i].name.data, headers[i].name.len);
		PUT(out, ": ");
		put_value(out, headers[i].value);
		PUT(out, "\r\n");
	}
}

static void put_status(struct writer *out, uint32_t status)
{
	const char *reason;

	if (status == 200) {
		PUT(out, "HTTP/1.1 200 OK\r\n");
		return;
	}
	reason = http_reason(status);
	PUT(out, "HTTP/1.1 ");
	put_u64(out, status);
	PUT(out, " ");
	put(out, reason, strlen(reason));
	PUT(out, "\r\n");
}

/* Server, Date, and the two ids. */
static void put_common(struct writer *out, const struct http_conn *conn)
{
	struct http_thread *thread = http_thread();
	uint64_t now_ns = clock_real_ns();

	if (now_ns / NS_PER_S != thread->second) {
		thread->second = now_ns / NS_PER_S;
		date_http_format((int64_t)(now_ns / NS_PER_MS), thread->common + thread->date_at);
	}
	put(out, thread->common, thread->common_len);
	put(out, conn->request.request_id, HTTP_REQUEST_ID_LEN);
	PUT(out, "\r\n");
}

static bool status_has_body(uint32_t status)
{
	return status >= 200 && status != 204 && status != 304;
}

static struct http_reply *reply_of(struct s3_reply *reply)
{
	return CONTAINER_OF(reply, struct http_reply, reply);
}

static int reply_head(struct s3_reply *s3_reply, uint32_t status, const struct s3_header *headers,
	uint32_t header_count, uint64_t bytes)
{
	struct http_reply *reply = reply_of(s3_reply);
	struct http_conn *conn = reply->conn;
	struct writer out = {conn->out, conn->out + sizeof(conn->out), false};

	http_conn_check(conn);
	CHECK(!reply->head_sent);
	if (!http_body_can_drain(&conn->body) ||
		atomic_load_explicit(conn->opts->draining, memory_order_relaxed))
		conn->close_after = true;
	put_status(&out, status);
	put_common(&out, conn);
	if (status_has_body(status)) {
		PUT(&out, "Content-Length: ");
		put_u64(&out, bytes);
		PUT(&out, "\r\n");
	}
	if (conn->close_after)
		PUT(&out, "Connection: close\r\n");
	else if (conn->head.http_1_0)
		PUT(&out, "Connection: keep-alive\r\n");
	put_headers(&out, headers, header_count);
	PUT(&out, "\r\n");
	if (out.failed)
		return -EMSGSIZE;
	reply->out_len = (uint32_t)(out.at - conn->out);
	reply->no_body = conn->head.method == S3_HEAD || !status_has_body(status);
	reply->bytes_left = reply->no_body ? 0 : bytes;
	s3_reply->status = status;
	return 0;
}

/* ---- Sending. ---- */

static int reply_send(struct http_reply *reply, const void *data, size_t len)
{
	struct http_conn *conn = reply->conn;
	struct iovec iov[2];
	uint32_t count = 0;
	int err;

	if (reply->reply.broken)
		return -EPIPE;
	if (__builtin_expect(!life_holds(), 0) && http_reply_late(reply))
		return -EHOSTDOWN;
	if (!reply->head_sent)
		iov[count++] = (struct iovec){conn->out, reply->out_len};
	if (len)
		iov[count++] = (struct iovec){(void *)(uintptr_t)data, len};
	reply->head_sent = true;
	if (!count)
		return 0;
	err = net_sendv_stall(conn->stream, iov, count, conn->opts->body_stall_timeout_ns,
		http_deadline_ns(conn, len));
	if (err)
		reply->reply.broken = true;
	else
		reply->bytes_left -= len;
	return err;
}

int http_reply_flush(struct http_reply *reply)
{
	return reply->head_sent ? 0 : reply_send(reply, NULL, 0);
}

static int reply_text(struct s3_reply *s3_reply, struct slice body)
{
	struct http_reply *reply = reply_of(s3_reply);

	CHECK(s3_reply->status);
	if (reply->no_body)
		return 0;
	CHECK(body.len == reply->bytes_left);
	return reply_send(reply, body.data, body.len);
}

/* A piece is sent from its place in memory. When the send returns the socket has its bytes, so
 * nothing stays in flight here; the source reads ahead meanwhile. */
static int sink_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct http_reply *reply = CONTAINER_OF(sink, struct http_reply, sink);
	bool leased = piece->hold == FLOW_HOLD_LEASE;
	int err;

	CHECK(piece->bytes <= reply->bytes_left);
	if (leased)
		region_switch(sink->core->region, piece->span, OWNER_APP, OWNER_NET);
	err = reply_send(reply, piece->data, piece->bytes);
	flow_piece_end(sink->core, piece, leased ? OWNER_NET : OWNER_CACHE);
	/* A source with all bytes in memory and a peer that accepts all at once would never
	 * yield. */
	if (!err && reply->bytes_left)
		fiber_yield();
	return err;
}

static int sink_finish(struct flow_sink *sink, bool failed)
{
	struct http_reply *reply = CONTAINER_OF(sink, struct http_reply, sink);

	if (failed && !reply->head_sent) {
		/* The head has not been sent: another answer is still possible. */
		reply->reply.status = 0;
		return 0;
	}
	if (failed || reply->bytes_left)
		reply->reply.broken = true;
	return reply->reply.broken ? -EPIPE : 0;
}

static const struct flow_sink_ops sink_ops = {
	.name = "http",
	.push = sink_push,
	.finish = sink_finish,
};

static int reply_sink(struct s3_reply *s3_reply, struct flow_sink **ret_sink)
{
	struct http_reply *reply = reply_of(s3_reply);

	CHECK(s3_reply->status);
	reply->sink.magic = FLOW_SINK_MAGIC;
	reply->sink.share = FLOW_SHARE_OWN;
	reply->sink.ops = &sink_ops;
	reply->sink.core = reply->conn->opts->core;
	reply->sink.deadline_ns = DEADLINE_NONE;
	*ret_sink = &reply->sink;
	return 0;
}

static const struct s3_reply_ops reply_ops = {
	.head = reply_head,
	.text = reply_text,
	.sink = reply_sink,
};

void http_reply_init(struct http_reply *reply, struct http_conn *conn)
{
	reply->reply = (struct s3_reply){.ops = &reply_ops};
	reply->conn = conn;
	reply->head_sent = false;
	reply->no_body = false;
	reply->outcome_unknown = false;
	reply->bytes_left = 0;
	reply->out_len = 0;
}
