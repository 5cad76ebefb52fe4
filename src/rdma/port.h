/* rdma/port.h: a device as reactors use it: registration of the region's arenas, waiting for
 * connection events, and a port, which has both and a completion queue. */
#ifndef RDMA_PORT_H
#define RDMA_PORT_H

#include "rdma/rdma.h"
#include "reactor/reactor.h"

/* ---- Arenas: the region's memory, registered and in its memory-region table. ---- */
struct rp_arenas {
	struct region *region;
	struct rp_pd *pd;
	char device[20];
	uint32_t access;
	struct region_watch watch;	     /* of the core on which it was opened */
	struct rp_mr *mrs[LIMIT_ARENAS_MAX]; /* NULL: an extension that is not there */
	uint32_t lkeys[LIMIT_ARENAS_MAX];
	uint32_t mr_idx[LIMIT_ARENAS_MAX]; /* in the region's table */
};
/* Registers all arenas with these rights (enum rp_access), and extensions as they come and go;
 * device is the name for the table. The struct must not move. On the thread of the core, or of any
 * before it runs. Errors of rp_mr_open and region_mr_add; then nothing is registered. */
int rp_arenas_open(struct rp_arenas *arenas, struct region_ring *core, struct rp_pd *pd,
	const char *device, uint32_t access);
/* Also accepts a struct that was never opened. */
void rp_arenas_close(struct rp_arenas *arenas);

/* ---- Connection events, waited for through io_uring, so that a busy turn costs nothing. ---- */
struct rp_events {
	struct reactor *reactor;
	struct rp_device *device;
	/* Called when there may be events: takes one by rp_cm_poll, false when there is none. On
	 * the reactor, outside of fibers; timers and completions have their turn between a few of
	 * them, however fast a peer makes new ones. */
	bool (*take)(void *arg);
	void *arg;
	/* The rest is private. */
	struct uring_op op;
	bool waiting, ending;
	struct fiber *waiter;
};
/* Before the reactor's first turn, or on it; the struct must not move. */
void rp_events_begin(struct rp_events *events);
/* Fiber call: after it, take is not called any more. */
void rp_events_end(struct rp_events *events);

/* ---- reach.c: rp_qp_join as the first of both ends, and rp_ah_open. Fiber calls: the fiber parks
 * while the network looks for the address, and the event loop goes on. ---- */
int rp_qp_reach(struct rp_qp *qp, const struct rp_address *peer);
/* *ret_ah: NULL on an error. */
int rp_ah_reach(struct rp_pd *pd, const struct rp_address *to, struct rp_ah **ret_ah);

/* ---- Ports: a device as one reactor uses it: protection domain, the region's arenas registered, a
 * completion queue that the reactor polls, connection events. ---- */
struct rp_port;
struct rp_port_opts {
	struct rp_open_opts device;
	struct reactor *reactor;
	struct region *region;
	uint32_t access; /* to the arenas: enum rp_access */
	uint32_t cqe_count;
	const char *name; /* of the poller; kept by pointer */
	rp_wc_fn *on_wc;
	void (*on_event)(void *arg, struct rp_cm_event *event);
	void *arg;
};
/* Before the reactor's first turn, or on it. Errors of rp_open and rp_mr_open. */
int rp_port_open(const struct rp_port_opts *opts, struct rp_port **ret_port);
/* Takes NULL. The reactor has stopped or never ran, and everything else that was opened on the port
 * is closed. */
void rp_port_close(struct rp_port *port);
struct rp_device *rp_port_device(const struct rp_port *port);
const struct rp_device_attr *rp_port_attr(const struct rp_port *port);
struct rp_pd *rp_port_pd(const struct rp_port *port);
struct rp_cq *rp_port_cq(const struct rp_port *port);
/* The registration that contains the memory; NULL when it is not the region's. */
struct rp_mr *rp_port_mr(const struct rp_port *port, const void *data, size_t len);

#endif
