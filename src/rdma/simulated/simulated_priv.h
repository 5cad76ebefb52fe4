/* rdma/simulated/simulated_priv.h: the calls between the files of the simulated provider. */
#ifndef RDMA_SIMULATED_SIMULATED_PRIV_H
#define RDMA_SIMULATED_SIMULATED_PRIV_H

#include "rdma/simulated/types.h"

/* ---- simulated/device.c ---- */
/* A word of this process for both ends of a wire, each of which has its own mapping: where both are
 * here, the thread sanitizer pairs their releases and acquires by it (base/sanitizer.h). */
void *sim_pairing(int wire_fd);
int sim_shared_file(const char *name, uint64_t bytes, bool future_write, int *ret_fd, void **ret);
/* The seals and the size of a peer's file: 0, or -EPROTO. */
int sim_shared_check(int fd, uint64_t bytes);

/* ---- simulated/qp.c: queues' lives; all slow. ---- */
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
/* Any thread: has this queue pair visited, and wakes a thread that sleeps. */
void sim_qp_kick(struct sim_qp *qp);
void sim_refresh(struct sim_qp *qp);
void sim_retire(struct sim_qp *qp);

/* ---- simulated/qp_dp.c ---- */
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
/* Takes the records in the ring from the peer. */
void sim_receive(struct sim_qp *qp);
/* Rings the peer, if it sleeps or looks at bells. */
void sim_ring(struct sim_qp *qp);

/* ---- simulated/move_dp.c: one-sided moves. ---- */
/* True when sge lies in a memory region of this pd that grants access. */
bool sim_local_ok(const struct sim_qp *qp, const struct rp_sge *sge, uint32_t access);
/* Executes a read, write or atomic: 0 done (send->status says how it ended), -EAGAIN: the responder
 * must help and has not yet. */
int sim_move(struct sim_qp *qp, struct sim_send *send, const struct rp_sge *sges, uint32_t bytes);
/* Injected fault: the first half of a write arrives. */
void sim_move_half(struct sim_qp *qp, struct sim_send *send);
/* The responder's part of an assisted move; returns the status for the peer. */
enum rp_status sim_assist_serve(struct sim_qp *qp);

/* ---- simulated/peer.c: mappings of other devices, and shared files of our own. ---- */
/* Takes a greeting of the device that process pid opened; fds: its bells, its table. */
int sim_peer_get(struct sim_device *device, const struct sim_packet *hello, const int *fds,
	pid_t pid, struct sim_peer **ret_peer);
void sim_peer_put(struct sim_peer *peer);
bool sim_peer_alive(const struct sim_peer *peer);
int sim_peer_backing_add(
	struct sim_device *device, struct sim_peer *peer, const struct sim_packet *packet, int fd);
void sim_peer_backing_remove(
	struct sim_device *device, struct sim_peer *peer, const struct sim_packet *packet);
/* Shares a file with the peers of the entry's key, or finds it shared; entry->backing is its
 * number, unchanged when it cannot be shared. */
void sim_backing_get(
	struct sim_device *device, const struct rp_mr_opts *opts, struct sim_entry *entry);
void sim_backing_put(struct sim_device *device, uint32_t backing);

/* ---- simulated/cm_listen.c ---- */
int sim_listen(struct rp_device *device, const char *address, uint16_t port,
	struct rp_listener **ret_listener);
void sim_listener_close(struct rp_listener *listener);
/* Locked. Accepts one connection. */
void sim_listener_readable(struct sim_listener *listener);

/* ---- simulated/cm.c ---- */
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
/* Cuts the connection: both ends see their socket close. */
void sim_cm_cut(struct sim_qp *qp);
/* The device fails, as an injected fault: its connections end, and it opens no more queue pairs. */
void sim_cm_fail(struct sim_device *device);
/* Reads the packets on this connection's socket: a shared file may be among them. */
void sim_cm_catch_up(struct sim_qp *qp);

/* Locked. Takes over the socket of a listener's new connection; its hello may be there already. */
void sim_conn_take(struct sim_listener *listener, int fd);
/* Locked. Drops the requests that the application has not seen, and the connections that have not
 * said hello. */
void sim_conn_forget_listener(struct sim_listener *listener);

/* ---- simulated/cm_event.c: all locked. ---- */
/* sim_events_close() takes back a half-built queue, too. */
int sim_events_open(struct sim_device *device);
void sim_events_close(struct sim_device *device);
void sim_event_push(struct sim_device *device, const struct rp_cm_event *event);
/* The next event for the application; false: there is none. */
bool sim_event_pop(struct sim_device *device, struct rp_cm_event *ret_event);
void sim_event_forget_group(struct sim_device *device, const struct rp_group *group);
void sim_event_forget_qp(struct sim_device *device, const struct rp_qp *qp);
/* The next request at this listener that the application has not seen, which it will not see then;
 * NULL: there is none. */
struct rp_conn_request *sim_event_take_request(
	struct sim_device *device, const struct rp_listener *listener);

/* ---- simulated/join.c: queue pairs joined by hand. ---- */
/* Draws the device's GID, once, and listens there. */
int sim_device_name_itself(struct sim_device *device);
int sim_qp_address(struct rp_qp *base, struct rp_address *ret_address);
int sim_qp_join(struct rp_qp *base, const struct rp_address *peer, bool first);
/* Locked. The queue pair that waits for this call, which it now has; NULL: none waits. */
struct sim_qp *sim_join_take(struct sim_device *device, const struct sim_packet *hello);

/* ---- simulated/dgram.c: datagrams. ---- */
int sim_dgram_open(struct sim_qp *qp);
void sim_dgram_close(struct sim_dgram *dgram); /* takes NULL */
/* Sends a request's datagram; 0: done, whether it is delivered or not. */
int sim_dgram_send(struct sim_qp *qp, struct sim_send *send, const struct rp_sge *sges);
/* Takes the datagrams in the sockets of all queue pairs that receive by this queue. */
void sim_dgram_receive(struct sim_cq *cq);
/* Whether the sockets wake a thread that sleeps on the queue's descriptor. */
void sim_dgram_arm(struct sim_cq *cq, bool on);
int sim_group_join(struct rp_qp *base, const char *address, struct rp_group **ret_group);
void sim_group_leave(struct rp_group *base);
int sim_flow_open(struct rp_qp *base, const struct rp_flow_rule *rule, struct rp_flow **ret_flow);
void sim_flow_close(struct rp_flow *base);

/* ---- simulated/ah.c: address handles. ---- */
int sim_ah_from_wc(
	struct rp_pd *base, const struct rp_wc *wc, const void *grh, struct rp_ah **ret_ah);
int sim_ah_open(struct rp_pd *base, const struct rp_address *to, struct rp_ah **ret_ah);
void sim_ah_close(struct rp_ah *base);
int sim_dci_aim(struct rp_qp *dci, struct rp_ah *ah, uint32_t target_qpn, uint64_t dc_key);

/* ---- simulated/fault.c ---- */
void sim_tally_flush(struct sim_qp *qp);
/* Whether a send may execute now as far as injected faults go: 0, 1 (it is lost silently, as
 * unreliable ones are), -EAGAIN (later), or -EIO: it has failed, its status says how (or the queue
 * pair is in error by now). */
int sim_fault_step(struct sim_qp *qp, struct sim_send *send) __attribute__((cold));
/* The receiver is not ready: -EAGAIN (wait), or -EIO when the retries are used up. */
int sim_rnr_step(struct sim_qp *qp, struct sim_send *send) __attribute__((cold));

#endif
