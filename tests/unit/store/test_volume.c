/* tests/unit/store/test_volume.c: a new store accepts only a blank volume, unless the user allows
 * it to overwrite another. */
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char TEXT[] = "dear diary";

/* Creates a file of so many bytes next to the store, which ends with a user's text. */
static void precious_make(const struct rig *rig, const char *name, uint64_t bytes, char path[600])
{
	int fd;

	snprintf(path, 600, "%s/%s", rig->dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(
		pwrite(fd, TEXT, sizeof(TEXT), (off_t)(bytes - sizeof(TEXT))), sizeof(TEXT));
	close(fd);
}

static void precious_check(const char *path, uint64_t bytes)
{
	char text[sizeof(TEXT)] = "";
	struct stat st;
	int fd = open(path, O_RDONLY);

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, bytes);
	assert_int_equal(
		pread(fd, text, sizeof(text), (off_t)(bytes - sizeof(TEXT))), sizeof(text));
	assert_memory_equal(text, TEXT, sizeof(TEXT));
	close(fd);
}

static void put_one(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("k"), 70000, 1, NULL), 0);
}

static void nothing(struct rig *rig, void *arg)
{
	(void)rig;
	(void)arg;
}

/* '<' becomes one folder's path and '>' the other's. */
static void replace_all(
	char *out, size_t cap, const char *format, const char *less, const char *greater)
{
	size_t len = 0;

	for (; *format; format++)
		if (*format == '<' || *format == '>')
			len += (size_t)snprintf(
				out + len, cap - len, "%s/", *format == '<' ? less : greater);
		else
			len += (size_t)snprintf(out + len, cap - len, "%c", *format);
	assert_true(len < cap);
}

static void test_a_file_with_content_is_refused(void **state)
{
	static const uint64_t LENGTHS[] = {
		sizeof(TEXT), 4096, 8191, 8192, 100000, 2 * MIB - 1, 9 * MIB, 33 * MIB + 5};

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(LENGTHS); i++) {
		struct rig rig;
		char path[600];

		rig_init(&rig, 1);
		precious_make(&rig, "precious", LENGTHS[i], path);
		rig.opts.volume = path;
		rig_run(&rig, nothing, NULL);
		assert_int_equal(rig.open_result, -EUCLEAN);
		precious_check(path, LENGTHS[i]);
		rig.opts.format = true;
		rig_run(&rig, put_one, NULL);
		assert_int_equal(rig.open_result, 0);
		rig_fsck(&rig);
		rig_dir_remove(&rig);
	}
}

/* Also in the place of the store's own volume. */
static void test_a_strange_file_in_the_stores_folder_is_refused(void **state)
{
	struct rig rig;
	char path[600];

	(void)state;
	rig_init(&rig, 1);
	precious_make(&rig, "volume", 4000, path);
	rig_run(&rig, nothing, NULL);
	assert_int_equal(rig.open_result, -EUCLEAN);
	precious_check(path, 4000);
	rig_dir_remove(&rig);
}

static void test_an_empty_file_is_taken(void **state)
{
	struct rig rig;
	char path[600];
	int fd;

	(void)state;
	rig_init(&rig, 1);
	snprintf(path, sizeof(path), "%s/blank", rig.dir);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 5000), 0);
	close(fd);
	rig.opts.volume = path;
	rig_run(&rig, put_one, NULL);
	assert_int_equal(rig.open_result, 0);
	rig_fsck(&rig);
	rig_dir_remove(&rig);
}

static void test_one_of_several_with_content_is_refused(void **state)
{
	char path[600], paths[2000];
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	precious_make(&rig, "c", 5000, path);
	snprintf(paths, sizeof(paths), "%s/a,%s/b,%s", rig.dir, rig.dir, path);
	rig.opts.volume = paths;
	rig.opts.erasure_data = 2;
	rig.opts.erasure_parity = 1;
	rig_run(&rig, nothing, NULL);
	assert_int_equal(rig.open_result, -EUCLEAN);
	precious_check(path, 5000);
	rig_dir_remove(&rig);
}

/* ---- A store is never destroyed. ---- */

static void verify_one(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("k"), 70000, 1), 0);
}

/* Another data folder, with the volume that the pattern makes of the store's folder and its own: a
 * start with --format is refused, and the store is as it was. */
static void taken_by(struct rig *owner, const char *format, bool several, uint64_t step_bytes)
{
	char paths[3000];
	struct rig other;

	rig_init(&other, 1);
	replace_all(paths, sizeof(paths), format, owner->dir, other.dir);
	other.opts.volume = paths;
	other.opts.format = true;
	if (step_bytes)
		other.opts.step_bytes = step_bytes;
	if (several) {
		other.opts.erasure_data = 2;
		other.opts.erasure_parity = 1;
	}
	rig_run(&other, nothing, NULL);
	assert_int_equal(other.open_result, -EUCLEAN);
	rig_dir_remove(&other);
}

static void store_make(struct rig *rig, const char *format, char volume[2000], bool several)
{
	rig_init(rig, 1);
	replace_all(volume, 2000, format, rig->dir, "");
	rig->opts.volume = volume;
	if (several) {
		rig->opts.erasure_data = 2;
		rig->opts.erasure_parity = 1;
	}
	rig_run(rig, put_one, NULL);
	assert_int_equal(rig->open_result, 0);
}

static void store_check(struct rig *rig)
{
	rig_run(rig, verify_one, NULL);
	assert_int_equal(rig->open_result, 0);
	rig_fsck(rig);
	rig_dir_remove(rig);
}

