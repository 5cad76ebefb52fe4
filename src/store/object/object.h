/* store/object/object.h: objects in memory, their segments, and their users: readers and watchers.
 */
#ifndef STORE_OBJECT_H
#define STORE_OBJECT_H

#include "store/engine.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "store/state/state.h"
#include "store/volume/volume.h"

struct store_object_watch;

/* ---- object.c: an object in memory: one instance per object, shared, reference-counted. ---- */
struct extent {
	uint64_t block;
	uint32_t blocks;
	uint32_t start; /* blocks of the earlier segments */
};

struct segment {
	uint32_t extent_count;
	uint32_t extent_cap;
	uint32_t check_count;
	uint32_t blocks;
	_Atomic uint32_t refs; /* shared by an object and its body_owner */
	uint32_t *checks;      /* SEGMENT_CHECKS_MAX at most; allocated with the struct */
	uint32_t check_cap;
	uint32_t tag_count;	/* one for each check, or 0 */
	uint8_t *tags;		/* STORE_TAG_BYTES each; NULL: none */
	struct extent *extents; /* allocated with the struct, until they outgrow it */
	uint32_t bytes;		/* of the struct with what was allocated with it */
	bool extents_inside;
};

/* A stretch of an object's bytes that was written as one body: a plain object has one; a composed
 * object has one for each of its bodies. */
struct object_part {
	uint64_t data_id; /* names the part's rows and cached chunks */
	uint64_t bytes;
	uint64_t start;		/* offset in the object */
	uint32_t segment_first; /* first of the object's segments */
	uint32_t segment_count;
};
/* Its form in a record. */
struct part_record {
	uint64_t data_id;
	uint64_t bytes;
};
_Static_assert(sizeof(struct part_record) == 16, "as docs/spec/disk.md has it");

enum object_body { BODY_EMPTY, BODY_INLINE, BODY_DIRECT, BODY_SEGMENTED, BODY_MARKER };

struct object {
	_Atomic uint32_t refs;
	_Atomic bool dead;	 /* replaced or deleted: the last reference frees its space */
	_Atomic bool superseded; /* no longer the object of its key, and its watchers were told */
	_Atomic bool watched;	 /* has had watches: they must be checked */
	bool body_flushed;	 /* durable before its group was written */
	uint8_t body;		 /* enum object_body */
	uint32_t segment_count;	 /* by length; 0 for empty and inline */
	uint32_t bytes_in_memory;
	uint64_t data_id;
	uint64_t seq;		/* order among its key's versions; 0: a current null version */
	struct store_meta meta; /* headers point into tail */
	char *inline_data;	/* points into tail */
	bool has_tag;		/* an inline body's only one */
	uint8_t tag[STORE_TAG_BYTES];
	_Atomic(struct segment *) *segments; /* NULL entries are loaded from the index on demand */
	uint32_t part_count;		     /* 1: plain */
	uint32_t owner_segment_first;	     /* this object's first segment among body_owner's */
	/* A segment whose bytes body_owner has in another place; its space is given back with this
	 * object. */
	struct segment *moved;
	struct object_part *parts;
	struct object_part whole; /* a plain object's only part */
	/* The object that owns this one's body now, with a reference: so the space stays while this
	 * object is being read. */
	_Atomic(struct object *) body_owner;
	struct store_object_watch *watches; /* under the store's watch_lock */
};
/* Makes an object with one reference; copies meta's headers. -ENOMEM. */
int object_open(const struct store_meta *meta, uint64_t data_id, uint32_t inline_bytes,
	struct object **ret_object);
/* An object of several bodies in order. -EUCLEAN: their sum is not meta->bytes. */
int object_open_parts(const struct store_meta *meta, uint64_t data_id,
	const struct part_record *parts, uint32_t part_count, struct object **ret_object);
/* A copy with the same body and other headers. -ENOMEM. */
int object_open_edited(const struct object *from, struct slice headers, struct object **ret_object);
/* A copy with one segment in another place, which takes the caller's reference. -ENOMEM. */
int object_open_moved(const struct object *from, uint32_t segment_idx, struct segment *segment,
	struct object **ret_object);
/* Gives `to` those segments of `from` that are in memory, as its own from `at` on, instead of those
 * that it has. Nobody else knows `to` yet. */
void object_segments_share(const struct object *from, struct object *to, uint32_t at);
/* The same object after all moves of its segments that have been published: itself, or the last of
 * its successors, which stays while the caller has its reference. */
