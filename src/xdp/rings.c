/* xdp/rings.c: an AF_XDP socket: its memory, its four rings, its place on a card's queue. */
#include "xdp/xdp_priv.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The kernel releases a queue some time after its socket was closed, and does not report when: a
 * worker does it (xp_release_deferred) after an RCU grace period. Where programs keep the
 * processors, that takes seconds; the kernel itself complains after 21. */
#define QUEUE_WAIT_NS (30 * NS_PER_S)
#define QUEUE_TELL_NS (1 * NS_PER_S)

static int ring_map(struct xp_ring *ring, int fd, const struct xdp_ring_offset *offsets,
	uint64_t page_offset, uint32_t entries, size_t entry_bytes)
{
	size_t bytes = offsets->desc + entries * entry_bytes;
	uint8_t *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd,
		(off_t)page_offset);

	if (map == MAP_FAILED)
		return -errno;
	*ring = (struct xp_ring){
		.producer = (uint32_t *)(void *)(map + offsets->producer),
		.consumer = (uint32_t *)(void *)(map + offsets->consumer),
		.flags = (uint32_t *)(void *)(map + offsets->flags),
		.entries = map + offsets->desc,
		.mask = entries - 1,
		.map = map,
		.map_bytes = bytes,
	};
	return 0;
}

static void ring_unmap(struct xp_ring *ring)
{
	if (ring->map)
		munmap(ring->map, ring->map_bytes);
	ring->map = NULL;
}

static int option_set(int fd, int option, const void *value, socklen_t len)
{
	return setsockopt(fd, SOL_XDP, option, value, len) ? -errno : 0;
}

static int memory_register(struct xp_queue *queue)
{
	const struct xp_port *port = queue->port;
	const struct xdp_umem_reg memory = {
		.addr = (uint64_t)(uintptr_t)port->base,
		.len = port->bytes,
		.chunk_size = FRAME_BYTES,
		.headroom = XP_HEADROOM_BYTES,
	};
	int ret = option_set(queue->fd, XDP_UMEM_REG, &memory, sizeof(memory));

	if (ret == -ENOBUFS || ret == -ENOMEM)
		log_error("xdp",
			"%s: cannot lock %llu MiB of the region for AF_XDP: raise `ulimit -l` or "
			"give CAP_IPC_LOCK",
			port->interface, (unsigned long long)(port->bytes / MIB));
	else if (ret)
		log_error("xdp", "%s: the kernel refuses the region's memory: %s", port->interface,
			strerror(-ret));
	return ret;
}

static int rings_size(const struct xp_queue *queue)
{
	static const int OPTIONS[] = {
		XDP_UMEM_FILL_RING, XDP_UMEM_COMPLETION_RING, XDP_RX_RING, XDP_TX_RING};
	const int entries = (int)queue->port->ring_entries;
	int ret = 0;

	for (uint32_t i = 0; i < ARRAY_LEN(OPTIONS) && !ret; i++)
		ret = option_set(queue->fd, OPTIONS[i], &entries, sizeof(entries));
	return ret;
}

static int rings_map(struct xp_queue *queue)
{
	const uint32_t entries = queue->port->ring_entries;
	const size_t descriptor_bytes = sizeof(struct xdp_desc);
	struct xdp_mmap_offsets at;
	socklen_t len = sizeof(at);
	int ret;

	if (getsockopt(queue->fd, SOL_XDP, XDP_MMAP_OFFSETS, &at, &len))
		return -errno;
	if (len != sizeof(at))
		return -EOPNOTSUPP; /* a kernel before need-wakeup, 5.4 */
	ret = ring_map(&queue->rx, queue->fd, &at.rx, XDP_PGOFF_RX_RING, entries, descriptor_bytes);
	if (!ret)
		ret = ring_map(&queue->tx, queue->fd, &at.tx, XDP_PGOFF_TX_RING, entries,
			descriptor_bytes);
	if (!ret)
		ret = ring_map(&queue->fill, queue->fd, &at.fr, XDP_UMEM_PGOFF_FILL_RING, entries,
			sizeof(uint64_t));
	if (!ret)
		ret = ring_map(&queue->completion, queue->fd, &at.cr,
			XDP_UMEM_PGOFF_COMPLETION_RING, entries, sizeof(uint64_t));
	return ret;
}

