/* tests/unit/store/test_damage.c: a full volume, a failing medium, changed bytes, a torn last
 * group: clean errors, and no other data is harmed. */
#include "../counted.h"
#include "rig.h"

#include "store/store_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- A full volume. ---- */

static void full_run(struct rig *rig, void *arg)
{
	uint32_t stored = 0;
	char key[32];
	int ret;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (;;) {
		snprintf(key, sizeof(key), "%u", stored);
		ret = object_put_seeded(rig, "b", slice_str(key), 700 * KIB, stored, NULL);
		if (ret)
			break;
		stored++;
	}
	assert_int_equal(ret, -ENOSPC);
	assert_true(stored >= 30 && stored < 60);
	/* Small bodies still fit the remaining space, then none; inline ones need no space on the
	 * volume. */
	for (uint32_t i = 0; !(ret = object_put_seeded(rig, "b", SLICE("small"), 60000, i, NULL));
		i++) {
		snprintf(key, sizeof(key), "s%u", i);
		ret = object_put_seeded(rig, "b", slice_str(key), 60000, i, NULL);
		if (ret)
			break;
	}
	assert_int_equal(ret, -ENOSPC);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("inline"), 1000, 5, NULL), 0);
	for (uint32_t i = 0; i < stored; i++) {
		snprintf(key, sizeof(key), "%u", i);
		assert_int_equal(object_verify_seeded(rig, "b", slice_str(key), 700 * KIB, i), 0);
	}
	/* Deleted objects make room. */
	for (uint32_t i = 0; i < 4; i++) {
		snprintf(key, sizeof(key), "%u", i * 5);
		assert_int_equal(
			store_delete(rig->store, SLICE("b"), slice_str(key), NULL, NULL), 0);
	}
	for (ret = -ENOSPC; ret == -ENOSPC; fiber_yield()) /* when the index has the deletions */
		ret = object_put_seeded(rig, "b", SLICE("again"), 2 * MIB, 99, NULL);
	assert_int_equal(ret, 0);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("again"), 2 * MIB, 99), 0);
}

static void fsck_expect(const struct rig *rig, int wanted, struct store_fsck_report *ret_report)
{
	struct buf out;

	buf_init(&out, MIB);
	assert_int_equal(store_fsck(rig->dir, true, ret_report, &out), wanted);
	assert_int_equal(out.len == 0, wanted == 0);
	buf_free(&out);
}

static void test_a_full_volume_refuses_and_harms_nothing(void **state)
{
	struct store_fsck_report report;
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.log_bytes = 1 * MIB;
	rig.opts.step_bytes = 8 * MIB;
	rig.opts.volume_bytes_max = 32 * MIB;
	rig_run(&rig, full_run, NULL);
	fsck_expect(&rig, 0, &report);
	rig_dir_remove(&rig);
}

static void grow_fails_run(struct rig *rig, void *arg)
{
	int ret = 0;
	char key[32];

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t i = 0; !ret; i++) {
		snprintf(key, sizeof(key), "%u", i);
		ret = object_put_seeded(rig, "b", slice_str(key), MIB, i, NULL);
	}
	assert_int_equal(ret, -ENOSPC);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("0"), MIB, 0), 0);
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("0"), NULL, NULL), 0);
}

/* A volume of 4 KiB bodies, every other one deleted: half is free, and no two blocks of it touch.
 */
