/* s3/core/stored.c: data stored with an object: hidden headers, its parts, its storage class, its
 * checksum as text. */
#include <endian.h>
#include <errno.h>

#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/stored.h"

/* Indexed by their number in an object's flags, which never changes. */
enum {
	STORAGE_CLASS_STANDARD,
	STORAGE_CLASS_STANDARD_IA,
	STORAGE_CLASS_ONEZONE_IA,
	STORAGE_CLASS_REDUCED_REDUNDANCY,
	STORAGE_CLASS_INTELLIGENT_TIERING,
	STORAGE_CLASS_GLACIER_IR,
	STORAGE_CLASS_EXPRESS,
	STORAGE_CLASS_GLACIER,	    /* the first archive class */
	STORAGE_CLASS_DEEP_ARCHIVE, /* the last one */
	STORAGE_CLASS_MEMORY
};
static const struct slice storage_classes[] = {[STORAGE_CLASS_STANDARD] = SLICE("STANDARD"),
	[STORAGE_CLASS_STANDARD_IA] = SLICE("STANDARD_IA"),
	[STORAGE_CLASS_ONEZONE_IA] = SLICE("ONEZONE_IA"),
	[STORAGE_CLASS_REDUCED_REDUNDANCY] = SLICE("REDUCED_REDUNDANCY"),
	[STORAGE_CLASS_INTELLIGENT_TIERING] = SLICE("INTELLIGENT_TIERING"),
	[STORAGE_CLASS_GLACIER_IR] = SLICE("GLACIER_IR"),
	[STORAGE_CLASS_EXPRESS] = SLICE("EXPRESS_ONEZONE"),
	[STORAGE_CLASS_GLACIER] = SLICE("GLACIER"),
	[STORAGE_CLASS_DEEP_ARCHIVE] = SLICE("DEEP_ARCHIVE"),
	[STORAGE_CLASS_MEMORY] = SLICE("MEMORY")};

_Static_assert(STORAGE_CLASS_EXPRESS == S3_STORAGE_CLASS_EXPRESS, "it is known by its number");
_Static_assert(STORAGE_CLASS_MEMORY == S3_STORAGE_CLASS_MEMORY, "it is known by its number");
_Static_assert(ARRAY_LEN(storage_classes) <= 256 >> S3_FLAG_CLASS_SHIFT, "classes fit the flags");

bool s3_meta_next(struct slice *rest, struct slice *ret_name, struct slice *ret_value)
{
	if (!rest->len)
		return false;
	*ret_name = slice_split(rest, '\0');
	if (!rest->data)
		return false;
	*ret_value = slice_split(rest, '\0');
	return true;
}

/* The part of the headers before the hidden ones. */
static size_t plain_len(struct slice headers)
{
	struct slice rest = headers, name, value;
	size_t len = 0;

	while (s3_meta_next(&rest, &name, &value) && !slice_starts(name, SLICE(S3_HIDDEN_PREFIX)))
		len += name.len + value.len + 2;
	return len;
}

uint32_t s3_meta_plain_len(const struct store_meta *meta)
{
	return (uint32_t)plain_len(slice_of(meta->headers, meta->headers_len));
}

struct slice s3_meta_hidden(struct slice headers, struct slice wanted)
{
	struct slice rest = headers, name, value;

	while (s3_meta_next(&rest, &name, &value))
		if (slice_eq(name, wanted))
			return value;
	return SLICE_NONE;
}

int s3_meta_set_hidden(struct slice headers, struct slice name, struct slice value,
	struct mem_arena *arena, struct slice *ret_headers)
{
	size_t bytes = headers.len + name.len + value.len + 2;
	char *text = mem_arena_get(arena, bytes), *at = text;
	struct slice rest = headers, other, other_value;

	if (!text)
		return -ENOMEM;
	while (s3_meta_next(&rest, &other, &other_value)) {
		if (slice_eq(other, name))
			continue;
		/* Name and value are adjacent. */
		memcpy(at, other.data, other.len + other_value.len + 2);
		at += other.len + other_value.len + 2;
	}
	if (value.data) {
		memcpy(at, name.data, name.len);
		at += name.len;
		*at++ = '\0';
		memcpy(at, value.data, value.len);
		at += value.len;
		*at++ = '\0';
	}
	*ret_headers = slice_of(text, (size_t)(at - text));
	return 0;
}

struct s3_parts s3_meta_parts(const struct store_meta *meta, uint32_t part_number)
{
	struct slice runs =
		s3_meta_hidden(slice_of(meta->headers, meta->headers_len), SLICE(S3_PARTS_HEADER));
	struct s3_parts parts = {0};
	uint64_t offset = 0;

	while (runs.len) {
		struct slice times = slice_split(&runs, ',');
		struct slice length = slice_split(&times, '*');
		uint64_t bytes = 0, count = 1;

		if (slice_to_u64(length, &bytes) || (times.len && slice_to_u64(times, &count)))
			break;
		if (part_number > parts.count && part_number <= parts.count + count) {
			parts.offset = offset + (part_number - parts.count - 1) * bytes;
			parts.bytes = bytes;
		}
		parts.count += (uint32_t)count;
		offset += bytes * count;
	}
	return parts;
}

