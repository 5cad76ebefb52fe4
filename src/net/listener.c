/* net/listener.c: accepts connections, a few at a time. A connection that no fiber has accepted yet
 * waits in the kernel's backlog instead of being closed. */
#include "net/net_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define ACCEPTED_MAX	32u /* accept operations, and connections not yet taken by net_accept */
#define ACCEPT_RETRY_NS (50 * NS_PER_MS)
/* The kernel closes the sockets of a process with an io_uring up to some tens of milliseconds after
 * the process has ended. A program that is started again at once finds its own address taken. */
#define IN_USE_NS	(2 * NS_PER_S)
#define IN_USE_RETRY_NS (10 * NS_PER_MS)

/* Operations end one by one, each with a connection; net_accept starts as many as there is room
 * for.
 *
 *   OPEN     net_accept starts operations
 *   RESTING  it starts none until a timer fires, because the kernel ran out of something
 *   CLOSED   net_listener_close was called; freed when kernel and waiter no longer use it */
enum listener_state { LISTENER_OPEN, LISTENER_RESTING, LISTENER_CLOSED };

struct accept_op {
	struct uring_op op;
	struct net_listener *listener;
	bool in_kernel;
	union net_addr peer; /* the kernel writes it, and its length */
	socklen_t peer_len;
};

/* A connection that net_accept has not yet taken. The kernel tells the peer's address together with
 * the descriptor: getpeername fails once the peer has reset the connection, though bytes that came
 * before can still be read. */
struct accepted {
	int fd;
	union net_addr peer;
};

struct net_listener {
	struct reactor *reactor;
	struct accept_op ops[ACCEPTED_MAX];
	enum listener_state state;
	uint32_t in_kernel; /* operations */
	bool complained;    /* of the present shortage */
	int fd;
	uint16_t port;
	const char *path; /* of a socket of the file system; NULL: there is none */
	struct fiber *waiter;
	struct fiber *closer;
	struct reactor_timer retry;
	uint32_t accepted_first;
	uint32_t accepted_count;
	struct accepted accepted[ACCEPTED_MAX];
};

/* A listening socket. shared: it shares the address with other shared sockets of this user. */
static int socket_listen(const union net_addr *addr, bool shared, int *ret_fd)
{
	int on = 1, off = 0, fd;

	fd = socket(addr->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (addr->any.sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&addr->v6.sin6_addr))
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
		(shared && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on))) ||
		bind(fd, &addr->any, net_addr_len(addr)) || listen(fd, NET_BACKLOG)) {
		int err = -errno;

		close(fd);
		return err;
	}
	*ret_fd = fd;
	return 0;
}

/* The first of the sockets that share a port in this process. A socket with SO_REUSEPORT silently
 * shares with any process of the user, so a socket without it takes the port first: the kernel
 * gives that to one process only, even if others start at the same time. It stays open until the
 * shared socket is open. From then on a socket without SO_REUSEPORT is refused because of the
 * shared one. */
static int socket_first(union net_addr *addr, int *ret_fd)
{
	socklen_t len = sizeof(*addr);
	int on = 1, guard, err;

	err = socket_listen(addr, false, &guard);
	if (err)
		return err;
	if (getsockname(guard, &addr->any, &len) ||
		setsockopt(guard, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)))
		err = -errno;
	if (!err)
		err = socket_listen(addr, true, ret_fd);
	close(guard);
	return err;
}

static void accept_done(struct uring_op *op, int result, uint32_t cqe_flags);
static void accept_retry(struct reactor_timer *timer, void *arg);

/* The descriptor is the listener's, or closed. */
static int listener_make(struct reactor *reactor, int fd, struct net_listener **ret_listener)
{
	struct net_listener *listener = calloc(1, sizeof(*listener));
	union net_addr addr;
	socklen_t len = sizeof(addr);

	if (!listener || getsockname(fd, &addr.any, &len)) {
		int err = listener ? -errno : -ENOMEM;

		free(listener);
		close(fd);
		return err;
	}
	listener->reactor = reactor;
	for (uint32_t i = 0; i < ACCEPTED_MAX; i++) {
		listener->ops[i].op.done = accept_done;
		listener->ops[i].listener = listener;
	}
	listener->fd = fd;
	if (addr.any.sa_family != AF_UNIX)
		listener->port =
			ntohs(addr.any.sa_family == AF_INET ? addr.v4.sin_port : addr.v6.sin6_port);
	listener->retry.fn = accept_retry;
	listener->retry.arg = listener;
	*ret_listener = listener;
	return 0;
}

