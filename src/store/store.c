/* store/store.c: a store's life: open (recovers) → attach each reactor → run → quiesce → close. */
#include "base/file.h"
#include "store/store_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define INDEX_CACHE_BYTES_DEFAULT (64 * MIB)

static int dir_make(const char *path)
{
	if (mkdir(path, 0700))
		return errno == EEXIST ? 0 : -errno;
	return file_parent_sync(path);
}

/* Makes the directory and what lies above it. */
static int dirs_make(const char *dir)
{
	int ret = 0;
	char path[4096];

	if (slice_copy_str(slice_str(dir), path, sizeof(path)))
		return -ENAMETOOLONG;
	for (char *at = path + 1; *at && !ret; at++)
		if (*at == '/') {
			*at = 0;
			ret = dir_make(path);
			*at = '/';
		}
	return ret ? ret : dir_make(path);
}

static int dir_lock(struct store *store)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/LOCK", store->dir);
	store->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (store->lock_fd < 0) {
		int error = errno;

		log_error("store", "%s: %s", path, strerror(error));
		return -error;
	}
	if (flock(store->lock_fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	if (errno != EWOULDBLOCK)
		return -errno;
	log_error("store", "%s: another process has this store open", store->dir);
	return -EBUSY;
}

static void opts_default(struct store_opts *opts)
{
	if (!opts->hot_records_bytes_max)
		opts->hot_records_bytes_max = STORE_HOT_BYTES_DEFAULT;
	if (!opts->index_cache_bytes)
		opts->index_cache_bytes = INDEX_CACHE_BYTES_DEFAULT;
	if (opts->inline_bytes_max == 0)
		opts->inline_bytes_max = STORE_INLINE_BYTES_DEFAULT;
	else if (opts->inline_bytes_max == UINT32_MAX)
		opts->inline_bytes_max = 0;
	opts->inline_bytes_max = MIN(opts->inline_bytes_max, STORE_INLINE_BYTES_MAX);
}

/* A new volume beside an old index: the volume was lost or is not mounted. The index is not
 * touched.
 */
static int index_unexpected(const struct store *store)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/index/CURRENT", store->dir);
	if (access(path, F_OK))
		return 0;
	log_error("store",
		"%s: there is an index but no volume: put the volume back; to begin anew, move "
		"this directory away",
		store->dir);
	return -EUCLEAN;
}

/* A store whose creation was cut short has epoch 0: its index is made afresh. */
static int index_prepare(struct store *store)
{
	struct superblock *super = &store->volume.super;
	struct state_record state = {.version = INDEX_VERSION,
		.features = INDEX_FEATURES,
		.data_id_next = 1,
		.bucket_id_next = 1};
	struct index_opts opts = {
		.cache_bytes = store->opts.index_cache_bytes,
		.write_buffer_bytes = MAX(super->log_bytes, 4 * MIB),
		.create = super->epoch == 0,
	};
	char path[4096];
	int ret;

	snprintf(path, sizeof(path), "%s/index", store->dir);
	opts.dir = path;
	if (opts.create) {
		ret = index_destroy(path);
		if (ret)
			return ret;
	}
	ret = index_open(&opts, &store->index);
	if (ret || !opts.create)
		return ret;
	memcpy(state.uuid, super->uuid, sizeof(state.uuid));
	ret = index_state_write(store->index, &state);
	if (!ret)
		ret = index_flush(store->index);
	/* From its first epoch on the volume counts on an index. */
	return ret ? ret : file_dir_sync(store->dir);
}

static void volumes_modes_check(const struct volume *volume)
{
	if (!volume->set_count)
		modes_check_file(volume->path);
	for (uint32_t i = 0; i < volume->set_count; i++)
		modes_check_file(volume->set_paths[i]);
}

/* What only a store that is made can be given. */
static void log_size_check(const struct store *store, bool created)
{
	uint64_t now = store->volume.super.log_bytes, asked = store->opts.log_bytes;

	if (!created && asked && asked != now)
		log_warn("store",
			"the log has %llu KiB since the store was made, and stays so: the %llu KiB "
			"that are configured have no effect",
			(unsigned long long)(now / KIB), (unsigned long long)(asked / KIB));
}

