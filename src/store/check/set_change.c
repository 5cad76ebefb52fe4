/* store/check/set_change.c: changes the set of volumes of a store while it is open: adds, removes,
 * and gives new bodies other numbers of shards. docs/design/stripe.md has the proof that a crash at
 * any step leaves one set.
 *
 *   asked ──► new volumes opened, zeroed, labelled as not yet members
 *         ──► superblock with both geometries; new bodies use the new one     (cancel: the old one)
 *         ──► move.c moves bodies until no block of the other is in use
 *         ──► checkpoint; superblock with one geometry: the volumes that left are members no more
 */
#include "store/check/set_change_priv.h"
#include "store/space/space.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENDED_LOOK_NS (10 * NS_PER_MS)
#define TOLD_NS	      (60 * NS_PER_S) /* shortest interval between two log messages */

/* ---- State. ---- */

uint32_t set_slot_old(const struct store *store)
{
	return 1u - atomic_load(&store->volume.set_current);
}

bool set_is_changing(const struct store *store)
{
	return store->volume.set_count &&
	       disk_array_geometry_data(store->volume.disk, set_slot_old(store)) != 0;
}

uint64_t set_change_blocks_left(const struct store *store)
{
	return set_is_changing(store) ? space_geometry_blocks(store->space, set_slot_old(store))
				      : 0;
}

enum asked set_asked(struct store_change *change)
{
	enum asked asked;

	pthread_mutex_lock(&change->lock);
	asked = change->asked;
	pthread_mutex_unlock(&change->lock);
	return asked;
}

void set_asked_end(struct store_change *change)
{
	pthread_mutex_lock(&change->lock);
	change->asked = ASKED_NOTHING;
	change->note[0] = '\0';
	set_add_forget(change);
	pthread_mutex_unlock(&change->lock);
}

void set_note(struct store_change *change, const char *fmt, ...)
{
	va_list args;

	pthread_mutex_lock(&change->lock);
	va_start(args, fmt);
	vsnprintf(change->note, sizeof(change->note), fmt, args);
	va_end(args);
	pthread_mutex_unlock(&change->lock);
}

/* The reason why the bodies wait. Deletions make room on the volumes, not in the data folder. */
static void wait_text(const struct store *store, int error, char ret_text[NOTE_BYTES])
{
	if (error == -ENOSPC && atomic_load(&store->index_full))
		snprintf(ret_text, NOTE_BYTES,
			"waits for room in the file system of the data folder");
	else if (error == -ENOSPC)
		snprintf(ret_text, NOTE_BYTES, "waits for space: free some, or cancel");
	else
		snprintf(ret_text, NOTE_BYTES, "waits: %s", strerror(-error));
}

void set_change_note(struct store *store, int error, uint64_t failed)
{
	struct store_change *change = store->change;
	uint64_t now_ns = clock_now_ns();
	char note[NOTE_BYTES] = "";
	bool changing;

	if (error && error != -ESHUTDOWN)
		wait_text(store, error, note);
	else if (failed)
		snprintf(note, sizeof(note),
			"%llu bodies cannot be read: run a scrub, which names them; restore or "
			"delete them",
			(unsigned long long)failed);
	pthread_mutex_lock(&change->lock);
	changing = change->shown.changing;
	if (changing) {
		memcpy(change->note, note, sizeof(note));
		change->shown.failed = failed;
	}
	pthread_mutex_unlock(&change->lock);
	if (!changing || !note[0] || now_ns - change->told_ns < TOLD_NS)
		return;
	change->told_ns = now_ns;
	if (failed)
		log_error("store",
			"%s: %llu bodies cannot be read and stay on the former set of volumes: run "
			"a scrub, which names them",
			store->dir, (unsigned long long)failed);
	else
		log_warn("store", "%s: moving bodies to the new set of volumes %s", store->dir,
			note);
}

