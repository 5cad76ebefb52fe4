/* net/tls_dp.c: records in and out.
 *
 * The library receives from the socket straight into its own record buffer and sends its records
 * straight from there: we have no buffer in between, and an idle session holds no buffer at all.
 * The one copy that TLS adds is the library's, between its record and the caller's memory. Where
 * the socket has nothing, or no room, the call ends and the fiber waits in the ring. A send is cut
 * into records. Buffers smaller than a record are first copied together, so that a head and its
 * body share a record; all records except the last are sent with "more follows", so that they share
 * packets. Where the kernel makes the records (tls_kernel.c), data is sent as on a plain stream. */
#include "net/tls_priv.h"

#include <errno.h>
#include <openssl/err.h>
#include <poll.h>

/* ---- The socket. ---- */

int tls_bio_read(BIO *bio, char *buf, size_t len, size_t *ret_bytes)
{
	struct tls_session *session = BIO_get_data(bio);
	struct net_stream *stream = session->stream;
	ssize_t done;

	BIO_clear_retry_flags(bio);
	if (!stream->readable) {
		BIO_set_retry_read(bio);
		return 0;
	}
	do {
		done = recv(stream->fd, buf, len, MSG_DONTWAIT);
	} while (done < 0 && errno == EINTR);
	stream->readable = done == (ssize_t)len;
	if (done > 0) {
		if (!session->first_byte)
			session->first_byte = (uint8_t)buf[0];
		*ret_bytes = (size_t)done;
		return 1;
	}
	if (done < 0 && errno == EAGAIN)
		BIO_set_retry_read(bio);
	else /* an end without close_notify may be forged */
		session->io_error = done ? -errno : -ECONNRESET;
	return 0;
}

int tls_bio_write(BIO *bio, const char *buf, size_t len, size_t *ret_bytes)
{
	struct tls_session *session = BIO_get_data(bio);
	int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (session->more ? MSG_MORE : 0);
	ssize_t done;

	BIO_clear_retry_flags(bio);
	do {
		done = session->record_type ? tls_kernel_send_record(session, buf, len)
					    : send(session->stream->fd, buf, len, flags);
	} while (done < 0 && errno == EINTR);
	if (done >= 0) {
		*ret_bytes = (size_t)done;
		return 1;
	}
	if (errno == EAGAIN)
		BIO_set_retry_write(bio);
	else
		session->io_error = -errno;
	return 0;
}

/* ---- Receiving. ---- */

/* The library reports an error by a queue, which must be empty before the call. */
static bool read_some(struct tls_session *session, void *buf, size_t len, size_t *ret_bytes)
{
	ERR_clear_error();
	return SSL_read_ex(session->ssl, buf, len, ret_bytes);
}

static int tls_recv(
	struct net_stream *stream, void *buf, size_t len, uint64_t deadline_ns, size_t *ret_bytes)
{
	struct tls_session *session = stream->tls;
	int err;

	if (session->error)
		return session->error;
	while (!read_some(session, buf, len, ret_bytes)) {
		err = tls_wait(stream, &stream->recv, deadline_ns);
		if (err == -ESHUTDOWN) {
			*ret_bytes = 0;
			return 0;
		}
		if (err)
			return err;
	}
	return 0;
}

static int tls_recv_begin(struct net_stream *stream, struct iovec to, uint64_t deadline_ns,
	struct net_later later, size_t *ret_bytes)
{
	struct tls_session *session = stream->tls;
	struct net_op *op = &stream->recv;

	if (session->error)
		return session->error;
	if (read_some(session, to.iov_base, to.iov_len, ret_bytes))
		return 0;
	/* Everything else is an end, an error, or rare. */
	if (SSL_get_error(session->ssl, 0) != SSL_ERROR_WANT_READ)
		return tls_recv(stream, to.iov_base, to.iov_len, deadline_ns, ret_bytes);
	net_op_begin(stream, op, deadline_ns);
	io_uring_prep_poll_add(
		reactor_sqe(stream->reactor, &op->op), stream->fd, POLLIN | POLLRDHUP);
	op->later = later;
	return -EINPROGRESS;
}

static int tls_recv_end(
	struct net_stream *stream, struct iovec to, uint64_t deadline_ns, size_t *ret_bytes)
{
	int done = net_op_result(stream, &stream->recv);

