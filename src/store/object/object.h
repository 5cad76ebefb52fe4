/* store/object/object.h: what the files of store share about objects: as they are in memory, their
 * segments, and who has one open or watches it. */
#ifndef STORE_OBJECT_H
#define STORE_OBJECT_H

#include "store/engine.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "store/state/state.h"
#include "store/volume/volume.h"

struct store_object_watch;

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
	_Atomic uint32_t refs; /* of an object and its body_owner */
	uint32_t *checks;      /* SEGMENT_CHECKS_MAX at most; allocated with the struct */
	uint32_t check_cap;
	uint32_t tag_count; /* of each check, or 0 */
	uint8_t *tags;	    /* STORE_TAG_BYTES each; NULL: none */
	struct extent *extents;
};

/* A stretch of an object's bytes that was written as one body: all of a plain object, or one of the
 * bodies that it was composed of. */
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
	_Atomic bool dead; /* replaced or deleted: its space is freed with the last reference */
	_Atomic bool
		superseded;	/* no longer what its key holds, as those who watch it have heard */
	_Atomic bool watched;	/* has been: watches must be looked at */
	bool body_flushed;	/* durable before its group was written */
	uint8_t body;		/* enum object_body */
	uint32_t segment_count; /* by length; 0 for empty and inline */
	uint32_t bytes_in_memory;
	uint64_t data_id;
	uint64_t seq;		/* among its key's versions; 0: a current null version */
	struct store_meta meta; /* headers point into tail */
	char *inline_data;	/* into tail */
	bool has_tag;		/* an inline body's only one */
	uint8_t tag[STORE_TAG_BYTES];
	_Atomic(struct segment *)
		*segments;	      /* NULL entries are loaded from the index when needed */
	uint32_t part_count;	      /* 1: plain */
	uint32_t owner_segment_first; /* my first segment among body_owner's */
	struct object_part *parts;
	struct object_part whole; /* a plain object's only part */
	/* The object that has this one's body now, with a reference: so the space stays while this
	 * object is read. */
	_Atomic(struct object *) body_owner;
	struct store_object_watch *watches; /* under the store's watch_lock */
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

struct store_get {
	struct store_get_head head;
	struct store *store;
	struct object *object; /* a reference */
	struct store_get *next_free;
};

/* Where the caller comes in. */
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
/* Another object, or none, has taken its place in the record table: before the commit is told to
 * have been done. */
static inline void object_supersede(struct store *store, struct object *object)
{
	atomic_store(&object->superseded, true);
	if (__builtin_expect(atomic_load(&object->watched), 0))
		object_supersede_watched(store, object);
}

/* ---- stripe_mend.c: what other volumes have right. ---- */
/* A piece (at most STORE_CHECK_BYTES) of a segment, whose data was found to be wrong: reads it in
 * other ways until it is right. data is padded to blocks. amend: writes it anew, too. 0; -EIO. On a
 * fiber, or blocking where there is none. */
struct stripe_piece {
	uint64_t at; /* in the segment */
	uint8_t *data;
	uint32_t bytes;
	uint32_t crc32c;
};
int stripe_mend(struct volume *volume, const struct segment *segment,
	const struct stripe_piece *piece, bool amend);

#endif
