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
/* Descriptors that are no connections from clients: files, volumes, devices, connections to
 * volumes, origins, other sites and services; and of each event loop. */
#define FILES_OWN	256u
#define FILES_PER_CORE	16u
#define INDEX_FILES_MIN 128u
/* RocksDB finds a file faster when it keeps all open: this many are no limit. */
#define INDEX_FILES_ALL 16384u
/* Of each address for clients, when there are next to no descriptors. */
#define CONNECTIONS_MIN 32u
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
		setrlimit(RLIMIT_NOFILE, &limit); /* resources_files tells what it is */
	}
	if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
		limit = (struct rlimit){RLIM_INFINITY, RLIM_INFINITY};
		setrlimit(RLIMIT_MEMLOCK,
			&limit); /* the code that needs it reports the refusal with the fix */
	}
}

void resources_files_share(const struct config *config, uint64_t limit, uint32_t core_count,
	uint32_t links, struct resources_files *ret_files)
{
	uint64_t own = FILES_OWN + (uint64_t)FILES_PER_CORE * core_count + INDEX_FILES_MIN;
	uint64_t room = limit - MIN(limit, own), taken;
	uint32_t kinds = (config->http.address[0] != '\0') + (config->https.address[0] != '\0');
	uint32_t each;

	ret_files->admin = (uint32_t)MIN(RESOURCES_ADMIN_CONNECTIONS_MAX, room / 8 + 1);
	ret_files->console = (uint32_t)MIN(RESOURCES_CONSOLE_CONNECTIONS_MAX, room / 8 + 1);
	room -= MIN(room, ret_files->admin + ret_files->console);
	each = (uint32_t)MIN(LIMIT_HTTP_CONNECTIONS_MAX, room / (MAX(kinds, 1u) * (1 + links)));
	each = MAX(each, CONNECTIONS_MIN);
	ret_files->http = each;
	taken = (uint64_t)kinds * each * (1 + links);
	room -= MIN(room, taken);
	ret_files->index = room >= INDEX_FILES_ALL ? 0 : INDEX_FILES_MIN + (uint32_t)room;
}

void resources_files(const struct config *config, uint32_t core_count, uint32_t links,
	struct resources_files *ret_files)
{
	struct rlimit limit = {.rlim_cur = RESOURCES_FILES_WANTED};
	uint64_t wanted = RESOURCES_FILES_WANTED * (1ull + links);

	getrlimit(RLIMIT_NOFILE, &limit);
	resources_files_share(config, limit.rlim_cur, core_count, links, ret_files);
	if (ret_files->http < LIMIT_HTTP_CONNECTIONS_MAX)
		log_warn("server",
			"the limit of open files is %llu: at most %u connections to each address "
			"for clients instead of %u; raise it to %llu (LimitNOFILE=, ulimit -n)",
			(unsigned long long)limit.rlim_cur, ret_files->http,
			LIMIT_HTTP_CONNECTIONS_MAX, (unsigned long long)wanted);
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
