/* server/numa.h: on which NUMA node the server lives: its event loops and helpers on the node's
 * processors, its memory there where there is room. The node is the configuration's, or the one of
 * the RDMA device or of the interface that HTTP listens on. */
#ifndef SERVER_NUMA_H
#define SERVER_NUMA_H

#include <sched.h>
#include <stdint.h>

#include "server/config.h"

struct numa_plan {
	int node;	    /* -1: wherever the kernel puts it */
	cpu_set_t cpus;	    /* that the server may use, of the node when there is one */
	uint32_t cpu_count; /* of them; at least 1 */
	char why[256];	    /* for the log, and for doctor */
};
/* sysfs is "/sys", or a test's own folder. -EINVAL, with why: the node that was asked for is not
 * there, or has no processor that this process may use. */
int numa_plan(const struct config *config, const char *sysfs, struct numa_plan *ret_plan);
/* The calling thread, and all that it starts from now on. If the kernel refuses, that is logged,
 * and the server continues without. */
void numa_apply(const struct numa_plan *plan);
/* The processor of an event loop, by its number, less than cpu_count. */
int numa_cpu(const struct numa_plan *plan, uint32_t idx);

#endif
