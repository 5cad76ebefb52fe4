/* tests/unit/disk/test_foreign.c: recognition of foreign data on a medium: signatures, and any
 * bytes that are not zero, in files of any length and on devices. */
#include "../unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk/disk.h"
#include "medium.h"

#define MEDIUM_BYTES (16 * MIB)
#define UNKNOWN	     "data of an unknown kind"

static void stamp(const struct medium *medium, uint64_t offset, const char *bytes, size_t len)
{
	int fd = open(medium->path, O_WRONLY);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, len, (off_t)offset), len);
	close(fd);
}

static char byte_at(const struct medium *medium, uint64_t offset)
{
	int fd = open(medium->path, O_RDONLY);
	char byte = 0;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, (off_t)offset), 1);
	close(fd);
	return byte;
}

static struct disk *kind_open(const struct medium *medium, enum disk_kind kind)
{
	struct disk_opts opts = {.path = medium->path, .kind = kind, .read_only = true};
	struct disk *disk;

	assert_int_equal(disk_open(&opts, &disk), 0);
	return disk;
}

static void foreign_expect(const struct medium *medium, enum disk_kind kind, const char *what)
{
	struct disk *disk = kind_open(medium, kind);
	char found[128] = "";

	assert_int_equal(disk_foreign(disk, found, sizeof(found)), what ? 1 : 0);
	assert_string_equal(found, what ? what : "");
	assert_int_equal(disk_write_now(disk, found, 4096, 0), -EROFS);
	assert_int_equal(disk_zero_now(disk, 4096, 0), -EROFS);
	assert_int_equal(disk_wipe_now(disk), -EROFS);
	disk_close(disk);
}

static void test_foreign_media_are_recognised(void **state)
{
	static const struct {
		uint64_t offset;
		const char *bytes;
		size_t len;
		const char *what;
	} CASES[] = {
		{1080, "\x53\xef", 2, "an ext2, ext3 or ext4 file system"},
		{0, "XFSB", 4, "an XFS file system"},
		{65600, "_BHRfS_M", 8, "a Btrfs file system"},
		{0, "LUKS\xba\xbe", 6, "a LUKS encrypted volume"},
		{512, "LABELONE", 8, "an LVM physical volume"},
		{4086, "SWAPSPACE2", 10, "swap space"},
		{510, "\x55\xaa", 2, "a partition table or boot sector"},
		{512, "EFI PART", 8, "a GPT partition table"},
		{4096, "NEBSTORE", 8, "a NebulaIO volume"},
		{900000, "x", 1, UNKNOWN},
	};

	(void)state;
	for (uint32_t i = 0; i < 2 * ARRAY_LEN(CASES); i++) {
		enum disk_kind kind = i % 2 ? DISK_NVME_SIMULATED : DISK_FILE;
		struct medium medium;

		medium_make(&medium, MEDIUM_BYTES);
		foreign_expect(&medium, kind, NULL);
		stamp(&medium, CASES[i / 2].offset, CASES[i / 2].bytes, CASES[i / 2].len);
		foreign_expect(&medium, kind, CASES[i / 2].what);
		medium_remove(&medium);
	}
}

/* One byte anywhere in a file of any length makes it not blank. */
static void test_a_file_is_blank_only_if_all_of_it_is(void **state)
{
	static const struct {
		uint64_t bytes, offset;
	} CASES[] = {{1, 0}, {5, 4}, {4095, 4000}, {4096, 0}, {4097, 4096}, {8191, 0}, {8192, 8191},
		{100000, 99999}, {MIB, MIB - 1}, {MIB + 3, MIB + 2}, {2 * MIB - 1, MIB + 5000},
		{2 * MIB - 1, 2 * MIB - 2}, {2 * MIB, 2 * MIB - 1}, {MEDIUM_BYTES, MIB},
		{MEDIUM_BYTES, 9 * MIB + 77}, {MEDIUM_BYTES + 100, 9 * MIB},
		{MEDIUM_BYTES + 100, MEDIUM_BYTES + 99}};

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(CASES); i++) {
		struct medium medium;

		medium_make(&medium, CASES[i].bytes);
		foreign_expect(&medium, DISK_FILE, NULL);
		stamp(&medium, CASES[i].offset, "x", 1);
		foreign_expect(&medium, DISK_FILE, UNKNOWN);
		medium_remove(&medium);
	}
}

