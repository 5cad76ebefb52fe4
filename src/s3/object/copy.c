/* s3/object/copy.c: the source of a copy: finds the object and checks the request's conditions on
 * it.
 */
#include <errno.h>
#include <stdio.h>

#include "s3/auth/access.h"
#include "s3/auth/acl.h"
#include "s3/core/call.h"
#include "s3/core/conditions.h"
#include "s3/core/named.h"
#include "s3/core/text.h"
#include "s3/object/carry.h"
#include "s3/object/object.h"
#include "s3/sse/sse.h"

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
		&s3_sse_copy_names, sse);
	if (!error && sse->kind != S3_SSE_NONE)
		copy->sse = sse;
	return error;
}

static const struct s3_error *range_error(
	struct s3_call *call, struct slice text, const char *message)
{
	s3_fail_detail(call, "ArgumentName", SLICE("x-amz-copy-source-range"));
	s3_fail_detail(call, "ArgumentValue", text);
	return s3_fail(call, S3_E_INVALID_ARGUMENT, "%s", message);
}

/* Unlike the range of a GET, this range must have both ends and lie inside the source. */
const struct s3_error *s3_copy_range(
	struct s3_call *call, const struct s3_copy *copy, struct s3_range *ret_range)
{
	struct slice text = s3_call_header(call, SLICE("x-amz-copy-source-range")), last, first;
	uint64_t from, to;
	char message[96];

	*ret_range = (struct s3_range){.bytes = copy->from->bytes};
	if (!text.len)
		return NULL;
	last = slice_from(text, strlen("bytes="));
	first = slice_split(&last, '-');
	if (!slice_starts(text, SLICE("bytes=")) || slice_to_u64(first, &from) ||
		slice_to_u64(last, &to) || from > to)
		return range_error(call, text,
			"The x-amz-copy-source-range value must be of the form bytes=first-last "
			"where first and last are the zero-based offsets of the first and last "
			"bytes to copy");
	if (from >= copy->from->bytes)
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"The specified copy range is invalid for the source object size");
	snprintf(message, sizeof(message),
		"Range specified is not valid for source object of size: %llu",
		(unsigned long long)copy->from->bytes);
	if (to >= copy->from->bytes)
		return range_error(call, text, message);
	*ret_range = (struct s3_range){.offset = from, .bytes = to - from + 1};
	return NULL;
}

void s3_copy_close(struct s3_copy *copy)
{
	if (copy->far)
		flow_source_close(copy->far);
	copy->far = NULL;
	store_get_close(copy->get);
	copy->get = NULL;
}

int s3_copy_source(struct s3_call *call, struct s3_copy *copy, struct s3_range range,
	struct flow_source **ret_source)
{
	if (copy->far) {
		if (range.offset != copy->far_range.offset || range.bytes != copy->far_range.bytes)
			return -EPROTO;
		*ret_source = copy->far;
		copy->far = NULL;
		return 0;
	}
	if (!range.bytes)
		return flow_memory_source_open(call->request->core, SLICE_NONE, ret_source);
	return s3_sse_source(call, copy->sse, copy->get, range.offset, range.bytes, ret_source);
}

/* The error of a source that could not be opened. A caller who may read it, but not list its
 * bucket, does not learn that it is missing. */
static const struct s3_error *hide_absence(
	struct s3_call *call, const struct s3_copy *copy, const struct s3_error *error)
{
	bool version = error == s3_error_at(S3_E_NO_SUCH_VERSION);
	const struct s3_error *refused;

	if (error != s3_error_at(S3_E_NO_SUCH_KEY) && !version)
		return error;
	refused = s3_call_may_know_source(call, copy, version);
	if (!refused)
		return error;
	call->blamed_bucket = call->blamed_key = SLICE_NONE;
	call->message = NULL;
	call->detail = SLICE_NONE;
	return refused;
}

const struct s3_error *s3_copy_open(struct s3_call *call, struct s3_copy *copy)
{
	const struct store_name name = {
		.bucket = copy->bucket, .key = copy->key, .version_id = copy->version_id};
	const struct s3_error *error;

	if (call->request->carry == S3_CARRY_TAKE)
		return s3_carry_take(call, copy);
	error = s3_call_may_read(call, copy->bucket, copy->key, copy->version_id);
	if (error)
		return error;
	call->blamed_bucket = copy->bucket;
	call->blamed_key = copy->key;
	error = s3_open_named(call, &name, &copy->get);
	if (error)
		return hide_absence(call, copy, error);
	call->blamed_bucket = call->blamed_key = SLICE_NONE;
	copy->from = store_get_meta(copy->get);
	copy->sse = NULL;
	error = s3_call_may_foreign(call, copy->bucket, copy->from, S3_PERMISSION_READ);
	if (!error)
		error = check_source(call, copy);
	if (!error)
		error = open_sse(call, copy);
	copy->encrypted = copy->sse != NULL;
	if (error)
		s3_copy_close(copy);
	return error;
}
