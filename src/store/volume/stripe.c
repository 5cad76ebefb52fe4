/* store/volume/stripe.c: a store over several volumes: finds which volumes belong to it, are
 * present and are good; and writes their superblocks. docs/spec/disk.md has the format,
 * docs/design/stripe.md the reasons. Blocks, except for stripe_settle. */
#include "base/file.h"
#include "codec/crc.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOCK_WAIT_NS (30 * NS_PER_S)
/* A start takes the volumes, and their superblocks change meanwhile, so many times at most. */
#define ASSEMBLE_TRIES 5u
/* More than the superblocks that were written, and did not count, since the last one that did;
 * even, as each slot has every other one. */
#define GENERATIONS_UNSEEN (1ull << 32)

/* The volume found at one path. */
struct candidate {
	struct superblock super;
	int found; /* as volume_super_read, or -ENODEV: nothing at the path */
	bool taken;
};

struct set {
	const struct volume_opts *opts;
	struct volume *volume;
	struct candidate candidates[STRIPE_PATHS_MAX];
	struct disk_array_opts array;
};

/* ---- Superblocks. ---- */

int stripe_label(struct disk *disk, const struct superblock *from)
{
	struct superblock super = *from;
	void *block;
	int ret;

	if (posix_memalign(&block, BLOCK_BYTES, BLOCK_BYTES))
		return -ENOMEM;
	super.medium_bytes = disk_can_grow(disk) ? 0 : disk_medium_bytes(disk);
	volume_super_fill(&super, (uint8_t *)block);
	ret = disk_write_now(
		disk, block, BLOCK_BYTES, super.generation % 2 * (uint64_t)BLOCK_BYTES);
	free(block);
	return ret ? ret : disk_flush_now(disk);
}

static int member_super_write(struct volume *volume, uint32_t member)
{
	struct superblock super = volume->super;

	super.set_idx = super_has(&super, member) ? (uint16_t)member : SET_IDX_NONE;
	super.set.own_joined = super.set.joined[member];
	return stripe_label(disk_array_member(volume->disk, member), &super);
}

void stripe_member_anew(struct superblock *super, uint32_t member)
{
	super->set.joined[member] = ++super->set.change;
}

/* Writes the superblock to the members in that state. False: some failed. */
static bool members_super_write(struct volume *volume, enum disk_member_state state)
{
	bool whole = true;

	for (uint64_t left = disk_array_mask(volume->disk); left; left &= left - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(left);
		int ret;

		if (disk_array_state(volume->disk, i) != state)
			continue;
		ret = member_super_write(volume, i);
		if (ret) {
			disk_array_fail(volume->disk, i, ret);
			whole = false;
		}
	}
	return whole;
}

/* Gives the superblock that this start found, with a generation of this start, to the good volumes:
 * enough of them have that before any has another one. So the next start sees at least this
 * generation, and passes all superblocks of this start that did not count. */
static void found_write(struct volume *volume)
{
	struct superblock found = volume->found;

	found.generation = ++volume->super.generation;
	for (uint64_t left = disk_array_mask(volume->disk); left; left &= left - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(left);
		int ret;

		if (disk_array_state(volume->disk, i) != DISK_MEMBER_GOOD)
			continue;
		found.set_idx = (uint16_t)i;
		found.set.own_joined = found.set.joined[i];
		ret = stripe_label(disk_array_member(volume->disk, i), &found);
		if (ret)
			disk_array_fail(volume->disk, i, ret);
	}
	volume->unseen = !disk_array_quorum(volume->disk);
}

/* Members of the array that the new set lacks get it, too: they must not be taken for members. A
 * volume that is new in its place has the change by which it came before the others name it: else
 * it would be no member after a crash. */
int stripe_super_write(struct volume *volume)
{
	uint64_t lost_before = volume->super.set_lost, changes = 0;
	bool again = true;

	if (volume->unseen && disk_array_quorum(volume->disk))
		found_write(volume);
	while (again && disk_array_quorum(volume->disk)) {
		changes = disk_array_changes(volume->disk);
		volume->super.generation++;
		volume->super.set_lost =
			disk_array_lost(volume->disk) & super_members(&volume->super);
		again = !members_super_write(volume, DISK_MEMBER_REBUILDING);
		again |= !members_super_write(volume, DISK_MEMBER_GOOD);
	}
	if (again || !disk_array_quorum(volume->disk)) {
		/* No commit that those volumes missed was acknowledged. */
		volume->super.set_lost = lost_before;
		return -EHOSTDOWN;
	}
	atomic_store(&volume->settled_generation, volume->super.generation);
	atomic_store(&volume->settled_change, volume->super.set.change);
	atomic_store(&volume->settled_changes, changes);
	return 0;
}

