/* unified-packets.c: the network end of the test: AF_XDP in whatever mode the interface has, or a
 * UDP socket that the kernel copies out of. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unified-rdma-test.h"
#ifdef NEBULAIO_XDP
#include "flow/ingest.h"
#endif

struct packets {
	struct machine *machine;
	char way[64];
#ifdef NEBULAIO_XDP
	struct xp_port *port;
	struct flow_capture *capture;
#endif
	/* The socket's. */
	struct flow_source source;
	int fd;
	uint32_t left;
	uint64_t offset;
	bool over;
	struct fiber *waiter;
};

/* ---- A socket. ---- */

static void recv_prep(struct io_uring_sqe *sqe, void *arg)
{
	struct flow_piece *piece = arg;

	io_uring_prep_recv(sqe, (int)piece->offset, piece->data, FRAME_BYTES, 0);
}

static int socket_recv(struct packets *self, struct flow_piece *piece)
{
	struct flow_piece call = {.data = piece->data, .offset = (uint64_t)self->fd};
	int ret = -ETIMEDOUT;

	while (ret == -ETIMEDOUT && !self->over)
		ret = fiber_uring(recv_prep, &call, clock_now_ns() + 50 * NS_PER_MS);
	return ret;
}

static int socket_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct packets *self = CONTAINER_OF(source, struct packets, source);
	const struct flow_want want = {
		.frame_count = 1, .owner = OWNER_NET, .deadline_ns = DEADLINE_NONE};
	struct flow_piece piece = {.offset = self->offset};
	int ret = 0;

	(void)bytes_max;
	while (self->left && ret == 0) {
		ret = flow_piece_lease(source->core, &want, &piece);
		if (ret)
			return ret;
		ret = socket_recv(self, &piece);
		if (ret == PACKET_BYTES) {
			piece.bytes = PACKET_BYTES;
			self->left--;
			self->offset += PACKET_BYTES;
			region_switch(source->core->region, piece.span, OWNER_NET, OWNER_APP);
			*ret_piece = piece;
			return 1;
		}
		region_give(source->core->region, piece.span, OWNER_NET);
		if (ret > 0)
			ret = 0; /* from another sender */
	}
	return ret == -ETIMEDOUT ? 0 : ret;
}

static void socket_close(struct flow_source *source)
{
	(void)source;
}

static const struct flow_source_ops SOCKET_OPS = {
	.name = "socket", .next = socket_next, .close = socket_close};

static int socket_open(struct packets *self)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_port = htons((uint16_t)(self->machine->port + 1))};
	int bytes = 8 << 20; /* for all packets of a step and what the kernel adds to each */

	self->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (self->fd < 0)
		return -errno;
	/* Beyond net.core.rmem_max only with CAP_NET_ADMIN. */
	if (setsockopt(self->fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)))
		setsockopt(self->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	if (bind(self->fd, (struct sockaddr *)&address, sizeof(address)))
		return -errno;
	return 0;
}

/* ---- AF_XDP. ---- */

#ifdef NEBULAIO_XDP
static int port_open(struct packets *self)
{
	const struct xp_opts opts = {.interface = self->machine->interface};
	const struct xp_rule rule = {.action = FILTER_REDIRECT,
		.protocol = IPPROTO_UDP,
		.port_min = (uint16_t)(self->machine->port + 1),
		.port_max = (uint16_t)(self->machine->port + 1)};
	int ret = xp_open(self->machine->region, &opts, &self->port);

	if (!ret)
		ret = xp_rules_set(self->port, &rule, 1);
	if (ret) {
		xp_close(self->port);
		self->port = NULL;
	}
	return ret;
}

static int capture_source(
	struct packets *self, uint32_t packets_max, struct flow_source **ret_source)
{
	const struct flow_capture_opts opts = {.form = FLOW_CAPTURE_PAYLOAD,
		.interface = self->machine->interface,
		.payload_unit = XP_PAYLOAD_OFFSET,
		.packets_max = packets_max,
		.deadline_ns = DEADLINE_NONE};
	const struct xp_rule rule = {.action = FILTER_REDIRECT,
		.protocol = IPPROTO_UDP,
		.port_min = (uint16_t)(self->machine->port + 1),
		.port_max = (uint16_t)(self->machine->port + 1)};
	int ret;

	flow_capture_close(self->capture);
	self->capture = NULL;
	ret = xp_rules_set(self->port, &rule, 1);
	if (!ret)
		ret = flow_capture_open(&self->machine->core, self->port, &opts, &self->capture);
	if (!ret)
		ret = flow_capture_wait(self->capture);
	if (ret <= 0)
		return ret ? ret : -ENODATA;
	return flow_capture_source_open(self->capture, ret_source);
}
#else
static int port_open(struct packets *self)
{
	(void)self;
	return -EOPNOTSUPP;
}
#endif

/* ---- Either. ---- */

int packets_open(struct machine *machine, struct packets **ret_packets)
{
	struct packets *self = calloc(1, sizeof(*self));
	int ret;

	if (!self)
		return -ENOMEM;
	self->machine = machine;
	self->fd = -1;
	ret = port_open(self);
#ifdef NEBULAIO_XDP
	if (!ret)
		snprintf(self->way, sizeof(self->way), "AF_XDP on %.20s, %s", machine->interface,
			xp_mode_name(xp_mode(self->port)));
#endif
	if (ret) {
		snprintf(self->way, sizeof(self->way), "a socket: no AF_XDP here (%.30s)",
			strerror(-ret));
		ret = socket_open(self);
	}
	if (ret) {
		packets_close(self);
		return ret;
	}
	*ret_packets = self;
	return 0;
}

int packets_source(struct packets *self, uint32_t packets_max, struct flow_source **ret_source)
{
	self->over = false;
#ifdef NEBULAIO_XDP
	if (self->port)
		return capture_source(self, packets_max, ret_source);
#endif
	self->left = packets_max;
	self->offset = 0;
	self->source = (struct flow_source){.magic = FLOW_SOURCE_MAGIC,
		.ops = &SOCKET_OPS,
		.core = &self->machine->core,
		.bytes_total = UINT64_MAX,
		.deadline_ns = DEADLINE_NONE};
	*ret_source = &self->source;
	return 0;
}

void packets_over(struct packets *self)
{
	self->over = true;
#ifdef NEBULAIO_XDP
	if (self->capture)
		flow_capture_stop(self->capture);
#endif
}

const char *packets_way(const struct packets *self)
{
	return self->way;
}

bool packets_copied_by_kernel(const struct packets *self)
{
	return self->fd >= 0;
}

void packets_close(struct packets *self)
{
	if (!self)
		return;
#ifdef NEBULAIO_XDP
	flow_capture_close(self->capture);
	xp_close(self->port);
#endif
	if (self->fd >= 0)
		close(self->fd);
	free(self);
}
