/* s3/op/service.c: POST /: the calls of IAM, STS and SNS, selected by the form's Action. */
#include <errno.h>
#include <stdio.h>

#include "s3/auth/access.h"
#include "s3/auth/auth.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/text.h"
#include "s3/event/topic.h"
#include "s3/identity/api.h"
#include "s3/operation.h"

#define FORM_FIELDS_MAX 512u /* a request may have hundreds of tags and client ids */
#define REPLY_BYTES_MAX (4 * MIB)

#define ENTITY(kind, title)                                        \
	{"Create" title, api_create, kind, true, API_IAM},         \
		{"Get" title, api_get, kind, false, API_IAM},      \
		{"Update" title, api_update, kind, true, API_IAM}, \
	{                                                          \
		"Delete" title, api_delete, kind, true, API_IAM    \
	}
#define POLICIES(kind, title)                                                            \
	{"Put" title "Policy", api_put_policy, kind, true, API_IAM},                     \
		{"Get" title "Policy", api_get_policy, kind, false, API_IAM},            \
		{"Delete" title "Policy", api_delete_policy, kind, true, API_IAM},       \
		{"List" title "Policies", api_list_policies, kind, false, API_IAM},      \
		{"Attach" title "Policy", api_attach, kind, true, API_IAM},              \
		{"Detach" title "Policy", api_detach, kind, true, API_IAM},              \
	{                                                                                \
		"ListAttached" title "Policies", api_list_attached, kind, false, API_IAM \
	}

#define TAGS(kind, title)                                                \
	{"Tag" title, api_tag, kind, true, API_IAM},                     \
		{"Untag" title, api_untag, kind, true, API_IAM},         \
	{                                                                \
		"List" title "Tags", api_list_tags, kind, false, API_IAM \
	}

static const struct api_action actions[] = {
	ENTITY(API_USER, "User"),
	ENTITY(API_GROUP, "Group"),
	ENTITY(API_ROLE, "Role"),
	{"CreatePolicy", api_create, API_POLICY, true, API_IAM},
	{"GetPolicy", api_get, API_POLICY, false, API_IAM},
	{"DeletePolicy", api_delete, API_POLICY, true, API_IAM},
	{"GetPolicyVersion", api_get_version, API_POLICY, false, API_IAM},
	{"ListPolicyVersions", api_list_versions, API_POLICY, false, API_IAM},
	{"CreatePolicyVersion", api_create_version, API_POLICY, true, API_IAM},
	{"SetDefaultPolicyVersion", api_set_default_version, API_POLICY, true, API_IAM},
	{"DeletePolicyVersion", api_delete_version, API_POLICY, true, API_IAM},
	{"ListEntitiesForPolicy", api_entities_for_policy, API_POLICY, false, API_IAM},
	{"ListUsers", api_list_all, API_USER, false, API_IAM},
	{"ListGroups", api_list_all, API_GROUP, false, API_IAM},
	{"ListRoles", api_list_all, API_ROLE, false, API_IAM},
	{"ListPolicies", api_list_managed, API_POLICY, false, API_IAM},
	POLICIES(API_USER, "User"),
	POLICIES(API_GROUP, "Group"),
	POLICIES(API_ROLE, "Role"),
	TAGS(API_USER, "User"),
	TAGS(API_ROLE, "Role"),
	TAGS(API_POLICY, "Policy"),
	TAGS(API_PROVIDER, "OpenIDConnectProvider"),
	{"CreateOpenIDConnectProvider", api_create_provider, API_PROVIDER, true, API_IAM},
	{"GetOpenIDConnectProvider", api_get_provider, API_PROVIDER, false, API_IAM},
	{"ListOpenIDConnectProviders", api_list_providers, API_NONE, false, API_IAM},
	{"DeleteOpenIDConnectProvider", api_delete_provider, API_PROVIDER, true, API_IAM},
	{"AddClientIDToOpenIDConnectProvider", api_add_client, API_PROVIDER, true, API_IAM},
	{"RemoveClientIDFromOpenIDConnectProvider", api_remove_client, API_PROVIDER, true, API_IAM},
	{"UpdateOpenIDConnectProviderThumbprint", api_update_thumbprints, API_PROVIDER, true,
		API_IAM},
	{"CreateAccessKey", api_create_key, API_USER, true, API_IAM},
	{"ListAccessKeys", api_list_keys, API_USER, false, API_IAM},
	{"UpdateAccessKey", api_update_key, API_USER, true, API_IAM},
	{"DeleteAccessKey", api_delete_key, API_USER, true, API_IAM},
	{"AddUserToGroup", api_group_add, API_GROUP, true, API_IAM},
	{"RemoveUserFromGroup", api_group_remove, API_GROUP, true, API_IAM},
	{"ListGroupsForUser", api_groups_of_user, API_USER, false, API_IAM},
	{"UpdateAssumeRolePolicy", api_trust, API_ROLE, true, API_IAM},
	{"UpdateRoleDescription", api_role_description, API_ROLE, true, API_IAM},
	{"ListInstanceProfilesForRole", api_list_none, API_ROLE, false, API_IAM},
	{"ListMFADevices", api_list_none, API_USER, false, API_IAM},
	{"ListVirtualMFADevices", api_list_none, API_NONE, false, API_IAM},
	{"ListSSHPublicKeys", api_list_none, API_USER, false, API_IAM},
	{"ListSigningCertificates", api_list_none, API_USER, false, API_IAM},
	{"ListServiceSpecificCredentials", api_list_none, API_USER, false, API_IAM},
	{"GetLoginProfile", api_no_login, API_USER, false, API_IAM},
	{"DeleteLoginProfile", api_no_login, API_USER, false, API_IAM},
	{"GetAccessKeyLastUsed", api_key_last_used, API_NONE, false, API_IAM},
	{"GetAccountSummary", api_summary, API_NONE, false, API_IAM},
	{"GetCallerIdentity", api_caller, API_NONE, false, API_STS},
	{"AssumeRole", api_assume_role, API_NONE, false, API_STS},
	{"AssumeRoleWithWebIdentity", api_assume_role_web, API_NONE, false, API_STS},
	{"GetSessionToken", api_session_token, API_NONE, false, API_STS},
	{"CreateTopic", api_create_topic, API_NONE, true, API_SNS},
	{"ListTopics", api_list_topics, API_NONE, false, API_SNS},
	{"GetTopic", api_get_topic, API_NONE, false, API_SNS},
	{"GetTopicAttributes", api_get_topic, API_NONE, false, API_SNS},
	{"SetTopicAttributes", api_set_topic_attributes, API_NONE, true, API_SNS},
	{"DeleteTopic", api_delete_topic, API_NONE, true, API_SNS},
	{"ListTagsForResource", api_topic_tags, API_NONE, false, API_SNS},
};

