/* s3/op/declined.c: what is asked for and not served: said so, by name, never ignored. */
#include "s3/s3_priv.h"

const struct s3_error *s3_op_declined(struct s3_call *call)
{
	struct slice name = s3_subresource(&call->params);
	struct slice method = call->request->method_text;

	if (name.len)
		return s3_fail(call, S3_E_NOT_IMPLEMENTED,
			"%.*s ?%.*s is not implemented by this server.", SLICE_FMT(method),
			SLICE_FMT(name));
	return s3_fail(call, S3_E_NOT_IMPLEMENTED,
		"IAM, STS and notification topics are not implemented by this server.");
}

const struct s3_error *s3_op_method_not_allowed(struct s3_call *call)
{
	s3_fail_detail(call, "Method", call->request->method_text);
	return s3_error_at(S3_E_METHOD_NOT_ALLOWED);
}
