/* net/net_priv.h: shared by the files of src/net. */
#ifndef NET_NET_PRIV_H
#define NET_NET_PRIV_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "net/net.h"

#define NET_BACKLOG	  1024
#define NET_ADDRESSES_MAX 16u /* of one name */
#define NET_PEER_LEN_MAX  63u
#define NET_HOST_LEN_MAX  255u

/* One operation in the ring. Life: idle → start (pending) → completion (idle); the fiber that
 * started it waits in between, so the buffers stay valid. */
struct net_op {
	struct uring_op op;
	struct fiber *fiber;
	struct net_later later; /* called instead of waking the fiber; fn NULL: none */
	uint64_t deadline_ns;
	int result;
	bool pending;
	bool timed_out;
	bool more; /* the kernel said that the socket holds more */
};

/* How long a send may wait: at most until deadline_ns, and at most stall_ns (0: no limit) for each
 * step. */
struct net_patience {
	uint64_t deadline_ns;
	uint64_t stall_ns;
};

/* The deadline of the next step. */
static inline uint64_t net_step_deadline_ns(struct net_patience patience)
{
	uint64_t stall_until_ns =
		patience.stall_ns ? clock_now_ns() + patience.stall_ns : DEADLINE_NONE;

	return MIN(patience.deadline_ns, stall_until_ns);
}

/* One kind of stream. The contracts are those of net.h; every slot is filled. The caller has
 * checked that the stream is not shut. */
struct net_stream_ops {
	const char *name;
	int (*recv)(struct net_stream *stream, void *buf, size_t len, uint64_t deadline_ns,
		size_t *ret_bytes);
	int (*recv_begin)(struct net_stream *stream, struct iovec to, uint64_t deadline_ns,
		struct net_later later, size_t *ret_bytes);
	int (*recv_end)(struct net_stream *stream, struct iovec to, uint64_t deadline_ns,
		size_t *ret_bytes);
	int (*recv_full)(struct net_stream *stream, void *buf, size_t len, uint64_t deadline_ns,
		size_t *ret_bytes);
	int (*send)(struct net_stream *stream, struct msghdr *msg, struct net_patience patience);
	int (*wait_readable)(struct net_stream *stream, uint64_t deadline_ns);
	void (*send_end)(struct net_stream *stream);
	void (*release)(struct net_stream *stream); /* frees the data of this kind */
};
extern const struct net_stream_ops net_plain_ops;
extern const struct net_stream_ops net_tls_ops;

struct tls_session;

struct net_stream {
	const struct net_stream_ops *ops;
	struct tls_session *tls; /* of a TLS stream */
	struct reactor *reactor;
	int fd;
	bool readable; /* the last receive left something, or may have: ask the socket directly */
	_Atomic bool shut; /* net_shutdown was called */
	struct net_op recv;
	struct net_op send;
	struct reactor_timer timer; /* due no later than the earliest deadline; checks when it fires
				     */
	uint64_t acked_bytes;	    /* by the peer's kernel, when net_unheard looked last */
	uint64_t moved_ns; /* when it last saw that nothing was owed, or more acknowledged */
	char peer[NET_PEER_LEN_MAX + 1];
};

union net_addr {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_storage storage;
};

/* Parts of "HOST:PORT", the brackets of a v6 address taken off. -EINVAL. */
struct net_name {
	char host[NET_HOST_LEN_MAX + 1]; /* empty: every address */
	uint16_t port;
};
int net_name_parse(const char *address, struct net_name *ret_name);
/* The address that a name without look-up stands for. -EINVAL: it is not a numeric address. */
int net_addr_numeric(const struct net_name *name, union net_addr *ret_addr, socklen_t *ret_len);
/* Looks the name up; blocks. -EHOSTUNREACH, -ENOMEM. */
int net_addr_resolve(const struct net_name *name, union net_addr *ret_addrs, uint32_t *ret_count);
/* stream.c. Connects to the first of the addresses that answers, in their order; each may take its
 * part of the time. Fiber call. */
int net_connect_first(
	const union net_addr *addrs, uint32_t count, uint64_t deadline_ns, int *ret_fd);
socklen_t net_addr_len(const union net_addr *addr);
void net_addr_print(const union net_addr *addr, char *buf, size_t buf_bytes);

/* Marks op as started under the stream's timer, and sets where its completion goes. */
void net_op_begin(struct net_stream *stream, struct net_op *op, uint64_t deadline_ns);
/* The result of an operation that has completed, as net_op_wait has it. */
int net_op_result(const struct net_stream *stream, const struct net_op *op);
/* Parks until op has completed; returns its result, -ETIMEDOUT or -ECANCELED. -EINTR: it was
 * cancelled because of another operation, start it again. */
int net_op_wait(struct net_stream *stream, struct net_op *op);
/* Waits for events of poll(2) on the socket, by op. 0, or as net_op_wait. */
int net_poll(struct net_stream *stream, struct net_op *op, uint32_t events, uint64_t deadline_ns);
/* Advances the list past the bytes that were sent; returns how many are left. */
size_t net_iov_advance(struct msghdr *msg, size_t done);
/* Asks the kernel to cancel all operations on the descriptor. */
void net_cancel(struct reactor *reactor, int fd);

#endif
