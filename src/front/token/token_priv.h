/* front/token/token_priv.h: interface between the files of the token front: queue pairs that
 * clients connected, and a request while its bytes move.
 *
 *   token/token.c          the front: queue pairs, connecting and closing them, the sweep
 *   token/request.c  a request: to the queue pairs' reactor and back, its body, its answer
 *   token/session.c  sessions: queue pairs that unsigned requests connect
 *
 * Everything but the hand-over runs on the front's own reactor. There is one front a reactor; a
 * queue pair belongs to the front that the number of its client's end selects, so every front that
 * receives its token can find it; a session's belongs to the front that the first byte of its id
 * names. */
#ifndef FRONT_TOKEN_TOKEN_PRIV_H
#define FRONT_TOKEN_TOKEN_PRIV_H

#include "codec/codec.h"
#include "front/front.h"
#include "front/kept/kept.h"
#include "reactor/reactor.h"

#define TOKEN_SWEEP_NS (100 * NS_PER_MS)
/* A query of a queue pair's state is a system call, and on some devices a message to the card. A
 * queue pair that worked within this time is not queried, and a sweep queries at most so many. */
#define TOKEN_PROVEN_NS (1 * NS_PER_S)
#define TOKEN_LOOKS_MAX 8u
#define TOKEN_SEND_WRS	64u
/* Anybody may connect a session. Until a signed request names it, it is unproven: such sessions
 * have at most one part in so many of the queue pairs, and the oldest gives way to a new one, and
 * to any other queue pair for which there is no place. */
#define TOKEN_UNPROVEN_PARTS 4u
/* the client stops waiting for an answer after this time */
#define TOKEN_UNPROVEN_NS (10 * NS_PER_S)

/* A connected queue pair. It exists from ?rdma-connect until it is disconnected, replaced, idle for
 * too long, or broken by a failed transfer; then it closes with the last request on it. */
#define TOKEN_QP_MAGIC 0x70ce40b9u
struct token_qp {
	uint32_t magic; /* until it is freed */
	struct list link;
	struct front_token *front;
	struct rp_qp *qp;
	uint16_t target;
	bool dc;	  /* an initiator, aimed at one request's target at a time */
	struct rp_ah *ah; /* DC: of that target */
	bool gone;	  /* takes no more requests */
	bool abandoned;	  /* gone, and closed, but its target's number is kept */
	uint64_t gone_ns;
	uint32_t in_flight; /* requests that move bytes over it */
	uint64_t last_ns;   /* when one ended */
	uint64_t proven_ns; /* last time that it moved bytes or the device reported it ready; 0:
			       never */
	struct token peer;  /* the client's end */
	char access_key[LIMIT_ACCESS_KEY_LEN_MAX + 1]; /* of its owner; "": unproven */
	uint16_t share;				       /* its owner's; 0: DC, and unproven */
	bool is_session;
	uint8_t session[HIPOBJ_SESSION_BYTES];
};

/* The fronts of all reactors. */
struct token_shared {
	struct front_token *fronts[LIMIT_CORES_MAX];
	uint32_t front_count;
	_Atomic uint32_t qp_count; /* of all */
	_Atomic uint32_t share_qps[FLOW_SHARES];
};

struct front_token {
	struct front_token_opts opts;
	struct token_shared *shared;
	uint32_t idx; /* in shared->fronts */
	struct reactor *reactor;
	struct rp_cq *cq;
	bool has_dc;		      /* the device can reach targets without a connection */
	bool state_is_free;	      /* simulated: the state is in memory that both ends share */
	uint32_t queue_pairs_max;     /* capacity of the completion queue */
	struct reactor_poller poller; /* added while there are queue pairs, and so is the sweep */
	struct reactor_timer sweep;
	uint32_t look_at; /* index in qps of the next one to query */
	struct list qps;
	uint32_t qp_count, unproven_count; /* the latter with sessions that are being connected */
	uint32_t joining; /* being connected: they have a place, and are in no list */
	struct list jobs; /* admitted, with their deadlines */
};