static void broken_up_run(struct rig *rig, void *arg)
{
	uint32_t stored = 0;
	char key[32];
	int ret;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (;; stored++) {
		snprintf(key, sizeof(key), "%u", stored);
		if (object_put_seeded(rig, "b", slice_str(key), 4096, stored, NULL))
			break;
	}
	assert_true(stored > 500);
	for (uint32_t i = 0; i < stored; i += 2) {
		snprintf(key, sizeof(key), "%u", i);
		assert_int_equal(
			store_delete(rig->store, SLICE("b"), slice_str(key), NULL, NULL), 0);
	}
	for (ret = -ENOSPC; ret == -ENOSPC; fiber_yield())
		ret = object_put_seeded(rig, "b", SLICE("grouped"), 65536, 1, NULL);
	assert_int_equal(ret, 0);
	for (ret = -ENOSPC; ret == -ENOSPC; fiber_yield())
		ret = object_put_seeded(rig, "b", SLICE("chunk"), 900 * KIB, 2, NULL);
	assert_int_equal(ret, 0);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("grouped"), 65536, 1), 0);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("chunk"), 900 * KIB, 2), 0);
}

static void broken_up_verify(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("grouped"), 65536, 1), 0);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("chunk"), 900 * KIB, 2), 0);
}

static void test_a_broken_up_volume_can_be_used_to_the_end(void **state)
{
	struct store_fsck_report report;
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.log_bytes = 1 * MIB;
	rig.opts.step_bytes = 2 * MIB;
	rig.opts.volume_bytes_max = 6 * MIB;
	rig_run(&rig, broken_up_run, NULL);
	fsck_expect(&rig, 0, &report);
	rig_run(&rig, broken_up_verify, NULL);
	rig_dir_remove(&rig);
}

/* How many times the data folder was found without room. */
static uint64_t folder_full(void)
{
	return counted_with(COUNTER_FULL, "what=\"data_folder\"");
}

static void reserve_run(struct rig *rig, void *arg)
{
	uint64_t before = folder_full();

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("k"), 10, 1, NULL), -ENOSPC);
	assert_int_equal(folder_full() - before, 1);
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("k"), NULL, NULL), 0);
	assert_int_equal(folder_full() - before, 1);
}

static void index_full_run(struct rig *rig, void *arg)
{
	uint64_t before = folder_full();

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	rig_index_wait(rig);
	atomic_store(&rig->store->index_full, true);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("k"), 10, 1, NULL), -ENOSPC);
	assert_int_equal(folder_full() - before, 1);
	assert_int_equal(bucket_make(rig->store, "c"), -ENOSPC);
	assert_int_equal(folder_full() - before, 2);
	assert_false(store_cut_off(rig->store));
	atomic_store(&rig->store->index_full, false);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("k"), 10, 1, NULL), 0);
	assert_int_equal(folder_full() - before, 2);
}

static void test_a_full_file_system_refuses(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.disk_faults = "enospc_at=33554432";
	rig_run(&rig, grow_fails_run, NULL);
	rig_dir_remove(&rig);
	rig_init(&rig, 1);
	rig.opts.reserve_bytes = 1ull << 60;
	rig_run(&rig, reserve_run, NULL);
	rig_dir_remove(&rig);
	rig_once(index_full_run, NULL);
}

/* ---- A failing medium. ---- */

struct failing {
	uint32_t stored; /* acknowledged */
	uint32_t tried;
};

static void failing_run(struct rig *rig, void *arg)
{
	struct failing *failing = (struct failing *)arg;
	char key[32];
	int ret = 0;

	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (failing->stored = 0; !ret; failing->stored += !ret) {
		snprintf(key, sizeof(key), "%u", failing->stored);
		ret = object_put_seeded(rig, "b", slice_str(key), failing->stored % 3 * 4000,
			failing->stored + 1, NULL);
	}
	assert_int_equal(ret, -EIO);
	/* From now on nothing is written; objects in memory can be read. */
	assert_int_equal(object_put_seeded(rig, "b", SLICE("x"), 10, 1, NULL), -EIO);
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("0"), NULL, NULL), -EIO);
	assert_int_equal(bucket_make(rig->store, "c"), -EIO);
	for (uint32_t i = 0; i < failing->stored; i++) {
		snprintf(key, sizeof(key), "%u", i);
		assert_int_equal(
			object_verify_seeded(rig, "b", slice_str(key), i % 3 * 4000, i + 1), 0);
	}
}

