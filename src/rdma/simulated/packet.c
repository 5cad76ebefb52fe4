/* rdma/simulated/packet.c: packets with files over the simulated connection manager's sockets. */
#include "rdma/simulated/packet.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

#define NAME_FORMAT "nebulaio-sim/%s:%u"

int sim_socket_prepare(int fd)
{
	const int on = 1;

	return setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) ? -errno : 0;
}

int sim_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int err;

	if (fd < 0)
		return -errno;
	err = sim_socket_prepare(fd);
	if (err) {
		close(fd);
		return err;
	}
	return fd;
}

int sim_socket_user(int fd, uid_t *ret_user)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len))
		return -errno;
	*ret_user = peer.uid;
	return 0;
}

static const char *canonical(const char *address)
{
	static const char *const any[] = {"", "0.0.0.0", "::", "*"};
	static const char *const here[] = {"localhost", "127.0.0.1", "::1"};

	for (size_t i = 0; i < ARRAY_LEN(any); i++) {
		if (!strcmp(address, any[i]))
			return "*";
	}
	for (size_t i = 0; i < ARRAY_LEN(here); i++) {
		if (!strcmp(address, here[i]))
			return "127.0.0.1";
	}
	return address;
}

socklen_t sim_address(const char *address, uint16_t port, struct sockaddr_un *ret_addr)
{
	size_t room = sizeof(ret_addr->sun_path) - 1;
	int len;

	*ret_addr = (struct sockaddr_un){.sun_family = AF_UNIX};
	len = snprintf(
		ret_addr->sun_path + 1, room, NAME_FORMAT, canonical(address), (unsigned int)port);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + MIN((size_t)len, room - 1));
}

int sim_packet_send(int fd, struct sim_packet *packet, const int *fds, int fd_count)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(SIM_HELLO_FDS * sizeof(int))];
	} control = {0};
	struct iovec iov = {packet, sizeof(*packet)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	packet->magic = SIM_MAGIC;
	packet->version = SIM_VERSION;
	if (fd_count) {
		size_t bytes = (size_t)fd_count * sizeof(int);

		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(bytes);
		memcpy(CMSG_DATA(&control.head), fds, bytes);
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(bytes);
	}
	if (sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return -errno;
	return 0;
}

/* The control buffer has room for a few files more than expected: those are closed. */
static int take_files(const struct cmsghdr *head, int *fds)
{
	size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);

	for (size_t i = 0; i < count; i++) {
		int fd;

		memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(fd));
		if (i < SIM_HELLO_FDS)
			fds[i] = fd;
		else
			close(fd);
	}
	return (int)count;
}

static void take_control(struct msghdr *msg, int *fds, int *ret_fd_count, struct ucred *ret_sender)
{
	for (struct cmsghdr *head = CMSG_FIRSTHDR(msg); head; head = CMSG_NXTHDR(msg, head)) {
		if (head->cmsg_level != SOL_SOCKET)
			continue;
		if (head->cmsg_type == SCM_RIGHTS) {
			*ret_fd_count = take_files(head, fds);
		} else if (head->cmsg_type == SCM_CREDENTIALS) {
			memcpy(ret_sender, CMSG_DATA(head), sizeof(*ret_sender));
		}
	}
}

int sim_packet_recv(int fd, struct sim_packet *ret_packet, int *fds, int *ret_fd_count,
	struct ucred *ret_sender)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(SIM_HELLO_FDS * sizeof(int)) +
			  CMSG_SPACE(sizeof(struct ucred))];
	} control;
	struct iovec iov = {ret_packet, sizeof(*ret_packet)};
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t len;

	*ret_fd_count = 0;
	*ret_sender = (struct ucred){.uid = (uid_t)-1, .gid = (gid_t)-1};
	for (size_t i = 0; i < SIM_HELLO_FDS; i++)
		fds[i] = -1;
	len = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	/* A peer closed without reading all that we sent: the socket reports that first, and once.
	 * The peer's earlier packets are still there. */
	if (len < 0 && errno == ECONNRESET)
		len = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (len < 0)
		return errno == EINTR ? -EAGAIN : -errno;
	if (len == 0)
		return -ECONNRESET;
	take_control(&msg, fds, ret_fd_count, ret_sender);
	if (len != sizeof(*ret_packet) || (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) ||
		ret_packet->magic != SIM_MAGIC || ret_packet->version != SIM_VERSION ||
		ret_packet->private_len > RP_PRIVATE_BYTES_MAX)
		return -EPROTO;
	return 0;
}

void sim_fds_close(int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}
