/* s3/op_put_object.c: PutObject: a body into the store, seen by nobody until it is whole, checked
 * and durable. */
#include <errno.h>

#include "s3/s3_priv.h"

static const struct s3_error *check_length(struct s3_call *call)
{
	const struct s3_body *body = call->request->body;

	if (!body)
		return NULL;
	if (body->bytes == UINT64_MAX)
		return s3_error_at(S3_E_MISSING_CONTENT_LENGTH);
	if (body->bytes > LIMIT_PUT_BYTES_MAX) {
		s3_fail_detail(call, "MaxSizeAllowed", SLICE("5368709120"));
		return s3_error_at(S3_E_ENTITY_TOO_LARGE);
	}
	return NULL;
}

static const struct s3_error *open_put(struct s3_call *call, struct store_put **ret_put)
{
	const struct store_put_opts opts = {
		.bucket = call->bucket,
		.key = call->key,
		.bytes = call->request->body ? call->request->body->bytes : 0,
	};
	int ret = store_put_open(call->s3->store, &opts, ret_put);

	if (ret == -ENOENT)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	return ret ? s3_fail_errno(call, ret) : NULL;
}

const struct s3_error *s3_op_put_object(struct s3_call *call)
{
	struct s3_write_condition condition;
	struct store_meta meta = {0};
	const struct s3_error *error;
	struct store_put *put;
	struct s3_sums sums;
	int ret;

	error = check_length(call);
	if (!error)
		error = s3_sums_parse(call, &sums);
	if (!error)
		error = s3_write_condition_parse(call, &condition);
	if (!error)
		error = s3_meta_gather(call, &meta);
	if (!error)
		error = open_put(call, &put);
	if (error)
		return error;
	error = s3_store_body(call, &sums, put, &meta);
	if (error) {
		store_put_abort(put);
		return error;
	}
	ret = store_put_commit(put, &meta,
		s3_write_condition_any(&condition) ? s3_write_condition_check : NULL, &condition);
	if (ret)
		return s3_write_failed(call, &condition, ret);
	s3_answer_etag(call, meta.etag);
	s3_answer_checksum(call, &meta);
	return s3_answer_empty(call, 200);
}
