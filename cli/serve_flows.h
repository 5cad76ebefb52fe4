/* cli/serve_flows.h: the flows of the server's configuration: each a `nebulaio flow` of its own
 * process, watched and counted, started again when it fails. */
#ifndef CLI_SERVE_FLOWS_H
#define CLI_SERVE_FLOWS_H

#include "server/config.h"

/* Whether every flow's texts and options mean something. CLI_OK; CLI_USAGE, said why. */
int serve_flows_check(const struct config *config);
/* Starts them; the configuration must outlive them. Signals that the caller blocks stay blocked in
 * the thread that watches, and are free in the flows. 0 or -errno. */
int serve_flows_start(const struct config *config, uint16_t http_port);
/* Ends them, the last in the list first, each before the next; nothing when none was started. */
void serve_flows_stop(void);

#endif
