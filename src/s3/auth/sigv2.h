/* s3/auth/sigv2.h: AWS Signature Version 2 as S3 used it before Version 4, on plain buffers. A
 * request's claim fills the matching fields of a sigv4_claim; Version 2 signs no payload.
 *
 * Source: S3 API reference, "Signing and authenticating REST requests (AWS signature version
 * 2)". */
#ifndef S3_SIGV2_H
#define S3_SIGV2_H

#include "s3/auth/sigv4.h"
#include "s3/core/text.h"

#define SIGV2_SIGNATURE_LEN BASE64_LEN(SHA1_BYTES)

/* True of an Authorization header's value that claims to be of this version. */
bool sigv2_is_header(struct slice value);
/* Parses "AWS KEY:SIGNATURE" and the request's date. False: refused. */
bool sigv2_parse_header(struct slice value, const struct s3_request *request,
	struct sigv4_claim *ret_claim, struct sigv4_refusal *ret_refusal);
/* True of a query that claims to be of this version. */
bool sigv2_is_query(const struct s3_params *params);
/* Parses AWSAccessKeyId, Expires and Signature. */
bool sigv2_parse_query(const struct s3_params *params, struct sigv4_claim *ret_claim,
	struct sigv4_refusal *ret_refusal);
/* Which parameters are signed, and how one that is empty: by AWS's description "policy=" as it was
 * sent, by MinIO's libraries "policy" alone. */
enum sigv2_dialect { SIGV2_AWS, SIGV2_MINIO, SIGV2_DIALECTS };
/* Appends the string to sign. bucket: what the host says; empty when the path says it. */
void sigv2_string_to_sign(const struct s3_request *request, const struct s3_params *params,
	const struct sigv4_claim *claim, struct slice bucket, enum sigv2_dialect dialect,
	struct buf *out);
/* Whether a request by that dialect signs all that its query asks for; else *ret_name is a
 * parameter that anybody could have put behind it. Parameters that only page a list need no
 * signature. */
bool sigv2_covers(const struct s3_params *params, const struct sigv4_claim *claim,
	enum sigv2_dialect dialect, struct slice *ret_name);
/* Whether signature is what secret makes of text. */
bool sigv2_verify(struct slice secret, struct slice text, struct slice signature);

#endif
