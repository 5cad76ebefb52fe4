/* s3/identity/sts.c: the caller's identity, and sessions of a role or of the caller itself. */
#include <errno.h>
#include <stdio.h>

#include "s3/auth/access.h"
#include "s3/core/call.h"
#include "s3/identity/api.h"
#include "s3/identity/sts.h"

#define SECONDS_MIN 900u
#define SECONDS_MAX 129600u

const struct s3_error *api_caller(struct api *api, json_t *account)
{
	const struct iam_principal *principal = s3_call_principal(api->call);

	(void)account;
	api_put(api, "UserId", principal->who.user_id);
	api_put(api, "Account", principal->who.account);
	api_put(api, "Arn", principal->who.arn);
	return NULL;
}

int s3_sts_credentials(struct iam *iam, struct iam_token *token, uint64_t seconds, struct buf *xml)
{
	char access_key[IAM_UNIQUE_ID_LEN + 1], secret[41], time[DATE_ISO_LEN];
	uint8_t random[30];
	struct buf text;
	int ret;

	iam_unique_id("ASIA", access_key);
	random_fill(random, sizeof(random));
	secret[base64_encode(random, sizeof(random), secret)] = '\0';
	token->access_key = slice_str(access_key);
	token->secret = slice_str(secret);
	token->expires_ms = (int64_t)(clock_real_ns() / NS_PER_MS + seconds * 1000);
	buf_init(&text, IAM_TOKEN_LEN_MAX);
	ret = iam_token_make(iam, token, &text);
	if (!ret) {
		date_iso_format(token->expires_ms, time);
		buf_put_str(xml, "<Credentials>");
		xml_element("AccessKeyId", token->access_key, xml);
		xml_element("SecretAccessKey", token->secret, xml);
		xml_element("SessionToken", buf_slice(&text), xml);
		xml_element("Expiration", slice_of(time, sizeof(time)), xml);
		buf_put_str(xml, "</Credentials>");
	}
	buf_free(&text);
	token->access_key = token->secret = SLICE_NONE;
	secret_wipe(secret, sizeof(secret));
	secret_wipe(random, sizeof(random));
	return ret;
}

static bool is_session_name(struct slice name)
{
	char ignored[IAM_NAME_LEN_MAX + 1];

	return name.len >= 2 && name.len <= 64 && iam_lower(name, ignored) == 0;
}

static const struct s3_error *parse_seconds(struct api *api, uint64_t preset, uint64_t *ret_seconds)
{
	struct slice text = api_field(api, "DurationSeconds");

	*ret_seconds = preset;
	if (text.len && (slice_to_u64(text, ret_seconds) || *ret_seconds < SECONDS_MIN ||
				*ret_seconds > SECONDS_MAX))
		return api_invalid(api, "DurationSeconds");
	return NULL;
}

/* <Credentials>: a new key, valid together with its token until it expires. */
static const struct s3_error *give_session(
	struct api *api, const struct iam_session *session, uint64_t seconds)
{
	struct iam_token token = {.session = *session};
	int ret = s3_sts_credentials(api->call->s3->iam, &token, seconds, &api->xml);

	if (ret == -EMSGSIZE)
		return s3_fail(api->call, S3_E_PACKED_POLICY_TOO_LARGE,
			"The session's policy is too large.");
	return ret ? s3_fail_errno(api->call, ret) : NULL;
}

/* The number of the account in an ARN; empty: it has none. */
static struct slice arn_account(struct slice arn)
{
	for (int part = 0; part < 4; part++)
		slice_split(&arn, ':');
	return slice_split(&arn, ':');
}

json_t *sts_account(struct api *api, struct slice arn)
{
	struct slice number = arn_account(arn);

	return iam_account(api->call->s3->iam,
		number.len ? number : s3_call_principal(api->call)->who.account);
}

