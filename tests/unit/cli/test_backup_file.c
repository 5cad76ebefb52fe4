/* tests/unit/cli/test_backup_file.c: the files of a backup, read back: whole; with each bit of each
 * byte another, cut at each length, of a later version: refused; and with contents made at random
 * under a right checksum: read or refused. */
#include "../unit.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "cli/backup_file.h"

#define ROUNDS 20000u

struct rig {
	char folder[256];
	struct target target;
	uint8_t hash[SHA256_BYTES];
	char chunk[BACKUP_NAME_BYTES], manifest[BACKUP_NAME_BYTES];
};

/* cli_usage_error is of the command, which is not here. */
int cli_usage_error(const struct cli_command *command, const char *fmt, ...)
{
	(void)command;
	(void)fmt;
	return CLI_USAGE;
}

static unsigned reads_left = UINT32_MAX, stats_left = UINT32_MAX; /* until the disk fails */

/* These two in the place of the C library's. */
struct dirent *readdir(DIR *dir)
{
	struct dirent *(*real)(DIR *) = (struct dirent * (*)(DIR *)) dlsym(RTLD_NEXT, "readdir");

	if (reads_left) {
		reads_left--;
		return real(dir);
	}
	errno = EIO;
	return NULL;
}

int fstatat(int fd, const char *path, struct stat *st, int flags)
{
	int (*real)(int, const char *, struct stat *, int) =
		(int (*)(int, const char *, struct stat *, int))dlsym(RTLD_NEXT, "fstatat");

	if (stats_left) {
		stats_left--;
		return real(fd, path, st, flags);
	}
	errno = EIO;
	return -1;
}

static void file_put(struct rig *rig, const char *name, const char *magic, void *head,
	size_t head_bytes, struct slice rest)
{
	struct slice parts[] = {slice_of((char *)head + sizeof(struct backup_head),
					head_bytes - sizeof(struct backup_head)),
		rest};
	struct backup_head first;

	backup_head_fill(&first, magic, parts, ARRAY_LEN(parts));
	memcpy(head, &first, sizeof(first));
	parts[0] = slice_of(head, head_bytes);
	assert_int_equal(target_put(&rig->target, name, parts, ARRAY_LEN(parts)), CLI_OK);
}

static void chunk_make(struct rig *rig)
{
	const struct store_backup_row row = {.key_len = 4,
		.flags = STORE_BACKUP_HAS_BODY,
		.value_len = 5,
		.data_id = 7,
		.bytes = 100};
	const struct backup_place place = {.data_id = 7, .bytes = 100, .offset = 16, .pack = {1}};
	struct backup_chunk_head head = {.row_bytes = sizeof(row) + 9, .places = 1};
	char text[sizeof(row) + 9 + sizeof(place)];

	memcpy(text, &row, sizeof(row));
	memcpy(text + sizeof(row), "Okeyvalue", 9);
	memcpy(text + sizeof(row) + 9, &place, sizeof(place));
	sha256_of(text, sizeof(row) + 9, rig->hash);
	backup_chunk_name(rig->hash, rig->chunk);
	file_put(rig, rig->chunk, BACKUP_MAGIC_CHUNK, &head, sizeof(head),
		slice_of(text, sizeof(text)));
}

static void manifest_make(struct rig *rig)
{
	struct backup_manifest_head head = {.number = 3, .kept_bytes = 2, .chunks = 1};
	struct backup_entry entry = {.rows = 1, .anchor_len = 4};
	char text[2 + sizeof(entry) + 4];

	memcpy(entry.hash, rig->hash, sizeof(entry.hash));
	memcpy(text, "{}", 2);
	memcpy(text + 2, &entry, sizeof(entry));
	memcpy(text + 2 + sizeof(entry), "Okey", 4);
	backup_manifest_name(3, rig->manifest);
	file_put(rig, rig->manifest, BACKUP_MAGIC_MANIFEST, &head, sizeof(head),
		slice_of(text, sizeof(text)));
}

static int rig_open(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	const char *base = getenv("TMPDIR");
	const struct target_opts opts = {0};

	assert_non_null(rig);
	snprintf(rig->folder, sizeof(rig->folder), "%s/backup-XXXXXX", base ? base : ".");
	assert_non_null(mkdtemp(rig->folder));
	assert_int_equal(target_open(&rig->target, rig->folder, &opts, true), CLI_OK);
	chunk_make(rig);
	manifest_make(rig);
	*state = rig;
	return 0;
}

