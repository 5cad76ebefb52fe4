/* tests/unit/store/test_regain.c: too many volumes are gone; enough come back, and the store
 * continues without a restart. */
#include "../log_catch.h"
#include "set_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "disk/disk_array.h"
#include "store/commit/index_apply.h"
#include "store/object/object.h"
#include "store/space/space.h"
#include "store/store_priv.h"

#define KEYS  40u
#define BYTES 70000u
#define SMALL 8000u /* its group writes it */

static void keys_put(struct rig *rig, uint64_t seed)
{
	char key[32];

	for (uint32_t i = 0; i < KEYS; i++) {
		snprintf(key, sizeof(key), "k%04u", i);
		assert_int_equal(
			object_put_seeded(rig, "b", slice_str(key), BYTES, seed + i, NULL), 0);
	}
}

static void keys_verify(struct rig *rig, uint64_t seed)
{
	char key[32];

	for (uint32_t i = 0; i < KEYS; i++) {
		snprintf(key, sizeof(key), "k%04u", i);
		assert_int_equal(
			object_verify_seeded(rig, "b", slice_str(key), BYTES, seed + i), 0);
	}
}

static bool writable(const struct rig *rig)
{
	char why[256];

	return store_writable(rig->store, why, sizeof(why));
}

static void state_await(const struct rig *rig, uint32_t member, enum disk_member_state state)
{
	while (disk_array_state(rig->store->volume.disk, member) != state)
		fiber_sleep_ns(NS_PER_MS);
}

static void put_begin(struct rig *rig, struct store_put **ret_put)
{
	const struct store_put_opts opts = {
		.bucket = SLICE("b"), .key = SLICE("begun"), .bytes = 0};

	assert_int_equal(store_put_open(rig->store, &opts, ret_put), 0);
}

static void lose_and_regain(struct rig *rig, void *arg)
{
	struct store_meta meta = {0};
	struct store_put *begun, *later;
	uint64_t epoch;
	char why[256];

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	keys_put(rig, 100);
	rig_monitor_start(rig);
	put_begin(rig, &begun);
	epoch = rig->store->volume.super.epoch;
	memory_disk_lose(2);
	keys_put(rig, 200);
	memory_disk_lose(1);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("k0000"), BYTES, 1, NULL), -EHOSTDOWN);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("new"), BYTES, 1, NULL), -EHOSTDOWN);
	assert_false(store_writable(rig->store, why, sizeof(why)));
	assert_non_null(strstr(why, "1 of 3 volumes"));
	assert_true(store_cut_off(rig->store));
	/* The volume that missed acknowledged commits does not count. */
	memory_disk(2)->away = false;
	memory_disk_await_tries(1, 2);
	assert_false(writable(rig));
	memory_disk(1)->away = false;
	while (!writable(rig))
		fiber_sleep_ns(NS_PER_MS);
	assert_int_equal(rig->store->volume.super.epoch, epoch + 1);
	assert_false(store_cut_off(rig->store));
	keys_verify(rig, 200);
	assert_int_equal(store_put_commit(begun, &meta, NULL, NULL), -EHOSTDOWN);
	put_begin(rig, &later);
	assert_int_equal(store_put_commit(later, &meta, NULL, NULL), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("new"), BYTES, 2, NULL), 0);
	state_await(rig, 2, DISK_MEMBER_GOOD);
	/* The rebuilt volume can replace another. */
	memory_disk_lose(0);
	keys_verify(rig, 200);
	keys_put(rig, 300);
	assert_true(writable(rig));
	memory_disk(0)->away = false;
	state_await(rig, 0, DISK_MEMBER_GOOD);
}

static void verify(struct rig *rig, void *arg)
{
	(void)arg;
	keys_verify(rig, 300);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("new"), BYTES, 2), 0);
}

/* The volume that comes back is an older copy, or blank: it is none of the good ones. */
static void lose_and_spoil(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	keys_put(rig, 100);
	rig_monitor_start(rig);
	memory_disk_lose(1);
	memory_disk_lose(2);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("new"), BYTES, 1, NULL), -EHOSTDOWN);
	memory_disk_blank(1);
	log_catch();
	memory_disk(1)->away = false;
	memory_disk_await_tries(2, 4);
	assert_int_equal(log_count(log_caught(), "volume 1 (memory://1) can be reached, but"), 1);
	assert_false(writable(rig));
	memory_disk(2)->away = false;
	while (!writable(rig))
		fiber_sleep_ns(NS_PER_MS);
	state_await(rig, 1, DISK_MEMBER_GOOD);
	memory_disk_lose(0);
	keys_verify(rig, 100);
}

