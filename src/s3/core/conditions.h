/* s3/core/conditions.h: conditional requests. */
#ifndef S3_CORE_CONDITIONS_H
#define S3_CORE_CONDITIONS_H

#include "s3/core/call.h"

struct s3_conditions {
	struct slice if_match, if_none_match, if_modified_since, if_unmodified_since;
};
enum s3_condition_result { S3_CONDITION_HOLDS, S3_CONDITION_NOT_MODIFIED, S3_CONDITION_FAILED };
/* RFC 9110 section 13.2.2 for GET and HEAD. */
enum s3_condition_result s3_conditions_check(
	const struct s3_conditions *conditions, const char *etag, uint64_t mtime_ns);
/* An entity tag without its weakness mark and quotes. */
struct slice s3_etag_bare(struct slice tag);
/* Whether a list of entity tags has "*". */
bool s3_etag_any(struct slice list);
/* Compares a list of entity tags, or "*", with an ETag without quotes. Weak comparison. */
bool s3_etag_matches(struct slice list, const char *etag);
/* Conditions of PUT and DELETE: checked at the commit. */
struct s3_write_condition {
	struct slice if_match, if_none_match;
	bool absent; /* if the object is not empty, the error is InvalidWriteOffset */
	const struct s3_call *call; /* that writes, for what its rights depend on */
	enum s3_error_id failed;    /* the reason when the check returned -ECANCELED */
};
const struct s3_error *s3_write_condition_parse(
	struct s3_call *call, struct s3_write_condition *ret_condition);
bool s3_write_condition_any(const struct s3_write_condition *condition);
store_check_fn s3_write_condition_check;
/* The S3 error for the -errno of a commit with that check. Only -ECANCELED is the check's refusal.
 * If the check refused because of another write in the group, and the group cannot be written, both
 * fail for that reason. */
const struct s3_error *s3_write_failed(
	struct s3_call *call, const struct s3_write_condition *condition, int error);

#endif
