/* tests/unit/store/test_backup.c: sessions of backups: what they read stays as it was, while all is
 * deleted and written anew; their ends; a store made from what was read, also after an end in the
 * middle, from damaged rows and bodies, and over another store. */
#include "memory_disk.h"
#include "rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/backup.h"
#include "store/space/space.h"
#include "store/store_priv.h"

#define COPY_BYTES (64 * MIB)

static const uint64_t SIZES[] = {0, 100, 5000, 70000, 3 * MIB + 7};

/* The copy that a session gave: rows, and the bodies of those that have one, in order. */
struct copy {
	struct store_backup_head head;
	struct buf rows, bodies;
};

static struct slice name_of(char key[16], size_t i)
{
	snprintf(key, 16, "key%zu", i);
	return slice_str(key);
}

static void fill(struct rig *rig, uint64_t seed)
{
	char key[16];

	for (size_t i = 0; i < ARRAY_LEN(SIZES); i++)
		assert_int_equal(
			object_put_seeded(rig, "b", name_of(key, i), SIZES[i], seed + i, NULL), 0);
}

static void verify(struct rig *rig, uint64_t seed)
{
	char key[16];

	for (size_t i = 0; i < ARRAY_LEN(SIZES); i++)
		assert_int_equal(
			object_verify_seeded(rig, "b", name_of(key, i), SIZES[i], seed + i), 0);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("joined"), 5 * MIB, seed + 100), 0);
}

/* The rows of all pages. */
static void rows_read(struct rig *rig, uint64_t id, struct buf *rows)
{
	struct store_backup_page head;
	struct buf page, cursor;

	buf_init(&page, 16 * MIB);
	buf_init(&cursor, 4 * KIB);
	do {
		struct slice rest;

		buf_reset(&page);
		assert_int_equal(store_backup_rows(rig->store, id, buf_slice(&cursor), &page), 0);
		memcpy(&head, page.data, sizeof(head));
		assert_memory_equal(head.magic, STORE_BACKUP_PAGE_MAGIC, sizeof(head.magic));
		rest = slice_from(buf_slice(&page), sizeof(head));
		buf_reset(&cursor);
		buf_put_slice(&cursor, slice_to(rest, head.cursor_len));
		buf_put_slice(rows, slice_from(rest, head.cursor_len));
	} while (head.cursor_len);
	assert_false(rows->failed);
	buf_free(&page);
	buf_free(&cursor);
}

static void bodies_read(struct rig *rig, uint64_t id, struct copy *copy)
{
	struct slice rest = buf_slice(&copy->rows), key, value;
	struct store_backup_row row;
	int more;

	while ((more = store_backup_row_next(&rest, &row, &key, &value)) == 1) {
		struct store_backup_part part = {.key = key, .bytes = row.bytes};

		for (; part.offset < row.bytes; part.offset += STORE_BACKUP_READ_BYTES)
			assert_int_equal(
				store_backup_read(rig->store, id, &part, 1, &copy->bodies), 0);
	}
	assert_int_equal(more, 0);
	assert_false(copy->bodies.failed);
}

/* The small bodies by one call, and more than one call may ask for. */
static void many_read(struct rig *rig, uint64_t id, const struct copy *copy)
{
	struct slice rest = buf_slice(&copy->rows), key, value;
	struct store_backup_part parts[STORE_BACKUP_PARTS_MAX + 1] = {0};
	struct store_backup_row row;
	struct buf small, all;
	uint64_t at = 0;
	uint32_t count = 0, large = 0;

	buf_init(&small, COPY_BYTES);
	buf_init(&all, COPY_BYTES);
	while (store_backup_row_next(&rest, &row, &key, &value) == 1) {
		if (row.bytes && row.bytes < MIB) {
			parts[count++] = (struct store_backup_part){.key = key, .bytes = row.bytes};
			buf_put(&small, copy->bodies.data + at, row.bytes);
		}
		large += row.bytes >= MIB;
		at += row.bytes;
	}
	assert_true(count >= 2 && large);
	assert_int_equal(store_backup_read(rig->store, id, parts, count, &all), 0);
	assert_true(slice_eq(buf_slice(&all), buf_slice(&small)));
	for (uint32_t i = count; i < ARRAY_LEN(parts); i++)
		parts[i] = parts[0];
	assert_int_equal(store_backup_read(rig->store, id, parts, ARRAY_LEN(parts), &all), -EINVAL);
	assert_int_equal(store_backup_read(rig->store, id, parts, 0, &all), -EINVAL);
	parts[1].bytes = STORE_BACKUP_READ_BYTES;
	assert_int_equal(store_backup_read(rig->store, id, parts, 2, &all), -EINVAL);
	buf_free(&small);
	buf_free(&all);
}

