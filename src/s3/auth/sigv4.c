/* s3/auth/sigv4.c: AWS Signature Version 4: parses a request's claim and rebuilds the signed
 * string. */
#include "s3/auth/sigv4.h"

#include <errno.h>
#include <stdlib.h>

#include "codec/codec.h"
#include "s3/core/text.h"

#define EXPECTED_CREDENTIAL "expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\"."

static bool refuse(struct sigv4_refusal *refusal, const char *code, const char *message)
{
	*refusal = (struct sigv4_refusal){.code = code, .message = message};
	return false;
}

/* Cuts the last part off at a slash: "a/b/c" gives "c" and leaves "a/b". */
static bool split_last(struct slice *rest, struct slice *ret_part)
{
	for (size_t i = rest->len; i-- > 0;) {
		if (rest->data[i] != '/')
			continue;
		*ret_part = slice_from(*rest, i + 1);
		rest->len = i;
		return true;
	}
	return false;
}

/* Parses a credential from its end, because access keys may contain slashes. Returns the error, or
 * NULL. Any region is valid, also an empty one, which some clients are configured with. */
static const char *parse_credential(struct slice text, struct sigv4_claim *claim)
{
	static const struct slice services[] = {
		SLICE("s3"), SLICE("s3express"), SLICE("iam"), SLICE("sts"), SLICE("sns")};
	struct slice rest = text, terminal;
	int64_t ignored_ms;

	if (!split_last(&rest, &terminal) || !split_last(&rest, &claim->scope.service) ||
		!split_last(&rest, &claim->scope.region) ||
		!split_last(&rest, &claim->scope.date) || !rest.len ||
		rest.len > LIMIT_ACCESS_KEY_LEN_MAX)
		return "the Credential is mal-formed; " EXPECTED_CREDENTIAL;
	if (!slice_eq(terminal, SLICE(SIGNING_TERMINAL)))
		return "incorrect terminal in the Credential. This endpoint uses \"aws4_request\".";
	if (!slice_among(claim->scope.service, services, sizeof(services) / sizeof(services[0])))
		return "incorrect service in the Credential. This endpoint belongs to \"s3\".";
	if (claim->scope.date.len != DATE_DAY_LEN || date_day_parse(claim->scope.date, &ignored_ms))
		return "incorrect date format. The date in the Credential must be in the format "
		       "\"yyyyMMdd\".";
	claim->access_key = rest;
	claim->scope_text = slice_from(text, rest.len + 1);
	if (claim->scope_text.len >= sizeof(((struct s3_chunk_signing *)NULL)->scope))
		return "the scope of the Credential is too long.";
	return NULL;
}

static bool is_signature(struct slice text)
{
	uint8_t ignored[SIGNING_SIGNATURE_LEN / 2];

	return text.len == SIGNING_SIGNATURE_LEN && hex_decode(text, ignored, sizeof(ignored)) == 0;
}

bool sigv4_is_signed(const struct sigv4_claim *claim, struct slice name)
{
	struct slice rest = claim->signed_headers;

	while (rest.len)
		if (slice_eq_nocase(slice_split(&rest, ';'), name))
			return true;
	return false;
}

bool sigv4_parse_header(
	struct slice value, struct sigv4_claim *ret_claim, struct sigv4_refusal *ret_refusal)
{
	struct slice credential = SLICE_NONE;
	const char *wrong;

