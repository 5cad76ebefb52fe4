/* store/check/array_monitor.c: the array monitor watches the volumes of an array while the store is
 * open. It gives up volumes that are gone; it takes back volumes that can be reached again, and
 * rebuilds them. docs/design/stripe.md. Of a store on one volume in RADOS, it watches that one. */
#include "store/check/check.h"
#include "store/check/set_change.h"
#include "store/commit/body.h"
#include "store/commit/commit.h"
#include "store/commit/committer.h"
#include "store/commit/index_apply.h"
#include "store/state/state.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS NS_PER_S
/* Empty places are checked once in this many looks. */
#define LOOKS_VACANT 5u
/* A failed rebuild starts again after this many looks. */
#define LOOKS_REST   5u
#define PUTS_LOOK_NS (20 * NS_PER_MS)

DEFINE_COUNTER(returned, "nebulaio_store_volumes_returned_total", NULL,
	"Missing volumes that were taken back, or replaced, while the store was open.");

struct array_monitor {
	struct store *store;
	uint32_t looks;
	/* State of one look, on a helper thread. */
	uint32_t member; /* found; UINT32_MAX: none */
	struct disk *disk;
	bool fresh;	   /* the disk is not attached, and its path is not the member's yet */
	uint32_t path_idx; /* of a fresh one */
	bool unfit;	   /* it is not tried again */
	int ret;
	uint64_t members_tried, paths_tried; /* what this look could not take */
};

/* ---- Looking, on a helper thread. ---- */

static bool missing(const struct store *store, uint32_t member)
{
	return super_has(&store->volume.super, member) &&
	       disk_array_state(store->volume.disk, member) == DISK_MEMBER_MISSING;
}

/* Options for probing a possible member. */
static struct volume_opts volume_opts_of(const struct store *store)
{
	return (struct volume_opts){.dir = store->dir,
		.format = store->opts.format,
		.discard_files = store->opts.discard_files};
}

/* Whether it still holds the member's volume, or is blank. The log says once why not. */
static bool own_known(struct store *store, uint32_t member)
{
	struct volume_opts opts = volume_opts_of(store);
	int *told = &store->volume.member_told[member], ret;

	opts.quiet = true;
	ret = stripe_member_known(&opts, &store->volume, member);
	if (!ret || ret == *told)
		return !ret;
	opts.quiet = false;
	ret = stripe_member_known(&opts, &store->volume, member);
	*told = ret ? ret : *told;
	return !ret;
}

/* A member whose disk is open and can be reached again. */
static bool own_find(struct array_monitor *monitor)
{
	struct store *store = monitor->store;

	for (uint32_t m = 0; m < DISK_MEMBERS_MAX; m++) {
		struct disk *disk = disk_array_member(store->volume.disk, m);

		if (!missing(store, m) || (monitor->members_tried >> m & 1) || !disk ||
			store->volume.path_of[m] == STRIPE_PATH_NONE || disk_revive(disk))
			continue;
		if (!own_known(store, m))
			continue;
		monitor->member = m;
		monitor->disk = disk;
		monitor->fresh = false;
		return true;
	}
	return false;
}

static void look_run(void *arg)
{
	struct array_monitor *monitor = (struct array_monitor *)arg;
	const struct volume_opts opts = volume_opts_of(monitor->store);

	struct stripe_found found;

	monitor->member = UINT32_MAX;
	monitor->unfit = false;
	if (own_find(monitor) || monitor->looks % LOOKS_VACANT ||
		stripe_candidate(&opts, &monitor->store->volume, monitor->paths_tried, &found))
		return;
	monitor->member = found.member;
	monitor->disk = found.disk;
	monitor->path_idx = found.path_idx;
	monitor->fresh = true;
}

/* ---- Attaching, on each reactor's own thread. ---- */

struct attach {
	struct reactor_msg msg;
	struct store *store;
	struct disk *disk;
	struct reactor *reactor;
	struct fiber *fiber;
	_Atomic uint32_t *pending;
	int ret;
};

static void attach_here(struct reactor_msg *msg)
{
	struct attach *attach = CONTAINER_OF(msg, struct attach, msg);
	struct fiber *fiber = attach->fiber;

	attach->ret = disk_attach(attach->disk, attach->reactor, attach->store->region);
	if (atomic_fetch_sub(attach->pending, 1) == 1)
		fiber_wake_remote(fiber);
}

