/* rdma/port.c: a device as one reactor uses it: what every user of a device opens, in one place.
 * Completions are polled; connection events are asked for through io_uring, so that a busy turn
 * costs nothing. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rdma/rdma_priv.h"
#include "reactor/reactor.h"

#define EVENT_POLLS_MAX 64u

struct rp_port {
	struct rp_port_opts opts;
	struct rp_device *device;
	struct rp_device_attr attr;
	struct rp_pd *pd;
	struct rp_cq *cq;
	struct rp_mr *mrs[LIMIT_ARENAS_MAX];
	uint32_t mr_idx[LIMIT_ARENAS_MAX];
	uint32_t arena_count;
	struct reactor_poller poller;
	bool polled;
	struct uring_op events;
};

static uint32_t port_poll(void *arg)
{
	struct rp_port *port = arg;
	struct rp_wc wcs[32];
	int got = rp_cq_poll(port->cq, wcs, ARRAY_LEN(wcs));

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

static void events_await(struct rp_port *port)
{
	io_uring_prep_poll_add(
		reactor_sqe(port->opts.reactor, &port->events), rp_cm_fd(port->device), POLLIN);
}

static void events_take(struct uring_op *op, int result, uint32_t cqe_flags)
{
	struct rp_port *port = op->arg;
	struct rp_cm_event event;

	(void)result;
	(void)cqe_flags;
	/* What a peer said before it left is heard before that it left. */
	for (uint32_t i = 0; i < EVENT_POLLS_MAX && port_poll(port); i++)
		continue;
	while (rp_cm_poll(port->device, &event) > 0)
		port->opts.on_event(port->opts.arg, &event);
	events_await(port);
}

static int arena_register(struct rp_port *port, uint32_t idx)
{
	struct region_arena arena = region_arena(port->opts.region, idx);
	const struct rp_mr_opts opts = {.addr = arena.base,
		.bytes = arena.bytes,
		.access = port->opts.access,
		.fd = arena.fd};
	struct region_mr mr = {.addr = (uint64_t)(uintptr_t)arena.base,
		.bytes = arena.bytes,
		.access = port->opts.access};
	int ret = rp_mr_open(port->pd, &opts, &port->mrs[idx]);

	if (ret)
		return ret;
	mr.lkey = rp_mr_lkey(port->mrs[idx]);
	if (port->opts.access & (RP_ACCESS_REMOTE_READ | RP_ACCESS_REMOTE_WRITE))
		mr.rkey = rp_mr_rkey(port->mrs[idx]);
	snprintf(mr.device, sizeof(mr.device), "%.19s", port->attr.name);
	ret = region_mr_add(port->opts.region, &mr, &port->mr_idx[idx]);
	if (ret)
		rp_mr_close(port->mrs[idx]);
	else
		port->arena_count = idx + 1;
	return ret;
}

int rp_port_open(const struct rp_port_opts *opts, struct rp_port **ret_port)
{
	struct rp_port *port = calloc(1, sizeof(*port));
	int ret;

	if (!port)
		return -ENOMEM;
	port->opts = *opts;
	ret = rp_open(&opts->device, &port->device);
	if (!ret) {
		rp_device_attr(port->device, &port->attr);
		ret = rp_pd_open(port->device, &port->pd);
	}
	for (uint32_t i = 0; !ret && i < region_arena_count(opts->region); i++)
		ret = arena_register(port, i);
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
	port->events = (struct uring_op){.done = events_take, .arg = port};
	reactor_poller_add(opts->reactor, &port->poller);
	port->polled = true;
	events_await(port);
	*ret_port = port;
	return 0;
}

void rp_port_close(struct rp_port *port)
{
	if (!port)
		return;
	if (port->polled)
		reactor_poller_remove(port->opts.reactor, &port->poller);
	rp_cq_close(port->cq);
	for (uint32_t i = 0; i < port->arena_count; i++) {
		region_mr_remove(port->opts.region, port->mr_idx[i]);
		rp_mr_close(port->mrs[i]);
	}
	rp_pd_close(port->pd);
	rp_close(port->device);
	free(port);
}

struct rp_device *rp_port_device(const struct rp_port *port)
{
	return port->device;
}

const struct rp_device_attr *rp_port_attr(const struct rp_port *port)
{
	return &port->attr;
}

struct rp_pd *rp_port_pd(const struct rp_port *port)
{
	return port->pd;
}

struct rp_cq *rp_port_cq(const struct rp_port *port)
{
	return port->cq;
}

struct rp_mr *rp_port_mr(const struct rp_port *port, const void *data, size_t len)
{
	int arena = region_arena_of(port->opts.region, data, len);

	return arena < 0 ? NULL : port->mrs[arena];
}
