/* rdma/simulated/cm_listen.c: the simulated provider's listeners, each a socket bound to an address
 * and a port. cm.c owns the connections that they accept. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "rdma/simulated/packet.h"
#include "rdma/simulated/simulated_priv.h"

#define BACKLOG	   4096
#define PORT_FIRST 49152u
#define PORT_TRIES 256u

static int listener_bind(struct sim_listener *listener, const char *address, uint16_t port)
{
	uint32_t tries = port ? 1 : PORT_TRIES;
	struct sockaddr_un addr;
	uint16_t salt = 0;

	if (!port)
		random_fill(&salt, sizeof(salt));
	for (uint32_t i = 0; i < tries; i++) {
		uint16_t candidate =
			port ? port : (uint16_t)(PORT_FIRST + (salt + i) % (65536u - PORT_FIRST));
		socklen_t len = sim_address(address, candidate, &addr);

		if (!bind(listener->fd, (struct sockaddr *)&addr, len)) {
			listener->base.port = candidate;
			return 0;
		}
		if (errno != EADDRINUSE)
			return -errno;
	}
	return -EADDRINUSE;
}

int sim_listen(struct rp_device *base, const char *address, uint16_t port,
	struct rp_listener **ret_listener)
{
	struct sim_device *device = CONTAINER_OF(base, struct sim_device, base);
	struct sim_listener *listener = calloc(1, sizeof(*listener));
	struct epoll_event event = {.events = EPOLLIN};
	int err;

	if (!listener)
		return -ENOMEM;
	listener->handle.type = SIM_HANDLE_LISTENER;
	listener->base.ops = &rp_simulated_ops;
	listener->device = device;
	listener->fd = sim_socket();
	err = listener->fd < 0 ? listener->fd : listener_bind(listener, address, port);
	if (!err && listen(listener->fd, BACKLOG))
		err = -errno;
	event.data.ptr = &listener->handle;
	pthread_mutex_lock(&device->lock);
	if (!err && epoll_ctl(device->epoll_fd, EPOLL_CTL_ADD, listener->fd, &event))
		err = -errno;
	if (!err) {
		list_push_back(&device->listeners, &listener->link);
		device->open_objects++;
	}
	pthread_mutex_unlock(&device->lock);
	if (err) {
		if (listener->fd >= 0)
			close(listener->fd);
		free(listener);
		return err;
	}
	*ret_listener = &listener->base;
	return 0;
}

void sim_listener_close(struct rp_listener *base)
{
	struct sim_listener *listener = CONTAINER_OF(base, struct sim_listener, base);
	struct sim_device *device = listener->device;

	pthread_mutex_lock(&device->lock);
	close(listener->fd);
	sim_conn_forget_listener(listener);
	list_remove(&listener->link);
	device->open_objects--;
	pthread_mutex_unlock(&device->lock);
	free(listener);
}

void sim_listener_readable(struct sim_listener *listener)
{
	int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd >= 0)
		sim_conn_take(listener, fd);
	else if (errno == EMFILE || errno == ENFILE)
		log_limited(LOG_ERROR, "rdma", "simulated: no descriptor left for a connection");
}
