/* server/admin/metrics.c: writes all counters in Prometheus' text format. */
#include "server/admin/admin_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "GCC " __VERSION__
#endif
#ifdef __aarch64__
#define ARCH "aarch64"
#else
#define ARCH "x86_64"
#endif

static bool is_total(const char *name)
{
	return slice_ends(slice_str(name), SLICE("_total"));
}

void metric_head(struct buf *out, const char *name, const char *help)
{
	buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name,
		is_total(name) ? "counter" : "gauge");
}

void metric_line(struct buf *out, const char *name, const char *labels, uint64_t value)
{
	if (labels)
		buf_printf(out, "%s{%s} %" PRIu64 "\n", name, labels, value);
	else
		buf_printf(out, "%s %" PRIu64 "\n", name, value);
}

/* ---- Counters. ---- */

/* Counters are never freed, so this file collects them under the registry's lock and prints them
 * later.
 */
struct counter_set {
	const struct counter **all;
	size_t count, cap;
	bool failed;
};

static void collect_counter(const struct counter *counter, void *arg)
{
	struct counter_set *set = arg;
	size_t cap = set->cap ? 2 * set->cap : 1024;
	const struct counter **grown;

	if (set->count == set->cap) {
		grown = realloc(set->all, cap * sizeof(*grown));
		if (!grown) {
			set->failed = true;
			return;
		}
		set->all = grown;
		set->cap = cap;
	}
	set->all[set->count++] = counter;
}

/* Sorts by name, because the format wants the lines of one metric together; then by registration.
 */
static int by_name(const void *left, const void *right)
{
	const struct counter *a = *(const struct counter *const *)left;
	const struct counter *b = *(const struct counter *const *)right;
	int order = strcmp(a->name, b->name);

	return order ? order : (a->number > b->number) - (a->number < b->number);
}

static void put_counters(struct buf *out)
{
	struct counter_set set = {0};

	counter_visit(collect_counter, &set);
	if (set.failed)
		out->failed = true;
	else if (set.count)
		qsort(set.all, set.count, sizeof(set.all[0]), by_name);
	for (size_t i = 0; i < set.count && !out->failed; i++) {
		const struct counter *counter = set.all[i];

		if (!i || strcmp(counter->name, set.all[i - 1]->name) != 0)
			metric_head(out, counter->name, counter->help);
		metric_line(out, counter->name, counter->labels, counter_read(counter));
	}
	free(set.all);
}

/* ---- Histograms. ---- */

static double seconds(uint64_t ns)
{
	return (double)ns / (double)NS_PER_S;
}

/* Leaves out empty ones: there is a histogram for each operation and transport. */
static void put_hist(const struct counter_hist *hist, struct buf *out)
{
	uint64_t values[COUNTER_HIST_PLACES], sum = 0;

	counter_hist_read(hist, values);
	for (uint32_t i = 0; i < COUNTER_HIST_BUCKETS; i++)
		sum += values[i];
	if (!sum)
		return;
	sum = 0;
	for (uint32_t i = 0; i < COUNTER_HIST_BUCKETS; i++) {
		char bound[32] = "+Inf";

		if (i < COUNTER_HIST_BUCKETS - 1)
			snprintf(bound, sizeof(bound), "%g", seconds(counter_hist_bounds_ns[i]));
		sum += values[i];
		buf_printf(out, "%s_bucket{%s,le=\"%s\"} %" PRIu64 "\n", hist->name, hist->labels,
			bound, sum);
	}
	buf_printf(out, "%s_sum{%s} %.9f\n%s_count{%s} %" PRIu64 "\n", hist->name, hist->labels,
		seconds(values[COUNTER_HIST_SUM]), hist->name, hist->labels, sum);
}

struct hist_walk {
	struct buf *out;
	const char *name; /* of the previous histogram */
};

/* Histograms of one name are registered together. */
static void next_hist(const struct counter_hist *hist, void *arg)
{
	struct hist_walk *walk = arg;

	if (!walk->name || strcmp(walk->name, hist->name) != 0)
		buf_printf(walk->out, "# HELP %s %s\n# TYPE %s histogram\n", hist->name, hist->help,
			hist->name);
	walk->name = hist->name;
	put_hist(hist, walk->out);
}

