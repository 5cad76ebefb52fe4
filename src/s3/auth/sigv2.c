/* s3/auth/sigv2.c: AWS Signature Version 2: parses a request's claim, rebuilds the signed string,
 * and verifies it. */
#include "s3/auth/sigv2.h"

#include <ctype.h>

#include "codec/codec.h"
#include "s3/core/text.h"

#define SCHEME "AWS "

static bool refuse(struct sigv4_refusal *refusal, const char *code, const char *message)
{
	*refusal = (struct sigv4_refusal){.code = code, .message = message};
	return false;
}

static const struct s3_header *find_header(const struct s3_request *request, struct slice name)
{
	for (uint32_t i = 0; i < request->header_count; i++)
		if (slice_eq_nocase(request->headers[i].name, name))
			return &request->headers[i];
	return NULL;
}

static struct slice param(const struct s3_params *params, struct slice name)
{
	const struct s3_param *found = s3_query_find(params, name);

	return found ? found->value : SLICE_NONE;
}

bool sigv2_is_header(struct slice value)
{
	return slice_starts(slice_trim(value), SLICE(SCHEME));
}

/* x-amz-date replaces the date, whose line is then empty. */
static bool parse_date(const struct s3_request *request, struct sigv4_claim *claim)
{
	const struct s3_header *date = find_header(request, SLICE("x-amz-date"));
	bool own = date != NULL;

	if (!date)
		date = find_header(request, SLICE("date"));
	if (!date)
		return false;
	claim->timestamp = own ? SLICE("") : date->value;
	return date_mail_parse(date->value, &claim->time_ms) == 0 ||
	       date_http_parse(date->value, &claim->time_ms) == 0 ||
	       date_basic_parse(date->value, &claim->time_ms) == 0;
}

bool sigv2_parse_header(struct slice value, const struct s3_request *request,
	struct sigv4_claim *ret_claim, struct sigv4_refusal *ret_refusal)
{
	struct slice rest = slice_trim(slice_from(slice_trim(value), strlen(SCHEME)));

	*ret_claim = (struct sigv4_claim){
		.version2 = true, .scope.service = SLICE("s3"), .payload = S3_PAYLOAD_UNSIGNED};
	ret_claim->access_key = slice_split(&rest, ':');
	ret_claim->signature = rest;
	if (!ret_claim->access_key.len || !rest.len)
		return refuse(ret_refusal, "InvalidArgument",
			"AWS authorization header is invalid.  Expected AwsAccessKeyId:signature");
	if (!parse_date(request, ret_claim))
		return refuse(ret_refusal, "AccessDenied",
			"AWS authentication requires a valid Date or x-amz-date header");
	return true;
}

bool sigv2_is_query(const struct s3_params *params)
{
	return s3_query_find(params, SLICE("AWSAccessKeyId")) ||
	       s3_query_find(params, SLICE("Signature"));
}

bool sigv2_parse_query(const struct s3_params *params, struct sigv4_claim *ret_claim,
	struct sigv4_refusal *ret_refusal)
{
	struct slice expires = param(params, SLICE("Expires"));

	*ret_claim = (struct sigv4_claim){.version2 = true,
		.presigned = true,
		.scope.service = SLICE("s3"),
		.access_key = param(params, SLICE("AWSAccessKeyId")),
		.signature = param(params, SLICE("Signature")),
		.timestamp = expires,
		.payload = S3_PAYLOAD_UNSIGNED};
	if (!ret_claim->access_key.len || !ret_claim->signature.len || !expires.len)
		return refuse(ret_refusal, "AccessDenied",
			"Query-string authentication requires the Signature, Expires and "
			"AWSAccessKeyId parameters");
	/* An absolute time in seconds since 1970, in the same unit as time_ms, which is 0. */
	if (slice_to_u64(expires, &ret_claim->expires_s) ||
		ret_claim->expires_s > DATE_MS_MAX / 1000)
		return refuse(ret_refusal, "AccessDenied",
			"Invalid date: Expires should be seconds since epoch");
	return true;
}

/* ---- The string to sign. ---- */

static bool is_amz(struct slice name)
{
	return slice_eq_nocase(slice_to(name, 6), SLICE("x-amz-"));
}

static int cmp_nocase(struct slice a, struct slice b)
{
	size_t len = a.len < b.len ? a.len : b.len;
	int order = len ? strncasecmp(a.data, b.data, len) : 0;

	if (order)
		return order;
	return a.len < b.len ? -1 : a.len > b.len;
}

#define AMZ_MAX (LIMIT_HTTP_HEADERS_MAX + S3_PARAMS_MAX)

