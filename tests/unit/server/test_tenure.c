/* tests/unit/server/test_tenure.c: covers server/tenure.c, over a made-up map: the process ends in
 * order when another gateway has its store, and without order when that takes too long. */
#include "../unit.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/tenure.h"

static const char *owner; /* NULL: the map cannot be read */
static volatile sig_atomic_t asked;
static _Atomic uint32_t looks;

int cluster_store(struct cluster *cluster, uint32_t number, struct cluster_store *ret_store)
{
	(void)cluster;
	atomic_fetch_add(&looks, 1);
	*ret_store = (struct cluster_store){.number = number};
	if (owner)
		snprintf(ret_store->owner, sizeof(ret_store->owner), "%s", owner);
	return owner ? 0 : -EIO;
}

static void ask(int signal_number)
{
	(void)signal_number;
	asked = 1;
}

/* False: it has looked twice, and goes on. */
static bool is_asked(void)
{
	while (!asked && atomic_load(&looks) < 2)
		poll(NULL, 0, 1);
	return asked;
}

/* The exit code of a process of gateway "east" whose requests never end; -1: it was not ended. It
 * is 100 when it ends in order, and 101 when it was not asked to. */
static int process_end(const char *now, int end_ms, bool in_order)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct tenure *tenure;

		signal(SIGTERM, ask);
		owner = now;
		if (tenure_begin(NULL, 3, "east", end_ms, &tenure))
			_exit(99);
		if (!is_asked())
			_exit(tenure_lost(tenure) ? 98 : 101);
		if (!tenure_lost(tenure))
			_exit(97);
		while (!in_order)
			poll(NULL, 0, 1000);
		tenure_end(tenure);
		_exit(100);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_requests_that_do_not_end(void **state)
{
	(void)state;
	assert_int_equal(process_end("west", 50, false), TENURE_EXIT_LOST);
}

static void test_in_order(void **state)
{
	(void)state;
	assert_int_equal(process_end("west", TENURE_END_MS, true), 100);
}

static void test_it_goes_on(void **state)
{
	(void)state;
	/* Its own, nobody's, and a map that says nothing. */
	assert_int_equal(process_end("east", 50, false), 101);
	assert_int_equal(process_end("", 50, false), 101);
	assert_int_equal(process_end(NULL, 50, false), 101);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests_that_do_not_end),
		cmocka_unit_test(test_in_order),
		cmocka_unit_test(test_it_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
