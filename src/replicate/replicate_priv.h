/* replicate/replicate_priv.h: shared by the files of this folder.
 *
 *   worker.c  starts a course for each target, and walks for resyncs
 *   course.c  one target: fills its window from the store's rows, ends rows that were sent
 *   window.c  the rows of a target that are in memory: which may be sent now
 *   parked.c  those that it refuses, when they are too many for the window
 *   lane.c    sends one row at a time: a fiber that reads, and a thread that blocks
 *   send.c    what a row's kind asks for, as requests to the target
 *   change.c  changes of tags, retention and hold
 *   body.c    bytes of a version where a request can send them: held frames, or copies
 *   read.c    the bytes of a version
 *   late.c    rows that wait longer than their rules' threshold */
#ifndef REPLICATE_PRIV_H
#define REPLICATE_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "reactor/reactor.h"
#include "replicate/replicate.h"

/* ---- window.c ---- */
#define WINDOW_ROWS_MAX	 256u
#define WINDOW_PAUSE_MIN (1 * NS_PER_S)
#define WINDOW_PAUSE_MAX (60 * NS_PER_S)
/* Tenants share a target by the buckets that they write to: a bucket falls into one of these slots
 * by its name. */
#define WINDOW_SLOTS 64u
#define LONG_BYTES   (64 * MIB) /* rows of more leave two lanes to others */
/*   waits → runs → waits (refused: later), or done → reaped */
enum window_phase { WINDOW_WAITS, WINDOW_RUNS, WINDOW_DONE };
struct window_row {
	enum window_phase phase;
	struct s3_replicate_row row;
	char *text; /* the row's; owned */
	char version_id[33];
	uint32_t slot;
	uint32_t tries;
	uint64_t next_ns; /* not before */
	bool told;	  /* its refusal was logged */
	bool maybe_sent;  /* a request of it had no clear answer */
	bool was_parked;
	uint64_t sent_at; /* course.sent when the target last took nothing; 0: never */
};
/* The rows of a slot are in the order of their numbers. */
struct window {
	struct window_row *rows[WINDOW_ROWS_MAX];
	uint32_t count;
	uint32_t of_slot[WINDOW_SLOTS];
	uint64_t turns, turn_of_slot[WINDOW_SLOTS]; /* the turn in which it was taken from last */
};
uint32_t window_slot(struct slice bucket);
/* Whether the slot may have one more row: it has no more than there are free places, so that others
 * find some. */
bool window_has_room(const struct window *window, uint32_t slot);
/* False: the window is full, or there is no memory. text is one that s3_replicate_row_parse takes.
 */
bool window_add(struct window *window, uint64_t number, struct slice version_id, struct slice text);
/* The first row that may run now, of the slot whose turn it is, which then runs; NULL: none. A
 * key's rows run one by one. */
struct window_row *window_take(struct window *window, uint64_t now_ns);
/* When the next row may run that none runs before; DEADLINE_NONE: only after another one. */
uint64_t window_next_ns(const struct window *window);
/* The target refused it: it waits, longer after each time. */
void window_refused(struct window_row *row, uint64_t now_ns);
uint32_t window_refused_count(const struct window *window);
/* The numbers of the rows that are done. */
uint32_t window_done(const struct window *window, uint64_t numbers[WINDOW_ROWS_MAX]);
/* Takes these out, which window_done gave. Others may be done by now. */
void window_reap(struct window *window, const uint64_t *numbers, uint32_t count);
/* Refused rows may run at once. */
void window_hurry(struct window *window);
struct parked;
/* Rows of the slot that wait because the target refused them, or an earlier one of their key. */
uint32_t window_stuck_count(const struct window *window, uint32_t slot, uint64_t now_ns);
/* Moves these to parked, which has room for them. */
void window_shed(struct window *window, uint32_t slot, uint64_t now_ns, struct parked *parked);
void window_free(struct window *window);

