/* s3/op/head_object.c: HeadObject: the head of GetObject's answer. */
#include "s3/core/call.h"
#include "s3/object/object.h"
#include "s3/operation.h"

const struct s3_error *s3_op_head_object(struct s3_call *call)
{
	const struct s3_error *error;
	struct s3_read read;

	error = s3_read_begin(call, &read);
	return error || !read.get ? error : s3_read_send(call, &read);
}
