/* tests/unit/gateway/test_secrets.c: covers gateway/secrets.c: rights of the key's file. */
#include "../unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/gateway_priv.h"

static const uint8_t KEY[32] = "a key of thirty-two bytes, no 0";
static char folder[64], path[128];

static int setup(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/nebulaio-secrets-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/cluster.secrets.key", folder);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(folder);
}

static void saved_is_ours_alone(void)
{
	struct stat info;
	uint8_t read_back[64];
	int fd;

	assert_int_equal(gw_secrets_save(path, KEY, sizeof(KEY)), 0);
	fd = open(path, O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(read(fd, read_back, sizeof(read_back)), sizeof(KEY));
	assert_memory_equal(read_back, KEY, sizeof(KEY));
	assert_int_equal(fstat(fd, &info), 0);
	assert_int_equal(info.st_mode & 07777, 0600);
	close(fd);
}

static void test_made(void **state)
{
	(void)state;
	umask(0);
	saved_is_ours_alone();
	saved_is_ours_alone();
}

/* A file that an earlier start, or an administrator, made for all to read, and longer. */
static void test_access_of_others_is_removed(void **state)
{
	int fd = open(path, O_WRONLY | O_CREAT, 0600);

	(void)state;
	assert_int_equal(write(fd, "0123456789012345678901234567890123456789", 40), 40);
	assert_int_equal(fchmod(fd, 0644), 0);
	close(fd);
	saved_is_ours_alone();
}

static void test_a_link_is_refused(void **state)
{
	(void)state;
	assert_int_equal(symlink("/dev/null", path), 0);
	assert_int_equal(gw_secrets_save(path, KEY, sizeof(KEY)), -ELOOP);
}

static void test_a_file_of_another_user_is_refused(void **state)
{
	int fd = open(path, O_WRONLY | O_CREAT, 0600);
	struct stat info;

	(void)state;
	assert_true(fd >= 0);
	if (geteuid() != 0) {
		close(fd);
		skip();
	}
	assert_int_equal(fchown(fd, 1, 1), 0);
	assert_int_equal(gw_secrets_save(path, KEY, sizeof(KEY)), -EPERM);
	assert_int_equal(fstat(fd, &info), 0);
	assert_int_equal(info.st_size, 0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_made, setup, teardown),
		cmocka_unit_test_setup_teardown(test_access_of_others_is_removed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_link_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_a_file_of_another_user_is_refused, setup, teardown),
	};

	return cmocka_run_group_tests_name("secrets", tests, NULL, NULL);
}
