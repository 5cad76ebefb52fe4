/* net/stream_dp.c: receives and sends on streams of every kind, and implements plain streams.
 *
 * A send asks the socket first: its buffer almost always takes a whole answer, and then the
 * caller's memory is free without a round through the ring. A receive asks the socket first only
 * when the socket probably holds data; otherwise it waits in the ring, whose submissions leave in
 * one batch at the end of the turn. */
#include "net/net_priv.h"

#include <errno.h>
#include <poll.h>

/* The most bytes and buffers of one call: fewer bytes while other clients use the processor. */
#define SEND_TURN_BYTES	       (1 * MIB)
#define SEND_TURN_SHARED_BYTES (128 * KIB)
#define SEND_PARTS	       4u

static bool retry_plain(ssize_t done)
{
	return done < 0 && errno == EINTR;
}

/* -EAGAIN: nothing now. */
static int recv_now(struct net_stream *stream, void *buf, size_t len, size_t *ret_bytes)
{
	ssize_t done;

	do {
		done = recv(stream->fd, buf, len, MSG_DONTWAIT);
	} while (retry_plain(done));
	stream->readable = done == (ssize_t)len;
	if (done < 0)
		return -errno;
	*ret_bytes = (size_t)done;
	return 0;
}

static void recv_start(struct net_stream *stream, struct iovec to, int flags, uint64_t deadline_ns)
{
	struct io_uring_sqe *sqe;

	net_op_begin(stream, &stream->recv, deadline_ns);
	sqe = reactor_sqe(stream->reactor, &stream->recv.op);
	io_uring_prep_recv(sqe, stream->fd, to.iov_base, to.iov_len, flags);
	sqe->ioprio = IORING_RECVSEND_POLL_FIRST;
}

static int recv_ring(struct net_stream *stream, struct iovec to, int flags, uint64_t deadline_ns)
{
	struct net_op *op = &stream->recv;
	int done;

	do {
		if (stream->shut)
			return -ECANCELED;
		recv_start(stream, to, flags, deadline_ns);
		done = net_op_wait(stream, op);
	} while (done == -EINTR);
	stream->readable = op->more || done == (int)to.iov_len;
	return done;
}

static int plain_recv(
	struct net_stream *stream, void *buf, size_t len, uint64_t deadline_ns, size_t *ret_bytes)
{
	int done;

	if (stream->readable) {
		done = recv_now(stream, buf, len, ret_bytes);
		if (done != -EAGAIN)
			return done;
	}
	done = recv_ring(stream, (struct iovec){buf, len}, 0, deadline_ns);
	if (done < 0)
		return done;
	*ret_bytes = (size_t)done;
	return 0;
}

static int plain_recv_begin(struct net_stream *stream, struct iovec to, uint64_t deadline_ns,
	struct net_later later, size_t *ret_bytes)
{
	int err = stream->readable ? recv_now(stream, to.iov_base, to.iov_len, ret_bytes) : -EAGAIN;

	if (err != -EAGAIN)
		return err;
	recv_start(stream, to, 0, deadline_ns);
	stream->recv.later = later;
	return -EINPROGRESS;
}

static int plain_recv_end(
	struct net_stream *stream, struct iovec to, uint64_t deadline_ns, size_t *ret_bytes)
{
	int done = net_op_result(stream, &stream->recv);

	if (done == -EINTR)
		return net_recv(stream, to.iov_base, to.iov_len, deadline_ns, ret_bytes);
	stream->readable = stream->recv.more || done == (int)to.iov_len;
	if (done < 0)
		return done;
	*ret_bytes = (size_t)done;
	return 0;
}

static int plain_recv_full(
	struct net_stream *stream, void *buf, size_t len, uint64_t deadline_ns, size_t *ret_bytes)
{
	size_t have = 0;
	int done;

	done = recv_now(stream, buf, len, &have);
	if (done != -EAGAIN && (done || !have || have == len)) {
		if (!done)
			*ret_bytes = have;
		return done;
	}
	done = recv_ring(
		stream, (struct iovec){(char *)buf + have, len - have}, MSG_WAITALL, deadline_ns);
	/* An error after the first bytes shows again on the next call. */
	if (done < 0 && !have)
		return done;
	*ret_bytes = have + (done > 0 ? (size_t)done : 0);
	return 0;
}

