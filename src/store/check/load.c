/* store/check/load.c: the common part of a start and a check: locks the directory, opens the volume
 * and the index, replays the log. */
#include "base/file.h"
#include "store/check/check.h"
#include "store/commit/committer.h"
#include "store/commit/index_apply.h"
#include "store/image/image.h"
#include "store/index/index.h"
#include "store/object/cache.h"
#include "store/space/space.h"
#include "store/state/state.h"
#include "store/table/table.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define INDEX_CACHE_BYTES_DEFAULT (64 * MIB)
/* Most puts are over by then, and the store should not lack the volume much longer. */
#define PUTS_WAIT_NS (600 * NS_PER_S)

int store_lock(struct store *store)
{
	char path[4096];
	int fd, error;

	if (store->lock_fd >= 0)
		return 0;
	snprintf(path, sizeof(path), "%s/LOCK", store->dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
		store->lock_fd = fd;
		return 0;
	}
	error = errno;
	if (fd >= 0 && error == EWOULDBLOCK)
		log_error("store", "%s: another process has this store open", store->dir);
	else
		log_error("store", "%s: %s", path, strerror(error));
	if (fd < 0)
		return -error;
	close(fd);
	return error == EWOULDBLOCK ? -EBUSY : -error;
}

static void opts_default(struct store_opts *opts)
{
	if (!opts->record_table_bytes_max)
		opts->record_table_bytes_max = STORE_RECORD_TABLE_BYTES_DEFAULT;
	if (!opts->index_cache_bytes)
		opts->index_cache_bytes = INDEX_CACHE_BYTES_DEFAULT;
	if (opts->inline_bytes_max == 0)
		opts->inline_bytes_max = STORE_INLINE_BYTES_DEFAULT;
	else if (opts->inline_bytes_max == UINT32_MAX)
		opts->inline_bytes_max = 0;
	opts->inline_bytes_max = MIN(opts->inline_bytes_max, STORE_INLINE_BYTES_MAX);
}

/* A restore that has not ended has left a file. -EUCLEAN: only another restore may go on. */
static int restore_refuse(const struct store *store)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/restore", store->dir);
	if (store->opts.restoring || access(path, F_OK))
		return 0;
	store_find(store,
		"%s: a restore from a backup has not ended: run `nebulaio admin restore` again, "
		"which goes on",
		store->dir);
	return -EUCLEAN;
}

/* A new volume beside an old index: the volume was lost or is not mounted. The index is left as it
 * is. */
static int index_unexpected(const struct store *store)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/index/CURRENT", store->dir);
	if (access(path, F_OK))
		return 0;
	log_error("store",
		"%s: the store has an index but no volume: put the volume back; for a new store, "
		"move this directory away",
		store->dir);
	return -EUCLEAN;
}

/* A store whose creation was interrupted has epoch 0: its index is created again. */
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
		.files_max = store->opts.index_files_max,
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
	/* From the first epoch on, a volume must have an index. */
	return ret ? ret : file_dir_sync(store->dir);
}

static void volumes_modes_check(const struct volume *volume)
{
	if (!volume->set_count)
		modes_check_file(volume->path);
	for (uint32_t i = 0; i < volume->set_count; i++)
		modes_check_file(volume->set_paths[i]);
}

/* Settings that apply only when a store is created. */
static void log_size_check(const struct store *store, bool created)
{
	uint64_t now = store->volume.super.log_bytes, asked = store->opts.log_bytes;

	if (!created && asked && asked != now)
		log_warn("store",
			"the log keeps the size it got when the store was made, %llu KiB: the "
			"configured %llu KiB have no effect",
			(unsigned long long)(now / KIB), (unsigned long long)(asked / KIB));
}

/* Whether checkpoints of this start write the index to the volumes. */
static void protect_decide(struct store *store)
{
	bool has = store->volume.super.image_bytes != 0;

	store->image->on = store->opts.protect == STORE_PROTECT_ON ||
			   (store->opts.protect == STORE_PROTECT_AS_IS && has);
	atomic_store(&store->image->due, store->image->on);
	if (!has || store->image->on)
		return;
	log_warn("store",
		"%s: the volumes' copy of the index is given up, because storage.protect_index is "
		"not set",
		store->dir);
	image_forget(store);
}

