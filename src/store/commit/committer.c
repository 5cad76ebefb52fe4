/* store/commit/committer.c: the one writer: a fiber of the first reactor. It takes all waiting
 * commits, writes their small bodies and one log group in parallel, flushes once, publishes and
 * wakes the callers. While a group is being flushed, the next one gathers. */
#include "store/commit/committer.h"
#include "reactor/waiter.h"
#include "store/commit/body.h"
#include "store/commit/commit.h"
#include "store/commit/index_apply.h"
#include "store/log/journal.h"
#include "store/object/object.h"
#include "store/space/space.h"
#include "store/state/state.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* A group waits at most this part of a usual write for fibers that may commit again soon. After n
 * waits in vain, the next 2^n groups do not wait. */
#define AWAIT_PART	 2u
#define AWAIT_MISSES_MAX 6u

DEFINE_COUNTER(commits_total, "nebulaio_store_commits_total", NULL, "Commits made durable.");
DEFINE_COUNTER(groups_total, "nebulaio_store_groups_total", NULL, "Groups written to the log.");
DEFINE_COUNTER(
	log_bytes_total, "nebulaio_store_log_bytes_total", NULL, "Bytes written to the log.");
DEFINE_COUNTER(body_bytes_total, "nebulaio_store_grouped_body_bytes_total", NULL,
	"Bytes of small bodies written with their groups.");

static void kick_deliver(struct reactor_msg *msg)
{
	struct committer *committer = CONTAINER_OF(msg, struct committer, kick);

	atomic_store(&committer->kicked, false);
	if (committer->fiber && !committer->ended)
		fiber_wake(committer->fiber);
}

/* The next commit in order; NULL: none now. */
static struct commit *commit_next(struct committer *committer)
{
	struct commit *commit = committer->held;
	struct mpsc_node *node;

	if (commit) {
		committer->held = NULL;
		return commit;
	}
	node = mpsc_pop(&committer->queue);
	return node ? CONTAINER_OF(node, struct commit, node) : NULL;
}

static void group_take(struct group *group, struct commit *commit)
{
	commit->next = NULL;
	if (group->commits_last)
		group->commits_last->next = commit;
	else
		group->commits = commit;
	group->commits_last = commit;
	group->commit_count++;
}

/* The number of pieces of a commit's grouped body. */
static uint32_t body_piece_count(const struct commit *commit)
{
	if (!commit->span.data)
		return 0;
	return atomic_load(&commit->items[0].object->segments[commit->span_segment])->extent_count;
}

/* Takes waiting commits, plans them and fills the group. A bucket's creation or deletion is alone
 * in its group, so that it is planned against published state. False: the group is full. */
static bool group_gather(struct store *store, struct group *group)
{
	struct committer *committer = store->committer;
	size_t bytes_max = store->volume.super.log_bytes / 2;
	size_t bytes_goal = MIN(GROUP_BYTES_GOAL, bytes_max / 2);
	struct commit *commit;

	while (group->commit_count < GROUP_COMMITS_MAX && group->len < bytes_goal &&
		(commit = commit_next(committer))) {
		uint32_t piece_count = body_piece_count(commit);
		size_t bytes = commit_bytes(commit);
		bool alone = commit->kind >= COMMIT_BUCKET_CREATE;
		uint32_t touched = commit->item_count * CHANGES_MAX +
				   (commit->composition ? commit->composition->count : 0);
		int error = 0;

		if (group->commit_count &&
			(alone || group->len + bytes > bytes_max ||
				group->piece_count + piece_count > GROUP_PIECES_MAX)) {
			committer->held = commit;
			return false;
		}
		group_take(group, commit);
		group->piece_count += piece_count;
		if (sizeof(struct group_head) + bytes > bytes_max)
			error = -EFBIG;
		else if (commit->regains && (commit->regains != atomic_load(&store->regains) ||
						    !store_phase_counts(store, commit->phase)))
			error = -EHOSTDOWN;
		else if (group_reserve(group, bytes, touched))
			error = -ENOMEM;
		if (error)
			commit_undo(store, commit, error);
		else
			commit_plan(store, commit, group);
		if (alone)
			return false;
	}
	return group->commit_count < GROUP_COMMITS_MAX && group->len < bytes_goal;
}

/* A fiber that the last group woke often commits again soon. If the next group has then left with
 * the other half of the fibers, half of the fibers wait at each flush. So the next group waits for
 * them, for a part of its own usual write time. If the wait was in vain, some groups do not wait.
 */
