/* net/stream.c: opens, connects and closes streams, and handles their waits and deadlines. */
#include "net/net_priv.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

static void ignore_done(struct uring_op *op, int result, uint32_t cqe_flags)
{
	(void)op;
	(void)result;
	(void)cqe_flags;
}

/* For cancellations by descriptor: their own completions have no receiver. */
static struct uring_op ignore_op = {.done = ignore_done};

void net_cancel(struct reactor *reactor, int fd)
{
	struct io_uring_sqe *sqe = reactor_sqe(reactor, &ignore_op);

	io_uring_prep_cancel_fd(sqe, fd, IORING_ASYNC_CANCEL_ALL);
}

static void op_done(struct uring_op *uring_op, int result, uint32_t cqe_flags)
{
	struct net_op *op = CONTAINER_OF(uring_op, struct net_op, op);

	CHECK(op->pending);
	op->result = result;
	op->more = cqe_flags & IORING_CQE_F_SOCK_NONEMPTY;
	op->pending = false;
	if (op->later.fn)
		op->later.fn(op->later.arg);
	else
		fiber_wake(op->fiber);
}

/* The timer stays armed when an operation ends: otherwise a busy stream would set and cancel it for
 * each operation. When it fires, it cancels operations that are late, and sets itself again. */
static void deadline_fired(struct reactor_timer *timer, void *arg)
{
	struct net_stream *stream = arg;
	struct net_op *ops[] = {&stream->recv, &stream->send};
	uint64_t now = reactor_now_ns(stream->reactor), next = DEADLINE_NONE;
	bool late = false;

	(void)timer;
	for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
		struct net_op *op = ops[i];

		if (!op->pending || op->timed_out)
			continue;
		if (op->deadline_ns <= now) {
			op->timed_out = true;
			late = true;
		} else {
			next = MIN(next, op->deadline_ns);
		}
	}
	if (late)
		net_cancel(stream->reactor, stream->fd);
	if (next != DEADLINE_NONE)
		reactor_timer_set(stream->reactor, &stream->timer, next);
}

void net_op_begin(struct net_stream *stream, struct net_op *op, uint64_t deadline_ns)
{
	struct reactor_timer *timer = &stream->timer;

	CHECK(!op->pending);
	op->fiber = fiber_self();
	op->later.fn = NULL;
	op->deadline_ns = deadline_ns;
	op->timed_out = false;
	op->more = false;
	op->pending = true;
	if (deadline_ns != DEADLINE_NONE && (!timer->armed || timer->due_ns > deadline_ns))
		reactor_timer_set(stream->reactor, timer, deadline_ns);
}

int net_op_wait(struct net_stream *stream, struct net_op *op)
{
	while (op->pending)
		fiber_park();
	return net_op_result(stream, op);
}

int net_op_result(const struct net_stream *stream, const struct net_op *op)
{
	CHECK(!op->pending);
	if (op->result != -ECANCELED)
		return op->result;
	if (stream->shut)
		return -ECANCELED;
	return op->timed_out ? -ETIMEDOUT : -EINTR;
}