static void reads_refused(struct rig *rig, uint64_t id)
{
	struct store_backup_part part = {.key = SLICE("Onothing"), .bytes = 100};
	struct buf out;

	buf_init(&out, 16 * MIB);
	assert_int_equal(store_backup_read(rig->store, id, &part, 1, &out), -ENOENT);
	part.key = SLICE("Bb");
	assert_int_equal(store_backup_read(rig->store, id, &part, 1, &out), -EINVAL);
	part.key = SLICE_NONE;
	assert_int_equal(store_backup_read(rig->store, id, &part, 1, &out), -EINVAL);
	assert_int_equal(store_backup_rows(rig->store, id, SLICE("abc"), &out), -EINVAL);
	assert_int_equal(store_backup_end(rig->store, id + 1), -ESTALE);
	buf_free(&out);
}

static void read_run(struct rig *rig, void *arg)
{
	struct copy *copy = (struct copy *)arg;
	uint64_t id, held;

	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(bucket_make(rig->store, "parts"), 0);
	fill(rig, 1);
	assert_int_equal(object_join_seeded(rig, "b", SLICE("joined"), 5 * MIB, 101, 3), 0);
	assert_int_equal(store_backup_begin(rig->store, 3600 * NS_PER_S, &id, &copy->head), 0);
	/* All is replaced, and the space that it had would be used again. */
	for (uint64_t turn = 0; turn < 4; turn++)
		fill(rig, 1000 * (turn + 1));
	rig_index_wait(rig);
	held = space_held_blocks(rig->store->space, NULL);
	assert_true(held >= 3 * MIB / 4096);
	rows_read(rig, id, &copy->rows);
	bodies_read(rig, id, copy);
	many_read(rig, id, copy);
	reads_refused(rig, id);
	assert_int_equal(store_backup_end(rig->store, id), 0);
	assert_int_equal(space_held_blocks(rig->store->space, NULL), 0);
	assert_int_equal(store_backup_end(rig->store, id), -ESTALE);
}

static void copy_init(struct copy *copy)
{
	*copy = (struct copy){0};
	buf_init(&copy->rows, COPY_BYTES);
	buf_init(&copy->bodies, COPY_BYTES);
}

static void copy_free(struct copy *copy)
{
	buf_free(&copy->rows);
	buf_free(&copy->bodies);
}

/* ---- Restoring. ---- */

static int restore_open(
	const struct rig *rig, const struct copy *copy, bool overwrite, struct store_restore **ret)
{
	const struct store_restore_opts opts = {
		.store = &rig->opts, .head = &copy->head, .name = "copy-1", .overwrite = overwrite};

	return store_restore_open(&opts, ret);
}

/* Restores at most so many rows; those that are there already count, too. */
static void rows_restore(struct store_restore *restore, const struct copy *copy, uint32_t most)
{
	struct slice rest = buf_slice(&copy->rows), key, value;
	const char *body = copy->bodies.data;
	struct store_backup_row row;

	for (uint32_t i = 0; i < most && store_backup_row_next(&rest, &row, &key, &value) == 1;
		i++, body += row.bytes)
		if (!store_restore_has(restore, key))
			assert_int_equal(store_restore_row(restore, &row, key, value, body), 0);
}

static void verify_run(struct rig *rig, void *arg)
{
	verify(rig, *(const uint64_t *)arg);
	/* Later commits do not collide with what was restored. */
	fill(rig, 77);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("key3"), SIZES[3], 80), 0);
}

