/* region/arena.c: allocates the region's memory: memfds, of huge pages where available, mapped next
 * to each other, faulted in and locked. */
#include "region/frames_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cgroup.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26)
#endif
/* linux/mempolicy.h; no libnuma for one call. */
#define MPOL_PREFERRED 1
#define MPOL_BIND      2
#define NUMA_NODES_MAX 1024u

/* Reads a line of /proc/meminfo in the unit that it has there (most are in KiB); returns fallback
 * when the line is missing. */
static uint64_t meminfo(const char *key, uint64_t fallback)
{
	FILE *file = fopen("/proc/meminfo", "re");
	char line[128];
	size_t key_len = strlen(key);
	uint64_t value = fallback;

	if (!file)
		return fallback;
	while (fgets(line, sizeof(line), file)) {
		if (strncmp(line, key, key_len) == 0 && line[key_len] == ':' &&
			sscanf(line + key_len + 1, "%" SCNu64, &value) == 1)
			break;
	}
	fclose(file);
	return value;
}

static void log_no_huge_pages(uint64_t bytes)
{
	uint64_t pages = (bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES;
	uint64_t total = meminfo("HugePages_Total", 0);
	uint64_t avail = meminfo("HugePages_Free", 0) - meminfo("HugePages_Rsvd", 0);
	uint64_t missing = pages > avail ? pages - avail : 0;

	log_warn("region",
		"not enough 2 MiB huge pages (%" PRIu64 " more needed), using plain pages; "
		"fix: sysctl vm.nr_hugepages=%" PRIu64,
		missing, total + missing);
}

/* Makes a sealed memfd of the given size, or returns -errno. */
static int memfd_open(const char *name, uint32_t arena_idx, uint64_t bytes, bool huge)
{
	char fd_name[sizeof(REGION_FD_PREFIX) + REGION_NAME_BYTES + 4];
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd;

	snprintf(fd_name, sizeof(fd_name), REGION_FD_PREFIX "%s.%u", name, arena_idx);
	fd = memfd_create(fd_name, huge ? flags | MFD_HUGETLB | MFD_HUGE_2MB : flags);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)bytes) != 0 ||
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
		int error = -errno;

		close(fd);
		return error;
	}
	return fd;
}

/* Whether there are huge pages for the file, which are its own from then on. A mapping at a fixed
 * address that fails for the lack of them leaves a hole in the reservation, in which the kernel may
 * put what another thread maps: the next mapping there would replace that thread's memory. */
static int huge_take(int fd, uint64_t bytes)
{
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (base == MAP_FAILED)
		return -errno;
	munmap(base, bytes);
	return 0;
}

static int arena_map(struct region_arena *arena, uint8_t *at, uint64_t bytes, int fd, bool huge)
{
	void *base = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);

	if (base == MAP_FAILED)
		return -errno;
	*arena = (struct region_arena){.base = base, .bytes = bytes, .fd = fd, .huge = huge};
	return 0;
}

/* Where the arena lies, in bytes from the region's start, and how many it has. */
static uint64_t arena_place(const struct region *region, uint32_t arena_idx, uint64_t *ret_bytes)
{
	uint64_t offset = (uint64_t)arena_idx << ARENA_SHIFT;

	if (arena_idx < region->base_arena_count) {
		*ret_bytes = MIN(ARENA_STRIDE, region->base_bytes - offset);
		return offset;
	}
	*ret_bytes = 1ull << region->extension_shift;
	return region->extension_offset + (arena_idx - region->base_arena_count) * *ret_bytes;
}

static int arena_open(struct region *region, uint32_t arena_idx, bool *huge)
{
	struct region_arena *arena = &region->arenas[arena_idx].face;
	const char *name = region->name;
	uint64_t bytes, offset = arena_place(region, arena_idx, &bytes);
	int error;
	int fd;

	if (*huge) {
		fd = memfd_open(name, arena_idx, bytes, true);
		error = fd < 0 ? fd : huge_take(fd, bytes);
		if (error == 0)
			error = arena_map(arena, region->base + offset, bytes, fd, true);
		if (error == 0 || error == -EMFILE || error == -ENFILE)
			return error;
		if (fd >= 0)
			close(fd);
		log_no_huge_pages(
			arena_idx < region->base_arena_count ? region->base_bytes - offset : bytes);
		*huge = false;
	}
	fd = memfd_open(name, arena_idx, bytes, false);
	if (fd < 0)
		return fd;
	error = arena_map(arena, region->base + offset, bytes, fd, false);
	if (error < 0) {
		close(fd);
		return error;
	}
	/* Only a hint: works where shmem_enabled is "advise". */
	madvise(arena->base, bytes, MADV_HUGEPAGE);
	return 0;
}

