/* s3/identity/iam.c: users, groups, roles, managed policies: common calls to create, read, change
 * and delete them; and the keys of users. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "s3/auth/access.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/identity/admin.h"
#include "s3/identity/api.h"

#define PATH_LEN_MAX 512u
#define ITEMS_MAX    1000u
/* Limits of a role's session duration; the default is the minimum. */
#define ROLE_SECONDS_MIN    3600u
#define ROLE_SECONDS_MAX    43200u
#define DESCRIPTION_LEN_MAX 1000u

static const struct {
	const char *members, *word, *name_field, *title, *id_field, *id_element, *id_prefix;
} kinds[] = {
	[API_NONE] = {"", "", "", "", "", "", ""},
	[API_USER] = {"users", "user", "UserName", "User", "user_id", "UserId", "AIDA"},
	[API_GROUP] = {"groups", "group", "GroupName", "Group", "group_id", "GroupId", "AGPA"},
	[API_ROLE] = {"roles", "role", "RoleName", "Role", "role_id", "RoleId", "AROA"},
	[API_POLICY] = {"policies", "policy", "PolicyName", "Policy", "policy_id", "PolicyId",
		"ANPA"},
	[API_PROVIDER] = {"providers", "oidc-provider", "OpenIDConnectProviderArn",
		"OpenIDConnectProvider", "", "", ""},
};

struct slice api_field(const struct api *api, const char *name)
{
	const struct s3_param *param = s3_query_find(&api->form, slice_str(name));

	return param ? param->value : SLICE_NONE;
}

static bool has_field(const struct api *api, const char *name)
{
	return s3_query_find(&api->form, slice_str(name)) != NULL;
}

json_t *api_builtins(struct api *api)
{
	if (!api->builtins)
		api->builtins = iam_builtin_policies();
	return api->builtins;
}

const char *api_members(enum api_kind kind)
{
	return kinds[kind].members;
}

const char *api_word(enum api_kind kind)
{
	return kinds[kind].word;
}

const char *api_name_field(enum api_kind kind)
{
	return kinds[kind].name_field;
}

const struct s3_error *api_no_such(struct api *api, const char *what, struct slice name)
{
	return s3_fail(api->call, S3_E_NO_SUCH_ENTITY, "The %s with name %.*s cannot be found.",
		what, SLICE_FMT(slice_to(name, 128)));
}

const struct s3_error *api_invalid(struct api *api, const char *what)
{
	return s3_fail(api->call, S3_E_VALIDATION, "%s is missing or not valid.", what);
}

void api_put(struct api *api, const char *element, struct slice text)
{
	xml_element(element, text, &api->xml);
}

void api_put_time(struct api *api, const char *element, int64_t ms)
{
	char text[DATE_ISO_LEN];

	date_iso_format(ms > 0 && ms < DATE_MS_MAX ? ms / 1000 * 1000 : 0, text);
	/* Without a fraction, as IAM writes it. */
	text[19] = 'Z';
	api_put(api, element, slice_of(text, 20));
}

static void put_encoded(struct api *api, const char *element, struct slice text)
{
	buf_printf(&api->xml, "<%s>", element);
	uri_encode(text, 0, &api->xml);
	buf_printf(&api->xml, "</%s>", element);
}

int64_t api_role_seconds(const json_t *role)
{
	int64_t seconds = json_member_number(role, "max_session");

	return seconds ? seconds : ROLE_SECONDS_MIN;
}

/* Takes the form's maximum duration of a role's sessions. */
static const struct s3_error *take_role_seconds(struct api *api, json_t *role)
{
	struct slice text = api_field(api, "MaxSessionDuration");
	uint64_t seconds;

	if (!text.len)
		return NULL;
	if (slice_to_u64(text, &seconds) || seconds < ROLE_SECONDS_MIN ||
		seconds > ROLE_SECONDS_MAX)
		return api_invalid(api, "MaxSessionDuration");
	json_object_set_new(role, "max_session", json_integer((json_int_t)seconds));
	return NULL;
}

