/* store/volume/volume.c: the volume's layout: superblocks, log, extents; and checks whether the
 * data on a device is ours. Blocks; for opening, for checkpoints and for checks. */
#include "base/file.h"
#include "codec/crc.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char MAGIC[8] = {'N', 'E', 'B', 'S', 'T', 'O', 'R', 'E'};

/* This process already has the store's own lock, so the holder of the volume's lock is about to
 * end. */
#define LOCK_WAIT_NS (30 * NS_PER_S)
/* A failed read is retried. */
#define SUPER_READ_TRIES 4u

enum slot { SLOT_VALID, SLOT_BLANK, SLOT_NEWER, SLOT_DAMAGED };

static uint32_t super_crc(const uint8_t block[BLOCK_BYTES])
{
	static const uint32_t zero;
	uint32_t crc = crc32c_update(0, block, 12);

	crc = crc32c_update(crc, &zero, sizeof(zero));
	return crc32c_update(crc, block + 16, BLOCK_BYTES - 16);
}

void super_set_count(struct superblock *super)
{
	const struct disk_geometry *current = &super->set.geometries[super->set.current].numbers;

	super->set_count = (uint16_t)__builtin_popcountll(super_members(super));
	super->set_data = current->data;
	super->set_parity = current->parity;
}

void super_set_plain(struct superblock *super, uint32_t data, uint32_t parity)
{
	struct disk_geometry *geometry = &super->set.geometries[0].numbers;

	super->set = (struct super_set){0};
	geometry->data = (uint8_t)data;
	geometry->parity = (uint8_t)parity;
	for (uint32_t i = 0; i < data + parity; i++)
		geometry->order[i] = (uint8_t)i;
	super_set_count(super);
}

uint32_t super_set_newer(const struct superblock *super)
{
	const struct super_geometry *geometries = super->set.geometries;

	if (!geometries[0].numbers.data || !geometries[1].numbers.data ||
		geometries[0].newer == geometries[1].newer)
		return DISK_GEOMETRIES;
	return geometries[0].newer ? 0 : 1;
}

void super_set_withdraw(struct superblock *super)
{
	uint32_t slot = super_set_newer(super);

	CHECK(slot < DISK_GEOMETRIES);
	super->set.change++;
	super->set.current = 1 - slot;
	super->set.geometries[slot] = (struct super_geometry){0};
	super_set_count(super);
}

/* Checks the set; of version 1, makes it. */
static bool set_parse(struct superblock *super)
{
	struct superblock counted = *super;

	if (super->version == STORE_VERSION) {
		if (super->set_count > DISK_MEMBERS_MAX ||
			super->set_count != super->set_data + super->set_parity)
			return false;
		super_set_plain(super, super->set_data, super->set_parity);
		return true;
	}
	for (uint32_t g = 0; g < DISK_GEOMETRIES; g++) {
		const struct disk_geometry *numbers = &super->set.geometries[g].numbers;

		if (numbers->data ? !disk_geometry_valid(numbers) : g == super->set.current)
			return false;
	}
	if (super->set.current >= DISK_GEOMETRIES)
		return false;
	super_set_count(&counted);
	return super->set_count == counted.set_count && super->set_data == counted.set_data &&
	       super->set_parity == counted.set_parity;
}

static enum slot slot_parse(const uint8_t block[BLOCK_BYTES], struct superblock *ret_super)
{
	static const uint8_t blank[BLOCK_BYTES];
	struct superblock super;

	if (memcmp(block, blank, BLOCK_BYTES) == 0)
		return SLOT_BLANK;
	memcpy(&super, block, sizeof(super));
	if (memcmp(super.magic, MAGIC, sizeof(MAGIC)) != 0)
		return SLOT_DAMAGED;
	if (super.version != STORE_VERSION && super.version != STORE_VERSION_SET)
		return SLOT_NEWER;
	if (super.crc32c != super_crc(block))
		return SLOT_DAMAGED;
	if (super.log_bytes < STORE_LOG_BYTES_MIN || super.log_bytes % BLOCK_BYTES ||
		super.step_bytes == 0 || super.step_bytes % STORE_CHUNK_BYTES ||
		super.data_offset != ALIGN_UP(VOLUME_LOG_OFFSET + super.log_bytes,
					     (uint64_t)STORE_CHUNK_BYTES) ||
		super.image_len > sizeof(super.image) || !set_parse(&super))
		return SLOT_DAMAGED;
	*ret_super = super;
	return SLOT_VALID;
}

