/* store/store_priv.h: what the files of store share.
 *
 *   caller's fiber                committer (a fiber of the first reactor)      index thread
 *   put/delete/bucket calls  ──►  queue ─► decide in order ─► group ─►          apply to RocksDB,
 *                                 write bodies + log, one fdatasync ─►          unpin, free space
 *                                 publish in the hot table ─► wake        ──►   of the dead
 *
 * The checkpoint thread flushes RocksDB and moves the log's tail. */
#ifndef STORE_PRIV_H
#define STORE_PRIV_H

#include "store/store.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "codec/crc.h"
#include "store/journal.h"
#include "store/volume.h"

#define SEGMENT_BYTES	    (64 * MIB)
#define SEGMENT_CHECKS_MAX  ((uint32_t)(SEGMENT_BYTES / STORE_CHECK_BYTES))
#define SEGMENT_EXTENTS_MAX ((uint32_t)(SEGMENT_BYTES / BLOCK_BYTES))
#define SEGMENTS_MAX	    ((uint32_t)(LIMIT_PUT_BYTES_MAX / SEGMENT_BYTES))
#define CHUNK_BLOCKS	    (STORE_CHUNK_BYTES / BLOCK_BYTES)
#define VOLUME_LOG_OFFSET   (1 * MIB)
#define STORE_VERSION	    1u
#define INDEX_VERSION	    2u /* 1: without versions, is read, too */
/* What an index holds beyond its version, a bit each. The low half a program must know to open it;
 * the high half it may pass over: rows of their own, which it keeps. */
#define INDEX_FEATURES_NEEDED	0xffffu
#define INDEX_FEATURE_MESSAGES	(1u << 16)
#define INDEX_FEATURES		INDEX_FEATURE_MESSAGES /* those of this program */
#define STORE_LOG_BYTES_DEFAULT (64 * MIB)
#define STORE_LOG_BYTES_MIN	(256 * KIB)
/* What a group numbers in commit order: versions, messages. */
#define GROUP_NUMBER_SHIFT 20u

/* A group takes commits until one of these is reached. */
#define GROUP_COMMITS_MAX 256u
#define GROUP_BYTES_GOAL  (1 * MIB)
#define GROUP_PIECES_MAX  1024u
/* Groups written but not applied to the index yet; beyond it the committer waits. */
#define INDEX_LAG_BYTES_MAX (16 * MIB)
/* Bodies larger than this are flushed by their own fiber before they are committed, so that
 * recovery has little to verify. */
#define BODY_VERIFY_BYTES_MAX (4 * MIB)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "structs are the disk's own");
_Static_assert(STORE_CHUNK_BYTES % STORE_CHECK_BYTES == 0, "a chunk is whole pieces");
_Static_assert(SEGMENT_BYTES % STORE_CHUNK_BYTES == 0, "a segment is whole chunks");
_Static_assert(STORE_GROUPED_BYTES_MAX <= STORE_CHUNK_BYTES, "a grouped body is one run");
_Static_assert(GROUP_PIECES_MAX <= DISK_IOV_MAX, "a group's bodies fit one write");
_Static_assert(BLOCK_BYTES == FRAME_BYTES, "frames go to blocks as they are");

/* ---- waiter.c: a fiber that waits for another thread. The flag is set on the fiber's own reactor,
 * so that the waiter may go away as soon as it sees it. ---- */
struct waiter {
	struct reactor_msg msg;
	struct fiber *fiber;
	struct reactor *reactor;
	struct waiter *next;
	bool done;
};
void waiter_init(struct waiter *waiter);
void waiter_wait(struct waiter *waiter);
/* Any thread; the last touch. */
void waiter_wake(struct waiter *waiter);
void waiters_wake(struct waiter *waiters); /* linked by next */

/* ---- space.c: the allocator. Any thread. ---- */
struct space;
int space_open(uint64_t first_block, uint64_t block_count, struct space **ret_space);
void space_close(struct space *space);
/* Runs are stripes with so many shards of data: a lease of blocks of data takes a part of them, and
 * answers a striped address. Before the first lease. */
void space_stripe(struct space *space, uint32_t data);
/* Takes blocks that were grown; block_count is the volume's new total. -ENOMEM. */
int space_grow(struct space *space, uint64_t block_count);
/* A run of up to `blocks` (1 to CHUNK_BLOCKS), the whole of it where there is such a run; otherwise
 * the longest there is. Returns its length, 0 when nothing is free. */
uint32_t space_lease(struct space *space, uint32_t blocks, uint64_t *ret_block);
/* CHECKs that they were in use. */
void space_give(struct space *space, uint64_t block, uint32_t blocks);
/* Between the two nothing that is given back is leased anew. */
void space_hold(struct space *space);
void space_let_go(struct space *space);
/* For discarding: the next run of each volume that is free in a chunk to which something was given
 * back, from *cursor on (a block, 0 at first; moved on). It is as if leased until end, so that
 * nobody is given it meanwhile. Returns its length; 0: there is no more. A chunk is gone through
 * once, until something is given back to it again. */
uint64_t space_discard_begin(struct space *space, uint64_t *cursor, uint64_t *ret_block);
void space_discard_end(struct space *space, uint64_t block, uint64_t blocks);
/* Recovery and fsck: marks a run as used. -EEXIST: some of it already was (all of it is now);
 * -ERANGE: outside. */
