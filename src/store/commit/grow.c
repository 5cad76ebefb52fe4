/* store/commit/grow.c: space on the volume: leases runs from the allocator, and grows the file when
 * it runs low. Growing prewrites the new space, which takes a while, so a fiber does it ahead of
 * need. Only a caller that finds no space at all waits. */
#include "reactor/waiter.h"
#include "store/commit/body.h"
#include "store/commit/committer.h"
#include "store/commit/index_apply.h"
#include "store/object/cache.h"
#include "store/space/space.h"
#include "store/state/state.h"
#include "store/table/table.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

DEFINE_COUNTER_FULL(volume_full, "volume");

/* The volume grows ahead of need when less than this part of a step is free. */
#define AHEAD_PART	 2u
#define LOOK_INTERVAL_NS NS_PER_S
#define FULL_TOLD_NS	 (60 * NS_PER_S) /* shortest interval between two log messages */
/* A run, or a part of a small body, that is shorter than this part of the request is taken only
 * when the volume cannot grow. */
#define SHORT_PART   8u
#define WHOLE_BLOCKS (STORE_GROUPED_BYTES_MAX / BLOCK_BYTES)
/* How long a put waits for space that backups hold, and how often it looks. */
#define UNHELD_WAIT_NS (5 * NS_PER_S)
#define UNHELD_LOOK_NS (10 * NS_PER_MS)

struct growth {
	struct store *store;
	int ret;
};

/* The reserve is touched on the file system of the data folder, or of a volume. */
enum space_low { SPACE_ENOUGH, SPACE_LOW_FOLDER, SPACE_LOW_VOLUME };

static enum space_low space_look(const struct store *store)
{
	if (space_file_system_free(store) < store->opts.reserve_bytes)
		return SPACE_LOW_FOLDER;
	/* A write into a hole takes space of the file system, which must not run out. */
	if (store->opts.discard_files && !disk_room(store->volume.disk, store->opts.reserve_bytes))
		return SPACE_LOW_VOLUME;
	return SPACE_ENOUGH;
}

int grow_check(struct store *store)
{
	static const char *const WHOSE[] = {
		[SPACE_LOW_FOLDER] = "data folder", [SPACE_LOW_VOLUME] = "volume"};
	uint64_t now = clock_now_ns();
	uint64_t looked = atomic_load_explicit(&store->space_looked_ns, memory_order_relaxed);
	uint32_t low;

	if (now - looked > LOOK_INTERVAL_NS &&
		atomic_compare_exchange_strong(&store->space_looked_ns, &looked, now)) {
		low = space_look(store);
		if (atomic_exchange(&store->space_low, low) != low && low)
			log_warn("store",
				"%s: less than the reserve of %llu bytes is free on the file "
				"system of the %s: the store accepts no more objects until there "
				"is room",
				store->dir, (unsigned long long)store->opts.reserve_bytes,
				WHOSE[low]);
	}
	low = atomic_load_explicit(&store->space_low, memory_order_relaxed);
	if (__builtin_expect(low == SPACE_ENOUGH, 1))
		return 0;
	if (low == SPACE_LOW_FOLDER)
		return store_folder_full();
	counter_add(&volume_full, 1);
	return -ENOSPC;
}

/* On a helper thread. */
static void growth_run(void *arg)
{
	struct growth *growth = (struct growth *)arg;

	growth->ret = space_step(growth->store);
}

/* Waiters look again, and begin the growth that they need. */
void grow_release(struct store *store)
{
	struct waiter *waiters;

	pthread_mutex_lock(&store->grow_lock);
	store->growing = false;
	waiters = store->grow_waiters;
	store->grow_waiters = NULL;
	pthread_mutex_unlock(&store->grow_lock);
	waiters_wake(waiters);
}

static void growth_fiber(void *arg)
{
	struct growth growth = {.store = (struct store *)arg};

	fiber_offload(growth_run, &growth);
	pthread_mutex_lock(&growth.store->grow_lock);
	growth.store->grow_result = growth.ret;
	growth.store->grow_ended_ns = clock_now_ns();
	pthread_mutex_unlock(&growth.store->grow_lock);
	grow_release(growth.store);
}

/* Whether the last refusal is so recent that another attempt is pointless. The lock is held. */
static bool refused_lately(const struct store *store)
{
	return store->grow_result && clock_now_ns() - store->grow_ended_ns < LOOK_INTERVAL_NS;
}

/* Starts a growth unless one is running or was just refused. The lock is held. */
static void growth_start(struct store *store)
{
	if (store->growing || refused_lately(store))
		return;
	store->growing = true;
	store->growth =
		(struct fiber_start){.name = "store growth", .fn = growth_fiber, .arg = store};
	fiber_start_surely(reactor_self(), &store->growth, true);
}

/* The caller holds the lock; this gives it up. */
static void growing_wait(struct store *store)
{
	struct waiter waiter;

	waiter_init(&waiter);
	waiter.next = store->grow_waiters;
	store->grow_waiters = &waiter;
	pthread_mutex_unlock(&store->grow_lock);
	waiter_wait(&waiter);
}

/* Waits for a running growth; -ENOSPC: none is running. */
static int growth_wait(struct store *store)
{
	pthread_mutex_lock(&store->grow_lock);
	growth_start(store);
	if (!store->growing) {
		pthread_mutex_unlock(&store->grow_lock);
		return -ENOSPC;
	}
	growing_wait(store);
	return 0;
}

