/* s3/body/body.c: request bodies: into the store, or whole into memory for documents; and their
 * checks: the signed SHA-256, Content-MD5, x-amz-checksum-* in header or trailer. */
#include <errno.h>
#include <stdio.h>

#include "document/document.h"
#include "s3/body/body.h"
#include "s3/core/call.h"
#include "s3/core/stored.h"
#include "s3/sse/sse.h"

#define ETAG_HEADER "x-nebulaio-etag" /* "md5": a native client asks for an MD5 as ETag */
#define STAGES_MAX  4u

/* ---- The sums that the client announced. ---- */

static const struct s3_error *parse_md5(struct s3_call *call, struct s3_sums *sums)
{
	struct slice value = s3_call_header(call, SLICE("content-md5"));
	size_t len;

	if (!s3_call_has_header(call, SLICE("content-md5")))
		return NULL;
	if (base64_decode(value, sums->md5, sizeof(sums->md5), &len) || len != sizeof(sums->md5)) {
		s3_fail_detail(call, "Content-MD5", value);
		return s3_error_at(S3_E_INVALID_DIGEST);
	}
	sums->has_md5 = true;
	return NULL;
}

static bool parse_digest(struct slice text, struct s3_sums *sums)
{
	size_t len;

	if (base64_decode(text, sums->digest, sizeof(sums->digest), &len) ||
		len != checksum_bytes(sums->kind))
		return false;
	sums->digest_bytes = (uint8_t)len;
	return true;
}

static const struct s3_error *set_kind(
	struct s3_call *call, struct s3_sums *sums, enum checksum_kind kind)
{
	if (sums->kind != CHECKSUM_NONE)
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"Expecting a single x-amz-checksum- header. Multiple checksum Types are "
			"not allowed.");
	sums->kind = kind;
	return NULL;
}

static const struct s3_error *parse_checksum_header(
	struct s3_call *call, const struct s3_header *header, struct s3_sums *sums)
{
	const struct s3_error *error;
	enum checksum_kind kind;

	if (checksum_kind_of_header(header->name, &kind))
		return NULL;
	error = set_kind(call, sums, kind);
	if (!error && !parse_digest(header->value, sums))
		error = s3_fail(call, S3_E_INVALID_REQUEST, "Value for %.*s header is invalid.",
			SLICE_FMT(checksum_header(kind)));
	return error;
}

/* x-amz-trailer names the fields after the body; only a checksum can be one. */
static const struct s3_error *parse_trailer(struct s3_call *call, struct s3_sums *sums)
{
	struct slice rest = s3_call_header(call, SLICE("x-amz-trailer"));

	while (rest.len) {
		struct slice name = slice_trim(slice_split(&rest, ','));
		const struct s3_error *error;
		enum checksum_kind kind;

		if (checksum_kind_of_header(name, &kind))
			return s3_fail(call, S3_E_INVALID_REQUEST,
				"The value specified in the x-amz-trailer header is not supported");
		error = set_kind(call, sums, kind);
		if (error)
			return error;
		sums->in_trailer = true;
	}
	return NULL;
}

/* If the client names an algorithm, the value must be of that algorithm. */
static const struct s3_error *check_algorithm(struct s3_call *call, const struct s3_sums *sums)
{
	struct slice name = s3_call_header(call, SLICE("x-amz-sdk-checksum-algorithm"));
	enum checksum_kind kind;

	if (!name.len)
		return NULL;
	if (checksum_kind_of_name(name, &kind))
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"Value for x-amz-sdk-checksum-algorithm header is invalid.");
	if (sums->kind == CHECKSUM_NONE)
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"x-amz-sdk-checksum-algorithm specified, but no corresponding "
			"x-amz-checksum-* or x-amz-trailer headers were found.");
	if (sums->kind != kind)
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"Value for x-amz-sdk-checksum-algorithm header is invalid.");
	return NULL;
}

bool s3_etag_md5(const struct s3_call *call)
{
	if (call->etag_md5 || !call->request->header_count || s3_express_bucket(call))
		return call->etag_md5;
	return slice_eq_nocase(s3_call_header(call, SLICE(ETAG_HEADER)), SLICE("md5"));
}

