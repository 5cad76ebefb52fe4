/* s3/object/read_dp.c: the common path of every GET and HEAD of an object: open, conditions, range,
 * head. For a native GET of a hot object it neither parses nor allocates. */
#include <stdio.h>

#include "s3/auth/access.h"
#include "s3/auth/acl.h"
#include "s3/body/body.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/conditions.h"
#include "s3/core/named.h"
#include "s3/core/stored.h"
#include "s3/core/text.h"
#include "s3/object/lifecycle.h"
#include "s3/object/object.h"
#include "s3/sse/sse.h"

static __attribute__((noinline)) const struct s3_error *check_conditions(
	struct s3_call *call, struct s3_read *read)
{
	const struct s3_conditions conditions = {
		.if_match = s3_call_header(call, SLICE("if-match")),
		.if_none_match = s3_call_header(call, SLICE("if-none-match")),
		.if_modified_since = s3_call_header(call, SLICE("if-modified-since")),
		.if_unmodified_since = s3_call_header(call, SLICE("if-unmodified-since")),
	};

	switch (s3_conditions_check(&conditions, read->meta->etag, read->meta->mtime_ns)) {
	case S3_CONDITION_HOLDS:
		return NULL;
	case S3_CONDITION_NOT_MODIFIED:
		s3_answer_etag(call, read->meta->etag);
		s3_answer_time(call, read->meta);
		s3_answer_empty(call, 304);
		store_get_close(read->get);
		read->get = NULL;
		read->stream = NULL;
		return NULL;
	case S3_CONDITION_FAILED:
		break;
	}
	s3_fail_detail(call, "Condition",
		conditions.if_match.len ? SLICE("If-Match") : SLICE("If-Unmodified-Since"));
	return s3_error_at(S3_E_PRECONDITION_FAILED);
}

static void answer_content_range(struct s3_call *call, const struct s3_read *read, bool satisfied)
{
	unsigned long long total = read->meta->bytes, first = read->offset;
	char *text = mem_arena_get(&call->arena, 80);
	int len;

	if (!text)
		return;
	if (satisfied)
		len = snprintf(
			text, 80, "bytes %llu-%llu/%llu", first, first + read->bytes - 1, total);
	else
		len = snprintf(text, 80, "bytes */%llu", total);
	s3_answer_header(call, SLICE("Content-Range"), slice_of(text, (size_t)len));
}

/* partNumber: an object that was not uploaded in parts is part 1 itself. */
static const struct s3_error *choose_part(
	struct s3_call *call, struct s3_read *read, struct slice part, bool has_range)
{
	struct s3_parts parts;
	uint64_t number;
	char *text;

	if (has_range)
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"Cannot specify both Range header and partNumber query parameter");
	if (slice_to_u64(part, &number) || number < 1 || number > 10000)
		return s3_fail_argument(call, "partNumber", part,
			"Part number must be an integer between 1 and 10000, inclusive");
	parts = s3_meta_parts(read->meta, (uint32_t)number);
	if (!parts.count && strlen(read->meta->etag) > 2 * MD5_BYTES &&
		!s3_meta_hidden(slice_of(read->meta->headers, read->meta->headers_len),
			SLICE(S3_ORIGIN_HEADER))
			 .data)
		return s3_fail(call, S3_E_NOT_IMPLEMENTED,
			"This object was uploaded in too many parts of different lengths to be "
			"read by them.");
	if (number > (parts.count ? parts.count : 1))
		return s3_error_at(S3_E_INVALID_PART_NUMBER);
	if (parts.count) {
		text = mem_arena_get(&call->arena, 12);
		if (!text)
			return s3_error_at(S3_E_SLOW_DOWN);
		s3_answer_header(call, SLICE("x-amz-mp-parts-count"),
			slice_of(text, (size_t)snprintf(text, 12, "%u", parts.count)));
		read->offset = parts.offset;
		read->bytes = parts.bytes;
	}
	read->part = (uint32_t)number;
	if (read->bytes) {
		read->status = 206;
		answer_content_range(call, read, true);
	}
	return NULL;
}

/* If-Range: the range is used only if the object is still the one that the client knows. */
static bool range_applies(struct s3_call *call, const struct s3_read *read)
{
	struct slice validator = s3_call_header(call, SLICE("if-range"));
	int64_t date_ms;

	if (!validator.len)
		return true;
	if (date_http_parse(validator, &date_ms) == 0)
		return (int64_t)(read->meta->mtime_ns / NS_PER_S) == date_ms / 1000;
	return s3_etag_matches(validator, read->meta->etag);
}

