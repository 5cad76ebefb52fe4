/* tests/unit/store/test_salvage.c: a log that is damaged before its end: the start refuses it and
 * names the remedy; a salvage gives up only the damaged groups; the true end of a log is still
 * accepted as its end. */
#include "memory_disk.h"
#include "rig.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/store_priv.h"

#define LOG_BYTES   (256 * KIB)
#define IMAGE_BYTES (16 * MIB)
#define DISKS_MAX   3u
#define HEADERS	    9000u /* headers for a group of three blocks */
#define PUTS	    7u
#define GROUPS_MAX  64u

/* ---- A store after a loss of power: its volume in memory, and a copy of its directory. ---- */

struct medium {
	struct rig rig;
	uint32_t disk_count;
	uint8_t *volume; /* IMAGE_BYTES of each */
	char kept[600];	 /* the directory's copy */
};

static void shell(const char *format, const char *a, const char *b)
{
	char command[2048];

	snprintf(command, sizeof(command), format, a, b);
	assert_int_equal(system(command), 0);
}

static void dir_copy(const char *from, const char *to)
{
	shell("rm -rf '%s' '%s'", to, to);
	shell("cp -r '%s' '%s'", from, to);
}

static void image_open(struct medium *image)
{
	memory_disks_open();
	rig_init(&image->rig, 1);
	image->rig.opts.volume = "memory://0";
	image->rig.opts.log_bytes = LOG_BYTES;
	image->rig.opts.step_bytes = 4 * MIB;
	snprintf(image->kept, sizeof(image->kept), "%s.kept", image->rig.dir);
	image->disk_count = 1;
	image->volume = (uint8_t *)malloc(DISKS_MAX * IMAGE_BYTES);
	assert_non_null(image->volume);
}

static void image_close(struct medium *image)
{
	rig_dir_remove(&image->rig);
	shell("rm -rf '%s' '%s'", image->kept, image->kept);
	free(image->volume);
	memory_disks_close();
}

/* On a fiber, while nothing is written. */
static void medium_take(struct medium *image)
{
	rig_index_wait(&image->rig);
	for (uint32_t i = 0; i < image->disk_count; i++)
		memcpy(image->volume + i * IMAGE_BYTES, memory_disk(i)->memory, IMAGE_BYTES);
	dir_copy(image->rig.dir, image->kept);
}

static void medium_restore(struct medium *image)
{
	for (uint32_t i = 0; i < image->disk_count; i++)
		memcpy(memory_disk(i)->memory, image->volume + i * IMAGE_BYTES, IMAGE_BYTES);
	memory_disk(0)->fail_times = 0;
	dir_copy(image->kept, image->rig.dir);
}

/* ---- Its log, read without the code under test. ---- */

struct place {
	uint64_t offset; /* in the volume */
	uint64_t seq;
	uint32_t bytes;
	uint32_t blocks;
};
struct walk {
	struct superblock super;
	struct place groups[GROUPS_MAX];
	uint32_t count;
};

static struct walk image_walk(void)
{
	const uint8_t *memory = memory_disk(0)->memory;
	struct superblock other;
	struct walk walk = {0};
	uint64_t pos;

	memcpy(&walk.super, memory, sizeof(walk.super));
	memcpy(&other, memory + BLOCK_BYTES, sizeof(other));
	if (other.generation > walk.super.generation)
		walk.super = other;
	pos = walk.super.tail_pos;
	for (uint32_t laps = 0; laps < 2;) {
		uint64_t offset = VOLUME_LOG_OFFSET + pos % LOG_BYTES;
		struct group_head head;

		memcpy(&head, memory + offset, sizeof(head));
		if (head.magic != GROUP_MAGIC || head.pos != pos ||
			head.epoch != walk.super.epoch ||
			head.seq != walk.super.tail_seq + walk.count) {
			pos = pos - pos % LOG_BYTES + LOG_BYTES;
			laps++;
			continue;
		}
		laps = 0;
		assert_true(walk.count < GROUPS_MAX);
		walk.groups[walk.count++] = (struct place){.offset = offset,
			.seq = head.seq,
			.bytes = head.bytes,
			.blocks = (head.bytes + BLOCK_BYTES - 1) / BLOCK_BYTES};
		pos += ALIGN_UP((uint64_t)head.bytes, (uint64_t)BLOCK_BYTES);
	}
	return walk;
}

