/* store/stripe_mend.c: what several volumes are for: a piece whose checksum is wrong is read anew
 * from the others and put right, and a volume that came back or was replaced is rebuilt from them,
 * in the background. */
#include "store/store_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_STRIPES 256u
/* Runs that are given back meanwhile. */
#define HELD_FIRST 64u

DEFINE_COUNTER(mended, "nebulaio_store_pieces_mended_total", NULL,
	"Pieces whose checksum was wrong and that other volumes made right.");
DEFINE_COUNTER(stripes_rebuilt, "nebulaio_store_stripes_rebuilt_total", NULL,
	"Stripes of which a part was made anew for a volume that is rebuilt.");
DEFINE_COUNTER(volumes_rebuilt, "nebulaio_store_volumes_rebuilt_total", NULL,
	"Volumes that were rebuilt entirely.");

/* ---- Pieces. ---- */

/* Reads the piece in one way (or writes what was read that way over what is wrong). */
static int piece_go(struct disk *disk, const struct segment *segment,
	const struct stripe_piece *piece, uint32_t way, bool amend)
{
	uint32_t padded = ALIGN_UP(piece->bytes, BLOCK_BYTES);
	int ret = 0;

	for (uint32_t done = 0; done < padded && !ret;) {
		uint64_t offset, run;

		ret = segment_find(segment, piece->at + done, &offset, &run);
		if (ret)
			return ret;
		run = MIN(run, (uint64_t)(padded - done));
		if (amend)
			ret = disk_array_amend(
				disk, piece->data + done, (uint32_t)run, offset, way);
		else
			ret = disk_array_reread(
				disk, piece->data + done, (uint32_t)run, offset, way);
		done += (uint32_t)run;
	}
	return ret;
}

int stripe_mend(struct volume *volume, const struct segment *segment,
	const struct stripe_piece *piece, bool amend)
{
	if (!volume->set_count)
		return -EIO;
	for (uint32_t way = 0;; way++) {
		int ret = piece_go(volume->disk, segment, piece, way, false);

		if (ret == -ENOENT || ret == -ENOMEM)
			return -EIO;
		if (ret || crc32c_update(0, piece->data, piece->bytes) != piece->crc32c)
			continue;
		counter_add(&mended, 1);
		/* Not written anew is read anew the next time. */
		if (amend)
			(void)piece_go(volume->disk, segment, piece, way, true);
		return 0;
	}
}

/* ---- Rebuilding. ---- */

/* The rows that name extents, by kind and then by key, and where we are among them. */
static const struct slice KINDS[] = {SLICE("O"), SLICE("V"), SLICE("N"), SLICE("S")};

struct store_rebuild {
	struct store *store;
	uint32_t kind;
	struct key after; /* len 0: from the start of the kind */
	uint32_t count;
	uint64_t stripes[BATCH_STRIPES + SEGMENT_EXTENTS_MAX];
	uint64_t total;
	int ret;
};

static void stripes_take(struct store_rebuild *rebuild, const struct segment *segment)
{
	for (uint32_t i = 0; i < segment->extent_count; i++)
		rebuild->stripes[rebuild->count++] = segment->extents[i].block;
}

static void row_take(struct store_rebuild *rebuild, struct slice key, struct slice value)
{
	struct segment *segment;
	struct object *object;

	if (key.data[0] == 'S') {
		if (segment_record_parse(value, &segment))
			return;
		stripes_take(rebuild, segment);
		segment_close(segment);
		return;
	}
	if (record_parse(value, &object))
		return;
	if (object->body == BODY_DIRECT)
		stripes_take(rebuild, atomic_load(&object->segments[0]));
	object_put(rebuild->store, object);
}

/* On a helper thread: the extents of the next rows. */
static void batch_gather(void *arg)
{
	struct store_rebuild *rebuild = (struct store_rebuild *)arg;
	struct slice kind = KINDS[rebuild->kind], key, value;
	struct slice from =
		rebuild->after.len ? slice_of(rebuild->after.bytes, rebuild->after.len) : kind;
	struct index_walk *walk;

	rebuild->count = 0;
	rebuild->ret = index_walk_open(rebuild->store->index, from, SLICE_NONE, &walk);
	if (rebuild->ret)
		return;
	while (rebuild->count < BATCH_STRIPES && index_walk_get(walk, &key, &value) &&
		slice_starts(key, kind)) {
		if (!rebuild->after.len || !slice_eq(key, from)) {
			row_take(rebuild, key, value);
			rebuild->after.len = (uint32_t)key.len;
			memcpy(rebuild->after.bytes, key.data, key.len);
		}
		index_walk_next(walk);
	}
	if (rebuild->count < BATCH_STRIPES) {
		rebuild->kind++;
		rebuild->after.len = 0;
	}
	rebuild->ret = index_walk_error(walk);
	index_walk_close(walk);
}

