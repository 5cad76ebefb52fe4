/* tests/sim/net.c: TCP for the server and its clients, over local sockets, which are deterministic
 * when one thread runs; and the number of bytes that they accept at a time. */
#include "world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FDS_MAX	       4096
#define PORTS_MAX      16u
#define PORT_FIRST     20000u
#define SHORT_ONE_OF   8u
#define ADDRESS_PREFIX "nebulaio-sim"
#define DEVICE_PREFIX  "nebulaio-sim/"

static bool is_tcp[FDS_MAX];
static uint16_t port_of[FDS_MAX];
static struct {
	uint16_t port;
	uint32_t listeners; /* several share a port: any of them may accept a connection */
} ports[PORTS_MAX];

int __real_socket(int domain, int type, int protocol);
int __real_bind(int fd, const struct sockaddr *addr, socklen_t len);
int __real_connect(int fd, const struct sockaddr *addr, socklen_t len);
int __real_getsockname(int fd, struct sockaddr *addr, socklen_t *len);
int __real_getpeername(int fd, struct sockaddr *addr, socklen_t *len);
int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
ssize_t __real_recv(int fd, void *data, size_t bytes, int flags);
ssize_t __real_send(int fd, const void *data, size_t bytes, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);

static bool tcp(int fd)
{
	return fd >= 0 && fd < FDS_MAX && is_tcp[fd];
}

void world_net_opened(int fd)
{
	CHECK(fd < FDS_MAX);
	is_tcp[fd] = true;
}

void world_net_closed(int fd)
{
	if (fd >= 0 && fd < FDS_MAX)
		is_tcp[fd] = false;
}

static socklen_t local_address(struct sockaddr_un *local, uint16_t port, uint32_t listener)
{
	memset(local, 0, sizeof(*local));
	local->sun_family = AF_UNIX;
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)snprintf(local->sun_path + 1, sizeof(local->sun_path) - 1,
				   ADDRESS_PREFIX ".%d.%u.%u", (int)getpid(), port, listener));
}

static int inet_address(uint16_t port, struct sockaddr *addr, socklen_t *len)
{
	const struct sockaddr_in inet = {.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	memcpy(addr, &inet, MIN(*len, sizeof(inet)));
	*len = sizeof(inet);
	return 0;
}

/* The index of a port in the table; adds it if it is missing. */
static uint32_t port_find(uint16_t port)
{
	for (uint32_t i = 0; i < PORTS_MAX; i++) {
		if (!ports[i].port)
			ports[i].port = port ? port : (uint16_t)(PORT_FIRST + i);
		if (ports[i].port == port || (!port && !ports[i].listeners))
			return i;
	}
	world_fault("more ports than the world has");
}

int __wrap_socket(int domain, int type, int protocol)
{
	int fd;

	if (domain != AF_INET && domain != AF_INET6)
		return __real_socket(domain, type, protocol);
	fd = __real_socket(AF_UNIX, type, 0);
	if (fd >= 0)
		world_net_opened(fd);
	return fd;
}

static uint16_t asked_port(const struct sockaddr *addr)
{
	struct sockaddr_in inet;

	/* Both address families have the port at the same offset. */
	memcpy(&inet, addr, sizeof(inet));
	return ntohs(inet.sin_port);
}

/* A name of the simulated RDMA device becomes one of this process, so that worlds can run in
 * parallel with the same ports. */
static socklen_t device_address(
	struct sockaddr_un *local, const struct sockaddr *addr, socklen_t len)
{
	size_t path = offsetof(struct sockaddr_un, sun_path), at = (size_t)len - path;

	memset(local, 0, sizeof(*local));
	memcpy(local, addr, MIN((size_t)len, sizeof(*local)));
	if (local->sun_family != AF_UNIX || (size_t)len <= path || local->sun_path[0] ||
		strncmp(local->sun_path + 1, DEVICE_PREFIX, strlen(DEVICE_PREFIX)))
		return len;
	at += (size_t)snprintf(
		local->sun_path + at, sizeof(local->sun_path) - at, ".%d", (int)getpid());
	CHECK(at < sizeof(local->sun_path));
	return (socklen_t)(path + at);
}

int __wrap_bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	struct sockaddr_un local;
	socklen_t local_len;
	uint32_t at;

	if (!tcp(fd)) {
		local_len = device_address(&local, addr, len);
		return __real_bind(fd, (struct sockaddr *)&local, local_len);
	}
	/* Several threads may be woken for one connection, and only one gets it. */
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	at = port_find(asked_port(addr));
	port_of[fd] = ports[at].port;
	local_len = local_address(&local, ports[at].port, ports[at].listeners++);
	return __real_bind(fd, (struct sockaddr *)&local, local_len);
}