static void byte_flip(uint64_t offset)
{
	memory_disk(0)->memory[offset] ^= 0x10;
}

/* ---- Objects whose groups have several blocks. ---- */

static int wide_put(struct rig *rig, uint32_t i)
{
	static const char headers[HEADERS];
	const struct put_how how = {.headers = {headers, sizeof(headers)}};
	char key[32];

	snprintf(key, sizeof(key), "k%u", i);
	return object_put_seeded(rig, "b", slice_str(key), 100 + i, i + 1, &how);
}

static int wide_verify(struct rig *rig, uint32_t i)
{
	char key[32];

	snprintf(key, sizeof(key), "k%u", i);
	return object_verify_seeded(rig, "b", slice_str(key), 100 + i, i + 1);
}

/* Puts so many objects whose groups leave the log before the others come. */
static void before_run(struct rig *rig, void *arg)
{
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t i = 0; i < *(uint32_t *)arg; i++)
		assert_int_equal(wide_put(rig, 1000 + i), 0);
}

static void after_run(struct rig *rig, void *arg)
{
	for (uint32_t i = 0; i < PUTS; i++)
		assert_int_equal(wide_put(rig, i), 0);
	medium_take((struct medium *)arg);
}

static void wide_image(struct medium *image, uint32_t before)
{
	struct walk walk;

	image_open(image);
	rig_run(&image->rig, before_run, &before);
	assert_int_equal(image->rig.open_result, 0);
	rig_run(&image->rig, after_run, image);
	assert_int_equal(image->rig.open_result, 0);
	medium_restore(image);
	walk = image_walk();
	assert_int_equal(walk.count, PUTS);
	for (uint32_t i = 0; i < PUTS; i++)
		assert_int_equal(walk.groups[i].blocks, 3);
}

/* All objects except so many from the first one on. */
struct lacking {
	uint32_t first, count;
};

static void lacking_run(struct rig *rig, void *arg)
{
	const struct lacking *lacking = (const struct lacking *)arg;

	for (uint32_t i = 0; i < PUTS; i++)
		assert_int_equal(
			wide_verify(rig, i), i - lacking->first < lacking->count ? -ENOENT : 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("more"), 5000, 1, NULL), 0);
}

static void expect_lacking(struct medium *image, uint32_t first, uint32_t count)
{
	struct lacking lacking = {first, count};

	rig_run(&image->rig, lacking_run, &lacking);
	assert_int_equal(image->rig.open_result, 0);
	rig_fsck(&image->rig);
}

static bool says(const struct buf *out, const char *what)
{
	return memmem(out->data, out->len, what, strlen(what)) != NULL;
}

static uint32_t files_like(const struct medium *image, const char *pattern)
{
	char path[700];
	glob_t found;
	uint32_t count;

	snprintf(path, sizeof(path), "%s/%s", image->rig.dir, pattern);
	count = glob(path, 0, NULL, &found) ? 0 : (uint32_t)found.gl_pathc;
	globfree(&found);
	return count;
}

/* The start refuses; so does a check afterwards, which names the remedy. */
static void expect_refused(struct medium *image, uint64_t seq)
{
	struct store_fsck_report report;
	char group[64];
	struct buf out;

	rig_run(&image->rig, NULL, NULL);
	assert_int_equal(image->rig.open_result, -EUCLEAN);
	buf_init(&out, MIB);
	assert_int_equal(store_fsck(image->rig.dir, true, &report, &out), -EUCLEAN);
	assert_false(report.opened);
	snprintf(group, sizeof(group), "group %llu,", (unsigned long long)seq);
	assert_true(says(&out, group));
	assert_true(says(&out, "fsck --salvage"));
	buf_free(&out);
	assert_int_equal(files_like(image, "damaged-log.*"), 0);
}

