/* region/view_dump.c: the report on a region, as text for people or as JSON for programs. Reads
 * each part of the shared memory once, into its own variables, then prints those. */
#include "region/view_priv.h"

#include <inttypes.h>
#include <string.h>

struct ring_report {
	uint32_t head, tail, depth, entries;
	uint64_t total;
};

struct frames_report {
	uint64_t total;
	uint64_t by_owner[OWNER_COUNT];
	uint64_t unclear; /* changed while we read it */
	uint64_t spans;
	uint64_t cached;		     /* free, in a thread's cache */
	uint64_t free_blocks[ORDER_MAX + 1]; /* on the arenas' lists */
	int largest_free_order;		     /* -1: none */
};

static const void *table_of(const struct region_view *view, enum layout_kind kind)
{
	return view->base + view->header.layout[kind].offset;
}

static void ring_gather(const struct region_view *view, enum layout_kind kind, uint32_t core_idx,
	struct ring_report *ret_report)
{
	const struct layout_entry *layout = &view->header.layout[kind];
	const uint8_t *at = view->base + layout->offset + (uint64_t)core_idx * layout->entry_bytes;
	struct ring_control *control = (struct ring_control *)(uintptr_t)at;
	bool is_cq = kind == LAYOUT_BASE_CQ || kind == LAYOUT_RDMA_CQ;
	struct ring_report report = {.entries = view->header.ring_entries << is_cq};

	report.head = atomic_load_explicit(&control->head, memory_order_acquire);
	report.tail = atomic_load_explicit(&control->tail, memory_order_acquire);
	report.total = atomic_load_explicit(&control->total, memory_order_relaxed);
	/* Head and tail are two reads: the ring may have turned over in between. */
	report.depth = MIN(report.tail - report.head, report.entries);
	*ret_report = report;
}

/* Whether the arena's memory is there at this moment. */
static bool is_there(const struct region_view *view, uint32_t arena_idx)
{
	struct region_header *header = (struct region_header *)(uintptr_t)view->base;

	return atomic_load_explicit(&header->arenas_there, memory_order_relaxed) >> arena_idx & 1;
}

/* Walks from block to block. The allocator may be splitting and merging meanwhile: where a block
 * should begin but none does, the page is skipped and counted as unclear. */
static void frames_walk(
	const struct region_view *view, uint64_t from, uint64_t end, struct frames_report *report)
{
	const struct region_frame *table = table_of(view, LAYOUT_FRAMES);
	uint64_t count;

	for (uint64_t i = from; i < end; i += count) {
		struct region_frame *frame = (struct region_frame *)(uintptr_t)&table[i];
		uint32_t owner =
			word_owner(atomic_load_explicit(&frame->word, memory_order_relaxed));
		uint32_t kind = *(volatile uint8_t *)&frame->kind;
		uint32_t order = *(volatile uint8_t *)&frame->order;

		count = *(volatile uint32_t *)&frame->frame_count;
		if ((kind != FRAME_LISTED && kind != FRAME_HELD) || owner >= OWNER_COUNT ||
			count == 0 || count > LIMIT_SPAN_FRAMES_MAX || count > end - i ||
			(kind == FRAME_LISTED && order > ORDER_MAX)) {
			count = 1;
			report->unclear++;
			continue;
		}
		report->by_owner[owner] += count;
		if (kind == FRAME_LISTED) {
			report->free_blocks[order]++;
			report->largest_free_order = MAX(report->largest_free_order, (int)order);
		} else if (owner == OWNER_FREE) {
			report->cached += count;
		} else {
			report->spans++;
		}
	}
}

static void frames_gather(const struct region_view *view, struct frames_report *ret_report)
{
	const struct region_header *header = &view->header;
	struct frames_report report = {.largest_free_order = -1};

	for (uint32_t i = LAYOUT_DATA; i < header->layout_count; i++) {
		const struct layout_entry *data = &header->layout[i];
		uint64_t from = arena_page(header, data->arena) + (data->offset >> FRAME_SHIFT);

		if (!is_there(view, data->arena))
			continue;
		report.total += data->count;
		frames_walk(view, from, from + data->count, &report);
	}
	*ret_report = report;
}

