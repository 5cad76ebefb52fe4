/* s3/core/text.c: syntax of S3 requests: query strings, ranges and names. */
#include "s3/core/text.h"

#include <arpa/inet.h>
#include <errno.h>

#include "codec/codec.h"
#include "s3/s3.h"

uint32_t s3_query_count(struct slice query)
{
	uint32_t count = query.len ? 1 : 0;

	for (size_t i = 0; i < query.len; i++)
		count += query.data[i] == '&';
	return count;
}

static int decode(struct slice text, char **memory, struct slice *ret_decoded)
{
	size_t len;
	int ret = uri_decode(text, URI_PLUS_IS_SPACE, *memory, text.len, &len);

	if (ret)
		return ret;
	*ret_decoded = slice_of(*memory, len);
	*memory += len;
	return 0;
}

int s3_query_parse(
	struct slice query, struct s3_param *items, char *memory, struct s3_params *ret_params)
{
	uint32_t count = 0;

	while (query.len) {
		struct slice value = slice_split(&query, '&');
		struct s3_param *item = &items[count];
		struct slice name;
		int ret;

		if (!value.len)
			continue;
		name = slice_split(&value, '=');
		*item = (struct s3_param){.has_value = value.data != NULL};
		ret = decode(name, &memory, &item->name);
		if (!ret)
			ret = decode(value, &memory, &item->value);
		if (ret)
			return ret;
		count++;
	}
	*ret_params = (struct s3_params){.items = items, .count = count};
	return 0;
}

const struct s3_param *s3_query_find(const struct s3_params *params, struct slice name)
{
	for (uint32_t i = 0; i < params->count; i++)
		if (slice_eq(params->items[i].name, name))
			return &params->items[i];
	return NULL;
}

enum s3_range_result s3_range_parse(
	struct slice text, uint64_t object_bytes, uint64_t *ret_offset, uint64_t *ret_bytes)
{
	struct slice first_text, last_text = slice_trim(text);
	bool has_first, has_last;
	uint64_t first = 0, last = 0;

	if (!slice_eq_nocase(slice_to(last_text, 6), SLICE("bytes=")))
		return S3_RANGE_WHOLE;
	last_text = slice_from(last_text, 6);
	if (slice_find(last_text, SLICE("-")) < 0)
		return S3_RANGE_WHOLE;
	/* Blanks are not allowed: "bytes= -1" is not a range. */
	first_text = slice_split(&last_text, '-');
	has_first = first_text.len > 0;
	has_last = last_text.len > 0;
	if ((!has_first && !has_last) || (has_first && slice_to_u64(first_text, &first)) ||
		(has_last && slice_to_u64(last_text, &last)))
		return S3_RANGE_WHOLE;
	if (has_first && has_last && first > last)
		return S3_RANGE_WHOLE;
	if (!has_first) {
		if (!last || !object_bytes)
			return S3_RANGE_UNSATISFIABLE;
		*ret_bytes = last < object_bytes ? last : object_bytes;
		*ret_offset = object_bytes - *ret_bytes;
		return S3_RANGE_PART;
	}
	if (first >= object_bytes)
		return S3_RANGE_UNSATISFIABLE;
	if (!has_last || last >= object_bytes)
		last = object_bytes - 1;
	*ret_offset = first;
	*ret_bytes = last - first + 1;
	return S3_RANGE_PART;
}

struct slice s3_peer_address(const char *peer)
{
	struct slice text = slice_str(peer);
	const char *colon = peer ? strrchr(peer, ':') : NULL;

	if (text.len && text.data[0] == '[') {
		text = slice_from(text, 1);
		return slice_split(&text, ']');
	}
	/* More than one colon and no brackets: an IPv6 address without a port. */
	return colon && strchr(peer, ':') == colon ? slice_to(text, (size_t)(colon - peer)) : text;
}

/* The allowed uses of a character in a bucket's name. */
enum { BUCKET_END = 1, BUCKET_DASH = 2, BUCKET_DOT = 4, BUCKET_NOT = 8 };

static const uint8_t bucket_chars[256] = {
	[0 ... ','] = BUCKET_NOT,
	['-'] = BUCKET_DASH,
	['.'] = BUCKET_DOT,
	['/'] = BUCKET_NOT,
	['0' ... '9'] = BUCKET_END,
	[':' ... '`'] = BUCKET_NOT,
	['a' ... 'z'] = BUCKET_END,
	['{' ... 255] = BUCKET_NOT,
};

