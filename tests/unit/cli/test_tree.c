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

#include "cli/tree.h"

/* A folder on a disk that fails while its names are read. */

int cli_usage_error(const struct cli_command *command, const char *fmt, ...)
{
	(void)command;
	(void)fmt;
	return CLI_USAGE;
}

static unsigned reads_left = UINT32_MAX; /* until reading a folder fails */

/* In the place of the C library's. */
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

static char folder[] = "/tmp/test-tree-XXXXXX";

static int setup(void **state)
{
	char path[sizeof(folder) + 16];

	(void)state;
	assert_non_null(mkdtemp(folder));
	for (const char *name = "abc"; *name; name++) {
		int fd;

		snprintf(path, sizeof(path), "%s/%c", folder, *name);
		fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		assert_true(fd >= 0);
		close(fd);
	}
	return 0;
}

static int teardown(void **state)
{
	char path[sizeof(folder) + 16];

	(void)state;
	for (const char *name = "abc"; *name; name++) {
		snprintf(path, sizeof(path), "%s/%c", folder, *name);
		unlink(path);
	}
	return rmdir(folder);
}

static void a_folder_that_fails_half_way_is_an_error(void **state)
{
	const struct tree_place place = {.prefix = folder};
	struct tree tree;

	(void)state;
	for (unsigned reads = 0; reads < 6; reads++) {
		reads_left = reads;
		assert_int_equal(tree_read(NULL, &place, false, &tree), CLI_FAILED);
		tree_free(&tree);
		reads_left = reads;
		assert_int_equal(tree_read(NULL, &place, true, &tree), CLI_FAILED);
		tree_free(&tree);
	}
	reads_left = UINT32_MAX;
	assert_int_equal(tree_read(NULL, &place, false, &tree), CLI_OK);
	assert_int_equal(tree.count, 3);
	assert_string_equal(tree.items[0].name, "a");
	assert_string_equal(tree.items[2].name, "c");
	tree_free(&tree);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_folder_that_fails_half_way_is_an_error),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
