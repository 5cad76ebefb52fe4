/* tests/unit/store/test_set_loss.c: volumes are lost, or space is scarce, while the set of volumes
 * changes; and a change is taken back before it began. */
#include "memory_disk.h"
#include "rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/check/set_change_priv.h"
#include "store/store_priv.h"

#define KEYS	40u
#define BYTES	70000u
#define LOOK_NS NS_PER_MS
#define RATE	(1 * MIB) /* while a test interferes */

static void key_name(char key[32], uint32_t i)
{
	snprintf(key, 32, "k%04u", i);
}

static int key_put(struct rig *rig, uint32_t i)
{
	char key[32];

	key_name(key, i);
	return object_put_seeded(rig, "b", slice_str(key), BYTES, i, NULL);
}

static void keys_verify(struct rig *rig, uint32_t from, uint32_t to)
{
	char key[32];

	for (uint32_t i = from; i < to; i++) {
		key_name(key, i);
		assert_int_equal(object_verify_seeded(rig, "b", slice_str(key), BYTES, i), 0);
	}
}

static void monitor_fiber(void *arg)
{
	store_array_monitor(((struct rig *)arg)->store);
}

static void begin(struct rig *rig)
{
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t i = 0; i < KEYS; i++)
		assert_int_equal(key_put(rig, i), 0);
	rig->store->opts.move_bytes_per_s = RATE;
	assert_int_equal(fiber_spawn(reactor_self(), "monitor", monitor_fiber, rig), 0);
}

static struct store_set_status status_of(struct rig *rig)
{
	struct store_set_status status;

	store_volumes_status(rig->store, &status);
	return status;
}

static int ask(struct rig *rig, const char *add, uint64_t remove)
{
	const struct store_set_change change = {
		.add = &add, .add_count = add ? 1 : 0, .remove = remove};
	char why[256] = "";
	int ret = store_volumes_change(rig->store, &change, why, sizeof(why));

	assert_true(!ret == !why[0]);
	return ret;
}

/* Asks, and returns when some of the bodies have moved. */
static void ask_and_move_some(struct rig *rig, const char *add, uint64_t remove)
{
	struct store_set_status status;

	assert_int_equal(ask(rig, add, remove), 0);
	do {
		fiber_sleep_ns(LOOK_NS);
		status = status_of(rig);
	} while (!status.changing || status.left_bytes == status.all_bytes);
	assert_true(status.left_bytes > 0);
}

static void end_await(struct rig *rig)
{
	rig->store->opts.move_bytes_per_s = 0;
	while (status_of(rig).changing || status_of(rig).preparing)
		fiber_sleep_ns(LOOK_NS);
	assert_string_equal(status_of(rig).note, "");
}

static void note_await(struct rig *rig, const char *words)
{
	while (!strstr(status_of(rig).note, words))
		fiber_sleep_ns(LOOK_NS);
}

static void state_await(const struct rig *rig, uint32_t member, enum disk_member_state state)
{
	while (disk_array_state(rig->store->volume.disk, member) != state)
		fiber_sleep_ns(LOOK_NS);
}

static uint64_t members(const struct rig *rig)
{
	return disk_array_mask(rig->store->volume.disk);
}

/* ---- A new volume. ---- */

static void new_lost_before(struct rig *rig, void *arg)
{
	(void)arg;
	begin(rig);
	memory_disk_lose(3);
	assert_int_equal(ask(rig, "memory://3", 0), 0);
	note_await(rig, "memory://3 cannot be added");
	assert_false(status_of(rig).changing);
	assert_int_equal(members(rig), 0x7);
	assert_int_equal(key_put(rig, 0), 0);
	memory_disk(3)->away = memory_disk(3)->lost = false;
	assert_int_equal(ask(rig, "memory://3", 0), 0);
	while (!status_of(rig).changing)
		fiber_sleep_ns(LOOK_NS);
	end_await(rig);
	assert_int_equal(members(rig), 0xf);
	keys_verify(rig, 0, KEYS);
}

/* It is a lost volume like others: the change ends without it, and it is rebuilt when it is back.
 */