uint64_t region_view_frames(const struct region_view *view, uint64_t ret_by_owner[OWNER_COUNT])
{
	struct frames_report report;

	frames_gather(view, &report);
	memcpy(ret_by_owner, report.by_owner, sizeof(report.by_owner));
	return report.total;
}

/* The share of free, listed memory that lies in blocks smaller than the largest span. */
static double fragmentation(const struct frames_report *report)
{
	uint64_t listed = 0;

	for (uint32_t order = 0; order <= ORDER_MAX; order++)
		listed += report->free_blocks[order] << order;
	if (listed == 0)
		return 0;
	return 1.0 - (double)(report->free_blocks[ORDER_MAX] << ORDER_MAX) / (double)listed;
}

/* Copies text from shared memory: terminated, and only printable ASCII that needs no escape. */
static void text_gather(char *dst, const char *src, size_t bytes)
{
	memcpy(dst, src, bytes);
	dst[bytes - 1] = '\0';
	for (char *c = dst; *c; c++) {
		if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\')
			*c = '?';
	}
}

static bool mr_gather(const struct region_view *view, uint32_t idx, struct region_mr *ret_mr)
{
	const struct mr_slot *table = table_of(view, LAYOUT_MRS);
	struct mr_slot *slot = (struct mr_slot *)(uintptr_t)&table[idx];

	if (atomic_load_explicit(&slot->used, memory_order_acquire) == 0)
		return false;
	memcpy(ret_mr, &slot->mr, sizeof(*ret_mr));
	text_gather(ret_mr->device, slot->mr.device, sizeof(ret_mr->device));
	return true;
}

static bool target_gather(const struct region_view *view, uint32_t idx, struct target_slot *ret)
{
	const struct target_slot *table = table_of(view, LAYOUT_TARGETS);
	struct target_slot *slot = (struct target_slot *)(uintptr_t)&table[idx];

	if (atomic_load_explicit(&slot->used, memory_order_acquire) == 0)
		return false;
	text_gather(ret->device, slot->device, sizeof(ret->device));
	text_gather(ret->label, slot->label, sizeof(ret->label));
	return true;
}

/* ---- Text. ---- */

static void text_header(const struct region_view *view, struct buf *out)
{
	const struct region_header *header = &view->header;
	char name[REGION_NAME_BYTES];

	text_gather(name, header->name, sizeof(name));
	buf_printf(out,
		"region %s of process %u: version %u, %u arenas, %u cores, rings of %u entries\n\n",
		name, header->pid, header->version, header->arena_count, header->core_count,
		header->ring_entries);
	buf_printf(out, "%-15s %5s %12s %14s %9s %11s  %s\n", "layout", "arena", "offset", "bytes",
		"count", "entry bytes", "pages");
	for (uint32_t i = 0; i < header->layout_count; i++) {
		const struct layout_entry *entry = &header->layout[i];
		const char *pages = header->huge_arenas >> entry->arena & 1 ? "2 MiB" : "4 KiB";

		buf_printf(out, "%-15s %5u %12" PRIu64 " %14" PRIu64 " %9u %11u  %s\n",
			layout_kind_name(entry->kind), entry->arena, entry->offset, entry->bytes,
			entry->count, entry->entry_bytes,
			is_there(view, entry->arena) ? pages : "parked");
	}
}

static void text_rings(const struct region_view *view, struct buf *out)
{
	buf_printf(out, "\n%-10s %5s %10s %10s %6s %8s %20s\n", "ring", "core", "head", "tail",
		"depth", "entries", "queued in all");
	for (uint32_t core = 0; core < view->header.core_count; core++) {
		for (uint32_t kind = LAYOUT_BASE_SQ; kind <= LAYOUT_RDMA_CQ; kind++) {
			struct ring_report ring;

			ring_gather(view, kind, core, &ring);
			buf_printf(out, "%-10s %5u %10u %10u %6u %8u %20" PRIu64 "\n",
				layout_kind_name(kind), core, ring.head, ring.tail, ring.depth,
				ring.entries, ring.total);
		}
	}
}

