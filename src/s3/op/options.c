/* s3/op/options.c: OPTIONS, a preflight: a browser asks whether a page may send a request.
 * Preflights are not signed.
 *
 * Source: Fetch standard, "CORS protocol". */
#include "s3/bucket/cors.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/operation.h"

/* Method: the method that the page would send, if the request names it. */
static const struct s3_error *forbidden(struct s3_call *call, const struct s3_cors_asked *asked,
	const char *resource, const char *message)
{
	s3_fail_detail(
		call, "Method", asked->method.len ? asked->method : call->request->method_text);
	s3_fail_detail(call, "ResourceType", slice_str(resource));
	return s3_fail(call, S3_E_ACCESS_FORBIDDEN, "CORSResponse: %s", message);
}

const struct s3_error *s3_op_options(struct s3_call *call)
{
	const struct s3_cors_asked asked = {.origin = s3_call_header(call, SLICE(S3_CORS_ORIGIN)),
		.method = s3_call_header(call, SLICE(S3_CORS_METHOD)),
		.headers = s3_call_header(call, SLICE(S3_CORS_HEADERS))};
	const struct s3_settings *settings;
	const struct s3_cors_rule *rule;
	const struct s3_error *error;

	if (!asked.origin.len)
		return s3_fail(call, S3_E_BAD_REQUEST,
			"Insufficient information. Origin request header needed.");
	error = s3_call_settings(call, &settings);
	if (error)
		return error;
	if (!settings)
		return forbidden(call, &asked, "BUCKET", "Bucket not found");
	if (!settings->parsed[S3_CONFIG_CORS])
		return forbidden(call, &asked, "BUCKET", "CORS is not enabled for this bucket.");
	if (!asked.method.len)
		return s3_fail(
			call, S3_E_BAD_REQUEST, "Invalid Access-Control-Request-Method: null");
	rule = s3_cors_find(call, &asked);
	s3_answer_header(call, SLICE("Vary"), SLICE(S3_CORS_VARY));
	if (!rule)
		return forbidden(call, &asked, call->key.len ? "OBJECT" : "BUCKET",
			"This CORS request is not allowed. This is usually because the evalution "
			"of Origin, request method / Access-Control-Request-Method or "
			"Access-Control-Request-Headers are not whitelisted by the resource's CORS "
			"spec.");
	s3_cors_answer_rule(call, rule, &asked);
	return s3_answer_empty(call, 200);
}
