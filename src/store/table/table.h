/* store/table/table.h: the tables' interface within store: records of keys, and buckets. */
#ifndef STORE_TABLE_H
#define STORE_TABLE_H

#include "store/api.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "store/log/key.h"

struct object;
struct waiter;

/* ---- bucket.c: all buckets, in memory, by name and by id. ---- */
struct bucket {
	struct store_bucket info;
	_Atomic uint32_t refs;
	_Atomic bool dead;
	_Atomic uint64_t objects; /* its rows; the committer writes it when they are published */
	/* Of info, for other threads; 0: no limit. */
	_Atomic uint64_t quota_bytes, quota_objects;
	/* Counted as the quota counts; the committer writes them when it plans. */
	_Atomic uint64_t used_bytes, used_objects;
	struct store *memory; /* of a memory bucket: its objects; otherwise NULL, always */
	uint64_t memory_reserved;
	struct bucket *by_name;
	struct bucket *by_id;
};
struct buckets;
int buckets_open(struct buckets **ret_buckets);
void buckets_close(struct buckets *buckets);
/* A reference, or NULL. Any thread. */
struct bucket *buckets_find(struct buckets *buckets, struct slice name);
/* id: that the bucket must have, too; 0: any. */
struct bucket *buckets_find_of(struct buckets *buckets, struct slice name, uint64_t id);
struct bucket *buckets_find_id(struct buckets *buckets, uint64_t id);
/* Only the id, without a reference; 0: no such bucket, or a memory bucket. */
uint64_t buckets_find_id_of(struct buckets *buckets, struct slice name);
void bucket_put(struct bucket *bucket);
uint32_t buckets_count(struct buckets *buckets);
/* An empty one, which buckets_take fills, or free() ends; NULL: no memory. */
struct bucket *bucket_alloc(void);
/* The name must not exist. Takes over the bucket, and memory, which is NULL but of a memory bucket.
 */
void buckets_take(struct buckets *buckets, struct bucket *bucket, const struct store_bucket *info,
	struct store *memory);
/* At a start: both, for a bucket that is not in memory. -ENOMEM. */
int buckets_add(struct buckets *buckets, const struct store_bucket *info);
/* Takes over versioning, flags and quota. */
void buckets_change(
	struct buckets *buckets, struct bucket *bucket, const struct store_bucket *info);
/* A copy of the bucket's current state. */
void buckets_info(struct buckets *buckets, struct bucket *bucket, struct store_bucket *ret_info);
/* At a start, before other threads know the bucket. */
void bucket_quota_set(struct bucket *bucket, const struct store_quota *quota);
void bucket_used(const struct bucket *bucket, struct store_quota *ret_used);
/* Of the committer, or of a start. */
void bucket_used_add(struct bucket *bucket, int64_t bytes, int64_t objects);
void buckets_remove(struct buckets *buckets, struct bucket *bucket);
/* Buckets after a name, in order, copied; *ret_count of them, to be freed. -ENOMEM. */
int buckets_sorted(struct buckets *buckets, struct slice after, struct store_bucket **ret_sorted,
	uint32_t *ret_count);
void buckets_visit(struct buckets *buckets, void (*visit)(struct bucket *, void *), void *arg);

/* ---- record_table.c: the record table in front of the index. ---- */
struct record_table;
/* The table also has other rows than the current objects of keys (these have the plain bucket's
 * id): a bit of the id tells the kind. The key of a version has its sequence number at the end. */
#define ENTRY_VERSION (1ull << 63)
#define ENTRY_NULL    (1ull << 62)
#define ENTRY_KINDS   (ENTRY_VERSION | ENTRY_NULL)
struct record_entry {
	struct record_entry *chain;
	struct object *object;	/* published; NULL: known to be absent */
	struct object *pending; /* the committer's: planned in the current group */
	bool has_pending;
	bool loading;
	bool used;
	uint32_t pins;
	uint32_t bytes;
	uint64_t hash;
	uint64_t bucket_id;
	_Atomic uint32_t changes; /* changes of the key's versions, counted when planned and when
				     published */
	struct waiter *waiters;
	struct list clock;
	uint16_t key_len;
	char key[];
};
int record_table_open(struct store *store, uint64_t bytes_max, struct record_table **ret_table);
void record_table_close(struct record_table *table);
/* Looks in memory only: 1 with *ret_object a reference (NULL: known absent); 0: not in memory. */
int record_table_find(struct record_table *table, uint64_t bucket_id, struct slice key,
	struct object **ret_object);
/* Pins the entry; loads it from the index if needed. Fiber call. -ENOMEM, -EIO. */
int record_entry_pin(struct record_table *table, uint64_t bucket_id, struct slice key,
	struct record_entry **ret_entry);
int record_entry_pin_version(struct record_table *table, uint64_t bucket_id, struct slice key,
	uint64_t seq, struct record_entry **ret_entry);
/* Pins the entry of a version (seq 0: the null version's) that has no row, without a read of the
 * index. Any thread. NULL: no memory. */
struct record_entry *record_entry_pin_fresh(
	struct record_table *table, uint64_t bucket_id, struct slice key, uint64_t seq);
/* The entry's object at this point of the commit order: planned earlier in this group, or
 * published. Of the committer. */
static inline struct object *record_entry_view(const struct record_entry *entry)
{
	return entry->has_pending ? entry->pending : entry->object;
}
/* Adds a pin to a pinned entry. */
void record_entry_pin_more(struct record_table *table, struct record_entry *entry);
/* The index key of an entry. */
void record_entry_key(const struct record_entry *entry, struct key *ret_key);
void record_entry_unpin(struct record_table *table, struct record_entry *entry);
/* The entry's published object with a reference, or NULL. The entry is pinned. */
struct object *record_entry_object(struct record_table *table, struct record_entry *entry);
/* Publishes object (takes over the caller's reference) and returns the object that it replaces,
 * with its reference. The entry is pinned. */
struct object *record_entry_publish(
	struct record_table *table, struct record_entry *entry, struct object *object);

#endif
