/* tests/unit/cli/test_transfer_file.c: a file that is fetched to be the only copy is durable before
 * its source is deleted, and files beside it neither hinder it nor are changed. */
#include "../unit.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/transfer.h"

/* In the place of the command, and of the transfers to and from a server. */

int cli_usage_error(const struct cli_command *command, const char *fmt, ...)
{
	(void)command;
	(void)fmt;
	return CLI_USAGE;
}

int transfer_get(struct transfer *transfer, int fd)
{
	(void)transfer;
	return write(fd, "body", 4) == 4 ? CLI_OK : CLI_FAILED;
}

int transfer_put(struct transfer *transfer, int fd, const char *name)
{
	(void)transfer;
	(void)fd;
	(void)name;
	return CLI_OK;
}

/* These two in the place of the C library's. They note: F, a file is flushed; D, a folder; R, a
 * file gets its name. The step that fails is not done. */

static char steps[16], fails;

static int step(char what)
{
	size_t len = strlen(steps);

	assert_true(len + 1 < sizeof(steps));
	steps[len] = what;
	errno = EIO;
	return what == fails ? -1 : 0;
}

int fsync(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return step(S_ISDIR(st.st_mode) ? 'D' : 'F');
}

int rename(const char *from, const char *to)
{
	int (*real)(const char *, const char *) =
		(int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");

	return step('R') ? -1 : real(from, to);
}

/* In the place of the C library's: without /proc no file can be without a name. */
static bool proc_away;

int access(const char *name, int mode)
{
	if (!proc_away || strcmp(name, "/proc/self/fd") != 0)
		return faccessat(AT_FDCWD, name, mode, 0);
	errno = ENOENT;
	return -1;
}

static char folder[] = "/tmp/test-transfer-XXXXXX", path[sizeof(folder) + 8];

static int setup(void **state)
{
	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/file", folder);
	return 0;
}

/* No other file may be left. */
static int teardown(void **state)
{
	(void)state;
	return rmdir(folder);
}

static int fetch(bool move, char which_fails)
{
	struct transfer transfer = {.key = "key", .move = move};

	memset(steps, 0, sizeof(steps));
	fails = which_fails;
	return transfer_to_file(&transfer, path);
}

static void a_moved_file_is_durable(void **state)
{
	(void)state;
	assert_int_equal(fetch(false, 0), CLI_OK);
	assert_string_equal(steps, "R");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(fetch(true, 0), CLI_OK);
	assert_string_equal(steps, "FRD");
	assert_int_equal(unlink(path), 0);
}

static void a_file_that_is_not_is_an_error(void **state)
{
	(void)state;
	assert_int_equal(fetch(true, 'F'), CLI_FAILED);
	assert_string_equal(steps, "F");
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(fetch(true, 'R'), CLI_FAILED);
	assert_string_equal(steps, "FR");
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(fetch(true, 'D'), CLI_FAILED);
	assert_int_equal(unlink(path), 0);
}

/* Of a process with this one's number that was killed, or a file with such a name. */
static void a_file_of_that_number_stays(void **state)
{
	char beside[sizeof(path) + 32];
	struct stat st;
	FILE *file;

	(void)state;
	snprintf(beside, sizeof(beside), "%s.part-%ld", path, (long)getpid());
	file = fopen(beside, "we");
	assert_non_null(file);
	assert_true(fputs("another's", file) >= 0);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(fetch(false, 0), CLI_OK);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 4);
	assert_int_equal(stat(beside, &st), 0);
	assert_int_equal(st.st_size, 9);
	assert_int_equal(unlink(beside), 0);
	assert_int_equal(unlink(path), 0);
}

static int setup_no_proc(void **state)
{
	(void)state;
	proc_away = true;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_moved_file_is_durable),
		cmocka_unit_test(a_file_that_is_not_is_an_error),
		cmocka_unit_test(a_file_of_that_number_stays),
		/* From here on the files have names. */
		cmocka_unit_test_setup(a_moved_file_is_durable, setup_no_proc),
		cmocka_unit_test(a_file_that_is_not_is_an_error),
		cmocka_unit_test(a_file_of_that_number_stays),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