int array_attach_all(struct store *store, struct disk *disk)
{
	struct attach attaches[LIMIT_CORES_MAX];
	_Atomic uint32_t pending = 0;
	uint32_t count = 0;
	int ret = 0;

	for (uint32_t i = 0; i < LIMIT_CORES_MAX; i++)
		if (store->cores[i].reactor)
			attaches[count++] = (struct attach){.msg = {.fn = attach_here},
				.store = store,
				.disk = disk,
				.reactor = store->cores[i].reactor,
				.fiber = fiber_self(),
				.pending = &pending};
	atomic_store(&pending, count);
	for (uint32_t i = 0; i < count; i++)
		reactor_post(attaches[i].reactor, &attaches[i].msg);
	while (atomic_load(&pending))
		fiber_park();
	for (uint32_t i = 0; i < count && !ret; i++)
		ret = attaches[i].ret;
	return ret;
}

/* ---- Growing. ---- */

/* Gives up the members that are gone. Any thread. */
static void gone_fail(struct disk *disk)
{
	for (uint64_t left = disk_array_mask(disk); left; left &= left - 1) {
		uint32_t m = (uint32_t)__builtin_ctzll(left);

		if (disk_array_state(disk, m) != DISK_MEMBER_MISSING &&
			disk_gone(disk_array_member(disk, m)))
			disk_array_fail(disk, m, -ENOTCONN);
	}
}

static void gone_take(struct store *store)
{
	struct disk *disk = store->volume.disk;

	gone_fail(disk);
	if (stripe_settle(&store->volume) == -EHOSTDOWN || !disk_array_quorum(disk))
		stripe_suspend(store);
}

struct growing {
	const struct store *store;
	struct disk *disk;
	int ret;
};

/* The file system must have room for all of it before the first step, and again before each. */
static void grow_run(void *arg)
{
	struct growing *growing = (struct growing *)arg;
	const struct volume *volume = &growing->store->volume;
	uint64_t bytes = disk_bytes(volume->disk);

	growing->ret = disk_room_check(growing->disk, bytes, growing->store->opts.reserve_bytes);
	if (!growing->ret)
		growing->ret = disk_grow(growing->disk,
			MIN(bytes, disk_bytes(growing->disk) + volume->super.step_bytes));
}

int array_grow_to(struct store *store, struct disk *disk)
{
	struct growing growing = {.store = store, .disk = disk};

	while (!growing.ret && disk_bytes(disk) < disk_bytes(store->volume.disk)) {
		fiber_offload_long(grow_run, &growing);
		gone_take(store);
		if (stripe_suspended(store) || atomic_load(&store->quiescing))
			return -EAGAIN;
	}
	return growing.ret;
}

/* ---- Taking back. ---- */

static void super_run(void *arg)
{
	struct array_monitor *monitor = (struct array_monitor *)arg;
	struct volume *volume = &monitor->store->volume;

	pthread_mutex_lock(&volume->lock);
	if (volume->members_new >> monitor->member & 1)
		stripe_member_anew(&volume->super, monitor->member);
	volume->members_new &= ~(1ull << monitor->member);
	monitor->ret = volume_super_write(volume);
	pthread_mutex_unlock(&volume->lock);
}

static bool attend(struct array_monitor *monitor);

/* Puts that began earlier may have skipped the volume, and so may the group that is being written.
 * They must end first and their rows must be in the index: then the rebuild finds everything that
 * the volume lacks, and the log's tail moves past the part that it lacks. A put may take as long as
 * its client likes: one that has not ended in time can no longer be committed. Meanwhile other
 * volumes may be lost, and come back. */