int net_listen(struct reactor *reactor, const char *address, struct net_listener **ret_listener)
{
	union net_addr addr;
	struct net_name name;
	socklen_t len;
	int err, fd;

	err = net_name_parse(address, &name);
	if (!err)
		err = net_addr_numeric(&name, &addr, &len);
	if (err)
		return err;
	err = socket_first(&addr, &fd);
	if (err == -EAFNOSUPPORT && !name.host[0]) {
		/* A host without IPv6: every address is then every IPv4 address. */
		memcpy(name.host, "0.0.0.0", sizeof("0.0.0.0"));
		net_addr_numeric(&name, &addr, &len);
		err = socket_first(&addr, &fd);
	}
	return err ? err : listener_make(reactor, fd, ret_listener);
}

/* Waits before an address that is in use is tried again; false: that was long enough. */
static bool in_use_wait(int err, uint64_t deadline_ns)
{
	if (err != -EADDRINUSE || clock_now_ns() >= deadline_ns)
		return false;
	if (fiber_self())
		fiber_sleep_ns(IN_USE_RETRY_NS);
	else
		clock_rest(deadline_ns);
	return true;
}

int net_listen_patiently(
	struct reactor *reactor, const char *address, struct net_listener **ret_listener)
{
	uint64_t deadline_ns = clock_now_ns() + IN_USE_NS;
	int err;

	do
		err = net_listen(reactor, address, ret_listener);
	while (in_use_wait(err, deadline_ns));
	return err;
}

/* Removes a socket on which no process listens. 0, -EADDRINUSE, -EEXIST. */
static int stale_remove(const struct sockaddr_un *name)
{
	struct stat st;
	int fd, ret;

	if (lstat(name->sun_path, &st))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	ret = connect(fd, (const struct sockaddr *)name, sizeof(*name)) ? -errno : 0;
	close(fd);
	if (ret != -ECONNREFUSED)
		return -EADDRINUSE;
	return unlink(name->sun_path) && errno != ENOENT ? -errno : 0;
}

/* Returns the socket, or -errno. Until listen(2), nobody can connect: the rights are set before. */
static int socket_unix(const struct sockaddr_un *name)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int ret;

	if (fd < 0)
		return -errno;
	if (bind(fd, (const struct sockaddr *)name, sizeof(*name))) {
		ret = -errno;
		close(fd);
		return ret;
	}
	if (chmod(name->sun_path, 0600) || listen(fd, NET_BACKLOG)) {
		ret = -errno;
		unlink(name->sun_path);
		close(fd);
		return ret;
	}
	return fd;
}

int net_listen_unix(struct reactor *reactor, const char *path, struct net_listener **ret_listener)
{
	uint64_t deadline_ns = clock_now_ns() + IN_USE_NS;
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int fd, ret;

	if (!*path)
		return -EINVAL;
	if (slice_copy_str(slice_str(path), name.sun_path, sizeof(name.sun_path)))
		return -ENAMETOOLONG;
	do
		ret = stale_remove(&name);
	while (in_use_wait(ret, deadline_ns));
	if (ret)
		return ret;
	fd = socket_unix(&name);
	if (fd < 0)
		return fd;
	ret = listener_make(reactor, fd, ret_listener);
	if (ret)
		unlink(path);
	else
		(*ret_listener)->path = path;
	return ret;
}

int net_listen_beside(struct reactor *reactor, const struct net_listener *first,
	struct net_listener **ret_listener)
{
	union net_addr addr;
	socklen_t len = sizeof(addr);
	int err, fd;

	if (getsockname(first->fd, &addr.any, &len))
		return -errno;
	err = socket_listen(&addr, true, &fd);
	return err ? err : listener_make(reactor, fd, ret_listener);
}

uint16_t net_listener_port(const struct net_listener *listener)
{
	return listener->port;
}

/* Starts no more operations than there is room for: an accepted connection cannot go back to the
 * backlog. */
static void accept_arm(struct net_listener *listener)
{
	for (uint32_t i = 0; i < ACCEPTED_MAX; i++) {
		struct accept_op *op = &listener->ops[i];

		if (listener->in_kernel + listener->accepted_count == ACCEPTED_MAX)
			return;
		if (op->in_kernel)
			continue;
		op->peer_len = sizeof(op->peer);
		io_uring_prep_accept(reactor_sqe(listener->reactor, &op->op), listener->fd,
			&op->peer.any, &op->peer_len, SOCK_CLOEXEC);
		op->in_kernel = true;
		listener->in_kernel++;
	}
}

