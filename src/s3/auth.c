/* s3/auth.c: who asks, and may they: SigV4 in headers or in the query, session identities, nobody.
 */
#include "s3/s3_priv.h"

#include <errno.h>
#include <stdio.h>

static const struct s3_error *refused(struct s3_call *call, const struct sigv4_refusal *refusal)
{
	const struct s3_error *error = s3_error_named(refusal->code);

	CHECK(error);
	call->message = refusal->message;
	return error;
}

/* Both forms at once, or a session token that nobody here gave out. */
static const struct s3_error *check_forms(struct s3_call *call, bool in_header, bool in_query)
{
	if (in_header && in_query)
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"Only one auth mechanism allowed; only the X-Amz-Algorithm query "
			"parameter, Signature query string parameter or the Authorization header "
			"should be specified");
	if (s3_call_has_header(call, SLICE("x-amz-security-token")) ||
		s3_call_param(call, SLICE("X-Amz-Security-Token"), NULL))
		return s3_error_at(S3_E_INVALID_TOKEN);
	if (!in_header && s3_call_param(call, SLICE("AWSAccessKeyId"), NULL) &&
		s3_call_param(call, SLICE("Signature"), NULL))
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"The authorization mechanism you have provided is not supported. Please "
			"use AWS4-HMAC-SHA256.");
	return NULL;
}

static const struct s3_error *check_skew(
	struct s3_call *call, const struct sigv4_claim *claim, int64_t now_ms)
{
	char now_text[DATE_ISO_LEN];

	if (claim->time_ms - now_ms <= SIGV4_SKEW_MS_MAX &&
		now_ms - claim->time_ms <= SIGV4_SKEW_MS_MAX)
		return NULL;
	date_iso_format(now_ms, now_text);
	s3_fail_detail(call, "RequestTime", claim->timestamp);
	s3_fail_detail(call, "ServerTime", slice_of(now_text, sizeof(now_text)));
	s3_fail_detail(call, "MaxAllowedSkewMilliseconds", SLICE("900000"));
	return s3_error_at(S3_E_REQUEST_TIME_TOO_SKEWED);
}

static const struct s3_error *check_expiry(
	struct s3_call *call, const struct sigv4_claim *claim, int64_t now_ms)
{
	int64_t end_ms = claim->time_ms + (int64_t)claim->expires_s * 1000;
	char now_text[DATE_ISO_LEN], end_text[DATE_ISO_LEN];

	if (claim->time_ms - now_ms > SIGV4_SKEW_MS_MAX)
		return s3_fail(call, S3_E_ACCESS_DENIED, "Request is not valid yet");
	if (now_ms <= end_ms)
		return NULL;
	date_iso_format(now_ms, now_text);
	date_iso_format(end_ms < DATE_MS_MAX ? end_ms : DATE_MS_MAX, end_text);
	s3_fail_detail(call, "Expires", slice_of(end_text, sizeof(end_text)));
	s3_fail_detail(call, "ServerTime", slice_of(now_text, sizeof(now_text)));
	return s3_fail(call, S3_E_ACCESS_DENIED, "Request has expired");
}

/* A header of S3's own changes what a request means, so it must be signed. Others need not be. */
static const struct s3_error *check_signed_headers(
	struct s3_call *call, const struct sigv4_claim *claim)
{
	const struct s3_request *request = call->request;

	for (uint32_t i = 0; i < request->header_count; i++) {
		struct slice name = request->headers[i].name;

		if (name.len < 6 || strncasecmp(name.data, "x-amz-", 6) != 0 ||
			slice_eq_nocase(name, SLICE("x-amz-content-sha256")) ||
			sigv4_is_signed(claim, name))
			continue;
		s3_fail_detail(call, "HeadersNotSigned", name);
		return s3_fail(call, S3_E_ACCESS_DENIED,
			"There were headers present in the request which were not signed");
	}
	return NULL;
}

