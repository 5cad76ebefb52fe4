/* s3/object/put.c: PutObject without its answer: writes a body to the store. No reader sees it
 * until it is complete, checked and durable. */
#include <errno.h>

#include "s3/body/body.h"
#include "s3/core/call.h"
#include "s3/core/conditions.h"
#include "s3/core/settings.h"
#include "s3/event/notification.h"
#include "s3/object/object.h"
#include "s3/object/origin.h"
#include "s3/sse/sse.h"

static const struct s3_error *open_put(
	struct s3_call *call, const struct s3_put_input *input, struct store_put **ret_put)
{
	const struct store_put_opts opts = {
		.bucket = call->bucket,
		.key = call->key,
		.bytes = input->bytes,
		.composable = input->appendable,
		.bucket_id = s3_call_bucket_id(call),
	};
	int ret = store_put_open(call->s3->store, &opts, ret_put);

	if (ret == -ENOENT)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	return ret ? s3_fail_errno(call, ret) : NULL;
}

static const struct s3_error *move_body(struct s3_call *call, const struct s3_sums *sums,
	const struct s3_put_input *input, struct store_put *put, struct store_meta *meta)
{
	uint64_t before = call->body_bytes;
	const struct s3_error *error;
	char digits[SLICE_U64_MAX];

	if (!input->source)
		return s3_store_body(call, sums, put, meta);
	meta->bytes = input->bytes;
	error = s3_store_source(call, sums, input->source, put, meta);
	call->received_bytes += call->body_bytes - before;
	if (error || meta->bytes >= input->bytes_min)
		return error;
	s3_fail_detail(call, "ProposedSize", slice_of_u64(meta->bytes, digits));
	s3_fail_detail(call, "MinSizeAllowed", slice_of_u64(input->bytes_min, digits));
	return s3_error_at(S3_E_ENTITY_TOO_SMALL);
}

const struct s3_error *s3_put_object(
	struct s3_call *call, const struct s3_put_input *input, struct store_meta *meta)
{
	struct s3_write_condition condition;
	const struct s3_error *error;
	struct store_put *put;
	struct s3_sums sums;
	struct slice record;
	struct s3_sse sse;
	int ret;

	error = s3_sums_parse(call, &sums);
	if (!error)
		error = s3_write_condition_parse(call, &condition);
	if (!error)
		error = s3_meta_gather(call, meta);
	if (!error)
		error = s3_sse_begin(call, &sse, &record);
	if (!error)
		error = s3_sse_keep(call, record, meta);
	if (!error)
		error = open_put(call, input, &put);
	condition.absent = input->appendable;
	if (error) {
		if (input->source)
			flow_source_close(input->source);
		return error;
	}
	call->sse = record.data ? &sse : NULL;
	error = move_body(call, &sums, input, put, meta);
	call->sse = NULL;
	if (!error)
		s3_origin_keep(call, meta);
	if (error) {
		store_put_abort(put);
		return error;
	}
	ret = s3_event_commit(call, input->event, put, meta, &condition);
	if (!ret)
		s3_sse_answer(call, &sse);
	return ret ? s3_write_failed(call, &condition, ret) : NULL;
}
