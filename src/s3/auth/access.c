/* s3/auth/access.c: the access decision, from denials, policies, ownership and access control
 * lists; and the action of a call. */
#include "s3/auth/access.h"

#include <errno.h>
#include <stdio.h>

#include "s3/auth/access_priv.h"
#include "s3/auth/acl.h"
#include "s3/auth/express.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/judged.h"
#include "s3/core/named.h"
#include "s3/core/settings.h"
#include "s3/core/stored.h"

/* ---- The caller. ---- */

#define ANONYMOUS_OWNER "65a011a29cdf8ec533ec3d1ccaae921c" /* S3's id of an anonymous caller */

static const struct iam_principal anonymous = {
	.who = {.owner = SLICE(ANONYMOUS_OWNER), .anonymous = true},
	.owner = {.id = ANONYMOUS_OWNER, .name = "anonymous"},
};
static const struct iam_principal server_root = {
	.who = {.arn = SLICE("arn:aws:iam::" IAM_ACCOUNT_OF_ROOT ":root"),
		.account = SLICE(IAM_ACCOUNT_OF_ROOT),
		.owner = SLICE(IAM_ROOT_OWNER_ID),
		.user_id = SLICE(IAM_ACCOUNT_OF_ROOT),
		.root = true},
	.owner = {.id = IAM_ROOT_OWNER_ID,
		.name = IAM_ROOT_OWNER_NAME,
		.account = IAM_ACCOUNT_OF_ROOT},
	.own = true,
};

const struct iam_principal *s3_call_principal(const struct s3_call *call)
{
	if (call->identity->root)
		return &server_root;
	return call->principal ? call->principal : &anonymous;
}

const struct iam_owner *s3_call_owner(const struct s3_call *call)
{
	return &s3_call_principal(call)->owner;
}

#define ACCOUNT_DIGITS 12u /* of AWS */

static bool is_account_number(struct slice text)
{
	bool digits = text.len == ACCOUNT_DIGITS;

	for (size_t i = 0; digits && i < text.len; i++)
		digits = text.data[i] >= '0' && text.data[i] <= '9';
	return digits;
}

/* Compares x-amz-expected-bucket-owner and its kin with the bucket's owner: an account number, or
 * this server's text for an account. */
static const struct s3_error *check_owner(
	struct s3_call *call, struct slice expected, const char *owner_id)
{
	struct iam_owner owner;

	if (iam_owner(call->s3->iam, slice_str(owner_id), &owner) == 0 &&
		slice_eq(expected, slice_str(owner.account)))
		return NULL;
	if (is_account_number(expected) ||
		iam_owner_by_account(call->s3->iam, expected, &owner) == 0)
		return s3_error_at(S3_E_ACCESS_DENIED);
	return s3_error_at(S3_E_INVALID_BUCKET_OWNER);
}

/* ---- Which action. ---- */

/* Only policies that allow all of S3 match it; no single action does. */
#define ACTION_ALL "s3:*"

static bool has_version(const struct s3_call *call)
{
	return s3_call_param(call, SLICE("versionId"), NULL);
}

const char *access_read_action(const struct s3_call *call)
{
	return has_version(call) ? "s3:GetObjectVersion" : "s3:GetObject";
}

/* An operation that is not served, or a document that never exists, gives its error only to a
 * caller with the right to it: the action that AWS defines for the parameter, otherwise the right
 * to everything. */
static const char *action_of_param(struct slice param, bool reads)
{
	const struct s3_named_kind *kind = s3_named_kind(param);
	const struct s3_not_served *other = s3_not_served(param);

	if (kind)
		return reads ? kind->get_action : kind->put_action;
	return other && other->action[0] ? other->action : NULL;
}

static const char *declined_action(const struct s3_call *call)
{
	bool reads = call->request->method == S3_GET || call->request->method == S3_HEAD;
	const char *action = NULL;

	if (call->declined.len)
		action = action_of_param(call->declined, reads);
	for (uint32_t i = 0; !call->declined.len && !action && i < call->params.count; i++)
		action = action_of_param(call->params.items[i].name, reads);
	return action ? action : ACTION_ALL;
}

