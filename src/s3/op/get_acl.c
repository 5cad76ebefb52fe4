/* s3/op/get_acl.c: GetBucketAcl and GetObjectAcl. */
#include <errno.h>

#include "s3/auth/access.h"
#include "s3/auth/acl.h"
#include "s3/core/call.h"
#include "s3/core/named.h"
#include "s3/core/settings.h"
#include "s3/operation.h"

static const struct s3_error *bucket_acl(
	struct s3_call *call, const struct s3_settings *settings, struct s3_acl *ret_acl)
{
	const struct s3_acl *kept = settings->parsed[S3_CONFIG_ACL];
	struct slice owner = slice_str(settings->bucket.owner);

	if (kept && s3_settings_ownership(settings) != S3_OWNERSHIP_ENFORCED) {
		*ret_acl = *kept;
		ret_acl->owner = owner;
		return NULL;
	}
	return s3_acl_private(owner, &call->arena, ret_acl) ? s3_error_at(S3_E_SLOW_DOWN) : NULL;
}

static const struct s3_error *object_acl(
	struct s3_call *call, const struct s3_settings *settings, struct s3_acl *ret_acl)
{
	struct slice owner = slice_str(settings->bucket.owner), headers;
	const struct s3_error *error;
	struct store_get *get;

	error = s3_open_version(call, &get);
	if (error)
		return error;
	error = s3_call_may_foreign(
		call, call->bucket, store_get_meta(get), S3_PERMISSION_READ_ACP);
	headers = mem_arena_copy(&call->arena,
		slice_of(store_get_meta(get)->headers, store_get_meta(get)->headers_len));
	store_get_close(get);
	if (error)
		return error;
	if (s3_settings_ownership(settings) == S3_OWNERSHIP_ENFORCED)
		headers = SLICE_NONE;
	else if (!headers.data)
		return s3_error_at(S3_E_SLOW_DOWN);
	return s3_acl_of_object(headers, owner, &call->arena, ret_acl) ? s3_fail_errno(call, -EIO)
								       : NULL;
}

const struct s3_error *s3_op_get_acl(struct s3_call *call)
{
	const struct s3_settings *settings;
	const struct s3_error *error = s3_call_settings(call, &settings);
	struct s3_acl acl;

	if (error || !settings)
		return error ? error : s3_error_at(S3_E_NO_SUCH_BUCKET);
	error = call->key.len ? object_acl(call, settings, &acl) : bucket_acl(call, settings, &acl);
	return error ? error : s3_acl_answer(call, &acl);
}
