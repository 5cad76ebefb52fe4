/* s3/object/meta.c: the headers that are stored with an object and returned with it, and refusal of
 * headers that ask for unsupported features. */
#include <errno.h>

#include "s3/auth/access.h"
#include "s3/auth/acl.h"
#include "s3/body/body.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/stored.h"
#include "s3/core/tags.h"
#include "s3/object/append.h"
#include "s3/object/lock.h"
#include "s3/object/object.h"
#include "s3/object/origin.h"
#include "s3/replicate/replicate.h"

#define META_PREFIX	     "x-amz-meta-"
#define CONTENT_TYPE_DEFAULT "binary/octet-stream"

/* Headers stored as received. */
static const struct slice kept[] = {SLICE("cache-control"), SLICE("content-disposition"),
	SLICE("content-encoding"), SLICE("content-language"), SLICE("content-type"),
	SLICE("expires")};

/* The spelling that AWS uses in answers; other names are not changed. */
static struct slice told_name(struct slice name)
{
	static const struct slice told[ARRAY_LEN(kept)] = {SLICE("Cache-Control"),
		SLICE("Content-Disposition"), SLICE("Content-Encoding"), SLICE("Content-Language"),
		SLICE("Content-Type"), SLICE("Expires")};

	for (size_t i = 0; i < ARRAY_LEN(kept); i++)
		if (slice_eq(name, kept[i]))
			return told[i];
	return name;
}

/* These ask for something that only the named operation, in a directory bucket, does: elsewhere
 * they are refused, not ignored. So is every name that continues with "-". */
static const struct {
	struct slice name;
	enum s3_operation_id id; /* S3_OPERATION_COUNT: none does it */
} refused[] = {{SLICE(S3_APPEND_HEADER), S3_OPERATION_PUT_OBJECT},
	{SLICE("x-amz-rename-source"), S3_OPERATION_RENAME_OBJECT},
	{SLICE("x-amz-mfa"), S3_OPERATION_COUNT},
	/* An object under it could be read without it. */
	{SLICE("x-amz-server-side-encryption-context"), S3_OPERATION_COUNT}};

static bool is_refused(const struct s3_call *call, struct slice name)
{
	for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
		size_t len = refused[i].name.len;

		if (slice_eq_nocase(slice_to(name, len), refused[i].name) &&
			(name.len == len || name.data[len] == '-'))
			return !s3_express_bucket(call) || call->operation->id != refused[i].id;
	}
	return false;
}

/* RFC 9110 section 5.6.2: the characters of a token, one bit each. */
static const uint64_t token_bits[4] = {0x03ff6cfa00000000ull, 0x57ffffffc7fffffeull};

static bool is_clean_name(struct slice name)
{
	for (size_t i = 0; i < name.len; i++) {
		uint8_t byte = (uint8_t)name.data[i];

		if (!(token_bits[byte >> 6] >> (byte & 63) & 1))
			return false;
	}
	return name.len > 0;
}

static const struct s3_error *check_header(struct s3_call *call, const struct s3_header *header)
{
	if (!is_refused(call, header->name))
		return NULL;
	s3_fail_detail(call, "Header", header->name);
	return s3_fail(call, S3_E_NOT_IMPLEMENTED,
		"The header %.*s implies functionality that is not implemented by this server.",
		SLICE_FMT(header->name));
}

const struct s3_error *s3_check_headers(struct s3_call *call)
{
	const struct s3_request *request = call->request;

	for (uint32_t i = 0; i < request->header_count; i++) {
		const struct s3_header *header = &request->headers[i];
		const struct s3_error *error;

		if (!slice_eq_nocase(slice_to(header->name, 6), SLICE("x-amz-")))
			continue;
		error = check_header(call, header);
		if (error)
			return error;
	}
	return s3_token_check(call);
}

/* "aws-chunked" is the encoding of the transfer, and is not stored. */
static struct slice without_aws_chunked(struct s3_call *call, struct slice value)
{
	char *text = mem_arena_get(&call->arena, value.len + 1), *at = text;
	struct slice rest = value;