static void new_lost_meanwhile(struct rig *rig, void *arg)
{
	(void)arg;
	begin(rig);
	ask_and_move_some(rig, "memory://3", 0);
	memory_disk_lose(3);
	state_await(rig, 3, DISK_MEMBER_MISSING);
	assert_int_equal(key_put(rig, 0), 0);
	end_await(rig);
	keys_verify(rig, 0, KEYS);
	memory_disk(3)->away = false;
	state_await(rig, 3, DISK_MEMBER_GOOD);
	memory_disk_lose(0);
	keys_verify(rig, 0, KEYS);
}

/* It has its label, and no superblock of the change, when too few are left. */
static void new_lost_with_its_label(struct rig *rig, void *arg)
{
	(void)arg;
	begin(rig);
	memory_disk_lose(2);
	state_await(rig, 2, DISK_MEMBER_MISSING);
	assert_int_equal(key_put(rig, 0), 0);
	memory_disk(3)->super_writes = 2;
	assert_int_equal(ask(rig, "memory://3", 0), 0);
	while (!memory_disk(3)->lost || store_refuses(rig->store) != -EHOSTDOWN)
		fiber_sleep_ns(LOOK_NS);
	memory_disk(3)->away = false;
	while (store_refuses(rig->store))
		fiber_sleep_ns(LOOK_NS);
	assert_int_equal(key_put(rig, 0), 0);
	memory_disk(2)->away = false;
	state_await(rig, 2, DISK_MEMBER_GOOD);
	end_await(rig);
	assert_int_equal(members(rig), 0xf);
	keys_verify(rig, 0, KEYS);
}

/* ---- A volume that leaves, and more than parity replaces. ---- */

static void leaving_lost(struct rig *rig, void *arg)
{
	(void)arg;
	begin(rig);
	ask_and_move_some(rig, "memory://3", 0x1);
	memory_disk_lose(0);
	end_await(rig);
	assert_int_equal(members(rig), 0xe);
	/* The server keeps it open. */
	assert_int_equal(ask(rig, "memory://0", 0), -EBUSY);
	assert_int_equal(disk_array_lost(rig->store->volume.disk), 0);
	memory_disk(0)->away = false;
	keys_verify(rig, 0, KEYS);
	memory_disk_lose(1);
	keys_verify(rig, 0, KEYS);
}

static void too_many_lost(struct rig *rig, void *arg)
{
	char why[256];

	(void)arg;
	begin(rig);
	ask_and_move_some(rig, "memory://3", 0x1);
	memory_disk_lose(1);
	memory_disk_lose(2);
	assert_int_equal(key_put(rig, 0), -EHOSTDOWN);
	note_await(rig, "waits");
	assert_true(status_of(rig).changing);
	memory_disk(1)->away = false;
	memory_disk(2)->away = false;
	while (!store_writable(rig->store, why, sizeof(why)))
		fiber_sleep_ns(LOOK_NS);
	end_await(rig);
	assert_int_equal(members(rig), 0xe);
	keys_verify(rig, 0, KEYS);
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
	begin(rig);
	for (count = KEYS; count < HALF; count++)
		assert_int_equal(key_put(rig, count), 0);
	ask_and_move_some(rig, NULL, 0x8);
	while ((ret = key_put(rig, count)) == 0 && count < FULL_MAX)
		count++;
	assert_int_equal(ret, -ENOSPC);
	rig->store->opts.move_bytes_per_s = 0;
	note_await(rig, "waits for space");
	keys_verify(rig, 0, count);
	assert_true(status_of(rig).changing);
	gone = KEYS + (count - KEYS) / 2;
	for (uint32_t i = KEYS; i < gone; i++) {
		key_name(key, i);
		assert_int_equal(
			store_delete(rig->store, SLICE("b"), slice_str(key), NULL, NULL), 0);
	}
	end_await(rig);
	assert_int_equal(members(rig), 0x7);
	keys_verify(rig, 0, KEYS);
	keys_verify(rig, gone, count);
}

/* Four volumes that are nearly full do not fit three, also where files could grow further. */
static void too_small(struct rig *rig, void *arg)
{
	uint32_t count = KEYS;

	(void)arg;
	begin(rig);
	while (count < FULL_MAX && key_put(rig, count) == 0)
		count++;
	assert_int_equal(ask(rig, NULL, 0x8), -ENOSPC);
	assert_int_equal(members(rig), 0xf);
}

/* ---- Taken back before it began. ---- */

