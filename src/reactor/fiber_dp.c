/* reactor/fiber_dp.c: runs, stops and wakes fibers. A fiber always switches to the loop and the
 * loop to a fiber, never one fiber to another. */
#include "reactor/reactor_priv.h"

#include <errno.h>

#if SANITIZER_ADDRESS
#include <sanitizer/common_interface_defs.h>
#endif

/* The loop's side of a switch: returns when the fiber stops or ends. */
static void switch_in(struct reactor *reactor, struct fiber *fiber)
{
#if SANITIZER_ADDRESS
	__sanitizer_start_switch_fiber(&reactor->loop_sanitizer, fiber->stack, fiber->stack_bytes);
#elif SANITIZER_THREAD
	reactor->loop_sanitizer = __tsan_get_current_fiber();
	__tsan_switch_to_fiber(fiber->sanitizer, 0);
#endif
	switch_to(&reactor->loop_ctx, &fiber->ctx);
#if SANITIZER_ADDRESS
	__sanitizer_finish_switch_fiber(reactor->loop_sanitizer, NULL, NULL);
#endif
}

/* The fiber's side: returns when the loop enters the fiber again. */
static void leave_fiber(struct fiber *fiber)
{
	struct reactor *reactor = fiber->reactor;

#if SANITIZER_ADDRESS
	/* A fiber that ends gives up its fake stack. */
	__sanitizer_start_switch_fiber(fiber->state == FIBER_IDLE ? NULL : &fiber->sanitizer,
		reactor->loop_stack, reactor->loop_stack_bytes);
#elif SANITIZER_THREAD
	__tsan_switch_to_fiber(reactor->loop_sanitizer, 0);
#endif
	switch_to(&fiber->ctx, &reactor->loop_ctx);
#if SANITIZER_ADDRESS
	__sanitizer_finish_switch_fiber(
		fiber->sanitizer, &reactor->loop_stack, &reactor->loop_stack_bytes);
#endif
}

void fiber_main(void *arg)
{
	struct fiber *fiber = arg;

#if SANITIZER_ADDRESS
	__sanitizer_finish_switch_fiber(
		NULL, &fiber->reactor->loop_stack, &fiber->reactor->loop_stack_bytes);
#endif
	fiber->fn(fiber->arg);
	fiber->state = FIBER_IDLE;
	leave_fiber(fiber);
	CHECK_FAIL("a fiber that ended runs again");
}

static void make_runnable(struct fiber *fiber, enum fiber_cause cause)
{
	fiber->state = FIBER_RUNNABLE;
	fiber->cause = cause;
	share_push(fiber->reactor, &fiber->place);
}

static void retire(struct reactor *reactor, struct fiber *fiber)
{
#if SANITIZER_THREAD
	__tsan_destroy_fiber(fiber->sanitizer);
#endif
	/* The stack used last is the warmest: it is reused first. */
	list_push_front(&reactor->fibers_idle, &fiber->place.link);
	__atomic_store_n(&reactor->stats.fibers, reactor->stats.fibers - 1, __ATOMIC_RELAXED);
	/* One of the fibers beyond the limit takes the place of the one that ended within it. */
	if (__builtin_expect(reactor->kept_used != 0, 0))
		fiber_starts_serve(reactor);
}

void fiber_enter(struct reactor *reactor, struct fiber *fiber)
{
	CHECK(fiber->state == FIBER_RUNNABLE);
	fiber->state = FIBER_RUNNING;
	reactor->running = fiber;
	switch_in(reactor, fiber);
	reactor->running = NULL;
	if (fiber->state == FIBER_IDLE)
		retire(reactor, fiber);
}

int fiber_run(struct reactor *reactor, const char *name, fiber_fn *fn, void *arg)
{
	int ret = fiber_spawn(reactor, name, fn, arg);
	struct fiber *fiber;

	if (ret || reactor->running || reactor_current != reactor)
		return ret;
	/* A fiber that is spawned outside fibers belongs to the server's own share. */
	fiber = CONTAINER_OF(reactor->shares[0].runnable.prev, struct fiber, place.link);
	share_take(reactor, &fiber->place);
	fiber_enter(reactor, fiber);
	stat_add(&reactor->stats.fiber_switches, 1);
	return 0;
}

struct fiber *fiber_self(void)
{
	return reactor_current ? reactor_current->running : NULL;
}

/* For calls that only a fiber may make. */
static struct fiber *self(void)
{
	struct fiber *fiber = fiber_self();

	CHECK(fiber != NULL);
	return fiber;
}

void fiber_yield(void)
{
	struct fiber *fiber = self();

	make_runnable(fiber, CAUSE_OTHER);
	leave_fiber(fiber);
}

void fiber_park(void)
{
	struct fiber *fiber = self();

	if (fiber->wake_pending) {
		fiber->wake_pending = false;
		return;
	}
	fiber->state = FIBER_PARKED;
	leave_fiber(fiber);
}

void fiber_wake(struct fiber *fiber)
{
	check_thread(fiber->reactor);
	if (fiber->state == FIBER_PARKED)
		make_runnable(fiber, CAUSE_WAKE);
	else if (fiber->state == FIBER_RUNNABLE && fiber->cause != CAUSE_OTHER)
		fiber->cause = CAUSE_WAKE; /* counts for the park that is about to return */
	else
		fiber->wake_pending = true;
}

void fiber_wait(void)
{
	struct fiber *fiber = self();

	fiber->state = FIBER_WAITING;
	leave_fiber(fiber);
}

void fiber_resume(struct fiber *fiber)
{
	check_thread(fiber->reactor);
	CHECK(fiber->state == FIBER_WAITING);
	make_runnable(fiber, CAUSE_OTHER);
}

static void park_deadline(struct reactor_timer *timer, void *arg)
{
	struct fiber *fiber = arg;

	(void)timer;
	if (fiber->state == FIBER_PARKED)
		make_runnable(fiber, CAUSE_DEADLINE);
}

int fiber_park_until(uint64_t deadline_ns)
{
	struct fiber *fiber = self();
	struct reactor_timer timer = {.fn = park_deadline, .arg = fiber};

	if (fiber->wake_pending) {
		fiber->wake_pending = false;
		return 0;
	}
	if (deadline_ns != DEADLINE_NONE)
		reactor_timer_set(fiber->reactor, &timer, deadline_ns);
	fiber->state = FIBER_PARKED;
	leave_fiber(fiber);
	reactor_timer_cancel(fiber->reactor, &timer);
	return fiber->cause == CAUSE_DEADLINE ? -ETIMEDOUT : 0;
}

static void sleep_over(struct reactor_timer *timer, void *arg)
{
	(void)timer;
	fiber_resume(arg);
}

void fiber_sleep_ns(uint64_t ns)
{
	struct fiber *fiber = self();
	struct reactor_timer timer = {.fn = sleep_over, .arg = fiber};
	uint64_t now_ns = clock_now_ns();

	reactor_timer_set(
		fiber->reactor, &timer, ns < DEADLINE_NONE - now_ns ? now_ns + ns : DEADLINE_NONE);
	fiber_wait();
}