	if (!text || slice_find(value, SLICE("aws-chunked")) < 0)
		return value;
	while (rest.len) {
		struct slice coding = slice_trim(slice_split(&rest, ','));

		if (!coding.len || slice_eq_nocase(coding, SLICE("aws-chunked")))
			continue;
		if (at != text)
			*at++ = ',';
		memcpy(at, coding.data, coding.len);
		at += coding.len;
	}
	return slice_of(text, (size_t)(at - text));
}

static void put_pair(struct buf *out, struct slice name, struct slice value)
{
	char *to = buf_room(out, name.len);

	if (!to)
		return;
	text_lower(name, to);
	out->len += name.len;
	buf_put(out, "", 1);
	buf_put_slice(out, value);
	buf_put(out, "", 1);
}

/* A class that promises more than the bucket has would be an accident. */
static const struct s3_error *memory_class_refused(struct s3_call *call, struct slice class)
{
	s3_fail_detail(call, "StorageClassRequested", slice_to(class, 64));
	return s3_fail(call, S3_E_INVALID_STORAGE_CLASS,
		"The only storage class of a memory bucket is MEMORY.");
}

static const struct s3_error *gather_storage_class(struct s3_call *call, struct store_meta *meta)
{
	struct slice class = s3_call_header(call, SLICE("x-amz-storage-class"));
	const struct s3_settings *settings;
	const struct s3_error *error;
	uint8_t found;

	if (s3_express_bucket(call)) {
		/* auth/express.c refuses all other classes. */
		meta->checksum_flags = S3_STORAGE_CLASS_EXPRESS << S3_FLAG_CLASS_SHIFT;
		return NULL;
	}
	error = s3_call_settings(call, &settings);
	if (error)
		return error;
	if (settings && settings->bucket.flags & STORE_BUCKET_MEMORY) {
		if (class.len && !slice_eq(class, SLICE("MEMORY")))
			return memory_class_refused(call, class);
		meta->checksum_flags = S3_STORAGE_CLASS_MEMORY << S3_FLAG_CLASS_SHIFT;
		return NULL;
	}
	if (!class.len)
		return NULL;
	if (!s3_storage_class_find(class, &found)) {
		s3_fail_detail(call, "StorageClassRequested", class);
		return s3_error_at(S3_E_INVALID_STORAGE_CLASS);
	}
	meta->checksum_flags = (uint8_t)(found << S3_FLAG_CLASS_SHIFT);
	return NULL;
}

static bool is_user_metadata(struct slice name)
{
	return name.len > strlen(META_PREFIX) &&
	       strncasecmp(name.data, META_PREFIX, strlen(META_PREFIX)) == 0;
}

/* True when an earlier header has the same name: its value was joined to that header's. */
static bool is_repeated(const struct s3_request *request, uint32_t idx)
{
	for (uint32_t i = 0; i < idx; i++)
		if (slice_eq_nocase(request->headers[i].name, request->headers[idx].name))
			return true;
	return false;
}

/* One pair per name: values of repeated headers are joined by commas (RFC 9110 section 5.3). */
static uint64_t gather_user_metadata(const struct s3_request *request, struct buf *out)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < request->header_count; i++) {
		struct slice name = request->headers[i].name;

		if (!is_user_metadata(name) || is_repeated(request, i))
			continue;
		put_pair(out, name, request->headers[i].value);
		bytes += name.len - strlen(META_PREFIX) + request->headers[i].value.len;
		for (uint32_t more = i + 1; more < request->header_count; more++) {
			struct slice value = request->headers[more].value;

			if (!slice_eq_nocase(request->headers[more].name, name))
				continue;
			if (!out->failed)
				out->data[out->len - 1] = ',';
			buf_put_slice(out, value);
			buf_put(out, "", 1);
			bytes += value.len + 1;
		}
	}
	return bytes;
}

/* Stored values are returned as headers to every reader of the object, and a native peer may send
 * any byte. */