int net_stream_take(struct reactor *reactor, int fd, struct net_stream **ret_stream)
{
	struct net_stream *stream = calloc(1, sizeof(*stream));
	int on = 1;

	if (!stream) {
		close(fd);
		return -ENOMEM;
	}
	stream->ops = &net_plain_ops;
	stream->reactor = reactor;
	stream->fd = fd;
	stream->readable = true;
	stream->recv.op.done = op_done;
	stream->send.op.done = op_done;
	stream->timer.fn = deadline_fired;
	stream->timer.arg = stream;
	/* Each answer leaves whole, by one send. Sockets without this option refuse it. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	*ret_stream = stream;
	return 0;
}

void net_shutdown(struct net_stream *stream)
{
	stream->shut = true;
	if (stream->recv.pending || stream->send.pending)
		net_cancel(stream->reactor, stream->fd);
}

void net_close(struct net_stream *stream)
{
	if (!stream)
		return;
	CHECK(!stream->recv.pending);
	CHECK(!stream->send.pending);
	if (stream->timer.armed)
		reactor_timer_cancel(stream->reactor, &stream->timer);
	stream->ops->release(stream);
	close(stream->fd);
	free(stream);
}

const char *net_peer(struct net_stream *stream)
{
	union net_addr addr = {0};
	socklen_t len = sizeof(addr);

	if (!stream->peer[0]) {
		if (getpeername(stream->fd, &addr.any, &len))
			addr.any.sa_family = AF_UNSPEC;
		net_addr_print(&addr, stream->peer, sizeof(stream->peer));
	}
	return stream->peer;
}

/* ---- Connecting. ---- */

struct connect_arg {
	int fd;
	const union net_addr *addr;
};

static void connect_prep(struct io_uring_sqe *sqe, void *arg)
{
	const struct connect_arg *to = arg;

	io_uring_prep_connect(sqe, to->fd, &to->addr->any, net_addr_len(to->addr));
}

static int connect_one(const union net_addr *addr, uint64_t deadline_ns, int *ret_fd)
{
	struct connect_arg arg = {.addr = addr};
	int err;

	arg.fd = socket(addr->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (arg.fd < 0)
		return -errno;
	err = fiber_uring(connect_prep, &arg, deadline_ns);
	if (err < 0) {
		close(arg.fd);
		return err;
	}
	*ret_fd = arg.fd;
	return 0;
}

struct resolve_arg {
	struct net_name name;
	union net_addr addrs[NET_ADDRESSES_MAX];
	uint32_t count;
	int err;
};

static void resolve_on_helper(void *ptr)
{
	struct resolve_arg *arg = ptr;

	arg->err = net_addr_resolve(&arg->name, arg->addrs, &arg->count);
}

/* The next address's part of the time, so that one that never answers leaves some to the others. */
static uint64_t part_ends_ns(uint64_t deadline_ns, uint32_t addresses_left)
{
	uint64_t now_ns = clock_now_ns();

	if (deadline_ns == DEADLINE_NONE || deadline_ns <= now_ns)
		return deadline_ns;
	return now_ns + (deadline_ns - now_ns) / addresses_left;
}

int net_connect_first(
	const union net_addr *addrs, uint32_t count, uint64_t deadline_ns, int *ret_fd)
{
	int err = -EHOSTUNREACH;

	for (uint32_t i = 0; i < count; i++) {
		err = connect_one(&addrs[i], part_ends_ns(deadline_ns, count - i), ret_fd);
		if (!err || clock_now_ns() >= deadline_ns)
			break;
	}
	return err;
}

int net_connect(const char *address, uint64_t deadline_ns, struct net_stream **ret_stream)
{
	struct resolve_arg *arg = calloc(1, sizeof(*arg));
	socklen_t len;
	int fd = -1;
	int err;

	if (!arg)
		return -ENOMEM;
	err = net_name_parse(address, &arg->name);
	if (!err && (!arg->name.host[0] || !arg->name.port))
		err = -EINVAL;
	if (!err && !net_addr_numeric(&arg->name, &arg->addrs[0], &len)) {
		arg->count = 1;
	} else if (!err) {
		fiber_offload_long(resolve_on_helper, arg);
		err = arg->err;
	}
	if (!err)
		err = net_connect_first(arg->addrs, arg->count, deadline_ns, &fd);
	free(arg);
	return err ? err : net_stream_take(reactor_self(), fd, ret_stream);
}

enum net_gone net_gone(struct net_stream *stream)
{
	struct pollfd at = {.fd = stream->fd, .events = POLLRDHUP};

	if (stream->shut)
		return NET_GONE;
	if (poll(&at, 1, 0) <= 0)
		return NET_THERE;
	return at.revents & (POLLERR | POLLHUP) ? NET_GONE : NET_ENDED;
}
