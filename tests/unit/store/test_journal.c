/* tests/unit/store/test_journal.c: groups in the log: read back as written, and not at all if a
 * block is torn or a bit is flipped. */
#include "../unit.h"
#include "memory_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/store_priv.h"

#define LOG_BYTES (256 * KIB)

struct fixture {
	char dir[512];
	struct volume volume;
	uint64_t pos;
	uint64_t seq;
};

static void fixture_open(struct fixture *fixture)
{
	const char *base = getenv("TMPDIR");
	bool created;
	struct volume_opts opts = {.dir = fixture->dir,
		.log_bytes = LOG_BYTES,
		.step_bytes = MIB,
		.create = true,
		.ret_created = &created};

	memset(fixture, 0, sizeof(*fixture));
	snprintf(fixture->dir, sizeof(fixture->dir), "%s/nebulaio-journal-XXXXXX",
		base ? base : ".");
	assert_non_null(mkdtemp(fixture->dir));
	assert_int_equal(volume_open(&opts, &fixture->volume), 0);
	assert_true(created);
	fixture->seq = 1;
}

static void fixture_close(struct fixture *fixture)
{
	char command[600];

	volume_close(&fixture->volume);
	snprintf(command, sizeof(command), "rm -rf '%s'", fixture->dir);
	assert_int_equal(system(command), 0);
}

static struct slice value_of(char *buf, size_t len, uint64_t seed)
{
	struct prng prng;

	prng_seed(&prng, seed);
	prng_fill(&prng, buf, len);
	return slice_of(buf, len);
}

/* Writes a group of `count` mutations of so many bytes to its place; returns its blocks. */
static uint32_t group_store(struct fixture *fixture, uint32_t count, size_t value_len)
{
	struct group_head head = {.epoch = fixture->volume.super.epoch, .seq = fixture->seq};
	struct group *group;
	uint32_t padded;

	assert_int_equal(group_open(&group), 0);
	for (uint32_t i = 0; i < count; i++) {
		struct key key;
		char *value = (char *)malloc(value_len + 1);

		key_object(&key, i, SLICE("name"));
		assert_int_equal(group_reserve(group, MUTATION_BYTES(key.len, value_len), 0), 0);
		value_of(value, value_len, fixture->seq * 1000 + i);
		memcpy(group_add(group, MUTATION_PUT, 0, &key, value_len), value, value_len);
		free(value);
	}
	padded = (uint32_t)ALIGN_UP(group->len, (size_t)BLOCK_BYTES);
	fixture->pos = journal_place(fixture->pos, padded, LOG_BYTES);
	head.pos = fixture->pos;
	assert_int_equal(group_seal(group, &head, fixture->volume.uuid_crc, NULL), padded);
	assert_int_equal(disk_write_now(fixture->volume.disk, group->bytes, padded,
				 VOLUME_LOG_OFFSET + fixture->pos % LOG_BYTES),
		0);
	fixture->pos += padded;
	fixture->seq++;
	group_close(group);
	return padded / BLOCK_BYTES;
}

/* Reads the group with this number at or after pos; compares; returns where the next one starts. */
static int group_expect(
	struct fixture *fixture, struct journal_at *at, uint32_t count, size_t value_len)
{
	struct group_head head;
	struct mutation mutation;
	uint32_t seen = 0;
	uint8_t *bytes;
	size_t cursor = 0;
	int ret = journal_read(&fixture->volume, at, &bytes, &head);

	if (ret != 1)
		return ret;
	assert_int_equal(head.seq, at->seq);
	while (group_next(slice_of(bytes, head.bytes), &cursor, &mutation) == 1) {
		char *value = (char *)malloc(value_len + 1);

		assert_int_equal(mutation.op, MUTATION_PUT);
		assert_int_equal(mutation.value.len, value_len);
		assert_true(slice_eq(
			mutation.value, value_of(value, value_len, head.seq * 1000 + seen)));
		free(value);
		seen++;
	}
	assert_int_equal(seen, count);
	at->pos = head.pos + ALIGN_UP((uint64_t)head.bytes, (uint64_t)BLOCK_BYTES);
	at->seq++;
	free(bytes);
	return 1;
}

static void test_reads_what_was_written_over_many_laps(void **state)
{
	struct journal_at at = {.pos = 0, .seq = 1};
	struct fixture fixture;

	(void)state;
	fixture_open(&fixture);
	for (uint32_t i = 0; i < 200; i++) {
		uint32_t count = 1 + i % 5;
		size_t len = i * 977 % 9000;

		group_store(&fixture, count, len);
		assert_int_equal(group_expect(&fixture, &at, count, len), 1);
		assert_int_equal(at.pos, fixture.pos);
		/* The end: the bytes there are of an earlier lap. */
		assert_int_equal(group_expect(&fixture, &at, 0, 0), 0);
	}
	assert_true(fixture.pos > 4 * LOG_BYTES);
	fixture_close(&fixture);
}

