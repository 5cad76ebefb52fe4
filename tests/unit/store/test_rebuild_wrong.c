/* tests/unit/store/test_rebuild_wrong.c: a rebuild when other volumes have wrong bytes, or sectors
 * that cannot be read, and when a rebuilt volume fails. */
#include "memory_disk.h"
#include "rig.h"

#include <errno.h>
#include <string.h>

#include "store/store_priv.h"

/* ---- Two volumes come back, and a third one has lost a piece: what it lacks is on those two. ----
 */

#define BODY_BYTES  300001u /* several pieces, and a short end */
#define OTHER_BYTES 70000u

struct returned {
	uint32_t rebuilt; /* one bit each */
	uint32_t blank;	  /* of these: one that was replaced */
	uint32_t rotten;  /* the volume that has lost a piece, and where */
	uint64_t at;
	uint32_t bodies_lost;
};

static void returned_open(struct rig *rig)
{
	rig_init(rig, 1);
	rig->opts.volume = "memory://0,memory://1,memory://2,memory://3,memory://4,memory://5";
	rig->opts.erasure_data = 4;
	rig->opts.erasure_parity = 2;
	memory_disks_open();
}

static void bodies_put(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(bucket_make(rig->store, "plain"), 0);
	assert_int_equal(object_put_seeded(rig, "plain", SLICE("k"), BODY_BYTES, 1, NULL), 0);
	assert_int_equal(object_put_seeded(rig, "plain", SLICE("o"), OTHER_BYTES, 2, NULL), 0);
}

/* They miss a body. */
static void returned_lose(struct rig *rig, void *arg)
{
	const struct returned *returned = (const struct returned *)arg;

	for (uint32_t left = returned->rebuilt; left; left &= left - 1)
		memory_disk_lose((uint32_t)__builtin_ctz(left));
	assert_int_equal(object_put_seeded(rig, "plain", SLICE("m"), OTHER_BYTES, 3, NULL), 0);
}

static void returned_verify(struct rig *rig, void *arg)
{
	const struct returned *returned = (const struct returned *)arg;

	assert_int_equal(disk_array_lost(rig->store->volume.disk), 0);
	assert_int_equal(object_verify_seeded(rig, "plain", SLICE("k"), BODY_BYTES, 1),
		returned->bodies_lost ? -EIO : 0);
	assert_int_equal(object_verify_seeded(rig, "plain", SLICE("o"), OTHER_BYTES, 2), 0);
	assert_int_equal(object_verify_seeded(rig, "plain", SLICE("m"), OTHER_BYTES, 3), 0);
}

static void returned_rebuild(struct rig *rig, void *arg)
{
	const struct returned *returned = (const struct returned *)arg;

	assert_int_equal(disk_array_lost(rig->store->volume.disk), returned->rebuilt);
	assert_int_equal(store_rebuild(rig->store), 0);
	assert_int_equal(disk_array_lost(rig->store->volume.disk), 0);
}

/* A store with a body, of which the first volume with its data will lose a piece. The others of the
 * mask are lost for a while, and back. */
static void returned_begin(struct rig *rig, struct returned *returned, uint32_t rebuilt)
{
	struct memory_disk *rotten;
	uint8_t body[4096];

	returned_open(rig);
	rig_run(rig, bodies_put, NULL);
	assert_int_equal(rig->open_result, 0);
	body_fill(body, sizeof(body), 1);
	rotten = memory_disk_find(body, sizeof(body), &returned->at);
	returned->rotten = (uint32_t)(rotten - memory_disk(0));
	/* The bits are counted from the volume that follows. */
	for (uint32_t i = 0; i < 6; i++)
		if (rebuilt >> i & 1)
			returned->rebuilt |= 1u << (returned->rotten + 1 + i) % 6;
	rig_run(rig, returned_lose, returned);
	assert_int_equal(rig->open_result, 0);
	for (uint32_t i = 0; i < 6; i++)
		memory_disk(i)->away = memory_disk(i)->lost = false;
	for (uint32_t left = returned->blank; left; left &= left - 1) {
		uint32_t i = (returned->rotten + 1 + (uint32_t)__builtin_ctz(left)) % 6;

		memory_disk_blank(i);
	}
}

/* The rebuilt parts also stand when others are lost, before any read mends the pieces: the rotten
 * volume, and the next one. */
static void returned_outlast(struct rig *rig, void *arg)
{
	const struct returned *returned = (const struct returned *)arg;
	uint32_t next = returned->rotten + 1;

	while (returned->rebuilt >> next % 6 & 1)
		next++;
	memory_disk_lose(next % 6);
	memory_disk_lose(returned->rotten);
	if (!returned->bodies_lost)
		assert_int_equal(object_verify_seeded(rig, "plain", SLICE("k"), BODY_BYTES, 1), 0);
	assert_int_equal(object_verify_seeded(rig, "plain", SLICE("o"), OTHER_BYTES, 2), 0);
	assert_int_equal(object_verify_seeded(rig, "plain", SLICE("m"), OTHER_BYTES, 3), 0);
}

