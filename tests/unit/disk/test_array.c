/* tests/unit/disk/test_array.c: several volumes as one: stripes of every length read in every part,
 * with members lost, failing, returning wrong data and rebuilt; the mirrored range; the set of good
 * members. */
#include "../unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "disk/disk.h"

#define STEP	     (4 * MIB)
#define BLOCK	     4096u
#define STRIPE_FIRST 256u /* 1 MiB */

struct fixture {
	char dir[512];
	struct disk *disk;
	uint32_t data, parity;
	uint8_t *body, *got;
};

static struct disk *member_open(const struct fixture *fixture, uint32_t member, const char *faults)
{
	struct disk_opts opts = {
		.bytes_min = STEP, .step_bytes = STEP, .create = true, .faults = faults};
	struct disk *disk;
	char path[600];

	snprintf(path, sizeof(path), "%s/m%u", fixture->dir, member);
	opts.path = path;
	assert_int_equal(disk_open(&opts, &disk), 0);
	return disk;
}

static void array_reopen(struct fixture *fixture, uint64_t missing, uint64_t rebuilding)
{
	struct disk_array_opts opts = {
		.data = fixture->data, .parity = fixture->parity, .name = "array"};

	disk_close(fixture->disk);
	for (uint32_t i = 0; i < fixture->data + fixture->parity; i++) {
		opts.members[i] = missing >> i & 1 ? NULL : member_open(fixture, i, NULL);
		opts.states[i] = rebuilding >> i & 1 ? DISK_MEMBER_REBUILDING : DISK_MEMBER_GOOD;
	}
	assert_int_equal(disk_array_open(&opts, &fixture->disk), 0);
}

static void fixture_init(struct fixture *fixture, uint32_t data, uint32_t parity)
{
	const char *base = getenv("TMPDIR");
	struct prng prng;
	void *memory = NULL;

	memset(fixture, 0, sizeof(*fixture));
	snprintf(fixture->dir, sizeof(fixture->dir), "%s/nebulaio-array-XXXXXX", base ? base : ".");
	assert_non_null(mkdtemp(fixture->dir));
	fixture->data = data;
	fixture->parity = parity;
	assert_int_equal(posix_memalign(&memory, BLOCK, 2 * MIB), 0);
	fixture->body = (uint8_t *)memory;
	fixture->got = fixture->body + MIB;
	prng_seed(&prng, data * 100 + parity);
	prng_fill(&prng, fixture->body, MIB);
	array_reopen(fixture, 0, 0);
}

static void fixture_end(struct fixture *fixture)
{
	char path[600];

	disk_close(fixture->disk);
	for (uint32_t i = 0; i < fixture->data + fixture->parity; i++) {
		snprintf(path, sizeof(path), "%s/m%u", fixture->dir, i);
		unlink(path);
	}
	assert_int_equal(rmdir(fixture->dir), 0);
	free(fixture->body);
}

static uint64_t offset_of(uint32_t first, uint32_t blocks)
{
	return disk_stripe(first, blocks, 0) * BLOCK;
}

static void stripe_put(struct fixture *fixture, uint32_t first, uint32_t blocks)
{
	assert_int_equal(disk_write_now(fixture->disk, fixture->body, blocks * BLOCK,
				 offset_of(first, blocks)),
		0);
}

static void stripe_expect(struct fixture *fixture, uint32_t first, uint32_t blocks)
{
	/* The whole of it, then a part of it. */
	uint32_t from = blocks / 3, count = blocks - from - blocks / 4;

	memset(fixture->got, 0x5a, blocks * BLOCK);
	assert_int_equal(disk_read_now(fixture->disk, fixture->got, blocks * BLOCK,
				 offset_of(first, blocks)),
		0);
	assert_memory_equal(fixture->got, fixture->body, blocks * BLOCK);
	assert_int_equal(disk_read_now(fixture->disk, fixture->got, count * BLOCK,
				 offset_of(first, blocks) + from * BLOCK),
		0);
	assert_memory_equal(fixture->got, fixture->body + from * BLOCK, count * BLOCK);
}

static const uint32_t LENGTHS[] = {1, 2, 3, 4, 5, 15, 16, 17, 39, 41, 255, 256};