static void setup(struct rig *rig)
{
	rig_init(rig, 1);
	rig->opts.volume = "memory://0,memory://1,memory://2";
	rig->opts.erasure_data = 2;
	rig->opts.erasure_parity = 1;
	memory_disks_open();
}

static void test_the_store_goes_on_when_enough_volumes_are_back(void **state)
{
	struct rig rig;

	(void)state;
	setup(&rig);
	rig_run(&rig, lose_and_regain, NULL);
	assert_int_equal(rig.open_result, 0);
	rig_run(&rig, verify, NULL);
	assert_int_equal(rig.open_result, 0);
	rig_fsck(&rig);
	memory_disks_close();
	rig_dir_remove(&rig);
}

static int memory_put(struct rig *rig)
{
	const struct store_put_opts opts = {.bucket = SLICE("m"), .key = SLICE("a"), .bytes = 0};
	struct store_meta meta = {0};
	struct store_put *put;
	int ret = store_put_open(rig->store, &opts, &put);

	return ret ? ret : store_put_commit(put, &meta, NULL, NULL);
}

static bool memory_holds(struct rig *rig)
{
	struct store_get *get;
	bool exists;
	int ret = store_get_open(rig->store, SLICE("m"), SLICE("a"), &get, &exists);

	if (!ret)
		store_get_close(get);
	return !ret;
}

/* Memory buckets go on while the store takes no writes, and one whose deletion could not be written
 * is as it was. */
static void memory_goes_on(struct rig *rig, void *arg)
{
	struct store_bucket bucket = {
		.name = "m", .flags = STORE_BUCKET_MEMORY, .memory.bytes = 1 * MIB};

	(void)arg;
	assert_int_equal(store_bucket_create(rig->store, &bucket), 0);
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	keys_put(rig, 100);
	rig_monitor_start(rig);
	memory_disk_lose(2);
	keys_put(rig, 200);
	memory_disk_lose(1);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("new"), BYTES, 1, NULL), -EHOSTDOWN);
	assert_int_equal(memory_put(rig), 0);
	assert_true(memory_holds(rig));
	assert_int_equal(store_bucket_delete(rig->store, SLICE("m"), 0), -ENOTEMPTY);
	assert_int_equal(store_delete(rig->store, SLICE("m"), SLICE("a"), NULL, NULL), 0);
	assert_int_equal(store_bucket_delete(rig->store, SLICE("m"), 0), -EHOSTDOWN);
	assert_int_equal(memory_put(rig), 0);
	assert_true(memory_holds(rig));
	memory_disk(2)->away = false;
	memory_disk(1)->away = false;
	while (!writable(rig))
		fiber_sleep_ns(NS_PER_MS);
	assert_true(memory_holds(rig));
	assert_int_equal(store_delete(rig->store, SLICE("m"), SLICE("a"), NULL, NULL), 0);
	assert_int_equal(store_bucket_delete(rig->store, SLICE("m"), 0), 0);
	assert_int_equal(memory_put(rig), -ENOENT);
	state_await(rig, 2, DISK_MEMBER_GOOD);
}

