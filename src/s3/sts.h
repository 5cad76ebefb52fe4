/* s3/sts.h: tokens of sessions: sealed by the server, so that nothing need be remembered of them;
 * and the calls that give them out. */
#ifndef S3_STS_H
#define S3_STS_H

#include "s3/iam.h"

#define S3_STS_TOKEN_LEN_MAX 6144u

struct s3_sts_token {
	struct slice access_key, secret;
	int64_t expires_ms;
	struct s3_session session;
	struct slice
		bucket; /* good for nothing but this directory bucket; empty: a session of STS */
	bool read_only;
};
/* What a token says, in the arena. -EBADMSG: not a token of this server. */
int s3_sts_token_open(struct s3_iam *iam, struct slice sealed, struct s3_arena *arena,
	struct s3_sts_token *ret_token);
/* Makes a key with its secret, and writes <Credentials> of it, good for that long: what the token
 * says beyond that is the caller's. -EMSGSIZE: the session's policy is too long. */
int s3_sts_credentials(
	struct s3_iam *iam, struct s3_sts_token *token, uint64_t seconds, struct buf *xml);
int s3_sts_token_make(struct s3_iam *iam, const struct s3_sts_token *token, struct buf *out);

#endif
