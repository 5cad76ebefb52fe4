/* disk/disk_foreign.c: looks for foreign data on a medium, so that it is not overwritten without
 * permission. A file is read to its end, except its holes; a device is read in its first MiB, its
 * last MiB, and at samples between them. */
#include "disk/disk_joined.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAMPLES	     64u
#define SAMPLE_BYTES (64 * KIB)

#define UNKNOWN_DATA "data of an unknown kind"

struct signature {
	uint32_t offset;
	uint8_t len;
	const char *bytes;
	const char *name;
};

/* The most specific signature first, because a disk may have several. */
static const struct signature FRONT[] = {
	{0, 8, "NEBAPART", "the log or the bodies of a NebulaIO store that keeps them apart"},
	{0, 8, "NEBSTORE", "a NebulaIO volume"},
	{4096, 8, "NEBSTORE", "a NebulaIO volume"},
	{0, 6, "LUKS\xba\xbe", "a LUKS encrypted volume"},
	{512, 8, "LABELONE", "an LVM physical volume"},
	{0, 8, "LABELONE", "an LVM physical volume"},
	{0, 4, "XFSB", "an XFS file system"},
	{0x10040, 8, "_BHRfS_M", "a Btrfs file system"},
	{4086, 10, "SWAPSPACE2", "swap space"},
	{4096, 4, "\xfc\x4e\x2b\xa9", "a member of a Linux RAID"},
	{0, 4, "\xfc\x4e\x2b\xa9", "a member of a Linux RAID"},
	{0, 22, "bluestore block device", "a Ceph BlueStore device"},
	{0x400, 4, "\x10\x20\xf5\xf2", "an F2FS file system"},
	{0, 4, "hsqs", "a SquashFS image"},
	{0x8001, 5, "CD001", "an ISO 9660 image"},
	{4096 + 24, 16, "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
		"a bcache device"},
	{3, 8, "NTFS    ", "an NTFS file system"},
	{3, 8, "EXFAT   ", "an exFAT file system"},
	{82, 5, "FAT32", "a FAT file system"},
	{54, 3, "FAT", "a FAT file system"},
	{1024 + 56, 2, "\x53\xef", "an ext2, ext3 or ext4 file system"},
	{512, 8, "EFI PART", "a GPT partition table"},
	{4096, 8, "EFI PART", "a GPT partition table"},
	{0x20000, 8, "\x0c\xb1\xba\x00\0\0\0\0", "a ZFS pool"},
	{510, 2, "\x55\xaa", "a partition table or boot sector"},
};

/* Counted from the end of the medium; at whole blocks of either size. */
static const struct signature BACK[] = {
	{512, 8, "EFI PART", "the copy of a GPT partition table at the end"},
	{4096, 8, "EFI PART", "the copy of a GPT partition table at the end"},
	{8192, 4, "\xfc\x4e\x2b\xa9", "a member of a Linux RAID"},
	{65536, 4, "\xfc\x4e\x2b\xa9", "a member of a Linux RAID"},
};

static bool all_zero(const uint8_t *data, size_t len)
{
	return len == 0 || (data[0] == 0 && memcmp(data, data + 1, len - 1) == 0);
}

/* data: the first MiB, with zeros behind a shorter medium. */
static const char *front_find(const uint8_t *data)
{
	for (size_t i = 0; i < ARRAY_LEN(FRONT); i++)
		if (memcmp(data + FRONT[i].offset, FRONT[i].bytes, FRONT[i].len) == 0)
			return FRONT[i].name;
	return all_zero(data, DISK_LABEL_BYTES) ? NULL : UNKNOWN_DATA;
}

/* data: the last MiB, with zeros before a shorter medium. */
static const char *back_find(const uint8_t *data)
{
	for (size_t i = 0; i < ARRAY_LEN(BACK); i++)
		if (memcmp(data + DISK_LABEL_BYTES - BACK[i].offset, BACK[i].bytes, BACK[i].len) ==
			0)
			return BACK[i].name;
	return all_zero(data, DISK_LABEL_BYTES) ? NULL : UNKNOWN_DATA;
}