/* The index of a data folder whose server had lost the store to another one: that one has moved the
 * log's tail on meanwhile. The volumes have everything that this index has. */
static bool index_behind(const struct store *store)
{
	const struct superblock *super = &store->volume.super;
	struct state_record state;

	return super->image_bytes && index_state_read(store->index, &state) == 0 &&
	       memcmp(state.uuid, super->uuid, sizeof(super->uuid)) == 0 &&
	       state.applied_seq + 1 < super->tail_seq;
}

static int index_again(struct store *store)
{
	char path[4096];
	int ret;

	log_warn("store",
		"%s: its index ends before the log begins: another server has had the store "
		"meanwhile",
		store->dir);
	index_close(store->index);
	store->index = NULL;
	snprintf(path, sizeof(path), "%s/index", store->dir);
	ret = index_destroy(path);
	if (!ret)
		ret = image_restore(store);
	return ret ? ret : index_prepare(store);
}

/* The index of the data folder, from the volumes when the folder lacks it. */
static int index_find(struct store *store, bool create, bool created)
{
	int ret = 0;

	if (create)
		protect_decide(store);
	if (create && !created && store->volume.super.epoch && !volume_index_present(store->dir))
		ret = image_restore(store);
	if (!ret)
		ret = image_load(store);
	if (!ret)
		ret = index_prepare(store);
	return !ret && create && store->image->on && index_behind(store) ? index_again(store) : ret;
}

int store_load(struct store *store, bool create)
{
	bool created = false;
	struct volume_opts volume = {
		.dir = store->dir,
		.path = store->opts.volume,
		.format = store->opts.format,
		.overwrite = store->opts.overwrite,
		.discard_files = store->opts.discard_files,
		.erasure_data = store->opts.erasure_data,
		.erasure_parity = store->opts.erasure_parity,
		.faults = store->opts.disk_faults,
		.log_bytes = store->opts.log_bytes,
		.step_bytes = store->opts.step_bytes,
		.reserve_bytes = store->opts.reserve_bytes,
		.create = create,
		.withdraws = create || store->salvage,
		.adopt = store->opts.protect == STORE_PROTECT_ON,
		.ret_created = &created,
	};
	int ret = store_lock(store);

	if (!ret)
		ret = restore_refuse(store);
	if (!ret)
		modes_check(store->dir);
	if (!ret)
		ret = volume_locate(&volume, &store->volume);
	if (!ret) {
		ret = volume_find(&store->volume);
		if (ret == -ENOENT)
			ret = index_unexpected(store);
	}
	if (!ret)
		ret = volume_open(&volume, &store->volume);
	if (!ret) {
		volumes_modes_check(&store->volume);
		log_size_check(store, created);
	}
	if (!ret)
		ret = index_find(store, create, created);
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
		space_stripe(store->space, store->volume.disk,
			(uint32_t)store->volume.super.set.current);
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
	rebuild_noted_fini(store->noted);
	image_fini(store->image);
	free(store);
}

/* A store and the structs that it points at, in one allocation. */
struct store_whole {
	struct store store; /* the first: freed by its address */
	struct index_apply apply;
	struct committer committer;
	struct rebuild_noted noted;
	struct image image;
};

struct store *store_alloc(const struct store_opts *opts)
{
	struct store_whole *whole = (struct store_whole *)calloc(1, sizeof(*whole));
	struct store *store;

	if (!whole)
		return NULL;
	store = &whole->store;
	store->apply = &whole->apply;
	store->committer = &whole->committer;
	store->noted = &whole->noted;
	store->image = &whole->image;
	image_init(store->image);
	store->opts = *opts;
	store->lock_fd = -1;
	atomic_store(&store->regains, 1);
	store->puts_wait_ns = PUTS_WAIT_NS;
	opts_default(&store->opts);
	pthread_mutex_init(&store->grow_lock, NULL);
	pthread_mutex_init(&store->watch_lock, NULL);
	rebuild_noted_init(store->noted);
	list_init(&store->watches);
	return store;
}
