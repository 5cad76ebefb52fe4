/* s3/object/append.h: PutObject that adds to an object of a directory bucket. */
#ifndef S3_APPEND_H
#define S3_APPEND_H

#include "s3/core/call.h"
#include "s3/object/object.h"

#define S3_APPEND_HEADER "x-amz-write-offset-bytes"

bool s3_append_asked(const struct s3_call *call);
/* As s3_put_object, of the request's body; meta becomes the whole object's. Input says that what is
 * not there is to be made: what was made meanwhile is InvalidWriteOffset. */
const struct s3_error *s3_append_object(
	struct s3_call *call, const struct s3_put_input *input, struct store_meta *meta);

#endif
