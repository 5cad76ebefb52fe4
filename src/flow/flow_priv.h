/* flow/flow_priv.h: interface between flow's files. */
#ifndef FLOW_FLOW_PRIV_H
#define FLOW_FLOW_PRIV_H

#include "flow/end.h"
#include "flow/writer.h"

_Static_assert(FLOW_SHARES <= REACTOR_SHARES, "fibers run in the share of their principal");

/* A volume holds at most as many places of a core's ring as it leaves. A queue pair holds an eighth
 * of those that it leaves: alone 114 of 1,024, about what its send queue holds. */
#define FLOW_BASE_PART 1u
#define FLOW_RDMA_PART 8u

/* The position of the next byte in a peer's scatter list. */
struct flow_cursor {
	struct flow_peer peer;
	uint64_t offset; /* in the body */
	uint32_t run_idx;
	uint64_t run_offset;
};

struct flow_rdma_source {
	struct flow_reader reader;
	struct flow_cursor cursor;
};

struct flow_rdma_sink {
	struct flow_sink sink;
	struct flow_cursor cursor;
	uint64_t bytes_left; /* not yet written */
	struct flow_writer writer;
};

struct flow_memory_source {
	struct flow_source source;
	struct slice rest;
	uint64_t offset;
};

_Static_assert(sizeof(struct flow_rdma_source) <= FLOW_END_BYTES, "of the pool");
_Static_assert(sizeof(struct flow_rdma_sink) <= FLOW_END_BYTES, "of the pool");
_Static_assert(sizeof(struct flow_memory_source) <= FLOW_END_BYTES, "of the pool");

/* flow_dp.c's poller, for open. */
void flow_core_poller_init(struct flow_core *core, int event_fd);

/* ---- lease.c. ---- */
int flow_waiting_open(struct flow_core *core);
void flow_waiting_close(struct flow_core *core); /* does nothing when it is not open */
/* Gives frames to the waiters, as far as frames are free. */
void flow_waiting_serve(struct flow_core *core);

/* A ring's entry, of either kind. */
struct flow_entry {
	struct flow_io *io;
	const struct region_sqe *sqe; /* NULL: wr */
	const struct region_wr *wr;
};
/* flow_dp.c. Submits the entry and counts it for its io. -EAGAIN: there is no place for it. */
int flow_entry_begin(struct flow_core *core, const struct flow_entry *entry);

/* ---- places.c. ---- */
/* Parks until it has begun. Fibers that wait for the same target come in turn. */
void flow_place_wait(struct flow_core *core, const struct flow_entry *entry) __attribute__((cold));
/* Whether fibers wait for the target. */
bool flow_place_awaited(const struct flow_core *core, uint16_t target) __attribute__((cold));
/* Gives places to waiters, as far as places are free: one for each target in turn. */
void flow_places_serve(struct flow_core *core) __attribute__((cold));
int flow_places_open(struct flow_core *core);
void flow_places_close(struct flow_core *core); /* does nothing when it is not open */

/* ---- budget.c. ---- */
/* Counts the frames in the share. False (not counted): the share would exceed its limit. */
bool flow_budget_take(
	struct flow_budget *budget, uint16_t share, uint32_t frame_count, uint64_t now_ns);
void flow_budget_give(struct flow_budget *budget, uint16_t share, uint32_t frame_count);

/* A transfer while it holds pieces, so that a wait for frames can be checked against the rule. */
#define FLOW_RUNNING_MAGIC 0xf10a4u
struct flow_running {
	uint32_t magic; /* until it is over */
	struct list link;
	const struct fiber *fiber;
	const struct flow_piece *in_hand; /* NULL: none */
};

static inline void flow_running_check(const struct flow_running *running)
{
	CHECK(running->magic == FLOW_RUNNING_MAGIC);
	CHECK(running->fiber != NULL);
}

#endif