static void test_a_moment_comes_back(void **state)
{
	struct rig rig, other;
	struct store_restore *restore;
	struct store *store;
	struct copy copy;
	uint64_t seed = 1;
	char path[600];
	FILE *file;

	(void)state;
	rig_init(&rig, 1);
	copy_init(&copy);
	rig_run(&rig, read_run, &copy);
	rig_fsck(&rig);
	rig_init(&other, 1);
	assert_int_equal(restore_open(&other, &copy, false, &restore), 0);
	rows_restore(restore, &copy, 5);
	store_restore_close(restore);
	/* Half a store is opened by no server. */
	assert_int_equal(store_open(&other.opts, NULL, &store), -EUCLEAN);
	assert_int_equal(restore_open(&other, &copy, false, &restore), 0);
	rows_restore(restore, &copy, UINT32_MAX);
	assert_int_equal(store_restore_finish(restore), 0);
	store_restore_close(restore);
	/* Ended before it took its file away: it is complete, and served once that is done. */
	assert_true((size_t)snprintf(path, sizeof(path), "%s/restore", other.dir) < sizeof(path));
	file = fopen(path, "we");
	assert_non_null(file);
	assert_true(fputs("copy-1\n", file) >= 0);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(store_open(&other.opts, NULL, &store), -EUCLEAN);
	assert_int_equal(restore_open(&other, &copy, false, &restore), 0);
	rows_restore(restore, &copy, UINT32_MAX);
	assert_int_equal(store_restore_finish(restore), 0);
	store_restore_close(restore);
	rig_fsck(&other);
	rig_run(&other, verify_run, &seed);
	rig_fsck(&other);
	/* A store that is there stays, unless told. */
	assert_int_equal(restore_open(&other, &copy, false, &restore), -EEXIST);
	assert_int_equal(restore_open(&other, &copy, true, &restore), 0);
	rows_restore(restore, &copy, UINT32_MAX);
	assert_int_equal(store_restore_finish(restore), 0);
	store_restore_close(restore);
	rig_run(&other, verify_run, &seed);
	rig_fsck(&other);
	rig_dir_remove(&other);
	rig_dir_remove(&rig);
	copy_free(&copy);
}

/* ---- Over volumes of which one, or two, are lost meanwhile. ---- */

static void behind_run(struct rig *rig, void *arg)
{
	assert_int_equal(disk_array_state(rig->store->volume.disk, 2), DISK_MEMBER_REBUILDING);
	verify(rig, *(const uint64_t *)arg);
	assert_int_equal(store_rebuild(rig->store), 0);
	memory_disk_lose(1);
	verify(rig, *(const uint64_t *)arg);
}

static void restored_over(const struct copy *copy, uint64_t seed, bool reopens)
{
	struct store_restore *restore;
	struct rig rig;

	rig_init(&rig, 1);
	rig.opts.volume = "memory://0,memory://1,memory://2";
	rig.opts.erasure_data = 2;
	rig.opts.erasure_parity = 1;
	memory_disks_open();
	assert_int_equal(restore_open(&rig, copy, false, &restore), 0);
	rows_restore(restore, copy, 5);
	if (reopens)
		store_restore_close(restore);
	memory_disk_lose(2);
	if (reopens)
		assert_int_equal(restore_open(&rig, copy, false, &restore), 0);
	rows_restore(restore, copy, UINT32_MAX);
	assert_int_equal(store_restore_finish(restore), 0);
	store_restore_close(restore);
	memory_disk(2)->away = memory_disk(2)->lost = false;
	rig_run(&rig, behind_run, &seed);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

static void restored_in_vain(const struct copy *copy)
{
	struct store_restore *restore;
	struct rig rig;

	rig_init(&rig, 1);
	rig.opts.volume = "memory://0,memory://1,memory://2";
	rig.opts.erasure_data = 2;
	rig.opts.erasure_parity = 1;
	memory_disks_open();
	assert_int_equal(restore_open(&rig, copy, false, &restore), 0);
	rows_restore(restore, copy, UINT32_MAX);
	memory_disk_lose(1);
	memory_disk_lose(2);
	assert_int_equal(store_restore_finish(restore), -EHOSTDOWN);
	store_restore_close(restore);
	memory_disks_close();
	rig_dir_remove(&rig);
}

static void test_a_restore_records_what_volumes_lack(void **state)
{
	uint64_t seed = 1;
	struct copy copy;
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	copy_init(&copy);
	rig_run(&rig, read_run, &copy);
	restored_over(&copy, seed, false);
	restored_over(&copy, seed, true);
	restored_in_vain(&copy);
	rig_dir_remove(&rig);
	copy_free(&copy);
}

static void key_verify(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("key3"), SIZES[3], 4), 0);
}