/* Makes the block at a place of the log as it was before the group's write, or garbage. */
static void block_spoil(struct fixture *fixture, uint64_t pos, uint8_t fill)
{
	void *block = NULL;

	assert_int_equal(posix_memalign(&block, BLOCK_BYTES, BLOCK_BYTES), 0);
	memset(block, fill, BLOCK_BYTES);
	assert_int_equal(disk_write_now(fixture->volume.disk, block, BLOCK_BYTES,
				 VOLUME_LOG_OFFSET + pos % LOG_BYTES),
		0);
	free(block);
}

static void test_any_torn_block_ends_the_log(void **state)
{
	struct fixture fixture;
	uint32_t blocks;

	(void)state;
	fixture_open(&fixture);
	group_store(&fixture, 1, 100);
	blocks = group_store(&fixture, 3, 9000);
	assert_int_equal(blocks, 7);
	for (uint32_t torn = 0; torn < blocks; torn++)
		for (uint32_t fill = 0; fill < 256; fill += 0x5a) {
			struct journal_at at = {.pos = 0, .seq = 1};

			fixture.pos = BLOCK_BYTES;
			fixture.seq = 2;
			group_store(&fixture, 3, 9000);
			block_spoil(&fixture, BLOCK_BYTES * (1 + torn), (uint8_t)fill);
			assert_int_equal(group_expect(&fixture, &at, 1, 100), 1);
			assert_int_equal(group_expect(&fixture, &at, 3, 9000), 0);
		}
	fixture_close(&fixture);
}

static void test_any_flipped_bit_ends_the_log(void **state)
{
	struct fixture fixture;
	void *block = NULL;
	uint8_t *bytes;

	(void)state;
	fixture_open(&fixture);
	group_store(&fixture, 2, 300);
	assert_int_equal(posix_memalign(&block, BLOCK_BYTES, BLOCK_BYTES), 0);
	bytes = (uint8_t *)block;
	assert_int_equal(
		disk_read_now(fixture.volume.disk, bytes, BLOCK_BYTES, VOLUME_LOG_OFFSET), 0);
	for (uint32_t bit = 0; bit < group_head(&(struct group){.bytes = bytes})->bytes * 8;
		bit++) {
		struct journal_at at = {.pos = 0, .seq = 1};

		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(
			disk_write_now(fixture.volume.disk, bytes, BLOCK_BYTES, VOLUME_LOG_OFFSET),
			0);
		assert_int_equal(group_expect(&fixture, &at, 2, 300), 0);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	free(block);
	fixture_close(&fixture);
}

static void test_groups_of_another_epoch_or_store_do_not_count(void **state)
{
	struct journal_at at = {.pos = 0, .seq = 1};
	struct fixture fixture;

	(void)state;
	fixture_open(&fixture);
	group_store(&fixture, 1, 10);
	fixture.volume.super.epoch++;
	assert_int_equal(group_expect(&fixture, &at, 1, 10), 0);
	fixture.volume.super.epoch--;
	fixture.volume.uuid_crc ^= 1;
	assert_int_equal(group_expect(&fixture, &at, 1, 10), 0);
	fixture.volume.uuid_crc ^= 1;
	assert_int_equal(group_expect(&fixture, &at, 1, 10), 1);
	fixture_close(&fixture);
}

/* A mutation's lengths are untrusted input: none may exceed the group. */
static void test_lengths_are_checked(void **state)
{
	struct group *group;
	struct mutation mutation;
	struct key key;
	struct prng prng;

	(void)state;
	prng_seed(&prng, 3);
	assert_int_equal(group_open(&group), 0);
	key_object(&key, 1, SLICE("k"));
	assert_int_equal(group_reserve(group, MUTATION_BYTES(key.len, 50), 0), 0);
	memset(group_add(group, MUTATION_PUT, 0, &key, 50), 1, 50);
	for (uint32_t i = 0; i < 20000; i++) {
		uint8_t copy[256];
		size_t at = 0;
		int ret;

		memcpy(copy, group->bytes, group->len);
		prng_fill(&prng, copy + sizeof(struct group_head), 8);
		while ((ret = group_next(slice_of(copy, group->len), &at, &mutation)) == 1)
			assert_true(mutation.value.data + mutation.value.len <=
				    (const char *)copy + group->len);
		assert_true(ret == 0 || ret == -EUCLEAN);
	}
	group_close(group);
}

/* ---- Copies that later groups carry. ---- */

static void group_fill(struct group *group, uint64_t seq, size_t len)
{
	struct group_head head = {.seq = seq};
	struct key key;

	group_reset(group);
	key_object(&key, 1, SLICE("k"));
	assert_int_equal(group_reserve(group, MUTATION_BYTES(key.len, len), 0), 0);
	memset(group_add(group, MUTATION_PUT, 0, &key, len), (int)seq, len);
	group_seal(group, &head, 7, NULL);
}

/* Copies are of whole groups, newest first, without gaps except for groups that are too large. */
static void test_copies_are_whole_and_fit(void **state)
{
	struct carry carry = {0};
	uint8_t sealed[4096 * 3];
	struct group *group;
	struct prng prng;
	uint64_t newest = 0;

	(void)state;
	prng_seed(&prng, 5);
	assert_int_equal(group_open(&group), 0);
	for (uint64_t seq = 1; seq < 3000; seq++) {
		size_t len = prng_below(&prng, prng_below(&prng, 4) ? 900 : 6000);
		uint64_t expected = newest;
		uint32_t padded, from;

		group_fill(group, seq, len);
		padded = group_seal(group, &(struct group_head){.seq = seq}, 7, &carry);
		assert_true(padded <= sizeof(sealed) && padded % BLOCK_BYTES == 0);
		assert_true(carry.len <= sizeof(carry.bytes));
		memcpy(sealed, group->bytes, padded);
		from = ALIGN_UP(group_head(group)->bytes, CARRIED_ALIGN);
		while (from + sizeof(struct group_head) <= padded) {
			struct group_head head;

			memcpy(&head, sealed + from, sizeof(head));
			if (head.magic != GROUP_MAGIC)
				break;
			assert_true(head.bytes <= padded - from);
			assert_int_equal(head.crc32c, journal_crc(sealed + from, head.bytes, 7));
			assert_true(head.seq <= expected);
			expected = head.seq - 1;
			from += ALIGN_UP(head.bytes, CARRIED_ALIGN);
		}
		for (; from < padded; from++)
			assert_int_equal(sealed[from], 0);
		if (group_head(group)->bytes <= CARRIED_BYTES_MAX)
			newest = seq;
		carry_add(&carry, group);
	}
	group_close(group);
}

/* ---- The superblock. ---- */

static int volume_reopen(struct fixture *fixture)
{
	bool created;
	struct volume_opts opts = {.dir = fixture->dir, .ret_created = &created};

	volume_close(&fixture->volume);
	return volume_open(&opts, &fixture->volume);
}

static void super_patch(const struct fixture *fixture, uint64_t offset, uint8_t byte)
{
	char path[600];
	int fd;

	snprintf(path, sizeof(path), "%s/volume", fixture->dir);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)offset), 1);
	close(fd);
}