/* Something, the end or an error; false: nothing yet. */
static bool plain_readable(struct net_stream *stream)
{
	ssize_t done;
	char byte;

	do {
		done = recv(stream->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	} while (retry_plain(done));
	return done >= 0 || errno != EAGAIN;
}

int net_poll(struct net_stream *stream, struct net_op *op, uint32_t events, uint64_t deadline_ns)
{
	int done;

	do {
		if (stream->shut)
			return -ECANCELED;
		net_op_begin(stream, op, deadline_ns);
		io_uring_prep_poll_add(reactor_sqe(stream->reactor, &op->op), stream->fd, events);
		done = net_op_wait(stream, op);
	} while (done == -EINTR);
	return MIN(done, 0);
}

static int plain_wait_readable(struct net_stream *stream, uint64_t deadline_ns)
{
	int err = plain_readable(stream)
			  ? 0
			  : net_poll(stream, &stream->recv, POLLIN | POLLRDHUP, deadline_ns);

	stream->readable = !err;
	return err;
}

size_t net_iov_advance(struct msghdr *msg, size_t done)
{
	size_t left = 0;

	while (msg->msg_iovlen && done >= msg->msg_iov->iov_len) {
		done -= msg->msg_iov->iov_len;
		msg->msg_iov++;
		msg->msg_iovlen--;
	}
	if (msg->msg_iovlen) {
		msg->msg_iov->iov_base = (char *)msg->msg_iov->iov_base + done;
		msg->msg_iov->iov_len -= done;
	}
	for (size_t i = 0; i < msg->msg_iovlen; i++)
		left += msg->msg_iov[i].iov_len;
	return left;
}

/* The first bytes of a list, at most one slice; returns how many. */
static size_t send_slice(
	const struct msghdr *msg, struct iovec part[SEND_PARTS], struct msghdr *some)
{
	size_t bytes_max = fiber_contended() ? SEND_TURN_SHARED_BYTES : SEND_TURN_BYTES;
	size_t bytes = 0;

	*some = (struct msghdr){.msg_iov = part};
	while (some->msg_iovlen < MIN(msg->msg_iovlen, SEND_PARTS) && bytes < bytes_max) {
		struct iovec *next = &part[some->msg_iovlen];

		*next = msg->msg_iov[some->msg_iovlen++];
		next->iov_len = MIN(next->iov_len, bytes_max - bytes);
		bytes += next->iov_len;
	}
	return bytes;
}

/* Sends in slices, so that a peer that takes everything at once does not delay other fibers. When
 * the socket has no room, the fiber waits for room in the ring, not with a send there: otherwise
 * the kernel would copy for all sockets with room before any fiber runs. */
static int plain_send(struct net_stream *stream, struct msghdr *msg, struct net_patience patience)
{
	size_t left = net_iov_advance(msg, 0);

	while (left) {
		struct iovec part[SEND_PARTS];
		struct msghdr some;
		size_t bytes = send_slice(msg, part, &some);
		ssize_t sent = sendmsg(stream->fd, &some, MSG_NOSIGNAL | MSG_DONTWAIT);
		int err;

		if (retry_plain(sent))
			continue;
		if (sent < 0 && errno != EAGAIN)
			return -errno;
		if (sent > 0)
			left = net_iov_advance(msg, (size_t)sent);
		if (sent == (ssize_t)bytes) {
			if (left)
				fiber_yield_due();
			err = stream->shut ? -ECANCELED : 0;
		} else {
			err = net_poll(
				stream, &stream->send, POLLOUT, net_step_deadline_ns(patience));
		}
		if (err && left)
			return err;
	}
	return 0;
}

static void plain_send_end(struct net_stream *stream)
{
	shutdown(stream->fd, SHUT_WR);
}

static void plain_release(struct net_stream *stream)
{
	(void)stream; /* the socket is every stream's */
}

const struct net_stream_ops net_plain_ops = {
	.name = "plain",
	.recv = plain_recv,
	.recv_begin = plain_recv_begin,
	.recv_end = plain_recv_end,
	.recv_full = plain_recv_full,
	.send = plain_send,
	.wait_readable = plain_wait_readable,
	.send_end = plain_send_end,
	.release = plain_release,
};

/* ---- Of any kind. ---- */

int net_recv(
	struct net_stream *stream, void *buf, size_t len, uint64_t deadline_ns, size_t *ret_bytes)
{
	if (stream->shut)
		return -ECANCELED;
	return stream->ops->recv(stream, buf, len, deadline_ns, ret_bytes);
}

int net_recv_begin(struct net_stream *stream, void *buf, size_t len, uint64_t deadline_ns,
	struct net_later later, size_t *ret_bytes)
{
	const struct iovec to = {buf, len};

	if (stream->shut)
		return -ECANCELED;
	return stream->ops->recv_begin(stream, to, deadline_ns, later, ret_bytes);
}

int net_recv_end(
	struct net_stream *stream, void *buf, size_t len, uint64_t deadline_ns, size_t *ret_bytes)
{
	const struct iovec to = {buf, len};

	if (stream->shut)
		return -ECANCELED;
	return stream->ops->recv_end(stream, to, deadline_ns, ret_bytes);
}

int net_recv_full(
	struct net_stream *stream, void *buf, size_t len, uint64_t deadline_ns, size_t *ret_bytes)
{
	if (stream->shut)
		return -ECANCELED;
	return stream->ops->recv_full(stream, buf, len, deadline_ns, ret_bytes);
}

int net_wait_readable(struct net_stream *stream, uint64_t deadline_ns)
{
	return stream->shut ? -ECANCELED : stream->ops->wait_readable(stream, deadline_ns);
}

int net_sendv(
	struct net_stream *stream, struct iovec *iov, uint32_t iov_count, uint64_t deadline_ns)
{
	return net_sendv_stall(stream, iov, iov_count, 0, deadline_ns);
}

int net_sendv_stall(struct net_stream *stream, struct iovec *iov, uint32_t iov_count,
	uint64_t stall_ns, uint64_t deadline_ns)
{
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = iov_count};
	const struct net_patience patience = {deadline_ns, stall_ns};

	return stream->shut ? -ECANCELED : stream->ops->send(stream, &msg, patience);
}

void net_send_end(struct net_stream *stream)
{
	stream->ops->send_end(stream);
}
