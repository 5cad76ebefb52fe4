/* store/check/set_change.c: changes the set of volumes of a store while it is open: adds, removes,
 * and gives new bodies other numbers of shards. docs/design/stripe.md has the proof that a crash at
 * any step leaves one set.
 *
 *   asked ──► new volumes opened, zeroed, labelled as not yet members
 *         ──► superblock with both geometries; new bodies use the new one     (cancel: the old one)
 *         ──► move.c moves bodies until no block of the other is in use
 *         ──► checkpoint; superblock with one geometry: the volumes that left are members no more
 */
#include "store/check/set_change.h"
#include "base/file.h"
#include "store/check/check.h"
#include "store/commit/body.h"
#include "store/commit/commit.h"
#include "store/commit/committer.h"
#include "store/commit/index_apply.h"
#include "store/space/space.h"
#include "store/state/state.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTE_BYTES    sizeof(((struct store_set_status *)0)->note)
#define ENDED_LOOK_NS (10 * NS_PER_MS)
#define TOLD_NS	      (60 * NS_PER_S) /* shortest interval between two log messages */
/* A part of the space that the estimate of a removal leaves free. */
#define SPARE_PART 20u

DEFINE_COUNTER(changes_total, "nebulaio_store_volume_set_changes_total", NULL,
	"Changes of the set of volumes that have ended.");

enum asked { ASKED_NOTHING, ASKED_CHANGE, ASKED_CANCEL };

struct store_change {
	pthread_mutex_t lock; /* of what is asked, the note and what is shown; after volume.lock */
	enum asked asked;
	char *add[DISK_MEMBERS_MAX];
	uint32_t add_count;
	struct disk_geometry geometry; /* of new bodies */
	uint64_t added;		       /* its members that are new */
	char *left[DISK_MEMBERS_MAX]; /* paths of volumes that left, by former member: still open */
	char note[NOTE_BYTES];
	struct store_set_status shown; /* the set as it is, for status */
	_Atomic bool moving;	       /* the mover runs */
	_Atomic uint64_t failed;
	/* Of the monitor, and its helper thread. */
	bool stepping;
	struct disk *disks[DISK_MEMBERS_MAX]; /* by member: new */
	uint64_t told_ns;
	int ret;
};

/* ---- State. ---- */

static uint32_t slot_old(const struct store *store)
{
	return 1u - atomic_load(&store->volume.set_current);
}

/* While the set changes the array has both geometries. */
static bool is_changing(const struct store *store)
{
	return store->volume.set_count &&
	       disk_array_geometry_data(store->volume.disk, slot_old(store)) != 0;
}

uint64_t set_change_blocks_left(const struct store *store)
{
	return is_changing(store) ? space_geometry_blocks(store->space, slot_old(store)) : 0;
}