static bool settled(struct volume *volume)
{
	return atomic_load(&volume->settled_changes) == disk_array_changes(volume->disk);
}

struct settle {
	struct volume *volume;
	int ret;
};

static void settle_run(void *arg)
{
	struct settle *settle = (struct settle *)arg;

	pthread_mutex_lock(&settle->volume->lock);
	if (!settled(settle->volume))
		settle->ret = stripe_super_write(settle->volume);
	pthread_mutex_unlock(&settle->volume->lock);
}

int stripe_settle(struct volume *volume)
{
	struct settle settle = {.volume = volume};

	volume_check(volume);
	if (settled(volume))
		return 0;
	fiber_offload(settle_run, &settle);
	return settle.ret;
}

int stripe_settle_now(struct volume *volume)
{
	struct settle settle = {.volume = volume};

	volume_check(volume);
	settle_run(&settle);
	return settle.ret;
}

/* ---- Opening. ---- */

const char *stripe_why(int error)
{
	return error == -ENOSPC ? "its device is smaller than the other volumes are, or its file "
				  "system has no room for their length beyond data.reserve_bytes"
				: strerror(-error);
}

static void path_scan(struct set *set, uint32_t path_idx, bool probe)
{
	struct candidate *candidate = &set->candidates[path_idx];
	const char *path = set->volume->set_paths[path_idx];
	enum disk_kind kind;

	candidate->found = disk_kind_of(path, &kind);
	if (candidate->found == -ENOENT)
		candidate->found = -ENODEV;
	else if (!candidate->found)
		candidate->found = volume_super_read(path, probe, &candidate->super);
	if (!candidate->found && !candidate->super.set_count)
		candidate->found = -EMEDIUMTYPE;
}

/* A volume that cannot be read, or has a format that this program does not know, may hold a store.
 * restore --overwrite destroys that, too. */
static int candidate_blocked(const struct set *set, const struct candidate *candidate)
{
	int found = candidate->found;

	if (!found || found == -ENOENT || found == -EMEDIUMTYPE || found == -ENODEV)
		return 0;
	return found == -EUCLEAN && set->opts->overwrite ? 0 : found;
}

/* Opens a path as a member: checks that it is labelled as ours or blank, and large enough. */
static int member_open(
	struct set *set, uint32_t path_idx, uint64_t bytes_min, bool create, struct disk **ret_disk)
{
	const struct candidate *candidate = &set->candidates[path_idx];
	const char *path = set->volume->set_paths[path_idx];
	bool ours = candidate->found == 0;
	/* One that was busy is looked at again and again, and each look waits for this one. */
	bool told = set->volume->path_told[path_idx] != 0;
	struct disk_opts opts = {.path = path,
		.create = create,
		.probe = told,
		.discard_files = set->opts->discard_files,
		.step_bytes = set->volume->super.step_bytes,
		.lock_wait_ns = ours && !told ? LOCK_WAIT_NS : 0};
	struct disk *disk;
	int ret = disk_open(&opts, &disk);

	if (ret)
		return ret;
	if (!ours)
		ret = volume_label_check(set->opts, path, disk,
			candidate->found == -EMEDIUMTYPE ? -EMEDIUMTYPE : -ENOENT);
	else if (create)
		ret = disk_wipe_now(disk);
	if (!ret && ours && !disk_can_grow(disk) &&
		disk_medium_bytes(disk) < candidate->super.medium_bytes) {
		log_error("store", "%s: the device is smaller than before: not used", path);
		ret = -EUCLEAN;
	}
	/* One that takes a place later leaves the reserve free. */
	if (!ret && !create)
		ret = disk_room_check(disk, bytes_min, set->opts->reserve_bytes);
	if (!ret)
		ret = disk_grow(disk, bytes_min);
	if (ret) {
		disk_close(disk);
		return ret;
	}
	*ret_disk = disk;
	return 0;
}

