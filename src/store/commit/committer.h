/* store/commit/committer.h: the fiber that writes groups. */
#ifndef STORE_COMMITTER_H
#define STORE_COMMITTER_H

#include "store/local.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "store/commit/commit.h"
#include "store/log/journal.h"

/* ---- committer.c ---- */
/* A contiguous part of a grouped body; nearly always the whole. */
struct body_piece {
	uint64_t block;
	uint32_t blocks;
	uint8_t *data;
};
struct committer {
	struct mpsc queue;
	struct reactor *reactor;
	struct fiber *fiber;
	struct reactor_msg kick;
	_Atomic bool kicked;
	_Atomic uint32_t callers; /* fibers inside commit_run */
	bool ending;
	bool ended;
	struct waiter *end_waiter;
	_Atomic uint64_t head_pos; /* of the log; the committer alone changes it */
	struct carry carry;
	uint64_t seq_next;
	uint64_t mtime_last_ns;
	_Atomic uint64_t published_seq;
	struct commit *held;  /* taken from the queue, first of the next group */
	uint64_t ended_ns;    /* time when the last group was on the medium */
	uint64_t write_ns;    /* usual duration of a group's write */
	uint32_t woken;	      /* fibers woken by the last group */
	bool parked;	      /* no commit was waiting at some time since */
	uint32_t await_skips; /* groups that do not wait */
	uint32_t await_misses;
	bool writing; /* until the group is on the medium */
	int32_t write_result;
	struct disk_commit write;
	uint32_t piece_count; /* of the group under way */
	struct body_piece pieces[GROUP_PIECES_MAX];
	struct iovec iov[GROUP_PIECES_MAX + 1];
	struct disk_io writes[GROUP_PIECES_MAX + 1]; /* the bodies' writes, then the log's */
};
int committer_open(struct store *store, struct reactor *reactor);
/* Fiber call on the committer's reactor: ends it when the queue is empty. */
void committer_end(struct store *store);

#endif
