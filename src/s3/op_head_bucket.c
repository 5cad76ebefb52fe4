/* s3/op_head_bucket.c: HeadBucket. */
#include "s3/s3_priv.h"

const struct s3_error *s3_op_head_bucket(struct s3_call *call)
{
	struct store_bucket bucket;
	const struct s3_error *error = s3_call_bucket(call, &bucket);

	if (error)
		return error;
	s3_answer_header(call, SLICE("x-amz-bucket-region"), slice_str(bucket.region));
	return s3_answer_empty(call, 200);
}
