/* s3/op/put_object.c: PutObject: writes a body to the store. No reader sees it until it is
 * complete, checked and durable. */
#include <errno.h>

#include "s3/body/body.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/named.h"
#include "s3/core/stored.h"
#include "s3/event/notification.h"
#include "s3/object/append.h"
#include "s3/object/lifecycle.h"
#include "s3/object/object.h"
#include "s3/operation.h"
#include "s3/sse/sse.h"

const struct s3_error *s3_op_put_object(struct s3_call *call)
{
	const struct s3_body *body = call->request->body;
	const struct s3_put_input input = {.bytes = body ? body->bytes : 0,
		.appendable = s3_append_asked(call),
		.event = S3_EVENT_PUT};
	const struct s3_error *error = s3_check_length(call);
	struct store_meta meta = {0};

	if (!error)
		error = input.appendable ? s3_append_object(call, &input, &meta)
					 : s3_put_object(call, &input, &meta);
	if (error)
		return error;
	/* A PutObject that wrote the null version returns no version id. */
	if (meta.version_id[0] && strcmp(meta.version_id, "null") != 0)
		s3_answer_version(call, &meta);
	s3_lifecycle_answer(call, &meta);
	if (meta.checksum_flags >> S3_FLAG_CLASS_SHIFT == S3_STORAGE_CLASS_MEMORY)
		s3_answer_header(call, SLICE("x-amz-storage-class"), s3_meta_storage_class(&meta));
	s3_answer_etag(call, meta.etag);
	s3_answer_checksum(call, &meta);
	return s3_answer_empty(call, 200);
}
