/* s3/op/delete_object.c: DeleteObject: a key, or one version of it. Deleting a missing key
 * succeeds. */
#include "s3/auth/access.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/judged.h"
#include "s3/core/named.h"
#include "s3/core/settings.h"
#include "s3/event/notification.h"
#include "s3/object/lock.h"
#include "s3/object/versions.h"
#include "s3/operation.h"

static const struct s3_error *parse(struct s3_call *call, struct s3_deletion_check *check)
{
	const struct s3_error *error;

	*check = (struct s3_deletion_check){
		.if_match = s3_call_header(call, SLICE("if-match")),
		.bypass = s3_lock_bypass(call),
		.now_ms = (int64_t)(clock_real_ns() / NS_PER_MS),
	};
	if (s3_call_has_header(call, SLICE("if-none-match")))
		return s3_fail(call, S3_E_NOT_IMPLEMENTED, "A deletion takes no If-None-Match.");
	error = s3_deletion_time_parse(
		call, s3_call_header(call, SLICE("x-amz-if-match-last-modified-time")), check);
	if (!error)
		error = s3_deletion_size_parse(
			call, s3_call_header(call, SLICE("x-amz-if-match-size")), check);
	return error;
}

const struct s3_error *s3_op_delete_object(struct s3_call *call)
{
	struct store_deletion deletion = {.key = call->key, .check = s3_deletion_check};
	struct s3_deletion_check check;
	const struct s3_error *error;
	struct s3_telling telling;
	int ret;

	error = s3_version_param(call, &deletion.version_id);
	if (!error)
		error = parse(call, &check);
	if (error)
		return error;
	deletion.arg = &check;
	check.by_version = deletion.version_id.len > 0;
	check.name = (struct store_name){
		.bucket = call->bucket, .key = call->key, .version_id = deletion.version_id};
	check.judged = call->judged;
	s3_deletion_find_marker(call, call->key, &check);
	s3_event_delete_begin(call, &deletion, &telling);
	ret = store_delete_each(
		call->s3->store, call->bucket, s3_call_bucket_id(call), &deletion, 1);
	if (!ret)
		ret = deletion.result;
	s3_event_delete_end(&deletion, &telling, ret);
	if (ret == -ECANCELED)
		return check.refused;
	if (ret == -EAGAIN)
		return s3_judged_changed(call);
	if (ret)
		return ret == -ENOENT ? s3_error_at(S3_E_NO_SUCH_BUCKET) : s3_fail_errno(call, ret);
	if (deletion.delete_marker)
		s3_answer_header(call, SLICE("x-amz-delete-marker"), SLICE("true"));
	if (deletion.version_id.len)
		s3_answer_header(call, SLICE("x-amz-version-id"), deletion.version_id);
	else if (deletion.version_id_out[0])
		s3_answer_header(
			call, SLICE("x-amz-version-id"), slice_str(deletion.version_id_out));
	return s3_answer_empty(call, 204);
}
