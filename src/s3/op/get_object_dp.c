/* s3/op/get_object_dp.c: GetObject: an object's bytes, or a range of them, into the reply's sink.
 */
#include <errno.h>

#include "flow/fan_out.h"
#include "s3/body/body.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/object/object.h"
#include "s3/object/origin.h"
#include "s3/object/origin_check.h"
#include "s3/object/origin_stream.h"
#include "s3/operation.h"
#include "s3/sse/sse.h"

/* After the first bytes are sent, a failure breaks the reply: it cannot be replaced by an error. */
static const struct s3_error *send_body(
	struct s3_call *call, const struct s3_read *read, struct flow_source *source)
{
	struct s3_reply *reply = call->reply;
	struct flow_sink *sink;
	uint64_t moved = 0;
	int ret;

	if (reply->ops->head(reply, read->status, call->headers, call->header_count, read->bytes) ||
		reply->ops->sink(reply, &sink)) {
		flow_source_close(source);
		reply->broken = true;
		return NULL;
	}
	if (read->bytes > FLOW_FRAMES_SMALL * FRAME_BYTES || reply->counts)
		source->share = s3_call_share(call);
	ret = flow_run(source, NULL, 0, sink, &moved);
	call->body_bytes += moved;
	call->sent_bytes += moved;
	if (!ret && moved == read->bytes)
		return NULL;
	if (ret && !reply->status) {
		/* The head has not been sent, either. */
		call->header_count = call->header_base;
		if (__builtin_expect(read->stream != NULL, 0))
			return s3_origin_stream_failed(call, ret);
		return s3_fail_errno(call, ret);
	}
	reply->broken = true;
	reply->error = ret;
	return NULL;
}

/* With a token the bytes are sent before the head, so an error can still be answered. */
static __attribute__((noinline)) const struct s3_error *send_by_token(
	struct s3_call *call, const struct s3_read *read, struct flow_source *source)
{
	struct s3_reply *reply = call->reply;
	const struct s3_error *error = send_body(call, read, source);

	if (!reply->broken)
		return error;
	reply->broken = false;
	reply->status = 0;
	call->header_count = 0;
	if (reply->error == -ENOBUFS || reply->error == -EHOSTDOWN || reply->error == -ETIMEDOUT)
		return s3_body_failed(call, reply->error);
	return s3_body_failed(call, -EIO);
}

static const struct s3_error *check_window(struct s3_call *call, const struct s3_read *read)
{
	const struct s3_token *token = s3_token_of(call);

	if (call->request->control)
		return s3_control_check_bytes(call, read->bytes);
	if (!token || read->bytes <= token->window.bytes)
		return NULL;
	return s3_fail(call, S3_E_INVALID_RDMA_TOKEN,
		"The RDMA token's window has %llu bytes, and the request needs %llu.",
		(unsigned long long)token->window.bytes, (unsigned long long)read->bytes);
}

const struct s3_error *s3_read_send(struct s3_call *call, const struct s3_read *read)
{
	struct s3_reply *reply = call->reply;
	const struct s3_error *error = check_window(call, read);
	struct flow_source *source;
	int ret = 0;

	if (error)
		return s3_read_refuse(call, read, error);
	if (call->request->method == S3_HEAD) {
		if (reply->ops->head(
			    reply, read->status, call->headers, call->header_count, read->bytes))
			reply->broken = true;
	} else if (!read->bytes) {
		s3_answer_empty(call, read->status);
	} else {
		if (__builtin_expect(read->stream != NULL, 0))
			ret = s3_origin_stream_source(read->stream, &source);
		else
			ret = s3_sse_source(
				call, read->sse, read->get, read->offset, read->bytes, &source);
		if (!ret && __builtin_expect(read->fan != NULL, 0))
			source = flow_fan_source(read->fan, source);
		if (ret)
			return s3_read_refuse(call, read, s3_fail_errno(call, ret));
		if (s3_token_of(call))
			error = send_by_token(call, read, source);
		else
			error = send_body(call, read, source);
	}
	store_get_close(read->get);
	return error;
}

const struct s3_error *s3_op_get_object(struct s3_call *call)
{
	const struct s3_error *error;
	struct s3_read read;

	if (__builtin_expect(s3_origin_any_revalidates(), 0))
		s3_origin_check(call);
	error = s3_read_begin(call, &read);
	if (__builtin_expect(error != NULL, 0))
		error = s3_origin_get(call, error, &read);
	if (error || !s3_read_is_open(&read))
		return error;
	if (__builtin_expect(call->request->lease != NULL, 0) && !read.stream)
		s3_lease_offer(call, &read);
	if (__builtin_expect(call->request->header_count != 0, 0))
		error = s3_fan_out_begin(call, &read);
	error = error ? s3_read_refuse(call, &read, error) : s3_read_send(call, &read);
	if (__builtin_expect(read.fan != NULL, 0))
		flow_fan_end(read.fan, !error && !call->reply->broken);
	if (__builtin_expect(read.stream != NULL, 0))
		s3_origin_stream_close(read.stream);
	return error;
}
