/* store/commit/index_apply.h: the index thread and the checkpoint thread, and what they note for a
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
	uint64_t queued_bytes;	  /* with what is being applied */
	uint64_t waiting_bytes;	  /* of the queue */
	uint64_t waiting_since_ns;
	uint64_t applied_seq;
	uint64_t applied_pos;	/* end of the last applied group */
	struct waiter *waiters; /* fibers waiting for any progress */
	bool checkpoint_wanted;
	bool hurry; /* somebody waits: what is queued is applied now */
	bool stopping;
	bool started;
	bool failed;
};
/* Groups wait until this many bytes are queued, or for this time, so that they are applied
 * together; an operation that needs the index up to date makes it hurry. */
#define APPLY_BYTES_GOAL (1 * MIB)
#define APPLY_WAIT_NS	 (50 * NS_PER_MS)
void index_apply_init(struct index_apply *apply);
int index_apply_start(struct store *store);
/* Ends the threads when the queue is empty, and takes init back. */
void index_apply_stop(struct store *store);
/* Takes the group over. */
void index_apply_push(struct store *store, struct group *group);
struct group *index_apply_group(struct store *store); /* a fresh or kept one; NULL: no memory */
void index_apply_group_give(
	struct store *store, struct group *group); /* one that was not written */
/* Fiber call: until everything up to seq is applied. -EIO: the index failed. */
int index_apply_wait(struct store *store, uint64_t seq);
/* Fiber call: until everything published so far is applied, and the space of what it replaced is
 * free but for what is being read. -EIO. */
int index_apply_settle(struct store *store);
/* Fiber call: until the log has room for a group that ends at end_pos and the index keeps up. */
int index_apply_wait_room(struct store *store, uint64_t end_pos);
/* A checkpoint on the calling thread. Blocks. */
int index_apply_checkpoint_now(struct store *store);
/* The same, and the log goes on in a new epoch: what it has behind the tail counts no more. All
 * that was published is applied, and no group is on its way. */
int index_apply_checkpoint_anew(struct store *store);

/* ---- rebuild_note.c ---- */
/* Keys one after the other, each behind its length (2). */
struct rebuild_keys {
	uint8_t *bytes;
	size_t len, cap;
};
/* The rows of older bodies that were written while a rebuilding walks. The index thread holds the
 * lock while it notes and applies them, so that who finds nothing noted knows what the index has.
 */
struct rebuild_noted {
	pthread_mutex_t lock;
	pthread_cond_t room; /* the index thread waits */
	bool on;
	bool lost;		/* one could not be noted */
	uint64_t data_id_first; /* bodies from here on are no older ones */
	struct rebuild_keys keys;
};
void rebuild_noted_init(struct rebuild_noted *noted);
void rebuild_noted_fini(struct rebuild_noted *noted);
/* Whether the row names extents of a body that may lack a part on the volume. */
bool rebuild_row_counts(uint64_t data_id_first, struct slice key, struct slice value);
/* Around the application of a run of groups to the index. */
void rebuild_note_begin(struct store *store, const struct group *first);
void rebuild_note_end(struct store *store);

#endif
