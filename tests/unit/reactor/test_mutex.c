/* tests/unit/reactor/test_mutex.c: the mutex of fibers, of one reactor and of two. */
#include "rig.h"

#include <pthread.h>

#include "reactor/waiter.h"

#define ROUNDS 2000u

static struct fiber_mutex mutex;

static int setup(void **state)
{
	fiber_mutex_init(&mutex);
	return rig_setup(state);
}

static int teardown(void **state)
{
	fiber_mutex_destroy(&mutex);
	return rig_teardown(state);
}

static void note_thrice(void *arg)
{
	const char *name = arg;

	fiber_mutex_lock(&mutex);
	for (int i = 0; i < 3; i++) {
		note(*name);
		fiber_yield();
	}
	fiber_mutex_unlock(&mutex);
}

static void test_locked_in_order_of_coming(void **state)
{
	(void)state;
	rig_spawn(note_thrice, "a");
	rig_spawn(note_thrice, "b");
	rig_spawn(note_thrice, "c");
	rig_run();
	assert_string_equal(journal, "aaabbbccc");
}

static void again_at_once(void *arg)
{
	const char *name = arg;

	for (int i = 0; i < 3; i++) {
		fiber_mutex_lock(&mutex);
		note(*name);
		fiber_yield();
		fiber_mutex_unlock(&mutex);
	}
}

/* Nobody who waits is passed by one that has just had it. */
static void test_no_second_time_before_those_that_wait(void **state)
{
	(void)state;
	rig_spawn(again_at_once, "a");
	rig_spawn(again_at_once, "b");
	rig_run();
	assert_string_equal(journal, "ababab");
}

static uint32_t count; /* guarded by the mutex alone */

static void count_up(void *arg)
{
	(void)arg;
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint32_t seen;

		fiber_mutex_lock(&mutex);
		seen = count;
		fiber_yield();
		count = seen + 1;
		fiber_mutex_unlock(&mutex);
	}
}

static void *count_on_another(void *arg)
{
	reactor_run((struct reactor *)arg);
	return NULL;
}

/* Each reactor is closed when the other one has ended, which may still be posting to it when its
 * last fiber runs. */
static void test_two_reactors_exclude_each_other(void **state)
{
	const struct reactor_opts opts = {.core_idx = 1, .cpu = -1};
	struct reactor *other;
	pthread_t thread;

	(void)state;
	count = 0;
	assert_int_equal(reactor_open(&opts, &other), 0);
	assert_int_equal(fiber_spawn(other, "other", count_up, NULL), 0);
	reactor_stop(other);
	rig_spawn(count_up, NULL);
	assert_int_equal(pthread_create(&thread, NULL, count_on_another, other), 0);
	rig_run();
	assert_int_equal(pthread_join(thread, NULL), 0);
	reactor_close(other);
	assert_int_equal(count, 2 * ROUNDS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_locked_in_order_of_coming, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_no_second_time_before_those_that_wait, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_two_reactors_exclude_each_other, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
