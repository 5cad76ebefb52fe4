/* rdma/simulated/cm.c: the simulated provider's connection manager, over SOCK_SEQPACKET sockets in
 * the abstract namespace: "nebulaio-sim/ADDRESS:PORT", in this network namespace. Files (the wire,
 * bells, table, eventfds, shared arenas) travel as SCM_RIGHTS; the peer's user and pid come from
 * the kernel (SO_PEERCRED, SCM_CREDENTIALS), not from the peer. Both ends refuse a process of
 * another user. When a peer's process ends, its socket closes.
 *
 * Phases of a connection:
 *
 *   active   RETRY (the listener's backlog is full) -> WAIT_REPLY -> UP -> DOWN
 *   passive  WAIT_HELLO -> REQUESTED (the application decides) -> WAIT_READY -> UP -> DOWN
 *
 * A queue pair becomes RTS when the reply is there (active) or sent (passive). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "rdma/simulated/packet.h"
#include "rdma/simulated/simulated_priv.h"

#define RETRY_NS	NS_PER_MS
#define EVENTS_AT_ONCE	16
#define PACKETS_AT_ONCE 64
#define FOREIGN                                                                        \
	"the simulated device joins processes of one user only; run both as the same " \
	"user, or use HTTP"

static struct sim_handle timer_handle = {SIM_HANDLE_TIMER};
static struct sim_handle event_handle = {SIM_HANDLE_EVENT};

/* ---- Connections. ---- */

static void event_qp(struct sim_conn *conn, enum rp_cm_type type, const struct sim_packet *packet)
{
	struct rp_cm_event event = {
		.type = type, .qp = &conn->qp->base, .why = conn->why, .late = conn->late};

	if (conn->joined)
		return;
	snprintf(event.peer, sizeof(event.peer), "127.0.0.1:%d", (int)conn->pid);
	if (packet) {
		event.private_len = packet->private_len;
		memcpy(event.private_data, packet->private_data, packet->private_len);
	}
	sim_event_push(conn->device, &event);
}

static struct sim_conn *conn_new(struct sim_device *device, int fd, bool active)
{
	struct sim_conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return NULL;
	conn->handle.type = SIM_HANDLE_CONN;
	conn->request.ops = &rp_simulated_ops;
	conn->device = device;
	conn->fd = fd;
	conn->active = active;
	conn->event_fds[0] = conn->event_fds[1] = -1;
	conn->wire_fd = -1;
	conn->deadline_ns = DEADLINE_NONE;
	for (size_t i = 0; i < SIM_HELLO_FDS; i++)
		conn->hello_fds[i] = -1;
	list_push_back(&device->conns, &conn->link);
	return conn;
}

/* Closes the socket. Mappings stay until the queue pair closes. */
static void conn_hang_up(struct sim_conn *conn)
{
	if (conn->fd >= 0)
		close(conn->fd);
	conn->fd = -1;
	conn->phase = SIM_CONN_DOWN;
	conn->deadline_ns = DEADLINE_NONE;
}

static void conn_free(struct sim_conn *conn)
{
	conn_hang_up(conn);
	sim_fds_close(conn->hello_fds, SIM_HELLO_FDS);
	sim_fds_close(conn->event_fds, 2);
	sim_fds_close(&conn->wire_fd, 1);
	if (conn->qp)
		conn->qp->conn = NULL;
	if (conn->wire)
		munmap(conn->wire, sizeof(*conn->wire));
	sim_peer_put(conn->peer);
	list_remove(&conn->link);
	free(conn);
}

/* A connection that never came up: the queue pair is free to try again. */
static void conn_fail(struct sim_conn *conn, enum rp_cm_type type, const struct sim_packet *packet)
{
	if (conn->qp)
		event_qp(conn, type, packet);
	if (conn->qp && conn->joined)
		atomic_store(&conn->qp->state, RP_QPS_ERR);
	conn_free(conn);
}

static void conn_down(struct sim_conn *conn)
{
	conn_hang_up(conn);
	if (!conn->qp)
		return;
	atomic_store_explicit(&conn->qp->gone, 1, memory_order_release);
	sim_qp_kick(conn->qp);
	event_qp(conn, RP_CM_DISCONNECTED, NULL);
}

