/* s3/op/head_object.c: HeadObject: the head of GetObject's answer. */
#include "s3/core/call.h"
#include "s3/object/object.h"
#include "s3/object/origin.h"
#include "s3/object/origin_check.h"
#include "s3/operation.h"

const struct s3_error *s3_op_head_object(struct s3_call *call)
{
	const struct s3_error *error;
	struct s3_read read;

	if (__builtin_expect(s3_origin_any_revalidates(), 0))
		s3_origin_check(call);
	error = s3_read_begin(call, &read);
	if (error)
		return s3_origin_head(call, error);
	if (!read.get)
		return NULL;
	if (__builtin_expect(call->request->header_count != 0, 0))
		error = s3_fan_out_head(call, &read);
	return error ? s3_read_refuse(call, &read, error) : s3_read_send(call, &read);
}