/* ---- Reading. ---- */

struct look {
	struct disk *disk;
	uint8_t *data;	/* DISK_LABEL_BYTES */
	uint64_t bytes; /* how much of the medium can be read */
	const char *found;
};

/* Reads so many bytes, which the medium has, from a multiple of DISK_ALIGN_BYTES on. */
static int medium_read(struct disk *disk, uint8_t *data, uint64_t rest, uint64_t offset)
{
	if (!rest)
		return 0;
	if (!disk_is_file(disk))
		return disk_read_now(disk, data, rest, offset);
	/* O_DIRECT wants whole blocks, and reads less where the file ends within one. */
	for (uint64_t at = 0; at < rest;) {
		ssize_t count = pread(disk->fd, data + at, ALIGN_UP(rest - at, DISK_ALIGN_BYTES),
			(off_t)(offset + at));

		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0)
			return -errno;
		if (count == 0 || (count % DISK_ALIGN_BYTES && at + (uint64_t)count < rest))
			return -EIO; /* it became shorter */
		at += (uint64_t)count;
	}
	return 0;
}

/* Up to the end, which need not be a multiple of DISK_ALIGN_BYTES; zeros after that. */
static int look_read(struct look *look, uint64_t offset, uint64_t bytes)
{
	memset(look->data, 0, DISK_LABEL_BYTES);
	return medium_read(look->disk, look->data, MIN(bytes, look->bytes - offset), offset);
}

/* The next byte from here on that is not in a file's hole; the end if there is none. */
static uint64_t data_next(const struct look *look, uint64_t from)
{
	off_t next;

	if (!disk_is_file(look->disk))
		return from;
	next = lseek(look->disk->fd, (off_t)from, SEEK_DATA);
	if (next < 0)
		return errno == ENXIO ? look->bytes : from;
	return MAX(from, ALIGN_DOWN((uint64_t)next, (uint64_t)DISK_ALIGN_BYTES));
}

static int all_look(struct look *look, uint64_t from)
{
	int ret = 0;

	while (!ret && !look->found && (from = data_next(look, from)) < look->bytes) {
		ret = look_read(look, from, DISK_LABEL_BYTES);
		if (!ret && !all_zero(look->data, DISK_LABEL_BYTES))
			look->found = UNKNOWN_DATA;
		from += DISK_LABEL_BYTES;
	}
	return ret;
}

/* A device cannot be read as a whole: it would take hours. */
static int samples_look(struct look *look)
{
	uint64_t stride = look->bytes / (SAMPLES + 1);
	int ret = 0;

	for (uint32_t i = 1; i <= SAMPLES && !ret && !look->found; i++) {
		uint64_t at = ALIGN_DOWN(stride * i, (uint64_t)DISK_ALIGN_BYTES);

		if (at >= look->bytes)
			break;
		ret = look_read(look, at, SAMPLE_BYTES);
		if (!ret && !all_zero(look->data, SAMPLE_BYTES))
			look->found = UNKNOWN_DATA;
	}
	return ret;
}

static int front_look(struct look *look)
{
	int ret = look_read(look, 0, DISK_LABEL_BYTES);

	if (!ret)
		look->found = front_find(look->data);
	return ret;
}

static int back_look(struct look *look)
{
	uint64_t last = MIN(look->bytes, DISK_LABEL_BYTES);
	int ret = last ? disk_read_now(look->disk, look->data + DISK_LABEL_BYTES - last, last,
				 look->bytes - last)
		       : 0;

	memset(look->data, 0, DISK_LABEL_BYTES - last);
	if (!ret)
		look->found = back_find(look->data);
	return ret;
}

/* A file's exact length; a device's length in its own blocks; the served part of another host's
 * volume, because that host looks at the rest before it grows the volume. */
