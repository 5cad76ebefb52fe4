/* tests/unit/reactor/test_poller.c: pollers: called each turn, armed before a sleep, never asleep
 * while there is work, removable at any time. */
#include "rig.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "reactor/reactor_priv.h"

/* A shared counter that a thread raises. Like a completion queue, it rings only when armed. */
struct queue {
	struct reactor_poller poller;
	_Atomic uint64_t raised;
	atomic_bool armed;
	uint64_t taken, taken_max;
	uint32_t arms, disarms;
	struct fiber *waiter;
};

static uint32_t queue_poll(void *arg)
{
	struct queue *queue = arg;
	uint64_t raised = atomic_load(&queue->raised);
	uint32_t count = (uint32_t)(raised - queue->taken);

	queue->taken = raised;
	if (queue->taken == queue->taken_max && queue->waiter)
		fiber_wake(queue->waiter);
	return count;
}

static bool queue_arm(void *arg)
{
	struct queue *queue = arg;

	queue->arms++;
	atomic_store(&queue->armed, true);
	if (atomic_load(&queue->raised) == queue->taken)
		return true;
	atomic_store(&queue->armed, false);
	return false;
}

static void queue_disarm(void *arg)
{
	struct queue *queue = arg;
	uint64_t count;

	queue->disarms++;
	atomic_store(&queue->armed, false);
	if (read(queue->poller.event_fd, &count, sizeof(count)) < 0)
		assert_int_equal(errno, EAGAIN);
}

static void queue_raise(struct queue *queue)
{
	uint64_t one = 1;

	atomic_fetch_add(&queue->raised, 1);
	if (atomic_exchange(&queue->armed, false) &&
		write(queue->poller.event_fd, &one, sizeof(one)) < 0)
		abort();
}

static void queue_init(struct queue *queue, uint64_t taken_max)
{
	*queue = (struct queue){
		.poller = {.name = "queue",
			.poll = queue_poll,
			.arm = queue_arm,
			.disarm = queue_disarm,
			.arg = queue,
			.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)},
		.taken_max = taken_max,
	};
	assert_true(queue->poller.event_fd >= 0);
}

#define RAISES 30000u
/* On a busy machine each pause may take milliseconds: from then on there are none. */
#define PAUSES_NS (5 * NS_PER_S)

static void *raise_all(void *arg)
{
	uint64_t until_ns = clock_now_ns() + PAUSES_NS;
	struct queue *queue = arg;

	for (uint32_t i = 1; i < RAISES; i++) {
		queue_raise(queue);
		/* Lets the reactor get close to sleep, or into it, with another delay each time. */
		for (uint32_t pause = i % 5; pause > 0 && clock_now_ns() < until_ns; pause--)
			sched_yield();
	}
	/* It may have been stopped all the time. */
	while (!rig_stats().sleeps)
		sched_yield();
	queue_raise(queue);
	return NULL;
}

static void waits_for_queue(void *arg)
{
	struct queue *queue = arg;

	queue->waiter = fiber_self();
	while (queue->taken < queue->taken_max)
		fiber_park();
	reactor_poller_remove(rig, &queue->poller);
}

static void test_no_event_is_lost_to_sleep(void **state)
{
	static struct queue one, two;
	pthread_t threads[2];

	(void)state;
	reactor_close(rig);
	rig_open_with((struct reactor_opts){.idle_spin_ns = 1});
	queue_init(&one, RAISES);
	queue_init(&two, RAISES);
	reactor_poller_add(rig, &one.poller);
	reactor_poller_add(rig, &two.poller);
	rig_spawn(waits_for_queue, &one);
	rig_spawn(waits_for_queue, &two);
	assert_int_equal(pthread_create(&threads[0], NULL, raise_all, &one), 0);
	assert_int_equal(pthread_create(&threads[1], NULL, raise_all, &two), 0);
	rig_run();
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	assert_int_equal(one.taken, RAISES);
	assert_int_equal(two.taken, RAISES);
	assert_true(rig_stats().sleeps > 0);
	print_message("# %u events, %u sleeps\n", 2 * RAISES, (unsigned)rig_stats().sleeps);
	close(one.poller.event_fd);
	close(two.poller.event_fd);
}

static void test_an_event_from_before_the_sleep_ends_it(void **state)
{
	struct queue queue;

	(void)state;
	queue_init(&queue, UINT64_MAX);
	assert_int_equal(eventfd_write(queue.poller.event_fd, 1), 0);
	reactor_poller_add(rig, &queue.poller);
	assert_true(reactor_turn_wait(rig, DEADLINE_NONE) > 0);
	assert_int_equal(queue.arms, 1);
	assert_int_equal(queue.disarms, 1);
	reactor_poller_remove(rig, &queue.poller);
	close(queue.poller.event_fd);
}

static uint32_t poll_nothing(void *arg)
{
	(void)arg;
	return 0;
}

static bool arm_refuse(void *arg)
{
	(void)arg;
	note('r');
	return false;
}

static void disarm_never(void *arg)
{
	(void)arg;
	note('!');
}

