/* disk/disk_array.h: shared by the files of arrays. */
#ifndef DISK_ARRAY_H
#define DISK_ARRAY_H

#include "codec/ec.h"
#include "disk/disk_priv.h"

/* Replaced disks stay open until the array closes, because operations on them may still run. */
#define ARRAY_RETIRED_MAX 64u

struct array_member {
	_Atomic(struct disk *) disk; /* NULL: not there */
	_Atomic uint32_t state;
	_Atomic uint64_t read_errors;
};

/* It does not change while it is used. */
struct array_geometry {
	_Atomic bool used;
	struct disk_geometry numbers;
	uint32_t data, parity, count;
	uint64_t members; /* one bit each */
	struct ec ec;
};

struct array {
	struct array_geometry geometries[DISK_GEOMETRIES];
	_Atomic uint32_t current;
	_Atomic uint64_t log; /* members that have the mirrored ranges */
	_Atomic uint64_t changes;
	atomic_bool limit_told; /* DISK_ARRAY_BYTES_MAX: it was logged */
	uint32_t retired_count;
	struct disk *retired[ARRAY_RETIRED_MAX];
	struct array_member members[DISK_MEMBERS_MAX];
};

/* A stripe, from an address. */
struct stripe {
	const struct array_geometry *geometry;
	uint64_t first;	 /* block of each member */
	uint32_t blocks; /* of data */
	uint32_t width;	 /* blocks of a shard */
	uint32_t turn;	 /* shard s lies on the geometry's member (turn + s) % count */
};

/* Transfers of several members at once. On a reactor's fiber the fiber waits for them; elsewhere
 * they block. */
struct array_batch;
struct array_transfer {
	struct disk_io io;
	struct iovec iov;
	struct disk *disk;
	struct array_batch *batch;
	uint32_t member;
	uint32_t shard;
	int32_t result;
};
struct array_batch {
	struct array *array;
	struct fiber *fiber;
	uint32_t pending;
	uint32_t count;
	struct array_transfer transfers[DISK_MEMBERS_MAX];
};

static inline bool array_readable(const struct array *array, uint32_t member)
{
	const struct array_member *at = &array->members[member];

	return at->disk &&
	       atomic_load_explicit(&at->state, memory_order_acquire) == DISK_MEMBER_GOOD;
}

/* Which members a read may use: the good ones but `avoid`, and of those that are rebuilt `also`. */
struct array_sources {
	uint64_t avoid, also;
};

static inline bool array_source(
	const struct array *array, uint32_t member, struct array_sources sources)
{
	const struct array_member *at = &array->members[member];
	uint32_t state = atomic_load_explicit(&at->state, memory_order_acquire);

	return !(sources.avoid >> member & 1) && at->disk &&
	       (state == DISK_MEMBER_GOOD ||
		       (state == DISK_MEMBER_REBUILDING && (sources.also >> member & 1)));
}

static inline bool array_writable(const struct array *array, uint32_t member)
{
	const struct array_member *at = &array->members[member];

	return at->disk &&
	       atomic_load_explicit(&at->state, memory_order_acquire) != DISK_MEMBER_MISSING;
}

/* The member that has a shard of the stripe. */
static inline uint32_t array_member_of(const struct stripe *stripe, uint32_t shard)
{
	const struct array_geometry *geometry = stripe->geometry;

	return geometry->numbers.order[(stripe->turn + shard) % geometry->count];
}

/* disk_array.c */
bool array_can_discard(const struct array *array);
void array_member_fail(struct disk *disk, uint32_t member, int error);

/* disk_array_io.c: 0 or -errno. */
int array_read(struct disk *disk, uint8_t *data, uint64_t bytes, uint64_t offset,
	struct array_sources sources);
int array_write(struct disk *disk, uint8_t *data, uint64_t bytes, uint64_t offset);
int array_flush(struct disk *disk);
int array_discard(struct disk *disk, uint64_t bytes, uint64_t offset);
struct stripe array_stripe(const struct array *array, uint64_t block);
/* How many blocks of data a shard has. */
uint32_t array_shard_blocks(const struct stripe *stripe, uint32_t shard);
/* Computes the parity of a stripe's data; its shards one after another. */
int array_encode(const struct stripe *stripe, const uint8_t *data, uint8_t *parity);
/* A part of a shard, in bytes, and what it is computed from. */
struct array_part {
	uint32_t shard;
	uint64_t from, to;
	struct array_sources sources;
};
/* Computes it from the other members' parts into data. */
int array_rescue(struct disk *disk, const struct stripe *stripe, const struct array_part *part,
	uint8_t *data);
void array_batch_add(struct array_batch *batch, enum disk_op op, uint32_t member, void *data,
	uint64_t bytes, uint64_t offset);
void array_batch_run(struct array_batch *batch);

#endif