int space_mark(struct space *space, uint64_t block, uint32_t blocks);
uint64_t space_free_blocks(struct space *space);
uint64_t space_used_blocks(struct space *space);
/* The bitmap, for snapshots and comparison: word idx, 1: in use. */
uint64_t space_word_count(const struct space *space);
uint64_t space_word(const struct space *space, uint64_t word_idx);
void space_word_set(struct space *space, uint64_t word_idx, uint64_t word);

/* ---- object.c: an object as it is in memory: one instance per object, shared, counted. ---- */
struct extent {
	uint64_t block;
	uint32_t blocks;
	uint32_t start; /* blocks of the segment before this one */
};

struct segment {
	uint32_t extent_count;
	uint32_t extent_cap;
	uint32_t check_count;
	uint32_t blocks;
	_Atomic uint32_t refs; /* of an adopted object and its adopter */
	uint32_t *checks;      /* SEGMENT_CHECKS_MAX at most; allocated with the struct */
	uint32_t check_cap;
	uint32_t tag_count; /* of each check, or 0 */
	uint8_t *tags;	    /* STORE_TAG_BYTES each; NULL: none */
	struct extent *extents;
};

/* A stretch of an object's bytes that was written as one body: all of a plain object, or one of the
 * bodies that it adopted. */
struct object_part {
	uint64_t data_id; /* names its rows and cached chunks */
	uint64_t bytes;
	uint64_t start;		/* in the object */
	uint32_t segment_first; /* of the object's */
	uint32_t segment_count;
};
/* As it stands in a record. */
struct part_record {
	uint64_t data_id;
	uint64_t bytes;
};
_Static_assert(sizeof(struct part_record) == 16, "as docs/spec/disk.md has it");

enum object_body { BODY_EMPTY, BODY_INLINE, BODY_DIRECT, BODY_SEGMENTED, BODY_MARKER };

struct object {
	_Atomic uint32_t refs;
	_Atomic bool dead;     /* replaced or deleted: its space is freed with the last reference */
	_Atomic bool unseated; /* no longer what its key holds, as those who watch it have heard */
	_Atomic bool watched;  /* has been: watches must be looked at */
	bool body_flushed;     /* durable before its group was written */
	uint8_t body;	       /* enum object_body */
	uint32_t segment_count; /* by length; 0 for empty and inline */
	uint32_t bytes_in_memory;
	uint64_t data_id;
	uint64_t seq;		/* among its key's versions; 0: a current null version */
	struct store_meta meta; /* headers point into tail */
	char *inline_data;	/* into tail */
	bool has_tag;		/* an inline body's only one */
	uint8_t tag[STORE_TAG_BYTES];
	_Atomic(struct segment *)
		*segments;   /* NULL entries are loaded from the index when needed */
	uint32_t part_count; /* 1: plain */
	uint32_t adopted_at; /* my first segment among the adopter's */
	struct object_part *parts;
	struct object_part whole; /* a plain object's only part */
	/* Who has my body now, with a reference: so its space stays while I am read. */
	_Atomic(struct object *) adopter;
	struct store_watch *watches; /* under the store's watch_lock */
};
/* With one reference; copies meta's headers. -ENOMEM. */
int object_open(const struct store_meta *meta, uint64_t data_id, uint32_t inline_bytes,
	struct object **ret_object);
/* An object of several bodies, one after the other. -EUCLEAN: they do not make up meta->bytes. */
int object_open_parts(const struct store_meta *meta, uint64_t data_id,
	const struct part_record *parts, uint32_t part_count, struct object **ret_object);
/* The same body with other headers. -ENOMEM. */
int object_open_edited(const struct object *from, struct slice headers, struct object **ret_object);
/* Gives `to` the segments of `from` that are in memory, from its own segment `at` on. */
void object_segments_share(const struct object *from, struct object *to, uint32_t at);
const struct object_part *object_part_find(const struct object *object, uint64_t offset);
/* The part that holds the offset. */
static inline const struct object_part *object_part(const struct object *object, uint64_t offset)
{
	if (__builtin_expect(object->part_count == 1, 1))
		return object->parts;
	return object_part_find(object, offset);
}
/* The part that a segment belongs to. */
const struct object_part *object_part_of(const struct object *object, uint32_t segment_idx);
/* Where a segment begins in the object, and how many bytes of it the segment has. */
void object_segment_range(
	const struct object *object, uint32_t segment_idx, uint64_t *ret_from, uint64_t *ret_bytes);
/* Memory of all its segments, once loaded. */
size_t object_segments_memory(const struct object *object);
static inline struct object *object_get(struct object *object)
{
	atomic_fetch_add_explicit(&object->refs, 1, memory_order_relaxed);
	return object;
}
/* Drops a reference; with the last one of a dead object its space and cached chunks go. Takes NULL.
 * Any thread. */
void object_put(struct store *store, struct object *object);
/* The segment, from memory or the index; may block: not on a reactor's own thread unless it is
 * loaded. -EIO, -ENOMEM. */
int object_segment_load(
	struct store *store, struct object *object, uint32_t segment_idx, struct segment **ret);
