/* store/commit/body.h: bodies that a commit does not write: bodies that stay in place, bases of
 * appends; and space for new bodies. */
#ifndef STORE_BODY_H
#define STORE_BODY_H

#include "store/api.h"

#include <stdbool.h>

#include "store/object/object.h"

struct bucket;
struct group;
struct record_entry;

/* ---- compose.c: bodies that stay in place under another object. ---- */
struct component {
	struct bucket *bucket;	    /* with a reference */
	struct record_entry *entry; /* pinned; the group's when planned */
	struct object *object;	    /* with a reference */
	bool dropped;		    /* deleted together with its body */
	bool moved;		/* the object that takes its body is the same under another key */
	uint32_t segment_first; /* among the composed object's */
};
struct composition {
	struct component *list;
	uint32_t count;
	uint32_t cap;
	uint32_t component_count; /* those that the new object takes over */
	uint64_t bytes;		  /* of their bodies */
	bool planned;
};
/* Adds an object that the caller has open. -ESTALE, -EINVAL, -EFBIG, -ENOMEM. */
int composition_add(struct store *store, struct composition *composition, struct bucket *bucket,
	struct slice key, const struct store_get *get, bool drop);
/* Like composition_add, for an object that gets another key; it may have any kind of body. */
int composition_move(struct store *store, struct composition *composition, struct bucket *bucket,
	struct slice key, const struct store_get *get);
/* The object composed of those bodies. -EINVAL: meta->bytes is not their sum. */
int composition_object(struct composition *composition, const struct store_meta *meta,
	uint64_t data_id, struct object **ret_object);
/* Whether segments of these objects were moved since they were added: then the composition names
 * the objects of today, and the composed object has their places. */
bool composition_follow(
	struct store *store, struct composition *composition, struct object *composed);
/* Upper bound of its size in a group. */
size_t composition_bytes(const struct composition *composition);
/* Whether all objects are unchanged since they were added (otherwise -ESTALE). If so, removes the
 * objects from commit order. */
int composition_plan(struct composition *composition, struct group *group);
void composition_undo(struct composition *composition);
void composition_publish(struct store *store, struct composition *composition,
	struct object *composed, struct group *group);
void composition_close(struct store *store, struct composition *composition);

/* ---- append.c: appending to the object of a key. ---- */
struct append {
	struct object *base; /* with a reference */
	struct segment
		*moved; /* new place of an inline base's body; NULL: the base was not inline */
};
/* -E2BIG, -EINVAL: as store_put_append. */
int append_open(struct append *append, const struct bucket *bucket, const struct store_get *get);
/* The object of base and appended body, without the segments of the appended body (data_id), which
 * begin at append_first. Fiber call. */
int append_object(struct store *store, struct append *append, const struct store_meta *meta,
	uint64_t data_id, struct object **ret_object);
uint32_t append_first(const struct object *object);
/* Whether segments of the base were moved since the append was opened: then the base is the object
 * of today, and the joined object has its places. */
bool append_follow(struct store *store, struct append *append, struct object *joined);
/* append_bytes: upper bound of the size of its record and rows in a group. */
size_t append_bytes(const struct append *append, const struct object *object);
void append_add(struct group *group, const struct append *append, const struct object *object,
	uint8_t flags);
void append_close(struct store *store, struct append *append, bool stored);

/* ---- grow.c: space. ---- */
/* Fiber call: waits until no growth of the volume runs. */
void grow_quiesce(struct store *store);
/* Fiber calls: hold waits until no growth of the volume runs, and none begins before release. */
void grow_hold(struct store *store);
void grow_release(struct store *store);
/* Fiber call: leases a run of up to `blocks`, as one more extent of a segment. Grows the volume
 * when it is full or too fragmented. -ENOSPC, -ENOMEM: nothing is leased. */
int grow_segment(struct store *store, struct segment *segment, uint32_t blocks, uint64_t *ret_block,
	uint32_t *ret_blocks);
/* -ENOSPC when the file system's free space is below the reserve; checked once a second. */
int grow_check(struct store *store);

/* store_usage of the engine. */
void local_usage(struct store *store, struct store_usage *ret_usage);

#endif
