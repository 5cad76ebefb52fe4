/* front/front.h: the fronts, which turn bytes into S3 requests: HTTP/1.1 (with aws-chunked), HTTP
 * with bodies by RDMA tokens, and native capsules. */
#ifndef FRONT_FRONT_H
#define FRONT_FRONT_H

#include "base/base.h"
#include "flow/flow.h"
#include "net/net.h"
#include "rdma/rdma.h"
#include "s3/s3.h"

struct front_token;

/* ---- HTTP/1.1. ---- */
struct front_http_opts {
	struct s3 *s3;
	struct flow_core *core;
	struct front_token *token; /* takes requests with an RDMA token; NULL: they are declined */
	const char *transport;	   /* "http" or "https" */
	uint64_t idle_timeout_ns;  /* between requests */
	uint64_t head_timeout_ns;  /* for a whole head, from its first byte */
	uint64_t body_stall_timeout_ns; /* without progress of a body, either way */
	const _Atomic bool *draining;	/* answer Connection: close and finish */
	bool *ret_idle; /* kept true while the connection awaits a request's first byte, so that who
			   drains may shut it down; not NULL */
	bool *ret_serving; /* true from a whole head to the end of its answer; not NULL */
	/* The handler of requests, with the signature of s3_handle, so that the admin listener can
	 * serve its own pages. NULL: s3_handle. */
	void (*handle)(void *arg, const struct s3_request *request, struct s3_reply *reply);
	void *handle_arg;
	/* Paths below /minio/ that are not S3's: true when it answered. NULL: there are none. */
	bool (*page)(void *arg, const struct s3_request *request, struct s3_reply *reply);
	void *page_arg;
};
/* Serves one connection until it ends; closes the stream. A fiber's whole life. */
void front_http_serve(const struct front_http_opts *opts, struct net_stream *stream);

/* ---- Native capsules on a queue pair (docs/spec/wire.md). ---- */
struct front_native; /* one reactor's native front: a completion queue, sessions */
struct front_native_opts {
	/* NULL: this is the first. Else it shares the first one's registrations and port. */
	struct front_native *first;
	uint32_t front_count; /* that share sessions_max; 0: one */
	struct s3 *s3;
	struct store *store; /* not used by the front itself */
	uint64_t store_id;   /* told to clients that ask for it */
	struct flow_core *core;
	/* Its connection events are the first front's. */
	struct rp_device *device;
	uint32_t sessions_max;	   /* of all fronts: 1 to LIMIT_RDMA_SESSIONS_MAX */
	uint32_t credits;	   /* requests in flight per session */
	uint32_t inline_bytes_max; /* bodies in capsules, at most; clients ask for what they want */
	uint32_t cq_size;	   /* at least so much; more when sessions_max needs it */
	uint32_t max_send_wr, max_recv_wr, max_sge; /* 0: enough */
	uint8_t retry_count, rnr_retry_count;	    /* as rp_qp_attr has them */
	uint32_t ack_timeout_us;		    /* the same; 0: the provider's */
	uint32_t max_inline_data; /* bytes that a send takes at post time; 0: none */
	uint64_t idle_timeout_ns; /* of a session without requests; 0: none */
	uint64_t keepalive_ns; /* of a client's silence, then its host is looked after; 0: never */
	uint64_t request_timeout_ns;  /* a transfer of which nothing moves for so long */
	const _Atomic bool *draining; /* or NULL */
	bool encryption_required;     /* of every session: wire.md section 7 */
	uint64_t lease_bytes; /* of a session's leases, slots included; 0: none are granted */
	uint64_t lease_ns;    /* how long one lasts */
};
/* Opens a completion queue and adds its poller to the core's reactor; the first one registers the
 * region's arenas (local write only). Before or while the reactor runs; on its thread if it runs;
 * all fronts before the first listens. -EINVAL, or the device's error; the reason is logged. */
int front_native_open(const struct front_native_opts *opts, struct front_native **ret_front);
/* The first front's: starts accepting at address:port (port 0: any free one). Each connection goes
 * to the front with the fewest sessions. Before the reactor runs, or on its thread. -EADDRINUSE. */
int front_native_listen(struct front_native *first, const char *address, uint16_t port);
/* Where it listens; 0 when it does not. */
uint16_t front_native_port(const struct front_native *front);
/* Ends sessions in order: no new requests, those in flight finish, then queue pairs close. Requests
 * that last past the deadline are cut off. In a fiber; needed before close once the reactor has
 * run. */
void front_native_drain(struct front_native *front, uint64_t deadline_ns);
/* In a fiber of the first front's reactor, when all fronts have drained and the others' reactors
 * still run: takes no more connection events. */
void front_native_unlisten(struct front_native *first);
void front_native_close(struct front_native *front); /* takes NULL; the first one last */
/* Any thread; those about to come included. */
uint32_t front_native_sessions(const struct front_native *front);
/* Objects that others need to move the region's bytes by the same device: they live until close. */
struct rp_pd *front_native_pd(const struct front_native *front);
const uint32_t *front_native_lkeys(const struct front_native *front); /* by arena index */

/* ---- RDMA tokens in HTTP requests (docs/spec/wire.md, part B): queue pairs that clients had
 * joined by ?rdma-connect, each on the reactor that its number names. Requests run there, whichever
 * received them. ---- */
struct front_token_opts {
	struct front_token *first; /* NULL: this is the first of those that share the work */
	struct s3 *s3;
	struct flow_core *core; /* where the queue pairs live */
	struct rp_device *device;
	struct rp_pd *pd;		      /* in which the region's arenas are registered … */
	const uint32_t *lkeys;		      /* … by these keys */
	uint32_t queue_pairs_max;	      /* of all: 1 to LIMIT_TOKEN_QUEUE_PAIRS_MAX */
	uint64_t idle_timeout_ns;	      /* of a queue pair without requests; 0: none */
	uint64_t transfer_timeout_ns;	      /* of a whole transfer */
	uint8_t retry_count, rnr_retry_count; /* as rp_qp_attr has them */
	uint32_t ack_timeout_us;	      /* the same; 0: the provider's */
	bool strict;			      /* refuse what older clients append to a token */
	uint64_t dc_key;		      /* of the targets that DC tokens name */
};
/* Before the reactors run. -EINVAL, -ENOMEM, or the device's error. */
int front_token_open(const struct front_token_opts *opts, struct front_token **ret_front);
/* On its reactor, once nobody hands it requests any more: closes the queue pairs. Never waits. */
void front_token_drain(struct front_token *front);
void front_token_close(struct front_token *front); /* takes NULL; drained, or never run; the first
						      one last */
/* Whether the request is one of those: has a token, or asks for ?rdma-connect. */
bool front_token_wanted(const struct s3_request *request);
/* Answers it. In a fiber of any reactor, as s3_handle; front is any of those that share. */
void front_token_handle(
	struct front_token *front, const struct s3_request *request, struct s3_reply *reply);

/* ---- Discovery: answers those who look for servers by multicast (docs/spec/wire.md). ---- */
struct front_discovery;
struct front_discovery_opts {
	struct rp_open_opts device; /* opened anew: it shares nothing with sessions */
	const char *group;	    /* a multicast address */
	const char *address;	    /* where sessions connect; "": the device's own */
	uint16_t rdma_port, http_port;
	const char *release, *zone, *note;
};
/* Begins to answer, in a thread of its own. -EINVAL: no multicast address; or the device's error.
 */
int front_discovery_open(
	const struct front_discovery_opts *opts, struct front_discovery **ret_front);
void front_discovery_close(struct front_discovery *front); /* takes NULL */

#endif
