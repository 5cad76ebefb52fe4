/* store/index/index.c: a thin layer over RocksDB: without a log of its own (the store's log
 * replaces it), one column family, bounded background work. Most calls may block and belong on
 * helper threads; index_get can be limited to memory. */
#include "base/file.h"
#include "store/index/index.h"
#include "store/index/merge.h"
#include "store/log/journal.h"
#include "store/log/key.h"

#include <errno.h>
#include <pthread.h>
#include <rocksdb/c.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BACKGROUND_JOBS_MAX 2
#define BLOOM_BITS_PER_KEY  10.0
#define TABLE_BLOCK_BYTES   4096u
#define INFO_LOG_BYTES_MAX  (1 * MIB)
#define MANIFEST_BYTES_MAX  (1 * MIB)
/* Of the level that flushed files are merged into, and of a file. The state's row is in every
 * flush, so a merge of flushed files goes over all of that level: the smaller, the less is
 * rewritten. */
#define LEVEL_BYTES    (64 * MIB)
#define FILE_BYTES     (16 * MIB)
#define TIER_MEMORY    1 /* rocksdb::kBlockCacheTier */
#define LOG_FATAL_ONLY 4 /* rocksdb::FATAL_LEVEL */
#define LEVELS	       7 /* RocksDB's default */
/* Deleted keys in one walk that are worth a compaction. */
#define LITTER_MIN 1024u

struct index {
	rocksdb_t *db;
	rocksdb_options_t *options;
	rocksdb_cache_t *cache;
	rocksdb_writeoptions_t *write;
	rocksdb_readoptions_t *read;
	rocksdb_readoptions_t *read_memory;
	rocksdb_flushoptions_t *flush;
	rocksdb_writebatch_t *batch; /* the single writer's */
	/* Entries that walks passed over since the last tidying: hidden by newer ones, or of
	 * deleted keys. */
	_Atomic uint64_t hidden, deleted;
	/* From where to where walks passed over many deleted keys. */
	pthread_mutex_t littered_lock;
	struct key littered_from, littered_to;
	bool littered;
	_Atomic bool full_told; /* the file system is full */
};

/* Logs and frees RocksDB's message. */
static int failed(const char *what, char *message)
{
	log_error("store", "index: %s: %s", what, message);
	rocksdb_free(message);
	return -EIO;
}

/* The same for a write, of which message is NULL when it succeeded. On a full file system RocksDB
 * refuses all writes, looks every few seconds whether there is room, and then goes on with all that
 * it has in memory; its functions for C have the reason as text only. */
static int written(struct index *index, const char *what, char *message)
{
	static const char FULL[] = "No space left on device";

	if (!message) {
		atomic_store(&index->full_told, false);
		return 0;
	}
	if (!strstr(message, FULL))
		return failed(what, message);
	if (atomic_exchange(&index->full_told, true))
		rocksdb_free(message);
	else
		failed(what, message);
	return -ENOSPC;
}

static void table_options(struct index *index, const struct index_opts *opts)
{
	rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();

	index->cache = rocksdb_cache_create_lru(opts->cache_bytes);
	rocksdb_block_based_options_set_block_cache(table, index->cache);
	rocksdb_block_based_options_set_block_size(table, TABLE_BLOCK_BYTES);
	rocksdb_block_based_options_set_filter_policy(
		table, rocksdb_filterpolicy_create_bloom_full(BLOOM_BITS_PER_KEY));
	rocksdb_block_based_options_set_format_version(table, 5);
	rocksdb_options_set_block_based_table_factory(index->options, table);
	rocksdb_block_based_options_destroy(table);
}

/* A batch comes in the order of its keys: so the search for a key's place in memory begins at the
 * place of the one before, of the same kind (the key's first byte). An option that RocksDB's
 * functions for C lack. */
