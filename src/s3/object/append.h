/* s3/object/append.h: PutObject that adds to an object of a directory bucket. */
#ifndef S3_APPEND_H
#define S3_APPEND_H

#include "s3/core/call.h"
#include "s3/object/object.h"

#define S3_APPEND_HEADER "x-amz-write-offset-bytes"

bool s3_append_asked(const struct s3_call *call);
/* Like s3_put_object with the request's body; meta becomes the whole object's. If input says that
 * the object is to be created, an object that was created in the meantime is InvalidWriteOffset. */
const struct s3_error *s3_append_object(
	struct s3_call *call, const struct s3_put_input *input, struct store_meta *meta);

#endif
