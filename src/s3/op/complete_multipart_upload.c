/* s3/op/complete_multipart_upload.c: CompleteMultipartUpload: joins parts into the object. Readers
 * see the whole object or nothing. */
#include <errno.h>
#include <stdio.h>

#include "s3/auth/auth.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/conditions.h"
#include "s3/core/named.h"
#include "s3/core/stored.h"
#include "s3/core/xml_in.h"
#include "s3/event/notification.h"
#include "s3/object/lifecycle.h"
#include "s3/object/multipart.h"
#include "s3/object/origin.h"
#include "s3/operation.h"
#include "s3/sse/sse.h"

struct part {
	uint32_t number;
	struct slice etag;     /* as the client sent it */
	struct slice checksum; /* base64; empty: not given */
	struct slice
		other; /* if checksum is empty: the element name of a checksum of another kind */
	struct store_get *get;
	const struct store_meta *meta;
};

struct completion {
	struct part *parts;
	uint32_t count;
	uint64_t bytes;
};

/* ---- The client's document. ---- */

static const struct s3_error *parse_part(
	struct s3_call *call, const struct s3_xml *node, enum checksum_kind kind, struct part *part)
{
	char element[32];
	uint64_t number;

	if (!slice_eq(node->name, SLICE("Part")) ||
		slice_to_u64(slice_trim(s3_xml_text(node, "PartNumber")), &number) ||
		!s3_xml_child(node, "ETag"))
		return s3_error_at(S3_E_MALFORMED_XML);
	if (number < 1 || number > S3_PARTS_MAX)
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"PartNumber must be between 1 and %u, inclusive", S3_PARTS_MAX);
	snprintf(element, sizeof(element), "Checksum%.*s", SLICE_FMT(checksum_name(kind)));
	*part = (struct part){.number = (uint32_t)number,
		.etag = s3_xml_text(node, "ETag"),
		.checksum = s3_xml_text(node, element)};
	for (const struct s3_xml *at = node->child; at && !part->checksum.len; at = at->next)
		if (slice_starts(at->name, SLICE("Checksum")) &&
			!slice_eq(at->name, SLICE("ChecksumType")))
			part->other = at->name;
	return NULL;
}

static const struct s3_error *of_upload(struct s3_call *call, enum s3_error_id error)
{
	struct slice id = SLICE_NONE;

	s3_call_param(call, SLICE("uploadId"), &id);
	s3_fail_detail(call, "UploadId", id);
	return s3_error_at(error);
}

static const struct s3_error *read_document(struct s3_call *call, struct slice *ret_body)
{
	/* x-amz-checksum-… of this request is the checksum of the object, not of this document. */
	const struct s3_sums no_sums = {
		.payload_sha256 = call->signing.payload == S3_PAYLOAD_SHA256};

	return s3_call_read(call, &no_sums, ret_body);
}

static const struct s3_error *parse(struct s3_call *call, struct slice body,
	enum checksum_kind kind, struct completion *completion)
{
	const struct s3_error *error;
	struct s3_xml *root;
	int ret;

	if (!body.len)
		return s3_fail(call, S3_E_INVALID_REQUEST, "You must specify at least one part");
	ret = s3_xml_parse(body, &call->arena, &root);
	if (ret == -ENOMEM)
		return s3_error_at(S3_E_SLOW_DOWN);
	if (ret || !slice_eq(root->name, SLICE("CompleteMultipartUpload")) || !root->child)
		return s3_error_at(S3_E_MALFORMED_XML);
	completion->parts = mem_arena_get(&call->arena, S3_PARTS_MAX * sizeof(*completion->parts));
	if (!completion->parts)
		return s3_error_at(S3_E_SLOW_DOWN);
	for (const struct s3_xml *node = root->child; node; node = node->next) {
		struct part *part = &completion->parts[completion->count];

		if (completion->count == S3_PARTS_MAX)
			return s3_error_at(S3_E_MALFORMED_XML);
		error = parse_part(call, node, kind, part);
		if (error)
			return error;
		if (completion->count && part->number <= part[-1].number)
			return of_upload(call, S3_E_INVALID_PART_ORDER);
		completion->count++;
	}
	return NULL;
}