static void test_one_superblock_survives_the_other(void **state)
{
	struct fixture fixture;
	uint64_t generation;

	(void)state;
	fixture_open(&fixture);
	assert_int_equal(volume_super_write(&fixture.volume), 0);
	generation = fixture.volume.super.generation;
	assert_int_equal(volume_reopen(&fixture), 0);
	assert_int_equal(fixture.volume.super.generation, generation);
	/* The newer slot is torn: the older one is used. */
	super_patch(&fixture, generation % 2 * BLOCK_BYTES + 72, 0xee);
	assert_int_equal(volume_reopen(&fixture), 0);
	assert_int_equal(fixture.volume.super.generation, generation - 1);
	super_patch(&fixture, (generation - 1) % 2 * BLOCK_BYTES + 72, 0xee);
	assert_int_equal(volume_reopen(&fixture), -EUCLEAN);
	fixture_close(&fixture);
}

static void test_another_version_is_refused(void **state)
{
	struct fixture fixture;

	(void)state;
	fixture_open(&fixture);
	super_patch(&fixture, fixture.volume.super.generation % 2 * BLOCK_BYTES + 8, 2);
	assert_int_equal(volume_reopen(&fixture), -EUCLEAN);
	fixture_close(&fixture);
}

/* Opens three volumes like a start whose data folder knows of none. */
static int set_volume_open(const struct fixture *fixture, struct volume *volume)
{
	char dir[600], paths[2000];
	bool created;
	struct volume_opts opts = {.dir = dir,
		.path = paths,
		.log_bytes = LOG_BYTES,
		.step_bytes = MIB,
		.erasure_data = 2,
		.erasure_parity = 1,
		.create = true,
		.ret_created = &created};
	int ret;

	snprintf(dir, sizeof(dir), "%s/set", fixture->dir);
	mkdir(dir, 0700);
	snprintf(paths, sizeof(paths), "%s/a,%s/b,%s/c", fixture->dir, fixture->dir, fixture->dir);
	ret = volume_open(&opts, volume);
	assert_true(ret || created);
	return ret;
}

static int set_open(struct fixture *fixture, uint64_t epoch)
{
	struct volume volume = {0};
	int ret = set_volume_open(fixture, &volume);

	if (ret) {
		volume_close(&volume);
		return ret;
	}
	volume.super.epoch = epoch;
	assert_int_equal(volume_super_write(&volume), 0);
	volume_close(&volume);
	return 0;
}

