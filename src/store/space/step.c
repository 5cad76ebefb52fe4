/* store/space/step.c: lets the volume grow, by one step at a time, as far as the options and the
 * file systems of its files allow. */
#include "store/space/space.h"
#include "store/state/state.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <sys/statvfs.h>

uint64_t space_file_system_free(const struct store *store)
{
	struct statvfs st;

	if (statvfs(store->dir, &st))
		return UINT64_MAX;
	return (uint64_t)st.f_bavail * st.f_frsize;
}

/* The volume's length after one more step; 0: it must not grow. */
static uint64_t next_bytes(const struct store *store)
{
	uint64_t step = store->volume.super.step_bytes;
	uint64_t next = disk_bytes(store->volume.disk) + step;

	if (!disk_can_grow(store->volume.disk))
		return 0;
	if (store->opts.volume_bytes_max && next > store->opts.volume_bytes_max)
		return 0;
	return disk_room(store->volume.disk, store->opts.reserve_bytes) < step ? 0 : next;
}

int space_step(struct store *store)
{
	uint64_t next = next_bytes(store);
	int ret = next ? disk_grow(store->volume.disk, next) : -ENOSPC;

	return ret ? ret : space_grow(store->space, disk_bytes(store->volume.disk) / BLOCK_BYTES);
}

int space_lease_growing(struct store *store, bool reserved, uint32_t blocks, uint64_t *ret_block,
	uint32_t *ret_blocks)
{
	for (;;) {
		int ret;

		*ret_blocks = reserved ? space_lease_reserved(store->space, blocks, ret_block)
				       : space_lease(store->space, blocks, ret_block);
		if (*ret_blocks)
			return 0;
		ret = space_step(store);
		if (ret)
			return ret;
	}
}
