/* store/commit/body.h: what becomes of the bodies that a commit does not write: those that stay
 * where they are, those that another one follows; and room for new ones. */
#ifndef STORE_BODY_H
#define STORE_BODY_H

#include "store/api.h"

#include <stdbool.h>

#include "store/object/object.h"

struct bucket;
struct group;
struct record_entry;

/* ---- compose.c: bodies that change their object and stay where they are. ---- */
struct component {
	struct bucket *bucket;	    /* with a reference */
	struct record_entry *entry; /* pinned; the group's when planned */
	struct object *object;	    /* with a reference */
	bool dropped;		    /* deleted together with its body */
	bool moved;		    /* what has its body is what it was, under another key */
	uint32_t segment_first;	    /* among the composed object's */
};
struct composition {
	struct component *list;
	uint32_t count;
	uint32_t cap;
	uint32_t component_count; /* those that are not just dropped */
	uint64_t bytes;		  /* theirs */
	bool planned;
};
/* Adds an object that the caller has open. -ESTALE, -EINVAL, -EFBIG, -ENOMEM. */
int composition_add(struct store *store, struct composition *composition, struct bucket *bucket,
	struct slice key, const struct store_get *get, bool drop);
/* The same of one that is to have another key, whatever its body is. */
int composition_move(struct store *store, struct composition *composition, struct bucket *bucket,
	struct slice key, const struct store_get *get);
/* The object composed of those bodies. -EINVAL: meta->bytes is not their sum. */
int composition_object(struct composition *composition, const struct store_meta *meta,
	uint64_t data_id, struct object **ret_object);
/* Upper bound of what it adds to a group. */
size_t composition_bytes(const struct composition *composition);
/* Whether all is still as it was added (else -ESTALE); then it is taken out of the order. */
int composition_plan(struct composition *composition, struct group *group);
void composition_undo(struct composition *composition);
void composition_publish(struct store *store, struct composition *composition,
	struct object *composed, struct group *group);
void composition_close(struct store *store, struct composition *composition);

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

/* ---- grow.c: room. ---- */
/* Fiber call: a run of up to `blocks`, growing the volume when it is full or too broken up for so
 * many. -ENOSPC. */
int grow_lease(struct store *store, uint32_t blocks, uint64_t *ret_block, uint32_t *ret_blocks);
/* -ENOSPC when the file system's free space is below the reserve; looked up once a second. */
int grow_check(struct store *store);

/* store_usage of the engine. */
void local_usage(struct store *store, struct store_usage *ret_usage);

#endif