static void cancelled_at_once(struct rig *rig, void *arg)
{
	(void)arg;
	begin(rig);
	assert_int_equal(ask(rig, "memory://3", 0), 0);
	assert_int_equal(store_volumes_cancel(rig->store), 0);
	assert_int_equal(ask(rig, "memory://4", 0), -EBUSY);
	end_await(rig);
	while (store_volumes_cancel(rig->store) == 0)
		fiber_sleep_ns(LOOK_NS);
	assert_int_equal(members(rig), 0x7);
	while (ask(rig, "memory://3", 0) == -EBUSY)
		fiber_sleep_ns(LOOK_NS);
	while (!status_of(rig).changing)
		fiber_sleep_ns(LOOK_NS);
	end_await(rig);
	assert_int_equal(members(rig), 0xf);
	keys_verify(rig, 0, KEYS);
}

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
	begin(rig);
	memory_disk(3)->hold = memory_disk(4)->hold = true;
	assert_int_equal(two_ask(rig), 0);
	memory_disk_await_held(3);
	memory_disk_await_held(4);
	assert_true(status_of(rig).changing);
	two_lose();
	memory_disk_let_go(3);
	memory_disk_let_go(4);
	note_await(rig, "waits");
	assert_int_equal(key_put(rig, 0), -EHOSTDOWN);
}

static void writable_await(struct rig *rig)
{
	char why[256];

	while (!store_writable(rig->store, why, sizeof(why)))
		fiber_sleep_ns(LOOK_NS);
}

static void withdrawn(struct rig *rig, void *arg)
{
	two_lost_at_once(rig, arg);
	keys_verify(rig, 0, KEYS);
	assert_int_equal(store_volumes_cancel(rig->store), 0);
	end_await(rig);
	writable_await(rig);
	assert_int_equal(members(rig), 0x7);
	assert_int_equal(store_volumes_cancel(rig->store), -ENOENT);
	for (uint32_t i = 0; i < 2 * KEYS; i++)
		assert_int_equal(key_put(rig, i), 0);
	/* Parity replaces one of those that are left, and the set may change again. */
	memory_disk_lose(0);
	keys_verify(rig, 0, 2 * KEYS);
	memory_disk(0)->away = false;
	state_await(rig, 0, DISK_MEMBER_GOOD);
	assert_int_equal(ask(rig, "memory://5", 0), 0);
	while (!status_of(rig).changing)
		fiber_sleep_ns(LOOK_NS);
	end_await(rig);
	assert_int_equal(members(rig), 0xf);
	keys_verify(rig, 0, 2 * KEYS);
	two_return();
}

/* Until a body has moved: space of the older geometry is free. */
static void move_await(struct rig *rig)
{
	uint64_t first = 0;

	while (!status_of(rig).changing || status_of(rig).left_bytes >= first) {
		first = MAX(first, status_of(rig).left_bytes);
		fiber_sleep_ns(LOOK_NS);
	}
}

/* A body is on them: the change is taken back when they are there again, and not before. */
static void not_withdrawn(struct rig *rig, void *arg)
{
	(void)arg;
	begin(rig);
	assert_int_equal(two_ask(rig), 0);
	move_await(rig);
	two_lose();
	note_await(rig, "waits");
	assert_int_equal(store_volumes_cancel(rig->store), 0);
	note_await(rig, "cannot be taken back yet");
	assert_true(status_of(rig).changing);
	assert_int_equal(members(rig), 0x1f);
	two_return();
	writable_await(rig);
	end_await(rig);
	assert_int_equal(members(rig), 0x7);
	keys_verify(rig, 0, KEYS);
}

/* ---- A start without them. ---- */

static void withdrawn_at_start(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(members(rig), 0x7);
	assert_false(status_of(rig).changing);
	keys_verify(rig, 0, KEYS);
	assert_int_equal(key_put(rig, KEYS), 0);
	rig->store->opts.move_bytes_per_s = 0;
}

static void some_moved(struct rig *rig, void *arg)
{
	(void)arg;
	begin(rig);
	assert_int_equal(two_ask(rig), 0);
	move_await(rig);
	two_lose();
	note_await(rig, "waits");
}

/* The only body in the newer geometry is of the log's last group. */
static void one_put(struct rig *rig, void *arg)
{
	(void)arg;
	begin(rig);
	rig->store->opts.move_bytes_per_s = 1;
	assert_int_equal(two_ask(rig), 0);
	while (!status_of(rig).changing || status_of(rig).left_bytes == status_of(rig).all_bytes)
		fiber_sleep_ns(LOOK_NS);
	assert_int_equal(key_put(rig, KEYS), 0);
	two_lose();
	assert_int_equal(key_put(rig, KEYS + 1), -EHOSTDOWN);
}

