/* Covers codec/text.c. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "codec/codec.h"

static void test_hex(void **state)
{
	uint8_t bytes[256], back[256];
	char text[512];

	(void)state;
	for (unsigned i = 0; i < 256; i++)
		bytes[i] = (uint8_t)i;
	hex_encode(bytes, 256, text);
	assert_memory_equal(text, "000102", 6);
	assert_memory_equal(text + 506, "fdfeff", 6);
	assert_int_equal(hex_decode(slice_of(text, 512), back, 256), 0);
	assert_memory_equal(bytes, back, 256);
	assert_int_equal(hex_decode(SLICE("DeadBEEF"), back, 4), 0);
	assert_memory_equal(back, "\xde\xad\xbe\xef", 4);
	assert_int_equal(hex_decode(SLICE_NONE, back, 0), 0);
}

/* Of every length, so that whole vectors and what is left of them are both met. */
static void test_hex_lengths(void **state)
{
	char text[2 * 40 + 1], one[4];
	uint8_t bytes[40], back[40];

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 53 + 7);
	for (size_t len = 0; len <= sizeof(bytes); len++) {
		memset(text, '?', sizeof(text));
		hex_encode(bytes, len, text);
		for (size_t i = 0; i < len; i++) {
			snprintf(one, sizeof(one), "%02x", bytes[i]);
			assert_memory_equal(text + 2 * i, one, 2);
		}
		assert_int_equal(text[2 * len], '?');
		memset(back, 0xee, sizeof(back));
		assert_int_equal(hex_decode(slice_of(text, 2 * len), back, len), 0);
		assert_memory_equal(back, bytes, len);
		if (len < sizeof(back))
			assert_int_equal(back[len], 0xee);
	}
}

/* Every character at every place. */
static void test_hex_refuses_anywhere(void **state)
{
	char text[2 * 20];
	uint8_t bytes[20];

	(void)state;
	memset(text, '0', sizeof(text));
	for (size_t at = 0; at < sizeof(text); at++) {
		for (int c = 0; c < 256; c++) {
			bool is_hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') ||
				      (c >= 'A' && c <= 'F');

			text[at] = (char)c;
			assert_int_equal(hex_decode(slice_of(text, sizeof(text)), bytes, 20),
				is_hex ? 0 : -EINVAL);
			if (is_hex)
				assert_int_equal(bytes[at / 2] >> (at % 2 ? 0 : 4),
					c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
		}
		text[at] = '0';
	}
}

static void test_hex_refuses(void **state)
{
	uint8_t bytes[4];

	(void)state;
	assert_int_equal(hex_decode(SLICE("abc"), bytes, 1), -EINVAL);
	assert_int_equal(hex_decode(SLICE("abcd"), bytes, 1), -EINVAL);
	assert_int_equal(hex_decode(SLICE("abcd"), bytes, 3), -EINVAL);
	for (int c = 0; c < 256; c++) {
		char text[2] = {'0', (char)c};
		bool is_hex =
			(c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');

		assert_int_equal(hex_decode(slice_of(text, 2), bytes, 1), is_hex ? 0 : -EINVAL);
	}
}

/* RFC 4648, section 10. */
static void test_base64_vectors(void **state)
{
	static const char *const pairs[][2] = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="},
		{"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="},
		{"foobar", "Zm9vYmFy"}, {"\xfb\xff\xbf", "+/+/"}};
	char text[16];
	uint8_t bytes[16];
	size_t len;

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(pairs); i++) {
		struct slice plain = slice_str(pairs[i][0]), coded = slice_str(pairs[i][1]);

		assert_int_equal(BASE64_LEN(plain.len), coded.len);
		len = base64_encode(plain.data, plain.len, text);
		assert_true(slice_eq(slice_of(text, len), coded));
		assert_int_equal(base64_decode(coded, bytes, sizeof(bytes), &len), 0);
		assert_true(slice_eq(slice_of(bytes, len), plain));
	}
}

