/* iam/principal.c: makes the callers of an account's document: names, ARNs, the policies that apply
 * to each. A policy that no longer compiles is not ignored: it denies. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "iam/iam_priv.h"

#define POLICIES_MAX 128u

struct gather {
	struct iam_principal *principal;
	const struct policy *policies[POLICIES_MAX];
	uint32_t count;
	int error;
};

static const char deny_all[] =
	"{\"Statement\":{\"Effect\":\"Deny\",\"Action\":\"*\",\"Resource\":\"*\"}}";

static const struct policy *compile(struct iam_principal *principal, struct slice text)
{
	const struct policy *policy = NULL;
	struct policy_refusal refusal;
	int ret = policy_compile(text, POLICY_IDENTITY, &principal->arena, &policy, &refusal);

	if (ret == -EINVAL) {
		log_error("iam",
			"a stored policy of %.*s cannot be used, so every request of it is "
			"denied: %s",
			SLICE_FMT(principal->who.arn), refusal.text);
		ret = policy_compile(slice_of(deny_all, sizeof(deny_all) - 1), POLICY_IDENTITY,
			&principal->arena, &policy, &refusal);
	}
	return ret ? NULL : policy;
}

static void gather_text(struct gather *gather, struct slice text)
{
	const struct policy *policy;

	if (gather->error)
		return;
	policy = gather->count < POLICIES_MAX ? compile(gather->principal, text) : NULL;
	if (!policy)
		gather->error = gather->count < POLICIES_MAX ? -ENOMEM : -E2BIG;
	else
		gather->policies[gather->count++] = policy;
}

static void gather_attached(struct gather *gather, const json_t *account, struct slice arn)
{
	const char *builtin = iam_builtin_policy(arn);
	const json_t *policies = json_object_get(account, "policies"), *policy;
	char own[IAM_ARN_LEN_MAX];
	const char *name;

	if (builtin) {
		gather_text(gather, slice_str(builtin));
		return;
	}
	json_object_foreach((json_t *)policies, name,
		policy) if (slice_eq(iam_arn(account, "policy", policy, own), arn))
		gather_text(gather, json_member_text(policy, "text"));
}

/* Inline and attached policies of a user, a group or a role. */
static void gather_entity(struct gather *gather, const json_t *account, const json_t *entity)
{
	const json_t *text, *attached = json_object_get(entity, "attached");
	const char *name;

	json_object_foreach(json_object_get(entity, "inline"), name, text)
		gather_text(gather, slice_of(json_string_value(text), json_string_length(text)));
	for (size_t i = 0; i < json_array_size(attached); i++)
		gather_attached(
			gather, account, slice_str(json_string_value(json_array_get(attached, i))));
}

static int gather_finish(
	const struct gather *gather, const struct policy ***ret_policies, uint32_t *ret_count)
{
	size_t bytes = gather->count * sizeof(*gather->policies);

	if (gather->error)
		return gather->error;
	*ret_policies = mem_arena_get(&gather->principal->arena, bytes + 1);
	if (!*ret_policies)
		return -ENOMEM;
	memcpy(*ret_policies, gather->policies, bytes);
	*ret_count = gather->count;
	return 0;
}

static struct slice keep(struct iam_principal *principal, struct slice text)
{
	return mem_arena_copy(&principal->arena, text);
}

static int keep_tag(struct iam_principal *principal, const struct iam_tag *given)
{
	struct iam_tag tag = {
		keep(principal, given->key), keep(principal, given->value), given->transitive};

	if (!tag.key.data || !tag.value.data)
		return -ENOMEM;
	principal->tags[principal->tag_count++] = tag;
	return 0;
}

static bool has_tag(const struct iam_session *session, struct slice key)
{
	for (uint32_t i = 0; session && i < session->tag_count; i++)
		if (slice_eq_nocase(session->tags[i].key, key))
			return true;
	return false;
}

/* The tags of the user or the role, except where the session (NULL: none) has its own. */
static int keep_tags(
	struct iam_principal *principal, const json_t *entity, const struct iam_session *session)
{
	json_t *tags = json_object_get(entity, "tags"), *value;
	size_t count = json_object_size(tags) + (session ? session->tag_count : 0);
	const char *key;
	int ret = 0;

	if (!count)
		return 0;
	principal->tags = mem_arena_get(&principal->arena, count * sizeof(*principal->tags));
	if (!principal->tags)
		return -ENOMEM;
	for (uint32_t i = 0; session && i < session->tag_count && !ret; i++)
		ret = keep_tag(principal, &session->tags[i]);
	json_object_foreach(tags, key, value)
	{
		const struct iam_tag tag = {slice_str(key),
			slice_of(json_string_value(value), json_string_length(value)), false};

		if (!ret && !has_tag(session, tag.key))
			ret = keep_tag(principal, &tag);
	}
	return ret;
}

static struct iam_principal *principal_make(const json_t *account, const json_t *owner)
{
	struct iam_principal *principal = calloc(1, sizeof(*principal));
	struct slice name;

