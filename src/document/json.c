/* document/json.c: members of JSON objects, by their names. */
#include "document/json.h"

#include <errno.h>

struct slice json_member_text(const json_t *object, const char *name)
{
	const json_t *value = json_object_get(object, name);

	return json_is_string(value) ? slice_of(json_string_value(value), json_string_length(value))
				     : SLICE_NONE;
}

int64_t json_member_number(const json_t *object, const char *name)
{
	return (int64_t)json_integer_value(json_object_get(object, name));
}

static json_t *member(json_t *object, const char *name, json_t *fresh, bool fits)
{
	if (fits) {
		json_decref(fresh);
		return json_object_get(object, name);
	}
	return json_object_set_new(object, name, fresh) ? NULL : json_object_get(object, name);
}

json_t *json_member_object(json_t *object, const char *name)
{
	return member(object, name, json_object(), json_is_object(json_object_get(object, name)));
}

json_t *json_member_list(json_t *object, const char *name)
{
	return member(object, name, json_array(), json_is_array(json_object_get(object, name)));
}

int json_member_set_text(json_t *object, const char *name, struct slice value)
{
	json_t *text = json_stringn(value.data ? value.data : "", value.len);

	return json_object_set_new(object, name, text) ? -ENOMEM : 0;
}

bool json_list_find_text(const json_t *list, struct slice text, size_t *ret_idx)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (slice_eq(slice_str(json_string_value(json_array_get(list, i))), text)) {
			*ret_idx = i;
			return true;
		}
	return false;
}

bool json_is_flat(struct slice text, uint32_t depth_max)
{
	uint32_t depth = 0;
	bool quoted = false;

	for (size_t i = 0; i < text.len; i++) {
		char c = text.data[i];

		if (quoted && c == '\\')
			i++;
		else if (c == '"')
			quoted = !quoted;
		else if (!quoted && (c == '{' || c == '['))
			depth++;
		else if (!quoted && (c == '}' || c == ']') && depth)
			depth--;
		if (depth > depth_max)
			return false;
	}
	return true;
}
