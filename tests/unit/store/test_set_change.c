/* tests/unit/store/test_set_change.c: the set of volumes changes while the store is open: volumes
 * are added and removed, bodies move, and after a crash at any step the store opens with all
 * bodies. */
#include "memory_disk.h"
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "store/check/set_change.h"
#include "store/commit/index_apply.h"
#include "store/space/space.h"
#include "store/store_priv.h"

#define SMALL	  60u
#define LARGE_MIB 70u /* two segments */
#define STEP_NS	  (5 * NS_PER_MS)
#define STEPS_MAX 12000u

static int versioning_on(struct store_bucket *bucket, void *arg)
{
	(void)arg;
	bucket->versioning = STORE_VERSIONING_ENABLED;
	return 0;
}

static uint64_t small_bytes(uint32_t i)
{
	return i % 3 == 0 ? 5000 : i % 3 == 1 ? 70000 : 1300000;
}

static void small_put(struct rig *rig, uint32_t i, uint64_t seed)
{
	char key[32];

	snprintf(key, sizeof(key), "k%04u", i);
	assert_int_equal(
		object_put_seeded(rig, "b", slice_str(key), small_bytes(i), seed, NULL), 0);
}

static void fill(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(bucket_make(rig->store, "v"), 0);
	assert_int_equal(bucket_make(rig->store, "parts"), 0);
	assert_int_equal(object_put_seeded(rig, "v", SLICE("key"), 9000, 1, NULL), 0);
	assert_int_equal(store_bucket_edit(rig->store, SLICE("v"), versioning_on, NULL), 0);
	assert_int_equal(object_put_seeded(rig, "v", SLICE("key"), 9000, 2, NULL), 0);
	assert_int_equal(object_put_seeded(rig, "v", SLICE("key"), 9000, 3, NULL), 0);
	for (uint32_t i = 0; i < SMALL; i++)
		small_put(rig, i, 100 + i);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("large"), LARGE_MIB * MIB, 7, NULL), 0);
	assert_int_equal(object_join_seeded(rig, "b", SLICE("joined"), 6 * MIB, 8, 3), 0);
	assert_int_equal(object_grow_seeded(rig, "b", SLICE("grown"), 3 * MIB, 9, 3), 0);
}

static void verify(struct rig *rig, void *arg)
{
	char key[32];

	(void)arg;
	for (uint32_t i = 0; i < SMALL; i++) {
		snprintf(key, sizeof(key), "k%04u", i);
		assert_int_equal(
			object_verify_seeded(rig, "b", slice_str(key), small_bytes(i), 100 + i), 0);
	}
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("large"), LARGE_MIB * MIB, 7), 0);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("joined"), 6 * MIB, 8), 0);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("grown"), 3 * MIB, 9), 0);
	assert_int_equal(object_verify_seeded(rig, "v", SLICE("key"), 9000, 3), 0);
}

/* ---- Changing. ---- */

struct wanted {
	const char *add[4];
	uint32_t add_count;
	uint64_t remove;
	uint32_t data, parity;
};

static struct store_set_status status_of(struct rig *rig)
{
	struct store_set_status status;

	store_volumes_status(rig->store, &status);
	return status;
}

static int change_ask(struct rig *rig, const struct wanted *wanted)
{
	const struct store_set_change change = {.add = wanted->add,
		.add_count = wanted->add_count,
		.remove = wanted->remove,
		.data = wanted->data,
		.parity = wanted->parity};
	char why[256] = "";

	return store_volumes_change(rig->store, &change, why, sizeof(why));
}

/* The array monitor's part. */
static void change_finish(struct rig *rig)
{
	struct store_set_status status = status_of(rig);

	for (uint32_t i = 0; i < STEPS_MAX && (status.changing || status.preparing); i++) {
		set_change_step(rig->store);
		fiber_sleep_ns(STEP_NS);
		status = status_of(rig);
	}
	assert_false(status.changing || status.preparing);
	assert_string_equal(status.note, "");
	set_change_await(rig->store);
}

static void change(struct rig *rig, void *arg)
{
	assert_int_equal(change_ask(rig, (const struct wanted *)arg), 0);
	change_finish(rig);
	verify(rig, NULL);
}

