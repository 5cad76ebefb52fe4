/* store/check/recover.c: the steps of a start after the log is replayed (replay.c): loads the
 * buckets and computes which blocks are in use. Also verifies bodies. */
#include "store/check/check.h"
#include "store/index/index.h"
#include "store/log/key.h"
#include "store/object/object.h"
#include "store/object/record.h"
#include "store/space/space.h"
#include "store/state/state.h"
#include "store/table/table.h"
#include "store/volume/volume.h"

#include <endian.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PROGRESS_INTERVAL_NS (2 * NS_PER_S)
#define COMPLAINTS_MAX	     10u

/* ---- Checksums and parity. ---- */

static int piece_read(struct volume *volume, const struct segment *segment,
	const struct recover_range *range, uint8_t *piece)
{
	const struct stripe_piece whole = {.at = range->from,
		.data = piece,
		.bytes = (uint32_t)MIN(range->to - range->from, (uint64_t)STORE_CHECK_BYTES),
		.crc32c = segment->checks[range->from / STORE_CHECK_BYTES]};

	return stripe_piece_read(volume, segment, &whole, range->amend);
}

int recover_segment_verify(
	struct volume *volume, const struct segment *segment, uint64_t bytes, uint8_t *piece)
{
	const struct recover_range range = {.to = bytes};

	return recover_range_verify(volume, segment, &range, piece);
}

int recover_range_verify(struct volume *volume, const struct segment *segment,
	const struct recover_range *range, uint8_t *piece)
{
	volume_check(volume);
	CHECK(range->from % STORE_CHECK_BYTES == 0);
	for (uint64_t at = range->from; at < range->to; at += STORE_CHECK_BYTES) {
		const struct recover_range piece_on = {at, range->to, range->amend};
		int ret = piece_read(volume, segment, &piece_on, piece);

		if (ret)
			return ret;
	}
	return 0;
}

/* Walks through a segment's stripes; a piece may have parts of several. */
struct stripes {
	struct volume *volume;
	const struct segment *segment;
	uint64_t bytes;
	uint8_t *piece;
	uint64_t piece_at; /* of the piece that was read last; UINT64_MAX: none */
	int piece_ret;
	uint8_t *data; /* of a stripe */
	uint64_t read_bytes;
};

/* Reads the data of a stripe, of which each piece has the right checksum. */
static int stripe_fill(struct stripes *stripes, const struct extent *extent)
{
	uint64_t from = (uint64_t)extent->start << BLOCK_SHIFT;
	uint64_t to = from + ((uint64_t)extent->blocks << BLOCK_SHIFT), end;

	for (uint64_t at = from; at < to; at = end) {
		uint64_t piece_at = at / STORE_CHECK_BYTES * STORE_CHECK_BYTES;

		end = MIN(to, piece_at + STORE_CHECK_BYTES);
		if (piece_at != stripes->piece_at) {
			const struct recover_range range = {.from = piece_at, .to = stripes->bytes};

			stripes->piece_at = piece_at;
			stripes->read_bytes +=
				MIN(stripes->bytes - piece_at, (uint64_t)STORE_CHECK_BYTES);
			stripes->piece_ret = piece_read(
				stripes->volume, stripes->segment, &range, stripes->piece);
		}
		if (stripes->piece_ret)
			return stripes->piece_ret;
		memcpy(stripes->data + (at - from), stripes->piece + (at - piece_at), end - at);
	}
	return 0;
}

int recover_range_parity(struct volume *volume, const struct segment *segment,
	const struct recover_range *range, uint8_t *piece, struct recover_parity *parity)
{
	struct stripes stripes = {.volume = volume,
		.segment = segment,
		.bytes = parity->bytes,
		.piece = piece,
		.piece_at = UINT64_MAX};
	void *data;
	int ret = 0;

	parity->wrong = 0;
	parity->read_bytes = 0;
	if (!segment_covers(segment, parity->bytes))
		return 0;
	if (posix_memalign(&data, BLOCK_BYTES, DISK_STRIPE_BLOCKS_MAX * BLOCK_BYTES))
		return -ENOMEM;
	stripes.data = (uint8_t *)data;
	for (uint32_t i = 0; i < segment->extent_count; i++) {
		const struct extent *extent = &segment->extents[i];
		uint64_t at = (uint64_t)extent->start << BLOCK_SHIFT;
		struct disk_parity stripe;
		int error;

		if (at < range->from || at >= range->to || stripe_fill(&stripes, extent))
			continue;
		stripe = (struct disk_parity){0};
		error = disk_array_parity(volume->disk, extent->block, data, true, &stripe);
		parity->wrong += stripe.wrong;
		parity->read_bytes += stripe.read_bytes;
		ret = ret ? ret : error;
	}
	parity->read_bytes += stripes.read_bytes;
	free(data);
	return ret;
}