static rocksdb_options_t *options_create(void)
{
	static const char *const HINT =
		"memtable_insert_with_hint_prefix_extractor=rocksdb.CappedPrefix.1";
	rocksdb_options_t *plain = rocksdb_options_create(), *options = rocksdb_options_create();
	char *message = NULL;

	rocksdb_get_options_from_string(plain, HINT, options, &message);
	if (message)
		log_warn("store", "index: RocksDB refuses %s (%s): writes take more time", HINT,
			message);
	rocksdb_free(message);
	rocksdb_options_destroy(plain);
	return options;
}

static void options_init(struct index *index, const struct index_opts *opts)
{
	index->options = options_create();
	rocksdb_options_set_create_if_missing(index->options, opts->create);
	rocksdb_options_set_error_if_exists(index->options, opts->create);
	rocksdb_options_set_write_buffer_size(index->options, opts->write_buffer_bytes);
	rocksdb_options_set_max_write_buffer_number(index->options, 3);
	rocksdb_options_set_max_open_files(
		index->options, opts->files_max ? (int)opts->files_max : -1);
	rocksdb_options_set_max_background_jobs(index->options, BACKGROUND_JOBS_MAX);
	rocksdb_options_set_compression(index->options, rocksdb_lz4_compression);
	rocksdb_options_set_memtable_prefix_bloom_size_ratio(index->options, 0.05);
	rocksdb_options_set_memtable_whole_key_filtering(index->options, 1);
	rocksdb_options_set_level_compaction_dynamic_level_bytes(index->options, 1);
	rocksdb_options_set_max_bytes_for_level_base(index->options, LEVEL_BYTES);
	rocksdb_options_set_target_file_size_base(index->options, FILE_BYTES);
	rocksdb_options_set_keep_log_file_num(index->options, 2);
	rocksdb_options_set_max_log_file_size(index->options, INFO_LOG_BYTES_MAX);
	rocksdb_options_set_stats_dump_period_sec(index->options, 0);
	rocksdb_options_set_stats_persist_period_sec(index->options, 0);
	/* Where RocksDB is built with its assertions, as in Debian 12, a line of its own log that
	 * the file system has no room for aborts the process at the next line. All that fails comes
	 * back from a call. */
	rocksdb_options_set_info_log_level(index->options, LOG_FATAL_ONLY);
	rocksdb_options_set_bytes_per_sync(index->options, MIB);
	/* A checkpoint copies it. */
	rocksdb_options_set_max_manifest_file_size(index->options, MANIFEST_BYTES_MAX);
	table_options(index, opts);
	index->write = rocksdb_writeoptions_create();
	rocksdb_writeoptions_disable_WAL(index->write, 1);
	index->read = rocksdb_readoptions_create();
	index->read_memory = rocksdb_readoptions_create();
	rocksdb_readoptions_set_read_tier(index->read_memory, TIER_MEMORY);
	index->flush = rocksdb_flushoptions_create();
	rocksdb_flushoptions_set_wait(index->flush, 1);
	index->batch = rocksdb_writebatch_create();
}

int index_open(const struct index_opts *opts, struct index **ret_index)
{
	struct index *index = (struct index *)calloc(1, sizeof(*index));
	char *message = NULL;

	if (!index)
		return -ENOMEM;
	pthread_mutex_init(&index->littered_lock, NULL);
	options_init(index, opts);
	index->db = rocksdb_open(index->options, opts->dir, &message);
	if (message) {
		failed("open", message);
		index_close(index);
		return -EUCLEAN;
	}
	*ret_index = index;
	return 0;
}

void index_close(struct index *index)
{
	if (!index)
		return;
	if (index->db)
		rocksdb_close(index->db);
	rocksdb_writebatch_destroy(index->batch);
	rocksdb_flushoptions_destroy(index->flush);
	rocksdb_readoptions_destroy(index->read_memory);
	rocksdb_readoptions_destroy(index->read);
	rocksdb_writeoptions_destroy(index->write);
	rocksdb_options_destroy(index->options);
	rocksdb_cache_destroy(index->cache);
	pthread_mutex_destroy(&index->littered_lock);
	free(index);
}

int index_destroy(const char *dir)
{
	rocksdb_options_t *options = rocksdb_options_create();
	char *message = NULL;

	rocksdb_destroy_db(options, dir, &message);
	rocksdb_options_destroy(options);
	return message ? failed("destroy", message) : 0;
}

