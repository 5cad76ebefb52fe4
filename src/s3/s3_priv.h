/* s3/s3_priv.h: what stands above all rooms: routes. */
#ifndef S3_S3_PRIV_H
#define S3_S3_PRIV_H

#include "s3/core/call.h"

/* By id (route.c). */
extern const struct s3_operation s3_operations[];
/* Fills operation, bucket, key and params of a call from its method, path, query and headers. */
const struct s3_error *s3_route(struct s3_call *call);
const struct s3_operation *s3_operation_native(enum s3_op op);
/* Splits bucket and key of a request from its host and path, decoded, into the arena. */
int s3_split_path(struct s3_call *call, enum s3_level *ret_level);

#endif
