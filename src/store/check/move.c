/* store/check/move.c: moves the bodies of the geometry that ends to the one of new bodies, while
 * the store keeps working: a walk over the index, a batch of rows at a time.
 *
 * A segment of a body is read with its checksums, written to new space, and committed under the
 * same name; its old space is free when nobody reads it any more. The walk keeps no place: a body
 * that has moved is passed over, so it goes on after a restart where it was. A body whose row moves
 * from ahead of the walk to behind it is found by the next pass. The walk has ended when no block
 * of the old geometry is in use: space.c counts them, those of rows, of open puts, of readers and
 * of the volumes' copy of the index. */
#include "store/check/check.h"
#include "store/check/set_change.h"
#include "store/commit/body.h"
#include "store/commit/commit.h"
#include "store/commit/index_apply.h"
#include "store/image/image.h"
#include "store/index/index.h"
#include "store/log/key.h"
#include "store/object/object.h"
#include "store/object/record.h"
#include "store/space/space.h"
#include "store/state/state.h"
#include "store/table/table.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Limits of a batch: segments to move, and rows read to find them. */
#define BATCH_MOVES 64u
#define BATCH_ROWS  16384u
/* Segments that are moved at the same time: small bodies then share the log's groups. */
#define WORKERS 8u
/* Between two passes when the last one moved nothing: at least, at most, and how many times longer
 * than that pass. A walk over an index without anything to move takes no more than that part. */
#define REST_NS_MIN NS_PER_S
#define REST_NS_MAX (60 * NS_PER_S)
#define REST_PART   9u
/* A mover that waits looks as often whether it still has to. */
#define LOOK_NS (100 * NS_PER_MS)

DEFINE_COUNTER(moved_bytes, "nebulaio_store_moved_bytes_total", NULL,
	"Bytes of bodies that were moved to another set of volumes.");

/* The rows that name extents. */
static const struct slice KINDS[] = {SLICE("O"), SLICE("V"), SLICE("N")};

struct move {
	struct key row;
	uint32_t segment_idx;
};

struct mover {
	struct store *store;
	uint32_t kind;
	struct key after;      /* len 0: from the start of the kind */
	uint32_t segment_from; /* of the row after it */
	uint32_t count, next, working;
	struct move moves[BATCH_MOVES];
	uint64_t next_ns; /* keeps to the rate */
	uint64_t done;	  /* segments moved in this pass */
	uint64_t failed;  /* bodies of this pass that cannot be moved */
	struct fiber *fiber;
	int ret;
};

/* ---- Gathering, on a helper thread. ---- */

static bool segment_is_old(const struct store *store, const struct segment *segment)
{
	uint32_t current = atomic_load(&store->volume.set_current);

	for (uint32_t i = 0; i < segment->extent_count; i++)
		if (disk_stripe_slot(segment->extents[i].block) != current)
			return true;
	return false;
}

/* False: the batch is full. */
static bool move_add(struct mover *mover, struct slice key, uint32_t segment_idx)
{
	struct move *move = &mover->moves[mover->count];

	if (mover->count == BATCH_MOVES) {
		mover->segment_from = segment_idx;
		return false;
	}
	move->row.len = (uint32_t)key.len;
	memcpy(move->row.bytes, key.data, key.len);
	move->segment_idx = segment_idx;
	mover->count++;
	return true;
}

/* Whether the row of a segment names old extents. A row that cannot be read is left to fsck. */
static bool row_is_old(struct mover *mover, const struct object *object, uint32_t segment_idx)
{
	const struct object_part *part = object_part_of(object, segment_idx);
	struct segment *segment;
	bool old = false;
	struct key key;
	char *value;
	size_t len;

	key_segment(&key, part->data_id, segment_idx - part->segment_first);
	if (index_get(mover->store->index, &key, true, &value, &len) <= 0)
		return false;
	if (segment_record_parse(slice_of(value, len), &segment) == 0) {
		old = segment_is_old(mover->store, segment);
		segment_close(segment);
	}
	free(value);
	return old;
}

/* False: the batch is full, and the row is not over. */
static bool row_take(struct mover *mover, struct slice key, struct slice value)
{
	uint32_t from = mover->segment_from;
	struct object *object;
	bool room = true;

	mover->segment_from = 0;
	if (record_parse(value, &object))
		return true;
	if (object->body == BODY_DIRECT &&
		segment_is_old(mover->store, atomic_load(object->segments)))
		room = move_add(mover, key, 0);
	for (uint32_t i = from; room && object->body == BODY_SEGMENTED && i < object->segment_count;
		i++)
		if (row_is_old(mover, object, i))
			room = move_add(mover, key, i);
	object_put(mover->store, object);
	return room;
}