/* In order of name; equal names keep the request's order. False: too many. */
static bool insert(struct s3_header *sorted, uint32_t *count, struct slice name, struct slice value)
{
	uint32_t at = *count;

	if (*count == AMZ_MAX)
		return false;
	for (; at > 0 && cmp_nocase(name, sorted[at - 1].name) < 0; at--)
		sorted[at] = sorted[at - 1];
	sorted[at] = (struct s3_header){.name = name, .value = value};
	(*count)++;
	return true;
}

/* "x-amz-name:value,value\n" each. A presigned URL may bring them as parameters; a header of the
 * same name then repeats it. */
static void put_amz_headers(const struct s3_request *request, const struct s3_params *params,
	const struct sigv4_claim *claim, struct buf *out)
{
	struct s3_header sorted[AMZ_MAX];
	uint32_t count = 0;

	for (uint32_t i = 0; i < request->header_count; i++)
		if (is_amz(request->headers[i].name) &&
			!insert(sorted, &count, request->headers[i].name,
				request->headers[i].value))
			out->failed = true;
	for (uint32_t i = 0; claim->presigned && i < params->count; i++)
		if (is_amz(params->items[i].name) && !find_header(request, params->items[i].name) &&
			!insert(sorted, &count, params->items[i].name, params->items[i].value))
			out->failed = true;
	for (uint32_t i = 0; i < count; i++) {
		if (i && slice_eq_nocase(sorted[i].name, sorted[i - 1].name)) {
			buf_put(out, ",", 1);
		} else {
			if (i)
				buf_put(out, "\n", 1);
			for (size_t at = 0; at < sorted[i].name.len; at++) {
				char lower = (char)tolower((unsigned char)sorted[i].name.data[at]);

				buf_put(out, &lower, 1);
			}
			buf_put(out, ":", 1);
		}
		buf_put_slice(out, slice_trim(sorted[i].value));
	}
	if (count)
		buf_put(out, "\n", 1);
}

/* The parameters that change the request's meaning, and the dialects that sign them. */
static bool is_signed_param(struct slice name, enum sigv2_dialect dialect)
{
#define BOTH  (1u << SIGV2_AWS | 1u << SIGV2_MINIO)
#define AWS   (1u << SIGV2_AWS)
#define MINIO (1u << SIGV2_MINIO)
	static const struct {
		struct slice name;
		uint32_t dialects;
	} params[] = {
		{SLICE("accelerate"), AWS},
		{SLICE("acl"), BOTH},
		{SLICE("analytics"), AWS},
		{SLICE("cors"), BOTH},
		{SLICE("defaultObjectAcl"), AWS},
		{SLICE("delete"), BOTH},
		{SLICE("encryption"), MINIO},
		{SLICE("inventory"), AWS},
		{SLICE("legal-hold"), MINIO},
		{SLICE("lifecycle"), BOTH},
		{SLICE("location"), BOTH},
		{SLICE("logging"), BOTH},
		{SLICE("metrics"), AWS},
		{SLICE("notification"), BOTH},
		{SLICE("object-lock"), AWS},
		{SLICE("partNumber"), BOTH},
		{SLICE("policy"), BOTH},
		{SLICE("replication"), BOTH},
		{SLICE("requestPayment"), BOTH},
		{SLICE("response-cache-control"), BOTH},
		{SLICE("response-content-disposition"), BOTH},
		{SLICE("response-content-encoding"), BOTH},
		{SLICE("response-content-language"), BOTH},
		{SLICE("response-content-type"), BOTH},
		{SLICE("response-expires"), BOTH},
		{SLICE("restore"), AWS},
		{SLICE("retention"), MINIO},
		{SLICE("select"), BOTH},
		{SLICE("select-type"), BOTH},
		{SLICE("storageClass"), AWS},
		{SLICE("tagging"), BOTH},
		{SLICE("torrent"), BOTH},
		{SLICE("uploadId"), BOTH},
		{SLICE("uploads"), BOTH},
		{SLICE("versionId"), BOTH},
		{SLICE("versioning"), BOTH},
		{SLICE("versions"), BOTH},
		{SLICE("website"), BOTH},
	};
#undef BOTH
#undef AWS
#undef MINIO

	for (size_t i = 0; i < ARRAY_LEN(params); i++)
		if (slice_eq(name, params[i].name))
			return params[i].dialects >> dialect & 1;
	return false;
}

