/* reactor/loop_dp.c: the loop: turns while there is work, spins a little when there is none, then
 * sleeps until something can happen. */
#include "reactor/reactor_priv.h"

#include <sched.h>

/* The largest age of the clock reading that a turn begins with: a third of a microsecond; zero
 * where the counter does not count cycles. */
#if defined(__x86_64__)
#define CLOCK_KEPT_TICKS 1024u
#else
#define CLOCK_KEPT_TICKS 0u
#endif
/* A client that sends one request after another sends the next one within this time. A pause would
 * delay it. */
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

uint64_t reactor_fine_ns(const struct reactor *reactor)
{
	int64_t ticks = (int64_t)(clock_ticks() - reactor->now_ticks);

	/* Processors' counters may differ by a little. */
	return reactor->now_ns +
	       (ticks > 0 ? (uint64_t)ticks * reactor->tick_ns / REACTOR_TICK_NS_ONE : 0);
}

bool reactor_stopping(const struct reactor *reactor)
{
	return atomic_load_explicit(&reactor->stop_asked, memory_order_acquire);
}

void reactor_stop(struct reactor *reactor)
{
	/* Rings always: a check whether the reactor sleeps would race, and this call is rare. */
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

/* Reading the clock costs as much as the rest of an idle turn. Where there is a cycle counter, the
 * clock is read again only after CLOCK_KEPT_TICKS. */
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
		uint64_t ticks = clock_ticks() - begin_ticks;

		stat_add(&reactor->stats.busy_turns, 1);
		stat_add(&reactor->busy_ticks, ticks);
		if (__builtin_expect(ticks >= reactor->long_ticks, 0))
			stat_add(&reactor->stats.long_turns, 1);
	}
	return work;
}

/* True when the ring will report all further work. */
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
	/* Asks again, because of posts from before the fence and of what the pollers did when they
	 * armed. */
	if (may_sleep(reactor)) {
		timer_ns = wheel_next_ns(&reactor->wheel);
		uring_sleep(reactor, MIN(timer_ns, deadline_ns));
		stat_add(&reactor->stats.sleeps, 1);
	}
	atomic_store_explicit(&reactor->sleeping, false, memory_order_relaxed);
	pollers_disarm(reactor);
}

/* True when a thread works for this reactor and spinning would take its processor. */
static bool in_the_way(const struct reactor *reactor)
{
	return atomic_load_explicit(&reactor->helpers, memory_order_relaxed) &&
	       atomic_load_explicit(&reactors_open, memory_order_relaxed) >= reactor->cpus;
}

static bool finished(struct reactor *reactor)
{
	return reactor->stop_seen && reactor->stats.fibers == 0 && mpsc_empty(&reactor->mailbox);
}

/* A wait for work. */
struct idle {
	bool waits;
	bool helped; /* it slept early, for a helper */
	uint64_t since_ns, yield_at_ns;
	uint64_t spun_ns; /* the last turn, if the loop has spun since; otherwise 0 */
};

/* Between two turns of a spinning loop hardly any time passes, unless others had the processor. */
static void lost_count(struct reactor *reactor, const struct idle *idle)
{
	uint64_t ns = reactor->now_ns - idle->spun_ns;

	if (idle->spun_ns && ns >= SPIN_LOST_NS)
		reactor->sample.lost_ns += ns;
}

static void idle_end(struct reactor *reactor, struct idle *idle)
{
	idle->waits = false;
	if (!reactor->opts.idle_spin_follows)
		return;
	lost_count(reactor, idle);
	if (!idle->helped)
		reactor->sample.waits[spin_place(reactor->now_ns - idle->since_ns)]++;
	if (reactor->now_ns >= reactor->look_due_ns)
		spin_look(reactor);
}

/* After a turn without work: spins on, or sleeps. */
static void idle_go_on(struct reactor *reactor, struct idle *idle)
{
	uint64_t now_ns = reactor->now_ns;
	bool helped = in_the_way(reactor);

	if (!idle->waits)
		*idle = (struct idle){
			.waits = true, .since_ns = now_ns, .yield_at_ns = now_ns + CLOCK_YIELD_NS};
	lost_count(reactor, idle);
	idle->helped |= helped;
	idle->spun_ns = now_ns;
	if (helped || now_ns - idle->since_ns >= reactor->idle_spin_ns) {
		sleep_until(reactor, DEADLINE_NONE);
		idle->spun_ns = 0;
	} else if (now_ns >= idle->yield_at_ns) {
		sched_yield();
		idle->yield_at_ns = now_ns + CLOCK_YIELD_NS;
	} else if (now_ns - idle->since_ns >= RELAX_AFTER_NS) {
		clock_relax();
	}
}

void reactor_run(struct reactor *reactor)
{
	struct reactor *outer = enter(reactor);
	struct idle idle = {.waits = false};
	bool counts = !outer; /* a nested reactor counts on the outer one's shard */

	reactor_pin(reactor);
	if (counts)
		counter_shard_open();
	if (reactor->opts.idle_spin_follows)
		spin_begin(reactor);
	for (;;) {
		if (turn(reactor)) {
			if (idle.waits)
				idle_end(reactor, &idle);
			continue;
		}
		if (finished(reactor))
			break;
		idle_go_on(reactor, &idle);
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
		reactor->now_ns - begin_ns < reactor->idle_spin_ns) {
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