static void test_every_loss_is_made_good(void **state)
{
	static const uint32_t CODES[][2] = {{2, 1}, {4, 2}, {10, 4}};

	(void)state;
	for (uint32_t c = 0; c < ARRAY_LEN(CODES); c++) {
		struct fixture fixture;
		uint32_t count = CODES[c][0] + CODES[c][1];

		fixture_init(&fixture, CODES[c][0], CODES[c][1]);
		for (uint32_t i = 0; i < ARRAY_LEN(LENGTHS); i++)
			stripe_put(&fixture, STRIPE_FIRST + i * 130 % 500, LENGTHS[i]);
		for (uint32_t i = 0; i < ARRAY_LEN(LENGTHS); i++) {
			uint32_t first = STRIPE_FIRST + i * 130 % 500;

			/* The runs overlap: each is written again in its turn. */
			array_reopen(&fixture, 0, 0);
			stripe_put(&fixture, first, LENGTHS[i]);
			stripe_expect(&fixture, first, LENGTHS[i]);
			for (uint32_t a = 0; a < count; a++) {
				uint64_t lost = 1ull << a;

				if (CODES[c][1] > 1)
					lost |= 1ull << (a + 1 + i) % count;
				array_reopen(&fixture, lost, 0);
				stripe_expect(&fixture, first, LENGTHS[i]);
			}
		}
		fixture_end(&fixture);
	}
}

static void test_too_much_is_too_much(void **state)
{
	struct fixture fixture;
	struct disk_array_opts bad = {.data = 2, .parity = 2, .name = "array"};
	struct disk *disk;

	(void)state;
	assert_int_equal(disk_array_open(&bad, &disk), -EINVAL);
	fixture_init(&fixture, 4, 2);
	stripe_put(&fixture, STRIPE_FIRST, 40);
	array_reopen(&fixture, 0x7, 0);
	assert_false(disk_array_quorum(fixture.disk));
	assert_int_equal(
		disk_read_now(fixture.disk, fixture.got, 40 * BLOCK, offset_of(STRIPE_FIRST, 40)),
		-EHOSTDOWN);
	assert_int_equal(
		disk_write_now(fixture.disk, fixture.body, 40 * BLOCK, offset_of(STRIPE_FIRST, 40)),
		-EHOSTDOWN);
	assert_int_equal(disk_flush_now(fixture.disk), -EHOSTDOWN);
	array_reopen(&fixture, 0, 0);
	/* A part of a stripe cannot be written, nor anything beyond the end. */
	assert_int_equal(
		disk_write_now(fixture.disk, fixture.body, 20 * BLOCK, offset_of(STRIPE_FIRST, 40)),
		-EINVAL);
	assert_false(disk_in_range(fixture.disk, offset_of(1020, 40), 40 * BLOCK));
	assert_false(disk_in_range(fixture.disk, offset_of(STRIPE_FIRST, 4), 5 * BLOCK));
	assert_true(disk_in_range(fixture.disk, offset_of(STRIPE_FIRST, 4), 4 * BLOCK));
	assert_int_equal(disk_read_now(fixture.disk, fixture.got, BLOCK, offset_of(1024, 1)), -EIO);
	assert_int_equal(disk_zero_now(fixture.disk, BLOCK, 0), -EOPNOTSUPP);
	fixture_end(&fixture);
}

static void test_mirrors(void **state)
{
	struct fixture fixture;

	(void)state;
	fixture_init(&fixture, 4, 2);
	assert_int_equal(disk_write_now(fixture.disk, fixture.body, 8 * BLOCK, 16 * BLOCK), 0);
	assert_int_equal(disk_flush_now(fixture.disk), 0);
	for (uint32_t copy = 0; copy < 3; copy++) {
		memset(fixture.got, 0, 8 * BLOCK);
		assert_int_equal(
			disk_copy_read_now(fixture.disk, copy, fixture.got, 8 * BLOCK, 16 * BLOCK),
			0);
		assert_memory_equal(fixture.got, fixture.body, 8 * BLOCK);
	}
	assert_int_equal(disk_copy_read_now(fixture.disk, 3, fixture.got, BLOCK, 0), -ENOENT);
	array_reopen(&fixture, 0x3, 0);
	assert_int_equal(disk_read_now(fixture.disk, fixture.got, 8 * BLOCK, 16 * BLOCK), 0);
	assert_memory_equal(fixture.got, fixture.body, 8 * BLOCK);
	assert_int_equal(disk_copy_read_now(fixture.disk, 1, fixture.got, BLOCK, 0), -ENOENT);
	/* All of it is served while two are rebuilt, but they are not read. */
	array_reopen(&fixture, 0, 0x3);
	assert_int_equal(disk_copy_read_now(fixture.disk, 1, fixture.got, BLOCK, 0), -ENOENT);
	fixture_end(&fixture);
}

