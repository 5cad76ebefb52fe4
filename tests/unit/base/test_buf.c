#include "../unit.h"

#include "base/base.h"

static void test_grows_and_prints(void **state)
{
	struct buf buf;

	(void)state;
	buf_init(&buf, 4096);
	for (int i = 0; i < 100; i++)
		buf_printf(&buf, "%d,", i);
	assert_false(buf.failed);
	assert_true(slice_ends(buf_slice(&buf), SLICE("98,99,")));
	buf_reset(&buf);
	buf_put_str(&buf, "x");
	assert_true(slice_eq(buf_slice(&buf), SLICE("x")));
	buf_free(&buf);
}

static void test_stops_at_its_bound(void **state)
{
	struct buf buf;

	(void)state;
	buf_init(&buf, 8);
	buf_put_str(&buf, "12345678");
	assert_false(buf.failed);
	buf_put_str(&buf, "9");
	assert_true(buf.failed);
	assert_int_equal(buf.len, 8);
	buf_put_byte(&buf, '9');
	assert_null(buf_room(&buf, 0));
	assert_int_equal(buf.len, 8);
	buf_free(&buf);
}

static void test_bytes_and_room(void **state)
{
	struct buf buf;
	char *room;

	(void)state;
	buf_init(&buf, 300);
	room = buf_room(&buf, 2);
	memcpy(room, "ab", 2);
	buf.len += 2;
	for (int i = 2; i < 300; i++) {
		assert_false(buf.failed);
		buf_put_byte(&buf, 'c');
	}
	assert_true(slice_starts(buf_slice(&buf), SLICE("abcc")));
	assert_int_equal(buf.len, 300);
	assert_non_null(buf_room(&buf, 0));
	buf_put_byte(&buf, 'd');
	assert_true(buf.failed);
	assert_int_equal(buf.len, 300);
	buf_free(&buf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_grows_and_prints),
		cmocka_unit_test(test_stops_at_its_bound),
		cmocka_unit_test(test_bytes_and_room),
	};

	return cmocka_run_group_tests_name("buf", tests, NULL, NULL);
}