static void test_memory_buckets_go_on(void **state)
{
	struct rig rig;

	(void)state;
	setup(&rig);
	rig.opts.memory_buckets_bytes_max = 1 * MIB;
	rig_run(&rig, memory_goes_on, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

static void test_a_blank_volume_is_none_of_the_good_ones(void **state)
{
	struct rig rig;

	(void)state;
	setup(&rig);
	rig_run(&rig, lose_and_spoil, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

/* ---- While a blank volume is made as large as the others, too many of these are lost and come
 * back. ---- */

#define GROW_STEPS 6u

static void grow_steps(struct rig *rig, void *arg)
{
	(void)arg;
	for (uint32_t i = 0; i < GROW_STEPS; i++)
		assert_int_equal(space_step(rig->store), 0);
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	keys_put(rig, 100);
}

static void writable_await(const struct rig *rig, bool wanted)
{
	while (writable(rig) != wanted)
		fiber_sleep_ns(NS_PER_MS);
}

/* The volume has come half of its way when the store goes on. */
static void half_grown_await(struct rig *rig, uint32_t idx)
{
	struct memory_disk *disk = memory_disk(idx);

	writable_await(rig, false);
	for (uint32_t i = 0; i < 3; i++)
		memory_disk(i)->away = false;
	writable_await(rig, true);
	assert_int_equal(disk->bytes, disk->grow_end);
	assert_true(disk->bytes < memory_disk(0)->bytes);
	memory_disk_grow_on(idx);
}

static void half_grow(uint32_t idx, uint32_t loses)
{
	memory_disk(idx)->grow_end = 48 * MIB;
	memory_disk(idx)->grow_loses = loses;
}

static void blank_run(struct rig *rig, void *arg)
{
	(void)arg;
	memory_disk(2)->away = memory_disk(2)->lost = false;
	half_grow(2, 1u << 1);
	rig_monitor_start(rig);
	half_grown_await(rig, 2);
	state_await(rig, 2, DISK_MEMBER_GOOD);
	memory_disk_lose(0);
	keys_verify(rig, 100);
}

static void test_a_blank_volume_that_grows_keeps_nothing_up(void **state)
{
	struct rig rig;

	(void)state;
	setup(&rig);
	rig_run(&rig, grow_steps, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disk_blank(2);
	memory_disk_lose(2);
	rig_run(&rig, blank_run, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

static void add_run(struct rig *rig, void *arg)
{
	grow_steps(rig, arg);
	half_grow(3, 1u << 1 | 1u << 2);
	assert_int_equal(set_ask(rig, "memory://3", 0), 0);
	rig_monitor_start(rig);
	half_grown_await(rig, 3);
	set_end_await(rig);
	assert_int_equal(set_members(rig), 0xf);
	keys_verify(rig, 100);
}

static void test_a_volume_that_is_added_keeps_nothing_up(void **state)
{
	struct rig rig;

	(void)state;
	setup(&rig);
	rig_run(&rig, add_run, NULL);
	assert_int_equal(rig.open_result, 0);
	rig_fsck(&rig);
	memory_disks_close();
	rig_dir_remove(&rig);
}

/* The file is ready, and the change waits for volumes when the store ends. */
static void wait_run(struct rig *rig, void *arg)
{
	const char *const adds[] = {(const char *)arg, "memory://3"};
	const struct store_set_change change = {.add = adds, .add_count = 2};
	char why[256] = "";

	grow_steps(rig, NULL);
	half_grow(3, 1u << 1 | 1u << 2);
	assert_int_equal(store_volumes_change(rig->store, &change, why, sizeof(why)), 0);
	rig_monitor_start(rig);
	set_note_await(rig, "too few volumes are present");
	assert_int_equal(access(adds[0], F_OK), 0);
	memory_disk_grow_on(3);
}

static void test_a_file_that_was_not_added_is_removed(void **state)
{
	char path[600];
	struct rig rig;

	(void)state;
	setup(&rig);
	snprintf(path, sizeof(path), "%s/added", rig.dir);
	rig_run(&rig, wait_run, path);
	assert_int_equal(rig.open_result, 0);
	assert_int_equal(access(path, F_OK), -1);
	for (uint32_t i = 0; i < 3; i++)
		memory_disk(i)->away = memory_disk(i)->lost = false;
	rig_fsck(&rig);
	memory_disks_close();
	rig_dir_remove(&rig);
}

/* Of two volumes that are back the first cannot become as large as the others now. */
static void two_back(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	rig_monitor_start(rig);
	memory_disk_lose(0);
	memory_disk_lose(1);
	keys_put(rig, 100);
	for (uint32_t i = 0; i < GROW_STEPS; i++)
		assert_int_equal(space_step(rig->store), 0);
	memory_disk(0)->grow_bytes_max = 1;
	memory_disk(0)->away = memory_disk(1)->away = false;
	state_await(rig, 1, DISK_MEMBER_GOOD);
	assert_int_equal(disk_array_state(rig->store->volume.disk, 0), DISK_MEMBER_MISSING);
	memory_disk(0)->grow_bytes_max = 0;
	state_await(rig, 0, DISK_MEMBER_GOOD);
	keys_verify(rig, 100);
}

static void test_a_volume_that_cannot_be_taken_keeps_no_other_out(void **state)
{
	struct rig rig;

	(void)state;
	setup(&rig);
	rig.opts.volume = "memory://0,memory://1,memory://2,memory://3,memory://4";
	rig.opts.erasure_data = 3;
	rig.opts.erasure_parity = 2;
	rig_run(&rig, two_back, NULL);
	assert_int_equal(rig.open_result, 0);
	rig_fsck(&rig);
	memory_disks_close();
	rig_dir_remove(&rig);
}

/* ---- A version whose number was given by a group that was not written. ---- */

static uint64_t seq_of(struct rig *rig, const char *key)
{
	struct store_get *get;
	uint64_t seq;
	bool exists;

	assert_int_equal(store_get_open(rig->store, SLICE("b"), slice_str(key), &get, &exists), 0);
	seq = get->object->seq;
	store_get_close(get);
	return seq;
}

static void number_again(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("key"), 100, 1, NULL), 0);
	assert_int_equal(versioning_set(rig, "b", STORE_VERSIONING_ENABLED), 0);
	rig_monitor_start(rig);
	assert_int_equal(seq_of(rig, "key"), 0);
	memory_disk_lose(1);
	memory_disk_lose(2);
	/* The null version would get a number, and the next group gives that to another one. */
	assert_int_equal(object_put_seeded(rig, "b", SLICE("key"), 100, 2, NULL), -EHOSTDOWN);
	assert_int_equal(seq_of(rig, "key"), 0);
	memory_disk(1)->away = memory_disk(2)->away = false;
	writable_await(rig, true);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("key"), 100, 3, NULL), 0);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("key"), 100, 3), 0);
}

static void test_a_number_that_was_not_written_is_taken_back(void **state)
{
	struct rig rig;

	(void)state;
	setup(&rig);
	rig_run(&rig, number_again, NULL);
	assert_int_equal(rig.open_result, 0);
	rig_fsck(&rig);
	memory_disks_close();
	rig_dir_remove(&rig);
}

/* ---- A group that was reported as failed, and that a start would find on the medium. ---- */

static void keeps_space(struct rig *rig, void *arg)
{
	struct space *space = rig->store->space;
	uint64_t before;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("key"), SMALL, 1, NULL), 0);
	before = space_free_blocks(space);
	memory_disk_lose(1);
	memory_disk_lose(2);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("key"), SMALL, 2, NULL), -EHOSTDOWN);
	assert_int_equal(space_free_blocks(space), before - 1);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("key"), SMALL, 3, NULL), -EHOSTDOWN);
	assert_int_equal(space_free_blocks(space), before - 1);
	rig_monitor_start(rig);
	memory_disk(1)->away = memory_disk(2)->away = false;
	writable_await(rig, true);
	assert_int_equal(space_free_blocks(space), before);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("key"), SMALL, 1), 0);
}

