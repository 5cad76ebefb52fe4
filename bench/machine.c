/* bench/machine.c: reads processor and process statistics from /proc. */
#include "bench/machine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/magic.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/base.h"

#define PRIORITY_HIGH (-20)

int bench_cpus_find(struct bench_cpus *ret_cpus)
{
	cpu_set_t set;
	int found[2], count = 0;

	if (sched_getaffinity(0, sizeof(set), &set))
		return -errno;
	for (int cpu = 0; cpu < CPU_SETSIZE && count < 2; cpu++) {
		if (CPU_ISSET(cpu, &set))
			found[count++] = cpu;
	}
	if (!count)
		return -ENODEV;
	ret_cpus->server = found[0];
	ret_cpus->client = found[count - 1];
	return 0;
}

int bench_cpu_pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set) ? -errno : 0;
}

int bench_idle_poll(void)
{
	int fd = open("/dev/cpu_dma_latency", O_WRONLY | O_CLOEXEC);
	int32_t latency_us = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, &latency_us, sizeof(latency_us)) != sizeof(latency_us)) {
		close(fd);
		return -EIO;
	}
	return fd;
}

#define AUTOGROUP "/proc/self/autogroup"

static int write_autogroup(int nice)
{
	int fd = open(AUTOGROUP, O_WRONLY | O_CLOEXEC), ret;

	if (fd < 0)
		return -errno;
	ret = dprintf(fd, "%d", nice) < 0 ? -errno : 0;
	close(fd);
	return ret;
}

int bench_priority_raise(int *ret_session_nice)
{
	const char *at;
	char text[64];
	int nice;

	*ret_session_nice = BENCH_NO_SESSION;
	if (setpriority(PRIO_PROCESS, 0, PRIORITY_HIGH))
		return -errno;
	if (bench_file_read(AUTOGROUP, text, sizeof(text)) <= 0) /* "/autogroup-7 nice 0" */
		return 0;
	at = strstr(text, "nice ");
	nice = at ? (int)strtol(at + 5, NULL, 10) : 0;
	/* Another bench, perhaps one that was killed, raised it. */
	if (nice == PRIORITY_HIGH)
		nice = 0;
	if (at && !write_autogroup(PRIORITY_HIGH))
		*ret_session_nice = nice;
	return 0;
}

void bench_priority_restore(int session_nice)
{
	if (session_nice != BENCH_NO_SESSION)
		write_autogroup(session_nice);
}

int bench_file_read(const char *path, char *buf, size_t buf_bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t got;

	if (fd < 0)
		return -errno;
	while (len < buf_bytes - 1 && (got = read(fd, buf + len, buf_bytes - 1 - len)) > 0)
		len += (size_t)got;
	close(fd);
	buf[len] = '\0';
	return (int)len;
}

/* The number after a name in a file of "name: value" lines. */
static uint64_t field(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

static void add_thread(pid_t pid, const char *tid, struct bench_usage *usage)
{
	char path[64 + 256], text[4096];

	snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", (int)pid, tid);
	if (bench_file_read(path, text, sizeof(text)) > 0)
		usage->cpu_ns += strtoull(text, NULL, 10);
	snprintf(path, sizeof(path), "/proc/%d/task/%s/status", (int)pid, tid);
	if (bench_file_read(path, text, sizeof(text)) > 0)
		usage->switches += field(text, "\nvoluntary_ctxt_switches:") +
				   field(text, "\nnonvoluntary_ctxt_switches:");
}

int bench_usage_of(pid_t pid, struct bench_usage *ret_usage)
{
	struct bench_usage usage = {0};
	struct dirent *entry;
	char path[64], text[1024];
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	if (!tasks)
		return -ESRCH;
	while ((entry = readdir(tasks)) != NULL) {
		if (entry->d_name[0] != '.')
			add_thread(pid, entry->d_name, &usage);
	}
	closedir(tasks);
	snprintf(path, sizeof(path), "/proc/%d/io", (int)pid);
	if (bench_file_read(path, text, sizeof(text)) > 0)
		usage.disk_write_bytes = field(text, "\nwrite_bytes:");
	*ret_usage = usage;
	return 0;
}

void bench_usage_self(struct bench_usage *ret_usage)
{
	struct timespec cpu;
	struct rusage rusage;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
	getrusage(RUSAGE_SELF, &rusage);
	*ret_usage = (struct bench_usage){
		.cpu_ns = (uint64_t)cpu.tv_sec * NS_PER_S + (uint64_t)cpu.tv_nsec,
		.switches = (uint64_t)rusage.ru_nvcsw + (uint64_t)rusage.ru_nivcsw,
	};
}

/* A thread that ended in between takes its sums with it, so the result is never below 0. */
static uint64_t since(uint64_t after, uint64_t before)
{
	return after > before ? after - before : 0;
}

void bench_usage_add(
	struct bench_usage *into, const struct bench_usage *after, const struct bench_usage *before)
{
	into->cpu_ns += since(after->cpu_ns, before->cpu_ns);
	into->switches += since(after->switches, before->switches);
	into->disk_write_bytes += since(after->disk_write_bytes, before->disk_write_bytes);
}

void bench_ticks_now(struct bench_ticks *ret_ticks)
{
	/* proc(5): user nice system idle iowait irq softirq steal; guest time is in user. */
	unsigned long long t[8] = {0};
	uint64_t tick_ns = NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
	char text[512];

	*ret_ticks = (struct bench_ticks){.wall_ns = clock_now_ns()};
	if (bench_file_read("/proc/stat", text, sizeof(text)) <= 0 ||
		sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2],
			&t[3], &t[4], &t[5], &t[6], &t[7]) != 8)
		return;
	ret_ticks->busy_ns = (t[0] + t[1] + t[2] + t[5] + t[6]) * tick_ns;
	ret_ticks->steal_ns = t[7] * tick_ns;
}

void bench_noise_add(struct bench_noise *noise, const struct bench_ticks *before,
	const struct bench_ticks *after, uint64_t ours_ns)
{
	noise->wall_ns += after->wall_ns - before->wall_ns;
	noise->others_ns += since(after->busy_ns - before->busy_ns, ours_ns);
	noise->steal_ns += after->steal_ns - before->steal_ns;
}

double bench_noise_cores(const struct bench_noise *noise)
{
	return noise->wall_ns ? (double)noise->others_ns / (double)noise->wall_ns : 0;
}

double bench_noise_steal(const struct bench_noise *noise, unsigned cpu_count)
{
	return noise->wall_ns ? (double)noise->steal_ns / (double)noise->wall_ns / cpu_count : 0;
}

bool bench_noise_is_noisy(const struct bench_noise *noise, unsigned cpu_count)
{
	return bench_noise_cores(noise) > BENCH_NOISE_CORES_MAX ||
	       bench_noise_steal(noise, cpu_count) > BENCH_NOISE_STEAL_MAX;
}

bool bench_path_is_tmpfs(const char *path)
{
	struct statfs fs;

	return statfs(path, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *walk)
{
	(void)st;
	(void)type;
	(void)walk;
	return remove(path);
}

void bench_folder_remove(const char *path)
{
	nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

int bench_folder_renew(const char *path)
{
	int fd, ret;

	bench_folder_remove(path);
	if (mkdir(path, 0755))
		return -errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ret = syncfs(fd) ? -errno : 0;
	close(fd);
	return ret;
}
