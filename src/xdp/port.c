/* xdp/port.c: opens an interface for AF_XDP in the best mode that works, with its queues, and
 * closes it. */
#include "xdp/xdp_priv.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const MODE_NAMES[XP_MODE_COUNT] = {
	[XP_ZEROCOPY] = "zero-copy",
	[XP_NATIVE] = "native copy",
	[XP_GENERIC] = "generic",
};

const char *xp_mode_name(enum xp_mode mode)
{
	return (unsigned)mode < XP_MODE_COUNT ? MODE_NAMES[mode] : "unknown";
}

enum xp_mode xp_mode(const struct xp_port *port)
{
	return port->mode;
}

bool xp_multi_buffer(const struct xp_port *port)
{
	return port->multi_buffer;
}

bool xp_asks_hardware_time(const struct xp_port *port)
{
	return port->filter.stamped;
}

uint32_t xp_queue_count(const struct xp_port *port)
{
	return port->queue_count;
}

const char *xp_interface(const struct xp_port *port)
{
	return port->interface;
}

uint32_t xp_ring_entries(const struct xp_port *port)
{
	return port->ring_entries;
}

struct xp_queue *xp_queue(struct xp_port *port, uint32_t idx)
{
	CHECK(idx < port->queue_count);
	return &port->queues[idx];
}

/* The arenas of the region's base lie side by side; the sockets see them as one piece of memory.
 * A socket's memory cannot change: extensions are not in it, and its frames are of the base. */
static int memory_find(struct xp_port *port)
{
	const struct region_arena first = region_arena(port->region, 0);

	port->base = first.base;
	port->bytes = first.bytes;
	for (uint32_t i = 1; i < region_extension_first(port->region); i++) {
		const struct region_arena arena = region_arena(port->region, i);

		if (arena.base != port->base + port->bytes) {
			log_error("xdp", "%s: the region's arenas have gaps between them",
				port->interface);
			return -EINVAL;
		}
		port->bytes += arena.bytes;
	}
	port->spans = calloc(port->bytes >> FRAME_SHIFT, sizeof(*port->spans));
	return port->spans ? 0 : -ENOMEM;
}

/* Binds all queues in one way: 0, or the first refusal. */
static int queues_bind(struct xp_port *port, uint32_t flags)
{
	int umem_fd = port->queues[0].fd;
	int ret;

	flags |= XDP_USE_NEED_WAKEUP;
	ret = queue_bind(&port->queues[0], flags | XDP_USE_SG, -1);
	port->multi_buffer = ret == 0;
	if (ret && ret != -EBUSY) /* before 6.6, or a driver that cannot */
		ret = queue_bind(&port->queues[0], flags, -1);
	for (uint32_t i = 1; i < port->queue_count && !ret; i++)
		ret = queue_bind(&port->queues[i], XDP_SHARED_UMEM, umem_fd);
	return ret;
}

static void queues_close(struct xp_port *port)
{
	for (uint32_t i = 0; i < port->queue_count; i++)
		queue_close(&port->queues[i]);
}

static int queues_open(struct xp_port *port, uint32_t queue_first)
{
	int ret = 0;

	for (uint32_t i = 0; i < port->queue_count && !ret; i++) {
		struct xp_queue *queue = &port->queues[i];

		queue->port = port;
		queue->queue_id = queue_first + i;
		ret = queue_open(queue, i ? port->queues[0].fd : -1);
	}
	return ret;
}

