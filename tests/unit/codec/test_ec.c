/* Covers codec/ec.c. */
#include "../unit.h"

#include <errno.h>

#include "base/base.h"
#include "codec/codec.h"

#define SHARD_BYTES 333 /* not a multiple of any vector's width */

static uint8_t stripe[EC_SHARDS_MAX][SHARD_BYTES];
static uint8_t damaged[EC_SHARDS_MAX][SHARD_BYTES];

static void make_stripe(const struct ec *ec, struct prng *prng)
{
	const void *data[EC_DATA_MAX];
	void *parity[EC_PARITY_MAX];

	for (uint32_t i = 0; i < ec->data_count; i++) {
		prng_fill(prng, stripe[i], SHARD_BYTES);
		data[i] = stripe[i];
	}
	for (uint32_t i = 0; i < ec->parity_count; i++)
		parity[i] = stripe[ec->data_count + i];
	assert_int_equal(ec_encode(ec, SHARD_BYTES, data, parity), 0);
}

/* Loses the shards in lost, computes them from the others, and compares. The lost shards are filled
 * with garbage first, and only the shards in have are passed, so that no other data can be used. */
static void lose_and_mend(const struct ec *ec, uint32_t have, uint32_t lost)
{
	void *shards[EC_SHARDS_MAX] = {NULL};

	for (uint32_t i = 0; i < ec->data_count + ec->parity_count; i++) {
		if (!((have | lost) >> i & 1))
			continue;
		shards[i] = damaged[i];
		if (have >> i & 1)
			memcpy(damaged[i], stripe[i], SHARD_BYTES);
		else
			memset(damaged[i], 0xa5, SHARD_BYTES);
	}
	assert_int_equal(ec_reconstruct(ec, SHARD_BYTES, shards, have, lost), 0);
	for (uint32_t i = 0; i < ec->data_count + ec->parity_count; i++) {
		if ((have | lost) >> i & 1)
			assert_memory_equal(damaged[i], stripe[i], SHARD_BYTES);
	}
}

/* All 1,001 ways to lose four of fourteen; 1 to 3 losses are parts of these. */
static void test_10_4_mends_every_loss_of_four(void **state)
{
	uint32_t all = (1u << 14) - 1, tried = 0;
	struct prng prng;
	struct ec ec;

	(void)state;
	prng_seed(&prng, 7);
	assert_int_equal(ec_init(&ec, 10, 4), 0);
	make_stripe(&ec, &prng);
	for (uint32_t lost = 0; lost <= all; lost++) {
		if (__builtin_popcount(lost) != 4)
			continue;
		lose_and_mend(&ec, all & ~lost, lost);
		tried++;
	}
	assert_int_equal(tried, 1001);
}

/* Every shape, with random losses of every number, computing only some of the lost shards. */
static void test_every_shape(void **state)
{
	struct prng prng;
	struct ec ec;

	(void)state;
	prng_seed(&prng, 8);
	for (uint32_t data_count = 1; data_count <= EC_DATA_MAX; data_count++) {
		for (uint32_t parity_count = 1; parity_count <= EC_PARITY_MAX; parity_count++) {
			uint32_t count = data_count + parity_count, all = (1u << count) - 1;

			assert_int_equal(ec_init(&ec, data_count, parity_count), 0);
			make_stripe(&ec, &prng);
			for (int round = 0; round < 10; round++) {
				uint32_t lost = 0;

				for (uint32_t i = 0; i < parity_count; i++)
					lost |= 1u << prng_below(&prng, count);
				lose_and_mend(&ec, all & ~lost, lost);
				lose_and_mend(&ec, all & ~lost, lost & (uint32_t)prng_next(&prng));
			}
		}
	}
}

static void test_one_plus_one_is_a_mirror(void **state)
{
	struct prng prng;
	struct ec ec;

	(void)state;
	prng_seed(&prng, 9);
	assert_int_equal(ec_init(&ec, 1, 1), 0);
	make_stripe(&ec, &prng);
	assert_memory_equal(stripe[0], stripe[1], SHARD_BYTES);
}

