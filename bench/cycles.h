/* bench/cycles.h: counts what a process's threads do on their processors: cycles and instructions,
 * by the processor's own counters (perf_event_open(2)). */
#ifndef BENCH_CYCLES_H
#define BENCH_CYCLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* perf_event_open's type and config. */
struct bench_event {
	uint32_t type;
	uint64_t config;
};
enum bench_counted { BENCH_CYCLES, BENCH_INSTRUCTIONS, BENCH_COUNTED };
/* Cycles and instructions, in the program and in the kernel on its behalf. */
extern const struct bench_event BENCH_PROCESSOR_EVENTS[BENCH_COUNTED];

struct bench_cycles {
	uint64_t ops; /* during which it was counted; 0: never */
	double sums[BENCH_COUNTED];
};

/* Threads of all the processes that one counter counts. */
#define BENCH_COUNTER_THREADS_MAX 256u
struct bench_counter {
	int fds[BENCH_COUNTER_THREADS_MAX][BENCH_COUNTED];
	uint32_t count;
	int error; /* of the first process that is not counted; 0: all are */
};
/* Adds the threads of a process (0: this one), with those that they start later. It costs some time
 * for each, so it is done outside of what is measured. The error stays in the counter, whose sums
 * then are unknown: -ENOENT or -EOPNOTSUPP: the processor, or this virtual machine, has no such
 * counter; -EACCES, -EPERM: not permitted; -ESRCH: no such process; -E2BIG: too many threads. */
void bench_counter_add(
	struct bench_counter *counter, pid_t pid, const struct bench_event events[BENCH_COUNTED]);
/* Counts from here on, and no more. */
void bench_counter_start(struct bench_counter *counter);
void bench_counter_stop(struct bench_counter *counter);
/* Reads and empties the counter. Adds what was counted during these operations; but
 * nothing where a process was not counted. */
void bench_counter_end(struct bench_counter *counter, uint64_t ops, struct bench_cycles *into);

/* An event that shared its counter with others was counted for a part of the time: the sum is
 * extended to all of it. 0 of a nonzero time: false, unknown. */
bool bench_counter_extend(
	uint64_t value, uint64_t enabled_ns, uint64_t running_ns, double *ret_sum);

/* Whether a process (0: this one) can be counted: 0, or an error as above. */
int bench_counter_try(pid_t pid, const struct bench_event events[BENCH_COUNTED]);
/* The meaning of such an error, and what helps. */
const char *bench_counter_why(int error);

#endif