static void busy_run(struct rig *rig, void *arg)
{
	struct store_restore *restore;
	char path[600];

	assert_int_equal(bucket_make(rig->store, "b"), 0);
	fill(rig, 1);
	assert_int_equal(restore_open(rig, (const struct copy *)arg, true, &restore), -EBUSY);
	assert_int_equal(restore_open(rig, (const struct copy *)arg, false, &restore), -EBUSY);
	assert_true((size_t)snprintf(path, sizeof(path), "%s/restore", rig->dir) < sizeof(path));
	assert_int_equal(access(path, F_OK), -1);
	key_verify(rig, NULL);
}

/* A restore destroys no store that a server has open. */
static void test_running_store_stays(void **state)
{
	struct rig rig;
	struct copy copy = {.head = {.seq = 1}};

	(void)state;
	rig_init(&rig, 1);
	rig_run(&rig, busy_run, &copy);
	rig_run(&rig, key_verify, NULL);
	rig_fsck(&rig);
	rig_dir_remove(&rig);
}

/* Each byte of a row or its body may be another. */
static void test_damage(void **state)
{
	struct rig rig, other;
	struct store_restore *restore;
	struct store_backup_row row;
	struct slice rest, key, value;
	const char *body;
	struct copy copy;
	uint32_t refused = 0;

	(void)state;
	rig_init(&rig, 1);
	copy_init(&copy);
	rig_run(&rig, read_run, &copy);
	rig_init(&other, 1);
	assert_int_equal(restore_open(&other, &copy, false, &restore), 0);
	rest = buf_slice(&copy.rows);
	body = copy.bodies.data;
	while (store_backup_row_next(&rest, &row, &key, &value) == 1) {
		char *bad = row.bytes ? (char *)malloc(row.bytes) : NULL;

		if (bad) {
			memcpy(bad, body, row.bytes);
			bad[row.bytes - 1] ^= 1;
			refused++;
			assert_int_equal(
				store_restore_row(restore, &row, key, value, bad), -EUCLEAN);
			assert_int_equal(store_backup_row_check(&row, key, value, bad), -EUCLEAN);
			for (size_t len = 0; len < value.len; len += 1 + value.len / 7)
				assert_int_equal(store_restore_row(restore, &row, key,
							 slice_to(value, len), body),
					-EUCLEAN);
		}
		assert_int_equal(store_backup_row_check(&row, key, value, body), 0);
		free(bad);
		body += row.bytes;
	}
	assert_true(refused >= 3);
	store_restore_close(restore);
	for (size_t len = 1; len < 200; len++) {
		rest = slice_to(buf_slice(&copy.rows), len);
		while (store_backup_row_next(&rest, &row, &key, &value) == 1)
			;
	}
	rig_dir_remove(&other);
	rig_dir_remove(&rig);
	copy_free(&copy);
}

/* Rows that somebody has forged, with right checksums of their bodies: each is refused, or makes a
 * store that starts, answers and can be checked. */
#define FORGED_STORES 6u
#define BUCKET_ID_AT  8u /* docs/spec/disk.md: a bucket's record */

static void forged_restore(
	struct store_restore *restore, const struct copy *copy, struct prng *prng)
{
	struct slice rest = buf_slice(&copy->rows), key, value;
	const char *body = copy->bodies.data;
	struct store_backup_row row;

	while (store_backup_row_next(&rest, &row, &key, &value) == 1) {
		char *bad = (char *)malloc(key.len + value.len + 1);
		uint64_t bytes = row.bytes;

		memcpy(mempcpy(bad, key.data, key.len), value.data, value.len);
		for (uint64_t i = prng_below(prng, 4); i; i--)
			bad[prng_below(prng, key.len + value.len)] = (char)prng_next(prng);
		if (prng_below(prng, 16) == 0)
			row.flags ^= STORE_BACKUP_HAS_BODY;
		if (prng_below(prng, 16) == 0 && row.bytes)
			row.bytes = 1 + prng_below(prng, row.bytes);
		(void)store_restore_row(restore, &row, slice_of(bad, key.len),
			slice_of(bad + key.len, value.len), body);
		free(bad);
		body += bytes;
	}
}

static bool count_bucket(const struct store_bucket *bucket, void *arg)
{
	(void)bucket;
	++*(uint32_t *)arg;
	return true;
}

