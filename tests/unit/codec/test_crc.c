/* Covers codec/crc.c and codec/crc64_dp.c. */
#include "../unit.h"

#include "base/base.h"
#include "codec/codec.h"

#define BYTES_MAX 5000

static uint8_t data[BYTES_MAX + 64];

/* The definition, bit by bit: the reference for the fast functions. */
static uint64_t by_bits(uint64_t polynomial, uint64_t all_ones, const uint8_t *bytes, size_t len)
{
	uint64_t crc = all_ones;

	for (size_t i = 0; i < len; i++) {
		crc ^= bytes[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc & 1 ? crc >> 1 ^ polynomial : crc >> 1;
	}
	return crc ^ all_ones;
}

static uint64_t reversed(uint64_t value, int width)
{
	uint64_t out = 0;

	for (int i = 0; i < width; i++)
		out |= (value >> i & 1) << (width - 1 - i);
	return out;
}

static int fill(void **state)
{
	struct prng prng;

	(void)state;
	prng_seed(&prng, 1);
	prng_fill(&prng, data, sizeof(data));
	return 0;
}

static void test_check_values(void **state)
{
	(void)state;
	assert_int_equal(crc32_update(0, "123456789", 9), 0xcbf43926);
	assert_int_equal(crc32c_update(0, "123456789", 9), 0xe3069283);
	assert_true(crc64nvme_update(0, "123456789", 9) == 0xae8b14860a799888);
	assert_int_equal(crc32_update(0, NULL, 0), 0);
	assert_int_equal(crc32c_update(0, NULL, 0), 0);
	assert_true(crc64nvme_update(0, NULL, 0) == 0);
	assert_int_equal(
		crc32_update(0, "The quick brown fox jumps over the lazy dog", 43), 0x414fa339);
}

/* RFC 3720, B.4. */
static void test_crc32c_vectors(void **state)
{
	uint8_t bytes[32] = {0};

	(void)state;
	assert_int_equal(crc32c_update(0, bytes, 32), 0x8a9136aa);
	memset(bytes, 0xff, 32);
	assert_int_equal(crc32c_update(0, bytes, 32), 0x62a8ab43);
	for (int i = 0; i < 32; i++)
		bytes[i] = (uint8_t)i;
	assert_int_equal(crc32c_update(0, bytes, 32), 0x46dd794e);
	for (int i = 0; i < 32; i++)
		bytes[i] = (uint8_t)(31 - i);
	assert_int_equal(crc32c_update(0, bytes, 32), 0x113fdb5c);
}

/* NVM Command Set Specification, 64b CRC test cases. */
static void test_crc64nvme_vectors(void **state)
{
	static uint8_t bytes[4096];

	(void)state;
	assert_true(crc64nvme_update(0, bytes, sizeof(bytes)) == 0x6482d367eb22b64e);
	memset(bytes, 0xff, sizeof(bytes));
	assert_true(crc64nvme_update(0, bytes, sizeof(bytes)) == 0xc0ddba7302eca3ac);
	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)i;
	assert_true(crc64nvme_update(0, bytes, sizeof(bytes)) == 0x3e729f5f6750449c);
	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(0xff - i);
	assert_true(crc64nvme_update(0, bytes, sizeof(bytes)) == 0x9a2df64b8e9e517e);
}

/* Every length up to one that covers all loops and their ends, at every alignment. */
static void test_every_length_equals_the_definition(void **state)
{
	uint64_t polynomial_32 = reversed(0x04c11db7, 32),
		 polynomial_32c = reversed(0x1edc6f41, 32);
	uint64_t polynomial_64 = reversed(0xad93d23594c93659, 64);

	(void)state;
	for (size_t len = 0; len < 1200; len++) {
		const uint8_t *bytes = data + len % 64;
		uint64_t expected = by_bits(polynomial_64, UINT64_MAX, bytes, len);

		assert_true(crc32_update(0, bytes, len) ==
			    by_bits(polynomial_32, UINT32_MAX, bytes, len));
		assert_true(crc32c_update(0, bytes, len) ==
			    by_bits(polynomial_32c, UINT32_MAX, bytes, len));
		assert_true(crc64nvme_update(0, bytes, len) == expected);
		for (enum crc64_way way = CRC64_TABLES; way <= crc64nvme_way(); way++)
			assert_true(crc64nvme_update_by(way, 0, bytes, len) == expected);
	}
}

