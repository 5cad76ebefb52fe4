/* front/http/body.c: a request's body as a flow_source. The socket's bytes are received directly
 * into the frames that flow passes on; only bytes that arrived together with a head are copied, and
 * counted. */
#include "front/http/http_priv.h"

#include <errno.h>

/* ---- The wire: bytes of the message body, transfer coding undone. ---- */

/* 0 bytes: the body's end. */
static int raw_read(
	struct http_body *body, void *dst, size_t len, enum http_want want, size_t *ret_bytes)
{
	struct http_in *in = &body->conn->in;
	int err;

	if (body->chunked)
		return http_chunked_read(&body->transfer, dst, len, want, ret_bytes);
	if (!body->raw_left) {
		*ret_bytes = 0;
		return 0;
	}
	err = http_in_take(in, dst, MIN(len, body->raw_left), want, ret_bytes);
	if (err)
		return err;
	if (!*ret_bytes)
		return -EPIPE;
	body->raw_left -= *ret_bytes;
	return 0;
}

static int aws_recv(void *arg, void *dst, size_t len, enum http_want want, size_t *ret_bytes)
{
	return raw_read(arg, dst, len, want, ret_bytes);
}

static int decoded_read(struct http_body *body, void *dst, size_t len, size_t *ret_bytes)
{
	if (body->aws)
		return http_chunked_read(&body->stream, dst, len, HTTP_PAYLOAD, ret_bytes);
	return raw_read(body, dst, len, HTTP_PAYLOAD, ret_bytes);
}

/* Reads the end: last chunk and trailers. Checks that nothing follows. */
static int read_end(struct http_body *body)
{
	size_t got = 0;
	char byte;
	int err;

	err = decoded_read(body, &byte, 1, &got);
	if (!err && !got && body->aws) {
		if (body->aws_in.start != body->aws_in.end)
			return -EPROTO;
		err = raw_read(body, &byte, 1, HTTP_FRAMING, &got);
	}
	if (err)
		return err;
	if (got)
		return -EPROTO;
	body->ended = true;
	if (body->announced != UINT64_MAX && body->decoded != body->announced)
		return -EPIPE;
	return 0;
}

/* ---- The source. ---- */

/* Fills the span, across chunks, until it is full or the body ends. */
static int fill(struct http_body *body, uint8_t *dst, uint32_t want, uint32_t *ret_have)
{
	uint32_t have = 0;
	size_t got;
	int err;

	while (have < want) {
		err = decoded_read(body, dst + have, want - have, &got);
		if (err)
			return err;
		if (!got)
			break;
		have += (uint32_t)got;
		body->decoded += got;
	}
	*ret_have = have;
	/* The last piece is passed on only after the end is verified, too. */
	if (have < want || body->decoded == body->announced)
		return read_end(body);
	return 0;
}

/* Frames are leased only after bytes have arrived: a client that only announces a body holds
 * none. */
static int await_bytes(struct http_body *body)
{
	struct http_conn *conn = body->conn;

	if (conn->in.start != conn->in.end || (body->aws && body->aws_in.start != body->aws_in.end))
		return 0;
	return net_wait_readable(conn->stream, conn->recv_deadline_ns);
}

/* Bytes that have already arrived fill their frames at once, so a small piece of them does not
 * count against the client's share. */
static struct flow_want piece_terms(const struct http_body *body, uint32_t want)
{
	uint32_t frame_count = region_frames_for(want);
	bool here = !body->aws && body->conn->in.end - body->conn->in.start >= want;

	return (struct flow_want){
		.frame_count = frame_count,
		.owner = OWNER_NET,
		.share = here && frame_count <= FLOW_FRAMES_SMALL ? FLOW_SHARE_OWN
								  : body->source.share,
		.begun = body->decoded > 0,
		.deadline_ns = body->source.deadline_ns,
	};
}

static int source_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct http_body *body = CONTAINER_OF(source, struct http_body, source);
	struct http_conn *conn = body->conn;
	struct flow_core *core = source->core;
	uint64_t left = body->announced - body->decoded;
	uint32_t want = (uint32_t)MIN(left, MIN(bytes_max, STORE_CHUNK_BYTES));
	struct flow_want terms;
	uint32_t have = 0;
	int err;

	if (body->failed)
		return -EPIPE;
	if (body->ended)
		return 0;
	conn->recv_deadline_ns = MIN(source->deadline_ns, http_deadline_ns(conn, 0));
	if (!want) {
		err = read_end(body);
		body->failed = err;
		return err;
	}
	err = await_bytes(body);
	*ret_piece = (struct flow_piece){.data = NULL};
	terms = piece_terms(body, want);
	if (!err)
		err = flow_piece_lease(core, &terms, ret_piece);
	if (err) {
		body->failed = true;
		return err;
	}
	conn->recv_deadline_ns = MIN(source->deadline_ns, http_deadline_ns(conn, want));
	err = fill(body, ret_piece->data, want, &have);
	if (err || !have) {
		flow_piece_end(core, ret_piece, OWNER_NET);
		body->failed = err;
		return err;
	}
	region_switch(core->region, ret_piece->span, OWNER_NET, OWNER_APP);
	ret_piece->bytes = have;
	ret_piece->offset = body->decoded - have;
	return 1;
}

