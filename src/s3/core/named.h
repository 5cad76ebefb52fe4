/* s3/core/named.h: the object that a request names, in the version that it names. */
#ifndef S3_CORE_NAMED_H
#define S3_CORE_NAMED_H

#include "s3/core/call.h"

/* The query's versionId; empty without one. An invalid id is an error. */
const struct s3_error *s3_version_param(struct s3_call *call, struct slice *ret_version_id);
/* Adds x-amz-version-id if the bucket has or had versions. */
void s3_answer_version(struct s3_call *call, const struct store_meta *meta);
/* Opens an object of that name. A delete marker is an error; if it is the call's own, the headers
 * say so. */
const struct s3_error *s3_open_named(
	struct s3_call *call, const struct store_name *name, struct store_get **ret_get);
/* For a request about tags, or one that changes an access control list: NoSuchKey becomes
 * MethodNotAllowed if a delete marker is the key's newest version. Any other error (also NULL) is
 * returned unchanged. */
const struct s3_error *s3_marker_error(struct s3_call *call, const struct s3_error *error);
/* NULL: it has the form of a version id. */
const struct s3_error *s3_version_check(struct s3_call *call, struct slice version_id);
/* Opens the call's object, or another; NULL: it is open. */
const struct s3_error *s3_open_object(
	struct s3_call *call, struct slice bucket, struct slice key, struct store_get **ret_get);
/* The error for a missing object, as in S3: the key or the version does not exist; or it is a
 * delete marker, which has no contents to read or change. */
const struct s3_error *s3_no_such_key(struct s3_call *call, struct slice bucket, struct slice key);
const struct s3_error *s3_no_such_version(struct s3_call *call, struct slice version_id);
const struct s3_error *s3_not_of_marker(struct s3_call *call);
/* Opens the call's object in the version that the query names. */
const struct s3_error *s3_open_version(struct s3_call *call, struct store_get **ret_get);

struct s3_range {
	uint64_t offset, bytes;
};
/* The source of a copy: another object that the request names, maybe in another store. */
struct s3_copy {
	struct slice bucket, key; /* decoded */
	struct slice version_id;  /* empty: the current one */
	struct store_get *get;
	const struct store_meta *from;
	bool encrypted;
	const struct s3_sse *sse; /* its encryption; NULL: none, or it comes decrypted */
	/* Its bytes, when they come from another store; NULL: get has them, or they have been
	 * used. */
	struct flow_source *far;
	struct s3_range far_range; /* of these bytes in the object */
};
/* Parses x-amz-copy-source: bucket, key and version_id. */
const struct s3_error *s3_copy_parse(struct s3_call *call, struct s3_copy *copy);

#endif