static uint8_t bucket_char(struct slice name, size_t at)
{
	return bucket_chars[(uint8_t)name.data[at]];
}

/* A dot must stand between letters and digits, because each part is a DNS label. */
static bool dots_are_sound(struct slice name)
{
	for (size_t i = 1; i < name.len; i++) {
		uint8_t pair = bucket_char(name, i - 1) | bucket_char(name, i);

		if ((pair & BUCKET_DOT) && !(pair & BUCKET_END))
			return false;
	}
	return true;
}

static bool is_ip_address(struct slice name)
{
	struct in_addr ignored;
	char text[LIMIT_BUCKET_LEN_MAX + 1];

	return slice_copy_str(name, text, sizeof(text)) == 0 &&
	       inet_pton(AF_INET, text, &ignored) == 1;
}

/* Reserved prefixes and suffixes; all contain a dash or a dot. */
static bool is_reserved(struct slice name)
{
	char first = name.data[0], last = name.data[name.len - 1];

	switch (first) {
	case 'x':
		if (slice_starts(name, SLICE("xn--")))
			return true;
		break;
	case 's':
		if (slice_starts(name, SLICE("sthree-")))
			return true;
		break;
	case 'a':
		if (slice_starts(name, SLICE("amzn-s3-demo-")))
			return true;
		break;
	}
	switch (last) {
	case 's':
		return slice_ends(name, SLICE("-s3alias"));
	case 'p':
		return slice_ends(name, SLICE(".mrap"));
	case '3':
		return slice_ends(name, SLICE("--ol-s3")) || slice_ends(name, SLICE("--x-s3")) ||
		       slice_ends(name, SLICE("--table-s3"));
	default:
		return false;
	}
}

/* S3 User Guide, "General purpose bucket naming rules". */
bool s3_bucket_name_valid(struct slice name)
{
	uint8_t seen = 0;

	if (name.len < LIMIT_BUCKET_LEN_MIN || name.len > LIMIT_BUCKET_LEN_MAX)
		return false;
	if (bucket_char(name, 0) != BUCKET_END || bucket_char(name, name.len - 1) != BUCKET_END)
		return false;
	for (size_t i = 0; i < name.len; i++)
		seen |= bucket_char(name, i);
	if ((seen & BUCKET_NOT) || ((seen & BUCKET_DOT) && !dots_are_sound(name)))
		return false;
	if (seen == BUCKET_END)
		return true;
	/* Only a name without a dash can be an address. */
	return !is_reserved(name) && ((seen & BUCKET_DASH) || !is_ip_address(name));
}

bool s3_key_valid(struct slice key)
{
	return key.len && key.len <= LIMIT_KEY_LEN_MAX && !memchr(key.data, '\0', key.len) &&
	       utf8_is_valid(key);
}

/* ---- Directory buckets. ---- */

#define EXPRESS_SUFFIX "--x-s3"

static bool is_plain(struct slice name)
{
	for (size_t i = 0; i < name.len; i++) {
		char c = name.data[i];

		if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-')
			return false;
	}
	return name.len > 0 && name.data[0] != '-' && name.data[name.len - 1] != '-';
}

/* The zone is between the last two "--"; its own dashes are single. */
struct slice s3_express_zone(struct slice bucket)
{
	struct slice rest;
	size_t at;

	if (bucket.len > LIMIT_BUCKET_LEN_MAX || !slice_ends(bucket, SLICE(EXPRESS_SUFFIX)) ||
		slice_starts(bucket, SLICE("xn--")) || slice_starts(bucket, SLICE("sthree-")) ||
		slice_starts(bucket, SLICE("amzn-s3-demo-")))
		return SLICE_NONE;
	rest = slice_to(bucket, bucket.len - strlen(EXPRESS_SUFFIX));
	for (at = rest.len; at > 1; at--)
		if (rest.data[at - 1] == '-' && rest.data[at - 2] == '-')
			break;
	if (at <= 1 || !is_plain(slice_from(rest, at)) || !is_plain(slice_to(rest, at - 2)))
		return SLICE_NONE;
	return slice_from(rest, at);
}

bool s3_bucket_name_any(struct slice name)
{
	return s3_bucket_name_valid(name) || s3_express_zone(name).len > 0;
}