static bool all_clean(const struct s3_request *request)
{
	for (uint32_t i = 0; i < request->header_count; i++)
		if (!is_clean_name(request->headers[i].name) ||
			!field_value_is_valid(request->headers[i].value))
			return false;
	return true;
}

static const struct s3_error *gather_user(struct s3_call *call, struct buf *out)
{
	uint64_t bytes = gather_user_metadata(call->request, out);
	char digits[SLICE_U64_MAX];

	if (bytes <= LIMIT_USER_METADATA_BYTES_MAX)
		return NULL;
	s3_fail_detail(call, "Size", slice_of_u64(bytes, digits));
	s3_fail_detail(call, "MaxSizeAllowed", SLICE("2048"));
	return s3_error_at(S3_E_METADATA_TOO_LARGE);
}

static const struct s3_error *gather_redirect(struct s3_call *call, struct buf *out)
{
	struct slice value = s3_call_header(call, SLICE("x-amz-website-redirect-location"));

	if (!value.len)
		return NULL;
	if (value.len > S3_REDIRECT_BYTES_MAX ||
		!(slice_starts(value, SLICE("/")) || slice_starts(value, SLICE("http://")) ||
			slice_starts(value, SLICE("https://"))))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"The website redirect location must have a prefix of 'http://' or "
			"'https://' or '/' and at most %u bytes.",
			S3_REDIRECT_BYTES_MAX);
	put_pair(out, SLICE(S3_REDIRECT_HEADER), value);
	return NULL;
}

static const struct s3_error *gather_tags(struct s3_call *call, struct buf *out)
{
	struct slice value = s3_call_header(call, SLICE("x-amz-tagging")), encoded;
	const struct s3_error *error;
	struct s3_tags tags;

	if (!value.len)
		return NULL;
	error = s3_tags_of_header(call, value, &tags);
	if (error || !tags.count)
		return error;
	encoded = s3_tags_encode(&tags, &call->arena);
	if (!encoded.data)
		return s3_error_at(S3_E_SLOW_DOWN);
	put_pair(out, SLICE(S3_TAGS_HEADER), encoded);
	return NULL;
}

/* Stores the owner and the access control list if they differ from the defaults. */
static const struct s3_error *gather_access(
	struct s3_call *call, struct store_meta *meta, struct buf *out)
{
	struct s3_made made;
	const struct s3_error *error = s3_acl_of_made(call, &made);

	if (!error && made.owner.data) {
		put_pair(out, SLICE(S3_OWNER_HEADER), made.owner);
		meta->checksum_flags |= S3_FLAG_FOREIGN;
	}
	if (!error && made.acl.data)
		put_pair(out, SLICE(S3_ACL_HEADER), made.acl);
	return error;
}

/* Whether the request and the bucket's kind store nothing with the object but its bytes. */
static bool adds_nothing(const struct s3_call *call, const struct s3_settings *settings)
{
	return !call->request->header_count && call->identity->root && !s3_express_bucket(call) &&
	       !call->request->fetched &&
	       !(settings && settings->bucket.flags & STORE_BUCKET_MEMORY);
}

static const struct s3_error *gather_headers(struct s3_call *call, struct store_meta *meta)
{
	const struct s3_settings *settings;
	const struct s3_error *error = s3_call_settings(call, &settings);
	struct slice copy;
	struct buf out;

	if (error || adds_nothing(call, settings))
		return error;
	if (!all_clean(call->request))
		return s3_fail(call, S3_E_INVALID_ARGUMENT, "A header has an invalid character.");
	buf_init(&out, S3_META_BYTES_MAX);
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
		struct slice value = s3_call_header(call, kept[i]);

		if (slice_eq(kept[i], SLICE("content-encoding")))
			value = without_aws_chunked(call, value);
		if (value.len)
			put_pair(&out, kept[i], value);
	}
	error = gather_storage_class(call, meta);
	if (!error)
		error = gather_user(call, &out);
	if (!error)
		error = gather_tags(call, &out);
	if (!error)
		error = gather_redirect(call, &out);
	if (!error)
		error = gather_access(call, meta, &out);
	if (!error && call->request->fetched)
		put_pair(&out, SLICE(S3_ORIGIN_HEADER), call->request->fetched->note);
	if (!error && out.len) {
		copy = mem_arena_copy(&call->arena, buf_slice(&out));
		meta->headers = copy.data;
		meta->headers_len = (uint32_t)copy.len;
		if (out.failed || !copy.data)
			error = s3_error_at(S3_E_SLOW_DOWN);
	}
	buf_free(&out);
	return error;
}