/* ---- The stored parts. ---- */

static const struct s3_error *bad_part(struct s3_call *call, const struct part *part)
{
	char number[12];
	int len = snprintf(number, sizeof(number), "%u", part->number);

	s3_fail_detail(call, "PartNumber", slice_of(number, (size_t)len));
	s3_fail_detail(call, "ETag", s3_etag_bare(part->etag));
	return of_upload(call, S3_E_INVALID_PART);
}

/* "crc32" */
static struct slice kind_word(enum checksum_kind kind)
{
	return slice_from(checksum_header(kind), strlen("x-amz-checksum-"));
}

/* For a composite checksum the client must send the parts' checksums; checksums of another kind are
 * refused. */
static const struct s3_error *check_part_sum(
	struct s3_call *call, const struct s3_upload *upload, const struct part *part)
{
	char text[CHECKSUM_TEXT_LEN_MAX];

	if (part->other.len && !upload->composite)
		return bad_part(call, part);
	if (part->other.len)
		return s3_fail(call, S3_E_BAD_DIGEST,
			"The %.*s that you specified for part %u is not of the %.*s kind that the "
			"upload was created with.",
			SLICE_FMT(part->other), part->number, SLICE_FMT(kind_word(upload->kind)));
	if (!part->checksum.len && upload->composite)
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"The upload was created using a %.*s checksum. The complete request must "
			"include the checksum for each part. It was missing for part %u in the "
			"request.",
			SLICE_FMT(kind_word(upload->kind)), part->number);
	if (part->checksum.len && part->meta->checksum_type == upload->kind &&
		!slice_eq(part->checksum, slice_of(text, base64_encode(part->meta->checksum,
								 part->meta->checksum_len, text))))
		return bad_part(call, part);
	return NULL;
}

static const struct s3_error *open_part(
	struct s3_call *call, const struct s3_upload *upload, struct part *part)
{
	char name[S3_UPLOAD_NAME_MAX];
	bool ignored;
	int ret;

	ret = store_get_open(call->s3->store, SLICE(S3_UPLOADS_BUCKET),
		s3_upload_name(call->bucket, upload->id, part->number, name), &part->get, &ignored);
	if (ret == -ENOENT)
		return bad_part(call, part);
	if (ret)
		return s3_fail_errno(call, ret);
	part->meta = store_get_meta(part->get);
	if (!slice_eq(s3_etag_bare(part->etag), slice_str(part->meta->etag)))
		return bad_part(call, part);
	return check_part_sum(call, upload, part);
}

static const struct s3_error *too_small(struct s3_call *call, const struct part *part)
{
	char digits[SLICE_U64_MAX];

	s3_fail_detail(call, "ETag", slice_str(part->meta->etag));
	s3_fail_detail(call, "PartNumber", slice_of_u64(part->number, digits));
	s3_fail_detail(call, "MinSizeAllowed", slice_of_u64(S3_PART_BYTES_MIN, digits));
	s3_fail_detail(call, "ProposedSize", slice_of_u64(part->meta->bytes, digits));
	return s3_error_at(S3_E_ENTITY_TOO_SMALL);
}

static const struct s3_error *open_parts(
	struct s3_call *call, const struct s3_upload *upload, struct completion *completion)
{
	for (uint32_t i = 0; i < completion->count; i++) {
		struct part *part = &completion->parts[i];
		const struct s3_error *error = open_part(call, upload, part);

		if (error)
			return error;
		if (i + 1 < completion->count && part->meta->bytes < S3_PART_BYTES_MIN)
			return too_small(call, part);
		completion->bytes += part->meta->bytes;
	}
	return completion->bytes > LIMIT_OBJECT_BYTES_MAX ? s3_error_at(S3_E_ENTITY_TOO_LARGE)
							  : NULL;
}

