/* region/region.c: opening and closing the region: plan, memory, header, frames, rings; and the
 * arenas' face for devices. */
#include "region/frames_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RING_ENTRIES_DEFAULT 1024u

/* Sets the defaults and checks the other options. */
static int opts_check(const struct region_opts *opts, struct region_opts *ret_opts)
{
	struct region_opts checked = *opts;

	if (!checked.name)
		checked.name = "nebulaio";
	if (checked.ring_entries == 0)
		checked.ring_entries = RING_ENTRIES_DEFAULT;
	if (checked.name[0] == '\0' || strlen(checked.name) >= REGION_NAME_BYTES ||
		strchr(checked.name, '/'))
		return -EINVAL;
	if (checked.bytes == 0 || checked.bytes > LIMIT_ARENAS_MAX * LIMIT_ARENA_BYTES_MAX)
		return -EINVAL;
	if (checked.core_count == 0 || checked.core_count > LIMIT_CORES_MAX)
		return -EINVAL;
	if (checked.ring_entries > LIMIT_RING_ENTRIES_MAX ||
		(checked.ring_entries & (checked.ring_entries - 1)) != 0)
		return -EINVAL;
	if (checked.extension_bytes &&
		(checked.extension_bytes < BLOCK_BYTES_MAX ||
			checked.extension_bytes > ARENA_STRIDE ||
			(checked.extension_bytes & (checked.extension_bytes - 1)) != 0))
		return -EINVAL;
	*ret_opts = checked;
	return 0;
}

static void *table_of(struct region *region, const struct layout_plan *plan, enum layout_kind kind)
{
	CHECK(plan->entries[kind].kind == kind);
	return region->base + plan->entries[kind].offset;
}

/* The magic is written last: a view that finds it can read the rest. */
static void header_open(
	struct region *region, const struct region_opts *opts, const struct layout_plan *plan)
{
	struct region_header *header = table_of(region, plan, LAYOUT_HEADER);

	region->header = header;
	region->mrs = table_of(region, plan, LAYOUT_MRS);
	region->target_slots = table_of(region, plan, LAYOUT_TARGETS);
	region->frames = table_of(region, plan, LAYOUT_FRAMES);
	header->version = REGION_VERSION;
	header->header_bytes = sizeof(*header);
	header->pid = (uint32_t)getpid();
	header->arena_count = region->arena_count;
	header->core_count = opts->core_count;
	header->ring_entries = opts->ring_entries;
	header->opened_real_ns = clock_real_ns();
	header->base_addr = (uintptr_t)region->base;
	header->page_count = plan->page_count;
	header->data_page = plan->data_page;
	header->base_arena_count = region->base_arena_count;
	for (uint32_t i = 0; i < region->base_arena_count; i++) {
		header->huge_arenas |= (uint64_t)region->arenas[i].face.huge << i;
		header->arenas_there |= 1ull << i;
	}
	if (region->base_arena_count < region->arena_count) {
		header->extension_page = (uint32_t)(plan->extension_offset >> FRAME_SHIFT);
		header->extension_pages = 1u << (plan->extension_shift - FRAME_SHIFT);
	}
	memcpy(header->name, region->name, sizeof(header->name));
	header->layout_count = plan->entry_count;
	memcpy(header->layout, plan->entries, plan->entry_count * sizeof(plan->entries[0]));
}

int region_open(const struct region_opts *opts, struct region **ret_region)
{
	struct region_opts checked;
	struct layout_plan plan;
	struct region *region;
	int error = opts_check(opts, &checked);

	if (error == 0)
		error = layout_plan(&checked, &plan);
	if (error < 0)
		return error;
	region = calloc(1, sizeof(*region));
	if (!region)
		return -ENOMEM;
	pthread_mutex_init(&region->tables_lock, NULL);
	region->bytes = plan.page_count << FRAME_SHIFT;
	region->page_count = (uint32_t)plan.page_count;
	region->data_page = (uint32_t)plan.data_page;
	region->arena_count = plan.arena_count;
	region->base_bytes = plan.base_bytes;
	region->base_arena_count = plan.base_arena_count;
	region->extension_offset = plan.extension_offset;
	region->extension_shift = plan.extension_shift;
	memcpy(region->name, checked.name, strlen(checked.name) + 1); /* its length was checked */
	region->huge_pages = checked.huge_pages;
	region->numa_bind = checked.numa_bind;
	region->numa_only = checked.numa_only;
	region->numa_node = checked.numa_node;
	region->arenas = calloc(plan.arena_count, sizeof(*region->arenas));
	error = region->arenas ? arenas_open(region, &plan) : -ENOMEM;
	if (error == 0) {
		header_open(region, &checked, &plan);
		error = rings_open(region, &plan);
	}
	if (error == 0)
		error = frames_open(region);
	if (error < 0) {
		region_close(region);
		return error;
	}
	atomic_thread_fence(memory_order_release);
	memcpy(region->header->magic, REGION_MAGIC, sizeof(region->header->magic));
	*ret_region = region;
	return 0;
}

void region_close(struct region *region)
{
	if (!region)
		return;
	frames_close(region);
	rings_close(region);
	arenas_close(region);
	free(region->arenas);
	pthread_mutex_destroy(&region->tables_lock);
	free(region);
}

uint32_t region_arena_count(const struct region *region)
{
	return region->arena_count;
}

struct region_arena region_arena(const struct region *region, uint32_t arena_idx)
{
	CHECK(arena_idx < region->arena_count);
	return region->arenas[arena_idx].face;
}
