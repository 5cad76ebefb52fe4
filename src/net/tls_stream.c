/* net/tls_stream.c: opens a TLS session (the handshake), waits for its socket, and ends it. */
#include "net/tls_priv.h"

#include <errno.h>
#include <openssl/err.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>

DEFINE_COUNTER(handshakes_total, "nebulaio_tls_handshakes_total", NULL,
	"TLS handshakes that succeeded, resumptions included.");
DEFINE_COUNTER(failures_total, "nebulaio_tls_handshake_failures_total", NULL,
	"TLS handshakes that failed: refused, aborted, or too slow.");
DEFINE_COUNTER(resumptions_total, "nebulaio_tls_resumptions_total", NULL,
	"TLS handshakes that resumed an earlier session.");
DEFINE_COUNTER(kernel_total, "nebulaio_tls_kernel_sessions_total", NULL,
	"TLS sessions whose sent data the kernel encrypts.");

/* ---- The socket as the library sees it. ---- */

static BIO_METHOD *bio_method;

static long bio_ctrl(BIO *bio, int command, long number, void *ptr)
{
	/* This stream buffers nothing. All other commands are optional. */
	return command == BIO_CTRL_FLUSH ||
	       tls_kernel_ctrl(BIO_get_data(bio), command, number, ptr);
}

static int bio_create(BIO *bio)
{
	BIO_set_init(bio, 1);
	return 1;
}

static void bio_method_make(void)
{
	BIO_METHOD *method =
		BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "nebulaio stream");

	if (!method)
		return;
	BIO_meth_set_read_ex(method, tls_bio_read);
	BIO_meth_set_write_ex(method, tls_bio_write);
	BIO_meth_set_ctrl(method, bio_ctrl);
	BIO_meth_set_create(method, bio_create);
	bio_method = method;
}

/* The socket as the library sees it: it asks the socket at once and never waits. */
static const BIO_METHOD *tls_bio_method(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, bio_method_make);
	return bio_method;
}

/* ---- Waits. ---- */

static __attribute__((noinline, cold)) int session_fail(struct tls_session *session)
{
	char why[160];

	session->error = session->io_error ? session->io_error : -EPROTO;
	log_debug("tls", "%s: %s", net_peer(session->stream),
		session->io_error ? strerror(-session->io_error) : tls_reason(why, sizeof(why)));
	ERR_clear_error();
	return session->error;
}

int tls_wait(struct net_stream *stream, struct net_op *op, uint64_t deadline_ns)
{
	struct tls_session *session = stream->tls;
	int err;

	switch (SSL_get_error(session->ssl, 0)) {
	case SSL_ERROR_WANT_READ:
		err = net_poll(stream, op, POLLIN | POLLRDHUP, deadline_ns);
		if (!err)
			stream->readable = true;
		break;
	case SSL_ERROR_WANT_WRITE:
		err = net_poll(stream, op, POLLOUT, deadline_ns);
		break;
	case SSL_ERROR_ZERO_RETURN:
		return -ESHUTDOWN;
	default:
		return session_fail(session);
	}
	/* Another fiber on the stream may have failed the session meanwhile. */
	return err ? err : session->error;
}

/* ---- From handshake to end. ---- */

static void session_free(struct tls_session *session)
{
	SSL_free(session->ssl);
	free(session);
}

static struct tls_session *session_new(
	struct net_tls *tls, struct net_stream *stream, bool connects)
{
	struct tls_session *session = calloc(1, sizeof(*session));
	const BIO_METHOD *method = tls_bio_method();
	BIO *bio = method ? BIO_new(method) : NULL;

	if (session)
		session->ssl = tls_ssl_new(tls);
	if (!session || !session->ssl || !bio) {
		BIO_free(bio);
		if (session)
			session_free(session);
		ERR_clear_error();
		return NULL;
	}
	session->stream = stream;
	BIO_set_data(bio, session);
	SSL_set_bio(session->ssl, bio, bio);
	if (connects)
		SSL_set_connect_state(session->ssl);
	else
		SSL_set_accept_state(session->ssl);
	return session;
}

static int handshake(struct net_stream *stream, uint64_t deadline_ns)
{
	struct tls_session *session = stream->tls;
	int err;

	for (;;) {
		if (stream->shut)
			return -ECANCELED;
		ERR_clear_error();
		if (SSL_do_handshake(session->ssl) == 1)
			return 0;
		err = tls_wait(stream, &stream->recv, deadline_ns);
		if (err == -ESHUTDOWN)
			return -ECONNRESET;
		/* No record of TLS begins with a letter, and every request of HTTP does. */
		if (err == -EPROTO && session->first_byte >= 'A' && session->first_byte <= 'Z')
			return -EPROTOTYPE;
		if (err)
			return err;
	}
}

static int open_session(
	struct net_tls *tls, struct net_stream *stream, bool connects, uint64_t deadline_ns)
{
	struct tls_session *session;
	int err;

	CHECK(stream->ops == &net_plain_ops);
	session = session_new(tls, stream, connects);
	if (!session)
		return -ENOMEM;
	stream->tls = session;
	err = handshake(stream, deadline_ns);
	if (err) {
		counter_add(&failures_total, 1);
		stream->tls = NULL;
		session_free(session);
		return err;
	}
	counter_add(&handshakes_total, 1);
	if (SSL_session_reused(session->ssl))
		counter_add(&resumptions_total, 1);
	if (session->kernel_sends)
		counter_add(&kernel_total, 1);
	stream->ops = &net_tls_ops;
	return 0;
}

int net_tls_accept(struct net_tls *tls, struct net_stream *stream, uint64_t deadline_ns)
{
	return open_session(tls, stream, false, deadline_ns);
}

int net_tls_connect(struct net_tls *tls, struct net_stream *stream, uint64_t deadline_ns)
{
	bool verifies = tls_verifies(tls);
	int ret;

	CHECK(verifies);
	ret = open_session(tls, stream, true, deadline_ns);
	return ret == -EPROTOTYPE ? -EPROTO : ret;
}

/* Sends close_notify, which may take several tries; deadline_ns 0: one try. */
static void say_goodbye(struct net_stream *stream, uint64_t deadline_ns)
{
	struct tls_session *session = stream->tls;

	/* The peer must not read a cut or a failure as a clean end. */
	if (session->error || stream->shut)
		return;
	session->more = false;
	ERR_clear_error();
	while (SSL_shutdown(session->ssl) < 0) {
		if (!deadline_ns || tls_wait(stream, &stream->send, deadline_ns))
			break;
		ERR_clear_error();
	}
	ERR_clear_error();
}

void tls_send_end(struct net_stream *stream)
{
	if (!(SSL_get_shutdown(stream->tls->ssl) & SSL_SENT_SHUTDOWN))
		say_goodbye(stream, clock_now_ns() + TLS_END_NS);
	shutdown(stream->fd, SHUT_WR);
}

void tls_release(struct net_stream *stream)
{
	if (!(SSL_get_shutdown(stream->tls->ssl) & SSL_SENT_SHUTDOWN))
		say_goodbye(stream, 0);
	session_free(stream->tls);
	stream->tls = NULL;
}
