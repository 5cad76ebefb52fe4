/* s3/object/append.c: PutObject with x-amz-write-offset-bytes, in a directory bucket: the body is
 * added to the end of the object. The existing bytes stay in place; the checksums of the whole are
 * computed from both checksums.
 *
 * Source: S3 API reference, PutObject; S3 User Guide, "Appending data to objects in directory
 * buckets". */
#include "s3/object/append.h"

#include <errno.h>

#include "s3/body/body.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/conditions.h"
#include "s3/core/settings.h"
#include "s3/core/stored.h"
#include "s3/event/notification.h"
#include "s3/object/object.h"
#include "s3/sse/sse.h"

struct append {
	uint64_t offset;
	struct store_get *get;
	const struct store_meta *base;
};

static const struct s3_error *bad_offset(struct s3_call *call, const struct append *append)
{
	return s3_fail(call, S3_E_INVALID_WRITE_OFFSET,
		"The write offset value that you specified (%llu) does not match the current "
		"object size.",
		(unsigned long long)append->offset);
}

bool s3_append_asked(const struct s3_call *call)
{
	return s3_call_has_header(call, SLICE(S3_APPEND_HEADER));
}

static const struct s3_error *check_request(struct s3_call *call, const struct append *append)
{
	const struct s3_request *request = call->request;

	if (!request->body || !request->body->bytes)
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"Request body cannot be empty when 'write offset' is specified.");
	for (uint32_t i = 0; append->base && i < request->header_count; i++)
		if (slice_eq_nocase(slice_to(request->headers[i].name, strlen("x-amz-meta-")),
			    SLICE("x-amz-meta-")))
			return s3_fail(call, S3_E_INVALID_REQUEST,
				"Cannot specify both a write offset value and user-defined object "
				"metadata for existing objects.");
	return NULL;
}

/* The object's checksum algorithm is kept if its checksums can be joined, whatever algorithm the
 * request names for its own body: a CRC-64 is always computed. */
static const struct s3_error *check_sums(
	struct s3_call *call, const struct store_meta *base, struct s3_sums *sums)
{
	enum checksum_kind kind = (enum checksum_kind)base->checksum_type;

	if (sums->kind != CHECKSUM_NONE && kind != CHECKSUM_NONE && kind != CHECKSUM_CRC64NVME &&
		sums->kind != kind)
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"Checksum Type mismatch occurred, expected checksum Type: %.*s, actual "
			"checksum Type: %.*s",
			SLICE_FMT(checksum_name(kind)), SLICE_FMT(checksum_name(sums->kind)));
	if (sums->kind == CHECKSUM_NONE && (kind == CHECKSUM_CRC32 || kind == CHECKSUM_CRC32C))
		sums->kind = kind;
	return NULL;
}

/* Opens the object's own data key; the encryption that the request names must be the object's. */
static const struct s3_error *open_sse(
	struct s3_call *call, const struct store_meta *base, struct s3_sse *sse)
{
	struct slice headers = slice_of(base->headers, base->headers_len);
	struct s3_sse asked = {.kind = S3_SSE_NONE};
	const struct s3_error *error = NULL;
	struct slice record;

	if (s3_sse_asked(call))
		error = s3_sse_begin(call, &asked, &record);
	if (error)
		return error;
	s3_sse_describe(headers, sse);
	if (s3_sse_asked(call) &&
		(asked.kind != sse->kind || !slice_eq(asked.kms_key, sse->kms_key)))
		return s3_error_at(S3_E_ENCRYPTION_TYPE_MISMATCH);
	return s3_sse_open(call, headers, &s3_sse_names, sse);
}

static const struct s3_error *open_base(struct s3_call *call, struct append *append)
{
	struct slice text = s3_call_header(call, SLICE(S3_APPEND_HEADER));
	bool bucket_exists;
	int ret;

	if (slice_to_u64(text, &append->offset))
		return s3_fail(
			call, S3_E_INVALID_ARGUMENT, S3_APPEND_HEADER " must be a number of bytes");
	ret = store_get_open(
		call->s3->store, call->bucket, call->key, &append->get, &bucket_exists);
	if (ret == -ENOENT && bucket_exists && !append->offset)
		return NULL;
	if (ret)
		return ret == -ENOENT && !bucket_exists ? s3_error_at(S3_E_NO_SUCH_BUCKET)
							: s3_fail_errno(call, ret);
	append->base = store_get_meta(append->get);
	return append->offset == append->base->bytes ? NULL : bad_offset(call, append);
}

