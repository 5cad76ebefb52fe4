/* disk/disk_dax.c: opens persistent memory: a whole device (/dev/daxX.Y) or a file on a file system
 * that maps its files to it. May block; the copies are in disk_dax_dp.c. */
#include "disk/disk_dax.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/file.h"

#ifndef MAP_SYNC
#define MAP_SYNC 0x80000
#endif
#ifndef MAP_SHARED_VALIDATE
#define MAP_SHARED_VALIDATE 0x03
#endif

/* A mapping that begins at such an address can use large pages. */
#define HUGE_BYTES (2 * MIB)

/* ---- What sysfs says of a device. ---- */

static bool device_folder(dev_t device, char ret_path[PATH_MAX])
{
	char link[64];

	snprintf(link, sizeof(link), "/sys/dev/char/%u:%u", major(device), minor(device));
	return realpath(link, ret_path) != NULL;
}

bool dax_is_device(dev_t device)
{
	char folder[PATH_MAX], link[PATH_MAX + 16], target[512];
	const char *last;
	ssize_t len;

	if (!device_folder(device, folder))
		return false;
	snprintf(link, sizeof(link), "%s/subsystem", folder);
	len = readlink(link, target, sizeof(target) - 1);
	if (len < 0)
		return false;
	target[len] = '\0';
	last = strrchr(target, '/');
	return last && strcmp(last + 1, "dax") == 0;
}

static uint64_t folder_number(const char *folder, const char *name)
{
	char path[PATH_MAX + 64], text[64];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return file_line(path, text, sizeof(text)) ? strtoull(text, NULL, 0) : 0;
}

/* Only memory behind a bus of NVDIMMs keeps its contents; a device of other memory (a CXL card's,
 * or set apart by the firmware) does not. */
static int device_persists(const struct disk *disk, const char *folder, char ret_domain[64])
{
	const char *bus = strstr(folder, "/ndbus");
	const char *region = bus ? strstr(bus, "/region") : NULL;
	const char *end = region ? strchr(region + 1, '/') : NULL;
	char path[PATH_MAX + 64];

	if (!end) {
		log_error("disk",
			"%s: this memory loses its contents when the power fails, so no data can "
			"be kept there: let the kernel use it (daxctl reconfigure-device "
			"--mode=system-ram), and name its node in numa.memory_node",
			disk->path);
		return -EOPNOTSUPP;
	}
	snprintf(path, sizeof(path), "%.*s/persistence_domain", (int)(end - folder), folder);
	if (file_line(path, ret_domain, 64) && ret_domain[0])
		return 0;
	snprintf(ret_domain, 64, "unknown");
	log_warn("disk",
		"%s: the platform does not say which of its buffers reach the memory when the "
		"power fails (%s is empty): acknowledged changes may be lost then",
		disk->path, path);
	return 0;
}

/* The node's lock does not hold against another node of the same device, in a container; the file
 * in sysfs is the same for all of them that share a network namespace. */
static int device_claim(struct disk *disk, const struct disk_opts *opts, const char *folder)
{
	char path[PATH_MAX + 8];
	int ret = disk_lock(disk, disk->fd, opts->lock_wait_ns);

	if (ret)
		return ret;
	snprintf(path, sizeof(path), "%s/dev", folder);
	disk->dax->claim_fd = open(path, O_RDONLY | O_CLOEXEC);
	return disk->dax->claim_fd < 0 ? 0
				       : disk_lock(disk, disk->dax->claim_fd, opts->lock_wait_ns);
}

/* ---- Opening. ---- */

static int dax_alloc(struct disk *disk)
{
	disk->dax = (struct dax *)calloc(1, sizeof(*disk->dax));
	if (!disk->dax)
		return -ENOMEM;
	disk->dax->claim_fd = -1;
	disk->dax->flush = dax_flush_best();
	disk->sector_bytes = 512;
	dax_guard_install();
	return 0;
}

static int guard_add(struct disk *disk)
{
	if (dax_guard_add(disk->dax))
		return 0;
	log_error("disk", "%s: too many volumes in persistent memory are open", disk->path);
	return -EMFILE;
}

