/* store/memory/tree.h: the data of a store in memory: buckets in order of name, their keys in
 * order and by hash, the versions of each key, newest first, and all objects in the order of their
 * last use and of their age. All under the store's lock. */
#ifndef STORE_TREE_H
#define STORE_TREE_H

#include "store/engine.h"
#include "store/memory.h"

#include <pthread.h>

/* The bytes of one put: shared by the put's object and by the objects that are composed of it. Each
 * span but the last holds STORE_CHUNK_BYTES of it; their owner is OWNER_CACHE. */
struct body {
	uint32_t refs;
	uint32_t linked; /* parts of objects that are versions of keys */
	struct store *store;
	struct region *region;
	uint64_t body_number;
	uint64_t bytes;
	uint64_t frame_bytes; /* of its spans, as the region gives them out */
	uint32_t span_count, span_cap;
	struct region_span first; /* of a small body: no array */
	struct region_span *spans;
	uint32_t tag_count, tag_cap;
	uint8_t *tags; /* STORE_TAG_BYTES each, one for each STORE_CHECK_BYTES */
};

struct object_part {
	struct body *body; /* with a reference */
	uint64_t start;	   /* offset in the object */
};

struct object {
	uint32_t refs;
	bool superseded; /* no longer the object of its key */
	bool composable;
	bool ends;    /* set while a commit checks that it is named once */
	uint64_t seq; /* its order among the store's versions */
	struct store_meta meta;
	char *headers; /* meta's */
	uint32_t part_count;
	struct object_part *parts; /* at least one */
	struct store_object_watch *watches;
	/* While it is a version of a key. */
	struct key *key;
	struct list use, age; /* of the store's lists, newest last */
	uint64_t charge;      /* everything that it takes */
	uint64_t born_ns;     /* monotonic; an edit keeps it */
};

struct key {
	struct bucket *bucket;
	struct key *chain; /* of keys with the same slot */
	uint64_t hash;
	uint32_t version_count, version_cap;
	struct object **versions; /* newest first; each with a reference */
	uint16_t len;
	char name[];
};

/* A bucket's keys: leaves of sorted keys, in order, and a hash table over all. */
#define LEAF_KEYS_MAX 256u
struct leaf {
	uint32_t count;
	struct key *keys[LEAF_KEYS_MAX];
};
struct keys {
	struct leaf **leaves; /* none is empty */
	uint32_t leaf_count, leaf_cap;
	struct key **slots;
	uint32_t slot_count; /* a power of two, or 0 */
	uint32_t count;
	uint64_t seed[2];
};
struct key_place {
	uint32_t leaf, at;
};

struct bucket {
	struct store_bucket info;
	uint32_t refs;
	bool dead;
	bool ending; /* its deletion is being committed: it takes no object */
	struct keys keys;
	struct store_quota used; /* as its quota counts */
};

struct store {
	struct store_head head;
	_Atomic uint32_t refs; /* the opener, and all that is open */
	struct store_memory_opts opts;
	pthread_mutex_t lock;
	struct bucket **buckets;
	uint32_t bucket_count, bucket_cap;
	uint64_t seq_last; /* last number of a version, bucket or outbox row */
	uint64_t mtime_last_ns;
	_Atomic uint64_t own_epoch, own_body_numbers; /* where opts has none */
	struct list watches;			      /* struct store_object_watch.link */
	struct list by_use, by_age;		      /* of objects, oldest first */
	uint64_t loose_bytes; /* frames of bodies that are in no version of a key */
	_Atomic uint64_t *reserved;
	uint64_t reserved_bytes; /* given back when nothing is loose */
	struct store_memory_status status;
};

struct store_get {
	struct store_get_head head;
	struct store *store;
	struct object *object; /* a reference */
};

/* Makes room for one more element; -ENOMEM. */
int memory_array_reserve(void **array, uint32_t count, uint32_t *cap, size_t element_bytes);
struct store *memory_store_get(struct store *store); /* a reference; returns it */
void memory_store_put(struct store *store);

struct bucket *memory_bucket_find(const struct store *store, struct slice name);
/* id: that the bucket must have, too; 0: any. */
struct bucket *memory_bucket_find_of(const struct store *store, struct slice name, uint64_t id);
/* NULL: no bucket has the id. */
struct bucket *memory_bucket_find_id(const struct store *store, uint64_t id);
/* Whether the bucket has room for an object of that many bytes at the key; -EDQUOT. */
int memory_quota_room(const struct bucket *bucket, struct slice key, int64_t bytes);
/* The index of the name, or the index where it would be inserted. */
uint32_t memory_bucket_place(const struct store *store, struct slice name);
void memory_bucket_put(
	struct store *store, struct bucket *bucket); /* drops a reference; takes NULL */

/* ---- keys.c ---- */
struct key *memory_key_find(const struct bucket *bucket, struct slice name);
/* The first key that is not before the name; past the last: NULL from memory_key_at. */
struct key_place memory_key_place(const struct bucket *bucket, struct slice name);
/* The first key behind all those that start with the prefix. */
struct key_place memory_key_behind(const struct bucket *bucket, struct slice prefix);
struct key *memory_key_at(const struct bucket *bucket, struct key_place place);
struct key_place memory_key_next(const struct bucket *bucket, struct key_place place);
/* A key without versions; NULL: out of memory. */
struct key *memory_key_open(struct bucket *bucket, struct slice name);
void memory_key_remove(struct key *key);
void memory_keys_close(struct keys *keys); /* there is no key left */

