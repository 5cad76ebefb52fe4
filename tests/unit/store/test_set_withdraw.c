/* tests/unit/store/test_set_withdraw.c: a change of the set of volumes is taken back without its
 * new volumes, by an administrator and by a start; and what is told while its first and its last
 * superblock are being written. */
#include "set_rig.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "store/check/set_change_priv.h"
#include "store/store_priv.h"

/* ---- More new volumes than parity replaces are lost. ---- */

static int two_ask(struct rig *rig)
{
	const char *add[] = {"memory://3", "memory://4"};
	const struct store_set_change change = {.add = add, .add_count = 2};
	char why[256] = "";

	return store_volumes_change(rig->store, &change, why, sizeof(why));
}

static void two_lose(void)
{
	memory_disk_lose(3);
	memory_disk_lose(4);
}

static void two_return(void)
{
	memory_disk(3)->away = memory_disk(4)->away = false;
}

/* Both are lost before any body lies on them whole. */
static void two_lost_at_once(struct rig *rig, void *arg)
{
	(void)arg;
	set_begin_keys(rig);
	memory_disk(3)->hold = memory_disk(4)->hold = true;
	assert_int_equal(two_ask(rig), 0);
	memory_disk_await_held(3);
	memory_disk_await_held(4);
	assert_true(set_status(rig).changing);
	two_lose();
	memory_disk_let_go(3);
	memory_disk_let_go(4);
	set_note_await(rig, "waits");
	assert_int_equal(set_key_put(rig, 0), -EHOSTDOWN);
}

static void withdrawn(struct rig *rig, void *arg)
{
	two_lost_at_once(rig, arg);
	set_keys_verify(rig, 0, SET_KEYS);
	assert_int_equal(store_volumes_cancel(rig->store), 0);
	set_end_await(rig);
	set_writable_await(rig);
	assert_int_equal(set_members(rig), 0x7);
	assert_int_equal(store_volumes_cancel(rig->store), -ENOENT);
	for (uint32_t i = 0; i < 2 * SET_KEYS; i++)
		assert_int_equal(set_key_put(rig, i), 0);
	/* Parity replaces one of those that are left, and the set may change again. */
	memory_disk_lose(0);
	set_keys_verify(rig, 0, 2 * SET_KEYS);
	memory_disk(0)->away = false;
	set_state_await(rig, 0, DISK_MEMBER_GOOD);
	assert_int_equal(set_ask(rig, "memory://5", 0), 0);
	while (!set_status(rig).changing)
		fiber_sleep_ns(SET_LOOK_NS);
	set_end_await(rig);
	assert_int_equal(set_members(rig), 0xf);
	set_keys_verify(rig, 0, 2 * SET_KEYS);
	two_return();
}

/* Until a body has moved: space of the older geometry is free. */
static void move_await(struct rig *rig)
{
	uint64_t first = 0;

	while (!set_status(rig).changing || set_status(rig).left_bytes >= first) {
		first = MAX(first, set_status(rig).left_bytes);
		fiber_sleep_ns(SET_LOOK_NS);
	}
}

/* A body is on them: the change is taken back when they are there again, and not before. */
static void not_withdrawn(struct rig *rig, void *arg)
{
	(void)arg;
	set_begin_keys(rig);
	assert_int_equal(two_ask(rig), 0);
	move_await(rig);
	two_lose();
	set_note_await(rig, "waits");
	assert_int_equal(store_volumes_cancel(rig->store), 0);
	set_note_await(rig, "cannot be taken back yet");
	assert_true(set_status(rig).changing);
	assert_int_equal(set_members(rig), 0x1f);
	two_return();
	set_writable_await(rig);
	set_end_await(rig);
	assert_int_equal(set_members(rig), 0x7);
	set_keys_verify(rig, 0, SET_KEYS);
}

/* ---- A start without them. ---- */