static void puts_await(struct array_monitor *monitor)
{
	struct store *store = monitor->store;
	uint32_t before = store_phase_next(store);
	uint64_t now_ns = clock_now_ns();
	uint64_t until_ns = now_ns + store->puts_wait_ns, look_ns = now_ns + LOOK_NS;
	uint32_t left;

	while (store_phase_open(store, before) && !atomic_load(&store->quiescing) &&
		now_ns < until_ns) {
		fiber_sleep_ns(PUTS_LOOK_NS);
		now_ns = clock_now_ns();
		if (now_ns < look_ns)
			continue;
		(void)attend(monitor);
		look_ns = now_ns + LOOK_NS;
	}
	left = store_phase_open(store, before);
	if (left && !atomic_load(&store->quiescing))
		log_warn("store",
			"%u puts that began before a volume was back have not ended: they fail",
			left);
	atomic_store(&store->put_phase_first, before + 1);
	commit_barrier(store);
	(void)index_apply_wait(store, atomic_load(&store->committer->published_seq));
}

static void regrow_run(void *arg)
{
	struct array_monitor *monitor = (struct array_monitor *)arg;
	const struct store *store = monitor->store;
	uint64_t bytes = disk_bytes(store->volume.disk);

	monitor->ret = disk_room_check(monitor->disk, bytes, store->opts.reserve_bytes);
	if (!monitor->ret)
		monitor->ret = disk_grow(monitor->disk, bytes);
}

static void path_run(void *arg)
{
	struct array_monitor *monitor = (struct array_monitor *)arg;
	struct volume *volume = &monitor->store->volume;

	pthread_mutex_lock(&volume->lock);
	volume->path_of[monitor->member] = monitor->path_idx;
	pthread_mutex_unlock(&volume->lock);
}

/* On a helper thread. A disk that could not be attached would be refused again. A file that grew in
 * vain gives the room back. */
static void refuse_run(void *arg)
{
	struct array_monitor *monitor = (struct array_monitor *)arg;
	struct volume *volume = &monitor->store->volume;

	if (monitor->unfit && !disk_attached(monitor->disk))
		(void)disk_shrink_now(monitor->disk, disk_medium_bytes(monitor->disk));
	pthread_mutex_lock(&volume->lock);
	if (monitor->unfit || disk_attached(monitor->disk))
		volume->paths_refused |= 1ull << monitor->path_idx;
	volume->path_of[monitor->member] = STRIPE_PATH_NONE;
	pthread_mutex_unlock(&volume->lock);
	disk_array_refuse(volume->disk, monitor->disk);
}

static int disk_join(struct array_monitor *monitor)
{
	struct store *store = monitor->store;
	int ret;

	/* The array may have grown since then, and grows with the volume from here on. */
	grow_hold(store);
	fiber_offload_long(regrow_run, monitor);
	ret = monitor->ret;
	if (!ret && monitor->fresh)
		ret = array_attach_all(store, monitor->disk);
	if (!ret)
		ret = disk_array_return(store->volume.disk, monitor->member, monitor->disk);
	grow_release(store);
	return ret;
}

static int member_join(struct array_monitor *monitor)
{
	int ret = array_grow_to(monitor->store, monitor->disk);

	monitor->unfit = ret && ret != -EAGAIN && ret != -ENOTCONN;
	if (!ret && monitor->fresh)
		fiber_offload_long(path_run, monitor);
	if (!ret)
		ret = disk_join(monitor);
	if (ret && monitor->fresh)
		fiber_offload_long(refuse_run, monitor);
	return ret;
}

/* This look tries the others. */
static void not_taken(struct array_monitor *monitor, int error)
{
	int *told = &monitor->store->volume.member_told[monitor->member];
	bool refused = monitor->unfit && monitor->fresh;

	if (refused || *told != error)
		log_error("store", "cannot take volume %u back: %s%s", monitor->member,
			stripe_why(error), refused ? ": the server does not try it again" : "");
	*told = error;
	if (monitor->fresh)
		monitor->paths_tried |= 1ull << monitor->path_idx;
	else
		monitor->members_tried |= 1ull << monitor->member;
}

/* *ret_joined: the array has it. */
static int member_take(struct array_monitor *monitor, bool *ret_joined)
{
	int ret = member_join(monitor);

	*ret_joined = !ret;
	if (!ret) {
		counter_add(&returned, 1);
		log_info("store", "volume %u is back, and is rebuilt from the others",
			monitor->member);
		fiber_offload_long(super_run, monitor);
		ret = monitor->ret;
	}
	if (!ret)
		monitor->store->volume.member_told[monitor->member] = 0;
	else if (ret != -EAGAIN)
		not_taken(monitor, ret);
	return ret;
}