static const struct {
	const char *word, *version;
} services[] = {[API_IAM] = {"iam", "2010-05-08"},
	[API_STS] = {"sts", "2011-06-15"},
	[API_SNS] = {"sns", "2010-03-31"}};

/* ---- The form. ---- */

static const struct s3_error *read_form(struct s3_call *call, struct s3_params *ret_form)
{
	const struct s3_sums sums = {.kind = CHECKSUM_NONE};
	const struct s3_error *error;
	struct s3_param *items;
	uint32_t count;
	char *memory;

	error = s3_call_read(call, &sums, &call->form);
	if (error)
		return error;
	count = s3_query_count(call->form);
	if (count > FORM_FIELDS_MAX)
		return s3_error_at(S3_E_MESSAGE_TOO_LONG);
	items = mem_arena_get(&call->arena, (count + 1) * sizeof(*items));
	memory = mem_arena_get(&call->arena, call->form.len + 1);
	if (!items || !memory)
		return s3_error_at(S3_E_SLOW_DOWN);
	if (call->form.len && s3_query_parse(call->form, items, memory, ret_form))
		return s3_fail(call, S3_E_VALIDATION, "The form cannot be read.");
	return NULL;
}

static const struct api_action *find_action(struct slice name)
{
	for (size_t i = 0; i < ARRAY_LEN(actions); i++)
		if (slice_eq(slice_str(actions[i].name), name))
			return &actions[i];
	return NULL;
}

/* ---- Authorization. ---- */

/* "arn:aws:iam::123456789012:user/name" of the resource that the form names, as far as it names
 * one. */
static struct slice resource_of(struct api *api, json_t *account, char text[IAM_ARN_LEN_MAX])
{
	enum api_kind kind = api->action->kind;
	struct slice number = json_member_text(account, "account_id"), name;
	const json_t *entity;
	int len;

	if (api->action->service == API_SNS && api_topic_arn(api).len)
		return api_topic_arn(api);
	if (kind == API_NONE)
		return SLICE("*");
	name = api_field(api, api_name_field(kind));
	if (kind == API_POLICY && api_field(api, "PolicyArn").len)
		return api_field(api, "PolicyArn");
	if (kind == API_PROVIDER)
		return api_provider_arn(api, account, text);
	/* A call about a user that names none is about the caller. */
	if (kind == API_USER && !name.len && api->action->run != api_list_all)
		return s3_call_principal(api->call)->who.arn;
	entity = iam_entity(account, api_members(kind), name);
	if (entity)
		return iam_arn(account, api_word(kind), entity, text);
	len = snprintf(text, IAM_ARN_LEN_MAX, "arn:aws:iam::%.*s:%s/%.*s", SLICE_FMT(number),
		api_word(kind), SLICE_FMT(slice_to(name, 256)));
	return slice_of(text, (size_t)len);
}

/* iam:PolicyARN: which policy is attached or detached. */
static uint32_t condition_values(
	void *arg, struct slice key, struct slice *ret_values, uint32_t max)
{
	const struct api *api = arg;
	struct slice arn = api_field(api, "PolicyArn");
	bool attaches = api->action->run == api_attach || api->action->run == api_detach;

	if (!max || !attaches || !arn.len || !slice_eq_nocase(key, SLICE("iam:PolicyARN")))
		return 0;
	ret_values[0] = arn;
	return 1;
}

