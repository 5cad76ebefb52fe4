/* s3/op/account_public_access.c: an account's public access block, for all buckets of its owners:
 * S3 Control's PutPublicAccessBlock, GetPublicAccessBlock and DeletePublicAccessBlock. It is a
 * member of the account's document.
 *
 * Source: S3 API Reference, "PutPublicAccessBlock" of S3 Control. */
#include <errno.h>

#include "s3/auth/access.h"
#include "s3/auth/auth.h"
#include "s3/bucket/bucket.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/operation.h"

static int change(json_t *account, void *arg)
{
	const struct slice *text = arg;

	if (text->data)
		return json_member_set_text(account, S3_PUBLIC_ACCESS_MEMBER, *text);
	json_object_del(account, S3_PUBLIC_ACCESS_MEMBER);
	return 0;
}

/* Text with data NULL removes the block. The change may alter every bucket's settings. */
static const struct s3_error *keep(struct s3_call *call, struct slice text)
{
	struct slice number = s3_call_header(call, SLICE("x-amz-account-id"));
	const struct iam_edit edit = {.account = number,
		.create = slice_eq(number, SLICE(IAM_ACCOUNT_OF_ROOT)),
		.change = change,
		.arg = &text};
	int ret = iam_change(call->s3->iam, call->request->core, &edit);

	s3_settings_all_changed(call->s3);
	if (ret == -ENOENT)
		return s3_error_at(S3_E_ACCESS_DENIED);
	return ret ? s3_fail_errno(call, ret) : NULL;
}

const struct s3_error *s3_op_put_account_public_access(struct s3_call *call)
{
	const struct s3_error *error;
	struct slice body, document;
	struct s3_sums sums;

	error = s3_sums_parse(call, &sums);
	if (!error)
		error = s3_call_read(call, &sums, &body);
	if (!error)
		error = s3_config_public_access.check(call, body, &document);
	if (!error)
		error = keep(call, document);
	return error ? error : s3_answer_empty(call, 201);
}

const struct s3_error *s3_op_get_account_public_access(struct s3_call *call)
{
	json_t *account =
		iam_account(call->s3->iam, s3_call_header(call, SLICE("x-amz-account-id")));
	struct slice text =
		mem_arena_copy(&call->arena, json_member_text(account, S3_PUBLIC_ACCESS_MEMBER));
	struct s3_public_access access;

	iam_account_put(account);
	if (s3_public_access_parse(text, &access))
		return s3_error_at(S3_E_PUBLIC_ACCESS_MISSING);
	return s3_config_public_access.answer(call, text);
}

const struct s3_error *s3_op_delete_account_public_access(struct s3_call *call)
{
	const struct s3_error *error = keep(call, SLICE_NONE);

	return error ? error : s3_answer_empty(call, 204);
}