/* ---- Replacing. ---- */

struct replace {
	struct store *store;
	const char *path;
	uint32_t member;
	int ret;
};

static bool path_taken(const struct volume *volume, uint32_t path_idx)
{
	for (uint32_t m = 0; m < DISK_MEMBERS_MAX; m++)
		if (volume->path_of[m] == path_idx)
			return true;
	return false;
}

/* A path that is known and no volume's may be one that was refused before. */
static bool path_of_another(const struct volume *volume, uint32_t member, const char *path)
{
	uint32_t at = stripe_path_find(volume, path);

	return at != STRIPE_PATH_NONE && at != volume->path_of[member] && path_taken(volume, at);
}

/* Whether the array has enough members without this one. */
static bool can_spare(const struct volume *volume, uint32_t member)
{
	return disk_array_enough(volume->disk, disk_array_lost(volume->disk) | 1ull << member);
}

static int replace_note(const struct replace *replace)
{
	struct volume *volume = &replace->store->volume;

	if (!super_has(&volume->super, replace->member))
		return -ENOENT;
	if (volume->replace_path)
		return -EALREADY;
	if (path_of_another(volume, replace->member, replace->path))
		return -EEXIST;
	if (!can_spare(volume, replace->member))
		return -EBUSY;
	volume->replace_path = strdup(replace->path);
	if (!volume->replace_path)
		return -ENOMEM;
	volume->replace_member = (int)replace->member;
	return 0;
}

/* On a helper thread: a checkpoint may hold the lock for seconds. */
static void note_run(void *arg)
{
	struct replace *replace = (struct replace *)arg;
	struct volume *volume = &replace->store->volume;

	pthread_mutex_lock(&volume->lock);
	replace->ret = replace_note(replace);
	pthread_mutex_unlock(&volume->lock);
}

int store_volume_replace(struct store *store, uint32_t member, const char *path)
{
	struct replace replace = {.store = store, .path = path, .member = member};
	const struct volume *volume = &store->volume;

	if (!store->head.engine->local || !volume->set_count || member >= DISK_MEMBERS_MAX)
		return -ENOENT;
	if (!stripe_path_valid(path))
		return -EINVAL;
	fiber_offload_long(note_run, &replace);
	return replace.ret;
}

/* The place of a path that no member has, for the new member, or a new place. STRIPE_PATH_NONE: a
 * volume that was added meanwhile has the path, or there is no memory. */
static uint32_t path_place(struct volume *volume, uint32_t member)
{
	uint32_t at = stripe_path_find(volume, volume->replace_path), count = volume->set_count;
	bool idle = at != STRIPE_PATH_NONE && !path_taken(volume, at);

	if (idle && volume->path_of[member] == STRIPE_PATH_NONE)
		return at;
	/* The list names no path twice. */
	if (idle)
		stripe_path_remove(volume, at);
	if (volume->path_of[member] != STRIPE_PATH_NONE)
		return volume->path_of[member];
	for (uint32_t i = 0; i < count; i++)
		if (!path_taken(volume, i))
			return i;
	return stripe_path_add(volume, volume->replace_path) == 0 && volume->set_count > count
		       ? count
		       : STRIPE_PATH_NONE;
}