const struct s3_error *s3_meta_gather(struct s3_call *call, struct store_meta *meta)
{
	const struct s3_error *error = gather_headers(call, meta);

	return error ? error : s3_lock_gather(call, meta);
}

/* response-content-type and its kin replace the stored headers in this answer. */
static const struct {
	struct slice param;
	struct slice header;
} overrides[] = {
	{SLICE("response-cache-control"), SLICE("cache-control")},
	{SLICE("response-content-disposition"), SLICE("content-disposition")},
	{SLICE("response-content-encoding"), SLICE("content-encoding")},
	{SLICE("response-content-language"), SLICE("content-language")},
	{SLICE("response-content-type"), SLICE("content-type")},
	{SLICE("response-expires"), SLICE("expires")},
};
#define OVERRIDE_COUNT (sizeof(overrides) / sizeof(overrides[0]))

/* Adds the overrides of this request; *ret_names: the headers that they replace. */
static const struct s3_error *answer_overrides(
	struct s3_call *call, struct slice ret_names[OVERRIDE_COUNT], size_t *ret_count)
{
	size_t count = 0;

	for (size_t i = 0; call->params.count && i < OVERRIDE_COUNT; i++) {
		struct slice value;

		if (!s3_call_param(call, overrides[i].param, &value))
			continue;
		if (call->identity->anonymous)
			return s3_fail(call, S3_E_INVALID_REQUEST,
				"Request specific response headers cannot be used for anonymous "
				"GET requests.");
		if (!field_value_is_valid(value))
			return s3_fail(call, S3_E_INVALID_ARGUMENT, "%s has an invalid character.",
				overrides[i].param.data);
		s3_answer_header(call, told_name(overrides[i].header), value);
		ret_names[count++] = overrides[i].header;
	}
	*ret_count = count;
	return NULL;
}

/* The last question whether the caller may know a hidden header's part of the answer. */
struct told {
	const struct store_meta *meta;
	const char *action; /* NULL: anybody may who may read the object */
	bool may;
};

/* The action that reads, by itself, what the hidden header says; NULL: a read of the object. */
static const char *action_of(const struct s3_call *call, struct slice name)
{
	if (slice_eq(name, SLICE(S3_TAGS_HEADER)))
		return s3_call_param(call, SLICE("versionId"), NULL) ? "s3:GetObjectVersionTagging"
								     : "s3:GetObjectTagging";
	if (slice_eq(name, SLICE(S3_LOCK_MODE_HEADER)) ||
		slice_eq(name, SLICE(S3_LOCK_UNTIL_HEADER)))
		return "s3:GetObjectRetention";
	return slice_eq(name, SLICE(S3_LOCK_HOLD_HEADER)) ? "s3:GetObjectLegalHold" : NULL;
}

/* A caller without the right to it gets the answer without it. The two headers of a retention are
 * neighbours, and one question. */
static const struct s3_error *may_tell(struct s3_call *call, struct slice name, struct told *told)
{
	const char *action = action_of(call, name);
	const struct s3_error *error = NULL;

	if (action == told->action)
		return NULL;
	if (action)
		error = s3_call_may_of(call, action, told->meta);
	told->action = action;
	told->may = !error;
	return error == s3_error_at(S3_E_ACCESS_DENIED) ? NULL : error;
}

