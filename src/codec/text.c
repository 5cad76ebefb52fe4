/* codec/text.c: hex, base64, percent-encoding, UTF-8 and XML text. All of it is for names, headers
 * and digests, never for payload. */
#include "codec/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

static const char hex_upper[] = "0123456789ABCDEF";
static const char base64_digits[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* The two digits of each byte, one after the other. */
#define HEX_ROW(high)                                                                         \
	high "0" high "1" high "2" high "3" high "4" high "5" high "6" high "7" high "8" high \
	     "9" high "a" high "b" high "c" high "d" high "e" high "f"
static const char hex_pairs[] = HEX_ROW("0") HEX_ROW("1") HEX_ROW("2") HEX_ROW("3") HEX_ROW("4")
	HEX_ROW("5") HEX_ROW("6") HEX_ROW("7") HEX_ROW("8") HEX_ROW("9") HEX_ROW("a") HEX_ROW("b")
		HEX_ROW("c") HEX_ROW("d") HEX_ROW("e") HEX_ROW("f");

/* Digests and header values are handled sixteen bytes at a time. */
#define LANES 16u
typedef uint8_t bytes_v __attribute__((vector_size(LANES)));
typedef uint16_t pairs_v __attribute__((vector_size(LANES)));

static bytes_v bytes_at(const char *text)
{
	bytes_v bytes;

	memcpy(&bytes, text, sizeof(bytes));
	return bytes;
}

/* Whether any of the lanes is not zero. */
static bool any(bytes_v lanes)
{
	uint64_t words[2];

	memcpy(words, &lanes, sizeof(words));
	return words[0] | words[1];
}

/* The digits of values below 16. */
static bytes_v hex_digits(bytes_v values)
{
	return values + '0' + ((bytes_v)(values > 9) & ('a' - '0' - 10));
}

void hex_encode(const void *data, size_t len, char *ret_text)
{
	const uint8_t *bytes = data;
	size_t i = 0;

	for (; len - i >= LANES; i += LANES) {
		bytes_v both = bytes_at((const char *)bytes + i);
		bytes_v high = hex_digits(both >> 4), low = hex_digits(both & 15);
		bytes_v first = __builtin_shufflevector(
			high, low, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
		bytes_v second = __builtin_shufflevector(
			high, low, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);

		memcpy(ret_text + 2 * i, &first, LANES);
		memcpy(ret_text + 2 * i + LANES, &second, LANES);
	}
	for (; i < len; i++)
		memcpy(ret_text + 2 * i, hex_pairs + 2 * bytes[i], 2);
}

/* 0 to 15, or -1. Uses a table, because branches on the digits of a digest cannot be predicted. */
static int hex_value(char c)
{
	/* One more than the value, so that a character that is no digit has 0. */
	static const uint8_t values[256] = {['0'] = 1,
		2,
		3,
		4,
		5,
		6,
		7,
		8,
		9,
		10,
		['A'] = 11,
		12,
		13,
		14,
		15,
		16,
		['a'] = 11,
		12,
		13,
		14,
		15,
		16};

	return values[(uint8_t)c] - 1;
}

/* The eight bytes of sixteen digits; false: one of them is none. */
static bool hex_decode_lanes(const char *text, uint8_t *ret_bytes)
{
	bytes_v digits = bytes_at(text), numbers = digits - '0', letters = (digits | 0x20) - 'a';
	bytes_v is_number = (bytes_v)(numbers < 10), is_letter = (bytes_v)(letters < 6);
	bytes_v values = (numbers & is_number) | ((letters + 10) & is_letter);
	pairs_v pairs = (pairs_v)values;
	bytes_v whole = (bytes_v)(pairs << 4 | pairs >> 8);

	whole = __builtin_shufflevector(
		whole, whole, 0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14);
	memcpy(ret_bytes, &whole, LANES / 2);
	return !any(~(is_number | is_letter));
}

int hex_decode(struct slice text, void *ret_data, size_t len)
{
	uint8_t *bytes = ret_data;
	size_t i = 0;

	if (text.len % 2 || text.len / 2 != len)
		return -EINVAL;
	for (; len - i >= LANES / 2; i += LANES / 2)
		if (!hex_decode_lanes(text.data + 2 * i, bytes + i))
			return -EINVAL;
	for (; i < len; i++) {
		int high = hex_value(text.data[2 * i]), low = hex_value(text.data[2 * i + 1]);

		if ((high | low) < 0)
			return -EINVAL;
		bytes[i] = (uint8_t)(high << 4 | low);
	}
	return 0;
}

size_t base64_encode(const void *data, size_t len, char *ret_text)
{
	const uint8_t *bytes = data;
	char *out = ret_text;

	for (; len >= 3; len -= 3, bytes += 3, out += 4) {
		uint32_t word = (uint32_t)bytes[0] << 16 | (uint32_t)bytes[1] << 8 | bytes[2];

		out[0] = base64_digits[word >> 18];
		out[1] = base64_digits[word >> 12 & 63];
		out[2] = base64_digits[word >> 6 & 63];
		out[3] = base64_digits[word & 63];
	}
	if (len) {
		uint32_t word = (uint32_t)bytes[0] << 16 | (len == 2 ? (uint32_t)bytes[1] << 8 : 0);

		out[0] = base64_digits[word >> 18];
		out[1] = base64_digits[word >> 12 & 63];
		out[2] = len == 2 ? base64_digits[word >> 6 & 63] : '=';
		out[3] = '=';
		out += 4;
	}
	return (size_t)(out - ret_text);
}

/* 0 to 63, or -1. */
static int base64_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int base64_decode(struct slice text, void *ret_data, size_t data_bytes_max, size_t *ret_len)
{
	size_t padding = slice_ends(text, SLICE("==")) ? 2 : slice_ends(text, SLICE("="));
	size_t len = text.len / 4 * 3 - padding, done = 0;
	uint8_t *bytes = ret_data;
	uint32_t word = 0;
	int bits = 0;

	if (text.len % 4)
		return -EINVAL;
	if (len > data_bytes_max)
		return -ENOBUFS;
	for (size_t i = 0; i < text.len - padding; i++) {
		int value = base64_value(text.data[i]);

		if (value < 0)
			return -EINVAL;
		word = word << 6 | (uint32_t)value;
		bits += 6;
		if (bits >= 8) {
			bits -= 8;
			bytes[done++] = (uint8_t)(word >> bits);
		}
	}
	if (word & ((1u << bits) - 1))
		return -EINVAL;
	*ret_len = done;
	return 0;
}

static const bool is_unreserved[256] = {
	['0' ... '9'] = true,
	['A' ... 'Z'] = true,
	['a' ... 'z'] = true,
	['-'] = true,
	['.'] = true,
	['_'] = true,
	['~'] = true,
};

/* How many bytes at the text's head need no escape, in whole vectors. */
static size_t unreserved_lanes(struct slice text, unsigned flags)
{
	uint8_t signs = flags & URI_KEEP_SLASH ? 3 : 2; /* of "-./" */
	size_t at = 0;

	for (; text.len - at >= LANES; at += LANES) {
		bytes_v bytes = bytes_at(text.data + at), letters = (bytes | 0x20) - 'a';
		bytes_v plain = (bytes_v)((letters < 26) | (bytes - '0' < 10) |
					  (bytes - '-' < signs) | (bytes == '_') | (bytes == '~'));

		if (any(~plain))
			break;
	}
	return at;
}

void uri_encode(struct slice text, unsigned flags, struct buf *out)
{
	/* The length of the text at the head that is copied unchanged. */
	size_t run = unreserved_lanes(text, flags);

	while (run < text.len) {
		uint8_t byte = (uint8_t)text.data[run];

		if (is_unreserved[byte] || (byte == '/' && flags & URI_KEEP_SLASH)) {
			run++;
			continue;
		}
		buf_put_slice(out, slice_to(text, run));
		buf_put(out, (char[]){'%', hex_upper[byte >> 4], hex_upper[byte & 15]}, 3);
		text = slice_from(text, run + 1);
		run = 0;
	}
	buf_put_slice(out, text);
}

int uri_decode(
	struct slice text, unsigned flags, char *ret_data, size_t data_bytes_max, size_t *ret_len)
{
	size_t done = 0;

	for (size_t i = 0; i < text.len; i++) {
		char c = text.data[i];

		if (c == '%') {
			int high = i + 2 < text.len ? hex_value(text.data[i + 1]) : -1;
			int low = i + 2 < text.len ? hex_value(text.data[i + 2]) : -1;

			if (high < 0 || low < 0)
				return -EINVAL;
			c = (char)(high << 4 | low);
			i += 2;
		} else if (c == '+' && flags & URI_PLUS_IS_SPACE) {
			c = ' ';
		}
		if (done == data_bytes_max)
			return -ENOBUFS;
		ret_data[done++] = c;
	}
	*ret_len = done;
	return 0;
}

/* Length of the well-formed sequence at the head of a text that is not empty, or 0. */
static size_t utf8_sequence(const uint8_t *byte, size_t len)
{
	uint8_t second_min = 0x80, second_max = 0xbf;
	size_t sequence;

	if (byte[0] < 0x80)
		return 1;
	if (byte[0] < 0xc2 || byte[0] > 0xf4)
		return 0;
	sequence = byte[0] < 0xe0 ? 2 : byte[0] < 0xf0 ? 3 : 4;
	if (sequence > len)
		return 0;
	/* For these first bytes, the second byte alone shows an overlong form, a surrogate or a
	 * number that is too high. */
	if (byte[0] == 0xe0)
		second_min = 0xa0;
	else if (byte[0] == 0xed)
		second_max = 0x9f;
	else if (byte[0] == 0xf0)
		second_min = 0x90;
	else if (byte[0] == 0xf4)
		second_max = 0x8f;
	if (byte[1] < second_min || byte[1] > second_max)
		return 0;
	for (size_t i = 2; i < sequence; i++) {
		if (byte[i] < 0x80 || byte[i] > 0xbf)
			return 0;
	}
	return sequence;
}

bool utf8_is_valid(struct slice text)
{
	const uint8_t *pos = (const uint8_t *)text.data;
	size_t len = text.len;

	while (len) {
		uint64_t word;
		size_t step;

		if (len >= sizeof(word)) {
			memcpy(&word, pos, sizeof(word));
			if (!(word & 0x8080808080808080)) {
				pos += sizeof(word);
				len -= sizeof(word);
				continue;
			}
		}
		step = utf8_sequence(pos, len);
		if (!step)
			return false;
		pos += step;
		len -= step;
	}
	return true;
}

#define EACH(byte) (0x0101010101010101u * (uint64_t)(byte))

/* Sums that carry into a byte's highest bit compare its other seven. */
static uint64_t word_lower(uint64_t word)
{
	uint64_t low = word & EACH(0x7f);
	uint64_t from_a = low + EACH(0x80 - 'A'), past_z = low + EACH(0x7f - 'Z');

	return word | (from_a & ~past_z & ~word & EACH(0x80)) >> 2;
}

void text_lower(struct slice text, char *ret_text)
{
	size_t at = 0;

	for (; text.len - at >= sizeof(uint64_t); at += sizeof(uint64_t)) {
		uint64_t word;

		memcpy(&word, text.data + at, sizeof(word));
		word = word_lower(word);
		memcpy(ret_text + at, &word, sizeof(word));
	}
	for (; at < text.len; at++)
		ret_text[at] = (char)word_lower((uint8_t)text.data[at]);
}

bool field_name_is_valid(struct slice name)
{
	static const bool token[256] = {
		['!'] = true,
		['#' ... '\''] = true,
		['*'] = true,
		['+'] = true,
		['-'] = true,
		['.'] = true,
		['0' ... '9'] = true,
		['A' ... 'Z'] = true,
		['^' ... 'z'] = true,
		['|'] = true,
		['~'] = true,
	};

	for (size_t i = 0; i < name.len; i++) {
		if (!token[(uint8_t)name.data[i]])
			return false;
	}
	return name.len > 0;
}

static bytes_v controls(const char *text)
{
	bytes_v bytes = bytes_at(text);

	return (bytes_v)(bytes < 0x20) | (bytes_v)(bytes == 0x7f);
}

/* Whether a text of LANES bytes or more has a control character, tabs too. The last lanes may begin
 * within those before. */
static bool text_has_control(struct slice text)
{
	bytes_v found = controls(text.data + text.len - LANES);

	for (size_t at = 0; at + LANES < text.len; at += LANES)
		found |= controls(text.data + at);
	return any(found);
}

bool field_value_is_valid(struct slice value)
{
	const uint8_t *pos = (const uint8_t *)value.data;

	if (value.len >= LANES && !text_has_control(value))
		return true;
	for (size_t at = 0; at < value.len; at++) {
		if ((pos[at] < 0x20 && pos[at] != '\t') || pos[at] == 0x7f)
			return false;
	}
	return true;
}

/* The XML entity for c, or NULL when c needs none or is a control character. */
static const char *xml_entity(char c)
{
	switch (c) {
	case '&':
		return "&amp;";
	case '<':
		return "&lt;";
	case '>':
		return "&gt;";
	case '"':
		return "&quot;";
	case '\'':
		return "&#39;";
	default:
		return NULL;
	}
}

void xml_escape(struct slice text, struct buf *out)
{
	size_t run = 0; /* length of the text at the head that is copied unchanged */

	while (run < text.len) {
		uint8_t byte = (uint8_t)text.data[run];
		const char *entity = xml_entity((char)byte);

		if (!entity && byte >= ' ') {
			run++;
			continue;
		}
		buf_put_slice(out, slice_to(text, run));
		if (entity)
			buf_put_str(out, entity);
		else
			buf_printf(out, "&#x%x;", byte);
		text = slice_from(text, run + 1);
		run = 0;
	}
	buf_put_slice(out, text);
}

void xml_element(const char *name, struct slice text, struct buf *out)
{
	buf_printf(out, "<%s>", name);
	xml_escape(text, out);
	buf_printf(out, "</%s>", name);
}

struct slice xml_text(struct slice xml, const char *name)
{
	char tag[64];
	ptrdiff_t at;

	snprintf(tag, sizeof(tag), "<%s>", name);
	at = slice_find(xml, slice_str(tag));
	if (at < 0)
		return SLICE_NONE;
	xml = slice_from(xml, (size_t)at + strlen(tag));
	snprintf(tag, sizeof(tag), "</%s>", name);
	at = slice_find(xml, slice_str(tag));
	return at < 0 ? SLICE_NONE : slice_to(xml, (size_t)at);
}