/* Readers and writers go on; a body that is open while it moves is read to its end. */
static void change_busy(struct rig *rig, void *arg)
{
	struct store_set_status status;
	struct store_get *get;
	uint32_t turns = 0;
	bool exists;

	assert_int_equal(store_get_open(rig->store, SLICE("b"), SLICE("grown"), &get, &exists), 0);
	assert_int_equal(change_ask(rig, (const struct wanted *)arg), 0);
	do {
		char key[32];

		set_change_step(rig->store);
		small_put(rig, turns % SMALL, 100 + turns % SMALL);
		snprintf(key, sizeof(key), "k%04u", (turns * 7) % SMALL);
		assert_int_equal(object_verify_seeded(rig, "b", slice_str(key),
					 small_bytes(turns * 7 % SMALL), 100 + turns * 7 % SMALL),
			0);
		status = status_of(rig);
	} while (turns++ < 200 && status.changing);
	assert_true(status.changing); /* somebody has a body open */
	assert_int_equal(get_verify_seeded(rig, get, 9), 0);
	store_get_close(get);
	change_finish(rig);
	verify(rig, NULL);
}

/* ---- Objects that are open while they move. ---- */

#define PART_BYTES 1300000u
#define TAIL_BYTES 70000u

static uint32_t slot_of(struct rig *rig, const char *bucket, const char *key)
{
	struct store_get *get;
	uint64_t place;
	bool exists;

	assert_int_equal(
		store_get_open(rig->store, slice_str(bucket), slice_str(key), &get, &exists), 0);
	assert_int_equal(rig_place(get, 0, &place), 0);
	store_get_close(get);
	return disk_stripe_slot(place / BLOCK_BYTES);
}

static void two_verify(struct rig *rig, const char *key, uint64_t seed)
{
	uint8_t *want = (uint8_t *)malloc(PART_BYTES + TAIL_BYTES);
	uint8_t *got = (uint8_t *)malloc(PART_BYTES + TAIL_BYTES);
	uint64_t bytes = 0;

	body_fill(want, PART_BYTES, seed);
	body_fill(want + PART_BYTES, TAIL_BYTES, seed + 1);
	assert_int_equal(
		object_read(rig, "b", slice_str(key), got, PART_BYTES + TAIL_BYTES, &bytes), 0);
	assert_int_equal(bytes, PART_BYTES + TAIL_BYTES);
	assert_memory_equal(got, want, bytes);
	free(want);
	free(got);
}

/* A client began this before its bodies moved: an upload with one of two parts named already, an
 * append and a rename. */
struct begun {
	struct store_get *parts[2], *base, *from;
	struct store_put *whole, *append;
};

static void open_get(struct rig *rig, const char *bucket, const char *key, struct store_get **get)
{
	bool exists;

	assert_int_equal(
		store_get_open(rig->store, slice_str(bucket), slice_str(key), get, &exists), 0);
}

static void begin(struct rig *rig, struct begun *begun)
{
	const struct put_how how = {.composable = true};
	struct store_put_opts opts = {
		.bucket = SLICE("b"), .key = SLICE("whole"), .bytes = UINT64_MAX};

	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(bucket_make(rig->store, "parts"), 0);
	object_put_seeded(rig, "parts", SLICE("1"), PART_BYTES, 31, &how);
	object_put_seeded(rig, "parts", SLICE("2"), TAIL_BYTES, 32, &how);
	object_put_seeded(rig, "b", SLICE("log"), PART_BYTES, 41, NULL);
	object_put_seeded(rig, "b", SLICE("from"), 5000, 51, NULL);
	open_get(rig, "parts", "1", &begun->parts[0]);
	open_get(rig, "parts", "2", &begun->parts[1]);
	open_get(rig, "b", "log", &begun->base);
	open_get(rig, "b", "from", &begun->from);
	assert_int_equal(store_put_open(rig->store, &opts, &begun->whole), 0);
	assert_int_equal(
		store_put_compose(begun->whole, SLICE("parts"), SLICE("1"), begun->parts[0]), 0);
	opts = (struct store_put_opts){
		.bucket = SLICE("b"), .key = SLICE("log"), .bytes = TAIL_BYTES};
	assert_int_equal(store_put_open(rig->store, &opts, &begun->append), 0);
	assert_int_equal(store_put_append(begun->append, begun->base), 0);
}