static void test_a_failed_write_gives_a_member_up(void **state)
{
	struct fixture fixture;
	struct disk_array_opts opts = {.data = 4, .parity = 2, .name = "array"};

	(void)state;
	fixture_init(&fixture, 4, 2);
	disk_close(fixture.disk);
	for (uint32_t i = 0; i < 6; i++)
		opts.members[i] = member_open(&fixture, i, NULL);
	assert_int_equal(disk_array_open(&opts, &fixture.disk), 0);
	disk_fence(disk_array_member(fixture.disk, 2));
	assert_int_equal(disk_array_changes(fixture.disk), 0);
	stripe_put(&fixture, STRIPE_FIRST, 100);
	assert_int_equal(disk_array_changes(fixture.disk), 1);
	assert_int_equal(disk_array_state(fixture.disk, 2), DISK_MEMBER_MISSING);
	assert_int_equal(disk_array_lost(fixture.disk), 4);
	stripe_expect(&fixture, STRIPE_FIRST, 100);
	disk_fence(disk_array_member(fixture.disk, 5));
	assert_int_equal(disk_flush_now(fixture.disk), 0);
	assert_int_equal(disk_array_changes(fixture.disk), 2);
	stripe_expect(&fixture, STRIPE_FIRST, 100);
	disk_fence(disk_array_member(fixture.disk, 0));
	assert_int_equal(disk_flush_now(fixture.disk), -EHOSTDOWN);
	fixture_end(&fixture);
}

/* Spoils so many bytes of a member at an offset. */
static void spoil(const struct fixture *fixture, uint32_t member, uint64_t offset, uint32_t bytes)
{
	char path[600];
	int fd;

	snprintf(path, sizeof(path), "%s/m%u", fixture->dir, member);
	fd = open(path, O_WRONLY);
	assert_true(fd >= 0);
	memset(fixture->got, 0x77, bytes);
	assert_int_equal(pwrite(fd, fixture->got, bytes, (off_t)offset), bytes);
	close(fd);
}

static void test_lies_are_found_and_mended(void **state)
{
	struct fixture fixture;
	struct disk_way way;
	uint32_t member = 0;

	(void)state;
	fixture_init(&fixture, 4, 2);
	stripe_put(&fixture, STRIPE_FIRST, 256);
	/* The first shard's member rotates with the place: block 256 is the second rotation. */
	member = STRIPE_FIRST / 256 % 6;
	spoil(&fixture, member, STRIPE_FIRST * BLOCK + 5 * BLOCK, BLOCK);
	for (way = disk_array_way_first(fixture.disk);; way.number++) {
		assert_int_equal(disk_array_reread(fixture.disk, fixture.got, 16 * BLOCK,
					 offset_of(STRIPE_FIRST, 256), &way),
			0);
		if (memcmp(fixture.got, fixture.body, 16 * BLOCK) == 0)
			break;
		assert_in_range(way.number, 0, 5);
	}
	assert_int_equal(way.number, member);
	assert_int_equal(disk_array_amend(fixture.disk, fixture.got, 16 * BLOCK,
				 offset_of(STRIPE_FIRST, 256), &way),
		0);
	stripe_expect(&fixture, STRIPE_FIRST, 256);
	/* Six alone and fifteen pairs. */
	way.number = 20;
	assert_int_equal(disk_array_reread(fixture.disk, fixture.got, BLOCK,
				 offset_of(STRIPE_FIRST, 256), &way),
		0);
	way.number = 21;
	assert_int_equal(disk_array_reread(fixture.disk, fixture.got, BLOCK,
				 offset_of(STRIPE_FIRST, 256), &way),
		-ENOENT);
	fixture_end(&fixture);
}

