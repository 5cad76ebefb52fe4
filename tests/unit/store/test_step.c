/* tests/unit/store/test_step.c: covers store/space/step.c and disk/disk_room.c: whether a volume
 * that is a file may grow is decided by the file system that it is on, whose free space a stand-in
 * for statvfs makes up; the data folder keeps a reserve of its own. */
#include "../counted.h"
#include "rig.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "store/space/space.h"
#include "store/store_priv.h"

#define STEP	(16 * MIB)
#define RESERVE (64 * MIB)
#define MUCH	(1024 * MIB)
#define BODIES	40u /* more than the first step has */

#define VOLUMES 4u

/* Free bytes of the file systems of the data folder and of files "v0", "v1", and so on. */
static uint64_t folder_free, volume_free[VOLUMES];
/* By how much the free bytes become fewer with each look at them. */
static uint64_t volume_shrinks[VOLUMES];

int __real_statvfs64(const char *path, struct statvfs *st);
int __wrap_statvfs64(const char *path, struct statvfs *st);
int __real_fstatvfs64(int fd, struct statvfs *st);
int __wrap_fstatvfs64(int fd, struct statvfs *st);

int __wrap_statvfs64(const char *path, struct statvfs *st)
{
	int ret = __real_statvfs64(path, st);

	st->f_bavail = folder_free / st->f_frsize;
	return ret;
}

int __wrap_fstatvfs64(int fd, struct statvfs *st)
{
	int ret = __real_fstatvfs64(fd, st);
	char link[64], path[600] = "";
	uint32_t idx;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	assert_true(readlink(link, path, sizeof(path) - 1) > 2);
	path[sizeof(path) - 1] = 0;
	assert_int_equal(path[strlen(path) - 2], 'v');
	idx = (uint32_t)(path[strlen(path) - 1] - '0');
	assert_true(idx < VOLUMES);
	st->f_bavail = volume_free[idx] / st->f_frsize;
	volume_free[idx] -= MIN(volume_free[idx], volume_shrinks[idx]);
	return ret;
}

struct outcome {
	int ret; /* of the first refused put; 0: none */
	uint32_t stored;
	uint64_t grown;
	uint64_t volume_full, folder_full;
};

static uint64_t full(const char *labels)
{
	return counted_with(COUNTER_FULL, labels);
}

static void puts_run(struct rig *rig, void *arg)
{
	struct outcome *outcome = (struct outcome *)arg;
	uint64_t volume = full("what=\"volume\""), folder = full("what=\"data_folder\"");
	uint64_t bytes = rig_usage(rig).volume_bytes;
	char key[32];

	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t i = 0; i < BODIES && !outcome->ret; i++) {
		snprintf(key, sizeof(key), "%u", i);
		outcome->ret = object_put_seeded(rig, "b", slice_str(key), MIB, i, NULL);
		outcome->stored += !outcome->ret;
	}
	outcome->grown = rig_usage(rig).volume_bytes - bytes;
	outcome->volume_full = full("what=\"volume\"") - volume;
	outcome->folder_full = full("what=\"data_folder\"") - folder;
}

/* A store over so many volumes. */
static struct outcome puts_try_with(uint32_t volume_count, bool discard_files)
{
	struct outcome outcome = {0};
	char volumes[3 * 600] = "";
	struct rig rig;
	size_t len = 0;

	rig_init(&rig, 1);
	for (uint32_t i = 0; i < volume_count; i++)
		len += (size_t)snprintf(
			volumes + len, sizeof(volumes) - len, "%s%s/v%u", i ? "," : "", rig.dir, i);
	rig.opts.volume = volumes;
	rig.opts.step_bytes = STEP;
	rig.opts.reserve_bytes = RESERVE;
	rig.opts.discard_files = discard_files;
	if (volume_count > 1) {
		rig.opts.erasure_data = 2;
		rig.opts.erasure_parity = 1;
	}
	rig_run(&rig, puts_run, &outcome);
	assert_int_equal(rig.open_result, 0);
	rig_fsck(&rig);
	rig_dir_remove(&rig);
	return outcome;
}

static struct outcome puts_try(uint32_t volume_count)
{
	return puts_try_with(volume_count, false);
}

static void free_set(uint64_t folder, uint64_t v0, uint64_t v1, uint64_t v2)
{
	folder_free = folder;
	volume_free[0] = v0;
	volume_free[1] = v1;
	volume_free[2] = v2;
}

static void test_a_low_data_folder_lets_the_volume_grow(void **state)
{
	struct outcome outcome;

	(void)state;
	free_set(RESERVE, MUCH, 0, 0);
	outcome = puts_try(1);
	assert_int_equal(outcome.ret, 0);
	assert_true(outcome.grown >= STEP);
	assert_int_equal(outcome.folder_full, 0);
}