static void salvage(struct medium *image, struct store_fsck_report *ret_report, struct buf *ret_out)
{
	int ret;

	buf_init(ret_out, MIB);
	ret = store_salvage(image->rig.dir, true, ret_report, ret_out);
	if (ret)
		print_message("# %.*s\n", SLICE_FMT(buf_slice(ret_out)));
	assert_int_equal(ret, 0);
	assert_true(ret_report->opened);
}

/* Refused; after a salvage all objects but these exist. */
static void expect_salvaged(
	struct medium *image, const struct walk *walk, uint32_t first, uint32_t count)
{
	struct store_fsck_report report;
	struct buf out;

	expect_refused(image, walk->groups[first].seq);
	salvage(image, &report, &out);
	assert_int_equal(report.groups_lost, count);
	assert_int_equal(files_like(image, "damaged-log.*"), 1);
	assert_true(out.len > 0);
	buf_free(&out);
	expect_lacking(image, first, count);
}

/* ---- Places of the damage. ---- */

/* Damages each group in one of its blocks, from this block of the first one on. */
static void places_run(uint32_t before, uint32_t block, bool wraps)
{
	struct medium image;
	struct walk walk;

	wide_image(&image, before);
	walk = image_walk();
	assert_int_equal(walk.groups[PUTS - 1].offset < walk.groups[0].offset, wraps);
	for (uint32_t i = 0; i < PUTS; i++) {
		medium_restore(&image);
		byte_flip(walk.groups[i].offset + (block + i) % 3 * BLOCK_BYTES + 40);
		/* The last group may never have been acknowledged. */
		if (i + 1 < PUTS)
			expect_salvaged(&image, &walk, i, 1);
		else
			expect_lacking(&image, i, 1);
	}
	image_close(&image);
}

static void test_damage_at_any_block_is_told_from_the_end(void **state)
{
	(void)state;
	places_run(2, 0, false);
}

static void test_damage_around_the_wrap(void **state)
{
	(void)state;
	places_run(17, 1, true);
}

static void test_several_groups_are_damaged(void **state)
{
	struct medium image;
	struct walk walk;

	(void)state;
	wide_image(&image, 2);
	walk = image_walk();
	/* Adjacent groups: one hole. */
	for (uint32_t i = 2; i < 5; i++)
		memset(memory_disk(0)->memory + walk.groups[i].offset, 0xee, BLOCK_BYTES);
	expect_salvaged(&image, &walk, 2, 3);
	/* Up to the last: only the groups before the last are known to have existed. */
	medium_restore(&image);
	for (uint32_t i = 4; i < PUTS; i++)
		memset(memory_disk(0)->memory + walk.groups[i].offset, 0xee, BLOCK_BYTES);
	expect_lacking(&image, 4, 3);
	image_close(&image);
}

static void test_two_holes(void **state)
{
	struct store_fsck_report report;
	struct medium image;
	struct walk walk;
	struct buf out;

	(void)state;
	wide_image(&image, 2);
	walk = image_walk();
	byte_flip(walk.groups[1].offset + 2 * BLOCK_BYTES);
	byte_flip(walk.groups[4].offset);
	expect_refused(&image, walk.groups[1].seq);
	salvage(&image, &report, &out);
	assert_int_equal(report.groups_lost, 2);
	assert_int_equal(files_like(&image, "damaged-log.*"), 2);
	/* The readable part of the first group names its key; the other's header is gone. */
	assert_true(says(&out, "lost: stored: b/k1\n"));
	assert_false(says(&out, "b/k4\n"));
	buf_free(&out);
	rig_run(&image.rig, NULL, NULL);
	assert_int_equal(image.rig.open_result, 0);
	rig_fsck(&image.rig);
	image_close(&image);
}

/* The damaged part is kept as it was. */
static void test_the_damaged_part_is_kept_aside(void **state)
{
	struct store_fsck_report report;
	struct medium image;
	struct place place;
	struct walk walk;
	char path[700];
	uint8_t bytes[4 * BLOCK_BYTES];
	struct stat info;
	struct buf out;
	FILE *file;

	(void)state;
	wide_image(&image, 2);
	walk = image_walk();
	place = walk.groups[3];
	byte_flip(place.offset + 5000);
	salvage(&image, &report, &out);
	buf_free(&out);
	snprintf(path, sizeof(path), "%s/damaged-log.%llu.%llu.0", image.rig.dir,
		(unsigned long long)walk.super.epoch, (unsigned long long)place.seq);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_int_equal(fread(bytes, 1, sizeof(bytes), file), 3 * BLOCK_BYTES);
	assert_int_equal(fstat(fileno(file), &info), 0);
	assert_int_equal(info.st_mode & 07777, 0600);
	fclose(file);
	assert_memory_equal(bytes, image.volume + place.offset, 5000);
	assert_int_equal(bytes[5000], image.volume[place.offset + 5000] ^ 0x10);
	image_close(&image);
}

