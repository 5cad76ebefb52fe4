/* Fuzzes codec's text parsers: the writer must give back what a parser accepts. The first byte
 * selects the parser. */
#include <stdlib.h>

#include "base/base.h"
#include "codec/codec.h"

#define OUT_BYTES_MAX 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char bytes[OUT_BYTES_MAX], text[2 * OUT_BYTES_MAX];

static void try_hex(struct slice in)
{
	if (hex_decode(in, bytes, in.len / 2) == 0) {
		hex_encode(bytes, in.len / 2, text);
		CHECK(slice_eq_nocase(slice_of(text, in.len), in));
	}
}

static void try_base64(struct slice in)
{
	size_t len;

	if (base64_decode(in, bytes, sizeof(bytes), &len) == 0)
		CHECK(slice_eq(slice_of(text, base64_encode(bytes, len, text)), in));
}

static void try_uri(struct slice in)
{
	struct buf coded;
	size_t len, again_len;

	if (uri_decode(in, URI_PLUS_IS_SPACE, bytes, sizeof(bytes), &len))
		return;
	buf_init(&coded, 3 * OUT_BYTES_MAX);
	uri_encode(slice_of(bytes, len), URI_KEEP_SLASH, &coded);
	CHECK(!coded.failed);
	CHECK(uri_decode(buf_slice(&coded), 0, text, sizeof(text), &again_len) == 0);
	CHECK(slice_eq(slice_of(text, again_len), slice_of(bytes, len)));
	buf_free(&coded);
}

static void try_xml(struct slice in)
{
	struct buf out;

	if (!utf8_is_valid(in))
		return;
	buf_init(&out, 6 * OUT_BYTES_MAX);
	xml_escape(in, &out);
	CHECK(!out.failed);
	CHECK(slice_find(buf_slice(&out), SLICE("<")) < 0);
	CHECK(utf8_is_valid(buf_slice(&out)));
	buf_free(&out);
}

static void try_date(struct slice in)
{
	int64_t ms, again;

	if (date_http_parse(in, &ms) == 0) {
		date_http_format(ms, text);
		CHECK(date_http_parse(slice_of(text, DATE_HTTP_LEN), &again) == 0);
		CHECK(again == ms);
	}
	if (date_iso_parse(in, &ms) == 0) {
		date_iso_format(ms, text);
		CHECK(date_iso_parse(slice_of(text, DATE_ISO_LEN), &again) == 0);
		CHECK(again == ms);
	}
	if (date_mail_parse(in, &ms) == 0)
		CHECK(ms >= 0 && ms <= DATE_MS_MAX);
	if (date_basic_parse(in, &ms) == 0) {
		date_basic_format(ms, text);
		CHECK(slice_eq(slice_of(text, DATE_BASIC_LEN), in));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const readers[])(struct slice in) = {
		try_hex, try_base64, try_uri, try_xml, try_date};

	if (size > 0 && size < OUT_BYTES_MAX)
		readers[data[0] % ARRAY_LEN(readers)](slice_of(data + 1, size - 1));
	return 0;
}