static void batch_gather(void *arg)
{
	struct mover *mover = (struct mover *)arg;
	struct slice kind = KINDS[mover->kind], key, value;
	struct slice from =
		mover->after.len ? slice_of(mover->after.bytes, mover->after.len) : kind;
	struct index_walk *walk;
	uint32_t rows = 0;
	bool there;

	mover->count = mover->next = 0;
	mover->ret = index_walk_open(mover->store->index, from, SLICE_NONE, &walk);
	if (mover->ret)
		return;
	while ((there = index_walk_get(walk, &key, &value) && slice_starts(key, kind)) &&
		rows++ < BATCH_ROWS) {
		if (!mover->after.len || !slice_eq(key, from)) {
			if (!row_take(mover, key, value))
				break;
			mover->after.len = (uint32_t)key.len;
			memcpy(mover->after.bytes, key.data, key.len);
		}
		index_walk_next(walk);
	}
	if (!there) {
		mover->kind++;
		mover->after.len = 0;
	}
	mover->ret = index_walk_error(walk);
	index_walk_close(walk);
}

/* ---- One segment. ---- */

struct moving {
	struct mover *mover;
	struct bucket *bucket;
	struct record_entry *entry; /* pinned */
	struct object *object;
	uint32_t segment_idx;
	struct segment *from, *to;
	uint64_t bytes;
	uint64_t regains;
	uint32_t phase;
	int ret;
};

static int entry_pin(struct store *store, const struct key *row, struct moving *moving)
{
	struct slice key = slice_of(row->bytes + 9, row->len - 9);
	struct object_name name;
	uint64_t id = 0;

	for (uint32_t i = 1; i < 9; i++)
		id = id << 8 | row->bytes[i];
	moving->bucket = buckets_find_id(store->buckets, id);
	if (!moving->bucket)
		return -ENOENT;
	if (row->bytes[0] == 'O')
		return record_entry_pin(store->records, id, key, &moving->entry);
	if (row->bytes[0] == 'N')
		return record_entry_pin(store->records, id | ENTRY_NULL, key, &moving->entry);
	if (key_version_parse(slice_of(row->bytes, row->len), &name))
		return -EUCLEAN;
	return record_entry_pin_version(
		store->records, id, slice_of(name.key, name.key_len), name.seq, &moving->entry);
}

static void load_run(void *arg)
{
	struct moving *moving = (struct moving *)arg;

	moving->ret = object_segment_load(
		moving->mover->store, moving->object, moving->segment_idx, &moving->from);
}

/* The segment as it is now. -ENOENT: it is gone, or has moved. */
static int segment_open_now(struct moving *moving, const struct move *move)
{
	struct store *store = moving->mover->store;
	uint64_t from;
	int ret = entry_pin(store, &move->row, moving);

	if (ret)
		return ret;
	moving->object = record_entry_object(store->records, moving->entry);
	moving->segment_idx = move->segment_idx;
	if (!moving->object || move->segment_idx >= moving->object->segment_count)
		return -ENOENT;
	fiber_offload_long(load_run, moving);
	if (moving->ret)
		return moving->ret;
	if (!segment_is_old(store, moving->from))
		return -ENOENT;
	object_segment_range(moving->object, move->segment_idx, &from, &moving->bytes);
	return segment_open(moving->from->extent_count, moving->from->check_count, &moving->to);
}

static int chunk_read(struct moving *moving, uint8_t *chunk, uint64_t at, uint64_t bytes)
{
	int ret = 0;

	for (uint64_t done = 0; done < bytes && !ret; done += STORE_CHECK_BYTES) {
		const struct stripe_piece piece = {.at = at + done,
			.data = chunk + done,
			.bytes = (uint32_t)MIN(bytes - done, (uint64_t)STORE_CHECK_BYTES),
			.crc32c = moving->from->checks[(at + done) / STORE_CHECK_BYTES]};

		ret = stripe_piece_read(&moving->mover->store->volume, moving->from, &piece, true);
	}
	return ret;
}