	*ret_claim = (struct sigv4_claim){0};
	value = slice_trim(value);
	if (slice_starts(value, SLICE("AWS4-ECDSA")))
		return refuse(ret_refusal, "InvalidRequest",
			"The authorization mechanism you have provided is not supported. Please "
			"use AWS4-HMAC-SHA256.");
	if (!slice_starts(value, SLICE(SIGNING_ALGORITHM)))
		return refuse(ret_refusal, "InvalidArgument", "Unsupported Authorization Type");
	value = slice_from(value, strlen(SIGNING_ALGORITHM));
	while (value.len) {
		struct slice part = slice_split(&value, ',');
		struct slice name = slice_trim(slice_split(&part, '='));

		part = slice_trim(part);
		if (slice_eq(name, SLICE("Credential")))
			credential = part;
		else if (slice_eq(name, SLICE("SignedHeaders")))
			ret_claim->signed_headers = part;
		else if (slice_eq(name, SLICE("Signature")))
			ret_claim->signature = part;
	}
	if (!credential.len)
		return refuse(ret_refusal, "AuthorizationHeaderMalformed",
			"The authorization header is malformed; the authorization header requires "
			"three components: Credential, SignedHeaders, and Signature.");
	wrong = parse_credential(credential, ret_claim);
	if (wrong)
		return refuse(ret_refusal, "AuthorizationHeaderMalformed", wrong);
	if (!ret_claim->signed_headers.len || !ret_claim->signature.len)
		return refuse(ret_refusal, "AuthorizationHeaderMalformed",
			"The authorization header is malformed; the authorization header requires "
			"three components: Credential, SignedHeaders, and Signature.");
	if (!is_signature(ret_claim->signature))
		return refuse(ret_refusal, "SignatureDoesNotMatch", NULL);
	if (!sigv4_is_signed(ret_claim, SLICE("host")))
		return refuse(ret_refusal, "AuthorizationHeaderMalformed",
			"The authorization header is malformed; 'Host' must be a 'SignedHeader' in "
			"the AWS Authorization.");
	return true;
}

static struct slice param(const struct s3_params *params, const char *name)
{
	const struct s3_param *found = s3_query_find(params, slice_str(name));

	return found ? found->value : SLICE_NONE;
}

static bool parse_expiry(
	struct slice text, struct sigv4_claim *claim, struct sigv4_refusal *ret_refusal)
{
	static const char *code = "AuthorizationQueryParametersError";

	if (text.len && text.data[0] == '-')
		return refuse(ret_refusal, "AccessDenied", "X-Amz-Expires must be non-negative");
	if (slice_to_u64(text, &claim->expires_s) == -EINVAL)
		return refuse(ret_refusal, code, "X-Amz-Expires should be a number");
	if (slice_to_u64(text, &claim->expires_s) || claim->expires_s > SIGV4_EXPIRES_S_MAX)
		return refuse(ret_refusal, "AccessDenied",
			"X-Amz-Expires must be less than a week (in seconds); that is, the given "
			"X-Amz-Expires must be less than 604800 seconds");
	return true;
}

bool sigv4_parse_query(const struct s3_params *params, struct sigv4_claim *ret_claim,
	struct sigv4_refusal *ret_refusal)
{
	static const char *code = "AuthorizationQueryParametersError";
	struct slice credential = param(params, "X-Amz-Credential");
	struct slice expires = param(params, "X-Amz-Expires");
	const char *wrong;