/* The IAM action of the call. */
static const char *access_action(const struct s3_call *call)
{
	const struct s3_operation *operation = call->operation;
	const struct s3_config_kind *kind;

	switch (operation->id) {
	case S3_OPERATION_GET_CONFIG:
		kind = s3_config_kind_of(call);
		return kind ? kind->get.action : ACTION_ALL;
	case S3_OPERATION_PUT_CONFIG:
		kind = s3_config_kind_of(call);
		return kind ? kind->put.action : ACTION_ALL;
	case S3_OPERATION_DELETE_CONFIG:
		kind = s3_config_kind_of(call);
		return kind ? kind->delete.action : ACTION_ALL;
	case S3_OPERATION_DECLINED:
	case S3_OPERATION_UNKNOWN:
	case S3_OPERATION_GET_NAMED_CONFIG:
	case S3_OPERATION_DELETE_NAMED_CONFIG:
		return declined_action(call);
	default:
		return operation->version_action && has_version(call) ? operation->version_action
								      : operation->action;
	}
}

/* The permission of an access control list that allows an action; false: none does. */
static bool acl_permission(
	const char *action, bool *ret_of_object, enum s3_permission *ret_permission)
{
	static const struct {
		const char *action;
		bool of_object;
		enum s3_permission permission;
	} all[] = {
		{"s3:GetObject", true, S3_PERMISSION_READ},
		{"s3:GetObjectVersion", true, S3_PERMISSION_READ},
		{"s3:GetObjectAttributes", true, S3_PERMISSION_READ},
		{"s3:GetObjectVersionAttributes", true, S3_PERMISSION_READ},
		{"s3:GetObjectAcl", true, S3_PERMISSION_READ_ACP},
		{"s3:GetObjectVersionAcl", true, S3_PERMISSION_READ_ACP},
		{"s3:PutObjectAcl", true, S3_PERMISSION_WRITE_ACP},
		{"s3:PutObjectVersionAcl", true, S3_PERMISSION_WRITE_ACP},
		{"s3:ListBucket", false, S3_PERMISSION_READ},
		{"s3:ListBucketVersions", false, S3_PERMISSION_READ},
		{"s3:ListBucketMultipartUploads", false, S3_PERMISSION_READ},
		{"s3:PutObject", false, S3_PERMISSION_WRITE},
		{"s3:DeleteObject", false, S3_PERMISSION_WRITE},
		{"s3:AbortMultipartUpload", false, S3_PERMISSION_WRITE},
		{"s3:ListMultipartUploadParts", false, S3_PERMISSION_WRITE},
		{"s3:GetBucketAcl", false, S3_PERMISSION_READ_ACP},
		{"s3:PutBucketAcl", false, S3_PERMISSION_WRITE_ACP},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (strcmp(all[i].action, action) != 0)
			continue;
		*ret_of_object = all[i].of_object;
		*ret_permission = all[i].permission;
		return true;
	}
	return false;
}

/* ---- The decision. ---- */

/* A session's own policies restrict it: an action is allowed only if one of them allows it. */
static bool is_narrowed(
	const struct iam_principal *principal, const struct policy_question *question)
{
	enum policy_decision decision = POLICY_DECISION_NONE;

	for (uint32_t i = 0; i < principal->narrow_count; i++) {
		enum policy_decision one = policy_decide(principal->narrows[i], question);

		decision = one > decision ? one : decision;
	}
	return principal->narrowed && decision != POLICY_DECISION_ALLOW;
}

/* The decision of the identity's own policies. */
static enum policy_decision identity_says(
	const struct iam_principal *principal, const struct policy_question *question)
{
	enum policy_decision decision = POLICY_DECISION_NONE;

	for (uint32_t i = 0; i < principal->policy_count; i++) {
		enum policy_decision one = policy_decide(principal->policies[i], question);

		if (one == POLICY_DECISION_DENY)
			return one;
		decision = one > decision ? one : decision;
	}
	return is_narrowed(principal, question) ? POLICY_DECISION_DENY : decision;
}

