/* store/table/list_table.c: rows of listed buckets in memory.
 *
 * The index thread changes them after it has changed the index, and before lists know that it has:
 * a list waits until the index has all that was published before it, then either has it. Between
 * changes that thread reads on behind the end of a bucket's rows; a change behind the end is left
 * to that. When the memory is used up, the rows at the end of the bucket go that has not been
 * listed for the longest time. */
#include "store/table/list_table.h"

#include "base/base.h"
#include "base/clock.h"
#include "store/api.h"
#include "store/index/index.h"
#include "store/log/journal.h"
#include "store/object/record.h"

#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define LISTED_MAX     64u
#define BUCKET_BYTES   9u   /* of an object's key in the index: before the object's key */
#define MISS_ROWS_MIN  64u  /* earned by a list, which costs as much as so many rows at least */
#define FILL_ROWS      512u /* at a time */
#define FILL_BYTES_MAX (4 * MIB)
#define ROOM_BYTES     (FILL_ROWS * 256u) /* of that many rows, as a rule */
/* A bucket that was not listed for so long may lose rows to another. */
#define QUIET_NS (60 * NS_PER_S)

struct listed {
	uint64_t bucket_id;	  /* 0: none */
	_Atomic uint64_t used_ns; /* the last list */
	uint64_t earned;	  /* rows that may still be read */
	struct row_tree *tree;	  /* NULL: no rows yet */
	bool whole;		  /* there is nothing behind end */
	uint32_t end_len;
	char end[LIMIT_KEY_LEN_MAX + 1]; /* keys below are in the tree */
};

struct list_table {
	uint64_t bytes_max;
	_Atomic uint64_t bytes;
	/* Of what follows. The index thread reads the buckets' rows without it, as it alone changes
	 * them; a bucket may be replaced by another thread. */
	pthread_rwlock_t lock;
	struct listed listed[LISTED_MAX];
	_Atomic bool wanting; /* false: no bucket has earned rows */
	/* The index thread's. */
	uint32_t turn;
	struct buf read;
};

int list_table_open(uint64_t bytes_max, struct list_table **ret_table)
{
	struct list_table *table = (struct list_table *)calloc(1, sizeof(*table));
	pthread_rwlockattr_t attr;

	if (!table)
		return -ENOMEM;
	table->bytes_max = bytes_max;
	buf_init(&table->read, FILL_BYTES_MAX);
	pthread_rwlockattr_init(&attr);
	/* Lists one after another must not keep the index thread out. */
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&table->lock, &attr);
	pthread_rwlockattr_destroy(&attr);
	*ret_table = table;
	return 0;
}

void list_table_close(struct list_table *table)
{
	if (!table)
		return;
	for (uint32_t i = 0; i < LISTED_MAX; i++)
		row_tree_close(table->listed[i].tree);
	pthread_rwlock_destroy(&table->lock);
	buf_free(&table->read);
	free(table);
}

uint64_t list_table_bytes(const struct list_table *table)
{
	return atomic_load(&table->bytes);
}

/* The bucket of an object's key, or of a bound of such keys; 0: it is neither. */
static uint64_t bucket_of(struct slice index_key)
{
	uint64_t big;

	if (index_key.len < BUCKET_BYTES || index_key.data[0] != 'O')
		return 0;
	memcpy(&big, index_key.data + 1, sizeof(big));
	return be64toh(big);
}

/* ---- Buckets, with the lock held. ---- */

static struct listed *listed_find(struct list_table *table, uint64_t bucket_id)
{
	for (uint32_t i = 0; i < LISTED_MAX; i++)
		if (table->listed[i].bucket_id == bucket_id)
			return &table->listed[i];
	return NULL;
}

static struct slice listed_end(const struct listed *listed)
{
	return slice_of(listed->end, listed->end_len);
}

static void listed_end_set(struct listed *listed, struct slice key)
{
	listed->end_len = (uint32_t)MIN(key.len, sizeof(listed->end));
	if (listed->end_len)
		memcpy(listed->end, key.data, listed->end_len);
}

/* Without rows, and without any earned; returns the tree, to be closed. */
static struct row_tree *listed_empty(struct listed *listed)
{
	struct row_tree *tree = listed->tree;

	listed->tree = NULL;
	listed->whole = false;
	listed->end_len = 0;
	listed->earned = 0;
	return tree;
}

