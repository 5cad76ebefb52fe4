/* s3/identity/oidc.h: the public keys of OpenID Connect issuers: found by their discovery document,
 * fetched over HTTPS on helper threads, kept for a bounded time.
 *
 * Source: OpenID Connect Discovery 1.0, section 4; RFC 7517. */
#ifndef S3_OIDC_H
#define S3_OIDC_H

#include "iam/jwt.h"

#define S3_OIDC_ISSUERS_MAX 256u /* whose keys are in memory */

struct s3_oidc;
/* Which issuers may be asked: none; https:// at addresses that anybody may be reached at; any, also
 * private networks and http://. */
enum s3_oidc_reach { S3_OIDC_NONE, S3_OIDC_PUBLIC, S3_OIDC_ANY };
int s3_oidc_open(enum s3_oidc_reach reach, struct s3_oidc **ret_oidc);
void s3_oidc_close(struct s3_oidc *oidc); /* takes NULL */

struct s3_oidc_issuer {
	struct slice url; /* without a slash at its end */
	const json_t
		*thumbprints; /* texts: SHA-1 of certificates that are trusted beside the CAs */
};
/* Whether such an issuer may be asked at all. */
bool s3_oidc_reaches(const struct s3_oidc *oidc, struct slice url);
/* Fiber call on any reactor. Holds the token's signature against the issuer's keys; asks for them
 * when there are none, when they are old, or when they lack the token's (a few times a minute).
 * -EBADMSG: signed by another; -ENOKEY: the issuer has no such key; -EIO, -ETIMEDOUT: the issuer
 * does not answer, or answers nonsense (logged); -ENOMEM. */
int s3_oidc_verify(
	struct s3_oidc *oidc, const struct s3_oidc_issuer *issuer, const struct jwt *jwt);

#endif