static void put_hists(struct buf *out)
{
	counter_hist_visit(next_hist, &(struct hist_walk){.out = out});
}

static void put_region_bytes(
	const struct region *region, const struct region_usage *usage, struct buf *out)
{
	uint64_t step = region_extension_bytes(region), states[ARENA_STATE_COUNT] = {0};
	char labels[64];

	for (uint32_t i = region_extension_first(region); i < region_arena_count(region); i++)
		states[region_extension_state(region, i)] += step;
	metric_head(
		out, "nebulaio_region_bytes", "Bytes of frames that the memory region has now.");
	metric_line(out, "nebulaio_region_bytes", NULL, usage->frames_total * FRAME_BYTES);
	metric_head(out, "nebulaio_region_extension_bytes",
		"Bytes of the region's extensions by state; parked ones take no memory.");
	for (uint32_t i = 0; i < ARENA_STATE_COUNT; i++) {
		snprintf(labels, sizeof(labels), "state=\"%s\"",
			region_arena_state_name((enum region_arena_state)i));
		metric_line(out, "nebulaio_region_extension_bytes", labels, states[i]);
	}
}

static void put_region(const struct admin_opts *opts, struct buf *out)
{
	struct region_usage usage;
	char labels[64];

	region_usage(opts->region, &usage);
	metric_head(
		out, "nebulaio_region_frames", "Frames of 4 KiB of the unified region by owner.");
	for (unsigned i = 0; i < OWNER_COUNT; i++) {
		snprintf(labels, sizeof(labels), "owner=\"%s\"",
			region_owner_name((enum region_owner)i));
		metric_line(out, "nebulaio_region_frames", labels, usage.frames_by_owner[i]);
	}
	put_region_bytes(opts->region, &usage, out);
	metric_head(out, "nebulaio_region_lease_failures_total",
		"Leases that found no frames at first.");
	metric_line(out, "nebulaio_region_lease_failures_total", NULL, usage.lease_failures);
	metric_head(out, "nebulaio_copied_bytes_total",
		"Payload bytes copied by the processor, by reason.");
	for (unsigned i = 0; i < COPY_WHY_COUNT; i++) {
		snprintf(labels, sizeof(labels), "why=\"%s\"",
			region_copy_why_name((enum region_copy_why)i));
		metric_line(out, "nebulaio_copied_bytes_total", labels,
			region_copy_bytes((enum region_copy_why)i));
	}
}

#define RING_METRIC(n, h, f)                                                           \
	{                                                                              \
		.name = n, .help = h, .offset = offsetof(struct region_ring_stats, f), \
		.bytes = sizeof(((struct region_ring_stats *)0)->f)                    \
	}

static uint64_t ring_stat(const struct region_ring_stats *stats, size_t offset, size_t bytes)
{
	uint32_t narrow;
	uint64_t wide;

	if (bytes == sizeof(narrow)) {
		memcpy(&narrow, (const char *)stats + offset, sizeof(narrow));
		return narrow;
	}
	memcpy(&wide, (const char *)stats + offset, sizeof(wide));
	return wide;
}

static void ring_labels(char labels[32], uint32_t idx)
{
	snprintf(labels, 32, "ring=\"%s\",core=\"%u\"", idx % 2 ? "rdma" : "base", idx / 2);
}

/* In this format each bucket of a histogram includes the counts of all shorter ones. */
static void put_latencies(const struct region *region, struct buf *out)
{
	static const char NAME[] = "nebulaio_ring_latency_seconds";

	buf_printf(out,
		"# HELP %s From submission to completion, in whole turns of the event loop.\n"
		"# TYPE %s histogram\n",
		NAME, NAME);
	for (uint32_t idx = 0; idx < 2 * region_core_count(region); idx++) {
		struct region_ring_stats stats;
		uint64_t sum = 0;
		char labels[32];

		region_ring_stats(region, idx / 2, idx % 2, &stats);
		ring_labels(labels, idx);
		for (uint32_t i = 0; i + 1 < REGION_LATENCY_BUCKETS; i++) {
			sum += stats.latency_buckets[i];
			buf_printf(out, "%s_bucket{%s,le=\"%.9f\"} %" PRIu64 "\n", NAME, labels,
				seconds(REGION_LATENCY_NS(i)), sum);
		}
		sum += stats.latency_buckets[REGION_LATENCY_BUCKETS - 1];
		buf_printf(out, "%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n", NAME, labels, sum);
		buf_printf(out, "%s_sum{%s} %.9f\n%s_count{%s} %" PRIu64 "\n", NAME, labels,
			seconds(stats.latency_ns), NAME, labels, sum);
	}
}

