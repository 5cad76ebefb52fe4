/* store/commit/applier.c: what happens to a group after it is durable: the index thread applies it
 * to RocksDB, many groups at a time, unpins their records and frees the space of what they
 * replaced; the checkpoint thread flushes RocksDB and moves the log's tail, so that its space can
 * be used again. */
#include "store/commit/applier.h"
#include "store/commit/commit.h"
#include "store/commit/committer.h"
#include "store/index/coalesce.h"
#include "store/index/index.h"
#include "store/log/journal.h"
#include "store/object/object.h"
#include "store/state/state.h"
#include "store/table/table.h"
#include "store/volume/volume.h"
#include "store/volume/waiter.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

DEFINE_COUNTER_FULL(log_full, "log");
DEFINE_COUNTER_FULL(index_queue_full, "index_queue");

#define SPARE_GROUPS_MAX 32u
#define SPARE_BYTES_MAX	 (2 * MIB)

DEFINE_COUNTER(groups_applied, "nebulaio_store_groups_applied_total", NULL,
	"Groups applied to the index.");
DEFINE_COUNTER(rows_merged, "nebulaio_store_rows_merged_total", NULL,
	"Index rows that were replaced before the index had them.");
DEFINE_COUNTER(checkpoints, "nebulaio_store_checkpoints_total", NULL,
	"Times that the index was flushed and the log's tail moved.");

/* The lock is held. */
static struct waiter *waiters_take(struct applier *applier)
{
	struct waiter *waiters = applier->waiters;

	applier->waiters = NULL;
	return waiters;
}

/* Fiber call with the lock held; returns with it held. */
static void progress_wait(struct applier *applier)
{
	struct waiter waiter;

	waiter_init(&waiter);
	waiter.next = applier->waiters;
	applier->waiters = &waiter;
	if (!applier->hurry) {
		applier->hurry = true;
		pthread_cond_signal(&applier->work);
	}
	pthread_mutex_unlock(&applier->lock);
	waiter_wait(&waiter);
	pthread_mutex_lock(&applier->lock);
}

static void group_keep(struct applier *applier, struct group *group)
{
	bool keep;

	group_reset(group);
	pthread_mutex_lock(&applier->lock);
	keep = applier->spare_count < SPARE_GROUPS_MAX && group->cap <= SPARE_BYTES_MAX;
	if (keep) {
		group->next = applier->spare;
		applier->spare = group;
		applier->spare_count++;
	}
	pthread_mutex_unlock(&applier->lock);
	if (!keep)
		group_close(group);
}

struct group *applier_group(struct store *store)
{
	struct applier *applier = store->applier;
	struct group *group;

	pthread_mutex_lock(&applier->lock);
	group = applier->spare;
	if (group) {
		applier->spare = group->next;
		applier->spare_count--;
		group->next = NULL;
	}
	pthread_mutex_unlock(&applier->lock);
	if (!group && group_open(&group))
		return NULL;
	return group;
}

void applier_group_give(struct store *store, struct group *group)
{
	group_keep(store->applier, group);
}

/* A dead object's extents are known only from its segments: they are read before their rows go (of
 * a component they stay). One that cannot be read (logged) keeps its space until the next scan. */
static void dead_load(struct store *store, const struct group *group)
{
	for (uint32_t i = 0; i < group->touched_count; i++) {
		struct object *old = group->touched[i].old;
		struct segment *segment;

		for (uint32_t s = 0; old && atomic_load(&old->dead) && s < old->segment_count; s++)
			(void)object_segment_load(store, old, s, &segment);
	}
}

/* After a failure the entries stay pinned: they know what the index does not. */
static void touched_release(struct store *store, const struct group *group, bool unpin)
{
	for (uint32_t i = 0; i < group->touched_count; i++) {
		if (unpin)
			record_entry_unpin(store->records, group->touched[i].entry);
		object_put(store, group->touched[i].old);
	}
}

/* The run's groups as one batch; a deletion by prefix reads the index, so its group stands alone.
 */
static int run_batch(struct store *store, struct group *first, const struct group *last)
{
	const struct group_head *head = group_head(last);
	struct state_record state = {
		.version = INDEX_VERSION,
		.features = store->features,
		.applied_seq = head->seq,
		.data_id_next = head->data_id_next,
		.bucket_id_next = head->bucket_id_next,
	};
	struct coalesce *coalesce = &store->applier->coalesce;

	memcpy(state.uuid, store->volume.super.uuid, sizeof(state.uuid));
	coalesce_reset(coalesce);
	if (first->alone)
		return index_apply(
			store->index, slice_of(first->bytes, group_head(first)->bytes), &state);
	for (struct group *group = first; group; group = group->next) {
		int ret = coalesce_add(
			coalesce, slice_of(group->bytes, group_head(group)->bytes), group->count);

		if (ret)
			return ret;
	}
	coalesce_settle(coalesce);
	counter_add(&rows_merged, coalesce->count - coalesce->settled_count);
	return index_apply_coalesced(store->index, coalesce, &state);
}

