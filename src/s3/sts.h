/* s3/sts.h: the calls that give out sessions. */
#ifndef S3_STS_H
#define S3_STS_H

#include "iam/iam.h"
#include "s3/s3_priv.h"

/* Makes a key with its secret, and writes <Credentials> of it, good for that long: what the token
 * says beyond that is the caller's. -EMSGSIZE: the session's policy is too long. */
int s3_sts_credentials(struct iam *iam, struct iam_token *token, uint64_t seconds, struct buf *xml);

#endif