static void test_the_bodies_of_a_group_that_failed_stay_until_the_store_goes_on(void **state)
{
	struct rig rig;

	(void)state;
	setup(&rig);
	rig_run(&rig, keeps_space, NULL);
	assert_int_equal(rig.open_result, 0);
	rig_fsck(&rig);
	memory_disks_close();
	rig_dir_remove(&rig);
}

/* ---- A put that does not end. ---- */

static void slow_put(struct rig *rig, void *arg)
{
	struct store_meta meta = {0};
	struct store_put *begun, *later;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	keys_put(rig, 100);
	rig->store->puts_wait_ns = NS_PER_MS;
	rig_monitor_start(rig);
	put_begin(rig, &begun);
	memory_disk_lose(2);
	keys_put(rig, 200);
	memory_disk(2)->away = false;
	state_await(rig, 2, DISK_MEMBER_GOOD);
	put_begin(rig, &later);
	/* The body might lack a part on the volume, which its rebuild did not see. */
	assert_int_equal(store_put_commit(begun, &meta, NULL, NULL), -EHOSTDOWN);
	assert_int_equal(store_put_commit(later, &meta, NULL, NULL), 0);
	memory_disk_lose(0);
	keys_verify(rig, 200);
	memory_disk(0)->away = false;
	state_await(rig, 0, DISK_MEMBER_GOOD);
}

