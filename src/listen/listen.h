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
	/* At this many connections, one that waits for a request is closed to make room for the
	 * next. When none waits, new connections wait in the kernel's backlog. */
	uint32_t connections_max;
	/* When none waits for a request, the oldest connection is closed, so that no client can
	 * keep others out. */
	bool evict_serving;
	struct net_tls *tls; /* every connection begins with a handshake by this; NULL: none */
	uint64_t handshake_timeout_ns;
	/* The listener of another reactor that has the same address; NULL: this is the first
	 * one. */
	const struct listen *beside;
};

/* Opens a listener for HTTP, or HTTPS, at address ("ADDR:PORT"). Before the reactors run.
 * -EADDRINUSE and what net_listen has. */
int listen_open(const struct listen_opts *opts, const char *address, struct listen **ret_listen);
/* Begins to accept. Before the reactor runs. */
int listen_start(struct listen *listen);
/* Several at once, up to the first error; those that are NULL are passed over. */
int listen_start_all(struct listen *const *listens, uint32_t count);
uint16_t listen_port(const struct listen *listen); /* NULL: 0 */
/* In a fiber: accepts no more connections, ends idle ones at once, and lets the others finish their
 * request. Then call drain, once. */
void listen_drain_begin(struct listen *listen);
/* In a fiber: waits until the last connection has ended; at the deadline it ends all that are
 * left. */
void listen_drain(struct listen *listen, uint64_t deadline_ns);
/* Both for several at once; those that are NULL are passed over. */
void listen_drain_all(struct listen *const *listens, uint32_t count, uint64_t deadline_ns);
/* After the reactor ended, or before it ran. Takes NULL. */
void listen_close(struct listen *listen);

#endif
