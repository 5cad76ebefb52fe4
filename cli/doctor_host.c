/* cli/doctor_host.c: checks of memory, kernel and disks, which every part needs. */
#include <dirent.h>
#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <zlib.h>

#include "base/base.h"
#include "base/cgroup.h"
#include "disk/disk.h"
#include "doctor.h"
#include "reactor/reactor.h"
#include "server/resources.h"

/* Reads a value like "HugePages_Free: 12" of /proc/meminfo. */
static bool meminfo(const char *name, unsigned long long *ret_value)
{
	FILE *file = fopen("/proc/meminfo", "re");
	char line[256];
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file)) {
		if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':') {
			*ret_value = strtoull(line + strlen(name) + 1, NULL, 10);
			found = true;
		}
	}
	if (file)
		fclose(file);
	return found;
}

static void check_limits(struct doctor *doctor)
{
	struct rlimit limit;
	struct finding *finding;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
		bool enough = limit.rlim_cur == RLIM_INFINITY ||
			      limit.rlim_cur >= doctor->region_bytes || geteuid() == 0;

		if (enough) {
			doctor_note(doctor, FINDING_OK, "memory",
				"the limit of locked memory is enough for a region of %llu MiB",
				doctor->region_bytes / MIB);
		} else {
			finding = doctor_note(doctor, FINDING_WARN, "memory",
				"the limit of locked memory is %llu KiB; a region of %llu MiB "
				"needs more",
				(unsigned long long)limit.rlim_cur / KIB,
				doctor->region_bytes / MIB);
			doctor_why(finding,
				"RDMA registration fails, and disk I/O runs without fixed buffers");
			doctor_fix(finding, true,
				"printf '* soft memlock unlimited\\n"
				"* hard memlock unlimited\\n' > "
				"/etc/security/limits.d/nebulaio.conf   # new logins; in a "
				"service: LimitMEMLOCK=infinity");
		}
	}
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max < RESOURCES_FILES_WANTED) {
		finding = doctor_note(doctor, FINDING_WARN, "memory",
			"at most %llu open files; %u are enough for %u connections to each "
			"address",
			(unsigned long long)limit.rlim_max, RESOURCES_FILES_WANTED,
			LIMIT_HTTP_CONNECTIONS_MAX);
		doctor_why(finding,
			"the server takes fewer connections: it keeps 400 of its files for itself");
		doctor_fix(finding, true,
			"printf '* hard nofile 65536\\n' > "
			"/etc/security/limits.d/nebulaio-files.conf");
	}
}

static void check_huge_pages(struct doctor *doctor)
{
	unsigned long long free_pages = 0, total = 0;
	unsigned long long wanted = doctor->region_bytes / (2 * MIB) + 2;
	struct finding *finding;

	if (!meminfo("HugePages_Free", &free_pages) || !meminfo("HugePages_Total", &total))
		return;
	if (free_pages >= wanted) {
		doctor_note(doctor, FINDING_OK, "memory", "%llu huge pages of 2 MiB are free",
			free_pages);
		return;
	}
	finding = doctor_note(doctor, FINDING_WARN, "memory",
		"%llu huge pages of 2 MiB are free; a region of %llu MiB needs %llu", free_pages,
		doctor->region_bytes / MIB, wanted);
	doctor_why(finding, "the server uses 4 KiB pages: slower start, more TLB misses");
	doctor_fix(finding, true, "sysctl -w vm.nr_hugepages=%llu", total - free_pages + wanted);
	doctor_undo(finding, "sysctl -w vm.nr_hugepages=%llu", total);
}

