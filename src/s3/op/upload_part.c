/* s3/op/upload_part.c: UploadPart: a body as one part of an upload. */
#include <errno.h>

#include "s3/body/body.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/stored.h"
#include "s3/object/multipart.h"
#include "s3/operation.h"
#include "s3/sse/sse.h"

/* A part has the checksum that its upload has; without one of its own it is computed. */
static const struct s3_error *match_sums(
	struct s3_call *call, const struct s3_upload *upload, struct s3_sums *sums)
{
	if (sums->kind == CHECKSUM_NONE)
		sums->kind = upload->kind;
	/* An upload without a requested checksum accepts any part: its own checksum is computed
	 * from the bytes. */
	if (sums->kind == upload->kind || upload->kind == CHECKSUM_CRC64NVME)
		return NULL;
	return s3_fail(call, S3_E_INVALID_REQUEST,
		"Checksum Type mismatch occurred, expected checksum Type: %.*s, actual checksum "
		"Type: %.*s",
		SLICE_FMT(checksum_name(upload->kind)), SLICE_FMT(checksum_name(sums->kind)));
}

static const struct s3_error *store_part(struct s3_call *call, const struct s3_upload *upload,
	uint32_t number, const struct s3_sums *sums)
{
	char name[S3_UPLOAD_NAME_MAX];
	const struct store_put_opts opts = {
		.bucket = SLICE(S3_UPLOADS_BUCKET),
		.key = s3_upload_name(call->bucket, upload->id, number, name),
		.bytes = call->request->body ? call->request->body->bytes : 0,
		.composable = true,
	};
	struct store_meta meta = {0};
	const struct s3_error *error;
	struct store_put *put;
	int ret;

	ret = store_put_open(call->s3->store, &opts, &put);
	if (ret)
		return s3_fail_errno(call, ret);
	error = s3_store_body(call, sums, put, &meta);
	if (error) {
		store_put_abort(put);
		return error;
	}
	ret = store_put_commit(put, &meta, NULL, NULL);
	if (ret)
		return s3_fail_errno(call, ret);
	error = s3_upload_still_there(call, upload, number);
	if (error)
		return error;
	if (call->sse)
		s3_sse_answer(call, call->sse);
	s3_answer_etag(call, meta.etag);
	if (upload->asked || sums->digest_bytes || sums->in_trailer)
		s3_answer_checksum(call, &meta);
	return s3_answer_empty(call, 200);
}

const struct s3_error *s3_op_upload_part(struct s3_call *call)
{
	const struct s3_error *error;
	struct s3_sse sse = {.kind = S3_SSE_NONE};
	struct s3_upload upload;
	struct s3_sums sums;
	uint32_t number = 0;

	error = s3_part_number(call, &number);
	if (!error)
		error = s3_check_length(call);
	if (!error)
		error = s3_sums_parse(call, &sums);
	if (!error)
		error = s3_upload_open(call, &upload);
	if (error)
		return error;
	error = match_sums(call, &upload, &sums);
	if (!error)
		error = s3_upload_room(call, call->request->body ? call->request->body->bytes : 0);
	if (!error)
		error = s3_upload_sse(call, &upload, &sse);
	call->sse = sse.kind != S3_SSE_NONE ? &sse : NULL;
	if (!error)
		error = store_part(call, &upload, number, &sums);
	call->sse = NULL;
	s3_upload_close(&upload);
	return error;
}
