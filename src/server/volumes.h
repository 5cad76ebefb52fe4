/* server/volumes.h: the store's volumes, also those in Ceph RADOS. */
#ifndef SERVER_VOLUMES_H
#define SERVER_VOLUMES_H

#include "server/config.h"

struct rv;
struct store_opts;
/* The cluster is reached when the store opens a volume there. rv_open's errors. */
int volumes_rados_open(const struct config *config, struct rv **ret_rados);
/* How the store is opened. Its texts are those of the configuration. */
void volumes_store_opts(const struct config *config, struct store_opts *ret_opts);

#endif