/* Two members are rebuilt, and only one of them has its part of the stripe. */
static void test_members_under_rebuild_are_read_last(void **state)
{
	uint32_t wrong = STRIPE_FIRST / 256 % 6, right_ways = 0;
	struct fixture fixture;
	struct disk_way way;
	int ret;

	(void)state;
	fixture_init(&fixture, 4, 2);
	stripe_put(&fixture, STRIPE_FIRST, 256);
	spoil(&fixture, wrong, STRIPE_FIRST * BLOCK, 64 * BLOCK);
	spoil(&fixture, (wrong + 1) % 6, STRIPE_FIRST * BLOCK, 64 * BLOCK);
	array_reopen(&fixture, 0, 1ull << (wrong + 1) % 6 | 1ull << (wrong + 2) % 6);
	for (way = disk_array_way_first(fixture.disk);; way.number++) {
		ret = disk_array_reread(
			fixture.disk, fixture.got, 64 * BLOCK, offset_of(STRIPE_FIRST, 256), &way);
		if (ret == -ENOENT)
			break;
		if (ret || memcmp(fixture.got, fixture.body, 64 * BLOCK) != 0)
			continue;
		assert_true(way.number >= 21);
		right_ways++;
		if (right_ways == 1)
			assert_int_equal(disk_array_amend(fixture.disk, fixture.got, 64 * BLOCK,
						 offset_of(STRIPE_FIRST, 256), &way),
				0);
	}
	/* Four good ones alone and six pairs, each with one or both of the others. */
	assert_int_equal(way.number, 21 + 10 * 3);
	assert_true(right_ways);
	stripe_expect(&fixture, STRIPE_FIRST, 256);
	fixture_end(&fixture);
}

static void test_parity_is_held_against_data(void **state)
{
	uint64_t block = disk_stripe(STRIPE_FIRST, 256, 0);
	struct fixture fixture;
	struct disk_parity parity = {.wrong = 9};
	uint32_t member;

	(void)state;
	fixture_init(&fixture, 4, 2);
	stripe_put(&fixture, STRIPE_FIRST, 256);
	assert_int_equal(disk_array_parity(fixture.disk, block, fixture.body, true, &parity), 0);
	assert_int_equal(parity.wrong, 0);
	assert_int_equal(parity.read_bytes, 2 * 256 / 4 * BLOCK);
	/* The second parity shard. */
	member = (STRIPE_FIRST / 256 + 5) % 6;
	spoil(&fixture, member, STRIPE_FIRST * BLOCK + 3 * BLOCK, BLOCK);
	assert_int_equal(disk_array_parity(fixture.disk, block, fixture.body, false, &parity), 0);
	assert_int_equal(parity.wrong, 1);
	assert_int_equal(disk_array_parity(fixture.disk, block, fixture.body, true, &parity), 0);
	assert_int_equal(parity.wrong, 1);
	assert_int_equal(disk_array_parity(fixture.disk, block, fixture.body, true, &parity), 0);
	assert_int_equal(parity.wrong, 0);
	/* A member's wrong data does not make it wrong. */
	spoil(&fixture, STRIPE_FIRST / 256 % 6, STRIPE_FIRST * BLOCK, BLOCK);
	assert_int_equal(disk_array_parity(fixture.disk, block, fixture.body, true, &parity), 0);
	assert_int_equal(parity.wrong, 0);
	stripe_put(&fixture, STRIPE_FIRST, 256);
	/* It replaces two lost shards. */
	array_reopen(&fixture, 1ull << ((member + 1) % 6) | 1ull << ((member + 2) % 6), 0);
	stripe_expect(&fixture, STRIPE_FIRST, 256);
	fixture_end(&fixture);
}