static void test_a_plan_serves_many_stripes(void **state)
{
	void *shards[6];
	struct ec_plan plan;
	struct prng prng;
	struct ec ec;

	(void)state;
	prng_seed(&prng, 10);
	assert_int_equal(ec_init(&ec, 4, 2), 0);
	assert_int_equal(ec_plan_init(&plan, &ec, 0x3c, 0x03), 0);
	assert_int_equal(plan.source, 0x3c);
	for (int round = 0; round < 20; round++) {
		make_stripe(&ec, &prng);
		for (int i = 0; i < 6; i++) {
			memcpy(damaged[i], stripe[i], SHARD_BYTES);
			shards[i] = damaged[i];
		}
		memset(damaged[0], 0, SHARD_BYTES);
		memset(damaged[1], 0, SHARD_BYTES);
		assert_int_equal(ec_plan_run(&plan, SHARD_BYTES, shards), 0);
		assert_memory_equal(damaged[0], stripe[0], SHARD_BYTES);
		assert_memory_equal(damaged[1], stripe[1], SHARD_BYTES);
	}
}

/* Lengths below, at and around the vectors' widths. */
static void test_every_short_length(void **state)
{
	struct prng prng;
	struct ec ec;

	(void)state;
	prng_seed(&prng, 11);
	assert_int_equal(ec_init(&ec, 3, 2), 0);
	prng_fill(&prng, stripe, sizeof(stripe));
	for (size_t len = 1; len <= 200; len++) {
		const void *data[] = {stripe[0], stripe[1], stripe[2]};
		void *parity[] = {stripe[3], stripe[4]};
		void *shards[] = {damaged[0], damaged[1], stripe[2], stripe[3], stripe[4]};
		uint8_t guard = stripe[4][len];

		memset(damaged, 0xa5, sizeof(damaged));
		assert_int_equal(ec_encode(&ec, len, data, parity), 0);
		assert_int_equal(stripe[4][len], guard);
		assert_int_equal(ec_reconstruct(&ec, len, shards, 0x1c, 0x03), 0);
		assert_memory_equal(damaged[0], stripe[0], len);
		assert_memory_equal(damaged[1], stripe[1], len);
		assert_int_equal(damaged[0][len], 0xa5);
	}
}

static void test_refusals(void **state)
{
	void *shards[6] = {NULL};
	struct ec_plan plan;
	struct ec ec;

	(void)state;
	assert_int_equal(ec_init(&ec, 0, 2), -EINVAL);
	assert_int_equal(ec_init(&ec, EC_DATA_MAX + 1, 2), -EINVAL);
	assert_int_equal(ec_init(&ec, 4, 0), -EINVAL);
	assert_int_equal(ec_init(&ec, 4, EC_PARITY_MAX + 1), -EINVAL);
	assert_int_equal(ec_init(&ec, 4, 2), 0);
	assert_int_equal(ec_plan_init(&plan, &ec, 0x4f, 0x10), -EINVAL);
	assert_int_equal(ec_plan_init(&plan, &ec, 0x0f, 0x40), -EINVAL);
	assert_int_equal(ec_plan_init(&plan, &ec, 0x1f, 0x10), -EINVAL);
	assert_int_equal(ec_plan_init(&plan, &ec, 0x07, 0x10), -ENODATA);
	assert_int_equal(ec_plan_init(&plan, &ec, 0x0f, 0x10), 0);
	assert_int_equal(ec_plan_run(&plan, 0, shards), -EINVAL);
	assert_int_equal(ec_plan_run(&plan, EC_SHARD_BYTES_MAX + 1ull, shards), -EINVAL);
	assert_int_equal(ec_reconstruct(&ec, 1, shards, 0x07, 0x10), -ENODATA);
	assert_int_equal(ec_encode(&ec, 0, (const void *const *)shards, shards), -EINVAL);
	assert_int_equal(
		ec_encode(&ec, EC_SHARD_BYTES_MAX + 1ull, (const void *const *)shards, shards),
		-EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_10_4_mends_every_loss_of_four),
		cmocka_unit_test(test_every_shape),
		cmocka_unit_test(test_one_plus_one_is_a_mirror),
		cmocka_unit_test(test_a_plan_serves_many_stripes),
		cmocka_unit_test(test_every_short_length),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests_name("ec", tests, NULL, NULL);
}
