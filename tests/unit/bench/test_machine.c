/* tests/unit/bench/test_machine.c: the session's priority, in a session of the test's own; a folder
 * that is made anew. */
#include "../unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/machine.h"

#define CANNOT 77

static bool session_is_plain(void)
{
	char text[64] = "";

	return bench_file_read("/proc/self/autogroup", text, sizeof(text)) > 0 &&
	       strstr(text, " nice 0\n") != NULL;
}

/* Two processes in one session: the second finds the priority raised; the first ends first. */
static int two_in_a_session(void)
{
	int first, second;

	if (setsid() < 0 || !session_is_plain() || bench_priority_raise(&first) ||
		first == BENCH_NO_SESSION)
		return CANNOT;
	if (session_is_plain() || bench_priority_raise(&second))
		return 1;
	bench_priority_restore(first);
	bench_priority_restore(second);
	return session_is_plain() ? 0 : 2;
}

static void test_the_session_is_put_back(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	assert_true(pid >= 0);
	if (!pid)
		_exit(two_in_a_session());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == CANNOT)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_a_folder_is_made_anew(void **state)
{
	const char *base = getenv("TMPDIR");
	char path[512], inner[600], file[700];

	(void)state;
	snprintf(path, sizeof(path), "%s/nebulaio-bench-XXXXXX", base ? base : ".");
	assert_non_null(mkdtemp(path));
	snprintf(inner, sizeof(inner), "%s/server", path);
	snprintf(file, sizeof(file), "%s/left", inner);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(bench_folder_renew(inner), 0);
		assert_int_equal(access(file, F_OK), -1);
		assert_int_equal(mkdir(file, 0700), 0);
	}
	bench_folder_remove(path);
	assert_int_equal(bench_folder_renew(inner), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_session_is_put_back),
		cmocka_unit_test(test_a_folder_is_made_anew),
	};

	return cmocka_run_group_tests_name("machine", tests, NULL, NULL);
}
