/* net/net.h: byte streams on io_uring: TCP, and TLS over it. Fiber calls; one fiber at a time reads
 * and one writes a stream. Every wait has a deadline. The holder of a stream need not know its
 * kind. */
#ifndef NET_NET_H
#define NET_NET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/base.h"
#include "reactor/reactor.h"

struct net_stream;
struct net_listener;

/* "ADDR:PORT", "[v6]:PORT", "localhost:PORT", ":PORT" (every address, both families); port 0 asks
 * the kernel. -EADDRINUSE (also by another process of this program: of two that begin at once at
 * most one has it), -EACCES, -EADDRNOTAVAIL, -EINVAL (does not parse). */
int net_listen(struct reactor *reactor, const char *address, struct net_listener **ret_listener);
/* Another reactor's listener on the address of the first, which is still open: the kernel spreads
 * connections over them (SO_REUSEPORT). */
int net_listen_beside(struct reactor *reactor, const struct net_listener *first,
	struct net_listener **ret_listener);
/* A fiber waiting in accept gets -ECANCELED; connections that nobody took are closed. Takes NULL.
 * In a fiber: it waits until the kernel has let go of the socket. */
void net_listener_close(struct net_listener *listener);
uint16_t net_listener_port(const struct net_listener *listener);
/* Waits for the next connection; one fiber at a time. -EMFILE and its like are waited out inside,
 * with one log line. -ECANCELED: the listener was closed; -ENOMEM: the connection was, and the next
 * one may be waited for. */
int net_accept(struct net_listener *listener, struct net_stream **ret_stream);
/* A host name is looked up on a helper thread. -EINVAL (does not parse), -EHOSTUNREACH (no such
 * host), -ECONNREFUSED, -ETIMEDOUT and what else connect(2) says. Tries every address of a name. */
int net_connect(const char *address, uint64_t deadline_ns, struct net_stream **ret_stream);
/* A stream over a connected stream socket (one end of a socket pair); takes fd over, also when it
 * fails with -ENOMEM. */
int net_stream_take(struct reactor *reactor, int fd, struct net_stream **ret_stream);

/* At least 1 byte, at most len; 0 bytes: the peer closed in order. -ETIMEDOUT, -ECONNRESET,
 * -ECANCELED (net_shutdown). */
int net_recv(
	struct net_stream *stream, void *buf, size_t len, uint64_t deadline_ns, size_t *ret_bytes);
/* As net_recv, but waits until all len bytes are there; fewer (at least 1) only when the deadline
 * passed or the peer closed after them. For bodies: one wait for many packets, and a caller that
 * renews the deadline sees progress. */
int net_recv_full(
	struct net_stream *stream, void *buf, size_t len, uint64_t deadline_ns, size_t *ret_bytes);
/* All of it, or an error (-EPIPE and -ECONNRESET: the peer is gone). iov is used up (changed). */
int net_sendv(
	struct net_stream *stream, struct iovec *iov, uint32_t iov_count, uint64_t deadline_ns);
/* As net_sendv, and -ETIMEDOUT also when stall_ns passed in which no byte left. */
int net_sendv_stall(struct net_stream *stream, struct iovec *iov, uint32_t iov_count,
	uint64_t stall_ns, uint64_t deadline_ns);
/* Waits until there is something to receive (or the end, or an error, which receiving will tell),
 * for those who take memory to receive into only then. -ETIMEDOUT, -ECANCELED. */
int net_wait_readable(struct net_stream *stream, uint64_t deadline_ns);
/* Tells the peer that no more comes; it may go on sending. TLS may wait a moment for room. */
void net_send_end(struct net_stream *stream);
/* Wakes the fibers that wait on the stream with -ECANCELED; every later call returns that too. */
void net_shutdown(struct net_stream *stream);
/* No fiber may be in a call on it. Takes NULL. */
void net_close(struct net_stream *stream);
/* "192.0.2.1:40001", "[2001:db8::1]:40001"; "local" when it is not an Internet socket. Lives as
 * long as the stream. */
const char *net_peer(struct net_stream *stream);

/* ---- TLS 1.2 and 1.3 (RFC 5246, RFC 8446), the server's side. ---- */

/* A server's certificate and key, for streams of any reactor. */
struct net_tls;

struct net_tls_opts {
	const char *certificate; /* PEM file: the server's own first, then the chain */
	const char *key;	 /* PEM file, without a passphrase */
	const char *client_ca;	 /* PEM file: clients must have a certificate of one of these
				    authorities; NULL or "": anybody */
};
/* Any thread, but not a reactor's: it reads files. The strings are copied. On an error the log has
 * the file and the reason; a certificate that has expired, or will soon, causes a warning. -EINVAL:
 * a file holds something else, or the key is another certificate's; -ENOENT, -EACCES and what else
 * opening a file says; -ENOMEM. */
int net_tls_open(const struct net_tls_opts *opts, struct net_tls **ret_tls);
/* Reads the files anew, for the handshakes to come; streams go on as they are. Errors as above, and
 * then what was read before stays. Where and whether as for open; one thread at a time. */
int net_tls_reload(struct net_tls *tls);
/* Whether a file is another than was read last, also when reading it failed. As reload. */
bool net_tls_changed(const struct net_tls *tls);
/* Streams may outlive it. Takes NULL. */
void net_tls_close(struct net_tls *tls);
/* "AB:CD:…", the SHA-256 of the server's own certificate. Any thread. */
#define NET_TLS_FINGERPRINT_LEN 95
void net_tls_fingerprint(struct net_tls *tls, char ret_text[NET_TLS_FINGERPRINT_LEN + 1]);

/* Makes dir, and in it certificate.pem and key.pem, self-signed for localhost, for this machine's
 * name and for host (a name or an address, or ""), unless they are there and good for some days
 * more. Readable by this user alone. Not on a reactor. Errors as net_tls_open, and logged. */
int net_tls_make_self_signed(const char *dir, const char *host);

/* The server's side of a handshake over a stream that was only accepted so far. On success the
 * stream speaks TLS from here on. On failure it is plain as before, the peer has been told why, and
 * all that is left to do is to close it, in order if the peer shall see the reason. -ETIMEDOUT,
 * -ECANCELED, -ECONNRESET, -ENOMEM; -EPROTO: the two do not agree; -EPROTOTYPE: the peer speaks
 * HTTP without TLS, and can be told so in kind. */
int net_tls_accept(struct net_tls *tls, struct net_stream *stream, uint64_t deadline_ns);

#endif