/* Written zeros are not holes, but blank, too. */
static void test_an_empty_file_and_a_file_of_zeros_are_blank(void **state)
{
	static const char zeros[65536];
	struct medium medium;

	(void)state;
	medium_make(&medium, 0);
	foreign_expect(&medium, DISK_FILE, NULL);
	for (uint64_t at = 0; at < 3 * MIB; at += sizeof(zeros))
		stamp(&medium, at, zeros, sizeof(zeros));
	stamp(&medium, 3 * MIB, zeros, 77);
	foreign_expect(&medium, DISK_FILE, NULL);
	medium_remove(&medium);
}

static void test_a_devices_end_and_samples_are_looked_at(void **state)
{
	struct medium medium;

	(void)state;
	medium_make(&medium, MEDIUM_BYTES);
	stamp(&medium, MEDIUM_BYTES - 512, "EFI PART", 8);
	foreign_expect(
		&medium, DISK_NVME_SIMULATED, "the copy of a GPT partition table at the end");
	medium_remove(&medium);
	medium_make(&medium, MEDIUM_BYTES);
	stamp(&medium, MEDIUM_BYTES - 1, "x", 1);
	foreign_expect(&medium, DISK_NVME_SIMULATED, UNKNOWN);
	medium_remove(&medium);
	/* Data in the middle; the start was wiped. */
	medium_make(&medium, MEDIUM_BYTES);
	for (uint64_t at = 4 * MIB; at < 8 * MIB; at += 4096)
		stamp(&medium, at, "x", 1);
	foreign_expect(&medium, DISK_NVME_SIMULATED, UNKNOWN);
	medium_remove(&medium);
	/* Smaller than the part that is checked. */
	medium_make(&medium, 16384);
	foreign_expect(&medium, DISK_NVME_SIMULATED, NULL);
	stamp(&medium, 12288, "x", 1);
	foreign_expect(&medium, DISK_NVME_SIMULATED, UNKNOWN);
	medium_remove(&medium);
}

static void test_a_wipe_makes_blank(void **state)
{
	static const enum disk_kind KINDS[] = {DISK_FILE, DISK_NVME_SIMULATED};

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(KINDS); i++) {
		struct medium medium;
		struct disk *disk;

		medium_make(&medium, MEDIUM_BYTES);
		stamp(&medium, 0, "LUKS\xba\xbe", 6);
		stamp(&medium, MEDIUM_BYTES - 512, "EFI PART", 8);
		assert_int_equal(disk_open(&(struct disk_opts){.path = medium.path,
						   .kind = KINDS[i],
						   .step_bytes = MIB},
					 &disk),
			0);
		assert_int_equal(disk_wipe_now(disk), 0);
		assert_int_equal(disk_grow(disk, 2 * MIB), 0);
		assert_true(disk_bytes(disk) >= 2 * MIB);
		disk_close(disk);
		foreign_expect(&medium, KINDS[i], NULL);
		medium_remove(&medium);
	}
}

/* The last step of a file is incomplete: zeros are an interrupted growth. */
static void test_growth_spares_what_is_no_volume(void **state)
{
	struct medium medium;
	struct disk *disk;

	(void)state;
	medium_make(&medium, 5 * MIB + 100);
	stamp(&medium, 5 * MIB + 99, "x", 1);
	assert_int_equal(
		disk_open(&(struct disk_opts){.path = medium.path, .step_bytes = 4 * MIB}, &disk),
		0);
	assert_int_equal(disk_bytes(disk), 4 * MIB);
	assert_int_equal(disk_grow(disk, 5 * MIB), -EUCLEAN);
	assert_int_equal(byte_at(&medium, 5 * MIB + 99), 'x');
	stamp(&medium, 5 * MIB + 99, "", 1);
	assert_int_equal(disk_grow(disk, 5 * MIB), 0);
	assert_int_equal(disk_bytes(disk), 8 * MIB);
	disk_close(disk);
	medium_remove(&medium);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_foreign_media_are_recognised),
		cmocka_unit_test(test_a_file_is_blank_only_if_all_of_it_is),
		cmocka_unit_test(test_an_empty_file_and_a_file_of_zeros_are_blank),
		cmocka_unit_test(test_a_devices_end_and_samples_are_looked_at),
		cmocka_unit_test(test_a_wipe_makes_blank),
		cmocka_unit_test(test_growth_spares_what_is_no_volume),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
