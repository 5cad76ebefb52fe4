/* s3/identity/iam_version.c: calls about managed policies alone: their versions, their lists, and
 * the entities that they are attached to.
 *
 * Source: IAM API reference, "CreatePolicyVersion" and its kin, "ListPolicies",
 * "ListEntitiesForPolicy"; IAM User Guide, "Versioning IAM policies". */
#include <errno.h>
#include <stdio.h>

#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/identity/api.h"

/* ---- Versions. ---- */

/* "v3". AWS also accepts a dot and more text behind it, which names no version here. */
static const struct s3_error *version_id(struct api *api, uint32_t *ret_number)
{
	struct slice id = api_field(api, "VersionId"), digits = slice_from(id, MIN(id.len, 1));
	uint64_t number;

	if (!slice_starts(id, SLICE("v")) || !digits.len || digits.data[0] == '0' ||
		slice_to_u64(slice_split(&digits, '.'), &number))
		return api_invalid(api, "VersionId");
	*ret_number = digits.data || number > UINT32_MAX ? 0 : (uint32_t)number;
	return NULL;
}

static const struct s3_error *no_such_version(struct api *api)
{
	return s3_fail(api->call, S3_E_NO_SUCH_ENTITY,
		"Policy %.*s version %.*s does not exist or is not attachable.",
		SLICE_FMT(slice_to(api_field(api, "PolicyArn"), 512)),
		SLICE_FMT(slice_to(api_field(api, "VersionId"), 32)));
}

/* The policy and the number of the version that the form names. */
static const struct s3_error *find_version(
	struct api *api, json_t *account, json_t **ret_policy, uint32_t *ret_number)
{
	const struct s3_error *error = version_id(api, ret_number);

	if (!error)
		error = api_entity(api, account, API_POLICY, ret_policy);
	return error;
}

static void put_version(struct api *api, const struct iam_version *version, const char *element)
{
	buf_printf(&api->xml, "<%s>", element);
	if (strcmp(api->action->name, "GetPolicyVersion") == 0) {
		buf_put_str(&api->xml, "<Document>");
		uri_encode(version->text, 0, &api->xml);
		buf_put_str(&api->xml, "</Document>");
	}
	buf_printf(&api->xml, "<VersionId>v%u</VersionId>", version->number);
	api_put(api, "IsDefaultVersion", version->is_default ? SLICE("true") : SLICE("false"));
	api_put_time(api, "CreateDate", version->created_ms);
	buf_printf(&api->xml, "</%s>", element);
}

const struct s3_error *api_get_version(struct api *api, json_t *account)
{
	struct iam_version version;
	const struct s3_error *error;
	uint32_t number;
	json_t *policy;

	error = find_version(api, account, &policy, &number);
	if (error)
		return error;
	if (iam_version_find(policy, number, &version))
		return no_such_version(api);
	put_version(api, &version, "PolicyVersion");
	return NULL;
}

/* The newest version first; a page continues after the version that Marker names. */
const struct s3_error *api_list_versions(struct api *api, json_t *account)
{
	struct slice marker = api_field(api, "Marker"), items = api_field(api, "MaxItems");
	struct iam_version all[IAM_VERSIONS_MAX];
	const struct s3_error *error;
	uint32_t count, shown = 0, at = 0;
	uint64_t max = IAM_VERSIONS_MAX, after = UINT64_MAX;
	json_t *policy;

	error = api_entity(api, account, API_POLICY, &policy);
	if (error)
		return error;
	if (items.len && (slice_to_u64(items, &max) || !max))
		return api_invalid(api, "MaxItems");
	if (marker.len && slice_to_u64(slice_from(marker, 1), &after))
		return api_invalid(api, "Marker");
	count = iam_versions(policy, all);
	while (at < count && all[at].number >= after)
		at++;
	buf_put_str(&api->xml, "<Versions>");
	for (; at < count && shown < max; at++, shown++)
		put_version(api, &all[at], "member");
	buf_put_str(&api->xml, "</Versions>");
	api_put(api, "IsTruncated", at < count ? SLICE("true") : SLICE("false"));
	if (at < count)
		buf_printf(&api->xml, "<Marker>v%u</Marker>", all[at - 1].number);
	return NULL;
}

static const struct s3_error *flag(struct api *api, const char *field, bool *ret_set)
{
	struct slice text = api_field(api, field);

	*ret_set = slice_eq_nocase(text, SLICE("true"));
	return !text.len || *ret_set || slice_eq_nocase(text, SLICE("false"))
		       ? NULL
		       : api_invalid(api, field);
}

const struct s3_error *api_create_version(struct api *api, json_t *account)
{
	struct slice text = api_field(api, "PolicyDocument");
	struct iam_version version;
	const struct s3_error *error;
	bool is_default = false;
	uint32_t number = 0;
	json_t *policy;
	int ret;

	error = api_entity(api, account, API_POLICY, &policy);
	if (!error)
		error = flag(api, "SetAsDefault", &is_default);
	if (!error)
		error = api_policy_check(api, POLICY_IDENTITY, text);
	if (error)
		return error;
	ret = iam_version_add(policy, text, is_default, &number);
	if (ret == -EDQUOT)
		return s3_fail(api->call, S3_E_LIMIT_EXCEEDED,
			"A managed policy can have up to %u versions. Before you create a new "
			"version, you must delete an existing version.",
			IAM_VERSIONS_MAX);
	if (ret)
		return s3_fail_errno(api->call, ret);
	ret = iam_version_find(policy, number, &version);
	CHECK(!ret);
	put_version(api, &version, "PolicyVersion");
	return NULL;
}

