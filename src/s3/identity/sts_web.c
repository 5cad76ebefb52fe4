/* s3/identity/sts_web.c: AssumeRoleWithWebIdentity: a session of a role for a caller with a token
 * of an OpenID Connect provider. The role's account has the provider, and the role's trust policy
 * names it. The request itself is not signed.
 *
 * Source: STS API reference, "AssumeRoleWithWebIdentity"; IAM User Guide, "Available keys for AWS
 * OIDC federation". */
#include <errno.h>

#include "s3/auth/access.h"
#include "s3/core/call.h"
#include "s3/identity/api.h"
#include "s3/identity/oidc.h"
#include "s3/identity/sts.h"

#define TOKEN_LEN_MIN 4u
#define LEEWAY_S      60.0 /* allowed difference between clocks */
#define SUBJECT_MAX   255u
#define ISSUER_MAX    255u

struct web_identity {
	struct jwt jwt;
	const json_t *provider; /* in the account of the role */
	struct slice issuer;	/* "https://id.example.com" */
	struct slice name;	/* of the provider: the issuer without its scheme */
	struct slice subject, audience;
	struct sts_ask ask;
};

static const struct s3_error *invalid_token(struct api *api, const char *why)
{
	return s3_fail(api->call, S3_E_INVALID_IDENTITY_TOKEN, "%s", why);
}

/* ---- The claims of a token. ---- */

static const struct s3_error *check_times(struct api *api, const json_t *claims)
{
	const json_t *expires = json_object_get(claims, "exp");
	const json_t *since = json_object_get(claims, "nbf");
	const json_t *issued = json_object_get(claims, "iat");
	double now = (double)(clock_real_ns() / NS_PER_MS) / 1000.0;

	if (!json_is_number(expires) || (since && !json_is_number(since)) ||
		(issued && !json_is_number(issued)))
		return invalid_token(
			api, "The token's exp, nbf or iat is missing or not a number.");
	if (json_number_value(expires) + LEEWAY_S <= now)
		return s3_error_at(S3_E_EXPIRED_WEB_IDENTITY);
	if (json_number_value(since) - LEEWAY_S > now || json_number_value(issued) - LEEWAY_S > now)
		return invalid_token(api, "The token is not valid yet.");
	return NULL;
}

/* The first text of a claim that is a client id of the provider. */
static struct slice known_client(const struct web_identity *web, const char *claim)
{
	const json_t *ids = json_object_get(web->provider, "ClientIDList");
	const json_t *value = json_object_get(web->jwt.claims, claim);
	size_t count = json_is_array(value) ? json_array_size(value) : 1, ignored;

	for (size_t i = 0; i < count; i++) {
		const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;
		struct slice text = slice_of(json_string_value(one), json_string_length(one));

		if (text.len && json_list_find_text(ids, text, &ignored))
			return text;
	}
	return SLICE_NONE;
}

static const struct s3_error *read_claims(
	struct api *api, const json_t *account, struct web_identity *web)
{
	const json_t *claims = web->jwt.claims;

	web->issuer = json_member_text(claims, "iss");
	web->subject = json_member_text(claims, "sub");
	if (!web->issuer.len || web->issuer.len > ISSUER_MAX || !web->subject.len ||
		web->subject.len > SUBJECT_MAX)
		return invalid_token(api, "The token's iss or sub is missing or too long.");
	web->provider = api_provider_of(account, web->issuer);
	if (!web->provider)
		return s3_fail(api->call, S3_E_INVALID_IDENTITY_TOKEN,
			"No OpenIDConnect provider found in your account for %.*s",
			SLICE_FMT(web->issuer));
	web->name = json_member_text(web->provider, "name");
	web->audience = known_client(web, "aud");
	if (!web->audience.len)
		web->audience = known_client(web, "azp");
	if (!web->audience.len)
		return invalid_token(api, "Incorrect token audience");
	return check_times(api, claims);
}

/* {"principal_tags": {"Team": ["red"]}, "transitive_tag_keys": ["Team"]} */
static const struct s3_error *read_tags(
	struct api *api, const json_t *claims, struct sts_wish *wish)
{
	const json_t *given = json_object_get(claims, "https://aws.amazon.com/tags");
	const json_t *transitive = json_object_get(given, "transitive_tag_keys");
	json_t *tags = json_object_get(given, "principal_tags"), *value;
	const struct s3_error *error = NULL;
	const char *key;
	size_t ignored;

	json_object_foreach(tags, key, value)
	{
		const json_t *one = json_is_array(value) ? json_array_get(value, 0) : value;
		struct iam_tag tag = {.key = slice_str(key),
			.value = slice_of(json_string_value(one), json_string_length(one)),
			.transitive = json_list_find_text(transitive, slice_str(key), &ignored)};

		if (!error && (!json_is_string(one) || json_array_size(value) > 1))
			error = invalid_token(
				api, "A tag of the token has no value, or several values.");
		if (!error)
			error = sts_add_tag(api, wish, &tag);
	}
	return error;
}

/* ---- The signature. ---- */