static void test_updates_chain(void **state)
{
	struct prng prng;

	(void)state;
	prng_seed(&prng, 2);
	for (int round = 0; round < 500; round++) {
		size_t len = prng_below(&prng, BYTES_MAX), cut = prng_below(&prng, len + 1);
		uint64_t whole = crc64nvme_update(0, data, len);

		assert_int_equal(crc32_update(crc32_update(0, data, cut), data + cut, len - cut),
			crc32_update(0, data, len));
		assert_int_equal(crc32c_update(crc32c_update(0, data, cut), data + cut, len - cut),
			crc32c_update(0, data, len));
		for (enum crc64_way way = CRC64_TABLES; way <= crc64nvme_way(); way++) {
			uint64_t half = crc64nvme_update_by(way, 0, data, cut);

			assert_true(crc64nvme_update_by(way, half, data + cut, len - cut) == whole);
		}
	}
}

static void test_joins_equal_the_whole(void **state)
{
	struct prng prng;

	(void)state;
	prng_seed(&prng, 3);
	for (int round = 0; round < 500; round++) {
		size_t len = prng_below(&prng, BYTES_MAX), cut = prng_below(&prng, len + 1);
		const uint8_t *rest = data + cut;
		size_t rest_len = len - cut;

		assert_int_equal(crc32_join(crc32_update(0, data, cut),
					 crc32_update(0, rest, rest_len), rest_len),
			crc32_update(0, data, len));
		assert_int_equal(crc32c_join(crc32c_update(0, data, cut),
					 crc32c_update(0, rest, rest_len), rest_len),
			crc32c_update(0, data, len));
		assert_true(crc64nvme_join(crc64nvme_update(0, data, cut),
				    crc64nvme_update(0, rest, rest_len),
				    rest_len) == crc64nvme_update(0, data, len));
	}
}

/* The grouping of the parts does not change a join, and lengths may exceed memory. */
static void test_joins_are_associative(void **state)
{
	struct prng prng;

	(void)state;
	prng_seed(&prng, 4);
	for (int round = 0; round < 100; round++) {
		uint64_t a = prng_next(&prng), b = prng_next(&prng), c = prng_next(&prng);
		uint64_t b_len = prng_next(&prng) >> 1, c_len = prng_next(&prng) >> 1;

		assert_true(crc64nvme_join(crc64nvme_join(a, b, b_len), c, c_len) ==
			    crc64nvme_join(a, crc64nvme_join(b, c, c_len), b_len + c_len));
		assert_int_equal(
			crc32_join(crc32_join((uint32_t)a, (uint32_t)b, b_len), (uint32_t)c, c_len),
			crc32_join((uint32_t)a, crc32_join((uint32_t)b, (uint32_t)c, c_len),
				b_len + c_len));
		assert_int_equal(crc32c_join(crc32c_join((uint32_t)a, (uint32_t)b, b_len),
					 (uint32_t)c, c_len),
			crc32c_join((uint32_t)a, crc32c_join((uint32_t)b, (uint32_t)c, c_len),
				b_len + c_len));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_check_values),
		cmocka_unit_test(test_crc32c_vectors),
		cmocka_unit_test(test_crc64nvme_vectors),
		cmocka_unit_test(test_every_length_equals_the_definition),
		cmocka_unit_test(test_updates_chain),
		cmocka_unit_test(test_joins_equal_the_whole),
		cmocka_unit_test(test_joins_are_associative),
	};

	return cmocka_run_group_tests_name("crc", tests, fill, NULL);
}