static int watch(struct sim_conn *conn, int op, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = &conn->handle};

	return epoll_ctl(conn->device->epoll_fd, op, conn->fd, &event) ? -errno : 0;
}

/* Sets the timer to the earliest time that any connection waits for. */
static void timer_update(struct sim_device *device)
{
	struct itimerspec spec = {.it_value.tv_sec = 0};
	uint64_t due_ns = DEADLINE_NONE;

	LIST_FOR_EACH (link, &device->conns) {
		struct sim_conn *conn = CONTAINER_OF(link, struct sim_conn, link);

		if (conn->phase == SIM_CONN_RETRY)
			due_ns = MIN(due_ns, MIN(conn->retry_ns, conn->deadline_ns));
		else if (conn->phase == SIM_CONN_WAIT_REPLY)
			due_ns = MIN(due_ns, conn->deadline_ns);
	}
	if (due_ns != DEADLINE_NONE) {
		due_ns = MAX(due_ns, 1);
		spec.it_value.tv_sec = (time_t)(due_ns / NS_PER_S);
		spec.it_value.tv_nsec = (long)(due_ns % NS_PER_S);
	} else if (!device->timer_set) {
		return;
	}
	device->timer_set = due_ns != DEADLINE_NONE;
	rp_timer_fd_set(device->timer_fd, &spec);
}

/* ---- Packets out. ---- */

static void describe(const struct sim_qp *qp, struct slice private_data, struct sim_packet *packet)
{
	packet->qpn = qp->base.num;
	packet->qp_type = qp->base.type;
	packet->pd = qp->pd->num;
	packet->bell_idx[0] = qp->recv_cq->bell_idx;
	packet->bell_bit[0] = qp->recv_bit;
	packet->bell_idx[1] = qp->send_cq->bell_idx;
	packet->bell_bit[1] = qp->send_bit;
	packet->witness_addr = (uintptr_t)qp->device->witness;
	memcpy(packet->witness, qp->device->witness, sizeof(packet->witness));
	CHECK(private_data.len <= RP_PRIVATE_BYTES_MAX);
	packet->private_len = (uint32_t)private_data.len;
	if (private_data.len)
		memcpy(packet->private_data, private_data.data, private_data.len);
}

static void send_backing(struct sim_conn *conn, const struct sim_backing *backing, bool gone)
{
	struct sim_packet packet = {
		.type = gone ? SIM_PKT_GONE : SIM_PKT_BACKING,
		.backing = backing->num,
		.writable = backing->writable,
		.bytes = backing->bytes,
	};

	/* A peer that does not read its socket, or has ended, works without the file. */
	if (sim_packet_send(conn->fd, &packet, &backing->fd, gone ? 0 : 1))
		log_debug("rdma", "simulated: cannot send a shared file to pid %d", (int)conn->pid);
}

/* True when the peer of this connection may use a key to memory in the file. */
static bool is_for(const struct sim_backing *backing, const struct sim_conn *conn)
{
	return backing->refs && conn->qp && backing->pd == conn->qp->pd->num &&
	       (!backing->qpn || backing->qpn == conn->qp->base.num);
}

static void send_backings(struct sim_conn *conn)
{
	for (uint32_t i = 0; i < SIM_BACKINGS_MAX; i++) {
		if (is_for(&conn->device->backings[i], conn))
			send_backing(conn, &conn->device->backings[i], false);
	}
}

void sim_cm_tell_backing(struct sim_device *device, const struct sim_backing *backing, bool gone)
{
	LIST_FOR_EACH (link, &device->conns) {
		struct sim_conn *conn = CONTAINER_OF(link, struct sim_conn, link);

		if (is_for(backing, conn) &&
			(conn->phase == SIM_CONN_WAIT_REPLY || conn->phase == SIM_CONN_WAIT_READY ||
				conn->phase == SIM_CONN_UP))
			send_backing(conn, backing, gone);
	}
}

/* ---- Coming up. ---- */