static void setup_run(rig_fn *fn)
{
	struct rig rig;

	setup(&rig);
	rig_run(&rig, fn, NULL);
	assert_int_equal(rig.open_result, 0);
	rig_fsck(&rig);
	memory_disks_close();
	rig_dir_remove(&rig);
}

static void test_a_put_that_does_not_end_keeps_no_volume_out(void **state)
{
	(void)state;
	setup_run(slow_put);
}

static void volume_blips(struct rig *rig, uint32_t idx)
{
	memory_disk_lose(idx);
	state_await(rig, idx, DISK_MEMBER_MISSING);
	memory_disk(idx)->away = false;
	state_await(rig, idx, DISK_MEMBER_GOOD);
}

/* A put that was waited for once, in vain, is not waited for again. */
static void stale_put(struct rig *rig, void *arg)
{
	struct store_meta meta = {0};
	struct store_put *begun;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	rig_monitor_start(rig);
	put_begin(rig, &begun);
	rig->store->puts_wait_ns = NS_PER_MS;
	volume_blips(rig, 2);
	rig->store->puts_wait_ns = 3600 * NS_PER_S;
	volume_blips(rig, 2);
	volume_blips(rig, 1);
	volume_blips(rig, 0);
	assert_int_equal(store_put_commit(begun, &meta, NULL, NULL), -EHOSTDOWN);
	keys_put(rig, 100);
}

static void test_a_put_that_was_given_up_is_waited_for_once(void **state)
{
	(void)state;
	setup_run(stale_put);
}

/* While the monitor waits for a put, more volumes are lost and come back. */
static void lose_meanwhile(struct rig *rig, void *arg)
{
	struct store_meta meta = {0};
	struct store_put *begun;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	keys_put(rig, 100);
	rig_monitor_start(rig);
	put_begin(rig, &begun);
	rig->store->puts_wait_ns = 3600 * NS_PER_S;
	memory_disk_lose(2);
	keys_put(rig, 200);
	memory_disk(2)->away = false;
	state_await(rig, 2, DISK_MEMBER_REBUILDING);
	memory_disk_lose(0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("new"), BYTES, 1, NULL), -EHOSTDOWN);
	memory_disk(0)->away = false;
	writable_await(rig, true);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("new"), BYTES, 2, NULL), 0);
	assert_int_equal(store_put_commit(begun, &meta, NULL, NULL), -EHOSTDOWN);
	state_await(rig, 2, DISK_MEMBER_GOOD);
	memory_disk_lose(0);
	keys_verify(rig, 200);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("new"), BYTES, 2), 0);
	memory_disk(0)->away = false;
	state_await(rig, 0, DISK_MEMBER_GOOD);
}

static void test_a_put_that_does_not_end_keeps_no_store_down(void **state)
{
	(void)state;
	setup_run(lose_meanwhile);
}

/* ---- A store on one volume, in whose place another one is found. ---- */

#define SUPERS_BYTES 8192u

/* It is reached, and not taken. */
static void refused_await(struct rig *rig, const uint8_t *supers)
{
	struct memory_disk *disk = memory_disk(0);
	char why[256];

	memcpy(disk->memory, supers, SUPERS_BYTES);
	disk->away = false;
	memory_disk_await_tries(0, 2);
	assert_false(store_writable(rig->store, why, sizeof(why)));
	assert_int_equal(object_put_seeded(rig, "b", SLICE("new"), BYTES, 1, NULL), -EHOSTDOWN);
	assert_memory_equal(disk->memory, supers, SUPERS_BYTES);
	memory_disk_lose(0);
}

static void lone_strangers(struct rig *rig, void *arg)
{
	static uint8_t own[SUPERS_BYTES], supers[SUPERS_BYTES];
	struct memory_disk *disk = memory_disk(0);
	struct superblock super;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	keys_put(rig, 100);
	rig_monitor_start(rig);
	memcpy(supers, disk->memory, SUPERS_BYTES);
	rig_index_wait(rig);
	assert_int_equal(index_apply_checkpoint_now(rig->store), 0);
	memcpy(own, disk->memory, SUPERS_BYTES);
	assert_memory_not_equal(own, supers, SUPERS_BYTES);
	memory_disk_lose(0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("new"), BYTES, 1, NULL), -EHOSTDOWN);
	refused_await(rig, supers); /* an older copy */
	memset(supers, 0, SUPERS_BYTES);
	refused_await(rig, supers); /* blank */
	super = rig->store->volume.super;
	super.uuid[0]++;
	volume_super_fill(&super, supers);
	refused_await(rig, supers); /* another store's */
	memset(supers, 0xff, SUPERS_BYTES);
	refused_await(rig, supers); /* something else */
	memcpy(disk->memory, own, SUPERS_BYTES);
	disk->away = false;
	writable_await(rig, true);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("new"), BYTES, 2, NULL), 0);
	keys_verify(rig, 100);
}