/* Reads both slots, the first one at the offset. A slot that cannot be read counts as damaged, and
 * the other one is used. */
static int slots_read(
	struct disk *disk, const char *path, uint64_t offset, uint8_t blocks[2 * BLOCK_BYTES])
{
	uint32_t unreadable = 0;
	void *aligned;
	int ret = 0;

	if (posix_memalign(&aligned, BLOCK_BYTES, BLOCK_BYTES))
		return -ENOMEM;
	for (uint32_t i = 0; i < 2; i++) {
		ret = -EIO;
		for (uint32_t try = 0; try < SUPER_READ_TRIES && ret; try++)
			ret = disk_peek_now(
				disk, aligned, BLOCK_BYTES, offset + i * (uint64_t)BLOCK_BYTES);
		if (ret) {
			if (path)
				log_warn("store", "%s: cannot read superblock %u of 2: %s", path,
					i + 1, strerror(-ret));
			memset(aligned, 0xff, BLOCK_BYTES);
			unreadable++;
		}
		memcpy(&blocks[i * (size_t)BLOCK_BYTES], aligned, BLOCK_BYTES);
	}
	free(aligned);
	return unreadable == 2 ? ret : 0;
}

/* The newer of the two slots. As volume_super_of, but -EUCLEAN without a log line. */
static int super_at(
	struct disk *disk, const char *path, uint64_t offset, struct superblock *ret_super)
{
	uint8_t blocks[2 * BLOCK_BYTES];
	struct superblock supers[2];
	enum slot slots[2];
	int ret = slots_read(disk, path, offset, blocks);

	if (ret)
		return ret;
	for (uint32_t i = 0; i < 2; i++)
		slots[i] = slot_parse(&blocks[i * BLOCK_BYTES], &supers[i]);
	if (slots[0] == SLOT_NEWER || slots[1] == SLOT_NEWER)
		return -EUCLEAN;
	if (slots[0] == SLOT_BLANK && slots[1] == SLOT_BLANK)
		return -ENOENT;
	if (slots[0] != SLOT_VALID && slots[1] != SLOT_VALID)
		return -EMEDIUMTYPE;
	*ret_super =
		supers[slots[1] == SLOT_VALID &&
			(slots[0] != SLOT_VALID || supers[1].generation > supers[0].generation)];
	return 0;
}

/* 0; -ENOENT: no volume yet, or its creation was interrupted; -EMEDIUMTYPE: not ours, or damaged;
 * -EUCLEAN with a log line. */
int volume_super_of(struct disk *disk, const char *path, struct superblock *ret_super)
{
	/* A file that is too short has none. */
	int ret = disk_bytes(disk) < 2 * BLOCK_BYTES ? -ENOENT : super_at(disk, path, 0, ret_super);

	if (ret == -EUCLEAN && path)
		log_error("store",
			"%s: written by another version of the disk format (this program has "
			"versions %u and %u): use the program that wrote it",
			path, STORE_VERSION, STORE_VERSION_SET);
	return ret;
}

int volume_super_read(const char *path, bool probe, struct superblock *ret_super)
{
	struct disk_opts opts = {
		.path = path, .read_only = true, .probe = probe, .step_bytes = BLOCK_BYTES};
	struct disk *disk;
	int ret = disk_open(&opts, &disk);

	if (ret)
		return ret;
	ret = volume_super_of(disk, probe ? NULL : path, ret_super);
	disk_close(disk);
	return ret;
}

int volume_find(const struct volume *volume)
{
	struct superblock super;
	int found = volume->set_count ? 0 : volume_super_read(volume->path, false, &super);

	return found == -EMEDIUMTYPE ? 0 : found;
}

/* Whether two names lead to the same file or device. */
static bool same_node(const char *a, const char *b)
{
	struct stat st_a, st_b;

	if (stat(a, &st_a) || stat(b, &st_b))
		return false;
	if (S_ISREG(st_a.st_mode))
		return st_a.st_dev == st_b.st_dev && st_a.st_ino == st_b.st_ino;
	return (st_a.st_mode & S_IFMT) == (st_b.st_mode & S_IFMT) && st_a.st_rdev == st_b.st_rdev;
}

/* Makes the path absolute, because a link needs that (but not a name on another host). It keeps the
 * given name, which may be a stable one. */