/* The signature's own parameters, and those that the string to sign has outside the resource. */
static bool is_of_signature(struct slice name)
{
	static const struct slice names[] = {SLICE("AWSAccessKeyId"), SLICE("Signature"),
		SLICE("Expires"), SLICE("content-type"), SLICE("content-md5")};

	return slice_among(name, names, ARRAY_LEN(names)) || is_amz(name);
}

/* Parameters that only choose the page of a list: in AWS's documents they are unsigned. */
static bool is_of_page(struct slice name)
{
	static const struct slice names[] = {SLICE("continuation-token"), SLICE("delimiter"),
		SLICE("encoding-type"), SLICE("fetch-owner"), SLICE("key-marker"),
		SLICE("list-type"), SLICE("marker"), SLICE("max-keys"), SLICE("max-parts"),
		SLICE("max-uploads"), SLICE("part-number-marker"), SLICE("prefix"),
		SLICE("start-after"), SLICE("upload-id-marker"), SLICE("version-id-marker")};

	return slice_among(name, names, ARRAY_LEN(names));
}

/* A parameter that stands for a header must be a valid header value: with a line feed it would sign
 * like two headers. */
static bool is_one_line(const struct s3_param *item)
{
	return !memchr(item->name.data, '\n', item->name.len) &&
	       !memchr(item->name.data, ':', item->name.len) &&
	       !(item->value.len && memchr(item->value.data, '\n', item->value.len));
}

bool sigv2_covers(const struct s3_params *params, const struct sigv4_claim *claim,
	enum sigv2_dialect dialect, struct slice *ret_name)
{
	for (uint32_t i = 0; i < params->count; i++) {
		const struct s3_param *item = &params->items[i];

		if (is_signed_param(item->name, dialect) || is_of_page(item->name) ||
			(claim->presigned && is_of_signature(item->name) && is_one_line(item)))
			continue;
		*ret_name = item->name;
		return false;
	}
	return true;
}

/* The bucket and the path as received; then the parameters that change the request's meaning, in
 * order of name, decoded. */
static void put_resource(const struct s3_request *request, const struct s3_params *params,
	struct slice bucket, enum sigv2_dialect dialect, struct buf *out)
{
	const struct s3_param *sorted[S3_PARAMS_MAX];
	uint32_t count = 0;

	if (bucket.len) {
		buf_put(out, "/", 1);
		buf_put_slice(out, bucket);
	}
	buf_put_slice(out, request->path.len ? request->path : SLICE("/"));
	CHECK(params->count <= S3_PARAMS_MAX);
	for (uint32_t i = 0; i < params->count; i++) {
		const struct s3_param *item = &params->items[i];
		uint32_t at = count;

		if (!is_signed_param(item->name, dialect))
			continue;
		for (; at > 0 && slice_cmp(item->name, sorted[at - 1]->name) < 0; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = item;
		count++;
	}
	for (uint32_t i = 0; i < count; i++) {
		buf_put(out, i ? "&" : "?", 1);
		buf_put_slice(out, sorted[i]->name);
		if (dialect == SIGV2_AWS ? sorted[i]->has_value : sorted[i]->value.len > 0) {
			buf_put(out, "=", 1);
			buf_put_slice(out, sorted[i]->value);
		}
	}
}

/* A header of a fixed line; for a presigned URL, a parameter also counts. */
static void put_line(const struct s3_request *request, const struct s3_params *params,
	const struct sigv4_claim *claim, struct slice name, struct buf *out)
{
	const struct s3_header *header = find_header(request, name);

	if (header)
		buf_put_slice(out, slice_trim(header->value));
	else if (claim->presigned)
		buf_put_slice(out, param(params, name));
	buf_put(out, "\n", 1);
}

void sigv2_string_to_sign(const struct s3_request *request, const struct s3_params *params,
	const struct sigv4_claim *claim, struct slice bucket, enum sigv2_dialect dialect,
	struct buf *out)
{
	buf_put_slice(out, request->method_text);
	buf_put(out, "\n", 1);
	put_line(request, params, claim, SLICE("content-md5"), out);
	put_line(request, params, claim, SLICE("content-type"), out);
	buf_put_slice(out, slice_trim(claim->timestamp));
	buf_put(out, "\n", 1);
	put_amz_headers(request, params, claim, out);
	put_resource(request, params, bucket, dialect, out);
}

bool sigv2_verify(struct slice secret, struct slice text, struct slice signature)
{
	uint8_t mac[SHA1_BYTES];
	char wanted[SIGV2_SIGNATURE_LEN];

	hmac_sha1(secret, text, mac);
	base64_encode(mac, sizeof(mac), wanted);
	return signature.len == sizeof(wanted) &&
	       secret_equal(wanted, signature.data, sizeof(wanted));
}
