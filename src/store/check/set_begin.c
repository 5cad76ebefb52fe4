/* store/check/set_begin.c: the beginning of a change of the set of volumes: new volumes are made
 * ready, join the array, and become members by a superblock with both geometries; and the way back.
 */
#include "base/file.h"
#include "store/check/set_change_priv.h"
#include "store/commit/body.h"
#include "store/commit/commit.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <string.h>

/* ---- New volumes; on a helper thread, except that they grow. ---- */

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
	if (found == -EUCLEAN)
		log_error("store",
			"%s: it holds a store in a disk format that this program does not know",
			path);
	if (found || memcmp(super.uuid, store->volume.super.uuid, sizeof(super.uuid)) != 0)
		return found ? found : -EMEDIUMTYPE;
	if (stripe_belongs(&store->volume.super, &super))
		return -EEXIST;
	*ret_former = true;
	return 0;
}

static int volume_open_new(struct store *store, const char *path, struct disk **ret_disk)
{
	const struct volume_opts opts = {.dir = store->dir,
		.format = store->opts.format,
		.discard_files = store->opts.discard_files};
	struct disk_opts disk_opts = {.path = path,
		.create = true,
		.discard_files = opts.discard_files,
		.step_bytes = store->volume.super.step_bytes};
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
	if (ret)
		disk_close(disk);
	else
		*ret_disk = disk;
	return ret;
}

/* It is no member yet, by its number and by the members' superblocks. */
static int volume_label_new(
	struct store *store, const char *path, uint32_t member, struct disk *disk)
{
	struct superblock label;
	int ret;

	pthread_mutex_lock(&store->volume.lock);
	label = store->volume.super;
	pthread_mutex_unlock(&store->volume.lock);
	label.generation = 0;
	label.set_idx = (uint16_t)member;
	label.set.change++;
	label.set.own_joined = label.set.change;
	ret = stripe_label(disk, &label);
	return ret || strstr(path, "://") ? ret : file_parent_sync(path);
}

static const char *why_not(int error)
{
	if (error == -EACCES)
		return "permission denied (of another host: the secrets differ)";
	if (error == -EHOSTUNREACH || error == -ENOTCONN || error == -ECONNREFUSED)
		return "its host cannot be reached, or does not export it";
	return error == -EEXIST	   ? "it is a volume of this store already"
	       : error == -EBUSY   ? "another server or program has it"
	       : error == -EUCLEAN ? "it is not blank (the log says what it holds)"
				   : stripe_why(error);
}

/* One new volume, on its way. */
struct readying {
	struct store *store;
	const char *path;
	uint32_t member;
	int ret;
};

static void open_run(void *arg)
{
	struct readying *readying = (struct readying *)arg;
	struct store_change *change = readying->store->change;
	struct disk **disk = &change->disks[readying->member];
	uint64_t bit = 1ull << readying->member;
	bool absent = disk_file_absent(readying->path);

	readying->ret = volume_open_new(readying->store, readying->path, disk);
	/* A change that waited begins again, and its files have grown. */
	if (readying->ret || (change->noted & bit))
		return;
	change->noted |= bit;
	change->made |= absent ? bit : 0;
	change->bytes_before[readying->member] = disk_medium_bytes(*disk);
}

static void label_run(void *arg)
{
	struct readying *readying = (struct readying *)arg;

	readying->ret = volume_label_new(readying->store, readying->path, readying->member,
		readying->store->change->disks[readying->member]);
}

static int volume_ready(struct store *store, const char *path, uint32_t member)
{
	struct readying readying = {.store = store, .path = path, .member = member};

	fiber_offload_long(open_run, &readying);
	if (!readying.ret)
		readying.ret = array_grow_to(store, store->change->disks[member]);
	if (!readying.ret)
		fiber_offload_long(label_run, &readying);
	return readying.ret;
}

/* Opened, as large as the others, and labelled. */
static void disks_ready(struct store *store)
{
	struct store_change *change = store->change;
	uint32_t i = 0;

	change->ret = 0;
	for (uint64_t left = change->added; left && !change->ret; left &= left - 1, i++) {
		change->ret = volume_ready(store, change->add[i], (uint32_t)__builtin_ctzll(left));
		if (!change->ret || change->ret == -EAGAIN)
			continue;
		log_error("store", "%s: cannot be added: %s", change->add[i], why_not(change->ret));
		set_note(change, "%s cannot be added: %s", change->add[i], why_not(change->ret));
	}
}

/* The volume grew by as much as the store did meanwhile. */
static void regrow_run(void *arg)
{
	struct store *store = (struct store *)arg;
	struct store_change *change = store->change;
	uint64_t bytes = disk_bytes(store->volume.disk);

	change->ret = 0;
	for (uint64_t left = change->added; left && !change->ret; left &= left - 1) {
		struct disk *disk = change->disks[__builtin_ctzll(left)];

		change->ret = disk_room_check(disk, bytes, store->opts.reserve_bytes);
		if (!change->ret)
			change->ret = disk_grow(disk, bytes);
	}
}

/* ---- The way back. ---- */