static void withdrawn_at_start(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(set_members(rig), 0x7);
	assert_false(set_status(rig).changing);
	set_keys_verify(rig, 0, SET_KEYS);
	assert_int_equal(set_key_put(rig, SET_KEYS), 0);
	rig->store->opts.move_bytes_per_s = 0;
}

static void some_moved(struct rig *rig, void *arg)
{
	(void)arg;
	set_begin_keys(rig);
	assert_int_equal(two_ask(rig), 0);
	move_await(rig);
	two_lose();
	set_note_await(rig, "waits");
}

/* The only body in the newer geometry is of the log's last group. */
static void one_put(struct rig *rig, void *arg)
{
	(void)arg;
	set_begin_keys(rig);
	rig->store->opts.move_bytes_per_s = 1;
	assert_int_equal(two_ask(rig), 0);
	while (!set_status(rig).changing || set_status(rig).left_bytes == set_status(rig).all_bytes)
		fiber_sleep_ns(SET_LOOK_NS);
	assert_int_equal(set_key_put(rig, SET_KEYS), 0);
	two_lose();
	assert_int_equal(set_key_put(rig, SET_KEYS + 1), -EHOSTDOWN);
}

/* One is lost before a body's group is written to the log, and the other one is found lost after
 * it: the group is the log's last, and was not acknowledged. */
static void one_logged(struct rig *rig, void *arg)
{
	(void)arg;
	set_begin_keys(rig);
	memory_disk(3)->hold = true;
	assert_int_equal(two_ask(rig), 0);
	memory_disk_await_held(3);
	/* The same body's write to the other one was begun with it. */
	fiber_sleep_ns(SET_LOOK_NS);
	two_lose();
	memory_disk_let_go(3);
	set_note_await(rig, "waits");
}

static void one_verify(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(set_members(rig), 0x1f);
	set_keys_verify(rig, 0, SET_KEYS + 1);
	rig_monitor_start(rig);
	set_end_await(rig);
}

static void all_verify(struct rig *rig, void *arg)
{
	(void)arg;
	rig_monitor_start(rig);
	set_end_await(rig);
	assert_int_equal(set_members(rig), 0x1f);
	set_keys_verify(rig, 0, SET_KEYS);
}

/* ---- Taken back when its last superblock is being written, which then fails. ---- */

static void step_fiber(void *arg)
{
	set_change_step(((struct rig *)arg)->store);
}

static void cancelled_at_the_end(struct rig *rig, void *arg)
{
	struct store_change *change = rig->store->change;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(set_key_put(rig, 0), 0);
	assert_int_equal(set_ask(rig, "memory://3", 0), 0);
	set_change_step(rig->store);
	while (set_change_blocks_left(rig->store))
		fiber_sleep_ns(SET_LOOK_NS);
	set_change_await(rig->store);
	assert_true(set_status(rig).changing);
	assert_int_equal(index_apply_settle(rig->store), 0);
	assert_int_equal(index_apply_checkpoint_now(rig->store), 0);

	pthread_mutex_lock(&rig->store->volume.lock);
	assert_int_equal(fiber_spawn(reactor_self(), "step", step_fiber, rig), 0);
	while (!change->stepping)
		fiber_yield();
	assert_int_equal(store_volumes_cancel(rig->store), 0);
	memory_disk_lose(0);
	memory_disk_lose(1);
	pthread_mutex_unlock(&rig->store->volume.lock);
	while (change->stepping)
		fiber_sleep_ns(SET_LOOK_NS);
	/* The superblock has one geometry, and the array still two. */
	assert_true(set_status(rig).changing);
	assert_int_equal(set_status(rig).before_data, 0);
	set_change_note(rig->store, -EIO, 1);
	assert_int_equal(set_status(rig).failed, 1);

	memory_disk(0)->away = memory_disk(1)->away = false;
	rig_monitor_start(rig);
	set_end_await(rig);
	set_writable_await(rig);
	assert_int_equal(set_members(rig), 0xf);
	assert_int_equal(set_status(rig).failed, 0);
	/* The mover's last pass may end later. */
	set_change_note(rig->store, -EIO, 1);
	assert_string_equal(set_status(rig).note, "");
	assert_int_equal(set_status(rig).failed, 0);
	set_keys_verify(rig, 0, 1);
}