void set_show(struct store *store)
{
	const struct super_set *set = &store->volume.super.set;
	const struct disk_geometry *now = &set->geometries[set->current].numbers;
	const struct disk_geometry *before = &set->geometries[1 - set->current].numbers;
	struct store_change *change = store->change;

	pthread_mutex_lock(&change->lock);
	atomic_store(&store->volume.set_current, (uint32_t)set->current);
	/* A change that has its last superblock ends when the array has left the older set. */
	change->shown = (struct store_set_status){.changing = set_is_changing(store),
		.data = now->data,
		.parity = now->parity,
		.members = disk_geometry_mask(now),
		.before_data = before->data,
		.before_parity = before->parity};
	/* The mover may still be in its last pass, and what it waited for is over. */
	if (!change->shown.changing)
		change->note[0] = '\0';
	pthread_mutex_unlock(&change->lock);
}

/* ---- Steps. ---- */

static void mover_fiber(void *arg)
{
	struct store *store = (struct store *)arg;

	store_move(store);
	atomic_store(&store->change->moving, false);
}

static void mover_start(struct store *store)
{
	struct store_change *change = store->change;

	if (atomic_load(&change->moving))
		return;
	atomic_store(&change->moving, true);
	if (fiber_spawn(reactor_self(), "mover", mover_fiber, store))
		atomic_store(&change->moving, false);
}

static void settle_run(void *arg)
{
	struct store *store = (struct store *)arg;

	pthread_mutex_lock(&store->volume.lock);
	if (store->volume.settled_change != store->volume.super.set.change)
		(void)volume_super_write(&store->volume);
	pthread_mutex_unlock(&store->volume.lock);
}

/* Whether enough volumes have the superblock of the last change. Only then it is used. */
static bool is_settled(struct store *store)
{
	if (atomic_load(&store->volume.settled_change) != store->volume.super.set.change)
		fiber_offload_long(settle_run, store);
	return atomic_load(&store->volume.settled_change) == store->volume.super.set.change;
}

static void step_run(struct store *store)
{
	const struct super_set *set = &store->volume.super.set;
	enum asked asked = set_asked(store->change);

	if (asked == ASKED_CANCEL && is_settled(store))
		set_cancel(store);
	else if (asked == ASKED_CHANGE)
		set_begin(store);
	if (!set_is_changing(store) || !is_settled(store))
		return;
	/* An end that was written, but not on enough volumes then. */
	if (!set->geometries[set_slot_old(store)].numbers.data) {
		set_leave(store);
		return;
	}
	disk_array_current(store->volume.disk, (uint32_t)set->current);
	space_stripe(store->space, store->volume.disk, (uint32_t)set->current);
	if (set_change_blocks_left(store))
		mover_start(store);
	else if (!atomic_load(&store->quiescing))
		set_end(store);
}

void set_change_step(struct store *store)
{
	if (store->change->stepping)
		return;
	store->change->stepping = true;
	step_run(store);
	store->change->stepping = false;
}

int set_change_open(struct store *store)
{
	struct store_change *change = (struct store_change *)calloc(1, sizeof(*change));

	if (!change)
		return -ENOMEM;
	pthread_mutex_init(&change->lock, NULL);
	store->change = change;
	set_show(store);
	if (change->shown.before_data)
		log_info("store",
			"%s: the change of the set of volumes goes on: from %u+%u to %u+%u",
			store->dir, change->shown.before_data, change->shown.before_parity,
			change->shown.data, change->shown.parity);
	return 0;
}

void set_change_close(struct store *store)
{
	struct store_change *change = store->change;

	if (!change)
		return;
	/* Of a change that waited until the end. */
	set_files_restore(store);
	set_add_forget(change);
	for (uint32_t m = 0; m < DISK_MEMBERS_MAX; m++)
		free(change->left[m]);
	pthread_mutex_destroy(&change->lock);
	free(change);
	store->change = NULL;
}

void set_change_await(struct store *store)
{
	while (store->change && atomic_load(&store->change->moving))
		fiber_sleep_ns(ENDED_LOOK_NS);
}
