/* store/check/rebuild.c: makes a volume that came back or was replaced whole from the others, in
 * the background: a walk over the index, a batch of rows at a time, while the store keeps working.
 *
 * The walk need not see bodies whose put began after the walk: the put writes them to the volume.
 * Nor do rows that end matter: their blocks are not reused while a batch that may name them is in
 * progress. The walk could miss an older body whose row moves from before the walk's position to
 * after it (a rename, a version that becomes current again, a body that another object is composed
 * of). The index thread notes such rows when it applies them, and the rebuild looks each of them up
 * again. The volume is whole when the walk is over and no row is noted. */
#include "store/check/check.h"
#include "store/commit/committer.h"
#include "store/commit/index_apply.h"
#include "store/image/image.h"
#include "store/index/index.h"
#include "store/log/key.h"
#include "store/object/object.h"
#include "store/object/record.h"
#include "store/space/space.h"
#include "store/state/state.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Limits of a batch: extents, and rows read to find them. */
#define BATCH_STRIPES 256u
#define BATCH_ROWS    16384u
/* Stripes that a rebuild names in the log. */
#define COMPLAINTS_MAX 10u

DEFINE_COUNTER(stripes_rebuilt, "nebulaio_store_stripes_rebuilt_total", NULL,
	"Stripes of which a part was computed again for a volume under rebuild.");
DEFINE_COUNTER(stripes_unverified, "nebulaio_store_stripes_rebuilt_unverified_total", NULL,
	"Stripes of which a part was not rebuilt, because no volume has the right data.");
DEFINE_COUNTER(volumes_rebuilt, "nebulaio_store_volumes_rebuilt_total", NULL,
	"Volumes that were rebuilt completely.");

/* The rows that name extents, by kind and then by key, and the walk's position in them. */
static const struct slice KINDS[] = {SLICE("O"), SLICE("V"), SLICE("N"), SLICE("S")};

/* A segment that a row names. */
struct source {
	struct segment *segment; /* with a reference */
	uint64_t bytes;		 /* of its body; 0: the row does not say */
};

struct store_rebuild {
	struct store *store;
	uint32_t kind;
	struct key after;	/* len 0: from the start of the kind */
	uint64_t data_id_first; /* the volume already has the bodies from this number on */
	struct rebuild_keys
		keys; /* noted rows that were taken over, to be looked up from keys_at on */
	size_t keys_at;
	struct image_place image; /* in the volumes' copy of the index */
	bool image_over;
	uint32_t count; /* of stripes of the sources */
	uint32_t source_count;
	struct source sources[2 * BATCH_STRIPES]; /* of rows noted, and rows walked */
	uint8_t *data, *piece;			  /* of a stripe, of a piece */
	bool wrong[DISK_STRIPE_BLOCKS_MAX]; /* blocks of data that are not known to be right */
	uint64_t total, unverified;	    /* stripes */
	int ret;
};

/* ---- Noting, on a helper thread: the index thread has the lock while RocksDB writes. ---- */

static void noting_begin(void *arg)
{
	struct store_rebuild *rebuild = (struct store_rebuild *)arg;
	struct rebuild_noted *noted = rebuild->store->noted;

	rebuild->data_id_first = atomic_load(&rebuild->store->data_id_next);
	pthread_mutex_lock(&noted->lock);
	noted->on = true;
	noted->lost = false;
	noted->keys.len = 0;
	noted->data_id_first = rebuild->data_id_first;
	pthread_mutex_unlock(&noted->lock);
}

static void noting_end(void *arg)
{
	struct store_rebuild *rebuild = (struct store_rebuild *)arg;
	struct rebuild_noted *noted = rebuild->store->noted;

	pthread_mutex_lock(&noted->lock);
	noted->on = false;
	pthread_cond_broadcast(&noted->room);
	pthread_mutex_unlock(&noted->lock);
	free(rebuild->keys.bytes);
}

/* Takes over the rows noted so far, after the earlier ones are looked up. False: there are none. */
static bool noted_take(struct store_rebuild *rebuild)
{
	struct rebuild_noted *noted = rebuild->store->noted;
	struct rebuild_keys looked_up = rebuild->keys;

	if (rebuild->keys_at < rebuild->keys.len)
		return true;
	looked_up.len = 0;
	pthread_mutex_lock(&noted->lock);
	rebuild->keys = noted->keys;
	noted->keys = looked_up;
	if (noted->lost)
		rebuild->ret = -ENOMEM;
	pthread_cond_broadcast(&noted->room);
	pthread_mutex_unlock(&noted->lock);
	rebuild->keys_at = 0;
	return rebuild->keys.len > 0;
}

static void noted_look(void *arg)
{
	(void)noted_take((struct store_rebuild *)arg);
}

/* ---- Gathering, on a helper thread. ---- */

