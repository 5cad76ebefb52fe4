/* Covers s3/core/text.c. */
#include "../unit.h"

#include <errno.h>

#include "s3/core/text.h"
#include "s3/s3.h"

static void check_query(const char *query, const char *wanted)
{
	struct s3_param items[S3_PARAMS_MAX];
	struct s3_params params;
	char memory[256];
	struct buf text;

	buf_init(&text, 1024);
	assert_int_equal(s3_query_parse(slice_str(query), items, memory, &params), 0);
	assert_true(params.count <= s3_query_count(slice_str(query)));
	for (uint32_t i = 0; i < params.count; i++)
		buf_printf(&text, "[%.*s%s%.*s]", SLICE_FMT(items[i].name),
			items[i].has_value ? "=" : "", SLICE_FMT(items[i].value));
	buf_put(&text, "", 1);
	assert_string_equal(text.data, wanted);
	buf_free(&text);
}

static void test_query(void **state)
{
	struct s3_param items[2];
	struct s3_params params;
	char memory[16];

	(void)state;
	check_query("", "");
	check_query("acl", "[acl]");
	check_query("acl=", "[acl=]");
	check_query("a=1&b=2", "[a=1][b=2]");
	check_query("&&a=1&&", "[a=1]");
	check_query("a+b=c+d%2Be", "[a b=c d+e]");
	check_query("a=b=c", "[a=b=c]");
	check_query("%61=%62", "[a=b]");
	assert_int_equal(s3_query_parse(SLICE("a=%4"), items, memory, &params), -EINVAL);
	assert_int_equal(s3_query_parse(SLICE("a=%zz"), items, memory, &params), -EINVAL);
	assert_int_equal(s3_query_count(SLICE("a&b&c")), 3);
	s3_query_parse(SLICE("a=1&a=2"), items, memory, &params);
	assert_true(slice_eq(s3_query_find(&params, SLICE("a"))->value, SLICE("1")));
	assert_null(s3_query_find(&params, SLICE("A")));
}

static void check_part(const char *text, uint64_t bytes, uint64_t offset, uint64_t len)
{
	uint64_t got_offset = 0, got_len = 0;

	assert_int_equal(
		s3_range_parse(slice_str(text), bytes, &got_offset, &got_len), S3_RANGE_PART);
	assert_int_equal(got_offset, offset);
	assert_int_equal(got_len, len);
}

static void test_ranges(void **state)
{
	static const char *const whole[] = {"", "bytes", "bytes=", "bytes=-", "bytes=a-b",
		"items=0-1", "bytes=5-4", "bytes=0-1,3-4", "bytes=1", "bytes=-1-2", "0-1",
		"bytes=0x1-2", "bytes=99999999999999999999-", "bytes= -1", "bytes=0 -1",
		"bytes=0- 1"};
	static const char *const beyond[] = {"bytes=10-", "bytes=10-11", "bytes=-0", "bytes=11-99"};
	uint64_t offset = 0, len = 0;

	(void)state;
	check_part("bytes=0-0", 10, 0, 1);
	check_part("bytes=0-9", 10, 0, 10);
	check_part("bytes=0-99", 10, 0, 10);
	check_part("bytes=9-", 10, 9, 1);
	check_part("bytes=3-5", 10, 3, 3);
	check_part("bytes=-3", 10, 7, 3);
	check_part("bytes=-30", 10, 0, 10);
	for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++)
		assert_int_equal(
			s3_range_parse(slice_str(whole[i]), 10, &offset, &len), S3_RANGE_WHOLE);
	for (size_t i = 0; i < sizeof(beyond) / sizeof(beyond[0]); i++)
		assert_int_equal(s3_range_parse(slice_str(beyond[i]), 10, &offset, &len),
			S3_RANGE_UNSATISFIABLE);
	assert_int_equal(
		s3_range_parse(SLICE("bytes=0-"), 0, &offset, &len), S3_RANGE_UNSATISFIABLE);
	assert_int_equal(
		s3_range_parse(SLICE("bytes=-5"), 0, &offset, &len), S3_RANGE_UNSATISFIABLE);
}

static void test_bucket_names(void **state)
{
	static const char *const good[] = {"abc", "a-b", "a.b", "my.bucket-1", "123", "1.2.3",
		"192.168.5.1000", "a--b", "1.2.3-4", "xn-abc", "sthree", "amzn", "abc-s3",
		"abcs3alias", "a23456789012345678901234567890123456789012345678901234567890123"};
	static const char *const bad[] = {"", "ab", "Abc", "a_b", "-ab", "ab-", ".ab", "ab.",
		"a..b", "a.-b", "a-.b", "192.168.5.4", "xn--abc", "sthree-abc", "amzn-s3-demo-x",
		"abc-s3alias", "abc--ol-s3", "abc--x-s3", "abc--table-s3", "abc.mrap", "a b", "a/b",
		"\xc3\xa9z", "a234567890123456789012345678901234567890123456789012345678901234"};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_true(s3_bucket_name_valid(slice_str(good[i])));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(s3_bucket_name_valid(slice_str(bad[i])));
}

static void test_directory_bucket_names(void **state)
{
	static const struct {
		const char *name, *zone;
	} names[] = {
		{"base--use1-az4--x-s3", "use1-az4"},
		{"a--b--x-s3", "b"},
		{"my-base--x--az--x-s3", "az"},
		{"1--2--x-s3", "2"},
		{"a23456789012345678901234567890123456789012345678901234--z--x-s3", "z"},
		{"a234567890123456789012345678901234567890123456789012345--z--x-s3", ""},
		{"base--x-s3", ""},
		{"--az--x-s3", ""},
		{"base----x-s3", ""},
		{"base---az--x-s3", ""},
		{"b.c--az--x-s3", ""},
		{"Base--az--x-s3", ""},
		{"-b--az--x-s3", ""},
		{"xn--az--x-s3", ""},
		{"--x-s3", ""},
		{"base--az", ""},
		{"", ""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct slice zone = s3_express_zone(slice_str(names[i].name));

		assert_true(slice_eq(zone, slice_str(names[i].zone)));
		assert_false(zone.len && s3_bucket_name_valid(slice_str(names[i].name)));
	}
}

static void test_keys(void **state)
{
	char key[1025];

	(void)state;
	memset(key, 'k', sizeof(key));
	assert_true(s3_key_valid(slice_of(key, 1)));
	assert_true(s3_key_valid(slice_of(key, 1024)));
	assert_false(s3_key_valid(slice_of(key, 1025)));
	assert_false(s3_key_valid(SLICE("")));
	assert_true(s3_key_valid(SLICE("\xf0\x9f\x8c\x8c/\x01\n..")));
	assert_false(s3_key_valid(SLICE("\xc3")));
	assert_false(s3_key_valid(SLICE("a\xff")));
	assert_false(s3_key_valid(SLICE("a\0b")));
}

static void test_peer_address(void **state)
{
	static const struct {
		const char *peer, *address;
	} cases[] = {
		{NULL, ""},
		{"", ""},
		{"192.0.2.1:40001", "192.0.2.1"},
		{"192.0.2.1", "192.0.2.1"},
		{"[2001:db8::1]:1234", "2001:db8::1"},
		{"[::1]", "::1"},
		{"2001:db8::1", "2001:db8::1"},
		{"[", ""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_true(slice_eq(s3_peer_address(cases[i].peer), slice_str(cases[i].address)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_query),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_bucket_names),
		cmocka_unit_test(test_directory_bucket_names),
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_peer_address),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