/* ---- tree.c ---- */
/* The current object of the key: NULL when there is none, or a delete marker. Takes NULL. */
struct object *memory_key_current(const struct key *key);
/* The key's version with that id (empty: the current one), and its index. */
struct object *memory_key_version(const struct key *key, struct slice version_id, uint32_t *ret_at);
static inline struct slice memory_key_name(const struct key *key)
{
	return slice_of(key->name, key->len);
}

/* Copies meta's headers; the caller fills in the parts. NULL: out of memory. */
struct object *memory_object_open(
	const struct store_meta *meta, struct slice headers, uint32_t part_count);
/* The same body with other headers. NULL: out of memory. */
struct object *memory_object_open_edited(const struct object *from, struct slice headers);
void memory_object_put(struct object *object); /* drops a reference; takes NULL */
const struct object_part *memory_object_part(const struct object *object, uint64_t offset);
/* Everything that the object takes at a key of that length. */
uint64_t memory_object_charge(const struct object *object, size_t key_len);
struct body *memory_body_open(struct store *store); /* NULL: out of memory */
void memory_body_put(struct body *body);	    /* drops a reference; takes NULL */
/* Adds the next bytes of the body, under the lock; takes the span over, whose owner is OWNER_CACHE.
 * -ENOMEM. */
int memory_body_add(struct body *body, struct region_span span, uint32_t bytes);
static inline const uint8_t *memory_body_at(const struct body *body, uint64_t offset)
{
	return body->spans[offset / STORE_CHUNK_BYTES].data + offset % STORE_CHUNK_BYTES;
}
/* The frames of a span, as the region gives them out: in powers of two. */
static inline uint32_t memory_frames_charged(uint32_t frames)
{
	return frames <= 1 ? 1 : 1u << (32 - __builtin_clz(frames - 1));
}

/* Puts a version on top of the key; makes the key if it does not exist. Takes the object over, also
 * on -ENOMEM. If the id is "null", the earlier null version ends. */
int memory_version_add(
	struct store *store, struct bucket *bucket, struct slice key, struct object *object);
/* Replaces the object by another, or by none; a key without versions is deleted. */
void memory_version_replace(
	struct store *store, struct key *key, uint32_t at, struct object *object);

/* ---- bound.c: the store's bounds. ---- */
/* Whether objects that take so much could ever be held, and, of a store that refuses, whether there
 * is room now: `freed` is what the same call frees. -EFBIG, -ENOSPC. */
int memory_bound_check(struct store *store, uint64_t bytes, uint64_t freed_bytes, uint64_t objects,
	uint64_t freed_objects);
/* Whether a body on its way may take so much more: it counts beside the objects, like the bodies
 * that readers keep of objects that ended. Objects that nobody reads make room. -ENOBUFS. */
int memory_bound_loose(struct store *store, uint64_t frame_bytes);
/* Ends objects used least recently until the bounds are kept, but not the one that is kept: opens
 * the lock in between. The caller holds a reference to the object. */
void memory_bound_keep_all(struct store *store, const struct object *keep);
/* The object was used. */
void memory_bound_used(struct store *store, struct object *object);
/* Takes the lock, at the start of each call: then no object is too old. Where many are, other
 * fibers run in between. */
void memory_lock_fresh(struct store *store);

/* ---- Calls of the engine; contracts in store/api.h. ---- */
int memory_put_open(
	struct store *store, const struct store_put_opts *opts, struct store_put **ret_put);
int memory_put_sink(struct store_put *put, struct flow_core *core, uint64_t bytes_total,
	struct flow_sink **ret_sink);
int memory_put_tagged(struct store_put *put, uint64_t offset, const uint8_t tag[STORE_TAG_BYTES]);
int memory_put_compose(struct store_put *put, struct slice bucket, struct slice key,
	const struct store_get *get, bool drop);
int memory_put_append(struct store_put *put, const struct store_get *get);
int memory_put_commit(
	struct store_put *put, struct store_meta *meta, store_check_fn *check, void *arg);
void memory_put_abort(struct store_put *put);
int memory_rename(struct store *store, const struct store_name *from, const struct store_get *get,
	struct slice to, struct slice headers, struct store_condition condition);
int memory_edit(struct store *store, const struct store_name *name, store_edit_fn *edit, void *arg,
	struct store_outbox_row *outbox_row);
int memory_set_flags(struct store *store, const struct store_name *name, struct store_flags flags,
	struct store_condition condition, struct store_outbox_row *outbox_row);
int memory_delete_each(struct store *store, struct slice bucket, uint64_t bucket_id,
	struct store_deletion *list, uint32_t count);
int memory_get_open(struct store *store, const struct store_name *name, struct store_get **ret_get,
	bool *ret_bucket_exists);
int memory_newest(
	struct store *store, struct slice bucket, struct slice key, struct store_meta *ret_meta);
int memory_get_source(struct store_get *get, struct flow_core *core, uint64_t offset,
	uint64_t bytes, struct flow_source **ret_source);
bool memory_get_held(struct store_get *get, struct slice *ret_body, struct region_span *ret_span);
void memory_get_stretch(
	const struct store_get *get, uint64_t offset, struct store_stretch *ret_stretch);
int memory_get_tag(struct store_get *get, uint64_t offset, uint8_t ret_tag[STORE_TAG_BYTES]);
void memory_get_close(struct store_get *get);
int memory_list(struct store *store, const struct store_list_opts *opts, bool versions,
	store_list_visit_fn *visit, void *arg, bool *ret_more);

#endif
