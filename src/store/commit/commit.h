/* store/commit/commit.h: the interface within store for commits.
 *
 *   caller's fiber                committer (a fiber of the first reactor)      index thread
 *   put/delete/bucket calls  ──►  queue ─► plan in order ─► group ─►            apply to RocksDB,
 *                                 write bodies + log, one fdatasync ─►          unpin, free space
 *                                 publish in the record table ─► wake     ──►   of the dead
 *
 * The checkpoint thread flushes RocksDB and moves the log's tail. */
#ifndef STORE_COMMIT_H
#define STORE_COMMIT_H

#include "reactor/waiter.h"
#include "store/api.h"

#include <stdbool.h>

#include "store/log/journal.h"
#include "store/state/state.h"

struct composition;
struct append;
struct bucket;
struct record_entry;
struct object;

/* The items that a group numbers in commit order: versions, outbox rows. */
#define GROUP_NUMBER_SHIFT 20u
/* A group stops taking commits when one of these limits is reached. */
#define GROUP_COMMITS_MAX 256u
#define GROUP_BYTES_GOAL  (1 * MIB)
#define GROUP_PIECES_MAX  1024u
/* The most groups written but not applied to the index; at the limit the committer waits. */
#define INDEX_LAG_BYTES_MAX (16 * MIB)
/* Bodies larger than this are flushed by their own fiber before they are committed, so that
 * recovery has little to verify. */
#define BODY_VERIFY_BYTES_MAX (4 * MIB)
_Static_assert(GROUP_PIECES_MAX <= DISK_IOV_MAX, "a group's bodies fit one write");

/* ---- commit.c: planning and publishing; committer.c: the fiber and its writes. ---- */
/* The fate of an entry's old object: its body is deleted; it stays, in another row; the object that
 * replaces it keeps its body; it keeps all but one segment, which it has in another place. */
enum change_old { OLD_DIES, OLD_STAYS, OLD_EDITED, OLD_MOVED };
#define CHANGE_NEW     1u /* adds an object or a delete marker */
#define CHANGE_BODY    2u /* the body's rows are new, too */
#define CHANGE_FLUSHED 4u /* the body is durable already */
#define CHANGE_SEQ     8u /* the object gets its seq by this change */
struct change {
	struct record_entry *entry; /* pinned: the group's when published */
	struct object *object;	    /* planned content; NULL: nothing */
	uint8_t old;		    /* enum change_old */
	uint8_t flags;
};
#define CHANGES_MAX 3u
enum commit_item_kind { ITEM_WRITE, ITEM_EDIT, ITEM_VERSION_DELETE, ITEM_MOVE };
/* The caller pins the entries and unpins them afterwards, except `entry` if the group took its pin.
 */
struct commit_item {
	struct record_entry *entry; /* the key's current version; for an edit: the version's own */
	enum commit_item_kind kind;
	struct object *object; /* NULL: delete; the table's once planned and durable */
	store_check_fn *check;
	store_edit_fn *edit;
	void *arg;
	struct store_flags flags;	 /* for an edit: bits to set */
	struct slice version_id;	 /* the version meant; empty: the current one */
	struct record_entry *null_entry; /* where versioning was suspended */
	/* For the deletion of a version: its entry (NULL: it is the current one), a newer version,
	 * the version that comes after it, and the change count at which that was true. */
	struct record_entry *version_entry, *newest, *promote;
	uint32_t changes_seen;
	bool noncurrent; /* the version is not deleted if it is the newest */
	/* For a move: the object as it was, and which of its segments is elsewhere in `object`. */
	struct object *moved_from;
	uint32_t moved_segment;
	uint64_t mtime_ns; /* out, like the following fields; in, if not 0: the value is kept */
	char ret_version_id[33];
	bool ret_marker;
	struct store_outbox_row *outbox_row; /* or NULL */
	int result;			     /* -ERESTART: read the entries again and retry */
	bool planned;			     /* has mutations in the group */
	bool entry_taken;		     /* entry's pin is the group's */
	bool used_counted;		     /* its share of the bucket's use is counted: */
	int64_t used_bytes, used_objects;
	uint32_t change_count;
	struct change changes[CHANGES_MAX];
};
enum commit_kind {
	COMMIT_ITEMS,
	COMMIT_OUTBOX_END,
	COMMIT_BUCKET_CREATE,
	COMMIT_BUCKET_EDIT,
	COMMIT_BUCKET_DELETE
};
struct commit {
	struct mpsc_node node;
	struct commit *next; /* in its group */
	enum commit_kind kind;
	struct bucket *bucket;		/* borrowed; for a bucket's own commits: by the committer */
	const struct bucket *bucket_of; /* that must exist, too; or NULL */
	struct store_bucket bucket_info; /* for a creation; the name, for the others, and the id of
					    a deletion's; 0: any */
	struct bucket *bucket_made;	 /* of a creation: made before the log has it */
	struct store *bucket_memory;	 /* of a memory bucket that is made; or NULL */
	store_bucket_edit_fn *bucket_edit;
	void *arg;
	struct commit_item *items;
	uint32_t item_count;
	uint32_t number_count; /* outbox rows to delete */
	const uint64_t *numbers;
	struct composition *composition; /* the bodies that the (single) item's object is composed
					    of; or NULL */
	struct append *append;		 /* the append of the (single) item's object; or NULL */
	struct region_span span;	 /* a grouped body, OWNER_DISK; data NULL: none */
	uint32_t span_segment;		 /* of the object with the grouped body */
	uint64_t regains; /* values at the start of a body's write; 0: none was written */
	uint32_t phase;	  /* in which it began, if one was written */
	int result;
	struct waiter waiter;
};
/* Fiber call: queues the commit, waits for it, and fills in the results. */
void commit_run(struct store *store, struct commit *commit);
/* After a commit that failed with -ESTALE: whether bodies that it composes, or appends to, were
 * only moved to other places. The commit then names those, and can be run again. */
