/* s3/op_get_object_dp.c: GetObject: an object's bytes, or a range of them, into the reply's sink.
 */
#include "s3/s3_priv.h"

/* Past the head nothing can be taken back: what fails from here on breaks the reply. */
static void send_body(struct s3_call *call, const struct s3_read *read, struct flow_source *source)
{
	struct s3_reply *reply = call->reply;
	struct flow_sink *sink;
	uint64_t moved = 0;

	if (reply->ops->head(reply, read->status, call->headers, call->header_count, read->bytes) ||
		reply->ops->sink(reply, &sink)) {
		source->ops->close(source);
		reply->broken = true;
		return;
	}
	if (flow_run(source, NULL, 0, sink, &moved) || moved != read->bytes)
		reply->broken = true;
	call->body_bytes += moved;
}

const struct s3_error *s3_op_get_object(struct s3_call *call)
{
	struct flow_source *source;
	const struct s3_error *error;
	struct s3_read read;
	int ret;

	error = s3_read_begin(call, &read);
	if (error || !read.get)
		return error;
	if (!read.bytes) {
		s3_answer_empty(call, read.status);
	} else {
		ret = flow_object_source_open(
			call->request->core, read.get, read.offset, read.bytes, &source);
		if (ret)
			error = s3_fail_errno(call, ret);
		else
			send_body(call, &read, source);
	}
	store_get_close(read.get);
	return error;
}
