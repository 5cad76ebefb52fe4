/* store/recover.c: what a start does: replays the log's tail into the index, loads the buckets and
 * finds out which blocks are in use. */
#include "store/store_priv.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PROGRESS_INTERVAL_NS (2 * NS_PER_S)
#define COMPLAINTS_MAX	     10u
#define DATA_IDS_SKIPPED     (1ull << 32)

DEFINE_COUNTER(groups_replayed, "nebulaio_store_groups_replayed_total", NULL,
	"Groups that a start found in the log and not in the index.");

/* ---- Replay. ---- */

static int body_verify(struct volume *volume, const struct object *object)
{
	uint64_t from, bytes;
	void *piece;
	int ret = 0;

	if (posix_memalign(&piece, BLOCK_BYTES, STORE_CHECK_BYTES))
		return -ENOMEM;
	for (uint32_t s = 0; s < object->segment_count && !ret; s++) {
		const struct segment *segment = atomic_load(&object->segments[s]);

		object_segment_range(object, s, &from, &bytes);
		if (segment)
			ret = recover_segment_verify(volume, segment, bytes, (uint8_t *)piece);
	}
	free(piece);
	return ret;
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
	for (uint64_t at = range->from; at < range->to; at += STORE_CHECK_BYTES) {
		uint32_t len = (uint32_t)MIN(range->to - at, (uint64_t)STORE_CHECK_BYTES);
		uint32_t padded = ALIGN_UP(len, BLOCK_BYTES);

		for (uint32_t done = 0; done < padded;) {
			uint64_t offset, run;
			int ret = segment_find(segment, at + done, &offset, &run);

			if (ret)
				return ret;
			run = MIN(run, (uint64_t)(padded - done));
			if (!disk_in_range(volume->disk, offset, run))
				return -EUCLEAN;
			ret = disk_read_now(volume->disk, piece + done, run, offset);
			if (ret)
				return ret;
			done += (uint32_t)run;
		}
		if (crc32c_update(0, piece, len) != segment->checks[at / STORE_CHECK_BYTES]) {
			const struct stripe_piece wrong = {.at = at,
				.data = piece,
				.bytes = len,
				.crc32c = segment->checks[at / STORE_CHECK_BYTES]};

			if (stripe_mend(volume, segment, &wrong, range->amend))
				return -EUCLEAN;
			volume->mended++;
		}
	}
	return 0;
}

/* Whether the group changes the key again after position at. */
static bool changed_later(struct slice group, size_t at, struct slice key)
{
	struct mutation later;

	while (group_next(group, &at, &later) == 1)
		if (slice_eq(later.key, key))
			return true;
	return false;
}

/* The part whose segment the mutation puts, and which one. NULL: none of the object's. */
static const struct object_part *part_put(
	const struct object *object, const struct mutation *mutation, uint32_t *ret_idx)
{
	struct key prefix;

	if (mutation->op != MUTATION_PUT || mutation->key.len != SEGMENT_KEY_BYTES)
		return NULL;
	for (uint32_t i = object->part_count; i-- > 0;) {
		const struct object_part *part = &object->parts[i];

		key_segments(&prefix, part->data_id);
		if (!slice_starts(mutation->key, slice_of(prefix.bytes, prefix.len)))
			continue;
		memcpy(ret_idx, mutation->key.data + prefix.len, sizeof(*ret_idx));
		*ret_idx = be32toh(*ret_idx);
		return part;
	}
	return NULL;
}

/* Gives an object those of its segments that the group puts. */
static int segments_take(struct slice group, struct object *object)
{
	struct mutation mutation;
	size_t at = 0;

	while (object->body == BODY_SEGMENTED && group_next(group, &at, &mutation) == 1) {
		const struct object_part *part;
		struct segment *segment;
		uint64_t from, bytes;
		uint32_t idx;
		int ret;

		part = part_put(object, &mutation, &idx);
		if (!part)
			continue;
		if (idx >= part->segment_count)
			return -EUCLEAN;
		idx += part->segment_first;
		if (atomic_load(&object->segments[idx]))
			return -EUCLEAN;
		ret = segment_record_parse(mutation.value, &segment);
		if (ret)
			return ret;
		atomic_init(&object->segments[idx], segment);
		object_segment_range(object, idx, &from, &bytes);
		if (!segment_covers(segment, bytes))
			return -EUCLEAN;
	}
	return 0;
}

static bool is_object_row(struct slice key)
{
	return key.data[0] == 'O' || key.data[0] == 'V' || key.data[0] == 'N';
}

/* Whether the bodies that the group names are on the medium. Only asked of the last group: it may
 * not have been flushed. */
