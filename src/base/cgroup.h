/* base/cgroup.h: the limits that control groups set for this process, as containers have them. */
#ifndef BASE_CGROUP_H
#define BASE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

struct cgroup_limits {
	uint64_t memory_bytes; /* the least limit of the process's group and those above it;
				  UINT64_MAX: none */
	uint64_t memory_free;  /* what these groups may still use, with the page cache that the
				  kernel can drop; UINT64_MAX: no limit */
	uint32_t cpus; /* whole processors' worth of time, rounded up; UINT32_MAX: no quota */
};

/* Reads the limits of versions 1 and 2 below root ("" for this host, or a folder with a copy of
 * /proc/self/cgroup and /sys/fs/cgroup). A limit that cannot be read counts as none. The quota of
 * several reads may differ: operators change it while the process runs. Any thread; reads files. */
void cgroup_limits_read(const char *root, struct cgroup_limits *ret_limits);

/* Calls visit for the folder of the process's group of a controller ("memory", "rdma") and for
 * those above it, innermost first. Folders need not exist. */
typedef void cgroup_visit_fn(void *arg, const char *folder, bool version_2);
void cgroup_visit(const char *root, const char *controller, cgroup_visit_fn *visit, void *arg);

/* The memory that the group of a folder uses, without the page cache that the kernel can drop.
 * False: it is not told there. */
bool cgroup_memory_used(const char *folder, bool version_2, uint64_t *ret_bytes);

#endif