static void put_rings(const struct region *region, struct buf *out)
{
	static const struct {
		const char *name;
		const char *help;
		size_t offset, bytes;
	} FIELDS[] = {
		RING_METRIC("nebulaio_ring_submitted_total", "Entries submitted.", submitted),
		RING_METRIC("nebulaio_ring_completed_total", "Completions.", completed),
		RING_METRIC("nebulaio_ring_errors_total", "Entries that failed.", errors),
		RING_METRIC("nebulaio_ring_submission_depth", "Entries that wait for their device.",
			submit_depth),
		RING_METRIC("nebulaio_ring_completion_depth",
			"Completions not yet taken by the event loop.", complete_depth),
	};

	for (size_t f = 0; f < ARRAY_LEN(FIELDS); f++) {
		metric_head(out, FIELDS[f].name, FIELDS[f].help);
		for (uint32_t idx = 0; idx < 2 * region_core_count(region); idx++) {
			struct region_ring_stats stats;
			char labels[32];

			region_ring_stats(region, idx / 2, idx % 2, &stats);
			ring_labels(labels, idx);
			metric_line(out, FIELDS[f].name, labels,
				ring_stat(&stats, FIELDS[f].offset, FIELDS[f].bytes));
		}
	}
	put_latencies(region, out);
}

static void put_volumes(const struct admin_opts *opts, struct buf *out)
{
	static const char *const STATES[] = {"good", "missing", "rebuilding"};
	struct store_volume volumes[DISK_MEMBERS_MAX];
	uint32_t count = store_volumes(opts->store, volumes, DISK_MEMBERS_MAX);
	struct store_set_status set;
	char labels[64];

	metric_head(out, "nebulaio_store_index_protected",
		"1 when the volumes are enough to rebuild the index; 0: it is not asked for, or a "
		"checkpoint found no room.");
	metric_line(out, "nebulaio_store_index_protected", NULL, store_protected(opts->store) == 1);
	metric_head(out, "nebulaio_store_index_jobs",
		"Flushes and merges of the index that run or wait.");
	metric_line(out, "nebulaio_store_index_jobs", NULL, store_index_jobs(opts->store));
	metric_head(out, "nebulaio_store_list_table_bytes",
		"Memory of the keys that are kept in order for lists.");
	metric_line(out, "nebulaio_store_list_table_bytes", NULL, store_list_bytes(opts->store));
	if (!count)
		return;
	store_volumes_status(opts->store, &set);
	metric_head(out, "nebulaio_store_moving", "1 while bodies move to another set of volumes.");
	metric_line(out, "nebulaio_store_moving", NULL, set.changing);
	metric_head(out, "nebulaio_store_move_left_bytes",
		"Bytes of bodies that are still on the former set of volumes.");
	metric_line(out, "nebulaio_store_move_left_bytes", NULL, set.left_bytes);
	metric_head(out, "nebulaio_store_volume_state",
		"1 for the current state of each volume of an erasure coded store.");
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t s = 0; s < ARRAY_LEN(STATES); s++) {
			snprintf(labels, sizeof(labels), "volume=\"%u\",state=\"%s\"",
				volumes[i].number, STATES[s]);
			metric_line(out, "nebulaio_store_volume_state", labels,
				volumes[i].state == (enum disk_member_state)s);
		}
}