int index_get(struct index *index, const struct key *key, bool may_block, char **ret_value,
	size_t *ret_len)
{
	static const char INCOMPLETE[] = "Result incomplete";
	char *message = NULL;
	char *value;
	size_t len;

	value = rocksdb_get(index->db, may_block ? index->read : index->read_memory,
		(const char *)key->bytes, key->len, &len, &message);
	if (message) {
		if (!may_block && strncmp(message, INCOMPLETE, sizeof(INCOMPLETE) - 1) == 0) {
			rocksdb_free(message);
			return -EAGAIN;
		}
		return failed("get", message);
	}
	if (!value)
		return 0;
	*ret_value = value;
	*ret_len = len;
	return 1;
}

/* Deletes every key with the prefix: the keys in the index, and the keys that the group itself put
 * before position `until`. They are few and known: a range tombstone would slow down every later
 * walk. */
static int batch_delete_prefix(
	struct index *index, struct slice prefix, struct slice group, size_t until)
{
	rocksdb_iterator_t *it = rocksdb_create_iterator(index->db, index->read);
	struct mutation mutation;
	char *message = NULL;
	size_t at = 0;

	for (rocksdb_iter_seek(it, prefix.data, prefix.len); rocksdb_iter_valid(it);
		rocksdb_iter_next(it)) {
		size_t len;
		const char *key = rocksdb_iter_key(it, &len);

		if (!slice_starts(slice_of(key, len), prefix))
			break;
		rocksdb_writebatch_delete(index->batch, key, len);
	}
	rocksdb_iter_get_error(it, &message);
	rocksdb_iter_destroy(it);
	while (group_next(group, &at, &mutation) == 1 && at < until)
		if (mutation.op == MUTATION_PUT && slice_starts(mutation.key, prefix))
			rocksdb_writebatch_delete(
				index->batch, mutation.key.data, mutation.key.len);
	return message ? failed("walk", message) : 0;
}

static void batch_add(struct index *index, const struct mutation *mutation)
{
	if (mutation->op == MUTATION_PUT)
		rocksdb_writebatch_put(index->batch, mutation->key.data, mutation->key.len,
			mutation->value.data, mutation->value.len);
	else
		rocksdb_writebatch_delete(index->batch, mutation->key.data, mutation->key.len);
}

static int batch_write(struct index *index, const struct state_record *state)
{
	char *message = NULL;
	struct key key;

	key_state(&key);
	rocksdb_writebatch_put(index->batch, (const char *)key.bytes, key.len, (const char *)state,
		sizeof(*state));
	/* Counting every comparison of keys takes a fifth of a write. Only walks need counts. */
	rocksdb_set_perf_level(rocksdb_disable);
	rocksdb_write(index->db, index->write, index->batch, &message);
	rocksdb_set_perf_level(rocksdb_enable_count);
	return written(index, "write", message);
}

int index_state_write(struct index *index, const struct state_record *state)
{
	rocksdb_writebatch_clear(index->batch);
	return batch_write(index, state);
}

int index_write_group(struct index *index, struct slice group, const struct state_record *state)
{
	struct mutation mutation;
	size_t at = 0;
	int ret;

	rocksdb_writebatch_clear(index->batch);
	while ((ret = group_next(group, &at, &mutation)) == 1) {
		if (mutation.op != MUTATION_DELETE_PREFIX)
			batch_add(index, &mutation);
		else if (batch_delete_prefix(index, mutation.key, group, at))
			return -EIO;
	}
	return ret < 0 ? ret : batch_write(index, state);
}

int index_write_merged(
	struct index *index, const struct index_merge *merge, const struct state_record *state)
{
	rocksdb_writebatch_clear(index->batch);
	for (uint32_t i = 0; i < merge->settled_count; i++)
		batch_add(index, merge->order[i]);
	return batch_write(index, state);
}

int index_flush(struct index *index)
{
	char *message = NULL;

	rocksdb_flush(index->db, index->flush, &message);
	return written(index, "flush", message);
}

