/* store/check/replay.c: a start's work on the log: applies its tail to the index, and distinguishes
 * the end of the log from damage. Blocks. */
#include "store/check/check.h"
#include "store/commit/commit.h"
#include "store/commit/committer.h"
#include "store/commit/index_apply.h"
#include "store/image/image.h"
#include "store/index/index.h"
#include "store/log/journal.h"
#include "store/log/key.h"
#include "store/object/object.h"
#include "store/object/record.h"
#include "store/state/state.h"
#include "store/volume/volume.h"

#include <endian.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PROGRESS_INTERVAL_NS (2 * NS_PER_S)
#define DATA_IDS_SKIPPED     (1ull << 32)

DEFINE_COUNTER(groups_replayed, "nebulaio_store_groups_replayed_total", NULL,
	"Groups that a start found in the log but not in the index.");

/* ---- The last group's bodies. ---- */

/* Data that was recovered from the other volumes could be lost with one more volume, so data and
 * parity are written again. Parity that cannot be checked or written is as it was. */
static int segment_verify(
	struct volume *volume, const struct segment *segment, uint64_t bytes, uint8_t *piece)
{
	const struct recover_range range = {.to = bytes, .amend = true};
	int ret = recover_range_verify(volume, segment, &range, piece);
	struct recover_parity parity = {.bytes = bytes};

	if (!ret && volume->set_count)
		(void)recover_range_parity(volume, segment, &range, piece, &parity);
	return ret;
}

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
			ret = segment_verify(volume, segment, bytes, (uint8_t *)piece);
	}
	free(piece);
	return ret;
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

/* The part whose segment the mutation puts, and the segment's number. NULL: not a segment of this
 * object. */
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

/* Gives an object the segments that the group puts. */
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

/* Whether the group names space of the geometry that this start took out of the set. */
static bool group_withdrawn(const struct volume *volume, struct slice group)
{
	struct mutation mutation;
	size_t at = 0;

	while (volume->withdrew && group_next(group, &at, &mutation) == 1)
		if (mutation.op == MUTATION_PUT &&
			recover_row_withdrawn(volume, mutation.key, mutation.value))
			return true;
	return false;
}

/* Whether the bodies that the group names are on the medium. Asked only about the last group, which
 * may not have been flushed. */