void api_put_ids(struct api *api, enum api_kind kind, const json_t *entity)
{
	api_put(api, kinds[kind].name_field, json_member_text(entity, "name"));
	api_put(api, kinds[kind].id_element, json_member_text(entity, kinds[kind].id_field));
}

static void put_description(struct api *api, const json_t *entity)
{
	if (json_member_text(entity, "description").len)
		api_put(api, "Description", json_member_text(entity, "description"));
}

/* Writes the elements of managed policies alone. There are no permissions boundaries here. */
static void put_managed(struct api *api, const json_t *account, const json_t *policy)
{
	struct iam_version versions[IAM_VERSIONS_MAX], in_use;
	uint32_t count = iam_versions(policy, versions);
	char arn[IAM_ARN_LEN_MAX];

	CHECK(count > 0);
	in_use = versions[0];
	for (uint32_t i = 1; i < count; i++)
		if (versions[i].is_default)
			in_use = versions[i];
	buf_printf(&api->xml, "<DefaultVersionId>v%u</DefaultVersionId>", in_use.number);
	s3_xml_u64(&api->xml, "AttachmentCount",
		iam_attached_count(account, iam_arn(account, "policy", policy, arn)));
	api_put(api, "PermissionsBoundaryUsageCount", SLICE("0"));
	api_put(api, "IsAttachable", SLICE("true"));
	api_put_time(api, "UpdateDate", versions[0].created_ms);
}

void api_put_entity(struct api *api, json_t *account, enum api_kind kind, const json_t *entity,
	const char *element)
{
	char arn[IAM_ARN_LEN_MAX];
	struct slice path = json_member_text(entity, "path");

	buf_printf(&api->xml, "<%s>", element);
	if (entity) {
		api_put(api, "Path", path.len ? path : SLICE("/"));
		api_put(api, kinds[kind].name_field, json_member_text(entity, "name"));
	}
	api_put(api, kinds[kind].id_element,
		json_member_text(
			entity ? entity : account, entity ? kinds[kind].id_field : "account_id"));
	api_put(api, "Arn", iam_arn(account, kinds[kind].word, entity, arn));
	api_put_time(api, "CreateDate", json_member_number(entity ? entity : account, "created"));
	if (kind == API_ROLE) {
		put_encoded(api, "AssumeRolePolicyDocument", json_member_text(entity, "trust"));
		put_description(api, entity);
		buf_printf(&api->xml, "<MaxSessionDuration>%lld</MaxSessionDuration>",
			(long long)api_role_seconds(entity));
	}
	if (kind == API_POLICY)
		put_managed(api, account, entity);
	/* Lists leave out the tags, and a policy's description. */
	if (kind == API_POLICY && strcmp(element, "member") != 0)
		put_description(api, entity);
	if (strcmp(element, "member") != 0)
		api_put_tags(api, entity);
	buf_printf(&api->xml, "</%s>", element);
}

/* The name in the form; for a managed policy the last part of its ARN. */
static struct slice wanted_name(struct api *api, enum api_kind kind)
{
	struct slice arn = api_field(api, "PolicyArn");

	if (kind != API_POLICY || !arn.len)
		return api_field(api, kinds[kind].name_field);
	for (size_t i = arn.len; i-- > 0;)
		if (arn.data[i] == '/')
			return slice_from(arn, i + 1);
	return arn;
}

/* A managed policy by its ARN. Policies that every account has can be read, not changed. */
static const struct s3_error *find_managed(
	struct api *api, json_t *account, struct slice arn, json_t **ret_policy)
{
	char own[IAM_ARN_LEN_MAX], lower[IAM_NAME_LEN_MAX + 1];
	bool builtin = slice_starts(arn, SLICE(IAM_BUILTIN_ARN_START));
	json_t *policy = NULL;

