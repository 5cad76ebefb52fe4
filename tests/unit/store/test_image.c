/* tests/unit/store/test_image.c: the index image: the volumes alone are enough to rebuild the
 * index. Old stores, full volumes, lost and damaged volumes; what checks and discards see of it. */
#include "memory_disk.h"
#include "rig.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/store_priv.h"

#define KEYS 300u

static _Atomic bool list_fails; /* at the end of a checkpoint's names */

/* In the place of the C library's. */
struct dirent *readdir(DIR *dir)
{
	struct dirent *(*real)(DIR *) = (struct dirent * (*)(DIR *)) dlsym(RTLD_NEXT, "readdir");
	struct dirent *entry = real(dir);
	char link[64], path[1024];
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd(dir));
	len = list_fails && !entry ? readlink(link, path, sizeof(path)) : -1;
	if (len > 0 && slice_ends(slice_of(path, (size_t)len), SLICE("/index.image")))
		errno = EIO;
	return entry;
}

static void protected_init(struct rig *rig)
{
	rig_init(rig, 1);
	rig->opts.protect = STORE_PROTECT_ON;
}

/* Erasure coded 2+1 over files. */
static void array_init(struct rig *rig, char volumes[3000])
{
	protected_init(rig);
	snprintf(volumes, 3000, "%s/v0,%s/v1,%s/v2", rig->dir, rig->dir, rig->dir);
	rig->opts.volume = volumes;
	rig->opts.erasure_data = 2;
	rig->opts.erasure_parity = 1;
}

/* In the data folder. */
static void run_shell(const char *what, const struct rig *rig)
{
	char command[2048];

	snprintf(command, sizeof(command), "cd '%s' && %s", rig->dir, what);
	assert_int_equal(system(command), 0);
}

/* All of the data folder except the volumes. */
static void folder_lose(const struct rig *rig)
{
	run_shell("rm -rf index space LOCK volumes", rig);
}

static struct slice key_of(char key[32], uint32_t i)
{
	snprintf(key, 32, "k%05u", i);
	return slice_str(key);
}

static uint64_t bytes_of(uint32_t i)
{
	static const uint64_t BYTES[] = {0, 100, 3000, 4096, 20000, 70000};

	return BYTES[i % ARRAY_LEN(BYTES)];
}

static void put_from(struct rig *rig, uint32_t from, uint32_t count)
{
	char key[32];

	for (uint32_t i = from; i < from + count; i++)
		assert_int_equal(
			object_put_seeded(rig, "b", key_of(key, i), bytes_of(i), i, NULL), 0);
}

static void put_all(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	put_from(rig, 0, KEYS);
}

static void verify_all(struct rig *rig, void *arg)
{
	char key[32];

	(void)arg;
	for (uint32_t i = 0; i < KEYS; i++)
		assert_int_equal(object_verify_seeded(rig, "b", key_of(key, i), bytes_of(i), i), 0);
	assert_int_equal(rig_usage(rig).objects, KEYS);
	if (rig->opts.protect == STORE_PROTECT_ON)
		assert_int_equal(store_protected(rig->store), 1);
}

static void reopen(struct rig *rig, rig_fn *fn)
{
	rig_run(rig, fn, NULL);
	assert_int_equal(rig->open_result, 0);
}

static uint64_t image_bytes(const struct rig *rig)
{
	struct store_fsck_report report;
	struct buf out;
	int ret;

	buf_init(&out, 64 * KIB);
	ret = store_fsck(rig->dir, true, &report, &out);
	if (ret)
		print_message("%.*s\n", SLICE_FMT(buf_slice(&out)));
	assert_int_equal(ret, 0);
	buf_free(&out);
	return report.image_bytes;
}

static void test_volume_alone(void **state)
{
	struct rig rig;

	(void)state;
	protected_init(&rig);
	reopen(&rig, put_all);
	assert_true(image_bytes(&rig) > 0);
	for (uint32_t i = 0; i < 3; i++) {
		folder_lose(&rig);
		reopen(&rig, verify_all);
		rig_fsck(&rig);
	}
	reopen(&rig, verify_all);
	rig_dir_remove(&rig);
}

/* Only the log has what came after the last checkpoint. */
static void put_and_lose(struct rig *rig, void *arg)
{
	(void)arg;
	put_from(rig, 0, KEYS);
	run_shell("rm -rf copy && mkdir copy && cp v? copy/", rig);
}

