/* xdp/wait_dp.c: a fiber sleeps until a port has packets. The sockets are pollers of the reactor
 * only during that time, so packets that no fiber waits for keep no reactor awake. Data path. */
#include "xdp/xdp_priv.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <unistd.h>

#define LINK_MESSAGE_BYTES_MAX 8192u

static uint32_t queue_poll(void *arg)
{
	struct xp_queue *queue = arg;

	if (!queue_readable(queue))
		return 0;
	fiber_wake(queue->port->waiter);
	return 1;
}

static bool queue_arm(void *arg)
{
	return !queue_readable(arg);
}

/* The socket is no longer readable once its ring has been emptied. */
static void queue_disarm(void *arg)
{
	(void)arg;
}

void queue_poller_init(struct xp_queue *queue)
{
	queue->poller = (struct reactor_poller){
		.name = "xdp",
		.poll = queue_poll,
		.arm = queue_arm,
		.disarm = queue_disarm,
		.arg = queue,
		.event_fd = queue->fd,
	};
}

/* ---- The interface itself: an AF_XDP socket does not report that it lost its card; the kernel's
 * link messages do. They are read after sleeps only, never while packets flow. ---- */
static bool link_lost(const struct xp_port *port, const uint8_t *news, size_t len)
{
	while (len >= sizeof(struct nlmsghdr)) {
		struct ifinfomsg info;
		struct nlmsghdr head;
		size_t step;

		memcpy(&head, news, sizeof(head));
		step = NLMSG_ALIGN(head.nlmsg_len);
		if (head.nlmsg_len < NLMSG_LENGTH(sizeof(info)) || step > len)
			break;
		memcpy(&info, news + NLMSG_HDRLEN, sizeof(info));
		if (head.nlmsg_type == RTM_DELLINK && info.ifi_index == port->ifindex)
			return true;
		news += step;
		len -= step;
	}
	return false;
}

static uint32_t link_poll(void *arg)
{
	(void)arg;
	return 0;
}

static bool link_arm(void *arg)
{
	(void)arg;
	return true;
}

static void link_disarm(void *arg)
{
	struct xp_port *port = arg;
	uint8_t news[LINK_MESSAGE_BYTES_MAX];
	ssize_t len;

	while ((len = recv(port->news.event_fd, news, sizeof(news), MSG_DONTWAIT)) > 0)
		port->gone |= link_lost(port, news, (size_t)len);
	if (port->gone)
		fiber_wake(port->waiter);
}

int link_watch(struct xp_port *port)
{
	const struct sockaddr_nl addr = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0)
		return -errno;
	port->news = (struct reactor_poller){
		.name = "xdp link",
		.poll = link_poll,
		.arm = link_arm,
		.disarm = link_disarm,
		.arg = port,
		.event_fd = fd,
	};
	return bind(fd, (const struct sockaddr *)&addr, sizeof(addr)) ? -errno : 0;
}

void link_unwatch(struct xp_port *port)
{
	if (port->news.event_fd > 0)
		close(port->news.event_fd);
	port->news.event_fd = -1;
}

static bool port_readable(struct xp_port *port)
{
	bool readable = false;

	for (uint32_t i = 0; i < port->queue_count; i++)
		readable |= queue_readable(&port->queues[i]);
	return readable;
}

int xp_health(struct xp_port *port)
{
	for (uint32_t i = 0; i < port->queue_count && !port->gone; i++) {
		int error = 0;
		socklen_t len = sizeof(error);

		if (getsockopt(port->queues[i].fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 &&
			error)
			port->gone = true;
	}
	return port->gone ? -ENODEV : 0;
}

/* Runs the driver until there is a packet or the time is over. Other fibers of the reactor run
 * between two looks. */
static bool port_poll_busily(struct xp_port *port, uint64_t deadline_ns)
{
	uint64_t end_ns = MIN(clock_now_ns() + port->busy_poll_us * NS_PER_US, deadline_ns);

	do {
		for (uint32_t i = 0; i < port->queue_count; i++)
			queue_drive(&port->queues[i]);
		if (port_readable(port))
			return true;
		fiber_yield();
	} while (clock_now_ns() < end_ns);
	return false;
}

int xp_wait(struct xp_port *port, struct reactor *reactor, uint64_t deadline_ns)
{
	uint64_t sleep_ns = deadline_ns;
	int ret;

	CHECK(!port->waiter);
	for (uint32_t i = 0; i < port->queue_count; i++)
		queue_refill(&port->queues[i]);
	if (port_readable(port) || (port->busy_poll_us && port_poll_busily(port, deadline_ns)))
		return 0;
	/* An interface that was lost before the sleep wakes no fiber. */
	if (xp_health(port))
		return -ENODEV;
	/* Some drivers (veth) ask for no interrupt once they have been polled busily. */
	if (port->busy_poll_us)
		sleep_ns = MIN(deadline_ns, clock_now_ns() + XP_BUSY_TICK_NS);
	port->waiter = fiber_self();
	for (uint32_t i = 0; i < port->queue_count; i++)
		reactor_poller_add(reactor, &port->queues[i].poller);
	reactor_poller_add(reactor, &port->news);
	ret = fiber_park_until(sleep_ns);
	reactor_poller_remove(reactor, &port->news);
	for (uint32_t i = 0; i < port->queue_count; i++)
		reactor_poller_remove(reactor, &port->queues[i].poller);
	port->waiter = NULL;
	if (port_readable(port))
		return 0;
	if (xp_health(port))
		return -ENODEV;
	return ret && sleep_ns == deadline_ns ? ret : -EINTR;
}
