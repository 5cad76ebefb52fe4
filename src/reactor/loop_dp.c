/* reactor/loop_dp.c: the loop: turns while there is work, spins a little when there is none, then
 * sleeps until something can happen. */
#include "reactor/reactor_priv.h"

#include <sched.h>

_Thread_local struct reactor *reactor_current;

struct reactor *reactor_self(void)
{
	return reactor_current;
}

uint32_t reactor_core_idx(const struct reactor *reactor)
{
	return reactor->opts.core_idx;
}

uint64_t reactor_now_ns(const struct reactor *reactor)
{
	return reactor->now_ns;
}

bool reactor_stopping(const struct reactor *reactor)
{
	return atomic_load_explicit(&reactor->stop_asked, memory_order_acquire);
}

void reactor_stop(struct reactor *reactor)
{
	/* Rung always: whether the reactor sleeps cannot be asked without a race, and this is rare.
	 */
	atomic_store_explicit(&reactor->stop_asked, true, memory_order_release);
	mailbox_ring(reactor);
}

/* Turns may nest: a fiber of one reactor may drive another. */
static struct reactor *enter(struct reactor *reactor)
{
	struct reactor *outer = reactor_current;

	CHECK(reactor->running == NULL);
	if (!reactor->bound)
		uring_bind(reactor);
	check_thread(reactor);
	reactor_current = reactor;
	return outer;
}

static uint32_t announce_stop(struct reactor *reactor)
{
	struct mpsc_node *node;
	uint32_t count = 0;

	reactor->stop_seen = true;
	while ((node = mpsc_pop(&reactor->at_stop)) != NULL) {
		struct reactor_msg *msg = CONTAINER_OF(node, struct reactor_msg, node);

		msg->fn(msg);
		count++;
	}
	return count;
}

void reactor_at_stop(struct reactor *reactor, struct reactor_msg *msg)
{
	if (reactor->stop_seen)
		reactor_post(reactor, msg);
	else
		mpsc_push(&reactor->at_stop, &msg->node);
}

static uint32_t turn(struct reactor *reactor)
{
	uint64_t begin_ns = clock_now_ns();
	uint32_t work;

	reactor->now_ns = begin_ns;
	work = pollers_poll(reactor);
	work += mailbox_drain(reactor);
	work += uring_reap(reactor);
	work += wheel_turn(&reactor->wheel, begin_ns);
	if (!reactor->stop_seen && reactor_stopping(reactor))
		work += announce_stop(reactor);
	work += fibers_round(reactor);
	uring_flush(reactor);
	stat_add(&reactor->stats.turns, 1);
	if (work) {
		stat_add(&reactor->stats.busy_turns, 1);
		stat_add(&reactor->stats.busy_ns, clock_now_ns() - begin_ns);
	}
	return work;
}

/* Nothing to do that the ring would not tell of. */
static bool may_sleep(struct reactor *reactor)
{
	return mpsc_empty(&reactor->mailbox) && list_empty(&reactor->runnable) &&
	       (reactor->stop_seen || !reactor_stopping(reactor));
}

static void sleep_until(struct reactor *reactor, uint64_t deadline_ns)
{
	uint64_t timer_ns;

	if (!may_sleep(reactor) || !pollers_arm(reactor))
		return;
	atomic_store_explicit(&reactor->sleeping, true, memory_order_relaxed);
	full_fence();
	/* Asked again: posts from before the fence, and what the pollers did when they armed. */
	if (may_sleep(reactor)) {
		timer_ns = wheel_next_ns(&reactor->wheel);
		uring_sleep(reactor, MIN(timer_ns, deadline_ns));
		stat_add(&reactor->stats.sleeps, 1);
	}
	atomic_store_explicit(&reactor->sleeping, false, memory_order_relaxed);
	pollers_disarm(reactor);
}

static bool finished(struct reactor *reactor)
{
	return reactor->stop_seen && reactor->stats.fibers == 0 && mpsc_empty(&reactor->mailbox);
}

void reactor_run(struct reactor *reactor)
{
	struct reactor *outer = enter(reactor);
	uint64_t busy_until_ns = clock_now_ns();
	uint64_t yield_at_ns = 0;

	reactor_pin(reactor);
	for (;;) {
		if (turn(reactor)) {
			busy_until_ns = reactor->now_ns;
			yield_at_ns = busy_until_ns + CLOCK_YIELD_NS;
			continue;
		}
		if (finished(reactor))
			break;
		if (reactor->now_ns - busy_until_ns >= reactor->opts.idle_spin_ns) {
			sleep_until(reactor, DEADLINE_NONE);
		} else if (reactor->now_ns >= yield_at_ns) {
			sched_yield();
			yield_at_ns = reactor->now_ns + CLOCK_YIELD_NS;
		} else {
			clock_relax();
		}
	}
	reactor_current = outer;
}

uint32_t reactor_turn(struct reactor *reactor)
{
	struct reactor *outer = enter(reactor);
	uint32_t work = turn(reactor);

	reactor_current = outer;
	return work;
}

uint32_t reactor_turn_wait(struct reactor *reactor, uint64_t deadline_ns)
{
	struct reactor *outer = enter(reactor);
	uint64_t begin_ns = clock_now_ns();
	uint32_t work = turn(reactor);

	while (!work && may_sleep(reactor) && reactor->now_ns < deadline_ns &&
		reactor->now_ns - begin_ns < reactor->opts.idle_spin_ns) {
		clock_relax();
		work = turn(reactor);
	}
	if (!work && reactor->now_ns < deadline_ns) {
		sleep_until(reactor, deadline_ns);
		work = turn(reactor);
	}
	reactor_current = outer;
	return work;
}
