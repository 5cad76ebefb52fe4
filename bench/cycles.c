/* bench/cycles.c: opens counters of the kernel for each thread of a process, and reads them. */
#include "bench/cycles.h"

#include <dirent.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"

const struct bench_event BENCH_PROCESSOR_EVENTS[BENCH_COUNTED] = {
	[BENCH_CYCLES] = {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
	[BENCH_INSTRUCTIONS] = {PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
};

/* The answer to a read, by read_format below. */
struct reading {
	uint64_t value;
	uint64_t enabled_ns;
	uint64_t running_ns;
};

/* Inherited: threads that this one starts later are in its sum. */
static int open_event(pid_t tid, const struct bench_event *event)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = event->type,
		.config = event->config,
		.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
		.inherit = 1,
		.disabled = 1,
		.exclude_hv = 1,
	};
	long fd = syscall(SYS_perf_event_open, &attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : (int)fd;
}

static int open_thread(
	pid_t tid, const struct bench_event events[BENCH_COUNTED], int ret_fds[BENCH_COUNTED])
{
	for (int i = 0; i < BENCH_COUNTED; i++) {
		ret_fds[i] = open_event(tid, &events[i]);
		if (ret_fds[i] >= 0)
			continue;
		for (int j = 0; j < i; j++)
			close(ret_fds[j]);
		return ret_fds[i];
	}
	return 0;
}

static int add_threads(struct bench_counter *counter, DIR *tasks, const struct bench_event *events)
{
	struct dirent *entry;
	int ret = 0;

	while (!ret && (entry = readdir(tasks)) != NULL) {
		pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (tid <= 0)
			continue;
		if (counter->count == BENCH_COUNTER_THREADS_MAX)
			return -E2BIG;
		ret = open_thread(tid, events, counter->fds[counter->count]);
		if (ret == -ESRCH)
			ret = 0; /* the thread has ended meanwhile */
		else if (!ret)
			counter->count++;
	}
	return ret;
}

void bench_counter_add(
	struct bench_counter *counter, pid_t pid, const struct bench_event events[BENCH_COUNTED])
{
	uint32_t before = counter->count;
	char path[64];
	DIR *tasks;
	int ret;

	if (counter->error)
		return;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)(pid ? pid : getpid()));
	tasks = opendir(path);
	ret = tasks ? add_threads(counter, tasks, events) : -ESRCH;
	if (tasks)
		closedir(tasks);
	counter->error = !ret && counter->count == before ? -ESRCH : ret;
}

static void ask_all(const struct bench_counter *counter, unsigned long request)
{
	for (uint32_t i = 0; i < counter->count; i++)
		for (int j = 0; j < BENCH_COUNTED; j++)
			ioctl(counter->fds[i][j], request, 0);
}

void bench_counter_start(struct bench_counter *counter)
{
	ask_all(counter, PERF_EVENT_IOC_ENABLE);
}

void bench_counter_stop(struct bench_counter *counter)
{
	ask_all(counter, PERF_EVENT_IOC_DISABLE);
}

bool bench_counter_extend(uint64_t value, uint64_t enabled_ns, uint64_t running_ns, double *ret_sum)
{
	if (!running_ns && enabled_ns)
		return false;
	*ret_sum = (double)value;
	if (running_ns && running_ns < enabled_ns)
		*ret_sum *= (double)enabled_ns / (double)running_ns;
	return true;
}

static bool take(int fd, double *into)
{
	struct reading reading;
	double sum;
	bool known =
		read(fd, &reading, sizeof(reading)) == sizeof(reading) &&
		bench_counter_extend(reading.value, reading.enabled_ns, reading.running_ns, &sum);

	if (known)
		*into += sum;
	close(fd);
	return known;
}

void bench_counter_end(struct bench_counter *counter, uint64_t ops, struct bench_cycles *into)
{
	bool known = !counter->error && counter->count;
	double sums[BENCH_COUNTED] = {0};

	for (uint32_t i = 0; i < counter->count; i++)
		for (int j = 0; j < BENCH_COUNTED; j++)
			known &= take(counter->fds[i][j], &sums[j]);
	for (int j = 0; j < BENCH_COUNTED && known; j++)
		into->sums[j] += sums[j];
	into->ops += known ? ops : 0;
	counter->count = 0;
	counter->error = 0;
}

int bench_counter_try(pid_t pid, const struct bench_event events[BENCH_COUNTED])
{
	struct bench_counter *counter = calloc(1, sizeof(*counter));
	struct bench_cycles nothing = {0};
	int ret;

	if (!counter)
		return -ENOMEM;
	bench_counter_add(counter, pid, events);
	ret = counter->error;
	bench_counter_end(counter, 0, &nothing);
	free(counter);
	return ret;
}

const char *bench_counter_why(int error)
{
	switch (-error) {
	case ENOENT:
	case EOPNOTSUPP:
	case ENODEV:
		return "this machine has no such counter; a virtual machine often has none";
	case EACCES:
	case EPERM:
		return "not permitted: run it as root, or set the sysctl "
		       "kernel.perf_event_paranoid to 1";
	case ENOSYS:
		return "this kernel is built without perf_event_open";
	case EMFILE:
		return "too few open files are permitted: ulimit -n";
	case E2BIG:
		return "more threads than bench counts";
	default:
		return strerror(-error);
	}
}
