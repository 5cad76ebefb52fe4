/* s3/identity/iam_tags.c: tags of users, roles and managed policies: the tags of a new entity, and
 * calls that add, remove and list tags. Policies can use the caller's tags: aws:PrincipalTag/KEY.
 *
 * Source: IAM API reference, "TagUser", "UntagUser", "ListUserTags" and their kin. */
#include <stdio.h>

#include "s3/core/call.h"
#include "s3/identity/api.h"

#define KEY_LEN_MAX   128u
#define VALUE_LEN_MAX 256u

struct slice api_member(const struct api *api, const char *list, uint32_t number, const char *of)
{
	char name[64];

	snprintf(name, sizeof(name), "%s.member.%u%s", list, number, of);
	return api_field(api, name);
}

/* UTF-8 without control characters, which no tag of AWS has. */
static bool is_plain(struct slice text)
{
	for (size_t i = 0; i < text.len; i++)
		if ((unsigned char)text.data[i] < ' ' || text.data[i] == '\x7f')
			return false;
	return utf8_is_valid(text);
}

bool api_is_tag(struct slice key, struct slice value)
{
	return key.len && key.len <= KEY_LEN_MAX && value.len <= VALUE_LEN_MAX && is_plain(key) &&
	       is_plain(value) && !slice_eq_nocase(slice_to(key, 4), SLICE("aws:"));
}

/* IAM compares tag keys without case. */
static void take_away(json_t *tags, struct slice key)
{
	const char *name;
	json_t *value;
	void *next;

	json_object_foreach_safe(tags, next, name, value)
	{
		if (slice_eq_nocase(slice_str(name), key))
			json_object_del(tags, name);
	}
}

const struct s3_error *api_take_tags(struct api *api, json_t *entity)
{
	for (uint32_t i = 1; api_member(api, "Tags", i, ".Key").len; i++) {
		struct slice key = api_member(api, "Tags", i, ".Key");
		struct slice value = api_member(api, "Tags", i, ".Value");
		json_t *tags = json_member_object(entity, "tags");
		char name[KEY_LEN_MAX + 1];

		if (!api_is_tag(key, value) || slice_copy_str(key, name, sizeof(name)))
			return api_invalid(api, "A tag");
		take_away(tags, key);
		if (json_object_size(tags) == IAM_TAGS_MAX)
			return s3_fail(api->call, S3_E_LIMIT_EXCEEDED,
				"Cannot exceed quota for TagsPerEntity: %u", IAM_TAGS_MAX);
		if (json_member_set_text(tags, name, value))
			return s3_error_at(S3_E_SLOW_DOWN);
	}
	return NULL;
}

static void each_tag(struct api *api, json_t *account, const char *name, json_t *value)
{
	(void)account;
	buf_put_str(&api->xml, "<member>");
	api_put(api, "Key", slice_str(name));
	api_put(api, "Value", slice_of(json_string_value(value), json_string_length(value)));
	buf_put_str(&api->xml, "</member>");
}

void api_put_tags(struct api *api, const json_t *entity)
{
	json_t *tags = json_object_get(entity, "tags"), *value;
	const char *name;

	if (!json_object_size(tags))
		return;
	buf_put_str(&api->xml, "<Tags>");
	json_object_foreach(tags, name, value) each_tag(api, NULL, name, value);
	buf_put_str(&api->xml, "</Tags>");
}

const struct s3_error *api_tag(struct api *api, json_t *account)
{
	json_t *entity;
	const struct s3_error *error = api_entity(api, account, api->action->kind, &entity);

	if (!error && !api_member(api, "Tags", 1, ".Key").len)
		error = api_invalid(api, "Tags");
	return error ? error : api_take_tags(api, entity);
}

const struct s3_error *api_untag(struct api *api, json_t *account)
{
	json_t *entity;
	const struct s3_error *error = api_entity(api, account, api->action->kind, &entity);

	for (uint32_t i = 1; !error && api_member(api, "TagKeys", i, "").len; i++)
		take_away(json_object_get(entity, "tags"), api_member(api, "TagKeys", i, ""));
	return error;
}

const struct s3_error *api_list_tags(struct api *api, json_t *account)
{
	json_t *entity;
	const struct s3_error *error = api_entity(api, account, api->action->kind, &entity);

	return error ? error
		     : api_list(api, account, json_object_get(entity, "tags"), "Tags", each_tag);
}
