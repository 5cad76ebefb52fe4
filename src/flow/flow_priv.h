/* flow/flow_priv.h: what flow's files share: the pool of ends. */
#ifndef FLOW_FLOW_PRIV_H
#define FLOW_FLOW_PRIV_H

#include "flow/writer.h"

struct flow_object_source {
	struct flow_reader reader;
	struct store_get *get;
	uint64_t start; /* in the object: offsets here are the object's, those of delivered pieces
			   the body's */
	uint64_t stretch_start, stretch_end; /* around offset: what chunks are counted from */
};

struct flow_object_sink {
	struct flow_sink sink;
	struct store_put *put;
	uint64_t bytes_total;
	uint64_t offset;	   /* of the next byte to arrive */
	struct flow_piece staging; /* bytes that do not fill a chunk yet; data NULL: none */
	/* The same outside the region, while there are no frames: FLOW_ASIDE_BYTES, of which so
	 * many are in use, from this offset on. NULL until needed. */
	uint8_t *aside;
	uint32_t aside_bytes;
	uint64_t aside_offset;
	struct flow_lender lender; /* the staging */
	struct flow_writer writer;
};
/* Room for a chunk that is not full yet and a whole piece behind it. */
#define FLOW_ASIDE_BYTES (2 * STORE_CHUNK_BYTES)

_Static_assert(FLOW_SHARES <= REACTOR_GROUPS, "each share is a group of fibers");

/* Where in a peer's scatter list the next byte lies. */
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
	uint64_t bytes_left; /* that may still be written */
	struct flow_writer writer;
};

struct flow_memory_source {
	struct flow_source source;
	struct slice rest;
	uint64_t offset;
};

/* One end of a transfer, of whatever kind: a pool of equal blocks, so that opening one costs no
 * malloc once warm. */
union flow_end {
	struct list idle;
	struct flow_object_source object_source;
	struct flow_object_sink object_sink;
	struct flow_rdma_source rdma_source;
	struct flow_rdma_sink rdma_sink;
	struct flow_memory_source memory_source;
};

/* flow_dp.c's poller, for open. */
void flow_core_poller_init(struct flow_core *core, int event_fd);

/* ---- lease.c. ---- */
int flow_waiting_open(struct flow_core *core);
void flow_waiting_close(struct flow_core *core); /* harmless when it is not open */
/* Gives frames to those that wait, as far as there are some. */
void flow_waiting_serve(struct flow_core *core);

/* ---- budget.c. ---- */
/* Counts the frames in the share: false, and not counted, when that is more than it may have now.
 */
bool flow_budget_take(
	struct flow_budget *budget, uint16_t share, uint32_t frame_count, uint64_t now_ns);
void flow_budget_give(struct flow_budget *budget, uint16_t share, uint32_t frame_count);

/* A transfer while it has pieces, so that a wait for frames can be held against the rule. */
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

/* NULL: out of memory. Not zeroed. */
union flow_end *flow_end_lease(struct flow_core *core);
void flow_end_give(struct flow_core *core, void *end);

#endif
