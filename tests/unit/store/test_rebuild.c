/* tests/unit/store/test_rebuild.c: a rebuild also finds rows that move to places that its walk has
 * passed. The rebuilt volume has the right data, also if another is lost afterwards. */
#include "../log_catch.h"
#include "memory_disk.h"
#include "rig.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/space/space.h"
#include "store/store_priv.h"

#define KEYS	     600u  /* more than a batch of the walk */
#define BYTES	     8192u /* a block of each of two volumes, and one of parity */
#define WRITTEN_ANEW 2u

static int versioning_on(struct store_bucket *bucket, void *arg)
{
	(void)arg;
	bucket->versioning = STORE_VERSIONING_ENABLED;
	return 0;
}

static void put_one(struct rig *rig, const char *bucket, const char *key, uint64_t seed)
{
	assert_int_equal(object_put_seeded(rig, bucket, slice_str(key), BYTES, seed, NULL), 0);
}

static void expect_one(struct rig *rig, const char *bucket, const char *key, uint64_t seed)
{
	assert_int_equal(object_verify_seeded(rig, bucket, slice_str(key), BYTES, seed), 0);
}

/* Two keys with two versions each (the older version of one is a null version) in the bucket whose
 * rows come first; many keys in the other bucket. */
static void fill(struct rig *rig, void *arg)
{
	const struct store_name name = {.bucket = SLICE("versions")};
	char key[32];

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "versions"), 0);
	assert_int_equal(bucket_make(rig->store, "plain"), 0);
	put_one(rig, "versions", "null", 1);
	assert_int_equal(store_bucket_edit(rig->store, name.bucket, versioning_on, NULL), 0);
	put_one(rig, "versions", "null", 2);
	put_one(rig, "versions", "older", 3);
	put_one(rig, "versions", "older", 4);
	for (uint32_t i = 0; i < KEYS; i++) {
		snprintf(key, sizeof(key), "k%04u", i);
		put_one(rig, "plain", key, 100 + i);
	}
}

static void rename_one(struct rig *rig, const char *from, const char *to)
{
	const struct store_name name = {.bucket = SLICE("plain"), .key = slice_str(from)};
	const struct store_condition none = {0};
	struct store_get *get;
	bool exists;

	assert_int_equal(store_get_open(rig->store, name.bucket, name.key, &get, &exists), 0);
	assert_int_equal(store_rename(rig->store, &name, get, slice_str(to), SLICE_NONE, none), 0);
	store_get_close(get);
}

static void newest_delete(struct rig *rig, const char *key)
{
	struct store_deletion deletion = {.key = slice_str(key)};
	struct store_get *get;
	bool exists;

	assert_int_equal(
		store_get_open(rig->store, SLICE("versions"), deletion.key, &get, &exists), 0);
	deletion.version_id = slice_str(store_get_meta(get)->version_id);
	assert_int_equal(store_delete_each(rig->store, SLICE("versions"), 0, &deletion, 1), 0);
	assert_int_equal(deletion.result, 0);
	store_get_close(get);
}

struct rebuilding {
	struct rig *rig;
	struct fiber *waiter;
	bool done;
	int ret;
};

static void rebuild_fiber(void *arg)
{
	struct rebuilding *rebuilding = (struct rebuilding *)arg;

	rebuilding->ret = store_rebuild(rebuilding->rig->store);
	rebuilding->done = true;
	fiber_wake(rebuilding->waiter);
}

/* The index thread may have this lock for long. A rebuild that took it on its event loop, which has
 * it here, would wait for ever. */
static void noted_keep(struct rig *rig)
{
	pthread_mutex_lock(&rig->store->noted->lock);
	fiber_yield();
	pthread_mutex_unlock(&rig->store->noted->lock);
}

/* Stops the walk at the first stripe of its first batch. Meanwhile rows of older bodies move to
 * places that the walk has passed, and blocks are freed and used again. */