static const struct s3_error *authorize(struct api *api, json_t *account)
{
	char action[80], arn[IAM_ARN_LEN_MAX];

	/* The token identifies the caller. */
	if (api->action->run == api_assume_role_web)
		return NULL;
	if (api->call->identity->anonymous)
		return s3_error_at(S3_E_MISSING_TOKEN);
	/* Every caller may ask for its own identity; trust policies decide about roles. */
	if (api->action->service == API_STS)
		return NULL;
	snprintf(action, sizeof(action), "%s:%s", services[api->action->service].word,
		api->action->name);
	return s3_call_may_service_if(
		api->call, action, resource_of(api, account, arn), condition_values, api);
}

/* ---- Running. ---- */

/* The server's own account has no document until the first entity is created in it. */
static json_t *account_of_root(void)
{
	json_t *account = json_object();

	json_member_set_text(account, "account_id", SLICE(IAM_ACCOUNT_OF_ROOT));
	json_member_set_text(account, "id", SLICE(IAM_ROOT_OWNER_ID));
	json_member_set_text(account, "display_name", SLICE(IAM_ROOT_OWNER_NAME));
	return account;
}

static int change(json_t *account, void *arg)
{
	struct api *api = arg;

	if (!json_object_get(account, "id")) {
		json_t *preset = account_of_root();

		json_object_update(account, preset);
		json_decref(preset);
	}
	buf_reset(&api->xml);
	api->error = api->action->run(api, account);
	return api->error ? -ECANCELED : 0;
}

static void tell_topic(struct api *api, struct slice account)
{
	struct slice arn = api_field(api, "TopicArn");
	char text[S3_TOPIC_ARN_BYTES];

	if (api->action->run == api_create_topic)
		arn = s3_topic_arn(api->call->s3, account, api_field(api, "Name"), text);
	s3_topic_changed(api->call->s3, arn);
}

static const struct s3_error *run(struct api *api)
{
	struct s3_call *call = api->call;
	struct slice number = s3_call_principal(call)->who.account;
	struct iam_edit edit = {
		.account = number, .create = call->identity->root, .change = change, .arg = api};
	json_t *account = iam_account(call->s3->iam, number);
	const struct s3_error *error;
	int ret = 0;

	if (!account)
		account = account_of_root();
	/* A user may be an owner. A bucket that is being made is there before api_delete looks, or
	 * is not made. */
	if (api->action->run == api_delete)
		edit.guard = &call->s3->owning;
	error = authorize(api, account);
	if (!error && !api->action->changes)
		error = api->action->run(api, account);
	else if (!error)
		ret = iam_change(call->s3->iam, call->request->core, &edit);
	if (!error && !ret && api->action->changes && api->action->service == API_SNS)
		tell_topic(api, number);
	iam_account_put(account);
	if (error || !ret)
		return error;
	switch (ret) {
	case -ECANCELED:
		return api->error;
	case -EFBIG:
	case -E2BIG:
		return s3_fail(call, S3_E_LIMIT_EXCEEDED, "The account holds too much.");
	case -EUSERS:
		return s3_fail(call, S3_E_LIMIT_EXCEEDED, "%s", IAM_ACCOUNTS_FULL);
	case -EEXIST:
		return s3_error_at(S3_E_ENTITY_EXISTS);
	default:
		return s3_fail_errno(call, ret);
	}
}

static const struct s3_error *answer(struct api *api)
{
	const char *name = api->action->name;
	struct s3_call *call = api->call;
	struct buf xml;

	buf_init(&xml, REPLY_BYTES_MAX);
	buf_printf(&xml, "<%sResponse xmlns=\"https://%s.amazonaws.com/doc/%s/\"><%sResult>", name,
		services[api->action->service].word, services[api->action->service].version, name);
	buf_put_slice(&xml, buf_slice(&api->xml));
	buf_printf(&xml, "</%sResult><ResponseMetadata>", name);
	xml_element("RequestId", slice_str(call->request->request_id), &xml);
	buf_printf(&xml, "</ResponseMetadata></%sResponse>", name);
	xml.failed |= api->xml.failed;
	return s3_answer_xml(call, 200, &xml);
}

const struct s3_error *s3_op_service(struct s3_call *call)
{
	struct api api = {.call = call};
	const struct s3_error *error = read_form(call, &api.form);

	if (error)
		return error;
	api.action = find_action(api_field(&api, "Action"));
	if (!api.action)
		return s3_fail(call, S3_E_INVALID_ACTION, "The action %.*s is not served here.",
			SLICE_FMT(slice_to(api_field(&api, "Action"), 64)));
	buf_init(&api.xml, REPLY_BYTES_MAX);
	error = run(&api);
	if (!error)
		error = answer(&api);
	if (api.xml.data)
		secret_wipe(api.xml.data, api.xml.len);
	buf_free(&api.xml);
	json_decref(api.builtins);
	return error;
}