static void group_await(struct store *store, struct group *group)
{
	struct committer *committer = store->committer;
	uint64_t deadline_ns = committer->ended_ns + committer->write_ns / AWAIT_PART;
	uint32_t had = group->commit_count;
	uint32_t expected = committer->woken + (committer->parked ? 0 : had);

	if (had >= expected || clock_now_ns() >= deadline_ns)
		return;
	if (committer->await_skips) {
		committer->await_skips--;
		return;
	}
	while (group->commit_count < expected && clock_now_ns() < deadline_ns) {
		fiber_yield();
		if (!group_gather(store, group))
			return;
	}
	if (2 * (group->commit_count - had) >= expected - had) {
		committer->await_misses = 0;
	} else {
		committer->await_misses = MIN(committer->await_misses + 1, AWAIT_MISSES_MAX);
		committer->await_skips = 1u << committer->await_misses;
	}
}

/* ---- Writing. ---- */

static int by_block(const void *a, const void *b)
{
	uint64_t block_a = ((const struct body_piece *)a)->block;
	uint64_t block_b = ((const struct body_piece *)b)->block;

	return block_a < block_b ? -1 : block_a > block_b;
}

static void pieces_collect(struct committer *committer, const struct group *group)
{
	uint32_t count = 0;

	for (const struct commit *commit = group->commits; commit; commit = commit->next) {
		const struct segment *segment;

		if (!commit->span.data || !commit->items[0].planned)
			continue;
		segment = atomic_load(&commit->items[0].object->segments[commit->span_segment]);
		for (uint32_t i = 0; i < segment->extent_count; i++) {
			CHECK(count < GROUP_PIECES_MAX);
			committer->pieces[count++] =
				(struct body_piece){.block = segment->extents[i].block,
					.blocks = segment->extents[i].blocks,
					.data = commit->span.data +
						((size_t)segment->extents[i].start << BLOCK_SHIFT)};
		}
	}
	committer->piece_count = count;
	if (count > 1)
		qsort(committer->pieces, count, sizeof(committer->pieces[0]), by_block);
}

static void write_add(
	struct committer *committer, uint64_t offset, struct iovec *iov, uint32_t iov_count)
{
	struct disk_io *io = &committer->writes[committer->write.write_count++];

	io->offset = offset;
	io->iov = iov;
	io->iov_count = iov_count;
}

/* The writes of the group's small bodies: adjacent ones are one write. */
static void bodies_add(struct committer *committer, const struct group *group)
{
	pieces_collect(committer, group);
	for (uint32_t i = 0; i < committer->piece_count;) {
		uint64_t block = committer->pieces[i].block;
		uint64_t end = block;
		uint32_t first = i;

		while (i < committer->piece_count && committer->pieces[i].block == end) {
			const struct body_piece *piece = &committer->pieces[i];

			committer->iov[i].iov_base = piece->data;
			committer->iov[i].iov_len = (size_t)piece->blocks << BLOCK_SHIFT;
			end += piece->blocks;
			i++;
		}
		counter_add(&body_bytes_total, (end - block) << BLOCK_SHIFT);
		write_add(committer, block << BLOCK_SHIFT, &committer->iov[first], i - first);
	}
}

static void write_done(struct disk_commit *write, int32_t result)
{
	struct committer *committer = CONTAINER_OF(write, struct committer, write);

	committer->write_result = result;
	committer->writing = false;
	fiber_wake(committer->fiber);
}

/* Where the group goes in the log, and how much of it it takes. */
static uint64_t group_place(
	const struct store *store, const struct group *group, uint32_t *ret_padded)
{
	*ret_padded = (uint32_t)ALIGN_UP(group->len, (size_t)BLOCK_BYTES);
	return journal_place(
		store->committer->head_pos, *ret_padded, store->volume.super.log_bytes);
}

/* Writes bodies and log in parallel, then flushes once for all of them. */
static int group_write(struct store *store, struct group *group)
{
	struct committer *committer = store->committer;
	uint64_t log_bytes = store->volume.super.log_bytes;
	uint32_t padded;
	uint64_t pos = group_place(store, group, &padded);
	struct group_head head = {
		.epoch = store->volume.super.epoch,
		.seq = committer->seq_next,
		.pos = pos,
		.data_id_next = atomic_load(&store->data_id_next),
		.bucket_id_next = atomic_load(&store->bucket_id_next),
		.time_ns = clock_real_ns(),
	};
	struct iovec *iov = &committer->iov[GROUP_PIECES_MAX];
	uint64_t begin_ns;
	int ret;

	committer->write.writes = committer->writes;
	committer->write.write_count = 0;
	committer->write.done = write_done;
	bodies_add(committer, group);
	group_seal(group, &head, store->volume.uuid_crc, &committer->carry);
	iov->iov_base = group->bytes;
	iov->iov_len = padded;
	write_add(committer, VOLUME_LOG_OFFSET + pos % log_bytes, iov, 1);
	committer->writing = true;
	begin_ns = clock_now_ns();
	disk_commit(store->volume.disk, &committer->write);
	while (committer->writing)
		fiber_park();
	if (committer->write_result)
		return committer->write_result;
	committer->ended_ns = clock_now_ns();
	committer->write_ns = (committer->write_ns * 7 + committer->ended_ns - begin_ns) / 8;
	ret = stripe_settle(&store->volume);
	if (ret)
		return ret;
	carry_add(&committer->carry, group);
	committer->head_pos = pos + padded;
	committer->seq_next++;
	group->end_pos = committer->head_pos;
	counter_add(&groups_total, 1);
	counter_add(&log_bytes_total, padded);
	return 0;
}