static int rig_close(void **state)
{
	struct rig *rig = *state;
	char path[512];

	target_close(&rig->target);
	snprintf(path, sizeof(path), "rm -r '%s'", rig->folder);
	assert_int_equal(system(path), 0);
	free(rig);
	return 0;
}

static int chunk_get(struct rig *rig)
{
	struct backup_chunk chunk;
	int ret = backup_chunk_read(&rig->target, rig->hash, &chunk);

	if (!ret)
		backup_chunk_free(&chunk);
	return ret;
}

static int manifest_get(struct rig *rig)
{
	struct backup_manifest manifest;
	int ret = backup_manifest_read(&rig->target, 3, &manifest);

	if (!ret)
		backup_manifest_free(&manifest);
	return ret;
}

static void test_whole(void **state)
{
	struct rig *rig = *state;
	struct backup_manifest manifest;
	struct backup_numbers numbers;
	struct backup_chunk chunk;
	struct backup_entry entry;
	struct slice anchor;

	assert_int_equal(backup_chunk_read(&rig->target, rig->hash, &chunk), CLI_OK);
	assert_int_equal(chunk.place_count, 1);
	assert_int_equal(chunk.places[0].data_id, 7);
	backup_chunk_free(&chunk);
	assert_int_equal(backup_manifest_read(&rig->target, 3, &manifest), CLI_OK);
	assert_int_equal(manifest.head.chunks, 1);
	backup_entry_get(&manifest, 0, &entry, &anchor);
	assert_true(slice_eq(anchor, SLICE("Okey")));
	backup_manifest_free(&manifest);
	assert_int_equal(backup_numbers_read(&rig->target, &numbers), CLI_OK);
	assert_int_equal(numbers.count, 1);
	assert_int_equal(numbers.list[0], 3);
	free(numbers.list);
	assert_int_equal(backup_manifest_read(&rig->target, 4, &manifest), CLI_NOT_FOUND);
}

static void spoil(struct rig *rig, const char *name, int (*get)(struct rig *rig))
{
	struct buf file;

	buf_init(&file, 64 * KIB);
	assert_int_equal(target_get(&rig->target, name, &file), CLI_OK);
	for (size_t i = 0; i < file.len; i++) {
		struct slice part = buf_slice(&file);

		file.data[i] ^= (char)(1 << i % 8);
		assert_int_equal(target_put(&rig->target, name, &part, 1), CLI_OK);
		assert_int_equal(get(rig), CLI_DAMAGED);
		file.data[i] ^= (char)(1 << i % 8);
		part.len = i;
		assert_int_equal(target_put(&rig->target, name, &part, 1), CLI_OK);
		assert_int_equal(get(rig), CLI_DAMAGED);
	}
	buf_free(&file);
}

static void test_each_bit(void **state)
{
	struct rig *rig = *state;

	spoil(rig, rig->chunk, chunk_get);
	spoil(rig, rig->manifest, manifest_get);
}

/* The manifest of an earlier backup in the place of a later one. */
static void test_another_number(void **state)
{
	struct rig *rig = *state;
	struct backup_manifest manifest;
	char name[BACKUP_NAME_BYTES];
	struct slice part;
	struct buf file;

	buf_init(&file, 64 * KIB);
	assert_int_equal(target_get(&rig->target, rig->manifest, &file), CLI_OK);
	part = buf_slice(&file);
	backup_manifest_name(4, name);
	assert_int_equal(target_put(&rig->target, name, &part, 1), CLI_OK);
	assert_int_equal(backup_manifest_read(&rig->target, 4, &manifest), CLI_DAMAGED);
	buf_free(&file);
}

/* Links and pipes that somebody else has put into the folder. */
static void test_no_files(void **state)
{
	const struct slice part = SLICE("text");
	struct rig *rig = *state;
	char path[512], other[512], command[2048];
	struct buf file;

	snprintf(other, sizeof(other), "%s/other", rig->folder);
	snprintf(path, sizeof(path), "%s/backups/00000005.part", rig->folder);
	assert_int_equal(symlink(other, path), 0);
	assert_int_equal(target_put(&rig->target, "backups/00000005", &part, 1), CLI_OK);
	assert_int_not_equal(access(other, F_OK), 0);
	snprintf(path, sizeof(path), "%s/pipe", rig->folder);
	assert_int_equal(mkfifo(path, 0600), 0);
	buf_init(&file, 64 * KIB);
	assert_int_equal(target_get(&rig->target, "pipe", &file), CLI_FAILED);
	buf_free(&file);
	/* Folders that never end. */
	snprintf(command, sizeof(command),
		"d='%s/backups'; for i in 1 2 3; do d=$d/d; mkdir $d; touch $d/00000009; done",
		rig->folder);
	assert_int_equal(system(command), 0);
}

