/* tests/unit/front/fake_rdma.h: a device controlled by the test: when it does its work, how much it
 * accepts, and what it refuses. It replaces the part of rdma/rdma.h that the fronts call: writes
 * reach the test's memory, and sends are in an outbox until the test takes them. */
#ifndef TESTS_UNIT_FRONT_FAKE_RDMA_H
#define TESTS_UNIT_FRONT_FAKE_RDMA_H

#include "rdma/rdma.h"

#define FAKE_RKEY 0x77u /* gives access to all memory of the test */

struct fake_rdma {
	struct rp_device_attr attr;
	uint32_t send_room;    /* of a queue pair; 0: as asked */
	uint32_t inline_bytes; /* the same; reported by fake_open */
	/* The next call fails with this error; 0: it does not fail. */
	int cq_open_error, pd_open_error, mr_open_error, qp_open_error, target_error;
	int listen_error, accept_error, post_recv_error, post_send_error;
	int address_error, join_error, ah_error, aim_error;
	uint32_t post_recvs;	       /* number of successes before post_recv_error */
	bool hold_sends;	       /* until fake_sends_go */
	bool hold_ring;		       /* until fake_ring_go */
	const struct rp_qp *hold_only; /* hold_ring is for this one; NULL: for all */
	bool never_flushes;	 /* a queue pair in error does not flush: the card is broken */
	_Atomic bool hold_joins; /* until fake_joins_go: the peer's address is looked for */
	_Atomic uint32_t joins_held;
	/* Calls that may block, on the thread that called fake_open: the event loop's. */
	_Atomic uint32_t loop_blocked;
	/* The calls that it received. */
	uint32_t qps_open, ahs_open, state_asked, rejected;
	struct list qps; /* including closed ones */
};
extern struct fake_rdma fake;

struct fake_message {
	struct list link;
	uint32_t bytes;
	uint8_t data[] __attribute__((aligned(8)));
};

struct rp_conn_request {
	struct rp_qp *qp; /* accepted with */
	bool rejected;
};

void fake_open(void);
void fake_close(void);
struct rp_device *fake_device(void);
/* A client connects. */
void fake_connect(struct rp_conn_request *request, const void *private_data, uint32_t private_len);
void fake_event(enum rp_cm_type type, struct rp_qp *qp);
/* Delivers a message from the peer to the oldest receive; false: none is posted. */
bool fake_deliver(struct rp_qp *qp, const void *data, uint32_t bytes);
/* The oldest message that was sent to the peer; NULL: none. The caller frees it. */
struct fake_message *fake_sent(struct rp_qp *qp);
uint32_t fake_recvs(const struct rp_qp *qp); /* posted */
uint32_t fake_sends(const struct rp_qp *qp); /* held */
/* Does the held work requests, at most count. */
void fake_sends_go(struct rp_qp *qp, uint32_t count);
void fake_ring_go(struct rp_qp *qp);
void fake_joins_go(void);
bool fake_ring_held(const struct rp_qp *qp);
/* The peer is gone: held work requests fail, and so do all later ones. */
void fake_break(struct rp_qp *qp, enum rp_status status);
/* Flushes the work requests that never_flushes kept. */
void fake_flush(struct rp_qp *qp);
void fake_state(struct rp_qp *qp, enum rp_qp_state state);
bool fake_closed(const struct rp_qp *qp);

#endif