/* Opens the interface in one mode: attaches the filter, opens and binds the sockets. */
static int mode_try(struct xp_port *port, uint32_t queue_first, enum xp_mode mode)
{
	int ret = filter_attach(&port->filter, port->ifindex, mode);

	/* Generic mode has no time from the driver, and some drivers refuse a filter that asks for
	 * it. */
	if (ret && port->filter.stamped) {
		filter_unload(&port->filter);
		ret = filter_load(&port->filter, 0);
		if (!ret)
			ret = filter_attach(&port->filter, port->ifindex, mode);
	}
	if (ret) {
		log_debug("xdp", "%s: cannot attach the filter for %s: %s", port->interface,
			xp_mode_name(mode), strerror(-ret));
		return ret;
	}
	ret = queues_open(port, queue_first);
	if (!ret) {
		ret = queues_bind(port, mode == XP_ZEROCOPY ? XDP_ZEROCOPY : XDP_COPY);
		for (uint32_t i = 0; i < port->queue_count && !ret; i++)
			ret = queue_busy_set(&port->queues[i]);
		if (ret)
			log_debug("xdp", "%s: cannot bind the sockets for %s: %s", port->interface,
				xp_mode_name(mode), strerror(-ret));
	}
	if (ret) {
		filter_detach(&port->filter);
		queues_close(port);
	}
	return ret;
}

static void modes_refused(const struct xp_port *port, const struct xp_opts *opts, int error)
{
	if (error == -EBUSY || error == -EEXIST)
		log_error("xdp",
			"%s is in use: another XDP program is attached, or another socket has "
			"queue %u (`ip link show %s`, `bpftool net`)",
			port->interface, opts->queue_first, port->interface);
	else if (error == -EPERM)
		log_error("xdp",
			"%s: not permitted: run as root, or give CAP_NET_ADMIN, CAP_NET_RAW and "
			"CAP_BPF",
			port->interface);
	else if (error == -EINVAL)
		log_error("xdp", "%s has no queues %u to %u, or none for AF_XDP (`ethtool -l %s`)",
			port->interface, opts->queue_first,
			opts->queue_first + port->queue_count - 1, port->interface);
	else
		log_error("xdp", "%s: no AF_XDP %s: %s", port->interface,
			opts->mode_only ? xp_mode_name(opts->mode_best) : "in any mode",
			strerror(-error));
}

static int modes_try(struct xp_port *port, const struct xp_opts *opts)
{
	int ret = -EOPNOTSUPP;

	for (uint32_t mode = opts->mode_best; mode < XP_MODE_COUNT; mode++) {
		port->mode = (enum xp_mode)mode;
		ret = mode_try(port, opts->queue_first, port->mode);
		if (!ret || ret == -EPERM || ret == -ENOBUFS || ret == -ENOMEM || ret == -EBUSY ||
			ret == -EEXIST || opts->mode_only)
			break;
	}
	if (ret)
		modes_refused(port, opts, ret);
	return ret == -EEXIST ? -EBUSY : ret;
}

/* Puts frames into the rings, and only then lets packets reach the sockets. */
static int queues_start(struct xp_port *port)
{
	int ret = 0;

	for (uint32_t i = 0; i < port->queue_count && !ret; i++) {
		struct xp_queue *queue = &port->queues[i];

		queue_poller_init(queue);
		queue_refill(queue);
		if (queue->in_kernel < port->ring_entries) {
			log_error("xdp",
				"%s: the region has too few free frames for %u queues of %u: "
				"enlarge it, or shorten the rings",
				port->interface, port->queue_count, port->ring_entries);
			return -ENOBUFS;
		}
		ret = filter_socket_set(&port->filter, queue->queue_id, queue->fd);
		if (ret)
			log_error("xdp", "%s: cannot redirect to queue %u: %s", port->interface,
				queue->queue_id, strerror(-ret));
	}
	return ret;
}

static int opts_check(const struct xp_opts *opts)
{
	uint32_t queue_count = MAX(opts->queue_count, 1u);
	uint32_t entries = opts->ring_entries ? opts->ring_entries : XP_RING_ENTRIES_DEFAULT;

	if (!opts->interface || strlen(opts->interface) >= IF_NAMESIZE ||
		(unsigned)opts->mode_best >= XP_MODE_COUNT)
		return -EINVAL;
	if (opts->queue_first >= XP_QUEUES_MAX || queue_count > XP_QUEUES_MAX - opts->queue_first)
		return -EINVAL;
	if (opts->busy_poll_us > XP_BUSY_POLL_US_MAX || opts->busy_poll_budget > UINT16_MAX)
		return -EINVAL;
	if (entries > XP_RING_ENTRIES_MAX || (entries & (entries - 1)))
		return -EINVAL;
	return 0;
}

