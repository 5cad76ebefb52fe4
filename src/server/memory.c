/* server/memory.c: grows the region by an extension, and shrinks it by one; sets the size of the
 * cache in it.
 *
 * Growing: the memory is taken, each core registers it with its rings and devices, and only then
 * are frames of it leased. A refusal anywhere undoes what was done before it. Shrinking goes back
 * the same way, and in between waits for the leases: no device forgets memory that a lease could
 * still use (docs/design/region.md). */
#include "server/memory.h"

#include <errno.h>
#include <stdio.h>

#define TICK_NS	       (1 * NS_PER_S)
#define POLL_NS_MIN    (2 * NS_PER_MS)
#define POLL_NS_MAX    (500 * NS_PER_MS)
#define SHRINK_WAIT_NS (10 * NS_PER_S)
#define RETRY_NS       (10 * NS_PER_MS)

#define CHANGES	     "nebulaio_region_changes_total"
#define CHANGES_HELP "Extensions of the memory region by what happened to them."
DEFINE_COUNTER(grown_total, CHANGES, "change=\"grown\"", CHANGES_HELP);
DEFINE_COUNTER(shrunk_total, CHANGES, "change=\"shrunk\"", CHANGES_HELP);
DEFINE_COUNTER(refused_total, CHANGES, "change=\"refused\"", CHANGES_HELP);
DEFINE_COUNTER(share_changes, "nebulaio_store_cache_changes_total", NULL,
	"Changes of the cache's size because of the load.");
DEFINE_COUNTER(register_ns_total, "nebulaio_region_register_nanoseconds_total", NULL,
	"Time in which cores registered extensions with rings and devices.");

/* ---- All cores. ---- */

struct errand {
	struct flow_core *flow;
	uint32_t arena_idx;
	int ret;
};

static void core_attach(void *arg)
{
	struct errand *errand = arg;
	uint64_t start_ns = clock_now_ns();

	errand->ret = region_watches_attach(errand->flow->ring, errand->arena_idx);
	counter_add(&register_ns_total, clock_now_ns() - start_ns);
}

static void core_detach(void *arg)
{
	struct errand *errand = arg;

	region_watches_detach(errand->flow->ring, errand->arena_idx);
}

static void core_call_in(void *arg)
{
	struct errand *errand = arg;

	flow_loans_call_in(errand->flow);
}

/* Runs fn on each core, until one fails. */
static int cores_run(struct memory *memory, fiber_fn *fn, uint32_t arena_idx)
{
	int ret = 0;

	for (uint32_t i = 0; i < memory->core_count && !ret; i++) {
		struct errand errand = {.flow = memory->flows[i], .arena_idx = arena_idx};

		ret = fiber_run_on(errand.flow->reactor, "memory", fn, &errand);
		ret = ret ? ret : errand.ret;
	}
	return ret;
}

/* Each core must forget the memory before it goes. A core may be out of fibers. */
static void cores_detach(struct memory *memory, uint32_t arena_idx)
{
	while (cores_run(memory, core_detach, arena_idx))
		fiber_sleep_ns(RETRY_NS);
}

/* ---- Work for a helper thread. ---- */

struct task {
	const struct memory_opts *opts;
	uint32_t arena_idx;
	uint64_t cache_bytes;
	char *why;
	int ret;
};

static void commit_run(void *arg)
{
	struct task *task = arg;

	task->ret = region_extension_commit(
		task->opts->region, task->arena_idx, task->why, MEMORY_WHY_BYTES);
}

static void park_run(void *arg)
{
	struct task *task = arg;

	region_extension_park(task->opts->region, task->arena_idx);
}

static void resize_run(void *arg)
{
	struct task *task = arg;

	store_cache_resize(task->opts->store, task->cache_bytes);
}

static void vacate_run(void *arg)
{
	struct task *task = arg;
	struct region_arena arena = region_arena(task->opts->region, task->arena_idx);

	store_cache_vacate(task->opts->store, arena.base, arena.bytes);
}

/* ---- Looking. ---- */

static uint32_t count_in(const struct memory *memory, enum region_arena_state state)
{
	const struct region *region = memory->opts.region;
	uint32_t count = 0;

	for (uint32_t i = region_extension_first(region); i < region_arena_count(region); i++)
		count += region_extension_state(region, i) == state;
	return count;
}

/* The first extension in that state; 0, which is no extension: there is none. */
static uint32_t first_in(const struct memory *memory, enum region_arena_state state)
{
	const struct region *region = memory->opts.region;

	for (uint32_t i = region_extension_first(region); i < region_arena_count(region); i++)
		if (region_extension_state(region, i) == state)
			return i;
	return 0;
}

