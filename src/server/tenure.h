/* server/tenure.h: a store's process ends when the cluster's map names another gateway as the
 * store's owner. Its own gateway may be stopped, and then neither ends it nor passes anything on:
 * docs/design/cluster.md, "A gateway that is stopped". */
#ifndef SERVER_TENURE_H
#define SERVER_TENURE_H

#include "cluster/cluster.h"

struct tenure;
/* From now on; gateway is that of this process. -EAGAIN and others of pthread_create, -ENOMEM. */
int tenure_begin(
	struct cluster *cluster, uint32_t store, const char *gateway, struct tenure **ret_tenure);
/* Takes NULL. Before the cluster is closed. */
void tenure_end(struct tenure *tenure);
/* Another gateway has the store. Any thread. */
bool tenure_lost(const struct tenure *tenure);

#endif
