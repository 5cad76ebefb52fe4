/* listen/listen.h: the listener manager: one per reactor. Accepts connections, gives each to its
 * front, counts them, and ends them in order. */
#ifndef LISTEN_LISTEN_H
#define LISTEN_LISTEN_H

#include <stdatomic.h>

#include "base/base.h"
#include "flow/flow.h"
#include "front/front.h"

struct listen;

struct listen_opts {
	struct flow_core *core;
	struct front_http_opts http; /* copied for each connection; core, draining and ret_idle are
					filled in here */
	uint32_t connections_max;    /* at this many, the next ones wait in the kernel's backlog */
};

/* Opens a listener for HTTP at address ("ADDR:PORT"). Before the reactor runs. -EADDRINUSE and what
 * net_listen has. */
int listen_open(const struct listen_opts *opts, const char *address, struct listen **ret_listen);
/* Begins to accept. Before the reactor runs. */
int listen_start(struct listen *listen);
uint16_t listen_port(const struct listen *listen);
/* In a fiber: accepts nothing more, ends idle connections at once and the others when their request
 * is done, at the deadline whatever they do. Returns when the last has ended. */
void listen_drain(struct listen *listen, uint64_t deadline_ns);
/* After the reactor ended, or before it ran. Takes NULL. */
void listen_close(struct listen *listen);
uint32_t listen_connections(const struct listen *listen);

#endif