static const struct s3_error *check_signature(
	struct api *api, const json_t *account, const struct web_identity *web)
{
	const struct s3_oidc_issuer issuer = {.account = json_member_text(account, "account_id"),
		.url = json_member_text(web->provider, "url"),
		.thumbprints = json_object_get(web->provider, "ThumbprintList")};
	struct s3_oidc *oidc = api->call->s3->oidc;
	int ret;

	if (!s3_oidc_reaches(oidc, issuer.url))
		return s3_fail(api->call, S3_E_IDP_COMMUNICATION,
			"The server's configuration (auth.web_identity) does not allow requests "
			"to %.*s.",
			SLICE_FMT(issuer.url));
	ret = s3_oidc_verify(oidc, &issuer, &web->jwt);
	switch (ret) {
	case 0:
		return NULL;
	case -EBADMSG:
		return invalid_token(
			api, "The token's signature is not valid for its issuer's key.");
	case -ENOKEY:
		return invalid_token(api, "The token's key is not one of its issuer's keys.");
	case -EIO:
	case -ETIMEDOUT:
		return s3_error_at(S3_E_IDP_COMMUNICATION);
	default:
		return s3_fail_errno(api->call, ret);
	}
}

/* ---- The role's trust policy. ---- */

static uint32_t text_values(const json_t *value, struct slice *ret_values, uint32_t max)
{
	size_t count = json_is_array(value) ? json_array_size(value) : 1;
	uint32_t found = 0;

	for (size_t i = 0; i < count; i++) {
		const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;
		struct slice text = SLICE_NONE;

		if (json_is_string(one))
			text = slice_of(json_string_value(one), json_string_length(one));
		else if (json_is_boolean(one))
			text = json_is_true(one) ? SLICE("true") : SLICE("false");
		else
			continue;
		if (found < max)
			ret_values[found] = text;
		found++;
	}
	return found;
}

/* "id.example.com:sub": claims that are texts, lists of texts, or booleans. */
static uint32_t claim_values(void *arg, struct slice key, struct slice *ret_values, uint32_t max)
{
	const struct web_identity *web = arg;
	uint32_t count = sts_ask_values(&web->ask, key, ret_values, max);
	struct slice claim;
	const char *name;
	json_t *value;

	if (count)
		return count;
	if (key.len <= web->name.len + 1 || key.data[web->name.len] != ':' ||
		!slice_eq_nocase(slice_to(key, web->name.len), web->name))
		return 0;
	claim = slice_from(key, web->name.len + 1);
	/* Another name of the same claim. */
	if (slice_eq_nocase(claim, SLICE("app_id")))
		claim = SLICE("aud");
	json_object_foreach(web->jwt.claims, name, value)
	{
		if (slice_eq_nocase(slice_str(name), claim))
			return text_values(value, ret_values, max);
	}
	return 0;
}

static const struct s3_error *enter_role(struct api *api, const struct sts_wish *wish,
	const json_t *account, struct web_identity *web)
{
	char own[IAM_ARN_LEN_MAX], provider[IAM_ARN_LEN_MAX];
	const json_t *role = sts_role(account, api_field(api, "RoleArn"), own);
	const struct s3_error *error;
	struct s3_trust trust = {.action = "sts:AssumeRoleWithWebIdentity",
		.role_arn = slice_str(own),
		.policy = json_member_text(role, "trust"),
		.federated = iam_arn(account, api_word(API_PROVIDER), web->provider, provider),
		.values = claim_values,
		.arg = web};

	web->ask = (struct sts_ask){wish, api, role};
	if (!role || !sts_trusted(api, wish, trust))
		return s3_fail(api->call, S3_E_ACCESS_DENIED,
			"Not authorized to perform sts:AssumeRoleWithWebIdentity");
	error = sts_give_role(api, wish, account, role);
	if (error)
		return error;
	sts_put_assumed(api, account, role);
	api_put(api, "SubjectFromWebIdentityToken", web->subject);
	api_put(api, "Audience", web->audience);
	api_put(api, "Provider", web->issuer);
	return NULL;
}

const struct s3_error *api_assume_role_web(struct api *api, json_t *ignored)
{
	struct slice token = api_field(api, "WebIdentityToken");
	struct web_identity web = {.issuer = SLICE_NONE};
	const struct s3_error *error;
	struct sts_wish wish;
	json_t *account;

	(void)ignored;
	error = sts_read_wish(api, &wish);
	if (error)
		return error;
	if (api_field(api, "ProviderId").len)
		return s3_fail(api->call, S3_E_VALIDATION,
			"ProviderId is not supported: tokens must come from OpenID Connect.");
	if (token.len < TOKEN_LEN_MIN || token.len > JWT_LEN_MAX)
		return api_invalid(api, "WebIdentityToken");
	if (jwt_parse(token, &web.jwt)) {
		jwt_free(&web.jwt);
		return invalid_token(api, "The token is not a JWT signed by RS256, RS384, RS512, "
					  "ES256 or ES384.");
	}
	account = sts_account(api, api_field(api, "RoleArn"));
	error = read_claims(api, account, &web);
	if (!error)
		error = check_signature(api, account, &web);
	if (!error)
		error = read_tags(api, web.jwt.claims, &wish);
	if (!error)
		error = enter_role(api, &wish, account, &web);
	iam_account_put(account);
	jwt_free(&web.jwt);
	return error;
}