/* One is lost before a body's group is written to the log, and the other one is found lost after
 * it: the group is the log's last, and was not acknowledged. */
static void one_logged(struct rig *rig, void *arg)
{
	(void)arg;
	begin(rig);
	memory_disk(3)->hold = true;
	assert_int_equal(two_ask(rig), 0);
	memory_disk_await_held(3);
	/* The same body's write to the other one was begun with it. */
	fiber_sleep_ns(LOOK_NS);
	two_lose();
	memory_disk_let_go(3);
	note_await(rig, "waits");
}

static void one_verify(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(members(rig), 0x1f);
	keys_verify(rig, 0, KEYS + 1);
	assert_int_equal(fiber_spawn(reactor_self(), "monitor", monitor_fiber, rig), 0);
	end_await(rig);
}

static void all_verify(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(fiber_spawn(reactor_self(), "monitor", monitor_fiber, rig), 0);
	end_await(rig);
	assert_int_equal(members(rig), 0x1f);
	keys_verify(rig, 0, KEYS);
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
	assert_int_equal(key_put(rig, 0), 0);
	assert_int_equal(ask(rig, "memory://3", 0), 0);
	set_change_step(rig->store);
	while (set_change_blocks_left(rig->store))
		fiber_sleep_ns(LOOK_NS);
	set_change_await(rig->store);
	assert_true(status_of(rig).changing);
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
		fiber_sleep_ns(LOOK_NS);

	memory_disk(0)->away = memory_disk(1)->away = false;
	assert_int_equal(fiber_spawn(reactor_self(), "monitor", monitor_fiber, rig), 0);
	end_await(rig);
	writable_await(rig);
	assert_int_equal(members(rig), 0xf);
	keys_verify(rig, 0, 1);
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

static void run(rig_fn *fn, const char *volumes, uint32_t data, uint64_t bytes_max)
{
	struct rig rig;

	rig_init(&rig, 1);
	rig.opts.volume = volumes;
	rig.opts.erasure_data = data;
	rig.opts.erasure_parity = 1;
	rig.opts.volume_bytes_max = bytes_max;
	memory_disks_open();
	rig_run(&rig, fn, NULL);
	assert_int_equal(rig.open_result, 0);
	rig.opts.volume = NULL;
	for (uint32_t i = 0; i < MEMORY_DISKS; i++)
		memory_disk(i)->away = memory_disk(i)->lost = false;
	rig_fsck(&rig);
	memory_disks_close();
	rig_dir_remove(&rig);
}

#define THREE "memory://0,memory://1,memory://2"

static void test_a_new_volume_is_lost(void **state)
{
	(void)state;
	run(new_lost_before, THREE, 2, 0);
	run(new_lost_meanwhile, THREE, 2, 0);
	run(new_lost_with_its_label, THREE, 2, 0);
}

static void test_a_leaving_volume_is_lost(void **state)
{
	(void)state;
	run(leaving_lost, THREE, 2, 0);
}

static void test_too_many_are_lost(void **state)
{
	(void)state;
	run(too_many_lost, THREE, 2, 0);
}

static void test_space_is_scarce(void **state)
{
	(void)state;
	run(full_meanwhile, THREE ",memory://3", 3, 32 * MIB);
	run(too_small, THREE ",memory://3", 3, 32 * MIB);
}

static void test_taken_back_before_it_began(void **state)
{
	(void)state;
	run(cancelled_at_once, THREE, 2, 0);
}

static void test_new_volumes_are_lost_and_the_change_is_taken_back(void **state)
{
	(void)state;
	run(withdrawn, THREE, 2, 0);
	run(not_withdrawn, THREE, 2, 0);
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
	run(cancelled_at_the_end, THREE, 2, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_new_volume_is_lost),
		cmocka_unit_test(test_a_leaving_volume_is_lost),
		cmocka_unit_test(test_too_many_are_lost),
		cmocka_unit_test(test_space_is_scarce),
		cmocka_unit_test(test_taken_back_before_it_began),
		cmocka_unit_test(test_new_volumes_are_lost_and_the_change_is_taken_back),
		cmocka_unit_test(test_a_start_without_the_new_volumes),
		cmocka_unit_test(test_taken_back_at_the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