static void source_close(struct flow_source *source)
{
	(void)source; /* only the connection's window is read ahead */
}

static const struct flow_source_ops source_ops = {
	.name = "http",
	.next = source_next,
	.close = source_close,
};

/* ---- s3's side. ---- */

static int coding_of(enum s3_payload payload, enum http_coding *ret_coding)
{
	switch (payload) {
	case S3_PAYLOAD_STREAMING_SIGNED:
		*ret_coding = HTTP_CODING_AWS_SIGNED;
		return 0;
	case S3_PAYLOAD_STREAMING_SIGNED_TRAILER:
		*ret_coding = HTTP_CODING_AWS_SIGNED_TRAILER;
		return 0;
	case S3_PAYLOAD_STREAMING_UNSIGNED_TRAILER:
		*ret_coding = HTTP_CODING_AWS_UNSIGNED_TRAILER;
		return 0;
	case S3_PAYLOAD_UNSIGNED:
	case S3_PAYLOAD_SHA256:
		break;
	}
	return -ENOENT;
}

static int send_continue(struct http_body *body)
{
	static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
	struct http_conn *conn = body->conn;
	struct iovec iov = {(void *)(uintptr_t)text, sizeof(text) - 1};

	body->expect = false;
	/* A client that has already sent bytes needs no 100 Continue. */
	if (conn->in.start != conn->in.end)
		return 0;
	return net_sendv(conn->stream, &iov, 1, http_deadline_ns(conn, 0));
}

static int body_open(struct s3_body *s3_body, const struct s3_chunk_signing *signing,
	struct flow_source **ret_source)
{
	struct http_body *body = CONTAINER_OF(s3_body, struct http_body, body);
	enum http_coding coding;
	int err;

	http_conn_check(body->conn);
	CHECK(!body->opened);
	body->opened = true;
	if (signing && !coding_of(signing->payload, &coding)) {
		body->aws = true;
		body->aws_in = (struct http_in){.data = body->aws_data,
			.bytes_max = sizeof(body->aws_data),
			.recv = aws_recv,
			.arg = body};
		http_chunked_init(&body->stream, coding, &body->aws_in, signing,
			MIN(body->announced, LIMIT_PUT_BYTES_MAX));
	} else {
		/* This body is not coded, even if the head announced a decoded length. */
		body->announced = body->chunked ? UINT64_MAX : body->raw_left;
		/* A copy between stores has its record before the object. */
		if (signing)
			body->transfer.bytes_max = LIMIT_PUT_BYTES_MAX;
	}
	if (body->expect) {
		err = send_continue(body);
		if (err)
			return err;
	}
	body->source = (struct flow_source){.magic = FLOW_SOURCE_MAGIC,
		.ops = &source_ops,
		.core = body->conn->opts->core,
		.bytes_total = body->announced,
		.deadline_ns = DEADLINE_NONE};
	*ret_source = &body->source;
	return 0;
}

static struct slice body_trailer(struct s3_body *s3_body, const char *name)
{
	struct http_body *body = CONTAINER_OF(s3_body, struct http_body, body);

	if (!body->aws || !body->ended)
		return SLICE_NONE;
	return http_chunked_trailer(&body->stream, slice_str(name));
}

static const struct s3_body_ops body_ops = {
	.open = body_open,
	.trailer = body_trailer,
};

uint32_t http_body_init(struct http_body *body, struct http_conn *conn)
{
	const struct http_head *head = &conn->head;

	body->body.ops = &body_ops;
	body->conn = conn;
	body->opened = false;
	body->aws = false;
	body->failed = false;
	body->chunked = head->chunked;
	body->raw_left = head->content_length;
	body->decoded = 0;
	body->announced = body->chunked ? UINT64_MAX : head->content_length;
	body->ended = !body->announced;
	body->expect = head->expect.len && !body->ended && !head->http_1_0;
	if (body->chunked)
		http_chunked_init(&body->transfer, HTTP_CODING_TRANSFER, &conn->in, NULL,
			2 * LIMIT_PUT_BYTES_MAX);
	if (slice_starts(head->content_sha256, SLICE("STREAMING-"))) {
		/* The message's length is that of the coded bytes; the body's length has its own
		 * header, if any. */
		body->announced = UINT64_MAX;
		if (head->decoded_length.data &&
			slice_to_u64(head->decoded_length, &body->announced))
			return 400;
	}
	body->body.bytes = body->announced;
	if (body->announced > LIMIT_PUT_BYTES_MAX && body->announced != UINT64_MAX)
		return 413;
	return 0;
}

/* ---- The rest that the handler did not read. ---- */

bool http_body_can_drain(const struct http_body *body)
{
	if (body->failed)
		return false;
	if (body->ended)
		return true;
	/* A client that has not yet received 100 Continue may send the body anyway (RFC 9110,
	 * 10.1.1). */
	return !body->expect && !body->chunked && body->raw_left <= HTTP_DRAIN_BYTES_MAX;
}

int http_body_drain(struct http_body *body)
{
	char scratch[2 * KIB];
	size_t got = 1;
	int err = 0;

	body->conn->recv_deadline_ns = http_deadline_ns(body->conn, body->raw_left);
	while (!body->ended && got && !err)
		err = raw_read(body, scratch, sizeof(scratch), HTTP_FRAMING, &got);
	return err;
}