static void text_tables(const struct region_view *view, struct buf *out)
{
	buf_printf(out, "\n%-7s %18s %14s %10s %10s %8s  %s\n", "memory", "address", "bytes",
		"lkey", "rkey", "access", "device");
	for (uint32_t i = 0; i < LIMIT_REGION_MRS_MAX; i++) {
		struct region_mr mr;

		if (mr_gather(view, i, &mr))
			buf_printf(out,
				"%-7u 0x%016" PRIx64 " %14" PRIu64 " 0x%08x 0x%08x 0x%06x  %s\n", i,
				mr.addr, mr.bytes, mr.lkey, mr.rkey, mr.access, mr.device);
	}
	buf_printf(out, "\n%-7s %-12s %s\n", "target", "device", "label");
	for (uint32_t i = 0; i < LIMIT_REGION_TARGETS_MAX; i++) {
		struct target_slot target;

		if (target_gather(view, i, &target))
			buf_printf(out, "%-7u %-12s %s\n", i, target.device, target.label);
	}
}

static void text_frames(const struct region_view *view, struct buf *out)
{
	struct frames_report report;

	frames_gather(view, &report);
	buf_printf(out, "\n%-8s %12s %14s\n", "owner", "frames", "KiB");
	for (uint32_t owner = 0; owner < OWNER_COUNT; owner++)
		buf_printf(out, "%-8s %12" PRIu64 " %14" PRIu64 "\n", region_owner_name(owner),
			report.by_owner[owner], report.by_owner[owner] * FRAME_BYTES / 1024);
	if (report.unclear > 0)
		buf_printf(out, "%-8s %12" PRIu64 " changing as it was read\n", "unclear",
			report.unclear);
	buf_printf(out, "%-8s %12" PRIu64 "\n", "all", report.total);
	buf_printf(out, "%" PRIu64 " spans leased, %" PRIu64 " leases refused\n", report.spans,
		atomic_load_explicit(
			&((struct region_header *)(uintptr_t)view->base)->lease_failures,
			memory_order_relaxed));
	buf_put_str(out, "free blocks by size:");
	for (uint32_t order = 0; order <= ORDER_MAX; order++)
		buf_printf(out, " %uK:%" PRIu64, 4u << order, report.free_blocks[order]);
	buf_printf(out,
		"\nin threads' caches %" PRIu64 " frames, largest free block %u KiB, "
		"fragmentation %.1f %%\n",
		report.cached, report.largest_free_order < 0 ? 0 : 4u << report.largest_free_order,
		100 * fragmentation(&report));
}

/* ---- JSON. ---- */

static void json_header(const struct region_view *view, struct buf *out)
{
	const struct region_header *header = &view->header;
	char name[REGION_NAME_BYTES];

	text_gather(name, header->name, sizeof(name));
	buf_printf(out,
		"{\"name\":\"%s\",\"pid\":%u,\"version\":%u,\"opened_real_ns\":%" PRIu64
		",\"arenas\":%u,\"cores\":%u,\"ring_entries\":%u,\"layout\":[",
		name, header->pid, header->version, header->opened_real_ns, header->arena_count,
		header->core_count, header->ring_entries);
	for (uint32_t i = 0; i < header->layout_count; i++) {
		const struct layout_entry *entry = &header->layout[i];

		buf_printf(out,
			"%s{\"kind\":\"%s\",\"arena\":%u,\"offset\":%" PRIu64 ",\"bytes\":%" PRIu64
			",\"count\":%u,\"entry_bytes\":%u,\"huge\":%s,\"there\":%s}",
			i ? "," : "", layout_kind_name(entry->kind), entry->arena, entry->offset,
			entry->bytes, entry->count, entry->entry_bytes,
			header->huge_arenas >> entry->arena & 1 ? "true" : "false",
			is_there(view, entry->arena) ? "true" : "false");
	}
	buf_put_str(out, "]");
}