/* -ESTALE: the stored parts are no longer those that were opened. */
static const struct s3_error *compose_failed(
	struct s3_call *call, const struct s3_upload *upload, int error)
{
	if (error == -EFBIG)
		return s3_fail(call, S3_E_ENTITY_TOO_LARGE,
			"The upload has more parts than one commit in the store's log can hold.");
	if (error != -ESTALE)
		return s3_fail_errno(call, error);
	s3_fail_detail(call, "UploadId", slice_str(upload->id));
	return s3_error_at(S3_E_INVALID_PART);
}

static void close_parts(struct completion *completion)
{
	for (uint32_t i = 0; i < completion->count; i++)
		if (completion->parts[i].get)
			store_get_close(completion->parts[i].get);
}

/* ---- The new object. ---- */

/* The MD5 of the parts' MD5s, and their number. A part without an MD5 contributes the text of its
 * ETag.
 */
static void add_etag(struct md5 *md5, struct slice etag)
{
	uint8_t digest[MD5_BYTES];

	if (hex_decode(etag, digest, sizeof(digest)) == 0)
		md5_update(md5, digest, sizeof(digest));
	else
		md5_update(md5, etag.data, etag.len);
}

static void end_etag(struct md5 *md5, uint32_t count, struct store_meta *meta)
{
	uint8_t digest[MD5_BYTES];

	md5_final(md5, digest);
	hex_encode(digest, sizeof(digest), meta->etag);
	snprintf(meta->etag + 2 * MD5_BYTES, sizeof(meta->etag) - 2 * MD5_BYTES, "-%u", count);
}

static void join_etags(const struct completion *completion, struct store_meta *meta)
{
	struct md5 md5;

	md5_init(&md5);
	for (uint32_t i = 0; i < completion->count; i++)
		add_etag(&md5, slice_str(completion->parts[i].meta->etag));
	end_etag(&md5, completion->count, meta);
}

/* The checksum of the parts' checksums. */
static const struct s3_error *join_checksums(struct s3_call *call, const struct s3_upload *upload,
	const struct completion *completion, struct store_meta *meta)
{
	struct checksum sum;

	checksum_init(&sum, upload->kind);
	for (uint32_t i = 0; i < completion->count; i++) {
		const struct store_meta *part = completion->parts[i].meta;

		if (part->checksum_type != upload->kind)
			return bad_part(call, &completion->parts[i]);
		checksum_update(&sum, part->checksum, part->checksum_len);
	}
	meta->checksum_type = (uint8_t)upload->kind;
	meta->checksum_flags |= S3_FLAG_COMPOSITE;
	meta->checksum_len = (uint8_t)checksum_final(&sum, meta->checksum);
	return NULL;
}

/* Compares x-amz-checksum-… and x-amz-mp-object-size of this request with the object. A composite
 * checksum may end with the number of parts. */
static const struct s3_error *check_whole(struct s3_call *call, const struct store_meta *meta)
{
	enum checksum_kind of_object = (enum checksum_kind)meta->checksum_type;
	struct slice value = s3_call_header(call, checksum_header(of_object));
	struct slice size = s3_call_header(call, SLICE("x-amz-mp-object-size"));
	struct slice text = s3_checksum_text(call, meta);
	struct slice rest = text;
	uint64_t bytes;

	if (size.len && (slice_to_u64(size, &bytes) || bytes != meta->bytes))
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"The provided 'x-amz-mp-object-size' header value %.*s does not match what "
			"was computed: %llu",
			SLICE_FMT(size), (unsigned long long)meta->bytes);
	for (int kind = CHECKSUM_NONE + 1; kind < CHECKSUM_KIND_COUNT; kind++)
		if (kind != (int)of_object &&
			s3_call_has_header(call, checksum_header((enum checksum_kind)kind)))
			return s3_fail(call, S3_E_BAD_DIGEST,
				"The %.*s you specified did not match the calculated checksum.",
				SLICE_FMT(kind_word((enum checksum_kind)kind)));
	if (value.len && !slice_eq(value, text) && !slice_eq(value, slice_split(&rest, '-')))
		return s3_fail(call, S3_E_BAD_DIGEST,
			"The checksum you specified did not match the calculated checksum.");
	return NULL;
}

