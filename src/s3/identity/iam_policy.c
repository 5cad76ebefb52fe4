/* s3/identity/iam_policy.c: policies inside users, groups and roles, and those attached to them;
 * the members of groups; the trust policies of roles. */
#include <errno.h>
#include <stdio.h>

#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/identity/api.h"

const struct s3_error *api_policy_check(struct api *api, enum policy_kind kind, struct slice text)
{
	struct policy_refusal refusal = {""};
	const struct policy *policy;
	int ret = policy_compile(text, kind, &api->call->arena, &policy, &refusal);

	if (!ret)
		ret = policy_check_document(policy, &refusal);
	if (ret == -EINVAL)
		return s3_fail(api->call, S3_E_MALFORMED_POLICY_DOCUMENT, "%s", refusal.text);
	return ret ? s3_fail_errno(api->call, ret) : NULL;
}

static const struct s3_error *policy_name(struct api *api, char ret_name[IAM_NAME_LEN_MAX + 1])
{
	char lower[IAM_NAME_LEN_MAX + 1];
	struct slice name = api_field(api, "PolicyName");

	if (iam_lower(name, lower) || slice_copy_str(name, ret_name, IAM_NAME_LEN_MAX + 1))
		return api_invalid(api, "PolicyName");
	return NULL;
}

const struct s3_error *api_put_policy(struct api *api, json_t *account)
{
	char name[IAM_NAME_LEN_MAX + 1];
	struct slice text = api_field(api, "PolicyDocument");
	const struct s3_error *error;
	json_t *entity;

	error = api_entity(api, account, api->action->kind, &entity);
	if (!error)
		error = policy_name(api, name);
	if (!error)
		error = api_policy_check(api, POLICY_IDENTITY, text);
	if (!error && json_member_set_text(json_member_object(entity, "inline"), name, text))
		error = s3_error_at(S3_E_SLOW_DOWN);
	return error;
}

static const struct s3_error *find_policy(
	struct api *api, json_t *account, json_t **ret_all, char ret_name[IAM_NAME_LEN_MAX + 1])
{
	const struct s3_error *error;
	json_t *entity;

	error = api_entity(api, account, api->action->kind, &entity);
	if (!error)
		error = policy_name(api, ret_name);
	if (error)
		return error;
	*ret_all = json_object_get(entity, "inline");
	return json_object_get(*ret_all, ret_name)
		       ? NULL
		       : api_no_such(api, "policy", slice_str(ret_name));
}

const struct s3_error *api_get_policy(struct api *api, json_t *account)
{
	char name[IAM_NAME_LEN_MAX + 1];
	const struct s3_error *error;
	json_t *all, *entity;

	error = find_policy(api, account, &all, name);
	if (error)
		return error;
	error = api_entity(api, account, api->action->kind, &entity);
	if (error)
		return error;
	api_put(api, api_name_field(api->action->kind), json_member_text(entity, "name"));
	api_put(api, "PolicyName", slice_str(name));
	buf_put_str(&api->xml, "<PolicyDocument>");
	uri_encode(json_member_text(all, name), 0, &api->xml);
	buf_put_str(&api->xml, "</PolicyDocument>");
	return NULL;
}

const struct s3_error *api_delete_policy(struct api *api, json_t *account)
{
	char name[IAM_NAME_LEN_MAX + 1];
	json_t *all;
	const struct s3_error *error = find_policy(api, account, &all, name);

	if (!error)
		json_object_del(all, name);
	return error;
}

static void each_name(struct api *api, json_t *account, const char *name, json_t *value)
{
	(void)account;
	(void)value;
	api_put(api, "member", slice_str(name));
}

const struct s3_error *api_list_policies(struct api *api, json_t *account)
{
	json_t *entity;
	const struct s3_error *error = api_entity(api, account, api->action->kind, &entity);

	return error ? error
		     : api_list(api, account, json_object_get(entity, "inline"), "PolicyNames",
			       each_name);
}

/* ---- Managed ones. ---- */

const struct s3_error *api_attach(struct api *api, json_t *account)
{
	struct slice arn = api_field(api, "PolicyArn");
	const struct s3_error *error;
	json_t *entity;
	int ret;

	error = api_entity(api, account, api->action->kind, &entity);
	if (error)
		return error;
	ret = iam_attach(account, entity, arn);
	if (ret == -ENOENT)
		return api_no_such(api, "policy", arn);
	if (ret == -EDQUOT)
		return s3_fail(api->call, S3_E_LIMIT_EXCEEDED,
			"Cannot exceed quota for attached policies: %u", IAM_ATTACHED_MAX);
	return ret ? s3_error_at(S3_E_SLOW_DOWN) : NULL;
}

const struct s3_error *api_detach(struct api *api, json_t *account)
{
	struct slice arn = api_field(api, "PolicyArn");
	const struct s3_error *error;
	json_t *entity;

	error = api_entity(api, account, api->action->kind, &entity);
	if (error)
		return error;
	return iam_detach(account, entity, arn) ? api_no_such(api, "policy", arn) : NULL;
}