static void json_rings(const struct region_view *view, struct buf *out)
{
	const char *comma = "";

	buf_put_str(out, ",\"rings\":[");
	for (uint32_t core = 0; core < view->header.core_count; core++) {
		for (uint32_t kind = LAYOUT_BASE_SQ; kind <= LAYOUT_RDMA_CQ; kind++) {
			struct ring_report ring;

			ring_gather(view, kind, core, &ring);
			buf_printf(out,
				"%s{\"kind\":\"%s\",\"core\":%u,\"head\":%u,\"tail\":%u,"
				"\"depth\":%u,\"entries\":%u,\"total\":%" PRIu64 "}",
				comma, layout_kind_name(kind), core, ring.head, ring.tail,
				ring.depth, ring.entries, ring.total);
			comma = ",";
		}
	}
	buf_put_str(out, "]");
}

static void json_tables(const struct region_view *view, struct buf *out)
{
	const char *comma = "";

	buf_put_str(out, ",\"memory_regions\":[");
	for (uint32_t i = 0; i < LIMIT_REGION_MRS_MAX; i++) {
		struct region_mr mr;

		if (!mr_gather(view, i, &mr))
			continue;
		buf_printf(out,
			"%s{\"index\":%u,\"addr\":%" PRIu64 ",\"bytes\":%" PRIu64
			",\"lkey\":%u,\"rkey\":%u,\"access\":%u,\"device\":\"%s\"}",
			comma, i, mr.addr, mr.bytes, mr.lkey, mr.rkey, mr.access, mr.device);
		comma = ",";
	}
	buf_put_str(out, "],\"targets\":[");
	comma = "";
	for (uint32_t i = 0; i < LIMIT_REGION_TARGETS_MAX; i++) {
		struct target_slot target;

		if (!target_gather(view, i, &target))
			continue;
		buf_printf(out, "%s{\"target\":%u,\"device\":\"%s\",\"label\":\"%s\"}", comma, i,
			target.device, target.label);
		comma = ",";
	}
	buf_put_str(out, "]");
}

static void json_frames(const struct region_view *view, struct buf *out)
{
	struct frames_report report;

	frames_gather(view, &report);
	buf_printf(out, ",\"frames\":{\"total\":%" PRIu64 ",\"by_owner\":{", report.total);
	for (uint32_t owner = 0; owner < OWNER_COUNT; owner++)
		buf_printf(out, "%s\"%s\":%" PRIu64, owner ? "," : "", region_owner_name(owner),
			report.by_owner[owner]);
	buf_printf(out,
		"},\"unclear\":%" PRIu64 ",\"spans\":%" PRIu64 ",\"cached\":%" PRIu64
		",\"lease_failures\":%" PRIu64 ",\"largest_free_order\":%d,\"fragmentation\":%.3f,"
		"\"free_blocks\":[",
		report.unclear, report.spans, report.cached,
		atomic_load_explicit(
			&((struct region_header *)(uintptr_t)view->base)->lease_failures,
			memory_order_relaxed),
		report.largest_free_order, fragmentation(&report));
	for (uint32_t order = 0; order <= ORDER_MAX; order++)
		buf_printf(out, "%s%" PRIu64, order ? "," : "", report.free_blocks[order]);
	buf_put_str(out, "]}}\n");
}

void region_view_dump(const struct region_view *view, bool json, struct buf *out)
{
	if (json) {
		json_header(view, out);
		json_rings(view, out);
		json_tables(view, out);
		json_frames(view, out);
	} else {
		text_header(view, out);
		text_rings(view, out);
		text_tables(view, out);
		text_frames(view, out);
	}
}
