/* tests/unit/store/test_set_loss.c: volumes are lost, or space is scarce, while the set of volumes
 * changes; and a change is taken back before it began. */
#include "set_rig.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "store/store_priv.h"

/* Asks, and returns when some of the bodies have moved. */
static void ask_and_move_some(struct rig *rig, const char *add, uint64_t remove)
{
	struct store_set_status status;

	assert_int_equal(set_ask(rig, add, remove), 0);
	do {
		fiber_sleep_ns(SET_LOOK_NS);
		status = set_status(rig);
	} while (!status.changing || status.left_bytes == status.all_bytes);
	assert_true(status.left_bytes > 0);
}

/* ---- A new volume. ---- */

static void new_lost_before(struct rig *rig, void *arg)
{
	(void)arg;
	set_begin_keys(rig);
	memory_disk_lose(3);
	assert_int_equal(set_ask(rig, "memory://3", 0), 0);
	set_note_await(rig, "memory://3 cannot be added");
	assert_false(set_status(rig).changing);
	assert_int_equal(set_members(rig), 0x7);
	assert_int_equal(set_key_put(rig, 0), 0);
	memory_disk(3)->away = memory_disk(3)->lost = false;
	assert_int_equal(set_ask(rig, "memory://3", 0), 0);
	while (!set_status(rig).changing)
		fiber_sleep_ns(SET_LOOK_NS);
	set_end_await(rig);
	assert_int_equal(set_members(rig), 0xf);
	set_keys_verify(rig, 0, SET_KEYS);
}

/* It is a lost volume like others: the change ends without it, and it is rebuilt when it is back.
 */
static void new_lost_meanwhile(struct rig *rig, void *arg)
{
	(void)arg;
	set_begin_keys(rig);
	ask_and_move_some(rig, "memory://3", 0);
	memory_disk_lose(3);
	set_state_await(rig, 3, DISK_MEMBER_MISSING);
	assert_int_equal(set_key_put(rig, 0), 0);
	set_end_await(rig);
	set_keys_verify(rig, 0, SET_KEYS);
	memory_disk(3)->away = false;
	set_state_await(rig, 3, DISK_MEMBER_GOOD);
	memory_disk_lose(0);
	set_keys_verify(rig, 0, SET_KEYS);
}

/* It has its label, and no superblock of the change, when too few are left. */
static void new_lost_with_its_label(struct rig *rig, void *arg)
{
	(void)arg;
	set_begin_keys(rig);
	memory_disk_lose(2);
	set_state_await(rig, 2, DISK_MEMBER_MISSING);
	assert_int_equal(set_key_put(rig, 0), 0);
	memory_disk(3)->super_writes = 2;
	assert_int_equal(set_ask(rig, "memory://3", 0), 0);
	while (!memory_disk(3)->lost || store_refuses(rig->store) != -EHOSTDOWN)
		fiber_sleep_ns(SET_LOOK_NS);
	memory_disk(3)->away = false;
	while (store_refuses(rig->store))
		fiber_sleep_ns(SET_LOOK_NS);
	assert_int_equal(set_key_put(rig, 0), 0);
	memory_disk(2)->away = false;
	set_state_await(rig, 2, DISK_MEMBER_GOOD);
	set_end_await(rig);
	assert_int_equal(set_members(rig), 0xf);
	set_keys_verify(rig, 0, SET_KEYS);
}

/* ---- A commit. ---- */

/* A helper thread writes the set's numbers one by one, under the lock, and a commit does not wait
 * for it. */
static void commit_meanwhile(struct rig *rig, void *arg)
{
	struct volume *volume = &rig->store->volume;
	uint16_t count;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(set_key_put(rig, 0), 0);
	pthread_mutex_lock(&volume->lock);
	count = volume->super.set_count;
	volume->super.set_count = 0;
	assert_int_equal(set_key_put(rig, 1), 0);
	volume->super.set_count = count;
	pthread_mutex_unlock(&volume->lock);
	set_keys_verify(rig, 0, 2);
}

/* ---- A volume that leaves, and more than parity replaces. ---- */

static void leaving_lost(struct rig *rig, void *arg)
{
	(void)arg;
	set_begin_keys(rig);
	ask_and_move_some(rig, "memory://3", 0x1);
	memory_disk_lose(0);
	set_end_await(rig);
	assert_int_equal(set_members(rig), 0xe);
	/* The server keeps it open. */
	assert_int_equal(set_ask(rig, "memory://0", 0), -EBUSY);
	assert_int_equal(disk_array_lost(rig->store->volume.disk), 0);
	memory_disk(0)->away = false;
	set_keys_verify(rig, 0, SET_KEYS);
	memory_disk_lose(1);
	set_keys_verify(rig, 0, SET_KEYS);
}