static void test_the_only_volume_is_not_replaced_by_another(void **state)
{
	struct rig rig;

	(void)state;
	setup(&rig);
	rig.opts.volume = "memory://0";
	rig.opts.erasure_data = rig.opts.erasure_parity = 0;
	memory_disks_are_durable();
	rig_run(&rig, lone_strangers, NULL);
	assert_int_equal(rig.open_result, 0);
	rig_fsck(&rig);
	memory_disks_close();
	rig_dir_remove(&rig);
}

/* ---- An array that has no memory for an operation. ---- */

static uint32_t batches,
	batch_fails; /* of the reactor's thread; the number of the one that fails */

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);

void *__wrap_calloc(size_t count, size_t bytes)
{
	if (bytes == sizeof(struct array_batch) && reactor_self() && ++batches == batch_fails)
		return NULL;
	return __real_calloc(count, bytes);
}

static int put_failing(struct rig *rig, const char *key, uint32_t number)
{
	batches = 0;
	batch_fails = number;
	return object_put_seeded(rig, "b", slice_str(key), 5 * MIB, 1, NULL);
}

static void lacks_memory(struct rig *rig, void *arg)
{
	uint64_t epoch = rig->store->volume.super.epoch;
	uint32_t count;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	/* The last three are the flush of its body, the write of the log, and the group's flush. */
	assert_int_equal(put_failing(rig, "key", 0), 0);
	count = batches;
	assert_int_equal(put_failing(rig, "flush", count - 2), -ENOMEM);
	assert_true(writable(rig));
	assert_int_equal(put_failing(rig, "log", count - 1), -EHOSTDOWN);
	assert_false(writable(rig));
	assert_false(atomic_load(&rig->store->fenced));
	rig_monitor_start(rig);
	writable_await(rig, true);
	/* The whole group is on the volumes. */
	assert_int_equal(put_failing(rig, "last", count), -EHOSTDOWN);
	writable_await(rig, true);
	assert_int_equal(rig->store->volume.super.epoch, epoch + 2);
	assert_int_equal(disk_array_lost(rig->store->volume.disk), 0);
}

static void lacked_memory(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("key"), 5 * MIB, 1), 0);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("last"), 5 * MIB, 1), -ENOENT);
}

static void test_a_lack_of_memory_is_no_failed_volume(void **state)
{
	struct rig rig;

	(void)state;
	setup(&rig);
	rig_run(&rig, lacks_memory, NULL);
	assert_int_equal(rig.open_result, 0);
	rig_run(&rig, lacked_memory, NULL);
	assert_int_equal(rig.open_result, 0);
	rig_fsck(&rig);
	memory_disks_close();
	rig_dir_remove(&rig);
}

/* ---- The last owner writes superblocks until this one has the volumes. ---- */

static uint8_t supers_last[3][SUPERS_BYTES], supers_before[3][SUPERS_BYTES];
static uint64_t generation_last;

static void supers_copy(uint8_t supers[3][SUPERS_BYTES])
{
	for (uint32_t i = 0; i < 3; i++)
		memcpy(supers[i], memory_disk(i)->memory, SUPERS_BYTES);
}

static void last_owner_ends(void)
{
	for (uint32_t i = 0; i < 3; i++)
		memcpy(memory_disk(i)->memory, supers_last[i], SUPERS_BYTES);
}

static void first_owner(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	supers_copy(supers_before);
	memory_disk_lose(2);
	keys_put(rig, 100);
	rig_index_wait(rig);
	assert_int_equal(index_apply_checkpoint_now(rig->store), 0);
}

static void next_owner(struct rig *rig, void *arg)
{
	(void)arg;
	assert_true(rig->store->volume.super.generation >= generation_last);
	/* This one missed them, as only the last superblocks say. */
	assert_int_equal(disk_array_state(rig->store->volume.disk, 2), DISK_MEMBER_REBUILDING);
	keys_verify(rig, 100);
}

