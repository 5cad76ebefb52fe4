/* s3/identity/oidc.h: the public keys of OpenID Connect issuers: located by their discovery
 * document, fetched over HTTPS on helper threads, and cached for a bounded time.
 *
 * Source: OpenID Connect Discovery 1.0, section 4; RFC 7517. */
#ifndef S3_OIDC_H
#define S3_OIDC_H

#include <curl/curl.h>

#include "iam/jwt.h"

#define S3_OIDC_ISSUERS_MAX 256u /* with keys in memory */

struct s3_oidc;
/* The issuers that the server may connect to: none; https:// at public addresses; any, also private
 * networks and http://. */
enum s3_oidc_reach { S3_OIDC_NONE, S3_OIDC_PUBLIC, S3_OIDC_ANY };
int s3_oidc_open(enum s3_oidc_reach reach, struct s3_oidc **ret_oidc);
void s3_oidc_close(struct s3_oidc *oidc); /* takes NULL */

enum s3_oidc_reach s3_oidc_reach(const struct s3_oidc *oidc);

struct s3_oidc_issuer {
	struct slice account;	   /* that has it as a provider */
	struct slice url;	   /* without a slash at its end */
	const json_t *thumbprints; /* texts: SHA-1 of certificates trusted in addition to the CAs */
};
/* Whether the server may connect to this issuer. */
bool s3_oidc_reaches(const struct s3_oidc *oidc, struct slice url);
/* Fiber call on any reactor. Verifies the token's signature with the issuer's keys. It fetches the
 * keys if it has none, if they are old, or if they lack the token's key (a few times a minute). Old
 * keys are used, up to a day, if new ones cannot be fetched. One fetch of an account runs at a
 * time. -EBADMSG: signed with another key; -ENOKEY: the issuer has no such key; -EIO, -ETIMEDOUT:
 * the issuer does not answer, or its answer is malformed (logged); -ENOMEM. */
int s3_oidc_verify(
	struct s3_oidc *oidc, const struct s3_oidc_issuer *issuer, const struct jwt *jwt);

/* Prepares a call to an issuer at url or one of its endpoints: no proxy, no redirect, a time limit,
 * no address that reach forbids; the answer goes to reply. */
void s3_oidc_prepare(CURL *curl, enum s3_oidc_reach reach, const char *issuer, struct buf *reply);

#endif
