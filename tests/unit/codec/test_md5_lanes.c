/* Covers codec/md5_lanes_dp.c: side by side or alone, a hash is the same. */
#include "../unit.h"

#include "base/base.h"
#include "codec/codec.h"

#define PARTS_MAX  40
#define BYTES_MAX  3000
#define ROUNDS_MAX 4

static uint8_t data[PARTS_MAX][BYTES_MAX];

static int fill(void **state)
{
	struct prng prng;

	(void)state;
	prng_seed(&prng, 16);
	prng_fill(&prng, data, sizeof(data));
	return 0;
}

/* Any number of parts, any lengths, several calls on the same hashes. */
static void test_many_equal_each(void **state)
{
	struct prng prng;

	(void)state;
	prng_seed(&prng, 17);
	for (int trial = 0; trial < 400; trial++) {
		size_t count = prng_below(&prng, PARTS_MAX + 1),
		       rounds = 1 + prng_below(&prng, ROUNDS_MAX);
		struct md5 many[PARTS_MAX], each[PARTS_MAX];
		struct md5_part parts[PARTS_MAX];

		for (size_t i = 0; i < count; i++) {
			md5_init(&many[i]);
			md5_init(&each[i]);
		}
		for (size_t round = 0; round < rounds; round++) {
			for (size_t i = 0; i < count; i++) {
				size_t from = prng_below(&prng, 64);

				parts[i] = (struct md5_part){&many[i], data[i] + from,
					prng_below(&prng, BYTES_MAX - from)};
				md5_update(&each[i], parts[i].data, parts[i].len);
			}
			md5_update_many(parts, count);
		}
		for (size_t i = 0; i < count; i++) {
			uint8_t digest[MD5_BYTES], expected[MD5_BYTES];

			md5_final(&many[i], digest);
			md5_final(&each[i], expected);
			assert_memory_equal(digest, expected, MD5_BYTES);
		}
	}
}

/* Lengths at and beside the edges of a block, after 0 to 63 bytes before. */
static void test_edges_of_blocks(void **state)
{
	static const size_t lengths[] = {0, 1, 55, 56, 63, 64, 65, 127, 128, 129, 191, 192};

	(void)state;
	for (size_t before = 0; before < 64; before++) {
		struct md5_part parts[ARRAY_LEN(lengths)];
		struct md5 many[ARRAY_LEN(lengths)];

		for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
			md5_init(&many[i]);
			md5_update(&many[i], data[i], before);
			parts[i] = (struct md5_part){&many[i], data[i] + before, lengths[i]};
		}
		md5_update_many(parts, ARRAY_LEN(lengths));
		for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
			uint8_t digest[MD5_BYTES], expected[MD5_BYTES];

			md5_final(&many[i], digest);
			md5_of(data[i], before + lengths[i], expected);
			assert_memory_equal(digest, expected, MD5_BYTES);
		}
	}
}

/* The count of bits goes past 32 bits: 16 hashes of 512 MiB and 64 bytes, by 1 MiB at a time. */
static void test_long_messages(void **state)
{
	enum { MIB_COUNT = 512 };
	static uint8_t mib[1 << 20];
	struct md5 many[MD5_LANES], one;
	struct md5_part parts[MD5_LANES];
	uint8_t digest[MD5_BYTES], expected[MD5_BYTES];

	(void)state;
	md5_init(&one);
	for (unsigned i = 0; i < MD5_LANES; i++) {
		md5_init(&many[i]);
		parts[i] = (struct md5_part){&many[i], mib, sizeof(mib)};
	}
	for (int i = 0; i < MIB_COUNT; i++) {
		md5_update_many(parts, MD5_LANES);
		md5_update(&one, mib, sizeof(mib));
	}
	md5_update(&one, mib, 64);
	md5_final(&one, expected);
	for (unsigned i = 0; i < MD5_LANES; i++)
		parts[i].len = 64;
	md5_update_many(parts, MD5_LANES);
	for (unsigned i = 0; i < MD5_LANES; i++) {
		md5_final(&many[i], digest);
		assert_memory_equal(digest, expected, MD5_BYTES);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_equal_each),
		cmocka_unit_test(test_edges_of_blocks),
		cmocka_unit_test(test_long_messages),
	};

	return cmocka_run_group_tests_name("md5_lanes", tests, fill, NULL);
}
