/* s3/op/delete_bucket.c: DeleteBucket. */
#include <errno.h>

#include "s3/multipart.h"
#include "s3/settings.h"

const struct s3_error *s3_op_delete_bucket(struct s3_call *call)
{
	int ret = store_bucket_delete(call->s3->store, call->bucket);

	if (ret == -ENOENT)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	if (ret)
		return s3_fail_errno(call, ret);
	/* A new bucket of this name must not find them. */
	s3_uploads_delete_all(call);
	s3_configs_delete_all(call);
	return s3_answer_empty(call, 204);
}