const struct s3_error *api_list_attached(struct api *api, json_t *account)
{
	const struct s3_error *error;
	const json_t *list;
	json_t *entity;

	error = api_entity(api, account, api->action->kind, &entity);
	if (error)
		return error;
	list = json_object_get(entity, "attached");
	buf_put_str(&api->xml, "<AttachedPolicies>");
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *arn = json_string_value(json_array_get(list, i));
		const char *slash = strrchr(arn, '/');

		buf_put_str(&api->xml, "<member>");
		api_put(api, "PolicyName", slice_str(slash ? slash + 1 : arn));
		api_put(api, "PolicyArn", slice_str(arn));
		buf_put_str(&api->xml, "</member>");
	}
	buf_put_str(&api->xml, "</AttachedPolicies><IsTruncated>false</IsTruncated>");
	return NULL;
}

/* ---- Groups and roles. ---- */

static const struct s3_error *membership(
	struct api *api, json_t *account, json_t **ret_groups, char ret_lower[IAM_NAME_LEN_MAX + 1])
{
	const struct s3_error *error;
	json_t *group, *user;

	error = api_entity(api, account, API_GROUP, &group);
	if (!error)
		error = api_entity(api, account, API_USER, &user);
	if (error)
		return error;
	iam_lower(json_member_text(group, "name"), ret_lower);
	*ret_groups = json_member_list(user, "groups");
	return *ret_groups ? NULL : s3_error_at(S3_E_SLOW_DOWN);
}

#define GROUPS_MAX 10u

const struct s3_error *api_group_add(struct api *api, json_t *account)
{
	char lower[IAM_NAME_LEN_MAX + 1];
	const struct s3_error *error;
	size_t ignored;
	json_t *groups;

	error = membership(api, account, &groups, lower);
	if (error || json_list_find_text(groups, slice_str(lower), &ignored))
		return error;
	if (json_array_size(groups) >= GROUPS_MAX)
		return s3_fail(api->call, S3_E_LIMIT_EXCEEDED,
			"Cannot exceed quota for GroupsPerUser: %u", GROUPS_MAX);
	json_array_append_new(groups, json_string(lower));
	return NULL;
}

const struct s3_error *api_group_remove(struct api *api, json_t *account)
{
	char lower[IAM_NAME_LEN_MAX + 1];
	const struct s3_error *error;
	json_t *groups;
	size_t idx;

	error = membership(api, account, &groups, lower);
	if (error)
		return error;
	if (!json_list_find_text(groups, slice_str(lower), &idx))
		return api_no_such(api, "member", api_field(api, "UserName"));
	json_array_remove(groups, idx);
	return NULL;
}

const struct s3_error *api_groups_of_user(struct api *api, json_t *account)
{
	const struct s3_error *error;
	const json_t *groups;
	json_t *user;

	error = api_entity(api, account, API_USER, &user);
	if (error)
		return error;
	groups = json_object_get(user, "groups");
	buf_put_str(&api->xml, "<Groups>");
	for (size_t i = 0; i < json_array_size(groups); i++) {
		const json_t *group = json_object_get(json_object_get(account, "groups"),
			json_string_value(json_array_get(groups, i)));

		if (group)
			api_put_entity(api, account, API_GROUP, group, "member");
	}
	buf_put_str(&api->xml, "</Groups><IsTruncated>false</IsTruncated>");
	return NULL;
}

const struct s3_error *api_trust(struct api *api, json_t *account)
{
	struct slice text = api_field(api, "PolicyDocument");
	const struct s3_error *error;
	json_t *role;

	error = api_entity(api, account, API_ROLE, &role);
	if (!error)
		error = api_policy_check(api, POLICY_TRUST, text);
	if (!error && json_member_set_text(role, "trust", text))
		error = s3_error_at(S3_E_SLOW_DOWN);
	return error;
}

const struct s3_error *api_summary(struct api *api, json_t *account)
{
	const struct {
		const char *key;
		size_t value;
	} entries[] = {
		{"Users", json_object_size(json_object_get(account, "users"))},
		{"Groups", json_object_size(json_object_get(account, "groups"))},
		{"Roles", json_object_size(json_object_get(account, "roles"))},
		{"Policies", json_object_size(json_object_get(account, "policies"))},
		{"Providers", json_object_size(json_object_get(account, "providers"))},
		{"UsersQuota", 5000},
		{"GroupsQuota", 300},
		{"RolesQuota", 1000},
		{"PoliciesQuota", 1500},
		{"AccessKeysPerUserQuota", IAM_KEYS_PER_USER},
		{"GroupsPerUserQuota", GROUPS_MAX},
		{"AttachedPoliciesPerUserQuota", IAM_ATTACHED_MAX},
	};

	buf_put_str(&api->xml, "<SummaryMap>");
	for (size_t i = 0; i < ARRAY_LEN(entries); i++) {
		buf_put_str(&api->xml, "<entry>");
		api_put(api, "key", slice_str(entries[i].key));
		s3_xml_u64(&api->xml, "value", entries[i].value);
		buf_put_str(&api->xml, "</entry>");
	}
	buf_put_str(&api->xml, "</SummaryMap>");
	return NULL;
}
