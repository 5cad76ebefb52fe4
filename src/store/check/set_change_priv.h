/* store/check/set_change_priv.h: a change of the set of volumes, for the files of its steps. */
#ifndef STORE_SET_CHANGE_PRIV_H
#define STORE_SET_CHANGE_PRIV_H

#include "store/check/set_change.h"
#include "store/state/state.h"

#include <pthread.h>
#include <stdatomic.h>

#define NOTE_BYTES sizeof(((struct store_set_status *)0)->note)

enum asked { ASKED_NOTHING, ASKED_CHANGE, ASKED_CANCEL };

struct store_change {
	pthread_mutex_t lock; /* of what is asked, the note and what is shown; after volume.lock */
	enum asked asked;
	char *add[DISK_MEMBERS_MAX];
	uint32_t add_count;
	struct disk_geometry geometry; /* of new bodies */
	uint64_t added;		       /* its members that are new */
	char *left[DISK_MEMBERS_MAX]; /* paths of volumes that left, by former member: still open */
	char note[NOTE_BYTES];
	struct store_set_status shown; /* the set as it is, for status */
	_Atomic bool moving;	       /* the mover runs */
	/* Of the monitor, and its helper thread. */
	bool stepping;
	struct disk *disks[DISK_MEMBERS_MAX]; /* by member: new */
	/* The new ones that are files, as they were before: one bit each, and their lengths. */
	uint64_t noted, made;
	uint64_t bytes_before[DISK_MEMBERS_MAX];
	uint64_t told_ns;
	int ret;
};

/* ---- set_change.c ---- */
/* The geometry beside that of new bodies; it may be none. */
uint32_t set_slot_old(const struct store *store);
/* While the set changes the array has both geometries. */
bool set_is_changing(const struct store *store);
/* The administrator's wish, and its end. */
enum asked set_asked(struct store_change *change);
void set_asked_end(struct store_change *change);
/* Why it waits, or why it failed; for status. */
void set_note(struct store_change *change, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Under volume.lock, after a change of the superblock's set or of the array's geometries: what
 * status shows. */
void set_show(struct store *store);

/* ---- set_ask.c ---- */
/* Frees the paths that were asked for. */
void set_add_forget(struct store_change *change);

/* ---- set_begin.c; fiber calls of the array monitor. ---- */
void set_begin(struct store *store);
void set_cancel(struct store *store);
/* Takes back what was made of new volumes that do not become members. Blocks. */
void set_files_restore(struct store *store);

/* ---- set_end.c; fiber calls of the array monitor. ---- */
/* When no block of the older geometry is in use. */
void set_end(struct store *store);
/* The superblocks have one geometry, the array has two. */
void set_leave(struct store *store);

#endif