static int set_create(struct set *set)
{
	struct volume *volume = set->volume;
	uint32_t count = set->opts->erasure_data + set->opts->erasure_parity;
	uint64_t bytes_min;
	int ret = 0;

	if (volume->set_count != count) {
		log_error("store",
			"%u volumes are named, but erasure coding %u+%u needs %u "
			"(storage.erasure.data, storage.erasure.parity)",
			volume->set_count, set->opts->erasure_data, set->opts->erasure_parity,
			count);
		return -EINVAL;
	}
	volume_super_init(&volume->super, set->opts);
	super_set_plain(&volume->super, set->opts->erasure_data, set->opts->erasure_parity);
	bytes_min = volume->super.data_offset + STORE_CHUNK_BYTES;
	for (uint32_t i = 0; i < count && !ret; i++) {
		/* A volume of a store whose index is not here belongs to another store, unless the
		 * creation of that store was interrupted: then nothing was ever stored there. */
		if (set->candidates[i].found == 0 && set->candidates[i].super.epoch)
			set->candidates[i].found = -EMEDIUMTYPE;
		ret = candidate_blocked(set, &set->candidates[i]);
		if (!ret)
			ret = member_open(set, i, bytes_min, true, &set->array.members[i]);
		if (!ret && !strstr(volume->set_paths[i], "://"))
			ret = file_parent_sync(volume->set_paths[i]);
		set->volume->path_of[i] = i;
	}
	return ret;
}

/* The superblock that most volumes belong to, in its newest version. NULL: there is none. */
static const struct superblock *super_choose(const struct set *set)
{
	const struct superblock *best = NULL;
	uint32_t best_votes = 0;

	for (uint32_t i = 0; i < set->volume->set_count; i++) {
		const struct superblock *super = &set->candidates[i].super;
		uint32_t votes = 0;

		if (set->candidates[i].found)
			continue;
		for (uint32_t k = 0; k < set->volume->set_count; k++)
			votes += !set->candidates[k].found &&
				 memcmp(set->candidates[k].super.uuid, super->uuid, 16) == 0;
		if (!best || votes > best_votes ||
			(votes == best_votes && super->generation > best->generation)) {
			best = super;
			best_votes = votes;
		}
	}
	return best;
}

bool stripe_belongs(const struct superblock *super, const struct superblock *own)
{
	return memcmp(own->uuid, super->uuid, sizeof(own->uuid)) == 0 &&
	       own->set_idx < DISK_MEMBERS_MAX && super_has(super, own->set_idx) &&
	       own->set.own_joined == super->set.joined[own->set_idx];
}

/* Places a volume that says which member it is. */
static void member_take(struct set *set, uint32_t path_idx)
{
	struct superblock *super = &set->volume->super;
	const struct candidate *candidate = &set->candidates[path_idx];
	const char *path = set->volume->set_paths[path_idx];
	uint32_t member = candidate->super.set_idx;
	int ret;

	if (!stripe_belongs(super, &candidate->super)) {
		log_error("store",
			"%s: it is no volume of this store any more, or was never added "
			"completely: not used; remove it from storage.volume",
			path);
		return;
	}
	if (set->array.members[member]) {
		log_error("store", "%s: a second volume %u: not used", path, member);
		return;
	}
	ret = member_open(set, path_idx, 0, false, &set->array.members[member]);
	if (ret) {
		log_error(
			"store", "volume %u (%s) cannot be used: %s", member, path, strerror(-ret));
		return;
	}
	if (set->volume->paths_named && !(set->volume->paths_named >> path_idx & 1))
		log_warn("store",
			"volume %u (%s) is not in storage.volume: it was added or replaced while "
			"the server ran; name it there, so that it is found if the data folder is "
			"lost",
			member, path);
	set->volume->path_of[member] = path_idx;
	set->array.states[member] =
		super->set_lost >> member & 1 ? DISK_MEMBER_REBUILDING : DISK_MEMBER_GOOD;
}

/* Places the volumes of this store, the newest first: of two that say they are the same member, the
 * older one was replaced. */
static void members_take(struct set *set)
{
	for (;;) {
		const struct candidate *best = NULL;
		uint32_t path_idx = 0;

		for (uint32_t i = 0; i < set->volume->set_count; i++) {
			const struct candidate *candidate = &set->candidates[i];

			if (candidate->found || candidate->taken ||
				memcmp(candidate->super.uuid, set->volume->super.uuid, 16) != 0 ||
				(best && best->super.generation >= candidate->super.generation))
				continue;
			best = candidate;
			path_idx = i;
		}
		if (!best)
			return;
		set->candidates[path_idx].taken = true;
		member_take(set, path_idx);
	}
}

