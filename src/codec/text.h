/* codec/text.h: bytes as text and back: hex, base64, percent-encoding, UTF-8, XML.
 *
 * Encoders into a caller's buffer write no NUL; a macro or function gives the exact length.
 * Decoders are strict: text that they accept encodes back to the same text (except
 * percent-encoding). */
#ifndef CODEC_TEXT_H
#define CODEC_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/slice.h"

/* Lower-case hex: writes 2 * len characters. */
void hex_encode(const void *data, size_t len, char *ret_text);
/* Either case. text.len must be 2 * len: -EINVAL otherwise, and on any other character; ret_data is
 * then undefined. */
int hex_decode(struct slice text, void *ret_data, size_t len);

/* Base64 of RFC 4648 section 4, with padding. */
#define BASE64_LEN(bytes) (((bytes) + 2) / 3 * 4)
/* Writes BASE64_LEN(len) characters and returns that number. */
size_t base64_encode(const void *data, size_t len, char *ret_text);
/* Strict: padded, no white space, unused bits zero. *ret_len bytes written. -EINVAL on bad text,
 * -ENOBUFS when more than data_bytes_max would come out; ret_data is then undefined. */
int base64_decode(struct slice text, void *ret_data, size_t data_bytes_max, size_t *ret_len);

enum uri_flags {
	URI_KEEP_SLASH = 1,    /* encode: "/" stays (a path); otherwise %2F (a query part) */
	URI_PLUS_IS_SPACE = 2, /* decode: "+" is a space (a query part); otherwise itself */
};
/* Percent-encodes all but RFC 3986's unreserved characters, with upper-case hex, as SigV4 and
 * encoding-type=url require. Appends to out (buf.h describes how that fails). */
void uri_encode(struct slice text, unsigned flags, struct buf *out);
/* Decodes into ret_data, which may be text's own memory (the result is never longer). -EINVAL on a
 * "%" that two hex digits do not follow, -ENOBUFS past data_bytes_max. Accepts and returns any
 * byte, NUL too: the caller checks the result. */
int uri_decode(
	struct slice text, unsigned flags, char *ret_data, size_t data_bytes_max, size_t *ret_len);

/* Well-formed UTF-8 by Unicode table 3-7: no overlong forms, no surrogates, nothing past U+10FFFF.
 * The empty text is well-formed. */
bool utf8_is_valid(struct slice text);

/* Writes text.len bytes: ASCII letters in lower case, all else as it is. ret_text may be the text
 * itself. */
void text_lower(struct slice text, char *ret_text);

/* Whether bytes can be a header's name: a token of RFC 9110, section 5.6.2. The empty text is none.
 */
bool field_name_is_valid(struct slice name);
/* Whether bytes can be a header's value (RFC 9110 section 5.5): without control characters, except
 * tabs. Those could end the header early. */
bool field_value_is_valid(struct slice value);

/* Appends text as XML character data, good in attributes too: & < > " ' become entities, and
 * control characters become character references, as S3 writes keys that hold them (XML 1.0 parsers
 * refuse most of them, which is what encoding-type=url is for). text must be valid UTF-8. */
void xml_escape(struct slice text, struct buf *out);
/* Appends <name>text</name>; name is a literal that needs no escape. */
void xml_element(const char *name, struct slice text, struct buf *out);
/* The text from the first <name> to the next </name>, as it is; data NULL: one is missing. */
struct slice xml_text(struct slice xml, const char *name);

#endif
