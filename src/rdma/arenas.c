/* rdma/arenas.c: the region's arenas in a protection domain, and in the region's own table. */
#include <stdio.h>

#include "rdma/port.h"

static int arena_open(
	struct rp_arenas *arenas, struct rp_pd *pd, const char *device, uint32_t access)
{
	uint32_t idx = arenas->count;
	struct region_arena arena = region_arena(arenas->region, idx);
	const struct rp_mr_opts opts = {
		.addr = arena.base, .bytes = arena.bytes, .access = access, .fd = arena.fd};
	struct region_mr mr = {
		.addr = (uint64_t)(uintptr_t)arena.base, .bytes = arena.bytes, .access = access};
	int ret = rp_mr_open(pd, &opts, &arenas->mrs[idx]);

	if (ret)
		return ret;
	CHECK(idx < LIMIT_ARENAS_MAX);
	arenas->lkeys[idx] = rp_mr_lkey(arenas->mrs[idx]);
	mr.lkey = arenas->lkeys[idx];
	if (access & (RP_ACCESS_REMOTE_READ | RP_ACCESS_REMOTE_WRITE))
		mr.rkey = rp_mr_rkey(arenas->mrs[idx]);
	snprintf(mr.device, sizeof(mr.device), "%.*s", (int)sizeof(mr.device) - 1, device);
	ret = region_mr_add(arenas->region, &mr, &arenas->mr_idx[idx]);
	if (ret)
		rp_mr_close(arenas->mrs[idx]);
	else
		arenas->count++;
	return ret;
}

int rp_arenas_open(struct rp_arenas *arenas, struct region *region, struct rp_pd *pd,
	const char *device, uint32_t access)
{
	int ret = 0;

	*arenas = (struct rp_arenas){.region = region};
	while (!ret && arenas->count < region_arena_count(region))
		ret = arena_open(arenas, pd, device, access);
	if (ret)
		rp_arenas_close(arenas);
	return ret;
}

void rp_arenas_close(struct rp_arenas *arenas)
{
	CHECK(arenas->count <= LIMIT_ARENAS_MAX);
	while (arenas->count) {
		arenas->count--;
		region_mr_remove(arenas->region, arenas->mr_idx[arenas->count]);
		rp_mr_close(arenas->mrs[arenas->count]);
	}
}
