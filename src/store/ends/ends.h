/* store/ends/ends.h: the local engine's ends of flow. */
#ifndef STORE_ENDS_H
#define STORE_ENDS_H

#include "store/api.h"

/* Of an upload that finds no frames: room for a chunk that is not full yet and a whole piece behind
 * it. */
#define STORE_ASIDE_BYTES (2 * STORE_CHUNK_BYTES)

int local_put_sink(struct store_put *put, struct flow_core *core, uint64_t bytes_total,
	struct flow_sink **ret_sink);
int local_get_source(struct store_get *get, struct flow_core *core, uint64_t offset, uint64_t bytes,
	struct flow_source **ret_source);

#endif
