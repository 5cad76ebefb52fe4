/* s3/auth/sigv4.h: AWS Signature Version 4 as S3 uses it, on plain buffers: parses a request's
 * claim and rebuilds the signed string. It uses no clock and no key store.
 *
 * Source: S3 API reference, "Authenticating Requests (AWS Signature Version 4)". S3's own rules:
 * the path is not normalised, and encoded once. */
#ifndef S3_SIGV4_H
#define S3_SIGV4_H

#include "codec/signing.h"
#include "s3/core/text.h"
#include "s3/s3.h"

#define SIGV4_SKEW_MS_MAX	  (15 * 60 * 1000)
#define SIGV4_EXPIRES_S_MAX	  604800u
#define SIGV4_CANONICAL_BYTES_MAX (4u * LIMIT_HTTP_HEAD_BYTES_MAX)

/* The claim of a request. Slices point into the request (or its decoded query). */
struct sigv4_claim {
	bool presigned;
	bool version2; /* auth/sigv2.h */
	struct slice access_key;
	struct signing_scope
		scope;		 /* its service: s3; iam, sts or sns for requests to the service */
	struct slice scope_text; /* 20260101/us-east-1/s3/aws4_request */
	struct slice signed_headers;
	struct slice signature;
	struct slice timestamp;	 /* 20260101T000000Z */
	char timestamp_made[17]; /* of a Date header */
	int64_t time_ms;
	uint64_t expires_s;	   /* presigned */
	struct slice payload_hash; /* as in the canonical request */
	enum s3_payload payload;
};

/* The text of a refusal, if it differs from the table's message. A literal. */
struct sigv4_refusal {
	const char *code;    /* NULL: none */
	const char *message; /* NULL: the table's */
};

/* Parses an Authorization header's value: Credential, SignedHeaders, Signature. False: refused. */
bool sigv4_parse_header(
	struct slice value, struct sigv4_claim *ret_claim, struct sigv4_refusal *ret_refusal);
/* The same for X-Amz-* query parameters, with date and expiry. */
bool sigv4_parse_query(const struct s3_params *params, struct sigv4_claim *ret_claim,
	struct sigv4_refusal *ret_refusal);
/* Reads x-amz-date (or Date) and x-amz-content-sha256 of a request that is signed in its headers.
 */
bool sigv4_parse_times(const struct s3_request *request, struct sigv4_claim *claim,
	struct sigv4_refusal *ret_refusal);
/* Payload of a presigned request: x-amz-content-sha256 if present, otherwise unsigned. */
bool sigv4_parse_payload(
	struct slice value, struct sigv4_claim *claim, struct sigv4_refusal *ret_refusal);
/* True when name (any case) is among the claim's signed headers. */
bool sigv4_is_signed(const struct sigv4_claim *claim, struct slice name);

/* Appends the canonical request. params are the decoded query's. */
void sigv4_canonical(const struct s3_request *request, const struct s3_params *params,
	const struct sigv4_claim *claim, struct buf *out);

/* ---- Signing keys by access key, day and region. Any thread; a lookup never waits. ---- */
struct sigv4_keys;
int sigv4_keys_open(struct sigv4_keys **ret_keys);
void sigv4_keys_close(struct sigv4_keys *keys); /* wipes; takes NULL */
/* The signing key, and its prepared form for sigv4_sign. Both are secrets: wipe them after use. */
struct sigv4_key {
	uint8_t bytes[32];
	struct hmac_key prepared;
};
void sigv4_keys_get(struct sigv4_keys *keys, const struct sigv4_claim *claim, struct slice secret,
	struct sigv4_key *ret_key);

#endif
