/* s3/op_head_object.c: HeadObject: what GetObject would say before the bytes. */
#include "s3/s3_priv.h"

const struct s3_error *s3_op_head_object(struct s3_call *call)
{
	struct s3_reply *reply = call->reply;
	const struct s3_error *error;
	struct s3_read read;

	error = s3_read_begin(call, &read);
	if (error || !read.get)
		return error;
	if (reply->ops->head(reply, read.status, call->headers, call->header_count, read.bytes))
		reply->broken = true;
	store_get_close(read.get);
	return NULL;
}