	if (done < 0 && done != -EINTR)
		return done;
	stream->readable = true;
	return tls_recv(stream, to.iov_base, to.iov_len, deadline_ns, ret_bytes);
}

static int tls_recv_full(
	struct net_stream *stream, void *buf, size_t len, uint64_t deadline_ns, size_t *ret_bytes)
{
	struct tls_session *session = stream->tls;
	size_t have = 0, turn = 0, got;
	int err = session->error;

	while (have < len && !err) {
		if (!read_some(session, (char *)buf + have, len - have, &got)) {
			err = tls_wait(stream, &stream->recv, deadline_ns);
			turn = 0;
			continue;
		}
		have += got;
		turn += got;
		if (turn >= TLS_TURN_BYTES) {
			turn = 0;
			fiber_yield();
			err = stream->shut ? -ECANCELED : session->error;
		}
	}
	/* An error after the first bytes shows again on the next call. */
	if (err && err != -ESHUTDOWN && !have)
		return err;
	*ret_bytes = have;
	return 0;
}

/* 0: there is data, the end, or an error. */
static int peek(struct net_stream *stream)
{
	struct tls_session *session = stream->tls;
	char byte;
	size_t got;
	int why;

	if (session->error)
		return 0;
	ERR_clear_error();
	if (SSL_peek_ex(session->ssl, &byte, 1, &got))
		return 0;
	why = SSL_get_error(session->ssl, 0);
	return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? -EAGAIN : 0;
}

static int tls_wait_readable(struct net_stream *stream, uint64_t deadline_ns)
{
	int err;

	stream->readable = true; /* ask the socket itself */
	while (peek(stream) == -EAGAIN) {
		err = tls_wait(stream, &stream->recv, deadline_ns);
		if (err)
			return err == -ETIMEDOUT || err == -ECANCELED ? err : 0;
	}
	return 0;
}

/* ---- Sending. ---- */

static _Thread_local uint8_t record[TLS_RECORD_BYTES];

/* The next record's bytes, from a list that is not empty: in place when they are one run, else
 * copied together. They are valid until the next fiber runs. */
static const void *record_gather(const struct msghdr *msg, size_t *ret_len)
{
	const struct iovec *iov = msg->msg_iov;
	size_t have = 0;

	if (iov->iov_len >= TLS_RECORD_BYTES || msg->msg_iovlen == 1) {
		*ret_len = MIN(iov->iov_len, (size_t)TLS_RECORD_BYTES);
		return iov->iov_base;
	}
	for (size_t i = 0; i < msg->msg_iovlen && have < TLS_RECORD_BYTES; i++) {
		size_t len = MIN(iov[i].iov_len, TLS_RECORD_BYTES - have);

		if (len)
			memcpy(record + have, iov[i].iov_base, len);
		have += len;
	}
	*ret_len = have;
	return record;
}

/* A record that was not sent whole is gathered again for the next try, to the same bytes: the
 * library may not have read them yet, and other fibers have used the buffer meanwhile. */
static int tls_send(struct net_stream *stream, struct msghdr *msg, struct net_patience patience)
{
	struct tls_session *session = stream->tls;
	size_t left = net_iov_advance(msg, 0);
	size_t turn = 0, len, done;
	const void *data;
	int err = session->error;

	if (session->kernel_sends && !err)
		return tls_kernel_send(stream, msg, patience);
	while (left && !err) {
		data = record_gather(msg, &len);
		session->more = left > len;
		ERR_clear_error();
		if (!SSL_write_ex(session->ssl, data, len, &done)) {
			err = tls_wait(stream, &stream->send, net_step_deadline_ns(patience));
			turn = 0;
			continue;
		}
		left = net_iov_advance(msg, done);
		turn += done;
		if (turn >= TLS_TURN_BYTES && left) {
			turn = 0;
			fiber_yield();
			err = stream->shut ? -ECANCELED : session->error;
		}
	}
	return err == -ESHUTDOWN ? -EPIPE : err;
}

const struct net_stream_ops net_tls_ops = {
	.name = "tls",
	.recv = tls_recv,
	.recv_begin = tls_recv_begin,
	.recv_end = tls_recv_end,
	.recv_full = tls_recv_full,
	.send = tls_send,
	.wait_readable = tls_wait_readable,
	.send_end = tls_send_end,
	.release = tls_release,
};