static int run_apply(struct store *store, struct group *first, const struct group *last)
{
	int ret;

	for (struct group *group = first; group; group = group->next)
		dead_load(store, group);
	rebuild_note_begin(store, first);
	ret = run_batch(store, first, last);
	rebuild_note_end(store);
	return ret;
}

/* Books the run as applied, or the index as failed, and wakes who waits for that. */
static void run_book(
	struct store *store, const struct group *first, const struct group *last, int ret)
{
	struct applier *applier = store->applier;
	struct waiter *waiters;

	pthread_mutex_lock(&applier->lock);
	if (ret)
		applier->failed = true;
	if (!applier->failed) {
		applier->applied_seq = group_head(last)->seq;
		applier->applied_pos = last->end_pos;
	}
	for (const struct group *group = first; group; group = group->next)
		applier->queued_bytes -= group->len;
	waiters = waiters_take(applier);
	pthread_mutex_unlock(&applier->lock);
	waiters_wake(waiters);
}

static void run_finish(struct store *store, struct group *first)
{
	struct applier *applier = store->applier;
	const struct group *last = first;
	uint32_t count = 1;
	bool applied;
	int ret = 0;

	for (; last->next; last = last->next)
		count++;
	if (!applier->failed)
		ret = run_apply(store, first, last);
	if (ret)
		store_fence(store, "the index", ret);
	else
		counter_add(&groups_applied, count);
	/* A fiber that waits for the run finds the space of superseded objects given back. */
	applied = !ret && !applier->failed;
	for (const struct group *group = first; group; group = group->next)
		touched_release(store, group, applied);
	run_book(store, first, last, ret);
	while (first) {
		struct group *next = first->next;

		group_keep(applier, first);
		first = next;
	}
}

/* Whether the queue is to be applied now; otherwise *ret_until says when it will be. The lock is
 * held. */
static bool run_due(struct store *store, uint64_t *ret_until_ns)
{
	struct applier *applier = store->applier;

	*ret_until_ns = applier->waiting_since_ns + APPLY_WAIT_NS;
	return applier->hurry || applier->stopping ||
	       applier->waiting_bytes >= MIN(APPLY_BYTES_GOAL, store->volume.super.log_bytes / 8) ||
	       clock_now_ns() >= *ret_until_ns;
}

/* Waits for a run of groups that is due, and takes it off the queue; NULL at the end. */
static struct group *run_take(struct store *store)
{
	struct applier *applier = store->applier;
	struct group *first, *last;
	uint64_t until_ns;

	pthread_mutex_lock(&applier->lock);
	while (!applier->first || !run_due(store, &until_ns)) {
		if (!applier->first && applier->stopping)
			break;
		if (!applier->first) {
			applier->hurry = false;
			pthread_cond_wait(&applier->work, &applier->lock);
		} else {
			struct timespec until = {.tv_sec = (time_t)(until_ns / NS_PER_S),
				.tv_nsec = (long)(until_ns % NS_PER_S)};

			pthread_cond_timedwait(&applier->work, &applier->lock, &until);
		}
	}
	first = last = applier->first;
	if (first) {
		applier->waiting_bytes -= first->len;
		while (!first->alone && last->next && !last->next->alone) {
			last = last->next;
			applier->waiting_bytes -= last->len;
		}
		applier->first = last->next;
		last->next = NULL;
		if (!applier->first)
			applier->last = NULL;
		applier->hurry &= applier->first != NULL;
	}
	pthread_mutex_unlock(&applier->lock);
	return first;
}

static void *apply_main(void *arg)
{
	struct store *store = (struct store *)arg;
	struct group *first;

	while ((first = run_take(store)))
		run_finish(store, first);
	return NULL;
}

void applier_push(struct store *store, struct group *group)
{
	struct applier *applier = store->applier;
	bool was_empty, due;
	uint64_t until_ns;

	group->next = NULL;
	pthread_mutex_lock(&applier->lock);
	was_empty = !applier->first;
	if (applier->last)
		applier->last->next = group;
	else
		applier->first = group;
	applier->last = group;
	applier->queued_bytes += group->len;
	applier->waiting_bytes += group->len;
	if (was_empty)
		applier->waiting_since_ns = clock_now_ns();
	due = run_due(store, &until_ns);
	pthread_mutex_unlock(&applier->lock);
	if (was_empty || due)
		pthread_cond_signal(&applier->work);
}

static int checkpoint_do(struct store *store, bool anew)
{
	struct applier *applier = store->applier;
	struct volume *volume = &store->volume;
	struct waiter *waiters;
	uint64_t pos, seq;
	int ret = 0;

	pthread_mutex_lock(&volume->lock);
	pthread_mutex_lock(&applier->lock);
	pos = applier->applied_pos;
	seq = applier->applied_seq;
	if (applier->failed)
		ret = -EIO;
	pthread_mutex_unlock(&applier->lock);
	if (!ret && (anew || pos != volume->super.tail_pos)) {
		ret = index_flush(store->index);
		if (!ret) {
			/* The committer reads it without a lock; anew, nothing is being
			 * committed. */
			if (anew)
				volume->super.epoch++;
			volume->super.tail_pos = pos;
			volume->super.tail_seq = seq + 1;
			ret = volume_super_write(volume);
		}
		if (ret)
			store_fence(store, "a checkpoint", ret);
		else
			counter_add(&checkpoints, 1);
	}
	pthread_mutex_lock(&applier->lock);
	if (ret && ret != -EHOSTDOWN)
		applier->failed = true;
	else if (!ret)
		atomic_store(&store->tail_pos, pos);
	waiters = waiters_take(applier);
	pthread_mutex_unlock(&applier->lock);
	pthread_mutex_unlock(&volume->lock);
	waiters_wake(waiters);
	return ret;
}

