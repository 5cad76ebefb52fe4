/* s3/object/versions.h: which version a request means, what is answered of it, and what may be
 * deleted. */
#ifndef S3_VERSIONS_H
#define S3_VERSIONS_H

#include "s3/s3_priv.h"

/* versionId of the query; empty when it is not there. An id that cannot be is an error. */
const struct s3_error *s3_version_param(struct s3_call *call, struct slice *ret_version_id);
/* x-amz-version-id, of a bucket that has or had versions. */
void s3_answer_version(struct s3_call *call, const struct store_meta *meta);
/* Opens an object of that name; a delete marker is an error, and says so in headers when it is the
 * call's own. */
const struct s3_error *s3_open_named(
	struct s3_call *call, const struct store_name *name, struct store_get **ret_get);

/* Of a request about tags, or that changes a list: NoSuchKey is MethodNotAllowed where a delete
 * marker is the key's newest version. Any other error (NULL, too) is returned as it is. */
const struct s3_error *s3_marker_error(struct s3_call *call, const struct s3_error *error);

/* What a deletion is held against, at its commit. */
struct s3_deletion_check {
	struct slice if_match;
	bool has_time, has_size;
	int64_t time_s;
	uint64_t size;
	bool by_version; /* then a lock keeps the version */
	bool bypass;
	int64_t now_ms;
	/* What is newest of a key that has no current object, when conditions ask. */
	bool has_marker;
	int64_t marker_s;
	const struct s3_error *refused; /* why check refused */
};
/* Conditions; empty text is none. */
const struct s3_error *s3_deletion_time_parse(
	struct s3_call *call, struct slice text, struct s3_deletion_check *check);
const struct s3_error *s3_deletion_size_parse(
	struct s3_call *call, struct slice text, struct s3_deletion_check *check);
/* A key without a current object may end in a delete marker: conditions are then held against that.
 * Before the deletion, of each that names no version. */
void s3_deletion_find_marker(
	struct s3_call *call, struct slice key, struct s3_deletion_check *check);
store_check_fn s3_deletion_check;

#endif