/* ---- The true end. ---- */

static void test_bytes_past_the_end_are_no_damage(void **state)
{
	struct medium image;
	struct walk walk;
	uint8_t *memory;

	(void)state;
	wide_image(&image, 2);
	walk = image_walk();
	memory = memory_disk(0)->memory;
	/* A whole group of an earlier epoch, with a later number. */
	{
		struct group_head *head = (struct group_head *)(void *)(memory + VOLUME_LOG_OFFSET +
									40 * BLOCK_BYTES);
		uint32_t uuid_crc = crc32c_update(0, walk.super.uuid, sizeof(walk.super.uuid));

		*head = (struct group_head){.magic = GROUP_MAGIC,
			.bytes = sizeof(*head),
			.epoch = walk.super.epoch - 1,
			.seq = walk.groups[PUTS - 1].seq + 5,
			.pos = 40 * BLOCK_BYTES};
		head->crc32c = journal_crc((const uint8_t *)head, head->bytes, uuid_crc);
		/* A group that is right except for its checksum, which a user's bytes could
		 * contain. */
		head = (struct group_head *)(void *)(memory + VOLUME_LOG_OFFSET + 41 * BLOCK_BYTES);
		*head = (struct group_head){.magic = GROUP_MAGIC,
			.bytes = sizeof(*head),
			.epoch = walk.super.epoch,
			.seq = walk.groups[PUTS - 1].seq + 5,
			.pos = 41 * BLOCK_BYTES};
	}
	expect_lacking(&image, 0, 0);
	/* Only the last group's header was written. */
	medium_restore(&image);
	memset(memory + walk.groups[PUTS - 1].offset + BLOCK_BYTES, 0, 2 * BLOCK_BYTES);
	expect_lacking(&image, PUTS - 1, 1);
	/* All but its header was written. */
	medium_restore(&image);
	memset(memory + walk.groups[PUTS - 1].offset, 0, BLOCK_BYTES);
	expect_lacking(&image, PUTS - 1, 1);
	image_close(&image);
}

/* ---- Several volumes, two of which have the log. ---- */

static void test_one_whole_copy_is_enough(void **state)
{
	uint32_t before = 2;
	struct medium image;
	struct walk walk;

	(void)state;
	image_open(&image);
	image.disk_count = 3;
	image.rig.opts.volume = "memory://0,memory://1,memory://2";
	image.rig.opts.erasure_data = 2;
	image.rig.opts.erasure_parity = 1;
	rig_run(&image.rig, before_run, &before);
	rig_run(&image.rig, after_run, &image);
	assert_int_equal(image.rig.open_result, 0);
	medium_restore(&image);
	walk = image_walk();
	assert_int_equal(walk.count, PUTS);
	/* Damages one copy of each group in turn: with other bytes, and with an unreadable
	 * block. */
	for (uint32_t i = 0; i < PUTS; i++)
		memory_disk(i % 2)->memory[walk.groups[i].offset + i * 100] ^= 1;
	memory_disk(0)->fail_at = walk.groups[0].offset + 2 * BLOCK_BYTES;
	memory_disk(0)->fail_times = UINT32_MAX;
	expect_lacking(&image, 0, 0);
	/* Both copies of one group. */
	medium_restore(&image);
	memory_disk(0)->memory[walk.groups[2].offset + 5000] ^= 1;
	memory_disk(1)->memory[walk.groups[2].offset + 9] ^= 1;
	expect_refused(&image, walk.groups[2].seq);
	{
		struct store_fsck_report report;
		struct buf out;

		salvage(&image, &report, &out);
		assert_int_equal(report.groups_lost, 1);
		assert_int_equal(files_like(&image, "damaged-log.*"), 2);
		assert_true(says(&out, "lost: stored: b/k2\n"));
		buf_free(&out);
	}
	expect_lacking(&image, 2, 1);
	image_close(&image);
}

