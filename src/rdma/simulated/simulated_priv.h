/* rdma/simulated_priv.h: the simulated provider's own structures.
 *
 * Who touches what: the device's lock guards connections, peers, shared files, listeners and
 * events; it is never taken on the data path. A queue pair's queues belong to the thread that polls
 * its completion queues. The connection manager's thread speaks to that thread through the atomic
 * fields only (state, gone, bell bits). */
#ifndef RDMA_SIMULATED_PRIV_H
#define RDMA_SIMULATED_PRIV_H

#include <pthread.h>
#include <sys/types.h>

#include "rdma/rdma_priv.h"
#include "rdma/simulated_wire.h"

#define SIM_BACKINGS_MAX      1024u
#define SIM_INLINE_BYTES_MAX  1024u
#define SIM_INLINE_BYTES_MIN  64u
#define SIM_QP_WRS_MAX	      32768u
#define SIM_CQES_MAX	      (1u << 22)
#define SIM_MESSAGE_BYTES_MAX (1u << 30)
/* With more queue pairs than this, a completion queue looks at bells instead of at every ring. */
#define SIM_SCAN_QPS_MAX 4u
#define SIM_RNR_WAIT_NS	 (100 * NS_PER_US)
#define SIM_TIMEOUT_NS	 (200 * NS_PER_US)

/* ---- Fault injection: probabilities as thresholds of a 32-bit draw. ---- */
struct sim_faults {
	bool any;
	bool no_direct; /* direct=0: every one-sided access is executed by the responder */
	uint64_t seed;
	uint64_t delay_ns;
	uint64_t drop, rnr, bad_rkey, qp_error, half_write, peer_death;
	uint64_t vanish; /* after so many transmissions of a queue pair; 0: never */
};
enum sim_fault {
	SIM_FAULT_NONE,
	SIM_FAULT_DROP,
	SIM_FAULT_RNR,
	SIM_FAULT_BAD_RKEY,
	SIM_FAULT_QP_ERROR,
	SIM_FAULT_HALF_WRITE,
	SIM_FAULT_PEER_DEATH,
};
/* -EINVAL: an unknown key or a bad value, logged. */
int sim_faults_parse(const char *device_name, struct sim_faults *ret_faults);

/* ---- Device. ---- */
/* A file of ours that peers may map: an arena. Shared when a memory region with remote access, or a
 * window, first lies in it, until the last such closes; with the peers of those queue pairs alone
 * that its key is good on. */
struct sim_backing {
	uint32_t refs;
	uint32_t pd, qpn; /* qpn 0: all of the domain */
	int fd;		  /* ours; without write permission unless writable */
	dev_t dev;
	ino_t ino;
	bool writable;
	uint64_t bytes;
	uint32_t generation; /* of this slot; outlives the file */
	uint32_t num;
};

/* A device that we are connected to, ours or another process's: known by its table's inode, which
 * cannot be forged without having the file. Shared by all connections to it. */
struct sim_mapping {
	_Atomic(uint8_t *) base;
	uint64_t bytes;
	uint32_t backing; /* the newest number known of this slot */
	bool writable;
};
struct sim_peer {
	struct list link;
	uint32_t refs;
	dev_t dev;
	ino_t ino;
	pid_t pid; /* 0: not visible from here */
	int pidfd; /* or -1 */
	/* Its memory: that which it had when it greeted us, whatever it executes later; -1: not to
	 * be had, so that it has to help. */
	int mem_fd;
	bool same_process;
	const struct sim_entry *table;
	struct sim_bell *bells;
	struct sim_mapping mappings[SIM_BACKINGS_MAX];
};

