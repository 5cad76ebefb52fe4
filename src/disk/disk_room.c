/* disk/disk_room.c: how far volumes that are files may grow, by the file systems that they are on.
 */
#include "disk/disk_array.h"
#include "disk/disk_joined.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

/* The file that grows on this host; NULL: a device, or a volume of another host. */
static const struct disk *file_of(const struct disk *disk)
{
	if (disk->joined)
		return file_of(disk->joined->parts[JOINED_BODIES]);
	return disk->ops == &DISK_FILE_OPS || disk->ops == &DISK_DAX_FILE_OPS ? disk : NULL;
}

/* False: not known. */
static bool file_system_of(const struct disk *file, dev_t *ret_dev)
{
	struct stat st;

	if (fstat(file->fd, &st))
		return false;
	*ret_dev = st.st_dev;
	return true;
}

static uint64_t file_room(const struct disk *file, uint64_t reserve_bytes)
{
	struct statvfs st;
	uint64_t free_bytes;

	if (fstatvfs(file->fd, &st))
		return UINT64_MAX;
	free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
	return free_bytes - MIN(free_bytes, reserve_bytes);
}

/* Files on one file system grow by its room together. */
static uint64_t array_room(const struct array *array, uint64_t reserve_bytes)
{
	const struct disk *files[DISK_MEMBERS_MAX];
	dev_t devs[DISK_MEMBERS_MAX];
	uint64_t least = UINT64_MAX;
	uint32_t count = 0;

	for (uint32_t i = 0; i < DISK_MEMBERS_MAX; i++) {
		files[count] = array_writable(array, i) ? file_of(array->members[i].disk) : NULL;
		if (files[count] && file_system_of(files[count], &devs[count]))
			count++;
	}
	for (uint32_t i = 0; i < count; i++) {
		uint32_t sharing = 0;

		for (uint32_t j = 0; j < count; j++)
			sharing += devs[j] == devs[i];
		least = MIN(least, file_room(files[i], reserve_bytes) / sharing);
	}
	return least;
}

uint64_t disk_room(const struct disk *disk, uint64_t reserve_bytes)
{
	const struct disk *file;

	disk_check(disk);
	if (disk->array)
		return array_room(disk->array, reserve_bytes);
	file = file_of(disk);
	return file ? file_room(file, reserve_bytes) : UINT64_MAX;
}

int disk_room_check(const struct disk *disk, uint64_t bytes_total, uint64_t reserve_bytes)
{
	uint64_t bytes = disk_bytes(disk), room;

	if (bytes_total <= bytes || !disk_can_grow(disk))
		return 0;
	room = disk_room(disk, reserve_bytes);
	/* A number from outside may be too large to be rounded up. */
	return bytes_total - bytes > room || ALIGN_UP(bytes_total - bytes, disk->step_bytes) > room
		       ? -ENOSPC
		       : 0;
}
