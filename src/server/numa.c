/* server/numa.c: reads the host's NUMA nodes from sysfs, and chooses one. */
#include "server/numa.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"

#define MPOL_PREFERRED 1 /* linux/mempolicy.h; no libnuma for one call */
#define PATH_BYTES     512
#define LIST_BYTES     4096

/* Parses a set as sysfs writes it: "0-3,8,10-11". Other text adds nothing. */
static void list_parse(const char *text, cpu_set_t *ret_set)
{
	CPU_ZERO(ret_set);
	while (*text) {
		char *end;
		unsigned long first = strtoul(text, &end, 10), last = first;

		if (end == text)
			return;
		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		for (unsigned long i = first; i <= last && i < CPU_SETSIZE; i++)
			CPU_SET(i, ret_set);
		text = end + (*end == ',');
	}
}

/* Reads a set from a file about nodes; false: there is no such file. */
static bool list_of(const char *sysfs, const char *name, cpu_set_t *ret_set)
{
	char path[PATH_BYTES], text[LIST_BYTES];

	snprintf(path, sizeof(path), "%s/devices/system/node/%s", sysfs, name);
	if (!file_line(path, text, sizeof(text)))
		return false;
	list_parse(text, ret_set);
	return true;
}

/* A device's node; -1: neither its driver nor the firmware names one. */
static int device_node(const char *sysfs, const char *kind, const char *name)
{
	char path[PATH_BYTES], text[16];

	snprintf(path, sizeof(path), "%s/class/%s/%s/device/numa_node", sysfs, kind, name);
	return file_line(path, text, sizeof(text)) ? atoi(text) : -1;
}

/* ---- Which device. ---- */

static bool is_address(const struct sockaddr *address, const char *text)
{
	char own[INET6_ADDRSTRLEN];
	const void *bytes = NULL;

	if (address && address->sa_family == AF_INET)
		bytes = &((const struct sockaddr_in *)(const void *)address)->sin_addr;
	if (address && address->sa_family == AF_INET6)
		bytes = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
	return bytes && inet_ntop(address->sa_family, bytes, own, sizeof(own)) &&
	       strcmp(own, text) == 0;
}

/* The interface that has the address ("ADDR:PORT", "[ADDR]:PORT"). False: no address, or any
 * address. */
static bool interface_of(const char *address, char ret_name[IF_NAMESIZE])
{
	char text[CONFIG_TEXT_MAX];
	char *host = text, *end;
	struct ifaddrs *all;
	bool found = false;

	snprintf(text, sizeof(text), "%s", address);
	end = strrchr(text, ':');
	if (!end)
		return false;
	*end = '\0';
	if (host[0] == '[' && end > text + 1) {
		host++;
		end[-1] = '\0';
	}
	if (getifaddrs(&all))
		return false;
	for (const struct ifaddrs *it = all; it && !found; it = it->ifa_next) {
		found = is_address(it->ifa_addr, host);
		if (found)
			snprintf(ret_name, IF_NAMESIZE, "%s", it->ifa_name);
	}
	freeifaddrs(all);
	return found;
}

/* The node of the device or interface that moves most of the server's bytes; -1, with why. */
static int choose(const struct config *config, const char *sysfs, struct numa_plan *plan)
{
	const char *addresses[] = {config->https.address, config->http.address};
	const char *kind = "infiniband";
	char name[128] = "";
	int node;

	if (config->rdma.enabled && strncmp(config->rdma.device_name, "simulated", 9) != 0) {
		struct slice rest = slice_str(config->rdma.device_name);

		(void)slice_copy_str(slice_split(&rest, ':'), name, sizeof(name));
	}
	for (size_t i = 0; !name[0] && i < ARRAY_LEN(addresses); i++) {
		kind = "net";
		if (!interface_of(addresses[i], name))
			name[0] = '\0';
	}
	node = name[0] ? device_node(sysfs, kind, name) : -1;
	if (node >= 0)
		snprintf(plan->why, sizeof(plan->why), "auto: node %d, the node of %s", node, name);
	else if (name[0])
		snprintf(plan->why, sizeof(plan->why),
			"auto: the node of %s is unknown: the server is not placed; name a node",
			name);
	else
		snprintf(plan->why, sizeof(plan->why),
			"auto: no RDMA device, and no single interface has http.address: the "
			"server is not placed; name a node");
	return node;
}

/* ---- The plan. ---- */

