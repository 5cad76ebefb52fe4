/* s3/auth/sigv2.h: AWS Signature Version 2, which S3 used before Version 4, on plain buffers. A
 * request's claim fills the matching fields of a sigv4_claim; Version 2 signs no payload.
 *
 * Source: S3 API reference, "Signing and authenticating REST requests (AWS signature version 2)".
 */
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
/* A dialect defines the signed parameters and the form of an empty one: "policy=" as received in
 * AWS's description, "policy" in MinIO's libraries. */
enum sigv2_dialect { SIGV2_AWS, SIGV2_MINIO, SIGV2_DIALECTS };
/* Appends the string to sign. bucket: from the host; empty when the path has it. */
void sigv2_string_to_sign(const struct s3_request *request, const struct s3_params *params,
	const struct sigv4_claim *claim, struct slice bucket, enum sigv2_dialect dialect,
	struct buf *out);
/* Whether a request signs all its query parameters in that dialect; otherwise *ret_name is an
 * unsigned parameter, which anybody could have added. Parameters that only page a list need no
 * signature. */
bool sigv2_covers(const struct s3_params *params, const struct sigv4_claim *claim,
	enum sigv2_dialect dialect, struct slice *ret_name);
/* Whether signature is the signature of text by secret. */
bool sigv2_verify(struct slice secret, struct slice text, struct slice signature);

#endif
