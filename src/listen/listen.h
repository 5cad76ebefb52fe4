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
	/* At this many, one that waits for a request makes room for the next; when none does, the
	 * next ones wait in the kernel's backlog. */
	uint32_t connections_max;
	/* When none waits for a request, the one whose request began first makes room: nobody can
	 * keep others out. */
	bool evict_serving;
	struct net_tls *tls; /* every connection begins with a handshake by this; NULL: none */
	uint64_t handshake_timeout_ns;
	/* Another reactor's on whose address this one listens, too; NULL: it is the first. */
	const struct listen *beside;
};

/* Opens a listener for HTTP, or HTTPS, at address ("ADDR:PORT"). Before the reactors run.
 * -EADDRINUSE and what net_listen has. */
int listen_open(const struct listen_opts *opts, const char *address, struct listen **ret_listen);
/* Begins to accept. Before the reactor runs. */
int listen_start(struct listen *listen);
uint16_t listen_port(const struct listen *listen);
/* In a fiber: accepts nothing more, ends idle connections at once, and lets the others end with
 * their request. Then drain, once; who drains several listeners begins with all. */
void listen_drain_begin(struct listen *listen);
/* In a fiber: waits until the last connection has ended, and at the deadline ends them whatever
 * they do. */
void listen_drain(struct listen *listen, uint64_t deadline_ns);
/* After the reactor ended, or before it ran. Takes NULL. */
void listen_close(struct listen *listen);

#endif