/* ---- Buckets and space. ---- */

static bool bucket_visit(struct slice key, struct slice value, void *arg)
{
	struct store *store = (struct store *)arg;
	struct store_bucket info;

	if (bucket_record_parse(slice_from(key, 1), value, &info)) {
		log_error("store", "a damaged bucket record in the index: run fsck");
		return true;
	}
	return buckets_add(store->buckets, &info) == 0;
}

/* A program without quotas may have deleted the bucket. */
static bool quota_visit(struct slice key, struct slice value, void *arg)
{
	const struct store *store = (const struct store *)arg;
	struct store_quota quota;
	struct bucket *bucket;
	uint64_t id;

	if (quota_record_parse(key, value, &id, &quota)) {
		log_error("store", "a damaged quota in the index: run fsck");
		return true;
	}
	bucket = buckets_find_id(store->buckets, id);
	if (bucket)
		bucket_quota_set(bucket, &quota);
	bucket_put(bucket);
	return true;
}

int recover_buckets(struct store *store)
{
	int ret = index_visit(store->index, SLICE("B"), bucket_visit, store);

	return ret ? ret : index_visit(store->index, SLICE("Q"), quota_visit, store);
}

/* The rows that name extents. */
static const struct slice KINDS[] = {SLICE("O"), SLICE("V"), SLICE("N"), SLICE("S")};

struct scan {
	struct store *store;
	uint64_t rows;
	uint64_t complaints;
	uint64_t beyond;     /* extents beyond the volume's end */
	uint64_t end_blocks; /* where the last of them ends, on a volume that is no array */
	uint64_t reported_ns;
};

static void scan_complain(struct scan *scan, const char *what)
{
	scan->store->index_suspect = true;
	if (scan->complaints++ < COMPLAINTS_MAX)
		log_error("store", "the index is damaged: %s: run fsck", what);
}

/* Whether it is beyond the end; false for an extent that no volume could have. */
static bool is_beyond(const struct volume *volume, const struct extent *extent)
{
	return disk_stripe_is(extent->block) == (volume->set_count != 0) &&
	       !disk_in_range(volume->disk, extent->block * BLOCK_BYTES,
		       (uint64_t)extent->blocks * BLOCK_BYTES);
}

static void scan_segment(struct scan *scan, const struct segment *segment)
{
	for (uint32_t i = 0; i < segment->extent_count; i++) {
		const struct extent *extent = &segment->extents[i];
		int ret = space_mark(scan->store->space, extent->block, extent->blocks);

		if (ret == -ERANGE && is_beyond(&scan->store->volume, extent)) {
			scan->beyond++;
			scan->end_blocks = MAX(scan->end_blocks, extent->block + extent->blocks);
		} else if (ret) {
			scan_complain(scan, ret == -EEXIST ? "two objects use the same block"
							   : "an extent lies outside the volume");
		}
	}
}

/* If the volume grew again, other bodies would use the places of the lost ones. */
static int beyond_refuse(const struct scan *scan)
{
	const struct store *store = scan->store;
	const struct volume *volume = &store->volume;
	uint64_t bytes =
		ALIGN_UP(scan->end_blocks * BLOCK_BYTES, (uint64_t)volume->super.step_bytes);

	if (volume->set_count)
		log_error("store",
			"%s: %llu pieces of bodies lie behind the end of the shortest of its "
			"volumes: it was cut short. Put a whole copy of it back, or a blank one "
			"in its place, which is rebuilt from the others",
			store->dir, (unsigned long long)scan->beyond);
	else
		log_error("store",
			"%s: %llu pieces of bodies lie behind the end of the volume, which has "
			"%llu bytes: it was cut short. Put a whole copy of it back; if there is "
			"none: truncate -s %llu %s, and nebulaio fsck --deep names the objects "
			"that lay there",
			volume->path, (unsigned long long)scan->beyond,
			(unsigned long long)disk_bytes(volume->disk), (unsigned long long)bytes,
			volume->path);
	return -EUCLEAN;
}