struct object *object_after_moves(struct object *object);
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
/* The offset of a segment in the object, and the number of bytes in it. */
void object_segment_range(
	const struct object *object, uint32_t segment_idx, uint64_t *ret_from, uint64_t *ret_bytes);
/* The memory of all its segments, once loaded. */
size_t object_segments_memory(const struct object *object);
static inline struct object *object_get(struct object *object)
{
	atomic_fetch_add_explicit(&object->refs, 1, memory_order_relaxed);
	return object;
}
/* Drops a reference; the last reference to a dead object frees its space and cached chunks. Takes
 * NULL. Any thread. */
void object_put(struct store *store, struct object *object);
/* Gets the segment from memory or the index. May block: call it on a reactor's own thread only if
 * the segment is loaded. -EIO, -ENOMEM. */
int object_segment_load(
	struct store *store, struct object *object, uint32_t segment_idx, struct segment **ret);
int segment_open(uint32_t extent_cap, uint32_t check_cap, struct segment **ret_segment);
void segment_close(struct segment *segment); /* drops a reference; takes NULL */
static inline struct segment *segment_get(struct segment *segment)
{
	atomic_fetch_add_explicit(&segment->refs, 1, memory_order_relaxed);
	return segment;
}
/* Whether a segment covers exactly this many bytes. */
bool segment_covers(const struct segment *segment, uint64_t bytes);
/* Adds a run; merges it with the one before if they are adjacent. -ENOMEM. */
int segment_add(struct segment *segment, uint64_t block, uint32_t blocks);
/* Adds the tag of the next check. -EINVAL: no room for another; -ENOMEM. */
int segment_tag_add(struct segment *segment, const uint8_t tag[STORE_TAG_BYTES]);
/* The place of the segment's byte `offset`, and the number of contiguous bytes from there. */
int segment_find(const struct segment *segment, uint64_t offset, uint64_t *ret_volume_offset,
	uint64_t *ret_bytes);

struct store_get {
	struct store_get_head head;
	struct store *store;
	struct object *object; /* a reference */
	struct store_get *next_free;
};

/* Checks a get at the entry of each call. */
static inline void store_get_check(const struct store_get *get)
{
	CHECK(get->head.magic == STORE_GET_MAGIC);
	CHECK(atomic_load_explicit(&get->object->refs, memory_order_relaxed) > 0);
}

/* ---- watch.c: contracts in store/api.h. ---- */
uint64_t local_rights_epoch(const struct store *store);
int local_object_watch_begin(
	struct store_get *get, struct store_object_watch *watch, uint64_t epoch);
void local_object_watch_end(struct store *store, struct store_object_watch *watch);
void local_rights_changed(struct store *store);
void object_supersede_watched(struct store *store, struct object *object);
/* Called when another object, or none, has replaced it in the record table, before the commit's
 * caller gets its result. */
static inline void object_supersede(struct store *store, struct object *object)
{
	atomic_store(&object->superseded, true);
	if (__builtin_expect(atomic_load(&object->watched), 0))
		object_supersede_watched(store, object);
}

/* ---- stripe_mend.c: repairs from other volumes. ---- */
/* Repairs a damaged piece (at most STORE_CHECK_BYTES) of a segment: reads it in other ways until
 * its checksum is right. data is padded to blocks. amend: also writes the right data to the volume.
 * 0; 1: data is right, but the volume could not be written (logged); -EIO; -ENOMEM. On a fiber, or
 * blocking outside of fibers. */
struct stripe_piece {
	uint64_t at; /* offset in the segment */
	uint8_t *data;
	uint32_t bytes;
	uint32_t crc32c;
	bool padded; /* `bytes` is whole blocks: of the last one, the checksum covers an unknown
			part */
};
int stripe_mend(struct volume *volume, const struct segment *segment,
	const struct stripe_piece *piece, bool amend);
/* Whether data has the piece's checksum. */
bool stripe_piece_right(const struct stripe_piece *piece);
/* Reads a piece, compares its checksum, and repairs it if it is wrong, which the volume's mended
 * and unmended count. 0: data is right; -EUCLEAN: no volume has the right data, or it lies outside;
 * -EIO: likewise, and too few volumes could be read. As stripe_mend. */
int stripe_piece_read(struct volume *volume, const struct segment *segment,
	const struct stripe_piece *piece, bool amend);

#endif