static void test_a_start_counts_what_the_last_owner_wrote_meanwhile(void **state)
{
	struct superblock super;
	struct rig rig;

	(void)state;
	setup(&rig);
	rig_run(&rig, first_owner, NULL);
	assert_int_equal(rig.open_result, 0);
	assert_int_equal(volume_super_read("memory://0", false, &super), 0);
	generation_last = super.generation;
	supers_copy(supers_last);
	for (uint32_t i = 0; i < 3; i++)
		memcpy(memory_disk(i)->memory, supers_before[i], SUPERS_BYTES);
	memory_disk(2)->away = memory_disk(2)->lost = false;
	memory_disk(1)->opening = last_owner_ends;
	rig_run(&rig, next_owner, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

/* ---- Requests have all fibers that they may have. ---- */

struct crowd {
	struct fiber *fibers[LIMIT_FIBERS_MAX];
	uint32_t count;
	bool gone;
};

static void crowd_fiber(void *arg)
{
	struct crowd *crowd = (struct crowd *)arg;

	crowd->fibers[crowd->count++] = fiber_self();
	while (!crowd->gone)
		fiber_park();
}

static void crowded(struct rig *rig, void *arg)
{
	const struct disk *disk = rig->store->volume.disk;
	struct crowd *crowd = (struct crowd *)arg;
	uint64_t bytes = disk_bytes(disk);
	uint32_t spawned = 0;

	assert_int_equal(bucket_make(rig->store, "b"), 0);
	while (fiber_spawn(reactor_self(), "crowd", crowd_fiber, crowd) == 0)
		spawned++;
	while (crowd->count < spawned)
		fiber_yield();
	/* The writes of a body and of the log; a body that its put flushes; growing; reads. */
	keys_put(rig, 100);
	for (uint32_t i = 0; i < 40 && disk_bytes(disk) == bytes; i++) {
		char key[32];

		snprintf(key, sizeof(key), "large%u", i);
		assert_int_equal(object_put_seeded(rig, "b", slice_str(key), 5 * MIB, 1, NULL), 0);
	}
	assert_true(disk_bytes(disk) > bytes);
	keys_verify(rig, 100);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("large0"), 5 * MIB, 1), 0);
	assert_true(writable(rig));
	crowd->gone = true;
	for (uint32_t i = 0; i < crowd->count; i++)
		fiber_wake(crowd->fibers[i]);
}

static void test_many_requests_take_no_fiber_from_the_volumes(void **state)
{
	struct crowd *crowd = (struct crowd *)calloc(1, sizeof(*crowd));
	struct rig rig;

	(void)state;
	setup(&rig);
	rig_run(&rig, crowded, crowd);
	assert_int_equal(rig.open_result, 0);
	rig_fsck(&rig);
	memory_disks_close();
	rig_dir_remove(&rig);
	free(crowd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_store_goes_on_when_enough_volumes_are_back),
		cmocka_unit_test(test_a_blank_volume_is_none_of_the_good_ones),
		cmocka_unit_test(test_memory_buckets_go_on),
		cmocka_unit_test(test_a_blank_volume_that_grows_keeps_nothing_up),
		cmocka_unit_test(test_a_volume_that_is_added_keeps_nothing_up),
		cmocka_unit_test(test_a_file_that_was_not_added_is_removed),
		cmocka_unit_test(test_a_volume_that_cannot_be_taken_keeps_no_other_out),
		cmocka_unit_test(test_a_number_that_was_not_written_is_taken_back),
		cmocka_unit_test(
			test_the_bodies_of_a_group_that_failed_stay_until_the_store_goes_on),
		cmocka_unit_test(test_a_put_that_does_not_end_keeps_no_volume_out),
		cmocka_unit_test(test_a_put_that_was_given_up_is_waited_for_once),
		cmocka_unit_test(test_a_put_that_does_not_end_keeps_no_store_down),
		cmocka_unit_test(test_the_only_volume_is_not_replaced_by_another),
		cmocka_unit_test(test_a_lack_of_memory_is_no_failed_volume),
		cmocka_unit_test(test_a_start_counts_what_the_last_owner_wrote_meanwhile),
		cmocka_unit_test(test_many_requests_take_no_fiber_from_the_volumes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
