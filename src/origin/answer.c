/* origin/answer.c: what an origin's answer says about an object: its length, which of its bytes
 * came, and the headers that its copy keeps. All of it is outside input. */
#include <ctype.h>
#include <errno.h>

#include "codec/codec.h"
#include "origin/origin_priv.h"

#define META_PREFIX "x-amz-meta-"
/* The PUT that stores the object has two more: the condition, and the checksum. */
#define KEPT_MAX (LIMIT_HTTP_HEADERS_MAX - 2u)

/* "name: value", without the line's end. False: the end. */
static bool line_next(struct slice *rest, struct slice *ret_name, struct slice *ret_value)
{
	while (rest->len) {
		struct slice value = slice_split(rest, '\n');
		struct slice name = slice_trim(slice_split(&value, ':'));

		if (!name.len)
			continue;
		*ret_name = name;
		*ret_value = slice_trim(value);
		return true;
	}
	return false;
}

static struct slice header_of(struct slice headers, struct slice wanted)
{
	struct slice name, value;

	while (line_next(&headers, &name, &value))
		if (slice_eq_nocase(name, wanted))
			return value;
	return SLICE_NONE;
}

/* RFC 9110, 14.4: "bytes FIRST-LAST/TOTAL". */
static int range_read(
	struct slice text, uint64_t *ret_first, uint64_t *ret_bytes, uint64_t *ret_total)
{
	uint64_t first, last, total;
	struct slice from;

	if (!slice_starts(text, SLICE("bytes ")))
		return -EBADMSG;
	text = slice_from(text, strlen("bytes "));
	from = slice_split(&text, '-');
	if (slice_to_u64(from, &first) || slice_to_u64(slice_split(&text, '/'), &last) ||
		slice_to_u64(text, &total) || last < first || last >= total ||
		total > LIMIT_OBJECT_BYTES_MAX)
		return -EBADMSG;
	*ret_first = first;
	*ret_bytes = last - first + 1;
	*ret_total = total;
	return 0;
}

static bool is_kept(struct slice name)
{
	static const struct slice KEPT[] = {SLICE("cache-control"), SLICE("content-disposition"),
		SLICE("content-encoding"), SLICE("content-language"), SLICE("content-type"),
		SLICE("expires")};

	for (size_t i = 0; i < ARRAY_LEN(KEPT); i++)
		if (slice_eq_nocase(name, KEPT[i]))
			return true;
	return name.len > strlen(META_PREFIX) &&
	       slice_eq_nocase(slice_to(name, strlen(META_PREFIX)), SLICE(META_PREFIX));
}

/* Of a token: RFC 9110, 5.6.2. */
static int header_keep(struct s3_origin_object *object, struct slice name, struct slice value)
{
	char *at = object->headers + object->headers_len;

	if (!field_name_is_valid(name) || !field_value_is_valid(value))
		return -EBADMSG;
	if (name.len + value.len + 2 > sizeof(object->headers) - object->headers_len)
		return -EOVERFLOW;
	for (size_t i = 0; i < name.len; i++)
		*at++ = (char)tolower((unsigned char)name.data[i]);
	*at++ = '\0';
	slice_copy(value, at);
	at[value.len] = '\0';
	object->headers_len += (uint32_t)(name.len + value.len + 2);
	return 0;
}

/* One that a listing and a condition can name as any other; a weak one promises too little. */
static void etag_read(const char *text, struct s3_origin_object *object)
{
	struct slice etag = slice_str(text);

	if (etag.len && slice_is_word(etag, "-"))
		(void)slice_copy_str(etag, object->etag, sizeof(object->etag));
}

/* Of the whole object, in base64; a checksum of parts' checksums ends in "-N". */
static void sum_read(struct slice headers, struct answer *answer)
{
	struct slice type = header_of(headers, SLICE("x-amz-checksum-type")), name, value;

	if (type.len && !slice_eq_nocase(type, SLICE("FULL_OBJECT")))
		return;
	while (line_next(&headers, &name, &value)) {
		for (int kind = CHECKSUM_NONE + 1; kind < CHECKSUM_KIND_COUNT; kind++) {
			if (!slice_eq_nocase(name, checksum_header((enum checksum_kind)kind)) ||
				slice_find(value, SLICE("-")) >= 0)
				continue;
			answer->sum_name = checksum_header((enum checksum_kind)kind);
			answer->sum = value;
		}
	}
}

int answer_read(
	const struct replicate_result *result, struct slice headers, struct answer *ret_answer)
{
	struct s3_origin_object *object = &ret_answer->object;
	struct slice rest = headers, name, value;
	uint64_t first = 0, bytes = 0;
	uint32_t kept = 0;
	int64_t mtime_ms;
	/* A proxy whose server is away answers 200, too. */
	int ret = result->etag[0] ? 0 : -EPROTO;

	*ret_answer = (struct answer){.partial = result->status == 206};
	object->bytes = result->object_bytes;
	if (!ret && ret_answer->partial)
		ret = range_read(
			header_of(headers, SLICE("content-range")), &first, &bytes, &object->bytes);
	if (!ret && ret_answer->partial && (first || bytes != result->object_bytes))
		ret = -EBADMSG;
	if (!ret && object->bytes > LIMIT_OBJECT_BYTES_MAX)
		ret = -EBADMSG;
	if (!date_http_parse(header_of(headers, SLICE("last-modified")), &mtime_ms))
		object->mtime_ns = (uint64_t)mtime_ms * NS_PER_MS;
	if (header_of(headers, SLICE("x-nebulaio-cut")).len)
		ret = ret ? ret : -EOVERFLOW;
	etag_read(result->etag, object);
	sum_read(headers, ret_answer);
	while (!ret && line_next(&rest, &name, &value))
		if (is_kept(name) && value.len)
			ret = kept++ == KEPT_MAX ? -EOVERFLOW : header_keep(object, name, value);
	return ret;
}

bool answer_is_piece(struct slice headers, uint64_t offset, uint64_t bytes, uint64_t total)
{
	uint64_t first, came, of;

	return !range_read(header_of(headers, SLICE("content-range")), &first, &came, &of) &&
	       first == offset && came == bytes && of == total;
}
