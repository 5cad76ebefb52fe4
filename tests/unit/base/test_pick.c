#include "../unit.h"

#include "base/base.h"

/* A word that a device writes: more each time it is read. */
static uint32_t reads;

static uint32_t word_read(uint32_t first, uint32_t step)
{
	return first + step * reads++;
}

static void test_arguments_are_read_once(void **state)
{
	(void)state;
	reads = 0;
	assert_int_equal(MIN(word_read(0, 300), 64u), 0);
	assert_int_equal(reads, 1);
	reads = 0;
	assert_int_equal(MIN(64u, word_read(10, 300)), 10);
	assert_int_equal(reads, 1);
	reads = 0;
	assert_int_equal(MAX(word_read(100, -100u), 64u), 100);
	assert_int_equal(reads, 1);
	reads = 0;
	assert_int_equal(MAX(MIN(word_read(50, 300), 64u), 20u), 50);
	assert_int_equal(reads, 1);
}

static void test_types(void **state)
{
	const uint64_t large = 1ull << 40;
	const int8_t low = -3;
	const char text[] = "abc";

	(void)state;
	assert_true(MIN(large, 7u) == 7);
	assert_true(MAX(7u, large) == large);
	assert_int_equal(MIN(low, 2), -3);
	assert_ptr_equal(MAX(text, text + 2), text + 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_arguments_are_read_once),
		cmocka_unit_test(test_types),
	};

	return cmocka_run_group_tests_name("pick", tests, NULL, NULL);
}
