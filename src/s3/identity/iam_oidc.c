/* s3/identity/iam_oidc.c: an account's OpenID Connect providers, whose tokens its roles may trust.
 * They are stored in the account's document ("providers", by URL without its scheme, as in their
 * ARNs).
 *
 * Source: IAM API reference, "CreateOpenIDConnectProvider" and its kin. */
#include <ctype.h>
#include <stdio.h>

#include "s3/core/call.h"
#include "s3/identity/api.h"

#define PROVIDERS_MAX	100u
#define CLIENT_IDS_MAX	100u
#define THUMBPRINTS_MAX 5u
#define URL_LEN_MAX	255u
#define CLIENT_ID_MAX	255u
#define THUMBPRINT_LEN	40u /* SHA-1, in hexadecimal */

static const struct slice arn_start = SLICE("arn:aws:iam::");
static const struct slice arn_kind = SLICE("oidc-provider/");

static const struct s3_error *invalid_input(struct api *api, const char *what)
{
	return s3_fail(api->call, S3_E_INVALID_INPUT, "%s is missing or not valid.", what);
}

static struct slice without_slash(struct slice url)
{
	return slice_ends(url, SLICE("/")) ? slice_to(url, url.len - 1) : url;
}

/* "https://host/path" without its scheme; SLICE_NONE: not a valid URL of an issuer. */
static struct slice name_of_url(struct slice url)
{
	static const struct slice schemes[] = {SLICE("https://"), SLICE("http://")};
	struct slice name = SLICE_NONE;

	for (size_t i = 0; i < ARRAY_LEN(schemes) && !name.data; i++)
		if (slice_starts(url, schemes[i]))
			name = slice_from(url, schemes[i].len);
	name = without_slash(name);
	if (url.len > URL_LEN_MAX || !name.len || !isalnum((unsigned char)name.data[0]))
		return SLICE_NONE;
	for (size_t i = 0; i < name.len; i++)
		if (name.data[i] <= ' ' || name.data[i] > '~' || strchr("?#@\\\"<>", name.data[i]))
			return SLICE_NONE;
	return name;
}

const struct s3_error *api_provider(struct api *api, json_t *account, json_t **ret_provider)
{
	struct slice arn = api_field(api, "OpenIDConnectProviderArn"), rest, number;
	char name[URL_LEN_MAX + 1];

	rest = slice_from(arn, MIN(arn.len, arn_start.len));
	number = slice_split(&rest, ':');
	if (!slice_starts(arn, arn_start) || !slice_starts(rest, arn_kind) ||
		slice_copy_str(slice_from(rest, arn_kind.len), name, sizeof(name)) ||
		!utf8_is_valid(arn))
		return invalid_input(api, "OpenIDConnectProviderArn");
	*ret_provider = json_object_get(json_object_get(account, "providers"), name);
	/* Without a number it means the caller's own account. */
	if (number.len && !slice_eq(number, json_member_text(account, "account_id")))
		*ret_provider = NULL;
	if (*ret_provider)
		return NULL;
	return s3_fail(api->call, S3_E_NO_SUCH_ENTITY,
		"OpenIDConnect Provider not found for arn %.*s", SLICE_FMT(slice_to(arn, 512)));
}

struct slice api_provider_arn(struct api *api, const json_t *account, char text[IAM_ARN_LEN_MAX])
{
	struct slice arn = api_field(api, "OpenIDConnectProviderArn");
	int len;

	if (arn.len)
		return arn;
	len = snprintf(text, IAM_ARN_LEN_MAX, "arn:aws:iam::%.*s:oidc-provider/%.*s",
		SLICE_FMT(json_member_text(account, "account_id")),
		SLICE_FMT(name_of_url(api_field(api, "Url"))));
	return slice_of(text, (size_t)len);
}

const json_t *api_provider_of(const json_t *account, struct slice issuer)
{
	json_t *provider;
	const char *name;

	json_object_foreach(json_object_get(account, "providers"), name, provider)
	{
		struct slice url = json_member_text(provider, "url");

		if (slice_eq(url, without_slash(issuer)))
			return provider;
	}
	return NULL;
}

/* ---- Lists of texts in a form: "ClientIDList.member.1". ---- */

static bool is_client_id(struct slice id)
{
	return id.len && id.len <= CLIENT_ID_MAX && utf8_is_valid(id) &&
	       !memchr(id.data, 0, id.len);
}

static bool is_thumbprint(struct slice text)
{
	for (size_t i = 0; i < text.len; i++)
		if (!isxdigit((unsigned char)text.data[i]))
			return false;
	return text.len == THUMBPRINT_LEN;
}

struct texts {
	const char *list, *quota;
	bool (*is_one)(struct slice text);
	uint32_t max;
};
static const struct texts client_ids = {
	"ClientIDList", "ClientIdsPerOpenIdConnectProvider", is_client_id, CLIENT_IDS_MAX};
static const struct texts thumbprints = {
	"ThumbprintList", "ThumbprintsPerOpenIdConnectProvider", is_thumbprint, THUMBPRINTS_MAX};

/* Adds a text unless the list has it. */
static const struct s3_error *add_text(
	struct api *api, const struct texts *texts, json_t *list, struct slice text)
{
	size_t ignored;

	if (!texts->is_one(text))
		return invalid_input(api, texts->list);
	if (json_list_find_text(list, text, &ignored))
		return NULL;
	if (json_array_size(list) >= texts->max)
		return s3_fail(api->call, S3_E_LIMIT_EXCEEDED, "Cannot exceed quota for %s: %u",
			texts->quota, texts->max);
	return json_array_append_new(list, json_stringn(text.data, text.len))
		       ? s3_error_at(S3_E_SLOW_DOWN)
		       : NULL;
}