static void test_a_member_comes_back(void **state)
{
	struct fixture fixture;
	struct disk *disk;
	uint64_t bytes;

	(void)state;
	fixture_init(&fixture, 4, 2);
	disk = disk_array_member(fixture.disk, 1);
	assert_int_equal(disk_array_return(fixture.disk, 1, disk), -EBUSY);
	disk_array_fail(fixture.disk, 1, -ENOTCONN);
	assert_int_equal(disk_array_lost(fixture.disk), 2);
	stripe_put(&fixture, STRIPE_FIRST, 256);
	/* The array grew while it was away. */
	bytes = disk_bytes(fixture.disk);
	assert_int_equal(disk_grow(fixture.disk, 2 * bytes), 0);
	assert_int_equal(disk_array_return(fixture.disk, 1, disk), -ERANGE);
	assert_int_equal(disk_grow(disk, 2 * bytes), 0);
	assert_int_equal(disk_array_return(fixture.disk, 1, disk), 0);
	assert_int_equal(disk_array_state(fixture.disk, 1), DISK_MEMBER_REBUILDING);
	assert_int_equal(disk_array_changes(fixture.disk), 2);
	assert_int_equal(disk_array_rebuild(fixture.disk, disk_stripe(STRIPE_FIRST, 256, 0), 1,
				 fixture.body, NULL),
		0);
	disk_array_heal(fixture.disk, 1);
	assert_int_equal(disk_array_lost(fixture.disk), 0);
	disk_array_fail(fixture.disk, 0, -EIO);
	disk_array_fail(fixture.disk, 2, -EIO);
	stripe_expect(&fixture, STRIPE_FIRST, 256);
	fixture_end(&fixture);
}

/* Too many members are gone; then some come back. */
static void test_members_are_regained(void **state)
{
	struct fixture fixture;

	(void)state;
	fixture_init(&fixture, 4, 2);
	stripe_put(&fixture, STRIPE_FIRST, 256);
	for (uint32_t i = 1; i < 5; i++)
		disk_array_fail(fixture.disk, i, -ENOTCONN);
	assert_false(disk_array_quorum(fixture.disk));
	disk_suspend(fixture.disk);
	assert_int_equal(disk_write_now(fixture.disk, fixture.body, BLOCK, 0), -EHOSTDOWN);
	disk_array_regain(fixture.disk, 0x0c);
	assert_int_equal(disk_array_lost(fixture.disk), 0x12);
	assert_true(disk_array_quorum(fixture.disk));
	stripe_expect(&fixture, STRIPE_FIRST, 256);
	assert_int_equal(disk_write_now(fixture.disk, fixture.body, BLOCK, 0), -EHOSTDOWN);
	disk_resume(fixture.disk);
	assert_int_equal(disk_write_now(fixture.disk, fixture.body, BLOCK, 0), 0);
	/* A fence is permanent. */
	disk_fence(fixture.disk);
	disk_suspend(fixture.disk);
	disk_resume(fixture.disk);
	assert_int_equal(disk_write_now(fixture.disk, fixture.body, BLOCK, 0), -EIO);
	fixture_end(&fixture);
}

static void test_members_are_rebuilt(void **state)
{
	struct fixture fixture;

	(void)state;
	fixture_init(&fixture, 4, 2);
	for (uint32_t i = 0; i < ARRAY_LEN(LENGTHS) - 2; i++)
		stripe_put(&fixture, STRIPE_FIRST + i * 16, LENGTHS[i]);
	for (uint32_t m = 0; m < 2; m++) {
		char path[600];

		snprintf(path, sizeof(path), "%s/m%u", fixture.dir, m * 3);
		unlink(path);
	}
	array_reopen(&fixture, 0, 0x9);
	for (uint32_t i = 0; i < ARRAY_LEN(LENGTHS) - 2; i++) {
		uint64_t block = disk_stripe(STRIPE_FIRST + i * 16, LENGTHS[i], 0);

		stripe_expect(&fixture, STRIPE_FIRST + i * 16, LENGTHS[i]);
		assert_int_equal(disk_array_rebuild(fixture.disk, block, 0, fixture.body, NULL), 0);
		assert_int_equal(disk_array_rebuild(fixture.disk, block, 3, fixture.body, NULL), 0);
	}
	disk_array_heal(fixture.disk, 0);
	disk_array_heal(fixture.disk, 3);
	assert_int_equal(disk_array_lost(fixture.disk), 0);
	array_reopen(&fixture, 0x6, 0);
	for (uint32_t i = 0; i < ARRAY_LEN(LENGTHS) - 2; i++)
		stripe_expect(&fixture, STRIPE_FIRST + i * 16, LENGTHS[i]);
	/* A missing member is neither healed nor rebuilt. */
	disk_array_heal(fixture.disk, 1);
	assert_int_equal(disk_array_state(fixture.disk, 1), DISK_MEMBER_MISSING);
	assert_int_equal(disk_array_rebuild(fixture.disk, disk_stripe(STRIPE_FIRST, 256, 0), 1,
				 fixture.body, NULL),
		-EIO);
	fixture_end(&fixture);
}

