/* net/net.h: byte streams: TCP (and TLS, later beside it) on io_uring. Fiber calls; one fiber at a
 * time reads and one writes a stream. Every wait has a deadline. */
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
 * the kernel. -EADDRINUSE, -EACCES, -EADDRNOTAVAIL, -EINVAL (does not parse). With several reactors
 * each opens its own listener on the same address (SO_REUSEPORT). */
int net_listen(struct reactor *reactor, const char *address, struct net_listener **ret_listener);
/* A fiber waiting in accept gets -ECANCELED; connections that nobody took are closed. Takes NULL.
 * In a fiber: it waits until the kernel has let go of the socket. */
void net_listener_close(struct net_listener *listener);
uint16_t net_listener_port(const struct net_listener *listener);
/* Waits for the next connection; one fiber at a time. -EMFILE and its like are waited out inside,
 * with one log line. -ECANCELED. */
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
/* Exactly len bytes, or an error; -EPIPE when the peer closed before. */
int net_recv_all(struct net_stream *stream, void *buf, size_t len, uint64_t deadline_ns);
/* All of it, or an error (-EPIPE and -ECONNRESET: the peer is gone). iov is used up (changed). */
int net_sendv(
	struct net_stream *stream, struct iovec *iov, uint32_t iov_count, uint64_t deadline_ns);
/* As net_sendv, and -ETIMEDOUT also when stall_ns passed in which no byte left. */
int net_sendv_stall(struct net_stream *stream, struct iovec *iov, uint32_t iov_count,
	uint64_t stall_ns, uint64_t deadline_ns);
/* Waits until there is something to receive (or the end, or an error, which receiving will tell),
 * for those who take memory to receive into only then. -ETIMEDOUT, -ECANCELED. */
int net_wait_readable(struct net_stream *stream, uint64_t deadline_ns);
/* Without a system call when the socket has nothing for us: -EAGAIN. For pipelining. 0 also when
 * the peer closed. */
int net_peek_ready(struct net_stream *stream);
/* Tells the peer that no more comes; it may go on sending. */
void net_send_end(struct net_stream *stream);
/* Wakes whoever waits on the stream with -ECANCELED, and so does every later call. */
void net_shutdown(struct net_stream *stream);
/* No fiber may be in a call on it. Takes NULL. */
void net_close(struct net_stream *stream);
/* "192.0.2.1:40001", "[2001:db8::1]:40001"; "local" when it is not an Internet socket. Lives as
 * long as the stream. */
const char *net_peer(struct net_stream *stream);

#endif
