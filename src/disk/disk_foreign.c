/* disk/disk_foreign.c: what lies on a medium that is not ours, so that nothing of somebody
 * else's is overwritten unasked. Reads the first MiB and the last. */
#include "disk/disk_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct signature {
	uint32_t offset;
	uint8_t len;
	const char *bytes;
	const char *name;
};

/* The most telling first: a disk may have several. */
static const struct signature FRONT[] = {
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

static const char *front_find(const uint8_t *data)
{
	for (size_t i = 0; i < ARRAY_LEN(FRONT); i++)
		if (memcmp(data + FRONT[i].offset, FRONT[i].bytes, FRONT[i].len) == 0)
			return FRONT[i].name;
	return all_zero(data, DISK_LABEL_BYTES) ? NULL : "data of a kind that we do not know";
}

/* Only signatures count here: what somebody once wrote to the middle of a disk, its end is too. */
static const char *back_find(const uint8_t *data)
{
	for (size_t i = 0; i < ARRAY_LEN(BACK); i++)
		if (memcmp(data + DISK_LABEL_BYTES - BACK[i].offset, BACK[i].bytes, BACK[i].len) ==
			0)
			return BACK[i].name;
	return NULL;
}

int disk_foreign(struct disk *disk, char *ret_what, size_t what_cap)
{
	uint64_t bytes = ALIGN_DOWN(disk->medium_bytes, 512ull);
	const char *found = NULL;
	void *data;
	int ret;

	if (bytes < 2 * DISK_LABEL_BYTES)
		return 0;
	if (posix_memalign(&data, DISK_ALIGN_BYTES, DISK_LABEL_BYTES))
		return -ENOMEM;
	ret = disk_read_now(disk, data, DISK_LABEL_BYTES, 0);
	if (!ret)
		found = front_find((const uint8_t *)data);
	if (!ret && !found) {
		ret = disk_read_now(disk, data, DISK_LABEL_BYTES, bytes - DISK_LABEL_BYTES);
		if (!ret)
			found = back_find((const uint8_t *)data);
	}
	free(data);
	if (ret || !found)
		return ret;
	snprintf(ret_what, what_cap, "%s", found);
	return 1;
}