/* The open extension of which least is leased: it is soonest empty. */
static uint32_t emptiest(const struct memory *memory)
{
	struct region *region = memory->opts.region;
	uint32_t found = 0, least = UINT32_MAX;

	for (uint32_t i = region_extension_first(region); i < region_arena_count(region); i++) {
		uint32_t leased;

		if (region_extension_state(region, i) != ARENA_OPEN)
			continue;
		leased = region_extension_leased(region, i);
		if (leased <= least) {
			least = leased;
			found = i;
		}
	}
	return found;
}

/* The cache's share of what is there now. */
uint64_t memory_cache_bytes(const struct memory *memory)
{
	const struct config *config = memory->opts.config;
	uint64_t more = count_in(memory, ARENA_OPEN) * region_extension_bytes(memory->opts.region);
	uint64_t preset = config_cache_bytes(config), most;

	if (config->memory.cache_bytes != CONFIG_AUTO)
		return preset;
	preset += more / 2;
	most = (config->memory.bytes + more) / 4 * 3;
	most -= MIN(config->memory.buckets_bytes, most);
	return MAX(preset, MIN(preset + preset / 8 * memory->share.eighths, most));
}

static void cache_follow(struct memory *memory)
{
	struct task task = {.opts = &memory->opts, .cache_bytes = memory_cache_bytes(memory)};

	fiber_offload(resize_run, &task);
}

static uint64_t bytes_now(const struct memory *memory)
{
	return memory->opts.config->memory.bytes +
	       count_in(memory, ARENA_OPEN) * region_extension_bytes(memory->opts.region);
}

/* ---- One extension. ---- */

static int extension_take(struct memory *memory, uint32_t arena_idx, char *ret_why)
{
	struct region *region = memory->opts.region;
	struct task task = {.opts = &memory->opts, .arena_idx = arena_idx, .why = ret_why};
	int ret;

	fiber_offload(commit_run, &task);
	if (task.ret)
		return task.ret;
	ret = cores_run(memory, core_attach, arena_idx);
	if (!ret) {
		region_extension_open(region, arena_idx);
		return 0;
	}
	snprintf(ret_why, MEMORY_WHY_BYTES, "a ring or a device does not register the memory: %s%s",
		strerror(-ret),
		ret == -ENOMEM ? "; raise the limit of locked memory (ulimit -l, LimitMEMLOCK= in "
				 "systemd)"
			       : "");
	region_extension_detach(region, arena_idx);
	cores_detach(memory, arena_idx);
	fiber_offload(park_run, &task);
	return ret;
}

static int grow_one(struct memory *memory, char *ret_why)
{
	uint32_t arena_idx = first_in(memory, ARENA_RETIRED);
	int ret = 0;

	if (arena_idx) {
		region_extension_open(memory->opts.region, arena_idx);
	} else {
		arena_idx = first_in(memory, ARENA_PARKED);
		ret = arena_idx ? extension_take(memory, arena_idx, ret_why) : -ENOSPC;
		if (!arena_idx)
			snprintf(ret_why, MEMORY_WHY_BYTES,
				"the region has all that memory.bytes_max allows");
	}
	counter_add(ret ? &refused_total : &grown_total, 1);
	if (ret)
		return ret;
	cache_follow(memory);
	log_info("server", "the memory region grew to %llu MiB",
		(unsigned long long)(bytes_now(memory) / MIB));
	return 0;
}

/* Frees what of a retired extension may be freed at once. */
static void press(struct memory *memory, uint32_t arena_idx)
{
	struct task task = {.opts = &memory->opts, .arena_idx = arena_idx};

	fiber_offload(vacate_run, &task);
	(void)cores_run(memory, core_call_in, arena_idx);
}

/* Gives up a retired extension without leases; false: there are some. */
static bool extension_give(struct memory *memory, uint32_t arena_idx)
{
	struct task task = {.opts = &memory->opts, .arena_idx = arena_idx};

	if (region_extension_leased(memory->opts.region, arena_idx))
		return false;
	region_extension_detach(memory->opts.region, arena_idx);
	cores_detach(memory, arena_idx);
	fiber_offload(park_run, &task);
	counter_add(&shrunk_total, 1);
	log_info("server", "the memory region shrank to %llu MiB",
		(unsigned long long)(bytes_now(memory) / MIB));
	return true;
}

