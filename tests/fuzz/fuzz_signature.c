/* Fuzzes the parsers of signatures, Version 2 and 4: lines of the input are the path, the query,
 * the Authorization header and then headers "name:value". An accepted claim must be within its
 * bounds, and either gives a string to sign or fails. */
#include "codec/codec.h"
#include "s3/auth/sigv2.h"
#include "s3/auth/sigv4.h"
#include "s3/core/text.h"

#define IN_BYTES_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct s3_param items[S3_PARAMS_MAX];
static struct s3_header headers[LIMIT_HTTP_HEADERS_MAX];
static char memory[IN_BYTES_MAX];

static void try_v2(const struct s3_request *request, const struct s3_params *params,
	struct slice authorization)
{
	struct sigv4_refusal refusal = {0};
	struct sigv4_claim claim;
	struct slice name;
	struct buf string;

	if (!(sigv2_is_query(params)
			    ? sigv2_parse_query(params, &claim, &refusal)
			    : sigv2_parse_header(authorization, request, &claim, &refusal))) {
		CHECK(refusal.code != NULL);
		return;
	}
	CHECK(claim.access_key.len > 0);
	CHECK(claim.signature.len > 0);
	CHECK(claim.time_ms >= 0);
	for (enum sigv2_dialect dialect = 0; dialect < SIGV2_DIALECTS; dialect++) {
		buf_init(&string, SIGV4_CANONICAL_BYTES_MAX);
		sigv2_string_to_sign(request, params, &claim, SLICE("bucket"), dialect, &string);
		if (!sigv2_covers(params, &claim, dialect, &name))
			CHECK(s3_query_find(params, name) != NULL);
		if (!string.failed)
			sigv2_verify(SLICE("secret"), buf_slice(&string), claim.signature);
		buf_free(&string);
	}
}

static void try_v4(const struct s3_request *request, const struct s3_params *params,
	struct slice authorization)
{
	struct sigv4_refusal refusal = {0};
	struct buf canonical, string;
	struct sigv4_claim claim;

	if (!(s3_query_find(params, SLICE("X-Amz-Algorithm"))
			    ? sigv4_parse_query(params, &claim, &refusal)
			    : sigv4_parse_header(authorization, &claim, &refusal) &&
				      sigv4_parse_times(request, &claim, &refusal))) {
		CHECK(refusal.code != NULL);
		return;
	}
	CHECK(claim.access_key.len > 0 && claim.access_key.len <= LIMIT_ACCESS_KEY_LEN_MAX);
	CHECK(claim.signature.len == SIGNING_SIGNATURE_LEN);
	CHECK(claim.time_ms >= 0);
	buf_init(&canonical, SIGV4_CANONICAL_BYTES_MAX);
	buf_init(&string, SIGV4_CANONICAL_BYTES_MAX);
	sigv4_canonical(request, params, &claim, &canonical);
	if (!canonical.failed)
		signing_string(claim.timestamp, claim.scope_text, buf_slice(&canonical), &string);
	CHECK(!string.failed);
	buf_free(&canonical);
	buf_free(&string);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct slice rest = slice_of(data, size), authorization;
	struct s3_request request = {.method_text = SLICE("GET"), .headers = headers};
	struct s3_params params;

	if (size > IN_BYTES_MAX)
		return 0;
	request.path = slice_split(&rest, '\n');
	request.query = slice_split(&rest, '\n');
	authorization = slice_split(&rest, '\n');
	while (rest.len && request.header_count < ARRAY_LEN(headers)) {
		struct slice value = slice_split(&rest, '\n'), name = slice_split(&value, ':');

		headers[request.header_count++] = (struct s3_header){name, slice_trim(value)};
	}
	if (s3_query_count(request.query) > S3_PARAMS_MAX ||
		s3_query_parse(request.query, items, memory, &params))
		return 0;
	try_v2(&request, &params, authorization);
	try_v4(&request, &params, authorization);
	return 0;
}