/* Each has at least one stripe. Takes over the segment. */
static void source_take(struct store_rebuild *rebuild, struct segment *segment, uint64_t bytes)
{
	CHECK(rebuild->source_count < ARRAY_LEN(rebuild->sources));
	CHECK(segment->extent_count > 0);
	rebuild->sources[rebuild->source_count++] = (struct source){segment, bytes};
	rebuild->count += segment->extent_count;
}

static void row_take(struct store_rebuild *rebuild, struct slice key, struct slice value)
{
	struct segment *segment;
	struct object *object;

	if (!rebuild_row_counts(rebuild->data_id_first, key, value))
		return;
	if (key.data[0] == 'S') {
		if (segment_record_parse(value, &segment))
			return;
		source_take(rebuild, segment, 0);
		return;
	}
	if (record_parse(value, &object))
		return;
	source_take(rebuild, segment_get(atomic_load(&object->segments[0])), object->meta.bytes);
	object_put(rebuild->store, object);
}

/* The extents of noted rows. A row that moved since then was noted again. */
static int noted_gather(struct store_rebuild *rebuild)
{
	int ret = 0;

	while (ret >= 0 && rebuild->count < BATCH_STRIPES && noted_take(rebuild) && !rebuild->ret) {
		const uint8_t *at = rebuild->keys.bytes + rebuild->keys_at;
		struct key key;
		uint16_t len;
		char *value;
		size_t value_len;

		memcpy(&len, at, sizeof(len));
		memcpy(key.bytes, at + sizeof(len), len);
		key.len = len;
		rebuild->keys_at += sizeof(len) + len;
		ret = index_get(rebuild->store->index, &key, true, &value, &value_len);
		if (ret <= 0)
			continue;
		row_take(rebuild, slice_of(key.bytes, key.len), slice_of(value, value_len));
		free(value);
	}
	return MIN(ret, rebuild->ret);
}

/* The extents of the next rows. */
static int walk_gather(struct store_rebuild *rebuild)
{
	struct slice kind = KINDS[rebuild->kind], key, value;
	struct slice from =
		rebuild->after.len ? slice_of(rebuild->after.bytes, rebuild->after.len) : kind;
	uint32_t enough = rebuild->count + BATCH_STRIPES, rows = 0;
	struct index_walk *walk;
	bool there;
	int ret = index_walk_open(rebuild->store->index, from, SLICE_NONE, &walk);

	if (ret)
		return ret;
	while ((there = index_walk_get(walk, &key, &value) && slice_starts(key, kind)) &&
		rebuild->count < enough && rows++ < BATCH_ROWS) {
		if (!rebuild->after.len || !slice_eq(key, from)) {
			row_take(rebuild, key, value);
			rebuild->after.len = (uint32_t)key.len;
			memcpy(rebuild->after.bytes, key.data, key.len);
		}
		index_walk_next(walk);
	}
	if (!there) {
		rebuild->kind++;
		rebuild->after.len = 0;
	}
	ret = index_walk_error(walk);
	index_walk_close(walk);
	return ret;
}

static void batch_gather(void *arg)
{
	struct store_rebuild *rebuild = (struct store_rebuild *)arg;

	rebuild->ret = noted_gather(rebuild);
	if (!rebuild->ret && rebuild->kind < ARRAY_LEN(KINDS))
		rebuild->ret = walk_gather(rebuild);
}

/* The next segments of the volumes' copy of the index. */
static void image_gather(void *arg)
{
	struct store_rebuild *rebuild = (struct store_rebuild *)arg;
	struct segment *segment;
	uint64_t bytes;

	rebuild->ret = 0;
	while (rebuild->count < BATCH_STRIPES) {
		if (!image_segment(rebuild->store->image, &rebuild->image, &segment, &bytes)) {
			rebuild->image_over = true;
			return;
		}
		source_take(rebuild, segment, bytes);
		rebuild->image.segment_idx++;
	}
}

/* ---- Rebuilding. ---- */

static uint64_t members_rebuilding(const struct disk *disk)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; i < disk_array_members(disk); i++)
		if (disk_array_state(disk, i) == DISK_MEMBER_REBUILDING)
			mask |= 1ull << i;
	return mask;
}

/* A piece of a segment. data: room for it. */
static struct stripe_piece piece_of(const struct source *source, uint64_t at, uint8_t *data)
{
	uint64_t padded = (uint64_t)source->segment->blocks << BLOCK_SHIFT;
	uint64_t end = at + STORE_CHECK_BYTES, all = source->bytes ? source->bytes : padded;

	return (struct stripe_piece){.at = at,
		.data = data,
		.bytes = (uint32_t)(MIN(end, all) - at),
		.crc32c = source->segment->checks[at / STORE_CHECK_BYTES],
		.padded = !source->bytes && end >= padded};
}

