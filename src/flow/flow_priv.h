/* flow/flow_priv.h: what flow's files share: the pool of ends. */
#ifndef FLOW_FLOW_PRIV_H
#define FLOW_FLOW_PRIV_H

#include "flow/reader.h"

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
	struct flow_piece staging; /* bytes that do not fill a chunk yet; span.data NULL: none */
	int error;
	struct flow_window window;
};

/* Where in a peer's scatter list the next byte lies. */
struct flow_cursor {
	struct flow_peer peer;
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
	int error;
	struct flow_window window;
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
/* Lets the first fiber that waits for frames look again. */
void flow_core_lease_wake(struct flow_core *core);

/* NULL: out of memory. Not zeroed. */
union flow_end *flow_end_lease(struct flow_core *core);
void flow_end_give(struct flow_core *core, void *end);

#endif