static int bodies_verify(struct volume *volume, struct slice group)
{
	struct mutation mutation;
	size_t at = 0;
	int ret;

	while ((ret = group_next(group, &at, &mutation)) == 1) {
		struct object *object;

		if (mutation.op != MUTATION_PUT || !is_object_row(mutation.key) ||
			(mutation.flags & MUTATION_BODY_FLUSHED) ||
			changed_later(group, at, mutation.key))
			continue;
		ret = record_parse(mutation.value, &object);
		if (ret)
			return ret;
		ret = segments_take(group, object);
		if (!ret)
			ret = body_verify(volume, object);
		object_put(NULL, object);
		if (ret)
			return ret;
	}
	return ret;
}

struct replay {
	struct store *store;
	struct state_record state;
	struct journal_at at;
	uint64_t replayed;
};

static int replay_one(struct replay *replay, const uint8_t *bytes, const struct group_head *head)
{
	struct store *store = replay->store;
	struct state_record *state = &replay->state;
	int ret = 0;

	if (head->seq > state->applied_seq) {
		state->applied_seq = head->seq;
		state->data_id_next = MAX(state->data_id_next, head->data_id_next);
		state->bucket_id_next = MAX(state->bucket_id_next, head->bucket_id_next);
		ret = index_apply(store->index, slice_of(bytes, head->bytes), state);
		replay->replayed++;
		counter_add(&groups_replayed, 1);
	}
	replay->at.pos = head->pos + ALIGN_UP((uint64_t)head->bytes, (uint64_t)BLOCK_BYTES);
	replay->at.seq = head->seq + 1;
	return ret;
}

/* Applies the group at hand, unless it is the last and its bodies did not make it. Returns 1 with
 * the next group at hand. */
static int replay_step(struct replay *replay, uint8_t **bytes, struct group_head *head)
{
	struct volume *volume = &replay->store->volume;
	struct journal_at next = replay->at;
	uint8_t *next_bytes = NULL;
	struct group_head next_head;
	int more, ret;

	next.pos = head->pos + ALIGN_UP((uint64_t)head->bytes, (uint64_t)BLOCK_BYTES);
	next.seq = head->seq + 1;
	more = journal_read(volume, &next, &next_bytes, &next_head);
	if (more < 0)
		return more;
	if (!more && head->seq > replay->state.applied_seq) {
		ret = bodies_verify(volume, slice_of(*bytes, head->bytes));
		if (ret == -EUCLEAN) {
			log_info("store",
				"recovery: the last group (%llu) was cut short by the crash and "
				"had not been acknowledged: dropped",
				(unsigned long long)head->seq);
			return 0;
		}
		if (ret)
			return ret;
	}
	ret = replay_one(replay, *bytes, head);
	if (ret || !more) {
		free(next_bytes);
		return ret;
	}
	free(*bytes);
	*bytes = next_bytes;
	*head = next_head;
	return 1;
}

static int replay_run(struct replay *replay)
{
	struct volume *volume = &replay->store->volume;
	uint64_t reported_ns = clock_now_ns();
	struct group_head head;
	uint8_t *bytes;
	int ret = journal_read(volume, &replay->at, &bytes, &head);

	if (ret <= 0)
		return ret;
	while ((ret = replay_step(replay, &bytes, &head)) == 1)
		if (clock_now_ns() - reported_ns > PROGRESS_INTERVAL_NS) {
			log_info("store", "recovery: %llu groups of the log replayed",
				(unsigned long long)replay->replayed);
			reported_ns = clock_now_ns();
		}
	free(bytes);
	return ret;
}

static int state_load(struct store *store, struct state_record *ret_state)
{
	int ret = index_state_read(store->index, ret_state);

	if (ret == -ENOENT || (!ret && memcmp(ret_state->uuid, store->volume.super.uuid,
					       sizeof(ret_state->uuid)) != 0)) {
		log_error("store",
			"%s: volume and index do not belong to the same store: put back "
			"the one that was moved or replaced",
			store->dir);
		return -EUCLEAN;
	}
	if (!ret && (ret_state->version < STORE_VERSION || ret_state->version > INDEX_VERSION)) {
		log_error("store",
			"%s: the index has format %u, this program has %u: use the "
			"program that wrote it",
			store->dir, ret_state->version, INDEX_VERSION);
		return -EUCLEAN;
	}
	if (!ret && (ret_state->features & INDEX_FEATURES_NEEDED & ~INDEX_FEATURES)) {
		log_error("store",
			"%s: the index has features (0x%x) that this program does not know: use "
			"the program that wrote it, or a later one",
			store->dir, ret_state->features & INDEX_FEATURES_NEEDED & ~INDEX_FEATURES);
		return -EUCLEAN;
	}
	return ret;
}