bool commit_follow(struct store *store, struct commit *commit);
/* Fiber call: waits until every group that was begun earlier is written and published. */
void commit_barrier(struct store *store);
/* Upper bound of the commit's size in a group. */
size_t commit_bytes(const struct commit *commit);
/* Plans each item against the content of its key, in order, and adds the mutations. The group has
 * room. */
void commit_plan(struct store *store, struct commit *commit, struct group *group);
/* Makes the commit visible once it is durable, or undoes it with the error. */
void commit_publish(struct store *store, struct commit *commit, struct group *group);
void commit_undo(struct store *store, struct commit *commit, int error);

/* ---- plan.c: one item. ---- */
/* Upper bound of the item's size in a group. */
size_t commit_item_bytes(const struct commit_item *item, const struct commit *commit);
void commit_item_plan(struct store *store, const struct commit *commit, struct commit_item *item,
	struct group *group);
/* The next number for an item that the group orders. */
uint64_t group_number_next(const struct store *store, struct group *group);
/* ---- quota.c ---- */
/* Counts what the item's changes and the composition add to the use of their buckets. -EDQUOT: a
 * put that the quota refuses; nothing is counted. */
int quota_plan(const struct commit *commit, struct commit_item *item);
/* Takes what quota_plan counted off again. */
void quota_undo(const struct commit *commit, struct commit_item *item);
/* The row of the bucket's quota: put, or deleted when there is none. */
void quota_row_add(struct group *group, const struct store_bucket *bucket);
size_t quota_row_bytes(void);
/* store_bucket_room of a bucket. Fiber call. */
int quota_room(struct store *store, struct bucket *bucket, struct slice key, uint64_t bytes);

/* Undoes the plan. */
void commit_item_drop(struct store *store, struct commit_item *item);

/* Deletes the rows of an object's bodies: the most mutations that takes (NULL: 0). */
uint32_t commit_rows_max(const struct object *object);
void commit_rows_delete(struct group *group, const struct object *object);

/* ---- outbox.c: messages about commits. ---- */
/* Upper bound of the size of the item's outbox rows in a group. */
size_t outbox_row_bytes(const struct commit_item *item);
/* Called once the item is planned. */
void outbox_rows_add(struct store *store, const struct commit_item *item, struct group *group);
size_t outbox_end_bytes(const struct commit *commit);
void outbox_end_add(struct group *group, const struct commit *commit);
/* -EUCLEAN: no such row. */
int outbox_row_parse(struct slice key, struct slice value, uint64_t *ret_number,
	struct slice *ret_version_id, struct slice *ret_text);

/* ---- version.c: the row of a version. ---- */
/* Fiber call: pins the entry that holds the version (empty: the current one, which may not exist).
 * When the commit is planned, the entry may hold another version. -ENOENT: no such version. */
int version_pin(struct store *store, struct bucket *bucket, struct slice key,
	struct slice version_id, struct record_entry **ret_entry);
/* Fiber call: looks up what a deletion of the item's version_id needs besides the pinned entry:
 * version_entry, newest, promote. -ENOENT: no such version. */
int version_prepare(struct store *store, struct bucket *bucket, struct commit_item *item);
void version_unprepare(struct store *store, struct commit_item *item);

/* ---- Calls of the engine implemented here; contracts in store/api.h. ---- */
int local_newest(
	struct store *store, struct slice bucket, struct slice key, struct store_meta *ret_meta);
int local_bucket_usage(struct store *store, struct slice name, struct store_quota *ret_used);
int local_bucket_room(struct store *store, struct slice name, struct slice key, uint64_t bytes);
int local_rename(struct store *store, const struct store_name *from, const struct store_get *get,
	struct slice to, struct slice headers, struct store_condition condition);
int local_outbox_visit(
	struct store *store, uint64_t after, bool all, store_outbox_visit_fn *visit, void *arg);
int local_outbox_end(struct store *store, const uint64_t *numbers, uint32_t count);

#endif
