/* s3/s3_priv.h: interface between the files of this folder itself: routing of requests. */
#ifndef S3_S3_PRIV_H
#define S3_S3_PRIV_H

#include "s3/core/call.h"

/* Fills operation, bucket, key and params of a call from its method, path, query and headers. */
const struct s3_error *s3_route(struct s3_call *call);
/* Splits bucket and key of a request from its host and path, decoded, into the arena. */
int s3_split_path(struct s3_call *call, enum s3_level *ret_level);

#endif
