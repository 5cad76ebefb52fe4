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

/* Kinds that a bucket cannot have all at once: whether one of them can be put depends on the
 * others. */
static bool excludes_others(enum s3_config_id id)
{
	return id == S3_CONFIG_VERSIONING || id == S3_CONFIG_OBJECT_LOCK ||
	       id == S3_CONFIG_REPLICATION || id == S3_CONFIG_ORIGIN;
}

static const struct s3_error *check_and_store(struct s3_call *call,
	const struct s3_config_kind *kind, uint64_t bucket_id, struct slice body)
{
	const struct s3_error *error = s3_origin_refuses_config(call, kind->id);
	const struct s3_settings *settings;
	struct slice document;

	if (!error)
		error = kind->ops->check(call, body, &document);
	if (!error)
		error = s3_call_settings(call, &settings);
	/* A document that is put again unchanged keeps its time. */
	if (!error && !(settings && settings->documents[kind->id].data &&
			      slice_eq(settings->documents[kind->id], document)))
		error = s3_config_put(call, bucket_id, kind->id, document);
	return error;
}

const struct s3_error *s3_op_put_config(struct s3_call *call)
{
	const struct s3_config_kind *kind = s3_config_kind_of(call);
	const struct s3_error *error;
	struct store_bucket bucket;
	struct s3_sums sums;
	struct slice body;

	CHECK(kind);
	error = s3_call_bucket(call, &bucket);
	if (!error)
		error = s3_memory_refuses_config(call, &bucket, kind->id);
	if (!error)
		error = s3_sums_parse(call, &sums);
	if (!error)
		error = s3_call_read(call, &sums, &body);
	if (error)
		return error;
	/* The body may have been awaited for long, so nothing about the bucket is decided before
	 * it. */
	if (excludes_others(kind->id)) {
		fiber_mutex_lock(&call->s3->excluding);
		error = check_and_store(call, kind, bucket.id, body);
		fiber_mutex_unlock(&call->s3->excluding);
	} else {
		error = check_and_store(call, kind, bucket.id, body);
	}
	return error ? error : s3_answer_empty(call, kind->ops->put_status);
}
