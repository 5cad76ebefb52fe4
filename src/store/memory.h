/* store/memory.h: the engine that keeps a store in memory until the process ends: every call of
 * store/api.h, without volume, index or fibers. Durable means until the process ends. Any thread.
 */
#ifndef STORE_MEMORY_H
#define STORE_MEMORY_H

#include "store/api.h"

/* -ENOMEM. */
int store_memory_open(struct store **ret_store);
/* Nothing of the store may be open. Takes NULL. */
void store_memory_close(struct store *store);

#endif
