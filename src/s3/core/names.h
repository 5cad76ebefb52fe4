/* s3/core/names.h: the names of buckets, when several stores share them. */
#ifndef S3_NAMES_H
#define S3_NAMES_H

#include "s3/core/call.h"

/* Around the making or deleting of a bucket, so that the shared names never lack a bucket that
 * exists. The calls wait; between begin and end nobody else of this store makes or deletes one.
 * NULL, or the error with which nothing has begun. */
const struct s3_error *s3_names_begin(struct s3_call *call);
/* NULL: the call's bucket may be made here. */
const struct s3_error *s3_names_claim(struct s3_call *call);
/* The call's bucket is not, or no more. */
const struct s3_error *s3_names_release(struct s3_call *call);
void s3_names_end(struct s3_call *call);

#endif
