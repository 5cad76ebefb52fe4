/* tests/unit/reactor/rig.h: a reactor to test in, run on the test's own thread, and a journal for
 * the order of events. Bounded: a missing event ends in an alarm, not in a hang. */
#ifndef TESTS_UNIT_REACTOR_RIG_H
#define TESTS_UNIT_REACTOR_RIG_H

#include "../unit.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "reactor/reactor.h"

#define RIG_ALARM_S	    600
#define REACTOR_TEST_ROUNDS 100000u

static struct reactor *rig;
static char journal[256];

static inline void note(char what)
{
	size_t len = strlen(journal);

	assert_true(len + 1 < sizeof(journal));
	journal[len] = what;
	journal[len + 1] = '\0';
}

static inline struct reactor *rig_open_with(struct reactor_opts opts)
{
	opts.cpu = -1;
	journal[0] = '\0';
	assert_int_equal(reactor_open(&opts, &rig), 0);
	return rig;
}

static inline int rig_setup(void **state)
{
	(void)state;
	alarm(RIG_ALARM_S);
	rig_open_with((struct reactor_opts){.core_idx = 7});
	return 0;
}

static inline int rig_teardown(void **state)
{
	(void)state;
	reactor_close(rig);
	rig = NULL;
	alarm(0);
	return 0;
}

static inline void rig_spawn(fiber_fn *fn, void *arg)
{
	assert_int_equal(fiber_spawn(rig, "test", fn, arg), 0);
}

/* Runs until every fiber has ended. */
static inline void rig_run(void)
{
	reactor_stop(rig);
	reactor_run(rig);
}

static inline struct reactor_stats rig_stats(void)
{
	struct reactor_stats stats;

	reactor_stats(rig, &stats);
	return stats;
}

/* For a child, because it cannot be undone: from now on, system call nr fails with error if its
 * argument arg_idx has this value (low half; -1: with any arguments). */
static inline void rig_forbid(long nr, int arg_idx, uint32_t value, int error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)nr, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			arg_idx < 0 ? (uint32_t)offsetof(struct seccomp_data, nr)
				    : (uint32_t)(offsetof(struct seccomp_data, args) +
						 8 * (uint32_t)arg_idx)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, arg_idx < 0 ? (uint32_t)nr : value, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = ARRAY_LEN(code), .filter = code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(100);
}

/* Runs fn in a child and returns its status from waitpid. fn opens its own reactor, because the
 * child cannot use the parent's ring. */
static inline int rig_in_child(void (*fn)(void))
{
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (child == 0) {
		fn();
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

#define RIG_TEST(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)

#endif