static int shrink_one(struct memory *memory, char *ret_why)
{
	struct region *region = memory->opts.region;
	uint32_t arena_idx = first_in(memory, ARENA_RETIRED);
	uint64_t deadline_ns = clock_now_ns() + SHRINK_WAIT_NS, poll_ns = POLL_NS_MIN;

	if (!arena_idx) {
		arena_idx = emptiest(memory);
		if (!arena_idx) {
			snprintf(ret_why, MEMORY_WHY_BYTES,
				"the region has no more than memory.bytes");
			return -ENOSPC;
		}
		region_extension_retire(region, arena_idx);
		cache_follow(memory);
	}
	for (;;) {
		press(memory, arena_idx);
		if (extension_give(memory, arena_idx))
			return 0;
		if (clock_now_ns() >= deadline_ns || *memory->opts.draining)
			break;
		fiber_sleep_ns(poll_ns);
		poll_ns = MIN(2 * poll_ns, POLL_NS_MAX);
	}
	snprintf(ret_why, MEMORY_WHY_BYTES,
		"%u frames of 4 KiB are still in use: their memory goes when the transfers that "
		"have them end; to keep it, grow the region",
		region_extension_leased(region, arena_idx));
	log_warn("server", "the memory region shrinks: %s", ret_why);
	return -ENOBUFS;
}

/* ---- Changes. ---- */

static int change(struct memory *memory, uint64_t bytes,
	int (*one)(struct memory *memory, char *ret_why), char *ret_why)
{
	uint64_t step = region_extension_bytes(memory->opts.region);
	uint64_t count = step ? MAX((bytes + step - 1) / step, 1) : 0;
	int ret = count ? 0 : -ENOSPC;

	ret_why[0] = '\0';
	if (memory->changing || memory->stopping) {
		snprintf(ret_why, MEMORY_WHY_BYTES, "another change of the region is in progress");
		return -EBUSY;
	}
	if (ret)
		snprintf(ret_why, MEMORY_WHY_BYTES,
			"the region keeps its size: memory.bytes_max allows no extension");
	memory->changing = true;
	for (uint64_t i = 0; i < count && !ret && !memory->stopping; i++)
		ret = one(memory, ret_why);
	memory->changing = false;
	if (memory->stopper)
		fiber_wake(memory->stopper);
	return ret;
}

int memory_grow(struct memory *memory, uint64_t bytes, char ret_why[MEMORY_WHY_BYTES])
{
	return change(memory, bytes, grow_one, ret_why);
}

int memory_shrink(struct memory *memory, uint64_t bytes, char ret_why[MEMORY_WHY_BYTES])
{
	return change(memory, bytes, shrink_one, ret_why);
}

/* ---- By itself. ---- */

static bool cache_is_full(const struct memory *memory)
{
	uint64_t most = memory_cache_bytes(memory);
	struct store_usage store;

	store_usage(memory->opts.store, &store);
	return most && store.cache_bytes >= most - most / 16;
}

/* True when transfers found no frames since the last call. */
static bool frames_lacked(const struct memory *memory, uint64_t *seen)
{
	struct region_usage usage;
	bool lacked;

	region_usage(memory->opts.region, &usage);
	lacked = usage.lease_failures != *seen;
	*seen = usage.lease_failures;
	return lacked;
}

static bool more_is_wanted(struct memory *memory)
{
	return frames_lacked(memory, &memory->failures_seen) || cache_is_full(memory);
}

static void share_follow(struct memory *memory)
{
	bool refused = frames_lacked(memory, &memory->failures_judged);

	if (!cache_share_judge(&memory->share, cache_is_full(memory), refused, clock_now_ns()))
		return;
	counter_add(&share_changes, 1);
	cache_follow(memory);
}

static void adapt(struct memory *memory)
{
	uint64_t now_ns = clock_now_ns();
	struct pressure_sample sample;
	enum pressure_verdict verdict;
	char why[MEMORY_WHY_BYTES];
	int ret;

	pressure_read(memory->opts.root, &sample);
	verdict = pressure_judge(&memory->pressure, &sample,
		region_extension_bytes(memory->opts.region), more_is_wanted(memory), now_ns);
	if (verdict == PRESSURE_STAY ||
		(verdict == PRESSURE_SHRINK && !first_in(memory, ARENA_OPEN)) ||
		(verdict == PRESSURE_GROW && !first_in(memory, ARENA_PARKED)))
		return;
	if (verdict == PRESSURE_SHRINK)
		log_info("server",
			"memory is scarce (%u.%02u %% of the last 10 s stalled, %llu MiB free): "
			"the region gives some back",
			sample.stalled_centi / 100, sample.stalled_centi % 100,
			(unsigned long long)(sample.free_bytes / MIB));
	ret = verdict == PRESSURE_GROW ? memory_grow(memory, 0, why)
				       : memory_shrink(memory, 0, why);
	pressure_changed(&memory->pressure, verdict, now_ns);
	if (ret && verdict == PRESSURE_GROW && !memory->refusal_told)
		log_warn("server", "the memory region cannot grow: %s", why);
	memory->refusal_told = ret && verdict == PRESSURE_GROW;
}