	if (builtin && api->action->changes)
		return s3_fail(
			api->call, S3_E_ACCESS_DENIED, "Policy is outside your own account.");
	if (builtin && iam_lower(wanted_name(api, API_POLICY), lower) == 0)
		policy = json_object_get(api_builtins(api), lower);
	else if (!builtin)
		policy = iam_entity(account, "policies", wanted_name(api, API_POLICY));
	if (!policy || !slice_eq(iam_arn(account, "policy", policy, own), arn))
		return s3_fail(api->call, S3_E_NO_SUCH_ENTITY, "Policy %.*s was not found.",
			SLICE_FMT(slice_to(arn, 512)));
	*ret_policy = policy;
	return NULL;
}

const struct s3_error *api_entity(
	struct api *api, json_t *account, enum api_kind kind, json_t **ret_entity)
{
	struct slice name = wanted_name(api, kind), arn = api_field(api, "PolicyArn");

	if (kind == API_PROVIDER)
		return api_provider(api, account, ret_entity);
	if (kind == API_POLICY && arn.len)
		return find_managed(api, account, arn, ret_entity);
	if (!name.len)
		return api_invalid(api, kinds[kind].name_field);
	*ret_entity = iam_entity(account, kinds[kind].members, name);
	return *ret_entity ? NULL : api_no_such(api, kinds[kind].word, name);
}

/* ---- Lists. ---- */

