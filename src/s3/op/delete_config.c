/* s3/op/delete_config.c: DeleteBucketCors and its kin; deleting a missing one succeeds. */
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/operation.h"

const struct s3_error *s3_op_delete_config(struct s3_call *call)
{
	const struct s3_config_kind *kind = s3_config_kind_of(call);
	const struct s3_error *error;
	struct store_bucket bucket;

	CHECK(kind);
	error = s3_call_bucket(call, &bucket);
	if (!error)
		error = s3_config_delete(call, &bucket, kind->id);
	return error ? error : s3_answer_empty(call, 204);
}
