/* flow/latency.h: measures how long a flow's bytes take from their source until they are durable,
 * or in a peer's memory. A stage in front of the sink marks the end of each piece in the body and
 * its arrival time. When the sink reports its progress, the marks before that place become
 * measurements. */
#ifndef FLOW_LATENCY_H
#define FLOW_LATENCY_H

#include "flow/flow.h"

/* Measurements of one kind, of all bodies of a flow. One thread. */
struct flow_latency {
	struct hist hist;	      /* ns */
	struct counter_hist *counted; /* the same in the buckets of metrics; or NULL */
};
void flow_latency_init(struct flow_latency *self, struct counter_hist *counted);

/* The places of one body that are not reached yet, in order. When there are too many, each two
 * neighbours are merged into one with the time of the older; from then on a mark covers twice as
 * many pieces. */
#define FLOW_MARKS_MAX 1024u /* a power of two */
struct flow_marks {
	struct flow_latency *latency;
	uint32_t head, tail; /* marks ever made, ever reached */
	uint32_t stride;     /* pieces of a mark: doubled when there are too many marks */
	uint32_t pieces;     /* of the newest mark */
	struct flow_mark {
		uint64_t end;	     /* in the body */
		uint64_t arrived_ns; /* monotonic */
	} marks[FLOW_MARKS_MAX];
};
void flow_marks_init(struct flow_marks *self, struct flow_latency *latency);
/* Bytes up to end arrived at this time; a time of 0 makes no mark. again: they belong to the
 * previous piece. */
void flow_marks_note(struct flow_marks *self, uint64_t end, uint64_t arrived_ns, bool again);
/* All bytes before this offset have reached their destination. */
void flow_marks_reached(struct flow_marks *self, uint64_t bytes, uint64_t now_ns);

/* The stage. */
struct flow_marker {
	struct flow_stage stage;
	const struct flow_source *source; /* the source of the pieces */
	const uint8_t *frames;		  /* of the last piece */
	uint64_t arrived_ns;		  /* its time */
	struct flow_marks durable, delivered;
};
void flow_marker_init(struct flow_marker *self, const struct flow_source *source,
	struct flow_latency *durable, struct flow_latency *delivered);

#endif
