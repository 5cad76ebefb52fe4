/* s3/core/named.h: the object that a request names, in the version that it names. */
#ifndef S3_CORE_NAMED_H
#define S3_CORE_NAMED_H

#include "s3/core/call.h"

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
/* NULL when it can be a version's id. */
const struct s3_error *s3_version_check(struct s3_call *call, struct slice version_id);
/* Opens the call's object, or another; NULL when it is there. */
const struct s3_error *s3_open_object(
	struct s3_call *call, struct slice bucket, struct slice key, struct store_get **ret_get);
/* Why there is no such object, told as S3 tells it: its key, or its version, is not there; or it is
 * a delete marker, which has nothing that could be read or changed. */
const struct s3_error *s3_no_such_key(struct s3_call *call, struct slice bucket, struct slice key);
const struct s3_error *s3_no_such_version(struct s3_call *call, struct slice version_id);
const struct s3_error *s3_not_of_marker(struct s3_call *call);
/* Opens the call's object in the version that the query names. */
const struct s3_error *s3_open_version(struct s3_call *call, struct store_get **ret_get);

/* The source of a copy: another object that a request names. */
struct s3_copy {
	struct slice bucket, key; /* decoded */
	struct slice version_id;  /* empty: the current one */
	struct store_get *get;
	const struct store_meta *from;
	const struct s3_sse *sse; /* what it lies encrypted with; NULL: nothing */
};

#endif