static void failed_verify(struct rig *rig, void *arg)
{
	const struct failing *failing = (const struct failing *)arg;
	char key[32];

	for (uint32_t i = 0; i < failing->stored; i++) {
		snprintf(key, sizeof(key), "%u", i);
		assert_int_equal(
			object_verify_seeded(rig, "b", slice_str(key), i % 3 * 4000, i + 1), 0);
	}
	assert_int_equal(object_put_seeded(rig, "b", SLICE("x"), 10, 1, NULL), 0);
}

static void test_a_failing_medium_is_fenced(void **state)
{
	static const char *const FAULTS[] = {
		"eio_after=40", "seed=3,torn=0.05", "seed=2,eio=0.02", "seed=4,torn=0.02"};

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(FAULTS); i++) {
		struct store_fsck_report report;
		struct failing failing = {0};
		struct rig rig;

		rig_init(&rig, 1);
		rig.opts.disk_faults = FAULTS[i];
		rig_run(&rig, failing_run, &failing);
		/* On an intact disk all acknowledged objects exist. */
		rig.opts.disk_faults = NULL;
		fsck_expect(&rig, 0, &report);
		rig_run(&rig, failed_verify, &failing);
		rig_dir_remove(&rig);
	}
}

/* ---- Changed bytes. ---- */

#define VICTIM_BYTES (300 * KIB)

struct victim {
	uint64_t volume_offset;
};

static void victim_put(struct rig *rig, void *arg)
{
	struct victim *victim = (struct victim *)arg;
	struct store_get *get;
	uint64_t place;
	bool exists;

	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("good"), VICTIM_BYTES, 1, NULL), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("bad"), VICTIM_BYTES, 2, NULL), 0);
	assert_int_equal(store_get_open(rig->store, SLICE("b"), SLICE("bad"), &get, &exists), 0);
	assert_int_equal(rig_place(get, 128 * KIB, &place), 0);
	victim->volume_offset = place + 77;
	store_get_close(get);
}

static void victim_read(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("good"), VICTIM_BYTES, 1), 0);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("bad"), VICTIM_BYTES, 2), -EIO);
	/* A failed read does not stop writes. */
	assert_int_equal(object_put_seeded(rig, "b", SLICE("bad"), VICTIM_BYTES, 3, NULL), 0);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("bad"), VICTIM_BYTES, 3), 0);
}

static void volume_flip(const struct rig *rig, uint64_t offset)
{
	char path[600];
	uint8_t byte;
	int fd;

	snprintf(path, sizeof(path), "%s/volume", rig->dir);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, (off_t)offset), 1);
	byte ^= 0x10;
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)offset), 1);
	assert_int_equal(fsync(fd), 0);
	close(fd);
}

static void test_a_changed_byte_is_found(void **state)
{
	struct store_fsck_report report;
	struct victim victim;
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig_run(&rig, victim_put, &victim);
	fsck_expect(&rig, 0, &report);
	assert_int_equal(report.objects, 2);
	assert_int_equal(report.bytes, 2 * VICTIM_BYTES);
	volume_flip(&rig, victim.volume_offset);
	fsck_expect(&rig, -EUCLEAN, &report);
	assert_int_equal(report.bad_checksums, 1);
	assert_int_equal(report.bad_records, 0);
	rig_run(&rig, victim_read, NULL);
	fsck_expect(&rig, 0, &report);
	rig_dir_remove(&rig);
}

/* ---- A truncated volume. ---- */

static void steps_put(struct rig *rig, void *arg)
{
	char key[32];

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t i = 0; i < 8; i++) {
		snprintf(key, sizeof(key), "%u", i);
		assert_int_equal(object_put_seeded(rig, "b", slice_str(key), MIB, i, NULL), 0);
	}
}