static void begun_end(struct rig *rig, struct begun *begun)
{
	const struct store_name from = {.bucket = SLICE("b"), .key = SLICE("from")};
	struct store_meta meta = {.bytes = PART_BYTES + TAIL_BYTES};
	uint8_t *tail = (uint8_t *)malloc(TAIL_BYTES);

	assert_int_equal(
		store_put_compose(begun->whole, SLICE("parts"), SLICE("2"), begun->parts[1]), 0);
	assert_int_equal(store_put_commit(begun->whole, &meta, NULL, NULL), 0);
	body_fill(tail, TAIL_BYTES, 42);
	assert_int_equal(put_body(rig, begun->append, tail, TAIL_BYTES), 0);
	meta = (struct store_meta){.bytes = PART_BYTES + TAIL_BYTES};
	assert_int_equal(store_put_commit(begun->append, &meta, NULL, NULL), 0);
	assert_int_equal(store_rename(rig->store, &from, begun->from, SLICE("to"), SLICE_NONE,
				 (struct store_condition){0}),
		0);
	free(tail);
	store_get_close(begun->parts[0]);
	store_get_close(begun->parts[1]);
	store_get_close(begun->base);
	store_get_close(begun->from);
}

static void begun_verify(struct rig *rig, void *arg)
{
	(void)arg;
	two_verify(rig, "whole", 31);
	two_verify(rig, "log", 41);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("to"), 5000, 51), 0);
}

static void change_held(struct rig *rig, void *arg)
{
	struct begun begun;

	begin(rig, &begun);
	assert_int_equal(change_ask(rig, (const struct wanted *)arg), 0);
	while (slot_of(rig, "parts", "1") + slot_of(rig, "parts", "2") + slot_of(rig, "b", "log") +
			slot_of(rig, "b", "from") <
		4) {
		set_change_step(rig->store);
		fiber_sleep_ns(STEP_NS);
	}
	begun_end(rig, &begun);
	change_finish(rig);
	begun_verify(rig, NULL);
}

struct paths {
	char of[8][600];
	char list[4800];
};

static void paths_make(struct rig *rig, struct paths *paths, uint32_t from, uint32_t to)
{
	size_t len = 0;

	for (uint32_t i = 0; i < 8; i++)
		snprintf(paths->of[i], sizeof(paths->of[i]), "%s/m%u", rig->dir, i);
	for (uint32_t i = from; i < to; i++)
		len += (size_t)snprintf(paths->list + len, sizeof(paths->list) - len, "%s%s",
			i == from ? "" : ",", paths->of[i]);
}

static void rig_make(struct rig *rig, struct paths *paths)
{
	rig_init(rig, 1);
	paths_make(rig, paths, 0, 3);
	rig->opts.volume = paths->list;
	rig->opts.erasure_data = 2;
	rig->opts.erasure_parity = 1;
	rig->opts.inline_bytes_max = UINT32_MAX;
}

static void expect_members(struct rig *rig, void *arg)
{
	assert_int_equal(disk_array_mask(rig->store->volume.disk), *(const uint64_t *)arg);
	assert_int_equal(disk_array_lost(rig->store->volume.disk), 0);
	verify(rig, NULL);
}

static uint32_t version_of(const char *path)
{
	uint32_t version = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &version, sizeof(version), 8), sizeof(version));
	close(fd);
	return version;
}

static void test_volumes_are_added_and_removed(void **state)
{
	struct rig rig;
	struct paths paths;
	uint64_t members = 0x1f;

	(void)state;
	rig_make(&rig, &paths);
	rig_run(&rig, fill, NULL);
	assert_int_equal(rig.open_result, 0);
	assert_int_equal(version_of(paths.of[0]), 1);

	struct wanted add = {.add = {paths.of[3], paths.of[4]}, .add_count = 2};

	rig_run(&rig, change_busy, &add);
	rig_fsck(&rig);
	assert_int_equal(version_of(paths.of[0]), 2);
	/* The configuration still names three: the data folder knows the others. */
	rig_run(&rig, expect_members, &members);

	struct wanted remove = {.remove = 0x3};

	rig_run(&rig, change, &remove);
	rig_fsck(&rig);
	/* The removed ones are named by the configuration, and are not members. */
	members = 0x1c;
	rig_run(&rig, expect_members, &members);
	assert_int_equal(unlink(paths.of[0]), 0);
	assert_int_equal(unlink(paths.of[1]), 0);
	rig.opts.volume = NULL;
	rig_run(&rig, expect_members, &members);
	rig_fsck(&rig);
	rig_dir_remove(&rig);
}

