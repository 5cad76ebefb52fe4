/* s3/op/create_session.c: CreateSession: a separate key for one directory bucket, valid for five
 * minutes together with its token. The server keeps no state: the token contains everything. */
#include <errno.h>

#include "s3/auth/access.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/identity/sts.h"
#include "s3/operation.h"

#define SECONDS 300u

static const struct s3_error *parse_mode(struct s3_call *call, bool *ret_read_only)
{
	struct slice mode = s3_call_header(call, SLICE("x-amz-create-session-mode"));

	*ret_read_only = slice_eq(mode, SLICE("ReadOnly"));
	if (mode.len && !*ret_read_only && !slice_eq(mode, SLICE("ReadWrite")))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"x-amz-create-session-mode must be ReadWrite or ReadOnly.");
	return NULL;
}

const struct s3_error *s3_op_create_session(struct s3_call *call)
{
	const struct iam_principal *principal = s3_call_principal(call);
	struct iam_token token = {
		.session = {.account = principal->who.account, .user = principal->user_name},
		.bucket = call->bucket};
	const struct s3_error *error;
	struct store_bucket bucket;
	struct buf xml;
	int ret;

	if (!s3_express_bucket(call))
		return s3_fail(call, S3_E_METHOD_NOT_ALLOWED,
			"CreateSession is an operation of directory buckets.");
	error = parse_mode(call, &token.read_only);
	if (!error)
		error = s3_call_bucket(call, &bucket);
	if (error)
		return error;
	token.store_id = call->s3->store_id;
	token.bucket_id = bucket.id;
	/* For a caller with an STS session, the new session has that session's identity. */
	if (call->sts)
		token.session = *call->sts;
	s3_session_bind(call, &token.session);
	s3_xml_begin(&xml, "CreateSessionResult");
	ret = s3_sts_credentials(call->s3->iam, &token, SECONDS, &xml);
	s3_xml_end(&xml, "CreateSessionResult");
	if (ret) {
		buf_free(&xml);
		return s3_fail_errno(call, ret);
	}
	return s3_answer_xml(call, 200, &xml);
}
