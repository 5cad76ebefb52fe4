/* base/cgroup.c: reads the limits of memory and processor time of this process's control groups.
 *
 * A group is bound by the limits of all groups above it, too. Inside a container the path in
 * /proc/self/cgroup may be the host's, of which the container sees only the last group, as the
 * root of what is mounted: so groups that do not exist are passed over, and the root counts. */
#include "base/cgroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/file.h"

#define GROUP_BYTES 4096u
#define PATH_BYTES  (GROUP_BYTES + 64) /* of a file in it */
/* Version 1 writes "no limit" as the largest number of whole pages. */
#define UNLIMITED (1ull << 62)

/* The files of one version of the interface. */
struct names {
	const char *limit, *used, *inactive;
};
static const struct names VERSION_2 = {"memory.max", "memory.current", "inactive_file"};
static const struct names VERSION_1 = {
	"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};

/* False: the file does not exist, or does not begin with a number. */
static bool number_read(const char *group, const char *file, long long *ret_number)
{
	char path[PATH_BYTES], line[64], *end;

	snprintf(path, sizeof(path), "%s/%s", group, file);
	if (!file_line(path, line, sizeof(line)))
		return false;
	*ret_number = strtoll(line, &end, 10);
	return end != line;
}

/* A value of the group's memory.stat, or 0. */
static uint64_t stat_read(const char *group, const char *name)
{
	char path[PATH_BYTES], line[128], key[64];
	unsigned long long value, found = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/memory.stat", group);
	file = fopen(path, "re");
	while (file && !found && fgets(line, sizeof(line), file))
		if (sscanf(line, "%63s %llu", key, &value) == 2 && strcmp(key, name) == 0)
			found = value;
	if (file)
		fclose(file);
	return found;
}

static const struct names *names_of(bool version_2)
{
	return version_2 ? &VERSION_2 : &VERSION_1;
}

bool cgroup_memory_used(const char *folder, bool version_2, uint64_t *ret_bytes)
{
	const struct names *names = names_of(version_2);
	long long used;

	if (!number_read(folder, names->used, &used))
		return false;
	*ret_bytes = (uint64_t)MAX(used, 0);
	*ret_bytes -= MIN(*ret_bytes, stat_read(folder, names->inactive));
	return true;
}

static void memory_count(void *arg, const char *group, bool version_2)
{
	struct cgroup_limits *limits = (struct cgroup_limits *)arg;
	long long limit;
	uint64_t used;

	if (!number_read(group, names_of(version_2)->limit, &limit) || limit < 0 ||
		(uint64_t)limit >= UNLIMITED || !cgroup_memory_used(group, version_2, &used))
		return;
	limits->memory_bytes = MIN(limits->memory_bytes, (uint64_t)limit);
	limits->memory_free =
		MIN(limits->memory_free, (uint64_t)limit - MIN(used, (uint64_t)limit));
}

/* Version 2 has "QUOTA PERIOD" or "max PERIOD" in one file. */
static void cpu_count(void *arg, const char *group, bool version_2)
{
	struct cgroup_limits *limits = (struct cgroup_limits *)arg;
	char path[PATH_BYTES], line[64];
	long long quota = 0, period = 0;

	snprintf(path, sizeof(path), "%s/cpu.max", group);
	if (version_2) {
		if (!file_line(path, line, sizeof(line)) ||
			sscanf(line, "%lld %lld", &quota, &period) != 2)
			return;
	} else if (!number_read(group, "cpu.cfs_quota_us", &quota) ||
		   !number_read(group, "cpu.cfs_period_us", &period)) {
		return;
	}
	if (quota > 0 && period > 0)
		limits->cpus = (uint32_t)MIN((uint64_t)limits->cpus,
			((uint64_t)quota + (uint64_t)period - 1) / (uint64_t)period);
}

void cgroup_limits_read(const char *root, struct cgroup_limits *ret_limits)
{
	*ret_limits = (struct cgroup_limits){UINT64_MAX, UINT64_MAX, UINT32_MAX};
	cgroup_visit(root, "memory", memory_count, ret_limits);
	cgroup_visit(root, "cpu", cpu_count, ret_limits);
}

static bool has_word(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = list; (at = strstr(at, word)); at += len)
		if ((at == list || at[-1] == ',') && (!at[len] || at[len] == ','))
			return true;
	return false;
}

/* Visits the group and all above it, up to the root of the mount. */
static void visit_up(
	const char *mount, char *path, bool version_2, cgroup_visit_fn *visit, void *arg)
{
	for (;;) {
		char group[GROUP_BYTES], *slash = strrchr(path, '/');

		if (snprintf(group, sizeof(group), "%s%s", mount, path) < (int)sizeof(group))
			visit(arg, group, version_2);
		if (!slash)
			return;
		*slash = '\0';
	}
}

void cgroup_visit(const char *root, const char *controller, cgroup_visit_fn *visit, void *arg)
{
	char path[PATH_BYTES], line[GROUP_BYTES];
	FILE *file;

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	file = fopen(path, "re");
	/* Lines of "NUMBER:CONTROLLERS:PATH"; version 2 has no controllers there. */
	while (file && fgets(line, sizeof(line), file)) {
		char *controllers = strchr(line, ':'), *group;
		bool version_2;

		line[strcspn(line, "\n")] = '\0';
		group = controllers ? strchr(++controllers, ':') : NULL;
		if (!group)
			continue;
		*group++ = '\0';
		version_2 = !controllers[0];
		if (!version_2 && !has_word(controllers, controller))
			continue;
		snprintf(path, sizeof(path), "%s/sys/fs/cgroup%s%s", root, version_2 ? "" : "/",
			version_2 ? "" : controller);
		visit_up(path, group, version_2, visit, arg);
	}
	if (file)
		fclose(file);
}
