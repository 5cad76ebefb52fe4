/* front/front.h: the fronts, which turn bytes into S3 requests: HTTP/1.1 (with aws-chunked), HTTP
 * with bodies by RDMA tokens, and native capsules. */
#ifndef FRONT_FRONT_H
#define FRONT_FRONT_H

#include "base/base.h"
#include "flow/flow.h"
#include "net/net.h"
#include "rdma/rdma.h"
#include "s3/s3.h"

struct front_http;
struct front_http_spare;
struct front_token;
struct front_hipobj;

/* ---- HTTP/1.1. ---- */
/* The memory of requests that have ended, for the next ones of the same reactor. */
struct front_http_pool {
	struct front_http_spare *first;
	uint32_t count;
};
void front_http_pool_close(struct front_http_pool *pool);
struct front_http_opts {
	struct s3 *s3;
	struct flow_core *core;
	struct front_token
		*token;	      /* handles requests with an RDMA token; NULL: they are declined */
	const char *declined; /* why, as in s3_request; NULL: RDMA is switched off */
	struct front_hipobj *hipobj;	/* takes those of hipobj-rc-v2; NULL: the same */
	const char *transport;		/* "http" or "https" */
	uint64_t idle_timeout_ns;	/* between requests */
	uint64_t head_timeout_ns;	/* for a whole head, from its first byte */
	uint64_t body_stall_timeout_ns; /* without progress of a body, either way */
	const _Atomic bool *draining;	/* answer Connection: close and finish */
	bool *ret_idle; /* kept true while the connection waits for a request's first byte, so that
			   a drain may shut it down; not NULL */
	bool *ret_serving; /* true from a whole head to the end of its answer, once s3 knows that
			      its caller may do what it asks for; not NULL */
	struct front_http_pool *pool; /* NULL: none */
	/* Called when a connection that waits without a fiber goes on; fn NULL: it waits in its
	 * fiber. */
	struct net_later again;
	/* Requests that gateways of a cluster pass on to this store have a header of this secret
	 * (codec/via.h): the caller is who it names. NULL: the header has no meaning. */
	const uint8_t *via_secret;
	const char *via_store; /* the store's own name */
	/* The handler of requests, with the signature of s3_handle, so that the admin listener can
	 * serve its own pages. NULL: s3_handle. */
	void (*handle)(void *arg, const struct s3_request *request, struct s3_reply *reply);
	void *handle_arg;
	/* Serves paths below /minio/ that are not S3's; true when it answered. NULL: none. */
	bool (*page)(void *arg, const struct s3_request *request, struct s3_reply *reply);
	void *page_arg;
};
/* Serves one connection; in a fiber. NULL: it has ended, and the stream is closed. Otherwise it
 * waits for its next request without a fiber. opts->again is called when that comes, or the end: on
 * the reactor, outside fibers, once. After that a fiber continues by front_http_go_on, with the
 * same results, or front_http_drop ends it without a fiber. opts live as long as the connection. */
struct front_http *front_http_serve(const struct front_http_opts *opts, struct net_stream *stream);
struct front_http *front_http_go_on(struct front_http *http);
void front_http_drop(struct front_http *http);