static void rebuild_and_move(struct rig *rig, void *arg)
{
	struct rebuilding rebuilding = {.rig = rig, .waiter = fiber_self()};
	char key[32];

	(void)arg;
	assert_int_equal(disk_array_state(rig->store->volume.disk, 2), DISK_MEMBER_REBUILDING);
	memory_disk(2)->hold = true;
	assert_int_equal(fiber_spawn(reactor_self(), "rebuild", rebuild_fiber, &rebuilding), 0);
	noted_keep(rig);
	memory_disk_await_held(2);
	for (uint32_t i = KEYS - 8; i < KEYS; i++) {
		char to[40];

		snprintf(key, sizeof(key), "k%04u", i);
		snprintf(to, sizeof(to), "a/%s", key);
		rename_one(rig, key, to);
	}
	/* One key moves twice, and one body gets a row of its own. */
	rename_one(rig, "a/k0599", "a/again");
	newest_delete(rig, "older");
	newest_delete(rig, "null");
	assert_int_equal(index_apply_settle(rig->store), 0);
	memory_disk_let_go(2);
	for (uint32_t i = 0; i < WRITTEN_ANEW; i++) {
		snprintf(key, sizeof(key), "k%04u", i);
		assert_int_equal(
			store_delete(rig->store, SLICE("plain"), slice_str(key), NULL, NULL), 0);
		put_one(rig, "plain", key, 900 + i);
	}
	while (!rebuilding.done)
		fiber_park();
	assert_int_equal(rebuilding.ret, 0);
	assert_int_equal(disk_array_state(rig->store->volume.disk, 2), DISK_MEMBER_GOOD);
}

static void verify(struct rig *rig, void *arg)
{
	char key[40];

	(void)arg;
	assert_int_equal(disk_array_state(rig->store->volume.disk, 0), DISK_MEMBER_MISSING);
	expect_one(rig, "versions", "null", 1);
	expect_one(rig, "versions", "older", 3);
	expect_one(rig, "plain", "a/again", 100 + KEYS - 1);
	for (uint32_t i = 0; i < KEYS - 1; i++) {
		snprintf(key, sizeof(key), i < KEYS - 8 ? "k%04u" : "a/k%04u", i);
		expect_one(rig, "plain", key, i < WRITTEN_ANEW ? 900 + i : 100 + i);
	}
}