static void steps_verify(struct rig *rig, void *arg)
{
	char key[32];

	(void)arg;
	for (uint32_t i = 0; i < 8; i++) {
		snprintf(key, sizeof(key), "%u", i);
		assert_int_equal(object_verify_seeded(rig, "b", slice_str(key), MIB, i), 0);
	}
}

static void steps_delete(struct rig *rig, void *arg)
{
	char key[32];

	(void)arg;
	for (uint32_t i = 0; i < 8; i++) {
		snprintf(key, sizeof(key), "%u", i);
		assert_int_equal(
			store_delete(rig->store, SLICE("b"), slice_str(key), NULL, NULL), 0);
	}
}

static void test_a_volume_that_is_one_block_short(void **state)
{
	struct store_fsck_report report;
	char path[600], way[800];
	struct rig rig;
	struct stat info;
	struct buf out;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.log_bytes = 1 * MIB;
	rig.opts.step_bytes = 2 * MIB;
	rig_run(&rig, steps_put, NULL);
	fsck_expect(&rig, 0, &report);
	snprintf(path, sizeof(path), "%s/volume", rig.dir);
	assert_int_equal(stat(path, &info), 0);
	/* The last block is free, so no object shows that it is gone. */
	assert_int_equal(truncate(path, info.st_size - 4096), 0);
	buf_init(&out, MIB);
	assert_int_equal(store_fsck(rig.dir, true, &report, &out), -EUCLEAN);
	snprintf(way, sizeof(way), "truncate -s %lld %s", (long long)info.st_size, path);
	assert_non_null(memmem(out.data, out.len, way, strlen(way)));
	buf_free(&out);
	rig_run(&rig, steps_verify, NULL);
	assert_int_equal(rig.open_result, -EUCLEAN);
	assert_int_equal(truncate(path, info.st_size), 0);
	fsck_expect(&rig, 0, &report);
	rig_run(&rig, steps_verify, NULL);
	assert_int_equal(rig.open_result, 0);
	rig_dir_remove(&rig);
}

/* After a crash the volume's length is not recorded: the objects show it. */
static void test_a_volume_that_lacks_a_step_is_refused(void **state)
{
	struct store_fsck_report report;
	char path[600], space[600];
	struct rig rig;
	struct stat info;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.log_bytes = 1 * MIB;
	rig.opts.step_bytes = 2 * MIB;
	rig_run(&rig, steps_put, NULL);
	snprintf(path, sizeof(path), "%s/volume", rig.dir);
	snprintf(space, sizeof(space), "%s/space", rig.dir);
	assert_int_equal(unlink(space), 0);
	assert_int_equal(stat(path, &info), 0);
	assert_int_equal(truncate(path, info.st_size - (off_t)(4 * MIB)), 0);
	rig_run(&rig, steps_verify, NULL);
	assert_int_equal(rig.open_result, -EUCLEAN);
	fsck_expect(&rig, -EUCLEAN, &report);
	assert_true(report.bad_records > 0);
	/* If the file is extended again, only the objects that were there are lost. */
	assert_int_equal(truncate(path, info.st_size), 0);
	rig_run(&rig, steps_delete, NULL);
	assert_int_equal(rig.open_result, 0);
	fsck_expect(&rig, 0, &report);
	rig_dir_remove(&rig);
}

/* One of several volumes: the others rebuild it after it is no longer a member. */
static void test_a_volume_of_a_set_that_lacks_a_step_is_refused(void **state)
{
	char volumes[2048], path[600];
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.log_bytes = 1 * MIB;
	rig.opts.step_bytes = 2 * MIB;
	rig.opts.erasure_data = 2;
	rig.opts.erasure_parity = 1;
	snprintf(volumes, sizeof(volumes), "%s/m0,%s/m1,%s/m2", rig.dir, rig.dir, rig.dir);
	rig.opts.volume = volumes;
	rig_run(&rig, steps_put, NULL);
	assert_int_equal(rig.open_result, 0);
	snprintf(path, sizeof(path), "%s/m1", rig.dir);
	assert_int_equal(truncate(path, (off_t)(4 * MIB)), 0);
	rig_run(&rig, steps_verify, NULL);
	assert_int_equal(rig.open_result, -EUCLEAN);
	assert_int_equal(truncate(path, 0), 0);
	rig_run(&rig, steps_verify, NULL);
	assert_int_equal(rig.open_result, 0);
	rig_dir_remove(&rig);
}