static void forged_run(struct rig *rig, void *arg)
{
	char key[16];

	assert_int_equal(store_bucket_list(rig->store, SLICE_NONE, count_bucket, arg), 0);
	for (size_t i = 0; i < ARRAY_LEN(SIZES); i++)
		(void)object_verify_seeded(rig, "b", name_of(key, i), SIZES[i], 1 + i);
}

/* A row that no store can have made. */
static void forged_key(
	struct store_restore *restore, const char *key, size_t len, struct slice value)
{
	const struct store_backup_row row = {.key_len = (uint16_t)len};

	assert_int_equal(
		store_restore_row(restore, &row, slice_of(key, len), value, NULL), -EUCLEAN);
	assert_int_equal(store_backup_row_check(&row, slice_of(key, len), value, NULL), -EUCLEAN);
}

static void keys_forge(struct store_restore *restore, const struct copy *copy)
{
	struct slice rest = buf_slice(&copy->rows), key, value;
	struct store_backup_row row;
	char bad[2048];

	while (store_backup_row_next(&rest, &row, &key, &value) == 1) {
		if (row.flags & STORE_BACKUP_HAS_BODY)
			continue;
		if (key.data[0] == 'B') {
			/* The bucket's number, with the bits by which the store tells kinds apart.
			 */
			memcpy(bad, value.data, value.len);
			memset(bad + BUCKET_ID_AT, 0xff, sizeof(uint64_t));
			forged_key(restore, key.data, key.len, slice_of(bad, value.len));
			continue;
		}
		memcpy(bad, key.data, key.len);
		memset(bad + 1, 0xff, sizeof(uint64_t));
		forged_key(restore, bad, key.len, value);
		forged_key(restore, key.data, 5, value);
	}
}

static void test_forged(void **state)
{
	uint32_t started = 0, buckets = 0;
	struct store_restore *restore;
	struct rig rig, other;
	struct copy copy;
	struct prng prng;

	(void)state;
	rig_init(&rig, 1);
	copy_init(&copy);
	rig_run(&rig, read_run, &copy);
	rig_init(&other, 1);
	copy.head.data_id_next |= UINT64_C(1) << 63;
	assert_int_equal(restore_open(&other, &copy, false, &restore), -EUCLEAN);
	copy.head.data_id_next &= ~(UINT64_C(1) << 63);
	rig_dir_remove(&other);
	for (uint32_t i = 0; i < FORGED_STORES; i++) {
		prng_seed(&prng, i);
		rig_init(&other, 1);
		assert_int_equal(restore_open(&other, &copy, false, &restore), 0);
		keys_forge(restore, &copy);
		forged_restore(restore, &copy, &prng);
		assert_int_equal(store_restore_finish(restore), 0);
		store_restore_close(restore);
		rig_run(&other, forged_run, &buckets);
		started += !other.open_result;
		rig_dir_remove(&other);
	}
	print_message("# %u of them started, with %u buckets\n", started, buckets);
	assert_true(started && buckets);
	rig_dir_remove(&rig);
	copy_free(&copy);
}

/* ---- Ends. ---- */

static void keeper_main(void *arg)
{
	store_backup_run((struct store *)arg);
}

static void ends_run(struct rig *rig, void *arg)
{
	struct store_backup_head head;
	uint64_t ids[STORE_BACKUPS_MAX], id;
	struct buf out;
	int ret = 0;

	(void)arg;
	assert_int_equal(fiber_spawn(rig->reactors[0], "keeper", keeper_main, rig->store), 0);
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t i = 0; i < STORE_BACKUPS_MAX; i++)
		assert_int_equal(
			store_backup_begin(rig->store, 3600 * NS_PER_S, &ids[i], &head), 0);
	assert_int_equal(store_backup_begin(rig->store, NS_PER_S, &id, &head), -EBUSY);
	assert_int_equal(store_backup_end(rig->store, ids[0]), 0);
	assert_int_equal(store_backup_begin(rig->store, 1, &ids[0], &head), 0);
	buf_init(&out, 16 * MIB);
	/* Its time is over already. */
	while (!ret) {
		buf_reset(&out);
		ret = store_backup_rows(rig->store, ids[0], SLICE_NONE, &out);
		fiber_sleep_ns(NS_PER_MS);
	}
	assert_int_equal(ret, -ESTALE);
	assert_int_equal(store_backup_rows(rig->store, ids[1], SLICE_NONE, &out), 0);
	assert_int_equal(store_backup_begin(rig->store, 3600 * NS_PER_S, &id, &head), 0);
	buf_free(&out);
	/* The others end with the store. */
}