/* Reads the superblocks again, of volumes that nobody else holds now. True: one has changed. */
static bool supers_changed(struct set *set)
{
	bool changed = false;

	for (uint32_t m = 0; m < DISK_MEMBERS_MAX; m++) {
		struct candidate *candidate;
		struct superblock super;
		uint32_t path_idx = set->volume->path_of[m];
		int found;

		if (!set->array.members[m])
			continue;
		candidate = &set->candidates[path_idx];
		found = volume_super_of(
			set->array.members[m], set->volume->set_paths[path_idx], &super);
		if (!found && super.generation == candidate->super.generation &&
			super.crc32c == candidate->super.crc32c)
			continue;
		changed = true;
		candidate->found = found;
		if (!found)
			candidate->super = super;
	}
	return changed;
}

static void members_give(struct set *set)
{
	for (uint32_t m = 0; m < DISK_MEMBERS_MAX; m++) {
		disk_close(set->array.members[m]);
		set->array.members[m] = NULL;
		set->volume->path_of[m] = STRIPE_PATH_NONE;
	}
	for (uint32_t i = 0; i < set->volume->set_count; i++)
		set->candidates[i].taken = false;
}

/* Blank volumes take the places of missing members. */
static void spares_take(struct set *set, uint64_t bytes)
{
	struct superblock *super = &set->volume->super;
	uint32_t member = 0;

	for (uint32_t i = 0; i < set->volume->set_count; i++) {
		struct candidate *candidate = &set->candidates[i];
		int ret;

		if (candidate->taken ||
			(candidate->found != -ENOENT && candidate->found != -EMEDIUMTYPE &&
				candidate->found != 0))
			continue;
		if (candidate->found == 0)
			candidate->found = -EMEDIUMTYPE; /* of another store */
		while (member < DISK_MEMBERS_MAX &&
			(set->array.members[member] || !super_has(super, member)))
			member++;
		if (member == DISK_MEMBERS_MAX) {
			log_warn("store",
				"%s: the store has no place for it: not used; `nebulaio admin "
				"volume add` adds a volume",
				set->volume->set_paths[i]);
			continue;
		}
		ret = member_open(set, i, bytes, false, &set->array.members[member]);
		if (ret) {
			log_error("store", "%s cannot take the place of volume %u: %s",
				set->volume->set_paths[i], member, stripe_why(ret));
			continue;
		}
		set->volume->path_of[member] = i;
		set->array.states[member] = DISK_MEMBER_REBUILDING;
		stripe_member_anew(super, member);
		log_info("store", "%s takes the place of volume %u", set->volume->set_paths[i],
			member);
	}
}

static uint32_t geometry_good(const struct superblock *super, uint32_t slot, uint64_t good)
{
	return (uint32_t)__builtin_popcountll(
		disk_geometry_mask(&super->set.geometries[slot].numbers) & good);
}

/* Whether enough members are good. While the set changes, there must be enough in both. */
static bool set_enough(const struct superblock *super, uint64_t good)
{
	for (uint32_t g = 0; g < DISK_GEOMETRIES; g++)
		if (geometry_good(super, g, good) < super->set.geometries[g].numbers.data)
			return false;
	return true;
}

static void set_lacks(const struct superblock *super, uint64_t good)
{
	for (uint32_t g = 0; g < DISK_GEOMETRIES; g++) {
		const struct disk_geometry *geometry = &super->set.geometries[g].numbers;
		uint32_t have = geometry_good(super, g, good);

		if (have >= geometry->data)
			continue;
		log_error("store",
			"only %u of %u volumes are present and good, and %u are needed: connect "
			"the others%s",
			have, geometry->data + geometry->parity, geometry->data,
			super->set.change ? " (the store's volumes have changed since it was made: "
					    "storage.volume must name all of them)"
					  : "");
	}
}

/* Too few volumes of the newer geometry are there, and enough of the older one: the change of the
 * set is taken back. recover_replay refuses that if a body lies in the newer geometry. */
