/* store/commit/index_apply.c: handles groups after they are durable. The index thread applies many
 * groups at a time to RocksDB, unpins their records and frees the space of the objects they
 * replaced. The checkpoint thread flushes RocksDB and moves the log's tail, so that its space can
 * be reused. */
#include "store/commit/index_apply.h"
#include "reactor/waiter.h"
#include "store/commit/commit.h"
#include "store/commit/committer.h"
#include "store/image/image.h"
#include "store/index/index.h"
#include "store/index/merge.h"
#include "store/log/journal.h"
#include "store/object/object.h"
#include "store/state/state.h"
#include "store/table/list_table.h"
#include "store/table/table.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

DEFINE_COUNTER_FULL(log_full, "log");
DEFINE_COUNTER_FULL(index_queue_full, "index_queue");

#define SPARE_GROUPS_MAX 32u
#define SPARE_BYTES_MAX	 (2 * MIB)
/* How long after a write that found no room the next one is tried. */
#define FULL_RETRY_NS NS_PER_S

DEFINE_COUNTER(groups_applied, "nebulaio_store_groups_applied_total", NULL,
	"Groups applied to the index.");
DEFINE_COUNTER(rows_merged, "nebulaio_store_rows_merged_total", NULL,
	"Index rows that were replaced before the index had them.");
DEFINE_COUNTER(checkpoints, "nebulaio_store_checkpoints_total", NULL,
	"Times that the index was flushed and the log's tail moved.");

/* The lock is held. */
static struct waiter *waiters_take(struct index_apply *apply)
{
	struct waiter *waiters = apply->waiters;

	apply->waiters = NULL;
	return waiters;
}

/* Fiber call with the lock held; returns with it held. */
static void progress_wait(struct index_apply *apply)
{
	struct waiter waiter;

	waiter_init(&waiter);
	waiter.next = apply->waiters;
	apply->waiters = &waiter;
	if (!apply->hurry) {
		apply->hurry = true;
		pthread_cond_signal(&apply->work);
	}
	pthread_mutex_unlock(&apply->lock);
	waiter_wait(&waiter);
	pthread_mutex_lock(&apply->lock);
}

static void group_keep(struct index_apply *apply, struct group *group)
{
	bool keep;

	group_reset(group);
	pthread_mutex_lock(&apply->lock);
	keep = apply->spare_count < SPARE_GROUPS_MAX && group->cap <= SPARE_BYTES_MAX;
	if (keep) {
		group->next = apply->spare;
		apply->spare = group;
		apply->spare_count++;
	}
	pthread_mutex_unlock(&apply->lock);
	if (!keep)
		group_close(group);
}

struct group *index_apply_group(struct store *store)
{
	struct index_apply *apply = store->apply;
	struct group *group;

	pthread_mutex_lock(&apply->lock);
	group = apply->spare;
	if (group) {
		apply->spare = group->next;
		apply->spare_count--;
		group->next = NULL;
	}
	pthread_mutex_unlock(&apply->lock);
	if (!group && group_open(&group))
		return NULL;
	return group;
}

void index_apply_group_give(struct store *store, struct group *group)
{
	group_keep(store->apply, group);
}

/* ---- A data folder without room. ---- */

/* While the data folder's file system is full, the log and the records have what the index lacks:
 * writes are refused, and whoever needs the index need not wait. */
static void full_set(struct store *store, bool full)
{
	if (atomic_exchange(&store->index_full, full) == full)
		return;
	if (full)
		log_error("store",
			"%s: the file system is full: the store accepts no writes, deletions "
			"included, until there is room, and then continues by itself",
			store->dir);
	else
		log_info("store", "%s: the file system has room again: the store accepts writes",
			store->dir);
}