const struct s3_error *s3_sums_parse(struct s3_call *call, struct s3_sums *ret_sums)
{
	const struct s3_request *request = call->request;
	const struct s3_error *error;

	*ret_sums = (struct s3_sums){
		.etag_md5 = s3_etag_md5(call),
		.payload_sha256 = call->signing.payload == S3_PAYLOAD_SHA256,
	};
	if (!request->header_count)
		return NULL;
	error = parse_md5(call, ret_sums);
	for (uint32_t i = 0; !error && i < request->header_count; i++)
		error = parse_checksum_header(call, &request->headers[i], ret_sums);
	if (!error)
		error = parse_trailer(call, ret_sums);
	return error ? error : check_algorithm(call, ret_sums);
}

/* ---- The computed sums. ---- */

static const struct s3_error *check_sha256(struct s3_call *call, const uint8_t digest[SHA256_BYTES])
{
	char hex[2 * SHA256_BYTES];

	hex_encode(digest, SHA256_BYTES, hex);
	if (strncasecmp(hex, call->content_sha256, sizeof(hex)) == 0)
		return NULL;
	s3_fail_detail(call, "ClientComputedContentSHA256", slice_str(call->content_sha256));
	s3_fail_detail(call, "S3ComputedContentSHA256", slice_of(hex, sizeof(hex)));
	return s3_error_at(S3_E_CONTENT_SHA256_MISMATCH);
}

static const struct s3_error *check_md5(
	struct s3_call *call, const struct s3_sums *sums, const uint8_t digest[MD5_BYTES])
{
	char expected[2 * MD5_BYTES], calculated[BASE64_LEN(MD5_BYTES)];

	if (!sums->has_md5 || memcmp(sums->md5, digest, MD5_BYTES) == 0)
		return NULL;
	/* S3's error shows one in hex, the other in base64. */
	hex_encode(sums->md5, MD5_BYTES, expected);
	base64_encode(digest, MD5_BYTES, calculated);
	s3_fail_detail(call, "ExpectedDigest", slice_of(expected, sizeof(expected)));
	s3_fail_detail(call, "CalculatedDigest", slice_of(calculated, sizeof(calculated)));
	return s3_fail(call, S3_E_BAD_DIGEST,
		"The Content-MD5 you specified did not match what we received.");
}

static const struct s3_error *check_digest(
	struct s3_call *call, const struct s3_sums *sums, const uint8_t *digest)
{
	struct s3_sums wanted = *sums;

	if (sums->kind == CHECKSUM_NONE)
		return NULL;
	if (sums->in_trailer) {
		struct s3_body *body = call->request->body;
		struct slice text =
			body ? body->ops->trailer(body, checksum_header(sums->kind).data)
			     : SLICE_NONE;

		if (!text.len || !parse_digest(text, &wanted))
			return s3_error_at(S3_E_MALFORMED_TRAILER);
	}
	if (memcmp(wanted.digest, digest, wanted.digest_bytes) == 0)
		return NULL;
	return s3_fail(call, S3_E_BAD_DIGEST,
		"The %.*s you specified did not match the calculated checksum.",
		SLICE_FMT(checksum_name(sums->kind)));
}

/* ---- Documents. ---- */

static const struct s3_error *verify_document(
	struct s3_call *call, const struct s3_sums *sums, struct slice text)
{
	uint8_t digest[CHECKSUM_BYTES_MAX];
	const struct s3_error *error = NULL;

	if (sums->payload_sha256) {
		sha256_of(text.data, text.len, digest);
		error = check_sha256(call, digest);
	}
	if (!error && sums->has_md5) {
		md5_of(text.data, text.len, digest);
		error = check_md5(call, sums, digest);
	}
	if (!error && sums->kind != CHECKSUM_NONE) {
		checksum_of(sums->kind, text.data, text.len, digest);
		error = check_digest(call, sums, digest);
	}
	return error;
}

const struct s3_error *s3_read_body(
	struct s3_call *call, const struct s3_sums *sums, struct slice *ret_body)
{
	struct s3_body *body = call->request->body;
	enum s3_body_rule rule = call->operation->body;
	size_t bytes_max =
		rule == S3_BODY_FORM ? S3_SERVICE_FORM_BYTES_MAX : LIMIT_XML_BODY_BYTES_MAX;
	struct flow_source *source;
	struct buf text;
	int ret = 0;

