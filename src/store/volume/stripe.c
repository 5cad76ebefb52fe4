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
#include <sys/stat.h>
#include <unistd.h>

#define LIST_BYTES_MAX 32768u
#define LOCK_WAIT_NS   (30 * NS_PER_S)

/* The volume found at one path. */
struct candidate {
	struct superblock super;
	int found; /* as volume_super_read, or -ENODEV: nothing at the path */
	bool taken;
};

struct set {
	const struct volume_opts *opts;
	struct volume *volume;
	struct candidate candidates[DISK_MEMBERS_MAX];
	struct disk_array_opts array;
};

/* ---- Paths. ---- */

static int path_add(struct volume *volume, struct slice path)
{
	char **slot = &volume->set_paths[volume->set_count];

	path = slice_trim(path);
	if (path.len == 0)
		return 0;
	if (volume->set_count == DISK_MEMBERS_MAX) {
		log_error("store", "more than %u volumes", DISK_MEMBERS_MAX);
		return -EINVAL;
	}
	*slot = strndup(path.data, path.len);
	if (!*slot)
		return -ENOMEM;
	volume->set_count++;
	return 0;
}

static int list_take(struct volume *volume, struct slice list, char separator)
{
	int ret = 0;

	while (list.len && !ret)
		ret = path_add(volume, slice_split(&list, separator));
	return ret;
}

static int list_read(struct volume *volume, const char *path)
{
	char *text = (char *)malloc(LIST_BYTES_MAX);
	FILE *file = fopen(path, "re");
	int ret = -ENOENT;

	if (file && text)
		ret = list_take(volume, slice_of(text, fread(text, 1, LIST_BYTES_MAX, file)), '\n');
	if (file)
		fclose(file);
	free(text);
	return ret;
}

int stripe_locate(const struct volume_opts *opts, struct volume *volume)
{
	char own[4096], list[4096];
	struct stat st;
	bool several, single;

	if ((size_t)snprintf(own, sizeof(own), "%s/volume", opts->dir) >= sizeof(own) ||
		(size_t)snprintf(list, sizeof(list), "%s/volumes", opts->dir) >= sizeof(list))
		return -ENAMETOOLONG;
	several = access(list, F_OK) == 0;
	single = lstat(own, &st) == 0;
	if (!opts->path || !opts->path[0])
		return several ? list_read(volume, list) : 0;
	if (strchr(opts->path, ',') && single) {
		log_error("store",
			"%s: the store has one volume: copy its objects to a new store over "
			"several",
			opts->dir);
		return -EUCLEAN;
	}
	if (!strchr(opts->path, ',') && several) {
		log_error("store", "%s: the store has several volumes: name all of them, or none",
			opts->dir);
		return -EUCLEAN;
	}
	return strchr(opts->path, ',') ? list_take(volume, slice_str(opts->path), ',') : 0;
}

int stripe_remember(const char *dir, const struct volume *volume)
{
	char path[4096], fresh[4096 + 8];
	FILE *file;
	int ret = 0;

	if ((size_t)snprintf(path, sizeof(path), "%s/volumes", dir) >= sizeof(path))
		return -ENAMETOOLONG;
	snprintf(fresh, sizeof(fresh), "%s.new", path);
	file = fopen(fresh, "we");
	if (!file)
		return -errno;
	for (uint32_t i = 0; i < volume->set_count; i++) {
		char *absolute = realpath(volume->set_paths[i], NULL);

		/* Uses the given name if it is a stable one. */
		fprintf(file, "%s\n",
			volume->set_paths[i][0] == '/' || !absolute ? volume->set_paths[i]
								    : absolute);
		free(absolute);
	}
	if (fflush(file) || fsync(fileno(file)))
		ret = -errno;
	fclose(file);
	if (!ret && rename(fresh, path))
		ret = -errno;
	return ret ? ret : file_dir_sync(dir);
}

/* ---- Superblocks. ---- */

static int member_super_write(struct volume *volume, uint32_t member)
{
	struct disk *disk = disk_array_member(volume->disk, member);
	struct superblock super = volume->super;
	void *block;
	int ret;

	if (posix_memalign(&block, BLOCK_BYTES, BLOCK_BYTES))
		return -ENOMEM;
	super.set_idx = (uint16_t)member;
	super.medium_bytes = disk_can_grow(disk) ? 0 : disk_medium_bytes(disk);
	volume_super_fill(&super, (uint8_t *)block);
	ret = disk_write_now(
		disk, block, BLOCK_BYTES, super.generation % 2 * (uint64_t)BLOCK_BYTES);
	free(block);
	return ret ? ret : disk_flush_now(disk);
}