int segment_open(uint32_t extent_cap, uint32_t check_cap, struct segment **ret_segment);
void segment_close(struct segment *segment); /* drops a reference; takes NULL */
static inline struct segment *segment_get(struct segment *segment)
{
	atomic_fetch_add_explicit(&segment->refs, 1, memory_order_relaxed);
	return segment;
}
/* Whether a segment covers so many bytes, no more and no less. */
bool segment_covers(const struct segment *segment, uint64_t bytes);
/* Adds a run, joined with the one before where they touch. -ENOMEM. */
int segment_add(struct segment *segment, uint64_t block, uint32_t blocks);
/* The tag of the check that comes next. -EINVAL: there is room for no more; -ENOMEM. */
int segment_tag_add(struct segment *segment, const uint8_t tag[STORE_TAG_BYTES]);
/* Where the segment's byte `offset` lies, and how many bytes follow contiguously. */
int segment_find(const struct segment *segment, uint64_t offset, uint64_t *ret_volume_offset,
	uint64_t *ret_bytes);

/* ---- record.c: keys and values of the index. ---- */
#define SEGMENT_KEY_BYTES 13u
#define KEY_BYTES_MAX	  (1u + 8u + 2u * LIMIT_KEY_LEN_MAX + 2u + 8u) /* a version's, escaped */
struct key {
	uint32_t len;
	uint8_t bytes[KEY_BYTES_MAX + 7];
};
/* The least key above all that start with this one; false when there is none. */
bool key_successor(struct key *key);
void key_state(struct key *key);
void key_bucket(struct key *key, struct slice name);
void key_object(struct key *key, uint64_t bucket_id, struct slice object_key);
void key_version(struct key *key, uint64_t bucket_id, struct slice object_key, uint64_t seq);
/* The prefix of all versions of one object, and that of all objects with a prefix. */
void key_versions(struct key *key, uint64_t bucket_id, struct slice object_key);
void key_version_prefix(struct key *key, uint64_t bucket_id, struct slice prefix);
struct object_name {
	uint32_t key_len;
	char key[LIMIT_KEY_LEN_MAX];
	uint64_t seq;
};
/* -EUCLEAN: not a version's key. */
int key_version_parse(struct slice index_key, struct object_name *ret_name);
void key_null(struct key *key, uint64_t bucket_id, struct slice object_key);
void key_inline(struct key *key, uint64_t data_id);
void key_segment(struct key *key, uint64_t data_id, uint32_t segment_idx);
/* The prefix of all of an object's segments. */
void key_segments(struct key *key, uint64_t data_id);
void key_message(struct key *key, uint64_t number);
/* Whether a row has an object's record: of a current version, a former one, a null version. */
bool key_is_object(struct slice key);
/* Whether a row is put once, and deleted once: of a body (inline, a segment), a message. */
bool key_is_used_once(struct slice key);

struct state_record {
	uint32_t version;
	uint32_t features;
	uint8_t uuid[16];
	uint64_t applied_seq;
	uint64_t data_id_next;
	uint64_t bucket_id_next;
};
_Static_assert(sizeof(struct state_record) == 48, "as docs/spec/disk.md has it");

size_t record_bytes(const struct object *object);
/* Writes record_bytes(). */
void record_put(const struct object *object, uint8_t *out);
/* -EUCLEAN: not a record. A direct body's segment is loaded; an inline body is room to be filled.
 */
int record_parse(struct slice value, struct object **ret_object);
/* Only what a list needs, which is the record's first record_meta_bytes(); headers stay NULL.
 * -EUCLEAN. */
int record_parse_meta(struct slice value, struct store_meta *ret_meta);
size_t record_meta_bytes(struct slice value);
uint64_t record_seq(struct slice value); /* 0: it has none */
/* The number of the body whose extents the row names; UINT64_MAX: it names none. */
uint64_t record_body(struct slice key, struct slice value);
size_t segment_record_bytes(const struct segment *segment);
void segment_record_put(const struct segment *segment, uint8_t *out);
int segment_record_parse(struct slice value, struct segment **ret_segment);
#define BUCKET_RECORD_BYTES_MAX (24u + 64u + 32u)
size_t bucket_record_put(const struct store_bucket *bucket, uint8_t out[BUCKET_RECORD_BYTES_MAX]);
int bucket_record_parse(struct slice name, struct slice value, struct store_bucket *ret_bucket);

/* ---- shown.c ---- */
#define SHOWN_BYTES_MAX 1024u
/* A name that users chose, for a terminal: valid UTF-8 stays, all that would not be seen as it is
 * (control characters, other bytes, backslashes) is written as \\xHH. */
void shown_put(struct buf *out, struct slice text);

/* ---- bucket.c: all buckets, in memory, by name and by id. ---- */
struct bucket {
	struct store_bucket info;
	_Atomic uint32_t refs;
	_Atomic bool dead;
	_Atomic uint64_t objects; /* the committer writes it */
	struct bucket *by_name;
	struct bucket *by_id;
};
struct buckets;
int buckets_open(struct buckets **ret_buckets);
void buckets_close(struct buckets *buckets);
/* A reference, or NULL. Any thread. */
struct bucket *buckets_find(struct buckets *buckets, struct slice name);
struct bucket *buckets_find_id(struct buckets *buckets, uint64_t id);
/* The id alone, without a reference; 0: no such bucket. */
uint64_t buckets_find_id_of(struct buckets *buckets, struct slice name);
void bucket_put(struct bucket *bucket);
uint32_t buckets_count(struct buckets *buckets);
/* -ENOMEM; the name must not be there. */
int buckets_add(struct buckets *buckets, const struct store_bucket *info);
/* Takes over versioning and flags. */
void buckets_change(
	struct buckets *buckets, struct bucket *bucket, const struct store_bucket *info);
