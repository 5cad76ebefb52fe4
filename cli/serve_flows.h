/* cli/serve_flows.h: runs the flows of the server's configuration, each a process of `nebulaio
 * flow`: watches and counts them, and restarts one that fails. */
#ifndef CLI_SERVE_FLOWS_H
#define CLI_SERVE_FLOWS_H

#include "server/server.h"

/* Checks the texts and options of every flow. CLI_OK; CLI_USAGE, prints why. */
int serve_flows_check(const struct config *config);
/* Starts them; the configuration must outlive them. Signals that the caller blocks stay blocked in
 * the watching thread, but not in the flows. 0 or -errno. */
int serve_flows_start(const struct config *config, const struct server *server);
/* Ends the flows one by one, the last in the list first. Does nothing when none was started. */
void serve_flows_stop(void);

#endif