static int device_map(struct disk *disk, uint64_t bytes)
{
	int prot = disk->read_only ? PROT_READ : PROT_READ | PROT_WRITE;
	void *base = mmap(NULL, bytes, prot, MAP_SHARED_VALIDATE | MAP_SYNC, disk->fd, 0);

	if (base == MAP_FAILED)
		return -errno;
	disk->dax->reservation = (uint8_t *)base;
	disk->dax->reservation_bytes = bytes;
	disk->dax->base = (uint8_t *)base;
	disk->dax->reserved = bytes;
	return guard_add(disk);
}

static int device_open(struct disk *disk, const struct disk_opts *opts)
{
	char folder[PATH_MAX], domain[64];
	uint64_t bytes, align;
	struct stat st;
	int ret = dax_alloc(disk);

	if (ret)
		return ret;
	disk->fd = open(disk->path, (disk->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
	if (disk->fd < 0 || fstat(disk->fd, &st))
		return -errno;
	if (!device_folder(st.st_rdev, folder))
		return -ENODEV;
	if (disk->dax->flush == DAX_MSYNC) {
		log_error("disk",
			"%s: this program does not know how this processor writes its caches to "
			"memory: use a file on the memory's file system",
			disk->path);
		return -EOPNOTSUPP;
	}
	ret = device_persists(disk, folder, domain);
	if (!ret && !disk->read_only)
		ret = device_claim(disk, opts, folder);
	if (ret)
		return ret;
	bytes = folder_number(folder, "size");
	align = folder_number(folder, "align");
	ret = bytes ? device_map(disk, bytes) : -ENODEV;
	if (ret)
		return ret;
	disk->medium_bytes = bytes;
	atomic_store(&disk->bytes, ALIGN_DOWN(bytes, MIB));
	snprintf(disk->what, sizeof(disk->what),
		"persistent memory, %llu MiB, pages of %llu KiB, domain of persistence: %s",
		(unsigned long long)(bytes / MIB), (unsigned long long)(align / KIB), domain);
	return 0;
}

const char *dax_file_path(const char *path)
{
	size_t len = strlen(DISK_DAX_SCHEME);

	return strncmp(path, DISK_DAX_SCHEME, len) == 0 ? path + len : path;
}

/* Maps the file's bytes [from, to) at their place. */
static int file_map(struct disk *disk, uint64_t from, uint64_t to)
{
	int prot = disk->read_only ? PROT_READ : PROT_READ | PROT_WRITE;
	int flags = dax_domain_wanted() ? MAP_SHARED : MAP_SHARED_VALIDATE | MAP_SYNC;

	from = ALIGN_DOWN(from, HUGE_BYTES);
	if (to <= from)
		return 0;
	if (to > disk->dax->reserved)
		return -ENOSPC;
	if (mmap(disk->dax->base + from, to - from, prot, flags | MAP_FIXED, disk->fd,
		    (off_t)from) != MAP_FAILED)
		return 0;
	return -errno;
}

/* Address space for all that the file system can hold, so that the mapping never moves. */
static int file_reserve(struct disk *disk, uint64_t file_bytes)
{
	struct dax *dax = disk->dax;
	struct statvfs fs;
	void *base;

	if (fstatvfs(disk->fd, &fs))
		return -errno;
	dax->reserved = ALIGN_UP(
		MAX((uint64_t)fs.f_blocks * fs.f_frsize, file_bytes) + HUGE_BYTES, HUGE_BYTES);
	dax->reservation_bytes = dax->reserved + HUGE_BYTES;
	base = mmap(NULL, dax->reservation_bytes, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return -ENOMEM;
	dax->reservation = (uint8_t *)base;
	dax->base = (uint8_t *)ALIGN_UP((uintptr_t)base, HUGE_BYTES);
	return guard_add(disk);
}

/* Tries before anything is written whether the file system maps this file to its memory. */
static int file_try(const struct disk *disk)
{
	void *page;

	if (dax_domain_wanted())
		return 0;
	page = mmap(NULL, FRAME_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC,
		disk->fd, 0);
	if (page != MAP_FAILED) {
		munmap(page, FRAME_BYTES);
		return 0;
	}
	log_error("disk",
		"%s: its file system does not map files to persistent memory (%s): mount ext4 or "
		"XFS on /dev/pmemN with -o dax=always, or name the file without dax:// to use it "
		"like any other",
		disk->path, strerror(errno));
	return -EOPNOTSUPP;
}

static int file_node_open(struct disk *disk, const struct disk_opts *opts)
{
	const char *path = dax_file_path(disk->path);
	int flags = (disk->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC;
	bool made = false;
	struct stat st;
	int ret;

	disk->fd = open(path, flags);
	if (disk->fd < 0 && errno == ENOENT && opts->create && !disk->read_only) {
		disk->fd = open(path, flags | O_CREAT, 0600);
		made = disk->fd >= 0;
	}
	if (disk->fd < 0 || fstat(disk->fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode)) {
		log_error("disk", "%s: not a file; a device has no dax:// before its path",
			disk->path);
		return -EINVAL;
	}
	if (disk->read_only)
		return 0;
	ret = disk_lock(disk, disk->fd, opts->lock_wait_ns);
	if (!ret)
		ret = file_try(disk);
	if (ret && made)
		unlink(path);
	/* It was just created, or its creation was cut short. */
	return !ret && !st.st_size ? file_parent_sync(path) : ret;
}

static int file_open(struct disk *disk, const struct disk_opts *opts)
{
	struct stat st;
	uint64_t bytes;
	int ret = dax_alloc(disk);

	if (!ret)
		ret = file_node_open(disk, opts);
	if (ret)
		return ret;
	if (fstat(disk->fd, &st))
		return -errno;
	bytes = (uint64_t)st.st_size / disk->step_bytes * disk->step_bytes;
	disk->medium_bytes = (uint64_t)st.st_size;
	ret = file_reserve(disk, (uint64_t)st.st_size);
	if (!ret)
		ret = file_map(disk, 0, bytes);
	if (!ret && !disk->read_only)
		ret = dax_domain_open(dax_file_path(disk->path), &disk->dax->domain);
	if (ret)
		return ret;
	atomic_store(&disk->bytes, bytes);
	snprintf(disk->what, sizeof(disk->what), "file in persistent memory%s",
		disk->dax->flush == DAX_MSYNC ? ", flushed by the kernel" : "");
	return 0;
}

/* The new bytes are mapped before disk_file_grow() announces them to other threads. */
static int file_grow(struct disk *disk, uint64_t bytes_total)
{
	int ret = file_map(disk, disk_bytes(disk), ALIGN_UP(bytes_total, disk->step_bytes));

	return ret ? ret : disk_file_grow(disk, bytes_total);
}

static void dax_close(struct disk *disk)
{
	struct dax *dax = disk->dax;

	if (dax) {
		dax_domain_close(dax->domain);
		if (dax->base)
			dax_guard_remove(dax);
		if (dax->reservation)
			munmap(dax->reservation, dax->reservation_bytes);
		if (dax->claim_fd >= 0)
			close(dax->claim_fd);
		free(dax);
		disk->dax = NULL;
	}
	disk_fd_close(disk);
}

static int device_grow(struct disk *disk, uint64_t bytes_total)
{
	(void)disk;
	(void)bytes_total;
	return -ENOSPC;
}

/* The arenas need no registration. */
static int dax_attach(struct disk *disk, struct disk_core *core)
{
	(void)disk;
	(void)core;
	return 0;
}

static int dax_read_now(struct disk *disk, void *data, uint64_t bytes, uint64_t offset)
{
	return dax_read(disk, data, bytes, offset);
}

/* Every write was durable when it returned. */
static int dax_flush_now(struct disk *disk)
{
	(void)disk;
	return 0;
}

const struct disk_ops DISK_DAX_OPS = {
	.name = "persistent memory",
	.open = device_open,
	.close = dax_close,
	.attach = dax_attach,
	.detach = disk_detach_plain,
	.issue = dax_issue,
	.grow = device_grow,
	.read_now = dax_read_now,
	.write_now = dax_write,
	.flush_now = dax_flush_now,
	.zero_now = dax_zero,
	.can_grow = false,
};

const struct disk_ops DISK_DAX_FILE_OPS = {
	.name = "file in persistent memory",
	.open = file_open,
	.close = dax_close,
	.attach = dax_attach,
	.detach = disk_detach_plain,
	.issue = dax_issue,
	.grow = file_grow,
	.read_now = dax_read_now,
	.write_now = dax_write,
	.flush_now = dax_flush_now,
	.zero_now = dax_zero,
	.can_grow = true,
};