/* ---- Blocks that cannot be read. ---- */

static void test_a_read_that_fails_once_loses_nothing(void **state)
{
	struct medium image;
	struct walk walk;

	(void)state;
	wide_image(&image, 2);
	walk = image_walk();
	for (uint32_t i = 0; i < PUTS; i += 2) {
		medium_restore(&image);
		memory_disk(0)->fail_at = walk.groups[i].offset + i % 3 * BLOCK_BYTES;
		memory_disk(0)->fail_times = 1;
		expect_lacking(&image, 0, 0);
		assert_int_equal(memory_disk(0)->fail_times, 0);
	}
	image_close(&image);
}

static void test_a_block_that_is_never_read(void **state)
{
	struct medium image;
	struct walk walk;

	(void)state;
	wide_image(&image, 2);
	walk = image_walk();
	for (uint32_t i = 0; i < PUTS; i += 3)
		for (uint32_t block = 0; block < 3; block += 2) {
			medium_restore(&image);
			memory_disk(0)->fail_at = walk.groups[i].offset + block * BLOCK_BYTES;
			memory_disk(0)->fail_times = UINT32_MAX;
			/* Also for the last group: an unreadable group may have been
			 * acknowledged. */
			expect_salvaged(&image, &walk, i, 1);
			/* The write made the medium reallocate the block. */
			assert_int_equal(memory_disk(0)->fail_times, 0);
		}
	image_close(&image);
}

/* ---- Damage that loses nothing, because the index has it. ---- */

static void applied_run(struct rig *rig, void *arg)
{
	for (uint32_t i = 0; i < PUTS; i++)
		assert_int_equal(wide_put(rig, i), 0);
	rig_index_wait(rig);
	assert_int_equal(index_flush(rig->store->index), 0);
	medium_take((struct medium *)arg);
}

static void test_damage_that_the_index_makes_good(void **state)
{
	uint32_t before = 2;
	struct medium image;
	struct walk walk;

	(void)state;
	image_open(&image);
	rig_run(&image.rig, before_run, &before);
	rig_run(&image.rig, applied_run, &image);
	medium_restore(&image);
	walk = image_walk();
	for (uint32_t i = 0; i < PUTS; i += 3) {
		medium_restore(&image);
		byte_flip(walk.groups[i].offset + 10);
		expect_lacking(&image, 0, 0);
		/* No number is used twice. */
		assert_true(image_walk().super.tail_seq > walk.groups[PUTS - 1].seq);
	}
	image_close(&image);
}

/* The newer slot has the log's current start and epoch; without it the older one is used. */
static void test_a_damaged_superblock_hides_no_groups(void **state)
{
	struct medium image;
	struct walk walk;

	(void)state;
	wide_image(&image, 2);
	walk = image_walk();
	byte_flip(walk.super.generation % 2 * BLOCK_BYTES + 48);
	expect_lacking(&image, 0, 0);
	/* The slot cannot be read once, or never. */
	for (uint32_t way = 0; way < 2; way++) {
		medium_restore(&image);
		memory_disk(0)->fail_at = walk.super.generation % 2 * BLOCK_BYTES;
		memory_disk(0)->fail_times = way ? UINT32_MAX : 1;
		expect_lacking(&image, 0, 0);
		assert_int_equal(memory_disk(0)->fail_times, 0);
	}
	image_close(&image);
}

static void test_an_index_from_an_old_copy_is_refused(void **state)
{
	struct store_fsck_report report;
	uint32_t before = 2;
	struct medium image;
	struct buf out;
	char old[700], index[700];

	(void)state;
	image_open(&image);
	rig_run(&image.rig, before_run, &before);
	snprintf(old, sizeof(old), "%s.old", image.rig.dir);
	shell("cp -r '%s/index' '%s'", image.rig.dir, old);
	rig_run(&image.rig, after_run, &image);
	snprintf(index, sizeof(index), "%s/index", image.rig.dir);
	dir_copy(old, index);
	shell("rm -rf '%s' '%s'", old, old);
	rig_run(&image.rig, NULL, NULL);
	assert_int_equal(image.rig.open_result, -EUCLEAN);
	salvage(&image, &report, &out);
	assert_int_equal(report.groups_lost, PUTS);
	buf_free(&out);
	expect_lacking(&image, 0, PUTS);
	image_close(&image);
}

