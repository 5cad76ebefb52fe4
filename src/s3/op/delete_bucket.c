/* s3/op/delete_bucket.c: DeleteBucket. */
#include <errno.h>

#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/names.h"
#include "s3/core/settings.h"
#include "s3/object/multipart.h"
#include "s3/operation.h"

static const struct s3_error *not_empty(struct s3_call *call)
{
	struct store_bucket bucket;
	const struct s3_error *error = s3_call_bucket(call, &bucket);

	if (error)
		return error;
	if (bucket.versioning == STORE_VERSIONING_NEVER)
		return s3_error_at(S3_E_BUCKET_NOT_EMPTY);
	return s3_fail(call, S3_E_BUCKET_NOT_EMPTY,
		"The bucket you tried to delete is not empty. You must delete all versions in the "
		"bucket.");
}

/* The name stays with a bucket that got it after the call's rights were decided. */
static int delete (struct s3_call *call, struct store_bucket *ret_bucket, bool *ret_free)
{
	int ret = store_bucket_get(call->s3->store, call->bucket, ret_bucket);

	/* Also when it is gone already: an earlier answer may have been an error. */
	*ret_free = ret == -ENOENT;
	if (ret)
		return ret;
	if (s3_call_bucket_id(call) && s3_call_bucket_id(call) != ret_bucket->id)
		return -ENOENT;
	ret = store_bucket_delete(call->s3->store, call->bucket, ret_bucket->id);
	*ret_free = !ret;
	if (!ret)
		s3_settings_changed(call->s3, call->bucket);
	return ret;
}

const struct s3_error *s3_op_delete_bucket(struct s3_call *call)
{
	const struct s3_error *error = s3_names_begin(call);
	const struct s3_error *told = NULL;
	struct store_bucket bucket;
	bool free;
	int ret;

	if (error)
		return error;
	ret = delete (call, &bucket, &free);
	if (free)
		told = s3_names_release(call);
	s3_names_end(call);
	if (ret == -ENOENT)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	if (ret == -ENOTEMPTY)
		return not_empty(call);
	if (ret)
		return s3_fail_errno(call, ret);
	ret = s3_uploads_delete_all(call->s3, call->request->core, call->bucket);
	if (ret)
		log_error("s3",
			"uploads of the deleted bucket %.*s remain in the store until its next "
			"start: %s",
			SLICE_FMT(call->bucket), strerror(-ret));
	s3_configs_delete_all(call, bucket.id);
	return told ? told : s3_answer_empty(call, 204);
}
