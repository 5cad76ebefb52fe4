/* store/commit/index_apply.h: the index thread, the checkpoint thread, and the rows they note for a
 * rebuild. */
#ifndef STORE_INDEX_APPLY_H
#define STORE_INDEX_APPLY_H

#include "store/local.h"

#include <pthread.h>
#include <stdbool.h>

#include "store/index/merge.h"

struct group;
struct waiter;

/* ---- index_apply.c: the index thread and the checkpoint thread. ---- */
struct index_apply {
	pthread_t apply_thread;
	pthread_t checkpoint_thread;
	pthread_mutex_t lock;
	pthread_cond_t work;	   /* the index thread waits */
	pthread_cond_t checkpoint; /* the checkpoint thread waits */
	struct group *first, *last;
	struct group *spare; /* kept buffers */
	uint32_t spare_count;
	struct index_merge merge; /* the index thread's */
	uint64_t queued_bytes;	  /* of the queue and of the groups being applied */
	uint64_t waiting_bytes;	  /* of the queue alone */
	uint64_t waiting_since_ns;
	uint64_t applied_seq;
	uint64_t applied_pos;	/* end of the last applied group */
	struct waiter *waiters; /* fibers waiting for any progress */
	bool checkpoint_wanted;
	uint64_t checkpoint_after_ns; /* the data folder had no room: not before */
	bool hurry;		      /* a fiber waits: apply the queue now */
	bool stopping;
	bool started;
	bool failed;
	pthread_mutex_t checkpoint_lock; /* one checkpoint at a time; taken before volume.lock */
};
/* Groups are applied together: they wait until this many bytes are queued, or for this time. An
 * operation that needs an up-to-date index shortens the wait. */
#define APPLY_BYTES_GOAL (1 * MIB)
#define APPLY_WAIT_NS	 (50 * NS_PER_MS)
void index_apply_init(struct index_apply *apply);
int index_apply_start(struct store *store);
/* Ends the threads when the queue is empty, and undoes init. */
void index_apply_stop(struct store *store);
/* Takes the group over. */
void index_apply_push(struct store *store, struct group *group);
struct group *index_apply_group(struct store *store); /* a new or a kept one; NULL: no memory */
void index_apply_group_give(
	struct store *store, struct group *group); /* a group that was not written */
/* Fiber call: until everything up to seq is applied, also while the data folder has no room, unless
 * the store quiesces. -EIO: the index failed; -ENOSPC: the store quiesces. */
int index_apply_wait(struct store *store, uint64_t seq);
/* The same for a request: -ENOSPC as long as the data folder has no room for what is missing. */
int index_apply_wait_or_full(struct store *store, uint64_t seq);
/* Fiber call: waits until everything published so far is applied, and the space that it freed is
 * free, except space that is still being read. As index_apply_wait. */
int index_apply_settle(struct store *store);
/* Fiber call: waits until the log has room for a group that ends at end_pos and the index keeps up.
 * -ENOSPC: the data folder has no room. -EIO, -EHOSTDOWN. */
int index_apply_wait_room(struct store *store, uint64_t end_pos);
/* Asks for a checkpoint, and for index_tidy() after it, once walks have passed over so many entries
 * of the index that these cost less. */
void index_apply_tidy(struct store *store);
/* Lets the index thread look for rows that the table of lists wants. Any thread. */
void index_apply_wake(struct store *store);
/* Makes a checkpoint on the calling thread. Blocks. */
int index_apply_checkpoint_now(struct store *store);
/* Makes members of an array that were gone good again (one bit each), then a checkpoint after which
 * the log continues in a new epoch: its groups after the tail become invalid. Everything published
 * is applied, and no group is in flight. Blocks. */
int index_apply_regain(struct store *store, uint64_t members);
/* At a start, when the index has the whole log: writes the superblock with the new tail, and before
 * it, if the store is protected, the index to the volumes. Blocks. */
int index_apply_begin(struct store *store);
/* Waits until a checkpoint that began earlier has ended. Blocks. */
void index_apply_checkpoint_await(struct store *store);

/* ---- rebuild_note.c ---- */
/* Keys one after another, each preceded by its length (2 bytes). */
struct rebuild_keys {
	uint8_t *bytes;
	size_t len, cap;
};
/* Rows of older bodies that were written during a rebuild's walk. The index thread holds the lock
 * while it notes and applies them. So a caller that finds no noted row knows that the index is up
 * to date. */
struct rebuild_noted {
	pthread_mutex_t lock; /* the index thread has it while it applies a run: no event loop's */
	pthread_cond_t room;  /* the index thread waits */
	bool on;
	bool lost;		/* a row could not be noted */
	uint64_t data_id_first; /* bodies from this number on are not older ones */
	struct rebuild_keys keys;
};
void rebuild_noted_init(struct rebuild_noted *noted);
void rebuild_noted_fini(struct rebuild_noted *noted);
/* Whether the row names extents of a body that may be incomplete on the volume. */
bool rebuild_row_counts(uint64_t data_id_first, struct slice key, struct slice value);
/* Called before and after a run of groups is applied to the index. */
void rebuild_note_begin(struct store *store, const struct group *first);
void rebuild_note_end(struct store *store);

#endif
