/* disk/disk_file.c: a volume that is a file: created, grown by prewritten steps; and blocking
 * access through a file descriptor, which block devices share. May block. */
#include "disk/disk_dax.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

#define ZERO_BYTES (1 * MIB)

DEFINE_COUNTER(grown_bytes, "nebulaio_disk_grown_bytes_total", NULL,
	"Bytes that were added to volumes and prewritten.");

/* O_DIRECT where it is offered: some file systems refuse it at open. */
static int file_node_open(struct disk *disk, bool create)
{
	int flags = (disk->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | (create ? O_CREAT : 0);
	int fd = open(disk->path, flags | O_DIRECT, 0600);

	disk->direct = fd >= 0;
	if (fd < 0 && errno == EINVAL)
		fd = open(disk->path, flags, 0600);
	if (fd < 0)
		return -errno;
	disk->fd = fd;
	if (!disk->direct)
		log_info("disk",
			"%s: the file system has no O_DIRECT; going through the page cache",
			disk->path);
	return 0;
}

/* 0: not known. */
static uint32_t file_align(const struct disk *disk)
{
	struct statx stx;

	if (!disk->direct)
		return 512;
	if (statx(disk->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) ||
		!(stx.stx_mask & STATX_DIOALIGN) || !stx.stx_dio_offset_align)
		return 0;
	return MAX(MAX(stx.stx_dio_offset_align, stx.stx_dio_mem_align), 512u);
}

static int file_open(struct disk *disk, const struct disk_opts *opts)
{
	struct stat st;
	int ret = file_node_open(disk, opts->create);

	if (!ret && !disk->read_only)
		ret = disk_lock(disk, disk->fd, opts->lock_wait_ns);
	if (ret)
		return ret;
	if (fstat(disk->fd, &st))
		return -errno;
	/* It was just created, or its creation was cut short. */
	if (!st.st_size && !disk->read_only)
		ret = file_parent_sync(disk->path);
	if (ret)
		return ret;
	disk->medium_bytes = (uint64_t)st.st_size;
	/* A growth that was cut short left part of a step: it is written again when needed. */
	atomic_store(&disk->bytes, (uint64_t)st.st_size / disk->step_bytes * disk->step_bytes);
	disk->sector_bytes = file_align(disk);
	atomic_store(&disk->discards, opts->discard_files);
	snprintf(disk->what, sizeof(disk->what), "file%s", disk->direct ? "" : ", not O_DIRECT");
	return 0;
}

bool disk_is_file(const struct disk *disk)
{
	return disk->ops == &DISK_FILE_OPS || disk->ops == &DISK_DAX_FILE_OPS;
}

void disk_fd_close(struct disk *disk)
{
	if (disk->fd >= 0)
		close(disk->fd);
}

static int write_whole(int fd, const char *data, uint64_t bytes, uint64_t offset)
{
	while (bytes) {
		ssize_t count = pwrite(fd, data, bytes, (off_t)offset);

		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0)
			return -errno;
		if (count == 0)
			return -EIO;
		data += count;
		offset += (uint64_t)count;
		bytes -= (uint64_t)count;
	}
	return 0;
}

/* Zeros over [from, to), in order, so that a file's size never runs ahead of what was written. */
static int zeros_write(struct disk *disk, uint64_t from, uint64_t to)
{
	void *zeros;
	int ret = 0;

	if (posix_memalign(&zeros, DISK_ALIGN_BYTES, ZERO_BYTES))
		return -ENOMEM;
	memset(zeros, 0, ZERO_BYTES);
	for (uint64_t at = from; at < to && !ret; at += ZERO_BYTES)
		ret = write_whole(disk->fd, (const char *)zeros, MIN(ZERO_BYTES, to - at), at);
	free(zeros);
	return ret;
}

/* A growth that was cut short left zeros. Any other data in the last step must not be overwritten:
 * the file is no volume, or a volume with another step. */
static int tail_check(struct disk *disk, uint64_t from)
{
	struct stat st;

	if (fstat(disk->fd, &st))
		return -errno;
	if ((uint64_t)st.st_size <= from || disk_file_blank(disk, from, (uint64_t)st.st_size))
		return 0;
	log_error("disk",
		"%s: the file's length (%llu bytes) is no multiple of %llu MiB and its end holds "
		"data: it is not a volume of this kind: not changed",
		disk->path, (unsigned long long)st.st_size,
		(unsigned long long)(disk->step_bytes / MIB));
	return -EUCLEAN;
}

