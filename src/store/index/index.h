/* store/index/index.h: the interface within store of the index. */
#ifndef STORE_INDEX_H
#define STORE_INDEX_H

#include "store/api.h"

#include <stdbool.h>

#include "store/index/merge.h"
#include "store/log/key.h"

#define INDEX_VERSION 2u /* version 1 has no versioning; it can be read, too */
/* The features of an index beyond its version, one bit each. A program must know all of the low
 * half to open the index. It may ignore the high half, which are kinds of rows: it keeps them. */
#define INDEX_FEATURES_NEEDED 0xffffu
/* A restore that has not ended: only a restore may open it. */
#define INDEX_FEATURE_PARTIAL (1u << 0)
#define INDEX_FEATURE_OUTBOX  (1u << 16)
#define INDEX_FEATURE_QUOTA   (1u << 17)
/* Those of this program. */
#define INDEX_FEATURES (INDEX_FEATURE_OUTBOX | INDEX_FEATURE_QUOTA)

struct state_record {
	uint32_t version;
	uint32_t features;
	uint8_t uuid[16];
	uint64_t applied_seq;
	uint64_t data_id_next;
	uint64_t bucket_id_next;
};
_Static_assert(sizeof(struct state_record) == 48, "as docs/spec/disk.md has it");

/* ---- index.c: RocksDB, its thread and the checkpoints. ---- */
struct index;
struct index_opts {
	const char *dir;
	uint64_t cache_bytes;
	uint64_t write_buffer_bytes;
	uint32_t files_max; /* open at a time; 0: all */
	bool create;
};
int index_open(const struct index_opts *opts, struct index **ret_index);
void index_close(struct index *index);
/* Removes a database and its directory; 0 also when there is none. */
int index_destroy(const char *dir);
/* A value, to be freed. 1: found; 0: absent; -EAGAIN: not in memory and may_block is false; -EIO.
 */
int index_get(struct index *index, const struct key *key, bool may_block, char **ret_value,
	size_t *ret_len);
int index_state_read(struct index *index, struct state_record *ret_state);
/* The four calls that write have -ENOSPC while the data folder's file system is full: nothing is
 * lost, and the same call succeeds some seconds after there is room again. Else -EIO.
 *
 * Applies a group's mutations and the state atomically. Blocks. */
int index_write_group(struct index *index, struct slice group, const struct state_record *state);
/* Applies the result of a settled merge and the state atomically. Blocks. */
int index_write_merged(
	struct index *index, const struct index_merge *merge, const struct state_record *state);
/* Applies the state alone. Blocks. */
int index_state_write(struct index *index, const struct state_record *state);
/* Makes all applied mutations durable, and forgets what they hide. Blocks. */
int index_flush(struct index *index);
/* How many entries the walks passed over since the last tidying: hidden by newer ones, or deleted.
 */
uint64_t index_passed_over(const struct index *index);
/* After a flush, which leaves one entry of each key, those of deleted keys included. Where walks
 * passed over INDEX_PASSED_OVER_MAX of deleted keys, their range is compacted, so that those go.
 * Blocks for a short time: longer work is in the background. */
#define INDEX_PASSED_OVER_MAX (64u * 1024u)
void index_tidy(struct index *index);
/* How many flushes and merges of the index run or wait. Any thread. */
uint64_t index_jobs(const struct index *index);
/* Makes dir, which must not exist: a copy of the index's flushed state that can be opened. Files
 * whose names end in .sst never change afterwards. Blocks. */
int index_checkpoint(struct index *index, const char *dir);
/* Calls visit for every row from a prefix; false stops. Blocks. */
typedef bool index_visit_fn(struct slice key, struct slice value, void *arg);
int index_visit(struct index *index, struct slice prefix, index_visit_fn *visit, void *arg);
/* An iterator over [from, to). */
struct index_walk;
int index_walk_open(
	struct index *index, struct slice from, struct slice to, struct index_walk **ret_walk);
/* Opens several iterators over the same state of the index. On failure the iterators that were
 * opened stay open. */
struct index_range {
	struct slice from, to;
};
int index_walks_open(struct index *index, const struct index_range *ranges, uint32_t count,
	struct index_walk **ret_walks);
void index_walk_close(struct index_walk *walk);
bool index_walk_get(struct index_walk *walk, struct slice *ret_key, struct slice *ret_value);
void index_walk_next(struct index_walk *walk);
void index_walk_seek(struct index_walk *walk, struct slice key);
int index_walk_error(struct index_walk *walk);

#endif
