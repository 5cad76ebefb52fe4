/* store/check/set_end.c: the end of a change of the set of volumes: a superblock with one geometry,
 * and the volumes that are members no more. */
#include "store/check/set_change_priv.h"
#include "store/commit/commit.h"
#include "store/commit/committer.h"
#include "store/commit/index_apply.h"
#include "store/space/space.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

DEFINE_COUNTER(changes_total, "nebulaio_store_volume_set_changes_total", NULL,
	"Changes of the set of volumes that have ended.");

/* On a helper thread. The log's tail moves first: the members of the new log have the log from the
 * beginning of the change on. */
static void end_run(void *arg)
{
	struct store *store = (struct store *)arg;
	struct store_change *change = store->change;
	struct volume *volume = &store->volume;
	uint32_t slot = set_slot_old(store);

	change->ret = index_apply_checkpoint_now(store);
	if (change->ret || set_change_blocks_left(store)) {
		change->ret = change->ret ? change->ret : -EAGAIN;
		return;
	}
	pthread_mutex_lock(&volume->lock);
	volume->super.set.change++;
	volume->super.set.geometries[slot] = (struct super_geometry){0};
	volume->super.set.geometries[1 - slot].newer = 0;
	super_set_count(&volume->super);
	set_show(store);
	change->ret = volume_super_write(volume);
	pthread_mutex_unlock(&volume->lock);
}

/* On a helper thread. */
static void leave_run(void *arg)
{
	struct store *store = (struct store *)arg;
	struct volume *volume = &store->volume;

	pthread_mutex_lock(&volume->lock);
	disk_array_geometry_end(volume->disk, set_slot_old(store));
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
	set_show(store);
	pthread_mutex_unlock(&volume->lock);
}

void set_leave(struct store *store)
{
	fiber_offload_long(leave_run, store);
}

void set_end(struct store *store)
{
	struct store_change *change = store->change;

	commit_barrier(store);
	if (index_apply_wait(store, atomic_load(&store->committer->published_seq)))
		return;
	fiber_offload_long(end_run, store);
	if (change->ret)
		return;
	set_leave(store);
	counter_add(&changes_total, 1);
	log_info("store", "%s: the change of the set of volumes has ended: %s", store->dir,
		disk_describe(store->volume.disk));
}

/* ---- Taken back while too few volumes are left. ---- */

struct withdrawal {
	struct store *store;
	uint64_t left_bytes; /* of bodies in the newer geometry */
	int ret;
};

/* On a helper thread. New space is of the older geometry from here on: if none of the newer one is
 * in use, none ever will be. */
static void withdraw_run(void *arg)
{
	struct withdrawal *withdrawal = (struct withdrawal *)arg;
	struct store *store = withdrawal->store;
	struct volume *volume = &store->volume;
	uint32_t newer;

	pthread_mutex_lock(&volume->lock);
	newer = super_set_newer(&volume->super);
	withdrawal->ret = newer < DISK_GEOMETRIES ? 0 : -ENOENT;
	if (!withdrawal->ret) {
		space_stripe(store->space, volume->disk, 1 - newer);
		withdrawal->left_bytes = space_geometry_blocks(store->space, newer) * BLOCK_BYTES *
					 disk_array_geometry_data(volume->disk, newer);
		withdrawal->ret = withdrawal->left_bytes ? -EBUSY : 0;
	}
	if (!withdrawal->ret) {
		super_set_withdraw(&volume->super);
		disk_array_current(volume->disk, (uint32_t)volume->super.set.current);
		set_show(store);
	}
	pthread_mutex_unlock(&volume->lock);
	if (withdrawal->ret)
		return;
	set_asked_end(store->change);
	leave_run(store);
}

void set_change_withdraw(struct store *store)
{
	struct store_change *change = store->change;
	struct withdrawal withdrawal = {.store = store};

	if (set_asked(change) != ASKED_CANCEL || !set_is_changing(store))
		return;
	fiber_offload_long(withdraw_run, &withdrawal);
	if (withdrawal.ret == -EBUSY)
		set_note(change,
			"cannot be taken back yet: about %llu KiB of bodies lie on the volumes "
			"that are missing: connect them",
			(unsigned long long)(withdrawal.left_bytes / KIB));
	if (withdrawal.ret)
		return;
	counter_add(&changes_total, 1);
	log_warn("store",
		"%s: the change of the set of volumes is taken back: too many of the volumes are "
		"missing, and no body lies on the new ones",
		store->dir);
}
