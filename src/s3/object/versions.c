/* s3/object/versions.c: finds the version that a request means, answers its headers, and checks
 * conditions of deletions. */
#include "s3/object/versions.h"

#include <errno.h>

#include "s3/core/call.h"
#include "s3/core/conditions.h"
#include "s3/core/judged.h"
#include "s3/core/named.h"
#include "s3/core/settings.h"
#include "s3/event/notification.h"
#include "s3/object/lock.h"

struct judged_edit {
	const struct s3_call *call;
	const struct store_name *name;
	store_edit_fn *edit;
	void *arg;
};

/* Edits the object that the caller's rights were checked for. */
static int edit_judged(const struct store_meta *current, struct slice *ret_headers, void *arg)
{
	const struct judged_edit *judged = arg;

	if (!s3_judged_still(judged->call->judged, judged->name, current))
		return -EAGAIN;
	return judged->edit(current, ret_headers, judged->arg);
}

const struct s3_error *s3_edit_version(
	struct s3_call *call, store_edit_fn *edit, void *arg, enum s3_event_id event_id)
{
	struct s3_event event = {.id = event_id, .key = call->key};
	struct store_outcome outcome = {.delete_marker = false};
	struct s3_telling telling;
	struct store_name name = {
		.bucket = call->bucket, .key = call->key, .bucket_id = s3_call_bucket_id(call)};
	const struct s3_error *error = s3_version_param(call, &name.version_id);
	struct judged_edit judged = {.call = call, .name = &name, .edit = edit, .arg = arg};
	struct store_bucket ignored;
	int ret;

	if (error)
		return error;
	event.version_id = name.version_id;
	s3_event_begin(call, &event, NULL, &telling);
	ret = s3_replica_begin_edit(call, edit_judged, &judged, &telling.replica);
	if (!ret)
		ret = store_edit(call->s3->store, &name, s3_replica_edit, &telling.replica,
			s3_telling_outbox_row(&telling));
	outcome.ret = ret;
	s3_event_end(&telling, &outcome);
	if (ret == -EISDIR)
		return s3_not_of_marker(call);
	if (ret == -EAGAIN)
		return s3_judged_changed(call);
	if (ret == -ESTALE)
		return s3_error_at(S3_E_CONDITIONAL_REQUEST_CONFLICT);
	if (ret == -ECANCELED)
		return s3_fail(call, S3_E_ACCESS_DENIED,
			"Access Denied because object protected by object lock.");
	if (ret == -ENOENT) {
		error = s3_call_bucket(call, &ignored);
		if (!error && name.version_id.len)
			error = s3_no_such_version(call, name.version_id);
		return error ? error
			     : s3_marker_error(call, s3_no_such_key(call, call->bucket, call->key));
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

bool s3_deletion_compares(const struct s3_deletion_check *check)
{
	return check->has_time || check->has_size ||
	       (check->if_match.len && !s3_etag_any(check->if_match));
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

/* A delete marker has no ETag and no size. */
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
	/* A deletion of what is gone does no harm. */
	if (current && !s3_judged_still(check->judged, &check->name, current))
		return -EAGAIN;
	/* Deleting a missing object succeeds, whatever the conditions say. */
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