/* ---- Native capsules on a queue pair (docs/spec/wire.md). ---- */
struct front_native; /* one reactor's native front: a completion queue, sessions */
#define FRONT_DEVICES_MAX      4u
#define FRONT_ADDRESSES_MAX    4u   /* of a device */
#define NATIVE_INLINE_WR_BYTES 512u /* responses up to this size are sent inline if possible */
struct front_native_opts {
	/* NULL: this is the first. Otherwise the front shares the first one's registrations and
	 * port. */
	struct front_native *first;
	/* The first front of the server's first device, with which this first front of another
	 * device shares the places for sessions, and the memory of numbered writes. NULL: this is
	 * the first device, or first is set. */
	struct front_native *beside;
	uint32_t front_count; /* number of fronts that share sessions_max; 0: one */
	struct s3 *s3;
	struct store *store; /* not used by the front itself */
	uint64_t store_id;   /* sent to clients that ask for it */
	struct flow_core *core;
	/* The first front handles its connection events. */
	struct rp_device *device;
	uint32_t sessions_max;	   /* of all fronts: 1 to LIMIT_RDMA_SESSIONS_MAX */
	uint32_t credits;	   /* requests in flight per session */
	uint32_t inline_bytes_max; /* maximum body in a capsule; clients may ask for less */
	uint32_t cq_size;	   /* minimum; larger when sessions_max needs it */
	uint32_t max_send_wr, max_recv_wr, max_sge; /* 0: enough */
	uint8_t retry_count, rnr_retry_count;	    /* as rp_qp_attr has them */
	uint32_t ack_timeout_us;		    /* the same; 0: the provider's */
	uint32_t max_inline_data; /* that a send takes at post time: 0 to NATIVE_INLINE_WR_BYTES */
	uint64_t idle_timeout_ns; /* of a session without requests; 0: none */
	uint64_t keepalive_ns;	  /* of silence after which the client's host is probed; 0: never */
	uint64_t request_timeout_ns;  /* of a transfer without progress */
	const _Atomic bool *draining; /* or NULL */
	bool encryption_required;     /* of every session: wire.md section 7 */
	uint64_t lease_bytes; /* of a session's leases, slots included; 0: none are granted */
	uint64_t lease_ns;    /* duration of a lease */
};
/* Opens a completion queue and adds its poller to the core's reactor; the first one registers the
 * region's arenas (local write only). Before or while the reactor runs; on its thread if it runs;
 * all fronts before the first listens. -EINVAL, or the device's error; the reason is logged. */
int front_native_open(const struct front_native_opts *opts, struct front_native **ret_front);
/* The first front's: starts accepting at address:port (port 0: any free one). Each connection goes
 * to the front with the fewest sessions. Before the reactor runs, or on its thread; once for each
 * address, FRONT_ADDRESSES_MAX times at most: -ENOSPC. -EADDRINUSE. */
int front_native_listen(struct front_native *first, const char *address, uint16_t port);
/* An address of the server that clients are told when they are proven (wire.md, PATHS), loopback
 * only those on the simulated device. All devices' fronts tell it. When nobody has a session yet.
 * -EINVAL: not a numeric address of a host; -ENOSPC. */
int front_native_announce(struct front_native *first, const char *address, uint16_t port);
/* Where it listens, at the first of its addresses; 0 when it does not. */
uint16_t front_native_port(const struct front_native *front);
/* Ends sessions in order: no new requests, those in flight finish, then queue pairs close. Requests
 * that last past the deadline are cut off. In a fiber; needed before close once the reactor has
 * run. */
void front_native_drain(struct front_native *front, uint64_t deadline_ns);
/* In a fiber of the first front's reactor, when all fronts have drained and the others' reactors
 * still run: takes no more connection events. */
void front_native_unlisten(struct front_native *first);
void front_native_close(
	struct front_native *front); /* takes NULL; the first one of a device last */
/* Includes connections being set up. Any thread. */
uint32_t front_native_sessions(const struct front_native *front);
/* A session, as operators see it. */
struct front_session {
	uint64_t id;
	char peer[64];		     /* as the device names it: "ADDR:PORT" */
	struct s3_identity identity; /* empty before its proof */
	const char *phase;	     /* "setup", "open", "ending" */
	bool encrypted;
	uint64_t age_ns, idle_ns; /* since it was accepted, since its last capsule */
	uint32_t in_flight, credits;
	uint64_t requests, errors;    /* answered; of them with 4xx or 5xx */
	uint64_t bytes_in, bytes_out; /* of bodies */
};
/* This front's sessions with ids above after, lowest first; returns how many, max at most. On its
 * reactor. */
uint32_t front_native_tell(const struct front_native *front, uint64_t after,
	struct front_session *ret_sessions, uint32_t max);
/* Objects that others need to move the region's bytes by the same device: they live until close. */
struct rp_pd *front_native_pd(const struct front_native *front);
const uint32_t *front_native_lkeys(const struct front_native *front); /* by arena index */

/* ---- RDMA tokens in HTTP requests (docs/spec/token.md): queue pairs that clients connected
 * by ?rdma-connect. The queue pair's number selects its reactor; a request runs there, whichever
 * reactor received it. ---- */