int store_load(struct store *store, bool create)
{
	bool created = false;
	struct volume_opts volume = {
		.dir = store->dir,
		.path = store->opts.volume,
		.format = store->opts.format,
		.discard_files = store->opts.discard_files,
		.erasure_data = store->opts.erasure_data,
		.erasure_parity = store->opts.erasure_parity,
		.faults = store->opts.disk_faults,
		.log_bytes = store->opts.log_bytes,
		.step_bytes = store->opts.step_bytes,
		.create = create,
		.ret_created = &created,
	};
	int ret = dir_lock(store);

	if (!ret)
		modes_check(store->dir);
	if (!ret)
		ret = volume_locate(&volume, &store->volume);
	if (!ret && volume_missing(&store->volume))
		ret = index_unexpected(store);
	if (!ret)
		ret = volume_open(&volume, &store->volume);
	if (!ret) {
		volumes_modes_check(&store->volume);
		log_size_check(store, created);
	}
	if (!ret)
		ret = index_prepare(store);
	if (!ret)
		ret = recover_replay(store);
	if (!ret)
		ret = snapshot_size_check(store);
	if (!ret && store->opts.volume && store->opts.volume[0])
		ret = volume_link(store->dir, &store->volume);
	if (!ret)
		ret = buckets_open(&store->buckets);
	if (!ret)
		ret = recover_buckets(store);
	if (!ret)
		ret = space_open(store->volume.super.data_offset / BLOCK_BYTES,
			disk_bytes(store->volume.disk) / BLOCK_BYTES, &store->space);
	if (!ret)
		space_stripe(store->space, disk_array_data(store->volume.disk));
	return ret;
}

void store_unload(struct store *store)
{
	index_close(store->index);
	buckets_close(store->buckets);
	space_close(store->space);
	volume_close(&store->volume);
	if (store->lock_fd >= 0)
		close(store->lock_fd);
	pthread_mutex_destroy(&store->grow_lock);
	pthread_mutex_destroy(&store->watch_lock);
	rebuild_noted_fini(&store->noted);
	free(store);
}

struct store *store_alloc(const struct store_opts *opts)
{
	struct store *store = (struct store *)calloc(1, sizeof(*store));

	if (!store)
		return NULL;
	store->opts = *opts;
	store->lock_fd = -1;
	atomic_store(&store->regains, 1);
	opts_default(&store->opts);
	pthread_mutex_init(&store->grow_lock, NULL);
	pthread_mutex_init(&store->watch_lock, NULL);
	rebuild_noted_init(&store->noted);
	list_init(&store->watches);
	return store;
}

/* What a running store has beyond what is on disk. */
static int store_start(struct store *store, struct region *region)
{
	int ret;

	store->region = region;
	ret = hot_open(store, store->opts.hot_records_bytes_max, &store->hot);
	if (!ret && store->opts.cache_bytes_max)
		ret = cache_open(region, store->opts.cache_bytes_max, &store->cache);
	if (!ret)
		ret = disk_target(store->volume.disk, region, &store->target);
	if (!ret)
		ret = applier_start(store);
	return ret;
}

int store_open(const struct store_opts *opts, struct region *region, struct store **ret_store)
{
	struct store *store = store_alloc(opts);
	int ret;

	if (!store)
		return -ENOMEM;
	applier_init(&store->applier);
	ret = slice_copy_str(slice_str(opts->dir), store->dir, sizeof(store->dir));
	if (!ret)
		ret = dirs_make(opts->dir);
	if (!ret)
		ret = store_load(store, true);
	if (!ret && snapshot_read(store))
		ret = recover_scan(store);
	if (!ret)
		ret = store_start(store, region);
	if (ret) {
		store_close(store);
		return ret;
	}
	log_info("store", "%s: the volume is %s: %s", store->dir, store->volume.path,
		disk_describe(store->volume.disk));
	log_info("store", "%s: open: %u buckets, %llu objects, %llu of %llu MiB in use", store->dir,
		buckets_count(store->buckets), (unsigned long long)atomic_load(&store->objects),
		(unsigned long long)(space_used_blocks(store->space) * BLOCK_BYTES / MIB),
		(unsigned long long)(disk_bytes(store->volume.disk) / MIB));
	*ret_store = store;
	return 0;
}