static int path_absolute(const char *path, char *out, size_t cap)
{
	char cwd[2048];

	if (path[0] == '/' || strstr(path, "://"))
		return (size_t)snprintf(out, cap, "%s", path) < cap ? 0 : -ENAMETOOLONG;
	if (!getcwd(cwd, sizeof(cwd)))
		return -errno;
	return (size_t)snprintf(out, cap, "%s/%s", cwd, path) < cap ? 0 : -ENAMETOOLONG;
}

int volume_locate(const struct volume_opts *opts, struct volume *volume)
{
	struct stat st;
	char own[4096];

	int ret = stripe_locate(opts, volume);

	if (ret || (size_t)snprintf(own, sizeof(own), "%s/volume", opts->dir) >= sizeof(own))
		return ret ? ret : -ENAMETOOLONG;
	if (volume->set_count) {
		snprintf(volume->path, sizeof(volume->path), "%u volumes", volume->set_count);
		return 0;
	}
	if (!opts->path || !opts->path[0]) {
		ssize_t len = readlink(own, volume->path, sizeof(volume->path) - 1);

		volume->path[MAX(len, 0)] = '\0';
		/* A volume on another host is not a file, so the link cannot lead to it. */
		return strstr(volume->path, "://")
			       ? 0
			       : slice_copy_str(slice_str(own), volume->path, sizeof(volume->path));
	}
	if (lstat(own, &st) == 0 && S_ISREG(st.st_mode) && !same_node(own, opts->path)) {
		log_error("store",
			"%s: the store's volume is the file %s; another one (%s) would be another "
			"store: copy the objects, or remove storage.volume",
			opts->dir, own, opts->path);
		return -EUCLEAN;
	}
	return path_absolute(opts->path, volume->path, sizeof(volume->path));
}

void volume_super_fill(struct superblock *super, uint8_t block[BLOCK_BYTES])
{
	/* Only a program that knows changed sets may open a store that has one. */
	bool changed = super->set.change != 0;

	super->version = changed ? STORE_VERSION_SET : STORE_VERSION;
	memset(block, 0, BLOCK_BYTES);
	super->crc32c = 0;
	memcpy(block, super, changed ? sizeof(*super) : offsetof(struct superblock, set));
	super->crc32c = super_crc(block);
	memcpy(block + offsetof(struct superblock, crc32c), &super->crc32c, sizeof(super->crc32c));
}

int volume_super_write(struct volume *volume)
{
	struct superblock *super = &volume->super;
	void *block;
	int ret;

	if (volume->set_count)
		return stripe_super_write(volume);
	if (posix_memalign(&block, BLOCK_BYTES, BLOCK_BYTES))
		return -ENOMEM;
	super->generation++;
	volume_super_fill(super, (uint8_t *)block);
	ret = disk_write_now(
		volume->disk, block, BLOCK_BYTES, super->generation % 2 * (uint64_t)BLOCK_BYTES);
	free(block);
	if (!ret)
		ret = disk_flush_now(volume->disk);
	if (!ret)
		atomic_store(&volume->settled_generation, super->generation);
	return ret;
}

void volume_super_init(struct superblock *super, const struct volume_opts *opts)
{
	*super = (struct superblock){.version = STORE_VERSION, .tail_seq = 1};
	memcpy(super->magic, MAGIC, sizeof(MAGIC));
	random_fill(super->uuid, sizeof(super->uuid));
	super->log_bytes = opts->log_bytes ? opts->log_bytes : STORE_LOG_BYTES_DEFAULT;
	super->step_bytes = opts->step_bytes ? opts->step_bytes : DISK_STEP_BYTES;
	super->log_bytes =
		ALIGN_UP(MAX(super->log_bytes, STORE_LOG_BYTES_MIN), (uint64_t)BLOCK_BYTES);
	super->step_bytes = ALIGN_UP(super->step_bytes, (uint64_t)STORE_CHUNK_BYTES);
	super->data_offset =
		ALIGN_UP(VOLUME_LOG_OFFSET + super->log_bytes, (uint64_t)STORE_CHUNK_BYTES);
	super->created_ns = clock_real_ns();
}

int volume_link(const char *dir, const struct volume *volume)
{
	char own[4096], fresh[4096 + 8];

	if (volume->set_count)
		return 0;
	if ((size_t)snprintf(own, sizeof(own), "%s/volume", dir) >= sizeof(own))
		return -ENAMETOOLONG;
	if (same_node(own, volume->path))
		return 0;
	snprintf(fresh, sizeof(fresh), "%s.new", own);
	if ((unlink(fresh) && errno != ENOENT) || symlink(volume->path, fresh) ||
		rename(fresh, own))
		return -errno;
	return file_dir_sync(dir);
}

