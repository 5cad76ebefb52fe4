/* s3/op/put_acl.c: PutBucketAcl and PutObjectAcl: an access control list as a canned name, as
 * headers or as a document. */
#include <errno.h>

#include "s3/auth/access.h"
#include "s3/auth/acl.h"
#include "s3/body/body.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/named.h"
#include "s3/core/settings.h"
#include "s3/core/stored.h"
#include "s3/event/notification.h"
#include "s3/object/versions.h"
#include "s3/operation.h"

static const struct s3_error *parse(struct s3_call *call, const struct s3_acl_parties *parties,
	const struct s3_settings *settings, struct s3_acl *ret_acl)
{
	const struct s3_error *error;
	struct s3_sums sums;
	struct slice body;
	bool given;

	error = s3_sums_parse(call, &sums);
	if (!error)
		error = s3_read_body(call, &sums, &body);
	if (!error)
		error = s3_acl_of_headers(call, parties, ret_acl, &given);
	if (error)
		return error;
	if (given && body.len)
		return s3_fail(
			call, S3_E_UNEXPECTED_CONTENT, "This request does not support content");
	if (!given && !body.len) {
		s3_fail_detail(call, "MissingHeaderName", SLICE("x-amz-acl"));
		return s3_error_at(S3_E_MISSING_SECURITY_HEADER);
	}
	if (!given)
		error = s3_acl_of_xml(call, body, parties, ret_acl);
	if (error)
		return error;
	if (s3_settings_ownership(settings) == S3_OWNERSHIP_ENFORCED)
		return s3_error_at(S3_E_ACL_NOT_SUPPORTED);
	if (s3_settings_public_access(settings).block_acls && s3_acl_is_public(ret_acl))
		return s3_error_at(S3_E_ACCESS_DENIED);
	return NULL;
}

static const struct s3_error *put_bucket_acl(
	struct s3_call *call, const struct s3_settings *settings)
{
	const struct s3_acl_parties parties = {.owner = slice_str(settings->bucket.owner),
		.bucket_owner = slice_str(settings->bucket.owner),
		.of_bucket = true};
	const struct s3_error *error;
	struct slice text;
	struct s3_acl acl;

	error = parse(call, &parties, settings, &acl);
	if (error)
		return error;
	text = s3_acl_encode(&acl, &call->arena);
	if (!text.data)
		return s3_error_at(S3_E_SLOW_DOWN);
	error = s3_config_put(call, settings->bucket.id, S3_CONFIG_ACL, text);
	return error ? error : s3_answer_empty(call, 200);
}

struct edit {
	struct s3_call *call;
	struct slice text; /* data NULL: the default list */
};

/* The call's fiber waits meanwhile, so this function may use its arena. */
static int edit_acl(const struct store_meta *current, struct slice *ret_headers, void *arg)
{
	struct edit *edit = arg;

	return s3_meta_set_hidden(slice_of(current->headers, current->headers_len),
		SLICE(S3_ACL_HEADER), edit->text, &edit->call->arena, ret_headers);
}

static const struct s3_error *put_object_acl(
	struct s3_call *call, const struct s3_settings *settings)
{
	struct s3_acl_parties parties = {.bucket_owner = slice_str(settings->bucket.owner)};
	struct edit edit = {.call = call, .text = SLICE_NONE};
	const struct s3_error *error;
	struct store_get *get;
	struct slice owner;
	struct s3_acl acl;

	error = s3_marker_error(call, s3_open_version(call, &get));
	if (error)
		return error;
	owner = s3_meta_hidden(
		slice_of(store_get_meta(get)->headers, store_get_meta(get)->headers_len),
		SLICE(S3_OWNER_HEADER));
	error = s3_call_may_foreign(
		call, call->bucket, store_get_meta(get), S3_PERMISSION_WRITE_ACP);
	parties.owner = owner.len ? mem_arena_copy(&call->arena, owner) : parties.bucket_owner;
	store_get_close(get);
	if (!error)
		error = parse(call, &parties, settings, &acl);
	if (error)
		return error;
	if (!s3_acl_is_default(&acl)) {
		edit.text = s3_acl_encode(&acl, &call->arena);
		if (!edit.text.data)
			return s3_error_at(S3_E_SLOW_DOWN);
	}
	error = s3_edit_version(call, edit_acl, &edit, S3_EVENT_ACL_PUT);
	return error ? error : s3_answer_empty(call, 200);
}

const struct s3_error *s3_op_put_acl(struct s3_call *call)
{
	const struct s3_settings *settings;
	const struct s3_error *error = s3_call_settings(call, &settings);

	if (error || !settings)
		return error ? error : s3_error_at(S3_E_NO_SUCH_BUCKET);
	return call->key.len ? put_object_acl(call, settings) : put_bucket_acl(call, settings);
}