static bool set_withdraw(struct set *set, uint64_t good)
{
	struct volume *volume = set->volume;
	struct superblock *super = &volume->super;
	uint32_t newer = super_set_newer(super);

	if (!set->opts->withdraws || newer == DISK_GEOMETRIES ||
		geometry_good(super, 1 - newer, good) <
			super->set.geometries[1 - newer].numbers.data)
		return false;
	super_set_withdraw(super);
	for (uint32_t m = 0; m < DISK_MEMBERS_MAX; m++) {
		if (super_has(super, m))
			continue;
		disk_close(set->array.members[m]);
		set->array.members[m] = NULL;
		volume->path_of[m] = STRIPE_PATH_NONE;
	}
	volume->withdrew = true;
	volume->withdrew_slot = newer;
	return true;
}

/* One bit each, of those that are there. */
static uint64_t members_good(const struct set *set, uint64_t *ret_bytes)
{
	uint64_t good = 0;

	*ret_bytes = DISK_ARRAY_BYTES_MAX;
	for (uint32_t i = 0; i < DISK_MEMBERS_MAX; i++)
		if (set->array.members[i] && set->array.states[i] == DISK_MEMBER_GOOD) {
			*ret_bytes = MIN(*ret_bytes, disk_bytes(set->array.members[i]));
			good |= 1ull << i;
		}
	return good;
}

/* A member that was written by no start since the last but one: by each start all good ones are,
 * before anything else. It is an older copy, or a volume whose place another one had. Several
 * starts in a row that reached too few volumes leave good ones behind, too: it is taken as good if
 * the others are not enough. */
static uint64_t behind_find(struct set *set, uint64_t good)
{
	const struct volume *volume = set->volume;
	uint64_t behind = 0;

	for (uint64_t left = good; left; left &= left - 1) {
		uint32_t m = (uint32_t)__builtin_ctzll(left);

		if (set->candidates[volume->path_of[m]].super.epoch + 1 < volume->super.epoch)
			behind |= 1ull << m;
	}
	if (!set_enough(&volume->super, good & ~behind))
		return 0;
	for (uint64_t left = behind; left; left &= left - 1) {
		uint32_t m = (uint32_t)__builtin_ctzll(left);

		log_warn("store", "volume %u (%s) is an older state of it: not taken as good", m,
			volume->set_paths[volume->path_of[m]]);
		set->array.states[m] = DISK_MEMBER_REBUILDING;
	}
	return behind;
}

/* A superblock that never counted may lie on a volume that is not there: it must not be as new as
 * one that this start writes, or it would be taken for that one when the volume is back. */
static void unseen_pass(struct set *set)
{
	struct volume *volume = set->volume;

	for (uint32_t m = 0; m < DISK_MEMBERS_MAX; m++)
		volume->unseen |= super_has(&volume->super, m) && !set->array.members[m];
	if (!volume->unseen)
		return;
	volume->found = volume->super;
	volume->super.generation += GENERATIONS_UNSEEN;
}

/* Volumes that are not good yet grow to this length, which the good ones have. */
static void others_grow(struct set *set, uint64_t bytes)
{
	for (uint32_t i = 0; i < DISK_MEMBERS_MAX; i++) {
		struct disk *disk = set->array.members[i];
		int ret;

		if (!disk || set->array.states[i] == DISK_MEMBER_GOOD)
			continue;
		ret = disk_room_check(disk, bytes, set->opts->reserve_bytes);
		if (!ret)
			ret = disk_grow(disk, bytes);
		if (!ret)
			continue;
		log_error("store", "volume %u is not used: %s", i, stripe_why(ret));
		disk_close(disk);
		set->array.members[i] = NULL;
	}
}

static int set_assemble(struct set *set)
{
	struct superblock *super = &set->volume->super;
	const struct superblock *best = super_choose(set);
	uint32_t tries = 0;
	uint64_t bytes, good;

	/* The last owner may have gone on to write until we got its volumes. */
	for (; best; best = super_choose(set)) {
		*super = *best;
		members_take(set);
		if (!supers_changed(set))
			break;
		members_give(set);
		if (++tries == ASSEMBLE_TRIES) {
			log_error("store", "%s: another program writes to them", set->volume->path);
			return -EBUSY;
		}
	}
	if (!best) {
		log_error("store",
			"none of the %u volumes belongs to this store: are they connected?",
			set->volume->set_count);
		return -EUCLEAN;
	}
	unseen_pass(set);
	good = members_good(set, &bytes);
	if (behind_find(set, good))
		good = members_good(set, &bytes);
	if (!set_enough(super, good)) {
		if (!set_withdraw(set, good)) {
			set_lacks(super, good);
			return -EUCLEAN;
		}
		(void)members_good(set, &bytes);
	}
	if (set->opts->create)
		spares_take(set, bytes);
	others_grow(set, bytes);
	return 0;
}

