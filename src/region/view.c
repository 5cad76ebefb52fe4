/* region/view.c: looks at another process's region: finds its memfd, maps it read-only and copies
 * the header out. All of it is outside input: every value is checked before it is used, and a value
 * that may change is read once. The report is view_dump.c. */
#include "region/view_priv.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FDS_LOOKED_AT_MAX 65536u

/* The tables of the header, in their order, and the size of one entry; 0: a ring, which depends on
 * ring_entries. */
static const struct {
	uint32_t entry_bytes;
	uint32_t ring_entry_bytes;
	uint32_t ring_factor;
} tables[LAYOUT_DATA] = {
	[LAYOUT_HEADER] = {.entry_bytes = FRAME_BYTES},
	[LAYOUT_BASE_SQ] = {.ring_entry_bytes = sizeof(struct region_sqe), .ring_factor = 1},
	[LAYOUT_BASE_CQ] = {.ring_entry_bytes = sizeof(struct region_cqe), .ring_factor = 2},
	[LAYOUT_RDMA_SQ] = {.ring_entry_bytes = sizeof(struct region_wr), .ring_factor = 1},
	[LAYOUT_RDMA_CQ] = {.ring_entry_bytes = sizeof(struct region_cqe), .ring_factor = 2},
	[LAYOUT_MRS] = {.entry_bytes = sizeof(struct mr_slot)},
	[LAYOUT_TARGETS] = {.entry_bytes = sizeof(struct target_slot)},
	[LAYOUT_FRAMES] = {.entry_bytes = sizeof(struct region_frame)},
};

static bool table_holds(const struct region_header *header, uint32_t kind, uint64_t mapped_bytes)
{
	const struct layout_entry *entry = &header->layout[kind];
	const uint64_t counts[LAYOUT_DATA] = {1, header->core_count, header->core_count,
		header->core_count, header->core_count, LIMIT_REGION_MRS_MAX,
		LIMIT_REGION_TARGETS_MAX, header->page_count};
	uint64_t entry_bytes = tables[kind].entry_bytes;

	if (entry_bytes == 0)
		entry_bytes = sizeof(struct ring_control) + (uint64_t)tables[kind].ring_factor *
								    header->ring_entries *
								    tables[kind].ring_entry_bytes;
	return entry->kind == kind && entry->arena == 0 && entry->count == counts[kind] &&
	       entry->entry_bytes == entry_bytes && entry->bytes == entry->count * entry_bytes &&
	       entry->offset % LINE_BYTES == 0 && entry->offset <= mapped_bytes &&
	       entry->bytes <= mapped_bytes - entry->offset;
}

static bool data_holds(const struct region_header *header, uint32_t idx)
{
	const struct layout_entry *entry = &header->layout[idx];

	return entry->kind == LAYOUT_DATA && entry->arena < header->arena_count &&
	       arena_page(header, entry->arena) + (entry->offset >> FRAME_SHIFT) + entry->count <=
		       header->page_count &&
	       entry->offset <= ARENA_STRIDE && entry->bytes <= ARENA_STRIDE - entry->offset &&
	       entry->entry_bytes == FRAME_BYTES &&
	       entry->bytes == (uint64_t)entry->count * FRAME_BYTES;
}

/* True when every number of the header is within its bound and consistent with the others. */
static bool header_holds(const struct region_header *header, uint64_t mapped_bytes)
{
	/* One block more: extensions begin at its boundary. */
	uint64_t pages_max = ((uint64_t)header->arena_count << (ARENA_SHIFT - FRAME_SHIFT)) +
			     LIMIT_SPAN_FRAMES_MAX;

	if (header->version != REGION_VERSION || header->header_bytes != sizeof(*header))
		return false;
	if (header->arena_count == 0 || header->arena_count > LIMIT_ARENAS_MAX ||
		header->core_count == 0 || header->core_count > LIMIT_CORES_MAX)
		return false;
	if (header->ring_entries == 0 || header->ring_entries > LIMIT_RING_ENTRIES_MAX ||
		(header->ring_entries & (header->ring_entries - 1)) != 0)
		return false;
	if (header->base_arena_count == 0 || header->base_arena_count > header->arena_count ||
		header->extension_pages > ARENA_STRIDE >> FRAME_SHIFT)
		return false;
	if (header->page_count > pages_max || header->data_page > header->page_count)
		return false;
	if (header->layout_count < LAYOUT_DATA || header->layout_count > LAYOUT_ENTRIES_MAX ||
		!memchr(header->name, '\0', sizeof(header->name)))
		return false;
	for (uint32_t i = 0; i < LAYOUT_DATA; i++) {
		if (!table_holds(header, i, mapped_bytes))
			return false;
	}
	for (uint32_t i = LAYOUT_DATA; i < header->layout_count; i++) {
		if (!data_holds(header, i))
			return false;
	}
	return true;
}

