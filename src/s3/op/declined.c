/* s3/op/declined.c: refuses operations that are not served, by name; they are never ignored. */
#include "s3/core/call.h"
#include "s3/operation.h"

const struct s3_error *s3_op_declined(struct s3_call *call)
{
	return s3_fail_declined(call);
}

const struct s3_error *s3_op_method_not_allowed(struct s3_call *call)
{
	s3_fail_detail(call, "Method", call->request->method_text);
	s3_fail_detail(call, "ResourceType",
		call->key.len	   ? SLICE("OBJECT")
		: call->bucket.len ? SLICE("BUCKET")
				   : SLICE("SERVICE"));
	return s3_error_at(S3_E_METHOD_NOT_ALLOWED);
}