/* When the answer to a GET has a checksum of the bytes in the window. */
enum front_token_checksum {
	FRONT_CHECKSUM_ALWAYS,
	FRONT_CHECKSUM_ASKED, /* with x-amz-checksum-mode: ENABLED */
	FRONT_CHECKSUM_OFF
};
struct front_token_opts {
	struct front_token *first; /* NULL: this is the first of the fronts that share the work */
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
	bool strict;   /* refuse the suffix that older clients append to a token */
	bool elbencho; /* serve sessions, too */
	enum front_token_checksum checksum; /* of a GET's answer */
	uint64_t dc_key;		    /* key of the DC targets in tokens */
};
/* Before the reactors run. -EINVAL, -ENOMEM, or the device's error. */
int front_token_open(const struct front_token_opts *opts, struct front_token **ret_front);
/* On its reactor, once nobody hands it requests any more: closes the queue pairs. Never waits. */
void front_token_drain(struct front_token *front);
void front_token_close(struct front_token *front); /* takes NULL; drained, or never run; the first
						      one last */
/* Whether the request has a token or is ?rdma-connect. */
bool front_token_wanted(const struct s3_request *request);
/* Answers it. In a fiber of any reactor, like s3_handle; front: any of the fronts. */
void front_token_handle(
	struct front_token *front, const struct s3_request *request, struct s3_reply *reply);

/* Sessions (docs/spec/elbencho.md): queue pairs that unsigned requests connect on the reactor that
 * received them, and that tokens name by the session's id. */
/* Whether the request connects or disconnects one. */
bool front_token_session_wanted(const struct s3_request *request);
/* Answers it, as front_token_handle does; front may be NULL, or serve no sessions: then the client
 * is told so. */
void front_token_session_handle(struct front_token *front, struct s3 *s3,
	const struct s3_request *request, struct s3_reply *reply);

/* ---- hipobj-rc-v2 (docs/spec/hipobj.md): sessions of one transfer each, on the reactor that
 * received their PREPARE. Their requests run there, whichever received them. ---- */
struct front_hipobj_opts {
	struct front_hipobj *first; /* NULL: this is the first of those that share the bounds */
	struct s3 *s3;
	struct flow_core *core; /* where the sessions live */
	struct rp_device *device;
	struct rp_pd *pd;	    /* in which the region's arenas are registered … */
	const uint32_t *lkeys;	    /* … by these keys */
	uint32_t sessions_max;	    /* of all: 1 to LIMIT_HIPOBJ_SESSIONS_MAX */
	uint64_t staging_bytes_max; /* of all: memory that clients write to */
	/* The number of the cluster's store, plus 1: sessions' ids have it, so that any gateway
	 * knows where they are. 0: of no cluster. */
	uint32_t store;
	uint64_t timeout_ns;		      /* from PREPARE to READY, and from there on */
	uint8_t retry_count, rnr_retry_count; /* as rp_qp_attr has them */
	uint32_t ack_timeout_us;	      /* the same; 0: the provider's */
};
/* Before the reactors run. -EINVAL, -ENOMEM, or the device's error. */
int front_hipobj_open(const struct front_hipobj_opts *opts, struct front_hipobj **ret_front);
/* On its reactor, once nobody hands it requests any more: ends the sessions. Never waits. */
void front_hipobj_drain(struct front_hipobj *front);
void front_hipobj_close(struct front_hipobj *front); /* takes NULL; drained, or never run; the first
							one last */
/* Whether the request is one of the three control requests. */
bool front_hipobj_wanted(const struct s3_request *request);
/* Answers it. In a fiber of any reactor, as s3_handle; front is any of those that share, or NULL:
 * the client is told to go by HTTP. */
void front_hipobj_handle(
	struct front_hipobj *front, const struct s3_request *request, struct s3_reply *reply);

/* ---- Discovery: answers clients that look for servers by multicast (docs/spec/wire.md). ---- */
struct front_discovery;
struct front_discovery_opts {
	struct rp_open_opts device; /* opened separately: it shares nothing with sessions */
	const char *group;	    /* a multicast address */
	const char *address;	    /* of the session listener; "": the device's own */
	uint16_t rdma_port, http_port;
	const char *release, *zone, *note;
};
/* Starts to answer, in a thread of its own. -EINVAL: not a multicast address; or the device's
 * error. */
int front_discovery_open(
	const struct front_discovery_opts *opts, struct front_discovery **ret_front);
void front_discovery_close(struct front_discovery *front); /* takes NULL */

#endif