/* A client that has an object open while it moves sees no error. */
static void test_open_objects_move(void **state)
{
	struct rig rig;
	struct paths paths;

	(void)state;
	rig_make(&rig, &paths);

	struct wanted add = {.add = {paths.of[3]}, .add_count = 1};

	rig_run(&rig, change_held, &add);
	rig_fsck(&rig);
	rig.opts.volume = NULL;
	rig_run(&rig, begun_verify, NULL);
	rig_dir_remove(&rig);
}

/* ---- Other numbers, and refusals. ---- */

static const char *const BAD_PATHS[] = {
	"m7", "/m7 ", " /m7", "/m7\t", "/m7\n/m8", "/m7,/m8", "rdma://host:1/m7 "};

static void other_numbers(struct rig *rig, void *arg)
{
	struct paths *paths = (struct paths *)arg;
	struct wanted wanted = {.add = {paths->of[3], paths->of[4], paths->of[5]},
		.add_count = 3,
		.data = 4,
		.parity = 2};

	change(rig, &wanted);
	wanted = (struct wanted){.data = 5, .parity = 1};
	change(rig, &wanted);
	assert_int_equal(disk_array_data(rig->store->volume.disk), 5);
	assert_int_equal(change_ask(rig, &wanted), -EINVAL); /* as it is */
	wanted = (struct wanted){.data = 4, .parity = 1};
	assert_int_equal(change_ask(rig, &wanted), -EINVAL); /* six volumes */
	wanted = (struct wanted){.remove = 1u << 9};
	assert_int_equal(change_ask(rig, &wanted), -ENOENT);
	wanted = (struct wanted){.add = {paths->of[3]}, .add_count = 1};
	assert_int_equal(change_ask(rig, &wanted), -EEXIST);
	/* The data folder's list would not keep such a path. */
	for (uint32_t i = 0; i < ARRAY_LEN(BAD_PATHS); i++) {
		wanted = (struct wanted){.add = {BAD_PATHS[i]}, .add_count = 1};
		assert_int_equal(change_ask(rig, &wanted), -EINVAL);
		assert_int_equal(store_volume_replace(rig->store, 0, BAD_PATHS[i]), -EINVAL);
	}
	wanted = (struct wanted){.remove = 0x3f};
	assert_int_equal(change_ask(rig, &wanted), -EINVAL);
	assert_int_equal(store_volumes_cancel(rig->store), -ENOENT);
}

static void test_other_numbers(void **state)
{
	struct rig rig;
	struct paths paths;

	(void)state;
	rig_make(&rig, &paths);
	rig_run(&rig, fill, NULL);
	rig_run(&rig, other_numbers, &paths);
	rig_fsck(&rig);
	rig_dir_remove(&rig);
}

/* A volume with other data is not taken, and the store stays as it was. */
static void foreign(struct rig *rig, void *arg)
{
	struct paths *paths = (struct paths *)arg;
	struct wanted wanted = {.add = {paths->of[3], paths->of[4]}, .add_count = 2};

	assert_int_equal(change_ask(rig, &wanted), 0);
	set_change_step(rig->store);
	assert_non_null(strstr(status_of(rig).note, "cannot be added"));
	assert_false(status_of(rig).changing || status_of(rig).preparing);
	assert_int_equal(disk_array_mask(rig->store->volume.disk), 0x7);
	/* The first one was labelled already: it is taken when it is named again. */
	wanted = (struct wanted){.add = {paths->of[3]}, .add_count = 1};
	assert_int_equal(change_ask(rig, &wanted), 0);
	change_finish(rig);
	assert_int_equal(disk_array_mask(rig->store->volume.disk), 0xf);
	verify(rig, NULL);
}

static void test_foreign_volume(void **state)
{
	struct rig rig;
	struct paths paths;
	FILE *file;

	(void)state;
	rig_make(&rig, &paths);
	rig_run(&rig, fill, NULL);
	file = fopen(paths.of[4], "we");
	assert_non_null(file);
	fputs("somebody's letters", file);
	fclose(file);
	rig_run(&rig, foreign, &paths);
	rig_fsck(&rig);
	rig_dir_remove(&rig);
}

/* ---- Taken back, and a removed volume that returns. ---- */

/* Metrics ask from any thread: under ThreadSanitizer this is the test of it. */
struct watcher {
	struct rig *rig;
	_Atomic bool over;
	pthread_t thread;
};