/* Of a member whose blocks are all of one byte: which were written. */
static void columns_expect(
	const struct fixture *fixture, uint32_t member, uint32_t from, uint32_t to)
{
	struct disk *disk = disk_array_member(fixture->disk, member);

	assert_int_equal(
		disk_read_now(disk, fixture->got, 64 * BLOCK, (uint64_t)STRIPE_FIRST * BLOCK), 0);
	for (uint32_t c = 0; c < 64; c++) {
		const uint8_t *block = fixture->got + (uint64_t)c * BLOCK;
		bool stays = block[0] == 0x77 && memcmp(block, block + 1, BLOCK - 1) == 0;

		assert_int_equal(stays, c >= from && c < to);
	}
}

/* A rebuild does not write over what depends on data that may be wrong. */
static void test_doubtful_parts_are_not_written(void **state)
{
	uint64_t block = disk_stripe(STRIPE_FIRST, 256, 0);
	bool wrong[DISK_STRIPE_BLOCKS_MAX] = {false};
	struct fixture fixture;
	uint32_t turn = STRIPE_FIRST / 256 % 6;

	(void)state;
	fixture_init(&fixture, 4, 2);
	stripe_put(&fixture, STRIPE_FIRST, 256);
	/* Of the second shard's blocks. */
	for (uint32_t c = 16; c < 32; c++)
		wrong[64 + c] = true;
	for (uint32_t s = 0; s < 6; s++) {
		uint32_t member = (turn + s) % 6;

		array_reopen(&fixture, 0, 1ull << member);
		spoil(&fixture, member, (uint64_t)STRIPE_FIRST * BLOCK, 64 * BLOCK);
		assert_int_equal(
			disk_array_rebuild(fixture.disk, block, member, fixture.body, wrong), 0);
		columns_expect(
			&fixture, member, s == 1 || s >= 4 ? 16 : 0, s == 1 || s >= 4 ? 32 : 0);
		assert_int_equal(
			disk_array_rebuild(fixture.disk, block, member, fixture.body, NULL), 0);
		columns_expect(&fixture, member, 0, 0);
	}
	array_reopen(&fixture, 0, 0);
	stripe_expect(&fixture, STRIPE_FIRST, 256);
	fixture_end(&fixture);
}

/* ---- Members that are larger than a stripe's address reaches. They hold only their last block
 * below the limit, and everything else reads as zeros. ---- */

#define HUGE_BYTES (DISK_ARRAY_BYTES_MAX + 1024ull * GIB)
#define HUGE_LAST  (DISK_ARRAY_BYTES_MAX - BLOCK)

struct huge {
	uint8_t last[BLOCK];
	uint64_t grown_to;
};
static struct huge huges[3];

static void huge_identify(struct disk_identity *identity)
{
	*identity = (struct disk_identity){.bytes = HUGE_BYTES,
		.medium_bytes = HUGE_BYTES,
		.align = BLOCK,
		.can_grow = true,
		.what = "huge"};
}

static int huge_open(void *arg, const struct disk_opts *opts, struct disk_identity *ret_identity,
	void **ret_volume)
{
	(void)arg;
	huge_identify(ret_identity);
	*ret_volume = &huges[opts->path[strlen(opts->path) - 1] - '0'];
	return 0;
}

static void huge_close(void *volume)
{
	(void)volume;
}