static void listener_wake(struct net_listener *listener)
{
	if (listener->waiter)
		fiber_wake(listener->waiter);
}

static void accept_retry(struct reactor_timer *timer, void *arg)
{
	struct net_listener *listener = arg;

	(void)timer;
	CHECK(listener->state == LISTENER_RESTING);
	listener->state = LISTENER_OPEN;
	listener_wake(listener);
}

static void accept_queue(struct net_listener *listener, int fd, const union net_addr *peer)
{
	uint32_t at;

	if (listener->state == LISTENER_CLOSED) {
		close(fd);
		return;
	}
	CHECK(listener->accepted_count < ACCEPTED_MAX);
	at = (listener->accepted_first + listener->accepted_count++) % ACCEPTED_MAX;
	listener->accepted[at] = (struct accepted){.fd = fd, .peer = *peer};
}

/* The kernel is out of descriptors or memory, or has an error that will not end at once: pause
 * before the next try. A connection that ended in the backlog needs no pause. */
static bool needs_rest(int result)
{
	return result < 0 && result != -ECANCELED && result != -ECONNABORTED && result != -EINTR;
}

static void accept_done(struct uring_op *op, int result, uint32_t cqe_flags)
{
	struct accept_op *accept = CONTAINER_OF(op, struct accept_op, op);
	struct net_listener *listener = accept->listener;

	(void)cqe_flags;
	accept->in_kernel = false;
	listener->in_kernel--;
	if (result >= 0) {
		accept_queue(listener, result, &accept->peer);
		listener->complained = false;
	}
	if (!listener->in_kernel && listener->closer)
		fiber_wake(listener->closer);
	if (needs_rest(result) && listener->state == LISTENER_OPEN) {
		if (!listener->complained)
			log_warn("net", "cannot accept connections: %s; trying again",
				strerror(-result));
		listener->complained = true;
		listener->state = LISTENER_RESTING;
		reactor_timer_set(listener->reactor, &listener->retry,
			reactor_now_ns(listener->reactor) + ACCEPT_RETRY_NS);
	}
	listener_wake(listener);
}

/* Waits for a connection. Passes over one that ended in the backlog. */
static int accept_wait(struct net_listener *listener, struct accepted *ret_accepted)
{
	while (!listener->accepted_count) {
		if (listener->state == LISTENER_CLOSED)
			return -ECANCELED;
		if (listener->state == LISTENER_OPEN)
			accept_arm(listener);
		fiber_park();
	}
	*ret_accepted = listener->accepted[listener->accepted_first];
	listener->accepted_first = (listener->accepted_first + 1) % ACCEPTED_MAX;
	listener->accepted_count--;
	return 0;
}

int net_accept(struct net_listener *listener, struct net_stream **ret_stream)
{
	struct accepted accepted;
	int err;

	CHECK(!listener->waiter);
	if (listener->state == LISTENER_CLOSED)
		return -ECANCELED;
	listener->waiter = fiber_self();
	err = accept_wait(listener, &accepted);
	listener->waiter = NULL;
	if (err) {
		fiber_wake(listener->closer);
		return err;
	}
	err = net_stream_take(listener->reactor, accepted.fd, ret_stream);
	if (!err)
		net_addr_print(&accepted.peer, (*ret_stream)->peer, sizeof((*ret_stream)->peer));
	return err;
}

void net_listener_close(struct net_listener *listener)
{
	if (!listener)
		return;
	CHECK(listener->state != LISTENER_CLOSED);
	if (listener->state == LISTENER_RESTING)
		reactor_timer_cancel(listener->reactor, &listener->retry);
	listener->state = LISTENER_CLOSED;
	listener->closer = fiber_self();
	for (; listener->accepted_count; listener->accepted_count--) {
		close(listener->accepted[listener->accepted_first].fd);
		listener->accepted_first = (listener->accepted_first + 1) % ACCEPTED_MAX;
	}
	if (listener->in_kernel)
		net_cancel(listener->reactor, listener->fd);
	listener_wake(listener);
	while (listener->in_kernel || listener->waiter)
		fiber_park();
	close(listener->fd);
	if (listener->path)
		unlink(listener->path);
	free(listener);
}
