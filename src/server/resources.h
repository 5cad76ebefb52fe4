/* server/resources.h: what the kernel lets the process have: descriptors, locked memory, memory. */
#ifndef SERVER_RESOURCES_H
#define SERVER_RESOURCES_H

#include "base/cgroup.h"
#include "server/config.h"

/* Raises the soft limits of open files and of locked memory, and logs what stays low; large blocks
 * of memory are the kernel's again when they are freed. */
void resources_raise(void);
/* How the process's descriptors are shared out: each connection is one, and an index that cannot
 * open a file ends the store's writes. */
struct resources_files {
	uint32_t http; /* connections of HTTP, and as many of HTTPS, over all event loops */
	uint32_t admin, console;
	uint32_t index; /* files that the index may keep open; 0: all of it */
};
#define RESOURCES_ADMIN_CONNECTIONS_MAX	  64u
#define RESOURCES_CONSOLE_CONNECTIONS_MAX 256u
/* A limit of open files with which all of a server's addresses have their maximum. */
#define RESOURCES_FILES_WANTED 36864u
_Static_assert(
	RESOURCES_FILES_WANTED >= 2 * LIMIT_HTTP_CONNECTIONS_MAX + 2048, "both, and the rest");
/* limit: of open files. links: descriptors that a connection takes beside its own. */
void resources_files_share(const struct config *config, uint64_t limit, uint32_t core_count,
	uint32_t links, struct resources_files *ret_files);
/* The same for this process's limit; logs when it is too low for LIMIT_HTTP_CONNECTIONS_MAX. */
void resources_files(const struct config *config, uint32_t core_count, uint32_t links,
	struct resources_files *ret_files);
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
