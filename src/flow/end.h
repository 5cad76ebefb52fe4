/* flow/end.h: the pool of ends: each reactor's blocks for sources and sinks, of one size whatever
 * lies in them, so that opening one costs no malloc once warm. */
#ifndef FLOW_END_H
#define FLOW_END_H

#include "flow/flow.h"

/* An end's struct is no larger; each asserts that of its own. */
#define FLOW_END_BYTES 1536u
/* Not zeroed. NULL: out of memory. */
void *flow_end_lease(struct flow_core *core);
void flow_end_give(struct flow_core *core, void *end);

#endif