/* One request. Phases: created on the reactor that received it → running on the front's → back,
 * answered or declined. The fiber that created it waits meanwhile, so everything that it points to
 * stays valid. */
#define TOKEN_JOB_MAGIC 0x70ce4f0bu
struct token_job {
	uint32_t magic; /* until it is answered */
	struct front_token *front;
	/* The request to s3. */
	struct s3_request request;
	struct s3_token token;
	struct s3_body body;
	bool is_session;		       /* the token names a session … */
	uint8_t session[HIPOBJ_SESSION_BYTES]; /* … this one */
	/* The transfer. */
	struct list link;     /* front->jobs */
	struct token_qp *qp;  /* admitted */
	uint64_t deadline_ns; /* of the bytes, without a wait for a fan-out */
	struct flow_remote run;
	struct flow_peer peer;
	struct flow_source source, *inner_source;
	struct flow_sink sink, *inner_sink;
	uint64_t bytes_moved;
	bool has_crc64;
	uint64_t crc64;
	/* The answer. */
	const char *declined; /* the reason: the request runs again without the token */
	bool has_checksum;
	struct kept_reply kept;
};

/* Checks those that come from a message, from s3, or from the end of a transfer. */
static inline void token_qp_check(const struct token_qp *qp)
{
	CHECK(qp->magic == TOKEN_QP_MAGIC);
}

static inline void token_job_check(const struct token_job *job)
{
	CHECK(job->magic == TOKEN_JOB_MAGIC);
}

static inline uint64_t token_job_deadline_ns(const struct token_job *job)
{
	return job->deadline_ns + job->token.wait_ns;
}

/* ---- token/token.c ---- */
/* The front that has, or would have, this peer's queue pair. */
struct front_token *token_home(const struct front_token *front, const struct token *peer);
/* Whether bytes can move over it, as far as is known. If it broke since, the transfer fails. */
bool token_qp_ready(struct token_qp *qp);
/* The queue pair of this peer and identity; NULL: none that can be used. */
struct token_qp *token_qp_find(
	struct front_token *front, const struct token *peer, const char *access_key);
/* An initiator aimed at the token's DC target, in flight for one request; NULL: this device has
 * none, or none is free. Fiber call. */
struct token_qp *token_dci_lease(struct front_token *front, const struct token *target);
/* Connects one; -EINVAL, -ENOSPC, -EOPNOTSUPP and the device's own errors. Fiber call. */
int token_qp_join(struct front_token *front, const struct s3_identity *identity, uint16_t share,
	struct s3_token_end *end);
/* The same for a session, whose client does not say its MTU: end->mtu is 0 for the port's. */
int token_qp_join_session(
	struct front_token *front, struct s3_token_end *end, struct token_qp **ret_qp);
/* Takes it out of use: in the error state none of its work requests accesses the peer's memory. It
 * closes when the last transfer on it ends. */
void token_qp_retire(struct token_qp *qp, const char *why);
/* A request on it has ended. */
void token_qp_release(struct token_qp *qp);

/* ---- token/session.c ---- */
/* The front that has this session; NULL: none. */
struct front_token *token_session_home(
	const struct front_token *front, const uint8_t id[HIPOBJ_SESSION_BYTES]);
/* The queue pair of a session that this access key's signed and allowed request names. The first
 * such request binds it to the key, and counts it for the key's principal. NULL: there is none, or
 * it is another key's. */
struct token_qp *token_session_claim(struct front_token *front,
	const uint8_t id[HIPOBJ_SESSION_BYTES], const char *access_key, uint16_t share);
/* Ends the oldest unproven session; false: there is none. */
bool token_session_evict(struct front_token *front);
/* Counts it for another owner: a session is proven. */
void token_qp_share_set(struct token_qp *qp, uint16_t share);
/* An unproven session has ended, or is proven. */
void token_session_uncount(struct front_token *front);

#endif