static uint64_t members_rebuilding(const struct disk *disk)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; i < disk_array_members(disk); i++)
		if (disk_array_state(disk, i) == DISK_MEMBER_REBUILDING)
			mask |= 1ull << i;
	return mask;
}

/* Nobody's blocks are used anew between the look into the index and the write: what a row names
 * stays what it was. */
static int batch_run(struct store_rebuild *rebuild)
{
	struct disk *disk = rebuild->store->volume.disk;
	uint64_t members = members_rebuilding(disk);
	int ret;

	space_hold(rebuild->store->space);
	fiber_offload(batch_gather, rebuild);
	ret = rebuild->ret;
	for (uint32_t i = 0; i < rebuild->count && !ret; i++) {
		for (uint32_t m = 0; members >> m && !ret; m++)
			if (members >> m & 1)
				ret = disk_array_rebuild(disk, rebuild->stripes[i], m);
		if (atomic_load(&rebuild->store->quiescing))
			ret = -ESHUTDOWN;
	}
	space_let_go(rebuild->store->space);
	rebuild->total += rebuild->count;
	counter_add(&stripes_rebuilt, rebuild->count);
	return ret;
}

static void heal_run(void *arg)
{
	struct store_rebuild *rebuild = (struct store_rebuild *)arg;
	struct store *store = rebuild->store;
	struct disk *disk = store->volume.disk;
	uint64_t members = members_rebuilding(disk);

	/* The log before the tail is not on the rebuilt volumes, so the tail moves first. */
	rebuild->ret = disk_flush_now(disk);
	if (!rebuild->ret)
		rebuild->ret = applier_checkpoint_now(store);
	if (rebuild->ret)
		return;
	members &= members_rebuilding(disk); /* one may have failed */
	for (uint32_t m = 0; members >> m; m++)
		if (members >> m & 1)
			disk_array_heal(disk, m);
	pthread_mutex_lock(&store->volume.lock);
	rebuild->ret = volume_super_write(&store->volume);
	pthread_mutex_unlock(&store->volume.lock);
	for (uint32_t m = 0; members >> m && !rebuild->ret; m++)
		if (members >> m & 1) {
			counter_add(&volumes_rebuilt, 1);
			log_info("store", "volume %u is rebuilt: %llu stripes read", m,
				(unsigned long long)rebuild->total);
		}
}

int store_rebuild(struct store *store)
{
	struct store_rebuild *rebuild;
	uint64_t seq;
	int ret = 0;

	if (!store->volume.set_count || !members_rebuilding(store->volume.disk))
		return 0;
	rebuild = (struct store_rebuild *)calloc(1, sizeof(*rebuild));
	if (!rebuild)
		return -ENOMEM;
	rebuild->store = store;
	while (rebuild->kind < ARRAY_LEN(KINDS) && !ret) {
		ret = batch_run(rebuild);
		fiber_yield();
	}
	seq = atomic_load(&store->committer.published_seq);
	if (!ret)
		ret = applier_wait(store, seq);
	if (!ret) {
		fiber_offload(heal_run, rebuild);
		ret = rebuild->ret;
	}
	if (ret && ret != -ESHUTDOWN)
		log_error("store", "rebuilding stopped: %s; it is begun anew", strerror(-ret));
	free(rebuild);
	return ret;
}

uint32_t store_volumes(struct store *store, struct store_volume *ret_volumes, uint32_t max)
{
	struct disk *disk = store->volume.disk;
	uint32_t count = MIN(disk_array_members(disk), max);

	for (uint32_t i = 0; i < count; i++) {
		struct disk *member = disk_array_member(disk, i);

		ret_volumes[i] = (struct store_volume){.bytes = member ? disk_bytes(member) : 0,
			.state = disk_array_state(disk, i)};
	}
	return count;
}
