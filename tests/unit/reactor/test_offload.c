/* tests/unit/reactor/test_offload.c: the order in which helper threads serve the calls of
 * shares, and how many of them serve clients. */
#include "rig.h"

#include <pthread.h>
#include <sys/resource.h>

/* ---- Calls that run at the same time. ---- */

#define MEET_MAX 8u

typedef void offload_fn(fiber_fn *fn, void *arg);

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	offload_fn *offload;
	uint32_t expected, here;
} meeting = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Waits for all the others. */
static void meeting_call(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&meeting.lock);
	meeting.here++;
	pthread_cond_broadcast(&meeting.changed);
	while (meeting.here < meeting.expected)
		pthread_cond_wait(&meeting.changed, &meeting.lock);
	pthread_mutex_unlock(&meeting.lock);
}

static void meeting_fiber(void *arg)
{
	fiber_share_set((uint16_t)(uintptr_t)arg);
	meeting.offload(meeting_call, NULL);
}

static void rests(void *arg)
{
	(void)arg;
	fiber_sleep_ns(10 * NS_PER_MS);
}

/* Each time there are as many calls of clients as helpers, which are idle, most likely, and one of
 * the server's own, which goes first: it gets one more helper, and keeps no client waiting. */
static void meet(offload_fn *offload)
{
	meeting.offload = offload;
	for (uint32_t clients = 0; clients <= MEET_MAX; clients++) {
		meeting.here = 0;
		meeting.expected = clients + 1;
		for (uint32_t i = 0; i < clients; i++)
			rig_spawn(meeting_fiber, (void *)1);
		rig_spawn(meeting_fiber, NULL);
		rig_run();
		rig_spawn(rests, NULL);
		rig_run();
	}
}

/* Comes before the tests that start all helpers there can be. */
static void test_idle_helpers_are_promised_once(void **state)
{
	(void)state;
	meet(fiber_offload);
	meet(fiber_offload_long);
}

/* ---- The order of calls. ---- */

/* One helper serves the calls one after the other, because all others are kept busy. */
#define KEPT_CALLS   11u
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

#define CLIENTS_CALLS 20u
#define CLIENTS_MAX   8u
#define OWN_CALLS     4u

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	offload_fn *offload;
	uint32_t own, clients, clients_max;
} busy = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Waits until as many of clients' calls run as may, and all the server's own have begun. */
static void busy_call(void *arg)
{
	bool is_client = arg != NULL;

	pthread_mutex_lock(&busy.lock);
	busy.clients += is_client;
	busy.own += !is_client;
	busy.clients_max = MAX(busy.clients_max, busy.clients);
	pthread_cond_broadcast(&busy.changed);
	while (busy.own < OWN_CALLS || busy.clients_max < CLIENTS_MAX)
		pthread_cond_wait(&busy.changed, &busy.lock);
	busy.clients -= is_client;
	pthread_mutex_unlock(&busy.lock);
}

static void client_fiber(void *arg)
{
	fiber_share_set(1);
	busy.offload(busy_call, arg);
}

static void own_fiber(void *arg)
{
	busy.offload(busy_call, arg);
}

static void clients_keep_helpers(offload_fn *offload)
{
	busy.offload = offload;
	busy.own = busy.clients_max = 0;
	for (uint32_t i = 0; i < CLIENTS_CALLS; i++)
		rig_spawn(client_fiber, &busy);
	for (uint32_t i = 0; i < OWN_CALLS; i++)
		rig_spawn(own_fiber, NULL);
	rig_run();
	assert_int_equal(busy.clients_max, CLIENTS_MAX);
}

/* The second time, the helpers that clients' calls may not have are idle when these come. */
static void test_clients_leave_helpers_to_the_server(void **state)
{
	(void)state;
	for (uint32_t turn = 0; turn < 2; turn++) {
		clients_keep_helpers(fiber_offload);
		clients_keep_helpers(fiber_offload_long);
	}
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
		RIG_TEST(test_idle_helpers_are_promised_once),
		RIG_TEST(test_shares_take_turns_at_helpers),
		RIG_TEST(test_clients_leave_helpers_to_the_server),
		RIG_TEST(test_long_calls_leave_the_processor_to_others),
	};

	return cmocka_run_group_tests_name("offload", tests, NULL, NULL);
}
