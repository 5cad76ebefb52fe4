/* s3/auth/express.c: the features of directory buckets, and the rights of their sessions. */
#include "s3/auth/express.h"

#include <errno.h>

#include "iam/iam.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"

/* ---- Features. ---- */

/* For a configuration, its kind has the flag. */
static enum s3_express needs_of(const struct s3_call *call)
{
	const struct s3_config_kind *kind;

	switch (call->operation->id) {
	case S3_OPERATION_GET_CONFIG:
	case S3_OPERATION_PUT_CONFIG:
	case S3_OPERATION_DELETE_CONFIG:
		kind = s3_config_kind_of(call);
		return kind ? kind->express : S3_EXPRESS_NONE;
	default:
		return call->operation->express;
	}
}

static const struct s3_error *check_headers(struct s3_call *call)
{
	/* A directory bucket has none of these features, so the headers are refused. */
	static const struct slice names[] = {SLICE("x-amz-tagging"),
		SLICE("x-amz-website-redirect-location"), SLICE("x-amz-object-lock-mode"),
		SLICE("x-amz-object-lock-retain-until-date"), SLICE("x-amz-object-lock-legal-hold"),
		SLICE("x-amz-bucket-object-lock-enabled"), SLICE("x-amz-request-payer"),
		SLICE("x-amz-server-side-encryption-customer-algorithm")};
	struct slice value;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		value = s3_call_header(call, names[i]);
		if (value.len && !slice_eq_nocase(value, SLICE("false")))
			return s3_fail(call, S3_E_NOT_IMPLEMENTED,
				"The header %.*s is not supported for directory buckets.",
				SLICE_FMT(names[i]));
	}
	value = s3_call_header(call, SLICE("x-amz-storage-class"));
	if (value.len && !slice_eq(value, SLICE("EXPRESS_ONEZONE")))
		return s3_error_at(S3_E_INVALID_STORAGE_CLASS);
	if (s3_call_param(call, SLICE("versionId"), &value) && !slice_eq(value, SLICE("null")))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"Objects of directory buckets have only the version null.");
	return NULL;
}

/* ---- Sessions. ---- */

/* A native session has authenticated the caller already; a token can only restrict it. */
static const struct s3_error *open_beside(struct s3_call *call, struct slice text)
{
	struct iam_token token;
	int ret = iam_token_open(call->s3->iam, text, &call->arena, &token);

	if (ret == -EBADMSG || (!ret && !token.bucket.len))
		return s3_error_at(S3_E_INVALID_TOKEN);
	if (ret)
		return s3_fail_errno(call, ret);
	if ((int64_t)(clock_real_ns() / NS_PER_MS) >= token.expires_ms)
		return s3_error_at(S3_E_EXPIRED_TOKEN);
	call->session_bucket = token.bucket;
	call->session_store_id = token.store_id;
	call->session_bucket_id = token.bucket_id;
	call->session_read_only = token.read_only;
	return NULL;
}

const struct s3_error *s3_express_of_session(struct s3_call *call, struct slice bucket)
{
	if (!call->session_bucket.len || slice_eq(call->session_bucket, bucket))
		return NULL;
	return s3_fail(call, S3_E_ACCESS_DENIED, "The session belongs to another bucket.");
}

static const struct s3_error *check_session(struct s3_call *call, enum s3_express needs)
{
	const struct s3_error *error = s3_express_of_session(call, call->bucket);
	const struct s3_settings *settings;

	if (!error)
		error = s3_call_settings(call, &settings);
	if (error)
		return error;
	if (!settings)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	if (call->s3->store_id != call->session_store_id ||
		settings->bucket.id != call->session_bucket_id)
		return s3_fail(call, S3_E_ACCESS_DENIED,
			"The session belongs to an earlier bucket of this name.");
	if (needs == S3_EXPRESS_KEY)
		return s3_fail(call, S3_E_ACCESS_DENIED,
			"This operation needs the caller's own key, not the session of a bucket.");
	if (needs == S3_EXPRESS_WRITER && call->session_read_only)
		return s3_fail(call, S3_E_ACCESS_DENIED, "The session is ReadOnly.");
	return NULL;
}

const struct s3_error *s3_express_check(struct s3_call *call)
{
	const struct s3_error *error = NULL;
	bool express = s3_express_bucket(call);
	struct slice token;
	enum s3_express needs;

	if (call->request->session && express && call->request->header_count) {
		token = s3_call_header(call, SLICE("x-amz-s3session-token"));
		error = token.len ? open_beside(call, token) : NULL;
	}
	if (error || (!express && !call->session_bucket.len))
		return error;
	needs = express ? needs_of(call) : S3_EXPRESS_KEY;
	if (call->session_bucket.len)
		error = check_session(call, needs);
	if (error)
		return error;
	if (needs == S3_EXPRESS_NONE)
		return s3_fail(call, S3_E_NOT_IMPLEMENTED,
			"This operation is not supported for directory buckets.");
	call->etag_md5 = false;
	return check_headers(call);
}

const struct s3_error *s3_express_check_list(
	struct s3_call *call, struct slice prefix, struct slice delimiter)
{
	if (delimiter.len && !slice_eq(delimiter, SLICE("/")))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"Directory buckets support only / as the delimiter.");
	if (prefix.len && !slice_ends(prefix, SLICE("/")))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"Directory buckets support only prefixes that end in a delimiter (/).");
	if (s3_call_param(call, SLICE("start-after"), NULL))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"start-after is not supported for directory buckets.");
	return NULL;
}