static void test_base64_refuses(void **state)
{
	static const char *const texts[] = {"A", "AA", "AAA", "AAAAA", "A===", "====", "AA=A",
		"=AAA", "AB==", "AAB=", "AA==AAAA", "AA A", "AAA\n", "AA-_", " AAA", "AAAA\n",
		"AAAA===="};
	uint8_t bytes[16];
	size_t len = 77;

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(texts); i++) {
		if (base64_decode(slice_str(texts[i]), bytes, sizeof(bytes), &len) != -EINVAL)
			fail_msg("took \"%s\"", texts[i]);
	}
	assert_int_equal(base64_decode(SLICE("AAAA"), bytes, 2, &len), -ENOBUFS);
	assert_int_equal(len, 77);
	assert_int_equal(base64_decode(SLICE("AAA="), bytes, 2, &len), 0);
	assert_int_equal(len, 2);
}

static void test_base64_round_trips(void **state)
{
	uint8_t bytes[200], back[200];
	char text[BASE64_LEN(200)];
	struct prng prng;

	(void)state;
	prng_seed(&prng, 13);
	for (size_t len = 0; len < sizeof(bytes); len++) {
		size_t back_len;

		prng_fill(&prng, bytes, len);
		assert_int_equal(base64_encode(bytes, len, text), BASE64_LEN(len));
		assert_int_equal(
			base64_decode(slice_of(text, BASE64_LEN(len)), back, len, &back_len), 0);
		assert_int_equal(back_len, len);
		assert_memory_equal(bytes, back, len);
	}
}

static void assert_uri(struct slice text, unsigned flags, const char *expected)
{
	struct buf out;

	buf_init(&out, 4096);
	uri_encode(text, flags, &out);
	assert_false(out.failed);
	assert_true(slice_eq(buf_slice(&out), slice_str(expected)));
	buf_free(&out);
}

static void test_uri_encode(void **state)
{
	(void)state;
	assert_uri(SLICE(""), 0, "");
	assert_uri(SLICE("azAZ09-._~"), 0, "azAZ09-._~");
	assert_uri(SLICE("a/b c"), 0, "a%2Fb%20c");
	assert_uri(SLICE("a/b c"), URI_KEEP_SLASH, "a/b%20c");
	assert_uri(SLICE("+*%=&?#[]@!$'(),:;<>"), URI_KEEP_SLASH,
		"%2B%2A%25%3D%26%3F%23%5B%5D%40%21%24%27%28%29%2C%3A%3B%3C%3E");
	assert_uri(SLICE("\xc3\xbc"), 0, "%C3%BC");
	assert_uri(SLICE("a\0b"), 0, "a%00b");
}

/* Each byte at each place of texts with whole vectors and more. */
static void test_uri_encode_anywhere(void **state)
{
	char text[40], expected[sizeof(text) + 3];

	(void)state;
	memset(text, 'a', sizeof(text));
	for (size_t at = 0; at < sizeof(text); at++) {
		for (int byte = 0; byte < 512; byte++) {
			unsigned flags = byte < 256 ? 0 : URI_KEEP_SLASH;
			int c = byte % 256;
			bool stays = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
				     (c >= 'A' && c <= 'Z') || (c && strchr("-._~", c)) ||
				     (c == '/' && flags);

			text[at] = (char)c;
			memset(expected, 'a', sizeof(expected));
			expected[stays ? sizeof(text) : sizeof(text) + 2] = '\0';
			if (stays)
				expected[at] = (char)c;
			else
				for (int i = 0; i < 3; i++)
					expected[at + (size_t)i] =
						i ? "0123456789ABCDEF"[i == 1 ? c >> 4 : c & 15]
						  : '%';
			assert_uri(slice_of(text, sizeof(text)), flags, expected);
		}
		text[at] = 'a';
	}
}

static void test_uri_decode(void **state)
{
	char text[] = "a%2fb%20+c%00", out[16];
	size_t len;

	(void)state;
	assert_int_equal(uri_decode(slice_str(text), 0, out, sizeof(out), &len), 0);
	assert_true(slice_eq(slice_of(out, len), SLICE("a/b +c\0")));
	assert_int_equal(
		uri_decode(slice_str(text), URI_PLUS_IS_SPACE, text, sizeof(text), &len), 0);
	assert_true(slice_eq(slice_of(text, len), SLICE("a/b  c\0")));
	assert_int_equal(uri_decode(SLICE_NONE, 0, out, 0, &len), 0);
	assert_int_equal(len, 0);
}

