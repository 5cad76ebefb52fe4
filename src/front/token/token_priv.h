/* front/token/token_priv.h: what the files of the token front share: queue pairs that clients
 * joined, and a request while its bytes move.
 *
 *   token/token.c          the front: queue pairs, their coming and going, the sweep
 *   token/request.c  a request: to the queue pairs' reactor and back, its body, its answer
 *
 * All but handing over runs on the front's own reactor. There is one front a reactor; a queue pair
 * belongs to the front that the number of its client's end selects, so every front that receives
 * its token can find it. */
#ifndef FRONT_TOKEN_TOKEN_PRIV_H
#define FRONT_TOKEN_TOKEN_PRIV_H

#include "codec/codec.h"
#include "front/front.h"
#include "reactor/reactor.h"

#define TOKEN_SWEEP_NS (100 * NS_PER_MS)
/* Asking the device for a queue pair's state is a system call, and on some a message to the card:
 * what proved itself so recently is not asked about, and a sweep asks about so many. */
#define TOKEN_PROVEN_NS		 (1 * NS_PER_S)
#define TOKEN_LOOKS_MAX		 8u
#define TOKEN_SEND_WRS		 64u
#define TOKEN_HEADERS_MAX	 (LIMIT_HTTP_HEADERS_MAX + 32u)
#define TOKEN_HEADER_BYTES_MAX	 LIMIT_HTTP_HEAD_BYTES_MAX
#define TOKEN_DOCUMENT_BYTES_MAX (64 * KIB)

/* A joined queue pair. It is there from ?rdma-connect until it is disconnected, replaced, idle for
 * too long, or broken by a transfer that failed; then it closes with the last request on it. */
#define TOKEN_QP_MAGIC 0x70ce40b9u
struct token_qp {
	uint32_t magic; /* until it is freed */
	struct list link;
	struct front_token *front;
	struct rp_qp *qp;
	uint16_t target;
	bool dc;	    /* an initiator, aimed at one request's target at a time */
	struct rp_ah *ah;   /* DC: of that target */
	bool gone;	    /* takes no more requests */
	uint32_t in_flight; /* requests that move bytes over it */
	uint64_t last_ns;   /* when one ended */
	uint64_t proven_ns; /* when it last moved bytes, or the device said that it can; 0: never */
	struct token peer;  /* the client's end */
	char access_key[LIMIT_ACCESS_KEY_LEN_MAX + 1]; /* whose it is */
};

/* The fronts of all reactors. */
struct token_group {
	struct front_token *fronts[LIMIT_CORES_MAX];
	uint32_t front_count;
	_Atomic uint32_t qp_count; /* of all */
};

struct front_token {
	struct front_token_opts opts;
	struct token_group *group;
	struct reactor *reactor;
	struct rp_cq *cq;
	bool has_dc;		      /* the device can reach targets without a connection */
	bool state_is_free;	      /* simulated: it lies in memory that both ends share */
	uint32_t queue_pairs_max;     /* that the completion queue has room for */
	struct reactor_poller poller; /* added while there are queue pairs, and so is the sweep */
	struct reactor_timer sweep;
	uint32_t look_at; /* the place in qps of the next to ask the device about */
	struct list qps;
	uint32_t qp_count;
	struct list jobs; /* admitted, with their deadlines */
};

/* One request. Phases: made on the reactor that received it → running on the front's → back, with
 * an answer, or declined. The fiber that made it waits meanwhile, so that all it points at stays.
 */
#define TOKEN_JOB_MAGIC 0x70ce4f0bu
struct token_job {
	uint32_t magic; /* until it is answered */
	struct front_token *front;
	struct reactor_msg msg;
	struct reactor *home;
	struct fiber *waiter;
	bool done;
	/* The request to s3. */
	struct s3_request request;
	struct s3_token token;
	struct s3_body body;
	/* The transfer. */
	struct list link;    /* front->jobs */
	struct token_qp *qp; /* admitted */
	uint64_t deadline_ns;
	struct flow_remote run;
	struct flow_peer peer;
	struct flow_source source, *inner_source;
	struct flow_sink sink, *inner_sink;
	uint64_t bytes_moved;
	bool has_crc64;
	uint64_t crc64;
	/* The answer. */
	const char *declined; /* why: asked again without the token */
	struct s3_reply reply;
	bool has_checksum;
	uint32_t header_count;
	uint32_t header_bytes;
	struct buf document;
	struct s3_header headers[TOKEN_HEADERS_MAX];
	char header_data[TOKEN_HEADER_BYTES_MAX];
};

/* Where they come in: from a message, from s3, from the end of a transfer. */
static inline void token_qp_check(const struct token_qp *qp)
{
	CHECK(qp->magic == TOKEN_QP_MAGIC);
}

static inline void token_job_check(const struct token_job *job)
{
	CHECK(job->magic == TOKEN_JOB_MAGIC);
}

/* ---- token/token.c ---- */
/* The front where this peer's queue pair lives, or would. */
struct front_token *token_home(const struct front_token *front, const struct token *peer);
/* Whether bytes can move over it, as far as is known: what has broken since is found by the
 * transfer, which fails. */
bool token_qp_ready(struct token_qp *qp);
/* The queue pair of this peer and identity, when it can be used; NULL. */
struct token_qp *token_qp_find(
	struct front_token *front, const struct token *peer, const char *access_key);
/* An initiator aimed at the token's DC target, for one request; NULL: this device has none, or none
 * to spare. */
struct token_qp *token_dci_lease(struct front_token *front, const struct token *target);
/* Joins one; -EINVAL, -ENOSPC, -EOPNOTSUPP and the device's own errors. */
int token_qp_join(
	struct front_token *front, const struct s3_identity *identity, struct s3_token_end *end);
/* Takes it out of use: in the error state no work of it touches its peer's memory. It closes when
 * nothing moves on it any more. */
void token_qp_retire(struct token_qp *qp, const char *why);
/* A request on it has ended. */
void token_qp_release(struct token_qp *qp);

#endif
