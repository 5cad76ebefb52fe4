/* tests/unit/store/test_unseen.c: a volume that a start does not see has a superblock that never
 * counted. When it is back, that superblock does not win over those that counted. */
#include "set_rig.h"

#include <errno.h>

#include "store/commit/index_apply.h"
#include "store/store_priv.h"

static void some_put(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(set_key_put(rig, 0), 0);
}

/* The power fails when one volume has the next superblock, and the others do not. */
static void super_torn(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(set_key_put(rig, 1), 0);
	assert_int_equal(index_apply_settle(rig->store), 0);
	memory_disk(1)->super_writes = memory_disk(2)->super_writes = 1;
	assert_int_equal(index_apply_checkpoint_now(rig->store), -EHOSTDOWN);
}

/* A start without that volume; and the power fails again, before a checkpoint. */
static void put_without_it(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(set_members(rig), 0x7);
	assert_int_equal(disk_array_state(rig->store->volume.disk, 0), DISK_MEMBER_MISSING);
	for (uint32_t i = 0; i < SET_KEYS; i++)
		assert_int_equal(set_key_put(rig, i), 0);
	memory_disk_lose(1);
	memory_disk_lose(2);
}

static void verify(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(disk_array_state(rig->store->volume.disk, 0), DISK_MEMBER_REBUILDING);
	set_keys_verify(rig, 0, SET_KEYS);
}

static void back(uint32_t idx)
{
	memory_disk(idx)->away = memory_disk(idx)->lost = false;
}

/* A store over three volumes, whose keys are put by fn without one of them; then all are back. */
static void put_and_verify(struct rig *rig)
{
	rig_run(rig, put_without_it, NULL);
	assert_int_equal(rig->open_result, 0);
	for (uint32_t i = 0; i < 3; i++)
		back(i);
	rig_run(rig, verify, NULL);
	assert_int_equal(rig->open_result, 0);
	rig_fsck(rig);
}

static void begin(struct rig *rig)
{
	rig_init(rig, 1);
	rig->opts.volume = SET_THREE;
	rig->opts.erasure_data = 2;
	rig->opts.erasure_parity = 1;
	memory_disks_open();
	rig_run(rig, some_put, NULL);
}

static void end(struct rig *rig)
{
	memory_disks_close();
	rig_dir_remove(rig);
}

static void test_a_superblock_that_never_counted_does_not_win(void **state)
{
	struct rig rig;

	(void)state;
	begin(&rig);
	rig_run(&rig, super_torn, NULL);
	memory_disk_lose(0);
	back(1);
	back(2);
	put_and_verify(&rig);
	end(&rig);
}

/* The power fails when a start without volume 2 writes its first superblocks: volume 0 has one more
 * of them than volume 1. The next start is without volume 0. */
static void test_nor_one_of_a_start_that_did_not_see_all_either(void **state)
{
	struct rig rig;

	(void)state;
	for (uint32_t torn = 1; torn <= 2; torn++) {
		begin(&rig);
		memory_disk_lose(2);
		memory_disk(1)->super_writes = torn;
		rig_run(&rig, NULL, NULL);
		assert_int_equal(rig.open_result, -EHOSTDOWN);
		memory_disk_lose(0);
		back(1);
		back(2);
		put_and_verify(&rig);
		end(&rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_superblock_that_never_counted_does_not_win),
		cmocka_unit_test(test_nor_one_of_a_start_that_did_not_see_all_either),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