static void bytes_count(struct list_table *table)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < LISTED_MAX; i++)
		if (table->listed[i].tree)
			bytes += row_tree_bytes(table->listed[i].tree);
	atomic_store(&table->bytes, bytes);
}

/* The place that was not listed for the longest time, but not the other; NULL: there is none. */
static struct listed *listed_oldest(
	struct list_table *table, bool with_rows, const struct listed *other)
{
	struct listed *oldest = NULL;

	for (uint32_t i = 0; i < LISTED_MAX; i++) {
		struct listed *listed = &table->listed[i];

		if (listed != other && (listed->tree || !with_rows) &&
			(!oldest || atomic_load(&listed->used_ns) < atomic_load(&oldest->used_ns)))
			oldest = listed;
	}
	return oldest;
}

/* Gives up the last rows. */
static void listed_cut(struct listed *listed)
{
	struct slice first;

	if (row_tree_tail(listed->tree, &first)) {
		listed_end_set(listed, first);
		listed->whole = false;
		row_tree_cut(listed->tree);
	}
	if (!row_tree_tail(listed->tree, &first))
		row_tree_close(listed_empty(listed));
}

/* After rows have come. */
static void bytes_bound(struct list_table *table)
{
	bytes_count(table);
	while (atomic_load(&table->bytes) > table->bytes_max) {
		listed_cut(listed_oldest(table, true, NULL));
		bytes_count(table);
	}
}

/* ---- Changes. ---- */

static void row_change(struct listed *listed, const struct mutation *row)
{
	struct slice key = slice_from(row->key, BUCKET_BYTES);

	if (!listed->tree || (!listed->whole && slice_cmp(key, listed_end(listed)) >= 0))
		return;
	if (row->op == MUTATION_DELETE)
		row_tree_delete(listed->tree, key);
	else if (row_tree_put(
			 listed->tree, key, slice_to(row->value, record_meta_bytes(row->value))))
		row_tree_close(listed_empty(listed)); /* no memory */
}

/* A run of changes under one lock. */
struct change {
	struct list_table *table;
	bool locked;
	uint64_t bucket_id; /* of listed */
	struct listed *listed;
};

static void change_row(struct change *change, const struct mutation *row)
{
	uint64_t bucket_id = bucket_of(row->key);

	if (!bucket_id)
		return;
	if (!change->locked)
		pthread_rwlock_wrlock(&change->table->lock);
	change->locked = true;
	if (bucket_id != change->bucket_id)
		change->listed = listed_find(change->table, bucket_id);
	change->bucket_id = bucket_id;
	if (change->listed)
		row_change(change->listed, row);
}

static void change_end(struct change *change)
{
	if (!change->locked)
		return;
	bytes_bound(change->table);
	pthread_rwlock_unlock(&change->table->lock);
}

void list_table_change(struct list_table *table, const struct mutation *const *rows, uint32_t count)
{
	struct change change = {.table = table};

	if (!atomic_load(&table->bytes))
		return;
	for (uint32_t i = 0; i < count; i++)
		change_row(&change, rows[i]);
	change_end(&change);
}

void list_table_change_group(struct list_table *table, struct slice group)
{
	struct change change = {.table = table};
	struct mutation mutation;
	size_t at = 0;

	if (!atomic_load(&table->bytes))
		return;
	while (group_next(group, &at, &mutation) == 1)
		change_row(&change, &mutation);
	change_end(&change);
}

/* ---- Reading on. ---- */

static bool is_full(const struct list_table *table)
{
	return atomic_load(&table->bytes) + ROOM_BYTES > table->bytes_max;
}

/* One that may lose rows to the bucket; NULL: there is none. */
static struct listed *listed_quiet(struct list_table *table, const struct listed *listed)
{
	struct listed *oldest = listed_oldest(table, true, listed);

	return oldest && atomic_load(&oldest->used_ns) + QUIET_NS <= atomic_load(&listed->used_ns)
		       ? oldest
		       : NULL;
}

/* The bucket's place, or one for it: a free one, or that of a bucket which is quiet, whose rows are
 * *ret_tree, to be closed. NULL: there is none. */
static struct listed *listed_make(
	struct list_table *table, uint64_t bucket_id, uint64_t now_ns, struct row_tree **ret_tree)
{
	struct listed *listed = listed_find(table, bucket_id);