/* Joins queue pair, wire and peer; fds: bells, table, eventfd, eventfd (taken over). */
static int bring_up(struct sim_conn *conn, const struct sim_packet *packet, int *fds)
{
	struct sim_device *device = conn->device;
	struct sim_qp *qp = conn->qp;
	uint32_t me = !conn->active, init = RP_QPS_INIT;
	int err;

	CHECK(qp != NULL);
	for (int i = 0; i < 2; i++) {
		if (packet->bell_idx[i] >= SIM_CQS_MAX || packet->bell_bit[i] >= SIM_CQ_QPS_MAX)
			return -EPROTO;
	}
	if (packet->qp_type != qp->base.type)
		return -EPROTO;
	err = sim_peer_get(device, packet, fds, conn->pid, &conn->peer);
	if (err)
		return err;
	qp->bell_count = packet->bell_idx[0] == packet->bell_idx[1] ? 1 : 2;
	for (uint32_t i = 0; i < qp->bell_count; i++) {
		conn->event_fds[i] = fds[2 + i];
		fds[2 + i] = -1;
		qp->bells[i] = (struct sim_bell_ref){
			.bell = &conn->peer->bells[packet->bell_idx[i]],
			.bit = packet->bell_bit[i],
			.event_fd = conn->event_fds[i],
		};
	}
	qp->peer = conn->peer;
	qp->peer_pd = packet->pd;
	qp->peer_qpn = packet->qpn;
	qp->wire = conn->wire;
	qp->pairing = conn->pairing;
	qp->mine = &conn->wire->sides[me];
	qp->theirs = &conn->wire->sides[!me];
	qp->tx = conn->wire->rings[me];
	qp->rx = conn->wire->rings[!me];
	qp->my_assist = &conn->wire->assists[me];
	qp->their_assist = &conn->wire->assists[!me];
	if (!atomic_compare_exchange_strong(&qp->state, &init, RP_QPS_RTS))
		return -ECANCELED;
	sim_qp_kick(qp);
	return 0;
}

static int send_hello(struct sim_conn *conn, int wire_fd)
{
	struct sim_qp *qp = conn->qp;
	int fds[SIM_HELLO_FDS] = {wire_fd, conn->device->bell_fd, conn->device->table_fd,
		qp->recv_cq->event_fd, qp->send_cq->event_fd};

	conn->hello.type = SIM_PKT_HELLO;
	return sim_packet_send(conn->fd, &conn->hello, fds, SIM_HELLO_FDS);
}

/* Tries the listener on the exact address, then one on any address. -EAGAIN: the backlog is
 * full. */
static int try_connect(struct sim_conn *conn)
{
	struct sockaddr_un addr;
	socklen_t len;

	for (int wildcard = 0; wildcard < 2; wildcard++) {
		len = sim_address(wildcard ? "" : conn->address, conn->port, &addr);
		if (!connect(conn->fd, (struct sockaddr *)&addr, len))
			return 0;
		if (errno != ECONNREFUSED)
			return -errno;
	}
	return -ECONNREFUSED;
}

/* The processes of a connection map each other's memory and write to it, so they must belong to one
 * user. -EACCES, logged: this one belongs to another. */
static int check_user(int fd)
{
	uid_t user;
	int err = sim_socket_user(fd, &user);

	if (err || user == geteuid())
		return err;
	log_limited(LOG_WARN, "rdma",
		"simulated: no connection of user %u's process with one of user %u: " FOREIGN,
		(unsigned int)geteuid(), (unsigned int)user);
	return -EACCES;
}

/* Continues to connect. On an error the connection must end. */
static int connect_step(struct sim_conn *conn)
{
	int err = try_connect(conn);

	if (err == -EAGAIN) {
		conn->phase = SIM_CONN_RETRY;
		conn->retry_ns = clock_now_ns() + RETRY_NS;
		return 0;
	}
	if (!err)
		err = check_user(conn->fd);
	if (!err)
		err = send_hello(conn, conn->wire_fd);
	if (err)
		return err;
	close(conn->wire_fd);
	conn->wire_fd = -1;
	conn->phase = SIM_CONN_WAIT_REPLY;
	send_backings(conn);
	return watch(conn, EPOLL_CTL_ADD, EPOLLIN);
}

static void connect_go(struct sim_conn *conn)
{
	int err = connect_step(conn);

	conn->why = err == -EACCES ? FOREIGN : NULL;
	if (err)
		conn_fail(conn, conn->why ? RP_CM_REJECTED : RP_CM_UNREACHABLE, NULL);
}