/* Prefers the node, or with `only` refuses any other. */
static int arena_bind(const struct region_arena *arena, uint32_t node, bool only)
{
	unsigned long nodes[NUMA_NODES_MAX / (8 * sizeof(long))] = {0};
	const uint32_t bits = 8 * sizeof(long);

	if (node < NUMA_NODES_MAX) {
		nodes[node / bits] = 1ul << node % bits;
		/* The kernel subtracts one from maxnode before it counts bits. */
		if (syscall(SYS_mbind, arena->base, arena->bytes, only ? MPOL_BIND : MPOL_PREFERRED,
			    nodes, NUMA_NODES_MAX + 1, 0) == 0)
			return 0;
	} else {
		errno = EINVAL;
	}
	if (only) {
		int error = -errno;

		log_error("region", "cannot bind memory to node %u: %s", node, strerror(-error));
		return error;
	}
	log_warn("region",
		"cannot prefer memory node %u (%s); fix: name a node of /sys/devices/system/node",
		node, strerror(errno));
	return 0;
}

/* Bytes of a node that can be had at once: free, and unused pages of files. */
static uint64_t node_free(uint32_t node, bool huge)
{
	uint64_t free_kib = 0, inactive_kib = 0, pages = 0, value;
	char path[96], line[128];
	FILE *file;

	snprintf(path, sizeof(path),
		huge ? "/sys/devices/system/node/node%u/hugepages/hugepages-2048kB/free_hugepages"
		     : "/sys/devices/system/node/node%u/meminfo",
		node);
	file = fopen(path, "re");
	if (!file)
		return 0;
	while (fgets(line, sizeof(line), file)) {
		if (huge && sscanf(line, "%" SCNu64, &value) == 1)
			pages = value;
		else if (sscanf(line, "Node %*u MemFree: %" SCNu64, &value) == 1)
			free_kib = value;
		else if (sscanf(line, "Node %*u Inactive(file): %" SCNu64, &value) == 1)
			inactive_kib = value;
	}
	fclose(file);
	return huge ? pages * HUGE_PAGE_BYTES : (free_kib + inactive_kib) * KIB;
}

/* A process that needs more of a node than it has is killed by the kernel: so it is not begun. */
static int node_check(uint32_t node, uint64_t bytes, char *ret_why, size_t why_bytes)
{
	uint64_t free_bytes = node_free(node, false);

	if (bytes <= free_bytes)
		return 0;
	snprintf(ret_why, why_bytes,
		"memory node %u has %" PRIu64 " MiB free, and %" PRIu64 " MiB are needed", node,
		(uint64_t)(free_bytes / MIB), (uint64_t)(bytes / MIB));
	return -ENOMEM;
}