static int name_cmp(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const struct s3_error *api_list(
	struct api *api, json_t *account, json_t *object, const char *element, api_each_fn *each)
{
	struct slice marker = api_field(api, "Marker"), items = api_field(api, "MaxItems");
	size_t count = json_object_size(object), at = 0, shown = 0;
	const char **names = mem_arena_get(&api->call->arena, (count + 1) * sizeof(*names));
	uint64_t max = 100;
	const char *name;
	json_t *value;

	if (items.len && (slice_to_u64(items, &max) || !max || max > ITEMS_MAX))
		return api_invalid(api, "MaxItems");
	if (!names)
		return s3_error_at(S3_E_SLOW_DOWN);
	json_object_foreach(object, name, value) names[at++] = name;
	qsort(names, count, sizeof(*names), name_cmp);
	for (at = 0; marker.len && at < count && slice_cmp(slice_str(names[at]), marker) <= 0;)
		at++;
	buf_printf(&api->xml, "<%s>", element);
	for (; at < count && shown < max; at++) {
		size_t before = api->xml.len;

		each(api, account, names[at], json_object_get(object, names[at]));
		shown += api->xml.len > before;
	}
	buf_printf(&api->xml, "</%s>", element);
	api_put(api, "IsTruncated", at < count ? SLICE("true") : SLICE("false"));
	if (at < count)
		api_put(api, "Marker", slice_str(names[at - 1]));
	return NULL;
}

static void each_entity(struct api *api, json_t *account, const char *name, json_t *entity)
{
	struct slice prefix = api_field(api, "PathPrefix");

	(void)name;
	if (slice_starts(json_member_text(entity, "path"), prefix))
		api_put_entity(api, account, api->action->kind, entity, "member");
}

const struct s3_error *api_list_all(struct api *api, json_t *account)
{
	char element[16];

	snprintf(element, sizeof(element), "%ss", kinds[api->action->kind].title);
	return api_list(api, account, json_object_get(account, kinds[api->action->kind].members),
		element, each_entity);
}

/* ---- Create, read, change, delete. ---- */

static bool is_path(struct slice path)
{
	for (size_t i = 0; i < path.len; i++)
		if (path.data[i] < '!' || path.data[i] > '~')
			return false;
	return path.len <= PATH_LEN_MAX && path.len && path.data[0] == '/' &&
	       path.data[path.len - 1] == '/';
}

static const struct s3_error *take_policy(struct api *api, enum policy_kind kind, const char *field,
	json_t *entity, const char *member)
{
	struct slice text = api_field(api, field);
	const struct s3_error *error = api_policy_check(api, kind, text);
	int ret = error ? 0 : json_member_set_text(entity, member, text);

	return ret ? s3_fail_errno(api->call, ret) : error;
}

static const struct s3_error *take_description(struct api *api, json_t *entity)
{
	struct slice text = api_field(api, "Description");

	if (!has_field(api, "Description"))
		return NULL;
	if (text.len > DESCRIPTION_LEN_MAX || !utf8_is_valid(text) ||
		(text.len && memchr(text.data, 0, text.len)))
		return api_invalid(api, "Description");
	return json_member_set_text(entity, "description", text) ? s3_error_at(S3_E_SLOW_DOWN)
								 : NULL;
}

/* Takes the form's fields into the new entity, but for its name, which was checked. */
static const struct s3_error *take_new(struct api *api, json_t *entity)
{
	enum api_kind kind = api->action->kind;
	const struct s3_error *error = NULL;

	/* A boundary that was accepted but not enforced would give more rights than intended. */
	if (has_field(api, "PermissionsBoundary"))
		return s3_fail(api->call, S3_E_VALIDATION,
			"PermissionsBoundary: permissions boundaries are not served here.");
	if (kind == API_ROLE)
		error = take_policy(api, POLICY_TRUST, "AssumeRolePolicyDocument", entity, "trust");
	if (!error && kind == API_ROLE)
		error = take_role_seconds(api, entity);
	if (!error && kind == API_POLICY)
		error = take_policy(api, POLICY_IDENTITY, "PolicyDocument", entity, "text");
	if (!error && (kind == API_ROLE || kind == API_POLICY))
		error = take_description(api, entity);
	return error ? error : api_take_tags(api, entity);
}

const struct s3_error *api_create(struct api *api, json_t *account)
{
	enum api_kind kind = api->action->kind;
	struct slice name = api_field(api, kinds[kind].name_field), path = api_field(api, "Path");
	json_t *all = json_member_object(account, kinds[kind].members), *entity = json_object();
	char lower[IAM_NAME_LEN_MAX + 1], id[IAM_UNIQUE_ID_LEN + 1];
	const struct s3_error *error = NULL;

	if (iam_lower(name, lower))
		error = api_invalid(api, kinds[kind].name_field);
	else if (path.len && !is_path(path))
		error = api_invalid(api, "Path");
	else if (json_object_get(all, lower))
		error = s3_fail(api->call, S3_E_ENTITY_EXISTS, "%s with name %.*s already exists.",
			kinds[kind].title, SLICE_FMT(name));
	if (!error)
		error = take_new(api, entity);
	if (error) {
		json_decref(entity);
		return error;
	}
	iam_unique_id(kinds[kind].id_prefix, id);
	json_member_set_text(entity, kinds[kind].id_field, slice_str(id));
	json_member_set_text(entity, "name", name);
	json_member_set_text(entity, "path", path.len ? path : SLICE("/"));
	json_object_set_new(
		entity, "created", json_integer((json_int_t)(clock_real_ns() / NS_PER_MS)));
	json_object_set_new(all, lower, entity);
	api_put_entity(api, account, kind, entity, kinds[kind].title);
	return NULL;
}

/* The caller's own user in the account as it is now; NULL: the caller is the account. The caller's
 * user can be deleted meanwhile, and its name be another user's. */
static const struct s3_error *own_user(struct api *api, json_t *account, json_t **ret_user)
{
	const struct iam_principal *principal = s3_call_principal(api->call);
	json_t *user = NULL;

	if (principal->user_name.len) {
		user = iam_entity(account, "users", principal->user_name);
		if (!user || !slice_eq(json_member_text(user, "user_id"), principal->who.user_id))
			return s3_error_at(S3_E_INVALID_ACCESS_KEY_ID);
	}
	*ret_user = user;
	return NULL;
}

static void put_members(struct api *api, json_t *account, const char *group)
{
	json_t *user;
	const char *name;

	buf_put_str(&api->xml, "<Users>");
	json_object_foreach(json_object_get(account, "users"), name, user)
	{
		const json_t *groups = json_object_get(user, "groups");

		for (size_t i = 0; i < json_array_size(groups); i++)
			if (strcmp(json_string_value(json_array_get(groups, i)), group) == 0)
				api_put_entity(api, account, API_USER, user, "member");
	}
	buf_put_str(&api->xml, "</Users><IsTruncated>false</IsTruncated>");
}

const struct s3_error *api_get(struct api *api, json_t *account)
{
	const struct iam_principal *principal = s3_call_principal(api->call);
	enum api_kind kind = api->action->kind;
	struct slice name = api_field(api, kinds[kind].name_field);
	char lower[IAM_NAME_LEN_MAX + 1];
	const struct s3_error *error;
	json_t *entity = NULL;

	if (kind == API_USER && !name.len && !principal->who.role.len) {
		error = own_user(api, account, &entity);
		if (!error)
			api_put_entity(api, account, kind, entity, "User");
		return error;
	}
	error = api_entity(api, account, kind, &entity);
	if (error)
		return error;
	api_put_entity(api, account, kind, entity, kinds[kind].title);
	if (kind == API_GROUP && iam_lower(name, lower) == 0)
		put_members(api, account, lower);
	return NULL;
}

/* Users name their groups, so a new name of a group changes its users. */
static void rename_group(json_t *account, const char *from, const char *to)
{
	json_t *user;
	const char *name;

	json_object_foreach(json_object_get(account, "users"), name, user)
	{
		json_t *groups = json_object_get(user, "groups");

		for (size_t i = 0; i < json_array_size(groups); i++)
			if (strcmp(json_string_value(json_array_get(groups, i)), from) == 0)
				json_array_set_new(groups, i, json_string(to));
	}
}

const struct s3_error *api_update(struct api *api, json_t *account)
{
	enum api_kind kind = api->action->kind;
	struct slice path = api_field(api, "NewPath"),
		     name = api_field(api, kinds[kind].name_field);
	struct slice new_name = api_field(api, kind == API_USER ? "NewUserName" : "NewGroupName");
	char lower[IAM_NAME_LEN_MAX + 1], new_lower[IAM_NAME_LEN_MAX + 1];
	json_t *all = json_member_object(account, kinds[kind].members), *entity;
	const struct s3_error *error = api_entity(api, account, kind, &entity);

	if (error)
		return error;
	if (kind == API_ROLE) {
		error = take_description(api, entity);
		return error ? error : take_role_seconds(api, entity);
	}
	if (path.len && !is_path(path))
		return api_invalid(api, "NewPath");
	if (path.len)
		json_member_set_text(entity, "path", path);
	if (!new_name.len)
		return NULL;
	if (iam_lower(new_name, new_lower) || iam_lower(name, lower))
		return api_invalid(api, "The new name");
	if (strcmp(lower, new_lower) != 0) {
		if (json_object_get(all, new_lower))
			return s3_error_at(S3_E_ENTITY_EXISTS);
		json_object_set(all, new_lower, entity);
		json_object_del(all, lower);
		if (kind == API_GROUP)
			rename_group(account, lower, new_lower);
	}
	json_member_set_text(json_object_get(all, new_lower), "name", new_name);
	return NULL;
}

const struct s3_error *api_role_description(struct api *api, json_t *account)
{
	json_t *role;
	const struct s3_error *error = api_entity(api, account, API_ROLE, &role);

	if (!error && !has_field(api, "Description"))
		error = api_invalid(api, "Description");
	if (!error)
		error = take_description(api, role);
	if (!error)
		api_put_entity(api, account, API_ROLE, role, "Role");
	return error;
}

/* Whether it has something, or something in the account still uses it. */
static bool is_used(json_t *account, enum api_kind kind, const json_t *entity)
{
	struct iam_holder ignored;

	return json_object_size(json_object_get(entity, "inline")) ||
	       json_array_size(json_object_get(entity, "attached")) ||
	       json_array_size(json_object_get(entity, "keys")) ||
	       json_array_size(json_object_get(entity, "groups")) ||
	       ((kind == API_GROUP || kind == API_POLICY) &&
		       iam_holder_find(account, kinds[kind].members, entity, &ignored));
}

const struct s3_error *api_delete(struct api *api, json_t *account)
{
	enum api_kind kind = api->action->kind;
	char lower[IAM_NAME_LEN_MAX + 1];
	json_t *entity;
	const struct s3_error *error = api_entity(api, account, kind, &entity);

	if (error)
		return error;
	if (iam_lower(wanted_name(api, kind), lower))
		return api_invalid(api, kinds[kind].name_field);
	if (is_used(account, kind, entity))
		return s3_fail(api->call, S3_E_DELETE_CONFLICT,
			"Cannot delete entity, must remove keys, policies and members first.");
	if (kind == API_USER && json_object_get(entity, "id")) {
		int owns = s3_owns_bucket(api->call->s3, json_member_text(entity, "id"));

		if (owns < 0)
			return s3_fail_errno(api->call, owns);
		if (owns || api->call->s3->names.claim)
			return s3_fail(api->call, S3_E_DELETE_CONFLICT,
				"Cannot delete entity, must delete the buckets that the user owns "
				"first%s.",
				owns ? ""
				     : ", in all stores; then use the admin API with \"force\"");
	}
	if (json_object_size(json_object_get(entity, "versions")))
		return s3_fail(api->call, S3_E_DELETE_CONFLICT,
			"This policy has more than one version: delete those that are not the "
			"default one first.");
	json_object_del(json_object_get(account, kinds[kind].members), lower);
	return NULL;
}

/* ---- Keys. ---- */

/* The owner of the keys: the user in the form, otherwise the caller. */
static const struct s3_error *key_owner(
	struct api *api, json_t *account, json_t **ret_who, struct slice *ret_name)
{
	const struct iam_principal *principal = s3_call_principal(api->call);
	const struct s3_error *error = NULL;
	json_t *user = NULL;

	if (api_field(api, "UserName").len)
		error = api_entity(api, account, API_USER, &user);
	else if (principal->who.role.len || api->call->identity->root)
		return api_invalid(api, "UserName");
	else
		error = own_user(api, account, &user);
	if (error)
		return error;
	*ret_who = user ? user : account;
	*ret_name = json_member_text(user, "name");
	return NULL;
}

static void put_key(struct api *api, const json_t *key, struct slice user_name)
{
	if (user_name.len)
		api_put(api, "UserName", user_name);
	api_put(api, "AccessKeyId", json_member_text(key, "access_key"));
	api_put(api, "Status",
		json_is_true(json_object_get(key, "active")) ? SLICE("Active") : SLICE("Inactive"));
	api_put_time(api, "CreateDate", json_member_number(key, "created"));
}

const struct s3_error *api_create_key(struct api *api, json_t *account)
{
	struct iam_new_key key = {.active = true};
	const struct s3_error *error;
	struct slice name;
	json_t *who, *keys;
	int ret;

	error = key_owner(api, account, &who, &name);
	if (error)
		return error;
	keys = json_member_list(who, "keys");
	ret = iam_key_add(api->call->s3->iam, keys, &key);
	if (ret == -EDQUOT)
		return s3_fail(api->call, S3_E_LIMIT_EXCEEDED,
			"Cannot exceed quota for AccessKeysPerUser: %u", IAM_KEYS_PER_USER);
	if (ret)
		return s3_fail_errno(api->call, ret);
	buf_put_str(&api->xml, "<AccessKey>");
	put_key(api, iam_key_find(keys, key.access_key, NULL), name);
	api_put(api, "SecretAccessKey", key.secret);
	buf_put_str(&api->xml, "</AccessKey>");
	secret_wipe(&key, sizeof(key));
	return NULL;
}

const struct s3_error *api_list_keys(struct api *api, json_t *account)
{
	struct slice marker = api_field(api, "Marker"), name;
	const struct s3_error *error;
	const json_t *keys;
	uint64_t max = 100;
	size_t at = 0, shown = 0;
	json_t *who;

	error = key_owner(api, account, &who, &name);
	if (error)
		return error;
	if (api_field(api, "MaxItems").len &&
		(slice_to_u64(api_field(api, "MaxItems"), &max) || !max))
		return api_invalid(api, "MaxItems");
	keys = json_object_get(who, "keys");
	if (marker.len && iam_key_find(keys, marker, &at))
		at++;
	buf_put_str(&api->xml, "<AccessKeyMetadata>");
	for (; at < json_array_size(keys) && shown < max; at++, shown++) {
		buf_put_str(&api->xml, "<member>");
		put_key(api, json_array_get(keys, at), name);
		buf_put_str(&api->xml, "</member>");
	}
	buf_put_str(&api->xml, "</AccessKeyMetadata>");
	api_put(api, "IsTruncated", at < json_array_size(keys) ? SLICE("true") : SLICE("false"));
	if (at && at < json_array_size(keys))
		api_put(api, "Marker",
			json_member_text(json_array_get(keys, at - 1), "access_key"));
	return NULL;
}

static const struct s3_error *find_key(
	struct api *api, json_t *account, json_t **ret_keys, size_t *ret_idx)
{
	struct slice name, id = api_field(api, "AccessKeyId");
	const struct s3_error *error;
	json_t *who;

	error = key_owner(api, account, &who, &name);
	if (error)
		return error;
	*ret_keys = json_object_get(who, "keys");
	return iam_key_find(*ret_keys, id, ret_idx) ? NULL : api_no_such(api, "Access Key", id);
}

const struct s3_error *api_update_key(struct api *api, json_t *account)
{
	struct slice status = api_field(api, "Status");
	const struct s3_error *error;
	json_t *keys;
	size_t idx;

	error = find_key(api, account, &keys, &idx);
	if (error)
		return error;
	if (!slice_eq(status, SLICE("Active")) && !slice_eq(status, SLICE("Inactive")))
		return api_invalid(api, "Status");
	json_object_set_new(json_array_get(keys, idx), "active",
		json_boolean(slice_eq(status, SLICE("Active"))));
	return NULL;
}

const struct s3_error *api_delete_key(struct api *api, json_t *account)
{
	const struct s3_error *error;
	json_t *keys;
	size_t idx;

	error = find_key(api, account, &keys, &idx);
	if (!error)
		json_array_remove(keys, idx);
	return error;
}

/* The user who has the key; NULL: no user of this account, or the account itself. */
static const json_t *user_of_key(const json_t *account, struct slice access_key)
{
	json_t *user;
	const char *name;

	json_object_foreach(json_object_get(account, "users"), name, user)
	{
		if (iam_key_find(json_object_get(user, "keys"), access_key, NULL))
			return user;
	}
	return NULL;
}

/* The server does not record the uses of keys, so the answer is AWS's for a key without a recorded
 * use. */
const struct s3_error *api_key_last_used(struct api *api, json_t *account)
{
	struct slice id = api_field(api, "AccessKeyId");
	const json_t *user = user_of_key(account, id);

	if (!user && !iam_key_find(json_object_get(account, "keys"), id, NULL))
		return api_no_such(api, "Access Key", id);
	if (user)
		api_put(api, "UserName", json_member_text(user, "name"));
	buf_put_str(&api->xml, "<AccessKeyLastUsed>");
	api_put(api, "ServiceName", SLICE("N/A"));
	api_put(api, "Region", SLICE("N/A"));
	buf_put_str(&api->xml, "</AccessKeyLastUsed>");
	return NULL;
}