int sim_connect(struct rp_qp *base, const char *address, uint16_t port, struct slice private_data,
	uint64_t deadline_ns)
{
	struct sim_qp *qp = CONTAINER_OF(base, struct sim_qp, base);
	struct sim_device *device = qp->device;
	struct sim_conn *conn;
	int err, fd;

	if (qp->conn || sim_qp_state(base) != RP_QPS_INIT)
		return -EISCONN;
	if (atomic_load(&device->failed))
		return -EIO;
	fd = sim_socket();
	if (fd < 0)
		return fd;
	pthread_mutex_lock(&device->lock);
	conn = conn_new(device, fd, true);
	if (!conn) {
		pthread_mutex_unlock(&device->lock);
		close(fd);
		return -ENOMEM;
	}
	err = sim_shared_file("nebulaio-sim-wire", sizeof(struct sim_wire), true, &conn->wire_fd,
		(void **)&conn->wire);
	if (err) {
		conn_free(conn);
	} else {
		conn->pairing = sim_pairing(conn->wire_fd);
		conn->qp = qp;
		qp->conn = conn;
		conn->deadline_ns = deadline_ns;
		conn->port = port;
		snprintf(conn->address, sizeof(conn->address), "%s", address);
		conn->joined = qp->joined;
		describe(qp, private_data, &conn->hello);
		connect_go(conn);
		timer_update(device);
	}
	pthread_mutex_unlock(&device->lock);
	return err;
}

/* ---- Packets in. ---- */

static int accept_locked(struct sim_conn *conn, struct sim_qp *qp, struct slice private_data);

/* A call from a peer that was joined by hand: the application is not asked, because it agreed
 * before. */
static int take_join(struct sim_conn *conn)
{
	struct sim_qp *qp = sim_join_take(conn->device, &conn->hello);
	int err;

	conn->joined = true;
	err = qp ? accept_locked(conn, qp, SLICE_NONE) : -ECONNREFUSED;
	/* No application holds it as a request. */
	if (err)
		conn->phase = SIM_CONN_WAIT_HELLO;
	return err;
}

