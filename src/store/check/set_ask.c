/* store/check/set_ask.c: a change of the set of volumes is asked for, taken back or looked at:
 * which changes are refused, and what an administrator sees. */
#include "store/check/set_change_priv.h"
#include "store/space/space.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A part of the space that the estimate of a removal leaves free. */
#define SPARE_PART 20u

struct asking {
	struct store *store;
	const struct store_set_change *wanted;
	char *why;
	size_t why_cap;
	int ret;
};

static int refuse(struct asking *asking, int error, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static int refuse(struct asking *asking, int error, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(asking->why, asking->why_cap, fmt, args);
	va_end(args);
	return error;
}

/* The geometry after the change: the members that stay in their order, then the new ones. */
static int geometry_plan(
	struct asking *asking, struct disk_geometry *ret_geometry, uint64_t *ret_added)
{
	const struct store_set_change *wanted = asking->wanted;
	const struct super_set *set = &asking->store->volume.super.set;
	const struct disk_geometry *now = &set->geometries[set->current].numbers;
	uint64_t members = disk_geometry_mask(now);
	struct disk_geometry geometry = {.data = 0};
	uint32_t count = 0, member = 0;

	for (uint32_t i = 0; i < (uint32_t)now->data + now->parity; i++)
		if (!(wanted->remove >> now->order[i] & 1))
			geometry.order[count++] = now->order[i];
	*ret_added = 0;
	for (uint32_t i = 0; i < wanted->add_count; i++, member++) {
		while (member < DISK_MEMBERS_MAX && (members >> member & 1))
			member++;
		if (member >= DISK_MEMBERS_MAX || count >= DISK_MEMBERS_MAX)
			return refuse(asking, -EINVAL, "a store has at most %u volumes",
				DISK_MEMBERS_MAX);
		geometry.order[count++] = (uint8_t)member;
		*ret_added |= 1ull << member;
	}
	geometry.parity = (uint8_t)(wanted->data ? wanted->parity : now->parity);
	geometry.data = (uint8_t)(wanted->data ? wanted->data : count - MIN(count, now->parity));
	if ((uint32_t)geometry.data + geometry.parity != count)
		return refuse(asking, -EINVAL,
			"the store would have %u volumes, and %u+%u needs %u", count, geometry.data,
			geometry.parity, geometry.data + geometry.parity);
	if (!disk_geometry_valid(&geometry))
		return refuse(asking, -EINVAL,
			"%u+%u is not possible: 2 to 16 of data, 1 to 8 of parity, which must be "
			"less; say other numbers with --erasure DATA+PARITY",
			geometry.data, geometry.parity);
	if (memcmp(&geometry, now, sizeof(geometry)) == 0)
		return refuse(asking, -EINVAL, "the store is like this already");
	*ret_geometry = geometry;
	return 0;
}

/* Whether the volumes can grow to that size. */
static bool can_grow(const struct store *store, uint64_t bytes)
{
	const struct disk *disk = store->volume.disk;

	if (store->opts.volume_bytes_max && bytes > store->opts.volume_bytes_max)
		return false;
	for (uint64_t left = disk_array_mask(disk); left; left &= left - 1) {
		const struct disk *member =
			disk_array_member(disk, (uint32_t)__builtin_ctzll(left));

		if (member && !disk_can_grow(member))
			return false;
	}
	return true;
}

/* Fewer shards of data make wider stripes. */
static int room_check(struct asking *asking, const struct disk_geometry *geometry)
{
	struct store *store = asking->store;
	uint64_t used = space_used_blocks(store->space), free_now = space_free_blocks(store->space);
	uint64_t now = disk_array_data(store->volume.disk);
	uint64_t more = used * now / geometry->data;

	more = more > used ? more - used + used / SPARE_PART : 0;
	if (more <= free_now ||
		can_grow(store, disk_bytes(store->volume.disk) + (more - free_now) * BLOCK_BYTES))
		return 0;
	return refuse(asking, -ENOSPC,
		"the bodies would take %llu MiB more of each volume, and %llu MiB are free: delete "
		"objects, or add volumes",
		(unsigned long long)(more * BLOCK_BYTES / MIB),
		(unsigned long long)(free_now * BLOCK_BYTES / MIB));
}

static int paths_check(struct asking *asking)
{
	const struct store_set_change *wanted = asking->wanted;
	const struct volume *volume = &asking->store->volume;
	const struct store_change *change = asking->store->change;

	if (volume->set_count + wanted->add_count > STRIPE_PATHS_MAX)
		return refuse(asking, -EINVAL, "too many volumes are named");
	for (uint32_t i = 0; i < wanted->add_count; i++) {
		const char *path = wanted->add[i];
		uint32_t at = stripe_path_find(volume, path);

		if (!stripe_path_valid(path))
			return refuse(asking, -EINVAL,
				"'%s': a path is wanted, without blanks at its ends: absolute, or "
				"rdma://HOST:PORT/NAME",
				path);
		for (uint32_t m = 0; m < DISK_MEMBERS_MAX; m++)
			if (change->left[m] && strcmp(path, change->left[m]) == 0)
				return refuse(asking, -EBUSY,
					"%s: it left the store while this server runs, which keeps "
					"it open: restart the server, then add it",
					path);
		for (uint32_t k = 0; k < i; k++)
			if (strcmp(path, wanted->add[k]) == 0)
				return refuse(asking, -EINVAL, "%s: named twice", path);
		for (uint32_t m = 0; at != STRIPE_PATH_NONE && m < DISK_MEMBERS_MAX; m++)
			if (volume->path_of[m] == at)
				return refuse(
					asking, -EEXIST, "%s: it is volume %u already", path, m);
	}
	return 0;
}

static int change_ask(struct asking *asking)
{
	const struct store_set_change *wanted = asking->wanted;
	struct store *store = asking->store;
	struct store_change *change = store->change;
	struct disk_geometry geometry;
	uint64_t added, lost = disk_array_lost(store->volume.disk);
	int ret;

	if (change->asked || set_is_changing(store))
		return refuse(asking, -EBUSY,
			"the volumes are being changed: wait until that has ended, or cancel it");
	if (wanted->remove & ~super_members(&store->volume.super))
		return refuse(asking, -ENOENT, "no such volume");
	ret = paths_check(asking);
	if (!ret)
		ret = geometry_plan(asking, &geometry, &added);
	if (!ret)
		ret = room_check(asking, &geometry);
	if (ret)
		return ret;
	if (!disk_array_quorum(store->volume.disk) ||
		(uint32_t)__builtin_popcountll(disk_geometry_mask(&geometry) & ~added & lost) >
			geometry.parity)
		return refuse(asking, -EBUSY, "too many volumes are missing");
	for (uint32_t i = 0; i < wanted->add_count; i++) {
		change->add[i] = strdup(wanted->add[i]);
		if (!change->add[i])
			return refuse(asking, -ENOMEM, "no memory");
	}
	change->add_count = wanted->add_count;
	change->geometry = geometry;
	change->added = added;
	change->asked = ASKED_CHANGE;
	snprintf(change->note, sizeof(change->note), "%s",
		added ? "the new volumes are being made ready" : "");
	return 0;
}

void set_add_forget(struct store_change *change)
{
	for (uint32_t i = 0; i < DISK_MEMBERS_MAX; i++) {
		free(change->add[i]);
		change->add[i] = NULL;
	}
	change->add_count = 0;
}

/* On a helper thread: a checkpoint may hold the lock for seconds. */
static void ask_run(void *arg)
{
	struct asking *asking = (struct asking *)arg;
	struct store_change *change = asking->store->change;

	pthread_mutex_lock(&asking->store->volume.lock);
	pthread_mutex_lock(&change->lock);
	asking->ret = change_ask(asking);
	if (asking->ret && asking->ret != -EBUSY)
		set_add_forget(change);
	pthread_mutex_unlock(&change->lock);
	pthread_mutex_unlock(&asking->store->volume.lock);
}

static bool has_set(const struct store *store)
{
	return store->head.engine->local && store->volume.set_count && store->change;
}

int store_volumes_change(
	struct store *store, const struct store_set_change *wanted, char *ret_why, size_t why_cap)
{
	struct asking asking = {
		.store = store, .wanted = wanted, .why = ret_why, .why_cap = why_cap};

	if (!has_set(store))
		return refuse(&asking, -ENOTSUP,
			"the store has one volume: its objects must be copied to a new store over "
			"several");
	fiber_offload_long(ask_run, &asking);
	return asking.ret;
}

int store_volumes_cancel(struct store *store)
{
	struct store_change *change = store->change;
	int ret = -ENOENT;

	if (!has_set(store))
		return -ENOTSUP;
	pthread_mutex_lock(&change->lock);
	if (change->shown.before_data || change->asked == ASKED_CHANGE) {
		change->asked = ASKED_CANCEL;
		change->note[0] = '\0';
		ret = 0;
	}
	pthread_mutex_unlock(&change->lock);
	return ret;
}

void store_volumes_status(struct store *store, struct store_set_status *ret_status)
{
	struct store_change *change = store->change;
	struct store_set_status status = {.changing = false};
	uint64_t left, moved;
	uint32_t slot_old;

	if (!has_set(store)) {
		*ret_status = status;
		return;
	}
	pthread_mutex_lock(&change->lock);
	status = change->shown;
	slot_old = set_slot_old(store);
	status.preparing = change->asked == ASKED_CHANGE;
	memcpy(status.note, change->note, sizeof(status.note));
	pthread_mutex_unlock(&change->lock);
	left = space_geometry_blocks(store->space, slot_old) * status.before_data;
	moved = space_geometry_blocks(store->space, 1u - slot_old) * status.data;
	status.left_bytes = left * BLOCK_BYTES;
	status.all_bytes = (left + moved) * BLOCK_BYTES;
	*ret_status = status;
}

struct path_look {
	struct volume *volume;
	uint32_t number;
	char *path;
	size_t cap;
};

static void path_run(void *arg)
{
	const struct path_look *look = (const struct path_look *)arg;
	uint32_t at;

	pthread_mutex_lock(&look->volume->lock);
	at = look->volume->path_of[look->number];
	snprintf(look->path, look->cap, "%s",
		at == STRIPE_PATH_NONE ? "" : look->volume->set_paths[at]);
	pthread_mutex_unlock(&look->volume->lock);
}

void store_volume_path(struct store *store, uint32_t number, char *ret_path, size_t path_cap)
{
	struct path_look look = {
		.volume = &store->volume, .number = number, .path = ret_path, .cap = path_cap};

	ret_path[0] = '\0';
	if (has_set(store) && number < DISK_MEMBERS_MAX)
		fiber_offload_long(path_run, &look);
}
