/* tests/unit/server/test_accounts.c: covers the followers of server/accounts.c, over a made-up map:
 * as many accounts as there may be, of which one ends and another is made between two looks. */
#include "../unit.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "reactor/reactor.h"
#include "server/accounts.h"

#define ACCOUNTS 1000u

/* In the first generation of the map there are all but the last, in the second all but the first.
 */
static _Atomic uint64_t generation;
static uint32_t looks_early; /* so many looks find that store 0 has made no copies yet */
static sem_t looks;
static uint32_t taken_times[ACCOUNTS + 1];
static bool has[ACCOUNTS + 1];

int cluster_watch_check(struct cluster *cluster)
{
	(void)cluster;
	return 0;
}

int cluster_accounts_generation(struct cluster *cluster, uint64_t *ret_generation)
{
	(void)cluster;
	if (looks_early) {
		looks_early--;
		return -ENOENT;
	}
	*ret_generation = atomic_load(&generation);
	sem_post(&looks);
	return 0;
}

int cluster_accounts_list(struct cluster *cluster, cluster_account_fn *visit, void *arg)
{
	uint32_t first = (uint32_t)atomic_load(&generation) - 1;
	char number[16];

	(void)cluster;
	for (uint32_t i = first; i < first + ACCOUNTS; i++) {
		snprintf(number, sizeof(number), "%012u", i);
		visit(arg, number, "object digest");
	}
	return 0;
}

int cluster_account_read(struct cluster *cluster, const char *version, struct buf *out)
{
	(void)cluster;
	buf_put_str(out, version);
	return 0;
}

int s3_account_take(struct s3 *s3, const char *number, struct slice text)
{
	uint32_t i = (uint32_t)strtoul(number, NULL, 10);

	(void)s3;
	assert_true(i <= ACCOUNTS);
	has[i] = text.data;
	taken_times[i]++;
	return 0;
}

uint32_t cluster_pending(struct cluster *cluster)
{
	(void)cluster;
	return 0;
}

void cluster_ack(struct cluster *cluster, uint32_t count)
{
	(void)cluster;
	(void)count;
}

void fiber_offload_long(fiber_fn *fn, void *arg)
{
	fn(arg);
}

/* Store 0's. */

int cluster_account_put(struct cluster *cluster, const char *number, struct slice text)
{
	(void)cluster;
	(void)number;
	(void)text;
	return -ENOSYS;
}

int cluster_accounts_claim(struct cluster *cluster)
{
	(void)cluster;
	return -ENOSYS;
}

void cluster_accounts_tell(struct cluster *cluster, uint32_t seconds)
{
	(void)cluster;
	(void)seconds;
}

int s3_account_text(struct s3 *s3, const char *number, struct buf *out)
{
	(void)s3;
	(void)number;
	(void)out;
	return -ENOSYS;
}

void s3_account_each(struct s3 *s3, s3_account_fn *visit, void *arg)
{
	(void)s3;
	(void)visit;
	(void)arg;
}

static void test_one_ends_and_one_is_made(void **state)
{
	struct cluster_opts opts = {.pool = "index"};
	struct accounts *accounts;

	(void)state;
	assert_int_equal(sem_init(&looks, 0, 0), 0);
	atomic_store(&generation, 1);
	assert_int_equal(accounts_open(true, 15, &opts, &accounts), 0);
	assert_int_equal(accounts_start(accounts, NULL, NULL), 0);
	/* A look that began after the news has ended when another begins. */
	atomic_store(&generation, 2);
	for (uint32_t i = 0; i < 4; i++) {
		opts.told(opts.told_arg, SLICE_NONE);
		assert_int_equal(sem_wait(&looks), 0);
	}
	accounts_stop(accounts);
	assert_false(has[0]);
	assert_int_equal(taken_times[0], 2);
	for (uint32_t i = 1; i <= ACCOUNTS; i++) {
		assert_true(has[i]);
		assert_int_equal(taken_times[i], 1);
	}
	accounts_close(accounts);
	sem_destroy(&looks);
}

/* A server that starts blocks the signals that end it. */
static void test_a_signal_ends_the_wait_for_store_0(void **state)
{
	struct cluster_opts opts = {.pool = "index"};
	struct accounts *accounts;
	sigset_t signals, before;

	(void)state;
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	assert_int_equal(sigprocmask(SIG_BLOCK, &signals, &before), 0);
	assert_int_equal(sem_init(&looks, 0, 0), 0);
	atomic_store(&generation, 1);
	assert_int_equal(accounts_open(true, 15, &opts, &accounts), 0);
	assert_int_equal(kill(getpid(), SIGTERM), 0);
	looks_early = 3;
	assert_int_equal(accounts_start(accounts, NULL, NULL), -ECANCELED);
	assert_int_equal(looks_early, 2);
	looks_early = 0;
	assert_int_equal(sigwaitinfo(&signals, NULL), SIGTERM);
	assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
	accounts_stop(accounts);
	accounts_close(accounts);
	sem_destroy(&looks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_signal_ends_the_wait_for_store_0),
		cmocka_unit_test(test_one_ends_and_one_is_made),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
