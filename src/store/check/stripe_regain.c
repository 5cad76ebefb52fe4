/* store/check/stripe_regain.c: a store over several volumes takes no writes while too many volumes
 * are gone, and continues by itself when enough are back. So does a store on one volume whose
 * medium loses no acknowledged write.
 *
 * A volume that is back has every acknowledged commit: a commit is acknowledged when it is on all
 * volumes that the superblocks call good, and when a volume that missed it is called lost there. So
 * the good volumes of the last superblocks that are back are good again, as at a start. Also as at
 * a start, the log goes on in a new epoch: a group that was reported as failed is never replayed,
 * and its space can be reused. A body that was written earlier may lack a part on a volume that is
 * called good now: its commit fails. */
#include "store/check/check.h"
#include "store/commit/commit.h"
#include "store/commit/index_apply.h"
#include "store/space/space.h"
#include "store/state/state.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

bool stripe_lacking(const struct store *store)
{
	if (!store->volume.set_count)
		return stripe_suspended(store) ||
		       (disk_resumes(store->volume.disk) && disk_gone(store->volume.disk));
	return stripe_suspended(store) || !disk_array_quorum(store->volume.disk);
}

/* On a helper thread: which of the formerly good volumes can be reached again. */
struct regain {
	struct store *store;
	uint64_t members;
	bool back; /* the only volume */
	int ret;
};

/* Looks again every second, so the log says once why the store does not go on with it. */
static void back_tell(struct volume *volume, uint32_t member, int error)
{
	bool other = error == -ESTALE || error == -ENOENT || error == -EMEDIUMTYPE;

	if (error && error != volume->member_told[member])
		log_warn("store",
			"volume %u (%s) can be reached, but the store does not use it: %s", member,
			volume->set_paths[volume->path_of[member]],
			error == -EUCLEAN ? "it holds a store in another disk format"
			: other ? "it is not as it was: blank, an older copy, or another volume"
				: stripe_why(error));
	volume->member_told[member] = error;
}

/* Without it the store may not even be read, so the reserve of its file system does not count. */
static bool member_back(struct store *store, uint32_t member)
{
	struct volume *volume = &store->volume;
	struct disk *disk = disk_array_member(volume->disk, member);
	int ret;

	if (!disk || volume->path_of[member] == STRIPE_PATH_NONE || disk_revive(disk))
		return false;
	ret = stripe_member_whole(volume, member);
	if (!ret)
		ret = disk_grow(disk, disk_bytes(volume->disk));
	back_tell(volume, member, ret);
	return !ret;
}

/* Why the volume that can be reached is not the store's; NULL: it is, or *ret_error says why it
 * cannot be read. */
static const char *stranger(struct store *store, int *ret_error)
{
	struct volume *volume = &store->volume;
	struct superblock super;

	*ret_error = volume_super_of(volume->disk, volume->path, &super);
	if (*ret_error == -ENOENT)
		return "it is blank";
	if (*ret_error == -EMEDIUMTYPE || *ret_error == -EUCLEAN)
		return "it has no superblock that this program can read";
	if (*ret_error)
		return NULL;
	if (memcmp(super.uuid, volume->super.uuid, sizeof(super.uuid)) != 0)
		return "it is another store's";
	return super.generation < atomic_load(&volume->settled_generation) ? "it is an older copy"
									   : NULL;
}

/* The only volume can be reached again. Its name may lead to another disk by now: the one that the
 * host has under the device's name, or exports under the subsystem's. */
static bool lone_back(struct store *store)
{
	const char *why;
	int ret;

	if (disk_revive(store->volume.disk))
		return false;
	why = stranger(store, &ret);
	if (why && !store->stranger_told)
		log_error("store",
			"%s: the volume that is back is not the one that this store wrote to: %s: "
			"the store accepts no writes, and continues by itself when its own volume "
			"is there",
			store->volume.path, why);
	store->stranger_told = why != NULL;
	return !ret && !why;
}

static void look_run(void *arg)
{
	struct regain *regain = (struct regain *)arg;
	struct volume *volume = &regain->store->volume;
	uint64_t lost;

	pthread_mutex_lock(&volume->lock);
	lost = volume->super.set_lost;
	pthread_mutex_unlock(&volume->lock);
	if (!volume->set_count)
		regain->back = lone_back(regain->store);
	for (uint32_t m = 0; m < DISK_MEMBERS_MAX && volume->set_count; m++)
		if (super_has(&volume->super, m) &&
			disk_array_state(volume->disk, m) == DISK_MEMBER_MISSING &&
			!(lost >> m & 1) && member_back(regain->store, m))
			regain->members |= 1ull << m;
}

static bool enough(const struct regain *regain)
{
	const struct volume *volume = &regain->store->volume;

	if (!volume->set_count)
		return regain->back;
	return disk_array_enough(volume->disk, disk_array_lost(volume->disk) & ~regain->members);
}

/* On a helper thread, while no I/O of the volumes is in flight. */
static void regain_run(void *arg)
{
	struct regain *regain = (struct regain *)arg;

	regain->ret = index_apply_regain(regain->store, regain->members);
	if (!regain->ret && atomic_exchange(&regain->store->group_held, false))
		space_let_go(regain->store->space);
}

int stripe_regain(struct store *store)
{
	struct regain regain = {.store = store};

	fiber_offload_long(look_run, &regain);
	if (!enough(&regain))
		return -EHOSTDOWN;
	/* From here on, commits of bodies that were written earlier are refused. Groups that were
	 * begun earlier have ended, and the index has everything that was acknowledged. */
	atomic_fetch_add(&store->regains, 1);
	commit_barrier(store);
	regain.ret = index_apply_settle(store);
	if (!regain.ret)
		fiber_offload_long(regain_run, &regain);
	if (regain.ret) {
		log_error("store", "%s: the volumes are back, but writing to them fails: %s",
			store->dir, strerror(-regain.ret));
		return regain.ret;
	}
	disk_resume(store->volume.disk);
	atomic_store(&store->suspended, false);
	log_info("store", "%s: %s: the store accepts writes again", store->dir,
		store->volume.set_count ? "enough volumes are back" : "the volume is back");
	return 0;
}

bool store_cut_off(const struct store *store)
{
	return atomic_load(&store->fenced) || stripe_lacking(store);
}

bool store_writable(const struct store *store, char *ret_why, size_t why_cap)
{
	const struct disk *disk = store->volume.disk;
	uint32_t count = (uint32_t)__builtin_popcountll(disk_array_mask(disk));

	if (atomic_load(&store->fenced)) {
		snprintf(ret_why, why_cap,
			"the store accepts no more writes: its volume or its index failed; see "
			"the log, then restart on a sound disk");
		return false;
	}
	if (atomic_load(&store->index_full)) {
		snprintf(ret_why, why_cap,
			"the store accepts no writes: the file system of its data folder is full; "
			"it continues by itself when there is room");
		return false;
	}
	if (stripe_lacking(store) && !count) {
		snprintf(ret_why, why_cap,
			"the store accepts no writes: its volume takes none now; see the log");
		return false;
	}
	if (stripe_lacking(store)) {
		uint32_t lost = (uint32_t)__builtin_popcountll(disk_array_lost(disk));

		snprintf(ret_why, why_cap,
			"the store accepts no writes: %u of %u volumes are present and complete, "
			"and %u are needed",
			count - lost, count, disk_array_data(disk));
		return false;
	}
	return true;
}
