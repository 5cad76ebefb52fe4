/* s3/auth/express.h: directory buckets, as S3 Express One Zone has them: names that say their zone
 * ("base--zone--x-s3"), fewer operations, listings of whole folders, and sessions: short-lived keys
 * that are good for one bucket.
 *
 * Source: S3 User Guide, "Working with directory buckets"; S3 API reference, CreateSession. */
#ifndef S3_EXPRESS_H
#define S3_EXPRESS_H

#include "s3/core/call.h"

/* Once it is known who asks: holds what is asked of a directory bucket against what it has, and a
 * session against its bucket, its mode and its end. */
const struct s3_error *s3_express_check(struct s3_call *call);
/* The checks of a list's parameters. */
const struct s3_error *s3_express_check_list(
	struct s3_call *call, struct slice prefix, struct slice delimiter);

#endif