/* Computes the object's CRCs from the parts'; reads no bodies. */
static const struct s3_error *join_crcs(struct s3_call *call, const struct s3_upload *upload,
	const struct completion *completion, struct store_meta *meta)
{
	const struct store_meta *first = completion->parts[0].meta;

	meta->crc64 = first->crc64;
	memcpy(meta->checksum, first->checksum, first->checksum_len);
	for (uint32_t i = 0; i < completion->count; i++) {
		const struct store_meta *part = completion->parts[i].meta;

		if (upload->kind != CHECKSUM_CRC64NVME && part->checksum_type != upload->kind)
			return bad_part(call, &completion->parts[i]);
		if (!i)
			continue;
		meta->crc64 = crc64nvme_join(meta->crc64, part->crc64, part->bytes);
		if (upload->kind != CHECKSUM_CRC64NVME)
			checksum_join(upload->kind, meta->checksum, part->checksum, part->bytes);
	}
	if (upload->kind == CHECKSUM_CRC64NVME)
		s3_crc64_digest(meta->crc64, meta->checksum);
	meta->checksum_type = (uint8_t)upload->kind;
	meta->checksum_len = (uint8_t)checksum_bytes(upload->kind);
	return NULL;
}

static const struct s3_error *join(struct s3_call *call, const struct s3_upload *upload,
	const struct completion *completion, struct store_meta *meta)
{
	const struct s3_error *error;

	meta->bytes = completion->bytes;
	join_etags(completion, meta);
	if (upload->composite)
		error = join_checksums(call, upload, completion, meta);
	else
		error = join_crcs(call, upload, completion, meta);
	return error ? error : check_whole(call, meta);
}

/* Parts that the client did not name: without the record nothing refers to them, so the same commit
 * deletes them. */
struct unnamed {
	struct s3_call *call;
	const struct completion *completion;
	struct store_put *put;
	uint32_t idx; /* into the named parts, which come in the same order */
	char last[S3_UPLOAD_NAME_MAX];
	int ret;
};

static void unnamed_visit(const struct store_list_entry *entry, void *arg)
{
	struct unnamed *unnamed = arg;
	const struct completion *completion = unnamed->completion;
	struct slice digits = slice_from(entry->key, entry->key.len - strlen("00001"));
	struct store_get *get;
	uint64_t number = 0;
	bool ignored;

	slice_copy_str(entry->key, unnamed->last, sizeof(unnamed->last));
	slice_to_u64(digits, &number);
	while (unnamed->idx < completion->count && completion->parts[unnamed->idx].number < number)
		unnamed->idx++;
	if (unnamed->ret || (unnamed->idx < completion->count &&
				    completion->parts[unnamed->idx].number == number))
		return;
	unnamed->ret = store_get_open(
		unnamed->call->s3->store, SLICE(S3_UPLOADS_BUCKET), entry->key, &get, &ignored);
	if (unnamed->ret)
		return;
	unnamed->ret = store_put_drop(unnamed->put, SLICE(S3_UPLOADS_BUCKET), entry->key, get);
	store_get_close(get);
}

static int drop_unnamed(struct s3_call *call, const struct s3_upload *upload,
	const struct completion *completion, struct store_put *put)
{
	struct unnamed unnamed = {.call = call, .completion = completion, .put = put};
	char name[S3_UPLOAD_NAME_MAX];
	struct slice prefix = s3_upload_name(call->bucket, upload->id, 1, name);
	bool more = true;
	int ret = 0;

	prefix.len -= strlen("00001");
	while (more && !ret) {
		const struct store_list_opts opts = {.bucket = SLICE(S3_UPLOADS_BUCKET),
			.prefix = prefix,
			.after = slice_str(unnamed.last),
			.entries_max = LIMIT_LIST_KEYS_MAX};

		ret = store_list(call->s3->store, &opts, unnamed_visit, &unnamed, &more);
		ret = ret ? ret : unnamed.ret;
	}
	return ret == -ENOENT ? -ESTALE : ret;
}

