/* cli/doctor_memory.c: persistent memory and memory without processors: devices that a store or its
 * log can be on, and nodes that the region can be on. */
#include "cli/doctor.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The last part of a link below a device's folder. False: there is none. */
static bool link_name(const struct doctor *doctor, const char *bus, const char *name,
	const char *link, char *out, size_t cap)
{
	char path[DOCTOR_PATH_BYTES], target[PATH_MAX];
	const char *last;

	snprintf(path, sizeof(path), "%s/bus/%s/devices/%s/%s", doctor->sysfs, bus, name, link);
	if (!realpath(path, target))
		return false;
	last = strrchr(target, '/');
	snprintf(out, cap, "%.*s", (int)cap - 1, last ? last + 1 : target);
	return true;
}

/* The region of NVDIMMs that a DAX device is on; false: its memory loses its contents. */
static bool region_of(const struct doctor *doctor, const char *name, char *out, size_t cap)
{
	char path[DOCTOR_PATH_BYTES], target[PATH_MAX];
	char *bus, *region, *end;

	snprintf(path, sizeof(path), "%s/bus/dax/devices/%s", doctor->sysfs, name);
	if (!realpath(path, target))
		return false;
	bus = strstr(target, "/ndbus");
	region = bus ? strstr(bus, "/region") : NULL;
	end = region ? strchr(region + 1, '/') : NULL;
	if (!end)
		return false;
	*end = '\0';
	snprintf(out, cap, "%.*s", (int)cap - 1, region + 1);
	return true;
}

static void tell_dax(struct doctor *doctor, const char *name)
{
	char driver[64], region[64], size[32], domain[64], bad[64];
	struct finding *finding;
	unsigned long long mib;

	if (!doctor_sysfs(doctor, size, sizeof(size), "bus/dax/devices/%s/size", name))
		return;
	mib = strtoull(size, NULL, 0) >> 20;
	if (!link_name(doctor, "dax", name, "driver", driver, sizeof(driver)))
		snprintf(driver, sizeof(driver), "no driver");
	if (strcmp(driver, "kmem") == 0) {
		doctor_note(doctor, FINDING_INFO, "memory",
			"%s (%llu MiB) is in the mode system-ram: it is ordinary memory now", name,
			mib);
		return;
	}
	if (!region_of(doctor, name, region, sizeof(region))) {
		finding = doctor_note(doctor, FINDING_INFO, "memory",
			"/dev/%s (%llu MiB, %s) loses its contents without power", name, mib,
			driver);
		doctor_why(finding,
			"no store can be on it; as the kernel's memory it is a node that "
			"numa.memory_node can name");
		doctor_fix(finding, false, "daxctl reconfigure-device --mode=system-ram %s", name);
		return;
	}
	if (!doctor_sysfs(
		    doctor, domain, sizeof(domain), "bus/nd/devices/%s/persistence_domain", region))
		domain[0] = '\0';
	finding = doctor_note(doctor, domain[0] ? FINDING_OK : FINDING_WARN, "memory",
		"/dev/%s: persistent memory in the mode devdax, %llu MiB, %s, domain of "
		"persistence: %s",
		name, mib, region, domain[0] ? domain : "unknown");
	doctor_why(finding,
		domain[0] ? "storage.log: /dev/%s keeps a store's log there"
			  : "the platform does not say that it saves its buffers when the power "
			    "fails: acknowledged changes on /dev/%s may be lost then",
		name);
	if (doctor_sysfs(doctor, bad, sizeof(bad), "bus/nd/devices/%s/badblocks", region))
		doctor_fix(doctor_note(doctor, FINDING_WARN, "memory",
				   "%s has bad blocks, the first at sector %s", region, bad),
			false, "ndctl list --region=%s --media-errors", region);
}

static void tell_namespace(struct doctor *doctor, const char *name)
{
	char mode[32], size[32];
	struct finding *finding;

	if (strncmp(name, "namespace", 9) != 0 ||
		!doctor_sysfs(doctor, size, sizeof(size), "bus/nd/devices/%s/size", name) ||
		!strtoull(size, NULL, 0) ||
		!doctor_sysfs(doctor, mode, sizeof(mode), "bus/nd/devices/%s/mode", name) ||
		strcmp(mode, "dax") == 0)
		return;
	finding = doctor_note(doctor, FINDING_INFO, "memory",
		"%s: persistent memory, %llu MiB, in the mode %s", name,
		strtoull(size, NULL, 0) >> 20, strcmp(mode, "memory") == 0 ? "fsdax" : mode);
	doctor_why(finding,
		"fsdax: mount ext4 or XFS with -o dax=always and name files dax:///PATH; devdax is "
		"for a log on the whole device (this erases it):");
	doctor_fix(
		finding, false, "ndctl create-namespace --force --reconfig=%s --mode=devdax", name);
}

static void tell_node(struct doctor *doctor, const char *name)
{
	char cpus[128], meminfo[128];
	unsigned long long kib;

	if (strncmp(name, "node", 4) != 0 || name[4] < '0' || name[4] > '9' ||
		!doctor_sysfs(
			doctor, meminfo, sizeof(meminfo), "devices/system/node/%s/meminfo", name) ||
		sscanf(meminfo, "Node %*u MemTotal: %llu", &kib) != 1 || !kib)
		return;
	/* An empty list is an empty line. */
	if (doctor_sysfs(doctor, cpus, sizeof(cpus), "devices/system/node/%s/cpulist", name) &&
		cpus[0])
		return;
	doctor_why(doctor_note(doctor, FINDING_INFO, "memory",
			   "NUMA node %s has memory only, %llu MiB (CXL memory looks so)", name + 4,
			   kib >> 10),
		"numa.memory_node: %s puts the memory region with the cache there", name + 4);
}

void doctor_check_extra_memory(struct doctor *doctor)
{
	doctor_each(doctor, "bus/dax/devices", tell_dax);
	doctor_each(doctor, "bus/nd/devices", tell_namespace);
	doctor_each(doctor, "devices/system/node", tell_node);
}
