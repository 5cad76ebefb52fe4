/* reactor/loop_dp.c: the loop: turns while there is work, spins a little when there is none, then
 * sleeps until something can happen. */
#include "reactor/reactor_priv.h"

#include <sched.h>

/* How old the turn's time may be when it begins: a third of a microsecond, or nothing where the
 * counter's steps are no cycles. */
#if defined(__x86_64__)
#define CLOCK_KEPT_TICKS 1024u
#else
#define CLOCK_KEPT_TICKS 0u
#endif
/* A client that asks for one thing after the other is back before; a pause would make it wait. */
#define RELAX_AFTER_NS (5 * NS_PER_US)

_Thread_local struct reactor *reactor_current;
_Atomic uint32_t reactors_open;

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

/* The clock costs as much as an idle turn's other work: it is read again only after a while by the
 * cycle counter, where there is one. */
static uint64_t turn_begin(struct reactor *reactor)
{
	uint64_t ticks = clock_ticks();

	if (ticks - reactor->now_ticks >= CLOCK_KEPT_TICKS) {
		reactor->now_ticks = ticks;
		reactor->now_ns = clock_now_ns();
	}
	return ticks;
}

static uint32_t turn(struct reactor *reactor)
{
	uint64_t begin_ticks = turn_begin(reactor);
	uint32_t work;

	work = pollers_poll(reactor);
	work += mailbox_drain(reactor);
	work += uring_reap(reactor);
	work += wheel_turn(&reactor->wheel, reactor->now_ns);
	reactor->stop_seen = reactor_stopping(reactor);
	work += fibers_round(reactor);
	uring_flush(reactor);
	stat_add(&reactor->stats.turns, 1);
	if (work) {
		stat_add(&reactor->stats.busy_turns, 1);
		stat_add(&reactor->busy_ticks, clock_ticks() - begin_ticks);
	}
	return work;
}

/* Nothing to do that the ring would not tell of. */
static bool may_sleep(struct reactor *reactor)
{
	return mpsc_empty(&reactor->mailbox) && !reactor->runnable &&
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

/* A thread works for this reactor, and spinning would be in its way. */
static bool in_the_way(const struct reactor *reactor)
{
	return atomic_load_explicit(&reactor->helpers, memory_order_relaxed) &&
	       atomic_load_explicit(&reactors_open, memory_order_relaxed) >= reactor->cpus;
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
	bool counts = !outer; /* a nested one counts on its outer one's lane */

	reactor_pin(reactor);
	if (counts)
		counter_shard_open();
	for (;;) {
		if (turn(reactor)) {
			busy_until_ns = reactor->now_ns;
			yield_at_ns = busy_until_ns + CLOCK_YIELD_NS;
			continue;
		}
		if (finished(reactor))
			break;
		if (reactor->now_ns - busy_until_ns >= reactor->opts.idle_spin_ns ||
			in_the_way(reactor)) {
			sleep_until(reactor, DEADLINE_NONE);
		} else if (reactor->now_ns >= yield_at_ns) {
			sched_yield();
			yield_at_ns = reactor->now_ns + CLOCK_YIELD_NS;
		} else if (reactor->now_ns - busy_until_ns >= RELAX_AFTER_NS) {
			clock_relax();
		}
	}
	if (counts)
		counter_shard_close();
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