json_t *sts_role(const json_t *account, struct slice arn, char ret_own[IAM_ARN_LEN_MAX])
{
	struct slice rest = arn, path, name = SLICE_NONE;
	json_t *role;

	for (int part = 0; part < 5; part++)
		slice_split(&rest, ':');
	path = rest;
	while (rest.data)
		name = slice_split(&rest, '/');
	role = iam_entity(account, "roles", name);
	if (!role || !slice_starts(arn, SLICE("arn:aws:iam::")) || !path.len ||
		!slice_ends(iam_arn(account, "role", role, ret_own), path))
		return NULL;
	return role;
}

uint64_t s3_role_seconds(struct s3 *s3, struct slice role_arn)
{
	json_t *account = iam_account(s3->iam, arn_account(role_arn));
	char own[IAM_ARN_LEN_MAX];
	const json_t *role = sts_role(account, role_arn, own);
	uint64_t seconds = role ? (uint64_t)api_role_seconds(role) : 0;

	iam_account_put(account);
	return seconds;
}

void sts_put_assumed(struct api *api, const json_t *account, const json_t *role)
{
	struct slice name = api_field(api, "RoleSessionName");

	buf_put_str(&api->xml, "<AssumedRoleUser><AssumedRoleId>");
	buf_printf(&api->xml, "%.*s:%.*s</AssumedRoleId><Arn>",
		SLICE_FMT(json_member_text(role, "role_id")), SLICE_FMT(name));
	buf_printf(&api->xml, "arn:aws:sts::%.*s:assumed-role/%.*s/%.*s</Arn></AssumedRoleUser>",
		SLICE_FMT(json_member_text(account, "account_id")),
		SLICE_FMT(json_member_text(role, "name")), SLICE_FMT(name));
}

static const struct s3_error *check_policy(struct api *api, struct slice text)
{
	struct policy_refusal refusal = {""};
	const struct policy *policy;
	int ret;

	if (!text.len)
		return NULL;
	if (text.len > 2048)
		return s3_error_at(S3_E_PACKED_POLICY_TOO_LARGE);
	ret = policy_compile(text, POLICY_IDENTITY, &api->call->arena, &policy, &refusal);
	if (!ret)
		ret = policy_check_document(policy, &refusal);
	if (ret == -EINVAL)
		return s3_fail(api->call, S3_E_MALFORMED_POLICY_DOCUMENT, "%s", refusal.text);
	return ret ? s3_fail_errno(api->call, ret) : NULL;
}

/* A parameter that would restrict the session, or add to it, is never ignored silently. */
static const struct s3_error *check_known(struct api *api)
{
	static const struct slice unknown[] = {SLICE("SerialNumber"), SLICE("TokenCode"),
		SLICE("SourceIdentity"), SLICE("ProvidedContexts.")};

	for (uint32_t i = 0; i < api->form.count; i++)
		for (size_t k = 0; k < ARRAY_LEN(unknown); k++)
			if (slice_starts(api->form.items[i].name, unknown[k]))
				return s3_fail(api->call, S3_E_VALIDATION,
					"%.*s is not served here.",
					SLICE_FMT(slice_to(api->form.items[i].name, 64)));
	return NULL;
}

/* Managed policies that restrict the session, of the role's account or predefined. */
static const struct s3_error *read_arns(struct api *api, struct sts_wish *wish)
{
	json_t *account = sts_account(api, api_field(api, "RoleArn"));
	const struct s3_error *error = NULL;
	struct buf text;
	uint32_t i = 1;

	buf_init(&text, IAM_SESSION_ARNS_MAX * (IAM_ARN_LEN_MAX + 1));
	for (; !error; i++) {
		struct slice arn = api_member(api, "PolicyArns", i, ".arn");

		if (!arn.len)
			break;
		if (i > IAM_SESSION_ARNS_MAX || memchr(arn.data, ' ', arn.len) ||
			!iam_is_policy(account, arn))
			error = api_invalid(api, "PolicyArns");
		buf_printf(&text, "%s%.*s", i > 1 ? " " : "", SLICE_FMT(arn));
	}
	if (!error && text.failed)
		error = api_invalid(api, "PolicyArns");
	if (!error && text.len) {
		wish->policy_arns = mem_arena_copy(&api->call->arena, buf_slice(&text));
		if (!wish->policy_arns.data)
			error = s3_error_at(S3_E_SLOW_DOWN);
	}
	buf_free(&text);
	iam_account_put(account);
	return error;
}