/* ---- Labels: a device is used only when it is blank, ours, or the user allowed to overwrite it.
 * ---- */

bool volume_index_present(const char *dir)
{
	char path[4096];

	return (size_t)snprintf(path, sizeof(path), "%s/index/CURRENT", dir) < sizeof(path) &&
	       access(path, F_OK) == 0;
}

void volume_image_hint(const char *path, const struct superblock *super)
{
	if (super->image_bytes)
		log_error("store",
			"%s: it holds a store and the copy of that store's index, which the data "
			"folder lacks: to rebuild the data folder from it, start with "
			"storage.protect_index: true",
			path);
}

/* Says what a medium holds of a store; NULL: nothing. The bodies of a log apart do not tell whether
 * anything was ever stored there; their labels are the last step but one of a store's creation. */
static int store_find(struct disk *disk, const char *path, const char **ret_what)
{
	struct superblock super;
	enum disk_part part;
	int ret = disk_part_of(disk, &part);

	*ret_what = NULL;
	if (ret)
		return ret;
	if (part == DISK_PART_BODIES) {
		*ret_what = "the bodies of a store whose log is apart (storage.log)";
		return 0;
	}
	if (part == DISK_PART_LATER) {
		*ret_what = "a part of a store in a disk format that this program does not know";
		return 0;
	}
	ret = super_at(disk, path, part == DISK_PART_LOG ? DISK_LABEL_BYTES : 0, &super);
	if (ret == -EUCLEAN)
		*ret_what = "a store in a disk format that this program does not know";
	else if (!ret && super.epoch)
		*ret_what = part == DISK_PART_LOG ? "the log of a store whose bodies are apart"
						  : "a store that is not this one, or a former "
						    "volume of this one";
	return ret == -EUCLEAN || ret == -ENOENT || ret == -EMEDIUMTYPE ? 0 : ret;
}

/* A store's data folder, or its other part, may only be out of reach for now. */
static int store_refuse(struct disk *disk, const char *path, bool quiet)
{
	const char *what;
	int ret = store_find(disk, quiet ? NULL : path, &what);

	if (ret || !what)
		return ret;
	if (!quiet)
		log_error("store",
			"%s: it holds %s: not changed; to destroy what it holds, delete the file, "
			"or zero the device's first MiB, and start with --format",
			path, what);
	return -EUCLEAN;
}

static int stores_refuse(struct disk *disk, const char *path, bool quiet)
{
	struct disk *part = disk_unlabelled(disk, 0);
	int ret = 0;

	if (!part)
		return store_refuse(disk, path, quiet);
	for (uint32_t i = 0; !ret && (part = disk_unlabelled(disk, i)); i++)
		ret = store_refuse(part, disk_path(part), quiet);
	return ret;
}

/* Called on the open disk before the first write. found: the result of super_read. */
int volume_label_check(
	const struct volume_opts *opts, const char *path, struct disk *disk, int found)
{
	char what[128];
	int foreign = 0;

	if (found == 0)
		return 0;
	if (!opts->overwrite)
		foreign = stores_refuse(disk, path, opts->quiet);
	if (foreign)
		return foreign;
	foreign = disk_foreign(disk, what, sizeof(what));
	if (foreign < 0)
		return foreign;
	if (!foreign && found == -ENOENT)
		return 0;
	if (!foreign)
		snprintf(what, sizeof(what), "a damaged superblock");
	if (!opts->format && !opts->quiet)
		log_error("store",
			"%s: it holds %s: not changed; to destroy that and use it for this store, "
			"start once with --format",
			path, what);
	if (!opts->format)
		return -EUCLEAN;
	log_warn("store", "%s: --format: it held %s, which is now destroyed", path, what);
	return disk_wipe_now(disk);
}

/* Compares a device's size with its former size. */
static int size_check(struct volume *volume)
{
	uint64_t now = disk_can_grow(volume->disk) ? 0 : disk_medium_bytes(volume->disk);
	uint64_t then = volume->super.medium_bytes;

	if (now < then) {
		log_error("store",
			"%s: the device has %llu bytes but had %llu when it was last used: "
			"objects may lie beyond its end: restore its size",
			volume->path, (unsigned long long)now, (unsigned long long)then);
		return -EUCLEAN;
	}
	if (then && now > then)
		log_info("store",
			"%s: the device grew from %llu to %llu MiB: the store uses all of it",
			volume->path, (unsigned long long)(then / MIB),
			(unsigned long long)(now / MIB));
	volume->super.medium_bytes = now;
	return 0;
}