static void note_set(struct store_change *change, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void note_set(struct store_change *change, const char *fmt, ...)
{
	va_list args;

	pthread_mutex_lock(&change->lock);
	va_start(args, fmt);
	vsnprintf(change->note, sizeof(change->note), fmt, args);
	va_end(args);
	pthread_mutex_unlock(&change->lock);
}

void set_change_note(struct store *store, int error, uint64_t failed)
{
	struct store_change *change = store->change;
	uint64_t now_ns = clock_now_ns();

	atomic_store(&change->failed, failed);
	if (error == -ENOSPC)
		note_set(change, "waits for space: free some, or cancel");
	else if (error && error != -ESHUTDOWN)
		note_set(change, "waits: %s", strerror(-error));
	else if (failed)
		note_set(change,
			"%llu bodies cannot be read: run a scrub, which names them; restore or "
			"delete them",
			(unsigned long long)failed);
	else
		note_set(change, "%s", "");
	if ((!failed && (!error || error == -ESHUTDOWN)) || now_ns - change->told_ns < TOLD_NS)
		return;
	change->told_ns = now_ns;
	if (failed)
		log_error("store",
			"%s: %llu bodies cannot be read and stay on the former set of volumes: run "
			"a scrub, which names them",
			store->dir, (unsigned long long)failed);
	else
		log_warn("store", "%s: moving bodies to the new set of volumes waits: %s",
			store->dir, strerror(-error));
}

/* Under volume.lock: what status shows is the set of the superblock. */
static void set_show(struct store *store)
{
	const struct super_set *set = &store->volume.super.set;
	const struct disk_geometry *now = &set->geometries[set->current].numbers;
	const struct disk_geometry *before = &set->geometries[1 - set->current].numbers;
	struct store_change *change = store->change;

	pthread_mutex_lock(&change->lock);
	change->shown = (struct store_set_status){.changing = before->data != 0,
		.data = now->data,
		.parity = now->parity,
		.members = disk_geometry_mask(now),
		.before_data = before->data,
		.before_parity = before->parity};
	pthread_mutex_unlock(&change->lock);
	atomic_store(&store->volume.set_current, (uint32_t)set->current);
}

/* ---- Asking. ---- */

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

		if ((path[0] != '/' && !strstr(path, "://")) || strpbrk(path, "\n,"))
			return refuse(asking, -EINVAL,
				"%s: a path is wanted: absolute, or rdma://HOST:PORT/NAME", path);
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

	if (change->asked || is_changing(store))
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

static void add_forget(struct store_change *change)
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
		add_forget(change);
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
	if (is_changing(store) || change->asked == ASKED_CHANGE) {
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

	if (!has_set(store)) {
		*ret_status = status;
		return;
	}
	pthread_mutex_lock(&change->lock);
	status = change->shown;
	status.changing |= is_changing(store);
	status.preparing = change->asked == ASKED_CHANGE;
	memcpy(status.note, change->note, sizeof(status.note));
	pthread_mutex_unlock(&change->lock);
	left = set_change_blocks_left(store) * status.before_data;
	moved = space_geometry_blocks(store->space, 1u - slot_old(store)) * status.data;
	status.left_bytes = left * BLOCK_BYTES;
	status.all_bytes = (left + moved) * BLOCK_BYTES;
	status.failed = atomic_load(&change->failed);
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

/* ---- New volumes, on a helper thread. ---- */

/* Whether it can be taken: blank, or a former volume of this store. */
static int label_look(struct store *store, const char *path, bool *ret_former)
{
	struct superblock super;
	enum disk_kind kind;
	int found = disk_kind_of(path, &kind);

	*ret_former = false;
	/* A device that is not there is not made as a file. */
	if (found == -ENOENT)
		return strncmp(path, "/dev/", 5) == 0 && strncmp(path, "/dev/shm/", 9) != 0
			       ? -ENODEV
			       : -ENOENT;
	if (!found)
		found = volume_super_read(path, true, &super);
	if (found || memcmp(super.uuid, store->volume.super.uuid, sizeof(super.uuid)) != 0)
		return found ? found : -EMEDIUMTYPE;
	if (stripe_belongs(&store->volume.super, &super))
		return -EEXIST;
	*ret_former = true;
	return 0;
}

static int volume_ready(
	struct store *store, const char *path, uint32_t member, struct disk **ret_disk)
{
	const struct volume_opts opts = {.dir = store->dir,
		.format = store->opts.format,
		.discard_files = store->opts.discard_files};
	struct disk_opts disk_opts = {.path = path,
		.create = true,
		.discard_files = opts.discard_files,
		.step_bytes = store->volume.super.step_bytes};
	struct superblock label;
	bool former;
	int found = label_look(store, path, &former);
	int ret = found == -ENOENT || found == -EMEDIUMTYPE || !found ? 0 : found;
	struct disk *disk = NULL;

	if (!ret)
		ret = disk_open(&disk_opts, &disk);
	if (!ret && former)
		ret = disk_wipe_now(disk);
	else if (!ret)
		ret = volume_label_check(&opts, path, disk, found);
	if (!ret)
		ret = disk_grow(disk, disk_bytes(store->volume.disk));
	/* It is no member yet, by its number and by the members' superblocks. */
	pthread_mutex_lock(&store->volume.lock);
	label = store->volume.super;
	pthread_mutex_unlock(&store->volume.lock);
	label.generation = 0;
	label.set_idx = (uint16_t)member;
	label.set.change++;
	label.set.own_joined = label.set.change;
	if (!ret)
		ret = stripe_label(disk, &label);
	if (!ret && !strstr(path, "://"))
		ret = file_parent_sync(path);
	if (ret)
		disk_close(disk);
	else
		*ret_disk = disk;
	return ret;
}

static const char *why_not(int error)
{
	return error == -EEXIST	   ? "it is a volume of this store already"
	       : error == -EUCLEAN ? "it is not blank (the log says what it holds)"
	       : error == -ENOSPC
		       ? "it is smaller than the other volumes, or its file system is full"
		       : strerror(-error);
}

static void ready_run(void *arg)
{
	struct store *store = (struct store *)arg;
	struct store_change *change = store->change;
	uint32_t i = 0;

	change->ret = 0;
	for (uint64_t left = change->added; left && !change->ret; left &= left - 1, i++) {
		uint32_t member = (uint32_t)__builtin_ctzll(left);

		change->ret = volume_ready(store, change->add[i], member, &change->disks[member]);
		if (!change->ret)
			continue;
		log_error("store", "%s: cannot be added: %s", change->add[i], why_not(change->ret));
		note_set(change, "%s cannot be added: %s", change->add[i], why_not(change->ret));
	}
}

/* The volume grew by as much as the store did meanwhile. */
static void regrow_run(void *arg)
{
	struct store *store = (struct store *)arg;
	struct store_change *change = store->change;

	change->ret = 0;
	for (uint64_t left = change->added; left && !change->ret; left &= left - 1)
		change->ret = disk_grow(
			change->disks[__builtin_ctzll(left)], disk_bytes(store->volume.disk));
}

/* ---- Beginning. ---- */

static void disks_drop(struct store *store)
{
	struct store_change *change = store->change;

	for (uint64_t left = change->added; left; left &= left - 1) {
		uint32_t member = (uint32_t)__builtin_ctzll(left);

		if (disk_array_member(store->volume.disk, member) == change->disks[member])
			disk_array_fail(store->volume.disk, member, -ESTALE);
		else
			disk_close(change->disks[member]);
		change->disks[member] = NULL;
	}
}

static int disks_return(struct store *store)
{
	struct store_change *change = store->change;
	int ret;

	fiber_offload_long(regrow_run, store);
	ret = change->ret;
	for (uint64_t left = change->added; left && !ret; left &= left - 1) {
		uint32_t member = (uint32_t)__builtin_ctzll(left);

		ret = array_attach_all(store, change->disks[member]);
		if (!ret)
			ret = disk_array_return(store->volume.disk, member, change->disks[member]);
	}
	return ret;
}

/* From here on the new volumes get what the array writes to all, and grow with it. */
static int disks_join(struct store *store)
{
	struct store_change *change = store->change;
	int ret;

	grow_hold(store);
	ret = disks_return(store);
	grow_release(store);
	for (uint64_t left = change->added; left && !ret; left &= left - 1)
		disk_array_heal(store->volume.disk, (uint32_t)__builtin_ctzll(left));
	return ret;
}

static int paths_take(struct store *store)
{
	struct store_change *change = store->change;
	struct volume *volume = &store->volume;
	uint32_t i = 0;

	for (uint64_t left = change->added; left; left &= left - 1, i++) {
		int ret = stripe_path_add(volume, change->add[i]);

		if (ret)
			return ret;
		volume->path_of[__builtin_ctzll(left)] = stripe_path_find(volume, change->add[i]);
	}
	return 0;
}

/* On a helper thread: the superblock with both geometries. From the lock on, every superblock that
 * anybody writes has them. */
static void begin_run(void *arg)
{
	struct store *store = (struct store *)arg;
	struct store_change *change = store->change;
	struct volume *volume = &store->volume;
	struct super_set *set = &volume->super.set;
	uint32_t slot = slot_old(store);

	pthread_mutex_lock(&volume->lock);
	change->ret = paths_take(store);
	if (!change->ret)
		change->ret = disk_array_geometry_add(volume->disk, slot, &change->geometry);
	if (!change->ret) {
		set->change++;
		set->geometries[slot].numbers = change->geometry;
		for (uint64_t left = change->added; left; left &= left - 1)
			set->joined[__builtin_ctzll(left)] = set->change;
		set->current = slot;
		super_set_count(&volume->super);
		set_show(store);
		if (stripe_remember(store->dir, volume))
			log_warn("store", "%s: cannot record the volumes in the data folder",
				store->dir);
		(void)volume_super_write(volume);
	}
	pthread_mutex_unlock(&volume->lock);
}

static void change_begin(struct store *store)
{
	struct store_change *change = store->change;

	fiber_offload_long(ready_run, store);
	if (!change->ret && atomic_load(&store->quiescing))
		change->ret = -ESHUTDOWN;
	if (!change->ret) {
		change->ret = disks_join(store);
		if (!change->ret)
			fiber_offload_long(begin_run, store);
		if (change->ret)
			note_set(change, "the volumes cannot be changed: %s", why_not(change->ret));
	}
	if (change->ret)
		disks_drop(store);
	else
		log_info("store", "%s: the set of volumes changes: erasure coded %u+%u from now on",
			store->dir, change->geometry.data, change->geometry.parity);
	memset(change->disks, 0, sizeof(change->disks));
	pthread_mutex_lock(&change->lock);
	add_forget(change);
	if (!change->ret)
		change->note[0] = '\0';
	if (change->asked == ASKED_CHANGE || change->ret)
		change->asked = ASKED_NOTHING;
	pthread_mutex_unlock(&change->lock);
}

/* On a helper thread: new bodies use the other geometry again. */
static void cancel_run(void *arg)
{
	struct store *store = (struct store *)arg;
	struct volume *volume = &store->volume;

	pthread_mutex_lock(&volume->lock);
	volume->super.set.change++;
	volume->super.set.current = slot_old(store);
	super_set_count(&volume->super);
	set_show(store);
	(void)volume_super_write(volume);
	pthread_mutex_unlock(&volume->lock);
}

static void change_cancel(struct store *store)
{
	struct store_change *change = store->change;

	if (is_changing(store)) {
		fiber_offload_long(cancel_run, store);
		log_info("store", "%s: the change of the set of volumes is taken back", store->dir);
	}
	pthread_mutex_lock(&change->lock);
	change->asked = ASKED_NOTHING;
	add_forget(change);
	pthread_mutex_unlock(&change->lock);
}

/* ---- Ending. ---- */

/* On a helper thread. The log's tail moves first: the members of the new log have the log from the
 * beginning of the change on. */
static void end_run(void *arg)
{
	struct store *store = (struct store *)arg;
	struct store_change *change = store->change;
	struct volume *volume = &store->volume;
	uint32_t slot = slot_old(store);

	change->ret = index_apply_checkpoint_now(store);
	if (change->ret || set_change_blocks_left(store)) {
		change->ret = change->ret ? change->ret : -EAGAIN;
		return;
	}
	pthread_mutex_lock(&volume->lock);
	volume->super.set.change++;
	volume->super.set.geometries[slot].numbers = (struct disk_geometry){0};
	super_set_count(&volume->super);
	set_show(store);
	change->ret = volume_super_write(volume);
	pthread_mutex_unlock(&volume->lock);
}

/* On a helper thread: the superblocks have one geometry, the array two. */
static void leave_run(void *arg)
{
	struct store *store = (struct store *)arg;
	struct volume *volume = &store->volume;

	pthread_mutex_lock(&volume->lock);
	disk_array_geometry_end(volume->disk, slot_old(store));
	for (uint32_t m = 0; m < DISK_MEMBERS_MAX; m++) {
		if (super_has(&volume->super, m) || volume->path_of[m] == STRIPE_PATH_NONE)
			continue;
		log_info("store", "volume %u (%s) is removed from the store", m,
			volume->set_paths[volume->path_of[m]]);
		free(store->change->left[m]);
		store->change->left[m] = strdup(volume->set_paths[volume->path_of[m]]);
		stripe_path_remove(volume, volume->path_of[m]);
	}
	if (stripe_remember(store->dir, volume))
		log_warn("store", "%s: cannot record the volumes in the data folder", store->dir);
	space_stripe(store->space, volume->disk, (uint32_t)volume->super.set.current);
	pthread_mutex_unlock(&volume->lock);
}

static void change_end(struct store *store)
{
	struct store_change *change = store->change;

	commit_barrier(store);
	if (index_apply_wait(store, atomic_load(&store->committer->published_seq)))
		return;
	fiber_offload_long(end_run, store);
	if (change->ret)
		return;
	fiber_offload_long(leave_run, store);
	counter_add(&changes_total, 1);
	log_info("store", "%s: the change of the set of volumes has ended: %s", store->dir,
		disk_describe(store->volume.disk));
}

/* ---- Steps. ---- */

static void mover_fiber(void *arg)
{
	struct store *store = (struct store *)arg;

	store_move(store);
	atomic_store(&store->change->moving, false);
}

static void mover_start(struct store *store)
{
	struct store_change *change = store->change;

	if (atomic_load(&change->moving))
		return;
	atomic_store(&change->moving, true);
	if (fiber_spawn(reactor_self(), "mover", mover_fiber, store))
		atomic_store(&change->moving, false);
}

static void settle_run(void *arg)
{
	struct store *store = (struct store *)arg;

	pthread_mutex_lock(&store->volume.lock);
	if (store->volume.settled_change != store->volume.super.set.change)
		(void)volume_super_write(&store->volume);
	pthread_mutex_unlock(&store->volume.lock);
}

/* Whether enough volumes have the superblock of the last change. Only then it is used. */
static bool is_settled(struct store *store)
{
	if (atomic_load(&store->volume.settled_change) != store->volume.super.set.change)
		fiber_offload_long(settle_run, store);
	return atomic_load(&store->volume.settled_change) == store->volume.super.set.change;
}

static enum asked asked_now(struct store_change *change)
{
	enum asked asked;

	pthread_mutex_lock(&change->lock);
	asked = change->asked;
	pthread_mutex_unlock(&change->lock);
	return asked;
}

static void step_run(struct store *store)
{
	const struct super_set *set = &store->volume.super.set;
	enum asked asked = asked_now(store->change);

	if (asked == ASKED_CANCEL && is_settled(store))
		change_cancel(store);
	else if (asked == ASKED_CHANGE)
		change_begin(store);
	if (!is_changing(store) || !is_settled(store))
		return;
	/* An end that was written, but not on enough volumes then. */
	if (!set->geometries[slot_old(store)].numbers.data) {
		fiber_offload_long(leave_run, store);
		return;
	}
	disk_array_current(store->volume.disk, (uint32_t)set->current);
	space_stripe(store->space, store->volume.disk, (uint32_t)set->current);
	if (set_change_blocks_left(store))
		mover_start(store);
	else if (!atomic_load(&store->quiescing))
		change_end(store);
}

void set_change_step(struct store *store)
{
	if (store->change->stepping)
		return;
	store->change->stepping = true;
	step_run(store);
	store->change->stepping = false;
}

int set_change_open(struct store *store)
{
	struct store_change *change = (struct store_change *)calloc(1, sizeof(*change));

	if (!change)
		return -ENOMEM;
	pthread_mutex_init(&change->lock, NULL);
	store->change = change;
	set_show(store);
	if (change->shown.changing)
		log_info("store",
			"%s: the change of the set of volumes goes on: from %u+%u to %u+%u",
			store->dir, change->shown.before_data, change->shown.before_parity,
			change->shown.data, change->shown.parity);
	return 0;
}

void set_change_close(struct store *store)
{
	struct store_change *change = store->change;

	if (!change)
		return;
	add_forget(change);
	for (uint32_t m = 0; m < DISK_MEMBERS_MAX; m++)
		free(change->left[m]);
	pthread_mutex_destroy(&change->lock);
	free(change);
	store->change = NULL;
}

void set_change_await(struct store *store)
{
	while (store->change && atomic_load(&store->change->moving))
		fiber_sleep_ns(ENDED_LOOK_NS);
}
