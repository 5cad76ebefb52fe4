/* s3/op/get_bucket_versioning.c: GetBucketVersioning: read from the bucket itself, not from a
 * stored document. */
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/operation.h"

const struct s3_error *s3_op_get_bucket_versioning(struct s3_call *call)
{
	struct store_bucket bucket;
	const struct s3_error *error = s3_call_bucket(call, &bucket);
	struct buf xml;

	if (error)
		return error;
	s3_xml_begin(&xml, "VersioningConfiguration");
	if (bucket.versioning != STORE_VERSIONING_NEVER)
		xml_element("Status",
			bucket.versioning == STORE_VERSIONING_ENABLED ? SLICE("Enabled")
								      : SLICE("Suspended"),
			&xml);
	s3_xml_end(&xml, "VersioningConfiguration");
	return s3_answer_xml(call, 200, &xml);
}
