/* net/tls_kernel.c: gives the sending half of a session to the kernel, which then makes its
 * records.
 *
 * The library offers the keys once they are those of application data, and says of each later
 * record of its own (a ticket, an alert) which type it has. Data is then sent as on a plain stream.
 * The library decrypts as before. A session whose peer asks for new keys (KeyUpdate) ends when data
 * is sent: kernels take keys once. */
#include "net/tls_priv.h"

#include <errno.h>
#include <linux/tls.h>
#include <netinet/tcp.h>
#include <unistd.h>

/* The library's commands: <openssl/bio.h> has their numbers in a comment. */
#define CTRL_SET_KTLS	       72
#define CTRL_SET_RECORD_TYPE   74
#define CTRL_CLEAR_RECORD_TYPE 75

bool tls_kernel_has(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool has;

	if (fd < 0)
		return false;
	/* -ENOENT: it has none. A kernel that has it wants a connection first. */
	has = !setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", sizeof("tls")) || errno == ENOTCONN;
	close(fd);
	return has;
}

/* The library's own socket knows how it hands over keys. */
static bool take_keys(const struct tls_session *session, void *keys)
{
	BIO *socket = BIO_new_socket(session->stream->fd, BIO_NOCLOSE);
	bool taken = socket && BIO_ctrl(socket, CTRL_SET_KTLS, true, keys) > 0;

	if (!taken)
		log_debug("tls", "%s: the kernel does not take the keys of this cipher",
			net_peer(session->stream));
	BIO_free(socket);
	return taken;
}

long tls_kernel_ctrl(struct tls_session *session, int command, long number, void *ptr)
{
	switch (command) {
	case CTRL_SET_KTLS:
		if (!number) /* the keys of what is received */
			return false;
		session->kernel_sends = take_keys(session, ptr);
		return session->kernel_sends;
	case BIO_CTRL_GET_KTLS_SEND:
		return session->kernel_sends;
	case CTRL_SET_RECORD_TYPE:
		session->record_type = (uint8_t)number;
		return false;
	case CTRL_CLEAR_RECORD_TYPE:
		session->record_type = 0;
		return false;
	default:
		return false;
	}
}

int tls_kernel_send(struct net_stream *stream, struct msghdr *msg, struct net_patience patience)
{
	struct tls_session *session = stream->tls;

	if (SSL_get_key_update_type(session->ssl) != SSL_KEY_UPDATE_NONE) {
		log_debug("tls", "%s: it asks for new keys, which the kernel does not take",
			net_peer(stream));
		session->error = -EPROTO;
		return session->error;
	}
	return net_plain_ops.send(stream, msg, patience);
}

ssize_t tls_kernel_send_record(struct tls_session *session, const char *buf, size_t len)
{
	union {
		struct cmsghdr head;
		uint8_t bytes[CMSG_SPACE(sizeof(session->record_type))];
	} control = {.head = {.cmsg_len = CMSG_LEN(sizeof(session->record_type)),
			     .cmsg_level = SOL_TLS,
			     .cmsg_type = TLS_SET_RECORD_TYPE}};
	struct iovec iov = {(void *)buf, len};
	struct msghdr msg = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	ssize_t done;

	*CMSG_DATA(&control.head) = session->record_type;
	done = sendmsg(session->stream->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (done == (ssize_t)len)
		session->record_type = 0;
	return done;
}