struct sim_cq;
struct sim_qp;
struct sim_device {
	struct rp_device base;
	struct sim_faults faults;
	char name[32];
	pthread_mutex_t lock;
	int table_fd, bell_fd;
	struct sim_entry *table;
	struct sim_bell *bells;
	uint32_t mr_count, mr_hint;
	uint32_t next_qpn, next_pd;
	uint32_t open_objects; /* pds, cqs, qps, listeners: must be 0 at close */
	uint64_t cqs_used[SIM_CQS_MAX / 64];
	struct sim_backing backings[SIM_BACKINGS_MAX];
	struct list peers, conns, listeners, events;
	struct list events_spare; /* memory for events to come */
	struct list joins;	  /* struct sim_qp.joining: who awaits a call */
	struct rp_listener *join_listener;
	uint8_t gid[16];
	uint8_t witness[SIM_WITNESS_BYTES]; /* that our memory is ours: struct sim_packet */
	int epoll_fd, timer_fd, event_fd;
	bool timer_set;
};

struct sim_pd {
	struct rp_pd base;
	struct sim_device *device;
	uint32_t num;
};

struct sim_ah {
	struct rp_ah base;
	struct sim_device *device;
	uint8_t gid[16]; /* of a device, or of a group */
};

struct sim_mr {
	struct rp_mr base;
	struct sim_pd *pd;
	struct sim_entry *entry;
	struct rp_mr_opts opts;
};

struct sim_mw {
	struct rp_mw base;
	struct sim_device *device;
	struct sim_entry *entry;
};

