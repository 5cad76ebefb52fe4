/* base/clock.h: time. The monotonic clock is for deadlines and latencies, the real-time clock for
 * dates on the wire. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define NS_PER_US     1000ull
#define NS_PER_MS     1000000ull
#define NS_PER_S      1000000000ull
#define DEADLINE_NONE UINT64_MAX

/* CLOCK_MONOTONIC in nanoseconds; any thread, no system call. */
static inline uint64_t clock_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* CLOCK_REALTIME in nanoseconds since 1970. */
static inline uint64_t clock_real_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* A clock that is set back by more was wrong before; by less, it is being adjusted. */
#define CLOCK_SET_BACK_NS (60 * NS_PER_S)

/* The real time, but behind *last_ns, which becomes it: for times that differ from each other, and
 * do not go back when the clock is adjusted. When the clock is set back, they follow it. */
static inline uint64_t clock_real_after_ns(uint64_t *last_ns)
{
	uint64_t now_ns = clock_real_ns();

	if (now_ns > *last_ns || *last_ns - now_ns > CLOCK_SET_BACK_NS)
		*last_ns = now_ns;
	else
		++*last_ns;
	return *last_ns;
}

/* Sleeps for 1 ms, for polling a condition that sends no notification. Returns false at once when
 * the deadline has passed. Blocks the thread: not for event loops. */
static inline bool clock_rest(uint64_t deadline_ns)
{
	const struct timespec rest = {.tv_nsec = (long)NS_PER_MS};

	if (clock_now_ns() >= deadline_ns)
		return false;
	nanosleep(&rest, NULL);
	return true;
}

/* The processor's cycle counter, for measuring spans of code; not comparable across hosts. */
static inline uint64_t clock_ticks(void)
{
#if defined(CLOCK_TICKS_ARE_NS)
	return clock_now_ns(); /* where time is simulated */
#elif defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t ticks;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#else
	return clock_now_ns();
#endif
}

/* A thread that spins longer than this yields its processor once, and again after each such period.
 * A kernel thread that waits for this processor (such as the one that completes direct writes) may
 * be the one that the thread waits for; without the yield it would wait for the end of the time
 * slice, milliseconds. */
#define CLOCK_YIELD_NS (16 * NS_PER_US)
/* A hint to the processor inside a spin loop. */
static inline void clock_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