static __attribute__((noinline)) const struct s3_error *choose_range(
	struct s3_call *call, struct s3_read *read)
{
	struct slice range = s3_call_header(call, SLICE("range")), part;
	char total[24];
	int len;

	if (s3_call_param(call, SLICE("partNumber"), &part))
		return choose_part(call, read, part, range.len > 0);
	if (!range.len || !range_applies(call, read))
		return NULL;
	switch (s3_range_parse(range, read->meta->bytes, &read->offset, &read->bytes)) {
	case S3_RANGE_WHOLE:
		return NULL;
	case S3_RANGE_PART:
		read->status = 206;
		answer_content_range(call, read, true);
		return NULL;
	case S3_RANGE_UNSATISFIABLE:
		break;
	}
	len = snprintf(total, sizeof(total), "%llu", (unsigned long long)read->meta->bytes);
	s3_fail_detail(call, "RangeRequested", range);
	s3_fail_detail(call, "ActualObjectSize", slice_of(total, (size_t)len));
	answer_content_range(call, read, false);
	return s3_error_at(S3_E_INVALID_RANGE);
}

/* Over RDMA a full-object checksum is sent with the bytes without being requested. */
static bool wants_checksum(struct s3_call *call, const struct store_meta *meta)
{
	if (s3_token_of(call))
		return !(meta->checksum_flags & S3_FLAG_COMPOSITE);
	return slice_eq_nocase(
		s3_call_header(call, SLICE("x-amz-checksum-mode")), SLICE("ENABLED"));
}

/* A checksum exists if the range read is the whole object or exactly one part. */
static __attribute__((noinline)) void answer_checksum(
	struct s3_call *call, const struct s3_read *read)
{
	if (!wants_checksum(call, read->meta))
		return;
	if (read->part)
		s3_answer_part_checksum(call, read->meta, read->part);
	else if (read->bytes == read->meta->bytes)
		s3_answer_checksum(call, read->meta);
}

/* Conditions, part and range, which only a request with headers or parameters has. */
static const struct s3_error *read_choose(struct s3_call *call, struct s3_read *read)
{
	const struct s3_error *error = call->whole ? NULL : check_conditions(call, read);

	if (error || !s3_read_is_open(read))
		return error;
	error = call->whole ? NULL : choose_range(call, read);
	if (!error)
		answer_checksum(call, read);
	return error;
}

static bool is_plain(const struct s3_call *call)
{
	return !call->request->header_count && !call->params.count;
}

const struct s3_error *s3_read_refuse(
	struct s3_call *call, const struct s3_read *read, const struct s3_error *error)
{
	call->header_count = call->header_base;
	store_get_close(read->get);
	return error;
}

const struct s3_error *s3_read_opened(struct s3_call *call, struct s3_read *read)
{
	const struct s3_error *error = NULL;
	bool plain = is_plain(call);

	read->offset = 0;
	read->bytes = read->meta->bytes;
	read->part = 0;
	read->status = 200;
	read->sse = NULL;
	read->fan = NULL;
	if (__builtin_expect(read->meta->checksum_flags & S3_FLAG_ENCRYPTED, 0) ||
		(!plain && s3_sse_asked(call)))
		error = s3_sse_of_read(call, read->meta, &read->sse);
	if (__builtin_expect(read->meta->checksum_flags & S3_FLAG_FOREIGN, 0) && !error)
		error = s3_call_may_foreign(call, call->bucket, read->meta, S3_PERMISSION_READ);
	if (!error && plain && call->request->etag_only) {
		s3_answer_etag(call, read->meta->etag);
		return NULL;
	}
	if (!error && !plain)
		error = read_choose(call, read);
	if (!error && s3_read_is_open(read)) {
		error = s3_meta_answer(call, read->meta);
		if (error)
			return s3_read_refuse(call, read, error);
	}
	if (error) {
		store_get_close(read->get);
		return error;
	}
	if (!s3_read_is_open(read))
		return NULL;
	s3_answer_etag(call, read->meta->etag);
	s3_answer_time(call, read->meta);
	s3_answer_version(call, read->meta);
	s3_lifecycle_answer(call, read->meta);
	s3_answer_header(call, SLICE("Accept-Ranges"), SLICE("bytes"));
	return NULL;
}

const struct s3_error *s3_read_begin(struct s3_call *call, struct s3_read *ret_read)
{
	const struct s3_error *error;

	if (is_plain(call))
		error = s3_open_object(call, call->bucket, call->key, &ret_read->get);
	else
		error = s3_open_version(call, &ret_read->get);
	if (error)
		return error;
	ret_read->meta = store_get_meta(ret_read->get);
	ret_read->stream = NULL;
	return s3_read_opened(call, ret_read);
}