const struct s3_error *api_set_default_version(struct api *api, json_t *account)
{
	const struct s3_error *error;
	uint32_t number;
	json_t *policy;
	int ret;

	error = find_version(api, account, &policy, &number);
	if (error)
		return error;
	ret = iam_version_set_default(policy, number);
	if (ret == -ENOENT)
		return no_such_version(api);
	return ret ? s3_fail_errno(api->call, ret) : NULL;
}

const struct s3_error *api_delete_version(struct api *api, json_t *account)
{
	const struct s3_error *error;
	uint32_t number;
	json_t *policy;
	int ret;

	error = find_version(api, account, &policy, &number);
	if (error)
		return error;
	ret = iam_version_delete(policy, number);
	if (ret == -EBUSY)
		return s3_fail(api->call, S3_E_DELETE_CONFLICT,
			"Cannot delete the default version of a policy.");
	return ret ? no_such_version(api) : NULL;
}

/* ---- Lists of policies. ---- */

/* Marks, in the sorted list, the policies that every account has. A name cannot contain a colon. */
#define BUILTIN_MARK "aws:"

static const struct s3_error *add_policies(
	struct api *api, json_t *account, json_t *policies, const char *mark, json_t *ret_all)
{
	char arn[IAM_ARN_LEN_MAX], key[IAM_NAME_LEN_MAX + sizeof(BUILTIN_MARK)];
	const struct s3_error *error;
	const char *name;
	json_t *policy;
	bool attached;

	error = flag(api, "OnlyAttached", &attached);
	if (error)
		return error;
	json_object_foreach(policies, name, policy)
	{
		if (attached &&
			!iam_attached_count(account, iam_arn(account, "policy", policy, arn)))
			continue;
		snprintf(key, sizeof(key), "%s%s", mark, name);
		if (json_object_set(ret_all, key, policy))
			return s3_error_at(S3_E_SLOW_DOWN);
	}
	return NULL;
}

static void each_policy(struct api *api, json_t *account, const char *name, json_t *policy)
{
	(void)name;
	if (slice_starts(json_member_text(policy, "path"), api_field(api, "PathPrefix")))
		api_put_entity(api, account, API_POLICY, policy, "member");
}

const struct s3_error *api_list_managed(struct api *api, json_t *account)
{
	struct slice scope = api_field(api, "Scope"), usage = api_field(api, "PolicyUsageFilter");
	bool aws = slice_eq(scope, SLICE("AWS")), local = slice_eq(scope, SLICE("Local"));
	bool boundaries = slice_eq(usage, SLICE("PermissionsBoundary"));
	const struct s3_error *error = NULL;
	json_t *all;

	if (scope.len && !aws && !local && !slice_eq(scope, SLICE("All")))
		return api_invalid(api, "Scope");
	if (usage.len && !boundaries && !slice_eq(usage, SLICE("PermissionsPolicy")))
		return api_invalid(api, "PolicyUsageFilter");
	all = json_object();
	/* No policy is used as a boundary here. */
	if (!aws && !boundaries)
		error = add_policies(api, account, json_object_get(account, "policies"), "", all);
	if (!error && !local && !boundaries)
		error = add_policies(api, account, api_builtins(api), BUILTIN_MARK, all);
	if (!error)
		error = api_list(api, account, all, "Policies", each_policy);
	json_decref(all);
	return error;
}

/* ---- The entities that a policy is attached to. ---- */

static void put_holders(
	struct api *api, json_t *account, enum api_kind kind, const char *title, struct slice arn)
{
	struct slice filter = api_field(api, "EntityFilter");
	struct slice prefix = api_field(api, "PathPrefix");
	const char *name;
	json_t *holder;

	buf_printf(&api->xml, "<Policy%ss>", title);
	json_object_foreach(json_object_get(account, api_members(kind)), name, holder)
	{
		if ((filter.len && !slice_eq(filter, slice_str(title))) ||
			!slice_starts(json_member_text(holder, "path"), prefix) ||
			!iam_is_attached(holder, arn))
			continue;
		buf_put_str(&api->xml, "<member>");
		api_put_ids(api, kind, holder);
		buf_put_str(&api->xml, "</member>");
	}
	buf_printf(&api->xml, "</Policy%ss>", title);
}

const struct s3_error *api_entities_for_policy(struct api *api, json_t *account)
{
	struct slice filter = api_field(api, "EntityFilter");
	struct slice usage = api_field(api, "PolicyUsageFilter");
	char text[IAM_ARN_LEN_MAX];
	const struct s3_error *error;
	struct slice arn;
	json_t *policy;

	error = api_entity(api, account, API_POLICY, &policy);
	if (error)
		return error;
	if (filter.len && !slice_eq(filter, SLICE("User")) && !slice_eq(filter, SLICE("Role")) &&
		!slice_eq(filter, SLICE("Group")))
		return api_invalid(api, "EntityFilter");
	if (usage.len && !slice_eq(usage, SLICE("PermissionsPolicy")))
		return api_invalid(api, "PolicyUsageFilter");
	arn = iam_arn(account, "policy", policy, text);
	put_holders(api, account, API_GROUP, "Group", arn);
	put_holders(api, account, API_USER, "User", arn);
	put_holders(api, account, API_ROLE, "Role", arn);
	api_put(api, "IsTruncated", SLICE("false"));
	return NULL;
}
