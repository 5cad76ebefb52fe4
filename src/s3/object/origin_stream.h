/* s3/object/origin_stream.h: reads of objects of a bucket's origin that are not whole here. */
#ifndef S3_OBJECT_ORIGIN_STREAM_H
#define S3_OBJECT_ORIGIN_STREAM_H

#include "s3/object/object.h"
#include "s3/origin.h"

/* Does what s3_read_begin does for the object that told says is COMING, and waits until the read's
 * first byte is here, or the ask's deadline. When the read is open the caller closes the stream
 * after the answer; otherwise it is closed. *ret_gone: nothing was answered, because the fetch has
 * ended. ask and told live as long as the call. */
const struct s3_error *s3_origin_stream_begin(struct s3_call *call, const struct s3_origin_ask *ask,
	struct s3_origin_told *told, struct s3_read *ret_read, bool *ret_gone);
/* The same for a range of the object of that meta, which a head has told: the range alone. */
const struct s3_error *s3_origin_range_begin(struct s3_call *call, const struct s3_origin_ask *ask,
	struct s3_origin_told *told, const struct store_meta *meta, struct s3_read *ret_read);
struct s3_origin_stream;
void s3_origin_stream_close(struct s3_origin_stream *stream);
/* The source of such a read, once. */
int s3_origin_stream_source(struct s3_origin_stream *stream, struct flow_source **ret_source);
/* The error of an answer whose source failed before its head was sent. */
const struct s3_error *s3_origin_stream_failed(struct s3_call *call, int error);

#endif
