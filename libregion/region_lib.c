/* libregion/region_lib.c: the region as a library: opens and closes it and its disks. A reactor
 * without fibers drives the rings, only during the caller's calls. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "libregion/region_lib.h"

/* ---- Life. ---- */

int neb_region_create(const struct neb_region_options *options, struct neb_region **ret_region)
{
	const struct region_opts region_opts = {.name = options->name,
		.bytes = options->bytes,
		.core_count = 1,
		.ring_entries = options->ring_entries,
		.huge_pages = options->huge_pages};
	const struct reactor_opts reactor_opts = {.cpu = -1, .fibers_max = 1};
	struct neb_region *self;
	int ret;

	if (options->bytes < MIB)
		return -EINVAL;
	self = calloc(1, sizeof(*self));
	if (!self)
		return -ENOMEM;
	self->rings_fd = -1;
	lib_works_init(self, options->ring_entries);
	ret = region_open(&region_opts, &self->region);
	if (!ret)
		ret = reactor_open(&reactor_opts, &self->reactor);
	if (!ret)
		ret = lib_rings_open(self);
	if (ret) {
		neb_region_destroy(self);
		return ret;
	}
	region_timed_set(self->region, true);
	*ret_region = self;
	return 0;
}

void neb_region_destroy(struct neb_region *region)
{
	if (!region)
		return;
	lib_rdma_close(region);
	if (region->ring)
		lib_works_end(region);
	lib_xdp_close(region);
	for (uint32_t i = 0; i < region->disk_count; i++)
		disk_close(region->disks[i].disk);
	if (region->ring)
		reactor_poller_remove(region->reactor, &region->rings);
	if (region->rings_fd >= 0)
		close(region->rings_fd);
	reactor_close(region->reactor);
	region_close(region->region);
	free(region);
}

uint64_t neb_region_copied(const struct neb_region *region)
{
	(void)region;
	return region_copy_bytes_all();
}

/* ---- Spans. ---- */

void neb_region_usage(const struct neb_region *region, struct neb_usage *ret_usage)
{
	struct region_usage usage;

	region_usage(region->region, &usage);
	*ret_usage = (struct neb_usage){
		.frames = usage.frames_total, .work_in_flight = region->work_count};
	for (uint32_t i = 0; i < OWNER_COUNT; i++)
		ret_usage->frames_by_owner[i] = usage.frames_by_owner[i];
}

/* ---- Disks. ---- */

static int disk_blank(struct disk *disk, const char *path)
{
	char what[128] = "data that cannot be read";

	if (disk_kind(disk) == DISK_FILE || disk_foreign(disk, what, sizeof(what)) == 0)
		return 0;
	log_error("region", "%s: it holds %s: not changed", path, what);
	return -EEXIST;
}

int neb_attach_disk(struct neb_region *region, const char *path, uint32_t flags, uint64_t bytes,
	uint16_t *ret_target)
{
	const struct disk_opts opts = {.path = path,
		.bytes_min = bytes,
		.step_bytes = MIB,
		.create = flags & NEB_DISK_CREATE,
		.read_only = flags & NEB_DISK_READ_ONLY};
	struct lib_disk *slot = &region->disks[region->disk_count];
	struct disk *disk;
	int ret;

	if (region->disk_count == LIB_DISKS_MAX)
		return -ENOSPC;
	ret = disk_open(&opts, &disk);
	if (ret)
		return ret;
	if (!(flags & (NEB_DISK_READ_ONLY | NEB_DISK_OVERWRITE)))
		ret = disk_blank(disk, path);
	if (!ret)
		ret = disk_attach(disk, region->reactor, region->region);
	if (!ret)
		ret = disk_target(disk, region->region, &slot->target);
	if (ret) {
		disk_close(disk);
		return ret;
	}
	slot->disk = disk;
	region->disk_count++;
	*ret_target = slot->target;
	return 0;
}
