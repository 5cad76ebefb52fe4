/* store/store.c: the life of a store: open (recovers) → attach each reactor → run → quiesce →
 * close. */
#include "base/file.h"
#include "store/check/set_change.h"
#include "store/backup/session.h"
#include "store/call/call.h"
#include "store/ends/ends.h"
#include "store/store_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct store_engine LOCAL_ENGINE = {
	.name = "local",
	.local = true,
	.bucket_id_reserve = local_bucket_id_reserve,
	.bucket_create = either_bucket_create,
	.bucket_get = local_bucket_get,
	.bucket_delete = local_bucket_delete,
	.bucket_edit = local_bucket_edit,
	.bucket_list = local_bucket_list,
	.bucket_usage = either_bucket_usage,
	.bucket_room = either_bucket_room,
	.put_open = local_put_open,
	.put_sink = local_put_sink,
	.put_tagged = local_put_tagged,
	.put_compose = local_put_compose,
	.put_append = local_put_append,
	.put_commit = local_put_commit,
	.put_abort = local_put_abort,
	.rename = either_rename,
	.edit = either_edit,
	.set_flags = either_set_flags,
	.get_open = local_get_open,
	.newest = either_newest,
	.get_source = local_get_source,
	.get_held = local_get_held,
	.get_stretch = local_get_stretch,
	.get_tag = local_get_tag,
	.get_close = local_get_close,
	.rights_epoch = local_rights_epoch,
	.object_watch_begin = local_object_watch_begin,
	.object_watch_end = local_object_watch_end,
	.rights_changed = either_rights_changed,
	.delete_each = either_delete_each,
	.outbox_visit = local_outbox_visit,
	.outbox_end = local_outbox_end,
	.list = either_list,
	.usage = either_usage,
};

static int dir_make(const char *path)
{
	if (mkdir(path, 0700))
		return errno == EEXIST ? 0 : -errno;
	return file_parent_sync(path);
}

/* Makes the directory and its parents. */
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

/* Creates the parts of a running store that are not stored on disk. */
static int store_start(struct store *store, struct region *region)
{
	int ret;

	store->region = region;
	ret = record_table_open(store, store->opts.record_table_bytes_max, &store->records);
	if (!ret)
		ret = list_table_open(store->opts.list_table_bytes_max, &store->listed);
	if (!ret && store->opts.cache_bytes_max)
		ret = cache_open(region, store->opts.cache_bytes_max, &store->cache);
	if (!ret)
		ret = disk_target(store->volume.disk, region, &store->target);
	if (!ret)
		ret = memory_buckets_start(store);
	if (!ret)
		ret = index_apply_start(store);
	return ret;
}

int store_open(const struct store_opts *opts, struct region *region, struct store **ret_store)
{
	struct store *store = store_alloc(opts);
	int ret;

	if (!store)
		return -ENOMEM;
	store->head.engine = &LOCAL_ENGINE;
	index_apply_init(store->apply);
	ret = slice_copy_str(slice_str(opts->dir), store->dir, sizeof(store->dir));
	if (!ret)
		ret = dirs_make(opts->dir);
	if (!ret)
		ret = store_load(store, true);
	if (!ret && store->volume.set_count)
		ret = set_change_open(store);
	if (!ret && snapshot_read(store))
		ret = recover_scan(store);
	if (!ret && store->image->on) {
		image_take(store);
		ret = index_apply_begin(store);
	}
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
	return store->committer->reactor ? 0 : committer_open(store, reactor);
}

static void checkpoint_run(void *arg)
{
	struct store *store = (struct store *)arg;

	if (index_apply_checkpoint_now(store))
		log_warn("store", "%s: no checkpoint at shutdown: the next start replays the log",
			store->dir);
}

void store_quiesce(struct store *store)
{
	atomic_store(&store->quiescing, true);
	if (store->array_monitor)
		fiber_wake(store->array_monitor);
	if (store->scrubber)
		fiber_wake(store->scrubber);
	if (store->memory_expirer)
		fiber_wake(store->memory_expirer);
	backups_wake(store);
	/* The fiber may be waiting for a volume. */
	while (store->discarder) {
		fiber_wake(store->discarder);
		fiber_sleep_ns(NS_PER_MS);
	}
	/* It may be taking a volume back, for which it asks every reactor, and needs the
	 * committer. */
	while (store->array_monitor)
		fiber_sleep_ns(NS_PER_MS);
	committer_end(store);
	grow_quiesce(store);
	/* The failure of the index was logged. The log has everything, and the next start replays
	 * it. */
	(void)index_apply_wait(store, atomic_load(&store->committer->published_seq));
	fiber_offload_long(checkpoint_run, store);
}

void store_close(struct store *store)
{
	bool clean;

	if (!store)
		return;
	clean = store->apply->started && !atomic_load(&store->fenced) &&
		(store->committer->ended || !store->committer->reactor);
	index_apply_stop(store);
	clean = clean && !store->apply->failed;
	backups_close(store);
	/* If the next start replays the group, it does not use the snapshot. */
	if (atomic_load(&store->group_held))
		space_let_go(store->space);
	/* After the last reference to a dead object is dropped, the snapshot counts its space as
	 * free. */
	record_table_close(store->records);
	list_table_close(store->listed);
	/* The snapshot has only the blocks that the index names. */
	image_give(store);
	/* Each start looks through a damaged index again, and tells, until it is mended: only so
	 * are the blocks known that two rows name. */
	if (clean && !store->index_suspect && snapshot_write(store))
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
	set_change_close(store);
	store_unload(store);
}

uint32_t store_cache_shrink(struct store *store, uint32_t frames, bool lasting)
{
	return store->cache ? cache_shrink(store->cache, frames, lasting) : 0;
}

void store_cache_resize(struct store *store, uint64_t bytes_max)
{
	if (store->cache)
		cache_resize(store->cache, bytes_max);
}

void store_cache_vacate(struct store *store, const uint8_t *data, uint64_t bytes)
{
	if (store->cache)
		cache_vacate(store->cache, data, bytes);
}

uint64_t store_id(const struct store *store)
{
	uint64_t id;

	memcpy(&id, store->volume.super.uuid, sizeof(id));
	return id ? id : 1;
}

int store_protected(const struct store *store)
{
	if (!store->head.engine->local || !store->image->on)
		return -1;
	return !atomic_load(&store->image->due);
}

uint64_t store_index_jobs(const struct store *store)
{
	return store->head.engine->local ? index_jobs(store->index) : 0;
}

uint64_t store_list_bytes(const struct store *store)
{
	return store->head.engine->local ? list_table_bytes(store->listed) : 0;
}

int store_keep(struct store *store, const char *name, struct slice text)
{
	int ret;

	if (store_protected(store) < 0)
		return -ENOTSUP;
	ret = image_keep(store->image, name, text);
	if (ret)
		return ret;
	atomic_store(&store->image->due, true);
	return index_apply_checkpoint_now(store);
}

int store_kept(struct store *store, const char *name, struct buf *out)
{
	struct image *image = store->image;
	int at;

	if (store_protected(store) < 0)
		return -ENOENT;
	pthread_mutex_lock(&image->lock);
	at = image_kept_find(image, name);
	if (at >= 0)
		buf_put(out, image->kept[at].text, image->kept[at].bytes);
	pthread_mutex_unlock(&image->lock);
	return at < 0 ? -ENOENT : out->failed ? -ENOMEM : 0;
}