/* Gives the parts' bodies to the object, and deletes the rest of the upload in the same commit. The
 * record is the first to go: a request that finds a part gone finds the record gone, too. */
static const struct s3_error *compose(struct s3_call *call, const struct s3_upload *upload,
	const struct completion *completion, struct store_put *put)
{
	char name[S3_UPLOAD_NAME_MAX];
	int ret = store_put_drop(put, SLICE(S3_UPLOADS_BUCKET),
		s3_upload_name(call->bucket, upload->id, 0, name), upload->get);

	for (uint32_t i = 0; i < completion->count && !ret; i++) {
		const struct part *part = &completion->parts[i];

		ret = store_put_compose(put, SLICE(S3_UPLOADS_BUCKET),
			s3_upload_name(call->bucket, upload->id, part->number, name), part->get);
	}
	if (!ret)
		ret = drop_unnamed(call, upload, completion, put);
	return ret ? compose_failed(call, upload, ret) : NULL;
}

/* The data for GetObjectAttributes about parts whose checksums form the object's. */
static void put_part_sums(
	const struct s3_upload *upload, const struct completion *completion, struct buf *out)
{
	size_t len = BASE64_LEN(checksum_bytes(upload->kind));
	char text[CHECKSUM_TEXT_LEN_MAX];

	if (!upload->composite || out->len + len * completion->count > S3_META_BYTES_MAX / 2)
		return;
	buf_put(out, S3_PART_SUMS_HEADER, sizeof(S3_PART_SUMS_HEADER));
	for (uint32_t i = 0; i < completion->count; i++) {
		const struct store_meta *part = completion->parts[i].meta;

		buf_put(out, text, base64_encode(part->checksum, part->checksum_len, text));
	}
	buf_put(out, "", 1);
}

/* Keeps the upload's headers and the lengths of its parts. */
static const struct s3_error *keep_headers(struct s3_call *call, const struct s3_upload *upload,
	const struct completion *completion, struct store_meta *meta)
{
	struct slice kept;
	struct buf out;
	size_t plain_len;

	buf_init(&out, 8 * LIMIT_HTTP_HEAD_BYTES_MAX + 24 * S3_PARTS_MAX);
	buf_put(&out, upload->meta->headers, upload->meta->headers_len);
	buf_put(&out, S3_UPLOAD_HEADER, sizeof(S3_UPLOAD_HEADER));
	buf_put(&out, upload->id, sizeof(upload->id));
	plain_len = out.len;
	buf_put(&out, S3_PARTS_HEADER, sizeof(S3_PARTS_HEADER));
	for (uint32_t i = 0, run; i < completion->count; i += run) {
		uint64_t bytes = completion->parts[i].meta->bytes;

		for (run = 1; i + run < completion->count; run++)
			if (completion->parts[i + run].meta->bytes != bytes)
				break;
		buf_printf(&out, "%s%llu*%u", i ? "," : "", (unsigned long long)bytes, run);
	}
	buf_put(&out, "", 1);
	put_part_sums(upload, completion, &out);
	kept = buf_slice(&out);
	/* The lengths of thousands of different parts do not fit in a record: the object then
	 * cannot be read by part number. */
	if (kept.len > S3_META_BYTES_MAX - S3_REPLICA_BYTES_MAX)
		kept = slice_to(kept, plain_len);
	kept = mem_arena_copy(&call->arena, kept);
	meta->headers = kept.data;
	meta->headers_len = (uint32_t)kept.len;
	if (out.failed)
		kept = SLICE_NONE;
	buf_free(&out);
	return kept.data ? NULL : s3_error_at(S3_E_SLOW_DOWN);
}