static void *watch_main(void *arg)
{
	struct watcher *watcher = (struct watcher *)arg;
	struct store_volume volumes[DISK_MEMBERS_MAX];

	while (!atomic_load(&watcher->over)) {
		struct store_set_status status = status_of(watcher->rig);

		assert_true(status.left_bytes <= status.all_bytes);
		assert_true(store_volumes(watcher->rig->store, volumes, DISK_MEMBERS_MAX) >= 3);
		sched_yield();
	}
	return NULL;
}

static void cancelled(struct rig *rig, void *arg)
{
	struct paths *paths = (struct paths *)arg;
	struct wanted wanted = {.add = {paths->of[3]}, .add_count = 1};
	struct watcher watcher = {.rig = rig};

	assert_int_equal(pthread_create(&watcher.thread, NULL, watch_main, &watcher), 0);
	rig->store->opts.move_bytes_per_s = 8 * MIB;
	assert_int_equal(change_ask(rig, &wanted), 0);
	while (!status_of(rig).changing || status_of(rig).left_bytes == status_of(rig).all_bytes) {
		set_change_step(rig->store);
		fiber_sleep_ns(STEP_NS);
	}
	assert_int_equal(change_ask(rig, &wanted), -EBUSY);
	/* A client that asks twice does not get the change back. */
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(store_volumes_cancel(rig->store), 0);
		set_change_step(rig->store);
		assert_int_equal(status_of(rig).data, 2);
		assert_int_equal(status_of(rig).before_data, 3);
	}
	rig->store->opts.move_bytes_per_s = 0;
	change_finish(rig);
	atomic_store(&watcher.over, true);
	assert_int_equal(pthread_join(watcher.thread, NULL), 0);
	assert_int_equal(disk_array_mask(rig->store->volume.disk), 0x7);
	verify(rig, NULL);
}

static void test_cancelled(void **state)
{
	struct rig rig;
	struct paths paths;
	uint64_t members = 0x7;

	(void)state;
	rig_make(&rig, &paths);
	rig_run(&rig, fill, NULL);
	rig_run(&rig, cancelled, &paths);
	rig_fsck(&rig);
	/* The volume that left is named, and not taken, also when a member is missing. */
	paths_make(&rig, &paths, 0, 4);
	rig_run(&rig, expect_members, &members);
	rig_dir_remove(&rig);
}

/* ---- Versions of the superblock. ---- */

#define SET_AT 2048u /* version 1 has zeros from here on: docs/spec/disk.md */

/* The bytes of both slots behind what version 1 knows. */
static bool set_is_zero(const char *path)
{
	uint8_t supers[2 * BLOCK_BYTES];
	bool zero = true;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, supers, sizeof(supers), 0), sizeof(supers));
	close(fd);
	for (uint32_t i = 0; i < sizeof(supers); i++)
		zero &= i % BLOCK_BYTES < SET_AT || !supers[i];
	return zero;
}

static void version_set(const char *path, uint32_t version)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	for (uint32_t slot = 0; slot < 2; slot++)
		assert_int_equal(pwrite(fd, &version, sizeof(version), slot * BLOCK_BYTES + 8),
			sizeof(version));
	close(fd);
}

static void few_change(struct rig *rig, void *arg)
{
	assert_int_equal(change_ask(rig, (const struct wanted *)arg), 0);
	change_finish(rig);
}

/* A store whose set never changed is one of version 1, byte for byte; the first change makes it one
 * of version 2; and a later version is refused, as programs of version 1 refuse 2. */
static void test_versions(void **state)
{
	struct rig rig;
	struct paths paths;

	(void)state;
	rig_make(&rig, &paths);

	struct wanted add = {.add = {paths.of[3]}, .add_count = 1};

	rig_run(&rig, NULL, NULL);
	rig_run(&rig, NULL, NULL);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(version_of(paths.of[i]), 1);
		assert_true(set_is_zero(paths.of[i]));
	}
	rig_run(&rig, few_change, &add);
	rig.opts.volume = NULL;
	rig_run(&rig, NULL, NULL);
	assert_int_equal(rig.open_result, 0);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(version_of(paths.of[i]), 2);
		assert_false(set_is_zero(paths.of[i]));
		version_set(paths.of[i], 3);
	}
	rig_run(&rig, NULL, NULL);
	assert_int_equal(rig.open_result, -EUCLEAN);
	rig_dir_remove(&rig);
}

/* ---- Progress. ---- */