/* Whether the access control list of the bucket, or of the object, allows the caller. */
static bool acl_says(struct access *access, const char *action)
{
	bool ignore_public = s3_settings_public_access(access->settings).ignore_acls;
	struct slice owner = slice_str(access->settings->bucket.owner);
	enum s3_permission permission;
	bool of_object;
	struct s3_acl acl;

	if (!acl_permission(action, &of_object, &permission) ||
		s3_settings_ownership(access->settings) == S3_OWNERSHIP_ENFORCED)
		return false;
	/* An object belongs to its creator, who may write its access control list. For an object
	 * without an owner, the bucket's list decides. */
	if (access->made && permission == S3_PERMISSION_WRITE_ACP) {
		if (!access->principal->who.anonymous)
			return true;
		of_object = false;
		permission = S3_PERMISSION_WRITE;
	}
	if (!of_object) {
		const struct s3_acl *kept = access->settings->parsed[S3_CONFIG_ACL];

		if (!kept)
			return false;
		acl = *kept;
		acl.owner = owner;
	} else if (access_object_acl(access, &acl)) {
		return false;
	}
	return s3_acl_allows(&acl, permission, access->principal, ignore_public);
}

static bool is_owner_of_bucket(const struct access *access)
{
	return access->principal->own && !access->principal->who.anonymous &&
	       slice_eq(access->principal->who.owner, slice_str(access->settings->bucket.owner));
}

static bool same_account(const struct access *access)
{
	const struct policy_principal *who = &access->principal->who;
	struct slice id = slice_str(access->settings->bucket.owner);
	struct iam_owner owner;

	/* An owner belongs to one account. */
	return !who->anonymous &&
	       (slice_eq(who->owner, id) ||
		       (iam_owner(access->call->s3->iam, id, &owner) == 0 &&
			       slice_eq(slice_str(owner.account), who->account)));
}

/* The decision of the bucket's policy for this caller. Denials apply to everybody. If public access
 * is restricted, a public policy allows nothing to callers outside the owner's account. */
static enum policy_decision bucket_says(
	const struct access *access, const struct policy_question *question, bool same)
{
	const struct policy *policy = access->settings->parsed[S3_CONFIG_POLICY];
	enum policy_decision decision = policy_decide(policy, question);

	if (decision != POLICY_DECISION_DENY && decision != POLICY_DECISION_NONE && !same &&
		s3_settings_public_access(access->settings).restrict_buckets &&
		policy_is_public(policy))
		return POLICY_DECISION_NONE;
	return decision;
}

/* A bucket's owner can remove a policy that denies access to everybody, unless the policy was put
 * so that it binds the owner, too. */
static bool is_policy_action(const char *action)
{
	struct slice name = slice_str(action);

	return slice_eq(name, SLICE("s3:GetBucketPolicy")) ||
	       slice_eq(name, SLICE("s3:PutBucketPolicy")) ||
	       slice_eq(name, SLICE("s3:DeleteBucketPolicy"));
}

static bool access_allowed(struct access *access, const char *action, struct slice resource)
{
	const struct iam_principal *principal = access->principal;
	uint64_t steps = POLICY_STEPS_MAX;
	const struct policy_question question = {.principal = &principal->who,
		.action = slice_str(action),
		.resource = resource,
		.values = access_values,
		.arg = access,
		.steps_left = &steps};
	enum policy_decision mine = identity_says(principal, &question), theirs;
	bool owner, same, list;

	if (!action[0] || mine == POLICY_DECISION_DENY)
		return false;
	/* An owner that belongs to an account is not the root of that account. */
	if (!access->settings)
		return mine == POLICY_DECISION_ALLOW ||
		       (principal->own && (!principal->user_name.len ||
						  slice_starts(slice_str(action), SLICE("s3:"))));
	owner = is_owner_of_bucket(access);
	/* The usual case: the caller's own bucket, and no policy that denies it. */
	if (owner && !access->settings->parsed[S3_CONFIG_POLICY])
		return true;
	same = same_account(access);
	theirs = bucket_says(access, &question, same);
	if (theirs == POLICY_DECISION_DENY)
		return owner && is_policy_action(action) &&
		       !s3_settings_policy_binds_owner(access->settings);
	if (owner || (same && mine == POLICY_DECISION_ALLOW))
		return true;
	if (theirs == POLICY_DECISION_ALLOW && (same || principal->who.anonymous))
		return true;
	/* Across accounts both sides must allow it. An owner needs no policy of its own. */
	if (!principal->own && !principal->who.anonymous && mine != POLICY_DECISION_ALLOW)
		return false;
	if (theirs == POLICY_DECISION_ALLOW)
		return true;
	/* A grant to an account applies to its root user, and to users to whom a policy of the
	 * account delegates it. */
	if (theirs == POLICY_DECISION_ACCOUNT && mine == POLICY_DECISION_ALLOW)
		return true;
	list = acl_says(access, action);
	access->call->by_acl |= list;
	return list;
}