static bool is_transitive(const struct api *api, struct slice key)
{
	struct slice one;

	for (uint32_t i = 1; (one = api_member(api, "TransitiveTagKeys", i, "")).len; i++)
		if (slice_eq_nocase(one, key))
			return true;
	return false;
}

const struct s3_error *sts_add_tag(
	struct api *api, struct sts_wish *wish, const struct iam_tag *tag)
{
	if (!api_is_tag(tag->key, tag->value))
		return api_invalid(api, "A tag");
	for (uint32_t i = 0; i < wish->tag_count; i++)
		if (slice_eq_nocase(wish->tags[i].key, tag->key))
			return s3_fail(api->call, S3_E_VALIDATION,
				"The tag %.*s appears twice, or is a transitive tag of the "
				"calling session.",
				SLICE_FMT(tag->key));
	if (wish->tag_count == IAM_TAGS_MAX)
		return api_invalid(api, "Tags");
	wish->tags[wish->tag_count++] = *tag;
	return NULL;
}

/* The tags that the calling session passes on, then those of the form. */
static const struct s3_error *read_tags(struct api *api, struct sts_wish *wish)
{
	const struct iam_principal *principal = s3_call_principal(api->call);
	const struct s3_error *error = NULL;
	struct slice key;

	for (uint32_t i = 0; i < principal->tag_count && !error; i++)
		if (principal->tags[i].transitive)
			error = sts_add_tag(api, wish, &principal->tags[i]);
	for (uint32_t i = 1; !error && (key = api_member(api, "Tags", i, ".Key")).len; i++)
		error = sts_add_tag(api, wish,
			&(struct iam_tag){key, api_member(api, "Tags", i, ".Value"),
				is_transitive(api, key)});
	return error;
}

const struct s3_error *sts_read_wish(struct api *api, struct sts_wish *ret_wish)
{
	const struct s3_error *error;

	*ret_wish = (struct sts_wish){
		.name = api_field(api, "RoleSessionName"), .policy = api_field(api, "Policy")};
	if (!is_session_name(ret_wish->name))
		return api_invalid(api, "RoleSessionName");
	error = check_known(api);
	if (!error)
		error = parse_seconds(api, 3600, &ret_wish->seconds);
	if (!error)
		error = check_policy(api, ret_wish->policy);
	return error ? error : read_arns(api, ret_wish);
}

/* ---- Condition values for policies. ---- */

static uint32_t tag_value(const struct sts_wish *wish, struct slice key, struct slice *ret_values)
{
	for (uint32_t i = 0; i < wish->tag_count; i++)
		if (slice_eq_nocase(wish->tags[i].key, key)) {
			ret_values[0] = wish->tags[i].value.data ? wish->tags[i].value : SLICE("");
			return 1;
		}
	return 0;
}

static uint32_t tag_keys(
	const struct sts_wish *wish, bool transitive, struct slice *ret_values, uint32_t max)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < wish->tag_count; i++) {
		if (transitive && !wish->tags[i].transitive)
			continue;
		if (count < max)
			ret_values[count] = wish->tags[i].key;
		count++;
	}
	return count;
}

static uint32_t role_tag(const json_t *role, struct slice key, struct slice *ret_values)
{
	json_t *value;
	const char *name;

	json_object_foreach(json_object_get(role, "tags"), name, value)
	{
		if (!slice_eq_nocase(slice_str(name), key))
			continue;
		ret_values[0] = slice_of(json_string_value(value), json_string_length(value));
		return 1;
	}
	return 0;
}