static void test_ends(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig_run(&rig, ends_run, NULL);
	rig_fsck(&rig);
	rig_dir_remove(&rig);
}

/* A client that goes on after the server's restart must not read another one's moment. */
static void again_run(struct rig *rig, void *arg)
{
	uint64_t *before = (uint64_t *)arg, id;
	struct store_backup_head head;
	struct buf out;

	if (!*before)
		assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t i = 0; i < STORE_BACKUPS_MAX; i++)
		assert_int_equal(store_backup_begin(rig->store, 3600 * NS_PER_S, &id, &head), 0);
	buf_init(&out, 16 * MIB);
	if (*before) {
		assert_int_equal(store_backup_rows(rig->store, *before, SLICE_NONE, &out), -ESTALE);
		assert_int_equal(store_backup_end(rig->store, *before), -ESTALE);
	}
	buf_free(&out);
	*before = id;
}

static void test_numbers_of_sessions(void **state)
{
	uint64_t before = 0;
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig_run(&rig, again_run, &before);
	rig_run(&rig, again_run, &before);
	rig_dir_remove(&rig);
}

/* Puts on a full volume need the space that a session holds: none of them fails. */
static void full_run(struct rig *rig, void *arg)
{
	struct store_backup_head head;
	struct buf out;
	uint64_t id;

	(void)arg;
	assert_int_equal(fiber_spawn(rig->reactors[0], "keeper", keeper_main, rig->store), 0);
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint64_t turn = 0; turn < 4; turn++) {
		assert_int_equal(store_backup_begin(rig->store, 3600 * NS_PER_S, &id, &head), 0);
		for (uint64_t i = 0; i < 12; i++)
			assert_int_equal(object_put_seeded(rig, "b", SLICE("key"), 3 * MIB,
						 100 * turn + i, NULL),
				0);
		buf_init(&out, 16 * MIB);
		assert_int_equal(store_backup_rows(rig->store, id, SLICE_NONE, &out), -ESTALE);
		buf_free(&out);
	}
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("key"), 3 * MIB, 311), 0);
}

static void test_full(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.volume_bytes_max = 20 * MIB;
	rig_run(&rig, full_run, NULL);
	rig_fsck(&rig);
	rig_dir_remove(&rig);
}

/* How far a volume of another host may grow is not known: a session does not hold all of that. */
static void away_run(struct rig *rig, void *arg)
{
	struct store_backup_head head;
	struct buf out;
	uint64_t id;
	int ret = 0;

	(void)arg;
	assert_int_equal(fiber_spawn(rig->reactors[0], "keeper", keeper_main, rig->store), 0);
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(store_backup_begin(rig->store, 3600 * NS_PER_S, &id, &head), 0);
	for (uint64_t i = 0; i < 8; i++)
		assert_int_equal(object_put_seeded(rig, "b", SLICE("key"), 3 * MIB, i, NULL), 0);
	/* All but the last are held, which is more than a step of the volume. */
	while (!ret) {
		fiber_sleep_ns(10 * NS_PER_MS);
		buf_init(&out, 16 * MIB);
		ret = store_backup_rows(rig->store, id, SLICE_NONE, &out);
		buf_free(&out);
	}
	assert_int_equal(ret, -ESTALE);
}

static void test_away(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.volume = "memory://0";
	memory_disks_open();
	rig_run(&rig, away_run, NULL);
	rig_fsck(&rig);
	memory_disks_close();
	rig_dir_remove(&rig);
}

/* ---- A store that quiesces does not wait for the next look at sessions. ---- */

struct keeping {
	struct store *store;
	bool ended;
};

static void keeping_main(void *arg)
{
	struct keeping *keeping = (struct keeping *)arg;

	store_backup_run(keeping->store);
	keeping->ended = true;
}

static void keeper_run(struct rig *rig, void *arg)
{
	struct keeping *keeping = (struct keeping *)arg;

	keeping->store = rig->store;
	assert_int_equal(fiber_spawn(rig->reactors[0], "keeper", keeping_main, keeping), 0);
	fiber_yield(); /* it looks, and waits */
	store_quiesce(rig->store);
	assert_true(keeping->ended);
}

