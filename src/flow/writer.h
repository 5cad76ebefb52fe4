/* flow/writer.h: the common part of sinks that write to a device: a window of pieces in flight. The
 * completion of a piece ends it, so its frames are given back, whatever the sink's fiber waits
 * for. */
#ifndef FLOW_WRITER_H
#define FLOW_WRITER_H

#include "flow/reader.h"

/* Embedded in the sink. */
struct flow_writer {
	struct flow_core *core;
	/* The piece's operations have completed, with slot->io.error: ends the piece. Outside
	 * fibers. */
	void (*ended)(struct flow_writer *writer, struct flow_slot *slot);
	int error;	      /* the first; the sink's own, too */
	struct fiber *waiter; /* the sink's, while it waits for room */
	struct flow_window window;
};
void flow_writer_init(struct flow_writer *writer, struct flow_core *core,
	void (*ended)(struct flow_writer *writer, struct flow_slot *slot));
/* Takes the piece over, after waiting for room. The caller then starts operations on the slot's io.
 * The piece ends when all of them have completed, and not before started is called. */
struct flow_slot *flow_writer_begin(struct flow_writer *writer, const struct flow_piece *piece);
void flow_writer_started(struct flow_slot *slot);
/* Parks until all pieces have ended; the first error. */
int flow_writer_finish(struct flow_writer *writer);

#endif