/* ---- The status while the change's first superblock is being made. ---- */

/* The array has the new geometry first. */
static void array_before_superblock(struct rig *rig, void *arg)
{
	const struct disk_geometry swapped = {.data = 2, .parity = 1, .order = {2, 1, 0}};
	struct disk *disk = rig->store->volume.disk;
	struct store_set_status status;
	uint32_t slot = set_slot_old(rig->store);

	(void)arg;
	set_keys_put(rig);
	assert_int_equal(disk_array_geometry_add(disk, slot, &swapped), 0);
	status = set_status(rig);
	disk_array_geometry_end(disk, slot);
	assert_false(status.changing);
	assert_true(status.all_bytes > 0);
}

/* ---- Stores. ---- */

/* Between two lives of a store. */
enum between { LOST, REFUSED, SALVAGED };

static void salvage(const struct rig *rig, uint64_t groups_lost)
{
	struct store_fsck_report report;
	struct buf out;

	buf_init(&out, 64 * KIB);
	assert_int_equal(store_salvage(rig->dir, false, &report, &out), 0);
	assert_int_equal(report.groups_lost, groups_lost);
	buf_free(&out);
}

static void run_again(rig_fn *first, enum between between, rig_fn *last)
{
	struct rig rig;

	rig_init(&rig, 1);
	rig.opts.volume = "memory://0,memory://1,memory://2";
	rig.opts.erasure_data = 2;
	rig.opts.erasure_parity = 1;
	memory_disks_open();
	rig_run(&rig, first, NULL);
	assert_int_equal(rig.open_result, 0);
	for (uint32_t i = 0; i < 2 && between != LOST; i++) {
		rig_run(&rig, NULL, NULL);
		assert_int_equal(rig.open_result, -EUCLEAN);
	}
	if (between == REFUSED) {
		two_return();
		memory_disk(3)->lost = memory_disk(4)->lost = false;
	} else if (between == SALVAGED) {
		salvage(&rig, 1);
	}
	rig_run(&rig, last, NULL);
	assert_int_equal(rig.open_result, 0);
	/* A volume of a change that was taken back is no member, also if it is named. */
	for (uint32_t i = 0; i < MEMORY_DISKS; i++)
		memory_disk(i)->away = memory_disk(i)->lost = false;
	rig.opts.volume = "memory://0,memory://1,memory://2,memory://3,memory://4";
	rig_run(&rig, NULL, NULL);
	assert_int_equal(rig.open_result, 0);
	rig_fsck(&rig);
	memory_disks_close();
	rig_dir_remove(&rig);
}

static void test_new_volumes_are_lost_and_the_change_is_taken_back(void **state)
{
	(void)state;
	set_run(withdrawn, SET_THREE, 2, 0);
	set_run(not_withdrawn, SET_THREE, 2, 0);
}

static void test_a_start_without_the_new_volumes(void **state)
{
	(void)state;
	run_again(two_lost_at_once, LOST, withdrawn_at_start);
	run_again(some_moved, REFUSED, all_verify);
	run_again(one_put, REFUSED, one_verify);
	run_again(one_logged, SALVAGED, withdrawn_at_start);
}

static void test_taken_back_at_the_end(void **state)
{
	(void)state;
	set_run(cancelled_at_the_end, SET_THREE, 2, 0);
}

static void test_no_change_before_its_superblock(void **state)
{
	(void)state;
	set_run(array_before_superblock, SET_THREE, 2, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_new_volumes_are_lost_and_the_change_is_taken_back),
		cmocka_unit_test(test_a_start_without_the_new_volumes),
		cmocka_unit_test(test_taken_back_at_the_end),
		cmocka_unit_test(test_no_change_before_its_superblock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
