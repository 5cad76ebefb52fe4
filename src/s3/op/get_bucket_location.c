/* s3/op/get_bucket_location.c: GetBucketLocation. us-east-1 is an empty element. */
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/operation.h"

const struct s3_error *s3_op_get_bucket_location(struct s3_call *call)
{
	struct store_bucket bucket;
	const struct s3_error *error = s3_call_bucket(call, &bucket);
	struct buf xml;

	if (error)
		return error;
	s3_xml_begin(&xml, "LocationConstraint");
	if (strcmp(bucket.region, "us-east-1") != 0)
		xml_escape(slice_str(bucket.region), &xml);
	s3_xml_end(&xml, "LocationConstraint");
	return s3_answer_xml(call, 200, &xml);
}
