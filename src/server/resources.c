/* server/resources.c: what the kernel lets the process have. */
#include "server/resources.h"

#include "origin/origin.h"
#include "replicate/replicate.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

/* Of the index's write buffers, connections, fibers and the program. */
#define REST_MEMORY_BYTES (192 * MIB)
/* Memory that is allocated in larger blocks is the kernel's again when it is freed: pieces of
 * origins' objects, bodies of replication. By itself glibc keeps blocks of that size in the arena
 * of each thread, once one was freed. Smaller ones, as a list's page, stay, up to as much at the
 * end of an arena: memory that comes new from the kernel for each page costs as much as the page.
 */
#define BLOCK_BYTES_KEPT (4 * MIB)
#define ARENA_BYTES_KEPT (8 * MIB)
/* The least that "auto" means. */
#define AUTO_BYTES_MIN (64 * MIB)

/* Each connection is a descriptor. The soft limit is often 1,024 when the hard one is far
 * higher. */
void resources_raise(void)
{
	struct rlimit limit;

	mallopt(M_MMAP_THRESHOLD, BLOCK_BYTES_KEPT);
	mallopt(M_TRIM_THRESHOLD, ARENA_BYTES_KEPT);
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &limit))
			log_warn("server",
				"the limit of open files is %llu: the server refuses more "
				"connections than that",
				(unsigned long long)limit.rlim_cur);
	}
	if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
		limit = (struct rlimit){RLIM_INFINITY, RLIM_INFINITY};
		setrlimit(RLIMIT_MEMLOCK,
			&limit); /* the code that needs it reports the refusal with the fix */
	}
}

uint64_t resources_host_memory(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);

	return pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 0;
}

/* All grow as objects are used and listed, up to these limits; the rest of the memory is the page
 * cache's, in which the index's files are, and other programs'. */
void resources_share(struct config *config, const struct cgroup_limits *limits, uint64_t host_bytes)
{
	uint64_t bytes = MIN(host_bytes, limits->memory_bytes);
	uint64_t rest = bytes - MIN(bytes, config->memory.bytes + REST_MEMORY_BYTES);

	slab_huge_pages(config->memory.huge_pages);
	if (config->memory.records_bytes == CONFIG_AUTO)
		config->memory.records_bytes = MAX(rest / 8, AUTO_BYTES_MIN);
	if (config->memory.index_cache_bytes == CONFIG_AUTO)
		config->memory.index_cache_bytes = MAX(rest / 16, AUTO_BYTES_MIN);
	if (config->memory.list_bytes == CONFIG_AUTO)
		config->memory.list_bytes = rest / 16;
}

/* The sum of the keys of memory and the rest. */
static uint64_t used_bytes(const struct config *config)
{
	return config->memory.bytes + config->memory.records_bytes +
	       config->memory.index_cache_bytes + config->memory.list_bytes + REST_MEMORY_BYTES;
}

/* The memory that is left beside everything else. */
static uint64_t rest_bytes(
	const struct config *config, const struct cgroup_limits *limits, uint64_t host_bytes)
{
	uint64_t bytes = MIN(host_bytes, limits->memory_bytes);

	return bytes - MIN(bytes, used_bytes(config));
}

uint64_t resources_origin_bytes(
	const struct config *config, const struct cgroup_limits *limits, uint64_t host_bytes)
{
	uint64_t part = rest_bytes(config, limits, host_bytes) / 4;

	return MIN(MAX(part, ORIGIN_BUFFER_BYTES_MIN), ORIGIN_BUFFER_BYTES_MAX);
}

uint64_t resources_replication_bytes(
	const struct config *config, const struct cgroup_limits *limits, uint64_t host_bytes)
{
	uint64_t part = rest_bytes(config, limits, host_bytes) / 4;

	return MIN(MAX(part, REPLICATE_BUFFER_BYTES_MIN), REPLICATE_BUFFER_BYTES_MAX);
}

/* The region is there. The rest grows later, and the kernel then kills the process without a word.
 */
void resources_compare(const struct config *config, const struct cgroup_limits *limits)
{
	uint64_t bytes = used_bytes(config);

	if (limits->memory_bytes < bytes)
		log_warn("server",
			"the control group's limit of memory is %llu MiB; with memory.bytes, "
			"memory.records_bytes, memory.index_cache_bytes, memory.list_bytes and "
			"the rest the server may use %llu MiB and then be killed: raise the limit, "
			"or lower these keys",
			(unsigned long long)(limits->memory_bytes / MIB),
			(unsigned long long)(bytes / MIB));
}
