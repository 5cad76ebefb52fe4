/* s3/op/head_bucket.c: HeadBucket. */
#include "s3/bucket/memory.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/text.h"
#include "s3/operation.h"

const struct s3_error *s3_op_head_bucket(struct s3_call *call)
{
	struct store_bucket bucket;
	const struct s3_error *error = s3_call_bucket(call, &bucket);

	if (error)
		return error;
	if (s3_express_bucket(call)) {
		s3_answer_header(
			call, SLICE("x-amz-bucket-location-type"), SLICE("AvailabilityZone"));
		s3_answer_header(
			call, SLICE("x-amz-bucket-location-name"), s3_express_zone(call->bucket));
	}
	s3_answer_header(call, SLICE("x-amz-access-point-alias"), SLICE("false"));
	s3_answer_bucket_arn(call);
	s3_answer_header(call, SLICE("x-amz-bucket-region"), slice_str(bucket.region));
	s3_memory_answer(call, &bucket);
	return s3_answer_empty(call, 200);
}