struct slice s3_meta_part_sum(const struct store_meta *meta, uint32_t number)
{
	size_t len = BASE64_LEN(meta->checksum_len);
	struct slice sums = slice_from(s3_meta_hidden(slice_of(meta->headers, meta->headers_len),
					       SLICE(S3_PART_SUMS_HEADER)),
		(number - 1) * len);

	return len && sums.len >= len ? slice_to(sums, len) : SLICE_NONE;
}

bool s3_storage_class_find(struct slice name, uint8_t *ret_class)
{
	for (size_t i = 0; i < ARRAY_LEN(storage_classes); i++)
		if (i != S3_STORAGE_CLASS_EXPRESS && i != S3_STORAGE_CLASS_MEMORY &&
			slice_eq(name, storage_classes[i])) {
			*ret_class = (uint8_t)i;
			return true;
		}
	return false;
}

struct slice s3_meta_storage_class(const struct store_meta *meta)
{
	uint32_t idx = meta->checksum_flags >> S3_FLAG_CLASS_SHIFT;

	return storage_classes[idx < ARRAY_LEN(storage_classes) ? idx : 0];
}

bool s3_storage_class_is_colder(uint8_t to, uint8_t from)
{
	/* Of each class; those of directory and memory buckets, which are not here, stay. */
	static const uint8_t COLD[ARRAY_LEN(storage_classes)] = {[STORAGE_CLASS_STANDARD] = 1,
		[STORAGE_CLASS_REDUCED_REDUNDANCY] = 2,
		[STORAGE_CLASS_STANDARD_IA] = 3,
		[STORAGE_CLASS_INTELLIGENT_TIERING] = 4,
		[STORAGE_CLASS_ONEZONE_IA] = 5,
		[STORAGE_CLASS_GLACIER_IR] = 6,
		[STORAGE_CLASS_GLACIER] = 7,
		[STORAGE_CLASS_DEEP_ARCHIVE] = 8};

	return to < ARRAY_LEN(COLD) && from < ARRAY_LEN(COLD) && COLD[from] &&
	       COLD[to] > COLD[from];
}

bool s3_storage_class_archives(uint8_t class)
{
	return class >= STORAGE_CLASS_GLACIER && class <= STORAGE_CLASS_DEEP_ARCHIVE;
}

void s3_etag_of_crc(struct store_meta *meta)
{
	const uint64_t words[2] = {htobe64(meta->crc64), htobe64(meta->bytes)};
	char digits[32];
	size_t zeros = 16;

	/* "%016x-%x" of both. It never has the form of an MD5, so no client compares it with a
	 * body's MD5. */
	hex_encode(words, sizeof(words), digits);
	while (zeros < 31 && digits[zeros] == '0')
		zeros++;
	memcpy(meta->etag, digits, 16);
	meta->etag[16] = '-';
	memcpy(meta->etag + 17, digits + zeros, 32 - zeros);
	meta->etag[17 + 32 - zeros] = '\0';
}

void s3_crc64_digest(uint64_t crc, uint8_t digest[CHECKSUM_BYTES_MAX])
{
	for (int i = 7; i >= 0; i--, crc >>= 8)
		digest[i] = (uint8_t)crc;
}

size_t s3_checksum_format(const struct store_meta *meta, char ret_text[S3_CHECKSUM_LEN_MAX])
{
	enum checksum_kind kind = (enum checksum_kind)meta->checksum_type;
	const char *parts = strchr(meta->etag, '-');
	size_t len;

	if (kind == CHECKSUM_NONE || kind >= CHECKSUM_KIND_COUNT)
		return 0;
	len = base64_encode(meta->checksum, meta->checksum_len, ret_text);
	if (meta->checksum_flags & S3_FLAG_COMPOSITE && parts && strlen(parts) <= 6) {
		memcpy(ret_text + len, parts, strlen(parts));
		len += strlen(parts);
	}
	return len;
}

struct slice s3_checksum_text(struct s3_call *call, const struct store_meta *meta)
{
	char text[S3_CHECKSUM_LEN_MAX];

	return mem_arena_copy(&call->arena, slice_of(text, s3_checksum_format(meta, text)));
}

static void answer_sum(struct s3_call *call, const struct store_meta *meta, struct slice text)
{
	if (!text.len)
		return;
	s3_answer_header(call, checksum_header((enum checksum_kind)meta->checksum_type), text);
	s3_answer_header(call, SLICE("x-amz-checksum-type"),
		meta->checksum_flags & S3_FLAG_COMPOSITE ? SLICE("COMPOSITE")
							 : SLICE("FULL_OBJECT"));
}

void s3_answer_checksum(struct s3_call *call, const struct store_meta *meta)
{
	answer_sum(call, meta, s3_checksum_text(call, meta));
}

void s3_answer_part_checksum(struct s3_call *call, const struct store_meta *meta, uint32_t number)
{
	if (meta->checksum_flags & S3_FLAG_COMPOSITE)
		answer_sum(
			call, meta, mem_arena_copy(&call->arena, s3_meta_part_sum(meta, number)));
	else if (s3_meta_parts(meta, 1).count <= 1)
		s3_answer_checksum(call, meta);
}