int __wrap_connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	struct sockaddr_un local;
	socklen_t local_len;
	uint32_t at, first;

	if (!tcp(fd)) {
		local_len = device_address(&local, addr, len);
		return __real_connect(fd, (struct sockaddr *)&local, local_len);
	}
	at = port_find(asked_port(addr));
	if (!ports[at].listeners) {
		errno = ECONNREFUSED;
		return -1;
	}
	port_of[fd] = ports[at].port;
	/* With a full backlog connect returns EAGAIN; a blocking socket would sleep. */
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	first = (uint32_t)world_below(ports[at].listeners);
	for (uint32_t i = 0; i < ports[at].listeners; i++) {
		local_len =
			local_address(&local, ports[at].port, (first + i) % ports[at].listeners);
		errno = 0;
		while (__real_connect(fd, (struct sockaddr *)&local, local_len) &&
			errno == EAGAIN) {
			world_block(&local, world_now_ns() + NS_PER_MS);
			errno = 0;
		}
		/* One of several listeners may have been closed. */
		if (errno != ECONNREFUSED)
			return errno ? -1 : 0;
	}
	return -1;
}

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	return tcp(fd) ? 0 : __real_setsockopt(fd, level, name, value, len);
}

int __wrap_getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
	return tcp(fd) ? inet_address(port_of[fd], addr, len) : __real_getsockname(fd, addr, len);
}

int __wrap_getpeername(int fd, struct sockaddr *addr, socklen_t *len)
{
	return tcp(fd) ? inet_address(PORT_FIRST - 1, addr, len)
		       : __real_getpeername(fd, addr, len);
}

static size_t portion(int fd, size_t bytes)
{
	return tcp(fd) && bytes > 1 && world_chance(SHORT_ONE_OF) ? 1 + world_below(bytes - 1)
								  : bytes;
}

/* The connection breaks. */
static bool reset(int fd)
{
	if (!tcp(fd) || !world_fault_comes(WORLD_FAULT_NET))
		return false;
	shutdown(fd, SHUT_RDWR);
	errno = ECONNRESET;
	return true;
}

ssize_t __wrap_recv(int fd, void *data, size_t bytes, int flags)
{
	if (reset(fd))
		return -1;
	return __real_recv(fd, data, portion(fd, bytes), flags);
}

ssize_t __wrap_send(int fd, const void *data, size_t bytes, int flags)
{
	if (reset(fd))
		return -1;
	return __real_send(fd, data, portion(fd, bytes), flags);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	if (reset(fd))
		return -1;
	if (!tcp(fd) || !world_chance(SHORT_ONE_OF) || !msg->msg_iovlen)
		return __real_sendmsg(fd, msg, flags);
	return __real_send(
		fd, msg->msg_iov[0].iov_base, portion(fd, msg->msg_iov[0].iov_len), flags);
}

/* ---- Blocking calls of clients. ---- */

ssize_t world_net_recv(int fd, void *data, size_t bytes)
{
	for (;;) {
		ssize_t done = __wrap_recv(fd, data, bytes, MSG_DONTWAIT);

		if (done >= 0 || errno != EAGAIN)
			return done;
		world_wait_fd(fd, POLLIN, UINT64_MAX);
	}
}

ssize_t world_net_send(int fd, const void *data, size_t bytes)
{
	size_t sent = 0;

	while (sent < bytes) {
		ssize_t done = __wrap_send(
			fd, (const char *)data + sent, bytes - sent, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (done < 0 && errno != EAGAIN)
			return -1;
		if (done < 0)
			world_wait_fd(fd, POLLOUT, UINT64_MAX);
		else
			sent += (size_t)done;
	}
	return (ssize_t)sent;
}