/* Computes the metadata of the joined object. */
static const struct s3_error *join(struct s3_call *call, const struct append *append,
	const struct store_meta *own, struct store_meta *meta)
{
	const struct store_meta *base = append->base;
	struct slice headers = slice_of(base->headers, base->headers_len);

	*meta = *base;
	meta->bytes = base->bytes + own->bytes;
	meta->crc64 =
		base->bytes ? crc64nvme_join(base->crc64, own->crc64, own->bytes) : own->crc64;
	/* The part list of a multipart upload no longer describes the object. */
	if (s3_meta_set_hidden(
		    headers, SLICE(S3_PARTS_HEADER), SLICE_NONE, &call->arena, &headers) ||
		s3_meta_set_hidden(
			headers, SLICE(S3_PART_SUMS_HEADER), SLICE_NONE, &call->arena, &headers))
		return s3_error_at(S3_E_SLOW_DOWN);
	meta->headers = headers.data;
	meta->headers_len = (uint32_t)headers.len;
	meta->checksum_flags &= (uint8_t)~S3_FLAG_COMPOSITE;
	if (base->bytes && !(base->checksum_flags & S3_FLAG_COMPOSITE) &&
		own->checksum_type == base->checksum_type &&
		(own->checksum_type == CHECKSUM_CRC32 || own->checksum_type == CHECKSUM_CRC32C)) {
		checksum_join((enum checksum_kind)own->checksum_type, meta->checksum, own->checksum,
			own->bytes);
	} else if (base->bytes) {
		meta->checksum_type = CHECKSUM_CRC64NVME;
		meta->checksum_len = (uint8_t)checksum_bytes(CHECKSUM_CRC64NVME);
		s3_crc64_digest(meta->crc64, meta->checksum);
	} else {
		meta->checksum_type = own->checksum_type;
		meta->checksum_len = own->checksum_len;
		memcpy(meta->checksum, own->checksum, sizeof(meta->checksum));
	}
	s3_etag_of_crc(meta);
	return NULL;
}

static const struct s3_error *failed(struct s3_call *call, struct append *append, int error)
{
	struct store_get *get;
	bool ignored;
	uint64_t bytes;

	if (error != -ESTALE)
		return s3_fail_errno(call, error);
	/* Another append was committed first. */
	error = store_get_open(call->s3->store, call->bucket, call->key, &get, &ignored);
	if (error)
		return s3_fail_errno(call, error);
	bytes = store_get_meta(get)->bytes;
	store_get_close(get);
	return bytes == append->offset ? s3_error_at(S3_E_CONDITIONAL_REQUEST_CONFLICT)
				       : bad_offset(call, append);
}

static const struct s3_error *move(struct s3_call *call, struct append *append,
	const struct s3_sums *sums, struct store_put *put, struct store_meta *meta)
{
	struct store_meta own = {0};
	const struct s3_error *error;
	int ret = store_put_append(put, append->get);

	if (ret == -E2BIG)
		return s3_error_at(S3_E_TOO_MANY_PARTS);
	if (ret)
		return s3_fail_errno(call, ret);
	error = s3_store_body(call, sums, put, &own);
	if (!error && append->base->bytes + own.bytes > LIMIT_OBJECT_BYTES_MAX)
		error = s3_error_at(S3_E_ENTITY_TOO_LARGE);
	return error ? error : join(call, append, &own, meta);
}

static const struct s3_error *store(struct s3_call *call, struct append *append,
	const struct s3_sums *sums, struct store_meta *meta)
{
	const struct store_put_opts opts = {.bucket = call->bucket,
		.key = call->key,
		.bytes = call->request->body->bytes,
		.bucket_id = s3_call_bucket_id(call)};
	struct s3_write_condition condition;
	const struct s3_error *error;
	struct store_put *put;
	struct s3_sse sse;
	int ret;

	error = s3_write_condition_parse(call, &condition);
	if (!error)
		error = open_sse(call, append->base, &sse);
	if (error)
		return error;
	ret = store_put_open(call->s3->store, &opts, &put);
	if (ret)
		return ret == -ENOENT ? s3_error_at(S3_E_NO_SUCH_BUCKET) : s3_fail_errno(call, ret);
	call->sse = sse.kind == S3_SSE_NONE ? NULL : &sse;
	error = move(call, append, sums, put, meta);
	call->sse = NULL;
	if (error) {
		store_put_abort(put);
		return error;
	}
	ret = s3_event_commit(call, S3_EVENT_PUT, put, meta, &condition);
	if (ret)
		return ret == -ECANCELED || ret == -ENOENT ? s3_write_failed(call, &condition, ret)
							   : failed(call, append, ret);
	s3_sse_answer(call, &sse);
	s3_answer_u64(call, SLICE("x-amz-object-size"), meta->bytes);
	return NULL;
}

const struct s3_error *s3_append_object(
	struct s3_call *call, const struct s3_put_input *input, struct store_meta *meta)
{
	struct append append = {0};
	const struct s3_error *error;
	struct s3_sums sums;

	error = open_base(call, &append);
	if (!error)
		error = check_request(call, &append);
	if (!error && !append.get)
		return s3_put_object(call, input, meta);
	if (!error)
		error = s3_sums_parse(call, &sums);
	if (!error)
		error = check_sums(call, append.base, &sums);
	if (!error)
		error = store(call, &append, &sums, meta);
	if (append.get)
		store_get_close(append.get);
	return error;
}
