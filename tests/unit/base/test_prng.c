#include "../unit.h"

#include <string.h>

#include "base/base.h"

static void test_a_seed_replays(void **state)
{
	struct prng a, b;
	uint8_t x[13], y[13];

	(void)state;
	prng_seed(&a, 42);
	prng_seed(&b, 42);
	prng_fill(&a, x, sizeof(x));
	prng_fill(&b, y, sizeof(y));
	assert_memory_equal(x, y, sizeof(x));
	prng_seed(&b, 43);
	assert_true(prng_next(&a) != prng_next(&b));
}

static void test_below_stays_below(void **state)
{
	struct prng p;
	unsigned seen[7] = {0};

	(void)state;
	prng_seed(&p, 1);
	for (int i = 0; i < 7000; i++)
		seen[prng_below(&p, 7)]++;
	for (int i = 0; i < 7; i++)
		assert_in_range(seen[i], 800, 1200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_seed_replays),
		cmocka_unit_test(test_below_stays_below),
	};

	return cmocka_run_group_tests_name("prng", tests, NULL, NULL);
}