/* The lock is held. */
static void cond_wait_until(struct index_apply *apply, pthread_cond_t *cond, uint64_t until_ns)
{
	struct timespec until = {
		.tv_sec = (time_t)(until_ns / NS_PER_S), .tv_nsec = (long)(until_ns % NS_PER_S)};

	pthread_cond_timedwait(cond, &apply->lock, &until);
}

/* Until it is time to try again; false: the store closes. */
static bool room_await(struct store *store)
{
	struct index_apply *apply = store->apply;
	uint64_t until_ns = clock_now_ns() + FULL_RETRY_NS;
	struct waiter *waiters;
	bool goes_on;

	full_set(store, true);
	pthread_mutex_lock(&apply->lock);
	waiters = waiters_take(apply);
	pthread_mutex_unlock(&apply->lock);
	waiters_wake(waiters);
	pthread_mutex_lock(&apply->lock);
	while (!apply->stopping && clock_now_ns() < until_ns)
		cond_wait_until(apply, &apply->work, until_ns);
	goes_on = !apply->stopping;
	pthread_mutex_unlock(&apply->lock);
	return goes_on;
}

/* ---- Groups. ---- */

/* Only a dead object's segments list its extents, so they are read before their rows are deleted (a
 * component's rows stay). The space of a segment that cannot be read (logged) stays in use until
 * the next scan. */
static void dead_load(struct store *store, const struct group *group)
{
	for (uint32_t i = 0; i < group->touched_count; i++) {
		struct object *old = group->touched[i].old;
		struct segment *segment;

		for (uint32_t s = 0; old && atomic_load(&old->dead) && s < old->segment_count; s++)
			(void)object_segment_load(store, old, s, &segment);
	}
}

/* After a failure the entries stay pinned, because they hold what the index lacks. */
static void touched_release(struct store *store, const struct group *group, bool unpin)
{
	for (uint32_t i = 0; i < group->touched_count; i++) {
		if (unpin)
			record_entry_unpin(store->records, group->touched[i].entry);
		object_put(store, group->touched[i].old);
	}
}

/* Applies the run's groups as one batch. A deletion by prefix reads the index, so its group is
 * applied alone. */
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
	struct index_merge *merge = &store->apply->merge;
	int ret;

	memcpy(state.uuid, store->volume.super.uuid, sizeof(state.uuid));
	index_merge_reset(merge);
	if (first->alone) {
		struct slice group = slice_of(first->bytes, group_head(first)->bytes);

		ret = index_write_group(store->index, group, &state);
		if (!ret)
			list_table_change_group(store->listed, group);
		return ret;
	}
	for (struct group *group = first; group; group = group->next) {
		ret = index_merge_add(
			merge, slice_of(group->bytes, group_head(group)->bytes), group->count);
		if (ret)
			return ret;
	}
	index_merge_settle(merge);
	ret = index_write_merged(store->index, merge, &state);
	if (ret)
		return ret;
	counter_add(&rows_merged, merge->count - merge->settled_count);
	list_table_change(store->listed, merge->order, merge->settled_count);
	return 0;
}

/* -ENOSPC: the store closes before there was room. */
static int run_apply(struct store *store, struct group *first, const struct group *last)
{
	int ret;

	for (struct group *group = first; group; group = group->next)
		dead_load(store, group);
	do {
		rebuild_note_begin(store, first);
		ret = run_batch(store, first, last);
		rebuild_note_end(store);
	} while (ret == -ENOSPC && room_await(store));
	if (!ret)
		full_set(store, false);
	return ret;
}

/* Records the run as applied, or the index as failed, and wakes the waiting fibers. */
static void run_book(
	struct store *store, const struct group *first, const struct group *last, int ret)
{
	struct index_apply *apply = store->apply;
	struct waiter *waiters;

	pthread_mutex_lock(&apply->lock);
	if (ret)
		apply->failed = true;
	if (!apply->failed) {
		apply->applied_seq = group_head(last)->seq;
		apply->applied_pos = last->end_pos;
	}
	for (const struct group *group = first; group; group = group->next)
		apply->queued_bytes -= group->len;
	waiters = waiters_take(apply);
	pthread_mutex_unlock(&apply->lock);
	waiters_wake(waiters);
}