static void bucket_only(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
}

/* As after kill -9: the volumes as they were while the store was open. */
static void test_log_and_image(void **state)
{
	char volumes[3000];
	struct rig rig;

	(void)state;
	array_init(&rig, volumes);
	reopen(&rig, bucket_only);
	reopen(&rig, put_and_lose);
	folder_lose(&rig);
	run_shell("mv copy/v? .", &rig);
	/* One member is lost, too: with the log and a part of each body. */
	run_shell("truncate -s 0 v0", &rig);
	reopen(&rig, verify_all);
	rig_fsck(&rig);
	rig_dir_remove(&rig);
}

static void members_heal(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(store_rebuild(rig->store), 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(disk_array_state(rig->store->volume.disk, i), DISK_MEMBER_GOOD);
}

/* A rebuilt member has its part of the image, too. */
static void test_member_rebuilt(void **state)
{
	char volumes[3000];
	struct rig rig;

	(void)state;
	array_init(&rig, volumes);
	reopen(&rig, put_all);
	for (uint32_t lost = 0; lost < 3; lost++) {
		char path[600];

		snprintf(path, sizeof(path), "%s/v%u", rig.dir, lost);
		assert_int_equal(truncate(path, 0), 0);
		reopen(&rig, members_heal);
		/* Without the next one, the rebuilt one is needed. */
		snprintf(path, sizeof(path), "mv v%u away", (lost + 1) % 3);
		run_shell(path, &rig);
		folder_lose(&rig);
		reopen(&rig, verify_all);
		snprintf(path, sizeof(path), "mv away v%u", (lost + 1) % 3);
		run_shell(path, &rig);
		reopen(&rig, members_heal);
		rig_fsck(&rig);
	}
	rig_dir_remove(&rig);
}

/* A store of an earlier program, or without the key, becomes protected, and stops being so. */
static void test_upgraded(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	reopen(&rig, put_all);
	assert_int_equal(image_bytes(&rig), 0);
	/* Without an image the start is refused, and nothing is changed. */
	rig.opts.protect = STORE_PROTECT_ON;
	run_shell("mv index index.away", &rig);
	rig_run(&rig, verify_all, NULL);
	assert_int_equal(rig.open_result, -EUCLEAN);
	run_shell("mv index.away index", &rig);

	reopen(&rig, verify_all);
	assert_true(image_bytes(&rig) > 0);
	/* A check keeps it, and so does a start that asks for no change. */
	rig.opts.protect = STORE_PROTECT_AS_IS;
	reopen(&rig, verify_all);
	assert_true(image_bytes(&rig) > 0);
	/* A start without protect_index does not rebuild; its error names the key that does.
	 * --format does not destroy the store, whose folder may only be out of reach. */
	run_shell("mv index index.away", &rig);
	rig.opts.protect = STORE_PROTECT_OFF;
	for (int format = 0; format < 2; format++) {
		rig.opts.format = format;
		rig_run(&rig, verify_all, NULL);
		assert_int_equal(rig.open_result, -EUCLEAN);
	}
	rig.opts.format = false;
	run_shell("mv index.away index", &rig);
	reopen(&rig, verify_all);
	assert_int_equal(image_bytes(&rig), 0);
	rig.opts.protect = STORE_PROTECT_ON;
	reopen(&rig, verify_all);
	folder_lose(&rig);
	/* --format does not destroy a store that can be rebuilt. */
	rig.opts.format = true;
	reopen(&rig, verify_all);
	rig_fsck(&rig);
	rig_dir_remove(&rig);
}

/* ---- A full volume. ---- */

static void fill_up(struct rig *rig, void *arg)
{
	char key[32];
	uint32_t i = KEYS;
	int ret;

	(void)arg;
	while ((ret = object_put_seeded(rig, "b", key_of(key, i), 200000, i, NULL)) == 0)
		i++;
	assert_int_equal(ret, -ENOSPC);
	/* Checkpoints go on, and deletions. */
	assert_int_equal(index_apply_settle(rig->store), 0);
	for (uint32_t k = KEYS; k < i; k++) {
		assert_int_equal(
			store_delete(rig->store, SLICE("b"), key_of(key, k), NULL, NULL), 0);
		if (k % 4 == 0)
			assert_int_equal(index_apply_settle(rig->store), 0);
	}
}

static void test_full(void **state)
{
	struct rig rig;

	(void)state;
	protected_init(&rig);
	rig.opts.log_bytes = 512 * KIB;
	rig.opts.step_bytes = 4 * MIB;
	rig.opts.volume_bytes_max = 64 * MIB;
	reopen(&rig, put_all);
	reopen(&rig, fill_up);
	folder_lose(&rig);
	reopen(&rig, verify_all);
	rig_fsck(&rig);
	rig_dir_remove(&rig);
}

struct taken {
	uint64_t blocks[4096];
	uint32_t counts[4096];
	uint32_t count;
};

static void take_everything(struct store *store, struct taken *taken)
{
	while (taken->count < ARRAY_LEN(taken->blocks) &&
		(taken->counts[taken->count] = space_lease_reserved(
			 store->space, CHUNK_BLOCKS, &taken->blocks[taken->count])))
		taken->count++;
	assert_true(taken->count < ARRAY_LEN(taken->blocks));
}

static void checkpoint_now(void *arg)
{
	assert_int_equal(index_apply_checkpoint_now((struct store *)arg), 0);
}

/* Without any room the store goes on unprotected, and is protected again when there is room. */
static void no_room(struct rig *rig, void *arg)
{
	struct taken *taken = (struct taken *)calloc(1, sizeof(*taken));
	char key[32];

	(void)arg;
	take_everything(rig->store, taken);
	/* The image that the first attempt gives up is too small for the next one. */
	for (uint32_t i = 0; i < KEYS; i++)
		assert_int_equal(
			object_put_seeded(rig, "b", key_of(key, i), bytes_of(1), i, NULL), 0);
	assert_int_equal(index_apply_settle(rig->store), 0);
	fiber_offload_long(checkpoint_now, rig->store);
	assert_int_equal(store_protected(rig->store), 0);
	assert_int_equal(rig->store->volume.super.image_bytes, 0);
	for (uint32_t i = 0; i < taken->count; i++)
		space_give(rig->store->space, taken->blocks[i], taken->counts[i]);
	free(taken);
	fiber_offload_long(checkpoint_now, rig->store);
	assert_int_equal(store_protected(rig->store), 1);
}

/* The same when not the volumes fail, but the folder in which the checkpoint is made. */
static void no_folder(struct rig *rig, void *arg)
{
	char key[32];

	(void)arg;
	run_shell("mkdir -p index.image/in/the/way", rig);
	for (uint32_t i = 0; i < KEYS; i++)
		assert_int_equal(
			object_put_seeded(rig, "b", key_of(key, i), bytes_of(1), i, NULL), 0);
	assert_int_equal(index_apply_settle(rig->store), 0);
	fiber_offload_long(checkpoint_now, rig->store);
	assert_int_equal(store_protected(rig->store), 0);
	assert_int_equal(object_put_seeded(rig, "b", key_of(key, 0), bytes_of(1), 0, NULL), 0);
	run_shell("rm -r index.image", rig);
	assert_int_equal(index_apply_settle(rig->store), 0);
	fiber_offload_long(checkpoint_now, rig->store);
	assert_int_equal(store_protected(rig->store), 1);
}

/* Nor is a checkpoint an image whose files cannot all be listed. */
static void unlisted(struct rig *rig, void *arg)
{
	(void)arg;
	list_fails = true;
	put_from(rig, 0, KEYS);
	assert_int_equal(index_apply_settle(rig->store), 0);
	fiber_offload_long(checkpoint_now, rig->store);
	assert_int_equal(store_protected(rig->store), 0);
	list_fails = false;
	fiber_offload_long(checkpoint_now, rig->store);
	assert_int_equal(store_protected(rig->store), 1);
}

static void verify_small(struct rig *rig, void *arg)
{
	char key[32];

	(void)arg;
	for (uint32_t i = 0; i < KEYS; i++)
		assert_int_equal(object_verify_seeded(rig, "b", key_of(key, i), bytes_of(1), i), 0);
}

static void test_no_room(void **state)
{
	struct rig rig;

	(void)state;
	protected_init(&rig);
	rig.opts.step_bytes = 4 * MIB;
	rig.opts.volume_bytes_max = 8 * MIB;
	reopen(&rig, bucket_only);
	reopen(&rig, no_room);
	folder_lose(&rig);
	reopen(&rig, verify_small);
	rig_fsck(&rig);
	rig_dir_remove(&rig);
}

static void test_no_folder(void **state)
{
	struct rig rig;

	(void)state;
	protected_init(&rig);
	reopen(&rig, bucket_only);
	reopen(&rig, no_folder);
	folder_lose(&rig);
	reopen(&rig, verify_small);
	rig_fsck(&rig);
	rig_dir_remove(&rig);
}

static void test_unlisted(void **state)
{
	struct rig rig;

	(void)state;
	protected_init(&rig);
	reopen(&rig, bucket_only);
	reopen(&rig, unlisted);
	folder_lose(&rig);
	reopen(&rig, verify_all);
	rig_fsck(&rig);
	rig_dir_remove(&rig);
}

/* ---- The image's blocks in leases, discards and checks. ---- */

static void blocks_are_apart(struct rig *rig, void *arg)
{
	struct store *store = rig->store;
	struct image_place place = {0};
	struct segment *segment;
	uint64_t bytes, used = rig_usage(rig).used_bytes;

	(void)arg;
	assert_true(image_segment(store->image, &place, &segment, &bytes));
	for (uint32_t i = 0; i < segment->extent_count; i++) {
		/* In use, so neither leased nor discarded. */
		assert_int_equal(space_take(store->space, segment->extents[i].block,
					 segment->extents[i].blocks),
			-EEXIST);
	}
	segment_close(segment);
	/* Checkpoints give back what they replace: after many, no more is in use. */
	for (uint32_t i = 0; i < 20; i++) {
		char key[32];

		assert_int_equal(object_put_seeded(rig, "b", key_of(key, 0), 0, 0, NULL), 0);
		assert_int_equal(index_apply_settle(store), 0);
		fiber_offload_long(checkpoint_now, store);
	}
	assert_true(rig_usage(rig).used_bytes < used + MIB);
	assert_int_equal(store_protected(store), 1);
}

static void test_blocks(void **state)
{
	struct rig rig;

	(void)state;
	protected_init(&rig);
	reopen(&rig, put_all);
	reopen(&rig, blocks_are_apart);
	rig_fsck(&rig);
	/* The snapshot of the space lacks them, so a start without the key finds all of it. */
	rig.opts.protect = STORE_PROTECT_OFF;
	reopen(&rig, verify_all);
	rig_fsck(&rig);
	rig_dir_remove(&rig);
}

/* ---- Damage. ---- */

static uint64_t catalog_offset;

static void catalog_note(struct rig *rig, void *arg)
{
	(void)arg;
	catalog_offset = rig->store->image->now.catalog->segments[0]->extents[0].block
			 << BLOCK_SHIFT;
}

static void volume_damage(const struct rig *rig, const char *name)
{
	uint64_t first = catalog_offset >> BLOCK_SHIFT;
	uint8_t bytes[64];
	char path[600];
	int fd;

	if (disk_stripe_is(first))
		first = disk_stripe_first(first);
	memset(bytes, 0xaa, sizeof(bytes));
	snprintf(path, sizeof(path), "%s/%s", rig->dir, name);
	fd = open(path, O_WRONLY);
	assert_true(fd >= 0);
	assert_int_equal(
		pwrite(fd, bytes, sizeof(bytes), (off_t)(first << BLOCK_SHIFT)), sizeof(bytes));
	close(fd);
}

static void test_catalog_damaged(void **state)
{
	struct store_fsck_report report;
	struct buf out;
	struct rig rig;

	(void)state;
	protected_init(&rig);
	reopen(&rig, put_all);
	reopen(&rig, catalog_note);
	/* The checkpoint at the end wrote another one, or none was due. */
	volume_damage(&rig, "volume");
	buf_init(&out, 64 * KIB);
	assert_int_equal(store_fsck(rig.dir, true, &report, &out), -EUCLEAN);
	assert_true(slice_find(buf_slice(&out), SLICE("copy of the index")) >= 0);
	buf_free(&out);
	/* With the data folder nothing is lost, and the copy is written anew. */
	reopen(&rig, verify_all);
	rig_fsck(&rig);
	reopen(&rig, catalog_note);
	volume_damage(&rig, "volume");
	/* Without it the start is refused. */
	folder_lose(&rig);
	rig_run(&rig, verify_all, NULL);
	assert_int_equal(rig.open_result, -EUCLEAN);
	rig_dir_remove(&rig);
}

/* Over several volumes the others have what one returns wrongly. */
static void test_catalog_mended(void **state)
{
	char volumes[3000];
	struct rig rig;

	(void)state;
	array_init(&rig, volumes);
	reopen(&rig, put_all);
	for (uint32_t i = 0; i < 3; i++) {
		char name[8];

		reopen(&rig, catalog_note);
		snprintf(name, sizeof(name), "v%u", i);
		volume_damage(&rig, name);
		folder_lose(&rig);
		reopen(&rig, verify_all);
		rig_fsck(&rig);
	}
	rig_dir_remove(&rig);
}

/* The process is killed while it rebuilds. */
static void test_rebuild_begun(void **state)
{
	struct rig rig;

	(void)state;
	protected_init(&rig);
	reopen(&rig, put_all);
	folder_lose(&rig);
	run_shell("mkdir index.new index.image && echo part > index.new/CURRENT && "
		  "echo part > index.image/000001.sst",
		&rig);
	run_shell("mkdir index.image.tmp index && echo x > index/LOG && "
		  "echo x > index.image.tmp/1.sst",
		&rig);
	reopen(&rig, verify_all);
	rig_fsck(&rig);
	run_shell("test ! -e index.new && test ! -e index.image && "
		  "test ! -e index.image.tmp",
		&rig);
	rig_dir_remove(&rig);
}

/* ---- The caller's texts. ---- */

static void keep_run(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	put_from(rig, 0, KEYS);
}

static void expect_kept(struct rig *rig, const char *name, const char *text)
{
	struct buf out;

	buf_init(&out, 16 * KIB);
	assert_int_equal(store_kept(rig->store, name, &out), text ? 0 : -ENOENT);
	if (text)
		assert_true(slice_eq(buf_slice(&out), slice_str(text)));
	buf_free(&out);
}

static void kept_look(struct rig *rig, void *arg)
{
	verify_all(rig, arg);
	expect_kept(rig, "one", "first");
	expect_kept(rig, "two", "");
	expect_kept(rig, "three", NULL);
}

struct keeping {
	struct rig *rig;
	const char *name;
	struct slice text;
	int ret;
};

static void keep_offloaded(void *arg)
{
	struct keeping *keeping = (struct keeping *)arg;

	keeping->ret = store_keep(keeping->rig->store, keeping->name, keeping->text);
}

static int keep(struct rig *rig, const char *name, struct slice text)
{
	struct keeping keeping = {.rig = rig, .name = name, .text = text};

	fiber_offload_long(keep_offloaded, &keeping);
	return keeping.ret;
}

static void kept_fill(struct rig *rig, void *arg)
{
	static const char LONG[IMAGE_KEPT_BYTES_MAX + 1];

	keep_run(rig, arg);
	assert_int_equal(keep(rig, "one", SLICE("zeroth")), 0);
	assert_int_equal(keep(rig, "one", SLICE("first")), 0);
	assert_int_equal(keep(rig, "two", SLICE_NONE), 0);
	assert_int_equal(keep(rig, "big", slice_of(LONG, sizeof(LONG))), -E2BIG);
	assert_int_equal(keep(rig, "", SLICE("x")), -EINVAL);
	expect_kept(rig, "one", "first");
}

static void unkept(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(keep(rig, "one", SLICE("x")), -ENOTSUP);
	expect_kept(rig, "one", NULL);
}

static void test_texts_are_kept(void **state)
{
	struct rig rig;

	(void)state;
	protected_init(&rig);
	reopen(&rig, kept_fill);
	reopen(&rig, kept_look);
	folder_lose(&rig);
	reopen(&rig, kept_look);
	rig_fsck(&rig);
	rig.opts.protect = STORE_PROTECT_OFF;
	reopen(&rig, unkept);
	rig_dir_remove(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_volume_alone),
		cmocka_unit_test(test_log_and_image),
		cmocka_unit_test(test_member_rebuilt),
		cmocka_unit_test(test_upgraded),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_no_folder),
		cmocka_unit_test(test_unlisted),
		cmocka_unit_test(test_blocks),
		cmocka_unit_test(test_catalog_damaged),
		cmocka_unit_test(test_catalog_mended),
		cmocka_unit_test(test_rebuild_begun),
		cmocka_unit_test(test_texts_are_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