struct progress {
	const char *path;
	uint64_t first_bytes; /* that were left */
	struct store_set_status last;
};

static void move_some(struct rig *rig, void *arg)
{
	struct progress *progress = (struct progress *)arg;
	struct store_set_status *last = &progress->last;
	struct wanted wanted = {.add = {progress->path}, .add_count = 1};

	assert_int_equal(change_ask(rig, &wanted), 0);
	do {
		set_change_step(rig->store);
		fiber_sleep_ns(STEP_NS);
		*last = status_of(rig);
		progress->first_bytes = MAX(progress->first_bytes, last->left_bytes);
	} while (progress->first_bytes - last->left_bytes < 2 * MIB);
	assert_true(last->left_bytes > 0);
}

/* After a restart as much is called moved as before it, and what has moved is not moved again. */
static void progress_verify(struct rig *rig, void *arg)
{
	const struct progress *progress = (const struct progress *)arg;
	uint64_t moved_bytes = progress->first_bytes - progress->last.left_bytes;
	struct store_set_status now = status_of(rig);

	assert_true(now.changing);
	assert_int_equal(now.before_data, 2);
	assert_int_equal(now.data, 3);
	assert_true(now.left_bytes > 0 && now.left_bytes <= progress->last.left_bytes);
	assert_true(now.all_bytes - now.left_bytes >= moved_bytes);
	rig->store->opts.move_bytes_per_s = 0;
	change_finish(rig);
	assert_int_equal(status_of(rig).left_bytes, 0);
	verify(rig, NULL);
}

static void test_progress_survives_a_restart(void **state)
{
	struct progress progress = {.first_bytes = 0};
	struct rig rig;
	struct paths paths;

	(void)state;
	rig_make(&rig, &paths);
	progress.path = paths.of[3];
	rig_run(&rig, fill, NULL);
	rig.opts.move_bytes_per_s = 64 * MIB;
	rig_run(&rig, move_some, &progress);
	rig_run(&rig, progress_verify, &progress);
	rig_fsck(&rig);
	rig_dir_remove(&rig);
}

/* ---- The power fails while superblocks are written: some volumes have the last one. ---- */

#define FEW	    12u
#define SUPER_BYTES 8192u
#define VOLUMES	    5u

static void few_fill(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t i = 0; i < FEW; i++)
		small_put(rig, i, 100 + i);
}

static void few_verify(struct rig *rig)
{
	char key[32];

	for (uint32_t i = 0; i < FEW; i++) {
		snprintf(key, sizeof(key), "k%04u", i);
		assert_int_equal(
			object_verify_seeded(rig, "b", slice_str(key), small_bytes(i), 100 + i), 0);
	}
}

static void shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *fmt, ...)
{
	char command[4096];
	va_list args;
	int ret;

	va_start(args, fmt);
	vsnprintf(command, sizeof(command), fmt, args);
	va_end(args);
	ret = system(command);
	assert_int_equal(ret, 0);
}

/* The store as a power failure would leave it now; nothing is being written. */
static void copy_take(struct rig *rig, const char *name)
{
	assert_int_equal(index_apply_settle(rig->store), 0);
	shell("rm -rf '%s.%s' && cp -a --sparse=always '%s' '%s.%s'", rig->dir, name, rig->dir,
		rig->dir, name);
}

/* The copy `after`, but only the first `count` volumes have the superblocks that it had. */
static void torn_make(struct rig *rig, uint32_t count)
{
	uint8_t supers[SUPER_BYTES];
	char path[700];

	shell("rm -rf '%s' && cp -a --sparse=always '%s.after' '%s'", rig->dir, rig->dir, rig->dir);
	for (uint32_t i = count; i < VOLUMES; i++) {
		int fd;

		snprintf(path, sizeof(path), "%s.before/m%u", rig->dir, i);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		assert_int_equal(pread(fd, supers, sizeof(supers), 0), sizeof(supers));
		close(fd);
		snprintf(path, sizeof(path), "%s/m%u", rig->dir, i);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		assert_int_equal(pwrite(fd, supers, sizeof(supers), 0), sizeof(supers));
		close(fd);
	}
}

