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

/* "ADDR:PORT", "[v6]:PORT", ":PORT"; port 0 asks the kernel. -EADDRINUSE, -EACCES, -EINVAL (does
 * not parse). With several reactors each opens its own listener on the same address (SO_REUSEPORT).
 */
int net_listen(struct reactor *reactor, const char *address, struct net_listener **ret_listener);
void net_listener_close(
	struct net_listener *listener); /* a fiber waiting in accept gets -ECANCELED */
uint16_t net_listener_port(const struct net_listener *listener);
/* Waits for the next connection. -EMFILE and its like are waited out inside, with one log line. */
int net_accept(struct net_listener *listener, struct net_stream **ret_stream);
int net_connect(const char *address, uint64_t deadline_ns, struct net_stream **ret_stream);

/* At least 1 byte, at most len; 0: the peer closed in order. -ETIMEDOUT, -ECONNRESET, -ECANCELED
 * (net_shutdown). */
int net_recv(
	struct net_stream *stream, void *buf, size_t len, uint64_t deadline_ns, size_t *ret_bytes);
/* Exactly len bytes, or an error; -EPIPE when the peer closed before. */
int net_recv_all(struct net_stream *stream, void *buf, size_t len, uint64_t deadline_ns);
/* All of it, or an error. iov is used up (changed). */
int net_sendv(
	struct net_stream *stream, struct iovec *iov, uint32_t iov_count, uint64_t deadline_ns);
/* Without a system call when the socket has nothing for us: -EAGAIN. For pipelining. */
int net_peek_ready(struct net_stream *stream);
/* Wakes whoever waits on the stream with -ECANCELED. */
void net_shutdown(struct net_stream *stream);
void net_close(struct net_stream *stream);
const char *net_peer(const struct net_stream *stream); /* "192.0.2.1:40001" */

#endif
