/* rdma/arenas.c: the region's arenas in a protection domain, and in the region's own table. */
#include <stdio.h>

#include "rdma/port.h"

static int arena_open(struct rp_arenas *arenas, uint32_t idx)
{
	struct region_arena arena = region_arena(arenas->region, idx);
	const struct rp_mr_opts opts = {
		.addr = arena.base, .bytes = arena.bytes, .access = arenas->access, .fd = arena.fd};
	struct region_mr mr = {.addr = (uint64_t)(uintptr_t)arena.base,
		.bytes = arena.bytes,
		.access = arenas->access};
	int ret = rp_mr_open(arenas->pd, &opts, &arenas->mrs[idx]);

	if (ret)
		return ret;
	arenas->lkeys[idx] = rp_mr_lkey(arenas->mrs[idx]);
	mr.lkey = arenas->lkeys[idx];
	if (arenas->access & (RP_ACCESS_REMOTE_READ | RP_ACCESS_REMOTE_WRITE))
		mr.rkey = rp_mr_rkey(arenas->mrs[idx]);
	memcpy(mr.device, arenas->device, sizeof(mr.device));
	ret = region_mr_add(arenas->region, &mr, &arenas->mr_idx[idx]);
	if (ret) {
		rp_mr_close(arenas->mrs[idx]);
		arenas->mrs[idx] = NULL;
	}
	return ret;
}

static void arena_close(struct rp_arenas *arenas, uint32_t idx)
{
	if (!arenas->mrs[idx])
		return;
	region_mr_remove(arenas->region, arenas->mr_idx[idx]);
	rp_mr_close(arenas->mrs[idx]);
	arenas->mrs[idx] = NULL;
	arenas->lkeys[idx] = 0;
}

static int on_attach(struct region_watch *watch, uint32_t arena_idx)
{
	struct rp_arenas *arenas = CONTAINER_OF(watch, struct rp_arenas, watch);

	return arenas->mrs[arena_idx] ? 0 : arena_open(arenas, arena_idx);
}

static void on_detach(struct region_watch *watch, uint32_t arena_idx)
{
	arena_close(CONTAINER_OF(watch, struct rp_arenas, watch), arena_idx);
}

/* rp_arenas_close was not called: the memory is no longer known to be there. */
static void on_ended(struct region_watch *watch)
{
	(void)watch;
}

int rp_arenas_open(struct rp_arenas *arenas, struct region_ring *core, struct rp_pd *pd,
	const char *device, uint32_t access)
{
	struct region *region = region_of_ring(core);
	int ret = 0;

	*arenas = (struct rp_arenas){.region = region,
		.pd = pd,
		.access = access,
		.watch = {.attach = on_attach, .detach = on_detach, .ended = on_ended}};
	snprintf(arenas->device, sizeof(arenas->device), "%.*s", (int)sizeof(arenas->device) - 1,
		device);
	region_watch_add(core, &arenas->watch);
	for (uint32_t i = 0; i < region_arena_count(region) && !ret; i++)
		if (region_arena_registers(region, i))
			ret = arena_open(arenas, i);
	if (ret)
		rp_arenas_close(arenas);
	return ret;
}

void rp_arenas_close(struct rp_arenas *arenas)
{
	if (!arenas->region)
		return;
	region_watch_remove(&arenas->watch);
	for (uint32_t i = 0; i < LIMIT_ARENAS_MAX; i++)
		arena_close(arenas, i);
}
