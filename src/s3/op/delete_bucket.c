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

const struct s3_error *s3_op_delete_bucket(struct s3_call *call)
{
	const struct s3_error *error = s3_names_begin(call);
	const struct s3_error *told = NULL;
	int ret;

	if (error)
		return error;
	ret = store_bucket_delete(call->s3->store, call->bucket, 0);
	/* Also when it is gone already: an earlier answer may have been an error. */
	if (!ret || ret == -ENOENT)
		told = s3_names_release(call);
	s3_names_end(call);
	if (ret == -ENOENT)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	if (ret == -ENOTEMPTY)
		return not_empty(call);
	if (ret)
		return s3_fail_errno(call, ret);
	/* A new bucket of this name must not have them. */
	s3_uploads_delete_all(call);
	s3_configs_delete_all(call);
	return told ? told : s3_answer_empty(call, 204);
}