static int range_populate(uint8_t *from, uint64_t bytes)
{
	if (madvise(from, bytes, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (errno != EINVAL)
		return -ENOMEM;
	/* Before Linux 5.14: write a byte of each page. All pages are still zero. */
	for (uint64_t offset = 0; offset < bytes; offset += FRAME_BYTES)
		((volatile uint8_t *)from)[offset] = 0;
	return 0;
}

/* Faults in and locks memory. A refusal to lock it is logged. */
static int range_take(uint8_t *from, uint64_t bytes)
{
	int error = range_populate(from, bytes);

	if (error == 0 && mlock(from, bytes) != 0)
		log_warn("region",
			"cannot lock %" PRIu64 " MiB in memory (%s); fix: ulimit -l unlimited, or "
			"LimitMEMLOCK=infinity in the service unit",
			(uint64_t)(bytes / MIB), strerror(errno));
	return error;
}

/* The part of the frame table that describes these pages of the region, in whole pages. */
static int frames_take(
	struct region *region, const struct layout_entry *table, uint64_t page, uint64_t end_page)
{
	uint64_t from = table->offset + page * sizeof(struct region_frame);
	uint64_t end = table->offset + end_page * sizeof(struct region_frame);

	from &= ~(uint64_t)(FRAME_BYTES - 1);
	return range_take(region->base + from, ALIGN_UP(end, (uint64_t)FRAME_BYTES) - from);
}

/* The gap between tables and data is not used. */
static int base_take(struct region *region, const struct layout_plan *plan)
{
	const struct layout_entry *table = &plan->entries[LAYOUT_FRAMES];
	uint64_t data_offset = plan->data_page << FRAME_SHIFT;
	int error = range_take(region->base, table->offset);

	if (error == 0)
		error = frames_take(region, table, 0, region->base_bytes >> FRAME_SHIFT);
	if (error == 0)
		error = range_take(region->base + data_offset, region->base_bytes - data_offset);
	return error;
}

/* Reserves one address range for all arenas, aligned to the largest block. */
static int reserve(struct region *region)
{
	region->reservation_bytes = region->bytes + BLOCK_BYTES_MAX;
	region->reservation = mmap(NULL, region->reservation_bytes, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (region->reservation == MAP_FAILED) {
		region->reservation = NULL;
		return -ENOMEM;
	}
	region->base = (uint8_t *)ALIGN_UP((uintptr_t)region->reservation, BLOCK_BYTES_MAX);
	return 0;
}

/* Refuses more memory than the host or the control group has: faulting it in would make the kernel
 * kill a process. */
static int memory_check(uint64_t bytes, char *ret_why, size_t why_bytes)
{
	uint64_t host_free = meminfo("MemAvailable", UINT64_MAX / KIB) * KIB;
	struct cgroup_limits limits;

	cgroup_limits_read("", &limits);
	if (bytes > host_free)
		snprintf(ret_why, why_bytes,
			"the host has %" PRIu64 " MiB of memory available, and %" PRIu64
			" MiB are needed",
			(uint64_t)(host_free / MIB), (uint64_t)(bytes / MIB));
	else if (bytes > limits.memory_free)
		snprintf(ret_why, why_bytes,
			"the control group's limit of memory is %" PRIu64 " MiB, of which %" PRIu64
			" MiB are free, and %" PRIu64 " MiB are needed",
			(uint64_t)(limits.memory_bytes / MIB), (uint64_t)(limits.memory_free / MIB),
			(uint64_t)(bytes / MIB));
	else
		return 0;
	return -ENOMEM;
}

static int room_check(const struct region *region, uint64_t bytes, char *ret_why, size_t why_bytes)
{
	int error = 0;

	if (region->numa_bind && region->numa_only)
		error = node_check(region->numa_node, bytes, ret_why, why_bytes);
	return error ? error : memory_check(bytes, ret_why, why_bytes);
}

static bool wants_huge(const struct region *region, uint64_t bytes)
{
	bool only = region->numa_bind && region->numa_only;

	return region->huge_pages && (!only || node_free(region->numa_node, true) >= bytes);
}

static int arena_bind_as_asked(struct region *region, uint32_t arena_idx)
{
	if (!region->numa_bind)
		return 0;
	return arena_bind(&region->arenas[arena_idx].face, region->numa_node, region->numa_only);
}

int arenas_open(struct region *region, const struct layout_plan *plan)
{
	bool huge = wants_huge(region, region->base_bytes);
	char why[192] = "";
	int error = reserve(region);

	for (uint32_t i = 0; i < region->arena_count; i++)
		region->arenas[i].face.fd = -1;
	for (uint32_t i = 0; i < region->base_arena_count && error == 0; i++) {
		error = arena_open(region, i, &huge);
		if (error == 0)
			error = arena_bind_as_asked(region, i);
	}
	if (error == 0 && !huge)
		error = room_check(region, region->base_bytes, why, sizeof(why));
	if (why[0])
		log_error("region", "%s", why);
	if (error == 0)
		error = base_take(region, plan);
	for (uint32_t i = region->base_arena_count; i < region->arena_count; i++) {
		struct region_arena *arena = &region->arenas[i].face;

		arena->base = region->base + arena_place(region, i, &arena->bytes);
	}
	return error == -ENFILE ? -EMFILE : error;
}

/* Takes the extension's pages out of the address space: touching them is a fault. */
static void arena_unmap(struct region *region, uint32_t arena_idx)
{
	struct region_arena *arena = &region->arenas[arena_idx].face;
	void *at;

	FRAMES_UNPOISON(arena->base, arena->bytes);
	/* A peer that still has the file mapped keeps no memory. Where the kernel cannot do this,
	 * the memory goes with the last mapping. */
	if (fallocate(arena->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
		    (off_t)arena->bytes) != 0)
		log_debug("region", "cannot punch arena %u: %s", arena_idx, strerror(errno));
	at = mmap(arena->base, arena->bytes, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	CHECK(at == arena->base);
	close(arena->fd);
	arena->fd = -1;
	arena->huge = false;
}

int arena_commit(struct region *region, uint32_t arena_idx, char *ret_why, size_t why_bytes)
{
	struct region_arena *arena = &region->arenas[arena_idx].face;
	const struct layout_entry *table = &region->header->layout[LAYOUT_FRAMES];
	uint64_t page = arena_page(region->header, arena_idx);
	bool huge = wants_huge(region, arena->bytes);
	int error = arena_open(region, arena_idx, &huge);

	ret_why[0] = '\0';
	if (error == 0) {
		error = arena_bind_as_asked(region, arena_idx);
		if (error == 0 && !arena->huge)
			error = room_check(region, arena->bytes, ret_why, why_bytes);
		if (error == 0)
			error = frames_take(
				region, table, page, page + (arena->bytes >> FRAME_SHIFT));
		if (error == 0)
			error = range_take(arena->base, arena->bytes);
		if (error < 0)
			arena_unmap(region, arena_idx);
	}
	if (error < 0 && !ret_why[0])
		snprintf(ret_why, why_bytes, "cannot allocate memory: %s", strerror(-error));
	if (error == 0)
		FRAMES_POISON(arena->base, arena->bytes);
	return error == -ENFILE ? -EMFILE : error;
}

void arena_park(struct region *region, uint32_t arena_idx)
{
	arena_unmap(region, arena_idx);
}

void arenas_close(struct region *region)
{
	for (uint32_t i = 0; region->arenas && i < region->arena_count; i++) {
		struct region_arena *arena = &region->arenas[i].face;

		if (!arena->base || arena->fd < 0)
			continue;
		FRAMES_UNPOISON(arena->base, arena->bytes);
		close(arena->fd);
	}
	if (region->reservation)
		munmap(region->reservation, region->reservation_bytes);
}