	if (!principal)
		return NULL;
	principal->references = 1;
	mem_arena_init(&principal->arena);
	principal->who.account = keep(principal, json_member_text(account, "account_id"));
	principal->who.owner = keep(principal, json_member_text(owner, "id"));
	name = json_member_text(owner, "display_name");
	/* Documents hold nothing longer: the code that makes them checks. */
	slice_copy_str(principal->who.owner, principal->owner.id, sizeof(principal->owner.id));
	slice_copy_str(name, principal->owner.name, sizeof(principal->owner.name));
	slice_copy_str(
		principal->who.account, principal->owner.account, sizeof(principal->owner.account));
	return principal;
}

void iam_principal_put(struct iam_principal *principal)
{
	if (!principal ||
		atomic_fetch_sub_explicit(&principal->references, 1, memory_order_acq_rel) > 1)
		return;
	mem_arena_free(&principal->arena);
	free(principal);
}

int iam_principal_of_user(
	const json_t *account, const json_t *user, struct iam_principal **ret_principal)
{
	bool own = !user || json_object_get(user, "id");
	struct gather gather = {.principal = principal_make(account, user && own ? user : account)};
	struct iam_principal *principal = gather.principal;
	const json_t *groups = json_object_get(user, "groups");
	char arn[IAM_ARN_LEN_MAX];
	int ret;

	if (!principal)
		return -ENOMEM;
	principal->own = own;
	principal->who.root = !user;
	principal->who.own = user && own;
	principal->who.arn = keep(principal, iam_arn(account, "user", user, arn));
	principal->who.user_id =
		keep(principal, user ? json_member_text(user, "user_id") : principal->who.account);
	principal->user_name = keep(principal, json_member_text(user, "name"));
	if (user)
		gather_entity(&gather, account, user);
	for (size_t i = 0; i < json_array_size(groups); i++)
		gather_entity(&gather, account,
			iam_entity(account, "groups",
				slice_str(json_string_value(json_array_get(groups, i)))));
	ret = gather_finish(&gather, &principal->policies, &principal->policy_count);
	if (!ret)
		ret = keep_tags(principal, user, NULL);
	if (ret)
		iam_principal_put(principal);
	else
		*ret_principal = principal;
	return ret;
}

static int principal_of_role(const json_t *account, const json_t *role,
	const struct iam_session *session, struct iam_principal **ret_principal)
{
	struct gather gather = {.principal = principal_make(account, account)};
	struct iam_principal *principal = gather.principal;
	char arn[IAM_ARN_LEN_MAX], text[IAM_ARN_LEN_MAX];
	int ret, len;

	if (!principal)
		return -ENOMEM;
	principal->who.role = keep(principal, iam_arn(account, "role", role, arn));
	len = snprintf(text, sizeof(text), "arn:aws:sts::%.*s:assumed-role/%.*s/%.*s",
		SLICE_FMT(principal->who.account), SLICE_FMT(json_member_text(role, "name")),
		SLICE_FMT(session->name));
	principal->who.arn = keep(principal, slice_of(text, (size_t)len));
	len = snprintf(text, sizeof(text), "%.*s:%.*s",
		SLICE_FMT(json_member_text(role, "role_id")), SLICE_FMT(session->name));
	principal->who.user_id = keep(principal, slice_of(text, (size_t)len));
	gather_entity(&gather, account, role);
	ret = gather_finish(&gather, &principal->policies, &principal->policy_count);
	if (!ret)
		ret = keep_tags(principal, role, session);
	if (ret)
		iam_principal_put(principal);
	else
		*ret_principal = principal;
	return ret;
}

/* Adds the session's own policies; one that no longer exists allows nothing. */
static int narrow(
	struct iam_principal *principal, const json_t *account, const struct iam_session *session)
{
	struct gather gather = {.principal = principal};
	struct slice rest = session->policy_arns;

	principal->narrowed = session->policy.len || session->policy_arns.len;
	if (session->policy.len)
		gather_text(&gather, session->policy);
	while (rest.len)
		gather_attached(&gather, account, slice_split(&rest, ' '));
	return gather_finish(&gather, &principal->narrows, &principal->narrow_count);
}

/* The session's role; NULL: it is gone. Another role can have its name, but not its id. */
static json_t *role_of(const json_t *account, const struct iam_session *session)
{
	json_t *role = iam_entity(account, "roles", session->role);

	return session->role_id.len && slice_eq(json_member_text(role, "role_id"), session->role_id)
		       ? role
		       : NULL;
}

int iam_principal_of_session(
	struct iam *iam, const struct iam_session *session, struct iam_principal **ret_principal)
{
	json_t *account = iam_account(iam, session->account), *entity = NULL;
	struct iam_principal *principal = NULL;
	int ret = account ? 0 : -ENOENT;

	if (session->role.len)
		entity = role_of(account, session);
	else if (session->user.len)
		entity = iam_entity(account, "users", session->user);
	if (!entity && (session->role.len || session->user.len))
		ret = -ENOENT;
	if (!ret && session->role.len)
		ret = principal_of_role(account, entity, session, &principal);
	else if (!ret)
		ret = iam_principal_of_user(account, entity, &principal);
	if (!ret)
		ret = narrow(principal, account, session);
	iam_account_put(account);
	if (ret) {
		iam_principal_put(principal);
		return ret;
	}
	principal->session_name = keep(principal, session->name);
	*ret_principal = principal;
	return 0;
}
