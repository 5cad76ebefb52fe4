/* s3/auth/access_priv.h: interface between the files of access: the state of one access question.
 */
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
	const struct s3_settings *settings; /* NULL: the question has no bucket */
	struct slice bucket, key;
	struct slice version_id;      /* that the question is about; data NULL: the current one */
	bool made;		      /* the object that the call creates, not the existing one */
	const struct s3_given *given; /* values from the call's document; NULL: from its headers */
	policy_values_fn *more;	      /* condition keys of this question only; NULL: none */
	void *more_arg;
	/* Results found on the way. */
	bool object_missing;
	struct slice listed; /* prefix of the list action that the question is about; or empty */
	bool object_known;
	struct slice object_headers;		   /* in the arena */
	const struct s3_tags *tags, *request_tags; /* NULL: not looked up yet */
	/* The error that prevented a lookup: a condition did not get its value, so nothing is
	 * allowed. */
	const struct s3_error *error;
	char small[4][48]; /* buffer of computed values */
	uint32_t small_count;
};

/* The action of reading the object that the call names, in its version. */
const char *access_read_action(const struct s3_call *call);
/* Checks one more action on the object that the call creates. */
const struct s3_error *access_may_make(struct s3_call *call, const char *action);
/* Checks the rights that the request's headers need besides its operation. NULL: allowed. */
const struct s3_error *access_headers(struct s3_call *call);
/* The object's access control list; -ENOENT: no such object. */
int access_object_acl(struct access *access, struct s3_acl *ret_acl);
/* The values of condition keys. */
policy_values_fn access_values;

#endif