static void set_close(struct set *set)
{
	for (uint32_t i = 0; i < DISK_MEMBERS_MAX; i++)
		disk_close(set->array.members[i]);
}

/* Whether the volumes are a store's that can be opened without the index of its data folder. */
static bool set_adopts(const struct set *set)
{
	const struct superblock *super = super_choose(set);

	if (!set->opts->create || !super || !super->epoch || !super->image_bytes)
		return false;
	if (!set->opts->adopt)
		volume_image_hint(set->volume->path, super);
	return set->opts->adopt;
}

int stripe_open(const struct volume_opts *opts, struct volume *volume)
{
	struct set *set = (struct set *)calloc(1, sizeof(*set));
	bool known = volume_index_present(opts->dir);
	int ret;

	if (!set)
		return -ENOMEM;
	set->opts = opts;
	set->volume = volume;
	memset(volume->path_of, 0xff, sizeof(volume->path_of)); /* STRIPE_PATH_NONE */
	pthread_mutex_init(&volume->lock, NULL);
	for (uint32_t i = 0; i < volume->set_count; i++)
		path_scan(set, i, false);
	known = known || set_adopts(set);
	*opts->ret_created = !known;
	ret = known ? set_assemble(set) : opts->create ? set_create(set) : -ENOENT;
	if (ret) {
		set_close(set);
		free(set);
		return ret;
	}
	for (uint32_t g = 0; g < DISK_GEOMETRIES; g++)
		set->array.geometries[g] = volume->super.set.geometries[g].numbers;
	set->array.current = (uint32_t)volume->super.set.current;
	atomic_store(&volume->settled_change, volume->super.set.change);
	atomic_store(&volume->set_current, (uint32_t)volume->super.set.current);
	set->array.name = volume->path;
	volume->uuid_crc = crc32c_update(0, volume->super.uuid, sizeof(volume->super.uuid));
	ret = disk_array_open(&set->array, &volume->disk);
	for (uint32_t i = 0; i < DISK_MEMBERS_MAX && !ret; i++)
		if (super_has(&volume->super, i) &&
			disk_array_state(volume->disk, i) != DISK_MEMBER_GOOD)
			log_warn("store", "volume %u is %s", i,
				disk_array_state(volume->disk, i) == DISK_MEMBER_MISSING
					? "missing: its data is computed from the others"
					: "behind, and is rebuilt from the others");
	if (!ret && !known)
		ret = stripe_super_write(volume);
	/* While it is not certain that the change is taken back, its volumes stay on the list. */
	if (!ret && opts->create && !volume->withdrew)
		ret = stripe_remember(opts->dir, volume);
	free(set);
	return ret;
}

/* ---- While it is open. ---- */

static bool path_idle(const struct volume *volume, uint32_t path_idx)
{
	for (uint32_t m = 0; m < DISK_MEMBERS_MAX; m++)
		if (volume->path_of[m] == path_idx)
			return false;
	return !(volume->paths_refused >> path_idx & 1);
}

/* The member that a path can be: its own, or, if it is blank, or a former volume that an
 * administrator named, the first vacant one (*ret_new). */
static uint32_t member_for(struct set *set, uint32_t path_idx, bool *ret_new)
{
	struct candidate *candidate = &set->candidates[path_idx];
	const struct volume *volume = set->volume;
	bool ours =
		candidate->found == 0 && memcmp(candidate->super.uuid, volume->super.uuid, 16) == 0;
	bool belongs = ours && stripe_belongs(&volume->super, &candidate->super);
	uint32_t member = 0;

	*ret_new = !belongs;
	if (belongs)
		return stripe_vacant(volume, candidate->super.set_idx) ? candidate->super.set_idx
								       : UINT32_MAX;
	if (ours && !(volume->paths_asked >> path_idx & 1))
		return UINT32_MAX;
	if (candidate->found == 0 && !ours)
		candidate->found = -EMEDIUMTYPE; /* of another store */
	if (candidate->found && candidate->found != -ENOENT && candidate->found != -EMEDIUMTYPE)
		return UINT32_MAX;
	while (member < DISK_MEMBERS_MAX && !stripe_vacant(volume, member))
		member++;
	return member < DISK_MEMBERS_MAX ? member : UINT32_MAX;
}

