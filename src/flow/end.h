/* flow/end.h: the pool of ends: each reactor's blocks for sources and sinks. All blocks have one
 * size, so that opening an end needs no malloc once the pool is warm. */
#ifndef FLOW_END_H
#define FLOW_END_H

#include "flow/flow.h"

/* The largest struct of an end; each end asserts it for its own. */
#define FLOW_END_BYTES 2304u
/* Not zeroed. NULL: out of memory. */
void *flow_end_lease(struct flow_core *core);
void flow_end_give(struct flow_core *core, void *end);

#endif