static void too_many_lost(struct rig *rig, void *arg)
{
	char why[256];

	(void)arg;
	set_begin_keys(rig);
	ask_and_move_some(rig, "memory://3", 0x1);
	memory_disk_lose(1);
	memory_disk_lose(2);
	assert_int_equal(set_key_put(rig, 0), -EHOSTDOWN);
	set_note_await(rig, "waits");
	assert_true(set_status(rig).changing);
	memory_disk(1)->away = false;
	memory_disk(2)->away = false;
	while (!store_writable(rig->store, why, sizeof(why)))
		fiber_sleep_ns(SET_LOOK_NS);
	set_end_await(rig);
	assert_int_equal(set_members(rig), 0xe);
	set_keys_verify(rig, 0, SET_KEYS);
}

/* ---- Scarce space. ---- */

#define HALF	 600u /* of the space, in keys */
#define FULL_MAX 4000u

/* Four volumes become three, whose stripes are wider, and meanwhile puts take all space. */
static void full_meanwhile(struct rig *rig, void *arg)
{
	uint32_t count, gone;
	char key[32];
	int ret;

	(void)arg;
	set_begin_keys(rig);
	for (count = SET_KEYS; count < HALF; count++)
		assert_int_equal(set_key_put(rig, count), 0);
	ask_and_move_some(rig, NULL, 0x8);
	while ((ret = set_key_put(rig, count)) == 0 && count < FULL_MAX)
		count++;
	assert_int_equal(ret, -ENOSPC);
	rig->store->opts.move_bytes_per_s = 0;
	set_note_await(rig, "waits for space");
	set_keys_verify(rig, 0, count);
	assert_true(set_status(rig).changing);
	gone = SET_KEYS + (count - SET_KEYS) / 2;
	for (uint32_t i = SET_KEYS; i < gone; i++) {
		set_key_name(key, i);
		assert_int_equal(
			store_delete(rig->store, SLICE("b"), slice_str(key), NULL, NULL), 0);
	}
	set_end_await(rig);
	assert_int_equal(set_members(rig), 0x7);
	set_keys_verify(rig, 0, SET_KEYS);
	set_keys_verify(rig, gone, count);
}

/* Four volumes that are nearly full do not fit three, also where files could grow further. */
static void too_small(struct rig *rig, void *arg)
{
	uint32_t count = SET_KEYS;

	(void)arg;
	set_begin_keys(rig);
	while (count < FULL_MAX && set_key_put(rig, count) == 0)
		count++;
	assert_int_equal(set_ask(rig, NULL, 0x8), -ENOSPC);
	assert_int_equal(set_members(rig), 0xf);
}

/* ---- Taken back before it began. ---- */

static void cancelled_at_once(struct rig *rig, void *arg)
{
	(void)arg;
	set_keys_put(rig);
	assert_int_equal(set_ask(rig, "memory://3", 0), 0);
	assert_int_equal(store_volumes_cancel(rig->store), 0);
	assert_int_equal(set_ask(rig, "memory://4", 0), -EBUSY);
	assert_int_equal(store_volumes_cancel(rig->store), -ENOENT);
	rig_monitor_start(rig);
	set_end_await(rig);
	assert_int_equal(set_members(rig), 0x7);
	while (set_ask(rig, "memory://3", 0) == -EBUSY)
		fiber_sleep_ns(SET_LOOK_NS);
	while (!set_status(rig).changing)
		fiber_sleep_ns(SET_LOOK_NS);
	set_end_await(rig);
	assert_int_equal(set_members(rig), 0xf);
	set_keys_verify(rig, 0, SET_KEYS);
}

static void test_a_new_volume_is_lost(void **state)
{
	(void)state;
	set_run(new_lost_before, SET_THREE, 2, 0);
	set_run(new_lost_meanwhile, SET_THREE, 2, 0);
	set_run(new_lost_with_its_label, SET_THREE, 2, 0);
}

static void test_a_leaving_volume_is_lost(void **state)
{
	(void)state;
	set_run(leaving_lost, SET_THREE, 2, 0);
}

static void test_too_many_are_lost(void **state)
{
	(void)state;
	set_run(too_many_lost, SET_THREE, 2, 0);
}

static void test_a_commit_while_the_set_is_written(void **state)
{
	(void)state;
	set_run(commit_meanwhile, SET_THREE, 2, 0);
}

static void test_space_is_scarce(void **state)
{
	(void)state;
	set_run(full_meanwhile, SET_THREE ",memory://3", 3, 32 * MIB);
	set_run(too_small, SET_THREE ",memory://3", 3, 32 * MIB);
}

static void test_taken_back_before_it_began(void **state)
{
	(void)state;
	set_run(cancelled_at_once, SET_THREE, 2, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_new_volume_is_lost),
		cmocka_unit_test(test_a_leaving_volume_is_lost),
		cmocka_unit_test(test_too_many_are_lost),
		cmocka_unit_test(test_a_commit_while_the_set_is_written),
		cmocka_unit_test(test_space_is_scarce),
		cmocka_unit_test(test_taken_back_before_it_began),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
