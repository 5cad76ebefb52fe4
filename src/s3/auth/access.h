/* s3/auth/access.h: may this one do that? Explicit denials come first, then the grants: the
 * bucket's policy, the identity's own policies, ownership, access control lists. Across accounts
 * both sides must.
 *
 * Source: S3 User Guide, "How Amazon S3 authorizes a request"; IAM User Guide, "Policy evaluation
 * logic". */
#ifndef S3_ACCESS_H
#define S3_ACCESS_H

#include "iam/iam.h"
#include "s3/auth/acl.h"
#include "s3/core/call.h"
#include "s3/core/named.h"
#include "s3/core/settings.h"
#include "s3/core/tags.h"

/* The caller of any authenticated call; never NULL. The server's root has one, too. */
const struct iam_principal *s3_call_principal(const struct s3_call *call);
/* The owner of everything that the call makes. */
const struct iam_owner *s3_call_owner(const struct s3_call *call);

/* The whole call, before it runs: its operation's action on its bucket or key. NULL: allowed. */
const struct s3_error *s3_call_authorize(struct s3_call *call);
/* One more action on the call's bucket; key empty: on the bucket itself. */
const struct s3_error *s3_call_may(struct s3_call *call, const char *action, struct slice key);
/* That the call's key is not there, or has no such version: who may list it may know. */
const struct s3_error *s3_call_may_know(struct s3_call *call, bool version);
/* The call's own action, once its document is read: what conditions can ask about it. */
struct s3_given {
	const struct s3_tags *tags;		  /* NULL: it is about no tags */
	struct slice lock_mode, lock_until, hold; /* empty: it does not say */
};
const struct s3_error *s3_call_may_given(struct s3_call *call, const struct s3_given *given);
/* Reading an object of any bucket: the source of a copy. */
const struct s3_error *s3_call_may_read(
	struct s3_call *call, struct slice bucket, struct slice key, struct slice version_id);
/* Taking the tags of a copy's source over. */
const struct s3_error *s3_call_may_take_tags(struct s3_call *call, const struct s3_copy *copy);
/* An object's list decides the rights of the bucket's owner on an object of another owner; a call
 * that is allowed only because of the bucket's ownership checks again with the object open. */
const struct s3_error *s3_call_may_foreign(struct s3_call *call, struct slice bucket,
	const struct store_meta *meta, enum s3_permission permission);
/* An action that is on no bucket: "s3:ListAllMyBuckets", "iam:GetUser". */
const struct s3_error *s3_call_may_service(
	struct s3_call *call, const char *action, struct slice resource);

/* Whether the request may end governance: it says so, and access.c asks for the action. */
bool s3_lock_bypass(const struct s3_call *call);
/* "arn:aws:s3:::bucket" or "…/key", in the call's arena; data NULL: no memory. */
struct slice access_resource(struct s3_call *call, struct slice bucket, struct slice key);

/* The question to a role's trust policy. */
struct s3_trust {
	const char *action; /* "sts:AssumeRole" */
	struct slice role_arn, policy;
	struct slice federated;	  /* the provider that vouches for who asks; empty: the caller */
	policy_values_fn *values; /* condition keys of this question alone; NULL: none */
	void *arg;
};
bool s3_call_trusted(struct s3_call *call, const struct s3_trust *trust);
/* Whether the policy of another account's topic lets the caller publish there. */
bool s3_call_published(struct s3_call *call, struct slice topic_arn, struct slice topic_policy);

#endif