int index_checkpoint(struct index *index, const char *dir)
{
	char *message = NULL;
	rocksdb_checkpoint_t *checkpoint;
	char part[4096];

	/* Where RocksDB prepares it: left by a process that was killed. */
	if ((size_t)snprintf(part, sizeof(part), "%s.tmp", dir) >= sizeof(part))
		return -ENAMETOOLONG;
	(void)file_dir_remove(part);
	checkpoint = rocksdb_checkpoint_object_create(index->db, &message);
	if (message)
		return failed("checkpoint", message);
	/* The largest size of a log: RocksDB, which has none here, need not flush again. */
	rocksdb_checkpoint_create(checkpoint, dir, UINT64_MAX, &message);
	rocksdb_checkpoint_object_destroy(checkpoint);
	return message ? failed("checkpoint", message) : 0;
}

struct index_walk {
	struct index *index;
	uint64_t steps;
	rocksdb_iterator_t *it;
	rocksdb_readoptions_t *read;
	struct slice from, to; /* RocksDB keeps pointers to them */
};

static struct slice key_keep(char *room, struct slice key)
{
	if (key.len)
		memcpy(room, key.data, key.len);
	return slice_of(room, key.len);
}

static int walk_open(struct index *index, const rocksdb_snapshot_t *view,
	const struct index_range *range, struct index_walk **ret_walk)
{
	struct index_walk *walk =
		(struct index_walk *)calloc(1, sizeof(*walk) + range->from.len + range->to.len);
	char *keys = (char *)(walk + 1);

	if (!walk)
		return -ENOMEM;
	walk->index = index;
	walk->from = key_keep(keys, range->from);
	walk->to = key_keep(keys + range->from.len, range->to);
	walk->read = rocksdb_readoptions_create();
	rocksdb_readoptions_set_total_order_seek(walk->read, 1);
	if (view)
		rocksdb_readoptions_set_snapshot(walk->read, view);
	if (walk->to.len)
		rocksdb_readoptions_set_iterate_upper_bound(
			walk->read, walk->to.data, walk->to.len);
	walk->it = rocksdb_create_iterator(index->db, walk->read);
	rocksdb_iter_seek(walk->it, range->from.data, range->from.len);
	*ret_walk = walk;
	return 0;
}

int index_walk_open(
	struct index *index, struct slice from, struct slice to, struct index_walk **ret_walk)
{
	return walk_open(index, NULL, &(struct index_range){.from = from, .to = to}, ret_walk);
}

int index_walks_open(struct index *index, const struct index_range *ranges, uint32_t count,
	struct index_walk **ret_walks)
{
	const rocksdb_snapshot_t *view = rocksdb_create_snapshot(index->db);
	int ret = 0;

	for (uint32_t i = 0; i < count && !ret; i++)
		ret = walk_open(index, view, &ranges[i], &ret_walks[i]);
	/* A walk keeps the state that it saw when it was opened. */
	rocksdb_release_snapshot(index->db, view);
	return ret;
}

/* ---- What walks pass over. ---- */

/* A longer key, of a damaged index, is cut: the range need not be exact. */
static void key_copy(struct key *key, struct slice bytes)
{
	key->len = (uint32_t)MIN(bytes.len, sizeof(key->bytes));
	memcpy(key->bytes, bytes.data, key->len);
}

static struct slice key_slice(const struct key *key)
{
	return slice_of(key->bytes, key->len);
}

/* Adds what the walk went over to the range that is to be compacted. */
static void littered_note(struct index_walk *walk)
{
	struct index *index = walk->index;
	struct slice to = walk->to;

	if (rocksdb_iter_valid(walk->it))
		to.data = rocksdb_iter_key(walk->it, &to.len);
	pthread_mutex_lock(&index->littered_lock);
	if (!index->littered || slice_cmp(walk->from, key_slice(&index->littered_from)) < 0)
		key_copy(&index->littered_from, walk->from);
	if (!index->littered || slice_cmp(to, key_slice(&index->littered_to)) > 0)
		key_copy(&index->littered_to, to);
	index->littered = true;
	pthread_mutex_unlock(&index->littered_lock);
}