static void test_the_volume_leaves_the_reserve_free(void **state)
{
	struct outcome outcome;

	(void)state;
	free_set(MUCH, RESERVE + STEP - 1, 0, 0);
	outcome = puts_try(1);
	assert_int_equal(outcome.ret, -ENOSPC);
	assert_int_equal(outcome.grown, 0);
	assert_int_equal(outcome.volume_full, 1);
	assert_int_equal(outcome.folder_full, 0);
}

static void test_the_data_folder_keeps_its_reserve(void **state)
{
	struct outcome outcome;

	(void)state;
	free_set(RESERVE - 1, MUCH, 0, 0);
	outcome = puts_try(1);
	assert_int_equal(outcome.ret, -ENOSPC);
	assert_int_equal(outcome.volume_full, 0);
	assert_int_equal(outcome.folder_full, 1);
}

/* Without holes what the file has can be used; a write into a hole would take the reserve. */
static void test_a_file_with_holes_keeps_the_reserve(void **state)
{
	struct outcome outcome;

	(void)state;
	free_set(MUCH, RESERVE, 0, 0);
	outcome = puts_try(1);
	assert_true(outcome.stored > 0);
	outcome = puts_try_with(1, true);
	assert_int_equal(outcome.ret, -ENOSPC);
	assert_int_equal(outcome.stored, 0);
	assert_int_equal(outcome.volume_full, 1);
	assert_int_equal(outcome.folder_full, 0);
}

/* All three are on one file system, which has to hold a step of each. */
static void test_volumes_share_a_file_system(void **state)
{
	struct outcome outcome;
	uint64_t enough = RESERVE + 3 * STEP, less = enough - MIB;

	(void)state;
	free_set(RESERVE, enough, enough, enough);
	outcome = puts_try(3);
	assert_int_equal(outcome.ret, 0);
	assert_true(outcome.grown >= STEP);
	free_set(MUCH, less, less, less);
	outcome = puts_try(3);
	assert_int_equal(outcome.ret, -ENOSPC);
	assert_int_equal(outcome.grown, 0);
	assert_int_equal(outcome.volume_full, 1);
}

/* The one with the least room decides. */
static void test_the_least_room_decides(void **state)
{
	struct outcome outcome;

	(void)state;
	free_set(MUCH, MUCH, RESERVE, MUCH);
	outcome = puts_try(3);
	assert_int_equal(outcome.ret, -ENOSPC);
	assert_int_equal(outcome.grown, 0);
}

/* ---- Volumes that come later. ---- */

#define LOOK_NS NS_PER_MS

/* Grows the volume to several steps. */
static void grown(struct rig *rig)
{
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(space_step(rig->store), 0);
}

static uint64_t needed(const struct rig *rig)
{
	return disk_bytes(rig->store->volume.disk);
}

static void path_of(const struct rig *rig, uint32_t idx, char path[600])
{
	snprintf(path, 600, "%s/v%u", rig->dir, idx);
}

/* -1: there is no such file. */
static int64_t file_bytes(const struct rig *rig, uint32_t idx)
{
	char path[600];
	struct stat st;

	path_of(rig, idx, path);
	return stat(path, &st) ? -1 : (int64_t)st.st_size;
}

static void blank_make(const struct rig *rig, uint32_t idx, uint64_t bytes)
{
	char path[600];
	FILE *file;

	path_of(rig, idx, path);
	file = fopen(path, "we");
	assert_non_null(file);
	assert_int_equal(ftruncate(fileno(file), (off_t)bytes), 0);
	fclose(file);
}

static void add_ask(struct rig *rig)
{
	char path[600], why[256] = "";
	const char *add = path;
	const struct store_set_change change = {.add = &add, .add_count = 1};

	path_of(rig, 3, path);
	assert_int_equal(store_volumes_change(rig->store, &change, why, sizeof(why)), 0);
}

static struct store_set_status status_of(struct rig *rig)
{
	struct store_set_status status;

	store_volumes_status(rig->store, &status);
	return status;
}

static void add_refused(struct rig *rig, int64_t bytes_before)
{
	add_ask(rig);
	while (status_of(rig).preparing)
		fiber_sleep_ns(LOOK_NS);
	assert_non_null(strstr(status_of(rig).note, "data.reserve_bytes"));
	assert_int_equal(status_of(rig).data, 2);
	assert_int_equal(file_bytes(rig, 3), bytes_before);
}

static void add_run(struct rig *rig, void *arg)
{
	(void)arg;
	grown(rig);
	rig_monitor_start(rig);
	volume_free[3] = RESERVE + needed(rig) - MIB;
	add_refused(rig, -1);
	/* Others take the room while it grows. */
	volume_free[3] = RESERVE + needed(rig);
	volume_shrinks[3] = 3 * STEP;
	add_refused(rig, -1);
	blank_make(rig, 3, 5000);
	volume_free[3] = RESERVE + needed(rig);
	add_refused(rig, 5000);
	volume_shrinks[3] = 0;
	volume_free[3] = MUCH;
	add_ask(rig);
	while (status_of(rig).preparing || status_of(rig).changing)
		fiber_sleep_ns(LOOK_NS);
	assert_string_equal(status_of(rig).note, "");
	assert_int_equal(status_of(rig).data, 3);
	assert_int_equal(file_bytes(rig, 3), needed(rig));
}