/* Adds <name>41 57 53</name>: the bytes of text, where a client can see white space and encodings.
 */
static void fail_bytes(struct s3_call *call, const char *name, struct slice text)
{
	char *hex = s3_arena_get(&call->arena, 3 * text.len + 1);

	if (!hex)
		return;
	for (size_t i = 0; i < text.len; i++) {
		hex_encode(text.data + i, 1, hex + 3 * i);
		hex[3 * i + 2] = ' ';
	}
	s3_fail_detail(call, name, slice_trim(slice_of(hex, 3 * text.len)));
}

/* What the client should have signed, as S3 tells it. */
static const struct s3_error *mismatch(struct s3_call *call, const struct sigv4_claim *claim,
	struct slice canonical, struct slice string_to_sign)
{
	s3_fail_detail(call, "AWSAccessKeyId", claim->access_key);
	s3_fail_detail(call, "StringToSign", string_to_sign);
	s3_fail_detail(call, "SignatureProvided", claim->signature);
	fail_bytes(call, "StringToSignBytes", string_to_sign);
	s3_fail_detail(call, "CanonicalRequest", canonical);
	fail_bytes(call, "CanonicalRequestBytes", canonical);
	return s3_error_at(S3_E_SIGNATURE_DOES_NOT_MATCH);
}

static const struct s3_error *check_signature(
	struct s3_call *call, const struct sigv4_claim *claim, const char *secret)
{
	const struct s3_error *error = NULL;
	char signature[SIGV4_SIGNATURE_LEN];
	struct buf canonical, string;
	struct sigv4_key key;

	buf_init(&canonical, SIGV4_CANONICAL_BYTES_MAX);
	buf_init(&string, SIGV4_CANONICAL_BYTES_MAX);
	sigv4_canonical(call->request, &call->params, claim, &canonical);
	sigv4_string_to_sign(claim, buf_slice(&canonical), &string);
	sigv4_keys_get(call->s3->keys, claim, slice_str(secret), &key);
	memcpy(call->signing.signing_key, key.bytes, sizeof(key.bytes));
	if (canonical.failed || string.failed) {
		error = s3_error_at(S3_E_INVALID_URI);
	} else {
		sigv4_sign(&key.prepared, buf_slice(&string), signature);
		if (!secret_equal(signature, claim->signature.data, sizeof(signature)))
			error = mismatch(call, claim, buf_slice(&canonical), buf_slice(&string));
	}
	secret_wipe(&key, sizeof(key));
	buf_free(&canonical);
	buf_free(&string);
	return error;
}

/* What the body needs to go on from the request's signature. */
static void start_signing(struct s3_call *call, const struct sigv4_claim *claim)
{
	struct s3_chunk_signing *signing = &call->signing;

	signing->payload = claim->payload;
	/* Lengths were checked when the claim was parsed. */
	slice_copy_str(claim->signature, signing->seed_signature, sizeof(signing->seed_signature));
	slice_copy_str(claim->timestamp, signing->timestamp, sizeof(signing->timestamp));
	slice_copy_str(claim->scope, signing->scope, sizeof(signing->scope));
	if (claim->payload == S3_PAYLOAD_SHA256)
		slice_copy_str(
			claim->payload_hash, call->content_sha256, sizeof(call->content_sha256));
}

static const struct s3_error *authenticate_claim(
	struct s3_call *call, const struct sigv4_claim *claim, int64_t now_ms)
{
	const char *secret = s3_secret_of(call->s3, claim->access_key);
	const struct s3_error *error;

	if (!secret) {
		s3_fail_detail(call, "AWSAccessKeyId", claim->access_key);
		return s3_error_at(S3_E_INVALID_ACCESS_KEY_ID);
	}
	error = claim->presigned ? check_expiry(call, claim, now_ms)
				 : check_skew(call, claim, now_ms);
	if (!error)
		error = check_signed_headers(call, claim);
	if (!error)
		error = check_signature(call, claim, secret);
	if (error)
		return error;
	start_signing(call, claim);
	call->presigned = claim->presigned;
	call->own_identity.root = true;
	call->own_identity.anonymous = false;
	slice_copy_str(claim->access_key, call->own_identity.access_key,
		sizeof(call->own_identity.access_key));
	return NULL;
}