/* ---- parked.c ---- */
#define PARKED_ROWS_MAX (256u * 1024u) /* 14 MiB: of a target */
struct parked_row {
	uint64_t number, hash, time_ns;
};
struct parked_key;
/* In the order of their numbers. */
struct parked {
	struct parked_row *rows;
	uint32_t count, room;
	struct parked_key *keys;
	uint32_t slots, forgotten;
};
/* Of its bucket and key; never 0. Keys that share one wait for each other. */
uint64_t parked_hash(const struct s3_replicate_row *row);
/* Room for that many more. -ENOSPC, -ENOMEM. */
int parked_reserve(struct parked *parked, uint32_t more);
void parked_add(struct parked *parked, uint64_t number, uint64_t hash, uint64_t time_ns);
/* Whether a row of that key is parked: a later one must not pass. */
bool parked_has(const struct parked *parked, uint64_t hash);
/* The next row's number behind that one that no earlier row of its key waits for; 0: none. */
uint64_t parked_next(const struct parked *parked, uint64_t after);
/* The number is that of a parked row, the first of its key. */
void parked_remove(struct parked *parked, uint64_t number);
void parked_free(struct parked *parked);

/* ---- body.c ---- */
#define BODY_BUFFER_BYTES (8 * MIB)
#define BODY_HELD_BYTES	  (16 * MIB) /* the most that one body holds of the region */
#define BODY_PIECES_MAX	  64u
_Static_assert(BODY_BUFFER_BYTES <= REPLICATE_BUFFER_BYTES_MIN / 2, "each target can have one");
struct body {
	/* The body of a request, in order. */
	struct slice runs[REPLICATE_RUNS_MAX];
	uint32_t run_count;
	uint64_t bytes; /* of the runs */
	/* Pieces whose frames the runs are; and what they count for. */
	struct flow_piece pieces[BODY_PIECES_MAX];
	uint32_t piece_count;
	uint64_t held_bytes;
	uint8_t *buffer; /* for what is copied; NULL: not needed yet */
	uint64_t buffer_bytes;
	int file;     /* without a name, for a body that is too long for both; -1: none */
	bool in_file; /* this body is */
	void *map;    /* of the file; NULL: not mapped */
	uint64_t map_bytes;
};
struct lane;
void body_init(struct body *body);
void body_free(struct body *body);
/* Fiber call of the lane: the job's bytes become runs that do not change until body_close. They are
 * the region's own frames when there is room for them (docs/design/replication.md), or copies.
 * -EIO: they cannot be read now; -ENOMEM, -ENOSPC, -ECANCELED. Close it in any case. */
int body_open(
	struct lane *lane, const struct s3_replicate_job *job, uint64_t offset, uint64_t bytes);
void body_close(struct lane *lane);
/* On the lane's thread, around a send: makes the run of a body that is in the file. */
int body_map(struct lane *lane);
void body_unmap(struct lane *lane);

/* ---- lane.c ---- */
#define LANES		  8u
#define LANE_ANSWER_BYTES (64 * KIB)
struct course;
struct lane {
	struct course *course;
	struct fiber *fiber;
	bool ended;
	/* The thread's side: a job at a time. */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	void (*fn)(struct lane *lane, void *arg); /* NULL: no job */
	void *arg;
	bool leaving;
	struct reactor_msg done_msg;
	bool done;
	struct replicate_link *link;
	uint64_t generation; /* of the link's place; 0: no link */
	struct body body;
	char answer[LANE_ANSWER_BYTES];
};
int lane_open(struct lane *lane, struct course *course);
/* Fiber call, after its course is ending. */
void lane_close(struct lane *lane);
/* Fiber call of the lane: runs fn on its thread. */
void lane_do(struct lane *lane, void (*fn)(struct lane *lane, void *arg), void *arg);