static int bodies_verify(struct volume *volume, struct slice group)
{
	struct mutation mutation;
	size_t at = 0;
	int ret;

	while ((ret = group_next(group, &at, &mutation)) == 1) {
		struct object *object;

		if (mutation.op != MUTATION_PUT || !key_is_object(mutation.key) ||
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

/* ---- Replay. ---- */

struct replay {
	struct store *store;
	struct state_record state;
	struct journal_at at; /* the position of the next group */
	uint64_t replayed;
	bool hole_at_end; /* the bytes after the last group cannot be read */
};

/* ---- Holes: groups are missing, but the log continues after them. ---- */

static void hole_refuse(const struct store *store, const struct log_hole *hole)
{
	const struct volume *volume = &store->volume;
	char lost[GROUPS_SAID_BYTES], behind[GROUPS_SAID_BYTES];

	groups_say(hole->lost_first, hole->lost_end - 1, lost);
	groups_say(hole->find.first.seq, hole->find.seq_last, behind);
	store_find(store, "%s: the log is damaged: group %llu, at byte %llu of %s, %s, %s%s%s",
		store->dir, (unsigned long long)hole->at.seq,
		(unsigned long long)(VOLUME_LOG_OFFSET + hole->at.pos % volume->super.log_bytes),
		volume->path, hole->error ? "cannot be read" : "is not whole",
		hole->find.found ? "but " : "and it may have been the last one",
		hole->find.found ? behind : "",
		hole->find.found ? " came after it, so it was durable" : "");
	store_find(store,
		"%s: the changes of %s were acknowledged and may be lost. This start changed "
		"nothing. Put a good copy of the volume back; or, to drop these changes, keep all "
		"others and print the losses: nebulaio fsck --salvage %s",
		store->dir, lost, store->dir);
}

static void hole_pass(const struct store *store, const struct log_hole *hole)
{
	log_warn("store",
		"%s: the log is damaged at byte %llu of %s, where group %llu was, but the index "
		"has its changes: nothing is lost; check the medium",
		store->dir,
		(unsigned long long)(VOLUME_LOG_OFFSET +
				     hole->at.pos % store->volume.super.log_bytes),
		store->volume.path, (unsigned long long)hole->at.seq);
}

/* The medium's errors prevent a search: whether the log continues is unknown. */
static int search_failed(const struct store *store, const struct journal_at *at, int error)
{
	if (error == -EIO)
		store_find(store,
			"%s: cannot read the log of %s after group %llu: the medium may be "
			"failing. Copy the volume to another one (ddrescue) and start with the "
			"copy",
			store->dir, store->volume.path, (unsigned long long)(at->seq - 1));
	return error;
}

/* 0: the hole may be passed; -EUCLEAN (reported): a start must not pass it. */
static int hole_settle(struct store *store, const struct log_hole *hole)
{
	if (hole->lost_first == hole->lost_end) {
		hole_pass(store, hole);
		return 0;
	}
	if (store->salvage)
		return salvage_hole(store, store->salvage, hole);
	hole_refuse(store, hole);
	return -EUCLEAN;
}

static void carried_tell(const struct store *store, const struct log_hole *hole)
{
	log_warn("store",
		"%s: the log is damaged at byte %llu of %s: group %llu was read from its copy in "
		"group %llu: nothing is lost; check the medium",
		store->dir,
		(unsigned long long)(VOLUME_LOG_OFFSET +
				     hole->at.pos % store->volume.super.log_bytes),
		store->volume.path, (unsigned long long)hole->at.seq,
		(unsigned long long)hole->find.first.seq);
}

/* Fetches the group after a hole, from the search's result; like replay_fetch. */
static int hole_fetch(struct replay *replay, struct log_hole *hole, uint8_t **ret_bytes,
	struct group_head *ret_head)
{
	struct store *store = replay->store;
	struct journal_at next = hole->find.first;
	int carried = journal_carried(&store->volume, &hole->find, &hole->at, ret_bytes, ret_head);
	int ret = 0;

	if (carried < 0)
		return carried;
	if (carried)
		next = (struct journal_at){.pos = ret_head->pos, .seq = ret_head->seq};
	hole->lost_end = MAX(next.seq, hole->lost_first);
	if (carried && next.seq == hole->at.seq)
		carried_tell(store, hole);
	else
		ret = hole_settle(store, hole);
	if (ret && carried)
		free(*ret_bytes);
	if (ret)
		return ret;
	/* It is of a later epoch: the newer superblock slot is damaged. */
	store->volume.super.epoch = hole->find.first_epoch;
	hole->at = next;
	return carried ? 1 : journal_read(&store->volume, &next, ret_bytes, ret_head);
}

/* Reads the group at `at`, or the next one after a hole that may be passed, and moves *at to it. 1;
 * 0: the log ends here; -EUCLEAN (reported): the log is damaged. */
static int replay_fetch(struct replay *replay, struct journal_at *at, uint8_t **ret_bytes,
	struct group_head *ret_head)
{
	struct store *store = replay->store;
	uint64_t applied = replay->state.applied_seq;
	struct log_hole hole = {.at = *at, .lost_first = MAX(at->seq, applied + 1)};
	int ret = journal_read(&store->volume, at, ret_bytes, ret_head);

	if (ret == 1 || ret == -ENOMEM || ret == -EHOSTDOWN)
		return ret;
	/* A log that is being created has no groups. */
	if (!ret && store->volume.super.epoch == 0)
		return 0;
	hole.error = ret;
	ret = journal_search(&store->volume, at, &hole.find);
	if (ret)
		return search_failed(store, at, ret);
	if (hole.find.found) {
		ret = hole_fetch(replay, &hole, ret_bytes, ret_head);
		*at = hole.at;
		return ret;
	}
	if (!hole.error && at->seq > applied)
		return 0;
	hole.lost_end = hole.lost_first + (hole.error ? 1 : 0);
	ret = hole_settle(store, &hole);
	at->seq = hole.lost_end;
	replay->hole_at_end = hole.error != 0;
	return ret;
}

/* The tail moves only when the index has everything before it. An index that lacks some of that is
 * not the volume's latest index. */
static int index_old_refuse(struct replay *replay)
{
	struct store *store = replay->store;
	const struct superblock *super = &store->volume.super;
	const struct log_hole hole = {.at = {.pos = super->tail_pos, .seq = super->tail_seq},
		.lost_first = replay->state.applied_seq + 1,
		.lost_end = super->tail_seq};

	if (replay->state.applied_seq + 1 >= super->tail_seq)
		return 0;
	if (store->salvage)
		return salvage_hole(store, store->salvage, &hole);
	store_find(store,
		"%s: the index is older than the volume: it ends with group %llu, and the log "
		"begins with %llu. Was it restored from an old copy? Put the newest one back; or, "
		"to drop the changes of the groups in between: nebulaio fsck --salvage %s",
		store->dir, (unsigned long long)replay->state.applied_seq,
		(unsigned long long)super->tail_seq, store->dir);
	return -EUCLEAN;
}

static int replay_one(struct replay *replay, const uint8_t *bytes, const struct group_head *head)
{
	struct store *store = replay->store;
	struct state_record *state = &replay->state;
	int ret = 0;

	if (head->seq > state->applied_seq) {
		state->applied_seq = head->seq;
		state->data_id_next = MAX(state->data_id_next, head->data_id_next);
		state->bucket_id_next = MAX(state->bucket_id_next, head->bucket_id_next);
		ret = index_write_group(store->index, slice_of(bytes, head->bytes), state);
		replay->replayed++;
		counter_add(&groups_replayed, 1);
	}
	return ret;
}

/* Bodies of the last group lie on volumes that were added and are missing. Whether it was
 * acknowledged is unknown. 0: the owner gives it up. */
static int withdrawn_settle(struct store *store, uint64_t seq)
{
	store_find(store,
		"%s: too few of the volumes that were added are present and good, and bodies of "
		"the log's last group (%llu) lie on them",
		store->dir, (unsigned long long)seq);
	if (store->salvage) {
		store->salvage->report->groups_lost++;
		return 0;
	}
	store_find(store,
		"%s: its changes were perhaps acknowledged: connect the volumes (storage.volume "
		"must name all); or, to drop these changes and keep all others: nebulaio fsck "
		"--salvage %s",
		store->dir, store->dir);
	return -EUCLEAN;
}

/* For the last group. 1: it counts; 0: it does not count; -EUCLEAN (reported): unknown. */
static int last_verify(struct replay *replay, struct slice bytes, const struct group_head *head)
{
	struct store *store = replay->store;
	int ret;

	if (head->seq <= replay->state.applied_seq || replay->hole_at_end)
		return 1;
	if (group_withdrawn(&store->volume, bytes))
		return withdrawn_settle(store, head->seq);
	ret = bodies_verify(&store->volume, bytes);
	if (ret == -EUCLEAN) {
		log_info("store",
			"recovery: the crash cut the last group (%llu) short before it was "
			"acknowledged: dropped",
			(unsigned long long)head->seq);
		return 0;
	}
	if (ret != -EIO)
		return ret ? ret : 1;
	if (store->salvage) {
		store_find(store, "%s: bodies of objects in the last group (%llu) cannot be read",
			store->dir, (unsigned long long)head->seq);
		return 1;
	}
	store_find(store,
		"%s: cannot read bodies of objects in the last group (%llu) from %s, so it is not "
		"known whether the group was acknowledged: check the medium; to go on without the "
		"damaged part: nebulaio fsck --salvage %s",
		store->dir, (unsigned long long)head->seq, store->volume.path, store->dir);
	return -EUCLEAN;
}

/* Applies the current group, unless it is the last one and its bodies are not on the medium.
 * Returns 1 with the next group as the current one. */
static int replay_step(struct replay *replay, uint8_t **bytes, struct group_head *head)
{
	struct journal_at next = {
		.pos = head->pos + ALIGN_UP((uint64_t)head->bytes, (uint64_t)BLOCK_BYTES),
		.seq = head->seq + 1};
	uint8_t *next_bytes = NULL;
	struct group_head next_head;
	int more = replay_fetch(replay, &next, &next_bytes, &next_head);
	int ret = 0;

	if (more < 0)
		return more;
	if (!more) {
		ret = last_verify(replay, slice_of(*bytes, head->bytes), head);
		if (ret <= 0)
			return ret;
	}
	ret = replay_one(replay, *bytes, head);
	replay->at = next;
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
	uint64_t reported_ns = clock_now_ns();
	struct group_head head;
	uint8_t *bytes;
	int ret = index_old_refuse(replay);

	if (!ret)
		ret = replay_fetch(replay, &replay->at, &bytes, &head);
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
			"%s: volume and index belong to different stores: put back the one that "
			"was moved or replaced",
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
	if (!ret && (ret_state->features & INDEX_FEATURE_PARTIAL) && !store->opts.restoring) {
		log_error("store",
			"%s: a restore from a backup has not ended: run `nebulaio admin restore` "
			"again, which goes on",
			store->dir);
		return -EUCLEAN;
	}
	if (!ret && (ret_state->features & INDEX_FEATURES_NEEDED &
			    ~(INDEX_FEATURES | INDEX_FEATURE_PARTIAL))) {
		log_error("store",
			"%s: the index has features (0x%x) that this program does not support: "
			"use the program that wrote it, or a later one",
			store->dir, ret_state->features & INDEX_FEATURES_NEEDED & ~INDEX_FEATURES);
		return -EUCLEAN;
	}
	return ret;
}

/* The index of an earlier program gets the new version before the log has anything of that version.
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

	/* A restore was cut short between the index and the superblock; the log is empty. */
	if (!ret && store->opts.restoring && replay.state.applied_seq >= super->tail_seq)
		replay.at.seq = super->tail_seq = replay.state.applied_seq + 1;
	if (!ret)
		ret = state_upgrade(store, &replay.state);
	if (ret)
		return ret;
	ret = replay_run(&replay);
	if (ret)
		return ret;
	if (replay.replayed)
		log_info("store", "%s: recovered: %llu groups replayed from the log", store->dir,
			(unsigned long long)replay.replayed);
	/* Groups given up at the log's end count as applied: the new log begins after them. */
	if (replay.state.applied_seq + 1 < replay.at.seq) {
		replay.state.applied_seq = replay.at.seq - 1;
		ret = index_state_write(store->index, &replay.state);
		replay.replayed++;
	}
	if (!ret && replay.replayed)
		ret = index_flush(store->index);
	if (ret)
		return ret;
	if (store->volume.withdrew) {
		ret = recover_withdraw(store);
		if (ret)
			return ret;
	}
	if (store->salvage) {
		ret = salvage_end(store, store->salvage);
		if (ret)
			return ret;
		/* The volumes' copy of the index lacks what a salvage changes. */
		if (store->salvage->lost || store->salvage->unreadable)
			image_forget(store);
	}
	/* From here on only groups of the new epoch count. */
	super->epoch++;
	super->tail_pos = replay.at.pos;
	super->tail_seq = replay.at.seq;
	/* Puts without a commit may have used numbers that no group records. */
	atomic_store(&store->data_id_next, replay.state.data_id_next + DATA_IDS_SKIPPED);
	atomic_store(&store->bucket_id_next, MAX(replay.state.bucket_id_next, 1u));
	atomic_store(&store->tail_pos, super->tail_pos);
	store->committer->head_pos = super->tail_pos;
	store->committer->seq_next = super->tail_seq;
	store->outbox_first = super->tail_seq << GROUP_NUMBER_SHIFT;
	atomic_store(&store->committer->published_seq, super->tail_seq - 1);
	store->apply->applied_pos = super->tail_pos;
	store->apply->applied_seq = super->tail_seq - 1;
	/* The tail of a protected store moves when its volumes have the index up to there: at a
	 * start soon (index_apply_begin), by a check never. */
	return super->image_bytes || store->image->on ? 0 : volume_super_write(&store->volume);
}
