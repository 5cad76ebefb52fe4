/* cli/serve_replicate.h: how the server's replication sends: as a client of its targets, over RDMA
 * where they have it, else over HTTP. */
#ifndef CLI_SERVE_REPLICATE_H
#define CLI_SERVE_REPLICATE_H

#include "replicate/replicate.h"
#include "server/config.h"

/* The configuration must outlive the server. */
const struct replicate_sender *serve_sender(const struct config *config);

#endif
