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
 * the kernel. -EADDRINUSE (also when another process of this program has it: of two that begin at
 * the same time, at most one gets it), -EACCES, -EADDRNOTAVAIL, -EINVAL (does not parse). */
int net_listen(struct reactor *reactor, const char *address, struct net_listener **ret_listener);
/* The same, but tries an address that is in use for 2 s: the sockets of a process that was killed
 * may outlive it for a moment. */
int net_listen_patiently(
	struct reactor *reactor, const char *address, struct net_listener **ret_listener);
/* A socket of the file system, which this user alone may connect to. A socket that an ended process
 * left there is replaced. The path is borrowed, and removed when the listener closes. -EADDRINUSE:
 * a process listens there; -EEXIST: something else is there; -ENAMETOOLONG, and the errors of
 * bind(2). */
int net_listen_unix(struct reactor *reactor, const char *path, struct net_listener **ret_listener);
/* Another reactor's listener on the address of the first, which is still open: the kernel spreads
 * connections over them (SO_REUSEPORT). */
int net_listen_beside(struct reactor *reactor, const struct net_listener *first,
	struct net_listener **ret_listener);
/* A fiber waiting in accept gets -ECANCELED; connections that were not accepted are closed. Takes
 * NULL. In a fiber, the call waits until the kernel has released the socket. */
void net_listener_close(struct net_listener *listener);
uint16_t net_listener_port(const struct net_listener *listener); /* 0: it has none */
/* Waits for the next connection; one fiber at a time. The call itself waits until errors such as
 * -EMFILE end, and logs one line. -ECANCELED: the listener was closed; -ENOMEM: the connection was
 * closed, and the caller may wait for the next one. */
int net_accept(struct net_listener *listener, struct net_stream **ret_stream);
/* A host name is looked up on a helper thread. -EINVAL (does not parse), -EHOSTUNREACH (no such
 * host), -ECONNREFUSED, -ETIMEDOUT and the other errors of connect(2). Tries every address of a
 * name. */
int net_connect(const char *address, uint64_t deadline_ns, struct net_stream **ret_stream);
/* A stream over a connected stream socket (one end of a socket pair). Takes ownership of fd, also
 * when it fails with -ENOMEM. */
int net_stream_take(struct reactor *reactor, int fd, struct net_stream **ret_stream);

/* At least 1 byte, at most len; 0 bytes: the peer closed in order. -ETIMEDOUT, -ECONNRESET,
 * -ECANCELED (net_shutdown). */
int net_recv(
	struct net_stream *stream, void *buf, size_t len, uint64_t deadline_ns, size_t *ret_bytes);
/* As net_recv, but keeps no fiber while it waits: it then returns -EINPROGRESS, the fiber may end,
 * and when something has come, or the end, an error or net_shutdown, the stream calls later.fn,
 * once, on the reactor and outside fibers. After that, and before any other call, a fiber takes the
 * result by net_recv_end with the same memory and deadline; or nobody does, and the stream is
 * closed. */
struct net_later {
	void (*fn)(void *arg);
	void *arg;
};
int net_recv_begin(struct net_stream *stream, void *buf, size_t len, uint64_t deadline_ns,
	struct net_later later, size_t *ret_bytes);
int net_recv_end(
	struct net_stream *stream, void *buf, size_t len, uint64_t deadline_ns, size_t *ret_bytes);
/* As net_recv, but waits until all len bytes are there; fewer (at least 1) only when the deadline
 * passed or the peer closed after them. For bodies: one wait for many packets. A caller that renews
 * the deadline sees progress. */
int net_recv_full(
	struct net_stream *stream, void *buf, size_t len, uint64_t deadline_ns, size_t *ret_bytes);
/* Sends all of it, or returns an error (-EPIPE and -ECONNRESET: the peer is gone). The call changes
 * iov. */
int net_sendv(
	struct net_stream *stream, struct iovec *iov, uint32_t iov_count, uint64_t deadline_ns);
/* As net_sendv, but also -ETIMEDOUT when no byte was sent for stall_ns. */
int net_sendv_stall(struct net_stream *stream, struct iovec *iov, uint32_t iov_count,
	uint64_t stall_ns, uint64_t deadline_ns);
/* Waits until there is something to receive (or the end, or an error, which the next receive
 * returns). For callers that allocate the receive memory only then. -ETIMEDOUT, -ECANCELED. */
int net_wait_readable(struct net_stream *stream, uint64_t deadline_ns);
/* How far the peer has gone: it has ended its side, and may still wait for an answer; or nothing
 * that is sent arrives. Never waits. Any thread, while the stream stays open. */
enum net_gone { NET_THERE, NET_ENDED, NET_GONE };
enum net_gone net_gone(struct net_stream *stream);
/* Lets the kernel ask a peer that has sent nothing for idle_s seconds whether it is still there.
 * When it does not answer for as long again, receives fail with -ETIMEDOUT. For streams that may be
 * silent without end, whose peer may lose its power. */