	CHECK(rule == S3_BODY_DOCUMENT || rule == S3_BODY_FORM);
	buf_init(&text, bytes_max);
	if (body && body->bytes) {
		if (body->bytes != UINT64_MAX && body->bytes > bytes_max)
			return s3_error_at(S3_E_MESSAGE_TOO_LONG);
		ret = body->ops->open(body, &call->signing, &source);
		if (!ret)
			source->share = s3_call_share(call);
		if (!ret)
			ret = document_read_source(call->request->core, source, &text);
	}
	*ret_body = mem_arena_copy(&call->arena, buf_slice(&text));
	buf_free(&text);
	if (ret == -EMSGSIZE)
		return s3_error_at(S3_E_MESSAGE_TOO_LONG);
	if (ret)
		return s3_fail_errno(call, ret);
	if (!ret_body->data)
		return s3_error_at(S3_E_SLOW_DOWN);
	call->body_bytes += ret_body->len;
	call->received_bytes += ret_body->len;
	return verify_document(call, sums, *ret_body);
}

/* ---- Objects. ---- */

/* The sums computed while a body passes. The CRC-64 is always one of them: every object stores it.
 */
struct body_stages {
	struct flow_checksum crc64, md5, sha256, other;
	struct flow_stage *list[STAGES_MAX];
	uint32_t count;
	bool has_md5, has_sha256, has_other;
};

static int add_stage(
	struct body_stages *stages, struct flow_checksum *stage, enum checksum_kind kind)
{
	stages->list[stages->count++] = &stage->stage;
	return flow_checksum_init(stage, kind);
}

static int init_stages(const struct s3_sums *sums, struct body_stages *stages)
{
	int ret;

	stages->count = 0;
	stages->has_md5 = sums->has_md5 || sums->etag_md5 || sums->kind == CHECKSUM_MD5;
	stages->has_sha256 = sums->payload_sha256 || sums->kind == CHECKSUM_SHA256;
	stages->has_other = sums->kind != CHECKSUM_NONE && sums->kind != CHECKSUM_CRC64NVME &&
			    sums->kind != CHECKSUM_SHA256 && sums->kind != CHECKSUM_MD5;
	ret = add_stage(stages, &stages->crc64, CHECKSUM_CRC64NVME);
	if (!ret && stages->has_md5)
		ret = add_stage(stages, &stages->md5, CHECKSUM_MD5);
	if (!ret && stages->has_sha256)
		ret = add_stage(stages, &stages->sha256, CHECKSUM_SHA256);
	if (!ret && stages->has_other)
		ret = add_stage(stages, &stages->other, sums->kind);
	return ret;
}

static uint64_t crc64_of(const uint8_t digest[8])
{
	uint64_t crc = 0;

	for (int i = 0; i < 8; i++)
		crc = crc << 8 | digest[i];
	return crc;
}

/* Ends the sums, compares them with the announced ones, and stores them in meta. */
static const struct s3_error *check_stages(struct s3_call *call, const struct s3_sums *sums,
	struct body_stages *stages, struct store_meta *meta)
{
	uint8_t md5[CHECKSUM_BYTES_MAX], sha256[CHECKSUM_BYTES_MAX], crc64[CHECKSUM_BYTES_MAX];
	uint8_t other[CHECKSUM_BYTES_MAX];
	const struct s3_error *error = NULL;
	const uint8_t *kept = crc64;

	checksum_final(&stages->crc64.checksum, crc64);
	meta->crc64 = crc64_of(crc64);
	if (stages->has_sha256)
		checksum_final(&stages->sha256.checksum, sha256);
	if (stages->has_other)
		checksum_final(&stages->other.checksum, other);
	if (sums->payload_sha256)
		error = check_sha256(call, sha256);
	if (stages->has_md5) {
		checksum_final(&stages->md5.checksum, md5);
		error = error ? error : check_md5(call, sums, md5);
	}
	if (stages->has_md5 && !s3_express_bucket(call)) {
		hex_encode(md5, MD5_BYTES, meta->etag);
		meta->etag[2 * MD5_BYTES] = '\0';
		if (call->sse)
			s3_sse_etag(call->sse, meta->etag);
	} else if (!meta->etag[0]) {
		s3_etag_of_crc(meta);
	}
	if (stages->has_other)
		kept = other;
	else if (sums->kind == CHECKSUM_SHA256)
		kept = sha256;
	else if (sums->kind == CHECKSUM_MD5)
		kept = md5;
	if (!error)
		error = check_digest(call, sums, kept);
	meta->checksum_type =
		(uint8_t)(sums->kind == CHECKSUM_NONE ? CHECKSUM_CRC64NVME : sums->kind);
	meta->checksum_len = (uint8_t)checksum_bytes((enum checksum_kind)meta->checksum_type);
	memcpy(meta->checksum, kept, meta->checksum_len);
	return error;
}