int region_view_map(int fd, struct region_view **ret_view)
{
	struct region_view *view;
	struct stat stat;
	int seals = fcntl(fd, F_GET_SEALS);
	uint64_t bytes;
	void *base;

	/* The memfd must be sealed: its owner could shorten an unsealed one while we read, and
	 * reading would end in SIGBUS. */
	if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &stat) != 0)
		return -EPROTO;
	bytes = (uint64_t)stat.st_size;
	if (bytes < FRAME_BYTES || bytes > LIMIT_ARENA_BYTES_MAX)
		return -EPROTO;
	base = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	view = calloc(1, sizeof(*view));
	if (!view) {
		munmap(base, bytes);
		return -ENOMEM;
	}
	view->base = base;
	view->bytes = bytes;
	memcpy(&view->header, base, sizeof(view->header));
	if (memcmp(view->header.magic, REGION_MAGIC, sizeof(view->header.magic)) != 0 ||
		!header_holds(&view->header, bytes)) {
		region_view_close(view);
		return -EPROTO;
	}
	*ret_view = view;
	return 0;
}

/* True when the text of /proc/PID/fd/N is that of a region's first arena. */
static bool link_is_region(const char *link)
{
	static const char prefix[] = "/memfd:" REGION_FD_PREFIX;
	size_t len = strlen(link);
	static const char deleted[] = " (deleted)";

	if (strncmp(link, prefix, sizeof(prefix) - 1) != 0)
		return false;
	if (len > sizeof(deleted) && strcmp(link + len - sizeof(deleted) + 1, deleted) == 0)
		len -= sizeof(deleted) - 1;
	return len > 2 && strncmp(link + len - 2, ".0", 2) == 0;
}

/* Opens entry N of the directory when it is a region's: its descriptor, or -ENOENT, -errno. */
static int fd_open(int dir_fd, const char *name)
{
	char link[128];
	ssize_t len = readlinkat(dir_fd, name, link, sizeof(link) - 1);
	int fd;

	if (len < 0)
		return errno == EACCES || errno == EPERM ? -errno : -ENOENT;
	link[len] = '\0';
	if (!link_is_region(link))
		return -ENOENT;
	fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Prefers a region that the process opened itself to one that another process handed to it. */
static int dir_look(DIR *dir, int pid, struct region_view **ret_view)
{
	struct region_view *found = NULL;
	int error = -ENOENT;
	uint32_t looked = 0;

	for (struct dirent *ent = readdir(dir); ent && looked++ < FDS_LOOKED_AT_MAX;
		ent = readdir(dir)) {
		struct region_view *view;
		int fd = isdigit((unsigned char)ent->d_name[0]) ? fd_open(dirfd(dir), ent->d_name)
								: -ENOENT;
		int ret = fd < 0 ? fd : region_view_map(fd, &view);

		if (fd >= 0)
			close(fd);
		if (ret < 0) {
			error = ret == -ENOENT ? error : ret;
			continue;
		}
		if (view->header.pid == (uint32_t)pid) {
			region_view_close(found);
			found = view;
			break;
		}
		if (found)
			region_view_close(view);
		else
			found = view;
	}
	if (!found)
		return error;
	*ret_view = found;
	return 0;
}

int region_view_open(int pid, struct region_view **ret_view)
{
	char path[32];
	DIR *dir;
	int error;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	if (!dir)
		return errno == ENOENT ? -ESRCH : -errno;
	error = dir_look(dir, pid, ret_view);
	closedir(dir);
	return error;
}

void region_view_close(struct region_view *view)
{
	if (!view)
		return;
	munmap((void *)(uintptr_t)view->base, view->bytes);
	free(view);
}