static int port_start(struct xp_port *port, const struct xp_opts *opts)
{
	int ret;

	port->ifindex = (int)if_nametoindex(opts->interface);
	if (!port->ifindex) {
		log_error("xdp", "no interface '%s' (`ip link` lists them)", opts->interface);
		return -ENODEV;
	}
	ret = memory_find(port);
	if (!ret)
		ret = link_watch(port);
	if (!ret && filter_load(&port->filter, port->ifindex))
		ret = filter_load(&port->filter, 0);
	if (!ret)
		ret = modes_try(port, opts);
	if (!ret)
		ret = queues_start(port);
	return ret;
}

int xp_open(struct region *region, const struct xp_opts *opts, struct xp_port **ret_port)
{
	struct xp_port *port;
	int ret = opts_check(opts);

	if (ret)
		return ret;
	port = calloc(1, sizeof(*port));
	if (!port)
		return -ENOMEM;
	port->region = region;
	port->queue_count = MAX(opts->queue_count, 1u);
	port->ring_entries = opts->ring_entries ? opts->ring_entries : XP_RING_ENTRIES_DEFAULT;
	port->busy_poll_us = opts->busy_poll_us;
	port->busy_poll_budget = opts->busy_poll_budget ? opts->busy_poll_budget : XP_BUSY_BUDGET;
	port->filter.link_fd = -1;
	for (uint32_t i = 0; i < port->queue_count; i++)
		port->queues[i].fd = -1;
	snprintf(port->interface, sizeof(port->interface), "%s", opts->interface);
	ret = port_start(port, opts);
	if (ret) {
		xp_close(port);
		return ret;
	}
	log_info("xdp", "%s: %u queue%s from queue %u, %s, %s%s", port->interface,
		port->queue_count, port->queue_count == 1 ? "" : "s", opts->queue_first,
		xp_mode_name(port->mode),
		port->multi_buffer ? "packets of any length"
				   : "packets that fit one frame of the region",
		port->filter.stamped ? ", with timestamps of the card" : "");
	*ret_port = port;
	return 0;
}

void xp_close(struct xp_port *port)
{
	if (!port)
		return;
	CHECK(!port->waiter);
	filter_detach(&port->filter);
	for (uint32_t i = 0; i < port->queue_count; i++)
		queue_target_close(&port->queues[i]);
	queues_close(port);
	filter_unload(&port->filter);
	link_unwatch(port);
	/* The kernel no longer holds any frames. */
	for (uint64_t i = 0; port->spans && i < port->bytes >> FRAME_SHIFT; i++) {
		if (port->spans[i].data)
			region_give(port->region, port->spans[i], OWNER_XDP);
	}
	free(port->spans);
	free(port);
}

void xp_stats(const struct xp_port *port, struct xp_stats *ret_stats)
{
	struct xp_stats sum = {0};

	for (uint32_t i = 0; i < port->queue_count; i++) {
		const struct xp_queue *queue = &port->queues[i];
		struct xdp_statistics stats = {0};
		socklen_t len = sizeof(stats);

		sum.received += queue->counts.received;
		sum.received_bytes += queue->counts.received_bytes;
		sum.sent += queue->counts.sent;
		sum.unmarked += queue->counts.unmarked;
		sum.stamped += queue->counts.stamped;
		if (getsockopt(queue->fd, SOL_XDP, XDP_STATISTICS, &stats, &len))
			continue;
		sum.dropped += stats.rx_dropped;
		sum.ring_full += stats.rx_ring_full;
		sum.fill_empty += stats.rx_fill_ring_empty_descs;
		sum.invalid_rx += stats.rx_invalid_descs;
		sum.invalid_tx += stats.tx_invalid_descs;
	}
	*ret_stats = sum;
}
