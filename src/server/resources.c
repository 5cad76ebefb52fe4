/* server/resources.c: what the kernel lets the process have. */
#include "server/resources.h"

#include <sys/resource.h>

/* Of the index (its cache and write buffers), connections, fibers and the program. */
#define REST_MEMORY_BYTES (256 * MIB)

/* Each connection is a descriptor. The soft limit is often 1,024 when the hard one is far
 * higher. */
void resources_raise(void)
{
	struct rlimit limit;

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

/* The region is there. The rest grows later, and the kernel then kills the process without a word.
 */
void resources_compare(const struct config *config, const struct cgroup_limits *limits)
{
	uint64_t bytes = config->memory.bytes + config->memory.records_bytes + REST_MEMORY_BYTES;

	if (limits->memory_bytes < bytes)
		log_warn("server",
			"the control group's limit of memory is %llu MiB; with memory.bytes, "
			"memory.records_bytes and the rest the server may use %llu MiB and then be "
			"killed: raise the limit, or lower these keys",
			(unsigned long long)(limits->memory_bytes / MIB),
			(unsigned long long)(bytes / MIB));
}
