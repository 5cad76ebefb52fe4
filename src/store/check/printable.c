/* store/check/printable.c: makes names that users chose safe to print on a terminal. */
#include "store/check/check.h"

/* The character at the front: its length and its code; 0: not UTF-8. */
static size_t decode(struct slice text, uint32_t *ret_char)
{
	static const uint32_t LEAST[] = {0, 0, 0x80, 0x800, 0x10000};
	uint8_t lead = (uint8_t)text.data[0];
	size_t len = lead < 0x80 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
	uint32_t code = len == 1 ? lead : lead & (0x7fu >> len);

	if ((lead >= 0x80 && lead < 0xc2) || lead > 0xf4 || len > text.len)
		return 0;
	for (size_t i = 1; i < len; i++) {
		if (((uint8_t)text.data[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | ((uint8_t)text.data[i] & 0x3f);
	}
	if (code < LEAST[len] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
		return 0;
	*ret_char = code;
	return len;
}

/* Control characters move the cursor and change colours. Bidirectional controls and line separators
 * change how the neighbouring text is read. */
static bool is_printable(uint32_t c)
{
	return c >= 0x20 && !(c >= 0x7f && c < 0xa0) && c != '\\' && c != 0x61c &&
	       !(c >= 0x200b && c <= 0x200f) && !(c >= 0x2028 && c <= 0x202e) &&
	       !(c >= 0x2060 && c <= 0x206f) && c != 0xfeff;
}

void printable_put(struct buf *out, struct slice text)
{
	struct slice rest = slice_to(text, PRINTABLE_BYTES_MAX);

	while (rest.len) {
		uint32_t c;
		size_t len = decode(rest, &c);

		if (len && is_printable(c)) {
			buf_put(out, rest.data, len);
		} else {
			len = len ? len : 1;
			for (size_t i = 0; i < len; i++)
				buf_printf(out, "\\x%02x", (uint8_t)rest.data[i]);
		}
		rest = slice_from(rest, len);
	}
	if (text.len > PRINTABLE_BYTES_MAX)
		buf_put_str(out, "…");
}