/* ---- Calls. ---- */

struct slice access_resource(struct s3_call *call, struct slice bucket, struct slice key)
{
	static const char start[] = "arn:aws:s3:::";
	size_t bytes = sizeof(start) + bucket.len + 1 + key.len;
	char *text = mem_arena_get(&call->arena, bytes), *at = text;

	if (!text)
		return SLICE_NONE;
	memcpy(at, start, sizeof(start) - 1);
	at += sizeof(start) - 1;
	memcpy(at, bucket.data, bucket.len);
	at += bucket.len;
	if (key.len) {
		*at++ = '/';
		memcpy(at, key.data, key.len);
		at += key.len;
	}
	return slice_of(text, (size_t)(at - text));
}

/* Whether the action ends with an error if its object is missing: reads, and edits of what an
 * object has besides its bytes. Writes and deletions take effect on a missing object, too, and an
 * origin can have the object. */
static bool needs_object(const struct access *access, const char *action)
{
	static const char *const edits[] = {"s3:PutObjectAcl", "s3:PutObjectVersionAcl",
		"s3:PutObjectTagging", "s3:PutObjectVersionTagging", "s3:DeleteObjectTagging",
		"s3:DeleteObjectVersionTagging", "s3:PutObjectRetention", "s3:PutObjectLegalHold",
		"s3:RestoreObject"};
	bool found = slice_starts(slice_str(action), SLICE("s3:GetObject"));

	if (access->made || access->settings->parsed[S3_CONFIG_ORIGIN])
		return false;
	for (size_t i = 0; !found && i < ARRAY_LEN(edits); i++)
		found = strcmp(edits[i], action) == 0;
	return found;
}

static const struct s3_error *decide(
	struct access *access, const char *action, struct slice bucket, struct slice key)
{
	struct slice resource = access_resource(access->call, bucket, key);

	if (!resource.data)
		return s3_error_at(S3_E_SLOW_DOWN);
	if (access_allowed(access, action, resource))
		return access->error;
	/* A caller that may list the bucket may also learn that an object is missing: its operation
	 * answers that. */
	if (access->object_missing && needs_object(access, action)) {
		struct slice whole = access_resource(access->call, bucket, SLICE_NONE);

		access->listed = key;
		if (whole.data && access_allowed(access, "s3:ListBucket", whole))
			return access->error;
	}
	return access->error ? access->error : s3_error_at(S3_E_ACCESS_DENIED);
}

/* The rights of a bucket's session were checked when it was created; beside a native session it
 * gives none. */
static bool has_all_rights(const struct s3_call *call)
{
	return call->identity->root || (call->session_bucket.len && !call->request->session);
}

/* An access question about the call's bucket, or about something in it. */
static const struct s3_error *may(struct access *access, const char *action)
{
	struct s3_call *call = access->call;
	const struct s3_error *error;

	if (has_all_rights(call))
		return NULL;
	error = s3_call_settings(call, &access->settings);
	if (error)
		return error;
	if (!access->settings)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	if (call->s3->anonymous_read && call->identity->anonymous &&
		(strcmp(action, "s3:GetObject") == 0 || strcmp(action, "s3:ListBucket") == 0))
		return NULL;
	error = decide(access, action, call->bucket, access->key);
	/* A bucket's policy can only be managed by the bucket's account, whatever the policy grants
	 * to others. */
	if (!error && is_policy_action(action) && !same_account(access))
		error = s3_error_at(S3_E_METHOD_NOT_ALLOWED);
	return error;
}

