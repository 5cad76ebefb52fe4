/* s3/op/abort_multipart_upload.c: AbortMultipartUpload. */
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/object/multipart.h"
#include "s3/operation.h"

const struct s3_error *s3_op_abort_multipart_upload(struct s3_call *call)
{
	const struct s3_error *error;
	struct s3_upload upload;

	error = s3_upload_open(call, &upload);
	if (error)
		return error;
	s3_upload_close(&upload);
	error = s3_upload_delete(call, upload.id);
	return error ? error : s3_answer_empty(call, 204);
}
