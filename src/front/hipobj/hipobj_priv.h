/* front/hipobj/hipobj_priv.h: interface between the files of the hipobj front
 * (docs/spec/hipobj.md).
 *
 *   hipobj/headers.c  which headers of a control request apply to the operation
 *   hipobj/hipobj.c   the front: sessions, their bounds, their opening and closing
 *   hipobj/move.c     a session's bytes: the ends of flow between READY and its answer
 *   hipobj/request.c  the three control requests: to the session's reactor and back
 *
 * A session lives on the reactor that received its PREPARE; the first byte of its id says which.
 *
 * A session's rights to memory, and their duration. A read's queue pair is in the protection domain
 * of the region's arenas, whose keys let no peer in: the server writes, and the client only
 * receives. A write's queue pair has a protection domain of its own, with one memory region: the
 * session's staging memory, exactly as long as the body. So its key is good on no other queue pair.
 * When the bytes have come, or the session ends, the queue pair and the memory region are closed
 * before anybody reads the bytes and before the memory is given back. */
#ifndef FRONT_HIPOBJ_HIPOBJ_PRIV_H
#define FRONT_HIPOBJ_HIPOBJ_PRIV_H

#include "codec/codec.h"
#include "front/front.h"
#include "front/kept/kept.h"
#include "reactor/reactor.h"

#define HIPOBJ_SWEEP_NS		(100 * NS_PER_MS)
#define HIPOBJ_SEND_WRS		64u
#define HIPOBJ_SHARE_PARTS	2u	   /* a principal may use this part (1/N) of each bound */
#define HIPOBJ_KEPT_HEADERS_MAX 32u	   /* headers of PREPARE that apply to the operation */
#define HIPOBJ_KEPT_BYTES_MAX	(12 * KIB) /* of these headers and the target */

/*   PREPARED -> MOVING   the client sent READY: the operation runs
 *   any      -> ended    answered, cancelled, too late; it is freed when nobody uses it any more */
#define HIPOBJ_SESSION_MAGIC 0x41b05e55u
struct hipobj_session {
	uint32_t magic; /* until it is freed */
	struct list link;
	struct front_hipobj *front;
	uint8_t id[HIPOBJ_SESSION_BYTES];
	char access_key[LIMIT_ACCESS_KEY_LEN_MAX + 1]; /* its owner */
	uint16_t share;				       /* of its principal */
	bool put, moving, gone;
	bool abandoned; /* gone, and its queue pair closed, but its target's number is kept */
	uint64_t gone_ns;
	uint32_t users; /* fibers that use it */
	uint32_t cookie, peer_qpn;
	uint64_t size, offset;
	uint64_t deadline_ns; /* without a wait of its READY for a fan-out */
	/* The operation, in one allocation. */
	char *text;
	struct slice path, query;
	struct s3_header headers[HIPOBJ_KEPT_HEADERS_MAX];
	uint32_t header_count;
	/* RDMA. */
	/* of its work requests; modulo the number of places, it is the index of its place */
	uint64_t serial;
	struct rp_qp *qp;
	struct rp_address ours;
	uint16_t target;  /* GET */
	struct rp_pd *pd; /* PUT: this and the next two */
	struct rp_mr *mr;
	uint8_t *staged;
	const struct s3_token *token; /* of its READY; NULL: none is served */
	/* The fiber of READY waits for the immediate. */
	struct fiber *waiter;
	bool arrived, sent;
	uint32_t immediate, immediate_bytes;
	int error;
};

/* The fronts of all reactors, and the resources that their sessions hold. */
struct hipobj_shared {
	struct front_hipobj *fronts[LIMIT_CORES_MAX];
	uint32_t front_count;
	_Atomic uint32_t sessions, share_sessions[FLOW_SHARES];
	_Atomic uint64_t staged_bytes, share_bytes[FLOW_SHARES];
};

