/* server/numa.h: chooses the server's NUMA node. Event loops and helpers run on the node's
 * processors, and memory comes from the node as long as it has room. The configuration names the
 * node; otherwise it is the node of the RDMA device, or of the interface that HTTP listens on. */
#ifndef SERVER_NUMA_H
#define SERVER_NUMA_H

#include <sched.h>
#include <stdint.h>

#include "server/config.h"

struct numa_plan {
	int node;	 /* -1: wherever the kernel puts it */
	int memory_node; /* of the memory region; the same, unless the configuration names one */
	cpu_set_t cpus;	 /* the processors that the server may use, of the node when there is one */
	uint32_t cpu_count; /* of them; at least 1 */
	char why[256];	    /* for the log, and for doctor */
};
/* sysfs is "/sys", or a test's own folder. -EINVAL, with why: a configured node does not exist, or
 * has no processor that this process may use, or no memory. */
int numa_plan(const struct config *config, const char *sysfs, struct numa_plan *ret_plan);
/* Applies the plan to the calling thread and to all threads that it starts later. If the kernel
 * refuses, the function logs that, and the server continues without. */
void numa_apply(const struct numa_plan *plan);
/* The processor of event loop number N, below cpu_count. */
int numa_cpu(const struct numa_plan *plan, uint32_t idx);

#endif