/* The query's versionId, which its operation may find to be none; data NULL: there is none. */
static struct slice query_version(const struct s3_call *call)
{
	struct slice version_id;

	if (!s3_call_param(call, SLICE("versionId"), &version_id))
		return SLICE_NONE;
	return version_id.data ? version_id : SLICE("");
}

const struct s3_error *access_may_make(struct s3_call *call, const char *action)
{
	struct access access = {.call = call,
		.principal = s3_call_principal(call),
		.bucket = call->bucket,
		.key = call->key,
		.made = true};

	return may(&access, action);
}

static const struct s3_error *may_given(
	struct s3_call *call, const char *action, const struct s3_given *given)
{
	struct access access = {.call = call,
		.principal = s3_call_principal(call),
		.bucket = call->bucket,
		.key = call->key,
		.version_id = query_version(call),
		.given = given};

	return may(&access, action);
}

#define BYPASS "s3:BypassGovernanceRetention"

const struct s3_error *s3_call_may_given(struct s3_call *call, const struct s3_given *given)
{
	const struct s3_error *error = may_given(call, access_action(call), given);

	return error || !s3_lock_bypass(call) ? error : may_given(call, BYPASS, given);
}

const struct s3_error *s3_call_may_of(
	struct s3_call *call, const char *action, const struct store_meta *object)
{
	struct access access = {.call = call,
		.principal = s3_call_principal(call),
		.bucket = call->bucket,
		.key = call->key,
		.version_id = query_version(call),
		.object_known = true,
		.object_headers = slice_of(object->headers, object->headers_len)};

	return may(&access, action);
}

const struct s3_error *s3_call_may_on(struct s3_call *call, const struct store_meta *object)
{
	return s3_call_may_of(call, access_action(call), object);
}

const struct s3_error *s3_call_may(struct s3_call *call, const char *action, struct slice key)
{
	const struct store_name name = {.key = key, .version_id = query_version(call)};

	return s3_call_may_version(call, action, &name, NULL);
}

const struct s3_error *s3_call_may_version(struct s3_call *call, const char *action,
	const struct store_name *name, const struct s3_given *given)
{
	struct access access = {.call = call,
		.principal = s3_call_principal(call),
		.bucket = call->bucket,
		.key = name->key,
		.version_id = name->version_id,
		.given = given};

	return may(&access, action);
}

const struct s3_error *s3_call_may_know(struct s3_call *call, bool version)
{
	struct access access = {.call = call,
		.principal = s3_call_principal(call),
		.bucket = call->bucket,
		.version_id = query_version(call),
		.listed = call->key};

	return may(&access, version ? "s3:ListBucketVersions" : "s3:ListBucket");
}

const struct s3_error *s3_call_may_foreign(struct s3_call *call, struct slice bucket,
	const struct store_meta *meta, enum s3_permission permission)
{
	struct slice headers = slice_of(meta->headers, meta->headers_len);
	struct s3_settings *settings;
	int ret;

	if (!(meta->checksum_flags & S3_FLAG_FOREIGN) || !call->identity || call->identity->root ||
		(call->s3->anonymous_read && call->identity->anonymous &&
			permission == S3_PERMISSION_READ))
		return NULL;
	ret = s3_settings_get(call->s3, call->request->core, bucket, &settings);
	if (ret)
		return ret == -ENOENT ? s3_error_at(S3_E_NO_SUCH_BUCKET) : s3_fail_errno(call, ret);
	ret = s3_acl_of_foreign(
		call->s3, settings, headers, s3_call_principal(call), permission, &call->arena);
	s3_settings_put(settings);
	return ret ? s3_error_at(S3_E_ACCESS_DENIED) : NULL;
}

const struct s3_error *s3_call_may_service(
	struct s3_call *call, const char *action, struct slice resource)
{
	return s3_call_may_service_if(call, action, resource, NULL, NULL);
}

const struct s3_error *s3_call_may_service_if(struct s3_call *call, const char *action,
	struct slice resource, policy_values_fn *values, void *arg)
{
	struct access access = {.call = call,
		.principal = s3_call_principal(call),
		.more = values,
		.more_arg = arg};