static int chunk_write(struct moving *moving, const uint8_t *chunk, uint32_t blocks)
{
	struct store *store = moving->mover->store;

	while (blocks) {
		uint32_t leased;
		uint64_t block;
		int ret = grow_segment(store, moving->to, blocks, &block, &leased);

		if (ret)
			return ret;
		ret = disk_write_now(store->volume.disk, chunk, (uint64_t)leased << BLOCK_SHIFT,
			block << BLOCK_SHIFT);
		if (ret)
			return ret;
		chunk += (size_t)leased << BLOCK_SHIFT;
		blocks -= leased;
	}
	return 0;
}

/* Whether the mover has something better to do than to wait. */
static bool is_called(const struct store *store)
{
	return atomic_load(&store->quiescing) || stripe_suspended(store);
}

/* Keeps to the rate; false: the store is quiescing. */
static bool pace(struct mover *mover, uint64_t bytes)
{
	struct store *store = mover->store;
	uint64_t rate = store->opts.move_bytes_per_s, until_ns, now_ns;

	counter_add(&moved_bytes, bytes);
	if (rate) {
		until_ns = mover->next_ns = MAX(mover->next_ns, clock_now_ns()) +
					    (uint64_t)((double)bytes * NS_PER_S / (double)rate);
		while (!is_called(store) && (now_ns = clock_now_ns()) < until_ns)
			fiber_sleep_ns(MIN(until_ns - now_ns, LOOK_NS));
	}
	return !atomic_load(&store->quiescing);
}

static int body_copy(struct moving *moving)
{
	const struct segment *from = moving->from;
	void *chunk;
	int ret = 0;

	if ((uint64_t)from->check_count * STORE_CHECK_BYTES < moving->bytes)
		return -EUCLEAN;
	if (posix_memalign(&chunk, BLOCK_BYTES, STORE_CHUNK_BYTES))
		return -ENOMEM;
	for (uint64_t at = 0; at < moving->bytes && !ret; at += STORE_CHUNK_BYTES) {
		uint64_t bytes = MIN(moving->bytes - at, (uint64_t)STORE_CHUNK_BYTES);
		uint64_t padded = ALIGN_UP(bytes, (uint64_t)BLOCK_BYTES);

		ret = chunk_read(moving, (uint8_t *)chunk, at, bytes);
		if (!ret)
			ret = chunk_write(
				moving, (const uint8_t *)chunk, (uint32_t)(padded / BLOCK_BYTES));
		if (!ret && !pace(moving->mover, bytes))
			ret = -ESHUTDOWN;
	}
	free(chunk);
	memcpy(moving->to->checks, from->checks, from->check_count * sizeof(uint32_t));
	moving->to->check_count = from->check_count;
	for (uint32_t i = 0; i < from->tag_count && !ret; i++)
		ret = segment_tag_add(moving->to, from->tags + (size_t)i * STORE_TAG_BYTES);
	return ret;
}

/* A small body is durable with its group; recovery then verifies it. */
static int body_flush(const struct moving *moving, struct object *object)
{
	struct disk *disk = moving->mover->store->volume.disk;

	object->body_flushed = object->body != BODY_DIRECT ||
			       moving->bytes > BODY_VERIFY_BYTES_MAX || disk_has_log_apart(disk);
	return object->body_flushed ? disk_flush_now(disk) : 0;
}

static int object_commit(struct moving *moving, struct object *object)
{
	struct store *store = moving->mover->store;
	struct commit_item item = {.kind = ITEM_MOVE,
		.entry = moving->entry,
		.object = object,
		.moved_from = moving->object,
		.moved_segment = moving->segment_idx};
	struct commit commit = {.bucket = moving->bucket,
		.items = &item,
		.item_count = 1,
		.regains = moving->regains,
		.phase = moving->phase};

	commit_run(store, &commit);
	if (item.entry_taken)
		moving->entry = NULL;
	return item.result;
}

static int segment_commit(struct moving *moving)
{
	struct object *object;
	int ret = object_open_moved(moving->object, moving->segment_idx, moving->to, &object);

	if (ret)
		return ret;
	segment_get(moving->to);
	ret = body_flush(moving, object);
	if (!ret)
		ret = object_commit(moving, object);
	if (ret)
		object_put(moving->mover->store, object);
	return ret;
}

