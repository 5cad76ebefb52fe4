/* The pool of registered memory that buffers come from. */
#include "../unit.h"

#include "base/base.h"
#include "rig.h"

static int setup(void **state)
{
	*state = rig_open(NULL);
	return 0;
}

static int teardown(void **state)
{
	rig_close(*state);
	return 0;
}

/* However often a batch of buffers comes and goes, no more memory is touched, whatever is held
 * meanwhile. */
static void test_pool_memory_is_used_again(void **state)
{
	struct neb_client *client = rig_client(*state, NEB_STRICT);
	void *held[2], *batch[32], *first = NULL, *last = NULL;

	for (uint32_t round = 0; round < 8; round++) {
		if (round < 2)
			assert_int_equal(neb_buffer_alloc(client, 8 * KIB, &held[round]), 0);
		for (uint32_t i = 0; i < ARRAY_LEN(batch); i++) {
			assert_int_equal(neb_buffer_alloc(client, 100 * KIB, &batch[i]), 0);
			if (round < 2) {
				first = MIN(first ? first : batch[i], batch[i]);
				last = MAX(last, batch[i]);
			}
			assert_in_range(batch[i], first, last);
		}
		for (uint32_t i = 0; i < ARRAY_LEN(batch); i++)
			neb_buffer_free(client, batch[i]);
	}
	for (uint32_t i = 0; i < ARRAY_LEN(held); i++)
		neb_buffer_free(client, held[i]);
	neb_client_close(client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_pool_memory_is_used_again, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
