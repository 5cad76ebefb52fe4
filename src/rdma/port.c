/* rdma/port.c: a device as one reactor uses it: the objects that every user of a device opens.
 * Completions are polled. */
#include <errno.h>
#include <stdlib.h>

#include "rdma/port.h"

#define EVENT_POLLS_MAX 64u
#define PORT_MAGIC	0x72580001u

struct rp_port {
	uint32_t magic;
	struct rp_port_opts opts;
	struct rp_device *device;
	struct rp_device_attr attr;
	struct rp_pd *pd;
	struct rp_cq *cq;
	struct rp_arenas arenas;
	struct reactor_poller poller;
	bool polled;
	struct rp_events events;
};

static void port_check(const struct rp_port *port)
{
	CHECK(port->magic == PORT_MAGIC);
}

static uint32_t port_poll(void *arg)
{
	struct rp_port *port = arg;
	struct rp_wc wcs[32];
	int got;

	port_check(port);
	got = rp_cq_poll(port->cq, wcs, ARRAY_LEN(wcs));
	for (int i = 0; i < got; i++)
		port->opts.on_wc(port->opts.arg, &wcs[i]);
	return got > 0 ? (uint32_t)got : 0;
}

static bool port_arm(void *arg)
{
	return rp_cq_arm(((struct rp_port *)arg)->cq);
}

static void port_disarm(void *arg)
{
	rp_cq_disarm(((struct rp_port *)arg)->cq);
}

static bool port_event(void *arg)
{
	struct rp_port *port = arg;
	struct rp_cm_event event;

	/* Messages that a peer sent before it disconnected are handled before its DISCONNECTED. */
	for (uint32_t i = 0; i < EVENT_POLLS_MAX && port_poll(port); i++)
		continue;
	if (rp_cm_poll(port->device, &event) <= 0)
		return false;
	port->opts.on_event(port->opts.arg, &event);
	return true;
}

int rp_port_open(const struct rp_port_opts *opts, struct rp_port **ret_port)
{
	struct rp_port *port = calloc(1, sizeof(*port));
	int ret;

	if (!port)
		return -ENOMEM;
	port->magic = PORT_MAGIC;
	port->opts = *opts;
	ret = rp_open(&opts->device, &port->device);
	if (!ret) {
		rp_device_attr(port->device, &port->attr);
		ret = rp_pd_open(port->device, &port->pd);
	}
	if (!ret)
		ret = rp_arenas_open(&port->arenas,
			region_ring(opts->region, reactor_core_idx(opts->reactor)), port->pd,
			port->attr.name, opts->access);
	if (!ret)
		ret = rp_cq_open(port->device, MIN(opts->cqe_count, port->attr.max_cqe), &port->cq);
	if (ret) {
		rp_port_close(port);
		return ret;
	}
	port->poller = (struct reactor_poller){.name = opts->name,
		.poll = port_poll,
		.arm = port_arm,
		.disarm = port_disarm,
		.arg = port,
		.event_fd = rp_cq_fd(port->cq)};
	reactor_poller_add(opts->reactor, &port->poller);
	port->polled = true;
	port->events = (struct rp_events){
		.reactor = opts->reactor, .device = port->device, .take = port_event, .arg = port};
	rp_events_begin(&port->events);
	*ret_port = port;
	return 0;
}

void rp_port_close(struct rp_port *port)
{
	if (!port)
		return;
	port_check(port);
	if (port->polled)
		reactor_poller_remove(port->opts.reactor, &port->poller);
	rp_cq_close(port->cq);
	rp_arenas_close(&port->arenas);
	rp_pd_close(port->pd);
	rp_close(port->device);
	magic_clear(&port->magic);
	free(port);
}

struct rp_device *rp_port_device(const struct rp_port *port)
{
	port_check(port);
	return port->device;
}

const struct rp_device_attr *rp_port_attr(const struct rp_port *port)
{
	port_check(port);
	return &port->attr;
}

struct rp_pd *rp_port_pd(const struct rp_port *port)
{
	port_check(port);
	return port->pd;
}

struct rp_cq *rp_port_cq(const struct rp_port *port)
{
	port_check(port);
	return port->cq;
}

struct rp_mr *rp_port_mr(const struct rp_port *port, const void *data, size_t len)
{
	int arena = region_arena_of(port->opts.region, data, len);

	return arena < 0 ? NULL : port->arenas.mrs[arena];
}