int applier_checkpoint_now(struct store *store)
{
	return checkpoint_do(store, false);
}

int applier_checkpoint_anew(struct store *store)
{
	return checkpoint_do(store, true);
}

static void *checkpoint_main(void *arg)
{
	struct store *store = (struct store *)arg;
	struct applier *applier = store->applier;

	pthread_mutex_lock(&applier->lock);
	while (!applier->stopping) {
		if (!applier->checkpoint_wanted || applier->failed) {
			pthread_cond_wait(&applier->checkpoint, &applier->lock);
			continue;
		}
		applier->checkpoint_wanted = false;
		pthread_mutex_unlock(&applier->lock);
		applier_checkpoint_now(store);
		pthread_mutex_lock(&applier->lock);
	}
	pthread_mutex_unlock(&applier->lock);
	return NULL;
}

/* The lock is held. */
static void checkpoint_want(struct applier *applier)
{
	if (applier->checkpoint_wanted)
		return;
	applier->checkpoint_wanted = true;
	pthread_cond_signal(&applier->checkpoint);
}

int applier_wait(struct store *store, uint64_t seq)
{
	struct applier *applier = store->applier;
	int ret = 0;

	pthread_mutex_lock(&applier->lock);
	while (applier->applied_seq < seq && !applier->failed)
		progress_wait(applier);
	if (applier->applied_seq < seq)
		ret = -EIO;
	pthread_mutex_unlock(&applier->lock);
	return ret;
}

int applier_settle(struct store *store)
{
	return applier_wait(store, atomic_load(&store->committer->published_seq));
}

int applier_wait_room(struct store *store, uint64_t end_pos)
{
	struct applier *applier = store->applier;
	uint64_t log_bytes = store->volume.super.log_bytes;
	bool waited = false;
	int ret = 0;

	pthread_mutex_lock(&applier->lock);
	for (;;) {
		uint64_t used = end_pos - atomic_load(&store->tail_pos);

		if (applier->failed || stripe_suspended(store)) {
			ret = applier->failed ? -EIO : -EHOSTDOWN;
			break;
		}
		/* Only what is applied can be let go. */
		if (used > log_bytes / 2 &&
			applier->applied_pos - atomic_load(&store->tail_pos) >= log_bytes / 4)
			checkpoint_want(applier);
		if (used <= log_bytes && applier->queued_bytes <= INDEX_LAG_BYTES_MAX)
			break;
		if (used > log_bytes && !applier->first)
			checkpoint_want(applier);
		if (!waited)
			counter_add(used > log_bytes ? &log_full : &index_queue_full, 1);
		waited = true;
		progress_wait(applier);
	}
	pthread_mutex_unlock(&applier->lock);
	return ret;
}

int applier_start(struct store *store)
{
	struct applier *applier = store->applier;
	int ret;

	ret = pthread_create(&applier->apply_thread, NULL, apply_main, store);
	if (ret)
		return -ret;
	ret = pthread_create(&applier->checkpoint_thread, NULL, checkpoint_main, store);
	if (ret) {
		pthread_mutex_lock(&applier->lock);
		applier->stopping = true;
		pthread_cond_broadcast(&applier->work);
		pthread_mutex_unlock(&applier->lock);
		pthread_join(applier->apply_thread, NULL);
		return -ret;
	}
	pthread_setname_np(applier->apply_thread, "store-index");
	pthread_setname_np(applier->checkpoint_thread, "store-check");
	applier->started = true;
	return 0;
}

void applier_init(struct applier *applier)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&applier->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&applier->work, &attr);
	pthread_condattr_destroy(&attr);
	pthread_cond_init(&applier->checkpoint, NULL);
}

void applier_stop(struct store *store)
{
	struct applier *applier = store->applier;

	if (applier->started) {
		pthread_mutex_lock(&applier->lock);
		applier->stopping = true;
		pthread_cond_broadcast(&applier->work);
		pthread_cond_broadcast(&applier->checkpoint);
		pthread_mutex_unlock(&applier->lock);
		pthread_join(applier->apply_thread, NULL);
		pthread_join(applier->checkpoint_thread, NULL);
		applier->started = false;
	}
	while (applier->spare) {
		struct group *group = applier->spare;

		applier->spare = group->next;
		group_close(group);
	}
	coalesce_close(&applier->coalesce);
	pthread_cond_destroy(&applier->work);
	pthread_cond_destroy(&applier->checkpoint);
	pthread_mutex_destroy(&applier->lock);
}