/* Power may fail when some volumes have a superblock and the store has no index yet: the volumes
 * have no data then. After the index exists, the volumes belong to that store. */
static void test_a_set_whose_creation_was_cut_short_is_made_afresh(void **state)
{
	struct fixture fixture;

	(void)state;
	fixture_open(&fixture);
	assert_int_equal(set_open(&fixture, 0), 0);
	assert_int_equal(set_open(&fixture, 0), 0);
	assert_int_equal(set_open(&fixture, 1), 0);
	assert_int_equal(set_open(&fixture, 0), -EUCLEAN);
	fixture_close(&fixture);
}

/* The result is neither a group, nor the end of the log, nor a failing medium. */
static void test_too_few_volumes_are_said_to_be_too_few(void **state)
{
	struct fixture fixture;
	struct volume volume = {0};
	struct journal_at at = {.pos = BLOCK_BYTES, .seq = 1};
	struct journal_find find;
	struct group_head head;
	uint8_t *bytes, block[BLOCK_BYTES];
	uint64_t unreadable;

	(void)state;
	fixture_open(&fixture);
	assert_int_equal(set_volume_open(&fixture, &volume), 0);
	assert_int_equal(journal_read(&volume, &at, &bytes, &head), 0);
	assert_int_equal(journal_search(&volume, &at, &find), 0);
	disk_array_fail(volume.disk, 0, -ENOTCONN);
	assert_int_equal(journal_read(&volume, &at, &bytes, &head), 0);
	disk_array_fail(volume.disk, 1, -ENOTCONN);
	assert_int_equal(journal_read(&volume, &at, &bytes, &head), -EHOSTDOWN);
	assert_int_equal(journal_search(&volume, &at, &find), -EHOSTDOWN);
	assert_int_equal(
		journal_raw(&volume, 0, at.pos, block, sizeof(block), &unreadable), -EHOSTDOWN);
	assert_int_equal(journal_heal(&volume), -EHOSTDOWN);
	volume_close(&volume);
	fixture_close(&fixture);
}

/* One of two copies of the log is lost when most of it has been searched; only the other one's
 * beginning has the group. */
static void test_a_search_goes_on_without_a_lost_volume(void **state)
{
	const struct journal_at at = {.pos = BLOCK_BYTES, .seq = 1};
	struct journal_find find;
	struct fixture fixture = {0};
	bool created;
	struct volume_opts opts = {.dir = fixture.dir,
		.path = "memory://0,memory://1,memory://2",
		.log_bytes = 4 * MIB,
		.step_bytes = MIB,
		.erasure_data = 2,
		.erasure_parity = 1,
		.create = true,
		.ret_created = &created};

	(void)state;
	memory_disks_open();
	snprintf(fixture.dir, sizeof(fixture.dir), "%s/nebulaio-journal-XXXXXX",
		getenv("TMPDIR") ? getenv("TMPDIR") : ".");
	assert_non_null(mkdtemp(fixture.dir));
	assert_int_equal(volume_open(&opts, &fixture.volume), 0);
	fixture.pos = BLOCK_BYTES;
	fixture.seq = 5;
	assert_int_equal(group_store(&fixture, 1, 100), 1);
	memset(memory_disk(0)->memory + VOLUME_LOG_OFFSET + BLOCK_BYTES, 0, BLOCK_BYTES);
	memory_disk(0)->fail_at = VOLUME_LOG_OFFSET + 3 * MIB;
	memory_disk(0)->fail_times = 1;
	memory_disk(0)->fail_loses = true;
	assert_int_equal(journal_search(&fixture.volume, &at, &find), 0);
	assert_true(memory_disk(0)->lost);
	assert_true(find.found);
	assert_int_equal(find.first.seq, 5);
	fixture_close(&fixture);
	memory_disks_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_set_whose_creation_was_cut_short_is_made_afresh),
		cmocka_unit_test(test_too_few_volumes_are_said_to_be_too_few),
		cmocka_unit_test(test_a_search_goes_on_without_a_lost_volume),
		cmocka_unit_test(test_reads_what_was_written_over_many_laps),
		cmocka_unit_test(test_any_torn_block_ends_the_log),
		cmocka_unit_test(test_any_flipped_bit_ends_the_log),
		cmocka_unit_test(test_groups_of_another_epoch_or_store_do_not_count),
		cmocka_unit_test(test_lengths_are_checked),
		cmocka_unit_test(test_copies_are_whole_and_fit),
		cmocka_unit_test(test_one_superblock_survives_the_other),
		cmocka_unit_test(test_another_version_is_refused),
	};

	return cmocka_run_group_tests_name("journal", tests, NULL, NULL);
}