	*ret_claim = (struct sigv4_claim){.presigned = true};
	ret_claim->signed_headers = param(params, "X-Amz-SignedHeaders");
	ret_claim->signature = param(params, "X-Amz-Signature");
	ret_claim->timestamp = param(params, "X-Amz-Date");
	if (!slice_eq(param(params, "X-Amz-Algorithm"), SLICE(SIGNING_ALGORITHM)))
		return refuse(
			ret_refusal, code, "X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"");
	if (!credential.len || !expires.len || !ret_claim->signed_headers.len ||
		!ret_claim->signature.len || !ret_claim->timestamp.len)
		return refuse(ret_refusal, code,
			"Query-string authentication version 4 requires the X-Amz-Algorithm, "
			"X-Amz-Credential, X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and "
			"X-Amz-Expires parameters.");
	wrong = parse_credential(credential, ret_claim);
	if (wrong)
		return refuse(ret_refusal, code, wrong);
	if (date_basic_parse(ret_claim->timestamp, &ret_claim->time_ms))
		return refuse(ret_refusal, code,
			"X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"");
	if (!slice_eq(slice_to(ret_claim->timestamp, DATE_DAY_LEN), ret_claim->scope.date))
		return refuse(ret_refusal, code,
			"Invalid credential date. This date is not the same as X-Amz-Date.");
	if (!parse_expiry(expires, ret_claim, ret_refusal))
		return false;
	if (!is_signature(ret_claim->signature))
		return refuse(ret_refusal, "SignatureDoesNotMatch", NULL);
	if (!sigv4_is_signed(ret_claim, SLICE("host")))
		return refuse(ret_refusal, code,
			"'Host' must be a 'SignedHeader' in the AWS Authorization.");
	return sigv4_parse_payload(param(params, "X-Amz-Content-Sha256"), ret_claim, ret_refusal);
}

static struct slice header(const struct s3_request *request, struct slice name)
{
	for (uint32_t i = 0; i < request->header_count; i++)
		if (slice_eq_nocase(request->headers[i].name, name))
			return request->headers[i].value;
	return SLICE_NONE;
}

/* The values of x-amz-content-sha256 that are not a digest. */
static const struct {
	struct slice name;
	enum s3_payload payload;
} payloads[] = {
	{SLICE("UNSIGNED-PAYLOAD"), S3_PAYLOAD_UNSIGNED},
	{SLICE("STREAMING-AWS4-HMAC-SHA256-PAYLOAD"), S3_PAYLOAD_STREAMING_SIGNED},
	{SLICE("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"), S3_PAYLOAD_STREAMING_SIGNED_TRAILER},
	{SLICE("STREAMING-UNSIGNED-PAYLOAD-TRAILER"), S3_PAYLOAD_STREAMING_UNSIGNED_TRAILER},
};

bool sigv4_parse_payload(
	struct slice value, struct sigv4_claim *claim, struct sigv4_refusal *ret_refusal)
{
	if (!value.len)
		value = SLICE("UNSIGNED-PAYLOAD");
	claim->payload_hash = value;
	for (size_t i = 0; i < sizeof(payloads) / sizeof(payloads[0]); i++) {
		if (!slice_eq(value, payloads[i].name))
			continue;
		claim->payload = payloads[i].payload;
		return true;
	}
	claim->payload = S3_PAYLOAD_SHA256;
	if (is_signature(value))
		return true;
	return refuse(ret_refusal, "InvalidArgument",
		"x-amz-content-sha256 must be UNSIGNED-PAYLOAD, "
		"STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, "
		"STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a valid sha256 value.");
}

static bool is_of_objects(struct slice service)
{
	return slice_eq(service, SLICE("s3")) || slice_eq(service, SLICE("s3express"));
}

#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

bool sigv4_parse_times(const struct s3_request *request, struct sigv4_claim *claim,
	struct sigv4_refusal *ret_refusal)
{
	struct slice date = header(request, SLICE("x-amz-date"));
	struct slice hash = header(request, SLICE("x-amz-content-sha256"));

	if (!date.len)
		date = header(request, SLICE("date"));
	claim->timestamp = date;
	if (date_basic_parse(date, &claim->time_ms)) {
		/* "GMT" in HTTP, or "+0000" in mail dates. */
		if (date_http_parse(date, &claim->time_ms) &&
			date_mail_parse(date, &claim->time_ms))
			return refuse(ret_refusal, "AccessDenied",
				"AWS authentication requires a valid Date or x-amz-date header");
		date_basic_format(claim->time_ms, claim->timestamp_made);
		claim->timestamp = slice_of(claim->timestamp_made, DATE_BASIC_LEN);
	}
	if (!slice_eq(slice_to(claim->timestamp, DATE_DAY_LEN), claim->scope.date))
		return refuse(ret_refusal, "AuthorizationHeaderMalformed",
			"The authorization header is malformed; Invalid credential date. This date "
			"is not the same as X-Amz-Date.");
	if (!header(request, SLICE("host")).len)
		return refuse(ret_refusal, "MissingSecurityHeader",
			"Your request was missing a required header: Host");
	if (hash.len)
		return sigv4_parse_payload(hash, claim, ret_refusal);
	/* A form of IAM and its kin is read before its signature is verified: check_service(). */
	if (is_of_objects(claim->scope.service) && request->body && request->body->bytes)
		return refuse(ret_refusal, "InvalidRequest",
			"Missing required header for this request: x-amz-content-sha256");
	/* Without a body only one digest can be signed: curl --aws-sigv4 before 8.3 sends no
	 * header, and signs that digest. */
	claim->payload_hash = SLICE(EMPTY_SHA256);
	claim->payload = S3_PAYLOAD_SHA256;
	return true;
}

/* ---- The canonical request. ---- */

/* The path in S3's canonical form: decoded, then encoded once. Nearly every path has no escapes and
 * needs none, and stays unchanged. */
static void canonical_path(struct slice path, struct buf *out)
{
	char small[256], *memory = small;
	size_t len;

	if (!path.len) {
		buf_put(out, "/", 1);
		return;
	}
	if (!memchr(path.data, '%', path.len)) {
		uri_encode(path, URI_KEEP_SLASH, out);
		return;
	}
	if (path.len > sizeof(small))
		memory = malloc(path.len);
	if (memory && uri_decode(path, 0, memory, path.len, &len) == 0)
		uri_encode(slice_of(memory, len), URI_KEEP_SLASH, out);
	else
		out->failed = true;
	if (memory != small)
		free(memory);
}

/* An encoded parameter; offsets, because the buffer moves when it grows. */
struct encoded {
	uint32_t name, name_len, value, value_len;
};

static int encoded_cmp(const struct buf *text, const struct encoded *a, const struct encoded *b)
{
	int order = slice_cmp(slice_of(text->data + a->name, a->name_len),
		slice_of(text->data + b->name, b->name_len));

	return order ? order
		     : slice_cmp(slice_of(text->data + a->value, a->value_len),
			       slice_of(text->data + b->value, b->value_len));
}

static struct encoded encode_param(const struct s3_param *item, struct buf *text)
{
	struct encoded encoded = {.name = (uint32_t)text->len};

	uri_encode(item->name, 0, text);
	encoded.name_len = (uint32_t)text->len - encoded.name;
	encoded.value = (uint32_t)text->len;
	uri_encode(item->value, 0, text);
	encoded.value_len = (uint32_t)text->len - encoded.value;
	return encoded;
}

/* Every parameter but the signature itself, encoded, in order of name, then value. */
static void canonical_query(
	const struct s3_params *params, const struct sigv4_claim *claim, struct buf *out)
{
	struct encoded sorted[S3_PARAMS_MAX];
	uint32_t count = 0;
	struct buf text;

	CHECK(params->count <= S3_PARAMS_MAX);
	buf_init(&text, SIGV4_CANONICAL_BYTES_MAX);
	/* Offsets count from its data, so data must not be NULL even if all is empty ("?="). */
	buf_put(&text, "", 1);
	for (uint32_t i = 0; i < params->count && !text.failed; i++) {
		struct encoded encoded;
		uint32_t at = count;

		if (claim->presigned && slice_eq(params->items[i].name, SLICE("X-Amz-Signature")))
			continue;
		encoded = encode_param(&params->items[i], &text);
		for (; at > 0 && encoded_cmp(&text, &encoded, &sorted[at - 1]) < 0; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = encoded;
		count++;
	}
	for (uint32_t i = 0; i < count && !text.failed; i++) {
		if (i)
			buf_put(out, "&", 1);
		buf_put(out, text.data + sorted[i].name, sorted[i].name_len);
		buf_put(out, "=", 1);
		buf_put(out, text.data + sorted[i].value, sorted[i].value_len);
	}
	out->failed |= text.failed;
	buf_free(&text);
}

/* "name:value,value
 * " for each signed header; a header that the request lacks signs as empty. */
static void canonical_headers(
	const struct s3_request *request, const struct sigv4_claim *claim, struct buf *out)
{
	struct slice rest = claim->signed_headers;

	while (rest.len) {
		struct slice name = slice_split(&rest, ';');
		bool first = true;

		signing_name_put(name, out);
		buf_put_byte(out, ':');
		for (uint32_t i = 0; i < request->header_count; i++) {
			if (!slice_eq_nocase(request->headers[i].name, name))
				continue;
			if (!first)
				buf_put_byte(out, ',');
			first = false;
			signing_value_put(request->headers[i].value, out);
		}
		buf_put_byte(out, '\n');
	}
}

void sigv4_canonical(const struct s3_request *request, const struct s3_params *params,
	const struct sigv4_claim *claim, struct buf *out)
{
	buf_put_slice(out, request->method_text);
	buf_put_byte(out, '\n');
	canonical_path(request->path, out);
	buf_put_byte(out, '\n');
	canonical_query(params, claim, out);
	buf_put_byte(out, '\n');
	canonical_headers(request, claim, out);
	buf_put_byte(out, '\n');
	signing_name_put(claim->signed_headers, out);
	buf_put_byte(out, '\n');
	buf_put_slice(out, claim->payload_hash);
}
