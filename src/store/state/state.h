/* store/state/state.h: the state of a store that its parts share, and the fence. */
#ifndef STORE_STATE_H
#define STORE_STATE_H

#include "store/engine.h"
#include "store/local.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "reactor/reactor.h"
#include "store/volume/volume.h"

struct index_apply;
struct backups;
struct buckets;
struct buf;
struct cache;
struct committer;
struct fiber;
struct image;
struct record_table;
struct index;
struct list_table;
struct rebuild_noted;
struct salvage;
struct space;
struct store_change;
struct waiter;

/* ---- The store. ---- */
struct store_core {
	struct reactor *reactor;
	struct store_get *free_gets;
};

struct store {
	struct store_head head;
	struct store_opts opts;
	char dir[4096 - 64];
	int lock_fd;
	struct region *region;
	struct volume volume;
	uint16_t target;
	struct space *space;
	struct index *index;
	struct record_table *records;
	struct list_table *listed;
	struct cache *cache;
	struct buckets *buckets;
	struct index_apply *apply;
	struct image *image;
	struct committer *committer;
	struct rebuild_noted *noted;
	struct backups *backups;       /* NULL: there has been none */
	_Atomic uint32_t backups_open; /* sessions that hold space */
	_Atomic bool backups_unwanted; /* they end, because a put needs the space */
	_Atomic uint64_t data_id_next;
	_Atomic uint64_t bucket_id_next;
	struct buf *findings;	 /* of a check: the output of findings; NULL: the log */
	struct salvage *salvage; /* NULL: damage of the log is refused */
	uint32_t features;	 /* features of the index, including unknown ones */
	uint64_t outbox_first;	 /* first number of this start: lower ones are of earlier starts */
	_Atomic uint64_t objects;
	_Atomic uint64_t tail_pos; /* of the log */
	_Atomic bool fenced;
	_Atomic bool index_full; /* the data folder has no room for the index */
	bool index_suspect;	 /* the start found damage in the index */
	_Atomic bool suspended;	 /* too few volumes are left */
	bool stranger_told;	 /* the only volume is back as another one: it was logged */
	_Atomic bool group_held; /* the space of a group that may be on the medium, though it was
				    reported as failed */
	_Atomic uint64_t
		regains; /* from 1: a body whose write began before one cannot be committed */
	_Atomic bool quiescing;
	struct fiber *array_monitor; /* of the volumes; on the committer's reactor */
	struct store_change
		*change;	/* of the set of volumes; the array monitor's; NULL: one volume */
	struct fiber *scrubber; /* on the committer's reactor, too */
	struct fiber *discarder;
	struct fiber *memory_expirer;
	_Atomic bool scrub_asked;
	_Atomic uint64_t scrub_done_bytes,
		scrub_all_bytes; /* of the current run; 0: none is running */
	/* Open puts, counted by the parity of the phase in which they began: the array monitor
	 * advances the phase and waits, and then knows that the earlier puts have ended. The
	 * upper 32 bits are the phase that is counted: puts of earlier ones cannot be committed
	 * any more, and do not count. */
	_Atomic uint32_t put_phase;
	_Atomic uint64_t puts_open[2];
	_Atomic uint32_t put_phase_first; /* puts of earlier ones cannot be committed */
	uint64_t puts_wait_ns;		  /* how long a volume that is back waits for them */
	_Atomic uint64_t space_looked_ns;
	_Atomic uint32_t space_low; /* which reserve is touched: enum space_low */
	_Atomic uint64_t full_told_ns;
	pthread_mutex_t grow_lock; /* of the next five */
	bool growing;
	struct fiber_start growth; /* until its fiber runs */
	int grow_result;
	uint64_t grow_ended_ns;
	struct waiter *grow_waiters;
	_Atomic uint64_t memory_reserved; /* of opts.memory_buckets_bytes_max, by memory buckets */
	pthread_mutex_t watch_lock;
	struct list watches; /* struct store_object_watch.link */
	_Atomic uint64_t rights_epoch;
	struct store_core cores[LIMIT_CORES_MAX];
};

/* ---- fence.c ---- */
/* Too few volumes are left: writes fail with -EHOSTDOWN. Logs once. */
void stripe_suspend(struct store *store);
bool stripe_suspended(const struct store *store);
/* The medium failed: all writes fail with -EIO from now on. If the cause is that too few volumes
 * are left (-EHOSTDOWN), writes fail until enough are back. Logs once. */
void store_fence(struct store *store, const char *what, int error);

/* True: an array had no memory for an operation on it, and did not begin it. So nothing failed. */
static inline bool store_volume_short(const struct store *store, int error)
{
	return error == -ENOMEM && store->volume.set_count;
}

/* Counts that the data folder was found without room; returns -ENOSPC. Any thread. */
int store_folder_full(void);

/* 0, or the error for all writes. Any thread. */
static inline int store_refuses(const struct store *store)
{
	if (__builtin_expect(atomic_load_explicit(&store->fenced, memory_order_relaxed), 0))
		return -EIO;
	if (__builtin_expect(atomic_load_explicit(&store->suspended, memory_order_relaxed), 0))
		return -EHOSTDOWN;
	return __builtin_expect(atomic_load_explicit(&store->index_full, memory_order_relaxed), 0)
		       ? store_folder_full()
		       : 0;
}

static inline bool store_phase_count(struct store *store, uint32_t phase, uint64_t change)
{
	_Atomic uint64_t *open = &store->puts_open[phase % 2];
	uint64_t seen = atomic_load(open);

	while (seen >> 32 == phase)
		if (atomic_compare_exchange_weak(open, &seen, seen + change))
			return true;
	return false;
}
static inline void store_phase_leave(struct store *store, uint32_t phase)
{
	(void)store_phase_count(store, phase, UINT64_MAX);
}
/* Counts a put, or a move, in the phase in which it begins; returns the phase, for its end. Counts
 * again if the phase changed meanwhile. */
static inline uint32_t store_phase_enter(struct store *store)
{
	for (;;) {
		uint32_t phase = atomic_load(&store->put_phase);

		if (!store_phase_count(store, phase, 1))
			continue;
		if (atomic_load(&store->put_phase) == phase)
			return phase;
		store_phase_leave(store, phase);
	}
}
/* Begins the next phase; returns the one before. Puts of the phase before that must have ended, or
 * not count (put_phase_first). One caller at a time. */
static inline uint32_t store_phase_next(struct store *store)
{
	uint32_t before = atomic_load(&store->put_phase);
	uint32_t next = before + 1;

	atomic_store(&store->puts_open[next % 2], (uint64_t)next << 32);
	atomic_store(&store->put_phase, next);
	return before;
}
/* How many puts of the phase are open: of the current one, or the one before. */
static inline uint32_t store_phase_open(const struct store *store, uint32_t phase)
{
	return (uint32_t)atomic_load(&store->puts_open[phase % 2]);
}
/* Whether a put, or a move, of this phase can be committed. */
static inline bool store_phase_counts(const struct store *store, uint32_t phase)
{
	return (int32_t)(phase - atomic_load(&store->put_phase_first)) >= 0;
}

/* Reports damage on the medium: to the log, or to a check's findings. */
void store_find(const struct store *store, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif
