/* tests/unit/rdma/loopback/loopback.h: the provider "loopback": RC queue pairs within one process,
 * whose bytes move by memmove(). It is the example of docs/guide/provider.md, so it is written to
 * be read: one lock guards everything, and every request executes when it is posted, or waits until
 * the peer posts a receive.
 *
 * Files: device.c has the registered objects and the ops table, qp.c the queues, cm.c the
 * connections. Functions whose comment says "Locked" are called with loop_lock held. */
#ifndef TESTS_RDMA_LOOPBACK_H
#define TESTS_RDMA_LOOPBACK_H

#include <pthread.h>

#include "rdma/provider/provider.h"

#define LOOP_WRS_MAX	  4096u
#define LOOP_CQES_MAX	  65536u
#define LOOP_MRS_MAX	  256u /* a key's low bits are an index */
#define LOOP_INLINE_BYTES 64u
#define LOOP_MTU	  4096u
#define LOOP_BYTES_MAX	  (1u << 30) /* of a message */
#define LOOP_TIMEOUT_US	  200u
#define LOOP_RNR_WAIT_NS  (100 * NS_PER_US)
_Static_assert((LOOP_MRS_MAX & (LOOP_MRS_MAX - 1)) == 0, "a key's low bits are an index");

extern pthread_mutex_t loop_lock;
extern const struct rp_ops loop_ops;

struct loop_device {
	struct rp_device base;
	int cm_fd; /* a timer: it has expired while events wait, and expires at the next deadline */
	struct list events; /* struct loop_event.link */
	struct list qps;    /* struct loop_qp.link */
	uint32_t open_objects;
};

struct loop_pd {
	struct rp_pd base;
	struct loop_device *device;
};

struct loop_mr {
	struct rp_mr base;
	struct loop_pd *pd;
	uint64_t addr, bytes;
};

struct loop_cq {
	struct rp_cq base; /* its descriptor is an eventfd */
	struct loop_device *device;
	enum { LOOP_CQ_IDLE, LOOP_CQ_ARMED, LOOP_CQ_TOLD } bell;
	bool overrun;
	uint32_t head, tail, cqe_count;
	uint32_t qp_count;
	struct rp_wc *wcs;
};

struct loop_recv {
	uint64_t wr_id;
	uint32_t sge_count;
	struct rp_sge sges[LIMIT_SGE_MAX];
};
struct loop_rq {
	uint32_t head, tail, wr_max, sge_max;
	struct loop_recv *recvs;
};
struct loop_srq {
	struct rp_srq base;
	struct loop_pd *pd;
	struct loop_rq rq;
	uint32_t qp_count;
};

struct loop_send {
	struct rp_send_wr wr; /* its list is sges */
	uint32_t total;
	uint32_t rnr_tries;
	uint64_t next_try_ns;
	struct rp_sge sges[LIMIT_SGE_MAX];
	uint8_t data[LOOP_INLINE_BYTES]; /* RP_SEND_INLINE */
};

struct loop_request;
struct loop_qp {
	struct rp_qp base;
	struct list link; /* of its device */
	struct loop_device *device;
	struct loop_pd *pd;
	struct loop_cq *send_cq, *recv_cq;
	struct loop_srq *srq; /* or NULL */
	enum rp_qp_state state;
	struct loop_qp *peer;	      /* NULL: none yet, or it is gone */
	struct loop_request *request; /* this end's, until it is answered */
	uint32_t joining;	      /* the number of the peer to connect with */
	struct list joining_link;     /* while it waits for that peer */
	bool joined;		      /* without a connection manager: no events */
	uint8_t retry_count, rnr_retry_count;
	uint32_t timeout_us;
	uint32_t sent, received;
	uint32_t sq_head, sq_tail;
	struct loop_send *sq;
	struct loop_rq rq;
};

struct loop_ah {
	struct rp_ah base;
	struct loop_pd *pd;
};

/* ---- device.c ---- */
/* Locked. The region of this key, if it covers the range and grants this access in the domain. */
struct loop_mr *loop_mr_find(
	const struct loop_pd *pd, uint32_t key, uint64_t addr, uint64_t bytes, uint32_t access);
/* Counts an object that must be closed before the device. */
void loop_count(struct loop_device *device, int change);

/* ---- qp.c ---- */
int loop_cq_open(struct rp_device *base, uint32_t cqe_count, struct rp_cq **ret_cq);
void loop_cq_close(struct rp_cq *base);
int loop_cq_poll(struct rp_cq *base, struct rp_wc *wcs, uint32_t max);
bool loop_cq_arm(struct rp_cq *base);
void loop_cq_disarm(struct rp_cq *base);
int loop_srq_open(struct rp_pd *base, uint32_t max_wr, uint32_t max_sge, struct rp_srq **ret_srq);
void loop_srq_close(struct rp_srq *base);
int loop_srq_post(
	struct rp_srq *base, const struct rp_recv_wr *wrs, uint32_t count, uint32_t *ret_posted);
int loop_qp_open(struct rp_pd *base, const struct rp_qp_attr *attr, struct rp_qp **ret_qp);
void loop_qp_close(struct rp_qp *base);
enum rp_qp_state loop_qp_state(const struct rp_qp *base);
int loop_post_send(
	struct rp_qp *base, const struct rp_send_wr *wrs, uint32_t count, uint32_t *ret_posted);
int loop_post_recv(
	struct rp_qp *base, const struct rp_recv_wr *wrs, uint32_t count, uint32_t *ret_posted);
void loop_qp_error(struct rp_qp *base);
void loop_qp_info(struct rp_qp *base, struct rp_qp_info *ret_info);
/* Locked. Enters the error state: posted requests are flushed. */
void loop_qp_fail(struct loop_qp *qp);

/* ---- cm.c ---- */
int loop_listen(struct rp_device *base, const char *address, uint16_t port,
	struct rp_listener **ret_listener);
void loop_listener_close(struct rp_listener *base);
int loop_connect(struct rp_qp *base, const char *address, uint16_t port, struct slice private_data,
	uint64_t deadline_ns);
int loop_accept(struct rp_conn_request *base, struct rp_qp *qp, struct slice private_data);
void loop_reject(struct rp_conn_request *base, struct slice private_data);
void loop_disconnect(struct rp_qp *base);
int loop_qp_address(struct rp_qp *base, struct rp_address *ret_address);
int loop_qp_join(struct rp_qp *base, const struct rp_address *peer, bool first);
int loop_cm_poll(struct rp_device *base, struct rp_cm_event *ret_event);
int loop_cm_fd(const struct rp_device *base);
/* Locked. A queue pair closes: its peer gets an event; its events and its request are dropped. */
void loop_cm_forget(struct loop_qp *qp);
/* Locked. Ends everything that waits for a closing device. */
void loop_cm_fini(struct loop_device *device);

#endif
