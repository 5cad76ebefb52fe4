/* tests/unit/store/set_rig.c: see set_rig.h. */
#include "set_rig.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "store/store_priv.h"

#define BYTES 70000u
#define RATE  (1 * MIB) /* while a test interferes */

void set_key_name(char key[32], uint32_t i)
{
	snprintf(key, 32, "k%04u", i);
}

int set_key_put(struct rig *rig, uint32_t i)
{
	char key[32];

	set_key_name(key, i);
	return object_put_seeded(rig, "b", slice_str(key), BYTES, i, NULL);
}

void set_keys_verify(struct rig *rig, uint32_t from, uint32_t to)
{
	char key[32];

	for (uint32_t i = from; i < to; i++) {
		set_key_name(key, i);
		assert_int_equal(object_verify_seeded(rig, "b", slice_str(key), BYTES, i), 0);
	}
}

void set_keys_put(struct rig *rig)
{
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t i = 0; i < SET_KEYS; i++)
		assert_int_equal(set_key_put(rig, i), 0);
	rig->store->opts.move_bytes_per_s = RATE;
}

void set_begin_keys(struct rig *rig)
{
	set_keys_put(rig);
	rig_monitor_start(rig);
}

struct store_set_status set_status(struct rig *rig)
{
	struct store_set_status status;

	store_volumes_status(rig->store, &status);
	return status;
}

int set_ask(struct rig *rig, const char *add, uint64_t remove)
{
	const struct store_set_change change = {
		.add = &add, .add_count = add ? 1 : 0, .remove = remove};
	char why[256] = "";
	int ret = store_volumes_change(rig->store, &change, why, sizeof(why));

	assert_true(!ret == !why[0]);
	return ret;
}

void set_end_await(struct rig *rig)
{
	rig->store->opts.move_bytes_per_s = 0;
	while (set_status(rig).changing || set_status(rig).preparing)
		fiber_sleep_ns(SET_LOOK_NS);
	assert_string_equal(set_status(rig).note, "");
}

void set_note_await(struct rig *rig, const char *words)
{
	while (!strstr(set_status(rig).note, words))
		fiber_sleep_ns(SET_LOOK_NS);
}

void set_state_await(const struct rig *rig, uint32_t member, enum disk_member_state state)
{
	while (disk_array_state(rig->store->volume.disk, member) != state)
		fiber_sleep_ns(SET_LOOK_NS);
}

uint64_t set_members(const struct rig *rig)
{
	return disk_array_mask(rig->store->volume.disk);
}

void set_writable_await(struct rig *rig)
{
	char why[256];

	while (!store_writable(rig->store, why, sizeof(why)))
		fiber_sleep_ns(SET_LOOK_NS);
}

void set_run(rig_fn *fn, const char *volumes, uint32_t data, uint64_t bytes_max)
{
	struct rig rig;

	rig_init(&rig, 1);
	rig.opts.volume = volumes;
	rig.opts.erasure_data = data;
	rig.opts.erasure_parity = 1;
	rig.opts.volume_bytes_max = bytes_max;
	memory_disks_open();
	rig_run(&rig, fn, NULL);
	assert_int_equal(rig.open_result, 0);
	rig.opts.volume = NULL;
	for (uint32_t i = 0; i < MEMORY_DISKS; i++)
		memory_disk(i)->away = memory_disk(i)->lost = false;
	rig_fsck(&rig);
	memory_disks_close();
	rig_dir_remove(&rig);
}
