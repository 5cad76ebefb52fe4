/* s3/auth/auth.h: the interface of authentication for s3.c and route.c: the caller, by a request's
 * signature or by a session. */
#ifndef S3_AUTH_AUTH_H
#define S3_AUTH_AUTH_H

#include "s3/body/body.h"
#include "s3/core/call.h"

/* Fills identity, principal, presigned and signing. */
const struct s3_error *s3_authenticate(struct s3_call *call, int64_t now_ms);
/* Authenticates by a bearer token in place of a signature: fills identity, credential and
 * principal. (auth/bearer.c) */
const struct s3_error *s3_authenticate_bearer(struct s3_call *call, int64_t now_s);
/* The error for a Version 2 signature while Version 2 is switched off. */
extern const char s3_no_signature_v2[];
/* The error for a request that is signed in two places. */
extern const char s3_one_mechanism[];
/* For a presigned URL after its signature was verified: copies the parameters that stand for
 * headers to the request's headers. Before that: whether there is one of that name.
 * (auth/presigned.c) */
const struct s3_error *s3_presigned_headers(struct s3_call *call);
bool s3_presigned_has(const struct s3_call *call, struct slice name);
/* Whether the query is presigned and the parameter belongs to its signature, or stands for a header
 * that does not begin with x-amz-. */
bool s3_presigned_takes(const struct s3_call *call, struct slice name);
/* Reads the call's document or form, as s3_read_body does, once. A client may hold it back: if
 * rights changed meanwhile, the caller must still be who it was, and may still do this. */
const struct s3_error *s3_call_read(
	struct s3_call *call, const struct s3_sums *sums, struct slice *ret_body);
/* For a session: the current owner of its key. AccessDenied when the key was deleted. */
const struct s3_error *s3_authenticate_session(struct s3_call *call);

#endif