	if (call->identity->root || access_allowed(&access, action, resource))
		return access.error;
	return access.error ? access.error : s3_error_at(S3_E_ACCESS_DENIED);
}

const struct s3_error *s3_call_may_operate(struct s3_call *call, const char *action)
{
	struct slice account = s3_call_principal(call)->who.account;

	if (!call->identity->root && !slice_eq(account, SLICE(IAM_ACCOUNT_OF_ROOT)))
		return s3_error_at(S3_E_ACCESS_DENIED);
	return s3_call_may_service(call, action, SLICE("arn:aws:s3:::*"));
}

/* A caller of another account than the role's, who is not an owner, also needs a policy of its
 * own. */
static bool trust_suffices(const struct access *access, struct slice role_arn)
{
	for (int part = 0; part < 4; part++)
		slice_split(&role_arn, ':');
	return access->principal->own || access->principal->who.federated.len ||
	       slice_eq(slice_split(&role_arn, ':'), access->principal->who.account);
}

bool s3_call_trusted(struct s3_call *call, const struct s3_trust *trust)
{
	const struct iam_principal federated = {.who = {.federated = trust->federated}};
	struct access access = {.call = call,
		.principal = trust->federated.len ? &federated : s3_call_principal(call),
		.more = trust->values,
		.more_arg = trust->arg};
	uint64_t steps = POLICY_STEPS_MAX;
	const struct policy_question question = {.principal = &access.principal->who,
		.action = slice_str(trust->action),
		.resource = trust->role_arn,
		.values = access_values,
		.arg = &access,
		.steps_left = &steps};
	enum policy_decision mine = identity_says(access.principal, &question), theirs;
	struct policy_refusal refusal;
	const struct policy *policy;

	if (mine == POLICY_DECISION_DENY ||
		policy_compile(trust->policy, POLICY_TRUST, &call->arena, &policy, &refusal))
		return false;
	theirs = policy_decide(policy, &question);
	if (access.error)
		return false;
	if (theirs == POLICY_DECISION_ALLOW && trust_suffices(&access, trust->role_arn))
		return true;
	return theirs != POLICY_DECISION_NONE && theirs != POLICY_DECISION_DENY &&
	       mine == POLICY_DECISION_ALLOW;
}

const struct s3_error *s3_call_pays(struct s3_call *call, const struct s3_settings *settings)
{
	struct slice said;

	if (!settings->parsed[S3_CONFIG_REQUEST_PAYMENT])
		return NULL;
	said = s3_call_header(call, SLICE("x-amz-request-payer"));
	if (!said.len)
		s3_call_param(call, SLICE("x-amz-request-payer"), &said);
	if (slice_eq_nocase(said, SLICE("requester")) && !call->identity->anonymous) {
		s3_answer_charged(call);
		return NULL;
	}
	if (call->identity->root || strcmp(s3_call_owner(call)->id, settings->bucket.owner) == 0)
		return NULL;
	return s3_error_at(S3_E_ACCESS_DENIED);
}

/* An action on any bucket, or on an object of it: only access decides, and who pays. The session of
 * a bucket is for that one. */
static const struct s3_error *may_other(struct access *access, const char *action)
{
	struct s3_call *call = access->call;
	struct slice expected = s3_call_header(call, SLICE("x-amz-source-expected-bucket-owner"));
	const struct s3_error *error = s3_express_of_session(call, access->bucket);
	struct s3_settings *settings;
	int ret;

	if (error || (has_all_rights(call) && !expected.len))
		return error;
	ret = s3_settings_get(call->s3, call->request->core, access->bucket, &settings);
	if (ret)
		return ret == -ENOENT ? s3_error_at(S3_E_NO_SUCH_BUCKET) : s3_fail_errno(call, ret);
	access->settings = settings;
	if (expected.len)
		error = check_owner(call, expected, settings->bucket.owner);
	if (!error && !has_all_rights(call))
		error = decide(access, action, access->bucket, access->key);
	if (!error && !has_all_rights(call))
		error = s3_call_pays(call, settings);
	s3_settings_put(settings);
	return error;
}