static void test_a_log_apart_is_no_plain_volume(void **state)
{
	char volume[2000];
	struct rig rig;

	(void)state;
	store_make(&rig, "log://<log?bodies=<bodies", volume, false);
	taken_by(&rig, "<log", false, 0);
	taken_by(&rig, "<bodies", false, 0);
	/* The log's file is shorter than a step. */
	taken_by(&rig, "<log", false, 64 * MIB);
	taken_by(&rig, ">a,<log,>c", true, 0);
	taken_by(&rig, ">a,>b,<bodies", true, 0);
	store_check(&rig);
}

static void test_a_plain_volume_is_no_log_and_no_bodies(void **state)
{
	char volume[2000];
	struct rig rig;

	(void)state;
	store_make(&rig, "<plain", volume, false);
	taken_by(&rig, "log://<plain?bodies=>bodies", false, 0);
	taken_by(&rig, "log://>log?bodies=<plain", false, 0);
	taken_by(&rig, "log://>log?bodies=<plain", false, 64 * MIB);
	taken_by(&rig, "<plain", false, 64 * MIB);
	taken_by(&rig, ">a,<plain,>c", true, 64 * MIB);
	store_check(&rig);
}

/* The version of the disk format, in both superblocks or in a label. */
static void version_set(const struct rig *rig, const char *name, uint64_t offset, uint32_t version)
{
	char path[600];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", rig->dir, name);
	fd = open(path, O_WRONLY);
	assert_true(fd >= 0);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(
			pwrite(fd, &version, sizeof(version), (off_t)(offset + i * 4096ull + 8)),
			sizeof(version));
	close(fd);
}

static void test_an_unknown_disk_format_is_not_destroyed(void **state)
{
	static const char *const NAMES[] = {"a", "b", "c"};
	char volume[2000];
	struct rig rig;

	(void)state;
	store_make(&rig, "<a,<b,<c", volume, true);
	for (uint32_t i = 0; i < ARRAY_LEN(NAMES); i++)
		version_set(&rig, NAMES[i], 0, 99);
	taken_by(&rig, "<a,<b,<c", true, 0);
	taken_by(&rig, ">a,>b,<c", true, 0);
	taken_by(&rig, "<b", false, 0);
	taken_by(&rig, "log://>log?bodies=<b", false, 0);
	for (uint32_t i = 0; i < ARRAY_LEN(NAMES); i++)
		version_set(&rig, NAMES[i], 0, 1);
	store_check(&rig);

	store_make(&rig, "log://<log?bodies=<bodies", volume, false);
	version_set(&rig, "log", MIB, 99);
	taken_by(&rig, "<log", false, 0);
	version_set(&rig, "log", MIB, 1);
	store_check(&rig);
}

static void taken(struct rig *owner, const char *format, bool overwrite)
{
	char path[2000];
	struct rig other;

	rig_init(&other, 1);
	replace_all(path, sizeof(path), format, owner->dir, "");
	other.opts.volume = path;
	other.opts.format = true;
	other.opts.overwrite = overwrite;
	rig_run(&other, put_one, NULL);
	assert_int_equal(other.open_result, 0);
	rig_fsck(&other);
	rig_dir_remove(&other);
}

/* A restore may destroy a store; and a store whose creation was interrupted has stored nothing. */
static void test_what_may_be_destroyed(void **state)
{
	char volume[2000], path[600];
	struct rig rig;
	int fd;

	(void)state;
	store_make(&rig, "log://<log?bodies=<bodies", volume, false);
	snprintf(path, sizeof(path), "%s/log", rig.dir);
	fd = open(path, O_WRONLY);
	assert_true(fd >= 0);
	assert_int_equal(
		fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, MIB, 2 * 4096), 0);
	close(fd);
	taken(&rig, "<log", false);
	taken_by(&rig, "<bodies", false, 0);
	taken(&rig, "<bodies", true);
	rig_dir_remove(&rig);

	store_make(&rig, "<plain", volume, false);
	taken(&rig, "<plain", true);
	rig_dir_remove(&rig);
}

static int away_open(void *arg, const struct disk_opts *opts, struct disk_identity *ret_identity,
	void **ret_volume)
{
	uint32_t *opened = arg;

	(void)opts;
	(void)ret_identity;
	(void)ret_volume;
	*opened += 1;
	return -ETIMEDOUT;
}

/* A volume that cannot be reached is tried, and complained of, once. */
static void test_a_volume_that_is_away_is_tried_once(void **state)
{
	uint32_t opened = 0;
	const struct disk_driver away = {
		.scheme = "away://", .name = "volume", .arg = &opened, .open = away_open};
	struct rig rig;

	(void)state;
	disk_driver_add(&away);
	rig_init(&rig, 1);
	rig.opts.volume = "away://x";
	rig_run(&rig, nothing, NULL);
	assert_int_equal(rig.open_result, -ETIMEDOUT);
	assert_int_equal(opened, 1);
	rig_dir_remove(&rig);
	disk_driver_remove(&away);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_file_with_content_is_refused),
		cmocka_unit_test(test_a_strange_file_in_the_stores_folder_is_refused),
		cmocka_unit_test(test_an_empty_file_is_taken),
		cmocka_unit_test(test_one_of_several_with_content_is_refused),
		cmocka_unit_test(test_a_log_apart_is_no_plain_volume),
		cmocka_unit_test(test_a_plain_volume_is_no_log_and_no_bodies),
		cmocka_unit_test(test_an_unknown_disk_format_is_not_destroyed),
		cmocka_unit_test(test_what_may_be_destroyed),
		cmocka_unit_test(test_a_volume_that_is_away_is_tried_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