/* The part of a hidden header that every answer has. */
static void answer_hidden(struct s3_call *call, struct slice name, struct slice value)
{
	if (slice_eq(name, SLICE(S3_TAGS_HEADER)))
		s3_answer_u64(call, SLICE("x-amz-tagging-count"), s3_tags_count(value));
	else if (slice_eq(name, SLICE(S3_REDIRECT_HEADER)))
		s3_answer_header(call, SLICE("x-amz-website-redirect-location"), value);
	else if (slice_eq(name, SLICE(S3_REPLICA_HEADER)))
		s3_replica_answer(call, value);
	else if (slice_eq(name, SLICE(S3_ORIGIN_HEADER)))
		s3_origin_answer(call, value);
	else
		s3_lock_answer(call, name, value);
}

/* Bytes that are not UTF-8 are read as Latin-1. */
static bool put_utf8(struct slice value, struct buf *out)
{
	if (utf8_is_valid(value)) {
		buf_put_slice(out, value);
		return !out->failed;
	}
	for (size_t i = 0; i < value.len; i++) {
		uint8_t byte = (uint8_t)value.data[i];
		const char both[2] = {(char)(0xc0 | byte >> 6), (char)(0x80 | (byte & 0x3f))};

		if (byte < 0x80)
			buf_put(out, &value.data[i], 1);
		else
			buf_put(out, both, sizeof(both));
	}
	return !out->failed;
}

/* User metadata beyond ASCII is sent over HTTP in the encoding of RFC 2047, =?UTF-8?B?…?=, because
 * header bytes have no charset there. Data NULL: no memory. */
static struct slice presentable(struct s3_call *call, struct slice value)
{
	static const struct slice begin = SLICE("=?UTF-8?B?"), end = SLICE("?=");
	struct slice encoded = SLICE_NONE;
	struct buf utf8;
	char *text;

	buf_init(&utf8, 2 * LIMIT_HTTP_HEAD_BYTES_MAX);
	text = put_utf8(value, &utf8)
		       ? mem_arena_get(&call->arena, begin.len + BASE64_LEN(utf8.len) + end.len)
		       : NULL;
	if (text) {
		size_t len = BASE64_LEN(utf8.len);

		memcpy(text, begin.data, begin.len);
		base64_encode(utf8.data, utf8.len, text + begin.len);
		memcpy(text + begin.len + len, end.data, end.len);
		encoded = slice_of(text, begin.len + len + end.len);
	}
	buf_free(&utf8);
	return encoded;
}

static bool is_ascii(struct slice value)
{
	uint8_t all = 0;

	for (size_t i = 0; i < value.len; i++)
		all |= (uint8_t)value.data[i];
	return all < 0x80;
}

const struct s3_error *s3_meta_answer(struct s3_call *call, const struct store_meta *meta)
{
	struct slice rest = slice_of(meta->headers, meta->headers_len), name, value;
	struct slice replaced[OVERRIDE_COUNT];
	struct told told = {.meta = meta, .may = true};
	bool over_http = strncmp(call->request->transport, "http", 4) == 0, has_type = false;
	const struct s3_error *error;
	size_t replaced_count = 0;

	error = answer_overrides(call, replaced, &replaced_count);
	if (error)
		return error;
	while (s3_meta_next(&rest, &name, &value)) {
		if (slice_starts(name, SLICE(S3_HIDDEN_PREFIX))) {
			error = may_tell(call, name, &told);
			if (error)
				return error;
			if (told.may)
				answer_hidden(call, name, value);
			continue;
		}
		if (slice_among(name, replaced, replaced_count))
			continue;
		has_type |= slice_eq(name, SLICE("content-type"));
		if (over_http && !is_ascii(value) && is_user_metadata(name)) {
			value = presentable(call, value);
			if (!value.data)
				return s3_error_at(S3_E_SLOW_DOWN);
		}
		s3_answer_header(call, told_name(name), value);
	}
	if (!has_type && !slice_among(SLICE("content-type"), replaced, replaced_count))
		s3_answer_header(call, SLICE("Content-Type"), SLICE(CONTENT_TYPE_DEFAULT));
	if (meta->checksum_flags >> S3_FLAG_CLASS_SHIFT)
		s3_answer_header(call, SLICE("x-amz-storage-class"), s3_meta_storage_class(meta));
	return NULL;
}