/* The label that it may have goes, too; all else is zeros. */
static void file_restore(struct disk *disk, bool made, uint64_t bytes)
{
	bool file = disk_kind(disk) == DISK_FILE || disk_kind(disk) == DISK_DAX_FILE;
	int ret = 0;

	if (made)
		ret = disk_remove_now(disk);
	else if (!file || disk_attached(disk))
		return; /* if it is attached, a write may be under way */
	else if (bytes)
		ret = disk_zero_now(disk, DISK_LABEL_BYTES, 0);
	if (!ret && !made)
		ret = disk_shrink_now(disk, bytes);
	if (ret)
		log_warn("store", "%s: what it grew by stays: %s", disk_path(disk), strerror(-ret));
}

/* Nobody else has made a store of it meanwhile. */
static bool still_ours(const struct store *store, struct disk *disk)
{
	const struct superblock *own = &store->volume.super;
	struct superblock super;
	int found = volume_super_of(disk, NULL, &super);

	return found ? found == -ENOENT
		     : memcmp(super.uuid, own->uuid, sizeof(super.uuid)) == 0 &&
			       !stripe_belongs(own, &super);
}

/* A change that waits has closed its disks. */
static struct disk *file_reopen(struct store *store, const char *path)
{
	const struct disk_opts opts = {
		.path = path, .probe = true, .step_bytes = store->volume.super.step_bytes};
	struct disk *disk = NULL;

	if (!path || disk_file_absent(path) || disk_open(&opts, &disk))
		return NULL;
	if (still_ours(store, disk))
		return disk;
	disk_close(disk);
	return NULL;
}

void set_files_restore(struct store *store)
{
	struct store_change *change = store->change;
	uint32_t i = 0;

	for (uint64_t left = change->added; left && change->noted; left &= left - 1, i++) {
		uint32_t member = (uint32_t)__builtin_ctzll(left);
		struct disk *open = change->disks[member];
		struct disk *disk = open;

		if (!(change->noted >> member & 1))
			continue;
		if (!disk)
			disk = file_reopen(store, change->add[i]);
		if (disk)
			file_restore(
				disk, change->made >> member & 1, change->bytes_before[member]);
		if (!open)
			disk_close(disk);
	}
	change->noted = change->made = 0;
}

static void restore_run(void *arg)
{
	set_files_restore((struct store *)arg);
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
			disk_array_refuse(store->volume.disk, change->disks[member]);
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
	uint32_t slot = set_slot_old(store);

	pthread_mutex_lock(&volume->lock);
	change->ret = paths_take(store);
	if (!change->ret)
		change->ret = disk_array_geometry_add(volume->disk, slot, &change->geometry);
	if (!change->ret) {
		set->change++;
		set->geometries[slot] =
			(struct super_geometry){.numbers = change->geometry, .newer = 1};
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

void set_begin(struct store *store)
{
	struct store_change *change = store->change;

	disks_ready(store);
	/* It begins again when the store goes on. The volume that grew keeps its length; those that
	 * had their labels grow again. */
	if (change->ret == -EAGAIN && !atomic_load(&store->quiescing)) {
		disks_drop(store);
		memset(change->disks, 0, sizeof(change->disks));
		set_note(change, "waits: too few volumes are present");
		return;
	}
	if (!change->ret && atomic_load(&store->quiescing))
		change->ret = -ESHUTDOWN;
	if (!change->ret) {
		change->ret = disks_join(store);
		if (!change->ret)
			fiber_offload_long(begin_run, store);
		if (change->ret)
			set_note(change, "the volumes cannot be changed: %s", why_not(change->ret));
	}
	if (change->ret) {
		fiber_offload_long(restore_run, store);
		disks_drop(store);
	} else {
		change->noted = change->made = 0;
		log_info("store", "%s: the set of volumes changes: erasure coded %u+%u from now on",
			store->dir, change->geometry.data, change->geometry.parity);
	}
	memset(change->disks, 0, sizeof(change->disks));
	pthread_mutex_lock(&change->lock);
	set_add_forget(change);
	if (!change->ret)
		change->note[0] = '\0';
	if (change->asked == ASKED_CHANGE || change->ret)
		change->asked = ASKED_NOTHING;
	pthread_mutex_unlock(&change->lock);
}

struct cancelling {
	struct store *store;
	bool done;
};

/* On a helper thread: new bodies use the other geometry again, unless they do already, because the
 * change was taken back before, or the change's last superblock was made meanwhile. */
static void cancel_run(void *arg)
{
	struct cancelling *cancelling = (struct cancelling *)arg;
	struct store *store = cancelling->store;
	struct volume *volume = &store->volume;
	struct super_set *set = &volume->super.set;
	uint32_t slot = set_slot_old(store);

	pthread_mutex_lock(&volume->lock);
	cancelling->done =
		set->geometries[slot].numbers.data != 0 && super_set_newer(&volume->super) != slot;
	if (cancelling->done) {
		set->change++;
		set->current = slot;
		super_set_count(&volume->super);
		set_show(store);
		(void)volume_super_write(volume);
	}
	pthread_mutex_unlock(&volume->lock);
}

void set_cancel(struct store *store)
{
	struct cancelling cancelling = {.store = store};

	fiber_offload_long(cancel_run, &cancelling);
	if (cancelling.done)
		log_info("store", "%s: the change of the set of volumes is taken back", store->dir);
	fiber_offload_long(restore_run, store);
	set_asked_end(store->change);
}
