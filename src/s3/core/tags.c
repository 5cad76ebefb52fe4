/* s3/core/tags.c: tags: their limits, their forms in requests, and their stored form. */
#include "s3/core/tags.h"

#include <errno.h>
#include <stdlib.h>

#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/stored.h"
#include "s3/core/text.h"
#include "s3/core/xml_in.h"

/* ASCII characters that a tag may contain besides letters and digits. All characters beyond ASCII
 * are accepted, because most of them are letters. */
static bool is_clean(struct slice text)
{
	for (size_t i = 0; i < text.len; i++) {
		uint8_t byte = (uint8_t)text.data[i];
		bool letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
			      (byte >= '0' && byte <= '9');

		if (!letter && byte < 0x80 && (!byte || !strchr(" +-=._:/@", byte)))
			return false;
	}
	return utf8_is_valid(text);
}

static size_t char_count(struct slice text)
{
	size_t count = 0;

	for (size_t i = 0; i < text.len; i++)
		count += ((uint8_t)text.data[i] & 0xc0) != 0x80;
	return count;
}

static const struct s3_error *check_tag(
	struct s3_call *call, const struct s3_tag *tag, uint32_t count_max)
{
	const char *wrong = NULL;
	bool of_value = false;

	if (!tag->key.len || char_count(tag->key) > S3_TAG_KEY_CHARS_MAX || !is_clean(tag->key))
		wrong = "The TagKey you have provided is invalid";
	else if (slice_eq_nocase(slice_to(tag->key, 4), SLICE("aws:")))
		wrong = count_max == S3_TAGS_OBJECT_MAX
				? "Your TagKey cannot be prefixed with aws:"
				: "System tags cannot be added/updated by requester";
	else if (char_count(tag->value) > S3_TAG_VALUE_CHARS_MAX || !is_clean(tag->value))
		of_value = true;
	if (!wrong && !of_value)
		return NULL;
	s3_fail_detail(call, "TagKey", tag->key);
	if (of_value) {
		s3_fail_detail(call, "TagValue", tag->value);
		wrong = "The TagValue you have provided is invalid";
	}
	return s3_fail(call, S3_E_INVALID_TAG, "%s", wrong);
}

static int tag_order(const void *a, const void *b)
{
	return slice_cmp(((const struct s3_tag *)a)->key, ((const struct s3_tag *)b)->key);
}

/* Sorts the tags and finds a duplicate key. */
static const struct s3_tag *sort(struct s3_tags *tags)
{
	qsort(tags->items, tags->count, sizeof(tags->items[0]), tag_order);
	for (uint32_t i = 1; i < tags->count; i++)
		if (slice_eq(tags->items[i - 1].key, tags->items[i].key))
			return &tags->items[i];
	return NULL;
}

static const struct s3_error *add(
	struct s3_call *call, struct s3_tags *tags, uint32_t count_max, const struct s3_tag *tag)
{
	const struct s3_error *error = check_tag(call, tag, count_max);

	if (!error && tags->count == count_max)
		error = s3_fail(call, S3_E_INVALID_TAG, "%s tags cannot be greater than %u",
			count_max == S3_TAGS_OBJECT_MAX ? "Object" : "Bucket", count_max);
	if (!error)
		tags->items[tags->count++] = *tag;
	return error;
}

const struct s3_error *s3_tags_of_xml(struct s3_call *call, const struct s3_xml *tagging,
	uint32_t count_max, struct s3_tags *ret_tags)
{
	const struct s3_xml *set = slice_eq(tagging->name, SLICE("TagSet"))
					   ? tagging
					   : s3_xml_child(tagging, "TagSet");

	const struct s3_tag *twice;

	ret_tags->count = 0;
	if (!set)
		return s3_error_at(S3_E_MALFORMED_XML);
	for (const struct s3_xml *node = set->child; node; node = node->next) {
		const struct s3_tag tag = {s3_xml_text(node, "Key"), s3_xml_text(node, "Value")};
		const struct s3_error *error;

		if (!slice_eq(node->name, SLICE("Tag")) || !s3_xml_child(node, "Key") ||
			!s3_xml_child(node, "Value"))
			return s3_error_at(S3_E_MALFORMED_XML);
		error = add(call, ret_tags, count_max, &tag);
		if (error)
			return error;
	}
	twice = sort(ret_tags);
	if (!twice)
		return NULL;
	s3_fail_detail(call, "TagKey", twice->key);
	return s3_fail(call, S3_E_INVALID_TAG, "Cannot provide multiple Tags with the same key");
}

static const struct s3_error *header_error(struct s3_call *call, struct slice value)
{
	s3_fail_detail(call, "ArgumentName", SLICE("x-amz-tagging"));
	s3_fail_detail(call, "ArgumentValue", value);
	return s3_fail(call, S3_E_INVALID_ARGUMENT,
		"The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query "
		"parameters without tag name duplicates.");
}