/* RocksDB counts for each thread. It counts a step like an entry that was passed over. */
static void passed_over_count(struct index_walk *walk)
{
	rocksdb_perfcontext_t *counts = rocksdb_perfcontext_create();
	uint64_t skipped = rocksdb_perfcontext_metric(counts, rocksdb_internal_key_skipped_count);
	uint64_t deleted =
		rocksdb_perfcontext_metric(counts, rocksdb_internal_delete_skipped_count);

	rocksdb_perfcontext_reset(counts);
	rocksdb_perfcontext_destroy(counts);
	atomic_fetch_add(&walk->index->hidden, skipped - MIN(skipped, walk->steps));
	atomic_fetch_add(&walk->index->deleted, deleted);
	if (deleted >= LITTER_MIN && walk->from.len && walk->to.len)
		littered_note(walk);
}

uint64_t index_passed_over(const struct index *index)
{
	return atomic_load(&index->hidden) + atomic_load(&index->deleted);
}

uint64_t index_jobs(const struct index *index)
{
	static const char *const NAMES[] = {"rocksdb.num-running-flushes",
		"rocksdb.mem-table-flush-pending", "rocksdb.num-running-compactions",
		"rocksdb.compaction-pending"};
	uint64_t jobs = 0, count;

	for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
		if (!rocksdb_property_int(index->db, NAMES[i], &count))
			jobs += count;
	return jobs;
}

/* All files are still as flushes left them. */
static bool has_no_levels(struct index *index)
{
	bool none = true;
	char name[40];

	for (uint32_t level = 1; level < LEVELS && none; level++) {
		char *count;

		snprintf(name, sizeof(name), "rocksdb.num-files-at-level%u", level);
		count = rocksdb_property_value(index->db, name);
		none = !count || strcmp(count, "0") == 0;
		rocksdb_free(count);
	}
	return none;
}

/* With levels RocksDB compacts in the background; a suggestion does nothing where there are none,
 * and then the files are few. */
static void compact(struct index *index, struct slice from, struct slice to)
{
	char *message = NULL;

	if (has_no_levels(index))
		rocksdb_compact_range(index->db, from.data, from.len, to.data, to.len);
	else
		rocksdb_suggest_compact_range(
			index->db, from.data, from.len, to.data, to.len, &message);
	if (message)
		failed("compaction", message);
}

void index_tidy(struct index *index)
{
	bool many = atomic_exchange(&index->deleted, 0) >= INDEX_PASSED_OVER_MAX;
	struct key from, to;

	atomic_store(&index->hidden, 0);
	pthread_mutex_lock(&index->littered_lock);
	many = many && index->littered;
	if (many) {
		from = index->littered_from;
		to = index->littered_to;
	}
	index->littered = false;
	pthread_mutex_unlock(&index->littered_lock);
	if (many)
		compact(index, key_slice(&from), key_slice(&to));
}

/* ---- Walks. ---- */

void index_walk_close(struct index_walk *walk)
{
	passed_over_count(walk);
	rocksdb_iter_destroy(walk->it);
	rocksdb_readoptions_destroy(walk->read);
	free(walk);
}

bool index_walk_get(struct index_walk *walk, struct slice *ret_key, struct slice *ret_value)
{
	if (!rocksdb_iter_valid(walk->it))
		return false;
	ret_key->data = rocksdb_iter_key(walk->it, &ret_key->len);
	ret_value->data = rocksdb_iter_value(walk->it, &ret_value->len);
	return true;
}

void index_walk_next(struct index_walk *walk)
{
	walk->steps++;
	rocksdb_iter_next(walk->it);
}

void index_walk_seek(struct index_walk *walk, struct slice key)
{
	rocksdb_iter_seek(walk->it, key.data, key.len);
}

int index_walk_error(struct index_walk *walk)
{
	char *message = NULL;

	rocksdb_iter_get_error(walk->it, &message);
	return message ? failed("walk", message) : 0;
}