static void number_count(void *arg, const char *name)
{
	(void)name;
	++*(int *)arg;
}

static void test_names(void **state)
{
	static const char *const OURS[] = {
		"rows/ab/ab00000000000000000000000000000000000000000000000000000000000000",
		"packs/01/0123456789abcdef0123456789abcdef",
		"packs/01/0123456789abcdef0123456789abcdef.part",
		"bodies/ff/00000000000000ff-0-0123abcd", "bodies/ff/00000000000000ff-12-0123abcd"};
	static const char *const OTHERS[] = {"", "rows", "rows/", "rows/2026/january.csv",
		"packs/ab/ab", "packs/02/0123456789abcdef0123456789abcdef",
		"packs/01/0123456789ABCDEF0123456789ABCDEF",
		"packs/01/0123456789abcdef0123456789abcdef0",
		"bodies/ff/00000000000000ff-0-0123abcd1", "bodies/ff/00000000000000ff--0123abcd",
		"bodies/ff/00000000000000ff-x-0123abcd", "bodies/ff00000000000000ff-0-0123abcd",
		"other/01/0123456789abcdef0123456789abcdef"};
	struct rig *rig = *state;
	int count = 0;

	for (size_t i = 0; i < ARRAY_LEN(OURS); i++)
		assert_true(backup_name_is_ours(OURS[i]));
	for (size_t i = 0; i < ARRAY_LEN(OTHERS); i++)
		assert_false(backup_name_is_ours(OTHERS[i]));
	test_no_files(state);
	/* 3, 5, and that of one folder below. */
	assert_int_equal(target_list(&rig->target, "backups", number_count, &count), CLI_OK);
	assert_int_equal(count, 3);
}

/* A folder that cannot be read to its end must not look like one with fewer backups. */
static void test_a_folder_that_fails(void **state)
{
	struct rig *rig = *state;
	struct backup_numbers numbers;

	/* The manifest, ".", ".." and the end. */
	for (unsigned left = 0; left < 4; left++) {
		reads_left = left;
		assert_int_equal(backup_numbers_read(&rig->target, &numbers), CLI_FAILED);
	}
	reads_left = UINT32_MAX;
	stats_left = 0;
	assert_int_equal(backup_numbers_read(&rig->target, &numbers), CLI_FAILED);
	stats_left = UINT32_MAX;
	assert_int_equal(backup_numbers_read(&rig->target, &numbers), CLI_OK);
	assert_int_equal(numbers.count, 1);
	free(numbers.list);
}

static void test_nothing_is_replaced(void **state)
{
	struct rig *rig = *state;
	const struct slice part = SLICE("another");
	char name[BACKUP_NAME_BYTES];

	assert_int_equal(target_put_new(&rig->target, rig->manifest, &part, 1), CLI_FAILED);
	assert_int_equal(manifest_get(rig), CLI_OK);
	backup_manifest_name(4, name);
	assert_int_equal(target_put_new(&rig->target, name, &part, 1), CLI_OK);
	assert_int_equal(target_has(&rig->target, name), CLI_OK);
}

/* Lengths and counts that do not fit, under a right checksum. */
static void shake(struct rig *rig, const char *name, int (*get)(struct rig *rig), struct prng *prng)
{
	struct buf file;
	char path[512];
	uint32_t crc;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", rig->folder, name);
	buf_init(&file, 64 * KIB);
	assert_int_equal(target_get(&rig->target, name, &file), CLI_OK);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		char text[1024];
		size_t at = 16 + prng_below(prng, file.len - 16);

		memcpy(text, file.data, file.len);
		text[at] = (char)prng_below(prng, 256);
		if (i % 2)
			text[16 + prng_below(prng, file.len - 16)] = (char)0xff;
		crc = crc32c_update(0, text + 16, file.len - 16);
		memcpy(text + 12, &crc, sizeof(crc));
		assert_int_equal(pwrite(fd, text, file.len, 0), file.len);
		assert_in_range(get(rig), 0, CLI_DAMAGED);
	}
	close(fd);
	buf_free(&file);
}

static void test_random(void **state)
{
	struct rig *rig = *state;
	struct prng prng;

	prng_seed(&prng, 1);
	shake(rig, rig->chunk, chunk_get, &prng);
	shake(rig, rig->manifest, manifest_get, &prng);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_whole, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_each_bit, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_another_number, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_names, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_a_folder_that_fails, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_nothing_is_replaced, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_random, rig_open, rig_close),
	};

	if (!freopen("/dev/null", "w", stderr))
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
