/* region/layout.c: decides where each part of the region lies. The same options always give the
 * same layout. */
#include "region/region_priv.h"

#include <errno.h>

static const char *const kind_names[LAYOUT_KIND_COUNT] = {
	[LAYOUT_HEADER] = "header",
	[LAYOUT_BASE_SQ] = "base-sq",
	[LAYOUT_BASE_CQ] = "base-cq",
	[LAYOUT_RDMA_SQ] = "rdma-sq",
	[LAYOUT_RDMA_CQ] = "rdma-cq",
	[LAYOUT_MRS] = "memory-regions",
	[LAYOUT_TARGETS] = "targets",
	[LAYOUT_FRAMES] = "frame-table",
	[LAYOUT_DATA] = "data",
};

const char *layout_kind_name(uint32_t kind)
{
	return kind < LAYOUT_KIND_COUNT ? kind_names[kind] : "unknown";
}

static void put(
	struct layout_plan *plan, enum layout_kind kind, uint64_t count, uint64_t entry_bytes)
{
	struct layout_entry *entry = &plan->entries[plan->entry_count++];

	entry->kind = kind;
	entry->arena = 0;
	entry->offset = plan->meta_bytes;
	entry->count = (uint32_t)count;
	entry->entry_bytes = (uint32_t)entry_bytes;
	entry->bytes = count * entry_bytes;
	plan->meta_bytes = ALIGN_UP(plan->meta_bytes + entry->bytes, (uint64_t)FRAME_BYTES);
}

/* Places everything before the data, for a frame table of this many entries. */
static void put_meta(struct layout_plan *plan, const struct region_opts *opts, uint64_t page_count)
{
	uint64_t cores = opts->core_count;
	uint64_t control = sizeof(struct ring_control);
	uint64_t entries = opts->ring_entries;

	plan->entry_count = 0;
	plan->meta_bytes = 0;
	put(plan, LAYOUT_HEADER, 1, FRAME_BYTES);
	put(plan, LAYOUT_BASE_SQ, cores, control + entries * sizeof(struct region_sqe));
	/* Twice the entries: one place for each signaled entry, and as many again for failures of
	 * unsignaled ones.
	 */
	put(plan, LAYOUT_BASE_CQ, cores, control + 2 * entries * sizeof(struct region_cqe));
	put(plan, LAYOUT_RDMA_SQ, cores, control + entries * sizeof(struct region_wr));
	put(plan, LAYOUT_RDMA_CQ, cores, control + 2 * entries * sizeof(struct region_cqe));
	put(plan, LAYOUT_MRS, LIMIT_REGION_MRS_MAX, sizeof(struct mr_slot));
	put(plan, LAYOUT_TARGETS, LIMIT_REGION_TARGETS_MAX, sizeof(struct target_slot));
	put(plan, LAYOUT_FRAMES, page_count, sizeof(struct region_frame));
}

static void put_data_line(struct layout_plan *plan, uint32_t arena, uint64_t offset, uint64_t bytes)
{
	struct layout_entry *entry = &plan->entries[plan->entry_count++];

	entry->kind = LAYOUT_DATA;
	entry->arena = arena;
	entry->offset = offset;
	entry->bytes = bytes;
	entry->count = (uint32_t)(bytes >> FRAME_SHIFT);
	entry->entry_bytes = FRAME_BYTES;
}

static void put_data(struct layout_plan *plan)
{
	uint64_t offset = plan->data_page << FRAME_SHIFT;

	while (offset < plan->base_bytes) {
		uint64_t in_arena = offset & (ARENA_STRIDE - 1);
		uint64_t bytes = MIN(ARENA_STRIDE - in_arena, plan->base_bytes - offset);

		put_data_line(plan, (uint32_t)(offset >> ARENA_SHIFT), in_arena, bytes);
		offset += bytes;
	}
	for (uint32_t i = plan->base_arena_count; i < plan->arena_count; i++)
		put_data_line(plan, i, 0, 1ull << plan->extension_shift);
}

/* Places the extensions behind a base of so many bytes. */
static void put_extensions(
	struct layout_plan *plan, const struct region_opts *opts, uint64_t base_bytes)
{
	uint64_t more = opts->bytes_max > opts->bytes ? opts->bytes_max - opts->bytes : 0;
	uint64_t arenas = (base_bytes + ARENA_STRIDE - 1) >> ARENA_SHIFT;
	uint64_t left = LIMIT_ARENAS_MAX - MIN(arenas, LIMIT_ARENAS_MAX);
	uint64_t bytes = opts->extension_bytes ? opts->extension_bytes : REGION_EXTENSION_BYTES;
	uint64_t count;

	while (!opts->extension_bytes && bytes < ARENA_STRIDE && more / bytes > left)
		bytes *= 2;
	count = MIN(more / bytes, left);
	plan->base_bytes = base_bytes;
	plan->base_arena_count = (uint32_t)arenas;
	plan->arena_count = (uint32_t)(arenas + count);
	/* Blocks are aligned in every arena. */
	plan->extension_offset = ALIGN_UP(base_bytes, BLOCK_BYTES_MAX);
	plan->extension_shift = (uint32_t)__builtin_ctzll(bytes);
	plan->page_count =
		(count ? plan->extension_offset + count * bytes : base_bytes) >> FRAME_SHIFT;
}

int layout_plan(const struct region_opts *opts, struct layout_plan *ret_plan)
{
	struct layout_plan plan = {0};
	uint64_t data_bytes = ALIGN_UP(opts->bytes, HUGE_PAGE_BYTES);
	uint64_t data_offset = 0;
	uint64_t fits;

	if (opts->bytes > LIMIT_ARENAS_MAX * ARENA_STRIDE)
		return -EINVAL;
	/* The frame table covers its own pages too: grow the header until it covers itself. Data
	 * begins on a boundary of the largest block, so that every block is aligned. */
	do {
		fits = data_offset;
		put_extensions(&plan, opts, data_offset + data_bytes);
		put_meta(&plan, opts, plan.page_count);
		data_offset = MAX(fits, ALIGN_UP(plan.meta_bytes, BLOCK_BYTES_MAX));
	} while (data_offset != fits);
	plan.data_page = data_offset >> FRAME_SHIFT;
	if (plan.base_arena_count > LIMIT_ARENAS_MAX)
		return -EINVAL;
	CHECK(plan.meta_bytes < ARENA_STRIDE);
	put_data(&plan);
	*ret_plan = plan;
	return 0;
}