static void socket_refused(const struct xp_port *port, int error)
{
	if (error == -EPERM)
		log_error("xdp",
			"%s: AF_XDP sockets need CAP_NET_RAW: run as root, or give CAP_NET_RAW, "
			"CAP_NET_ADMIN and CAP_BPF",
			port->interface);
	else
		log_error("xdp", "%s: no AF_XDP socket: %s%s", port->interface, strerror(-error),
			error == -EAFNOSUPPORT
				? "; the kernel needs CONFIG_XDP_SOCKETS, and a systemd unit with "
				  "RestrictAddressFamilies= has to list AF_XDP"
				: "");
}

int queue_open(struct xp_queue *queue, int umem_fd)
{
	int ret = 0;

	queue->fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (queue->fd < 0) {
		ret = -errno;
		socket_refused(queue->port, ret);
		return ret == -EAFNOSUPPORT ? -EOPNOTSUPP : ret;
	}
	if (umem_fd < 0)
		ret = memory_register(queue);
	if (ret)
		return ret;
	ret = rings_size(queue);
	if (!ret)
		ret = rings_map(queue);
	if (ret)
		log_error("xdp", "%s: cannot make the rings: %s", queue->port->interface,
			strerror(-ret));
	return ret;
}

int queue_bind(struct xp_queue *queue, uint32_t flags, int umem_fd)
{
	struct sockaddr_xdp addr = {
		.sxdp_family = AF_XDP,
		.sxdp_flags = (uint16_t)flags,
		.sxdp_ifindex = (uint32_t)queue->port->ifindex,
		.sxdp_queue_id = queue->queue_id,
		.sxdp_shared_umem_fd = umem_fd < 0 ? 0 : (uint32_t)umem_fd,
	};

	uint64_t begin_ns = clock_now_ns(), deadline_ns = begin_ns + QUEUE_WAIT_NS;
	bool told = false;

	while (bind(queue->fd, (const struct sockaddr *)&addr, sizeof(addr))) {
		if (errno != EBUSY)
			return -errno;
		if (!clock_rest(deadline_ns))
			return -EBUSY;
		if (told || clock_now_ns() - begin_ns < QUEUE_TELL_NS)
			continue;
		log_warn("xdp",
			"%s: another socket has queue %u, or the kernel has not released it yet "
			"from a closed one: waiting for up to %u s",
			queue->port->interface, queue->queue_id,
			(unsigned)(QUEUE_WAIT_NS / NS_PER_S));
		told = true;
	}
	return 0;
}

int queue_busy_set(struct xp_queue *queue)
{
	const struct xp_port *port = queue->port;
	const int prefer = 1, us = (int)port->busy_poll_us, budget = (int)port->busy_poll_budget;
	int ret;

	if (!us)
		return 0;
	if (setsockopt(queue->fd, SOL_SOCKET, SO_PREFER_BUSY_POLL, &prefer, sizeof(prefer)) == 0 &&
		setsockopt(queue->fd, SOL_SOCKET, SO_BUSY_POLL, &us, sizeof(us)) == 0 &&
		setsockopt(queue->fd, SOL_SOCKET, SO_BUSY_POLL_BUDGET, &budget, sizeof(budget)) ==
			0)
		return 0;
	ret = errno == ENOPROTOOPT ? -EOPNOTSUPP : -errno;
	log_error("xdp", "%s: no busy polling: %s%s", port->interface, strerror(-ret),
		ret == -EOPNOTSUPP ? "; it needs Linux 5.11 with CONFIG_NET_RX_BUSY_POLL" : "");
	return ret;
}

void queue_close(struct xp_queue *queue)
{
	if (queue->fd < 0)
		return;
	ring_unmap(&queue->rx);
	ring_unmap(&queue->tx);
	ring_unmap(&queue->fill);
	ring_unmap(&queue->completion);
	close(queue->fd);
	queue->fd = -1;
}
