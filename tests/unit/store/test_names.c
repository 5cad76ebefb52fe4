/* tests/unit/store/test_names.c: the names that a store depends on are flushed before it uses them:
 * new files, directories and lists survive a crash. Only their owner may read them. */
#include "rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"

/* The path of every fsync of this program, in order. */
#define FLUSHES_MAX 4096u
static char flushed[FLUSHES_MAX][256];
static uint32_t flush_count;
/* The index flushes on threads of its own. */
static pthread_mutex_t flush_lock = PTHREAD_MUTEX_INITIALIZER;

int fsync(int fd)
{
	char link[64], path[PATH_MAX];
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, path, sizeof(path) - 1);
	path[MAX(len, 0)] = '\0';
	pthread_mutex_lock(&flush_lock);
	if (flush_count < FLUSHES_MAX)
		snprintf(flushed[flush_count++], sizeof(flushed[0]), "%.255s", path);
	pthread_mutex_unlock(&flush_lock);
	return (int)syscall(SYS_fsync, fd);
}

/* The first flush of a path from an index on; UINT32_MAX: none. */
static uint32_t flush_of(uint32_t from, const char *path)
{
	char whole[PATH_MAX];
	uint32_t found = UINT32_MAX;

	assert_non_null(realpath(path, whole));
	pthread_mutex_lock(&flush_lock);
	for (uint32_t i = from; i < flush_count && found == UINT32_MAX; i++)
		if (strcmp(flushed[i], whole) == 0)
			found = i;
	pthread_mutex_unlock(&flush_lock);
	return found;
}

static uint32_t flush_ending(const char *end)
{
	uint32_t found = UINT32_MAX;

	pthread_mutex_lock(&flush_lock);
	for (uint32_t i = 0; i < flush_count && found == UINT32_MAX; i++)
		if (strlen(flushed[i]) >= strlen(end) &&
			strcmp(flushed[i] + strlen(flushed[i]) - strlen(end), end) == 0)
			found = i;
	pthread_mutex_unlock(&flush_lock);
	return found;
}

static void flushes_forget(void)
{
	pthread_mutex_lock(&flush_lock);
	flush_count = 0;
	pthread_mutex_unlock(&flush_lock);
}

static void one_run(struct rig *rig, void *arg)
{
	int ret = bucket_make(rig->store, "b");

	(void)arg;
	assert_true(ret == 0 || ret == -EEXIST);
}

static void test_a_new_store_flushes_its_names(void **state)
{
	char dir[700], volume[900], path[800];
	struct rig rig;
	uint32_t made;

	(void)state;
	rig_init(&rig, 1);
	snprintf(dir, sizeof(dir), "%s/a/b", rig.dir);
	snprintf(path, sizeof(path), "%s/elsewhere", rig.dir);
	snprintf(volume, sizeof(volume), "%s/volume", path);
	assert_int_equal(mkdir(path, 0700), 0);
	rig.opts.dir = dir;
	rig.opts.volume = volume;
	flushes_forget();
	rig_run(&rig, one_run, NULL);
	assert_int_equal(rig.open_result, 0);
	/* The directories above; the volume's directory; and the store's own, for the link to the
	 * volume and, after RocksDB's own files, for the index. */
	assert_int_not_equal(flush_of(0, rig.dir), UINT32_MAX);
	assert_int_not_equal(flush_of(0, path), UINT32_MAX);
	snprintf(path, sizeof(path), "%s/a", rig.dir);
	assert_int_not_equal(flush_of(0, path), UINT32_MAX);
	made = flush_of(0, dir);
	assert_int_not_equal(made, UINT32_MAX);
	snprintf(path, sizeof(path), "%s/index", dir);
	made = flush_of(0, path);
	assert_int_not_equal(made, UINT32_MAX);
	assert_int_not_equal(flush_of(made, dir), UINT32_MAX);
	rig_dir_remove(&rig);
}

static void test_the_list_of_volumes_is_flushed(void **state)
{
	char volumes[2500], dir[700], path[800];
	uint32_t list;
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	snprintf(dir, sizeof(dir), "%s/store", rig.dir);
	snprintf(path, sizeof(path), "%s/disks", rig.dir);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(volumes, sizeof(volumes), "%s/0,%s/1,%s/2", path, path, path);
	rig.opts.dir = dir;
	rig.opts.volume = volumes;
	rig.opts.erasure_data = 2;
	rig.opts.erasure_parity = 1;
	flushes_forget();
	rig_run(&rig, one_run, NULL);
	assert_int_equal(rig.open_result, 0);
	assert_int_not_equal(flush_of(0, path), UINT32_MAX);
	list = flush_ending("/volumes.new");
	assert_int_not_equal(list, UINT32_MAX);
	/* Renamed immediately afterwards. */
	assert_int_equal(flush_of(list, dir), list + 1);
	rig_dir_remove(&rig);
}

/* ---- Access rights. ---- */

static uint32_t open_to_others(const char *dir)
{
	DIR *listing = opendir(dir);
	const struct dirent *entry;
	uint32_t count = 0;

	assert_non_null(listing);
	while ((entry = readdir(listing))) {
		struct stat info;

		if (strcmp(entry->d_name, "..") == 0)
			continue;
		assert_int_equal(fstatat(dirfd(listing), entry->d_name, &info, 0), 0);
		count += (info.st_mode & 077) != 0;
	}
	closedir(listing);
	return count;
}

static void test_others_have_no_rights(void **state)
{
	char command[2500], index[700];
	mode_t before = umask(022);
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	snprintf(index, sizeof(index), "%s/index", rig.dir);
	rig_run(&rig, one_run, NULL);
	/* As an earlier program left them. */
	snprintf(command, sizeof(command),
		"chmod -R a+rX '%s' && chmod g+w '%s' && ln -s /etc/passwd "
		"'%s/volumes.bak'",
		rig.dir, index, rig.dir);
	assert_int_equal(system(command), 0);
	assert_true(open_to_others(rig.dir) >= 4);
	umask(077);
	rig_run(&rig, one_run, NULL);
	/* One path is a link to a file that is not the store's. */
	assert_int_equal(open_to_others(rig.dir), 1);
	assert_int_equal(open_to_others(index), 0);
	umask(before);
	rig_dir_remove(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_new_store_flushes_its_names),
		cmocka_unit_test(test_the_list_of_volumes_is_flushed),
		cmocka_unit_test(test_others_have_no_rights),
	};

	return cmocka_run_group_tests_name("names", tests, NULL, NULL);
}