static void test_rows_that_move_are_rebuilt(void **state)
{
	struct rig rig;
	char volumes[3000];

	(void)state;
	rig_init(&rig, 1);
	snprintf(volumes, sizeof(volumes), "%s/m0,%s/m1,memory://2", rig.dir, rig.dir);
	rig.opts.volume = volumes;
	rig.opts.erasure_data = 2;
	rig.opts.erasure_parity = 1;
	rig.opts.inline_bytes_max = UINT32_MAX;
	memory_disks_open();
	rig_run(&rig, fill, NULL);
	assert_int_equal(rig.open_result, 0);

	memory_disk_blank(2);
	rig_run(&rig, rebuild_and_move, NULL);
	assert_int_equal(rig.open_result, 0);

	snprintf(volumes, sizeof(volumes), "%s/m0", rig.dir);
	assert_int_equal(unlink(volumes), 0);
	rig.opts.volume = NULL;
	rig_run(&rig, verify, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

/* ---- More rows than can be noted at a time. ---- */

#define LONG_KEYS  2000u
#define LONG_BYTES 700u /* of a key: the index thread must wait while it notes them all */
#define LONG_LANES 50u

static const char *long_key(char key[LONG_BYTES + 1], char first, uint32_t idx)
{
	memset(key, first, LONG_BYTES);
	snprintf(key + LONG_BYTES - 4, 5, "%04u", idx);
	return key;
}

static void long_put(struct rig *rig, void *arg)
{
	char key[LONG_BYTES + 1];

	for (uint32_t i = *(const uint32_t *)arg; i < LONG_KEYS; i += LONG_LANES)
		put_one(rig, "plain", long_key(key, 'k', i), 1 + i);
}

static void long_rename(struct rig *rig, void *arg)
{
	char from[LONG_BYTES + 1], to[LONG_BYTES + 1];

	for (uint32_t i = *(const uint32_t *)arg; i < LONG_KEYS; i += LONG_LANES)
		rename_one(rig, long_key(from, 'k', i), long_key(to, 'a', i));
}

static void lanes_run(struct rig *rig, rig_fn *fn)
{
	uint32_t lanes[LONG_LANES];

	for (uint32_t i = 0; i < LONG_LANES; i++)
		lanes[i] = i;
	rig_fibers(rig, LONG_LANES, fn, lanes, sizeof(lanes[0]));
}

static void long_fill(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(bucket_make(rig->store, "plain"), 0);
	lanes_run(rig, long_put);
}

static size_t noted_bytes(struct store *store)
{
	size_t bytes;

	pthread_mutex_lock(&store->noted->lock);
	bytes = store->noted->keys.len;
	pthread_mutex_unlock(&store->noted->lock);
	return bytes;
}

static void long_rebuild(struct rig *rig, void *arg)
{
	struct rebuilding rebuilding = {.rig = rig, .waiter = fiber_self()};

	(void)arg;
	memory_disk(2)->hold = true;
	assert_int_equal(fiber_spawn(reactor_self(), "rebuild", rebuild_fiber, &rebuilding), 0);
	memory_disk_await_held(2);
	lanes_run(rig, long_rename);
	/* From there on the index thread waits. */
	while (noted_bytes(rig->store) <= MIB)
		fiber_sleep_ns(NS_PER_MS);
	memory_disk_let_go(2);
	while (!rebuilding.done)
		fiber_park();
	assert_int_equal(rebuilding.ret, 0);
}

static void long_verify(struct rig *rig, void *arg)
{
	char key[LONG_BYTES + 1];

	(void)arg;
	for (uint32_t i = 0; i < LONG_KEYS; i++)
		expect_one(rig, "plain", long_key(key, 'a', i), 1 + i);
}

static void test_the_index_waits_for_the_walk(void **state)
{
	char volumes[3000];
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	snprintf(volumes, sizeof(volumes), "%s/m0,memory://1,memory://2", rig.dir);
	rig.opts.volume = volumes;
	rig.opts.erasure_data = 2;
	rig.opts.erasure_parity = 1;
	rig.opts.inline_bytes_max = UINT32_MAX;
	rig.opts.log_bytes = 32 * MIB;
	memory_disks_open();
	rig_run(&rig, long_fill, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disk_blank(2);
	rig_run(&rig, long_rebuild, NULL);
	assert_int_equal(rig.open_result, 0);
	snprintf(volumes, sizeof(volumes), "%s/m0", rig.dir);
	assert_int_equal(unlink(volumes), 0);
	rig.opts.volume = NULL;
	rig_run(&rig, long_verify, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

/* ---- Before a walk begins. ---- */

static void delete_fiber(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(store_delete(rig->store, SLICE("plain"), SLICE("k0000"), NULL, NULL), 0);
}

static void barrier_fiber(struct rig *rig, void *arg)
{
	memory_disk_await_held(0);
	commit_barrier(rig->store);
	*(bool *)arg = true;
}

static void let_go_fiber(struct rig *rig, void *arg)
{
	(void)rig;
	memory_disk_await_held(0);
	for (uint32_t i = 0; i < 100; i++)
		fiber_yield();
	assert_false(*(bool *)arg);
	memory_disk_let_go(0);
}

struct step {
	rig_fn *fn;
	void *arg;
};

static void step_run(struct rig *rig, void *arg)
{
	const struct step *step = (const struct step *)arg;

	step->fn(rig, step->arg);
}

static void barrier_run(struct rig *rig, void *arg)
{
	bool passed = false;
	struct step steps[] = {
		{delete_fiber, NULL}, {barrier_fiber, &passed}, {let_go_fiber, &passed}};

	fill(rig, arg);
	memory_disk(0)->hold = true;
	rig_fibers(rig, 3, step_run, steps, sizeof(steps[0]));
	assert_true(passed);
}

/* A group that skips a volume which has come back must end before the walk starts. */
static void test_a_barrier_waits_for_the_group_before_it(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.volume = "memory://0,memory://1,memory://2";
	rig.opts.erasure_data = 2;
	rig.opts.erasure_parity = 1;
	memory_disks_open();
	rig_run(&rig, barrier_run, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

/* ---- A blank volume in the place of a missing one that cannot be taken. ---- */

static void refused_run(struct rig *rig, void *arg)
{
	struct memory_disk *disk = memory_disk(2);

	(void)arg;
	assert_int_equal(disk->handles, 0);
	assert_int_equal(disk_array_lost(rig->store->volume.disk), 1u << 2);
	disk->attach_result = -ENOMEM;
	disk->away = disk->lost = false;
	rig_monitor_start(rig);
	while (!rig->store->volume.paths_refused)
		fiber_sleep_ns(NS_PER_MS);
	assert_int_equal(disk_array_lost(rig->store->volume.disk), 1u << 2);
	assert_int_equal(rig->store->volume.path_of[2], STRIPE_PATH_NONE);
	assert_int_equal(bucket_make(rig->store, "b"), 0);
}

static void test_a_disk_that_cannot_be_taken_is_closed(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.volume = "memory://0,memory://1,memory://2";
	rig.opts.erasure_data = 2;
	rig.opts.erasure_parity = 1;
	memory_disks_open();
	rig_run(&rig, NULL, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disk_blank(2);
	memory_disk_lose(2);
	rig_run(&rig, refused_run, NULL);
	assert_int_equal(rig.open_result, 0);
	for (uint32_t i = 0; i < MEMORY_DISKS; i++)
		assert_int_equal(memory_disk(i)->handles, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

/* ---- A missing volume that is found, and out of reach when it is opened. ---- */

static void busy_run(struct rig *rig, void *arg)
{
	struct memory_disk *disk = memory_disk(2);

	disk->open_result = *(const int *)arg;
	disk->away = disk->lost = false;
	rig_monitor_start(rig);
	while (disk_array_state(rig->store->volume.disk, 2) != DISK_MEMBER_GOOD) {
		assert_int_equal(rig->store->volume.paths_refused, 0);
		fiber_sleep_ns(NS_PER_MS);
	}
	assert_int_equal(disk->open_result, 0);
	/* The log says once that it is busy. */
	assert_true(disk->probe);
	assert_int_equal(rig->store->volume.path_told[2], 0);
	/* While a volume is waited for, nobody sees whether the others are lost. */
	assert_int_equal(disk->lock_wait_ns, 0);
}

static void test_a_volume_out_of_reach_is_tried_again(void **state)
{
	static int results[] = {-EHOSTUNREACH, -EBUSY};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(results); i++) {
		struct rig rig;

		rig_init(&rig, 1);
		rig.opts.volume = "memory://0,memory://1,memory://2";
		rig.opts.erasure_data = 2;
		rig.opts.erasure_parity = 1;
		memory_disks_open();
		rig_run(&rig, NULL, NULL);
		assert_int_equal(rig.open_result, 0);
		memory_disk_lose(2);
		rig_run(&rig, busy_run, &results[i]);
		assert_int_equal(rig.open_result, 0);
		memory_disks_close();
		rig_dir_remove(&rig);
	}
}

/* ---- A blank volume of another host that takes long to grow is tried again, and in steps. ---- */

#define SLOW_STEPS 4u

static void steps_run(struct rig *rig, void *arg)
{
	(void)arg;
	for (uint32_t i = 0; i < SLOW_STEPS; i++)
		assert_int_equal(space_step(rig->store), 0);
}

static void slow_run(struct rig *rig, void *arg)
{
	(void)arg;
	memory_disk(2)->away = memory_disk(2)->lost = false;
	memory_disk(2)->grow_bytes_max = rig->opts.step_bytes;
	memory_disk(2)->grows_lost = 1;
	rig_monitor_start(rig);
	while (disk_array_state(rig->store->volume.disk, 2) != DISK_MEMBER_GOOD)
		fiber_sleep_ns(NS_PER_MS);
	assert_int_equal(memory_disk(2)->bytes, memory_disk(0)->bytes);
}

static void test_a_disk_grows_in_steps(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.volume = "memory://0,memory://1,memory://2";
	rig.opts.erasure_data = 2;
	rig.opts.erasure_parity = 1;
	memory_disks_open();
	rig_run(&rig, steps_run, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disk_blank(2);
	memory_disk_lose(2);
	rig_run(&rig, slow_run, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

/* ---- A missing volume whose path is no longer known is replaced. ---- */

static void paths_expect(const struct rig *rig, const char *path, bool there)
{
	char name[600], text[1024];
	FILE *file;

	snprintf(name, sizeof(name), "%s/volumes", rig->dir);
	file = fopen(name, "re");
	assert_non_null(file);
	text[fread(text, 1, sizeof(text) - 1, file)] = 0;
	fclose(file);
	assert_int_equal(strstr(text, path) != NULL, there);
}

/* No store is made in the place of one whose list cannot be read. */
static void test_a_list_that_cannot_be_read_is_an_error(void **state)
{
	struct rig rig;
	char path[600];

	(void)state;
	rig_init(&rig, 1);
	snprintf(path, sizeof(path), "%s/volumes", rig.dir);
	assert_int_equal(mkdir(path, 0700), 0);
	rig_run(&rig, NULL, NULL);
	assert_int_equal(rig.open_result, -EISDIR);
	snprintf(path, sizeof(path), "%s/volume", rig.dir);
	assert_int_equal(access(path, F_OK), -1);
	snprintf(path, sizeof(path), "%s/volumes", rig.dir);
	assert_int_equal(rmdir(path), 0);
	rig_dir_remove(&rig);
}

static void pathless_run(struct rig *rig, void *arg)
{
	struct store *store = rig->store;

	(void)arg;
	assert_int_equal(disk_array_state(store->volume.disk, 2), DISK_MEMBER_MISSING);
	assert_int_equal(store->volume.set_count, 2);
	assert_int_equal(store_volume_replace(store, 2, "memory://1"), -EEXIST);
	assert_int_equal(store_volume_replace(store, 2, "memory://3"), 0);
	rig_monitor_start(rig);
	while (store->volume.replace_path)
		fiber_sleep_ns(NS_PER_MS);
	assert_int_equal(store->volume.set_count, 3);
	while (disk_array_state(store->volume.disk, 2) != DISK_MEMBER_GOOD)
		fiber_sleep_ns(NS_PER_MS);
	paths_expect(rig, "memory://3", true);
}

static void test_a_volume_without_a_path_is_replaced(void **state)
{
	char name[600];
	struct rig rig;
	FILE *file;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.volume = "memory://0,memory://1,memory://2";
	rig.opts.erasure_data = 2;
	rig.opts.erasure_parity = 1;
	memory_disks_open();
	rig_run(&rig, NULL, NULL);
	assert_int_equal(rig.open_result, 0);
	paths_expect(&rig, "memory://3", false);
	snprintf(name, sizeof(name), "%s/volumes", rig.dir);
	file = fopen(name, "we");
	assert_non_null(file);
	fprintf(file, "memory://0\nmemory://1\n");
	fclose(file);
	rig.opts.volume = NULL;
	rig_run(&rig, pathless_run, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

/* ---- The log says why a volume is not taken, also when it told of another one before. ---- */

static void told_await(const struct rig *rig, const struct memory_disk *disk)
{
	while (disk->open_result ||
		disk_array_state(rig->store->volume.disk, 2) != DISK_MEMBER_GOOD)
		fiber_sleep_ns(NS_PER_MS);
}

static void told_run(struct rig *rig, void *arg)
{
	struct volume *volume = &rig->store->volume;

	(void)arg;
	/* It could not be reached before; now it can, and is in use. */
	volume->path_told[2] = -EHOSTUNREACH;
	memory_disk(2)->open_result = -EBUSY;
	memory_disk(2)->away = memory_disk(2)->lost = false;
	log_catch();
	rig_monitor_start(rig);
	told_await(rig, memory_disk(2));
	assert_non_null(strstr(log_caught(), "memory://2 cannot be volume 2: Device or resource"));
	/* Another in its place, after it was in use. */
	volume->path_told[2] = -EBUSY;
	memory_disk(3)->open_result = -EBUSY;
	log_catch();
	assert_int_equal(store_volume_replace(rig->store, 2, "memory://3"), 0);
	while (volume->replace_path)
		fiber_sleep_ns(NS_PER_MS);
	told_await(rig, memory_disk(3));
	assert_non_null(strstr(log_caught(), "memory://3 cannot be volume 2: Device or resource"));
	/* One that was refused can be named again. */
	memory_disk(4)->open_result = -EINVAL;
	assert_int_equal(store_volume_replace(rig->store, 2, "memory://4"), 0);
	while (!volume->paths_refused)
		fiber_sleep_ns(NS_PER_MS);
	assert_int_equal(store_volume_replace(rig->store, 2, "memory://4"), 0);
	while (volume->replace_path)
		fiber_sleep_ns(NS_PER_MS);
	told_await(rig, memory_disk(4));
	assert_int_equal(volume->set_count, 3);
}

static void test_the_log_says_why_a_volume_is_not_taken(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.volume = "memory://0,memory://1,memory://2";
	rig.opts.erasure_data = 2;
	rig.opts.erasure_parity = 1;
	memory_disks_open();
	rig_run(&rig, NULL, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disk_lose(2);
	rig_run(&rig, told_run, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

/* ---- A volume that comes back with something else on it. ---- */

static void strange_run(struct rig *rig, void *arg)
{
	struct memory_disk *disk = memory_disk(2);
	const char *log;

	(void)arg;
	log_catch();
	rig_monitor_start(rig);
	memory_disk_lose(2);
	while (disk_array_state(rig->store->volume.disk, 2) != DISK_MEMBER_MISSING)
		fiber_sleep_ns(NS_PER_MS);
	memset(disk->memory, 0, 8192);
	memcpy(disk->memory, "XFSB", 4);
	disk->away = false;
	/* It is looked at again and again. */
	memory_disk_await_tries(2, 4);
	log = log_caught();
	assert_int_equal(log_count(log, "memory://2: it holds an XFS file system"), 1);
	assert_int_equal(disk_array_state(rig->store->volume.disk, 2), DISK_MEMBER_MISSING);
	memory_disk_lose(2);
	memory_disk_await_tries(2, 2);
	memory_disk_blank(2);
	disk->away = false;
	while (disk_array_state(rig->store->volume.disk, 2) != DISK_MEMBER_GOOD)
		fiber_sleep_ns(NS_PER_MS);
	assert_int_equal(rig->store->volume.member_told[2], 0);
}

static void test_the_log_says_once_what_a_volume_came_back_with(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.volume = "memory://0,memory://1,memory://2";
	rig.opts.erasure_data = 2;
	rig.opts.erasure_parity = 1;
	memory_disks_open();
	rig_run(&rig, strange_run, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

/* ---- A volume that has wrong bytes and does not take the right ones: a scrub leaves what the
 * others have. ---- */

#define STUCK_BYTES 300001u /* several pieces, and a short end */

static void stuck_fill(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(bucket_make(rig->store, "plain"), 0);
	assert_int_equal(object_put_seeded(rig, "plain", SLICE("k"), STUCK_BYTES, 1, NULL), 0);
}

/* Spoils a byte of the body's beginning on the volume that has it. */
static void stuck_spoil(int32_t result)
{
	struct memory_disk *disk;
	uint8_t body[4096];
	uint64_t at;

	body_fill(body, sizeof(body), 1);
	disk = memory_disk_find(body, sizeof(body), &at);
	disk->memory[at + 100] ^= 0xff;
	disk->stuck_at = at + 100;
	disk->stuck_result = result;
}

static void scrub_fiber(void *arg)
{
	static const struct store_scrub_opts OPTS = {.bytes_per_s = 1024 * MIB};

	store_scrub_run(((struct rig *)arg)->store, &OPTS);
}

static void stuck_scrub(struct rig *rig, void *arg)
{
	struct store_scrub before, after;

	(void)arg;
	store_scrub_status(rig->store, &before);
	assert_int_equal(fiber_spawn(reactor_self(), "scrub", scrub_fiber, rig), 0);
	assert_int_equal(store_scrub_ask(rig->store), 0);
	do {
		fiber_sleep_ns(NS_PER_MS);
		store_scrub_status(rig->store, &after);
	} while (after.running);
	assert_int_equal(after.runs - before.runs, 1);
	assert_int_equal(after.damaged - before.damaged, 1);
	assert_int_equal(after.mended - before.mended, 0);
	assert_int_equal(after.parity_mended - before.parity_mended, 0);
	assert_int_equal(object_verify_seeded(rig, "plain", SLICE("k"), STUCK_BYTES, 1), 0);
}

static void stuck_verify(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(object_verify_seeded(rig, "plain", SLICE("k"), STUCK_BYTES, 1), 0);
}

static void test_a_scrub_keeps_to_data_that_is_right(void **state)
{
	static const int32_t RESULTS[] = {-EIO, 0};

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(RESULTS); i++) {
		struct rig rig;

		rig_init(&rig, 1);
		rig.opts.volume = "memory://0,memory://1,memory://2";
		rig.opts.erasure_data = 2;
		rig.opts.erasure_parity = 1;
		memory_disks_open();
		rig_run(&rig, stuck_fill, NULL);
		assert_int_equal(rig.open_result, 0);
		stuck_spoil(RESULTS[i]);
		rig_run(&rig, stuck_scrub, NULL);
		assert_int_equal(rig.open_result, 0);
		rig_run(&rig, stuck_verify, NULL);
		assert_int_equal(rig.open_result, 0);
		rig_fsck(&rig);
		memory_disks_close();
		rig_dir_remove(&rig);
	}
}

/* ---- A volume that has wrong bytes while another is rebuilt: the rebuilt one has right ones. ----
 */

#define JOINED_BYTES 200003u
#define TAIL_BYTES   512u

static void rotten_fill(struct rig *rig, void *arg)
{
	stuck_fill(rig, arg);
	assert_int_equal(bucket_make(rig->store, "parts"), 0);
	assert_int_equal(object_join_seeded(rig, "plain", SLICE("joined"), JOINED_BYTES, 2, 2), 0);
}

/* Spoils a byte of the body on the volume that has it; returns the volume's bit. */
static uint32_t rotten_spoil(const uint8_t *body, size_t bytes)
{
	uint64_t at;
	struct memory_disk *disk = memory_disk_find(body, bytes, &at);

	disk->memory[at + 100] ^= 0xff;
	return 1u << (disk - memory_disk(0));
}

struct rotten {
	uint32_t rebuilt, lost;
};

static void rotten_rebuild(struct rig *rig, void *arg)
{
	const struct rotten *rotten = (const struct rotten *)arg;
	struct disk *disk = rig->store->volume.disk;

	assert_int_equal(disk_array_state(disk, rotten->rebuilt), DISK_MEMBER_REBUILDING);
	assert_int_equal(store_rebuild(rig->store), 0);
	assert_int_equal(disk_array_state(disk, rotten->rebuilt), DISK_MEMBER_GOOD);
	memory_disk_lose(rotten->lost);
	assert_int_equal(object_verify_seeded(rig, "plain", SLICE("k"), STUCK_BYTES, 1), 0);
	assert_int_equal(object_verify_seeded(rig, "plain", SLICE("joined"), JOINED_BYTES, 2), 0);
}

static void test_a_rebuild_does_not_spread_wrong_bytes(void **state)
{
	uint8_t *body = (uint8_t *)malloc(STUCK_BYTES);
	struct rotten rotten;
	uint32_t others;
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.volume = "memory://0,memory://1,memory://2,memory://3,memory://4";
	rig.opts.erasure_data = 3;
	rig.opts.erasure_parity = 2;
	memory_disks_open();
	rig_run(&rig, rotten_fill, NULL);
	assert_int_equal(rig.open_result, 0);
	/* The joined body's row does not say how long its last piece is. */
	body_fill(body, STUCK_BYTES, 1);
	others = 0x1f & ~rotten_spoil(body, BLOCK_BYTES);
	body_fill(body, JOINED_BYTES, 2);
	others &= ~rotten_spoil(body + JOINED_BYTES - TAIL_BYTES, TAIL_BYTES);
	free(body);
	rotten.rebuilt = (uint32_t)__builtin_ctz(others);
	rotten.lost = (uint32_t)__builtin_ctz(others & (others - 1));
	memory_disk_blank(rotten.rebuilt);
	rig_run(&rig, rotten_rebuild, &rotten);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

/* ---- Another volume is lost after a replacement was accepted. ---- */

static void spared_run(struct rig *rig, void *arg)
{
	struct store *store = rig->store;

	(void)arg;
	assert_int_equal(store_volume_replace(store, 2, "memory://3"), 0);
	memory_disk_lose(1);
	rig_monitor_start(rig);
	while (store->volume.replace_path ||
		disk_array_state(store->volume.disk, 1) != DISK_MEMBER_MISSING)
		fiber_sleep_ns(NS_PER_MS);
	assert_int_equal(disk_array_state(store->volume.disk, 2), DISK_MEMBER_GOOD);
	assert_int_equal(bucket_make(store, "b"), 0);
}

static void test_a_volume_that_is_needed_is_not_replaced(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.volume = "memory://0,memory://1,memory://2";
	rig.opts.erasure_data = 2;
	rig.opts.erasure_parity = 1;
	memory_disks_open();
	rig_run(&rig, spared_run, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_barrier_waits_for_the_group_before_it),
		cmocka_unit_test(test_rows_that_move_are_rebuilt),
		cmocka_unit_test(test_the_index_waits_for_the_walk),
		cmocka_unit_test(test_a_disk_that_cannot_be_taken_is_closed),
		cmocka_unit_test(test_a_volume_out_of_reach_is_tried_again),
		cmocka_unit_test(test_a_disk_grows_in_steps),
		cmocka_unit_test(test_a_list_that_cannot_be_read_is_an_error),
		cmocka_unit_test(test_a_volume_without_a_path_is_replaced),
		cmocka_unit_test(test_the_log_says_why_a_volume_is_not_taken),
		cmocka_unit_test(test_the_log_says_once_what_a_volume_came_back_with),
		cmocka_unit_test(test_a_scrub_keeps_to_data_that_is_right),
		cmocka_unit_test(test_a_rebuild_does_not_spread_wrong_bytes),
		cmocka_unit_test(test_a_volume_that_is_needed_is_not_replaced),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