/* A new volume as a crash would leave it before the superblock with both geometries. */
static void label_make(struct rig *rig, const char *path, uint32_t member)
{
	const struct disk_opts opts = {.path = path,
		.create = true,
		.bytes_min = disk_bytes(rig->store->volume.disk),
		.step_bytes = rig->store->volume.super.step_bytes};
	struct superblock label = rig->store->volume.super;
	struct disk *disk;

	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(disk_open(&opts, &disk), 0);
	label.generation = 0;
	label.set_idx = (uint16_t)member;
	label.set.change++;
	label.set.own_joined = label.set.change;
	assert_int_equal(stripe_label(disk, &label), 0);
	disk_close(disk);
}

/* Takes copies before and after the superblock with both geometries. */
static void begin_copy(struct rig *rig, void *arg)
{
	struct paths *paths = (struct paths *)arg;
	struct wanted wanted = {.add = {paths->of[3], paths->of[4], paths->of[5]}, .add_count = 3};

	/* The third is foreign: then the change does not begin, and the others are removed. */
	assert_int_equal(change_ask(rig, &wanted), 0);
	set_change_step(rig->store);
	assert_non_null(strstr(status_of(rig).note, "cannot be added"));
	label_make(rig, paths->of[3], 3);
	label_make(rig, paths->of[4], 4);
	copy_take(rig, "before");
	wanted.add_count = 2;
	assert_int_equal(change_ask(rig, &wanted), 0);
	set_change_step(rig->store);
	assert_true(status_of(rig).changing);
	copy_take(rig, "after");
	change_finish(rig);
	few_verify(rig);
}

/* Takes copies before and after the superblock with one geometry. */
static void end_copy(struct rig *rig, void *arg)
{
	struct wanted wanted = {.remove = 0x3};

	(void)arg;
	assert_int_equal(change_ask(rig, &wanted), 0);
	set_change_step(rig->store);
	while (set_change_blocks_left(rig->store)) {
		set_change_step(rig->store);
		fiber_sleep_ns(STEP_NS);
	}
	set_change_await(rig->store);
	copy_take(rig, "before");
	/* A last pass may have wanted space before the last bodies were deleted; or the data folder
	 * may have been full, where no deletion makes room. */
	atomic_store(&rig->store->index_full, true);
	set_change_note(rig->store, -ENOSPC, 0);
	atomic_store(&rig->store->index_full, false);
	assert_non_null(strstr(status_of(rig).note, "data folder"));
	set_change_note(rig->store, -ENOSPC, 0);
	assert_non_null(strstr(status_of(rig).note, "free some"));
	change_finish(rig);
	copy_take(rig, "after");
	few_verify(rig);
}

struct torn {
	uint64_t members_first, members_last;
};

static void torn_open(struct rig *rig, void *arg)
{
	const struct torn *torn = (const struct torn *)arg;

	assert_int_equal(disk_array_mask(rig->store->volume.disk), torn->members_first);
	assert_int_equal(disk_array_lost(rig->store->volume.disk), 0);
	few_verify(rig);
	change_finish(rig);
	assert_int_equal(disk_array_mask(rig->store->volume.disk), torn->members_last);
	few_verify(rig);
}

static void torn_run(struct rig *rig, uint32_t count, struct torn torn)
{
	torn_make(rig, count);
	rig_run(rig, torn_open, &torn);
	assert_int_equal(rig->open_result, 0);
	rig_fsck(rig);
}

static void copies_remove(struct rig *rig)
{
	shell("rm -rf '%s.before' '%s.after'", rig->dir, rig->dir);
}

static void test_torn_superblocks(void **state)
{
	struct rig rig;
	struct paths paths;
	FILE *file;

	(void)state;
	rig_make(&rig, &paths);
	rig_run(&rig, few_fill, NULL);
	file = fopen(paths.of[5], "we");
	assert_non_null(file);
	fputs("somebody's letters", file);
	fclose(file);
	rig_run(&rig, begin_copy, &paths);
	rig.opts.volume = NULL;
	torn_run(&rig, 0, (struct torn){0x07, 0x07});
	for (uint32_t count = 1; count <= VOLUMES; count++)
		torn_run(&rig, count, (struct torn){0x1f, 0x1f});
	/* The last of these has all five. */
	rig_run(&rig, end_copy, NULL);
	/* The copy's list of volumes is that of the end. */
	paths_make(&rig, &paths, 0, VOLUMES);
	rig.opts.volume = paths.list;
	torn_run(&rig, 0, (struct torn){0x1f, 0x1c});
	for (uint32_t count = 1; count <= VOLUMES; count++)
		torn_run(&rig, count, (struct torn){0x1c, 0x1c});
	copies_remove(&rig);
	rig_dir_remove(&rig);
}