/* ---- A volume and an index that do not belong together. ---- */

static void bucket_run(struct rig *rig, void *arg)
{
	int ret = bucket_make(rig->store, "b");

	(void)arg;
	assert_true(ret == 0 || ret == -EEXIST);
}

static void shell(const char *format, const char *a, const char *b)
{
	char command[2048];

	snprintf(command, sizeof(command), format, a, b);
	assert_int_equal(system(command), 0);
}

static void test_parts_of_two_stores_are_refused(void **state)
{
	struct rig rig, other;

	(void)state;
	rig_init(&rig, 1);
	rig_init(&other, 1);
	rig_run(&rig, bucket_run, NULL);
	rig_run(&other, bucket_run, NULL);
	/* No volume: the index stays as it is. */
	shell("mv '%s/volume' '%s/kept'", rig.dir, rig.dir);
	rig_run(&rig, bucket_run, NULL);
	assert_int_equal(rig.open_result, -EUCLEAN);
	/* Another store's volume. */
	shell("cp '%s/volume' '%s/volume'", other.dir, rig.dir);
	rig_run(&rig, bucket_run, NULL);
	assert_int_equal(rig.open_result, -EUCLEAN);
	/* Its own volume: accepted. */
	shell("mv '%s/kept' '%s/volume'", rig.dir, rig.dir);
	rig_run(&rig, bucket_run, NULL);
	assert_int_equal(rig.open_result, 0);
	/* No index. */
	shell("rm -r '%s/index' && test -d '%s'", rig.dir, rig.dir);
	rig_run(&rig, bucket_run, NULL);
	assert_int_equal(rig.open_result, -EUCLEAN);
	rig_dir_remove(&rig);
	rig_dir_remove(&other);
}

/* ---- Two rows that name the same blocks. ---- */

#define SHARED_BYTES (200 * KIB)

/* The row's value; the key becomes its own. */
static char *row_of(struct rig *rig, const char *prefix, struct key *key, size_t *ret_len)
{
	struct index_walk *walk;
	struct slice row, value;
	char *copy;

	assert_int_equal(index_walk_open(rig->store->index, SLICE("O"), SLICE("P"), &walk), 0);
	while (index_walk_get(walk, &row, &value) && !slice_ends(row, slice_str(prefix)))
		index_walk_next(walk);
	assert_true(index_walk_get(walk, &row, &value));
	key->len = (uint32_t)row.len;
	memcpy(key->bytes, row.data, row.len);
	copy = (char *)malloc(value.len);
	assert_non_null(copy);
	memcpy(copy, value.data, value.len);
	*ret_len = value.len;
	index_walk_close(walk);
	return copy;
}

/* The row of "two" becomes a copy of the one of "one". */
static void rows_share(struct rig *rig, void *arg)
{
	struct state_record state;
	struct key one, two;
	struct group *group;
	size_t one_len, two_len;
	char *value, *other;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("b-one"), SHARED_BYTES, 1, NULL), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("b-two"), SHARED_BYTES, 2, NULL), 0);
	rig_index_wait(rig);
	value = row_of(rig, "b-one", &one, &one_len);
	other = row_of(rig, "b-two", &two, &two_len);
	assert_int_equal(index_state_read(rig->store->index, &state), 0);
	assert_int_equal(group_open(&group), 0);
	assert_int_equal(group_reserve(group, MUTATION_BYTES(two.len, one_len), 0), 0);
	memcpy(group_add(group, MUTATION_PUT, 0, &two, one_len), value, one_len);
	assert_int_equal(
		index_write_group(rig->store->index, slice_of(group->bytes, group->len), &state),
		0);
	assert_int_equal(index_flush(rig->store->index), 0);
	group_close(group);
	free(value);
	free(other);
}