static void test_a_refusal_disarms_those_before_and_prevents_sleep(void **state)
{
	struct reactor_poller refuser = {
		.name = "refuser", .poll = poll_nothing, .arm = arm_refuse, .disarm = disarm_never};
	struct queue before, behind;

	(void)state;
	queue_init(&before, UINT64_MAX);
	queue_init(&behind, UINT64_MAX);
	refuser.event_fd = before.poller.event_fd;
	reactor_poller_add(rig, &before.poller);
	reactor_poller_add(rig, &refuser);
	reactor_poller_add(rig, &behind.poller);
	reactor_turn_wait(rig, DEADLINE_NONE);
	assert_string_equal(journal, "r");
	assert_int_equal(before.arms, 1);
	assert_int_equal(before.disarms, 1);
	assert_int_equal(behind.arms, 0);
	assert_int_equal(behind.disarms, 0);
	assert_int_equal(rig_stats().sleeps, 0);
	reactor_poller_remove(rig, &before.poller);
	reactor_poller_remove(rig, &refuser);
	reactor_poller_remove(rig, &behind.poller);
	close(before.poller.event_fd);
	close(behind.poller.event_fd);
}

static void test_a_poller_without_event_fd_prevents_sleep(void **state)
{
	struct reactor_poller deaf = {.name = "deaf",
		.poll = poll_nothing,
		.arm = arm_refuse,
		.disarm = disarm_never,
		.event_fd = -1};

	(void)state;
	reactor_poller_add(rig, &deaf);
	reactor_turn_wait(rig, DEADLINE_NONE);
	assert_int_equal(rig_stats().sleeps, 0);
	assert_string_equal(journal, "");
	reactor_poller_remove(rig, &deaf);
	/* Again, when the deadline has passed before the turn sees it. */
	while (!rig_stats().sleeps)
		reactor_turn_wait(rig, clock_now_ns() + NS_PER_MS);
	assert_int_equal(rig_stats().sleeps, 1);
}

static struct reactor_poller chain[3];

static uint32_t poll_and_remove(void *arg)
{
	note(*(const char *)arg);
	/* The first poller removes itself and its neighbour while the reactor polls. */
	if (arg == chain[0].arg) {
		reactor_poller_remove(rig, &chain[0]);
		reactor_poller_remove(rig, &chain[1]);
	}
	return 0;
}

static void test_pollers_may_remove_pollers(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		chain[i] = (struct reactor_poller){.name = "chain",
			.poll = poll_and_remove,
			.arm = arm_refuse,
			.disarm = disarm_never,
			.arg = &"abc"[i],
			.event_fd = -1};
		reactor_poller_add(rig, &chain[i]);
	}
	reactor_turn(rig);
	reactor_turn(rig);
	assert_string_equal(journal, "acc");
	reactor_poller_remove(rig, &chain[2]);
}

/* A poller is removed, freed and closed while the kernel still polls its descriptor: nothing may
 * touch it any more, and its place in the table is free again. */
static void test_a_removed_poller_may_be_freed_at_once(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 3 * REACTOR_POLLERS_MAX; i++) {
		struct queue *queue = malloc(sizeof(*queue));

		assert_non_null(queue);
		queue_init(queue, UINT64_MAX);
		reactor_poller_add(rig, &queue->poller);
		/* The deadline is near, because the reactor spins until then. */
		reactor_turn_wait(rig, clock_now_ns() + 100 * NS_PER_US);
		reactor_poller_remove(rig, &queue->poller);
		close(queue->poller.event_fd);
		free(queue);
	}
	assert_true(rig_stats().sleeps > 0);
	for (uint32_t i = 0; i < REACTOR_POLLERS_MAX; i++) {
		assert_null(rig->waits[i].poller);
		while (rig->waits[i].in_kernel)
			reactor_turn_wait(rig, DEADLINE_NONE);
	}
}

static bool arm_agree(void *arg)
{
	(void)arg;
	return true;
}

static void disarm_nothing(void *arg)
{
	(void)arg;
}

/* A descriptor whose device is gone reports an error for ever: it ends one sleep, and not all. */
static void test_a_failed_descriptor_ends_one_sleep(void **state)
{
	struct reactor_poller failed = {
		.name = "failed", .poll = poll_nothing, .arm = arm_agree, .disarm = disarm_nothing};
	uint64_t deadline_ns;
	int ends[2];

	(void)state;
	assert_int_equal(pipe(ends), 0);
	close(ends[0]);
	failed.event_fd = ends[1];
	for (uint32_t added = 1; added <= 2; added++) {
		reactor_poller_add(rig, &failed);
		deadline_ns = clock_now_ns() + 200 * NS_PER_MS;
		/* It sleeps once, even if this thread is stopped until the deadline. */
		while (clock_now_ns() < deadline_ns || rig_stats().sleeps < added)
			reactor_turn_wait(rig, MAX(deadline_ns, clock_now_ns() + NS_PER_MS));
		assert_in_range(rig_stats().sleeps, added, 8 * added);
		/* A poller in the same place is heard again. */
		reactor_poller_remove(rig, &failed);
	}
	close(ends[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_no_event_is_lost_to_sleep),
		RIG_TEST(test_an_event_from_before_the_sleep_ends_it),
		RIG_TEST(test_a_refusal_disarms_those_before_and_prevents_sleep),
		RIG_TEST(test_a_poller_without_event_fd_prevents_sleep),
		RIG_TEST(test_pollers_may_remove_pollers),
		RIG_TEST(test_a_removed_poller_may_be_freed_at_once),
		RIG_TEST(test_a_failed_descriptor_ends_one_sleep),
	};

	return cmocka_run_group_tests_name("poller", tests, NULL, NULL);
}