static void put_store(const struct admin_opts *opts, struct buf *out)
{
	struct store_usage usage;
	const struct {
		const char *name;
		const char *help;
		const uint64_t *value;
	} gauges[] = {
		{"nebulaio_store_volume_bytes", "Size of the volume.", &usage.volume_bytes},
		{"nebulaio_store_used_bytes", "Bytes of the volume in use by extents.",
			&usage.used_bytes},
		{"nebulaio_store_free_bytes", "Bytes of the volume that are free.",
			&usage.free_bytes},
		{"nebulaio_store_objects", "Objects stored.", &usage.objects},
		{"nebulaio_store_buckets", "Buckets.", &usage.buckets},
		{"nebulaio_memory_buckets", "Memory buckets.", &usage.memory_buckets},
		{"nebulaio_memory_objects", "Objects in memory buckets.", &usage.memory_objects},
		{"nebulaio_memory_bytes",
			"What the objects of memory buckets take: frames, records and keys.",
			&usage.memory_bytes},
		{"nebulaio_memory_bytes_max",
			"The most that memory buckets may take together (memory.buckets_bytes).",
			&usage.memory_bytes_max},
		{"nebulaio_store_cache_bytes", "Bytes of objects in the read cache.",
			&usage.cache_bytes},
		{"nebulaio_store_cache_bytes_max", "The most that the read cache may have now.",
			&usage.cache_bytes_max},
		{"nebulaio_store_log_bytes", "Bytes of the log since the last checkpoint.",
			&usage.log_bytes},
	};

	store_usage(opts->store, &usage);
	for (size_t i = 0; i < ARRAY_LEN(gauges); i++) {
		metric_head(out, gauges[i].name, gauges[i].help);
		metric_line(out, gauges[i].name, NULL, *gauges[i].value);
	}
}

void admin_reactors(struct reactor *const *reactors, uint32_t count, struct buf *out)
{
	static const struct {
		const char *name;
		const char *help;
		size_t offset;
	} FIELDS[] = {
		{"nebulaio_reactor_turns_total", "Turns of the event loop.",
			offsetof(struct reactor_stats, turns)},
		{"nebulaio_reactor_long_turns_total",
			"Turns of the event loop of 5 ms or more: all else on it waited meanwhile, "
			"for one piece of work or for the processor.",
			offsetof(struct reactor_stats, long_turns)},
		{"nebulaio_reactor_sleeps_total", "Times that the event loop slept.",
			offsetof(struct reactor_stats, sleeps)},
		{"nebulaio_reactor_busy_nanoseconds_total", "Time spent in turns that did work.",
			offsetof(struct reactor_stats, busy_ns)},
		{"nebulaio_reactor_fiber_switches_total", "Switches to a fiber.",
			offsetof(struct reactor_stats, fiber_switches)},
		{"nebulaio_reactor_messages_total", "Messages from other threads.",
			offsetof(struct reactor_stats, messages)},
		{"nebulaio_reactor_idle_spin_nanoseconds",
			"How long the event loop spins without work before it sleeps, now.",
			offsetof(struct reactor_stats, idle_spin_ns)},
		{"nebulaio_reactor_spin_changes_total",
			"Changes of how long the event loop spins, by the waits between requests.",
			offsetof(struct reactor_stats, spin_changes)},
		{"nebulaio_reactor_crowded_total",
			"Times that the event loop had to spin less because others needed its "
			"processor.",
			offsetof(struct reactor_stats, spin_crowded)},
	};

	for (size_t f = 0; f < ARRAY_LEN(FIELDS); f++) {
		metric_head(out, FIELDS[f].name, FIELDS[f].help);
		for (uint32_t i = 0; i < count; i++) {
			struct reactor_stats stats;
			uint64_t value;
			char labels[32];

			reactor_stats(reactors[i], &stats);
			memcpy(&value, (const char *)&stats + FIELDS[f].offset, sizeof(value));
			snprintf(labels, sizeof(labels), "core=\"%u\"", i);
			metric_line(out, FIELDS[f].name, labels, value);
		}
	}
}

/* The program's version, in labels; the value is always 1. */
static void put_build(struct buf *out)
{
	metric_head(out, "nebulaio_build_info", "The program's version and its compiler.");
	metric_line(out, "nebulaio_build_info",
		"version=\"" NEBULAIO_VERSION "\",compiler=\"" COMPILER "\",arch=\"" ARCH "\"", 1);
}

void admin_counters(struct buf *out)
{
	put_build(out);
	admin_process_metrics(out);
	put_counters(out);
	put_hists(out);
}

void admin_metrics(const struct admin_opts *opts, struct buf *out)
{
	admin_counters(out);
	put_region(opts, out);
	put_rings(opts->region, out);
	put_store(opts, out);
	admin_bucket_metrics(opts, out);
	admin_replication_metrics(opts, out);
	put_volumes(opts, out);
	admin_reactors(opts->reactors, opts->reactor_count, out);
}