/* A commit may go away as soon as it is woken. */
static void commits_wake(struct commit *commit)
{
	while (commit) {
		struct commit *next = commit->next;

		waiter_wake(&commit->waiter);
		commit = next;
	}
}

/* The group may be on the medium all the same. Until the log goes on in a new epoch, a start would
 * replay it, and a large body is not verified then: so nothing else takes the space of its bodies.
 */
static void group_hold(struct store *store)
{
	if (!atomic_exchange(&store->group_held, true))
		space_hold(store->space);
}

/* Says what keeps the group from being written. -ENOSPC: the data folder has no room, for now. */
static int group_refused(struct store *store, const struct group *group)
{
	uint32_t padded;
	uint64_t pos = group_place(store, group, &padded);
	int ret = store_refuses(store);

	return ret ? ret : index_apply_wait_room(store, pos + padded);
}

/* Answers the commits of a group that is not in the log. */
static void group_drop(struct store *store, struct group *group, int error)
{
	struct commit *commits = group->commits;

	for (struct commit *commit = commits; commit; commit = commit->next)
		commit_undo(store, commit, error);
	index_apply_group_give(store, group);
	commits_wake(commits);
}

static void group_run(struct store *store, struct group *group)
{
	struct committer *committer = store->committer;
	struct commit *commits;
	int ret = 0;

	if (group_gather(store, group))
		group_await(store, group);
	commits = group->commits;
	if (!group->count) {
		index_apply_group_give(store, group);
		commits_wake(commits);
		return;
	}
	ret = group_refused(store, group);
	if (ret == -ENOSPC) {
		group_drop(store, group, ret);
		return;
	}
	if (!ret) {
		ret = group_write(store, group);
		/* A part of it may be on the volumes. The log goes on in a new epoch. */
		if (store_volume_short(store, ret))
			ret = -EHOSTDOWN;
		if (ret == -EHOSTDOWN)
			group_hold(store);
	}
	if (ret) {
		store_fence(store, "the log", ret);
		group_drop(store, group, ret == -EHOSTDOWN ? ret : -EIO);
		return;
	}
	/* A reader that sees a part of the group and then waits for this number finds the group in
	 * the index. */
	atomic_store(&committer->published_seq, group_head(group)->seq);
	for (struct commit *commit = commits; commit; commit = commit->next)
		commit_publish(store, commit, group);
	counter_add(&commits_total, group->commit_count);
	committer->woken = group->commit_count;
	committer->parked = false;
	index_apply_push(store, group);
	commits_wake(commits);
}

static void committer_main(void *arg)
{
	struct store *store = (struct store *)arg;
	struct committer *committer = store->committer;

	committer->fiber = fiber_self();
	for (;;) {
		struct commit *commit = commit_next(committer);
		struct group *group;

		if (!commit) {
			if (committer->ending && !atomic_load(&committer->callers))
				break;
			/* Half of a push is followed by a kick. */
			committer->parked = true;
			fiber_park();
			continue;
		}
		committer->held = commit;
		group = index_apply_group(store);
		if (!group) {
			committer->held = NULL;
			commit_undo(store, commit, -ENOMEM);
			waiter_wake(&commit->waiter);
			continue;
		}
		group_run(store, group);
	}
	committer->ended = true;
	waiter_wake(committer->end_waiter);
}

int committer_open(struct store *store, struct reactor *reactor)
{
	struct committer *committer = store->committer;

	mpsc_init(&committer->queue);
	committer->reactor = reactor;
	committer->kick.fn = kick_deliver;
	return fiber_spawn(reactor, "store committer", committer_main, store);
}

void committer_end(struct store *store)
{
	struct committer *committer = store->committer;
	struct waiter waiter;

	CHECK(reactor_self() == committer->reactor);
	if (committer->ended)
		return;
	waiter_init(&waiter);
	committer->end_waiter = &waiter;
	committer->ending = true;
	if (committer->fiber)
		fiber_wake(committer->fiber);
	waiter_wait(&waiter);
}