/* Whether volume 2 is the one at the path. */
static bool same_path(const struct volume *volume, const char *path)
{
	uint32_t idx = volume->path_of[2];

	return idx != STRIPE_PATH_NONE && strcmp(volume->set_paths[idx], path) == 0;
}

/* How much the new volume's file system has beyond the reserve and the store's length, and how much
 * of it others take with each look. */
struct replacing {
	int64_t more;
	uint64_t shrinks;
	bool fits;
};

static void replace_run(struct rig *rig, void *arg)
{
	const struct replacing *replacing = (const struct replacing *)arg;
	const struct volume *volume = &rig->store->volume;
	char path[600];

	grown(rig);
	blank_make(rig, 3, 0);
	path_of(rig, 3, path);
	volume_free[3] = (uint64_t)((int64_t)(RESERVE + needed(rig)) + replacing->more);
	volume_shrinks[3] = replacing->shrinks;
	rig_monitor_start(rig);
	assert_int_equal(store_volume_replace(rig->store, 2, path), 0);
	while (replacing->fits ? disk_array_state(volume->disk, 2) != DISK_MEMBER_GOOD ||
					 !same_path(volume, path)
			       : !volume->paths_refused)
		fiber_sleep_ns(LOOK_NS);
	assert_int_equal(file_bytes(rig, 3), replacing->fits ? needed(rig) : 0);
	volume_shrinks[3] = 0;
}

static void set_make(struct rig *rig, char volumes[2000])
{
	rig_init(rig, 1);
	snprintf(volumes, 2000, "%s/v0,%s/v1,%s/v2", rig->dir, rig->dir, rig->dir);
	rig->opts.volume = volumes;
	rig->opts.step_bytes = STEP;
	rig->opts.reserve_bytes = RESERVE;
	rig->opts.erasure_data = 2;
	rig->opts.erasure_parity = 1;
	free_set(MUCH, MUCH, MUCH, MUCH);
}

static void later_test(rig_fn *fn, void *arg)
{
	char volumes[2000];
	struct rig rig;

	set_make(&rig, volumes);
	rig_run(&rig, fn, arg);
	assert_int_equal(rig.open_result, 0);
	rig.opts.volume = NULL;
	rig_fsck(&rig);
	rig_dir_remove(&rig);
}

static void test_a_volume_that_is_added_leaves_the_reserve(void **state)
{
	(void)state;
	later_test(add_run, NULL);
}

static void test_a_volume_that_replaces_another_leaves_the_reserve(void **state)
{
	struct replacing scenes[] = {
		{.more = -(int64_t)MIB}, {.shrinks = 3 * STEP}, {.more = MIB, .fits = true}};

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(scenes); i++)
		later_test(replace_run, &scenes[i]);
}

static void grown_run(struct rig *rig, void *arg)
{
	(void)arg;
	grown(rig);
}

static void missing_run(struct rig *rig, void *arg)
{
	assert_int_equal(disk_array_state(rig->store->volume.disk, 2) == DISK_MEMBER_MISSING,
		*(const bool *)arg);
}

/* At a start. */
static void test_a_spare_volume_leaves_the_reserve(void **state)
{
	bool missing = true;
	char volumes[2000];
	struct rig rig;

	(void)state;
	set_make(&rig, volumes);
	rig_run(&rig, grown_run, NULL);
	blank_make(&rig, 2, 0);
	volume_free[2] = RESERVE + STEP;
	rig_run(&rig, missing_run, &missing);
	assert_int_equal(rig.open_result, 0);
	assert_int_equal(file_bytes(&rig, 2), 0);
	missing = false;
	volume_free[2] = MUCH;
	rig_run(&rig, missing_run, &missing);
	assert_int_equal(rig.open_result, 0);
	rig_dir_remove(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_low_data_folder_lets_the_volume_grow),
		cmocka_unit_test(test_the_volume_leaves_the_reserve_free),
		cmocka_unit_test(test_the_data_folder_keeps_its_reserve),
		cmocka_unit_test(test_a_file_with_holes_keeps_the_reserve),
		cmocka_unit_test(test_volumes_share_a_file_system),
		cmocka_unit_test(test_the_least_room_decides),
		cmocka_unit_test(test_a_volume_that_is_added_leaves_the_reserve),
		cmocka_unit_test(test_a_volume_that_replaces_another_leaves_the_reserve),
		cmocka_unit_test(test_a_spare_volume_leaves_the_reserve),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
