/* s3/core/conditions.c: conditional requests: RFC 9110 section 13 for reads, S3's conditional
 * writes. */
#include <errno.h>

#include "s3/core/call.h"
#include "s3/core/conditions.h"
#include "s3/core/judged.h"

/* An entity tag without its weakness mark and quotes; S3 takes tags without quotes too. */
struct slice s3_etag_bare(struct slice tag)
{
	tag = slice_trim(tag);
	if (slice_starts(tag, SLICE("W/")))
		tag = slice_from(tag, 2);
	if (tag.len >= 2 && tag.data[0] == '"' && tag.data[tag.len - 1] == '"')
		tag = slice_of(tag.data + 1, tag.len - 2);
	return tag;
}

bool s3_etag_any(struct slice list)
{
	while (list.len)
		if (slice_eq(slice_trim(slice_split(&list, ',')), SLICE("*")))
			return true;
	return false;
}

bool s3_etag_matches(struct slice list, const char *etag)
{
	struct slice wanted = slice_str(etag);

	while (list.len) {
		struct slice tag = slice_trim(slice_split(&list, ','));

		if (slice_eq(tag, SLICE("*")) || slice_eq(s3_etag_bare(tag), wanted))
			return true;
	}
	return false;
}

/* True when date is valid and the object was modified after it; HTTP dates have seconds. */
static bool date_orders(struct slice date, uint64_t mtime_ns, bool *ret_modified_after)
{
	int64_t date_ms;

	if (!date.len || date_http_parse(date, &date_ms))
		return false;
	*ret_modified_after = (int64_t)(mtime_ns / NS_PER_S) > date_ms / 1000;
	return true;
}

/* A date in the future is ignored. */
static bool is_modified_since(struct slice date, uint64_t mtime_ns)
{
	int64_t date_ms;
	bool after;

	return !date_orders(date, mtime_ns, &after) || after || date_http_parse(date, &date_ms) ||
	       date_ms > (int64_t)(clock_real_ns() / NS_PER_MS);
}

enum s3_condition_result s3_conditions_check(
	const struct s3_conditions *conditions, const char *etag, uint64_t mtime_ns)
{
	bool after;

	if (conditions->if_match.len) {
		if (!s3_etag_matches(conditions->if_match, etag))
			return S3_CONDITION_FAILED;
	} else if (date_orders(conditions->if_unmodified_since, mtime_ns, &after) && after) {
		return S3_CONDITION_FAILED;
	}
	if (conditions->if_none_match.len) {
		if (s3_etag_matches(conditions->if_none_match, etag))
			return S3_CONDITION_NOT_MODIFIED;
	} else if (!is_modified_since(conditions->if_modified_since, mtime_ns)) {
		return S3_CONDITION_NOT_MODIFIED;
	}
	return S3_CONDITION_HOLDS;
}

const struct s3_error *s3_write_condition_parse(
	struct s3_call *call, struct s3_write_condition *ret_condition)
{
	struct slice if_none_match = s3_call_header(call, SLICE("if-none-match"));

	*ret_condition = (struct s3_write_condition){
		.call = call,
		.if_match = s3_call_header(call, SLICE("if-match")),
		.if_none_match = if_none_match,
	};
	if (!if_none_match.len || !ret_condition->if_match.len)
		return NULL;
	s3_fail_detail(call, "Header", SLICE("If-Match,If-None-Match"));
	s3_fail_detail(call, "additionalMessage",
		SLICE("Multiple conditional request headers present in the request"));
	return s3_fail(call, S3_E_NOT_IMPLEMENTED,
		"A header you provided implies functionality that is not implemented");
}

bool s3_write_condition_any(const struct s3_write_condition *condition)
{
	return condition->if_match.len || condition->if_none_match.len || condition->absent ||
	       condition->call->judged;
}

int s3_write_condition_check(const struct store_meta *current, void *arg)
{
	struct s3_write_condition *condition = arg;
	const struct s3_call *call = condition->call;
	const struct store_name name = {.bucket = call->bucket, .key = call->key};

	if (!s3_judged_still(call->judged, &name, current))
		return -EAGAIN;
	if (condition->if_none_match.len && current &&
		s3_etag_matches(condition->if_none_match, current->etag))
		condition->failed = S3_E_PRECONDITION_FAILED;
	else if (condition->if_match.len && !current)
		condition->failed = S3_E_NO_SUCH_KEY;
	else if (condition->if_match.len && !s3_etag_matches(condition->if_match, current->etag))
		condition->failed = S3_E_PRECONDITION_FAILED;
	else if (condition->absent && current && current->bytes)
		condition->failed = S3_E_INVALID_WRITE_OFFSET;
	else
		return 0;
	return -ECANCELED;
}

const struct s3_error *s3_write_failed(
	struct s3_call *call, const struct s3_write_condition *condition, int error)
{
	if (error == -ENOENT)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	if (error == -EAGAIN)
		return s3_judged_changed(call);
	if (error != -ECANCELED)
		return s3_fail_errno(call, error);
	if (condition->failed == S3_E_PRECONDITION_FAILED)
		s3_fail_detail(call, "Condition",
			condition->if_none_match.len ? SLICE("If-None-Match") : SLICE("If-Match"));
	return s3_error_at(condition->failed);
}
