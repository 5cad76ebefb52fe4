/* s3/op/upload_part_copy.c: UploadPartCopy: an object, or a range of one, as one part of an upload.
 */
#include <errno.h>
#include <stdio.h>

#include "s3/body/body.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/named.h"
#include "s3/object/multipart.h"
#include "s3/object/object.h"
#include "s3/operation.h"
#include "s3/sse/sse.h"

struct range {
	uint64_t offset, bytes;
};

static const struct s3_error *range_error(
	struct s3_call *call, struct slice text, const char *message)
{
	s3_fail_detail(call, "ArgumentName", SLICE("x-amz-copy-source-range"));
	s3_fail_detail(call, "ArgumentValue", text);
	return s3_fail(call, S3_E_INVALID_ARGUMENT, "%s", message);
}

/* Unlike the range of a GET, this range must have both ends and lie inside the source. */
static const struct s3_error *choose_range(
	struct s3_call *call, const struct s3_copy *copy, struct range *ret_range)
{
	struct slice text = s3_call_header(call, SLICE("x-amz-copy-source-range")), last, first;
	uint64_t from, to;
	char message[96];

	*ret_range = (struct range){.bytes = copy->from->bytes};
	if (!text.len)
		return NULL;
	last = slice_from(text, strlen("bytes="));
	first = slice_split(&last, '-');
	if (!slice_starts(text, SLICE("bytes=")) || slice_to_u64(first, &from) ||
		slice_to_u64(last, &to) || from > to)
		return range_error(call, text,
			"The x-amz-copy-source-range value must be of the form bytes=first-last "
			"where first and last are the zero-based offsets of the first and last "
			"bytes to copy");
	if (from >= copy->from->bytes)
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"The specified copy range is invalid for the source object size");
	snprintf(message, sizeof(message),
		"Range specified is not valid for source object of size: %llu",
		(unsigned long long)copy->from->bytes);
	if (to >= copy->from->bytes)
		return range_error(call, text, message);
	*ret_range = (struct range){.offset = from, .bytes = to - from + 1};
	return NULL;
}

static const struct s3_error *move_bytes(struct s3_call *call, const struct s3_copy *copy,
	const struct s3_sums *sums, struct range range, struct store_put *put,
	struct store_meta *meta)
{
	struct flow_core *core = call->request->core;
	struct flow_source *source;
	int ret;

	if (range.bytes)
		ret = s3_sse_source(call, copy->sse, copy->get, range.offset, range.bytes, &source);
	else
		ret = flow_memory_source_open(core, SLICE_NONE, &source);
	if (ret)
		return s3_fail_errno(call, ret);
	meta->bytes = range.bytes;
	return s3_store_source(call, sums, source, put, meta);
}

static const struct s3_error *store_part(struct s3_call *call, const struct s3_upload *upload,
	uint32_t number, const struct s3_copy *copy, struct store_meta *meta)
{
	const struct s3_sums sums = {.kind = upload->kind, .etag_md5 = call->etag_md5};
	char name[S3_UPLOAD_NAME_MAX];
	struct store_put_opts opts = {.bucket = SLICE(S3_UPLOADS_BUCKET),
		.key = s3_upload_name(call->bucket, upload->id, number, name),
		.composable = true};
	const struct s3_error *error;
	struct store_put *put;
	struct range range;
	int ret;

	error = choose_range(call, copy, &range);
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
	struct s3_copy copy;
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
		store_get_close(copy.get);
	}
	if (!error)
		s3_sse_answer(call, &sse);
	s3_upload_close(&upload);
	return error ? error : answer(call, &meta, upload.asked);
}
