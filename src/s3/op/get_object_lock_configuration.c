/* s3/op/get_object_lock_configuration.c: GetObjectLockConfiguration: a bucket may have object lock
 * without a default retention. */
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/operation.h"

const struct s3_error *s3_op_get_object_lock(struct s3_call *call)
{
	const struct s3_settings *settings;
	const struct s3_error *error;
	struct buf xml;

	error = s3_call_settings(call, &settings);
	if (error)
		return error;
	if (!settings)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	if (!(settings->bucket.flags & STORE_BUCKET_LOCK))
		return s3_error_at(S3_E_OBJECT_LOCK_MISSING);
	if (settings->documents[S3_CONFIG_OBJECT_LOCK].data)
		return s3_config_answer_xml(call, settings->documents[S3_CONFIG_OBJECT_LOCK]);
	s3_xml_begin(&xml, "ObjectLockConfiguration");
	buf_put_str(&xml, "<ObjectLockEnabled>Enabled</ObjectLockEnabled>");
	s3_xml_end(&xml, "ObjectLockConfiguration");
	return s3_answer_xml(call, 200, &xml);
}