static int huge_now(void *volume, enum disk_op op, void *data, uint64_t bytes, uint64_t offset)
{
	struct huge *huge = (struct huge *)volume;

	if (op == DISK_READ) {
		memset(data, 0, bytes);
		if (offset == HUGE_LAST)
			memcpy(data, huge->last, BLOCK);
	} else if (op == DISK_WRITE) {
		assert_int_equal(offset, HUGE_LAST);
		assert_int_equal(bytes, BLOCK);
		memcpy(huge->last, data, BLOCK);
	}
	return 0;
}

static int huge_grow(void *volume, uint64_t bytes_total, struct disk_identity *ret_identity)
{
	((struct huge *)volume)->grown_to = bytes_total;
	huge_identify(ret_identity);
	ret_identity->bytes = bytes_total;
	return 0;
}

static bool huge_gone(void *volume)
{
	(void)volume;
	return false;
}

static const struct disk_driver HUGE_DRIVER = {.scheme = "huge://",
	.name = "huge",
	.open = huge_open,
	.close = huge_close,
	.now = huge_now,
	.grow = huge_grow,
	.gone = huge_gone};

static void test_a_huge_member_is_used_as_far_as_addresses_reach(void **state)
{
	struct disk_array_opts opts = {.data = 2, .parity = 1, .name = "array"};
	uint64_t last = disk_stripe(DISK_ARRAY_BYTES_MAX / BLOCK - 1, 2, 1), offset;
	uint8_t body[2 * BLOCK], got[2 * BLOCK];
	struct disk *disk;

	(void)state;
	memset(huges, 0, sizeof(huges));
	disk_driver_add(&HUGE_DRIVER);
	for (uint32_t i = 0; i < 3; i++) {
		static const char *const PATHS[] = {"huge://0", "huge://1", "huge://2"};
		struct disk_opts member = {.path = PATHS[i], .step_bytes = STEP};

		assert_int_equal(disk_open(&member, &opts.members[i]), 0);
		assert_int_equal(disk_bytes(opts.members[i]), HUGE_BYTES);
	}
	assert_int_equal(disk_array_open(&opts, &disk), 0);
	assert_int_equal(disk_bytes(disk), DISK_ARRAY_BYTES_MAX);
	/* The array would not grow the members, whose space it could not name. */
	assert_int_equal(disk_grow(disk, HUGE_BYTES + STEP), -ENOSPC);
	assert_int_equal(huges[0].grown_to, 0);
	assert_int_equal(disk_bytes(disk), DISK_ARRAY_BYTES_MAX);
	/* The last stripe keeps its address, and its bytes. */
	assert_int_equal(disk_stripe_first(last), DISK_ARRAY_BYTES_MAX / BLOCK - 1);
	assert_int_equal(disk_stripe_blocks(last), 2);
	assert_int_equal(disk_stripe_slot(last), 1);
	offset = disk_stripe(DISK_ARRAY_BYTES_MAX / BLOCK - 1, 2, 0) * BLOCK;
	memset(body, 'a', BLOCK);
	memset(body + BLOCK, 'b', BLOCK);
	assert_int_equal(disk_write_now(disk, body, sizeof(body), offset), 0);
	assert_int_equal(disk_read_now(disk, got, sizeof(got), offset), 0);
	assert_memory_equal(got, body, sizeof(body));
	disk_close(disk);
	disk_driver_remove(&HUGE_DRIVER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_loss_is_made_good),
		cmocka_unit_test(test_too_much_is_too_much),
		cmocka_unit_test(test_mirrors),
		cmocka_unit_test(test_a_failed_write_gives_a_member_up),
		cmocka_unit_test(test_lies_are_found_and_mended),
		cmocka_unit_test(test_members_under_rebuild_are_read_last),
		cmocka_unit_test(test_parity_is_held_against_data),
		cmocka_unit_test(test_a_member_comes_back),
		cmocka_unit_test(test_members_are_regained),
		cmocka_unit_test(test_members_are_rebuilt),
		cmocka_unit_test(test_doubtful_parts_are_not_written),
		cmocka_unit_test(test_a_huge_member_is_used_as_far_as_addresses_reach),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