/* ---- Copies: later groups carry a copy of a small group. ---- */

static void copies_wipe(const struct walk *walk)
{
	for (uint32_t i = 0; i < walk->count; i++) {
		const struct place *place = &walk->groups[i];

		memset(memory_disk(0)->memory + place->offset + place->bytes, 0,
			place->blocks * BLOCK_BYTES - place->bytes);
	}
}

static int small_put(struct rig *rig, uint32_t i)
{
	char key[32];

	snprintf(key, sizeof(key), "k%u", i);
	return object_put_seeded(rig, "b", slice_str(key), 100 + i, i + 1, NULL);
}

static void small_run(struct rig *rig, void *arg)
{
	for (uint32_t i = 0; i < PUTS; i++)
		assert_int_equal(small_put(rig, i), 0);
	medium_take((struct medium *)arg);
}

static void test_a_small_group_is_read_from_its_copy(void **state)
{
	struct store_fsck_report report;
	uint32_t before = 2;
	struct medium image;
	struct walk walk;
	struct buf out;

	(void)state;
	image_open(&image);
	rig_run(&image.rig, before_run, &before);
	rig_run(&image.rig, small_run, &image);
	medium_restore(&image);
	walk = image_walk();
	assert_int_equal(walk.count, PUTS);
	for (uint32_t i = 0; i < PUTS; i++) {
		assert_int_equal(walk.groups[i].blocks, 1);
		medium_restore(&image);
		/* Nothing of the group is left; the next group has a copy, except for the last. */
		memset(memory_disk(0)->memory + walk.groups[i].offset, 0, BLOCK_BYTES);
		expect_lacking(&image, i + 1 < PUTS ? 0 : i, i + 1 < PUTS ? 0 : 1);
	}
	/* Two adjacent groups, one of which cannot be read. */
	medium_restore(&image);
	byte_flip(walk.groups[2].offset);
	memory_disk(0)->fail_at = walk.groups[3].offset;
	memory_disk(0)->fail_times = UINT32_MAX;
	expect_lacking(&image, 0, 0);
	/* No later group carries the first one's copy, because there are too many between: only
	 * the first one is lost. */
	medium_restore(&image);
	copies_wipe(&walk);
	memcpy(memory_disk(0)->memory + walk.groups[3].offset + walk.groups[3].bytes,
		image.volume + walk.groups[3].offset + walk.groups[3].bytes,
		BLOCK_BYTES - walk.groups[3].bytes);
	byte_flip(walk.groups[3].offset + ALIGN_UP(walk.groups[3].bytes, CARRIED_ALIGN) +
		  ALIGN_UP(walk.groups[2].bytes, CARRIED_ALIGN) + 20);
	byte_flip(walk.groups[1].offset);
	byte_flip(walk.groups[2].offset);
	expect_refused(&image, walk.groups[1].seq);
	salvage(&image, &report, &out);
	assert_int_equal(report.groups_lost, 1);
	buf_free(&out);
	expect_lacking(&image, 1, 1);
	image_close(&image);
}

/* ---- The partial effects of lost groups. ---- */

struct half {
	struct medium image;
	uint32_t lost; /* groups from the beginning, by index */
	rig_fn *fn, *verify;
	struct store_fsck_report report;
};

static void half_bucket(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("old"), 8000, 9, NULL), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("short"), 10, 9, NULL), 0);
}

static void half_after(struct rig *rig, void *arg)
{
	struct half *half = (struct half *)arg;

	half->fn(rig, arg);
	medium_take(&half->image);
}

