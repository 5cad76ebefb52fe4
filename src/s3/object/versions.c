/* s3/object/versions.c: which version a request means, what is answered of it, and what may be
 * deleted. */
#include "s3/object/versions.h"

#include <errno.h>

#include "s3/object/lock.h"
#include "s3/event/notification.h"

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

/* The key has no current object: it may say so by a delete marker. */
static __attribute__((noinline)) const struct s3_error *missing(
	struct s3_call *call, struct slice bucket, struct slice key)
{
	struct store_meta newest;

	if (bucket.data == call->bucket.data && ends_in_marker(call, bucket, key, &newest))
		answer_marker(call, &newest);
	else if (bucket.data == call->bucket.data)
		s3_answer_header(call, SLICE("x-amz-delete-marker"), SLICE("false"));
	return s3_error_at(S3_E_NO_SUCH_KEY);
}

const struct s3_error *s3_open_object(
	struct s3_call *call, struct slice bucket, struct slice key, struct store_get **ret_get)
{
	bool bucket_exists = false;
	int ret = store_get_open(call->s3->store, bucket, key, ret_get, &bucket_exists);

	if (__builtin_expect(ret == 0, 1))
		return NULL;
	if (ret != -ENOENT)
		return s3_fail_errno(call, ret);
	if (!bucket_exists)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	return missing(call, bucket, key);
}

/* A delete marker has nothing that could be read or changed. */
static const struct s3_error *not_of_marker(struct s3_call *call)
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
	return not_of_marker(call);
}

static const struct s3_error *no_such_version(struct s3_call *call, struct slice version_id)
{
	s3_fail_detail(call, "VersionId", version_id);
	return s3_error_at(S3_E_NO_SUCH_VERSION);
}

const struct s3_error *s3_open_named(
	struct s3_call *call, const struct store_name *name, struct store_get **ret_get)
{
	const struct store_meta *meta;
	bool bucket_exists = false;
	int ret;

	if (!name->version_id.len)
		return s3_open_object(call, name->bucket, name->key, ret_get);
	ret = store_get_open_version(call->s3->store, name, ret_get, &bucket_exists);
	if (ret == -ENOENT)
		return bucket_exists ? no_such_version(call, name->version_id)
				     : s3_error_at(S3_E_NO_SUCH_BUCKET);
	if (ret)
		return s3_fail_errno(call, ret);
	meta = store_get_meta(*ret_get);
	if (!meta->delete_marker)
		return NULL;
	if (name->bucket.data == call->bucket.data) {
		answer_marker(call, meta);
		s3_answer_time(call, meta);
		s3_answer_header(call, SLICE("Allow"), SLICE("DELETE"));
	}
	store_get_close(*ret_get);
	if (name->bucket.data == call->bucket.data)
		return not_of_marker(call);
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

const struct s3_error *s3_edit_version(
	struct s3_call *call, store_edit_fn *edit, void *arg, enum s3_event_id event_id)
{
	struct s3_event event = {.id = event_id, .key = call->key};
	struct store_outcome outcome = {.delete_marker = false};
	struct s3_telling telling;
	struct store_name name = {.bucket = call->bucket, .key = call->key};
	const struct s3_error *error = s3_version_param(call, &name.version_id);
	struct store_bucket ignored;
	int ret;

	if (error)
		return error;
	event.version_id = name.version_id;
	s3_event_begin(call, &event, NULL, &telling);
	ret = store_edit(call->s3->store, &name, edit, arg, s3_telling_message(&telling));
	outcome.ret = ret;
	s3_event_end(&telling, &outcome);
	if (ret == -EISDIR)
		return not_of_marker(call);
	if (ret == -ENOENT) {
		error = s3_call_bucket(call, &ignored);
		if (!error && name.version_id.len)
			error = no_such_version(call, name.version_id);
		return error ? error
			     : s3_marker_error(call, missing(call, call->bucket, call->key));
	}
	return ret ? s3_fail_errno(call, ret) : NULL;
}

/* ---- Deleting. ---- */

const struct s3_error *s3_deletion_time_parse(
	struct s3_call *call, struct slice text, struct s3_deletion_check *check)
{
	int64_t ms;

	if (!text.len)
		return NULL;
	if (date_http_parse(text, &ms) && date_iso_parse(text, &ms))
		return s3_fail(call, S3_E_INVALID_ARGUMENT, "The last modified time is not valid.");
	check->has_time = true;
	check->time_s = ms / 1000;
	return NULL;
}

const struct s3_error *s3_deletion_size_parse(
	struct s3_call *call, struct slice text, struct s3_deletion_check *check)
{
	if (!text.len)
		return NULL;
	if (slice_to_u64(text, &check->size))
		return s3_fail(call, S3_E_INVALID_ARGUMENT, "The size is not valid.");
	check->has_size = true;
	return NULL;
}

static bool is_as_expected(const struct s3_deletion_check *check, const struct store_meta *current)
{
	if (check->if_match.len && !s3_etag_matches(check->if_match, current->etag))
		return false;
	if (check->has_time && (int64_t)(current->mtime_ns / NS_PER_S) != check->time_s)
		return false;
	return !check->has_size || current->bytes == check->size;
}

static bool is_conditional(const struct s3_deletion_check *check)
{
	return check->if_match.len || check->has_time || check->has_size;
}

void s3_deletion_find_marker(
	struct s3_call *call, struct slice key, struct s3_deletion_check *check)
{
	struct store_meta newest;

	if (!is_conditional(check) || check->by_version ||
		store_newest(call->s3->store, call->bucket, key, &newest) || !newest.delete_marker)
		return;
	check->has_marker = true;
	check->marker_s = (int64_t)(newest.mtime_ns / NS_PER_S);
}

/* A marker has no tag and no bytes. */
static bool is_marker_expected(const struct s3_deletion_check *check)
{
	if (check->if_match.len && !slice_eq(slice_trim(check->if_match), SLICE("*")))
		return false;
	return (!check->has_time || check->time_s == check->marker_s) &&
	       (!check->has_size || check->size == 0);
}

int s3_deletion_check(const struct store_meta *current, void *arg)
{
	struct s3_deletion_check *check = arg;
	bool expected = true;

	check->refused = NULL;
	/* To delete what is not there is success, whatever it was thought to be. */
	if (is_conditional(check) && current)
		expected = is_as_expected(check, current);
	else if (check->has_marker && !current)
		expected = is_marker_expected(check);
	if (!expected)
		check->refused = s3_error_at(S3_E_PRECONDITION_FAILED);
	else if (check->by_version && current &&
		 s3_lock_holds(slice_of(current->headers, current->headers_len), check->now_ms,
			 check->bypass))
		check->refused = s3_error_at(S3_E_OBJECT_LOCKED);
	return check->refused ? -ECANCELED : 0;
}