/* Whether the row that names the extent is not damaged. */
static bool extent_stands(
	const struct disk *disk, const struct source *source, const struct extent *extent)
{
	const struct segment *segment = source->segment;
	uint64_t padded = (uint64_t)segment->blocks << BLOCK_SHIFT;

	return segment_covers(segment, source->bytes ? source->bytes : padded) &&
	       disk_stripe_is(extent->block) &&
	       disk_stripe_blocks(extent->block) == extent->blocks &&
	       disk_in_range(
		       disk, extent->block << BLOCK_SHIFT, (uint64_t)extent->blocks << BLOCK_SHIFT);
}

/* Reads the data of a stripe, and marks in `wrong` the blocks whose piece has the right checksum on
 * none of the volumes, or can be read on too few. */
static int stripe_fill(
	struct store_rebuild *rebuild, const struct source *source, const struct extent *extent)
{
	struct volume *volume = &rebuild->store->volume;
	const struct segment *segment = source->segment;
	uint64_t from = (uint64_t)extent->start << BLOCK_SHIFT;
	uint64_t to = from + ((uint64_t)extent->blocks << BLOCK_SHIFT), end;
	int read =
		disk_read_now(volume->disk, rebuild->data, to - from, extent->block << BLOCK_SHIFT);

	memset(rebuild->wrong, 0, sizeof(rebuild->wrong));
	if (read && read != -EIO)
		return read;
	for (uint64_t at = from; at < to; at = end) {
		uint64_t start = at / STORE_CHECK_BYTES * STORE_CHECK_BYTES;
		struct stripe_piece piece = piece_of(source, start, rebuild->data + (at - from));
		uint64_t block = (at - from) >> BLOCK_SHIFT;
		int ret;

		end = MIN(to, start + STORE_CHECK_BYTES);
		/* A piece with a part in another stripe is read as a whole. */
		if (!read && start == at && start + piece.bytes <= to && stripe_piece_right(&piece))
			continue;
		piece.data = rebuild->piece;
		ret = stripe_piece_read(volume, segment, &piece, true);
		if (ret && ret != -EUCLEAN && ret != -EIO)
			return ret;
		if (ret)
			memset(rebuild->wrong + block, true, (end - at) >> BLOCK_SHIFT);
		memcpy(rebuild->data + (at - from), rebuild->piece + (at - start), end - at);
	}
	return 0;
}

/* Too few members may have been lost meanwhile for any of them to be read: that is no damage. */
static int wrong_tell(struct store_rebuild *rebuild, const struct extent *extent)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < extent->blocks && i < DISK_STRIPE_BLOCKS_MAX; i++)
		count += rebuild->wrong[i];
	if (!count)
		return 0;
	if (!disk_array_quorum(rebuild->store->volume.disk))
		return -EHOSTDOWN;
	counter_add(&stripes_unverified, 1);
	if (rebuild->unverified++ < COMPLAINTS_MAX)
		log_error("store",
			"the stripe at block %llu of each volume: no volume has the right data of "
			"%u blocks: what the rebuilt volumes have there stays as it is",
			(unsigned long long)disk_stripe_first(extent->block), count);
	return 0;
}

/* Wrong bytes on one of the others must not make the rebuilt part wrong, too: it may be what the
 * right data can be computed from. */
static int stripe_run(struct store_rebuild *rebuild, const struct source *source,
	const struct extent *extent, uint64_t members)
{
	struct disk *disk = rebuild->store->volume.disk;
	bool stands = extent_stands(disk, source, extent);
	int ret = 0;

	if (stands)
		members &= disk_array_stripe_members(disk, extent->block);
	if (!members)
		return 0;
	if (stands)
		ret = stripe_fill(rebuild, source, extent);
	else
		memset(rebuild->wrong, true, sizeof(rebuild->wrong));
	if (!ret)
		ret = wrong_tell(rebuild, extent);
	for (; stands && members && !ret; members &= members - 1) {
		uint32_t member = (uint32_t)__builtin_ctzll(members);

		ret = disk_array_rebuild(
			disk, extent->block, member, rebuild->data, rebuild->wrong);
		/* The others go on without one that failed the write. */
		if (disk_array_state(disk, member) == DISK_MEMBER_MISSING)
			ret = 0;
	}
	return ret;
}

static int source_run(struct store_rebuild *rebuild, const struct source *source, uint64_t members)
{
	int ret = 0;

	for (uint32_t i = 0; i < source->segment->extent_count && !ret; i++) {
		ret = stripe_run(rebuild, source, &source->segment->extents[i], members);
		if (!ret && atomic_load(&rebuild->store->quiescing))
			ret = -ESHUTDOWN;
	}
	return ret;
}

/* Between the look into the index and the write no block is reused, so a row still names the same
 * body. */