const struct s3_error *s3_call_may_read(
	struct s3_call *call, struct slice bucket, struct slice key, struct slice version_id)
{
	struct access access = {.call = call,
		.principal = s3_call_principal(call),
		.bucket = bucket,
		.key = key,
		.version_id = version_id};

	return may_other(&access, version_id.len ? "s3:GetObjectVersion" : "s3:GetObject");
}

const struct s3_error *s3_call_may_know_source(
	struct s3_call *call, const struct s3_copy *copy, bool version)
{
	struct access access = {.call = call,
		.principal = s3_call_principal(call),
		.bucket = copy->bucket,
		.version_id = copy->version_id,
		.listed = copy->key};

	return may_other(&access, version ? "s3:ListBucketVersions" : "s3:ListBucket");
}

const struct s3_error *s3_call_may_read_tags(struct s3_call *call, const struct s3_copy *copy)
{
	struct access access = {.call = call,
		.principal = s3_call_principal(call),
		.bucket = copy->bucket,
		.key = copy->key,
		.version_id = copy->version_id};
	const struct store_name source = {
		.bucket = copy->bucket, .key = copy->key, .version_id = copy->version_id};
	const struct s3_error *error;

	error = may_other(&access,
		copy->version_id.len ? "s3:GetObjectVersionTagging" : "s3:GetObjectTagging");
	return error || s3_judged_still(call->judged, &source, copy->from)
		       ? error
		       : s3_judged_changed(call);
}

/* An action on the object that a copy creates, with the tags of its source as the request's. */
static const struct s3_error *may_copy(
	struct s3_call *call, const char *action, const struct s3_tags *tags, bool made)
{
	struct access access = {.call = call,
		.principal = s3_call_principal(call),
		.bucket = call->bucket,
		.key = call->key,
		.made = made,
		.request_tags = tags};

	return may(&access, action);
}

const struct s3_error *s3_call_may_take_tags(struct s3_call *call, const struct s3_copy *copy)
{
	/* A source in another store: that store's process has asked. */
	const struct s3_error *error = copy->get ? s3_call_may_read_tags(call, copy) : NULL;
	struct s3_tags *tags = mem_arena_get(&call->arena, sizeof(*tags));
	int ret =
		tags ? s3_tags_decode(s3_tags_of_object(copy->from), &call->arena, tags) : -ENOMEM;

	if (error || ret)
		return error ? error : s3_fail_errno(call, ret);
	error = may_copy(call, "s3:PutObjectTagging", tags, true);
	return error ? error : may_copy(call, "s3:PutObject", tags, false);
}

bool s3_call_published(struct s3_call *call, struct slice topic_arn, struct slice topic_policy)
{
	struct access access = {.call = call, .principal = s3_call_principal(call)};
	uint64_t steps = POLICY_STEPS_MAX;
	const struct policy_question question = {.principal = &access.principal->who,
		.action = SLICE("sns:Publish"),
		.resource = topic_arn,
		.values = access_values,
		.arg = &access,
		.steps_left = &steps};
	struct policy_refusal refusal;
	const struct policy *policy;
	enum policy_decision mine = identity_says(access.principal, &question), says;

	if (policy_compile(topic_policy, POLICY_RESOURCE, &call->arena, &policy, &refusal))
		return false;
	says = policy_decide(policy, &question);
	if (access.error)
		return false;
	return says == POLICY_DECISION_ALLOW ||
	       (says == POLICY_DECISION_ACCOUNT && mine == POLICY_DECISION_ALLOW);
}

/* The caller's own account; an owner in an account needs a policy that allows it. The server's root
 * may name any account. */
static const struct s3_error *may_account(struct s3_call *call)
{
	const struct iam_principal *principal = s3_call_principal(call);
	struct access access = {.call = call, .principal = principal};
	uint64_t steps = POLICY_STEPS_MAX;
	const struct policy_question question = {.principal = &principal->who,
		.action = slice_str(call->operation->action),
		.resource = SLICE("*"),
		.values = access_values,
		.arg = &access,
		.steps_left = &steps};
	enum policy_decision mine;

	if (principal->who.anonymous ||
		!slice_eq(s3_call_header(call, SLICE("x-amz-account-id")), principal->who.account))
		return s3_error_at(S3_E_ACCESS_DENIED);
	mine = identity_says(principal, &question);
	if (mine == POLICY_DECISION_ALLOW ||
		(mine != POLICY_DECISION_DENY && principal->own && !principal->user_name.len))
		return NULL;
	return s3_error_at(S3_E_ACCESS_DENIED);
}

