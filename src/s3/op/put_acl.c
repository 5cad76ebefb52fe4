/* s3/op/put_acl.c: PutBucketAcl and PutObjectAcl: an access control list as a canned name, as
 * headers or as a document. The body comes first: the rights to an object, and the list's owner,
 * are those of the object that the key has then, and that object alone gets the list. */
#include <errno.h>

#include "s3/auth/access.h"
#include "s3/auth/acl.h"
#include "s3/auth/auth.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/named.h"
#include "s3/core/settings.h"
#include "s3/core/stored.h"
#include "s3/event/notification.h"
#include "s3/object/versions.h"
#include "s3/operation.h"

#define EDIT_TRIES_MAX 8u

/* The document, and the bucket that the list is of, or in. */
struct given {
	struct slice body;
	const struct s3_settings *settings;
};

static const struct s3_error *parse(struct s3_call *call, const struct s3_acl_parties *parties,
	const struct given *from, struct s3_acl *ret_acl)
{
	const struct s3_error *error;
	struct slice body = from->body;
	bool given;

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
	if (s3_settings_ownership(from->settings) == S3_OWNERSHIP_ENFORCED)
		return s3_error_at(S3_E_ACL_NOT_SUPPORTED);
	if (s3_settings_public_access(from->settings).block_acls && s3_acl_is_public(ret_acl))
		return s3_error_at(S3_E_ACCESS_DENIED);
	return NULL;
}

static const struct s3_error *put_bucket_acl(struct s3_call *call, const struct given *given)
{
	const struct s3_settings *settings = given->settings;
	const struct s3_acl_parties parties = {.owner = slice_str(settings->bucket.owner),
		.bucket_owner = slice_str(settings->bucket.owner),
		.of_bucket = true};
	const struct s3_error *error;
	struct slice text;
	struct s3_acl acl;

	error = parse(call, &parties, given, &acl);
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
	const struct store_meta *judged; /* the object as it was when the rights were checked */
	struct slice text;		 /* data NULL: the default list */
};

/* The call's fiber waits meanwhile, so this function may use its arena. */
static int edit_acl(const struct store_meta *current, struct slice *ret_headers, void *arg)
{
	struct edit *edit = arg;
	const struct store_meta *judged = edit->judged;
	struct slice headers = slice_of(current->headers, current->headers_len);

	if (current->mtime_ns != judged->mtime_ns ||
		strcmp(current->version_id, judged->version_id) != 0 ||
		!slice_eq(headers, slice_of(judged->headers, judged->headers_len)))
		return -ESTALE;
	return s3_meta_set_hidden(
		headers, SLICE(S3_ACL_HEADER), edit->text, &edit->call->arena, ret_headers);
}

static const struct s3_error *edit_object(
	struct s3_call *call, const struct given *given, const struct store_meta *meta)
{
	struct slice bucket_owner = slice_str(given->settings->bucket.owner);
	struct slice owner =
		s3_meta_hidden(slice_of(meta->headers, meta->headers_len), SLICE(S3_OWNER_HEADER));
	const struct s3_acl_parties parties = {
		.owner = owner.len ? owner : bucket_owner, .bucket_owner = bucket_owner};
	struct edit edit = {.call = call, .judged = meta, .text = SLICE_NONE};
	const struct s3_error *error = s3_call_may_on(call, meta);
	struct s3_acl acl;

	if (!error)
		error = s3_call_may_foreign(call, call->bucket, meta, S3_PERMISSION_WRITE_ACP);
	if (!error)
		error = parse(call, &parties, given, &acl);
	if (error)
		return error;
	if (!s3_acl_is_default(&acl)) {
		edit.text = s3_acl_encode(&acl, &call->arena);
		if (!edit.text.data)
			return s3_error_at(S3_E_SLOW_DOWN);
	}
	return s3_edit_version(call, edit_acl, &edit, S3_EVENT_ACL_PUT);
}

static const struct s3_error *put_object_acl(struct s3_call *call, const struct given *given)
{
	const struct s3_error *error = s3_error_at(S3_E_CONDITIONAL_REQUEST_CONFLICT);

	for (uint32_t i = 0;
		error == s3_error_at(S3_E_CONDITIONAL_REQUEST_CONFLICT) && i < EDIT_TRIES_MAX;
		i++) {
		struct store_get *get;

		/* Its rights are checked for the object that is opened now. */
		call->judged = NULL;
		error = s3_marker_error(call, s3_open_version(call, &get));
		if (error)
			return error;
		error = edit_object(call, given, store_get_meta(get));
		store_get_close(get);
	}
	return error ? error : s3_answer_empty(call, 200);
}

const struct s3_error *s3_op_put_acl(struct s3_call *call)
{
	const struct s3_error *error;
	struct s3_sums sums;
	struct given given;

	error = s3_sums_parse(call, &sums);
	if (!error)
		error = s3_call_read(call, &sums, &given.body);
	if (!error)
		error = s3_call_settings(call, &given.settings);
	if (error)
		return error;
	if (!given.settings)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	return call->key.len ? put_object_acl(call, &given) : put_bucket_acl(call, &given);
}