/* A copy of what the bucket is now. */
void buckets_info(struct buckets *buckets, struct bucket *bucket, struct store_bucket *ret_info);
void buckets_remove(struct buckets *buckets, struct bucket *bucket);
/* Buckets after a name, in order, copied; *ret_count of them, to be freed. -ENOMEM. */
int buckets_sorted(struct buckets *buckets, struct slice after, struct store_bucket **ret_sorted,
	uint32_t *ret_count);
void buckets_visit(struct buckets *buckets, void (*visit)(struct bucket *, void *), void *arg);

/* ---- hot.c: the record table in front of the index. ---- */
struct hot;
/* Beside what keys hold now, with the bucket's id alone, the table has what other rows hold: a bit
 * of the id says which. A version's key has its sequence number behind it. */
#define HOT_VERSION (1ull << 63)
#define HOT_NULL    (1ull << 62)
#define HOT_KINDS   (HOT_VERSION | HOT_NULL)
struct hot_entry {
	struct hot_entry *chain;
	struct object *object;	/* published; NULL: known to be absent */
	struct object *pending; /* the committer's: decided in the group being written */
	bool has_pending;
	bool loading;
	bool used;
	uint32_t pins;
	uint32_t bytes;
	uint64_t hash;
	uint64_t bucket_id;
	_Atomic uint32_t
		changes; /* of the key's versions, counted when decided and when published */
	struct waiter *waiters;
	struct list clock;
	uint16_t key_len;
	char key[];
};
int hot_open(struct store *store, uint64_t bytes_max, struct hot **ret_hot);
void hot_close(struct hot *hot);
/* From memory alone: 1 with *ret_object a reference (NULL: known absent); 0: not in memory. */
int hot_find(struct hot *hot, uint64_t bucket_id, struct slice key, struct object **ret_object);
/* Pins the entry, loading it from the index when it must. Fiber call. -ENOMEM, -EIO. */
int hot_pin(struct hot *hot, uint64_t bucket_id, struct slice key, struct hot_entry **ret_entry);
int hot_pin_version(struct hot *hot, uint64_t bucket_id, struct slice key, uint64_t seq,
	struct hot_entry **ret_entry);
/* Pins the entry of a version (seq 0: the null version's) that has no row, without asking the
 * index. Any thread. NULL: no memory. */
struct hot_entry *hot_pin_fresh(
	struct hot *hot, uint64_t bucket_id, struct slice key, uint64_t seq);
/* Once more, of a pinned entry. */
void hot_pin_more(struct hot *hot, struct hot_entry *entry);
/* The index key of an entry. */
void hot_key(const struct hot_entry *entry, struct key *ret_key);
void hot_unpin(struct hot *hot, struct hot_entry *entry);
/* The entry's published object with a reference, or NULL. The entry is pinned. */
struct object *hot_object(struct hot *hot, struct hot_entry *entry);
/* Publishes object (taking over the caller's reference) and returns what it replaces, with its
 * reference. The entry is pinned. */
struct object *hot_publish(struct hot *hot, struct hot_entry *entry, struct object *object);

/* ---- cache.c: verified chunks in region frames. Any thread. ---- */
struct cache;
int cache_open(struct region *region, uint64_t bytes_max, struct cache **ret_cache);
void cache_close(struct cache *cache);
bool cache_find(struct cache *cache, uint64_t data_id, uint32_t chunk_idx, uint32_t bytes,
	struct region_span *ret_span);
struct cache_offer {
	uint64_t data_id;
	uint32_t chunk_idx;
	uint32_t bytes;
	struct region_span span;
	enum region_owner owner; /* who holds it now */
	bool keep_reference;	 /* the caller keeps one of its own */
};
/* Takes the span over as OWNER_CACHE, or declines: false, and nothing changed. */
bool cache_add(struct cache *cache, const struct cache_offer *offer);
void cache_drop(struct cache *cache, uint64_t data_id, uint32_t chunk_count);
uint32_t cache_shrink(struct cache *cache, uint32_t frames);
uint64_t cache_bytes(struct cache *cache);

/* ---- coalesce.c: the mutations of many groups, the last of each key. Empty when zeroed. ---- */
struct coalesce {
	struct mutation *rows; /* in the log's order; keys and values lie in the groups */
	const struct mutation **order;
	uint32_t count;
	uint32_t cap;
	uint32_t settled_count; /* of order: what is left, by key */
};
void coalesce_close(struct coalesce *coalesce);
void coalesce_reset(struct coalesce *coalesce); /* empties it and keeps the memory */
/* Adds a group's `count` mutations, none of which is a deletion by prefix; the group must outlive
 * them. -ENOMEM; -EUCLEAN: it has fewer. */
int coalesce_add(struct coalesce *coalesce, struct slice group, uint32_t count);
void coalesce_settle(struct coalesce *coalesce);

