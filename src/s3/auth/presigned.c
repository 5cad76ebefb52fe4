/* s3/auth/presigned.c: query parameters of a presigned URL that stand for headers:
 * "x-amz-acl=private". The signature covers them, and they have the headers' meaning. Exceptions
 * are the parameters of the signature itself, and checksums, because the body was unknown when the
 * URL was signed. */
#include "s3/auth/auth.h"
#include "s3/core/call.h"
#include "s3/core/text.h"

static bool is_of_signature(struct slice name)
{
	static const struct slice names[] = {SLICE("x-amz-algorithm"), SLICE("x-amz-credential"),
		SLICE("x-amz-date"), SLICE("x-amz-expires"), SLICE("x-amz-signedheaders"),
		SLICE("x-amz-signature"), SLICE("x-amz-security-token"),
		SLICE("x-amz-s3session-token"), SLICE("x-amz-content-sha256")};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (slice_eq_nocase(name, names[i]))
			return true;
	return false;
}

static bool is_of_body(struct slice name)
{
	static const struct slice sums = SLICE("x-amz-checksum-");
	static const struct slice names[] = {SLICE("x-amz-sdk-checksum-algorithm"),
		SLICE("x-amz-trailer"), SLICE("x-amz-decoded-content-length"),
		SLICE("x-amz-rdma-token")};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (slice_eq_nocase(name, names[i]))
			return true;
	return slice_eq_nocase(slice_to(name, sums.len), sums) &&
	       !slice_eq_nocase(name, SLICE("x-amz-checksum-mode")) &&
	       !slice_eq_nocase(name, SLICE("x-amz-checksum-algorithm")) &&
	       !slice_eq_nocase(name, SLICE("x-amz-checksum-type"));
}

/* Conditional headers: a URL that may create but not overwrite has one of them. */
static bool is_condition(struct slice name)
{
	static const struct slice names[] = {SLICE("if-match"), SLICE("if-none-match"),
		SLICE("if-modified-since"), SLICE("if-unmodified-since")};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (slice_eq_nocase(name, names[i]))
			return true;
	return false;
}

/* SDKs put these into the query, too; for Version 2 they have no effect, as in S3. */
static bool is_of_content(struct slice name)
{
	return slice_eq_nocase(name, SLICE("content-type")) ||
	       slice_eq_nocase(name, SLICE("content-md5")) ||
	       slice_eq_nocase(name, SLICE("cache-control"));
}

static bool stands_for_header(const struct s3_call *call, struct slice name)
{
	/* Version 2 has a line in the string to sign for each of these two, too. */
	if (call->version2 && (slice_eq_nocase(name, SLICE("content-type")) ||
				      slice_eq_nocase(name, SLICE("content-md5"))))
		return true;
	return slice_eq_nocase(slice_to(name, 6), SLICE("x-amz-")) && !is_of_signature(name) &&
	       !is_of_body(name);
}

/* Other kinds of authentication leave the query unsigned. */
static bool is_presigned(const struct s3_call *call)
{
	if (call->request->session || s3_call_has_header(call, SLICE("authorization")))
		return false;
	return s3_call_param(call, SLICE("X-Amz-Signature"), NULL) ||
	       (s3_call_param(call, SLICE("Signature"), NULL) &&
		       s3_call_param(call, SLICE("AWSAccessKeyId"), NULL));
}

bool s3_presigned_has(const struct s3_call *call, struct slice name)
{
	for (uint32_t i = 0; i < call->params.count; i++)
		if (slice_eq_nocase(call->params.items[i].name, name))
			return is_presigned(call);
	return false;
}

bool s3_presigned_takes(const struct s3_call *call, struct slice name)
{
	static const struct slice version2[] = {
		SLICE("AWSAccessKeyId"), SLICE("Signature"), SLICE("Expires")};

	return (is_condition(name) || is_of_content(name) ||
		       slice_among(name, version2, ARRAY_LEN(version2))) &&
	       is_presigned(call);
}

const struct s3_error *s3_presigned_headers(struct s3_call *call)
{
	const struct s3_request *request = call->request;
	uint32_t count = 0;
	struct s3_header *headers;
	struct s3_request *copy;

	if (!call->presigned)
		return NULL;
	headers = mem_arena_get(
		&call->arena, (request->header_count + call->params.count) * sizeof(*headers));
	copy = mem_arena_get(&call->arena, sizeof(*copy));
	if (!headers || !copy)
		return s3_error_at(S3_E_SLOW_DOWN);
	/* The first header of a name counts: the user of the URL adds headers of his own, but the
	 * signer of the URL decides its conditions. */
	for (uint32_t i = 0; i < call->params.count; i++)
		if (is_condition(call->params.items[i].name))
			headers[count++] = (struct s3_header){
				call->params.items[i].name, call->params.items[i].value};
	if (request->header_count)
		memcpy(headers + count, request->headers, request->header_count * sizeof(*headers));
	count += request->header_count;
	for (uint32_t i = 0; i < call->params.count; i++) {
		const struct s3_param *param = &call->params.items[i];

		/* A header of the same name has the same value: it was signed. */
		if (stands_for_header(call, param->name) && !s3_call_has_header(call, param->name))
			headers[count++] = (struct s3_header){param->name, param->value};
	}
	if (count > LIMIT_HTTP_HEADERS_MAX)
		return s3_fail(call, S3_E_INVALID_URI,
			"The URL has more headers than a request may have, %u.",
			LIMIT_HTTP_HEADERS_MAX);
	*copy = *request;
	copy->headers = headers;
	copy->header_count = count;
	s3_call_request(call, copy);
	return NULL;
}
