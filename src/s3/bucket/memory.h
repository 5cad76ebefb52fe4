/* s3/bucket/memory.h: memory buckets as S3 shows them. */
#ifndef S3_BUCKET_MEMORY_H
#define S3_BUCKET_MEMORY_H

#include "s3/core/call.h"
#include "s3/core/settings.h"

/* Of CreateBucket: asks for a memory bucket, and has its bounds. Of answers: tells them. */
#define S3_MEMORY_HEADER "x-nebulaio-memory"

/* Sets the bucket's flag and bounds if the request asks for a memory bucket: whether the caller may
 * make one is checked first. */
const struct s3_error *s3_memory_asked(struct s3_call *call, struct store_bucket *bucket);
/* The error for -ENOTSUP or -ENOBUFS of store_bucket_create. */
const struct s3_error *s3_memory_not_made(struct s3_call *call, int error);
/* The error of a memory bucket that is asked for something durable; NULL: it is another bucket. */
const struct s3_error *s3_memory_refuses(
	struct s3_call *call, const struct store_bucket *bucket, const char *what);
const struct s3_error *s3_memory_refuses_config(
	struct s3_call *call, const struct store_bucket *bucket, enum s3_config_id id);
/* Adds the header, if it is a memory bucket. */
void s3_memory_answer(struct s3_call *call, const struct store_bucket *bucket);
/* Whether both are memory buckets with the same bounds, or neither is one. */
bool s3_memory_same(const struct store_bucket *a, const struct store_bucket *b);

#endif