/* A volume that is unusable is not tried again; one that is busy or out of reach is. */
static void candidate_failed(struct volume *volume, uint32_t path_idx, uint32_t member, int error)
{
	uint64_t bit = 1ull << path_idx;
	bool unfit = error == -EUCLEAN || error == -EINVAL || error == -EOPNOTSUPP;

	if (unfit)
		volume->paths_refused |= bit;
	if (unfit || volume->path_told[path_idx] != error)
		log_error("store", "%s cannot be volume %u: %s%s", volume->set_paths[path_idx],
			member, strerror(-error),
			unfit ? ": the server does not try it again" : "");
	volume->path_told[path_idx] = error;
}

/* Its superblocks cannot be used; one that cannot be reached is silent. */
static void scan_failed(struct volume *volume, uint32_t path_idx, int error)
{
	if ((error != -EUCLEAN && error != -EIO) || volume->path_told[path_idx] == error)
		return;
	volume->path_told[path_idx] = error;
	log_error("store", "%s cannot take the place of a missing volume: %s",
		volume->set_paths[path_idx],
		error == -EUCLEAN
			? "it holds a store in a disk format that this program does not know"
			: strerror(-error));
}

int stripe_candidate(const struct volume_opts *opts, struct volume *volume, uint64_t paths_but,
	struct stripe_found *ret_found)
{
	struct set *set = (struct set *)calloc(1, sizeof(*set));
	int ret = set ? -ENOENT : -ENOMEM;

	if (set) {
		set->opts = opts;
		set->volume = volume;
	}
	for (uint32_t i = 0; ret == -ENOENT && i < volume->set_count; i++) {
		uint32_t member;
		bool anew;
		int error;

		if ((paths_but >> i & 1) || !path_idle(volume, i))
			continue;
		path_scan(set, i, true);
		scan_failed(volume, i, set->candidates[i].found);
		member = member_for(set, i, &anew);
		if (member == UINT32_MAX)
			continue;
		error = member_open(set, i, 0, false, &ret_found->disk);
		if (error) {
			candidate_failed(volume, i, member, error);
			continue;
		}
		volume->path_told[i] = 0;
		volume->members_new &= ~(1ull << member);
		volume->members_new |= (uint64_t)anew << member;
		ret_found->member = member;
		ret_found->path_idx = i;
		ret = 0;
	}
	free(set);
	return ret;
}

int stripe_member_known(const struct volume_opts *opts, struct volume *volume, uint32_t member)
{
	struct disk *disk = disk_array_member(volume->disk, member);
	uint32_t path_idx = volume->path_of[member];
	const char *path = path_idx == STRIPE_PATH_NONE ? "a volume" : volume->set_paths[path_idx];
	struct superblock super;
	int ret = volume_super_of(disk, opts->quiet ? NULL : path, &super);

	if (!ret && (!stripe_belongs(&volume->super, &super) || super.set_idx != member))
		ret = -EMEDIUMTYPE;
	volume->members_new &= ~(1ull << member);
	volume->members_new |= (uint64_t)(ret != 0) << member;
	if (ret == -ENOENT || ret == -EMEDIUMTYPE)
		ret = volume_label_check(opts, path, disk, ret);
	return ret;
}

/* A volume that came with a change whose first superblock does not count yet may have its label
 * alone: nothing that was acknowledged lies on it. */
static uint64_t generation_whole(const struct volume *volume, uint32_t member)
{
	uint64_t change = volume->super.set.change;

	return atomic_load(&volume->settled_change) != change &&
			       volume->super.set.joined[member] == change
		       ? 0
		       : atomic_load(&volume->settled_generation);
}

int stripe_member_whole(const struct volume *volume, uint32_t member)
{
	struct superblock super;
	int ret = volume_super_of(disk_array_member(volume->disk, member), NULL, &super);

	if (ret)
		return ret;
	return stripe_belongs(&volume->super, &super) && super.set_idx == member &&
			       super.generation >= generation_whole(volume, member)
		       ? 0
		       : -ESTALE;
}
