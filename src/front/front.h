/* front/front.h: bytes to S3 requests: HTTP/1.1 (with aws-chunked) and native capsules; later RDMA
 * tokens. */
#ifndef FRONT_FRONT_H
#define FRONT_FRONT_H

#include "base/base.h"
#include "flow/flow.h"
#include "net/net.h"
#include "rdma/rdma.h"
#include "s3/s3.h"

/* ---- HTTP/1.1. ---- */
struct front_http_opts {
	struct s3 *s3;
	struct flow_core *core;
	const char *transport;		/* "http" or "https" */
	uint64_t idle_timeout_ns;	/* between requests */
	uint64_t head_timeout_ns;	/* for a whole head, from its first byte */
	uint64_t body_stall_timeout_ns; /* without progress of a body, either way */
	const _Atomic bool *draining;	/* answer Connection: close and finish */
	bool *ret_idle; /* kept true while the connection awaits a request's first byte, so that who
			   drains may shut it down; not NULL */
	/* What answers requests: s3_handle's shape, so that the admin listener serves its own
	 * pages. NULL: s3_handle. */
	void (*handle)(void *arg, const struct s3_request *request, struct s3_reply *reply);
	void *handle_arg;
};
/* Serves one connection until it ends; closes the stream. A fiber's whole life. */
void front_http_serve(const struct front_http_opts *opts, struct net_stream *stream);

/* ---- Native capsules on a queue pair (docs/spec/wire.md). ---- */
struct front_native; /* one reactor's native front: device objects, sessions */
struct front_native_opts {
	struct s3 *s3;
	struct store *store; /* not used by the front itself */
	struct flow_core *core;
	/* Used by this reactor only as far as connection events go: one front takes them. */
	struct rp_device *device;
	uint32_t sessions_max;	   /* 1 to LIMIT_RDMA_SESSIONS_MAX */
	uint32_t credits;	   /* requests in flight per session */
	uint32_t inline_bytes_max; /* bodies in capsules, at most; clients ask for what they want */
	uint32_t cq_size;	   /* at least so much; more when sessions_max needs it */
	uint32_t max_send_wr, max_recv_wr, max_sge; /* 0: enough */
	uint32_t max_inline_data;     /* bytes that a send takes at post time; 0: none */
	uint64_t idle_timeout_ns;     /* of a session without requests; 0: none */
	uint64_t request_timeout_ns;  /* a transfer of which nothing moves for so long */
	const _Atomic bool *draining; /* or NULL */
	bool encryption_required;     /* refused with -ENOTSUP: see wire.md section 7 */
};
/* Opens pd, cq, registers the region's arenas (local write only). Before or while the reactor runs;
 * on its thread if it runs. -EINVAL, -ENOTSUP, or the device's error; the reason is logged. */
int front_native_open(const struct front_native_opts *opts, struct front_native **ret_front);
/* Starts accepting at address:port (port 0: any free one) and adds its poller to the core's
 * reactor: before the reactor runs, or on its thread. -EADDRINUSE. */
int front_native_listen(struct front_native *front, const char *address, uint16_t port);
/* Where it listens; 0 when it does not. */
uint16_t front_native_port(const struct front_native *front);
/* Ends sessions in order: no new requests, those in flight finish, then queue pairs close. What
 * lasts past the deadline is cut off. In a fiber; needed before close once the reactor has run. */
void front_native_drain(struct front_native *front, uint64_t deadline_ns);
void front_native_close(struct front_native *front); /* takes NULL */
uint32_t front_native_sessions(const struct front_native *front);

#endif
