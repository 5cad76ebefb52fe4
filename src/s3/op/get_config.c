/* s3/op/get_config.c: GetBucketCors and its kin: a configuration of a bucket. If the bucket has
 * none, S3's answer is an error for some and an empty document for others. Clients request these by
 * themselves. */
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/operation.h"

const struct s3_error *s3_op_get_config(struct s3_call *call)
{
	const struct s3_config_kind *kind = s3_config_kind_of(call);
	const struct s3_settings *settings;
	const struct s3_error *error;

	CHECK(kind);
	error = s3_call_settings(call, &settings);
	if (error)
		return error;
	if (!settings)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	if (settings->documents[kind->id].data) {
		s3_answer_time(call, &(struct store_meta){.mtime_ns = settings->put_ns[kind->id]});
		return kind->ops->answer(call, settings->documents[kind->id]);
	}
	if (kind->empty)
		return s3_config_answer_xml(call, slice_str(kind->empty));
	return s3_error_at(kind->missing);
}
