/* tests/unit/region/region_test.h: common parts of the region's tests. */
#ifndef TESTS_REGION_TEST_H
#define TESTS_REGION_TEST_H

#include "../unit.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "region/region.h"

static inline struct region *region_test_open(uint64_t bytes)
{
	const struct region_opts opts = {
		.name = "test", .bytes = bytes, .core_count = 2, .ring_entries = 8};
	struct region *region = NULL;

	assert_int_equal(region_open(&opts, &region), 0);
	return region;
}

/* Runs fn in a child that must abort, with text on standard error. */
static inline void expect_abort(void (*fn)(void), const char *text)
{
	char said[4096];
	size_t len = 0;
	ssize_t got;
	int fds[2];
	int status;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	fflush(stdout);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		signal(SIGABRT, SIG_DFL);
		dup2(fds[1], STDERR_FILENO);
		close(fds[0]);
		close(fds[1]);
		fn();
		_exit(0);
	}
	close(fds[1]);
	while ((got = read(fds[0], said + len, sizeof(said) - 1 - len)) > 0)
		len += (size_t)got;
	said[len] = '\0';
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
	if (!strstr(said, text))
		fail_msg("expected \"%s\" in \"%s\"", text, said);
}

#endif