void net_keepalive(struct net_stream *stream, uint32_t idle_s);
/* Whether the peer's host has acknowledged nothing for silent_ns though it has room for what was
 * sent: the path is cut, at least one way, or the host is gone. The acknowledgements are the
 * kernel's: a peer whose process is slow, does not read or is stopped is not unheard. For streams
 * with net_keepalive, which works only while nothing that was sent waits for its acknowledgement;
 * the kernel alone sends that again for up to 15 minutes. For one who has waited since since_ns,
 * and calls this every second or so, for it compares with the last call. Never waits. */
bool net_unheard(struct net_stream *stream, uint64_t since_ns, uint64_t silent_ns);
/* Tells the peer that this side sends no more; the peer may go on sending. TLS may wait a moment
 * for room. */
void net_send_end(struct net_stream *stream);
/* Wakes the fibers that wait on the stream with -ECANCELED; every later call returns -ECANCELED
 * too. */
void net_shutdown(struct net_stream *stream);
/* No fiber may be in a call on it. Takes NULL. */
void net_close(struct net_stream *stream);
/* "192.0.2.1:40001", "[2001:db8::1]:40001"; "local" when it is not an Internet socket. Lives as
 * long as the stream. */
const char *net_peer(struct net_stream *stream);

/* ---- TLS 1.2 and 1.3 (RFC 5246, RFC 8446). ---- */

/* A server's certificate and key, for streams of any reactor. */
struct net_tls;

struct net_tls_opts {
	const char *certificate; /* PEM file: the server's own first, then the chain */
	const char *key;	 /* PEM file, without a passphrase */
	const char *client_ca;	 /* PEM file: clients must have a certificate of one of these
				    authorities; NULL or "": any client */
	const char *groups;	 /* of the key exchange, by OpenSSL's names, the best first, with
				    commas; NULL, "" or "auto": the best that OpenSSL has */
	bool kernel;		 /* the kernel encrypts what is sent, where it can */
};
/* Any thread, but not a reactor's: it reads files. The strings are copied. On an error the log has
 * the file and the reason; a certificate that has expired, or will soon, causes a warning. -EINVAL:
 * a file has the wrong contents, the key does not belong to the certificate, or OpenSSL has no such
 * group; -ENOENT, -EACCES
 * and other errors of open(2); -ENOMEM. */
int net_tls_open(const struct net_tls_opts *opts, struct net_tls **ret_tls);
/* Reads the files again, for later handshakes; open streams are not affected. Errors as above; the
 * old certificate then stays in use. Threads and blocking as for open; one thread at a time. */
int net_tls_reload(struct net_tls *tls);
/* True when a file differs from the one that was read last, also when that reading failed. Threads
 * as for reload. */
bool net_tls_changed(const struct net_tls *tls);
/* Streams may outlive it. Takes NULL. */
void net_tls_close(struct net_tls *tls);
/* "AB:CD:…", the SHA-256 of the server's own certificate. Any thread. */
#define NET_TLS_FINGERPRINT_LEN 95
void net_tls_fingerprint(struct net_tls *tls, char ret_text[NET_TLS_FINGERPRINT_LEN + 1]);

/* Makes dir, and in it certificate.pem and key.pem, self-signed for localhost, for this machine's
 * name and for host (a name or an address, or ""), unless they exist and are valid for some days
 * more. Only this user can read them. Not on a reactor. Errors as net_tls_open, and logged. */
int net_tls_make_self_signed(const char *dir, const char *host);

/* The server's side of a handshake over a stream that was accepted and not used yet. On success the
 * stream uses TLS from then on. On failure it stays plain and the peer got the reason; the caller
 * can only close it, in order if the peer shall see the reason. -ETIMEDOUT, -ECANCELED,
 * -ECONNRESET, -ENOMEM; -EPROTO: the two sides have no common parameters; -EPROTOTYPE: the peer
 * uses HTTP without TLS and can get an HTTP answer. */
int net_tls_accept(struct net_tls *tls, struct net_stream *stream, uint64_t deadline_ns);

/* ---- TLS between programs that share a secret. ---- */

#define NET_TLS_SHARED_BYTES 32u
/* Writes a key and its certificate, as PEM, that follow from the secret alone, so each holder makes
 * the same ones: a net_tls whose certificate, key and client_ca are all this file takes only peers
 * that hold the secret. -ENOMEM. */
int net_tls_shared_pem(
	const uint8_t secret[NET_TLS_SHARED_BYTES], const char *name, struct buf *out);
/* The client's side of a handshake, over a stream that was connected and not used yet. The server's
 * certificate must be of the authorities in client_ca, which tls must have; its names do not
 * matter. Errors as for accept; -EPROTO also: the server's certificate is of another authority. */
int net_tls_connect(struct net_tls *tls, struct net_stream *stream, uint64_t deadline_ns);

#endif
