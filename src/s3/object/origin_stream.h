/* s3/object/origin_stream.h: answers of objects that are being fetched from their bucket's origin,
 * and are not whole yet. */
#ifndef S3_OBJECT_ORIGIN_STREAM_H
#define S3_OBJECT_ORIGIN_STREAM_H

#include "s3/object/object.h"
#include "s3/origin.h"

/* Does what s3_read_begin does for the object that told, which lives as long as the call, says is
 * COMING, and waits until the read's first byte is stored, or deadline_ns. With ret_read->get set
 * the caller closes the stream after the answer; otherwise told is left. *ret_gone: nothing was
 * answered, because the fetch has ended. */
const struct s3_error *s3_origin_stream_begin(struct s3_call *call,
	const struct s3_origin_told *told, uint64_t deadline_ns, struct s3_read *ret_read,
	bool *ret_gone);
struct s3_origin_stream;
void s3_origin_stream_close(struct s3_origin_stream *stream);
/* The source of such a read. */
int s3_origin_stream_source(struct s3_origin_stream *stream, const struct s3_read *read,
	struct flow_source **ret_source);

#endif
