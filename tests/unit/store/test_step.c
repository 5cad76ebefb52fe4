/* tests/unit/store/test_step.c: covers store/space/step.c and disk/disk_room.c: whether a volume
 * that is a file may grow is decided by the file system that it is on, whose free space a stand-in
 * for statvfs makes up; the data folder keeps a reserve of its own. */
#include "../counted.h"
#include "rig.h"

#include <errno.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define STEP	(16 * MIB)
#define RESERVE (64 * MIB)
#define MUCH	(1024 * MIB)
#define BODIES	40u /* more than the first step has */

/* Free bytes of the file systems of the data folder and of files "v0", "v1", and so on. */
static uint64_t folder_free, volume_free[3];

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

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	assert_true(readlink(link, path, sizeof(path) - 1) > 2);
	path[sizeof(path) - 1] = 0;
	assert_int_equal(path[strlen(path) - 2], 'v');
	st->f_bavail = volume_free[path[strlen(path) - 1] - '0'] / st->f_frsize;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_low_data_folder_lets_the_volume_grow),
		cmocka_unit_test(test_the_volume_leaves_the_reserve_free),
		cmocka_unit_test(test_the_data_folder_keeps_its_reserve),
		cmocka_unit_test(test_a_file_with_holes_keeps_the_reserve),
		cmocka_unit_test(test_volumes_share_a_file_system),
		cmocka_unit_test(test_the_least_room_decides),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
