/* tests/unit/store/test_replaced.c: a volume whose place another one took is no member any more,
 * also when the other one is not there; one that is an older state of itself is rebuilt. */
#include "memory_disk.h"
#include "rig.h"
#include "set_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_priv.h"

#define BYTES	    70000u
#define COPY_BYTES  (16 * MIB) /* what a small store uses of a volume */
#define WITHOUT_OLD "memory://0\nmemory://1\nmemory://3\n"

static void replaced_open(struct rig *rig)
{
	rig_init(rig, 1);
	rig->opts.volume = SET_THREE;
	rig->opts.erasure_data = 2;
	rig->opts.erasure_parity = 1;
	memory_disks_open();
}

/* The data folder's list. */
static void list_write(const struct rig *rig, const char *text)
{
	char path[600];
	FILE *file;

	snprintf(path, sizeof(path), "%s/volumes", rig->dir);
	file = fopen(path, "we");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

static void first_put(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("before"), BYTES, 1, NULL), 0);
}

static void second_put(struct rig *rig)
{
	assert_int_equal(object_put_seeded(rig, "b", SLICE("after"), BYTES, 2, NULL), 0);
}

static void both_verify(struct rig *rig)
{
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("before"), BYTES, 1), 0);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("after"), BYTES, 2), 0);
}

static void replace_to(struct rig *rig, const char *path)
{
	struct store *store = rig->store;

	assert_int_equal(store_volume_replace(store, 2, path), 0);
	rig_monitor_start(rig);
	while (store->volume.replace_path)
		fiber_sleep_ns(SET_LOOK_NS);
	set_state_await(rig, 2, DISK_MEMBER_GOOD);
}

static void replace_run(struct rig *rig, void *arg)
{
	first_put(rig, arg);
	replace_to(rig, "memory://3");
	second_put(rig);
}

static void missing_run(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(disk_array_state(rig->store->volume.disk, 2), DISK_MEMBER_MISSING);
	both_verify(rig);
}

/* The configuration and the list name the former volume alone. */
static void test_a_replaced_volume_is_not_taken(void **state)
{
	struct rig rig;

	(void)state;
	replaced_open(&rig);
	rig_run(&rig, replace_run, NULL);
	assert_int_equal(rig.open_result, 0);
	list_write(&rig, "memory://0\nmemory://1\nmemory://2\n");
	rig_run(&rig, missing_run, NULL);
	assert_int_equal(rig.open_result, 0);
	/* With one of the others it is not enough. */
	rig.opts.volume = "memory://0,memory://2";
	list_write(&rig, "memory://0\nmemory://2\n");
	rig_run(&rig, NULL, NULL);
	assert_int_equal(rig.open_result, -EUCLEAN);
	memory_disks_close();
	rig_dir_remove(&rig);
}

static void back_run(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(disk_array_lost(rig->store->volume.disk), 0);
	replace_to(rig, "memory://2");
	both_verify(rig);
}

static void good_run(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(disk_array_lost(rig->store->volume.disk), 0);
	memory_disk_lose(0);
	both_verify(rig);
}

/* It takes its place again when an administrator says so. */
static void test_a_replaced_volume_comes_back_when_it_is_named(void **state)
{
	struct rig rig;

	(void)state;
	replaced_open(&rig);
	rig_run(&rig, replace_run, NULL);
	assert_int_equal(rig.open_result, 0);
	rig.opts.volume = NULL;
	list_write(&rig, WITHOUT_OLD);
	rig_run(&rig, back_run, NULL);
	assert_int_equal(rig.open_result, 0);
	rig_run(&rig, good_run, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

static uint8_t *copy_take(void)
{
	uint8_t *copy = (uint8_t *)malloc(COPY_BYTES);

	assert_non_null(copy);
	memcpy(copy, memory_disk(2)->memory, COPY_BYTES);
	return copy;
}

static void copy_restore(uint8_t *copy)
{
	memcpy(memory_disk(2)->memory, copy, COPY_BYTES);
	free(copy);
}

static void blank_run(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(disk_array_state(rig->store->volume.disk, 2), DISK_MEMBER_REBUILDING);
	assert_int_equal(store_rebuild(rig->store), 0);
	second_put(rig);
}

/* A blank volume took its place, at its path, when the store was opened. */
static void test_a_volume_before_a_blank_one_is_not_taken(void **state)
{
	struct rig rig;
	uint8_t *copy;

	(void)state;
	replaced_open(&rig);
	rig_run(&rig, first_put, NULL);
	assert_int_equal(rig.open_result, 0);
	copy = copy_take();
	memory_disk_blank(2);
	rig_run(&rig, blank_run, NULL);
	assert_int_equal(rig.open_result, 0);
	copy_restore(copy);
	rig_run(&rig, missing_run, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

static void emptied_run(struct rig *rig, void *arg)
{
	(void)arg;
	memory_disk_lose(2);
	memory_disk_blank(2);
	second_put(rig);
	memory_disk(2)->away = false;
	rig_monitor_start(rig);
	set_state_await(rig, 2, DISK_MEMBER_GOOD);
}

/* The same while the store was open: its host came back with an empty volume. */
static void test_a_volume_before_an_emptied_one_is_not_taken(void **state)
{
	struct rig rig;
	uint8_t *copy;

	(void)state;
	replaced_open(&rig);
	rig_run(&rig, first_put, NULL);
	assert_int_equal(rig.open_result, 0);
	copy = copy_take();
	rig_run(&rig, emptied_run, NULL);
	assert_int_equal(rig.open_result, 0);
	copy_restore(copy);
	rig_run(&rig, missing_run, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

static void second_run(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(disk_array_lost(rig->store->volume.disk), 0);
	second_put(rig);
}

static void older_run(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(disk_array_state(rig->store->volume.disk, 2), DISK_MEMBER_REBUILDING);
	both_verify(rig);
	assert_int_equal(store_rebuild(rig->store), 0);
}

/* A copy of the volume from before the last two starts. */
static void test_an_older_state_of_a_volume_is_rebuilt(void **state)
{
	struct rig rig;
	uint8_t *copy;

	(void)state;
	replaced_open(&rig);
	rig_run(&rig, first_put, NULL);
	assert_int_equal(rig.open_result, 0);
	copy = copy_take();
	rig_run(&rig, second_run, NULL);
	assert_int_equal(rig.open_result, 0);
	rig_run(&rig, NULL, NULL);
	assert_int_equal(rig.open_result, 0);
	copy_restore(copy);
	rig_run(&rig, older_run, NULL);
	assert_int_equal(rig.open_result, 0);
	rig_run(&rig, good_run, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_replaced_volume_is_not_taken),
		cmocka_unit_test(test_a_replaced_volume_comes_back_when_it_is_named),
		cmocka_unit_test(test_a_volume_before_a_blank_one_is_not_taken),
		cmocka_unit_test(test_a_volume_before_an_emptied_one_is_not_taken),
		cmocka_unit_test(test_an_older_state_of_a_volume_is_rebuilt),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