int store_attach(struct store *store, struct reactor *reactor)
{
	struct store_core *core = &store->cores[reactor_core_idx(reactor)];
	int ret;

	CHECK(!core->reactor);
	ret = disk_attach(store->volume.disk, reactor, store->region);
	if (ret)
		return ret;
	core->reactor = reactor;
	return store->committer.reactor ? 0 : committer_open(store, reactor);
}

static void checkpoint_run(void *arg)
{
	struct store *store = (struct store *)arg;

	if (applier_checkpoint_now(store))
		log_warn("store", "%s: no checkpoint at shutdown: the next start replays the log",
			store->dir);
}

void store_quiesce(struct store *store)
{
	atomic_store(&store->quiescing, true);
	if (store->watcher)
		fiber_wake(store->watcher);
	if (store->scrubber)
		fiber_wake(store->scrubber);
	/* It may be waiting for a volume. */
	while (store->discarder) {
		fiber_wake(store->discarder);
		fiber_sleep_ns(NS_PER_MS);
	}
	committer_end(store);
	/* A failed index was logged; the log has everything, and the next start replays it. */
	(void)applier_wait(store, atomic_load(&store->committer.published_seq));
	fiber_offload_long(checkpoint_run, store);
}

void store_close(struct store *store)
{
	bool clean;

	if (!store)
		return;
	clean = store->applier.started && !atomic_load(&store->fenced) &&
		(store->committer.ended || !store->committer.reactor);
	applier_stop(store);
	/* After the last reference to a dead object is gone: its space is free in the snapshot. */
	hot_close(store->hot);
	if (clean && snapshot_write(store))
		log_warn("store",
			"%s: no snapshot of the space in use: the next start reads the "
			"index instead",
			store->dir);
	cache_close(store->cache);
	for (uint32_t i = 0; i < LIMIT_CORES_MAX; i++)
		while (store->cores[i].free_gets) {
			struct store_get *get = store->cores[i].free_gets;

			store->cores[i].free_gets = get->next_free;
			free(get);
		}
	store_unload(store);
}

void store_find(const struct store *store, const char *fmt, ...)
{
	char text[2048 + 3 * sizeof(store->dir)];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (store->findings)
		buf_printf(store->findings, "%s\n", text);
	else
		log_error("store", "%s", text);
}

void store_fence(struct store *store, const char *what, int error)
{
	if (error == -EHOSTDOWN) {
		stripe_suspend(store);
		return;
	}
	if (atomic_exchange(&store->fenced, true))
		return;
	log_error("store",
		"%s: %s failed (%s): the store takes no more writes; what is stored can "
		"still be read",
		store->dir, what, strerror(-error));
	disk_fence(store->volume.disk);
}

void store_usage(struct store *store, struct store_usage *ret_usage)
{
	/* Several volumes hold so many times what one does. */
	uint64_t data = MAX(disk_array_data(store->volume.disk), 1u);

	*ret_usage = (struct store_usage){
		.volume_bytes = disk_bytes(store->volume.disk) * data,
		.used_bytes = space_used_blocks(store->space) * BLOCK_BYTES * data,
		.free_bytes = space_free_blocks(store->space) * BLOCK_BYTES * data,
		.objects = atomic_load(&store->objects),
		.buckets = buckets_count(store->buckets),
		.cache_bytes = store->cache ? cache_bytes(store->cache) : 0,
		.log_bytes = store->volume.super.log_bytes,
	};
}

uint32_t store_cache_shrink(struct store *store, uint32_t frames)
{
	return store->cache ? cache_shrink(store->cache, frames) : 0;
}

uint64_t store_id(const struct store *store)
{
	uint64_t id;

	memcpy(&id, store->volume.super.uuid, sizeof(id));
	return id ? id : 1;
}
