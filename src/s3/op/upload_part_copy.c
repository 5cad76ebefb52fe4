/* s3/op/upload_part_copy.c: UploadPartCopy: an object, or a range of one, as one part of an upload.
 */
#include <errno.h>

#include "s3/body/body.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/named.h"
#include "s3/object/multipart.h"
#include "s3/object/object.h"
#include "s3/operation.h"
#include "s3/sse/sse.h"

static const struct s3_error *move_bytes(struct s3_call *call, struct s3_copy *copy,
	const struct s3_sums *sums, struct s3_range range, struct store_put *put,
	struct store_meta *meta)
{
	struct flow_source *source;
	int ret = s3_copy_source(call, copy, range, &source);

	if (ret)
		return s3_fail_errno(call, ret);
	meta->bytes = range.bytes;
	return s3_store_source(call, sums, source, put, meta);
}

static const struct s3_error *store_part(struct s3_call *call, const struct s3_upload *upload,
	uint32_t number, struct s3_copy *copy, struct store_meta *meta)
{
	const struct s3_sums sums = {.kind = upload->kind, .etag_md5 = s3_etag_md5(call)};
	char name[S3_UPLOAD_NAME_MAX];
	struct store_put_opts opts = {.bucket = SLICE(S3_UPLOADS_BUCKET),
		.key = s3_upload_name(call->bucket, upload->id, number, name),
		.composable = true};
	const struct s3_error *error;
	struct store_put *put;
	struct s3_range range;
	int ret;

	error = s3_copy_range(call, copy, &range);
	if (!error && range.bytes > LIMIT_PUT_BYTES_MAX)
		error = s3_error_at(S3_E_ENTITY_TOO_LARGE);
	if (!error)
		error = s3_upload_room(call, range.bytes);
	if (error)
		return error;
	opts.bytes = range.bytes;
	ret = store_put_open(call->s3->store, &opts, &put);
	if (ret)
		return s3_fail_errno(call, ret);
	error = move_bytes(call, copy, &sums, range, put, meta);
	if (error) {
		store_put_abort(put);
		return error;
	}
	ret = store_put_commit(put, meta, NULL, NULL);
	return ret ? s3_fail_errno(call, ret) : s3_upload_still_there(call, upload, number);
}

static const struct s3_error *answer(
	struct s3_call *call, const struct store_meta *meta, bool with_checksum)
{
	struct buf xml;

	s3_xml_begin(&xml, "CopyPartResult");
	s3_xml_time(&xml, "LastModified", meta->mtime_ns);
	s3_xml_etag(&xml, meta->etag);
	if (with_checksum)
		s3_xml_checksum(&xml, meta);
	s3_xml_end(&xml, "CopyPartResult");
	return s3_answer_xml(call, 200, &xml);
}

const struct s3_error *s3_op_upload_part_copy(struct s3_call *call)
{
	const struct s3_error *error;
	struct store_meta meta = {0};
	struct s3_sse sse = {.kind = S3_SSE_NONE};
	struct s3_upload upload;
	struct s3_copy copy = {0};
	uint32_t number = 0;

	error = s3_part_number(call, &number);
	if (!error)
		error = s3_copy_parse(call, &copy);
	if (!error)
		error = s3_upload_open(call, &upload);
	if (error)
		return error;
	error = s3_copy_open(call, &copy);
	if (!error) {
		error = s3_upload_sse(call, &upload, &sse);
		call->sse = sse.kind != S3_SSE_NONE ? &sse : NULL;
		if (!error)
			error = store_part(call, &upload, number, &copy, &meta);
		call->sse = NULL;
		s3_copy_close(&copy);
	}
	if (!error)
		s3_sse_answer(call, &sse);
	s3_upload_close(&upload);
	return error ? error : answer(call, &meta, upload.asked);
}
