/* s3/core/named.c: opens the object that a request names, in the version that it names; and parses
 * the name of the source of a copy. */
#include <errno.h>

#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/judged.h"
#include "s3/core/named.h"
#include "s3/core/settings.h"

const struct s3_error *s3_version_check(struct s3_call *call, struct slice version_id)
{
	if (store_version_id_valid(version_id))
		return NULL;
	s3_fail_detail(call, "ArgumentName", SLICE("versionId"));
	s3_fail_detail(call, "ArgumentValue", version_id);
	return s3_fail(call, S3_E_INVALID_ARGUMENT,
		version_id.len ? "Invalid version id specified"
			       : "Version id cannot be the empty string");
}

const struct s3_error *s3_version_param(struct s3_call *call, struct slice *ret_version_id)
{
	*ret_version_id = SLICE_NONE;
	if (!call->params.count || !s3_call_param(call, SLICE("versionId"), ret_version_id))
		return NULL;
	return s3_version_check(call, *ret_version_id);
}

static void answer_marker(struct s3_call *call, const struct store_meta *marker)
{
	struct slice id = mem_arena_copy(&call->arena, slice_str(marker->version_id));

	s3_answer_header(call, SLICE("x-amz-delete-marker"), SLICE("true"));
	if (id.data)
		s3_answer_header(call, SLICE("x-amz-version-id"), id);
}

void s3_answer_version(struct s3_call *call, const struct store_meta *meta)
{
	const struct s3_settings *settings;
	struct slice id = meta->version_id[0] ? slice_str(meta->version_id) : SLICE("null");

	if (slice_eq(id, SLICE("null")) &&
		(s3_call_settings(call, &settings) || !settings ||
			settings->bucket.versioning == STORE_VERSIONING_NEVER))
		return;
	s3_answer_header(call, SLICE("x-amz-version-id"), id);
}

static bool ends_in_marker(
	struct s3_call *call, struct slice bucket, struct slice key, struct store_meta *ret_newest)
{
	struct store_bucket info;

	return store_bucket_get(call->s3->store, bucket, &info) == 0 &&
	       info.versioning != STORE_VERSIONING_NEVER &&
	       store_newest(call->s3->store, bucket, key, ret_newest) == 0 &&
	       ret_newest->delete_marker;
}

/* The key has no current object; a delete marker may be the reason. */
__attribute__((noinline)) const struct s3_error *s3_no_such_key(
	struct s3_call *call, struct slice bucket, struct slice key)
{
	struct store_meta newest;

	if (bucket.data == call->bucket.data && ends_in_marker(call, bucket, key, &newest))
		answer_marker(call, &newest);
	else if (bucket.data == call->bucket.data)
		s3_answer_header(call, SLICE("x-amz-delete-marker"), SLICE("false"));
	return s3_error_at(S3_E_NO_SUCH_KEY);
}

/* 0 for the bucket of a copy's source. */
static uint64_t id_of(const struct s3_call *call, struct slice bucket)
{
	return bucket.data == call->bucket.data ? s3_call_bucket_id(call) : 0;
}

/* Closes an object that is not as the decision about the caller's rights saw it. */
static inline const struct s3_error *check_judged(
	struct s3_call *call, const struct store_name *name, struct store_get **get)
{
	if (__builtin_expect(!call->judged, 1) ||
		s3_judged_still(call->judged, name, store_get_meta(*get)))
		return NULL;
	store_get_close(*get);
	return s3_judged_changed(call);
}

const struct s3_error *s3_open_object(
	struct s3_call *call, struct slice bucket, struct slice key, struct store_get **ret_get)
{
	const struct store_name name = {
		.bucket = bucket, .key = key, .bucket_id = id_of(call, bucket)};
	bool bucket_exists = false;
	int ret = store_get_open_version(call->s3->store, &name, ret_get, &bucket_exists);

	if (__builtin_expect(ret == 0, 1))
		return check_judged(call, &name, ret_get);
	if (ret != -ENOENT)
		return s3_fail_errno(call, ret);
	if (!bucket_exists)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	return s3_no_such_key(call, bucket, key);
}

/* A delete marker has no contents to read or change. */
const struct s3_error *s3_not_of_marker(struct s3_call *call)
{
	s3_fail_detail(call, "Method", call->request->method_text);
	s3_fail_detail(call, "ResourceType", SLICE("DeleteMarker"));
	return s3_error_at(S3_E_METHOD_NOT_ALLOWED);
}

const struct s3_error *s3_marker_error(struct s3_call *call, const struct s3_error *error)
{
	struct store_meta newest;

	if (error != s3_error_at(S3_E_NO_SUCH_KEY) ||
		!ends_in_marker(call, call->bucket, call->key, &newest))
		return error;
	return s3_not_of_marker(call);
}

const struct s3_error *s3_no_such_version(struct s3_call *call, struct slice version_id)
{
	s3_fail_detail(call, "VersionId", version_id);
	return s3_error_at(S3_E_NO_SUCH_VERSION);
}

const struct s3_error *s3_open_named(
	struct s3_call *call, const struct store_name *name, struct store_get **ret_get)
{
	const struct store_meta *meta;
	struct store_name of = *name;
	bool bucket_exists = false;
	int ret;

	if (!name->version_id.len)
		return s3_open_object(call, name->bucket, name->key, ret_get);
	of.bucket_id = id_of(call, name->bucket);
	ret = store_get_open_version(call->s3->store, &of, ret_get, &bucket_exists);
	if (ret == -ENOENT)
		return bucket_exists ? s3_no_such_version(call, name->version_id)
				     : s3_error_at(S3_E_NO_SUCH_BUCKET);
	if (ret)
		return s3_fail_errno(call, ret);
	meta = store_get_meta(*ret_get);
	if (!meta->delete_marker)
		return check_judged(call, name, ret_get);
	if (name->bucket.data == call->bucket.data) {
		answer_marker(call, meta);
		s3_answer_time(call, meta);
		s3_answer_header(call, SLICE("Allow"), SLICE("DELETE"));
	}
	store_get_close(*ret_get);
	if (name->bucket.data == call->bucket.data)
		return s3_not_of_marker(call);
	return s3_fail(call, S3_E_INVALID_REQUEST,
		"The source of a copy request may not specifically refer to a delete marker by "
		"version id.");
}

const struct s3_error *s3_open_version(struct s3_call *call, struct store_get **ret_get)
{
	struct store_name name = {.bucket = call->bucket, .key = call->key};
	const struct s3_error *error = s3_version_param(call, &name.version_id);

	return error ? error : s3_open_named(call, &name, ret_get);
}

/* ---- The source of a copy. ---- */

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
