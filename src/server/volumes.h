/* server/volumes.h: the store's volumes, also those that another server may own: in Ceph RADOS, or
 * of other hosts with the owner's lease in etcd. */
#ifndef SERVER_VOLUMES_H
#define SERVER_VOLUMES_H

#include "rdma/rdma.h"
#include "server/config.h"

struct rv;
struct store_opts;
/* The cluster is reached when the store opens a volume there. rv_open's errors. */
int volumes_rados_open(const struct config *config, struct rv **ret_rados);
/* How the store is opened. Its texts are those of the configuration, or kept until the next call.
 */
void volumes_store_opts(const struct config *config, struct store_opts *ret_opts);

struct etcd;
struct remote;
/* Becomes the owner of the store, if the configuration has etcd: else *ret_etcd is NULL. Waits
 * while another server is the owner. etcd_own's errors. */
int volumes_own(const struct config *config, struct etcd **ret_etcd);
/* Makes volumes of other hosts possible, if the configuration has what they need: else *ret_remote
 * is NULL. etcd NULL: ownership is not by epochs. The errors of remote_secret_read and
 * remote_initiator_open. */
int volumes_remote_open(const struct config *config, struct rp_open_opts device, struct etcd *etcd,
	struct remote **ret_remote);

#endif