struct front_hipobj {
	struct front_hipobj_opts opts;
	struct hipobj_shared *shared;
	uint32_t idx; /* in shared->fronts */
	struct reactor *reactor;
	struct rp_cq *cq;
	uint32_t sessions_max;	      /* limited by the completion queue */
	struct reactor_poller poller; /* added while there are sessions, and so is the sweep */
	struct reactor_timer sweep;
	struct list sessions;
	struct hipobj_session *places[LIMIT_HIPOBJ_SESSIONS_MAX]; /* by serial; NULL: free */
	uint32_t place_count;	/* with those of sessions that are being opened or freed */
	uint32_t session_count; /* in the list */
	uint64_t next_serial;
};

/* One control request. Phases: made on the reactor that received it → running on the session's →
 * back. The fiber that made it waits meanwhile, so everything that it points to stays valid. */
#define HIPOBJ_JOB_MAGIC 0x41b0704bu
struct hipobj_job {
	uint32_t magic; /* until it is answered */
	struct front_hipobj *front;
	bool busy;
	enum hipobj_step step;
	struct hipobj_request asked;
	const struct s3_request *message;
	/* The request to s3. */
	struct s3_request request;
	struct s3_control control;
	struct s3_token token;
	struct s3_body body;
	struct s3_header headers[LIMIT_HTTP_HEADERS_MAX + HIPOBJ_KEPT_HEADERS_MAX + 1];
	char range[64];
	bool unsupported; /* the client is told to use HTTP */
	/* READY. */
	struct hipobj_session *session; /* admitted */
	struct flow_remote run;
	struct flow_peer peer;
	struct flow_source source, *inner_source;
	struct flow_sink sink, *inner_sink;
	uint64_t bytes_moved, crc64;
	/* The answer. */
	struct kept_reply kept;
};

static inline void hipobj_session_check(const struct hipobj_session *session)
{
	CHECK(session->magic == HIPOBJ_SESSION_MAGIC);
}

static inline uint64_t hipobj_session_deadline_ns(const struct hipobj_session *session)
{
	return session->deadline_ns + (session->token ? session->token->wait_ns : 0);
}

static inline void hipobj_job_check(const struct hipobj_job *job)
{
	CHECK(job->magic == HIPOBJ_JOB_MAGIC);
}

/* ---- hipobj.c ---- */
/* Fiber call: makes the session of an allowed PREPARE. -EFBIG: never so large; -ENOSPC, -ENOMEM:
 * not now; -EHOSTUNREACH: this device cannot reach the queue pair. */
int hipobj_session_open(struct hipobj_job *job, struct hipobj_session **ret_session);
/* NULL: there is none of this id. */
struct hipobj_session *hipobj_session_find(
	struct front_hipobj *front, const uint8_t id[HIPOBJ_SESSION_BYTES]);
/* Takes it out of use: the client can no longer access our memory, nor do we access the client's. A
 * transfer that runs fails with the error. The session is freed when no fiber uses it. */
void hipobj_session_end(struct hipobj_session *session, int error, const char *why);
/* Ends the last use of a session that may have ended. In a fiber. */
void hipobj_session_put(struct hipobj_session *session);
/* Fiber call: from here on the client can no longer access the session's staging memory. */
void hipobj_session_close_window(struct hipobj_session *session);

/* ---- headers.c ---- */
/* Whether a header authenticates or dates a message, and does not describe its operation. */
bool hipobj_is_of_message(struct slice name);
/* Whether a header of PREPARE applies to the operation. */
bool hipobj_counts(const struct s3_request *message, struct slice name);
/* Why the headers of a PREPARE, or of a READY, cannot apply as they are meant; NULL: they can. */
const char *hipobj_prepare_wrong(const struct s3_request *message);
const char *hipobj_ready_adds(
	const struct s3_request *message, const struct hipobj_session *session);

/* ---- move.c ---- */
extern const struct s3_body_ops hipobj_body_ops;
extern const struct s3_reply_ops hipobj_reply_ops;

#endif
