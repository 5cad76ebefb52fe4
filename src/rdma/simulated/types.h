/* rdma/simulated/types.h: the simulated provider's own structures.
 *
 * Locking: the device's lock guards connections, peers, shared files, listeners and events; it is
 * never taken on the data path. A queue pair's queues belong to the thread that polls its
 * completion queues. The connection manager's thread speaks to that thread through the atomic
 * fields only (state, gone, bell bits). */
#ifndef RDMA_SIMULATED_TYPES_H
#define RDMA_SIMULATED_TYPES_H

#include "rdma/simulated/device.h"

/* ---- Queues. ---- */
struct sim_cq {
	struct rp_cq base; /* its descriptor is readable when one of the two below is */
	struct sim_device *device;
	int event_fd;	    /* peers write it */
	struct list dgrams; /* struct sim_dgram.link: every poll reads their sockets */

	struct sim_bell *bell;
	uint32_t bell_idx;
	bool overrun, overrun_told;
	bool by_bell;
	uint32_t head, tail, mask, cqe_count;
	struct rp_wc *wcs;
	uint32_t qp_count, qp_slots; /* attached; first never used slot */
	uint32_t sweep;
	struct sim_qp **qps; /* by bell bit; NULL: free */
	struct list busy;    /* queue pairs with unfinished sends, when by_bell */
};

struct sim_recv {
	uint64_t wr_id;
	uint32_t sge_count;
	uint32_t sge_first; /* index into the queue's sges */
};
struct sim_rq {
	uint32_t head, tail, wr_max, sge_max, mask;
	struct sim_recv *recvs;
	struct rp_sge *sges;
};
struct sim_srq {
	struct rp_srq base;
	struct sim_pd *pd;
	struct sim_rq rq;
	struct list stalled; /* queue pairs whose message waits for a receive */
};

/* Where in a scatter list the next byte goes to or comes from. */
struct sim_cursor {
	uint32_t idx;
	uint32_t offset;
};

/* A posted send. Phases: QUEUED (not yet begun), BEGUN (checked; some of it may be on the wire),
 * DONE (executed; retires when all before it have, and its message is acknowledged). */
enum sim_send_phase { SIM_QUEUED, SIM_BEGUN, SIM_DONE };
struct sim_send {
	uint64_t wr_id;
	uint64_t remote_addr;
	uint64_t compare_add, swap;
	uint64_t not_before_ns; /* faults: when the next try is due */
	uint32_t rkey, imm;
	uint32_t total; /* bytes of the scatter list */
	uint32_t offset;
	uint32_t msn; /* of the message, when it needs an acknowledgement */
	uint8_t opcode, flags, phase, status;
	uint8_t sge_count, tries, rnr_tries;
	bool needs_ack, asked, moved, assisting, delayed, fault_drawn;
	uint8_t fault;
	struct sim_cursor cursor;
};

/* Counted by the queue pair's thread without atomics, added to the counters now and then. */
struct sim_tally {
	uint64_t sends, reads, writes, atomics, bytes, wire_bytes;
	uint64_t retries, rnr_waits, assists, errors;
};

struct sim_bell_ref {
	struct sim_bell *bell; /* the peer's */
	uint32_t bit;
	int event_fd;
};

/* Connection phases: see simulated/cm.c. */
enum sim_conn_phase {
	SIM_CONN_RETRY,
	SIM_CONN_WAIT_REPLY,
	SIM_CONN_WAIT_HELLO,
	SIM_CONN_REQUESTED,
	SIM_CONN_WAIT_READY,
	SIM_CONN_UP,
	SIM_CONN_DOWN,
};
enum sim_handle_type { SIM_HANDLE_LISTENER, SIM_HANDLE_CONN, SIM_HANDLE_TIMER, SIM_HANDLE_EVENT };
struct sim_handle { /* the object that an epoll event points at */
	enum sim_handle_type type;
};
struct sim_listener {
	struct sim_handle handle;
	struct rp_listener base;
	struct sim_device *device;
	struct list link;
	int fd;
};
struct sim_conn {
	struct sim_handle handle;
	struct rp_conn_request request; /* held by the application while REQUESTED */
	struct list link;
	struct sim_device *device;
	struct sim_qp *qp; /* NULL: none yet, or closed */
	struct sim_peer *peer;
	struct sim_wire *wire;
	enum sim_conn_phase phase;
	int fd;
	int event_fds[2];
	bool active; /* we connected */
	bool joined; /* by hand: no events */
	uint64_t deadline_ns;
	uint64_t retry_ns;
	char address[64];
	uint16_t port;
	const char *why;	       /* why it did not come up; NULL: not known */
	bool late;		       /* it did not come up in time */
	int wire_fd;		       /* until the hello is sent */
	void *pairing;		       /* sim_pairing() of the wire */
	struct sim_listener *listener; /* until it closes */
	pid_t pid;		       /* of the process that sent HELLO or REPLY */
	struct sim_packet hello;       /* theirs (passive), or ours (active) */
	int hello_fds[SIM_HELLO_FDS];
};

