/* server/resources.h: what the kernel lets the process have: descriptors, locked memory, memory. */
#ifndef SERVER_RESOURCES_H
#define SERVER_RESOURCES_H

#include "base/cgroup.h"
#include "server/config.h"

/* Raises the soft limits of open files and of locked memory, and logs what stays low; large blocks
 * of memory are the kernel's again when they are freed. */
void resources_raise(void);
/* All memory of this host; 0: unknown. */
uint64_t resources_host_memory(void);
/* Replaces "auto" of memory.records_bytes and memory.index_cache_bytes by their shares of the
 * host's memory, or of the control group's limit if that is less. Says
 * whether records may use huge pages. */
void resources_share(
	struct config *config, const struct cgroup_limits *limits, uint64_t host_bytes);
/* How much the pieces of fetches from origins may take (origin/origin.h), of what is left beside
 * the region, the records and the index. */
uint64_t resources_origin_bytes(
	const struct config *config, const struct cgroup_limits *limits, uint64_t host_bytes);
/* The same for the buffers of replication (replicate/replicate.h). */
uint64_t resources_replication_bytes(
	const struct config *config, const struct cgroup_limits *limits, uint64_t host_bytes);
/* Warns when the control group's limit of memory is below what the configuration may use. */
void resources_compare(const struct config *config, const struct cgroup_limits *limits);

#endif