	if (listed)
		return listed;
	listed = listed_find(table, 0);
	if (!listed) {
		listed = listed_oldest(table, false, NULL);
		if (now_ns - atomic_load(&listed->used_ns) < QUIET_NS)
			return NULL;
	}
	*ret_tree = listed_empty(listed);
	listed->bucket_id = bucket_id;
	bytes_count(table);
	return listed;
}

bool list_table_missed(struct list_table *table, uint64_t bucket_id, uint32_t rows)
{
	uint64_t now_ns = clock_now_ns();
	struct row_tree *tree = NULL;
	struct listed *listed;

	if (!table->bytes_max)
		return false;
	pthread_rwlock_wrlock(&table->lock);
	listed = listed_make(table, bucket_id, now_ns, &tree);
	if (listed)
		atomic_store(&listed->used_ns, now_ns);
	if (listed && !listed->whole && (!is_full(table) || listed_quiet(table, listed))) {
		listed->earned += MAX(rows, MISS_ROWS_MIN);
		atomic_store(&table->wanting, true);
	}
	pthread_rwlock_unlock(&table->lock);
	row_tree_close(tree);
	return list_table_wants(table);
}

bool list_table_wants(const struct list_table *table)
{
	return atomic_load(&table->wanting);
}

/* Makes room for more rows of the bucket. */
static bool room_make(struct list_table *table, const struct listed *listed)
{
	while (is_full(table)) {
		struct listed *quiet = listed_quiet(table, listed);

		if (!quiet)
			return false;
		listed_cut(quiet);
		bytes_count(table);
	}
	return true;
}

/* Rows to be read. */
struct fill {
	uint64_t bucket_id;
	struct key from, to; /* of the index */
	uint32_t rows_max, rows;
	bool whole;
};

/* Takes turns among the buckets. */
static bool fill_choose(struct list_table *table, struct fill *fill)
{
	for (uint32_t i = 0; i < LISTED_MAX; i++) {
		struct listed *listed = &table->listed[table->turn++ % LISTED_MAX];

		if (!listed->earned)
			continue;
		if (listed->whole || !room_make(table, listed)) {
			listed->earned = 0;
			continue;
		}
		fill->bucket_id = listed->bucket_id;
		fill->rows_max = (uint32_t)MIN(listed->earned, FILL_ROWS);
		key_object(&fill->from, listed->bucket_id, listed_end(listed));
		key_object(&fill->to, listed->bucket_id, SLICE_NONE);
		(void)key_successor(&fill->to);
		return true;
	}
	atomic_store(&table->wanting, false);
	return false;
}

/* Each row is its key's and its value's length, then both. */
struct read_row {
	uint32_t key_len, value_len;
};

static int fill_read(struct buf *out, struct index *index, struct fill *fill)
{
	struct slice key, value;
	struct index_walk *walk;
	int ret = index_walk_open(index, slice_of(fill->from.bytes, fill->from.len),
		slice_of(fill->to.bytes, fill->to.len), &walk);

	if (ret)
		return ret;
	buf_reset(out);
	while (fill->rows < fill->rows_max && index_walk_get(walk, &key, &value)) {
		struct slice object = slice_from(key, BUCKET_BYTES);
		struct slice record = slice_to(value, record_meta_bytes(value));
		struct read_row row = {(uint32_t)object.len, (uint32_t)record.len};

		buf_put(out, &row, sizeof(row));
		buf_put_slice(out, object);
		buf_put_slice(out, record);
		fill->rows++;
		index_walk_next(walk);
	}
	fill->whole = fill->rows < fill->rows_max;
	ret = index_walk_error(walk);
	index_walk_close(walk);
	return ret ? ret : out->failed ? -ENOMEM : 0;
}

static int fill_put(struct listed *listed, const struct buf *in, const struct fill *fill)
{
	struct slice left = buf_slice(in), key = SLICE_NONE;
	int ret = listed->tree ? 0 : row_tree_open(&listed->tree);

	for (uint32_t i = 0; i < fill->rows && !ret; i++) {
		struct read_row row;

		memcpy(&row, left.data, sizeof(row));
		left = slice_from(left, sizeof(row));
		key = slice_to(left, row.key_len);
		left = slice_from(left, row.key_len);
		ret = row_tree_put(listed->tree, key, slice_to(left, row.value_len));
		left = slice_from(left, row.value_len);
	}
	if (ret)
		return ret;
	if (fill->rows) {
		/* The smallest key behind the last one. */
		listed_end_set(listed, key);
		listed->end[listed->end_len++] = 0;
	}
	listed->whole = fill->whole;
	listed->earned = fill->whole ? 0 : listed->earned - MIN(listed->earned, fill->rows);
	return 0;
}