void grow_quiesce(struct store *store)
{
	pthread_mutex_lock(&store->grow_lock);
	if (store->growing)
		growing_wait(store);
	else
		pthread_mutex_unlock(&store->grow_lock);
}

void grow_hold(struct store *store)
{
	pthread_mutex_lock(&store->grow_lock);
	while (store->growing) {
		growing_wait(store);
		pthread_mutex_lock(&store->grow_lock);
	}
	store->growing = true;
	pthread_mutex_unlock(&store->grow_lock);
}

/* The log informs the operator; the answer informs the client. */
static void full_tell(struct store *store)
{
	uint64_t now = clock_now_ns();
	uint64_t told = atomic_load(&store->full_told_ns);
	struct store_usage usage;

	if ((told && now - told < FULL_TOLD_NS) ||
		!atomic_compare_exchange_strong(&store->full_told_ns, &told, now))
		return;
	local_usage(store, &usage);
	log_error("store",
		"%s: the store is full: %llu of %llu MiB are in use, and its volume cannot grow: "
		"delete objects, enlarge the volume or its file system, or raise "
		"data.volume_bytes_max; until then new objects are refused",
		store->dir, (unsigned long long)(usage.used_bytes / MIB),
		(unsigned long long)(usage.volume_bytes / MIB));
}

/* Whether a run is so much shorter than requested that growing is better. */
static bool too_short(uint32_t leased, uint32_t blocks)
{
	return leased < blocks / SHORT_PART || (leased < blocks && blocks <= WHOLE_BLOCKS);
}

/* Backups give up the space that they hold rather than that a put fails. False: they hold none. */
static bool unheld_wait(struct store *store)
{
	uint64_t until_ns = clock_now_ns() + UNHELD_WAIT_NS;

	if (!atomic_load(&store->backups_open))
		return false;
	atomic_store(&store->backups_unwanted, true);
	while (atomic_load(&store->backups_open) && clock_now_ns() < until_ns)
		fiber_sleep_ns(UNHELD_LOOK_NS);
	return true;
}

static int lease(struct store *store, uint32_t blocks, uint64_t *ret_block, uint32_t *ret_blocks)
{
	uint64_t ahead = store->volume.super.step_bytes / BLOCK_BYTES / AHEAD_PART;
	bool refused = false, settled = false, unheld = false;
	int ret;

	for (;;) {
		uint32_t leased = space_lease(store->space, blocks, ret_block);

		if (leased && (refused || !too_short(leased, blocks))) {
			*ret_blocks = leased;
			if (space_free_blocks(store->space) < ahead) {
				pthread_mutex_lock(&store->grow_lock);
				growth_start(store);
				pthread_mutex_unlock(&store->grow_lock);
			}
			return 0;
		}
		if (refused && settled && disk_gone(store->volume.disk))
			return -EHOSTDOWN;
		if (refused && settled) {
			counter_add(&volume_full, 1);
			full_tell(store);
			return -ENOSPC;
		}
		if (leased)
			space_give(store->space, *ret_block, leased);
		/* The space of recent deletions is free once the index has applied them. */
		if (refused) {
			settled = unheld || !unheld_wait(store);
			unheld = true;
			ret = index_apply_wait_or_full(
				store, atomic_load(&store->committer->published_seq));
			if (ret)
				return ret;
		} else {
			refused = growth_wait(store) != 0;
		}
	}
}

int grow_segment(struct store *store, struct segment *segment, uint32_t blocks, uint64_t *ret_block,
	uint32_t *ret_blocks)
{
	int ret = lease(store, blocks, ret_block, ret_blocks);

	if (ret)
		return ret;
	ret = segment_add(segment, *ret_block, *ret_blocks);
	if (ret)
		space_give(store->space, *ret_block, *ret_blocks);
	return ret;
}

/* The space of bodies, without parity. */
static uint64_t used_bytes(const struct store *store)
{
	const struct disk *disk = store->volume.disk;
	uint64_t bytes = 0;

	if (!store->volume.set_count)
		return space_used_blocks(store->space) * BLOCK_BYTES;
	for (uint32_t g = 0; g < DISK_GEOMETRIES; g++)
		bytes += space_geometry_blocks(store->space, g) * BLOCK_BYTES *
			 disk_array_geometry_data(disk, g);
	return bytes;
}

void local_usage(struct store *store, struct store_usage *ret_usage)
{
	/* An array of volumes holds this many times the data of one volume. */
	uint64_t data = MAX(disk_array_data(store->volume.disk), 1u);
	/* The head goes ahead of the tail, so the tail is read first. */
	uint64_t tail_pos = atomic_load(&store->tail_pos);
	uint64_t head_pos = atomic_load(&store->committer->head_pos);

	*ret_usage = (struct store_usage){
		.volume_bytes = disk_bytes(store->volume.disk) * data,
		.used_bytes = used_bytes(store),
		.free_bytes = space_free_blocks(store->space) * BLOCK_BYTES * data,
		.objects = atomic_load(&store->objects),
		.buckets = buckets_count(store->buckets),
		.cache_bytes = store->cache ? cache_bytes(store->cache) : 0,
		.cache_bytes_max = store->cache ? cache_bytes_max(store->cache) : 0,
		.log_bytes = head_pos - tail_pos,
	};
}