/* ---- course.c ---- */
struct course_slot {
	bool behind; /* rows of it behind its cursor, up to the course's, are in the store alone */
	uint64_t cursor; /* number of the last row that was looked at */
	struct parked parked;
	uint64_t parked_at; /* number of the last row that was taken out */
	uint64_t retry_ns;  /* parked rows are tried again */
};
struct course {
	struct replicate *replicate;
	char name[S3_REPLICATE_NAME_MAX + 1];
	struct window window;
	struct course_slot slots[WINDOW_SLOTS];
	uint32_t slot_next;  /* the first to be filled */
	uint32_t parked;     /* of all slots */
	uint64_t sent;	     /* rows, and one */
	uint64_t cursor;     /* number of the last row that was looked at */
	uint64_t generation; /* of the place that was used last */
	struct fiber *fiber;
	bool leaving; /* its fibers are to end */
	bool over;    /* its target is gone, and it has no rows */
	bool ended, poked;
	uint64_t poll_ns;
	/* A target that cannot be reached: nothing is sent before. */
	uint64_t pause_ns, paused_until_ns;
	bool told_away, told_gone, told_unversioned, told_kept, told_lanes;
	const char *transport;
	char error[S3_REPLICATE_ERROR_BYTES];
	struct lane lanes[LANES];
	uint32_t lane_count;
	uint64_t held_bytes;   /* of the region, by the bodies of its lanes */
	uint64_t buffer_bytes; /* of their buffers */
};
int course_open(struct replicate *replicate, const char *name, struct course **ret_course);
/* Ends its fibers; the caller is replicate->closer. */
void course_close(struct course *course);
bool course_ending(const struct course *course);
void course_poke(struct course *course);
void course_wake_lanes(struct course *course);

/* ---- send.c ---- */
enum outcome {
	OUTCOME_SENT,
	OUTCOME_DROPPED, /* nothing asks for it any more */
	OUTCOME_FAILED,	 /* it can never be sent */
	OUTCOME_REFUSED, /* the target did not take this row: later */
	OUTCOME_AWAY,	 /* the target takes none now */
};
/* Fiber call of the lane. ret_why: of the last three. */
enum outcome send_row(
	struct lane *lane, const struct window_row *row, char ret_why[S3_REPLICATE_ERROR_BYTES]);
/* The outcome of a row by the answer to its request. */
enum outcome send_outcome(const struct replicate_result *result);

/* ---- change.c ---- */
#define REPLICATE_NO_VERSION "-" /* the replica's id where the target's bucket has no versions */
#define CHANGE_QUERY_BYTES   (3u * S3_REPLICATE_VERSION_MAX + 64u)
struct change {
	const char *method; /* static; NULL: nothing is to be sent */
	char query[CHANGE_QUERY_BYTES];
	struct buf xml;	 /* with a NUL at its end; empty: no body */
	bool bypass;	 /* a GOVERNANCE retention may become shorter */
	bool takes_away; /* a lock, if there is one */
};
/* kind: TAGS, RETENTION or HOLD. -ENOMEM. Free it in any case. */
int change_make(
	const struct s3_replicate_job *job, enum s3_replicate_kind kind, struct change *ret_change);
void change_free(struct change *change);

/* ---- read.c ---- */
/* Takes a piece over, also on error. */
typedef int replicate_take_fn(void *arg, struct flow_piece *piece);
/* Hands out bytes of the job's version, decrypted, in order. -EIO: they cannot be read now, or were
 * not taken. */
struct replicate_range {
	uint64_t offset, bytes;
};
int replicate_read(struct replicate *replicate, const struct s3_replicate_job *job,
	struct replicate_range range, replicate_take_fn *take, void *arg);

/* ---- late.c ---- */
/* A fiber_fn; arg: the struct replicate. */
void late_main(void *arg);

/* ---- worker.c ---- */
#define COURSES_MAX (2 * S3_REPLICATE_TARGETS_MAX) /* those of targets that are gone, too */
struct replicate {
	struct replicate_opts opts;
	_Atomic bool ending; /* threads read it */
	struct fiber *fiber, *closer, *late_fiber;
	bool ended, late_ended;
	uint64_t late_number; /* of the last row that was looked at whether it is late */
	struct reactor_msg work_msg;
	_Atomic bool posted;
	bool poked;
	uint64_t first_number; /* rows of an earlier start are below; of this one above */
	uint64_t held_bytes, held_bytes_max; /* of the region, by bodies on their way */
	uint64_t buffer_bytes;		     /* of the buffers of bodies */
	/* The name of the last resync that failed: others go first, and none before. */
	char resync_failed[sizeof(((struct s3_replicate_resync *)0)->name)];
	uint64_t resync_ns;
	struct course *courses[COURSES_MAX];
	uint32_t course_count;
	bool told_course; /* one that cannot start was logged */
};

#endif
