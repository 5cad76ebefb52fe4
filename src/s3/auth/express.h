/* s3/auth/express.h: directory buckets, as in S3 Express One Zone: their names contain their zone
 * ("base--zone--x-s3"), they have fewer operations and listings of whole folders, and they have
 * sessions: short-lived keys for one bucket.
 *
 * Source: S3 User Guide, "Working with directory buckets"; S3 API reference, CreateSession. */
#ifndef S3_EXPRESS_H
#define S3_EXPRESS_H

#include "s3/core/call.h"

/* Call it after authentication: checks a request to a directory bucket against the bucket's
 * features, and a session against its bucket, its mode and its expiry. */
const struct s3_error *s3_express_check(struct s3_call *call);
/* NULL: the caller has no session of a bucket, or has one of this bucket. */
const struct s3_error *s3_express_of_session(struct s3_call *call, struct slice bucket);
/* The checks of a list's parameters. */
const struct s3_error *s3_express_check_list(
	struct s3_call *call, struct slice prefix, struct slice delimiter);

#endif
