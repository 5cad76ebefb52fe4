/* Covers codec/date.c. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "base/base.h"
#include "codec/codec.h"

/* RFC 9110's own example, 1994-11-06T08:49:37Z. */
#define EXAMPLE_MS 784111777000ll

typedef int parse_fn(struct slice text, int64_t *ret_ms);

static void assert_refused(parse_fn *parse, const char *text)
{
	int64_t ms = 12345;

	if (parse(slice_str(text), &ms) != -EINVAL || ms != 12345)
		fail_msg("took \"%s\"", text);
}

static void test_every_format_of_one_moment(void **state)
{
	char text[32];

	(void)state;
	date_http_format(EXAMPLE_MS, text);
	assert_memory_equal(text, "Sun, 06 Nov 1994 08:49:37 GMT", DATE_HTTP_LEN);
	date_iso_format(EXAMPLE_MS + 7, text);
	assert_memory_equal(text, "1994-11-06T08:49:37.007Z", DATE_ISO_LEN);
	date_basic_format(EXAMPLE_MS, text);
	assert_memory_equal(text, "19941106T084937Z", DATE_BASIC_LEN);
	date_iso_format(0, text);
	assert_memory_equal(text, "1970-01-01T00:00:00.000Z", DATE_ISO_LEN);
	date_iso_format(DATE_MS_MAX, text);
	assert_memory_equal(text, "9999-12-31T23:59:59.999Z", DATE_ISO_LEN);
}

static void test_every_form_is_read(void **state)
{
	static const struct {
		parse_fn *parse;
		const char *text;
		int64_t ms;
	} cases[] = {
		{date_http_parse, "Sun, 06 Nov 1994 08:49:37 GMT", EXAMPLE_MS},
		{date_http_parse, "Sunday, 06-Nov-94 08:49:37 GMT", EXAMPLE_MS},
		{date_http_parse, "Sun Nov  6 08:49:37 1994", EXAMPLE_MS},
		{date_http_parse, "Sunday, 06-Nov-05 00:00:00 GMT", 1131235200000},
		{date_mail_parse, "Sun, 06 Nov 1994 08:49:37 +0000", EXAMPLE_MS},
		{date_mail_parse, "Tue, 6 Nov 1994 03:19:37 -0530", EXAMPLE_MS},
		{date_mail_parse, "06 Nov 1994 10:49:37 +0200", EXAMPLE_MS},
		{date_mail_parse, "Sun, 06 Nov 1994 08:49:37 UTC", EXAMPLE_MS},
		{date_mail_parse, "Tue, 07 Jul 9999 21:53:04 GMT", 253387000384000},
		{date_iso_parse, "1994-11-06T08:49:37Z", EXAMPLE_MS},
		{date_iso_parse, "1994-11-06T08:49:37.5Z", EXAMPLE_MS + 500},
		{date_iso_parse, "1994-11-06T08:49:37.123456789Z", EXAMPLE_MS + 123},
		{date_iso_parse, "1994-11-06T10:49:37+02:00", EXAMPLE_MS},
		{date_iso_parse, "1994-11-06T03:19:37.000-05:30", EXAMPLE_MS},
		{date_iso_parse, "9999-12-31T23:59:59.999Z", DATE_MS_MAX},
		{date_basic_parse, "19941106T084937Z", EXAMPLE_MS},
		{date_day_parse, "19941106", 784080000000},
		{date_day_parse, "20000229", 951782400000},
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(cases); i++) {
		int64_t ms;

		assert_int_equal(cases[i].parse(slice_str(cases[i].text), &ms), 0);
		assert_int_equal(ms, cases[i].ms);
	}
}

static void test_http_refuses(void **state)
{
	static const char *const texts[] = {
		"",
		"Sun, 06 Nov 1994 08:49:37",
		"Sun, 06 Nov 1994 08:49:37 GMT ",
		"Sun, 06 Nov 1994 08:49:37 UTC",
		"Mon, 06 Nov 1994 08:49:37 GMT",
		"sun, 06 Nov 1994 08:49:37 GMT",
		"Sun, 6 Nov 1994 08:49:37 GMT",
		"Sun, 06 Nov 1994 24:00:00 GMT",
		"Sun, 06 Nov 1994 08:60:37 GMT",
		"Sun, 06 Nov 1994 08:49:60 GMT",
		"Sun, 06 Nov 1994 08:49:-1 GMT",
		"Sun, 31 Nov 1994 08:49:37 GMT",
		"Sun, 00 Nov 1994 08:49:37 GMT",
		"Sun, 06 Now 1994 08:49:37 GMT",
		"Wed, 29 Feb 2023 00:00:00 GMT",
		"Mon, 29 Feb 2100 00:00:00 GMT",
		"Wed, 31 Dec 1969 23:59:59 GMT",
		"Sunday, 06-Nov-1994 08:49:37 GMT",
		"Sun Nov 6 08:49:37 1994",
		"784111777",
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(texts); i++)
		assert_refused(date_http_parse, texts[i]);
}