void list_table_fill(struct list_table *table, struct index *index)
{
	struct fill fill = {0};
	struct listed *listed;
	bool chosen;
	int ret;

	pthread_rwlock_wrlock(&table->lock);
	chosen = fill_choose(table, &fill);
	pthread_rwlock_unlock(&table->lock);
	if (!chosen)
		return;
	ret = fill_read(&table->read, index, &fill);
	pthread_rwlock_wrlock(&table->lock);
	listed = listed_find(table, fill.bucket_id);
	/* Another bucket's, or begun anew meanwhile. */
	if (listed && !slice_eq(listed_end(listed),
			      slice_from(slice_of(fill.from.bytes, fill.from.len), BUCKET_BYTES)))
		listed = NULL;
	if (listed && !ret)
		ret = fill_put(listed, &table->read, &fill);
	if (listed && ret)
		row_tree_close(listed_empty(listed));
	bytes_bound(table);
	pthread_rwlock_unlock(&table->lock);
}

/* ---- Walks. ---- */

/* The part of the key behind the bucket; false: it is of another bucket. */
static bool key_in_bucket(const struct key *key, uint64_t bucket_id, struct slice *ret_key)
{
	struct slice bytes = slice_of(key->bytes, key->len);

	*ret_key = slice_from(bytes, BUCKET_BYTES);
	return bucket_of(bytes) == bucket_id;
}

/* Whether the rows of the range from the walk's place are all there. */
static bool covers(
	const struct listed *listed, const struct list_range *range, const struct list_walk *walk)
{
	struct row_cursor at = walk->at;

	if (listed->whole || (walk->to.len && slice_cmp(walk->to, listed_end(listed)) <= 0))
		return true;
	return !range->skips && row_cursor_skip(&at, range->rows);
}

bool list_walk_open(
	struct list_table *table, const struct list_range *range, struct list_walk *ret_walk)
{
	struct list_walk walk = {.table = table, .bucket_id = range->bucket_id};
	struct listed *listed;
	struct slice from, to;

	if (!atomic_load(&table->bytes) || !key_in_bucket(range->from, range->bucket_id, &from))
		return false;
	/* A range up to the bucket's end ends at the first key of the next one. */
	if (key_in_bucket(range->to, range->bucket_id, &to))
		walk.to = to;
	if (!range->may_wait && pthread_rwlock_tryrdlock(&table->lock))
		return false;
	if (range->may_wait)
		pthread_rwlock_rdlock(&table->lock);
	listed = listed_find(table, range->bucket_id);
	if (listed && listed->tree) {
		row_tree_seek(listed->tree, from, &walk.at);
		if (covers(listed, range, &walk)) {
			atomic_store(&listed->used_ns, clock_now_ns());
			*ret_walk = walk;
			return true;
		}
	}
	pthread_rwlock_unlock(&table->lock);
	return false;
}

void list_walk_close(struct list_walk *walk)
{
	pthread_rwlock_unlock(&walk->table->lock);
}

bool list_walk_get(const struct list_walk *walk, struct slice *ret_key, struct slice *ret_record)
{
	return row_cursor_get(&walk->at, ret_key, ret_record) &&
	       (!walk->to.len || slice_cmp(*ret_key, walk->to) < 0);
}

bool list_walk_has(const struct list_walk *walk, uint32_t rows)
{
	struct list_walk behind = *walk;
	struct slice key, record;

	return row_cursor_skip(&behind.at, rows - 1) && list_walk_get(&behind, &key, &record);
}

void list_walk_next(struct list_walk *walk)
{
	row_cursor_next(&walk->at);
}

void list_walk_seek(struct list_walk *walk, const struct key *key)
{
	struct slice object;

	if (key_in_bucket(key, walk->bucket_id, &object))
		row_tree_seek(walk->at.tree, object, &walk->at);
	else
		row_cursor_end(&walk->at);
}
