/* codec/signing.h: computes AWS Signature Version 4, for signers and verifiers: the string to sign,
 * the key of a day, region and service, and the signature. The caller builds the signed text (the
 * canonical request).
 *
 * Source: "Signature Version 4 for API requests", AWS General Reference. */
#ifndef CODEC_SIGNING_H
#define CODEC_SIGNING_H

#include "base/base.h"
#include "codec/date.h"
#include "codec/hash.h"

#define SIGNING_ALGORITHM     "AWS4-HMAC-SHA256"
#define SIGNING_TERMINAL      "aws4_request"
#define SIGNING_SIGNATURE_LEN 64u /* hex digits */

/* The scope of a signing key. */
struct signing_scope {
	struct slice date; /* DATE_DAY_LEN: 20260101; of a longer text its first characters count */
	struct slice region;
	struct slice service; /* s3 */
};
/* Appends 20260101/us-east-1/s3/aws4_request. */
void signing_scope_put(const struct signing_scope *scope, struct buf *out);
/* The key for the scope; secret has at most LIMIT_SECRET_KEY_LEN_MAX bytes. The key is a secret,
 * too. */
void signing_key(
	const struct signing_scope *scope, struct slice secret, uint8_t ret_key[SHA256_BYTES]);
/* Append what the canonical request has of headers: a name, or names with semicolons, in lower
 * case; a value without the blanks at its ends, and with one space for each run of them inside. */
void signing_name_put(struct slice name, struct buf *out);
void signing_value_put(struct slice value, struct buf *out);
/* Appends the string to sign; scope is the text of signing_scope_put. */
void signing_string(
	struct slice timestamp, struct slice scope, struct slice canonical, struct buf *out);
/* By a prepared key. */
void signing_sign(const struct hmac_key *key, struct slice string_to_sign,
	char ret_signature[SIGNING_SIGNATURE_LEN]);
/* The same in one call, for a signer of one request. The result ends in a NUL. */
void signing_signature(const uint8_t key[SHA256_BYTES], const struct signing_scope *scope,
	struct slice timestamp, struct slice canonical,
	char ret_signature[SIGNING_SIGNATURE_LEN + 1]);

/* The session token that the environment has for this access key: NEBULAIO_SESSION_TOKEN when it is
 * NEBULAIO_ACCESS_KEY's, AWS_SESSION_TOKEN when it is AWS_ACCESS_KEY_ID's; NULL: none. */
const char *signing_session_token(const char *access_key);

#endif