static void test_mail_refuses(void **state)
{
	static const char *const texts[] = {
		"",
		"Bad Date",
		"Sun, 06 Nov 1994 08:49:37",
		"Sun, 06 Nov 1994 08:49:37 ",
		"Sun, 06 Nov 1994 08:49:37 EST",
		"Sun, 06 Nov 1994 08:49:37 +2400",
		"Sun, 06 Nov 1994 08:49:37 0000",
		"Sunday, 06 Nov 1994 08:49:37 GMT",
		"Now, 06 Nov 1994 08:49:37 GMT",
		"Sun, 31 Nov 1994 08:49:37 GMT",
		"Tue, 07 Jul 1950 21:53:04 GMT",
		"Thu, 01 Jan 1970 00:00:00 +0001",
		"Fri, 31 Dec 9999 23:59:59 -0001",
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(texts); i++)
		assert_refused(date_mail_parse, texts[i]);
}

static void test_iso_refuses(void **state)
{
	static const char *const texts[] = {
		"",
		"1994-11-06",
		"1994-11-06T08:49:37",
		"1994-11-06 08:49:37Z",
		"1994-11-06t08:49:37z",
		"1994-11-06T08:49:37.Z",
		"1994-11-06T08:49:37.1234567890Z",
		"1994-11-06T08:49:37.12xZ",
		"1994-11-06T08:49:37+2:00",
		"1994-11-06T08:49:37+24:00",
		"1994-11-06T08:49:37+00:60",
		"1994-11-06T08:49:37ZZ",
		"1994-13-06T08:49:37Z",
		"1994-00-06T08:49:37Z",
		"1994-02-29T08:49:37Z",
		"1970-01-01T00:00:00+00:01",
		"9999-12-31T23:59:59-00:01",
		"19941106T084937Z",
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(texts); i++)
		assert_refused(date_iso_parse, texts[i]);
}

static void test_basic_and_day_refuse(void **state)
{
	(void)state;
	assert_refused(date_basic_parse, "");
	assert_refused(date_basic_parse, "19941106T084937");
	assert_refused(date_basic_parse, "1994-11-06T08:49:37Z");
	assert_refused(date_basic_parse, "19941106T084937Z0");
	assert_refused(date_basic_parse, "19941131T084937Z");
	assert_refused(date_day_parse, "");
	assert_refused(date_day_parse, "1994110");
	assert_refused(date_day_parse, "199411060");
	assert_refused(date_day_parse, "19941306");
	assert_refused(date_day_parse, "1994110x");
	/* Each place has characters of its own: none other, not even those beside the digits. */
	for (size_t i = 0; i < DATE_BASIC_LEN; i++) {
		static const char wrong[] = "/:xTZ -\xff";

		for (size_t w = 0; w < sizeof(wrong); w++) {
			char text[] = "19941106T084937Z";

			if (text[i] == wrong[w])
				continue;
			text[i] = wrong[w];
			assert_int_equal(
				date_basic_parse(slice_of(text, DATE_BASIC_LEN), &(int64_t){0}),
				-EINVAL);
			if (i < DATE_DAY_LEN)
				assert_int_equal(
					date_day_parse(slice_of(text, DATE_DAY_LEN), &(int64_t){0}),
					-EINVAL);
		}
	}
}

/* Compared with the C library's calendar, and converted back. */
static void test_random_moments_go_round(void **state)
{
	struct prng prng;

	(void)state;
	prng_seed(&prng, 12);
	for (int round = 0; round < 20000; round++) {
		int64_t ms = (int64_t)prng_below(&prng, DATE_MS_MAX + 1ull), back;
		time_t seconds = ms / 1000;
		char text[32], expected[32];
		struct tm tm;

		assert_non_null(gmtime_r(&seconds, &tm));
		strftime(expected, sizeof(expected), "%a, %d %b %Y %H:%M:%S GMT", &tm);
		date_http_format(ms, text);
		assert_memory_equal(text, expected, DATE_HTTP_LEN);
		assert_int_equal(date_http_parse(slice_of(text, DATE_HTTP_LEN), &back), 0);
		assert_int_equal(back, ms / 1000 * 1000);
		date_iso_format(ms, text);
		assert_int_equal(date_iso_parse(slice_of(text, DATE_ISO_LEN), &back), 0);
		assert_int_equal(back, ms);
		date_basic_format(ms, text);
		assert_int_equal(date_basic_parse(slice_of(text, DATE_BASIC_LEN), &back), 0);
		assert_int_equal(back, ms / 1000 * 1000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_format_of_one_moment),
		cmocka_unit_test(test_every_form_is_read),
		cmocka_unit_test(test_http_refuses),
		cmocka_unit_test(test_mail_refuses),
		cmocka_unit_test(test_iso_refuses),
		cmocka_unit_test(test_basic_and_day_refuse),
		cmocka_unit_test(test_random_moments_go_round),
	};

	return cmocka_run_group_tests_name("date", tests, NULL, NULL);
}