/* On a helper thread: gives up the old volume and puts the new path in its place. */
static void replace_run(void *arg)
{
	struct array_monitor *monitor = (struct array_monitor *)arg;
	struct volume *volume = &monitor->store->volume;
	uint32_t member, place;

	pthread_mutex_lock(&volume->lock);
	if (!volume->replace_path) {
		pthread_mutex_unlock(&volume->lock);
		return;
	}
	member = (uint32_t)volume->replace_member;
	gone_fail(volume->disk);
	place = can_spare(volume, member) ? path_place(volume, member) : STRIPE_PATH_NONE;
	if (!can_spare(volume, member)) {
		log_error("store",
			"volume %u is not replaced by %s: of the others, too many are missing "
			"now: ask again when they are back",
			member, volume->replace_path);
		free(volume->replace_path);
	} else if (place == STRIPE_PATH_NONE) {
		log_error("store",
			"volume %u is not replaced by %s: this path has become another volume's, "
			"or memory is short: ask again",
			member, volume->replace_path);
		free(volume->replace_path);
	} else {
		log_info("store", "volume %u (%s) is replaced by %s", member,
			volume->set_paths[place], volume->replace_path);
		disk_array_fail(volume->disk, member, -ESTALE);
		free(volume->set_paths[place]);
		volume->set_paths[place] = volume->replace_path;
		volume->path_of[member] = STRIPE_PATH_NONE;
		volume->paths_refused &= ~(1ull << place);
		volume->path_told[place] = 0;
		volume->member_told[member] = 0;
		volume->paths_named &= ~(1ull << place);
		volume->paths_asked |= 1ull << place;
		monitor->looks = 0;
		if (stripe_remember(monitor->store->dir, volume))
			log_warn("store", "%s: cannot record it in the data folder",
				monitor->store->dir);
	}
	volume->replace_path = NULL;
	pthread_mutex_unlock(&volume->lock);
}

/* ---- Watching. ---- */

static bool any_missing(const struct store *store)
{
	for (uint32_t m = 0; m < DISK_MEMBERS_MAX; m++)
		if (missing(store, m))
			return true;
	return false;
}

/* Gives up what is gone, and lets the store go on when it can. False: it takes no writes now. */
static bool attend(struct array_monitor *monitor)
{
	struct store *store = monitor->store;

	fiber_offload_long(replace_run, monitor);
	gone_take(store);
	if (!stripe_suspended(store))
		return true;
	if (atomic_load(&store->fenced))
		return false;
	set_change_withdraw(store);
	return stripe_regain(store) == 0;
}

static void look(struct array_monitor *monitor)
{
	bool taken = false, joined;
	int ret = 0;

	monitor->members_tried = monitor->paths_tried = 0;
	if (!attend(monitor))
		return;
	/* One that cannot be taken now is found again by the next look. */
	while (ret != -EAGAIN && any_missing(monitor->store) &&
		!atomic_load(&monitor->store->quiescing)) {
		fiber_offload_long(look_run, monitor);
		if (monitor->member == UINT32_MAX)
			break;
		ret = member_take(monitor, &joined);
		taken |= joined;
	}
	if (taken)
		puts_await(monitor);
	monitor->looks++;
}

/* One volume: suspends the store while it takes no writes. */
static void lone_watch(struct store *store)
{
	store->array_monitor = fiber_self();
	while (!atomic_load(&store->quiescing)) {
		if (fiber_park_until(clock_now_ns() + LOOK_NS) == 0)
			continue;
		if (disk_gone(store->volume.disk))
			stripe_suspend(store);
		if (stripe_suspended(store) && !atomic_load(&store->fenced))
			(void)stripe_regain(store);
	}
	store->array_monitor = NULL;
}

void store_array_monitor(struct store *store)
{
	struct array_monitor monitor = {.store = store};
	uint32_t rest = 0;

	if (!store->volume.set_count) {
		if (disk_resumes(store->volume.disk))
			lone_watch(store);
		return;
	}
	store->array_monitor = fiber_self();
	rest = store_rebuild(store) ? LOOKS_REST : 0;
	while (!atomic_load(&store->quiescing)) {
		if (fiber_park_until(clock_now_ns() + LOOK_NS) == 0)
			continue;
		look(&monitor);
		if (stripe_suspended(store))
			continue;
		if (rest)
			rest--;
		else
			rest = store_rebuild(store) ? LOOKS_REST : 0;
		if (!atomic_load(&store->quiescing))
			set_change_step(store);
	}
	set_change_await(store);
	store->array_monitor = NULL;
}

uint32_t store_volumes(struct store *store, struct store_volume *ret_volumes, uint32_t max)
{
	struct disk *disk = store->head.engine->local ? store->volume.disk : NULL;
	uint64_t left = disk ? disk_array_mask(disk) : 0;
	uint32_t count = 0;

	for (; left && count < max; left &= left - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(left);
		struct disk *member = disk_array_member(disk, i);

		ret_volumes[count++] = (struct store_volume){.number = i,
			.bytes = member ? disk_bytes(member) : 0,
			.state = disk_array_state(disk, i)};
	}
	return count;
}
