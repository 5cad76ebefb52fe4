/* tests/unit/abort.h: checks that a caller's bug is detected: a CHECK ends the process. */
#ifndef TESTS_UNIT_ABORT_H
#define TESTS_UNIT_ABORT_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sanitizer.h"
#include "unit.h"

#if SANITIZER_ADDRESS
#include <sanitizer/common_interface_defs.h>
#endif

static inline void abort_expected(void (*bug)(void *arg), void *arg)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (!pid) {
		fclose(stderr);
		signal(SIGABRT, SIG_DFL);
#if SANITIZER_ADDRESS
		/* The sanitizer detects freed memory before the CHECK does, and would exit with
		 * 1. */
		__sanitizer_set_death_callback(abort);
#endif
		bug(arg);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

#endif
