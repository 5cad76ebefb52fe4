/* s3/object/copy.c: the source of a copy: finds the object and checks the request's conditions on
 * it.
 */
#include "s3/auth/access.h"
#include "s3/auth/acl.h"
#include "s3/core/call.h"
#include "s3/core/conditions.h"
#include "s3/core/named.h"
#include "s3/core/text.h"
#include "s3/object/object.h"
#include "s3/sse/sse.h"

/* For a URL, returns its path. */
static struct slice path_of(struct slice source)
{
	struct slice rest = source;

	if (slice_starts(source, SLICE("http://")) || slice_starts(source, SLICE("https://"))) {
		rest = slice_from(rest, (size_t)slice_find(rest, SLICE("//")) + 2);
		slice_split(&rest, '/');
	}
	return rest;
}

static const struct s3_error *source_error(struct s3_call *call)
{
	s3_fail_detail(call, "ArgumentName", SLICE("x-amz-copy-source"));
	s3_fail_detail(call, "ArgumentValue", SLICE("x-amz-copy-source"));
	return s3_fail(call, S3_E_INVALID_ARGUMENT, "Invalid copy source object key");
}

/* "bucket/key?versionId=…", percent-encoded with "+" for a space, maybe with a leading slash. */
const struct s3_error *s3_copy_parse(struct s3_call *call, struct s3_copy *copy)
{
	struct slice rest = path_of(s3_call_header(call, SLICE("x-amz-copy-source")));
	ptrdiff_t query = slice_find(rest, SLICE("?versionId="));
	struct slice version_id = SLICE_NONE;
	char *decoded;
	size_t len;

	if (query >= 0) {
		version_id = slice_from(rest, (size_t)query + strlen("?versionId="));
		rest = slice_to(rest, (size_t)query);
	}
	decoded = mem_arena_get(&call->arena, rest.len + 1);
	if (!decoded)
		return s3_error_at(S3_E_SLOW_DOWN);
	if (uri_decode(rest, URI_PLUS_IS_SPACE, decoded, rest.len, &len))
		return s3_fail(call, S3_E_INVALID_ARGUMENT, "Invalid copy source encoding");
	rest = slice_of(decoded, len);
	if (rest.len && rest.data[0] == '/')
		rest = slice_from(rest, 1);
	copy->bucket = slice_split(&rest, '/');
	copy->key = rest;
	if (!copy->bucket.len || !copy->key.len)
		return source_error(call);
	if (!s3_bucket_name_valid(copy->bucket) &&
		!(call->s3->express && s3_express_zone(copy->bucket).len))
		return s3_error_at(S3_E_INVALID_BUCKET_NAME);
	if (!s3_key_valid(copy->key))
		return s3_fail(call, S3_E_INVALID_ARGUMENT, "The source key is not valid.");
	copy->version_id = version_id;
	return query >= 0 ? s3_version_check(call, version_id) : NULL;
}

static const struct s3_error *check_source(struct s3_call *call, const struct s3_copy *copy)
{
	const struct s3_conditions conditions = {
		.if_match = s3_call_header(call, SLICE("x-amz-copy-source-if-match")),
		.if_none_match = s3_call_header(call, SLICE("x-amz-copy-source-if-none-match")),
		.if_modified_since =
			s3_call_header(call, SLICE("x-amz-copy-source-if-modified-since")),
		.if_unmodified_since =
			s3_call_header(call, SLICE("x-amz-copy-source-if-unmodified-since")),
	};

	/* Here "not modified" is a failure like any other. */
	switch (s3_conditions_check(&conditions, copy->from->etag, copy->from->mtime_ns)) {
	case S3_CONDITION_HOLDS:
		return NULL;
	case S3_CONDITION_NOT_MODIFIED:
		s3_fail_detail(call, "Condition",
			conditions.if_none_match.len
				? SLICE("x-amz-copy-source-If-None-Match")
				: SLICE("x-amz-copy-source-If-Modified-Since"));
		break;
	case S3_CONDITION_FAILED:
		s3_fail_detail(call, "Condition",
			conditions.if_match.len ? SLICE("x-amz-copy-source-If-Match")
						: SLICE("x-amz-copy-source-If-Unmodified-Since"));
		break;
	}
	return s3_error_at(S3_E_PRECONDITION_FAILED);
}

static const struct s3_error *open_sse(struct s3_call *call, struct s3_copy *copy)
{
	struct s3_sse *sse = mem_arena_get(&call->arena, sizeof(*sse));
	const struct s3_error *error;

	if (!sse)
		return s3_error_at(S3_E_SLOW_DOWN);
	error = s3_sse_open(call, slice_of(copy->from->headers, copy->from->headers_len),
		S3_SSE_COPY_CLIENT, sse);
	if (!error && sse->kind != S3_SSE_NONE)
		copy->sse = sse;
	return error;
}

const struct s3_error *s3_copy_open(struct s3_call *call, struct s3_copy *copy)
{
	const struct store_name name = {
		.bucket = copy->bucket, .key = copy->key, .version_id = copy->version_id};
	const struct s3_error *error =
		s3_call_may_read(call, copy->bucket, copy->key, copy->version_id);

	if (error)
		return error;
	call->blamed_bucket = copy->bucket;
	call->blamed_key = copy->key;
	error = s3_open_named(call, &name, &copy->get);
	if (error)
		return error;
	call->blamed_bucket = call->blamed_key = SLICE_NONE;
	copy->from = store_get_meta(copy->get);
	copy->sse = NULL;
	error = s3_call_may_foreign(call, copy->bucket, copy->from, S3_PERMISSION_READ);
	if (!error)
		error = check_source(call, copy);
	if (!error)
		error = open_sse(call, copy);
	if (error)
		store_get_close(copy->get);
	return error;
}