static const struct s3_error *store_object(struct s3_call *call, const struct s3_upload *upload,
	const struct completion *completion, struct store_meta *meta)
{
	const struct store_put_opts opts = {.bucket = call->bucket,
		.key = call->key,
		.bytes = UINT64_MAX,
		.bucket_id = upload->bucket_id};
	struct s3_write_condition condition;
	const struct s3_error *error;
	struct store_put *put;
	int ret;

	error = s3_write_condition_parse(call, &condition);
	if (error)
		return error;
	ret = store_put_open(call->s3->store, &opts, &put);
	if (ret)
		return ret == -ENOENT ? s3_error_at(S3_E_NO_SUCH_BUCKET) : s3_fail_errno(call, ret);
	meta->checksum_flags = upload->meta->checksum_flags & (uint8_t)~S3_FLAG_UNASKED;
	error = keep_headers(call, upload, completion, meta);
	if (!error)
		error = join(call, upload, completion, meta);
	s3_origin_keep(call, meta);
	if (!error)
		error = compose(call, upload, completion, put);
	if (error) {
		store_put_abort(put);
		return error;
	}
	ret = s3_event_commit(call, S3_EVENT_COMPLETE, put, meta, &condition);
	if (ret == -ESTALE || ret == -EFBIG)
		return compose_failed(call, upload, ret);
	return ret ? s3_write_failed(call, &condition, ret) : NULL;
}

static const struct s3_error *answer(struct s3_call *call, const struct store_meta *meta)
{
	struct slice host = s3_call_header(call, SLICE("host"));
	struct buf xml;

	s3_answer_version(call, meta);
	s3_lifecycle_answer(call, meta);
	s3_xml_begin(&xml, "CompleteMultipartUploadResult");
	buf_put_str(&xml, "<Location>http://");
	if (utf8_is_valid(host))
		xml_escape(host, &xml);
	buf_put(&xml, "/", 1);
	xml_escape(call->bucket, &xml);
	buf_put(&xml, "/", 1);
	uri_encode(call->key, URI_KEEP_SLASH, &xml);
	buf_put_str(&xml, "</Location>");
	xml_element("Bucket", call->bucket, &xml);
	xml_element("Key", call->key, &xml);
	s3_xml_etag(&xml, meta->etag);
	s3_xml_checksum(&xml, meta);
	s3_xml_end(&xml, "CompleteMultipartUploadResult");
	return s3_answer_xml(call, 200, &xml);
}

/* x-amz-checksum-type repeats the type that the upload was created with. */
static const struct s3_error *check_type(struct s3_call *call, const struct s3_upload *upload)
{
	struct slice said = s3_call_header(call, SLICE("x-amz-checksum-type"));
	struct slice is = upload->composite ? SLICE("COMPOSITE") : SLICE("FULL_OBJECT");

	if (!said.len || slice_eq_nocase(said, is))
		return NULL;
	return s3_fail(call, S3_E_INVALID_REQUEST,
		"The upload was created using the %.*s checksum mode. The complete request must "
		"use the same checksum mode.",
		SLICE_FMT(is));
}

/* ---- Repeated requests. ---- */

/* Whether the client's part list gives the ETag of the existing object. */
static bool is_same(const struct completion *completion, const struct store_meta *meta)
{
	struct store_meta said = {0};
	struct md5 md5;

	md5_init(&md5);
	for (uint32_t i = 0; i < completion->count; i++) {
		struct slice etag = slice_trim(completion->parts[i].etag);

		if (etag.len > 1 && etag.data[0] == '"' && etag.data[etag.len - 1] == '"')
			etag = slice_of(etag.data + 1, etag.len - 2);
		add_etag(&md5, etag);
	}
	end_etag(&md5, completion->count, &said);
	return strcmp(said.etag, meta->etag) == 0;
}

/* Whether the existing object is that of the call's upload, with the parts of the client's
 * document. A document that is none names other parts; one that could not be read is an error. */
static const struct s3_error *compare(struct s3_call *call, const struct store_meta *meta,
	struct completion *completion, bool *ret_same)
{
	const struct s3_error *error;
	struct slice id = SLICE_NONE, body;

