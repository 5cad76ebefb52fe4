/* codec/carry.c: "carry1 000000LEN\n", then "OFFSET BYTES OBJECT MTIME TYPE FLAGS ENCRYPTED
 * CHARGED ETAG VERSION\n" and the headers. */
#include "codec/carry.h"

#include <errno.h>
#include <stdio.h>

#define TITLE "carry1 "

int carry_write(const struct carry *carry, struct buf *out)
{
	struct slice none = SLICE("-");
	char line[320], front[CARRY_FRONT_BYTES + 1];
	int len = snprintf(line, sizeof(line), "%llu %llu %llu %llu %u %u %u %u %.*s %.*s\n",
		(unsigned long long)carry->offset, (unsigned long long)carry->bytes,
		(unsigned long long)carry->object_bytes, (unsigned long long)carry->mtime_ns,
		carry->checksum_type, carry->flags, carry->encrypted, carry->charged,
		SLICE_FMT(carry->etag.len ? carry->etag : none),
		SLICE_FMT(carry->version_id.len ? carry->version_id : none));

	if (len < 0 || (size_t)len >= sizeof(line) ||
		(size_t)len + carry->headers.len > CARRY_RECORD_BYTES)
		return -EMSGSIZE;
	snprintf(
		front, sizeof(front), TITLE "%09u\n", (uint32_t)len + (uint32_t)carry->headers.len);
	buf_put(out, front, CARRY_FRONT_BYTES);
	buf_put(out, line, (size_t)len);
	buf_put_slice(out, carry->headers);
	return out->failed ? -ENOMEM : 0;
}

int carry_front_read(const char front[CARRY_FRONT_BYTES], uint32_t *ret_bytes)
{
	struct slice text = slice_of(front, CARRY_FRONT_BYTES);
	uint64_t bytes;

	if (!slice_starts(text, SLICE(TITLE)) || text.data[text.len - 1] != '\n' ||
		slice_to_u64(
			slice_of(front + strlen(TITLE), text.len - strlen(TITLE) - 1), &bytes) ||
		!bytes || bytes > CARRY_RECORD_BYTES)
		return -EINVAL;
	*ret_bytes = (uint32_t)bytes;
	return 0;
}

static bool number_take(struct slice *rest, uint64_t max, uint64_t *ret_value)
{
	return slice_to_u64(slice_split(rest, ' '), ret_value) == 0 && *ret_value <= max;
}

/* "-" is empty. */
static bool word_take(struct slice *rest, size_t bytes_max, struct slice *ret_word)
{
	*ret_word = slice_split(rest, ' ');
	if (!ret_word->len || ret_word->len >= bytes_max ||
		memchr(ret_word->data, '\0', ret_word->len))
		return false;
	if (slice_eq(*ret_word, SLICE("-")))
		*ret_word = SLICE("");
	return true;
}

int carry_read(struct slice record, struct carry *ret_carry)
{
	struct carry carry = {.headers = record};
	struct slice line = slice_split(&carry.headers, '\n');
	uint64_t type, flags, encrypted, charged;

	/* The line's end must be there. */
	if (line.len == record.len || !number_take(&line, UINT64_MAX, &carry.offset) ||
		!number_take(&line, UINT64_MAX, &carry.bytes) ||
		!number_take(&line, UINT64_MAX, &carry.object_bytes) ||
		!number_take(&line, UINT64_MAX, &carry.mtime_ns) ||
		!number_take(&line, UINT8_MAX, &type) || !number_take(&line, UINT8_MAX, &flags) ||
		!number_take(&line, 1, &encrypted) || !number_take(&line, 1, &charged) ||
		!word_take(&line, CARRY_ETAG_BYTES, &carry.etag) ||
		!word_take(&line, CARRY_VERSION_BYTES, &carry.version_id) || line.len ||
		carry.offset > carry.object_bytes ||
		carry.bytes > carry.object_bytes - carry.offset)
		return -EINVAL;
	/* Pairs of texts, each with its end. */
	if (carry.headers.len && carry.headers.data[carry.headers.len - 1])
		return -EINVAL;
	carry.checksum_type = (uint8_t)type;
	carry.flags = (uint8_t)flags;
	carry.encrypted = encrypted;
	carry.charged = charged;
	*ret_carry = carry;
	return 0;
}