static void returned_end(struct rig *rig, struct returned *returned)
{
	rig_run(rig, returned_rebuild, returned);
	assert_int_equal(rig->open_result, 0);
	rig_run(rig, returned_outlast, returned);
	assert_int_equal(rig->open_result, 0);
	memory_disks_close();
	rig_dir_remove(rig);
}

/* Which volumes come back, and which of them are blank. The last ones are the right ones of no
 * body. */
static const struct {
	uint32_t rebuilt, blank, bodies_lost;
} RETURNS[] = {
	{0x3, 0, 0}, {0x11, 0, 0}, {0x18, 0, 0}, {0x3, 0x1, 0}, {0x18, 0x10, 0}, {0x6, 0x6, 1}};

static void test_a_rebuild_keeps_the_last_right_shards(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(RETURNS); i++) {
		struct returned returned = {
			.blank = RETURNS[i].blank, .bodies_lost = RETURNS[i].bodies_lost};
		struct rig rig;

		returned_begin(&rig, &returned, RETURNS[i].rebuilt);
		memory_disk(returned.rotten)->memory[returned.at + 100] ^= 0xff;
		returned_end(&rig, &returned);
	}
}

/* A body that no way gives right is lost; the parts of the volumes under rebuild stay, because what
 * they have may still help to save it. */
static void test_a_rebuild_leaves_what_it_cannot_know(void **state)
{
	struct returned returned = {.bodies_lost = 1};
	uint8_t before[BLOCK_BYTES];
	struct rig rig;
	uint32_t other;

	(void)state;
	returned_begin(&rig, &returned, 0x3);
	other = (returned.rotten + 1) % 6;
	memory_disk(returned.rotten)->memory[returned.at + 100] ^= 0xff;
	for (uint32_t left = returned.rebuilt; left; left &= left - 1)
		memory_disk((uint32_t)__builtin_ctz(left))->memory[returned.at + 100] ^= 0xff;
	memcpy(before, memory_disk(other)->memory + returned.at, BLOCK_BYTES);
	rig_run(&rig, returned_rebuild, &returned);
	assert_int_equal(rig.open_result, 0);
	assert_memory_equal(before, memory_disk(other)->memory + returned.at, BLOCK_BYTES);
	rig_run(&rig, returned_verify, &returned);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

/* The same with a sector that cannot be read: once it is written it can be, or it takes no write.
 */
static void test_a_rebuild_passes_a_sector_that_fails(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 2 * ARRAY_LEN(RETURNS); i++) {
		struct returned returned = {
			.blank = RETURNS[i / 2].blank, .bodies_lost = RETURNS[i / 2].bodies_lost};
		struct memory_disk *rotten;
		struct rig rig;

		returned_begin(&rig, &returned, RETURNS[i / 2].rebuilt);
		rotten = memory_disk(returned.rotten);
		rotten->fail_at = returned.at + 100;
		rotten->fail_times = UINT32_MAX;
		if (i % 2) {
			rotten->stuck_at = rotten->fail_at;
			rotten->stuck_result = -EIO;
			rotten->fail_stays = true;
		}
		returned_end(&rig, &returned);
	}
}

/* ---- A rebuilt volume that fails a write. ---- */

static void failing_rebuild(struct rig *rig, void *arg)
{
	const struct returned *returned = (const struct returned *)arg;
	uint32_t failing = 1u << (returned->rotten + 1) % 6;
	struct disk *disk = rig->store->volume.disk;

	assert_int_equal(store_rebuild(rig->store), returned->rebuilt == failing ? -ENOTCONN : 0);
	assert_int_equal(disk_array_lost(disk), failing);
	assert_int_equal(disk_array_state(disk, (returned->rotten + 1) % 6), DISK_MEMBER_MISSING);
	/* Nothing is left to rebuild. */
	assert_int_equal(store_rebuild(rig->store), 0);
	assert_int_equal(object_verify_seeded(rig, "plain", SLICE("k"), BODY_BYTES, 1), 0);
}

static void test_a_rebuilt_volume_that_fails_is_given_up(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		struct returned returned = {0};
		struct memory_disk *failing;
		struct rig rig;

		returned_begin(&rig, &returned, i ? 0x3 : 0x1);
		failing = memory_disk((returned.rotten + 1) % 6);
		failing->stuck_at = returned.at + 100;
		failing->stuck_result = -EIO;
		rig_run(&rig, failing_rebuild, &returned);
		assert_int_equal(rig.open_result, 0);
		memory_disks_close();
		rig_dir_remove(&rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_rebuild_keeps_the_last_right_shards),
		cmocka_unit_test(test_a_rebuild_leaves_what_it_cannot_know),
		cmocka_unit_test(test_a_rebuild_passes_a_sector_that_fails),
		cmocka_unit_test(test_a_rebuilt_volume_that_fails_is_given_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