static uint64_t bytes_readable(const struct disk *disk)
{
	if (disk_is_file(disk))
		return disk_medium_bytes(disk);
	if (disk->driver || disk->joined)
		return disk_bytes(disk);
	return ALIGN_DOWN(disk_medium_bytes(disk), (uint64_t)disk_align(disk));
}

int disk_peek_now(struct disk *disk, void *data, uint64_t bytes, uint64_t offset)
{
	uint64_t end = bytes_readable(disk);

	disk_check(disk);
	CHECK(bytes % DISK_ALIGN_BYTES == 0 && offset % DISK_ALIGN_BYTES == 0);
	memset(data, 0, bytes);
	return medium_read(disk, (uint8_t *)data, MIN(bytes, end - MIN(end, offset)), offset);
}

static int parts_foreign(const struct joined *joined, char *ret_what, size_t what_cap)
{
	char what[128];
	int ret = 0;

	for (uint32_t i = 0; i < JOINED_PARTS && !ret; i++) {
		ret = disk_foreign(joined->parts[i], what, sizeof(what));
		if (ret == 1)
			snprintf(ret_what, what_cap, "%s (%.80s)", what, joined->parts[i]->path);
	}
	return ret;
}

int disk_foreign(struct disk *disk, char *ret_what, size_t what_cap)
{
	struct look look = {.disk = disk, .bytes = bytes_readable(disk)};
	void *data;
	int ret;

	if (disk->joined && !disk->joined->labelled)
		return parts_foreign(disk->joined, ret_what, what_cap);
	if (posix_memalign(&data, DISK_ALIGN_BYTES, DISK_LABEL_BYTES))
		return -ENOMEM;
	look.data = (uint8_t *)data;
	ret = front_look(&look);
	if (!ret && !look.found && disk_can_grow(disk)) {
		ret = all_look(&look, DISK_LABEL_BYTES);
	} else if (!ret && !look.found) {
		ret = back_look(&look);
		if (!ret && !look.found)
			ret = samples_look(&look);
	}
	free(data);
	if (ret || !look.found)
		return ret;
	snprintf(ret_what, what_cap, "%s", look.found);
	return 1;
}

bool disk_file_blank(struct disk *disk, uint64_t from, uint64_t to)
{
	struct look look = {.disk = disk, .bytes = to};
	void *data;
	int ret;

	if (posix_memalign(&data, DISK_ALIGN_BYTES, DISK_LABEL_BYTES))
		return false;
	look.data = (uint8_t *)data;
	ret = all_look(&look, from);
	free(data);
	return !ret && !look.found;
}

static int file_wipe(struct disk *disk)
{
	if (ftruncate(disk->fd, 0) || fsync(disk->fd))
		return -errno;
	disk->medium_bytes = 0;
	atomic_store_explicit(&disk->bytes, 0, memory_order_release);
	return 0;
}

static int parts_wipe(struct disk *disk)
{
	struct joined *joined = disk->joined;
	int ret = disk_wipe_now(joined->parts[JOINED_LOG]);

	joined->labelled = false;
	atomic_store(&disk->bytes, 0);
	return ret ? ret : disk_wipe_now(joined->parts[JOINED_BODIES]);
}

int disk_wipe_now(struct disk *disk)
{
	uint64_t end = ALIGN_DOWN(disk->driver ? disk_bytes(disk) : disk_medium_bytes(disk),
		(uint64_t)DISK_ALIGN_BYTES);
	int ret;

	if (disk->read_only)
		return -EROFS;
	if (disk->joined)
		return parts_wipe(disk);
	if (disk_is_file(disk))
		return file_wipe(disk);
	if (!end)
		return 0;
	ret = disk_zero_now(disk, MIN(end, DISK_LABEL_BYTES), 0);
	if (!ret && end > DISK_LABEL_BYTES)
		ret = disk_zero_now(disk, DISK_LABEL_BYTES, end - DISK_LABEL_BYTES);
	return ret ? ret : disk_flush_now(disk);
}