static void run_finish(struct store *store, struct group *first)
{
	struct index_apply *apply = store->apply;
	const struct group *last = first;
	uint32_t count = 1;
	bool applied;
	int ret = 0;

	for (; last->next; last = last->next)
		count++;
	if (!apply->failed)
		ret = run_apply(store, first, last);
	if (ret && ret != -ENOSPC)
		store_fence(store, "the index", ret);
	else if (!ret)
		counter_add(&groups_applied, count);
	/* A fiber that waited for the run sees the space of superseded objects as free. */
	applied = !ret && !apply->failed;
	for (const struct group *group = first; group; group = group->next)
		touched_release(store, group, applied);
	run_book(store, first, last, ret);
	while (first) {
		struct group *next = first->next;

		group_keep(apply, first);
		first = next;
	}
}

/* Whether the queue must be applied now; otherwise *ret_until is the time when it must. The lock is
 * held. */
static bool run_due(struct store *store, uint64_t *ret_until_ns)
{
	struct index_apply *apply = store->apply;

	*ret_until_ns = apply->waiting_since_ns + APPLY_WAIT_NS;
	return apply->hurry || apply->stopping ||
	       apply->waiting_bytes >= MIN(APPLY_BYTES_GOAL, store->volume.super.log_bytes / 8) ||
	       clock_now_ns() >= *ret_until_ns;
}

/* While no group is due, reads rows for lists. The lock is held, but not meanwhile. */
static void listed_fill(struct store *store)
{
	struct index_apply *apply = store->apply;

	pthread_mutex_unlock(&apply->lock);
	list_table_fill(store->listed, store->index);
	pthread_mutex_lock(&apply->lock);
}

/* Waits for a due run of groups and takes it off the queue; NULL: the thread ends. */
static struct group *run_take(struct store *store)
{
	struct index_apply *apply = store->apply;
	struct group *first, *last;
	uint64_t until_ns = 0;

