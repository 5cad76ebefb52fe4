/* s3/op_delete_config.c: taking a configuration away from a bucket, or its tags from an object,
 * that has none: done already. */
#include "s3/s3_priv.h"

const struct s3_error *s3_op_delete_config(struct s3_call *call)
{
	const struct s3_error *error;
	struct store_bucket bucket;
	struct store_get *get;

	if (!call->key.len) {
		error = s3_call_bucket(call, &bucket);
		return error ? error : s3_answer_empty(call, 204);
	}
	error = s3_open_object(call, call->bucket, call->key, &get);
	if (error)
		return error;
	store_get_close(get);
	return s3_answer_empty(call, 204);
}