static int segment_move(struct mover *mover, const struct move *move)
{
	struct moving moving = {.mover = mover};
	struct store *store = mover->store;
	int ret;

	moving.phase = store_phase_enter(store);
	moving.regains = atomic_load(&store->regains);
	ret = segment_open_now(&moving, move);

	if (!ret)
		ret = body_copy(&moving);
	if (!ret)
		ret = segment_commit(&moving);
	for (uint32_t i = 0; ret && moving.to && i < moving.to->extent_count; i++)
		space_give(store->space, moving.to->extents[i].block, moving.to->extents[i].blocks);
	segment_close(moving.to);
	object_put(store, moving.object);
	if (moving.entry)
		record_entry_unpin(store->records, moving.entry);
	if (moving.bucket)
		bucket_put(moving.bucket);
	store_phase_leave(store, moving.phase);
	return ret;
}

/* ---- The walk. ---- */

static bool goes_on(const struct mover *mover)
{
	return !mover->ret && !atomic_load(&mover->store->quiescing);
}

static void move_one(struct mover *mover, const struct move *move)
{
	int ret = segment_move(mover, move);

	mover->done += !ret;
	/* Changed or deleted meanwhile, or just being changed: for the next pass. */
	if (!ret || ret == -ENOENT || ret == -ESTALE || ret == -EBUSY)
		return;
	if (ret == -EUCLEAN || ret == -EIO)
		mover->failed++;
	else
		mover->ret = ret;
}

/* The segments of one object are moved one after the other. */
static void worker(void *arg)
{
	struct mover *mover = (struct mover *)arg;

	while (mover->next < mover->count && goes_on(mover)) {
		const struct key *row = &mover->moves[mover->next].row;
		uint32_t first = mover->next;

		while (mover->next < mover->count &&
			slice_eq(slice_of(row->bytes, row->len),
				slice_of(mover->moves[mover->next].row.bytes,
					mover->moves[mover->next].row.len)))
			mover->next++;
		for (uint32_t i = first, end = mover->next; i < end && goes_on(mover); i++)
			move_one(mover, &mover->moves[i]);
	}
	if (--mover->working == 0)
		fiber_wake(mover->fiber);
}

static void batch_run(struct mover *mover)
{
	mover->fiber = fiber_self();
	for (uint32_t i = 0; i < MIN(WORKERS, mover->count); i++) {
		mover->working++;
		if (fiber_spawn(reactor_self(), "move", worker, mover))
			mover->working--;
	}
	if (!mover->working && mover->count)
		mover->ret = -ENOMEM;
	while (mover->working)
		fiber_park();
}

static int pass_run(struct mover *mover)
{
	struct store *store = mover->store;

	mover->kind = 0;
	mover->after.len = 0;
	mover->done = mover->failed = 0;
	mover->ret = 0;
	while (mover->kind < ARRAY_LEN(KINDS) && !mover->ret && !atomic_load(&store->quiescing)) {
		fiber_offload_long(batch_gather, mover);
		if (!mover->ret)
			batch_run(mover);
		fiber_yield();
	}
	return mover->ret;
}

/* The volumes' copy of the index is written anew. */
static void image_run(void *arg)
{
	struct store *store = (struct store *)arg;

	atomic_store(&store->image->due, true);
	(void)index_apply_checkpoint_now(store);
}

static bool is_over(const struct store *store)
{
	return set_change_blocks_left(store) == 0 || atomic_load(&store->quiescing);
}

static void rest(const struct store *store, uint64_t begin_ns)
{
	uint64_t now_ns = clock_now_ns();
	uint64_t rest_ns = MIN(MAX((now_ns - begin_ns) * REST_PART, REST_NS_MIN), REST_NS_MAX);
	uint64_t until_ns = now_ns + rest_ns;

	while (!is_over(store) && clock_now_ns() < until_ns)
		fiber_sleep_ns(LOOK_NS);
}

void store_move(struct store *store)
{
	struct mover *mover = (struct mover *)calloc(1, sizeof(*mover));

	if (!mover)
		return;
	mover->store = store;
	while (!is_over(store)) {
		uint64_t begin_ns = clock_now_ns();
		int ret = stripe_suspended(store) ? -EHOSTDOWN : pass_run(mover);

		set_change_note(store, ret, mover->failed);
		if (!ret && !mover->done && !is_over(store)) {
			/* Space of deletions is free when the index has applied them. */
			(void)index_apply_settle(store);
			if (store->image->on && !is_over(store))
				fiber_offload_long(image_run, store);
		}
		if (ret || !mover->done)
			rest(store, begin_ns);
	}
	free(mover);
}