static void test_the_keeper_ends_with_the_store(void **state)
{
	struct keeping keeping = {0};
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig_run(&rig, keeper_run, &keeping);
	rig_dir_remove(&rig);
}

/* ---- A session may have ended when it meets damage: it reads around it and writes nothing. ----
 */

static void around_run(struct rig *rig, void *arg)
{
	struct memory_disk *disk;
	struct copy copy;
	uint8_t body[4096], spoilt;
	uint64_t id, at;

	(void)arg;
	copy_init(&copy);
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("k"), SIZES[3], 1, NULL), 0);
	body_fill(body, sizeof(body), 1);
	disk = memory_disk_find(body, sizeof(body), &at);
	spoilt = disk->memory[at] ^= 0xff;
	assert_int_equal(store_backup_begin(rig->store, 3600 * NS_PER_S, &id, &copy.head), 0);
	rows_read(rig, id, &copy.rows);
	bodies_read(rig, id, &copy);
	assert_int_equal(copy.bodies.len, SIZES[3]);
	assert_memory_equal(copy.bodies.data, body, sizeof(body));
	assert_int_equal(disk->memory[at], spoilt);
	assert_int_equal(store_backup_end(rig->store, id), 0);
	copy_free(&copy);
}

static void test_a_backup_writes_nothing(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.volume = "memory://0,memory://1,memory://2";
	rig.opts.erasure_data = 2;
	rig.opts.erasure_parity = 1;
	memory_disks_open();
	rig_run(&rig, around_run, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

/* ---- Two event loops: the keeper's, and another, where a client begins sessions; both end them.
 */

#define RACES 200u

struct race {
	_Atomic uint64_t id; /* of the session that both end; 0: none */
	_Atomic uint32_t ended, over;
};

/* Ends each session at once with the other loop. */
static void race_end(struct rig *rig, struct race *race, uint32_t idx)
{
	uint64_t id = atomic_load(&race->id);
	int ret = store_backup_end(rig->store, id);

	assert_true(ret == 0 || ret == -ESTALE);
	atomic_fetch_add(&race->ended, ret == 0);
	atomic_fetch_add(&race->over, 1);
	while (atomic_load(&race->over) < 2 * (idx + 1))
		fiber_yield();
}

static void race_first(struct rig *rig, struct race *race)
{
	uint64_t last = 0;

	assert_int_equal(fiber_spawn(rig->reactors[0], "keeper", keeper_main, rig->store), 0);
	fiber_yield();
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t i = 0; i < RACES; i++) {
		while (atomic_load(&race->id) == last)
			fiber_yield();
		last = atomic_load(&race->id);
		race_end(rig, race, i);
	}
	assert_int_equal(atomic_load(&race->ended), RACES);
	/* Nothing holds space any more. */
	fill(rig, 1);
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("key3"), NULL, NULL), 0);
	rig_index_wait(rig);
	assert_int_equal(space_held_blocks(rig->store->space, NULL), 0);
}

static void race_other(struct rig *rig, struct race *race)
{
	struct store_backup_head head;
	uint64_t id;

	for (uint32_t i = 0; i < RACES; i++) {
		assert_int_equal(store_backup_begin(rig->store, NS_PER_S * 60, &id, &head), 0);
		atomic_store(&race->id, id);
		race_end(rig, race, i);
	}
}

static void race_run(struct rig *rig, void *arg)
{
	if (reactor_self() == rig->reactors[0])
		race_first(rig, (struct race *)arg);
	else
		race_other(rig, (struct race *)arg);
}

static void test_sessions_of_two_event_loops(void **state)
{
	struct race race = {.id = 0};
	struct rig rig;

	(void)state;
	rig_init(&rig, 2);
	rig_run(&rig, race_run, &race);
	assert_int_equal(rig.open_result, 0);
	rig_dir_remove(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_moment_comes_back),
		cmocka_unit_test(test_a_restore_records_what_volumes_lack),
		cmocka_unit_test(test_running_store_stays),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_forged),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_numbers_of_sessions),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_away),
		cmocka_unit_test(test_the_keeper_ends_with_the_store),
		cmocka_unit_test(test_a_backup_writes_nothing),
		cmocka_unit_test(test_sessions_of_two_event_loops),
	};

	log_set_level((enum log_level)(LOG_ERROR + 1));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
