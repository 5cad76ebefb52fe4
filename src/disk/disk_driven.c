/* disk/disk_driven.c: a volume that a driver from outside this folder serves. */
#include "disk/disk_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ZERO_BYTES MIB /* at a time, when zeros have to be written */

#define DRIVERS_MAX 4u

static const struct disk_driver *drivers[DRIVERS_MAX];

void disk_driver_add(const struct disk_driver *driver)
{
	uint32_t at = 0;

	while (at < DRIVERS_MAX && drivers[at])
		at++;
	CHECK(at < DRIVERS_MAX);
	drivers[at] = driver;
}

void disk_driver_remove(const struct disk_driver *driver)
{
	for (uint32_t i = 0; i < DRIVERS_MAX; i++)
		if (drivers[i] == driver)
			drivers[i] = NULL;
}

static const struct disk_driver *driver_of(const char *path)
{
	for (uint32_t i = 0; i < DRIVERS_MAX; i++)
		if (drivers[i] &&
			strncmp(path, drivers[i]->scheme, strlen(drivers[i]->scheme)) == 0)
			return drivers[i];
	return NULL;
}

bool disk_driver_takes(const char *path)
{
	return driver_of(path) != NULL;
}

/* Also called while operations run and other threads look at the volume. */
static void identity_take(struct disk *disk, const struct disk_identity *identity)
{
	atomic_store_explicit(&disk->sector_bytes, identity->align, memory_order_relaxed);
	atomic_store_explicit(&disk->medium_bytes, identity->medium_bytes, memory_order_relaxed);
	atomic_store_explicit(&disk->driven_grows, identity->can_grow, memory_order_relaxed);
	atomic_store(&disk->discards, identity->can_discard);
	atomic_store_explicit(&disk->bytes, identity->bytes, memory_order_release);
}

static int driven_open(struct disk *disk, const struct disk_opts *opts)
{
	const struct disk_driver *driver = driver_of(opts->path);
	struct disk_identity identity;
	int ret = driver->open(driver->arg, opts, &identity, &disk->driven);

	if (ret)
		return ret;
	disk->driver = driver;
	snprintf(disk->what, sizeof(disk->what), "%s", identity.what);
	identity_take(disk, &identity);
	return 0;
}

static void driven_close(struct disk *disk)
{
	if (disk->driver)
		disk->driver->close(disk->driven);
}

static int driven_attach(struct disk *disk, struct disk_core *core)
{
	return disk->driver->attach(disk->driven, core->reactor, core->region);
}

static void driven_issue(struct disk_io *io, const struct disk_core *core)
{
	(void)core;
	io->disk->driver->start(io->disk->driven, io);
}

/* In steps, because its host makes all of the space ready before it answers, and an answer that
 * takes too long counts as lost. */
static int driven_grow(struct disk *disk, uint64_t bytes_total)
{
	uint64_t bytes = disk_bytes(disk);
	int ret = 0;

	while (!ret && bytes < bytes_total) {
		uint64_t next = MIN(bytes_total, bytes + disk->step_bytes);
		struct disk_identity identity;

		if (!atomic_load_explicit(&disk->driven_grows, memory_order_relaxed))
			return -ENOSPC;
		ret = disk->driver->grow(disk->driven, next, &identity);
		if (ret)
			break;
		identity_take(disk, &identity);
		bytes = disk_bytes(disk);
		ret = bytes < next ? -EPROTO : 0;
	}
	if (ret && ret != -ENOTCONN && ret != -ENOSPC)
		log_error("disk", "%s: its host cannot grow it (%s): see the log there", disk->path,
			strerror(-ret));
	return ret;
}

static int driven_read_now(struct disk *disk, void *data, uint64_t bytes, uint64_t offset)
{
	return disk->driver->now(disk->driven, DISK_READ, data, bytes, offset);
}

static int driven_write_now(struct disk *disk, const void *data, uint64_t bytes, uint64_t offset)
{
	/* A write only reads the data. */
	return disk->driver->now(disk->driven, DISK_WRITE, (void *)(uintptr_t)data, bytes, offset);
}

static int driven_flush_now(struct disk *disk)
{
	return disk->driver->now(disk->driven, DISK_FLUSH, NULL, 0, 0);
}

static int driven_zeros_write(struct disk *disk, uint64_t bytes, uint64_t offset)
{
	void *zeros;
	int ret = 0;

	if (posix_memalign(&zeros, DISK_ALIGN_BYTES, ZERO_BYTES))
		return -ENOMEM;
	memset(zeros, 0, ZERO_BYTES);
	for (uint64_t at = 0; at < bytes && !ret; at += ZERO_BYTES)
		ret = driven_write_now(disk, zeros, MIN(bytes - at, ZERO_BYTES), offset + at);
	free(zeros);
	return ret;
}

/* Some media cannot make zeros by themselves: tmpfs and NFS. */
static int driven_zero_now(struct disk *disk, uint64_t bytes, uint64_t offset)
{
	int ret = disk->driver->now(disk->driven, DISK_ZERO, NULL, bytes, offset);

	return ret == -EOPNOTSUPP ? driven_zeros_write(disk, bytes, offset) : ret;
}

bool disk_gone(const struct disk *disk)
{
	if (disk->fabric)
		return atomic_load(&disk->fabric_gone);
	return disk->driver && disk->driver->gone(disk->driven);
}

bool disk_resumes(const struct disk *disk)
{
	return disk->fabric || (disk->driver && disk->driver->durable);
}

int disk_revive(struct disk *disk)
{
	struct disk_identity identity;
	int ret;

	if (disk->fabric)
		return disk_fabric_revive(disk);
	if (!disk->driver)
		return -EOPNOTSUPP;
	/* This answer must not be applied after the answer of a later growth. */
	pthread_mutex_lock(&disk->grow_lock);
	ret = disk->driver->revive(disk->driven, &identity);
	if (!ret)
		identity_take(disk, &identity);
	pthread_mutex_unlock(&disk->grow_lock);
	return ret;
}

const struct disk_ops DISK_DRIVEN_OPS = {
	.name = "driven volume",
	.open = driven_open,
	.close = driven_close,
	.attach = driven_attach,
	.detach = disk_detach_plain,
	.issue = driven_issue,
	.grow = driven_grow,
	.read_now = driven_read_now,
	.write_now = driven_write_now,
	.flush_now = driven_flush_now,
	.zero_now = driven_zero_now,
	.can_grow = true,
};
