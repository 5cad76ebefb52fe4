/* s3/op/create_multipart_upload.c: CreateMultipartUpload: stores the metadata of the future
 * object. */
#include "document/document.h"
#include "s3/body/body.h"
#include "s3/bucket/memory.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/stored.h"
#include "s3/object/multipart.h"
#include "s3/object/object.h"
#include "s3/operation.h"
#include "s3/sse/sse.h"

struct upload {
	char id[S3_UPLOAD_ID_LEN + 1];
	uint64_t bucket_id;
	enum checksum_kind kind;
};

static const struct s3_error *write_record(
	struct s3_call *call, const struct upload *upload, struct store_meta *meta)
{
	const struct s3_sums no_sums = {0};
	const struct s3_error *error;
	char name[S3_UPLOAD_NAME_MAX];
	const struct store_put_opts opts = {.bucket = SLICE(S3_UPLOADS_BUCKET),
		.key = s3_upload_name(call->bucket, upload->id, 0, name),
		.bytes = call->key.len,
		.bucket_id = upload->bucket_id};
	struct flow_source *source;
	struct store_put *put;
	int ret;

	ret = document_own_put_open(call->s3->store, &opts, &put);
	if (ret)
		return ret == -ENOENT ? s3_error_at(S3_E_NO_SUCH_BUCKET) : s3_fail_errno(call, ret);
	ret = flow_memory_source_open(call->request->core, call->key, &source);
	if (ret) {
		store_put_abort(put);
		return s3_fail_errno(call, ret);
	}
	meta->bytes = call->key.len;
	error = s3_store_source(call, &no_sums, source, put, meta);
	if (error) {
		store_put_abort(put);
		return error;
	}
	meta->checksum_type = (uint8_t)upload->kind;
	ret = store_put_commit(put, meta, NULL, NULL);
	if (ret == -ENOENT)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	return ret ? s3_fail_errno(call, ret) : NULL;
}

static const struct s3_error *answer(
	struct s3_call *call, const struct upload *upload, uint8_t flags)
{
	struct buf xml;

	if (!(flags & S3_FLAG_UNASKED)) {
		s3_answer_header(
			call, SLICE("x-amz-checksum-algorithm"), checksum_name(upload->kind));
		s3_answer_header(call, SLICE("x-amz-checksum-type"),
			flags & S3_FLAG_COMPOSITE ? SLICE("COMPOSITE") : SLICE("FULL_OBJECT"));
	}
	s3_xml_begin(&xml, "InitiateMultipartUploadResult");
	xml_element("Bucket", call->bucket, &xml);
	xml_element("Key", call->key, &xml);
	xml_element("UploadId", slice_str(upload->id), &xml);
	s3_xml_end(&xml, "InitiateMultipartUploadResult");
	return s3_answer_xml(call, 200, &xml);
}

const struct s3_error *s3_op_create_multipart_upload(struct s3_call *call)
{
	struct store_meta meta = {0};
	const struct s3_error *error;
	struct store_bucket bucket;
	struct upload upload;
	struct slice record;
	struct s3_sse sse;
	uint8_t flags = 0;

	error = s3_call_bucket(call, &bucket);
	if (!error)
		error = s3_memory_refuses(
			call, &bucket, "multipart uploads: one PUT has up to 5 GiB");
	if (!error)
		error = s3_upload_checksum(call, &upload.kind, &flags);
	if (!error)
		error = s3_meta_gather(call, &meta);
	if (!error)
		error = s3_sse_begin(call, &sse, &record);
	if (!error)
		error = s3_sse_keep(call, record, &meta);
	if (error)
		return error;
	meta.checksum_flags |= flags;
	upload.bucket_id = bucket.id;
	s3_upload_id_make(bucket.id, call->key, upload.id);
	error = write_record(call, &upload, &meta);
	if (!error)
		s3_sse_answer(call, &sse);
	return error ? error : answer(call, &upload, flags);
}