static const struct s3_error *check_expected_owner(struct s3_call *call)
{
	struct slice expected = s3_call_header(call, SLICE("x-amz-expected-bucket-owner"));
	const struct s3_settings *settings;
	const struct s3_error *error;

	if (!expected.len || !call->bucket.len ||
		call->operation->authorize == S3_AUTHORIZE_NEW_BUCKET)
		return NULL;
	error = s3_call_settings(call, &settings);
	if (error || !settings)
		return error;
	return check_owner(call, expected, settings->bucket.owner);
}

/* A caller that makes a replica (s3/replicate) decides that it is not replicated any further. */
static const char *replica_action(const struct s3_call *call)
{
	switch (call->operation->id) {
	case S3_OPERATION_DELETE_OBJECT:
		return "s3:ReplicateDelete";
	case S3_OPERATION_PUT_OBJECT_TAGGING:
	case S3_OPERATION_DELETE_OBJECT_TAGGING:
		return "s3:ReplicateTags";
	default:
		return "s3:ReplicateObject";
	}
}

/* The question is about the bucket or the object that the request names. */
static const struct s3_error *authorize_named(struct s3_call *call)
{
	const struct s3_operation *operation = call->operation;
	const struct s3_error *error;

	/* Only buckets can belong to another owner, so nothing else is checked. */
	if (!call->bucket.len)
		return call->identity->anonymous ? s3_error_at(S3_E_ACCESS_DENIED) : NULL;
	error = s3_call_may(call, access_action(call), call->key);
	/* Their handlers ask again with the contents of the body. A caller who is denied in any
	 * case is refused before the body is read. */
	if (error == s3_error_at(S3_E_ACCESS_DENIED) && call->conditional && operation->judges_body)
		error = NULL;
	/* For the existing object: its attributes reveal as much as a read would. */
	if (!error && operation->needs_read)
		error = s3_call_may(call, access_read_action(call), call->key);
	if (!error)
		error = access_headers(call);
	/* A caller who asks to bypass a lock needs the right to do so. */
	if (!error && s3_lock_bypass(call) && call->key.len && !operation->judges_body)
		error = s3_call_may(call, BYPASS, call->key);
	if (!error && call->key.len && s3_call_has_header(call, SLICE(S3_REPLICA_REQUEST)))
		error = s3_call_may(call, replica_action(call), call->key);
	return error;
}

const struct s3_error *s3_call_authorize(struct s3_call *call)
{
	const struct s3_operation *operation = call->operation;
	const struct s3_error *error = NULL;

	if (call->request->header_count)
		error = check_expected_owner(call);
	if (error || call->identity->root)
		return error;
	switch (operation->authorize) {
	case S3_AUTHORIZE_BUCKETS:
		/* An anonymous caller owns nothing, and gets an empty answer. */
		if (call->identity->anonymous)
			return NULL;
		return s3_call_may_service(call, operation->action, SLICE("arn:aws:s3:::*"));
	case S3_AUTHORIZE_ALL:
		if (call->identity->anonymous)
			return s3_error_at(S3_E_ACCESS_DENIED);
		return s3_call_may_service(call, operation->action, SLICE("*"));
	case S3_AUTHORIZE_NEW_BUCKET:
		error = s3_call_may_service(
			call, operation->action, access_resource(call, call->bucket, SLICE_NONE));
		return error ? error : access_headers(call);
	case S3_AUTHORIZE_ACCOUNT:
		return may_account(call);
	case S3_AUTHORIZE_BY_KEY:
		return call->identity->anonymous ? s3_error_at(S3_E_ACCESS_DENIED) : NULL;
	case S3_AUTHORIZE_BY_ITSELF:
		return NULL;
	case S3_AUTHORIZE_NAMED:
	case S3_AUTHORIZE_FORM:
		return authorize_named(call);
	}
	CHECK_FAIL("an operation is authorised in no way");
}
