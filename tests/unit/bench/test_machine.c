/* tests/unit/bench/test_machine.c: the session's priority, in a session of the test's own. */
#include "../unit.h"

#include <fcntl.h>
#include <string.h>
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_session_is_put_back),
	};

	return cmocka_run_group_tests_name("machine", tests, NULL, NULL);
}