/* ---- index.c: RocksDB, its thread and the checkpoints. ---- */
struct index;
struct index_opts {
	const char *dir;
	uint64_t cache_bytes;
	uint64_t write_buffer_bytes;
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
/* Applies a group's mutations and the state, at once. Blocks. */
int index_apply(struct index *index, struct slice group, const struct state_record *state);
/* The same of what a settled coalesce has left. Blocks. */
int index_apply_coalesced(
	struct index *index, const struct coalesce *coalesce, const struct state_record *state);
/* The state alone, likewise. Blocks. */
int index_state_write(struct index *index, const struct state_record *state);
/* Makes all that was applied durable. Blocks. */
int index_flush(struct index *index);
/* Calls visit for every row from a prefix; false stops. Blocks. */
typedef bool index_visit_fn(struct slice key, struct slice value, void *arg);
int index_visit(struct index *index, struct slice prefix, index_visit_fn *visit, void *arg);
/* An iterator over [from, to). */
struct index_walk;
int index_walk_open(
	struct index *index, struct slice from, struct slice to, struct index_walk **ret_walk);
/* Several, of the same state of the index; on failure those that were opened stay so. */
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

/* ---- applier.c: the index thread and the checkpoint thread. ---- */
struct applier {
	pthread_t apply_thread;
	pthread_t checkpoint_thread;
	pthread_mutex_t lock;
	pthread_cond_t work;	   /* the index thread waits */
	pthread_cond_t checkpoint; /* the checkpoint thread waits */
	struct group *first, *last;
	struct group *spare; /* kept buffers */
	uint32_t spare_count;
	struct coalesce coalesce; /* the index thread's */
	uint64_t queued_bytes;	  /* with what is being applied */
	uint64_t waiting_bytes;	  /* of the queue */
	uint64_t waiting_since_ns;
	uint64_t applied_seq;
	uint64_t applied_pos;	/* end of the last applied group */
	struct waiter *waiters; /* fibers waiting for any progress */
	bool checkpoint_wanted;
	bool hurry; /* somebody waits: what is queued is applied now */
	bool stopping;
	bool started;
	bool failed;
};
/* Groups wait for one another until so many bytes are queued, or so long, so that they are applied
 * together; whoever needs the index up to date has it hurry. */
#define APPLY_BYTES_GOAL (1 * MIB)
#define APPLY_WAIT_NS	 (50 * NS_PER_MS)
void applier_init(struct applier *applier);
int applier_start(struct store *store);
/* Ends the threads when the queue is empty, and takes init back. */
void applier_stop(struct store *store);
/* Takes the group over. */
void applier_push(struct store *store, struct group *group);
struct group *applier_group(struct store *store); /* a fresh or kept one; NULL: no memory */
void applier_group_give(struct store *store, struct group *group); /* one that was not written */
/* Fiber call: until everything up to seq is applied. -EIO: the index failed. */
int applier_wait(struct store *store, uint64_t seq);
/* Fiber call: until everything published so far is applied, and the space of what it replaced is
 * free but for what is being read. -EIO. */
int applier_settle(struct store *store);
/* Fiber call: until the log has room for a group that ends at end_pos and the index keeps up. */
int applier_wait_room(struct store *store, uint64_t end_pos);
/* A checkpoint on the calling thread. Blocks. */
int applier_checkpoint_now(struct store *store);
/* The same, and the log goes on in a new epoch: what it has behind the tail counts no more. All
 * that was published is applied, and no group is on its way. */
int applier_checkpoint_anew(struct store *store);

/* ---- commit.c: deciding and publishing; committer.c: the fiber and its writes. ---- */
/* What becomes of what an entry held: its body ends; it lives on elsewhere; its body lives on in
 * the object that takes its place. */
enum change_old { OLD_DIES, OLD_STAYS, OLD_EDITED };
#define CHANGE_NEW     1u /* an object or a delete marker more */
#define CHANGE_BODY    2u /* the body's rows are new, too */
#define CHANGE_FLUSHED 4u /* the body is durable already */
struct change {
	struct hot_entry *entry; /* pinned: the group's when published */
	struct object *object;	 /* what it will hold; NULL: nothing */
	uint8_t old;		 /* enum change_old */
	uint8_t flags;
};
#define CHANGES_MAX 3u
enum commit_item_kind { ITEM_WRITE, ITEM_EDIT, ITEM_VERSION_DELETE };
/* Entries are pinned by the caller, who unpins them after; but for `entry` when it was taken. */
struct commit_item {
	struct hot_entry *entry; /* the key's current version; of an edit: the version's own */
	enum commit_item_kind kind;
	struct object *object; /* NULL: delete; the table's when decided and durable */
	store_check_fn *check;
	store_edit_fn *edit;
	void *arg;
	struct store_flags flags;     /* of an edit: bits to set */
	struct slice version_id;      /* that is meant; empty: the current */
	struct hot_entry *null_entry; /* where versioning was suspended */
	/* Of the deletion of a version: its entry (NULL: it is the current), one that is newer, the
	 * one that comes after it, and when that was so. */
	struct hot_entry *target, *newest, *promote;
	uint32_t changes_seen;
	uint64_t mtime_ns; /* out, as what follows; in, when it is not 0: it stays */
	char ret_version_id[33];
	bool ret_marker;
	struct store_message *message; /* or NULL */
	int result;		       /* -ERESTART: look again what is there */
	bool decided;		       /* has mutations in the group */
	bool entry_taken;	       /* entry's pin is the group's */
	uint32_t change_count;
	struct change changes[CHANGES_MAX];
};
struct adoption;
enum commit_kind {
	COMMIT_ITEMS,
	COMMIT_MESSAGES_END,
	COMMIT_BUCKET_CREATE,
	COMMIT_BUCKET_EDIT,
	COMMIT_BUCKET_DELETE
};
struct commit {
	struct mpsc_node node;
	struct commit *next; /* in its group */
	enum commit_kind kind;
	struct bucket *bucket;		 /* borrowed; of a bucket's own commits: by the committer */
	struct store_bucket bucket_info; /* of a creation; the name, of the others */
	store_bucket_edit_fn *bucket_edit;
	void *arg;
	struct commit_item *items;
	uint32_t item_count;
	uint32_t number_count; /* of messages that end */
	const uint64_t *numbers;
	struct adoption *adoption; /* what the (one) item's object adopts; or NULL */
	struct append *append;	   /* what the (one) item's object has its body behind; or NULL */
	struct region_span span;   /* a grouped body, OWNER_DISK; data NULL: none */
	uint32_t span_segment;	   /* of the object: the grouped body's */
	uint64_t regains;	   /* as they were when a body was begun; 0: none was written */
	int result;
	struct waiter waiter;
};
/* Fiber call: queues it and waits; fills in the results. */
void commit_run(struct store *store, struct commit *commit);
/* Fiber call: until every group that was begun before is written and published. */
void commit_barrier(struct store *store);
/* Upper bound of what the commit adds to a group. */
size_t commit_bytes(const struct commit *commit);
/* Decides each item against what its key holds, in order, and adds the mutations. Room is there. */
void commit_decide(struct store *store, struct commit *commit, struct group *group);
/* Makes it visible, once it is durable; or takes it back with the error. */
void commit_publish(struct store *store, struct commit *commit, struct group *group);
void commit_undo(struct store *store, struct commit *commit, int error);

/* ---- decide.c: one item. ---- */
/* Upper bound of what it adds to a group. */
size_t commit_item_bytes(const struct commit_item *item, const struct commit *commit);
void commit_item_decide(struct store *store, const struct commit *commit, struct commit_item *item,
	struct group *group);
/* The next number of what the group being decided has in order. */
uint64_t group_number_next(const struct store *store, struct group *group);
/* Takes back what was decided. */
void commit_item_drop(struct store *store, struct commit_item *item);

/* Deletes the rows of an object's bodies: so many mutations at most (NULL: of nothing). */
uint32_t commit_rows_max(const struct object *object);
void commit_rows_delete(struct group *group, const struct object *object);

/* ---- message.c: what commits leave to be told. ---- */
/* Upper bound of what the item's message adds to a group. */
size_t message_bytes(const struct commit_item *item);
/* Once the item is decided. */
void message_add(struct store *store, struct commit_item *item, struct group *group);
size_t messages_end_bytes(const struct commit *commit);
void messages_end_add(struct group *group, const struct commit *commit);
/* -EUCLEAN: no such row. */
int message_parse(struct slice key, struct slice value, uint64_t *ret_number,
	struct slice *ret_version_id, struct slice *ret_text);

/* ---- list.c, list_versions.c: pages. ---- */
/* Key and record lie one after the other in the page's bytes: few pages of memory are touched. */
struct list_row {
	uint32_t at;
	uint16_t key_len;
	uint16_t record_len; /* 0: a common prefix */
	bool latest;
};
/* One page: filled on a helper, read on the fiber. */
struct list_page {
	struct store *store;
	const struct store_list_opts *opts;
	uint64_t bucket_id;
	struct list_row *rows;
	uint32_t row_count;
	uint32_t row_cap;
	char *bytes;
	size_t bytes_len;
	size_t bytes_cap;
	bool more;
	int ret;
};
/* The length of the common prefix that the key falls under, or 0. */
size_t list_prefix_len(const struct store_list_opts *opts, struct slice key);
/* A key with the part of its record that lists need, or a common prefix (an empty record). -ENOMEM.
 */
int list_page_add(struct list_page *page, struct slice key, struct slice record, bool latest);
/* Fills a struct list_page with versions. Blocks. */
void list_versions_run(void *arg);

/* ---- version.c: which row a version has. ---- */
/* The sequence number that a version id stands for. False: no id of ours, or "null". */
bool version_seq_parse(struct slice version_id, uint64_t *ret_seq);
/* Fiber call: pins the entry that holds the version (empty: the current one, which need not be
 * there). By the time it is decided on it may hold another. -ENOENT: there is no such version. */
int version_pin(struct store *store, struct bucket *bucket, struct slice key,
	struct slice version_id, struct hot_entry **ret_entry);
/* Fiber call: what a deletion of the item's version_id needs besides the pinned entry: target,
 * newest, promote. -ENOENT: there is no such version. */
int version_prepare(struct store *store, struct bucket *bucket, struct commit_item *item);
void version_unprepare(struct store *store, struct commit_item *item);

/* ---- adopt.c: bodies that change their object and stay where they are. ---- */
struct adopted {
	struct bucket *bucket;	 /* with a reference */
	struct hot_entry *entry; /* pinned; the group's when decided */
	struct object *object;	 /* with a reference */
	bool dropped;		 /* deleted together with its body */
	bool moved;		 /* what has its body is what it was, under another key */
	uint32_t segment_first;	 /* among the adopter's */
};
struct adoption {
	struct adopted *list;
	uint32_t count;
	uint32_t cap;
	uint32_t adopted_count; /* those that are not just dropped */
	uint64_t bytes;		/* theirs */
	bool decided;
};
/* Adds an object that the caller has open. -ESTALE, -EINVAL, -EFBIG, -ENOMEM. */
int adoption_add(struct store *store, struct adoption *adoption, struct bucket *bucket,
	struct slice key, const struct store_get *get, bool drop);
/* The same of one that is to have another key, whatever its body is. */
int adoption_move(struct store *store, struct adoption *adoption, struct bucket *bucket,
	struct slice key, const struct store_get *get);
/* The object of the adopted bodies. -EINVAL: meta->bytes is not their sum. */
int adoption_object(struct adoption *adoption, const struct store_meta *meta, uint64_t data_id,
	struct object **ret_object);
/* Upper bound of what it adds to a group. */
size_t adoption_bytes(const struct adoption *adoption);
/* Whether all is still as it was added (else -ESTALE); then it is taken out of the order. */
int adoption_decide(struct adoption *adoption, struct group *group);
void adoption_undo(struct adoption *adoption);
void adoption_publish(struct store *store, struct adoption *adoption, struct object *adopter,
	struct group *group);
void adoption_close(struct store *store, struct adoption *adoption);

/* ---- append.c: a body behind what its key holds. ---- */
struct append {
	struct object *base;   /* with a reference */
	struct segment *moved; /* where an inline base's body is now; NULL: it was none */
};
/* -E2BIG, -EINVAL: as store_put_append. */
int append_open(struct append *append, const struct bucket *bucket, const struct store_get *get);
/* The object of both, without the segments of the body that comes behind (data_id), which begin at
 * append_first. Fiber call. */
int append_object(struct store *store, struct append *append, const struct store_meta *meta,
	uint64_t data_id, struct object **ret_object);
uint32_t append_first(const struct object *object);
/* Upper bound of what its record and its rows add to a group; and the rows. */
size_t append_bytes(const struct append *append, const struct object *object);
void append_add(struct group *group, const struct append *append, const struct object *object,
	uint8_t flags);
void append_close(struct store *store, struct append *append, bool stored);

/* A contiguous part of a grouped body; nearly always the whole. */
struct body_piece {
	uint64_t block;
	uint32_t blocks;
	uint8_t *data;
};
struct committer {
	struct mpsc queue;
	struct reactor *reactor;
	struct fiber *fiber;
	struct reactor_msg kick;
	_Atomic bool kicked;
	_Atomic uint32_t callers; /* fibers inside commit_run */
	bool ending;
	bool ended;
	struct waiter *end_waiter;
	uint64_t head_pos;
	struct carry carry;
	uint64_t seq_next;
	uint64_t mtime_last_ns;
	_Atomic uint64_t published_seq;
	struct commit *held;  /* taken from the queue, starts the next group */
	uint64_t ended_ns;    /* when the last group was on the medium */
	uint64_t write_ns;    /* what that usually takes */
	uint32_t woken;	      /* by the last group */
	bool parked;	      /* nothing waited since */
	uint32_t await_skips; /* groups that wait for nobody */
	uint32_t await_misses;
	bool writing; /* until the group is on the medium */
	int32_t write_result;
	struct disk_commit write;
	uint32_t piece_count; /* of the group under way */
	struct body_piece pieces[GROUP_PIECES_MAX];
	struct iovec iov[GROUP_PIECES_MAX + 1];
	struct disk_io writes[GROUP_PIECES_MAX + 1]; /* the bodies', then the log's */
};
int committer_open(struct store *store, struct reactor *reactor);
/* Fiber call on the committer's reactor: ends it when the queue is empty. */
void committer_end(struct store *store);

/* ---- grow.c: room. ---- */
/* Fiber call: a run of up to `blocks`, growing the volume when it is full or too broken up for so
 * many. -ENOSPC. */
int grow_lease(struct store *store, uint32_t blocks, uint64_t *ret_block, uint32_t *ret_blocks);
/* -ENOSPC when the file system's free space is below the reserve; looked up once a second. */
int grow_check(struct store *store);

/* ---- discard.c ---- */
/* Tells the volume of all that was given back since the last time. Fiber call. */
int discard_pass(struct store *store, uint64_t bytes_per_s);

/* ---- The store. ---- */
#define STORE_GET_MAGIC 0x5707e6e7u
struct store_get {
	uint32_t magic; /* until it is closed */
	struct store *store;
	struct object *object; /* a reference */
	struct store_get *next_free;
};

/* Where the caller comes in. */
static inline void store_get_check(const struct store_get *get)
{
	CHECK(get->magic == STORE_GET_MAGIC);
	CHECK(atomic_load_explicit(&get->object->refs, memory_order_relaxed) > 0);
}

struct store_core {
	struct reactor *reactor;
	struct store_get *free_gets;
};

struct store {
	struct store_opts opts;
	char dir[4096 - 64];
	int lock_fd;
	struct region *region;
	struct volume volume;
	uint16_t target;
	struct space *space;
	struct index *index;
	struct hot *hot;
	struct cache *cache;
	struct buckets *buckets;
	struct applier *applier;
	struct committer *committer;
	struct rebuild_noted *noted;
	_Atomic uint64_t data_id_next;
	_Atomic uint64_t bucket_id_next;
	struct buf *findings;	 /* of a check: where they go; NULL: to the log */
	struct salvage *salvage; /* NULL: damage of the log is refused */
	uint32_t features;	 /* of the index, with those that this program does not know */
	uint64_t message_first;	 /* of this start: those below are of earlier ones */
	_Atomic uint64_t objects;
	_Atomic uint64_t tail_pos; /* of the log */
	_Atomic bool fenced;
	_Atomic bool suspended; /* too few volumes: stripe_regain.c */
	_Atomic uint64_t
		regains; /* from 1: bodies that were written before one cannot be committed */
	_Atomic bool quiescing;
	/* Puts that are open, by the parity of the phase that they began in: who moves the phase on
	 * and waits knows that those before are over. */
	struct fiber *watcher;	/* of the volumes; on the committer's reactor */
	struct fiber *scrubber; /* there, too */
	struct fiber *discarder;
	_Atomic bool scrub_asked;
	_Atomic uint64_t scrub_done_bytes, scrub_all_bytes; /* of the run under way; 0: none is */
	_Atomic uint32_t put_phase;
	_Atomic uint32_t puts_open[2];
	_Atomic uint64_t space_looked_ns;
	_Atomic bool space_low;
	_Atomic uint64_t full_told_ns;
	pthread_mutex_t grow_lock; /* of the next four */
	bool growing;
	int grow_result;
	uint64_t grow_ended_ns;
	struct waiter *grow_waiters;
	pthread_mutex_t watch_lock;
	struct list watches; /* struct store_watch.link */
	_Atomic uint64_t watch_epoch;
	struct store_core cores[LIMIT_CORES_MAX];
};

/* ---- watch.c ---- */
void object_unseat_watched(struct store *store, struct object *object);
/* Another object, or none, has taken its place in the record table: before the commit is told to
 * have been done. */
static inline void object_unseat(struct store *store, struct object *object)
{
	atomic_store(&object->unseated, true);
	if (__builtin_expect(atomic_load(&object->watched), 0))
		object_unseat_watched(store, object);
}

/* stripe_regain.c: too few volumes are left: what writes answers -EHOSTDOWN. Logs once. */
void stripe_suspend(struct store *store);
bool stripe_suspended(const struct store *store);
/* Whether fewer are good than are needed, be it noticed or not. Any thread. */
bool stripe_lacking(const struct store *store);
/* Fiber call of the watcher: 0 when enough are back, and writes are taken again. */
int stripe_regain(struct store *store);

/* The medium failed: everything that writes answers -EIO from now on; when it is that too few
 * volumes are left (-EHOSTDOWN), until they are back. Logs once. */
void store_fence(struct store *store, const char *what, int error);

/* 0, or what everything that writes is refused with. Any thread. */
static inline int store_refuses(const struct store *store)
{
	if (__builtin_expect(atomic_load_explicit(&store->fenced, memory_order_relaxed), 0))
		return -EIO;
	return __builtin_expect(atomic_load_explicit(&store->suspended, memory_order_relaxed), 0)
		       ? -EHOSTDOWN
		       : 0;
}

/* What is wrong with what was found on the medium: to the log, or among a check's findings. */
void store_find(const struct store *store, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- modes.c ---- */
/* Takes from all but their owner what rights they have to the store's directory and its files, and
 * says so; and what it had to leave. */
void modes_check(const char *dir);
/* The same of a volume that lies elsewhere; devices stay as they are. */
void modes_check_file(const char *path);

/* ---- store.c, replay.c, recover.c, snapshot.c: what a start and a check have in common. ---- */
struct store *store_alloc(const struct store_opts *opts);
/* Locks, opens volume and index, replays the log, loads the buckets; space is empty. */
int store_load(struct store *store, bool create);
void store_unload(struct store *store);
int recover_replay(struct store *store);
int recover_buckets(struct store *store);
/* Fills space and the buckets' counts from the index. */
int recover_scan(struct store *store);
/* Reads a segment of `bytes` and compares the checksums: 0, -EUCLEAN, -EIO. piece:
 * STORE_CHECK_BYTES, aligned to a block. */
int recover_segment_verify(
	struct volume *volume, const struct segment *segment, uint64_t bytes, uint8_t *piece);
/* A part of a segment, from a multiple of STORE_CHECK_BYTES on. */
struct recover_range {
	uint64_t from, to;
	bool amend; /* what other volumes have right is written anew */
};
int recover_range_verify(struct volume *volume, const struct segment *segment,
	const struct recover_range *range, uint8_t *piece);
/* Fills space and the buckets' counts from the snapshot. -ENOENT: there is none that counts. */
int snapshot_read(struct store *store);
/* The snapshot's bitmap alone, to be freed; also sets the buckets' counts. */
int snapshot_load(struct store *store, uint64_t **ret_words, uint64_t *ret_word_count);
int snapshot_write(struct store *store);
/* -EUCLEAN, told: a volume that is a file is shorter than the last clean end left it. */
int snapshot_size_check(const struct store *store);

#endif