static void scan_object(struct scan *scan, struct slice key, struct slice value)
{
	struct store *store = scan->store;
	struct bucket *bucket;
	struct object *object;
	uint64_t bucket_id;

	memcpy(&bucket_id, key.data + 1, sizeof(bucket_id));
	if (record_parse(value, &object)) {
		scan_complain(scan, "an object record");
		return;
	}
	bucket = buckets_find_id(store->buckets, be64toh(bucket_id));
	if (bucket) {
		atomic_fetch_add(&bucket->objects, 1);
		if (object->body != BODY_MARKER)
			bucket_used_add(bucket, (int64_t)object->meta.bytes, 1);
		atomic_fetch_add(&store->objects, 1);
		bucket_put(bucket);
	} else {
		scan_complain(scan, "an object without a bucket");
	}
	if (object->body == BODY_DIRECT)
		scan_segment(scan, atomic_load(&object->segments[0]));
	object_put(store, object);
}

static bool scan_visit(struct slice key, struct slice value, void *arg)
{
	struct scan *scan = (struct scan *)arg;
	struct segment *segment;

	if (key_is_object(key) && key.len > 9) {
		scan_object(scan, key, value);
	} else if (key.data[0] == 'S' && segment_record_parse(value, &segment) == 0) {
		scan_segment(scan, segment);
		segment_close(segment);
	} else {
		scan_complain(scan, "a row of an unknown kind");
	}
	scan->rows++;
	if (scan->rows % 4096 == 0 && clock_now_ns() - scan->reported_ns > PROGRESS_INTERVAL_NS) {
		log_info("store", "recovery: read %llu rows of the index to find the space in use",
			(unsigned long long)scan->rows);
		scan->reported_ns = clock_now_ns();
	}
	return true;
}

int recover_scan(struct store *store)
{
	struct scan scan = {.store = store, .reported_ns = clock_now_ns()};
	int ret = 0;

	for (uint32_t i = 0; i < ARRAY_LEN(KINDS) && !ret; i++)
		ret = index_visit(store->index, KINDS[i], scan_visit, &scan);
	return !ret && scan.beyond ? beyond_refuse(&scan) : ret;
}

/* ---- A change of the set of volumes that this start takes back. ---- */

static bool segment_withdrawn(const struct volume *volume, const struct segment *segment)
{
	for (uint32_t i = 0; segment && i < segment->extent_count; i++)
		if (disk_stripe_slot(segment->extents[i].block) == volume->withdrew_slot)
			return true;
	return false;
}

bool recover_row_withdrawn(const struct volume *volume, struct slice key, struct slice value)
{
	struct segment *segment;
	struct object *object;
	bool withdrawn = false;

	if (key.len && key.data[0] == 'S' && segment_record_parse(value, &segment) == 0) {
		withdrawn = segment_withdrawn(volume, segment);
		segment_close(segment);
	} else if (key_is_object(key) && record_parse(value, &object) == 0) {
		if (object->body == BODY_DIRECT)
			withdrawn = segment_withdrawn(volume, atomic_load(&object->segments[0]));
		object_put(NULL, object);
	}
	return withdrawn;
}

struct withdrawal {
	const struct volume *volume;
	uint64_t rows;
};

static bool withdrawn_visit(struct slice key, struct slice value, void *arg)
{
	struct withdrawal *withdrawal = (struct withdrawal *)arg;

	withdrawal->rows += recover_row_withdrawn(withdrawal->volume, key, value);
	return true;
}

int recover_withdraw(const struct store *store)
{
	struct withdrawal withdrawal = {.volume = &store->volume};
	int ret = 0;

	for (uint32_t i = 0; i < ARRAY_LEN(KINDS) && !ret; i++)
		ret = index_visit(store->index, KINDS[i], withdrawn_visit, &withdrawal);
	if (ret)
		return ret;
	if (withdrawal.rows) {
		log_error("store",
			"%s: too few of the volumes that were added are present and good, and %llu "
			"bodies lie on them: connect them (storage.volume must name all)",
			store->dir, (unsigned long long)withdrawal.rows);
		return -EUCLEAN;
	}
	log_warn("store",
		"%s: the change of the set of volumes is taken back: too few of the volumes that "
		"were added are present and good, and no body lies on them",
		store->dir);
	return stripe_remember(store->dir, &store->volume);
}
