/* s3/auth/access_headers.c: checks the actions that a request's headers need besides its operation:
 * a caller that may put an object may not, because of that, set its access control list, tags or
 * lock, and may not learn by a condition what only a reader may.
 *
 * Source: S3 API reference, "Permissions" of PutObject, CopyObject, CreateMultipartUpload and
 * CreateBucket; S3 User Guide, "Required permissions for Amazon S3 API operations", "Prevent object
 * overwrites with conditional writes", "Enforce conditional deletes on Amazon S3 buckets". */
#include "s3/auth/access.h"
#include "s3/auth/access_priv.h"
#include "s3/core/call.h"
#include "s3/core/conditions.h"

struct header_action {
	struct slice name;
	const char *action;
};

/* Headers of a new object. An empty header counts, too; its meaning is decided elsewhere. */
static const struct header_action of_object[] = {
	{SLICE("x-amz-acl"), "s3:PutObjectAcl"},
	{SLICE("x-amz-grant-full-control"), "s3:PutObjectAcl"},
	{SLICE("x-amz-grant-read"), "s3:PutObjectAcl"},
	{SLICE("x-amz-grant-read-acp"), "s3:PutObjectAcl"},
	{SLICE("x-amz-grant-write"), "s3:PutObjectAcl"},
	{SLICE("x-amz-grant-write-acp"), "s3:PutObjectAcl"},
	{SLICE("x-amz-object-lock-legal-hold"), "s3:PutObjectLegalHold"},
	{SLICE("x-amz-object-lock-mode"), "s3:PutObjectRetention"},
	{SLICE("x-amz-object-lock-retain-until-date"), "s3:PutObjectRetention"},
	{SLICE("x-amz-tagging"), "s3:PutObjectTagging"},
};

static const struct header_action of_bucket[] = {
	{SLICE("x-amz-acl"), "s3:PutBucketAcl"},
	{SLICE("x-amz-bucket-object-lock-enabled"), "s3:PutBucketObjectLockConfiguration"},
	{SLICE("x-amz-bucket-object-lock-enabled"), "s3:PutBucketVersioning"},
	{SLICE("x-amz-grant-full-control"), "s3:PutBucketAcl"},
	{SLICE("x-amz-grant-read"), "s3:PutBucketAcl"},
	{SLICE("x-amz-grant-read-acp"), "s3:PutBucketAcl"},
	{SLICE("x-amz-grant-write"), "s3:PutBucketAcl"},
	{SLICE("x-amz-grant-write-acp"), "s3:PutBucketAcl"},
	{SLICE("x-amz-object-ownership"), "s3:PutBucketOwnershipControls"},
};

/* A bucket is private and without a lock by default, so these need no action. */
static bool changes_nothing(const struct s3_header *header)
{
	return (slice_eq_nocase(header->name, SLICE("x-amz-acl")) &&
		       slice_eq(header->value, SLICE("private"))) ||
	       (slice_eq_nocase(header->name, SLICE("x-amz-bucket-object-lock-enabled")) &&
		       slice_eq_nocase(header->value, SLICE("false")));
}

static bool is_amz(const struct s3_header *header)
{
	return slice_eq_nocase(slice_to(header->name, 6), SLICE("x-amz-"));
}

static const struct s3_error *may_object(struct s3_call *call, const struct s3_header *header)
{
	for (size_t i = 0; i < ARRAY_LEN(of_object); i++)
		if (slice_eq_nocase(header->name, of_object[i].name))
			return access_may_make(call, of_object[i].action);
	return NULL;
}

static const struct s3_error *may_bucket(struct s3_call *call, const struct s3_header *header)
{
	struct slice resource = access_resource(call, call->bucket, SLICE_NONE);
	const struct s3_error *error = NULL;

	if (!resource.data)
		return s3_error_at(S3_E_SLOW_DOWN);
	for (size_t i = 0; i < ARRAY_LEN(of_bucket) && !error; i++)
		if (slice_eq_nocase(header->name, of_bucket[i].name) && !changes_nothing(header))
			error = s3_call_may_service(call, of_bucket[i].action, resource);
	return error;
}

/* Whether the answer to a condition of the call depends on the object's tag, size or time. That an
 * object exists may be learned without reading it: by If-None-Match: *, and before a deletion. */
static bool compares_object(const struct s3_call *call)
{
	struct slice match = s3_call_header(call, SLICE("if-match"));
	struct slice none_match = s3_call_header(call, SLICE("if-none-match"));
	bool by_tag = match.len || (none_match.len && !s3_etag_any(none_match));

	switch (call->operation->id) {
	case S3_OPERATION_PUT_OBJECT:
	case S3_OPERATION_COPY_OBJECT:
	case S3_OPERATION_COMPLETE_MULTIPART_UPLOAD:
		return by_tag;
	case S3_OPERATION_RENAME_OBJECT:
		return by_tag || s3_call_has_header(call, SLICE("if-modified-since")) ||
		       s3_call_has_header(call, SLICE("if-unmodified-since"));
	case S3_OPERATION_DELETE_OBJECT:
		return (match.len && !s3_etag_any(match)) ||
		       s3_call_has_header(call, SLICE("x-amz-if-match-size")) ||
		       s3_call_has_header(call, SLICE("x-amz-if-match-last-modified-time"));
	default:
		return false;
	}
}

const struct s3_error *access_headers(struct s3_call *call)
{
	bool bucket = call->operation->authorize == S3_AUTHORIZE_NEW_BUCKET;
	const struct s3_request *request = call->request;
	const struct s3_error *error = NULL;

	if (compares_object(call))
		error = s3_call_may(call, access_read_action(call), call->key);
	if (!call->operation->headers_act)
		return error;
	for (uint32_t i = 0; i < request->header_count && !error; i++)
		if (is_amz(&request->headers[i]))
			error = bucket ? may_bucket(call, &request->headers[i])
				       : may_object(call, &request->headers[i]);
	return error;
}

bool s3_lock_bypass(const struct s3_call *call)
{
	return slice_eq_nocase(
		s3_call_header(call, SLICE("x-amz-bypass-governance-retention")), SLICE("true"));
}
