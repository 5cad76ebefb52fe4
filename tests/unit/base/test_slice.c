#include "../unit.h"

#include <errno.h>
#include <stdio.h>

#include "base/base.h"

static void test_split_and_trim(void **state)
{
	struct slice rest = SLICE("a, b ,c");

	(void)state;
	assert_true(slice_eq(slice_trim(slice_split(&rest, ',')), SLICE("a")));
	assert_true(slice_eq(slice_trim(slice_split(&rest, ',')), SLICE("b")));
	assert_true(slice_eq(slice_trim(slice_split(&rest, ',')), SLICE("c")));
	assert_null(rest.data);
	assert_int_equal(rest.len, 0);
	assert_int_equal(slice_trim(SLICE(" \t ")).len, 0);
}

static void test_order_is_that_of_keys(void **state)
{
	(void)state;
	assert_true(slice_cmp(SLICE("a"), SLICE("aa")) < 0);
	assert_true(slice_cmp(SLICE("b"), SLICE("aa")) > 0);
	assert_true(slice_cmp(SLICE("\xff"), SLICE("z")) > 0);
	assert_int_equal(slice_cmp(SLICE(""), SLICE_NONE), 0);
	assert_true(slice_eq_nocase(SLICE("ETag"), SLICE("etag")));
	assert_false(slice_eq(SLICE("ETag"), SLICE("etag")));
}

static void test_numbers(void **state)
{
	uint64_t value = 7;

	(void)state;
	assert_int_equal(slice_to_u64(SLICE("18446744073709551615"), &value), 0);
	assert_true(value == UINT64_MAX);
	assert_int_equal(slice_to_u64(SLICE("18446744073709551616"), &value), -ERANGE);
	assert_int_equal(slice_to_u64(SLICE(""), &value), -EINVAL);
	assert_int_equal(slice_to_u64(SLICE("-1"), &value), -EINVAL);
	assert_int_equal(slice_to_u64(SLICE("1 "), &value), -EINVAL);
	assert_true(value == UINT64_MAX);
	assert_int_equal(slice_to_bytes(SLICE("65536"), &value), 0);
	assert_int_equal(value, 65536);
	assert_int_equal(slice_to_bytes(SLICE("4 gib"), &value), 0);
	assert_int_equal(value, 4ull << 30);
	assert_int_equal(slice_to_bytes(SLICE("16777216TiB"), &value), -ERANGE);
	assert_int_equal(slice_to_bytes(SLICE("4GB"), &value), -EINVAL);
	assert_int_equal(slice_to_bytes(SLICE("KiB"), &value), -EINVAL);
	assert_int_equal(value, 4ull << 30);
}

static void test_find_and_copy(void **state)
{
	char small[4];

	(void)state;
	assert_int_equal(slice_find(SLICE("hello"), SLICE("llo")), 2);
	assert_int_equal(slice_find(SLICE("hello"), SLICE("lx")), -1);
	assert_int_equal(slice_find(SLICE("hello"), SLICE("")), 0);
	assert_int_equal(slice_copy_str(SLICE("abcd"), small, sizeof(small)), -ENAMETOOLONG);
	assert_int_equal(slice_copy_str(SLICE("abc"), small, sizeof(small)), 0);
	assert_string_equal(small, "abc");
	assert_true(
		slice_starts(SLICE("abc"), SLICE("ab")) && slice_ends(SLICE("abc"), SLICE("bc")));
	assert_false(slice_starts(SLICE("a"), SLICE("ab")));
}

/* Numbered names, prefixes of each other and of zeros: none has the hash of another, and the upper
 * bits spread them over a table. */
static void test_hashes_differ_and_spread(void **state)
{
	static const uint64_t seed[2] = {0x9e3779b97f4a7c15ull, 0xd1342543de82ef95ull};
	static const char zeros[40];
	enum { NAMES = 4096, PLACES = 256 };
	static uint64_t hashes[NAMES + ARRAY_LEN(zeros) + 1];
	uint32_t count = 0, held[PLACES] = {0};
	char name[32];

	(void)state;
	for (uint32_t i = 0; i < NAMES; i++) {
		snprintf(name, sizeof(name), "train/%u", i);
		hashes[count] = slice_hash(slice_str(name), i % 2, seed);
		held[hashes[count++] >> 56]++;
	}
	for (size_t len = 0; len <= sizeof(zeros); len++)
		hashes[count++] = slice_hash(slice_of(zeros, len), 0, seed);
	for (uint32_t i = 0; i < count; i++) {
		for (uint32_t k = 0; k < i; k++)
			assert_int_not_equal(hashes[i], hashes[k]);
	}
	for (uint32_t i = 0; i < PLACES; i++)
		assert_in_range(held[i], 1, 4 * NAMES / PLACES);
	assert_int_equal(slice_hash(SLICE("train/1"), 1, seed), hashes[1]);
}

static void test_digits(void **state)
{
	static const uint64_t values[] = {0, 9, 10, 1234567890, UINT64_MAX};
	char text[SLICE_U64_MAX];
	uint64_t back;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(values); i++) {
		assert_int_equal(slice_to_u64(slice_of_u64(values[i], text), &back), 0);
		assert_true(back == values[i]);
	}
	assert_true(slice_eq(slice_of_u64(0, text), SLICE("0")));
	assert_true(slice_eq(slice_of_u64(UINT64_MAX, text), SLICE("18446744073709551615")));
}

static void test_words(void **state)
{
	(void)state;
	assert_true(slice_is_word(SLICE_NONE, ""));
	assert_true(slice_is_word(SLICE("azAZ09"), ""));
	assert_true(slice_is_word(SLICE("a-b.c"), ".-"));
	assert_false(slice_is_word(SLICE("a-b"), "._"));
	assert_false(slice_is_word(slice_of("a\0b", 3), ".-"));
	assert_false(slice_is_word(slice_of("a\xe4", 2), ".-"));
	for (const char *c = "/:@[`{"; *c; c++)
		assert_false(slice_is_word(slice_of(c, 1), "._-"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hashes_differ_and_spread),
		cmocka_unit_test(test_digits),
		cmocka_unit_test(test_split_and_trim),
		cmocka_unit_test(test_order_is_that_of_keys),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_find_and_copy),
	};

	return cmocka_run_group_tests_name("slice", tests, NULL, NULL);
}