/* ---- Queues. ---- */
struct sim_cq {
	struct rp_cq base; /* its descriptor is readable when one of the two below is */
	struct sim_device *device;
	int event_fd;	    /* peers write it */
	struct list dgrams; /* struct sim_dgram.link: their sockets are looked at in every poll */

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

/* Connection phases: see simulated_cm.c. */
enum sim_conn_phase {
	SIM_CONN_RETRY,
	SIM_CONN_WAIT_REPLY,
	SIM_CONN_WAIT_HELLO,
	SIM_CONN_REQUESTED,
	SIM_CONN_WAIT_READY,
	SIM_CONN_UP,
	SIM_CONN_DOWN,
};
struct sim_listener;
enum sim_handle_type { SIM_HANDLE_LISTENER, SIM_HANDLE_CONN, SIM_HANDLE_TIMER, SIM_HANDLE_EVENT };
struct sim_handle { /* what an epoll event points at */
	enum sim_handle_type type;
};
struct sim_conn {
	struct sim_handle handle;
	struct rp_conn_request request; /* what the application holds while REQUESTED */
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
	const char *why;	       /* it did not come up; NULL: nothing more is known */
	int wire_fd;		       /* until the hello is sent */
	void *pairing;		       /* sim_pairing() of the wire */
	struct sim_listener *listener; /* until it closes */
	pid_t pid;		       /* that sent HELLO or REPLY */
	struct sim_packet hello;       /* theirs (passive), or ours (active) */
	int hello_fds[SIM_HELLO_FDS];
};

/* The sockets of a queue pair for datagrams: simulated_dgram.c. */
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
	bool retire_due; /* the peer has told of more since sim_retire() */
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

/* ---- simulated.c ---- */
/* A word of this process for both ends of a wire, which each has a mapping of: where both are here,
 * the thread sanitizer pairs their releases and acquires by it (base/sanitizer.h). */
void *sim_pairing(int wire_fd);
int sim_shared_file(const char *name, uint64_t bytes, bool future_write, int *ret_fd, void **ret);
/* The seals and the size of a peer's file: 0, or -EPROTO. */
int sim_shared_check(int fd, uint64_t bytes);

/* ---- simulated_qp.c: queues' lives; all slow. ---- */
int sim_cq_open(struct rp_device *device, uint32_t cqe_count, struct rp_cq **ret_cq);
void sim_cq_close(struct rp_cq *cq);
int sim_srq_open(struct rp_pd *pd, uint32_t max_wr, uint32_t max_sge, struct rp_srq **ret_srq);
void sim_srq_close(struct rp_srq *srq);
int sim_qp_open(struct rp_pd *pd, const struct rp_qp_attr *attr, struct rp_qp **ret_qp);
void sim_qp_close(struct rp_qp *qp);
enum rp_qp_state sim_qp_state(const struct rp_qp *qp);
void sim_qp_error(struct rp_qp *qp);
void sim_qp_info(struct rp_qp *base, struct rp_qp_info *ret_info);
/* The queue pair's own thread, once after the connection came up. */
void sim_qp_start(struct sim_qp *qp);
/* To the error state, flushing everything; why is logged when it is not NULL. */
void sim_qp_fail(struct sim_qp *qp, const char *why) __attribute__((cold));
/* The connection is down and all that had arrived has been received: flush. */
void sim_qp_gone(struct sim_qp *qp) __attribute__((cold));
/* A completion found its queue full. */
void sim_cq_overrun(struct sim_cq *cq) __attribute__((cold));
/* Any thread: have this queue pair looked at, waking who sleeps. */
void sim_qp_kick(struct sim_qp *qp);
void sim_refresh(struct sim_qp *qp);
void sim_retire(struct sim_qp *qp);

/* ---- simulated_dp.c ---- */
int sim_cq_poll(struct rp_cq *cq, struct rp_wc *wcs, uint32_t max);
bool sim_cq_arm(struct rp_cq *cq);
void sim_cq_disarm(struct rp_cq *cq);
int sim_post_send(
	struct rp_qp *qp, const struct rp_send_wr *wrs, uint32_t count, uint32_t *ret_posted);
int sim_post_recv(
	struct rp_qp *qp, const struct rp_recv_wr *wrs, uint32_t count, uint32_t *ret_posted);
int sim_srq_post(
	struct rp_srq *srq, const struct rp_recv_wr *wrs, uint32_t count, uint32_t *ret_posted);
void sim_cq_push(struct sim_cq *cq, const struct rp_wc *wc);
void sim_wake(struct sim_bell *bell, int event_fd);
/* Takes what stands in the ring from the peer. */
void sim_receive(struct sim_qp *qp);
/* Rings the peer, if it sleeps or looks at bells. */
void sim_ring(struct sim_qp *qp);

/* ---- simulated_move_dp.c: one-sided moves. ---- */
/* True when sge lies in a memory region of this pd that grants access. */
bool sim_local_ok(const struct sim_qp *qp, const struct rp_sge *sge, uint32_t access);
/* Executes a read, write or atomic: 0 done (send->status says how it ended), -EAGAIN: the responder
 * must help and has not yet. */
int sim_move(struct sim_qp *qp, struct sim_send *send, const struct rp_sge *sges, uint32_t bytes);
/* Injected fault: the first half of a write arrives. */
void sim_move_half(struct sim_qp *qp, struct sim_send *send);
/* The responder's part of an assisted move; returns what to tell the peer. */
enum rp_status sim_assist_serve(struct sim_qp *qp);

/* ---- simulated_peer.c: what is mapped of other devices, and what of ours is shared. ---- */
/* What a greeting says of the device that process pid opened; fds: its bells, its table. */
int sim_peer_get(struct sim_device *device, const struct sim_packet *hello, const int *fds,
	pid_t pid, struct sim_peer **ret_peer);
void sim_peer_put(struct sim_peer *peer);
bool sim_peer_alive(const struct sim_peer *peer);
int sim_peer_backing_add(
	struct sim_device *device, struct sim_peer *peer, const struct sim_packet *packet, int fd);
void sim_peer_backing_remove(
	struct sim_device *device, struct sim_peer *peer, const struct sim_packet *packet);
/* Shares a file with whom the entry's key is for, or finds it shared; entry->backing is its number,
 * untouched when it cannot be. */
void sim_backing_get(
	struct sim_device *device, const struct rp_mr_opts *opts, struct sim_entry *entry);
void sim_backing_put(struct sim_device *device, uint32_t backing);

/* ---- simulated_cm.c ---- */
int sim_listen(struct rp_device *device, const char *address, uint16_t port,
	struct rp_listener **ret_listener);
void sim_listener_close(struct rp_listener *listener);
int sim_connect(struct rp_qp *qp, const char *address, uint16_t port, struct slice private_data,
	uint64_t deadline_ns);
int sim_accept(struct rp_conn_request *request, struct rp_qp *qp, struct slice private_data);
void sim_reject(struct rp_conn_request *request, struct slice private_data);
void sim_disconnect(struct rp_qp *qp);
int sim_cm_poll(struct rp_device *device, struct rp_cm_event *ret_event);
int sim_cm_fd(const struct rp_device *device);
/* sim_cm_fini() takes back a half-built one, too. */
int sim_cm_init(struct sim_device *device);
void sim_cm_fini(struct sim_device *device);
/* Takes the connection away from a queue pair that closes. */
void sim_cm_forget(struct sim_qp *qp);
/* Locked. Tells every peer of a shared file, or that it is gone. */
void sim_cm_tell_backing(struct sim_device *device, const struct sim_backing *backing, bool gone);
/* Injected fault: cuts the connection as a dying peer would. */
void sim_cm_cut(struct sim_qp *qp);
/* Reads what has come on this connection's socket: a shared file may be among it. */
void sim_cm_catch_up(struct sim_qp *qp);

/* Locked. Has this told to the application. */
void sim_event_push(struct sim_device *device, const struct rp_cm_event *event);
/* Locked. Takes back what was to be told of a group. */
void sim_event_forget_group(struct sim_device *device, const struct rp_group *group);

/* ---- simulated_join.c: queue pairs joined by hand. ---- */
/* Draws the device's GID, once, and listens there. */
int sim_device_name_itself(struct sim_device *device);
int sim_qp_address(struct rp_qp *base, struct rp_address *ret_address);
int sim_qp_join(struct rp_qp *base, const struct rp_address *peer, bool first);
/* Locked. The queue pair that awaits this call, no longer waiting; NULL: none does. */
struct sim_qp *sim_join_take(struct sim_device *device, const struct sim_packet *hello);

/* ---- simulated_dgram.c: datagrams. ---- */
int sim_dgram_open(struct sim_qp *qp);
void sim_dgram_close(struct sim_dgram *dgram); /* takes NULL */
/* Sends what a request says; 0: it is gone, wherever to. */
int sim_dgram_send(struct sim_qp *qp, struct sim_send *send, const struct rp_sge *sges);
/* Takes what waits in the sockets of all that receive by this queue. */
void sim_dgram_receive(struct sim_cq *cq);
/* The sockets wake who sleeps on the queue's descriptor, or do not. */
void sim_dgram_arm(struct sim_cq *cq, bool on);
int sim_group_join(struct rp_qp *base, const char *address, struct rp_group **ret_group);
void sim_group_leave(struct rp_group *base);
int sim_flow_open(struct rp_qp *base, const struct rp_flow_rule *rule, struct rp_flow **ret_flow);
void sim_flow_close(struct rp_flow *base);

/* ---- simulated_ah.c: address handles. ---- */
int sim_ah_from_wc(
	struct rp_pd *base, const struct rp_wc *wc, const void *grh, struct rp_ah **ret_ah);
int sim_ah_open(struct rp_pd *base, const struct rp_address *to, struct rp_ah **ret_ah);
void sim_ah_close(struct rp_ah *base);
int sim_dci_aim(struct rp_qp *dci, struct rp_ah *ah, uint32_t target_qpn, uint64_t dc_key);

/* ---- simulated_fault.c ---- */
void sim_tally_flush(struct sim_qp *qp);
/* Whether a send may execute now as far as injected faults go: 0, 1 (it is lost in silence, as
 * unreliable ones are), -EAGAIN (later), or -EIO: it has failed, its status says how (or the queue
 * pair is in error by now). */
int sim_fault_step(struct sim_qp *qp, struct sim_send *send) __attribute__((cold));
/* The receiver is not ready: -EAGAIN (wait), or -EIO when that was once too often. */
int sim_rnr_step(struct sim_qp *qp, struct sim_send *send) __attribute__((cold));

#endif