static void shared_look(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("b-one"), SHARED_BYTES, 1), 0);
}

/* Both go, and nobody else loses blocks by that. */
static void shared_delete(struct rig *rig, void *arg)
{
	static const char *const keys[] = {"b-one", "b-two"};
	char key[32];

	(void)arg;
	for (uint32_t i = 0; i < ARRAY_LEN(keys); i++) {
		assert_int_equal(
			store_delete(rig->store, SLICE("b"), slice_str(keys[i]), NULL, NULL), 0);
		rig_index_wait(rig);
		for (uint32_t o = 0; o < 8; o++) {
			snprintf(key, sizeof(key), "other-%u-%u", i, o);
			assert_int_equal(object_put_seeded(rig, "b", slice_str(key), SHARED_BYTES,
						 10 * i + o, NULL),
				0);
		}
	}
	for (uint32_t i = 0; i < 16; i++) {
		snprintf(key, sizeof(key), "other-%u-%u", i / 8, i % 8);
		assert_int_equal(object_verify_seeded(rig, "b", slice_str(key), SHARED_BYTES,
					 10 * (i / 8) + i % 8),
			0);
	}
}

static void look_at_nothing(struct rig *rig, void *arg)
{
	(void)rig;
	(void)arg;
}

static void run_opened(struct rig *rig, rig_fn *fn)
{
	rig_run(rig, fn, NULL);
	assert_int_equal(rig->open_result, 0);
}

/* A start finds it, and so does every later one: a clean end does not make it forgotten. */
static void test_blocks_of_two_objects(void **state)
{
	struct store_fsck_report report;
	char space[600];
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	run_opened(&rig, rows_share);
	snprintf(space, sizeof(space), "%s/space", rig.dir);
	assert_int_equal(unlink(space), 0); /* as after kill -9 */
	fsck_expect(&rig, -EUCLEAN, &report);
	assert_true(report.overlaps > 0);
	run_opened(&rig, shared_look);
	assert_int_equal(access(space, F_OK), -1);
	run_opened(&rig, shared_delete);
	/* Without the rows it is mended. */
	run_opened(&rig, look_at_nothing);
	assert_int_equal(access(space, F_OK), 0);
	rig_fsck(&rig);
	rig_dir_remove(&rig);
}

static void test_fsck_of_no_store(void **state)
{
	struct store_fsck_report report;
	struct rig rig;
	struct buf out;

	(void)state;
	rig_init(&rig, 1);
	buf_init(&out, 4096);
	assert_int_equal(store_fsck(rig.dir, true, &report, &out), -ENOENT);
	assert_true(out.len > 0);
	buf_free(&out);
	rig_dir_remove(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_full_volume_refuses_and_harms_nothing),
		cmocka_unit_test(test_a_broken_up_volume_can_be_used_to_the_end),
		cmocka_unit_test(test_a_full_file_system_refuses),
		cmocka_unit_test(test_a_failing_medium_is_fenced),
		cmocka_unit_test(test_a_changed_byte_is_found),
		cmocka_unit_test(test_a_volume_that_is_one_block_short),
		cmocka_unit_test(test_a_volume_that_lacks_a_step_is_refused),
		cmocka_unit_test(test_a_volume_of_a_set_that_lacks_a_step_is_refused),
		cmocka_unit_test(test_parts_of_two_stores_are_refused),
		cmocka_unit_test(test_blocks_of_two_objects),
		cmocka_unit_test(test_fsck_of_no_store),
	};

	return cmocka_run_group_tests_name("damage", tests, NULL, NULL);
}
