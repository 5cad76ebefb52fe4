/* s3/auth/access.h: authorization. Explicit denials come first, then the grants: the bucket's
 * policy, the identity's own policies, ownership, access control lists. Across accounts both sides
 * must allow the action.
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
/* The owner of everything that the call creates. */
const struct iam_owner *s3_call_owner(const struct s3_call *call);

/* A session of the caller itself ends with the key by which the caller asks for it, or with what
 * that one's session ends with. */
void s3_session_bind(struct s3_call *call, struct iam_session *session);

/* Checks the whole call before it runs: its operation's action on its bucket or key. NULL: allowed.
 */
const struct s3_error *s3_call_authorize(struct s3_call *call);
/* Checks one more action on the call's bucket; key empty: on the bucket itself. The version is the
 * query's. */
const struct s3_error *s3_call_may(struct s3_call *call, const char *action, struct slice key);
/* Whether the caller may learn that the call's key, or its version, does not exist: callers that
 * may list it may. */
const struct s3_error *s3_call_may_know(struct s3_call *call, bool version);
/* Checks the call's own action, and the bypass of a lock that it asks for, after its document is
 * read, with the document's values for conditions. */
struct s3_given {
	const struct s3_tags *tags;		  /* NULL: the question has no tags */
	struct slice lock_mode, lock_until, hold; /* empty: not given */
	struct slice if_match;			  /* of a key of DeleteObjects */
};
/* Checks one more action on a version of a key that the query does not name; version_id's data
 * NULL: on the current one. */
const struct s3_error *s3_call_may_version(struct s3_call *call, const char *action,
	const struct store_name *name, const struct s3_given *given);
const struct s3_error *s3_call_may_given(struct s3_call *call, const struct s3_given *given);
/* Checks the call's own action again, on the object that it has open: its key may have got another
 * one since, for example while the body came. */
const struct s3_error *s3_call_may_on(struct s3_call *call, const struct store_meta *object);
/* Checks one more action on the object that the call has open. */
const struct s3_error *s3_call_may_of(
	struct s3_call *call, const char *action, const struct store_meta *object);
/* Requester pays, for a bucket of these settings: 403 unless its owner pays, or is the caller, or
 * the request accepts the charge. */
const struct s3_error *s3_call_pays(struct s3_call *call, const struct s3_settings *settings);
/* Reading an object of any bucket: the source of a copy. */
const struct s3_error *s3_call_may_read(
	struct s3_call *call, struct slice bucket, struct slice key, struct slice version_id);
/* s3_call_may_know for the source of a copy. */
const struct s3_error *s3_call_may_know_source(
	struct s3_call *call, const struct s3_copy *copy, bool version);
/* Checks reading the tags of a copy's source, which is open. */
const struct s3_error *s3_call_may_read_tags(struct s3_call *call, const struct s3_copy *copy);
/* Checks copying the tags of a copy's source. */
const struct s3_error *s3_call_may_take_tags(struct s3_call *call, const struct s3_copy *copy);
/* The bucket's owner, and its policy, can give no rights to an object of another owner: only that
 * one's account has them, and callers to whom the object's access control list grants them. So a
 * call checks again with the object open. */
const struct s3_error *s3_call_may_foreign(struct s3_call *call, struct slice bucket,
	const struct store_meta *meta, enum s3_permission permission);
/* Checks an action that has no bucket: "s3:ListAllMyBuckets", "iam:GetUser". */
const struct s3_error *s3_call_may_service(
	struct s3_call *call, const char *action, struct slice resource);
/* The same, with condition keys of this question only. */
const struct s3_error *s3_call_may_service_if(struct s3_call *call, const char *action,
	struct slice resource, policy_values_fn *values, void *arg);
/* The same for an action of the server's operators, "admin:…". Only the server's own account grants
 * these: the owners of other accounts write their policies themselves. */
const struct s3_error *s3_call_may_operate(struct s3_call *call, const char *action);

/* Whether the request asks to bypass governance retention; access.c checks the action for it. */
bool s3_lock_bypass(const struct s3_call *call);
/* "arn:aws:s3:::bucket" or "…/key", in the call's arena; data NULL: no memory. */
struct slice access_resource(struct s3_call *call, struct slice bucket, struct slice key);

/* A question to a role's trust policy. */
struct s3_trust {
	const char *action; /* "sts:AssumeRole" */
	struct slice role_arn, policy;
	struct slice federated;	  /* the identity provider that authenticated the caller; empty: the
				     caller itself */
	policy_values_fn *values; /* condition keys of this question only; NULL: none */
	void *arg;
};
bool s3_call_trusted(struct s3_call *call, const struct s3_trust *trust);
/* Whether the policy of another account's topic lets the caller publish there. */
bool s3_call_published(struct s3_call *call, struct slice topic_arn, struct slice topic_policy);

#endif