static void half_run(struct half *half)
{
	struct medium *image = &half->image;
	struct walk walk;
	struct buf out;

	image_open(image);
	rig_run(&image->rig, half_bucket, NULL);
	rig_run(&image->rig, half_after, half);
	medium_restore(image);
	walk = image_walk();
	assert_true(half->lost + 1 < walk.count);
	copies_wipe(&walk);
	byte_flip(walk.groups[half->lost].offset);
	expect_refused(image, walk.groups[half->lost].seq);
	salvage(image, &half->report, &out);
	buf_free(&out);
	assert_int_equal(half->report.groups_lost, 1);
	rig_run(&image->rig, half->verify, half);
	assert_int_equal(image->rig.open_result, 0);
	rig_fsck(&image->rig);
	image_close(image);
}

static uint64_t volume_offset(struct rig *rig, struct slice key)
{
	struct store_get *get;
	uint64_t place;
	bool exists;

	assert_int_equal(store_get_open(rig->store, SLICE("b"), key, &get, &exists), 0);
	assert_int_equal(rig_place(get, 0, &place), 0);
	store_get_close(get);
	return place;
}

/* The deletion of "old" is lost, and another object uses its space now. */
static void shared_fn(struct rig *rig, void *arg)
{
	uint64_t offset = volume_offset(rig, SLICE("old"));
	char key[16];

	(void)arg;
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("old"), NULL, NULL), 0);
	rig_index_wait(rig);
	for (uint32_t i = 0;; i++) {
		assert_true(i < GROUPS_MAX / 2);
		snprintf(key, sizeof(key), "n%u", i);
		assert_int_equal(
			object_put_seeded(rig, "b", slice_str(key), 8000, 20 + i, NULL), 0);
		if (volume_offset(rig, slice_str(key)) == offset)
			break;
	}
}

static void shared_verify(struct rig *rig, void *arg)
{
	const struct half *half = (const struct half *)arg;

	assert_int_equal(half->report.objects_removed, 1);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("old"), 8000, 9), -ENOENT);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("n0"), 8000, 20), 0);
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("n0"), NULL, NULL), 0);
}

static void test_space_that_two_objects_name(void **state)
{
	struct half half = {.fn = shared_fn, .verify = shared_verify};

	(void)state;
	half_run(&half);
}

/* A bucket is lost, but not its object. */
static void orphan_fn(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(bucket_make(rig->store, "c"), 0);
	assert_int_equal(object_put_seeded(rig, "c", SLICE("k"), 8000, 30, NULL), 0);
}

static void orphan_verify(struct rig *rig, void *arg)
{
	const struct half *half = (const struct half *)arg;
	struct store_bucket info;

	assert_int_equal(half->report.buckets_remade, 1);
	assert_int_equal(store_bucket_get(rig->store, SLICE("c"), &info), -ENOENT);
	assert_int_equal(store_bucket_get(rig->store, SLICE("salvaged-2"), &info), 0);
	assert_int_equal(object_verify_seeded(rig, "salvaged-2", SLICE("k"), 8000, 30), 0);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("old"), 8000, 9), 0);
}

static void test_objects_of_a_lost_bucket_can_be_reached(void **state)
{
	struct half half = {.fn = orphan_fn, .verify = orphan_verify};

	(void)state;
	half_run(&half);
}

/* The body of "k" is lost, but not the change of its headers; the first replacement of "short" is
 * lost, but not the next one. */
static int headers_set(const struct store_meta *current, struct slice *ret_headers, void *arg)
{
	(void)current;
	(void)arg;
	*ret_headers = SLICE("a\0b");
	return 0;
}

static void bodyless_fn(struct rig *rig, void *arg)
{
	const struct store_name name = {.bucket = SLICE("b"), .key = SLICE("k")};

	(void)arg;
	assert_int_equal(object_put_seeded(rig, "b", SLICE("k"), 20, 40, NULL), 0);
	assert_int_equal(store_edit(rig->store, &name, headers_set, NULL, NULL), 0);
}

static void bodyless_verify(struct rig *rig, void *arg)
{
	const struct half *half = (const struct half *)arg;

	assert_int_equal(half->report.objects_removed, 1);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("k"), 20, 40), -ENOENT);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("short"), 10, 9), 0);
}

