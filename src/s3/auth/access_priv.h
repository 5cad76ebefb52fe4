/* s3/auth/access_priv.h: what the files of access share: one question about access while it is
 * answered. */
#ifndef S3_ACCESS_PRIV_H
#define S3_ACCESS_PRIV_H

#include "s3/auth/access.h"
#include "s3/auth/acl.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/tags.h"

struct access {
	struct s3_call *call;
	const struct iam_principal *principal;
	const struct s3_settings *settings; /* NULL: it is about no bucket */
	struct slice bucket, key, version_id;
	bool other; /* of another bucket than the call's: the source of a copy */
	bool made;  /* of the object that the call makes, not of one that is there */
	const struct s3_given *given; /* what stands in the call's document; NULL: in its headers */
	policy_values_fn *more;	      /* keys that only this question has; NULL: none */
	void *more_arg;
	/* Findings on the way. */
	bool object_missing;
	struct slice listed; /* in whose place a list of that prefix is asked for; or empty */
	bool object_known;
	struct slice object_headers; /* in the arena */
	bool tags_known, request_tags_known;
	struct s3_tags tags, request_tags;
	const struct s3_error *error; /* why nothing could be found out */
	char small[4][48];	      /* values that are made */
	uint32_t small_count;
};

/* One more action on the call's bucket and key; made: on the object that it makes. */
const struct s3_error *access_may(
	struct s3_call *call, const char *action, struct slice key, bool made);
/* The rights for the effects of the request's headers, besides its operation. NULL: allowed. */
const struct s3_error *access_headers(struct s3_call *call);
/* The object's list; -ENOENT when there is no object. */
int access_object_acl(struct access *access, struct s3_acl *ret_acl);
/* The values of condition keys. */
policy_values_fn access_values;

#endif