static void test_uri_decode_refuses(void **state)
{
	static const char *const texts[] = {
		"%", "%1", "a%", "a%2", "%zz", "%2g", "%g2", "%%20", "%2%30"};
	char out[16];
	size_t len = 77;

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(texts); i++) {
		if (uri_decode(slice_str(texts[i]), 0, out, sizeof(out), &len) != -EINVAL)
			fail_msg("took \"%s\"", texts[i]);
	}
	assert_int_equal(uri_decode(SLICE("abc"), 0, out, 2, &len), -ENOBUFS);
	assert_int_equal(uri_decode(SLICE("%41%42%43"), 0, out, 2, &len), -ENOBUFS);
	assert_int_equal(len, 77);
}

static void test_uri_round_trips(void **state)
{
	struct prng prng;
	struct buf out;

	(void)state;
	prng_seed(&prng, 14);
	buf_init(&out, 4096);
	for (int round = 0; round < 500; round++) {
		char bytes[300], back[300];
		size_t len = prng_below(&prng, sizeof(bytes)), back_len;

		prng_fill(&prng, bytes, len);
		buf_reset(&out);
		uri_encode(slice_of(bytes, len), round & URI_KEEP_SLASH, &out);
		assert_false(out.failed);
		assert_int_equal(
			uri_decode(buf_slice(&out), URI_PLUS_IS_SPACE, back, len, &back_len), 0);
		assert_int_equal(back_len, len);
		assert_memory_equal(bytes, back, len);
	}
	buf_free(&out);
}

/* The definition: decode the number, then check whether it has a shorter form or is not allowed. */
static bool is_utf8_by_definition(const uint8_t *byte, size_t len)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t i = 0;

	while (i < len) {
		unsigned count = byte[i] < 0x80	      ? 1
				 : byte[i] >> 5 == 6  ? 2
				 : byte[i] >> 4 == 14 ? 3
				 : byte[i] >> 3 == 30 ? 4
						      : 0;
		uint32_t point = count == 1 ? byte[i] : byte[i] & (0x7fu >> count);

		if (!count || count > len - i)
			return false;
		for (unsigned k = 1; k < count; k++) {
			if (byte[i + k] >> 6 != 2)
				return false;
			point = point << 6 | (byte[i + k] & 0x3f);
		}
		if (point < least[count] || point > 0x10ffff ||
			(point >= 0xd800 && point <= 0xdfff))
			return false;
		i += count;
	}
	return true;
}

static void test_utf8_equals_the_definition(void **state)
{
	struct prng prng;
	unsigned valid = 0;

	(void)state;
	for (uint32_t first = 0; first < 0x10000; first++) {
		/* Every pair of first bytes, as a sequence of two, of three and of four. */
		uint8_t bytes[4] = {(uint8_t)(first >> 8), (uint8_t)first, 0x80, 0xbf};

		for (size_t len = 1; len <= 4; len++)
			assert_int_equal(utf8_is_valid(slice_of(bytes, len)),
				is_utf8_by_definition(bytes, len));
	}
	prng_seed(&prng, 15);
	for (int round = 0; round < 100000; round++) {
		static const uint8_t pick[] = {'a', 0x80, 0xbf, 0x9f, 0xa0, 0xc2, 0xdf, 0xe0, 0xed,
			0xef, 0xf0, 0xf4, 'b', 'c', 0x8f, 0x90};
		uint8_t bytes[24];
		size_t len = prng_below(&prng, sizeof(bytes));

		memset(bytes, 'x', sizeof(bytes));
		for (size_t i = 0, from = prng_below(&prng, 20); i < 4 && from + i < len; i++)
			bytes[from + i] = pick[prng_below(&prng, sizeof(pick))];
		assert_int_equal(
			utf8_is_valid(slice_of(bytes, len)), is_utf8_by_definition(bytes, len));
		valid += utf8_is_valid(slice_of(bytes, len));
	}
	assert_in_range(valid, 1000, 99000);
	assert_true(utf8_is_valid(SLICE_NONE));
}

/* Each byte at each place of values that are shorter and longer than a vector. */
static void test_field_values_have_no_control_characters(void **state)
{
	char text[40];

	(void)state;
	for (size_t len = 0; len <= sizeof(text); len++) {
		memset(text, 'a', sizeof(text));
		assert_true(field_value_is_valid(slice_of(text, len)));
		for (size_t at = 0; at < len; at++) {
			for (unsigned byte = 0; byte < 256; byte++) {
				text[at] = (char)byte;
				assert_int_equal(field_value_is_valid(slice_of(text, len)),
					(byte >= 0x20 || byte == '\t') && byte != 0x7f);
			}
			text[at] = at % 2 ? '\t' : '\x80';
		}
	}
}