static int batch_run(struct store_rebuild *rebuild, void (*gather)(void *))
{
	uint64_t members = members_rebuilding(rebuild->store->volume.disk);
	int ret;

	if (!members)
		return -ENOTCONN; /* each was given up */
	space_hold(rebuild->store->space);
	rebuild->count = rebuild->source_count = 0;
	fiber_offload_long(gather, rebuild);
	ret = rebuild->ret;
	for (uint32_t i = 0; i < rebuild->source_count; i++) {
		if (!ret)
			ret = source_run(rebuild, &rebuild->sources[i], members);
		segment_close(rebuild->sources[i].segment);
	}
	if (!ret && atomic_load(&rebuild->store->quiescing))
		ret = -ESHUTDOWN;
	space_let_go_long(rebuild->store->space);
	rebuild->total += rebuild->count;
	counter_add(&stripes_rebuilt, rebuild->count);
	return ret;
}

static bool rows_left(struct store_rebuild *rebuild)
{
	if (rebuild->kind < ARRAY_LEN(KINDS))
		return true;
	fiber_offload_long(noted_look, rebuild);
	return rebuild->keys_at < rebuild->keys.len;
}

static int rows_run(struct store_rebuild *rebuild)
{
	int ret = 0;

	fiber_offload_long(noting_begin, rebuild);
	while (!ret && rows_left(rebuild)) {
		ret = batch_run(rebuild, batch_gather);
		fiber_yield();
	}
	fiber_offload_long(noting_end, rebuild);
	return ret ? ret : rebuild->ret;
}

static void image_await(void *arg)
{
	index_apply_checkpoint_await((struct store *)arg);
}

/* A checkpoint that began before the volume was back may have skipped it; one that begins later
 * writes to it. */
static int image_run(struct store_rebuild *rebuild)
{
	int ret = 0;

	fiber_offload_long(image_await, rebuild->store);
	while (!ret && !rebuild->image_over) {
		ret = batch_run(rebuild, image_gather);
		fiber_yield();
	}
	return ret;
}

static void heal_run(void *arg)
{
	struct store_rebuild *rebuild = (struct store_rebuild *)arg;
	struct store *store = rebuild->store;
	struct disk *disk = store->volume.disk;
	uint64_t members = members_rebuilding(disk);

	/* The rebuilt volumes lack the log before the tail, so the tail moves first. */
	rebuild->ret = disk_flush_now(disk);
	if (!rebuild->ret)
		rebuild->ret = index_apply_checkpoint_now(store);
	if (rebuild->ret)
		return;
	members &= members_rebuilding(disk); /* a volume may have failed */
	for (uint32_t m = 0; members >> m; m++)
		if (members >> m & 1)
			disk_array_heal(disk, m);
	pthread_mutex_lock(&store->volume.lock);
	rebuild->ret = volume_super_write(&store->volume);
	pthread_mutex_unlock(&store->volume.lock);
	for (uint32_t m = 0; members >> m && !rebuild->ret; m++)
		if (members >> m & 1) {
			counter_add(&volumes_rebuilt, 1);
			log_info("store", "volume %u is rebuilt: %llu stripes were read", m,
				(unsigned long long)rebuild->total);
		}
}

int store_rebuild(struct store *store)
{
	struct store_rebuild *rebuild;
	void *memory;
	int ret;

	if (!store->volume.set_count || !members_rebuilding(store->volume.disk))
		return 0;
	if (posix_memalign(
		    &memory, BLOCK_BYTES, DISK_STRIPE_BLOCKS_MAX * BLOCK_BYTES + STORE_CHECK_BYTES))
		return -ENOMEM;
	rebuild = (struct store_rebuild *)calloc(1, sizeof(*rebuild));
	if (!rebuild) {
		free(memory);
		return -ENOMEM;
	}
	rebuild->store = store;
	rebuild->data = (uint8_t *)memory;
	rebuild->piece = rebuild->data + DISK_STRIPE_BLOCKS_MAX * BLOCK_BYTES;
	ret = rows_run(rebuild);
	if (!ret)
		ret = image_run(rebuild);
	if (!ret)
		ret = index_apply_wait(store, atomic_load(&store->committer->published_seq));
	if (!ret) {
		fiber_offload_long(heal_run, rebuild);
		ret = rebuild->ret;
	}
	if (ret && ret != -ESHUTDOWN && members_rebuilding(store->volume.disk))
		log_error("store", "rebuilding stopped: %s; it starts again from the beginning",
			strerror(-ret));
	if (rebuild->unverified)
		log_error("store",
			"a rebuild found %llu stripes of which no volume has the right data: run a "
			"scrub, which names the objects; restore or delete them",
			(unsigned long long)rebuild->unverified);
	free(memory);
	free(rebuild);
	return ret;
}