/* The sockets of a queue pair for datagrams: simulated/dgram.c. */
#define SIM_MTU		    4096u
#define SIM_FRAME_BYTES_MIN 14u
#define SIM_FRAME_BYTES_MAX 9234u /* jumbo, with a VLAN tag */
#define SIM_GROUPS_MAX	    16u
struct sim_dgram {
	struct list link;
	struct sim_qp *qp;
	int fds[1 + SIM_GROUPS_MAX]; /* its own, then one for each group */
	uint32_t fd_count;
	struct list rules; /* of a raw one: struct sim_flow.link */
	uint8_t bytes[SIM_FRAME_BYTES_MAX];
};

struct sim_qp {
	struct rp_qp base;
	/* ---- Looked at on every visit. ---- */
	_Alignas(64) _Atomic uint32_t state; /* enum rp_qp_state */
	_Atomic uint32_t gone;		     /* the connection is down: finish and flush */
	_Atomic uint32_t moving;	     /* copying to or from a mapping of the peer's */
	bool started;
	bool bell_due;
	uint32_t spins;
	uint32_t rx_next;
	struct sim_slot *rx;
	uint32_t sq_head, sq_exec, sq_tail; /* retired, executed, posted */
	uint32_t signaled;		    /* of those not retired */
	/* ---- Sending. ---- */
	struct sim_slot *tx;
	struct sim_side *mine, *theirs;
	uint32_t tx_next, tx_freed; /* slots written; slots the peer has taken */
	uint32_t sent, acked;	    /* messages that consume a receive */
	uint32_t peer_posted;
	bool peer_srq;
	uint32_t sq_sge_max, sq_mask;
	struct sim_send *sq;
	struct rp_sge *sq_sges;
	uint8_t *sq_inline;
	uint32_t bell_count;
	struct sim_bell_ref bells[2];
	struct sim_peer *peer;
	uint32_t peer_pd, peer_qpn;
	struct sim_assist *my_assist, *their_assist;
	uint32_t assist_asked;
	bool retire_due; /* the peer has acknowledged more since sim_retire() */
	bool broken;	 /* a send failed: nothing after it executes */
	uint32_t nak;	 /* enum rp_status that the peer gave to message acked + 1 */
	struct sim_tally tally;
	/* ---- Receiving. ---- */
	struct sim_rq rq;
	uint32_t rx_acked, rx_assisted;
	bool rx_busy;	  /* a message is half received, into rx_recv */
	bool rx_dropping; /* UC: the message at hand is not received */
	struct sim_recv rx_recv;
	struct rp_sge rx_sges[LIMIT_SGE_MAX];
	struct sim_cursor rx_cursor;
	uint32_t rx_len;
	uint64_t rx_room;
	/* ---- The rest. ---- */
	struct sim_device *device;
	struct sim_pd *pd;
	struct sim_cq *send_cq, *recv_cq;
	struct sim_srq *srq;
	uint32_t send_bit, recv_bit;
	struct list busy;
	struct list stalled;
	bool timing;	      /* waits for a time, so its completion queue must not sleep */
	uint64_t transmitted; /* counted for faults only */
	uint8_t retry_count, rnr_retry_count;
	uint64_t timeout_ns;
	struct prng prng;
	struct sim_conn *conn;
	struct sim_dgram *dgram; /* UD and raw packets; NULL: connected */
	bool joined;		 /* by hand */
	struct list joining;
	struct rp_address join_peer;
	uint32_t psn;
	/* Written by the connection manager before state becomes RTS. */
	struct sim_wire *wire;
	void *pairing; /* sim_pairing() of the wire */
};

static inline void sim_rq_check(const struct sim_rq *rq)
{
	CHECK(rq->tail - rq->head <= rq->wr_max);
}

static inline void sim_cq_check(const struct sim_cq *cq)
{
	CHECK(cq->tail - cq->head <= cq->cqe_count);
}

/* The executed position lies between the retired and the posted one. */
static inline void sim_qp_check(const struct sim_qp *qp)
{
	CHECK(qp->sq_tail - qp->sq_head <= qp->base.cap.max_send_wr);
	CHECK(qp->sq_exec - qp->sq_head <= qp->sq_tail - qp->sq_head);
}

_Static_assert(LIMIT_SGE_MAX <= UINT8_MAX, "a send counts its list in a byte");
_Static_assert(SIM_QP_WRS_MAX <= INT32_MAX, "positions are compared by their difference");
_Static_assert(SIM_SLOTS <= SIM_QP_WRS_MAX, "a full ring does not hold back a queue's posting");
_Static_assert((SIM_SLOTS & (SIM_SLOTS - 1)) == 0, "slots are numbered by a counter that wraps");
_Static_assert((SIM_BACKINGS_MAX & (SIM_BACKINGS_MAX - 1)) == 0, "so are shared files");
_Static_assert(SIM_CQS_MAX % 64 == 0, "a bit in whole words for each bell");
_Static_assert(SIM_INLINE_BYTES_MIN <= SIM_INLINE_BYTES_MAX, "what is given is what may be asked");
_Static_assert(SIM_MTU <= SIM_FRAME_BYTES_MAX, "a datagram fits where frames do");
_Static_assert(SIM_MESSAGE_BYTES_MAX <= INT32_MAX, "a message's length is counted in 32 bits");
_Static_assert(sizeof(((struct sim_packet *)0)->private_data) >= RP_PRIVATE_BYTES_MAX,
	"a greeting carries all private data");
_Static_assert(RP_FETCH_ADD <= UINT8_MAX, "a send keeps its opcode in a byte");
_Static_assert(RP_WC_GENERAL_ERR <= UINT8_MAX, "and its status");

#endif