	*ret_same = false;
	s3_call_param(call, SLICE("uploadId"), &id);
	if (!slice_eq(s3_meta_hidden(
			      slice_of(meta->headers, meta->headers_len), SLICE(S3_UPLOAD_HEADER)),
		    id))
		return NULL;
	if (!completion->count) {
		error = read_document(call, &body);
		if (error)
			return error;
		error = parse(call, body, (enum checksum_kind)meta->checksum_type, completion);
		if (error)
			return error->status >= 500 ? error : NULL;
	}
	*ret_same = is_same(completion, meta);
	return NULL;
}

/* A client that did not receive the answer sends the request again. While the key still has the
 * object of that upload, the answer is the same; otherwise it is NoSuchUpload. A failure is
 * neither: the client must try again. The completion is empty if the client's document was not read
 * yet. */
static const struct s3_error *complete_again(struct s3_call *call, struct completion *completion)
{
	const struct s3_error *error;
	const struct store_meta *meta;
	struct store_get *get;
	struct s3_sse sse;
	bool ignored, same;
	int ret;

	call->message = NULL;
	call->detail = SLICE_NONE;
	ret = store_get_open(call->s3->store, call->bucket, call->key, &get, &ignored);
	if (ret)
		return ret == -ENOENT ? of_upload(call, S3_E_NO_SUCH_UPLOAD)
				      : s3_fail_errno(call, ret);
	meta = store_get_meta(get);
	error = compare(call, meta, completion, &same);
	if (!error && same) {
		s3_sse_describe(slice_of(meta->headers, meta->headers_len), &sse);
		s3_sse_answer(call, &sse);
		error = answer(call, meta);
	} else if (!error) {
		call->message = NULL;
		call->detail = SLICE_NONE;
		error = of_upload(call, S3_E_NO_SUCH_UPLOAD);
	}
	store_get_close(get);
	return error;
}

/* A client may send the request again while the first one is on its way, which then takes the parts
 * away, and may make a condition fail. Once the upload has ended, this request is answered like one
 * that came later. */
static const struct s3_error *complete_if_ended(struct s3_call *call,
	const struct s3_upload *upload, struct completion *completion, const struct s3_error *error)
{
	char name[S3_UPLOAD_NAME_MAX];
	struct store_get *get;
	bool ignored;
	int ret = store_get_open(call->s3->store, SLICE(S3_UPLOADS_BUCKET),
		s3_upload_name(call->bucket, upload->id, 0, name), &get, &ignored);

	if (!ret) {
		store_get_close(get);
		return error;
	}
	if (ret != -ENOENT)
		return s3_fail_errno(call, ret);
	return complete_again(call, completion);
}

const struct s3_error *s3_op_complete_multipart_upload(struct s3_call *call)
{
	struct completion completion = {0};
	struct store_meta meta = {0};
	const struct s3_error *error;
	struct s3_upload upload;
	struct slice body;
	struct s3_sse sse;

	error = s3_upload_open(call, &upload);
	if (error == s3_error_at(S3_E_NO_SUCH_UPLOAD))
		return complete_again(call, &completion);
	if (error)
		return error;
	error = read_document(call, &body);
	if (!error)
		error = parse(call, body, upload.kind, &completion);
	if (!error)
		error = check_type(call, &upload);
	if (!error)
		error = open_parts(call, &upload, &completion);
	if (!error)
		error = store_object(call, &upload, &completion, &meta);
	close_parts(&completion);
	s3_upload_close(&upload);
	if (error == s3_error_at(S3_E_INVALID_PART) ||
		error == s3_error_at(S3_E_PRECONDITION_FAILED))
		return complete_if_ended(call, &upload, &completion, error);
	if (error)
		return error;
	/* The object exists and the upload has ended; deletes parts that arrived in the meantime,
	 * too. */
	if (s3_upload_delete(call, upload.id))
		log_warn("s3", "parts of the completed upload %s remain in the store", upload.id);
	s3_sse_describe(slice_of(meta.headers, meta.headers_len), &sse);
	s3_sse_answer(call, &sse);
	return answer(call, &meta);
}