/* RFC 9110's tokens: each byte at each place. */
static void test_field_name(void **state)
{
	char text[20];

	(void)state;
	assert_false(field_name_is_valid(slice_of(text, 0)));
	for (size_t len = 1; len <= sizeof(text); len++) {
		memset(text, 'a', sizeof(text));
		for (size_t at = 0; at < len; at++) {
			for (unsigned byte = 0; byte < 256; byte++) {
				bool letter = byte && strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ"
							     "abcdefghijklmnopqrstuvwxyz",
							      (int)byte);
				bool other = byte && strchr("0123456789!#$%&'*+-.^_`|~", (int)byte);

				text[at] = (char)byte;
				assert_int_equal(
					field_name_is_valid(slice_of(text, len)), letter || other);
			}
			text[at] = '-';
		}
	}
}

/* Each byte at each place; in its own memory, too. */
static void test_lower_case(void **state)
{
	char text[20], lower[20];

	(void)state;
	for (size_t len = 0; len <= sizeof(text); len++) {
		for (unsigned byte = 0; byte < 256 * len; byte++) {
			size_t at = byte / 256;
			char c = (char)byte;

			memset(text, 'Q', sizeof(text));
			memset(lower, 'R', sizeof(lower));
			text[at] = c;
			text_lower(slice_of(text, len), lower);
			for (size_t i = 0; i < sizeof(lower); i++) {
				char expected = i >= len ? 'R' : i != at ? 'q' : c;

				if (i == at && i < len && c >= 'A' && c <= 'Z')
					expected = (char)(c + 'a' - 'A');
				assert_int_equal(lower[i], expected);
			}
			text_lower(slice_of(text, len), text);
			assert_memory_equal(text, lower, len);
		}
	}
}

static void test_xml(void **state)
{
	struct buf out;

	(void)state;
	buf_init(&out, 4096);
	xml_escape(SLICE("a<b>&\"c'\n\x01\xc3\xbcz"), &out);
	assert_true(
		slice_eq(buf_slice(&out), SLICE("a&lt;b&gt;&amp;&quot;c&#39;&#xa;&#x1;\xc3\xbcz")));
	buf_reset(&out);
	xml_element("Key", SLICE("a&b"), &out);
	xml_element("Prefix", SLICE_NONE, &out);
	assert_true(slice_eq(buf_slice(&out), SLICE("<Key>a&amp;b</Key><Prefix></Prefix>")));
	assert_true(slice_eq(xml_text(buf_slice(&out), "Key"), SLICE("a&amp;b")));
	assert_non_null(xml_text(buf_slice(&out), "Prefix").data);
	assert_int_equal(xml_text(buf_slice(&out), "Prefix").len, 0);
	assert_null(xml_text(buf_slice(&out), "Code").data);
	assert_null(xml_text(SLICE("<Key>a"), "Key").data);
	assert_null(xml_text(SLICE("</Key>a"), "Key").data);
	buf_free(&out);
}

static void test_output_that_does_not_fit_is_marked(void **state)
{
	struct buf out;

	(void)state;
	buf_init(&out, 4);
	xml_escape(SLICE("a&"), &out);
	assert_true(out.failed);
	buf_reset(&out);
	uri_encode(SLICE("  "), 0, &out);
	assert_true(out.failed);
	buf_free(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hex),
		cmocka_unit_test(test_hex_refuses),
		cmocka_unit_test(test_hex_lengths),
		cmocka_unit_test(test_hex_refuses_anywhere),
		cmocka_unit_test(test_base64_vectors),
		cmocka_unit_test(test_base64_refuses),
		cmocka_unit_test(test_base64_round_trips),
		cmocka_unit_test(test_uri_encode),
		cmocka_unit_test(test_uri_encode_anywhere),
		cmocka_unit_test(test_uri_decode),
		cmocka_unit_test(test_uri_decode_refuses),
		cmocka_unit_test(test_uri_round_trips),
		cmocka_unit_test(test_utf8_equals_the_definition),
		cmocka_unit_test(test_field_values_have_no_control_characters),
		cmocka_unit_test(test_field_name),
		cmocka_unit_test(test_lower_case),
		cmocka_unit_test(test_xml),
		cmocka_unit_test(test_output_that_does_not_fit_is_marked),
	};

	return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