static void replaced_fn(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(object_put_seeded(rig, "b", SLICE("short"), 11, 41, NULL), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("short"), 12, 42, NULL), 0);
}

static void replaced_verify(struct rig *rig, void *arg)
{
	const struct half *half = (const struct half *)arg;

	assert_int_equal(half->report.rows_removed, 1);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("short"), 12, 42), 0);
}

static void test_rows_that_do_not_belong_together(void **state)
{
	struct half bodyless = {.fn = bodyless_fn, .verify = bodyless_verify};
	struct half replaced = {.fn = replaced_fn, .verify = replaced_verify};

	(void)state;
	half_run(&bodyless);
	half_run(&replaced);
}

static void test_a_salvage_of_a_sound_store_is_a_check(void **state)
{
	struct store_fsck_report report;
	struct medium image;
	struct buf out;

	(void)state;
	wide_image(&image, 2);
	salvage(&image, &report, &out);
	assert_int_equal(out.len, 0);
	assert_int_equal(report.groups_lost, 0);
	assert_int_equal(files_like(&image, "damaged-log.*"), 0);
	buf_free(&out);
	expect_lacking(&image, 0, 0);
	image_close(&image);
}

/* ---- How names are shown. ---- */

static void test_names_do_not_reach_the_terminal_raw(void **state)
{
	static const struct {
		struct slice name;
		const char *shown;
	} NAMES[] = {{SLICE("plain/key 1"), "plain/key 1"}, {SLICE("h\xc3\xa9"), "h\xc3\xa9"},
		{SLICE("\xe2\x82\xac\xf0\x9f\x98\x80"), "\xe2\x82\xac\xf0\x9f\x98\x80"},
		{SLICE("a\x1b[2Jb"), "a\\x1b[2Jb"}, {SLICE("a\nb\0c\x7f"), "a\\x0ab\\x00c\\x7f"},
		{SLICE("\xc2\x9b"), "\\xc2\\x9b"}, {SLICE("\xff\xc3("), "\\xff\\xc3("},
		{SLICE("\xe2\x80\xae"), "\\xe2\\x80\\xae"},
		{SLICE("\xed\xa0\x80"), "\\xed\\xa0\\x80"}, {SLICE("\xc0\x80"), "\\xc0\\x80"},
		{SLICE("\xe2\x82"), "\\xe2\\x82"}, {SLICE("a\\b"), "a\\x5cb"}, {SLICE(""), ""}};
	struct buf out;

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(NAMES); i++) {
		buf_init(&out, KIB);
		printable_put(&out, NAMES[i].name);
		assert_true(slice_eq(buf_slice(&out), slice_str(NAMES[i].shown)));
		buf_free(&out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_damage_at_any_block_is_told_from_the_end),
		cmocka_unit_test(test_damage_around_the_wrap),
		cmocka_unit_test(test_several_groups_are_damaged),
		cmocka_unit_test(test_two_holes),
		cmocka_unit_test(test_the_damaged_part_is_kept_aside),
		cmocka_unit_test(test_bytes_past_the_end_are_no_damage),
		cmocka_unit_test(test_one_whole_copy_is_enough),
		cmocka_unit_test(test_a_read_that_fails_once_loses_nothing),
		cmocka_unit_test(test_a_block_that_is_never_read),
		cmocka_unit_test(test_damage_that_the_index_makes_good),
		cmocka_unit_test(test_a_damaged_superblock_hides_no_groups),
		cmocka_unit_test(test_an_index_from_an_old_copy_is_refused),
		cmocka_unit_test(test_a_small_group_is_read_from_its_copy),
		cmocka_unit_test(test_space_that_two_objects_name),
		cmocka_unit_test(test_objects_of_a_lost_bucket_can_be_reached),
		cmocka_unit_test(test_rows_that_do_not_belong_together),
		cmocka_unit_test(test_a_salvage_of_a_sound_store_is_a_check),
		cmocka_unit_test(test_names_do_not_reach_the_terminal_raw),
	};

	log_set_level(LOG_ERROR);
	/* The volumes are in memory, and the tests open many stores, so the index is in memory,
	 * too, if possible. */
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 1);
	return cmocka_run_group_tests_name("salvage", tests, NULL, NULL);
}