static void ticker_main(void *arg)
{
	struct memory *memory = arg;

	memory->ticker = fiber_self();
	while (!memory->stopping) {
		uint32_t retired = first_in(memory, ARENA_RETIRED);

		if (retired && !memory->changing) {
			memory->changing = true;
			press(memory, retired);
			extension_give(memory, retired);
			memory->changing = false;
		} else if (memory->opts.config->memory.adapt && !memory->changing) {
			adapt(memory);
		}
		if (config_tunes_cache(memory->opts.config) && !memory->changing)
			share_follow(memory);
		if (!memory->stopping)
			fiber_park_until(clock_now_ns() + TICK_NS);
	}
	memory->ticker = NULL;
	if (memory->stopper)
		fiber_wake(memory->stopper);
}

void memory_init(struct memory *memory, const struct memory_opts *opts)
{
	*memory = (struct memory){.opts = *opts};
}

void memory_core_add(struct memory *memory, struct flow_core *flow)
{
	CHECK(memory->core_count < LIMIT_CORES_MAX);
	memory->flows[memory->core_count++] = flow;
}

int memory_start(struct memory *memory)
{
	if (!region_extension_count(memory->opts.region) &&
		!config_tunes_cache(memory->opts.config))
		return 0;
	return fiber_spawn(memory->flows[0]->reactor, "memory", ticker_main, memory);
}

void memory_stop(struct memory *memory)
{
	memory->stopping = true;
	memory->stopper = fiber_self();
	if (memory->ticker)
		fiber_wake(memory->ticker);
	while (memory->ticker || memory->changing)
		fiber_park();
	memory->stopper = NULL;
}

/* ---- Operators. ---- */

static void put_states(const struct memory *memory, struct buf *out)
{
	struct region *region = memory->opts.region;
	const char *comma = "";

	buf_put_str(out, ",\"extensions\":[");
	for (uint32_t i = region_extension_first(region); i < region_arena_count(region); i++) {
		enum region_arena_state state = region_extension_state(region, i);
		uint32_t leased = state == ARENA_OPEN || state == ARENA_RETIRED
					  ? region_extension_leased(region, i)
					  : 0;

		buf_printf(out, "%s{\"arena\":%u,\"state\":\"%s\",\"leased_bytes\":%llu}", comma, i,
			region_arena_state_name(state), (unsigned long long)leased * FRAME_BYTES);
		comma = ",";
	}
	buf_put_str(out, "]}");
}

static int put_region(const struct memory *memory, struct buf *out)
{
	const struct config *config = memory->opts.config;
	const struct region *region = memory->opts.region;
	uint64_t step = region_extension_bytes(region);

	buf_printf(out,
		"{\"bytes\":%llu,\"bytes_min\":%llu,\"bytes_max\":%llu,\"extension_bytes\":%llu,"
		"\"retired_bytes\":%llu,\"cache_bytes_max\":%llu,\"adapts\":%s",
		(unsigned long long)bytes_now(memory), (unsigned long long)config->memory.bytes,
		(unsigned long long)(config->memory.bytes + region_extension_count(region) * step),
		(unsigned long long)step,
		(unsigned long long)(count_in(memory, ARENA_RETIRED) * step),
		(unsigned long long)memory_cache_bytes(memory),
		step && config->memory.adapt ? "true" : "false");
	put_states(memory, out);
	return out->failed ? -ENOMEM : 0;
}

/* The bytes behind "NAME" or "NAME/BYTES"; false: another path. */
static bool is_change(struct slice path, struct slice name, uint64_t *ret_bytes)
{
	if (!slice_starts(path, name))
		return false;
	if (path.len == name.len) {
		*ret_bytes = 0;
		return true;
	}
	return path.data[name.len] == '/' &&
	       slice_to_u64(slice_from(path, name.len + 1), ret_bytes) == 0;
}

int memory_tell(struct memory *memory, enum s3_method method, struct slice path, struct buf *out)
{
	char why[MEMORY_WHY_BYTES];
	uint64_t bytes;
	int ret;

	if (method == S3_GET && slice_eq(path, SLICE("region")))
		return put_region(memory, out);
	if (method == S3_POST && is_change(path, SLICE("region/grow"), &bytes))
		ret = memory_grow(memory, bytes, why);
	else if (method == S3_POST && is_change(path, SLICE("region/shrink"), &bytes))
		ret = memory_shrink(memory, bytes, why);
	else
		return -ENOENT;
	if (!ret)
		return put_region(memory, out);
	buf_put_str(out, why);
	return -EINVAL;
}
