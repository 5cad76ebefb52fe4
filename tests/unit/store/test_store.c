/* tests/unit/store/test_store.c: what a caller sees: round trips around every threshold, replacing,
 * deleting, restarting. */
#include "rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t SIZES[] = {0, 1, 100, 2047, 2048, 2049, 4095, 4096, 4097, 8192, 65535, 65536,
	65537, MIB - 1, MIB, MIB + 1, 3 * MIB + 12345, 5 * MIB};

static struct slice key_of(char buf[32], uint64_t i)
{
	snprintf(buf, 32, "key/%06llu", (unsigned long long)i);
	return slice_str(buf);
}

static void sizes_put(struct rig *rig, void *arg)
{
	char buf[32];

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t i = 0; i < ARRAY_LEN(SIZES); i++)
		assert_int_equal(object_put_seeded(rig, "b", key_of(buf, i), SIZES[i], i, NULL), 0);
}

static void sizes_verify(struct rig *rig, void *arg)
{
	char buf[32];

	(void)arg;
	for (uint32_t i = 0; i < ARRAY_LEN(SIZES); i++)
		assert_int_equal(object_verify_seeded(rig, "b", key_of(buf, i), SIZES[i], i), 0);
}

static void sizes_both(struct rig *rig, void *arg)
{
	sizes_put(rig, arg);
	sizes_verify(rig, arg);
}

static void test_every_size_survives_a_restart(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig_run(&rig, sizes_both, NULL);
	rig_run(&rig, sizes_verify, NULL);
	rig_dir_remove(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_size_survives_a_restart),
	};

	return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