static const struct s3_error *authenticate_anonymous(struct s3_call *call)
{
	struct slice payload = s3_call_header(call, SLICE("x-amz-content-sha256"));
	struct sigv4_refusal refusal = {0};
	struct sigv4_claim claim = {0};

	call->own_identity.root = false;
	call->own_identity.anonymous = true;
	call->own_identity.access_key[0] = '\0';
	if (!sigv4_parse_payload(payload, &claim, &refusal))
		return refused(call, &refusal);
	/* Nobody's chunks cannot be signed. */
	if (claim.payload == S3_PAYLOAD_STREAMING_SIGNED ||
		claim.payload == S3_PAYLOAD_STREAMING_SIGNED_TRAILER)
		return s3_error_at(S3_E_ACCESS_DENIED);
	start_signing(call, &claim);
	return NULL;
}

const struct s3_error *s3_authenticate(struct s3_call *call, int64_t now_ms)
{
	struct slice authorization = s3_call_header(call, SLICE("authorization"));
	bool in_query = s3_call_param(call, SLICE("X-Amz-Algorithm"), NULL) ||
			s3_call_param(call, SLICE("X-Amz-Signature"), NULL);
	const struct s3_error *error = check_forms(call, authorization.len > 0, in_query);
	struct sigv4_refusal refusal = {0};
	struct sigv4_claim claim;
	bool parsed;

	if (error)
		return error;
	call->identity = &call->own_identity;
	if (!authorization.len && !in_query)
		return authenticate_anonymous(call);
	if (in_query)
		parsed = sigv4_parse_query(&call->params, &claim, &refusal);
	else
		parsed = sigv4_parse_header(authorization, &claim, &refusal) &&
			 sigv4_parse_times(call->request, &claim, &refusal);
	if (!parsed)
		return refused(call, &refusal);
	if (in_query && sigv4_is_signed(&claim, SLICE("x-amz-content-sha256")) &&
		!sigv4_parse_payload(
			s3_call_header(call, SLICE("x-amz-content-sha256")), &claim, &refusal))
		return refused(call, &refusal);
	return authenticate_claim(call, &claim, now_ms);
}

const char *s3_secret_of(const struct s3 *s3, struct slice access_key)
{
	return slice_eq(access_key, slice_str(s3->root_access_key)) ? s3->root_secret_key : NULL;
}

int s3_session_key(struct s3 *s3, struct slice access_key, struct slice context,
	uint8_t ret_key[32], struct s3_identity *ret_identity)
{
	char start[7 + LIMIT_SECRET_KEY_LEN_MAX] = "NEBULA1";
	const char *secret = s3_secret_of(s3, access_key);
	size_t secret_len;

	if (!secret)
		return -ENOENT;
	secret_len = strlen(secret);
	memcpy(start + 7, secret, secret_len);
	hmac_sha256(slice_of(start, 7 + secret_len), context, ret_key);
	secret_wipe(start, sizeof(start));
	*ret_identity = (struct s3_identity){.root = true};
	return slice_copy_str(
		access_key, ret_identity->access_key, sizeof(ret_identity->access_key));
}

const struct s3_error *s3_authorize(struct s3 *s3, const struct s3_identity *identity,
	enum s3_action action, struct slice bucket, struct slice key)
{
	/* Today's one account may do all; policies will look at the names. */
	(void)bucket;
	(void)key;
	if (identity->root)
		return NULL;
	if (identity->anonymous && s3->anonymous_read &&
		(action == S3_ACTION_GET_OBJECT || action == S3_ACTION_LIST_BUCKET))
		return NULL;
	return s3_error_at(S3_E_ACCESS_DENIED);
}
