/* bench/machine.h: the machine under the measurement: which processors to use, the resources that
 * the measured processes and others used, and how deep idle processors sleep. */
#ifndef BENCH_MACHINE_H
#define BENCH_MACHINE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- Processors: one for the server under measurement, one for the bench's own load. ---- */
struct bench_cpus {
	int server;
	int client; /* the same one where the process may use no other */
};
/* The first two that this process may run on. */
int bench_cpus_find(struct bench_cpus *ret_cpus);
/* The calling thread. */
int bench_cpu_pin(int cpu);

/* Asks the kernel to keep idle processors awake for as long as the descriptor is open
 * (/dev/cpu_dma_latency). The descriptor, or -errno. */
int bench_idle_poll(void);

/* Raises the priority of this process, and of all that it starts from now on, over processes of
 * normal priority, so that they disturb less. Where the kernel groups processes by session
 * (sched(7), autogroup), a priority is only valid within the session, so the session itself is
 * raised too; *ret_session_nice is its former value, or 0 where a bench had raised it. 0 or -errno:
 * nothing was raised. */
#define BENCH_NO_SESSION INT_MIN
int bench_priority_raise(int *ret_session_nice);
/* Restores the session's former value. */
void bench_priority_restore(int session_nice);

/* ---- Resources that processes used. ---- */
struct bench_usage {
	uint64_t cpu_ns;
	uint64_t switches;	   /* context switches, wanted and not */
	uint64_t disk_write_bytes; /* sent to the disk; 0 where the kernel does not tell */
};
/* All threads of a process. -ESRCH: there is none. */
int bench_usage_of(pid_t pid, struct bench_usage *ret_usage);
void bench_usage_self(struct bench_usage *ret_usage);
/* into += after - before. */
void bench_usage_add(struct bench_usage *into, const struct bench_usage *after,
	const struct bench_usage *before);

/* ---- Processor time that other processes used meanwhile. ---- */
struct bench_ticks {
	uint64_t wall_ns;
	uint64_t busy_ns;  /* all processors, all processes */
	uint64_t steal_ns; /* time that the host gave to other guests */
};
void bench_ticks_now(struct bench_ticks *ret_ticks);

/* Sums over the slices of one measurement. */
struct bench_noise {
	uint64_t wall_ns;
	uint64_t others_ns;
	uint64_t steal_ns;
};
/* ours_ns: the time that the processes under measurement used in between. */
void bench_noise_add(struct bench_noise *noise, const struct bench_ticks *before,
	const struct bench_ticks *after, uint64_t ours_ns);
#define BENCH_NOISE_CORES_MAX 0.1
#define BENCH_NOISE_STEAL_MAX 0.02
double bench_noise_cores(const struct bench_noise *noise);
double bench_noise_steal(const struct bench_noise *noise, unsigned cpu_count);
bool bench_noise_is_noisy(const struct bench_noise *noise, unsigned cpu_count);

/* ---- Files. ---- */
/* Reads a whole small file, ends it with NUL and returns its length, or -errno. */
int bench_file_read(const char *path, char *buf, size_t buf_bytes);
bool bench_path_is_tmpfs(const char *path);
/* Removes a folder and all that is in it. */
void bench_folder_remove(const char *path);
/* Makes an empty folder in place of this one. When it returns, the disk has the deletions and all
 * that was written before: nothing of it is written under the rows that come. */
int bench_folder_renew(const char *path);

#endif
