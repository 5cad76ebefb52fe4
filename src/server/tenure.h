/* server/tenure.h: a store's process ends when the cluster's map names another gateway as the
 * store's owner. Its own gateway may be stopped, and then neither ends it nor passes anything on:
 * docs/design/cluster.md, "A gateway that is stopped". */
#ifndef SERVER_TENURE_H
#define SERVER_TENURE_H

#include "cluster/cluster.h"

/* The time for an orderly end: as long as a gateway waits before it kills a process of its own. */
#define TENURE_END_MS (60 * 1000)
/* The exit code without one: sysexits.h's EX_TEMPFAIL, as when the volume is lost. */
#define TENURE_EXIT_LOST 75

struct tenure;
/* From now on; gateway is that of this process. When another has the store the process gets
 * SIGTERM, and after end_ms it ends at once. -EAGAIN and others of pthread_create, -ENOMEM. */
int tenure_begin(struct cluster *cluster, uint32_t store, const char *gateway, int end_ms,
	struct tenure **ret_tenure);
/* Takes NULL. Before the cluster is closed. */
void tenure_end(struct tenure *tenure);
/* Another gateway has the store. Any thread. */
bool tenure_lost(const struct tenure *tenure);

#endif
