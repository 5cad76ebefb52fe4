/* s3/auth/auth.h: what s3.c and route.c need of the files of signatures: who asks, by the signature
 * of a request or by a session. */
#ifndef S3_AUTH_AUTH_H
#define S3_AUTH_AUTH_H

#include "s3/core/call.h"

/* Fills identity, principal, presigned and signing. */
const struct s3_error *s3_authenticate(struct s3_call *call, int64_t now_ms);
/* By a bearer token in place of a signature: fills identity, credential and principal.
 * (auth/bearer.c) */
const struct s3_error *s3_authenticate_bearer(struct s3_call *call, int64_t now_s);
/* The answer to a signature of Version 2 when that is switched off. */
extern const char s3_no_signature_v2[];
/* Of a presigned URL, once it is known to be good: puts the parameters that stand for headers among
 * the request's headers. Before: whether one of that name is there. (auth/presigned.c) */
const struct s3_error *s3_presigned_headers(struct s3_call *call);
bool s3_presigned_has(const struct s3_call *call, struct slice name);
/* Whether the query is a presigned one, and the parameter is of its signature, or stands for one of
 * the headers that are not x-amz-. */
bool s3_presigned_takes(const struct s3_call *call, struct slice name);
/* Of a session: whose key it is now. AccessDenied when the key is gone. */
const struct s3_error *s3_authenticate_session(struct s3_call *call);

#endif