/* ---- A checkpoint holds the lock of the volume for seconds. ---- */

/* For a core that waits for the lock: the test would wait for ever. */
#define LOCKED_SECONDS_MAX 30

/* In place of a checkpoint. */
struct holder {
	struct volume *volume;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool holds, may_end, gave_up;
};

static void *hold_run(void *arg)
{
	struct holder *holder = (struct holder *)arg;
	struct timespec until;

	pthread_mutex_lock(&holder->volume->lock);
	pthread_mutex_lock(&holder->lock);
	holder->holds = true;
	pthread_cond_signal(&holder->changed);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += LOCKED_SECONDS_MAX;
	while (!holder->may_end && !holder->gave_up)
		holder->gave_up = pthread_cond_timedwait(&holder->changed, &holder->lock, &until) ==
				  ETIMEDOUT;
	pthread_mutex_unlock(&holder->lock);
	pthread_mutex_unlock(&holder->volume->lock);
	return NULL;
}

static void hold_begin(struct holder *holder, struct volume *volume)
{
	*holder = (struct holder){.volume = volume,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.changed = PTHREAD_COND_INITIALIZER};
	assert_int_equal(pthread_create(&holder->thread, NULL, hold_run, holder), 0);
	pthread_mutex_lock(&holder->lock);
	while (!holder->holds)
		pthread_cond_wait(&holder->changed, &holder->lock);
	pthread_mutex_unlock(&holder->lock);
}

/* Whether nobody made it wait too long. */
static bool hold_end(struct holder *holder)
{
	pthread_mutex_lock(&holder->lock);
	holder->may_end = true;
	pthread_cond_signal(&holder->changed);
	pthread_mutex_unlock(&holder->lock);
	pthread_join(holder->thread, NULL);
	return !holder->gave_up;
}

static uint32_t asks_begun, asks_ended;

static void ask_path(struct rig *rig)
{
	char path[512];

	store_volume_path(rig->store, 0, path, sizeof(path));
	assert_non_null(strstr(path, "/m0"));
}

static void ask_replace(struct rig *rig)
{
	assert_int_equal(store_volume_replace(rig->store, 1, "/none/of/these"), 0);
}

static void ask_change(struct rig *rig)
{
	assert_int_equal(change_ask(rig, &(const struct wanted){.remove = 1u << 9}), -ENOENT);
}

static void (*const ASKS[])(struct rig *) = {ask_path, ask_replace, ask_change};

static void ask(struct rig *rig, void *arg)
{
	uint32_t which = *(uint32_t *)arg;
	struct holder holder;

	if (which < ARRAY_LEN(ASKS)) {
		asks_begun++;
		ASKS[which](rig);
		asks_ended++;
		return;
	}
	/* The fiber beside them. */
	hold_begin(&holder, &rig->store->volume);
	while (asks_begun < ARRAY_LEN(ASKS))
		fiber_yield();
	assert_int_equal(asks_ended, 0);
	assert_true(hold_end(&holder));
}

static void asks(struct rig *rig, void *arg)
{
	uint32_t which[ARRAY_LEN(ASKS) + 1];

	(void)arg;
	for (uint32_t i = 0; i < ARRAY_LEN(which); i++)
		which[i] = (uint32_t)ARRAY_LEN(ASKS) - i;
	rig_fibers(rig, (uint32_t)ARRAY_LEN(which), ask, which, sizeof(which[0]));
	assert_int_equal(asks_ended, ARRAY_LEN(ASKS));
}

/* Requests that need the lock leave their core to others. */
static void test_a_long_checkpoint_holds_up_no_core(void **state)
{
	struct paths paths;
	struct rig rig;

	(void)state;
	rig_make(&rig, &paths);
	rig_run(&rig, asks, NULL);
	rig_dir_remove(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_long_checkpoint_holds_up_no_core),
		cmocka_unit_test(test_volumes_are_added_and_removed),
		cmocka_unit_test(test_open_objects_move),
		cmocka_unit_test(test_other_numbers),
		cmocka_unit_test(test_foreign_volume),
		cmocka_unit_test(test_cancelled),
		cmocka_unit_test(test_versions),
		cmocka_unit_test(test_progress_survives_a_restart),
		cmocka_unit_test(test_torn_superblocks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
