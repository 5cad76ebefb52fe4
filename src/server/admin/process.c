/* server/admin/process.c: the kernel's statistics of this process, by the names that Prometheus'
 * clients use (Prometheus, "Writing client libraries", process metrics). */
#include "server/admin/admin_priv.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static double started_s;

/* Fields of /proc/self/stat, counted as in proc(5). */
enum { STAT_STATE = 3, STAT_STARTTIME = 22, STAT_VSIZE, STAT_RSS, STAT_END };

/* The name before the state may have spaces in it. */
static bool stat_read(uint64_t fields[STAT_END])
{
	char text[1024];
	char *at;
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	ssize_t len = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;

	if (fd >= 0)
		close(fd);
	if (len <= 0)
		return false;
	text[len] = '\0';
	at = strrchr(text, ')');
	for (uint32_t i = STAT_STATE; at && i < STAT_END; i++) {
		at = strchr(at, ' ');
		if (at)
			fields[i] = strtoull(++at, NULL, 10);
	}
	return at != NULL;
}

/* Computed once, so that a change of the clock does not look like a restart. */
static void started_find(void)
{
	uint64_t fields[STAT_END];
	struct timespec boot, real;

	if (!stat_read(fields))
		return;
	clock_gettime(CLOCK_BOOTTIME, &boot);
	clock_gettime(CLOCK_REALTIME, &real);
	started_s = (double)(real.tv_sec - boot.tv_sec) +
		    (double)(real.tv_nsec - boot.tv_nsec) / 1e9 +
		    (double)fields[STAT_STARTTIME] / (double)sysconf(_SC_CLK_TCK);
}

/* Since Linux 6.2 the folder's size is the number of descriptors; before, it is 0, and this counts
 * them. */
static uint64_t descriptors_count(void)
{
	DIR *dir = opendir("/proc/self/fd");
	uint64_t count = 0;
	struct stat st;

	if (!dir)
		return 0;
	if (fstat(dirfd(dir), &st) == 0 && st.st_size > 0) {
		count = (uint64_t)st.st_size;
	} else {
		for (const struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
			count += entry->d_name[0] != '.';
	}
	closedir(dir);
	return count - 1; /* without the descriptor of this folder */
}

void admin_process_read(struct admin_process *ret_process)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	uint64_t fields[STAT_END];
	struct rusage usage;
	struct rlimit limit;

	pthread_once(&once, started_find);
	*ret_process =
		(struct admin_process){.started_s = started_s, .descriptors = descriptors_count()};
	if (getrusage(RUSAGE_SELF, &usage) == 0)
		ret_process->cpu_s =
			(double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
			(double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
	if (stat_read(fields)) {
		ret_process->virtual_bytes = fields[STAT_VSIZE];
		ret_process->resident_bytes = fields[STAT_RSS] * (uint64_t)sysconf(_SC_PAGESIZE);
	}
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		ret_process->descriptors_max = limit.rlim_cur;
}

static void put_seconds(struct buf *out, const char *name, const char *help, double value)
{
	if (!(value > 0))
		return;
	metric_head(out, name, help);
	buf_printf(out, "%s %.6f\n", name, value);
}

static void put_count(struct buf *out, const char *name, const char *help, uint64_t value)
{
	if (!value)
		return;
	metric_head(out, name, help);
	metric_line(out, name, NULL, value);
}

void admin_process_metrics(struct buf *out)
{
	struct admin_process process;

	admin_process_read(&process);
	put_seconds(out, "process_cpu_seconds_total",
		"Processor time of all threads, in user space and in the kernel.", process.cpu_s);
	put_seconds(out, "process_start_time_seconds",
		"Start time of the process, in seconds since 1970.", process.started_s);
	put_count(out, "process_virtual_memory_bytes", "Address space in use.",
		process.virtual_bytes);
	put_count(out, "process_resident_memory_bytes",
		"Resident memory, including memory shared with other processes.",
		process.resident_bytes);
	put_count(out, "process_open_fds", "Open file descriptors.", process.descriptors);
	put_count(out, "process_max_fds", "Maximum number of open file descriptors.",
		process.descriptors_max);
}