int stripe_super_write(struct volume *volume)
{
	uint64_t lost_before = volume->super.set_lost, changes = 0;
	bool again = true;

	while (again && disk_array_quorum(volume->disk)) {
		again = false;
		changes = disk_array_changes(volume->disk);
		volume->super.generation++;
		volume->super.set_lost = disk_array_lost(volume->disk);
		for (uint32_t i = 0; i < volume->super.set_count; i++) {
			int ret;

			if (disk_array_state(volume->disk, i) == DISK_MEMBER_MISSING)
				continue;
			ret = member_super_write(volume, i);
			if (ret) {
				disk_array_fail(volume->disk, i, ret);
				again = true;
			}
		}
	}
	if (again || !disk_array_quorum(volume->disk)) {
		/* No commit that those volumes missed was acknowledged. */
		volume->super.set_lost = lost_before;
		return -EHOSTDOWN;
	}
	volume->settled_generation = volume->super.generation;
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

/* ---- Opening. ---- */

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

/* Opens a path as a member: checks that it is labelled as ours or blank, and large enough. */
static int member_open(
	struct set *set, uint32_t path_idx, uint64_t bytes_min, bool create, struct disk **ret_disk)
{
	const struct candidate *candidate = &set->candidates[path_idx];
	const char *path = set->volume->set_paths[path_idx];
	bool ours = candidate->found == 0;
	struct disk_opts opts = {.path = path,
		.create = create,
		.discard_files = set->opts->discard_files,
		.step_bytes = set->volume->super.step_bytes,
		.lock_wait_ns = ours ? LOCK_WAIT_NS : 0};
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
	volume->super.set_count = (uint16_t)count;
	volume->super.set_data = (uint16_t)set->opts->erasure_data;
	volume->super.set_parity = (uint16_t)set->opts->erasure_parity;
	bytes_min = volume->super.data_offset + STORE_CHUNK_BYTES;
	for (uint32_t i = 0; i < count && !ret; i++) {
		/* A volume of a store whose index is not here belongs to another store, unless the
		 * creation of that store was interrupted: then nothing was ever stored there. */
		if (set->candidates[i].found == 0 && set->candidates[i].super.epoch)
			set->candidates[i].found = -EMEDIUMTYPE;
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

/* Places volumes that say which member they are. */
static void members_take(struct set *set)
{
	struct superblock *super = &set->volume->super;

	for (uint32_t i = 0; i < set->volume->set_count; i++) {
		struct candidate *candidate = &set->candidates[i];
		uint32_t member = candidate->super.set_idx;
		int ret;

		if (candidate->found || memcmp(candidate->super.uuid, super->uuid, 16) != 0)
			continue;
		candidate->taken = true;
		if (member >= super->set_count || set->array.members[member]) {
			log_error("store", "%s: a second volume %u: not used",
				set->volume->set_paths[i], member);
			continue;
		}
		ret = member_open(set, i, 0, false, &set->array.members[member]);
		if (ret) {
			log_error("store", "volume %u (%s) cannot be used: %s", member,
				set->volume->set_paths[i], strerror(-ret));
			continue;
		}
		set->volume->path_of[member] = i;
		set->array.states[member] =
			super->set_lost >> member & 1 ? DISK_MEMBER_REBUILDING : DISK_MEMBER_GOOD;
	}
}

/* Blank volumes take the places of missing members. */
static void spares_take(struct set *set, uint64_t bytes)
{
	const struct superblock *super = &set->volume->super;
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
		while (member < super->set_count && set->array.members[member])
			member++;
		if (member == super->set_count) {
			log_warn("store", "%s: the store has no place for it: not used",
				set->volume->set_paths[i]);
			continue;
		}
		ret = member_open(set, i, bytes, false, &set->array.members[member]);
		if (ret) {
			log_error("store", "%s cannot take the place of volume %u: %s",
				set->volume->set_paths[i], member, strerror(-ret));
			continue;
		}
		set->volume->path_of[member] = i;
		set->array.states[member] = DISK_MEMBER_REBUILDING;
		log_info("store", "%s takes the place of volume %u", set->volume->set_paths[i],
			member);
	}
}

static int set_assemble(struct set *set)
{
	struct superblock *super = &set->volume->super;
	const struct superblock *best = super_choose(set);
	uint64_t bytes = UINT64_MAX;
	uint32_t good = 0;

	if (!best) {
		log_error("store",
			"none of the %u volumes belongs to this store: are they connected?",
			set->volume->set_count);
		return -EUCLEAN;
	}
	*super = *best;
	if (super->set_data + super->set_parity != super->set_count ||
		super->set_count > DISK_MEMBERS_MAX)
		return -EUCLEAN;
	members_take(set);
	for (uint32_t i = 0; i < super->set_count; i++)
		if (set->array.members[i] && set->array.states[i] == DISK_MEMBER_GOOD) {
			bytes = MIN(bytes, disk_bytes(set->array.members[i]));
			good++;
		}
	if (good < super->set_data) {
		log_error("store",
			"only %u of %u volumes are present and good, and %u are needed: connect "
			"the others",
			good, super->set_count, super->set_data);
		return -EUCLEAN;
	}
	if (set->opts->create)
		spares_take(set, bytes);
	for (uint32_t i = 0; i < super->set_count; i++)
		if (set->array.members[i] && set->array.states[i] != DISK_MEMBER_GOOD &&
			disk_grow(set->array.members[i], bytes)) {
			log_error("store", "volume %u is too small: not used", i);
			disk_close(set->array.members[i]);
			set->array.members[i] = NULL;
		}
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
	set->array.data = volume->super.set_data;
	set->array.parity = volume->super.set_parity;
	set->array.name = volume->path;
	volume->uuid_crc = crc32c_update(0, volume->super.uuid, sizeof(volume->super.uuid));
	ret = disk_array_open(&set->array, &volume->disk);
	for (uint32_t i = 0; i < volume->super.set_count && !ret; i++)
		if (disk_array_state(volume->disk, i) != DISK_MEMBER_GOOD)
			log_warn("store", "volume %u is %s", i,
				disk_array_state(volume->disk, i) == DISK_MEMBER_MISSING
					? "missing: its data is computed from the others"
					: "behind, and is rebuilt from the others");
	if (!ret && !known)
		ret = stripe_super_write(volume);
	if (!ret && opts->create)
		ret = stripe_remember(opts->dir, volume);
	free(set);
	return ret;
}

/* ---- While it is open. ---- */

static bool path_idle(const struct volume *volume, uint32_t path_idx)
{
	for (uint32_t m = 0; m < volume->super.set_count; m++)
		if (volume->path_of[m] == path_idx)
			return false;
	return !(volume->paths_refused >> path_idx & 1);
}

static bool member_vacant(const struct volume *volume, uint32_t member)
{
	return member < volume->super.set_count && volume->path_of[member] == STRIPE_PATH_NONE;
}

/* The member that a path can be: its own, or, if it is blank, the first vacant one. */
static uint32_t member_for(struct set *set, uint32_t path_idx)
{
	struct candidate *candidate = &set->candidates[path_idx];
	const struct volume *volume = set->volume;
	uint32_t member = 0;

	if (candidate->found == 0 && memcmp(candidate->super.uuid, volume->super.uuid, 16) == 0)
		return member_vacant(volume, candidate->super.set_idx) ? candidate->super.set_idx
								       : UINT32_MAX;
	if (candidate->found == 0)
		candidate->found = -EMEDIUMTYPE; /* of another store */
	if (candidate->found != -ENOENT && candidate->found != -EMEDIUMTYPE)
		return UINT32_MAX;
	while (member < volume->super.set_count && !member_vacant(volume, member))
		member++;
	return member < volume->super.set_count ? member : UINT32_MAX;
}

int stripe_candidate(const struct volume_opts *opts, struct volume *volume, uint32_t *ret_member,
	struct disk **ret_disk)
{
	struct set *set = (struct set *)calloc(1, sizeof(*set));
	int ret = set ? -ENOENT : -ENOMEM;

	if (set) {
		set->opts = opts;
		set->volume = volume;
	}
	for (uint32_t i = 0; ret == -ENOENT && i < volume->set_count; i++) {
		uint32_t member;

		if (!path_idle(volume, i))
			continue;
		path_scan(set, i, true);
		member = member_for(set, i);
		if (member == UINT32_MAX)
			continue;
		if (member_open(set, i, disk_bytes(volume->disk), false, ret_disk)) {
			volume->paths_refused |= 1u << i;
			log_error("store",
				"%s cannot be volume %u: the server does not try it again",
				volume->set_paths[i], member);
			continue;
		}
		volume->path_of[member] = i;
		*ret_member = member;
		ret = 0;
	}
	free(set);
	return ret;
}

int stripe_member_known(
	const struct volume_opts *opts, const struct volume *volume, uint32_t member)
{
	struct disk *disk = disk_array_member(volume->disk, member);
	uint32_t path_idx = volume->path_of[member];
	const char *path = path_idx == STRIPE_PATH_NONE ? "a volume" : volume->set_paths[path_idx];
	struct superblock super;
	int ret = volume_super_of(disk, path, &super);

	if (!ret && (memcmp(super.uuid, volume->super.uuid, 16) != 0 || super.set_idx != member))
		ret = -EMEDIUMTYPE;
	if (ret == -ENOENT || ret == -EMEDIUMTYPE)
		ret = volume_label_check(opts, path, disk, ret);
	return ret ? ret : disk_grow(disk, disk_bytes(volume->disk));
}

bool stripe_member_whole(const struct volume *volume, uint32_t member)
{
	struct superblock super;

	return !volume_super_of(disk_array_member(volume->disk, member),
		       volume->set_paths[volume->path_of[member]], &super) &&
	       memcmp(super.uuid, volume->super.uuid, sizeof(super.uuid)) == 0 &&
	       super.set_idx == member && super.generation >= volume->settled_generation;
}

void stripe_paths_free(struct volume *volume)
{
	for (uint32_t i = 0; i < volume->set_count; i++)
		free(volume->set_paths[i]);
	free(volume->replace_path);
	volume->replace_path = NULL;
	volume->set_count = 0;
}
