/* store/volume.c: the volume file's layout: superblocks, log, extents. Blocking; for opening, for
 * checkpoints and for checking. */
#include "store/store_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char MAGIC[8] = {'N', 'E', 'B', 'S', 'T', 'O', 'R', 'E'};

/* The store's own lock is ours already, so whoever holds the volume is on its way out. */
#define LOCK_WAIT_NS (30 * NS_PER_S)

enum slot { SLOT_VALID, SLOT_BLANK, SLOT_NEWER, SLOT_DAMAGED };

static uint32_t super_crc(const uint8_t block[BLOCK_BYTES])
{
	static const uint32_t zero;
	uint32_t crc = crc32c_update(0, block, 12);

	crc = crc32c_update(crc, &zero, sizeof(zero));
	return crc32c_update(crc, block + 16, BLOCK_BYTES - 16);
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
	if (super.version != STORE_VERSION)
		return SLOT_NEWER;
	if (super.crc32c != super_crc(block))
		return SLOT_DAMAGED;
	if (super.log_bytes < STORE_LOG_BYTES_MIN || super.log_bytes % BLOCK_BYTES ||
		super.step_bytes == 0 || super.step_bytes % STORE_CHUNK_BYTES ||
		super.data_offset !=
			ALIGN_UP(VOLUME_LOG_OFFSET + super.log_bytes, (uint64_t)STORE_CHUNK_BYTES))
		return SLOT_DAMAGED;
	*ret_super = super;
	return SLOT_VALID;
}

/* The newer of the two slots. 0; -ENOENT: there is no volume yet, or one whose creation was cut
 * short; -EUCLEAN with a log line. */
static int super_read(const char *path, struct superblock *ret_super)
{
	uint8_t blocks[2 * BLOCK_BYTES];
	struct superblock supers[2];
	enum slot slots[2];
	ssize_t len;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	memset(blocks, 0, sizeof(blocks));
	len = pread(fd, blocks, sizeof(blocks), 0);
	close(fd);
	if (len < 0)
		return -EIO;
	for (uint32_t i = 0; i < 2; i++)
		slots[i] = slot_parse(&blocks[i * BLOCK_BYTES], &supers[i]);
	if (slots[0] == SLOT_NEWER || slots[1] == SLOT_NEWER) {
		log_error("store",
			"%s: written by another version of the disk format (this program has "
			"version %u): use the program that wrote it",
			path, STORE_VERSION);
		return -EUCLEAN;
	}
	if (slots[0] == SLOT_BLANK && slots[1] == SLOT_BLANK)
		return -ENOENT;
	if (slots[0] != SLOT_VALID && slots[1] != SLOT_VALID) {
		log_error("store",
			"%s: no valid superblock: this is not a store's volume, or it is "
			"damaged: restore it from a copy",
			path);
		return -EUCLEAN;
	}
	*ret_super =
		supers[slots[1] == SLOT_VALID &&
			(slots[0] != SLOT_VALID || supers[1].generation > supers[0].generation)];
	return 0;
}

bool volume_missing(const char *dir)
{
	struct superblock super;
	char path[4096];

	return (size_t)snprintf(path, sizeof(path), "%s/volume", dir) < sizeof(path) &&
	       super_read(path, &super) == -ENOENT;
}

int volume_super_write(struct volume *volume)
{
	struct superblock *super = &volume->super;
	void *block;
	int ret;

	if (posix_memalign(&block, BLOCK_BYTES, BLOCK_BYTES))
		return -ENOMEM;
	super->generation++;
	memset(block, 0, BLOCK_BYTES);
	super->crc32c = 0;
	memcpy(block, super, sizeof(*super));
	super->crc32c = super_crc((const uint8_t *)block);
	memcpy(block, super, sizeof(*super));
	ret = disk_write_now(
		volume->disk, block, BLOCK_BYTES, super->generation % 2 * (uint64_t)BLOCK_BYTES);
	free(block);
	return ret ? ret : disk_flush_now(volume->disk);
}

static void super_init(struct superblock *super, const struct volume_opts *opts)
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

/* A new file's name must survive a crash, too. */
static int dir_sync(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int ret;

	if (fd < 0)
		return -errno;
	ret = fsync(fd) ? -errno : 0;
	close(fd);
	return ret;
}

int volume_open(const struct volume_opts *opts, struct volume *ret_volume)
{
	struct volume *volume = ret_volume;
	struct disk_opts disk = {.kind = opts->faults ? DISK_SIMULATED : DISK_FILE};
	char path[4096];
	int ret;

	if ((size_t)snprintf(path, sizeof(path), "%s/volume", opts->dir) >= sizeof(path))
		return -ENAMETOOLONG;
	ret = super_read(path, &volume->super);
	if (ret && !(ret == -ENOENT && opts->create))
		return ret;
	*opts->ret_created = ret == -ENOENT;
	if (*opts->ret_created)
		super_init(&volume->super, opts);
	disk.path = path;
	disk.faults = opts->faults;
	disk.create = *opts->ret_created;
	disk.step_bytes = volume->super.step_bytes;
	disk.lock_wait_ns = LOCK_WAIT_NS;
	/* The log, and at least a chunk of extents. */
	disk.bytes_min = volume->super.data_offset + STORE_CHUNK_BYTES;
	pthread_mutex_init(&volume->lock, NULL);
	volume->uuid_crc = crc32c_update(0, volume->super.uuid, sizeof(volume->super.uuid));
	ret = disk_open(&disk, &volume->disk);
	if (!ret && *opts->ret_created)
		ret = volume_super_write(volume);
	if (!ret && *opts->ret_created)
		ret = dir_sync(opts->dir);
	if (ret)
		volume_close(volume);
	return ret;
}

void volume_close(struct volume *volume)
{
	if (!volume->disk)
		return;
	disk_close(volume->disk);
	volume->disk = NULL;
	pthread_mutex_destroy(&volume->lock);
}
