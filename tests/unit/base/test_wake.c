/* Threads that wait for work: each job finds a thread, whichever thread is faster. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/wake.h"

#define THREADS 4u
#define JOBS	20000u
/* On a busy machine each wake may take milliseconds: then fewer jobs do. */
#define JOBS_NS (10 * NS_PER_S)

struct shop {
	pthread_mutex_t lock;
	struct list sleepers;
	struct list waiters; /* waiting for a job to be done */
	uint32_t jobs, done;
	bool ending;
};

static void *work(void *arg)
{
	struct shop *shop = arg;

	pthread_mutex_lock(&shop->lock);
	for (;;) {
		while (!shop->jobs && !shop->ending)
			wake_wait(&shop->sleepers, &shop->lock, NULL);
		if (!shop->jobs)
			break;
		shop->jobs--;
		pthread_mutex_unlock(&shop->lock);
		pthread_mutex_lock(&shop->lock);
		shop->done++;
		wake_unlock(&shop->waiters, &shop->lock, 1);
		pthread_mutex_lock(&shop->lock);
	}
	pthread_mutex_unlock(&shop->lock);
	return NULL;
}

/* Two at a time, like the writes of a commit, and the next only when both are done: a job whose
 * wake is lost would wait for ever. */
static void test_every_job_is_done(void **state)
{
	struct shop shop = {.lock = PTHREAD_MUTEX_INITIALIZER};
	uint64_t until_ns = clock_now_ns() + JOBS_NS;
	pthread_t threads[THREADS];
	uint32_t asked = 0;

	(void)state;
	list_init(&shop.sleepers);
	list_init(&shop.waiters);
	for (uint32_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work, &shop), 0);
	pthread_mutex_lock(&shop.lock);
	do {
		shop.jobs += 2;
		asked += 2;
		wake_unlock(&shop.sleepers, &shop.lock, 2);
		pthread_mutex_lock(&shop.lock);
		while (shop.done < asked)
			wake_wait(&shop.waiters, &shop.lock, NULL);
	} while (asked < JOBS && clock_now_ns() < until_ns);
	shop.ending = true;
	wake_all_unlock(&shop.sleepers, &shop.lock);
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(shop.done, asked);
	assert_true(list_empty(&shop.sleepers) && list_empty(&shop.waiters));
}

static void test_time_runs_out(void **state)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct list sleepers;
	struct timespec now;

	(void)state;
	list_init(&sleepers);
	clock_gettime(CLOCK_MONOTONIC, &now);
	pthread_mutex_lock(&lock);
	assert_int_equal(wake_wait(&sleepers, &lock, &now), ETIMEDOUT);
	assert_true(list_empty(&sleepers));
	/* Nobody is called, and the mutex is free. */
	wake_unlock(&sleepers, &lock, 1);
	assert_int_equal(pthread_mutex_trylock(&lock), 0);
	pthread_mutex_unlock(&lock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_job_is_done),
		cmocka_unit_test(test_time_runs_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
