/* s3/op/put_config.c: PutBucketCors and its kin: checks a document against its schema and stores
 * it.
 */
#include "s3/auth/auth.h"
#include "s3/bucket/memory.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/operation.h"
#include "s3/replicate/replicate.h"

const struct s3_error *s3_op_put_config(struct s3_call *call)
{
	const struct s3_config_kind *kind = s3_config_kind_of(call);
	const struct s3_settings *settings;
	const struct s3_error *error;
	struct slice body, document;
	struct store_bucket bucket;
	struct s3_sums sums;

	CHECK(kind);
	error = s3_call_bucket(call, &bucket);
	if (!error)
		error = s3_memory_refuses_config(call, &bucket, kind->id);
	if (!error)
		error = s3_origin_refuses_config(call, kind->id);
	if (!error)
		error = s3_sums_parse(call, &sums);
	if (!error)
		error = s3_call_read(call, &sums, &body);
	if (!error)
		error = kind->ops->check(call, body, &document);
	if (!error)
		error = s3_call_settings(call, &settings);
	/* A document that is put again unchanged keeps its time. */
	if (!error && !(settings && settings->documents[kind->id].data &&
			      slice_eq(settings->documents[kind->id], document)))
		error = s3_config_put(call, bucket.id, kind->id, document);
	return error ? error : s3_answer_empty(call, kind->ops->put_status);
}
