/* tests/unit/reactor/test_offload.c: the order in which helper threads serve the calls of
 * shares. */
#include "rig.h"

#include <pthread.h>
#include <sys/resource.h>

/* One helper serves the calls one after the other, because all others are kept busy. */
#define KEPT_CALLS   7u
#define MANY_CALLS   6u
#define QUEUED_CALLS (2 * MANY_CALLS + 2)

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint32_t queued, served;
	char order[QUEUED_CALLS + 1];
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Waits until so many calls were queued, and so many served. */
static void queue_wait(uint32_t queued, uint32_t served)
{
	pthread_mutex_lock(&queue.lock);
	while (queue.queued < queued || queue.served < served)
		pthread_cond_wait(&queue.changed, &queue.lock);
	pthread_mutex_unlock(&queue.lock);
}

static void queue_note(char who)
{
	pthread_mutex_lock(&queue.lock);
	if (who)
		queue.order[queue.served++] = who;
	else
		queue.queued++;
	pthread_cond_broadcast(&queue.changed);
	pthread_mutex_unlock(&queue.lock);
}

static void kept_call(void *arg)
{
	(void)arg;
	queue_wait(0, QUEUED_CALLS);
}

static void first_call(void *arg)
{
	(void)arg;
	queue_wait(QUEUED_CALLS + 1, 0);
}

static void queued_call(void *arg)
{
	queue_note(*(const char *)arg);
}

static void kept_fiber(void *arg)
{
	(void)arg;
	fiber_offload_long(kept_call, NULL);
}

static void first_fiber(void *arg)
{
	(void)arg;
	fiber_offload_long(first_call, NULL);
}

static void queued_fiber(void *arg)
{
	const char *who = (const char *)arg;

	fiber_share_set((uint16_t)(*who - '0'));
	queue_note('\0');
	fiber_offload_long(queued_call, arg);
}

/* Gets its turn when all others wait for theirs. */
static void queued_all(void *arg)
{
	(void)arg;
	queue_note('\0');
}

static void test_shares_take_turns_at_helpers(void **state)
{
	static char one[] = "1", two[] = "2", own[] = "0";

	(void)state;
	for (uint32_t i = 0; i < KEPT_CALLS; i++)
		rig_spawn(kept_fiber, NULL);
	rig_spawn(first_fiber, NULL);
	for (uint32_t i = 0; i < 2 * MANY_CALLS; i++)
		rig_spawn(queued_fiber, one);
	rig_spawn(queued_fiber, two);
	rig_spawn(queued_fiber, own);
	rig_spawn(queued_all, NULL);
	rig_run();
	assert_string_equal(queue.order, "01211111111111");
}

static int nice_there;

static void notes_nice(void *arg)
{
	(void)arg;
	nice_there = getpriority(PRIO_PROCESS, 0);
}

static void long_nice_fiber(void *arg)
{
	fiber_offload_long(notes_nice, arg);
}

static void short_nice_fiber(void *arg)
{
	fiber_offload(notes_nice, arg);
}

static void test_long_calls_leave_the_processor_to_others(void **state)
{
	int here = getpriority(PRIO_PROCESS, 0);

	(void)state;
	rig_spawn(short_nice_fiber, NULL);
	rig_run();
	assert_int_equal(nice_there, here);
	rig_spawn(long_nice_fiber, NULL);
	rig_run();
	assert_true(nice_there > here || here == 19);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_shares_take_turns_at_helpers),
		RIG_TEST(test_long_calls_leave_the_processor_to_others),
	};

	return cmocka_run_group_tests_name("offload", tests, NULL, NULL);
}