uint32_t sts_ask_values(
	const struct sts_ask *ask, struct slice key, struct slice *ret_values, uint32_t max)
{
	struct slice rest = key, first = slice_split(&rest, '/'), external;

	if (slice_eq_nocase(first, SLICE("aws:RequestTag")))
		return tag_value(ask->wish, rest, ret_values);
	if (slice_eq_nocase(first, SLICE("iam:ResourceTag")) ||
		slice_eq_nocase(first, SLICE("aws:ResourceTag")))
		return role_tag(ask->role, rest, ret_values);
	if (slice_eq_nocase(key, SLICE("aws:TagKeys")))
		return tag_keys(ask->wish, false, ret_values, max);
	if (slice_eq_nocase(key, SLICE("sts:TransitiveTagKeys")))
		return tag_keys(ask->wish, true, ret_values, max);
	if (slice_eq_nocase(key, SLICE("sts:RoleSessionName"))) {
		ret_values[0] = ask->wish->name;
		return 1;
	}
	external = api_field(ask->api, "ExternalId");
	if (!slice_eq_nocase(key, SLICE("sts:ExternalId")) || !external.len)
		return 0;
	ret_values[0] = external;
	return 1;
}

static uint32_t ask_values(void *arg, struct slice key, struct slice *ret_values, uint32_t max)
{
	return sts_ask_values(arg, key, ret_values, max);
}

bool sts_trusted(struct api *api, const struct sts_wish *wish, struct s3_trust trust)
{
	if (!s3_call_trusted(api->call, &trust))
		return false;
	trust.action = "sts:TagSession";
	return !wish->tag_count || s3_call_trusted(api->call, &trust);
}

/* ---- The calls. ---- */

const struct s3_error *sts_give_role(
	struct api *api, const struct sts_wish *wish, const json_t *account, const json_t *role)
{
	const struct iam_session session = {.account = json_member_text(account, "account_id"),
		.role = json_member_text(role, "name"),
		.role_id = json_member_text(role, "role_id"),
		.name = wish->name,
		.policy = wish->policy,
		.policy_arns = wish->policy_arns,
		.tags = wish->tags,
		.tag_count = wish->tag_count};

	if (wish->seconds > (uint64_t)api_role_seconds(role))
		return s3_fail(api->call, S3_E_VALIDATION,
			"The requested DurationSeconds exceeds the MaxSessionDuration set for this "
			"role.");
	return give_session(api, &session, wish->seconds);
}

const struct s3_error *api_assume_role(struct api *api, json_t *ignored)
{
	struct slice arn = api_field(api, "RoleArn");
	const struct s3_error *error;
	char own[IAM_ARN_LEN_MAX];
	struct sts_wish wish;
	struct sts_ask ask = {&wish, api, NULL};
	json_t *account, *role;

	(void)ignored;
	error = sts_read_wish(api, &wish);
	if (!error)
		error = read_tags(api, &wish);
	if (error)
		return error;
	account = sts_account(api, arn);
	ask.role = role = sts_role(account, arn, own);
	/* A caller that may not assume a role does not learn whether it exists. */
	if (!role || !sts_trusted(api, &wish,
			     (struct s3_trust){.action = "sts:AssumeRole",
				     .role_arn = slice_str(own),
				     .policy = json_member_text(role, "trust"),
				     .values = ask_values,
				     .arg = &ask}))
		error = s3_fail(api->call, S3_E_ACCESS_DENIED,
			"The caller is not authorized to perform sts:AssumeRole on this resource.");
	else
		error = sts_give_role(api, &wish, account, role);
	if (!error)
		sts_put_assumed(api, account, role);
	iam_account_put(account);
	return error;
}

const struct s3_error *api_session_token(struct api *api, json_t *account)
{
	const struct iam_principal *principal = s3_call_principal(api->call);
	struct iam_session session = {
		.account = principal->who.account, .user = principal->user_name};
	const struct s3_error *error;
	uint64_t seconds;

	(void)account;
	if (api->call->sts)
		return s3_fail(api->call, S3_E_ACCESS_DENIED,
			"Cannot call GetSessionToken with session credentials");
	s3_session_bind(api->call, &session);
	error = parse_seconds(api, 43200, &seconds);
	return error ? error : give_session(api, &session, seconds);
}
