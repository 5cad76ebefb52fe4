/* console/inner.c: the console's own requests to STS: s3 handles them like all others, with the
 * request and the answer in memory. */
#include "console/console_priv.h"

#include <errno.h>
#include <stdio.h>

#define ANSWER_BYTES_MAX (64 * KIB)

struct inner_call {
	struct s3_body body;
	struct slice form;
	struct flow_core *core;
	struct s3_reply reply;
	struct console_inner *inner;
};

static int body_open(struct s3_body *body, const struct s3_chunk_signing *signing,
	struct flow_source **ret_source)
{
	struct inner_call *call = CONTAINER_OF(body, struct inner_call, body);

	(void)signing;
	return flow_memory_source_open(call->core, call->form, ret_source);
}

static const struct s3_body_ops BODY_OPS = {.open = body_open, .trailer = s3_body_no_trailer};

static int reply_head(struct s3_reply *reply, uint32_t status, const struct s3_header *headers,
	uint32_t header_count, uint64_t bytes)
{
	struct inner_call *call = CONTAINER_OF(reply, struct inner_call, reply);

	(void)headers;
	(void)header_count;
	(void)bytes;
	reply->status = call->inner->status = status;
	return 0;
}

static int reply_text(struct s3_reply *reply, struct slice body)
{
	struct inner_call *call = CONTAINER_OF(reply, struct inner_call, reply);

	buf_put_slice(&call->inner->body, body);
	return call->inner->body.failed ? -ENOMEM : 0;
}

/* STS answers with text, never with a source. */
static int reply_sink(struct s3_reply *reply, struct flow_sink **ret_sink)
{
	(void)reply;
	(void)ret_sink;
	return -EOPNOTSUPP;
}

static const struct s3_reply_ops REPLY_OPS = {
	.head = reply_head, .text = reply_text, .sink = reply_sink};

void console_inner_post(const struct console *console, const struct s3_request *outer,
	const struct s3_signer *signer, struct slice form, struct console_inner *ret_inner)
{
	const struct s3_header plain[] = {
		{SLICE("host"), SLICE("console")},
		{SLICE("content-type"), SLICE("application/x-www-form-urlencoded")},
	};
	struct inner_call call = {
		.body = {.ops = &BODY_OPS, .bytes = form.len},
		.form = form,
		.core = outer->core,
		.reply = {.ops = &REPLY_OPS},
		.inner = ret_inner,
	};
	struct s3_request request = *outer;
	struct s3_signed signed_by;
	int ret = 0;

	*ret_inner = (struct console_inner){0};
	buf_init(&ret_inner->body, ANSWER_BYTES_MAX);
	request.method = S3_POST;
	request.method_text = SLICE("POST");
	request.path = SLICE("/");
	request.query = SLICE_NONE;
	request.body = &call.body;
	request.headers = plain;
	request.header_count = ARRAY_LEN(plain);
	if (signer) {
		s3_sign_begin(&signed_by, signer);
		for (uint32_t i = 0; i < ARRAY_LEN(plain); i++)
			s3_sign_header(&signed_by, &plain[i]);
		ret = s3_sign_end(&request, signer, &signed_by);
	}
	if (!ret)
		s3_handle(console->opts.s3, &request, &call.reply);
	if (ret || call.reply.broken || ret_inner->body.failed)
		ret_inner->status = 0;
	if (signer)
		s3_sign_free(&signed_by);
}

void console_inner_free(struct console_inner *inner)
{
	if (inner->body.data)
		secret_wipe(inner->body.data, inner->body.len);
	buf_free(&inner->body);
}

struct slice console_inner_element(const struct console_inner *inner, const char *name)
{
	return xml_text(buf_slice(&inner->body), name);
}