/* An empty source, for a request without a body. */
static int open_body(struct s3_call *call, struct flow_source **ret_source)
{
	struct s3_body *body = call->request->body;

	if (!body)
		return flow_memory_source_open(call->request->core, SLICE_NONE, ret_source);
	return body->ops->open(body, &call->signing, ret_source);
}

const struct s3_error *s3_store_source(struct s3_call *call, const struct s3_sums *sums,
	struct flow_source *source, struct store_put *put, struct store_meta *meta)
{
	const struct s3_body *body = call->request->body;
	struct store_crypt_sink crypt;
	struct body_stages stages;
	struct flow_sink *sink;
	uint64_t moved = 0;
	int ret = init_stages(sums, &stages);

	s3_call_check(call);
	if (!ret)
		ret = store_put_sink(put, call->request->core, meta->bytes, &sink);
	if (ret) {
		flow_source_close(source);
		return s3_fail_errno(call, ret);
	}
	if (call->sse) {
		ret = store_crypt_sink_init(&crypt, s3_sse_key(call->sse), put, sink);
		if (ret) {
			flow_source_close(source);
			flow_sink_finish(sink, true);
			return s3_fail_errno(call, ret);
		}
		sink = &crypt.sink;
	}
	/* A small body of a session arrives at once, unless its client delays others. */
	if (!call->request->session || meta->bytes > FLOW_FRAMES_SMALL * FRAME_BYTES ||
		(body && body->counts))
		source->share = s3_call_share(call);
	ret = flow_run(source, stages.list, stages.count, sink, &moved);
	s3_call_check(call);
	call->body_bytes += moved;
	if (ret)
		return s3_body_failed(call, ret);
	if (meta->bytes != UINT64_MAX && moved != meta->bytes)
		return s3_error_at(S3_E_INCOMPLETE_BODY);
	meta->bytes = moved;
	return check_stages(call, sums, &stages, meta);
}

const struct s3_error *s3_check_length(struct s3_call *call)
{
	const struct s3_body *body = call->request->body;
	enum s3_payload payload = call->signing.payload;

	if (!body)
		return NULL;
	if (body->bytes == UINT64_MAX &&
		!(s3_call_has_header(call, SLICE("transfer-encoding")) &&
			(payload == S3_PAYLOAD_UNSIGNED || payload == S3_PAYLOAD_SHA256)))
		return s3_error_at(S3_E_MISSING_CONTENT_LENGTH);
	if (body->bytes > LIMIT_PUT_BYTES_MAX && body->bytes != UINT64_MAX) {
		char digits[SLICE_U64_MAX];

		s3_fail_detail(call, "ProposedSize", slice_of_u64(body->bytes, digits));
		s3_fail_detail(call, "MaxSizeAllowed", SLICE("5368709120"));
		return s3_error_at(S3_E_ENTITY_TOO_LARGE);
	}
	return NULL;
}

const struct s3_error *s3_store_body(struct s3_call *call, const struct s3_sums *sums,
	struct store_put *put, struct store_meta *meta)
{
	uint64_t before = call->body_bytes;
	const struct s3_error *error;
	struct flow_source *source;
	int ret;

	CHECK(call->operation->body == S3_BODY_OBJECT);
	ret = open_body(call, &source);
	if (ret)
		return s3_fail_errno(call, ret);
	meta->bytes = call->request->body ? call->request->body->bytes : 0;
	error = s3_store_source(call, sums, source, put, meta);
	call->received_bytes += call->body_bytes - before;
	return error;
}