int disk_file_grow(struct disk *disk, uint64_t bytes_total)
{
	uint64_t from = disk_bytes(disk);
	uint64_t to = (bytes_total + disk->step_bytes - 1) / disk->step_bytes * disk->step_bytes;
	int ret = tail_check(disk, from);

	if (ret)
		return ret;
	if (disk->faults.enospc_at && to > disk->faults.enospc_at)
		return -ENOSPC;
	/* Reserves the space first, so that a refusal comes before anything is written. */
	if (fallocate(disk->fd, FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(to - from)) &&
		errno != EOPNOTSUPP && errno != ENOSYS)
		ret = -errno;
	if (!ret)
		ret = zeros_write(disk, from, to);
	if (!ret && fsync(disk->fd))
		ret = -errno;
	if (ret) {
		if (ret == -EDQUOT || ret == -EFBIG)
			ret = -ENOSPC;
		if (ftruncate(disk->fd, (off_t)from))
			log_warn("disk", "%s: cannot undo a failed growth: %s", disk->path,
				strerror(errno));
		return ret;
	}
	counter_add(&grown_bytes, to - from);
	atomic_store_explicit(&disk->bytes, to, memory_order_release);
	return 0;
}

/* ---- The way back. ---- */

bool disk_file_absent(const char *path)
{
	struct stat st;

	return !strstr(dax_file_path(path), "://") && stat(dax_file_path(path), &st) &&
	       errno == ENOENT;
}

int disk_shrink_now(struct disk *disk, uint64_t bytes)
{
	int ret = 0;

	disk_check(disk);
	if (!disk_is_file(disk) || disk->read_only)
		return 0;
	pthread_mutex_lock(&disk->grow_lock);
	if (ftruncate(disk->fd, (off_t)bytes) || fsync(disk->fd)) {
		ret = -errno;
	} else {
		disk->medium_bytes = bytes;
		atomic_store_explicit(&disk->bytes, bytes / disk->step_bytes * disk->step_bytes,
			memory_order_release);
	}
	pthread_mutex_unlock(&disk->grow_lock);
	return ret;
}

/* Removes no other file that has the name meanwhile. The name may be a link's. */
int disk_remove_now(struct disk *disk)
{
	struct stat own, named;
	char *path;
	int ret = 0;

	disk_check(disk);
	if (!disk_is_file(disk) || disk->read_only)
		return 0;
	path = realpath(dax_file_path(disk->path), NULL);
	if (!path)
		return errno == ENOENT ? 0 : -errno;
	if (fstat(disk->fd, &own) || stat(path, &named) ||
		(own.st_dev == named.st_dev && own.st_ino == named.st_ino && unlink(path)))
		ret = -errno;
	free(path);
	return ret;
}

int disk_fd_read_now(struct disk *disk, void *data, uint64_t bytes, uint64_t offset)
{
	char *at = (char *)data;

	while (bytes) {
		ssize_t count = pread(disk->fd, at, bytes, (off_t)offset);

		if (count < 0 && errno == EINTR)
			continue;
		if (count <= 0)
			return count < 0 ? -errno : -EIO;
		at += count;
		offset += (uint64_t)count;
		bytes -= (uint64_t)count;
	}
	return 0;
}

int disk_fd_write_now(struct disk *disk, const void *data, uint64_t bytes, uint64_t offset)
{
	return write_whole(disk->fd, (const char *)data, bytes, offset);
}

int disk_fd_flush_now(struct disk *disk)
{
	return fdatasync(disk->fd) ? -errno : 0;
}

int disk_fd_zero_now(struct disk *disk, uint64_t bytes, uint64_t offset)
{
	if (fallocate(disk->fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
		    (off_t)bytes) == 0)
		return 0;
	return zeros_write(disk, offset, offset + bytes);
}

const struct disk_ops DISK_FILE_OPS = {
	.name = "file",
	.open = file_open,
	.close = disk_fd_close,
	.attach = disk_attach_plain,
	.detach = disk_detach_plain,
	.issue = disk_fd_issue,
	.grow = disk_file_grow,
	.read_now = disk_fd_read_now,
	.write_now = disk_fd_write_now,
	.flush_now = disk_fd_flush_now,
	.zero_now = disk_fd_zero_now,
	.can_grow = true,
};