/* The limits of the container or of the service's unit. */
static void check_cgroup(struct doctor *doctor)
{
	struct cgroup_limits limits;
	struct finding *finding;

	cgroup_limits_read(doctor->root, &limits);
	if (limits.cpus != UINT32_MAX)
		doctor_note(doctor, FINDING_INFO, "kernel",
			"the control group's quota is %u processors: the server has one event loop "
			"for each, less one",
			limits.cpus);
	if (limits.memory_bytes == UINT64_MAX)
		return;
	if (limits.memory_free >= doctor->region_bytes) {
		doctor_note(doctor, FINDING_INFO, "memory",
			"the control group's limit is %llu MiB, of which %llu MiB are free",
			(unsigned long long)(limits.memory_bytes / MIB),
			(unsigned long long)(limits.memory_free / MIB));
		return;
	}
	finding = doctor_note(doctor, FINDING_FAIL, "memory",
		"the control group's limit is %llu MiB, of which %llu MiB are free; a region of "
		"%llu MiB needs more",
		(unsigned long long)(limits.memory_bytes / MIB),
		(unsigned long long)(limits.memory_free / MIB), doctor->region_bytes / MIB);
	doctor_why(finding,
		"the server does not start: raise the container's limit (MemoryMax= in a "
		"service), or lower memory.bytes");
}

/* rdma.max has lines of "DEVICE hca_handle=N hca_object=N", where N may be max. */
static void check_rdma_group(void *arg, const char *folder, bool version_2)
{
	struct doctor *doctor = (struct doctor *)arg;
	char path[DOCTOR_PATH_BYTES], line[256];
	FILE *file;

	(void)version_2;
	snprintf(path, sizeof(path), "%s/rdma.max", folder);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		struct finding *finding;

		line[strcspn(line, "\n")] = '\0';
		if (!strstr(line, "hca_") || strstr(line, "hca_handle=max hca_object=max"))
			continue;
		finding = doctor_note(doctor, FINDING_INFO, "rdma",
			"the control group's limits of RDMA resources: %s", line);
		doctor_why(finding,
			"each queue pair, completion queue and memory region is an object: the "
			"server refuses sessions beyond the limit");
	}
	if (file)
		fclose(file);
}

void doctor_check_memory(struct doctor *doctor)
{
	check_limits(doctor);
	check_huge_pages(doctor);
	check_cgroup(doctor);
	cgroup_visit(doctor->root, "rdma", check_rdma_group, doctor);
}

static void check_io_uring(struct doctor *doctor)
{
	struct io_uring ring;
	int ret = io_uring_queue_init(8, &ring, 0);
	struct finding *finding;

	if (ret == 0) {
		io_uring_queue_exit(&ring);
		doctor_note(doctor, FINDING_OK, "kernel", "io_uring works");
		return;
	}
	finding = doctor_note(
		doctor, FINDING_FAIL, "kernel", "io_uring does not work: %s", strerror(-ret));
	doctor_why(finding, "the server cannot run without it");
	if (ret == -EPERM && !reactor_uring_disabled(doctor->root))
		doctor_fix(finding, false,
			"a seccomp profile forbids it: use one that allows io_uring_setup, "
			"io_uring_enter and io_uring_register (deploy/kubernetes/seccomp.json)");
	else
		doctor_fix(finding, true, "sysctl -w kernel.io_uring_disabled=0");
}

/* Opens the running kernel's configuration: the distribution's file, or the kernel's own
 * (CONFIG_IKCONFIG_PROC). NULL: there is neither. zlib's file functions read plain files, too.
 */
static gzFile kernel_config(const struct doctor *doctor)
{
	struct utsname uts;
	char path[DOCTOR_PATH_BYTES];
	gzFile file;

	uname(&uts);
	snprintf(path, sizeof(path), "%s/boot/config-%s", doctor->root, uts.release);
	file = gzopen(path, "re");
	if (file)
		return file;
	snprintf(path, sizeof(path), "%s/proc/config.gz", doctor->root);
	return gzopen(path, "re");
}

/* 'y', 'm' or 'n'; '?' when the file is damaged. */
static char kernel_option(gzFile file, const char *name)
{
	char line[512], state = 'n';
	int err;

	gzrewind(file);
	while (gzgets(file, line, sizeof(line))) {
		if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == '=')
			state = line[strlen(name) + 1];
	}
	gzerror(file, &err);
	return err == Z_OK || err == Z_STREAM_END ? state : '?';
}

