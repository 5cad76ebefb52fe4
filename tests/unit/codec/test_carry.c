/* tests/unit/codec/test_carry.c: covers codec/carry.c: there and back, and records that are not of
 * the form. */
#include "../unit.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "codec/carry.h"

static struct carry about(void)
{
	return (struct carry){.offset = 5,
		.bytes = 7,
		.object_bytes = 12,
		.mtime_ns = 1780000000000000001ull,
		.checksum_type = 3,
		.flags = 0x42,
		.encrypted = true,
		.charged = true,
		.etag = SLICE("0123456789abcdef"),
		.headers = SLICE("a\0b\n c\0")};
}

/* The record of a written one. */
static struct slice record_of(const struct buf *out)
{
	uint32_t bytes;

	assert_int_equal(carry_front_read(out->data, &bytes), 0);
	assert_int_equal(bytes, out->len - CARRY_FRONT_BYTES);
	return slice_of(out->data + CARRY_FRONT_BYTES, bytes);
}

static void test_there_and_back(void **state)
{
	struct carry carry = about(), got;
	struct buf out;

	(void)state;
	buf_init(&out, 4096);
	assert_int_equal(carry_write(&carry, &out), 0);
	assert_int_equal(carry_read(record_of(&out), &got), 0);
	assert_true(got.offset == 5 && got.bytes == 7 && got.object_bytes == 12);
	assert_true(got.mtime_ns == carry.mtime_ns && got.checksum_type == 3 && got.flags == 0x42);
	assert_true(got.encrypted && got.charged && slice_eq(got.etag, carry.etag) &&
		    !got.version_id.len);
	assert_true(slice_eq(got.headers, carry.headers));
	buf_free(&out);
}

static void test_cut(void **state)
{
	struct carry carry = about(), got;
	struct slice record;
	struct buf out;

	(void)state;
	buf_init(&out, 4096);
	assert_int_equal(carry_write(&carry, &out), 0);
	record = record_of(&out);
	for (size_t len = 0; len < record.len - carry.headers.len; len++)
		assert_int_equal(carry_read(slice_to(record, len), &got), -EINVAL);
	assert_int_equal(carry_read(slice_to(record, record.len - 1), &got), -EINVAL);
	buf_free(&out);
}

static void test_wrong(void **state)
{
	static const char *const records[] = {"", "\n", "1 2 3\n", "0 13 12 1 0 0 0 0 a b\n",
		"13 0 12 1 0 0 0 0 a b\n", "0 1 12 1 256 0 0 0 a b\n", "0 1 12 1 0 0 2 0 a b\n",
		"0 1 12 1 0 0 0 2 a b\n", "0 1 12 1 0 0 0 0  b\n", "0 1 12 1 0 0 0 0 a b c\n",
		"0 1 12 1 0 0 0 0 a b\nheader",
		"0 1 12 1 0 0 0 0 a 0123456789012345678901234567890123456789\n",
		"-1 1 12 1 0 0 0 0 a b\n"};
	static const char *const fronts[] = {"carry1 000000000\n", "carry1 000163841\n",
		"carry2 000000001\n", "carry1 00000000x\n", "carry1 0000000011"};
	struct carry carry = about();
	struct buf out;
	uint32_t bytes;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(records); i++)
		assert_int_equal(carry_read(slice_str(records[i]), &carry), -EINVAL);
	for (size_t i = 0; i < ARRAY_LEN(fronts); i++)
		assert_int_equal(carry_front_read(fronts[i], &bytes), -EINVAL);
	carry = about();
	carry.headers.len = CARRY_RECORD_BYTES;
	buf_init(&out, 4096);
	assert_int_equal(carry_write(&carry, &out), -EMSGSIZE);
	buf_free(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_there_and_back),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_wrong),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