static int take_hello(struct sim_conn *conn, const struct sim_packet *packet, int *fds)
{
	struct rp_cm_event event = {
		.type = RP_CM_CONNECT_REQUEST,
		.listener = &conn->listener->base,
		.request = &conn->request,
		.private_len = packet->private_len,
	};

	if (sim_shared_check(fds[0], sizeof(struct sim_wire)))
		return -EPROTO;
	conn->wire =
		mmap(NULL, sizeof(struct sim_wire), PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	if (conn->wire == MAP_FAILED) {
		conn->wire = NULL;
		return -ENOMEM;
	}
	conn->pairing = sim_pairing(fds[0]);
	for (size_t i = 1; i < SIM_HELLO_FDS; i++) {
		conn->hello_fds[i] = fds[i];
		fds[i] = -1;
	}
	conn->hello = *packet;
	conn->phase = SIM_CONN_REQUESTED;
	if (&conn->listener->base == conn->device->join_listener)
		return take_join(conn);
	snprintf(event.peer, sizeof(event.peer), "127.0.0.1:%d", (int)conn->pid);
	memcpy(event.private_data, packet->private_data, packet->private_len);
	sim_event_push(conn->device, &event);
	/* From now on only the socket's end matters, which epoll always reports. */
	return watch(conn, EPOLL_CTL_MOD, 0);
}

static int take_reply(struct sim_conn *conn, const struct sim_packet *packet, int *fds)
{
	struct sim_packet ready = {.type = SIM_PKT_READY};
	int err = bring_up(conn, packet, fds);

	if (err)
		return err;
	conn->phase = SIM_CONN_UP;
	event_qp(conn, RP_CM_ESTABLISHED, packet);
	return sim_packet_send(conn->fd, &ready, NULL, 0);
}

static int take_backing(struct sim_conn *conn, const struct sim_packet *packet, int *fds)
{
	/* Before the application accepts there is no peer to map for. The peer sends its files
	 * again later. */
	if (!conn->peer)
		return 0;
	return sim_peer_backing_add(conn->device, conn->peer, packet, fds[0]);
}

/* The packets allowed in each state, with their number of files. On an error the connection must
 * end. */
static int take_packet(struct sim_conn *conn, const struct sim_packet *packet, int *fds, int count)
{
	switch (packet->type) {
	case SIM_PKT_HELLO:
		if (conn->phase != SIM_CONN_WAIT_HELLO || count != SIM_HELLO_FDS)
			return -EPROTO;
		return take_hello(conn, packet, fds);
	case SIM_PKT_REPLY:
		if (conn->phase != SIM_CONN_WAIT_REPLY || count != SIM_REPLY_FDS)
			return -EPROTO;
		return take_reply(conn, packet, fds);
	case SIM_PKT_READY:
		if (conn->phase != SIM_CONN_WAIT_READY)
			return -EPROTO;
		conn->phase = SIM_CONN_UP;
		if (conn->qp)
			event_qp(conn, RP_CM_ESTABLISHED, NULL);
		return 0;
	case SIM_PKT_BACKING:
		return count == 1 ? take_backing(conn, packet, fds) : -EPROTO;
	case SIM_PKT_GONE:
		if (conn->peer)
			sim_peer_backing_remove(conn->device, conn->peer, packet);
		return 0;
	default:
		return -EPROTO;
	}
}

static void conn_end(struct sim_conn *conn)
{
	switch (conn->phase) {
	case SIM_CONN_REQUESTED:
		/* The application still holds it. */
		conn_hang_up(conn);
		break;
	case SIM_CONN_WAIT_READY:
	case SIM_CONN_UP:
		conn_down(conn);
		break;
	case SIM_CONN_DOWN:
		break;
	default:
		conn_fail(conn, RP_CM_UNREACHABLE, NULL);
	}
}

/* Reads what has come. Packets after a request wait in the socket until it is decided. */
static void conn_readable(struct sim_conn *conn)
{
	for (int i = 0; i < PACKETS_AT_ONCE && conn->phase != SIM_CONN_REQUESTED; i++) {
		struct sim_packet packet;
		struct ucred sender;
		int fds[SIM_HELLO_FDS], count = 0;
		int err = sim_packet_recv(conn->fd, &packet, fds, &count, &sender);

		if (err == -EAGAIN)
			return;
		if (!err && sender.uid != geteuid())
			err = -EACCES;
		if (!err && (packet.type == SIM_PKT_HELLO || packet.type == SIM_PKT_REPLY))
			conn->pid = sender.pid;
		if (!err && packet.type == SIM_PKT_REJECT && conn->phase == SIM_CONN_WAIT_REPLY) {
			sim_fds_close(fds, SIM_HELLO_FDS);
			conn_fail(conn, RP_CM_REJECTED, &packet);
			return;
		}
		if (!err)
			err = take_packet(conn, &packet, fds, count);
		sim_fds_close(fds, SIM_HELLO_FDS);
		if (err) {
			if (err != -ECONNRESET)
				log_limited(LOG_WARN, "rdma",
					"simulated: connection with pid %d: %s",
					(int)(conn->pid ? conn->pid : sender.pid),
					err == -EACCES ? FOREIGN : strerror(-err));
			conn_end(conn);
			return;
		}
	}
}

void sim_cm_catch_up(struct sim_qp *qp)
{
	struct sim_device *device = qp->device;

	/* The holder of the lock may wait for our moves to end, while we wait for the lock. */
	atomic_store_explicit(&qp->moving, 0, memory_order_release);
	pthread_mutex_lock(&device->lock);
	if (qp->conn && qp->conn->fd >= 0 &&
		(qp->conn->phase == SIM_CONN_WAIT_READY || qp->conn->phase == SIM_CONN_UP))
		conn_readable(qp->conn);
	pthread_mutex_unlock(&device->lock);
	atomic_store(&qp->moving, 1);
}

/* ---- Deciding. ---- */

static struct sim_conn *conn_of_request(struct rp_conn_request *request)
{
	return CONTAINER_OF(request, struct sim_conn, request);
}

/* Locked. Joins the request with the queue pair. */
static int accept_locked(struct sim_conn *conn, struct sim_qp *qp, struct slice private_data)
{
	struct sim_packet reply = {.type = SIM_PKT_REPLY};
	int fds[SIM_REPLY_FDS] = {conn->device->bell_fd, conn->device->table_fd,
		qp->recv_cq->event_fd, qp->send_cq->event_fd};
	int err;

	if (conn->phase != SIM_CONN_REQUESTED)
		return -ECONNRESET;
	if (qp->device != conn->device || qp->conn || conn->hello.qp_type != qp->base.type ||
		sim_qp_state(&qp->base) != RP_QPS_INIT)
		return -EINVAL;
	conn->qp = qp;
	err = bring_up(conn, &conn->hello, &conn->hello_fds[1]);
	if (err) {
		conn->qp = NULL;
		return err;
	}
	qp->conn = conn;
	sim_fds_close(conn->hello_fds, SIM_HELLO_FDS);
	conn->phase = SIM_CONN_WAIT_READY;
	describe(qp, private_data, &reply);
	err = sim_packet_send(conn->fd, &reply, fds, SIM_REPLY_FDS);
	if (!err) {
		send_backings(conn);
		err = watch(conn, EPOLL_CTL_MOD, EPOLLIN);
	}
	if (err)
		conn_down(conn);
	return 0;
}

int sim_accept(struct rp_conn_request *request, struct rp_qp *base, struct slice private_data)
{
	struct sim_conn *conn = conn_of_request(request);
	struct sim_device *device = conn->device;
	int err;

	CHECK(!conn->active);
	pthread_mutex_lock(&device->lock);
	err = accept_locked(conn, CONTAINER_OF(base, struct sim_qp, base), private_data);
	pthread_mutex_unlock(&device->lock);
	return err;
}

static void reject_locked(struct sim_conn *conn, struct slice private_data)
{
	struct sim_packet packet = {.type = SIM_PKT_REJECT};

	CHECK(!conn->qp);
	packet.private_len = (uint32_t)private_data.len;
	if (private_data.len)
		memcpy(packet.private_data, private_data.data, private_data.len);
	if (conn->phase == SIM_CONN_REQUESTED && sim_packet_send(conn->fd, &packet, NULL, 0))
		log_debug(
			"rdma", "simulated: pid %d did not wait for its rejection", (int)conn->pid);
	conn_free(conn);
}

void sim_reject(struct rp_conn_request *request, struct slice private_data)
{
	struct sim_conn *conn = conn_of_request(request);
	struct sim_device *device = conn->device;

	pthread_mutex_lock(&device->lock);
	reject_locked(conn, private_data);
	pthread_mutex_unlock(&device->lock);
}

void sim_cm_cut(struct sim_qp *qp)
{
	pthread_mutex_lock(&qp->device->lock);
	if (qp->conn && qp->conn->fd >= 0)
		shutdown(qp->conn->fd, SHUT_RDWR);
	pthread_mutex_unlock(&qp->device->lock);
}

void sim_cm_fail(struct sim_device *device)
{
	const struct rp_cm_event event = {.type = RP_CM_DEVICE_FATAL};

	pthread_mutex_lock(&device->lock);
	if (!atomic_exchange(&device->failed, true)) {
		sim_event_push(device, &event);
		LIST_FOR_EACH (link, &device->conns) {
			struct sim_conn *conn = CONTAINER_OF(link, struct sim_conn, link);

			if (conn->fd >= 0)
				shutdown(conn->fd, SHUT_RDWR);
		}
	}
	pthread_mutex_unlock(&device->lock);
}

void sim_disconnect(struct rp_qp *base)
{
	struct sim_qp *qp = CONTAINER_OF(base, struct sim_qp, base);

	sim_qp_fail(qp, NULL);
	sim_cm_cut(qp);
}

void sim_cm_forget(struct sim_qp *qp)
{
	struct sim_device *device = qp->device;

	pthread_mutex_lock(&device->lock);
	list_remove(&qp->joining);
	sim_event_forget_qp(device, &qp->base);
	if (qp->conn)
		conn_free(qp->conn);
	timer_update(device);
	pthread_mutex_unlock(&device->lock);
}

/* ---- For listeners. ---- */

void sim_conn_take(struct sim_listener *listener, int fd)
{
	int err = check_user(fd);
	struct sim_conn *conn = NULL;

	if (!err)
		err = sim_socket_prepare(fd);
	if (!err)
		conn = conn_new(listener->device, fd, false);
	if (!conn) {
		close(fd);
		return;
	}
	conn->phase = SIM_CONN_WAIT_HELLO;
	conn->listener = listener;
	if (watch(conn, EPOLL_CTL_ADD, EPOLLIN))
		conn_free(conn);
	else
		conn_readable(conn);
}

void sim_conn_forget_listener(struct sim_listener *listener)
{
	struct sim_device *device = listener->device;
	struct rp_conn_request *request;

	while ((request = sim_event_take_request(device, &listener->base)) != NULL)
		conn_free(conn_of_request(request));
	LIST_FOR_EACH_SAFE (link, &device->conns) {
		struct sim_conn *conn = CONTAINER_OF(link, struct sim_conn, link);

		if (conn->listener == listener && conn->phase == SIM_CONN_WAIT_HELLO)
			conn_free(conn);
		else if (conn->listener == listener)
			conn->listener = NULL;
	}
}

/* ---- Polling. ---- */

static void timer_fired(struct sim_device *device)
{
	uint64_t now_ns = clock_now_ns(), count;

	if (read(device->timer_fd, &count, sizeof(count)) < 0)
		return;
	LIST_FOR_EACH_SAFE (link, &device->conns) {
		struct sim_conn *conn = CONTAINER_OF(link, struct sim_conn, link);
		bool retry = conn->phase == SIM_CONN_RETRY;

		if (!retry && conn->phase != SIM_CONN_WAIT_REPLY)
			continue;
		conn->late = now_ns >= conn->deadline_ns;
		if (conn->late)
			conn_fail(conn, RP_CM_UNREACHABLE, NULL);
		else if (retry && now_ns >= conn->retry_ns)
			connect_go(conn);
	}
	timer_update(device);
}

static void handle_event(struct sim_device *device, const struct epoll_event *event)
{
	struct sim_handle *handle = event->data.ptr;
	struct sim_conn *conn;

	switch (handle->type) {
	case SIM_HANDLE_LISTENER:
		sim_listener_readable(CONTAINER_OF(handle, struct sim_listener, handle));
		break;
	case SIM_HANDLE_CONN:
		conn = CONTAINER_OF(handle, struct sim_conn, handle);
		if (conn->phase == SIM_CONN_REQUESTED)
			conn_end(conn);
		else
			conn_readable(conn);
		break;
	case SIM_HANDLE_TIMER:
		timer_fired(device);
		break;
	case SIM_HANDLE_EVENT:
		break;
	}
}

int sim_cm_poll(struct rp_device *base, struct rp_cm_event *ret_event)
{
	struct sim_device *device = CONTAINER_OF(base, struct sim_device, base);
	struct epoll_event event;
	bool found;

	pthread_mutex_lock(&device->lock);
	found = sim_event_pop(device, ret_event);
	/* One at a time: handling one may free what another points at. */
	for (int i = 0; !found && i < EVENTS_AT_ONCE; i++) {
		if (epoll_wait(device->epoll_fd, &event, 1, 0) != 1)
			break;
		handle_event(device, &event);
		found = sim_event_pop(device, ret_event);
	}
	pthread_mutex_unlock(&device->lock);
	return found;
}

int sim_cm_fd(const struct rp_device *base)
{
	return CONTAINER_OF(base, const struct sim_device, base)->epoll_fd;
}

static int watch_handle(struct sim_device *device, int fd, struct sim_handle *handle)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = handle};

	return epoll_ctl(device->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

int sim_cm_init(struct sim_device *device)
{
	int err;

	list_init(&device->peers);
	list_init(&device->joins);
	list_init(&device->conns);
	list_init(&device->listeners);
	err = sim_events_open(device);
	device->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	device->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	device->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!err && (device->epoll_fd < 0 || device->timer_fd < 0 || device->event_fd < 0))
		err = -EMFILE;
	if (!err)
		err = watch_handle(device, device->timer_fd, &timer_handle);
	if (!err)
		err = watch_handle(device, device->event_fd, &event_handle);
	if (err)
		sim_cm_fini(device);
	return err;
}

void sim_cm_fini(struct sim_device *device)
{
	sim_events_close(device);
	LIST_FOR_EACH_SAFE (link, &device->conns) {
		conn_free(CONTAINER_OF(link, struct sim_conn, link));
	}
	sim_fds_close(&device->epoll_fd, 1);
	sim_fds_close(&device->timer_fd, 1);
	sim_fds_close(&device->event_fd, 1);
}
