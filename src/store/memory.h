/* store/memory.h: the engine whose store is in memory and ends with the process: every call of
 * store/api.h, no volume, no index, no fiber that it would need. Durable means until then. Any
 * thread. */
#ifndef STORE_MEMORY_H
#define STORE_MEMORY_H

#include "store/api.h"

/* -ENOMEM. */
int store_memory_open(struct store **ret_store);
/* Nothing of it is open any more. Takes NULL. */
void store_memory_close(struct store *store);

#endif