/* Places the server on that node, on those of its processors that the process may use. */
static int place(const char *sysfs, int node, struct numa_plan *plan)
{
	cpu_set_t cpus, both;
	char name[32];

	snprintf(name, sizeof(name), "node%d/cpulist", node);
	if (!list_of(sysfs, name, &cpus))
		CPU_ZERO(&cpus);
	CPU_AND(&both, &plan->cpus, &cpus);
	if (!CPU_COUNT(&both)) {
		snprintf(plan->why, sizeof(plan->why),
			"node %d has no processor that this process may use "
			"(%s/devices/system/node/node%d/cpulist, taskset -p)",
			node, sysfs, node);
		return -EINVAL;
	}
	plan->node = node;
	plan->cpus = both;
	plan->cpu_count = (uint32_t)CPU_COUNT(&both);
	return 0;
}

/* The node of the memory region. */
static int place_memory(const struct config *config, const char *sysfs, struct numa_plan *plan)
{
	int node = atoi(config->numa.memory_node);
	cpu_set_t nodes;

	plan->memory_node = plan->node;
	if (!config->numa.memory_node[0])
		return 0;
	if (!list_of(sysfs, "has_memory", &nodes))
		list_parse("0", &nodes);
	if (node >= CPU_SETSIZE || !CPU_ISSET(node, &nodes)) {
		snprintf(plan->why, sizeof(plan->why),
			"numa.memory_node: no node %d with memory: "
			"%s/devices/system/node/has_memory lists them",
			node, sysfs);
		return -EINVAL;
	}
	plan->memory_node = node;
	return 0;
}

static int place_threads(const struct config *config, const char *sysfs, struct numa_plan *ret_plan)
{
	const char *wanted = config->numa.node;
	bool named = wanted[0] >= '0' && wanted[0] <= '9';
	struct numa_plan *plan = ret_plan;
	cpu_set_t nodes;
	int node;

	*plan = (struct numa_plan){.node = -1, .memory_node = -1};
	if (sched_getaffinity(0, sizeof(plan->cpus), &plan->cpus))
		CPU_SET(0, &plan->cpus); /* more processors than a set holds */
	plan->cpu_count = (uint32_t)MAX(CPU_COUNT(&plan->cpus), 1);
	if (strcmp(wanted, "none") == 0)
		return 0;
	if (!list_of(sysfs, "online", &nodes) || !CPU_COUNT(&nodes))
		list_parse("0", &nodes); /* a kernel without NUMA */
	node = named ? atoi(wanted) : -1;
	if (named && (node >= CPU_SETSIZE || !CPU_ISSET(node, &nodes))) {
		snprintf(plan->why, sizeof(plan->why),
			"no node %s: %s/devices/system/node/online lists the nodes", wanted, sysfs);
		return -EINVAL;
	}
	if (CPU_COUNT(&nodes) == 1) {
		snprintf(plan->why, sizeof(plan->why),
			"%s: this host has one NUMA node: no placement needed", wanted);
		return 0;
	}
	if (named) {
		snprintf(plan->why, sizeof(plan->why), "node %d, as configured", node);
		return place(sysfs, node, plan);
	}
	node = choose(config, sysfs, plan);
	/* The server starts even if the automatic choice fails. */
	if (node >= 0)
		(void)place(sysfs, node, plan);
	return 0;
}

int numa_plan(const struct config *config, const char *sysfs, struct numa_plan *ret_plan)
{
	int ret = place_threads(config, sysfs, ret_plan);

	return ret ? ret : place_memory(config, sysfs, ret_plan);
}

void numa_apply(const struct numa_plan *plan)
{
	unsigned long nodes[CPU_SETSIZE / (8 * sizeof(long))] = {0};
	const uint32_t bits = 8 * sizeof(long);

	if (plan->memory_node != plan->node)
		log_info("server", "numa.memory_node: the memory region is on node %d",
			plan->memory_node);
	if (plan->node < 0)
		return;
	if (sched_setaffinity(0, sizeof(plan->cpus), &plan->cpus))
		log_warn("server", "numa.node: cannot run on the processors of node %d: %s",
			plan->node, strerror(errno));
	nodes[(uint32_t)plan->node / bits] = 1ul << (uint32_t)plan->node % bits;
	/* The kernel subtracts one from maxnode before it counts bits. */
	if (syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes, CPU_SETSIZE + 1))
		log_warn("server", "numa.node: cannot prefer memory of node %d: %s", plan->node,
			strerror(errno));
}

int numa_cpu(const struct numa_plan *plan, uint32_t idx)
{
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &plan->cpus) && idx-- == 0)
			return cpu;
	return -1;
}