/* An index of an earlier program says what it is from now on, before the log has anything of it.
 */
static int state_upgrade(struct store *store, struct state_record *state)
{
	const struct state_record before = *state;
	int ret = 0;

	state->version = INDEX_VERSION;
	state->features |= INDEX_FEATURES;
	store->features = state->features;
	if (before.version == state->version && before.features == state->features)
		return 0;
	log_info("store", "%s: the index is marked with format %u, features 0x%x (was %u, 0x%x)",
		store->dir, state->version, state->features, before.version, before.features);
	ret = index_state_write(store->index, state);
	return ret ? ret : index_flush(store->index);
}

int recover_replay(struct store *store)
{
	struct superblock *super = &store->volume.super;
	struct replay replay = {
		.store = store, .at = {.pos = super->tail_pos, .seq = super->tail_seq}};
	int ret = state_load(store, &replay.state);

	if (!ret)
		ret = state_upgrade(store, &replay.state);
	if (ret)
		return ret;
	ret = replay_run(&replay);
	if (ret)
		return ret;
	if (replay.replayed) {
		log_info("store", "%s: recovered: %llu groups replayed from the log", store->dir,
			(unsigned long long)replay.replayed);
		ret = index_flush(store->index);
		if (ret)
			return ret;
	}
	/* From here on only groups of the new epoch count. */
	super->epoch++;
	super->tail_pos = replay.at.pos;
	super->tail_seq = replay.at.seq;
	/* Puts that came to no commit may have used numbers that no group has told of. */
	atomic_store(&store->data_id_next, replay.state.data_id_next + DATA_IDS_SKIPPED);
	atomic_store(&store->bucket_id_next, MAX(replay.state.bucket_id_next, 1u));
	atomic_store(&store->tail_pos, super->tail_pos);
	store->committer.head_pos = super->tail_pos;
	store->committer.seq_next = super->tail_seq;
	store->message_first = super->tail_seq << GROUP_NUMBER_SHIFT;
	atomic_store(&store->committer.published_seq, super->tail_seq - 1);
	store->applier.applied_pos = super->tail_pos;
	store->applier.applied_seq = super->tail_seq - 1;
	return volume_super_write(&store->volume);
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

int recover_buckets(struct store *store)
{
	return index_visit(store->index, SLICE("B"), bucket_visit, store);
}

struct scan {
	struct store *store;
	uint64_t rows;
	uint64_t complaints;
	uint64_t reported_ns;
};

static void scan_complain(struct scan *scan, const char *what)
{
	if (scan->complaints++ < COMPLAINTS_MAX)
		log_error("store", "the index is damaged: %s: run fsck", what);
}

static void scan_segment(struct scan *scan, const struct segment *segment)
{
	for (uint32_t i = 0; i < segment->extent_count; i++) {
		int ret = space_mark(
			scan->store->space, segment->extents[i].block, segment->extents[i].blocks);

		if (ret)
			scan_complain(scan, ret == -EEXIST ? "two objects name the same block"
							   : "an extent lies outside the volume");
	}
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
		atomic_fetch_add(&store->objects, 1);
		bucket_put(bucket);
	} else {
		scan_complain(scan, "an object of no bucket");
	}
	if (object->body == BODY_DIRECT)
		scan_segment(scan, atomic_load(&object->segments[0]));
	object_put(store, object);
}

static bool scan_visit(struct slice key, struct slice value, void *arg)
{
	struct scan *scan = (struct scan *)arg;
	struct segment *segment;

	if (is_object_row(key) && key.len > 9) {
		scan_object(scan, key, value);
	} else if (key.data[0] == 'S' && segment_record_parse(value, &segment) == 0) {
		scan_segment(scan, segment);
		segment_close(segment);
	} else {
		scan_complain(scan, "a row of no known kind");
	}
	scan->rows++;
	if (scan->rows % 4096 == 0 && clock_now_ns() - scan->reported_ns > PROGRESS_INTERVAL_NS) {
		log_info("store", "recovery: %llu rows of the index read to find the space in use",
			(unsigned long long)scan->rows);
		scan->reported_ns = clock_now_ns();
	}
	return true;
}

int recover_scan(struct store *store)
{
	struct scan scan = {.store = store, .reported_ns = clock_now_ns()};
	static const struct slice kinds[] = {SLICE("O"), SLICE("V"), SLICE("N"), SLICE("S")};
	int ret = 0;

	for (uint32_t i = 0; i < ARRAY_LEN(kinds) && !ret; i++)
		ret = index_visit(store->index, kinds[i], scan_visit, &scan);
	return ret;
}
