/* cluster/cluster_priv.h: shared by the files of cluster. */
#ifndef CLUSTER_PRIV_H
#define CLUSTER_PRIV_H

#include "cluster/cluster.h"

struct cluster {
	struct rv_table *table;
	char name[CLUSTER_NAME_LEN_MAX + 1];
	uint8_t secret[CLUSTER_SECRET_BYTES];
};

#endif