static int super_again(struct volume *volume)
{
	struct superblock super;
	int ret = volume_super_of(volume->disk, volume->path, &super);

	if (ret)
		return ret;
	if (memcmp(super.uuid, volume->super.uuid, sizeof(super.uuid)) != 0) {
		log_error("store", "%s: another store was made on it meanwhile", volume->path);
		return -EUCLEAN;
	}
	volume->super = super;
	return 0;
}

static int volume_init(const struct volume_opts *opts, struct volume *volume, int found)
{
	struct disk_opts disk = {.path = volume->path,
		.faults = opts->faults,
		.create = found == -ENOENT,
		.discard_files = opts->discard_files,
		.step_bytes = volume->super.step_bytes,
		.log_bytes = volume->super.data_offset,
		/* Waiting does not unmount a file system. */
		.lock_wait_ns = found == -EMEDIUMTYPE ? 0 : LOCK_WAIT_NS};
	int ret = disk_open(&disk, &volume->disk);

	/* The last owner may have gone on to write until we got the volume. */
	if (!ret && !found)
		ret = super_again(volume);
	if (!ret)
		ret = volume_label_check(opts, volume->path, volume->disk, found);
	/* The log, and at least a chunk of extents. */
	if (!ret)
		ret = disk_grow(volume->disk, volume->super.data_offset + STORE_CHUNK_BYTES);
	if (ret == -ENOSPC)
		log_error("store", "%s: no room for the log: at least %llu MiB are needed",
			volume->path, (unsigned long long)(volume->super.data_offset / MIB + 1));
	if (!ret)
		ret = size_check(volume);
	if (!ret && found)
		ret = volume_super_write(volume);
	if (!ret && found)
		ret = volume_link(opts->dir, volume);
	/* The names of the volume and of the link must be durable before the store depends on them.
	 */
	if (!ret && found && !strstr(volume->path, "://"))
		ret = file_parent_sync(volume->path);
	return !ret && found ? file_dir_sync(opts->dir) : ret;
}

static void volume_opened(struct volume *volume)
{
	volume->magic = VOLUME_MAGIC;
	volume_check(volume);
	if (!volume->set_count)
		atomic_store(&volume->settled_generation, volume->super.generation);
}

int volume_open(const struct volume_opts *opts, struct volume *ret_volume)
{
	struct volume *volume = ret_volume;
	int ret = volume->path[0] ? 0 : volume_locate(opts, volume);
	bool known = volume_index_present(opts->dir);
	bool begun;
	int found;

	if (ret)
		return ret;
	if (volume->set_count) {
		ret = stripe_open(opts, volume);
		if (!ret)
			volume_opened(volume);
		return ret;
	}
	found = volume_super_read(volume->path, false, &volume->super);
	begun = found == 0 && volume->super.epoch > 0;
	if (begun && opts->create && !known && !(opts->adopt && volume->super.image_bytes)) {
		/* The volume has a store's objects, and that store's index is elsewhere. */
		volume_image_hint(volume->path, &volume->super);
		found = -EMEDIUMTYPE;
	} else if (found == -EMEDIUMTYPE && (known || !opts->create)) {
		log_error("store",
			"%s: no valid superblock: this is not a volume of a store, or it is "
			"damaged: restore it from a copy",
			volume->path);
		return -EUCLEAN;
	}
	if (found && !(opts->create && (found == -ENOENT || found == -EMEDIUMTYPE)))
		return found;
	*opts->ret_created = found != 0;
	if (found)
		volume_super_init(&volume->super, opts);
	pthread_mutex_init(&volume->lock, NULL);
	volume->uuid_crc = crc32c_update(0, volume->super.uuid, sizeof(volume->super.uuid));
	ret = volume_init(opts, volume, found);
	if (ret)
		volume_close(volume);
	else
		volume_opened(volume);
	return ret;
}

void volume_close(struct volume *volume)
{
	stripe_paths_free(volume);
	if (!volume->disk)
		return;
	disk_close(volume->disk);
	volume->disk = NULL;
	magic_clear(&volume->magic);
	pthread_mutex_destroy(&volume->lock);
}
