/* rdma/simulated/packet.h: the simulated connection manager's sockets: addresses, and packets with
 * files. */
#ifndef RDMA_SIMULATED_PACKET_H
#define RDMA_SIMULATED_PACKET_H

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include "rdma/rdma.h"
#include "rdma/simulated/wire.h"

/* A non-blocking socket that learns which process sends: the descriptor, or -errno. */
int sim_socket(void);
int sim_socket_prepare(int fd);
/* The socket address of a listener; any of the names for "any address" gives the wildcard's. */
socklen_t sim_address(const char *address, uint16_t port, struct sockaddr_un *ret_addr);
/* Fills in magic and version. 0 or -errno; never blocks. */
int sim_packet_send(int fd, struct sim_packet *packet, const int *fds, int fd_count);
/* The user that connected, or that listens, as the kernel says: 0 or -errno. */
int sim_socket_user(int fd, uid_t *ret_user);
/* Takes one packet and up to SIM_HELLO_FDS files (unused places become -1; the caller closes them),
 * and which process of which user sent it. -EAGAIN: nothing there, -ECONNRESET: the end, -EPROTO:
 * not one of ours. */
int sim_packet_recv(int fd, struct sim_packet *ret_packet, int *fds, int *ret_fd_count,
	struct ucred *ret_sender);
/* Closes what is there and leaves -1. */
void sim_fds_close(int *fds, size_t count);

#endif
