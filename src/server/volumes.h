/* server/volumes.h: volumes in Ceph RADOS. */
#ifndef SERVER_VOLUMES_H
#define SERVER_VOLUMES_H

#include "server/config.h"

struct rv;
/* The cluster is reached when the store opens a volume there. rv_open's errors. */
int volumes_rados_open(const struct config *config, struct rv **ret_rados);

#endif