static const struct s3_error *take_texts(
	struct api *api, const struct texts *texts, json_t *provider)
{
	const struct s3_error *error = NULL;
	json_t *list = json_array();
	char name[64];

	if (json_object_set_new(provider, texts->list, list))
		return s3_error_at(S3_E_SLOW_DOWN);
	for (uint32_t i = 1; !error; i++) {
		snprintf(name, sizeof(name), "%s.member.%u", texts->list, i);
		if (!api_field(api, name).len)
			break;
		error = add_text(api, texts, list, api_field(api, name));
	}
	return error;
}

static void put_texts(struct api *api, const char *element, const json_t *list)
{
	buf_printf(&api->xml, "<%s>", element);
	for (size_t i = 0; i < json_array_size(list); i++)
		api_put(api, "member", slice_str(json_string_value(json_array_get(list, i))));
	buf_printf(&api->xml, "</%s>", element);
}

/* ---- The calls. ---- */

static const struct s3_error *fill(struct api *api, json_t *provider, struct slice name)
{
	const struct s3_error *error = take_texts(api, &client_ids, provider);

	if (!error)
		error = take_texts(api, &thumbprints, provider);
	if (!error)
		error = api_take_tags(api, provider);
	if (error)
		return error;
	if (json_member_set_text(provider, "name", name) ||
		json_member_set_text(provider, "url", without_slash(api_field(api, "Url"))) ||
		json_object_set_new(provider, "created",
			json_integer((json_int_t)(clock_real_ns() / NS_PER_MS))))
		return s3_error_at(S3_E_SLOW_DOWN);
	return NULL;
}

const struct s3_error *api_create_provider(struct api *api, json_t *account)
{
	struct slice url = api_field(api, "Url"), name = name_of_url(url);
	json_t *all = json_member_object(account, "providers"), *provider;
	char key[URL_LEN_MAX + 1], arn[IAM_ARN_LEN_MAX];
	const struct s3_error *error;

	if (!name.len || slice_copy_str(name, key, sizeof(key)))
		return invalid_input(api, "Url");
	if (json_object_get(all, key))
		return s3_fail(api->call, S3_E_ENTITY_EXISTS,
			"Provider with url %.*s already exists.", SLICE_FMT(url));
	if (json_object_size(all) >= PROVIDERS_MAX)
		return s3_fail(api->call, S3_E_LIMIT_EXCEEDED,
			"Cannot exceed quota for OpenIdConnectProvidersPerAccount: %u",
			PROVIDERS_MAX);
	provider = json_object();
	error = fill(api, provider, name);
	if (error) {
		json_decref(provider);
		return error;
	}
	api_put(api, "OpenIDConnectProviderArn",
		iam_arn(account, api_word(API_PROVIDER), provider, arn));
	api_put_tags(api, provider);
	return json_object_set_new(all, key, provider) ? s3_error_at(S3_E_SLOW_DOWN) : NULL;
}

const struct s3_error *api_get_provider(struct api *api, json_t *account)
{
	const struct s3_error *error;
	json_t *provider;

	error = api_provider(api, account, &provider);
	if (error)
		return error;
	api_put(api, "Url", json_member_text(provider, "name"));
	put_texts(api, "ClientIDList", json_object_get(provider, "ClientIDList"));
	put_texts(api, "ThumbprintList", json_object_get(provider, "ThumbprintList"));
	api_put_time(api, "CreateDate", json_member_number(provider, "created"));
	api_put_tags(api, provider);
	return NULL;
}

const struct s3_error *api_list_providers(struct api *api, json_t *account)
{
	char arn[IAM_ARN_LEN_MAX];
	json_t *provider;
	const char *name;

	buf_put_str(&api->xml, "<OpenIDConnectProviderList>");
	json_object_foreach(json_object_get(account, "providers"), name, provider)
	{
		buf_put_str(&api->xml, "<member>");
		api_put(api, "Arn", iam_arn(account, api_word(API_PROVIDER), provider, arn));
		buf_put_str(&api->xml, "</member>");
	}
	buf_put_str(&api->xml, "</OpenIDConnectProviderList>");
	return NULL;
}

const struct s3_error *api_delete_provider(struct api *api, json_t *account)
{
	const struct s3_error *error;
	char name[URL_LEN_MAX + 1];
	json_t *provider;

	error = api_provider(api, account, &provider);
	if (error)
		return error;
	slice_copy_str(json_member_text(provider, "name"), name, sizeof(name));
	json_object_del(json_object_get(account, "providers"), name);
	return NULL;
}

const struct s3_error *api_add_client(struct api *api, json_t *account)
{
	const struct s3_error *error;
	json_t *provider;

	error = api_provider(api, account, &provider);
	if (error)
		return error;
	return add_text(api, &client_ids, json_member_list(provider, client_ids.list),
		api_field(api, "ClientID"));
}

const struct s3_error *api_remove_client(struct api *api, json_t *account)
{
	struct slice id = api_field(api, "ClientID");
	const struct s3_error *error;
	json_t *provider, *list;
	size_t idx;

	error = api_provider(api, account, &provider);
	if (error)
		return error;
	if (!is_client_id(id))
		return invalid_input(api, "ClientID");
	list = json_object_get(provider, client_ids.list);
	if (json_list_find_text(list, id, &idx))
		json_array_remove(list, idx);
	return NULL;
}

const struct s3_error *api_update_thumbprints(struct api *api, json_t *account)
{
	const struct s3_error *error;
	json_t *provider;

	error = api_provider(api, account, &provider);
	if (error)
		return error;
	if (!api_field(api, "ThumbprintList.member.1").len)
		return invalid_input(api, "ThumbprintList");
	return take_texts(api, &thumbprints, provider);
}
