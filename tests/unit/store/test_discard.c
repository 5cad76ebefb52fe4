/* tests/unit/store/test_discard.c: discards cover exactly the space that is free again. The volumes
 * overwrite deallocated blocks, so a discard of used blocks is detected. */
#include "memory_disk.h"
#include "rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_priv.h"

#define KEYS	40u
#define ROUNDS	400u
#define BYTES_S GIB

static const char BUCKET[] = "box";

struct world {
	uint64_t seeds[KEYS]; /* 0: no object */
	uint64_t bytes[KEYS];
	bool done;
};

static void key_name(char out[16], uint32_t key)
{
	snprintf(out, 16, "k%u", key);
}

static void change_one(struct rig *rig, struct world *world, struct prng *prng, uint64_t seed)
{
	uint32_t key = (uint32_t)prng_below(prng, KEYS);
	uint64_t bytes = 1 + prng_below(prng, prng_below(prng, 4) ? 120000 : 3 * MIB);
	char name[16];

	key_name(name, key);
	if (prng_below(prng, 3) == 0) {
		assert_int_equal(
			store_delete(rig->store, slice_str(BUCKET), slice_str(name), NULL, NULL),
			0);
		world->seeds[key] = 0;
		return;
	}
	assert_int_equal(object_put_seeded(rig, BUCKET, slice_str(name), bytes, seed, NULL), 0);
	world->seeds[key] = seed;
	world->bytes[key] = bytes;
}

static void expect_all(struct rig *rig, const struct world *world)
{
	for (uint32_t key = 0; key < KEYS; key++) {
		char name[16];

		key_name(name, key);
		assert_int_equal(object_verify_seeded(rig, BUCKET, slice_str(name),
					 world->bytes[key], world->seeds[key]),
			world->seeds[key] ? 0 : -ENOENT);
	}
}

static void change_all(struct rig *rig, void *arg)
{
	struct world *world = (struct world *)arg;
	struct prng prng;

	prng_seed(&prng, 21);
	for (uint32_t i = 1; i <= ROUNDS; i++)
		change_one(rig, world, &prng, i);
	world->done = true;
}

static void discard_always(struct rig *rig, void *arg)
{
	const struct world *world = (const struct world *)arg;

	while (!world->done) {
		assert_int_equal(discard_pass(rig->store, BYTES_S), 0);
		fiber_sleep_ns(NS_PER_MS);
	}
	assert_int_equal(index_apply_settle(rig->store), 0);
	assert_int_equal(discard_pass(rig->store, BYTES_S), 0);
}

struct part {
	rig_fn *fn;
	struct world *world;
};

static void part_run(struct rig *rig, void *arg)
{
	const struct part *part = (const struct part *)arg;

	part->fn(rig, part->world);
}

static void life(struct rig *rig, void *arg)
{
	struct world *world = (struct world *)arg;
	struct part parts[] = {{change_all, world}, {discard_always, world}};

	assert_int_equal(bucket_make(rig->store, BUCKET), 0);
	rig_fibers(rig, 2, part_run, parts, sizeof(parts[0]));
	assert_true(memory_disk(0)->discarded_bytes > 4 * MIB);
	expect_all(rig, world);
}

static void afterwards(struct rig *rig, void *arg)
{
	expect_all(rig, (const struct world *)arg);
}

static void lives_on(const char *volumes, uint32_t count)
{
	struct world *world = (struct world *)calloc(1, sizeof(*world));
	struct rig rig;

	rig_init(&rig, 1);
	rig.opts.volume = volumes;
	rig.opts.erasure_data = 2;
	rig.opts.erasure_parity = 1;
	rig.opts.cache_bytes_max = 0;
	memory_disks_open();
	rig_run(&rig, life, world);
	assert_int_equal(rig.open_result, 0);
	for (uint32_t i = 1; i < count; i++)
		assert_int_equal(memory_disk(i)->discarded_bytes, memory_disk(0)->discarded_bytes);
	rig_run(&rig, afterwards, world);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
	free(world);
}

static void test_used_blocks_are_not_discarded(void **state)
{
	(void)state;
	lives_on("memory://0", 1);
}

static void test_nor_of_several_volumes(void **state)
{
	(void)state;
	lives_on("memory://0,memory://1,memory://2", 3);
}

/* ---- Discards that fail or must not happen. ---- */

static void put_and_delete(struct rig *rig)
{
	assert_int_equal(object_put_seeded(rig, BUCKET, SLICE("k"), 2 * MIB, 1, NULL), 0);
	assert_int_equal(store_delete(rig->store, slice_str(BUCKET), SLICE("k"), NULL, NULL), 0);
	assert_int_equal(index_apply_settle(rig->store), 0);
}

static void failing(struct rig *rig, void *arg)
{
	struct memory_disk *disk = memory_disk(0);
	uint64_t free_blocks;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, BUCKET), 0);
	put_and_delete(rig);
	free_blocks = space_free_blocks(rig->store->space);
	disk->discard_result = -EIO;
	assert_int_equal(discard_pass(rig->store, BYTES_S), -EIO);
	assert_int_equal(space_free_blocks(rig->store->space), free_blocks);
	assert_true(disk_can_discard(rig->store->volume.disk));
	put_and_delete(rig);
	disk->discard_result = -EOPNOTSUPP;
	assert_int_equal(discard_pass(rig->store, BYTES_S), -EOPNOTSUPP);
	assert_false(disk_can_discard(rig->store->volume.disk));
	disk->discard_result = 0;
	/* A failed group may be on the medium anyway, so the space that it gave back is not
	 * discarded. */
	put_and_delete(rig);
	store_fence(rig->store, "a test", -EIO);
	assert_int_equal(discard_pass(rig->store, BYTES_S), 0);
	assert_int_equal(disk->discards, 0);
}

static void test_failures_end_it(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.volume = "memory://0";
	memory_disks_open();
	rig_run(&rig, failing, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

/* ---- In the background. ---- */

static void discard_fiber(void *arg)
{
	store_discard_run(((struct rig *)arg)->store, BYTES_S);
}

static void in_background(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(bucket_make(rig->store, BUCKET), 0);
	assert_int_equal(fiber_spawn(reactor_self(), "discard", discard_fiber, rig), 0);
	put_and_delete(rig);
	while (memory_disk(0)->discarded_bytes < 2 * MIB)
		fiber_sleep_ns(10 * NS_PER_MS);
	/* The store quiesces while the discarder waits for the next pass. */
}

static void test_it_looks_from_time_to_time(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.volume = "memory://0";
	memory_disks_open();
	rig_run(&rig, in_background, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_used_blocks_are_not_discarded),
		cmocka_unit_test(test_nor_of_several_volumes),
		cmocka_unit_test(test_failures_end_it),
		cmocka_unit_test(test_it_looks_from_time_to_time),
	};

	return cmocka_run_group_tests_name("discard", tests, NULL, NULL);
}
