/* origin/inner.c: requests of the server to itself, as its root: so what came from an origin is
 * stored as any client's object: checked, encrypted, counted, with its events. */
#include <errno.h>

#include "codec/codec.h"
#include "origin/origin_priv.h"

struct inner {
	struct s3_reply reply;
	struct s3_body body;
	const struct inner_ask *ask;
	struct inner_answer *answer;
};

static int reply_head(struct s3_reply *reply, uint32_t status, const struct s3_header *headers,
	uint32_t header_count, uint64_t bytes)
{
	struct inner *inner = CONTAINER_OF(reply, struct inner, reply);

	(void)bytes;
	reply->status = status;
	inner->answer->status = status;
	for (uint32_t i = 0; i < header_count; i++)
		if (slice_eq_nocase(headers[i].name, SLICE("etag")))
			slice_copy_str(
				headers[i].value, inner->answer->etag, sizeof(inner->answer->etag));
	return 0;
}

static int reply_text(struct s3_reply *reply, struct slice body)
{
	struct inner *inner = CONTAINER_OF(reply, struct inner, reply);

	return slice_copy_str(slice_to(body, MIN(body.len, sizeof(inner->answer->text) - 1)),
		inner->answer->text, sizeof(inner->answer->text));
}

static int reply_sink(struct s3_reply *reply, struct flow_sink **ret_sink)
{
	(void)reply;
	(void)ret_sink;
	return -EOPNOTSUPP;
}

static int body_open(struct s3_body *body, const struct s3_chunk_signing *signing,
	struct flow_source **ret_source)
{
	const struct inner *inner = CONTAINER_OF(body, struct inner, body);

	(void)signing;
	return flow_memory_source_open(inner->ask->core, inner->ask->body, ret_source);
}

void inner_request(struct s3 *s3, const struct inner_ask *ask, struct inner_answer *ret_answer)
{
	static const struct s3_reply_ops REPLY = {
		.head = reply_head, .text = reply_text, .sink = reply_sink};
	static const struct s3_body_ops BODY = {.open = body_open, .trailer = s3_body_no_trailer};
	static const struct slice METHODS[] = {
		[S3_PUT] = SLICE("PUT"), [S3_POST] = SLICE("POST"), [S3_DELETE] = SLICE("DELETE")};
	struct inner inner = {.reply.ops = &REPLY,
		.body = {.ops = &BODY, .bytes = ask->body.len},
		.ask = ask,
		.answer = ret_answer};
	const struct s3_identity root = {.root = true};
	struct s3_request request = {.method = ask->method,
		.method_text = METHODS[ask->method],
		.query = ask->query ? slice_str(ask->query) : SLICE_NONE,
		.headers = ask->headers,
		.header_count = ask->header_count,
		.body = ask->body.len ? &inner.body : NULL,
		.session = &root,
		.fetched = ask->fetched,
		.transport = "rdma", /* no client of it expects an MD5 */
		.peer = "origin",
		.core = ask->core};
	struct buf path;

	*ret_answer = (struct inner_answer){.status = 503};
	slice_copy_str(slice_str(ask->request_id), request.request_id, sizeof(request.request_id));
	buf_init(&path, 4 * LIMIT_KEY_LEN_MAX);
	buf_printf(&path, "/%.*s/", SLICE_FMT(ask->bucket));
	uri_encode(ask->key, 0, &path);
	request.path = buf_slice(&path);
	if (!path.failed)
		s3_handle(s3, &request, &inner.reply);
	buf_free(&path);
}