const struct s3_error *s3_tags_of_header(
	struct s3_call *call, struct slice value, struct s3_tags *ret_tags)
{
	uint32_t count = s3_query_count(value);
	struct s3_params params;
	struct s3_param *items;
	char *memory;

	ret_tags->count = 0;
	if (!value.len)
		return NULL;
	items = mem_arena_get(&call->arena, count * sizeof(*items));
	memory = mem_arena_get(&call->arena, value.len);
	if (!items || !memory)
		return s3_error_at(S3_E_SLOW_DOWN);
	if (s3_query_parse(value, items, memory, &params))
		return header_error(call, value);
	for (uint32_t i = 0; i < params.count; i++) {
		const struct s3_tag tag = {params.items[i].name, params.items[i].value};
		const struct s3_error *error;

		if (!is_clean(tag.key) || !is_clean(tag.value))
			return header_error(call, value);
		error = add(call, ret_tags, S3_TAGS_OBJECT_MAX, &tag);
		if (error)
			return error;
	}
	return sort(ret_tags) ? header_error(call, value) : NULL;
}

/* ---- The stored form. ---- */

static char *put_escaped(char *at, struct slice text)
{
	static const char digits[] = "0123456789ABCDEF";

	for (size_t i = 0; i < text.len; i++) {
		uint8_t byte = (uint8_t)text.data[i];

		if (byte == '&' || byte == '=' || byte == '%') {
			*at++ = '%';
			*at++ = digits[byte >> 4];
			*at++ = digits[byte & 15];
		} else {
			*at++ = (char)byte;
		}
	}
	return at;
}

struct slice s3_tags_encode(const struct s3_tags *tags, struct mem_arena *arena)
{
	size_t bytes = 0;
	char *text, *at;

	for (uint32_t i = 0; i < tags->count; i++)
		bytes += 3 * (tags->items[i].key.len + tags->items[i].value.len) + 2;
	text = bytes ? mem_arena_get(arena, bytes) : NULL;
	if (!text)
		return SLICE_NONE;
	at = text;
	for (uint32_t i = 0; i < tags->count; i++) {
		if (i)
			*at++ = '&';
		at = put_escaped(at, tags->items[i].key);
		*at++ = '=';
		at = put_escaped(at, tags->items[i].value);
	}
	return slice_of(text, (size_t)(at - text));
}

static int decode(struct slice text, char **memory, struct slice *ret_text)
{
	size_t len;
	int ret = uri_decode(text, 0, *memory, text.len, &len);

	if (ret)
		return ret;
	*ret_text = slice_of(*memory, len);
	*memory += len;
	return 0;
}

int s3_tags_decode(struct slice encoded, struct mem_arena *arena, struct s3_tags *ret_tags)
{
	char *memory = encoded.len ? mem_arena_get(arena, encoded.len) : NULL;

	ret_tags->count = 0;
	if (encoded.len && !memory)
		return -ENOMEM;
	while (encoded.len) {
		struct slice value = slice_split(&encoded, '&');
		struct slice key = slice_split(&value, '=');
		struct s3_tag *tag = &ret_tags->items[ret_tags->count];
		int ret = ret_tags->count == S3_TAGS_BUCKET_MAX ? -EINVAL : 0;

		if (!ret)
			ret = decode(key, &memory, &tag->key);
		if (!ret)
			ret = decode(value, &memory, &tag->value);
		if (ret)
			return -EINVAL;
		ret_tags->count++;
	}
	return 0;
}

struct slice s3_tags_of_object(const struct store_meta *meta)
{
	return s3_meta_hidden(slice_of(meta->headers, meta->headers_len), SLICE(S3_TAGS_HEADER));
}

uint32_t s3_tags_count(struct slice encoded)
{
	return s3_query_count(encoded);
}

const struct s3_tag *s3_tags_find(const struct s3_tags *tags, struct slice key)
{
	for (uint32_t i = 0; i < tags->count; i++)
		if (slice_eq(tags->items[i].key, key))
			return &tags->items[i];
	return NULL;
}

const struct s3_error *s3_tags_answer(struct s3_call *call, const struct s3_tags *tags)
{
	struct buf xml;

	s3_xml_begin(&xml, "Tagging");
	buf_put_str(&xml, "<TagSet>");
	for (uint32_t i = 0; i < tags->count; i++) {
		buf_put_str(&xml, "<Tag>");
		xml_element("Key", tags->items[i].key, &xml);
		xml_element("Value", tags->items[i].value, &xml);
		buf_put_str(&xml, "</Tag>");
	}
	buf_put_str(&xml, "</TagSet>");
	s3_xml_end(&xml, "Tagging");
	return s3_answer_xml(call, 200, &xml);
}