static void check_options(struct doctor *doctor)
{
	static const struct {
		const char *name;
		const char *what_for;
	} OPTIONS[] = {
		{"CONFIG_IO_URING", "everything"},
		{"CONFIG_INFINIBAND", "RDMA devices"},
		{"CONFIG_INFINIBAND_USER_ACCESS", "RDMA from programs"},
		{"CONFIG_INFINIBAND_USER_MAD", "perfquery and ibping"},
		{"CONFIG_RDMA_RXE", "soft-RoCE, RDMA over any network card"},
		{"CONFIG_MLX5_CORE", "ConnectX cards"},
		{"CONFIG_MLX5_INFINIBAND", "RDMA by ConnectX cards"},
		{"CONFIG_XDP_SOCKETS", "AF_XDP"},
	};
	gzFile file = kernel_config(doctor);

	if (!file) {
		doctor_note(doctor, FINDING_INFO, "kernel",
			"doctor did not check the kernel's options: the configuration is neither "
			"in /boot nor in /proc/config.gz");
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(OPTIONS); i++) {
		char state = kernel_option(file, OPTIONS[i].name);

		if (state == '?') {
			doctor_note(doctor, FINDING_INFO, "kernel",
				"doctor did not check the kernel's options: it cannot read the "
				"configuration");
			break;
		}
		doctor_note(doctor, state == 'n' ? FINDING_WARN : FINDING_OK, "kernel",
			"%s=%c (%s)", OPTIONS[i].name, state, OPTIONS[i].what_for);
	}
	gzclose(file);
}

static void check_clock(struct doctor *doctor)
{
	char source[64];
	struct finding *finding;

	if (!doctor_sysfs(doctor, source, sizeof(source),
		    "devices/system/clocksource/clocksource0/current_clocksource"))
		return;
	if (!strcmp(source, "tsc") || !strcmp(source, "kvm-clock") ||
		!strcmp(source, "arch_sys_counter")) {
		doctor_note(doctor, FINDING_OK, "kernel", "clock source %s", source);
		return;
	}
	finding = doctor_note(doctor, FINDING_WARN, "kernel", "clock source %s", source);
	doctor_why(
		finding, "each read of the time costs a system call or more, many times a request");
	doctor_fix(finding, false,
		"echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource");
}

void doctor_check_kernel(struct doctor *doctor)
{
	struct utsname uts;
	unsigned major = 0, minor = 0;

	uname(&uts);
	if (sscanf(uts.release, "%u.%u", &major, &minor) == 2) {
		bool old = major < 6 || (major == 6 && minor < 1);
		struct finding *finding = doctor_note(
			doctor, old ? FINDING_WARN : FINDING_OK, "kernel", "Linux %s", uts.release);

		if (old)
			doctor_why(finding, "6.1 is the oldest kernel that NebulaIO is tested on");
	}
	check_io_uring(doctor);
	check_options(doctor);
	check_clock(doctor);
}

/* Asks the controller, because the existence of its device node proves little. */
static void check_passthrough(struct doctor *doctor, const char *name)
{
	char path[300];
	struct disk_opts opts = {.path = path, .read_only = true};
	struct finding *finding;
	struct disk *disk;
	int ret;

	snprintf(path, sizeof(path), "/dev/%s", name);
	ret = disk_open(&opts, &disk);
	if (ret) {
		finding = doctor_note(doctor, FINDING_INFO, "disk",
			"%s cannot be used for NVMe passthrough: %s", path, strerror(-ret));
		if (ret == -EACCES)
			doctor_fix(finding, false, "chgrp disk %s && chmod g+rw %s", path, path);
		return;
	}
	doctor_note(doctor, access(path, W_OK) ? FINDING_INFO : FINDING_OK, "disk", "%s: %s%s",
		path, disk_describe(disk),
		access(path, W_OK) ? "; not writable for this user" : "");
	disk_close(disk);
}

void doctor_check_disks(struct doctor *doctor)
{
	unsigned found = 0;
	struct dirent *entry;
	DIR *dir = opendir("/dev");

	while (dir && (entry = readdir(dir)) != NULL) {
		unsigned controller, space;
		int end = 0;

		if (sscanf(entry->d_name, "ng%un%u%n", &controller, &space, &end) == 2 &&
			entry->d_name[end] == '\0') {
			check_passthrough(doctor, entry->d_name);
			found++;
		}
	}
	if (dir)
		closedir(dir);
	if (!found)
		doctor_note(doctor, FINDING_INFO, "disk",
			"no NVMe passthrough device (/dev/ng*): use files or block devices as "
			"volumes");
}
