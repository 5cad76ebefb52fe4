/* s3/object/multipart.c: multipart uploads: names, records, completion and deletion. */
#include "s3/object/multipart.h"

#include <errno.h>
#include <stdio.h>

#include "document/document.h"
#include "s3/core/call.h"
#include "s3/core/stored.h"
#include "s3/sse/sse.h"

/* bucket_id 0: as earlier versions made it. */
static void place_hash(uint64_t bucket_id, struct slice key, char ret_hex[16])
{
	uint8_t digest[SHA256_BYTES];
	struct sha256 sha256;
	char id[17];

	sha256_init(&sha256);
	sha256_update(&sha256, key.data, key.len);
	if (bucket_id) {
		snprintf(id, sizeof(id), "%016llx", (unsigned long long)bucket_id);
		sha256_update(&sha256, "", 1);
		sha256_update(&sha256, id, 16);
	}
	sha256_final(&sha256, digest);
	hex_encode(digest, 8, ret_hex);
}

void s3_upload_id_make(uint64_t bucket_id, struct slice key, char ret_id[S3_UPLOAD_ID_LEN + 1])
{
	uint64_t now_ns = clock_real_ns();
	uint8_t bytes[12];

	for (uint32_t i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(now_ns >> (56 - 8 * i));
	random_fill(bytes + 8, sizeof(bytes) - 8);
	hex_encode(bytes, sizeof(bytes), ret_id);
	place_hash(bucket_id, key, ret_id + 24);
	ret_id[S3_UPLOAD_ID_LEN] = '\0';
}

struct slice s3_upload_name(struct slice bucket, const char *id, uint32_t part_number,
	char ret_name[S3_UPLOAD_NAME_MAX])
{
	int len;

	if (part_number)
		len = snprintf(ret_name, S3_UPLOAD_NAME_MAX, "p/%.*s/%s/%05u", SLICE_FMT(bucket),
			id, part_number);
	else
		len = snprintf(ret_name, S3_UPLOAD_NAME_MAX, "u/%.*s/%s", SLICE_FMT(bucket), id);
	CHECK(len > 0 && len < (int)S3_UPLOAD_NAME_MAX);
	return slice_of(ret_name, (size_t)len);
}

/* An id of an earlier version does not tell its bucket: it is of the one that has the name, unless
 * that was made later. */
bool s3_upload_is_of(
	struct slice id, struct slice key, const struct store_bucket *bucket, uint64_t began_ns)
{
	uint8_t ignored[S3_UPLOAD_ID_LEN / 2];
	char hash[16];

	if (hex_decode(id, ignored, sizeof(ignored)))
		return false;
	place_hash(bucket->id, key, hash);
	if (memcmp(id.data + 24, hash, sizeof(hash)) == 0)
		return true;
	place_hash(0, key, hash);
	return memcmp(id.data + 24, hash, sizeof(hash)) == 0 && began_ns >= bucket->created_ns;
}

int s3_upload_key(struct flow_core *core, struct store_get *record, struct buf *key)
{
	struct flow_source *source;
	int ret = store_get_source(record, core, 0, store_get_meta(record)->bytes, &source);

	return ret ? ret : document_read_source(core, source, key);
}

static const struct s3_error *no_such_upload(struct s3_call *call, struct slice id)
{
	s3_fail_detail(call, "UploadId", id);
	return s3_error_at(S3_E_NO_SUCH_UPLOAD);
}

const struct s3_error *s3_upload_open(struct s3_call *call, struct s3_upload *ret_upload)
{
	char name[S3_UPLOAD_NAME_MAX];
	struct slice id = SLICE_NONE;
	const struct s3_error *error;
	struct store_bucket bucket;
	bool ignored;
	int ret;

	s3_call_param(call, SLICE("uploadId"), &id);
	error = s3_call_bucket(call, &bucket);
	if (error)
		return error;
	if (!s3_upload_is_of(id, call->key, &bucket, UINT64_MAX))
		return no_such_upload(call, id);
	slice_copy_str(id, ret_upload->id, sizeof(ret_upload->id));
	ret = store_get_open(call->s3->store, SLICE(S3_UPLOADS_BUCKET),
		s3_upload_name(call->bucket, ret_upload->id, 0, name), &ret_upload->get, &ignored);
	if (ret)
		return ret == -ENOENT ? no_such_upload(call, id) : s3_fail_errno(call, ret);
	if (!s3_upload_is_of(id, call->key, &bucket, store_get_meta(ret_upload->get)->mtime_ns)) {
		store_get_close(ret_upload->get);
		return no_such_upload(call, id);
	}
	ret_upload->bucket_id = bucket.id;
	ret_upload->meta = store_get_meta(ret_upload->get);
	ret_upload->kind = (enum checksum_kind)ret_upload->meta->checksum_type;
	ret_upload->composite = ret_upload->meta->checksum_flags & S3_FLAG_COMPOSITE;
	ret_upload->asked = !(ret_upload->meta->checksum_flags & S3_FLAG_UNASKED);
	return NULL;
}

const struct s3_error *s3_upload_still_there(
	struct s3_call *call, const struct s3_upload *upload, uint32_t part_number)
{
	char name[S3_UPLOAD_NAME_MAX];
	struct store_get *get;
	bool ignored;
	int ret;

	ret = store_get_open(call->s3->store, SLICE(S3_UPLOADS_BUCKET),
		s3_upload_name(call->bucket, upload->id, 0, name), &get, &ignored);
	if (ret == 0) {
		store_get_close(get);
		return NULL;
	}
	if (ret != -ENOENT)
		return s3_fail_errno(call, ret);
	ret = store_delete(call->s3->store, SLICE(S3_UPLOADS_BUCKET),
		s3_upload_name(call->bucket, upload->id, part_number, name), NULL, NULL);
	return ret ? s3_fail_errno(call, ret) : no_such_upload(call, slice_str(upload->id));
}

const struct s3_error *s3_upload_sse(
	struct s3_call *call, const struct s3_upload *upload, struct s3_sse *ret_sse)
{
	const struct s3_error *error = s3_sse_open(call,
		slice_of(upload->meta->headers, upload->meta->headers_len), &s3_sse_names, ret_sse);

	/* A read with another key is denied; a write with another key is an invalid request. */
	return error == s3_error_at(S3_E_ACCESS_DENIED) ? s3_error_at(S3_E_INVALID_REQUEST) : error;
}

const struct s3_error *s3_upload_room(struct s3_call *call, uint64_t bytes)
{
	int ret = store_bucket_room(call->s3->store, call->bucket, call->key, bytes);

	if (ret == -ENOENT)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	return ret ? s3_fail_errno(call, ret) : NULL;
}

void s3_upload_close(struct s3_upload *upload)
{
	store_get_close(upload->get);
}

/* ---- Deleting. ---- */

/* Parts go first: a record without parts can be aborted again, parts without a record would never
 * be found. They also go last: a part that was committed behind the first round, and whose request
 * still found the record (s3_upload_still_there), was committed before the record's deletion. */
int s3_upload_drop(struct s3 *s3, struct slice name)
{
	char parts[S3_UPLOAD_NAME_MAX + 1];
	int ret;

	snprintf(parts, sizeof(parts), "p%.*s/", SLICE_FMT(slice_from(name, 1)));
	ret = document_delete_under(s3->store, SLICE(S3_UPLOADS_BUCKET), slice_str(parts));
	if (!ret)
		ret = store_delete(s3->store, SLICE(S3_UPLOADS_BUCKET), name, NULL, NULL);
	if (!ret)
		ret = document_delete_under(s3->store, SLICE(S3_UPLOADS_BUCKET), slice_str(parts));
	return ret;
}

const struct s3_error *s3_upload_delete(struct s3_call *call, const char *id)
{
	char name[S3_UPLOAD_NAME_MAX];
	int ret = s3_upload_drop(call->s3, s3_upload_name(call->bucket, id, 0, name));

	return ret ? s3_fail_errno(call, ret) : NULL;
}

/* ---- Parameters of uploads in requests. ---- */

const struct s3_error *s3_part_number(struct s3_call *call, uint32_t *ret_number)
{
	struct slice text = SLICE_NONE;
	uint64_t number;

	s3_call_param(call, SLICE("partNumber"), &text);
	if (slice_to_u64(text, &number) || number < 1 || number > S3_PARTS_MAX)
		return s3_fail_argument(call, "partNumber", text,
			"Part number must be an integer between 1 and 10000, inclusive");
	*ret_number = (uint32_t)number;
	return NULL;
}

/* A full-object hash cannot be computed from the parts' hashes, and CRC-64 has no composite form;
 * the other CRCs support both. */
const struct s3_error *s3_upload_checksum(
	struct s3_call *call, enum checksum_kind *ret_kind, uint8_t *ret_flags)
{
	struct slice name = s3_call_header(call, SLICE("x-amz-checksum-algorithm"));
	struct slice type = s3_call_header(call, SLICE("x-amz-checksum-type"));
	bool full = slice_eq_nocase(type, SLICE("FULL_OBJECT"));
	bool composite = slice_eq_nocase(type, SLICE("COMPOSITE"));

	*ret_kind = CHECKSUM_CRC64NVME;
	if (name.len && checksum_kind_of_name(name, ret_kind))
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"Checksum algorithm provided is unsupported. Please try again with any of "
			"the valid types: [" CHECKSUM_NAMES "]");
	if (type.len && (!name.len || (!full && !composite)))
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"The x-amz-checksum-type header can only be used with the "
			"x-amz-checksum-algorithm header, and is COMPOSITE or FULL_OBJECT.");
	if ((composite && *ret_kind == CHECKSUM_CRC64NVME) ||
		(full && !checksum_can_join(*ret_kind)))
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"The %.*s checksum type cannot be used with the %.*s checksum algorithm.",
			SLICE_FMT(type), SLICE_FMT(checksum_name(*ret_kind)));
	*ret_flags = name.len ? 0 : (uint8_t)S3_FLAG_UNASKED;
	if (!full && *ret_kind != CHECKSUM_CRC64NVME)
		*ret_flags |= S3_FLAG_COMPOSITE;
	return NULL;
}