	pthread_mutex_lock(&apply->lock);
	while (!apply->first || !run_due(store, &until_ns)) {
		if (!apply->first && apply->stopping)
			break;
		if (list_table_wants(store->listed) && !apply->failed) {
			listed_fill(store);
		} else if (!apply->first) {
			apply->hurry = false;
			pthread_cond_wait(&apply->work, &apply->lock);
		} else {
			cond_wait_until(apply, &apply->work, until_ns);
		}
	}
	first = last = apply->first;
	if (first) {
		apply->waiting_bytes -= first->len;
		while (!first->alone && last->next && !last->next->alone) {
			last = last->next;
			apply->waiting_bytes -= last->len;
		}
		apply->first = last->next;
		last->next = NULL;
		if (!apply->first)
			apply->last = NULL;
		apply->hurry &= apply->first != NULL;
	}
	pthread_mutex_unlock(&apply->lock);
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

void index_apply_push(struct store *store, struct group *group)
{
	struct index_apply *apply = store->apply;
	bool was_empty, due;
	uint64_t until_ns;

	group->next = NULL;
	pthread_mutex_lock(&apply->lock);
	was_empty = !apply->first;
	if (apply->last)
		apply->last->next = group;
	else
		apply->first = group;
	apply->last = group;
	apply->queued_bytes += group->len;
	apply->waiting_bytes += group->len;
	if (was_empty)
		apply->waiting_since_ns = clock_now_ns();
	due = run_due(store, &until_ns);
	pthread_mutex_unlock(&apply->lock);
	if (was_empty || due)
		pthread_cond_signal(&apply->work);
}

/* ---- Checkpoints. ---- */

struct tail {
	uint64_t pos, seq;
	bool anew; /* in a new epoch */
};

/* Moves the log's tail, together with the image. Takes the set over. */
static int super_move(struct store *store, const struct tail *tail, struct image_set *set)
{
	struct volume *volume = &store->volume;
	int ret;

	pthread_mutex_lock(&volume->lock);
	/* The committer reads it without a lock; when the epoch changes, nothing is being
	 * committed. */
	if (tail->anew)
		volume->super.epoch++;
	volume->super.tail_pos = tail->pos;
	volume->super.tail_seq = tail->seq + 1;
	if (store->image->on)
		image_adopt(store, set);
	ret = volume_super_write(volume);
	/* After a failure some volumes may have this superblock, and others the one before. */
	if (!ret && store->image->on)
		image_retire(store);
	pthread_mutex_unlock(&volume->lock);
	return ret;
}

static void tell_unprotected(struct store *store, int error)
{
	static const char *const SO =
		"the store works, but it is not protected against the loss of the data folder "
		"until";

	if (store->image->told)
		return;
	store->image->told = true;
	if (error == -ENOSPC)
		log_error("store",
			"%s: the volumes have no room for the copy of the index: %s there is room",
			store->dir, SO);
	else
		log_error("store",
			"%s: the copy of the index cannot be written to the volumes (%s): %s a "
			"checkpoint can write it",
			store->dir, strerror(-error), SO);
}

/* Deletions that make room need the log, and nothing but the volumes may end writes: so the tail
 * moves without an image when none can be written. */
static int protection_give_up(struct store *store, const struct tail *tail)
{
	const struct tail same = {.pos = tail->pos, .seq = tail->seq};
	struct image_set set = {0};
	int ret;

	atomic_store(&store->image->due, true);
	ret = super_move(store, tail, &set);
	if (ret)
		return ret;
	ret = image_write(store, tail->seq, &set);
	if (!ret)
		return super_move(store, &same, &set);
	if (store->image->fault)
		return ret;
	tell_unprotected(store, ret);
	return 1;
}

static int tail_move(struct store *store, const struct tail *tail)
{
	struct image *image = store->image;
	struct image_set set = {0};
	int ret = image->on ? image_write(store, tail->seq, &set) : 0;

	ret = ret && !image->fault ? protection_give_up(store, tail)
	      : ret		   ? ret
				   : super_move(store, tail, &set);
	if (ret == 0 && image->on) {
		if (image->told)
			log_info("store", "%s: the index is in the volumes again", store->dir);
		image->told = false;
		atomic_store(&image->due, false);
	}
	return MIN(ret, 0);
}

/* checkpoint_lock is held. */
static int checkpoint_do(struct store *store, bool anew)
{
	struct index_apply *apply = store->apply;
	struct tail tail = {.anew = anew};
	struct waiter *waiters;
	bool full = false;
	int ret = 0;

	pthread_mutex_lock(&apply->lock);
	tail.pos = apply->applied_pos;
	tail.seq = apply->applied_seq;
	if (apply->failed)
		ret = -EIO;
	pthread_mutex_unlock(&apply->lock);
	if (!ret && (anew || tail.pos != store->volume.super.tail_pos ||
			    atomic_load(&store->image->due))) {
		ret = index_flush(store->index);
		full = ret == -ENOSPC;
		if (ret == 0 || full)
			full_set(store, full);
		if (!ret)
			ret = tail_move(store, &tail);
		if (ret && !full)
			store_fence(store, "a checkpoint", ret);
		else if (!ret)
			counter_add(&checkpoints, 1);
	}
	pthread_mutex_lock(&apply->lock);
	if (ret && ret != -EHOSTDOWN && !full)
		apply->failed = true;
	else if (!ret)
		atomic_store(&store->tail_pos, tail.pos);
	/* Commits that asked meanwhile saw the old tail, and ask again if it is not enough. */
	apply->checkpoint_wanted = full;
	apply->checkpoint_after_ns = full ? clock_now_ns() + FULL_RETRY_NS : 0;
	if (full)
		pthread_cond_signal(&apply->checkpoint);
	waiters = waiters_take(apply);
	pthread_mutex_unlock(&apply->lock);
	waiters_wake(waiters);
	return ret;
}

int index_apply_checkpoint_now(struct store *store)
{
	int ret;

	pthread_mutex_lock(&store->apply->checkpoint_lock);
	ret = checkpoint_do(store, false);
	pthread_mutex_unlock(&store->apply->checkpoint_lock);
	index_tidy(store->index);
	return ret;
}

/* A member that a superblock called lost meanwhile is rebuilt instead. A checkpoint that began
 * before, and may have skipped members, has ended. */
int index_apply_regain(struct store *store, uint64_t members)
{
	int ret;

	pthread_mutex_lock(&store->apply->checkpoint_lock);
	pthread_mutex_lock(&store->volume.lock);
	members &= ~store->volume.super.set_lost;
	pthread_mutex_unlock(&store->volume.lock);
	if (store->volume.set_count)
		disk_array_regain(store->volume.disk, members);
	/* The image is written like bodies, and so is the superblock of a store on one volume. The
	 * commits of bodies that are written meanwhile are
	 * refused until the store goes on; if the checkpoint fails, the volumes are suspended
	 * again. */
	if (store->image->on || !store->volume.set_count)
		disk_resume(store->volume.disk);
	ret = checkpoint_do(store, true);
	pthread_mutex_unlock(&store->apply->checkpoint_lock);
	return ret;
}

int index_apply_begin(struct store *store)
{
	const struct superblock *super = &store->volume.super;
	const struct tail tail = {.pos = super->tail_pos, .seq = super->tail_seq - 1};
	int ret;

	pthread_mutex_lock(&store->apply->checkpoint_lock);
	ret = index_flush(store->index);
	if (!ret)
		ret = tail_move(store, &tail);
	pthread_mutex_unlock(&store->apply->checkpoint_lock);
	return ret;
}

void index_apply_checkpoint_await(struct store *store)
{
	pthread_mutex_lock(&store->apply->checkpoint_lock);
	pthread_mutex_unlock(&store->apply->checkpoint_lock);
}

static void *checkpoint_main(void *arg)
{
	struct store *store = (struct store *)arg;
	struct index_apply *apply = store->apply;

	pthread_mutex_lock(&apply->lock);
	while (!apply->stopping) {
		if (!apply->checkpoint_wanted || apply->failed) {
			pthread_cond_wait(&apply->checkpoint, &apply->lock);
			continue;
		}
		if (clock_now_ns() < apply->checkpoint_after_ns) {
			cond_wait_until(apply, &apply->checkpoint, apply->checkpoint_after_ns);
			continue;
		}
		pthread_mutex_unlock(&apply->lock);
		index_apply_checkpoint_now(store);
		pthread_mutex_lock(&apply->lock);
	}
	pthread_mutex_unlock(&apply->lock);
	return NULL;
}

/* The lock is held. */
static void checkpoint_want(struct index_apply *apply)
{
	if (apply->checkpoint_wanted)
		return;
	apply->checkpoint_wanted = true;
	pthread_cond_signal(&apply->checkpoint);
}

void index_apply_tidy(struct store *store)
{
	if (index_passed_over(store->index) < INDEX_PASSED_OVER_MAX)
		return;
	pthread_mutex_lock(&store->apply->lock);
	checkpoint_want(store->apply);
	pthread_mutex_unlock(&store->apply->lock);
}

void index_apply_wake(struct store *store)
{
	pthread_mutex_lock(&store->apply->lock);
	pthread_cond_signal(&store->apply->work);
	pthread_mutex_unlock(&store->apply->lock);
}

static int applied_await(struct store *store, uint64_t seq, bool patient)
{
	struct index_apply *apply = store->apply;
	bool full = false;
	int ret = 0;

	pthread_mutex_lock(&apply->lock);
	while (apply->applied_seq < seq && !apply->failed && !full) {
		full = atomic_load(&store->index_full) &&
		       (!patient || atomic_load(&store->quiescing));
		if (!full)
			progress_wait(apply);
	}
	if (apply->applied_seq < seq)
		ret = apply->failed ? -EIO : store_folder_full();
	pthread_mutex_unlock(&apply->lock);
	return ret;
}

int index_apply_wait(struct store *store, uint64_t seq)
{
	return applied_await(store, seq, true);
}

int index_apply_wait_or_full(struct store *store, uint64_t seq)
{
	return applied_await(store, seq, false);
}

int index_apply_settle(struct store *store)
{
	return index_apply_wait(store, atomic_load(&store->committer->published_seq));
}

int index_apply_wait_room(struct store *store, uint64_t end_pos)
{
	struct index_apply *apply = store->apply;
	uint64_t log_bytes = store->volume.super.log_bytes;
	bool waited = false;
	int ret = 0;

	pthread_mutex_lock(&apply->lock);
	for (;;) {
		uint64_t used = end_pos - atomic_load(&store->tail_pos);

		if (apply->failed || stripe_suspended(store)) {
			ret = apply->failed ? -EIO : -EHOSTDOWN;
			break;
		}
		if (atomic_load(&store->index_full)) {
			ret = store_folder_full();
			break;
		}
		/* Only applied groups may be released. */
		if (used > log_bytes / 2 &&
			apply->applied_pos - atomic_load(&store->tail_pos) >= log_bytes / 4)
			checkpoint_want(apply);
		if (used <= log_bytes && apply->queued_bytes <= INDEX_LAG_BYTES_MAX)
			break;
		if (used > log_bytes && !apply->first)
			checkpoint_want(apply);
		if (!waited)
			counter_add(used > log_bytes ? &log_full : &index_queue_full, 1);
		waited = true;
		progress_wait(apply);
	}
	pthread_mutex_unlock(&apply->lock);
	return ret;
}

int index_apply_start(struct store *store)
{
	struct index_apply *apply = store->apply;
	int ret;

	ret = pthread_create(&apply->apply_thread, NULL, apply_main, store);
	if (ret)
		return -ret;
	ret = pthread_create(&apply->checkpoint_thread, NULL, checkpoint_main, store);
	if (ret) {
		pthread_mutex_lock(&apply->lock);
		apply->stopping = true;
		pthread_cond_broadcast(&apply->work);
		pthread_mutex_unlock(&apply->lock);
		pthread_join(apply->apply_thread, NULL);
		return -ret;
	}
	pthread_setname_np(apply->apply_thread, "store-index");
	pthread_setname_np(apply->checkpoint_thread, "store-check");
	apply->started = true;
	return 0;
}

void index_apply_init(struct index_apply *apply)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&apply->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&apply->work, &attr);
	pthread_cond_init(&apply->checkpoint, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_init(&apply->checkpoint_lock, NULL);
}

void index_apply_stop(struct store *store)
{
	struct index_apply *apply = store->apply;

	if (apply->started) {
		pthread_mutex_lock(&apply->lock);
		apply->stopping = true;
		pthread_cond_broadcast(&apply->work);
		pthread_cond_broadcast(&apply->checkpoint);
		pthread_mutex_unlock(&apply->lock);
		pthread_join(apply->apply_thread, NULL);
		pthread_join(apply->checkpoint_thread, NULL);
		apply->started = false;
	}
	while (apply->spare) {
		struct group *group = apply->spare;

		apply->spare = group->next;
		group_close(group);
	}
	index_merge_close(&apply->merge);
	pthread_cond_destroy(&apply->work);
	pthread_cond_destroy(&apply->checkpoint);
	pthread_mutex_destroy(&apply->checkpoint_lock);
	pthread_mutex_destroy(&apply->lock);
}
