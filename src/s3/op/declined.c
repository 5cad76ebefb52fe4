/* s3/op/declined.c: what is asked for and not served: said so, by name, never ignored. */
#include "s3/s3_priv.h"

#define NAME_TOLD_MAX 128u

const struct s3_error *s3_op_declined(struct s3_call *call)
{
	struct slice method = call->request->method_text;

	/* A Lambda function's answer for an access point comes here by a path that could be a
	 * bucket's. */
	if (!call->declined.len)
		return s3_fail(call, S3_E_NOT_IMPLEMENTED,
			"WriteGetObjectResponse is not implemented by this server.");
	/* Any bytes can be its name. */
	if (call->declined.len > NAME_TOLD_MAX || !utf8_is_valid(call->declined))
		return s3_error_at(S3_E_NOT_IMPLEMENTED);
	return s3_fail(call, S3_E_NOT_IMPLEMENTED,
		"%.*s with the parameter %.*s is not implemented by this server.",
		SLICE_FMT(method), SLICE_FMT(call->declined));
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
