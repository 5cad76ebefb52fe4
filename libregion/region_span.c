/* libregion/region_span.c: spans and their owners; and the lookup of the disk, connection or key
 * that a work's numbers name. */
#include <errno.h>

#include "libregion/region_lib.h"

_Static_assert((int)NEB_FREE == (int)OWNER_FREE && (int)NEB_CACHE == (int)OWNER_CACHE, "one list");
_Static_assert(NEB_SPAN_BYTES_MAX == LIMIT_SPAN_FRAMES_MAX * FRAME_BYTES, "as the header says");

uint64_t lib_deadline(uint64_t timeout_ns)
{
	uint64_t now_ns = clock_now_ns();

	return timeout_ns > DEADLINE_NONE - now_ns ? DEADLINE_NONE : now_ns + timeout_ns;
}

int neb_span_lease(struct neb_region *region, uint32_t bytes, struct neb_span *ret_span)
{
	struct region_span span;
	int ret;

	if (bytes == 0 || bytes > NEB_SPAN_BYTES_MAX)
		return -EINVAL;
	ret = region_lease(region->region, region_frames_for(bytes), OWNER_APP, &span);
	if (!ret)
		*ret_span = neb_span_of(span);
	return ret;
}

int neb_span_owner(const struct neb_region *region, const struct neb_span *span)
{
	enum region_owner owner;
	int ret;

	/* A span of more bytes than its frames would reach into its neighbour. */
	if (span->bytes % FRAME_BYTES)
		return -ESTALE;
	ret = region_span_check(region->region, lib_span(span), &owner);
	return ret ? ret : (int)owner;
}

int lib_span_held(
	const struct neb_region *region, const struct neb_span *span, enum neb_owner owner)
{
	int now = neb_span_owner(region, span);

	if (now < 0)
		return now;
	return now == (int)owner ? 0 : -EPERM;
}

static bool exposed(const struct neb_region *region, const struct neb_span *span)
{
	for (uint32_t i = 0; region->exposed_count && i < LIB_EXPOSED_MAX; i++) {
		if (region->exposed[i].mr && region->exposed[i].frame == span->frame)
			return true;
	}
	return false;
}

int neb_span_give(struct neb_region *region, const struct neb_span *span)
{
	int ret = lib_span_held(region, span, NEB_APP);

	/* Its frames' next holder knows nothing of the peers. */
	if (!ret && exposed(region, span))
		ret = -EBUSY;
	if (!ret)
		region_give(region->region, lib_span(span), OWNER_APP);
	return ret;
}

int neb_span_hand(struct neb_region *region, const struct neb_span *span, enum neb_owner from,
	enum neb_owner to)
{
	int ret;

	/* Spans reach and leave a device by work only. */
	if ((from != NEB_APP && from != NEB_NET && from != NEB_CACHE) ||
		(to != NEB_APP && to != NEB_NET && to != NEB_CACHE))
		return -EINVAL;
	ret = lib_span_held(region, span, from);
	if (!ret)
		region_switch(region->region, lib_span(span), (enum region_owner)from,
			(enum region_owner)to);
	return ret;
}

const struct lib_disk *lib_disk_of(const struct neb_region *region, uint16_t target)
{
	for (uint32_t i = 0; i < region->disk_count; i++) {
		if (region->disks[i].target == target)
			return &region->disks[i];
	}
	return NULL;
}

uint64_t neb_disk_bytes(const struct neb_region *region, uint16_t target)
{
	const struct lib_disk *disk = lib_disk_of(region, target);

	return disk ? disk_bytes(disk->disk) : 0;
}

uint32_t neb_disk_align(const struct neb_region *region, uint16_t target)
{
	const struct lib_disk *disk = lib_disk_of(region, target);

	return disk ? disk_align(disk->disk) : 0;
}

struct lib_conn *lib_conn_of(const struct neb_region *region, uint16_t target)
{
	for (uint32_t i = 0; i < LIB_CONNS_MAX; i++) {
		const struct lib_conn *conn = &region->conns[i];

		if (conn->used && conn->target == target)
			return (struct lib_conn *)(uintptr_t)conn;
	}
	return NULL;
}

uint32_t lib_lkey(const struct neb_region *region, const void *data, uint32_t bytes)
{
	int arena = region_arena_of(region->region, data, bytes);

	CHECK(arena >= 0);
	return region->arenas.lkeys[arena];
}
